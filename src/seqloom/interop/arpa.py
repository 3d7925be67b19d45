r"""ARPA files: n-gram models as text, read and written by KenLM, SRILM and many others.

    \data\
    ngram 1=3
    ngram 2=2

    \1-grams:
    -0.5<tab>word<tab>-0.3          log10 P, the words, log10 of the back-off weight (0 if it is left out)
    …
    \end\
"""

import gzip
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from io import TextIOWrapper
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from jaxtyping import Float64, Int32, Int64

from seqloom.classical.ngram import (
    FNV_BASIS,
    MAX_BACKOFF,
    MAX_ORDER,
    Layer,
    NGram,
    WordTable,
    build_trie,
    find_word,
    hash_byte,
)
from seqloom.classical.ngram_counts import Array
from seqloom.core.errors import DataError, Problem
from seqloom.core.files import open_output, require_file
from seqloom.core.jit import compiled
from seqloom.core.symbols import BEGIN, END, PAD, RESERVED, UNKNOWN
from seqloom.core.text_files import is_compressed, read_whole

# The lines of an ARPA file, compiled: numbers and words straight from bytes, since a model has millions of lines.

BAD_NUMBER, UNKNOWN_WORD, TOO_FEW_WORDS, TOO_MUCH, POSITIVE, TOO_HIGH = 1, 2, 3, 4, 5, 6
"""Problems of a line."""

MIN_LOG = -1e30
"""A logarithm below is read as that of 0."""

_TAB, _LF, _RETURN, _SPACE = 9, 10, 13, 32
_PLUS, _MINUS, _POINT, _ZERO, _NINE = 43, 45, 46, 48, 57
_BACKSLASH = 92


@compiled()
def is_blank(byte: int) -> bool:
    """Whether a byte separates words; a line feed does not."""
    return byte in (_SPACE, _TAB, _RETURN)


@compiled()
def read_number(text: Array, begin: int, end: int) -> Any:
    """The decimal number between two places; NaN if it is not a number."""
    place, sign, digits, shift, mantissa = begin, 1.0, 0, 0, 0.0
    if place < end and (text[place] == _MINUS or text[place] == _PLUS):
        sign = -1.0 if text[place] == _MINUS else 1.0
        place += 1
    after_point = False
    while place < end and (_ZERO <= text[place] <= _NINE or (text[place] == _POINT and not after_point)):
        if text[place] == _POINT:
            after_point = True
        else:
            mantissa = mantissa * 10.0 + (text[place] - _ZERO)
            digits += 1
            shift += 1 if after_point else 0
        place += 1
    exponent = 0
    if digits and place < end and (text[place] == 101 or text[place] == 69):  # e or E
        place += 1
        exponent_sign = 1
        if place < end and (text[place] == _MINUS or text[place] == _PLUS):
            exponent_sign = -1 if text[place] == _MINUS else 1
            place += 1
        begin_of_exponent = place
        while place < end and _ZERO <= text[place] <= _NINE and exponent < 1000:
            exponent = exponent * 10 + (text[place] - _ZERO)
            place += 1
        exponent *= exponent_sign
        digits = digits if place > begin_of_exponent else 0
    if digits == 0 or place != end:
        return np.nan
    power = exponent - shift
    # Up to 10²² powers of ten are exact, so this is the nearest number for what such files hold.
    number = sign * (mantissa * 10.0**power if power >= 0 else mantissa / 10.0**-power)
    return number if number > MIN_LOG or np.isnan(number) else -np.inf


@compiled()
def read_section(
    text: Array, place: int, table: WordTable, ids: Array, log_probs: Array, backoffs: Array
) -> tuple[int, int, int]:
    """Read the n-grams of one length up to a blank line or a backslash: rows read, place reached, problem.

    The place is where the first line begins that was not read. Each n-gram has as many words as `ids` has columns.
    """
    rows = 0
    while place < len(text) and rows < len(ids):
        begin, field = place, 0
        if text[begin] == _BACKSLASH:
            return rows, begin, 0
        while place < len(text) and text[place] != _LF:
            if is_blank(text[place]):
                place += 1
                continue
            start, value = place, FNV_BASIS
            while place < len(text) and text[place] != _LF and not is_blank(text[place]):
                value = hash_byte(value, text[place])
                place += 1
            if 0 < field <= ids.shape[1]:
                word = find_word(text, start, place, value, table)
                ids[rows, field - 1] = word
                problem = 0 if word > 0 else UNKNOWN_WORD
            elif field > ids.shape[1] + 1:
                problem = TOO_MUCH
            else:
                number = read_number(text, start, place)
                if field == 0:
                    log_probs[rows] = number
                    problem = POSITIVE if number > 0 else 0
                else:
                    backoffs[rows] = number
                    problem = TOO_HIGH if number > MAX_BACKOFF else 0
                problem = BAD_NUMBER if np.isnan(number) else problem
            if problem:
                return rows, begin, problem
            field += 1
        place += 1
        if field == 0:
            return rows, begin, 0
        if field <= ids.shape[1]:
            return rows, begin, TOO_FEW_WORDS
        rows += 1
    return rows, place, 0


