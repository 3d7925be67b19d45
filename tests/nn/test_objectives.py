"""Objectives of the last layer: what they tend to, what their gradients are, and what is refused."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from seqloom.core.errors import ConfigError, ModelError
from seqloom.nn.objectives import (
    AliasSampler,
    FullSoftmax,
    Nce,
    NegativeSampling,
    Objective,
    SampledSoftmax,
    noise_distribution,
)
from seqloom.nn.outputs import AdaptiveOutput, Output

TOKENS, WIDTH, SYMBOLS = 6, 4, 30


def noise(power: float = 1.0) -> AliasSampler:
    return AliasSampler(noise_distribution(100 // np.arange(1, SYMBOLS + 1), power=power))


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Case:
    """Random features, labels and a table, in float64."""

    def __init__(self, *, has_bias: bool = True, has_log_z: bool = False) -> None:
        self.features = torch.randn(TOKENS, WIDTH, dtype=torch.float64, requires_grad=True)
        self.labels = torch.tensor([0, 1, 2, 7, 7, 29])
        weight = nn.Parameter(torch.randn(SYMBOLS, WIDTH, dtype=torch.float64))
        self.output = Output(weight, has_bias=has_bias, has_log_z=has_log_z)
        with torch.no_grad():
            for extra in (self.output.bias, self.output.log_z):
                if extra is not None:
                    extra.normal_()

    def loss(self, objective: Objective, seed: int = 0) -> Tensor:
        return objective(self.features, self.labels, self.output, generator=rng(seed))

    def gradients(self, loss: Tensor) -> Tensor:
        inputs = [self.features, *self.output.parameters()]
        found = torch.autograd.grad(loss, inputs, allow_unused=True, retain_graph=True)
        return torch.cat(
            [(torch.zeros_like(i) if g is None else g).flatten() for i, g in zip(inputs, found, strict=True)]
        )


# --- the full softmax ------------------------------------------------------------------------------------------------


def test_the_gradient_is_the_mean_under_the_data_minus_the_mean_under_the_model() -> None:
    # ∇(−L) = E_data[∇s] − E_model[∇s] with ∇_W s_w = x in row w, ∇_b s_w = 1 at w, ∇_x s_w = W_w.
    case = Case()
    with torch.no_grad():
        model = case.output.log_probs(case.features).exp()
        data = torch.zeros_like(model).scatter_(1, case.labels[:, None], 1.0)
        difference = data - model
        expected = torch.cat(
            [
                (difference @ case.output.weight).flatten(),
                (difference.t() @ case.features).flatten(),
                difference.sum(0),
            ]
        )
    found = -case.gradients(case.loss(FullSoftmax()))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    with pytest.raises(AssertionError):  # the mean under the data in both places is another thing
        torch.testing.assert_close(found, torch.zeros_like(expected), rtol=0, atol=1e-12)


# --- sampled softmax -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("correction", ["sampled", "all"])
@pytest.mark.parametrize("has_bias", [False, True])
def test_the_sampled_softmax_tends_to_the_full_one(has_bias: bool, correction: str) -> None:
    case = Case(has_bias=has_bias)
    full = case.loss(FullSoftmax())
    gradient = case.gradients(full)
    distances = []
    for samples in (10, 100, 1000, 20_000):
        losses = [case.loss(SampledSoftmax(noise(), samples, correction=correction), seed) for seed in range(8)]  # type: ignore[arg-type]
        distances.append(np.mean([(case.gradients(loss) - gradient).norm().item() for loss in losses]))
    assert distances == sorted(distances, reverse=True)
    # By now every symbol was drawn, and its expected count is 1 up to (1 − q)^20000.
    torch.testing.assert_close(losses[0], full, rtol=0, atol=1e-9)
    torch.testing.assert_close(case.gradients(losses[0]), gradient, rtol=0, atol=1e-9)
    assert distances[0] > 0.1


def test_the_sampled_softmax_follows_its_formula() -> None:
    case, objective = Case(), SampledSoftmax(noise(), 12)
    drawn = set(noise().draw((12,), generator=rng(3)).tolist())
    scores, q = case.output(case.features), noise().log_probs(torch.arange(SYMBOLS)).exp()
    expected = torch.zeros((), dtype=torch.float64)
    for token, label in enumerate(case.labels.tolist()):
        others = [scores[token, w].exp() / (1 - (1 - q[w]) ** 12) for w in drawn - {label}]
        expected = expected - (scores[token, label].exp() / (scores[token, label].exp() + sum(others))).log()
    torch.testing.assert_close(case.loss(objective, seed=3), expected, rtol=0, atol=1e-12)
    assert drawn & set(case.labels.tolist()), "the case should hold an accidental hit"


def test_the_estimate_of_z_is_unbiased_when_hits_are_masked_and_too_large_when_they_are_kept() -> None:
    # Scores are 0 but for the label, whose share of Z is exp(3) / (exp(3) + 29).
    output = Output(nn.Parameter(torch.zeros(SYMBOLS, 1)), has_bias=True)
    assert output.bias is not None
    output.bias.data[0] = 3.0
    label, z = torch.tensor([0]), output.bias.exp().sum().item()

    def mean_and_error(objective: SampledSoftmax) -> tuple[float, float]:
        found = []
        for seed in range(250):
            loss = objective(torch.zeros(1, 1), label, output, generator=rng(seed))
            found.append(np.exp(loss.item() + 3) / z)
        return float(np.mean(found)), float(np.std(found) / len(found) ** 0.5)

    sampler = noise()
    mean, error = mean_and_error(SampledSoftmax(sampler, 8))
    assert abs(mean - 1) < 4 * error
    share = np.exp(3) / z  # the label counts twice whenever it is drawn, hence once more in the mean
    mean, error = mean_and_error(SampledSoftmax(sampler, 8, masks_hits=False))
    assert abs(mean - 1 - share) < 4 * error
    assert share > 8 * error, "the difference should be seen"


# --- noise-contrastive estimation ------------------------------------------------------------------------------------


@pytest.mark.parametrize("sharing", ["batch", "token"])
@pytest.mark.parametrize("log_z", ["fixed", "learned"])
def test_nce_follows_its_formula(log_z: str, sharing: str) -> None:
    case, k = Case(has_log_z=True), 9
    shape = (k,) if sharing == "batch" else (TOKENS, k)
    drawn = noise(0.5).draw(shape, generator=rng(3)).expand(TOKENS, k)
    assert case.output.log_z is not None
    log_u = case.output(case.features) - (case.output.log_z if log_z == "learned" else 0)
    odds = log_u - torch.log(k * noise(0.5).log_probs(torch.arange(SYMBOLS)).exp())
    expected = torch.zeros((), dtype=torch.float64)
    for token, label in enumerate(case.labels.tolist()):
        expected = expected - torch.sigmoid(odds[token, label]).log()
        for word in drawn[token].tolist():
            expected = expected - torch.sigmoid(-odds[token, word]).log()
    found = case.loss(Nce(noise(0.5), k, log_z=log_z, sharing=sharing), seed=3)  # type: ignore[arg-type]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-11)
    torch.testing.assert_close(case.gradients(found), case.gradients(expected), rtol=0, atol=1e-11)
    other = case.loss(Nce(noise(1.0), k, log_z=log_z, sharing=sharing), seed=3)  # type: ignore[arg-type]
    assert abs(other - expected) > 1e-3, "another noise should be noticed"


def nce_mean_gradient(log_u: Tensor, data: Tensor, q: Tensor, k: int) -> Tensor:
    """∇ of E over labels and noise of the NCE loss with respect to the scores, by autograd."""
    log_u = log_u.detach().requires_grad_()
    odds = log_u - torch.log(k * q)
    loss = -(data * nn.functional.logsigmoid(odds)).sum() - k * (q * nn.functional.logsigmoid(-odds)).sum()
    return -torch.autograd.grad(loss, log_u)[0]


def toy(seed: int, words: int = 20) -> tuple[Tensor, Tensor, Tensor]:
    """A model, data and noise over some words: softmaxes of normal scores, those of the noise the most uneven."""
    scores = torch.randn(3, words, generator=rng(seed), dtype=torch.float64)
    model, data, q = (scores * torch.tensor([[0.5], [0.5], [0.6]])).softmax(1)
    return model, data, q


@pytest.mark.parametrize("k", [1, 10, 100])
def test_the_weight_of_nce_is_inside_the_sum(k: int) -> None:
    model, data, q = toy(1)
    found = nce_mean_gradient(model.log(), data, q, k)
    inside = k * q / (k * q + model) * (data - model)
    torch.testing.assert_close(found, inside, rtol=0, atol=1e-9)
    # Pulled outside, one weight for all words, whichever: no such factor gives the gradient.
    outside = (found / (data - model)).mean() * (data - model)
    assert (found - outside).norm() > 1e-3 * found.norm()


def test_the_gradient_of_nce_turns_towards_that_of_the_full_softmax() -> None:
    cosines = {}
    for k in (1, 10, 100):
        pairs = [(nce_mean_gradient(m.log(), d, q, k), d - m) for m, d, q in map(toy, range(50))]
        cosines[k] = np.mean([torch.cosine_similarity(one, other, dim=0).item() for one, other in pairs])
    assert cosines[1] == pytest.approx(0.92, abs=0.01)
    assert cosines[10] == pytest.approx(0.98, abs=0.015)
    assert cosines[100] == pytest.approx(0.999, abs=0.001)


@pytest.mark.parametrize("sharing", ["batch", "token"])
def test_the_drawn_gradient_of_nce_has_the_mean_it_should(sharing: str) -> None:
    case, k, draws = Case(has_bias=False), 5, 400
    with torch.no_grad():
        u, q = case.output(case.features).exp(), noise().log_probs(torch.arange(SYMBOLS)).exp()
        data = torch.zeros_like(u).scatter_(1, case.labels[:, None], 1.0)
        expected = -((k * q / (k * q + u)) * (data - u)).t() @ case.features
    objective = Nce(noise(), k, sharing=sharing)  # type: ignore[arg-type]
    drawn = torch.stack(
        [torch.autograd.grad(case.loss(objective, seed), case.output.weight)[0] for seed in range(draws)]
    )
    error = drawn.std(0) / draws**0.5
    assert bool(((drawn.mean(0) - expected).abs() < 4.5 * error + 1e-12).all())


def test_a_learned_log_z_needs_an_output_that_has_one() -> None:
    with pytest.raises(ConfigError, match="this output has no log_z to learn"):
        Case().loss(Nce(noise(), 5, log_z="learned"))


def test_nce_learns_probabilities_that_sum_to_one_by_themselves() -> None:
    # One context: the best scores are log P(w) and Z = 1 although nothing normalises them.
    torch.manual_seed(1)
    data = torch.tensor([0.5, 0.3, 0.15, 0.05])
    output = Output(nn.Parameter(torch.zeros(4, 1)), has_bias=True)
    sampler = AliasSampler(noise_distribution(np.ones(4), power=0.0))
    optimiser = torch.optim.Adam(output.parameters(), lr=0.05)
    labels = torch.multinomial(data, 1000, replacement=True, generator=rng(4))
    for step in range(200):
        optimiser.zero_grad()
        Nce(sampler, 50)(torch.zeros(1000, 1), labels, output, generator=rng(step)).div(1000).backward()
        optimiser.step()
    assert output.bias is not None
    shares = torch.bincount(labels, minlength=4) / 1000
    torch.testing.assert_close(output.bias.exp(), shares, rtol=0, atol=0.03)
    assert abs(output.bias.logsumexp(0)) < 0.05


# --- negative sampling and all of them -------------------------------------------------------------------------------


@pytest.mark.parametrize("sharing", ["batch", "token"])
def test_negative_sampling_follows_its_formula(sharing: str) -> None:
    case, k = Case(), 4
    shape = (k,) if sharing == "batch" else (TOKENS, k)
    drawn = noise().draw(shape, generator=rng(3)).expand(TOKENS, k)
    scores = case.output(case.features)
    wanted = torch.sigmoid(scores.gather(1, case.labels[:, None])).log().sum()
    expected = -wanted - torch.sigmoid(-scores.gather(1, drawn)).log().sum()
    found = case.loss(NegativeSampling(noise(), k, sharing=sharing), seed=3)  # type: ignore[arg-type]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-11)
    torch.testing.assert_close(case.gradients(found), case.gradients(expected), rtol=0, atol=1e-11)


SAMPLED: list[Callable[[AliasSampler, int], Objective]] = [SampledSoftmax, Nce, NegativeSampling]


@pytest.mark.parametrize("make", SAMPLED)
@pytest.mark.parametrize("has_bias", [False, True])
def test_row_gradients_are_the_dense_ones_and_hold_touched_rows_only(
    make: Callable[[AliasSampler, int], Objective], has_bias: bool
) -> None:
    case, objective = Case(has_bias=has_bias), make(noise(), 3)
    parameters = list(case.output.parameters())
    dense = torch.autograd.grad(case.loss(objective), parameters)
    case.output.row_gradients = True
    sparse = torch.autograd.grad(case.loss(objective), parameters)
    for one, other in zip(dense, sparse, strict=True):
        assert other.is_sparse
        torch.testing.assert_close(other.to_dense(), one, rtol=0, atol=1e-13)
        rows = set(other.coalesce().indices()[0].tolist())
        assert set(case.labels.tolist()) <= rows
        assert len(rows) < SYMBOLS
    assert objective.touches_rows
    assert not FullSoftmax().touches_rows


@pytest.mark.parametrize("make", SAMPLED)
def test_the_same_generator_gives_the_same_loss(make: Callable[[AliasSampler, int], Objective]) -> None:
    case, objective = Case(), make(noise(), 3)
    assert torch.equal(case.loss(objective, seed=2), case.loss(objective, seed=2))
    assert not torch.equal(case.loss(objective, seed=2), case.loss(objective, seed=3))


@pytest.mark.parametrize("make", [SampledSoftmax, Nce])
def test_a_fresh_output_begins_as_the_noise_and_a_trained_one_stays(
    make: Callable[[AliasSampler, int], Objective],
) -> None:
    fresh = Output(nn.Parameter(torch.zeros(SYMBOLS, WIDTH)), has_bias=True)
    make(noise(), 3).prepare(fresh)
    q = noise().log_probs(torch.arange(SYMBOLS)).exp().float()
    torch.testing.assert_close(fresh.log_probs(torch.randn(1, WIDTH))[0].exp(), q)
    assert abs(fresh(torch.randn(1, WIDTH)).logsumexp(1).item()) < 1e-5
    trained = Case().output
    assert trained.bias is not None
    before = trained.bias.detach().clone()
    make(noise(), 3).prepare(trained)
    assert torch.equal(trained.bias, before)
    make(noise(), 3).prepare(Case(has_bias=False).output)  # nothing to begin with, nothing wrong


def test_other_objectives_leave_a_fresh_output_alone() -> None:
    fresh = Output(nn.Parameter(torch.zeros(SYMBOLS, WIDTH)), has_bias=True)
    for objective in (FullSoftmax(), NegativeSampling(noise(), 3)):
        objective.prepare(fresh)
    assert fresh.bias is not None
    assert not fresh.bias.any()


@pytest.mark.parametrize("make", SAMPLED)
def test_no_tokens_cost_nothing(make: Callable[[AliasSampler, int], Objective]) -> None:
    case = Case()
    features, labels = case.features[:0], case.labels[:0]
    assert make(noise(), 3)(features, labels, case.output, generator=rng()) == 0


@pytest.mark.parametrize("make", SAMPLED)
def test_what_cannot_be_drawn_is_refused(make: Callable[[AliasSampler, int], Objective]) -> None:
    case = Case()
    with pytest.raises(ConfigError, match="samples=0: at least one word must be drawn"):
        make(noise(), 0)
    small = AliasSampler(noise_distribution(np.ones(5), power=1.0))
    with pytest.raises(ModelError, match="counted over 5 symbols, but the model has 30"):
        case.loss(make(small, 3))
    adaptive = AdaptiveOutput(WIDTH, SYMBOLS, cutoffs=[10]).double()
    with pytest.raises(ConfigError, match="an adaptive softmax has no table of scores to draw rows from"):
        make(noise(), 3)(case.features, case.labels, adaptive, generator=rng())
