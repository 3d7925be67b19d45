"""Documents: files without a place for a translation, whose words are replaced and nothing else.

A passage is a run of text in the file that is one segment. Its codes are pieces of the file, and another passage may
be inside one of them: the title of a link, the text box of a drawing.
"""

import codecs
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from seqloom.core.errors import DataError
from seqloom.text.formats.segments import (
    Code,
    Content,
    Edit,
    Filling,
    Languages,
    Script,
    Segment,
    apply_edits,
    decoded,
)

MAX_TAGS = 1_000_000
"""Tags of a document. Each takes some 500 bytes of memory, so that a small file of nothing else could fill it."""
_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}


@dataclass(frozen=True, slots=True)
class Piece:
    """Text or a code, and its place in the file."""

    content: str | Code
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Passage:
    """A segment of a document, from `start` to before `end`."""

    content: Content
    start: int
    end: int
    write: Callable[[Content], str]
    """How a translation is written in the file."""
    codes: tuple[Piece, ...] = ()
    """Those that are pieces of the file as they are, in their order."""


def require_few_tags(data: bytes, path: Path) -> None:
    """Refuse a file that consists of tags."""
    if (tags := data.count(b"<")) > MAX_TAGS:
        raise DataError(f"{path}: more than {MAX_TAGS:,} tags ({tags:,}); split the file")


def decode_document(data: bytes, path: Path, *, declared: str = "utf-8") -> Script:
    """The text of a document: in the encoding of its byte-order mark, which stays in the text, or the declared one."""
    known = next((name for mark, name in _MARKS.items() if data.startswith(mark)), None)
    return decoded(data, known or declared, path)


def passage_edits(text: str, passages: Sequence[Passage], fillings: Mapping[int, Filling]) -> list[Edit]:
    """The edits that replace passages by their translations; one that says the same is not touched.

    From the last to the first, so that what is inside a code is known before the code is written.
    """
    edits: list[Edit] = []  # last first
    for number in sorted(fillings, key=lambda number: passages[number].start, reverse=True):
        passage, content = passages[number], fillings[number].content
        if content == passage.content:
            continue
        inside: list[Edit] = []
        while edits and edits[-1].start < passage.end:
            inside.append(edits.pop())
        if inside:
            content = _with_edits(text, content, passage.codes, inside)
        edits.append(Edit(passage.start, passage.end, passage.write(content)))
    return edits


def _with_edits(text: str, content: Content, codes: Iterable[Piece], edits: Sequence[Edit]) -> Content:
    """Content whose codes are written with the edits inside of them."""
    places: dict[Code, deque[Piece]] = defaultdict(deque)
    for piece in codes:
        assert isinstance(piece.content, Code)
        places[piece.content].append(piece)
    starts = [edit.start for edit in edits]
    written: list[str | Code] = []
    for each in content:
        if isinstance(each, str) or not places[each]:
            written.append(each)
            continue
        place = places[each].popleft()
        inner = [
            replace(edit, start=edit.start - place.start, end=edit.end - place.start)
            for edit in edits[bisect_left(starts, place.start) : bisect_left(starts, place.end)]
        ]
        raw = text[place.start : place.end]
        written.append(replace(each, text=each.text.replace(raw, apply_edits(raw, inner), 1)))
    return tuple(written)


class DocumentCatalogue:
    """A text file whose passages are translated."""

    languages: Languages = (None, None)

    def __init__(self, script: Script, passages: Iterable[Passage], *, locked: int = 0, errors: str = "strict") -> None:
        """`errors` says what becomes of characters that the encoding of the file cannot write."""
        self.script, self.locked, self._errors = script, locked, errors
        self.passages = sorted(passages, key=lambda passage: passage.start)
        self.segments = [
            Segment(passage.content, "", "untranslated", script.line(passage.start)) for passage in self.passages
        ]

    def filled(self, fillings: Mapping[int, Filling], *, target: str | None = None) -> bytes:  # noqa: ARG002
        """The file with translations in place of these segments."""
        return self.script.edited(passage_edits(self.script.text, self.passages, fillings), errors=self._errors)


def has_letters(content: Iterable[str | Code]) -> bool:
    """Whether there is anything to translate."""
    return any(isinstance(piece, str) and any(map(str.isalpha, piece)) for piece in content)


def trimmed(pieces: Sequence[Piece]) -> Sequence[Piece]:
    """Pieces without codes and spaces at both ends: those without a partner, and pairs around everything.

    They stay where they are, so that no alignment has to place them.
    """
    first, end = trimmed_range(pieces)
    return pieces[first:end]


def trimmed_range(pieces: Sequence[Piece]) -> tuple[int, int]:
    """The number of the first piece that is left, and of that after the last."""
    partners = _partners(pieces)
    first, last = 0, len(pieces) - 1
    while first <= last:
        if first not in partners and _is_empty(pieces[first]):
            first += 1
        elif last not in partners and _is_empty(pieces[last]):
            last -= 1
        elif partners.get(first) == last:
            first, last = first + 1, last - 1
        else:
            break
    return first, last + 1


def _is_empty(piece: Piece) -> bool:
    return isinstance(piece.content, Code) or not piece.content.strip()


def _partners(pieces: Sequence[Piece]) -> dict[int, int]:
    """Which codes are pairs, as tags are matched: one that closes ends the last of its name that is open."""
    partners: dict[int, int] = {}
    opened: list[tuple[str, int]] = []
    names: dict[str, int] = defaultdict(int)
    for number, piece in enumerate(pieces):
        code = piece.content
        if isinstance(code, str):
            continue
        if code.kind == "open":
            opened.append((code.name, number))
            names[code.name] += 1
        elif code.kind == "close" and names[code.name]:
            name, place = "", -1
            while name != code.name or place < 0:
                name, place = opened.pop()
                names[name] -= 1
            partners |= {place: number, number: place}
    return partners


def joined_text(content: Content) -> str:
    """Text and codes as they are, for formats that escape nothing."""
    return "".join(piece if isinstance(piece, str) else piece.text for piece in content)


def lines_between_breaks(pieces: Sequence[Piece], *, inside_pairs: bool = True) -> Iterator[tuple[int, int]]:
    """Where the lines of some pieces begin and end: between borders, and between line breaks at the end of a sentence.

    A break is inside a sentence after a word or comma, and before a lower-case letter. Without `inside_pairs`, one
    that is inside a pair ends no line.
    """
    following = [""] * len(pieces)  # the next text after each piece
    for number in range(len(pieces) - 2, -1, -1):
        content = pieces[number + 1].content
        is_text = isinstance(content, str) and bool(content.strip())
        following[number] = content if is_text and isinstance(content, str) else following[number + 1]
        if isinstance(content, Code) and content.parts_words:
            following[number] = ""
    start = depth = 0
    before = ""
    for number, (piece, after) in enumerate(zip(pieces, following, strict=True)):
        code = piece.content
        if isinstance(code, str):
            before = code if code.strip() else before
            continue
        depth += {"open": 1, "close": -1}.get(code.kind, 0)
        if code.parts_words and (inside_pairs or depth == 0):
            last, first = before.rstrip()[-1:], after.lstrip()[:1]
            is_inside_sentence = (last.isalnum() or last == ",") and first.islower()
            if code.kind == "border" or not is_inside_sentence:
                yield start, number
                start = number + 1
            before = ""
    yield start, len(pieces)
