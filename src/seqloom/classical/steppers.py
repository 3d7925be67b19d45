"""Counted models as steppers, so that every search decodes them; the only file here that knows torch."""

from dataclasses import dataclass

import torch
from jaxtyping import Float64, Int, Int64
from torch import Tensor

from seqloom.classical.ngram import NGram
from seqloom.core.stepping import Source, State, Step
from seqloom.core.symbols import BEGIN, END


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

    def __init__(self, model: NGram) -> None:
        self.model = model

    def start(self, source: Source) -> LastWords:
        return LastWords(torch.full((len(source.lengths), self.model.order - 1), -1, device=source.ids.device))

    def step(self, state: State, last: Int[Tensor, " rows"]) -> Step:
        assert isinstance(state, LastWords)
        seen = torch.cat([state.ids, last.long()[:, None]], 1)[:, 1:] if self.model.order > 1 else state.ids
        return Step(self.log_probs(seen), LastWords(seen))

    def log_probs(self, seen: Int64[Tensor, "rows lengths"]) -> Float64[Tensor, "rows symbols"]:
        """log P of the next symbol after these, where −1 stands for nothing."""
        contexts = (row[row >= 0] for row in seen.cpu().numpy())
        rows = torch.from_numpy(self.model.log_distributions(self.model.states(contexts)))
        return rows.log_softmax(1).to(seen.device)
