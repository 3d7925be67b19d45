"""Analogy questions: a is to b as c is to …? The share of right answers, section by section.

A question counts if all four words are among the first `vocabulary` words, which are the most frequent; others are
left out and counted. The answer is the best of these words other than a, b and c. Case is ignored.
gensim's `evaluate_word_analogies` has the same rules (its `restrict_vocab` is our `vocabulary`), so the numbers
can be compared.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int64

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
    names: list[str] = []
    questions: list[list[tuple[str, str, str, str]]] = []
    problems = Problems()
    for number, line in enumerate(read_lines(path), start=1):
        words = line.split()
        if not words:
            continue
        if words[0].startswith(":"):
            names.append(line.strip().lstrip(":").strip())
            questions.append([])
        elif not names:
            problems.add("a question before the first section; head it with `: name`", path, number)
        elif len(words) != 4:
            problems.add(f"{len(words)} words where a question has 4: {line[:60]!r}", path, number)
        else:
            questions[-1].append((words[0], words[1], words[2], words[3]))
    problems.require_none()
    sections = [QuestionSection(name, tuple(asked)) for name, asked in zip(names, questions, strict=True)]
    if not any(section.questions for section in sections):
        raise DataError(f"{path} has no questions; a section begins with `: name`, then come lines of four words")
    return sections


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
