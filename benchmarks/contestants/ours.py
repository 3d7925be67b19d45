"""Ours: the trainer as users run it. Between two commands it stands still inside its own loop, in a listener."""

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from serving import Line

from seqloom.core.events import Event
from seqloom.data.store import Store
from seqloom.models.seq2seq import Seq2SeqConfig
from seqloom.models.transformer import TransformerConfig
from seqloom.nn.embeddings import Symbols
from seqloom.tasks.settings import TranslationConfig
from seqloom.tasks.translation import DevSet, TranslationTask
from seqloom.text.tokenizer import Tokenizers
from seqloom.training.settings import TrainingConfig
from seqloom.training.trainer import Trainer
from seqloom.version import __version__

UNENDING = 10**9


class HungUp(Exception):
    """The driver wants no more steps."""


class Conductor:
    """Listens to the trainer, and lets it go on for as many steps as the driver asks for."""

    def __init__(self, line: Line, task: TranslationTask, model: torch.nn.Module) -> None:
        self._line, self._task, self._model = line, task, model
        self._commands: Iterator[tuple[str, int]] = line.commands()
        self._steps_left = 0
        self._seen: list[tuple[int, float]] = []
        self._started = 0.0
        self._tokens = 0

    def wait(self) -> None:
        """Answer commands until one of them asks for steps."""
        for name, number in self._commands:
            if name == "run":
                self._steps_left, self._seen = number, []
                self._started = time.perf_counter()
                return
            self._line.say({"loss": self._validation_loss()})
        raise HungUp

    def hear(self, event: Event) -> None:
        """A step was done; at the last one that was asked for, answer and wait."""
        if event.kind != "step":
            return
        self._seen.append((event["epoch"], event["loss"]))
        self._steps_left -= 1
        if self._steps_left:
            return
        seconds = time.perf_counter() - self._started
        tokens, self._tokens = event["tokens"] - self._tokens, event["tokens"]
        self._line.say(
            {
                "tokens": tokens,
                "source_tokens": self._source_tokens(event["step"]),
                "seconds": seconds,
                "loss": sum(loss for _, loss in self._seen) / len(self._seen),
            }
        )
        self.wait()

    def _source_tokens(self, step: int) -> int:
        """Those of the steps just done: each takes one batch, epoch after epoch."""
        last_of_epoch: dict[int, int] = {}
        total = 0
        for at, (epoch, _) in zip(range(step - len(self._seen), step), self._seen, strict=True):
            before = last_of_epoch.setdefault(epoch, sum(self._task.batches(each) for each in range(epoch)))
            total += int(self._task.train.source_lengths[self._task.plan.batch(epoch, at - before)].sum())
        return total

    def _validation_loss(self) -> float:
        was_training = self._model.training
        self._model.eval()
        with torch.no_grad():
            loss = self._task.validate(self._model)["loss"]
        self._model.train(was_training)
        return loss


def model_config(size: dict[str, Any]) -> TransformerConfig | Seq2SeqConfig:
    """The model of a size, by its kind."""
    if size["kind"] == "seq2seq":
        return Seq2SeqConfig(
            cell="lstm",
            width=size["width"],
            embedding_width=size["embedding_width"],
            encoder_layers=size["layers"],
            decoder_layers=size["layers"],
            is_bidirectional=True,
            attention="bilinear",
            input_feeding=False,
            dropout_rate=size["dropout_rate"],
            tying="none",
        )
    return TransformerConfig(
        width=size["width"],
        feed_forward=size["feed_forward"],
        encoder_layers=size["layers"],
        decoder_layers=size["layers"],
        heads=size["heads"],
        dropout_rate=size["dropout_rate"],
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--size", type=json.loads, required=True)
    given = parser.parse_args()
    size, cpu = given.size, torch.device("cpu")
    line = Line()
    tokenizers = Tokenizers.load(given.corpus / "text")
    symbols = tokenizers.target.size
    model = model_config(size).build(Symbols(symbols, symbols, is_shared=True), seed=1)
    task = TranslationTask(
        Store.open(given.corpus / "train"),
        DevSet(Store.open(given.corpus / "dev"), [], tokenizers.target, "en"),
        config=TranslationConfig(label_smoothing=size["smoothing"], dev_lines=0),
        tokens_per_batch=size["tokens_per_batch"],
        seed=1,
        device=cpu,
    )
    training = TrainingConfig(
        steps=UNENDING,
        learning_rate=size["learning_rate"],
        schedule="inverse_sqrt",
        warmup=size["warmup"],
        clip_norm=size["clip_norm"],
        validate_every=0,
        save_every=UNENDING,
        log_every=1,
        threads=given.threads,
    )
    conductor = Conductor(line, task, model)
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        trainer = Trainer(model, task, training, run=run, seed=1, device=cpu, listener=conductor.hear)
        parameters = int(np.sum([parameter.numel() for parameter in model.parameters()]))
        line.say({"version": f"seqloom {__version__}, torch {torch.__version__}", "parameters": parameters})
        try:
            conductor.wait()
            trainer.train()
        except HungUp:
            pass


if __name__ == "__main__":
    main()
