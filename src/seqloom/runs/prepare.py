"""From files to what a trainer needs: settings, tokenisers and stored ids, all in the run directory.

run/config.yaml     the complete settings
run/run.json        versions, seed, machine, fingerprints of the data
run/text/           tokenisers
run/data/           the text as ids, in the form that the task needs
"""

import hashlib
import json
import math
import os
import platform
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from seqloom.core.archive import is_archive
from seqloom.core.config import Tree, merge, read_config_file, read_override, resolve, to_yaml
from seqloom.core.errors import DataError, ModelError, SeqloomError, UsageError
from seqloom.core.events import Event, Listener, ignore, notice, phase
from seqloom.core.files import matching_files, read_json, require_run, write_atomically
from seqloom.core.openmp import WAIT_POLICY
from seqloom.data.corpus import file_stamps
from seqloom.data.corpus_files import FolderFiles, expand_folders, languages_from, pairs_in, texts_in
from seqloom.nn.multihead import HeadPolicy
from seqloom.runs.adapters import Base
from seqloom.runs.config import MODELS, BuildsModel, OutsideConfig, RunConfig, is_own
from seqloom.runs.data_kinds import Opening, RunData, RunFiles, data_kind
from seqloom.runs.denoising import translator_settings
from seqloom.runs.loading import find_model, require_device, symbols_of
from seqloom.runs.memory import FEWEST, require_memory
from seqloom.runs.model_dir import read_settings, stored_tokenizers
from seqloom.runs.recognition import command_words, overruled, recognise, require_one
from seqloom.runs.sizing import settled
from seqloom.runs.translation import TEACHER, Split
from seqloom.tasks.settings import DenoisingConfig, MaskedLanguageModellingConfig
from seqloom.text.formats.readers import FORMATS
from seqloom.text.formats.segments import Format, Languages
from seqloom.text.tokenizer import SIDES, Tokenizer, Tokenizers, WordPieces
from seqloom.text.vocabulary import read_foreign_vocabulary
from seqloom.training.run_guard import RECORD, locked
from seqloom.training.settings import TrainingConfig
from seqloom.version import __version__

OWN_FILES = re.compile(
    r"lock(\.json|\.(new|stale)-\w+)?|config\.yaml|(.*/)?\.[\w.]+\.partial-\w+"
    r"|text/(shared|source|target)/(text\.json|bpe\.json|unigram\.model|vocabulary\.txt)"
    r"|data/(train|dev|(source|target)(_dev)?)(\.partial-\w+)?"
    r"/((store|stream|labelled|tokens|series|frames|bytes|floats)\.json|lines|labels|values|first|firsts|pixels|numbers"
    r"|((source|target)\.)?(ids|lengths)|forms|tags|word_ids|letters|letter_lengths|frames|symbols)"
    r"|data/((references|sources|dev|(source|target)_dev)\.txt|(files|counted)\.json|words\.tsv|pairs/(train|dev)\.(source|target))"
    rf"|{TEACHER}/(teacher\.json|\d{{5}}\.txt|(train|dev)\.(source|target))"
)
"""Everything a run directory can hold before `run.json` is written."""

POSITIONS = (
    *("task.windows", "task.offset", "task.rows", "task.length", "task.burn_in", "task.tokens_per_batch"),
    *(
        "task.next_sentence",
        "task.noise.kind",
        "task.pairs_per_batch",
        "task.images_per_batch",
        "task.windows_per_batch",
        "task.frames_per_batch",
    ),
)
"""Settings of tasks in which the position in the data is counted."""

LORA_RATE = 10
"""Factor of the learning rate with training.lora: adapters begin at zero, and need not keep what was learned."""

MAX_LORA_DROPOUT_RATE = 0.1
"""Of a frozen model with training.lora: few numbers hardly overfit, and cannot learn to make up for what is dropped."""

MAX_CONTINUED_LENGTH = 128
"""Tokens of a window, if an encoder is trained further and task.length is not given."""

CLASSES = ("task.labels", "task.is_paired", "task.columns", "task.tags", "task.schemes", "task.series")
"""Settings of classification, tagging and forecasting that give the outputs of a model their meaning."""

TRAINED = ("training.optimiser", "training.freeze", "training.lora")
"""Settings that give the state of the optimiser its meaning."""

FIXED = ("seed", "data", "text", "model", "task.kind", *TRAINED, *POSITIONS, *CLASSES)
"""Settings, or whole sections, that give weights, ids and positions of a run their meaning."""

FREE = ("data.workers", "data.train", "data.dev", "data.monolingual", "model.builder")
"""Settings among them that change nothing; that files of other names hold the same text is seen from the text."""


