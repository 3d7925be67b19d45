"""The recurrent language model (Mikolov et al., 2010; with LSTMs Sundermeyer et al., 2012).

    read      x_t = E[w_{t−1}]                                            the symbol before
    states    h_t = stack(x_t, h_{t−1})                                   all symbols before, through the state
    features  f_t = P h_t                                                 only where tied tables are of another width
    output    P(w_t | w_1 … w_{t−1}) = softmax(W f_t + b)                 W = E where tied (Press & Wolf, 2017)

Each step reads one symbol, but h carries the whole history. A text is read in windows, each from the final state of the
one before or from an empty state (`tasks.language_modelling`).
"""

from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from seqloom.core.declaration import ModelSizes, Pieces, Purpose, TaskKind, TextFacts
from seqloom.core.errors import ConfigError
from seqloom.models.cell_options import CellOptions
from seqloom.models.reading import RecurrentReader, RecurrentStepper
from seqloom.nn.bptt.truncation import FULL, Truncation
from seqloom.nn.dropout import reseed
from seqloom.nn.embeddings import Embedding, Symbols
from seqloom.nn.init import linear, seeded
from seqloom.nn.outputs import AdaptiveOutput, Output
from seqloom.nn.recurrent import (
    Bidirectional,
    DropoutKind,
    MakeCell,
    SequenceDropout,
    Skip,
    Stack,
    StackState,
    cells_of,
    input_widths,
    require_causal,
)


