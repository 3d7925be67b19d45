"""The sizes at which training is measured, and what is asked of ours at each."""

import json
from dataclasses import asdict, dataclass
from typing import Literal

from harness.flops import RecurrentShape, Shape


@dataclass(frozen=True)
class Size:
    """A Transformer and how it is trained; the same for ours and for the peers."""

    name: str
    goal: float
    """How many times faster than the faster peer ours is to be."""
    width: int
    feed_forward: int
    layers: int
    """Of the encoder, and of the decoder."""
    dropout_rate: float
    peers_drop_inside: bool
    """Whether the peers drop where they usually do, inside attention too; if not, where ours does and nowhere else."""
    learning_rate: float
    heads: int = 4
    smoothing: float = 0.1
    tokens_per_batch: int = 4096
    warmup: int = 500
    clip_norm: float = 1.0
    kind: Literal["transformer"] = "transformer"

    def to_json(self) -> str:
        """As the contestants take it."""
        return json.dumps(asdict(self))

    def shape(self, symbols: int) -> Shape:
        """What its arithmetic depends on."""
        return Shape(self.width, self.feed_forward, self.layers, self.layers, symbols)


@dataclass(frozen=True)
class RecurrentSize:
    """An LSTM encoder-decoder with attention and how it is trained; the same for ours and for the peers.

    Two directions in the encoder with half of the width each, bilinear attention, no input feeding, three tables.
    """

    name: str
    width: int
    embedding_width: int
    layers: int
    """Of the encoder, and of the decoder."""
    dropout_rate: float
    learning_rate: float
    par_goal: float
    """The lower end of the interval beside the plain torch loop is to lie above this."""
    toolkit_goal: float
    """How many times faster than the fastest toolkit ours is to be."""
    smoothing: float = 0.1
    tokens_per_batch: int = 4096
    warmup: int = 500
    clip_norm: float = 1.0
    kind: Literal["seq2seq"] = "seq2seq"

    def to_json(self) -> str:
        """As the contestants take it."""
        return json.dumps(asdict(self))

    def shape(self, symbols: int) -> RecurrentShape:
        """What its arithmetic depends on."""
        return RecurrentShape(self.width, self.embedding_width, self.layers, symbols)


SIZES = {
    size.name: size
    for size in (
        Size(
            name="transformer-256",
            goal=1.15,
            width=256,
            feed_forward=1024,
            layers=3,
            dropout_rate=0.1,
            peers_drop_inside=True,
            learning_rate=1e-3,
        ),
        Size(
            name="transformer-128",
            goal=1.3,
            width=128,
            feed_forward=256,
            layers=4,
            dropout_rate=0.3,
            peers_drop_inside=False,
            learning_rate=3e-3,
        ),
    )
}

LSTM_512 = RecurrentSize(
    name="lstm-512",
    width=512,
    embedding_width=512,
    layers=2,
    dropout_rate=0.1,
    learning_rate=5e-4,
    par_goal=0.95,
    toolkit_goal=1.1,
)
