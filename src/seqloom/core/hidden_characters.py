"""Invisible characters, counted in the UTF-8 bytes of a file while it is read.

invisible    zero-width characters, soft hyphens, byte-order marks, marks of direction
turning      embeddings, overrides and isolates, which turn the direction of the text that follows
piled        runs of more than four accents on one letter

Searching the bytes with numpy costs a small part of the time that splitting the text into lines takes.
"""

import codecs
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

Kind = Literal["invisible", "turning", "piled"]

_PILE = 5
"""Accents in a row that no writing system needs."""

_WORDS: dict[Kind, tuple[str, str]] = {
    "turning": ("character", "that turn the direction of writing (U+202A to U+202E, U+2066 to U+2069)"),
    "invisible": ("invisible character", "such as zero-width spaces, soft hyphens and byte-order marks"),
    "piled": ("letter", f"under {_PILE} accents or more"),
}


@dataclass
class Oddities:
    """How many there are of each kind, and the line of the first of them."""

    counts: dict[Kind, int] = field(default_factory=dict)
    first: dict[Kind, int] = field(default_factory=dict)
    _tail: bytes | None = None

    def count(self, chunk: bytes, *, lines: int) -> None:
        """Count in the next bytes, which follow so many lines."""
        if self._tail is None:  # a byte-order mark at the very start is legitimate
            self._tail, chunk = b"", chunk.removeprefix(codecs.BOM_UTF8)
        tail = self._tail
        self._tail = (tail + chunk[-2:])[-2:]  # a character may lie on the border of two chunks
        if chunk.isascii():
            return
        data = tail + chunk
        codes = np.frombuffer(data, dtype=np.uint8)
        for kind, places in self._places(data, codes, len(tail)):
            if len(places) == 0:
                continue
            self.counts[kind] = self.counts.get(kind, 0) + len(places)
            line = lines + data.count(b"\n", len(tail), max(len(tail), int(places.min()))) + 1
            self.first[kind] = min(line, self.first.get(kind, line))

    def _places(self, data: bytes, codes: Any, known: int) -> list[tuple[Kind, Any]]:
        """Where each kind begins, but for those that end within the bytes already `known`."""
        found: list[tuple[Kind, Any]] = []
        if b"\xe2" in data:
            at = _starts(codes, 0xE2, length=3, known=known)
            block, code = codes[at + 1], codes[at + 2]
            general, further = block == 0x80, block == 0x81
            is_hidden = (general & (code >= 0x8B) & (code <= 0x8F)) | (further & (code >= 0xA0) & (code <= 0xA4))
            is_turning = (general & (code >= 0xAA) & (code <= 0xAE)) | (further & (code >= 0xA6) & (code <= 0xA9))
            found += [("invisible", at[is_hidden]), ("turning", at[is_turning])]
        if b"\xef\xbb\xbf" in data:
            at = _starts(codes, 0xEF, length=3, known=known)
            found.append(("invisible", at[(codes[at + 1] == 0xBB) & (codes[at + 2] == 0xBF)]))
        if b"\xc2\xad" in data:
            at = _starts(codes, 0xC2, length=2, known=known)
            found.append(("invisible", at[codes[at + 1] == 0xAD]))
        if b"\xcc" in data or b"\xcd" in data:
            at = np.union1d(
                _starts(codes, 0xCC, length=2, known=known), _starts(codes, 0xCD, length=2, known=known)
            ).astype(np.int64)
            found.append(("piled", _piles(at[(codes[at] == 0xCC) | (codes[at + 1] <= 0xAF)])))
        return found

    def sentences(self, name: str) -> list[str]:
        """A sentence for each kind that a file of this name holds."""
        found = []
        for kind, (noun, what) in _WORDS.items():
            count = self.counts.get(kind, 0)
            if count:
                these = f"1 {noun}" if count == 1 else f"{count:,} {noun}s"
                found.append(f"{name}: {these} {what}; the first is in line {self.first[kind]:,}")
        return found


def _starts(codes: Any, lead: int, *, length: int, known: int) -> Any:
    at = np.flatnonzero(codes == lead)
    return at[(at + length <= len(codes)) & (at + length > known)]


def _piles(at: Any) -> Any:
    """Where runs of accents begin that are long enough, given where accents are; each takes two bytes."""
    if len(at) < _PILE:
        return at[:0]
    begins = np.flatnonzero(np.diff(at, prepend=-9) != 2)
    lengths = np.diff(begins, append=len(at))
    return at[begins[lengths >= _PILE]]