class RnnLmConfig(CellOptions):
    """A recurrent language model."""

    purpose: ClassVar[Purpose] = "language model"
    task_kind: ClassVar[TaskKind] = "language_modelling"

    kind: Literal["rnn_lm"] = "rnn_lm"
    """Names this model in a config file."""
    width: int = Field(256, ge=1, le=100_000)
    """Size of the hidden states."""
    embedding_width: int | None = Field(None, ge=1, le=100_000)
    """Size of each symbol's vector; by default that of the hidden states."""
    layers: int = Field(1, ge=1, le=1_000)
    """Recurrent layers, one above the other."""
    skip: Skip = "none"
    """The connection past each layer: none, residual (added), highway (mixed by a gate) or dense (joined: each
    layer reads the input and all layers below it). A lowest layer whose input is not as wide as it is itself has no
    residual or highway."""
    dropout_rate: float = Field(0.2, ge=0, lt=1)
    """Share of numbers dropped from embeddings, between layers and from the features, in training."""
    dropout_kind: DropoutKind = "between"
    """Whether each number is dropped by itself (between), or the same ones at all positions of a window
    (variational)."""
    tying: Literal["output", "none"] = "output"
    """Whether the table of the embeddings is also that of the output. Where widths differ, the features are projected
    to the width of the embeddings."""
    output: Literal["full", "adaptive"] = "full"
    """The last layer: scores of all symbols, or an adaptive softmax, whose rare symbols are reached through clusters
    (needs tying=none)."""
    cutoffs: tuple[int, ...] = ()
    """Ranks at which the clusters of an adaptive softmax begin, such as [2000, 10000]; by default a tenth and a
    third of the symbols."""
    learns_log_z: bool = False
    """Whether the output has a number to learn for its normaliser, which task.objective kind=nce with log_z=learned
    needs."""

    def check(self) -> None:
        """Raise if some settings contradict each other."""
        super().check()
        read = input_widths(self._embedding_width, self.width, layers=self.layers, skip=self.skip)
        self.check_reset("language model", read, width=self.width)
        if self.output == "adaptive" and self.tying == "output":
            raise ConfigError(
                "model.output=adaptive has no single table of all symbols to share with the embeddings; set "
                "model.tying=none, or model.output=full"
            )
        if self.output == "adaptive" and self.learns_log_z:
            raise ConfigError("model.learns_log_z=true is for model.output=full; an adaptive softmax is normalised")
        if self.output == "full" and self.cutoffs:
            raise ConfigError(f"model.cutoffs={list(self.cutoffs)} are for model.output=adaptive, but it is full")

    @property
    def has_output_table(self) -> bool:
        return self.output == "full"

    @property
    def _embedding_width(self) -> int:
        return self.embedding_width or self.width

    def sizes_for_text(self, facts: TextFacts, pieces: Pieces) -> ModelSizes:
        return self.text_sizes(facts.tokens(pieces))

    def build(self, symbols: Symbols, *, seed: int, make_cell: MakeCell | None = None) -> "RnnLm":
        """A model of the target side's symbols with fresh weights drawn from `seed`.

        `make_cell` replaces the cell of the settings.
        """
        self.check()
        with seeded(seed):
            embedding = Embedding(symbols.target, self._embedding_width)
            cells = cells_of(
                make_cell or self.make_cell(),
                self._embedding_width,
                width=self.width,
                layers=self.layers,
                skip=self.skip,
            )
            layers = Stack(cells, dropout_rate=self.dropout_rate, skip=self.skip, dropout_kind=self.dropout_kind)
            projection = None
            if self.tying == "output" and self._embedding_width != self.width:
                projection = linear(self.width, self._embedding_width)
            output: Output | AdaptiveOutput
            if self.output == "adaptive":
                default = sorted({max(1, symbols.target // 10), max(1, symbols.target // 3)})
                cutoffs = self.cutoffs or tuple(default)
                output = AdaptiveOutput(self.width, symbols.target, cutoffs=cutoffs, has_bias=True)
            else:
                table = embedding if self.tying == "output" else Embedding(symbols.target, self.width)
                output = Output(table.weight, has_bias=True, has_log_z=self.learns_log_z)
            model = RnnLm(
                embedding,
                layers,
                projection=projection,
                output=output,
                dropout_rate=self.dropout_rate,
                dropout_kind=self.dropout_kind,
            )
        reseed(model, seed)
        return model


class RnnLm(nn.Module):
    """Embeddings, recurrent layers and the output; `forward` reads windows of text, `stepper` is decoding."""

    def __init__(
        self,
        embedding: Embedding,
        layers: Stack | Bidirectional,
        *,
        projection: nn.Linear | None,
        output: Output | AdaptiveOutput,
        dropout_rate: float,
        dropout_kind: DropoutKind,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.layers = require_causal(layers, model="a language model")
        self.projection = projection
        self.output = output
        self.dropout = SequenceDropout(dropout_rate, kind=dropout_kind)

    def forward(
        self,
        previous: Int[Tensor, "rows time"],
        state: StackState | None = None,
        *,
        truncation: Truncation = FULL,
        generator: torch.Generator | None = None,
    ) -> tuple[Float[Tensor, "rows time features"], StackState]:
        """Features of every position from the symbols before it, and the state after the last one; None is empty.

        `truncation` is that of the gradient through time (`nn.bptt`); the random kind draws from `generator`.
        """
        read = self.dropout(self.embedding(previous))
        hidden, state = self.layers(read, state, truncation=truncation, generator=generator)
        return self._features(hidden), state

    def start(self, rows: int) -> StackState:
        """The empty state, in which nothing has been read."""
        hints = self.embedding.weight.new_zeros(rows, len(self.layers.cells), self.layers.cells[0].width)
        return self.layers.begin(hints)

    def step(self, last: Int[Tensor, " rows"], state: StackState) -> tuple[Float[Tensor, "rows features"], StackState]:
        """One position."""
        hidden, state = self.layers.step(self.dropout(self.embedding(last)), state)
        return self._features(hidden), state

    def _features(self, hidden: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows features"]:
        features: Tensor = self.dropout(hidden)
        return features if self.projection is None else self.projection(features)

    def layers_by_entry(self) -> list[tuple[nn.Module, str]]:
        """The layers that ranks may gather one by one, and the method by which a loss enters them."""
        return [(cell, "run") for cell in self.layers.cells]

    def stepper(self) -> RecurrentStepper:
        """This model for the search."""
        return RecurrentStepper(self, self)

    def reader(self) -> RecurrentReader:
        """This model as texts are measured with it."""
        return RecurrentReader(self, self.embedding.weight.device)
