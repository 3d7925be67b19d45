"""A sentence whose result is no longer wanted leaves the search at once, and the others do not notice."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st
from torch import Tensor

from search.steppers import History, sentences
from seqloom.core.stepping import Source, State, Step, Stepper
from seqloom.core.symbols import END
from seqloom.search.constraints import Constraints, Phrases, Prefix
from seqloom.search.decode import decode
from seqloom.search.driver import Cancellation
from seqloom.search.ensemble import Ensemble
from seqloom.search.hypothesis import Hypothesis
from seqloom.search.settings import SearchConfig

LENGTHS = [3, 5, 2, 4]
CASES: dict[str, dict[str, object]] = {
    "greedy": {"beam": 1},
    "beam": {"beam": 4, "nbest": 2},
    "beam with constraints": {"beam": 3, "no_repeat": 2},
    "beam with coverage": {"beam": 3, "coverage": 0.3},
    "beam with an end normalisation": {"beam": 3, "end_normalisation": 0.5},
    "diverse": {"beam": 4, "groups": 2, "nbest": 3, "diversity": 0.7},
    "sample": {"method": "sample", "nbest": 3, "beam": 1},
    "ensemble": {"beam": 3},
    "fairseq": {"mode": "fairseq", "beam": 3, "nbest": 2},
    "marian": {"mode": "marian", "beam": 3},
}


class Counting:
    """Another stepper that counts the rows of each step."""

    def __init__(self, stepper: Stepper) -> None:
        self.stepper, self.rows = stepper, list[int]()
        self.begin, self.end = stepper.begin, stepper.end

    def start(self, source: Source) -> State:
        return self.stepper.start(source)

    def step(self, state: State, last: Tensor) -> Step:
        self.rows.append(len(last))
        return self.stepper.step(state, last)


def searched(
    case: str, seed: int, numbers: list[int], cancellation: Cancellation | None = None
) -> tuple[list[list[Hypothesis]], list[int]]:
    """The hypotheses of these sentences, and the rows of each step."""
    whole = sentences(LENGTHS, seed=seed)
    source = Source(whole.ids[numbers], whole.lengths[numbers])
    stepper: Stepper = History(7, seed=seed)
    if case == "ensemble":
        stepper = Ensemble([stepper, History(7, seed=seed + 1)])
    bound: Constraints | None = None
    if case == "beam with constraints":
        bound = [[Prefix((5,)), None, Phrases(((6, 4),), END), None][number] for number in numbers]
    counting, chosen = Counting(stepper), SearchConfig(seed=seed, length_factor=2.0, **CASES[case])  # type: ignore[arg-type]
    found = decode(counting, source, chosen, constraints=bound, keys=numbers, cancellation=cancellation)
    return found, counting.rows


@pytest.mark.parametrize("case", CASES)
@effort(max_examples=12)
@given(seed=st.integers(0, 500), after=st.lists(st.integers(0, 9), min_size=4, max_size=4))
def test_cancelled_sentences_leave_and_the_others_do_not_change(case: str, seed: int, after: list[int]) -> None:
    """Sentence s is cancelled after step `after[s]`, which some of them do not reach; 0 means never."""
    everyone = list(range(len(LENGTHS)))
    expected, _ = searched(case, seed, everyone)
    asked, cancelled, dropped = Counter[int](), set[int](), list[int]()

    def is_cancelled(sentence: int) -> bool:
        assert sentence not in cancelled, "a sentence that left is asked about again"
        asked[sentence] += 1
        if asked[sentence] == after[sentence]:
            cancelled.add(sentence)
        return sentence in cancelled

    found, rows = searched(case, seed, everyone, Cancellation(is_cancelled, dropped.append))
    assert found == [[] if number in cancelled else expected[number] for number in everyone]
    # The rows of each sentence are those it has alone, up to the step at which it is cancelled.
    alone = [searched(case, seed, [number])[1] for number in everyone]
    kept = [own[: after[number]] if number in cancelled else own for number, own in enumerate(alone)]
    steps = max(map(len, kept))
    assert rows == [sum(own[step] for own in kept if step < len(own)) for step in range(steps)]
    assert sum(dropped) == sum(alone[number][after[number]] for number in cancelled)
    assert all(asked[number] == len(own) - (number not in cancelled) for number, own in enumerate(kept))


@pytest.mark.parametrize("case", CASES)
def test_a_search_of_which_nothing_is_wanted_ends(case: str) -> None:
    steps = 0

    def is_cancelled(_sentence: int) -> bool:
        nonlocal steps
        steps += 1
        return steps > len(LENGTHS)  # at the second step

    long = 4  # with this seed no sentence ends at its first two steps
    everyone = list(range(len(LENGTHS)))
    assert all(len(searched(case, long, [number])[1]) > 2 for number in everyone)
    found, rows = searched(case, long, everyone, Cancellation(is_cancelled))
    assert found == [[], [], [], []]
    assert len(rows) == 2
