"""The layout of the tree of a beam search: which candidates are shown, where, and with which label.

Steps are columns from left to right. In a column children follow the order of their parents, the better above the
worse, so no two lines cross; they are at least a line apart, and as near to their parents as that lets them be:

    minimise Σ_i w_i (y_i − y_parent(i))²    so that y_{i+1} − y_i ≥ 1        least squares under an order

The winning path weighs so much that it is straight. Lengths are in lines of text (y) and characters (x);
the drawing code converts them to inches or pixels.
"""

import math
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from seqloom.core.errors import UsageError
from seqloom.core.symbols import END
from seqloom.search.hypothesis import Hypothesis
from seqloom.search.trace import Trace, TraceNode

MAX_LABEL = 14
"""Maximum number of characters shown of a symbol."""

MARKER, GAP = 2.0, 4.0
"""Characters that a node's mark takes before its text, and the room for lines between two columns."""

WEIGHTS = {"winner": 1e9, "continued": 4.0, "pruned": 1.0}


@dataclass(frozen=True)
class PlacedNode:
    """A candidate that is shown, and where."""

    node: TraceNode
    symbol: str
    """The symbol, with invisible characters escaped."""
    label: str
    note: str
    """Text after the label: the probability, the score if finished, the number of hidden siblings."""
    rank: int
    """1 for the candidate of its step that the search likes best."""
    others: int
    """Pruned siblings, all worse than this one, that are not shown."""
    is_winner: bool
    """Whether it is on the path of the best hypothesis."""
    x: float
    y: float
    start: tuple[float, float]
    """Where the line from its parent begins; it is level up to `bend`."""

    @property
    def bend(self) -> float:
        """The end of the parent's column."""
        return self.x - GAP

    @property
    def width(self) -> float:
        """Characters of its mark, label and note."""
        return MARKER + cells(self.label) + 1 + cells(self.note)

    @property
    def probability(self) -> float:
        return math.exp(self.node.token_log_prob)

    @property
    def has_ended(self) -> bool:
        return self.node.fate in ("finished", "cut")


@dataclass(frozen=True)
class Leaf:
    """A hypothesis that has ended: at END, at a stop string, or at the maximum length."""

    node: TraceNode
    text: str
    path: tuple[int, ...]
    """The numbers of its nodes, first symbol first."""
    is_returned: bool
    is_complete: bool


@dataclass(frozen=True)
class BeamTree:
    """The layout of a beam search."""

    places: tuple[PlacedNode, ...]
    """By step, then from above."""
    columns: tuple[float, ...]
    """Where each step begins, the root (step 0) first, and after the last one the right edge."""
    root: float
    """The vertical position of the root."""
    leaves: tuple[Leaf, ...]
    """What has ended, best first; the first of them are the hypotheses that the search returned."""
    fates: Mapping[str, int] = field(hash=False)
    """How many of all candidates, shown or not, had each fate."""

    @property
    def steps(self) -> int:
        return len(self.columns) - 2

    @property
    def span(self) -> tuple[float, float]:
        """The highest and the lowest line."""
        heights = [place.y for place in self.places]
        return min(heights), max(heights)


