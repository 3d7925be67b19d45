"""Frames to text: an encoder that gives each frame a symbol or a blank, trained with CTC (Graves et al., 2006).

    frames      x_1 … x_T                                   log-mel energies, steps of a pen, columns of an image
    subsampled  z_s = [x_{sk+1}; …; x_{sk+k}]               stack: k frames become one of k times the width
                z_s = relu(Σ_i W_i x_{sk+1+i} + b)          convolution: i from −k to k
    encoder     h = layers of recurrent cells in one or both directions, or of a Transformer, over z
    output      P_s(c) = softmax(W h_s + b)                 c: a symbol of the text, or the blank

k is `stride`: S = ⌈T / k⌉ frames are left. The transcript is as probable as all of its paths together (`nn/ctc.py`);
`search/ctc.py` finds the best one. The blank has the id of padding, which no text contains, so that the symbols are
those of a language model with the same tokeniser.
"""

import sys
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from seqloom.core.declaration import FrameFacts, ModelSizes, Pieces, Purpose, Reason, TaskKind
from seqloom.core.errors import ConfigError
from seqloom.models.cell_options import CellOptions
from seqloom.nn.blocks import SinusoidalPositions
from seqloom.nn.dropout import Dropout, reseed
from seqloom.nn.embeddings import Symbols
from seqloom.nn.encoders import Frames, RecurrentEncoder, Stacking, StridedConvolution, TransformerEncoder, unpack
from seqloom.nn.init import linear, seeded
from seqloom.nn.multihead import check_heads
from seqloom.nn.packing import length_mask, pack_features, packing_of
from seqloom.nn.recurrent import DropoutKind, MakeCell, Skip, input_widths

SIZES = ((30_000, 64, 2), (3_000_000, 128, 2), (30_000_000, 256, 3), (sys.maxsize, 512, 4))
"""Up to so many frames: width of each direction, and layers."""

MIN_FRAMES_PER_SYMBOL = 4
"""Frames that each symbol of a transcript has at least after subsampling, in the mean."""

MAX_STRIDE = 3

Lengths = Int[Tensor, " batch"]


# --- settings --------------------------------------------------------------------------------------------------------


