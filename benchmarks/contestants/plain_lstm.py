"""Peer: an LSTM encoder-decoder with attention out of torch's layers, in a plain loop, on the very batches of ours.

Sources go packed through the encoder, so that each direction ends where its sentence does, and its last states are
the decoder's first. The decoder runs over the whole target at once and all of its states look at the memory together.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from peer_loop import PAD, Pairs, Plan, Scores, serve
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from seqloom.data.batches import BatchPlan

State = tuple[Tensor, Tensor]
"""Hidden states and memories, each [layers, batch, width]."""


class Translator(nn.Module):
    """h = encoder(E[x]), s = decoder(F[y]), c_t = Σ_j softmax_j(s_t · A h_j) h_j, V tanh(W [c_t; s_t])"""

    def __init__(self, symbols: int, size: dict[str, Any]) -> None:
        super().__init__()
        width, embedding_width, rate = size["width"], size["embedding_width"], size["dropout_rate"]
        self.source_embedding = nn.Embedding(symbols, embedding_width, padding_idx=PAD)
        self.target_embedding = nn.Embedding(symbols, embedding_width, padding_idx=PAD)
        self.encoder = nn.LSTM(
            embedding_width, width // 2, size["layers"], batch_first=True, bidirectional=True, dropout=rate
        )
        self.decoder = nn.LSTM(embedding_width, width, size["layers"], batch_first=True, dropout=rate)
        self.attention = nn.Linear(width, width, bias=False)
        self.join = nn.Linear(2 * width, embedding_width)
        self.output = nn.Linear(embedding_width, symbols)
        self.dropout = nn.Dropout(rate)

    def forward(self, source: Tensor, previous: Tensor) -> Tensor:
        memory, start = self.read(source)
        return self.write(previous, memory, start=start, is_padding=source == PAD)

    def read(self, source: Tensor) -> tuple[Tensor, State]:
        """The memory of the sources, and the state in which the decoder starts."""
        lengths = (source != PAD).sum(1)
        embedded = self.dropout(self.source_embedding(source))
        packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)
        states, (hidden, cells) = self.encoder(packed)
        memory, _ = pad_packed_sequence(states, batch_first=True)
        # Layer by layer, one direction after the other; both of a layer make one state of the decoder.
        return memory, (torch.cat([hidden[0::2], hidden[1::2]], -1), torch.cat([cells[0::2], cells[1::2]], -1))

    def write(self, previous: Tensor, memory: Tensor, *, start: State, is_padding: Tensor) -> Tensor:
        """Scores of the next symbol at each place of the target."""
        states, _ = self.decoder(self.dropout(self.target_embedding(previous)), start)
        scores = torch.bmm(self.attention(states), memory.transpose(1, 2))
        weights = scores.masked_fill(is_padding[:, None], float("-inf")).softmax(-1)
        joined = self.join(torch.cat([torch.bmm(weights, memory), states], -1))
        found: Tensor = self.output(self.dropout(joined.tanh()))
        return found


def make(symbols: int, size: dict[str, Any]) -> tuple[nn.Module, Scores]:
    model = Translator(symbols, size)
    return model, model


def batches_of_ours(pairs: Pairs, size: dict[str, Any]) -> Plan:
    """The plan by which ours trains, with its seed: step n sees the same sentences here and there."""
    lengths = (np.array([len(ids) for ids in side]) for side in (pairs.sources, pairs.targets))
    ours = BatchPlan(*lengths, tokens_per_batch=size["tokens_per_batch"], seed=1)

    def plan(epoch: int) -> Sequence[Sequence[int]]:
        return [batch.tolist() for batch in ours.batches(epoch)]

    return plan


if __name__ == "__main__":
    serve(make, version=f"torch {torch.__version__}", plan_for=batches_of_ours)
