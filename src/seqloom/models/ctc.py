"""Frames to text: an encoder that gives each frame a symbol or a blank, trained with CTC (Graves et al., 2006).

    frames      x_1 … x_T                                   log-mel energies, steps of a pen, columns of an image
    encoder     h_1 … h_S = encoder(subsampled x)           `models/frame_encoder.py`; S = ⌈T / stride⌉
    output      P_s(c) = softmax(W h_s + b)                 c: a symbol of the text, or the blank

The transcript is as probable as all of its paths together (`nn/ctc.py`); `search/ctc.py` finds the best one. The blank
has the id of padding, which no text contains, so that the symbols are those of a language model with the same
tokeniser.
"""

from typing import ClassVar, Literal

from jaxtyping import Float, Int
from torch import Tensor, nn

from seqloom.models.frame_encoder import FrameEncoderOptions
from seqloom.nn.dropout import Dropout, reseed
from seqloom.nn.embeddings import Symbols
from seqloom.nn.encoders import (
    Frames,
    Lengths,
    RecurrentEncoder,
    Subsampling,
    TransformerEncoder,
    encode_frames,
)
from seqloom.nn.init import linear, seeded
from seqloom.nn.recurrent import MakeCell


class CtcConfig(FrameEncoderOptions):
    """A model that transcribes recordings, handwriting or images of lines, trained with CTC."""

    trunk: ClassVar[tuple[str, ...]] = ("subsampling.", "encoder.")
    head: ClassVar[tuple[str, ...]] = ("output.",)

    kind: Literal["ctc"] = "ctc"
    """Names this model in a config file."""

    def build(self, symbols: Symbols, *, seed: int, make_cell: MakeCell | None = None) -> "Ctc":
        """A model of the target side's symbols with fresh weights drawn from `seed`.

        `make_cell` replaces the cell of the settings.
        """
        self.check()
        with seeded(seed):
            subsampling = self.make_subsampling()
            encoder = self.make_encoder(make_cell or self.make_cell())
            model = Ctc(subsampling, encoder, linear(encoder.width, symbols.target), dropout_rate=self.dropout_rate)
        reseed(model, seed)
        return model


class Ctc(nn.Module):
    """Scores of symbols and blank for each frame that is left after subsampling."""

    def __init__(
        self,
        subsampling: Subsampling,
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
        states, shorter = encode_frames(self.subsampling, self.encoder, frames, lengths)  # [batch, shorter, width]
        scores: Tensor = self.output(self.dropout(states))
        return scores, shorter
