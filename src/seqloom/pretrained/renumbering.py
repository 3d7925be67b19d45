"""Foreign symbols and ours: which row of a published table belongs to which of our ids."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from seqloom.core.symbols import END, RESERVED

NONE = -1
"""The foreign id of a symbol that only we have."""


@dataclass(frozen=True)
class Roles:
    """The foreign ids of the reserved symbols; None where a model has none."""

    pad: int | None
    begin: int | None
    end: int
    unknown: int | None
    extra_ends: tuple[int, ...] = ()
    """Further symbols at which a text ends."""

    def reserved(self) -> tuple[int | None, ...]:
        """In the order of our ids."""
        return self.pad, self.begin, self.end, self.unknown


@dataclass(frozen=True)
class Renumbering:
    """The foreign id of each of our ids, `NONE` where they have none. Every foreign id has exactly one of ours."""

    foreign: tuple[int, ...]

    @staticmethod
    def of(roles: Roles, symbols: int) -> "Renumbering":
        """Reserved symbols first, the others after them in their own order.

        A foreign symbol with two roles has one of them, and the other one is absent: END if it ends texts, because that
        is written, else the first.
        """
        first: list[int] = []
        for role, number in enumerate(roles.reserved()):
            is_taken = number in first or (number == roles.end and role != END)
            first.append(NONE if number is None or is_taken else number)
        taken = set(first)
        return Renumbering((*first, *(number for number in range(symbols) if number not in taken)))

    @property
    def absent(self) -> tuple[int, ...]:
        """Our ids that the foreign model does not have."""
        return tuple(at for at, number in enumerate(self.foreign[: len(RESERVED)]) if number == NONE)

    @cached_property
    def ours(self) -> Int64[np.ndarray, " foreign"]:
        """Our id of each foreign id."""
        foreign = np.array(self.foreign, np.int64)
        ours = np.empty(len(foreign) - int((foreign == NONE).sum()), np.int64)
        present = np.flatnonzero(foreign != NONE)
        ours[foreign[present]] = present
        return ours

    def import_rows(self, table: Tensor) -> Tensor:
        """A foreign table in our order; rows that only we have are zero."""
        foreign = torch.tensor(self.foreign)
        rows = table.index_select(0, foreign.clamp(min=0))
        rows[foreign == NONE] = 0
        return rows

    def export_rows(self, table: Tensor) -> Tensor:
        """The reverse."""
        return table.index_select(0, torch.from_numpy(self.ours))
