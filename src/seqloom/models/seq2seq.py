"""The recurrent encoder-decoder with attention (Sutskever et al., 2014; Bahdanau et al., 2015; Luong et al., 2015).

    memory   h_1 … h_n = encoder(E[source])                                in both directions
    start    s_0 = begin(W_b q(h_1 … h_n) + b)                             the bridge, for each decoder layer
    states   s_t = decoder(E[y_{t−1}], s_{t−1})
    look     c_t = Σ_j softmax_j(score(s_t, h_j)) h_j
    output   P(y_t | y_1 … y_{t−1}, source) = softmax(W tanh(W_c [c_t; s_t] + b_c))

Nothing that is looked at goes back into the decoder unless `input_feeding` asks for it, so in training the decoder
runs over the whole target in one kernel, and all its states look at the memory at once.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from seqloom.core.config import Config
from seqloom.core.errors import ConfigError
from seqloom.core.stepping import Source, State, Step
from seqloom.core.symbols import BEGIN, END
from seqloom.nn.attention import AdditiveScore, Attention, BilinearScore, DotScore, Memory, Owners, Score, owners_of
from seqloom.nn.cells import GRUCell, LSTMCell
from seqloom.nn.dropout import Dropout, reseed
from seqloom.nn.embeddings import Embedding, Symbols, Tying, tied_tables
from seqloom.nn.init import seeded, xavier_uniform
from seqloom.nn.masks import length_mask
from seqloom.nn.outputs import Output
from seqloom.nn.packing import pack, packing_of
from seqloom.nn.recurrent import Bidirectional, MakeCell, Stack, StackState, cells_of, ends

Summary = Literal["last", "mean", "max"]
"""The function q of the memory from which the decoder starts."""
Query = Literal["current", "previous"]
"""Which decoder state looks at the memory: s_t or s_{t−1}."""


class Seq2SeqConfig(Config):
    """A recurrent encoder-decoder with attention."""

    kind: Literal["seq2seq"] = "seq2seq"
    """Names this model in a config file."""
    cell: Literal["lstm", "gru"] = "lstm"
    """The recurrent cell of encoder and decoder."""
    width: int = Field(256, ge=1)
    """Size of the decoder's hidden states."""
    encoder_width: int | None = Field(None, ge=1)
    """Size of the encoder's hidden states, both directions together; left open, that of the decoder."""
    embedding_width: int = Field(256, ge=1)
    """Size of each symbol's vector, and of the features from which the next symbol is told."""
    encoder_layers: int = Field(2, ge=1)
    """Layers of the encoder."""
    decoder_layers: int = Field(2, ge=1)
    """Layers of the decoder."""
    is_bidirectional: bool = True
    """Whether the encoder also reads from right to left; each direction then has half of its width."""
    attention: Literal["dot", "bilinear", "additive"] = "bilinear"
    """How a decoder state is compared with the memory: s·h, s·W h or v·tanh(W s + U h)."""
    query: Query = "current"
    """The decoder state that looks at the memory: the one that has read the last symbol, or the one before it."""
    input_feeding: bool = False
    """Whether the decoder also reads what was looked at. Training then goes step by step, which is slower.
    With the current query it reads its last features (Luong), with the previous one the context (Bahdanau)."""
    summary: Summary = "last"
    """From what the decoder starts: the last state of each direction, or the mean or maximum over the sentence."""
    forget_bias: float = 1.0
    """Where the bias of an LSTM's forget gate begins; larger remembers for longer."""
    dropout_rate: float = Field(0.2, ge=0, lt=1)
    """Share of numbers dropped from embeddings, between layers and from the features, in training."""
    tying: Tying = "all"
    """Tables that are one: all (source, target, output), output (target, output) or none."""

    def build(self, symbols: Symbols, *, seed: int) -> "Seq2Seq":
        """A model with fresh weights drawn from `seed`."""
        with seeded(seed):
            tables = tied_tables(symbols, self.embedding_width, self.tying)
            encoder, memory_width = self._encoder(tables.source)
            decoder = self._decoder(tables.target, memory_width)
            bridge = Bridge(memory_width, self.width, layers=self.decoder_layers, summary=self.summary)
            model = Seq2Seq(encoder, bridge, decoder=decoder, output=Output(tables.output, has_bias=True))
        reseed(model, seed)
        return model

    def _make_cell(self) -> MakeCell:
        return GRUCell if self.cell == "gru" else partial(LSTMCell, forget_bias=self.forget_bias)

    def _encoder(self, embedding: Embedding) -> "tuple[Encoder, int]":
        width = self.encoder_width or self.width
        make, directions = self._make_cell(), 2 if self.is_bidirectional else 1
        if width % directions:
            raise ConfigError(
                f"an encoder width of {width} cannot be halved between two directions; set model.encoder_width to "
                f"{width - 1 or 2} or {width + 1}, or model.is_bidirectional=false"
            )
        cells = [
            cells_of(
                make,
                self.embedding_width,
                width=width // directions,
                layers=self.encoder_layers,
                directions=directions,
            )
            for _ in range(directions)
        ]
        layers: Stack | Bidirectional
        if self.is_bidirectional:
            layers = Bidirectional(*cells, dropout_rate=self.dropout_rate)
        else:
            layers = Stack(*cells, dropout_rate=self.dropout_rate)
        return Encoder(embedding, layers, dropout_rate=self.dropout_rate), width

    def _decoder(self, embedding: Embedding, memory_width: int) -> "Decoder":
        kinds: dict[str, type[DotScore] | type[BilinearScore] | type[AdditiveScore]]
        kinds = {"dot": DotScore, "bilinear": BilinearScore, "additive": AdditiveScore}
        score: Score = kinds[self.attention](self.width, memory_width)
        fed_width = 0
        if self.input_feeding:
            fed_width = self.embedding_width if self.query == "current" else memory_width
        cells = cells_of(
            self._make_cell(), self.embedding_width + fed_width, width=self.width, layers=self.decoder_layers
        )
        return Decoder(
            embedding,
            Stack(cells, dropout_rate=self.dropout_rate),
            attention=Attention(score),
            join=nn.Linear(memory_width + self.width, self.embedding_width),
            query=self.query,
            has_feeding=self.input_feeding,
            dropout_rate=self.dropout_rate,
        )


