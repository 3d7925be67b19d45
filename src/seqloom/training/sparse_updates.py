"""Updates of the rows that a step has touched, and of no others.

A table of a hundred thousand rows, of which a step looks up two thousand, spends nearly all its time on rows about
which nothing was learned. With row gradients the gradient of a table is a sparse tensor of the touched rows, and the
optimiser moves these alone. It remembers when each row was touched last (`step`, one number per row in place of one per
table), so that means fade as they would have faded; t counts the steps of the table and n those since the row was
touched before:

    sgd      u = μⁿ u + g + λ θ                         θ ← θ − η D(μ) u
    adam     m = β₁ⁿ m + (1 − β₁) g                     v = β₂ⁿ v + (1 − β₂) g²
    adamw    θ ← (1 − η λ)ⁿ θ − η D(β₁/√β₂) (m / (1 − β₁ᵗ)) / (√(v / (1 − β₂ᵗ)) + ε)

    D(r) = 1 + r + … + rⁿ⁻¹ = (1 − rⁿ) / (1 − r)        what follows from momentum, given at once

m, v and u are those of the dense optimiser. There a gradient keeps moving its row in later steps, by r, r², … of the
first move; for a rare row that is most of its movement, ten times the first move at β = (0.9, 0.999). Here a row does
not change between two uses, so it moves at once by what n such steps would give: the next use is assumed to be as far
off as the last. A row that is used at every step has n = 1, and moves exactly as in the dense optimiser.
"""

from collections.abc import Callable
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from seqloom.core.errors import ConfigError
from seqloom.core.events import Listener, notice
from seqloom.nn.embeddings import Embedding
from seqloom.nn.outputs import Output
from seqloom.training.distributed import World

TableUpdates = Literal["auto", "dense", "rows"]

RowRule = Callable[[Tensor, Tensor, Tensor, dict[str, Any], dict[str, Any]], None]
"""Moves the rows of a table by their gradients: (table, rows, gradients of these rows, state, settings)."""


MIN_BETA2, MAX_DRIFT_RATIO = 1e-12, 0.99
"""What keeps D finite: β₂ is at least the first, r at most the second."""


@runtime_checkable
class TouchesRows(Protocol):
    """A task whose loss may look at some rows of the output only. Tasks that say nothing of it look at all."""

    @property
    def touches_rows(self) -> bool: ...


def choose_row_gradients(
    model: nn.Module, task: object, *, updates: TableUpdates, world: World, listener: Listener
) -> bool:
    """Give the tables of a model row gradients if they are requested or suit the loss; whether so.

    Several ranks average dense gradients, so there they stay dense.
    """
    if updates == "rows" and world.size > 1:
        raise ConfigError(
            f"training.table_updates=rows cannot be shared by {world.size} ranks, which average whole gradients; set "
            "training.table_updates=dense, or start one rank"
        )
    wanted = isinstance(task, TouchesRows) and task.touches_rows
    is_sparse = updates == "rows" or (updates == "auto" and wanted and world.size == 1)
    if updates == "auto" and wanted and not is_sparse:
        notice(listener, f"{world.size} ranks average whole gradients, so each step moves all rows of the tables")
    set_row_gradients(model, is_sparse)
    return is_sparse


def set_row_gradients(model: nn.Module, is_sparse: bool) -> None:
    """Let the gradients of embeddings and outputs hold the touched rows only, or be written out."""
    for module in model.modules():
        if isinstance(module, (Embedding, Output)):
            module.row_gradients = is_sparse


def gradient_values(parameter: nn.Parameter) -> Tensor | None:
    """The numbers of a gradient, to be measured and changed in place; of a sparse one, those of its rows.

    A row that came up several times has several gradients, whose sum is what counts: it is formed here, once.
    """
    gradient = parameter.grad
    if gradient is None or not gradient.is_sparse:
        return gradient
    if not gradient.is_coalesced():
        parameter.grad = gradient = gradient.coalesce()
    return gradient._values()


