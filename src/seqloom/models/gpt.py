"""The decoder-only Transformer: GPT-2 (Radford et al., 2019) and, by its settings, Llama (Touvron et al., 2023).

    read      x_t = E[w_{t−1}] (+ P[t])                          a learned row for each position, or rotary positions
    layers    x ← x + attention(norm(x))                         each position attends to itself and those before it
              x ← x + feed_forward(norm(x))
    output    P(w_t | w_1 … w_{t−1}) = softmax(W norm(x_t))      W = E where tied

                 positions   norm    feed-forward      heads of keys   biases          norm of queries and keys
    GPT-2        learned     layer   tanh GELU         all             all             none
    Llama        rotary      RMS     gated SiLU        fewer           none            none
    Qwen 2       rotary      RMS     gated SiLU        fewer           q, k, v         none
    Qwen 3       rotary      RMS     gated SiLU        fewer           none            before the positions
    HunYuan      rotary      RMS     gated SiLU        fewer           none            after the positions

The model has no state besides what it reads: a window of text is read as a whole, and decoding keeps keys and values.
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, cast

import torch
from jaxtyping import Float, Int
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.core.config import Config
from seqloom.core.declaration import (
    ModelSettings,
    ModelSizes,
    Pieces,
    Purpose,
    Reason,
    SentenceReading,
    TaskKind,
    TextFacts,
)
from seqloom.core.errors import ConfigError
from seqloom.core.reading import Context
from seqloom.core.stepping import Source, State, Step
from seqloom.core.symbols import BEGIN, END
from seqloom.models.frames import FrameConfig
from seqloom.models.reading import WindowReader
from seqloom.nn.blocks import (
    AbsolutePositions,
    Activation,
    FeedForward,
    LearnedPositions,
    NoPositions,
    NormKind,
    Residual,
    check_bound,
    make_norm,
)
from seqloom.nn.dropout import Dropout, evaluating, reseed
from seqloom.nn.embeddings import Embedding, Symbols
from seqloom.nn.fast.beam_attention import BeamCache, Lineage, loops_compute
from seqloom.nn.fast.causal_plan import CausalPlan
from seqloom.nn.init import seeded
from seqloom.nn.multihead import HeadNorm, SelfAttention, attend, check_groups, check_heads, nearby
from seqloom.nn.outputs import Output
from seqloom.nn.packing import Packing, Pooling, full_packing, join_heads, pack, packing_of, pool, side_by_side
from seqloom.nn.rotary import Rotary, RotaryKind, llama3_rates, rotary_rates, yarn_rates

SIZES = (
    (20_000, 64, 2, 2),
    (200_000, 128, 3, 4),
    (10_000_000, 128, 4, 4),
    (100_000_000, 256, 6, 8),
    (sys.maxsize, 512, 8, 8),
)
"""Up to so many tokens: width, layers and heads."""

WINDOWS: dict[Pieces, int] = {"char": 128, "word": 64, "bpe": 128, "unigram": 128}
"""Positions of a model that is trained here: a window of text, all of it seen by its last position."""

MAX_PLANNED_ROWS = 12
"""Rows up to which a step is computed by packed products even where there are more threads for a library."""
MAX_LIVE_SHARE = 0.5
"""Share of unfinished texts of a search up to which the others are dropped: copying the rest is then cheaper than
continuing with all."""


class RotaryConfig(Config):
    """Rotary positions."""

    kind: RotaryKind = "default"
    """How rates are changed for long texts: default (not at all), linear, ntk, llama3 or yarn."""
    base: float = Field(10_000.0, gt=1, le=1e12)
    """The slowest pair of numbers turns about once in 2π · base positions."""
    factor: float = Field(1.0, ge=1, le=1e6)
    """How much longer texts are than those of the first training; that of the base for ntk."""
    slow: float = Field(1.0, gt=0, le=1e6)
    """llama3 and yarn: pairs with fewer turns in a text of the first training are slowed by the whole factor."""
    fast: float = Field(4.0, gt=0, le=1e6)
    """llama3 and yarn: pairs with more turns are not slowed."""
    trained: int = Field(8192, ge=1, le=100_000_000)
    """llama3 and yarn: positions of a text of the first training."""
    is_rounded: bool = True
    """yarn: whether the borders between slow and fast are whole pairs."""
    strength: float = Field(1.0, gt=0, le=100)
    """yarn: factor of turned queries and keys."""

    @model_validator(mode="after")
    def _is_sound(self) -> "RotaryConfig":
        if self.kind in ("llama3", "yarn") and self.fast <= self.slow:
            raise ValueError(f"model.rotary.fast={self.fast:g} must be larger than model.rotary.slow={self.slow:g}")
        return self

    def make(self, size: int) -> Rotary:
        """The rates of these settings for heads of this size."""
        rates = rotary_rates(size, base=self.base)
        match self.kind:
            case "linear":
                rates = rates / self.factor
            case "ntk":
                rates = rotary_rates(size, base=self.base * self.factor ** (size / (size - 2)))
            case "llama3":
                rates = llama3_rates(rates, factor=self.factor, slow=self.slow, fast=self.fast, trained=self.trained)
            case "yarn":
                rates = yarn_rates(
                    size,
                    base=self.base,
                    factor=self.factor,
                    slow=self.slow,
                    fast=self.fast,
                    trained=self.trained,
                    is_rounded=self.is_rounded,
                )
            case "default":
                pass
        return Rotary(rates, factor=self.strength if self.kind == "yarn" else 1.0)


class GptConfig(ModelSettings):
    """A decoder-only Transformer. The defaults are those of GPT-2, in a size for small texts."""

    purpose: ClassVar[Purpose] = "language model"
    task_kind: ClassVar[TaskKind] = "language_modelling"
    is_rounded_by_int8: ClassVar[bool] = True
    reads_windows: ClassVar[bool] = True

    kind: Literal["gpt"] = "gpt"
    """Names this model in a config file."""
    width: int = Field(128, ge=2, le=100_000)
    """Size of each token's vector."""
    heads: int = Field(4, ge=1, le=10_000)
    """Attention heads."""
    key_heads: int | None = Field(None, ge=1, le=10_000)
    """Heads of keys and values, each for as many neighbouring heads of queries; by default as many as heads."""
    head_size: int | None = Field(None, ge=1, le=100_000)
    """Numbers of each head; width / heads by default."""
    layers: int = Field(4, ge=1, le=1_000)
    """Layers, each of attention and feed-forward."""
    feed_forward: int | None = Field(None, ge=1, le=1_000_000)
    """Inner size of the feed-forward blocks; 4 · width by default."""
    activation: Activation = "gelu_tanh"
    """In the feed-forward blocks: gelu_tanh (GPT-2), silu (Llama), gelu or relu."""
    gated: bool = False
    """Whether a gate multiplies the inner layer of the feed-forward blocks (Llama)."""
    norm_kind: NormKind = "layer"
    """The norm before each sublayer and after the last: layer (GPT-2) or rms (Llama)."""
    norm_epsilon: float = Field(1e-5, gt=0, le=1)
    """Added to the variance in norms."""
    head_norm: HeadNorm | None = None
    """An RMS norm of each query and key, before positions turn them (Qwen 3) or after (HunYuan)."""
    positions: Literal["learned", "rotary"] = "learned"
    """learned (a row per position, GPT-2) or rotary (queries and keys are turned, Llama)."""
    rotary: RotaryConfig = RotaryConfig()
    """The rates of rotary positions."""
    longest: int = Field(128, ge=1, le=16_777_216)
    """Positions of the longest text that is read at once; task.length by default. Longer texts are read in windows."""
    attention_window: int | None = Field(None, ge=1, le=16_777_216)
    """Positions that one attends to, itself counted (the sliding window of Mistral); all before it by default. Time and
    memory then grow with the length, not with its square."""
    attention_bias: bool = True
    """Whether queries, keys and values have biases."""
    output_bias: bool = True
    """Whether the matrix that mixes the heads has a bias."""
    feed_forward_bias: bool = True
    """Whether the feed-forward blocks have biases."""
    dropout_rate: float = Field(0.1, ge=0, lt=1)
    """Share of numbers dropped from embeddings and from the output of each sublayer, in training."""
    attention_dropout_rate: float = Field(0.0, ge=0, lt=1)
    """Share of attention weights dropped, in training; nanoGPT drops as many as of the other numbers."""
    tying: Literal["output", "none"] = "output"
    """Whether the table of the embeddings is also that of the output."""
    context: Context = "text"
    """How texts are read if nothing else is requested: lines one after another, or each line by itself."""
    frame: FrameConfig = FrameConfig()
    """Symbols that an imported model reads around its texts."""
    absent: tuple[int, ...] = ()
    """Symbols that an imported model does not have; they are never written."""
    extra_ends: tuple[int, ...] = ()
    """Further symbols at which a text of an imported model ends."""

    @model_validator(mode="after")
    def _is_sound(self) -> "GptConfig":
        """Checked when the settings are read, before the data is."""
        try:
            if self.head_size is None:
                check_heads(self.width, self.heads)
            check_groups(self.heads, self.key_heads or self.heads)
        except ConfigError as error:
            raise ValueError(str(error)) from error
        size = self._head_size
        if self.positions == "rotary" and (size % 2 or size < 4):
            raise ValueError(f"model.positions=rotary turns pairs of numbers, and heads have {size}; make them even")
        if len(self.frame.target_before) > 1 or self.frame.source_before or self.frame.source_after:
            raise ValueError("model.frame of a language model has one symbol before its texts, and no source")
        return self

    @property
    def _head_size(self) -> int:
        return self.head_size or self.width // self.heads

    @property
    def sentence_reading(self) -> SentenceReading:
        return SentenceReading(self.width, self.longest - 1)  # BEGIN is read too

    def sizes_for_text(self, facts: TextFacts, pieces: Pieces) -> ModelSizes:
        _, width, layers, heads = next(row for row in SIZES if facts.tokens(pieces) <= row[0])
        window = min(WINDOWS[pieces], self.longest) if "longest" in self.model_fields_set else WINDOWS[pieces]
        why = f"{layers} layers of width {width}, {heads} heads: a larger model would overfit this text"
        reasons = (
            Reason(("model.kind", "model.width", "model.layers", "model.heads"), why),
            Reason(("model.longest",), f"{window} positions, each of which sees all before it"),
        )
        settings = {"width": width, "layers": layers, "heads": heads, "longest": window}
        return ModelSizes(settings, reasons, max_learning_rate=1e-3, window=window)

    def build(self, symbols: Symbols, *, seed: int) -> "Gpt":
        """A model of the target side's symbols with fresh weights drawn from `seed`, which also begins its dropout."""
        rotary = self.rotary.make(self._head_size) if self.positions == "rotary" else None
        with seeded(seed):
            embedding = Embedding(symbols.target, self.width)
            positions: AbsolutePositions = NoPositions()
            if self.positions == "learned":
                positions = LearnedPositions(self.width, positions=self.longest, is_bounded=True)
            layers = [self._layer(rotary) for _ in range(self.layers)]
            table = embedding if self.tying == "output" else Embedding(symbols.target, self.width)
            model = Gpt(
                embedding,
                positions,
                layers,
                norm=make_norm(self.width, kind=self.norm_kind, epsilon=self.norm_epsilon),
                output=Output(table.weight, absent=self.absent),
                settings=self,
            )
        reseed(model, seed)
        return model

    def _layer(self, rotary: Rotary | None) -> "GptLayer":
        attention = SelfAttention(
            self.width,
            self.heads,
            head_size=self.head_size,
            key_heads=self.key_heads,
            has_bias=self.attention_bias,
            has_output_bias=self.output_bias,
            rotary=rotary,
            head_norm=self.head_norm,
            epsilon=self.norm_epsilon,
            window=self.attention_window,
            dropout_rate=self.attention_dropout_rate,
        )
        feed_forward = FeedForward(
            self.width,
            self.feed_forward or 4 * self.width,
            activation=self.activation,
            has_bias=self.feed_forward_bias,
            is_gated=self.gated,
        )
        # The sum of 2 · layers branches then begins with the variance of one (GPT-2).
        with torch.no_grad():
            for last in (attention.output, feed_forward.outer):
                cast("nn.Linear", last).weight.mul_(1 / math.sqrt(2 * self.layers))
        return GptLayer(attention, feed_forward, bypasses=(self._bypass(), self._bypass()))

    def _bypass(self) -> Residual:
        return Residual(
            self.width,
            norm="before",
            dropout_rate=self.dropout_rate,
            kind=self.norm_kind,
            epsilon=self.norm_epsilon,
        )