MISSING = -100.0
"""log10 P of <unk> where a file does not list it; KenLM takes the same."""

CAPITALS = "<UNK>"
"""The unknown word as some write it."""

IMPOSSIBLE = -99.0
"""How a logarithm of 0 is written."""

_WRITTEN_AT_ONCE = 1 << 16
_DATA = re.compile(rb"^(\xef\xbb\xbf)?\\data\\[ \t\r]*$", re.MULTILINE)  # perhaps after a byte-order mark
_ENTRY = re.compile(rb"ngram\s+(\d{1,18})\s*=\s*(\d{1,18})")
_PROBLEMS = {
    BAD_NUMBER: "a number is required at the beginning and allowed at the end",
    UNKNOWN_WORD: "it contains a word that is not among the 1-grams",
    TOO_FEW_WORDS: "it has too few words",
    TOO_MUCH: "something follows the back-off weight",
    POSITIVE: "a logarithm of a probability is at most 0",
    TOO_HIGH: f"a logarithm of a back-off weight is at most {MAX_BACKOFF:g}",
}


@dataclass(frozen=True, eq=False)
class Section:
    """The n-grams of one length, in the order of the file. A log_prob of NaN is still to be found by backing off."""

    ids: Int32[np.ndarray, "grams length"]
    log_probs: Float64[np.ndarray, " grams"]
    backoffs: Float64[np.ndarray, " grams"]


# --- reading ---------------------------------------------------------------------------------------------------------


def read_arpa(path: Path) -> NGram:
    """The model in an ARPA file, `.gz`, `.xz` and `.zst` too; its vocabulary comes after the reserved symbols.

    Where an n-gram is listed and one that begins or ends it is not, the latter gets the probability that backing off
    gives it, which changes no answer.
    """
    require_file(path)
    content = read_whole(path, largest=sys.maxsize) if is_compressed(path) else path.read_bytes()
    reader = _Reader(path, content)
    sizes = reader.read_header()
    vocabulary, words = reader.read_words(sizes[0])
    table = WordTable.of([reader.unknown if id == UNKNOWN else word for id, word in enumerate(vocabulary)])
    sections = [words, *(reader.read_section(length, size, table) for length, size in enumerate(sizes[1:], 2))]
    reader.expect(b"\\end\\")
    layers = None
    while layers is None:
        layers = _layers(sections, vocabulary, path)
    return NGram(*build_trie(layers), vocabulary)


