"""The loop: what is divided, skipped, reported, validated and kept."""

import contextlib
import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from seqloom.core.errors import DataError, Stopped, TrainingError, UsageError
from seqloom.core.events import Event
from seqloom.training.checkpoint import checkpoint_folder, checkpoint_steps, pointed_step, read_checkpoint
from seqloom.training.optimisers import trained
from seqloom.training.task import Loss
from seqloom.training.trainer import in_words, layer_norms
from training.toy import ToyBatch, ToyModel, ToyTask, make_trainer, same_bits, weights

TIMING_KEYS = frozenset({"seconds", "tokens_per_second", "eta"})
"""Values of events that depend on the clock. Without them, two runs with one seed emit the same events."""


def untimed(events: Sequence[Event], *, without: Sequence[str] = ("saved",)) -> list[tuple[str, object]]:
    return [
        (event.kind, {name: value for name, value in event.values.items() if name not in TIMING_KEYS})
        for event in events
        if event.kind not in without
    ]


@pytest.mark.parametrize(
    ("dtype", "optimiser", "tolerance"), [(torch.float64, "adamw", 1e-10), (torch.float32, "sgd", 1e-6)]
)
def test_accumulated_batches_equal_one_large_batch(
    tmp_path: Path, dtype: torch.dtype, optimiser: str, tolerance: float
) -> None:
    # 20 rows: 10 batches of 2, two or five of them in a step, against the same rows in one batch. Batches hold the
    # same rows because both cut one order of the epoch.
    small, large = ToyTask(rows=20, rows_per_batch=2, dtype=dtype), ToyTask(rows=20, rows_per_batch=10, dtype=dtype)
    changes = {"steps": 5, "optimiser": optimiser, "clip_norm": 0.5, "weight_decay": 0.01}
    one, _ = make_trainer(tmp_path / "one", model=ToyModel().to(dtype), task=large, **changes)
    many, _ = make_trainer(tmp_path / "many", model=ToyModel().to(dtype), task=small, batches_per_step=5, **changes)
    start = weights(one)
    one.train()
    many.train()
    for name in ("first.weight", "first.bias", "second.bias", "output.weight", "output.bias"):
        torch.testing.assert_close(weights(many)[name], weights(one)[name], rtol=0, atol=tolerance)
        assert (weights(one)[name] - start[name]).abs().max() > 1e-3


def test_a_mean_of_means_would_be_noticed(tmp_path: Path) -> None:
    # The control of the test above: batches of 4 and 3 rows, each divided by its own count, give another step.
    class MeanOfMeans(ToyTask):
        def count(self, batch: ToyBatch) -> int:
            return 1

        def loss(self, model: nn.Module, batch: ToyBatch) -> Loss:
            loss = super().loss(model, batch)
            return Loss(loss.total / loss.count, 1)

    changes = {"steps": 1, "batches_per_step": 2, "optimiser": "sgd", "log_every": 1}
    right, _ = make_trainer(tmp_path / "right", task=ToyTask(rows=7), **changes)
    wrong, _ = make_trainer(tmp_path / "wrong", task=MeanOfMeans(rows=7), **changes)
    right.train()
    wrong.train()
    assert (weights(right)["output.bias"] - weights(wrong)["output.bias"]).abs().max() > 1e-5


def test_a_step_never_crosses_an_epoch(tmp_path: Path) -> None:
    task = ToyTask(rows=14, rows_per_batch=2)  # seven batches: 3, 3 and 1
    trainer, events = make_trainer(tmp_path, task=task, steps=4, batches_per_step=3, validate_every=0)
    trainer.train()
    assert task.served == [(0, n) for n in range(7)] + [(1, n) for n in range(3)]
    steps = [event for event in events if event.kind == "step"]
    assert [(event["epoch"], event["tokens"]) for event in steps] == [(0, 6), (0, 12), (0, 14), (1, 20)]


