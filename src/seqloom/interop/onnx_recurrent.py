"""The recurrent encoder-decoder as two modules that take and give plain tensors: what ONNX graphs are traced from.

The formulas are those of `models.seq2seq` and `nn.decoder`, with a memory for each row and torch's own recurrent
layers, for which ONNX has operators.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.core.errors import ModelError
from seqloom.models.seq2seq import Seq2Seq
from seqloom.nn.cell_base import Cell
from seqloom.nn.cells import ElmanCell, GRUCell, LSTMCell
from seqloom.nn.decoder import Decoder
from seqloom.nn.recurrent import Bidirectional


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
    """ids, lengths → what the decoder looks at, and its first state."""

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
        elif decoder.reads_looks:
            found.append(context.new_zeros(context.shape[0], decoder.join.out_features))
        return tuple(found)

    def _read(self, embedded: Tensor, turn: Tensor) -> Tensor:
        """The states at every position; each sentence is turned round within its own length for the way back."""
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
    """last, layers, (carried,) memory … → log-probabilities, (where it looked,) layers, (carried)."""

    def __init__(self, model: Seq2Seq) -> None:
        super().__init__()
        self.model = model

    def forward(self, last: Tensor, stacked: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
        decoder, given = self.model.decoder, list(others)
        carried = given.pop(0) if decoder.query == "previous" or decoder.reads_looks else None
        memory = [given.pop(0) for _ in range(3)] if decoder.attention is not None else []
        inputs, looked, weights = [F.embedding(last, decoder.embedding.weight)], None, None
        if decoder.reads_context:
            inputs.append(given.pop(0))
        if decoder.query == "previous" and carried is not None:
            looked, weights = _looked(decoder, carried, memory)
            inputs += [looked] if decoder.reads_looks else []
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
    """Hidden states at every position by torch's own layers, which the tracer knows."""
    begin = inputs.new_zeros(inputs.shape[0], cell.width)[None]
    weights = [cell.from_input.weight, cell.from_state.weight, cell.from_input.bias, cell.from_state.bias]
    options = (
        True,
        1,
        0.0,
        False,
        False,
        True,
    )  # with biases, one layer, no dropout, not training, one way, rows first
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
    raise AssertionError("refused before")


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
