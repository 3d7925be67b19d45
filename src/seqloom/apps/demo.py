"""The demo: a small translator, trained on the corpus inside the package and tested on unseen sentences."""

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from seqloom.apps.evaluate import evaluate
from seqloom.apps.translator import Translator
from seqloom.core.arguments import as_path
from seqloom.core.config import resolve
from seqloom.core.errors import SeqloomError, Stopped, UsageError
from seqloom.core.events import Listener, ignore, notice, phase, progress_counter
from seqloom.core.files import partial_name, read_json, require_folders_above, sha256_of, write_atomically
from seqloom.data.phrasebook import LANGUAGES, PhrasePair, Split, note_pairs, sample_pairs
from seqloom.metrics.scoring import CorpusScore
from seqloom.runs.config import RunConfig
from seqloom.runs.model_dir import read_card
from seqloom.runs.prepare import fixed_settings, is_unprepared, open_run
from seqloom.runs.train import Trained, resume, train
from seqloom.training.progress import Outcome
from seqloom.training.run_guard import locked

SEED = 1
TRAIN_PAIRS, DEV_PAIRS, TEST_PAIRS = 20_000, 500, 1_000
SPLITS: tuple[Split, ...] = ("train", "dev", "test", "unseen")
PAIRS: dict[Split, int] = {"train": TRAIN_PAIRS, "dev": DEV_PAIRS, "test": TEST_PAIRS, "unseen": TEST_PAIRS}
SHOWN_SAMPLES = 10
WARMUP = 150

SETTINGS = (
    "data.tokens_per_batch=3072",
    "text.size=2000",
    "model.kind=transformer",
    "model.width=128",
    "model.feed_forward=384",
    "model.encoder_layers=2",
    "model.decoder_layers=2",
    "model.heads=4",
    "model.dropout_rate=0.1",
    "training.learning_rate=4e-3",
    "training.schedule=cosine",
    f"training.warmup={WARMUP}",
    "training.clip_norm=1.0",
    "training.validate_every=100",
    "training.save_every=100",
    "training.log_every=25",
    "training.patience=0",
    "training.average=0",
    "task.dev_lines=200",
)
"""Tuned for the phrasebook: three minutes on two cores."""
STEPS = 700

RESULT = "demo.json"
"""The file of the run directory with scores and samples of a finished demo."""
WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class DemoSample:
    """An unseen sentence, its translation, and the reference."""

    source: str
    translation: str
    reference: str


@dataclass(frozen=True)
class DemoResult:
    """The results of the demo."""

    trained: Trained
    test_scores: tuple[CorpusScore, ...]
    """On new sentences."""
    unseen_scores: tuple[CorpusScore, ...]
    """On combinations of words that no training sentence has."""
    samples: tuple[DemoSample, ...]


def demo(
    out: Path | str,
    *,
    languages: tuple[str, str] = ("en", "de"),
    steps: int | None = None,
    force: bool = False,
    listener: Listener = ignore,
) -> DemoResult:
    """Write the corpus beside `out`, train on it, and test the model on held-out sentences.

    A demo that was interrupted is resumed, to the same bits as without the interruption, and the results of one that
    has finished are returned at once. `force` removes either and starts over.
    """
    out = as_path(out, "out")
    if out.name in ("", ".."):  # such as `.`: the corpus is written next to a name
        out = out.resolve()
        if not out.name:
            raise UsageError(f"--out {out} is the root of the file system; name a folder")
    corpus = _corpus_of(out)
    require_folders_above(corpus)  # before the corpus is generated, which takes a while
    resolve(RunConfig, overrides=_settings(steps or STEPS))  # refuses a wrong number of steps
    is_new = not out.exists() or (out.is_dir() and (not any(out.iterdir()) or is_unprepared(out)))
    if not is_new and force:
        try:
            is_demo = out.is_dir() and _is_demo(out, open_run(out)[0])
        except SeqloomError:
            is_demo = False
        if not is_demo:  # a wrong --out must not cost another run or folder
            raise UsageError(
                f"{out} is not a run of the demo with its corpus in {corpus}, so --force does not remove it. "
                "Choose another --out, or remove it yourself."
            )
    elif not is_new:
        _require_demo(out, languages=languages, steps=steps)
        if (finished := _read_result(out)) is not None:
            notice(listener, f"{out} has finished already: these are its results. Start over with --force.")
            return finished
    try:
        texts: dict[Path, str] = {}
        for split in SPLITS:
            pairs = _pairs(split, languages, PAIRS[split])
            sides = [pair.source for pair in pairs], [pair.target for pair in pairs]
            for language, lines in zip(languages, sides, strict=True):
                texts[corpus / f"{split}.{language}"] = "".join(f"{line}\n" for line in lines)
        wrong = _wrong_files(corpus, texts, overwrite=force or not is_new)
        if not is_new and force:
            with locked(out):  # refused while it is trained
                aside = partial_name(out, mark="old")  # in one step: half a run would be taken for something else
                out.replace(aside)
            shutil.rmtree(aside)
            is_new = True
        if wrong:
            phase(listener, f"writing {TRAIN_PAIRS:,} sentence pairs of the phrasebook to {corpus}")
            corpus.mkdir(parents=True, exist_ok=True)
            for path in wrong:
                write_atomically(path, texts[path])
        files = {split: [str(corpus / f"{split}.{language}") for language in languages] for split in SPLITS}
        trained = _train(out, files, steps=steps or STEPS, is_new=is_new, listener=listener)
        result = _test(trained, languages=languages, listener=listener)
    except (Stopped, KeyboardInterrupt):
        given = f" --steps {steps}" if steps else ""
        notice(listener, f"the demo was interrupted; resume it with: seqloom demo --out {out}{given}")
        raise
    record = {"weights": sha256_of(trained.model / WEIGHTS), **asdict(result)}
    del record["trained"]["run"], record["trained"]["model"]  # the folder may move
    write_atomically(out / RESULT, json.dumps(record, indent=2, ensure_ascii=False) + "\n")
    return result