class Encoder(nn.Module):
    """Embeddings and the recurrent layers over them."""

    def __init__(self, embedding: Embedding, layers: Stack | Bidirectional, *, dropout_rate: float) -> None:
        super().__init__()
        self.embedding = embedding
        self.layers = layers
        self.dropout = Dropout(dropout_rate)

    @property
    def directions(self) -> int:
        return 2 if isinstance(self.layers, Bidirectional) else 1

    def forward(self, source: Source) -> Float[Tensor, "batch source width"]:
        embedded = self.dropout(self.embedding(source.ids))
        if isinstance(self.layers, Bidirectional):
            states: Tensor = self.layers(embedded, source.lengths)
        else:
            states, _ = self.layers(embedded)
        return states


class Bridge(nn.Module):
    """From the memory to a hint for each decoder layer, W q(h_1 … h_n) + b, so that no two sizes have to agree."""

    def __init__(self, memory_width: int, width: int, *, layers: int, summary: Summary) -> None:
        super().__init__()
        self.width = width
        self.layers = layers
        self.summary = summary
        self.hint = nn.Linear(memory_width, layers * width)
        xavier_uniform(self.hint.weight, parts=layers)
        nn.init.zeros_(self.hint.bias)

    def forward(
        self, values: Float[Tensor, "batch source memory"], lengths: Int[Tensor, " batch"], *, directions: int
    ) -> Float[Tensor, "batch layers width"]:
        hints: Tensor = self.hint(self.summarise(values, lengths, directions=directions))
        return hints.view(len(lengths), self.layers, self.width)

    def summarise(
        self, values: Float[Tensor, "batch source memory"], lengths: Int[Tensor, " batch"], *, directions: int
    ) -> Float[Tensor, "batch memory"]:
        """q: the last state of each direction, or the mean or maximum over the real positions."""
        if self.summary == "last":
            return ends(values, lengths, directions=directions)
        counted = lengths.clamp(min=1)
        padding = ~length_mask(counted, values.shape[1])[:, :, None]
        if self.summary == "max":
            return values.masked_fill(padding, float("-inf")).amax(1)
        return values.masked_fill(padding, 0).sum(1) / counted[:, None]


