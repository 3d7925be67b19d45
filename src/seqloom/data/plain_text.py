"""The stream: the ids of a text on disk, line after line, mapped into memory, so that its size is bounded by the disk.

A folder with raw little-endian arrays and a header, written as `data.store` writes its own:

    ids            all ids, END after each line (uint16 where the vocabulary allows, or uint32)
    lengths        tokens of each line, END counted (uint32)
    lines          the line of the corpus that each comes from (int64)
    stream.json    format number, counts, size and SHA-256 of each file
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from types import TracebackType
from typing import Literal, Protocol

import numpy as np
from jaxtyping import Int64, UInt

from seqloom.core.arrays import ArrayFolder, ArrayFolderWriter, ArrayLayout, borders, damaged, open_folder
from seqloom.core.errors import DataError, Problem, UsageError
from seqloom.core.files import LineReader, matching_files, read_lines
from seqloom.core.symbols import END, UNKNOWN
from seqloom.core.text_files import OnBad
from seqloom.text.formats.readers import FORMATS, NoTextInLanguageError, SideReader, format_of, is_tsv, skipped_notice
from seqloom.text.formats.segments import Format
from seqloom.text.normalise import is_blank

# Texts: restartable readers over files of one language, checked before anything slow begins.

Unit = Literal["line", "paragraph"]
"""What is read as one piece of text: a line, or all lines up to an empty one, joined by spaces."""


@dataclass(frozen=True)
class TextLine:
    """A piece of text; `number` is that of its (first) line, from 1 over the whole corpus, `file` the part it is in."""

    number: int
    file: int
    text: str


class TextLines(Protocol):
    """Pieces of text that can be read repeatedly."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[TextLine]: ...


@dataclass(frozen=True)
class _FileCheck:
    pieces: int
    lines: int
    has_text: bool
    digest: bytes
    notices: tuple[str, ...]


def _require_text_file(path: Path) -> None:
    """Refuse a table of pairs, which no language names a column of."""
    if is_tsv(path):
        raise UsageError(
            f"{path} is a table of pairs, for models that translate; give a text file here: cut -f 2 {path} > FILE"
        )


def read_one_language(
    path: Path,
    *,
    encoding: str | None = None,
    language: str | None = None,
    setting: str = "data.target",
    formats: Sequence[Format] = FORMATS,
) -> Iterator[str]:
    """The lines of a text file, or the texts of a translators' file in a language; tables of pairs are refused.

    `setting` is the option that chooses the language, for messages.
    """
    _require_text_file(path)
    if format_of(path, formats) is None:
        return read_lines(path, encoding)
    return iter(SideReader(path, language=language, encoding=encoding or "utf-8", setting=setting, formats=formats))


