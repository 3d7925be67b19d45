"""Train: text files in, a run directory with a model of measured quality out."""

import math
import os
import shutil
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from os import SEEK_END
from pathlib import Path
from time import monotonic
from typing import Any

import torch
from torch import Tensor, nn

from seqloom.core.arguments import as_names, as_path, require_callable
from seqloom.core.config import resolve, to_yaml
from seqloom.core.declaration import Purpose
from seqloom.core.errors import ConfigError, ModelError, SeqloomError, SeqloomWarning, TrainingError, UsageError
from seqloom.core.events import Event, Listener, ignore, join_listeners, notice, phase, to_json
from seqloom.core.files import write_atomically
from seqloom.core.seeds import seed_for
from seqloom.drawing.curves import plot_learning_curve
from seqloom.metrics.scoring import CorpusScore
from seqloom.nn.lora import adapted_rows, merge_adapters
from seqloom.runs.adapters import FOLDER, Base, add_adapters, is_adapter, keep_published, load_start, save_adapter
from seqloom.runs.back_translation import SubRun, keep_the_better, make_mixture, remember_given
from seqloom.runs.config import (
    BuildsModel,
    FitsDocuments,
    FitsPairs,
    FitsText,
    FittedModel,
    OutsideConfig,
    RunConfig,
    is_own,
)
from seqloom.runs.data_kinds import RunData, RunTask
from seqloom.runs.detection import learn_tables
from seqloom.runs.loading import (
    LoadedFitted,
    LoadedModel,
    build_model,
    find_model,
    merged_weights,
    require_builder,
    require_device,
)
from seqloom.runs.model_dir import (
    CARD,
    PUBLISHED,
    Card,
    DevResult,
    counted_name,
    parse_card,
    read_card,
    read_part,
    read_settings,
    require_exact_weights,
    save_fitted,
    save_model,
    stored_tables,
    stored_tokenizers,
    write_card,
)
from seqloom.runs.plain_text import TextData
from seqloom.runs.prepare import (
    choose_config,
    discard_run,
    flat_settings,
    load_data,
    open_run,
    prepare_resume,
    prepare_run,
    report_warmup,
    require_heads,
    require_new,
    require_no_shortlist,
    require_same_meaning,
    thread_settings,
    with_model,
)
from seqloom.runs.sizing import passes_text, too_small
from seqloom.runs.summarisation import DocumentData
from seqloom.runs.translation import PairData
from seqloom.tasks.settings import LanguageModellingConfig
from seqloom.text.formats.readers import FORMATS
from seqloom.text.formats.segments import Format
from seqloom.text.tokenizer import EncodedText
from seqloom.training.checkpoint import checkpoint_steps, final_folders, pointed_step, verify_checkpoint
from seqloom.training.distributed import World, join
from seqloom.training.optimisers import trained
from seqloom.training.progress import Outcome
from seqloom.training.run_guard import locked, remove_leftovers
from seqloom.training.task import Chance, HasChance, Prepares
from seqloom.training.trainer import Trainer
from seqloom.training.weights import average_weights, live_weights, load_weights, weights_of

# The journal of a run: `events.jsonl`, a line per event, for curves and monitoring.

TRANSIENT_KINDS = frozenset({"progress"})
"""Kinds of event that only move a bar on the screen."""


