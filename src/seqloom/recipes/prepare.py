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
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from seqloom.core.config import resolve, to_yaml
from seqloom.core.errors import DataError, UsageError
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
from seqloom.version import __version__


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
    first = resolve(RunConfig, defaults={"data": named}, file=file, overrides=overrides)
    files = tuple(train) or first.data.train
    if not files:
        raise UsageError(
            "no training files: give --train SOURCE --train TARGET (or one .tsv), or data.train in a config"
        )
    paths = [Path(name) for name in files]
    found = languages_from(paths)
    languages = (first.data.source or (found[0] if found else None), first.data.target or (found[1] if found else None))
    corpus = open_corpus(paths, encoding=first.data.encoding)
    sizing = choose_sizes(facts_of(corpus, languages))
    defaults = sizing.defaults
    if first.training.start_from is not None:
        defaults = {**defaults, **_inherited(first.training.start_from, sizing.defaults, listener=listener)}
    data = {**defaults["data"], **named}
    for name, language in zip(("source", "target"), languages, strict=True):
        if language is not None:
            data[name] = language
    # What the command line names wins over the file, as any override does.
    flags = [f"data.{name}={json.dumps(value)}" for name, value in named.items()]
    config = resolve(RunConfig, defaults={**defaults, "data": data}, file=file, overrides=[*flags, *overrides])
    listener(Event("sizing", {"reasons": sizing.reasons_in(config)}))
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
    count = min(config.data.held_out, len(train) // 10)
    if count == 0:
        raise DataError(
            f"{len(train)} pairs are too few to hold some out for validation; give --dev files, or 10 pairs"
        )
    notice(listener, f"no dev files: {count:,} of {len(train):,} pairs are held out for validation")
    rest, held = hold_out(train, count, seed=config.seed)
    return Corpora(rest, held, fingerprints)


def require_new(run: Path) -> None:
    """Refuse to begin a run where there is something already."""
    if run.exists() and (not run.is_dir() or any(run.iterdir())):
        raise UsageError(
            f"{run} exists already; go on with it by: seqloom train --resume {run}, or choose another --out"
        )


def begin_run(run: Path, config: RunConfig, *, listener: Listener) -> None:
    """Make the run directory with all that does not change while it trains."""
    require_new(run)
    corpora = open_corpora(config, listener=listener)
    run.mkdir(parents=True, exist_ok=True)
    try:
        write_atomically(run / "config.yaml", to_yaml(config, comments=False))
        tokenizers = _tokenizers(config, corpora, listener=listener)
        tokenizers.save(run / "text")
        encode(run, config, corpora=corpora, tokenizers=tokenizers, listener=listener)
        # Last, because it tells a resume that everything before it is whole.
        write_atomically(run / "run.json", json.dumps(_record(config, corpora), indent=2) + "\n")
    except BaseException:
        shutil.rmtree(run, ignore_errors=True)
        raise


def encode(
    run: Path, config: RunConfig, *, corpora: Corpora, tokenizers: Tokenizers, listener: Listener
) -> dict[str, Report]:
    """Store both corpora as ids, and say what was dropped."""
    reports = {}
    for name, lines in (("train", corpora.train), ("dev", corpora.dev)):
        shutil.rmtree(run / "data" / name, ignore_errors=True)

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
        raise UsageError(f"{run} is no run that can go on: it has no run.json; start anew with --out")
    record: dict[str, Any] = json.loads((run / "run.json").read_text(encoding="utf-8"))
    return resolve(RunConfig, file=run / "config.yaml"), record


def open_prepared(run: Path) -> Prepared:
    """What `begin_run` stored."""
    dev = Store.open(run / "data" / "dev")
    references = list(read_lines(run / "data" / "references.txt"))
    return Prepared(
        tokenizers=Tokenizers.load(run / "text"),
        train=Store.open(run / "data" / "train"),
        dev=dev,
        references=[references[dev.line(index) - 1] for index in range(len(dev))],
    )


def check_unchanged(config: RunConfig, record: dict[str, Any], *, allow: bool, listener: Listener) -> bool:
    """Whether the text files are still those the run began with; refused where they changed, unless allowed."""
    names = [*config.data.train, *config.data.dev]
    missing = [name for name in names if not Path(name).exists()]
    if missing:
        notice(listener, f"{missing[0]} is gone; going on with the ids stored in the run directory")
        return True
    if open_corpora(config, listener=lambda _event: None).fingerprints == record["data"]:
        return True
    if not allow:
        raise DataError(
            f"the text of this run ({', '.join(names)}) has changed since it began; put the old files back, start a "
            "new run, or accept it with --allow-data-change"
        )
    notice(listener, "the text has changed since the run began; it is encoded anew")
    return False


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
