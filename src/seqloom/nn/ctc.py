"""Connectionist temporal classification: a loss for labels without times (Graves et al., 2006).

A path gives each of T frames a symbol or the blank ∅. Its labelling is what is left after equal neighbours are merged
and blanks are removed: ∅ a a ∅ a b ∅ is "aab". Frames are independent given the input, and a target y of L symbols is
as probable as all of its paths together:

    P(y ∣ x) = Σ_π Π_t P_t(π_t)                                     over the paths π whose labelling is y
    z        = ∅ y_1 ∅ y_2 … y_L ∅                                  2 L + 1 positions through which a path moves
    α_1(s)   = P_1(z_s) for s = 1, 2                                at most one symbol can be reached at once
    α_t(s)   = P_t(z_s) (α_t−1(s) + α_t−1(s−1) + skip_s α_t−1(s−2))  stay, move on, or leave out a blank
    skip_s   = 1 if z_s ≠ ∅ and z_s ≠ z_s−2, otherwise 0            between equal symbols the blank is needed
    P(y ∣ x) = α_T(2 L) + α_T(2 L + 1)                              in the last symbol or in the blank after it

`log_likelihoods` is this recursion in log space, for any gradient. `ctc_loss` computes the same with torch's kernel.
`align` takes the maximum in place of the sum: the best single path of a target. A target of L symbols, R of which equal
the one before, needs L + R frames; with fewer it has no path, which `check_targets` reports before training.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from seqloom.core.errors import DataError, Problem
from seqloom.core.symbols import PAD


@dataclass(frozen=True)
class CtcLoss:
    """−Σ log P(y ∣ x) over a batch, and the number of target symbols. An empty target counts as one symbol."""

    total: Float[Tensor, ""]
    count: int


@dataclass(frozen=True)
class CtcAlignment:
    """The best path of each target. Frames of padding have the blank and the position −1."""

    path: Int[Tensor, "batch time"]
    """The symbol or blank of each frame."""
    positions: Int[Tensor, "batch time"]
    """The place in the target of the symbol of each frame, from 0; −1 for blanks."""
    log_probs: Float[Tensor, " batch"]
    """log P of that path alone: at most log P(y ∣ x)."""


def ctc_loss(
    logits: Float[Tensor, "batch time symbols"],
    lengths: Int[Tensor, " batch"],
    *,
    targets: Int[Tensor, "batch longest"],
    target_lengths: Int[Tensor, " batch"],
    blank: int = PAD,
) -> CtcLoss:
    """The loss of frames before their softmax; padding of frames and targets may hold any finite number and any id.

    Logits, not log-probabilities, because the gradient of torch's kernel is that of the loss and the softmax together.
    (The softmax of log-probabilities is themselves, so they may be given as well.) They must be finite: a symbol at
    −∞ makes the gradient of the kernel NaN, unlike that of `log_likelihoods`. Half precision becomes single.
    """
    _check_batch(logits, lengths, targets=targets, target_lengths=target_lengths, blank=blank)
    wide = logits if logits.dtype == torch.float64 else logits.float()
    total = F.ctc_loss(
        wide.log_softmax(2).transpose(0, 1),  # [time, batch, symbols]
        # Padding must hold ids that exist: the kernel looks them up before it knows that they are not needed.
        targets.masked_fill(~_is_real(target_lengths, targets.shape[1]), int(blank == 0)),
        lengths,
        target_lengths,
        blank=blank,
        reduction="sum",
    )
    return CtcLoss(total, int(target_lengths.clamp(min=1).sum()))


def log_likelihoods(
    log_probs: Float[Tensor, "batch time symbols"],
    lengths: Int[Tensor, " batch"],
    *,
    targets: Int[Tensor, "batch longest"],
    target_lengths: Int[Tensor, " batch"],
    blank: int = PAD,
) -> Float[Tensor, " batch"]:
    """log P(y ∣ x) of each target by the recursion as it is written above; `ctc_loss` is faster."""
    _check_batch(log_probs, lengths, targets=targets, target_lengths=target_lengths, blank=blank)
    z, may_skip = _positions(targets, blank)  # [batch, positions] each
    alpha = _first(log_probs, z)
    for t in range(1, log_probs.shape[1]):
        reached = _log_sum(_moves(alpha, may_skip)) + log_probs[:, t].gather(1, z)
        alpha = torch.where((t < lengths)[:, None], reached, alpha)  # [batch, positions]
    return _log_sum(_ends(alpha, target_lengths))


@torch.no_grad()
def align(
    log_probs: Float[Tensor, "batch time symbols"],
    lengths: Int[Tensor, " batch"],
    *,
    targets: Int[Tensor, "batch longest"],
    target_lengths: Int[Tensor, " batch"],
    blank: int = PAD,
) -> CtcAlignment:
    """The most probable path of each target (Viterbi): which frames belong to which symbol.

    δ_t(s) = P_t(z_s) max(δ_t−1(s), δ_t−1(s−1), skip_s δ_t−1(s−2))
    """
    _check_batch(log_probs, lengths, targets=targets, target_lengths=target_lengths, blank=blank)
    time = log_probs.shape[1]
    z, may_skip = _positions(targets, blank)
    delta, back = _first(log_probs, z), []
    for t in range(1, time):
        best, advance = _moves(delta, may_skip).max(2)  # advance: 0, 1 or 2 positions
        is_real = (t < lengths)[:, None]
        delta = torch.where(is_real, best + log_probs[:, t].gather(1, z), delta)
        back.append(advance * is_real)
    best, from_last = _ends(delta, target_lengths).max(1)
    place = 2 * target_lengths - from_last  # [batch]
    places = [place]
    for advance in reversed(back):
        place = place - advance.gather(1, place[:, None])[:, 0]
        places.append(place)
    at = torch.stack(places[::-1], 1)  # [batch, time]
    is_real = _is_real(lengths, time)
    is_symbol = is_real & (at % 2 == 1)
    path = z.gather(1, at).masked_fill(~is_real, blank)
    return CtcAlignment(path, (at // 2).masked_fill(~is_symbol, -1), best)


def frames_needed(target: Sequence[int]) -> int:
    """The fewest frames that have a path for a target: its symbols, and a blank between equal neighbours."""
    return len(target) + sum(one == other for one, other in pairwise(target))


def check_targets(
    targets: Sequence[Sequence[int]],
    frames: Sequence[int],
    *,
    symbols: int,
    blank: int = PAD,
    places: Sequence[tuple[str, int]] | None = None,
) -> None:
    """Raise a DataError for targets that have no path, so that a run does not meet a loss of ∞.

    `places` has file and line of each target; without it, targets are counted from 1.
    """
    problems = []
    for number, (target, length) in enumerate(zip(targets, frames, strict=True)):
        needed = frames_needed(target)
        if length < max(needed, 1):
            counts = f"{len(target):,} symbols" + (
                f" and a blank at each of {needed - len(target):,} repeats" if needed > len(target) else ""
            )
            message = (
                f"{length:,} frames are too few for a target of {counts}: {max(needed, 1):,} or more are needed; "
                "remove this example, check that its target belongs to it, or make more frames (a smaller hop)"
            )
        elif wrong := [symbol for symbol in target if symbol == blank or not 0 <= symbol < symbols]:
            message = f"target symbol {wrong[0]} is not among the ids from 0 to {symbols - 1} without the blank {blank}"
        else:
            continue
        file, line = (None, None) if places is None else places[number]
        problems.append(Problem(message if places is not None else f"target {number + 1}: {message}", file, line))
    if problems:
        raise DataError(problems=problems)


# --- parts of the recursion ------------------------------------------------------------------------------------------


def _positions(
    targets: Int[Tensor, "batch longest"], blank: int
) -> tuple[Int[Tensor, "batch positions"], Bool[Tensor, "batch positions"]]:
    """z, and where the blank before a position may be left out. Past the end of a target both are harmless."""
    batch, longest = targets.shape
    z = targets.new_full((batch, 2 * longest + 1), blank)
    # Paths only move forward, so what padding holds cannot reach the last position of the target; it must exist.
    z[:, 1::2] = targets.clamp(min=0)
    may_skip = torch.zeros_like(z, dtype=torch.bool)
    may_skip[:, 3::2] = targets[:, 1:] != targets[:, :-1]
    return z, may_skip


def _first(
    log_probs: Float[Tensor, "batch time symbols"], z: Int[Tensor, "batch positions"]
) -> Float[Tensor, "batch positions"]:
    """log α_1: the first blank, or the first symbol."""
    is_later = torch.arange(z.shape[1], device=z.device) > 1
    return log_probs[:, 0].gather(1, z).masked_fill(is_later, -math.inf)


def _moves(
    alpha: Float[Tensor, "batch positions"], may_skip: Bool[Tensor, "batch positions"]
) -> Float[Tensor, "batch positions 3"]:
    """log α of the position itself, of the one before, and of the one before a blank that may be left out."""
    stay, move, skip = alpha, F.pad(alpha, (1, 0), value=-math.inf), F.pad(alpha, (2, 0), value=-math.inf)
    positions = alpha.shape[1]
    return torch.stack([stay, move[:, :positions], skip[:, :positions].masked_fill(~may_skip, -math.inf)], 2)


def _ends(alpha: Float[Tensor, "batch positions"], target_lengths: Int[Tensor, " batch"]) -> Float[Tensor, "batch 2"]:
    """log α of the last blank and of the last symbol, −∞ where there is none."""
    last = 2 * target_lengths[:, None]
    symbol = alpha.gather(1, (last - 1).clamp(min=0)).masked_fill(last == 0, -math.inf)
    return torch.cat([alpha.gather(1, last), symbol], 1)


def _log_sum(terms: Float[Tensor, "*rows terms"]) -> Float[Tensor, "*rows"]:
    """log Σ exp(term) of the last axis. A sum of nothing is −∞ with the gradient 0, which torch's own makes NaN."""
    is_reached = (terms > -math.inf).any(-1)
    return terms.masked_fill(~is_reached[..., None], 0).logsumexp(-1).masked_fill(~is_reached, -math.inf)


def _is_real(lengths: Int[Tensor, " batch"], longest: int) -> Bool[Tensor, "batch longest"]:
    return torch.arange(longest, device=lengths.device) < lengths[:, None]


def _check_batch(
    frames: Float[Tensor, "batch time symbols"],
    lengths: Int[Tensor, " batch"],
    *,
    targets: Int[Tensor, "batch longest"],
    target_lengths: Int[Tensor, " batch"],
    blank: int,
) -> None:
    """Lengths within their tensors are our own; targets come from data."""
    _, time, symbols = frames.shape
    assert 0 <= blank < symbols, f"blank {blank} of {symbols} symbols"
    assert int(lengths.max()) <= time, f"{int(lengths.max())} of {time} frames"
    assert int(target_lengths.max()) <= targets.shape[1], f"{int(target_lengths.max())} of {targets.shape[1]} symbols"
    rows = [row[:length] for row, length in zip(targets.tolist(), target_lengths.tolist(), strict=True)]
    check_targets(rows, lengths.tolist(), symbols=symbols, blank=blank)