class Journal:
    """A listener that appends events to a file. If the disk fails, the journal ends, but the run continues.

    `warn` is notified of that once.
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
            with self.path.open("ab+") as file:
                if not self._has_begun and file.seek(0, SEEK_END):
                    # A process that was killed may have left half a line, which must not swallow the next one.
                    file.seek(-1, SEEK_END)
                    if file.read(1) != b"\n":
                        file.write(b"\n")
                file.write(to_json(event).encode() + b"\n")
            self._has_begun = True
        except OSError as error:
            self.is_broken = True
            reason = error.strerror or str(error)
            notice(self._warn, f"the journal {self.path} cannot be written ({reason}); the run continues without it")


EARLY_STEPS, EARLY_RISE = 100, 0.5
"""In the first steps a dev loss above that of a uniform guess is not a failure, if it rose by at most so many nats."""

MIN_DEV_EXAMPLES = 50
"""Labelled dev examples below which a high dev loss tells nothing: a few that are sure and wrong make it."""


@dataclass(frozen=True)
class Trained:
    """The result of a run."""

    run: Path
    model: Path
    outcome: Outcome
    scores: tuple[CorpusScore, ...]
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
    formats: Sequence[Format] = (),
    listener: Listener = ignore,
) -> Trained | None:
    """Train a new model on `train` files and leave it in `out`/model.

    What `config` (a YAML file) and `overrides` ("model.width=128") leave open is chosen from the size of the data.
    `strict_save` ends the run when a checkpoint cannot be written. Under torchrun, ranks other than the first return
    None, and a run that torchrun restarts after a failure is resumed. `model` are the settings of a model: anything
    with `build(symbols, seed=…)`; the run records their import path and values. `formats` are file formats beyond those
    of the package.
    """
    run = as_path(out, "out")
    file = None if config is None else as_path(config, "config")
    overrides = as_names(overrides if overrides is not None else (), "overrides", example='["model.width=128"]')
    train = as_names(train if train is not None else (), "train", example='["train.de", "train.en"]')
    dev = as_names(dev if dev is not None else (), "dev", example='["dev.de", "dev.en"]')
    require_callable(listener, "listener")
    require_builder(model)
    is_restarted = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") not in ("", "0")  # after a rank has failed
    if is_restarted and (run / "run.json").is_file():
        return resume(run, strict_save=strict_save, model=model, formats=formats, listener=listener)
    if os.environ.get("RANK", "0") == "0":
        require_new(run)
    readable = (*FORMATS, *formats)
    chosen = choose_config(
        file, overrides, train=train, dev=dev, out=run, model=model, formats=readable, listener=listener
    )
    with join(require_device(chosen.device)) as world:
        _require_shares(chosen, world, listener=listener)
        world.first_does(lambda: prepare_run(run, chosen, formats=readable, listener=listener), what="prepare the run")
        if chosen.data.monolingual:
            remember_given(run, file, overrides)
            make_mixture(run, chosen, sub_run=_sub_run(model, formats, listener), formats=readable, listener=listener)
        try:
            if chosen.model.is_fitted:
                return _fit(run, chosen, world=world, listener=listener)
            session = _open(run, chosen, builder=model, world=world, listener=listener)
        except SeqloomError:
            if world.is_first:  # nothing is trained yet; the next attempt can use the same --out
                with suppress(UsageError), locked(run):  # unless another process is using it by now
                    discard_run(run)
            raise
        except KeyboardInterrupt:
            notice(listener, f"the text is prepared; resume with: seqloom train --resume {run}")
            raise
        return _train(session, strict_save=strict_save)


def resume(
    run: Path | str,
    overrides: Sequence[str] = (),
    *,
    exact: bool = False,
    allow_data_change: bool = False,
    strict: bool = False,
    strict_save: bool = False,
    model: BuildsModel | None = None,
    formats: Sequence[Format] = (),
    listener: Listener = ignore,
) -> Trained | None:
    """Resume a run from its newest undamaged checkpoint, with settings changed by `overrides`.

    `exact` refuses what could not give the same bits, `allow_data_change` allows other text, `strict` refuses to fall
    back from a damaged checkpoint, `strict_save` ends the run when one cannot be written. `model` are the settings of a
    model that was given to `train`, and `formats` the file formats, which are needed if the text is encoded again.
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
    reached, steps = pointed_step(run, "latest"), config.training.steps
    if reached is not None and steps < reached:
        raise ConfigError(
            f"training.steps={steps} is less than the {reached} steps that {run} has made; give at least "
            f"{reached}, or start a new run in another folder"
        )
    report_warmup(config, listener=listener)
    _report_steps(before, config, listener=listener)
    with join(require_device(config.device)) as world:
        _require_shares(config, world, listener=listener)

        def prepare() -> None:
            readable = (*FORMATS, *formats)
            # The trainer takes the lock itself; here it protects a run that another process is training.
            with locked(run):
                prepare_resume(
                    run, config, record, allow_data_change=allow_data_change, formats=readable, listener=listener
                )

        world.first_does(prepare, what="open the run")
        if config.data.monolingual:
            sub_run, readable = _sub_run(model, formats, listener), (*FORMATS, *formats)
            make_mixture(run, config, sub_run=sub_run, formats=readable, listener=listener)
        if config.model.is_fitted:
            fitted = _fit(run, config, world=world, listener=listener)
            if world.is_first and config != before:
                write_atomically(run / "config.yaml", to_yaml(config, comments=False))
                _report_stored(run, before, config, listener=listener)
            return fitted
        session = _open(run, config, builder=model, world=world, listener=listener, resumed_from=before)
        return _train(session, exact=exact, allow_data_change=allow_data_change, strict=strict, strict_save=strict_save)