class GptLayer(nn.Module):
    """Causal self-attention, then feed-forward, each on its bypass."""

    def __init__(
        self, attention: SelfAttention, feed_forward: FeedForward, *, bypasses: tuple[Residual, Residual]
    ) -> None:
        super().__init__()
        self.self = attention
        self.feed_forward = feed_forward
        self.around_self, self.around_feed_forward = bypasses

    def forward(self, x: Float[Tensor, "tokens width"], packing: Packing) -> Float[Tensor, "tokens width"]:
        x = self.around_self(x, lambda x: self.self(x, packing, mask=None, is_causal=True))
        x = self.around_feed_forward(x, self.feed_forward)
        return x

    def step(self, x: Float[Tensor, "rows width"], state: "GptState", layer: int) -> Float[Tensor, "rows width"]:
        """One position for every row; its key and value go into the cache."""
        x = self.around_self(x, lambda x: state.attend(self.self, x, layer))
        x = self.around_feed_forward(x, self.feed_forward)
        return x

    def read(
        self, x: Float[Tensor, "tokens width"], state: "GptState", layer: int, *, count: int
    ) -> Float[Tensor, "tokens width"]:
        """`count` further positions of every row, row after row."""
        x = self.around_self(x, lambda x: state.attend_further(self.self, x, layer, count=count))
        x = self.around_feed_forward(x, self.feed_forward)
        return x


