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

from seqloom.core.errors import UsageError
from seqloom.core.symbols import END
from seqloom.search.hypothesis import Hypothesis
from seqloom.search.trace import Trace, TraceNode

LONGEST_LABEL = 14
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
    ranks = _ranks(trace)
    shown, others = _shown(trace, ranks, pruned=pruned)
    steps = 1 + max(node.step for node in trace.nodes)
    heights = _heights([_of_step(shown, step) for step in range(1, steps)], winner)
    columns, places = [0.0, MARKER + GAP], []
    for step in range(1, steps):
        column = [
            _place(node, piece(node.symbol), columns[-1], heights[node.number], ranks, others, winner)
            for node in sorted(_of_step(shown, step), key=lambda node: heights[node.number])
        ]
        places += column
        widest = max(cells(place.label) + 1 + cells(place.note) for place in column)
        columns.append(columns[-1] + MARKER + widest + GAP)
    return BeamTree(tuple(places), tuple(columns), 0.0, leaves, dict(Counter(node.fate for node in trace.nodes)))


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
    parts += [f"{fates[fate]} {words}" for fate, words in _RARE.items() if fate in fates]
    looked = f"{sum(fates.values())} candidates were expanded in {tree.steps} steps: {_listed(parts)}."
    if best.is_complete:
        proof = "it is proven that no wider beam finds a better one"
    elif best.node.fate == "cut":
        proof = "it reached the maximum length without an end"
    else:
        proof = "a wider beam may find a better one"
    return f"{looked} The best has score {number(best.node.score)}; {proof}. {_describe_path(tree)}"


_RARE = {"cut": "cut at the maximum length", "left": "left when the sentence was decided"}


def _describe_path(tree: BeamTree) -> str:
    path = [place for place in tree.places if place.is_winner]
    behind = [place for place in path if place.rank > 1]
    if not behind:
        return "The winner led at every step, so greedy search finds it as well."
    last = max(behind, key=lambda place: place.rank)
    steps = _listed([str(place.node.step) for place in behind])
    where = f"The winner was not the best at step{'s' if len(behind) > 1 else ''} {steps}"
    furthest = f" (place {last.rank} at step {last.node.step})" if len(behind) > 1 else f" (place {last.rank})"
    first = next((place for place in path if _has_better_sibling(tree, place)), None)
    if first is None:
        return (
            f"{where}{furthest}, but each of its symbols is the most probable after those before it: greedy finds it."
        )
    return f"{where}{furthest}; greedy search leaves its path at step {first.node.step}."


def _has_better_sibling(tree: BeamTree, place: PlacedNode) -> bool:
    """The best child of a node is always shown: it continues, or is the best of the pruned."""
    siblings = [other for other in tree.places if other.node.parent == place.node.parent]
    return any(other.rank < place.rank for other in siblings)


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


# --- which are shown --------------------------------------------------------------------------------------------------


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


def _ranks(trace: Trace) -> dict[int, int]:
    """The place of each candidate in its step. Of equal ones that which was not pruned was better."""
    ranks: dict[int, int] = {}
    by_step: dict[int, list[TraceNode]] = defaultdict(list)
    for node in trace.nodes:
        by_step[node.step].append(node)
    for nodes in by_step.values():
        nodes.sort(key=lambda node: (-ranking_score(node), node.fate == "pruned", node.number))
        ranks.update({node.number: place for place, node in enumerate(nodes, start=1)})
    return ranks


def _shown(trace: Trace, ranks: Mapping[int, int], *, pruned: int) -> tuple[list[TraceNode], dict[int, int]]:
    """The nodes that are shown, best first, and behind which of them how many siblings are not."""
    shown = [node for node in trace.nodes if node.fate != "pruned"]
    others: dict[int, int] = {}
    by_parent: dict[int | None, list[TraceNode]] = defaultdict(list)
    for node in trace.nodes:
        if node.fate == "pruned":
            by_parent[node.parent].append(node)
    for nodes in by_parent.values():
        best = sorted(nodes, key=lambda node: ranks[node.number])[:pruned]
        shown += best
        others[best[-1].number] = len(nodes) - len(best)
    return sorted(shown, key=lambda node: ranks[node.number]), others


def _of_step(nodes: Sequence[TraceNode], step: int) -> list[TraceNode]:
    return [node for node in nodes if node.step == step]


# --- positions --------------------------------------------------------------------------------------------------------


def _place(
    node: TraceNode,
    symbol: str,
    x: float,
    y: float,
    ranks: Mapping[int, int],
    others: Mapping[int, int],
    winner: set[int],
) -> PlacedNode:
    seen, more = visible(symbol), others.get(node.number, 0)
    note = percent(math.exp(node.token_log_prob))
    if node.fate in ("finished", "cut"):
        note += f" {number(node.score)}"
    if more:
        note += f" +{more}"
    return PlacedNode(
        node=node,
        symbol=seen,
        label=seen if len(seen) <= LONGEST_LABEL else f"{seen[: LONGEST_LABEL - 1]}…",
        note=note,
        rank=ranks[node.number],
        others=more,
        is_winner=node.number in winner,
        x=x,
        y=y,
    )


def _heights(columns: Sequence[Sequence[TraceNode]], winner: set[int]) -> dict[int, float]:
    """The vertical position of each node; nodes of a column come best first."""
    heights: dict[int | None, float] = {None: 0.0}
    for column in columns:
        # Sorting keeps the order of what compares equal: children of one parent stay best first.
        ordered = sorted(column, key=lambda node: heights[node.parent])
        weights = [
            WEIGHTS["winner" if node.number in winner else "pruned" if node.fate == "pruned" else "continued"]
            for node in ordered
        ]
        found = spread([heights[node.parent] for node in ordered], weights)
        heights.update({node.number: height for node, height in zip(ordered, found, strict=True)})
    return {number: height for number, height in heights.items() if number is not None}


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
