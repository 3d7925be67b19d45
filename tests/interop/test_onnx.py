"""Exports to ONNX, carried out by onnxruntime under our own search: the same lists, the same scores."""

from pathlib import Path

import pytest
import torch
from torch import nn

from interop.models import random_model, small
from laws.stepping import check_stepper_laws
from seqloom.apps.export import export_onnx
from seqloom.core.errors import ModelError, UsageError
from seqloom.core.stepping import Source, Stepper
from seqloom.core.symbols import END
from seqloom.interop.onnx import write_onnx
from seqloom.interop.onnx_stepper import OnnxStepper, write_graphs
from seqloom.models.seq2seq import Seq2SeqConfig
from seqloom.models.transformer import TransformerConfig
from seqloom.nn.embeddings import Symbols
from seqloom.search.beam import beam_search
from seqloom.search.settings import SearchConfig
from seqloom.text.tokenizer import TextConfig, Tokenizers

pytestmark = pytest.mark.parity
pytest.importorskip("onnxruntime", reason="onnxruntime is installed by `make parity`")

SYMBOLS = 24
SEARCH = SearchConfig(beam=4, nbest=4, length_factor=1.0, length_constant=5)

Config = TransformerConfig | Seq2SeqConfig


def recurrent(**changes: object) -> Seq2SeqConfig:
    sizes = {"width": 12, "encoder_width": 12, "embedding_width": 10, "encoder_layers": 2, "decoder_layers": 2}
    return Seq2SeqConfig.model_validate({**sizes, **changes})


def built(config: Config, *, seed: int = 1) -> nn.Module:
    """A model whose weights are large enough that every part of it matters."""
    model = config.build(Symbols(source=SYMBOLS, target=SYMBOLS, is_shared=True), seed=seed).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return model


def exported(model: nn.Module, folder: Path, *, attention: bool = False) -> OnnxStepper:
    folder.mkdir(exist_ok=True)
    write_graphs(folder, write_onnx(folder, model, positions=64))
    return OnnxStepper(folder, attention=attention)


def sentences(*lengths: int) -> Source:
    ids = torch.zeros(len(lengths), max(lengths), dtype=torch.long)
    for row, length in enumerate(lengths):
        ids[row, :length] = torch.tensor([*(5 + (7 * row + 3 * at) % 18 for at in range(length - 1)), END])
    return Source(ids, torch.tensor(lengths))


def differs(ours: Stepper, theirs: Stepper, *, search: SearchConfig = SEARCH) -> bool:
    """Whether two steppers lead our beam search to other lists, or to scores that are more than 1e-4 apart."""
    source = sentences(6, 1, 3, 9, 2)
    for here, there in zip(beam_search(ours, source, search), beam_search(theirs, source, search), strict=True):
        if [each.symbols for each in here] != [each.symbols for each in there]:
            return True
        if any(abs(a.score - b.score) > 1e-4 for a, b in zip(here, there, strict=True)):
            return True
    return False


@pytest.mark.parametrize(
    "config",
    [
        *(small(positions=kind) for kind in ("sinusoidal", "concatenated", "learned", "shaw", "bias", "none")),
        small(norm="after", activation="gelu", final_norm=True, tying="none", output_projection=False),
        recurrent(),
        recurrent(cell="gru", attention="additive", query="previous", input_feeding=True),
        recurrent(cell="gru", update="new", input_feeding=True, is_bidirectional=False, skip="residual"),
        recurrent(cell="rnn", attention="dot", context="first", summary="mean", skip="highway"),
        recurrent(attention="none", context="every", summary="max", skip="dense"),
    ],
    ids=str,
)
def test_our_search_finds_the_same_on_the_graphs_as_on_the_model(config: Config, tmp_path: Path) -> None:
    model = built(config)
    theirs = exported(model, tmp_path)
    assert not model.training
    assert not differs(model.stepper(), theirs)  # type: ignore[operator]
    assert differs(built(config, seed=2).stepper(), theirs)  # type: ignore[operator]


@pytest.mark.parametrize(
    "config", [small(), recurrent(query="previous", input_feeding=True)], ids=["transformer", "rnn"]
)
def test_the_graphs_obey_the_laws_of_stepping(config: Config, tmp_path: Path) -> None:
    stepper = exported(built(config), tmp_path, attention=True)
    check_stepper_laws(lambda: stepper, SYMBOLS, target_symbols=SYMBOLS, tolerance=2e-4)


@pytest.mark.parametrize("config", [small(), recurrent()], ids=["transformer", "rnn"])
def test_the_graphs_tell_where_a_step_looked(config: Config, tmp_path: Path) -> None:
    model, source = built(config), sentences(5, 3)
    steppers = [model.stepper(attention=True), exported(model, tmp_path, attention=True)]  # type: ignore[operator]
    last = torch.tensor([1, 1])
    with torch.inference_mode():
        ours, theirs = (stepper.step(stepper.start(source), last).attention for stepper in steppers)
    torch.testing.assert_close(theirs, ours, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("config", "part"),
    [
        (recurrent(cell="peephole"), "PeepholeCell"),
        (recurrent(cell="gru", reset="before"), "GRUCell"),
        (recurrent(cell_norm=True), "without model.cell_norm"),
    ],
    ids=["peephole", "reset", "norm"],
)
def test_cells_without_an_operator_are_refused(config: Config, part: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=part):
        write_onnx(tmp_path, built(config), positions=64)
    assert list(tmp_path.iterdir()) == []


def test_other_models_and_too_many_positions_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="this is a Linear"):
        write_onnx(tmp_path, nn.Linear(2, 2), positions=64)
    with pytest.raises(UsageError, match=r"at most 64 positions, but 65 are needed"):
        exported(built(small()), tmp_path).start(sentences(65))
    with pytest.raises(UsageError, match=r"has no graphs\.json; create it with: seqloom export"):
        OnnxStepper(tmp_path / "nowhere")


def test_an_exported_directory_holds_all_that_a_translation_needs(tmp_path: Path) -> None:
    loaded = random_model(small(), TextConfig(kind="bpe", size=160), search=SEARCH)
    written = export_onnx(loaded, tmp_path / "model")
    assert (written.kind, written.bytes > 0) == ("onnx", True)
    text = Tokenizers.load(tmp_path / "model" / "text")
    ids = [*text.source.encode("The dog sleeps."), END]
    source = Source(torch.tensor([ids]), torch.tensor([len(ids)]))
    found = [beam_search(each, source, SEARCH)[0] for each in (loaded.model.stepper(), OnnxStepper(written.path))]  # type: ignore[operator]
    assert text.target.decode(found[1][0].symbols) == loaded.tokenizers.target.decode(found[0][0].symbols)
    assert found[1][0].score == pytest.approx(found[0][0].score, abs=1e-4)
