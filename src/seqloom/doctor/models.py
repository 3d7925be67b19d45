"""Models learned from the text before it is judged: character models of both sides, and a word lexicon."""

import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool

from seqloom.data.corpus import Line
from seqloom.doctor.alignment import (
    MAX_LINE_WORDS,
    FoldedLexicon,
    Judge,
    WordLines,
    have_common_words,
    learn_lexicon,
    make_judge,
)
from seqloom.doctor.faults import Fault, in_percent
from seqloom.doctor.language import TwoLanguages
from seqloom.doctor.segments import SegmentJudge
from seqloom.doctor.survey import Survey
from seqloom.doctor.wording import Wording
from seqloom.text.character_models import CharacterModel

# The forecast of unknown words and characters: what a vocabulary made from the training text will not know.

SIZES = (1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000)
"""Vocabulary sizes for which the share of unknown words is reported."""

HELD_OUT, HELD_OUT_EVERY = "held-out", 20
"""Without dev and test sets, every HELD_OUT_EVERY-th training line is held out under this name."""

MANY_CHARACTERS = 0.001


@dataclass(frozen=True)
class SideForecast:
    """What of one side of a text would be unknown."""

    words: tuple[tuple[int, float], ...]
    """The share of unknown words by the size of a vocabulary of whole words; the last size holds all words seen."""
    characters: float
    """The share of characters that the training text never has: unknown to any vocabulary without bytes."""
    new_characters: tuple[str, ...]
    """The most frequent of them."""


@dataclass(frozen=True)
class Forecast:
    """The forecast for a split."""

    split: str
    """Its name, or HELD_OUT for a part of the training text."""
    source: SideForecast
    target: SideForecast


@dataclass(frozen=True)
class Counts:
    """Words and characters of one side of a text."""

    words: Counter[str]
    characters: Counter[str]

    @staticmethod
    def none() -> "Counts":
        """Empty counts."""
        return Counts(Counter(), Counter())

    def add(self, text: str, words: Sequence[str]) -> None:
        """Count a line."""
        self.words.update(words)
        self.characters.update(text)


def forecast_side(known: Counts, other: Counts) -> SideForecast:
    """The shares of the words and characters of another text that one made from `known` will not know."""
    ranked = [word for word, _ in known.words.most_common()]
    total = max(1, other.words.total())
    rank = {word: at for at, word in enumerate(ranked)}
    sizes = [*(size for size in SIZES if size < len(ranked)), len(ranked)]
    missing = [
        sum(count for word, count in other.words.items() if rank.get(word, size) >= size) / total for size in sizes
    ]
    new = Counter({sign: count for sign, count in other.characters.items() if sign not in known.characters})
    share = new.total() / max(1, other.characters.total())
    return SideForecast(tuple(zip(sizes, missing, strict=True)), share, tuple(sign for sign, _ in new.most_common(20)))


def examine_unknown(forecast: Forecast) -> list[Fault]:
    """A fault for characters that the training text lacks."""
    sides = [("source", forecast.source), ("target", forecast.target)]
    parts = [
        f"{in_percent(side.characters)} of the characters of the {name} ({_displayed(side.new_characters[:8])})"
        for name, side in sides
        if side.characters > 0
    ]
    if not parts:
        return []
    name = "held-out lines" if forecast.split == HELD_OUT else forecast.split
    is_much = max(side.characters for _, side in sides) > MANY_CHARACTERS
    return [
        Fault(
            "unknown",
            "fix" if is_much else "note",
            f"Characters of {name} missing from the training text",
            f"unknown to any vocabulary made from it: {'; '.join(parts)}",
            "text.byte_fallback=true encodes them as bytes; or add training text that contains them",
            forecast.split,
        )
    ]


def _displayed(signs: Sequence[str]) -> str:
    """Characters for display; spaces, invisible characters and accents as code points."""
    is_hidden = [not sign.isprintable() or sign == " " or unicodedata.category(sign)[0] == "M" for sign in signs]
    return " ".join(f"U+{ord(sign):04X}" if hidden else sign for sign, hidden in zip(signs, is_hidden, strict=True))


