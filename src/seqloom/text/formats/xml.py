"""Text and codes inside a segment of TMX or XLIFF.

<g> <pc> <mrk> <hi>              a pair with text between its tags
<bpt>…</bpt> … <ept>…</ept>      a pair of two elements, each with foreign markup inside that is not text
<bx/> <ex/>  <sc/> <ec/>  <sm/> <em/>   the same without the markup
<x/> <ph> <it> <ut> <cp/> …      alone
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, Protocol

from seqloom.core.errors import DataError, Problem, UsageError
from seqloom.core.text_files import open_bytes
from seqloom.text.formats.segments import Code, Content, Script, decoded

# XML whose places are known: elements with where their tags begin and end in the text of the file.
#
# defusedxml reads the file first and refuses what is not well-formed and what can do harm: entities that it declares,
# which can grow without bound, and external entities. Only then are tags searched, without further checks.

CHUNK = 1 << 16
MAX_DEPTH = 500
"""Elements inside each other."""

_DECLARED = re.compile(rb"""^\s*<\?xml[^>]*?encoding\s*=\s*["']([A-Za-z0-9._-]+)""")
_BEGINNINGS = {"utf-16-le": (b"\xff\xfe", b"<\0"), "utf-16-be": (b"\xfe\xff", b"\0<"), "utf-8": (b"\xef\xbb\xbf",)}
"""By which an encoding is known, whatever the file declares: a mark, or the first character as the parser knows it."""
_NAME = re.compile(r"<([^\s/>]+)")
_ATTRIBUTE = re.compile(r"""\s+([^\s=/>]+)\s*=\s*("[^"]*"|'[^']*')""")
_REFERENCE = re.compile(r"&(?:#([0-9]+)|#x([0-9A-Fa-f]+)|([A-Za-z]+));")
_NAMED = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TOKEN = re.compile(
    r"""(?P<text> [^<]++ )
    | (?P<cdata> <!\[CDATA\[ .*? \]\]> )
    | (?P<other> <!-- .*? --> | <\? .*? \?>
        | <! (?: [^]["'<>] | "[^"]*+" | '[^']*+'
            | \[ (?: <!-- .*? --> | <\? .*? \?> | "[^"]*+" | '[^']*+' | [^]"'] )*+ \] )*+ > )  # with inner declarations
    | (?P<close> </ [^>]*+ > )
    | (?P<open> < (?: [^"'>]++ | "[^"]*+" | '[^']*+' )*+ > )""",
    re.VERBOSE | re.DOTALL,
)


class Target(Protocol):
    """Receives elements as they are read. Names are as in {namespace}name."""

    def start(self, name: str, attributes: dict[str, str], line: int) -> None: ...

    def end(self, name: str) -> None: ...

    def data(self, text: str) -> None: ...


@dataclass
class _Adapter:
    """Passes on the parser's calls, with the line."""

    target: Target | None
    parser: Any = None
    depth: int = 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise _TooDeep
        if self.target is not None:
            self.target.start(name, attributes, self.parser.parser.CurrentLineNumber)

    def end(self, name: str) -> None:
        self.depth -= 1
        if self.target is not None:
            self.target.end(name)

    def data(self, text: str) -> None:
        if self.target is not None:
            self.target.data(text)

    def close(self) -> None:
        """Nothing is made of it all."""


class _TooDeep(Exception):
    """More elements inside each other than anybody writes."""


def parse_xml(path: Path, target: Target | None = None, *, data: bytes | None = None) -> Iterator[None]:
    """Read a file piece by piece into `target`; after each piece the caller can take what it has.

    Memory holds a piece, however large the file is. With `data`, that is read, and the path is for messages.
    """
    try:
        from defusedxml import DefusedXmlException
        from defusedxml.ElementTree import DefusedXMLParser, ParseError
    except ImportError as error:
        raise UsageError(f"{path} needs the library defusedxml to be read: pip install defusedxml") from error
    adapter = _Adapter(target)
    # A document type is allowed, as TMX has one, but nothing in it that could do harm.
    parser: Any = DefusedXMLParser(target=adapter, forbid_dtd=False, forbid_entities=True, forbid_external=True)
    adapter.parser = parser
    try:
        with open_bytes(path) if data is None else BytesIO(data) as file:
            while piece := file.read(CHUNK):
                parser.feed(piece)
                yield
        parser.close()
    except DefusedXmlException as error:
        what = f"the file declares entities or refers to other files, which is not read ({type(error).__name__})"
        raise _unreadable(what, path, parser.parser.CurrentLineNumber) from error
    except ParseError as error:
        line, column = error.position
        raise _unreadable(f"not well-formed XML: {str(error).split(': line ')[0]}", path, line, column + 1) from error
    except _TooDeep as error:
        what = f"more than {MAX_DEPTH} elements inside each other"
        raise _unreadable(what, path, parser.parser.CurrentLineNumber) from error
    except (LookupError, ValueError) as error:
        what = "the encoding that the XML declares cannot be read; convert the file to UTF-8"
        raise _unreadable(what, path, 1) from error
    yield


