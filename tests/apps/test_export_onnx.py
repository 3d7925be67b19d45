"""Exports to ONNX as a whole: what is refused before anything is written."""

import sys
from pathlib import Path

import pytest

from interop.models import random_model, small
from seqloom.apps.export import export, export_onnx
from seqloom.core.errors import ModelError, UsageError
from seqloom.interop.onnx_stepper import OnnxStepper, require_onnxruntime
from seqloom.models.seq2seq import Seq2SeqConfig
from seqloom.runs.train import Trained
from seqloom.text.tokenizer import TextConfig

BPE = TextConfig(kind="bpe", size=160)


def test_without_the_libraries_it_says_how_to_install_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(UsageError, match=r"pip install 'seqloom\[onnx\]'"):
        export_onnx(random_model(small(), BPE), tmp_path / "deep" / "model")
    assert list((tmp_path / "deep").iterdir()) == []
    with pytest.raises(UsageError, match=r"onnxruntime is not installed .* pip install 'seqloom\[onnx\]'"):
        require_onnxruntime()
    with pytest.raises(UsageError, match=r"pip install 'seqloom\[onnx\]'"):
        OnnxStepper(tmp_path)


def test_a_cell_without_an_operator_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    loaded = random_model(Seq2SeqConfig(width=8, cell="coupled"), BPE)
    with pytest.raises(ModelError, match=r"no operator for the CoupledCell .* model\.cell=lstm"):
        export_onnx(loaded, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_quantised_graphs_are_refused(tiny: Trained, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--quantization int8 is not supported for ONNX graphs"):
        export(tiny.run, "onnx", out=tmp_path / "model", quantization="int8")