class CtcConfig(CellOptions):
    """A model that transcribes recordings, handwriting or images of lines, trained with CTC."""

    purpose: ClassVar[Purpose] = "transcriber"
    task_kind: ClassVar[TaskKind] = "transcription"
    pieces: ClassVar[Pieces] = "char"
    trunk: ClassVar[tuple[str, ...]] = ("subsampling.", "encoder.")
    head: ClassVar[tuple[str, ...]] = ("output.",)

    kind: Literal["ctc"] = "ctc"
    """Names this model in a config file."""
    features: int = Field(40, ge=1, le=100_000)
    """Numbers of each frame: as many as the data has."""
    subsampling: Literal["stack", "convolution"] = "stack"
    """How several frames become one: joined (stack), or by a convolution that sees twice as many."""
    stride: int = Field(3, ge=1, le=100)
    """Frames that become one; 1 keeps all."""
    encoder: Literal["recurrent", "transformer"] = "recurrent"
    """What reads the frames."""
    width: int = Field(128, ge=1, le=100_000)
    """Size of the hidden states of each direction, or of a Transformer's vectors."""
    layers: int = Field(2, ge=1, le=1_000)
    """Layers of the encoder."""
    bidirectional: bool = True
    """Whether recurrent layers read in both directions. Without it, no frame waits for those after it."""
    skip: Skip = "none"
    """The connection past each recurrent layer: none, residual, highway or dense."""
    dropout_rate: float = Field(0.3, ge=0, lt=1)
    """Share of numbers dropped between layers and before the output, in training."""
    dropout_kind: DropoutKind = "between"
    """Whether recurrent layers drop each number by itself (between), or the same ones in all frames (variational)."""
    heads: int = Field(4, ge=1)
    """Transformer: attention heads; each takes width / heads numbers."""
    feed_forward: int = Field(512, ge=1, le=1_000_000)
    """Transformer: inner size of the feed-forward blocks."""

    def check(self) -> None:
        """Raise if some settings contradict each other."""
        super().check()
        if self.encoder == "transformer":
            check_heads(self.width, self.heads)
            return
        directions = 1 + self.bidirectional
        read = input_widths(self._read_width, self.width, layers=self.layers, directions=directions, skip=self.skip)
        self.check_reset("encoder", read, width=self.width)

    @property
    def _read_width(self) -> int:
        """Width of what the encoder reads."""
        return self.stride * self.features if self.subsampling == "stack" else self.width

    def frames_left(self, frames: int) -> int:
        """⌈T / k⌉: how many are left of so many frames."""
        return -(-frames // self.stride)

    def sizes_for_frames(self, facts: FrameFacts) -> ModelSizes:
        _, width, layers = next(row for row in SIZES if facts.frames <= row[0])
        per_symbol = facts.frames / max(1, facts.symbols)
        widest = min(facts.least_per_symbol, per_symbol / MIN_FRAMES_PER_SYMBOL)
        stride = self.stride if "stride" in self.model_fields_set else int(min(MAX_STRIDE, max(1, widest)))
        settings: dict[str, Any] = {"features": facts.features, "stride": stride, "width": width, "layers": layers}
        if self.encoder == "transformer":
            width = self.width if "width" in self.model_fields_set else max(128, width)
            settings |= {"width": width, "layers": 2 * layers, "feed_forward": 4 * width}
        depth = f"{settings['layers']} layers of width {settings['width']}"
        together = "each frame is read" if stride == 1 else f"{stride} frames are read as one"
        reasons = (
            Reason(
                ("model.kind", "model.width", "model.layers"), f"{depth}: a larger model would overfit these frames"
            ),
            Reason(("model.stride",), f"{together}: a symbol takes about {per_symbol:.0f}"),
        )
        most = 1e-3 if self.encoder == "transformer" else 3e-3
        return ModelSizes(settings, reasons, max_learning_rate=most)

    def build(self, symbols: Symbols, *, seed: int, make_cell: MakeCell | None = None) -> "Ctc":
        """A model of the target side's symbols with fresh weights drawn from `seed`.

        `make_cell` replaces the cell of the settings.
        """
        self.check()
        with seeded(seed):
            subsampling: Stacking | StridedConvolution = (
                Stacking(self.stride)
                if self.subsampling == "stack"
                else StridedConvolution(self.features, self.width, stride=self.stride)
            )
            encoder = self._encoder(make_cell or self.make_cell())
            model = Ctc(subsampling, encoder, linear(encoder.width, symbols.target), dropout_rate=self.dropout_rate)
        reseed(model, seed)
        return model

    def _encoder(self, make_cell: MakeCell) -> RecurrentEncoder | TransformerEncoder:
        if self.encoder == "recurrent":
            return RecurrentEncoder(
                make_cell,
                self._read_width,
                self.width,
                layers=self.layers,
                directions=1 + self.bidirectional,
                skip=self.skip,
                dropout_rate=self.dropout_rate,
                dropout_kind=self.dropout_kind,
            )
        return TransformerEncoder(
            self._read_width,
            self.width,
            positions=SinusoidalPositions(self.width),
            layers=self.layers,
            heads=self.heads,
            feed_forward=self.feed_forward,
            dropout_rate=self.dropout_rate,
            entry_dropout_rate=self.dropout_rate,
        )


# --- modules ---------------------------------------------------------------------------------------------------------


class Ctc(nn.Module):
    """Scores of symbols and blank for each frame that is left after subsampling."""

    def __init__(
        self,
        subsampling: Stacking | StridedConvolution,
        encoder: RecurrentEncoder | TransformerEncoder,
        output: nn.Linear,
        *,
        dropout_rate: float,
    ) -> None:
        super().__init__()
        self.subsampling = subsampling
        self.encoder, self.output = encoder, output
        self.dropout = Dropout(dropout_rate)

    def frame_scores(
        self, frames: Frames, lengths: Lengths
    ) -> tuple[Float[Tensor, "batch shorter symbols"], Int[Tensor, " batch"]]:
        """Scores before the softmax, and how many frames of each row are real. Padding may hold anything finite."""
        if not int(lengths.min()):
            raise ConfigError("a sample without frames has no transcript; leave it out")
        real = frames * length_mask(lengths, frames.shape[1])[:, :, None]
        stride = self.subsampling.stride
        shorter = torch.div(lengths + stride - 1, stride, rounding_mode="floor")
        subsampled = self.subsampling(real)  # [batch, shorter, read]
        packing = packing_of(shorter, subsampled.shape[1])
        states = unpack(self.encoder(pack_features(subsampled, packing), packing), packing)  # [batch, shorter, width]
        scores: Tensor = self.output(self.dropout(states))
        return scores, shorter
