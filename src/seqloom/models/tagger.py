"""Taggers: a tag for each word of a sentence, in one column or in several.

    word      x_t = [E[w_t]; c(w_t)]                                     its row of a table, and its letters
    letters   c_k = relu(max_i (W_k [e_i; …; e_{i+k−1}] + b_k))          filters of width k: a pattern, anywhere in w_t
    encoder   h_1 … h_n = encoder(x_1 … x_n)                             window, recurrent, transformer (`nn.encoders`)
    output    P(y_t ∣ x) = softmax(W h_t + b)                            softmax: each word by itself
              P(y ∣ x) ∝ exp(Σ_t s_t(y_t) + Σ_t A[y_t, y_{t+1}])         crf: the tags of a sentence together (`nn.crf`)

Each column has an output of its own on the same states (Plank et al., 2016). Lemmas are edit scripts, of which there
are few (Chrupała, 2006). Words that are rare in the training text are sometimes read as unknown in training, so that
letters and neighbours have to do, as for a word that was never seen (`tasks.tagging`).
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, cast

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.core.declaration import ModelSizes, Pieces, Purpose, Reason, TaggedFacts, TaskKind
from seqloom.core.errors import ConfigError
from seqloom.models.cell_options import CellOptions
from seqloom.nn.blocks import NoPositions
from seqloom.nn.crf import CRF, best_tags, only_legal
from seqloom.nn.dropout import Dropout, reseed
from seqloom.nn.embeddings import Embedding, Symbols
from seqloom.nn.encoders import Encoder, RecurrentEncoder, TransformerEncoder, WindowEncoder, unpack
from seqloom.nn.init import linear, seeded
from seqloom.nn.multihead import check_heads
from seqloom.nn.packing import Packing, length_mask, pack, packing_of
from seqloom.nn.recurrent import Skip, input_widths
from seqloom.nn.rotary import Rotary, rotary_rates

FILTER_WIDTHS = (2, 3, 4, 5)
"""Letters that a filter sees: the usual endings, with the mark of the end of a word."""

MAX_CRF_TAGS = 200
"""Tags of a column up to which their steps are learned: a table of all pairs. Larger columns have a softmax."""

ROTARY_BASE = 10_000.0
"""The slowest pair of numbers turns about once in 2π times as many positions."""

SIZES = ((20_000, 96, 1), (100_000, 128, 1), (2_000_000, 160, 2), (sys.maxsize, 256, 2))
"""Up to so many words: width of the states (of each direction) and layers."""

LETTER_CHUNKS = 4
"""Parts in which the forms of a batch are read, by length: a long one makes few others longer."""

Legal = Bool[Tensor, "tags_1 tags_1"]
"""Which tag may follow which; the last row is the begin of a sentence, the last column its end."""


class TaggerConfig(CellOptions):
    """A tagger: words and letters, an encoder, and an output for each column."""

    purpose: ClassVar[Purpose] = "tagger"
    task_kind: ClassVar[TaskKind] = "tagging"
    pieces: ClassVar[Pieces] = "word"
    is_rounded_by_int8: ClassVar[bool] = False

    kind: Literal["tagger"] = "tagger"
    """Names this model in a config file."""
    encoder: Literal["recurrent", "window", "transformer"] = "recurrent"
    """How a word sees the others: through recurrent states, in a window around it, or by attention to all."""
    directions: Literal[1, 2] = 2
    """Whether recurrent layers read from left to right only (1), or both ways (2)."""
    width: int = Field(160, ge=1, le=100_000)
    """Size of the states; of recurrent layers, in each direction."""
    layers: int = Field(2, ge=1, le=1_000)
    """Layers of the encoder."""
    skip: Skip = "none"
    """The connection past each recurrent layer: none, residual (added), highway (mixed by a gate) or dense (joined)."""
    window: int = Field(2, ge=0, le=100)
    """Words on each side that the window encoder sees."""
    heads: int = Field(4, ge=1)
    """Attention heads of the transformer encoder."""
    feed_forward: int = Field(512, ge=1, le=1_000_000)
    """Inner size of the feed-forward blocks of the transformer encoder."""
    word_width: int = Field(128, ge=1, le=100_000)
    """Size of each word's row; that of the vectors, if `vectors` names some."""
    letter_width: int = Field(32, ge=1, le=10_000)
    """Size of each letter's row."""
    filters: int = Field(50, ge=0, le=10_000)
    """Filters of each width (2 to 5 letters) that read the letters of a word; 0 reads words only."""
    output: Literal["softmax", "crf"] = "softmax"
    """Whether the tags of a sentence are predicted one by one, or as a sequence. A column with more than 200 tags
    always has a softmax."""
    dropout_rate: float = Field(0.33, ge=0, lt=1)
    """Share of numbers dropped from words, between layers and from the states, in training."""
    vectors: str | None = None
    """A folder of word vectors, as `seqloom train model.kind=word2vec` makes them: the rows of words begin with them,
    and words that only they have are known too."""
    outputs: tuple[int, ...] = Field((), max_length=1_000)
    """Tags of each column, in the order of task.columns: as many as the training text has."""

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
            self.check_reset("tagger", read, width=self.width)

    @property
    def input_width(self) -> int:
        """Size of what is read of a word: its row, and its letters."""
        return self.word_width + self.filters * len(FILTER_WIDTHS)

    def has_crf(self, tags: int) -> bool:
        """Whether a column of so many tags has a CRF."""
        return self.output == "crf" and tags <= MAX_CRF_TAGS

    def sizes_for_tags(self, facts: TaggedFacts) -> ModelSizes:
        _, width, layers = next(row for row in SIZES if facts.words <= row[0])
        depth = f"{layers} layer{'s' if layers > 1 else ''} of width {width}"
        if self.encoder == "transformer":
            width *= 2
            sizes = {"width": width, "layers": layers, "feed_forward": 2 * width, "outputs": list(facts.tags)}
            reason = Reason(("model.kind", "model.width", "model.layers"), f"{layers} layers of width {width}")
            return ModelSizes(sizes, (reason,), max_learning_rate=1e-3)
        way = {1: "from left to right", 2: "in both directions"}[self.directions]
        why = f"{depth} {way}" if self.encoder == "recurrent" else f"{depth} over {2 * self.window + 1} words"
        reason = Reason(("model.kind", "model.width", "model.layers"), f"{why}: enough for this much text")
        return ModelSizes({"width": width, "layers": layers, "outputs": list(facts.tags)}, (reason,))

    def make_encoder(self) -> Encoder:
        """How a word sees the others."""
        rate = self.dropout_rate
        if self.encoder == "window":
            return WindowEncoder(self.input_width, self.width, reach=self.window, layers=self.layers, dropout_rate=rate)
        if self.encoder == "recurrent":
            return RecurrentEncoder(
                self.make_cell(),
                self.input_width,
                self.width,
                layers=self.layers,
                directions=self.directions,
                skip=self.skip,
                dropout_rate=rate,
            )
        return TransformerEncoder(
            self.input_width,
            self.width,
            positions=NoPositions(),
            rotary=Rotary(rotary_rates(self.width // self.heads, base=ROTARY_BASE)),
            layers=self.layers,
            heads=self.heads,
            feed_forward=self.feed_forward,
            dropout_rate=rate,
        )

    def build(self, symbols: Symbols, *, seed: int) -> "Tagger":
        """A model with fresh weights drawn from `seed`; `symbols.source` are letters, `symbols.target` words."""
        self.check()
        with seeded(seed):
            model = Tagger(self, letters=symbols.source, words=symbols.target)
        reseed(model, seed)
        return model


# --- what is read -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TaggerInput:
    """Sentences of words, padded, and the letters of their different forms."""

    words: Int[Tensor, "batch time"]
    forms: Int[Tensor, "batch time"]
    """The row of each word's letters."""
    lengths: Int[Tensor, " batch"]
    letters: Int[Tensor, "forms letters"]
    """Between BEGIN and END, padded."""
    letter_lengths: Int[Tensor, " forms"]


class LetterFilters(nn.Module):
    """A vector for each form from its letters: filters, and the highest value of each over all places."""

    def __init__(self, letters: int, *, letter_width: int, filters: int) -> None:
        super().__init__()
        self.letters = Embedding(letters, letter_width)
        made = [nn.Conv1d(letter_width, filters, width) for width in FILTER_WIDTHS]
        self.filters = cast("Sequence[nn.Conv1d]", nn.ModuleList(made))

    def forward(
        self, letters: Int[Tensor, "forms letters"], lengths: Int[Tensor, " forms"]
    ) -> Float[Tensor, "forms width"]:
        """In parts of similar length; which forms are read together changes nothing."""
        order = lengths.argsort(stable=True)
        parts = [self._read(letters[some], lengths[some]) for some in order.chunk(LETTER_CHUNKS)]
        return torch.cat(parts)[order.argsort()]

    def _read(self, letters: Tensor, lengths: Tensor) -> Tensor:
        longest = int(lengths.max()) if len(lengths) else 0
        vectors = self.letters(letters[:, :longest]).transpose(1, 2)  # [forms, letter width, letters]
        is_padding = ~length_mask(lengths, longest)[:, None]  # [forms, 1, letters]
        found = []
        for each in self.filters:
            # A pattern may reach over the end of a word, but begins within it: so no vector depends on the padding.
            sums = each(F.pad(vectors, (0, each.kernel_size[0] - 1)))  # [forms, filters, letters]
            found.append(sums.masked_fill(is_padding, float("-inf")).amax(2).relu())
        return torch.cat(found, 1)


# --- outputs ----------------------------------------------------------------------------------------------------------


class TagOutput(nn.Module):
    """The tags of a column from the states of words: a softmax for each word, or a CRF over the sentence."""

    def __init__(self, width: int, tags: int, *, has_crf: bool) -> None:
        super().__init__()
        self.scores = linear(width, tags)
        self.crf = CRF(tags) if has_crf else None

    def loss(
        self,
        states: Float[Tensor, "tokens width"],
        tags: Int[Tensor, " tokens"],
        packing: Packing,
        *,
        legal: Legal | None = None,
    ) -> tuple[Float[Tensor, ""], int]:
        """−Σ log P of the tags, and how many there are; a negative tag is not known."""
        scores: Tensor = self.scores(states)
        if self.crf is None:
            total = F.cross_entropy(scores, tags.clamp(min=-1), ignore_index=-1, reduction="sum")
            return total, int((tags >= 0).sum())
        known = tags.new_zeros(packing.batch * packing.longest).index_copy(0, packing.flat, tags)
        known = known.view(packing.batch, packing.longest)
        found = self.crf(unpack(scores, packing), packing.mask().sum(1), tags=known, legal=legal)
        return -found.sum(), int((tags >= 0).sum())

    @torch.no_grad()
    def best(
        self, states: Float[Tensor, "tokens width"], packing: Packing, *, legal: Legal | None = None
    ) -> Int[Tensor, " tokens"]:
        """The most probable tags, among sequences of legal steps if `legal` is given."""
        scores: Tensor = self.scores(states)
        if self.crf is None and legal is None:
            return scores.argmax(1)
        if self.crf is None:
            assert legal is not None
            steps, scores = only_legal(scores.new_zeros(legal.shape), legal), scores.log_softmax(1)
        else:
            steps = self.crf.allowed(legal)
        return pack(best_tags(unpack(scores, packing), packing.mask().sum(1), steps=steps)[:, :, None], packing)[:, 0]


class Tagger(nn.Module):
    """Words and letters, the encoder, and an output for each column; `forward` gives the states of words."""

    def __init__(self, config: TaggerConfig, *, letters: int, words: int) -> None:
        super().__init__()
        self.words = Embedding(words, config.word_width)
        self.letters = None
        if config.filters:
            self.letters = LetterFilters(letters, letter_width=config.letter_width, filters=config.filters)
        encoder = config.make_encoder()
        self.encoder, self.dropout = encoder, Dropout(config.dropout_rate)
        made = [TagOutput(encoder.width, tags, has_crf=config.has_crf(tags)) for tags in config.outputs]
        self.outputs = cast("Sequence[TagOutput]", nn.ModuleList(made))

    def forward(self, given: TaggerInput) -> tuple[Float[Tensor, "tokens width"], Packing]:
        """The states of all words, sentence after sentence, and their places in the batch."""
        packing = packing_of(given.lengths, given.words.shape[1])
        x = self.words(pack(given.words, packing))  # [tokens, word width]
        if self.letters is not None:
            spelled = self.letters(given.letters, given.letter_lengths)  # [forms, letters' width]
            x = torch.cat([x, spelled.index_select(0, pack(given.forms, packing))], 1)
        states: Tensor = self.encoder(self.dropout(x), packing)
        return self.dropout(states), packing
