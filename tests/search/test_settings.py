"""The bounds of the settings of a search."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st

from seqloom.core.config import resolve
from seqloom.core.errors import ConfigError
from seqloom.core.stepping import Source
from seqloom.search.settings import OutputLimit, SearchConfig


@pytest.mark.parametrize(
    ("given", "name", "needed"),
    [
        ({"temperature": 0.5}, "temperature", "search.method=sample"),
        ({"top_k": 3}, "top_k", "search.method=sample"),
        ({"top_p": 0.5}, "top_p", "search.method=sample"),
        ({"min_p": 0.5}, "min_p", "search.method=sample"),
        ({"rerank": "agreement"}, "rerank", "search.nbest"),
        ({"diversity": 0.7}, "diversity", "search.groups"),
        ({"peer_length_penalty": 1.0}, "peer_length_penalty", "search.mode"),
        ({"mode": "fairseq", "length_overrun": 3.0}, "length_overrun", "search.mode=seqloom"),
        ({"coverage_floor": 0.1}, "coverage_floor", "search.coverage"),
        ({"end_kind": "add"}, "end_kind", "search.end_normalisation"),
    ],
)
def test_a_setting_without_effect_says_what_it_needs(given: dict[str, object], name: str, needed: str) -> None:
    assert needed in (SearchConfig.model_validate(given).without_effect(name) or "")
    enough = {"method": "sample", "nbest": 2, **given} if name != "diversity" else {"groups": 2, **given}
    enough = {"mode": "fairseq", **given} if name == "peer_length_penalty" else enough
    enough = {**given, "mode": "seqloom"} if name == "length_overrun" else enough
    enough = {"coverage": 0.2, "end_normalisation": 1.0, **given} if name in ("coverage_floor", "end_kind") else enough
    assert SearchConfig.model_validate(enough).without_effect(name) is None
    assert SearchConfig().without_effect(name) is None


@pytest.mark.parametrize("given", [{"alpha": 1.0}, {"stop": "first"}, {"length_normalisation": "mean"}])
def test_a_peer_mode_ignores_rules_of_our_own_search(given: dict[str, object]) -> None:
    (name,) = given
    assert "search.mode=seqloom" in (
        SearchConfig.model_validate({"mode": "sockeye", **given}).without_effect(name) or ""
    )
    assert SearchConfig.model_validate(given).without_effect(name) is None


@pytest.mark.parametrize(
    ("beam", "groups", "nbest", "message"),
    [
        (5, 2, 1, "give search.beam=4 or 6, or search.groups=5"),
        (6, 4, 5, "give search.beam=8, or search.groups=2 or 3 or 6"),
        (1, 2, 1, "give search.beam=2$"),
    ],
)
def test_groups_that_do_not_fit_are_told_with_those_that_do(beam: int, groups: int, nbest: int, message: str) -> None:
    with pytest.raises(ConfigError, match=f"beam {beam} is not divisible by {groups} groups; {message}"):
        resolve(SearchConfig, overrides=[f"beam={beam}", f"groups={groups}", f"nbest={nbest}"])


@pytest.mark.parametrize(
    ("name", "below", "bound"),
    [("alpha", "-1", "0"), ("beam", "0", "1"), ("reward", "-101", "-100"), ("min_p", "1.5", "1"), ("top_p", "0", "0")],
)
def test_a_setting_out_of_its_range_is_refused_with_the_range(name: str, below: str, bound: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}.*{bound}"):
        resolve(SearchConfig, overrides=[f"{name}={below}"])


@pytest.mark.parametrize(
    ("name", "most", "beyond", "shown"),
    [
        ("beam", "1000", "1001", "1,000"),
        ("alpha", "10", "10.5", "10"),
        ("length_factor", "100", "1.0e+300", "100"),
        ("length_constant", "10000", "10001", "10,000"),
        ("tokens_per_batch", "10000000", "10000001", "10,000,000"),
    ],
)
def test_a_setting_beyond_its_bound_is_refused_with_the_bound(name: str, most: str, beyond: str, shown: str) -> None:
    resolve(SearchConfig, overrides=[f"{name}={most}"])
    with pytest.raises(ConfigError, match=f"{name}: .* is too large; give at most {shown}$"):
        resolve(SearchConfig, overrides=[f"{name}={beyond}"])


def of_lengths(lengths: list[int]) -> Source:
    return Source(torch.empty(len(lengths), 0, dtype=torch.long), torch.tensor(lengths))


@effort(max_examples=40)
@given(st.integers(0, 1000), st.sampled_from([0.3, 1.0, 4.5, 30.0]), st.sampled_from([0, 40]))
def test_the_output_limit_of_the_training_data_lets_its_targets_be_written(seed: int, ratio: float, extra: int) -> None:
    generator = np.random.default_rng(seed)
    sources = generator.integers(1, 60, size=2000)
    targets = np.maximum(1, (sources * generator.normal(ratio, 0.2 * ratio, size=2000)).astype(int)) + extra
    found = OutputLimit.covering(sources, targets)
    limits = SearchConfig().with_output_limit(found).limits(of_lengths(sources.tolist()))
    assert np.mean(targets <= limits) >= 0.998
    assert found.factor >= 2
    assert found.constant >= 10


def test_a_maximum_length_that_was_set_is_kept_and_not_exceeded() -> None:
    source, measured = of_lengths([10]), OutputLimit(5.0, 12)
    assert SearchConfig().limits(source) == [30]
    left_open = SearchConfig().with_output_limit(measured)
    assert (left_open.limits(source), left_open.hard_limits(source)) == ([62], [124])
    one_set = SearchConfig(length_constant=3).with_output_limit(measured)
    assert (one_set.limits(source), one_set.hard_limits(source)) == ([53], [53])
    both = SearchConfig(length_factor=1.0, length_constant=3, length_overrun=1.5).with_output_limit(measured)
    assert (both.limits(source), both.hard_limits(source)) == ([13], [19])
