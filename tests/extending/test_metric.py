"""A metric in one file, passed in as an argument or added to the package by one line."""

from collections.abc import Callable
from types import ModuleType

import pytest

from extending.conftest import EXAMPLES, TOP
from seqloom.apps.evaluate import compare, evaluate

REFERENCES = ["a b c d", "e f g h i j"] * 10
SHORT = ["a b", "e f g h i j"] * 10


def test_a_metric_from_outside_is_scored_with_its_interval(example: Callable[[str], ModuleType]) -> None:
    (found,) = evaluate(SHORT, REFERENCES, language=None, metrics=[example("length_ratio").LengthRatio()], resamples=40)
    assert (found.name, found.value) == ("length ratio", pytest.approx(80))
    assert found.interval is not None
    assert found.interval[0] < 80 < found.interval[1]
    assert found.signature == "nrefs:1|words:spaces|bs:40|seed:1"


def test_two_systems_are_compared_by_it(example: Callable[[str], ModuleType]) -> None:
    metrics = [example("length_ratio").LengthRatio()]
    (found,) = compare(SHORT, REFERENCES, REFERENCES, language=None, metrics=metrics, resamples=200)
    assert (found.baseline, found.system) == (pytest.approx(80), pytest.approx(100))
    assert found.p_value < 0.05


def test_the_section_shows_the_file() -> None:
    page = (TOP / "docs" / "extending.md").read_text(encoding="utf-8")
    assert f"```python\n{(EXAMPLES / 'length_ratio.py').read_text(encoding='utf-8')}```" in page


def test_a_name_makes_it_part_of_the_package(contribute: Callable[..., str]) -> None:
    script = (
        "from seqloom.apps.evaluate import evaluate\n"
        "scores = evaluate(['two dogs'], ['two dogs run home'], language='de', resamples=40)\n"
        "print(scores[-1].name, scores[-1].value)"
    )
    place = "src/seqloom/metrics/length_ratio.py"
    assert contribute("length_ratio", section="A metric", place=place, script=script) == "length ratio 50.0\n"
