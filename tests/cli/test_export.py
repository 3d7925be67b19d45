"""`seqloom export`: what it says, and what it refuses before anything is loaded."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from cli.calling import call
from cli.conftest import Tiny


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--to", "ctranslate"], "Invalid value for '--to': 'ctranslate' is not one of 'ctranslate2', 'argos'"),
        (
            ["--to", "ctranslate2", "--quantization", "int4"],
            "Invalid value for '--quantization': 'int4' is not one of 'none'",
        ),
        (["--to", "ctranslate2", "--from-code", "de"], "--from-code and --to-code require --to argos"),
        (["--to", "ctranslate2"], "model: model directory not found"),
    ],
)
def test_invalid_arguments_are_refused_with_a_message(words: list[str], part: str) -> None:
    called = call("export", "model", *words)
    assert (called.code, called.out) == (2, "")
    assert part in called.err


def test_an_argos_package_of_a_bpe_model_is_a_model_error(tiny: Tiny, tmp_path: Path) -> None:
    called = call("export", tiny.run, "--to", "argos", "--out", tmp_path / "a.argosmodel", "--json")
    assert called.code == 4
    assert "train one with text.kind=unigram" in called.messages[-1]["message"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("kind", "library"), [("ctranslate2", "ctranslate2"), ("onnx", "onnx")])
def test_a_missing_library_is_reported_before_the_weights_are_read(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, library: str
) -> None:
    copy = shutil.copytree(tiny.run / "model", tmp_path / "copy")
    (copy / "model.safetensors").write_bytes(b"")
    monkeypatch.setitem(sys.modules, library, None)
    called = call("export", copy, "--to", kind)
    assert called.code == 2
    assert "install it with: pip install" in called.err


@pytest.mark.parity
def test_the_record_says_what_was_written(tiny: Tiny, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2", reason="ctranslate2 is installed by `make parity`")
    out = tmp_path / "fast"
    called = call("export", tiny.run, "--to", "ctranslate2", "--out", out, "--quantization", "int8", "--json")
    assert called.code == 0, called.err
    (record,) = called.records
    assert (record["kind"], record["path"], record["quantization"]) == ("ctranslate2", str(out), "int8")
    assert json.loads((out / "seqloom.json").read_text(encoding="utf-8"))["search"]["length_factor"] == 1.0
    again = call("export", tiny.run, "--to", "ctranslate2", "--out", out)
    assert again.code == 2
    assert f"{out} already exists" in again.err
