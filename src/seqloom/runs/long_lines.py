"""Long lines: a line that exceeds the model's limit is split, translated in parts and joined again.

sentences    every sentence end is a border
clauses      a sentence that is too long is split at commas and colons, as many clauses to a part as fit
words        a clause that is too long is split at spaces, likewise
characters   only a word that is too long by itself is broken
"""

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from seqloom.core.symbols import END
from seqloom.search.settings import Split
from seqloom.text.marks import UNSPACED
from seqloom.text.normalise import collapse_spaces, is_blank
from seqloom.text.sentences import clause_borders, pieces, sentence_borders
from seqloom.text.tokenizer import Tokenizer

_is_unspaced = re.compile(f"[{UNSPACED}]").match
# Thai and its neighbours have no space between words, but one between sentences.
_is_tight = re.compile(
    r"[\u2e80-\u312f\u31a0-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff00-\uff9f\U00020000-\U0003ffff]"
).match


@dataclass(frozen=True)
class Part:
    """A line, or a part of a line that is too long for the model."""

    line: int
    text: str
    ids: list[int]
    """Its source symbols, END included."""
    key: int
    """Seeds its random draws, so that they do not depend on what is translated with it."""
    is_inside_word: bool = False
    """Whether it continues the last word of the part before it."""

    @property
    def number(self) -> int:
        """The number of its line in the whole text, counted from 1."""
        return self.key // KEYS_PER_LINE + 1

    @property
    def is_first(self) -> bool:
        """Whether its line begins with it."""
        return self.key % KEYS_PER_LINE == 0


KEYS_PER_LINE = 2**32
"""Keys for the parts of one line: more than it can have."""


@dataclass(frozen=True)
class Piece:
    """A piece of a text, and whether it begins inside a word."""

    text: str
    is_inside_word: bool = False


def make_parts(
    lines: Sequence[str], tokenizer: Tokenizer, *, limit: int, split: Split = "long", first: int = 0
) -> list[Part]:
    """The parts of all lines that are not blank, at most `limit` symbols each, END included.

    Lines are numbered from `first` in keys and messages.
    """
    visible = [number for number, line in enumerate(lines) if not is_blank(line)]
    encoded = tokenizer.encode_many([lines[number] for number in visible])
    parts: list[Part] = []
    for number, ids in zip(visible, encoded, strict=True):
        text, key = lines[number], (first + number) * KEYS_PER_LINE
        found: list[Piece] = []
        if len(ids) >= limit or split == "sentences":
            cut_up = cut(collapse_spaces(text), lambda piece: len(tokenizer.encode(piece)) < limit)
            found = [piece for piece in cut_up if not is_blank(piece.text)]
        if len(found) <= 1:
            parts.append(Part(number, text, [*ids, END], key))
            continue
        for at, piece in enumerate(found):
            ids = [*tokenizer.encode(piece.text), END]
            parts.append(Part(number, piece.text, ids, key + at, piece.is_inside_word))
    return parts


# --- cutting ----------------------------------------------------------------------------------------------------------

Borders = Callable[[str], list[int]]


def cut(text: str, fits: Callable[[str], bool]) -> list[Piece]:
    """The sentences of a text, and finer pieces of those that do not fit."""
    return [
        piece
        for sentence in pieces(text, sentence_borders(text))
        for piece in _finer(sentence, fits, [clause_borders, _space_borders, _letter_borders])
    ]


def _finer(text: str, fits: Callable[[str], bool], ways: Sequence[Borders]) -> Iterator[Piece]:
    """As few pieces as fit, cut the first way; those that do not fit are cut the next one."""
    if fits(text) or not ways:
        yield Piece(text)
        return
    borders = [*ways[0](text), len(text)]
    begin = done = 0
    while done < len(borders):
        done = _farthest(lambda end: fits(text[begin : borders[end]]), done, len(borders))  # noqa: B023 - used at once
        piece = text[begin : borders[done - 1]]
        is_inside_word = ways[0] is _letter_borders and begin > 0 and not _touches_unspaced(text, begin)
        for at, finer in enumerate(_finer(piece.strip(), fits, ways[1:])):
            yield Piece(finer.text, is_inside_word) if at == 0 else finer
        begin = borders[done - 1]


def _farthest(fits: Callable[[int], bool], first: int, end: int) -> int:
    """How many borders are passed at most: the first in any case, then as many as fit.

    Found by steps that double and then halve, so that a line of a million words is not measured a million times.
    """
    last, step = first, 1  # the last border that is passed
    while last + step < end and fits(last + step):
        last, step = last + step, 2 * step
    while step > 1:
        step //= 2
        if last + step < end and fits(last + step):
            last += step
    return last + 1


def _space_borders(text: str) -> list[int]:
    return [match.end() for match in re.finditer(r"\s+", text)]


def _letter_borders(text: str) -> list[int]:
    """Before each character that does not belong to the one before it."""
    return [
        at
        for at in range(1, len(text))
        if unicodedata.category(text[at])[0] != "M" and "\u200d" not in text[at - 1 : at + 1]
    ]


def _touches_unspaced(text: str, place: int) -> bool:
    """Whether a script without spaces between words is on either side of a place."""
    return bool(_is_unspaced(text[place - 1]) or _is_unspaced(text[place]))


# --- joining ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Joined:
    """Joined texts, and where each of them begins."""

    text: str
    starts: tuple[int, ...]


def join(texts: Sequence[str], *, inside_word: Sequence[bool]) -> Joined:
    """Translations of the parts of a line as one line: with spaces between them where their script has any.

    `inside_word` says of each part whether it continues a word.
    """
    whole, starts = "", []
    for text, is_continued in zip(texts, inside_word, strict=True):
        is_touching = is_continued or not whole or not text or _is_tight(whole[-1]) or _is_tight(text[0])
        whole += "" if is_touching else " "
        starts.append(len(whole))
        whole += text
    return Joined(whole, tuple(starts))
