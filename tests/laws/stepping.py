"""The laws of stepping: one property suite for whatever can be decoded.

    check_stepper_laws(make_stepper, source_symbols=20, target_symbols=17, teacher_forced=forward)

runs every law; `LAWS` holds them by name, so that a test may also be made of each one. Give float64 models: the
tolerance is meant to tell rounding from a mistake.

No state is stepped twice here, because a state with an append-only cache does not promise to survive that. Where a
law needs the same state again it walks there again, or it takes a `select` that really changes the rows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from seqloom.core.stepping import Source, State, Step, Stepper
from seqloom.core.symbols import END, PAD, RESERVED

TeacherForced = Callable[[Source, Tensor], Tensor]
"""From a source and `prefix[batch, steps]` (begin first) to `log_probs[batch, steps, symbols]` of the next symbols."""


@dataclass(frozen=True)
class Case:
    """A stepper with something to say to it: sentences of different lengths and the symbols fed after begin."""

    make_stepper: Callable[[], Stepper]
    source: Source
    fed: Tensor  # [batch, steps]
    symbols: int
    teacher_forced: TeacherForced | None
    tolerance: float


@dataclass(frozen=True)
class Walk:
    """What a stepper said on its way, and where it stands. Symbols outside a shortlist are −∞."""

    log_probs: Tensor  # [rows, steps, symbols]
    attention: Tensor | None  # [rows, steps, source]
    state: State


def check_stepper_laws(
    make_stepper: Callable[[], Stepper],
    source_symbols: int,
    *,
    target_symbols: int,
    teacher_forced: TeacherForced | None = None,
    lengths: Sequence[int] = (3, 1, 6, 2),
    steps: int = 4,
    seed: int = 0,
    tolerance: float = 1e-9,
) -> None:
    """Run every law on sentences of these lengths (which count the end symbol) and `steps` random symbols each."""
    case = make_case(
        make_stepper,
        source_symbols,
        target_symbols=target_symbols,
        teacher_forced=teacher_forced,
        lengths=lengths,
        steps=steps,
        seed=seed,
        tolerance=tolerance,
    )
    for law in LAWS.values():
        law(case)


def make_case(
    make_stepper: Callable[[], Stepper],
    source_symbols: int,
    *,
    target_symbols: int,
    teacher_forced: TeacherForced | None = None,
    lengths: Sequence[int] = (3, 1, 6, 2),
    steps: int = 4,
    seed: int = 0,
    tolerance: float = 1e-9,
) -> Case:
    """Random sentences and random symbols to feed; reserved symbols are left out, the end of each sentence is there."""
    assert len(lengths) >= 3, "the laws reorder and drop rows: give at least three sentences"
    assert steps >= 3, "the laws step before and after a selection: give at least three steps"
    generator = torch.Generator().manual_seed(seed)
    ordinary = len(RESERVED)
    ids = torch.randint(ordinary, source_symbols, (len(lengths), max(lengths)), generator=generator)
    for row, length in enumerate(lengths):
        ids[row, length - 1] = END
        ids[row, length:] = PAD
    fed = torch.randint(ordinary, target_symbols, (len(lengths), steps), generator=generator)
    source = Source(ids, torch.tensor(list(lengths)))
    return Case(make_stepper, source, fed, target_symbols, teacher_forced, tolerance)


def follow(case: Case, stepper: Stepper, state: State, fed: Tensor) -> Walk:
    """Feed the columns of `fed` one after the other."""
    log_probs, attention = [], []
    for last in fed.unbind(1):
        step = stepper.step(state, last)
        log_probs.append(_dense(step, case.symbols))
        attention.append(step.attention)
        state = step.state
    looked = [part for part in attention if part is not None]
    assert len(looked) in (0, len(attention)), "attention is given at some steps and not at others"
    return Walk(torch.stack(log_probs, 1), torch.stack(looked, 1) if looked else None, state)


def prefix_of(case: Case, stepper: Stepper) -> Tensor:
    """Begin and what is fed after it: [batch, 1 + steps]."""
    begin = torch.full((case.fed.shape[0], 1), stepper.begin)
    return torch.cat([begin, case.fed], 1)


def rows_sum_to_one(case: Case) -> None:
    """Σ_c exp(log_probs[r, c]) = 1 over the symbols offered, and each symbol is offered once."""
    stepper = case.make_stepper()
    state = stepper.start(case.source)
    for last in prefix_of(case, stepper).unbind(1):
        step = stepper.step(state, last)
        total = step.log_probs.double().logsumexp(1)
        _same(total, torch.zeros_like(total), case, "the log of the sum of each row's probabilities")
        _check_offers(step, case.symbols)
        state = step.state


def select_composes(case: Case) -> None:
    """select(a) then select(b) is select(a[b]), at the start and on the way."""
    rows = case.fed.shape[0]
    first = torch.tensor([*reversed(range(rows)), 0, 1])
    second = torch.tensor([rows + 1, 1, 1, 0])
    for depth in (0, 2):
        twice, once = (_walk_to(case, depth) for _ in range(2))
        rest = prefix_of(case, twice.stepper)[first[second], depth:]
        left = follow(case, twice.stepper, twice.state.select(first).select(second), rest)
        right = follow(case, once.stepper, once.state.select(first[second]), rest)
        _same_walk(left, right, case, f"selecting twice after {depth} steps")


def select_commutes_with_step(case: Case) -> None:
    """Selecting rows and stepping is stepping and selecting rows, now and in all later steps."""
    rows = case.fed.shape[0]
    choices = ([*reversed(range(rows))], [1], [0, 0, rows - 1], [2, 0], [*range(rows)])
    for picked in map(torch.tensor, choices):
        for depth in (0, 1, 2):
            place = _walk_to(case, depth)
            rest = prefix_of(case, place.stepper)[:, depth:]
            all_rows = follow(case, place.stepper, place.state, rest)
            again = _walk_to(case, depth)
            some = follow(case, again.stepper, again.state.select(picked), rest[picked])
            what = f"selecting rows {picked.tolist()} after {depth} steps"
            _same_walk(some, _rows_of(all_rows, picked), case, what)


def stepping_equals_teacher_forced(case: Case) -> None:
    """Symbol by symbol gives what the whole prefix at once gives."""
    if case.teacher_forced is None:
        return
    stepper = case.make_stepper()
    prefix = prefix_of(case, stepper)
    walk = follow(case, stepper, stepper.start(case.source), prefix)
    at_once = case.teacher_forced(case.source, prefix)
    offered = walk.log_probs.isfinite()
    _same(
        walk.log_probs.masked_fill(~offered, 0), at_once.masked_fill(~offered, 0), case, "stepping and teacher forcing"
    )


def neighbours_and_padding_change_nothing(case: Case) -> None:
    """A sentence alone = in a batch with longer ones, however wide the padding and whatever ids it holds."""
    stepper = case.make_stepper()
    prefix = prefix_of(case, stepper)
    together = follow(case, stepper, stepper.start(case.source), prefix)
    _check_padding_is_unseen(together, case)
    for row, length in enumerate(case.source.lengths.tolist()):
        alone = Source(case.source.ids[row : row + 1, :length], case.source.lengths[row : row + 1])
        stepper = case.make_stepper()
        walk = follow(case, stepper, stepper.start(alone), prefix[row : row + 1])
        _same_walk(walk, _rows_of(together, torch.tensor([row]), length), case, f"sentence {row} alone and in a batch")
    for pad in (PAD, int(case.source.ids.max())):
        stepper = case.make_stepper()
        padded = follow(case, stepper, stepper.start(_padded_with(case.source, pad, extra=3)), prefix)
        narrow = _rows_of(padded, torch.arange(len(prefix)), case.source.ids.shape[1])
        _same_walk(narrow, together, case, f"three more columns of padding with id {pad}")


def a_state_is_a_value(case: Case) -> None:
    """Stepping on leaves older and selected states as they were, and they leave the newer ones as they are."""
    depth = 1
    rows = torch.tensor([*reversed(range(case.fed.shape[0]))])
    place = _walk_to(case, depth)
    stepper, older = place.stepper, place.state
    prefix = prefix_of(case, stepper)
    other = prefix.roll(1, 0)  # what the branch is fed differs from what the trunk is fed

    before = older.select(rows)
    newer = follow(case, stepper, older, prefix[:, depth : depth + 1]).state
    after = older.select(rows)
    branches = [follow(case, stepper, state, other[rows, depth:]) for state in (before, after)]
    trunk = follow(case, stepper, newer, prefix[:, depth + 1 :])

    fresh = _walk_to(case, depth)
    expected = follow(case, fresh.stepper, fresh.state.select(rows), other[rows, depth:])
    _same_walk(branches[0], expected, case, "a state selected before its parent was stepped")
    _same_walk(branches[1], expected, case, "an older state selected after it was stepped")
    again = _walk_to(case, depth + 1)
    straight = follow(case, again.stepper, again.state, prefix[:, depth + 1 :])
    _same_walk(trunk, straight, case, "a state after its older selections were stepped")


def copies_of_a_sentence_are_separate_rows(case: Case) -> None:
    """Rows that share one sentence equal a batch in which that sentence stands several times."""
    owners = torch.tensor([0, 0, 2, 2, 2, 1])
    fed = torch.cat([case.fed.roll(shift, 0) for shift in range(3)])[: len(owners)]
    shared, separate = case.make_stepper(), case.make_stepper()
    prefix = torch.cat([torch.full((len(owners), 1), shared.begin), fed], 1)
    left = follow(case, shared, shared.start(case.source).select(owners), prefix)
    copies = Source(case.source.ids[owners], case.source.lengths[owners])
    right = follow(case, separate, separate.start(copies), prefix)
    _same_walk(left, right, case, "rows that share a sentence and rows with their own copy")


LAWS: Mapping[str, Callable[[Case], None]] = {
    law.__name__: torch.inference_mode()(law)
    for law in (
        rows_sum_to_one,
        select_composes,
        select_commutes_with_step,
        stepping_equals_teacher_forced,
        neighbours_and_padding_change_nothing,
        a_state_is_a_value,
        copies_of_a_sentence_are_separate_rows,
    )
}


@dataclass(frozen=True)
class _Place:
    stepper: Stepper
    state: State


def _walk_to(case: Case, depth: int) -> _Place:
    stepper = case.make_stepper()
    state = stepper.start(case.source)
    for last in prefix_of(case, stepper)[:, :depth].unbind(1):
        state = stepper.step(state, last).state
    return _Place(stepper, state)


def _dense(step: Step, symbols: int) -> Tensor:
    if step.symbols is None:
        assert step.log_probs.shape[1] == symbols, f"{step.log_probs.shape[1]} columns for {symbols} symbols"
        return step.log_probs
    full = step.log_probs.new_full((step.log_probs.shape[0], symbols), float("-inf"))
    if step.symbols.dim() == 1:
        return full.index_copy(1, step.symbols, step.log_probs)
    return full.scatter_reduce(1, step.symbols, step.log_probs, "amax")  # columns left over repeat a symbol at −∞


def _check_offers(step: Step, symbols: int) -> None:
    """A name for each column, and each symbol once; columns at −∞ may repeat one, where rows have their own lists."""
    rows, columns = step.log_probs.shape
    if step.symbols is None:
        assert columns == symbols, f"{symbols} symbols are named for {columns} columns"
        return
    named = step.symbols.shape[-1]
    assert named == columns, f"{named} symbols are named for {columns} columns"
    is_shared = step.symbols.dim() == 1
    for offered, log_probs in zip(step.symbols.expand(rows, -1).tolist(), step.log_probs.tolist(), strict=True):
        real = [symbol for symbol, value in zip(offered, log_probs, strict=True) if is_shared or value > float("-inf")]
        assert len(set(real)) == len(real), "a symbol is offered twice"


def _rows_of(walk: Walk, rows: Tensor, width: int | None = None) -> Walk:
    attention = None if walk.attention is None else walk.attention[rows][:, :, :width]
    return replace(walk, log_probs=walk.log_probs[rows], attention=attention)


def _padded_with(source: Source, pad: int, *, extra: int) -> Source:
    width = source.ids.shape[1] + extra
    ids = torch.full((source.ids.shape[0], width), pad)
    for row, length in enumerate(source.lengths.tolist()):
        ids[row, :length] = source.ids[row, :length]
    return Source(ids, source.lengths)


def _check_padding_is_unseen(walk: Walk, case: Case) -> None:
    if walk.attention is None:
        return
    padding = torch.arange(walk.attention.shape[2]) >= case.source.lengths[:, None]
    seen = walk.attention.masked_select(padding[:, None])
    assert not seen.any(), f"padding is looked at with weights up to {seen.abs().max():.3g}"


def _same_walk(left: Walk, right: Walk, case: Case, what: str) -> None:
    _same(left.log_probs, right.log_probs, case, f"{what}: log-probabilities")
    assert (left.attention is None) == (right.attention is None), f"{what}: attention is given once and once not"
    if left.attention is not None and right.attention is not None:
        width = min(left.attention.shape[2], right.attention.shape[2])
        _same(left.attention[:, :, :width], right.attention[:, :, :width], case, f"{what}: attention")


def _same(left: Tensor, right: Tensor, case: Case, what: str) -> None:
    torch.testing.assert_close(
        left.double(), right.double(), rtol=0, atol=case.tolerance, msg=lambda text: f"{what} differ. {text}"
    )
