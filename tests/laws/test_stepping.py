"""The laws hold for a sound stepper, and each of them catches a broken one."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from laws.stepping import LAWS, Case, check_stepper_laws, make_case
from seqloom.core.stepping import Source, State, Step
from seqloom.core.symbols import BEGIN, END, PAD

SOURCE_SYMBOLS, TARGET_SYMBOLS, WIDTH, CAPACITY = 11, 9, 5, 16


@dataclass(frozen=True)
class Looking:
    """Memory per sentence, an owner for each row, and an append-only cache of what each row was fed."""

    memory: Tensor  # [sentences, source, width]
    mask: Tensor  # [sentences, source]
    owner: Tensor  # [rows]
    cache: Tensor  # [rows, capacity, width]
    length: int

    def select(self, rows: Tensor) -> "Looking":
        unchanged = len(rows) == len(self.owner) and bool((rows == torch.arange(len(rows))).all())
        return self if unchanged else replace(self, owner=self.owner[rows], cache=self.cache[rows])


class Toy:
    """A tiny model with attention and a memory of its whole past, written so that a subclass can break one line."""

    begin, end = BEGIN, END

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(3)
        self.source_table = torch.randn(SOURCE_SYMBOLS, WIDTH, generator=generator, dtype=torch.float64)
        self.target_table = torch.randn(TARGET_SYMBOLS, WIDTH, generator=generator, dtype=torch.float64)
        self.output = torch.randn(2 * WIDTH, TARGET_SYMBOLS, generator=generator, dtype=torch.float64)

    def start(self, source: Source) -> State:
        rows, width = source.ids.shape
        mask = torch.arange(width) < source.lengths[:, None]
        cache = torch.zeros(rows, CAPACITY, WIDTH, dtype=torch.float64)
        return Looking(self.source_table[source.ids], mask, torch.arange(rows), cache, 0)

    def step(self, state: State, last: Tensor) -> Step:
        assert isinstance(state, Looking)
        state.cache[:, state.length] = self.target_table[last]
        state = replace(state, length=state.length + 1)
        past = self.read(state.cache[:, : state.length])
        memory, mask = state.memory[state.owner], state.mask[state.owner]
        weights = (memory @ past[:, :, None])[:, :, 0].masked_fill(~mask, float("-inf")).softmax(1)
        return self.finish(state, past, memory, weights)

    def read(self, past: Tensor) -> Tensor:
        age = torch.arange(past.shape[1], 0, -1, dtype=torch.float64)
        return torch.tanh((past / age[:, None]).sum(1))

    def finish(self, state: Looking, past: Tensor, memory: Tensor, weights: Tensor) -> Step:
        context = (weights[:, None] @ memory)[:, 0]
        log_probs = (torch.cat([past, context], 1) @ self.output).log_softmax(1)
        return Step(log_probs, state, weights)


def teacher_forced(source: Source, prefix: Tensor) -> Tensor:
    """The toy without a cache: each position from its whole prefix."""
    toy = Toy()
    columns = []
    for steps in range(1, prefix.shape[1] + 1):
        past = toy.read(toy.target_table[prefix[:, :steps]])
        scores = (toy.source_table[source.ids] @ past[:, :, None])[:, :, 0]
        mask = torch.arange(source.ids.shape[1]) < source.lengths[:, None]
        weights = scores.masked_fill(~mask, float("-inf")).softmax(1)
        state = toy.start(source)
        assert isinstance(state, Looking)
        columns.append(toy.finish(state, past, state.memory, weights).log_probs)
    return torch.stack(columns, 1)


class ForgetsToNormalise(Toy):
    def step(self, state: State, last: Tensor) -> Step:
        step = super().step(state, last)
        return replace(step, log_probs=step.log_probs + 0.01)


class OffersASymbolTwice(Toy):
    def step(self, state: State, last: Tensor) -> Step:
        step = super().step(state, last)
        halves = torch.cat([step.log_probs, step.log_probs], 1) - torch.log(torch.tensor(2.0, dtype=torch.float64))
        return replace(step, log_probs=halves, symbols=torch.arange(TARGET_SYMBOLS).repeat(2))


@dataclass(frozen=True)
class OwnersAreRows(Looking):
    """Right at the first selection only, when row and sentence have the same number."""

    def select(self, rows: Tensor) -> "OwnersAreRows":
        return replace(self, owner=rows % len(self.memory), cache=self.cache[rows])


@dataclass(frozen=True)
class CacheStaysBehind(Looking):
    def select(self, rows: Tensor) -> "CacheStaysBehind":
        return replace(self, owner=self.owner[rows], cache=self.cache[: len(rows)].clone())


@dataclass(frozen=True)
class SharesItsCache(Looking):
    """A view where a copy is due: reversed rows write into each other's cache."""

    def select(self, rows: Tensor) -> "SharesItsCache":
        kept = self.cache if len(rows) == len(self.owner) else self.cache[rows]
        return replace(self, owner=self.owner[rows], cache=kept)


