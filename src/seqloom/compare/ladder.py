"""The ladder: every rung trained on the same data, measured on the same test set, within one budget of minutes.

out/data/            the training, dev and test set of all rungs, and parts of the training set for the curves
out/rungs/NAME/      an ordinary run, and test.txt with its translations of the test set, or test.json with its answers
out/curves/SIZE/     runs of the curves
out/compare.json     what is done, written after each step: a comparison that was killed continues after the last one
out/report.html, report.md, report.json, and ladder.svg, the bars of the report
"""

import json
import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any

from seqloom.compare.pairs import Pairs
from seqloom.compare.results import Result, RungResult, TaskResult
from seqloom.compare.rungs import REPORT_SHARE, Rung, refused, share_minutes
from seqloom.compare.subject import PAIRS, Clock, Order, Subject, is_of_pairs
from seqloom.compare.tasks import TaskSubject
from seqloom.core.errors import ModelError, SeqloomError, SeqloomWarning, Stopped, UsageError
from seqloom.core.events import Event, Listener, notice, phase
from seqloom.core.files import read_json, write_atomically
from seqloom.runs import train as recipe
from seqloom.runs.model_dir import read_card
from seqloom.training.progress import Outcome
from seqloom.training.run_guard import locked

STATE, FORMAT = "compare.json", 1

MIN_POINT_MINUTES = 0.5
"""Minutes that a trained rung needs for a point of its curve."""

PROBED_STEPS = (10, 30)
"""The speed of training is measured between these two steps."""

USED_SHARE = 0.92
"""Share of the minutes of a trained rung in which its steps must be done, so that its schedule comes to its end."""

IMPROVING_SHARE = 0.9
"""A rung was still improving if its best validation came after this share of its steps."""

SHOWN_EVENTS = frozenset({"progress", "phase", "step", "model", "bad_step", "save_failed", "resumed"})
"""What is shown of the runs; the rest is in their journals."""


@dataclass
class State:
    """What is done so far."""

    order: Mapping[str, Any]
    seconds: float = 0.0
    """Time spent, in earlier processes too."""
    doctor: dict[str, Any] | None = None
    minutes: dict[str, float] = field(default_factory=dict)
    """The minutes that trained rungs were given when they began."""
    steps: dict[str, int] = field(default_factory=dict)
    """The steps of those that have time for fewer than would be chosen for their text, by `RUNG@SET`."""
    results: dict[str, Result] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    """Why a rung or a point was left out."""
    points: dict[str, float] = field(default_factory=dict)
    """BLEU by `RUNG@PAIRS`."""

    def save(self, out: Path) -> None:
        values = {
            "format": FORMAT,
            "order": self.order,
            "seconds": round(self.seconds, 1),
            "doctor": self.doctor,
            "minutes": self.minutes,
            "steps": self.steps,
            "results": {name: result.to_json() for name, result in self.results.items()},
            "skipped": self.skipped,
            "points": self.points,
        }
        write_atomically(out / STATE, json.dumps(values, indent=1, ensure_ascii=False) + "\n")

    @staticmethod
    def load(out: Path) -> "State":
        """The state of a comparison that was begun."""
        path = out / STATE
        try:
            values = read_json(path)
            if values["format"] > FORMAT:
                raise ModelError(f"{path} has format {values['format']}; use a newer version of Seqloom")
            read = RungResult.from_json if is_of_pairs(values["order"]) else TaskResult.from_json
            results: dict[str, Result] = {name: read(each) for name, each in values["results"].items()}
            known = {name: values[name] for name in _PARTS}
            return State(**known, results=results)
        except FileNotFoundError:
            raise UsageError(f"{out} cannot be resumed: {STATE} is missing; start a new comparison") from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ModelError(f"{path} is damaged ({error}); start a new comparison in another folder") from error


_PARTS = ("order", "seconds", "doctor", "minutes", "steps", "skipped", "points")


class _Probed(Exception):
    """Ends a run whose speed is known."""

    def __init__(self, steps_per_second: float) -> None:
        super().__init__()
        self.steps_per_second = steps_per_second


def make_subject(out: Path, order: Order, *, listener: Listener, clock: Clock) -> Subject:
    """What an order compares, with its sets below `out`/data."""
    made = Pairs if order.kind == PAIRS else TaskSubject
    return made(out / "data", order, listener=listener, clock=clock)


