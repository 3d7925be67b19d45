"""Beam search: keep the k best of all ways to go on.

    candidates = {(y_1 … y_t, y) : y_1 … y_t a live hypothesis, y any symbol}
    picked     = the k candidates of highest log P(y_1 … y_t y ∣ x)
    live       = those of them that do not end; the others are finished

Candidates of one step have one length, so a length normalisation ranks them as log P does; it matters where finished
hypotheses of different lengths meet. A candidate that ends uses up a place of its step, hence k = 1 is greedy search.
A sentence is decided when no live hypothesis can come among the n best finished ones any more, by a bound that the
score promises: going on would change nothing that is returned. It also stops at its maximum length, where
hypotheses without an end are returned after the finished ones, marked as such.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from seqloom.core.stepping import Source, Stepper
from seqloom.search.hypothesis import Hypothesis
from seqloom.search.scores import Score, score_of
from seqloom.search.settings import SearchConfig
from seqloom.search.top import Top, dead_end, top_symbols
from seqloom.search.trail import Trail, extend, hypothesis_of


@torch.inference_mode()
def beam_search(stepper: Stepper, source: Source, settings: SearchConfig) -> list[list[Hypothesis]]:
    """At most `settings.nbest` hypotheses for each sentence, best first, finished ones before cut ones.

    Of equal candidates the one from the better row and then of the lower symbol comes first, so what stands beside a
    sentence in the batch does not matter. Hypotheses leave the batch as they finish, sentences as they are decided.
    """
    limits, score = settings.limits(source), settings.score()
    if not limits:
        return []
    sentences = [_Sentence(number, limit, settings.nbest, score) for number, limit in enumerate(limits)]
    live = sentences
    attention: list[Tensor | None] = []
    state = stepper.start(source)
    last = source.lengths.new_full((len(limits),), stepper.begin)
    while live:
        step = stepper.step(state, last)
        attention.append(step.attention)
        picks = _best_candidates(live, top_symbols(step, settings.beam), settings.beam)
        for sentence, candidates in zip(live, picks, strict=True):
            sentence.advance(candidates, end=stepper.end, length=len(attention))
        live = [sentence for sentence in live if sentence.trails]
        trails = [trail for sentence in live for trail in sentence.trails if trail is not None]
        rows = [trail.row for trail in trails]
        picked = torch.tensor(rows, dtype=torch.long, device=last.device)
        state = step.state if rows == list(range(len(last))) else step.state.select(picked)
        last = torch.tensor([trail.symbol for trail in trails], dtype=torch.long, device=last.device)
    widths = source.lengths.tolist()
    return [sentence.hypotheses(attention, widths[sentence.number]) for sentence in sentences]


class _Candidate(NamedTuple):
    """A live hypothesis (by its row in the batch and its place in the sentence) with one symbol more."""

    row: int
    place: int
    symbol: int
    token_log_prob: float


@dataclass
class _Sentence:
    """A sentence on its way: its live hypotheses (none when it is decided) and the best finished ones."""

    number: int
    limit: int
    nbest: int
    score: Score
    trails: list[Trail | None] = field(default_factory=lambda: [None])
    finished: list[tuple[float, Trail]] = field(default_factory=list)
    cut: list[Trail] = field(default_factory=list)

    def advance(self, candidates: Sequence[_Candidate], *, end: int, length: int) -> None:
        """Take the picked candidates of this step, after which hypotheses have `length` symbols."""
        live: list[Trail] = []
        for candidate in candidates:
            before = self.trails[candidate.place]
            trail = extend(before, candidate.symbol, token_log_prob=candidate.token_log_prob, row=candidate.row)
            if trail.symbol == end:
                self._finish(trail)
            else:
                live.append(trail)
        if not live and not self.finished:
            raise dead_end(self.number, length)
        if length == self.limit:
            self.cut, live = live, []
        self.trails = [] if self._is_decided(live) else [*live]

    def _finish(self, trail: Trail) -> None:
        value = score_of(self.score.terms(trail.log_prob, trail.length))
        self.finished.append((value, trail))
        self.finished.sort(key=lambda pair: -pair[0])  # stable: of equal ones the earlier stays first
        del self.finished[self.nbest :]

    def _is_decided(self, live: Sequence[Trail]) -> bool:
        if len(self.finished) < self.nbest:
            return not live
        worst, _ = self.finished[-1]
        return all(self.score.bound(trail.log_prob, trail.length, self.limit) <= worst for trail in live)

    def hypotheses(self, attention: Sequence[Tensor | None], width: int) -> list[Hypothesis]:
        ranked = [(trail, True) for _, trail in self.finished] + [(trail, False) for trail in self.cut]
        return [
            hypothesis_of(trail, is_finished=is_finished, score=self.score, attention=attention, width=width)
            for trail, is_finished in ranked[: self.nbest]
        ]


def _best_candidates(live: Sequence[_Sentence], top: Top, beam: int) -> list[list[_Candidate]]:
    """The `beam` best candidates of each sentence, best first.

    No row can place more than its own `beam` best, so a grid of [sentences, beam · beam] holds all that matter.
    Sentences have different numbers of live rows; empty places of the grid are −∞, as forbidden symbols are.
    """
    device = top.log_probs.device
    rows, best = top.log_probs.shape
    so_far = [0.0 if trail is None else trail.log_prob for sentence in live for trail in sentence.trails]
    sizes = torch.tensor([len(sentence.trails) for sentence in live], device=device)
    starts = sizes.cumsum(0) - sizes
    owner = torch.repeat_interleave(torch.arange(len(live), device=device), sizes)
    place = torch.arange(rows, device=device) - starts[owner]

    grid = torch.full((len(live), beam, best), float("-inf"), dtype=torch.float64, device=device)
    log_probs = top.log_probs.double()
    grid[owner, place] = torch.tensor(so_far, dtype=torch.float64, device=device)[:, None] + log_probs
    values, order = grid.flatten(1).sort(dim=1, descending=True, stable=True)
    values, order = values[:, :beam], order[:, :beam]  # [sentences, beam]
    places, columns = order // best, order % best
    picked = (starts[:, None] + places).clamp(max=rows - 1)  # empty places point past the rows
    parts = [values, picked, places, top.symbols[picked, columns], log_probs[picked, columns]]
    # Ids are exact in float64, so that one transfer brings everything.
    table = torch.stack([part.double() for part in parts], 2).tolist()
    return [
        [
            _Candidate(int(row), int(place), int(symbol), token_log_prob)
            for log_prob, row, place, symbol, token_log_prob in candidates
            if log_prob > float("-inf")
        ]
        for candidates in table
    ]
