"""A sentence on its way through the search of a peer: which candidates live, which are finished, and when it stops."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, assert_never

from seqloom.search.hypothesis import Hypothesis
from seqloom.search.peer_rules import PeerRules, PeerScore
from seqloom.search.peer_stops import Ended, Standing, Way, is_over
from seqloom.search.top import dead_end
from seqloom.search.trail import Ledger, Trail, extend


class Candidate(NamedTuple):
    """A live hypothesis (by its row in the batch and its place in the sentence) with one symbol more."""

    row: int
    place: int
    symbol: int
    token_log_prob: float


@dataclass
class PeerSentence:
    """What a peer knows of a sentence between two steps. `ways` is empty when the sentence is over."""

    number: int
    rules: PeerRules
    score: PeerScore
    ledger: Ledger
    beam: int
    nbest: int
    limit: int
    ways: list[Way | None] = field(default_factory=lambda: [None])
    finished: list[Ended] = field(default_factory=list)
    width: int = 0
    seen: list[bool] = field(default_factory=list)
    has_topped: bool = False

    def __post_init__(self) -> None:
        self.width, self.seen = self.beam, [False] * self.beam

    def advance(self, candidates: Sequence[Candidate], *, length: int) -> None:
        """Take the candidates of a step, best first: those that end are finished, the best of the others go on.

        After it, live hypotheses have `length` symbols.
        """
        before = self.finished
        ways = self._ways(candidates, length)
        picked = self._picked(ways)
        self._finish([way.trail for way in picked if way.is_over])
        live = [] if length == self.limit else self._live(ways, picked)
        if not live and not self.finished:
            raise dead_end(self.number, length)
        for place in range(self.beam):
            self.seen[place] |= place >= len(picked) or picked[place].trail.symbol == self.ledger.end
        self.has_topped |= bool(picked) and picked[0].is_over
        standing = Standing(
            picked=picked,
            before=before,
            finished=self.finished,
            live=live,
            seen=self.seen,
            has_topped=self.has_topped,
            beam=self.beam,
            nbest=self.nbest,
            limit=self.limit,
        )
        self.ways = [] if is_over(self.rules, self.score, standing) else [*live]
        self.width = len(live) if self.rules.place == "lost" else self.beam

    def hypotheses(self) -> list[Hypothesis]:
        """The best of the finished hypotheses, best first; of equal ones the earlier first."""
        ranked = sorted(self.finished, key=lambda ended: -ended.score)[: self.nbest]
        return [self._hypothesis(ended.trail) for ended in ranked]

    def _ways(self, candidates: Sequence[Candidate], length: int) -> list[Way]:
        """The candidates as hypotheses, without the one that says nothing, if this peer throws it away."""
        end, ways = self.ledger.end, []
        for row, place, symbol, token_log_prob in candidates:
            way = self.ways[place]
            before = None if way is None else way.trail
            trail = extend(before, symbol, token_log_prob=token_log_prob, row=row)
            is_ghost = way is not None and (way.is_ghost or way.trail.symbol == end)
            ways.append(Way(trail, is_over=not is_ghost and (symbol == end or length == self.limit), is_ghost=is_ghost))
        if self.rules.drops_empty and length == 1:
            return [way for way in ways if way.trail.symbol != end] or ways
        return ways

    def _picked(self, ways: Sequence[Way]) -> list[Way]:
        """The places of the beam after this step. Where ended hypotheses keep theirs, their score meets log P."""
        if self.rules.place != "kept":
            return list(ways[: self.width])
        then = [(ended.score, Way(ended.trail, is_over=True)) for ended in self.finished]
        ranked = [*then, *((way.trail.log_prob, way) for way in ways)]
        return [way for _, way in sorted(ranked, key=lambda pair: -pair[0])][: self.beam]

    def _finish(self, over: Sequence[Trail]) -> None:
        """Remember what is finished now, as far as this peer does."""
        ended = [Ended(self.ledger.value(trail), trail) for trail in over]
        if self.rules.place == "kept":  # the beam itself is the memory
            self.finished = ended
            return
        self.finished = [*self.finished, *ended]
        if self.rules.pool == "best":
            self.finished.sort(key=lambda ended: -ended.score)
        if self.rules.pool != "all":
            del self.finished[self.beam :]

    def _live(self, ways: Sequence[Way], picked: Sequence[Way]) -> list[Way]:
        match self.rules.place:
            case "kept":
                return [way for way in picked if not way.is_over]
            case "haunted":
                return list(picked)
            case "refilled" | "lost":
                return [way for way in ways if not way.is_over][: self.width]
            case _:
                assert_never(self.rules.place)

    def _hypothesis(self, trail: Trail) -> Hypothesis:
        has_ended = trail.symbol == self.ledger.end
        hit_limit = not has_ended or (self.rules.at_limit == "end" and trail.length == self.limit)  # a forced end
        found = self.ledger.hypothesis(trail, is_finished=has_ended, hit_limit=hit_limit)
        if has_ended or self.rules.at_limit != "cut_shorter":
            return found
        dropped = found.token_log_probs[-1]
        log_prob = found.terms["log_prob"] - dropped
        return replace(
            found,
            symbols=found.symbols[:-1],
            terms={"log_prob": log_prob, "dropped": dropped, "length": found.score - log_prob - dropped},
            token_log_probs=found.token_log_probs[:-1],
            attention=None if found.attention is None else found.attention[:-1],
        )
