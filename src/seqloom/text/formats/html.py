"""HTML, whole pages or fragments, and strings of XML: the text of each block is a segment, its inline tags are codes.

    <p>Take <b>this</b> <img alt="key">.<br>Then go.</p>    three segments: key | Take <b>this</b> <img> . | Then go.

White space folds as in a browser. Nothing is an error: what a browser would not show as text is left as it is.
"""

import html
import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from seqloom.core.text_files import is_encoding_of_files
from seqloom.text.formats.documents import (
    DocumentCatalogue,
    Passage,
    Piece,
    decode_document,
    has_letters,
    lines_between_breaks,
    require_few_tags,
    trimmed,
)
from seqloom.text.formats.markup import VOID, MarkupAttribute, Token, attributes_of, fold_spaces, markup_tokens
from seqloom.text.formats.segments import Code, Content, Kind, Script


def _names(words: str) -> frozenset[str]:
    return frozenset(words.split())


BLOCKS = _names(
    "address article aside base blockquote body button caption center col colgroup dd details dialog dir div dl dt "
    "fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html legend li link "
    "main menu meta nav noframes noscript ol optgroup option p pre search section select summary table tbody td "
    "template textarea tfoot th thead title tr ul"
)
"""Elements that part sentences; all others, unknown ones too, are inline."""
SKIPPED = _names(
    "applet audio canvas code embed iframe kbd math noembed noframes object plaintext samp script style svg template "
    "textarea var video xmp"
)
"""Elements whose content is not translated, as in the translators of browsers."""
ATTRIBUTES = _names("alt aria-label placeholder title")
"""Attributes that people read."""

_CLOSED_BY: dict[str, frozenset[str]] = {
    "p": BLOCKS - {"button", "template"},
    "li": _names("li"),
    "dt": _names("dt dd"),
    "dd": _names("dt dd"),
    "td": _names("td th tr tbody tfoot"),
    "th": _names("td th tr tbody tfoot"),
    "tr": _names("tr tbody tfoot"),
    "option": _names("option optgroup"),
    "optgroup": _names("optgroup"),
}
"""Elements that may lack an end tag, and those whose beginning ends them."""
_ADDRESS = re.compile(r"\s*(?:https?://|www\.|[@#])\S+\s*")
"""What a link shows that names a page, a person or a subject."""
_MAX_LINK_TOKENS = 30
_MAX_MERGED_LENGTH = 2_000
"""Characters of elements without text that become one code: to copy longer ones at each level takes quadratic time."""
_CHARSET = re.compile(rb"""<meta\s[^>]*?charset\s*=\s*["']?\s*([A-Za-z0-9._:-]+)""", re.IGNORECASE)
_DECLARED = re.compile(rb"""^\s*<\?xml[^>]*?encoding\s*=\s*["']([A-Za-z0-9._-]+)""")


@dataclass(frozen=True)
class _Dialect:
    """What the names of elements mean."""

    is_xml: bool = False
    blocks: Collection[str] = BLOCKS
    skipped: Collection[str] = SKIPPED
    attributes: Collection[str] = ATTRIBUTES
    no_break: str = "&nbsp;"
    """How a no-break space is written."""

    def escape(self, text: str) -> str:
        """Text as it is written between tags."""
        return html.escape(text, quote=False).replace("\u00a0", self.no_break)

    def write(self, content: Content) -> str:
        """Text and tags."""
        return "".join(self.escape(piece) if isinstance(piece, str) else piece.text for piece in content)

    def write_value(self, content: Content, *, quote: str) -> str:
        """The value of an attribute; one without quotes gets some."""
        value = self.write(content)
        if not quote:
            return '"' + value.replace('"', "&quot;") + '"'
        return value.replace(quote, "&quot;" if quote == '"' else "&#39;")


def parse_html(data: bytes, path: Path) -> DocumentCatalogue:
    """A page as it is in a file. Its encoding is that of its mark, its declaration or `<meta charset>`, or UTF-8."""
    require_few_tags(data, path)
    top = data[:1024]
    found = _DECLARED.search(top) or _CHARSET.search(top)
    declared = found[1].decode("ascii").lower() if found else "utf-8"
    if declared in ("iso-8859-1", "latin-1", "latin1", "us-ascii", "ascii"):
        # Browsers read these as Windows-1252; where that has no character for a byte, the bytes must stay all the same.
        declared = "latin-1" if re.search(rb"[\x81\x8d\x8f\x90\x9d]", data) else "windows-1252"
    elif not is_encoding_of_files(declared) or declared.startswith("utf-16"):
        declared = "utf-8"  # a page that can name its encoding in ASCII is not in UTF-16
    script = decode_document(data, path, declared=declared)
    is_xhtml = script.text.lstrip("\ufeff \t\r\n").startswith("<?xml")
    return _catalogue(script, _Dialect(no_break="&#160;") if is_xhtml else _Dialect())


