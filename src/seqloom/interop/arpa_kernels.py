"""The lines of an ARPA file, compiled: numbers and words straight from bytes, since a model has millions of lines."""

from typing import Any

import numpy as np

from seqloom.classical.ngram_kernels import Array, extend_hash, first_slot
from seqloom.classical.ngram_words import BASIS, WordTable, find_word, hash_byte
from seqloom.core.compiling import compiled

BAD_NUMBER, UNKNOWN_WORD, TOO_FEW_WORDS, TOO_MUCH, POSITIVE, TOO_HIGH = 1, 2, 3, 4, 5, 6
"""What may be wrong with a line."""

LOWEST, HIGHEST_BACKOFF = -1e30, 100.0
"""Below the one a logarithm is that of 0; above the other no smoothing has a back-off weight."""

_TAB, _LF, _RETURN, _SPACE = 9, 10, 13, 32
_PLUS, _MINUS, _POINT, _ZERO, _NINE = 43, 45, 46, 48, 57
_BACKSLASH = 92


@compiled()
def is_blank(byte: int) -> bool:
    """Whether a byte separates words; a line feed does not."""
    return byte in (_SPACE, _TAB, _RETURN)


@compiled()
def read_number(text: Array, begin: int, end: int) -> Any:
    """The decimal number between two places; NaN if there is none."""
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
    return number if number > LOWEST or np.isnan(number) else -np.inf


@compiled()
def keep_number(text: Array, begin: int, end: int, is_first: bool, row: int, log_probs: Array, backoffs: Array) -> int:
    """Write the first or the last number of a line; what was wrong with it."""
    number = read_number(text, begin, end)
    if np.isnan(number):
        return BAD_NUMBER
    if not is_first:
        backoffs[row] = number
        return TOO_HIGH if number > HIGHEST_BACKOFF else 0
    log_probs[row] = number
    return POSITIVE if number > 0 else 0


@compiled()
def read_section(
    text: Array, place: int, table: WordTable, ids: Array, log_probs: Array, backoffs: Array
) -> tuple[int, int, int]:
    """Read the n-grams of one length up to a blank line or a backslash: rows read, place reached, what was wrong.

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
            start, value = place, BASIS
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
    """Where the row stands in a table of known rows, or the empty slot where it would. Slots hold rows plus one."""
    hashed = np.int64(0)
    for column in range(ids.shape[1]):
        hashed = extend_hash(hashed, ids[row, column])
    place = first_slot(hashed, len(slots))
    while slots[place] != 0 and not same_words(ids, row, known, slots[place] - 1):
        place = place + 1 if place + 1 < len(slots) else 0
    return place


@compiled()
def enter_rows(ids: Array, slots: Array) -> int:
    """Fill a table with the rows of a section; the first row that stands there twice, or −1."""
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
