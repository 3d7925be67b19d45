"""The embedded corpus: sentences in four languages, with gold word alignments.

`sample_pairs("en", "de", count=1000, seed=7)` returns sentence pairs, the same for a seed on every machine.
The splits are disjoint, and `unseen` holds combinations of known words that no other split contains.

The sentences are drawn from a grammar in `tools/phrasebook`, which is not part of the package, and are stored in
`phrasebook.tsv.zst`: one line per sentence, with its split and then its tokens in each language.

    train ⇥ We/a visit/b them/c +./d ⇥ Nous/a les/c visitons/b +./d ⇥ …

A token that starts with + is written without a space before it. The letters after the slash are the concepts that a
token expresses; tokens with a common letter are aligned.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import zstandard

from seqloom.core.errors import UsageError

Split: TypeAlias = Literal["train", "dev", "test", "unseen"]
STRIDES: dict[Split, int] = {"train": 900, "dev": 40, "test": 120, "unseen": 40}
"""Sentences of each split between the places where two consecutive seeds begin to read."""
SPLITS: tuple[Split, ...] = tuple(STRIDES)
LANGUAGES = ("en", "fr", "de", "zh")
NOTES = "notes"
"""Marks the fixed sentences in the file, which come before those of the splits."""
FILE = Path(__file__).with_suffix(".tsv.zst")


@dataclass(frozen=True)
class PhrasePair:
    """A sentence and its translation; `alignment` pairs positions of source and target tokens, counted from 0."""

    source: str
    target: str
    source_tokens: tuple[str, ...]
    target_tokens: tuple[str, ...]
    alignment: tuple[tuple[int, int], ...]


class _Sentence(NamedTuple):
    text: str
    tokens: tuple[str, ...]
    concepts: tuple[str, ...]
    """The letters of each token."""


def sample_pairs(source: str, target: str, *, count: int, seed: int, split: Split = "train") -> list[PhrasePair]:
    """`count` pairs of one split with distinct source sentences; a pure function of its arguments."""
    column = _column(target)
    drawn = _distinct(source, count=count, seed=seed, split=split)
    return [_pair(first, _parse(cells[column])) for cells, first in drawn]


def sample_sentences(language: str, *, count: int, seed: int, split: Split = "train") -> list[str]:
    """`count` distinct sentences of one split."""
    return [sentence.text for _, sentence in _distinct(language, count=count, seed=seed, split=split)]


def note_pairs(source: str, target: str) -> list[PhrasePair]:
    """The fixed sentences of the lecture notes; they belong to the split `train` as well."""
    first, second = _column(source), _column(target)
    return [_pair(_parse(cells[first]), _parse(cells[second])) for cells in _read()[NOTES]]


def _distinct(language: str, *, count: int, seed: int, split: Split) -> Iterator[tuple[list[str], _Sentence]]:
    """Rows of the file whose sentences in this language differ, with those sentences.

    The stored sentences are independent draws, so any part of them is a random sample. The seed decides where reading
    begins; at the end it continues at the beginning.
    """
    if split not in SPLITS:
        raise UsageError(f"the phrasebook has no split {split!r}; it has {', '.join(SPLITS)}")
    if count < 0:
        raise UsageError(f"cannot sample {count} sentences; choose 0 or more")
    column, rows = _column(language), _read()[split]
    start = (1 - seed) * STRIDES[split] % len(rows)
    seen: set[str] = set()
    for cells in rows[start:] + rows[:start]:
        if len(seen) == count:
            return
        sentence = _parse(cells[column])
        if sentence.text not in seen:
            seen.add(sentence.text)
            yield cells, sentence
    if len(seen) < count:
        raise UsageError(
            f"the phrasebook has {len(seen):,} different sentences in its split {split}, fewer than {count:,}"
        )


def _column(language: str) -> int:
    if language not in LANGUAGES:
        raise UsageError(f"the phrasebook has no language {language!r}; it has {', '.join(LANGUAGES)}")
    return LANGUAGES.index(language)


@cache
def _read() -> dict[str, list[list[str]]]:
    """The rows of each split: a cell per language."""
    text = zstandard.ZstdDecompressor().decompress(FILE.read_bytes()).decode()
    rows: dict[str, list[list[str]]] = {}
    for line in text.splitlines():
        split, *cells = line.split("\t")
        rows.setdefault(split, []).append(cells)
    return rows


def _parse(cell: str) -> _Sentence:
    text, tokens, concepts = "", [], []
    for part in cell.split(" "):
        token, _, letters = part.rpartition("/")
        is_joined = token[0] == "+"
        token = token.removeprefix("+")
        text += token if is_joined or not text else f" {token}"
        tokens.append(token)
        concepts.append(letters)
    return _Sentence(text, tuple(tokens), tuple(concepts))


def _pair(source: _Sentence, target: _Sentence) -> PhrasePair:
    positions: dict[str, list[int]] = {}
    for position, letters in enumerate(target.concepts):
        for letter in letters:
            positions.setdefault(letter, []).append(position)
    alignment = tuple(
        (position, other)
        for position, letters in enumerate(source.concepts)
        for other in sorted({other for letter in letters for other in positions.get(letter, ())})
    )
    return PhrasePair(source.text, target.text, source.tokens, target.tokens, alignment)
