"""The experiments of the lab. An experiment is imported when it is run, so that a list of them costs nothing."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from seqloom.lab.progress import Say, silent

if TYPE_CHECKING:
    from seqloom.drawing.findings import Finding


class ExperimentFunction(Protocol):
    """Carries out an experiment. The same seed gives the same findings; `say` takes lines of progress."""

    def __call__(self, *, seed: int = 1, quick: bool = False, say: Say = silent) -> "list[Finding]": ...


@dataclass(frozen=True)
class Experiment:
    """A question and the way to its answer."""

    name: str
    question: str
    run: ExperimentFunction
    minutes: float
    """How long it usually takes, on one core that has other things to do as well."""


def _vanishing(*, seed: int = 1, quick: bool = False, say: Say = silent) -> "list[Finding]":
    from seqloom.lab import vanishing

    return vanishing.run(seed=seed, quick=quick, say=say)


def _jacobians(*, seed: int = 1, quick: bool = False, say: Say = silent) -> "list[Finding]":
    from seqloom.lab import jacobians

    return jacobians.run(seed=seed, quick=quick, say=say)


def _spectra(*, seed: int = 1, quick: bool = False, say: Say = silent) -> "list[Finding]":
    from seqloom.lab import spectra

    return spectra.run(seed=seed, quick=quick, say=say)


def _gates(*, seed: int = 1, quick: bool = False, say: Say = silent) -> "list[Finding]":
    from seqloom.lab import gates

    return gates.run(seed=seed, quick=quick, say=say)


def _forget_bias(*, seed: int = 1, quick: bool = False, say: Say = silent) -> "list[Finding]":
    from seqloom.lab import forget_bias

    return forget_bias.run(seed=seed, quick=quick, say=say)


def _butterfly(*, seed: int = 1, quick: bool = False, say: Say = silent) -> "list[Finding]":
    from seqloom.lab import butterfly

    return butterfly.run(seed=seed, quick=quick, say=say)


def _paths(*, seed: int = 1, quick: bool = False, say: Say = silent) -> "list[Finding]":
    from seqloom.lab import paths

    return paths.run(seed=seed, quick=quick, say=say)


def _step_bound(*, seed: int = 1, quick: bool = False, say: Say = silent) -> "list[Finding]":
    from seqloom.lab import step_bound

    return step_bound.run(seed=seed, quick=quick, say=say)


def _horizon(*, seed: int = 1, quick: bool = False, say: Say = silent) -> "list[Finding]":
    from seqloom.lab import horizon

    return horizon.run(seed=seed, quick=quick, say=say)


def _depth(*, seed: int = 1, quick: bool = False, say: Say = silent) -> "list[Finding]":
    from seqloom.lab import depth

    return depth.run(seed=seed, quick=quick, say=say)


def _truncation(*, seed: int = 1, quick: bool = False, say: Say = silent) -> "list[Finding]":
    from seqloom.lab import truncation

    return truncation.run(seed=seed, quick=quick, say=say)


def _bottleneck(*, seed: int = 1, quick: bool = False, say: Say = silent) -> "list[Finding]":
    from seqloom.lab import bottleneck

    return bottleneck.run(seed=seed, quick=quick, say=say)


def _speed(*, seed: int = 1, quick: bool = False, say: Say = silent) -> "list[Finding]":
    from seqloom.lab import speed

    return speed.run(seed=seed, quick=quick, say=say)


def _collapse(*, seed: int = 1, quick: bool = False, say: Say = silent) -> "list[Finding]":
    from seqloom.lab import collapse

    return collapse.run(seed=seed, quick=quick, say=say)


EXPERIMENTS = (
    Experiment("vanishing", "Why do gradients vanish, and which cells keep them?", _vanishing, 0.5),
    Experiment("jacobians", "What do many steps do to a gradient, and which shortcut is wrong?", _jacobians, 0.2),
    Experiment("spectra", "Where do the eigenvalues of matrices and of whole steps lie?", _spectra, 0.2),
    Experiment("gates", "What does each gate of an LSTM do to the gradient of its memory?", _gates, 0.2),
    Experiment("forget-bias", "How does the forget bias set the length of a memory?", _forget_bias, 0.2),
    Experiment("butterfly", "Do two nearly equal states part or meet again?", _butterfly, 0.2),
    Experiment("paths", "Does attention do away with vanishing gradients?", _paths, 0.2),
    Experiment("step-bound", "How much can one step change a loss, and what does clipping do?", _step_bound, 0.1),
    Experiment("horizon", "How many steps back can each cell be taught to remember?", _horizon, 5.0),
    Experiment("depth", "What does depth cost a gradient, and what do ways past the layers save?", _depth, 5.0),
    Experiment("truncation", "What does it cost to cut the gradient through time short?", _truncation, 2.0),
    Experiment("bottleneck", "How does quality fall with length when all must pass one vector?", _bottleneck, 3.0),
    Experiment("speed", "How do recurrence and attention compare in speed as sentences grow?", _speed, 1.0),
    Experiment("collapse", "What happens to word vectors without negative examples?", _collapse, 0.2),
)
