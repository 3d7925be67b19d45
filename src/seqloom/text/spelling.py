"""How symbols become text one by one: what each adds to the text of those before it.

Joined, what the symbols add is what `Tokenizer.decode` gives, before it makes one space of each run of white space and
takes those at the ends away.
"""

import codecs
from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Any, Protocol

from seqloom.core.symbols import RESERVED, UNKNOWN
from seqloom.text.marks import BYTE_PIECES, JOINER, UNKNOWN_SIGN, show_spaces
from seqloom.text.tokenizer import Tokenizer


class Spelling(Protocol):
    """A place is what of the symbols so far decides how the next one is written; only a spelling can read it."""

    def begin(self) -> Hashable:
        """Before the first symbol."""
        ...

    def middle(self) -> Hashable:
        """In the middle of a character, where that can be; else behind one that touches nothing that follows."""
        ...

    def after(self, place: Any, symbol: int) -> tuple[str, Hashable]:
        """What a symbol adds to the text, and the place after it."""
        ...

    def rest(self, place: Any) -> str:
        """What the end of the text adds: a sign for bytes that are no whole character."""
        ...


@lru_cache(maxsize=8)
def spelling_of(tokenizer: Tokenizer) -> Spelling:
    """How a tokeniser writes its symbols."""
    pieces = [tokenizer.piece(number) for number in range(tokenizer.size)]
    if tokenizer.kind == "word":
        return _Words(pieces, has_joiners=tokenizer.config.segmentation == "words")
    return _Bytes(pieces)


class _Words:
    """Words with spaces between them, unless a mark touches its neighbour. A place is whether nothing is to stand
    before the next word: no space at the start, nor after a mark that touches what follows."""

    def __init__(self, pieces: Sequence[str], *, has_joiners: bool) -> None:
        self._pieces = [UNKNOWN_SIGN if number == UNKNOWN else piece for number, piece in enumerate(pieces)]
        self._has_joiners = has_joiners

    def begin(self) -> bool:
        return True

    def middle(self) -> bool:
        return False

    def after(self, place: bool, symbol: int) -> tuple[str, bool]:
        if symbol < UNKNOWN:
            return "", place
        word = self._pieces[symbol]
        if not self._has_joiners:
            return (word if place else f" {word}"), False
        core = word.removeprefix(JOINER)
        space = "" if place or len(core) < len(word) else " "
        return space + core.removesuffix(JOINER).replace("\x1a", JOINER), core.endswith(JOINER)

    def rest(self, place: bool) -> str:  # noqa: ARG002 - words are never left half written
        return ""


class _Bytes:
    """Pieces in UTF-8, one after the other. A place is the bytes that are no whole character yet."""

    def __init__(self, pieces: Sequence[str]) -> None:
        spelled = {piece: bytes([byte]) for byte, piece in enumerate(BYTE_PIECES)}
        self._bytes = [spelled.get(piece) or piece.encode("utf-8") for piece in pieces]
        self._bytes[: len(RESERVED)] = [b""] * len(RESERVED)
        self._bytes[UNKNOWN] = UNKNOWN_SIGN.encode("utf-8")
        self._alone = [self._read(each) for each in self._bytes]
        self._half = next((rest for _, rest in self._alone if rest), b"")

    def begin(self) -> bytes:
        return b""

    def middle(self) -> bytes:
        return self._half

    def after(self, place: bytes, symbol: int) -> tuple[str, bytes]:
        return self._read(place + self._bytes[symbol]) if place else self._alone[symbol]

    def rest(self, place: bytes) -> str:
        return place.decode("utf-8", errors="replace")

    @staticmethod
    def _read(content: bytes) -> tuple[str, bytes]:
        # What can still become a character is left for the next symbol; what cannot becomes U+FFFD.
        text, read = codecs.utf_8_decode(content, "replace", False)
        return show_spaces(text, has_start=False), content[read:]
