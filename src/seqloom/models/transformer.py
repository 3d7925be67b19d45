"""The Transformer for translation (Vaswani et al., 2017).

    encoder   x = √width · E[source] + position      each layer: self-attention, feed-forward
    decoder   y = √width · E[previous] + position    each layer: causal self-attention, attention to x, feed-forward
    output    P(next symbol) = softmax(W y)

Every sublayer sits on a bypass with a layer norm before it (the default) or after it (the paper).
"""

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar, cast

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from pydantic import Field, model_validator
from torch import Tensor, nn

from seqloom.core.declaration import (
    DataFacts,
    ModelSizes,
    Reason,
    SentenceReading,
    StepperOption,
    TaskKind,
)
from seqloom.core.errors import ConfigError, UsageError
from seqloom.core.stepping import NEVER_STOPPED, BeamSteps, Source, State, Step
from seqloom.core.symbols import BEGIN, END
from seqloom.models.copying import CopyOptions
from seqloom.models.frames import FrameConfig
from seqloom.nn.blocks import (
    AbsolutePositions,
    Activation,
    FeedForward,
    LearnedPositions,
    NoPositions,
    NormPlace,
    RelativeBias,
    Residual,
    SinusoidalPositions,
    SinusoidLayout,
    check_bound,
)
from seqloom.nn.dropout import Dropout, reseed
from seqloom.nn.embeddings import SHARED_TYINGS, Embedding, Symbols, Tying, tied_tables
from seqloom.nn.encoders import EncoderLayer
from seqloom.nn.fast.beam_attention import (
    NO_BIASES,
    BeamCache,
    EncoderMemory,
    Lineage,
    StepAttention,
    Table,
    loops_compute,
    uses_loops,
)
from seqloom.nn.fast.compiled_step import CompiledStep, InputTables
from seqloom.nn.fast.decoder_plan import DecoderPlan, StepBuffers
from seqloom.nn.fast.selection import log_softmax_by_loops
from seqloom.nn.fast.shortlist import Offered, Shortlister
from seqloom.nn.framing import Framing, with_end
from seqloom.nn.init import seeded
from seqloom.nn.multihead import CrossAttention, HeadPolicy, SelfAttention, ShawKeys, check_heads, nearby
from seqloom.nn.outputs import Output, check_symbols, log_softmax_
from seqloom.nn.packing import Packing, Pooling, additive, future, length_mask, pack, packing_of, pool, side_by_side
from seqloom.nn.pointer import Pointer, PointerMemory, PointerOutput
from seqloom.nn.probe import listen

Layer = TypeVar("Layer", bound=nn.Module)

MAX_SHARED_ROWS = 12
"""Rows up to which a step is one compiled call even where a library would be faster with more of them: with several
threads, or with products in eight bits."""
MAX_COMPILED_BEAM = 63
"""Candidates up to which the best of each row are kept in order by moving them."""
MAX_LIVE_SHARE = 0.5
"""Share of unfinished sentences of a search up to which the others are dropped: copying the rest is then cheaper than
continuing with all."""

SIZES = (
    (2_000, 64, 128, 2, 4),
    (10_000, 128, 256, 3, 4),
    (100_000, 128, 256, 4, 4),
    (500_000, 256, 1024, 4, 4),
    (2_000_000, 384, 1536, 6, 6),
    (sys.maxsize, 512, 2048, 6, 8),
)
"""Up to so many pairs: width, feed-forward size, layers and heads that published systems use, from captions (29,000
pairs) to newspapers (millions)."""


