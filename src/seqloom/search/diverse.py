"""Diverse beam search (Vijayakumar et al., 2016): groups of hypotheses that keep out of each other's way.

The n best of a beam differ in a comma. Here the beam is dealt out to groups, which choose one after the other at each
step, and a symbol costs more for each time that a group before has just taken it:

    steer(y_1 … y_t) = log P(y_1 … y_t ∣ x) − λ Σ_j taken_j(y_j)     taken_j(y): hypotheses of the groups before that
                                                                     were kept at step j with the symbol y (Hamming)

Each group keeps its k/G candidates that steer best. The penalty only steers: what a hypothesis is worth, and when a
group stops, is a matter of its score, as in beam search, because what others took says nothing about its quality.

    G = 1    is beam search with beam k, whatever λ is
    λ = 0    finds in every group what beam search with beam k/G finds
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from seqloom.core.errors import ConfigError
from seqloom.core.stepping import Source, Stepper
from seqloom.search.candidates import Top, dead_end, top_symbols
from seqloom.search.finished import Finished
from seqloom.search.hypothesis import Hypothesis, Ledger, Trail, extend
from seqloom.search.offers import Rules
from seqloom.search.rerank import without_duplicates
from seqloom.search.settings import SearchConfig


@torch.inference_mode()
def diverse_search(
    stepper: Stepper, source: Source, settings: SearchConfig, *, groups: int, diversity: float
) -> list[list[Hypothesis]]:
    """At most `settings.nbest` different hypotheses for each sentence, best first, finished ones before cut ones.

    `settings.beam` counts those of all groups together; `diversity` is λ. The best of each group come first into the
    list, then the second of each, and so on until it is full; then it is sorted.
    """
    own = _of_a_group(settings, groups, diversity)
    limits, hard_limits = settings.limits(source), settings.hard_limits(source)
    lengths, score = source.lengths.tolist(), settings.score()
    if not limits:
        return []
    attention: list[Tensor | None] = []
    ledgers = [Ledger(score, stepper.end, length, attention) for length in lengths]
    sentences = [
        [
            _Group(number, own, ledger, [_Way(None, 0.0, number)], Finished(limit, hard_limit, own, ledger))
            for _ in range(groups)
        ]
        for number, (limit, hard_limit, ledger) in enumerate(zip(limits, hard_limits, ledgers, strict=True))
    ]
    rules = Rules(stepper.end, score.end)
    owners = list(range(len(limits)))  # groups of a sentence share its first step
    state = stepper.start(source)
    last = source.lengths.new_full((len(limits),), stepper.begin)
    while owners:
        step = stepper.step(state, last)
        attention.append(step.attention)
        values = rules.values(
            step,
            length=len(attention),
            source_lengths=[lengths[owner] for owner in owners],
            standings=[None] * len(owners),
        )
        # Groups before penalise k − k/G symbols at most, so k/G of a row's k best are as good as they were.
        _choose_by_turns(sentences, top_symbols(step, settings.beam, values=values), diversity=diversity)
        ways = [way for sentence in sentences for group in sentence for way in group.ways]
        owners = [group.number for sentence in sentences for group in sentence for _ in group.ways]
        for row, way in enumerate(ways):
            way.row = row
        rows = [way.trail.row for way in ways if way.trail is not None]
        state = step.state if rows == list(range(len(last))) else step.state.select(last.new_tensor(rows))
        last = last.new_tensor([way.trail.symbol for way in ways if way.trail is not None])
    return [_merged([group.hypotheses() for group in sentence], settings.nbest) for sentence in sentences]


@dataclass
class _Way:
    """A live hypothesis: how it came, what it has paid for symbols that others had taken, and its row in the batch."""

    trail: Trail | None
    paid: float
    row: int


class _Candidate(NamedTuple):
    """A live hypothesis with one symbol more."""

    steer: float
    trail: Trail
    paid: float


class _Offer(NamedTuple):
    """A symbol that a row may go on with: what it is ranked by, and log P."""

    value: float
    symbol: int
    log_prob: float


@dataclass
class _Group:
    """A beam search of its own for one sentence; `settings` have the beam and the n-best size of a group."""

    number: int
    settings: SearchConfig
    ledger: Ledger
    ways: list[_Way]
    finished: Finished
    cut: list[Trail] = field(default_factory=list)

    def choose(self, offers: Sequence[Sequence[_Offer]], taken: Counter[int], *, diversity: float) -> list[int]:
        """Keep the candidates that steer best; the symbols they have taken."""
        candidates: list[_Candidate] = []
        for way in self.ways:
            so_far = 0.0 if way.trail is None else way.trail.log_prob
            for value, symbol, log_prob in offers[way.row]:
                paid = way.paid + diversity * taken[symbol]
                trail = extend(way.trail, symbol, token_log_prob=log_prob, row=way.row)
                candidates.append(_Candidate(so_far + value - paid, trail, paid))
        candidates.sort(key=lambda candidate: -candidate.steer)  # stable: the better row, then its better symbol
        kept = candidates[: self.settings.beam]
        live = [candidate for candidate in kept if candidate.trail.symbol != self.ledger.end]
        for candidate in kept:
            if candidate.trail.symbol == self.ledger.end:
                self.finished.add(candidate.trail)
        if not live and not self.finished.best:
            raise dead_end(self.number, 1 + (0 if self.ways[0].trail is None else self.ways[0].trail.length))
        self._go_on(live)
        return [candidate.trail.symbol for candidate in kept]

    def _go_on(self, live: Sequence[_Candidate]) -> None:
        trails = [candidate.trail for candidate in live]
        if trails and self.finished.is_cut(max(trails, key=lambda trail: trail.log_prob)):
            self.cut, self.ways = trails, []
        elif self.finished.is_decided([t.log_prob for t in trails], length=trails[0].length if trails else 0):
            self.ways = []
        else:
            self.ways = [_Way(candidate.trail, candidate.paid, candidate.trail.row) for candidate in live]

    def hypotheses(self) -> list[Hypothesis]:
        hit_limit = self.finished.hit_limit
        found = [
            self.ledger.hypothesis(trail, is_finished=True, hit_limit=hit_limit) for _, trail in self.finished.best
        ]
        found += [self.ledger.hypothesis(trail, is_finished=False, hit_limit=True) for trail in self.cut]
        return found[: self.settings.nbest]


def _choose_by_turns(sentences: Sequence[Sequence[_Group]], top: Top, *, diversity: float) -> None:
    """Let the groups of each sentence choose, each knowing what those before it have taken at this step."""
    # Ids are exact in float64, so that one transfer brings everything.
    table = torch.stack([top.values.double(), top.symbols.double(), top.log_probs.double()], 2).tolist()
    offers = [
        [_Offer(value, int(symbol), log_prob) for value, symbol, log_prob in row if value > float("-inf")]
        for row in table
    ]
    for groups in sentences:
        taken: Counter[int] = Counter()
        for group in groups:
            if group.ways:
                taken.update(group.choose(offers, taken, diversity=diversity))


def _merged(found: Sequence[Sequence[Hypothesis]], nbest: int) -> list[Hypothesis]:
    """The best of each group, then the second of each …, without duplicates; of these the first n, sorted."""

    def worth(hypothesis: Hypothesis) -> tuple[bool, float]:
        return not hypothesis.is_finished, -hypothesis.score

    most = max(len(group) for group in found)
    rounds = [sorted((group[place] for group in found if place < len(group)), key=worth) for place in range(most)]
    different = without_duplicates([hypothesis for turn in rounds for hypothesis in turn])
    return sorted(different[:nbest], key=worth)


def _of_a_group(settings: SearchConfig, groups: int, diversity: float) -> SearchConfig:
    if not 1 <= groups <= settings.beam or settings.beam % groups:
        fits = [number for number in range(1, settings.beam + 1) if settings.beam % number == 0]
        raise ConfigError(f"beam {settings.beam} cannot be dealt out to {groups} groups; numbers that fit: {fits}")
    if not 0 <= diversity < float("inf"):
        raise ConfigError(
            f"diversity {diversity} is out of range; give 0 (groups do as they like) or more, such as 0.5"
        )
    beam = settings.beam // groups
    return settings.model_copy(update={"beam": beam, "nbest": min(settings.nbest, beam)})
