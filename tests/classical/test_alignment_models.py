"""The hidden Markov and the diagonal model of alignment: equal to brute force, never less likely, what they learn."""

import math
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.classical import hmm_alignment as kernels
from seqloom.classical.alignment import (
    AlignmentModelConfig,
    Bitext,
    DiagonalConfig,
    HmmAlignment,
    HmmAlignmentConfig,
    Model1Config,
    WordAligner,
    fit_aligner,
    rounds,
    score_alignments,
)
from seqloom.classical.diagonal import fit_diagonal, solve_tension
from seqloom.classical.hmm_alignment import JumpChain, fit_hmms
from seqloom.core.errors import ModelError
from seqloom.data.phrasebook import sample_pairs
from seqloom.reference import hmm_alignment as reference
from seqloom.text.formats.pharaoh import GoldLinks

Texts = tuple[list[list[int]], list[list[int]]]
CONFIGS: list[AlignmentModelConfig] = [
    HmmAlignmentConfig(iterations=3),
    HmmAlignmentConfig(agreement=False, dirichlet_alpha=0.0, jump_limit=2),
    DiagonalConfig(),
    Model1Config(tension=4.0),
]


def planted_text(pairs: int = 200, *, words: int = 60, seed: int = 3) -> tuple[Texts, list[GoldLinks]]:
    """Word x becomes x + 1, a word from 40 on changes its place with the one before it, and a word 0 may be added."""
    generator = np.random.default_rng(seed)
    sources, targets, gold = [], [], []
    for _ in range(pairs):
        source = generator.integers(0, words, size=generator.integers(3, 10)).tolist()
        order = list(range(len(source)))
        for place in range(1, len(source)):
            if source[place] >= 40 > source[place - 1]:
                order[place - 1], order[place] = order[place], order[place - 1]
        target = [source[place] + 1 for place in order]
        if generator.random() < 0.3:
            begin = int(generator.integers(0, len(target) + 1))
            target.insert(begin, 0)
            order.insert(begin, -1)
        links = frozenset((i, j) for j, i in enumerate(order) if i >= 0)
        sources.append(source)
        targets.append(target)
        gold.append(GoldLinks(links, links))
    return (sources, targets), gold


# --- the hidden Markov model -----------------------------------------------------------------------------------------


def explain_plainly(
    emissions: np.ndarray, null: np.ndarray, chain: JumpChain
) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
    """log P, the posteriors of links and of the null word, and the expected jumps, over all alignments one by one."""
    (m, n), limit = emissions.shape, chain.jumps.shape[1] // 2
    total, links, nulls, taken = 0.0, np.zeros((m, n)), np.zeros(m), np.zeros_like(chain.jumps)

    def weight(here: int, there: int) -> tuple[int, int, float]:
        row, width = int(here >= 0), max(-limit, min(limit, there - here)) + limit
        return row, width, float(chain.jumps[row, width])

    for alignment in product(range(-1, n), repeat=m):
        probability, here, jumps = 1.0, -1, []
        for j, there in enumerate(alignment):
            if there < 0:
                probability *= chain.null_rate * null[j]
                continue
            row, width, value = weight(here, there)
            value /= sum(weight(here, each)[2] for each in range(n))
            probability *= (1 - chain.null_rate) * value * emissions[j, there]
            jumps.append((row, width))
            here = there
        total += probability
        for j, there in enumerate(alignment):
            if there < 0:
                nulls[j] += probability
            else:
                links[j, there] += probability
        for jump in jumps:
            taken[jump] += probability
    return math.log(total), links / total, nulls / total, taken / total


