"""Backpropagation through time over whole sequences, exact or truncated.

The gradient of a loss with respect to weights w that every step shares is a sum over all steps back from each output,

    z_t = ∂h_t/∂w = b_t + c_t z_{t−1}        b_t: what the step itself adds,  c_t = ∂h_t/∂h_{t−1}

and a truncation says which of its terms are left out:

    full        none
    chunked     z_{t−1} wherever t is a multiple of the window: chunks are independent (chunk and detach)
    sliding     all terms of steps that are `window` or more before t: every output reaches back equally far
    random      z_t = b_t + ξ_t c_t z_{t−1}, where ξ_t is 1 / keep_rate with probability keep_rate and else 0: mean 1,
                so that the whole keeps its mean, which no fixed window does (Tallec & Ollivier, 2017)

The state itself is always carried on. `burn_in` leaves out all terms of the first steps, whatever the kind: they only
prepare the state.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from seqloom.core.errors import ConfigError, UsageError, check_known
from seqloom.nn.bptt.passes import ManualBackward, Pass, Steps
from seqloom.nn.cells.cell import Cell, CellState, Inputs, Lengths, RunResult, check_run, length_range, unroll
from seqloom.nn.packing import Packing, pack_features

TruncationKind = Literal["full", "chunked", "sliding", "random"]


@dataclass(frozen=True)
class Truncation:
    """Which terms of the gradient through time are left out; see the head of this file."""

    kind: TruncationKind = "full"
    window: int = 0
    """Steps of a chunk, or steps that the gradient of an output passes through, including its own."""
    keep_rate: float = 1.0
    """Probability that a step of the random kind passes its gradient back."""
    burn_in: int = 0
    """First steps without any gradient."""

    def __post_init__(self) -> None:
        check_known("kind", self.kind, get_args(TruncationKind))
        has_window = self.kind in ("chunked", "sliding")
        if has_window and self.window < 1:
            raise ConfigError(f"{self.kind} truncation with window={self.window}: give the steps it holds, 1 or more")
        if not has_window and self.window:
            raise ConfigError(
                f"{self.kind} truncation has no window, but window={self.window}; set kind to chunked or sliding"
            )
        if self.kind == "random" and not 0 < self.keep_rate <= 1:
            raise ConfigError(f"random truncation with keep_rate={self.keep_rate}: give more than 0 and at most 1")
        if self.kind != "random" and self.keep_rate != 1:
            raise ConfigError(
                f"{self.kind} truncation keeps or cuts, but keep_rate={self.keep_rate}; set kind to random"
            )
        if self.burn_in < 0:
            raise ConfigError(f"burn_in={self.burn_in} steps is not possible; give 0 or more")


FULL = Truncation()


def run_cell(
    cell: Cell,
    inputs: Inputs,
    state: CellState,
    *,
    lengths: Lengths | None = None,
    truncation: Truncation = FULL,
    generator: torch.Generator | None = None,
) -> RunResult:
    """What `Cell.run` promises, for every cell, with a choice of truncation.

    Cells with a hand-derived pass use it: padding then costs nothing, outputs are zero there, and the gradient has no
    gradient of its own (`unroll` has second derivatives). All other cells are unrolled and differentiated by autograd.
    Random truncation draws from `generator`, once for every step of every row.

    Autocast is switched off: everything is computed in the precision of the weights.
    """
    check_run(cell, inputs, state, lengths=None)
    device, dtype = inputs.device.type, cell.dtype
    if torch.is_autocast_enabled(device):
        with torch.autocast(device, enabled=False):
            return run_cell(
                cell,
                inputs.to(dtype),
                tuple(part.to(dtype) for part in state),
                lengths=lengths,
                truncation=truncation,
                generator=generator,
            )
    manual = cell.manual_backward()
    if manual is None and truncation == FULL:
        return unroll(cell, inputs, state, lengths=lengths)
    layout = _layout_of(lengths, batch=inputs.shape[0], time=inputs.shape[1])
    chances = None
    if truncation.kind == "random":
        if generator is None:
            raise UsageError("random truncation needs random numbers: pass a generator")
        drawn = torch.rand(layout.steps.positions, generator=generator, device=generator.device)
        chances = (drawn < truncation.keep_rate).to(inputs) / truncation.keep_rate
    if manual is None:
        return _run_autograd(cell, inputs, state, lengths=lengths, truncation=truncation, chances=layout.pad(chances))
    projected = cell.project(layout.pack(inputs))
    # Copies, so that they keep no memory alive.
    origins = tuple(each[:0].clone() for each in (projected, *state) if each.requires_grad)
    task = _Task(manual, layout, truncation, len(state), origins)
    outputs, *final = _Run.apply(  # type: ignore[no-untyped-call]
        task, chances, projected, *state, *manual.parameters
    )
    return outputs, tuple(final)


def _run_autograd(
    cell: Cell,
    inputs: Inputs,
    state: CellState,
    *,
    lengths: Lengths | None,
    truncation: Truncation,
    chances: Float[Tensor, "batch time"] | None,
) -> RunResult:
    """Any cell unrolled step by step, with the graph cut where the truncation says."""
    rows = cell.project(inputs).transpose(0, 1)  # [time, batch, gates]
    if truncation.burn_in:
        state = tuple(part.detach() for part in state)
    if truncation.kind == "sliding":
        along = _slide(cell, rows, state, truncation=truncation)
    else:
        states = [state]
        for time, row in enumerate(rows):
            if truncation.window and time and time % truncation.window == 0:
                state = tuple(part.detach() for part in state)
            if chances is not None:  # the value of each part, and its gradient times the chance
                chance = chances[:, time, None]
                state = tuple(torch.lerp(part.detach(), part, chance) for part in state)
            with torch.set_grad_enabled(torch.is_grad_enabled() and time >= truncation.burn_in):
                state = cell.advance(row, state)
            states.append(state)
        along = tuple(torch.stack(list(part)) for part in zip(*states, strict=True))  # [1 + time, batch, width]
    if lengths is None:
        return along[0][1:].transpose(0, 1), tuple(part[-1] for part in along)
    each = torch.arange(len(lengths), device=lengths.device)
    return along[0][1:].transpose(0, 1), tuple(part[lengths.long(), each] for part in along)


def _slide(
    cell: Cell, rows: Float[Tensor, "time batch gates"], state: CellState, *, truncation: Truncation
) -> tuple[Float[Tensor, "states batch width"], ...]:
    """The states before and after all steps, each with the graph of the last `window` steps alone.

    For that, every step is repeated from a state without history `window` steps before it, all of them together.
    """
    time, batch = rows.shape[:2]
    first = min(truncation.burn_in, time)
    with torch.no_grad():
        known = [state]
        for row in rows[: max(first, time - truncation.window)]:
            known.append(cell.advance(row, known[-1]))
    if first == time:
        return tuple(torch.stack(list(part)) for part in zip(*known, strict=True))
    begins = (torch.arange(first, time, device=rows.device) - truncation.window + 1).clamp(min=first)  # [chains]
    chains = tuple(torch.stack([known[at][part] for at in begins.tolist()]) for part in range(len(state)))
    ended = []
    for step in range(min(truncation.window, time - first)):
        # Chain c passes through min(c + 1, window) steps: the first of those left ends with this one.
        flat = cell.advance(rows[begins[step:] + step].flatten(0, 1), tuple(part.flatten(0, 1) for part in chains))
        chains = tuple(part.unflatten(0, (-1, batch)) for part in flat)  # [chains, batch, width]
        ended.append(tuple(part[:1] for part in chains))
        chains = tuple(part[1:] for part in chains)
    before = [tuple(part[None] for part in each) for each in known[: first + 1]]
    return tuple(torch.cat(list(part)) for part in zip(*before, *ended, chains, strict=True))


def trace_back(
    cell: Cell, inputs: Float[Tensor, "batch time inputs"], state: CellState, *, gradient: Float[Tensor, "batch width"]
) -> tuple[Float[Tensor, "lags batch width"], ...]:
    """The gradient of g·h_T with respect to each part of the state ℓ steps before the end, ℓ = 0 … T.

    h_T is the hidden state after the last step and g the given `gradient`; at lag 0 it is g itself, and zero for the
    memory.
    """
    check_run(cell, inputs, state, lengths=None)
    manual, lags = cell.manual_backward(), []
    with torch.no_grad():
        if manual is None:
            projected = cell.project(inputs)
            states = [state]
            for row in projected.unbind(1):
                states.append(cell.advance(row, states[-1]))
            parts = (gradient, *(torch.zeros_like(gradient) for _ in state[1:]))
            lags.append([part[None] for part in parts])
            for row, before in zip(reversed(projected.unbind(1)), reversed(states[:-1]), strict=True):
                parts = torch.func.vjp(lambda *given, row=row: cell.advance(row, given), *before)[1](parts)
                lags.append([part[None] for part in parts])
        else:
            layout = _layout_of(None, batch=inputs.shape[0], time=inputs.shape[1])
            cell_pass = _after_forward(manual, layout.steps, cell.project(layout.pack(inputs)), state)
            stacks = [gradient[None], *(torch.zeros_like(gradient)[None] for _ in state[1:])]
            lags.append(stacks)
            for step in reversed(range(len(layout.steps.sizes))):
                stacks = cell_pass.vjp(step, stacks)
                lags.append(stacks)
        return tuple(torch.cat(list(part)) for part in zip(*lags, strict=True))


def step_jacobian(cell: Cell, projected: Float[Tensor, " gates"], state: CellState) -> Float[Tensor, "joint joint"]:
    """∂s'/∂s of one step from this state of one row, where s joins all parts of the state.

    `projected` is the result of the cell's `project` for the input. Row i is the gradient of the i-th number of s'.
    """
    joint, manual = len(state) * cell.width, cell.manual_backward()

    def step(joined: Tensor) -> Tensor:
        return torch.cat(cell.advance(projected[None], joined[None].split(cell.width, 1)), 1)[0]

    with torch.no_grad():
        if manual is None:
            jacobian: Tensor = torch.func.jacrev(step)(torch.cat(state, 1)[0])
            return jacobian
        # The pass overwrites its arguments.
        cell_pass = _after_forward(manual, Steps(1, (1,), None), projected[None].clone(), state)
        unit = torch.eye(joint, dtype=projected.dtype, device=projected.device)
        return torch.cat(cell_pass.vjp(0, list(unit[:, None].split(cell.width, 2))), 2)[:, 0]


@dataclass(frozen=True)
class _Layout:
    """Converts between a padded batch, rows first, and packed positions, steps first."""

    batch: int
    time: int
    steps: Steps
    order: Tensor | None = None
    """Rows from the longest to the shortest; None if all are full."""
    packing: Packing | None = None
    spread: Tensor | None = None
    """For every padded position its place in a buffer of states, or the row of zeros at its end."""
    ends: Tensor | None = None
    """The place of each row's last state in a buffer of states."""

    def pack(self, inputs: Tensor) -> Tensor:
        if self.packing is None:
            return inputs.transpose(0, 1).reshape(self.steps.positions, inputs.shape[2])
        return pack_features(inputs, self.packing)

    def pad(self, packed: Tensor | None) -> Tensor | None:
        """From one number for each packed position to `[batch, time]`; zero in the padding."""
        if packed is None:
            return None
        if self.packing is None:
            return packed.view(self.time, self.batch).t()
        return packed.new_zeros(self.batch * self.time).index_copy_(0, self.packing.flat, packed).view(self.batch, -1)

    def sort(self, rows: Tensor) -> Tensor:
        return rows if self.order is None else rows.index_select(0, self.order)

    def unsort(self, rows: Tensor) -> Tensor:
        return rows if self.order is None else torch.empty_like(rows).index_copy_(0, self.order, rows)

    def buffer(self, first: Tensor) -> Tensor:
        """A buffer for all states, with the first of each row filled in."""
        rows, positions = self.batch, self.steps.positions
        states = first.new_empty(rows + positions + (self.spread is not None), first.shape[1])
        states[:rows] = self.sort(first)
        states[rows + positions :] = 0
        return states

    def padded(self, states: Tensor) -> Tensor:
        """The states after all steps, rows first."""
        if self.spread is None:
            return self.steps.after_all(states).view(self.time, self.batch, states.shape[1]).transpose(0, 1)
        # Not a view, which could not be changed in place.
        padded = states.new_empty(self.batch, self.time, states.shape[1])
        torch.index_select(states, 0, self.spread, out=padded.view(self.batch * self.time, states.shape[1]))
        return padded

    def last(self, states: Tensor) -> Tensor:
        if self.ends is None:
            return states[self.steps.positions :].clone()
        return states.index_select(0, self.ends)

    def gathered(self, like: Tensor, *, outputs: Tensor | None, last: Tensor | None) -> Tensor:
        """Gradients of `padded` and of `last`, as one buffer of states."""
        rows, positions = self.batch, self.steps.positions
        states = torch.empty_like(like[: rows + positions])
        states[: rows if outputs is not None else None] = 0
        if outputs is not None and self.packing is None:
            self.steps.after_all(states).view(self.time, rows, states.shape[1]).copy_(outputs.transpose(0, 1))
        elif outputs is not None and self.packing is not None:
            torch.index_select(
                outputs.reshape(rows * self.time, states.shape[1]),
                0,
                self.packing.flat,
                out=self.steps.after_all(states),
            )
        if last is not None and self.ends is None:
            states[positions:] += last
        elif last is not None and self.ends is not None:
            states.index_add_(0, self.ends, last)
        return states


