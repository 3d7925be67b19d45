"""Looking at the gradients of a trained translator."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from seqloom.core.config import resolve
from seqloom.core.errors import DataError, UsageError
from seqloom.core.symbols import END
from seqloom.data.store import StoreWriter
from seqloom.look.gradients import (
    GATES_DECIDE,
    GradientPair,
    Profile,
    _pace,
    _words,
    connectivity_of,
    dev_pairs,
    look_at_gradients,
    text_pairs,
)
from seqloom.nn.jacobians import jacobians_along
from seqloom.runs.config import RunConfig
from seqloom.runs.loading import LoadedModel, build_model
from seqloom.runs.model_dir import Card
from seqloom.text.tokenizer import TextConfig
from seqloom.text.tokenizer_training import train_tokenizers

LINES = [("a b c d e", "A B C D E"), ("b a", "B A"), ("e d c", "E D C")]
SIZES = {
    "transformer": ["model.heads=2", "model.feed_forward=8"],
    "seq2seq": ["model.embedding_width=6"],
}


def loaded_model(kind: str, folder: Path, *settings: str) -> LoadedModel:
    """A translator with fresh weights, as it would come from a folder."""
    common = [f"model.kind={kind}", "model.width=8", "model.encoder_layers=1", "model.decoder_layers=1"]
    config = resolve(RunConfig, overrides=[*common, *SIZES[kind], "text.kind=word", *settings])
    sources, targets = ([line[side] for line in LINES * 3] for side in (0, 1))
    tokenizers = train_tokenizers(iter(sources), iter(targets), TextConfig(kind="word"))
    model = build_model(config.model, tokenizers, seed=1).eval()
    return LoadedModel(folder, config, tokenizers, model, Card("en", "de", 0), torch.device("cpu"))


@pytest.fixture(params=SIZES)
def loaded(request: pytest.FixtureRequest, tmp_path: Path) -> LoadedModel:
    return loaded_model(request.param, tmp_path / "model")


def test_profiles_and_the_shown_sentence_are_those_of_the_pairs(loaded: LoadedModel) -> None:
    pairs = text_pairs(loaded, LINES)
    finding = look_at_gradients(loaded, pairs)[0]
    assert json.dumps(finding.data, allow_nan=False)
    assert finding.data["pairs"] == 3
    first = connectivity_of(loaded.model, torch.tensor(pairs[0].source), torch.tensor(pairs[0].target))
    assert finding.data["shown"]["source"] == ["a", "b", "c", "d", "e", "</s>"]
    np.testing.assert_allclose(finding.data["shown"]["by_source"], first.source, rtol=1e-5)
    assert finding.data["target"]["counts"][0] == sum(len(pair.target) for pair in pairs)
    assert 0 < finding.data["source_share"] < 1
    assert "Over 3 pairs" in finding.sentence
    shown = [axes.get_xlabel() for axes in finding.draw().axes]
    assert "lag in the target (steps back from the symbol read last)" in shown


def test_only_recurrent_models_have_spectra(loaded: LoadedModel) -> None:
    findings = look_at_gradients(loaded, text_pairs(loaded, LINES[1:2]))
    if loaded.config.model.kind == "transformer":
        assert [finding.name for finding in findings] == ["gradients"]
    else:
        assert [finding.name for finding in findings] == ["gradients", "spectra"]
        cells = findings[1].data["cells"]
        assert {name: len(gates) for name, gates in cells.items()} == dict.fromkeys(cells, 4)
        assert len(cells) == 3
        assert "of 12 state matrices" in findings[1].sentence
        assert GATES_DECIDE in findings[1].sentence


def test_without_attention_distances_are_counted_from_where_the_state_comes_from(tmp_path: Path) -> None:
    for both, unit in (("true", "steps from the nearer end of the source"), ("false", "steps from the end of the")):
        settings = ["model.attention=none", f"model.is_bidirectional={both}"]
        loaded = loaded_model("seq2seq", tmp_path, *settings)
        finding = look_at_gradients(loaded, text_pairs(loaded, LINES[:1]))[0]
        assert unit in finding.sentence
        assert "diagonal" not in finding.sentence
        assert finding.data["source"]["distance"].startswith(unit)
        assert len(finding.data["source"]["means"]) == (3 if both == "true" else 6)
        assert any(unit[:14] in axes.get_xlabel() for axes in finding.draw().axes)
    loaded = loaded_model("seq2seq", tmp_path)
    assert "diagonal" in look_at_gradients(loaded, text_pairs(loaded, LINES[:1]))[0].sentence


@pytest.mark.filterwarnings("error")
def test_where_no_gradient_arrives_a_picture_is_drawn_and_the_sentence_says_so(tmp_path: Path) -> None:
    settings = ["model.cell=rnn", "model.activation=relu", "model.spectral_radius=0", "model.start=spectral"]
    loaded = loaded_model("seq2seq", tmp_path, *settings, "model.attention=none")
    findings = look_at_gradients(loaded, text_pairs(loaded, LINES))
    means = findings[0].data["target"]["means"]
    assert means[0] > 0
    assert not any(means[1:])
    assert f"is seen at lag 0 alone: nothing of it reaches the {len(means) - 1} steps back" in findings[0].sentence
    with torch.no_grad():
        for parameter in loaded.model.parameters():
            parameter.zero_()
    dead = look_at_gradients(loaded, text_pairs(loaded, LINES))
    assert "the gradient of a loss reaches no lag at all, and reaches no distance at all." in dead[0].sentence
    assert dead[0].data["source_share"] is None
    for finding in (*findings, *dead):
        assert json.dumps(finding.data, allow_nan=False)
        finding.draw()


def test_lags_without_a_gradient_are_reported() -> None:
    def said(*means: float) -> str:
        profile = Profile(means, (1,) * len(means))
        return _words(profile, "steps", "lag") + _pace(profile)

    assert said(0.0, 0.0, 0.0) == "reaches no lag at all"
    assert said(1.0, 0.0, 0.0) == "is seen at lag 0 alone: nothing of it reaches the 2 steps"
    assert said(1.0, 0.1, 0.0) == "halves within 0.3 steps (nothing of it reaches lag 2 and beyond)"
    assert said(0.0, 0.0, 0.5) == "is 0 up to lag 1"


def test_a_growing_gradient_is_reported_as_growing() -> None:
    def words(*means: float) -> str:
        return _words(Profile(means, tuple(1 for _ in means)), "steps back", "lag")

    assert words(4.0, 6.0, 9.0) == "grows to 2.2 times its size within 2 steps back"
    assert words(4.0, 1.0, 8.0) == "halves within 0.5 steps back (2.0 times as much as at 0 at lag 2)"
    assert words(4.0, 1.0) == "halves within 0.5 steps back (25.0% left at lag 1)"
    assert words(4.0, 3.0) == "does not halve within 1 step back (75.0% left at lag 1)"
    assert words(4.0) == "is seen at lag 0 alone"
    assert _pace(Profile((9.0, 1.0, 1.1), (1, 1, 1))) == " From lag 1 on it grows by 10.0% per step."
    assert _pace(Profile((9.0, 4.0, 2.0), (1, 1, 1))) == " From lag 1 on it halves every 1.0 steps."
    assert _pace(Profile((9.0, 4.0), (1, 1))) == ""


@pytest.mark.parametrize("settings", [["model.cell=gru"], ["model.cell=lstm"], ["model.input_feeding=true"]])
def test_a_whole_step_is_the_one_in_the_middle_of_the_sentence(tmp_path: Path, settings: list[str]) -> None:
    loaded = loaded_model("seq2seq", tmp_path, "model.is_bidirectional=false", *settings)
    (pair,) = text_pairs(loaded, LINES[:1])
    steps = look_at_gradients(loaded, [pair])[1].data["steps"]
    assert len(steps) == 2
    (name,) = [name for name in steps if name.startswith("encoder")]
    cell, vectors = loaded.model.get_submodule(name), loaded.model.encoder.embedding(torch.tensor(pair.source))  # type: ignore[operator, union-attr]
    exact = jacobians_along(cell, vectors.detach(), cell.begin(torch.zeros(1, 8)))[len(pair.source) // 2]  # type: ignore[arg-type, operator]
    assert steps[name]["radius"] == pytest.approx(float(torch.linalg.eigvals(exact).abs().max()), rel=1e-4)
    assert not {"run", "advance"} & set(vars(cell)), "the cell is as it was"


def test_progress_counts_the_pairs(tmp_path: Path) -> None:
    loaded = loaded_model("seq2seq", tmp_path)
    done: list[int] = []
    look_at_gradients(loaded, text_pairs(loaded, LINES), progress=done.append)
    assert done == [1, 2, 3]


def test_blank_pairs_are_left_out_and_only_blank_ones_refused(tmp_path: Path) -> None:
    loaded = loaded_model("seq2seq", tmp_path)
    assert len(text_pairs(loaded, [("a", "A"), (" ", "A"), ("a", "")])) == 1
    with pytest.raises(DataError, match="each of the 2 pairs has a blank side"):
        text_pairs(loaded, [(" ", "A"), ("a", "")])


def test_sentences_of_the_run_itself_are_spread_over_its_dev_set(tmp_path: Path) -> None:
    loaded = loaded_model("seq2seq", tmp_path / "run" / "model")
    with StoreWriter(tmp_path / "run" / "data" / "dev", symbols=20) as writer:
        writer.append([[4 + line, END] for line in range(9)], [[5, END]] * 9, list(range(1, 10)))
    for given in (tmp_path / "run", tmp_path / "run" / "model"):
        pairs = dev_pairs(given, loaded, count=3)
        assert [pair.source for pair in pairs] == [[4, END], [8, END], [12, END]]
        assert pairs[0] == GradientPair([4, END], [5, END])
    assert len(dev_pairs(tmp_path / "run", loaded, count=50)) == 9


def test_a_model_without_its_run_asks_for_sentences(tmp_path: Path) -> None:
    loaded = loaded_model("seq2seq", tmp_path / "alone")
    with pytest.raises(UsageError, match="no sentences to use; give some with --source FILE"):
        dev_pairs(tmp_path / "alone", loaded, count=3)