def _corpus_of(out: Path) -> Path:
    return out.with_name(f"{out.name}-corpus")


def _settings(steps: int) -> list[str]:
    """The settings of a demo with so many steps; a short one warms up for a quarter of them."""
    warmup = [f"training.warmup={max(1, steps // 4)}"] if steps < WARMUP else []
    return [*SETTINGS, *warmup, f"training.steps={steps}", f"seed={SEED}"]


def _train(out: Path, files: Mapping[Split, list[str]], *, steps: int, is_new: bool, listener: Listener) -> Trained:
    if is_new:
        trained = train(None, _settings(steps), out=out, train=files["train"], dev=files["dev"], listener=listener)
    else:
        notice(listener, f"resuming the unfinished demo in {out}")
        data = open_run(out)[0].data
        # The folder may have been moved, or given relative to another one.
        named = {"train": (data.train, files["train"]), "dev": (data.dev, files["dev"])}
        moved = [
            f"data.{name}={json.dumps(now)}"
            for name, (before, now) in named.items()
            if [Path(file).absolute() for file in before] != [Path(file).absolute() for file in now]
        ]
        trained = resume(out, moved, listener=listener)
    assert trained is not None, "the demo runs in one process"
    return trained


def _test(trained: Trained, *, languages: tuple[str, str], listener: Listener) -> DemoResult:
    translator = Translator.load(trained.model)

    def tested(split: Split, what: str) -> tuple[tuple[CorpusScore, ...], list[DemoSample]]:
        pairs = _pairs(split, languages, TEST_PAIRS)
        progress = progress_counter(listener, f"translating {what}", len(pairs))
        found = translator.search([pair.source for pair in pairs], progress=progress)
        samples = [DemoSample(pair.source, best[0].text, pair.target) for pair, best in zip(pairs, found, strict=True)]
        references = [each.reference for each in samples]
        scores = evaluate([each.translation for each in samples], references, language=languages[1], seed=SEED)
        return scores, samples

    test_scores, samples = tested("test", "new sentences")
    unseen_scores, _ = tested("unseen", "new combinations of words")
    return DemoResult(trained, test_scores, unseen_scores, tuple(samples[:SHOWN_SAMPLES]))


# --- an earlier demo -------------------------------------------------------------------------------------------------


def _require_demo(out: Path, *, languages: tuple[str, str], steps: int | None) -> None:
    """Refuse a path that contains anything but a run of this demo."""
    remedy = "Choose another --out, or move it away."
    if not out.is_dir():
        raise UsageError(f"{out} is not a folder. {remedy}")
    if not (out / "run.json").is_file():
        raise UsageError(f"{out} exists and is not a run of the demo: run.json is missing. {remedy}")
    try:
        config, _ = open_run(out)
        wanted = resolve(RunConfig, file=out / "config.yaml", overrides=[*SETTINGS, f"seed={SEED}"])
    except SeqloomError as error:
        raise UsageError(f"{out} contains a damaged run: {error}. {remedy}") from error
    if not _names_corpus(config, languages):
        raise UsageError(f"{out} is not the demo, but a run trained on {', '.join(config.data.train)}. {remedy}")
    now, demo = fixed_settings(config), fixed_settings(wanted)
    if other := [name for name in now if now[name] != demo.get(name)]:
        start_over = "Start over with --force, or choose another --out." if _is_demo(out, config) else remedy
        raise UsageError(
            f"{out} is a demo with other settings: {other[0]} is {json.dumps(now[other[0]])}, but the demo of this "
            f"version has {json.dumps(demo.get(other[0]))}. {start_over}"
        )
    if steps is not None and steps != config.training.steps:
        raise UsageError(
            f"{out} is a demo of {config.training.steps} steps, not {steps}. Leave out --steps, start "
            "over with --force, or choose another --out."
        )


