"""Translators' files by the endings of their names, to be filled or to learn from."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from seqloom.core.errors import DataError, Problems
from seqloom.core.files import LineReader, require_file
from seqloom.core.text_files import bare_name
from seqloom.text.formats import jsonl, tmx
from seqloom.text.formats.mo import MoCatalogue, read_mo
from seqloom.text.formats.po import read_po
from seqloom.text.formats.segments import Catalogue, Pair
from seqloom.text.formats.xliff import read_xliff

# The texts of one language out of translators' files, to learn that language from.
#
# memory.tmx the variants in the language app.po app.xlf translations that hold, if they are in the language; or else
# the sources texts.jsonl the member text; or else that of the language, the target or the source

Side = Literal["source", "target"]


class NoTextInLanguageError(DataError):
    """A translators' file without a text in the language asked for: among several, it is skipped."""


class SideReader:
    """The texts of one side of a file: each iteration starts again, and renews the counts.

    Line ends and tabs inside a text become spaces; inline codes go. `language` chooses the side; a file that names two
    languages cannot do without it.
    """

    lines: int
    """Texts given so far."""
    left_out: int
    """Segments without a text that holds, so far."""
    broken: int
    """Texts with a line end or tab inside that became a space."""
    dependent: int
    """Messages of a compiled catalogue that depend on the system, which are not read."""

    def __init__(
        self, path: Path, *, language: str | None = None, encoding: str = "utf-8", setting: str = "data.target"
    ) -> None:
        require_file(path)
        self.path, self.language, self.encoding = path, language, encoding
        self.setting = setting
        """What names the language, for messages."""
        self.lines = self.left_out = self.broken = self.dependent = 0
        self._side: Side = "target"
        if format_of(path) != "jsonl":
            self._side = self._choose_side()

    def __iter__(self) -> Iterator[str]:
        self.lines = self.left_out = self.broken = self.dependent = 0
        for raw in self._raw():
            text = (raw or "").strip()
            if not text:
                self.left_out += 1
                continue
            whole = text.translate(BREAKS)
            self.broken += whole != text
            self.lines += 1
            yield whole

    def notices(self) -> list[str]:
        """What was taken, passed over and put right in the last iteration, a sentence each."""
        said = []
        if format_of(self.path) != "jsonl":
            which = f"in {self.language}" if format_of(self.path) == "tmx" else f"of the {self._side} side"
            said.append(f"{self.path}: texts {which} are read, {self.lines:,} of them")
        if self.left_out:
            said.append(f"{self.path}: {self.left_out:,} segments that have none, or a fuzzy one, left out")
        if self.dependent:
            said.append(dependent_notice(self.path, self.dependent))
        if self.broken:
            said.append(f"{self.path}: line ends and tabs inside {self.broken:,} texts were read as spaces")
        return said

    def _choose_side(self) -> Side:
        """The side that is in the language; of a memory the language itself, if there is but one."""
        source, target = languages_of(self.path)
        named = [code for code in (source, target) if code]
        if format_of(self.path) == "tmx":
            named = list(tmx.look_into(self.path).languages)
        if self.language is None:
            if len(named) > 1:
                raise DataError(
                    f"{self.path} holds texts in {', '.join(named[:-1])} and {named[-1]}; say which of them to read: "
                    f"{self.setting}={named[-1]}"
                )
            self.language = named[0] if named else None
        if format_of(self.path) == "tmx" or self.language is None:
            return "target"
        if target and tmx.is_language(target, self.language):
            return "target"
        if source and not tmx.is_language(source, self.language):
            raise NoTextInLanguageError(f"{self.path} holds no text in {self.language}: it says {' and '.join(named)}")
        # A catalogue of gettext does not say what its sources are; its translations are in another language.
        return "source" if named else "target"

    def _raw(self) -> Iterator[str | None]:
        match format_of(self.path):
            case "tmx":
                yield from tmx.read_side(self.path, language=self.language)
            case "jsonl":
                yield from self._members()
            case _:
                catalogue = open_catalogue(self.path)
                self.dependent = catalogue.dependent if isinstance(catalogue, MoCatalogue) else 0
                for segment in catalogue.segments:
                    if self._side == "source":
                        yield segment.text
                    else:
                        yield segment.target if segment.state == "translated" else None

    def _members(self) -> Iterator[str | None]:
        """A member of each record; bad lines are told together."""
        problems = Problems()
        for number, line in enumerate(LineReader(self.path, self.encoding), start=1):
            if not line.strip():
                continue
            try:
                text = _member(jsonl.parse_record(line), self.language)
            except jsonl.BadRecord as error:
                problems.add(str(error), self.path, number, error.column)
                continue
            if not problems:
                yield text
        problems.require_none()


def _member(record: Mapping[str, Any], language: str | None) -> str | None:
    """The text of a record: under its own name, that of the language, or as one side of a pair."""
    inner = record.get("translation")
    pair = inner if isinstance(inner, Mapping) else record
    names = ["text", *([language] if language else []), *(("target", "source") if pair is record else ())]
    for name in names:
        holder = record if name == "text" else pair
        if name in holder:
            return None if record.get("fuzzy") is True and name == "target" else jsonl.require_text(holder[name])
    wanted = " or ".join(repr(name) for name in names)
    offered = ", ".join(map(str, pair))[:80] or "none"
    hint = "; name its language: data.target=…" if pair is not record and language is None else ""
    raise jsonl.BadRecord(f"no member {wanted}; there are {offered}{hint}")


