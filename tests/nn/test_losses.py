"""The chunked loss equals torch's with all scores at once: value, gradients, every chunk size."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from seqloom.nn import outputs
from seqloom.nn.outputs import Output, consistent_cross_entropy, smoothed_cross_entropy

TOKENS, WIDTH, SYMBOLS = 11, 5, 7


@pytest.fixture(autouse=True)
def in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few scores are left to the plain twin otherwise."""
    monkeypatch.setattr(outputs, "MAX_WHOLE_ELEMENTS", 0)


def plain_twin(
    features: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, *, smoothing: float = 0.0
) -> Tensor:
    return F.cross_entropy(F.linear(features, weight, bias), targets, reduction="sum", label_smoothing=smoothing)


def inputs(*, has_bias: bool, scale: float = 1.0) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    features = (scale * torch.randn(TOKENS, WIDTH, dtype=torch.float64)).requires_grad_()
    weight = torch.randn(SYMBOLS, WIDTH, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(SYMBOLS, dtype=torch.float64, requires_grad=True) if has_bias else None
    return features, weight, bias, torch.randint(SYMBOLS, (TOKENS,))


@pytest.mark.parametrize("rows", [1, 3, TOKENS, 2 * TOKENS])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("has_bias", [False, True])
def test_value_and_gradients_equal_the_plain_twin(
    has_bias: bool, smoothing: float, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "CHUNK_ELEMENTS", rows * SYMBOLS)
    features, weight, bias, targets = inputs(has_bias=has_bias)
    wanted = [features, weight] if bias is None else [features, weight, bias]
    ours = smoothed_cross_entropy(features, weight, bias, targets, smoothing=smoothing)
    plain = plain_twin(features, weight, bias, targets, smoothing=smoothing)
    torch.testing.assert_close(ours, plain, rtol=0, atol=1e-12)
    left, right = (torch.autograd.grad(3.5 * each, wanted) for each in (ours, plain))
    torch.testing.assert_close(left, right, rtol=0, atol=1e-12)


@pytest.mark.parametrize("elements", [TOKENS * SYMBOLS - 1, TOKENS * SYMBOLS])
def test_few_scores_are_computed_at_once(elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "MAX_WHOLE_ELEMENTS", elements)
    features, weight, bias, targets = inputs(has_bias=True)
    ours = smoothed_cross_entropy(features, weight, bias, targets, smoothing=0.1)
    plain = plain_twin(features, weight, bias, targets, smoothing=0.1)
    assert torch.equal(ours, plain) or elements < TOKENS * SYMBOLS
    torch.testing.assert_close(ours, plain, rtol=0, atol=1e-12)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_twin_follows_the_formula(smoothing: float) -> None:
    features, weight, bias, targets = inputs(has_bias=True)
    total = torch.zeros((), dtype=torch.float64)
    for token in range(TOKENS):
        log_p = (weight @ features[token] + bias).log_softmax(0)
        q = torch.full((SYMBOLS,), smoothing / SYMBOLS, dtype=torch.float64)
        q[targets[token]] += 1 - smoothing
        total -= (q * log_p).sum()
    plain = plain_twin(features, weight, bias, targets, smoothing=smoothing)
    torch.testing.assert_close(plain, total, rtol=0, atol=1e-12)


def test_the_comparison_notices_another_smoothing() -> None:
    features, weight, bias, targets = inputs(has_bias=True)
    ours = smoothed_cross_entropy(features, weight, bias, targets, smoothing=0.1)
    plain = plain_twin(features, weight, bias, targets, smoothing=0.11)
    assert (ours - plain).abs() > 1e-4


def test_gradcheck() -> None:
    features, weight, bias, targets = inputs(has_bias=True)
    assert torch.autograd.gradcheck(
        lambda *each: smoothed_cross_entropy(*each, targets, smoothing=0.2), (features, weight, bias)
    )


@pytest.mark.parametrize("elements", [SYMBOLS, outputs.CHUNK_ELEMENTS])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_extreme_scores_do_not_overflow(smoothing: float, elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "CHUNK_ELEMENTS", elements)
    features, weight, bias, targets = inputs(has_bias=True, scale=1e30)
    wanted = [features, weight, bias]
    ours = smoothed_cross_entropy(features, weight, bias, targets, smoothing=smoothing)
    plain = plain_twin(features, weight, bias, targets, smoothing=smoothing)
    assert ours.isfinite()
    torch.testing.assert_close(ours, plain, rtol=1e-12, atol=0)
    left, right = (torch.autograd.grad(each, wanted) for each in (ours, plain))
    assert all(gradient.isfinite().all() for gradient in left)
    torch.testing.assert_close(left, right, rtol=1e-12, atol=1e-12)


def test_a_small_loss_under_large_scores_keeps_its_digits_in_float32() -> None:
    """The scores sum up to 70 000 here and the loss is 0.007: the difference of two such sums would be noise."""
    tokens, symbols = 4096, 64
    weight = 5 * torch.eye(symbols)
    targets = torch.randint(symbols, (tokens,))
    features = 0.7 * weight[targets] + 0.05 * torch.randn(tokens, symbols)
    exact = plain_twin(features.double(), weight.double(), None, targets)
    assert 0.005 < exact < 0.01
    torch.testing.assert_close(
        smoothed_cross_entropy(features, weight, None, targets).double(), exact, rtol=0.05, atol=0
    )
    scores = features @ weight
    naive = scores.logsumexp(1).sum() - scores.gather(1, targets[:, None]).sum()
    assert abs(naive - exact) > 0.1 * exact


def made_gradients(monkeypatch: pytest.MonkeyPatch) -> list[torch.Size]:
    """The shapes of the gradients that the loss prepares from now on."""
    shapes: list[torch.Size] = []

    def counting(make: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        def counted(tensor: Tensor) -> Tensor:
            shapes.append(tensor.shape)
            return make(tensor)

        return counted

    for name in ("empty_like", "zeros_like"):
        monkeypatch.setattr(torch, name, counting(getattr(torch, name)))
    return shapes


def test_no_gradient_is_made_where_none_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    features, weight, bias, targets = inputs(has_bias=True)
    shapes = made_gradients(monkeypatch)
    with torch.no_grad():  # a validation: the weights are parameters, and nobody asks
        value = smoothed_cross_entropy(features, weight, bias, targets, smoothing=0.1)
    fixed = smoothed_cross_entropy(features.detach(), weight.detach(), None, targets)
    assert shapes == []
    assert not value.requires_grad
    assert not fixed.requires_grad
    training = smoothed_cross_entropy(features, weight, bias, targets, smoothing=0.1)
    assert shapes == [each.shape for each in (features, weight, bias) if each is not None]
    torch.testing.assert_close(training.detach(), value)


@pytest.mark.parametrize("fixed", [0, 1, 2])
def test_what_is_held_fixed_gets_no_gradient_and_the_rest_does(fixed: int) -> None:
    features, weight, bias, targets = inputs(has_bias=True)
    each = [features, weight, bias]
    each[fixed] = each[fixed].detach() if each[fixed] is not None else None
    smoothed_cross_entropy(*each, targets).backward()
    assert [tensor.grad is None for tensor in each if tensor is not None] == [place == fixed for place in range(3)]


def test_no_tokens_cost_nothing_and_every_weight_still_gets_its_gradient() -> None:
    weight = torch.randn(SYMBOLS, WIDTH, requires_grad=True)
    bias = torch.randn(SYMBOLS, requires_grad=True)
    features = torch.empty(0, WIDTH, requires_grad=True)
    total = smoothed_cross_entropy(features, weight, bias, torch.empty(0, dtype=torch.long), smoothing=0.1)
    total.backward()
    assert total.item() == 0.0
    assert weight.grad is not None
    assert not weight.grad.any()
    assert bias.grad is not None
    assert not bias.grad.any()


def test_a_second_derivative_is_an_error() -> None:
    features, weight, _, targets = inputs(has_bias=False)
    squared = smoothed_cross_entropy(features, weight, None, targets).square()
    (gradient,) = torch.autograd.grad(squared, features, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


@pytest.mark.parametrize("elements", [SYMBOLS, 3 * SYMBOLS, outputs.CHUNK_ELEMENTS])  # blocks of 1, 4 and 7 symbols
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("has_bias", [False, True])
def test_absent_symbols_are_as_if_the_table_did_not_have_them(
    has_bias: bool, smoothing: float, elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "CHUNK_ELEMENTS", elements)
    features, weight, bias, _ = inputs(has_bias=has_bias)
    absent, present = (0, 4), torch.tensor([1, 2, 3, 5, 6])
    targets = torch.randint(len(present), (TOKENS,))
    wanted = [features, weight] if bias is None else [features, weight, bias]
    ours = smoothed_cross_entropy(features, weight, bias, present[targets], smoothing=smoothing, absent=absent)
    kept = None if bias is None else bias[present]
    plain = plain_twin(features, weight[present], kept, targets, smoothing=smoothing)
    torch.testing.assert_close(ours, plain, rtol=0, atol=1e-12)
    left, right = (torch.autograd.grad(each, wanted) for each in (ours, plain))
    torch.testing.assert_close(left, right, rtol=0, atol=1e-12)


# Two passes that should agree (R-Drop).


def consistent_twin(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    *,
    consistency: float,
    smoothing: float = 0.0,
    absent: tuple[int, ...] = (),
) -> Tensor:
    """The formula of Liang et al. (2021) with the mean of both cross-entropies, all scores at once."""
    present = [symbol for symbol in range(len(weight)) if symbol not in absent]
    places = torch.tensor([present.index(target) for target in targets.tolist()])
    first, second = (F.linear(each, weight, bias)[:, present] for each in features)
    entropies = [F.cross_entropy(each, places, reduction="sum", label_smoothing=smoothing) for each in (first, second)]
    p, q = first.log_softmax(1), second.log_softmax(1)
    divergences = [F.kl_div(*each, reduction="sum", log_target=True) for each in ((q, p), (p, q))]
    return sum(entropies) / 2 + consistency * sum(divergences) / 2


def two_passes(*, has_bias: bool) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    features, weight, bias, targets = inputs(has_bias=has_bias)
    both = torch.stack([features, features + 0.3 * torch.randn_like(features)]).detach().requires_grad_()
    return both, weight, bias, targets


@pytest.mark.parametrize("rows", [1, 3, 2 * TOKENS])
@pytest.mark.parametrize(("smoothing", "consistency"), [(0.0, 1.0), (0.1, 2.5), (0.1, 0.0)])
@pytest.mark.parametrize("absent", [(), (2, 5)])
@pytest.mark.parametrize("has_bias", [False, True])
def test_the_consistent_loss_and_its_gradients_equal_the_plain_formula(
    has_bias: bool,
    absent: tuple[int, ...],
    smoothing: float,
    consistency: float,
    rows: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outputs, "CHUNK_ELEMENTS", 2 * rows * SYMBOLS)
    features, weight, bias, targets = two_passes(has_bias=has_bias)
    targets[torch.isin(targets, torch.tensor(absent))] = 0
    settings = {"smoothing": smoothing, "consistency": consistency, "absent": absent}
    ours = consistent_cross_entropy(features, weight, bias, targets, **settings)
    plain = consistent_twin(features, weight, bias, targets, **settings)
    torch.testing.assert_close(ours, plain, rtol=0, atol=1e-12)
    wanted = [features, weight] if bias is None else [features, weight, bias]
    left, right = (torch.autograd.grad(3.5 * each, wanted) for each in (ours, plain))
    torch.testing.assert_close(left, right, rtol=0, atol=1e-12)
    other = consistent_twin(features, weight, bias, targets, **{**settings, "consistency": consistency + 0.01})
    assert (ours - other).abs() > 1e-4  # the comparison notices another weight


def test_gradcheck_of_the_consistent_loss() -> None:
    features, weight, bias, targets = two_passes(has_bias=True)
    assert torch.autograd.gradcheck(
        lambda *each: consistent_cross_entropy(*each, targets, smoothing=0.2, consistency=1.5), (features, weight, bias)
    )


def test_two_equal_passes_cost_what_one_costs() -> None:
    features, weight, _, targets = inputs(has_bias=True)
    output = Output(torch.nn.Parameter(weight.detach()), has_bias=True)
    once = output.cross_entropy(features, targets, smoothing=0.1)
    twice = output.consistent_cross_entropy(torch.stack([features] * 2), targets, smoothing=0.1, consistency=5.0)
    torch.testing.assert_close(twice, once, rtol=0, atol=1e-12)
    wanted = [features, output.weight, output.bias]
    torch.testing.assert_close(*(torch.autograd.grad(each, wanted) for each in (twice, once)), rtol=0, atol=1e-12)