def _layout_of(lengths: Tensor | None, *, batch: int, time: int) -> _Layout:
    shortest, longest = (time, time) if lengths is None else length_range(lengths, rows=batch, time=time)
    if lengths is None or shortest == time:
        return _Layout(batch, time, Steps(batch, (batch,) * time if batch else (), None))
    device = lengths.device
    order = torch.argsort(lengths, descending=True, stable=True)
    counts = batch - torch.bincount(lengths, minlength=longest + 1).cumsum(0)[:longest]  # rows longer than t
    sizes = tuple(counts.tolist())
    step, row = (torch.arange(longest, device=device)[:, None] < lengths[order]).nonzero(as_tuple=True)
    starts = torch.cat([counts.new_tensor([0, batch]), batch + counts.cumsum(0)])  # of the blocks of states
    packing = Packing(batch=batch, longest=time, flat=order[row] * time + step, positions=step)
    positions = len(step)
    spread = torch.full((batch * time,), batch + positions, device=device)
    spread[packing.flat] = torch.arange(batch, batch + positions, device=device)
    ends = torch.empty_like(order)
    ends[order] = starts[lengths[order]] + torch.arange(batch, device=device)
    return _Layout(batch, time, Steps(batch, sizes, starts[step] + row), order, packing, spread, ends)


