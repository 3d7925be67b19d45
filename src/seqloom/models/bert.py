"""BERT: an encoder that reads a text in both directions at once (Devlin et al., 2019).

    input       x_t = norm(E[w_t] + P[t] + S[segment of t])              w_0 = BEGIN ([CLS]), w_{n+1} = END ([SEP])
    layer       x ← norm(x + attention(x))
                x ← norm(x + W₂ gelu(W₁ x))                              the norm comes after each sublayer
    masked LM   P(w_t | all others) = softmax(E norm(gelu(W x_t)) + b)   trained on tokens that were hidden
    pooler      tanh(W x_0)                                              trained on pairs of sentences
    pairs       P(the second follows the first) = softmax(W tanh(W x_0) + b)

RoBERTa and XLM-R (Liu et al., 2019; Conneau et al., 2020) differ by settings: one segment, no pooler, and a table of
positions whose first rows are not used. Models trained here turn queries and keys by their position in place of P, and
have the norm before each sublayer, with one more after the last (as in Warner et al., 2024): what the neighbours of a
hidden token are is then known from the first step, and need not be learned for each position apart.
A sentence has one vector (Reimers & Gurevych, 2019):

    sentence    v = pool(x_0 … x_{n+1})                                  mean, first, last, or largest of each column
                v ← φ(W v + b)                                           any number of times
                v ← v / ‖v‖                                              if the settings say so

and so have the classes of a text, or of a pair BEGIN a END b END:

    classes     W u + b                                                  u: the pooler's tanh(W x_0), or else pool(x)
"""

import sys
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, ClassVar, Literal, cast

import torch
from jaxtyping import Float, Int
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.core.config import Config
from seqloom.core.declaration import (
    ClassifierInput,
    DataFacts,
    LabelledFacts,
    ModelSettings,
    ModelSizes,
    Pieces,
    Purpose,
    Reason,
    SentenceReading,
    TaskKind,
    TextFacts,
)
from seqloom.core.errors import ConfigError, ModelError
from seqloom.models.elmo import frame
from seqloom.nn.blocks import Activation, FeedForward, NormPlace, Residual, activated
from seqloom.nn.dropout import Dropout, reseed
from seqloom.nn.embeddings import Embedding, Symbols
from seqloom.nn.encoders import EncoderLayer
from seqloom.nn.init import linear, seeded
from seqloom.nn.multihead import SelfAttention, check_heads
from seqloom.nn.outputs import Output
from seqloom.nn.packing import Pooling, additive, length_mask, pack, packing_of, pool
from seqloom.nn.rotary import Rotary, rotary_rates

FRAME = 2
"""Symbols around each text: BEGIN and END."""

SIZES = (
    (20_000, 64, 2, 2),
    (200_000, 128, 2, 4),
    (10_000_000, 128, 4, 4),
    (100_000_000, 256, 6, 8),
    (sys.maxsize, 512, 8, 8),
)
"""Up to so many tokens: width, layers and heads."""

WINDOWS: dict[Pieces, int] = {"char": 128, "word": 64, "bpe": 128, "unigram": 128, "published": 128}
"""Positions of a model that is trained here: a window of text."""

ROTARY_BASE = 10_000.0
"""The slowest pair of numbers turns about once in 2π times as many positions."""

CLASSIFIER_SIZES = ((20_000, 128, 1, 4), (200_000, 128, 2, 4), (10**18, 256, 4, 4))
"""A classifier without a trained trunk, up to so many examples: width, layers and heads."""

SENTENCE_SIZES = ((2_000, 128, 1, 4), (200_000, 256, 2, 4), (2_000_000, 384, 4, 6), (10**18, 512, 6, 8))
"""An encoder of sentences, up to so many pairs: width, layers and heads."""

CHARACTERS_PER_SYMBOL = 2
"""Characters of a word or subword, at least on average: so many positions hold the longest text."""

DenseActivation = Literal["none", "tanh", "relu", "gelu", "sigmoid", "silu"]
_ACTIVATIONS: dict[DenseActivation, Callable[[Tensor], Tensor]] = {
    "none": lambda x: x,
    "tanh": torch.tanh,
    "relu": torch.relu,
    "gelu": F.gelu,
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
}


