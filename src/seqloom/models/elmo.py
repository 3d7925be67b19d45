"""ELMo: embeddings from a language model that reads in both directions (Peters et al., 2018).

    words      x_t = E[w_t], or from the letters of w_t (`nn.character_input`)
    rightward  →h_l[t] = →cell_l(→h_{l−1}[t], →h_l[t − 1]),  →h_0 = x      has read w_0 … w_t
    leftward   ←h_l[t] = ←cell_l(←h_{l−1}[t], ←h_l[t + 1]),  ←h_0 = x      has read w_t … w_{n+1}
    next       P(w_{t+1} | w_0 … w_t)     = softmax(W →P →h_L[t] + b)
    previous   P(w_{t−1} | w_t … w_{n+1}) = softmax(W ←P ←h_L[t] + b)

A sentence w_1 … w_n is framed by w_0 = BEGIN and w_{n+1} = END. Words and output are shared, the layers are not: if
they met below the top, each word would be predicted from states that have seen it. Training needs no labels, and the
states depend on the meaning of a word in its sentence:

    concat       [→h_L[t]; ←h_L[t]; x_t]
    scalar mix   γ Σ_j softmax(s)_j h_j[t],  h_j = [→h_j; ←h_j],  h_0 = [x; x]     s, γ learned with the task
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.core.declaration import ModelSizes, Pieces, Purpose, TaskKind, TextFacts
from seqloom.core.errors import ConfigError, UsageError
from seqloom.core.symbols import BEGIN, END, PAD
from seqloom.models.cell_options import CellOptions
from seqloom.models.reading import RecurrentReader, RecurrentStepper
from seqloom.nn.cells.cell import check_lengths
from seqloom.nn.dropout import evaluating, reseed
from seqloom.nn.embeddings import MARKS, CharacterInput, Embedding, Symbols, spell_vocabulary
from seqloom.nn.init import linear, seeded
from seqloom.nn.outputs import AdaptiveOutput, Output
from seqloom.nn.packing import length_mask, pack_features, packing_of
from seqloom.nn.recurrent import (
    DropoutKind,
    MakeCell,
    SequenceDropout,
    Skip,
    Stack,
    StackState,
    cells_of,
    input_widths,
    reorder,
    turning,
)

# The scalar mix: one vector from those of all layers, with weights that a task learns (Peters et al., 2018).


class ScalarMix(nn.Module):
    """A weighted mean of layers, scaled.

        y = γ Σ_j softmax(s)_j h_j            s starts at 0: all layers equal;  γ starts at 1

    With `normalise`, each h_j first gets mean 0 and variance 1, so that large values do not give a layer more weight.
    """

    def __init__(self, layers: int, *, normalise: bool = False) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.zeros(layers))
        self.scale = nn.Parameter(torch.ones(()))
        self.normalise = normalise

    @property
    def weights(self) -> Float[Tensor, " layers"]:
        """The share of each layer; they sum to one."""
        return self.scores.softmax(0)

    def forward(self, layers: Float[Tensor, "layers *rows width"]) -> Float[Tensor, "*rows width"]:
        if len(layers) != len(self.scores):
            raise UsageError(
                f"this mix has {len(self.scores)} weights, but got {len(layers)} layers; pass one for each weight"
            )
        values = F.layer_norm(layers, layers.shape[-1:]) if self.normalise else layers
        mixed: Tensor = self.scale * torch.tensordot(self.weights, values, dims=1)
        return mixed


class ElmoConfig(CellOptions):
    """Word vectors that know their sentence: a language model in both directions."""

    purpose: ClassVar[Purpose] = "language model"
    task_kind: ClassVar[TaskKind] = "bidirectional_language_modelling"
    pieces: ClassVar[Pieces] = "word"

    kind: Literal["elmo"] = "elmo"
    """Names this model in a config file."""
    width: int = Field(256, ge=1, le=100_000)
    """Size of the hidden states of each direction."""
    embedding_width: int | None = Field(None, ge=1, le=100_000)
    """Size of each word's own vector; by default that of the hidden states, which a scalar mix needs."""
    layers: int = Field(2, ge=1, le=1_000)
    """Recurrent layers of each direction."""
    input: Literal["table", "characters"] = "table"
    """Where the vectors of words come from: a table with a row for each, or their letters, so that words which were
    never seen have one too."""
    skip: Skip = "none"
    """The connection past each layer: none, residual (added), highway (mixed in by a gate) or dense (joined)."""
    dropout_rate: float = Field(0.2, ge=0, lt=1)
    """Share of numbers dropped from words, between layers and from the features, in training."""
    dropout_kind: DropoutKind = "between"
    """Whether each number is dropped by itself (between), or the same ones at all positions of a sentence
    (variational)."""
    tying: Literal["output", "none"] | None = None
    """Whether words and output share one table; by default they do where words have a table."""
    character_width: int = Field(16, ge=1, le=10_000)
    """Size of a letter's vector, for input=characters."""
    filter_widths: tuple[int, ...] = (1, 2, 3, 4, 5)
    """How many letters the patterns span that are looked for, for input=characters."""
    filters: int = Field(16, ge=1, le=10_000)
    """Patterns of width 1; of width k there are k times as many, for input=characters."""
    highways: int = Field(1, ge=0, le=1_000)
    """Highway layers after the patterns, for input=characters."""
    longest_word: int = Field(50, gt=MARKS, le=10_000)
    """Letters of a word that are looked at, in bytes and with two marks, for input=characters."""

    def check(self) -> None:
        """Raise if some settings contradict each other."""
        super().check()
        read = input_widths(self._embedding_width, self.width, layers=self.layers, skip=self.skip)
        self.check_reset("language model", read, width=self.width)
        if self.input == "characters" and self.tying == "output":
            raise ConfigError(
                "model.tying=output gives the output the table of the words, but model.input=characters has none; "
                "leave model.tying out"
            )
        if not self.filter_widths or min(self.filter_widths) < 1 or max(self.filter_widths) > self.longest_word:
            raise ConfigError(
                f"model.filter_widths={list(self.filter_widths)} must be one or more widths from 1 to "
                f"model.longest_word={self.longest_word}"
            )

    @property
    def _embedding_width(self) -> int:
        return self.embedding_width or self.width

    def sizes_for_text(self, facts: TextFacts, pieces: Pieces) -> ModelSizes:
        return self.text_sizes(facts.tokens(pieces), layers=2, each=" in each direction")

    def build(self, symbols: Symbols, *, seed: int, make_cell: MakeCell | None = None) -> "Elmo":
        """A model of the target side's symbols with fresh weights drawn from `seed`.

        `make_cell` replaces the cell of the settings.
        """
        self.check()
        if self.input == "characters" and len(symbols.pieces) != symbols.target:
            raise ConfigError(
                f"model.input=characters spells all {symbols.target} symbols, but the pieces of {len(symbols.pieces)} "
                "were given; build the model with Symbols(…, pieces=…), or set model.input=table"
            )
        with seeded(seed):
            words: Embedding | CharacterInput
            if self.input == "table":
                words = Embedding(symbols.target, self._embedding_width)
            else:
                words = CharacterInput(
                    spell_vocabulary(symbols.pieces, longest=self.longest_word),
                    self._embedding_width,
                    character_width=self.character_width,
                    filter_widths=self.filter_widths,
                    filters=self.filters,
                    highways=self.highways,
                    longest=self.longest_word,
                )
            tied = words.weight if isinstance(words, Embedding) and self.tying != "none" else None
            make_cell = make_cell or self.make_cell()
            rightward, leftward = (self._direction(make_cell, is_tied=tied is not None) for _ in range(2))
            weight = Embedding(symbols.target, self.width).weight if tied is None else tied
            dropout = SequenceDropout(self.dropout_rate, kind=self.dropout_kind)
            model = Elmo(words, rightward, leftward=leftward, output=Output(weight, has_bias=True), dropout=dropout)
        reseed(model, seed)
        return model

    def _direction(self, make_cell: MakeCell, *, is_tied: bool) -> "Direction":
        width = self._embedding_width
        cells = cells_of(make_cell, width, width=self.width, layers=self.layers, skip=self.skip)
        projection = linear(self.width, width) if is_tied and width != self.width else None
        layers = Stack(cells, dropout_rate=self.dropout_rate, skip=self.skip, dropout_kind=self.dropout_kind)
        return Direction(layers, projection)