def _sub_run(model: BuildsModel | None, formats: Sequence[Format], listener: Listener) -> SubRun:
    """How a run trains another one inside itself."""

    def begin_or_resume(
        folder: Path, overrides: Sequence[str], files: Sequence[str], dev: Sequence[str], *, is_same: bool
    ) -> object:
        builder = model if is_same else None
        if (folder / "run.json").is_file():
            return resume(folder, model=builder, formats=formats, listener=listener)
        return train(
            None, overrides, out=folder, train=files, dev=dev, model=builder, formats=formats, listener=listener
        )

    return begin_or_resume


def _report_steps(before: RunConfig, now: RunConfig, *, listener: Listener) -> None:
    """Report which settings stay although they were chosen for, or depend on, another number of steps."""
    then, given = before.training, now.training
    if now.model.is_fitted or then.steps == given.steps:
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


def _report_stored(run: Path, before: RunConfig, now: RunConfig, *, listener: Listener) -> None:
    """Report settings that a resume without steps has changed: the model is used with them."""
    then, given = (flat_settings(each.model_dump(mode="json")) for each in (before, now))
    names = [name for name in {**then, **given} if then.get(name) != given.get(name)]
    changes = ", ".join(f"{name} from {then.get(name)} to {given.get(name)}" for name in names)
    notice(listener, f"no steps left to train; stored in {run} and its model: {changes}")


def _require_shares(config: RunConfig, world: World, *, listener: Listener) -> None:
    """Refuse settings that several ranks cannot share, before anything is prepared, and report the threads of each."""
    batches = config.training.batches_per_step
    if batches < world.size:
        raise ConfigError(
            f"training.batches_per_step={batches} cannot be shared by {world.size} ranks; "
            f"set it to at least {world.size}, or start fewer ranks"
        )
    if world.size > 1 and config.data.monolingual:
        raise ConfigError(f"data.monolingual cannot be shared by {world.size} ranks; start one rank")
    if world.size > 1 and isinstance(config.task, LanguageModellingConfig) and config.task.windows == "sequential":
        raise ConfigError(
            f"task.windows=sequential carries a state from batch to batch, which cannot be shared by {world.size} "
            "ranks; set task.windows=random, or start one rank"
        )
    if not config.model.is_fitted:  # those have loops of their own, without torch
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
        with warnings.catch_warnings():  # that the run has not finished: its checkpoints were requested
            warnings.simplefilter("ignore", SeqloomWarning)
            home = find_model(places[0].parent.parent)
    settings = resolve(RunConfig, file=home / "config.yaml")
    if settings.model.is_fitted:
        raise UsageError(f"{home} was fitted to its text as a whole; such models cannot be averaged")
    of_home = read_card(home)
    trained_on = {**of_home.trained_on, "averaged": [str(folder) for folder in folders]}
    card = Card(of_home.source, of_home.target, of_home.parameters, trained_on)
    tokenizers, weights, config = stored_tokenizers(home, settings), average_weights(places), read_settings(home)
    if config.training.lora is not None and not homes:  # whose checkpoints hold adapters alone
        expected = Base.recorded(of_home.trained_on, of=home)
        weights = merged_weights(config, tokenizers, weights, origin=places[0], expected=expected)
    save_model(
        out,
        config,
        tokenizers=tokenizers,
        weights=weights,
        card=card,
        tables=stored_tables(home),
        published=home / PUBLISHED,
    )
    return out