class DenseConfig(Config):
    """A layer between the pooled vector and the vector of a sentence."""

    width: int = Field(ge=1, le=100_000)
    """Size of its output."""
    activation: DenseActivation = "tanh"
    """Applied to its output: none, tanh, relu, gelu, sigmoid or silu."""
    has_bias: bool = True
    """Whether a bias is added."""


class SentenceConfig(Config):
    """How a text becomes one vector."""

    pooling: Pooling = "mean"
    """From the vectors of tokens, BEGIN and END included, to that of the text: their mean, the first (cls), the last,
    or the largest of each column (max)."""
    dense: tuple[DenseConfig, ...] = Field((), max_length=16)
    """Layers after the pooling."""
    normalise: bool = False
    """Whether vectors are scaled to length 1, so that their product is a cosine."""
    longest: int | None = Field(None, ge=FRAME, le=1_000_000)
    """Tokens that are read of a text, BEGIN and END counted; by default as many as there are positions."""
    prompt: str = Field("", max_length=10_000)
    """Text that is read before each text."""
    lowercase: bool = False
    """Whether capital letters become small ones before a text is split into pieces."""


class BertConfig(ModelSettings):
    """An encoder of text in both directions: vectors of tokens and of sentences."""

    purpose: ClassVar[Purpose] = "encoder"
    task_kind: ClassVar[TaskKind] = "masked_language_modelling"
    other_task_kinds: ClassVar[tuple[TaskKind, ...]] = ("classification", "contrastive")
    is_rounded_by_int8: ClassVar[bool] = True
    trunk: ClassVar[tuple[str, ...]] = ("embedding.", "positions", "segments", "norm.", "layers.", "last_norm.")
    head: ClassVar[tuple[str, ...]] = ("classifier.",)

    kind: Literal["bert"] = "bert"
    """Names this model in a config file."""
    width: int = Field(256, ge=2, le=100_000)
    """Size of each token's vector."""
    heads: int = Field(4, ge=1)
    """Attention heads; each takes width / heads numbers."""
    layers: int = Field(4, ge=1, le=1_000)
    """Layers of self-attention and feed-forward."""
    feed_forward: int = Field(1024, ge=1, le=1_000_000)
    """Inner size of the feed-forward blocks."""
    activation: Activation = "gelu"
    """Between the two feed-forward layers and before the output: gelu (the paper) or another one."""
    dropout_rate: float = Field(0.1, ge=0, lt=1)
    """Share of numbers dropped from embeddings and from the output of each sublayer, in training."""
    epsilon: float = Field(1e-12, gt=0, lt=1)
    """Added to the variance in each norm."""
    norm: NormPlace = "after"
    """Where norms are: after each sublayer (the paper), or before it."""
    positions: Literal["learned", "rotary"] = "learned"
    """learned (a row per position, the paper) or rotary (queries and keys are turned)."""
    longest: int = Field(512, ge=FRAME, le=1_000_000)
    """Tokens of the longest text, BEGIN and END counted."""
    attention_window: int | None = Field(None, ge=1, le=1_000_000)
    """Each token attends to those at smaller distances than this, on both sides; to all by default. Time and memory
    then grow with the length, not with its square."""
    unused_positions: int = Field(0, ge=0, le=1_000_000)
    """Rows of that table before the row of the first position: 0 for BERT, 2 for RoBERTa and XLM-R."""
    segments: int = Field(2, ge=0, le=1_000)
    """Rows of the table of segments, which tells a second sentence from the first; 0 for none."""
    has_output: bool = True
    """Whether there is an output for hidden tokens; a model that only makes vectors has none."""
    has_pooler: bool = False
    """Whether there is a layer on top of the first token, trained on pairs of sentences."""
    has_pair_output: bool = False
    """Whether there is an output on top of the pooler that tells whether the second of two segments follows the first
    (task.next_sentence)."""
    tying: Literal["output", "none"] = "output"
    """Whether words and output share one table."""
    classes: int = Field(0, ge=0, le=100_000)
    """Classes of texts that it tells apart, with task.kind=classification: as many as the data has; 0 for no head."""
    sentence: SentenceConfig = SentenceConfig()
    """How a text becomes one vector."""

    @model_validator(mode="after")
    def _sizes_fit(self) -> "BertConfig":
        """Checked when the settings are read."""
        try:
            check_heads(self.width, self.heads)
        except ConfigError as error:
            raise ValueError(str(error)) from error
        if (self.sentence.longest or 0) > self.longest:
            raise ValueError(
                f"model.sentence.longest={self.sentence.longest} is more than the model.longest={self.longest} "
                "positions of the model"
            )
        size = self.width // self.heads
        if self.positions == "rotary" and (size % 2 or size < 4):
            raise ValueError(f"model.positions=rotary turns pairs of numbers, and heads have {size}; make them even")
        if self.has_pair_output and not self.has_pooler:
            raise ValueError("model.has_pair_output=true reads the pooler; set model.has_pooler=true as well")
        return self

    def sizes_for_text(self, facts: TextFacts, pieces: Pieces) -> ModelSizes:
        _, width, layers, heads = next(row for row in SIZES if facts.tokens(pieces) <= row[0])
        longest = self.longest if "longest" in self.model_fields_set else WINDOWS[pieces]
        why = f"{layers} layers of width {width}, {heads} heads: a larger model would overfit this text"
        reasons = (
            Reason(("model.kind", "model.width", "model.layers", "model.heads"), why),
            Reason(("model.longest",), f"{longest} positions, each of which sees all others"),
            Reason(
                ("model.positions", "model.norm"), "distances known from the first step: fewer steps until it learns"
            ),
        )
        used = self.width if "width" in self.model_fields_set else width
        settings = {
            "width": width,
            "layers": layers,
            "heads": heads,
            "feed_forward": 4 * used,
            "longest": longest,
            "positions": "rotary",
            "norm": "before",
        }
        return ModelSizes(settings, reasons, max_learning_rate=1e-3, window=longest, warmup=500)

    @property
    def classifier_input(self) -> ClassifierInput:
        return ClassifierInput(min(self.longest, self.sentence.longest or self.longest), self.sentence.lowercase)

    @property
    def sentence_reading(self) -> SentenceReading:
        sentence = self.sentence
        width = sentence.dense[-1].width if sentence.dense else self.width
        longest = min(self.longest, sentence.longest or self.longest) - FRAME
        return SentenceReading(width, longest, sentence.prompt, sentence.lowercase)

    @property
    def max_fine_tuning_rate(self) -> float:
        return min(1e-3, 3e-5 * (768 / self.width) ** 2)  # as published for BERT's 768, and 2.7e-4 for 256

    def sizes_for_labels(self, facts: LabelledFacts, pieces: Pieces) -> ModelSizes:
        _, width, layers, heads = next(row for row in CLASSIFIER_SIZES if facts.text.lines <= row[0])
        symbols = facts.longest // (1 if pieces == "char" else CHARACTERS_PER_SYMBOL) + FRAME + 1
        longest = next(size for size in (32, 64, 128, 256, 512) if size >= min(symbols, 512))
        sizes = {"width": width, "layers": layers, "heads": heads, "feed_forward": 4 * width}
        settings = {**sizes, "longest": longest, "segments": 2}
        depth = f"{layers} layer{'s' if layers > 1 else ''} of width {width}"
        why = f"{depth}: without a trained trunk (training.start_from), a larger model learns these texts by heart"
        reasons = (
            Reason(("model.kind", "model.width", "model.layers", "model.heads", "model.feed_forward"), why),
            Reason(("model.longest",), f"{longest} positions, of which longer texts fill all"),
        )
        return ModelSizes(settings, reasons, max_learning_rate=1e-3)

    def classifier_settings(self, classes: int, *, texts: int = 1) -> Mapping[str, Any]:  # noqa: ARG002
        sentence = self.sentence.model_copy(update={"dense": (), "normalise": False})
        return {"classes": classes, "has_output": False, "sentence": sentence.model_dump(mode="json")}

    def sizes_for_pairs(self, facts: DataFacts) -> ModelSizes:
        _, width, layers, heads = next(row for row in SENTENCE_SIZES if facts.pairs <= row[0])
        sizes = {"width": width, "layers": layers, "heads": heads, "feed_forward": 2 * width}
        settings = {**sizes, "longest": 128, "positions": "rotary", "norm": "before"}
        depth = f"{layers} layer{'s' if layers > 1 else ''} of width {width}"
        reasons = (
            Reason(
                ("model.kind", "model.width", "model.layers", "model.heads", "model.feed_forward"),
                f"{depth}: the words of a sentence say most of what it means, and a deeper model learns them later",
            ),
            Reason(("model.longest",), "128 positions; pairs with a longer side are dropped"),
            Reason(("model.positions", "model.norm"), "distances in place of positions: the words alone are the start"),
        )
        return ModelSizes(settings, reasons, max_learning_rate=1e-3)

    def sentence_settings(self) -> Mapping[str, Any]:
        sentence = self.sentence.model_copy(update={"normalise": True})  # cosines are what is learned
        heads = {"classes": 0, "has_output": False, "has_pooler": False, "has_pair_output": False}
        return {**heads, "sentence": sentence.model_dump(mode="json")}

    def build(self, symbols: Symbols, *, seed: int) -> "Bert":
        """A model with fresh weights drawn from `seed`, which also begins its dropout."""
        with seeded(seed):
            model = Bert(self, symbols.target)
        reseed(model, seed)
        return model


