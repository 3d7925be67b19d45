"""A whole model directory without training: fresh weights, for tests that care about files."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from seqloom.classical.ngram import NGramConfig
from seqloom.core.config import resolve
from seqloom.core.files import directory_manifest
from seqloom.core.symbols import END
from seqloom.models.transformer import TransformerConfig
from seqloom.runs.config import RunConfig
from seqloom.runs.loading import build_model
from seqloom.runs.model_dir import Card, save_fitted, save_model
from seqloom.text.tokenizer import EncodedText, Tokenizers
from seqloom.text.tokenizer_training import train_tokenizer
from seqloom.training.weights import weights_of

LINES = ["a cat sees a dog", "the dog sees the cat", "a bird sings", "the cat sleeps"]
SETTINGS = (
    "model.width=8",
    "model.heads=2",
    "model.feed_forward=8",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "text.kind=word",
    "search.length_factor=1.0",
    "search.length_constant=2",
)


def write_small_model(folder: Path) -> Path:
    """A translator of a few words that has learnt nothing."""
    config = resolve(RunConfig, overrides=SETTINGS)
    assert isinstance(config.model, TransformerConfig)
    tokenizer = train_tokenizer(LINES, config.text)
    tokenizers = Tokenizers(tokenizer, tokenizer)
    weights = weights_of(build_model(config.model, tokenizers, seed=1))
    card = Card("en", "en", parameters=sum(weight.numel() for weight in weights.values()))
    save_model(folder, config, tokenizers=tokenizers, weights=weights, card=card)
    return folder


def write_small_ngram(folder: Path) -> Path:
    """A counted language model of the same words."""
    config = resolve(RunConfig, overrides=["model.kind=ngram", "model.order=2", "text.kind=word"])
    assert isinstance(config.model, NGramConfig)
    tokenizer = train_tokenizer(LINES, config.text)
    ids = np.array([symbol for line in LINES for symbol in (*tokenizer.encode(line), END)])
    arrays = config.model.fit(EncodedText(ids, tokenizer.vocabulary)).arrays()
    card = Card(None, "en", parameters=sum(array.size for array in arrays.values()))
    save_fitted(folder, config, tokenizers=Tokenizers(tokenizer, tokenizer), arrays=arrays, card=card)
    return folder


def vouch_again(folder: Path) -> None:
    """Make the manifest agree with the files, as somebody would who means harm."""
    files = directory_manifest(folder, leave_out=["manifest.json"])
    (folder / "manifest.json").write_text(json.dumps({"format": 1, "files": files}), encoding="utf-8")


def change_json(path: Path, **values: Any) -> None:
    """Replace values of a JSON file."""
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **values}), encoding="utf-8")
