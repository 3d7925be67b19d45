"""N-gram models and hidden Markov models as searches and texts see them; the only file here that imports torch."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Float64, Int, Int64, Integer
from torch import Tensor

from seqloom.classical.hmm import HiddenMarkovModel
from seqloom.core.errors import UsageError
from seqloom.core.reading import Context, TextIds, TokensDone
from seqloom.core.stepping import Source, State, Step, Stepper
from seqloom.core.symbols import BEGIN, END

PROGRESS_TOKENS = 1 << 20
"""Tokens scored between two reports of progress."""


class LineScores(Protocol):
    """A model that scores a text line by line."""

    def log_probs(self, ids: Integer[np.ndarray, " tokens"]) -> Float64[np.ndarray, " tokens"]: ...


class CountedModel(LineScores, Protocol):
    """What steppers and readers ask of an n-gram model."""

    @property
    def order(self) -> int: ...

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
    is_bound = False

    def __init__(self, model: CountedModel) -> None:
        self.model = model

    def stepper(self) -> Stepper:
        return NGramStepper(self.model)

    def log_probs(self, text: TextIds, *, context: Context, progress: TokensDone) -> Float64[np.ndarray, " tokens"]:
        if context == "text":
            raise UsageError("an n-gram model reads each line by itself; leave out --context text")
        return score_lines(self.model, text, progress)


class StateModel(LineScores, Protocol):
    """What steppers and readers ask of a hidden Markov model of text."""

    @property
    def model(self) -> HiddenMarkovModel: ...

    @property
    def emissions(self) -> Float64[np.ndarray, "states symbols"]: ...


@dataclass(frozen=True)
class Beliefs:
    """The probability of each hidden state of each row: that of the next symbol, before it is known."""

    states: Float64[Tensor, "rows states"]

    def select(self, rows: Int[Tensor, " picked"]) -> "Beliefs":
        return Beliefs(self.states[rows])


class HmmStepper:
    """A hidden Markov model, symbol by symbol. A source only says how many rows there are.

    p(j) ∝ Σ_i p(i) b_i(last) a_ij;  P(next = v) = Σ_j p(j) b_j(v);  BEGIN begins a line with p = π.
    A symbol that no likely state emits says nothing about the state.
    """

    begin, end = BEGIN, END

    def __init__(self, model: StateModel) -> None:
        chain = model.model
        self.first, self.transitions = torch.from_numpy(chain.start), torch.from_numpy(chain.transitions)
        self.emissions = torch.from_numpy(model.emissions)

    def start(self, source: Source) -> Beliefs:
        return Beliefs(self.first.expand(len(source.lengths), -1).to(source.ids.device))

    def step(self, state: State, last: Int[Tensor, " rows"]) -> Step:
        assert isinstance(state, Beliefs)
        device = state.states.device
        emissions, transitions = self.emissions.to(device), self.transitions.to(device)
        seen = state.states * emissions[:, last.long()].T  # [rows, states]
        totals = seen.sum(1, keepdim=True)
        seen = torch.where(totals > 0, seen / totals, state.states)
        beliefs = torch.where((last == self.begin)[:, None], self.first.to(device), seen @ transitions)
        probabilities = beliefs @ emissions  # [rows, symbols]
        return Step((probabilities / probabilities.sum(1, keepdim=True)).log(), Beliefs(beliefs))


class HmmReader:
    """A hidden Markov model, which begins each line with the same beliefs."""

    context: Context = "line"
    has_blank_lines = True
    is_bound = False

    def __init__(self, model: StateModel) -> None:
        self.model = model

    def stepper(self) -> Stepper:
        return HmmStepper(self.model)

    def log_probs(self, text: TextIds, *, context: Context, progress: TokensDone) -> Float64[np.ndarray, " tokens"]:
        if context == "text":
            raise UsageError("a hidden Markov model reads each line by itself; leave out --context text")
        return score_lines(self.model, text, progress)


def score_lines(model: LineScores, text: TextIds, progress: TokensDone) -> Float64[np.ndarray, " tokens"]:
    """log P of each token, in blocks of whole lines."""
    found = np.empty(len(text.ids))
    ends = text.offsets[1:]
    begin = 0
    while begin < len(found):
        end = int(ends[min(int(np.searchsorted(ends, begin + PROGRESS_TOKENS)), len(ends) - 1)])
        found[begin:end] = model.log_probs(text.ids[begin:end])
        progress(end - begin)
        begin = end
    return found