@dataclass(frozen=True)
class MemoryByRow(Looking):
    """Gives the first rows the first sentences when there are more rows than sentences."""

    def select(self, rows: Tensor) -> "MemoryByRow":
        owner = self.owner[rows] if len(rows) <= len(self.memory) else torch.arange(len(rows)) % len(self.memory)
        return replace(self, owner=owner, cache=self.cache[rows])


def starting_with(kind: type[Looking]) -> type[Toy]:
    class Broken(Toy):
        def start(self, source: Source) -> State:
            state = super().start(source)
            assert isinstance(state, Looking)
            return kind(state.memory, state.mask, state.owner, state.cache, state.length)

    return Broken


class CountsStepsItself(Toy):
    """Keeps its position in the module instead of in the state."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0

    def step(self, state: State, last: Tensor) -> Step:
        self.steps += 1
        step = super().step(state, last)
        return replace(step, log_probs=(step.log_probs * (1 + 0.1 * self.steps)).log_softmax(1))


class ForgetsTheOldest(Toy):
    def read(self, past: Tensor) -> Tensor:
        return super().read(past[:, -2:])


class LooksAtPadding(Toy):
    def start(self, source: Source) -> State:
        state = super().start(source)
        assert isinstance(state, Looking)
        return replace(state, mask=torch.ones_like(state.mask))


class AveragesTheBatch(Toy):
    def finish(self, state: Looking, past: Tensor, memory: Tensor, weights: Tensor) -> Step:
        return super().finish(state, past + 1e-3 * past.mean(0), memory, weights)


def case_of(make_stepper: Callable[[], Toy]) -> Case:
    return make_case(make_stepper, SOURCE_SYMBOLS, target_symbols=TARGET_SYMBOLS, teacher_forced=teacher_forced)


@pytest.mark.parametrize("seed", range(3))
def test_a_sound_stepper_keeps_every_law(seed: int) -> None:
    check_stepper_laws(
        Toy, SOURCE_SYMBOLS, target_symbols=TARGET_SYMBOLS, teacher_forced=teacher_forced, seed=seed, tolerance=1e-12
    )


@pytest.mark.parametrize(
    ("law", "broken"),
    [
        ("rows_sum_to_one", ForgetsToNormalise),
        ("rows_sum_to_one", OffersASymbolTwice),
        ("select_composes", starting_with(OwnersAreRows)),
        ("select_commutes_with_step", starting_with(CacheStaysBehind)),
        ("stepping_equals_teacher_forced", ForgetsTheOldest),
        ("neighbours_and_padding_change_nothing", LooksAtPadding),
        ("neighbours_and_padding_change_nothing", AveragesTheBatch),
        ("a_state_is_a_value", starting_with(SharesItsCache)),
        ("a_state_is_a_value", CountsStepsItself),
        ("copies_of_a_sentence_are_separate_rows", starting_with(MemoryByRow)),
    ],
)
def test_each_law_catches_a_broken_stepper(law: str, broken: type[Toy]) -> None:
    with pytest.raises(AssertionError):
        LAWS[law](case_of(broken))


def test_a_case_holds_what_the_laws_promise() -> None:
    case = case_of(Toy)
    assert [int(case.source.ids[row, length - 1]) for row, length in enumerate((3, 1, 6, 2))] == [END] * 4
    assert case.source.ids[1].tolist() == [END, PAD, PAD, PAD, PAD, PAD]
