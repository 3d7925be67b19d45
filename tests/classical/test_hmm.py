"""Hidden Markov models: brute force, the readable edition, hmmlearn, and the laws of EM."""

from collections.abc import Sequence
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.classical import hmm
from seqloom.classical.emissions import CategoricalEmissions, GaussianEmissions, Prior
from seqloom.classical.hmm import HiddenMarkovModel, fit_categorical, fit_gaussian, improve
from seqloom.core.errors import DataError, UsageError
from seqloom.reference import hmm as plain


def drawn(states: int, symbols: int, seed: int = 0) -> HiddenMarkovModel:
    generator = np.random.default_rng(seed)
    start, *rows = generator.dirichlet(np.ones(states), states + 1)
    return HiddenMarkovModel(start, np.array(rows), CategoricalEmissions(generator.dirichlet(np.ones(symbols), states)))


def drawn_gaussian(states: int, features: int, covariance: str, seed: int = 0) -> HiddenMarkovModel:
    generator = np.random.default_rng(seed)
    start, *rows = generator.dirichlet(np.ones(states), states + 1)
    roots = generator.normal(size=(states, features, features))
    matrices = roots @ roots.transpose(0, 2, 1) + 0.5 * np.eye(features)
    kept = matrices if covariance == "full" else np.diagonal(matrices, axis1=1, axis2=2).copy()
    return HiddenMarkovModel(
        start, np.array(rows), GaussianEmissions(generator.normal(size=(states, features)) * 2, kept)
    )


def to_plain(model: HiddenMarkovModel) -> plain.Model:
    assert isinstance(model.emissions, CategoricalEmissions)
    return plain.Model(model.start.tolist(), model.transitions.tolist(), model.emissions.probabilities.tolist())


def log_joint(model: HiddenMarkovModel, x: np.ndarray, path: Sequence[int]) -> float:
    """log P(x, z) of a path z."""
    with np.errstate(divide="ignore"):
        start, transitions = np.log(model.start), np.log(model.transitions)
    weights = model.emissions.log_weights(x)
    emitted = weights.rows[weights.numbers[np.arange(len(path))], list(path)].sum()
    return float(start[path[0]] + sum(transitions[i, j] for i, j in pairwise(path)) + emitted)


def log_joints(model: HiddenMarkovModel, x: np.ndarray) -> dict[tuple[int, ...], float]:
    """log P(x, z) of every path z."""
    return {path: log_joint(model, x, path) for path in product(range(model.states), repeat=len(x))}


MODELS = {
    "categorical": (drawn(3, 4, seed=1), np.array([0, 3, 1, 1, 2])),
    "diagonal": (drawn_gaussian(3, 2, "diagonal"), np.random.default_rng(2).normal(size=(5, 2))),
    "full": (drawn_gaussian(3, 2, "full"), np.random.default_rng(3).normal(size=(5, 2))),
}


@pytest.mark.parametrize("kind", MODELS)
def test_everything_equals_brute_force(kind: str) -> None:
    model, x = MODELS[kind]
    joints = log_joints(model, x)
    values = np.array(list(joints.values()))
    total = np.logaddexp.reduce(values)
    assert model.log_likelihoods([x])[0] == pytest.approx(total, abs=1e-12)
    best = max(joints, key=lambda path: joints[path])
    found = model.viterbi(x)
    assert tuple(found.states) == best
    assert found.log_prob == pytest.approx(joints[best], abs=1e-12)
    posteriors = np.zeros((len(x), model.states))
    for path, value in joints.items():
        posteriors[np.arange(len(x)), path] += np.exp(value - total)
    np.testing.assert_allclose(model.posteriors(x), posteriors, rtol=0, atol=1e-12)
    assert (model.decode_posterior(x) == posteriors.argmax(1)).all()
    prefixes = [model.log_likelihoods([x[:end]])[0] for end in range(len(x) + 1)]
    np.testing.assert_allclose(model.step_log_probs([x]), np.diff(prefixes), rtol=0, atol=1e-12)


def test_densities_are_those_of_the_formula() -> None:
    model = drawn_gaussian(2, 3, "full", seed=4)
    assert isinstance(model.emissions, GaussianEmissions)
    x = np.random.default_rng(5).normal(size=(4, 3))
    got = model.emissions.log_weights(x).rows[:, :2]
    for state in range(2):
        distance = x - model.emissions.means[state]
        matrix = model.emissions.covariances[state]
        squares = np.einsum("td,de,te->t", distance, np.linalg.inv(matrix), distance)
        constant = 3 * np.log(2 * np.pi) + np.log(np.linalg.det(matrix))
        np.testing.assert_allclose(got[:, state], -0.5 * (constant + squares), rtol=0, atol=1e-10)


