"""Compiled message catalogues of gettext (MO), in both byte orders.

    magic 0x950412de, revision, N, places of two tables of N lengths and offsets: sources, translations
    context EOT source NUL plural      translation NUL translation …

The file has no room for fuzzy marks, and gettext leaves out what nobody has looked at; so do we. Messages that depend
on the system (%<PRIu64>), which minor revision 1 keeps in tables of their own, are counted and not read; a file that
has some is not filled, as they would be lost.
"""

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from seqloom.core.errors import DataError
from seqloom.core.text_files import is_encoding_of_files, read_whole
from seqloom.text.formats.po import forms_like_english, plural_forms
from seqloom.text.formats.segments import Filling, Segment, State, text_of

MAGIC = 0x950412DE
_HEAD = 28
_DEPENDENT = 36
"""Where a file of minor revision 1 says how many messages depend on the system."""
_SHARED = 4  # texts may share bytes, but a table that names the whole file a million times is made to fill the memory
_CHARSET = re.compile(rb"charset=([A-Za-z0-9_.:-]+)")
_LANGUAGE = re.compile(r"^Language:[ \t]*([A-Za-z]{2,3}(?![A-Za-z])[\w@.-]*)", re.MULTILINE)


@dataclass(frozen=True)
class Message:
    """A message of a compiled catalogue; the header has the empty source."""

    source: str
    targets: tuple[str, ...]
    plural: str | None = None
    context: str | None = None

    @property
    def is_header(self) -> bool:
        """Whether it tells about the catalogue."""
        return not self.source and self.plural is None and self.context is None


def read_mo(path: Path) -> "MoCatalogue":
    """Read a compiled catalogue; one that is damaged is a DataError."""
    data = read_whole(path)
    order = {struct.pack("<I", MAGIC): "<", struct.pack(">I", MAGIC): ">"}.get(data[:4])
    if order is None:
        raise DataError(f"{path}: not a compiled catalogue; it begins with {data[:4].hex(' ')!r}")
    try:
        pairs = _read_strings(data, order)
        found = next((_CHARSET.search(target) for source, target in pairs if not source), None)
        encoding = found[1].decode("ascii") if found else "utf-8"
        if not is_encoding_of_files(encoding):
            raise LookupError(f"unknown encoding: {encoding[:40]}")
        messages = [_message(source.decode(encoding), target.decode(encoding)) for source, target in pairs]
        (revision,) = struct.unpack_from(f"{order}I", data, 4)
        (dependent,) = struct.unpack_from(f"{order}I", data, _DEPENDENT) if revision & 0xFFFF else (0,)
    except (struct.error, ValueError, LookupError) as error:
        raise DataError(f"{path}: the compiled catalogue is damaged ({error}); compile it again") from error
    return MoCatalogue(path, data, messages, order=order, encoding=encoding, dependent=dependent)


def _read_strings(data: bytes, order: str) -> list[tuple[bytes, bytes]]:
    revision, count, sources, targets = struct.unpack_from(f"{order}4I", data, 4)
    if revision >> 16 > 1:
        raise ValueError(f"revision {revision >> 16} is not known")
    if max(sources, targets) + 8 * count > len(data):
        raise ValueError(f"{count:,} messages do not fit into {len(data):,} bytes")

    room = _SHARED * len(data)

    def string(table: int, number: int) -> bytes:
        nonlocal room
        length, offset = struct.unpack_from(f"{order}2I", data, table + 8 * number)
        if offset + length > len(data):
            raise ValueError(f"message {number + 1} lies beyond the end")
        room -= length
        if room < 0:
            raise ValueError(f"its messages are more than {_SHARED} times as long as the file")
        return data[offset : offset + length]

    return [(string(sources, number), string(targets, number)) for number in range(count)]


def _message(source: str, target: str) -> Message:
    context, mark, rest = source.partition("\x04")
    source = rest if mark else source
    singular, has_plural, plural = source.partition("\0")
    if "\0" in plural:
        raise ValueError(f"{singular[:40]!r} has more than one plural")
    targets = tuple(target.split("\0")) if has_plural else (target,)
    return Message(singular, targets, plural if has_plural else None, context if mark else None)


