"""The experiments of the lab. An experiment is imported when it is run, so listing them is cheap."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from seqloom.drawing.figures import Finding
    from seqloom.lab.bench import Say


class ExperimentFunction(Protocol):
    """Runs an experiment. The same seed gives the same findings; `say` takes lines of progress."""

    def __call__(self, *, seed: int = ..., quick: bool = ..., say: "Say" = ...) -> "list[Finding]": ...


@dataclass(frozen=True)
class Experiment:
    """A question and the experiment that answers it."""

    name: str
    question: str
    run: ExperimentFunction
    minutes: float
    """Usual duration on one core of a busy machine."""


def _run(name: str, *, seed: int = 1, quick: bool = False, say: "Say" = lambda _line: None) -> "list[Finding]":
    match name:
        case "vanishing":
            from seqloom.lab.vanishing import run
        case "jacobians":
            from seqloom.lab.jacobians import run
        case "spectra":
            from seqloom.lab.spectra import run
        case "gates":
            from seqloom.lab.gates import run
        case "forget-bias":
            from seqloom.lab.forget_bias import run
        case "butterfly":
            from seqloom.lab.butterfly import run
        case "paths":
            from seqloom.lab.paths import run
        case "step-bound":
            from seqloom.lab.step_bound import run
        case "horizon":
            from seqloom.lab.horizon import run
        case "depth":
            from seqloom.lab.depth import run
        case "truncation":
            from seqloom.lab.truncation import run
        case "bottleneck":
            from seqloom.lab.bottleneck import run
        case "speed":
            from seqloom.lab.speed import run
        case "collapse":
            from seqloom.lab.collapse import run
        case _:
            raise AssertionError(name)
    return run(seed=seed, quick=quick, say=say)


def _experiment(name: str, question: str, minutes: float) -> Experiment:
    return Experiment(name, question, partial(_run, name), minutes)


EXPERIMENTS = (
    _experiment("vanishing", "Why do gradients vanish, and which cells keep them?", 0.5),
    _experiment("jacobians", "What do many steps do to a gradient, and which shortcut is wrong?", 0.2),
    _experiment("spectra", "Where do the eigenvalues of matrices and of whole steps lie?", 0.2),
    _experiment("gates", "What does each gate of an LSTM do to the gradient of its memory?", 0.2),
    _experiment("forget-bias", "How does the forget bias set the length of a memory?", 0.2),
    _experiment("butterfly", "Do two nearly equal states part or meet again?", 0.2),
    _experiment("paths", "Does attention do away with vanishing gradients?", 0.2),
    _experiment("step-bound", "How much can one step change a loss, and what does clipping do?", 0.1),
    _experiment("horizon", "How many steps back can each cell be taught to remember?", 5.0),
    _experiment("depth", "What does depth cost a gradient, and what do skip connections save?", 5.0),
    _experiment("truncation", "What does it cost to cut the gradient through time short?", 2.0),
    _experiment("bottleneck", "How does quality fall with length when all must pass one vector?", 3.0),
    _experiment("speed", "How do recurrence and attention compare in speed as sentences grow?", 1.0),
    _experiment("collapse", "What happens to word vectors without negative examples?", 0.2),
)
