"""Our models as two ONNX graphs, an encoder and a step of the decoder, which any ONNX runtime carries out.

    encoder.onnx   ids [batch, source], lengths [batch]  →  memory …, state …              before the first symbol
    step.onnx      last [rows], state …, memory …        →  log_probs [rows, symbols], attention [rows, source], state …

All that a row needs is in its own row of each tensor, so rows are repeated, reordered and dropped by indexing all of
them: the plain form of our steppers, without their shared memory. How many rows there are, how long sources are and how
far a row has got is free. A model without attention gives none.

    Transformer    memory  keys and values of each layer [batch, 2 · layers, heads, source, size], mask
                   state   cache [rows, 2 · layers, heads, position, size]; its length is the position of the step
    recurrent      memory  values, keys, mask (with attention), context (where it is read at every step)
                   state   parts of each layer [rows, parts, width], carried (where something is fed back)

The graphs are traced, not compiled: torch's other exporter has no form for recurrent layers of free length.
"""

import importlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from seqloom.core.errors import ModelError, UsageError
from seqloom.interop.onnx_recurrent import RecurrentEncoder, RecurrentStep, require_kernel
from seqloom.interop.onnx_transformer import TransformerEncoder, TransformerStep
from seqloom.models.seq2seq import Seq2Seq
from seqloom.models.transformer import Transformer
from seqloom.nn.modes import evaluating
from seqloom.nn.positions import SinusoidalPositions
from seqloom.nn.recurrent import Bidirectional

ENCODER, STEP = "encoder.onnx", "step.onnx"

OPSET = 17
"""The set of operators: the first with a layer norm, known to all runtimes of the last years."""


@dataclass(frozen=True)
class Graphs:
    """What is named in the two graphs."""

    memory: tuple[str, ...]
    state: tuple[str, ...]
    has_attention: bool
    positions: int | None
    """Positions on either side that the graphs know; None where there is no end to them."""


def require_onnx() -> Any:
    """The library that writes graphs, which is an extra."""
    try:
        return importlib.import_module("onnx")
    except ImportError as error:
        raise UsageError(f"ONNX is not there ({error}); install it with: pip install 'seqloom[onnx]'") from error


def write_onnx(folder: Path, model: nn.Module, *, positions: int) -> Graphs:
    """Write both graphs into a folder that is there.

    No sentence on either side may have more than `positions` tokens, the end counted, where positions are sinusoids.
    """
    wrapped = wrap(model, positions=positions)
    require_onnx()
    ids, lengths = torch.tensor([[5, 6, 7, 2], [5, 6, 2, 0]]), torch.tensor([4, 3])
    graphs = wrapped.graphs
    with torch.no_grad(), evaluating(model):
        found = wrapped.encoder(ids, lengths)
        memory, state = found[: len(graphs.memory)], found[len(graphs.memory) :]
        if isinstance(model, Transformer):  # a cache in which something stands shows the tracer what joins it
            state = (
                torch.zeros(2, memory[0].shape[1], memory[0].shape[2], 3, memory[0].shape[4], dtype=memory[0].dtype),
            )
        inner = {1: "source"}
        free = {**wrapped.axes, "ids": inner, "log_probs": {}, "attention": inner}
        _write(
            folder / ENCODER,
            wrapped.encoder,
            (ids, lengths),
            names=(["ids", "lengths"], [*graphs.memory, *graphs.state]),
            axes=free,
        )
        outputs = ["log_probs", *(["attention"] if graphs.has_attention else []), *_after(graphs.state)]
        _write(
            folder / STEP,
            wrapped.step,
            (torch.tensor([5, 6]), *state, *memory),
            names=(["last", *graphs.state, *graphs.memory], outputs),
            axes=free,
        )
    return graphs


def _after(names: Sequence[str]) -> list[str]:
    """The names of the state that a step leaves."""
    return [f"{name}_after" for name in names]


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
    module.training = False  # or the exporter would put the model, which it holds, into training when it is done
    with warnings.catch_warnings():
        # The tracer warns of each shape that Python looks at, and of its own age.
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
    """A model as two modules that take and give plain tensors."""

    encoder: nn.Module
    step: nn.Module
    graphs: Graphs
    axes: dict[str, dict[int, str]]
    """Axes besides the rows that are free, by name of the tensor."""


def wrap(model: nn.Module, *, positions: int) -> Wrapped:
    """A model in the plain form, if it has one."""
    match model:
        case Transformer():
            return _wrap_transformer(model, positions)
        case Seq2Seq():
            return _wrap_recurrent(model)
        case _:
            raise ModelError(
                f"ONNX export knows the Transformer and the recurrent encoder-decoder, and this is a "
                f"{type(model).__name__}; translate with Seqloom itself"
            )


def _wrap_transformer(model: Transformer, positions: int) -> Wrapped:
    is_sinusoidal = isinstance(model.encoder.positions, SinusoidalPositions)
    return Wrapped(
        TransformerEncoder(model, positions),
        TransformerStep(model, positions),
        Graphs(("memory", "mask"), ("cache",), has_attention=True, positions=positions if is_sinusoidal else None),
        axes={"memory": {3: "source"}, "mask": {3: "source"}, "cache": {3: "position"}},
    )


def _wrap_recurrent(model: Seq2Seq) -> Wrapped:
    layers = model.encoder.layers
    cells = [*layers.rightward, *layers.leftward] if isinstance(layers, Bidirectional) else list(layers.cells)
    for cell in cells:
        require_kernel(cell)
    decoder = model.decoder
    has_attention = decoder.attention is not None
    memory = (*(("values", "keys", "mask") if has_attention else ()), *(("context",) if decoder.reads_context else ()))
    state = ("layers", *(("carried",) if decoder.query == "previous" or decoder.reads_looks else ()))
    return Wrapped(
        RecurrentEncoder(model),
        RecurrentStep(model),
        Graphs(memory, state, has_attention=has_attention, positions=None),
        axes={"values": {1: "source"}, "keys": {1: "source"}, "mask": {2: "source"}},
    )
