"""What a comparison compares: an order, and the data of a task with how a rung is measured on it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from seqloom.compare.results import Result
from seqloom.compare.rungs import Rung
from seqloom.text.formats.segments import Languages

PAIRS = "translation"
"""The kind of a comparison of translators."""

Clock = Callable[[], float]


@dataclass(frozen=True)
class Order:
    """What is to be compared."""

    train: tuple[Path, ...]
    dev: tuple[Path, ...] = ()
    test: tuple[Path, ...] = ()
    minutes: float = 60.0
    rungs: tuple[Rung, ...] = ()
    languages: Languages = (None, None)
    encoding: str = "utf-8"
    seed: int = 1
    kind: str = PAIRS
    """The task, as task.kind names it."""
    settings: tuple[str, ...] = ()
    """Settings of all rungs, of tasks other than translation."""

    def record(self) -> dict[str, Any]:
        """What must be the same when a comparison is resumed, as JSON."""
        return {
            "train": [str(path) for path in self.train],
            "dev": [str(path) for path in self.dev],
            "test": [str(path) for path in self.test],
            "rungs": [rung.name for rung in self.rungs],
            "configs": {rung.name: str(rung.config) for rung in self.rungs if rung.config is not None},
            "languages": list(self.languages),
            "encoding": self.encoding,
            "seed": self.seed,
            "minutes": self.minutes,
            **({} if self.kind == PAIRS else {"kind": self.kind, "settings": list(self.settings)}),
        }


def is_of_pairs(record: Mapping[str, Any]) -> bool:
    """Whether the record of an order is that of a comparison of translators."""
    return bool(record.get("kind", PAIRS) == PAIRS)


class Subject(Protocol):
    """The sets of a comparison, and how a rung is measured."""

    @property
    def sizes(self) -> Sequence[int]:
        """Parts of the training set on which rungs are measured too; none draws no curves."""
        ...

    def size(self) -> int:
        """The size of the training set."""
        ...

    def prepare(self) -> None:
        """Write the sets, or read them if they are there."""
        ...

    def examine(self) -> dict[str, Any] | None:
        """What the doctor finds in them; None if he does not know such data."""
        ...

    def files(self, part: str) -> list[str]:
        """The names of the files of a set: train, dev, or train-SIZE."""
        ...

    def overrides(self) -> list[str]:
        """Settings of all rungs."""
        ...

    def count(self, rung: Rung, folder: Path) -> Result:
        """Fit and measure a rung that only counts and is no run."""
        ...

    def measure(self, rung: Rung, run: Path, *, minutes: float, is_improving: bool) -> Result:
        """Measure the model of a run on the test set."""
        ...

    def score_point(self, run: Path, what: str) -> float:
        """The main score of a run that was trained on a part of the training set; `what` is for progress."""
        ...
