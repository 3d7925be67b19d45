"""Several right answers to one source: `read` is R EH D or R IY D, and of two summaries the nearer one counts.

Lines with the same source are one question, and their references are its answers. The output of its first line is
scored against each of them, and the best score counts, once for the question.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int64

from seqloom.metrics.scoring import Metric, Statistics


@dataclass(frozen=True)
class Questions:
    """Which lines of a test set ask the same."""

    firsts: Int64[np.ndarray, " questions"]
    """The first line of each question, in the order of the lines."""
    of_line: Int64[np.ndarray, " lines"]
    """The question of each line."""

    @staticmethod
    def of(sources: Sequence[str], references: Sequence[str]) -> "Questions | None":
        """Lines with equal sources, apart from spaces; None if no source has two different references."""
        keys = [" ".join(line.split()) for line in sources]
        answers: dict[str, set[str]] = {}
        for key, reference in zip(keys, references, strict=True):
            answers.setdefault(key, set()).add(" ".join(reference.split()))
        if all(len(each) == 1 for each in answers.values()):
            return None
        # A line that repeats an earlier pair stays a line of its own, if its source has no other answer.
        numbers: dict[str | int, int] = {}
        names = [key if len(answers[key]) > 1 else line for line, key in enumerate(keys)]
        of_line = [numbers.setdefault(name, len(numbers)) for name in names]
        firsts = np.unique(of_line, return_index=True)[1]
        return Questions(firsts.astype(np.int64), np.array(of_line, np.int64))

    @property
    def answered_often(self) -> int:
        """How many questions have several answers."""
        return int(np.count_nonzero(np.bincount(self.of_line) > 1))


@dataclass(frozen=True)
class BestAnswer:
    """A metric of questions: of the answers to each, the one with the best score counts.

        line of question q = argmax_{a ∈ answers(q)} score(output of q, a)

    For an error rate, the lowest score is best. Of equal ones, the first answer counts.
    """

    metric: Metric
    questions: Questions
    is_error: bool = False
    """Whether a lower score is better."""

    def statistics(self, hypotheses: Sequence[str], references: Sequence[str]) -> Statistics:
        questions = self.questions
        outputs = [hypotheses[first] for first in questions.firsts[questions.of_line]]
        found = self.metric.statistics(outputs, references)
        values = self.metric.values(found.lines)  # [lines]
        order = np.lexsort((np.arange(len(values)), values if self.is_error else -values, questions.of_line))
        best = order[np.unique(questions.of_line[order], return_index=True)[1]]  # [questions]
        lines = found.lines[best]
        signature = found.signature.replace("nrefs:1", "nrefs:best")
        return Statistics(found.name, float(self.values(lines.sum(axis=0)[None])[0]), signature, lines)

    def values(self, sums: Float[np.ndarray, "corpora parts"]) -> Float[np.ndarray, " corpora"]:
        return self.metric.values(sums)
