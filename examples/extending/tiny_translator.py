"""A tiny translation model: the mean of the source words starts a GRU that writes the target.

memory    m = mean_j E_s[x_j]
states    h_0 = tanh(W m + b),  h_t = GRU(E_t[y_{t−1}], h_{t−1})
output    P(y_t | y_1 … y_{t−1}, x) = softmax(E_t h_t)
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from seqloom.core.declaration import DataFacts, ModelSettings, ModelSizes, Reason
from seqloom.core.stepping import Source, State, Step
from seqloom.core.symbols import BEGIN, END
from seqloom.nn.dropout import evaluating
from seqloom.nn.embeddings import Embedding, Symbols
from seqloom.nn.init import seeded
from seqloom.nn.outputs import Output
from seqloom.nn.packing import length_mask


class TinyTranslatorConfig(ModelSettings):
    """The mean of the source words, and a GRU."""

    kind: Literal["tiny"] = "tiny"
    """Names this model in a config file."""
    width: int = Field(64, ge=1)
    """Size of embeddings and states."""

    def sizes_for_pairs(self, facts: DataFacts) -> ModelSizes:
        width = 64 if facts.pairs < 100_000 else 256
        return ModelSizes({"width": width}, (Reason(("model.kind", "model.width"), f"states of width {width}"),))

    def build(self, symbols: Symbols, *, seed: int) -> "TinyTranslator":
        with seeded(seed):
            return TinyTranslator(symbols, self.width)


class TinyTranslator(nn.Module):
    def __init__(self, symbols: Symbols, width: int) -> None:
        super().__init__()
        self.source = Embedding(symbols.source, width)
        self.target = Embedding(symbols.target, width)
        self.bridge = nn.Linear(width, width)
        self.cell = nn.GRUCell(width, width)
        self.output = Output(self.target.weight)

    def start(self, source: Source) -> Float[Tensor, "batch width"]:
        is_word = length_mask(source.lengths, source.ids.shape[1])[:, :, None]  # [batch, source, 1]
        total = (self.source(source.ids) * is_word).sum(1)  # [batch, width]
        return torch.tanh(self.bridge(total / source.lengths[:, None].clamp(min=1)))

    def forward(
        self, source: Source, previous: Int[Tensor, "batch target"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "tokens width"]:
        """Features of the real target positions, sentence after sentence, from the symbols before each."""
        hidden, states = self.start(source), []
        for embedded in self.target(previous).unbind(1):
            hidden = self.cell(embedded, hidden)  # [batch, width]
            states.append(hidden)
        return torch.stack(states, 1)[length_mask(lengths, previous.shape[1])]  # [tokens, width]

    def stepper(self, *, attention: bool = False) -> "TinyStepper":  # noqa: ARG002
        """This model as a search sees it; it has no attention to return."""
        return TinyStepper(self)


@dataclass(frozen=True)
class TinyState:
    hidden: Float[Tensor, "rows width"]

    def select(self, rows: Int[Tensor, " picked"]) -> "TinyState":
        return TinyState(self.hidden[rows])


class TinyStepper:
    begin = BEGIN
    end = END

    def __init__(self, model: TinyTranslator) -> None:
        self.model = model

    def start(self, source: Source) -> TinyState:
        with evaluating(self.model):
            return TinyState(self.model.start(source))

    def step(self, state: State, last: Int[Tensor, " rows"]) -> Step:
        assert isinstance(state, TinyState)
        with evaluating(self.model):
            hidden = self.model.cell(self.model.target(last), state.hidden)
            return Step(self.model.output.log_probs(hidden), TinyState(hidden))
