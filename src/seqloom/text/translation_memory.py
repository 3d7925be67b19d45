"""Translation memories to look lines up in: the translation of the same text, and those of similar ones.

    memory = read_memory([Path("project.tmx")], languages=("en", "de"))
    memory.exact("Save the file.")     'Datei speichern.', or None
    memory.near("Save the files.")     [MemoryMatch(percentage=80, …)]

Two texts are the same if they are equal in Unicode form C with each run of white space as one space; case, punctuation,
tags and placeholders count. How similar they are is the percentage that translators' tools show:

    100 · (1 − d / max(m, n))     d   words to insert, delete or replace to make one text the other (Levenshtein)
                                  m, n   the numbers of their words

rounded down, and 99 at most, since 100 is the same text. A word is a run of letters and digits, a mark, a tag or
placeholder, or in scripts without spaces a character.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int

from seqloom.core.errors import DataError, UsageError
from seqloom.core.files import read_lines, require_file
from seqloom.text.formats.jsonl import JSONL
from seqloom.text.formats.placeholders import find_placeholders
from seqloom.text.formats.po import MO, PO
from seqloom.text.formats.readers import format_of, is_tsv, languages_of, split_rows
from seqloom.text.formats.segments import Languages
from seqloom.text.formats.tmx import TMX, is_language, look_into, read_variants
from seqloom.text.marks import JOINER, UNSPACED, split_words
from seqloom.text.normalise import Normaliser

MIN_PERCENTAGE = 70
"""The least similarity of a match that is shown, unless another is given."""

MAX_MATCHES = 3
"""Near matches of a line that are shown, unless another number is given."""

_FORMATS = (JSONL, MO, PO, TMX)
_normal = Normaliser()
_unspaced = re.compile(f"([{UNSPACED}])")


@dataclass(frozen=True, slots=True)
class MemoryUnit:
    """A text and its translation, with tags and placeholders as they are written in the text."""

    source: str
    target: str
    changed: str = ""
    """When it was last changed, as TMX writes it: `20260131T235959Z`; empty where that is unknown."""
    file: str = ""
    line: int = 0


@dataclass(frozen=True)
class MemoryMatch:
    """A unit that was found for a text; 100 percent is the same text."""

    percentage: int
    unit: MemoryUnit


class TranslationMemory:
    """Units by their sources. Of several translations of one source, the one that was changed last counts.

    Among those without a date, or of the same date, it is the last one.
    """

    def __init__(self, units: Iterable[MemoryUnit]) -> None:
        newest: dict[str, MemoryUnit] = {}
        for unit in units:
            key = _normal(unit.source)
            known = newest.get(key)
            if key and (known is None or unit.changed >= known.changed):
                newest.pop(key, None)  # it takes the place of the new one, not of the old
                newest[key] = unit
        self.units = tuple(newest.values())
        self._numbers = {key: number for number, key in enumerate(newest)}
        self._index = _WordIndex(list(newest))

    def __len__(self) -> int:
        return len(self.units)

    def match(self, text: str) -> MemoryMatch | None:
        """The unit of the same text."""
        number = self._numbers.get(_normal(text))
        return None if number is None else MemoryMatch(100, self.units[number])

    def exact(self, text: str) -> str | None:
        """The translation of the same text, as it is in the memory."""
        match = self.match(text)
        return None if match is None else match.unit.target

    def near(self, text: str, *, least: int = MIN_PERCENTAGE, limit: int = MAX_MATCHES) -> list[MemoryMatch]:
        """The most similar other texts of at least that percentage, best first; of equal ones the last first."""
        if not 1 <= least <= 99:
            raise UsageError(f"{least} is not a percentage of a near match; give 1 to 99")
        key = _normal(text)
        found = self._index.nearest(key, least, limit, without=self._numbers.get(key))
        return [MemoryMatch(percentage, self.units[number]) for percentage, number in found]


class _WordIndex:
    """Finds texts that share words with a given one, among many.

    If c words of two texts are the same, counted as often as they occur in both, d ≥ max(m, n) − c. So a posting list
    for each word (the second "the" of a text is another word than the first) gives a bound on the percentage of every
    text in one pass, and few distances need to be computed.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._words: dict[str, int] = {}
        words: list[int] = []
        lengths: list[int] = []
        repeated: dict[tuple[int, int], int] = {}  # a word and how often it came before in its text, from 1
        places: list[int] = []
        terms: list[int] = []
        for text in texts:
            ids = [self._words.setdefault(word, len(self._words)) for word in words_of_text(text)]
            for place, term in _repetitions(ids):
                places.append(len(words) + place)
                terms.append(repeated.setdefault(term, len(repeated)))
            words += ids
            lengths.append(len(ids))
        self._ids = np.array(words, dtype=np.int32)
        self._lengths = np.array(lengths, dtype=np.int64)
        self._starts = np.concatenate([[0], np.cumsum(self._lengths)])
        # A term is a word, or a repeated one by a number after those of all words.
        self._repeated = {term: number + len(self._words) for term, number in repeated.items()}
        by_term = self._ids.astype(np.int64)
        by_term[places] = np.array(terms, dtype=np.int64) + len(self._words)
        order = np.argsort(by_term, kind="stable")
        self._postings = np.repeat(np.arange(len(texts), dtype=np.int32), self._lengths)[order]
        counts = np.bincount(by_term, minlength=len(self._words) + len(repeated))
        self._posting_starts = np.concatenate([[0], np.cumsum(counts)])

    def nearest(self, text: str, least: int, limit: int, *, without: int | None) -> list[tuple[int, int]]:
        """Percentage and number of the most similar texts, best first; the text `without` is left out."""
        ids = [self._words.get(word, -1) for word in words_of_text(text)]
        again = dict(_repetitions(ids))
        terms = [self._repeated.get(again[at], -1) if at in again else word for at, word in enumerate(ids)]
        terms = [term for term in terms if term >= 0]
        if not terms or limit < 1:
            return []
        bounds = np.minimum(99, 100 * self._shared_words(terms) // np.maximum(self._lengths, len(ids)))
        if without is not None:
            bounds[without] = 0
        candidates = np.flatnonzero(bounds >= least)
        order = candidates[np.lexsort((-candidates, -bounds[candidates]))]
        masks = _word_masks(ids)
        best: list[tuple[int, int]] = []
        for number, bound in zip(order.tolist(), bounds[order].tolist(), strict=True):
            if len(best) == limit and (bound, number) < best[-1]:
                break  # those that follow have no higher bound
            other = self._ids[self._starts[number] : self._starts[number + 1]].tolist()
            longer = max(len(ids), len(other))
            percentage = min(99, 100 * (longer - _distance(masks, len(ids), other)) // longer)
            if percentage >= least:
                best = sorted([*best, (percentage, number)], reverse=True)[:limit]
        return best

    def _shared_words(self, terms: Sequence[int]) -> Int[np.ndarray, " texts"]:
        """How many of these terms each text has."""
        lists = [self._postings[self._posting_starts[term] : self._posting_starts[term + 1]] for term in terms]
        return np.bincount(np.concatenate(lists), minlength=len(self._lengths))


def words_of_text(text: str) -> list[str]:
    """The words of a normalised text."""
    words: list[str] = []
    done = 0
    for each in find_placeholders(text):
        words += _plain_words(text[done : each.start])
        words.append(each.text)
        done = each.end
    return words + _plain_words(text[done:])


def _plain_words(text: str) -> list[str]:
    if not text.isascii():
        text = _unspaced.sub(r" \1 ", text)
    # A mark is the same word whether or not it touches its neighbour.
    return [word.strip(JOINER) or word for word in split_words(" ".join(text.split()))] if text.strip() else []


def _repetitions(ids: Sequence[int]) -> Iterator[tuple[int, tuple[int, int]]]:
    """The places of words that came before, each with the word and how often it did."""
    if len(set(ids)) == len(ids):
        return
    seen: Counter[int] = Counter()
    for place, word in enumerate(ids):
        if seen[word]:
            yield place, (word, seen[word])
        seen[word] += 1


def _word_masks(ids: Sequence[int]) -> dict[int, int]:
    """For each word the places at which it occurs, as bits. Words unknown to the memory equal none of its words."""
    masks: dict[int, int] = {}
    for place, word in enumerate(ids):
        if word >= 0:
            masks[word] = masks.get(word, 0) | 1 << place
    return masks


def _distance(masks: Mapping[int, int], length: int, other: Sequence[int]) -> int:
    """Levenshtein's distance of two word sequences, a column of the table at a time (Myers, 1999; Hyyrö, 2003).

    The differences of neighbouring cells of a column are bits: `rises` has those that are +1, `falls` those that are
    −1. Python's integers have as many bits as the first sequence has words, whose `masks` and `length` are given.
    """
    everything, last = (1 << length) - 1, 1 << (length - 1)
    rises, falls, distance = everything, 0, length
    for word in other:
        equal = masks.get(word, 0)
        vertical = equal | falls
        horizontal = (((equal & rises) + rises) ^ rises) | equal
        up = falls | ~(horizontal | rises) & everything
        down = rises & horizontal
        if up & last:
            distance += 1
        elif down & last:
            distance -= 1
        up = up << 1 | 1
        down <<= 1
        rises = (down | ~(vertical | up)) & everything
        falls = up & vertical & everything
    return distance


# --- files -----------------------------------------------------------------------------------------------------------


def read_memory(paths: Sequence[Path], *, languages: Languages = (None, None)) -> TranslationMemory:
    """Read memories (.tmx), tables (.tsv) or catalogues (.po, .mo, .jsonl) of a language pair, regions left aside.

    Fuzzy translations are left out. A file that holds only other languages is a DataError.
    """
    return TranslationMemory(unit for path in paths for unit in read_units(path, languages=languages))


def read_units(path: Path, *, languages: Languages = (None, None)) -> Iterator[MemoryUnit]:
    """The units of a file in a language pair."""
    require_file(path)
    found = format_of(path, _FORMATS)
    if found is TMX:
        yield from _read_tmx(path, languages)
        return
    if found is None and not is_tsv(path):
        raise UsageError(f"{path} cannot be used as a translation memory; known are .tmx, .tsv, .po, .mo and .jsonl")
    if found is None:
        rows = split_rows(read_lines(path), path)
        units = (MemoryUnit(*row, file=str(path), line=number) for number, row in enumerate(rows, start=1))
        yield from (unit for unit in units if unit.source.strip() and unit.target.strip())
        return
    for side, has, wanted in zip(("sources", "translations"), languages_of(path), languages, strict=True):
        if has and wanted and not is_language(has, wanted):
            raise DataError(f"{path} cannot be used as a memory: its {side} are in {has!r}, not in {wanted!r}")
    for pair in found.pairs(path, languages, "utf-8"):
        if pair is not None:
            yield MemoryUnit(pair.source, pair.target, file=str(path), line=pair.line)


def _read_tmx(path: Path, languages: Languages) -> Iterator[MemoryUnit]:
    known = look_into(path).languages
    if None in languages and len(known) > 2:
        raise UsageError(
            f"{path} holds texts in {', '.join(known[:-1])} and {known[-1]}, and the model does not name its "
            "languages; use a memory of two languages"
        )
    units = pairs = 0
    for source, target, line in read_variants(path, languages=languages, with_codes=True):
        units += 1
        pairs += source is not None and target is not None
        if source and target and source.text.strip() and target.text.strip():
            yield MemoryUnit(source.text, target.text, target.changed, str(path), line)
    if units and not pairs:
        wanted = " to ".join(code or "any language" for code in languages)
        raise DataError(f"{path} holds no translations from {wanted}; its languages are {', '.join(known)}")
