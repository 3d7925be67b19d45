r"""Subtitles, SubRip (.srt) and WebVTT (.vtt): the text of each cue is a segment, whatever the number of its lines.

    7                                   numbers, times and settings stay
    00:01:02,000 --> 00:01:04,500
    {\an8}<i>He was never
    there.</i>                          one sentence; its translation is wrapped to two lines again

Lines that begin with a dash are of two speakers, and are translated apart.
"""

import html
import re
import unicodedata
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

from seqloom.core.errors import DataError
from seqloom.text.formats.documents import (
    DocumentCatalogue,
    Passage,
    Piece,
    decode_document,
    has_letters,
    joined_text,
    trimmed,
)
from seqloom.text.formats.segments import Code, Content, Script
from seqloom.text.marks import is_unspaced

_LINE = re.compile(r"([^\r\n]*+)(\r\n|\n|\r|\Z)")
_TIMES = re.compile(r"\s*+\d[\d:.,]*+\s*+-->\s*+\d")
_NUMBER = re.compile(r"\s*\d+\s*")
_DASH = re.compile(r"\s*(?:</?[A-Za-z][^<>]*>|\{\\[^{}]*\})*\s*[-–—]")
_LEADING_DASH = re.compile(r"[-–—]\s*")
_SRT_CODE = re.compile(r"<(/?)([A-Za-z][^\s<>]*)[^<>]*>|\{\\[^{}]*\}|\{[A-Za-z]:[^{}]*\}")
_VTT_CODE = re.compile(r"<(/?)([A-Za-z]*)[^<>]*>")
_SPACE = re.compile(r"(?:(?<![ \t])[ \t]++)?(?:\r\n|\n|\r)[ \t]*+")
"""A line end and the spaces around it; a look-behind keeps a run of spaces from being tried from each of them."""
_MAX_EVEN_LINES = 50
"""Lines of a cue up to which each line gets a word at least."""


