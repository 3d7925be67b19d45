"""Models with a loop of their own: the same run directory, the same model directory, resumed by fitting again."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors import SafetensorError

import seqloom
from seqloom.apps.encoder import Encoder
from seqloom.apps.export import pack
from seqloom.apps.language_model import LanguageModel
from seqloom.apps.translator import Translator
from seqloom.apps.vectors import doubt_of
from seqloom.classical.ngram import NGram
from seqloom.core.errors import ConfigError, DataError, SeqloomError, UsageError
from seqloom.core.events import Event, read_events
from seqloom.runs.loading import load, load_any, load_fitted
from seqloom.runs.model_dir import read_card
from seqloom.runs.sizing import too_small
from seqloom.runs.train import Trained, resume, train
from tiny_runs import write_text

SETTINGS = ("model.kind=ngram", "model.order=3")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("text") / "train.txt")


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory, text: Path) -> Trained:
    trained = train(None, SETTINGS, out=tmp_path_factory.mktemp("runs") / "run", train=[str(text)])
    assert trained is not None
    return trained


def test_a_fitted_run_ends_in_the_same_directories(fitted: Trained) -> None:
    for name in ("config.yaml", "run.json", "events.jsonl", "text", "data", "model"):
        assert (fitted.run / name).exists(), name
    assert {event.kind for event in read_events(fitted.run / "events.jsonl")} >= {"scores", "finished", "model_saved"}
    card = read_card(fitted.model)
    assert card.trained_on["tokens"] == fitted.outcome.tokens > 0
    assert [score["name"] for score in card.scores] == [f"perplexity/{unit}" for unit in ("token", "word", "character")]
    assert (fitted.outcome.reason, fitted.use) == ("fitted", "language model")


def test_what_was_saved_is_what_was_fitted(fitted: Trained) -> None:
    loaded = load_fitted(fitted.run)
    assert isinstance(loaded.model, NGram)
    assert loaded.model.order == 3
    again = train_again(fitted)
    for name, array in loaded.model.arrays().items():
        np.testing.assert_array_equal(array, again[name])


def train_again(fitted: Trained) -> dict[str, np.ndarray]:
    run = fitted.run.parent / "again"
    if not run.exists():
        config = fitted.run / "config.yaml"
        train(config, [], out=run)
    model = load_fitted(run).model
    assert isinstance(model, NGram)
    return model.arrays()


def test_the_perplexity_of_the_card_is_measured_again_by_the_loaded_model(fitted: Trained) -> None:
    lines = (fitted.run / "data" / "dev.txt").read_text(encoding="utf-8").split("\n")[:-1]
    found = LanguageModel.load(fitted.model).perplexity(lines)
    assert [score.value for score in fitted.scores] == pytest.approx([each.value for each in found.all])


def test_a_run_that_was_interrupted_is_fitted_when_it_is_resumed(fitted: Trained, tmp_path: Path) -> None:
    run = shutil.copytree(fitted.run, tmp_path / "run")
    shutil.rmtree(run / "model")
    resumed = resume(run)
    assert resumed is not None
    assert read_card(resumed.model).scores == read_card(fitted.model).scores


@pytest.mark.parametrize("name", ["text.txt", "t*.txt"])
def test_changed_text_is_refused_unless_it_is_allowed(tmp_path: Path, name: str) -> None:
    text = write_text(tmp_path / "text.txt")
    train(None, SETTINGS, out=tmp_path / "run", train=[str(tmp_path / name)])
    with text.open("a", encoding="utf-8") as file:
        file.write("One more line.\n")
    with pytest.raises(DataError, match=r"has changed since it began.*--allow-data-change"):
        resume(tmp_path / "run")
    assert resume(tmp_path / "run", allow_data_change=True) is not None
    assert json.loads((tmp_path / "run" / "run.json").read_text())["lines"] == 61


def test_fitted_models_are_recognised(fitted: Trained) -> None:
    assert isinstance(load_any(fitted.model).model, NGram)
    refusals = (
        (load, "is not a neural network"),
        (Encoder.load, "is not a neural network"),
        (Translator.load, "does not translate"),
    )
    for use, refusal in refusals:
        with pytest.raises(UsageError, match=f"{refusal}.*: it is a language model of kind ngram"):
            use(fitted.model)


def test_words_are_the_default_pieces(fitted: Trained, tmp_path: Path, text: Path) -> None:
    assert load_fitted(fitted.run).config.text.kind == "word"
    events: list[Event] = []
    train(None, ["model.kind=ngram", "text.kind=char"], out=tmp_path / "c", train=[str(text)], listener=events.append)
    config = load_fitted(tmp_path / "c").config
    assert (config.text.kind, config.model.order) == ("char", 8)  # type: ignore[union-attr]
    (sizing,) = [event for event in events if event.kind == "sizing"]
    assert "order 8" in " ".join(sizing["reasons"])


@pytest.mark.parametrize(("segmentation", "words"), [("words", 600), ("spaces", 400)])
def test_sizes_are_chosen_for_words_as_they_will_be_cut(tmp_path: Path, segmentation: str, words: int) -> None:
    path = tmp_path / "marks.txt"
    path.write_text("one, two.\n" * 200)
    events: list[Event] = []
    settings = [*SETTINGS, f"text.segmentation={segmentation}"]
    train(None, settings, out=tmp_path / "run", train=[str(path)], listener=events.append)
    (sizing,) = [event for event in events if event.kind == "sizing"]
    # The ends of 200 lines, and the words: marks among them or not.
    assert f"about {200 + words + (200 if segmentation == 'words' else 0):,} words" in " ".join(sizing["reasons"])


def test_a_perplexity_without_end_is_kept_as_null(tmp_path: Path, text: Path) -> None:
    words = [*SETTINGS, "model.smoothing=mle"]
    trained = train(None, words, out=tmp_path / "run", train=[str(text)])
    assert trained is not None
    assert trained.scores[0].value == float("inf"), "a word that never followed is impossible"
    record = json.loads((trained.model / "model.json").read_text(), parse_constant=pytest.fail)
    assert [score["value"] for score in record["scores"]] == [None, None, None]


def test_word_vectors_are_fitted_without_dev_text_and_loaded_as_what_they_are(tmp_path: Path, text: Path) -> None:
    words = ["model.kind=word2vec", "model.threads=1", "model.width=8", "model.epochs=1"]
    trained = train(None, words, out=tmp_path / "run", train=[str(text)])
    assert trained is not None
    assert (trained.scores, trained.use) == ((), "word vectors")
    assert not (tmp_path / "run" / "data" / "dev").exists()
    vectors = seqloom.load(trained.model).model
    assert isinstance(vectors, seqloom.WordVectors)
    assert "the" in vectors
    assert vectors.vectors.shape == (len(vectors), 8)
    with pytest.raises(
        UsageError, match="is not a language model: it holds word vectors of kind word2vec; use seqloom vec"
    ):
        LanguageModel.load(trained.model)


# --- bad input --------------------------------------------------------------------------------------------------------


def test_a_text_of_one_word_type_and_an_order_above_its_lines_are_fitted(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("word word\n" * 30)
    trained = train(
        None, ["model.kind=ngram", "model.order=6"], out=tmp_path / "run", train=[str(tmp_path / "one.txt")]
    )
    assert trained is not None
    assert LanguageModel.load(trained.model).perplexity(["word word"]).token.value < 2


@pytest.mark.parametrize("content", ["", "\n\n \n"])
def test_an_empty_text_is_a_sentence(content: str, tmp_path: Path, text: Path) -> None:
    (tmp_path / "empty.txt").write_text(content)
    with pytest.raises(DataError, match=r"empty\.txt: .*expected at least one line of text"):
        train(None, SETTINGS, out=tmp_path / "run", train=[str(tmp_path / "empty.txt")], dev=[str(text)])
    assert not (tmp_path / "run").exists()


def test_blank_lines_at_the_end_cannot_be_held_out(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("a b c\n" * 30 + "\n" * 10)
    with pytest.raises(DataError, match=r"text\.txt: the last 4 lines, which would be held out .* are blank.*--dev"):
        train(None, SETTINGS, out=tmp_path / "run", train=[str(tmp_path / "text.txt")])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("setting", ["model.order=0", "model.alpha=.nan", "model.order=2.5", "model.smoothing=witten"])
def test_settings_that_make_no_sense_are_named(setting: str, tmp_path: Path, text: Path) -> None:
    with pytest.raises(ConfigError, match=setting.partition("=")[0].replace(".", r"\.")):
        train(None, ["model.kind=ngram", setting], out=tmp_path / "run", train=[str(text)])


def test_a_start_from_another_model_has_no_meaning_here(fitted: Trained, tmp_path: Path, text: Path) -> None:
    words = [*SETTINGS, f"training.start_from={fitted.model}"]
    with pytest.raises(UsageError, match="fitted to its text as a whole"):
        train(None, words, out=tmp_path / "run", train=[str(text)])


def test_a_full_disk_at_the_end_is_a_sentence_and_leaves_no_half_model(
    fitted: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_full(_arrays: object, path: Path) -> None:
        path.write_bytes(b"half")
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    run = tmp_path / "run"
    shutil.copytree(fitted.run, run)
    monkeypatch.setattr("seqloom.runs.model_dir.save_arrays", is_full)
    with pytest.raises(SeqloomError, match=r"model: No space left on device; [\d,]+ bytes are free; make room"):
        resume(run)
    assert [path.name for path in run.glob("model*")] == ["model"]
    assert read_card(run / "model") == read_card(fitted.model)


def test_word_vectors_of_too_little_text_are_reported_as_such(tmp_path: Path, text: Path) -> None:
    events: list[Event] = []
    settings = ["model.kind=word2vec", "model.width=4", "model.epochs=1"]
    trained = train(None, settings, out=tmp_path / "run", train=[str(text)], listener=events.append)
    assert trained is not None
    tokens = read_card(trained.model).trained_on["tokens"]
    said = [event["message"] for event in events if event.kind == "notice"]
    assert any(each.startswith(f"{tokens:,} tokens are far too few for word vectors") for each in said)
    assert str(doubt_of(trained.run)).startswith(f"{trained.run}: {tokens:,} tokens are far too few for word vectors")
    assert too_small(200_000) is None


@pytest.mark.parametrize(
    "settings", [["model.kind=markov"], ["model.kind=hmm", "model.states=4", "model.iterations=5"]]
)
def test_chains_and_hidden_states_are_language_models_like_others(
    tmp_path: Path, text: Path, settings: list[str]
) -> None:
    trained = train(None, settings, out=tmp_path / "run", train=[str(text)])
    assert trained is not None
    pack(tmp_path / "run", tmp_path / "model.zip")
    model = LanguageModel.load(tmp_path / "model.zip")
    lines = (tmp_path / "run" / "data" / "dev.txt").read_text(encoding="utf-8").split("\n")[:-1]
    assert model.perplexity(lines).token.value == pytest.approx(trained.scores[0].value)
    written = model.generate(seed=3)[0]
    assert written.log_prob == pytest.approx(model.score([written.text])[0].log_prob, abs=1e-5)
    resumed = resume(tmp_path / "run")
    assert resumed is not None
    assert [each.value for each in resumed.scores] == [each.value for each in trained.scores]
