"""Language models at work: scores, perplexities, mixtures, texts."""

import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings

import nasty
from seqloom.apps.language_model import LanguageModel, best_weights
from seqloom.core.errors import DataError, UsageError
from seqloom.core.stepping import Source
from seqloom.core.symbols import END
from seqloom.runs.readers import encode_lines
from seqloom.runs.train import Trained, train
from seqloom.search.settings import SearchConfig
from tiny_runs import TINY_LM, write_text

LINES = ["The dog sleeps.", "", "My sister reads an old book in the kitchen.", "Where is the cat?"]
WORDS = ("text.kind=word", "text.minimum_count=1", "text.size=1000")


def trained_model(folder: Path, text: Path, kind: str, *settings: str) -> Trained:
    own = TINY_LM if kind == "rnn_lm" else ["search.length_constant=12"]
    trained = train(None, [f"model.kind={kind}", *own, *WORDS, *settings], out=folder, train=[str(text)])
    assert trained is not None
    return trained


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A recurrent model and a counted one of the same words."""
    folder = tmp_path_factory.mktemp("models")
    text = write_text(folder / "train.txt", count=80)
    return {
        "rnn_lm": trained_model(folder / "rnn", text, "rnn_lm").model,
        "ngram": trained_model(folder / "ngram", text, "ngram", "model.order=3").model,
    }


def by_steps(model: LanguageModel, line: Sequence[int]) -> float:
    """log P of a line by the chain rule, a step at a time."""
    stepper = model.stepper()
    one = torch.ones(1, 1, dtype=torch.long)
    state, last, total = stepper.start(Source(one, one[0])), stepper.begin, 0.0
    for symbol in (*line, END):
        step = stepper.step(state, torch.tensor([last]))
        total, state, last = total + float(step.log_probs[0, symbol]), step.state, symbol
    return total


@pytest.mark.parametrize("kind", ["rnn_lm", "ngram"])
def test_the_score_of_a_line_is_the_sum_of_its_steps(kind: str, models: dict[str, Path]) -> None:
    model = LanguageModel.load(models[kind])
    scores = model.score(LINES, context="line")
    encoded = model.tokenizer.encode_many(LINES)
    assert [score.tokens for score in scores] == [len(ids) + 1 for ids in encoded]
    for score, ids in zip(scores, encoded, strict=True):
        assert score.log_prob == pytest.approx(by_steps(model, ids), rel=1e-5)


@pytest.mark.parametrize("kind", ["rnn_lm", "ngram"])
@given(lines=nasty.lines(fewest=1, most=4, longest=30))
@settings(max_examples=20)
def test_any_line_has_its_score(kind: str, models: dict[str, Path], lines: list[str]) -> None:
    model = loaded(models[kind])
    scores = model.score(lines, context="line")
    assert len(scores) == len(lines)
    assert all(math.isfinite(score.log_prob) and score.log_prob <= 0 for score in scores)
    (alone,) = model.score(lines[-1:], context="line")
    assert (alone.log_prob, alone.tokens) == (pytest.approx(scores[-1].log_prob, rel=1e-4), scores[-1].tokens)


@cache
def loaded(folder: Path) -> LanguageModel:
    return LanguageModel.load(folder)


def test_a_recurrent_model_reads_across_lines_unless_context_is_line(models: dict[str, Path]) -> None:
    model = LanguageModel.load(models["rnn_lm"])
    whole, separate = (model.score(LINES, context=context) for context in ("text", "line"))
    assert whole[0].log_prob == pytest.approx(separate[0].log_prob, rel=1e-5)
    assert whole[2].log_prob != pytest.approx(separate[2].log_prob, rel=1e-5)
    assert model.score(LINES) == whole
    alone = LanguageModel.load(models["ngram"])
    assert alone.score(LINES) == alone.score(LINES, context="line")
    with pytest.raises(UsageError, match="reads each line by itself"):
        alone.score(LINES, context="text")


def test_windows_change_nothing_of_a_text_that_is_read_on(
    models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = LanguageModel.load(models["rnn_lm"])
    whole = [score.log_prob for score in model.score(LINES)]
    monkeypatch.setattr("seqloom.models.reading.WINDOW_TOKENS", 5)
    monkeypatch.setattr("seqloom.models.reading.MAX_SCORES", 1)
    assert [score.log_prob for score in model.score(LINES)] == pytest.approx(whole, rel=1e-5)


def test_a_line_longer_than_a_batch_is_read_in_parts_which_changes_nothing(
    models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = LanguageModel.load(models["rnn_lm"])
    whole = [score.log_prob for score in model.score(LINES, context="line")]
    monkeypatch.setattr("seqloom.models.reading.BATCH_TOKENS", 3)
    assert max(score.tokens for score in model.score(LINES, context="line")) > 6
    assert [score.log_prob for score in model.score(LINES, context="line")] == pytest.approx(whole, rel=1e-5)


@pytest.mark.parametrize("kind", ["rnn_lm", "ngram"])
def test_perplexities_share_the_same_nats_among_tokens_words_and_characters(kind: str, models: dict[str, Path]) -> None:
    model = LanguageModel.load(models[kind])
    found = model.perplexity(LINES)
    nats = -sum(score.log_prob for score in model.score(LINES))
    assert found.word.count == sum(len(line.split()) for line in LINES) + len(LINES)
    assert found.character.count == sum(map(len, LINES)) + len(LINES)
    for each in found.all:
        assert each.value == pytest.approx(math.exp(nats / each.count), rel=1e-9)
        assert f"unit:{each.unit}|count:{each.count}|end:yes" in each.signature
    assert model.perplexity(["Xyzzy."]).unknown == 1
    assert model.perplexity(["Xyzzy."]).token.unknown == "counted"
    with pytest.raises(DataError, match="0 lines"):
        model.perplexity([])


# --- mixtures ---------------------------------------------------------------------------------------------------------


def test_a_mixture_adds_probabilities_and_tuning_finds_the_best_weights(models: dict[str, Path]) -> None:
    one, other = (LanguageModel.load(models[kind]) for kind in ("rnn_lm", "ngram"))
    both = LanguageModel.load(models["rnn_lm"], models["ngram"], weights=[3.0, 1.0])
    assert both.weights == (0.75, 0.25)
    text = encode_lines(one.tokenizer, LINES)
    parts = [np.exp(model.log_probs(text)[0]) for model in (one, other)]
    expected = np.log(0.75 * parts[0] + 0.25 * parts[1])
    np.testing.assert_allclose(both.mixed(both.log_probs(text)), expected, rtol=1e-12)
    tuned = both.tuned(LINES)
    assert sum(tuned.weights) == pytest.approx(1)
    best = tuned.perplexity(LINES).token.value
    for weight in (0.1, 0.3, 0.5, 0.7, 0.9):
        mixed = LanguageModel.load(models["rnn_lm"], models["ngram"], weights=[weight, 1 - weight])
        assert best <= mixed.perplexity(LINES).token.value + 1e-6
    assert by_steps(both, one.tokenizer.encode(LINES[0])) == pytest.approx(both.score(LINES)[0].log_prob, rel=1e-5)


def test_weights_are_those_of_the_share_that_each_model_explains() -> None:
    log_probs = np.log(np.array([[0.9, 0.9, 1e-9, 0.9], [1e-9, 1e-9, 0.9, 1e-9]]))
    assert best_weights(log_probs) == pytest.approx((0.75, 0.25), abs=1e-5)
    assert best_weights(np.array([[-np.inf, -1.0], [-np.inf, -1.0]])) == pytest.approx((0.5, 0.5))
    with pytest.raises(DataError, match="impossible for every model"):
        best_weights(np.full((2, 3), -np.inf))


def test_what_cannot_be_mixed_is_refused(models: dict[str, Path], tmp_path: Path) -> None:
    other = trained_model(tmp_path / "other", write_text(tmp_path / "other.txt", seed=9), "ngram").model
    with pytest.raises(UsageError, match="has another vocabulary than"):
        LanguageModel.load(models["ngram"], other)
    with pytest.raises(UsageError, match="got 1 weights for 2 models"):
        LanguageModel.load(models["ngram"], models["rnn_lm"], weights=[1.0])
    for bad in (0.0, math.nan, -1.0):
        with pytest.raises(UsageError, match="out of range"):
            LanguageModel.load(models["ngram"], models["rnn_lm"], weights=[1.0, bad])


# --- texts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["rnn_lm", "ngram", "both"])
def test_texts_go_on_after_the_prompt_and_the_same_seed_gives_the_same_ones(kind: str, models: dict[str, Path]) -> None:
    model = LanguageModel.load(*models.values()) if kind == "both" else LanguageModel.load(models[kind])
    texts = model.generate("The dog", count=4, seed=5)
    assert len(texts) == 4
    assert all(text.text == "The dog" + text.continuation for text in texts)
    assert model.generate("The dog", count=4, seed=5) == texts
    assert [text.text for text in model.generate("The dog", count=2, seed=5)] == [text.text for text in texts[:2]]
    assert {text.text for text in model.generate("The dog", count=4, seed=6)} != {text.text for text in texts}
    assert not any("⁇" in text.text for text in texts)


@pytest.mark.parametrize("kind", ["rnn_lm", "ngram"])
def test_the_probability_of_a_text_is_that_of_its_continuation(kind: str, models: dict[str, Path]) -> None:
    model = LanguageModel.load(models[kind])
    prompt = "The dog"
    (text,) = model.generate(prompt, search=SearchConfig(method="beam", beam=3, length_factor=0, length_constant=30))
    ids = model.tokenizer.encode(prompt)
    rest = model.tokenizer.encode(text.text)[len(ids) :]
    if text.is_finished:
        whole = by_steps(model, [*ids, *rest])
        assert text.log_prob == pytest.approx(whole - prefix_log_prob(model, ids), rel=1e-4)
    assert text.tokens == len(rest) + text.is_finished


def prefix_log_prob(model: LanguageModel, ids: Sequence[int]) -> float:
    """log P that a line begins with these symbols."""
    stepper = model.stepper()
    one = torch.ones(1, 1, dtype=torch.long)
    state, last, total = stepper.start(Source(one, one[0])), stepper.begin, 0.0
    for symbol in ids:
        step = stepper.step(state, torch.tensor([last]))
        total, state, last = total + float(step.log_probs[0, symbol]), step.state, symbol
    return total


@pytest.mark.parametrize("kind", ["rnn_lm", "ngram"])
def test_past_the_ends_of_lines_a_text_has_the_length_that_was_asked_for(kind: str, models: dict[str, Path]) -> None:
    model = LanguageModel.load(models[kind])
    (text,) = model.generate("The cat\nThe dog", past_line_ends=True)
    assert (text.tokens, text.is_finished) == (12, False)
    assert text.text.startswith("The cat\nThe dog")
    with pytest.raises(UsageError, match="count=0"):
        model.generate(count=0)


def test_a_model_that_reads_on_knows_the_lines_of_the_prompt_before_the_last(models: dict[str, Path]) -> None:
    def log_prob(kind: str, prompt: str) -> float:
        search = SearchConfig(method="sample", temperature=0.0, length_factor=0, length_constant=3)
        return LanguageModel.load(models[kind]).generate(prompt, search=search)[0].log_prob

    assert log_prob("rnn_lm", "Where is the cat?\nThe dog") != pytest.approx(log_prob("rnn_lm", "The dog"), rel=1e-6)
    assert log_prob("ngram", "Where is the cat?\nThe dog") == pytest.approx(log_prob("ngram", "The dog"), rel=1e-9)
