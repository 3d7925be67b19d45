"""The language-modelling task: what is summed over what, which state a window begins with, and exact resume."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from seqloom.core.config import resolve
from seqloom.core.errors import ConfigError, TrainingError
from seqloom.core.events import Event
from seqloom.core.symbols import BEGIN, END
from seqloom.data.plain_text import Stream, StreamWriter
from seqloom.models.rnn_lm import RnnLm, RnnLmConfig
from seqloom.nn.embeddings import Symbols
from seqloom.runs.config import RunConfig
from seqloom.tasks import language_modelling
from seqloom.tasks.language_modelling import LanguageModellingTask, TextLoss, text_loss
from seqloom.tasks.settings import LanguageModellingConfig
from seqloom.training.distributed import World
from seqloom.training.settings import TrainingConfig
from seqloom.training.trainer import Trainer
from seqloom.training.weights import weights_of

SYMBOLS = 12
CPU = torch.device("cpu")


@pytest.fixture
def text(tmp_path: Path) -> Stream:
    generator = np.random.default_rng(5)
    sentences = [generator.integers(4, SYMBOLS, size=n).tolist() for n in generator.integers(0, 9, size=60)]
    with StreamWriter(tmp_path / "text", symbols=SYMBOLS) as writer:
        writer.append(sentences, list(range(1, 61)))
    return Stream.open(tmp_path / "text")


def model_of(**settings: object) -> RnnLm:
    small: dict[str, object] = {"width": 8, "dropout_rate": 0.0}
    return RnnLmConfig.model_validate(small | settings).build(Symbols(SYMBOLS, SYMBOLS, is_shared=True), seed=1)


def task_of(text: Stream, **settings: object) -> LanguageModellingTask:
    small: dict[str, object] = {"rows": 4, "length": 7}
    config = LanguageModellingConfig.model_validate(small | settings)
    return LanguageModellingTask(text, text, config=config, seed=3, device=CPU)


def nats(task: LanguageModellingTask, model: nn.Module, index: int) -> float:
    """The summed loss of a batch of the first epoch."""
    return float(task.loss(model, task.batch(0, index)).total.detach())


def plain_loss(model: nn.Module, ids: Tensor) -> Tensor:
    """−log P of every token of one long row, by the formula, all at once."""
    previous = torch.cat([torch.tensor([BEGIN]), ids[:-1]])
    previous[previous == END] = BEGIN
    features, _ = model(previous[None], None)
    return nn.functional.cross_entropy(model.output(features[0]), ids, reduction="none").detach()


@pytest.mark.parametrize("windows", ["sequential", "random"])
def test_counts_and_losses_are_those_of_the_windows(text: Stream, windows: str) -> None:
    task, model = task_of(text, windows=windows), model_of()
    told = 0
    for index in range(task.batches(0)):
        batch = task.batch(0, index)
        loss = task.loss(model, batch)
        assert loss.count == task.count(batch) == batch.labels.numel()
        told += loss.count
    slack = text.tokens % 4 if windows == "sequential" else 2 * 7
    assert text.tokens - slack <= told <= text.tokens


def gradient(task: LanguageModellingTask, model: RnnLm, *, epoch: int = 0) -> Tensor:
    """That of all weights of the recurrent layer, for the first batch of an epoch."""
    model.zero_grad()
    task.loss(model, task.batch(epoch, 0)).total.backward()
    return torch.cat([each.grad.flatten() for each in model.layers.parameters() if each.grad is not None])


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_a_sliding_truncation_cuts_the_gradient_through_time_and_nothing_else(text: Stream, cell: str) -> None:
    model = model_of(cell=cell).double()
    windows = {"windows": "random", "length": 7}
    full = gradient(task_of(text, **windows), model)
    widest = gradient(task_of(text, **windows, truncation={"kind": "sliding", "steps": 7}), model)
    torch.testing.assert_close(widest, full, rtol=0, atol=1e-12)
    # One step: the state before each step counts as a constant.
    task = task_of(text, **windows, truncation={"kind": "sliding", "steps": 1})
    batch, state, total = task.batch(0, 0), model.start(4), torch.zeros((), dtype=torch.float64)
    model.zero_grad()
    for at in range(7):
        features, state = model.step(batch.previous[:, at], tuple(tuple(p.detach() for p in layer) for layer in state))
        total = total + nn.functional.cross_entropy(model.output(features), batch.labels[:, at], reduction="sum")
    total.backward()
    expected = torch.cat([each.grad.flatten() for each in model.layers.parameters() if each.grad is not None])
    torch.testing.assert_close(gradient(task, model), expected, rtol=0, atol=1e-12)


def test_a_random_truncation_belongs_to_its_batch_and_keeps_the_mean(text: Stream) -> None:
    model, windows = model_of().double(), {"windows": "random", "length": 5}
    full = gradient(task_of(text, **windows), model)
    always = gradient(task_of(text, **windows, truncation={"kind": "random", "keep_rate": 1.0}), model)
    torch.testing.assert_close(always, full, rtol=0, atol=1e-12)
    task = task_of(text, **windows, truncation={"kind": "random", "keep_rate": 0.5})
    once = gradient(task, model)
    assert torch.equal(once, gradient(task, model))
    assert not torch.allclose(once, full)
    drawn = []
    for seed in range(300):
        task.seed = seed  # of what is drawn; the windows stay
        drawn.append(gradient(task, model))
    assert float((torch.stack(drawn).mean(0) - full).norm()) < 0.25 * float((once - full).norm())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["kind=sliding"], "needs task.truncation.steps, such as 10"),
        (["kind=random"], "needs task.truncation.keep_rate, such as 0.9"),
        (["kind=random", "keep_rate=0.5", "steps=3"], "steps=3 is for task.truncation.kind=sliding, but it is random"),
        (["kind=sliding", "steps=40"], "steps=40 reaches further than task.length=35"),
    ],
)
def test_truncations_without_a_meaning_are_refused(settings: list[str], message: str) -> None:
    overrides = ["model.kind=rnn_lm", *(f"task.truncation.{each}" for each in settings)]
    with pytest.raises(ConfigError, match=message):
        resolve(RunConfig, overrides=overrides)
    sharded = ["task.truncation.kind=sliding", "task.truncation.steps=3", "training.parallel=sharded"]
    with pytest.raises(ConfigError, match=r"cannot be combined with training.parallel=sharded"):
        resolve(RunConfig, overrides=["model.kind=rnn_lm", *sharded])


def test_a_carried_state_makes_windows_into_one_long_row(text: Stream) -> None:
    task, model = task_of(text, rows=1), model_of().double()
    total = sum(nats(task, model, index) for index in range(task.batches(0)))
    ids = torch.from_numpy(text.ids.astype(np.int64))
    expected = float(plain_loss(model, ids).sum())
    assert total == pytest.approx(expected, rel=1e-12)
    # The control: random windows begin with an empty state.
    task = task_of(text, rows=1, windows="random")
    batches = [task.batch(0, index) for index in range(task.batches(0))]
    empty = sum(nats(task, model, index) for index in range(len(batches)))
    places = np.concatenate([int(batch.starts[0]) + np.arange(7) for batch in batches])
    assert empty != pytest.approx(float(plain_loss(model, ids)[places].sum()), rel=1e-6)


def test_gradients_end_at_the_window(text: Stream) -> None:
    """The carried state keeps its values, but what it was made of is not learnt from any more."""
    task, model = task_of(text, rows=2), model_of()
    task.loss(model, task.batch(0, 0))
    batch = task.batch(0, 1)
    state = task._state_before(batch)
    assert state is not None
    assert not any(part.requires_grad for layer in state for part in layer)
    task.loss(model, batch).total.backward()  # would reach into the freed graph of the first window otherwise


@pytest.mark.parametrize("has_gradient", [False, True])
def test_the_burn_in_gives_no_loss_and_the_same_state(text: Stream, has_gradient: bool) -> None:
    settings = {"windows": "random", "burn_in": 3, "burn_in_gradient": has_gradient}
    task, model = task_of(text, **settings), model_of().double()
    batch = task.batch(0, 0)
    loss = task.loss(model, batch)
    features, _ = model(batch.previous, None)
    losses = nn.functional.cross_entropy(model.output(features).transpose(1, 2), batch.labels, reduction="none")
    assert loss.count == 4 * 4
    assert float(loss.total.detach()) == pytest.approx(float(losses[:, 3:].sum().detach()), rel=1e-12)
    # Gradients of the symbols that only the burn-in has read: some if asked for, else none at all.
    free = model_of(tying="none").double()
    task.loss(free, batch).total.backward()
    early = set(batch.previous[:, :3].flatten().tolist()) - set(batch.previous[:, 3:].flatten().tolist())
    assert early, "the batch has no symbol to look at"
    gradient = free.embedding.weight.grad
    assert gradient is not None
    assert bool(gradient[sorted(early)].abs().sum() > 0) == has_gradient


def test_windows_out_of_order_are_refused(text: Stream) -> None:
    task, model = task_of(text), model_of()
    task.loss(model, task.batch(0, 0))
    with pytest.raises(TrainingError, match=r"batch 2 of epoch 0 .* that before batch 1 of epoch 0"):
        task.loss(model, task.batch(0, 2))


def test_a_row_that_is_not_finite_is_reset(text: Stream) -> None:
    state = ((torch.tensor([[1.0, 2.0], [math.nan, 2.0]]), torch.tensor([[1.0, math.inf], [3.0, 4.0]])),)
    found = language_modelling.carried(state)
    assert found[0][0].tolist() == [[1, 2], [0, 0]]
    assert found[0][1].tolist() == [[0, 0], [3, 4]]


def test_noise_belongs_to_the_batch(text: Stream) -> None:
    model = model_of()
    settings: dict[str, Any] = {"windows": "random", "objective": {"kind": "sampled", "samples": 5}}
    one, other = task_of(text, **settings), task_of(text, **settings)
    first = [nats(one, model, index) for index in (0, 1, 2)]
    again = [nats(other, model, index) for index in (2, 1, 0)]
    assert first == again[::-1]
    assert one.touches_rows
    assert not task_of(text).touches_rows


def test_validation_is_the_loss_of_the_text_in_one_piece(text: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    task, model = task_of(text), model_of(forget_bias=-2.0).double().eval()
    expected = plain_loss(model, torch.from_numpy(text.ids.astype(np.int64)))
    assert task.validate(model)["loss"] == pytest.approx(float(expected.mean()), rel=1e-12)
    assert task.validate(model)["perplexity"] == pytest.approx(math.exp(float(expected.mean())), rel=1e-12)
    assert task_of(text, dev_tokens=50).validate(model)["loss"] == pytest.approx(float(expected[:50].mean()), rel=1e-12)
    # Side by side, with a lead that is long enough for what this model remembers, and with one that is not.
    monkeypatch.setattr(language_modelling, "LEAD", 30)
    monkeypatch.setattr(language_modelling, "DEV_LENGTH", 10)
    found = text_loss(model, text, device=CPU)
    assert found.count == text.tokens
    assert found.total == pytest.approx(float(expected.sum()), rel=1e-6)
    monkeypatch.setattr(language_modelling, "LEAD", 1)
    assert text_loss(model, text, device=CPU).total != pytest.approx(float(expected.sum()), rel=1e-6)


@pytest.mark.parametrize("is_foreign", [True, False])
def test_a_part_that_dominates_the_loss_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_foreign: bool
) -> None:
    """A model that expects one word and the ends of lines, and a text with other words in the fourth of six parts."""
    monkeypatch.setattr(language_modelling, "LEAD", 5)
    monkeypatch.setattr(language_modelling, "DEV_ROWS", 6)
    lines = [[8, 9, 8] if is_foreign and 15 <= at < 20 else [7, 7, 7] for at in range(30)]
    with StreamWriter(tmp_path / "held", symbols=SYMBOLS) as writer:
        writer.append(lines, list(range(1, 31)))
    held = Stream.open(tmp_path / "held")
    model = model_of().eval()
    bias = model.output.bias
    assert isinstance(bias, Tensor)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        bias[[7, END]] = 9.0
    told: list[Event] = []
    config = LanguageModellingConfig(rows=2, length=5)
    task = LanguageModellingTask(held, held, config=config, seed=1, device=CPU, listener=told.append)
    figures = [task.validate(model)["loss"] for _ in range(2)]
    assert figures[0] == figures[1]
    usual = math.log(2 + (SYMBOLS - 2) * math.exp(-9))
    assert len(told) == is_foreign
    if is_foreign:
        said = told[0]["message"]
        assert f"in 6 parts, and part 4 (from line 16) costs {usual + 9 * 3 / 4:.1f} nats per token" in said
        assert f"without that the loss would be {usual:.3f}, not {usual + 9 * 3 / 4 / 6:.3f}" in said


def test_parts_are_odd_beyond_three_nats_above_the_median_and_if_they_are_no_numbers() -> None:
    def odd(*parts: float) -> list[int]:
        return TextLoss(1.0, 1, np.arange(len(parts)), np.array(parts)).odd_parts()

    assert odd(4.0, 4.2, 4.1, 19.0, 4.0) == [3]
    assert odd(4.0, 4.2, 4.1, 7.0, 4.0) == []
    assert odd(4.0, math.nan, 4.1, 4.0, math.inf, 4.2) == [1, 4]
    assert odd(4.0, 19.0, 4.0) == []


def test_a_model_that_knows_nothing_has_the_perplexity_of_its_vocabulary(text: Stream) -> None:
    model = model_of().double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert task_of(text).validate(model)["perplexity"] == pytest.approx(SYMBOLS, rel=1e-13)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"burn_in": 3}, "task.burn_in=3 fills an empty state"),
        ({"burn_in": 7, "windows": "random"}, "task.burn_in=7 leaves nothing to learn"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve(LanguageModellingConfig, defaults={"rows": 4, "length": 7} | settings)


# --- in the trainer ------------------------------------------------------------------------------------------------


def trainer_of(
    run: Path, text: Stream, *, world: World | None = None, steps: int = 9, **settings: object
) -> tuple[Trainer[Any], list[Event]]:
    events: list[Event] = []
    config = TrainingConfig(
        steps=steps,
        learning_rate=0.03,
        warmup=0,
        clip_norm=1.0,
        batches_per_step=world.size if world else 1,
        log_every=1,
        validate_every=4,
        save_every=3,
        keep=20,
    )
    trainer = Trainer(
        model_of(dropout_rate=0.3),
        task_of(text, **settings),
        config,
        run=run,
        seed=7,
        device=CPU,
        listener=events.append,
        world=world,
    )
    return trainer, events


def bits(trainer: Trainer[Any]) -> dict[str, bytes]:
    return {name: tensor.numpy().tobytes() for name, tensor in weights_of(trainer.model).items()}


@pytest.mark.parametrize("objective", ["full", "sampled"])
@pytest.mark.parametrize("stop", [3, 6])
def test_a_resumed_run_reaches_the_same_bits(tmp_path: Path, text: Stream, objective: str, stop: int) -> None:
    settings: dict[str, Any] = {"objective": {"kind": objective}, "length": 12}
    assert task_of(text, **settings).batches(0) < 9, "the run should pass into a second epoch"
    whole, _ = trainer_of(tmp_path / "whole", text, **settings)
    whole.train()
    trainer_of(tmp_path / "cut", text, steps=stop, **settings)[0].train()
    resumed, _ = trainer_of(tmp_path / "cut", text, **settings)
    resumed.train(resume=True)
    assert bits(resumed) == bits(whole)
    # The control: without what was carried, the bits are others, and the run says so.
    trainer_of(tmp_path / "lost", text, steps=stop, **settings)[0].train()
    forgetful, events = trainer_of(tmp_path / "lost", text, **settings)
    found = forgetful.checkpointer.newest()
    assert found is not None
    assert found.memory.keys() == {"place", "0.0", "0.1"}
    forgetful._restore_memory({})
    assert "starts with an empty one" in events[-1]["message"]


def test_only_a_carried_state_adds_a_file_to_checkpoints(tmp_path: Path, text: Stream) -> None:
    for windows in ("sequential", "random"):
        trainer_of(tmp_path / windows, text, steps=1, windows=windows)[0].train()
    usual = ["manifest.json", "model.safetensors", "optim.safetensors", "rng.safetensors", "state.json"]
    names = {run: sorted(path.name for path in (tmp_path / run / "checkpoints/step-1").iterdir()) for run in
             ("sequential", "random")}  # fmt: skip
    assert names["random"] == usual
    assert names["sequential"] == sorted([*usual, "memory.safetensors"])
