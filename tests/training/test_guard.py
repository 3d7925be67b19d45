"""A guarded figure that falls again and again ends the training."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from torch import nn

from seqloom.core.events import Event
from seqloom.training.checkpoint import pointed_step
from seqloom.training.task import Guard
from training.toy import ToyTask, make_trainer


@dataclass
class Collapsing(ToyTask):
    """Reports these figures at its validations, one after another."""

    figures: list[float] = field(default_factory=list)
    guard: Guard = field(default_factory=lambda: Guard("round_trip", "round-trip chrF", 3))

    def validate(self, model: nn.Module) -> Mapping[str, float]:
        value = self.figures.pop(0)
        return {"loss": 1 - value / 100, "round_trip": value}


def finished(events: list[Event]) -> Event:
    (event,) = [event for event in events if event.kind == "finished"]
    return event


def test_three_falls_in_a_row_end_training_and_keep_the_best(tmp_path: Path) -> None:
    # 50 → 40 is one fall and 60 → 30 → 20 → 10 are three; what was reached before the collapse is kept.
    task = Collapsing(figures=[50.0, 40.0, 60.0, 30.0, 20.0, 10.0])
    trainer, events = make_trainer(tmp_path, task=task, steps=20, validate_every=1, save_every=1)
    outcome = trainer.train()
    assert (outcome.reason, outcome.step, outcome.best_step) == ("falls", 6, 3)
    assert pointed_step(tmp_path, "best") == 3
    assert "round-trip chrF fell 3 times in a row (60.0 → 30.0 → 20.0 → 10.0)" in finished(events)["message"]


def test_falls_before_an_interruption_count_after_it(tmp_path: Path) -> None:
    first = Collapsing(figures=[50.0, 40.0])
    make_trainer(tmp_path, task=first, steps=2, validate_every=1, save_every=1)[0].train()
    second = Collapsing(figures=[30.0, 20.0])
    outcome = make_trainer(tmp_path, task=second, steps=20, validate_every=1, save_every=1)[0].train(resume=True)
    assert (outcome.reason, outcome.step) == ("falls", 4)
    again, events = make_trainer(tmp_path, task=Collapsing(), steps=20, validate_every=1, save_every=1)
    assert again.train(resume=True).reason == "nothing to do"
    assert "at step 4 of 20, where round-trip chrF had fallen 3 times in a row" in finished(events)["message"]


def test_a_guard_of_no_falls_never_ends_training(tmp_path: Path) -> None:
    task = Collapsing(figures=[50.0, 40.0, 30.0, 20.0, 10.0], guard=Guard("round_trip", "round-trip chrF", 0))
    outcome = make_trainer(tmp_path, task=task, steps=5, validate_every=1, save_every=1)[0].train()
    assert outcome.reason == "steps"
