"""What has ended, and whether what has not can still matter: the same for every search that keeps a beam."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import assert_never

from seqloom.search.hypothesis import Ledger, Trail
from seqloom.search.settings import SearchConfig


@dataclass
class Finished:
    """The best finished hypotheses of a sentence, by score, at most `settings.nbest` of them.

    `limit` is the maximum length. It grows, up to `hard_limit`, as long as the best hypothesis has not ended.
    """

    limit: int
    hard_limit: int
    settings: SearchConfig
    ledger: Ledger
    best: list[tuple[float, Trail]] = field(default_factory=list)
    ended: int = 0
    """How many have ended, those that were not good enough included."""
    has_overrun: bool = False
    """Whether the search continued past the maximum length."""
    hit_limit: bool = False
    """Whether the search was cut while its best hypothesis had not ended."""

    def add(self, trail: Trail) -> None:
        """One more has ended."""
        self.ended += 1
        self.best.append((self.ledger.value(trail), trail))
        self.best.sort(key=lambda pair: -pair[0])  # stable: of equal ones the earlier stays first
        del self.best[self.settings.nbest :]

    def bound(self, log_prob: float, length: int) -> float:
        """What a hypothesis of this log-probability and length can come to at most."""
        return self.ledger.score.bound(log_prob, length, limit=self.limit)

    def is_cut(self, best: Trail) -> bool:
        """Whether the sentence stops at the maximum length, given the best of its live hypotheses.

        If that one is better as it stands than all finished ones, the maximum length was too short for this sentence,
        so the search continues with a longer one.
        """
        if best.length < self.limit:
            return False
        self.hit_limit = not self.best or self.ledger.value(best) > self.best[0][0]
        if not self.hit_limit or best.length >= self.hard_limit:
            return True
        self.limit, self.has_overrun, self.hit_limit = best.length + 1, True, False
        return False

    def is_decided(self, live: Sequence[float], *, length: int) -> bool:
        """Whether the sentence stops, by the rule of the settings; it does so in any case when nothing lives.

        `live` are the log-probabilities of the live hypotheses, all of one length.
        """
        if not live:
            return True
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
