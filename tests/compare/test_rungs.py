"""How minutes are divided among rungs, which rungs are refused, and what is advised."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.compare.advice import advise
from seqloom.compare.results import RungResult, Score, Step, bleu_by_length, words_by_frequency
from seqloom.compare.rungs import LADDER, choose_rungs, refused, share_minutes
from seqloom.core.errors import UsageError

NAMES = [rung.name for rung in LADDER]


@given(st.sets(st.sampled_from(NAMES)), st.floats(0, 1000))
def test_trained_rungs_share_all_the_minutes(names: set[str], left: float) -> None:
    rungs = [rung for rung in LADDER if rung.name in names]
    shares = share_minutes(rungs, left)
    trained = [rung for rung in rungs if not rung.is_counted]
    assert list(shares) == [rung.name for rung in trained]
    if trained:
        assert sum(shares.values()) == pytest.approx(left)
        first = trained[0]
        assert all(shares[r.name] * first.share == pytest.approx(shares[first.name] * r.share) for r in trained)


def test_a_rung_is_refused_for_few_pairs_or_minutes() -> None:
    by_name = {rung.name: rung for rung in LADDER}
    assert refused(by_name["dictionary"], pairs=20, left=1) is None
    assert "20 pairs are too few" in str(refused(by_name["transformer"], pairs=20, left=100))
    assert "raise --minutes" in str(refused(by_name["phrases"], pairs=100_000, left=5))
    assert "raise --minutes" in str(refused(by_name["transformer"], pairs=100_000, left=0.1))
    assert refused(by_name["transformer"], pairs=100_000, left=5) is None


def test_rungs_are_chosen_by_name_and_by_file(tmp_path: Path) -> None:
    own = tmp_path / "mine.yaml"
    own.write_text("model:\n  kind: transformer\n  width: 32\n  heads: 2\n")
    assert [rung.name for rung in choose_rungs(["transformer", "rnn"], [own])] == ["rnn", "transformer", "mine"]
    with pytest.raises(UsageError, match="unknown rung 'smt'"):
        choose_rungs(["smt"], [])
    own.rename(clash := tmp_path / "rnn.yaml")
    with pytest.raises(UsageError, match="already"):
        choose_rungs([], [clash])
    other = tmp_path / "lm.yaml"
    other.write_text("model:\n  kind: ngram\n")
    with pytest.raises(UsageError, match="does not translate"):
        choose_rungs([], [other])


def result(name: str, bleu: float, *, minutes: float = 10.0, is_improving: bool = False) -> RungResult:
    score = Score(bleu, bleu - 1, bleu + 1)
    return RungResult(name, score, score, minutes, 50.0, 10.0, 1000, is_improving, {"BLEU": "sig"}, {}, {})


def step(name: str, best: str, p_value: float) -> Step:
    return Step(name, best, 1.0, 0.0, 2.0, p_value)


def test_the_best_rung_is_advised_and_a_cheaper_one_if_it_is_not_worse() -> None:
    results = [result("phrases", 34.0, minutes=3.0), result("transformer", 34.5, minutes=60.0, is_improving=True)]
    points = {"phrases": {1000: 20.0, 30_000: 34.0}, "transformer": {1000: 5.0, 30_000: 34.5}}
    known = {"phrases": step("phrases", "transformer", 0.4)}
    texts = [each.text for each in advise(results, known, points, test_pairs=1000, leaked=0)]
    assert texts[0] == "Take transformer for this data."
    assert "phrases costs less and may be as good." in texts
    assert "transformer was still improving." in texts
    assert "More pairs would help." in texts
    assert "With 1,000 pairs phrases would be the best." in texts
    assert not any("Not compared" in text for text in texts)
    # Where the Transformer was not measured, nothing is said about the best.
    points["phrases"][20_000] = 33.0
    texts = [each.text for each in advise(results, known, points, test_pairs=1000, leaked=0)]
    assert [text for text in texts if "would be the best" in text] == ["With 1,000 pairs phrases would be the best."]
    # With a significant difference, the cheaper one is not offered.
    known = {"phrases": step("phrases", "transformer", 0.001)}
    texts = [each.text for each in advise(results, known, {}, test_pairs=50, leaked=3, skipped=["rnn", "attention"])]
    assert "Not compared: rnn, attention." in texts
    assert not any("costs less" in text for text in texts)
    assert any("50 pairs" in text for text in texts)
    assert any(text.startswith("3 of 50 test pairs") for text in texts)


def test_nothing_is_advised_where_nothing_was_learned() -> None:
    (only,) = advise([result("rnn", 0.3)], {}, {}, test_pairs=1000, leaked=0)
    assert only.text == "No rung has learned to translate."
    (only,) = advise([], {}, {}, test_pairs=1000, leaked=0)
    assert "raise --minutes" in only.reason


def test_quality_by_length_and_frequency() -> None:
    sources = ["a b c"] * 30 + [" ".join("abcdefghijkl")] * 30
    references = ["x y z w v"] * 30 + [" ".join("nopqrstuvwxy")] * 30
    found = bleu_by_length(sources, [*references[:30], *["wrong"] * 30], references, language="en")
    assert list(found) == ["1–4", "5+"] or len(found) == 2
    assert max(found.values()) == pytest.approx(100)
    assert min(found.values()) == pytest.approx(0)
    shares = words_by_frequency(["the cat"], ["the dog"], known={"the": 1000, "cat": 3})
    assert shares == {"never": 0.0, "1 to 5": 0.0, "more than 50": 1.0}


def test_results_come_back_from_json() -> None:
    before = replace(result("rnn", 12.0), by_length={"1–5": 3.0})
    assert RungResult.from_json(before.to_json()) == before
