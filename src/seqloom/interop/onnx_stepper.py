"""An exported model as a stepper for searches, executed by onnxruntime."""

import importlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from seqloom.core.errors import ModelError, UsageError
from seqloom.core.files import read_json
from seqloom.core.stepping import Source, State, Step
from seqloom.core.symbols import BEGIN, END
from seqloom.interop.onnx import ENCODER, STEP, Graphs

DESCRIPTION = "graphs.json"
"""The file with the names of inputs and outputs."""


@dataclass(frozen=True)
class OnnxState:
    """The memory of the rows, their state, which changes with each step, and the number of steps so far."""

    memory: tuple[Tensor, ...]
    state: tuple[Tensor, ...]
    position: int

    def select(self, rows: Int[Tensor, " picked"]) -> "OnnxState":
        return OnnxState(
            tuple(part[rows] for part in self.memory), tuple(part[rows] for part in self.state), self.position
        )


class OnnxStepper:
    """Steps by two ONNX graphs, `encoder.onnx` and `step.onnx` of an exported model.

    stepper = OnnxStepper("exported")
    beam_search(stepper, source, settings)
    """

    begin = BEGIN
    end = END

    def __init__(self, folder: Path | str, *, attention: bool = False, threads: int = 1) -> None:
        folder = Path(folder)
        runtime = require_onnxruntime()
        self.graphs = read_graphs(folder)
        self._gives_attention = attention and self.graphs.has_attention
        options = runtime.SessionOptions()
        options.intra_op_num_threads = threads
        self._encoder, self._step = (
            runtime.InferenceSession(str(folder / name), options, providers=["CPUExecutionProvider"])
            for name in (ENCODER, STEP)
        )

    def start(self, source: Source) -> OnnxState:
        self._require_room(source.ids.shape[1])
        names = [*self.graphs.memory, *self.graphs.state]
        found = _run(self._encoder, names, {"ids": source.ids, "lengths": source.lengths})
        count = len(self.graphs.memory)
        return OnnxState(tuple(found[:count]), tuple(found[count:]), 0)

    def step(self, state: State, last: Int[Tensor, " rows"]) -> Step:
        assert isinstance(state, OnnxState)
        self._require_room(state.position + 1)
        graphs = self.graphs
        outputs = ["log_probs", *(["attention"] if self._gives_attention else [])]
        names = [*outputs, *(f"{name}_after" for name in graphs.state)]
        inputs = dict(zip((*graphs.state, *graphs.memory), (*state.state, *state.memory), strict=True))
        found = _run(self._step, names, {"last": last, **inputs})
        after = OnnxState(state.memory, tuple(found[len(outputs) :]), state.position + 1)
        return Step(found[0], after, attention=found[1] if self._gives_attention else None)

    def _require_room(self, length: int) -> None:
        most = self.graphs.positions
        if most is not None and length > most:
            raise UsageError(
                f"these graphs were exported for at most {most} positions, but {length} are needed; shorten the "
                "sentence, lower search.length_factor, or export with more positions"
            )


def write_graphs(folder: Path, graphs: Graphs) -> None:
    """Write the names of inputs and outputs next to the graphs."""
    (folder / DESCRIPTION).write_text(json.dumps(asdict(graphs), indent=1) + "\n", encoding="utf-8")


def read_graphs(folder: Path) -> Graphs:
    """The names of inputs and outputs of an exported model."""
    missing = [name for name in (DESCRIPTION, ENCODER, STEP) if not (folder / name).is_file()]
    if missing:
        raise UsageError(f"{folder} has no {missing[0]}; create it with: seqloom export MODEL --to onnx")
    try:
        values = read_json(folder / DESCRIPTION)
        positions = values["positions"]
        if positions is not None and (type(positions) is not int or positions < 1):
            raise ValueError(f"positions is {str(positions)[:40]}")
        return Graphs(
            memory=_names(values["memory"]),
            state=_names(values["state"]),
            has_attention=bool(values["has_attention"]),
            positions=positions,
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(
            f"{folder / DESCRIPTION} does not describe graphs ({error}); export the model again"
        ) from error


def _names(values: Any) -> tuple[str, ...]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise TypeError(f"{str(values)[:40]} are not names")
    return tuple(values)


def require_onnxruntime() -> Any:
    """The optional library that executes graphs."""
    try:
        return importlib.import_module("onnxruntime")
    except ImportError as error:
        raise UsageError(
            f"onnxruntime is not installed ({error}); install it with: pip install 'seqloom[onnx]'"
        ) from error


def _run(session: Any, names: list[str], inputs: dict[str, Tensor]) -> list[Tensor]:
    # Inputs that a graph does not use are not part of it: without attention it has no lengths.
    wanted = {each.name for each in session.get_inputs()}
    given = {name: value.contiguous().cpu().numpy() for name, value in inputs.items() if name in wanted}
    return [torch.from_numpy(found) for found in session.run(names, given)]
