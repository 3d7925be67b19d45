"""The stepping protocol: all that search knows of a model.

Whatever can be decoded offers `start` and `step` over an immutable state with one operation, `select`:

    state = stepper.start(source)                  one row per sentence
    out = stepper.step(state, last)                log P(next symbol | source, all symbols so far), row by row
    state = out.state.select(rows)                 repeat, reorder and drop rows

A state is a value. Caches behind it may be preallocated and append-only: an older state still reads its own
length, each state is stepped once, and `select` gives a fresh one (free when the rows are unchanged).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

S = TypeVar("S", bound="State")

NEVER_STOPPED = np.zeros(1, np.uint8)
"""The `stop` of a call that nobody stops."""


class State(Protocol):
    """The state of each row. Rows are the first axis of every tensor in it."""

    def select(self: S, rows: Int[Tensor, " picked"]) -> S:
        """The state whose row r is row `rows[r]` of this one."""
        ...


@dataclass(frozen=True)
class Source:
    """A batch of source sentences, padded at the end.

    `ids` hold the end symbol of each sentence; `lengths` count it. A padded position may hold any id.
    """

    ids: Int[Tensor, "batch source"]
    lengths: Int[Tensor, " batch"]


@dataclass(frozen=True)
class SourceImages(Source):
    """A batch of images as a source: a model that reads images makes it, with a position for each of its vectors.

    What searches read of a source are `lengths`; `ids` hold nothing.
    """

    pixels: Float[Tensor, "batch channels height width"]

    @staticmethod
    def of(pixels: Float[Tensor, "batch channels height width"], *, positions: int) -> "SourceImages":
        """The source of scaled images, each of which has so many positions."""
        ids = torch.zeros(len(pixels), positions, dtype=torch.long, device=pixels.device)
        return SourceImages(ids, torch.full((len(pixels),), positions, device=pixels.device), pixels)


@dataclass(frozen=True)
class Step:
    """What one step gives for each row.

    `symbols` names the offered symbols when only some are (a shortlist, the same for all rows or each row's own):
    column c of `log_probs` then belongs to `symbols[c]` or `symbols[row, c]`. A row with fewer symbols than others
    fills its columns with any symbol at −∞. `attention` is how much each row attends to each source position, where the
    stepper was made to return it.
    """

    log_probs: Float[Tensor, "rows symbols"]
    state: State
    attention: Float[Tensor, "rows source"] | None = None
    symbols: Int[Tensor, "*rows symbols"] | None = None


class Stepper(Protocol):
    """Something that can be decoded. `begin` is fed as the first `last`; `end` finishes a row."""

    @property
    def begin(self) -> int: ...

    @property
    def end(self) -> int: ...

    def start(self, source: Source) -> State:
        """One row per sentence, before the first symbol."""
        ...

    def step(self, state: State, last: Int[Tensor, " rows"]) -> Step:
        """Feed each row its last symbol; log-probabilities of the next one."""
        ...


@runtime_checkable
class ReadsAhead(Protocol):
    """A stepper that reads symbols that are known in advance, such as a prompt, in one pass."""

    @property
    def longest(self) -> int:
        """Symbols that a row can read in all."""
        ...

    def read(self, state: State, symbols: Int[Tensor, "rows count"]) -> State:
        """The state that a step for each of these columns would leave."""
        ...


@dataclass(frozen=True)
class BeamSteps:
    """Some steps of a beam search, with the candidates of each, best first.

    A candidate is a row with one symbol more; `values` are log P of all its symbols, −∞ where a sentence has no more of
    them, and `log_probs` those of the last symbol alone. `state` is that of the rows of the last step, after it.
    """

    values: Float[np.ndarray, "steps sentences candidates"]
    rows: Int[np.ndarray, "steps sentences candidates"]
    symbols: Int[np.ndarray, "steps sentences candidates"]
    log_probs: Float[np.ndarray, "steps sentences candidates"]
    state: State
    last_rows: int
    """How many rows the last step had."""
    not_a_number: int = -1
    """The first of them whose log-probabilities were not numbers."""


@runtime_checkable
class BeamStepper(Protocol):
    """A stepper that can take the steps of a beam search in which nothing ends by itself.

    It keeps the `beam` best candidates of each sentence; the others are dropped. Of equal candidates the
    one from the earlier row, and then the one with the lower symbol comes first.
    """

    def step_beams(
        self,
        state: State,
        last: Int[Tensor, " rows"],
        *,
        totals: Float[np.ndarray, " rows"],
        beam: int,
        steps: int,
        stop: UInt8[np.ndarray, "1"] = NEVER_STOPPED,
        candidates: int | None = None,
        never: Sequence[int] = (),
        renormalises: bool = False,
    ) -> BeamSteps | None:
        """At least one step, and at most `steps`, as long as every beam is full and none of its candidates ends.

        The rows of a sentence are side by side, and have `totals` for log P so far. Another thread may set `stop` to 1
        to end the call after the step that is being computed. Each step returns so many `candidates`, one more than
        the beam by default. Symbols in `never` are not offered; the probabilities of the others sum to one if it
        `renormalises`. None if the rows have to be stepped one step at a time.
        """
        ...
