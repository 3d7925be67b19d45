"""Message catalogues of gettext: PO, read with their places and filled without another byte changed; MO, read only.

    # 85% a.tmx: "…" -> "…"     a comment: what a translation memory has for a similar message
    #, fuzzy, c-format          a flag: this translation needs review
    #| msgid "Open file"        what the source was when it was translated
    msgctxt "menu"
    msgid "Open %d file"
    msgid_plural "Open %d files"
    msgstr[0] "…"

Obsolete entries (#~) and the header are not changed. Translations are wrapped as gettext does, unless the file has
longer lines.
"""

import gettext
import json
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from seqloom.core.errors import DataError, Problem, UsageError
from seqloom.core.text_files import is_encoding_of_files, read_whole
from seqloom.text.formats.placeholders import count_placeholders
from seqloom.text.formats.segments import (
    Catalogue,
    Edit,
    Filling,
    Languages,
    Script,
    Segment,
    State,
    catalogue_format,
    decoded,
    text_of,
)

# Plural forms of a language, by the header of a message catalogue.
#
# Plural-Forms: nplurals=2; plural=(n > 1); for each number n, which form it takes: here 0 for none and one

MAX_PLURAL_FORMS = 12
"""No language has more than six; a header with a million is ignored."""

_PLURAL_FORMS = re.compile(
    r"^Plural-Forms:\s*nplurals\s*=\s*(\d{1,6})\s*;\s*plural\s*=\s*([^;\n]+)", re.MULTILINE | re.IGNORECASE
)
_TRIED_NUMBERS = range(1_001)


@dataclass(frozen=True)
class PluralForms:
    """How many forms there are, and which of them is that of one: the first, unless a header says otherwise."""

    count: int
    of_one: int = 0
    is_of_one_alone: bool = True
    """Whether that form serves no other number, as it does in English but not in Russian (1, 21, 31 …)."""

    def source(self, form: int, singular: str, plural: str, *, is_format: bool = False) -> str:
        """What a form is translated from: the singular for that of one, unless it serves other numbers, too.

        "One file" cannot mean 21 files where the plural says "%d files".
        """
        if form != self.of_one or self.count == 1:
            return plural
        of_one, of_others = (count_placeholders(text, is_format=is_format) for text in (singular, plural))
        return singular if self.is_of_one_alone or of_one == of_others else plural


def plural_forms(header: str) -> PluralForms | None:
    """The forms by a header; None where it has none, or invalid ones."""
    found = _PLURAL_FORMS.search(header)
    if found is None or not 1 <= int(found[1]) <= MAX_PLURAL_FORMS:
        return None
    count = int(found[1])
    try:
        choose: Callable[[int], int] = gettext.c2py(found[2].strip())
        of_one = choose(1)
        is_alone = all(choose(number) != of_one for number in _TRIED_NUMBERS if number != 1)
    except (ValueError, ZeroDivisionError, OverflowError, RecursionError):
        return None
    return PluralForms(count, of_one, is_alone) if 0 <= of_one < count else None


# Strings of message catalogues: "quoted", escaped as in C, and continued over several lines.

WIDTH = 79
"""Columns up to which gettext fills a line."""

_STRING = re.compile(r'[ \t]*"((?:[^"\\\n]|\\.)*)"')
_ESCAPED = re.compile(r"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]++)|(.))", re.DOTALL)
_BYTE = re.compile("[\udc80-\udcff]")
_MEANINGS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_WRITTEN = {value: f"\\{name}" for name, value in _MEANINGS.items()} | {"\\": "\\\\", '"': '\\"'}
_TO_ESCAPE = re.compile(r'[\x00-\x1f\x7f\\"]')
_WORD = re.compile(r"[^ ]*+ *+(?!$)|[^ ]*+ *+")


def read_strings(line: str) -> tuple[str, int]:
    """The joined strings of a line, and where the last one ends; -1 if something else is there.

    Escaped bytes beyond ASCII, which are parts of characters, become lone surrogates.
    """
    values, end = [], 0
    while found := _STRING.match(line, end):
        values.append(_ESCAPED.sub(_meaning, found[1]) if "\\" in found[1] else found[1])
        end = found.end()
    return "".join(values), end if values and not line[end:].strip() else -1


def _meaning(found: "re.Match[str]") -> str:
    if found[3] is not None:
        return _MEANINGS.get(found[3], found[3])
    byte = (int(found[1], 8) if found[1] is not None else int(found[2][-2:], 16)) & 0xFF  # the rest is cut off, as in C
    return chr(byte) if byte < 0x80 else chr(0xDC00 + byte)