def open_text(
    config: RunConfig, *, split: Split = "sources", formats: Sequence[Format] = FORMATS, listener: Listener
) -> RunFiles:
    """Open and check the files of a run; `split` says how pairs are held out."""
    return data_kind(config).open(config, Opening(formats, listener, split))


def load_data(run: Path, config: RunConfig) -> RunData:
    """The stored data of a run. A DataError says what is damaged or missing."""
    return data_kind(config).load(run, config)


def choose_config(
    file: Path | None,
    overrides: Sequence[str],
    *,
    train: Sequence[str],
    dev: Sequence[str],
    out: Path | None = None,
    model: BuildsModel | None = None,
    formats: Sequence[Format] = FORMATS,
    listener: Listener,
) -> RunConfig:
    """The settings of a new run: chosen for its data, then the file, then the overrides.

    `model` are the settings of a model that take the place of its section, or are recorded there; `out` is the run, for
    messages.
    """
    named: dict[str, Any] = {side: list(names) for side, names in (("train", train), ("dev", dev)) if names}
    # Once without looking at the data, so that an invalid setting is refused before anything slow begins.
    defaults: dict[str, Any] = {"data": named}
    if is_own(model):
        defaults["model"] = model.model_dump(mode="json")
    elif (task_kind := getattr(model, "task_kind", "translation")) != "translation":
        defaults |= {"model": OutsideConfig.of(model).model_dump(mode="json"), "task": {"kind": task_kind}}
    if model is None:
        found = _recognised_kind(file, overrides, train=train, dev=dev, out=out, formats=formats, listener=listener)
        defaults = {**defaults, **{name: {**defaults.get(name, {}), **section} for name, section in found.items()}}
    first = resolve(RunConfig, defaults=defaults, file=file, overrides=overrides)
    require_device(first.device)
    require_no_shortlist(first)
    if first.training.start_from is not None:
        start = read_settings(find_model(Path(first.training.start_from)))
        _require_fitting_start(first.training.start_from, start, file, overrides)
        heads = start.model.classifier_settings(0) if start.purpose == "classifier" else {}  # its classes may differ
        defaults |= {
            "model": {**start.model.model_dump(mode="json"), **heads},
            "task": {"kind": start.task.followed_by or start.task.kind},
        }
        first = resolve(RunConfig, defaults=defaults, file=file, overrides=overrides)
        if start.model.kind != first.model.kind and (start.model.reads_images or first.model.reads_images):
            raise ModelError(
                f"training.start_from={first.training.start_from} is a model of kind {start.model.kind}, which cannot "
                f"be the start of one of kind {first.model.kind}; leave out model.kind, or start from another model"
            )
    if isinstance(first.task, MaskedLanguageModellingConfig) and not getattr(first.model, "has_output", True):
        start_from = first.training.start_from
        origin = "model.has_output=false" if start_from is None else f"training.start_from={start_from}"
        raise UsageError(
            f"{origin} gives a model without an output for hidden tokens, which "
            "task.kind=masked_language_modelling trains; start from a model that has one, such as a folder of "
            "BertForMaskedLM, or train a new one with model.kind=bert"
        )
    if isinstance(first.model, OutsideConfig) and model is None:
        raise UsageError(
            f"model.kind=outside is a model that only Python can build ({first.model.in_words()}); train it with: "
            "seqloom.train(…, model=…)"
        )
    first = resolve(RunConfig, defaults={**defaults, **_text_defaults(first)}, file=file, overrides=overrides)
    given_tokenizers(first)  # to refuse what cannot be used
    kinds = {"text.kind": first.text.kind, **{f"text.{side}.kind": first.text.side(side).kind for side in SIDES}}
    for name, kind in kinds.items():
        if first.reads_pairs and first.model.is_fitted and kind != "word":
            raise UsageError(
                f"{name}={kind} cannot be combined with model.kind={first.model.kind}, which works on whole words; "
                f"leave out {name}"
            )
    first.model.check_files()
    folders = _files_of_folders(first, train, dev, formats=formats, listener=listener)
    if folders:
        named |= folders
        first = first.model_copy(update={"data": first.data.model_copy(update=folders)})
    names = tuple(named.get("train", ())) or first.data.train
    if not names:
        raise UsageError(f"no training files: give {data_kind(first).files}, or data.train")
    if first.model.is_fitted and first.training.start_from is not None:
        raise UsageError(
            f"training.start_from={first.training.start_from} is for models that are trained step by step; one of "
            f"kind {first.model.kind} is fitted to its text as a whole"
        )

    sizing = data_kind(first).size(first, [Path(name) for name in names], Opening(formats, listener))
    inherited: dict[str, Any] = {}
    if first.training.start_from is not None:
        classes = len(sizing.defaults.get("task", {}).get("labels", ()))
        inherited = _inherited(first, sizing.defaults, classes=classes, listener=listener)
    elif first.data.tokenizers_from is not None:
        inherited = {"text": first.text.model_dump(mode="json")}
    outside = {"model": first.model.model_dump(mode="json")} if isinstance(first.model, OutsideConfig) else {}
    defaults = _without_patience(first, {**sizing.defaults, **inherited, **outside})
    defaults["data"] = {**defaults.get("data", {}), **named}
    # Files named on the command line take precedence over the config file, as any override does.
    flags = [f"data.{side}={json.dumps(names)}" for side, names in named.items()]
    of_folders = [f"data.{side}={json.dumps(names)}" for side, names in folders.items()]
    config = resolve(RunConfig, defaults=defaults, file=file, overrides=[*flags, *overrides, *of_folders])
    unnamed = {side: code for side, code in defaults["data"].items() if side in ("source", "target")}
    unnamed = {side: code for side, code in unnamed.items() if getattr(config.data, side) is None}
    if unnamed:  # an explicit null, as `seqloom config` prints it, means the default too
        config = config.model_copy(update={"data": config.data.model_copy(update=unnamed)})
    if model is not None:
        config = with_model(config, model)
        if unused := [each for each in overrides if each.startswith("model.") and not each.startswith("model.kind=")]:
            notice(listener, f"{', '.join(unused)} has no effect: the settings of the model were given from Python")
    if config.model.is_fitted:
        # A file that was written by a run has all settings; those at their defaults were not set by the user.
        of_file = read_config_file(file).values.get("training") if file is not None else None
        usual = TrainingConfig()
        given = [f"training.{key}" for key in of_file or {} if getattr(config.training, key) != getattr(usual, key)]
        given += [each.partition("=")[0] for each in overrides if each.partition("=")[0].split(".")[0] == "training"]
        if given:
            notice(
                listener,
                f"no effect: {', '.join(dict.fromkeys(given))}; a model of kind {config.model.kind} is fitted to its "
                "text as a whole, not in steps, and is controlled by model.* only",
            )
    require_heads(config)
    require_positions(config)
    listener(Event("sizing", {"reasons": sizing.reasons_in(config, inherited=inherited)}))
    report_warmup(config, listener=listener)
    require_memory(config, FEWEST)
    return config


