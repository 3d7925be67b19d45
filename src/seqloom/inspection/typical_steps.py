"""What one whole step of each recurrent cell does to its state, at a state that the cell comes to in use.

    J = ∂s'/∂s        s is all that a cell remembers: h, or h and c one above the other

No single matrix of a gated cell tells that. Its gates decide at every step how much of each product passes, so J is
another matrix at every step; the one in the middle of a sentence stands for all.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import cast

import torch
from jaxtyping import Int
from torch import Tensor, nn

from seqloom.core.stepping import Source
from seqloom.core.symbols import BEGIN
from seqloom.inspection.spectra import Spectrum, spectrum_of
from seqloom.nn.bptt import step_jacobian
from seqloom.nn.cell_base import unroll
from seqloom.nn.cells import Cell, CellState
from seqloom.tasks.language_modelling import LanguageModel
from seqloom.tasks.translation import TranslationModel

Met = dict[str, list[tuple[Tensor, CellState]]]
"""By the name of a cell the steps that it took: what the input adds to its gates, and the state before, of one row."""


def step_spectra(
    model: nn.Module, source: Int[Tensor, " source"], target: Int[Tensor, " target"]
) -> dict[str, Spectrum]:
    """The spectrum of J in the middle of this pair of sentences, by the cell's name; empty without such cells."""
    lengths = [ids.new_tensor([len(ids)]) for ids in (source, target)]
    return _spectra_of(
        model,
        lambda: cast("TranslationModel", model)(Source(source[None], lengths[0]), _previous(target), lengths[1]),
    )


def step_spectra_of_text(model: LanguageModel, layers: nn.Module, text: Int[Tensor, " target"]) -> dict[str, Spectrum]:
    """The same in the middle of a line that a language model reads; `layers` hold its cells."""
    return _spectra_of(layers, lambda: model(_previous(text), None))


def _previous(target: Tensor) -> Tensor:
    """What is read before each symbol of a line, as a batch of one."""
    return torch.cat([target.new_tensor([BEGIN]), target[:-1]])[None]


def _spectra_of(model: nn.Module, read: Callable[[], object]) -> dict[str, Spectrum]:
    cells = {name: module for name, module in model.named_modules() if isinstance(module, Cell)}
    with torch.no_grad(), _recorded(cells) as met:
        read()
    middles = {name: steps[len(steps) // 2] for name, steps in met.items() if steps}
    return {name: spectrum_of("whole step", step_jacobian(cells[name], *middle)) for name, middle in middles.items()}


@contextmanager
def _recorded(cells: dict[str, Cell]) -> Iterator[Met]:
    """Inside, each step that a cell takes is kept, and whole sequences go step by step too."""
    met: Met = {name: [] for name in cells}
    for name, cell in cells.items():
        # On the instance these hide the methods of its class, which are found again when they are gone.
        vars(cell)["run"] = partial(_run, cell)
        vars(cell)["advance"] = partial(_advance, cell, met[name])
    try:
        yield met
    finally:
        for cell in cells.values():
            del vars(cell)["run"], vars(cell)["advance"]


def _run(cell: Cell, inputs: Tensor, state: CellState, *, lengths: Tensor | None = None) -> tuple[Tensor, CellState]:
    return unroll(cell, inputs, state=state, lengths=lengths)


def _advance(cell: Cell, steps: list[tuple[Tensor, CellState]], projected: Tensor, state: CellState) -> CellState:
    steps.append((projected[0], tuple(part[:1] for part in state)))
    return type(cell).advance(cell, projected, state)