def lay_out(
    trace: Trace,
    hypotheses: Sequence[Hypothesis],
    *,
    piece: Callable[[int], str],
    text: Callable[[Sequence[int]], str],
    pruned: int = 2,
    end: int = END,
) -> BeamTree:
    """The tree of a search that returned these hypotheses.

    Of the children of a node that were pruned, the `pruned` best are shown; the last of them shows how many more there
    are. `piece` writes a symbol, `text` an output without `end`.
    """
    if not trace.nodes:
        raise UsageError(
            "this search recorded no candidates: only beam search does "
            "(search.method=beam, search.groups=1, search.mode=seqloom)"
        )
    if pruned < 1:
        raise UsageError(f"pruned={pruned} is invalid; give 1 or more pruned candidates per node")
    leaves = _leaves(trace, hypotheses, text=text, end=end)
    winner = set(leaves[0].path)
    by_step: dict[int, list[TraceNode]] = defaultdict(list)
    for node in trace.nodes:
        by_step[node.step].append(node)
    heights: dict[int | None, float] = {None: 0.0}
    ends: dict[int | None, float] = {None: MARKER}
    columns, places = [0.0, MARKER + GAP], []
    for step in range(1, 1 + max(by_step)):
        # Of equal candidates the one that was not pruned was better.
        ranked = sorted(by_step[step], key=lambda node: (-ranking_score(node), node.fate == "pruned", node.number))
        ranks = {node.number: rank for rank, node in enumerate(ranked, start=1)}
        shown, dropped, others = [], defaultdict[int | None, list[int]](list), Counter[int]()
        for node in ranked:
            siblings = dropped[node.parent]
            if node.fate == "pruned" and len(siblings) == pruned:
                others[siblings[-1]] += 1
                continue
            shown.append(node)
            if node.fate == "pruned":
                siblings.append(node.number)
        # Sorting keeps the order of what compares equal: children of one parent stay best first.
        shown.sort(key=lambda node: heights[node.parent])
        weights = [
            WEIGHTS["winner" if node.number in winner else "pruned" if node.fate == "pruned" else "continued"]
            for node in shown
        ]
        wanted = spread([heights[node.parent] for node in shown], weights)
        for node, height in zip(shown, wanted, strict=True):
            symbol, note = visible(piece(node.symbol)), percent(math.exp(node.token_log_prob))
            if node.fate in ("finished", "cut"):
                note += f" {number(node.score)}"
            if others[node.number]:
                note += f" +{others[node.number]}"
            place = PlacedNode(
                node=node,
                symbol=symbol,
                label=symbol if len(symbol) <= MAX_LABEL else f"{symbol[: MAX_LABEL - 1]}…",
                note=note,
                rank=ranks[node.number],
                others=others[node.number],
                is_winner=node.number in winner,
                x=columns[-1],
                y=height,
                start=(ends[node.parent] + 0.3, heights[node.parent]),
            )
            places.append(place)
            heights[node.number], ends[node.number] = height, place.x + place.width
        columns.append(max(ends[node.number] for node in shown) + GAP)
    return BeamTree(tuple(places), tuple(columns), 0.0, leaves, dict(Counter(node.fate for node in trace.nodes)))


def tree_record(tree: BeamTree) -> dict[str, Any]:
    """A tree as plain data, for beam_tree.js: it draws the pages of `seqloom look beam` and of the server."""
    nodes = [
        {
            "number": place.node.number,
            "parent": place.node.parent,
            "step": place.node.step,
            "symbol": place.node.symbol,
            "shown": place.symbol,
            "label": place.label,
            "note": place.note,
            "fate": place.node.fate,
            "rank": place.rank,
            "others": place.others,
            "winner": place.is_winner,
            "probability": place.probability,
            "log_probability": place.node.token_log_prob,
            "terms": dict(place.node.terms),
            "score": place.node.score,
            "x": place.x,
            "y": place.y,
            "start": list(place.start),
            "bend": place.bend,
            "width": place.width,
            "cells": cells(place.label),
        }
        for place in tree.places
    ]
    leaves = [
        {
            "number": leaf.node.number,
            "text": leaf.text,
            "step": leaf.node.step,
            "fate": leaf.node.fate,
            "score": leaf.node.score,
            "terms": dict(leaf.node.terms),
            "returned": leaf.is_returned,
            "complete": leaf.is_complete,
        }
        for leaf in tree.leaves
    ]
    return {
        "columns": list(tree.columns),
        "steps": tree.steps,
        "root": tree.root,
        "span": list(tree.span),
        "nodes": nodes,
        "leaves": leaves,
        "fates": dict(tree.fates),
        "sentence": describe(tree),
    }


def ranking_score(node: TraceNode) -> float:
    """What candidates of a step are ranked by: log P, with what the score does to the end symbol."""
    return node.terms["log_prob"] + node.terms.get("end", 0.0)