def _weights_folder(folder: Path) -> Path:
    """A model directory, a run's model, or a checkpoint, after its files were found to be whole."""
    if (folder / "model.safetensors").is_file() and not (folder / "model.json").is_file():
        verify_checkpoint(folder)
        return folder
    found = find_model(folder)
    require_exact_weights(found, read_card(found))
    return found


# From here on a new run and a resumed one are the same: the text is prepared.


@dataclass(frozen=True)
class _Session:
    """A run that is ready for its first step."""

    run: Path
    config: RunConfig
    before: RunConfig | None
    """The settings of a resumed run before this resume."""
    builder: BuildsModel
    """The settings that build the model."""
    data: RunData
    model: nn.Module
    task: RunTask
    trainer: Trainer[Any]
    world: World
    listener: Listener
    """That of the caller, and the journal."""
    base: Base | None = None
    """The model that is adapted by training.lora."""

    def card(self, values: Mapping[str, Any]) -> Card:
        """The model card, with what is known of the training."""
        data = self.config.data
        source = data.source if self.config.reads_pairs else None
        return Card(source=source, target=data.target, parameters=_parameters(self.model), trained_on=values)

    def trained_on(self, outcome: Outcome) -> dict[str, Any]:
        return {
            **self.data.card_values(self.config),
            "steps": outcome.step,
            counted_name(self.config): outcome.tokens,
            "seconds": round(outcome.seconds, 1),
            "best_dev_loss": outcome.best_loss,
            **({} if self.base is None else {"base": self.base.model_dump()}),
        }


def _open(
    run: Path,
    config: RunConfig,
    *,
    builder: BuildsModel | None,
    world: World,
    listener: Listener,
    resumed_from: RunConfig | None = None,
) -> _Session:
    """Load the encoded text, and build the model, the task and the trainer."""
    data = load_data(run, config)
    settings = builder if isinstance(config.model, OutsideConfig) else config.model
    assert isinstance(settings, BuildsModel)
    model = build_model(settings, data.tokenizers, seed=seed_for(config.seed, "weights"))
    needs = config.task.needs
    missing = [name for name in needs.attributes if not hasattr(model, name)]
    if missing:
        raise UsageError(
            f"{type(model).__name__} cannot be trained as a {needs.use}: it has no {' and no '.join(missing)}; see "
            f"{needs.protocol} in seqloom/models/protocols.py for what a model must offer"
        )
    base, lora = None, config.training.lora
    is_new = resumed_from is None or not checkpoint_steps(run)  # a run may end before its first checkpoint
    if config.training.start_from is not None and (is_new or lora is not None):
        place = Path(config.training.start_from)
        if resumed_from is not None and not place.exists():
            raise UsageError(
                f"the model that {run} starts from was not found at {place}; give its place: "
                f"seqloom train --resume {run} training.start_from=PLACE"
            )
        start = find_model(place)
        new = load_start(model, config, start, listener=listener if resumed_from is None else ignore)
        if world.is_first and is_new:
            shutil.rmtree(run / PUBLISHED, ignore_errors=True)
            keep_published(start, run / PUBLISHED, config, names=live_weights(model))
        started = Base.of(config.training.start_from, start)
        if resumed_from is not None:
            begun: Mapping[str, Any] = read_part(run / "run.json")
            if "base" not in begun and (run / CARD).is_file():  # a run of an earlier version
                begun = parse_card(read_part(run / CARD), run / CARD).trained_on
            if lora is not None or "base" in begun:
                started.require(Base.recorded(begun, of=run), of=run)
        if lora is not None:
            base = started
            add_adapters(model, config, new=new)
    listener = join_listeners(Journal(run / "events.jsonl", warn=listener) if world.is_first else ignore, listener)
    kind = config.model.builder if isinstance(config.model, OutsideConfig) else config.model.kind
    sizes = {"parameters": _parameters(model), "steps": config.training.steps}
    listener(Event("model", {"kind": kind, **sizes, "unit": config.unit, "run": str(run)}))
    task = data.task(config, device=world.device, listener=listener)
    if resumed_from is None:
        per_pass = task.batches(0) / config.training.batches_per_step
        what = "text" if config.model.has_vocabulary else config.unit
        notice(listener, passes_text(config.training.steps, per_pass=per_pass, what=what))
    trainer: Trainer[Any] = Trainer(
        model, task, config.training, run=run, seed=config.seed, device=world.device, listener=listener, world=world
    )
    if lora is not None or config.training.freeze:
        count, total = sum(each.numel() for each in trained(model).values()), _parameters(model)
        notice(listener, f"{count:,} of {total:,} parameters are trained ({count / total:.1%}); the others are frozen")
    return _Session(run, config, resumed_from, settings, data, model, task, trainer, world, listener, base)


