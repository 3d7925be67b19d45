"""A hypothesis: one way to say it, with its score itemised."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class Hypothesis:
    """A sequence that a search found, and what it is worth.

        score = Σ terms                           within 1e-9; all numbers are float64
        terms["log_prob"] = Σ token_log_probs     the chain rule: log P(y∣x) = Σ_t log P(y_t ∣ x, y_<t)

    `symbols` hold neither begin nor end; `is_finished` says whether end (or a stop string) was reached before the
    maximum length. `token_log_probs` and the rows of `attention` belong to `symbols` and then, if it was reached, to
    end. `attention` has a column for each position of the sentence itself, padding left out.

    `is_complete` is a proof: nothing that the search dropped could have come to a better score, so no wider beam and no
    other search finds a better hypothesis in this place of the list. A search that cannot tell leaves it False.

    `hit_limit` says that the search was cut at the maximum length: this hypothesis has not ended, or a better one had
    not, so a longer maximum may give a better output.
    """

    symbols: tuple[int, ...]
    is_finished: bool
    score: float
    terms: Mapping[str, float] = field(hash=False)
    token_log_probs: tuple[float, ...]
    attention: Float[Tensor, "steps source"] | None = field(default=None, compare=False, repr=False)
    is_complete: bool = field(default=False, compare=False)
    hit_limit: bool = field(default=False, compare=False)

    @property
    def log_prob(self) -> float:
        """log P(y∣x), end included if it was reached."""
        return self.terms["log_prob"]
