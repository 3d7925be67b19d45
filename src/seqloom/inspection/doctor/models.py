"""What is learned from the text itself before it is judged: how its sides are written, which words translate which."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool

from seqloom.data.blocks import Line
from seqloom.inspection.doctor.alignment import (
    LONGEST,
    Judge,
    Lexicon,
    WordLines,
    have_common_words,
    learn_lexicon,
    make_judge,
)
from seqloom.inspection.doctor.character_model import CharacterModel
from seqloom.inspection.doctor.language import TwoLanguages
from seqloom.inspection.doctor.segments import SegmentJudge
from seqloom.inspection.doctor.survey import Survey
from seqloom.inspection.doctor.unknown import HELD_OUT_EVERY, Counts
from seqloom.inspection.doctor.wording import Wording

SAMPLE = 50_000
"""Pairs from which the models are made: more would cost memory and make them hardly better."""

ROW, ROWS = 100, 10_000
"""Lines in a row that are kept together, and how many of all: borders lie between neighbours."""

PIECE = 4_096
"""Lines that are looked at together."""


@dataclass(frozen=True, eq=False)
class Alignment:
    """Which words translate which, and what that means for pairs, their ends and their borders."""

    lexicon: Lexicon
    judge: Judge
    segments: SegmentJudge


@dataclass(frozen=True, eq=False)
class Models:
    """Models of a training text."""

    languages: TwoLanguages
    alignment: Alignment | None
    """None where there are too few lines to learn from, or hardly a word comes again."""
    wording: tuple[Wording, Wording]
    is_sampled: Bool[np.ndarray, " lines"]
    """Which lines the models were made from."""


class Sample:
    """Lines taken evenly from the whole of a training text while it is read, and what is counted of them."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._numbers: list[int] = []
        self._words: tuple[list[list[str]], list[list[str]]] = ([], [])
        self._once: dict[str, str] = {}
        """Each word that is held, held once: most of the memory would be copies of a few thousand."""
        self._texts: tuple[list[str], list[str]] = ([], [])
        self._rows: list[Line] = []
        """Lines in a row, some from each part of the text."""
        self._languages = TwoLanguages(CharacterModel(), CharacterModel())
        self.counts = Counts.none(), Counts.none()
        """Words and characters of the two sides, without what is held out."""
        self.held_out = Counts.none(), Counts.none()
        """The same of the lines that stand for a dev set where there is none."""

    def keep(self, line: Line, source: list[str], target: list[str]) -> None:
        """Take a line, if it is one of the sample."""
        if (line.number - 1) // ROW % max(1, self._total // ROWS) == 0:
            self._rows.append(line)
        if self._total > SAMPLE and line.number * SAMPLE // self._total == (line.number - 1) * SAMPLE // self._total:
            return
        self._numbers.append(line.number)
        counts = self.held_out if len(self._numbers) % HELD_OUT_EVERY == 0 else self.counts
        for side, (text, words) in enumerate(((line.source, source), (line.target, target))):
            counts[side].add(text, words)
            self._words[side].append([self._once.setdefault(word, word) for word in words[:LONGEST]])
            self._texts[side].append(text)
        if len(self._texts[0]) == PIECE:
            self._learn_texts()

    def learn(self, survey: Survey, *, tell: Callable[[str], None]) -> Models:
        """The models, when the text has been read. The sample is let go."""
        self._learn_texts()
        is_sampled = np.zeros(self._total, bool)
        is_sampled[np.array(self._numbers, np.int64) - 1] = True
        words = self.counts[0].words, self.counts[1].words
        wording = Wording.of(*words), Wording.of(*reversed(words))
        if not have_common_words(*self._words):
            return Models(self._languages, None, wording, is_sampled)
        tell("learning which words translate which")
        lexicon = learn_lexicon(self._numbers, *self._words)
        lines = WordLines(lexicon, self._numbers, *self._words)
        characters = (
            survey.source.characters[is_sampled].astype(np.int64),
            survey.target.characters[is_sampled].astype(np.int64),
        )
        self._words, self._once = ([], []), {}
        alignment = Alignment(lexicon, make_judge(lines, characters), SegmentJudge.learn(lexicon, self._rows))
        self._rows = []
        return Models(self._languages, alignment, wording, is_sampled)

    def _learn_texts(self) -> None:
        if self._texts[0]:
            self._languages.source.learn(self._texts[0])
            self._languages.target.learn(self._texts[1])
        self._texts = ([], [])