def write_strings(text: str, *, column: int, line_end: str = "\n", is_wrapped: bool = True) -> str:
    """A text in quotes, after `column` characters of its line: on one line, or on a new line after each line end."""
    lines = [
        _TO_ESCAPE.sub(lambda found: _WRITTEN.get(found[0], f"\\{ord(found[0]):03o}"), line)
        for line in re.split(r"(?<=\n)", text)
    ]
    lines = lines[:-1] if lines[-1] == "" and len(lines) > 1 else lines
    if len(lines) == 1 and (not is_wrapped or column + len(lines[0]) + 2 <= WIDTH):
        return f'"{lines[0]}"'
    parts = [""]
    for line in lines:
        parts.append("")
        for word in _WORD.findall(line) if is_wrapped else [line]:
            if parts[-1] and len(parts[-1]) + len(word) + 2 > WIDTH:
                parts.append("")
            parts[-1] += word
    return line_end.join(f'"{part}"' for part in parts)


_CHARSET = re.compile(rb"charset=([A-Za-z0-9_.:-]+)")
_HEADER = re.compile(rb'^[ \t]*msgid[ \t]*""\s*msgstr', re.MULTILINE)
_MSGID = re.compile(rb"^[ \t]*msgid[ \t\"]", re.MULTILINE)
_KEYWORD = re.compile(r"(msgctxt|msgid_plural|msgid|msgstr(?:\[\d{1,3}\])?|domain)(?=[ \t\"]|$)")
_LANGUAGE = re.compile(r"^Language:[ \t]*([A-Za-z]{2,3}(?![A-Za-z])[\w@.-]*)", re.MULTILINE)
_PRINTF = frozenset(f"{language}-format" for language in "c objc python php perl awk lua tcl ruby".split())  # noqa: SIM905
"""Flags of messages whose percent signs are all placeholders; of Qt, KDE and Boost they are not those of printf."""
_MAX_HEADER_BYTES = 1 << 16
"""Bytes in which the charset is searched."""


@dataclass
class Field:
    """A keyword and its strings."""

    start: int
    """Where its first string begins."""
    end: int = -1
    """Where its last string has ended."""
    column: int = 0
    strings: list[str] = field(default_factory=list)
    value: str = ""
    """The joined strings, once the entry has been read."""


@dataclass
class Entry:
    """A message with its translations."""

    fields: dict[str, Field] = field(default_factory=dict)
    start: int = -1
    """Where the line of its first keyword begins."""
    comments_start: int = -1
    """Where the first line of its comments begins, if it has any."""
    flags: list[tuple[int, int]] = field(default_factory=list)
    """Where its lines of flags begin, indentation left out, and end, the line end left out."""
    previous: list[tuple[int, int]] = field(default_factory=list)
    """Lines with an earlier source, their line ends included."""
    is_fuzzy: bool = False
    is_format: bool = False
    """Whether a flag says that its messages go to printf or its like."""

    @property
    def is_header(self) -> bool:
        """Whether it describes the catalogue."""
        return self.fields["msgid"].value == "" and not self.fields.keys() & {"msgctxt", "msgid_plural"}

    @property
    def has_translation(self) -> bool:
        """Whether it is ended, so that what follows belongs to the next."""
        return any(name.startswith("msgstr") for name in self.fields)


def read_po(path: Path) -> "PoCatalogue":
    """Read a catalogue, `.gz`, `.xz` and `.zst` too; a DataError names what cannot be read."""
    return parse_po(read_whole(path), path)


def parse_po(data: bytes, path: Path) -> "PoCatalogue":
    """The same of the bytes of a file; the path is for messages."""
    # The charset of the header counts; messages may mention others.
    name, top = "utf-8", data[:_MAX_HEADER_BYTES]
    if header := _HEADER.search(top):
        after = _MSGID.search(top, header.end())
        found = _CHARSET.search(top, header.end(), after.start() if after else len(top))
        name = found[1].decode("ascii") if found else "utf-8"
    reader = _PoReader(decoded(data, "utf-8" if name == "CHARSET" else name.lower(), path))
    if reader.problems:
        raise DataError(problems=reader.problems)
    return PoCatalogue(reader.script, reader.entries)


