"""Lines that are longer than a model takes: cut where it hurts least, translated in parts, joined to one line again.

sentences    every end of a sentence is a border
clauses      a sentence that is too long goes on at its commas and colons, as many clauses to a part as fit
words        a clause that is too long goes on at its spaces, likewise
characters   only a word that is too long by itself is broken
"""

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from seqloom.apps.request import Wish, by_glossary
from seqloom.core.errors import UsageError
from seqloom.core.symbols import END
from seqloom.search.settings import Split
from seqloom.text.glossary import Glossary
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
    """Tells its random draws from those of others, whatever is translated with it."""
    wish: Wish | None = None
    is_inside_word: bool = False
    """Whether it goes on with the word that the part before it began."""

    @property
    def number(self) -> int:
        """The number of its line in the whole text, counted from 1."""
        return self.key // _PARTS + 1


_PARTS = 2**32
"""Keys for the parts of one line: more than it can have."""


@dataclass(frozen=True)
class Piece:
    """A piece of a text, and whether it begins inside a word."""

    text: str
    is_inside_word: bool = False


def make_parts(
    lines: Sequence[str],
    tokenizer: Tokenizer,
    *,
    limit: int,
    split: Split = "long",
    wishes: Sequence[Wish | None] | None = None,
    glossary: Glossary | None = None,
    first: int = 0,
) -> list[Part]:
    """The parts of all lines that are not blank, at most `limit` symbols each, END included.

    Lines are numbered from `first` in keys and messages. Terms of the glossary are looked for in each part.
    """
    visible = [number for number, line in enumerate(lines) if not is_blank(line)]
    encoded = tokenizer.encode_many([lines[number] for number in visible])
    parts: list[Part] = []
    for number, ids in zip(visible, encoded, strict=True):
        wish = wishes[number] if wishes is not None else None
        whole = Part(number, lines[number], [*ids, END], key=(first + number) * _PARTS, wish=wish)
        some = [whole] if len(ids) < limit and split == "long" else list(_parts_of(whole, tokenizer, limit=limit))
        if len(some) > 1 and wish and (wish.phrases or wish.stops):
            raise UsageError(
                f"line {first + number + 1} has {len(ids)} tokens and is translated in {len(some)} parts; which of "
                "them is to hold a phrase, or to be the last, cannot be told; split the line, or use a glossary"
            )
        parts += some if glossary is None else [replace(p, wish=by_glossary(p.text, glossary, p.wish)) for p in some]
    return parts


def _parts_of(whole: Part, tokenizer: Tokenizer, *, limit: int) -> Iterator[Part]:
    def fits(text: str) -> bool:
        return len(tokenizer.encode(text)) < limit

    found = [piece for piece in cut(collapse_spaces(whole.text), fits) if not is_blank(piece.text)]
    if len(found) <= 1:
        yield whole
        return
    for number, piece in enumerate(found):
        # A prefix is how the first part begins; what is forbidden is forbidden everywhere.
        wish = replace(whole.wish, prefix="") if whole.wish and number else whole.wish
        ids = [*tokenizer.encode(piece.text), END]
        yield Part(whole.line, piece.text, ids, whole.key + number, wish, piece.is_inside_word)


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
    """Whether a script without spaces between words stands on either side of a place."""
    return bool(_is_unspaced(text[place - 1]) or _is_unspaced(text[place]))


# --- joining ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Joined:
    """Texts made one, and where each of them begins in it."""

    text: str
    starts: tuple[int, ...]


def join(texts: Sequence[str], *, inside_word: Sequence[bool]) -> Joined:
    """Translations of the parts of a line as one line: with spaces between them where their script has any.

    `inside_word` says of each part whether it goes on with a word.
    """
    whole, starts = "", []
    for text, goes_on in zip(texts, inside_word, strict=True):
        is_touching = goes_on or not whole or not text or _is_tight(whole[-1]) or _is_tight(text[0])
        whole += "" if is_touching else " "
        starts.append(len(whole))
        whole += text
    return Joined(whole, tuple(starts))