@dataclass(frozen=True)
class _Line:
    """A line of the file, without its end."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class _Notation:
    """How text is written in cues."""

    codes: re.Pattern[str]
    has_entities: bool

    def read(self, text: str) -> str:
        """What people read."""
        return html.unescape(text) if self.has_entities else text

    def write(self, content: Content, *, lines: int, line_end: str) -> str:
        """Text and tags, in as many lines."""
        written: list[str | Code] = []
        for piece in wrap(content, lines=lines, line_end=line_end):
            if isinstance(piece, str):
                text = piece.replace("-->", "->")  # which would begin a cue
                piece = html.escape(text, quote=False).replace("\u00a0", "&nbsp;") if self.has_entities else text
            written.append(piece)
        return joined_text(tuple(written))


_SRT, _VTT = _Notation(_SRT_CODE, has_entities=False), _Notation(_VTT_CODE, has_entities=True)


def parse_srt(data: bytes, path: Path) -> DocumentCatalogue:
    """SubRip, in UTF-8 or in the encoding of its byte-order mark."""
    script = decode_document(data, path)
    cues: list[list[_Line]] = []
    group: list[_Line] = []
    has_begun = False
    for line in _lines_of(script.text):
        is_time = _TIMES.match(line.text) is not None
        if is_time and group and _NUMBER.fullmatch(group[-1].text):
            group.pop()  # the number of the next cue
        if is_time or not line.text.strip():
            cues.append(group)
            group = []
            has_begun |= is_time
        elif has_begun:
            group.append(line)
    return _catalogue(script, [*cues, group], _SRT, is_known=has_begun)


def parse_vtt(data: bytes, path: Path) -> DocumentCatalogue:
    """WebVTT; blocks without a time are left alone, and so is the header."""
    script = decode_document(data, path)
    cues: list[list[_Line]] = []
    group: list[_Line] = []
    is_cue = False
    for line in _lines_of(script.text):
        is_time = "-->" in line.text
        if is_time or not line.text.strip():
            cues.append(group)
            group, is_cue = [], is_time
        elif is_cue:
            group.append(line)
    return _catalogue(script, [*cues, group], _VTT, is_known=script.text.lstrip("\ufeff").startswith("WEBVTT"))


def _catalogue(
    script: Script, cues: Sequence[Sequence[_Line]], notation: _Notation, *, is_known: bool
) -> DocumentCatalogue:
    if not is_known and script.text.strip("\ufeff \t\r\n"):
        wanted = "it does not begin with WEBVTT" if notation is _VTT else "it has no line such as 00:01:02,000 --> …"
        raise DataError(f"{script.path}: not a file of subtitles: {wanted}")
    passages = (_passage(script.text, lines, notation) for cue in cues for lines in _speakers(cue))
    return DocumentCatalogue(script, (each for each in passages if each is not None))


def _lines_of(text: str) -> Iterator[_Line]:
    at = 1 if text.startswith("\ufeff") else 0
    while at < len(text):
        found = _LINE.match(text, at)
        assert found is not None
        yield _Line(at, found.end(1), found[1])
        at = found.end()


def _speakers(cue: Sequence[_Line]) -> Iterator[Sequence[_Line]]:
    """The lines of each speaker, who begins with a dash."""
    first = 0
    for number, line in enumerate(cue):
        if number and _DASH.match(line.text):
            yield cue[first:number]
            first = number
    if cue:
        yield cue[first:]


def _passage(text: str, lines: Sequence[_Line], notation: _Notation) -> Passage | None:
    """The lines as one segment; None if there is nothing to translate."""
    start, end = lines[0].start, lines[-1].end
    pieces: list[Piece] = []
    done = start
    for found in notation.codes.finditer(text, start, end):
        pieces.append(Piece(text[done : found.start()], done, found.start()))
        slash, name = (found[1], found[2]) if found[0].startswith("<") else ("", "")
        name = name.split(".")[0].lower()
        code = Code(found[0], "close" if slash else "open", name) if name else Code(found[0])
        pieces.append(Piece(code, found.start(), found.end()))
        done = found.end()
    pieces.append(Piece(text[done:end], done, end))
    kept = trimmed([piece for piece in pieces if piece.content != ""])
    if not has_letters(piece.content for piece in kept):
        return None
    start, end = kept[0].start, kept[-1].end
    count = len(_SPACE.findall(text[start:end].strip())) + 1
    line_end = _LINE.match(text, lines[0].start)
    write = partial(notation.write, lines=count, line_end=line_end[2] if line_end and line_end[2] else "\n")
    while text[start].isspace():
        start += 1
    if isinstance(kept[0].content, str) and (dash := _LEADING_DASH.match(text, start, kept[0].end)):
        start = dash.end()
    while text[end - 1].isspace():
        end -= 1
    content: list[str | Code] = []
    for piece in kept:
        if isinstance(piece.content, Code):
            content.append(piece.content)
        elif raw := text[max(piece.start, start) : min(piece.end, end)]:
            content.append(notation.read(_SPACE.sub(_join, raw)))
    return Passage(tuple(content), start, end, write)


def _join(found: "re.Match[str]") -> str:
    """What replaces a line end: a space, but nothing in scripts without spaces."""
    before, after = found.string[found.start() - 1 : found.start()], found.string[found.end() : found.end() + 1]
    return "" if before and after and all(map(_is_unspaced, (before, after))) else " "


# --- wrapping --------------------------------------------------------------------------------------------------------


def wrap(content: Content, *, lines: int, line_end: str) -> Content:
    """Content in so many lines of about one length, where it has as many words; codes have no width."""
    shown = "".join(piece for piece in content if isinstance(piece, str))
    cuts = deque(_cuts(shown, lines))
    wrapped: list[str | Code] = []
    end = 0
    for piece in content:
        if isinstance(piece, Code):
            wrapped.append(piece)
            continue
        done, end = end, end + len(piece)
        parts: list[str] = []
        while cuts and cuts[0] < end:
            cut = cuts.popleft()
            parts += [shown[done:cut].rstrip(" "), line_end]
            done = cut + (shown[cut] == " ")
        wrapped.append("".join([*parts, shown[done:end]]))
    return tuple(wrapped)


def _cuts(text: str, lines: int) -> list[int]:
    """Where to end lines: before these characters, which are spaces or of a script without them."""
    places = [at for at in range(1, len(text) - 1) if _may_end(text, at)]
    if lines < 2 or not places:
        return []
    low, high = 1, len(text)
    while low < high:  # the least width at which the lines are few enough
        width = (low + high) // 2
        if len(_greedy(places, len(text), width)) < lines:
            high = width
        else:
            low = width + 1
    cuts = _greedy(places, len(text), low)
    while len(cuts) < min(lines, _MAX_EVEN_LINES) - 1 and len(cuts) < len(places):
        ends = [0, *cuts, len(text)]
        spans = sorted(pairwise(ends), key=lambda span: span[0] - span[1])
        free = ([at for at in places if begin < at < end] for begin, end in spans)
        inner = next(each for each in free if each)
        cuts = sorted([*cuts, inner[len(inner) // 2]])
    return cuts


def _may_end(text: str, at: int) -> bool:
    if text[at] == " ":
        return text[at - 1] != " "
    is_attached = unicodedata.category(text[at])[0] == "M"
    return _is_unspaced(text[at - 1]) and _is_unspaced(text[at]) and not is_attached


def _is_unspaced(character: str) -> bool:
    return is_unspaced(character) and not character.isspace()


def _greedy(places: Sequence[int], length: int, width: int) -> list[int]:
    """The cuts that fill each line up to a width; a word that is longer has a line of its own."""
    cuts: list[int] = []
    begin = 0
    for at, following in zip(places, [*places[1:], length], strict=True):
        if following - begin > width:
            cuts.append(at)
            begin = at
    return cuts
