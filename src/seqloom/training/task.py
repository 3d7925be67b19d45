"""The Task protocol: batches, losses and validation. The trainer knows nothing else of a job."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

from jaxtyping import Float
from torch import Tensor, nn

Batch = TypeVar("Batch")


@dataclass(frozen=True)
class Loss:
    """A sum with the number of things it sums over (target tokens, say). Only the trainer divides."""

    total: Float[Tensor, ""]
    count: int


class Task(Protocol[Batch]):
    """A job with its data. Batches are a pure function of (epoch, index): the position in the data is two integers."""

    def batches(self, epoch: int) -> int:
        """How many batches this epoch has; the same on every rank."""
        ...

    def batch(self, epoch: int, index: int) -> Batch:
        """One batch on the task's device."""
        ...

    def count(self, batch: Batch) -> int:
        """What `loss` will count for this batch, known before it is computed."""
        ...

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        """The summed loss of a batch."""
        ...

    def validate(self, model: nn.Module) -> Mapping[str, float]:
        """Figures on held-out data, for a model in evaluation mode; "loss" (per count) must be among them."""
        ...

    def describe(self, batch: Batch) -> str:
        """Which data a batch holds, for messages: "32 pairs, lines 17, 203, 511 …"."""
        ...

    def fingerprint(self) -> str:
        """A hash of the training data, to notice at a resume that it has changed."""
        ...


@runtime_checkable
class StatefulTask(Protocol):
    """A task that may carry a state from batch to batch, such as that of a language model.

    Batches are then used in order, by one rank, and the carried state is part of each checkpoint.
    """

    @property
    def has_memory(self) -> bool:
        """Whether it does."""
        ...

    def memory(self) -> Mapping[str, Tensor]:
        """The state for the next batch."""
        ...

    def restore_memory(self, memory: Mapping[str, Tensor]) -> None:
        """Restore what `memory` returned."""
        ...


@dataclass(frozen=True)
class Guard:
    """A figure of the validations that must not fall so many times in a row."""

    figure: str
    """Its name among the figures."""
    name: str
    """What messages call it."""
    falls: int
    """Validations in a row, each lower than the one before, after which training ends; 0 never ends it."""


@runtime_checkable
class Guarded(Protocol):
    """A task whose training may get worse without a higher loss, such as one that makes its own training pairs."""

    @property
    def guard(self) -> Guard | None:
        """The figure that shows it."""
        ...


@runtime_checkable
class Prepares(Protocol):
    """A task whose loss needs a model to start in a certain way, such as with biases that fit the data."""

    def prepare(self, model: nn.Module) -> None:
        """Change a model before its first step. What was trained already must stay as it is."""
        ...


@dataclass(frozen=True)
class Chance:
    """The dev loss of a guess that has learned nothing; a model that ends above it has failed."""

    loss: float
    guess: str
    """What is guessed among: "6 classes"."""
    is_overfit_normal: bool = False
    """Whether the dev loss often rises above it at the end although the best weights are good."""
    examples: int | None = None
    """Dev examples, if few of them may have a high loss by accident."""


@runtime_checkable
class HasChance(Protocol):
    """A task that knows the loss of a guess; others are compared with a uniform guess among the target symbols."""

    @property
    def chance(self) -> Chance | None:
        """None if there is no such guess."""
        ...


def as_stateful(task: object) -> StatefulTask | None:
    """The task, if it carries a state."""
    return task if isinstance(task, StatefulTask) and task.has_memory else None
