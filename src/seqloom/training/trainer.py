"""The trainer: one loop for every model and every task.

    collect batches → counts over ranks → backward → clip → step → schedule → event → validate → save

The gradient of a step is that of Σ loss / Σ count over all its batches on all ranks, however they are distributed.
A loss or gradient that is not finite changes no weight; the step still counts, so that the position in the data, the
schedule and the step number always move together.
"""

import ctypes
import math
import platform
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from signal import Signals as SystemSignals
from typing import Any, Generic, Literal

import torch
from torch import Tensor, nn

from seqloom.core.errors import DataError, ModelError, Stopped, TrainingError, is_out_of_memory
from seqloom.core.events import Event, Listener, Value, ignore, notice
from seqloom.core.seeds import seed_for
from seqloom.nn.dropout import reseed
from seqloom.training import schedules
from seqloom.training.checkpoint import Disk
from seqloom.training.checkpointer import Checkpointer, generators_kept, seed_generators
from seqloom.training.distributed import World, alone
from seqloom.training.fsdp import choose_strategy
from seqloom.training.optimisers import clip_by_norm, clip_by_value, freeze, global_norm, gradients, set_rate
from seqloom.training.parallel import ParallelStrategy
from seqloom.training.progress import Outcome, Progress, Share, deal
from seqloom.training.resume import changed_settings, check_circumstances, circumstances
from seqloom.training.run_guard import STOPPING, ImmediateStop, Signals, locked
from seqloom.training.settings import TrainingConfig
from seqloom.training.sparse_updates import choose_row_gradients, gradient_values
from seqloom.training.task import Batch, Guard, Guarded, Prepares, Task, as_stateful
from seqloom.training.weights import unusable_weights


def keep_freed_memory() -> bool:
    """Make glibc keep freed memory; whether it accepted that. On other systems nothing happens.

    By default glibc returns large blocks to the kernel as soon as they are freed, and a training step allocates the
    same activations again, which are then zeroed and mapped page by page. Here no block is mapped for itself, the heap
    is not trimmed, and it grows in large pieces. The price is that the process stays as large as it once was.
    """
    if platform.system() != "Linux" or platform.libc_ver()[0] != "glibc":
        return False
    trim_threshold, top_pad, mmap_max = -1, -2, -4  # from <malloc.h> of glibc
    settings = ((mmap_max, 0), (trim_threshold, 2**31 - 1), (top_pad, 64 << 20))
    library = ctypes.CDLL(None)
    return all(library.mallopt(ctypes.c_int(name), ctypes.c_int(value)) == 1 for name, value in settings)


# What a run reports of its steps.

_SHOWN = 3
_MAX_LAYERS_SHOWN = 12


@dataclass(frozen=True)
class Measured:
    """The measurements of a step, the same on all ranks."""

    loss: float
    """Sum over all batches of the step."""
    count: int
    """What it sums over."""
    norm: float
    """Length of the gradient before clipping."""
    rate: float
    """Learning rate of the step."""
    signal: int
    """Exit code of a signal that some rank has received; 0 without one."""

    @property
    def is_finite(self) -> bool:
        """Whether loss and gradient are numbers to learn from."""
        return math.isfinite(self.loss) and math.isfinite(self.norm)


class Pace:
    """The clock of a process, for reports only."""

    def __init__(self, progress: Progress) -> None:
        self._first = self._last = progress
        self._started = time.perf_counter()
        self._aside = 0.0

    def seconds(self) -> float:
        """Seconds in the loop so far, in earlier processes too."""
        return self._first.seconds + time.perf_counter() - self._started

    def leave_out(self, seconds: float) -> None:
        """Exclude seconds without training, such as those of a validation, from the speed."""
        self._aside += seconds

    def figures(self, progress: Progress, *, steps: int, minutes: float = 0.0) -> dict[str, Value]:
        """Speed since the last call, and the seconds that are left at the mean pace of this process."""
        since_last = progress.seconds - self._last.seconds - self._aside
        per_step = (progress.seconds - self._first.seconds) / max(1, progress.step - self._first.step)
        speed = (progress.tokens - self._last.tokens) / since_last if since_last > 0 else 0.0
        self._last, self._aside = progress, 0.0
        eta = per_step * (steps - progress.step)
        if minutes:
            eta = min(eta, max(0.0, 60 * minutes - progress.seconds))
        return {"seconds": progress.seconds, "tokens_per_second": speed, "eta": eta}


