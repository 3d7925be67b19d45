"""Encoders that models share: how each place of a sequence sees the others, whatever a place is.

    window        h_t = relu(W [x_{t−r}; …; x_{t+r}] + b)          an MLP over the places around t
    recurrent     h_t = [→cell(x_1 … x_t); ←cell(x_t … x_n)]       any cell, in one direction or in two
    transformer   h_t = layers(W x_1 + p_1 … W x_n + p_n)          each place attends to all others

Words, frames of sound or patches of an image are packed (`nn.packing`): sequence after sequence, without padding. So no
state depends on what is beside a sequence in its batch. Frames may be subsampled first, several of them to one.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.core.errors import ConfigError
from seqloom.nn.blocks import AbsolutePositions, FeedForward, Residual
from seqloom.nn.dropout import Dropout
from seqloom.nn.init import linear
from seqloom.nn.multihead import SelfAttention
from seqloom.nn.packing import Packing, additive, length_mask, pack, pack_features, packing_of
from seqloom.nn.recurrent import Bidirectional, MakeCell, Skip, Stack, cells_of
from seqloom.nn.rotary import Rotary

Frames = Float[Tensor, "batch time features"]
Lengths = Int[Tensor, " batch"]


def unpack(packed: Float[Tensor, "tokens width"], packing: Packing) -> Float[Tensor, "batch longest width"]:
    """`[tokens, width]` to `[batch, longest, width]`, with zeros as padding."""
    padded = packed.new_zeros(packing.batch * packing.longest, packed.shape[1]).index_copy(0, packing.flat, packed)
    return padded.view(packing.batch, packing.longest, -1)


# --- encoders ---------------------------------------------------------------------------------------------------------


class WindowEncoder(nn.Module):
    """An MLP over each place and its neighbours; beyond the ends of a sequence are zeros."""

    def __init__(self, inputs: int, width: int, *, reach: int, layers: int, dropout_rate: float) -> None:
        super().__init__()
        self.reach, self.width = reach, width
        widths = [(2 * reach + 1) * inputs, *[width] * layers]
        made = [linear(one, other) for one, other in pairwise(widths)]
        self.layers = cast("Sequence[nn.Linear]", nn.ModuleList(made))
        self.dropout = Dropout(dropout_rate)

    def forward(self, x: Float[Tensor, "tokens inputs"], packing: Packing) -> Float[Tensor, "tokens width"]:
        padded = unpack(x, packing)  # [batch, longest, inputs], zeros as padding
        around = F.pad(padded, (0, 0, self.reach, self.reach))
        places = [around[:, at : at + packing.longest] for at in range(2 * self.reach + 1)]
        states = pack(torch.cat(places, 2), packing)  # [tokens, places × inputs]
        for number, layer in enumerate(self.layers):
            states = layer(self.dropout(states) if number else states).relu()
        return states


class RecurrentEncoder(nn.Module):
    """Recurrent layers, in one direction or in two; `width` is that of each direction, `self.width` that of both."""

    def __init__(
        self,
        make_cell: MakeCell,
        inputs: int,
        width: int,
        *,
        layers: int,
        directions: int,
        skip: Skip = "none",
        **dropout: Any,
    ) -> None:
        super().__init__()
        self.width = directions * width
        cells = [
            cells_of(make_cell, inputs, width=width, layers=layers, directions=directions, skip=skip)
            for _ in range(directions)
        ]
        self.layers: Stack | Bidirectional = (Bidirectional if directions == 2 else Stack)(*cells, skip=skip, **dropout)

    def forward(self, x: Float[Tensor, "tokens inputs"], packing: Packing) -> Float[Tensor, "tokens width"]:
        lengths, padded = packing.mask().sum(1), unpack(x, packing)
        if isinstance(self.layers, Stack):
            return pack_features(self.layers.outputs(padded, lengths=lengths), packing)
        return pack_features(self.layers(padded, lengths), packing)


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward, each on its bypass."""

    def __init__(self, attention: SelfAttention, feed_forward: FeedForward, bypass: Callable[[], Residual]) -> None:
        super().__init__()
        self.self = attention
        self.feed_forward = feed_forward
        self.around_self, self.around_feed_forward = bypass(), bypass()

    def forward(
        self,
        x: Float[Tensor, "tokens width"],
        packing: Packing,
        mask: Float[Tensor, "#batch #heads #queries keys"] | None,
    ) -> Float[Tensor, "tokens width"]:
        x = self.around_self(x, lambda x: self.self(x, packing, mask=mask, is_causal=False))
        x = self.around_feed_forward(x, self.feed_forward)
        return x


