"""Train: text files in, a run directory with a model of measured quality out."""

import math
import os
import shutil
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from os import SEEK_END
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from seqloom.core.arguments import as_names, as_path, require_callable
from seqloom.core.config import resolve, to_yaml
from seqloom.core.declaration import Purpose
from seqloom.core.errors import ConfigError, ModelError, SeqloomError, SeqloomWarning, TrainingError, UsageError
from seqloom.core.events import Event, Listener, ignore, notice, tell_all, to_json
from seqloom.core.files import write_atomically
from seqloom.core.seeds import seed_for
from seqloom.drawing.curves import plot_learning_curve
from seqloom.metrics.translation import Score
from seqloom.runs.config import BuildsModel, FitsText, OutsideConfig, RunConfig, is_own
from seqloom.runs.fitting import FittingWork, fit
from seqloom.runs.loading import LoadedModel, build_model, find_model, require_builder, require_device
from seqloom.runs.model_dir import CARD, Card, read_card, read_settings, require_exact_weights, save_model, write_card
from seqloom.runs.pipeline import Prepared, TaskWithLoss, TrainedWork
from seqloom.runs.prepare import (
    begin_run,
    choose_config,
    flat_settings,
    open_run,
    prepare_again,
    report_warmup,
    require_heads,
    require_new,
    require_no_shortlist,
    require_same_meaning,
    thread_settings,
    with_model,
    work_for,
)
from seqloom.runs.sizing import passes_text
from seqloom.tasks.language_modelling import LanguageModellingConfig
from seqloom.text.tokenizer import Tokenizers
from seqloom.training.averaging import average_weights, final_weights
from seqloom.training.checkpoint import final_folders, pointed_step, verify_checkpoint
from seqloom.training.distributed import World, join
from seqloom.training.progress import Outcome
from seqloom.training.run_guard import locked
from seqloom.training.task import Prepares
from seqloom.training.trainer import Trainer
from seqloom.training.weights import load_weights

# The journal of a run: `events.jsonl`, a line per event, for curves and for whoever watches.

TRANSIENT_KINDS = frozenset({"progress"})
"""Kinds of event that only move a bar on the screen."""


class Journal:
    """A listener that appends events to a file. A disk that refuses costs lines of the journal, never the run.

    `warn` is told once that the journal has ended.
    """

    def __init__(self, path: Path, *, warn: Listener = ignore) -> None:
        self.path = path
        self.is_broken = False
        self._warn = warn
        self._has_begun = False

    def __call__(self, event: Event) -> None:
        if event.kind in TRANSIENT_KINDS or self.is_broken:
            return
        try:
            with self.path.open("ab") as file:
                # A process that was killed may have left half a line, which must not swallow the next one.
                begins = b"" if self._has_begun or not _is_cut(self.path) else b"\n"
                file.write(begins + to_json(event).encode() + b"\n")
            self._has_begun = True
        except OSError as error:
            self.is_broken = True
            reason = error.strerror or str(error)
            notice(self._warn, f"the journal {self.path} cannot be written ({reason}); the run goes on without it")


def _is_cut(path: Path) -> bool:
    """Whether the last line of a file has no end."""
    with path.open("rb") as file:
        if file.seek(0, SEEK_END) == 0:
            return False
        file.seek(-1, SEEK_END)
        return file.read(1) != b"\n"


GOES_ON = frozenset({"resumed", "step", "bad_step", "saved", "finished"})
"""Kinds of event that a trainer emits only after it has accepted to go on with a run."""

FIRST_STEPS, FIRST_RISE = 100, 0.5
"""Steps up to which a dev loss above that of a uniform guess is no failure, and nats by which it may rise in them."""


@dataclass(frozen=True)
class Trained:
    """What a run gives."""

    run: Path
    model: Path
    outcome: Outcome
    scores: tuple[Score, ...]
    use: Purpose = "translator"
    """What the model is good for."""