def _train(
    session: _Session,
    *,
    exact: bool = False,
    allow_data_change: bool = False,
    strict: bool = False,
    strict_save: bool = False,
) -> Trained | None:
    """Train, choose the final weights, measure them on the dev text and write the model directory."""
    run, config, before, listener = session.run, session.config, session.before, session.listener
    is_first = session.world.is_first
    if is_first:  # for those who use the best checkpoint before there is a model
        none = Outcome("steps", "", step=0, best_loss=None, best_step=None, tokens=0, seconds=0.0, skipped=0)
        write_card(run / CARD, session.card(session.trained_on(none)))
    with session.trainer.started(
        before is not None, exact=exact, allow_data_change=allow_data_change, strict=strict, strict_save=strict_save
    ):
        # Now the resume is accepted: one that is refused changes nothing.
        if is_first and before is not None and config != before:
            write_atomically(run / "config.yaml", to_yaml(config, comments=False))
        outcome = session.trainer.run_steps()
    if not is_first:
        return None
    if outcome.reason == "nothing to do":
        if before is not None and config != before:
            _report_stored(run, before, config, listener=listener)
        finished = None if allow_data_change else _finished(run, config, outcome=outcome)
        if finished is not None:
            _draw(run, listener=listener)  # the process may have been killed before it was drawn
            return finished

    weights, chosen, loss = _choose_weights(session)
    adapter, rows = weights, adapted_rows(session.model)
    if session.base is not None:
        merge_adapters(session.model)
        weights = weights_of(session.model)
    trained_on = {**session.trained_on(outcome), "weights": chosen}
    if math.isfinite(loss):
        trained_on["dev_loss"] = loss
    if isinstance(config.model, OutsideConfig):
        trained_on["outside_model"] = config.model.model_dump(mode="json", include={"builder", "settings"})
    card, folder, measured = session.card(trained_on), run / "model", DevResult((), 0)
    failure = _divergence(session, outcome=outcome, loss=loss)
    tokenizers = session.data.tokenizers
    if failure is None:
        loaded = LoadedModel(folder, config, tokenizers, session.model, card, session.world.device)
        measured = session.data.measure(loaded, listener=listener)
        card = replace(card, trained_on={**card.trained_on, **measured.learned})
        card = card.with_scores(measured.scores, lines=measured.lines)
    save_model(
        folder,
        config,
        tokenizers=tokenizers,
        weights=weights,
        card=card,
        calibration=measured.calibration,
        forecasts=measured.arrays,
        tables=learn_tables(session.data.sample_texts(), (card.source, card.target)),
        published=run / PUBLISHED,
    )
    if session.base is not None:
        save_adapter(run / FOLDER, adapter, rows=rows, model=folder, config=config, base=session.base)
        notice(listener, f"what was learned is in {run / FOLDER}, which seqloom merge joins with its base")
    _draw(run, listener=listener)
    listener(Event("model_saved", {"path": str(folder)}))
    if failure is not None:
        raise TrainingError(f"{failure} The run is kept in {run}, and its model ({chosen}) in {folder}")
    scores = measured.scores
    if config.data.monolingual:
        scores = keep_the_better(run, scores, listener=listener)
    return Trained(run, folder, outcome, scores, config.purpose)