@dataclass(frozen=True)
class _Task:
    """The arguments of a run besides tensors."""

    manual: ManualBackward
    layout: _Layout
    truncation: Truncation
    parts: int
    origins: tuple[Tensor, ...]
    """Empty tensors that autograd connects with `projected` and the first state."""


class _Run(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, task: _Task, chances: Tensor | None, projected: Tensor, *tensors: Tensor | None
    ) -> tuple[Tensor, ...]:
        layout, parameters = task.layout, tensors[task.parts :]
        states = [layout.buffer(part) for part in tensors[: task.parts] if part is not None]
        tape = task.manual.make(parameters).forward(layout.steps, projected, states)
        ctx.task, ctx.counts = task, (len(states), len(tape))
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*states, *tape, chances, *parameters)
        return layout.padded(states[0]), *(layout.last(part) for part in states)

    @staticmethod
    def backward(ctx: Any, *of_results: Tensor | None) -> tuple[Tensor | None, ...]:
        task: _Task = ctx.task
        parts, taped = ctx.counts
        saved, learns = ctx.saved_tensors, any(ctx.needs_input_grad[3 + parts :])
        states, tape, (chances, *parameters) = saved[:parts], saved[parts : parts + taped], saved[parts + taped :]
        device = states[0].device.type
        is_cast = torch.is_autocast_enabled(device)
        with torch.no_grad(), torch.autocast(device, enabled=False) if is_cast else nullcontext():
            cell_pass = task.manual.make(tuple(parameters))
            found = _backward(task, cell_pass, states, tape=tape, chances=chances, of_results=of_results, learns=learns)
        if torch.is_grad_enabled():  # with create_graph alone
            origins = (*task.origins, *parameters, *of_results)
            found = tuple(each if each is None else _Final.apply(each, *origins) for each in found)  # type: ignore[no-untyped-call]
        return None, None, *found


