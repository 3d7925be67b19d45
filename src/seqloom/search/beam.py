"""Beam search: keep the k best of all ways to go on.

    candidates = {(y_1 … y_t, y) : y_1 … y_t a live hypothesis, y any symbol}
    kept       = the k candidates of highest log P(y_1 … y_t y ∣ x)
    live       = those of them that do not end; the others are finished

Candidates of one step have one length, so a length normalisation ranks them as log P does; it matters where finished
hypotheses of different lengths meet. A candidate that ends uses up a place of its step, hence k = 1 is greedy search.

A sentence stops by one of three rules, or at its maximum length, where hypotheses without an end are returned after the
finished ones, marked as such. If the best hypothesis has not ended there, and the maximum was not set by the user, the
search continues up to a second, longer maximum (`SearchConfig.hard_limits`).

    exact        no live hypothesis can come among the n best finished ones any more, by a bound that the score
                 promises: going on would change nothing that is returned
    k_finished   k hypotheses are finished
    first        as many are finished as are asked for

Whatever is dropped, pruned from a step or left behind at the stop, has such a bound too. A finished hypothesis that is
at least as good as the best of these bounds is marked complete: no wider beam finds a better one.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from seqloom.core.errors import UsageError
from seqloom.core.stepping import Source, Step, Stepper
from seqloom.search.candidates import IMPOSSIBLE, Top, dead_end, ranked, top_symbols
from seqloom.search.constraints import Constraint
from seqloom.search.finished import Finished
from seqloom.search.hypothesis import Hypothesis, Ledger, Trail, extend
from seqloom.search.offers import Rules, Standing, columns_of
from seqloom.search.settings import SearchConfig
from seqloom.search.trace import Fate, Recorder

# Which candidates live on when phrases are forced, after the dynamic beam allocation of Post and Vilar (2018).
#
# A forced symbol is often improbable, so the best candidates by probability alone never hold it. The candidates are
# therefore put into banks by how many forced symbols they still miss, and each bank has its own share of the beam.


class Banked(NamedTuple):
    """A candidate: what it still misses (its bank) and log P of all its symbols."""

    missing: int
    log_prob: float


def choose(candidates: Sequence[Banked], beam: int) -> list[int]:
    """The indices of at most `beam` candidates, best first; of equal ones the earlier first. Those at −∞ are out.

        k places, B banks that have candidates, ranked by what they miss, least first
        k ≥ B    each bank gets k // B places; the first k mod B banks get one more
        k < B    place p goes to the bank of rank ⌊p (B − 1) / (k − 1)⌋: the first, the last, and some between them

    Places that a bank cannot fill pass to the bank nearest in what it misses that has candidates left, of two equally
    near ones to the one that misses less. With one bank, as when no phrase is forced, these are the `beam` best.
    """
    order = sorted(range(len(candidates)), key=lambda index: (-candidates[index].log_prob, index))
    banks: dict[int, list[int]] = {}
    for index in order:
        if candidates[index].log_prob > float("-inf"):
            banks.setdefault(candidates[index].missing, []).append(index)
    places = _share(sorted(banks), beam)
    places = _pass_on(places, {missing: len(bank) for missing, bank in banks.items()})
    chosen = {index for missing, bank in banks.items() for index in bank[: places[missing]]}
    return [index for index in order if index in chosen]


def _share(banks: Sequence[int], beam: int) -> dict[int, int]:
    """How many places each bank gets, whatever it can fill."""
    if beam >= len(banks):
        return {bank: beam // len(banks) + (rank < beam % len(banks)) for rank, bank in enumerate(banks)}
    # Were the banks that miss least to get all places, each output would begin with its phrases.
    ranks = {place * (len(banks) - 1) // max(beam - 1, 1) for place in range(beam)}
    return {bank: int(rank in ranks) for rank, bank in enumerate(banks)}


def _pass_on(places: Mapping[int, int], sizes: Mapping[int, int]) -> dict[int, int]:
    """Move places that banks cannot fill to the nearest banks that can."""
    filled = {bank: min(places[bank], sizes[bank]) for bank in places}
    for bank in places:
        spare = max(places[bank] - sizes[bank], 0)
        for _, near in sorted((abs(other - bank), other) for other in places):
            taken = min(spare, sizes[near] - filled[near])
            filled[near] += taken
            spare -= taken
    return filled


Constraints = Sequence[Constraint | None]
"""What each sentence's output must obey, None where it is free."""


