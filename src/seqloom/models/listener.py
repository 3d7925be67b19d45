"""Frames to text with an attention decoder: Listen, Attend and Spell (Chan et al., 2016), trained together with CTC.

    frames      x_1 … x_T                                   log-mel energies, steps of a pen, columns of an image
    encoder     h_1 … h_S = encoder(subsampled x)           `models/frame_encoder.py`, as the CTC model has it
    decoder     s_t = cell([E[y_{t−1}]; c_t], s_{t−1})      `nn/decoder.py`
    attention   c_t = Σ_j softmax_j(v · tanh(W s_{t−1} + U h_j)) h_j
    output      P(y_t ∣ y_<t, x) = softmax(V tanh(W [c_t; s_t] + b))
    blank       P_s(c) = softmax(W h_s + b)                 as in `models/ctc.py`
    loss        λ CTC(y ∣ x) − (1 − λ) Σ_t log P(y_t ∣ y_<t, x)            λ = ctc_share (Watanabe et al., 2017)

Unlike CTC, each symbol depends on those before it, and a transcript may have more symbols than frames are left. CTC
holds the attention to the order of the frames, in training and, by `decoding_share`, in the search.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from seqloom.core.declaration import FrameFacts, ModelSizes
from seqloom.core.errors import UsageError
from seqloom.core.stepping import Source, State, Step
from seqloom.core.symbols import BEGIN, END, PAD
from seqloom.models.frame_encoder import FrameEncoderOptions
from seqloom.nn.attention import AdditiveScore, Attention
from seqloom.nn.decoder import Decoder, DecoderState
from seqloom.nn.dropout import Dropout, evaluating, reseed
from seqloom.nn.embeddings import Embedding, Symbols
from seqloom.nn.encoders import (
    Frames,
    Lengths,
    RecurrentEncoder,
    Subsampling,
    TransformerEncoder,
    encode_frames,
)
from seqloom.nn.init import linear, seeded
from seqloom.nn.outputs import Output
from seqloom.nn.recurrent import MakeCell, Stack, cells_of


class ListenerConfig(FrameEncoderOptions):
    """A model that transcribes recordings, handwriting or images of lines with an attention decoder."""

    trunk: ClassVar[tuple[str, ...]] = ("subsampling.", "encoder.")
    head: ClassVar[tuple[str, ...]] = ("blank.", "decoder.", "output.")

    kind: Literal["listener"] = "listener"
    """Names this model in a config file."""
    decoder_layers: int = Field(1, ge=1, le=1_000)
    """Recurrent layers of the decoder, as wide as those of the encoder."""
    ctc_share: float = Field(0.3, ge=0, lt=1)
    """Weight of CTC in the loss; the rest is that of the decoder."""
    decoding_share: float = Field(0.3, ge=0, lt=1)
    """Weight of CTC in the search; 0 leaves all to the decoder."""

    def sizes_for_frames(self, facts: FrameFacts) -> ModelSizes:
        sizes = super().sizes_for_frames(facts)
        return ModelSizes(sizes.settings, sizes.reasons, max_learning_rate=min(2e-3, sizes.max_learning_rate))

    def build(self, symbols: Symbols, *, seed: int, make_cell: MakeCell | None = None) -> "Listener":
        """A model of the target side's symbols with fresh weights drawn from `seed`.

        `make_cell` replaces the cell of the settings.
        """
        self.check()
        make_cell, rate, width = make_cell or self.make_cell(), self.dropout_rate, self.width
        with seeded(seed):
            encoder = self.make_encoder(make_cell)
            embedding = Embedding(symbols.target, width)
            cells = cells_of(make_cell, width + encoder.width, width=width, layers=self.decoder_layers)
            decoder = Decoder(
                embedding,
                Stack(cells, dropout_rate=rate),
                attention=Attention(AdditiveScore(width, encoder.width)),
                join=nn.Linear(encoder.width + width, width),
                first=None,
                query="previous",
                reads_context=False,
                feeds_attention=True,
                dropout_rate=rate,
                dropout_kind="between",
            )
            model = Listener(
                self.make_subsampling(),
                encoder,
                linear(encoder.width, symbols.target),
                decoder,
                Output(Embedding(symbols.target, width).weight, has_bias=True, absent=(PAD, BEGIN)),
                dropout_rate=rate,
                shares=(self.ctc_share, self.decoding_share),
            )
        reseed(model, seed)
        return model


@dataclass(frozen=True)
class FrameMemory:
    """What the encoder leaves of frames, with zeros as padding."""

    states: Float[Tensor, "batch shorter width"]
    lengths: Int[Tensor, " batch"]


class Listener(nn.Module):
    """Encoder, CTC beside the decoder, and the decoder with its output."""

    def __init__(
        self,
        subsampling: Subsampling,
        encoder: RecurrentEncoder | TransformerEncoder,
        blank: nn.Linear,
        decoder: Decoder,
        output: Output,
        *,
        dropout_rate: float,
        shares: tuple[float, float],
    ) -> None:
        super().__init__()
        self.subsampling, self.encoder, self.blank = subsampling, encoder, blank
        self.decoder, self.output = decoder, output
        self.dropout = Dropout(dropout_rate)
        self.ctc_share, self.decoding_share = shares

    def remember(self, frames: Frames, lengths: Lengths) -> FrameMemory:
        """What the decoder attends to. Padding of the frames may hold anything finite."""
        states, shorter = encode_frames(self.subsampling, self.encoder, frames, lengths)  # [batch, shorter, width]
        return FrameMemory(self.dropout(states), shorter)

    def blank_scores(self, memory: FrameMemory) -> Float[Tensor, "batch shorter symbols"]:
        """Scores of symbols and blank for each frame that is left, before the softmax."""
        scores: Tensor = self.blank(memory.states)
        return scores

    def frame_scores(
        self, frames: Frames, lengths: Lengths
    ) -> tuple[Float[Tensor, "batch shorter symbols"], Int[Tensor, " batch"]]:
        """The same of frames as they are read, and how many frames of each row are left."""
        memory = self.remember(frames, lengths)
        return self.blank_scores(memory), memory.lengths

    def forward(
        self, memory: FrameMemory, previous: Int[Tensor, "batch target"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "tokens width"]:
        """Features of the real target positions, transcript after transcript, from the symbols before each."""
        features: Tensor = self.decoder(previous, lengths, start=self.start(memory))
        return features

    def start(self, memory: FrameMemory) -> DecoderState:
        """The decoder before its first symbol, one row per sample."""
        nothing = memory.states.new_zeros(len(memory.lengths), 0)
        return self.decoder.start(memory.states, memory.lengths, context=nothing, hints=None)

    def stepper(self, memory: FrameMemory) -> "ListenerStepper":
        """This model as the search sees it, for these samples."""
        return ListenerStepper(self, memory)


class ListenerStepper:
    """Decodes given frames, without dropout and gradients. Of a source, only the number of rows matters."""

    begin = BEGIN
    end = END

    def __init__(self, model: Listener, memory: FrameMemory) -> None:
        self.model, self.memory = model, memory

    def start(self, source: Source) -> DecoderState:
        if len(source.lengths) != len(self.memory.lengths):
            raise UsageError(f"{len(source.lengths)} rows for {len(self.memory.lengths)} samples; give one for each")
        with evaluating(self.model):
            return self.model.start(self.memory)

    def step(self, state: State, last: Int[Tensor, " rows"]) -> Step:
        assert isinstance(state, DecoderState)
        with evaluating(self.model):
            decoded = self.model.decoder.step(self.model.decoder.embed(last), state)
            return Step(self.model.output.log_probs(decoded.features), decoded.state)
