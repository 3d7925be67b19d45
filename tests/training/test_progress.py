"""Dealing batches to ranks, and values that survive a trip through JSON."""

import json
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as some

from seqloom.training.progress import Best, Progress, deal
from seqloom.training.schedules import Plateau


@given(some.integers(0, 50), some.integers(1, 20), some.integers(1, 5))
def test_ranks_share_every_batch_once_and_keep_in_step(first: int, batches: int, ranks: int) -> None:
    hands = [deal(0, first, first + batches, rank=rank, ranks=ranks).mine for rank in range(ranks)]
    assert len({len(hand) for hand in hands}) == 1
    # Read round by round, the order is that of one process: it does not depend on the number of ranks.
    rounds = [index for cards in zip(*hands, strict=True) for index in cards]
    assert [index for index in rounds if index is not None] == list(range(first, first + batches))
    assert rounds.count(None) < ranks


@given(some.floats(allow_nan=False, allow_infinity=False), some.integers(0, 10**12))
def test_progress_survives_json_to_the_bit(loss: float, tokens: int) -> None:
    progress = Progress(
        step=3, tokens=tokens, logged_loss=loss, best=Best(loss=loss, step=2, stale=1), plateau=Plateau(loss, 1, 2)
    )
    assert Progress.from_json(json.loads(json.dumps(progress.to_json()))) == progress


def after(*losses: float) -> Best:
    best = Best()
    for number, loss in enumerate(losses, start=1):
        best = best.after(loss, number)
    return best


def test_patience_counts_validations_since_the_best() -> None:
    assert after(3.0, 2.0, 2.0, 2.5) == Best(loss=2.0, step=2, stale=2)
    is_over: Callable[[int], bool] = after(3.0, 2.0, 2.0, 2.5).is_over
    assert (is_over(2), is_over(3), is_over(0)) == (True, False, False)


def test_a_loss_that_is_no_number_is_never_the_best() -> None:
    assert after(float("nan"), float("-inf"), 5.0) == Best(loss=5.0, step=3)
    assert after(5.0, float("nan")) == Best(loss=5.0, step=1, stale=1)
