"""Self-checks on models that do not translate: they hold on sound ones, and see their faults."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seqloom.apps.contextual import ContextualModel, SentenceFeatures
from seqloom.apps.language_model import LanguageModel, LineScore
from seqloom.classical.ngram import NGram
from seqloom.classical.vectors import Neighbour, WordVectors
from seqloom.core.errors import UsageError
from seqloom.runs.loading import load_any
from seqloom.runs.train import train
from seqloom.selfcheck.language_models import (
    LanguageModelChecks,
    check_features,
    check_nearest,
    check_neighbours,
    check_scored_lines,
    check_written,
    check_written_twice,
)
from seqloom.selfcheck.lines import CheckLines
from seqloom.selfcheck.promises import PROMISES
from seqloom.selfcheck.run import selfcheck
from tiny_runs import write_text

LINES = ("A dog sleeps.", "The old man reads a book.", "")
Patch = pytest.MonkeyPatch


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("text") / "text.txt", count=40)


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory, text: Path) -> Path:
    run = tmp_path_factory.mktemp("runs") / "ngram"
    train(None, ["model.kind=ngram", "model.order=2", "text.size=80"], out=run, train=[str(text)])
    return run


@pytest.fixture(scope="module")
def bidirectional(tmp_path_factory: pytest.TempPathFactory, text: Path) -> Path:
    run = tmp_path_factory.mktemp("runs") / "elmo"
    short = ["training.steps=2", "training.save_every=1", "training.validate_every=2", "training.average=0"]
    train(None, ["model.kind=elmo", "text.size=60", "model.width=8", *short], out=run, train=[str(text)])
    return run


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory, text: Path) -> Path:
    run = tmp_path_factory.mktemp("runs") / "words"
    sizes = ["text.size=60", "model.width=8", "model.threads=1"]
    train(None, ["model.kind=word2vec", *sizes], out=run, train=[str(text)])
    return run


@pytest.fixture
def model(counted: Path) -> LanguageModel:
    return LanguageModel(load_any(counted))


def test_promises_of_a_counted_model_hold(counted: Path) -> None:
    report = selfcheck(counted, count=4)
    assert report.is_kept, report.broken
    outcomes = {each.name: each.finding.outcome for each in report.checked}
    assert set(outcomes) == set(PROMISES) - {"features"}
    assert {"blank", "batch-int8", "plan"} <= {name for name, each in outcomes.items() if each == "not applicable"}
    assert outcomes["score"] == outcomes["greedy"] == outcomes["saved"] == "holds"
    assert "stored dev text" in report.lines


@pytest.mark.slow
def test_promises_of_an_elmo_hold(bidirectional: Path) -> None:
    report = selfcheck(bidirectional, count=2)
    assert report.is_kept, report.broken
    outcomes = {each.name: each.finding.outcome for each in report.checked}
    assert outcomes["features"] == outcomes["batch"] == outcomes["seed"] == "holds"


def test_promises_of_word_vectors_hold(words: Path) -> None:
    report = selfcheck(words, count=5)
    assert report.is_kept, report.broken
    holding = {each.name for each in report.checked if each.finding.outcome == "holds"}
    assert holding == {"files", "saved", "batch"}
    reasons = {each.finding.sentence for each in report.checked if each.finding.outcome == "not applicable"}
    assert reasons == {"word vectors read no lines and are not searched"}
    with pytest.raises(UsageError, match="read no lines"):
        selfcheck(words, lines=Path("any.txt"))


def test_scores_that_are_lost_or_no_log_probabilities_are_found(model: LanguageModel, monkeypatch: Patch) -> None:
    assert check_scored_lines(model, LINES).outcome == "holds"
    whole = LanguageModel.score
    monkeypatch.setattr(LanguageModel, "score", lambda *given, **rest: whole(*given, **rest)[:-1])
    assert check_scored_lines(model, LINES).outcome == "broken"
    monkeypatch.setattr(LanguageModel, "score", lambda _self, lines, **_: [LineScore(0.5, 1) for _ in lines])
    assert check_scored_lines(model, LINES).figures["wrong"] == 3


def test_neighbours_that_change_a_score_are_found(model: LanguageModel, monkeypatch: Patch) -> None:
    assert check_neighbours(model, LINES).outcome == "holds"
    whole = LanguageModel.score

    def crowded(self: LanguageModel, lines: Sequence[str], **rest: Any) -> list[LineScore]:
        return [replace(each, log_prob=each.log_prob - 1e-3 * len(lines)) for each in whole(self, lines, **rest)]

    monkeypatch.setattr(LanguageModel, "score", crowded)
    found = check_neighbours(model, LINES)
    assert found.outcome == "broken"
    assert found.figures["largest_difference"] == pytest.approx(2e-3, rel=0.01)


def test_writing_and_reading_that_differ_are_found(counted: Path, model: LanguageModel, monkeypatch: Patch) -> None:
    checks = LanguageModelChecks(load_any(counted), CheckLines(LINES, "here"), seed=1)
    assert check_written(model, checks.settings, seed=1).outcome == "holds"
    whole = NGram.log_probs
    monkeypatch.setattr(NGram, "log_probs", lambda self, ids: whole(self, ids) - 1e-3)
    assert check_written(model, checks.settings, seed=1).outcome == "broken"


def test_texts_that_do_not_follow_the_seed_are_found(model: LanguageModel, monkeypatch: Patch) -> None:
    assert check_written_twice(model, seed=1).outcome == "holds"
    whole, calls = LanguageModel.generate, iter(range(10))

    def unseeded(self: LanguageModel, **given: Any) -> Any:
        return whole(self, **{**given, "seed": next(calls)})

    monkeypatch.setattr(LanguageModel, "generate", unseeded)
    assert check_written_twice(model, seed=1).outcome == "broken"


def test_vectors_that_look_at_their_neighbours_are_found(bidirectional: Path, monkeypatch: Patch) -> None:
    loaded = load_any(bidirectional)
    contextual = ContextualModel(loaded.model, loaded.tokenizers.target)  # type: ignore[arg-type]
    assert check_features(contextual, LINES).outcome == "holds"
    whole = ContextualModel.features

    def crowded(self: ContextualModel, sentences: Sequence[str]) -> list[SentenceFeatures]:
        found = whole(self, sentences)
        return [replace(each, layers=each.layers + np.float32(0.01 * len(sentences))) for each in found]

    monkeypatch.setattr(ContextualModel, "features", crowded)
    assert check_features(contextual, LINES).outcome == "broken"


def test_lines_without_words_have_no_vectors_to_check(bidirectional: Path) -> None:
    loaded = load_any(bidirectional)
    contextual = ContextualModel(loaded.model, loaded.tokenizers.target)  # type: ignore[arg-type]
    assert check_features(contextual, ["", "  "]).outcome == "not applicable"


def test_nearest_words_that_depend_on_the_question_are_found(words: Path, monkeypatch: Patch) -> None:
    vectors = load_any(words).model
    assert isinstance(vectors, WordVectors)
    some = vectors.words[:3]
    assert check_nearest(vectors, some).outcome == "holds"
    whole = WordVectors.nearest

    def crowded(self: WordVectors, asked: Sequence[str], *, count: int) -> list[list[Neighbour]]:
        lists = whole(self, asked, count=count)
        return [[replace(each, score=each.score + 0.01 * len(asked)) for each in found] for found in lists]

    monkeypatch.setattr(WordVectors, "nearest", crowded)
    assert check_nearest(vectors, some).outcome == "broken"