@given(n=st.integers(1, 4), m=st.integers(1, 4), limit=st.integers(1, 3), seed=st.integers(0, 10**6))
@settings(max_examples=40)
def test_posteriors_and_jumps_equal_brute_force_over_all_alignments(n: int, m: int, limit: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    emissions, null = generator.random((m, n)) ** 4, generator.random(m)
    chain = JumpChain(0.3, generator.random((2, 2 * limit + 1)) + 0.01)
    links, nulls, taken, offered = (
        np.empty((m, n)),
        np.empty(m),
        np.zeros(chain.jumps.shape),
        np.zeros(chain.jumps.shape),
    )
    log_probability = kernels.forward_backward(emissions, null, chain, links, nulls, taken, offered)
    wanted = explain_plainly(emissions, null, chain)
    for found, right in zip((log_probability, links, nulls, taken), wanted, strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-10, atol=1e-12)
    # Weights that offer what is taken would stay as they are: Σ_d w(d) · offered(d) = all jumps.
    np.testing.assert_allclose((chain.jumps * offered).sum(axis=1), taken.sum(axis=1), rtol=1e-10, atol=1e-12)
    other = explain_plainly(emissions, null, JumpChain(0.31, chain.jumps))
    assert abs(other[0] - log_probability) > 1e-9 or n == m == 1


@pytest.mark.parametrize(("alpha", "agreement"), [(0.0, False), (0.01, False), (0.01, True), (0.0, True)])
def test_counts_jumps_and_likelihoods_equal_the_plain_edition(alpha: float, agreement: bool) -> None:
    (sources, targets), _ = planted_text(15, words=50, seed=8)
    config = HmmAlignmentConfig(
        dirichlet_alpha=alpha, agreement=agreement, model1_iterations=2, iterations=3, jump_limit=3
    )
    settings = config.model_dump(exclude={"kind"})
    models = fit_hmms(Bitext.from_sentences(sources, targets), config)
    for model, plain in zip(models, reference.fit_hmms(sources, targets, **settings), strict=True):
        assert model.log_likelihoods == pytest.approx(plain.history, rel=1e-6)
        for x in {word for line in plain.sources for word in line}:
            columns, probabilities = model.table.row(x)
            for y, probability in zip(columns.tolist(), probabilities.tolist(), strict=True):
                assert probability == pytest.approx((plain.counts[x, y] + alpha) / plain.totals[x], abs=1e-5)
        jumps = [[plain.weights[first, width] for width in range(-3, 4)] for first in (True, False)]
        np.testing.assert_allclose(model.chain.jumps, jumps, atol=1e-5)
    # The comparison notices whether what a link has contributed itself counts.
    if alpha:
        other = reference.fit_hmms(sources, targets, **{**settings, "dirichlet_alpha": 0.9 * alpha})
        assert models[0].log_likelihoods != pytest.approx(other[0].history, rel=1e-6)


sentence = st.lists(st.integers(0, 6), max_size=5)
texts = st.lists(st.tuples(sentence, sentence), min_size=1, max_size=8).map(
    lambda pairs: ([[4, 5], *(pair[0] for pair in pairs)], [[1, 0], *(pair[1] for pair in pairs)])
)


@given(texts=texts, limit=st.integers(1, 4))
@settings(max_examples=30)
def test_without_a_prior_and_without_agreement_the_likelihood_never_falls(texts: Texts, limit: int) -> None:
    config = HmmAlignmentConfig(
        agreement=False, dirichlet_alpha=0.0, jump_limit=limit, model1_iterations=4, iterations=8
    )
    for model in fit_hmms(Bitext.from_sentences(*texts), config):
        assert len(model.log_likelihoods) == 12
        for part in (model.log_likelihoods[:4], model.log_likelihoods[4:]):
            assert all(after >= before - 1e-5 for before, after in pairwise(part))
    # Directions that hardly agree leave words without any links; nothing becomes infinite.
    agreeing = fit_aligner(Bitext.from_sentences(*texts), config.model_copy(update={"agreement": True}))
    assert all(np.isfinite(array).all() for array in agreeing.arrays().values())
    assert all(np.isfinite(agreeing.probabilities(x, y)).all() for x, y in zip(*texts, strict=True))


def test_scores_of_the_training_text_are_its_likelihood() -> None:
    (sources, targets), _ = planted_text(40)
    config = HmmAlignmentConfig(agreement=False, dirichlet_alpha=0.0, iterations=4)
    bitext = Bitext.from_sentences(sources, targets)
    longer = fit_hmms(bitext, config.model_copy(update={"iterations": 5}))
    for direction, model in enumerate(fit_hmms(bitext, config)):
        pairs = zip(sources, targets, strict=True) if direction == 0 else zip(targets, sources, strict=True)
        total = sum(model.score(x, y) for x, y in pairs)
        assert total == pytest.approx(longer[direction].log_likelihoods[-1], rel=1e-5)


def test_a_planted_dictionary_and_its_order_are_found() -> None:
    (sources, targets), gold = planted_text()
    bitext = Bitext.from_sentences(sources, targets)
    aligner = fit_aligner(bitext)
    assert isinstance(aligner.forward, HmmAlignment)
    assert (score_alignments(list(aligner.align(bitext)), gold).error_rate or 0.0) < 0.005
    # Each word's translation is x + 1, and one to the right of it are two to the left.
    table = aligner.forward.table
    best = [int(table.row(word)[0][table.row(word)[1].argmax()]) for word in range(60)]
    assert best == list(range(1, 61))
    jumps = aligner.forward.chain.jumps[1]
    assert [int(place) - 7 for place in np.argsort(-jumps)[:3]] in ([1, 2, -1], [1, -1, 2])
    # With other sentences as partners there is nothing to find.
    shuffled = Bitext.from_sentences(sources, targets[7:] + targets[:7])
    assert (score_alignments(list(fit_aligner(shuffled).align(shuffled)), gold).error_rate or 0.0) > 0.6


def test_words_that_were_never_seen_are_linked_by_their_place() -> None:
    (sources, targets), _ = planted_text()
    aligner = fit_aligner(Bitext.from_sentences(sources, targets))
    links = aligner.links([3, 5, 999, 7], [4, 6, 888, 8])
    assert links == {(0, 0), (1, 1), (2, 2), (3, 3)}
    assert aligner.links([], [3]) == set()
    assert aligner.forward.posteriors([], [4, 4]).tolist() == [[1.0], [1.0]]


def test_very_long_sentences_are_explained_by_model_1() -> None:
    (sources, targets), _ = planted_text()
    forward = fit_aligner(Bitext.from_sentences(sources, targets)).forward
    x, y = list(range(40)) * 13, [word + 1 for word in range(40)] * 13  # 520 words
    posteriors = forward.posteriors(x, y)
    np.testing.assert_allclose(posteriors.sum(axis=1), 1.0, atol=1e-5)
    np.testing.assert_allclose(posteriors[0, 1::40], posteriors[0, 1])  # the same word at any place
    assert posteriors[0, 1:].argmax() % 40 == 0


# --- the diagonal model ----------------------------------------------------------------------------------------------


@given(texts=texts)
@settings(max_examples=30)
def test_the_likelihood_of_the_diagonal_model_never_falls(texts: Texts) -> None:
    config = DiagonalConfig(iterations=8, dirichlet_alpha=0.0)
    found = fit_diagonal(Bitext.from_sentences(*texts), config).log_likelihoods
    assert all(after >= before - 1e-7 for before, after in pairwise(found))


@pytest.mark.parametrize("tension", [1.5, 6.0])
def test_a_planted_tension_is_found(tension: float) -> None:
    generator = np.random.default_rng(5)
    sources, targets = [], []
    for _ in range(600):
        n, m = int(generator.integers(4, 15)), int(generator.integers(4, 15))
        source = generator.permutation(80)[:n]
        away = np.abs((np.arange(n) + 1)[None, :] / n - (np.arange(m) + 1)[:, None] / m)  # [target, source]
        chances = np.exp(-tension * away)
        places = [generator.choice(n, p=row / row.sum()) for row in chances]
        sources.append(source.tolist())
        targets.append((source[places] + 1).tolist())
    model = fit_diagonal(Bitext.from_sentences(sources, targets), DiagonalConfig(iterations=12, null_rate=0.0))
    assert model.config.tension == pytest.approx(tension, rel=0.1)


def test_the_expected_distance_is_the_one_that_was_found() -> None:
    starts, linked = np.array([0, 5, 12]), np.linspace(0.2, 1.0, 10)
    target_starts = np.array([0, 4, 10])

    def distance(tension: float) -> float:
        total = 0.0
        for k, (n, m) in enumerate(((5, 4), (7, 6))):
            for j in range(m):
                away = np.abs((np.arange(n) + 1) / n - (j + 1) / m)
                total += linked[target_starts[k] + j] * float(np.average(away, weights=np.exp(-tension * away)))
        return total

    for wanted in (0.7, 3.0, 11.0):
        assert solve_tension(starts, target_starts, linked, distance(wanted), 4.0) == pytest.approx(wanted, abs=1e-4)


# --- all of them -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.kind)
def test_a_restored_aligner_gives_the_same_bits_on_any_number_of_threads(config: AlignmentModelConfig) -> None:
    (sources, targets), _ = planted_text(1300)  # several ranges of sentences
    bitext, reported = Bitext.from_sentences([[], *sources], [[1], *targets]), list[int]()
    aligner = fit_aligner(bitext, config, progress=reported.append)
    assert reported == list(range(1, rounds(config) + 1))
    other = fit_aligner(bitext, config, threads=3)
    restored = WordAligner.restore(config, {name: array.copy() for name, array in other.arrays().items()})
    for (name, one), (other_name, another) in zip(aligner.arrays().items(), restored.arrays().items(), strict=True):
        assert name == other_name
        assert one.tobytes() == another.tobytes()
    for rule in ("posterior", "grow-diag-final-and"):
        links = list(aligner.align(bitext, symmetrise=rule))  # type: ignore[arg-type]
        assert links == list(restored.align(bitext, symmetrise=rule, threads=2))  # type: ignore[arg-type]
        assert links[0] == []
    x, y = sources[5], targets[5]
    assert np.array_equal(aligner.probabilities(x, y), restored.probabilities(x, y))


@pytest.mark.parametrize("config", CONFIGS[1:3], ids=lambda config: config.kind)
def test_links_by_posterior_follow_both_directions(config: AlignmentModelConfig) -> None:
    (sources, targets), _ = planted_text(60)
    aligner = fit_aligner(Bitext.from_sentences(sources, targets), config)
    for x, y in zip(sources[:10], targets[:10], strict=True):
        both = aligner.forward.posteriors(x, y)[:, 1:].T * aligner.backward.posteriors(y, x)[:, 1:]
        found = aligner.probabilities(x, y)
        np.testing.assert_allclose(found, np.sqrt(both), atol=1e-6)
        for threshold in (0.2, 0.7):
            links = aligner.links(x, y, symmetrise="posterior", threshold=threshold)
            assert links == {(int(i), int(j)) for i, j in np.argwhere(found > threshold)}


def test_arrays_that_do_not_fit_the_settings_are_refused() -> None:
    (sources, targets), _ = planted_text(20)
    config = HmmAlignmentConfig()
    arrays = fit_aligner(Bitext.from_sentences(sources, targets), config).arrays()
    with pytest.raises(ModelError, match=r"jumps must be float64 \(2, 19\), but is float64 \(2, 15\)"):
        WordAligner.restore(config.model_copy(update={"jump_limit": 9}), arrays)
    with pytest.raises(ModelError, match=r"totals must be float64 .* but is missing"):
        WordAligner.restore(config, {name: array for name, array in arrays.items() if "totals" not in name})
    with pytest.raises(ModelError, match="do not fit its 61 borders"):
        WordAligner.restore(config, {**arrays, "forward.columns": arrays["forward.columns"][:-1]})
    with pytest.raises(ModelError, match="incomplete"):
        WordAligner.restore(config, {})


def test_the_default_model_finds_planted_links_better_than_model_1() -> None:
    pairs = sample_pairs("en", "de", count=600, seed=1)
    ids: list[dict[str, int]] = [{}, {}]
    sides = [
        [[known.setdefault(word, len(known)) for word in words] for words in texts]
        for known, texts in zip(
            ids, zip(*((p.source_tokens, p.target_tokens) for p in pairs), strict=True), strict=True
        )
    ]
    bitext = Bitext.from_sentences(*sides)
    gold = [GoldLinks(frozenset(pair.alignment), frozenset(pair.alignment)) for pair in pairs]
    rates = [
        score_alignments(list(fit_aligner(bitext, config).align(bitext)), gold).error_rate or 0.0
        for config in (None, Model1Config())
    ]
    assert rates[0] < 0.1 < rates[1] < 0.13
