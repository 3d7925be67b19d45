"""Linear-chain conditional random fields: tags that depend on their neighbours (Lafferty et al., 2001).

A sentence of n words has a score s_t(y) for each tag of each word, and each step from tag to tag has a score A. The
begin of a sentence and its end are the last row and the last column of A:

    S(y ∣ x) = A[BEGIN, y_1] + Σ_t s_t(y_t) + Σ_t A[y_t, y_t+1] + A[y_n, END]
    P(y ∣ x) = exp S(y ∣ x) / Z                                      Z = Σ_y exp S(y ∣ x), over all tag sequences
    α_1(j)   = A[BEGIN, j] + s_1(j)
    α_t(j)   = s_t(j) + log Σ_i exp(α_t−1(i) + A[i, j])              all beginnings that end in tag j
    log Z    = log Σ_i exp(α_n(i) + A[i, END])
    δ_t(j)   = s_t(j) + max_i (δ_t−1(i) + A[i, j])                   the best of them (Viterbi)

A step that is not legal has the score −∞, so that no probability is lost to sequences that cannot be.
"""

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from seqloom.nn.packing import length_mask

Scores = Float[Tensor, "batch time tags"]
"""Scores of the tags of each word; padding may hold any finite number."""
Steps = Float[Tensor, "tags_1 tags_1"]
"""Scores of steps; the last row is the begin of a sentence, the last column its end."""
Lengths = Int[Tensor, " batch"]
"""Words of each sentence, at least one."""


class CRF(nn.Module):
    """Learned scores of steps, which begin at zero: a softmax for each word."""

    def __init__(self, tags: int) -> None:
        super().__init__()
        self.steps = nn.Parameter(torch.zeros(tags + 1, tags + 1))

    def allowed(self, legal: Bool[Tensor, "tags_1 tags_1"] | None = None) -> Steps:
        """The scores of steps, −∞ for those that are not legal."""
        return self.steps if legal is None else only_legal(self.steps, legal)

    def forward(
        self,
        scores: Scores,
        lengths: Lengths,
        *,
        tags: Int[Tensor, "batch time"],
        legal: Bool[Tensor, "tags_1 tags_1"] | None = None,
    ) -> Float[Tensor, " batch"]:
        """log P of the tags of each sentence; a word with a negative one may have any, and so may padding."""
        steps = self.allowed(legal)
        log_z = log_normalisers(scores, lengths, steps=steps)
        is_open = (tags < 0) & length_mask(lengths, scores.shape[1])
        if not bool(is_open.any()):
            return path_scores(scores, lengths, tags=tags, steps=steps) - log_z
        is_other = tags[:, :, None] != torch.arange(scores.shape[2], device=tags.device)
        within = scores.masked_fill(is_other & ~is_open[:, :, None], -math.inf)  # all sequences with the known tags
        return log_normalisers(within, lengths, steps=steps) - log_z


def only_legal(steps: Steps, legal: Bool[Tensor, "tags_1 tags_1"]) -> Steps:
    """Scores of steps, −∞ for those that are not legal."""
    return steps.masked_fill(~legal, -math.inf)


def path_scores(
    scores: Scores, lengths: Lengths, *, tags: Int[Tensor, "batch time"], steps: Steps
) -> Float[Tensor, " batch"]:
    """S(y ∣ x) of each sentence."""
    batch, time, outside = scores.shape[0], scores.shape[1], scores.shape[2]
    is_real = length_mask(lengths, time)
    known = tags.masked_fill(~is_real, 0)
    own = scores.gather(2, known[:, :, None])[:, :, 0].masked_fill(~is_real, 0)  # [batch, time]
    before = torch.cat([known.new_full((batch, 1), outside), known], 1)  # [batch, time + 1]
    after = torch.cat([known, known.new_zeros(batch, 1)], 1)
    after = after.scatter(1, lengths[:, None], outside)  # END follows the last word
    is_step = length_mask(lengths + 1, time + 1)
    taken = steps[before, after].masked_fill(~is_step, 0)
    return own.sum(1) + taken.sum(1)


def log_normalisers(scores: Scores, lengths: Lengths, *, steps: Steps) -> Float[Tensor, " batch"]:
    """log Z of each sentence."""
    into = steps[:-1, :-1].T  # [to, from]
    alpha = steps[-1, :-1] + scores[:, 0]  # [batch, tags]
    for t in range(1, scores.shape[1]):
        reached = scores[:, t] + _log_sum(alpha[:, None] + into)
        alpha = torch.where((t < lengths)[:, None], reached, alpha)
    return _log_sum(alpha + steps[:-1, -1])


@torch.no_grad()
def best_tags(scores: Scores, lengths: Lengths, *, steps: Steps) -> Int[Tensor, "batch time"]:
    """The tags with the highest S(y ∣ x); those of padding are 0. Of equal ones, that with the lower number."""
    delta, pointers = steps[-1, :-1] + scores[:, 0], []
    for t in range(1, scores.shape[1]):
        best, chosen = (delta[:, :, None] + steps[:-1, :-1]).max(1)  # [batch, tags]
        delta = torch.where((t < lengths)[:, None], best + scores[:, t], delta)
        pointers.append(chosen)
    tag = (delta + steps[:-1, -1]).argmax(1)  # [batch]
    found = [tag]
    for t in range(scores.shape[1] - 1, 0, -1):  # from the last place of the batch, where the shorter ones wait
        tag = torch.where(t < lengths, pointers[t - 1].gather(1, tag[:, None])[:, 0], tag)
        found.append(tag)
    return torch.stack(found[::-1], 1).masked_fill(~length_mask(lengths, scores.shape[1]), 0)


def _log_sum(values: Float[Tensor, "*rows before"]) -> Float[Tensor, "*rows"]:
    """log Σ exp over the last axis. A sum of nothing is −∞ with a gradient of zero, which torch's own makes NaN."""
    is_possible = values.amax(-1) > -math.inf
    total = values.masked_fill(~is_possible[..., None], 0).logsumexp(-1)
    return total.masked_fill(~is_possible, -math.inf)
