"""A plain encoder-decoder that reads its own guesses: trained, stopped and resumed, translated with, looked into."""

from pathlib import Path

import pytest

from cli.calling import call
from cli.conftest import SETTINGS, Tiny

PLAIN = (
    *(setting for setting in SETTINGS if not setting.startswith(("model.heads", "model.feed_forward"))),
    *("model.kind=seq2seq", "model.cell=coupled", "model.embedding_width=16", "model.attention=none"),
    *("model.context=every", "model.skip=highway", "model.dropout_kind=variational", "model.dropout_rate=0.3"),
    "task.teacher_forcing=0.5",
)


@pytest.mark.slow
def test_a_run_that_reads_its_guesses_resumes_to_the_same_bits_and_has_no_look_to_draw(
    tiny: Tiny, tmp_path: Path
) -> None:
    files = ["--train", f"{tiny.train[0]},{tiny.train[1]}", "--dev", f"{tiny.dev[0]},{tiny.dev[1]}"]
    straight = call("train", *files, "--out", tmp_path / "straight", *PLAIN)
    assert straight.code == 0, straight.err
    halved = call("train", *files, "--out", tmp_path / "halved", *PLAIN, "training.steps=2")
    assert halved.code == 0, halved.err
    resumed = call("train", "--resume", tmp_path / "halved", "training.steps=4")
    assert resumed.code == 0, resumed.err
    one, other = (tmp_path / run / "model" / "model.safetensors" for run in ("straight", "halved"))
    assert one.read_bytes() == other.read_bytes()
    assert len(call("translate", tmp_path / "straight", tiny.dev[0]).out.splitlines()) == 6
    looked = call("look", "attention", tmp_path / "straight", "A sentence.", "--out", tmp_path / "look.png")
    assert looked.code == 2
    assert "this model has no attention (model.attention=none)" in looked.err
    assert not (tmp_path / "look.png").exists()
