"""File formats by the endings of their names: pairs and texts to learn from, catalogues to fill."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from seqloom.core.errors import DataError, Problems, UsageError
from seqloom.core.files import require_file
from seqloom.core.text_files import bare_name, read_whole
from seqloom.text.formats.documents import require_few_tags
from seqloom.text.formats.docx import parse_docx
from seqloom.text.formats.html import parse_html
from seqloom.text.formats.jsonl import JSONL, parse_jsonl
from seqloom.text.formats.plain import parse_text
from seqloom.text.formats.po import MO, PO, parse_po
from seqloom.text.formats.segments import Catalogue, Format, Languages, Pair, Side
from seqloom.text.formats.subtitles import parse_srt, parse_vtt
from seqloom.text.formats.tmx import TMX, is_language, parse_tmx
from seqloom.text.formats.xliff import XLIFF, parse_xliff
from seqloom.text.symbols import with_symbols

FORMATS: tuple[Format, ...] = (JSONL, MO, PO, TMX, XLIFF)
"""The formats of the package; a program passes its own as `formats=(*FORMATS, ITS_FORMAT)`."""

DOCUMENTS: Mapping[str, Callable[[bytes, Path], Catalogue]] = {
    ".docx": parse_docx,
    ".htm": parse_html,
    ".html": parse_html,
    ".srt": parse_srt,
    ".vtt": parse_vtt,
    ".xhtml": parse_html,
}
"""Readers of files that hold one language, whose words are replaced, by the endings of their names."""

TRANSLATABLE = (*sorted(DOCUMENTS), ".jsonl", ".po", ".pot", ".tmx", ".txt", ".xlf", ".xliff")
"""The endings of all files that `parse_catalogue` reads; on the command line, a .txt is lines of text."""

SHOWN_FILES = 3
"""Files that are named where several are skipped."""

BREAKS = str.maketrans("\t\n\v\f\r", "     ")
"""Line ends and tabs inside a segment, which are spaces to a model."""


def format_of(path: Path, formats: Sequence[Format] = FORMATS) -> Format | None:
    """The format of a file by its name, compressed or not; None for plain text and tables."""
    suffix = Path(bare_name(path)).suffix.lower()
    return next((each for each in formats if suffix in each.suffixes), None)


def is_tsv(path: Path) -> bool:
    """Whether a file is a table by its name, `.tsv` or `.tsv.gz`: source, tab, target, and no character is escaped."""
    return bare_name(path).lower().endswith(".tsv")


def column_problem(line: str) -> str | None:
    """What is wrong with a line of a table, if anything: every line has two columns."""
    columns = line.count("\t") + 1
    return None if columns == 2 else f"{columns} column{'s' if columns > 1 else ''}, expected source, tab, target"


def split_rows(lines: Iterable[str], path: Path, *, skipped: Collection[int] = ()) -> Iterator[tuple[str, str]]:
    """The two columns of each line; both are empty in those with a number in `skipped`.

    At a line that has more or fewer, no more are given, and the rest is only looked through, so that the DataError can
    name all such lines.
    """
    problems = Problems()
    for number, line in enumerate(lines, start=1):
        if number in skipped:
            yield "", ""
            continue
        if problem := column_problem(line):
            problems.add(problem, path, number)
        if not problems:
            source, target = line.split("\t")
            yield source, target
    problems.require_none("a line end or a tab inside a sentence, or plain text without tabs?")


def holds_both_sides(path: Path, formats: Sequence[Format] = FORMATS) -> bool:
    """Whether a file holds sources and targets by its name: a table, or a file of one of the formats."""
    return is_tsv(path) or format_of(path, formats) is not None


def _required(path: Path, formats: Sequence[Format]) -> Format:
    require_file(path)
    if (found := format_of(path, formats)) is None:
        raise DataError(f"{path}: unknown format; known are {', '.join(s for each in formats for s in each.suffixes)}")
    return found


def open_catalogue(
    path: Path, *, languages: Languages = (None, None), formats: Sequence[Format] = FORMATS
) -> Catalogue:
    """Read a file that can be filled. `languages` choose among those of a memory or of records."""
    found = _required(path, formats)
    if found.catalogue is None:
        raise UsageError(f"{path}: files of the format {found.name} can be read, but not filled with translations")
    return found.catalogue(path, languages)


def is_document(path: Path) -> bool:
    """Whether a file is a document by its name, compressed or not: its words are replaced by their translation."""
    return Path(bare_name(path)).suffix.lower() in DOCUMENTS


def open_document(path: Path) -> Catalogue:
    """Read a document whose words can be replaced."""
    require_file(path)
    return DOCUMENTS[Path(bare_name(path)).suffix.lower()](read_whole(path), path)


def parse_catalogue(name: str, data: bytes, *, languages: Languages = (None, None)) -> Catalogue:
    """The catalogue in the bytes of a file, by the ending of its name; nothing is opened.

    `languages` choose among those of a memory or of records. A damaged file is a DataError, an unknown ending a
    UsageError with the known ones.
    """
    path = Path(name)
    suffix = path.suffix.lower()
    if suffix in (".tmx", ".xlf", ".xliff"):
        require_few_tags(data, path)
    if suffix in DOCUMENTS:
        return DOCUMENTS[suffix](data, path)
    match suffix:
        case ".jsonl":
            return parse_jsonl(data, path, languages=languages)
        case ".po" | ".pot":
            return parse_po(data, path)
        case ".tmx":
            return parse_tmx(data, path, languages=languages)
        case ".txt":
            return parse_text(data, path)
        case ".xlf" | ".xliff":
            return parse_xliff(data, path)
    raise UsageError(f"{path.name[:100]!r} is not in a supported format; supported are {', '.join(TRANSLATABLE)}")


def languages_of(path: Path, formats: Sequence[Format] = FORMATS) -> Languages:
    """The languages that a file names, without their regions; none where it names others than two, or is missing."""
    found = format_of(path, formats)
    named = found.languages(path) if found and path.is_file() else ()
    if len(named) != 2:
        return None, None
    source, target = named
    return (source and _plain(source)), (target and _plain(target))


def _plain(code: str) -> str:
    """A language without its region: en of en-GB and en_GB."""
    return code.replace("_", "-").split("-")[0].split("@")[0].split(".")[0].lower()


class PairReader:
    """The pairs of a file to learn from: each iteration starts again, and renews the counts.

    Fuzzy translations are left out. Line ends and tabs inside a segment become spaces.
    """

    pairs: int
    """Pairs given so far."""
    left_out: int
    """Segments without a good translation, so far."""
    broken: int
    """Pairs with a line end or tab inside that became a space."""

    def __init__(
        self,
        path: Path,
        *,
        languages: Languages = (None, None),
        encoding: str = "utf-8",
        formats: Sequence[Format] = FORMATS,
    ) -> None:
        self.path, self.languages, self.encoding = path, languages, encoding
        self.format = _required(path, formats)
        self.pairs = self.left_out = self.broken = 0

    def __iter__(self) -> Iterator[Pair]:
        self.pairs = self.left_out = self.broken = 0
        if self.format.settle is not None:
            self.languages = self.format.settle(self.path, self.languages)
        for pair in self.format.pairs(self.path, self.languages, self.encoding):
            if pair is None:
                self.left_out += 1
                continue
            source, target = pair.source.translate(BREAKS).strip(), pair.target.translate(BREAKS).strip()
            self.broken += source != pair.source.strip() or target != pair.target.strip()
            self.pairs += 1
            yield Pair(with_symbols(source, pair.symbols), target, pair.line)

    def notices(self) -> list[str]:
        """What was read, left out and changed in the last iteration, a sentence each."""
        notices = []
        if self.format.settle is not None:
            notices.append(f"{self.path}: pairs from {self.languages[0]} to {self.languages[1]} are read")
        if self.left_out:
            notices.append(
                f"{self.path}: {self.left_out:,} segments without a translation, or with a fuzzy one, left out"
            )
        if self.broken:
            notices.append(f"{self.path}: line ends and tabs inside {self.broken:,} pairs were read as spaces")
        return notices


class NoTextInLanguageError(DataError):
    """A file without a text in the requested language: among several, it is skipped."""


class SideReader:
    """The texts of one side of a file: each iteration starts again, and renews the counts.

    Of a memory these are the variants in the language; of catalogues the translations, if they are in it, or else the
    sources; of records the member text, or else that of the language, the target or the source. Line ends and tabs
    inside a text become spaces; inline codes go. A file that names two languages needs `language`.
    """

    lines: int
    """Texts given so far."""
    left_out: int
    """Segments without a good text, so far."""
    broken: int
    """Texts with a line end or tab inside that became a space."""

    def __init__(
        self,
        path: Path,
        *,
        language: str | None = None,
        encoding: str = "utf-8",
        setting: str = "data.target",
        formats: Sequence[Format] = FORMATS,
    ) -> None:
        """`setting` is the option that chooses the language, for messages."""
        self.path, self.language, self.encoding = path, language, encoding
        self.format = _required(path, formats)
        self.lines = self.left_out = self.broken = 0
        named = self.format.languages(path) if self.format.settle else languages_of(path, (self.format,))
        self._languages = [code for code in named if code]
        if self.language is None and len(self._languages) > 1:
            *others, last = self._languages
            raise DataError(
                f"{path} holds texts in {', '.join(others)} and {last}; choose one of them: {setting}={last}"
            )
        self.language = self.language or next(iter(self._languages), None)
        self._side: Side = "target"
        if self.format.settle is None and self.language is not None:
            self._side = self._choose_side(*named)

    def _choose_side(self, source: str | None, target: str | None) -> Side:
        """The side that is in the language."""
        assert self.language is not None
        if target and is_language(target, self.language):
            return "target"
        if source and not is_language(source, self.language):
            named = " and ".join(self._languages)
            raise NoTextInLanguageError(f"{self.path} has no text in {self.language}: its languages are {named}")
        # A catalogue of gettext does not name the language of its sources; its translations are in another one.
        return "source" if self._languages else "target"

    def __iter__(self) -> Iterator[str]:
        self.lines = self.left_out = self.broken = 0
        for raw in self._raw():
            text = (raw or "").strip()
            if not text:
                self.left_out += 1
                continue
            whole = text.translate(BREAKS)
            self.broken += whole != text
            self.lines += 1
            yield whole

    def _raw(self) -> Iterator[str | None]:
        if self.format.texts is not None:
            yield from self.format.texts(self.path, self._side, self.language, self.encoding)
        else:
            for pair in self.format.pairs(self.path, (None, None), self.encoding):
                yield None if pair is None else pair.source if self._side == "source" else pair.target

    def notices(self) -> list[str]:
        """What was read, left out and changed in the last iteration, a sentence each."""
        notices = []
        if self.format.settle is not None:
            notices.append(f"{self.path}: {self.lines:,} texts in {self.language} are read")
        elif self._languages:
            notices.append(f"{self.path}: {self.lines:,} texts of the {self._side} side are read")
        if self.left_out:
            notices.append(f"{self.path}: {self.left_out:,} segments without a text, or with a fuzzy one, left out")
        if self.broken:
            notices.append(f"{self.path}: line ends and tabs inside {self.broken:,} texts were read as spaces")
        return notices


def skipped_notice(reasons: Sequence[str], files: int) -> list[str]:
    """A sentence on those of several files that were skipped, if any; each reason begins with the file."""
    if not reasons:
        return []
    more = f"; and {len(reasons) - SHOWN_FILES:,} more" if len(reasons) > SHOWN_FILES else ""
    shown = "; ".join(reasons[:SHOWN_FILES])
    return [f"{len(reasons):,} of {files:,} files skipped, which have nothing to learn from: {shown}{more}"]
