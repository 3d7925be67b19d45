"""A tiny translator, trained once: enough steps to have a model directory, not to be good."""

from pathlib import Path

import pytest

from seqloom.data.phrasebook import sample_pairs
from seqloom.runs.train import Trained, train

TINY = (
    "text.size=200",
    "model.width=16",
    "model.feed_forward=16",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "model.heads=2",
    "training.steps=6",
    "training.save_every=2",
    "training.validate_every=3",
    "training.average=2",
    "training.log_every=2",
    "training.warmup=2",
    "data.tokens_per_batch=512",
    "evaluation.resamples=40",
    "search.beam=2",
    "search.length_constant=4",
    "search.length_factor=1.0",
)


def write_corpus(folder: Path, *, count: int = 120, seed: int = 3) -> tuple[list[str], list[str]]:
    """Names of training files and dev files, English and German."""
    names: dict[str, list[str]] = {"train": [], "dev": []}
    for split, size in (("train", count), ("dev", 20)):
        pairs = sample_pairs("en", "de", count=size, seed=seed, split=split)  # type: ignore[arg-type]
        for language, lines in (("en", [p.source for p in pairs]), ("de", [p.target for p in pairs])):
            path = folder / f"{split}.{language}"
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            names[split].append(str(path))
    return names["train"], names["dev"]


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], list[str]]:
    return write_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory, corpus: tuple[list[str], list[str]]) -> Trained:
    trained = train(None, TINY, out=tmp_path_factory.mktemp("runs") / "tiny", train=corpus[0], dev=corpus[1])
    assert trained is not None
    return trained
