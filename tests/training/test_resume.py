"""Stopping and going on equals not stopping, bit for bit; and what is refused or told when it cannot."""

import random
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy
import pytest
import torch
from torch import Tensor

from seqloom.core.errors import ConfigError, DataError
from seqloom.training import checkpointer as keeping
from seqloom.training.checkpoint import Checkpoint, checkpoint_folder, read_checkpoint
from seqloom.training.checkpointer import generator_states, generators_kept, restore_generators
from seqloom.training.resume import changed_settings
from seqloom.training.weights import weights_of
from training.test_trainer import untimed
from training.toy import ToyModel, ToyTask, make_trainer, same_bits, settings, weights

STEPS = 11
"""The toy has six batches an epoch: with one batch a step this ends in the second epoch, with three in the sixth."""


def make(run: Path, **changes: object):  # type: ignore[no-untyped-def]
    model = ToyModel(dropout=0.3, torch_dropout=0.2)
    settings = {"schedule": "inverse_sqrt", "warmup": 3, "clip_norm": 0.7, "weight_decay": 0.1, "log_every": 3}
    return make_trainer(run, model=model, **{**settings, "steps": STEPS, **changes})


@pytest.mark.parametrize("optimiser", ["adamw", "sgd"])
@pytest.mark.parametrize("batches_per_step", [1, 3])
@pytest.mark.parametrize("stop", [2, 4, 8])
def test_stopping_and_resuming_equals_not_stopping(
    tmp_path: Path, stop: int, batches_per_step: int, optimiser: str
) -> None:
    changes = {"batches_per_step": batches_per_step, "optimiser": optimiser, "momentum": 0.9}
    whole, _ = make(tmp_path / "whole", **changes)
    whole.train()
    make(tmp_path / "parts", steps=stop, **changes)[0].train()
    second, late_events = make(tmp_path / "parts", **changes)
    torch.manual_seed(99)
    second.train(resume=True)
    assert same_bits(weights(second), weights(whole))
    ends = [read_checkpoint(checkpoint_folder(tmp_path / name, STEPS)) for name in ("whole", "parts")]
    # Python's own generator is drawn from by the type checks of this test run, as often as functions are called. It is
    # compared in processes without them: `tests/system/test_distributed.py`, `benchmarks/kill_loop.py`.
    assert same_bits(ends[0].optimiser, ends[1].optimiser)
    assert same_bits(*({name: end.generators[name] for name in ("torch", "numpy")} for end in ends))
    assert late_events[0].kind == "resumed"
    assert late_events[0]["changed_settings"] == {"steps": [stop, STEPS]}


def test_a_resumed_run_emits_the_events_that_the_whole_run_would_have(tmp_path: Path) -> None:
    # Stopped at step 4, in the middle of the three steps that an event sums up: the sum goes on.
    whole, all_events = make(tmp_path / "whole")
    whole.train()

    class PowerCut(Exception):
        pass

    def cut(event: object) -> None:
        if getattr(event, "kind", "") == "validation":
            raise PowerCut

    first, _ = make(tmp_path / "parts", validate_every=5)
    first.listener = cut
    with pytest.raises(PowerCut):
        first.train()
    second, late_events = make(tmp_path / "parts", validate_every=5)
    second.train(resume=True)
    assert late_events[0]["step"] == 4
    late = [event for event in untimed(late_events) if event[0] == "step"]
    assert late == [event for event in untimed(all_events) if event[0] == "step" and event[1]["step"] > 4]  # type: ignore[index]


LEFT_OUT: dict[str, Callable[[Checkpoint], Checkpoint]] = {
    "weights": lambda found: replace(found, weights=weights_of(ToyModel())),
    "optimiser": lambda found: replace(found, optimiser={}),
    "step counters": lambda found: replace(found, optimiser=without_counters(found)),
    "generators": lambda found: replace(found, generators=fresh(found)),
    "position": lambda found: changed(found, index=0),
    "epoch": lambda found: changed(found, epoch=0),
    "schedule": lambda found: changed(found, step=1),
}


