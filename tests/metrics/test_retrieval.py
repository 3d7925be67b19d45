"""Retrieval: nearest vectors and mined pairs equal brute force, and repeated lines count wherever they are."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.metrics.retrieval import mine_pairs, nearest, score_parallel, unit_vectors
from seqloom.metrics.scoring import Bootstrap

SEEDS = st.integers(0, 10_000)


def drawn(rows: int, seed: int, width: int = 5) -> np.ndarray:
    """Vectors that are rather similar, as those of sentences are."""
    return np.random.default_rng(seed).normal(0.7, 1.0, size=(rows, width)).astype(np.float32)


def cosine(x: np.ndarray, y: np.ndarray) -> float:
    return float(np.dot(x, y) / (np.linalg.norm(x) * np.linalg.norm(y)))


@given(st.integers(1, 12), st.integers(1, 40), st.integers(1, 6), st.integers(1, 60), SEEDS)
def test_nearest_equals_brute_force_in_blocks_of_any_size(
    queries: int, texts: int, best: int, block: int, seed: int
) -> None:
    ours, theirs = drawn(queries, seed), drawn(texts, seed + 1)
    found = nearest(ours, theirs, best=best, scores_at_once=block)
    assert found.places.shape == (queries, min(best, texts))
    for row, query in enumerate(ours):
        ranked = sorted(range(texts), key=lambda at: -cosine(query, theirs[at]))[:best]
        assert found.places[row].tolist() == ranked
        np.testing.assert_allclose(found.cosines[row], [cosine(query, theirs[at]) for at in ranked], atol=1e-5)


def brute_force(sources: np.ndarray, targets: np.ndarray, k: int, threshold: float) -> list[tuple[int, int, float]]:
    """Margin mining by the formulas of Artetxe and Schwenk (2019), cosine by cosine."""
    cosines = [[cosine(x, y) for y in targets] for x in sources]
    columns = [list(column) for column in zip(*cosines, strict=True)]

    def usual(row: list[float]) -> float:
        top = sorted(row, reverse=True)[:k]
        return sum(top) / len(top)

    def margin(i: int, j: int) -> float:
        mean = usual(cosines[i]) / 2 + usual(columns[j]) / 2
        return cosines[i][j] / mean if mean > 0 else 0.0

    def best(row: list[float]) -> list[int]:
        return sorted(range(len(row)), key=lambda at: -row[at])[:k]

    candidates = [max((margin(i, j), i, j) for j in best(cosines[i])) for i in range(len(sources))]
    candidates += [max((margin(i, j), i, j) for i in best(columns[j])) for j in range(len(targets))]
    pairs: list[tuple[int, int, float]] = []
    for value, i, j in sorted(candidates, reverse=True):
        if value >= threshold and all(i != one and j != other for one, other, _ in pairs):
            pairs.append((i, j, value))
    return pairs


@given(st.integers(1, 15), st.integers(1, 15), st.integers(1, 4), st.sampled_from([0.0, 1.0, 1.1]), SEEDS)
def test_mined_pairs_equal_brute_force(sources: int, targets: int, k: int, threshold: float, seed: int) -> None:
    ours, theirs = drawn(sources, seed), drawn(targets, seed + 1)
    expected = brute_force(ours, theirs, k, threshold)
    found = mine_pairs(ours, theirs, neighbours=k, threshold=threshold)
    pairs = list(zip(found.sources.tolist(), found.targets.tolist(), strict=True))
    # Margins that are equal up to rounding may come in either order, and be on either side of the threshold.
    gaps = np.diff([value for _, _, value in expected])
    if len(expected) and (np.abs(gaps).min(initial=1.0) < 1e-5 or abs(expected[-1][2] - threshold) < 1e-5):
        return
    assert pairs == [(i, j) for i, j, _ in expected]
    np.testing.assert_allclose(found.margins, [value for _, _, value in expected], atol=1e-4)


def test_the_comparison_fails_for_another_margin() -> None:
    """Other neighbours, or cosines in place of margins, give other pairs or scores."""
    ours, theirs = drawn(15, 5), drawn(15, 6)
    found = mine_pairs(ours, theirs, neighbours=2, threshold=1.0)
    margins = found.margins.tolist()
    assert margins == sorted(margins, reverse=True)
    assert [value for *_, value in brute_force(ours, theirs, 2, 1.0)] == pytest.approx(margins, abs=1e-4)
    assert [value for *_, value in brute_force(ours, theirs, 3, 1.0)] != pytest.approx(margins, abs=1e-2)
    places = nearest(ours, theirs, best=1).places[:, 0]
    assert any(places[one] != other for one, other in zip(found.sources, found.targets, strict=True))


def test_vectors_without_direction_match_nothing() -> None:
    zeros = np.zeros((2, 3), np.float32)
    assert np.array_equal(unit_vectors(zeros), zeros)
    found = mine_pairs(zeros, drawn(3, 1, width=3), threshold=0.5)
    assert len(found.margins) == 0


def test_a_repeated_line_is_found_wherever_it_is() -> None:
    vectors = np.eye(4, dtype=np.float32)
    sources, targets = ["a", "b", "c", "d"], ["A", "B", "B", "D"]
    there, back = score_parallel(vectors, vectors[[0, 2, 1, 3]], texts=(sources, targets), languages=("de", None))
    assert (there.name, there.value, there.signature) == ("found first, de→target", 100.0, "%|candidates:4")
    assert (back.name, back.value) == ("found first, target→de", 50.0)  # b and c are different lines
    drawn_again = score_parallel(vectors, vectors, texts=(sources, targets), bootstrap=Bootstrap(1, resamples=40))
    assert drawn_again[0].interval == (100.0, 100.0)
    assert not math.isnan(back.value)


def test_more_lines_are_wanted_than_there_are() -> None:
    found = nearest(drawn(2, 1), drawn(3, 2), best=10)
    assert found.places.shape == (2, 3)
    assert nearest(drawn(2, 1), drawn(3, 2)[:0], best=2).places.shape == (2, 0)
    assert len(mine_pairs(drawn(2, 1), drawn(3, 2)[:0]).margins) == pytest.approx(0)
