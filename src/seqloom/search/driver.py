"""The decode loop, the same for every search: a strategy says which candidates continue, the driver does the rest.

    state = start(source)                              one row per sentence
    while rows are left:
        step      = step(state, last symbol of each row)
        values    = log P(y ∣ x, y_<t)                 −∞ where a constraint forbids y; end as the score changes it
        expansion = strategy.choose(rows and values)   candidates: a row with one symbol more
        finished  = chosen candidates that end         scored, the n best are remembered
        rows      = the others                         until a sentence is decided or reaches its maximum length

A search with a beam of five over a hundred sentences decides over five hundred hypotheses at each step. A step is
therefore a column of numbers for all of them, and a hypothesis is its path back through the columns:

    rows_t[r]         the row of the step before that row r of step t continues
    symbols_t[r]      its symbol
    totals_t[r]       log P(y_1 … y_t ∣ x)

Python looks at a sentence only when something of it ends, or to see whether its result is still wanted.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import NamedTuple, Protocol, assert_never, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from seqloom.core.errors import UsageError
from seqloom.core.stepping import NEVER_STOPPED, BeamStepper, Source, State, Step, Stepper
from seqloom.search.candidates import IMPOSSIBLE, DeadEnd, columns_of, forbid, not_a_number, penalise_repetition
from seqloom.search.constraints import Constraints, ConstraintState
from seqloom.search.hypothesis import BackPointer, Hypothesis, Ledger
from seqloom.search.scores import SearchScore
from seqloom.search.settings import SearchConfig
from seqloom.search.trace import Fate, Recorder

Array = np.ndarray


class Continuation(NamedTuple):
    """The row that each new row continues, its symbol, and the state of the rows before."""

    rows: Array
    symbols: Array
    state: State


@torch.inference_mode()
def run(
    stepper: Stepper,
    source: Source,
    advance: Callable[[Step], tuple[Array, Array]],
    *,
    ahead: Callable[[State, Tensor], Continuation | None] | None = None,
) -> None:
    """Step until no row is left. `advance` returns the row that each new row continues, and its symbol.

    `ahead` may take several steps from a state and the last symbols instead; None where it cannot.
    """
    if not len(source.lengths):
        return
    state = stepper.start(source)
    last = source.lengths.new_full((len(source.lengths),), stepper.begin)  # [rows]
    while True:
        taken = None if ahead is None else ahead(state, last)
        if taken is not None:
            rows, symbols, after = taken
            is_same = False
        else:
            step = stepper.step(state, last)
            rows, symbols = advance(step)
            after, is_same = step.state, rows.tolist() == list(range(len(last)))
        if not len(rows):
            return
        state = after if is_same else after.select(torch.from_numpy(rows).to(last.device))
        last = torch.from_numpy(symbols).to(last.device)


@dataclass(frozen=True)
class Cancellation:
    """Ends the search of sentences whose result is no longer wanted."""

    is_cancelled: Callable[[int], bool]
    """Called with the number of each live sentence after each step. What it has found is dropped, its rows leave."""
    on_dropped: Callable[[int], None] = lambda _rows: None
    """Gets the number of rows that leave the batch, after each step at which some do."""
    stop: UInt8[np.ndarray, "1"] | None = None
    """Set to 1 by another thread after `is_cancelled` has changed. With it, `is_cancelled` is called only when it is
    set, and compiled code can take several steps at once; the step that is being computed is then the last."""

    def for_batch(self, numbers: Sequence[int]) -> "Cancellation":
        """The same for a batch whose sentence i is known as `numbers[i]` here."""
        return Cancellation(lambda sentence: self.is_cancelled(numbers[sentence]), self.on_dropped, self.stop)


class Frontier(NamedTuple):  # a tuple, because one is made at each step
    """The live hypotheses of a batch, a row each, and the values by which their next symbols are ranked.

    Hypotheses that compete for the same places are a beam; its rows are side by side. A sentence has one beam or
    several (the groups of a diverse search, or samples), which share its only row at the first step.
    """

    step: Step
    values: Float[Tensor, "rows symbols"]
    totals: Array
    """log P of each row so far."""
    carried: Array
    """The number that the strategy gave each row at the step before; 0 until it gives any."""
    beams: Array
    """The live beams. The k-th beam of sentence s has the number s · beams + k."""
    starts: Array
    """The first row of each live beam."""
    sizes: Array
    """How many rows each live beam has."""
    length: int
    """Symbols that hypotheses have after this step."""
    states: Sequence[ConstraintState | None]
    """How far each row has come with its constraint; empty if no sentence has one."""
    is_traced: bool
    """Whether an expansion should have all candidates that were considered, not only the best of those dropped."""


class Candidate(NamedTuple):
    """A row with one symbol more."""

    value: float
    """What it is ranked by."""
    row: int
    symbol: int
    log_prob: float
    """log P of the symbol by the model."""
    is_kept: bool = True
    """Whether it continues or ends. The others are dropped."""
    carried: float = 0.0
    """A number that it takes along, for the strategy's own use."""