def _unreadable(message: str, path: Path, line: int, column: int | None = None) -> DataError:
    return DataError(problems=[Problem(message, str(path), line, column)])


# --- the tree --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Attribute:
    """A value, and its position between the quotes."""

    value: str
    start: int
    end: int


@dataclass(slots=True)
class Element:
    """An element and the positions of its two tags; <a/> ends where its tag ends."""

    name: str
    """Without a prefix."""
    tag: str
    """As written in the file."""
    attributes: dict[str, Attribute]
    start: int
    inner_start: int
    inner_end: int = -1
    end: int = -1
    children: list["Element"] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether it is written <a/>."""
        return self.inner_end == self.end

    def get(self, name: str) -> str | None:
        """The value of an attribute."""
        found = self.attributes.get(name)
        return None if found is None else found.value

    def child(self, name: str) -> "Element | None":
        """The first child of this name."""
        return next((each for each in self.children if each.name == name), None)


def parse_tree(data: bytes, path: Path) -> tuple[Script, Element]:
    """The text of a file and its outermost element; the path is for messages."""
    for _ in parse_xml(path, data=data):
        pass
    declared = _DECLARED.match(data[:1000])
    encoding = next((name for name, beginnings in _BEGINNINGS.items() if data.startswith(beginnings)), None)
    script = decoded(data, encoding or (declared[1].decode("ascii").lower() if declared else "utf-8"), path)
    text, roots, opened = script.text, list[Element](), list[Element]()
    for kind, start, end in tokens(text, 0, len(text)):
        if kind in ("open", "empty"):
            element = _element(text, start, end)
            (opened[-1].children if opened else roots).append(element)
            if kind == "empty":
                element.inner_end = element.end = end
            else:
                opened.append(element)
        elif kind == "close":
            element = opened.pop()
            element.inner_end, element.end = start, end
    return script, roots[0]


def _element(text: str, start: int, end: int) -> Element:
    found = _NAME.match(text, start)
    assert found is not None
    attributes = {}
    at = found.end()
    while each := _ATTRIBUTE.match(text, at, end):
        attributes[each[1]] = Attribute(unescape(each[2][1:-1]), each.start(2) + 1, each.end(2) - 1)
        at = each.end()
    return Element(found[1].rpartition(":")[2], found[1], attributes, start, end)


def tokens(text: str, start: int, end: int) -> Iterator[tuple[str, int, int]]:
    """The tokens between two positions of well-formed XML: open, close, empty, text, cdata, and other for the rest."""
    for found in _TOKEN.finditer(text, start, end):
        kind = found.lastgroup or ""
        yield "empty" if kind == "open" and text[found.end() - 2] == "/" else kind, found.start(), found.end()


def unescape(text: str) -> str:
    """Text with its references replaced by their characters; line ends are LF."""

    def meaning(found: "re.Match[str]") -> str:
        if found[1] or found[2]:
            return chr(int(found[1]) if found[1] else int(found[2], 16))
        return _NAMED.get(found[3], found[0])  # the parser lets others pass in attributes where a DTD could name them

    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _REFERENCE.sub(meaning, text) if "&" in text else text


def escape(text: str) -> str:
    """Text as written between tags; characters that XML cannot represent are removed."""
    text = _FORBIDDEN.sub("", text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace("\r", "&#13;")


def escape_attribute(text: str) -> str:
    """Text as written between the quotes of an attribute."""
    return escape(text).replace('"', "&quot;").replace("\t", "&#9;").replace("\n", "&#10;")


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
    # Depth first without recursion: what is still to be visited, last first.
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
        role = child.get("mtype") if child.name == "mrk" else None
        is_protected = role == "protected" or (child.name == "mrk" and child.get("translate") == "no")
        if child.name in _AROUND_TEXT and not child.is_empty and not is_protected:
            kinds = ("border", "border") if role == "seg" else ("open", "close")
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
            content = unescape(text[begin:stop])
        elif kind == "cdata":
            content = text[begin + 9 : stop - 3].replace("\r\n", "\n")
        elif text.startswith("<?", begin):
            pieces.append(Code(text[begin:stop]))
            continue
        else:
            continue  # a comment
        pieces.append(content if keeps_space else _BROKEN.sub(" ", content))
    return pieces


def _code(text: str, element: Element) -> Code:
    """An element as a whole."""
    key = next((value for name in _KEYS if (value := element.get(name)) is not None), "")
    written = text[element.start : element.end]
    if element.name in _OPENING:
        return Code(written, "open", f"#{element.get('id') if element.name in ('sc', 'sm') else key}")
    return Code(written, "close", f"#{key}") if element.name in _CLOSING else Code(written)


def write_content(content: Content) -> str:
    """Text and codes as XML."""
    return "".join(escape(piece) if isinstance(piece, str) else piece.text for piece in content)


def space_before(text: str, element: Element) -> str:
    """The spaces and line end between an element and the tag before it, to put a neighbour on its own line."""
    start = element.start
    while start > 0 and text[start - 1] in " \t\r\n":
        start -= 1
    return text[start : element.start]
