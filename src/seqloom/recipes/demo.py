"""The demo: a real small translator, trained on the corpus inside the package and tested on what it has not seen."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from seqloom.core.errors import UsageError
from seqloom.core.events import Event, Listener, ignore
from seqloom.core.files import require_folders_above, write_atomically
from seqloom.data.phrasebook import PhrasePair, Split, note_pairs, sample_pairs
from seqloom.metrics.translation import Score
from seqloom.recipes.evaluate import evaluate
from seqloom.recipes.train import Trained, train
from seqloom.recipes.translate import Translator

SEED = 1
TRAIN_PAIRS, DEV_PAIRS, TEST_PAIRS = 20_000, 500, 1_000
SHOWN = 10

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
    "training.warmup=150",
    "training.clip_norm=1.0",
    "training.validate_every=100",
    "training.save_every=100",
    "training.log_every=25",
    "training.patience=0",
    "training.average=0",
    "task.dev_lines=200",
)
"""Found by hand for the phrasebook: three minutes on two cores."""
STEPS = 700


@dataclass(frozen=True)
class Sample:
    """A sentence the model never saw, what it made of it, and what it should be."""

    source: str
    translation: str
    reference: str


@dataclass(frozen=True)
class DemoResult:
    """What the demo ends with."""

    trained: Trained
    test_scores: tuple[Score, ...]
    """On new sentences."""
    unseen_scores: tuple[Score, ...]
    """On combinations of words that no training sentence has."""
    samples: tuple[Sample, ...]


def demo(
    out: Path | str,
    *,
    languages: tuple[str, str] = ("en", "de"),
    steps: int | None = None,
    listener: Listener = ignore,
) -> DemoResult:
    """Write the corpus into `out`, train on it, and test the model on held-out sentences."""
    out = Path(out)
    if out.exists() and any(out.iterdir()):
        raise UsageError(f"{out} exists already; look at it with: seqloom info {out}, or run the demo with --force")
    corpus = out.with_name(f"{out.name}-corpus")
    require_folders_above(corpus)  # before the sentences are made, which takes a while
    listener(Event("phase", {"what": f"writing {TRAIN_PAIRS:,} sentence pairs of the phrasebook to {corpus}"}))
    files = {name: _write(corpus, name, languages, count) for name, count in _parts()}
    trained = train(
        None,
        [*SETTINGS, f"training.steps={steps or STEPS}", f"seed={SEED}"],
        out=out,
        train=files["train"],
        dev=files["dev"],
        listener=listener,
    )
    assert trained is not None, "the demo runs in one process"
    translator = Translator.load(trained.model)
    test = _pairs("test", languages, TEST_PAIRS)
    unseen = _pairs("unseen", languages, TEST_PAIRS)
    translations = _translate(translator, test, what="new sentences", listener=listener)
    unseen_translations = _translate(translator, unseen, what="new combinations of words", listener=listener)
    return DemoResult(
        trained,
        test_scores=_scores(test, translations, languages[1]),
        unseen_scores=_scores(unseen, unseen_translations, languages[1]),
        samples=tuple(
            Sample(pair.source, translation, pair.target)
            for pair, translation in list(zip(test, translations, strict=True))[:SHOWN]
        ),
    )


def _translate(translator: Translator, pairs: Sequence[PhrasePair], *, what: str, listener: Listener) -> list[str]:
    done = 0

    def tell(lines: int) -> None:
        nonlocal done
        done += lines
        listener(Event("progress", {"what": f"translating {what}", "done": done, "all": len(pairs)}))

    return [found[0].text for found in translator.search([pair.source for pair in pairs], progress=tell)]


def _parts() -> list[tuple[Split, int]]:
    return [("train", TRAIN_PAIRS), ("dev", DEV_PAIRS), ("test", TEST_PAIRS), ("unseen", TEST_PAIRS)]


def _pairs(split: Split, languages: tuple[str, str], count: int) -> list[PhrasePair]:
    pairs = sample_pairs(*languages, count=count, seed=SEED, split=split)
    return [*note_pairs(*languages), *pairs] if split == "train" else pairs


def _write(folder: Path, split: Split, languages: tuple[str, str], count: int) -> list[str]:
    """One file per language; the names of both."""
    pairs = _pairs(split, languages, count)
    folder.mkdir(parents=True, exist_ok=True)
    names = []
    for language, lines in zip(languages, zip(*((p.source, p.target) for p in pairs), strict=True), strict=True):
        path = folder / f"{split}.{language}"
        write_atomically(path, "".join(f"{line}\n" for line in lines))
        names.append(str(path))
    return names


def _scores(pairs: Sequence[PhrasePair], translations: Sequence[str], language: str) -> tuple[Score, ...]:
    return evaluate(translations, [pair.target for pair in pairs], language=language, seed=SEED)
