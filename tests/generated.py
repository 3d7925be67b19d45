"""What `generate` of transformers writes, and whether another text differs from it by more than rounding."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

NEAR = 1e-5
"""Scores that are as good as equal: which of two such texts is written, rounding decides."""


@dataclass(frozen=True)
class Generated:
    """The best text of each input, without its end."""

    rows: list[list[int]]
    end: int
    beam_scores: list[float] | None
    """The score of each text; none in greedy search."""
    step_scores: Sequence[Tensor]
    """Of greedy search, the scores of all symbols at each place of the texts."""

    def differing(self, rows: Sequence[Sequence[int]], scores: Sequence[float]) -> int:
        """How many of our texts differ, or have other scores; one, or one in a hundred, may be a tie."""
        numbers = [number for number, (a, b) in enumerate(zip(rows, self.rows, strict=True)) if list(a) != b]
        ties = [number for number in numbers if self._is_tie(number, rows[number], scores[number])]
        others = 0
        if self.beam_scores is not None:
            gaps = [abs(a - b) for a, b in zip(self.beam_scores, scores, strict=True)]
            others = sum(gap > 10 * NEAR for number, gap in enumerate(gaps) if number not in numbers)
        return len(numbers) - min(len(ties), max(1, len(rows) // 100)) + others

    def _is_tie(self, number: int, row: Sequence[int], score: float) -> bool:
        if self.beam_scores is not None:
            return abs(self.beam_scores[number] - score) < NEAR
        pairs = zip([*row, self.end], [*self.rows[number], self.end], strict=False)
        place, (ours, theirs) = next((place, pair) for place, pair in enumerate(pairs) if pair[0] != pair[1])
        at_place = self.step_scores[place][number]
        return abs(float(at_place[ours] - at_place[theirs])) < NEAR


def generated(model: Any, *, end: int, written: int, before: int = 0, **options: Any) -> Generated:
    """Search with transformers; `written` symbols are not of its making, `before` more precede the texts."""
    found = model.generate(do_sample=False, return_dict_in_generate=True, output_scores=True, **options)
    rows = [row[written + before :] for row in found.sequences.tolist()]
    beam_scores = getattr(found, "sequences_scores", None)
    return Generated(
        [row[: row.index(end)] if end in row else row for row in rows],
        end,
        None if beam_scores is None else beam_scores.tolist(),
        found.scores[before:],
    )