class PoCatalogue:
    """A message catalogue: every message is a segment, and of those with a plural every form."""

    locked = 0

    def __init__(self, script: Script, entries: Sequence[Entry]) -> None:
        self.script, self.entries = script, entries
        header = next((entry.fields["msgstr"].value for entry in entries if entry.is_header), "")
        self.languages = _languages(header)
        self._plural_forms = plural_forms(header)
        self._line_end = "\r\n" if "\r\n" in script.text else "\n"
        # gettext wraps all longer lines but those with a single long word.
        long = (line for line in script.text.split("\n") if len(line) > WIDTH + 20 and not line.startswith("#"))
        self._is_wrapped = not any(line.count(" ") > 3 for line in long)
        self.segments: list[Segment] = []
        self._places: list[tuple[Entry, str]] = []
        for entry in entries:
            if entry.is_header:
                continue
            line, fields = script.line(entry.start), entry.fields
            context = fields["msgctxt"].value if "msgctxt" in fields else ""
            state: State = "fuzzy" if entry.is_fuzzy else "translated"
            for name, text in self._sources(entry):
                source, target = (text,) if text else (), fields[name].value if name in fields else ""
                self.segments.append(
                    Segment(source, target, state if target else "untranslated", line, context, entry.is_format)
                )
                self._places.append((entry, name))

    def _sources(self, entry: Entry) -> list[tuple[str, str]]:
        """The names of all translations that a message needs, and what each is made from."""
        singular = entry.fields["msgid"].value
        if "msgid_plural" not in entry.fields:
            return [("msgstr", singular)]
        plural = entry.fields["msgid_plural"].value
        there = sum(name.startswith("msgstr[") for name in entry.fields)
        forms = self._plural_forms or PluralForms(max(1, there))
        return [
            (f"msgstr[{form}]", forms.source(form, singular, plural, is_format=entry.is_format))
            for form in range(forms.count)
        ]

    def filled(self, fillings: Mapping[int, Filling], *, target: str | None = None) -> bytes:  # noqa: ARG002
        """The catalogue with these translations. A message of which one is fuzzy becomes so as a whole."""
        edits: list[Edit] = []
        by_entry: dict[int, dict[str, Filling]] = {}
        for number, filling in fillings.items():
            entry, name = self._places[number]
            by_entry.setdefault(id(entry), {})[name] = filling
        for entry in self.entries:
            if not (given := by_entry.get(id(entry))):
                continue
            last = max(each.end for each in entry.fields.values())
            for name in sorted(given, key=_form):
                place = entry.fields.get(name)
                written = write_strings(
                    text_of(given[name].content),
                    column=place.column if place else len(name) + 1,
                    line_end=self._line_end,
                    is_wrapped=self._is_wrapped,
                )
                edits.append(
                    Edit(place.start, place.end, written)
                    if place
                    else Edit(last, last, f"{self._line_end}{name} {written}")
                )
            edits += [*self._proposals(entry, given), *self._marks(entry, given)]
        return self.script.edited(edits)

    def _proposals(self, entry: Entry, given: Mapping[str, Filling]) -> Iterator[Edit]:
        """Comments of the translator with what a memory has for the message, before its other comments."""
        start = entry.start if entry.comments_start < 0 else entry.comments_start
        there = self.script.text[start : entry.start]
        lines: dict[str, None] = {}
        for each in (proposal for filling in given.values() for proposal in filling.proposals):
            source, target = (json.dumps(text, ensure_ascii=False) for text in (each.source, each.target))
            line = f"# {each.percentage}% {' '.join(each.origin.split())}: {source} -> {target}"
            line = line.encode(self.script.encoding, errors="backslashreplace").decode(self.script.encoding)
            if line not in there:
                lines[line] = None
        if lines:
            yield Edit(start, start, "".join(f"{line}{self._line_end}" for line in lines))

    def _marks(self, entry: Entry, given: Mapping[str, Filling]) -> Iterator[Edit]:
        """The fuzzy flag put in or taken out."""
        is_fuzzy = any(filling.is_fuzzy for filling in given.values())
        if is_fuzzy and not entry.is_fuzzy:
            if entry.flags:
                at = entry.flags[0][0] + len("#,")
                yield Edit(at, at, " fuzzy,")
            else:
                at = entry.previous[0][0] if entry.previous else entry.start
                yield Edit(at, at, f"#, fuzzy{self._line_end}")
        elif entry.is_fuzzy and not is_fuzzy and len(given) == len(self._sources(entry)):
            text = self.script.text
            for start, end in entry.flags:
                flags = _flags(text[start:end])
                kept = ", ".join(flag for flag in flags if flag not in ("", "fuzzy"))
                if "fuzzy" in flags and kept:
                    yield Edit(start, end, f"#, {kept}")
                elif "fuzzy" in flags:  # alone, so the whole line goes
                    yield Edit(text.rfind("\n", 0, start) + 1, text.find("\n", end) + 1 or len(text), "")
            yield from (Edit(*span, "") for span in entry.previous)