@dataclass(frozen=True)
class Expansion:
    """Candidates of each live beam, in the order in which they continue. Those with a value of −∞ only fill the table.

    All arrays are [beams, candidates] and have what `Candidate` has.
    """

    values: Array
    rows: Array
    symbols: Array
    log_probs: Array
    is_kept: Array | bool = True
    carried: Array | None = None

    @staticmethod
    def of(beams: Sequence[Sequence[Candidate]]) -> "Expansion":
        """The candidates of each live beam as arrays."""
        most, filler = max(1, *map(len, beams)), [Candidate(IMPOSSIBLE, 0, 0, 0.0)]
        flat = [each for beam in beams for each in (*beam, *filler * (most - len(beam)))]
        kinds = (float, np.int64, np.int64, float, bool, float)
        values, rows, symbols, log_probs, is_kept, carried = [
            np.array(numbers, kind).reshape(len(beams), most)
            for numbers, kind in zip(zip(*flat, strict=True), kinds, strict=True)
        ]
        return Expansion(values, rows, symbols, log_probs, True if is_kept.all() else is_kept, carried)

    def candidates(self) -> list[list[Candidate]]:
        """The candidates of each live beam by themselves."""
        is_kept = np.broadcast_to(self.is_kept, self.values.shape)
        tables = (self.values, self.rows, self.symbols, self.log_probs, is_kept)
        beams = zip(*(table.tolist() for table in tables), strict=True)
        return [
            [Candidate(*numbers) for numbers in zip(*beam, strict=True) if numbers[0] > IMPOSSIBLE] for beam in beams
        ]


class Strategy(Protocol):
    """Which candidates continue."""

    @property
    def beams(self) -> int:
        """Beams per sentence."""
        ...

    @property
    def proves_completeness(self) -> bool:
        """Whether everything that an expansion leaves out is at most as good as the best candidate that it drops."""
        ...

    def choose(self, frontier: Frontier) -> Expansion:
        """The candidates of each live beam."""
        ...


@runtime_checkable
class KeepsBest(Protocol):
    """A strategy that keeps the best candidates of each sentence, whatever they are, where nothing is constrained."""

    @property
    def kept(self) -> int:
        """How many it keeps."""
        ...


def search(
    stepper: Stepper,
    source: Source,
    strategy: Strategy,
    settings: SearchConfig,
    *,
    score: SearchScore | None = None,
    limits: Sequence[int] | None = None,
    constraints: Constraints | None = None,
    recorder: Recorder | None = None,
    cancellation: Cancellation | None = None,
) -> list[list[list[Hypothesis]]]:
    """The hypotheses of each beam of each sentence, best first, finished ones before cut ones; none if cancelled.

    A beam returns at most `settings.nbest` of them. `score` and `limits` (the maximum |Y| of each sentence) are those
    of the settings if not given. Hypotheses leave the batch as they finish, sentences as they are decided. `recorder`
    gets every candidate.
    """
    decoding = _Decoding(
        source,
        strategy,
        settings,
        end=stepper.end,
        score=settings.score() if score is None else score,
        limits=limits,
        constraints=constraints,
        recorder=recorder,
        cancellation=cancellation,
    )
    run(stepper, source, decoding.advance, ahead=decoding.ahead_with(stepper))
    found = [decoding.hypotheses(beam) for beam in decoding.beams]
    return [found[first : first + strategy.beams] for first in range(0, len(found), strategy.beams)]


