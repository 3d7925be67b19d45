"""ROUGE: by its definition over all subsequences, parity with rouge-score, and words of other scripts."""

import random
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nasty
from seqloom.metrics.rouge import Rouge, words_for
from seqloom.metrics.scoring import Bootstrap, score

words = st.lists(st.sampled_from(["a", "b", "c"]), max_size=7)


def f_of(common: int, ours: int, theirs: int) -> float:
    precision, recall = common / max(1, ours), common / max(1, theirs)
    return 2 * precision * recall / (precision + recall) if common else 0.0


def longest(one: list[str], other: list[str]) -> int:
    """The longest common subsequence: the longest of all that both have."""
    both = ({part for size in range(8) for part in combinations(side, size)} for side in (one, other))
    return max(map(len, set.intersection(*both)))


@given(ours=words, theirs=words)
def test_f_equals_its_definition(ours: list[str], theirs: list[str]) -> None:
    one, other = " ".join(ours), " ".join(theirs)
    assert Rouge("L").f_score(one, other) == pytest.approx(f_of(longest(ours, theirs), len(ours), len(theirs)))
    for n in (1, 2):
        first, second = ([tuple(side[at : at + n]) for at in range(len(side) - n + 1)] for side in (ours, theirs))
        common = sum(min(first.count(gram), second.count(gram)) for gram in set(first))
        found = Rouge("1" if n == 1 else "2").f_score(one, other)
        assert found == pytest.approx(f_of(common, len(first), len(second)))


def test_a_worked_case_and_the_mean_of_lines() -> None:
    ours, theirs = "The cat was found under the bed.", "the cat was under the bed"
    assert [Rouge(unit).f_score(ours, theirs) for unit in ("1", "2", "L")] == pytest.approx([12 / 13, 8 / 11, 12 / 13])
    found = score(Rouge(), [ours, ""], references=[theirs, theirs], bootstrap=Bootstrap(1, 100))
    assert found.value == pytest.approx(600 / 13)
    assert found.interval == (0.0, pytest.approx(1200 / 13))


def test_words_of_other_scripts_count_where_most_letters_are_not_of_a_to_z() -> None:
    assert words_for(["A naïve method beats the models of recent and much larger neural networks."]) == "ascii"
    assert words_for(["Le café est là."]) == "unicode"
    assert words_for(["Кошка сидит на окне."]) == "unicode"
    assert words_for([]) == "ascii"
    assert Rouge("1", "ascii").f_score("Кошка", "Кошка") == 0
    assert Rouge("1", "unicode").f_score("Кошка!", "кошка") == 1


@pytest.mark.parity
@pytest.mark.parametrize("unit", ["1", "2", "L"])
def test_scores_equal_rouge_score(unit: str) -> None:
    rouge_scorer = pytest.importorskip("rouge_score.rouge_scorer", reason="rouge-score is not installed")
    theirs = rouge_scorer.RougeScorer([f"rouge{unit}"], use_stemmer=False)
    draw = random.Random(5)
    vocabulary = ["We", "propose", "a", "novel", "model,", "state-of-the-art", "été", "3.5%", "x_y", "n’t", "学", "İ"]

    def line() -> str:
        return " ".join(draw.choices(vocabulary, k=draw.randint(0, 20)))

    ours = Rouge(unit)  # type: ignore[arg-type]
    pairs = [(line(), line()) for _ in range(300)]
    for hypothesis, reference in pairs:
        expected = theirs.score(reference, hypothesis)[f"rouge{unit}"].fmeasure
        assert ours.f_score(hypothesis, reference) == pytest.approx(expected, abs=1e-12)
    # The words of other scripts, which rouge-score drops, make a difference here.
    other = Rouge(ours.unit, "unicode")
    assert any(abs(other.f_score(*pair) - ours.f_score(*pair)) > 1e-3 for pair in pairs)


@given(one=nasty.line(), other=nasty.line())
def test_any_text_can_be_scored(one: str, other: str) -> None:
    for unit in ("1", "2", "L"):
        assert 0 <= Rouge(unit, "unicode").f_score(one, other) <= 1