@torch.inference_mode()
def beam_search(
    stepper: Stepper,
    source: Source,
    settings: SearchConfig,
    *,
    constraints: Constraints | None = None,
    recorder: Recorder | None = None,
) -> list[list[Hypothesis]]:
    """At most `settings.nbest` hypotheses for each sentence, best first, finished ones before cut ones.

    Of equal candidates the one from the better row and then of the lower symbol comes first, so what stands beside a
    sentence in the batch does not matter. Hypotheses leave the batch as they finish, sentences as they are decided.
    `recorder` is told of every candidate.
    """
    attention: list[Tensor | None] = []
    live = sentences = _sentences(stepper, source, settings, constraints, attention, recorder=recorder)
    rules = Rules(stepper.end, settings.score().end)
    state = stepper.start(source) if sentences else None
    last = source.lengths.new_full((len(sentences),), stepper.begin)
    while live:
        assert state is not None
        step = stepper.step(state, last)
        attention.append(step.attention)
        for sentence, candidates in zip(live, _candidates(live, step, rules, beam=settings.beam), strict=True):
            sentence.advance(candidates)
        live = [sentence for sentence in live if sentence.ways]
        trails = [way.trail for sentence in live for way in sentence.ways if way.trail is not None]
        rows = [trail.row for trail in trails]
        picked = torch.tensor(rows, dtype=torch.long, device=last.device)
        state = step.state if rows == list(range(len(last))) else step.state.select(picked)
        last = torch.tensor([trail.symbol for trail in trails], dtype=torch.long, device=last.device)
    return [sentence.hypotheses() for sentence in sentences]


class _Way(NamedTuple):
    """A live hypothesis: how it came, and how far it is with its constraint."""

    trail: Trail | None = None
    standing: Standing | None = None


class _Candidate(NamedTuple):
    """A live hypothesis (by its row in the batch and its place in the sentence) with one symbol more."""

    value: float
    row: int
    place: int
    symbol: int
    token_log_prob: float