@dataclass
class Finished:
    """The best finished hypotheses of a beam, by score, at most `settings.nbest` of them.

    `limit` is the maximum length. It grows, up to `hard_limit`, as long as the best hypothesis has not ended.
    """

    limit: int
    hard_limit: int
    settings: SearchConfig
    ledger: Ledger
    best: list[tuple[float, BackPointer]] = field(default_factory=list)
    ended: int = 0
    """How many have ended, those that were not good enough included."""
    has_overrun: bool = False
    """Whether the search continued past the maximum length."""
    hit_limit: bool = False
    """Whether the search was cut while its best hypothesis had not ended."""

    def add(self, pointer: BackPointer) -> None:
        """One more has ended."""
        self.ended += 1
        self.best.append((self.ledger.value(pointer), pointer))
        self.best.sort(key=lambda pair: -pair[0])  # stable: of equal ones the earlier stays first
        del self.best[self.settings.nbest :]

    def bound(self, log_prob: float, length: int) -> float:
        """The highest score that a hypothesis of this log-probability and length can reach."""
        return self.ledger.score.bound(log_prob, length, limit=self.limit)

    def is_cut(self, best: BackPointer) -> bool:
        """Whether the beam stops at the maximum length, given the best of its live hypotheses.

        If that one scores higher than all finished ones, the maximum length was too short for this sentence, so the
        search continues with a longer one.
        """
        if best.length < self.limit:
            return False
        self.hit_limit = not self.best or self.ledger.value(best) > self.best[0][0]
        if not self.hit_limit or best.length >= self.hard_limit:
            return True
        self.limit, self.has_overrun, self.hit_limit = best.length + 1, True, False
        return False

    def is_decided(self, live: Sequence[float], *, length: int) -> bool:
        """Whether the beam stops by the rule of the settings. `live` are log-probabilities, all of one length."""
        if len(self.best) < self.settings.nbest:
            return False
        match self.settings.stop:
            case "first":
                return True
            case "k_finished":
                return self.ended >= self.settings.beam
            case "exact":
                worst, _ = self.best[-1]
                return all(self.bound(log_prob, length) <= worst for log_prob in live)
            case _:
                assert_never(self.settings.stop)


@dataclass
class _Column:
    """Rows with one symbol more: the candidates of each beam [beams, candidates], or the live rows [rows]."""

    rows: Array
    symbols: Array
    log_probs: Array
    """Those of the symbols alone."""
    totals: Array

    def of(self, beam: int, length: int, paths: Sequence[BackPointer | None] | None) -> list[BackPointer]:
        """The candidates of a beam; `paths` lead to the rows before, if they are known."""
        tables = (self.symbols[beam], self.log_probs[beam], self.totals[beam], self.rows[beam])
        return [
            BackPointer(None if paths is None else paths[row], symbol, log_prob, total, row, length)
            for symbol, log_prob, total, row in zip(*(table.tolist() for table in tables), strict=True)
        ]

    @cached_property
    def numbers(self) -> list[tuple[int, float, float, int]]:
        """Symbol, log P, total and row before of each row."""
        tables = (self.symbols, self.log_probs, self.totals, self.rows)
        return list(zip(*(table.tolist() for table in tables), strict=True))


@dataclass
class _Beam:
    """Hypotheses of one sentence that compete: what has come of them."""

    sentence: int
    finished: Finished
    is_constrained: bool
    cut: list[BackPointer] = field(default_factory=list)
    dropped: list[tuple[float, int]] = field(default_factory=list)
    """Log-probability and length of the best dropped candidate of each step."""

    def is_unbeaten(self, value: float) -> bool:
        """Whether no dropped candidate could have reached a higher score within the maximum length."""
        if self.finished.has_overrun:
            return False
        return all(self.finished.bound(log_prob, length) <= value for log_prob, length in self.dropped)