def train(
    config: Path | str | None = None,
    overrides: Sequence[str] = (),
    *,
    out: Path | str,
    train: Sequence[str] = (),
    dev: Sequence[str] = (),
    strict_save: bool = False,
    model: BuildsModel | None = None,
    listener: Listener = ignore,
) -> Trained | None:
    """Train a new model on `train` files and leave it in `out`/model.

    What `config` (a YAML file) and `overrides` ("model.width=128") leave open is chosen from the size of the data.
    `strict_save` ends the run when a checkpoint cannot be written. Under torchrun, ranks other than the first return
    None, and a run that torchrun starts again after a failure goes on. `model` are the settings of a model: anything
    with `build(symbols, seed=…)`; the run records their import path and values.
    """
    run = as_path(out, "out")
    file = None if config is None else as_path(config, "config")
    overrides = as_names(overrides if overrides is not None else (), "overrides", example='["model.width=128"]')
    train = as_names(train if train is not None else (), "train", example='["train.de", "train.en"]')
    dev = as_names(dev if dev is not None else (), "dev", example='["dev.de", "dev.en"]')
    require_callable(listener, "listener")
    require_builder(model)
    if _is_restarted() and (run / "run.json").is_file():
        return resume(run, strict_save=strict_save, model=model, listener=listener)
    if _is_first():
        require_new(run)
    chosen = choose_config(file, overrides, train=train, dev=dev, model=model, listener=listener)
    with join(require_device(chosen.device)) as world:
        _require_shares(chosen, world)
        _report_threads(chosen, listener=listener)
        world.first_does(lambda: begin_run(run, chosen, listener=listener), what="prepare the run")
        flags = _Flags(strict_save=strict_save)
        return _go(run, chosen, world=world, listener=listener, outside=_outside(chosen, model), flags=flags)


def _outside(config: RunConfig, model: BuildsModel | None) -> BuildsModel | None:
    """The settings that build the model, where those of the run only record them."""
    return model if isinstance(config.model, OutsideConfig) else None


def resume(
    run: Path | str,
    overrides: Sequence[str] = (),
    *,
    exact: bool = False,
    allow_data_change: bool = False,
    strict: bool = False,
    strict_save: bool = False,
    model: BuildsModel | None = None,
    listener: Listener = ignore,
) -> Trained | None:
    """Go on with a run from its newest whole checkpoint, with other settings where `overrides` say so.

    `exact` refuses what could not give the same bits, `allow_data_change` allows other text, `strict` refuses to go
    back over a damaged checkpoint, `strict_save` ends the run when one cannot be written. `model` are the settings of a
    model that was given to `train`.
    """
    run = as_path(run, "run")
    overrides = as_names(overrides if overrides is not None else (), "overrides", example='["training.steps=2000"]')
    require_callable(listener, "listener")
    require_builder(model)
    before, record = open_run(run)
    if isinstance(before.model, OutsideConfig) and model is None:
        words = before.model.in_words()
        raise ModelError(
            f"{run} trains a model from outside, {words}, which only Python can build; resume it with: "
            f"seqloom.resume({str(run)!r}, model={words})"
        )
    config = resolve(RunConfig, file=run / "config.yaml", overrides=overrides)
    if model is not None:
        if not isinstance(before.model, OutsideConfig) and not is_own(model):
            raise UsageError(
                f"{run} trains a model of kind {before.model.kind}, not one from outside; leave out model="
            )
        config = with_model(config, model)
    require_no_shortlist(config)
    require_heads(config)
    require_same_meaning(record, before, config, run=run)
    _require_steps(run, config)
    report_warmup(config, listener=listener)
    _report_steps(before, config, listener=listener)
    with join(require_device(config.device)) as world:
        _require_shares(config, world)
        _report_threads(config, listener=listener)

        def ready() -> None:
            # The trainer takes the lock for itself; here it keeps hands off a run that another process is training.
            with locked(run):
                prepare_again(run, config, record=record, allow_data_change=allow_data_change, listener=listener)

        world.first_does(ready, what="open the run")
        if world.is_first and config != before:
            listener = tell_all(_ConfigKeeper(run, before, config, listener=listener), listener)
        flags = _Flags(
            resume=True, exact=exact, allow_data_change=allow_data_change, strict=strict, strict_save=strict_save
        )
        return _go(run, config, world=world, listener=listener, outside=_outside(config, model), flags=flags)