def _names_corpus(config: RunConfig, languages: Sequence[str]) -> bool:
    """Whether a run was trained on a corpus that the demo writes for these languages."""
    for split, names in (("train", config.data.train), ("dev", config.data.dev)):
        files = [Path(name) for name in names]
        if [file.name for file in files] != [f"{split}.{language}" for language in languages]:
            return False
        if any(not file.parent.name.endswith("-corpus") for file in files):
            return False
    return True


def _is_demo(out: Path, config: RunConfig) -> bool:
    """Whether a run is certainly a demo, so that it may be removed.

    It was trained on the corpus of a demo, has that corpus beside it, and either has finished as a demo, perhaps of
    another version, or has all settings of this one.
    """
    languages = [Path(name).suffix[1:] for name in config.data.train]
    if not _names_corpus(config, languages) or set(languages) - set(LANGUAGES) or len(set(languages)) != 2:
        return False
    if _names_in(_corpus_of(out)) != {f"{split}.{language}" for split in SPLITS for language in languages}:
        return False
    if (out / RESULT).is_file():
        return True
    settings = _settings(config.training.steps)
    return config == resolve(RunConfig, file=out / "config.yaml", overrides=settings)


def _names_in(corpus: Path) -> set[str]:
    """The names in a folder, without what an interrupted write of the corpus leaves."""
    unfinished = re.compile(rf"\.({'|'.join(SPLITS)})\.[a-z]+\.partial-[0-9a-f]{{8}}")
    names = {path.name for path in corpus.iterdir()} if corpus.is_dir() else set()
    return {name for name in names if not unfinished.fullmatch(name)}


def _read_result(out: Path) -> DemoResult | None:
    """The results of a demo that has finished, if its model is whole and the one that was tested."""
    model = out / "model"
    try:
        read_card(model)
        record = read_json(out / RESULT)
        trained = record["trained"]
        if record["weights"] != sha256_of(model / WEIGHTS):
            return None
        return DemoResult(
            Trained(
                out,
                model,
                outcome=Outcome(**trained["outcome"]),
                scores=_read_scores(trained["scores"]),
                use=trained["use"],
            ),
            test_scores=_read_scores(record["test_scores"]),
            unseen_scores=_read_scores(record["unseen_scores"]),
            samples=tuple(DemoSample(**sample) for sample in record["samples"]),
        )
    except (SeqloomError, OSError, ValueError, KeyError, TypeError):  # what is damaged is made again
        return None


def _read_scores(records: Sequence[Mapping[str, Any]]) -> tuple[CorpusScore, ...]:
    return tuple(CorpusScore(**{**each, "interval": each["interval"] and tuple(each["interval"])}) for each in records)


# --- the corpus ------------------------------------------------------------------------------------------------------


def _pairs(split: Split, languages: tuple[str, str], count: int) -> list[PhrasePair]:
    pairs = sample_pairs(*languages, count=count, seed=SEED, split=split)
    return [*note_pairs(*languages), *pairs] if split == "train" else pairs


def _wrong_files(folder: Path, texts: Mapping[Path, str], *, overwrite: bool) -> list[Path]:
    """The files of the corpus that are missing or have other content; refuses to write over what is not the demo's.

    With `overwrite`, files with other text are replaced if the folder contains a whole corpus of the demo, which may be
    damaged or from another version.
    """
    remedy = "Move it away, or choose another --out."
    if (folder.exists() or folder.is_symlink()) and not folder.is_dir():
        raise UsageError(f"{folder} is not a folder, but the corpus of the demo belongs there. {remedy}")
    wrong = [path for path, text in texts.items() if not path.is_file() or path.read_bytes() != text.encode()]
    if not wrong:
        return []
    names, ours = _names_in(folder), {path.name for path in texts}
    if strangers := sorted(names - ours):
        raise UsageError(f"{folder} contains {strangers[0]}, which is not part of the demo's corpus. {remedy}")
    if (foreign := [path for path in wrong if path.exists()]) and not (overwrite and names >= ours):
        if names >= ours:
            remedy = "Move it away, overwrite it with --force, or choose another --out."
        raise UsageError(f"{foreign[0]} exists and differs from the text of the demo. {remedy}")
    return wrong