class TextCorpus:
    """The lines of text files, one file after the other. Each iteration starts again at the first.

    All files are read once when it is made: their lines are counted, their text hashed. Plain, .gz, .xz or .zst; a name
    may be a pattern (`news/*.txt.gz`). Of translators' files and records (.tmx, .po, .xlf, .jsonl) the texts
    in `language` are read, each as a separate line and piece.

    The end of a line is a symbol (END), so a model that reads on over it reads line breaks as text, empty
    lines included: what it writes is set in lines, as verse, plays and programs are. Prose that was only broken to fit
    a page is better read with `unit="paragraph"`: the lines up to an empty one are one piece of text.
    """

    notices: tuple[str, ...]
    """What was changed while reading, a sentence each."""

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        encoding: str = "utf-8",
        unit: Unit = "line",
        on_bad: OnBad = "error",
        language: str | None = None,
        takes_tables: bool = False,
        formats: Sequence[Format] = FORMATS,
    ) -> None:
        """`takes_tables` reads the lines of .tsv files as they are, which are refused otherwise."""
        self._formats = tuple(formats)
        if not paths:
            raise UsageError("no text file was given")
        self.paths = tuple(chain.from_iterable(map(matching_files, paths)))
        for path in () if takes_tables else self.paths:
            _require_text_file(path)
        self.encoding, self.unit, self.on_bad, self.language = encoding, unit, on_bad, language
        checks: list[_FileCheck] = []
        kept: list[Path] = []
        empty: list[str] = []
        problems: list[Problem] = []
        more = 0
        for path in self.paths:
            try:
                checks.append(_check(path, self._reader(path), self._unit(path)))
                kept.append(path)
            except NoTextInLanguageError as error:
                empty.append(str(error))
            except DataError as error:
                problems += error.problems or [Problem(str(error))]
                more += error.more
        if problems or not kept:
            problems += map(Problem, empty)
            raise DataError(problems=problems, more=more)
        skipped = skipped_notice(empty, len(self.paths))
        self.paths = tuple(kept)
        self._checks = checks
        self._digest = hashlib.sha256(b"".join(check.digest for check in checks)).hexdigest()
        self.notices = (*skipped, *(notice for check in checks for notice in check.notices))

    def __len__(self) -> int:
        """The number of lines, or of paragraphs."""
        return sum(check.pieces for check in self._checks)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The same for each file."""
        return tuple(check.pieces for check in self._checks)

    def __iter__(self) -> Iterator[TextLine]:
        before = 0
        for file, (path, check) in enumerate(zip(self.paths, self._checks, strict=True)):
            for at, text in split_pieces(iter(self._reader(path)), self._unit(path)):
                yield TextLine(before + at, file, text)
            before += check.lines

    def _reader(self, path: Path) -> LineReader | SideReader:
        if format_of(path, self._formats) is None:
            return LineReader(path, self.encoding, on_bad=self.on_bad)
        return SideReader(path, language=self.language, encoding=self.encoding, formats=self._formats)

    def _unit(self, path: Path) -> Unit:
        """No empty lines part the texts of a catalogue."""
        return self.unit if format_of(path, self._formats) is None else "line"

    def require_text(self) -> None:
        """Refuse files without any text: a model would learn nothing but line ends."""
        problems = [
            Problem(f"{_count(check.lines)}, all of them blank; expected at least one line of text", str(path))
            for path, check in zip(self.paths, self._checks, strict=True)
            if not check.has_text
        ]
        if problems:
            raise DataError(problems=problems)

    def place(self, number: int) -> str:
        """The place of a line, for messages: `train.txt:17`, or `memory.tmx, text 17`."""
        for path, check in zip(self.paths, self._checks, strict=True):
            if number <= check.lines:
                is_plain = format_of(path, self._formats) is None
                return f"{path}:{number}" if is_plain else f"{path}, text {number}"
            number -= check.lines
        raise IndexError("the corpus has no such line")

    def fingerprint(self) -> str:
        """A hash of the text: the same whether it is compressed or not."""
        return self._digest


def split_pieces(lines: Iterator[str], unit: Unit) -> Iterator[tuple[int, str]]:
    """Each piece with the number of its first line, from 1."""
    if unit == "line":
        yield from enumerate(lines, start=1)
        return
    first, gathered = 1, list[str]()
    for number, line in enumerate(lines, start=1):
        if line and not line.isspace():
            first = first if gathered else number
            gathered.append(line.strip())
        elif gathered:
            yield first, " ".join(gathered)
            gathered = []
    if gathered:
        yield first, " ".join(gathered)


def _check(path: Path, reader: LineReader | SideReader, unit: Unit) -> _FileCheck:
    digest, pieces, has_text = hashlib.sha256(), 0, False
    for _, text in split_pieces(iter(reader), unit):
        digest.update(text.encode("utf-8", "surrogatepass") + b"\n")
        pieces += 1
        has_text = has_text or not is_blank(text)
    if pieces == 0 and isinstance(reader, SideReader):
        requested = f" in {reader.language}" if reader.language else ""
        raise NoTextInLanguageError(
            f"{path}: no text{requested} among {reader.left_out:,} segments, expected at least one"
        )
    if pieces == 0:
        what = "empty" if reader.lines == 0 else f"{_count(reader.lines)}, all of them blank"
        raise DataError(problems=[Problem(f"{what}; expected at least one line of text", str(path))])
    return _FileCheck(pieces, reader.lines, has_text, digest.digest(), tuple(reader.notices()))


def _count(lines: int) -> str:
    return "1 line" if lines == 1 else f"{lines:,} lines"


FORMAT = 1
HEADER = "stream.json"

CHUNK = 4096
"""Lines encoded at a time."""

IDS_PER_COUNT = 1 << 24
"""Ids whose occurrences are counted at a time."""

Encode = Callable[[list[str]], list[list[int]]]
"""Lines to ids, without begin and end symbols."""


LAYOUT = ArrayLayout("stream of text", HEADER, FORMAT, lambda ids: {"ids": ids, "lengths": "<u4", "lines": "<i8"})


class StreamWriter:
    """Appends lines to a new stream, in bounded memory. The folder appears when all of it is on disk.

    with StreamWriter(folder, symbols=8000) as writer:
        writer.append([[5, 9], [7]], [1, 2])        # ids without END, which is added
    """

    def __init__(self, folder: Path, *, symbols: int) -> None:
        self._writer = ArrayFolderWriter(folder, LAYOUT, symbols=symbols)
        self._lines = 0

    def append(self, sentences: Sequence[Sequence[int]], lines: Sequence[int]) -> None:
        """Add lines: their ids, without END, and their numbers in the corpus. An empty one leaves its END alone."""
        assert len(sentences) == len(lines)
        ended = [[*ids, END] for ids in sentences]
        self._writer.append(
            {
                "ids": self._writer.ids(ended),
                "lengths": np.array([len(ids) for ids in ended], dtype=np.int64),
                "lines": np.array(lines, dtype=np.int64),
            }
        )
        self._lines += len(lines)

    def __enter__(self) -> "StreamWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.end(self._lines, is_good=kind is None, nothing="the text has no line that could be stored")


class Stream:
    """The text of a folder that a StreamWriter has made: line i is `ids[offsets[i] : offsets[i + 1]]`, its END too."""

    ids: UInt[np.ndarray, " tokens"]
    lengths: UInt[np.ndarray, " lines"]
    offsets: Int64[np.ndarray, " borders"]
    lines: Int64[np.ndarray, " lines"]
    """The number in the corpus of each line."""

    def __init__(self, folder: ArrayFolder) -> None:
        self.ids, self.lengths, self.lines = (folder.arrays[name] for name in ("ids", "lengths", "lines"))
        self.offsets = borders(self.lengths)
        self.symbols = folder.symbols
        self._folder = folder

    @staticmethod
    def open(folder: Path, *, verify: bool = False) -> "Stream":
        """Map a stream into memory. Sizes are always compared with the header, hashes if `verify` is set."""
        stream = Stream(open_folder(folder, LAYOUT, verify=verify))
        if stream.offsets[-1] != len(stream.ids) or len(stream.lengths) != len(stream.lines):
            reason = f"{stream.offsets[-1]:,} tokens are counted, and {len(stream.ids):,} are there"
            raise damaged(folder, LAYOUT, reason)
        return stream

    def __len__(self) -> int:
        """The number of lines."""
        return len(self.lengths)

    @property
    def tokens(self) -> int:
        """The number of tokens, each END counted."""
        return len(self.ids)

    def line(self, index: int) -> UInt[np.ndarray, " tokens"]:
        """The ids of a line, as a view."""
        return self.ids[self.offsets[index] : self.offsets[index + 1]]

    def line_of(self, token: int) -> int:
        """The number in the corpus of the line that a token is in."""
        return int(self.lines[np.searchsorted(self.offsets, token, side="right") - 1])

    def counts(self) -> Int64[np.ndarray, " symbols"]:
        """How often each symbol occurs."""
        counts = np.zeros(self.symbols, dtype=np.int64)
        for begin in range(0, len(self.ids), IDS_PER_COUNT):
            counts += np.bincount(self.ids[begin : begin + IDS_PER_COUNT], minlength=self.symbols)
        return counts

    def fingerprint(self) -> str:
        """A hash of all that is stored."""
        return self._folder.fingerprint()


@dataclass(frozen=True)
class TextReport:
    """What became of the lines of a text."""

    lines: int
    """Lines stored."""
    empty: int
    """Lines without tokens; they are stored as a lone END, or left out."""
    tokens: int
    """Tokens stored, each END counted."""
    unknown: int
    """Tokens among them that the vocabulary does not know."""

    @property
    def unknown_rate(self) -> float:
        """The share of unknown tokens."""
        return self.unknown / max(1, self.tokens)


def encode_text(
    corpus: TextLines,
    encode: Encode,
    folder: Path,
    *,
    symbols: int,
    keep_empty: bool = True,
    beginning: Callable[[TextLine], Sequence[int]] = lambda _line: (),
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> TextReport:
    """Encode every line into a new stream at `folder`, END after each, and report what was found.

    A line without tokens is a lone END (a model that reads on over the ends of lines then knows paragraphs), or is left
    out. `beginning` gives ids before those of a line, `progress` gets the lines done and the total.
    """
    read = stored = empty = tokens = unknown = 0
    with StreamWriter(folder, symbols=symbols) as writer:
        remaining = iter(corpus)
        while lines := list(islice(remaining, CHUNK)):
            pairs = list(zip(lines, encode([line.text for line in lines]), strict=True))
            read, empty = read + len(lines), empty + sum(not ids for _, ids in pairs)
            kept = [(line, ids) for line, ids in pairs if ids or keep_empty]
            writer.append([[*beginning(line), *ids] for line, ids in kept], [line.number for line, _ in kept])
            stored, tokens = stored + len(kept), tokens + sum(len(ids) + 1 for _, ids in kept)
            unknown += sum(ids.count(UNKNOWN) for _, ids in kept)
            progress(read, len(corpus))
        if empty == read:
            raise DataError(f"the text has nothing to learn from: all of its {read:,} lines are empty")
    return TextReport(stored, empty, tokens, unknown)