# --- sentences -------------------------------------------------------------------------------------------------------


def frame(ids: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"]) -> Int[Tensor, "batch framed"]:
    """Sentences between BEGIN and END; what follows after their lengths becomes padding."""
    check_lengths(lengths, rows=len(ids), time=ids.shape[1])
    words = ids.masked_fill(~length_mask(lengths, ids.shape[1]), PAD)  # [batch, time]
    framed = F.pad(words, (1, 1), value=PAD)  # [batch, time + 2]
    framed[:, 0] = BEGIN
    return framed.scatter_(1, (lengths + 1)[:, None].long(), END)


@dataclass(frozen=True)
class Layers:
    """What is known of each position of framed sentences, layer by layer."""

    words: Float[Tensor, "batch framed embedding"]
    rightward: tuple[Float[Tensor, "batch framed width"], ...]
    leftward: tuple[Float[Tensor, "batch framed width"], ...]


@dataclass(frozen=True)
class BothWays:
    """Features from which symbols are predicted, sentence after sentence, n + 1 symbols each.

    `following` predicts w_1 … END from the symbols before each, `preceding` BEGIN … w_n from those after.
    """

    following: Float[Tensor, "tokens features"]
    preceding: Float[Tensor, "tokens features"]


@dataclass(frozen=True)
class WordFeatures:
    """What is known of each word, without the frame: its own vector, and what each layer adds of its sentence."""

    words: Float[Tensor, "batch time embedding"]
    layers: Float[Tensor, "layers batch time joined"]

    def concat(self) -> Float[Tensor, "batch time features"]:
        """[→h_L; ←h_L; x]"""
        return torch.cat([self.layers[-1], self.words], -1)

    def stack(self) -> Float[Tensor, "stacked batch time joined"]:
        """[x; x] below all layers, which must be as wide."""
        twice = torch.cat([self.words, self.words], -1)  # [batch, time, 2 · embedding]
        if twice.shape != self.layers.shape[1:]:
            raise UsageError(
                f"a scalar mix needs layers of one width, but twice the words' vectors have {twice.shape[-1]} numbers "
                f"and the states {self.layers.shape[-1]}; leave model.embedding_width out, or use concat"
            )
        return torch.cat([twice[None], self.layers])  # [1 + layers, batch, time, joined]


@runtime_checkable
class GivesContextualVectors(Protocol):
    """A model that gives vectors of words in their sentences."""

    output: Output

    def features(self, ids: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"]) -> WordFeatures:
        """What is known of each word of padded sentences."""
        ...


# --- the model -------------------------------------------------------------------------------------------------------


class Direction(nn.Module):
    """The layers that read in one direction, and the projection of their top for the output."""

    def __init__(self, layers: Stack, projection: nn.Linear | None) -> None:
        super().__init__()
        self.layers = layers
        self.projection = projection

    def read(
        self, words: Float[Tensor, "batch time embedding"], lengths: Int[Tensor, " batch"]
    ) -> tuple[Float[Tensor, "batch time width"], ...]:
        """What each layer leaves at every position."""
        found: list[Tensor] = []
        stack, left = self.layers, words

        def layer(number: int, read: Tensor) -> Tensor:
            nonlocal left
            cell = stack.cells[number]
            start = cell.begin(read.new_zeros(len(read), cell.width))
            hidden = cell.outputs(read, start, lengths=lengths)  # [batch, time, width]
            left = stack.climb.bypasses[number](left, hidden)
            found.append(left)
            return hidden

        stack.climb(words, layer)
        return tuple(found)

    def features(self, top: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows features"]:
        """What the output reads."""
        return top if self.projection is None else self.projection(top)


class Elmo(nn.Module):
    """Two language models with one table of words and one output; `forward` is training, `features` is use."""

    def __init__(
        self,
        words: Embedding | CharacterInput,
        rightward: Direction,
        *,
        leftward: Direction,
        output: Output,
        dropout: SequenceDropout,
    ) -> None:
        super().__init__()
        self.words = words
        self.rightward = rightward
        self.leftward = leftward
        self.output = output
        self.dropout = dropout

    def read(self, words: Float[Tensor, "batch framed embedding"], lengths: Int[Tensor, " batch"]) -> Layers:
        """Read framed sentences, given as the vectors of their words, in both directions. Lengths count the frame."""
        dropped = self.dropout(words)
        turn = turning(lengths, words.shape[1])
        leftward = self.leftward.read(reorder(dropped, turn), lengths)
        return Layers(words, self.rightward.read(dropped, lengths), tuple(reorder(each, turn) for each in leftward))

    def layers_by_entry(self) -> list[tuple[nn.Module, str]]:
        """The layers that ranks may gather one by one, and the method by which a loss enters them."""
        return [(cell, "run") for side in (self.rightward, self.leftward) for cell in side.layers.cells]

    def forward(self, ids: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"]) -> BothWays:
        """Features of every symbol from those before it, and from those after it; sentences come without a frame."""
        found = self.read(self.words(frame(ids, lengths)), lengths + 2)
        packing = packing_of(lengths + 1, ids.shape[1] + 1)
        # The last position of the rightward half and the first of the leftward half predict nothing.
        # [batch, time + 2, width] → [batch, time + 1, width] → [tokens, width]
        following = pack_features(self.dropout(found.rightward[-1][:, :-1]).contiguous(), packing)
        preceding = pack_features(self.dropout(found.leftward[-1][:, 1:]).contiguous(), packing)
        return BothWays(self.rightward.features(following), self.leftward.features(preceding))

    def features(self, ids: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"]) -> WordFeatures:
        """Vectors of each word of padded sentences. After the end of a sentence they are finite but arbitrary."""
        return self._without_frame(self.read(self.words(frame(ids, lengths)), lengths + 2))

    def features_of_words(self, sentences: Sequence[Sequence[str]]) -> WordFeatures:
        """The same for sentences of any words, which are read by their letters."""
        if not isinstance(self.words, CharacterInput):
            raise UsageError(
                "this model has a table of its words, so it cannot read others; train one with model.input=characters"
            )
        lengths = torch.tensor([len(sentence) for sentence in sentences], device=self.words.spelling.device)
        ids = lengths.new_zeros(len(sentences), int(lengths.max()) if len(sentences) else 0)
        framed = self.words(frame(ids, lengths))  # [batch, time + 2, embedding]
        written = [word for sentence in sentences for word in sentence]
        if written:
            is_word = F.pad(length_mask(lengths, ids.shape[1]), (1, 1), value=False)  # [batch, time + 2]
            framed = framed.masked_scatter(is_word[:, :, None], self.words.written(written))
        return self._without_frame(self.read(framed, lengths + 2))

    def _without_frame(self, found: Layers) -> WordFeatures:
        joined = [torch.cat(pair, -1) for pair in zip(found.rightward, found.leftward, strict=True)]
        return WordFeatures(found.words[:, 1:-1], torch.stack(joined)[:, :, 1:-1])  # [layers, batch, time, 2 · width]

    def forward_half(self) -> "ForwardHalf":
        """The rightward half as a language model of its own, with the same weights."""
        return ForwardHalf(self)

    def stepper(self) -> RecurrentStepper:
        """The rightward half for the search."""
        return self.forward_half().stepper()

    def reader(self) -> RecurrentReader:
        """The rightward half as texts are measured with it: each line by itself, as it was trained."""
        return RecurrentReader(self.forward_half(), self.output.weight.device, context="line", has_blank_lines=False)


class ForwardHalf:
    """An ELMo that reads from left to right only, as a language model: it scores, steps and generates."""

    def __init__(self, model: Elmo) -> None:
        self.model = model
        self.output: Output | AdaptiveOutput = model.output

    def __call__(
        self, previous: Int[Tensor, "rows time"], state: StackState | None
    ) -> tuple[Float[Tensor, "rows time features"], StackState]:
        """Features of every position from the symbols before it, and the state after the last one; None is empty."""
        model = self.model
        hidden, state = model.rightward.layers(model.dropout(model.words(previous)), state)  # [rows, time, width]
        return model.rightward.features(model.dropout(hidden)), state

    def start(self, rows: int) -> StackState:
        """The empty state, in which nothing has been read."""
        layers = self.model.rightward.layers
        return layers.begin(self.model.output.weight.new_zeros(rows, len(layers.cells), layers.cells[0].width))

    def step(self, last: Int[Tensor, " rows"], state: StackState) -> tuple[Float[Tensor, "rows features"], StackState]:
        """One position."""
        model = self.model
        hidden, state = model.rightward.layers.step(model.dropout(model.words(last)), state)  # [rows, width]
        return model.rightward.features(model.dropout(hidden)), state

    def stepper(self) -> RecurrentStepper:
        """This half for the search."""
        return RecurrentStepper(self, self.model)


# ELMo in other models: one vector for each word of a sentence, for a tagger or a classifier to read.

Combination = Literal["scalar_mix", "concat"]
"""How layers become one vector: γ Σ_j softmax(s)_j h_j (the paper), or [→h_L; ←h_L; x] (joined)."""


class ElmoFeatures(nn.Module):
    """One vector for each word of padded sentences.

    Frozen, the language model stays as it is and only the mix is learned; else it is trained with the task.
    """

    def __init__(
        self, elmo: Elmo, *, combine: Combination = "scalar_mix", is_frozen: bool = True, normalise: bool = False
    ) -> None:
        super().__init__()
        if combine == "concat" and normalise:
            raise ConfigError("normalise=True is for combine='scalar_mix'; joined layers are not normalised")
        self.elmo = elmo
        self.is_frozen = is_frozen
        self.mix = None
        if combine == "scalar_mix":
            self.mix = ScalarMix(1 + len(elmo.rightward.layers.cells), normalise=normalise)
        if is_frozen:
            elmo.requires_grad_(False)

    @property
    def width(self) -> int:
        """Of each vector."""
        cell = self.elmo.rightward.layers.cells[-1]
        return 2 * cell.width + (self.elmo.rightward.layers.cells[0].input_width if self.mix is None else 0)

    def forward(
        self, ids: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch time features"]:
        if self.is_frozen:
            with evaluating(self.elmo):
                found = self.elmo.features(ids, lengths)
        else:
            found = self.elmo.features(ids, lengths)
        mixed: Tensor = found.concat() if self.mix is None else self.mix(found.stack())
        return mixed
