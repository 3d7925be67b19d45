"""The trace of a beam search: every candidate that was looked at, and what became of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from seqloom.search.hypothesis import BackPointer, links_of
from seqloom.search.scores import score_of

Fate = Literal["kept", "pruned", "finished", "cut", "left"]
"""kept: continued; pruned: others of its step were better; finished: ended; cut: reached the maximum length, or a state
in which its forced phrases can no longer come; left: still live when the sentence was decided."""


@dataclass(frozen=True)
class TraceNode:
    """A candidate: one symbol more than its parent, which is a node of the step before (None at the first step).

    `terms` are those of its score if it stopped here, and add up to `score`; `step` counts from 1.
    """

    number: int
    parent: int | None
    step: int
    symbol: int
    token_log_prob: float
    fate: Fate
    terms: Mapping[str, float] = field(hash=False)

    @property
    def score(self) -> float:
        return score_of(self.terms)


@dataclass(frozen=True)
class Trace:
    """The nodes of one sentence, step by step; those of a step as they were decided."""

    nodes: tuple[TraceNode, ...]

    def path(self, node: TraceNode) -> list[TraceNode]:
        """From the first symbol to this node."""
        path = [node]
        while path[-1].parent is not None:
            path.append(self.nodes[path[-1].parent])
        return path[::-1]


class Recorder:
    """Collects the candidates of a search."""

    def __init__(self) -> None:
        self._nodes: dict[int, list[TraceNode]] = {}
        self._numbers: dict[tuple[int, tuple[int, ...]], int] = {}  # by sentence and symbols

    def add(self, sentence: int, path: BackPointer, *, fate: Fate, terms: Mapping[str, float]) -> None:
        """A candidate of a sentence, after its parent. If it is added again, the last fate counts."""
        nodes = self._nodes.setdefault(sentence, [])
        symbols = tuple(link.symbol for link in links_of(path))
        number = self._numbers.setdefault((sentence, symbols), len(nodes))
        node = TraceNode(
            number=number,
            parent=self._numbers.get((sentence, symbols[:-1])),
            step=path.length,
            symbol=path.symbol,
            token_log_prob=path.token_log_prob,
            fate=fate,
            terms=dict(terms),
        )
        nodes[number : number + 1] = [node]

    def traces(self, sentences: int) -> Sequence[Trace]:
        """One for each sentence of the batch."""
        return [Trace(tuple(self._nodes.get(number, ()))) for number in range(sentences)]
