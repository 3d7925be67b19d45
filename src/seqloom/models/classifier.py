"""A classifier from scratch: n-grams that are counted and weighed, beside a network that reads the words in order.

    P(c ∣ x) = mean of softmax(wide(x))_c, softmax(deep¹(x))_c, softmax(deep²(x))_c

    wide     wide(x)_c = Σ_g r_gc u_gc + b_c                  g: the different n-grams of x, up to n neighbours
             r_gc = log (p_gc / Σ_g p_gc)                     p_gc: 1 + texts of class c that have g
                  − log (q_gc / Σ_g q_gc)                     q_gc: 1 + texts of other classes that have g
    words    x_t = [E[w_t]; c(w_t)] + S[text of t]            rows of a table; the letters of w_t by filters, if any
    encoder  h_1 … h_n = encoder(x_1 … x_n)                   window, recurrent, transformer (`nn.encoders`), or none
    pooling  v = pool(h)                                      mean, max, last, or Σ_t a_t h_t, a = softmax_t(w · h_t)
             v = [v_1; v_2; |v_1 − v_2|; v_1 ⊙ v_2]           of a pair
    deep     deep(x) = W v + b                                of each network, which begin differently

The ratios r are counted from the training text before the first step, and stay (Wang & Manning, 2012); all u begin at
the same value, so that training begins with a naive Bayes classifier, and moves weights in proportion to what counting
says of an n-gram. Each part learns by a loss of its own (`part_scores`): learned as a sum, the n-grams would explain
their own training texts, and leave little for the network to learn.

An n-gram is the row h(w_t … w_{t+k}) of a table of `buckets` rows; its hash depends on the symbols alone. Rows that the
training text does not have are zero, so that unknown n-grams change nothing.
"""

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, cast

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from seqloom.core.declaration import (
    ClassifierInput,
    LabelledFacts,
    Learning,
    ModelSizes,
    Pieces,
    Purpose,
    Reason,
    SentenceReading,
    TaskKind,
)
from seqloom.core.errors import ConfigError
from seqloom.core.symbols import RESERVED, UNKNOWN
from seqloom.models.cell_options import CellOptions
from seqloom.models.elmo import frame
from seqloom.nn.blocks import NoPositions
from seqloom.nn.dropout import Dropout, reseed
from seqloom.nn.embeddings import CharacterInput, Embedding, Symbols, spell_vocabulary
from seqloom.nn.encoders import Encoder, RecurrentEncoder, TransformerEncoder, WindowEncoder, unpack
from seqloom.nn.init import linear, seeded
from seqloom.nn.multihead import check_heads
from seqloom.nn.packing import Packing, Pooling, length_mask, pack, packing_of, pool
from seqloom.nn.recurrent import Skip, input_widths
from seqloom.nn.rotary import Rotary, rotary_rates

FILTER_WIDTHS = (2, 3, 4, 5)
"""Letters that a filter sees."""

MAX_LETTERS = 24
"""Bytes of a word that are read, its marks counted."""

ROTARY_BASE = 10_000.0
"""The slowest pair of numbers turns about once in 2π times as many positions."""

SIZES = (
    (2_000, 192, Learning(5e-3, 256, passes=15, dropout_rate=0.3)),
    (20_000, 192, Learning(5e-3, 384, passes=8, dropout_rate=0.3)),
    (200_000, 128, Learning(3e-3, 1024, passes=4, dropout_rate=0.2)),
    (sys.maxsize, 256, Learning(2e-3, 2048, passes=2, dropout_rate=0.1)),
)
"""Up to so many texts: width of words and states, and how they are learned."""

FIRST_DEVIATION = 0.3
"""Of the rows of words before the first step: small rows learn slowly."""

LENGTHS = (64, 128, 256, 512, 1024)
"""Symbols of the longest text that is read."""

MIN_BUCKETS, MAX_CELLS = 1 << 12, 1 << 24
"""Rows of the table of n-grams at least, and numbers of it, rows times classes, at most."""

FIRST_WEIGHT, WEIGHT_SCALE = 0.1, 2.0
"""u = 0.1 + 2 θ with θ = 0 before the first step: n-grams learn twice as fast as the network."""

FRAME = 2
"""Symbols around each text: BEGIN and END."""