def html_catalogue(text: str) -> DocumentCatalogue:
    """HTML in a string, a fragment or a page; `filled` gives it in UTF-8."""
    return _catalogue(Script(Path("text"), text, "utf-8"), _Dialect())


def xml_catalogue(
    text: str,
    *,
    ignore_tags: Collection[str] = (),
    splitting_tags: Collection[str] = (),
    non_splitting_tags: Collection[str] = (),
) -> DocumentCatalogue:
    """A string of XML, or a fragment; `filled` gives it in UTF-8.

    The content of elements in `ignore_tags` is not translated, those in `splitting_tags` part sentences, unless they
    are in `non_splitting_tags`; all others are inline. White space does not fold.
    """
    blocks = frozenset(splitting_tags) - frozenset(non_splitting_tags)
    dialect = _Dialect(True, blocks, frozenset(ignore_tags), attributes=(), no_break="\u00a0")
    return _catalogue(Script(Path("text"), text, "utf-8"), dialect)


def _catalogue(script: Script, dialect: _Dialect) -> DocumentCatalogue:
    reader = _Reader(script.text, dialect)
    return DocumentCatalogue(script, reader.passages, locked=reader.locked, errors="xmlcharrefreplace")


class _Reader:
    """Finds the passages of a text."""

    def __init__(self, text: str, dialect: _Dialect) -> None:
        self._text, self._dialect = text, dialect
        self._tokens = list(markup_tokens(text, is_xml=dialect.is_xml))
        self._pieces: list[Piece] = []  # of the block that is being read
        self._opened: Counter[str] = Counter()
        self.passages: list[Passage] = []
        self.locked = 0
        """Elements that say that they must not be translated."""
        at = 0
        while at < len(self._tokens):
            at = self._read(at)
        self._end_block()

    def _read(self, at: int) -> int:
        """Read a token, or an element that is not translated; the number of the next one."""
        token = self._tokens[at]
        if token.kind == "text":
            self._pieces.append(Piece(self._decoded(token), token.start, token.end))
        elif token.kind in ("open", "empty"):
            attributes = attributes_of(self._text, token)
            if (end := self._end_of_skipped(at, attributes)) is not None:
                self._add_code(token.name, token.start, self._tokens[end - 1].end, kind="alone")
                return end
            self._add_attributes(attributes)
            # First what it ends: the block before <pre> folds, that before </pre> does not.
            self._add_code(token.name, token.start, token.end, kind="alone" if token.kind == "empty" else "open")
            if token.kind == "open":
                self._opened[token.name] += 1
        elif token.kind == "close":
            self._add_code(token.name, token.start, token.end, kind="close")
            self._opened[token.name] -= self._opened[token.name] > 0
        else:
            self._pieces.append(Piece(Code(self._text[token.start : token.end]), token.start, token.end))
        return at + 1

    def _decoded(self, token: Token) -> str:
        raw = self._text[token.start : token.end]
        if self._dialect.is_xml or self._opened["pre"]:
            return html.unescape(raw)
        return html.unescape(fold_spaces(raw))

    def _add_code(self, name: str, start: int, end: int, *, kind: Kind) -> None:
        if name in self._dialect.blocks:
            self._end_block()
            return
        if kind == "close" and (opening := self._opening_of(name)) is not None:
            start, kind = self._pieces[opening].start, "alone"
            del self._pieces[opening:]
        is_break = name == "br" and not self._dialect.is_xml
        code = Code(self._text[start:end], kind, name if kind != "alone" else "", parts_words=is_break)
        self._pieces.append(Piece(code, start, end))

    def _opening_of(self, name: str) -> int | None:
        """The piece that opens an element with no text inside, which moves as one: <i></i>, <a><img></a>."""
        for number in range(len(self._pieces) - 1, -1, -1):
            content = self._pieces[number].content
            if self._pieces[-1].end - self._pieces[number].start > _MAX_MERGED_LENGTH:
                return None
            if isinstance(content, Code) and content.kind == "open":
                return number if content.name == name else None
            is_text = isinstance(content, str) and content.strip() != ""
            if is_text or (isinstance(content, Code) and (content.kind == "close" or content.parts_words)):
                return None
        return None

    def _add_attributes(self, attributes: dict[str, MarkupAttribute]) -> None:
        for name, found in attributes.items():
            if name in self._dialect.attributes and has_letters((found.value,)):
                write = partial(self._dialect.write_value, quote=found.quote)
                self.passages.append(Passage((found.value,), found.start, found.end, write))

    def _end_block(self) -> None:
        """Make passages of the pieces that were read; a line break ends one, unless it is inside a sentence."""
        for start, end in lines_between_breaks(self._pieces):
            kept = trimmed(self._pieces[start:end])
            if not has_letters(piece.content for piece in kept):
                continue
            kept = self._without_space(kept)
            content = _content(kept, folds=not (self._dialect.is_xml or self._opened["pre"]))
            codes = tuple(piece for piece in kept if isinstance(piece.content, Code))
            self.passages.append(Passage(content, kept[0].start, kept[-1].end, self._dialect.write, codes))
        self._pieces = []

    def _without_space(self, pieces: Sequence[Piece]) -> Sequence[Piece]:
        """Pieces without the white space at both ends."""
        kept = list(pieces)
        if isinstance(text := kept[0].content, str):
            raw = self._text[kept[0].start : kept[0].end]
            space = len(raw) - len(raw.lstrip(" \t\n\r\f"))
            kept[0] = replace(kept[0], content=text.lstrip(" \t\n\r\f") if space else text, start=kept[0].start + space)
        if isinstance(text := kept[-1].content, str):
            raw = self._text[kept[-1].start : kept[-1].end]
            space = len(raw) - len(raw.rstrip(" \t\n\r\f"))
            kept[-1] = replace(kept[-1], content=text.rstrip(" \t\n\r\f") if space else text, end=kept[-1].end - space)
        return kept

    # --- what is not translated ---------------------------------------------------------------------------------------

    def _end_of_skipped(self, at: int, attributes: dict[str, MarkupAttribute]) -> int | None:
        """The number of the token after an element that is not translated; None if it is."""
        token, is_xml = self._tokens[at], self._dialect.is_xml
        is_marked = not is_xml and (
            ("translate" in attributes and attributes["translate"].value.strip().lower() == "no")
            or ("class" in attributes and "notranslate" in attributes["class"].value.split())
        )
        if is_marked or token.name in self._dialect.skipped:
            self.locked += is_marked
            return at + 1 if token.kind == "empty" else self._end_of_element(at)
        if token.name == "a" and token.kind == "open" and not is_xml:
            return self._end_of_address(at)
        return None

    def _end_of_element(self, at: int) -> int:
        """The number of the token after an element, whether it has an end tag or a browser has to find its end."""
        name = self._tokens[at].name
        closing = frozenset() if self._dialect.is_xml else _CLOSED_BY.get(name, frozenset())
        scopes = _names("ul ol dl table select button template") if closing else ()
        opened: list[str] = []
        counts: Counter[str] = Counter()
        for number in range(at + 1, len(self._tokens)):
            token = self._tokens[number]
            if token.kind == "open" or (token.kind == "empty" and token.name in VOID):
                if token.name in closing and not any(counts[block] for block in scopes):
                    return number
                if token.kind == "open":
                    opened.append(token.name)
                    counts[token.name] += 1
            elif token.kind == "close":
                if counts[token.name]:
                    closed = None
                    while closed != token.name:
                        closed = opened.pop()
                        counts[closed] -= 1
                elif token.name == name:
                    return number + 1
                elif self._opened[token.name]:
                    return number  # the end of what it is inside of
        return len(self._tokens)

    def _end_of_address(self, at: int) -> int | None:
        """The number of the token after a link that shows an address, a mention or a tag; None if it shows words."""
        shown: list[str] = []
        for number in range(at + 1, min(at + _MAX_LINK_TOKENS, len(self._tokens))):
            token = self._tokens[number]
            if token.name in self._dialect.blocks or (token.name == "a" and token.kind != "close"):
                return None
            if token.kind == "close" and token.name == "a":
                return number + 1 if _ADDRESS.fullmatch("".join(shown)) else None
            if token.kind == "text":
                shown.append(self._decoded(token))
        return None


def _content(pieces: Sequence[Piece], *, folds: bool) -> Content:
    """The content of pieces; white space on both sides of a tag is one space, where it folds."""
    content: list[str | Code] = []
    has_space = False
    for piece in pieces:
        each = piece.content
        if isinstance(each, str):
            if folds and has_space:
                each = each.removeprefix(" ")
            if not each:
                continue
            has_space = each.endswith(" ")
            if content and isinstance(content[-1], str):
                content[-1] += each
                continue
        elif each.kind == "alone":  # it may show something
            has_space = False
        content.append(each)
    return tuple(content)
