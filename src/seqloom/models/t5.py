"""T5, a Transformer from text to text (Raffel et al., 2020), as version 1.0 and as version 1.1, of which mT5 is made.

    norm           norm(x) = g ⊙ x / √(mean(x²) + ε)                      the mean is not subtracted, there is no bias
    attention      head_h = softmax(Q_h K_hᵀ + b_h[bucket(s − t)]) V_h    not divided by √d; d is apart from the width
    feed-forward   W₂ relu(W₁ x)                                          1.0
                   W₂ (gelu(W_g x) ⊙ W₁ x)                                1.1
    bypass         x + dropout(f(norm(x)))

    encoder        x = E[source]       each layer: self-attention, feed-forward; last a norm
    decoder        y = E[previous]     each layer: causal self-attention, attention to x, feed-forward; last a norm
    output         softmax(E y / √width)                                  1.0
                   softmax(W y)                                           1.1

Positions are the numbers b_h alone, one for each head and distance, which all layers of a stack share; attention to the
encoder has none. No layer has a bias. The modules are those of `models/transformer.py`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, TypeVar

import torch
from pydantic import Field
from torch import nn

from seqloom.core.declaration import DataFacts, ModelSettings, ModelSizes, Reason, SentenceReading, TaskKind
from seqloom.core.symbols import PAD
from seqloom.models.frames import FrameConfig
from seqloom.models.transformer import SIZES, DecoderLayer, Transformer, TransformerStack
from seqloom.nn.blocks import Activation, FeedForward, NoPositions, RelativeBias, Residual, RMSNorm
from seqloom.nn.dropout import reseed
from seqloom.nn.embeddings import SHARED_TYINGS, Embedding, Symbols, Tying, tied_tables
from seqloom.nn.encoders import EncoderLayer
from seqloom.nn.framing import Framing
from seqloom.nn.init import seeded
from seqloom.nn.multihead import CrossAttention, SelfAttention
from seqloom.nn.outputs import Output

Layer = TypeVar("Layer", bound=nn.Module)


class T5Config(ModelSettings):
    """A T5. The defaults are those of version 1.1; activation=relu gated=false tying=all scaled_output=true is 1.0."""

    other_task_kinds: ClassVar[tuple[TaskKind, ...]] = ("unsupervised", "denoising")
    trunk: ClassVar[tuple[str, ...]] = ("encoder.", "decoder.", "output.")
    is_rounded_by_int8: ClassVar[bool] = True
    student_settings: ClassVar[Mapping[str, Any]] = {"decoder_layers": 1}

    kind: Literal["t5"] = "t5"
    """Names this model in a config file."""
    width: int = Field(256, ge=2, le=100_000)
    """Size of each token's vector."""
    heads: int = Field(4, ge=1, le=10_000)
    """Attention heads."""
    head_size: int = Field(64, ge=1, le=100_000)
    """Numbers of each head; heads · head_size may differ from the width."""
    encoder_layers: int = Field(3, ge=1, le=1_000)
    """Layers of the encoder."""
    decoder_layers: int = Field(3, ge=1, le=1_000)
    """Layers of the decoder."""
    feed_forward: int = Field(1024, ge=1, le=1_000_000)
    """Inner size of the feed-forward blocks."""
    activation: Activation = "gelu_tanh"
    """Between the feed-forward layers: relu (1.0), gelu_tanh (1.1), gelu or silu."""
    gated: bool = True
    """Whether a second layer is multiplied with what is activated (1.1)."""
    dropout_rate: float = Field(0.1, ge=0, lt=1)
    """Share of numbers dropped from embeddings, between the feed-forward layers and from the output of each sublayer,
    in training."""
    buckets: int = Field(32, ge=4, le=100_000)
    """Numbers per head for distances; the distances of a bucket share one."""
    farthest: int = Field(128, ge=2, le=10_000_000)
    """Distance from which on all share a bucket."""
    norm_epsilon: float = Field(1e-6, gt=0, le=1)
    """ε of the norms."""
    tying: Tying = "inputs"
    """Tables that are one: all (source, target, output: 1.0), inputs (source, target: 1.1), output (target, output) or
    none."""
    scaled_output: bool = False
    """Whether the output is divided by √width (1.0), as a table needs whose rows have variance 1."""
    frame: FrameConfig = FrameConfig()
    """Symbols that the model reads around its texts."""
    absent: tuple[int, ...] = ()
    """Symbols that the model never writes: their probability is 0."""

    @property
    def needs_shared_vocabulary(self) -> bool:
        return self.tying in SHARED_TYINGS

    @property
    def has_attention(self) -> bool:
        return True

    @property
    def attention_heads(self) -> tuple[int, int]:
        return self.decoder_layers, self.heads

    @property
    def sentence_reading(self) -> SentenceReading:
        return SentenceReading(self.width)

    def sizes_for_pairs(self, facts: DataFacts) -> ModelSizes:
        _, width, feed_forward, layers, heads = next(row for row in SIZES if facts.pairs <= row[0])
        # A gate is a third matrix: two thirds of the inner size are as many weights.
        inner = 64 * max(1, round(feed_forward / 96)) if self.gated else feed_forward
        sizes = {"width": width, "feed_forward": inner, "heads": heads, "head_size": width // heads}
        reason = Reason(
            ("model.kind", "model.width", "model.encoder_layers", "model.decoder_layers", "model.heads"),
            f"a T5 of width {width}, {layers}+{layers} layers, {heads} heads: a larger one would overfit this data",
        )
        return ModelSizes({**sizes, "encoder_layers": layers, "decoder_layers": layers}, (reason,))

    def build(self, symbols: Symbols, *, seed: int) -> Transformer:
        """A model with fresh weights drawn from `seed`, which also begins its dropout."""
        with seeded(seed):
            tables = tied_tables(symbols, self.width, self.tying)
            encoder_layers = [
                EncoderLayer(self._self_attention(), self._feed_forward(), self._bypass)
                for _ in range(self.encoder_layers)
            ]
            decoder_layers = [
                DecoderLayer(self._self_attention(), self._cross_attention(), self._feed_forward(), bypass=self._bypass)
                for _ in range(self.decoder_layers)
            ]
            encoder = self._stack(tables.source, encoder_layers, factor=1.0, is_causal=False)
            factor = self.width**-0.5 if self.scaled_output else 1.0
            decoder = self._stack(tables.target, decoder_layers, factor=factor, is_causal=True)
            frame = self.frame.symbols()
            framing = Framing(frame.source_before, frame.source_after, frame.target_before)
            model = Transformer(encoder, decoder, Output(tables.output, absent=self.absent), framing=framing)
            self._reset(model)
        reseed(model, seed)
        return model

    def _stack(
        self, embedding: Embedding, layers: Sequence[Layer], *, factor: float, is_causal: bool
    ) -> TransformerStack[Layer]:
        """`factor` is that of its last norm."""
        return TransformerStack(
            embedding,
            NoPositions(),
            layers,
            bias=RelativeBias(self.heads, buckets=self.buckets, farthest=self.farthest, is_causal=is_causal),
            norm=RMSNorm(self.width, self.norm_epsilon, factor=factor),
            dropout_rate=self.dropout_rate,
            scale=1.0,
        )

    def _self_attention(self) -> SelfAttention:
        return SelfAttention(
            self.width, self.heads, head_size=self.head_size, has_bias=False, has_output_bias=False, scale=1.0
        )

    def _cross_attention(self) -> CrossAttention:
        return CrossAttention(self.width, self.heads, head_size=self.head_size, has_bias=False, scale=1.0)

    def _feed_forward(self) -> FeedForward:
        return FeedForward(
            self.width,
            self.feed_forward,
            activation=self.activation,
            dropout_rate=self.dropout_rate,
            has_bias=False,
            is_gated=self.gated,
        )

    def _bypass(self) -> Residual:
        return Residual(
            self.width, norm="before", dropout_rate=self.dropout_rate, kind="rms", epsilon=self.norm_epsilon
        )

    def _reset(self, model: Transformer) -> None:
        """First weights as the authors draw them: products keep a variance of 1, and so do scores without a √d."""
        own = self.width**-0.5
        is_small = self.tying in ("all", "output") and not self.scaled_output
        for stack in (model.encoder, model.decoder):
            nn.init.normal_(stack.embedding.weight, std=own if is_small else 1.0)
            with torch.no_grad():
                stack.embedding.weight[PAD].zero_()
            if stack.bias is not None:
                nn.init.normal_(stack.bias.weight, std=own)
        for module in model.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=module.weight.shape[1] ** -0.5)
        for module in model.modules():
            if isinstance(module, SelfAttention | CrossAttention):
                queries = module.qkv if isinstance(module, SelfAttention) else module.query
                with torch.no_grad():
                    queries.weight[: self.heads * self.head_size].mul_(self.head_size**-0.5)
