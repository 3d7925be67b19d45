"""Whole toolkits, measured beside: OpenNMT-py and eole train by their own command and report their own rate.

They cannot be stopped between two steps, so they take no part in the rounds; who wants to claim something of them runs
them several times, with ours in between. The ids of the corpus are their words: they train on the same tokens as
everybody else.
"""

import json
import re
import statistics
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from harness.corpus import Corpus
from harness.peers import toolkit_program
from harness.processes import PATIENCE, environment
from harness.sizes import RecurrentSize, Size
from seqloom.data.store import Store

STEPS, REPORT_EVERY = 20, 5

_RATE = re.compile(r"(\d+)\s*/\s*(\d+)\s*tok/s")


@dataclass(frozen=True)
class Toolkit:
    """A toolkit and its command in the environment `$PEERS_HOME/<environment>`."""

    name: str
    environment: Literal["onmt", "eole"]
    program: str


TOOLKITS = (Toolkit("OpenNMT-py", "onmt", "onmt_train"), Toolkit("eole", "eole", "eole"))


@dataclass(frozen=True)
class Beside:
    """A toolkit's rate in target tokens per second, or the reason why there is none."""

    name: str
    rates: tuple[float, ...] = ()
    reason: str = ""

    @property
    def rate(self) -> float:
        """The median."""
        return statistics.median(self.rates)


def measure_beside(corpus: Corpus, size: Size, *, threads: int, folder: Path) -> Iterator[Beside]:
    """Each toolkit once."""
    for toolkit in TOOLKITS:
        yield run_toolkit(toolkit, corpus, size=size, threads=threads, folder=folder)


def run_toolkit(toolkit: Toolkit, corpus: Corpus, *, size: Size | RecurrentSize, threads: int, folder: Path) -> Beside:
    """One short training by its own command, if its environment is there; its files go into the folder."""
    path = toolkit_program(toolkit.environment, toolkit.program)
    if path is None:
        return Beside(toolkit.name, reason="not measured: no venv")
    _write_text(corpus, folder)
    config = folder / f"{toolkit.environment}.yaml"
    is_onmt = toolkit.environment == "onmt"
    settings = onmt_settings(size, folder) if is_onmt else eole_settings(size, folder)
    config.write_text(json.dumps(settings, indent=1), encoding="utf-8")  # JSON is YAML
    arguments = ["-config", config] if is_onmt else ["train", "-c", config]
    return _run(toolkit.name, [str(path), *map(str, arguments)], threads=threads, folder=folder)


def reported_rates(log: str) -> list[float]:
    """The target rates of "… 2011/1894 tok/s …", without the first, which is the warm-up."""
    return [float(target) for _, target in _RATE.findall(log)][1:]


def onmt_settings(size: Size | RecurrentSize, folder: Path) -> dict[str, Any]:
    """The configuration of OpenNMT-py."""
    model = _onmt_transformer(size) if isinstance(size, Size) else _onmt_lstm(size)
    return {
        **_data(folder),
        **_training(size),
        **model,
        "save_model": str(folder / "onmt"),
        "param_init": 0.0,
        "param_init_glorot": True,
    }


def eole_settings(size: Size | RecurrentSize, folder: Path) -> dict[str, Any]:
    """The configuration of eole."""
    training = _training(size)
    return {
        **_data(folder),
        **{key: training.pop(key) for key in ("seed", "report_every")},
        "overwrite": True,
        "training": {
            **training,
            "model_path": str(folder / "eole"),
            "world_size": 1,
            "gpu_ranks": [],
            "use_amp": False,
            "compute_dtype": "fp32",
            "param_init_method": "xavier_uniform",
        },
        "model": _eole_transformer(size) if isinstance(size, Size) else _eole_lstm(size),
    }


def _onmt_transformer(size: Size) -> dict[str, Any]:
    """Its feed-forward layers drop inside, at the common rate; that cannot be set."""
    return {
        **_transformer(size),
        "encoder_type": "transformer",
        "decoder_type": "transformer",
        "enc_layers": size.layers,
        "dec_layers": size.layers,
        "word_vec_size": size.width,
        "position_encoding": True,
    }


