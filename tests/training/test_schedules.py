"""Schedules against the formulas worked out by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as some

from seqloom.training import schedules
from seqloom.training.schedules import Plateau


@pytest.mark.parametrize(("step", "factor"), [(1, 0.25), (2, 0.5), (4, 1.0), (16, 0.5), (64, 0.25), (400, 0.1)])
def test_inverse_sqrt_rises_linearly_and_falls_with_the_root(step: int, factor: float) -> None:
    assert schedules.inverse_sqrt(step, warmup=4) == pytest.approx(factor, rel=1e-12)


def test_inverse_sqrt_equals_the_formula_of_the_transformer_paper() -> None:
    width, warmup = 512, 4000
    for step in (1, 17, 3999, 4000, 4001, 100_000):
        paper = width**-0.5 * min(step**-0.5, step * warmup**-1.5)
        assert (width * warmup) ** -0.5 * schedules.inverse_sqrt(step, warmup=warmup) == pytest.approx(paper, rel=1e-12)


@pytest.mark.parametrize(("step", "factor"), [(1, 0.1), (10, 1.0), (35, 0.853553), (60, 0.5), (85, 0.146447), (110, 0)])
def test_cosine_falls_from_one_at_the_end_of_the_warm_up_to_zero_at_the_last_step(step: int, factor: float) -> None:
    assert schedules.cosine(step, warmup=10, steps=110) == pytest.approx(factor, abs=1e-6)


def test_cosine_stays_at_zero_after_its_last_step() -> None:
    assert schedules.cosine(200, warmup=10, steps=110) == 0


def test_constant_is_a_warm_up_and_then_one() -> None:
    assert [schedules.warm_up(step, warmup=2) for step in (1, 2, 3, 99)] == [0.5, 1, 1, 1]
    assert schedules.warm_up(1, warmup=0) == 1


@given(some.integers(1, 10**6), some.integers(0, 10**4), some.integers(1, 10**6))
def test_every_factor_lies_between_zero_and_one(step: int, warmup: int, steps: int) -> None:
    factors = [
        schedules.warm_up(step, warmup=warmup),
        schedules.inverse_sqrt(step, warmup=warmup),
        schedules.cosine(step, warmup=warmup, steps=steps),
        schedules.plateau(step, warmup=warmup, factor=0.5, falls=step % 7),
    ]
    assert all(0 <= factor <= 1 for factor in factors)


def test_plateau_falls_when_patience_is_used_up_and_waits_again() -> None:
    state, falls = Plateau(), []
    for loss in (3.0, 2.0, 2.5, 2.5, 2.5, 2.5, 1.0, 1.5, math.nan):
        state = state.after(loss, patience=1)
        falls.append(state.falls)
    assert falls == [0, 0, 0, 1, 1, 2, 2, 2, 3]
    assert state.best == 1.0
    assert schedules.plateau(50, warmup=0, factor=0.5, falls=3) == 0.125