def test_em_equals_the_readable_edition() -> None:
    model = drawn(3, 5, seed=6)
    generator = np.random.default_rng(7)
    data = [generator.integers(5, size=length) for length in (1, 9, 4, 17)]
    fast = improve(model, data, iterations=3, tolerance=None)
    slow = to_plain(model)
    history = []
    for _ in range(3):
        history.append(sum(plain.log_likelihood(slow, x.tolist()) for x in data))
        slow = plain.em_step(slow, [x.tolist() for x in data])
    np.testing.assert_allclose(fast.history, history, rtol=0, atol=1e-10)
    pairs: list[tuple[Any, Any]] = [(fast.model.start, slow.start), (fast.model.transitions, slow.transitions)]
    pairs.append((fast.model.emissions.probabilities, slow.emissions))  # type: ignore[union-attr]
    for ours, theirs in pairs:
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)
    x = data[-1]
    path, log_prob = plain.viterbi(slow, x.tolist())
    found = fast.model.viterbi(x)
    assert found.states.tolist() == path
    assert found.log_prob == pytest.approx(log_prob, abs=1e-10)


def test_long_sequences_are_computed_in_blocks_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    for model, x in (
        (drawn(5, 6), np.random.default_rng(1).integers(6, size=103)),
        (drawn_gaussian(5, 2, "diagonal"), np.random.default_rng(1).normal(size=(103, 2))),
    ):
        whole, path, likelihood = model.expected([x, x[:7]]), model.viterbi(x), model.log_likelihoods([x])
        with monkeypatch.context() as changed:
            changed.setattr(hmm, "BLOCK_NUMBERS", 80)  # ten steps of eight numbers
            blocks = model.expected([x, x[:7]])
            assert (model.viterbi(x).states == path.states).all()
            assert model.log_likelihoods([x]) == pytest.approx(likelihood, abs=1e-10)
        assert blocks.log_likelihood == pytest.approx(whole.log_likelihood, abs=1e-10)
        for one, other in zip(
            (blocks.starts, blocks.transitions, *blocks.emissions),
            (whole.starts, whole.transitions, *whole.emissions),
            strict=True,
        ):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-10)


def left_to_right() -> HiddenMarkovModel:
    """States that never return: what one of them loses, no other brings back."""
    return HiddenMarkovModel(
        np.array([0.5, 0.5, 0.0]),
        np.array([[1.0, 0.0, 0.0], [0.0, 0.9, 0.1], [0.0, 0.0, 1.0]]),
        CategoricalEmissions(np.array([[0.999, 0.0009, 0.0001], [1e-4, 0.9998, 1e-4], [1e-5, 1e-5, 0.99998]])),
    )


def test_numbers_that_scaling_would_lose_are_computed_in_log_space() -> None:
    model = left_to_right()
    x = np.array([0] * 120 + [1] * 200 + [2] * 300)  # first the one path, then the other by far
    slow = to_plain(model)
    assert model.log_likelihoods([x])[0] == pytest.approx(plain.log_likelihood(slow, x.tolist()), abs=1e-9)
    np.testing.assert_allclose(model.posteriors(x), plain.posteriors(slow, x.tolist()), rtol=0, atol=1e-9)
    assert model.posteriors(x)[-1].argmax() == 2
    ours, theirs = improve(model, [x, x[:9]], iterations=1).model, plain.em_step(slow, [x.tolist(), x[:9].tolist()])
    np.testing.assert_allclose(ours.transitions, theirs.transitions, rtol=0, atol=1e-9)
    total = plain.log_likelihood(slow, x.tolist())
    assert model.step_log_probs([x]).sum() == pytest.approx(total, abs=1e-9)
    # The control: with the check turned off, scaling alone is far from it.
    chain = model._chain()._replace(is_dense=1)
    weights, result, borders = model.emissions.weights(x), np.empty(1), np.array([0, len(x)])
    hmm.score_sequences(chain, weights.rows, weights.numbers, borders, model._buffers(borders), result, np.empty(0))
    assert abs(result[0] - total) > 10