class _Reader:
    """Reads a file from front to back and knows its position."""

    def __init__(self, path: Path, content: bytes) -> None:
        self._path, self._content, self._place = path, content, 0
        self._array = np.frombuffer(content, np.uint8)
        self.unknown = RESERVED[UNKNOWN]
        """How the file writes the unknown word."""

    def read_header(self) -> list[int]:
        r"""The number of n-grams of each length; anything may come before \data\."""
        found = _DATA.search(self._content)
        if found is None:
            raise DataError(f"{self._path}: no line \\data\\ found; this is not an ARPA file")
        self._place = found.end() + 1
        sizes: list[int] = []
        while line := self._next_line().strip():
            entry = _ENTRY.fullmatch(line)
            if entry is None or int(entry[1]) != len(sizes) + 1:
                self._fail(f"{_shown(line)} is not of the form 'ngram {len(sizes) + 1}=count'")
            sizes.append(int(entry[2]))
        if not 1 <= len(sizes) <= MAX_ORDER:
            self._fail(f"the header lists {len(sizes)} lengths of n-grams; from 1 to {MAX_ORDER} can be read")
        if sum(sizes) > len(self._content):
            self._fail(f"the header declares {sum(sizes):,} n-grams, but the file has {len(self._content):,} bytes")
        return sizes

    def read_words(self, size: int) -> tuple[list[str], Section]:
        """The vocabulary with the reserved symbols first, and what the file says of each word."""
        self.expect(b"\\1-grams:")
        ids = {name: id for id, name in enumerate(RESERVED)}
        ids[CAPITALS] = UNKNOWN
        log_probs, backoffs = [-np.inf, -np.inf, -np.inf, MISSING], [0.0] * len(RESERVED)
        listed: set[int] = set()
        for _ in range(size):
            fields = self._next_line().split()
            if len(fields) not in (2, 3):
                self._fail(f"a 1-gram is a number, a word and perhaps a number, but this line has {len(fields)} fields")
            written = (fields[0], *fields[2:])
            numbers = [float(read_number(np.frombuffer(each, np.uint8), 0, len(each))) for each in written]
            for each, number in zip(written, numbers, strict=True):
                if np.isnan(number):
                    self._fail(f"{_shown(each)} is not a number")
            if numbers[0] > 0:
                self._fail(f"{_shown(fields[0])}: {_PROBLEMS[POSITIVE]}")
            if len(numbers) > 1 and numbers[1] > MAX_BACKOFF:
                self._fail(f"{_shown(fields[2])}: {_PROBLEMS[TOO_HIGH]}")
            try:
                word = fields[1].decode("utf-8")
            except UnicodeDecodeError:
                self._fail(f"the word {fields[1][:40]!r} is not UTF-8; convert the file")
            if word == RESERVED[PAD]:
                self._fail(f"{word} fills up rows here and cannot be a word; leave it out, or write it otherwise")
            id = ids.setdefault(word, len(log_probs))
            self.unknown = word if id == UNKNOWN else self.unknown
            if id in listed:
                self._fail(f"the word {_shown(fields[1])} is listed twice")
            listed.add(id)
            if id == len(log_probs):
                log_probs.append(0.0)
                backoffs.append(0.0)
            log_probs[id] = numbers[0] if id != BEGIN else -np.inf
            backoffs[id] = numbers[1] if len(numbers) > 1 else 0.0
        for id in (BEGIN, END):
            if id not in listed:
                self._fail(f"the 1-grams lack {RESERVED[id]}, without which no sentence can {('begin', 'end')[id - 1]}")
        del ids[CAPITALS]
        column = np.arange(len(log_probs), dtype=np.int32)[:, None]
        return list(ids), Section(column, np.array(log_probs), np.array(backoffs))

    def read_section(self, length: int, size: int, table: WordTable) -> Section:
        """The n-grams of one length."""
        self.expect(b"\\%d-grams:" % length)
        section = Section(np.empty((size, length), np.int32), np.empty(size), np.zeros(size))
        rows, self._place, problem = read_section(
            self._array, self._place, table, section.ids, section.log_probs, section.backoffs
        )
        if problem:
            self._fail(f"a {length}-gram cannot be read: {_PROBLEMS[problem]}", behind=False)
        if rows < size:
            self._fail(f"{rows:,} {length}-grams end here, but the header declares {size:,}", behind=False)
        return section

    def expect(self, title: bytes) -> None:
        """Skip blank lines and the line after them, which must be this one."""
        line = b""
        while not line and self._place < len(self._content):
            line = self._next_line().strip()
        if line != title:
            found = _shown(line) if line else "the end of the file"
            self._fail(f"expected {title.decode()}, found {found}; the file may be truncated or damaged")

    def _next_line(self) -> bytes:
        end = self._content.find(b"\n", self._place)
        end = len(self._content) if end < 0 else end
        line = self._content[self._place : end]
        self._place = end + 1
        return line

    def _fail(self, message: str, *, behind: bool = True) -> NoReturn:
        """Report a problem in the line before the place reached, or in the line that begins there."""
        line = self._content.count(b"\n", 0, min(self._place, len(self._content))) + (not behind)
        raise DataError(problems=[Problem(message, str(self._path), max(1, line))])


def _shown(text: bytes) -> str:
    return repr(text[:40].decode("utf-8", errors="replace"))


# --- from lines to layers --------------------------------------------------------------------------------------------


