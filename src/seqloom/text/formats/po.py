"""Message catalogues of gettext: PO, read with their places and filled without another byte changed; MO, read only.

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
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from seqloom.core.errors import DataError, Problem, UsageError
from seqloom.core.text_files import is_encoding_of_files, read_whole
from seqloom.text.formats.placeholders import count_placeholders
from seqloom.text.formats.segments import (
    Catalogue,
    Edit,
    Filling,
    Format,
    Languages,
    Script,
    Segment,
    State,
    decoded,
    segment_pairs,
    segment_texts,
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
_TRIED = 1_001


@dataclass(frozen=True)
class PluralForms:
    """How many forms there are, and which of them is that of one."""

    count: int
    of_one: int
    is_of_one_alone: bool
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
        is_alone = all(choose(number) != of_one for number in range(_TRIED) if number != 1)
    except (ValueError, ZeroDivisionError, OverflowError, RecursionError):
        return None
    return PluralForms(count, of_one, is_alone) if 0 <= of_one < count else None


def forms_like_english(count: int) -> PluralForms:
    """So many forms, for want of a header: the first is that of one."""
    return PluralForms(count, 0, True)


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
    """The joined strings of a line, and where the last one ends; -1 if something else is there."""
    values, end = [], 0
    while found := _STRING.match(line, end):
        values.append(unescape(found[1]))
        end = found.end()
    return "".join(values), end if values and not line[end:].strip() else -1


def unescape(text: str) -> str:
    """The characters that escapes encode; bytes beyond ASCII, which are parts of characters, as lone surrogates."""
    return _ESCAPED.sub(_meaning, text) if "\\" in text else text


def _meaning(found: "re.Match[str]") -> str:
    if found[3] is not None:
        return _MEANINGS.get(found[3], found[3])
    byte = (int(found[1], 8) if found[1] is not None else int(found[2][-2:], 16)) & 0xFF  # as in C, what is over goes
    return chr(byte) if byte < 0x80 else chr(0xDC00 + byte)


def with_bytes(text: str, encoding: str) -> str:
    """A text whose lone surrogates are read as bytes, together with their neighbours, or else a UnicodeError."""
    if _BYTE.search(text) is None:
        return text
    return text.encode(encoding, errors="surrogateescape").decode(encoding)


def escape(text: str) -> str:
    """A text as written between quotes."""
    return _TO_ESCAPE.sub(lambda found: _WRITTEN.get(found[0], f"\\{ord(found[0]):03o}"), text)


def write_strings(text: str, *, column: int, line_end: str = "\n", is_wrapped: bool = True) -> str:
    """A text in quotes, after `column` characters of its line: on one line, or on a new line after each line end."""
    lines = [escape(line) for line in re.split(r"(?<=\n)", text)]
    lines = lines[:-1] if lines[-1] == "" and len(lines) > 1 else lines
    if len(lines) == 1 and (not is_wrapped or column + len(lines[0]) + 2 <= WIDTH):
        return f'"{lines[0]}"'
    filled = [part for line in lines for part in (_fill(line) if is_wrapped else [line])]
    return line_end.join(['""', *(f'"{part}"' for part in filled)])


def _fill(line: str) -> list[str]:
    """A line in parts that fit, each with the spaces after its words."""
    parts = [""]
    for word in _WORD.findall(line):
        if parts[-1] and len(parts[-1]) + len(word) + 2 > WIDTH:
            parts.append("")
        parts[-1] += word
    return parts


_CHARSET = re.compile(rb"charset=([A-Za-z0-9_.:-]+)")
_HEADER = re.compile(rb'^[ \t]*msgid[ \t]*""\s*msgstr', re.MULTILINE)
_MSGID = re.compile(rb"^[ \t]*msgid[ \t\"]", re.MULTILINE)
_KEYWORD = re.compile(r"(msgctxt|msgid_plural|msgid|msgstr(?:\[\d{1,3}\])?|domain)(?=[ \t\"]|$)")
_LANGUAGE = re.compile(r"^Language:[ \t]*([A-Za-z]{2,3}(?![A-Za-z])[\w@.-]*)", re.MULTILINE)
_PRINTF = frozenset(f"{language}-format" for language in "c objc python php perl awk lua tcl ruby".split())  # noqa: SIM905
"""Flags of messages whose percent signs are all placeholders; of Qt, KDE and Boost they are not those of printf."""
_TOP = 1 << 16
"""Bytes in which the charset is searched."""


@dataclass
class Field:
    """A keyword and its strings."""

    strings: list[str]
    start: int
    """Where its first string begins."""
    end: int
    """Where its last string has ended."""
    column: int
    value: str = ""
    """The joined strings, once the entry has been read."""


@dataclass
class Entry:
    """A message with its translations."""

    fields: dict[str, Field] = field(default_factory=dict)
    start: int = -1
    """Where the line of its first keyword begins."""
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


@dataclass(frozen=True)
class _Target:
    """Where the translation of a segment belongs."""

    entry: Entry
    name: str


def read_po(path: Path) -> "PoCatalogue":
    """Read a catalogue, `.gz`, `.xz` and `.zst` too; a DataError names what cannot be read."""
    data = read_whole(path)
    name = _charset(data[:_TOP])
    script = decoded(data, "utf-8" if name == "CHARSET" else name.lower(), path)
    entries, problems = _read_entries(script)
    if problems:
        raise DataError(problems=problems)
    return PoCatalogue(script, entries)


def _charset(top: bytes) -> str:
    """The charset of the header; messages may mention others."""
    header = _HEADER.search(top)
    if header is None:
        return "utf-8"
    after = _MSGID.search(top, header.end())
    found = _CHARSET.search(top, header.end(), after.start() if after else len(top))
    return found[1].decode("ascii") if found else "utf-8"


class PoCatalogue:
    """A message catalogue."""

    locked = 0

    def __init__(self, script: Script, entries: Sequence[Entry]) -> None:
        self.script, self.entries = script, tuple(entries)
        self.header = next((entry.fields["msgstr"].value for entry in entries if entry.is_header), "")
        self._line_end = "\r\n" if "\r\n" in script.text else "\n"
        # gettext wraps all longer lines but those with a single long word.
        long = (line for line in script.text.split("\n") if len(line) > WIDTH + 20 and not line.startswith("#"))
        self._is_wrapped = not any(line.count(" ") > 3 for line in long)
        self._read = list(self._segments())

    @property
    def segments(self) -> list[Segment]:
        """Every message, and of those with a plural every form."""
        return [segment for segment, _ in self._read]

    @property
    def languages(self) -> Languages:
        """The header names the target only."""
        return None, _language(self.header)

    @cached_property
    def plural_forms(self) -> PluralForms | None:
        """The plural forms by the header."""
        return plural_forms(self.header)

    def _segments(self) -> Iterator[tuple[Segment, _Target]]:
        for entry in self.entries:
            if entry.is_header:
                continue
            singular, line = entry.fields["msgid"].value, self.script.line(entry.start)
            context = entry.fields["msgctxt"].value if "msgctxt" in entry.fields else ""
            for name, source in self._sources(entry, singular):
                target = entry.fields[name].value if name in entry.fields else ""
                state: State = "fuzzy" if entry.is_fuzzy else "translated"
                segment = Segment(
                    (source,) if source else (),
                    target,
                    state if target else "untranslated",
                    line,
                    context,
                    entry.is_format,
                )
                yield segment, _Target(entry, name)

    def _sources(self, entry: Entry, singular: str) -> list[tuple[str, str]]:
        """The names of all translations that a message needs, and what each is made from."""
        if "msgid_plural" not in entry.fields:
            return [("msgstr", singular)]
        plural = entry.fields["msgid_plural"].value
        there = sum(name.startswith("msgstr[") for name in entry.fields)
        forms = self.plural_forms or forms_like_english(max(1, there))
        return [
            (f"msgstr[{form}]", forms.source(form, singular, plural, is_format=entry.is_format))
            for form in range(forms.count)
        ]

    # ------------------------------------------------------------------------------------------------------------------

    def filled(self, fillings: Mapping[int, Filling], *, target: str | None = None) -> bytes:  # noqa: ARG002
        """The catalogue with these translations. A message of which one is fuzzy becomes so as a whole."""
        edits: list[Edit] = []
        by_entry: dict[int, list[tuple[str, Filling]]] = {}
        for number, filling in fillings.items():
            place = self._read[number][1]
            by_entry.setdefault(id(place.entry), []).append((place.name, filling))
        for entry in self.entries:
            if given := by_entry.get(id(entry)):
                edits += self._texts(entry, sorted(given, key=lambda each: _form(each[0])))
                edits += self._marks(entry, given)
        return self.script.edited(edits)

    def _texts(self, entry: Entry, given: Sequence[tuple[str, Filling]]) -> Iterator[Edit]:
        last = max(each.end for each in entry.fields.values())
        for name, filling in given:
            text = text_of(filling.content)
            if name in entry.fields:
                place = entry.fields[name]
                yield Edit(place.start, place.end, self._written(text, place.column))
            else:
                yield Edit(last, last, f"{self._line_end}{name} {self._written(text, len(name) + 1)}")

    def _written(self, text: str, column: int) -> str:
        return write_strings(text, column=column, line_end=self._line_end, is_wrapped=self._is_wrapped)

    def _marks(self, entry: Entry, given: Sequence[tuple[str, Filling]]) -> Iterator[Edit]:
        """The fuzzy flag put in or taken out."""
        is_fuzzy = any(filling.is_fuzzy for _, filling in given)
        if is_fuzzy and not entry.is_fuzzy:
            if entry.flags:
                at = entry.flags[0][0] + len("#,")
                yield Edit(at, at, " fuzzy,")
            else:
                at = entry.previous[0][0] if entry.previous else entry.start
                yield Edit(at, at, f"#, fuzzy{self._line_end}")
        elif entry.is_fuzzy and not is_fuzzy and len(given) == len(self._sources(entry, "")):
            yield from (edit for span in entry.flags for edit in self._without_fuzzy(*span))
            yield from (Edit(*span, "") for span in entry.previous)

    def _without_fuzzy(self, start: int, end: int) -> Iterator[Edit]:
        """A line of flags without this one; the whole line goes if it has no other."""
        text = self.script.text
        flags = _flags(text[start:end])
        if "fuzzy" not in flags:
            return
        kept = ", ".join(flag for flag in flags if flag not in ("", "fuzzy"))
        if kept:
            yield Edit(start, end, f"#, {kept}")
        else:
            yield Edit(text.rfind("\n", 0, start) + 1, text.find("\n", end) + 1 or len(text), "")


def _language(header: str) -> str | None:
    found = _LANGUAGE.search(header)
    return found[1] if found else None


def _flags(line: str) -> list[str]:
    """The flags of a line."""
    return [flag.strip() for flag in line[len("#,") :].split(",")]


def _form(name: str) -> int:
    return int(name[len("msgstr[") : -1]) if "[" in name else 0


# --- reading ---------------------------------------------------------------------------------------------------------


def _read_entries(script: Script) -> tuple[list[Entry], list[Problem]]:
    reader = _PoReader(script)
    at = 1 if script.text.startswith("\ufeff") else 0
    while at < len(script.text):
        newline = script.text.find("\n", at)
        end = newline if newline >= 0 else len(script.text)
        reader.line(at, script.text[at:end].rstrip("\r"), end + 1)
        at = end + 1
    reader.end_entry()
    return reader.entries, reader.problems


class _PoReader:
    """Takes in a catalogue line by line."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.entries: list[Entry] = []
        self.problems: list[Problem] = []
        self._entry, self._field = Entry(), None  # type: tuple[Entry, Field | None]

    def line(self, start: int, line: str, after: int) -> None:
        """A line that begins at `start`; the next one begins at `after`."""
        shown = line.strip()
        if not shown:
            return
        if shown.startswith("#"):
            self._comment(start, line, after)
            return
        place = start + len(line) - len(line.lstrip())
        keyword = _KEYWORD.match(shown)
        if keyword is None and not shown.startswith('"'):
            self._refuse(f"neither a keyword, a string nor a comment: {shown[:40]!r}", place)
            return
        if keyword is not None:
            place = self._begin(keyword[1], start, place)
        strings = line[place - start :]
        if keyword is not None and not strings.strip():
            return  # its strings begin on the next line
        value, end = read_strings(strings)
        if end < 0:
            self._refuse(f"a string in quotes is expected and nothing else: {strings.strip()[:40]!r}", place)
        elif self._field is None:
            self._refuse(f"a string that belongs to no keyword: {shown[:40]!r}", place)
        else:
            is_first = self._field.end < 0
            self._field.strings.append(value)
            self._field.end = place + end
            if is_first:
                self._field.start = place + len(strings) - len(strings.lstrip())
                self._field.column = self._field.start - start

    def _begin(self, keyword: str, start: int, place: int) -> int:
        """Begin a field; where its strings may begin."""
        if keyword in ("msgctxt", "msgid", "domain") and self._entry.has_translation:
            self.end_entry()
        if keyword in self._entry.fields:
            self._refuse(f"{keyword} comes twice in one entry", place)
        place += len(keyword)
        self._field = Field([], place, -1, 0)
        if keyword != "domain":
            if not self._entry.fields:
                self._entry.start = start
            self._entry.fields[keyword] = self._field
        return place

    def _comment(self, start: int, line: str, after: int) -> None:
        if self._entry.has_translation:
            self.end_entry()
        shown = line.lstrip()
        if shown.startswith("#,"):
            flags = _flags(shown)
            self._entry.flags.append((start + len(line) - len(shown), start + len(line)))
            self._entry.is_fuzzy |= "fuzzy" in flags
            self._entry.is_format |= not _PRINTF.isdisjoint(flags)
        elif shown.startswith("#|"):
            self._entry.previous.append((start, min(after, len(self.script.text))))
        elif shown.startswith("#~"):
            self._entry, self._field = Entry(), None

    def end_entry(self) -> None:
        """Take in the entry that has been read."""
        entry, self._entry, self._field = self._entry, Entry(), None
        if not entry.fields:
            return
        kind = "msgstr[0]" if "msgid_plural" in entry.fields else "msgstr"
        unsaid = [name for name, each in entry.fields.items() if each.end < 0]
        if unsaid:
            self._refuse(f"{unsaid[0]} has no string after it", entry.start)
            return
        if not self._read_bytes(entry):
            return
        missing = next((name for name in ("msgid", kind) if name not in entry.fields), None)
        forms = sorted(_form(name) for name in entry.fields if name.startswith("msgstr["))
        gap = next((form for at, form in enumerate(forms) if form != at), None)
        if missing is not None:
            self._refuse(f"this entry has no {missing}", entry.start)
        elif gap is not None:
            self._refuse(f"this entry has a msgstr[{gap}] but no msgstr[{forms.index(gap)}]", entry.start)
        else:
            self.entries.append(entry)

    def _read_bytes(self, entry: Entry) -> bool:
        """Join the strings and decode bytes written as numbers; whether these are text in the encoding of the file."""
        for name, each in entry.fields.items():
            try:
                each.value = with_bytes("".join(each.strings), self.script.encoding)
            except UnicodeError:
                self._refuse(f"{name} has escaped bytes that are no {self.script.encoding.upper()}", each.start)
                return False
        return True

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

    header: str
    segments: tuple[Segment, ...]
    """Every message, and of those with a plural every form; lines are numbers of messages."""
    skipped: int
    """Messages with system-dependent parts, which are not read."""


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
    return MoFile(header, tuple(segments), min(skipped, len(data)))


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
    forms = forms or forms_like_english(len(targets))
    for form in range(forms.count if has_plural else 1):
        text = targets[form] if form < len(targets) else ""
        source = forms.source(form, singular, plural) if has_plural else singular
        yield Segment((source,), text, "translated" if text else "untranslated", number, context if mark else "")


def _refuse_mo(path: Path, _languages: Languages) -> Catalogue:
    raise UsageError(
        f"{path} is a compiled catalogue, which cannot be filled; translate the .po file that it was compiled "
        "from, and compile the result with msgfmt"
    )


def _with_skipped(read: MoFile) -> Iterator[Segment]:
    yield from read.segments
    yield from [Segment((), "", "untranslated", 0)] * read.skipped


PO = Format(
    "PO",
    (".po", ".pot"),
    pairs=lambda path, _languages, _encoding: segment_pairs(read_po(path).segments),
    texts=lambda path, side, _language, _encoding: segment_texts(read_po(path).segments, side),
    languages=lambda path: read_po(path).languages,
    catalogue=lambda path, _languages: read_po(path),
)
MO = Format(
    "MO",
    (".mo",),
    pairs=lambda path, _languages, _encoding: segment_pairs(_with_skipped(read_mo(path))),
    texts=lambda path, side, _language, _encoding: segment_texts(_with_skipped(read_mo(path)), side),
    languages=lambda path: (None, _language(read_mo(path).header)),
    catalogue=_refuse_mo,
)
