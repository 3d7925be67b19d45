"""A length score from outside ranks as brute force does, and a setting can select it."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from search.steppers import History, sentences
from seqloom.search.beam import beam_search
from seqloom.search.exhaustive import exhaustive_search
from seqloom.search.settings import SearchConfig

SHORT = {"length_factor": 0.0, "length_constant": 4}


def test_the_page_shows_the_whole_example(example: Callable[[str], ModuleType]) -> None:
    code = Path(str(example("length_score").__file__)).read_text(encoding="utf-8")
    page = Path(__file__).parents[2] / "docs" / "extending.md"
    assert f"```python\n{code}```" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("reward", [0.0, 0.7, 5.0])
def test_a_wide_beam_finds_what_the_oracle_finds(example: Callable[[str], ModuleType], reward: float) -> None:
    score = example("length_score").BoundedReward(reward, ratio=0.5)
    for seed in range(8):
        stepper, source = History(5, seed=seed), sentences([2, 6], seed=seed)
        wide = SearchConfig(beam=64, nbest=5, **SHORT)
        found, oracle = (
            beam_search(stepper, source, wide, score=score),
            exhaustive_search(stepper, source, wide, score=score),
        )
        for ours, theirs in zip(found, oracle, strict=True):
            assert [each.symbols for each in ours] == [each.symbols for each in theirs[:5]]
            assert [each.score for each in ours] == pytest.approx([each.score for each in theirs[:5]], abs=1e-12)
            assert all(set(each.terms) == {"log_prob", "reward"} for each in ours)
        narrow = beam_search(stepper, source, SearchConfig(beam=2, **SHORT), score=score)
        for [best], theirs in zip(narrow, oracle, strict=True):
            assert not best.is_complete or best.symbols == theirs[0].symbols


def test_the_reward_changes_the_length(example: Callable[[str], ModuleType]) -> None:
    score, stepper, source = example("length_score").BoundedReward, History(5, seed=3), sentences([6, 6, 5], seed=1)
    lengths = [
        sum(len(best.symbols) for [best] in beam_search(stepper, source, SearchConfig(**SHORT), score=score(reward)))
        for reward in (0.0, 5.0)
    ]
    assert lengths[0] < lengths[1]


def test_a_setting_can_select_it(contribute: Callable[..., str]) -> None:
    script = """
from seqloom.search.bounded_reward import BoundedReward
from seqloom.search.settings import SearchConfig
print(SearchConfig(length_normalisation="bounded", reward=0.5).score() == BoundedReward(0.5))
"""
    place = "src/seqloom/search/bounded_reward.py"
    assert contribute("length_score", section="A length score", place=place, script=script) == "True\n"
