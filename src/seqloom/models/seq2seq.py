"""The recurrent encoder-decoder, plain (Sutskever et al., 2014) or with attention (Bahdanau et al., 2015).

    memory    h_1 … h_n = encoder(E[source])                               in both directions
    context   c = q(h_1 … h_n)                                             one vector for the whole source
    start     s_0 = begin(W_b c + b)                                       the bridge, for each decoder layer
    states    s_t = decoder(E[y_{t−1}], s_{t−1})
    attend    c_t = Σ_j softmax_j(score(s_t, h_j)) h_j
    output    P(y_t | y_1 … y_{t−1}, source) = softmax(W tanh(W_c [c_t; s_t] + b_c))

Without attention, c is all the decoder knows of the source. The decoder is in `nn.decoder`.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal, Protocol

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from seqloom.core.declaration import DataFacts, ModelSizes, Reason, SentenceReading, StepperOption
from seqloom.core.errors import ConfigError, UsageError
from seqloom.core.stepping import Source, State, Step
from seqloom.core.symbols import BEGIN, END
from seqloom.models.cell_options import CellOptions
from seqloom.models.copying import CopyOptions
from seqloom.nn.attention import AdditiveScore, Attention, AttentionScore, BilinearScore, DotScore
from seqloom.nn.decoder import Decoder, DecoderState, Query
from seqloom.nn.dropout import evaluating, reseed
from seqloom.nn.embeddings import SHARED_TYINGS, Embedding, Symbols, Tying, tied_tables
from seqloom.nn.fast.shortlist import Offered, Shortlister
from seqloom.nn.framing import with_end
from seqloom.nn.init import seeded, xavier_uniform
from seqloom.nn.outputs import Output
from seqloom.nn.packing import Pooling, pack, packing_of, pool
from seqloom.nn.pointer import Pointer, PointerOutput
from seqloom.nn.probe import listen
from seqloom.nn.recurrent import (
    Bidirectional,
    DropoutKind,
    MakeCell,
    SequenceDropout,
    Skip,
    Stack,
    Summary,
    cells_of,
    input_widths,
    summarise,
)

SIZES = (
    (2_000, 64, 64, 1),
    (10_000, 128, 128, 1),
    (100_000, 256, 256, 1),
    (500_000, 384, 384, 2),
    (2_000_000, 512, 512, 2),
    (sys.maxsize, 1024, 512, 2),
)
"""Up to so many pairs: width, embedding width and layers, from the examples for captions and small corpora to the
thousand units that the papers of 2015 use for millions."""

MAX_LEARNING_RATE = 1e-3
"""That of the example for captions. The Transformer's would be too high."""

SCORES: Mapping[str, Callable[[int, int], AttentionScore]] = {
    "dot": DotScore,
    "bilinear": BilinearScore,
    "additive": AdditiveScore,
}
"""By `model.attention`: from the widths of query and memory."""