class MoCatalogue:
    """A compiled catalogue."""

    locked = 0

    def __init__(
        self,
        path: Path,
        data: bytes,
        messages: Sequence[Message],
        *,
        order: str,
        encoding: str,
        dependent: int = 0,
    ) -> None:
        self.path, self.messages = path, tuple(messages)
        self.dependent = dependent
        """How many messages depend on the system, and are not among these."""
        self._data, self._order, self._encoding = data, order, encoding
        self.header = next((each.targets[0] for each in messages if each.is_header), "")
        self._places: list[tuple[int, int]] = []
        self.segments: list[Segment] = []
        """Every message, and of those with a plural every form; lines are numbers of messages."""
        forms = plural_forms(self.header)
        for number, message in enumerate(self.messages):
            if message.is_header:
                continue
            count = 1 if message.plural is None else (forms or forms_like_english(len(message.targets))).count
            for form in range(count):
                target = message.targets[form] if form < len(message.targets) else ""
                source = message.source
                if message.plural is not None:
                    source = (forms or forms_like_english(count)).source(form, message.source, message.plural)
                state: State = "translated" if target else "untranslated"
                self._places.append((number, form))
                self.segments.append(Segment((source,), target, state, number + 1, message.context or ""))

    @property
    def languages(self) -> tuple[str | None, str | None]:
        """The target alone is told, by the header."""
        found = _LANGUAGE.search(self.header)
        return None, found[1] if found else None

    def filled(self, fillings: Mapping[int, Filling], *, target: str | None = None) -> bytes:  # noqa: ARG002
        """The catalogue with these translations, those left out that are fuzzy."""
        messages, is_changed = list(self.messages), False
        for number, filling in fillings.items():
            if filling.is_fuzzy:
                continue
            at, form = self._places[number]
            old = messages[at]
            targets = [*old.targets, *[""] * (form + 1 - len(old.targets))]
            targets[form] = text_of(filling.content)
            messages[at] = Message(old.source, tuple(targets), old.plural, old.context)
            is_changed = True
        if not is_changed:
            return self._data
        self.require_fillable()
        try:
            return compile_mo(messages, order=self._order, encoding=self._encoding)
        except UnicodeEncodeError as error:
            lost = error.object[error.start : error.end][:1]
            raise DataError(
                f"{self.path}: a translation has {lost!r}, which {self._encoding} cannot write; compile the catalogue "
                "as UTF-8 first"
            ) from error

    def require_fillable(self) -> None:
        """Refuse a catalogue of which a part would be lost."""
        if self.dependent:
            raise DataError(
                f"{self.path}: {self.dependent:,} of its messages depend on the system, as with %<PRIu64>, and would "
                "be lost; fill the .po that it is made of, and compile it with msgfmt"
            )


def compile_mo(messages: Sequence[Message], *, order: str = "<", encoding: str = "utf-8") -> bytes:
    """The bytes of a compiled catalogue: sources in their order, so that programs can search among them."""
    pairs = [(_source(each, encoding), "\0".join(each.targets).encode(encoding)) for each in messages]
    pairs.sort(key=lambda pair: pair[0])  # of those that should not be there twice the first stays the first
    sources, targets = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    count = len(pairs)
    tables, texts = [], []
    place = _HEAD + 16 * count
    for text in (*sources, *targets):
        tables.append(struct.pack(f"{order}2I", len(text), place))
        texts.append(text + b"\0")
        place += len(text) + 1
    # No hash table: of size 0, and where it would be.
    head = struct.pack(f"{order}7I", MAGIC, 0, count, _HEAD, _HEAD + 8 * count, 0, _HEAD + 16 * count)
    return b"".join([head, *tables, *texts])


def _source(message: Message, encoding: str) -> bytes:
    context = "" if message.context is None else f"{message.context}\x04"
    plural = "" if message.plural is None else f"\0{message.plural}"
    return f"{context}{message.source}{plural}".encode(encoding)