def _recognised_kind(
    file: Path | None,
    overrides: Sequence[str],
    *,
    train: Sequence[str],
    dev: Sequence[str],
    out: Path | None,
    formats: Sequence[Format],
    listener: Listener,
) -> dict[str, Any]:
    """The kind of task or model that the training files are meant for, as defaults, if no setting names one."""
    given = read_config_file(file) if file is not None else Tree()
    for override in overrides:
        given = merge(given, read_override(override))
    if overruled(given.values):
        return {}
    data = given.values.get("data")
    settings = data if isinstance(data, Mapping) else {}
    names = list(train) or settings.get("train")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return {}
    encoding = settings.get("encoding", "utf-8")
    readings = recognise(names, formats=formats, encoding=encoding if isinstance(encoding, str) else "utf-8")
    words = list(command_words(file, overrides, train=train, dev=dev, out=out))
    reading = require_one(readings, names=names, words=words)
    if reading is None:
        return {}
    notice(listener, f"{reading.setting}, because of {names[0]}: {reading.reason} (name another kind to overrule)")
    path, _, value = reading.setting.partition("=")
    section, _, name = path.partition(".")
    return {section: {name: value}}


def _require_fitting_start(start_from: str, start: RunConfig, file: Path | None, overrides: Sequence[str]) -> None:
    """Refuse a model to start from that has not learned what is named: another kind of model, or another task."""
    values = read_config_file(file).values if file is not None else {}
    sections = {name: values.get(name) for name in ("model", "task")}
    named = {name: section.get("kind") for name, section in sections.items() if isinstance(section, Mapping)}
    named |= {name.partition(".")[0]: kind for name, _, kind in (each.partition("=") for each in overrides)
              if name in ("model.kind", "task.kind")}  # fmt: skip
    kind = named.get("model") or start.model.kind
    task = named.get("task") or start.task.followed_by or start.task.kind
    declared = MODELS.get(kind)
    if declared in (None, OutsideConfig) or declared.can_learn(task):
        return
    origin = f"training.start_from={start_from} is a model of kind {start.model.kind}"
    if kind != start.model.kind:
        raise ModelError(
            f"{origin}, which cannot be the start of one of kind {kind}; leave out model.kind, or start from another "
            "model"
        )
    learned = " or ".join(dict.fromkeys((start.model.task_kind, *start.model.other_task_kinds)))
    raise ModelError(
        f"{origin}, which can be the start of {learned}, not of task.kind={task}; leave out task.kind, or start from "
        "another model"
    )


