"""Text and codes inside a segment of TMX or XLIFF.

<g> <pc> <mrk> <hi>              a pair with text between its tags
<bpt>…</bpt> … <ept>…</ept>      a pair of two elements, each with foreign markup inside that is no text
<bx/> <ex/>  <sc/> <ec/>  <sm/> <em/>   the same without the markup
<x/> <ph> <it> <ut> <cp/> …      alone
"""

import re

from seqloom.text.formats.markup import Element, escape, tokens, unescape
from seqloom.text.formats.segments import Code, Content

_AROUND_TEXT = frozenset({"g", "pc", "mrk", "hi"})
_OPENING = frozenset({"bpt", "bx", "sc", "sm"})
_CLOSING = frozenset({"ept", "ex", "ec", "em"})
_KEYS = ("i", "rid", "startRef", "id")
"""Attributes by which the halves of a pair know each other: of TMX, of XLIFF 1.2, of XLIFF 2."""
_BROKEN = re.compile(r"(?:(?<![ \t])[ \t]++)?\n\s*+")
"""A line end and the space around it; a look-behind keeps a run of spaces from being tried from each of them."""


def content_of(text: str, element: Element, *, keeps_space: bool) -> Content:
    """What is between the tags of an element. Line ends mean a space, unless space is to be kept."""
    pieces: list[str | Code] = []
    # A way down and back again without recursion: what is still to be gone through, last first.
    left: list[Code | tuple[Element, int, int]] = [(element, 0, element.inner_start)]
    while left:
        item = left.pop()
        if isinstance(item, Code):
            pieces.append(item)
            continue
        parent, number, start = item
        if number == len(parent.children):
            pieces += _texts(text, start, parent.inner_end, keeps_space=keeps_space)
            continue
        child = parent.children[number]
        pieces += _texts(text, start, child.start, keeps_space=keeps_space)
        left.append((parent, number + 1, child.end))
        if child.name in _AROUND_TEXT and not child.is_empty and not _is_protected(child):
            kinds = ("border", "border") if _is_sentence(child) else ("open", "close")
            name = f"<{child.start - element.start}"
            pieces.append(Code(text[child.start : child.inner_start], kinds[0], name))  # type: ignore[arg-type]
            left.append(Code(text[child.inner_end : child.end], kinds[1], name))  # type: ignore[arg-type]
            left.append((child, 0, child.inner_start))
        else:
            pieces.append(_code(text, child))
    return tuple(pieces)


def _texts(text: str, start: int, end: int, *, keeps_space: bool) -> list[str | Code]:
    pieces: list[str | Code] = []
    for kind, begin, stop in tokens(text, start, end):
        if kind == "text":
            said = unescape(text[begin:stop])
        elif kind == "cdata":
            said = text[begin + 9 : stop - 3].replace("\r\n", "\n")
        elif text.startswith("<?", begin):
            pieces.append(Code(text[begin:stop]))
            continue
        else:
            continue  # a comment
        pieces.append(said if keeps_space else _BROKEN.sub(" ", said))
    return pieces


def _code(text: str, element: Element) -> Code:
    """An element as a whole."""
    key = next((value for name in _KEYS if (value := element.get(name)) is not None), "")
    written = text[element.start : element.end]
    if element.name in _OPENING:
        return Code(written, "open", f"#{element.get('id') if element.name in ('sc', 'sm') else key}")
    return Code(written, "close", f"#{key}") if element.name in _CLOSING else Code(written)


def _is_sentence(element: Element) -> bool:
    return element.name == "mrk" and element.get("mtype") == "seg"


def _is_protected(element: Element) -> bool:
    return element.name == "mrk" and (element.get("mtype") == "protected" or element.get("translate") == "no")


def write_content(content: Content) -> str:
    """Text and codes as XML."""
    return "".join(escape(piece) if isinstance(piece, str) else piece.text for piece in content)


def space_before(text: str, element: Element) -> str:
    """The spaces and line end between an element and the tag before it, to put a neighbour on a line of its own."""
    start = element.start
    while start > 0 and text[start - 1] in " \t\r\n":
        start -= 1
    return text[start : element.start]