@dataclass
class _Sentence:
    """A sentence on its way: its live hypotheses (none when it is decided) and the best finished ones."""

    number: int
    settings: SearchConfig
    ledger: Ledger
    recorder: Recorder | None
    ways: list[_Way]
    finished: Finished
    is_constrained: bool = False
    cut: list[Trail] = field(default_factory=list)
    dropped: list[tuple[float, int]] = field(default_factory=list)
    """Log-probability and length of what was left behind."""

    def advance(self, candidates: Sequence[_Candidate]) -> None:
        """Take the best of this step's candidates, which come best first, and drop the others."""
        chosen = self._choose(candidates)
        live: list[_Way] = []
        for number, candidate in enumerate(candidates):
            standing = self.ways[candidate.place].standing
            if number not in chosen:
                self._drop(candidate)
                continue
            trail = self._extended(candidate)
            if candidate.symbol == self.ledger.end:
                self._finish(trail)
            else:
                standing = None if standing is None else standing.after(candidate.symbol)
                if standing is None or not standing.constraint.is_over(standing.place):
                    live.append(_Way(trail, standing))
                elif standing.is_missing_something():  # stopped before its forced phrases came
                    self._cut([trail])
                else:
                    self._finish(trail)
        if not live and not self.finished.best and not self.cut:
            self._give_up()
        self._go_on(live)

    def _give_up(self) -> None:
        """Return what there is where no symbol brings the forced phrases on that are still missing."""
        ways = [way for way in self.ways if way.standing is not None and way.standing.is_missing_something()]
        trails = [way.trail for way in ways if way.trail is not None]
        if not trails:
            raise dead_end(self.number, _length_of(self.ways) + 1)
        self._cut(trails)

    def _go_on(self, live: list[_Way]) -> None:
        trails = [way.trail for way in live if way.trail is not None]
        if trails and self.finished.is_cut(max(trails, key=lambda trail: trail.log_prob)):
            self._cut(trails)
            live = []
        elif self.finished.is_decided([trail.log_prob for trail in trails], length=_length_of(live)):
            self.dropped += [(trail.log_prob, trail.length) for trail in trails]
            self._record(trails, "left")
            live = []
        else:
            self._record(trails, "kept")
        self.ways = live

    def _choose(self, candidates: Sequence[_Candidate]) -> Container[int]:
        """The places of those that are kept: the k best, or under forced phrases those that the banks let in."""
        beam = self.settings.beam
        standings = [way.standing for way in self.ways if way.standing is not None]
        if not any(standing.is_missing_something() for standing in standings):
            return range(beam)
        banked = []
        for candidate in candidates:
            before = self.ways[candidate.place].standing
            assert before is not None
            place = before.place if candidate.symbol == self.ledger.end else before.after(candidate.symbol).place
            banked.append(Banked(before.constraint.missing(place), candidate.value))
        return set(choose(banked, beam))

    def _extended(self, candidate: _Candidate) -> Trail:
        before = self.ways[candidate.place].trail
        return extend(before, candidate.symbol, token_log_prob=candidate.token_log_prob, row=candidate.row)

    def _finish(self, trail: Trail) -> None:
        self.finished.add(trail)
        self._record([trail], "finished")

    def _cut(self, trails: Sequence[Trail]) -> None:
        self.cut += trails
        self._record(trails, "cut")

    def _drop(self, candidate: _Candidate) -> None:
        self.dropped.append((candidate.value, _length_of(self.ways) + 1))
        if self.recorder is not None:
            self._record([self._extended(candidate)], "pruned")

    def _is_unbeaten(self, value: float) -> bool:
        """Nothing that was left behind could have come to more, within the maximum length of the settings."""
        if self.finished.has_overrun:
            return False
        return all(self.finished.bound(log_prob, length) <= value for log_prob, length in self.dropped)

    def _record(self, trails: Sequence[Trail], fate: Fate) -> None:
        if self.recorder is not None:
            for trail in trails:
                self.recorder.add(self.number, trail, fate=fate, terms=self.ledger.terms(trail))

    def hypotheses(self) -> list[Hypothesis]:
        found = [
            self.ledger.hypothesis(
                trail,
                is_finished=True,
                is_complete=self._is_unbeaten(value),
                # Constraints that must be met before the end force that end at the last position.
                hit_limit=self.finished.hit_limit or (self.is_constrained and trail.length == self.finished.hard_limit),
            )
            for value, trail in self.finished.best
        ]
        found += [
            self.ledger.hypothesis(trail, is_finished=False, hit_limit=trail.length == self.finished.limit)
            for trail in self.cut
        ]
        return found[: self.settings.nbest]


def _sentences(
    stepper: Stepper,
    source: Source,
    settings: SearchConfig,
    constraints: Constraints | None,
    attention: list[Tensor | None],
    *,
    recorder: Recorder | None,
) -> list[_Sentence]:
    limits, hard_limits, lengths = settings.limits(source), settings.hard_limits(source), source.lengths.tolist()
    bound = [None] * len(limits) if constraints is None else constraints
    if len(bound) != len(limits):
        raise UsageError(f"{len(bound)} constraints were given for {len(limits)} sentences; each sentence needs one")
    ledgers = [Ledger(settings.score(), stepper.end, length, attention) for length in lengths]
    return [
        _Sentence(
            number,
            settings,
            ledger,
            recorder,
            [_Way(None, None if constraint is None else Standing(constraint, constraint.begin()))],
            Finished(limit, hard_limit, settings, ledger),
            is_constrained=constraint is not None,
        )
        for number, (limit, hard_limit, ledger, constraint) in enumerate(
            zip(limits, hard_limits, ledgers, bound, strict=True)
        )
    ]


