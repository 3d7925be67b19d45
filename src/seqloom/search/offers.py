"""What may come next, and by what it is ranked: log-probabilities after the rules of a search have had their say.

value(y) = log P(y ∣ x, y_<t)      −∞ where a constraint forbids y;  end as the score's end normalisation changes it
"""

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seqloom.core.stepping import Step
from seqloom.search.constraints import Constraint
from seqloom.search.scores import EndNormalisation


@dataclass(frozen=True)
class Standing:
    """How far a row has come with the constraint of its sentence."""

    constraint: Constraint
    place: Hashable

    def after(self, symbol: int) -> "Standing":
        return Standing(self.constraint, self.constraint.after(self.place, symbol))

    def is_missing_something(self) -> bool:
        """Whether forced symbols are still to come."""
        return self.constraint.missing(self.place) > 0


@dataclass(frozen=True)
class Rules:
    """What changes log-probabilities before candidates are ranked: the end normalisation of the score, constraints."""

    end: int
    end_normalisation: EndNormalisation | None

    def values(
        self, step: Step, *, length: int, source_lengths: Sequence[int], standings: Sequence[Standing | None]
    ) -> Float[Tensor, "rows symbols"]:
        """What the symbols of each row are ranked by; they become the `length`-th of their outputs."""
        values = step.log_probs
        is_bound = any(standing is not None for standing in standings)
        if self.end_normalisation is None and not is_bound:
            return values
        values = values.clone()
        if self.end_normalisation is not None:
            ends = self._ends(step)
            lengths = torch.tensor(source_lengths, dtype=values.dtype, device=values.device)[:, None]
            changed = self.end_normalisation.changed(values, lengths.expand_as(values), length=length)
            values = torch.where(ends, changed, values)
        if is_bound:
            _forbid(values, step, standings)
        return values

    def _ends(self, step: Step) -> Tensor:
        """True where a column is the end symbol."""
        if step.symbols is not None:
            return (step.symbols == self.end).expand_as(step.log_probs)
        ends = torch.zeros_like(step.log_probs, dtype=torch.bool)
        ends[:, self.end] = True
        return ends


def columns_of(symbols: Int[Tensor, "*rows symbols"] | None, row: int, wanted: Collection[int]) -> list[int]:
    """The columns in which a row offers these symbols, as far as it does."""
    if symbols is None or not wanted:
        return sorted(wanted)
    offered = symbols if symbols.dim() == 1 else symbols[row]
    return torch.isin(offered, offered.new_tensor(sorted(wanted))).nonzero().flatten().tolist()


def _forbid(values: Float[Tensor, "rows symbols"], step: Step, standings: Sequence[Standing | None]) -> None:
    """Put −∞ where a constraint forbids a symbol: at these places alone, for they are few in a large table."""
    rows: list[int] = []
    columns: list[int] = []
    for row, standing in enumerate(standings):
        if standing is None:
            continue
        constraint, place = standing.constraint, standing.place
        only = constraint.only(place)
        if only is not None:
            left = columns_of(step.symbols, row, only)
            kept = values[row, left]
            values[row] = float("-inf")
            values[row, left] = kept
        banned = columns_of(step.symbols, row, constraint.forbidden(place))
        rows += [row] * len(banned)
        columns += banned
    if rows:
        values[rows, columns] = float("-inf")
