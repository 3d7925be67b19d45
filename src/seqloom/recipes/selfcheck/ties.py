"""Two searches that should agree: where they differ, whether a tie was decided otherwise or a promise broken.

At each step a beam search keeps some candidates and drops the others. Two searches over the same sentence part at the
first step where they keep different ones. If what one kept and the other dropped was worth the same there, to within
the rounding of numbers, then they have decided a tie; from then on they go different ways, and end where they may.

    gap = max over both searches of (best of what only it kept − worst of what only the other kept)

Where both keep the same to the end, they differ in which of the finished ones is the best, and the gap is that of the
scores.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from seqloom.recipes.selfcheck.cases import Case
from seqloom.search.beam import beam_search
from seqloom.search.hypothesis import Hypothesis
from seqloom.search.settings import SearchConfig
from seqloom.search.trace import Recorder, Trace

Way = tuple[int, ...]


@dataclass(frozen=True)
class Difference:
    """A sentence for which two searches found different outputs."""

    name: str
    one: str
    other: str
    gap: float

    def __str__(self) -> str:
        distance = "nothing tells how near they are" if math.isinf(self.gap) else f"{self.gap:.1e} apart"
        return f"{self.name!r} gives {self.one!r} and {self.other!r}, {distance}"


@dataclass
class Agreement:
    """What became of sentences that were searched twice."""

    tie: float
    """The gap up to which a difference is a tie."""
    compared: int = 0
    ties: list[Difference] = field(default_factory=list)
    breaks: list[Difference] = field(default_factory=list)
    drift: float = 0.0
    """The largest difference of two scores of one output."""
    drifted: str | None = None
    """The sentence of that difference."""

    def same(self, one: Hypothesis, other: Hypothesis, name: str) -> None:
        """The same symbols were found."""
        self.compared += 1
        drift = abs(one.score - other.score)
        if drift > self.drift or math.isnan(drift):
            self.drift, self.drifted = drift, name

    def differ(self, difference: Difference) -> None:
        """Different symbols were found."""
        self.compared += 1
        (self.ties if difference.gap <= self.tie else self.breaks).append(difference)

    @property
    def widest(self) -> Difference | None:
        """The worst difference."""
        return max([*self.breaks, *self.ties], key=lambda each: each.gap, default=None)


def agreement(
    ones: Sequence[tuple[Case, int]], others: Sequence[tuple[Case, int]], settings: SearchConfig, *, tie: float
) -> Agreement:
    """Search each sentence twice, as a row of one case and as a row of another."""
    found = Agreement(tie)
    searched: dict[int, list[list[Hypothesis]]] = {}
    for pair in zip(ones, others, strict=True):
        best = []
        for case, row in pair:
            if id(case) not in searched:
                searched[id(case)] = case.search(settings)
            best.append(searched[id(case)][row][0])
        name = pair[0][0].names[pair[0][1]]
        if _outcome(best[0]) == _outcome(best[1]):
            found.same(best[0], best[1], name)
        else:
            gap = _gap([_trace(case, row, settings) for case, row in pair], best)
            texts = [case.write(each.symbols) for (case, _), each in zip(pair, best, strict=True)]
            found.differ(Difference(name, texts[0], texts[1], gap))
    return found


def rows_of(cases: Sequence[Case]) -> list[tuple[Case, int]]:
    """Every sentence of the cases, as a row of its case."""
    return [(case, row) for case in cases for row in range(len(case.names))]


def greedy_gap(one: Hypothesis, other: Hypothesis) -> float:
    """How far apart the symbols lie at which two greedy searches part: they have seen the same before."""
    for a, b, of_a, of_b in zip(
        (*one.symbols, -1), (*other.symbols, -1), one.token_log_probs, other.token_log_probs, strict=False
    ):
        if a != b:
            return abs(of_a - of_b)
    return math.inf  # one stopped where the other went on, at its maximum length


def _outcome(hypothesis: Hypothesis) -> tuple[Way, bool]:
    return hypothesis.symbols, hypothesis.is_finished


def _trace(case: Case, row: int, settings: SearchConfig) -> Trace:
    recorder = Recorder()
    beam_search(case.stepper(settings), case.source, settings, recorder=recorder)
    return recorder.traces(len(case.names))[row]


def _gap(traces: Sequence[Trace], best: Sequence[Hypothesis]) -> float:
    first, second = (_steps(trace) for trace in traces)
    for one, other in zip(first, second, strict=False):
        kept, also_kept = one.kept - other.kept, other.kept - one.kept
        if kept or also_kept:
            return max(_lead(kept, also_kept, one.values), _lead(also_kept, kept, other.values))
    return abs(best[0].score - best[1].score)


def _lead(kept: set[Way], dropped: set[Way], values: Mapping[Way, float]) -> float:
    """By how much what was kept was better than what was dropped, which is unknown if it was not even looked at."""
    if not kept or not dropped or any(way not in values for way in dropped):
        return math.inf
    return max(values[way] for way in kept) - min(values[way] for way in dropped)


@dataclass
class _Step:
    """The candidates of a step: what each was worth, and which were kept."""

    values: dict[Way, float] = field(default_factory=dict)
    kept: set[Way] = field(default_factory=set)


def _steps(trace: Trace) -> list[_Step]:
    ways: dict[int, Way] = {}
    steps: list[_Step] = []
    for node in trace.nodes:
        way = (*(() if node.parent is None else ways[node.parent]), node.symbol)
        ways[node.number] = way
        while len(steps) < node.step:
            steps.append(_Step())
        step = steps[node.step - 1]
        # Candidates are ranked by log P, in which an end normalisation has changed P(end).
        step.values[way] = node.terms["log_prob"] + node.terms.get("end", 0.0)
        if node.fate != "pruned":
            step.kept.add(way)
    return steps
