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
from collections.abc import Iterator, Sequence
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
    extend_hash,
    find_word,
    first_slot,
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
def keep_number(text: Array, begin: int, end: int, is_first: bool, row: int, log_probs: Array, backoffs: Array) -> int:
    """Write the first or the last number of a line; returns the problem with it, or 0."""
    number = read_number(text, begin, end)
    if np.isnan(number):
        return BAD_NUMBER
    if not is_first:
        backoffs[row] = number
        return TOO_HIGH if number > MAX_BACKOFF else 0
    log_probs[row] = number
    return POSITIVE if number > 0 else 0


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
            else:
                problem = keep_number(text, start, place, field == 0, rows, log_probs, backoffs)
            if field > ids.shape[1] + 1:
                problem = TOO_MUCH
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


@compiled()
def same_words(one: Array, row: int, other: Array, other_row: int) -> Any:
    """Whether two n-grams are the same."""
    column = 0
    while column < one.shape[1] and one[row, column] == other[other_row, column]:
        column += 1
    return column == one.shape[1]


@compiled()
def slot_of_row(ids: Array, row: int, known: Array, slots: Array) -> Any:
    """The place of the row in a table of known rows, or the empty slot for it. Slots hold rows plus one."""
    hashed = np.int64(0)
    for column in range(ids.shape[1]):
        hashed = extend_hash(hashed, ids[row, column])
    place = first_slot(hashed, len(slots))
    while slots[place] != 0 and not same_words(ids, row, known, slots[place] - 1):
        place = place + 1 if place + 1 < len(slots) else 0
    return place


@compiled()
def enter_rows(ids: Array, slots: Array) -> int:
    """Fill a table with the rows of a section; the first row that occurs twice, or −1."""
    for row in range(len(ids)):
        place = slot_of_row(ids, row, ids, slots)
        if slots[place] != 0:
            return row
        slots[place] = row + 1
    return -1


@compiled()
def find_rows(ids: Array, known: Array, slots: Array, found: Array) -> None:
    """The row of each n-gram among the known ones, −1 where it is not there."""
    for row in range(len(ids)):
        found[row] = slots[slot_of_row(ids, row, known, slots)] - 1


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
    _refuse_twice(layers[-1], sections[-1], vocabulary, path)
    return NGram.from_layers(layers, vocabulary)


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
            numbers = [self._number(field) for field in (fields[0], *fields[2:])]
            if numbers[0] > 0:
                self._fail(f"{_shown(fields[0])}: {_PROBLEMS[POSITIVE]}")
            if len(numbers) > 1 and numbers[1] > MAX_BACKOFF:
                self._fail(f"{_shown(fields[2])}: {_PROBLEMS[TOO_HIGH]}")
            word = self._word(fields[1])
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

    def _number(self, field: bytes) -> float:
        number = read_number(np.frombuffer(field, np.uint8), 0, len(field))
        if np.isnan(number):
            self._fail(f"{_shown(field)} is not a number")
        return float(number)

    def _word(self, field: bytes) -> str:
        try:
            return field.decode("utf-8")
        except UnicodeDecodeError:
            self._fail(f"the word {field[:40]!r} is not UTF-8; convert the file")

    def _fail(self, message: str, *, behind: bool = True) -> NoReturn:
        """Report a problem in the line before the place reached, or in the line that begins there."""
        line = self._content.count(b"\n", 0, min(self._place, len(self._content))) + (not behind)
        raise DataError(problems=[Problem(message, str(self._path), max(1, line))])


def _shown(text: bytes) -> str:
    return repr(text[:40].decode("utf-8", errors="replace"))


# --- from lines to layers --------------------------------------------------------------------------------------------