class Bert(nn.Module):
    """Embeddings and encoder layers; `forward` gives vectors of tokens, `sentence_vectors` of texts."""

    embeddings: ClassVar[tuple[str, ...]] = ("embedding.", "positions", "segments", "norm.")
    """Beginnings of the names of what comes before the layers."""

    def __init__(self, config: BertConfig, symbols: int) -> None:
        super().__init__()
        width = config.width

        is_turned = config.positions == "rotary"
        rotary = Rotary(rotary_rates(width // config.heads, base=ROTARY_BASE)) if is_turned else None

        def bypass() -> Residual:
            return Residual(width, norm=config.norm, dropout_rate=config.dropout_rate, epsilon=config.epsilon)

        def layer() -> EncoderLayer:
            attention = SelfAttention(width, config.heads, rotary=rotary, window=config.attention_window)
            return EncoderLayer(
                attention, FeedForward(width, config.feed_forward, activation=config.activation), bypass
            )

        self.longest, self.unused_positions = config.longest, config.unused_positions
        self.embedding = Embedding(symbols, width)
        self.positions = None if is_turned else _table(config.unused_positions + config.longest, width)
        self.segments = _table(config.segments, width) if config.segments else None
        self.norm = nn.LayerNorm(width, eps=config.epsilon)
        self.dropout = Dropout(config.dropout_rate)
        self.layers = cast("list[EncoderLayer]", nn.ModuleList(layer() for _ in range(config.layers)))
        self.last_norm = nn.LayerNorm(width, eps=config.epsilon) if config.norm == "before" else None
        self.masked = None
        if config.has_output:
            table = self.embedding.weight if config.tying == "output" else Embedding(symbols, width).weight
            self.masked = MaskedOutput(table, config)
        self.pooler = linear(width, width) if config.has_pooler else None
        self.pairs = linear(width, 2) if config.has_pair_output else None
        self.sentence = SentenceHead(config.sentence, width)
        self.classifier = linear(width, config.classes) if config.classes else None

    def forward(self, ids: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"]) -> Float[Tensor, "tokens width"]:
        """Vectors of all tokens, text after text, n + 2 of each; texts come without BEGIN and END."""
        return self.read(frame(ids, lengths), lengths + FRAME)

    def read(
        self,
        ids: Int[Tensor, "batch time"],
        lengths: Int[Tensor, " batch"],
        segments: Int[Tensor, "batch time"] | None = None,
    ) -> Float[Tensor, "tokens width"]:
        """The same for texts that contain BEGIN and END, or pairs of sentences with the segment of each token."""
        packing = packing_of(lengths, ids.shape[1])
        if packing.longest > self.longest:
            raise ModelError(
                f"a text of {packing.longest} tokens is longer than the {self.longest} positions there are"
            )
        x = self.embedding(pack(ids, packing))  # [tokens, width]
        if self.positions is not None:
            x = x + F.embedding(packing.positions + self.unused_positions, self.positions)
        if self.segments is not None:
            x = x + (self.segments[0] if segments is None else F.embedding(pack(segments, packing), self.segments))
        x = self.dropout(self.norm(x))
        mask = None
        if not packing.is_full:  # [batch, 1, 1, time]
            mask = additive(length_mask(lengths, packing.longest), x.dtype)[:, None, None]
        for layer in self.layers:
            x = layer(x, packing, mask)
        states: Tensor = x if self.last_norm is None else self.last_norm(x)
        return states

    def masked_features(self, states: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows width"]:
        """What `output` scores, of the vectors of hidden tokens."""
        if self.masked is None:
            raise ModelError("this model has no output for hidden tokens (model.has_output is false)")
        features: Tensor = self.masked(states)
        return features

    @property
    def output(self) -> Output:
        """Scores over the symbols; it reads `masked_features`."""
        if self.masked is None:
            raise ModelError("this model has no output for hidden tokens (model.has_output is false)")
        return self.masked.output

    def pooled(
        self, states: Float[Tensor, "tokens width"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch width"]:
        """tanh(W x_0) of each text, whose vectors `forward` gave; `lengths` count BEGIN and END."""
        if self.pooler is None:
            raise ModelError("this model has no pooler (model.has_pooler is false)")
        pooled: Tensor = torch.tanh(self.pooler(states[lengths.cumsum(0) - lengths]))
        return pooled

    def pair_scores(
        self, states: Float[Tensor, "tokens width"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch 2"]:
        """Scores of pairs of segments: that the second follows the first, and that it does not."""
        if self.pairs is None:
            raise ModelError("this model has no output for pairs (model.has_pair_output is false)")
        scores: Tensor = self.pairs(self.pooled(states, lengths))
        return scores

    def sentence_vectors(
        self, ids: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"], *, pooling: Pooling | None = None
    ) -> Float[Tensor, "batch features"]:
        """One vector for each text; texts come without BEGIN and END. `pooling` replaces that of the settings."""
        vectors: Tensor = self.sentence(self(ids, lengths), lengths + FRAME, pooling)
        return vectors

    def class_scores(
        self,
        ids: Int[Tensor, "batch time"],
        lengths: Int[Tensor, " batch"],
        segments: Int[Tensor, "batch time"] | None = None,
    ) -> Float[Tensor, "batch classes"]:
        """A score for each class, before the softmax; texts contain BEGIN and END, as in `read`.

        Segments are not read by a model that has one row for them or none.
        """
        if self.classifier is None:
            raise ModelError("this model has no classes (model.classes is 0)")
        tells_segments = self.segments is not None and len(self.segments) > 1
        states = self.read(ids, lengths, segments if tells_segments else None)  # [tokens, width]
        if self.pooler is not None:
            vectors = self.pooled(states, lengths)  # [batch, width]
        else:
            vectors = pool(states, lengths, self.sentence.config.pooling)
        scores: Tensor = self.classifier(self.dropout(vectors))
        return scores

    def layers_by_entry(self) -> list[tuple[nn.Module, str]]:
        """The layers that ranks may gather one by one, and the method by which a loss enters them."""
        return [(layer, "forward") for layer in self.layers]


class MaskedOutput(nn.Module):
    """From the vector of a hidden token to features for the output, whose table is usually that of the words."""

    def __init__(self, table: nn.Parameter, config: BertConfig) -> None:
        super().__init__()
        self.dense = linear(config.width, config.width)
        self.norm = nn.LayerNorm(config.width, eps=config.epsilon)
        self.output = Output(table, has_bias=True)
        self.activation = config.activation

    def forward(self, states: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows width"]:
        """norm(gelu(W x))"""
        features: Tensor = self.norm(activated(self.dense(states), self.activation))
        return features


class SentenceHead(nn.Module):
    """From the vectors of tokens to one for each text."""

    def __init__(self, config: SentenceConfig, width: int) -> None:
        super().__init__()
        widths = [width, *(each.width for each in config.dense)]
        made = [nn.Linear(*pair, bias=each.has_bias) for pair, each in zip(pairwise(widths), config.dense, strict=True)]
        self.dense = cast("list[nn.Linear]", nn.ModuleList(made))
        self.config = config

    def forward(
        self, states: Float[Tensor, "tokens width"], lengths: Int[Tensor, " batch"], pooling: Pooling | None = None
    ) -> Float[Tensor, "batch features"]:
        vectors = pool(states, lengths, pooling or self.config.pooling)  # [batch, width]
        for layer, settings in zip(self.dense, self.config.dense, strict=True):
            vectors = _ACTIVATIONS[settings.activation](layer(vectors))
        return F.normalize(vectors, dim=1) if self.config.normalise else vectors


def _table(rows: int, width: int) -> nn.Parameter:
    return nn.Parameter(nn.init.normal_(torch.empty(rows, width), std=width**-0.5))
