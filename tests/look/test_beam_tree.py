"""A laid out beam search shows what was searched: nothing is lost, nothing crosses, nothing is made up."""

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from look.beams import golden, long_search, searched, tree_of
from seqloom.core.errors import UsageError
from seqloom.look.beam_tree import BeamTree, cells, describe, percent, spread, visible
from seqloom.search.trace import Trace

SCORES: list[dict[str, Any]] = [
    {"length_normalisation": "none"},
    {"length_normalisation": "gnmt", "alpha": 0.8},
    {"length_normalisation": "mean", "coverage": 0.3, "reward": 0.2},
    {"length_normalisation": "power", "end_normalisation": 1.2},
]


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize(
    ("seed", "beam", "stop"), [(1, 1, "exact"), (2, 3, "k_finished"), (3, 4, "first"), (4, 5, "exact")]
)
def test_the_leaves_are_the_nbest_list_and_their_terms_add_up(
    seed: int, beam: int, stop: str, score: dict[str, Any]
) -> None:
    trace, found = searched(seed=seed, beam=beam, nbest=max(1, beam - 1), stop=stop, **score)
    tree = tree_of(trace, found)
    returned = [leaf for leaf in tree.leaves if leaf.is_returned]
    assert returned == list(tree.leaves[: len(found)])
    assert [leaf.text for leaf in returned] == [" ".join(map(str, each.symbols)) for each in found]
    for leaf, hypothesis in zip(returned, found, strict=True):
        assert sum(leaf.node.terms.values()) == pytest.approx(hypothesis.score, abs=1e-9)
        path = [trace.nodes[number] for number in leaf.path]
        assert sum(node.token_log_prob for node in path) == pytest.approx(leaf.node.terms["log_prob"], abs=1e-9)
        assert leaf.is_complete == hypothesis.is_complete


@pytest.mark.parametrize("pruned", [1, 2, 50])
def test_every_candidate_is_shown_or_counted(pruned: int) -> None:
    trace, found = searched(seed=5, beam=4)
    tree = tree_of(trace, found, pruned=pruned)
    for parent in {node.parent for node in trace.nodes}:
        shown = [place for place in tree.places if place.node.parent == parent]
        dropped = [place for place in shown if place.node.fate == "pruned"]
        assert len(shown) + sum(place.others for place in shown) == sum(node.parent == parent for node in trace.nodes)
        assert len(dropped) <= pruned
        hidden = [n for n in trace.nodes if n.parent == parent and n not in [place.node for place in shown]]
        assert all(node.fate == "pruned" for node in hidden)
        assert all(place.node.score >= node.score for place in dropped for node in hidden)
    assert sum(tree.fates.values()) == len(trace.nodes)


def _crossings(tree: BeamTree) -> int:
    heights: dict[int | None, float] = {None: tree.root, **{place.node.number: place.y for place in tree.places}}
    count = 0
    for step in range(1, tree.steps + 1):
        column = [(heights[place.node.parent], place.y) for place in tree.places if place.node.step == step]
        count += sum((a[0] - b[0]) * (a[1] - b[1]) < 0 for a in column for b in column)
    return count


@pytest.mark.parametrize("seed", range(6))
def test_lines_do_not_cross_and_texts_have_a_line_each(seed: int) -> None:
    tree = tree_of(*searched(seed=seed, beam=4, nbest=2))
    for step in range(1, tree.steps + 1):
        heights = [place.y for place in tree.places if place.node.step == step]
        assert all(after - before >= 1 - 1e-6 for before, after in pairwise(heights))
    assert _crossings(tree) == 0
    turned = [replace(place, y=-place.y if place.node.step == 2 else place.y) for place in tree.places]
    assert _crossings(replace(tree, places=tuple(turned))) > 0
    assert all(abs(place.y) < 1e-4 for place in tree.places if place.is_winner)


def test_columns_are_as_wide_as_their_longest_text() -> None:
    tree = long_search()
    for place in tree.places:
        assert place.x == tree.columns[place.node.step]
        assert place.x + cells(place.label) + cells(place.note) + 3 <= tree.columns[place.node.step + 1]


@given(st.lists(st.tuples(st.floats(-9, 9), st.floats(0.5, 4)), min_size=1, max_size=7), st.integers(0, 99))
def test_nothing_that_keeps_its_distance_is_nearer_to_what_was_wanted(
    asked: list[tuple[float, float]], seed: int
) -> None:
    wanted, weights = [want for want, _ in asked], [weight for _, weight in asked]

    def cost(places: list[float]) -> float:
        return sum(w * (y - want) ** 2 for y, want, w in zip(places, wanted, weights, strict=True))

    found = spread(wanted, weights)
    assert all(after - before >= 1 - 1e-9 for before, after in pairwise(found))
    generator = torch.Generator().manual_seed(seed)
    for scale in (1e-3, 0.1, 1.0):
        # Any other places a line apart: gaps that are a little wider, and moved as a whole.
        gaps = [after - before for before, after in pairwise(found)]
        other = [found[0] + scale * float(torch.randn((), generator=generator))]
        for gap in gaps:
            other.append(other[-1] + max(1.0, gap + scale * float(torch.randn((), generator=generator))))
        assert cost(other) >= cost(found) - 1e-9


def test_a_winner_that_was_behind_at_first_is_reported() -> None:
    tree = golden(beam=2)
    assert tree.leaves[0].text == "爱你"
    assert math.exp(tree.leaves[0].node.score) == pytest.approx(0.36)
    sentence = describe(tree)
    assert "not the best at step 1 (place 2); greedy search leaves its path at step 1" in sentence
    assert sentence.startswith(f"{sum(tree.fates.values())} candidates were expanded in 3 steps: ")
    assert f"{tree.fates['kept']} kept" in sentence


def test_a_winner_that_always_led_is_reported() -> None:
    tree = golden(beam=1)
    assert tree.leaves[0].text == "我你"
    assert "led at every step" in describe(tree)
    assert "a wider beam may find a better one" in describe(tree)


def test_a_proof_and_a_cut_are_reported() -> None:
    assert "proven that no wider beam" in describe(golden(beam=6))
    assert "reached the maximum length" in describe(long_search())


def test_symbols_that_cannot_be_seen_are_written_as_escapes() -> None:
    assert visible("a\tb\u202ec\x00") == "a\\tb\\u202ec\\x00"
    assert visible("▁über 我") == "▁über 我"
    assert (cells("我"), cells("é"), cells("e\u0301")) == (2, 1, 1)
    assert (percent(0.0), percent(0.001), percent(0.5), percent(1.0)) == ("0%", "<1%", "50%", "100%")


def test_a_search_without_candidates_is_refused() -> None:
    trace, found = searched(beam=2)
    with pytest.raises(UsageError, match=r"search\.groups=1"):
        tree_of(Trace(()), found)
    with pytest.raises(UsageError, match="pruned=0 is invalid"):
        tree_of(trace, found, pruned=0)
