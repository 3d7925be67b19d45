"""Settings of models that read frames: how several frames become one, and what reads them (`nn/encoders.py`).

subsampled  z_s = [x_{sk+1}; …; x_{sk+k}]               stack: k frames become one of k times the width
            z_s = relu(Σ_i W_i x_{sk+1+i} + b)          convolution: i from −k to k
            z   = relu(K_2 * relu(K_1 * x))             planes: over time and features at once
encoder     h = layers of recurrent cells in one or both directions, or of a Transformer, over z
"""

import sys
from typing import Any, ClassVar, Literal

from pydantic import Field

from seqloom.core.declaration import FrameFacts, ModelSizes, Pieces, Purpose, Reason, TaskKind
from seqloom.models.cell_options import CellOptions
from seqloom.nn.blocks import SinusoidalPositions
from seqloom.nn.encoders import (
    PlanarConvolutions,
    RecurrentEncoder,
    Stacking,
    StridedConvolution,
    Subsampling,
    TransformerEncoder,
)
from seqloom.nn.multihead import check_heads
from seqloom.nn.recurrent import DropoutKind, MakeCell, Skip, input_widths

SIZES = ((30_000, 64, 2), (3_000_000, 128, 2), (30_000_000, 256, 3), (sys.maxsize, 512, 4))
"""Up to so many frames: width of each direction, and layers."""

MIN_FRAMES_PER_SYMBOL = 4
"""Frames that each symbol of a transcript has at least after subsampling, in the mean."""

MAX_STRIDE = 3


class FrameEncoderOptions(CellOptions):
    """Settings of a model that transcribes recordings, handwriting or images of lines."""

    purpose: ClassVar[Purpose] = "transcriber"
    task_kind: ClassVar[TaskKind] = "transcription"
    pieces: ClassVar[Pieces] = "char"

    features: int = Field(40, ge=1, le=100_000)
    """Numbers of each frame: as many as the data has."""
    subsampling: Literal["stack", "convolution", "planes"] = "stack"
    """How several frames become one: joined (stack), by a convolution that sees twice as many, or by two convolutions
    over time and features at once (planes), for sound and images."""
    channels: int = Field(16, ge=1, le=10_000)
    """Planes: kernels of each convolution."""
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
        if self.subsampling == "planes":
            return self.channels * -(-self.features // 4)
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

    def make_subsampling(self) -> Subsampling:
        """How several frames become one, with fresh weights."""
        if self.subsampling == "stack":
            return Stacking(self.features, stride=self.stride)
        if self.subsampling == "convolution":
            return StridedConvolution(self.features, self.width, stride=self.stride)
        return PlanarConvolutions(self.features, self.channels, stride=self.stride)

    def make_encoder(self, make_cell: MakeCell) -> RecurrentEncoder | TransformerEncoder:
        """What reads the frames that are left, with fresh weights."""
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
