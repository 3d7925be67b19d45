"""A hypothesis: an output with its score itemised, and the path by which a search reached it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from seqloom.core.errors import UsageError
from seqloom.search.scores import ScoreInputs, SearchScore, score_of


@dataclass(frozen=True)
class Hypothesis:
    """A sequence that a search found, and what it is worth.

        score = Σ terms                           within 1e-9; all numbers are float64
        terms["log_prob"] = Σ token_log_probs     the chain rule: log P(y∣x) = Σ_t log P(y_t ∣ x, y_<t)

    `symbols` hold neither begin nor end; `is_finished` says whether end (or a stop string) was reached before the
    maximum length. `token_log_probs` and the rows of `attention` belong to `symbols` and then, if it was reached, to
    end. `attention` has a column for each position of the sentence itself, padding left out.

    `is_complete` is a proof: nothing that the search dropped could have come to a better score, so no wider beam and no
    other search finds a better hypothesis in this place of the list. A search that cannot prove it leaves it False.

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
        """log P(y∣x), end included if it was reached; the score of a model that has no probabilities."""
        return self.terms.get("log_prob", self.score)


class BackPointer(NamedTuple):  # a tuple, because one is made for each row at each step
    """One symbol after those of `before`. `row` is the row whose step gave it; `log_prob` is that of the whole path.

    Hypotheses that begin with the same symbols share their first links.
    """

    before: "BackPointer | None"
    symbol: int
    token_log_prob: float
    log_prob: float
    row: int
    length: int


def extend(before: BackPointer | None, symbol: int, *, token_log_prob: float, row: int) -> BackPointer:
    """The path with one symbol more; log-probabilities are added in float64, one after the other."""
    log_prob = token_log_prob if before is None else before.log_prob + token_log_prob
    return BackPointer(before, symbol, token_log_prob, log_prob, row, 1 if before is None else before.length + 1)


def links_of(pointer: BackPointer | None) -> list[BackPointer]:
    """The links of a path, from its first symbol on."""
    links: list[BackPointer] = []
    while pointer is not None:
        links.append(pointer)
        pointer = pointer.before
    links.reverse()
    return links


Attention = Sequence[Float[Tensor, "_ _"] | None]
"""For each step of a search, the attention of its rows (fewer as sentences finish) to the source."""


@dataclass(frozen=True)
class Ledger:
    """Turns the paths of one sentence into hypotheses with itemised scores.

    `attention` grows with each step; `source_length` counts the end symbol; `end` is that of the output.
    """

    score: SearchScore
    end: int
    source_length: int
    attention: Attention

    def terms(self, pointer: BackPointer) -> dict[str, float]:
        """The score of a path, by parts."""
        coverage = None
        if self.score.needs_attention:
            attended = self._attention_of(links_of(pointer))
            if attended is None:
                raise UsageError(
                    "search.coverage scores the attention to the source, but this model gives no attention to "
                    "the source; set search.coverage=0"
                )
            coverage = tuple(attended.double().sum(0).tolist())
        outcome = ScoreInputs(
            log_prob=pointer.log_prob,
            length=pointer.length,
            source_length=self.source_length,
            end_log_prob=pointer.token_log_prob if pointer.symbol == self.end else None,
            coverage=coverage,
        )
        return dict(self.score.terms(outcome))

    def value(self, pointer: BackPointer) -> float:
        """The score of a path."""
        return score_of(self.terms(pointer))

    def hypothesis(
        self, pointer: BackPointer, *, is_finished: bool, is_complete: bool = False, hit_limit: bool = False
    ) -> Hypothesis:
        """Walk back along the links."""
        links, terms = links_of(pointer), self.terms(pointer)
        symbols = tuple(link.symbol for link in links)
        return Hypothesis(
            symbols=symbols[:-1] if pointer.symbol == self.end else symbols,
            is_finished=is_finished,
            score=score_of(terms),
            terms=terms,
            token_log_probs=tuple(link.token_log_prob for link in links),
            attention=self._attention_of(links),
            is_complete=is_complete,
            hit_limit=hit_limit,
        )

    def _attention_of(self, links: Sequence[BackPointer]) -> Float[Tensor, "steps source"] | None:
        """The attention of each link; None for a model that gives none."""
        rows = [
            step[link.row, : self.source_length]
            for step, link in zip(self.attention, links, strict=False)
            if step is not None
        ]
        return torch.stack(rows) if rows else None
