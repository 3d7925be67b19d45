"""Self-contained HTML pages, made from a template and its values."""

import html
from collections.abc import Mapping
from importlib.resources import files


def fill_page(template: str, parts: Mapping[str, str]) -> str:
    """The template of this name with a part in the place of each {{NAME}}.

    Part by part and not by replacing: what a part holds is never taken for the place of another.
    """
    opening, *rest = read_template(template).split("{{")
    pieces = [opening]
    for section in rest:
        name, _, after = section.partition("}}")
        pieces += [parts[name], after]
    return "".join(pieces)


def read_template(name: str) -> str:
    """The text of a file in the templates folder."""
    return (files("seqloom.drawing") / "templates" / name).read_text(encoding="utf-8")


def as_text(text: str) -> str:
    """Escape text for HTML."""
    return html.escape(text, quote=True)
