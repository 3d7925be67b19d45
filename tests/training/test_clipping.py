"""Clipping: never longer than the limit, never turned."""

import torch
from hypothesis import given
from hypothesis import strategies as some
from torch import Tensor, nn

from seqloom.training.optimisers import clip_by_norm, clip_by_value, global_norm, gradients


def make(seed: int, scale: float) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [scale * torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((3, 4), (5,), ())]


def flat(tensors: list[Tensor]) -> Tensor:
    return torch.cat([tensor.flatten() for tensor in tensors])


@given(some.integers(0, 1000), some.floats(1e-6, 1e6), some.floats(1e-3, 1e3))
def test_clipping_by_norm_shortens_to_the_limit_and_keeps_the_direction(seed: int, scale: float, limit: float) -> None:
    before = make(seed, scale)
    after = [tensor.clone() for tensor in before]
    norm = global_norm(after).item()
    clip_by_norm(after, limit, norm=norm)
    torch.testing.assert_close(norm, flat(before).norm().item(), rtol=1e-12, atol=0)
    assert flat(after).norm().item() <= limit * (1 + 1e-12)
    assert torch.cosine_similarity(flat(before), flat(after), dim=0).item() > 1 - 1e-12
    if norm <= limit:
        assert torch.equal(flat(before), flat(after))


def test_a_zero_gradient_stays_zero() -> None:
    zeros = [torch.zeros(3)]
    clip_by_norm(zeros, 1.0, norm=global_norm(zeros).item())
    assert torch.equal(zeros[0], torch.zeros(3))


def test_no_gradients_have_norm_zero() -> None:
    assert global_norm([]).item() == 0


def test_clipping_by_norm_equals_torch() -> None:
    # torch divides by ‖g‖ + 1e-6, which for a gradient of length 50 is a part in 5·10⁷.
    parameters = [nn.Parameter(torch.zeros_like(tensor)) for tensor in make(1, 10.0)]
    for parameter, gradient in zip(parameters, make(1, 10.0), strict=True):
        parameter.grad = gradient
    theirs = nn.utils.clip_grad_norm_(parameters, 2.0)
    ours = make(1, 10.0)
    clip_by_norm(ours, 2.0, norm=global_norm(ours).item())
    torch.testing.assert_close(global_norm(make(1, 10.0)), theirs)
    torch.testing.assert_close(flat(ours), flat(gradients(parameters)), rtol=1e-7, atol=0)


@given(some.integers(0, 1000), some.floats(1e-3, 1e3))
def test_clipping_by_value_cuts_each_element_by_itself(seed: int, limit: float) -> None:
    before, after = make(seed, 2.0), make(seed, 2.0)
    clip_by_value(after, limit)
    torch.testing.assert_close(flat(after), flat(before).clamp(-limit, limit), rtol=0, atol=0)