class Ladder:
    """A comparison under way."""

    def __init__(self, out: Path, order: Order, state: State, *, listener: Listener, clock: Clock = monotonic) -> None:
        self.out, self.order, self.state = out, order, state
        self._listener, self._clock = listener, clock
        self._before, self._began = state.seconds, clock()
        self.subject: Subject = make_subject(out, order, listener=listener, clock=clock)
        """What is compared."""

    def climb(self, *, after_step: Callable[["Ladder"], object] = lambda _ladder: None) -> None:
        """Do whatever is not done yet. `after_step` is called after each step, when its result is on disk."""
        with locked(self.out):
            self._save()  # from here on it can be resumed
            self._climb(after_step)

    def _climb(self, after_step: Callable[["Ladder"], object]) -> None:
        self._prepare()
        rungs, pairs = self.order.rungs, self.subject.size()
        counted = [rung for rung in rungs if rung.is_counted]
        for number, rung in enumerate([*counted, *(rung for rung in rungs if not rung.is_counted)], start=1):
            if rung.name in self.state.results or rung.name in self.state.skipped:
                continue
            minutes = self._minutes_for(rung)
            reason = refused(rung, pairs=pairs, left=minutes)
            if reason is None:
                title = f"{rung.name} (rung {number} of {len(rungs)}"
                self._phase(f"{title}, {self._used()})")
                reason = self._climb_rung(rung, minutes)
            if reason is not None:
                self._skip(rung.name, f"{rung.name} was skipped: {reason}")
            self._save()
            after_step(self)
        for rung, size in self._wanted_points():
            self._measure_point(rung, size)
            self._save()
            after_step(self)

    # --- steps -------------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Write the sets and let the doctor look at them."""
        self.subject.prepare()
        self._save()  # from here on it can be resumed
        if self.state.doctor is None and (found := self.subject.examine()) is not None:
            self.state.doctor = found
            self._save()

    def _climb_rung(self, rung: Rung, minutes: float) -> str | None:
        """Train and measure a rung; why that failed, if it did."""
        run = self.out / "rungs" / rung.name
        if not rung.is_counted:
            minutes = self.state.minutes.setdefault(rung.name, minutes)
            self._save()
        try:
            if rung.is_twin:
                self.state.results[rung.name] = self.subject.count(rung, run)
            else:
                trained = self._run(run, rung, "train", minutes=minutes)
                self.state.results[rung.name] = self._measure(rung, run, trained)
        except Stopped:
            raise
        except SeqloomError as error:
            return f"it failed ({error})"
        return None

    def _run(self, run: Path, rung: Rung, name: str, *, minutes: float) -> recipe.Trained:
        """Train a rung on a part of the text, or continue where it stopped."""

        def limit(steps: int) -> None:
            self.state.steps[f"{rung.name}@{name}"] = steps
            self._save()

        return train_rung(
            run,
            rung,
            files={side: self.subject.files(part) for side, part in _sides(name)},
            overrides=[*self.subject.overrides(), f"seed={self.order.seed}"],
            minutes=minutes,
            probe=self.out / "probe",
            limit=limit,
            listener=shown_of(self._listener, run.name if name == "train" else f"{rung.name} with {name}"),
        )

    def _measure(self, rung: Rung, run: Path, trained: recipe.Trained) -> Result:
        """Score a rung on the test set."""
        outcome = trained.outcome
        return self.subject.measure(
            rung,
            run,
            minutes=_fitting_minutes(run / "model") if rung.is_counted else outcome.seconds / 60,
            is_improving=self._was_cut_short(rung, outcome) and _was_late(outcome),
        )

    def _was_cut_short(self, rung: Rung, outcome: Outcome) -> bool:
        """Whether a rung made fewer steps than it would have made without a limit of time."""
        return outcome.reason == "minutes" or f"{rung.name}@train" in self.state.steps

    def _wanted_points(self) -> list[tuple[Rung, int]]:
        """Points of the curves that are missing: counted rungs first, then trained ones, each time the best first."""
        done = {**self.state.points, **self.state.skipped}
        climbed = [rung for rung in self.order.rungs if rung.name in self.state.results]
        sizes = [size for size in self.subject.sizes if size < self.subject.size()]
        for rung in climbed if self.subject.sizes else []:  # all pairs were measured with the rung itself
            self.state.points.setdefault(
                point_name(rung.name, self.subject.size()), self.state.results[rung.name].main.value
            )
        climbed.sort(key=lambda rung: (not rung.is_counted, -self.state.results[rung.name].main.value))
        wanted = [(rung, size) for rung in climbed if rung.is_counted for size in sizes]
        wanted += [(rung, size) for rung in climbed if not rung.is_counted for size in sizes]
        return [(rung, size) for rung, size in wanted if point_name(rung.name, size) not in done]

    def _measure_point(self, rung: Rung, size: int) -> None:
        """BLEU of a rung on a part of the training text."""
        name = point_name(rung.name, size)
        share = size / self.subject.size()
        minutes = max(MIN_POINT_MINUTES, self.state.minutes.get(rung.name, 0.0) * share)
        if not rung.is_counted and minutes > self._left():
            self.state.skipped[name] = f"{rung.name} with {size:,} pairs was skipped: no minutes are left"
            return
        self._phase(f"{rung.name} with {size:,} pairs ({self._used()})")
        run = self.out / "curves" / str(size) / rung.name
        try:
            self._run(run, rung, f"train-{size}", minutes=minutes)
            self.state.points[name] = self.subject.score_point(run, f"{rung.name} with {size:,} pairs")
        except Stopped:
            raise
        except SeqloomError as error:
            self.state.skipped[name] = f"{rung.name} with {size:,} pairs failed ({error})"

    # --- time --------------------------------------------------------------------------------------------------------

    def _left(self) -> float:
        """Minutes of the budget that are left."""
        return self.order.minutes - self._seconds() / 60

    def _seconds(self) -> float:
        return self._before + self._clock() - self._began

    def _minutes_for(self, rung: Rung) -> float:
        """Minutes that a rung may take now.

        Counted rungs may take all that is left. Trained ones share what the points of the counted ones and the report
        leave over.
        """
        left = self._left() - REPORT_SHARE * self.order.minutes
        if rung.is_counted:
            return left
        if rung.name in self.state.minutes:
            return self.state.minutes[rung.name]
        pairs = self.subject.size()
        parts = sum(size for size in self.subject.sizes if size < pairs) / pairs
        results = self.state.results
        counted = [each for each in self.order.rungs if each.is_counted and each.name in results]
        left -= sum(results[each.name].minutes * parts for each in counted)
        waiting = [
            each for each in self.order.rungs if each.name not in results and each.name not in self.state.skipped
        ]
        return share_minutes(waiting, left)[rung.name]

    def _used(self) -> str:
        return f"{self._seconds() / 60:.0f} of {self.order.minutes:g} minutes used"

    # --- reports -----------------------------------------------------------------------------------------------------

    def _phase(self, what: str) -> None:
        phase(self._listener, what)

    def _skip(self, name: str, sentence: str) -> None:
        self.state.skipped[name] = sentence
        notice(self._listener, sentence)

    def _save(self) -> None:
        self.state.seconds = self._seconds()
        self.state.save(self.out)