@dataclass(frozen=True)
class Decoding:
    """Where each row stands: the state of every layer, and its sentence's place in the memory they share.

    `fed` is what the decoder reads besides the next symbol: its last features, under input feeding.
    """

    memory: Memory
    owners: Owners
    layers: StackState
    fed: Float[Tensor, "rows features"] | None

    def select(self, rows: Int[Tensor, " picked"]) -> "Decoding":
        count = len(self.owners.sentence)
        if len(rows) == count and torch.equal(rows, torch.arange(count, device=rows.device)):
            return self
        layers = tuple(tuple(part[rows] for part in layer) for layer in self.layers)
        chosen = replace(self, layers=layers, fed=None if self.fed is None else self.fed[rows])
        return chosen._owned_by(self.owners.sentence[rows])

    def _owned_by(self, sentence: Int[Tensor, " rows"]) -> "Decoding":
        """With these owners; sentences without rows leave the memory once they are half of it."""
        memory, sentences = self.memory, self.owners.sentences
        is_kept = torch.zeros(sentences, dtype=torch.bool, device=sentence.device)
        is_kept[sentence] = True
        kept = is_kept.nonzero().flatten()
        if 2 * len(kept) <= sentences:
            memory, sentences = memory.select(kept), len(kept)
            sentence = (is_kept.cumsum(0) - 1)[sentence]
        return replace(self, memory=memory, owners=owners_of(sentence, sentences))


@dataclass(frozen=True)
class Decoded:
    """One position of the decoder: features for the output, where it looked, and the state after it."""

    features: Float[Tensor, "rows features"]
    weights: Float[Tensor, "sentences slots source"]
    state: Decoding


