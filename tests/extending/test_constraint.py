"""A constraint from outside leaves what brute force leaves, in all searches, and a setting can apply it."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from search.steppers import History, sentences
from seqloom.core.symbols import END
from seqloom.search.constraints import All, Phrases
from seqloom.search.decode import decode
from seqloom.search.exhaustive import exhaustive_search
from seqloom.search.settings import SearchConfig

SHORT = {"length_factor": 0.0, "length_constant": 4}


def test_the_page_shows_the_whole_example(example: Callable[[str], ModuleType]) -> None:
    code = Path(str(example("constraint").__file__)).read_text(encoding="utf-8")
    page = Path(__file__).parents[2] / "docs" / "extending.md"
    assert f"```python\n{code}```" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("times", [0, 1])
def test_a_wide_beam_finds_the_best_that_is_left(example: Callable[[str], ModuleType], times: int) -> None:
    at_most = example("constraint").AtMost(4, times)
    changed = 0
    for seed in range(8):
        stepper, source = History(5, seed=seed), sentences([2, 3], seed=seed)
        wide = SearchConfig(beam=64, nbest=20, **SHORT)
        found = decode(stepper, source, wide, constraints=[at_most, None])
        oracle = exhaustive_search(stepper, source, wide)
        left = [each for each in oracle[0] if each.symbols.count(4) <= times]
        assert [each.symbols for each in found[0]] == [each.symbols for each in left[:20]]
        assert [each.symbols for each in found[1]] == [each.symbols for each in oracle[1][:20]]
        changed += left[:20] != oracle[0][:20]
    assert changed > 0


def test_samples_and_other_constraints_go_with_it(example: Callable[[str], ModuleType]) -> None:
    at_most = example("constraint").AtMost(4, 1)
    stepper, source = History(6, seed=2), sentences([3])
    drawn = SearchConfig(method="sample", nbest=30, length_factor=0.0, length_constant=8)
    [samples] = decode(stepper, source, drawn, constraints=[at_most])
    assert max(each.symbols.count(4) for each in samples) == 1
    assert max(each.symbols.count(4) for each in decode(stepper, source, drawn)[0]) > 1
    both = All((at_most, Phrases(((4, 5),), END)))
    [[best]] = decode(stepper, source, SearchConfig(beam=4), constraints=[both])
    assert best.symbols.count(4) == 1
    assert best.symbols[best.symbols.index(4) + 1] == 5


def test_a_setting_can_apply_it(contribute: Callable[..., str]) -> None:
    script = """
import torch
from seqloom.core.stepping import Source
from seqloom.core.symbols import END, UNKNOWN
from seqloom.search.at_most import AtMost
from seqloom.search.decode import constraints_for
from seqloom.search.settings import SearchConfig
source = Source(torch.tensor([[5, END]]), torch.tensor([2]))
[bound] = constraints_for(source, SearchConfig(unknown_words=2), None, end=END)
print(bound.parts == (AtMost(UNKNOWN, 2),), constraints_for(source, SearchConfig(), None, end=END))
"""
    place = "src/seqloom/search/at_most.py"
    assert contribute("constraint", section="A constraint", place=place, script=script) == "True None\n"
