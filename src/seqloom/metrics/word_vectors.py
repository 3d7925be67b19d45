"""What word vectors are worth: analogy questions, and agreement with how similar people find two words.

    analogies     a is to b as c is to …? The share of right answers, section by section. The answer is the best of the
                  first `vocabulary` words, which are the most frequent, other than a, b and c.
    similarity    Spearman's ρ, the correlation of the ranks of cosines and judgements; equal values share the mean of
                  their ranks.   r = Σ (x − x̄)(y − ȳ) / √(Σ (x − x̄)² Σ (y − ȳ)²)

Questions and pairs with a word that has no vector are left out and counted; case is ignored. gensim's
`evaluate_word_analogies` (whose `restrict_vocab` is our `vocabulary`) and `evaluate_word_pairs` have the same rules, so
the numbers can be compared.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float64, Int64

from seqloom.core.errors import DataError, Problems
from seqloom.core.files import read_lines

VOCABULARY = 300_000
"""Words that questions and answers may use, unless another number is given; the same as gensim's."""

Solve = Callable[[Int64[np.ndarray, "questions three"]], Int64[np.ndarray, " questions"]]
"""The best row for each a, b, c, given as rows."""


@dataclass(frozen=True)
class QuestionSection:
    """Questions of one kind: a, b, c and the answer."""

    name: str
    questions: tuple[tuple[str, str, str, str], ...]


@dataclass(frozen=True)
class SectionScore:
    """The result of a section."""

    name: str
    right: int
    asked: int
    left_out: int

    @property
    def accuracy(self) -> float:
        """The share of right answers; NaN if no question could be asked."""
        return self.right / self.asked if self.asked else float("nan")


@dataclass(frozen=True)
class AnalogyScore:
    """The results of all sections."""

    sections: tuple[SectionScore, ...]

    @property
    def total(self) -> SectionScore:
        """All questions together."""
        right, asked, left_out = (
            sum(getattr(section, name) for section in self.sections) for name in ("right", "asked", "left_out")
        )
        return SectionScore("all", right, asked, left_out)

    def __str__(self) -> str:
        total = self.total
        return (
            f"{total.accuracy:.2%} right ({total.right:,} of {total.asked:,}; {total.left_out:,} of "
            f"{total.asked + total.left_out:,} left out for unknown words)"
        )


def read_questions(path: Path) -> list[QuestionSection]:
    """Sections headed by `: name`, and lines of four words, as in Google's questions-words.txt."""
    found: list[tuple[str, list[tuple[str, str, str, str]]]] = []
    problems = Problems()
    for number, line in enumerate(read_lines(path), start=1):
        words = line.split()
        if not words:
            continue
        if words[0].startswith(":"):
            found.append((line.strip().lstrip(":").strip(), []))
        elif not found:
            problems.add("a question before the first section; head it with `: name`", path, number)
        elif len(words) != 4:
            problems.add(f"{len(words)} words where a question has 4: {line[:60]!r}", path, number)
        else:
            found[-1][1].append((words[0], words[1], words[2], words[3]))
    problems.require_none()
    if not any(questions for _, questions in found):
        raise DataError(f"{path} has no questions; a section begins with `: name`, then come lines of four words")
    return [QuestionSection(name, tuple(questions)) for name, questions in found]


def score_analogies(
    sections: Sequence[QuestionSection], words: Sequence[str], solve: Solve, *, vocabulary: int = VOCABULARY
) -> AnalogyScore:
    """Ask all questions whose words are known; `words` are in the order of their rows, the most frequent first."""
    folded = [word.casefold() for word in words[:vocabulary]]
    row_of: dict[str, int] = {}
    for row, word in enumerate(folded):
        row_of.setdefault(word, row)  # of words that differ in case only, the more frequent
    scores = []
    for section in sections:
        rows = [[row_of.get(word.casefold(), -1) for word in question] for question in section.questions]
        known = np.array([each for each in rows if min(each) >= 0], np.int64).reshape(-1, 4)
        answers = solve(known[:, :3]) if len(known) else np.zeros(0, np.int64)
        right = sum(
            folded[int(found)] == folded[int(wanted)] for found, wanted in zip(answers, known[:, 3], strict=True)
        )
        scores.append(SectionScore(section.name, right, len(known), len(rows) - len(known)))
    return AnalogyScore(tuple(scores))


@dataclass(frozen=True)
class JudgedPair:
    """Two words and how similar people find them."""

    one: str
    other: str
    judgement: float


@dataclass(frozen=True)
class SimilarityScore:
    """Rank correlation and plain correlation over the pairs that could be compared."""

    spearman: float
    pearson: float
    pairs: int
    left_out: int

    def __str__(self) -> str:
        return (
            f"Spearman {self.spearman:.4f}, Pearson {self.pearson:.4f} "
            f"({self.pairs:,} of {self.pairs + self.left_out:,} pairs)"
        )


def read_judgements(path: Path) -> list[JudgedPair]:
    """A line per pair, word, word and number between tabs, as in WordSim-353; lines that begin with # are ignored."""
    pairs, problems = [], Problems()
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = line.split("\t")
        try:
            one, other, judgement = parts[0].strip(), parts[1].strip(), float(parts[2])
            if not math.isfinite(judgement):
                raise ValueError
        except (IndexError, ValueError):
            what = f"{line[:60]!r} is not a word, a word and a number with tabs between"
            problems.add(what, path, number)
            continue
        pairs.append(JudgedPair(one, other, judgement))
    problems.require_none()
    if not pairs:
        raise DataError(f"{path} has no pairs; a line holds a word, a word and a number with tabs between")
    return pairs


def score_similarity(pairs: Iterable[JudgedPair], similarity: Callable[[str, str], float | None]) -> SimilarityScore:
    """Compare with what people say; `similarity` gives None for a pair with an unknown word."""
    found: list[tuple[float, float]] = []
    left_out = 0
    for pair in pairs:
        value = similarity(pair.one, pair.other)
        if value is None:
            left_out += 1
        else:
            found.append((value, pair.judgement))
    if len(found) < 2:
        raise DataError(
            f"{len(found)} of {len(found) + left_out} pairs have vectors for both words, and a correlation needs 2"
        )
    ours, theirs = np.array(found, np.float64).T
    for values, what in ((ours, "cosines"), (theirs, "judgements")):
        if (values == values[0]).all():
            raise DataError(
                f"the {what} of all {len(found)} pairs are {values[0]:g}; a correlation needs values that differ"
            )
    return SimilarityScore(
        rank_correlation(ours, theirs), correlation(ours, theirs), pairs=len(found), left_out=left_out
    )


def rank_correlation(ours: Float64[np.ndarray, " values"], theirs: Float64[np.ndarray, " values"]) -> float:
    """Spearman's ρ of values that belong together pair by pair."""
    return correlation(ranks(ours), ranks(theirs))


def ranks(values: Float64[np.ndarray, " values"]) -> Float64[np.ndarray, " values"]:
    """1 for the smallest; equal values share the mean of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    shared: Float64[np.ndarray, " values"] = (last - (counts - 1) / 2)[inverse].astype(np.float64)
    return shared


def correlation(ours: Float64[np.ndarray, " values"], theirs: Float64[np.ndarray, " values"]) -> float:
    """Pearson's r; NaN where one side is the same everywhere, since then there is nothing to agree with."""
    x, y = ours - ours.mean(), theirs - theirs.mean()
    scale = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / scale if scale > 0 else float("nan")
