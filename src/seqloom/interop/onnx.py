"""Seqloom models as two ONNX graphs, an encoder and a step of the decoder, which any ONNX runtime executes.

    encoder.onnx   ids [batch, source], lengths [batch]  →  memory …, state …              before the first symbol
    step.onnx      last [rows], state …, memory …        →  log_probs [rows, symbols], attention [rows, source], state …

Each tensor has one row per hypothesis, so rows are repeated, reordered and dropped by indexing all of them: the plain
form of the steppers, without shared memory. Rows, source positions and target positions are dynamic axes. A
model without attention has no output of that name.

    Transformer    memory  keys and values of each layer [batch, 2 · layers, heads, source, size], mask
                   state   cache [rows, 2 · layers, heads, position, size]; its length is the position of the step
    recurrent      memory  values, keys, mask (with attention), context (where it is read at every step)
                   state   parts of each layer [rows, parts, width], carried (where something is fed back)

The graphs are traced: the other exporter of torch does not support recurrent layers of dynamic length.
"""

import importlib
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.core.errors import ModelError, UsageError
from seqloom.core.symbols import BEGIN
from seqloom.interop.frames import require_plain_frame
from seqloom.models.seq2seq import Seq2Seq
from seqloom.models.transformer import Transformer, TransformerStack
from seqloom.nn.blocks import (
    FeedForward,
    LearnedPositions,
    NoPositions,
    RelativeBias,
    Residual,
    SinusoidalPositions,
    activated,
)
from seqloom.nn.cells.cell import Cell, GatedCell
from seqloom.nn.cells.gru import GRUCell
from seqloom.nn.cells.lstm import LSTMCell
from seqloom.nn.cells.rnn import ElmanCell
from seqloom.nn.decoder import Decoder
from seqloom.nn.dropout import evaluating
from seqloom.nn.multihead import SelfAttention
from seqloom.nn.recurrent import Bidirectional

# --- the Transformer --------------------------------------------------------------------------------------------------
#
# The formulas of `models.transformer`, over padded sentences and without a cache that hypotheses share.