def update_touched_rows(optimiser: Optimizer, rule: RowRule) -> None:
    """Let an optimiser of torch move the touched rows of tables by a rule; all else it does as before."""

    @torch.no_grad()
    def before_step(optimiser: Optimizer, _positional: Any, _named: Any) -> None:
        for group in optimiser.param_groups:
            for parameter in group["params"]:
                values, gradient = gradient_values(parameter), parameter.grad
                if values is None:
                    continue
                clock = optimiser.state[parameter].get("step") if parameter in optimiser.state else None
                axes = clock.dim() if isinstance(clock, Tensor) else None
                if gradient.is_sparse and axes == 0:
                    # Trained densely so far, by a run that was resumed with other settings: its counter cannot be split
                    # by row.
                    parameter.grad = gradient.to_dense()
                elif gradient.is_sparse or axes == 1:
                    # Its gradient or its memory is kept by rows: the table is moved here, and its gradient used up.
                    if gradient.is_sparse:
                        rows = gradient._indices()[0]
                    else:
                        rows = torch.arange(len(parameter), device=parameter.device)
                    rule(parameter, rows, values, optimiser.state[parameter], group)
                    parameter.grad = None

    optimiser.register_step_pre_hook(before_step)


def adam_rows(
    table: Tensor, rows: Tensor, gradients: Tensor, state: dict[str, Any], group: dict[str, Any], *, decoupled: bool
) -> None:
    """One step of Adam, or AdamW if its decay is decoupled, for each of some distinct rows."""
    if not state:
        state["exp_avg"] = torch.zeros_like(table)
        state["exp_avg_sq"] = torch.zeros_like(table)
    time, gaps = _tick(table, rows, state)
    rate, decay, (beta1, beta2) = group["lr"], group["weight_decay"], group["betas"]
    if decay and not decoupled:
        gradients = gradients.add(table[rows], alpha=decay)
    elif decay:
        table.index_copy_(0, rows, table[rows].mul_(_power(1 - rate * decay, gaps, table)))
    mean = state["exp_avg"][rows].mul_(_power(beta1, gaps, table)).add_(gradients, alpha=1 - beta1)
    state["exp_avg"].index_copy_(0, rows, mean)
    square = state["exp_avg_sq"][rows].mul_(_power(beta2, gaps, table))
    square.addcmul_(gradients, gradients, value=1 - beta2)
    state["exp_avg_sq"].index_copy_(0, rows, square)
    first, second = ((1 - torch.pow(beta, time)).to(table.dtype) for beta in (beta1, beta2))
    denominator = square.div_(second).sqrt_().add_(group["eps"])
    drift = _drift(beta1 / max(beta2, MIN_BETA2) ** 0.5, gaps, table)
    table.index_add_(0, rows, mean.div_(first).div_(denominator).mul_(drift), alpha=-rate)


def sgd_rows(table: Tensor, rows: Tensor, gradients: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
    """One step of gradient descent with momentum for each of some distinct rows."""
    if group["weight_decay"]:
        gradients = gradients.add(table[rows], alpha=group["weight_decay"])
    momentum = group["momentum"]
    if momentum:
        if not isinstance(state.get("momentum_buffer"), Tensor):
            state["momentum_buffer"] = torch.zeros_like(table)
        _, gaps = _tick(table, rows, state)
        moves = state["momentum_buffer"][rows].mul_(_power(momentum, gaps, table)).add_(gradients)
        state["momentum_buffer"].index_copy_(0, rows, moves)
        gradients = moves.mul_(_drift(momentum, gaps, table))
    table.index_add_(0, rows, gradients, alpha=-group["lr"])


def _tick(table: Tensor, rows: Tensor, state: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """The number of this step, and for each row the steps since it was touched last (or since the beginning).

    In float64, because what is raised to these powers is near 1; there is but one number per row.
    """
    if "step" not in state:
        state["step"] = torch.zeros(len(table), dtype=torch.float32, device=table.device)
    clock = state["step"]
    now = clock.max() + 1
    gaps = (now - clock[rows]).double()
    clock[rows] = now
    return now.double(), gaps


def _power(base: float, gaps: Tensor, table: Tensor) -> Tensor:
    """baseⁿ for each row, as a column of the table."""
    return _column(torch.pow(base, gaps), table)


def _drift(ratio: float, gaps: Tensor, table: Tensor) -> Tensor:
    """1 + r + … + rⁿ⁻¹ for each row, as a column of the table."""
    # Averages that fade no faster than their squares would drift without end.
    ratio = min(ratio, MAX_DRIFT_RATIO)
    return _column((1 - torch.pow(ratio, gaps)) / (1 - ratio), table)


def _column(values: Tensor, table: Tensor) -> Tensor:
    return values.to(table.dtype).view(-1, *[1] * (table.dim() - 1))
