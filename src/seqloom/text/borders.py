"""Borders of words: between which characters of a text a word or phrase may begin or end."""

import re
import unicodedata
from functools import lru_cache
from typing import NamedTuple

from seqloom.text.marks import UNSPACED

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
    # The zero-width joiners stand inside words of Persian and of Indian languages.
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