class _Decoding:
    """All beams of a batch, step by step."""

    def __init__(
        self,
        source: Source,
        strategy: Strategy,
        settings: SearchConfig,
        *,
        end: int,
        score: SearchScore,
        limits: Sequence[int] | None,
        constraints: Constraints | None,
        recorder: Recorder | None,
        cancellation: Cancellation | None,
    ) -> None:
        self.cancellation = cancellation
        self.strategy, self.settings, self.recorder = strategy, settings, recorder
        self.end, self.end_normalisation = end, score.end
        self.attention: list[Tensor | None] = []
        lengths: list[int] = source.lengths.tolist()
        bound = [None] * len(lengths) if constraints is None else constraints
        if len(bound) != len(lengths):
            raise UsageError(f"got {len(bound)} constraints for {len(lengths)} sentences; each sentence needs one")
        soft, hard = (settings.limits(source), settings.hard_limits(source)) if limits is None else (limits, limits)
        self.beams = [
            _Beam(number, Finished(limit, hard_limit, settings, ledger), constraint is not None)
            for number, (limit, hard_limit, length, constraint) in enumerate(
                zip(soft, hard, lengths, bound, strict=True)
            )
            for ledger in [Ledger(score, end, length, self.attention)]
            for _ in range(strategy.beams)
        ]
        self.columns: list[_Column] = []
        self.live = np.arange(len(self.beams))  # the beams that are not decided
        self.starts = self.live // strategy.beams  # beams of a sentence share its first step
        self.sizes = np.ones(len(self.live), np.int64)
        self.totals = self.carried = np.zeros(len(lengths))
        self.states: list[ConstraintState | None] = []
        if any(constraint is not None for constraint in bound):
            self.states = [None if each is None else ConstraintState(each, each.begin()) for each in bound]
        self.paths: list[BackPointer | None] | None = None if recorder is None else [None] * len(lengths)
        self.source_lengths = np.array(lengths, np.int64)
        self.history = np.empty((len(lengths), 0), np.int64) if settings.repetition_penalty != 1 else None
        """The symbols of each row so far, where they matter."""
        self.limits = np.array([beam.finished.limit for beam in self.beams], np.int64)
        self.may_stop = np.zeros(len(self.beams), bool)  # whether enough hypotheses have ended for the stop rule
        is_plain = not self.states and recorder is None
        self.quiet_until = min(self.limits.tolist(), default=0) if is_plain else 0
        """The length before which no beam has to be decided as long as nothing of it ends."""

    def advance(self, step: Step) -> tuple[Array, Array]:
        """Let the strategy choose, retire what ends; the rows that continue."""
        self.attention.append(step.attention)
        length, values = len(self.attention), self._values(step)
        beams = (self.live, self.starts, self.sizes)
        expansion = self.strategy.choose(
            Frontier(step, values, self.totals, self.carried, *beams, length, self.states, self.recorder is not None)
        )
        return self._take(expansion)

    def ahead_with(self, stepper: Stepper) -> Callable[[State, Tensor], Continuation | None] | None:
        """How the stepper takes the steps in which nothing ends by itself; None if the strategy has to choose."""
        strategy = self.strategy
        is_plain = not self.states and self.recorder is None and self.end_normalisation is None
        is_plain &= self.history is None
        if not (is_plain and isinstance(stepper, BeamStepper) and isinstance(strategy, KeepsBest)):
            return None
        return partial(self._step_ahead, stepper, strategy.kept)

    def _step_ahead(self, stepper: BeamStepper, kept: int, state: State, last: Tensor) -> Continuation | None:
        """Take what the stepper finds until something ends, and retire that."""
        length = len(self.attention)
        steps, stop = max(1, self.quiet_until - length), NEVER_STOPPED
        if self.cancellation is not None and self.cancellation.stop is None:
            steps = 1
        elif self.cancellation is not None and self.cancellation.stop is not None:
            stop = self.cancellation.stop
        never = self.settings.never
        found = stepper.step_beams(state, last, totals=self.totals, beam=kept, steps=steps, stop=stop, never=never)
        if found is None:
            return None
        if found.not_a_number >= 0:
            raise not_a_number(found.not_a_number, found.last_rows)
        *quiet, final = zip(found.values, found.rows, found.symbols, found.log_probs, strict=True)
        for values, *tables in quiet:  # [sentences, candidates] each
            length += 1
            rows, symbols, log_probs = (table[:, :kept].ravel() for table in tables)
            self.columns.append(_Column(rows, symbols, log_probs, values[:, :kept].ravel()))
            self.attention.append(None)
            for number, value in zip(self.live.tolist(), values[:, kept].tolist(), strict=True):
                if value > IMPOSSIBLE:
                    self.beams[number].dropped.append((value, length))
        if quiet:
            self.totals = self.columns[-1].totals
            self.sizes = np.full(len(self.live), kept)
            self.starts = np.arange(0, len(self.totals), kept)
        self.attention.append(None)
        return Continuation(*self._take(Expansion(*final, np.arange(kept + 1) < kept)), found.state)

    def _take(self, expansion: Expansion) -> tuple[Array, Array]:
        """Retire what ends among the candidates; the rows that continue."""
        length = len(self.attention)
        rows, symbols, log_probs = expansion.rows, expansion.symbols, expansion.log_probs  # [beams, candidates]
        totals = self.totals[rows] + log_probs
        is_there, ends = expansion.values > IMPOSSIBLE, symbols == self.end
        if expansion.is_kept is True and length < self.quiet_until and is_there.all() and not ends.any():
            column = _Column(rows.ravel(), symbols.ravel(), log_probs.ravel(), totals.ravel())
            carried = None if expansion.carried is None else expansion.carried.ravel()
            if rows.size != len(rows) or len(rows) != len(self.totals):  # else each beam still has one row
                self.sizes = np.full(len(rows), rows.shape[1])
                self.starts = np.arange(0, rows.size, rows.shape[1])
        else:
            lives = self._retire(_Column(rows, symbols, log_probs, totals), expansion, is_there, ends)
            column = _Column(rows[lives], symbols[lives], log_probs[lives], totals[lives])
            carried = None if expansion.carried is None else expansion.carried[lives]
        if self.cancellation is not None and (is_left := self._leave_cancelled(self.cancellation)) is not None:
            column = _Column(
                *(table[is_left] for table in (column.rows, column.symbols, column.log_probs, column.totals))
            )
            carried = None if carried is None else carried[is_left]
        self.columns.append(column)
        self.totals = column.totals
        if carried is not None:
            self.carried = carried
        if self.end_normalisation is not None:
            self.source_lengths = self.source_lengths[column.rows]
        if self.history is not None:
            self.history = np.concatenate([self.history[column.rows], column.symbols[:, None]], 1)
        return column.rows, column.symbols

    def _retire(self, candidates: _Column, expansion: Expansion, is_there: Array, ends: Array) -> Array:
        """Take what ends, and leave the beams that are over; True where a candidate continues [beams, candidates]."""
        length, recorder = len(self.attention), self.recorder
        kept = is_there if expansion.is_kept is True else expansion.is_kept & is_there
        ends = kept & ends
        lives: Array = kept & ~ends
        if self.strategy.proves_completeness:
            dropped = np.where(is_there & ~kept, expansion.values, IMPOSSIBLE).max(1, initial=IMPOSSIBLE)
            for number, value in zip(self.live.tolist(), dropped.tolist(), strict=True):
                if value > IMPOSSIBLE:
                    self.beams[number].dropped.append((value, length))
        states, cuts = self._follow_constraints(candidates, ends, lives) if self.states else ({}, None)
        # Of most sentences nothing ends at a step, and nothing has to be decided.
        sizes = lives.sum(1)
        is_asked = ends.any(1) | (sizes == 0) | self.may_stop[self.live] | (self.limits[self.live] <= length)
        if cuts is not None:
            is_asked |= cuts.any(1)
        over: list[int] = []
        paths: list[BackPointer | None] = []
        for at in range(len(sizes)) if recorder is not None else is_asked.nonzero()[0].tolist():
            beam = self.beams[self.live[at]]
            pointers = candidates.of(at, length, self.paths)
            ended, others = ([pointers[one] for one in each[at].nonzero()[0].tolist()] for each in (ends, lives))
            if cuts is not None:
                beam.cut += [pointers[one] for one in cuts[at].nonzero()[0].tolist()]
            if recorder is not None:
                for one in (is_there[at] & ~lives[at]).nonzero()[0].tolist():
                    is_cut = cuts is not None and cuts[at, one]
                    self._record(beam, pointers[one], "finished" if ends[at, one] else "cut" if is_cut else "pruned")
            fate = self._decide(at, ended, others)
            if recorder is not None:
                for pointer in others:
                    self._record(beam, pointer, fate)
            if fate == "kept":
                paths += others
            else:
                over.append(at)
        if over:
            lives[over], sizes[over] = False, 0
        self.live, self.sizes = self.live[sizes > 0], sizes[sizes > 0]
        self.starts = self.sizes.cumsum() - self.sizes
        if self.states:
            self.states = [states.get(each) for each in np.flatnonzero(lives).tolist()]
        if recorder is not None:
            self.paths = paths
        elif not self.states:
            is_quiet = len(self.live) and not self.may_stop[self.live].any()
            self.quiet_until = int(self.limits[self.live].min()) if is_quiet else 0
        return lives

    def _leave_cancelled(self, cancellation: Cancellation) -> Array | None:
        """Leave the beams of cancelled sentences. True where a row stays; None if all do."""
        if cancellation.stop is not None:
            if not cancellation.stop[0]:
                return None
            cancellation.stop[0] = 0  # before asking: what changes from here on sets it again
        sentences = self.live // self.strategy.beams
        cancelled = [each for each in np.unique(sentences).tolist() if cancellation.is_cancelled(each)]
        if not cancelled:
            return None
        for sentence in cancelled:
            for beam in self.beams[sentence * self.strategy.beams : (sentence + 1) * self.strategy.beams]:
                beam.finished.best.clear()
                beam.cut.clear()
        stays = ~np.isin(sentences, cancelled)  # [live beams]
        is_left: Array = stays.repeat(self.sizes)  # [rows]
        self.live, self.sizes = self.live[stays], self.sizes[stays]
        self.starts = self.sizes.cumsum() - self.sizes
        if self.states:
            self.states = [self.states[row] for row in is_left.nonzero()[0].tolist()]
        if self.paths is not None:
            self.paths = [self.paths[row] for row in is_left.nonzero()[0].tolist()]
        cancellation.on_dropped(len(is_left) - int(is_left.sum()))
        return is_left

    def _values(self, step: Step) -> Float[Tensor, "rows symbols"]:
        """What the symbols of each row are ranked by."""
        values = step.log_probs
        if self.end_normalisation is not None:
            length = len(self.attention)
            if step.symbols is None:
                ends = torch.zeros_like(values, dtype=torch.bool)  # [rows, symbols]
                ends[:, self.end] = True
            else:
                ends = (step.symbols == self.end).expand_as(values)
            sources = torch.from_numpy(self.source_lengths).to(values)[:, None].expand_as(values)
            values = torch.where(ends, self.end_normalisation.changed(values, sources, length=length), values)
        if self.settings.never or self.history is not None:
            changed = replace(step, log_probs=values.clone())
            if self.history is not None:
                penalise_repetition(changed, self.history, self.settings.repetition_penalty)
            if self.settings.never:
                forbid(changed, self.settings.never)
            values = changed.log_probs
        if not any(self.states):
            return values
        values = values.clone()
        rows: list[int] = []
        columns: list[int] = []
        for row, state in enumerate(self.states):
            if state is None:
                continue
            allowed = state.constraint.allowed(state.state)
            if allowed is not None:
                left = columns_of(step.symbols, row, allowed)
                kept = values[row, left]
                values[row] = IMPOSSIBLE
                values[row, left] = kept
            banned = columns_of(step.symbols, row, state.constraint.forbidden(state.state))
            rows += [row] * len(banned)
            columns += banned
        if rows:  # at these places alone, for they are few in a large table
            values[rows, columns] = IMPOSSIBLE
        return values

    def _follow_constraints(
        self, candidates: _Column, ends: Array, lives: Array
    ) -> tuple[dict[int, ConstraintState | None], Array]:
        """The constraint state of each live candidate (by its number in the flat table), and which are cut.

        Where a constraint stops the output, it ends, or is cut if forced symbols are missing; `ends` and `lives` change
        accordingly.
        """
        states: dict[int, ConstraintState | None] = {}
        cuts = np.zeros_like(lives)
        rows, symbols = candidates.rows.ravel().tolist(), candidates.symbols.ravel().tolist()
        for number in np.flatnonzero(lives).tolist():
            before = self.states[rows[number]]
            if before is None:
                continue
            state = states[number] = before.after(symbols[number])
            if state.constraint.is_over(state.state):
                lives.flat[number] = False
                (cuts if state.is_missing_something() else ends).flat[number] = True
        return states, cuts

    def _decide(self, at: int, ended: Sequence[BackPointer], lives: Sequence[BackPointer]) -> Fate:
        """Take what has ended. Whether the others of this beam are kept, cut at the maximum length or left behind."""
        number, length = int(self.live[at]), len(self.attention)
        beam = self.beams[number]
        finished = beam.finished
        needs_path = finished.ledger.score.needs_attention  # summed up along it; others only need the last symbol
        for pointer in ended:
            finished.add(self._path(pointer) if needs_path else pointer)
        self.may_stop[number] = len(finished.best) >= self.settings.nbest
        if not lives:
            if not finished.best and not beam.cut:
                self._give_up(at)
            return "left"
        if length >= self.limits[number]:
            best = max(lives, key=lambda pointer: pointer.log_prob)
            if finished.is_cut(self._path(best) if needs_path else best):
                beam.cut += lives
                return "cut"
        totals = [pointer.log_prob for pointer in lives]
        if finished.is_decided(totals, length=length):
            beam.dropped += [(total, length) for total in totals]
            return "left"
        return "kept"

    def _give_up(self, at: int) -> None:
        """Cut the hypotheses of a beam whose forced phrases no symbol can continue; an error if there are none."""
        beam, length = self.beams[self.live[at]], len(self.attention)
        rows = range(self.starts[at], self.starts[at] + self.sizes[at])
        stuck = [row for row in rows if self.states and (state := self.states[row]) and state.is_missing_something()]
        if not stuck or not self.columns:
            raise DeadEnd(beam.sentence, length)
        for row in stuck:
            pointer = self._path(BackPointer(None, *self.columns[-1].numbers[row], length - 1))
            beam.cut.append(pointer)
            self._record(beam, pointer, "cut")

    def _path(self, pointer: BackPointer) -> BackPointer:
        """The same hypothesis with all symbols before the last."""
        if pointer.before is not None:
            return pointer
        links, row = [], pointer.row
        for column in reversed(self.columns[: pointer.length - 1]):
            links.append(column.numbers[row])
            row = links[-1][-1]
        path: BackPointer | None = None
        for length, numbers in enumerate(reversed(links), start=1):
            path = BackPointer(path, *numbers, length)
        return pointer._replace(before=path)

    def hypotheses(self, beam: _Beam) -> list[Hypothesis]:
        """What was found for a beam, best first: finished ones before cut ones."""
        finished, proves = beam.finished, self.strategy.proves_completeness and self.history is None
        found = [
            finished.ledger.hypothesis(
                self._path(pointer),
                is_finished=True,
                is_complete=proves and beam.is_unbeaten(value),
                # Constraints that must be met before the end force that end at the last position.
                hit_limit=finished.hit_limit or (beam.is_constrained and pointer.length == finished.hard_limit),
            )
            for value, pointer in finished.best
        ]
        return found + [
            finished.ledger.hypothesis(
                self._path(pointer), is_finished=False, hit_limit=pointer.length == finished.limit
            )
            for pointer in beam.cut[: self.settings.nbest - len(found)]
        ]

    def _record(self, beam: _Beam, path: BackPointer, fate: Fate) -> None:
        if self.recorder is not None:
            self.recorder.add(beam.sentence, path, fate=fate, terms=beam.finished.ledger.terms(path))
