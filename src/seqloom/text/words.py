"""Words of a text and pieces of a tokeniser, each with its place: the units of alignments and tags.

A word is what `split_words` calls one, a mark among them; in scripts without spaces between words, each character with
its combining marks is a word.
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from seqloom.core.symbols import UNKNOWN
from seqloom.text.marks import BYTE_PIECES, JOINER, UNSPACED, mark_spaces, parts_characters, split_words
from seqloom.text.tokenizer import Tokenizer, word_cutter

# Borders of words: between which characters of a text a word or phrase may begin or end.

_is_unspaced = re.compile(f"[{UNSPACED}]").match


class Sort(NamedTuple):
    """What a character is, as far as borders hang on it."""

    is_space: bool
    """White space, or a control character, which decoding makes a space."""
    is_attached: bool
    """A combining mark, which belongs to the character before it."""
    is_in_word: bool
    is_unspaced: bool
    """Of a script that puts no space between words."""


SPACE_SORT = Sort(is_space=True, is_attached=False, is_in_word=False, is_unspaced=False)
LETTER_SORT = Sort(is_space=False, is_attached=False, is_in_word=True, is_unspaced=False)


@lru_cache(maxsize=1 << 16)
def sort_of(character: str) -> Sort:
    """What a character is."""
    category = unicodedata.category(character)
    if character.isspace() or category == "Cc":
        return SPACE_SORT
    # The zero-width joiners occur inside words of Persian and of Indian languages.
    is_in_word = category[0] in "LMN" or character in "\u200c\u200d"
    return Sort(False, category[0] == "M", is_in_word, bool(_is_unspaced(character)))


def is_border(before: Sort | None, after: Sort | None) -> bool:
    """Whether a word or phrase may begin or end between two characters; None is the start or the end of the text.

    Between two characters of a word there is no border, except in scripts without spaces between words, where one lies
    between any two characters; but never before a combining mark.
    """
    if before is None or after is None:
        return True
    if after.is_attached:
        return False
    return not (before.is_in_word and after.is_in_word) or before.is_unspaced or after.is_unspaced


def stands_between_borders(text: str, start: int, end: int) -> bool:
    """Whether a part of a text neither begins nor ends within a word."""
    return _is_border_at(text, start) and _is_border_at(text, end)


def _is_border_at(text: str, place: int) -> bool:
    return place in (0, len(text)) or is_border(sort_of(text[place - 1]), sort_of(text[place]))


Span = tuple[int, int]
"""Where something begins in a text, and where it has ended."""

_byte_of = {piece: byte for byte, piece in enumerate(BYTE_PIECES)}


def word_spans(text: str) -> list[Span]:
    """The places of the words of a text."""
    spans: list[Span] = []
    for begin, end in _spans(text, split_words(text)):
        if sort_of(text[begin]).is_space:  # in the texts of published models, which are not normalised
            continue
        borders = [at for at in range(begin + 1, end) if parts_characters(text[at - 1], text[at])]
        spans += zip([begin, *borders], [*borders, end], strict=True)
    return spans


def piece_spans(tokenizer: Tokenizer, text: str) -> list[Span]:
    """The places of the pieces into which a normalised text is cut, spaces before them included."""
    if tokenizer.kind == "word":
        return _spans(text, word_cutter(tokenizer.config.segmentation)(text))
    if tokenizer.published is not None:
        return [(piece.begin, piece.end) for piece in tokenizer.published.spans(text)]
    marked = mark_spaces(text, has_start=tokenizer.kind != "char")
    shift = len(marked) - len(text)
    spans: list[Span] = []
    place = unknown = 0
    for number in tokenizer.encode(text):
        if number == UNKNOWN:
            unknown += 1
            continue
        piece = tokenizer.piece(number)
        if unknown:
            # What is unknown holds no character of a known piece, so the next one found is the right one.
            place = _fill(spans, place, marked.find(piece, place + unknown), unknown)
            unknown = 0
        byte = _byte_of.get(piece) if tokenizer.config.byte_fallback else None
        if byte is not None and byte & 0xC0 == 0x80:  # a later byte of the character before
            spans.append((place - 1, place))
            continue
        length = 1 if byte is not None else len(piece)
        spans.append((place, place + length))
        place += length
    _fill(spans, place, len(marked), unknown)
    return [(max(0, begin - shift), max(0, end - shift)) for begin, end in spans]


def decoded_spans(tokenizer: Tokenizer, ids: Sequence[int]) -> list[Span]:
    """The places of symbols in the text that they are decoded to, whatever a model put together."""
    whole, ends = len(tokenizer.decode(ids)), [0]
    for count in range(1, len(ids) + 1):
        ends.append(min(whole, max(ends[-1], len(tokenizer.decode(ids[:count])))))
    # The later bytes of a character, and invisible characters, belong to what precedes them.
    return [(begin if begin < end else max(0, end - 1), end) for begin, end in pairwise(ends)]


def _spans(text: str, words: Sequence[str]) -> list[Span]:
    spans, place = [], 0
    text = text.replace("\x1a", JOINER)  # which `split_words` uses as well; no normalised text has it
    for word in words:
        core = word.removeprefix(JOINER).removesuffix(JOINER).replace("\x1a", JOINER) if word != JOINER else word
        begin = text.index(core, place)
        place = begin + len(core)
        spans.append((begin, place))
    return spans


def _fill(spans: list[Span], place: int, end: int, unknown: int) -> int:
    """A character for each unknown piece, and the rest for the last; where they end."""
    for left in range(unknown, 0, -1):
        stop = end if left == 1 else place + 1
        spans.append((place, stop))
        place = stop
    return place