class ClassifierConfig(CellOptions):
    """A classifier of texts or of pairs of texts: counted n-grams beside a network."""

    purpose: ClassVar[Purpose] = "classifier"
    task_kind: ClassVar[TaskKind] = "classification"
    pieces: ClassVar[Pieces] = "word"
    is_rounded_by_int8: ClassVar[bool] = False
    text_settings: ClassVar[Mapping[str, Any]] = {"lowercase": True, "segmentation": "characters"}

    trunk: ClassVar[tuple[str, ...]] = ("networks.",)
    head: ClassVar[tuple[str, ...]] = ("wide.", "outputs.")

    kind: Literal["classifier"] = "classifier"
    """Names this model in a config file."""
    encoder: Literal["window", "recurrent", "transformer", "none"] = "window"
    """How a word sees the others: in a window around it, through recurrent states, by attention to all, or not at all
    (none, a bag of words)."""
    pooling: Literal["max", "mean", "last", "attention"] = "max"
    """How the states of words become one vector: the largest of each column, their mean, the last one, or a mean whose
    weights are learned."""
    directions: Literal[1, 2] = 2
    """Whether recurrent layers read from left to right only (1), or both ways (2)."""
    networks: int = Field(2, ge=1, le=100)
    """Networks beside the n-grams, each with words and weights of its own; a window is one word wider on each side than
    that of the network before."""
    width: int = Field(128, ge=1, le=100_000)
    """Size of the states; of recurrent layers, in each direction."""
    layers: int = Field(1, ge=1, le=1_000)
    """Layers of the encoder."""
    skip: Skip = "none"
    """The connection past each recurrent layer: none, residual (added), highway (mixed by a gate) or dense (joined)."""
    window: int = Field(1, ge=0, le=100)
    """Words on each side that the window encoder of the first network sees."""
    heads: int = Field(4, ge=1)
    """Attention heads of the transformer encoder."""
    feed_forward: int = Field(256, ge=1, le=1_000_000)
    """Inner size of the feed-forward blocks of the transformer encoder."""
    word_width: int = Field(128, ge=1, le=100_000)
    """Size of each word's row; that of the vectors, if `vectors` names some."""
    letter_width: int = Field(16, ge=1, le=10_000)
    """Size of each letter's row."""
    filters: int = Field(0, ge=0, le=10_000)
    """Filters per width (2 to 5 letters) that read the letters of a word: so many times the width; 0 reads words only.
    Words beyond the vocabulary are unknown all the same."""
    dropout_rate: float = Field(0.3, ge=0, lt=1)
    """Share of numbers dropped from words, in training."""
    pooled_dropout_rate: float = Field(0.5, ge=0, lt=1)
    """Share of numbers dropped from pooled states, in training."""
    word_dropout_rate: float = Field(0.1, ge=0, lt=1)
    """Share of words that are read as unknown, in training: what an unknown word is has to be learned."""
    grams: int = Field(2, ge=0, le=5)
    """Neighbours in the longest n-gram that is weighed; 0 leaves the network alone."""
    gram_dropout_rate: float = Field(0.5, ge=0, lt=1)
    """Share of n-grams that are dropped from a text, in training."""
    buckets: int = Field(1 << 17, ge=2, le=1 << 28)
    """Rows of the table of n-grams: about twice as many as there are different ones, or they share rows."""
    vectors: str | None = None
    """A folder of word vectors, as `seqloom train model.kind=word2vec` makes them: the rows of words begin with them,
    and words that only they have are known too."""
    longest: int = Field(512, ge=4, le=1_000_000)
    """Symbols of the longest text or pair, begin and end counted. Longer ones are read up to there."""
    texts: Literal[1, 2] = 1
    """Texts of an example: as in the training text."""
    classes: int = Field(0, ge=0, le=100_000)
    """Classes of texts that it tells apart: as many as the data has."""

    def check(self) -> None:
        """Raise if some settings contradict each other."""
        super().check()
        if self.encoder == "transformer":
            check_heads(self.width, self.heads)
            size = self.width // self.heads
            if size % 2 or size < 4:
                raise ConfigError(
                    f"model.width={self.width} and model.heads={self.heads} give heads of {size} numbers, which are "
                    "turned in pairs; make it 4 or another even number"
                )
        if self.encoder == "recurrent":
            read = input_widths(
                self.input_width, self.width, layers=self.layers, directions=self.directions, skip=self.skip
            )
            self.check_reset("classifier", read, width=self.width)

    @property
    def input_width(self) -> int:
        """Size of what is read of a word: its row, and its letters."""
        return self.word_width + (self.width if self.filters else 0)

    @property
    def classifier_input(self) -> ClassifierInput:
        return ClassifierInput(self.longest, mixes_lengths=True)

    @property
    def sentence_reading(self) -> SentenceReading | None:
        if self.texts == 2:
            return None
        return SentenceReading(self.networks * self.state_width, self.longest - FRAME)

    @property
    def state_width(self) -> int:
        """Size of a pooled vector."""
        if self.encoder == "none":
            return self.input_width
        return self.width * (self.directions if self.encoder == "recurrent" else 1)

    def sizes_for_labels(self, facts: LabelledFacts, pieces: Pieces) -> ModelSizes:
        _, width, learning = next(row for row in SIZES if facts.text.lines <= row[0])
        longest = next((size for size in LENGTHS if size >= facts.longest + FRAME + 1), LENGTHS[-1])
        most = MAX_CELLS // max(2, facts.classes)
        wanted = 4 * self.grams * facts.text.tokens(pieces)
        buckets = 1 << max(MIN_BUCKETS.bit_length() - 1, min(wanted, most).bit_length() - 1)
        sizes = {"width": width, "word_width": min(width, 128), "feed_forward": 2 * width}
        how = {
            "window": f"windows of {2 * self.window + 1} words and more",
            "recurrent": f"{self.directions} direction{'s' * (self.directions - 1)}",
            "transformer": f"{self.heads} heads",
            "none": "a bag of words",
        }[self.encoder]
        reasons = (
            Reason(
                ("model.kind", "model.width", "model.layers", "model.encoder"),
                f"counted n-grams, and {self.networks} network{'s' * (self.networks > 1)} of width {width} ({how}): "
                "each finds what the others miss",
            ),
            Reason(("model.buckets",), f"{buckets:,} rows for n-grams of up to {self.grams} words"),
            Reason(("model.longest",), f"{longest:,} symbols, of which longer texts are read"),
        )
        return ModelSizes({**sizes, "longest": longest, "buckets": buckets}, reasons, learning=learning)

    def classifier_settings(self, classes: int, *, texts: int = 1) -> Mapping[str, Any]:
        return {"classes": classes, "texts": texts}

    def make_encoder(self, reach: int) -> Encoder | None:
        """How a word sees the others; `reach` is that of a window encoder."""
        if self.encoder == "none":
            return None
        if self.encoder == "window":
            return WindowEncoder(
                self.input_width, self.width, reach=reach, layers=self.layers, dropout_rate=self.dropout_rate
            )
        if self.encoder == "recurrent":
            return RecurrentEncoder(
                self.make_cell(),
                self.input_width,
                self.width,
                layers=self.layers,
                directions=self.directions,
                skip=self.skip,
                dropout_rate=self.dropout_rate,
            )
        return TransformerEncoder(
            self.input_width,
            self.width,
            positions=NoPositions(),
            rotary=Rotary(rotary_rates(self.width // self.heads, base=ROTARY_BASE)),
            layers=self.layers,
            heads=self.heads,
            feed_forward=self.feed_forward,
            dropout_rate=self.dropout_rate,
        )

    def build(self, symbols: Symbols, *, seed: int) -> "TextClassifier":
        """A model with fresh weights drawn from `seed`, which also begins its dropout."""
        self.check()
        with seeded(seed):
            model = TextClassifier(self, symbols)
        reseed(model, seed)
        return model


# --- the wide part ----------------------------------------------------------------------------------------------------

PRIME = 0x9E3779B97F4A7C15 - (1 << 64)
"""The golden ratio in 64 bits, as torch's signed integers hold it: products with it spread neighbouring numbers."""


def gram_rows(
    ids: Int[Tensor, "batch time"],
    lengths: Int[Tensor, " batch"],
    segments: Int[Tensor, "batch time"] | None,
    *,
    order: int,
    buckets: int,
) -> tuple[Int[Tensor, " grams"], Int[Tensor, " grams"]]:
    """The different n-grams of each text: the text, rising, and the row of the table.

    Those of a pair's second text differ from those of the first. Symbols are hashed by products in 64 bits, which are
    the same on every machine.
    """
    time = ids.shape[1]
    side = torch.zeros_like(ids) if segments is None else segments
    mixed = torch.full_like(ids, 0)
    found = []
    for size in range(1, order + 1):
        mixed = (mixed[:, : time - size + 1] + ids[:, size - 1 :] + 1) * PRIME
        mixed = mixed ^ (mixed >> 29)
        if time < size:
            break
        inside = length_mask(lengths - (size - 1), time - size + 1)  # [batch, places]
        marked = (mixed + side[:, : time - size + 1] + 2 * size) * PRIME
        rows = (marked ^ (marked >> 32)).remainder(buckets)
        texts = torch.arange(len(ids), device=ids.device)[:, None].expand_as(rows)
        found.append((texts * buckets + rows)[inside])
    different = torch.cat(found).unique()
    return different // buckets, different % buckets


class CountedGrams(nn.Module):
    """Σ_g r_gc u_gc + b_c over the n-grams of a text, with ratios r that are counted."""

    ratios: Tensor

    def __init__(self, config: ClassifierConfig) -> None:
        super().__init__()
        self.order, self.buckets = config.grams, config.buckets
        shape = config.buckets, config.classes
        self.register_buffer("ratios", torch.zeros(shape))  # [buckets, classes]
        self.moves = nn.Parameter(torch.zeros(shape))
        self.bias = nn.Parameter(torch.zeros(config.classes))
        self.dropout = Dropout(config.gram_dropout_rate)

    def forward(
        self,
        ids: Int[Tensor, "batch time"],
        lengths: Int[Tensor, " batch"],
        segments: Int[Tensor, "batch time"] | None,
    ) -> Float[Tensor, "batch classes"]:
        texts, rows = gram_rows(ids, lengths, segments, order=self.order, buckets=self.buckets)
        weights = self.ratios[rows] * (FIRST_WEIGHT + WEIGHT_SCALE * self.moves[rows])  # [grams, classes]
        weights = weights * self.dropout(weights.new_ones(len(rows), 1))
        summed: Tensor = weights.new_zeros(len(ids), len(self.bias)).index_add(0, texts, weights)
        return summed + self.bias

    @torch.no_grad()
    def count(self, texts: Iterable[tuple[tuple[Tensor, ...], Int[Tensor, " batch"]]]) -> None:
        """Set the ratios from training texts (what `class_scores` reads) and their classes."""
        counts = torch.zeros(self.ratios.shape, dtype=torch.float64)  # [buckets, classes]
        priors = torch.ones(len(self.bias), dtype=torch.float64)
        for (ids, lengths, segments), classes in texts:
            owners, rows = gram_rows(ids, lengths, segments, order=self.order, buckets=self.buckets)
            places = rows * len(self.bias) + classes[owners]
            counts.view(-1).index_add_(0, places.cpu(), torch.ones(len(places), dtype=torch.float64))
            priors += torch.bincount(classes.cpu(), minlength=len(priors))
        is_known = counts.sum(1, keepdim=True) > 0
        of_class = (counts + 1) * is_known
        of_others = (counts.sum(1, keepdim=True) - counts + 1) * is_known
        ratios = (of_class / of_class.sum(0)).log() - (of_others / of_others.sum(0)).log()
        self.ratios.copy_(ratios.masked_fill(~is_known, 0.0))
        self.bias.copy_((priors / priors.sum()).log())


# --- the networks -----------------------------------------------------------------------------------------------------


class TextNetwork(nn.Module):
    """Words, an encoder, and one vector for each text or pair."""

    def __init__(self, config: ClassifierConfig, symbols: Symbols, *, reach: int) -> None:
        """`reach` is how many words the window encoder sees on each side."""
        super().__init__()
        self.pooling, self.texts = config.pooling, config.texts
        self.words = Embedding(symbols.target, config.word_width)
        with torch.no_grad():
            self.words.weight.mul_(FIRST_DEVIATION * config.word_width**0.5)
        self.letters = None
        if config.filters:
            self.letters = CharacterInput(
                spell_vocabulary(symbols.pieces, longest=MAX_LETTERS),
                config.width,
                character_width=config.letter_width,
                filter_widths=FILTER_WIDTHS,
                filters=config.filters,
                highways=0,
                longest=MAX_LETTERS,
            )
        self.sides = nn.Parameter(torch.zeros(2, config.input_width)) if config.texts == 2 else None
        self.encoder = config.make_encoder(reach)
        self.attention = linear(config.state_width, 1) if config.pooling == "attention" else None
        self.word_dropout, self.dropout = Dropout(config.word_dropout_rate), Dropout(config.dropout_rate)
        self.pooled_dropout = Dropout(config.pooled_dropout_rate)

    def forward(
        self,
        ids: Int[Tensor, "batch time"],
        lengths: Int[Tensor, " batch"],
        segments: Int[Tensor, "batch time"] | None,
    ) -> Float[Tensor, "batch features"]:
        """v of each text or pair."""
        states, packing = self._states(ids, lengths, segments)
        if self.texts == 1:
            pooled: Tensor = self.pooled_dropout(self._pool(states, lengths, packing))
            return pooled
        assert segments is not None
        second = (segments * packing.mask()).sum(1)  # symbols of the second text, its END counted
        each = torch.stack([lengths - second, second], 1).flatten()  # first and second text of each pair
        halves = self._pool(states, each, packing_of(each, int(each.max())))
        one, other = halves[0::2], halves[1::2]  # [batch, width]
        pooled = self.pooled_dropout(torch.cat([one, other, (one - other).abs(), one * other], 1))
        return pooled

    def vectors(
        self, ids: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"], pooling: Pooling | None
    ) -> Float[Tensor, "batch width"]:
        """The pooled states of single texts, which contain BEGIN and END."""
        states, packing = self._states(ids, lengths, None)
        return self._pool(states, lengths, packing) if pooling is None else pool(states, lengths, pooling)

    def _states(
        self, ids: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"], segments: Tensor | None
    ) -> tuple[Float[Tensor, "tokens width"], Packing]:
        packing = packing_of(lengths, ids.shape[1])
        words = pack(ids, packing)
        if self.word_dropout.is_active:  # some words are read as unknown, so that unknown ones are read as usual
            is_kept = self.word_dropout(self.words.weight.new_ones(len(words))) > 0
            words = words.where(is_kept | (words < len(RESERVED)), UNKNOWN)
        x = self.words(words)  # [tokens, word width]
        if self.letters is not None:
            x = torch.cat([x, self.letters(words)], 1)
        if self.sides is not None and segments is not None:
            x = x + self.sides[pack(segments, packing)]
        x = self.dropout(x)
        return (x if self.encoder is None else self.encoder(x, packing)), packing

    def _pool(
        self, states: Float[Tensor, "tokens width"], lengths: Int[Tensor, " texts"], packing: Packing
    ) -> Float[Tensor, "texts width"]:
        if self.attention is None:
            assert self.pooling != "attention"
            return pool(states, lengths, self.pooling)
        weights = unpack(self.attention(states), packing)[:, :, 0]  # [texts, longest]
        weights = weights.masked_fill(~packing.mask(), float("-inf")).softmax(1)
        return torch.einsum("tl,tlw->tw", weights, unpack(states, packing))


# --- the model --------------------------------------------------------------------------------------------------------


class TextClassifier(nn.Module):
    """N-grams and networks; `class_scores` is the log of their mean probability, `sentence_vectors` their states."""

    def __init__(self, config: ClassifierConfig, symbols: Symbols) -> None:
        super().__init__()
        self.wide = CountedGrams(config) if config.grams else None
        made = [TextNetwork(config, symbols, reach=config.window + number) for number in range(config.networks)]
        self.networks = cast("Sequence[TextNetwork]", nn.ModuleList(made))
        features = config.state_width * (4 if config.texts == 2 else 1)
        self.outputs = nn.ModuleList(linear(features, config.classes) for _ in made)

    def class_scores(
        self,
        ids: Int[Tensor, "batch time"],
        lengths: Int[Tensor, " batch"],
        segments: Int[Tensor, "batch time"] | None = None,
    ) -> Float[Tensor, "batch classes"]:
        """log P(c ∣ x); texts contain BEGIN and END."""
        parts = torch.stack(list(self.part_scores(ids, lengths, segments)))  # [parts, batch, classes]
        return parts.log_softmax(2).logsumexp(0) - math.log(len(parts))

    def part_scores(
        self,
        ids: Int[Tensor, "batch time"],
        lengths: Int[Tensor, " batch"],
        segments: Int[Tensor, "batch time"] | None = None,
    ) -> Sequence[Float[Tensor, "batch classes"]]:
        """The scores of each part, which learn by losses of their own."""
        counted = [] if self.wide is None else [self.wide(ids, lengths, segments)]
        pairs = zip(self.outputs, self.networks, strict=True)
        return [*counted, *(output(network(ids, lengths, segments)) for output, network in pairs)]

    def count_texts(self, texts: Iterable[tuple[tuple[Tensor, ...], Int[Tensor, " batch"]]]) -> None:
        """Count the n-grams of training texts by class, before the first step; what was counted before is kept."""
        if self.wide is not None and not self.wide.ratios.any():
            self.wide.count(texts)

    def word_tables(self) -> Sequence[Embedding]:
        """The tables that can begin with word vectors."""
        return [network.words for network in self.networks]

    def sentence_vectors(
        self, ids: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"], *, pooling: Pooling | None = None
    ) -> Float[Tensor, "batch features"]:
        """The pooled states of each text; texts come without BEGIN and END. `pooling` replaces that of the settings."""
        framed = frame(ids, lengths)
        return torch.cat([network.vectors(framed, lengths + FRAME, pooling) for network in self.networks], 1)
