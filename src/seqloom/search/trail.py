"""The way a row came: links from symbol to symbol, shared by all hypotheses that begin alike."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from seqloom.search.hypothesis import Hypothesis
from seqloom.search.scores import Score, score_of


class Trail(NamedTuple):  # a tuple, because one is made for each row at each step
    """One symbol after those of `before`. `row` is the row whose step gave it; `log_prob` is that of the whole way.

    What no live hypothesis links to is freed by itself, so the memory is that of the hypotheses, not of the search.
    """

    before: "Trail | None"
    symbol: int
    token_log_prob: float
    log_prob: float
    row: int
    length: int


def extend(before: Trail | None, symbol: int, *, token_log_prob: float, row: int) -> Trail:
    """The way with one symbol more; log-probabilities are added in float64, one after the other."""
    log_prob = token_log_prob if before is None else before.log_prob + token_log_prob
    return Trail(before, symbol, token_log_prob, log_prob, row, 1 if before is None else before.length + 1)


Attention = Sequence[Float[Tensor, "_ _"] | None]
"""For each step of a search, how its rows (fewer as sentences finish) looked at the source."""


def hypothesis_of(trail: Trail, *, is_finished: bool, score: Score, attention: Attention, width: int) -> Hypothesis:
    """Walk back along the links; `width` is the length of the source sentence."""
    links: list[Trail] = []
    link: Trail | None = trail
    while link is not None:
        links.append(link)
        link = link.before
    links.reverse()
    symbols = tuple(link.symbol for link in links)
    looked = [rows[link.row, :width] for rows, link in zip(attention, links, strict=False) if rows is not None]
    terms = score.terms(trail.log_prob, trail.length)
    return Hypothesis(
        symbols=symbols[:-1] if is_finished else symbols,
        is_finished=is_finished,
        score=score_of(terms),
        terms=terms,
        token_log_probs=tuple(link.token_log_prob for link in links),
        attention=torch.stack(looked) if looked else None,
    )
