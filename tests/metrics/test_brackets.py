"""Bracket F1: spans by brute force, worked cases, and what is not a parse."""

import random
from collections import Counter

import pytest

from seqloom.metrics.brackets import BracketF1, Parse, are_parses, right_branching
from seqloom.metrics.scoring import score

Tree = str | list["Tree"]


def random_tree(draw: random.Random, words: list[str]) -> Tree:
    if len(words) == 1:
        return words[0] if draw.random() < 0.8 else [words[0]]
    cuts = sorted(draw.sample(range(1, len(words)), draw.randint(1, min(3, len(words) - 1))))
    return [random_tree(draw, words[a:b]) for a, b in zip([0, *cuts], [*cuts, len(words)], strict=True)]


def written(tree: Tree, label: str) -> str:
    return tree if isinstance(tree, str) else f"({label} {' '.join(written(each, label) for each in tree)})"


def spans(tree: Tree, begin: int = 0) -> tuple[int, Counter[tuple[int, int]]]:
    """Where a tree ends, and the spans of its brackets."""
    if isinstance(tree, str):
        return begin + 1, Counter()
    end, found = begin, Counter[tuple[int, int]]()
    for each in tree:
        end, inner = spans(each, end)
        found += inner
    return end, found + Counter([(begin, end)])


def test_f1_equals_that_of_the_spans_of_random_trees() -> None:
    draw = random.Random(3)
    pairs = []
    for _ in range(200):
        words = [draw.choice("abc") for _ in range(draw.randint(1, 9))]
        pairs.append((random_tree(draw, words), random_tree(draw, words)))
    matches = sum((spans(one)[1] & spans(other)[1]).total() for one, other in pairs)
    total = sum(spans(tree)[1].total() for pair in pairs for tree in pair)
    ours, theirs = [written(one, "") for one, _ in pairs], [written(other, "NP") for _, other in pairs]
    assert score(BracketF1(), ours, references=theirs).value == pytest.approx(200 * matches / total)
    assert score(BracketF1(), theirs, references=theirs).value == 100


def test_outputs_that_are_not_parses_match_nothing() -> None:
    reference = "( ( the cat ) sat )"
    for wrong in ("( ( the cat sat )", "the cat ) sat", "( the ( ) cat sat )", "( the cat sat down )", ""):
        assert score(BracketF1(), [wrong], references=[reference]).value == 0, wrong
    # The brackets of a malformed output still count as its own: 2 of (2 + 1) + (2 + 2) brackets match, twice.
    found = score(BracketF1(), [reference, "( the"], references=[reference, reference])
    assert found.value == pytest.approx(200 * 2 / 7)


def test_brackets_are_found_with_and_without_labels() -> None:
    assert Parse.of("(S (NP the cat) sat)") == Parse.of("( ( the cat ) sat )")
    assert Parse.of("( )") is None
    assert right_branching(["a", "b", "c"]) == "( a ( b c ) )"
    assert right_branching(["a"]) == "a"
    assert are_parses(["( a b )", "(S a (B b))"])
    assert not are_parses(["Yes (of course)", "no"])
    assert not are_parses([])
