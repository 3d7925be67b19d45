"""Saving checkpoints of a run and resuming from them, on all ranks together."""

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from seqloom.core.errors import ModelError, TrainingError, UsageError
from seqloom.core.events import Event, Listener, notice
from seqloom.core.seeds import seed_for
from seqloom.training import checkpoint
from seqloom.training.checkpoint import Checkpoint, Disk
from seqloom.training.distributed import World
from seqloom.training.parallel import ParallelStrategy
from seqloom.training.progress import Progress
from seqloom.training.run_guard import remove_leftovers
from seqloom.training.settings import TrainingConfig
from seqloom.training.weights import for_disk, load_weights

# The global random generators, for models from outside that draw from them; this package never does.
#
# Their states are stored in each checkpoint as tensors, one row per rank: a pickled state could carry code.

_NONE = float("nan")
"""Stands for "no second Gaussian stored", which no drawn number can be."""


def seed_generators(seed: int, rank: int) -> None:
    """Start the global generators of this process from the seed of the run."""
    torch.manual_seed(seed_for(seed, "torch", rank))
    random.seed(seed_for(seed, "python", rank))
    numpy.random.seed(seed_for(seed, "numpy", rank) % 2**32)


def generator_states(device: torch.device) -> dict[str, Tensor]:
    """The states of torch's, Python's and NumPy's global generators."""
    version, words, python_gauss = random.getstate()
    _, keys, position, has_gauss, numpy_gauss = numpy.random.get_state(legacy=True)
    states = {
        "torch": torch.get_rng_state(),
        "python": torch.tensor([version, *words], dtype=torch.int64),
        "python_gauss": torch.tensor([_NONE if python_gauss is None else python_gauss], dtype=torch.float64),
        "numpy": torch.tensor([*map(int, keys), int(position), int(has_gauss)], dtype=torch.int64),
        "numpy_gauss": torch.tensor([numpy_gauss], dtype=torch.float64),
    }
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def restore_generators(states: Mapping[str, Tensor], device: torch.device) -> None:
    """Put the global generators back to where `generator_states` found them."""
    torch.set_rng_state(states["torch"])
    version, *words = states["python"].tolist()
    gauss = states["python_gauss"].item()
    random.setstate((version, tuple(words), None if gauss != gauss else gauss))
    *keys, position, has_gauss = states["numpy"].tolist()
    words_of_numpy = numpy.array(keys, dtype=numpy.uint32)
    numpy.random.set_state(("MT19937", words_of_numpy, position, has_gauss, states["numpy_gauss"].item()))
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)


@contextmanager
def generators_kept(device: torch.device) -> Iterator[None]:
    """Leave the global generators unchanged, whatever draws from them inside: validation must not change a run."""
    states = generator_states(device)
    try:
        yield
    finally:
        restore_generators(states, device)


@dataclass(frozen=True)
class Checkpointer:
    """Saves and restores the state of a run. Every rank calls every method; the first one writes."""

    strategy: ParallelStrategy[Any]
    model: nn.Module
    run: Path
    device: torch.device
    world: World
    disk: Disk
    listener: Listener

    def require_empty(self) -> None:
        """Refuse to start a run where there is one."""

        def check() -> None:
            steps = checkpoint.checkpoint_steps(self.run)
            if steps:
                hint = f"resume it with: seqloom train --resume {self.run}, or name another folder"
                raise UsageError(f"{self.run} already holds a run at step {steps[-1]}; {hint}")

        self.world.first_does(check, what="start a run in this folder")

    def remove_leftovers(self) -> None:
        """Remove unfinished files of a process that died."""
        self.world.first_does(lambda: remove_leftovers(self.run, listener=self.listener), what="tidy the run folder")

    def newest(self, *, strict: bool = False) -> Checkpoint | None:
        """The newest undamaged checkpoint. The first rank chooses it, the others read the same one."""
        found: list[Checkpoint | None] = [None]

        def choose() -> None:
            found[0] = checkpoint.newest_checkpoint(self.run, listener=self.listener, strict=strict)

        self.world.first_does(choose, what="read a checkpoint")
        (step,) = self.world.from_first(-1.0 if found[0] is None else float(found[0].step))
        if step >= 0 and not self.world.is_first:
            found[0] = checkpoint.read_checkpoint(checkpoint.checkpoint_folder(self.run, int(step)))
        return found[0]

    def restore(self, found: Checkpoint, config: TrainingConfig) -> Progress:
        """Restore weights, optimiser, generators and pointers, and finish what a kill after the save interrupted."""
        folder = checkpoint.checkpoint_folder(self.run, found.step)
        remedy = (
            f"If it was copied here from another run, resume that one: seqloom train --resume RUN. Remove {folder} to "
            "resume from the checkpoint before it"
        )
        load_weights(self.model, found.weights, origin=str(folder), remedy=remedy)
        self.strategy.share()
        try:
            self.strategy.restore_optimiser(found.optimiser)
            progress = Progress.from_json(found.state["progress"])
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise ModelError(f"{folder} lacks part of the state of the run ({error}). {remedy}") from error

        def tidy() -> None:
            checkpoint.repair_pointers(self.run, latest=found.step, best=progress.best.step, disk=self.disk)
            self._prune(found.step, config)

        self.world.first_does(tidy, what="write the pointers")
        # Last of all, so that nothing done here can draw from them.
        try:
            if self.world.rank < len(found.generators["torch"]):
                mine = {name: rows[self.world.rank].clone() for name, rows in found.generators.items()}
                restore_generators(mine, self.device)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise ModelError(f"{folder} lacks the states of some generators ({error}). {remedy}") from error
        return progress

    def save(
        self,
        progress: Progress,
        config: TrainingConfig,
        *,
        circumstances: Mapping[str, Any],
        memory: Mapping[str, Tensor],
        is_best: bool,
    ) -> TrainingError | None:
        """Write a checkpoint and remove old ones; the error if the disk failed."""
        generators = {name: self.world.stack(state) for name, state in generator_states(self.device).items()}
        failures: list[TrainingError] = []
        sharded = self.strategy.sharded_state()

        def finish() -> None:
            for part in sharded or ():
                part.finish()

        def write() -> None:
            weights, optimiser = self.strategy.state()
            contents = Checkpoint(
                step=progress.step,
                weights=weights,
                optimiser=optimiser,
                generators=generators,
                state={"progress": progress.to_json(), "circumstances": circumstances},
                memory={name: for_disk(tensor) for name, tensor in memory.items()},
            )
            try:
                folder = checkpoint.write_checkpoint(
                    self.run, contents, is_best=is_best, disk=self.disk, sharded=sharded
                )
            except TrainingError as error:
                failures.append(error)
                return
            finally:
                finish()
            self.listener(Event("saved", {"step": progress.step, "path": str(folder), "is_best": is_best}))
            self._prune(progress.step, config)

        if not self.world.is_first:
            finish()
        self.world.first_does(write, what="save a checkpoint")
        (has_failed,) = self.world.from_first(float(bool(failures)))
        if has_failed and not failures:
            failures.append(TrainingError("rank 0 could not write a checkpoint; its message says why"))
        return failures[0] if failures else None

    def _prune(self, step: int, config: TrainingConfig) -> None:
        limits = {"keep": config.keep, "average": config.average, "save_every": config.save_every}
        try:
            checkpoint.prune(self.run, up_to=step, **limits, disk=self.disk)
        except OSError as error:
            notice(self.listener, f"old checkpoints in {self.run} could not be removed: {error}")
