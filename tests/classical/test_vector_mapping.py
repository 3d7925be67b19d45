"""Mapping two vector spaces: parity of the parts, planted rotations, and unrelated spaces."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.classical import vector_mapping
from seqloom.classical.vector_mapping import (
    ChanceTest,
    MappingSettings,
    Pairs,
    map_vectors,
    mean_nearest,
    nearest,
    normalised,
    orthogonal_map,
    self_learn,
    student_tail,
    weighted_maps,
)
from seqloom.classical.vectors import WordVectors
from seqloom.core.errors import DataError

QUICK = MappingSettings(trials=0, attempts=1)


def space(words: int, width: int, *, seed: int) -> np.ndarray:
    """Vectors in clusters, as those of words are."""
    generator = np.random.default_rng(seed)
    centres = generator.normal(size=(words // 10, width))
    nearby = centres[generator.integers(len(centres), size=words)] + 0.7 * generator.normal(size=(words, width))
    return (nearby * np.linspace(2, 0.5, width)).astype(np.float32)


def named(vectors: np.ndarray, prefix: str) -> WordVectors:
    words = tuple(f"{prefix}{row}" for row in range(len(vectors)))
    return WordVectors(words, vectors.astype(np.float32), np.arange(len(vectors), 0, -1, dtype=np.int64) + 100)


def planted(*, noise: float, words: int = 300, width: int = 15, seed: int = 1) -> tuple[WordVectors, WordVectors]:
    """A space, and the same one rotated, with noise."""
    generator = np.random.default_rng(seed + 50)
    vectors = space(words, width, seed=seed)
    rotation, _ = np.linalg.qr(generator.normal(size=(width, width)))
    return named(vectors, "a"), named(vectors @ rotation + noise * generator.normal(size=vectors.shape), "b")


def accuracy(source: WordVectors, target: WordVectors, **options: object) -> float:
    found = map_vectors(source, target, settings=QUICK, **options).dictionary()  # type: ignore[arg-type]
    return float(np.mean([pair.source[1:] == pair.target[1:] for pair in found]))


# --- parts ------------------------------------------------------------------------------------------------------------


def test_procrustes_equals_scipy() -> None:
    linalg = pytest.importorskip("scipy.linalg")
    generator = np.random.default_rng(3)
    one, other = generator.normal(size=(2, 40, 7))
    expected, _ = linalg.orthogonal_procrustes(one, other)
    np.testing.assert_allclose(orthogonal_map(one, other), expected, atol=1e-12)


def test_tails_of_student_equal_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    for t in (-2.0, 0.0, 1.5, 12.0):
        for freedom in (1, 4, 7, 30):
            assert student_tail(t, freedom) == pytest.approx(stats.t.sf(t, freedom), rel=1e-6)


@settings(max_examples=15)
@given(st.integers(2, 30), st.integers(2, 30), st.integers(1, 12), st.integers(0, 2**31))
def test_csls_equals_brute_force_in_blocks_of_any_size(queries: int, keys: int, count: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    one, other = (normalised(generator.normal(size=(rows, 5)).astype(np.float32)) for rows in (queries, keys))
    cosines = one @ other.T
    means = [np.sort(side, axis=1)[:, -count:].mean(axis=1) for side in (cosines, cosines.T)]
    scores = 2 * cosines - means[0][:, None] - means[1][None]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vector_mapping, "_MAX_CELLS", 1 + seed % 50)
        found = [mean_nearest(one, other, count), mean_nearest(other, one, count)]
        best = nearest(one, other, query_means=found[0], key_means=found[1])
    np.testing.assert_allclose(found[0], means[0], atol=1e-6)
    np.testing.assert_allclose(found[1], means[1], atol=1e-6)
    np.testing.assert_allclose(best.scores, scores.max(axis=1), atol=1e-5)
    np.testing.assert_allclose(np.take_along_axis(scores, best.rows[:, None], 1)[:, 0], best.scores, atol=1e-5)


def test_a_draw_keeps_the_wanted_share_whatever_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    flat = np.ones((400, 1), np.float32)  # every key is equally good, so the first that is kept is the best
    zeros = np.zeros(400, np.float32)
    drawn = nearest(flat, flat, query_means=zeros, key_means=zeros, keep_rate=0.1, seed=5).drawn
    assert drawn.mean() == pytest.approx(9.0, abs=1.5)  # a geometric distribution
    monkeypatch.setattr(vector_mapping, "_MAX_CELLS", 1000)
    again = nearest(flat, flat, query_means=zeros, key_means=zeros, keep_rate=0.1, seed=5).drawn
    np.testing.assert_array_equal(drawn, again)


def test_weighted_maps_are_canonical_correlations() -> None:
    """On whitened data the weights are the correlations, and the maps undo the whitening of perfect copies."""
    source = normalised(space(200, 6, seed=4))
    rotation, _ = np.linalg.qr(np.random.default_rng(1).normal(size=(6, 6)))
    one, other = weighted_maps(source, (source @ rotation).astype(np.float32))
    np.testing.assert_allclose(source @ one, source @ rotation.astype(np.float32) @ other, atol=1e-4)


# --- the whole --------------------------------------------------------------------------------------------------------


def test_a_planted_rotation_is_found_from_nothing() -> None:
    assert accuracy(*planted(noise=0), start="nothing") == 1
    assert accuracy(*planted(noise=0.2), start="nothing") > 0.9


def test_spaces_of_other_widths_are_mapped_through_the_smaller_one() -> None:
    source, target = planted(noise=0.1)
    wider = np.concatenate([target.vectors, np.zeros((300, 9), np.float32)], axis=1)
    found = map_vectors(source, named(wider, "b"), settings=QUICK)
    assert found.source.width == found.target.width == 15
    best = [pair.target for pair in found.dictionary()]
    several = found.dictionary(translations=3)
    assert [pair.target for pair in several[::3]] == best
    assert all(one.probability >= other.probability for one, other in zip(several[::3], several[1::3], strict=True))
    assert np.mean([pair.source[1:] == pair.target[1:] for pair in several[::3]]) > 0.9


def test_the_result_is_reproducible_and_follows_the_seed() -> None:
    source, target = planted(noise=0.3)
    one, again = (map_vectors(source, target, settings=QUICK) for _ in range(2))
    np.testing.assert_array_equal(one.source.vectors, again.source.vectors)
    assert one.dictionary(translations=3) == again.dictionary(translations=3)


def test_seeds_lead_where_nothing_cannot() -> None:
    source, target = planted(noise=2.0, words=400, width=20, seed=3)
    shuffled = np.random.default_rng(0).permutation(400)  # frequencies say nothing
    target = WordVectors(tuple(target.words[row] for row in shuffled), target.vectors[shuffled], target.counts)
    seeds = [(f"a{row}", f"b{row}") for row in range(60)]
    lost, led = accuracy(source, target, start="nothing"), accuracy(source, target, seeds=seeds)
    assert lost < 0.1
    assert led > 0.3  # 0.15 of it are the seeds
    found = map_vectors(source, target, seeds=[*seeds, ("unseen", "word")], settings=QUICK).dictionary()
    assert [pair[:2] for pair in found if pair.source in dict(seeds)] == seeds
    assert found[-1] == ("unseen", "word", 1.0)


def test_equal_strings_are_a_start() -> None:
    source, target = planted(noise=0.2)
    renamed = WordVectors(
        tuple(word.replace("b", "a") if row % 4 == 0 else word for row, word in enumerate(target.words)),
        target.vectors,
        target.counts,
    )
    found = map_vectors(source, renamed, start="equal", settings=QUICK)
    assert found.start == "equal"
    assert np.mean([pair.source[1:] == pair.target[1:] for pair in found.dictionary()]) > 0.9


def test_unrelated_spaces_are_no_better_than_chance_and_planted_ones_are() -> None:
    brief = MappingSettings(trials=6, patience=5, attempts=2)
    source, target = named(space(120, 12, seed=1), "a"), named(space(120, 12, seed=2), "b")
    chance = map_vectors(source, target, start="nothing", settings=brief).chance
    assert chance is not None
    assert not chance.is_passed, chance
    assert chance.confirmations == 0
    chance = map_vectors(*planted(noise=0.3, words=120, width=12), start="nothing", settings=brief).chance
    assert chance is not None
    assert chance.is_passed, chance
    assert str(chance).startswith("better than chance: mean cosine 0.")


def test_p_values_of_one_more_random_start_are_uniform() -> None:
    generator = np.random.default_rng(8)
    values = [ChanceTest(draws[0], tuple(draws[1:])).p_value for draws in generator.normal(0.5, 0.01, (1000, 9))]
    assert np.mean(np.array(values) < 0.05) == pytest.approx(0.05, abs=0.02)


def test_fixed_pairs_keep_a_map_in_place() -> None:
    source, target = planted(noise=0.3)
    sides = [normalised(side.vectors) for side in (source, target)]
    right = np.arange(300)
    wrong = Pairs(right, np.roll(right, 7))
    tied = Pairs(np.tile(right, 20), np.tile(right, 20))
    free, held = (self_learn(sides[0], sides[1], wrong, settings=QUICK, seed=1, fixed=fixed) for fixed in (None, tied))
    assert held.objective > free.objective


def test_too_little_is_refused() -> None:
    source, target = planted(noise=0.1, words=150)
    few = WordVectors(target.words[:99], target.vectors[:99], target.counts[:99])
    with pytest.raises(DataError, match=r"the second vectors have 99 words to learn from .* but 100 are needed"):
        map_vectors(source, few)
    with pytest.raises(DataError, match="0 frequent words are spelled alike on both sides, but 10 are needed"):
        map_vectors(source, target, start="equal")
    with pytest.raises(DataError, match="1 seeds are frequent words of both"):
        map_vectors(source, target, seeds=[("a1", "b1"), ("a2", "x")])
