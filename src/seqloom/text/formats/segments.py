"""What translators' files hold, whatever their format: segments that have a source, a target and a state.

A file is filled by editing its text: everything else stays the same, byte for byte.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, Protocol

from seqloom.core.errors import DataError, Problem
from seqloom.core.text_files import is_encoding_of_files

Languages = tuple[str | None, str | None]
"""Source and target, where they are known."""

Side = Literal["source", "target"]
State = Literal["untranslated", "fuzzy", "translated"]
Kind = Literal["alone", "open", "close", "border"]


@dataclass(frozen=True, slots=True)
class Code:
    """Markup inside a segment: it is not translated, and is kept exactly as written."""

    text: str
    """As written in the file."""
    kind: Kind = "alone"
    """Whether it is alone, opens or closes a pair, or separates texts that are translated one by one."""
    name: str = ""
    """What the two codes of a pair share."""
    parts_words: bool = False
    """Whether the texts before and after it are two words, even without a space."""


Content = tuple[str | Code, ...]
"""Text as people read it, with codes in their places."""


@dataclass(frozen=True)
class Segment:
    """A piece of text with its translation, if it has one."""

    source: Content
    target: str
    """Without codes; empty where there is none."""
    state: State
    line: int
    """Where it begins in the file, counted from 1; of an MO file the number of its message."""
    context: str = ""
    is_format: bool = False
    """Whether the file says that its text goes to printf or its like."""

    @property
    def text(self) -> str:
        """The source without its codes."""
        return text_of(self.source)


@dataclass(frozen=True)
class Proposal:
    """A similar text of a translation memory, which is shown beside a translation where the format has a place."""

    percentage: int
    source: str
    target: str
    origin: str = ""
    """The file that it comes from."""


@dataclass(frozen=True)
class Filling:
    """A translation for a segment; one that needs review is fuzzy."""

    content: Content
    is_fuzzy: bool = False
    proposals: tuple[Proposal, ...] = ()


class SegmentFile(Protocol):
    """A file of segments, read as a whole."""

    @property
    def segments(self) -> Sequence[Segment]:
        """All that could be translated, in their order."""
        ...

    @property
    def languages(self) -> Languages:
        """Source and target as the file names them."""
        ...


class Catalogue(SegmentFile, Protocol):
    """A file of segments that can be filled."""

    @property
    def locked(self) -> int:
        """How many more segments there are that must not be translated."""
        ...

    def filled(self, fillings: Mapping[int, Filling], *, target: str | None = None) -> bytes:
        """The file with translations of the segments of these numbers, counted from 0; `target` is their language."""
        ...


@dataclass(frozen=True)
class Pair:
    """A sentence and its translation, to learn from."""

    source: str
    target: str
    line: int
    symbols: str = ""
    """Symbols beside the source, as `text.symbols` joins them."""


@dataclass(frozen=True)
class Format:
    """A file format with both sides of a translation. Only `pairs` is needed to train on it.

    A None among pairs or texts is a segment with nothing to learn from; these are counted and reported.
    """

    name: str
    suffixes: tuple[str, ...]
    """Lower-case endings of its files, such as ".po"; a compressed file has another one after it."""
    pairs: Callable[[Path, Languages, str], Iterable[Pair | None]]
    """The pairs of a file, given the requested languages and the encoding of plain text."""
    texts: Callable[[Path, Side, str | None, str], Iterable[str | None]] | None = None
    """The texts of one side, given the requested language and the encoding; by default those of the pairs."""
    languages: Callable[[Path], tuple[str | None, ...]] = lambda _path: (None, None)
    """The languages that a file names: source and target, or all of them where it holds any number."""
    settle: Callable[[Path, Languages], Languages] | None = None
    """Of a format whose files hold any number of languages: the two to read, given those requested."""
    catalogue: Callable[[Path, Languages], Catalogue] | None = None
    """The file opened for `seqloom translate` to fill, if the format can be filled."""


def catalogue_format(
    name: str, suffixes: tuple[str, ...], read: Callable[[Path], SegmentFile], *, fill: Callable[[Path], Catalogue]
) -> Format:
    """A format whose files are read as a whole. Fuzzy translations are not learnt from."""

    def pairs(path: Path, _languages: Languages, _encoding: str) -> Iterator[Pair | None]:
        for each in read(path).segments:
            is_good = each.state == "translated" and each.text.strip()
            yield Pair(each.text, each.target, each.line) if is_good else None

    def texts(path: Path, side: Side, _language: str | None, _encoding: str) -> Iterator[str | None]:
        for each in read(path).segments:
            yield each.text if side == "source" else each.target if each.state == "translated" else None

    return Format(
        name,
        suffixes,
        pairs=pairs,
        texts=texts,
        languages=lambda path: read(path).languages,
        catalogue=lambda path, _languages: fill(path),
    )


def text_of(content: Content) -> str:
    """The text without codes."""
    return "".join(piece for piece in content if isinstance(piece, str))


# --- text and edits --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Edit:
    """New text in place of the old from `start` to before `end`."""

    start: int
    end: int
    text: str


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """A text with all edits made. They do not overlap; of those at one place the first given comes first."""
    parts, done = [], 0
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        assert edit.start >= done, "edits overlap"
        parts += [text[done : edit.start], edit.text]
        done = edit.end
    return "".join([*parts, text[done:]])


@dataclass(frozen=True)
class Script:
    """The text of a file, which can be written back without a byte changed."""

    path: Path
    text: str
    encoding: str

    @cached_property
    def _line_starts(self) -> list[int]:
        starts, at = [0], self.text.find("\n")
        while at >= 0:
            starts.append(at + 1)
            at = self.text.find("\n", at + 1)
        return starts

    def line(self, place: int) -> int:
        """The line number of a character, counted from 1."""
        return bisect_right(self._line_starts, place)

    def problem(self, message: str, place: int) -> Problem:
        """What is wrong at a character."""
        line = self.line(place)
        return Problem(message, str(self.path), line, place - self._line_starts[line - 1] + 1)

    def edited(self, edits: Iterable[Edit], *, errors: str = "strict") -> bytes:
        """The bytes of the file with edits made."""
        try:
            return apply_edits(self.text, edits).encode(self.encoding, errors=errors)
        except UnicodeEncodeError as error:
            lost = error.object[error.start : error.end][:1]
            raise DataError(
                f"{self.path}: a translation has {lost!r}, which {self.encoding} cannot write; convert the file to "
                "UTF-8 first"
            ) from error


def decoded(data: bytes, encoding: str, path: Path) -> Script:
    """Bytes as text. An encoding that would not give the same bytes back is refused."""
    if not is_encoding_of_files(encoding):
        raise DataError(f"{path}: unsupported encoding {encoding[:40]!r}; convert the file to UTF-8")
    try:
        text = data.decode(encoding)
        is_same = text.encode(encoding) == data
    except UnicodeDecodeError as error:
        before = data[: error.start].decode(encoding, errors="replace")
        script = Script(path, before, encoding)
        byte = data[error.start] if error.start < len(data) else 0
        message = f"invalid {encoding.upper()} byte 0x{byte:02X}; is the encoding that the file declares wrong?"
        raise DataError(problems=[script.problem(message, len(before))]) from error
    except UnicodeError as error:  # no byte is at fault: the text begins without its mark, or the like
        raise DataError(f"{path}: the file is not valid {encoding!r}, which it declares as its encoding") from error
    if not is_same:
        raise DataError(
            f"{path}: {encoding} does not write the same bytes that were read; convert the file to UTF-8 first"
        )
    return Script(path, text, encoding)
