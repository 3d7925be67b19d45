"""N-gram models as searches and texts see them; the only file here that imports torch."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Float64, Int, Int64, Integer
from torch import Tensor

from seqloom.core.errors import UsageError
from seqloom.core.reading import Context, TextIds, TokensDone
from seqloom.core.stepping import Source, State, Step, Stepper
from seqloom.core.symbols import BEGIN, END

PROGRESS_TOKENS = 1 << 20
"""Tokens scored between two reports of progress."""


class CountedModel(Protocol):
    """What steppers and readers ask of an n-gram model."""

    @property
    def order(self) -> int: ...

    def log_probs(self, ids: Integer[np.ndarray, " tokens"]) -> Float64[np.ndarray, " tokens"]: ...

    def states(
        self, contexts: Iterable[Sequence[int] | Integer[np.ndarray, " _"]]
    ) -> Int64[np.ndarray, "contexts lengths"]: ...

    def log_distributions(self, states: Int64[np.ndarray, "rows lengths"]) -> Float64[np.ndarray, "rows symbols"]: ...


@dataclass(frozen=True)
class LastWords:
    """The last N − 1 symbols of each row, the newest at the end; −1 before the beginning."""

    ids: Int64[Tensor, "rows lengths"]

    def select(self, rows: Int[Tensor, " picked"]) -> "LastWords":
        return LastWords(self.ids[rows])


class NGramStepper:
    """An n-gram model, symbol by symbol. A source only says how many rows there are.

    The model keeps its numbers in single precision; here each row is made to sum to one in double precision.
    """

    begin, end = BEGIN, END

    def __init__(self, model: CountedModel) -> None:
        self.model = model

    def start(self, source: Source) -> LastWords:
        return LastWords(torch.full((len(source.lengths), self.model.order - 1), -1, device=source.ids.device))

    def step(self, state: State, last: Int[Tensor, " rows"]) -> Step:
        assert isinstance(state, LastWords)
        seen = torch.cat([state.ids, last.long()[:, None]], 1)[:, 1:] if self.model.order > 1 else state.ids
        return Step(self.log_probs(seen), LastWords(seen))

    def log_probs(self, seen: Int64[Tensor, "rows lengths"]) -> Float64[Tensor, "rows symbols"]:
        """log P of the next symbol after these, where −1 means none."""
        contexts = (row[row >= 0] for row in seen.cpu().numpy())
        rows = torch.from_numpy(self.model.log_distributions(self.model.states(contexts)))
        return rows.log_softmax(1).to(seen.device)


class NGramReader:
    """An n-gram model, which looks no further back than its order and never past the beginning of a line."""

    context: Context = "line"
    has_blank_lines = True

    def __init__(self, model: CountedModel) -> None:
        self.model = model

    def stepper(self) -> Stepper:
        return NGramStepper(self.model)

    def log_probs(self, text: TextIds, *, context: Context, progress: TokensDone) -> Float64[np.ndarray, " tokens"]:
        if context == "text":
            raise UsageError("an n-gram model reads each line by itself; leave out --context text")
        found = np.empty(len(text.ids))
        ends = text.offsets[1:]
        begin = 0
        while begin < len(found):  # blocks of whole lines
            end = int(ends[min(int(np.searchsorted(ends, begin + PROGRESS_TOKENS)), len(ends) - 1)])
            found[begin:end] = self.model.log_probs(text.ids[begin:end])
            progress(end - begin)
            begin = end
        return found