Format = Literal["jsonl", "mo", "po", "tmx", "xliff"]
Languages = tuple[str | None, str | None]
"""Source and target, where they are known."""

_ENDINGS: dict[str, Format] = {
    ".jsonl": "jsonl",
    ".mo": "mo",
    ".po": "po",
    ".pot": "po",
    ".tmx": "tmx",
    ".xlf": "xliff",
    ".xliff": "xliff",
}
SHOWN = 3
"""Files that are named where several are skipped."""

BREAKS = str.maketrans("\t\n\v\f\r", "     ")
"""Line ends and tabs inside a segment, which are spaces to a model."""


def format_of(path: Path) -> Format | None:
    """The format of a file by its name, which may also say that it is compressed; None for plain text and the like."""
    return _ENDINGS.get(Path(bare_name(path)).suffix.lower())


def is_tsv(path: Path) -> bool:
    """Whether a file is a table by its name, `.tsv` or `.tsv.gz`: source, tab, target."""
    return bare_name(path).lower().endswith(".tsv")


def holds_both_sides(path: Path) -> bool:
    """Whether a file holds sources and targets by its name: a table, or a translators' file."""
    return is_tsv(path) or format_of(path) is not None


def open_catalogue(path: Path, *, languages: Languages = (None, None)) -> Catalogue:
    """Read a file that can be filled. `languages` choose among those of a memory or of records."""
    require_file(path)
    match format_of(path):
        case "jsonl":
            return jsonl.read_jsonl(path, languages=languages)
        case "mo":
            return read_mo(path)
        case "po":
            return read_po(path)
        case "tmx":
            return tmx.read_tmx(path, languages=languages)
        case "xliff":
            return read_xliff(path)
        case None:
            raise DataError(f"{path}: no catalogue; names end in {', '.join(_ENDINGS)}")


def languages_of(path: Path) -> Languages:
    """The languages that a file names; none where it says nothing of them, or is not there."""
    if format_of(path) in (None, "jsonl") or not path.is_file():
        return None, None
    if format_of(path) == "tmx":
        there = tmx.look_into(path).languages
        return (there[0], there[1]) if len(there) == 2 else (None, None)
    source, target = open_catalogue(path).languages
    return (source and _plain(source)), (target and _plain(target))


def _plain(code: str) -> str:
    """A language without its region: en of en-GB and en_GB."""
    return code.replace("_", "-").split("-")[0].split("@")[0].split(".")[0].lower()


class PairReader:
    """The pairs of a file to learn from: each iteration starts again, and renews the counts.

    Fuzzy translations are no example to follow. Line ends and tabs inside a segment become spaces.
    """

    pairs: int
    """Pairs given so far."""
    left_out: int
    """Segments without a translation that holds, so far."""
    broken: int
    """Pairs with a line end or tab inside that became a space."""
    dependent: int
    """Messages of a compiled catalogue that depend on the system, which are not read."""

    def __init__(self, path: Path, *, languages: Languages = (None, None), encoding: str = "utf-8") -> None:
        require_file(path)
        self.path, self.languages, self.encoding = path, languages, encoding
        self.pairs = self.left_out = self.broken = self.dependent = 0

    def __iter__(self) -> Iterator[Pair]:
        self.pairs = self.left_out = self.broken = self.dependent = 0
        for pair in self._raw():
            if pair is None:
                self.left_out += 1
                continue
            source, target = pair.source.translate(BREAKS).strip(), pair.target.translate(BREAKS).strip()
            self.broken += source != pair.source.strip() or target != pair.target.strip()
            self.pairs += 1
            yield Pair(source, target, pair.line)

    def _raw(self) -> Iterator[Pair | None]:
        if format_of(self.path) == "tmx":
            self.languages = tmx.settle_languages(self.path, self.languages)
            yield from tmx.read_pairs(self.path, languages=self.languages)
        elif format_of(self.path) == "jsonl":
            yield from jsonl.read_pairs(self.path, languages=self.languages, encoding=self.encoding)
        else:
            catalogue = open_catalogue(self.path)
            self.dependent = catalogue.dependent if isinstance(catalogue, MoCatalogue) else 0
            for segment in catalogue.segments:
                is_good = segment.state == "translated" and segment.text.strip()
                yield Pair(segment.text, segment.target, segment.line) if is_good else None

    def notices(self) -> list[str]:
        """What was taken, passed over and put right in the last iteration, a sentence each."""
        said = []
        if format_of(self.path) == "tmx":
            said.append(f"{self.path}: pairs from {self.languages[0]} to {self.languages[1]} are read")
        if self.left_out:
            said.append(f"{self.path}: {self.left_out:,} segments without a translation, or with a fuzzy one, left out")
        if self.dependent:
            said.append(dependent_notice(self.path, self.dependent))
        if self.broken:
            said.append(f"{self.path}: line ends and tabs inside {self.broken:,} pairs were read as spaces")
        return said


def dependent_notice(path: Path, count: int) -> str:
    """That messages of a compiled catalogue were not read."""
    return f"{path}: {count:,} messages that depend on the system (%<PRIu64>) left out; the .po has them"


def skipped_notice(reasons: Sequence[str], files: int) -> list[str]:
    """A sentence on those of several files that were skipped, if any; each reason begins with the file."""
    if not reasons:
        return []
    more = f"; and {len(reasons) - SHOWN:,} more" if len(reasons) > SHOWN else ""
    shown = "; ".join(reasons[:SHOWN])
    return [f"{len(reasons):,} of {files:,} files skipped, which have nothing to learn from: {shown}{more}"]