def _finished(run: Path, config: RunConfig, *, outcome: Outcome) -> Trained | None:
    """What a finished run gave; None where its model is not whole, is of other settings or steps, or has no scores."""
    folder = run / "model"
    try:
        card, settings = read_card(folder), read_settings(folder)
    except (ModelError, OSError):
        return None
    if settings != config or card.trained_on.get("steps") != outcome.step or not card.scores:
        return None
    if config.training.lora is not None and not is_adapter(run / FOLDER):
        return None
    return Trained(run, folder, outcome, card.measured, config.purpose)


def _divergence(session: _Session, *, outcome: Outcome, loss: float) -> str | None:
    """The message on a run that ended worse than a uniform guess; None where training worked.

    A uniform guess among n symbols costs log n nats per token. Fresh weights cost a little more, so a run of few steps
    may end above it too: that is a failure only if it ended clearly above where it began. `loss` is the dev loss of the
    final weights.
    """
    training = session.config.training
    if isinstance(session.task, HasChance):
        chance = session.task.chance
    else:
        symbols = session.data.tokenizers.target.size
        chance = Chance(math.log(symbols), f"{symbols:,} symbols")
    if chance is None:
        return None
    # Where the dev loss may rise although the best weights are good, those count.
    ended = loss if chance.is_overfit_normal or outcome.last_loss is None else outcome.last_loss
    if ended <= chance.loss:
        return None
    # The weights that the run began with; fresh ones, if those of another model are gone by now.
    model = build_model(session.builder, session.data.tokenizers, seed=seed_for(session.config.seed, "weights"))
    if training.start_from is not None:
        with suppress(SeqloomError):
            load_start(model, session.config, find_model(Path(training.start_from)), listener=ignore)
    if isinstance(session.task, Prepares):
        session.task.prepare(model)
    with torch.no_grad():
        before = session.task.dev_loss(model.to(session.world.device).eval())
    shown = f"{ended:,.0f}" if ended >= 100 else f"{ended:.2f}"
    above = (
        f"the dev loss is {shown} after step {outcome.step:,}, above the {chance.loss:.2f} of a uniform guess among "
        f"{chance.guess}; it was {before:.2f} before training"
    )
    is_short = outcome.step < EARLY_STEPS and ended <= before + EARLY_RISE
    if chance.examples is not None and chance.examples < MIN_DEV_EXAMPLES and math.isfinite(ended) and not is_short:
        few = "1 dev example is" if chance.examples == 1 else f"{chance.examples} dev examples are"
        what = "images" if session.config.model.reads_images else "text"
        notice(session.listener, f"{above}; {few} too few to tell why: give more labelled {what}, or more with --dev")
        return None
    if not ended <= before + EARLY_RISE:
        return (
            f"training has diverged: {above}. Start a new run with a lower training.learning_rate, now "
            f"{training.learning_rate:g}, or a longer training.warmup, now {training.warmup:,}."
        )
    if outcome.step >= EARLY_STEPS and not chance.is_overfit_normal:
        return (
            f"training has failed: {above}. Start a new run with another training.learning_rate, now "
            f"{training.learning_rate:g}."
        )
    notice(session.listener, f"{above}: the model has learned nothing useful yet; train for more steps")
    return None