def without_counters(found: Checkpoint) -> dict[str, Tensor]:
    return {
        name: torch.ones_like(tensor) if name.endswith("/step") else tensor for name, tensor in found.optimiser.items()
    }


def fresh(found: Checkpoint) -> dict[str, Tensor]:
    torch.manual_seed(5)
    return {**found.generators, "torch": torch.get_rng_state()[None]}


def changed(found: Checkpoint, **values: int) -> Checkpoint:
    return replace(found, state={**found.state, "progress": {**found.state["progress"], **values}})


@pytest.mark.parametrize("part", LEFT_OUT)
def test_leaving_out_any_part_of_the_state_is_noticed(
    tmp_path: Path, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The control of the tests above: each part of a checkpoint matters, or its loss would go unseen.
    whole, _ = make(tmp_path / "whole")
    whole.train()
    make(tmp_path / "parts", steps=8)[0].train()
    newest = keeping.checkpoint.newest_checkpoint
    monkeypatch.setattr(
        keeping.checkpoint,
        "newest_checkpoint",
        lambda run, listener, strict: LEFT_OUT[part](newest(run, listener=listener, strict=strict)),  # type: ignore[arg-type]
    )
    second, _ = make(tmp_path / "parts")
    second.train(resume=True)
    floats = {name: tensor for name, tensor in weights(second).items() if name != "seen"}
    assert not same_bits(floats, {name: weights(whole)[name] for name in floats})


def test_a_run_that_died_before_its_first_checkpoint_starts_over(tmp_path: Path) -> None:
    whole, _ = make(tmp_path / "whole")
    whole.train()
    again, events = make(tmp_path / "empty")
    again.train(resume=True)
    assert same_bits(weights(again), weights(whole))
    assert "no checkpoint yet" in events[0]["message"]


def test_changed_data_are_refused_unless_allowed(tmp_path: Path) -> None:
    make_trainer(tmp_path, steps=2)[0].train()
    other = ToyTask(data_seed=12)
    with pytest.raises(
        DataError, match=r"the training data has changed .*toy-23-12…, then toy-23-11….*--allow-data-ch"
    ):
        make_trainer(tmp_path, task=other)[0].train(resume=True)
    trainer, events = make_trainer(tmp_path, task=other, steps=3)
    assert trainer.train(resume=True, allow_data_change=True).step == 3
    assert "data has changed" in events[0]["message"]


def test_other_threads_are_reported_and_refused_if_exact(tmp_path: Path) -> None:
    make_trainer(tmp_path, steps=2)[0].train()
    try:
        with pytest.raises(ConfigError, match=r"number of threads was 1 and is 2\. Leave out --exact to resume"):
            make_trainer(tmp_path, threads=2)[0].train(resume=True, exact=True)
        trainer, events = make_trainer(tmp_path, threads=2, steps=3)
        trainer.train(resume=True)
        assert events[0]["message"] == (
            "resuming with the same data order, but results will not be bit-identical: number of threads was 1 and is 2"
        )
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize(
    ("name", "then", "label"),
    [
        ("ranks", 4, "number of ranks was 4 and is 1"),
        ("torch", "1.0", f"version of torch was 1.0 and is {torch.__version__}"),
        ("seqloom", "0.0", "version of seqloom was 0.0 and is"),
        ("device", "cuda", "device was cuda and is cpu"),
    ],
)
def test_other_circumstances_are_reported_and_refused_if_exact(
    tmp_path: Path, name: str, then: object, label: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_trainer(tmp_path, steps=2)[0].train()
    newest = keeping.checkpoint.newest_checkpoint

    def elsewhere(run: Path, **options: object) -> Checkpoint:
        found = newest(run, **options)  # type: ignore[arg-type]
        assert found is not None
        before = found.state["circumstances"]
        changed = {**before, "machine": {**before["machine"], name: then}}
        return replace(found, state={**found.state, "circumstances": changed})

    monkeypatch.setattr(keeping.checkpoint, "newest_checkpoint", elsewhere)
    with pytest.raises(ConfigError, match=rf"{re.escape(label)}.*Leave out --exact to resume"):
        make_trainer(tmp_path, steps=3)[0].train(resume=True, exact=True)
    trainer, events = make_trainer(tmp_path, steps=3)
    assert trainer.train(resume=True).step == 3
    begin = "resuming with the same data order, but results will not be bit-identical: "
    assert events[0]["message"].startswith(f"{begin}{label}")


def test_clocks_that_jump_change_only_the_reported_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steady, told = make(tmp_path / "steady")
    steady.train()
    jumps = random.Random(5)
    for name in ("time", "monotonic", "perf_counter", "process_time"):
        monkeypatch.setattr(time, name, lambda: jumps.uniform(-1e9, 1e9))
    for name in ("time_ns", "monotonic_ns", "perf_counter_ns"):
        monkeypatch.setattr(time, name, lambda: jumps.randrange(-(10**18), 10**18))
    first, early = make(tmp_path / "jumping", steps=6)
    first.train()
    second, late = make(tmp_path / "jumping")
    second.train(resume=True)
    assert same_bits(weights(second), weights(steady))
    assert [event for event in untimed([*early, *late]) if event[0] == "step"] == [
        event for event in untimed(told) if event[0] == "step"
    ]


def test_no_source_asks_for_the_time_of_day() -> None:
    # Only durations are measured, and only to be told: see the test above.
    asks = re.compile(
        r"\btime\.time\b|\b(datetime|date)\.(now|utcnow|today)\b|from time import .*\btime\b|\blocaltime\b|\bgmtime\b"
    )
    package = Path(keeping.__file__).parents[1]
    layers = ("core", "text", "nn", "data", "models", "classical", "search", "training", "tasks")
    sources = [path for layer in layers for path in (package / layer).glob("*.py")]
    assert [path.name for path in sources if asks.search(path.read_text(encoding="utf-8"))] == []
    for caught in ("import time\nnow = time.time()", "datetime.now(UTC)"):  # the pattern finds what it is for
        assert asks.search(caught)


def test_another_seed_or_optimiser_is_refused(tmp_path: Path) -> None:
    make_trainer(tmp_path, steps=2)[0].train()
    with pytest.raises(ConfigError, match="seed is 8, but this run began with 7"):
        make_trainer(tmp_path, seed=8)[0].train(resume=True)
    with pytest.raises(ConfigError, match="optimiser is sgd, but this run was trained with adamw"):
        make_trainer(tmp_path, optimiser="sgd")[0].train(resume=True)


def test_a_learning_rate_given_at_the_resume_is_used_and_reported(tmp_path: Path) -> None:
    make_trainer(tmp_path, steps=2)[0].train()
    trainer, events = make_trainer(tmp_path, steps=3, learning_rate=0.011)
    trainer.train(resume=True)
    assert events[0]["changed_settings"] == {"steps": [2, 3], "learning_rate": [0.05, 0.011]}
    assert events[1]["learning_rate"] == 0.011


def test_global_generators_go_on_where_they_were() -> None:
    def draw() -> tuple[float, ...]:
        return (torch.rand(()).item(), random.gauss(0, 1), random.random(), numpy.random.randn(), numpy.random.rand())

    random.gauss(0, 1)  # leaves a second one in store
    numpy.random.randn()
    states = generator_states(torch.device("cpu"))
    with generators_kept(torch.device("cpu")):
        draw()
    first = draw()
    assert draw() != first
    restore_generators(states, torch.device("cpu"))
    assert draw() == first


def test_a_setting_that_a_checkpoint_does_not_know_counts_as_its_default() -> None:
    now = settings(parallel="sharded").model_dump(mode="json")
    older = {name: value for name, value in now.items() if name not in ("parallel", "bad_steps")}
    assert changed_settings({"training": older}, {"training": now}) == {"parallel": ["replicated", "sharded"]}
