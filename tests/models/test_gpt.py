"""The decoder-only Transformer: laws of stepping, reading ahead, windows of texts, and that it learns."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from laws.stepping import check_stepper_laws
from seqloom.core.config import resolve
from seqloom.core.errors import ConfigError, ModelError
from seqloom.core.reading import TextIds, overlapping_windows
from seqloom.core.stepping import Source
from seqloom.core.symbols import BEGIN, END, PAD, UNKNOWN
from seqloom.models.gpt import Gpt, GptConfig
from seqloom.models.rnn_lm import RnnLmConfig
from seqloom.nn.embeddings import Symbols
from seqloom.nn.fast.int8 import with_int8
from seqloom.runs.config import RunConfig

SYMBOLS = Symbols(source=11, target=11, is_shared=True)
LLAMA: dict[str, Any] = {
    "positions": "rotary",
    "norm_kind": "rms",
    "gated": True,
    "activation": "silu",
    "key_heads": 2,
    "head_size": 4,
    "attention_bias": False,
    "output_bias": False,
    "feed_forward_bias": False,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "gpt2": {},
    "llama": LLAMA,
    "qwen3": {**LLAMA, "head_norm": "before", "tying": "none", "head_size": 6, "key_heads": 1},
    "hunyuan": {**LLAMA, "head_norm": "after", "rotary": {"kind": "ntk", "factor": 5.0}},
    "mistral": {**LLAMA, "attention_window": 2},
    "several ends": {"extra_ends": (5, 9), "absent": (PAD, BEGIN, UNKNOWN), "frame": {"target_before": (END,)}},
}


def model_of(**settings: Any) -> Gpt:
    """A model in float64 with weights large enough that a mistake shows."""
    small = {"width": 12, "heads": 4, "layers": 2, "feed_forward": 20, "longest": 16}
    model = GptConfig.model_validate(small | settings, strict=False).build(SYMBOLS, seed=1).double()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5).add_(0.1 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return model


def log_probs(model: Gpt, previous: Tensor) -> Tensor:
    with torch.no_grad():
        features, left = model.eval()(previous, None)
        assert left == ()
        return model.log_probs(features)


@pytest.mark.parametrize("name", ["gpt2", "mistral"])
def test_stepping_laws(name: str) -> None:
    model = model_of(**VARIANTS[name], layers=1)
    check_stepper_laws(
        model.stepper,
        SYMBOLS.source,
        target_symbols=SYMBOLS.target,
        teacher_forced=lambda _, prefix: log_probs(model, prefix),
        tolerance=1e-11,
    )


@pytest.mark.parametrize("name", list(VARIANTS))
def test_reading_ahead_is_a_step_for_each_symbol(name: str) -> None:
    """From the beginning, on the way, and with rows that share their beginning."""
    stepper = model_of(**VARIANTS[name]).eval().stepper()
    generator = torch.Generator().manual_seed(1)
    prompt, more = (torch.randint(4, 11, (rows, 4), generator=generator) for rows in (2, 3))
    picked, last = torch.tensor([1, 0, 1]), torch.tensor([5, 6, 7])
    source = Source(torch.full((2, 1), END), torch.ones(2, dtype=torch.long))
    ahead = stepper.read(stepper.start(source), prompt).select(picked)
    ahead = stepper.read(stepper.step(ahead, last).state, more)
    state = stepper.start(source)
    for column in prompt.unbind(1):
        state = stepper.step(state, column).state
    state = stepper.step(state.select(picked), last).state
    for column in more.unbind(1):
        state = stepper.step(state, column).state
    found, expected = (stepper.step(each, last).log_probs for each in (ahead, state))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-11)


def test_all_ends_of_a_text_are_one_and_absent_symbols_are_never_written() -> None:
    settings = VARIANTS["several ends"]
    model, plain = model_of(**settings), model_of(**{**settings, "extra_ends": ()})
    previous = torch.tensor([[BEGIN, 4, 6, 7]])
    found, separate = log_probs(model, previous).exp(), log_probs(plain, previous).exp()
    torch.testing.assert_close(found[..., END], separate[..., [END, 5, 9]].sum(-1))
    assert not found[..., [5, 9, PAD, BEGIN, UNKNOWN]].any()
    assert torch.equal(log_probs(plain, previous), log_probs(plain, torch.tensor([[END, 4, 6, 7]])))


def test_a_position_attends_to_its_window_and_no_further() -> None:
    model = model_of(**VARIANTS["mistral"], layers=1)
    previous = torch.tensor([[4, 5, 6, 7, 8, 9]])
    changed = previous.clone()
    changed[0, 1] = 10
    apart = (log_probs(model, previous) - log_probs(model, changed)).abs().amax(-1)[0]
    assert bool((apart[1:3] > 1e-4).all())
    assert not apart[[0, 3, 4, 5]].any()


def test_a_text_longer_than_the_table_is_read_in_windows_and_never_cut() -> None:
    model = model_of().eval()
    ids = torch.randint(3, 11, (41,), generator=torch.Generator().manual_seed(2))
    ids[[11, 40]] = END
    text = TextIds(ids.numpy(), np.array([12, 29]))
    done: list[int] = []
    found = model.reader().log_probs(text, context="text", progress=done.append)
    before = torch.cat([torch.tensor([END]), ids[:-1]])
    previous = torch.where(before == END, BEGIN, before)
    for window in overlapping_windows(41, 16):
        assert window.first - window.begin in (0, 8) or window.end == 41
        part = slice(window.begin, window.end)
        expected = log_probs(model, previous[None, part])[0].gather(1, ids[part, None])[:, 0]
        new = slice(window.first, window.end)
        np.testing.assert_allclose(found[new], expected[window.first - window.begin :].numpy(), atol=1e-12)
    assert sum(done) == 41
    lines = model.reader().log_probs(text, context="line", progress=done.append)
    np.testing.assert_allclose(lines[:12], found[:12], atol=1e-12)
    assert abs(lines[12] - found[12]) > 1e-4
    with pytest.raises(ModelError, match="a text of 17 tokens does not fit this model, whose table ends at 16"):
        model(torch.ones(1, 17, dtype=torch.long), None)


def test_tied_tables_are_one_and_int8_is_close() -> None:
    settings = {"width": 256, "heads": 4, "layers": 2, "longest": 16}
    model = GptConfig.model_validate(settings).build(SYMBOLS, seed=1).eval()
    assert model.get_parameter("output.weight") is model.embedding.weight
    previous = torch.randint(3, 11, (2, 9))
    found, exact = log_probs(with_int8(model), previous), log_probs(model, previous)  # type: ignore[arg-type]
    assert not torch.equal(found, exact)
    torch.testing.assert_close(found, exact, rtol=0, atol=0.2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": {"kind": "gpt", "heads": 3}}, "width 128 cannot be shared by 3 heads"),
        ({"model": {"kind": "gpt", "key_heads": 3}}, "4 heads cannot share 3 heads of keys"),
        ({"model": {"kind": "gpt", "positions": "rotary", "head_size": 5}}, "turns pairs of numbers, and heads have 5"),
        ({"model": {"kind": "gpt"}, "task": {"windows": "sequential"}}, "set task.windows=random"),
        ({"model": {"kind": "gpt", "longest": 20}, "task": {"length": 30}}, "is longer than model.longest=20"),
        ({"model": {"kind": "gpt"}, "task": {"burn_in": 5}}, "set task.burn_in_gradient=true"),
        ({"model": {"kind": "gpt"}, "task": {"truncation": {"kind": "random", "keep_rate": 0.5}}}, "recurrent models"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace(".", r"\.")):
        resolve(RunConfig, defaults=settings)


def test_windows_are_as_long_as_the_model_and_in_random_order() -> None:
    config = resolve(RunConfig, defaults={"model": {"kind": "gpt", "longest": 77}})
    assert (config.task.windows, config.task.length) == ("random", 77)  # type: ignore[union-attr]
    config = resolve(RunConfig, defaults={"model": {"kind": "rnn_lm"}})
    assert isinstance(config.model, RnnLmConfig)
    assert config.task.windows == "sequential"  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["llama", pytest.param("gpt2", marks=pytest.mark.slow)])
def test_it_learns_to_repeat_what_it_has_read(name: str) -> None:
    """A random word, twice: the second time each symbol is sure."""
    settings = {"width": 32, "heads": 4, "layers": 2, "longest": 16, "dropout_rate": 0.0, **VARIANTS[name]}
    model = GptConfig.model_validate(settings).build(SYMBOLS, seed=3)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(3)

    def batch(rows: int) -> tuple[Tensor, Tensor]:
        word = torch.randint(4, 11, (rows, 6), generator=generator)
        text = torch.cat([word, word], 1)
        return torch.cat([torch.full((rows, 1), BEGIN), text[:, :-1]], 1), text

    for _ in range(120):
        previous, labels = batch(24)
        features, _ = model(previous, None)
        loss = model.output.cross_entropy(features[:, 6:].flatten(0, 1), labels[:, 6:].flatten()) / (24 * 6)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    previous, labels = batch(100)
    right = log_probs(model, previous)[:, 6:].argmax(-1) == labels[:, 6:]
    assert float(right.double().mean()) > 0.95
