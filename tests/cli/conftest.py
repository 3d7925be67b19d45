"""One tiny translator, trained by the program itself, for all tests of the commands."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from cli.calling import Called, call
from seqloom.core.config import resolve
from seqloom.data.phrasebook import Split, sample_pairs
from seqloom.runs.config import RunConfig
from seqloom.runs.loading import load
from seqloom.runs.model_dir import save_model
from seqloom.text.tokenizer import Tokenizer, Tokenizers
from seqloom.training.weights import weights_of

SETTINGS = (
    "text.size=200",
    "model.width=16",
    "model.heads=2",
    "model.feed_forward=16",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "training.steps=4",
    "training.validate_every=2",
    "training.save_every=2",
    "training.log_every=1",
    "training.average=0",
    "training.warmup=1",
    "evaluation.resamples=40",
    "search.length_factor=1.0",
    "search.length_constant=2",
)


@dataclass(frozen=True)
class Tiny:
    """A run that has finished, the files it was trained on, and what the command said."""

    run: Path
    train: tuple[Path, Path]
    dev: tuple[Path, Path]
    called: Called


def write_pairs(folder: Path, split: Split, count: int) -> tuple[Path, Path]:
    """Phrasebook files, one per language."""
    pairs = sample_pairs("en", "de", count=count, seed=1, split=split)
    paths = folder / f"{split}.en", folder / f"{split}.de"
    paths[0].write_text("".join(f"{pair.source}\n" for pair in pairs), encoding="utf-8")
    paths[1].write_text("".join(f"{pair.target}\n" for pair in pairs), encoding="utf-8")
    return paths


def train_words(train: Sequence[Path], dev: Sequence[Path], out: Path) -> list[object]:
    """The command line of a tiny run."""
    files = ["--train", f"{train[0]},{train[1]}", "--dev", dev[0], "--dev", dev[1]]
    return ["train", *files, "--out", out, *SETTINGS]


def as_lowercase_model(model: Path, place: Path, *, setting: str) -> Path:
    """A model that says in its settings of `text` or of `evaluation` that capital letters mean nothing."""
    loaded = load(model)
    config = resolve(RunConfig, file=loaded.folder / "config.yaml", overrides=[f"{setting}.lowercase=true"])
    tokenizer = loaded.tokenizers.source
    assert loaded.tokenizers.is_shared
    if setting == "text":
        tokenizer = Tokenizer(tokenizer.config.model_copy(update={"lowercase": True}), tokenizer._kind)
    weights = weights_of(loaded.model)
    save_model(place, config, tokenizers=Tokenizers(tokenizer, tokenizer), weights=weights, card=loaded.card)
    return place


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    folder = tmp_path_factory.mktemp("tiny")
    train, dev = write_pairs(folder, "train", 60), write_pairs(folder, "dev", 6)
    called = call(*train_words(train, dev, folder / "run"))
    assert called.code == 0, called.err
    return Tiny(folder / "run", train, dev, called)
