"""One translator that learned something, exported once."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from interop.models import phrases
from seqloom.runs.loading import LoadedModel, load
from seqloom.runs.train import train

SETTINGS = (
    "text.size=300",
    "model.width=32",
    "model.heads=4",
    "model.feed_forward=48",
    "model.encoder_layers=2",
    "model.decoder_layers=2",
    "training.steps=60",
    "training.warmup=20",
    "training.average=0",
    "training.validate_every=60",
    "training.save_every=60",
    "data.tokens_per_batch=1024",
    "evaluation.resamples=40",
    "search.length_factor=1.0",
)


@dataclass(frozen=True)
class Learned:
    """A trained model and lines it did not see."""

    loaded: LoadedModel
    sources: list[list[int]]
    targets: list[list[int]]


@pytest.fixture(scope="session")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Learned:
    folder = tmp_path_factory.mktemp("learned")
    files = [str(folder / "train.en"), str(folder / "train.de")]
    for name, lines in zip(files, phrases(count=400, seed=1), strict=True):
        Path(name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    assert train(None, SETTINGS, out=folder / "run", train=files) is not None
    loaded = load(folder / "run")
    sources, targets = phrases(count=25, seed=9)
    return Learned(loaded, loaded.tokenizers.source.encode_many(sources), loaded.tokenizers.target.encode_many(targets))