def layer_norms(parameters: Mapping[str, nn.Parameter]) -> dict[str, float]:
    """The norm of the gradient of each layer: parameters whose names agree up to their first number.

    encoder.layers.0.attention.weight belongs to encoder.layers.0, output.weight to output.
    """
    squares: dict[str, float] = {}
    for name, parameter in parameters.items():
        values = gradient_values(parameter)
        if values is not None:
            parts = name.split(".")
            layer = ".".join(parts[: next((at for at, part in enumerate(parts) if part.isdigit()), 0) + 1])
            squares[layer] = squares.get(layer, 0.0) + values.detach().double().square().sum().item()
    return {layer: math.sqrt(square) for layer, square in squares.items()}


def in_words(norms: Mapping[str, float]) -> str:
    """Norms of layers in a sentence: "encoder.0 nan, encoder.1 0.31 …"."""
    shown = [f"{layer} {norm:.3g}" for layer, norm in list(norms.items())[:_MAX_LAYERS_SHOWN]]
    more = len(norms) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


MAX_FAILED_SAVES = 3
"""Failed saves in a row after which a run ends: its progress would be lost."""


class Trainer(Generic[Batch]):
    """Trains a model on a task in a run folder, and resumes where an earlier process stopped."""

    def __init__(
        self,
        model: nn.Module,
        task: Task[Batch],
        config: TrainingConfig,
        *,
        run: Path,
        seed: int,
        device: torch.device,
        listener: Listener = ignore,
        world: World | None = None,
        disk: Disk | None = None,
    ) -> None:
        self.world = world or alone(device)
        self.model = model.to(device)
        self.task = task
        self.config = config
        self.run, self.seed, self.device = run, seed, device
        self.listener = listener if self.world.is_first else ignore
        freeze(self.model, config.freeze)
        choose_row_gradients(self.model, task, updates=config.table_updates, world=self.world, listener=self.listener)
        self.strategy: ParallelStrategy[Batch] = choose_strategy(
            self.model, task, config, world=self.world, listener=self.listener
        )
        self.checkpointer = Checkpointer(
            self.strategy,
            self.model,
            run=run,
            device=device,
            world=self.world,
            disk=disk or Disk(),
            listener=self.listener,
        )
        self._data = task.fingerprint()
        self.progress = Progress()
        self.saved_step: int | None = None
        self._signals = Signals()
        self._pace = Pace(self.progress)
        self._bad_steps: list[str] = []
        """Where the last non-finite steps were."""
        self._is_out_of_time = False
        """Whether training.minutes are over, the same on all ranks."""
        self._must_save = False
        self._last_loss: float | None = None
        self._failed_saves = 0
        """Saves that have failed since the last that succeeded."""

    def train(
        self,
        resume: bool = False,
        *,
        exact: bool = False,
        allow_data_change: bool = False,
        strict: bool = False,
        strict_save: bool = False,
    ) -> Outcome:
        """Start or resume, and train to the last step, or until patience ends. See `started`."""
        with self.started(
            resume, exact=exact, allow_data_change=allow_data_change, strict=strict, strict_save=strict_save
        ):
            return self.run_steps()

    @contextmanager
    def started(
        self,
        resume: bool = False,
        *,
        exact: bool = False,
        allow_data_change: bool = False,
        strict: bool = False,
        strict_save: bool = False,
    ) -> Iterator[None]:
        """Hold the lock of the run with the model as it is, or as in the newest undamaged checkpoint; then `run_steps`.

        A signal raises `Stopped` after the current step is done and saved; a second SIGINT does so immediately. `exact`
        refuses a resume that could not give the same bits, `allow_data_change` allows one on changed data, `strict`
        refuses to fall back from a damaged checkpoint, and `strict_save` ends the run when one cannot be written.
        """
        self._must_save = strict_save
        keep_freed_memory()
        if self.config.threads:
            torch.set_num_threads(self.config.threads)
        with ExitStack() as stack:
            self.world.first_does(lambda: stack.enter_context(locked(self.run)), what="lock the run folder")
            self._signals = stack.enter_context(Signals())
            try:
                self._begin(resume=resume, exact=exact, allow_data_change=allow_data_change, strict=strict)
                yield
            except ImmediateStop:
                raise Stopped(f"stopped immediately by a second SIGINT. {self._how_to_resume()}", 130) from None
            finally:
                self.strategy.close()

    def run_steps(self) -> Outcome:
        """Train to the last step, or until patience ends; the model has all its weights afterwards."""
        outcome = self._loop()
        self.strategy.gather()
        if self._signals.received is not None:  # in the last validation, or while the last step was saved
            raise self._stopped(128 + self._signals.received)
        return outcome

    def _loop(self) -> Outcome:
        if self._end() is not None:
            return self._finish("nothing to do")
        self.strategy.learner.train()
        self._pace = Pace(self.progress)
        while True:
            share = self._next_share()
            batches = [None if index is None else self.task.batch(share.epoch, index) for index in share.mine]
            count = self.world.count(sum(self.task.count(batch) for batch in batches if batch is not None))
            losses = self._backward(share, batches, count=count)
            measured = self._measure(losses, count=count)
            if measured.is_finite:
                self._update(measured)
            self._advance(share, measured)
            if not measured.is_finite:
                self._report_bad_step(share, measured, losses)
            self._report_step(measured)
            is_best = self._validate()
            end = self._end()
            if is_best or end or measured.signal or self.progress.step % self.config.save_every == 0:
                self._save(is_best=is_best, is_last_act=bool(end or measured.signal))
            if end:
                return self._finish(end)
            if measured.signal:
                raise self._stopped(measured.signal)

    # --- one step ----------------------------------------------------------------------------------------------------

    def _next_share(self) -> Share:
        """The next batches of the epoch, or the first of the next one: a step never crosses an epoch."""
        epoch, first = self.progress.epoch, self.progress.index
        total = self.task.batches(epoch)
        if 0 < total <= first:
            epoch, first, total = epoch + 1, 0, self.task.batches(epoch + 1)
        if total == 0:
            raise DataError(f"epoch {epoch} has no batches: the training data is empty, or all of it was filtered out")
        last = min(total, first + self.config.batches_per_step)
        return deal(epoch, first, last, rank=self.world.rank, ranks=self.world.size)

    def _backward(self, share: Share, batches: list[Batch | None], *, count: int) -> list[Tensor]:
        """Add up the gradients of the mean loss; the summed losses of this rank's batches, still on the device."""
        self.strategy.clear()
        # Ranks average their gradients, so each loss is multiplied by their number: Σ loss · ranks / Σ count.
        scale = self.world.size / max(1, count)
        losses = []
        for position, (index, batch) in enumerate(zip(share.mine, batches, strict=True)):
            is_idle = index is None
            if index is None and self.strategy.is_sharded:
                # The other ranks wait for this one in every layer: it computes the batch of another rank with weight 0.
                index = share.stand_in(position, ranks=self.world.size)
                batch = self.task.batch(share.epoch, index)
            # Noise belongs to the batch, not to the rank that computes it nor to what came before.
            reseed(self.strategy.learner, seed_for(self.seed, "dropout", share.epoch, -1 if index is None else index))
            is_last = position == len(batches) - 1
            with nullcontext() if is_last else self.strategy.no_sync():
                try:
                    loss = self.strategy.loss(batch)
                    (loss * (0.0 if is_idle else scale)).backward()
                except (MemoryError, RuntimeError) as error:
                    if not is_out_of_memory(error) or batch is None:
                        raise
                    # A batch that is too large is an error: dropping it would change what is learned.
                    raise TrainingError(
                        f"step {self.progress.step + 1}: not enough memory for batch {index} of epoch {share.epoch} "
                        f"({self.task.describe(batch)}). Start a run with a smaller data.tokens_per_batch, or with a "
                        "smaller data.longest, which leaves out the longest sentences; or resume this one on a machine "
                        f"with more memory. {self._how_to_resume()}"
                    ) from error
            losses.append(torch.zeros_like(loss) if is_idle else loss.detach())
        self.strategy.collect()
        return losses

    def _measure(self, losses: list[Tensor], *, count: int) -> Measured:
        """Loss, norm and signals, over all ranks. The step waits for the device here, and only here."""
        norm = global_norm(gradients(self.strategy.counted.values()))
        total = torch.stack(losses).sum()
        loss_here, norm_here = torch.stack([total, norm.to(total.dtype)]).tolist()
        is_asked = [float(self._signals.received is number) for number in STOPPING]
        is_late = float(self._minutes_are_over(self._pace.seconds()))
        loss, squares, late, *asked = self.world.sum(loss_here, norm_here * norm_here, is_late, *is_asked)
        self._is_out_of_time = late > 0
        return Measured(
            loss=loss,
            count=count,
            norm=math.sqrt(squares) if self.strategy.is_sharded else norm_here,
            rate=self.config.learning_rate * self._factor(self.progress.step + 1),
            signal=next((128 + number for number, ranks in zip(STOPPING, asked, strict=True) if ranks), 0),
        )

    def _update(self, measured: Measured) -> None:
        """Clip, then step."""
        if self.config.clip_norm:
            clip_by_norm(gradients(self.strategy.parameters.values()), self.config.clip_norm, norm=measured.norm)
        elif self.config.clip_value:
            clip_by_value(gradients(self.strategy.parameters.values()), self.config.clip_value)
        set_rate(self.strategy.optimiser, measured.rate)
        self.strategy.optimiser.step()

    def _factor(self, step: int) -> float:
        config, warmup = self.config, self.config.warmup
        match config.schedule:
            case "constant":
                return schedules.warm_up(step, warmup=warmup)
            case "inverse_sqrt":
                return schedules.inverse_sqrt(step, warmup=warmup)
            case "cosine":
                return schedules.cosine(step, warmup=warmup, steps=config.steps)
            case "plateau":
                falls = self.progress.plateau.falls
                return schedules.plateau(step, warmup=warmup, factor=config.plateau_factor, falls=falls)

    def _advance(self, share: Share, measured: Measured) -> None:
        before, is_good = self.progress, measured.is_finite
        self.progress = replace(
            before,
            step=before.step + 1,
            epoch=share.epoch,
            index=share.last,
            tokens=before.tokens + measured.count,
            seconds=self._pace.seconds(),
            bad_steps=0 if is_good else before.bad_steps + 1,
            skipped=before.skipped + (not is_good),
            logged_loss=before.logged_loss + (measured.loss if is_good else 0.0),
            logged_count=before.logged_count + (measured.count if is_good else 0),
        )

    # --- reports -----------------------------------------------------------------------------------------------------

    def _report_step(self, measured: Measured) -> None:
        progress, steps = self.progress, self.config.steps
        if progress.step % self.config.log_every == 0 or progress.step == steps:
            values: dict[str, Value] = {
                "step": progress.step,
                "epoch": progress.epoch,
                "loss": progress.logged_loss / progress.logged_count if progress.logged_count else None,
                "learning_rate": measured.rate,
                "norm": measured.norm,
                "tokens": progress.tokens,
            }
            self.listener(
                Event("step", {**values, **self._pace.figures(progress, steps=steps, minutes=self.config.minutes)})
            )
            self.progress = replace(progress, logged_loss=0.0, logged_count=0)

    def _report_bad_step(self, share: Share, measured: Measured, losses: list[Tensor]) -> None:
        """Report the batches and gradients of a step that changed no weight; end the run after too many in a row.

        The batch may belong to another rank, but each rank can load every batch: it is a function of its position.
        """
        task, strategy, world, progress = self.task, self.strategy, self.world, self.progress
        pairs = zip(share.mine, losses, strict=True)
        mine = [index for index, loss in pairs if index is not None and not math.isfinite(loss.item())]
        found = world.least(mine[0] if mine else share.last)
        # The first batch with such a loss, or else all of the step.
        batches = [found] if found < share.last else list(range(share.first, share.last))
        bad_here = [
            (values := gradient_values(parameter)) is not None and not bool(torch.isfinite(values).all())
            for parameter in strategy.parameters.values()
        ]
        bad_ranks = zip(strategy.parameters, world.sum(*map(float, bad_here)), strict=True)
        bad = [name for name, ranks in bad_ranks if ranks]
        texts = [f"batch {index} ({task.describe(task.batch(share.epoch, index))})" for index in batches[:_SHOWN]]
        where = f"epoch {share.epoch}, {', '.join(texts)}{', …' if batches[_SHOWN:] else ''}"
        if bad:
            more = f" and {len(bad) - _SHOWN} more" if bad[_SHOWN:] else ""
            where += f"; non-finite gradients: {', '.join(bad[:_SHOWN])}{more}"
        norms = layer_norms(strategy.parameters)
        if strategy.is_sharded:
            # Every rank has the same layers, since all have a gradient of the same parameters.
            counted = layer_norms(strategy.counted)
            squares = world.sum(*(counted.get(layer, 0.0) * counted.get(layer, 0.0) for layer in norms))
            norms = {layer: math.sqrt(square) for layer, square in zip(norms, squares, strict=True)}
        in_a_row, limit = progress.bad_steps, self.config.bad_steps
        loss = measured.loss / max(1, measured.count)
        figures: dict[str, Value] = {"loss": loss, "norm": measured.norm, "in_a_row": in_a_row}
        place: dict[str, Value] = {"step": progress.step, "epoch": share.epoch, "batches": batches}
        self.listener(Event("bad_step", {**place, **figures, "norms": norms, "where": where}))
        shown = f"epoch {share.epoch}, batch {', '.join(map(str, batches[:_SHOWN]))}"
        self._bad_steps = [*self._bad_steps[-limit:], shown]
        if in_a_row >= limit:
            earlier = self._bad_steps[-in_a_row:-1]
            before = f" The steps before it: {'; '.join(earlier)}." if earlier else ""
            raise TrainingError(
                f"step {progress.step}: loss {loss:g} and gradient norm {measured.norm:g}; with this one, {in_a_row} "
                f"steps in a row were not finite (training.bad_steps={limit}). Batches: {where}.{before} Gradient "
                f"norms by layer: {in_words(norms)}. Training has diverged, or these data are invalid: start a new "
                f"run with a lower training.learning_rate, now {self.config.learning_rate:g}, or with "
                f"another training.clip_norm, now {self.config.clip_norm:g}. {self._how_to_resume()}"
            )

    # --- validation and the end --------------------------------------------------------------------------------------

    def _validate(self) -> bool:
        """Validate if it is due; whether this is the best loss so far.

        The first rank validates and sends the loss to the others, so that all ranks decide the same.
        """
        config, progress = self.config, self.progress
        is_last = progress.step == config.steps or self._is_out_of_time
        if not config.validate_every or (progress.step % config.validate_every and not is_last):
            return False
        figures: dict[str, float] = {}
        with self.strategy.full_model():
            self.world.first_does(lambda: figures.update(self._figures()), what="validate the model")
        guard = self._guard()
        loss, guarded = self.world.from_first(figures.get("loss", 0.0), figures.get(guard.figure if guard else "", 0.0))
        self._last_loss = loss
        if guard is not None:
            progress = progress.after_guarded(guarded)
        best = progress.best.after(loss, progress.step)
        plateau = progress.plateau.after(loss, patience=config.plateau_patience)
        self.progress = replace(progress, best=best, plateau=plateau, seconds=self._pace.seconds())
        self._pace.leave_out(self.progress.seconds - progress.seconds)
        is_best = best.step == progress.step
        values = {"step": progress.step, "epoch": progress.epoch, **figures, "is_best": is_best}
        self.listener(Event("validation", {**values, "seconds": self.progress.seconds}))
        return is_best

    def _figures(self) -> Mapping[str, float]:
        with generators_kept(self.device), torch.no_grad():
            self.model.eval()
            try:
                figures = self.task.validate(self.model)
            except ModelError as error:  # the weights are finite, but not what is computed from them
                rate = self.config.learning_rate
                raise TrainingError(
                    f"training has diverged: after step {self.progress.step} the model cannot be validated ({error}). "
                    f"Start a new run with a lower training.learning_rate, now {rate:g}. {self._how_to_resume()}"
                ) from error
            self.model.train()
        if "loss" not in figures:
            raise TrainingError(f'{type(self.task).__name__}.validate gave {sorted(figures)}, without "loss"')
        return figures

    def _minutes_are_over(self, seconds: float) -> bool:
        return 0 < 60 * self.config.minutes <= seconds

    def _guard(self) -> Guard | None:
        return self.task.guard if isinstance(self.task, Guarded) else None

    def _end(self) -> Literal["steps", "minutes", "patience", "falls"] | None:
        if self.progress.step >= self.config.steps:
            return "steps"
        if self._is_out_of_time:
            return "minutes"
        guard = self._guard()
        if guard is not None and 0 < guard.falls < len(self.progress.falling):
            return "falls"
        return "patience" if self.progress.best.is_over(self.config.patience) else None

    def _finish(self, reason: Literal["steps", "minutes", "patience", "falls", "nothing to do"]) -> Outcome:
        progress, best, guard = self.progress, self.progress.best, self._guard()
        minutes = f"{self.config.minutes:g} minute{'' if self.config.minutes == 1 else 's'}"
        if reason == "nothing to do":
            message = (
                f"the run has finished: {progress.step} of {self.config.steps} steps; continue with "
                f"training.steps={2 * progress.step}"
            )
            if self._is_out_of_time:
                message = (
                    f"the run has finished at step {progress.step} of {self.config.steps}, after {minutes}; continue "
                    f"with training.minutes={2 * self.config.minutes:g}"
                )
            elif guard is not None and 0 < guard.falls < len(progress.falling):
                message = (
                    f"the run has finished at step {progress.step} of {self.config.steps}, where {guard.name} had "
                    f"fallen {guard.falls} times in a row"
                )
            elif progress.step < self.config.steps:
                message = (
                    f"the run has finished at step {progress.step} of {self.config.steps}, after {best.stale} "
                    "validations without a better dev loss; continue with a larger training.patience, now "
                    f"{self.config.patience}"
                )
        elif reason == "minutes":
            message = f"stopped after {minutes} (training.minutes) at step {progress.step} of {self.config.steps}"
        elif reason == "falls" and guard is not None:
            course = " → ".join(f"{value:.1f}" for value in progress.falling)
            message = (
                f"{guard.name} fell {guard.falls} times in a row ({course}): training makes the model worse, so it "
                f"ends here; the best checkpoint is that of step {best.step}"
            )
        elif reason == "patience":
            message = f"no better dev loss in {best.stale} validations; the best was {best.loss} at step {best.step}"
        else:
            message = f"all {progress.step} steps done"
        outcome = Outcome(
            reason=reason,
            message=message,
            step=progress.step,
            best_loss=best.loss,
            best_step=best.step,
            tokens=progress.tokens,
            seconds=progress.seconds,
            skipped=progress.skipped,
            last_loss=self._last_loss,
        )
        self.listener(Event("finished", vars(outcome)))
        return outcome

    def _stopped(self, code: int) -> Stopped:
        name = SystemSignals(code - 128).name
        message = f"stopped by {name} after step {self.progress.step}. {self._how_to_resume()}"
        self.listener(Event("stopped", {"step": self.progress.step, "signal": name, "message": message}))
        return Stopped(message, code)

    def _how_to_resume(self) -> str:
        if self.saved_step is None:
            return "There is no checkpoint yet"
        return f"Last checkpoint: step {self.saved_step}. Resume with: seqloom train --resume {self.run}"

    # --- checkpoints -------------------------------------------------------------------------------------------------

    def _begin(self, *, resume: bool, exact: bool, allow_data_change: bool, strict: bool) -> None:
        """Start from the model as it is, or from the newest checkpoint that is whole."""
        if not resume:
            self.checkpointer.require_empty()
        self.checkpointer.remove_leftovers()
        seed_generators(self.seed, self.world.rank)
        found = self.checkpointer.newest(strict=strict) if resume else None
        if found is None:
            if resume:
                notice(self.listener, f"{self.run} has no checkpoint yet; starting from the beginning")
            if isinstance(self.task, Prepares):
                self.task.prepare(self.model)
            self.strategy.share()
            return
        then, now = found.state.get("circumstances", {}), self._circumstances()
        check_circumstances(then, now, exact=exact, allow_data_change=allow_data_change, listener=self.listener)
        self.progress = self.checkpointer.restore(found, self.config)
        self._restore_memory(found.memory)
        self.saved_step = found.step
        self._is_out_of_time = self._minutes_are_over(self.progress.seconds)
        if self._end() is not None:  # nothing is left to train; `_finish` reports it
            return
        values: dict[str, Value] = {"step": found.step, "steps": self.config.steps, "epoch": self.progress.epoch}
        taken = "weights, optimiser state, position in the data, best dev loss"
        self.listener(
            Event("resumed", {**values, "from_checkpoint": taken, "changed_settings": changed_settings(then, now)})
        )

    def _restore_memory(self, memory: Mapping[str, Tensor]) -> None:
        task = as_stateful(self.task)
        if task and memory:
            task.restore_memory(memory)
        elif task:
            notice(self.listener, "the checkpoint has no carried state; the next batch starts with an empty one")

    def _circumstances(self) -> dict[str, Any]:
        return circumstances(self.config, seed=self.seed, data=self._data, world=self.world, device=self.device)

    def _save(self, *, is_best: bool, is_last_act: bool) -> None:
        """Write a checkpoint. If that fails, the run continues with an event, unless it is the last or third time."""
        failure: TrainingError | None
        # Non-finite weights are never written: they would replace checkpoints from which a run can be resumed.
        if names := unusable_weights(self.strategy.held, world=self.world):
            failure = TrainingError(f"step-{self.progress.step} is not written: weights are not finite ({names})")
        else:
            task = as_stateful(self.task)
            failure = self.checkpointer.save(
                self.progress,
                self.config,
                circumstances=self._circumstances(),
                memory=task.memory() if task else {},
                is_best=is_best,
            )
        self._failed_saves = 0 if failure is None else self._failed_saves + 1
        if failure is None:
            self.saved_step = self.progress.step
        elif is_last_act or self._must_save:
            raise TrainingError(f"{failure}. {self._how_to_resume()}")
        elif self._failed_saves >= MAX_FAILED_SAVES:
            raise TrainingError(
                f"{failure}. {self._failed_saves} saves in a row have failed, so the run stops at step "
                f"{self.progress.step}. {self._how_to_resume()}"
            )
        else:
            self.listener(
                Event("save_failed", {"step": self.progress.step, "message": f"{failure}. Training continues"})
            )