class Gpt(nn.Module):
    """Embeddings, layers and the output; `forward` reads windows of text, `stepper` is decoding."""

    embeddings: ClassVar[tuple[str, ...]] = ("embedding.", "positions")
    """Beginnings of the names of what comes before the layers."""

    def __init__(
        self,
        embedding: Embedding,
        positions: AbsolutePositions,
        layers: Sequence[GptLayer],
        *,
        norm: nn.Module,
        output: Output,
        settings: GptConfig,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.positions = positions
        self.layers = cast("Sequence[GptLayer]", nn.ModuleList(layers))
        self.norm = norm
        self.output = output
        self.dropout = Dropout(settings.dropout_rate)
        self.begin = settings.frame.target_before[-1]
        self.extra_ends = list(settings.extra_ends)
        self.longest, self.window, self.context = settings.longest, settings.attention_window, settings.context

    def forward(
        self, previous: Int[Tensor, "rows time"], state: tuple[()] | None = None
    ) -> tuple[Float[Tensor, "rows time width"], tuple[()]]:
        """Features of every position from the symbols before it. Nothing is carried from window to window."""
        assert not state, "a window of text is read by itself"
        rows, time = previous.shape
        packing = full_packing(rows, time, device=previous.device)
        x = self.embed(pack(previous, packing), packing.positions, longest=time)  # [tokens, width]
        for layer in self.layers:
            x = layer(x, packing)
        features: Tensor = self.norm(x)
        return features.view(rows, time, -1), ()

    def embed(
        self, ids: Int[Tensor, " tokens"], positions: Int[Tensor, " tokens"], *, longest: int
    ) -> Float[Tensor, "tokens width"]:
        """dropout(E[id] + position)"""
        check_bound(longest, self.longest)
        if self.begin != BEGIN:
            ids = torch.where(ids == BEGIN, self.begin, ids)
        embedded: Tensor = self.dropout(self.positions(self.embedding(ids), positions, longest=longest))
        return embedded

    def log_probs(self, features: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows symbols"]:
        """log P of every symbol; all symbols that end a text count as END."""
        return self.with_one_end(self.output.log_probs(features))

    def with_one_end(self, log_probs: Float[Tensor, "*rows symbols"]) -> Float[Tensor, "*rows symbols"]:
        """END with the probability of all symbols that end a text, in place; the others have none."""
        if self.extra_ends:
            log_probs[..., END] = log_probs[..., [END, *self.extra_ends]].logsumexp(-1)
            log_probs[..., self.extra_ends] = -torch.inf
        return log_probs

    def sentence_vectors(
        self, ids: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"], *, pooling: Pooling | None = None
    ) -> Float[Tensor, "batch width"]:
        """The features of BEGIN and the text as one vector, by default their mean; texts come without BEGIN and END."""
        features, _ = self(F.pad(ids, (1, 0), value=BEGIN))  # no position sees the padding after it
        packed = pack(features, packing_of(lengths + 1, features.shape[1]))  # [tokens, width]
        return pool(packed, lengths + 1, pooling or "mean")

    def layers_by_entry(self) -> list[tuple[nn.Module, str]]:
        """The layers that ranks may gather one by one, and the method by which a loss enters them."""
        return [(layer, "forward") for layer in self.layers]

    def stepper(self) -> "GptStepper":
        """This model for the search."""
        return GptStepper(self)

    def reader(self) -> WindowReader:
        """This model as texts are measured with it."""
        return WindowReader(self, self.embedding.weight.device, context=self.context)


@dataclass(frozen=True)
class GptState:
    """The cache of a search, and the rows in it. Rows that share their beginning share its keys and values."""

    cache: BeamCache
    lineage: Lineage
    window: int | None

    @property
    def position(self) -> int:
        return self.lineage.ancestors.shape[1]

    @cached_property
    def mask(self) -> Float[Tensor, "#sentences #heads #queries keys"] | None:
        """The mask of a step, by position and slot."""
        slots, last = self.cache.slots, self.position - 1
        mask = self.lineage.mask(slots, dtype=self.cache.keys.dtype)
        if self.window is None or last < self.window:
            return mask
        near = nearby(range(last, last + 1), last + 1, window=self.window, is_causal=True, like=self.cache.keys)
        by_slot = near[None, None].repeat_interleave(slots, dim=3)  # [1, 1, 1, positions · slots]
        return by_slot if mask is None else mask + by_slot

    def select(self, rows: Int[Tensor, " picked"]) -> "GptState":
        lineage, cache = self.lineage, self.cache
        if len(rows) == len(lineage.owners) and torch.equal(rows, torch.arange(len(rows), device=rows.device)):
            return self
        owners, ancestors = lineage.owners[rows], lineage.ancestors[rows]  # [picked], [picked, positions]
        texts = lineage.queries.batch
        if texts > 1 and len(live := owners.unique()) <= MAX_LIVE_SHARE * texts:
            owners, texts = torch.searchsorted(live, owners), len(live)
            cache = cache.of_sentences(live, positions=self.position)
        return GptState(cache, Lineage(owners, side_by_side(owners, texts), ancestors), self.window)

    def begin_step(self, count: int = 1) -> "GptState":
        """The state for its next positions: room in the cache, and each row in its slot."""
        lineage = self.lineage
        own = lineage.queries.positions[:, None].expand(-1, count)  # [rows, count]
        cache = self.cache.at(self.position, slots=lineage.queries.longest, count=count)
        ancestors = torch.cat([lineage.ancestors, own], 1)  # [rows, positions + count]
        return GptState(cache, Lineage(lineage.owners, lineage.queries, ancestors), self.window)

    def attend(
        self, attention: SelfAttention, x: Float[Tensor, "rows width"], layer: int
    ) -> Float[Tensor, "rows width"]:
        """The rows attend to their own histories, as queries of one attention."""
        return attention.step(
            x, self.cache, layer, queries=self.lineage.queries, position=self.position - 1, mask=self.mask
        )

    def attend_further(
        self, attention: SelfAttention, x: Float[Tensor, "tokens width"], layer: int, *, count: int
    ) -> Float[Tensor, "tokens width"]:
        """The last `count` positions of each row, which attend to its history and to each other."""
        owners, ancestors = self.lineage.owners, self.lineage.ancestors
        rows, first = len(owners), self.position - count
        packing = full_packing(rows, count, device=x.device)
        query, key, value = attention.split(x, packing)  # [rows, heads, count, size] each
        query, key = attention.place(query, key, first=first)
        slots, new = ancestors[:, -1], slice(first, self.position)
        places = torch.arange(first, device=x.device)
        seen = []
        for kept, each in ((self.cache.keys[layer], key), (self.cache.values[layer], value)):
            kept[:, new] = 0
            kept[owners, new, slots] = each.transpose(1, 2)  # [rows, count, heads, size]
            history = kept[owners[:, None], places, ancestors[:, :first]].transpose(1, 2)  # [rows, heads, first, size]
            seen.append(torch.cat([history, each], 2))
        self.cache.written = self.position
        if not first:
            mixed = attention.mix(query, *seen, mask=None, is_causal=True)  # [rows, heads, count, size]
        else:
            queries = range(first, self.position)
            mask = nearby(queries, self.position, window=self.window, is_causal=True, like=x)[None, None]
            mixed = attend(query, *seen, mask=mask, is_causal=False, weights=attention.weights, scale=attention.scale)
        attended: Tensor = attention.output(join_heads(mixed, packing))
        return attended


class GptStepper:
    """Decodes a decoder-only Transformer with caches; a source only determines the number of rows."""

    begin = BEGIN
    end = END

    def __init__(self, model: Gpt) -> None:
        self.model = model

    @cached_property
    def plan(self) -> CausalPlan | None:
        """Steps of a few rows without modules, where that is possible; packing the weights takes a while."""
        model = self.model
        return CausalPlan.of([*model.layers], model.norm, model.output, window=model.window)

    @property
    def longest(self) -> int:
        """Symbols that a row can read."""
        return self.model.longest

    def start(self, source: Source) -> GptState:
        texts, attention = len(source.lengths), self.model.layers[0].self
        rows = torch.arange(texts, device=source.lengths.device)
        like = self.model.embedding.weight
        cache = BeamCache.empty(
            len(self.model.layers), texts, heads=attention.key_heads, size=attention.head_size, like=like.detach()
        )
        lineage = Lineage(rows, side_by_side(rows, texts), rows.new_empty(texts, 0))
        return GptState(cache, lineage, self.model.window)

    def step(self, state: State, last: Int[Tensor, " rows"]) -> Step:
        assert isinstance(state, GptState)
        model, position = self.model, state.position
        state = state.begin_step()
        plan = self._plan_for(len(last))
        if plan is not None:
            x = model.embed(last, torch.full_like(last, position), longest=position + 1)  # [rows, width]
            return Step(model.with_one_end(plan.log_probs(x, state.cache, state.lineage)), state)
        with evaluating(model):
            x = model.embed(last, torch.full_like(last, position), longest=position + 1)  # [rows, width]
            for number, layer in enumerate(model.layers):
                x = layer.step(x, state, number)
            log_probs = model.log_probs(model.norm(x))
        return Step(log_probs, state)

    def _plan_for(self, rows: int) -> CausalPlan | None:
        """The plan, if it computes so many rows."""
        is_small = rows <= MAX_PLANNED_ROWS or torch.get_num_threads() == 1
        if not (is_small and loops_compute(rows)) or self.model.training:
            return None
        plan = self.plan
        return None if plan is None or plan.has_listeners else plan

    def read(self, state: State, symbols: Int[Tensor, "rows count"]) -> GptState:
        """The state after further symbols of each row, in one pass: what a step for each would leave."""
        assert isinstance(state, GptState)
        model, position, count = self.model, state.position, symbols.shape[1]
        if not count:
            return state
        state = state.begin_step(count)
        places = torch.arange(position, position + count, device=symbols.device).repeat(len(symbols))
        with evaluating(model):
            x = model.embed(symbols.flatten(), places, longest=position + count)  # [rows · count, width]
            for number, layer in enumerate(model.layers):
                x = layer.read(x, state, number, count=count)
        return state