def _layers(sections: list[Section], vocabulary: Sequence[str], path: Path) -> list[Layer] | None:
    """The sections in lexicographic order, numbered; None where n-grams had to be added to one of them first."""
    words, none = sections[0], np.zeros(len(sections[0].ids), np.int64)
    layers = [Layer(none, words.ids[:, 0], words.log_probs, words.backoffs, none)]
    ranks = np.arange(len(vocabulary))  # of each row of a section in lexicographic order
    for shorter, section in pairwise(sections):
        sides = (section.ids[:, :-1], section.ids[:, 1:])
        numbers = []
        for side, rows in zip(sides, _find(shorter.ids, sides, vocabulary, path), strict=True):
            if (rows < 0).any():
                sections[section.ids.shape[1] - 2] = _with_more(shorter, side[rows < 0])
                return None
            numbers.append(ranks[rows])
        order = np.argsort(numbers[0] * len(vocabulary) + section.ids[:, -1])
        contexts, suffixes = (found[order] for found in numbers)
        log_probs, lower = section.log_probs[order], layers[-1]
        backed_off = lower.backoffs[contexts] + lower.log_probs[suffixes]
        log_probs = np.where(np.isnan(log_probs), backed_off, log_probs)
        last_words = np.ascontiguousarray(section.ids[order, -1])
        layers.append(Layer(contexts, last_words, log_probs, section.backoffs[order], suffixes))
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order))
    return layers


def _find(
    known: Int32[np.ndarray, "known length"],
    sides: Sequence[Int32[np.ndarray, "grams length"]],
    vocabulary: Sequence[str],
    path: Path,
) -> Iterator[Int64[np.ndarray, " grams"]]:
    """The rows of n-grams among the known ones."""
    slots = np.zeros(2 * len(known) + 1, np.int64)
    twice = enter_rows(known, slots)
    if twice >= 0:
        raise _listed_twice(known[twice], vocabulary, path)
    for side in sides:
        rows = np.empty(len(side), np.int64)
        find_rows(side, known, slots, rows)
        yield rows


def _refuse_twice(last: Layer, section: Section, vocabulary: Sequence[str], path: Path) -> None:
    """Refuse duplicates among the longest n-grams, which are not contexts; sorted, they are neighbours."""
    is_twice = (np.diff(last.contexts) == 0) & (np.diff(last.words) == 0)
    if is_twice.any():
        slots = np.zeros(2 * len(section.ids) + 1, np.int64)
        raise _listed_twice(section.ids[enter_rows(section.ids, slots)], vocabulary, path)


def _listed_twice(ids: Int32[np.ndarray, " length"], vocabulary: Sequence[str], path: Path) -> DataError:
    words = " ".join(vocabulary[id] for id in ids)
    return DataError(f"{path}: the {len(ids)}-gram {words!r} is listed twice; leave one of them out")


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
    sizes = model.sizes()
    file.write("\\data\\\n")
    for length, size in enumerate([sizes[0] - 1, *sizes[1:]], 1):  # padding is not a word
        file.write(f"ngram {length}={size}\n")
    for length, (ids, begin) in enumerate(zip(_ids_of_nodes(model), model.borders, strict=False), 1):
        file.write(f"\n\\{length}-grams:\n")
        for start in range(PAD + 1 if length == 1 else 0, len(ids), _WRITTEN_AT_ONCE):
            part = ids[start : start + _WRITTEN_AT_ONCE]
            nodes = model.trie.nodes[begin + start : begin + start + len(part)]
            file.writelines(_lines(part, nodes, model.vocabulary, has_backoff=length < model.order))
    file.write("\n\\end\\\n")


def _ids_of_nodes(model: NGram) -> Iterator[Int32[np.ndarray, "grams length"]]:
    """The words of all n-grams, length by length."""
    ids = np.arange(model.symbols, dtype=np.int32)[:, None]
    yield ids
    first = model.trie.nodes["first"].astype(np.int64)
    for (begin, end), last in zip(pairwise(model.borders), model.borders[2:], strict=False):
        words = model.trie.nodes["word"][end:last]
        ids = np.column_stack([np.repeat(ids, np.diff(first[begin : end + 1]), axis=0), words])
        yield ids


def _lines(
    ids: Int32[np.ndarray, "grams length"], nodes: np.ndarray, vocabulary: Sequence[str], *, has_backoff: bool
) -> Iterator[str]:
    # Nine digits distinguish each single-precision number from its neighbours.
    log_probs = np.maximum(nodes["log_prob"], IMPOSSIBLE).tolist()
    backoffs = np.maximum(nodes["backoff"], IMPOSSIBLE).tolist()
    for row, log_prob, backoff in zip(ids.tolist(), log_probs, backoffs, strict=True):
        words = " ".join([vocabulary[id] for id in row])
        yield f"{log_prob:.9g}\t{words}\t{backoff:.9g}\n" if has_backoff else f"{log_prob:.9g}\t{words}\n"