def _require_steps(run: Path, config: RunConfig) -> None:
    """Refuse to end a run before the step that it has reached."""
    reached, steps = pointed_step(run, "latest"), config.training.steps
    if reached is not None and steps < reached:
        raise ConfigError(
            f"training.steps={steps} is less than the {reached} steps that {run} has made already; give at least "
            f"{reached}, or start a new run in another folder"
        )


def _report_steps(before: RunConfig, now: RunConfig, *, listener: Listener) -> None:
    """Report which settings stay although they were chosen for, or depend on, another number of steps."""
    then, given = before.training, now.training
    if isinstance(now.model, FitsText) or then.steps == given.steps:
        return
    names = ("warmup", "validate_every", "save_every")
    kept = [f"training.{name}={getattr(given, name)}" for name in names if getattr(then, name) == getattr(given, name)]
    sentence = f"training.steps was {then.steps} and is {given.steps}"
    if kept:
        sentence += (
            f"; kept from the beginning: {', '.join(kept)}. A new run of {given.steps} steps may choose others, and "
            "gives the same weights only with these"
        )
    if given.schedule == "cosine":
        sentence += (
            f". The cosine schedule now ends at step {given.steps}: the steps so far had other rates than in a "
            f"new run of {given.steps} steps"
        )
    notice(listener, sentence)


class _ConfigKeeper:
    """A listener that writes the new settings of a run once it goes on with them: a refused resume changes nothing."""

    def __init__(self, run: Path, before: RunConfig, now: RunConfig, *, listener: Listener) -> None:
        self.run, self.before, self.now, self.listener = run, before, now, listener
        self.is_written = False

    def __call__(self, event: Event) -> None:
        if event.kind in GOES_ON and not self.is_written:
            write_atomically(self.run / "config.yaml", to_yaml(self.now, comments=False))
            self.is_written = True
            if event.kind == "finished":  # at once: no step is made with them, but the model is used with them
                then, now = (flat_settings(each.model_dump(mode="json")) for each in (self.before, self.now))
                names = [name for name in {**then, **now} if then.get(name) != now.get(name)]
                changes = ", ".join(f"{name} from {then.get(name)} to {now.get(name)}" for name in names)
                notice(self.listener, f"no step is left to train; stored in {self.run} and its model: {changes}")


def _require_shares(config: RunConfig, world: World) -> None:
    """Refuse what several ranks cannot share before anything is prepared for them."""
    batches = config.training.batches_per_step
    if batches < world.size:
        raise ConfigError(
            f"training.batches_per_step={batches} cannot be shared by {world.size} ranks; "
            f"set it to at least {world.size}, or start fewer ranks"
        )
    if world.size > 1 and isinstance(config.task, LanguageModellingConfig) and config.task.windows == "sequential":
        raise ConfigError(
            f"task.windows=sequential carries a state from batch to batch, which cannot be shared by {world.size} "
            "ranks; set task.windows=random, or start one rank"
        )


def _report_threads(config: RunConfig, *, listener: Listener) -> None:
    if not isinstance(config.model, FitsText):  # those have loops of their own, without torch
        listener(Event("threads", thread_settings(config)))


def average(folders: Sequence[Path | str], out: Path | str) -> Path:
    """A model whose weights are the mean of several models' (or of several checkpoints of one run)."""
    out = as_path(out, "out")
    folders = as_names(folders, "folders", example='["run/checkpoints/step-100", "run/checkpoints/step-200"]')
    if out.exists():
        raise UsageError(f"{out} exists already; choose another folder")
    if not folders:
        raise UsageError("name the models to average")
    places = [_weights_folder(Path(folder)) for folder in folders]
    homes = [place for place in places if (place / "model.json").is_file()]
    if homes:
        home = homes[0]
    else:
        with warnings.catch_warnings():  # of a run that has not finished: its checkpoints are what was asked for
            warnings.simplefilter("ignore", SeqloomWarning)
            home = find_model(places[0].parent.parent)
    if isinstance(resolve(RunConfig, file=home / "config.yaml").model, FitsText):
        raise UsageError(f"{home} was fitted to its text as a whole; its numbers have no mean that would be a model")
    of_home, config = read_card(home), read_settings(home)
    card = Card(
        source=of_home.source,
        target=of_home.target,
        parameters=of_home.parameters,
        trained_on={**of_home.trained_on, "averaged": [str(folder) for folder in folders]},
    )
    weights = average_weights(places)
    save_model(out, config, tokenizers=Tokenizers.load(home / "text"), weights=weights, card=card)
    return out