class TransformerEncoder(nn.Module):
    """ids, lengths → keys and values of all layers, the padding mask, and an empty cache."""

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
    """last, cache, memory, mask → log-probabilities, attention of the last layer, the cache with one more position."""

    table: Tensor | None

    def __init__(self, model: Transformer, positions: int) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("table", _table(model.decoder, positions))

    def forward(self, last: Tensor, cache: Tensor, memory: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        stack = self.model.decoder
        keys_at = torch.arange(cache.shape[3] + 1)
        at = keys_at[-1:]
        (begin,) = self.model.framing.begin
        if begin != BEGIN:
            last = torch.where((at == 0) & (last == BEGIN), begin, last)
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


def _table(stack: "TransformerStack[Any]", positions: int) -> Tensor | None:
    """The sinusoids of the first positions, if the model uses them: the graph cannot compute more of them."""
    weight, place = stack.embedding.weight, stack.positions
    return place.code(positions, weight.shape[1]).to(weight) if isinstance(place, SinusoidalPositions) else None


def _embedded(stack: "TransformerStack[Any]", ids: Tensor, at: Tensor, table: Tensor | None) -> Tensor:
    """Embeddings with their positions; `at` are the positions of the columns."""
    x = _placed(stack.positions, F.embedding(ids, stack.embedding.weight) * stack.scale, at, table)
    return x if stack.embedding_norm is None else stack.embedding_norm(x)


def _placed(positions: object, x: Tensor, at: Tensor, table: Tensor | None) -> Tensor:
    match positions:
        case SinusoidalPositions():
            assert table is not None
            code = table[at].expand_as(x)
            joined: Tensor = x + code if positions.joined is None else positions.joined(torch.cat([x, code], -1))
            return joined
        case LearnedPositions():
            return x + positions.weight[(at + positions.first).clamp(max=len(positions.weight) - 1)]
        case NoPositions():
            return x
        case _:
            raise ModelError(f"ONNX export does not support positions of kind {type(positions).__name__}")


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
    result: Tensor = block.outer(activated(inner, block.activation))
    return result


# --- the recurrent encoder-decoder ------------------------------------------------------------------------------------
#
# The formulas of `models.seq2seq` and `nn.decoder`, with a memory for each row and torch's own recurrent layers, for
# which ONNX has operators.


def require_kernel(cell: Cell) -> None:
    """ONNX has operators for torch's own recurrent layers; others would be a loop of free length."""
    match cell:
        case LSTMCell() if not cell.norm:
            return
        case GRUCell() if cell.reset == "after" and not cell.norm:
            return
        case ElmanCell() if cell.activation in ("tanh", "relu") and not cell.norm:
            return
    raise ModelError(
        f"ONNX has no operator for the {type(cell).__name__} of this encoder as it is set; it has those of "
        "model.cell=lstm, model.cell=gru with model.reset=after, and model.cell=rnn with tanh or relu, all without "
        "model.cell_norm"
    )


class RecurrentEncoder(nn.Module):
    """ids, lengths → memory of the decoder, and its first state."""

    def __init__(self, model: Seq2Seq) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        encoder, decoder = self.model.encoder, self.model.decoder
        embedded = F.embedding(ids, encoder.embedding.weight)
        at = torch.arange(ids.shape[1])
        is_padding = at[None] >= lengths.clamp(min=1)[:, None]
        values = self._read(embedded, torch.where(is_padding, at, lengths[:, None] - 1 - at))
        context = self._summary(values, lengths, is_padding)
        layers, output = self._begin(context, values)
        found: list[Tensor] = []
        if decoder.attention is not None:
            mask = torch.zeros_like(is_padding, dtype=values.dtype).masked_fill(is_padding, float("-inf"))
            found += [values, decoder.attention.score.keys(values), mask[:, None]]
        if decoder.reads_context:
            found.append(context)
        found.append(_stacked(layers))
        if decoder.query == "previous":
            found.append(output)
        elif decoder.feeds_attention:
            found.append(context.new_zeros(context.shape[0], decoder.join.out_features))
        return tuple(found)

    def _read(self, embedded: Tensor, turn: Tensor) -> Tensor:
        """The states at every position; for the leftward direction each sentence is reversed within its own length."""
        layers = self.model.encoder.layers

        def turned(x: Tensor) -> Tensor:
            return x.gather(1, turn[:, :, None].expand(-1, -1, x.shape[2]))

        def layer(number: int, read: Tensor) -> Tensor:
            if not isinstance(layers, Bidirectional):
                return _run(layers.cells[number], read)
            forwards = _run(layers.rightward[number], read)
            return torch.cat([forwards, turned(_run(layers.leftward[number], turned(read)))], 2)

        states: Tensor = layers.climb(embedded, layer)
        return states

    def _summary(self, values: Tensor, lengths: Tensor, is_padding: Tensor) -> Tensor:
        match self.model.summary:
            case "mean":
                return values.masked_fill(is_padding[:, :, None], 0).sum(1) / lengths.clamp(min=1)[:, None]
            case "max":
                return values.masked_fill(is_padding[:, :, None], float("-inf")).amax(1)
            case _:
                last = (lengths - 1).clamp(min=0)[:, None, None].expand(-1, -1, values.shape[2])
                rightmost = values.gather(1, last)[:, 0]
                if self.model.encoder.directions == 1:
                    return rightmost
                half = values.shape[2] // 2
                return torch.cat([rightmost[:, :half], values[:, 0, half:]], 1)

    def _begin(self, context: Tensor, values: Tensor) -> tuple[tuple[tuple[Tensor, ...], ...], Tensor]:
        decoder, bridge = self.model.decoder, self.model.bridge
        cells = decoder.stack.cells
        if bridge is None:
            hints = values.new_zeros(values.shape[0], len(cells), cells[0].width)
        else:
            hints = bridge.hint(context).reshape(-1, bridge.layers, bridge.width)
        layers = decoder.stack.begin(hints)
        if decoder.first is None:
            return layers, layers[-1][0]
        output, layers = decoder.stack.step(decoder.first(context), layers)
        return layers, output


class RecurrentStep(nn.Module):
    """last, layers, (carried,) memory … → log-probabilities, (attention,) layers, (carried)."""

    def __init__(self, model: Seq2Seq) -> None:
        super().__init__()
        self.model = model

    def forward(self, last: Tensor, stacked: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
        decoder, given = self.model.decoder, list(others)
        carried = given.pop(0) if decoder.query == "previous" or decoder.feeds_attention else None
        memory = [given.pop(0) for _ in range(3)] if decoder.attention is not None else []
        inputs, looked, weights = [F.embedding(last, decoder.embedding.weight)], None, None
        if decoder.reads_context:
            inputs.append(given.pop(0))
        if decoder.query == "previous" and carried is not None:
            looked, weights = _looked(decoder, carried, memory)
            inputs += [looked] if decoder.feeds_attention else []
        elif carried is not None:
            inputs.append(carried)
        output, layers = decoder.stack.step(torch.cat(inputs, 1), _unstacked(decoder, stacked))
        if decoder.query == "current" and memory:
            looked, weights = _looked(decoder, output, memory)
        features = decoder.join(output if looked is None else torch.cat([looked, output], 1)).tanh()
        log_probs = F.log_softmax(self.model.output(features), -1)
        after = [] if carried is None else [output if decoder.query == "previous" else features]
        return (log_probs, *([] if weights is None else [weights]), _stacked(layers), *after)


def _run(cell: Cell, inputs: Tensor) -> Tensor:
    """Hidden states at every position by torch's own layers, which the tracer supports."""
    begin = inputs.new_zeros(inputs.shape[0], cell.width)[None]
    assert isinstance(cell, GatedCell)
    weights = cell.torch_weights
    options = (True, 1, 0.0, False, False, True)  # biases, layers, dropout, training, bidirectional, batch first
    match cell:
        case LSTMCell():
            return torch.lstm(inputs, [begin, begin], weights, *options)[0]
        case GRUCell():
            if cell.update == "new":  # 1 − σ(a) = σ(−a)
                signs = torch.ones(3, cell.width)
                signs[1] = -1
                weights = [weight * signs.view(-1, *[1] * (weight.dim() - 1)).to(weight) for weight in weights]
            return torch.gru(inputs, begin, weights, *options)[0]
        case ElmanCell():
            layer = torch.rnn_tanh if cell.activation == "tanh" else torch.rnn_relu
            return layer(inputs, begin, weights, *options)[0]
    raise AssertionError(type(cell))  # refused by require_kernel


def _looked(decoder: Decoder, query: Tensor, memory: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    assert decoder.attention is not None
    values, keys, mask = memory
    weights = (decoder.attention.score(query[:, None], keys) + mask).softmax(2)
    return (weights @ values)[:, 0], weights[:, 0]


def _stacked(layers: Sequence[Sequence[Tensor]]) -> Tensor:
    return torch.stack([part for layer in layers for part in layer], 1)


def _unstacked(decoder: Decoder, stacked: Tensor) -> tuple[tuple[Tensor, ...], ...]:
    layers, begin = [], 0
    for cell in decoder.stack.cells:
        layers.append(tuple(stacked[:, begin + part] for part in range(cell.parts)))
        begin += cell.parts
    return tuple(layers)


# --- export -----------------------------------------------------------------------------------------------------------

ENCODER, STEP = "encoder.onnx", "step.onnx"

OPSET = 17
"""The set of operators: the first with a layer norm."""


@dataclass(frozen=True)
class Graphs:
    """The names of inputs and outputs of the two graphs."""

    memory: tuple[str, ...]
    state: tuple[str, ...]
    has_attention: bool
    positions: int | None
    """The most positions on either side; None where they are unlimited."""


def require_onnx() -> Any:
    """The optional library that writes graphs."""
    try:
        return importlib.import_module("onnx")
    except ImportError as error:
        raise UsageError(
            f"the package onnx is not installed ({error}); install it with: pip install 'seqloom[onnx]'"
        ) from error


def write_onnx(folder: Path, model: nn.Module, *, positions: int) -> Graphs:
    """Write both graphs into an existing folder.

    With sinusoidal positions no sentence on either side may have more than `positions` tokens, including the end.
    """
    wrapped = wrap(model, positions=positions)
    require_onnx()
    ids, lengths = torch.tensor([[5, 6, 7, 2], [5, 6, 2, 0]]), torch.tensor([4, 3])
    graphs = wrapped.graphs
    with torch.no_grad(), evaluating(model):
        found = wrapped.encoder(ids, lengths)
        memory, state = found[: len(graphs.memory)], found[len(graphs.memory) :]
        state = tuple(map(_lengthened, state, (wrapped.axes.get(name, {}) for name in graphs.state)))
        axes = {**wrapped.axes, "ids": {1: "source"}, "attention": {1: "source"}}
        names = ["ids", "lengths"], [*graphs.memory, *graphs.state]
        _write(folder / ENCODER, wrapped.encoder, (ids, lengths), names=names, axes=axes)
        outputs = ["log_probs", *(["attention"] if graphs.has_attention else [])]
        names = ["last", *graphs.state, *graphs.memory], [*outputs, *(f"{name}_after" for name in graphs.state)]
        _write(folder / STEP, wrapped.step, (torch.tensor([5, 6]), *state, *memory), names=names, axes=axes)
    return graphs


def _lengthened(part: Tensor, axes: dict[int, str]) -> Tensor:
    """A part of the state with three positions in place of none: the tracer must see what is appended to them."""
    if "position" not in axes.values():
        return part
    return part.new_zeros([3 if axes.get(axis) == "position" else size for axis, size in enumerate(part.shape)])


def _write(
    path: Path,
    module: nn.Module,
    arguments: tuple[Tensor, ...],
    *,
    names: tuple[list[str], list[str]],
    axes: dict[str, dict[int, str]],
) -> None:
    inputs, outputs = names
    dynamic = {name: {0: "rows", **axes.get(name.removesuffix("_after"), {})} for name in [*inputs, *outputs]}
    for name, after in ((name, f"{name}_after") for name in inputs if f"{name}_after" in outputs):
        dynamic[after] = {axis: f"{free}_after" if free == "position" else free for axis, free in dynamic[name].items()}
    module.training = False  # otherwise the exporter sets the model to training mode when it is done
    with warnings.catch_warnings():
        # The tracer warns of each shape that Python code reads, and that it is deprecated.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            arguments,
            str(path),
            input_names=inputs,
            output_names=outputs,
            dynamic_axes=dynamic,
            opset_version=OPSET,
            dynamo=False,
        )


@dataclass(frozen=True)
class Wrapped:
    """A model as two modules whose inputs and outputs are plain tensors."""

    encoder: nn.Module
    step: nn.Module
    graphs: Graphs
    axes: dict[str, dict[int, str]]
    """Dynamic axes in addition to the rows, by name of the tensor; one called "position" grows with each step."""


def wrap(model: nn.Module, *, positions: int) -> Wrapped:
    """A model in this form; a kind that has none is an error."""
    match model:
        case Transformer():
            require_plain_frame(model, "ONNX")
            place = model.encoder.positions
            limit = positions if isinstance(place, SinusoidalPositions) else place.bound
            return Wrapped(
                TransformerEncoder(model, positions),
                TransformerStep(model, positions),
                Graphs(("memory", "mask"), ("cache",), has_attention=True, positions=limit),
                axes={"memory": {3: "source"}, "mask": {3: "source"}, "cache": {3: "position"}},
            )
        case Seq2Seq():
            return _wrap_recurrent(model)
        case _:
            raise ModelError(
                "ONNX export supports the Transformer and the recurrent encoder-decoder, and this is a "
                f"{type(model).__name__}; translate with Seqloom itself"
            )


def _wrap_recurrent(model: Seq2Seq) -> Wrapped:
    layers = model.encoder.layers
    cells = [*layers.rightward, *layers.leftward] if isinstance(layers, Bidirectional) else list(layers.cells)
    for cell in cells:
        require_kernel(cell)
    decoder = model.decoder
    has_attention = decoder.attention is not None
    memory = (*(("values", "keys", "mask") if has_attention else ()), *(("context",) if decoder.reads_context else ()))
    state = ("layers", *(("carried",) if decoder.query == "previous" or decoder.feeds_attention else ()))
    return Wrapped(
        RecurrentEncoder(model),
        RecurrentStep(model),
        Graphs(memory, state, has_attention=has_attention, positions=None),
        axes={"values": {1: "source"}, "keys": {1: "source"}, "mask": {2: "source"}},
    )
