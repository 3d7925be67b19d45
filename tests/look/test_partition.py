"""log Z, gradients from samples and the variance of importance sampling: by formula and by drawing."""

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from seqloom.look.partition import (
    draw_gradient_cosines,
    draw_importance_variance,
    draw_log_partition,
    gradient_cosines,
    importance_variance,
    log_partition,
    sample_numbers,
)
from seqloom.nn.objectives import AliasSampler, FullSoftmax, Nce, SampledSoftmax, noise_distribution
from seqloom.nn.outputs import Output

SYMBOLS, WIDTH, TOKENS = 50, 6, 40
COUNTS = 1000 // np.arange(1, SYMBOLS + 1)


def case(*, has_log_z: bool = False) -> tuple[Output, Tensor, Tensor]:
    output = Output(nn.Parameter(torch.randn(SYMBOLS, WIDTH)), has_bias=True, has_log_z=has_log_z)
    labels = AliasSampler(noise_distribution(COUNTS, power=1.0)).draw((TOKENS,), generator=torch.Generator())
    return output, torch.randn(TOKENS, WIDTH), labels


def test_log_z_follows_the_formula_in_parts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    output, features, _ = case()
    with torch.no_grad():
        expected = output(features).double().exp().sum(1).log().numpy()
    whole = log_partition(output, features)
    monkeypatch.setattr("seqloom.look.partition.SCORES", 7 * SYMBOLS)
    np.testing.assert_allclose(whole, expected, rtol=1e-6)
    np.testing.assert_allclose(log_partition(output, features), expected, rtol=1e-6)


def test_a_learned_log_z_is_taken_off() -> None:
    output, features, _ = case(has_log_z=True)
    before = log_partition(output, features).mean()
    assert output.log_z is not None
    output.log_z.data.fill_(2.5)
    assert log_partition(output, features).mean() == pytest.approx(before - 2.5)


def test_gradients_turn_towards_the_full_softmax_with_more_samples() -> None:
    output, features, labels = case()
    noise = AliasSampler(noise_distribution(COUNTS, power=1.0))
    found = gradient_cosines(
        output,
        features,
        labels,
        objectives={
            "sampled": lambda samples: SampledSoftmax(noise, samples),
            "nce": lambda samples: Nce(noise, samples),
            "full": lambda _: FullSoftmax(),
        },
        samples=(5, 50, 5000),
        draws=6,
        seed=3,
    )
    assert found.single["full"] == pytest.approx((1.0, 1.0, 1.0))
    for curves in (found.single, found.averaged):
        assert list(curves["sampled"]) == sorted(curves["sampled"])
        assert curves["sampled"][-1] > 0.999
    # The mean of several draws has less noise than one of them.
    assert found.averaged["sampled"][0] > found.single["sampled"][0]
    assert found.single["sampled"][0] < 0.95


def test_the_variance_of_importance_sampling_is_that_of_drawn_estimates() -> None:
    output, features, _ = case()
    features = 0.3 * features[:1]
    noise = AliasSampler(noise_distribution(COUNTS, power=1.0))
    found = importance_variance(output, features, proposals={"unigram": noise})
    with torch.no_grad():
        scores = output(features).double()[0]
    drawn = noise.draw((20_000, 8), generator=torch.Generator().manual_seed(2))
    estimates = (scores - noise.log_probs(torch.arange(SYMBOLS))).exp()[drawn].mean(1) / scores.exp().sum()
    assert estimates.mean().item() == pytest.approx(1, abs=0.02)
    expected = float(found["unigram"][0])
    assert estimates.var().item() == pytest.approx(expected / 8, rel=0.1)


def test_a_sure_model_needs_as_many_samples_as_its_word_is_rare() -> None:
    # All of p on one word of probability q: Σ p²/q − 1 = 1/q − 1, and a proposal equal to p has no variance at all.
    output = Output(nn.Parameter(torch.zeros(SYMBOLS, 1)), has_bias=True)
    assert output.bias is not None
    output.bias.data[7] = 60.0
    uniform = AliasSampler(noise_distribution(COUNTS, power=0.0))
    found = importance_variance(output, torch.zeros(1, 1), proposals={"uniform": uniform})
    assert found["uniform"][0] == pytest.approx(SYMBOLS - 1, rel=1e-6)
    output.bias.data.zero_()
    flat = importance_variance(output, torch.zeros(1, 1), proposals={"uniform": uniform})
    assert flat["uniform"][0] == pytest.approx(0, abs=1e-6)


def test_all_of_it_can_be_drawn() -> None:
    output, features, labels = case()
    noise = AliasSampler(noise_distribution(COUNTS, power=1.0))
    cosines = gradient_cosines(
        output, features, labels, objectives={"a": lambda n: Nce(noise, n)}, samples=(2, 4), draws=1, seed=1
    )
    variance = importance_variance(output, features, proposals={"unigram": noise})
    figures = [
        draw_log_partition(log_partition(output, features)),
        draw_gradient_cosines(cosines),
        draw_importance_variance(variance, sample_numbers(SYMBOLS), symbols=SYMBOLS),
    ]
    for figure in figures:
        assert isinstance(figure, Figure)
        assert figure.axes[0].get_xlabel()
    assert sample_numbers(SYMBOLS)[0] == 1
    assert sample_numbers(SYMBOLS)[-1] == SYMBOLS