def _weights_folder(folder: Path) -> Path:
    """A model directory, a run's model, or a checkpoint, after its files were found to be whole."""
    if (folder / "model.safetensors").is_file() and not (folder / "model.json").is_file():
        verify_checkpoint(folder)
        return folder
    found = find_model(folder)
    require_exact_weights(found, read_card(found))
    return found


def _is_first() -> bool:
    """Whether this process is the first of torchrun's, or alone."""
    return os.environ.get("RANK", "0") == "0"


def _is_restarted() -> bool:
    """Whether torchrun starts this process again, with the same words, after one of the ranks has failed."""
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") not in ("", "0")


@dataclass(frozen=True)
class _Flags:
    """How a run is begun or goes on; the names are those of `Trainer.train`."""

    resume: bool = False
    exact: bool = False
    allow_data_change: bool = False
    strict: bool = False
    strict_save: bool = False


@dataclass(frozen=True)
class _SetUp:
    """A run that is ready for its first step."""

    work: TrainedWork[Any, Any]
    prepared: Prepared
    model: nn.Module
    task: TaskWithLoss
    trainer: Trainer[Any]
    listener: Listener


def _take_back(run: Path) -> None:
    """Remove a run, unless another process is at it by now."""
    with suppress(UsageError), locked(run):
        shutil.rmtree(run, ignore_errors=True)


def _go(
    run: Path,
    config: RunConfig,
    *,
    world: World,
    listener: Listener,
    outside: BuildsModel | None,
    flags: _Flags,
) -> Trained | None:
    work = work_for(config)
    try:
        if isinstance(work, FittingWork):
            return _fit(run, config, work=work, world=world, listener=listener)
        ready = _set_up(run, config, work=work, world=world, listener=listener, outside=outside, resume=flags.resume)
    except SeqloomError:
        if world.is_first and not flags.resume:  # nothing was learnt yet, and the same --out should do for the next try
            _take_back(run)
        raise
    except KeyboardInterrupt:
        notice(listener, f"the text is prepared; go on with: seqloom train --resume {run}")
        raise
    if world.is_first:
        # For a look at the best checkpoint before there is a model.
        none = Outcome("steps", "", step=0, best_loss=None, best_step=None, tokens=0, seconds=0.0, skipped=0)
        write_card(
            run / CARD, _card(config, ready, trained_on=ready.work.trained_on(config, ready.prepared, outcome=none))
        )
    outcome = ready.trainer.train(
        flags.resume,
        exact=flags.exact,
        allow_data_change=flags.allow_data_change,
        strict=flags.strict,
        strict_save=flags.strict_save,
    )
    if not world.is_first:
        return None
    if outcome.reason == "nothing to do" and not flags.allow_data_change:
        finished = _finished(run, config, outcome=outcome)
        if finished is not None:
            _draw(run, listener=listener)  # a kill may have come after the model was written
            return finished
    weights, what = _choose_weights(run, config, model=ready.model, task=ready.task, listener=ready.listener)
    trained_on = ready.work.trained_on(config, ready.prepared, outcome=outcome)
    if outside is not None:
        trained_on["outside_model"] = config.model.model_dump(mode="json", include={"builder", "settings"})
    divergence = _divergence(config, ready, outcome=outcome, loss=what["dev_loss"], outside=outside)
    if not math.isfinite(what["dev_loss"]):
        del what["dev_loss"]
    trained = _finish(
        run,
        config,
        ready=ready,
        weights=weights,
        trained_on={**trained_on, **what},
        outcome=outcome,
        is_measured=divergence is None,
    )
    if divergence is not None:
        raise TrainingError(
            f"{divergence} The run is kept in {run}, and its model ({what['weights']}) in {trained.model}"
        )
    return trained


