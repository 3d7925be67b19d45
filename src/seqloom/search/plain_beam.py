"""Beam search without constraints, in columns: what `search.beam` does, for hundreds of sentences at once.

A search with a beam of five over a hundred sentences decides over five hundred hypotheses at each step. Here a step is
a column of numbers for all of them, and a hypothesis is its way back through the columns:

    rows_t[r]                the row of the step before that row r of step t goes on
    symbols_t[r]             its symbol
    totals_t[r]              log P(y_1 … y_t ∣ x)

Python looks at a sentence only when something of it ends. `search.beam` says what is found, and why.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from seqloom.core.stepping import Source, Step, Stepper
from seqloom.search.candidates import IMPOSSIBLE, dead_end, ranked, top_symbols
from seqloom.search.finished import Finished
from seqloom.search.hypothesis import Hypothesis, Ledger, Trail, extend
from seqloom.search.offers import Rules
from seqloom.search.settings import SearchConfig

Array = np.ndarray


@torch.inference_mode()
def plain_beam_search(stepper: Stepper, source: Source, settings: SearchConfig) -> list[list[Hypothesis]]:
    """What `search.beam.beam_search` gives for the same settings."""
    limits, hard_limits = settings.limits(source), settings.hard_limits(source)
    lengths, score = source.lengths.tolist(), settings.score()
    attention: list[Tensor | None] = []
    ledgers = [Ledger(score, stepper.end, length, attention) for length in lengths]
    sentences = [
        _Sentence(number, Finished(limit, hard_limit, settings, ledger))
        for number, (limit, hard_limit, ledger) in enumerate(zip(limits, hard_limits, ledgers, strict=True))
    ]
    search = _Search(settings, Rules(stepper.end, score.end), sentences)
    state = stepper.start(source) if sentences else None
    last = source.lengths.new_full((len(sentences),), stepper.begin)
    while len(search.live):
        assert state is not None
        step = stepper.step(state, last)
        attention.append(step.attention)
        column = search.advance(step)
        is_same = np.array_equal(column.rows, np.arange(len(last)))
        state = step.state if is_same else step.state.select(_tensor(column.rows, like=last))
        last = _tensor(column.symbols, like=last)
    return [search.hypotheses(sentence) for sentence in sentences]


@dataclass(frozen=True)
class _Column:
    """Rows with one symbol more: the candidates of each sentence, or the live ones, sentence after sentence."""

    rows: Array
    symbols: Array
    log_probs: Array
    """Those of the symbols alone."""
    totals: Array

    def of(self, places: int | slice, chosen: Array) -> "_Column":
        """The chosen ones of the first candidates of some sentences."""
        tables = (self.rows, self.symbols, self.log_probs, self.totals)
        return _Column(*(table[places, ..., : chosen.shape[-1]][chosen] for table in tables))

    def link(self, at: int) -> Trail:
        """One row by itself."""
        numbers = (self.symbols[at], self.log_probs[at], self.totals[at], self.rows[at])
        symbol, log_prob, total, row = (number.item() for number in numbers)
        return Trail(None, symbol, log_prob, total, row, length=1)


@dataclass
class _Sentence:
    """What has come of a sentence."""

    number: int
    finished: Finished
    cut: list[Trail] = field(default_factory=list)
    dropped: list[tuple[float, int]] = field(default_factory=list)
    """Log-probability and length of what was left behind, the best of each step."""

    def is_unbeaten(self, value: float) -> bool:
        """Nothing that was left behind could have come to more, within the maximum length of the settings."""
        if self.finished.has_overrun:
            return False
        return all(self.finished.bound(log_prob, length) <= value for log_prob, length in self.dropped)


class _Search:
    """All sentences of a batch, step by step. `live` are the numbers of those that are not decided."""

    def __init__(self, settings: SearchConfig, rules: Rules, sentences: Sequence[_Sentence]) -> None:
        self.settings = settings
        self.rules = rules
        self.sentences = sentences
        self.columns: list[_Column] = []
        self.live = np.arange(len(sentences))
        self.sizes = np.ones(len(sentences), np.int64)
        """How many rows each live sentence has."""
        self.limits = np.array([sentence.finished.limit for sentence in sentences], np.int64)
        self.may_stop = np.zeros(len(sentences), bool)
        """Whether enough hypotheses of a sentence have ended to ask if it is decided."""
        self.source_lengths = np.array([sentence.finished.ledger.source_length for sentence in sentences], np.int64)

    @property
    def length(self) -> int:
        """How many symbols the live rows have."""
        return len(self.columns)

    def advance(self, step: Step) -> _Column:
        """Take the best candidates of each sentence; the rows that go on."""
        beam, length = self.settings.beam, self.length + 1
        before = self.columns[-1].totals if self.columns else np.zeros(len(self.live))
        values, candidates = self._candidates(step, before, length)
        is_there = values > IMPOSSIBLE
        ends = is_there[:, :beam] & (candidates.symbols[:, :beam] == self.rules.end)
        lives = is_there[:, :beam] & ~ends
        if values.shape[1] > beam:
            for place in is_there[:, beam].nonzero()[0].tolist():
                self.sentences[self.live[place]].dropped.append((float(values[place, beam]), length))
        # Of most sentences nothing ends at a step, and nothing has to be decided.
        is_asked = ends.any(1) | ~lives.any(1) | self.may_stop[self.live] | (self.limits[self.live] <= length)
        for place in is_asked.nonzero()[0].tolist():
            number = int(self.live[place])
            self._end(number, candidates.of(place, ends[place]))
            if self._is_over(number, candidates.of(place, lives[place])):
                lives[place] = False
        sizes = lives.sum(1)
        self.live, self.sizes = self.live[sizes > 0], sizes[sizes > 0]
        column = candidates.of(slice(None), lives)
        self.columns.append(column)
        return column

    def _candidates(self, step: Step, before: Array, length: int) -> tuple[Array, _Column]:
        """Values and candidates of each sentence, best first: those that are kept and the best of what is dropped."""
        beam, device = self.settings.beam, step.log_probs.device
        values = self.rules.values(
            step,
            length=length,
            source_lengths=np.repeat(self.source_lengths[self.live], self.sizes).tolist(),
            standings=(),
        )
        found = ranked(
            top_symbols(step, beam + 1, values=values),
            so_far=torch.from_numpy(before).to(device),
            sizes=torch.from_numpy(self.sizes).to(device),
            beam=beam,
            best=beam + 1,
        )
        rows, log_probs = found.rows.cpu().numpy(), found.log_probs.cpu().numpy()
        return found.values.cpu().numpy(), _Column(
            rows, found.symbols.cpu().numpy(), log_probs, before[rows] + log_probs
        )

    def _end(self, number: int, ended: _Column) -> None:
        finished = self.sentences[number].finished
        for trail in self._trails(ended):
            # Attention is summed up along the way; any other score knows all that it needs from the last symbol.
            finished.add(self._whole(trail) if finished.ledger.score.needs_attention else trail)
        self.may_stop[number] = len(finished.best) >= self.settings.nbest

    def _is_over(self, number: int, lives: _Column) -> bool:
        """Whether a sentence does not go on: cut at its limit, or decided."""
        sentence, length = self.sentences[number], self.length + 1
        if not len(lives.rows):
            if not sentence.finished.best:
                raise dead_end(number, length)
        elif length >= self.limits[number] and sentence.finished.is_cut(self._best(lives, sentence.finished)):
            sentence.cut += self._trails(lives)
        elif sentence.finished.is_decided(lives.totals.tolist(), length=length):
            sentence.dropped += [(total, length) for total in lives.totals.tolist()]
        else:
            return False
        return True

    def _best(self, lives: _Column, finished: Finished) -> Trail:
        best = max(self._trails(lives), key=lambda trail: trail.log_prob)
        return self._whole(best) if finished.ledger.score.needs_attention else best

    def _trails(self, column: _Column) -> list[Trail]:
        """The last link of each row of the column that is to come."""
        tables = (column.symbols, column.log_probs, column.totals, column.rows)
        return [
            Trail(None, symbol, log_prob, total, row, self.length + 1)
            for symbol, log_prob, total, row in zip(*(table.tolist() for table in tables), strict=True)
        ]

    def _whole(self, trail: Trail) -> Trail:
        """The same with all links before it."""
        way, row = [trail], trail.row
        for column in reversed(self.columns[: trail.length - 1]):
            way.append(column.link(row))
            row = way[-1].row
        whole = None
        for link in reversed(way):
            whole = extend(whole, link.symbol, token_log_prob=link.token_log_prob, row=link.row)
        assert whole is not None
        return whole

    def hypotheses(self, sentence: _Sentence) -> list[Hypothesis]:
        """What was found for a sentence, best first: finished ones before cut ones."""
        ledger, nbest = sentence.finished.ledger, self.settings.nbest
        best = sentence.finished.best[:nbest]
        found = [
            ledger.hypothesis(
                self._whole(trail),
                is_finished=True,
                is_complete=sentence.is_unbeaten(value),
                hit_limit=sentence.finished.hit_limit,
            )
            for value, trail in best
        ]
        cut = sentence.cut[: nbest - len(best)]
        return found + [ledger.hypothesis(self._whole(trail), is_finished=False, hit_limit=True) for trail in cut]


def _tensor(numbers: Array, like: Tensor) -> Tensor:
    return torch.from_numpy(numbers).to(like.device)