def test_the_reported_loss_is_the_mean_per_count_since_the_last_report(tmp_path: Path) -> None:
    each, every = ({"optimiser": "sgd", "steps": 6, "log_every": number} for number in (1, 3))
    _, single = (trainer := make_trainer(tmp_path / "each", **each))[0].train(), trainer[1]
    _, joint = (trainer := make_trainer(tmp_path / "every", **every))[0].train(), trainer[1]
    losses = [event["loss"] for event in single if event.kind == "step"]
    counts = [4, 4, 4, 4, 4, 3]
    means = [event["loss"] for event in joint if event.kind == "step"]
    expected = [
        sum(loss * count for loss, count in list(zip(losses, counts, strict=True))[start : start + 3])
        / sum(counts[start : start + 3])
        for start in (0, 3)
    ]
    assert means == pytest.approx(expected, rel=1e-12)


def test_the_same_seed_gives_the_same_events_and_another_seed_others(tmp_path: Path) -> None:
    logs = []
    for name, seed in (("a", 7), ("b", 7), ("c", 8)):
        model = ToyModel(dropout=0.3, torch_dropout=0.3)
        trainer, events = make_trainer(tmp_path / name, model=model, seed=seed, steps=8)
        torch.manual_seed(len(logs))  # the state before the run does not matter
        trainer.train()
        logs.append(untimed(events))
    assert logs[0] == logs[1]
    assert logs[0] != logs[2]


