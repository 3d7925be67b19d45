"""CTC: the loss is the sum over all paths, its gradient too, and an alignment is the best of them."""

import math
from itertools import groupby, product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from seqloom.core.errors import DataError
from seqloom.nn.ctc import align, check_targets, ctc_loss, frames_needed, log_likelihoods


def collapse(path: tuple[int, ...], blank: int) -> tuple[int, ...]:
    return tuple(symbol for symbol, _ in groupby(path) if symbol != blank)


def paths_of(log_probs: Tensor, target: tuple[int, ...], blank: int) -> list[tuple[Tensor, tuple[int, ...]]]:
    """Every path of a target with its log P."""
    time, symbols = log_probs.shape
    every = product(range(symbols), repeat=time)
    steps = torch.arange(time)
    return [(log_probs[steps, torch.tensor(path)].sum(), path) for path in every if collapse(path, blank) == target]


def padded(rows: list[tuple[int, ...]], fill: int, extra: int = 0) -> tuple[Tensor, Tensor]:
    longest = max(map(len, rows)) + extra
    return torch.tensor([[*row, *[fill] * (longest - len(row))] for row in rows], dtype=torch.long).reshape(
        len(rows), longest
    ), torch.tensor([len(row) for row in rows])


@given(
    rows=st.lists(
        st.tuples(st.integers(1, 5), st.lists(st.integers(0, 1), max_size=4).map(tuple)), min_size=1, max_size=3
    ),
    blank=st.integers(0, 2),
    seed=st.integers(0, 99),
)
def test_loss_gradient_and_alignment_equal_all_paths(
    rows: list[tuple[int, tuple[int, ...]]], blank: int, seed: int
) -> None:
    """In a batch whose padding holds what would be wrong if it were read."""
    ordinary = [symbol for symbol in range(3) if symbol != blank]
    targets = [tuple(ordinary[symbol] for symbol in target) for _, target in rows]
    frames = [max(length, frames_needed(target)) for (length, _), target in zip(rows, targets, strict=True)]
    generator = torch.Generator().manual_seed(seed)
    logits = (2 * torch.randn(len(rows), max(frames) + 1, 3, generator=generator)).double()
    for row, length in enumerate(frames):
        logits[row, length:] = 1e3
    ids, target_lengths = padded(targets, fill=-7, extra=1)
    lengths = torch.tensor(frames)

    exact = logits.clone().requires_grad_()
    log_probs = [exact[row, :length].log_softmax(1) for row, length in enumerate(frames)]
    every = [paths_of(own, target, blank) for own, target in zip(log_probs, targets, strict=True)]
    expected = torch.stack([torch.stack([value for value, _ in paths]).logsumexp(0) for paths in every])
    expected.sum().backward()

    plain = logits.clone().requires_grad_()
    found = log_likelihoods(plain.log_softmax(2), lengths, targets=ids, target_lengths=target_lengths, blank=blank)
    found.sum().backward()
    fast = logits.clone().requires_grad_()
    loss = ctc_loss(fast, lengths, targets=ids, target_lengths=target_lengths, blank=blank)
    loss.total.backward()

    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
    torch.testing.assert_close(-loss.total, expected.sum(), rtol=0, atol=1e-10)
    assert exact.grad is not None
    torch.testing.assert_close(plain.grad, exact.grad, rtol=0, atol=1e-10)
    torch.testing.assert_close(fast.grad, -exact.grad, rtol=0, atol=1e-10)
    assert loss.count == sum(max(1, len(target)) for target in targets)

    aligned = align(logits.log_softmax(2), lengths, targets=ids, target_lengths=target_lengths, blank=blank)
    for row, (paths, length, target) in enumerate(zip(every, frames, targets, strict=True)):
        best, path = max(paths, key=lambda each: each[0].item())
        torch.testing.assert_close(aligned.log_probs[row], best, rtol=0, atol=1e-10)
        assert aligned.path[row].tolist() == [*path, *[blank] * (len(logits[row]) - length)]
        positions = aligned.positions[row].tolist()
        assert [target[place] if place >= 0 else blank for place in positions] == aligned.path[row].tolist()
        moved = [place for place, _ in groupby(place for place in positions if place >= 0)]
        assert moved == list(range(len(target)))  # equal neighbours are told apart


def test_a_path_that_leaves_out_the_blank_between_equal_symbols_is_not_counted() -> None:
    """The comparison above can fail: without the rule for repeats, "aa" would be as probable as its paths and "a"'s."""
    log_probs = torch.full((1, 3, 2), math.log(0.5), dtype=torch.float64)
    found = log_likelihoods(
        log_probs, torch.tensor([3]), targets=torch.tensor([[1, 1]]), target_lengths=torch.tensor([2])
    )
    torch.testing.assert_close(found.exp(), torch.tensor([0.125], dtype=torch.float64))  # a ∅ a alone


def test_impossible_symbols_leave_the_gradient_finite() -> None:
    logits = torch.randn(1, 4, 3, dtype=torch.float64)
    logits[0, 1, 2] = -math.inf
    for_targets = {"targets": torch.tensor([[1, 1, 2]]), "target_lengths": torch.tensor([3])}
    plain = logits.clone().requires_grad_()
    log_likelihoods(plain.log_softmax(2), torch.tensor([4]), **for_targets).sum().backward()
    assert plain.grad is not None
    assert plain.grad.isfinite().all()


def test_targets_without_a_path_are_named_before_training() -> None:
    check_targets([[1, 1, 2], []], [4, 1], symbols=3)
    with pytest.raises(
        DataError,
        match=r"train\.tsv:12: 3 frames are too few for a target of 3 symbols and a blank at "
        r"each of 1 repeats: 4 or more are needed",
    ):
        check_targets([[1, 1, 2]], [3], symbols=3, places=[("train.tsv", 12)])
    with pytest.raises(DataError, match="target 2: 0 frames are too few for a target of 0 symbols: 1 or more"):
        check_targets([[1], []], [1, 0], symbols=3)
    for wrong in (0, 3, -1):
        with pytest.raises(
            DataError, match=f"target symbol {wrong} is not among the ids from 0 to 2 without the blank 0"
        ):
            check_targets([[1, wrong]], [5], symbols=3)
    with pytest.raises(DataError, match="target 1: 2 frames are too few"):
        ctc_loss(
            torch.zeros(1, 6, 3), torch.tensor([2]), targets=torch.tensor([[1, 1]]), target_lengths=torch.tensor([2])
        )
