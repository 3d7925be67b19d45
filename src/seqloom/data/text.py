"""Texts: restartable readers over files of one language, checked before anything slow begins."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Literal, Protocol

from seqloom.core.decoding import OnBad
from seqloom.core.errors import DataError, Problem, UsageError
from seqloom.core.files import LineReader, read_lines
from seqloom.core.globs import matching_files
from seqloom.text.formats.catalogues import format_of, is_tsv, skipped_notice
from seqloom.text.formats.sides import NoTextInLanguageError, SideReader
from seqloom.text.normalise import is_blank

Unit = Literal["line", "paragraph"]
"""What is read as one piece of text: a line, or all lines up to an empty one, joined by spaces."""


@dataclass(frozen=True)
class TextLine:
    """A piece of text; `number` is that of its (first) line, from 1 over the whole corpus, `file` the part it is in."""

    number: int
    file: int
    text: str


class TextLines(Protocol):
    """Pieces of text that can be gone through again and again."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[TextLine]: ...


@dataclass(frozen=True)
class _Check:
    pieces: int
    lines: int
    has_text: bool
    digest: bytes
    notices: tuple[str, ...]


def require_text_files(paths: Sequence[Path]) -> None:
    """Refuse tables of pairs, which no language names a column of."""
    for path in paths:
        if is_tsv(path):
            raise UsageError(
                f"{path} is a table of pairs, for models that translate; give a text file here: cut -f 2 {path} > FILE"
            )


def read_one_language(
    path: Path, *, encoding: str | None = None, language: str | None = None, setting: str = "data.target"
) -> Iterator[str]:
    """The lines of a text file, or the texts of a translators' file in a language; tables of pairs are refused.

    `setting` is what names the language, for messages.
    """
    require_text_files([path])
    if format_of(path) is None:
        return read_lines(path, encoding)
    return iter(SideReader(path, language=language, encoding=encoding or "utf-8", setting=setting))


class TextCorpus:
    """The lines of text files, one file after the other. Each iteration starts again at the first.

    All files are read once when it is made: their lines are counted, their text hashed. Plain, .gz, .xz or .zst; a name
    may stand for several files (`news/*.txt.gz`). Of translators' files and records (.tmx, .po, .xlf, .jsonl) the texts
    in `language` are read, each as a line and a piece of its own.

    The end of a line is a symbol of its own (END), so a model that reads on over it reads line breaks as text, empty
    lines included: what it writes is set in lines, as verse, plays and programs are. Prose that was only broken to fit
    a page is better read with `unit="paragraph"`: the lines up to an empty one are one piece of text.
    """

    notices: tuple[str, ...]
    """What was tacitly put right while reading, a sentence each."""

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        encoding: str = "utf-8",
        unit: Unit = "line",
        on_bad: OnBad = "error",
        language: str | None = None,
    ) -> None:
        if not paths:
            raise UsageError("a text file is needed, and none was given")
        self.paths = tuple(chain.from_iterable(map(matching_files, paths)))
        require_text_files(self.paths)
        self.encoding, self.unit, self.on_bad, self.language = encoding, unit, on_bad, language
        checks: list[_Check] = []
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

    def __iter__(self) -> Iterator[TextLine]:
        before = 0
        for file, (path, check) in enumerate(zip(self.paths, self._checks, strict=True)):
            for at, text in split_pieces(iter(self._reader(path)), self._unit(path)):
                yield TextLine(before + at, file, text)
            before += check.lines

    def _reader(self, path: Path) -> LineReader | SideReader:
        if format_of(path) is None:
            return LineReader(path, self.encoding, on_bad=self.on_bad)
        return SideReader(path, language=self.language, encoding=self.encoding)

    def _unit(self, path: Path) -> Unit:
        """No empty lines part the texts of a catalogue."""
        return self.unit if format_of(path) is None else "line"

    def require_text(self) -> None:
        """Refuse files without any text: a model of them would know of nothing but the ends of lines."""
        problems = [
            Problem(f"{_count(check.lines)}, all of them blank; expected at least one line of text", str(path))
            for path, check in zip(self.paths, self._checks, strict=True)
            if not check.has_text
        ]
        if problems:
            raise DataError(problems=problems)

    def place(self, number: int) -> str:
        """Where a line stands, for messages: `train.txt:17`, or `memory.tmx, text 17`."""
        for path, check in zip(self.paths, self._checks, strict=True):
            if number <= check.lines:
                return f"{path}:{number}" if format_of(path) is None else f"{path}, text {number}"
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


def _check(path: Path, reader: LineReader | SideReader, unit: Unit) -> _Check:
    digest, pieces, has_text = hashlib.sha256(), 0, False
    for _, text in split_pieces(iter(reader), unit):
        digest.update(text.encode("utf-8", "surrogatepass") + b"\n")
        pieces += 1
        has_text = has_text or not is_blank(text)
    if pieces == 0 and isinstance(reader, SideReader):
        asked = f" in {reader.language}" if reader.language else ""
        raise NoTextInLanguageError(f"{path}: no text{asked} among {reader.left_out:,} segments, expected at least one")
    if pieces == 0:
        what = "empty" if reader.lines == 0 else f"{_count(reader.lines)}, all of them blank"
        raise DataError(problems=[Problem(f"{what}; expected at least one line of text", str(path))])
    return _Check(pieces, reader.lines, has_text, digest.digest(), tuple(reader.notices()))


def _count(lines: int) -> str:
    return "1 line" if lines == 1 else f"{lines:,} lines"