def visible(text: str) -> str:
    """Text with unprintable characters written as escapes."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape", "surrogatepass").decode() for each in text
    )


def cells(text: str) -> int:
    """The width of a text in columns of a fixed-width font, in which characters of East Asia take two."""
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in text
    )


def percent(probability: float) -> str:
    """A probability in so many characters as there is room for."""
    return "<1%" if 0 < probability < 0.005 else f"{100 * probability:.0f}%"


def number(value: float, digits: int = 3) -> str:
    """A number with a minus sign as long as its digits are wide."""
    return f"{value:.{digits}f}".replace("-", "−")


def describe(tree: BeamTree) -> str:
    """What is seen: how many candidates there were, whether the best is proven, where it was not ahead."""
    fates, best = tree.fates, tree.leaves[0]
    parts = [f"{fates.get('kept', 0)} kept", f"{fates.get('pruned', 0)} pruned", f"{fates.get('finished', 0)} finished"]
    rare = {"cut": "cut at the maximum length", "left": "left when the sentence was decided"}
    parts += [f"{fates[fate]} {words}" for fate, words in rare.items() if fate in fates]
    if best.is_complete:
        proof = "it is proven that no wider beam finds a better one"
    elif best.node.fate == "cut":
        proof = "it reached the maximum length without an end"
    else:
        proof = "a wider beam may find a better one"
    summary = (
        f"{sum(fates.values())} candidates were expanded in {tree.steps} steps: {_listed(parts)}. "
        f"The best has score {number(best.node.score)}; {proof}."
    )
    path = [place for place in tree.places if place.is_winner]
    behind = [place for place in path if place.rank > 1]
    if not behind:
        return f"{summary} The winner led at every step, so greedy search finds it as well."
    last = max(behind, key=lambda place: place.rank)
    plural, at = ("s", f" at step {last.node.step}") if len(behind) > 1 else ("", "")
    steps = _listed([str(place.node.step) for place in behind])
    where = f"{summary} The winner was not the best at step{plural} {steps} (place {last.rank}{at})"
    # The best child of a node is always shown: it continues, or is the best of the pruned.
    leading = {place.node.parent: place.rank for place in sorted(tree.places, key=lambda place: -place.rank)}
    left = next((place.node.step for place in path if leading[place.node.parent] < place.rank), None)
    if left is None:
        return f"{where}, but each of its symbols is the most probable after those before it: greedy finds it."
    return f"{where}; greedy search leaves its path at step {left}."


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _leaves(
    trace: Trace, hypotheses: Sequence[Hypothesis], *, text: Callable[[Sequence[int]], str], end: int
) -> tuple[Leaf, ...]:
    """What has ended, in the order in which a search returns it."""
    finished = sorted((node for node in trace.nodes if node.fate == "finished"), key=lambda node: -node.score)
    leaves = []
    for place, node in enumerate([*finished, *(node for node in trace.nodes if node.fate == "cut")]):
        path = trace.path(node)
        symbols = [each.symbol for each in path]
        without_end = symbols[:-1] if node.symbol == end else symbols
        found = hypotheses[place] if place < len(hypotheses) else None
        assert found is None or found.symbols == tuple(without_end), "the trace belongs to another search"
        leaves.append(
            Leaf(
                node,
                text=text(without_end),
                path=tuple(each.number for each in path),
                is_returned=found is not None,
                is_complete=found is not None and found.is_complete,
            )
        )
    return tuple(leaves)


def spread(wanted: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Places in this order and at least 1 apart, by weighted least squares as near as can be to those wanted.

    With z_i = y_i − i the distance is an order, z_i ≤ z_{i+1}; where neighbours violate it they share their
    mean, and so does the block that they make with its neighbours (pool adjacent violators).
    """
    blocks: list[tuple[float, float, int]] = []  # weight, weighted mean of z, members
    for place, (want, weight) in enumerate(zip(wanted, weights, strict=True)):
        block = (weight, want - place, 1)
        while blocks and blocks[-1][1] > block[1]:
            before = blocks.pop()
            total = before[0] + block[0]
            block = (total, (before[0] * before[1] + block[0] * block[1]) / total, before[2] + block[2])
        blocks.append(block)
    means = [mean for _, mean, members in blocks for _ in range(members)]
    return [mean + place for place, mean in enumerate(means)]
