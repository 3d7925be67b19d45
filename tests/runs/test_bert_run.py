"""An encoder from a text file to a model directory: trained, resumed, continued from an imported folder, and used."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from published_folders import write_sentence_folder
from seqloom import Encoder, load
from seqloom.cli.main import app
from seqloom.core.errors import ConfigError, UsageError
from seqloom.core.events import read_events
from seqloom.runs.model_dir import read_card
from seqloom.runs.train import resume, train
from seqloom.tasks.masked_language_modelling import mask_symbol
from seqloom.training.weights import weights_of
from tiny_runs import write_text

TINY = (
    *("text.size=120", "model.width=16", "model.layers=1", "task.length=16", "task.tokens_per_batch=128"),
    *("training.save_every=2", "training.validate_every=3", "training.average=2", "training.log_every=2"),
)


SCORES = ["hidden-token accuracy", "perplexity/hidden token", "masked-token accuracy"]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("text") / "text.txt", count=80)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, text: Path) -> Path:
    run = tmp_path_factory.mktemp("runs") / "bert"
    settings = ["model.kind=bert", "training.steps=6", *TINY]
    result = CliRunner().invoke(app, ["train", "--train", str(text), "--out", str(run), *settings])
    assert result.exit_code == 0, result.output
    assert "hidden-token accuracy" in result.output
    assert f"seqloom embed {run / 'model'} FILE --out vectors.npy" in result.output
    return run


def test_a_text_becomes_an_encoder_that_every_command_takes(trained: Path, tmp_path: Path) -> None:
    checks = [event for event in read_events(trained / "events.jsonl") if event.kind == "validation"]
    assert {"loss", "perplexity", "hidden_accuracy"} <= checks[-1].values.keys()
    card = read_card(trained / "model")
    assert [score["name"] for score in card.scores] == SCORES
    assert all("hidden:0.15|mask:0.8|random:0.1" in score["signature"] for score in card.scores)
    assert card.trained_on["hidden_tokens"] > 0

    archive = tmp_path / "model.zip"
    for words in (["info", str(trained)], ["selfcheck", str(trained), "--count", "3"]):
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, result.output
    assert CliRunner().invoke(app, ["pack", str(trained), str(archive)]).exit_code == 0
    lines = ["The dog sleeps.", "", "A man reads."]
    vectors = Encoder.load(archive).encode(lines)
    assert vectors.shape == (3, 16)
    np.testing.assert_array_equal(vectors, Encoder.load(trained).encode(lines))


def test_a_resumed_run_has_the_same_bits(text: Path, tmp_path: Path) -> None:
    settings = ["model.kind=bert", *TINY]
    # The warm-up follows the number of steps, and the schedule ends with them.
    same = ["training.warmup=1", "training.schedule=constant"]
    whole = train(None, [*settings, *same, "training.steps=6"], out=tmp_path / "whole", train=[str(text)])
    train(None, [*settings, *same, "training.steps=3"], out=tmp_path / "parts", train=[str(text)])
    parts = resume(tmp_path / "parts", ["training.steps=6"], exact=True)
    assert whole is not None
    assert parts is not None
    first, second = (weights_of(load(each.model).model) for each in (whole, parts))
    assert all(torch.equal(tensor, second[name]) for name, tensor in first.items())
    assert [score.value for score in whole.scores] == [score.value for score in parts.scores]


def test_pairs_of_segments_get_their_output(text: Path, tmp_path: Path) -> None:
    settings = ["model.kind=bert", "task.next_sentence=true", "training.steps=3", *TINY]
    found = train(None, settings, out=tmp_path / "run", train=[str(text)])
    assert found is not None
    model = load(found.model).config.model.model_dump()
    assert (model["has_pooler"], model["has_pair_output"], model["longest"]) == (True, True, 16)
    checks = [event for event in read_events(found.run / "events.jsonl") if event.kind == "validation"]
    assert 0 <= checks[-1]["pair_accuracy"] <= 1
    assert "|pairs:yes|" in found.scores[0].signature


def masked_folder(folder: Path) -> Path:
    """A small BertForMaskedLM."""
    write_sentence_folder(folder, architectures=["BertForMaskedLM"])
    (folder / "modules.json").unlink()
    tensors = load_file(folder / "model.safetensors")
    symbols, width = tensors["embeddings.word_embeddings.weight"].shape
    head = {"transform.dense.weight": (width, width), "transform.dense.bias": (width,), "bias": (symbols,)}
    head |= {"transform.LayerNorm.weight": (width,), "transform.LayerNorm.bias": (width,)}
    tensors |= {f"cls.predictions.{name}": torch.ones(shape) for name, shape in head.items()}
    save_file(tensors, folder / "model.safetensors")
    return folder


def test_an_imported_encoder_is_trained_further_with_its_own_mask(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the old man reads.\na dog, the man.\n" * 40)
    folder = masked_folder(tmp_path / "published")
    few = ["training.steps=3", "training.save_every=1", "training.validate_every=2", "task.tokens_per_batch=64"]
    settings = ["model.kind=bert", f"training.start_from={folder}", *few]
    found = train(None, settings, out=tmp_path / "run", train=[str(text)])
    assert found is not None
    loaded = load(found.model)
    tokenizer = loaded.tokenizers.target
    assert tokenizer.piece(mask_symbol(tokenizer)) == "[MASK]"
    assert loaded.config.task.model_dump()["length"] == 20  # as many as it has positions
    assert [score.name for score in found.scores] == SCORES
    before, after = weights_of(load(folder).model), weights_of(loaded.model)
    assert not torch.equal(before["layers.0.self.qkv.weight"], after["layers.0.self.qkv.weight"])


def test_what_cannot_be_trained_is_refused_by_name(text: Path, tmp_path: Path) -> None:
    def refusal(*settings: str) -> str:
        with pytest.raises((UsageError, ConfigError)) as caught:
            train(None, settings, out=tmp_path / "run", train=[str(text)])
        assert not (tmp_path / "run").exists()
        return str(caught.value)

    vectors = write_sentence_folder(tmp_path / "vectors")
    assert "gives a model without an output for hidden tokens, which" in refusal(f"training.start_from={vectors}")
    nameless = masked_folder(tmp_path / "nameless")
    words = (nameless / "vocab.txt").read_text()
    (nameless / "vocab.txt").write_text(words.replace("[MASK]", "[HIDE]"))
    assert "has no mask symbol" in refusal(f"training.start_from={nameless}")
    ngram = train(None, ["model.kind=ngram", "text.size=60"], out=tmp_path / "ngram", train=[str(text)])
    assert ngram is not None
    message = refusal("model.kind=bert", f"data.tokenizers_from={ngram.model}")
    assert "none of its pieces is <hidden token>; leave out data.tokenizers_from" in message
    assert "task.length=64 is longer than model.longest=32" in refusal(
        "model.kind=bert", "task.length=64", "model.longest=32"
    )
    paired = refusal("model.kind=bert", "task.next_sentence=true", "model.segments=0")
    assert "needs a model with two segments" in paired
    assert "cannot be combined with task.windows=lines" in refusal(
        "model.kind=bert", "task.next_sentence=true", "task.windows=lines"
    )


def test_a_longer_window_gets_as_many_positions() -> None:
    result = CliRunner().invoke(app, ["config", "model.kind=bert", "task.length=256"])
    assert result.exit_code == 0, result.output
    assert "longest: 256" in result.output
