"""A strategy from outside runs in the driver of all searches, and a setting can select it."""

import math
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from search.steppers import Bigram, History, sentences
from seqloom.core.stepping import Source, Stepper
from seqloom.search.beam import beam_search
from seqloom.search.driver import search
from seqloom.search.exhaustive import exhaustive_search
from seqloom.search.greedy import greedy_search
from seqloom.search.hypothesis import Hypothesis
from seqloom.search.settings import SearchConfig

CHOSEN = SearchConfig(beam=5, nbest=1, length_factor=0.0, length_constant=5)


def test_the_page_shows_the_whole_example(example: Callable[[str], ModuleType]) -> None:
    code = Path(str(example("search_method").__file__)).read_text(encoding="utf-8")
    page = Path(__file__).parents[2] / "docs" / "extending.md"
    assert f"```python\n{code}```" in page.read_text(encoding="utf-8")


def test_its_margin_lies_between_greedy_and_beam_search(example: Callable[[str], ModuleType]) -> None:
    def found(stepper: Stepper, source: Source, margin: float) -> list[list[Hypothesis]]:
        strategy = example("search_method").ThresholdSearch(CHOSEN.beam, stepper.end, margin)
        return [beam for [beam] in search(stepper, source, strategy, CHOSEN)]

    complete = 0
    for seed in range(8):
        stepper, source = History(5, seed=seed), sentences([2, 5, 3], seed=seed)
        assert found(stepper, source, math.inf) == beam_search(stepper, source, CHOSEN)
        assert found(stepper, source, 0.0) == [[each] for each in greedy_search(stepper, source, CHOSEN)]
        for [best], oracle in zip(found(stepper, source, 1.5), exhaustive_search(stepper, source, CHOSEN), strict=True):
            assert not best.is_complete or best.symbols == oracle[0].symbols
            complete += best.is_complete
    assert complete > 0


def test_it_steps_fewer_rows(example: Callable[[str], ModuleType]) -> None:
    class Counting(Bigram):
        rows = 0

        def step(self, state, last):  # type: ignore[no-untyped-def]
            self.rows += len(last)
            return super().step(state, last)

    wide, narrow = Counting(20, seed=1), Counting(20, seed=1)
    source = sentences([3, 4, 5])
    beam_search(wide, source, CHOSEN)
    search(narrow, source, example("search_method").ThresholdSearch(CHOSEN.beam, narrow.end, 1.0), CHOSEN)
    assert narrow.rows < wide.rows


def test_a_setting_can_select_it(contribute: Callable[..., str]) -> None:
    script = """
import torch
from dataclasses import dataclass
from seqloom.core.stepping import Source, Step
from seqloom.search.decode import decode
from seqloom.search.settings import SearchConfig

@dataclass(frozen=True)
class Same:
    def select(self, rows):
        return self

class Constant:
    begin, end = 1, 2
    def start(self, source):
        return Same()
    def step(self, state, last):
        return Step(torch.tensor([[0.0, 0.0, 0.6, 0.4]]).log().expand(len(last), -1), state)

source = Source(torch.tensor([[3, 2]]), torch.tensor([2]))
print(decode(Constant(), source, SearchConfig(method="threshold", beam=3))[0][0].symbols)
"""
    place = "src/seqloom/search/threshold.py"
    assert contribute("search_method", section="A search method", place=place, script=script) == "()\n"
