"""The adaptive softmax is torch's, with the order of symbols as an extra."""

import pytest
import torch
from torch import nn

from seqloom.core.errors import ConfigError
from seqloom.nn.objectives import FullSoftmax
from seqloom.nn.outputs import AdaptiveOutput

WIDTH, SYMBOLS, CUTOFFS = 16, 40, [8, 20]


def pair(*, has_bias: bool) -> tuple[AdaptiveOutput, nn.AdaptiveLogSoftmaxWithLoss]:
    """Ours and torch's with the same weights, in float64."""
    theirs = nn.AdaptiveLogSoftmaxWithLoss(WIDTH, SYMBOLS, CUTOFFS, div_value=4.0, head_bias=has_bias).double()
    ours = AdaptiveOutput(WIDTH, SYMBOLS, cutoffs=CUTOFFS, has_bias=has_bias).double()
    ours.head.load_state_dict(theirs.head.state_dict())
    for mine, yours in zip(ours.tails, theirs.tail, strict=True):
        mine.narrow.load_state_dict(yours[0].state_dict())
        mine.wide.load_state_dict(yours[1].state_dict())
    return ours, theirs


@pytest.mark.parametrize("has_bias", [False, True])
def test_it_equals_torch(has_bias: bool) -> None:
    ours, theirs = pair(has_bias=has_bias)
    features = torch.randn(50, WIDTH, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(SYMBOLS, (50,))
    torch.testing.assert_close(ours.log_probs(features), theirs.log_prob(features), rtol=0, atol=1e-12)
    mine, yours = ours.cross_entropy(features, labels), -theirs(features, labels).output.sum()
    torch.testing.assert_close(mine, yours, rtol=0, atol=1e-10)
    left = torch.autograd.grad(mine, [features, *ours.parameters()])
    right = torch.autograd.grad(yours, [features, *theirs.parameters()])
    torch.testing.assert_close(left, right, rtol=0, atol=1e-11)


def test_the_comparison_notices_another_divisor() -> None:
    _, theirs = pair(has_bias=False)
    other = AdaptiveOutput(WIDTH, SYMBOLS, cutoffs=CUTOFFS, divisor=2.0)
    assert [tail.wide.weight.shape for tail in other.tails] != [tail[1].weight.shape for tail in theirs.tail]
    ours, theirs = pair(has_bias=False)
    with torch.no_grad():
        ours.tails[1].wide.weight[3] += 0.01
    features = torch.randn(5, WIDTH, dtype=torch.float64)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(ours.log_probs(features), theirs.log_prob(features), rtol=0, atol=1e-12)


def test_probabilities_sum_to_one_and_give_the_loss_in_any_order_of_symbols() -> None:
    order = torch.randperm(SYMBOLS)
    output = AdaptiveOutput(WIDTH, SYMBOLS, cutoffs=CUTOFFS, order=order).double()
    features, labels = torch.randn(2, 30, WIDTH, dtype=torch.float64), torch.randint(SYMBOLS, (2, 30))
    log_probs = output.log_probs(features)
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(2, 30, dtype=torch.float64))
    expected = -log_probs.gather(-1, labels[..., None]).sum()
    loss = FullSoftmax()(features.flatten(0, 1), labels.flatten(), output, generator=torch.Generator())
    torch.testing.assert_close(loss, expected, rtol=0, atol=1e-10)
    plain = AdaptiveOutput(WIDTH, SYMBOLS, cutoffs=CUTOFFS).double()
    plain.load_state_dict({**output.state_dict(), "order": torch.arange(SYMBOLS)})
    torch.testing.assert_close(plain.log_probs(features), log_probs[..., order])


def test_a_frequent_symbol_costs_no_gradient_in_the_tails() -> None:
    output = AdaptiveOutput(WIDTH, SYMBOLS, cutoffs=CUTOFFS)
    output.cross_entropy(torch.randn(3, WIDTH), torch.tensor([0, 7, 3])).backward()
    assert output.head.weight.grad is not None
    assert all(tail.wide.weight.grad is None for tail in output.tails)


@pytest.mark.parametrize("cutoffs", [[], [0], [8, 8], [40], [20, 8]])
def test_bad_cutoffs_are_refused(cutoffs: list[int]) -> None:
    with pytest.raises(ConfigError, match=r"must be rising ranks between 1 and 39, the last of 40 symbols"):
        AdaptiveOutput(WIDTH, SYMBOLS, cutoffs=cutoffs)


def test_a_bad_order_and_smoothing_are_refused() -> None:
    with pytest.raises(ConfigError, match="must name each of them once"):
        AdaptiveOutput(WIDTH, SYMBOLS, cutoffs=CUTOFFS, order=torch.zeros(SYMBOLS, dtype=torch.int64))
    output = AdaptiveOutput(WIDTH, SYMBOLS, cutoffs=CUTOFFS)
    with pytest.raises(ConfigError, match=r"smoothing 0\.1 spreads probability over all symbols"):
        output.cross_entropy(torch.randn(3, WIDTH), torch.tensor([0, 7, 3]), smoothing=0.1)
