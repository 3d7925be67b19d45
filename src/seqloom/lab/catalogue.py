"""The experiments of the lab. They are imported when one is run, so listing them is cheap."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seqloom.drawing.figures import Finding
    from seqloom.lab.bench import Say


@dataclass(frozen=True)
class Experiment:
    """A question and the experiment that answers it."""

    name: str
    question: str
    minutes: float
    """Usual duration on one core of a busy machine."""

    def run(self, *, seed: int = 1, quick: bool = False, say: "Say" = lambda _line: None) -> "list[Finding]":
        """Run the experiment. The same seed gives the same findings; `say` takes lines of progress."""
        from seqloom.lab import (
            bottleneck,
            butterfly,
            collapse,
            depth,
            few_shot,
            forget_bias,
            gates,
            horizon,
            jacobians,
            paths,
            spectra,
            speed,
            step_bound,
            truncation,
            vanishing,
            window,
        )

        modules = (bottleneck, butterfly, collapse, depth, few_shot, forget_bias, gates, horizon, jacobians, paths)
        by_name = {
            module.__name__.rpartition(".")[2]: module.run
            for module in (*modules, spectra, speed, step_bound, truncation, vanishing, window)
        }
        findings: list[Finding] = by_name[self.name.replace("-", "_")](seed=seed, quick=quick, say=say)
        return findings


EXPERIMENTS = (
    Experiment("vanishing", "Why do gradients vanish, and which cells keep them?", 0.5),
    Experiment("jacobians", "What do many steps do to a gradient, and which shortcut is wrong?", 0.2),
    Experiment("spectra", "Where do the eigenvalues of matrices and of whole steps lie?", 0.2),
    Experiment("gates", "What does each gate of an LSTM do to the gradient of its memory?", 0.2),
    Experiment("forget-bias", "How does the forget bias set the length of a memory?", 0.2),
    Experiment("butterfly", "Do two nearly equal states part or meet again?", 0.2),
    Experiment("paths", "Does attention remove vanishing gradients?", 0.2),
    Experiment("step-bound", "How much can one step change a loss, and what does clipping do?", 0.1),
    Experiment("horizon", "How many steps back can each cell be taught to remember?", 5.0),
    Experiment("depth", "What does depth cost a gradient, and what do skip connections save?", 5.0),
    Experiment("truncation", "What does it cost to cut the gradient through time short?", 2.0),
    Experiment("bottleneck", "How does quality fall with length when all must pass one vector?", 3.0),
    Experiment("speed", "How do recurrence and attention compare in speed as sentences grow?", 1.0),
    Experiment("window", "What does attention cost as texts grow, and what does a window save?", 1.0),
    Experiment("few-shot", "How many examples in its prompt does a model need for a mapping it has never seen?", 1.0),
    Experiment("collapse", "What happens to word vectors without negative examples?", 0.2),
)