@pytest.mark.parametrize("lowest", [0.0, 1e-200, 1e-30])
def test_distant_gaussians_are_right_however_unlikely_transitions_are(lowest: float) -> None:
    transitions = np.array([[1 - lowest, lowest], [lowest, 1 - lowest]])
    model = HiddenMarkovModel(
        np.array([0.5, 0.5]), transitions, GaussianEmissions(np.array([[0.0], [100.0]]), np.ones((2, 1)))
    )
    x = np.array([[0.0], [0.0], [100.0], [100.0], [100.0]])
    joints = log_joints(model, x)
    assert model.log_likelihoods([x])[0] == pytest.approx(np.logaddexp.reduce(list(joints.values())), rel=1e-12)
    best = max(joints, key=lambda path: joints[path])
    assert tuple(model.posteriors(x).argmax(1)) == tuple(model.viterbi(x).states) == best


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    states=st.integers(1, 6),
    lengths=st.lists(st.integers(0, 30), min_size=1, max_size=5).filter(lambda found: sum(found) > 8),
    kind=st.sampled_from(["categorical", "diagonal", "full"]),
    alpha=st.sampled_from([0.0, 0.3]),
)
def test_em_never_lowers_the_likelihood(seed: int, states: int, lengths: list[int], kind: str, alpha: float) -> None:
    generator = np.random.default_rng(seed)
    if kind == "categorical":
        data = [generator.integers(4, size=length) for length in lengths]
        prior = Prior(starts=alpha, transitions=alpha, emissions=alpha)
        fit = fit_categorical(data, states, symbols=4, iterations=12, tolerance=None, seed=seed, prior=prior)
    else:
        # Whole numbers: many observations are equal, so that variances shrink to their floor.
        vectors = [generator.integers(-2, 3, size=(length, 2)) * 1.0 for length in lengths]
        if not (np.concatenate(vectors).var(0) > 0).all():
            return
        covariance: Any = kind
        fit = fit_gaussian(vectors, states, covariance=covariance, iterations=12, tolerance=None, seed=seed)
    gains = np.diff(fit.history)
    assert (gains >= -1e-8 * np.maximum(1, np.abs(fit.history[1:]))).all(), fit.history
    assert np.abs(fit.model.transitions.sum(1) - 1).max() < 1e-12


def test_a_wrong_m_step_lowers_the_likelihood() -> None:
    """The control of the law above: transitions that are transposed by mistake."""
    model = drawn(3, 4, seed=3)
    data = [np.random.default_rng(4).integers(4, size=50)]
    fit = improve(model, data, iterations=20, tolerance=None)
    found = fit.model.expected(data)
    swapped = found._replace(transitions=found.transitions.T.copy() + np.diag([9.0, 0, 0]))
    assert fit.model.estimated(swapped, Prior()).log_likelihoods(data).sum() < found.log_likelihood - 1e-3


