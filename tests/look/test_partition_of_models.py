"""Looking at the normaliser of a trained model, by recipe and by command."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from seqloom.cli.look import partition
from seqloom.core.errors import ConfigError, DataError, UsageError
from seqloom.core.symbols import BEGIN, END
from seqloom.look.partition import PartitionConfig, look_at_partition
from seqloom.models.elmo import Elmo
from seqloom.models.rnn_lm import RnnLm
from seqloom.nn.outputs import Output
from seqloom.runs.loading import load_any
from seqloom.runs.train import Trained, train
from tiny_runs import TINY_LM, write_text

SMALL = PartitionConfig(tokens=40, samples=(4, 32, 100_000), draws=2)


def trained(folder: Path, text: Path, *settings: str) -> Trained:
    found = train(None, [*settings], out=folder, train=[str(text)])
    assert found is not None
    return found


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("partition") / "train.txt")


@pytest.fixture(scope="module")
def model(text: Path) -> Path:
    objective = ("task.objective.kind=nce", "task.objective.samples=20", "task.objective.log_z=learned")
    own = ("model.kind=rnn_lm", "model.learns_log_z=true", *objective)
    return trained(text.parent / "run", text, *own, *TINY_LM).model


def test_log_z_is_that_of_reading_the_text(model: Path, text: Path) -> None:
    loaded = load_any(model)
    log_z, cosines, variance = look_at_partition(loaded, text, SMALL)
    assert isinstance(loaded.model, RnnLm)
    output = loaded.model.output
    assert isinstance(output, Output)
    assert output.log_z is not None
    lines = [line for line in text.read_text(encoding="utf-8").split("\n") if line]
    ids = [symbol for line in lines for symbol in (*loaded.tokenizers.target.encode(line), END)][:40]
    with torch.no_grad():
        # As in training, the end of a line is read as the beginning of the next.
        read = [BEGIN if symbol == END else symbol for symbol in (BEGIN, *ids[:-1])]
        assert read.count(BEGIN) > 1
        features, _ = loaded.model(torch.tensor([read]), None)
        expected = torch.logsumexp(output(features[0]).double(), 1) - output.log_z
    assert log_z.data["tokens"] == 40
    assert log_z.data["mean"] == pytest.approx(expected.mean().item(), abs=1e-4)
    assert log_z.data["deviation"] == pytest.approx(np.std(expected.numpy()), abs=1e-4)
    assert "log Z over 40 positions: mean" in log_z.sentence
    assert "with the learned log Z" in log_z.sentence
    assert cosines.data["samples"] == [4, 32]
    assert set(cosines.data["single"]) == {"sampled softmax", "sampled softmax, label corrected", "NCE"}
    assert variance.data["symbols"] == len(output.weight)
    assert [finding.name for finding in (log_z, cosines, variance)] == [
        "log-z",
        "gradient-cosine",
        "importance-variance",
    ]


def test_elmo_is_measured_from_left_to_right(text: Path) -> None:
    own = ("model.kind=elmo", "model.width=8", "model.layers=1", "text.size=60", "training.steps=2")
    loaded = load_any(trained(text.parent / "elmo", text, *own).model)
    log_z, *_ = look_at_partition(loaded, text, SMALL)
    assert isinstance(loaded.model, Elmo)
    half = loaded.model.forward_half()
    first = next(line for line in text.read_text(encoding="utf-8").split("\n") if line)
    with torch.no_grad():
        features, _ = half(torch.tensor([[BEGIN, *loaded.tokenizers.target.encode(first)]]), None)
        expected = torch.logsumexp(half.output(features[0]).double(), 1)
    alone = look_at_partition(loaded, text, SMALL.model_copy(update={"tokens": len(expected)}))[0].data
    assert alone["mean"] == pytest.approx(expected.mean().item(), abs=1e-4)
    assert log_z.data["mean"] != pytest.approx(alone["mean"], abs=1e-6)


def test_the_command_prints_sentences_and_draws_three_pictures(
    model: Path, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(text), "tokens=30", "samples=[4]", "draws=1"]
    partition(model, words, out=tmp_path / "new" / "z.svg", json=False)
    out = capsys.readouterr().out
    assert "log Z over 30 positions" in out
    assert "importance samples for Z to 10%" in out
    for name in ("z.svg", "z-gradient-cosine.svg", "z-importance-variance.svg"):
        assert (tmp_path / "new" / name).read_text().startswith("<?xml")
        assert f"drawn in {tmp_path / 'new' / name}" in out
    partition(model, words, out=tmp_path / "z.png", json=True)
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert [record["name"] for record in records] == ["log-z", "gradient-cosine", "importance-variance"]


def test_unsupported_inputs_are_refused(model: Path, text: Path, tmp_path: Path) -> None:
    blank = tmp_path / "blank.txt"
    blank.write_text("\n\n")
    with pytest.raises(DataError, match=r"blank\.txt contains only blank lines"):
        look_at_partition(load_any(model), blank, SMALL)
    counted = trained(tmp_path / "counted", text, "model.kind=ngram", "model.order=2").model
    with pytest.raises(UsageError, match="is normalised by construction"):
        look_at_partition(load_any(counted), text, SMALL)
    with pytest.raises(UsageError, match=r"z\.pdf is neither \.png nor \.svg"):
        partition(model, [str(text)], out=tmp_path / "z.pdf", json=False)
    with pytest.raises(UsageError, match="expected one text, got 2"):
        partition(model, [str(text), str(blank)], out=tmp_path / "z.png", json=False)
    with pytest.raises(ConfigError, match="tokens"):
        partition(model, [str(text), "tokens=0"], out=tmp_path / "z.png", json=False)