class TransformerConfig(CopyOptions):
    """An encoder-decoder Transformer."""

    other_task_kinds: ClassVar[tuple[TaskKind, ...]] = ("unsupervised", "denoising")
    trunk: ClassVar[tuple[str, ...]] = ("encoder.", "decoder.", "output.")
    is_rounded_by_int8: ClassVar[bool] = True
    student_settings: ClassVar[Mapping[str, Any]] = {"decoder_layers": 1}

    kind: Literal["transformer"] = "transformer"
    """Names this model in a config file."""
    width: int = Field(256, ge=2, le=100_000)
    """Size of each token's vector."""
    heads: int = Field(4, ge=1)
    """Attention heads; each takes width / heads numbers."""
    encoder_layers: int = Field(3, ge=1, le=1_000)
    """Layers of the encoder."""
    decoder_layers: int = Field(3, ge=1, le=1_000)
    """Layers of the decoder."""
    feed_forward: int = Field(1024, ge=1, le=1_000_000)
    """Inner size of the feed-forward blocks."""
    activation: Activation = "relu"
    """Between the two feed-forward layers: relu (the paper), gelu, gelu_tanh (an approximation of it) or silu."""
    dropout_rate: float = Field(0.1, ge=0, lt=1)
    """Share of numbers dropped from embeddings and from the output of each sublayer, in training."""
    inner_dropout_rate: float = Field(0.0, ge=0, lt=1)
    """Share of numbers dropped between the two feed-forward layers, in training."""
    norm: NormPlace = "before"
    """Layer norm before each sublayer (trains without much care) or after it (the paper)."""
    final_norm: bool | None = None
    """A last norm after each stack; by default only with norm=before."""
    positions: Literal["sinusoidal", "concatenated", "learned", "shaw", "bias", "none"] = "sinusoidal"
    """sinusoidal (added, the paper), concatenated (joined and projected), learned (a row per position), shaw
    (relative, on the keys), bias (relative, a number per head and distance) or none."""
    sinusoids: SinusoidLayout = "alternating"
    """Layout of sinusoidal positions: alternating (sine, cosine, …, the paper), halves (all sines, then all cosines) or
    tensor2tensor (halves, with rates that end at 1/10000)."""
    first_position: int = Field(0, ge=0, le=1_000)
    """Number of the first position, from which sinusoids and the rows of learned positions are counted."""
    longest: int = Field(512, ge=1, le=1_000_000)
    """Rows of the table for learned positions, from the first position on; later positions share the last one."""
    is_bounded: bool = False
    """Whether a text longer than the table of learned positions is an error."""
    scale_embeddings: bool = True
    """Whether embeddings are multiplied by √width."""
    embedding_norm: bool = False
    """A norm of the embedded symbols, before the layers."""
    farthest: int = Field(16, ge=1, le=100_000)
    """Distance at which shaw positions are clipped."""
    attention_window: int | None = Field(None, ge=1, le=1_000_000)
    """In self-attention, each token attends to those at smaller distances than this; to all by default. Time and memory
    then grow with the length, not with its square. The decoder still attends to the whole source."""
    tying: Tying = "all"
    """Tables that are one: all (source, target, output), inputs (source, target), output (target, output) or none."""
    output_projection: bool = True
    """Whether the joined heads are mixed by a matrix W_O."""
    output_bias: bool = False
    """Whether each symbol has a bias in the output."""
    absent: tuple[int, ...] = ()
    """Symbols that the model never writes: their probability is 0."""
    frame: FrameConfig = FrameConfig()
    """Symbols that the model reads around its texts."""

    @model_validator(mode="after")
    def _is_sound(self) -> "TransformerConfig":
        """Checked when the settings are read, before the data is."""
        try:
            check_heads(self.width, self.heads)
        except ConfigError as error:
            raise ValueError(str(error)) from error
        if self.attention_window is not None and self.positions == "bias":
            raise ValueError(
                f"model.attention_window={self.attention_window} cannot be combined with model.positions=bias, which "
                "has a number for each pair of positions; for relative positions use model.positions=shaw"
            )
        if self.copy and self.absent:
            raise ValueError("model.copy=true cannot be combined with model.absent, whose symbols are never written")
        return self

    @property
    def needs_shared_vocabulary(self) -> bool:
        return self.copy or self.tying in SHARED_TYINGS

    @property
    def has_attention(self) -> bool:
        return True

    @property
    def attention_heads(self) -> tuple[int, int]:
        return self.decoder_layers, self.heads

    @property
    def sentence_reading(self) -> SentenceReading:
        frame = self.frame.symbols()
        around = 1 + len(frame.source_before) + len(frame.source_after)  # END is read too
        is_bounded = self.positions == "learned" and self.is_bounded
        return SentenceReading(self.width, self.longest - around if is_bounded else None)

    def sizes_for_pairs(self, facts: DataFacts) -> ModelSizes:
        _, width, feed_forward, layers, heads = next(row for row in SIZES if facts.pairs <= row[0])
        sizes = {"width": width, "feed_forward": feed_forward, "heads": heads}
        reason = Reason(
            ("model.kind", "model.width", "model.encoder_layers", "model.decoder_layers", "model.heads"),
            f"a Transformer of width {width}, {layers}+{layers} layers, {heads} heads: a larger one would overfit this "
            "data",
        )
        return ModelSizes({**sizes, "encoder_layers": layers, "decoder_layers": layers}, (reason,))

    def build(self, symbols: Symbols, *, seed: int) -> "Transformer":
        """A model with fresh weights drawn from `seed`, which also begins its dropout."""
        self.check_copied(symbols)
        with seeded(seed):
            tables = tied_tables(symbols, self.width, self.tying)
            encoder_layers = [
                EncoderLayer(self._self_attention(), self._feed_forward(), self._bypass)
                for _ in range(self.encoder_layers)
            ]
            decoder_layers = [
                DecoderLayer(
                    self._self_attention(),
                    CrossAttention(self.width, self.heads, has_output=self.output_projection),
                    self._feed_forward(),
                    bypass=self._bypass,
                )
                for _ in range(self.decoder_layers)
            ]
            encoder = self._stack(tables.source, encoder_layers, is_causal=False)
            decoder = self._stack(tables.target, decoder_layers, is_causal=True)
            kind = PointerOutput if self.copy else Output
            output = kind(tables.output, has_bias=self.output_bias, absent=self.absent)
            pointer = Pointer(self.width, self.width) if self.copy else None
            model = Transformer(encoder, decoder, output, framing=self._framing(symbols), pointer=pointer)
        reseed(model, seed)
        return model

    def _stack(self, embedding: Embedding, layers: Sequence[Layer], *, is_causal: bool) -> "TransformerStack[Layer]":
        positions: AbsolutePositions = NoPositions()
        if self.positions in ("sinusoidal", "concatenated"):
            combine: Literal["add", "concat"] = "add" if self.positions == "sinusoidal" else "concat"
            positions = SinusoidalPositions(
                self.width, combine=combine, layout=self.sinusoids, first=self.first_position
            )
        elif self.positions == "learned":
            positions = LearnedPositions(
                self.width, positions=self.longest, first=self.first_position, is_bounded=self.is_bounded
            )
        has_norm = self.norm == "before" if self.final_norm is None else self.final_norm
        return TransformerStack(
            embedding,
            positions,
            layers,
            bias=RelativeBias(self.heads, is_causal=is_causal) if self.positions == "bias" else None,
            norm=nn.LayerNorm(self.width) if has_norm else nn.Identity(),
            dropout_rate=self.dropout_rate,
            scale=math.sqrt(self.width) if self.scale_embeddings else 1.0,
            embedding_norm=nn.LayerNorm(self.width) if self.embedding_norm else None,
        )

    def _framing(self, symbols: Symbols) -> Framing:
        """Read when a model is built, so that one of several languages can be chosen until then."""
        frame = self.frame.symbols()
        check_symbols("model.frame", (*frame.source_before, *frame.source_after), symbols.source)
        check_symbols("model.frame", frame.target_before, symbols.target)
        return Framing(frame.source_before, frame.source_after, frame.target_before or (BEGIN,))

    def _self_attention(self) -> SelfAttention:
        relative = None
        if self.positions == "shaw":
            relative = ShawKeys(self.width // self.heads, farthest=self.farthest)
        return SelfAttention(
            self.width,
            self.heads,
            has_output=self.output_projection,
            relative=relative,
            window=self.attention_window,
        )

    def _feed_forward(self) -> FeedForward:
        return FeedForward(
            self.width, self.feed_forward, activation=self.activation, dropout_rate=self.inner_dropout_rate
        )

    def _bypass(self) -> Residual:
        return Residual(self.width, norm=self.norm, dropout_rate=self.dropout_rate)


class DecoderLayer(nn.Module):
    """Causal self-attention, attention to the memory, feed-forward, each on its bypass."""

    def __init__(
        self,
        attention: SelfAttention,
        cross: CrossAttention,
        feed_forward: FeedForward,
        *,
        bypass: Callable[[], Residual],
    ) -> None:
        super().__init__()
        self.self = attention
        self.cross = cross
        self.feed_forward = feed_forward
        self.around_self, self.around_cross, self.around_feed_forward = bypass(), bypass(), bypass()

    def forward(
        self,
        x: Float[Tensor, "tokens width"],
        packing: Packing,
        *,
        bias: Float[Tensor, "heads target target"] | None,
        memory: Float[Tensor, "source width"],
        memory_packing: Packing,
        memory_mask: Float[Tensor, "#batch #heads #queries keys"],
    ) -> Float[Tensor, "tokens width"]:
        # Padding needs no mask here: it comes after the tokens, where a causal query never attends.
        own = None if bias is None else bias[None]
        keys = self.cross.key_values(memory, memory_packing)
        x = self.around_self(x, lambda x: self.self(x, packing, mask=own, is_causal=bias is None))
        x = self.around_cross(x, lambda x: self.cross(x, packing, keys, mask=memory_mask))
        x = self.around_feed_forward(x, self.feed_forward)
        return x

    def step(
        self, x: Float[Tensor, "rows width"], state: "TransformerState", layer: int
    ) -> Float[Tensor, "rows width"]:
        """One position for every row; its key and value go into the cache."""
        x = self.around_self(x, lambda x: state.attend_to_self(self.self, x, layer))
        x = self.around_cross(x, lambda x: state.attend_to_memory(self.cross, x, layer))
        x = self.around_feed_forward(x, self.feed_forward)
        return x


class TransformerStack(nn.Module, Generic[Layer]):
    """The layers of an encoder or decoder, with embeddings and positions before them and a norm after."""

    def __init__(
        self,
        embedding: Embedding,
        positions: AbsolutePositions,
        layers: Sequence[Layer],
        *,
        bias: RelativeBias | None,
        norm: nn.Module,
        dropout_rate: float,
        scale: float,
        embedding_norm: nn.LayerNorm | None = None,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.positions = positions
        self.bias = bias
        self.layers = cast("Sequence[Layer]", nn.ModuleList(layers))
        self.norm = norm
        self.dropout = Dropout(dropout_rate)
        self.scale = scale
        self.embedding_norm = embedding_norm

    def embed(
        self, ids: Int[Tensor, " tokens"], positions: Int[Tensor, " tokens"], *, longest: int
    ) -> Float[Tensor, "tokens width"]:
        """dropout(norm(scale · E[id] + position)), where the scale is √width or 1, and there may be no norm"""
        vectors = self.positions(self.embedding(ids) * self.scale, positions, longest=longest)
        if self.embedding_norm is not None:
            vectors = self.embedding_norm(vectors)
        embedded: Tensor = self.dropout(vectors)
        return embedded


StepBias = Callable[[range, int], Float[Tensor, "heads queries keys"]]
"""What is added to the scores of queries at these positions against so many keys."""


class Transformer(nn.Module):
    """Encoder, decoder and output; `forward` is teacher-forced training, `stepper` is decoding."""

    stepper_options: ClassVar[frozenset[StepperOption]] = frozenset({"heads", "shortlist"})
    embeddings: ClassVar[tuple[str, ...]] = (
        *("encoder.embedding", "encoder.positions", "encoder.bias"),
        *("decoder.embedding", "decoder.positions", "decoder.bias"),
    )
    """Beginnings of the names of what comes before the layers."""

    def __init__(
        self,
        encoder: "TransformerStack[EncoderLayer]",
        decoder: "TransformerStack[DecoderLayer]",
        output: Output,
        *,
        framing: Framing = Framing(),  # noqa: B008 - a value
        pointer: Pointer | None = None,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.output = output
        self.framing = framing
        self.pointer = pointer

    def forward(
        self, source: Source, previous: Int[Tensor, "batch target"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "tokens width"]:
        """Features of the real target positions, sentence after sentence, from the symbols before each.

        With a pointer, what the output reads of them (`nn.pointer`).
        """
        memory, memory_packing, memory_mask = self.encode(source)  # [source tokens, width]
        own = packing_of(lengths, previous.shape[1])
        previous, lengths = self.framing.target(previous, lengths)
        packing = packing_of(lengths, previous.shape[1])
        x = decode_at_once(
            self.decoder, previous, packing, memory=memory, memory_packing=memory_packing, memory_mask=memory_mask
        )
        features: Tensor = self.framing.own_features(x, packing)
        copied = self.copied(source, memory, memory_packing)
        if self.pointer is None or copied is None:
            return features
        return self.pointer.packed(features, own, copied)

    def copied(self, source: Source, memory: Float[Tensor, "tokens width"], packing: Packing) -> PointerMemory | None:
        """What can be copied from a source, the symbols around it among them, given what `encode` gives.

        None of a model that does not copy.
        """
        if self.pointer is None:
            return None
        source = self.framing.source(source)
        places = memory.new_zeros(packing.batch * packing.longest, memory.shape[1])
        values = places.index_copy(0, packing.flat, memory).view(packing.batch, packing.longest, -1)
        return self.pointer.remember(values, source.ids, source.lengths)

    def encode(self, source: Source) -> tuple[Tensor, Packing, Tensor]:
        """The memory (packed), the places of its tokens, and the mask that hides its padding, for the framed source."""
        source = self.framing.source(source)
        packing = packing_of(source.lengths, source.ids.shape[1])
        # [tokens, width]
        x = self.encoder.embed(pack(source.ids, packing), packing.positions, longest=packing.longest)
        # A sentence without tokens attends to its first padding, whose keys and values are zero: all −∞ would give NaN.
        # [batch, 1, 1, source]
        mask = additive(length_mask(source.lengths.clamp(min=1), packing.longest), x.dtype)[:, None, None]
        attention_mask = mask
        if self.encoder.bias is not None:
            # [batch, heads, source, source]
            attention_mask = mask + self.encoder.bias(range(packing.longest), packing.longest)
        for layer in self.encoder.layers:
            x = layer(x, packing, attention_mask)
        memory: Tensor = self.encoder.norm(x)
        return memory, packing, mask

    def sentence_vectors(
        self, ids: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"], *, pooling: Pooling | None = None
    ) -> Float[Tensor, "batch width"]:
        """The memory of each source as one vector, by default its mean; texts come without END."""
        memory, packing, _ = self.encode(with_end(ids, lengths))
        return pool(memory, packing.mask().sum(1), pooling or "mean")

    def teacher_forced_attention(
        self,
        source: Source,
        previous: Int[Tensor, "batch target"],
        lengths: Int[Tensor, " batch"],
        *,
        heads: str = "mean",
    ) -> Float[Tensor, "batch target source"]:
        """The attention of given targets to the source, the same that steps return; 0 or anything at padding."""
        layers = self.decoder.layers
        policy = HeadPolicy.of(heads, layers=len(layers), heads=layers[0].cross.heads)
        return policy.choose(self.cross_attention(source, previous, lengths, layers=[policy.layer])[0])

    def cross_attention(
        self,
        source: Source,
        previous: Int[Tensor, "batch target"],
        lengths: Int[Tensor, " batch"],
        *,
        layers: Sequence[int] | None = None,
    ) -> list[Float[Tensor, "batch heads target source"]]:
        """The attention of given targets to the source by each head of some layers, or of all."""
        chosen = range(len(self.decoder.layers)) if layers is None else layers
        with ExitStack() as stack:
            traces = [stack.enter_context(listen(self.decoder.layers[at].cross, "weights")) for at in chosen]
            self(source, previous, lengths)
        longest = source.ids.shape[1]
        weights = [trace["weights"][0][:, :, self.framing.hidden_steps :] for trace in traces]
        return [self.framing.own_attention(each, source.lengths, longest=longest) for each in weights]

    @property
    def step_bias(self) -> StepBias | None:
        """What a step of the decoder adds to the scores of its self-attention: relative positions, or a window."""
        attention, like = self.decoder.layers[0].self, self.decoder.embedding.weight
        if self.decoder.bias is not None or attention.window is None:
            return self.decoder.bias

        def outside(queries: range, keys: int) -> Tensor:
            near = nearby(queries, keys, window=attention.window, is_causal=True, like=like)
            return near.expand(attention.heads, -1, -1)

        return outside

    def layers_by_entry(self) -> list[tuple[nn.Module, str]]:
        """The layers that ranks may gather one by one, and the method by which a loss enters them."""
        return [(layer, "forward") for layer in (*self.encoder.layers, *self.decoder.layers)]

    def stepper(
        self, *, attention: bool = False, heads: str = "mean", shortlist: Shortlister | None = None
    ) -> "TransformerStepper":
        """This model as the search sees it; with `attention`, each step also returns its attention to the source.

        `heads` selects which (`nn/multihead.py`). With a `shortlist`, only the symbols that it names for a
        sentence are offered.
        """
        return TransformerStepper(self, heads=heads if attention else None, shortlist=shortlist)


def decode_at_once(
    decoder: TransformerStack[DecoderLayer],
    previous: Int[Tensor, "batch target"],
    packing: Packing,
    *,
    memory: Float[Tensor, "source width"],
    memory_packing: Packing,
    memory_mask: Float[Tensor, "#batch #heads #queries keys"],
) -> Float[Tensor, "tokens width"]:
    """What the output reads at all real target positions, each from the symbols up to there; `packing` is theirs."""
    # [target tokens, width]
    x = decoder.embed(pack(previous, packing), packing.positions, longest=packing.longest)
    bias = None
    if decoder.bias is not None:
        bias = decoder.bias(range(packing.longest), packing.longest)  # [heads, target, target]
        bias = bias + future(packing.longest, packing.longest, like=bias)
    for layer in decoder.layers:
        x = layer(x, packing, bias=bias, memory=memory, memory_packing=memory_packing, memory_mask=memory_mask)
    normed: Tensor = decoder.norm(x)
    return normed


class DecodesMemory(Protocol):
    """A model with the decoder of a Transformer, whatever its encoder reads: what a `TransformerStepper` decodes."""

    decoder: TransformerStack[DecoderLayer]
    output: Output
    framing: Framing
    pointer: Pointer | None
    training: bool

    @property
    def step_bias(self) -> StepBias | None:
        """What a step of the decoder adds to the scores of its self-attention."""
        ...

    def encode(self, source: Source) -> tuple[Tensor, Packing, Tensor]:
        """The memory (packed), the places of its vectors, and the mask that hides its padding."""
        ...

    def copied(self, source: Source, memory: Tensor, packing: Packing) -> PointerMemory | None:
        """What can be copied from a source; None if the model does not copy."""
        ...


@dataclass(frozen=True)
class TransformerState:
    """The state of each row of a Transformer: its place in the shared memory, and its history in the cache.

    The rows of one sentence are queries side by side, so that neither the memory nor the cache is copied per row.
    """

    memory: EncoderMemory
    cache: BeamCache
    lineage: Lineage
    offered: Offered | None = None
    buffers: StepBuffers = field(default_factory=StepBuffers)
    relative: StepBias | None = None
    """What gives self-attention its bias in this step."""
    pointer: PointerMemory | None = None
    """What can be copied."""

    @cached_property
    def mask(self) -> Float[Tensor, "#sentences #heads #queries keys"] | None:
        """The mask and bias of self-attention in a step, by position and slot."""
        mask, slots = self.lineage.mask(self.cache.slots, dtype=self.memory.mask.dtype), self.cache.slots
        if self.relative is None:
            return mask
        bias = self.relative(range(self.position - 1, self.position), self.position)[None]  # [1, heads, 1, positions]
        by_slot: Tensor = bias.repeat_interleave(slots, dim=3)  # [1, heads, 1, positions · slots]
        return by_slot if mask is None else mask + by_slot

    @cached_property
    def attention(self) -> StepAttention:
        """The attention of this step by compiled loops."""
        return StepAttention(self.cache, self.lineage, self.memory)

    @property
    def position(self) -> int:
        return self.lineage.ancestors.shape[1]

    def select(self, rows: Int[Tensor, " picked"]) -> "TransformerState":
        lineage, memory, cache, offered = self.lineage, self.memory, self.cache, self.offered
        pointer = self.pointer
        if len(rows) == len(lineage.owners) and torch.equal(rows, torch.arange(len(rows), device=rows.device)):
            return self
        owners, ancestors = lineage.owners[rows], lineage.ancestors[rows]  # [picked], [picked, positions]
        sentences = len(memory.mask)
        if sentences > 1 and len(live := owners.unique()) <= MAX_LIVE_SHARE * sentences:
            owners, sentences = torch.searchsorted(live, owners), len(live)
            memory, cache = memory.of_sentences(live), cache.of_sentences(live, positions=self.position)
            offered = None if offered is None else offered.of_sentences(live)
            pointer = None if pointer is None else pointer.of_sentences(live)
        queries = side_by_side(owners, sentences)
        lineage = Lineage(owners, queries, ancestors)
        return TransformerState(memory, cache, lineage, offered, self.buffers, pointer=pointer)

    def begin_step(self, relative: StepBias | None) -> "TransformerState":
        """The state for its next position: room in the cache, and each row in its slot."""
        lineage, position = self.lineage, self.position
        ancestors = torch.cat([lineage.ancestors, lineage.queries.positions[:, None]], 1)  # [rows, positions + 1]
        cache = self.cache.at(position, slots=lineage.queries.longest)
        now = Lineage(lineage.owners, lineage.queries, ancestors)
        return TransformerState(self.memory, cache, now, self.offered, self.buffers, relative, self.pointer)

    def attend_to_self(
        self, attention: SelfAttention, x: Float[Tensor, "rows width"], layer: int
    ) -> Float[Tensor, "rows width"]:
        """The rows attend to their own histories, as queries of one attention or by compiled loops."""
        is_plain = self.relative is None and attention.is_plain and not attention.weights.has_listeners
        if is_plain and uses_loops(x):
            mixed = self.attention.to_self(Table(attention.qkv(x)), layer, Table(torch.empty_like(x)))
            attended: Tensor = attention.output(mixed.tensor)
            return attended
        return attention.step(
            x, self.cache, layer, queries=self.lineage.queries, position=self.position - 1, mask=self.mask
        )

    def attend_to_memory(
        self, cross: CrossAttention, x: Float[Tensor, "rows width"], layer: int
    ) -> Float[Tensor, "rows width"]:
        """The rows of each sentence attend to its memory: as queries of one attention, or by compiled loops."""
        if cross.is_plain and not cross.weights.has_listeners and uses_loops(x):
            mixed = self.attention.to_memory(Table(cross.query(x)), layer, Table(torch.empty_like(x)))
            output: Tensor = cross.output(mixed.tensor)
            return output
        attended: Tensor = cross(x, self.lineage.queries, self.memory.layers[layer], mask=self.memory.mask)
        return attended


class TransformerStepper:
    """Decodes a Transformer with caches: one position at a time, the rows of a sentence side by side."""

    begin = BEGIN
    end = END

    def __init__(self, model: DecodesMemory, *, heads: str | None, shortlist: Shortlister | None) -> None:
        """`heads` selects the attention that is returned; None returns none."""
        if model.pointer is not None and shortlist is not None:
            raise UsageError("search.shortlist cannot be combined with model.copy, which offers all symbols")
        layers = model.decoder.layers
        self.model = model
        self.policy = None if heads is None else HeadPolicy.of(heads, layers=len(layers), heads=layers[0].cross.heads)
        self.shortlist = shortlist
        self.plan: DecoderPlan | None = None
        self.compiled: CompiledStep | None = None
        self._tables: InputTables | None = None
        if heads is None:
            if model.pointer is None:
                self.compiled = CompiledStep.of([*layers], model.decoder.norm, model.output)
            packed = None if self.compiled is None else self.compiled.products
            self.plan = DecoderPlan.of([*layers], model.decoder.norm, packed)

    def with_shortlist(self, shortlist: Shortlister) -> "TransformerStepper":
        """The same stepper, which offers the symbols of these lists."""
        listed = copy(self)
        listed.shortlist = shortlist
        return listed

    def start(self, source: Source) -> TransformerState:
        decoder = self.model.decoder
        sentences = len(source.lengths)
        memory, packing, mask = self.model.encode(source)
        layers = tuple(layer.cross.key_values(memory, packing) for layer in decoder.layers)
        _, heads, _, size = layers[0].keys.shape
        rows = torch.arange(sentences, device=source.ids.device)
        state = TransformerState(
            memory=EncoderMemory(layers, mask, (source.lengths + self.model.framing.around).clamp(min=1)),
            cache=BeamCache.empty(len(decoder.layers), sentences, heads=heads, size=size, like=memory),
            lineage=Lineage(rows, side_by_side(rows, sentences), rows.new_empty(sentences, 0)),
            offered=None if self.shortlist is None else Offered.of(self.model.output, self.shortlist(source)),
            pointer=self.model.copied(source, memory, packing),
        )
        for symbol in self.model.framing.begin[:-1]:
            state = state.begin_step(self.model.step_bias)
            self._features(rows.new_full((sentences,), symbol), state)
        return state

    def step(self, state: State, last: Int[Tensor, " rows"]) -> Step:
        assert isinstance(state, TransformerState)
        last = self.model.framing.last_symbols(last, position=state.position)
        state = state.begin_step(self.model.step_bias)
        offered, owners = state.offered, state.lineage.owners
        symbols = None if offered is None else offered.symbols[owners]
        step = self._compiled_for(len(last), offered)
        inputs = None if step is None else self._inputs(state.cache.room)
        check_bound(state.position, self.model.decoder.positions.bound)
        if step is not None and inputs is not None:
            log_probs = step.log_probs(inputs, last, state.cache, state.lineage, state.memory, offered)
            return Step(log_probs, state, symbols=symbols)
        features, attention = self._features(last, state)
        if self.model.pointer is not None and state.pointer is not None:
            read = self.model.pointer.packed(features, state.lineage.queries, state.pointer)
            log_probs = self.model.output.log_probs(read)
        elif offered is None:
            log_probs = self._log_probs(features)
        else:
            log_probs = offered.log_probs(features, owners=owners, slots=state.lineage.queries.positions)
        return Step(log_probs, state, attention=attention, symbols=symbols)

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
        """Steps of a beam search in one call, for layers, positions and numbers of rows where that is possible."""
        assert isinstance(state, TransformerState)
        memory, offered, position = state.memory, state.offered, state.position
        check_bound(position + 1, self.model.decoder.positions.bound)
        step = self._compiled_for(max(len(last), beam * len(memory.mask)), offered)
        if step is None or beam > MAX_COMPILED_BEAM:
            return None
        cache = state.cache.at(position, slots=max(beam, state.lineage.queries.longest))
        inputs = self._inputs(cache.room)
        if inputs is None:
            return None
        steps = min(steps, min(cache.room, inputs.count) - position)
        last = self.model.framing.last_symbols(last, position=position)
        run = step.beams(
            inputs,
            last,
            cache,
            state.lineage,
            memory,
            offered,
            totals=totals,
            beam=beam,
            end=self.end,
            steps=steps,
            stop=stop,
            candidates=beam + 1 if candidates is None else candidates,
            never=never,
            renormalises=renormalises,
        )
        owners = torch.from_numpy(run.owners)
        lineage = Lineage(owners, side_by_side(owners, len(memory.mask)), torch.from_numpy(run.ancestors))
        after = TransformerState(memory, cache, lineage, offered, state.buffers)
        return BeamSteps(run.values, run.rows, run.symbols, run.log_probs, after, len(owners), run.not_a_number)

    def _compiled_for(self, rows: int, offered: Offered | None) -> CompiledStep | None:
        """The compiled step, if it computes so many rows."""
        step, plan = self.compiled, self.plan
        if step is None or plan is None or not loops_compute(rows) or plan.has_listeners or self.model.training:
            return None
        if rows <= MAX_SHARED_ROWS:
            return step
        has_int8_layers, has_int8_output = step.int8_parts
        has_int8 = has_int8_layers or (has_int8_output and offered is None)
        return None if has_int8 or torch.get_num_threads() > 1 else step

    def _inputs(self, positions: int) -> InputTables | None:
        """The embeddings and the codes of so many positions; None where these are not just added.

        There are fewer if the model has no more.
        """
        known, decoder = self._tables, self.model.decoder
        norm, bound = decoder.embedding_norm, decoder.positions.bound
        positions = positions if bound is None else min(positions, bound)
        if known is not None and known.count >= positions:
            return known
        if isinstance(decoder.positions, SinusoidalPositions) and decoder.positions.combine != "add":
            return None
        weight = decoder.embedding.weight.detach()  # [symbols, width]
        zeros = weight.new_zeros(positions, weight.shape[1])
        codes = decoder.positions(zeros, torch.arange(positions), longest=positions)
        biases = None
        if (bias := self.model.step_bias) is not None:
            last = bias(range(positions - 1, positions), positions).detach()  # [heads, 1, positions]
            biases = last[:, 0].flip(-1)  # [heads, distances]
        self._tables = InputTables.of(weight, factor=decoder.scale, positions=codes, norm=norm, biases=biases)
        return self._tables

    def _features(self, last: Int[Tensor, " rows"], state: TransformerState) -> tuple[Tensor, Tensor | None]:
        """What the output reads after the last symbols, and the attention of the rows if it is requested."""
        position = state.position - 1
        # [rows, width]
        x = self.model.decoder.embed(last, torch.full_like(last, position), longest=position + 1)
        inputs = self._inputs(state.cache.room) if self._is_planned(x) else None
        has_biases = inputs is not None or state.relative is None
        if self.plan is not None and self._is_planned(x) and has_biases:
            attention = StepAttention(
                state.cache,
                state.lineage,
                state.memory,
                scale=self.plan.scale,
                biases=NO_BIASES if inputs is None else inputs.biases,
            )
            return self.plan(x, attention, state.buffers), None
        return self._by_layers(x, state)

    def _log_probs(self, features: Float[Tensor, "rows width"]) -> Float[Tensor, "rows symbols"]:
        """log P of all symbols."""
        if not self._is_planned(features):
            return log_softmax_(self.model.output(features))
        if self.compiled is None or self.compiled.int8_parts[1]:
            return log_softmax_by_loops(self.model.output(features))
        return log_softmax_by_loops(self.compiled.scores(features))

    def _is_planned(self, x: Float[Tensor, "rows width"]) -> bool:
        return self.plan is not None and uses_loops(x) and not self.plan.has_listeners

    def _by_layers(self, x: Float[Tensor, "rows width"], state: TransformerState) -> tuple[Tensor, Tensor | None]:
        """What the output reads, and the attention of the rows if it is requested."""
        attention = None
        for number, layer in enumerate(self.model.decoder.layers):
            if self.policy is not None and number == self.policy.layer:
                with listen(layer.cross, "weights") as trace:
                    x = layer.step(x, state, number)
                # [sentences, heads, slots, source] to [rows, source]
                framing, memory, lineage = self.model.framing, state.memory, state.lineage
                chosen = self.policy.choose(trace["weights"][0])[lineage.owners, lineage.queries.positions]
                lengths = memory.lengths[lineage.owners] - framing.around
                attention = framing.own_attention(chosen, lengths, longest=chosen.shape[1] - framing.around)
            else:
                x = layer.step(x, state, number)
        return self.model.decoder.norm(x), attention