def _finished(run: Path, config: RunConfig, *, outcome: Outcome) -> Trained | None:
    """What a finished run gave; None where its model is not whole, is of other settings or steps, or has no scores."""
    folder = run / "model"
    try:
        card, settings = read_card(folder), read_settings(folder)
    except (ModelError, OSError):
        return None
    if settings != config or card.trained_on.get("steps") != outcome.step or not card.scores:
        return None
    return Trained(run, folder, outcome, card.measured, config.purpose)


def _divergence(
    config: RunConfig, ready: "_SetUp", *, outcome: Outcome, loss: float, outside: BuildsModel | None
) -> str | None:
    """What to say of a run that ended worse than a uniform guess; None where training worked.

    A uniform guess among n symbols costs log n nats per token. Fresh weights cost a little more, so a run of few steps
    may end above it too: that is a failure only if it ended clearly above where it began. `loss` is the dev loss of the
    final weights.
    """
    ended = loss if outcome.last_loss is None else outcome.last_loss
    symbols, training = ready.prepared.tokenizers.target.size, config.training
    uniform = math.log(symbols)
    if ended <= uniform:
        return None
    before = _loss_before(config, ready, outside=outside)
    shown = f"{ended:,.0f}" if ended >= 100 else f"{ended:.2f}"
    above = (
        f"the dev loss is {shown} after step {outcome.step:,}, above the {uniform:.2f} of a uniform guess among "
        f"{symbols:,} symbols; it was {before:.2f} before training"
    )
    if not ended <= before + FIRST_RISE:
        return (
            f"training has diverged: {above}. Start a new run with a lower training.learning_rate, now "
            f"{training.learning_rate:g}, or a longer training.warmup, now {training.warmup:,}."
        )
    if outcome.step >= FIRST_STEPS:
        return (
            f"training has failed: {above}. Start a new run with another training.learning_rate, now "
            f"{training.learning_rate:g}."
        )
    notice(ready.listener, f"{above}: the model has learned nothing useful yet; train for more steps")
    return None


def _loss_before(config: RunConfig, ready: "_SetUp", *, outside: BuildsModel | None) -> float:
    """The dev loss of the weights that the run began with; of fresh ones, where another model's are gone."""
    model = _fresh_model(config, ready.prepared, outside=outside)
    if config.training.start_from is not None:
        with suppress(SeqloomError):
            _start_from(model, Path(config.training.start_from))
    if isinstance(ready.task, Prepares):
        ready.task.prepare(model)
    device = next(ready.model.parameters()).device
    with torch.no_grad():
        return ready.task.dev_loss(model.to(device).eval())


def _fit(run: Path, config: RunConfig, *, work: FittingWork, world: World, listener: Listener) -> Trained | None:
    """Fit a model that has a loop of its own; one process does it."""
    if not world.is_first:
        return None
    everyone = tell_all(Journal(run / "events.jsonl", warn=listener), listener)
    fitted = fit(run, config, work=work, listener=everyone)
    return Trained(run, fitted.folder, fitted.outcome, fitted.scores, config.purpose)


def _set_up(
    run: Path,
    config: RunConfig,
    *,
    work: TrainedWork[Any, Any],
    world: World,
    listener: Listener,
    outside: BuildsModel | None,
    resume: bool,
) -> _SetUp:
    """Open what was prepared, and build the model, the task and the trainer."""
    prepared = work.open_prepared(run)
    model = _fresh_model(config, prepared, outside=outside)
    work.require_model(model)
    if config.training.start_from is not None and not resume:
        _start_from(model, Path(config.training.start_from))
    journal = Journal(run / "events.jsonl", warn=listener) if world.is_first else ignore
    everyone = tell_all(journal, listener)
    sizes = {"parameters": _parameters(model), "steps": config.training.steps}
    kind = config.model.builder if isinstance(config.model, OutsideConfig) else config.model.kind
    everyone(Event("model", {"kind": kind, **sizes, "run": str(run)}))
    task = work.task(config, prepared, device=world.device, listener=everyone)
    if not resume:
        steps, per_step = config.training.steps, config.training.batches_per_step
        notice(everyone, passes_text(steps, per_pass=task.batches(0) / per_step))
    trainer = Trainer(
        model,
        task,
        config.training,
        run=run,
        seed=config.seed,
        device=world.device,
        listener=everyone,
        world=world,
    )
    return _SetUp(work, prepared, model, task, trainer, everyone)


