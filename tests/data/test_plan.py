"""The batch plan: every example once, within the budget, the same on every call, tight and varied."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.core.errors import ConfigError, DataError
from seqloom.core.files import read_lines
from seqloom.data.batches import BatchPlan, sort_by

PAIRS = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 700)), min_size=1, max_size=80)


def lengths(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([source for source, _ in pairs]), np.array([target for _, target in pairs])


def sizes(plan: BatchPlan, source: np.ndarray, target: np.ndarray, epoch: int) -> list[tuple[int, int]]:
    """Rows and longer padded side of each batch."""
    return [(len(rows), int(max(source[rows].max(), target[rows].max()))) for rows in plan.batches(epoch)]


@given(PAIRS, st.integers(1, 900), st.integers(), st.integers(0, 5))
def test_every_example_stands_in_exactly_one_batch_within_the_budget(
    pairs: list[tuple[int, int]], budget: int, seed: int, epoch: int
) -> None:
    source, target = lengths(pairs)
    plan = BatchPlan(source, target, tokens_per_batch=budget, seed=seed)
    assert sorted(np.concatenate(plan.batches(epoch))) == list(range(len(pairs)))
    assert all(rows * longest <= budget or rows == 1 for rows, longest in sizes(plan, source, target, epoch))


@given(PAIRS, st.integers(1, 900), st.integers(0, 5))
def test_the_plan_is_a_pure_function(pairs: list[tuple[int, int]], budget: int, epoch: int) -> None:
    source, target = lengths(pairs)
    one = BatchPlan(source, target, tokens_per_batch=budget, seed=3)
    other = BatchPlan(source.astype(np.uint32), target.astype(np.uint32), tokens_per_batch=budget, seed=3)
    first = one.batches(epoch)
    one.batches(epoch + 1)
    for again in (one.batches(epoch), other.batches(epoch), [other.batch(epoch, at) for at in range(len(first))]):
        assert [list(rows) for rows in again] == [list(rows) for rows in first]


def test_epochs_and_seeds_differ() -> None:
    generator = np.random.default_rng(0)
    source, target = generator.integers(1, 30, 500), generator.integers(1, 30, 500)
    plans = [BatchPlan(source, target, tokens_per_batch=200, seed=seed) for seed in (1, 2)]
    seen = {tuple(map(tuple, plan.batches(epoch))) for plan in plans for epoch in range(3)}
    assert len(seen) == 6
    companions = [{frozenset(map(int, rows)) for rows in plans[0].batches(epoch)} for epoch in range(2)]
    assert len(companions[0] & companions[1]) < len(companions[0]) / 10


def test_an_example_beyond_the_budget_stands_alone() -> None:
    plan = BatchPlan(np.array([3, 100, 3, 70_000]), np.array([3, 5, 3, 5]), tokens_per_batch=50, seed=0)
    assert sorted(sorted(map(int, rows)) for rows in plan.batches(0)) == [[0, 2], [1], [3]]


def test_batches_cannot_be_changed_by_who_reads_them() -> None:
    plan = BatchPlan(np.array([1, 2]), np.array([1, 2]), tokens_per_batch=50, seed=0)
    with pytest.raises(ValueError, match="read-only"):
        plan.batch(0, 0)[0] = 5


def test_bad_input_is_refused() -> None:
    none = np.array([], dtype=np.int64)
    with pytest.raises(DataError, match="no examples"):
        BatchPlan(none, none, tokens_per_batch=10, seed=0)
    with pytest.raises(ConfigError, match=r"a batch of 0 tokens.*data\.tokens_per_batch"):
        BatchPlan(np.array([1]), np.array([1]), tokens_per_batch=0, seed=0)


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(-32_000, 32_000)), min_size=1, max_size=60), st.booleans())
def test_examples_are_sorted_by_both_keys_and_then_by_place(pairs: list[tuple[int, int]], is_wide: bool) -> None:
    first = np.array([one for one, _ in pairs]) * (1000 if is_wide else 1)  # beyond 16 bits another way is taken
    second = np.array([other for _, other in pairs], dtype=np.int16)
    keys = list(zip(first.tolist(), second.tolist(), range(len(pairs)), strict=True))
    found = sort_by(first, second)
    assert found.places.tolist() == sorted(range(len(pairs)), key=keys.__getitem__)
    assert found.first.tolist() == sorted(first.tolist())


def test_real_sentences_are_packed_tightly(real_data: Path) -> None:
    source, target = (
        np.array(
            [round(1.2 * len(line.split())) + 1 for line in read_lines(real_data / "multi30k" / f"train.{name}.gz")]
        )
        for name in ("en", "de")
    )
    plan = BatchPlan(source, target, tokens_per_batch=4096, seed=1)
    batches = plan.batches(0)
    for side in (source, target):
        assert side.sum() / sum(len(rows) * side[rows].max() for rows in batches) > 0.94
    fewest = np.maximum(source, target).sum() / 4096
    assert len(batches) < 1.02 * fewest
