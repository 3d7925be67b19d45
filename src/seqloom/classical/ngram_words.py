"""Ids of words straight from the bytes of a text: no Python object is made for a word.

The text is split at spaces and tabs. Each word is hashed byte by byte while it is read (FNV-1a), and compared with the
word at that place of an open table, byte by byte too, so that two words never count as one.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int32, Int64

from seqloom.classical.ngram_kernels import Array, Bits
from seqloom.core.errors import DataError
from seqloom.core.jit import compiled
from seqloom.core.symbols import END, UNKNOWN

_TAB, _LF, _RETURN, _SPACE = 9, 10, 13, 32
BASIS = np.int64(0xCBF29CE484222325 - (1 << 64))
"""Where FNV-1a begins."""


class WordFinder:
    """The words of a vocabulary, ready to be found in text."""

    def __init__(self, vocabulary: Sequence[str]) -> None:
        encoded = [word.encode("utf-8") for word in vocabulary]
        self._bytes = np.frombuffer(b"".join(encoded), np.uint8)
        self._starts = np.cumsum([0, *map(len, encoded)])
        self._slots = np.zeros(1 << (2 * len(encoded)).bit_length(), np.int32)
        enter_words(self.table)

    @property
    def table(self) -> "WordTable":
        """For the compiled loops."""
        return WordTable(self._bytes, self._starts, self._slots)

    def encode(self, lines: Sequence[str]) -> tuple[Int32[np.ndarray, " tokens"], Int64[np.ndarray, " lines"]]:
        """The ids of all lines, each ended by END, and where each line begins. Reserved words in a line are unknown."""
        joined = "".join([f"{line}\n" for line in lines])
        if joined.count("\n") != len(lines):
            bad = next(number for number, line in enumerate(lines, 1) if "\n" in line)
            raise DataError(f"line {bad} holds a line break; give each line by itself")
        text = np.frombuffer(joined.encode("utf-8"), np.uint8)
        ids = np.empty(len(text) // 2 + len(lines) + 1, np.int32)
        starts = np.zeros(len(lines) + 1, np.int64)
        size = encode_bytes(text, self.table, ids, starts)
        return ids[:size], starts[:-1]


class WordTable(NamedTuple):
    """The bytes of all words, where each begins, and the slots of an open table with their ids."""

    words: Array
    starts: Array
    slots: Array


@compiled()
def hash_byte(value: Bits, byte: int) -> Bits:
    """FNV-1a: one byte more."""
    return (value ^ np.int64(byte)) * np.int64(0x100000001B3)


@compiled()
def slot_of(value: Bits, slots: Array) -> Bits:
    """Stirred once more, since the lower bits choose the slot."""
    return (value ^ ((value >> 32) & np.int64(0xFFFFFFFF))) & (len(slots) - 1)


@compiled()
def enter_words(table: WordTable) -> None:
    """Fill the slots; 0 is an empty one, since padding is in no text."""
    mask = len(table.slots) - 1
    for word in range(1, len(table.starts) - 1):
        value = BASIS
        for place in range(table.starts[word], table.starts[word + 1]):
            value = hash_byte(value, table.words[place])
        place = slot_of(value, table.slots)
        while table.slots[place] != 0:
            place = (place + 1) & mask
        table.slots[place] = word


@compiled()
def find_word(text: Array, begin: int, end: int, value: Bits, table: WordTable) -> Any:
    """The id of the word between two places of a text, given its hash; 0 if there is none."""
    mask = len(table.slots) - 1
    place = slot_of(value, table.slots)
    while table.slots[place] != 0:
        word = table.slots[place]
        first = table.starts[word]
        if table.starts[word + 1] - first == end - begin:
            same = True
            for k in range(end - begin):
                if text[begin + k] != table.words[first + k]:
                    same = False
                    break
            if same:
                return word
        place = (place + 1) & mask
    return 0


@compiled()
def encode_bytes(text: Array, table: WordTable, ids: Array, lines: Array) -> int:
    """Write the ids of a text whose lines all end with a line feed, and where each line ends; gives their number."""
    size = line = begin = 0
    is_inside = False
    value = BASIS
    for place in range(len(text)):
        byte = text[place]
        if byte != _SPACE and byte != _LF and byte != _TAB and byte != _RETURN:
            if not is_inside:
                begin, is_inside, value = place, True, BASIS
            value = hash_byte(value, byte)
            continue
        if is_inside:
            word = find_word(text, begin, place, value, table)
            ids[size] = word if word > END else UNKNOWN  # no reserved symbol is written in a text
            size += 1
            is_inside = False
        if byte == _LF:
            ids[size] = END
            size += 1
            line += 1
            lines[line] = size
    return size
