"""The useful arithmetic of a training step, counted by one formula for everybody.

    6 · weights in matrix products · tokens that they see       one product forward, two backward, 2 flops each
    encoder   4 w² + 2 w f per layer and source token           query, key, value, output; feed-forward
    decoder   2 w² per layer and source token                   keys and values of the memory
              6 w² + 2 w f per layer and target token           self-attention, query and output of the other
    output    V w per target token
    attention 12 w · (Σ S², Σ S T, Σ T (T + 1) / 2) per layer   scores and mixing, over pairs that may see each other

Padding, embeddings, norms, softmaxes and the optimiser count nothing: they are what a peak is lost to.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Shape:
    """The sizes of an encoder-decoder that its arithmetic depends on."""

    width: int
    feed_forward: int
    encoder_layers: int
    decoder_layers: int
    symbols: int


@dataclass(frozen=True)
class Flops:
    """Flops of training per token; attention is spread over the target tokens of the corpus."""

    per_source_token: float
    per_target_token: float
    attention_per_target_token: float

    def of(self, *, source_tokens: float, target_tokens: float) -> float:
        """Flops of training on so many real tokens."""
        on_target = self.per_target_token + self.attention_per_target_token
        return self.per_source_token * source_tokens + on_target * target_tokens


def training_flops(shape: Shape, source_lengths: np.ndarray, target_lengths: np.ndarray) -> Flops:
    """The formula, for a corpus with these lengths, end symbols included."""
    w, f = shape.width, shape.feed_forward
    on_source = shape.encoder_layers * (4 * w * w + 2 * w * f) + shape.decoder_layers * 2 * w * w
    on_target = shape.decoder_layers * (6 * w * w + 2 * w * f) + shape.symbols * w
    S, T = source_lengths.astype(np.float64), target_lengths.astype(np.float64)
    encoder_pairs = shape.encoder_layers * (S * S).sum()
    decoder_pairs = shape.decoder_layers * (S * T + T * (T + 1) / 2).sum()
    return Flops(6.0 * on_source, 6.0 * on_target, float(12 * w * (encoder_pairs + decoder_pairs) / T.sum()))