def _fit(run: Path, config: RunConfig, *, world: World, listener: Listener) -> Trained | None:
    """Fit a model with a loop of its own, in one process; measure it on dev text if it can be; write its directory."""
    if not world.is_first:
        return None
    listener = join_listeners(Journal(run / "events.jsonl", warn=listener), listener)
    data = load_data(run, config)
    assert isinstance(data, PairData | TextData | DocumentData)
    if isinstance(data, PairData):
        tokens, amount = data.train.targets.tokens, f"{len(data.train):,} pairs"
    elif isinstance(data, TextData):
        tokens, amount = data.train.tokens, f"{data.train.tokens:,} tokens"
    else:
        tokens, amount = data.words, f"{len(data.train):,} documents"
    if config.purpose == "word vectors" and (warning := too_small(tokens)):
        notice(listener, warning)
    phase(listener, f"fitting {config.model.kind} to {amount}")
    began = monotonic()
    with locked(run):
        remove_leftovers(run, listener=listener)
        model = _fitted(config, data, listener=listener)
        seconds = monotonic() - began
        arrays = model.arrays()
        trained_on = {**data.card_values(config), "seconds": round(seconds, 1)}
        source = config.data.source if config.reads_pairs else None
        card = Card(source, config.data.target, sum(array.size for array in arrays.values()), trained_on)
        folder, measured = run / "model", DevResult((), 0)
        if config.purpose in ("translator", "language model", "summariser"):
            measured = data.measure(LoadedFitted(folder, config, data.tokenizers, model, card), listener=listener)
            card = card.with_scores(measured.scores, lines=measured.lines)
        tables = learn_tables(data.sample_texts(), (card.source, card.target))
        save_fitted(
            folder,
            config,
            tokenizers=data.tokenizers,
            arrays=arrays,
            card=card,
            calibration=measured.calibration,
            tables=tables,
        )
    outcome = Outcome(
        "fitted",
        f"fitted to {amount}",
        step=0,
        best_loss=None,
        best_step=None,
        tokens=tokens,
        seconds=seconds,
        skipped=0,
    )
    listener(Event("finished", vars(outcome)))
    listener(Event("model_saved", {"path": str(folder)}))
    return Trained(run, folder, outcome, measured.scores, config.purpose)


def _fitted(config: RunConfig, data: PairData | TextData | DocumentData, *, listener: Listener) -> FittedModel:
    """The model of the training text."""
    settings, seed = config.model, seed_for(config.seed, "weights")
    if isinstance(data, DocumentData):
        assert isinstance(settings, FitsDocuments)
        return settings.fit_documents(data.rated(), data.rate, listener=listener)
    if isinstance(data, PairData):
        assert isinstance(settings, FitsPairs)
        return settings.fit_pairs(data.encoded(), seed=seed, listener=listener)
    assert isinstance(settings, FitsText)
    text = EncodedText(data.train.ids, data.tokenizers.target.vocabulary)
    return settings.fit(text, seed=seed, listener=listener)


def _choose_weights(session: _Session) -> tuple[dict[str, Tensor], str, float]:
    """The mean of the last checkpoints or the best one, as training.final says; with a name and its dev loss.

    The model has these weights afterwards.
    """
    run, settings, model, listener = session.run, session.config.training, session.model, session.listener
    found = {}
    before: list[Path] = []
    for average in dict.fromkeys((settings.average, 0)):
        folders = final_folders(run, average=average, save_every=settings.save_every, listener=listener)
        if folders == before:  # the last checkpoint is the best one
            break
        before = folders
        weights = average_weights(folders)
        # A short run has fewer checkpoints than training.average.
        last = f"the mean of the last {len(folders)} checkpoints" if len(folders) > 1 else "the last checkpoint"
        with torch.no_grad():
            load_weights(model, weights, origin=str(run))
            found[last if average else "the best checkpoint"] = (session.task.dev_loss(model.eval()), weights)
    finite = [name for name in found if math.isfinite(found[name][0])] or [*found]
    chosen = finite[0] if settings.final == "last" else min(finite, key=lambda name: found[name][0])
    loss, weights = found[chosen]
    with torch.no_grad():
        load_weights(model, weights, origin=str(run))
    others = [f"; {other} has {found[other][0]:.4f}" for other in found if other != chosen]
    notice(listener, f"the model is {chosen}, with a dev loss of {loss:.4f}{''.join(others)}")
    return weights, chosen, loss


def _draw(run: Path, *, listener: Listener) -> None:
    try:
        plot_learning_curve(run / "events.jsonl", run / "learning-curve.png")
    except (OSError, ValueError, KeyError, TypeError) as error:  # or the journal was written by something else
        notice(listener, f"the learning curve could not be drawn: {error}")


def _parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