def _eole_transformer(size: Size) -> dict[str, Any]:
    return {
        **_transformer(size),
        "architecture": "transformer",
        "layers": size.layers,
        "embeddings": {"word_vec_size": size.width, "position_encoding_type": "SinusoidalInterleaved"},
    }


def _transformer(size: Size) -> dict[str, Any]:
    return {
        "heads": size.heads,
        "hidden_size": size.width,
        "transformer_ff": size.feed_forward,
        "share_embeddings": True,
        "share_decoder_embeddings": True,
    }


def _onmt_lstm(size: RecurrentSize) -> dict[str, Any]:
    return {
        "encoder_type": "brnn",
        "decoder_type": "rnn",
        "rnn_type": "LSTM",
        "layers": size.layers,
        "hidden_size": size.width,
        "word_vec_size": size.embedding_width,
        "global_attention": "general",
        "input_feed": 0,
    }


def _eole_lstm(size: RecurrentSize) -> dict[str, Any]:
    side = {"layers": size.layers, "hidden_size": size.width, "rnn_type": "LSTM"}
    return {
        "architecture": "rnn",
        "rnn_type": "LSTM",
        "hidden_size": size.width,
        "input_feed": 0,
        "embeddings": {"word_vec_size": size.embedding_width},
        "encoder": {**side, "encoder_type": "brnn"},
        "decoder": {**side, "decoder_type": "rnn", "global_attention": "general"},
    }


def _data(folder: Path) -> dict[str, Any]:
    corpus = {"path_src": str(folder / "train.source"), "path_tgt": str(folder / "train.target"), "transforms": []}
    vocabulary = str(folder / "vocabulary")
    return {
        "data": {"corpus": corpus},
        "src_vocab": vocabulary,
        "tgt_vocab": vocabulary,
        "share_vocab": True,
        "save_data": str(folder / "samples"),
    }


def _training(size: Size | RecurrentSize) -> dict[str, Any]:
    drops_attention = isinstance(size, Size) and size.peers_drop_inside
    return {
        "seed": 1,
        "report_every": REPORT_EVERY,
        "train_steps": STEPS,
        "save_checkpoint_steps": STEPS,
        "valid_steps": 1_000_000,
        "batch_type": "tokens",
        "batch_size": size.tokens_per_batch,
        "normalization": "tokens",
        "accum_count": [1],
        "num_workers": 0,
        "bucket_size": 30_000,
        "optim": "adam",
        "adam_beta2": 0.98,
        "learning_rate": size.learning_rate,
        "label_smoothing": size.smoothing,
        "dropout": [size.dropout_rate],
        "attention_dropout": [size.dropout_rate if drops_attention else 0.0],
        "max_grad_norm": size.clip_norm,
    }


def _write_text(corpus: Corpus, folder: Path) -> None:
    if (folder / "vocabulary").exists():
        return
    store = Store.open(corpus.folder / "train")
    for name, side in (("source", store.sources), ("target", store.targets)):
        # Without END, which they add themselves.
        lines = (" ".join(map(str, side[index][:-1].tolist())) for index in range(len(store)))
        (folder / f"train.{name}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    vocabulary = "".join(f"{id}\t1\n" for id in range(4, corpus.symbols))
    (folder / "vocabulary").write_text(vocabulary, encoding="utf-8")


def _run(name: str, command: list[str], *, threads: int, folder: Path) -> Beside:
    process = subprocess.Popen(
        command,
        cwd=folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment(threads),
    )
    try:
        log, _ = process.communicate()
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(PATIENCE)
    rates = reported_rates(log)
    if process.returncode or not rates:
        last = (log.strip().splitlines() or ["it said nothing"])[-1]
        return Beside(name, reason=f"not measured: failed ({last[:100]})")
    return Beside(name, tuple(rates))
