"""The Transformer as two modules that take and give plain tensors, row by row: what ONNX graphs are traced from.

The formulas are those of `models.transformer`, over padded sentences and without a cache that hypotheses share.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.core.errors import ModelError
from seqloom.models.transformer import Stack, Transformer
from seqloom.nn.blocks import FeedForward, Residual
from seqloom.nn.multihead import SelfAttention
from seqloom.nn.positions import LearnedPositions, NoPositions, RelativeBias, SinusoidalPositions, sinusoids


class TransformerEncoder(nn.Module):
    """ids, lengths → keys and values of all layers, the mask of the padding, and a cache of no positions."""

    table: Tensor | None

    def __init__(self, model: Transformer, positions: int) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("table", _table(model.encoder, positions))

    def forward(self, ids: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        stack = self.model.encoder
        at = torch.arange(ids.shape[1])
        x = _embedded(stack, ids, at, self.table)
        is_padding = at[None] >= lengths.clamp(min=1)[:, None]
        mask = torch.zeros_like(is_padding, dtype=x.dtype).masked_fill(is_padding, float("-inf"))[:, None, None]
        own = mask if stack.bias is None else mask + _bias(stack.bias, at, at)
        for layer in stack.layers:

            def look(x: Tensor, attention: SelfAttention = layer.self) -> Tensor:
                query, key, value = _split(attention.qkv(x), 3, attention.heads)
                added = own if attention.relative is None else own + _shaw(attention, query, at, at)
                return _joined(attention.output, _shares(query, key, added) @ value)

            x = _around(layer.around_self, x, look)
            x = _around(layer.around_feed_forward, x, partial(_fed, layer.feed_forward))
        found = stack.norm(x)
        parts = [
            part
            for layer in self.model.decoder.layers
            for part in _split(layer.cross.memory(found), 2, layer.cross.heads)
        ]
        memory = torch.stack(parts, 1)
        return memory, mask, memory[:, :, :, :0]


class TransformerStep(nn.Module):
    """last, cache, memory, mask → log-probabilities, where the last layer looked, a cache with a position more."""

    table: Tensor | None

    def __init__(self, model: Transformer, positions: int) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("table", _table(model.decoder, positions))

    def forward(self, last: Tensor, cache: Tensor, memory: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        stack = self.model.decoder
        keys_at = torch.arange(cache.shape[3] + 1)
        at = keys_at[-1:]
        x = _embedded(stack, last[:, None], at, self.table)
        parts: list[Tensor] = []
        weights = mask
        for number, layer in enumerate(stack.layers):

            def look(x: Tensor, number: int = number, attention: SelfAttention = layer.self) -> Tensor:
                query, key, value = _split(attention.qkv(x), 3, attention.heads)
                keys = torch.cat([cache[:, 2 * number], key], 2)
                values = torch.cat([cache[:, 2 * number + 1], value], 2)
                parts.extend([keys, values])
                added = None if stack.bias is None else _bias(stack.bias, at, keys_at)
                if attention.relative is not None:
                    added = _shaw(attention, query, at, keys_at)
                return _joined(attention.output, _shares(query, keys, added) @ values)

            x = _around(layer.around_self, x, look)
            normed = layer.around_cross.norm(x) if layer.around_cross.place == "before" else x
            (query,) = _split(layer.cross.query(normed), 1, layer.cross.heads)
            weights = _shares(query, memory[:, 2 * number], mask)
            summed = x + _joined(layer.cross.output, weights @ memory[:, 2 * number + 1])
            x = summed if layer.around_cross.place == "before" else layer.around_cross.norm(summed)
            x = _around(layer.around_feed_forward, x, partial(_fed, layer.feed_forward))
        log_probs = F.log_softmax(self.model.output(stack.norm(x)[:, 0]), -1)
        return log_probs, weights.mean(1)[:, 0], torch.stack(parts, 1)


def _table(stack: "Stack[Any]", positions: int) -> Tensor | None:
    """The sinusoids of so many positions, where there are any: the graph cannot make more of them as it goes."""
    weight = stack.embedding.weight
    is_sinusoidal = isinstance(stack.positions, SinusoidalPositions)
    return sinusoids(positions, weight.shape[1]).to(weight) if is_sinusoidal else None


def _embedded(stack: "Stack[Any]", ids: Tensor, at: Tensor, table: Tensor | None) -> Tensor:
    """√width · E[id] with its position; `at` are the positions of the columns."""
    weight, positions = stack.embedding.weight, stack.positions
    x = F.embedding(ids, weight) * math.sqrt(weight.shape[1])
    match positions:
        case SinusoidalPositions():
            assert table is not None
            code = table[at].expand_as(x)
            joined: Tensor = x + code if positions.joined is None else positions.joined(torch.cat([x, code], -1))
            return joined
        case LearnedPositions():
            return x + positions.weight[at.clamp(max=len(positions.weight) - 1)]
        case NoPositions():
            return x
        case _:
            raise ModelError(f"ONNX export does not know positions of kind {type(positions).__name__}")


def _split(joined: Tensor, parts: int, heads: int) -> tuple[Tensor, ...]:
    """[rows, columns, parts · heads · size] to one [rows, heads, columns, size] per part."""
    size = joined.shape[-1] // (parts * heads)
    split = joined.reshape(joined.shape[0], joined.shape[1], parts, heads, size).permute(2, 0, 3, 1, 4)
    return tuple(split[part] for part in range(parts))


def _joined(output: nn.Module, mixed: Tensor) -> Tensor:
    attended: Tensor = output(mixed.transpose(1, 2).flatten(2))
    return attended


def _shares(query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
    scores = query @ key.transpose(-1, -2) * (1 / math.sqrt(query.shape[-1]))
    return (scores if mask is None else scores + mask).softmax(-1)


def _bias(bias: RelativeBias, queries: Tensor, keys: Tensor) -> Tensor:
    return bias.weight[:, bias.bucket(keys[None] - queries[:, None])][None]


def _shaw(attention: SelfAttention, query: Tensor, queries: Tensor, keys: Tensor) -> Tensor:
    relative = attention.relative
    assert relative is not None
    column = (keys[None] - queries[:, None]).clamp(-relative.farthest, relative.farthest) + relative.farthest
    by_distance = query @ relative.weight.t() / math.sqrt(query.shape[-1])
    return by_distance.gather(-1, column[None, None].expand(query.shape[0], query.shape[1], -1, -1))


def _around(block: Residual, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
    if block.place == "before":
        return x + sublayer(block.norm(x))
    summed: Tensor = block.norm(x + sublayer(x))
    return summed


def _fed(block: FeedForward, x: Tensor) -> Tensor:
    inner = block.inner(x)
    result: Tensor = block.outer(F.relu(inner) if block.activation == "relu" else F.gelu(inner))
    return result
