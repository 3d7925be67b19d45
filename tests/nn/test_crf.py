"""A linear-chain CRF: Z sums over all tag sequences, Viterbi finds the best, illegal steps are never taken."""

from itertools import pairwise, product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from seqloom.nn.crf import CRF, best_tags, log_normalisers, only_legal, path_scores
from seqloom.text.spans import legal_steps

TAGS = ("O", "B-X", "I-X")


def every_path(scores: Tensor, steps: Tensor) -> dict[tuple[int, ...], Tensor]:
    """S(y ∣ x) of all tag sequences of a sentence, as it is written in the formula."""
    found = {}
    for path in product(range(scores.shape[1]), repeat=len(scores)):
        value = steps[-1, path[0]] + steps[path[-1], -1] + sum(scores[t, tag] for t, tag in enumerate(path))
        found[path] = value + sum(steps[one, other] for one, other in pairwise(path))
    return found


def drawn(lengths: list[int], seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Scores whose padding would be wrong if it were read, scores of steps, and tags."""
    generator = torch.Generator().manual_seed(seed)
    time = max(lengths) + 1
    scores = 2 * torch.randn(len(lengths), time, len(TAGS), generator=generator).double()
    steps = 2 * torch.randn(len(TAGS) + 1, len(TAGS) + 1, generator=generator).double()
    tags = torch.randint(len(TAGS), (len(lengths), time), generator=generator)
    for row, length in enumerate(lengths):
        scores[row, length:], tags[row, length:] = 1e3, -5
    return scores, steps, tags


@given(lengths=st.lists(st.integers(1, 4), min_size=1, max_size=3), is_bio=st.booleans(), seed=st.integers(0, 99))
def test_sums_gradients_and_best_tags_equal_all_paths(lengths: list[int], is_bio: bool, seed: int) -> None:
    scores, steps, tags = drawn(lengths, seed)
    exact, plain = scores.clone().requires_grad_(), scores.clone().requires_grad_()
    if is_bio:
        steps = only_legal(steps, torch.from_numpy(legal_steps(TAGS)))
    every = [every_path(exact[row, :length], steps) for row, length in enumerate(lengths)]
    expected = torch.stack([torch.stack([*paths.values()]).logsumexp(0) for paths in every])
    expected.sum().backward()
    sizes = torch.tensor(lengths)
    found = log_normalisers(plain, sizes, steps=steps)
    found.sum().backward()
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
    torch.testing.assert_close(plain.grad, exact.grad, rtol=0, atol=1e-10)
    best = best_tags(scores, sizes, steps=steps).tolist()
    taken = path_scores(scores, sizes, tags=tags, steps=steps)
    for row, (paths, length) in enumerate(zip(every, lengths, strict=True)):
        path = max(paths, key=lambda each: paths[each].item())
        assert best[row] == [*path, *[0] * (scores.shape[1] - length)]
        torch.testing.assert_close(taken[row], paths[tuple(tags[row, :length].tolist())].detach(), rtol=0, atol=1e-10)


def test_a_recursion_that_forgets_the_end_is_not_the_sum() -> None:
    """The comparison above can fail: without A[y_n, END] the sum is another one."""
    scores, steps, _ = drawn([3], seed=1)
    every = torch.stack([*every_path(scores[0, :3], steps).values()]).logsumexp(0)
    forgetful = steps.clone()
    forgetful[:, -1] = 0
    assert abs(log_normalisers(scores, torch.tensor([3]), steps=forgetful)[0] - every) > 1e-3


def test_probabilities_of_legal_sequences_sum_to_one_and_illegal_ones_have_none() -> None:
    legal = torch.from_numpy(legal_steps(TAGS))
    scores, steps, _ = drawn([4], seed=3)
    crf = CRF(len(TAGS)).double()
    with torch.no_grad():
        crf.steps.copy_(steps)
    paths = torch.tensor(list(product(range(len(TAGS)), repeat=4)))
    rows = scores[:, :4].expand(len(paths), 4, len(TAGS))
    found = crf(rows, torch.full((len(paths),), 4), tags=paths, legal=legal).exp()
    assert found.sum().item() == pytest.approx(1, abs=1e-12)
    is_illegal = torch.tensor([not legal[[3, *path], [*path, 3]].all() for path in paths.tolist()])
    assert is_illegal.any()
    assert not found[is_illegal].any()
    assert (found[~is_illegal] > 0).all()


def test_a_tag_that_cannot_be_reached_gives_no_nan() -> None:
    """I-X without B-X or I-Y before it is never legal in BIO."""
    tags = ("O", "I-X")
    scores = torch.randn(2, 3, 2, dtype=torch.float64, requires_grad=True)
    crf = CRF(2).double()
    lengths = torch.tensor([3, 2])
    outside = torch.zeros(2, 3, dtype=torch.long)
    loss = -crf(scores, lengths, tags=outside, legal=torch.from_numpy(legal_steps(tags))).sum()
    loss.backward()
    assert loss.item() == pytest.approx(0, abs=1e-12)  # O is the only sequence there is
    assert scores.grad is not None
    assert scores.grad.isfinite().all()
    assert crf.steps.grad is not None
    assert crf.steps.grad.isfinite().all()