def _fresh_model(config: RunConfig, prepared: Prepared, *, outside: BuildsModel | None) -> nn.Module:
    """The model of a run with the weights that its seed gives."""
    settings = outside or config.model
    assert isinstance(settings, BuildsModel)
    return build_model(settings, prepared.tokenizers, seed=seed_for(config.seed, "weights"))


def _start_from(model: nn.Module, folder: Path) -> None:
    folder = find_model(folder)
    require_exact_weights(folder, read_card(folder))
    weights: dict[str, Tensor] = average_weights([folder])
    way_out = (
        "Leave out the settings of model and text, which are then taken from there: "
        f"seqloom train --train … --out … training.start_from={folder}"
    )
    with torch.no_grad():
        load_weights(model, weights, origin=str(folder), way_out=way_out)


def _choose_weights(
    run: Path, config: RunConfig, *, model: nn.Module, task: TaskWithLoss, listener: Listener
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The mean of the last checkpoints or the best one alone, whichever has the lower dev loss; left in the model."""
    settings = config.training
    found = {}
    for average in dict.fromkeys((settings.average, 0)):
        weights = final_weights(run, settings.model_copy(update={"average": average}), listener=listener)
        # A short run has fewer checkpoints than were asked for.
        count = len(final_folders(run, average=average, save_every=settings.save_every, listener=ignore))
        last = f"the mean of the last {count} checkpoints" if count > 1 else "the last checkpoint"
        with torch.no_grad():
            load_weights(model, weights, origin=str(run))
            found[last if average else "the best checkpoint"] = (task.dev_loss(model.eval()), weights)
    chosen = min(found, key=lambda name: found[name][0] if math.isfinite(found[name][0]) else math.inf)
    loss, weights = found[chosen]
    with torch.no_grad():
        load_weights(model, weights, origin=str(run))
    others = [f"; {other} has {found[other][0]:.4f}" for other in found if other != chosen]
    notice(listener, f"the model is {chosen}, with a dev loss of {loss:.4f}{''.join(others)}")
    return weights, {"weights": chosen, "dev_loss": loss}


def _card(config: RunConfig, ready: _SetUp, *, trained_on: Mapping[str, Any]) -> Card:
    source, target = ready.work.languages(config)
    return Card(source=source, target=target, parameters=_parameters(ready.model), trained_on=trained_on)


def _finish(
    run: Path,
    config: RunConfig,
    *,
    ready: _SetUp,
    weights: Mapping[str, Tensor],
    trained_on: Mapping[str, Any],
    outcome: Outcome,
    is_measured: bool,
) -> Trained:
    """Score the model on the dev text if `is_measured`, and write the model directory and the curve."""
    work, prepared, model, listener = ready.work, ready.prepared, ready.model, ready.listener
    card = _card(config, ready, trained_on=trained_on)
    folder = run / "model"
    loaded = LoadedModel(folder, config, prepared.tokenizers, model, card, next(model.parameters()).device)
    scores = work.measure(loaded, prepared, listener=listener) if is_measured else ()
    card = card.with_scores(scores, lines=work.scored_lines(prepared))
    save_model(folder, config, tokenizers=prepared.tokenizers, weights=weights, card=card)
    _draw(run, listener=listener)
    listener(Event("model_saved", {"path": str(folder)}))
    return Trained(run, folder, outcome, scores, config.purpose)


def _draw(run: Path, *, listener: Listener) -> None:
    try:
        plot_learning_curve(run / "events.jsonl", run / "learning-curve.png")
    except (OSError, ValueError, KeyError, TypeError) as error:  # nor is a journal that something else has written
        notice(listener, f"the learning curve could not be drawn: {error}")


def _parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