def _length_of(ways: Sequence[_Way]) -> int:
    return 0 if not ways or ways[0].trail is None else ways[0].trail.length


def _candidates(live: Sequence[_Sentence], step: Step, rules: Rules, *, beam: int) -> list[list[_Candidate]]:
    """The candidates of each sentence that matter, best first.

    No row can place more than its own `beam` best; one more tells the best of what is dropped.
    """
    ways = [way for sentence in live for way in sentence.ways]
    standings = [way.standing for way in ways]
    values = rules.values(
        step,
        length=_length_of(ways) + 1,
        source_lengths=[sentence.ledger.source_length for sentence in live for _ in sentence.ways],
        standings=standings,
    )
    top = top_symbols(step, beam + 1, values=values)
    # Banks choose among all candidates of a sentence; whatever else is dropped, the best of it is enough.
    is_banked = any(each is not None and each.is_missing_something() for each in standings)
    needs_all = is_banked or any(sentence.recorder is not None for sentence in live)
    found = _ranked(live, top, beam=beam, best=beam * (beam + 1) if needs_all else beam + 1)
    return [
        _with_wanted(sentence, candidates, step=step, values=values)
        for sentence, candidates in zip(live, found, strict=True)
    ]


def _with_wanted(sentence: _Sentence, candidates: list[_Candidate], *, step: Step, values: Tensor) -> list[_Candidate]:
    """Besides, symbols that bring a forced phrase on, however improbable they are."""
    if sentence.ways[0].standing is None:
        return candidates
    has = {(candidate.place, candidate.symbol) for candidate in candidates}
    first = min((candidate.row - candidate.place for candidate in candidates), default=0)
    more = []
    for place, way in enumerate(sentence.ways):
        assert way.standing is not None
        wanted = set(way.standing.constraint.wanted(way.standing.place)) - {symbol for at, symbol in has if at == place}
        if not wanted:
            continue
        row, so_far = first + place, 0.0 if way.trail is None else way.trail.log_prob
        for column in columns_of(step.symbols, row, wanted):
            symbol = column if step.symbols is None else int(step.symbols.expand_as(values)[row, column])
            value = so_far + float(values[row, column])
            if value > IMPOSSIBLE:
                more.append(_Candidate(value, row, place, symbol, float(step.log_probs[row, column])))
    return sorted([*candidates, *more], key=lambda candidate: (-candidate.value, candidate.place, candidate.symbol))


def _ranked(live: Sequence[_Sentence], top: Top, *, beam: int, best: int) -> list[list[_Candidate]]:
    """The `best` candidates of each sentence, best first, from those of its rows."""
    device = top.values.device
    so_far = [0.0 if way.trail is None else way.trail.log_prob for sentence in live for way in sentence.ways]
    found = ranked(
        top,
        so_far=torch.tensor(so_far, dtype=torch.float64, device=device),
        sizes=torch.tensor([len(sentence.ways) for sentence in live], device=device),
        beam=beam,
        best=best,
    )
    numbers = torch.stack([found.values, found.log_probs], 2).tolist()
    places_and_symbols = torch.stack([found.rows, found.places, found.symbols], 2).tolist()
    return [
        [
            _Candidate(value, row, place, symbol, log_prob)
            for (value, log_prob), (row, place, symbol) in zip(of_values, of_places, strict=True)
            if value > IMPOSSIBLE
        ]
        for of_values, of_places in zip(numbers, places_and_symbols, strict=True)
    ]