def _files_of_folders(
    first: RunConfig, train: Sequence[str], dev: Sequence[str], *, formats: Sequence[Format], listener: Listener
) -> dict[str, tuple[str, ...]]:
    """The files of folders that are named as text, for those of `train` and `dev` that name some.

    The run keeps the names of the files: what is added to a folder later does not change it.
    """
    found: dict[str, tuple[str, ...]] = {}
    languages = first.data.source, first.data.target
    given = {"train": tuple(train) or first.data.train, "dev": tuple(dev) or first.data.dev}
    if first.data_kind == "labelled images" or not any(
        Path(name).is_dir() for names in given.values() for name in names
    ):
        return found
    if first.data_kind == "series":
        folder = next(name for names in given.values() for name in names if Path(name).is_dir())
        raise UsageError(f"{folder} is a folder; name a table of numbers, CSV or TSV")
    if first.data_kind in ("labelled text", "tagged text"):
        folder = next(name for names in given.values() for name in names if Path(name).is_dir())
        if first.data_kind == "tagged text":
            raise UsageError(f"{folder} is a folder; name files, such as '{Path(folder) / '*.conllu'}'")
        raise UsageError(
            f"{folder} is a folder; name files of labelled text, such as '{Path(folder) / '*.tsv'}'. Images are read "
            "by model.kind=vit or swin"
        )
    for side, names in given.items():

        def expand(folder: Path, is_held_out: bool = side == "dev", languages: Languages = languages) -> FolderFiles:
            if first.reads_pairs and first.data.unit != "turn":
                return pairs_in(folder, languages, is_held_out=is_held_out, formats=formats)
            return texts_in(folder, languages[1], is_held_out=is_held_out, formats=formats)

        files, notices = expand_folders(names, expand)
        for sentence in notices:
            notice(listener, sentence)
        if notices:
            found[side] = files
        if (
            first.reads_pairs
            and first.data.unit != "turn"
            and (said := languages_from([Path(name) for name in files], formats))
        ):
            languages = languages[0] or said[0], languages[1] or said[1]
    both = set(found.get("train", given["train"])) & set(found.get("dev", given["dev"]))
    if both:
        raise UsageError(f"{min(both)} is training text and dev text as well; give --dev other files")
    return found


def report_warmup(config: RunConfig, *, listener: Listener) -> None:
    """Report a warm-up that does not end before the run does."""
    if not config.model.is_fitted and (problem := config.training.warmup_problem()):
        notice(listener, problem)


def _text_defaults(first: RunConfig) -> dict[str, Any]:
    """Text settings that follow from the model, or from tokenisers that `data.tokenizers_from` names."""
    name = first.data.tokenizers_from
    if name is None:
        pieces = {} if first.model.pieces is None else {"kind": first.model.pieces}
        text = {**pieces, **first.model.text_settings}
        return {"text": text} if text else {}
    if _is_vocabulary(Path(name)):
        try:
            size = read_foreign_vocabulary(Path(name), encoding=first.data.encoding).size
        except DataError as error:
            message = (
                f"data.tokenizers_from={name} is neither a model nor a vocabulary file: one token per line, each once"
            )
            raise DataError(message, problems=error.problems, more=error.more) from error
        return {"text": {"kind": "word", "segmentation": "spaces", "size": size}}
    return {"text": Tokenizers.load(find_model(Path(name)) / "text").target.config.model_dump(mode="json")}


