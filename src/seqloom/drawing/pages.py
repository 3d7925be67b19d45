"""Pages that hold all they need: a template beside the code, and what stands in its places."""

import html
from collections.abc import Mapping
from importlib.resources import files


def fill_page(template: str, parts: Mapping[str, str]) -> str:
    """The template of this name with a part in the place of each {{NAME}}.

    Part by part and not by replacing: what a part holds is never taken for the place of another.
    """
    opening, *rest = beside(template).split("{{")
    pieces = [opening]
    for section in rest:
        name, _, after = section.partition("}}")
        pieces += [parts[name], after]
    return "".join(pieces)


def beside(name: str) -> str:
    """A file that lies beside the code."""
    return (files("seqloom.drawing") / "templates" / name).read_text(encoding="utf-8")


def as_text(text: str) -> str:
    """Text that a page shows as it is."""
    return html.escape(text, quote=True)