def _languages(header: str) -> Languages:
    """A header names the target only."""
    found = _LANGUAGE.search(header)
    return None, found[1] if found else None


def _flags(line: str) -> list[str]:
    """The flags of a line."""
    return [flag.strip() for flag in line[len("#,") :].split(",")]


def _form(name: str) -> int:
    return int(name[len("msgstr[") : -1]) if "[" in name else 0


class _PoReader:
    """Reads a catalogue line by line."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.entries: list[Entry] = []
        self.problems: list[Problem] = []
        self._entry, self._field = Entry(), None  # type: tuple[Entry, Field | None]
        at = 1 if script.text.startswith("\ufeff") else 0
        while at < len(script.text):
            newline = script.text.find("\n", at)
            end = newline if newline >= 0 else len(script.text)
            line = script.text[at:end].rstrip("\r")
            if line.lstrip().startswith("#"):
                self._comment(at, line, end + 1)
            elif line.strip():
                self._line(at, line)
            at = end + 1
        self._end_entry()

    def _line(self, start: int, line: str) -> None:
        """A line with a keyword, strings or both, which begins at `start`."""
        shown = line.strip()
        place = start + len(line) - len(line.lstrip())
        if found := _KEYWORD.match(shown):
            keyword = found[1]
            if keyword in ("msgctxt", "msgid", "domain") and self._entry.has_translation:
                self._end_entry()
            if keyword in self._entry.fields:
                self._refuse(f"{keyword} comes twice in one entry", place)
            place += len(keyword)
            self._field = Field(place)
            if keyword != "domain":
                if not self._entry.fields:
                    self._entry.start = start
                self._entry.fields[keyword] = self._field
            if not line[place - start :].strip():
                return  # its strings begin on the next line
        elif not shown.startswith('"'):
            self._refuse(f"neither a keyword, a string nor a comment: {shown[:40]!r}", place)
            return
        strings = line[place - start :]
        value, end = read_strings(strings)
        if end < 0:
            self._refuse(f"a string in quotes is expected and nothing else: {strings.strip()[:40]!r}", place)
        elif self._field is None:
            self._refuse(f"a string that belongs to no keyword: {shown[:40]!r}", place)
        else:
            if self._field.end < 0:
                self._field.start = place + len(strings) - len(strings.lstrip())
                self._field.column = self._field.start - start
            self._field.strings.append(value)
            self._field.end = place + end

    def _comment(self, start: int, line: str, after: int) -> None:
        """A comment that begins at `start`; the next line begins at `after`."""
        if self._entry.has_translation:
            self._end_entry()
        shown = line.lstrip()
        if self._entry.comments_start < 0:
            self._entry.comments_start = start
        if shown.startswith("#,"):
            flags = _flags(shown)
            self._entry.flags.append((start + len(line) - len(shown), start + len(line)))
            self._entry.is_fuzzy |= "fuzzy" in flags
            self._entry.is_format |= not _PRINTF.isdisjoint(flags)
        elif shown.startswith("#|"):
            self._entry.previous.append((start, min(after, len(self.script.text))))
        elif shown.startswith("#~"):
            self._entry, self._field = Entry(), None

    def _end_entry(self) -> None:
        """Take in the entry that has been read."""
        entry, self._entry, self._field = self._entry, Entry(), None
        if not entry.fields:
            return
        for name, each in entry.fields.items():
            if each.end < 0:
                self._refuse(f"{name} has no string after it", entry.start)
                return
        encoding = self.script.encoding
        for name, each in entry.fields.items():
            each.value = "".join(each.strings)
            if _BYTE.search(each.value):  # escaped bytes, which are characters together with their neighbours
                try:
                    each.value = each.value.encode(encoding, errors="surrogateescape").decode(encoding)
                except UnicodeError:
                    self._refuse(f"{name} has escaped bytes that are not valid {encoding.upper()}", each.start)
                    return
        kind = "msgstr[0]" if "msgid_plural" in entry.fields else "msgstr"
        missing = next((name for name in ("msgid", kind) if name not in entry.fields), None)
        forms = sorted(_form(name) for name in entry.fields if name.startswith("msgstr["))
        gap = next((at for at, form in enumerate(forms) if form != at), None)
        if missing is not None:
            self._refuse(f"this entry has no {missing}", entry.start)
        elif gap is not None:
            self._refuse(f"this entry has a msgstr[{forms[gap]}] but no msgstr[{gap}]", entry.start)
        else:
            self.entries.append(entry)

    def _refuse(self, message: str, place: int) -> None:
        self.problems.append(self.script.problem(message, place))


# --- compiled catalogues ---------------------------------------------------------------------------------------------
#
# magic 0x950412de, revision, N, places of two tables of N lengths and offsets: sources, translations
# context EOT source NUL plural      translation NUL translation …
#
# The module gettext of the standard library reads these files too, but forgets the plural of the source.

MO_MAGIC = 0x950412DE
_MO_SYSTEM_COUNT = 36
"""Where a file of minor revision 1 counts its messages with system-dependent parts, such as %<PRIu64>."""
_MO_MAX_SHARING = 4
"""Texts may share bytes, but a table that names the whole file a million times is made to fill the memory."""


@dataclass(frozen=True)
class MoFile:
    """What a compiled catalogue holds."""

    languages: Languages
    segments: tuple[Segment, ...]
    """Every message, and of those with a plural every form; lines are numbers of messages.

    An empty one for each message with system-dependent parts, which is not read.
    """


def read_mo(path: Path) -> MoFile:
    """Read a compiled catalogue in either byte order; one that is damaged is a DataError."""
    data = read_whole(path)
    order = {struct.pack("<I", MO_MAGIC): "<", struct.pack(">I", MO_MAGIC): ">"}.get(data[:4])
    if order is None:
        raise DataError(f"{path}: not a compiled catalogue; it begins with {data[:4].hex(' ')!r}")
    try:
        pairs = _mo_strings(data, order)
        found = next((_CHARSET.search(target) for source, target in pairs if not source), None)
        encoding = found[1].decode("ascii") if found else "utf-8"
        if not is_encoding_of_files(encoding):
            raise LookupError(f"unknown encoding: {encoding[:40]}")
        texts = [(source.decode(encoding), target.decode(encoding)) for source, target in pairs]
        (revision,) = struct.unpack_from(f"{order}I", data, 4)
        (skipped,) = struct.unpack_from(f"{order}I", data, _MO_SYSTEM_COUNT) if revision & 0xFFFF else (0,)
        header = next((target for source, target in texts if not source), "")
        segments = [each for at, text in enumerate(texts) for each in _mo_segments(*text, at + 1, plural_forms(header))]
    except (struct.error, ValueError, LookupError) as error:
        raise DataError(f"{path}: the compiled catalogue is damaged ({error}); compile it again") from error
    unread = [Segment((), "", "untranslated", 0)] * min(skipped, len(data))
    return MoFile(_languages(header), (*segments, *unread))


def _mo_strings(data: bytes, order: str) -> list[tuple[bytes, bytes]]:
    revision, count, sources, targets = struct.unpack_from(f"{order}4I", data, 4)
    if revision >> 16 > 1:
        raise ValueError(f"unknown revision {revision >> 16}")
    if max(sources, targets) + 8 * count > len(data):
        raise ValueError(f"{count:,} messages do not fit into {len(data):,} bytes")
    room = _MO_MAX_SHARING * len(data)

    def string(table: int, number: int) -> bytes:
        nonlocal room
        length, offset = struct.unpack_from(f"{order}2I", data, table + 8 * number)
        if offset + length > len(data):
            raise ValueError(f"message {number + 1} lies beyond the end")
        room -= length
        if room < 0:
            raise ValueError(f"its messages are more than {_MO_MAX_SHARING} times as long as the file")
        return data[offset : offset + length]

    return [(string(sources, number), string(targets, number)) for number in range(count)]


def _mo_segments(source: str, target: str, number: int, forms: PluralForms | None) -> Iterator[Segment]:
    if not source:
        return  # the header
    context, mark, rest = source.partition("\x04")
    singular, has_plural, plural = (rest if mark else source).partition("\0")
    if "\0" in plural:
        raise ValueError(f"{singular[:40]!r} has more than one plural")
    targets = target.split("\0") if has_plural else [target]
    forms = forms or PluralForms(len(targets))
    for form in range(forms.count if has_plural else 1):
        text = targets[form] if form < len(targets) else ""
        source = forms.source(form, singular, plural) if has_plural else singular
        yield Segment((source,), text, "translated" if text else "untranslated", number, context if mark else "")


def _refuse_mo(path: Path) -> Catalogue:
    raise UsageError(
        f"{path} is a compiled catalogue, which cannot be filled; translate the .po file that it was compiled "
        "from, and compile the result with msgfmt"
    )


PO = catalogue_format("PO", (".po", ".pot"), read_po, fill=read_po)
MO = catalogue_format("MO", (".mo",), read_mo, fill=_refuse_mo)