def given_tokenizers(config: RunConfig) -> Tokenizers | None:
    """Tokenisers that `data.tokenizers_from` names; None where they are learned from the text."""
    name = config.data.tokenizers_from
    if name is None:
        return None
    if config.training.start_from is not None:
        raise UsageError(
            f"training.start_from={config.training.start_from} uses the tokenisers of that model; leave out "
            f"data.tokenizers_from={name}"
        )
    if _is_vocabulary(Path(name)):  # which may come from another program
        text = config.text
        if text.kind != "word" or text.segmentation != "spaces":
            raise UsageError(
                f"data.tokenizers_from={name} is a list of words, for text.kind=word and text.segmentation=spaces, but "
                f"they are {text.kind} and {text.segmentation}; leave both out, or name a model"
            )
        vocabulary = read_foreign_vocabulary(Path(name), encoding=config.data.encoding)
        if vocabulary.size > text.size:
            raise UsageError(
                f"{name} has {vocabulary.size:,} words, reserved symbols included, more than text.size={text.size}; "
                "leave out text.size"
            )
        tokenizer = Tokenizer(text, WordPieces(vocabulary, segmentation="spaces"))
        return Tokenizers(tokenizer, tokenizer)
    found = Tokenizers.load(find_model(Path(name)) / "text")
    for field, value in found.target.config.model_dump(mode="json").items():
        if (given := config.text.model_dump(mode="json")[field]) != value:
            raise UsageError(
                f"text.{field}={json.dumps(given)} contradicts data.tokenizers_from={name}, whose tokenisers have "
                f"text.{field}={json.dumps(value)}; leave one of them out"
            )
    return found if config.reads_pairs else Tokenizers(found.target, found.target)


def _is_vocabulary(path: Path) -> bool:
    return path.is_file() and not is_archive(path)


def general_config(file: Path | None, overrides: Sequence[str]) -> RunConfig:
    """The settings of a run whose text is unknown: what is chosen for every text, and general defaults for the rest."""
    first = resolve(RunConfig, file=file, overrides=overrides)
    if first.training.start_from is not None:
        inherited = _inherited(first, {}, listener=ignore)
        return resolve(RunConfig, defaults=inherited, file=file, overrides=overrides)
    text = _text_defaults(first)
    first = resolve(RunConfig, defaults=text, file=file, overrides=overrides)
    sizings = data_kind(first).general_sizes(first)
    defaults = _without_patience(first, {**settled(sizings), **(text if first.data.tokenizers_from else {})})
    return resolve(RunConfig, defaults=defaults, file=file, overrides=overrides)


def _without_patience(first: RunConfig, defaults: dict[str, Any]) -> dict[str, Any]:
    """Defaults without early stopping where there are no validations."""
    if first.training.validate_every or "training" not in defaults:
        return defaults
    return {**defaults, "training": {**defaults["training"], "patience": 0}}


def require_heads(config: RunConfig) -> None:
    """Refuse a head that the model will not have: the model is scored with it after the last step."""
    if (attention := config.model.attention_heads) is not None:
        HeadPolicy.of(config.search.heads, layers=attention[0], heads=attention[1])


def require_positions(config: RunConfig) -> None:
    """Refuse windows that are longer than an encoder reads.

    An imported encoder may have fewer positions than the default of task.length, so only a run is checked.
    """
    task, longest = config.task, getattr(config.model, "longest", None)
    if isinstance(task, MaskedLanguageModellingConfig) and longest is not None and task.length > longest:
        raise UsageError(
            f"task.length={task.length} is longer than model.longest={longest}, the positions of the model; make one "
            "of them fit"
        )


def require_no_shortlist(config: RunConfig) -> None:
    """Refuse to train with a shortlist: the scores after the last step would need a lexicon of the finished model."""
    if config.search.shortlist:
        raise UsageError(
            f"search.shortlist={config.search.shortlist} needs a lexicon, which `seqloom shortlist` adds to a finished "
            "model; leave it out of training, and set it when the model translates"
        )


def with_model(config: RunConfig, model: BuildsModel) -> RunConfig:
    """The same settings with those of a model in their place: our own as they are, others as a record of them."""
    section = model if is_own(model) else OutsideConfig.of(model)
    return resolve(RunConfig, defaults={**config.model_dump(mode="json"), "model": section.model_dump(mode="json")})


