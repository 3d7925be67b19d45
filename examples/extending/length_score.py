"""A bounded word reward (Huang et al., 2017): every symbol is rewarded, up to the expected length of the output.

    score = log P(Y∣X) + r · min(|Y|, q |X|)        q: target symbols per source symbol, end symbols counted

Unlike a plain reward it does not favour outputs that are too long.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from seqloom.search.scores import EndNormalisation, ScoreInputs


@dataclass(frozen=True)
class BoundedReward:
    reward: float
    ratio: float = 1.0
    needs_attention: bool = False
    end: EndNormalisation | None = None

    def terms(self, outcome: ScoreInputs) -> Mapping[str, float]:
        expected = self.ratio * outcome.source_length
        return {"log_prob": outcome.log_prob, "reward": self.reward * min(outcome.length, expected)}

    def bound(self, log_prob: float, length: int, *, limit: int) -> float:  # noqa: ARG002
        """Further symbols only lower log P, and at most `limit` of them are rewarded."""
        return log_prob + max(0.0, self.reward * limit)
