"""From files to what a trainer needs: languages, sizes, tokenisers and stored ids, all in the run directory.

run/config.yaml     the complete settings
run/run.json        versions, seed, machine, fingerprints of the data
run/text/           tokenisers
run/data/train/     the training pairs as ids, memory-mapped
run/data/dev/       the held-out pairs, and their reference lines in references.txt
"""

import json
import os
import platform
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from seqloom.core.config import resolve, to_yaml
from seqloom.core.errors import DataError, ModelError, SeqloomError, UsageError
from seqloom.core.events import Event, Listener, notice
from seqloom.core.files import read_lines, write_atomically
from seqloom.data.corpus import Lines, hold_out, languages_from, open_corpus
from seqloom.data.examples import Report, encode_corpus
from seqloom.data.store import Store
from seqloom.recipes.config import RunConfig
from seqloom.recipes.load import find_model
from seqloom.recipes.sizing import choose_sizes, facts_of
from seqloom.text.tokenizer import Tokenizers
from seqloom.text.training import train_tokenizers
from seqloom.training.lock import locked
from seqloom.version import __version__

UNASKED = 987_654_321
"""A number of steps that nobody asks for: it stands where none was given."""

OWN_FILES = re.compile(
    r"lock(\.(new|stale)-\w+)?|config\.yaml|(.*/)?\.[\w.]+\.partial-\w+"
    r"|text/(shared|source|target)/(text\.json|bpe\.json|unigram\.model|vocabulary\.txt)"
    r"|data/(train|dev)(\.partial-\w+)?/(store\.json|lines|(source|target)\.(ids|lengths))|data/references\.txt"
)
"""All that a run directory can hold before `run.json` is written."""

FIXED = ("seed", "data", "text", "model", "task.kind", "training.optimiser")
"""Settings, or whole sections of them, that say what the weights and the ids of a run mean."""


@dataclass(frozen=True)
class Corpora:
    """The text of a run."""

    train: Lines
    dev: Lines
    fingerprints: dict[str, str]


@dataclass(frozen=True)
class Prepared:
    """What was made of the text."""

    tokenizers: Tokenizers
    train: Store
    dev: Store
    references: list[str]


def choose_config(
    file: Path | None, overrides: Sequence[str], *, train: Sequence[str], dev: Sequence[str], listener: Listener
) -> RunConfig:
    """The settings of a new run: chosen for its data, then the file, then the overrides."""
    named: dict[str, Any] = {}
    if train:
        named["train"] = list(train)
    if dev:
        named["dev"] = list(dev)
    # Once without looking at the data, so that a wrong setting is refused before anything slow begins.
    unasked = {"data": named, "training": {"steps": UNASKED}}
    first = resolve(RunConfig, defaults=unasked, file=file, overrides=overrides)
    files = tuple(train) or first.data.train
    if not files:
        raise UsageError(
            "no training files: give --train SOURCE --train TARGET (or one .tsv), or data.train in a config"
        )
    paths = [Path(name) for name in files]
    found = languages_from(paths)
    languages = (first.data.source or (found[0] if found else None), first.data.target or (found[1] if found else None))
    corpus = open_corpus(paths, encoding=first.data.encoding)
    _held_out(first, len(corpus))
    steps = first.training.steps
    model = first.model
    sizing = choose_sizes(
        facts_of(corpus, languages),
        steps=None if steps == UNASKED else steps,
        kind=model.kind,
        width=model.width if "width" in model.model_fields_set else None,
    )
    defaults, inherited = sizing.defaults, {}
    if first.training.start_from is not None:
        inherited = _inherited(first.training.start_from, sizing.defaults, listener=listener)
        defaults = {**defaults, **inherited}
    data = {**defaults["data"], **named}
    for name, language in zip(("source", "target"), languages, strict=True):
        if language is not None:
            data[name] = language
    # What the command line names wins over the file, as any override does.
    flags = [f"data.{name}={json.dumps(value)}" for name, value in named.items()]
    config = resolve(RunConfig, defaults={**defaults, "data": data}, file=file, overrides=[*flags, *overrides])
    listener(Event("sizing", {"reasons": sizing.reasons_in(config, inherited=inherited)}))
    return config


def _inherited(start_from: str, defaults: dict[str, Any], *, listener: Listener) -> dict[str, Any]:
    """Another model's weights fit only its own text and model settings; what it knows needs a gentle rate."""
    start = resolve(RunConfig, file=find_model(Path(start_from)) / "config.yaml")
    inherited = start.model_dump(mode="json", include={"text", "model", "search"})
    rate = start.training.learning_rate / 5
    notice(listener, f"starting from {start_from}: text and model as there, a learning rate up to {rate:g}")
    return {**inherited, "training": {**defaults["training"], "learning_rate": rate, "warmup": 100}}


