"""A JSON record per line: {"source": "…", "target": "…"}, or {"translation": {"de": "…", "en": "…"}}.

Other members of a record are not changed. A target that is missing, null or empty is untranslated; "fuzzy": true marks
one that needs review.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqloom.core.errors import Problems
from seqloom.core.files import LineReader
from seqloom.core.text_files import read_whole
from seqloom.text.formats.segments import Edit, Filling, Format, Pair, Script, Segment, State, decoded, text_of

_SPACE = re.compile(r"[ \t\r\n]*")


@dataclass(frozen=True)
class Names:
    """Names of the members that hold the two sides; `inside` names the object that contains them, if any."""

    source: str = "source"
    target: str = "target"
    inside: str | None = None


def names_in(record: Mapping[str, Any], languages: tuple[str | None, str | None]) -> Names | None:
    """How a record names its sides: source and target, or the languages, on their own or inside "translation"."""
    if "source" in record:
        return Names()
    source, target = languages
    if source is None or target is None:
        return None
    if isinstance(record.get("translation"), Mapping):
        return Names(source, target, "translation")
    return Names(source, target) if source in record else None


def read_pairs(
    path: Path,
    *,
    languages: tuple[str | None, str | None] = (None, None),
    names: Names | None = None,
    encoding: str = "utf-8",
) -> Iterator[Pair | None]:
    """The pairs of a file, line by line; None for a record without a good target. A DataError names bad lines."""
    problems = Problems()
    for number, line in enumerate(LineReader(path, encoding), start=1):
        if not line.strip():
            continue
        try:
            record = parse_record(line)
            known = names or names_in(record, languages)
            source, target, is_fuzzy = _sides(record, known)
        except BadRecord as error:
            problems.add(str(error), path, number, error.column)
            continue
        if not problems:
            is_good = source.strip() and target.strip() and not is_fuzzy
            yield Pair(source, target, number) if is_good else None
    problems.require_none()


class BadRecord(Exception):
    """A line that is not a record, or lacks the requested text."""

    def __init__(self, message: str, column: int = 1) -> None:
        super().__init__(message)
        self.column = column


def parse_record(line: str) -> dict[str, Any]:
    """The object that a line holds."""
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise BadRecord(f"not JSON: {error.msg}", error.colno) from error
    except RecursionError as error:
        raise BadRecord("more lists and objects inside each other than can be read") from error
    except ValueError as error:  # so Python guards itself against the time that such a number would take
        raise BadRecord("a number with thousands of digits, which cannot be read") from error
    if not isinstance(record, dict):
        raise BadRecord(f'a record such as {{"source": "…", "target": "…"}} is expected, not {line.strip()[:40]!r}')
    return record


def _sides(record: Mapping[str, Any], names: Names | None) -> tuple[str, str, bool]:
    """Source, target, and whether the target is fuzzy."""
    if names is None:
        raise BadRecord(
            f"neither a member source nor a translation in both languages: the members are {', '.join(record)[:80]}"
        )
    sides = record.get(names.inside, {}) if names.inside is not None else record
    if not isinstance(sides, Mapping) or names.source not in sides:
        raise BadRecord(f"no member {names.source!r}; there are {', '.join(map(str, sides))[:80] or 'none'}")
    source, target = require_text(sides[names.source]), require_text(sides.get(names.target))
    return source or "", target or "", record.get("fuzzy") is True


def require_text(value: Any) -> str | None:
    """A member that is text or null."""
    if value is not None and not isinstance(value, str):
        raise BadRecord(f"text is expected, not {json.dumps(value)[:40]}")
    if value and any("\ud800" <= character <= "\udfff" for character in value):
        raise BadRecord("half of a character (a lone surrogate) in the text")
    return value


def read_texts(path: Path, *, language: str | None = None, encoding: str = "utf-8") -> Iterator[str | None]:
    """A member of each record; bad lines are reported together."""
    problems = Problems()
    for number, line in enumerate(LineReader(path, encoding), start=1):
        if not line.strip():
            continue
        try:
            text = _member(parse_record(line), language)
        except BadRecord as error:
            problems.add(str(error), path, number, error.column)
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
            return None if record.get("fuzzy") is True and name == "target" else require_text(holder[name])
    wanted = " or ".join(repr(name) for name in names)
    offered = ", ".join(map(str, pair))[:80] or "none"
    hint = "; name its language: data.target=…" if pair is not record and language is None else ""
    raise BadRecord(f"no member {wanted}; there are {offered}{hint}")


# --- filling ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _TargetSpan:
    """Where the target of a record is, or belongs."""

    start: int
    end: int
    prefix: str
    """What comes before the text where the member is not there yet."""
    after: int
    """Where a mark can be put in: after the last member of the record."""
    fuzzy: tuple[int, int] | None
    """The value of the mark, if there is one."""


def read_jsonl(
    path: Path, *, languages: tuple[str | None, str | None] = (None, None), names: Names | None = None
) -> "JsonlCatalogue":
    """Read a file whose targets can be filled."""
    script = decoded(read_whole(path), "utf-8", path)
    return JsonlCatalogue(script, languages=languages, names=names)


class JsonlCatalogue:
    """Records with a source, some of which have a target."""

    locked = 0

    def __init__(
        self, script: Script, *, languages: tuple[str | None, str | None] = (None, None), names: Names | None = None
    ) -> None:
        self.script = script
        self.languages: tuple[str | None, str | None] = (None, None)
        self.segments: list[Segment] = []
        self._places: list[_TargetSpan] = []
        problems = Problems()
        at = 1 if script.text.startswith("\ufeff") else 0
        for number, line in enumerate(script.text[at:].split("\n"), start=1):
            if line.strip():
                try:
                    self._take_in(line, at, number, languages, names)
                except BadRecord as error:
                    problems.add(str(error), script.path, number, error.column)
            at += len(line) + 1
        problems.require_none()

    def _take_in(
        self, line: str, start: int, number: int, languages: tuple[str | None, str | None], names: Names | None
    ) -> None:
        record = parse_record(line)
        names = names or names_in(record, languages)
        source, target, is_fuzzy = _sides(record, names)
        assert names is not None
        state: State = "fuzzy" if is_fuzzy else "translated"
        self.segments.append(Segment((source,) if source else (), target, state if target else "untranslated", number))
        self._places.append(_place(line, start, names))

    def filled(self, fillings: Mapping[int, Filling], *, target: str | None = None) -> bytes:  # noqa: ARG002
        """The file with these targets; a record whose target is fuzzy is marked so."""
        edits: list[Edit] = []
        is_ascii = self.script.text.isascii() and "\\u" in self.script.text  # as the file writes its strings
        for number, filling in fillings.items():
            place = self._places[number]
            edits.append(
                Edit(place.start, place.end, place.prefix + json.dumps(text_of(filling.content), ensure_ascii=is_ascii))
            )
            if place.fuzzy is not None:
                edits.append(Edit(*place.fuzzy, "true" if filling.is_fuzzy else "false"))
            elif filling.is_fuzzy:
                edits.append(Edit(place.after, place.after, ', "fuzzy": true'))
        return self.script.edited(edits)


def _place(line: str, start: int, names: Names) -> _TargetSpan:
    """Where the target is in a line that is known to be a record."""
    outer = _members(line, line.index("{"))
    object_at = outer.values[names.inside][0] if names.inside is not None else line.index("{")
    inner = _members(line, object_at) if names.inside is not None else outer
    after, fuzzy = start + outer.last, outer.values.get("fuzzy")
    mark = (start + fuzzy[0], start + fuzzy[1]) if fuzzy else None
    if names.target in inner.values:
        begin, end = inner.values[names.target]
        return _TargetSpan(start + begin, start + end, "", after, mark)
    # After the last member: the source is one, so there is a comma to be put in.
    at = start + inner.last
    return _TargetSpan(at, at, f", {json.dumps(names.target, ensure_ascii=False)}: ", after, mark)


@dataclass(frozen=True)
class _Members:
    values: dict[str, tuple[int, int]]
    """Where the value of each member begins and ends; of members of one name the last counts, as for every reader."""
    last: int
    """Where the last value has ended."""


def _members(line: str, at: int) -> _Members:
    """The members of the object that begins here, in JSON that is known to be right."""
    values: dict[str, tuple[int, int]] = {}
    decoder = json.JSONDecoder()
    at, last = _skip(line, at + 1), at + 1
    while line[at] != "}":
        name, at = decoder.raw_decode(line, at)
        at = _skip(line, _skip(line, at) + 1)
        _, last = decoder.raw_decode(line, at)
        values[name] = at, last
        at = _skip(line, last)
        if line[at] == ",":
            at = _skip(line, at + 1)
    return _Members(values, last)


def _skip(line: str, at: int) -> int:
    found = _SPACE.match(line, at)
    assert found is not None
    return found.end()


JSONL = Format(
    "JSONL",
    (".jsonl",),
    pairs=lambda path, languages, encoding: read_pairs(path, languages=languages, encoding=encoding),
    texts=lambda path, _side, language, encoding: read_texts(path, language=language, encoding=encoding),
    catalogue=lambda path, languages: read_jsonl(path, languages=languages),
)
