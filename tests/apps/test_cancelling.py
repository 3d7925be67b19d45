"""Lines that a caller no longer wants are left out of a running search."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seqloom.apps.language_model import LanguageModel
from seqloom.apps.request import Request
from seqloom.apps.translator import Translation, Translator
from seqloom.runs.train import Trained, train
from tiny_runs import write_text

LINES = ["The cat sleeps.", "", "My sister reads. The old man sings in the garden.", "Where is the dog?", "A house."]


@pytest.fixture(scope="module")
def translator(tiny: Trained) -> Translator:
    return Translator.load(tiny.run / "model")


def after_steps(steps: dict[int, int]) -> tuple[Callable[[int], bool], Counter[int]]:
    """Cancels each line once it was asked about so often, and counts how often it is."""
    asked = Counter[int]()

    def is_cancelled(line: int) -> bool:
        asked[line] += 1
        return line in steps and asked[line] > steps[line]

    return is_cancelled, asked


def outline(found: list[Translation]) -> list[tuple[str, float | None]]:
    return [(each.text, None if each.score is None else round(each.score, 4)) for each in found]


@pytest.mark.parametrize(
    "settings",
    [
        {"beam": 1},
        {"beam": 4, "nbest": 3, "split": "sentences"},
        {"method": "sample", "nbest": 4, "split": "sentences", "rerank": "agreement"},
        {"beam": 4, "nbest": 4, "rerank": "agreement", "tokens_per_batch": 64},
    ],
)
def test_cancelled_lines_are_empty_and_the_others_do_not_change(
    translator: Translator, settings: dict[str, Any]
) -> None:
    request = Request(translator.config.search.model_copy(update=settings), tags=True)
    expected = translator.run(LINES, request)
    finished: list[int] = []
    dropped: list[int] = []
    is_cancelled, asked = after_steps({2: 3, 3: 0})
    found = translator.run(
        LINES, request, progress=finished.append, is_cancelled=is_cancelled, on_dropped=dropped.append
    )
    assert found[2] == found[3] == []
    for line in (0, 1, 4):
        assert outline(found[line]) == outline(expected[line])
    assert sum(finished) == len(LINES)
    assert sum(dropped) >= 1
    assert asked[1] == 0, "a blank line is not searched"


def test_lines_that_are_cancelled_before_their_search_are_not_searched(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seqloom.runs.translator.decode", lambda *_args, **_given: pytest.fail("searched"))
    assert translator.run(["A cat.", "A dog."], Request(), is_cancelled=lambda _line: True) == [[], []]


def test_a_line_that_is_cancelled_before_its_candidates_are_compared_is_empty(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = Request(translator.config.search.model_copy(update={"beam": 3, "nbest": 3, "rerank": "agreement"}))
    is_cancelled, asked = after_steps({})
    translator.run(LINES[:1], request, is_cancelled=is_cancelled)
    is_cancelled, _ = after_steps({0: asked[0] - 1})  # at the last time of asking
    monkeypatch.setattr("seqloom.runs.translator.most_agreeing", lambda *_args, **_given: pytest.fail("compared"))
    assert translator.run(LINES[:1], request, is_cancelled=is_cancelled) == [[]]


def test_a_language_model_stops_writing(tmp_path: Path) -> None:
    settings = [
        "model.kind=ngram",
        "model.order=3",
        "text.kind=word",
        "text.minimum_count=1",
        "search.length_constant=12",
    ]
    trained = train(None, settings, out=tmp_path / "run", train=[str(write_text(tmp_path / "train.txt", count=80))])
    assert trained is not None
    model = LanguageModel.load(trained.model)
    asked = 0

    def is_cancelled() -> bool:
        nonlocal asked
        asked += 1
        return asked == 3

    dropped: list[int] = []
    whole = model.generate("The", count=2, past_line_ends=True)
    assert model.generate("The", count=2, past_line_ends=True, is_cancelled=lambda: False) == whole
    found = model.generate("The", count=2, past_line_ends=True, is_cancelled=is_cancelled, on_dropped=dropped.append)
    assert (found, asked, dropped) == ([], 3, [2])