def test_it_recovers_a_model_from_what_the_model_drew() -> None:
    truth = HiddenMarkovModel(
        np.array([0.6, 0.4]),
        np.array([[0.9, 0.1], [0.2, 0.8]]),
        GaussianEmissions(np.array([[0.0, 0.0], [3.0, -2.0]]), np.array([[1.0, 0.5], [0.3, 2.0]])),
    )
    generator = np.random.default_rng(1)
    samples = [truth.sample(200, generator) for _ in range(10)]
    fit = fit_gaussian([x for x, _ in samples], 2, starts=2, seed=3)
    assert isinstance(fit.model.emissions, GaussianEmissions)
    order = np.argsort(fit.model.emissions.means[:, 0])
    np.testing.assert_allclose(fit.model.emissions.means[order], truth.emissions.means, atol=0.15)  # type: ignore[union-attr]
    np.testing.assert_allclose(fit.model.transitions[np.ix_(order, order)], truth.transitions, atol=0.05)
    right = [np.mean(order.argsort()[fit.model.viterbi(x).states] == z) for x, z in samples]
    assert np.mean(right) > 0.95
    assert fit.has_converged
    again = fit_gaussian([x for x, _ in samples], 2, starts=2, seed=3)
    assert (again.model.transitions == fit.model.transitions).all()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: drawn(2, 3).viterbi(np.array([0, 3])), DataError, "symbols from 0 to 3, but the model has 0 to 2"),
        (lambda: drawn(2, 3).viterbi(np.array([0.5])), DataError, "type float64 .* whole numbers in one row"),
        (lambda: fit_categorical([np.array([1])], 2), DataError, "1 observations are too few for 2 states"),
        (lambda: fit_gaussian([np.array([[1.0], [np.nan], [3.0]])], 2), DataError, "not finite at step 1"),
        (lambda: fit_gaussian([np.array([[1.0, 5.0], [2.0, 5.0]])], 2), DataError, "feature 1 is 5 in all"),
        (lambda: drawn_gaussian(2, 3, "full").viterbi(np.zeros((4, 2))), DataError, r"of shape \[steps, 3\]"),
        (
            lambda: HiddenMarkovModel(np.array([0.5, 0.6]), np.eye(2), CategoricalEmissions(np.eye(2))),
            UsageError,
            "row 0 of the start probabilities is not a distribution: it sums to 1.1",
        ),
        (
            lambda: HiddenMarkovModel(np.array([1.0]), np.eye(2), CategoricalEmissions(np.eye(2))),
            UsageError,
            "do not fit together",
        ),
        (lambda: GaussianEmissions(np.zeros((1, 1)), np.zeros((1, 1))), UsageError, "lowest variance is 0"),
        (
            lambda: improve(
                HiddenMarkovModel(np.array([1.0, 0.0]), np.eye(2), CategoricalEmissions(np.eye(2))), [np.array([1])]
            ),
            DataError,
            "sequence 0 is impossible under this model",
        ),
    ],
)
def test_errors_name_the_value_and_the_remedy(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


# --- hmmlearn ---------------------------------------------------------------------------------------------------------


def hmmlearn_twin(model: HiddenMarkovModel, implementation: str) -> Any:
    """hmmlearn with the same parameters and no priors, for exactly three steps of EM."""
    theirs = pytest.importorskip("hmmlearn.hmm", reason="hmmlearn is in the dependency group parity")
    options = {"n_iter": 3, "tol": -np.inf, "init_params": "", "implementation": implementation}
    if isinstance(model.emissions, CategoricalEmissions):
        twin = theirs.CategoricalHMM(model.states, n_features=model.emissions.probabilities.shape[1], **options)
        twin.emissionprob_ = model.emissions.probabilities
    else:
        kind = "full" if model.emissions.is_full else "diag"
        twin = theirs.GaussianHMM(
            model.states, covariance_type=kind, covars_prior=0.0, covars_weight=0.0, min_covar=0.0, **options
        )
        twin.n_features = model.emissions.means.shape[1]
        twin.means_, twin.covars_ = model.emissions.means, model.emissions.covariances
    twin.startprob_, twin.transmat_ = model.start, model.transitions
    return twin


@pytest.mark.parity
@pytest.mark.parametrize("implementation", ["log", "scaling"])
@pytest.mark.parametrize("kind", ["categorical", "diagonal", "full"])
def test_everything_equals_hmmlearn(kind: str, implementation: str) -> None:
    model = drawn(5, 7, seed=8) if kind == "categorical" else drawn_gaussian(5, 3, kind, seed=8)
    lengths = [40, 1, 300, 17]
    generator = np.random.default_rng(9)
    data = [model.sample(length, generator)[0] for length in lengths]
    joined = np.concatenate(data)
    joined = joined[:, None] if kind == "categorical" else joined
    twin = hmmlearn_twin(model, implementation)
    assert model.log_likelihoods(data).sum() == pytest.approx(twin.score(joined, lengths), rel=1e-12, abs=1e-8)
    np.testing.assert_allclose(
        np.concatenate([model.posteriors(x) for x in data]), twin.predict_proba(joined, lengths), rtol=0, atol=1e-8
    )
    log_prob, states = twin.decode(joined, lengths)
    paths = model.viterbi_all(data)
    assert sum(path.log_prob for path in paths) == pytest.approx(log_prob, abs=1e-8)
    for x, path, theirs in zip(data, paths, np.split(states, np.cumsum(lengths)[:-1]), strict=True):
        # Symbols can have several best paths: the same transitions in another order.
        assert log_joint(model, x, theirs.tolist()) == pytest.approx(path.log_prob, abs=1e-8)
        assert kind == "categorical" or (path.states == theirs).all()

    fit = improve(model, data, iterations=3, tolerance=None)
    twin.fit(joined, lengths)
    np.testing.assert_allclose(fit.history, list(twin.monitor_.history)[-3:], rtol=0, atol=1e-8)
    pairs = [(fit.model.start, twin.startprob_), (fit.model.transitions, twin.transmat_)]
    if isinstance(fit.model.emissions, CategoricalEmissions):
        pairs.append((fit.model.emissions.probabilities, twin.emissionprob_))
    else:
        covariances = twin.covars_ if kind == "full" else np.diagonal(twin.covars_, axis1=1, axis2=2)
        pairs += [(fit.model.emissions.means, twin.means_), (fit.model.emissions.covariances, covariances)]
    for ours, theirs in pairs:
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-8)
    # The control: one step more is another model.
    more = improve(fit.model, data, iterations=1, tolerance=None).model
    assert np.abs(more.transitions - twin.transmat_).max() > 1e-6
