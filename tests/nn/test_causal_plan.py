"""A step of a decoder-only Transformer by loops equals a step by its modules, with beams and shared products too."""

from typing import Any

import pytest
import torch

from models.test_gpt import VARIANTS
from seqloom.core.stepping import Source
from seqloom.core.symbols import END
from seqloom.models.gpt import Gpt, GptConfig, GptStepper
from seqloom.nn.embeddings import Symbols
from seqloom.nn.fast import causal_plan
from seqloom.nn.fast.int8 import with_int8

SYMBOLS = Symbols(source=37, target=37, is_shared=True)


def model_of(**settings: Any) -> Gpt:
    sizes = {"width": 32, "heads": 4, "layers": 2, "feed_forward": 48, "longest": 32}
    if "head_size" in settings:
        settings = {**settings, "head_size": 8, "key_heads": 2}
    model = GptConfig.model_validate({**settings, **sizes}, strict=False).build(SYMBOLS, seed=1).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5).add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model


def walk(stepper: GptStepper) -> list[torch.Tensor]:
    """Steps of two texts that branch into five rows and lose one again."""
    generator = torch.Generator().manual_seed(2)
    state = stepper.start(Source(torch.full((2, 1), END), torch.ones(2, dtype=torch.long)))
    state = stepper.read(state, torch.randint(4, 37, (2, 3), generator=generator))
    found = []
    for picked in ([0, 1], [0, 0, 0, 1, 1], [2, 1, 0, 4, 3], [0, 3, 4], [1, 2, 2], [0, 1, 2]):
        state = state.select(torch.tensor(picked))
        step = stepper.step(state, torch.randint(4, 37, (len(picked),), generator=generator))
        state = step.state
        found.append(step.log_probs)
    return found


@pytest.mark.parametrize("name", list(VARIANTS))
@torch.inference_mode()
def test_a_planned_step_equals_the_modules(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(**VARIANTS[name])
    planned = model.stepper()
    assert planned.plan is not None
    found = walk(planned)
    monkeypatch.setattr(GptStepper, "_plan_for", lambda *_: None)
    for left, right in zip(found, walk(model.stepper()), strict=True):
        torch.testing.assert_close(left, right, rtol=0, atol=1e-4)


@torch.inference_mode()
def test_two_threads_and_one_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(causal_plan, "MIN_SHARED_NUMBERS", 0)
    stepper, results = model_of().stepper(), []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            state = stepper.start(Source(torch.full((1, 1), END), torch.ones(1, dtype=torch.long)))
            results.append(stepper.step(state, torch.tensor([5])).log_probs)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*results)


@torch.inference_mode()
def test_eight_bits_are_planned_too(monkeypatch: pytest.MonkeyPatch) -> None:
    rounded = with_int8(model_of(), least_weights=1000)
    assert isinstance(rounded, Gpt)
    found = walk(rounded.stepper())
    monkeypatch.setattr(GptStepper, "_plan_for", lambda *_: None)
    for left, right in zip(found, walk(rounded.stepper()), strict=True):
        # A number on the border of two integers may be rounded to either.
        torch.testing.assert_close(left, right, rtol=0, atol=0.1)
