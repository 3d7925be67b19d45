"""Peer: torch.nn.Transformer in a plain loop, norms before the sublayers, one table for embeddings and output."""

import math
from typing import Any

import torch
from peer_loop import PAD, Scores, serve
from torch import Tensor, nn
from torch.nn import functional as F

POSITIONS = 512


class Translator(nn.Module):
    """√width · E[id] + sinusoid → nn.Transformer → product with E."""

    code: Tensor

    def __init__(self, symbols: int, size: dict[str, Any]) -> None:
        super().__init__()
        width, layers = size["width"], size["layers"]
        self.embedding = nn.Embedding(symbols, width, padding_idx=PAD)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        even = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
        angles = torch.arange(POSITIONS)[:, None] * even
        self.register_buffer("code", torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1))
        self.scale = math.sqrt(width)
        self.dropout = nn.Dropout(size["dropout_rate"])
        self.layers = nn.Transformer(
            width,
            size["heads"],
            layers,
            layers,
            size["feed_forward"],
            size["dropout_rate"],
            batch_first=True,
            norm_first=True,
        )
        if not size["peers_drop_inside"]:
            self._drop_after_sublayers_only()

    def _drop_after_sublayers_only(self) -> None:
        for module in self.layers.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = 0.0
            elif isinstance(module, (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)):
                module.dropout.p = 0.0  # the one between the two feed-forward layers

    def embed(self, ids: Tensor) -> Tensor:
        embedded: Tensor = self.dropout(self.embedding(ids) * self.scale + self.code[: ids.shape[1]])
        return embedded

    def forward(self, source: Tensor, previous: Tensor) -> Tensor:
        is_padding = source == PAD
        is_future = torch.ones(previous.shape[1], previous.shape[1], dtype=torch.bool).triu(1)
        features = self.layers(
            self.embed(source),
            self.embed(previous),
            tgt_mask=is_future,
            src_key_padding_mask=is_padding,
            memory_key_padding_mask=is_padding,
            tgt_is_causal=True,
        )
        return F.linear(features, self.embedding.weight)


def make(symbols: int, size: dict[str, Any]) -> tuple[nn.Module, Scores]:
    model = Translator(symbols, size)
    return model, model


if __name__ == "__main__":
    serve(make, version=f"torch {torch.__version__}")
