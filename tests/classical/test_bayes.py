"""Naive Bayes over n-grams, against a case by hand and against scikit-learn."""

import math

import numpy as np
import pytest

from seqloom.classical.bayes import NaiveBayes, grams_of, majority_label, words_of

TEXTS = [line.split() for line in ("good film", "good good plot", "bad film", "dull plot")]
LABELS = ["pos", "pos", "neg", "neg"]


def test_a_case_by_hand() -> None:
    """Single words: pos has good 2, film 1, plot 1; neg bad, film, dull, plot 1 each; five words in all."""
    model = NaiveBayes.fit(TEXTS, LABELS, order=1)
    found = model.log_joint([["good", "plot", "unknown"]])[0]
    np.testing.assert_allclose(found, [math.log(1 / 2 * 1 / 9 * 2 / 9), math.log(1 / 2 * 3 / 9 * 2 / 9)], atol=1e-12)
    assert model.labels == ("neg", "pos")
    assert model.classify([["good"], ["bad"], []]) == ["pos", "neg", "neg"]


def test_words_of_the_second_text_of_a_pair_are_others() -> None:
    words = words_of(["A dog", "a dog"])
    assert len(set(words)) == len(words)
    assert words[:2] == ["a", "dog"]
    assert words_of(["猫が好き"])[0] == "猫"  # no spaces between words
    assert majority_label(["b", "a", "b", "a", "c"]) == "a"


def test_a_large_table_leaves_out_the_rarest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqloom.classical.bayes.MAX_CELLS", 6)
    assert set(NaiveBayes.fit(TEXTS, LABELS, order=1).grams) == {("good",), ("film",), ("plot",)}


@pytest.mark.parity
@pytest.mark.parametrize(("order", "alpha"), [(1, 1.0), (2, 0.3)])
def test_it_equals_scikit_learn(order: int, alpha: float) -> None:
    text = pytest.importorskip("sklearn.feature_extraction.text")
    bayes = pytest.importorskip("sklearn.naive_bayes")
    draw = np.random.default_rng(order)
    words = [f"w{at}" for at in range(40)]
    texts = [list(draw.choice(words, int(draw.integers(1, 12)))) for _ in range(120)]
    labels = [str(draw.choice(["a", "b", "c"], p=[0.6, 0.3, 0.1])) for _ in texts]
    fresh = [list(draw.choice([*words, "new"], 6)) for _ in range(30)]
    vectorizer = text.CountVectorizer(analyzer=lambda each: grams_of(each, order=order), binary=True)
    theirs = bayes.MultinomialNB(alpha=alpha).fit(vectorizer.fit_transform(texts), labels)
    expected = theirs.predict_joint_log_proba(vectorizer.transform(fresh))
    ours = NaiveBayes.fit(texts, labels, order=order, alpha=alpha)
    np.testing.assert_allclose(ours.log_joint(fresh), expected, rtol=0, atol=1e-10)
    assert ours.classify(fresh) == theirs.predict(vectorizer.transform(fresh)).tolist()
    # The comparison can fail: other pseudocounts, or counts of repeated words, are seen.
    other = NaiveBayes.fit(texts, labels, order=order, alpha=alpha + 0.01)
    assert np.abs(other.log_joint(fresh) - expected).max() > 1e-3
