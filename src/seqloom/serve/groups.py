"""Batches as the actions of a worker see them: texts in groups, one for each request."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import UInt8

Groups = Sequence[Sequence[str]]
"""The texts of each request in a batch."""

Emit = Callable[[int, int, Any], None]
"""Gets the number of a group, of a text in it, and a part of its answer, while the rest is still being computed."""


@dataclass
class GroupCancellation:
    """The cancelled groups of a batch, and how many rows left a search because of them."""

    groups: set[int] = field(default_factory=set)
    stop: UInt8[np.ndarray, "1"] = field(default_factory=lambda: np.zeros(1, np.uint8))
    """1 if a group was cancelled since the search has last looked."""
    dropped_rows: int = 0

    def cancel(self, group: int) -> None:
        """Cancel a group; called from another thread than the one that searches."""
        self.groups.add(group)
        self.stop[0] = 1

    def count(self, rows: int) -> None:
        """So many more rows have left a search."""
        self.dropped_rows += rows


Action = Callable[[Groups, Mapping[str, Any], GroupCancellation, Emit], list[list[Any]]]
"""The result of each text of each group; a cancelled group may lack results."""


def ignore_parts(_group: int, _text: int, _part: Any) -> None:
    """Emit nothing."""
