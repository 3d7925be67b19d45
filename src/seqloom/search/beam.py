"""Beam search: keep the k best of all continuations.

    candidates = {(y_1 … y_t, y) : y_1 … y_t a live hypothesis, y any symbol}
    kept       = the k candidates of highest log P(y_1 … y_t y ∣ x)
    live       = those of them that do not end; the others are finished

Candidates of one step have one length, so a length normalisation ranks them as log P does; it matters where finished
hypotheses of different lengths meet. A candidate that ends uses up a place of its step, hence k = 1 is greedy search.

A sentence stops by one of three rules, or at its maximum length, where hypotheses without an end are returned after the
finished ones, marked as such. If the best hypothesis has not ended there, and the maximum was not set by the user, the
search continues up to a second, longer maximum (`SearchConfig.hard_limits`).

    exact        no live hypothesis can still come among the n best finished ones, by a bound that the score
                 promises: continuing would change nothing that is returned
    k_finished   k hypotheses are finished
    first        as many are finished as are requested

Everything that is dropped, at a step or when the sentence stops, has such a bound too. A finished hypothesis that is
at least as good as the best of these bounds is marked complete: no wider beam finds a better one.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from seqloom.core.stepping import Source, Stepper
from seqloom.search.candidates import IMPOSSIBLE, columns_of, ranked, top_symbols
from seqloom.search.constraints import Constraints
from seqloom.search.driver import Candidate, Expansion, Frontier, search
from seqloom.search.hypothesis import Hypothesis
from seqloom.search.scores import SearchScore
from seqloom.search.settings import SearchConfig
from seqloom.search.trace import Recorder


def beam_search(
    stepper: Stepper,
    source: Source,
    settings: SearchConfig,
    *,
    score: SearchScore | None = None,
    constraints: Constraints | None = None,
    recorder: Recorder | None = None,
) -> list[list[Hypothesis]]:
    """At most `settings.nbest` hypotheses for each sentence, best first, finished ones before cut ones.

    Of equal candidates the one from the better row and then of the lower symbol comes first, so the other sentences of
    the batch do not matter. `score` replaces that of the settings; `recorder` gets every candidate.
    """
    strategy = BeamSearch(settings.beam, stepper.end)
    found = search(stepper, source, strategy, settings, score=score, constraints=constraints, recorder=recorder)
    return [beam for [beam] in found]


@dataclass(frozen=True)
class BeamSearch:
    """The k best candidates of each sentence; under forced phrases, those that the banks below let in."""

    beam: int
    end: int
    beams: int = 1
    proves_completeness: bool = True

    @property
    def kept(self) -> int:
        return self.beam

    def choose(self, frontier: Frontier) -> Expansion:
        # No row can place more than its own `beam` best; one more shows the best of what is dropped.
        top = top_symbols(frontier.step, self.beam + 1, values=frontier.values)
        is_missing = [state is not None and state.is_missing_something() for state in frontier.states]
        found = ranked(
            top,
            so_far=torch.from_numpy(frontier.totals).to(top.values.device),
            sizes=torch.from_numpy(frontier.sizes).to(top.values.device),
            beam=self.beam,
            # Banks choose among all candidates of a sentence.
            best=self.beam * (self.beam + 1) if frontier.is_traced or any(is_missing) else self.beam + 1,
        )
        tables = (found.values, found.rows, found.symbols, found.log_probs)  # [sentences, candidates] each
        values, rows, symbols, log_probs = (table.cpu().numpy() for table in tables)
        expansion = Expansion(values, rows, symbols, log_probs, np.arange(values.shape[1]) < self.beam)
        return self._with_forced(expansion, frontier, is_missing) if any(is_missing) else expansion

    def _with_forced(self, expansion: Expansion, frontier: Frontier, is_missing: Sequence[bool]) -> Expansion:
        """The expansion with the symbols that forced phrases need, however improbable, and with places by banks."""
        beams = expansion.candidates()
        for place, (start, size) in enumerate(zip(frontier.starts.tolist(), frontier.sizes.tolist(), strict=True)):
            rows = range(start, start + size)
            if not any(is_missing[row] for row in rows):
                continue
            found = [*beams[place], *_wanted(frontier, rows, {(each.row, each.symbol) for each in beams[place]})]
            found.sort(key=lambda each: (-each.value, each.row, each.symbol))
            banked = []
            for value, row, symbol, *_ in found:
                state = frontier.states[row]
                assert state is not None
                constraint, at = state
                banked.append(
                    Banked(constraint.missing(at if symbol == self.end else constraint.after(at, symbol)), value)
                )
            chosen = set(share_beam(banked, self.beam))
            beams[place] = [Candidate(*each[:4], number in chosen) for number, each in enumerate(found)]
        return Expansion.of(beams)


def _wanted(frontier: Frontier, rows: range, known: Container[tuple[int, int]]) -> Iterator[Candidate]:
    """Candidates beyond the known ones (row, symbol) that continue a forced phrase."""
    step, values = frontier.step, frontier.values
    for row in rows:
        state = frontier.states[row]
        assert state is not None
        wanted = {symbol for symbol in state.constraint.wanted(state.state) if (row, symbol) not in known}
        for column in columns_of(step.symbols, row, wanted):
            symbol = column if step.symbols is None else int(step.symbols.expand_as(values)[row, column])
            value = float(frontier.totals[row]) + float(values[row, column])
            if value > IMPOSSIBLE:
                yield Candidate(value, row, symbol, float(step.log_probs[row, column]))


# Which candidates continue when phrases are forced, after the dynamic beam allocation of Post and Vilar (2018).
#
# A forced symbol is often improbable, so the best candidates by probability alone never hold it. The candidates are
# therefore put into banks by how many forced symbols they still miss, and each bank has its own share of the beam.


class Banked(NamedTuple):
    """A candidate: what it still misses (its bank) and log P of all its symbols."""

    missing: int
    log_prob: float


def share_beam(candidates: Sequence[Banked], beam: int) -> list[int]:
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
