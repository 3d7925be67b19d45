"""A line of work: what translation, language modelling and fitting each bring to a run.

All runs share a directory, a journal, checkpoints, resuming and the model directory at the end (`prepare`, `train`). A
line of work says how its text is opened and stored, which sizes suit it, what its model is trained for, and how the
result is measured.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from torch import nn

from seqloom.core.events import Listener
from seqloom.metrics.translation import Score
from seqloom.runs.config import RunConfig
from seqloom.runs.loading import LoadedModel
from seqloom.runs.sizing import Sizing
from seqloom.text.tokenizer import Tokenizers
from seqloom.training.progress import Outcome
from seqloom.training.task import Task

# Where the ids of a run are stored, whatever they are ids of.


def clear_stored(run: Path, name: str) -> None:
    """Make room for new ids: what stands there was found unfit, or is what a killed encoding has left half-made."""
    for folder in (run / "data" / name, *(run / "data").glob(f"{name}.partial-*")):
        shutil.rmtree(folder, ignore_errors=True)


class Text(Protocol):
    """The text of a run, opened and checked."""

    @property
    def fingerprints(self) -> Mapping[str, str]:
        """Hashes, by which a resume notices that it has changed."""
        ...

    @property
    def size(self) -> Mapping[str, int]:
        """How much there is of it, in the unit that suits it: `{"pairs": 29000}`."""
        ...


class Prepared(Protocol):
    """What was made of the text."""

    @property
    def tokenizers(self) -> Tokenizers: ...


T = TypeVar("T", bound=Text)
P = TypeVar("P", bound=Prepared)
P_co = TypeVar("P_co", bound=Prepared, covariant=True)


@dataclass(frozen=True)
class Choice:
    """Sizes for the text at hand, and settings of the data that follow from the names of its files."""

    sizing: Sizing
    data: Mapping[str, Any] = field(default_factory=dict)


class Work(Protocol[T, P_co]):
    """How text becomes what a model learns from."""

    @property
    def files(self) -> str:
        """How its training files are given on the command line."""
        ...

    @property
    def fixed(self) -> tuple[str, ...]:
        """Settings of the task that cannot change while a run goes on, besides those of every run."""
        ...

    def settled(self, first: RunConfig) -> Mapping[str, Any]:
        """Settings that `choose` gives whatever the text is."""
        ...

    def choose(self, first: RunConfig, files: Sequence[Path], *, steps: int | None) -> Choice:
        """Look at the text and choose sizes for it; `steps` are those asked for, if any."""
        ...

    def open_text(self, config: RunConfig, *, listener: Listener) -> T:
        """Open and check the text of a run, and hold a part of it out where there are no dev files."""
        ...

    def learn_tokenizers(self, config: RunConfig, text: T, *, listener: Listener) -> Tokenizers:
        """Learn how to cut the training text into pieces."""
        ...

    def encode(self, run: Path, config: RunConfig, *, text: T, tokenizers: Tokenizers, listener: Listener) -> None:
        """Store the text as ids below `run`/data, and say what became of it."""
        ...

    def open_prepared(self, run: Path) -> P_co:
        """What `encode` stored, after every file of it was found to be whole."""
        ...


class TaskWithLoss(Task[Any], Protocol):
    """A task that can tell the dev loss alone, by which the final weights are chosen."""

    def dev_loss(self, model: nn.Module) -> float: ...


class TrainedWork(Work[T, P], Protocol[T, P]):
    """A line of work whose models are trained step by step."""

    def require_model(self, model: nn.Module) -> None:
        """Refuse a model that lacks what the task needs."""
        ...

    def task(self, config: RunConfig, prepared: P, *, device: torch.device, listener: Listener) -> TaskWithLoss:
        """What the model is trained for, with its data; `listener` is told what is odd about validations."""
        ...

    def languages(self, config: RunConfig) -> tuple[str | None, str | None]:
        """Source and target language, for the card of the model."""
        ...

    def trained_on(self, config: RunConfig, prepared: P, *, outcome: Outcome) -> dict[str, Any]:
        """What the model was trained on, for its card."""
        ...

    def measure(self, loaded: LoadedModel, prepared: P, *, listener: Listener) -> tuple[Score, ...]:
        """Scores of the finished model on the dev text."""
        ...

    def scored_lines(self, prepared: P) -> int:
        """How many lines of the dev text these scores are of."""
        ...
