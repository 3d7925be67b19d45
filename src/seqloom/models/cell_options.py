"""The settings of recurrent cells, shared by all recurrent models.

A new cell is one class, and here its import and its line in the table.
"""

import sys
from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from seqloom.core.declaration import ModelSettings, ModelSizes, Reason
from seqloom.core.errors import ConfigError
from seqloom.nn.bptt.gru import Update
from seqloom.nn.cells.cell import Cell
from seqloom.nn.cells.gru import GRUCell, Reset
from seqloom.nn.cells.lstm import CoupledCell, LSTMCell, Peephole, PeepholeCell
from seqloom.nn.cells.rnn import Activation, ElmanCell
from seqloom.nn.init import Start
from seqloom.nn.recurrent import MakeCell

CELLS: dict[str, Callable[..., Cell]] = {
    "rnn": ElmanCell,
    "lstm": LSTMCell,
    "peephole": PeepholeCell,
    "coupled": CoupledCell,
    "gru": GRUCell,
}
"""By the name in a config file."""

if TYPE_CHECKING:
    CellKind = str
else:
    CellKind = Literal[tuple(CELLS)]

OPTIONS = ("activation", "forget_bias", "peephole", "reset", "update", "cell_norm", "start", "spectral_radius")
"""Settings that only some cells have: keyword arguments of their constructors, there without `cell_`."""

TEXT_SIZES = (
    (20_000, 64, 1),
    (200_000, 128, 1),
    (1_500_000, 256, 1),
    (10_000_000, 400, 2),
    (100_000_000, 650, 2),
    (sys.maxsize, 1024, 2),
)
"""Up to so many tokens: width and layers that published recurrent language models use for so much text."""


class CellOptions(ModelSettings):
    """The cell of a recurrent model and its options.

    A model adds its own settings, and their conditions to `check`.
    """

    cell: CellKind = "lstm"
    """The recurrent cell of all layers: rnn (Elman's), lstm, peephole or coupled (LSTMs whose gates see the memory, or
    whose input and forget gate sum to one) or gru."""
    activation: Activation = "tanh"
    """Activation of an rnn cell."""
    forget_bias: float = 1.0
    """Initial bias of the forget gate of an lstm, peephole or coupled cell; larger values remember for longer."""
    peephole: Peephole = "diagonal"
    """How the gates of a peephole cell see the memory: number by number (the paper), or through full matrices."""
    reset: Reset = "after"
    """Where a gru's reset gate acts: after the product with the state (torch), before it (Cho et al.), or on the
    input."""
    update: Update = "keep"
    """What a gru's update gate at 1 does: keep the old state (torch, Cho et al.), or take the new one."""
    cell_norm: bool = False
    """Whether the cells have layer norms inside."""
    start: Start = "orthogonal"
    """Initial matrices from state to state: rotations (orthogonal), normal numbers (spectral), or uniform in Glorot's
    bounds (xavier)."""
    spectral_radius: float = Field(1.0, ge=0, allow_inf_nan=False)
    """Initial spectral radius of those matrices (largest |eigenvalue|), for orthogonal and spectral ones."""

    @model_validator(mode="after")
    def _is_sound(self) -> "CellOptions":
        """Checked when the settings are read, before the data is."""
        try:
            self.check()
        except ConfigError as error:
            raise ValueError(str(error)) from error
        return self

    def check(self) -> None:
        """Raise if some settings contradict each other."""
        for name in OPTIONS:
            value, cells = getattr(self, name), _cells_with(name)
            if self.cell not in cells and value != type(self).model_fields[name].default:
                raise ConfigError(
                    f"model.{name}={value} is for a cell of kind {' or '.join(cells)}, but model.cell is {self.cell}; "
                    f"leave model.{name} out, or set model.cell={cells[0]}"
                )
        if self.spectral_radius != 1.0 and self.start == "xavier":
            raise ConfigError(
                f"model.spectral_radius={self.spectral_radius} cannot be combined with model.start=xavier, which "
                "determines the radius; set model.start to orthogonal or spectral, or leave model.spectral_radius out"
            )

    def check_reset(self, part: str, read: tuple[int, ...], *, width: int) -> None:
        """Raise if a gru that resets its input has layers whose inputs (`read`) are not as wide as the states."""
        wrong = [each for each in read if each != width]
        if self.reset == "input" and wrong:
            raise ConfigError(
                f"model.reset=input needs inputs as wide as the states, but a layer of the {part} with states of "
                f"width {width} reads inputs of width {wrong[0]}; use model.reset=before, or make the widths equal"
            )

    def text_sizes(self, tokens: int, *, layers: int | None = None, each: str = "") -> ModelSizes:
        """Width and layers of a language model of so many tokens; `layers` if they do not depend on the text."""
        _, width, depth = next(row for row in TEXT_SIZES if tokens <= row[0])
        depth = layers or depth
        text = (
            f"{depth} layer{'' if depth == 1 else 's'}{each} of width {width}: a larger model would overfit this text"
        )
        reason = Reason(("model.kind", "model.width", "model.layers"), text)
        return ModelSizes({"width": width, "layers": depth}, (reason,))

    def make_cell(self) -> MakeCell:
        """From the width of the input and of the state to a cell of these settings."""
        chosen = (name for name in OPTIONS if self.cell in _cells_with(name))
        return partial(CELLS[self.cell], **{name.removeprefix("cell_"): getattr(self, name) for name in chosen})


def _cells_with(setting: str) -> list[str]:
    option = setting.removeprefix("cell_")
    return [kind for kind, cell in CELLS.items() if option in signature(cell).parameters]
