"""Training runs as the workbench shows them: their state, and what they report while they train.

A run is a folder with `events.jsonl`. The file is read from where the last reading ended, and a line counts once its
line break is there, so a line that is being written, or that a killed process has left behind, is never half read. The
id of an event is the place in the file at which its line ends.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from seqloom.training.run_guard import holder_of

EVENTS = "events.jsonl"

MAX_RUNS = 500
MAX_READ_BYTES = 1 << 20
"""Bytes of a file that are read at once; a longer line is passed over."""
TAIL_BYTES = 64 << 10
"""Bytes at the end of a file in which the last step is looked for."""

RunState = Literal["training", "finished", "stopped"]

CURVES: Mapping[str, Mapping[str, str]] = {
    "step": {"loss": "loss", "norm": "norm", "learning_rate": "rate", "tokens_per_second": "tokens_per_second"},
    "validation": {"loss": "dev_loss", "bleu": "bleu"},
}
"""By kind of event, which of its values are points of which curves."""


def find_runs(folders: Sequence[Path]) -> dict[str, Path]:
    """The runs in some folders by name, the one that has reported last first; of two with a name, the first."""
    found: dict[str, Path] = {}
    for folder in folders:
        try:
            inside = sorted(each for each in folder.iterdir() if each.is_dir())
        except OSError:
            continue
        for run in (folder, *inside):
            if (run / EVENTS).is_file():
                found.setdefault(run.name, run)
    ordered = sorted(found.items(), key=lambda item: -_modified(item[1]))
    return dict(ordered[:MAX_RUNS])


def run_of(model: Path) -> Path:
    """The run that a model would be of: the folder itself, or the one around its `model`."""
    model = model.resolve()
    return model.parent if model.name == "model" else model


def folders_of_runs(models: Sequence[Path]) -> tuple[Path, ...]:
    """Where the runs are of which models are served."""
    runs = [run for run in map(run_of, models) if (run / EVENTS).is_file()]
    return tuple(dict.fromkeys(run.parent for run in runs))


def _modified(run: Path) -> float:
    try:
        return (run / EVENTS).stat().st_mtime
    except OSError:
        return 0.0


@dataclass(frozen=True)
class RunSummary:
    """Where a run is."""

    state: RunState
    step: int
    steps: int | None
    seconds_left: float | None

    def record(self) -> dict[str, Any]:
        """As JSON."""
        return {"state": self.state, "step": self.step, "steps": self.steps, "seconds_left": self.seconds_left}


def summarise_run(run: Path) -> RunSummary:
    """By the first lines and the last ones of what it has reported, and by whether a process holds it."""
    path = run / EVENTS
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(TAIL_BYTES)
            file.seek(max(0, size - TAIL_BYTES))
            tail = file.read(TAIL_BYTES)
    except OSError:
        return RunSummary("stopped", 0, None, None)
    step, steps, left, is_finished = 0, None, None, False
    for data in (head, tail):
        for record in _records(data):
            match record.get("event"):
                case "step" | "validation" | "resumed":
                    step, left, is_finished = _whole(record.get("step"), step), _seconds(record.get("eta")), False
                case "finished":
                    step, left, is_finished = _whole(record.get("step"), step), None, True
                case "model_saved":
                    is_finished = True
            if isinstance(record.get("steps"), int):
                steps = record["steps"]
    state: RunState = "finished" if is_finished else "stopped"
    if not is_finished and holder_of(run) is not None:
        state = "training"
    return RunSummary(state, step, steps, left if state == "training" else None)


def _records(data: bytes) -> Iterator[dict[str, Any]]:
    for line in data.split(b"\n"):
        record = _parsed(line)
        if record is not None:
            yield record


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _whole(value: Any, other: int) -> int:
    return value if isinstance(value, int) else other


def _seconds(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


@dataclass
class EventReader:
    """Reads the events of a run as they are written."""

    path: Path
    place: int = 0
    """Up to where the file has been read."""
    step: int = 0
    """The last step that was reported, to which a rewind is compared."""
    identity: tuple[int, int] | None = None

    def read(self) -> tuple[list[dict[str, Any]], bool]:
        """The points of what was written since the last reading, and whether there is more to read at once."""
        found: list[dict[str, Any]] = []
        try:
            with self.path.open("rb") as file:
                status = os.fstat(file.fileno())
                identity = (status.st_dev, status.st_ino)
                if status.st_size < self.place or self.identity not in (None, identity):  # another file: a new run
                    self.place = self.step = 0
                    found.append({"id": 0, "rewind": 0})
                self.identity = identity
                file.seek(self.place)
                data = file.read(MAX_READ_BYTES)
        except OSError:
            return found, False
        end = data.rfind(b"\n") + 1
        if not end and len(data) == MAX_READ_BYTES:  # no line of ours is so long
            self.place += len(data)
            return found, True
        for line in data[:end].splitlines(keepends=True):
            self.place += len(line)
            if (record := _parsed(line)) is not None:
                found += self._points(record)
        return found, len(data) == MAX_READ_BYTES

    def _points(self, record: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        step, kind = record.get("step"), record.get("event")
        if not isinstance(step, int):
            return
        # Steps after a checkpoint are trained again; a run that was killed before its first one begins anew.
        if kind == "resumed" or (kind == "step" and step <= self.step):
            self.step = step if kind == "resumed" else step - 1
            yield {"id": self.place, "rewind": self.step}
        if kind == "step":
            self.step = step
        names = CURVES.get(str(kind), {})
        values = {new: record[name] for name, new in names.items() if isinstance(record.get(name), int | float)}
        if values:
            yield {"id": self.place, "step": step, **values}