def _layers(sections: list[Section], vocabulary: Sequence[str], path: Path) -> list[Layer] | None:
    """The sections in lexicographic order, numbered; None where n-grams had to be added to one of them first.

    The key of an n-gram is (number of its context) · symbols + its last word. Keys rise with the numbers, so an n-gram
    is found by looking up the keys of its beginnings, word by word.
    """
    words, none, symbols = sections[0], np.zeros(len(sections[0].ids), np.int64), len(vocabulary)
    layers = [Layer(none, words.ids[:, 0], words.log_probs, words.backoffs, none)]
    known: list[Int64[np.ndarray, " keys"]] = []  # the keys of each layer from the second on
    for at, section in enumerate(sections[1:]):
        numbers = []
        for side in (section.ids[:, :-1], section.ids[:, 1:]):
            found = side[:, 0].astype(np.int64)
            for keys, word in zip(known, side.T[1:], strict=True):
                wanted = found * symbols + word
                found = np.searchsorted(keys, wanted)
                found[keys[found] != wanted] = -1
            if (found < 0).any():
                sections[at] = _with_more(sections[at], side[found < 0])
                return None
            numbers.append(found)
        keys = numbers[0] * symbols + section.ids[:, -1]
        order = np.argsort(keys)
        keys, ids = keys[order], section.ids[order]
        if (twice := np.flatnonzero(np.diff(keys) == 0)).size:
            gram = " ".join(vocabulary[id] for id in ids[twice[0]])
            raise DataError(f"{path}: the {ids.shape[1]}-gram {gram!r} is listed twice; leave one of them out")
        known.append(np.append(keys, np.iinfo(np.int64).max))  # what is past the last key is not found
        contexts, suffixes = (each[order] for each in numbers)
        log_probs, lower = section.log_probs[order], layers[-1]
        backed_off = lower.backoffs[contexts] + lower.log_probs[suffixes]
        log_probs = np.where(np.isnan(log_probs), backed_off, log_probs)
        layers.append(Layer(contexts, np.ascontiguousarray(ids[:, -1]), log_probs, section.backoffs[order], suffixes))
    return layers


def _with_more(section: Section, ids: Int32[np.ndarray, "more length"]) -> Section:
    """The section with n-grams that others need; their probability is to be found."""
    more = np.unique(ids, axis=0)
    return replace(
        section,
        ids=np.concatenate([section.ids, more]),
        log_probs=np.append(section.log_probs, np.full(len(more), np.nan)),
        backoffs=np.append(section.backoffs, np.zeros(len(more))),
    )


# --- writing ---------------------------------------------------------------------------------------------------------


def write_arpa(model: NGram, path: Path) -> None:
    """Write a model so that it reads back equal; gzipped, if the name ends in `.gz`."""
    _require_writable(model.vocabulary)
    with open_output(path) as file:
        if path.suffix != ".gz":
            _write(model, file)
            return
        with gzip.GzipFile("", "wb", fileobj=file.buffer, mtime=0) as packed, TextIOWrapper(packed, "utf-8") as text:
            _write(model, text)


def _require_writable(vocabulary: Sequence[str]) -> None:
    """Refuse words that would be read back as several, or as a symbol that they are not."""
    for id, word in enumerate(vocabulary):
        if word.encode().split() != [word.encode()]:
            raise DataError(f"symbol {id}, {word!r}, cannot be written to an ARPA file, where words hold no spaces")
        if id < len(RESERVED):
            continue
        if word in (RESERVED[UNKNOWN], CAPITALS):
            raise DataError(
                f"symbol {id}, {word!r}, is a word of the text beside the unknown symbol of the model, and an ARPA "
                f"file cannot hold both; train with 'text.unknown_word={word}', which reads it as that symbol"
            )
        if word in RESERVED:
            raise DataError(
                f"symbol {id}, {word!r}, is a word of the text, and an ARPA file would give it for the symbol of the "
                "model that is written so; write it otherwise in the training text"
            )


def _write(model: NGram, file: TextIOWrapper) -> None:
    sizes, nodes = model.sizes(), model.trie.nodes
    file.write("\\data\\\n")
    for length, size in enumerate([sizes[0] - 1, *sizes[1:]], 1):  # padding is not a word
        file.write(f"ngram {length}={size}\n")
    first, ids = nodes["first"].astype(np.int64), np.arange(model.symbols, dtype=np.int32)[:, None]
    for length, (begin, end) in enumerate(pairwise(model.borders), 1):
        file.write(f"\n\\{length}-grams:\n")
        if length > 1:
            children = np.diff(first[model.borders[length - 2] : begin + 1])
            ids = np.column_stack([np.repeat(ids, children, axis=0), nodes["word"][begin:end]])  # [grams, length]
        for start in range(PAD + 1 if length == 1 else 0, len(ids), _WRITTEN_AT_ONCE):
            part = ids[start : start + _WRITTEN_AT_ONCE]
            found = nodes[begin + start : begin + start + len(part)]
            # Nine digits distinguish each single-precision number from its neighbours.
            log_probs, backoffs = (np.maximum(found[name], IMPOSSIBLE).tolist() for name in ("log_prob", "backoff"))
            for row, log_prob, backoff in zip(part.tolist(), log_probs, backoffs, strict=True):
                words = " ".join([model.vocabulary[id] for id in row])
                last = f"\t{backoff:.9g}" if length < model.order else ""
                file.write(f"{log_prob:.9g}\t{words}{last}\n")
    file.write("\n\\end\\\n")
