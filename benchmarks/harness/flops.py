"""The useful arithmetic of training, counted by one formula for everybody.

    6 · weights in matrix products · tokens that they see       one product forward, two backward, 2 flops each

Transformer of width w, feed-forward f, V symbols:
    encoder   4 w² + 2 w f per layer and source token           query, key, value, output; feed-forward
    decoder   2 w² per layer and source token                   keys and values of the memory
              6 w² + 2 w f per layer and target token           self-attention, query and output of the other
    output    V w per target token
    attention 12 w · (Σ S², Σ S T, Σ T (T + 1) / 2) per layer   scores and mixing, over pairs that may see each other

LSTM encoder-decoder of width w, two directions of w/2 in the encoder, embeddings of width e:
    encoder   4 w (e + w/2), then 4 w (w + w/2) per layer       and source token, both directions together
    keys      w² per source token                               the matrix of bilinear attention
    decoder   4 w (e + w), then 4 w (w + w) per layer           and target token
    output    2 w e + V e per target token                      joining state and context; scores
    attention 12 w Σ S T

A recurrent layer alone, G input matrices of H × I and as many state matrices of H × H, P more of those for the memory:
    2 H (2 G I + 3 (G + P) H) per token                         which is 2 G H (2 (I + H) + H) without P
Its input needs no gradient, hence 2 products for each input matrix and 3 for each state matrix. An input matrix whose
input is gated by the state has the third product after all: + 2 H I for each.

Padding, embeddings, norms, softmaxes, gates and the optimiser count nothing: they are what a peak is lost to.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Shape:
    """The sizes of a Transformer that its arithmetic depends on."""

    width: int
    feed_forward: int
    encoder_layers: int
    decoder_layers: int
    symbols: int


@dataclass(frozen=True)
class RecurrentShape:
    """The sizes of an LSTM encoder-decoder that its arithmetic depends on."""

    width: int
    embedding_width: int
    layers: int
    """Of the encoder, and of the decoder."""
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


@dataclass(frozen=True)
class CellMatrices:
    """The matrices of a recurrent cell that its arithmetic depends on."""

    gates: int
    """G: matrices over the input, and as many over the hidden state."""
    peepholes: int = 0
    """P: full matrices over the memory."""
    gated_inputs: int = 0
    """Matrices over the input that see it through a gate of the state."""

    def flops(self, *, input_width: int, width: int) -> int:
        """Flops of a forward and a backward pass per token."""
        G, P, H = self.gates, self.peepholes, width
        return 2 * H * ((2 * G + self.gated_inputs) * input_width + 3 * (G + P) * H)


def training_flops(shape: Shape, source_lengths: np.ndarray, target_lengths: np.ndarray) -> Flops:
    """The formula of the Transformer, for a corpus with these lengths, end symbols included."""
    w, f = shape.width, shape.feed_forward
    on_source = shape.encoder_layers * (4 * w * w + 2 * w * f) + shape.decoder_layers * 2 * w * w
    on_target = shape.decoder_layers * (6 * w * w + 2 * w * f) + shape.symbols * w
    S, T = source_lengths.astype(np.float64), target_lengths.astype(np.float64)
    encoder_pairs = shape.encoder_layers * (S * S).sum()
    decoder_pairs = shape.decoder_layers * (S * T + T * (T + 1) / 2).sum()
    return Flops(6.0 * on_source, 6.0 * on_target, float(12 * w * (encoder_pairs + decoder_pairs) / T.sum()))


def recurrent_flops(shape: RecurrentShape, source_lengths: np.ndarray, target_lengths: np.ndarray) -> Flops:
    """The formula of the LSTM encoder-decoder, for a corpus with these lengths, end symbols included."""
    w, e, above = shape.width, shape.embedding_width, shape.layers - 1
    on_source = 4 * w * (e + w / 2) + above * 4 * w * (w + w / 2) + w * w
    on_target = 4 * w * (e + w) + above * 4 * w * (w + w) + 2 * w * e + shape.symbols * e
    S, T = source_lengths.astype(np.float64), target_lengths.astype(np.float64)
    return Flops(6.0 * on_source, 6.0 * on_target, float(12 * w * (S * T).sum() / T.sum()))
