"""Self-contained HTML pages from a template and its values; text of models and data is escaped by html.escape."""

import json
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any


def fill_page(template: str, parts: Mapping[str, str]) -> str:
    """The template of this name with a part in the place of each {{NAME}}; braces inside a part mean nothing."""
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], read_template(template))


def read_template(name: str) -> str:
    """The text of a file in the templates folder."""
    return (files("seqloom.drawing") / "templates" / name).read_text(encoding="utf-8")


def script_data(values: Any) -> str:
    """Values for a script, as JSON that cannot end its element."""
    text = json.dumps(values, ensure_ascii=False, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
