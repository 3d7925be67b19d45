"""The corpus of the translation benchmarks: Multi30k German to English, small letters, 8,000 joint byte pairs.

It is made once, with our own tokeniser, and kept in `benchmarks/.data`: as a store for ours and as plain arrays of
ids for the peers. Everybody trains on the same numbers.
"""

import os
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.progress import say
from seqloom.core.errors import UsageError
from seqloom.data.corpus import open_corpus
from seqloom.data.encoding import PairEncoder, encode_corpus
from seqloom.data.store import Side, Store
from seqloom.text.tokenizer import TextConfig, Tokenizers
from seqloom.text.tokenizer_training import train_tokenizers

FOLDER = Path(__file__).resolve().parent.parent / ".data" / "multi30k-de-en-8000"
SPLITS = {"train": "train", "dev": "val"}
LONGEST = 100
"""Tokens of a side beyond which a pair is left out."""


@dataclass(frozen=True)
class Corpus:
    """Where the stored corpus stands, and what it measures."""

    folder: Path
    symbols: int
    source_lengths: np.ndarray
    target_lengths: np.ndarray


def open_multi30k() -> Corpus:
    """The stored corpus, made if it is not there yet."""
    if not FOLDER.is_dir():
        _make(FOLDER)
    store = Store.open(FOLDER / "train")
    symbols = Tokenizers.load(FOLDER / "text").target.size
    return Corpus(FOLDER, symbols, np.asarray(store.source_lengths), np.asarray(store.target_lengths))


def _make(folder: Path) -> None:
    data = os.environ.get("SEQLOOM_DATA")
    if not data or not (Path(data) / "multi30k").is_dir():
        raise UsageError(
            f"SEQLOOM_DATA={data or ''} has no folder multi30k; set it to the folder that holds the data sets "
            "(multi30k/train.de.gz, train.en.gz, val.de.gz, val.en.gz)"
        )
    say("encoding Multi30k, once")
    corpora = {
        split: open_corpus([Path(data) / "multi30k" / f"{name}.{language}.gz" for language in ("de", "en")])
        for split, name in SPLITS.items()
    }
    train = corpora["train"]
    config = TextConfig(kind="bpe", size=8000, shared=True, lowercase=True)
    tokenizers = train_tokenizers((line.source for line in train), (line.target for line in train), config)
    partial = folder.with_name(f"{folder.name}.partial-{secrets.token_hex(4)}")
    try:
        tokenizers.save(partial / "text")
        for split, corpus in corpora.items():
            encode_corpus(
                corpus,
                PairEncoder(tokenizers.source.encode_flat, tokenizers.target.encode_flat, LONGEST),
                partial / split,
                symbols=tokenizers.target.size,
            )
        _write_arrays(partial, tokenizers.target.size)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _write_arrays(folder: Path, symbols: int) -> None:
    """`ids.npz`: for each split and side all ids in a row and the lengths; and the number of symbols."""
    arrays = {"symbols": np.array(symbols)}
    for split in SPLITS:
        store = Store.open(folder / split)
        sides: dict[str, Side] = {"source": store.sources, "target": store.targets}
        for name, side in sides.items():
            arrays[f"{split}_{name}_ids"] = side.ids.astype(np.int32)
            arrays[f"{split}_{name}_lengths"] = side.lengths.astype(np.int32)
    np.savez(folder / "ids.npz", **arrays)  # type: ignore[arg-type]