class _Final(torch.autograd.Function):
    """A gradient that raises an error when it is differentiated again."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, *origins: Tensor | None) -> Tensor:  # noqa: ARG004
        return gradient.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:  # noqa: ARG004
        raise UsageError(
            "a hand-derived backward pass has no second derivative; "
            "seqloom.nn.cells.cell.unroll has derivatives of any order"
        )


def _backward(
    task: _Task,
    cell_pass: Pass,
    states: Sequence[Tensor],
    *,
    tape: Sequence[Tensor],
    chances: Tensor | None,
    of_results: Sequence[Tensor | None],
    learns: bool,
) -> tuple[Tensor | None, ...]:
    """The gradients of `projected`, of each part of the first state and of each parameter."""
    layout, truncation, steps = task.layout, task.truncation, task.layout.steps
    of_outputs, *of_last = of_results
    hidden = layout.gathered(states[0], outputs=of_outputs, last=of_last[0])
    memory = [
        states[0].new_zeros(layout.batch, states[0].shape[1])
        if last is None
        else layout.sort(last).clone(memory_format=torch.contiguous_format)
        for last in of_last[1:]
    ]
    cell_pass.prepare_backward(steps, states, tape=tape, gradients=[hidden, *memory])
    first = min(truncation.burn_in, len(steps.sizes))
    if truncation.kind in ("full", "chunked"):
        end = len(steps.sizes)
        window = truncation.window or max(end, 1)
        # Steps at which a chunk begins, and the end.
        borders = [first, *range((first // window + 1) * window, end, window), end] if first < end else [end]
        for low, high in reversed(list(pairwise(borders))):
            cell_pass.backward(low, high, is_cut=low > 0)
    else:
        _backward_truncated(cell_pass, steps, [hidden, *memory], truncation=truncation, chances=chances)
    if first:
        unlearnt = sum(steps.sizes[:first])
        cell_pass.gate_gradients[:unlearnt] = 0
        hidden[: layout.batch + unlearnt] = 0
        for part in memory:
            part.zero_()
    of_parameters = cell_pass.parameter_gradients() if learns else (None,) * len(task.manual.parameters)
    of_first = (layout.unsort(part) for part in (hidden[: layout.batch], *memory))
    return cell_pass.input_gradients(), *of_first, *of_parameters


def _after_forward(manual: ManualBackward, steps: Steps, projected: Tensor, state: CellState) -> Pass:
    """A pass after its forward steps from a state, all rows in all steps, ready for `vjp`."""
    states = [torch.cat([part, part.new_empty(steps.positions, part.shape[1])]) for part in state]
    cell_pass = manual.make(manual.parameters)
    tape = cell_pass.forward(steps, projected, states)
    gradients = [torch.zeros_like(states[0]), *(torch.zeros_like(part) for part in state[1:])]
    cell_pass.prepare_backward(steps, states, tape=tape, gradients=gradients)
    return cell_pass


def _backward_truncated(
    cell_pass: Pass, steps: Steps, gradients: Sequence[Tensor], *, truncation: Truncation, chances: Tensor | None
) -> None:
    """All steps back with gradients that are not simply passed on.

    Sliding carries one gradient for each step that it has passed, so that the one that has passed all can be dropped;
    random carries one, times a chance.
    """
    hidden, *memory = gradients
    begin, first = len(steps.sizes), truncation.burn_in
    chance_at = None if chances is None else steps.at(chances[:, None])
    _, after = steps.around(hidden)
    carried = [hidden.new_zeros(0, 0, hidden.shape[1]) for _ in gradients]
    for step in reversed(range(first, begin)):
        size, continuing = steps.sizes[step], carried[0].shape[1]
        fresh = [after[step], *(part[:size].clone() for part in memory)]
        for part in fresh[1:]:  # the gradient of the last memory enters where a row ends
            part[:continuing] = 0
        grown = [torch.nn.functional.pad(old, (0, 0, 0, size - continuing)) for old in carried]
        stacks = [torch.cat([new[None], old]) for new, old in zip(fresh, grown, strict=True)]
        if chance_at is not None:
            stacks = [stack.sum(0, keepdim=True) for stack in stacks]
        after[step].copy_(stacks[0].sum(0))  # the whole gradient, as after `Pass.backward`
        carried = cell_pass.vjp(step, stacks)
        if chance_at is not None:
            carried = [stack * chance_at[step] for stack in carried]
        elif step > 0:
            carried = [stack[: truncation.window - 1] for stack in carried]
    if first < begin:
        for whole, stack in zip((hidden[: steps.rows], *memory), carried, strict=True):
            part = whole[: stack.shape[1]]
            part.copy_(stack.sum(0))
