"""Compiled catalogues to read: the package only reads them."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from seqloom.text.formats.po import MO_MAGIC

_HEAD = 28


@dataclass(frozen=True)
class Message:
    """A message of a compiled catalogue; the header has the empty source."""

    source: str
    targets: tuple[str, ...]
    plural: str | None = None
    context: str | None = None


HEADER = Message(
    "", ("Content-Type: text/plain; charset=UTF-8\nLanguage: de\nPlural-Forms: nplurals=2; plural=(n != 1);\n",)
)
MESSAGES = [
    HEADER,
    Message("Open", ("Öffnen",), context="menu"),
    Message("%d file", ("%d Datei", "%d Dateien"), plural="%d files"),
    Message("Empty", ("",)),
]


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
    head = struct.pack(f"{order}7I", MO_MAGIC, 0, count, _HEAD, _HEAD + 8 * count, 0, _HEAD + 16 * count)
    return b"".join([head, *tables, *texts])


def _source(message: Message, encoding: str) -> bytes:
    context = "" if message.context is None else f"{message.context}\x04"
    plural = "" if message.plural is None else f"\0{message.plural}"
    return f"{context}{message.source}{plural}".encode(encoding)
