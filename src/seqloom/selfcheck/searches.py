"""Promises of every search: greedy is beam 1, fast is readable, complete is unbeaten, terms add up."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from seqloom.core.errors import UsageError
from seqloom.reference import beam as reference
from seqloom.search.beam import beam_search
from seqloom.search.greedy import greedy_search
from seqloom.search.hypothesis import Hypothesis
from seqloom.search.scores import ScoreInputs, score_of
from seqloom.search.settings import SearchConfig
from seqloom.search.trace import Recorder, Trace
from seqloom.selfcheck.cases import Case
from seqloom.selfcheck.promises import TIE, CheckResult, Figure, counted, judged, shown, within

# Two searches that should agree: where they differ, whether a tie was decided otherwise or a promise broken.
#
# At each step a beam search keeps some candidates and drops the others. Two searches over the same sentence part at
# the first step where they keep different ones. If what one kept and the other dropped had the same score there, to
# within the rounding of numbers, then they have decided a tie; from then on they explore different hypotheses.
#
#     gap = max over both searches of (best of what only it kept − worst of what only the other kept)
#
# Where both keep the same to the end, they differ in which of the finished ones is the best, and the gap is that of
# the scores.

Prefix = tuple[int, ...]
"""Symbols of a hypothesis so far."""


@dataclass(frozen=True)
class Difference:
    """A sentence for which two searches found different outputs."""

    name: str
    one: str
    other: str
    gap: float

    def __str__(self) -> str:
        distance = "their distance is unknown" if math.isinf(self.gap) else f"{self.gap:.1e} apart"
        return f"{self.name!r} gives {self.one!r} and {self.other!r}, {distance}"


@dataclass
class SearchAgreement:
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
) -> SearchAgreement:
    """Search each sentence twice, as a row of one case and as a row of another."""
    found = SearchAgreement(tie)
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
    return math.inf  # one stopped at its maximum length where the other continued


def _outcome(hypothesis: Hypothesis) -> tuple[Prefix, bool]:
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


def _lead(kept: set[Prefix], dropped: set[Prefix], values: Mapping[Prefix, float]) -> float:
    """Score difference between the kept and the dropped candidate; unknown if the latter was never expanded."""
    if not kept or not dropped or any(prefix not in values for prefix in dropped):
        return math.inf
    return max(values[prefix] for prefix in kept) - min(values[prefix] for prefix in dropped)


@dataclass
class _Step:
    """The candidates of a step: their scores, and which were kept."""

    values: dict[Prefix, float] = field(default_factory=dict)
    kept: set[Prefix] = field(default_factory=set)


def _steps(trace: Trace) -> list[_Step]:
    prefixes: dict[int, Prefix] = {}
    steps: list[_Step] = []
    for node in trace.nodes:
        prefix = (*(() if node.parent is None else prefixes[node.parent]), node.symbol)
        prefixes[node.number] = prefix
        while len(steps) < node.step:
            steps.append(_Step())
        step = steps[node.step - 1]
        # Candidates are ranked by log P, in which an end normalisation has changed P(end).
        step.values[prefix] = node.terms["log_prob"] + node.terms.get("end", 0.0)
        if node.fate != "pruned":
            step.kept.add(prefix)
    return steps


EXACT = 1e-9
"""How far sums in float64 may be from each other."""

WIDER = (2, 4)
"""How many times as wide the beams are that try to beat a search."""


@torch.inference_mode()
def check_greedy(cases: Sequence[Case], settings: SearchConfig) -> CheckResult:
    """Beam 1 = greedy."""
    narrow = settings.model_copy(update={"beam": 1, "nbest": 1})
    found = SearchAgreement(TIE)
    for case in cases:
        greedy = greedy_search(case.stepper(narrow), case.source, narrow)
        beams = beam_search(case.stepper(narrow), case.source, narrow)
        for name, one, (other, *_) in zip(case.names, greedy, beams, strict=True):
            if one.symbols == other.symbols and one.is_finished == other.is_finished:
                found.same(one, other, name)
            else:
                texts = case.write(one.symbols), case.write(other.symbols)
                found.differ(Difference(name, *texts, greedy_gap(one, other)))
    is_kept = not found.breaks and found.drift <= TIE
    figures = {"outputs": found.compared, "changed": len(found.breaks), "ties": len(found.ties), "drift": found.drift}
    if found.breaks:
        sentence = f"{len(found.breaks):,} of {counted(found.compared, 'output')} of beam 1 are not those of greedy"
    else:
        rest = "" if is_kept else f", but a score is {found.drift:.1e} off"
        sentence = f"{counted(found.compared, 'output')} of beam 1 are those of greedy search, token for token{rest}"
    if found.ties:
        sentence += f"; {counted(len(found.ties), 'tie')} decided otherwise"
    return judged(is_kept, sentence, figures=figures, worst=str(found.widest) if found.widest else None)


@torch.inference_mode()
def check_fast(cases: Sequence[Case], settings: SearchConfig) -> CheckResult:
    """The fast beam search gives the lists of the readable one."""
    # The reference knows lengths only: neither attention nor the price of an end, and one stop rule.
    plain = {"stop": "exact", "coverage": 0.0, "end_normalisation": 0.0, "length_overrun": 1.0}
    settings = settings.model_copy(update={"nbest": settings.beam, **plain})
    score = settings.score()
    compared, wrong, drift = 0, [], 0.0
    for case in cases:
        fast = beam_search(case.stepper(settings), case.source, settings)
        readable = reference.beam_search(
            case.stepper(settings),
            case.source,
            beam=settings.beam,
            nbest=settings.nbest,
            limits=settings.limits(case.source),
            score=lambda log_prob, length: score_of(score.terms(ScoreInputs(log_prob, length))),
            bound=lambda log_prob, length, limit: score.bound(log_prob, length, limit=limit),
        )
        for name, one, other in zip(case.names, fast, readable, strict=True):
            compared += len(other)
            if [(each.symbols, each.is_finished) for each in one] != [
                (each.symbols, each.is_finished) for each in other
            ]:
                texts = [shown(case.write(each[0].symbols)) for each in (one, other)]
                wrong.append(f"{shown(name)} gives {texts[0]} and others by the fast search, {texts[1]} by the other")
            else:
                drift = max([drift, *(abs(a.score - b.score) for a, b in zip(one, other, strict=True))])
    is_kept = not wrong and drift <= EXACT
    sentence = f"{compared:,} hypotheses by both searches: "
    sentence += f"lists of {len(wrong):,} sentences differ" if wrong else f"the same lists, scores {within(drift)}"
    figures: dict[str, Figure] = {"hypotheses": compared, "lists_that_differ": len(wrong), "drift": drift}
    return judged(is_kept, sentence, figures=figures, worst=wrong[0] if wrong else None)


@torch.inference_mode()
def check_complete(cases: Sequence[Case], settings: SearchConfig) -> CheckResult:
    """What is marked complete is not beaten by wider beams."""
    settings = settings.model_copy(update={"nbest": 1})
    widths = [times * settings.beam for times in WIDER if times * settings.beam <= 1_000]
    marked, sentences, improved = 0, 0, 0
    worst, lead = None, -math.inf
    for case in cases:
        found = [hypotheses[0] for hypotheses in case.search(settings)]
        sentences += len(found)
        marked += sum(each.is_complete for each in found)
        better = [-math.inf] * len(found)
        for width in widths:
            wide = case.search(settings.model_copy(update={"beam": width}))
            better = [max(best, of_one[0].score) for best, of_one in zip(better, wide, strict=True)]
        for name, own, best in zip(case.names, found, better, strict=True):
            improved += not own.is_complete and best > own.score + TIE
            if own.is_complete and best - own.score > lead:
                lead = best - own.score
                worst = f"{shown(name)}: marked complete at {own.score:.6f}, a wider beam comes to {best:.6f}"
    figures: dict[str, Figure] = {"sentences": sentences, "complete": marked, "others_improved": improved}
    if not marked:
        return CheckResult("not applicable", f"none of {sentences:,} searches is marked complete", figures)
    beams = " and ".join(map(str, widths))
    rest = sentences - marked
    of_others = f"; wider beams find better outputs for {improved:,} of the other {rest:,}" if rest else ""
    if lead > TIE:
        sentence = f"a search marked complete is beaten by {lead:.1e} by a wider beam"
    else:
        sentence = (
            f"{marked:,} of {sentences:,} searches are marked complete, none is beaten by beam {beams}{of_others}"
        )
    return judged(lead <= TIE, sentence, figures={**figures, "largest_lead": lead}, worst=worst)


@torch.inference_mode()
def check_terms(cases: Sequence[Case], settings: SearchConfig, *, source: bool) -> CheckResult:
    """Terms add up to the score, and token log-probabilities to log P; under the model's settings and with all terms.

    `source` says that there is a source text, whose length and attention scores may use.
    """
    own = settings.model_copy(update={"nbest": settings.beam})
    rich = {"length_normalisation": "power", "alpha": 0.7, "reward": 0.3}
    if source:
        rich |= {"end_normalisation": 0.4, "end_kind": "multiply", "coverage": 0.2}
    every = own.model_copy(update=rich)
    if not _gives_attention(cases, every):
        every = every.model_copy(update={"coverage": 0.0})
    count, worst, off, names = 0, None, 0.0, set[str]()
    for case in cases:
        for chosen in (own, every):
            for name, found in zip(case.names, case.search(chosen), strict=True):
                for each in found:
                    count, names = count + 1, names | set(each.terms)
                    wrong = _off(each)
                    if not wrong <= off:  # NaN too
                        off, worst = wrong, f"{shown(name)}: score {each.score:.9f}, terms {dict(each.terms)}"
    sentence = f"the terms ({', '.join(sorted(names))}) of {count:,} scores add up {within(off)}"
    if not off <= EXACT:
        sentence = f"terms do not add up to their score: {off:.1e} is missing or too much"
    return judged(off <= EXACT, sentence, figures={"scores": count, "largest_difference": off}, worst=worst)


def _off(hypothesis: Hypothesis) -> float:
    """By how much its sums are wrong."""
    steps = len(hypothesis.symbols) + hypothesis.is_finished
    if len(hypothesis.token_log_probs) != steps:
        return math.inf
    of_terms = abs(math.fsum(hypothesis.terms.values()) - hypothesis.score)
    of_tokens = abs(math.fsum(hypothesis.token_log_probs) - hypothesis.log_prob)
    return math.nan if math.isnan(of_terms + of_tokens) else max(of_terms, of_tokens)


def _gives_attention(cases: Sequence[Case], settings: SearchConfig) -> bool:
    if settings.coverage == 0:
        return True
    try:
        cases[0].search(settings)
    except UsageError:
        return False
    return True
