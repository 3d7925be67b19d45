"""Accuracy, macro-F1 and confusions against a count by hand, brute force and scikit-learn."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.core.errors import DataError
from seqloom.metrics.classification import Accuracy, MacroF1, confusion_counts, score_labels
from seqloom.metrics.scoring import Bootstrap, score

LABELS = st.sampled_from("abc")
PAIRS = st.lists(st.tuples(LABELS, LABELS), min_size=1, max_size=30)


def plain_macro_f1(pairs: list[tuple[str, str]]) -> float:
    """The definition, label by label."""
    scores = []
    for label in {each for pair in pairs for each in pair}:
        matches = sum(one == other == label for one, other in pairs)
        precision = matches / max(1, sum(one == label for one, _ in pairs))
        recall = matches / max(1, sum(other == label for _, other in pairs))
        scores.append(2 * precision * recall / (precision + recall) if matches else 0.0)
    return 100 * sum(scores) / len(scores)


def test_scores_of_a_case_counted_by_hand() -> None:
    found, right = ["a", "a", "b", "c", "b"], ["a", "b", "b", "b", "b"]
    accuracy, macro_f1 = score_labels(found, right)
    assert (accuracy.name, accuracy.value, accuracy.signature) == ("accuracy", 60.0, "nrefs:1|labels:2")
    # a: 1 of 2 predicted, 1 of 1 found; b: 2 of 2 predicted, 2 of 4 found; c: predicted once, never right.
    assert macro_f1.value == pytest.approx(100 * (2 / 3 + 2 / 3 + 0) / 3)
    assert macro_f1.signature == "nrefs:1|labels:2|average:macro"
    assert confusion_counts(found, right, labels=["a", "b", "c"]).tolist() == [[1, 0, 0], [1, 2, 1], [0, 0, 0]]


@settings(max_examples=50, deadline=None)
@given(PAIRS)
def test_any_labels_have_the_scores_of_the_definitions(pairs: list[tuple[str, str]]) -> None:
    found, right = [one for one, _ in pairs], [other for _, other in pairs]
    accuracy, macro_f1 = score_labels(found, right)
    assert accuracy.value == pytest.approx(100 * sum(one == other for one, other in pairs) / len(pairs))
    assert macro_f1.value == pytest.approx(plain_macro_f1(pairs))
    counts = confusion_counts(found, right, labels=["a", "b", "c"])
    assert (counts.sum(), np.trace(counts)) == (len(pairs), sum(one == other for one, other in pairs))


def test_an_interval_holds_the_value_and_resamples_without_a_label_leave_it_out() -> None:
    found, right = ["a", "b"] * 20 + ["c"], ["a", "a"] * 20 + ["c"]
    for metric in (Accuracy(), MacroF1()):
        measured = score(metric, found, references=right, bootstrap=Bootstrap(seed=3, resamples=400))
        assert measured.interval is not None
        assert measured.interval[0] < measured.value < measured.interval[1]
        assert measured.signature.endswith("|bs:400|seed:3")
    # Label c is in none of two lines: the mean is over a and b alone.
    assert MacroF1().values(np.array([[1.0, 0, 0, 2.0, 2.0, 0]]))[0] == pytest.approx(50)


def test_other_counts_of_labels_are_refused() -> None:
    with pytest.raises(DataError, match="2 hypotheses cannot be compared with 1 references"):
        score_labels(["a", "b"], ["a"])


@pytest.mark.parity
@settings(max_examples=30, deadline=None)
@given(PAIRS)
def test_macro_f1_and_confusions_equal_scikit_learn(pairs: list[tuple[str, str]]) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    found, right = [one for one, _ in pairs], [other for _, other in pairs]
    theirs = 100 * metrics.f1_score(right, found, average="macro", zero_division=0)
    assert score_labels(found, right)[1].value == pytest.approx(theirs)
    matrix = metrics.confusion_matrix(right, found, labels=["a", "b", "c"])
    assert (confusion_counts(found, right, labels=["a", "b", "c"]) == matrix).all()
