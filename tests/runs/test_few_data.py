"""Subword sampling and consistency in a run: what is drawn belongs to the sentence, and a resume changes nothing."""

from pathlib import Path

import numpy as np
import pytest
import torch

from published_folders import write_opus_folder
from seqloom.core.config import resolve
from seqloom.core.errors import ConfigError, SeqloomError
from seqloom.core.events import ignore
from seqloom.runs.config import RunConfig
from seqloom.runs.model_dir import read_weights
from seqloom.runs.prepare import load_data
from seqloom.runs.train import Trained, resume, train
from seqloom.runs.translation import PairData
from seqloom.tasks.translation import TranslationTask
from seqloom.training.trainer import deal
from tiny_runs import TINY

Corpus = tuple[list[str], list[str]]

FEW_DATA = (*TINY, "task.subword_sampling=0.2", "task.consistency=1.0", "data.tokens_per_batch=1500")


def task_of(tiny: Trained, *settings: str) -> TranslationTask:
    config = resolve(RunConfig, file=tiny.run / "config.yaml", overrides=settings)
    data = load_data(tiny.run, config)
    assert isinstance(data, PairData)
    return data.task(config, device=torch.device("cpu"), listener=ignore)


def sentences(task: TranslationTask, epoch: int, batches: list[int]) -> dict[int, tuple[list[int], list[int]]]:
    """Source and target ids of the lines in these batches."""
    found = {}
    for index in batches:
        batch = task.batch(epoch, index)
        for row, line in enumerate(batch.lines):
            source = batch.source.ids[row, : batch.source.lengths[row]].tolist()
            found[int(line)] = (source, batch.target[row, : batch.target_lengths[row]].tolist())
    return found


def test_cuts_belong_to_the_sentence_and_the_epoch(tiny: Trained) -> None:
    """Whatever the batches are, and however many ranks share them."""
    task, other = (task_of(tiny, "task.subword_sampling=0.2", f"data.tokens_per_batch={n}") for n in (400, 1000))
    plain = task_of(tiny)
    for epoch in (0, 1):
        alone = sentences(task, epoch, list(range(task.batches(epoch))))
        assert alone == sentences(other, epoch, list(range(other.batches(epoch))))
        shares = [deal(epoch, 0, task.batches(epoch), rank=rank, ranks=2).mine for rank in (0, 1)]
        first, second = (sentences(task, epoch, [at for at in share if at is not None]) for share in shares)
        assert {**first, **second} == alone
        stored = sentences(plain, epoch, list(range(plain.batches(epoch))))
        tokenizer = plain.dev.tokenizer
        assert alone != stored
        assert {line: tokenizer.decode(pair[1]) for line, pair in alone.items()} == {
            line: tokenizer.decode(pair[1]) for line, pair in stored.items()
        }
    assert alone != sentences(task, 0, list(range(task.batches(0))))
    longest = int(np.maximum(plain.train.source_lengths, plain.train.target_lengths).max())
    bounded = task_of(tiny, "task.subword_sampling=0.9", f"data.longest={longest}")
    lengths = [len(ids) for pair in sentences(bounded, 0, list(range(bounded.batches(0)))).values() for ids in pair]
    assert max(lengths) == longest


def test_a_run_resumed_in_its_second_epoch_gives_the_same_bits(tmp_path: Path, corpus: Corpus) -> None:
    def trained(name: str, steps: int) -> Path:
        found = train(None, [*FEW_DATA, f"training.steps={steps}"], out=tmp_path / name, train=corpus[0], dev=corpus[1])
        assert found is not None
        return found.run

    whole, parts = trained("whole", 5), trained("parts", 4)
    resume(parts, ["training.steps=5"])
    ends = [read_weights(run / "checkpoints" / "step-5" / "model.safetensors") for run in (whole, parts)]
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])
    events = (parts / "events.jsonl").read_text()
    assert '"epoch": 1' in events
    other = train(
        None, [*TINY, *FEW_DATA[-1:], "training.steps=5"], out=tmp_path / "off", train=corpus[0], dev=corpus[1]
    )
    assert other is not None
    off = read_weights(other.run / "checkpoints" / "step-5" / "model.safetensors")
    assert not all(torch.equal(ends[0][name], off[name]) for name in off)


def test_text_without_other_cuts_is_refused_before_anything_is_written(tmp_path: Path, corpus: Corpus) -> None:
    write_opus_folder(tmp_path / "opus")
    cases = [
        (
            ["text.kind=char"],
            r"task\.subword_sampling=0\.1 draws other cuts of bpe or unigram pieces, and text\.kind is",
        ),
        ([f"training.start_from={tmp_path / 'opus'}"], r"text\.kind is published"),
        (["model.kind=phrases"], "subword_sampling"),
        (["task.subword_sampling=1.5"], "expected .* 1"),
    ]
    for settings, message in cases:
        with pytest.raises(SeqloomError, match=message) as refused:
            train(None, ["task.subword_sampling=0.1", *settings], out=tmp_path / "run", train=corpus[0], dev=corpus[1])
        assert isinstance(refused.value, ConfigError)
        assert not (tmp_path / "run").exists()