def _sides(train: str) -> tuple[tuple[str, str], ...]:
    return (("train", train), ("dev", "dev"))


def train_rung(
    run: Path,
    rung: Rung,
    *,
    files: Mapping[str, Sequence[str]],
    overrides: Sequence[str],
    minutes: float,
    probe: Path,
    limit: Callable[[int], None] = lambda _steps: None,
    listener: Listener,
) -> recipe.Trained:
    """Train a rung on `train` and `dev` files, or continue where it stopped.

    `probe` is a folder for finding its speed; `limit` gets the number of steps if fewer fit into the minutes than would
    be chosen.
    """
    overrides = [*rung.overrides, *overrides]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SeqloomWarning)
        if (run / "run.json").is_file():
            trained = recipe.resume(run, listener=listener)
        else:
            if not rung.is_counted:
                overrides.append(f"training.minutes={minutes:.3f}")
                steps = _affordable_steps(rung, overrides, files=files, minutes=minutes, probe=probe)
                if steps is not None:
                    limit(steps)
                    overrides.append(f"training.steps={steps}")
            trained = recipe.train(
                rung.config, overrides, out=run, train=files["train"], dev=files["dev"], listener=listener
            )
    assert trained is not None
    return trained


def _affordable_steps(
    rung: Rung, overrides: Sequence[str], *, files: Mapping[str, Sequence[str]], minutes: float, probe: Path
) -> int | None:
    """The number of steps that fit into the minutes; None if no fewer than would be chosen for this text.

    Warm-up and validations then suit these steps. They are found by training for some steps.
    """
    shutil.rmtree(probe, ignore_errors=True)
    first, last = PROBED_STEPS
    chosen, began = 0, 0.0

    def listen(event: Event) -> None:
        nonlocal chosen, began
        if event.kind == "model":
            chosen = int(event["steps"])
        elif event.kind == "step" and event["step"] == first:
            began = float(event["seconds"])
        elif event.kind == "step" and event["step"] == last:
            raise _Probed((last - first) / max(1e-9, float(event["seconds"]) - began))

    try:
        settings = [*overrides, f"training.log_every={first}"]
        recipe.train(rung.config, settings, out=probe, train=files["train"], dev=files["dev"], listener=listen)
    except _Probed as found:
        steps = max(last, int(found.steps_per_second * 60 * minutes * USED_SHARE))
        return steps if steps < chosen else None
    finally:
        shutil.rmtree(probe, ignore_errors=True)
    return None  # it has ended before the last probed step