class TransformerEncoder(nn.Module):
    """Layers of self-attention with norms before the sublayers, over W x + position.

    Positions are added (`positions`), or turn queries and keys (`rotary`).
    """

    def __init__(
        self,
        inputs: int,
        width: int,
        *,
        positions: AbsolutePositions,
        layers: int,
        heads: int,
        feed_forward: int,
        dropout_rate: float,
        entry_dropout_rate: float = 0.0,
        inner_dropout_rate: float = 0.0,
        rotary: Rotary | None = None,
    ) -> None:
        """`dropout_rate` is that of the sublayers; numbers may also be dropped before and inside of them."""
        super().__init__()
        self.width = width
        self.entry = linear(inputs, width)
        self.positions = positions
        self.dropout = Dropout(entry_dropout_rate)

        def bypass() -> Residual:
            return Residual(width, norm="before", dropout_rate=dropout_rate)

        def layer() -> EncoderLayer:
            block = FeedForward(width, feed_forward, activation="gelu", dropout_rate=inner_dropout_rate)
            return EncoderLayer(SelfAttention(width, heads, rotary=rotary), block, bypass)

        self.layers = cast("Sequence[EncoderLayer]", nn.ModuleList(layer() for _ in range(layers)))
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Float[Tensor, "tokens inputs"], packing: Packing) -> Float[Tensor, "tokens width"]:
        states = self.dropout(self.positions(self.entry(x), packing.positions, longest=packing.longest))
        mask = None if packing.is_full else additive(packing.mask(), x.dtype)[:, None, None]  # [batch, 1, 1, time]
        for layer in self.layers:
            states = layer(states, packing, mask)
        result: Tensor = self.norm(states)
        return result


Encoder = WindowEncoder | RecurrentEncoder | TransformerEncoder


# --- frames --------------------------------------------------------------------------------------------------------


class Stacking(nn.Module):
    """k frames side by side as one; the last one is filled up with zeros."""

    def __init__(self, features: int, *, stride: int) -> None:
        super().__init__()
        self.stride, self.width = stride, stride * features

    def forward(self, frames: Frames, shorter: Lengths) -> Float[Tensor, "batch shorter stacked"]:
        count = int(shorter.max())
        filled = F.pad(frames, (0, 0, 0, max(0, count * self.stride - frames.shape[1])))
        return filled[:, : count * self.stride].reshape(len(frames), count, self.width)


class StridedConvolution(nn.Module):
    """z_s = relu(Σ_i W_i x_{sk+1+i} + b) for i from −k to k, and zeros beyond the ends."""

    def __init__(self, features: int, width: int, *, stride: int) -> None:
        super().__init__()
        self.stride, self.width = stride, width
        self.convolution = nn.Conv1d(features, width, 2 * stride + 1, stride=stride, padding=stride)

    def forward(self, frames: Frames, shorter: Lengths) -> Float[Tensor, "batch shorter width"]:
        convolved: Tensor = self.convolution(frames.transpose(1, 2))  # [batch, width, shorter]
        return F.relu_(convolved).transpose(1, 2)[:, : int(shorter.max())]


class PlanarConvolutions(nn.Module):
    """Two convolutions over time and features at once: what lies a little higher or lower is read in the same way.

        a = relu(K_1 * x)      every k-th frame and every second feature; K_1 sees 2k + 1 frames and 5 features
        z = relu(K_2 * a)      every frame and every second feature; K_2 sees 3 of both

    Beyond the ends are zeros, also where longer sequences are in the batch.
    """

    def __init__(self, features: int, channels: int, *, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.first = nn.Conv2d(1, channels, (2 * stride + 1, 5), stride=(stride, 2), padding=(stride, 2))
        self.second = nn.Conv2d(channels, channels, 3, stride=(1, 2), padding=1)
        self.width = channels * -(-features // 4)

    def forward(self, frames: Frames, shorter: Lengths) -> Float[Tensor, "batch shorter width"]:
        low = F.relu(self.first(frames[:, None]))  # [batch, channels, shorter, features / 2]
        low = low * length_mask(shorter, low.shape[2])[:, None, :, None]
        high = F.relu(self.second(low))  # [batch, channels, shorter, features / 4]
        return high.transpose(1, 2).flatten(2)[:, : int(shorter.max())]


Subsampling = Stacking | StridedConvolution | PlanarConvolutions


def encode_frames(
    subsampling: Subsampling, encoder: Encoder, frames: Frames, lengths: Lengths
) -> tuple[Float[Tensor, "batch shorter width"], Lengths]:
    """The states of subsampled frames, with zeros as padding, and how many each row has: ⌈T / k⌉.

    Padding of the frames may hold anything finite.
    """
    if not int(lengths.min()):
        raise ConfigError("a sample without frames has no transcript; leave it out")
    real = frames * length_mask(lengths, frames.shape[1])[:, :, None]
    stride = subsampling.stride
    shorter = torch.div(lengths + stride - 1, stride, rounding_mode="floor")
    subsampled = subsampling(real, shorter)  # [batch, shorter, read]
    packing = packing_of(shorter, subsampled.shape[1])
    return unpack(encoder(pack_features(subsampled, packing), packing), packing), shorter