class Seq2SeqConfig(CopyOptions, CellOptions):
    """A recurrent encoder-decoder, with attention or without."""

    student_settings: ClassVar[Mapping[str, Any]] = {"decoder_layers": 1}

    kind: Literal["seq2seq"] = "seq2seq"
    """Names this model in a config file."""
    width: int = Field(256, ge=1, le=100_000)
    """Size of the decoder's hidden states."""
    encoder_width: int | None = Field(None, ge=1, le=100_000)
    """Size of the encoder's hidden states, both directions together; by default that of the decoder."""
    embedding_width: int = Field(256, ge=1, le=100_000)
    """Size of each symbol's vector, and of the features from which the next symbol is predicted."""
    encoder_layers: int = Field(2, ge=1, le=1_000)
    """Layers of the encoder."""
    decoder_layers: int = Field(2, ge=1, le=1_000)
    """Layers of the decoder."""
    is_bidirectional: bool = True
    """Whether the encoder also reads from right to left; each direction then has half of its width."""
    skip: Skip = "none"
    """The connection past each layer of encoder and decoder: none, residual (added), highway (mixed by a gate) or dense
    (joined: each layer reads the input and all layers below it). A lowest layer whose input is not as wide as it is
    itself has no residual or highway."""
    attention: Literal["none", "dot", "bilinear", "additive"] = "bilinear"
    """How a decoder state is compared with the memory: s·h, s·W h or v·tanh(W s + U h); none for the plain
    encoder-decoder, which sees the source only through its context."""
    query: Query = "current"
    """The decoder state that attends to the memory: the one after the last symbol, or the one before it."""
    input_feeding: bool = False
    """Whether the decoder also reads what it attended to. Training then runs step by step, which is slower.
    With the current query it reads its last features (Luong), with the previous one the context (Bahdanau)."""
    summary: Summary = "last"
    """What the context is made of: the last state of each direction (last, or join, which insists on two of them), or
    the mean or maximum over the sentence."""
    context: Literal["state", "first", "every"] = "state"
    """How the context enters the decoder: as its first state (through a linear map, so that sizes may differ), as an
    input before the first symbol, or joined to every input."""
    dropout_rate: float = Field(0.2, ge=0, lt=1)
    """Share of numbers dropped from embeddings, between layers and from the features, in training."""
    dropout_kind: DropoutKind = "between"
    """Whether each number is dropped by itself (between), or the same ones at all positions of a sentence
    (variational)."""
    tying: Tying = "all"
    """Tables that are one: all (source, target, output), inputs (source, target), output (target, output) or none."""

    @property
    def needs_shared_vocabulary(self) -> bool:
        return self.copy or self.tying in SHARED_TYINGS

    @property
    def has_attention(self) -> bool:
        return self.attention != "none"

    @property
    def sentence_reading(self) -> SentenceReading:
        return SentenceReading(self._memory_width)

    def sizes_for_pairs(self, facts: DataFacts) -> ModelSizes:
        """Where the width of the states is given, the symbols have it too."""
        _, width, embedding_width, layers = next(row for row in SIZES if facts.pairs <= row[0])
        size = Reason(
            ("model.kind", "model.width", "model.embedding_width", "model.encoder_layers", "model.decoder_layers"),
            f"a recurrent model of width {width}, {layers}+{layers} layers, symbols of width {embedding_width}: a "
            "larger one would overfit this data",
        )
        if "width" in self.model_fields_set:
            embedding_width = self.width
            text = f"symbols of width {self.width}, as wide as the states"
            size = Reason(("model.kind", "model.embedding_width"), text)
        sizes = {"width": width, "embedding_width": embedding_width, "encoder_layers": layers, "decoder_layers": layers}
        return ModelSizes(sizes, (size,), max_learning_rate=MAX_LEARNING_RATE)

    def build(self, symbols: Symbols, *, seed: int, make_cell: MakeCell | None = None) -> "Seq2Seq":
        """A model with fresh weights drawn from `seed`; `make_cell` replaces the cell of the settings."""
        self.check()
        self.check_copied(symbols)
        make_cell = make_cell or self.make_cell()
        memory_width, input_width, directions = self._memory_width, self._decoder_input_width, self._directions
        rate, kind = self.dropout_rate, self.dropout_kind
        with seeded(seed):
            tables = tied_tables(symbols, self.embedding_width, self.tying)
            encoder_cells = [
                cells_of(
                    make_cell,
                    self.embedding_width,
                    width=memory_width // directions,
                    layers=self.encoder_layers,
                    directions=directions,
                    skip=self.skip,
                )
                for _ in range(directions)
            ]
            layers = (Bidirectional if self.is_bidirectional else Stack)(
                *encoder_cells, dropout_rate=rate, skip=self.skip, dropout_kind=kind
            )
            encoder = RecurrentEncoder(tables.source, layers, dropout_rate=rate, dropout_kind=kind)
            attention = None
            if self.attention != "none":
                attention = Attention(SCORES[self.attention](self.width, memory_width))
            cells = cells_of(make_cell, input_width, width=self.width, layers=self.decoder_layers, skip=self.skip)
            seen = self.width if attention is None else memory_width + self.width
            decoder = Decoder(
                tables.target,
                Stack(cells, dropout_rate=rate, skip=self.skip, dropout_kind=kind),
                attention=attention,
                join=nn.Linear(seen, self.embedding_width),
                first=nn.Linear(memory_width, input_width) if self.context == "first" else None,
                query=self.query,
                reads_context=self.context == "every",
                feeds_attention=self.input_feeding,
                dropout_rate=rate,
                dropout_kind=kind,
            )
            bridge = Bridge(memory_width, self.width, layers=self.decoder_layers) if self.context == "state" else None
            output = (PointerOutput if self.copy else Output)(tables.output, has_bias=True)
            pointer = Pointer(self.embedding_width, memory_width) if self.copy else None
            model = Seq2Seq(encoder, bridge, decoder=decoder, output=output, summary=self.summary, pointer=pointer)
        reseed(model, seed)
        return model

    @property
    def _memory_width(self) -> int:
        return self.encoder_width or self.width

    @property
    def _directions(self) -> int:
        return 2 if self.is_bidirectional else 1

    @property
    def _decoder_input_width(self) -> int:
        """Of [E[y]; c; fed]."""
        context = self._memory_width if self.context == "every" else 0
        fed = self.embedding_width if self.query == "current" else self._memory_width
        return self.embedding_width + context + (fed if self.input_feeding else 0)

    def check(self) -> None:
        """Raise if some settings contradict each other."""
        super().check()
        width, directions = self._memory_width, self._directions
        if width % directions:
            raise ConfigError(
                f"an encoder width of {width} cannot be halved between two directions; set model.encoder_width to "
                f"{f'{width - 1} or ' if width > 1 else ''}{width + 1}, or model.is_bidirectional=false"
            )
        if self.attention == "dot":
            DotScore(self.width, width)  # refuses widths that differ
        read = input_widths(
            self.embedding_width, width // directions, layers=self.encoder_layers, directions=directions, skip=self.skip
        )
        above = input_widths(self._decoder_input_width, self.width, layers=self.decoder_layers, skip=self.skip)
        self.check_reset("encoder", read, width=width // directions)
        self.check_reset("decoder", above, width=self.width)
        if self.attention == "none" and self.query == "previous":
            raise ConfigError("model.query=previous selects the state that attends, but model.attention is none")
        if self.attention == "none" and self.input_feeding:
            raise ConfigError(
                "model.input_feeding=true feeds attention back, but model.attention is none; "
                "model.context=every gives the decoder the context at every step"
            )
        if self.summary == "join" and not self.is_bidirectional:
            raise ConfigError(
                "model.summary=join joins the last states of two directions, but model.is_bidirectional is false; "
                "set model.summary=last"
            )


class RecurrentEncoder(nn.Module):
    """Embeddings and the recurrent layers over them."""

    def __init__(
        self, embedding: Embedding, layers: Stack | Bidirectional, *, dropout_rate: float, dropout_kind: DropoutKind
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.layers = layers
        self.dropout = SequenceDropout(dropout_rate, kind=dropout_kind)

    @property
    def directions(self) -> int:
        return 2 if isinstance(self.layers, Bidirectional) else 1

    def forward(self, source: Source) -> Float[Tensor, "batch source width"]:
        embedded: Tensor = self.dropout(self.embedding(source.ids))  # [batch, source, embedding]
        if isinstance(self.layers, Stack):
            return self.layers.outputs(embedded, lengths=source.lengths)
        states: Tensor = self.layers(embedded, source.lengths)  # [batch, source, width]
        return states


class Bridge(nn.Module):
    """From the context to a hint for each decoder layer, W c + b, so that no two sizes have to agree."""

    def __init__(self, context_width: int, width: int, *, layers: int) -> None:
        super().__init__()
        self.width = width
        self.layers = layers
        self.hint = nn.Linear(context_width, layers * width)
        xavier_uniform(self.hint.weight, parts=layers)
        nn.init.zeros_(self.hint.bias)

    def forward(self, context: Float[Tensor, "batch context"]) -> Float[Tensor, "batch layers width"]:
        hints: Tensor = self.hint(context)  # [batch, layers · width]
        return hints.view(len(context), self.layers, self.width)


class Seq2Seq(nn.Module):
    """Encoder, bridge, decoder and output; `forward` is teacher-forced training, `stepper` is decoding."""

    stepper_options: ClassVar[frozenset[StepperOption]] = frozenset({"shortlist"})

    def __init__(
        self,
        encoder: RecurrentEncoder,
        bridge: Bridge | None,
        *,
        decoder: Decoder,
        output: Output,
        summary: Summary,
        pointer: Pointer | None = None,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.bridge = bridge
        self.decoder = decoder
        self.output = output
        self.summary: Summary = summary
        self.pointer = pointer

    def forward(
        self, source: Source, previous: Int[Tensor, "batch target"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "tokens width"]:
        """Features of the real target positions, sentence after sentence, from the symbols before each.

        With a pointer, what the output reads of them (`nn.pointer`).
        """
        start = self.start(source)
        features: Tensor = self.decoder(previous, lengths, start=start)
        if self.pointer is None or start.pointer is None:
            return features
        return self.pointer.packed(features, packing_of(lengths, previous.shape[1]), start.pointer)

    def start(self, source: Source) -> DecoderState:
        """The decoder before its first symbol, one row per sentence."""
        values, lengths = self.encoder(source), source.lengths  # [batch, source, width]
        directions = self.encoder.directions
        context = summarise(values, lengths, summary=self.summary, directions=directions)  # [batch, width]
        hints = None if self.bridge is None else self.bridge(context)  # [batch, layers, width]
        state = self.decoder.start(values, lengths, context=context, hints=hints)
        if self.pointer is None:
            return state
        return replace(state, pointer=self.pointer.remember(values, source.ids, lengths))

    def sentence_vectors(
        self, ids: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"], *, pooling: Pooling | None = None
    ) -> Float[Tensor, "batch width"]:
        """The states of the encoder as one vector for each source, by default their mean; texts come without END."""
        source = with_end(ids, lengths)
        states = pack(self.encoder(source), packing_of(source.lengths, source.ids.shape[1]))  # [tokens, width]
        return pool(states, source.lengths, pooling or "mean")

    def teacher_forced_attention(
        self, source: Source, previous: Int[Tensor, "batch target"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch target source"] | None:
        """The attention of given targets to the source, the same that steps return; None without attention."""
        if self.decoder.attention is None:
            return None
        with listen(self.decoder.attention, "weights") as trace:
            self(source, previous, lengths)
        return torch.cat(trace["weights"], 1)  # one value for all positions, or one for each

    def layers_by_entry(self) -> list[tuple[nn.Module, str]]:
        """The layers that ranks may gather one by one, and the method by which a loss enters them.

        A decoder that takes steps in training, as many as the longest sentence has symbols, is not among them.
        """
        encoder, decoder = self.encoder.layers, self.decoder
        cells = [*encoder.cells] if isinstance(encoder, Stack) else [*encoder.rightward, *encoder.leftward]
        if not decoder.feeds_attention and decoder.first is None:
            cells += decoder.stack.cells
        return [(cell, "run") for cell in cells]

    def stepper(self, *, attention: bool = False, shortlist: Shortlister | None = None) -> "Seq2SeqStepper":
        """This model as the search sees it; with `attention`, each step also returns its attention, if it has any.

        With a `shortlist`, only its symbols are offered to a sentence.
        """
        return Seq2SeqStepper(self, gives_attention=attention, shortlist=shortlist)


class DecodesRecurrently(Protocol):
    """A model with a recurrent decoder, whatever its encoder reads: what a `Seq2SeqStepper` decodes."""

    decoder: Decoder
    output: Output
    pointer: Pointer | None

    def start(self, source: Source) -> DecoderState:
        """The decoder before its first symbol, one row per sentence."""
        ...

    def modules(self) -> Iterator[nn.Module]:
        """All modules, which are in no training mode while the model is decoded."""
        ...


class Seq2SeqStepper:
    """Decodes a recurrent encoder-decoder, without dropout and gradients in any mode of the model."""

    begin = BEGIN
    end = END

    def __init__(self, model: DecodesRecurrently, *, gives_attention: bool, shortlist: Shortlister | None) -> None:
        if model.pointer is not None and shortlist is not None:
            raise UsageError("search.shortlist cannot be combined with model.copy, which offers all symbols")
        self.model = model
        self.gives_attention = gives_attention
        self.shortlist = shortlist

    def start(self, source: Source) -> DecoderState:
        with evaluating(self.model):
            state = self.model.start(source)
        if self.shortlist is None:
            return state
        return replace(state, offered=Offered.of(self.model.output, self.shortlist(source)))

    def step(self, state: State, last: Int[Tensor, " rows"]) -> Step:
        assert isinstance(state, DecoderState)
        with evaluating(self.model):
            decoded = self.model.decoder.step(self.model.decoder.embed(last), state)
            offered, owners = state.offered, state.owners
            if self.model.pointer is not None and state.pointer is not None:
                read = owners.rows_of(self.model.pointer(owners.gather(decoded.features), state.pointer))
                log_probs = self.model.output.log_probs(read)  # [rows, symbols]
            elif offered is None:
                log_probs = self.model.output.log_probs(decoded.features)  # [rows, symbols]
            else:
                # [rows, offered]
                log_probs = offered.log_probs(decoded.features, owners=owners.sentence, slots=owners.slot)
        attention = None
        if self.gives_attention and decoded.weights is not None:
            attention = owners.rows_of(decoded.weights)  # [rows, source]
        symbols = None if offered is None else offered.symbols[owners.sentence]
        return Step(log_probs, decoded.state, attention=attention, symbols=symbols)
