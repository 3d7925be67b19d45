"""The texts of one language out of translators' files, to learn that language from.

memory.tmx        the variants in the language
app.po app.xlf    translations that hold, if they are in the language; or else the sources
texts.jsonl       the member text; or else that of the language, the target or the source
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from seqloom.core.errors import DataError, Problems
from seqloom.core.files import LineReader, require_file
from seqloom.text.formats import jsonl, tmx
from seqloom.text.formats.catalogues import BREAKS, dependent_notice, format_of, languages_of, open_catalogue
from seqloom.text.formats.mo import MoCatalogue

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
