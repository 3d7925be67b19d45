"""When a sentence is over, by the rules of each peer.

top_finished   the best candidate of this step is finished, and there are as many as were asked for
nbest_on_top   the n best of all finished and all live hypotheses, each by the score it has now, are finished
every_place    each place of the beam has held an end at some step
count          one beam of hypotheses is finished
count_or_top   `patience` beams are finished; with α = 0, the best candidate of some step was finished and there are
               as many as were asked for
no_better      the pool is full, and the best live hypothesis, divided by the length penalty of its length now, is no
               better than the worst in the pool (`early_stopping` True: the pool is full; "never" with α > 0: the
               length penalty of the maximum length)
none_live      no hypothesis is left to go on
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, assert_never

from seqloom.search.peer_rules import PeerRules, PeerScore
from seqloom.search.trail import Trail


class Ended(NamedTuple):
    """A hypothesis that is finished or was cut, with its score."""

    score: float
    trail: Trail


class Way(NamedTuple):
    """A hypothesis after a step. `is_over` if it ends here or is cut; one that went on after its end is a ghost."""

    trail: Trail
    is_over: bool = False
    is_ghost: bool = False


@dataclass(frozen=True)
class Standing:
    """How a sentence stands after a step: what the stop rules look at.

    `picked` are the places of the beam in their order, `before` what was finished by earlier steps, `finished` all that
    is finished by now, `live` what could go on, best first. `seen` tells of each place whether some step put an end
    there, `has_topped` whether some step put a finished hypothesis first.
    """

    picked: Sequence[Way]
    before: Sequence[Ended]
    finished: Sequence[Ended]
    live: Sequence[Way]
    seen: Sequence[bool]
    has_topped: bool
    beam: int
    nbest: int
    limit: int


def is_over(rules: PeerRules, score: PeerScore, standing: Standing) -> bool:
    """Whether the sentence stops after this step. One with nothing left to go on always does."""
    if not standing.live:
        return True
    has_enough = len(standing.finished) >= standing.nbest
    match rules.stop:
        case "top_finished":
            return has_enough and standing.picked[0].is_over
        case "nbest_on_top":
            return _nbest_on_top(score, standing)
        case "every_place":
            return all(standing.seen)
        case "count":
            return len(standing.finished) >= standing.beam
        case "count_or_top":
            if score.alpha == 0:
                return has_enough and standing.has_topped
            return len(standing.finished) >= waited_for(rules, standing.beam)
        case "no_better":
            return _no_better(rules, score, standing)
        case "none_live":
            return False
        case _:
            assert_never(rules.stop)


def waited_for(rules: PeerRules, beam: int) -> int:
    """How many finished hypotheses `patience` waits for, halves rounded up."""
    return math.floor(beam * rules.patience + 0.5)


def _nbest_on_top(score: PeerScore, standing: Standing) -> bool:
    """Of equal ones, those of this step come first, in the order of their places."""
    now = [(-score.divided(way.trail.log_prob, way.trail.length), False, way.is_over) for way in standing.picked]
    then = [(-ended.score, True, True) for ended in standing.before]
    ranked = sorted([*now, *then], key=lambda entry: entry[:2])[: standing.nbest]
    return len(ranked) == standing.nbest and all(is_over for _, _, is_over in ranked)


def _no_better(rules: PeerRules, score: PeerScore, standing: Standing) -> bool:
    if len(standing.finished) < standing.beam:
        return False
    if rules.early_stopping is True:
        return True
    best = standing.live[0].trail
    is_hopeful = rules.early_stopping == "never" and score.alpha > 0
    possible = score.divided(best.log_prob, standing.limit if is_hopeful else best.length)
    return possible <= min(ended.score for ended in standing.finished)
