"""Tiny steppers for the tests of search: tables, not models."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from seqloom.core.stepping import Source, State, Step
from seqloom.core.symbols import BEGIN, END


@dataclass(frozen=True)
class Rows:
    """A number per row (of its sentence, or of all it has seen) and what it may look at."""

    number: Tensor  # [rows]
    mask: Tensor  # [rows, source]

    def select(self, rows: Tensor) -> "Rows":
        return Rows(self.number[rows], self.mask[rows])


def numbered(source: Source) -> Rows:
    """A number for each sentence, made of its own symbols only."""
    mask = torch.arange(source.ids.shape[1]) < source.lengths[:, None]
    weights = torch.arange(1, source.ids.shape[1] + 1)
    return Rows((source.ids * weights * mask).sum(1) + 7 * source.lengths, mask)


class Bigram:
    """log P(y ∣ sentence, last): a random table. With `levels`, logits are whole numbers below it, so many tie."""

    begin, end = BEGIN, END

    def __init__(self, symbols: int, *, seed: int, levels: int | None = None, dtype: torch.dtype = torch.float64):
        generator = torch.Generator().manual_seed(seed)
        shape = (5, symbols, symbols)
        if levels is None:
            logits = 2 * torch.randn(shape, generator=generator, dtype=torch.float64)
        else:
            logits = torch.randint(levels, shape, generator=generator).double()
        self.table = logits.log_softmax(2).to(dtype)

    def start(self, source: Source) -> State:
        return numbered(source)

    def step(self, state: State, last: Tensor) -> Step:
        assert isinstance(state, Rows)
        return Step(self.table[state.number % len(self.table), last], state)


class History:
    """log P(y ∣ all symbols so far): a row carries a number mixed from all it was fed. Looks at the source."""

    begin, end = BEGIN, END

    def __init__(self, symbols: int, *, seed: int):
        generator = torch.Generator().manual_seed(seed)
        self.table = (2 * torch.randn(997, symbols, generator=generator, dtype=torch.float64)).log_softmax(1)

    def start(self, source: Source) -> State:
        return numbered(source)

    def step(self, state: State, last: Tensor) -> Step:
        assert isinstance(state, Rows)
        state = replace(state, number=(state.number * 31 + last + 1) % 10_007)
        positions = torch.arange(state.mask.shape[1])
        looks = torch.sin((state.number[:, None] * (positions + 1)).double())
        attention = looks.masked_fill(~state.mask, float("-inf")).softmax(1)
        return Step(self.table[state.number % len(self.table)], state, attention)


class Shortlisted:
    """Another stepper with only some symbols offered, in the order given."""

    def __init__(self, whole: Bigram | History, symbols: Sequence[int]):
        self.whole, self.symbols = whole, torch.tensor(symbols)
        self.begin, self.end = whole.begin, whole.end

    def start(self, source: Source) -> State:
        return self.whole.start(source)

    def step(self, state: State, last: Tensor) -> Step:
        step = self.whole.step(state, last)
        return replace(step, log_probs=step.log_probs[:, self.symbols].log_softmax(1), symbols=self.symbols)


class Masked(Shortlisted):
    """The same choice with the other symbols at −∞ instead of left out."""

    def step(self, state: State, last: Tensor) -> Step:
        step = super().step(state, last)
        full = torch.full((len(last), int(self.whole.table.shape[-1])), float("-inf"), dtype=torch.float64)
        return replace(step, log_probs=full.index_copy(1, self.symbols, step.log_probs), symbols=None)


class Grammar:
    """P(next ∣ last) written out by hand; what is not written is impossible."""

    def __init__(self, names: Sequence[str], table: Mapping[str, Mapping[str, float]], *, begin: str, end: str):
        self.names = list(names)
        self.begin, self.end = self.names.index(begin), self.names.index(end)
        self.table = torch.full((len(names), len(names)), float("-inf"), dtype=torch.float64)
        for last, nexts in table.items():
            for name, probability in nexts.items():
                self.table[self.names.index(last), self.names.index(name)] = torch.tensor(probability).double().log()

    def start(self, source: Source) -> State:
        return numbered(source)

    def step(self, state: State, last: Tensor) -> Step:
        return Step(self.table[last], state)


def sentences(lengths: Sequence[int], *, seed: int = 0, pad: int = 0, extra: int = 0) -> Source:
    """Random sentences of these lengths, each with its end symbol; the same symbols whatever the padding is."""
    ids = torch.full((len(lengths), max(lengths, default=0) + extra), pad)
    for row, length in enumerate(lengths):
        generator = torch.Generator().manual_seed(1000 * seed + row)
        ids[row, : length - 1] = torch.randint(4, 20, (length - 1,), generator=generator)
        ids[row, length - 1] = END
    return Source(ids, torch.tensor(list(lengths), dtype=torch.long))