def open_corpora(config: RunConfig, *, listener: Listener) -> Corpora:
    """Open and check the text of a run. Without dev files, a part of the training text is held out."""
    train = open_corpus([Path(name) for name in config.data.train], encoding=config.data.encoding)
    for sentence in train.notices:
        notice(listener, sentence)
    fingerprints = {"train": train.fingerprint()}
    if config.data.dev:
        dev = open_corpus([Path(name) for name in config.data.dev], encoding=config.data.encoding)
        fingerprints["dev"] = dev.fingerprint()
        return Corpora(train, dev, fingerprints)
    count = _held_out(config, len(train))
    notice(listener, f"no dev files: {count:,} of {len(train):,} pairs are held out for validation")
    rest, held = hold_out(train, count, seed=config.seed)
    return Corpora(rest, held, fingerprints)


def _held_out(config: RunConfig, pairs: int) -> int:
    """Training pairs that are held out for validation: none where there are dev files."""
    if config.data.dev:
        return 0
    count = min(config.data.held_out, pairs // 10)
    if count == 0:
        few = "1 pair is" if pairs == 1 else f"{pairs} pairs are"
        raise DataError(f"{few} too few to hold some out for validation; give --dev files")
    return count


def require_new(run: Path) -> None:
    """Refuse to begin a run where there is something already, other than what an interrupted preparation has left."""
    if run.exists() and (not run.is_dir() or (any(run.iterdir()) and not _is_unbegun(run))):
        raise UsageError(
            f"{run} exists already; go on with it by: seqloom train --resume {run}, or choose another --out"
        )


def _is_unbegun(run: Path) -> bool:
    """Whether a folder holds nothing but files of a preparation that did not come to its end."""
    files = [path for path in run.rglob("*") if path.is_symlink() or not path.is_dir()]
    if not files or not all(OWN_FILES.fullmatch(path.relative_to(run).as_posix()) for path in files):
        return False
    config = run / "config.yaml"
    if not config.is_file():
        return True
    # Somebody may keep a config of their own in a folder of this name; ours is known by its exact words.
    try:
        return to_yaml(resolve(RunConfig, file=config), comments=False) == config.read_text(encoding="utf-8")
    except (SeqloomError, ValueError):
        return False


def begin_run(run: Path, config: RunConfig, *, listener: Listener) -> None:
    """Make the run directory with all that does not change while it trains."""
    require_new(run)
    corpora = open_corpora(config, listener=listener)
    with locked(run):
        require_new(run)  # again, now that nobody else can be at it
        try:
            _clear(run, listener=listener)
            write_atomically(run / "config.yaml", to_yaml(config, comments=False))
            tokenizers = _tokenizers(config, corpora, listener=listener)
            tokenizers.save(run / "text")
            encode(run, config, corpora=corpora, tokenizers=tokenizers, listener=listener)
            # Last, because it tells a resume that everything before it is whole.
            write_atomically(run / "run.json", json.dumps(_record(config, corpora), indent=2) + "\n")
        except BaseException:
            shutil.rmtree(run, ignore_errors=True)
            raise


def _clear(run: Path, *, listener: Listener) -> None:
    """Remove what an interrupted preparation has left; the lock is ours by now."""
    left = [path for path in run.iterdir() if path.name != "lock"]
    if left:
        notice(listener, f"{run} was interrupted while it was being prepared; it is begun anew")
    for path in left:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def encode(
    run: Path, config: RunConfig, *, corpora: Corpora, tokenizers: Tokenizers, listener: Listener
) -> dict[str, Report]:
    """Store both corpora as ids, and say what was dropped."""
    reports = {}
    for name, lines in (("train", corpora.train), ("dev", corpora.dev)):
        # What stands there was found unfit, or is what an earlier encoding that was killed has left half-made.
        for folder in (run / "data" / name, *(run / "data").glob(f"{name}.partial-*")):
            shutil.rmtree(folder, ignore_errors=True)

        def tell(done: int, everything: int, name: str = name) -> None:
            listener(Event("progress", {"what": f"encoding {name} text", "done": done, "all": everything}))

        report = encode_corpus(
            lines,
            tokenizers.source.encode_many,
            tokenizers.target.encode_many,
            run / "data" / name,
            symbols=max(tokenizers.source.size, tokenizers.target.size),
            longest=config.data.longest,
            progress=tell,
        )
        for sentence in report.sentences():
            notice(listener, f"{name}: {sentence}")
        listener(Event("encoded", _summary(name, report)))
        reports[name] = report
    _write_references(run, corpora.dev)
    return reports


def open_run(run: Path) -> tuple[RunConfig, dict[str, Any]]:
    """The settings and the record of a run that was begun."""
    if not run.is_dir():
        raise UsageError(f"{run}: there is no such run directory")
    if not (run / "run.json").is_file():
        if _is_unbegun(run):
            raise UsageError(
                f"{run} was interrupted while it was being prepared; start it again with the same --train … --out {run}"
            )
        raise UsageError(f"{run} is no run that can go on: it has no run.json; start anew with --out")
    return resolve(RunConfig, file=run / "config.yaml"), _read_record(run / "run.json")


def _read_record(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _damaged_record(path, str(error)) from error
    if not isinstance(record, dict) or not isinstance(record.get("data"), dict):
        raise _damaged_record(path, 'it has no "data", the fingerprints of the text')
    return record


def _damaged_record(path: Path, reason: str) -> ModelError:
    return ModelError(f"{path} is damaged ({reason}); bring it back from a copy, or start a new run with --out")


def require_same_meaning(before: RunConfig, now: RunConfig, *, run: Path) -> None:
    """Refuse settings that would give another meaning to the weights or the ids of a run that goes on."""
    then, given = _flat(before.model_dump(mode="json")), _flat(now.model_dump(mode="json"))
    for name in {**then, **given}:
        is_fixed = any(name == fixed or name.startswith(f"{fixed}.") for fixed in FIXED)
        if is_fixed and then.get(name) != given.get(name):
            raise UsageError(
                f"{name} is {json.dumps(then.get(name))} in {run} and cannot become {json.dumps(given.get(name))} "
                f"while it goes on; leave it, or start a new run with --out, from this one's model if you like: "
                f"training.start_from={run}"
            )


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings by their full paths."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat


def open_prepared(run: Path) -> Prepared:
    """What `begin_run` stored, after every file of it was found to be whole."""
    train, dev = (Store.open(run / "data" / name, verify=True) for name in ("train", "dev"))
    return Prepared(
        tokenizers=Tokenizers.load(run / "text"),
        train=train,
        dev=dev,
        references=_read_references(run / "data" / "references.txt", dev),
    )


def _read_references(path: Path, dev: Store) -> list[str]:
    advice = f"remove the folder {path.parent} and resume: it will be made again"
    try:
        references = list(read_lines(path))
    except (UsageError, DataError) as error:
        raise DataError(f"{path} cannot be read ({error}); {advice}") from error
    needed = max(dev.line(index) for index in range(len(dev)))
    if len(references) < needed:
        raise DataError(f"{path} is damaged: it has {len(references):,} lines, not {needed:,}; {advice}")
    return [references[dev.line(index) - 1] for index in range(len(dev))]


def prepare_again(
    run: Path, config: RunConfig, *, record: dict[str, Any], allow_data_change: bool, listener: Listener
) -> None:
    """Make sure that a run can go on: ids that are damaged, or made of text that has changed since, are made anew."""
    damage = _damage(run)
    names = [*config.data.train, *config.data.dev]
    missing = [name for name in names if not Path(name).exists()]
    if missing and damage:
        raise DataError(f"{missing[0]} is gone, and without it the stored ids cannot be made again: {damage}")
    if missing:
        notice(listener, f"{missing[0]} is gone; going on with the ids stored in the run directory")
        return
    corpora = open_corpora(config, listener=lambda _event: None)
    has_changed = corpora.fingerprints != record["data"]
    if has_changed and not allow_data_change:
        raise DataError(
            f"the text of this run ({', '.join(names)}) has changed since it began; put the old files back, start a "
            "new run, or accept it with --allow-data-change"
        )
    if has_changed:
        notice(listener, "the text has changed since the run began; it is encoded anew")
    elif damage:
        notice(listener, f"the stored ids are missing or damaged; the text is encoded anew. It was: {damage}")
    else:
        return
    encode(run, config, corpora=corpora, tokenizers=Tokenizers.load(run / "text"), listener=listener)
    if has_changed:
        record = {**record, "data": corpora.fingerprints, "pairs": len(corpora.train)}
        write_atomically(run / "run.json", json.dumps(record, indent=2) + "\n")


def _damage(run: Path) -> str | None:
    """What is wrong with the stored ids and references. A damaged tokeniser is an error: it cannot be made again."""
    try:
        open_prepared(run)
    except DataError as error:
        return str(error)
    return None


def _tokenizers(config: RunConfig, corpora: Corpora, *, listener: Listener) -> Tokenizers:
    if config.training.start_from is not None:
        return Tokenizers.load(find_model(Path(config.training.start_from)) / "text")
    listener(Event("phase", {"what": f"learning {config.text.size:,} {config.text.kind} pieces"}))
    sources = (line.source for line in corpora.train)
    targets = (line.target for line in corpora.train)
    return train_tokenizers(sources, targets, config.text, listener=listener)


def _write_references(run: Path, dev: Lines) -> None:
    """One target line per line number of the dev text; held-out text leaves the numbers between blank."""
    by_number = {line.number: line.target for line in dev}
    last = max(by_number)
    text = "\n".join(by_number.get(number, "") for number in range(1, last + 1))
    write_atomically(run / "data" / "references.txt", text + "\n")


def _summary(name: str, report: Report) -> dict[str, Any]:
    return {
        "name": name,
        "read": report.read,
        "kept": report.kept,
        "source_tokens": report.source.tokens,
        "target_tokens": report.target.tokens,
        "source_unknown": report.source.unknown_rate,
        "target_unknown": report.target.unknown_rate,
    }


def _record(config: RunConfig, corpora: Corpora) -> dict[str, Any]:
    return {
        "seqloom": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": {"processor": platform.machine(), "system": platform.system(), "cores": os.cpu_count()},
        "threads": torch.get_num_threads(),
        "seed": config.seed,
        "data": corpora.fingerprints,
        "pairs": len(corpora.train),
    }
