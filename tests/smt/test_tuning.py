"""Tuning: BLEU as sacrebleu counts it, better weights found, and the best kept."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics.bleu import BLEU

from seqloom.smt.tuning import Candidates, corpus_bleu, tune

lines = st.lists(st.integers(1, 4), min_size=4, max_size=9)


@given(st.lists(st.tuples(lines, lines), min_size=1, max_size=4))
def test_bleu_equals_sacrebleu(pairs: list[tuple[list[int], list[int]]]) -> None:
    outputs, references = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    theirs = BLEU(tokenize="none", smooth_method="none", force=True)
    texts = [[" ".join(map(str, line)) for line in side] for side in (outputs, references)]
    expected = theirs.corpus_score(texts[0], [texts[1]]).score
    assert corpus_bleu(outputs, [np.array(line, np.int32) for line in references]) == pytest.approx(expected)


def sentences(seed: int) -> tuple[list[Candidates], list[np.ndarray]]:
    """Candidates that are nearer to the reference the higher their first feature; the second one is noise."""
    generator = np.random.default_rng(seed)
    pools, references = [], []
    for _ in range(30):
        reference = generator.integers(4, 50, 8)
        outputs, rows = [], []
        for wrong in generator.permutation(8).tolist():
            output = reference.copy()
            output[generator.permutation(8)[:wrong]] = 99
            outputs.append(tuple(output.tolist()))
            rows.append([-wrong + generator.normal() / 3, generator.normal() * 3, 1.0])
        pools.append(Candidates(outputs, np.array(rows)))
        references.append(reference.astype(np.int32))
    return pools, references


def test_tuning_finds_the_feature_that_counts() -> None:
    pools, references = sentences(1)

    def translate(weights: np.ndarray) -> list[Candidates]:
        orders = [np.argsort(-pool.features @ weights) for pool in pools]
        return [
            Candidates([pool.outputs[row] for row in order], pool.features[order])
            for pool, order in zip(pools, orders, strict=True)
        ]

    start, is_free = np.array([0.0, 1.0, 0.5]), np.array([True, True, False])
    found = tune(translate, references, start, is_free=is_free, seed=3, rounds=5)
    again = tune(translate, references, start, is_free=is_free, seed=3, rounds=5)
    assert max(found.scores) > found.scores[0] + 30
    assert found.weights[0] > 5 * abs(found.weights[1])
    assert found.weights[2] == 0.5  # not free
    np.testing.assert_array_equal(found.weights, again.weights)
    best = corpus_bleu([some.outputs[0] for some in translate(found.weights)], references)
    assert best == max(found.scores)


def test_worse_weights_are_not_kept() -> None:
    pools, references = sentences(2)
    called = 0

    def translate(_weights: np.ndarray) -> list[Candidates]:
        """From the second round on, the outputs are as bad as can be, whatever the weights."""
        nonlocal called
        called += 1
        orders = [np.argsort((-1) ** (called > 1) * -pool.features[:, 0]) for pool in pools]
        return [
            Candidates([pool.outputs[row] for row in order], pool.features[order])
            for pool, order in zip(pools, orders, strict=True)
        ]

    start = np.array([1.0, 0.0, 0.0])
    found = tune(translate, references, start, is_free=np.ones(3, np.bool_), seed=1, rounds=9)
    np.testing.assert_array_equal(found.weights, start)
    assert len(found.scores) == 4  # it ends after three rounds without a better one
