"""Archives in eight bits: smaller, and they translate as the model does with search.precision=int8."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cli.calling import call
from seqloom.apps.export import pack, unpack
from seqloom.apps.translator import Translator, open_translator
from seqloom.core.config import resolve
from seqloom.core.errors import ModelError, UsageError
from seqloom.nn.fast.int8 import MIN_WEIGHTS
from seqloom.runs.config import RunConfig
from seqloom.runs.loading import build_model, load
from seqloom.runs.model_dir import save_model, stored_tables
from seqloom.runs.train import Trained, average
from seqloom.selfcheck.files import check_saved
from seqloom.text.detection import script_table
from seqloom.training.weights import weights_of

LINES = ["The old man reads a book.", "Good morning.", "It is ten o'clock.", "qx 17"]


@pytest.fixture(scope="module")
def wide(tiny: Trained, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained model with matrices that are large enough to be rounded."""
    trained = load(tiny.model)
    overrides = ["model.width=64", "model.feed_forward=2048"]
    config = resolve(RunConfig, file=trained.folder / "config.yaml", overrides=overrides)
    model = build_model(config.model, trained.tokenizers, seed=5)
    folder = tmp_path_factory.mktemp("wide") / "model"
    tables = {"en": script_table("en")}
    save_model(
        folder, config, tokenizers=trained.tokenizers, weights=weights_of(model), card=trained.card, tables=tables
    )
    return folder


@pytest.mark.parametrize(
    "settings", [("search.beam=1",), ("search.beam=3", "search.nbest=3"), ("search.coverage=0.1",)]
)
def test_a_model_packed_in_eight_bits_translates_to_the_bit_as_it_does_in_eight_bits(
    wide: Path, tmp_path: Path, settings: tuple[str, ...]
) -> None:
    small, whole = (pack(wide, tmp_path / f"{name}.zip", precision=name) for name in ("int8", "float32"))  # type: ignore[arg-type]
    assert small.bytes < 0.5 * whole.bytes
    found = open_translator(small.path, settings).search(LINES, attention=True)
    asked = open_translator(wide, [*settings, "search.precision=int8"]).search(LINES, attention=True)
    assert found == asked
    assert [each[0].score for each in found] != [
        each[0].score for each in open_translator(wide, settings).search(LINES)
    ], "nothing was rounded"


def test_an_archive_in_eight_bits_packs_again_to_the_same_bytes_and_keeps_its_promises(
    wide: Path, tmp_path: Path
) -> None:
    first = pack(wide, tmp_path / "first.zip", precision="int8")
    unpack(first.path, tmp_path / "model")
    assert pack(tmp_path / "model", tmp_path / "again.zip").sha256 == first.sha256
    assert pack(tmp_path / "model", tmp_path / "twice.zip", precision="int8").sha256 == first.sha256
    assert stored_tables(tmp_path / "model") == stored_tables(wide) != {}
    loaded = load(tmp_path / "model")
    exact = dict(load(wide).model.named_parameters())
    for name, tensor in loaded.model.named_parameters():
        torch.testing.assert_close(tensor, exact[name], rtol=0, atol=float(exact[name].detach().abs().max()) / 120)
    kept = check_saved(loaded, lambda each: Translator(each).translate(LINES))  # type: ignore[arg-type]
    assert kept.outcome == "holds", kept.sentence
    with pytest.raises(UsageError, match="were rounded to eight bits when it was packed"):
        average([tmp_path / "model"], tmp_path / "mean")


def test_weights_in_eight_bits_that_do_not_belong_to_a_linear_layer_are_refused(wide: Path, tmp_path: Path) -> None:
    loaded = load(wide)
    name = next(name for name, _ in loaded.model.named_parameters() if "embedding" in name)
    weights = weights_of(loaded.model)
    rows = len(weights[name])
    weights |= {name: torch.ones_like(weights[name], dtype=torch.int8)}
    card = replace(loaded.card, format=2)
    for scales, message in (({}, "without a scale per row"), ({f"{name}.scales": torch.ones(rows)}, "linear layer")):
        folder = tmp_path / message
        save_model(folder, loaded.config, tokenizers=loaded.tokenizers, weights={**weights, **scales}, card=card)
        with pytest.raises(ModelError, match=message):
            load(folder)


def test_a_model_without_large_matrices_is_not_packed_in_eight_bits(tiny: Trained, tmp_path: Path) -> None:
    called = call("pack", tiny.model, tmp_path / "model.zip", "--precision", "int8")
    assert called.code == 2
    assert "no linear layer (attention, feed-forward) has 100,000 weights or more" in called.err
    assert "tables of symbols (embeddings, output) stay as they are; leave out --precision" in called.err
    assert f"{MIN_WEIGHTS:,} weights" in " ".join(call("pack", "--help").out.replace("│", " ").split())
    assert list(tmp_path.iterdir()) == []


def test_floats_of_an_archive_in_eight_bits_come_with_a_notice(wide: Path, tmp_path: Path) -> None:
    archive, text = pack(wide, tmp_path / "small.zip", precision="int8").path, tmp_path / "text.en"
    text.write_text("Good morning.\n")
    assert "rounded" not in call("translate", archive, text).err
    assert (
        "search.precision=float32 cannot restore them"
        in call("translate", archive, text, "search.precision=float32").err
    )
    assert "format 2, large matrices rounded to eight bits" in call("info", archive).out
