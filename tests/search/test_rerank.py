"""Re-ranking: agreement against a brute-force risk, second scores that stay itemised, duplicates."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from search.steppers import Bigram, sentences
from seqloom.core.errors import UsageError
from seqloom.metrics.translation import Chrf
from seqloom.search.beam import beam_search
from seqloom.search.hypothesis import Hypothesis
from seqloom.search.rerank import most_agreeing, posteriors, without_duplicates
from seqloom.search.sampling import sample_search
from seqloom.search.settings import SearchConfig


def overlap(candidate: str, reference: str) -> float:
    """Precision of characters: not the same both ways round."""
    return sum(letter in reference for letter in candidate) / max(1, len(candidate))


texts = st.lists(st.text(alphabet="abcd", max_size=4), min_size=1, max_size=6)


@given(texts, st.data())
def test_the_best_has_the_highest_expected_similarity(candidates: list[str], data: st.DataObject) -> None:
    sizes = st.lists(st.floats(0.1, 9), min_size=len(candidates), max_size=len(candidates))
    weights = data.draw(sizes)
    [found] = most_agreeing([candidates], overlap, weights=[weights])
    expected = [
        sum(weight * overlap(one, other) for weight, other in zip(weights, candidates, strict=True)) / sum(weights)
        for one in candidates
    ]
    assert found.expected == pytest.approx(expected)
    assert found.expected[found.best] == max(found.expected)
    assert found.best == found.expected.index(max(found.expected))


def test_the_candidate_in_the_middle_wins_over_the_first() -> None:
    candidates = ["zzzz", "abcd", "abce", "abxd"]
    [found] = most_agreeing([candidates], overlap)
    assert candidates[found.best] == "abcd"
    [weighted] = most_agreeing([candidates], overlap, weights=[[9.0, 1.0, 1.0, 1.0]])
    assert candidates[weighted.best] == "zzzz"


def test_the_candidate_comes_first_and_the_reference_second() -> None:
    asked: list[tuple[str, str]] = []

    def watched(candidate: str, reference: str) -> float:
        asked.append((candidate, reference))
        return overlap(candidate, reference)

    [found] = most_agreeing([["ab", "a", "ab"]], watched)
    assert asked == [("ab", "ab"), ("ab", "a"), ("a", "ab"), ("a", "a")]
    assert found.expected == pytest.approx((2 / 3 + 1 / 6, 1.0, 2 / 3 + 1 / 6))
    assert found.best == 1


def test_samples_that_come_often_count_often() -> None:
    [found] = most_agreeing([["b", "a", "a"]], overlap)
    assert found.expected == pytest.approx((1 / 3, 2 / 3, 2 / 3))
    assert found.best == 1
    [once] = most_agreeing([["b", "a"]], overlap)
    assert once.best == 0


def test_with_chrf_a_sentence_close_to_the_others_wins() -> None:
    candidates = ["the cat sat on the mat", "a cat sat on the mat", "the cat sat on a mat", "colourless green ideas"]

    def chrf(candidate: str, reference: str) -> float:
        return Chrf().statistics([candidate], [reference]).value

    [found] = most_agreeing([candidates], chrf)
    assert found.best in (0, 1, 2)
    assert found.expected[3] < min(found.expected[:3])


def test_each_sentence_is_chosen_for_by_itself() -> None:
    both = most_agreeing([["a", "b", "b"], ["c"]], overlap)
    assert [found.best for found in both] == [1, 0]
    assert both == most_agreeing([["a", "b", "b"]], overlap) + most_agreeing([["c"]], overlap)
    assert most_agreeing([], overlap) == []


def test_requests_that_cannot_be_met_are_refused() -> None:
    with pytest.raises(UsageError, match="sentence 1 has no candidates to choose from"):
        most_agreeing([["a"], []], overlap)
    with pytest.raises(UsageError, match="sentence 0 has one string for its candidates, 'abc'"):
        most_agreeing(["abc"], overlap)
    with pytest.raises(UsageError, match="got weights for 2 sentences and candidates for 1"):
        most_agreeing([["a"]], overlap, weights=[[1.0], [1.0]])
    with pytest.raises(UsageError, match="sentence 0 has 2 weights for 1 candidates"):
        most_agreeing([["a"]], overlap, weights=[[1.0, 1.0]])
    for wrong in ([0.0, 0.0], [-1.0, 2.0], [math.nan, 1.0]):
        with pytest.raises(UsageError, match="sentence 0 has the weights"):
            most_agreeing([["a", "b"]], overlap, weights=[wrong])
    with pytest.raises(UsageError, match="the similarity of 'a' to the other candidates is nan"):
        most_agreeing([["a"]], lambda *_: math.nan)


def hypothesis_of(*symbols: int, log_prob: float = -1.0, is_finished: bool = True) -> Hypothesis:
    return Hypothesis(symbols, is_finished, log_prob + 0.25, {"log_prob": log_prob, "length": 0.25}, (log_prob,))


def test_posteriors_are_probabilities_among_the_hypotheses() -> None:
    found = [hypothesis_of(log_prob=math.log(part)) for part in (0.2, 0.1, 0.1)]
    assert posteriors(found) == pytest.approx([0.5, 0.25, 0.25])
    assert posteriors(found, scale=2.0) == pytest.approx([4 / 6, 1 / 6, 1 / 6])
    assert posteriors(found, scale=0.0) == pytest.approx([1 / 3] * 3)
    assert posteriors([hypothesis_of(log_prob=-math.inf), *found])[0] == 0
    assert posteriors([hypothesis_of(log_prob=-5000.0), hypothesis_of(log_prob=-5000.0)]) == [0.5, 0.5]
    assert posteriors([]) == []
    with pytest.raises(UsageError, match="none of 1 hypotheses is possible"):
        posteriors([hypothesis_of(log_prob=-math.inf)])
    with pytest.raises(UsageError, match=r"the scale -1.0 of the posteriors is out of range"):
        posteriors(found, scale=-1.0)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (None, [(4, 5), (5,), (4, 5, 6)]),
        (lambda hypothesis: len(hypothesis.symbols), [(4, 5), (5,), (4, 5, 6)]),
        (lambda hypothesis: hypothesis.symbols[-1], [(4, 5), (4, 5, 6)]),
    ],
)
def test_of_duplicates_the_first_stays(text: Callable[[Hypothesis], int] | None, kept: list[tuple[int, ...]]) -> None:
    found = [hypothesis_of(4, 5), hypothesis_of(5), hypothesis_of(4, 5, log_prob=-9.0), hypothesis_of(4, 5, 6)]
    left = without_duplicates(found, text=text)
    assert [one.symbols for one in left] == kept
    assert left[0] is found[0]
    assert without_duplicates(left, text=text) == left


def test_sampling_and_agreement_find_where_the_probability_lies() -> None:
    """One output of probability 0.3 stands alone; many that are alike have 0.7 together."""
    torch.manual_seed(0)
    stepper = Crowd()
    settings = SearchConfig(beam=200, nbest=200, length_factor=0.0, length_constant=6)
    [best] = beam_search(stepper, sentences([2]), settings.model_copy(update={"nbest": 1}))[0]
    samples = sample_search(stepper, sentences([2]), settings)[0]
    written = ["".join(chr(97 + symbol) for symbol in sample.symbols) for sample in samples]
    [agreed] = most_agreeing([written], overlap)
    assert best.symbols[0] == 3
    assert samples[agreed.best].symbols[0] == 4


class Crowd(Bigram):
    """Begins with 3 (0.3) and ends, or with 4 (0.7) and goes on to one of four symbols alike, then ends."""

    def __init__(self) -> None:
        super().__init__(9, seed=0)
        table = torch.full((9, 9), 1e-9, dtype=torch.float64)
        table[self.begin, 3], table[self.begin, 4] = 0.3, 0.7
        table[3, self.end] = 1.0
        table[4, 5:9] = 0.25
        table[5:9, self.end] = 1.0
        self.table = (table / table.sum(1, keepdim=True)).log().expand(5, 9, 9)