def start(out: Path, order: Order, *, listener: Listener) -> Ladder:
    """A new comparison in a folder that is new or empty."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} exists already; resume it with --resume, or choose another folder")
    if not 0 < order.minutes < inf:
        raise UsageError(f"--minutes {order.minutes:g} leaves no time or has no end; give a number above 0")
    out.mkdir(parents=True, exist_ok=True)
    return Ladder(out, order, State(order.record()), listener=listener)


def resume(
    out: Path,
    *,
    rungs: Callable[[Mapping[str, Any]], tuple[Rung, ...]],
    minutes: float | None = None,
    listener: Listener,
) -> Ladder:
    """A comparison that was interrupted; `rungs` makes its rungs from their record.

    With more `minutes`, rungs and points that were skipped are tried again.
    """
    state = State.load(out)
    try:
        given = state.order
        if minutes is not None:
            if minutes < float(given["minutes"]):
                raise UsageError(
                    f"--minutes {minutes:g} is less than the {float(given['minutes']):g} of {out}; give more"
                )
            given = state.order = {**given, "minutes": minutes}
            state.skipped.clear()
        order = Order(
            train=tuple(map(Path, given["train"])),
            dev=tuple(map(Path, given["dev"])),
            test=tuple(map(Path, given["test"])),
            minutes=float(given["minutes"]),
            rungs=rungs(given),
            languages=(given["languages"][0], given["languages"][1]),
            encoding=given["encoding"],
            seed=int(given["seed"]),
            kind=str(given.get("kind", PAIRS)),
            settings=tuple(map(str, given.get("settings", ()))),
        )
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise ModelError(f"{out / STATE} is damaged ({error}); start a new comparison in another folder") from error
    return Ladder(out, order, state, listener=listener)


def point_name(rung: str, pairs: int) -> str:
    """Names a point of a curve."""
    return f"{rung}@{pairs}"


def curves_of(state: State) -> dict[str, dict[int, float]]:
    """BLEU of each rung by the number of pairs."""
    curves: dict[str, dict[int, float]] = {}
    for name, value in state.points.items():
        rung, _, pairs = name.rpartition("@")
        curves.setdefault(rung, {})[int(pairs)] = value
    return {rung: dict(sorted(curve.items())) for rung, curve in curves.items()}


def shown_of(listener: Listener, name: str) -> Listener:
    """Passes on what a user wants to see of a run among others, with its name."""

    def emit(event: Event) -> None:
        if event.kind not in SHOWN_EVENTS:
            return
        if "what" in event.values:
            event = replace(event, values={**event.values, "what": f"{name}: {event['what']}"})
        listener(event)

    return emit


def _was_late(outcome: Outcome) -> bool:
    """Whether the best validation was one of the last: single validations go up and down."""
    return outcome.best_step is not None and outcome.best_step >= IMPROVING_SHARE * outcome.step


def _fitting_minutes(model: Path) -> float:
    """The minutes that fitting took, from the card of the model."""
    seconds = read_card(model).trained_on.get("seconds", 0.0)
    return float(seconds) / 60