def _inherited(first: RunConfig, defaults: dict[str, Any], *, classes: int = 0, listener: Listener) -> dict[str, Any]:
    """Text and model settings of the model to start from, and a low learning rate, which keeps what it has learned.

    A classifier has a head for so many `classes` in place of the heads of that model.
    """
    start_from = first.training.start_from
    assert start_from is not None
    start = read_settings(find_model(Path(start_from)))
    inherited = start.model_dump(mode="json", include={"text", "model", "search"})
    inherited["search"]["shortlist"] = 0  # the lexicon belongs to that model
    if classes:
        texts = 1 + bool(defaults["task"].get("is_paired"))
        inherited["model"] |= start.model.classifier_settings(classes, texts=texts)
    if isinstance(start.task, DenoisingConfig) and first.task.kind == "translation":
        inherited["model"] |= translator_settings(start, defaults, origin=start_from)
        notice(listener, f"{start_from} has learned denoising; task.kind=denoising would continue that")
    if defaults.get("task", {}).get("kind") == "contrastive":
        inherited["model"] |= start.model.sentence_settings()
        inherited["text"]["shared"] = True  # an encoder has one tokeniser; published ones record that of one side
    rate = min(start.training.learning_rate / 5, start.model.max_fine_tuning_rate)
    if classes:
        if math.isfinite(start.model.max_fine_tuning_rate):
            rate = min(start.training.learning_rate / 2, start.model.max_fine_tuning_rate)
        if inherited["model"].get("dropout_rate") == 0:  # more text than it could learn by heart, unlike labels
            inherited["model"]["dropout_rate"] = defaults["model"]["dropout_rate"]
    if first.training.lora is not None:
        rate *= LORA_RATE
        if "dropout_rate" in inherited["model"]:
            inherited["model"]["dropout_rate"] = min(inherited["model"]["dropout_rate"], MAX_LORA_DROPOUT_RATE)
    as_there = "images" if start.model.reads_images else "text"
    notice(
        listener,
        f"starting from {start_from}: {as_there} and model as there, task.kind={first.task.kind}, a learning rate up "
        f"to {rate:g}",
    )
    training = defaults.get("training", {})
    warmup = min(100, training["steps"] // 4) if "steps" in training else 100
    found = {**inherited, "training": {**training, "learning_rate": rate, "warmup": warmup}}
    longest, task = getattr(start.model, "longest", None), defaults.get("task", {})
    if start.model.reads_windows and longest is not None and task.get("length", 0) > longest:
        found["task"] = {**task, "length": longest}
    if isinstance(start.task, MaskedLanguageModellingConfig) and "length" in task:
        # Published encoders have positions for far longer texts than are needed to go on with them.
        found["task"] = {**task, "length": min(task["length"], MAX_CONTINUED_LENGTH)}
    return found


def require_new(run: Path) -> None:
    """Refuse to start a run in a folder that is not empty, unless an interrupted preparation has left its files."""
    if run.exists() and (not run.is_dir() or (any(run.iterdir()) and not is_unprepared(run))):
        raise UsageError(
            f"{run} exists already; resume it (seqloom train --resume {run}, or seqloom.resume({str(run)!r})), "
            "or choose another folder"
        )


def is_unprepared(run: Path) -> bool:
    """Whether a folder holds only files of an unfinished preparation."""
    files = (path for path in run.rglob("*") if path.is_symlink() or not path.is_dir())
    first = next(files, None)
    # Lazily, because the first foreign file decides: the folder may be a home with a million files.
    if first is None or not all(
        OWN_FILES.fullmatch(path.relative_to(run).as_posix()) for path in chain([first], files)
    ):
        return False
    config = run / "config.yaml"
    if not config.is_file():
        return True
    # The user may keep a config in a folder of this name; one of ours is recognised by its exact text.
    try:
        return to_yaml(resolve(RunConfig, file=config), comments=False) == config.read_text(encoding="utf-8")
    except (SeqloomError, ValueError):
        return False


def prepare_run(run: Path, config: RunConfig, *, formats: Sequence[Format] = FORMATS, listener: Listener) -> None:
    """Make the run directory with everything that does not change in training."""
    require_new(run)
    files = _files([*config.data.train, *config.data.dev, *config.data.monolingual])
    named = data_kind(config).named(config)
    stamps = _stamps(files, named)
    text = open_text(config, formats=formats, listener=listener)
    with locked(run):
        require_new(run)  # again, now that no other process can write here
        try:
            left = [path for path in run.iterdir() if path.name not in ("lock", RECORD, TEACHER)]
            if left:
                notice(listener, f"{run} was interrupted while it was being prepared; preparing it again")
            for path in left:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            write_atomically(run / "config.yaml", to_yaml(config, comments=False))
            tokenizers = _tokenizers(config, text, listener=listener)
            require_memory(config, symbols_of(tokenizers))
            tokenizers.save(run / "text")
            text.encode(run, config, tokenizers=tokenizers, listener=listener)
            if _stamps(files, named) != stamps:
                raise DataError(
                    "the training files changed while they were being read; retry when nothing is writing to them"
                )
            record = {
                "seqloom": __version__,
                "torch": torch.__version__,
                "python": platform.python_version(),
                "machine": {"processor": platform.machine(), "system": platform.system(), "cores": os.cpu_count()},
                **thread_settings(config),
                "seed": config.seed,
                "fixed": fixed_settings(config),
                "data": dict(text.fingerprints),
                "tokenizers": tokenizers.fingerprints,
                "split": "sources",
                **text.size,
                "files": stamps,
            }
            if (start_from := config.training.start_from) is not None:
                record["base"] = Base.of(start_from, find_model(Path(start_from))).model_dump()
            # Last: its presence means that everything before it is complete.
            write_atomically(run / "run.json", json.dumps(record, indent=2) + "\n")
        except BaseException:
            discard_run(run)
            raise


def discard_run(run: Path) -> None:
    """Remove a run that could not begin, but not what a teacher has translated for it."""
    kept = run / TEACHER
    for path in [each for each in run.iterdir() if each != kept] if kept.is_dir() else [run]:
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


def _tokenizers(config: RunConfig, text: RunFiles, *, listener: Listener) -> Tokenizers:
    """Those of the model to start from, those that `data.tokenizers_from` names, or new ones learned from the text."""
    if not config.model.has_vocabulary:
        return text.learn_tokenizers(config, listener=listener)  # there are none
    if config.training.start_from is not None:
        return Tokenizers.load(find_model(Path(config.training.start_from)) / "text")
    if (given := given_tokenizers(config)) is not None:
        notice(listener, f"tokenisers of {config.data.tokenizers_from}, {given.target.size:,} pieces; none are learned")
        return given
    # Usually all words and characters are taken, and their maximum would look like the number in this text.
    all_of = {"word": "words", "char": "characters"}
    sides = [config.text.side(side) for side in SIDES]
    found = [all_of.get(side.kind, f"{side.size:,} {side.kind} pieces") for side in sides]
    what = found[0] if found[0] == found[1] else f"{found[0]} of the source and {found[1]} of the target"
    phase(listener, f"learning {what}")
    return text.learn_tokenizers(config, listener=listener)


def open_run(run: Path) -> tuple[RunConfig, dict[str, Any]]:
    """The settings and the record of an existing run."""
    require_run(run)
    if not (run / "run.json").is_file():
        if is_unprepared(run):
            raise UsageError(
                f"{run} was interrupted while it was being prepared; start it again with the same training "
                "text and folder"
            )
        raise UsageError(f"{run} cannot be resumed: run.json is missing; start a new run")
    if not (run / "config.yaml").exists():
        raise UsageError(f"{run / 'config.yaml'} is missing; {_how_to_restore(run, 'config.yaml')}")
    config = resolve(RunConfig, file=run / "config.yaml")
    try:
        record = read_json(run / "run.json")
    except (OSError, ValueError) as error:
        raise _damaged_record(run / "run.json", str(error)) from error
    if not isinstance(record, dict) or not isinstance(record.get("data"), dict):
        raise _damaged_record(run / "run.json", '"data", the fingerprints of the text, is missing')
    if not config.data.train:
        raise _damaged_record(run / "config.yaml", "data.train is empty")
    return config, record


def _how_to_restore(run: Path, name: str) -> str:
    """How to restore a part of a run: its model has the same."""
    if (run / "model" / name).exists():
        return f"the model of this run has the same file: copy {run / 'model' / name} to its place"
    return "restore it from a copy, or start a new run in another folder"


def _damaged_record(path: Path, reason: str) -> ModelError:
    return ModelError(f"{path} is damaged ({reason}); restore it from a copy, or start a new run in another folder")


def fixed_settings(config: RunConfig) -> dict[str, Any]:
    """The settings that give weights and ids their meaning, by their full paths; they cannot change in a run."""
    values = config.model_dump(mode="json")
    # Each of these is one value: it may be null.
    flat = {"training.lora": values["training"].pop("lora")}
    flat |= {f"text.{side}": values["text"].pop(side) for side in SIDES}
    flat |= flat_settings(values)
    is_fixed = {name: any(name == each or name.startswith(f"{each}.") for each in FIXED) for name in flat}
    return {name: value for name, value in flat.items() if is_fixed[name] and name not in FREE}


def require_same_meaning(record: Mapping[str, Any], before: RunConfig, now: RunConfig, *, run: Path) -> None:
    """Refuse settings that would change the meaning of the weights or the ids of a resumed run.

    They are compared with the record of the run: its config.yaml may have been edited. A run of an earlier version has
    no such record, or lacks some settings in it.
    """
    begun, given = record.get("fixed") or fixed_settings(before), fixed_settings(now)
    if not isinstance(begun, dict):
        raise _damaged_record(run / "run.json", '"fixed" holds no settings')
    for name, value in begun.items():
        if name in given and value != given[name]:
            raise UsageError(
                f"{name} is {json.dumps(value)} in {run} and cannot become {json.dumps(given[name])} "
                f"when it is resumed; leave it, or start a new run in another folder, optionally from this model: "
                f"training.start_from={run}"
            )


def flat_settings(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings by their full paths."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= flat_settings(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat


def prepare_resume(
    run: Path,
    config: RunConfig,
    record: dict[str, Any],
    *,
    allow_data_change: bool,
    formats: Sequence[Format] = FORMATS,
    listener: Listener,
) -> None:
    """Make sure that a run can be resumed: encode its text again if the ids are damaged or the text has changed."""
    try:
        tokenizers = stored_tokenizers(run, config)
    except ModelError as error:
        raise ModelError(f"{run / 'text'} is damaged ({error}); {_how_to_restore(run, 'text')}") from error
    found = tokenizers.fingerprints
    if (begun := record.get("tokenizers", found)) != found:
        # Their pieces have other ids than those that the model has learned.
        first = ", ".join(str(each)[:12] for each in begun) if isinstance(begun, list) else begun
        raise ModelError(
            f"{run / 'text'} holds other tokenisers ({', '.join(each[:12] for each in found)}) than this run began "
            f"with ({first}); restore those from a copy, or start a new run in another folder"
        )
    damage = None
    try:
        load_data(run, config)
    except DataError as error:
        damage = str(error)
    names = [*config.data.train, *config.data.dev, *config.data.monolingual]
    files = _files(names)
    missing, named = next((path for path in files if not path.exists()), None), list[Path]()
    if missing is None:
        named = list(data_kind(config).named(config))
        missing = next((path for path in named if not path.exists()), None)
    looked = "" if missing is None or missing.is_absolute() else f" (looked in {Path.cwd()})"
    if missing and damage:
        side = "train" if missing in _files(config.data.train) else "dev"
        where = "" if missing.is_absolute() else "resume from the folder in which the run was started, "
        place = "" if missing in named else f", or give its new place: data.{side}='[…]'"
        raise DataError(
            f"{damage}. {missing}, from which it could be encoded again, was not found{looked}; {where}put the file "
            f"back{place}"
        )
    if missing:
        notice(listener, f"{missing} not found{looked}; continuing with the ids stored in the run directory")
        return
    if not damage and record.get("files") == _stamps(files, named):
        return  # without reading everything again
    # A run of an earlier version has no "split": it held out single pairs, and must do so again.
    text = open_text(config, split=record.get("split", "pairs"), formats=formats, listener=ignore)
    has_changed = text.fingerprints != record["data"]
    if has_changed and not allow_data_change:
        raise DataError(
            f"the text of this run ({', '.join(names)}) has changed since it began; put the old files back, start a "
            "new run, or accept it with --allow-data-change"
        )
    if has_changed:
        notice(listener, "the text has changed since the run began; encoding it again")
    elif damage:
        notice(listener, f"the stored ids are missing or damaged; encoding the text again ({damage})")
    else:
        return
    shutil.rmtree(run / "data", ignore_errors=True)
    text.encode(run, config, tokenizers=tokenizers, listener=listener)
    if has_changed:
        record = {**record, "data": dict(text.fingerprints), "files": _stamps(files, named), **text.size}
        write_atomically(run / "run.json", json.dumps(record, indent=2) + "\n")


def _files(names: Sequence[str]) -> list[Path]:
    """The files of these names, and those in folders; a name for several of which none is left stands for itself."""
    files: list[Path] = []
    for name in names:
        if Path(name).is_dir():  # of images
            files += sorted(path for path in Path(name).rglob("*") if path.is_file())
            continue
        try:
            files += matching_files(Path(name))
        except UsageError:
            files.append(Path(name))
    return files


def _stamps(files: Sequence[Path], named: Sequence[Path] = ()) -> dict[str, list[int]]:
    """Sizes and times of files, by which a resume sees that they need not be read again.

    Files that these name can be very many: together they have one entry, with their number, their size and a hash.
    """
    stamps = {name: list(stamp) for name, stamp in file_stamps(files).items()}
    if named:
        found = file_stamps(named)
        digest = hashlib.sha256(json.dumps(found).encode()).digest()
        stamps["named files"] = [len(found), sum(size for size, _ in found.values()), int.from_bytes(digest[:6])]
    return stamps


def thread_settings(config: RunConfig) -> dict[str, Any]:
    """How many threads a run computes with, and how they wait for each other."""
    return {"threads": config.training.threads or torch.get_num_threads(), "wait_policy": asdict(WAIT_POLICY)}