def test_noise_depends_on_the_batch_and_not_on_how_many_share_a_step(tmp_path: Path) -> None:
    # At a rate of almost nothing the weights stand still: then only the noise could make the summed loss differ.
    totals = []
    for batches_per_step in (1, 2, 6):
        model = ToyModel(dropout=0.5)
        changes = {"steps": 6 // batches_per_step, "learning_rate": 1e-30, "log_every": 100, "optimiser": "sgd"}
        trainer, events = make_trainer(
            tmp_path / str(batches_per_step), model=model, batches_per_step=batches_per_step, **changes
        )
        trainer.train()
        totals.append(next(event["loss"] for event in events if event.kind == "step"))
    assert totals == pytest.approx([totals[0]] * 3, rel=1e-6)


def test_validating_does_not_change_the_run(tmp_path: Path) -> None:
    results = []
    for every in (0, 1):
        trainer, _ = make_trainer(tmp_path / str(every), model=ToyModel(torch_dropout=0.4), validate_every=every)
        trainer.train()
        assert trainer.model.training
        results.append(weights(trainer))
    assert same_bits(*results)


def test_a_bad_step_changes_no_weight_and_is_counted(tmp_path: Path) -> None:
    task = ToyTask(poisoned=frozenset({(0, 2)}))
    trainer, events = make_trainer(tmp_path, task=task, steps=3, save_every=1)
    outcome = trainer.train()
    assert (outcome.skipped, outcome.step, trainer.progress.bad_steps) == (1, 3, 1)
    before, after = (read_checkpoint(checkpoint_folder(tmp_path, step)) for step in (2, 3))
    floats = [name for name in before.weights if name != "seen"]
    assert all(torch.equal(before.weights[name], after.weights[name]) for name in floats)
    assert same_bits(before.optimiser, after.optimiser)
    event = next(event for event in events if event.kind == "bad_step")
    assert (event["step"], event["in_a_row"]) == (3, 1)
    assert "epoch 0, batch 2 (4 rows, lines" in event["where"]


def test_good_steps_between_bad_ones_keep_a_run_alive(tmp_path: Path) -> None:
    task = ToyTask(poisoned=frozenset({(0, 0), (0, 1), (0, 3), (0, 4)}))
    trainer, _ = make_trainer(tmp_path, task=task, steps=6)
    assert trainer.train().skipped == 4


def test_three_bad_steps_in_a_row_end_the_run_with_step_batch_and_lines(tmp_path: Path) -> None:
    task = ToyTask(poisoned=frozenset({(0, 3), (0, 4), (0, 5)}))
    trainer, events = make_trainer(tmp_path, task=task, steps=9)
    lines = task.describe(task.batch(0, 5))
    with pytest.raises(TrainingError) as caught:
        trainer.train()
    message = str(caught.value)
    assert message.startswith("step 6: loss nan and gradient norm nan; with this one, 3 steps in a row were not finite")
    assert f"epoch 0, batch 5 ({lines})" in message
    assert "non-finite gradients: first.weight" in message
    assert "The steps before it: epoch 0, batch 3; epoch 0, batch 4." in message
    assert "Gradient norms by layer: first nan, second nan, output nan." in message
    assert f"Last checkpoint: step 4. Resume with: seqloom train --resume {tmp_path}" in message
    bad = [event for event in events if event.kind == "bad_step"]
    assert [(event["in_a_row"], event["batches"]) for event in bad] == [(1, [3]), (2, [4]), (3, [5])]
    assert all(set(event["norms"]) == {"first", "second", "output"} for event in bad)


def test_norms_are_given_layer_by_layer() -> None:
    model = nn.Module()
    model.layers = nn.ModuleList([nn.Linear(2, 1), nn.Linear(1, 1)])  # type: ignore[assignment]
    model.output = nn.Linear(1, 1)  # type: ignore[assignment]
    for parameter, value in zip(model.parameters(), (3.0, 4.0, float("inf"), 0.0, 2.0, 1.5), strict=True):
        parameter.grad = torch.full_like(parameter, 0.0)
        parameter.grad.flatten()[0] = value
    norms = layer_norms(trained(model))
    assert norms == {"layers.0": 5.0, "layers.1": float("inf"), "output": 2.5}
    assert in_words(norms) == "layers.0 5, layers.1 inf, output 2.5"
    assert in_words({str(at): 1.0 for at in range(14)}).endswith("11 1 and 2 more")


@pytest.mark.parametrize("rate", [1e6, 1e38])
def test_a_rate_that_ruins_the_model_is_never_written_as_best_and_the_last_good_stays(
    tmp_path: Path, rate: float
) -> None:
    good, _ = make_trainer(tmp_path, steps=4, validate_every=2)
    best = good.train().best_loss
    assert best is not None
    trainer, events = make_trainer(
        tmp_path, steps=40, validate_every=2, learning_rate=rate, save_every=1, keep=2, optimiser="adamw"
    )
    with contextlib.suppress(TrainingError):  # with the lower rate the loss is large, but it is finite
        trainer.train(resume=True)
    assert pointed_step(tmp_path, "best") == good.progress.best.step
    kept = [read_checkpoint(checkpoint_folder(tmp_path, step)) for step in checkpoint_steps(tmp_path)]
    assert all(tensor.isfinite().all() for found in kept for tensor in found.weights.values())
    losses = [event["loss"] for event in events if event.kind == "validation"]
    assert not any(loss < best for loss in losses)


def test_weights_that_are_not_finite_are_reported_and_not_written(tmp_path: Path) -> None:
    trainer, events = make_trainer(tmp_path, steps=4, save_every=1, validate_every=0, keep=2, bad_steps=2)

    def ruin(event: Event) -> None:
        events.append(event)
        if event.kind == "saved" and event["step"] == 2:
            trainer.model.get_parameter("output.bias").data.fill_(float("inf"))

    trainer.listener = ruin
    object.__setattr__(trainer.checkpointer, "listener", ruin)
    with pytest.raises(TrainingError, match=r"2 steps in a row were not finite.*Last checkpoint: step 2"):
        trainer.train()
    (failed,) = [event for event in events if event.kind == "save_failed"]
    assert failed["message"].startswith("step-3 is not written: weights are not finite (output.bias")
    assert checkpoint_steps(tmp_path) == [1, 2]


def test_an_infinite_loss_is_skipped_and_counted(tmp_path: Path) -> None:
    class Infinite(ToyTask):
        def loss(self, model: nn.Module, batch: ToyBatch) -> Loss:
            loss = super().loss(model, batch)
            return replace(loss, total=loss.total / (0.0 if len(self.served) == 2 else 1.0))

    trainer, events = make_trainer(tmp_path, task=Infinite(), steps=3)
    assert trainer.train().skipped == 1
    (event,) = [event for event in events if event.kind == "bad_step"]
    assert (event["step"], event["loss"]) == (2, float("inf"))


def test_a_batch_that_does_not_fit_into_memory_ends_the_run_with_what_it_holds(tmp_path: Path) -> None:
    class Giant(ToyTask):
        def loss(self, model: nn.Module, batch: ToyBatch) -> Loss:
            if len(self.served) == 4:
                torch.empty(1 << 60, dtype=torch.uint8)  # more than any machine can address
            return super().loss(model, batch)

    task = Giant()
    trainer, _ = make_trainer(tmp_path, task=task, steps=9)
    with pytest.raises(TrainingError) as caught:
        trainer.train()
    message = str(caught.value)
    lines = task.describe(task.batch(0, 3))
    assert message.startswith(f"step 4: not enough memory for batch 3 of epoch 0 ({lines}). Start a run with a")
    assert "data.tokens_per_batch" in message
    assert "data.longest" in message
    assert f"Last checkpoint: step 3. Resume with: seqloom train --resume {tmp_path}" in message
    assert checkpoint_steps(tmp_path) == [2, 3]


def test_another_error_in_a_batch_comes_through_as_it_is(tmp_path: Path) -> None:
    class Wrong(ToyTask):
        def loss(self, model: nn.Module, batch: ToyBatch) -> Loss:
            raise RuntimeError("a mistake")

    with pytest.raises(RuntimeError, match=r"^a mistake$"):
        make_trainer(tmp_path, task=Wrong())[0].train()


def test_a_loss_that_is_finite_with_a_gradient_that_is_not_is_skipped_too(tmp_path: Path) -> None:
    class Cusp(ToyTask):
        def loss(self, model: nn.Module, batch: ToyBatch) -> Loss:
            assert isinstance(model, ToyModel)
            loss = super().loss(model, batch)
            return replace(loss, total=loss.total + (model.output.bias.sum() * 0).sqrt())

    trainer, events = make_trainer(tmp_path, task=Cusp(), steps=1)
    start = weights(trainer)
    assert trainer.train().skipped == 1
    assert torch.equal(weights(trainer)["output.bias"], start["output.bias"])
    assert "batch 0" in next(event for event in events if event.kind == "bad_step")["where"]


def test_minutes_end_a_run_with_a_validation_and_a_checkpoint(tmp_path: Path) -> None:
    trainer, events = make_trainer(tmp_path, steps=1_000_000, validate_every=900_000, minutes=0.002)
    outcome = trainer.train()
    assert outcome.reason == "minutes"
    assert 0 < outcome.step < 900_000
    assert outcome.seconds >= 0.12
    assert [event["step"] for event in events if event.kind == "validation"] == [outcome.step]
    assert trainer.saved_step == outcome.step
    # The minutes of the first process count in the next one, and more of them continue it.
    again, _ = make_trainer(tmp_path, steps=1_000_000, validate_every=900_000, minutes=0.002)
    assert again.train(resume=True).reason == "nothing to do"
    longer, _ = make_trainer(tmp_path, steps=outcome.step + 3, validate_every=900_000, minutes=5)
    assert (found := longer.train(resume=True)).reason == "steps"
    assert found.step == outcome.step + 3


def test_patience_ends_a_run_and_the_best_is_remembered(tmp_path: Path) -> None:
    task = ToyTask(dev_losses=[3.0, 2.0, 2.0, 2.5, 1.0])
    trainer, events = make_trainer(tmp_path, task=task, steps=20, validate_every=2, patience=2, keep=2)
    outcome = trainer.train()
    assert (outcome.reason, outcome.step, outcome.best_loss, outcome.best_step) == ("patience", 8, 2.0, 4)
    assert [event["is_best"] for event in events if event.kind == "validation"] == [True, True, False, False]
    assert (pointed_step(tmp_path, "best"), pointed_step(tmp_path, "latest")) == (4, 8)
    assert checkpoint_steps(tmp_path) == [4, 6, 8]
    assert events[-1].kind == "finished"


def test_a_plateau_lowers_the_rate(tmp_path: Path) -> None:
    task = ToyTask(dev_losses=[3.0, 3.0, 3.0, 3.0])
    changes = {"schedule": "plateau", "plateau_patience": 0, "learning_rate": 0.8, "validate_every": 1, "steps": 4}
    trainer, events = make_trainer(tmp_path, task=task, **changes)
    trainer.train()
    rates = [event["learning_rate"] for event in events if event.kind == "step"]
    assert rates == pytest.approx([0.8, 0.8, 0.4, 0.2])


def test_clipping_bounds_what_gradient_descent_moves(tmp_path: Path) -> None:
    trainer, events = make_trainer(tmp_path, steps=1, optimiser="sgd", learning_rate=1.0, clip_norm=0.25)
    start = weights(trainer)
    trainer.train()
    moved = [weights(trainer)[name] - start[name] for name in start if name != "seen"]
    assert torch.cat([part.flatten() for part in moved]).norm().item() == pytest.approx(0.25, rel=1e-5)
    assert events[0]["norm"] > 0.25


def test_clipping_by_value_bounds_each_element(tmp_path: Path) -> None:
    trainer, _ = make_trainer(tmp_path, steps=1, optimiser="sgd", learning_rate=1.0, clip_value=0.01)
    start = weights(trainer)
    trainer.train()
    moved = (weights(trainer)["output.weight"] - start["output.weight"]).abs().max().item()
    assert moved == pytest.approx(0.01, rel=1e-4)


def test_the_toy_is_learnt(tmp_path: Path) -> None:
    trainer, events = make_trainer(tmp_path, steps=200, validate_every=50, save_every=100, log_every=50, clip_norm=1.0)
    outcome = trainer.train()
    assert outcome.best_loss is not None
    assert outcome.best_loss < 0.1
    assert [event for event in events if event.kind == "validation"][-1]["accuracy"] == 1.0


def test_a_folder_that_holds_a_run_is_refused_with_the_command_to_resume(tmp_path: Path) -> None:
    make_trainer(tmp_path, steps=2)[0].train()
    with pytest.raises(UsageError, match=r"already holds a run at step 2; resume it with: seqloom train --resume"):
        make_trainer(tmp_path, steps=4)[0].train()


def test_a_target_that_is_reached_leaves_nothing_to_do(tmp_path: Path) -> None:
    make_trainer(tmp_path, steps=2)[0].train()
    trainer, events = make_trainer(tmp_path, steps=2)
    outcome = trainer.train(resume=True)
    assert (outcome.reason, outcome.step) == ("nothing to do", 2)
    assert outcome.message == "the run has finished: 2 of 2 steps; continue with training.steps=4"
    assert [event.kind for event in events] == ["finished"]


def test_empty_data_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="epoch 0 has no batches"):
        make_trainer(tmp_path, task=ToyTask(rows=0))[0].train()


def test_a_validation_without_a_loss_is_refused(tmp_path: Path) -> None:
    class Silent(ToyTask):
        def validate(self, model: nn.Module) -> dict[str, float]:
            return {"accuracy": 1.0}

    with pytest.raises(TrainingError, match=r"Silent\.validate gave \['accuracy'\], without \"loss\""):
        make_trainer(tmp_path, task=Silent())[0].train()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_a_signal_in_the_last_validation_is_obeyed_once_all_is_saved(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    class Signalling(ToyTask):
        def validate(self, model: nn.Module) -> Mapping[str, float]:
            signal.raise_signal(number)
            return super().validate(model)

    trainer, events = make_trainer(tmp_path, task=Signalling(), steps=3, validate_every=3)
    before = signal.getsignal(number)
    if number != signal.SIGINT:
        signal.signal(number, signal.SIG_DFL)  # under nohup one of them is ignored
    try:
        with pytest.raises(Stopped, match=f"stopped by {number.name} after step 3. Last checkpoint: step 3") as caught:
            trainer.train()
    finally:
        signal.signal(number, before)
    assert caught.value.code == code
    assert [event.kind for event in events][-2:] == ["finished", "stopped"]