SAMPLE_SIZE = 50_000
"""Pairs from which the models are learned: more would cost memory for little gain."""

BLOCK, BLOCK_LINES = 100, 10_000
"""Length of a block of consecutive sampled lines, and lines in all blocks: boundaries need neighbours."""

CHUNK = 4_096
"""Lines processed together."""


@dataclass(frozen=True, eq=False)
class AlignmentModels:
    """The word lexicon, and judges of pairs and of their boundaries."""

    lexicon: FoldedLexicon
    judge: Judge
    segments: SegmentJudge


@dataclass(frozen=True, eq=False)
class Models:
    """Models of a training text."""

    languages: TwoLanguages
    alignment: AlignmentModels | None
    """None if there are too few lines or too few repeated words to learn from."""
    wording: tuple[Wording, Wording]
    is_sampled: Bool[np.ndarray, " lines"]
    """Which lines the models were learned from."""


class TextSample:
    """A uniform sample of a training text, collected while it is read, with its counts."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._numbers: list[int] = []
        self._words: tuple[list[list[str]], list[list[str]]] = ([], [])
        self._once: dict[str, str] = {}
        """Interned words: most of the memory would be copies of a few thousand."""
        self._texts: tuple[list[str], list[str]] = ([], [])
        self._rows: list[Line] = []
        """Blocks of consecutive lines from all over the text."""
        self._languages = TwoLanguages(CharacterModel(), CharacterModel())
        self.counts = Counts.none(), Counts.none()
        """Words and characters of the two sides, without held-out lines."""
        self.held_out = Counts.none(), Counts.none()
        """The same for held-out lines, which replace a missing dev set."""

    def keep(self, line: Line, source: list[str], target: list[str]) -> None:
        """Add a line if it belongs to the sample."""
        if (line.number - 1) // BLOCK % max(1, self._total // BLOCK_LINES) == 0:
            self._rows.append(line)
        if (
            self._total > SAMPLE_SIZE
            and line.number * SAMPLE_SIZE // self._total == (line.number - 1) * SAMPLE_SIZE // self._total
        ):
            return
        self._numbers.append(line.number)
        counts = self.held_out if len(self._numbers) % HELD_OUT_EVERY == 0 else self.counts
        for side, (text, words) in enumerate(((line.source, source), (line.target, target))):
            counts[side].add(text, words)
            self._words[side].append([self._once.setdefault(word, word) for word in words[:MAX_LINE_WORDS]])
            self._texts[side].append(text)
        if len(self._texts[0]) == CHUNK:
            self._learn_texts()

    def learn(self, survey: Survey, *, report: Callable[[str], None]) -> Models:
        """Learn the models after the text was read, and release the sample."""
        self._learn_texts()
        is_sampled = np.zeros(self._total, bool)
        is_sampled[np.array(self._numbers, np.int64) - 1] = True
        words = self.counts[0].words, self.counts[1].words
        wording = Wording.of(*words), Wording.of(*reversed(words))
        if not have_common_words(*self._words):
            return Models(self._languages, None, wording, is_sampled)
        report("learning a word lexicon")
        lexicon = learn_lexicon(self._numbers, *self._words)
        lines = WordLines(lexicon, self._numbers, *self._words)
        characters = (
            survey.source.characters[is_sampled].astype(np.int64),
            survey.target.characters[is_sampled].astype(np.int64),
        )
        self._words, self._once = ([], []), {}
        alignment = AlignmentModels(lexicon, make_judge(lines, characters), SegmentJudge.learn(lexicon, self._rows))
        self._rows = []
        return Models(self._languages, alignment, wording, is_sampled)

    def _learn_texts(self) -> None:
        if self._texts[0]:
            self._languages.source.learn(self._texts[0])
            self._languages.target.learn(self._texts[1])
        self._texts = ([], [])
