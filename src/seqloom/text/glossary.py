"""Glossaries: how terms of the source are to be translated.

    # a comment, and a blank line

    fire engine<TAB>Feuerwehrauto
    dog<TAB>Hund

UTF-8, a pair per line, a tab between the terms. A line that begins with # is a comment.
"""

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from seqloom.core.arguments import as_text, require_instance, shown
from seqloom.core.errors import DataError, Problems, UsageError
from seqloom.core.files import read_lines
from seqloom.core.symbols import UNKNOWN
from seqloom.text.marks import SPACE
from seqloom.text.normalise import Normaliser
from seqloom.text.tokenizer import Tokenizer
from seqloom.text.words import sort_of, stands_between_borders

Pair = tuple[str, str]
"""A term of the source and its translation."""


@dataclass(frozen=True)
class Glossary:
    """Terms of the source with their translations. Of a source term that is given twice, the last pair counts."""

    terms: tuple[Pair, ...]
    ignores_case: bool = False
    """Whether terms are found in the source however they are capitalised. Translations are not changed."""

    def __post_init__(self) -> None:
        require_instance(self.terms, "terms", (tuple, list), what="a tuple of pairs, such as (('dog', 'Hund'),)")
        for pair in self.terms:
            require_instance(pair, "each of terms", (tuple, list), what="a pair of text, such as ('dog', 'Hund')")
            if len(pair) != 2:
                raise UsageError(f"each of terms must be a pair of text, such as ('dog', 'Hund'); got {shown(pair)}")
            source, target = (as_text(term, "a term") for term in pair)
            if not (Normaliser()(source) and Normaliser()(target)):
                raise DataError(f"a glossary pair has an empty term: {(source, target)}; fill it or leave the pair out")

    def read_by(self, tokenizer: Tokenizer) -> "Glossary":
        """As a model needs it that reads with this tokeniser: where it knows small letters only, case is ignored.

        Of terms that then read the same, the last pair counts. Translations are written as the model writes.
        """
        return replace(self, ignores_case=True) if tokenizer.config.lowercase else self

    def matches(self, line: str) -> list[Pair]:
        """The terms in a line, in the order of their places, a term that occurs twice listed twice.

        Longer terms take their places first, of equally long ones the one further left; places do not overlap. A term
        must be between word boundaries; in scripts without spaces between words it may be anywhere, but
        never before a combining mark, which belongs to its last letter.
        """
        text = _folded(line, self.ignores_case)
        occurrences = (
            (length, start)
            for start in range(len(text))
            for length in self._lengths
            if start + length <= len(text)
            and text[start : start + length] in self._index
            and stands_between_borders(text, start, start + length)
        )
        found: list[tuple[int, int]] = []
        is_taken = [False] * len(text)
        for length, start in sorted(occurrences, key=lambda place: (-place[0], place[1])):
            if not any(is_taken[start : start + length]):
                is_taken[start : start + length] = [True] * length
                found.append((start, length))
        return [self._index[text[start : start + length]] for start, length in sorted(found)]

    def restricted_to(self, lines: Iterable[str]) -> "Glossary":
        """Without the terms that `matches` cannot find in any part of these lines, with or without regard to case.

        Thousands of terms become the few that a line has, which are quickly sent to another process.
        """
        found: set[Pair] = set()
        for line in lines:
            for ignores_case, (index, lengths) in self._searched.items():
                text = _folded(line, ignores_case)
                for start in range(len(text)):
                    for length in (1, *lengths.get(text[start : start + 2], ())):
                        if (pair := index.get(text[start : start + length])) is not None:
                            found.add(pair)
        return replace(self, terms=tuple(pair for pair in self.terms if tuple(pair) in found))

    @cached_property
    def _searched(self) -> dict[bool, tuple[dict[str, Pair], dict[str, list[int]]]]:
        """With and without case: the pair of each term, and the lengths of the terms by their first two characters."""
        tables = {}
        for ignores_case in (False, True):
            index = {_folded(source, ignores_case): (source, target) for source, target in self.terms}
            lengths: dict[str, set[int]] = {}
            for term in index:
                lengths.setdefault(term[:2], set()).add(len(term))
            tables[ignores_case] = (index, {first: sorted(some) for first, some in lengths.items()})
        return tables

    @cached_property
    def _index(self) -> dict[str, Pair]:
        return {_folded(source, self.ignores_case): (source, target) for source, target in self.terms}

    @cached_property
    def _lengths(self) -> list[int]:
        return sorted({len(term) for term in self._index})


