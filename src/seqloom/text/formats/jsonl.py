"""A JSON record per line: {"source": "…", "target": "…"}, or {"translation": {"de": "…", "en": "…"}}.

A source may be a list of sentences, which are joined by spaces; a target may be a list of right answers, each of which
makes a pair. Other members of a record are not changed. A target that is missing, null or empty is untranslated;
"fuzzy": true marks one that needs review.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from seqloom.core.errors import Problems
from seqloom.core.files import LineReader
from seqloom.core.text_files import read_whole
from seqloom.text.formats.segments import (
    Edit,
    Filling,
    Format,
    Languages,
    Pair,
    Script,
    Segment,
    State,
    decoded,
    text_of,
)

T = TypeVar("T")


@dataclass(frozen=True)
class _Sides:
    """The two sides of a record."""

    source: str
    targets: tuple[str, ...]
    """Usually one; several where any of them is right."""
    is_fuzzy: bool
    target_name: str
    """The member that holds the target."""
    is_inside: bool
    """Whether it is in the object "translation"."""

    @property
    def target(self) -> str:
        """The first target; empty where there is none."""
        return self.targets[0] if self.targets else ""


def read_records(path: Path, encoding: str, read: Callable[[dict[str, Any], int], T]) -> Iterator[T]:
    """What `read` makes of each record and its line number. A DataError at the end names all bad lines."""
    problems = Problems()
    for number, line in enumerate(LineReader(path, encoding), start=1):
        if not line.strip():
            continue
        try:
            found = read(parse_record(line), number)
        except BadRecord as error:
            problems.add(str(error), path, number, error.column)
            continue
        if not problems:
            yield found
    problems.require_none()


def read_pairs(
    path: Path,
    *,
    languages: Languages = (None, None),
    encoding: str = "utf-8",
    symbols: Callable[[dict[str, Any]], str] = lambda _record: "",
) -> Iterator[Pair | None]:
    """The pairs of a file, line by line, one for each target of a record; None for a record without a good target.

    `symbols` gives those of a record that are beside its source.
    """

    def pairs(record: dict[str, Any], number: int) -> list[Pair | None]:
        sides = _sides(record, languages)
        good = [] if sides.is_fuzzy or not sides.source.strip() else [each for each in sides.targets if each.strip()]
        return [Pair(sides.source, target, number, symbols(record)) for target in good] or [None]

    return chain.from_iterable(read_records(path, encoding, pairs))


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


def _sides(record: Mapping[str, Any], languages: Languages) -> _Sides:
    """The sides: source and target, or the languages, on their own or inside "translation"."""
    inner, sides = record.get("translation"), record
    source, target = ("source", "target") if "source" in record else languages
    if "source" not in record and isinstance(inner, Mapping):
        sides = inner
    if source is None or target is None or (sides is record and source not in record):
        raise BadRecord(
            f"neither a member source nor a translation in both languages: the members are {', '.join(record)[:80]}"
        )
    if source not in sides:
        raise BadRecord(f"no member {source!r}; there are {', '.join(map(str, sides))[:80] or 'none'}")
    given, answers = sides[source], sides.get(target)
    whole = " ".join(require_texts(given)) if isinstance(given, list) else require_text(given) or ""
    targets = require_texts(answers) if isinstance(answers, list) else [require_text(answers) or ""]
    return _Sides(whole, tuple(targets), record.get("fuzzy") is True, target, sides is not record)


def require_text(value: Any) -> str | None:
    """A member that is text or null."""
    if value is not None and not isinstance(value, str):
        raise BadRecord(f"text is expected, not {json.dumps(value)[:40]}")
    if value and any("\ud800" <= character <= "\udfff" for character in value):
        raise BadRecord("half of a character (a lone surrogate) in the text")
    return value


def require_texts(values: list[Any]) -> list[str]:
    """A member that is a list of texts."""
    texts = [require_text(value) for value in values]
    if None in texts:
        raise BadRecord("a list of texts is expected, without null")
    return [text for text in texts if text is not None]


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


def read_jsonl(path: Path, *, languages: Languages = (None, None)) -> "JsonlCatalogue":
    """Read a file whose targets can be filled."""
    return parse_jsonl(read_whole(path), path, languages=languages)


def parse_jsonl(data: bytes, path: Path, *, languages: Languages = (None, None)) -> "JsonlCatalogue":
    """The same of the bytes of a file; the path is for messages."""
    return JsonlCatalogue(decoded(data, "utf-8", path), languages=languages)


class JsonlCatalogue:
    """Records with a source, some of which have a target."""

    locked = 0

    def __init__(self, script: Script, *, languages: Languages) -> None:
        self.script = script
        self.languages: Languages = (None, None)
        self.segments: list[Segment] = []
        self._places: list[_TargetSpan] = []
        problems = Problems()
        at = 1 if script.text.startswith("\ufeff") else 0
        for number, line in enumerate(script.text[at:].split("\n"), start=1):
            if line.strip():
                try:
                    sides = _sides(parse_record(line), languages)
                except BadRecord as error:
                    problems.add(str(error), script.path, number, error.column)
                else:
                    state: State = "fuzzy" if sides.is_fuzzy else "translated"
                    source = (sides.source,) if sides.source else ()
                    self.segments.append(
                        Segment(source, sides.target, state if sides.target else "untranslated", number)
                    )
                    self._places.append(_place(line, at, sides))
            at += len(line) + 1
        problems.require_none()

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


def _place(line: str, start: int, sides: _Sides) -> _TargetSpan:
    """Where the target is in a line that is known to be a record."""
    outer, after = _members(line, line.index("{"))
    inner, last = _members(line, outer["translation"][0]) if sides.is_inside else (outer, after)
    fuzzy = outer.get("fuzzy")
    mark = (start + fuzzy[0], start + fuzzy[1]) if fuzzy else None
    if sides.target_name in inner:
        begin, end = inner[sides.target_name]
        return _TargetSpan(start + begin, start + end, "", start + after, mark)
    # After the last member: the source is one, so there is a comma to be put in.
    prefix = f", {json.dumps(sides.target_name, ensure_ascii=False)}: "
    return _TargetSpan(start + last, start + last, prefix, start + after, mark)


def _members(line: str, at: int) -> tuple[dict[str, tuple[int, int]], int]:
    """Where the value of each member of the object at this place begins and ends, and where the last one has ended.

    The JSON is known to be valid; of members of one name the last counts, as for every reader.
    """
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
    return values, last


def _skip(line: str, at: int) -> int:
    """The place after the spaces at this one."""
    while line[at] in " \t\r\n":
        at += 1
    return at


JSONL = Format(
    "JSONL",
    (".jsonl",),
    pairs=lambda path, languages, encoding: read_pairs(path, languages=languages, encoding=encoding),
    texts=lambda path, _side, language, encoding: read_records(
        path, encoding, lambda record, _number: _member(record, language)
    ),
    catalogue=lambda path, languages: read_jsonl(path, languages=languages),
)
