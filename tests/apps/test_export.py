"""Exports as a whole: what is refused before anything is written, and what is left behind when something fails."""

import sys
from pathlib import Path

import pytest

from interop.models import random_model, small
from seqloom.apps.export import Exported, beside, export, export_argos, export_ctranslate2, export_onnx
from seqloom.core.errors import ModelError, SeqloomError, UsageError
from seqloom.models.seq2seq import Seq2SeqConfig
from seqloom.runs.train import Trained
from seqloom.text.tokenizer import TextConfig

BPE = TextConfig(kind="bpe", size=160)


def test_a_recurrent_model_is_refused_by_name(tmp_path: Path) -> None:
    loaded = random_model(Seq2SeqConfig(width=8), BPE)
    with pytest.raises(ModelError, match=r"Transformers only, and this is a Seq2Seq; .* model\.kind=transformer"):
        export_ctranslate2(loaded, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_another_tokeniser_than_sentencepiece_is_no_argos_package(tmp_path: Path) -> None:
    loaded = random_model(small(), BPE)
    with pytest.raises(ModelError, match=r"needs a sentencepiece model, .* text\.kind=bpe; .* text\.kind=unigram"):
        export_argos(loaded, tmp_path / "a.argosmodel", from_code="en", to_code="de")
    assert list(tmp_path.iterdir()) == []


def test_what_exists_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    with pytest.raises(UsageError, match=r"model already exists; remove it, or name another place with --out"):
        export_ctranslate2(random_model(small(), BPE), tmp_path / "model")


def test_onnx_is_not_asked_to_write_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"caf\\udce9' is not valid UTF-8, which ONNX needs"):
        export_onnx(random_model(small(), BPE), tmp_path / "caf\udce9")
    assert list(tmp_path.iterdir()) == []


def test_without_the_library_it_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(UsageError, match=r"pip install 'seqloom\[ct2\]'"):
        export_ctranslate2(random_model(small(), BPE), tmp_path / "deep" / "model")
    assert list((tmp_path / "deep").iterdir()) == []


def test_a_failure_on_the_way_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(folder: Path, *_: object, **__: object) -> None:
        (folder / "model.bin").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("seqloom.interop.ctranslate2_engine.write_ctranslate2", full)
    with pytest.raises(SeqloomError, match=r"cannot write .*model: No space left on device"):
        export_ctranslate2(random_model(small(), BPE), tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_the_place_beside_a_model_bears_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert beside(Path("runs/demo"), "demo-ctranslate2") == tmp_path / "runs" / "demo-ctranslate2"


@pytest.mark.parity
def test_a_run_is_exported_beside_itself(tiny: Trained) -> None:
    pytest.importorskip("ctranslate2", reason="ctranslate2 is installed by `make parity`")
    run = tiny.model.parent
    written = export(run, "ctranslate2", quantization="int8")
    assert written == Exported("ctranslate2", run.with_name(f"{run.name}-ctranslate2"), "int8", written.bytes)
    assert {path.name for path in written.path.iterdir()} == {
        "README.md",
        "config.json",
        "model.bin",
        "seqloom.json",
        "shared_vocabulary.json",
        "text",
    }