def _folded(text: str, ignores_case: bool) -> str:
    """A text in the form in which terms are matched: Unicode form NFC, single spaces, optionally case-folded."""
    normal = Normaliser()(text)
    # A folded letter can fall apart (ŉ), so the form is made again.
    return unicodedata.normalize("NFC", normal.casefold()) if ignores_case else normal


# --- files -----------------------------------------------------------------------------------------------------------


def read_glossary(path: Path, *, ignores_case: bool = False) -> Glossary:
    """Read a glossary file. All lines that are wrong are named, not only the first."""
    normal = Normaliser()
    problems = Problems()
    known: dict[str, tuple[int, str]] = {}  # from a term in the form that is matched to its line and translation
    terms: list[Pair] = []
    for number, line in enumerate(read_lines(path), start=1):
        if line.startswith("#") or not line.strip():
            continue
        cells = [normal(cell) for cell in line.split("\t")]
        message = None
        if len(cells) == 1:
            message = f"{cells[0][:60]!r} has no tab; write the source term, a tab and the target term"
        elif len(cells) > 2:
            message = f"{len(cells)} columns, but a glossary has two: the source term and the target term"
        elif not all(cells):
            side = "source" if not cells[0] else "target"
            message = f"the {side} term is empty; write both terms or leave the line out"
        else:
            first, target = known.setdefault(_folded(cells[0], ignores_case), (number, cells[1]))
            if target != cells[1]:
                message = f"{cells[0]!r} is {cells[1]!r} here, but {target!r} in line {first}; keep one of the two"
            elif first == number:
                terms.append((cells[0], cells[1]))
        if message is not None:
            problems.add(message, path, number)
    problems.require_none()
    return Glossary(tuple(terms), ignores_case)


# --- from terms to ids -----------------------------------------------------------------------------------------------

_LEFT = ("", "a ", "(")
"""What can precede a term and change its pieces: nothing, a space after a word, a mark that touches it."""


def ways_to_write(term: str, tokenizer: Tokenizer) -> list[tuple[int, ...]]:
    """The ids of a term at the start of a text, after a space, and directly after a mark, each way once.

    A way without a space before it is given with one, too, where the vocabulary has a piece for it. The borders
    of words decide which is allowed where (`seqloom.text.spelling`). Ways with unknown pieces are left out; the list is
    empty when there is no other.
    """
    # What a published model normalises by itself shows only in what it writes.
    is_published = tokenizer.kind == "published"
    normal = tokenizer.decode(tokenizer.encode(term)) if is_published else tokenizer.normaliser(term)
    first = sort_of(normal[0]) if normal else None
    if first is None or first.is_attached:  # a combining mark would belong to the character before it
        return []
    ways = []
    for left in _LEFT:
        ids = tuple(tokenizer.encode(left + term))
        borders = (cut for cut in range(len(ids)) if tokenizer.decode(ids[:cut]) == left.strip())
        ways.append(ids[next(borders, len(ids)) :])  # after the ids that spell `left`; none if no border lies there
    if first.is_in_word and not first.is_unspaced:
        bare = [way for way in ways if way and not tokenizer.piece(way[0]).startswith(SPACE)]
        if (space := tokenizer.id_of(SPACE)) is not None:
            ways += [(space, *way) for way in bare]
    unique = dict.fromkeys(way for way in ways if way and UNKNOWN not in way)
    return [way for way in unique if tokenizer.decode(way) == normal]