class Decoder(nn.Module):
    """A stack that reads the target, and an attention by which its states look at the memory."""

    def __init__(
        self,
        embedding: Embedding,
        stack: Stack,
        *,
        attention: Attention,
        join: nn.Linear,
        query: Query,
        has_feeding: bool,
        dropout_rate: float,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.stack = stack
        self.attention = attention
        self.join = join
        self.query = query
        self.has_feeding = has_feeding
        self.dropout = Dropout(dropout_rate)
        xavier_uniform(join.weight)
        nn.init.zeros_(join.bias)

    def start(
        self,
        values: Float[Tensor, "batch source memory"],
        lengths: Int[Tensor, " batch"],
        *,
        hints: Float[Tensor, "batch layers width"],
    ) -> Decoding:
        """One row per sentence, before the first symbol."""
        memory = self.attention.remember(values, lengths)
        owners = owners_of(torch.arange(len(lengths), device=lengths.device), len(lengths))
        feeds_features = self.has_feeding and self.query == "current"
        fed = values.new_zeros(len(lengths), self.join.out_features) if feeds_features else None
        return Decoding(memory, owners, self.stack.begin(hints), fed)

    def forward(
        self, previous: Int[Tensor, "batch target"], lengths: Int[Tensor, " batch"], *, start: Decoding
    ) -> Float[Tensor, "tokens features"]:
        """Features at all real positions, sentence after sentence."""
        packing = packing_of(lengths, previous.shape[1])
        packed: Tensor
        if self.has_feeding:
            features, _ = self.follow(previous, start)
            packed = self.dropout(pack(features, packing))
            return packed
        states, _ = self.stack(self.embed(previous), start.layers)
        queries = states
        if self.query == "previous":
            queries = torch.cat([start.layers[-1][0][:, None], states[:, :-1]], 1)
        contexts, _ = self.attention(queries, start.memory)
        joined = pack(torch.cat([contexts, states], 2), packing)
        packed = self.dropout(self.join(joined).tanh())
        return packed

    def follow(
        self, previous: Int[Tensor, "batch target"], state: Decoding
    ) -> tuple[Float[Tensor, "batch target features"], Decoding]:
        """Step by step: the only way where something is fed back, and the plain twin of `forward` elsewhere."""
        features = []
        for embedded in self.embed(previous).unbind(1):
            decoded = self.step(embedded, state)
            features.append(decoded.features)
            state = decoded.state
        return torch.stack(features, 1), state

    def embed(self, ids: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape width"]:
        """dropout(E[id])"""
        embedded: Tensor = self.dropout(self.embedding(ids))
        return embedded

    def step(self, embedded: Float[Tensor, "rows width"], state: Decoding) -> Decoded:
        """One position for every row."""
        if self.query == "previous":
            context, weights = self._look(state.layers[-1][0], state)
            inputs = torch.cat([embedded, context], 1) if self.has_feeding else embedded
            hidden, layers = self.stack.step(inputs, state.layers)
        else:
            inputs = embedded if state.fed is None else torch.cat([embedded, state.fed], 1)
            hidden, layers = self.stack.step(inputs, state.layers)
            context, weights = self._look(hidden, state)
        features = self.join(torch.cat([context, hidden], 1)).tanh()
        fed = None if state.fed is None else features
        return Decoded(features, weights, replace(state, layers=layers, fed=fed))

    def _look(
        self, hidden: Float[Tensor, "rows width"], state: Decoding
    ) -> tuple[Float[Tensor, "rows memory"], Float[Tensor, "sentences slots source"]]:
        contexts, weights = self.attention(state.owners.gather(hidden), state.memory)
        return state.owners.deal(contexts), weights


class Seq2Seq(nn.Module):
    """Encoder, bridge, decoder and output; `forward` is teacher-forced training, `stepper` is decoding."""

    def __init__(self, encoder: Encoder, bridge: Bridge, *, decoder: Decoder, output: Output) -> None:
        super().__init__()
        self.encoder = encoder
        self.bridge = bridge
        self.decoder = decoder
        self.output = output

    def forward(
        self, source: Source, previous: Int[Tensor, "batch target"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "tokens width"]:
        """Features of the real target positions, sentence after sentence, from the symbols before each."""
        features: Tensor = self.decoder(previous, lengths, start=self.start(source))
        return features

    def start(self, source: Source) -> Decoding:
        """The decoder before its first symbol, one row per sentence."""
        values = self.encoder(source)
        hints = self.bridge(values, source.lengths, directions=self.encoder.directions)
        return self.decoder.start(values, source.lengths, hints=hints)

    def stepper(self, *, attention: bool = False) -> "Seq2SeqStepper":
        """This model as the search sees it; with `attention`, each step tells where it looked in the source."""
        return Seq2SeqStepper(self, gives_attention=attention)


class Seq2SeqStepper:
    """Decodes a recurrent encoder-decoder, without dropout and without gradients whatever mode the model is in."""

    begin = BEGIN
    end = END

    def __init__(self, model: Seq2Seq, *, gives_attention: bool) -> None:
        self.model = model
        self.gives_attention = gives_attention

    def start(self, source: Source) -> Decoding:
        with _evaluating(self.model):
            return self.model.start(source)

    def step(self, state: State, last: Int[Tensor, " rows"]) -> Step:
        assert isinstance(state, Decoding)
        with _evaluating(self.model):
            decoded = self.model.decoder.step(self.model.decoder.embed(last), state)
            log_probs = self.model.output.log_probs(decoded.features)
        attention = state.owners.deal(decoded.weights) if self.gives_attention else None
        return Step(log_probs, decoded.state, attention=attention)


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """No gradients and no dropout inside; afterwards every module is in the mode it was in."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True
