"""Windows: rows go on where they ended, labels are the next tokens, and every token is told as often as is said."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.core.errors import ConfigError, DataError
from seqloom.core.symbols import BEGIN, END
from seqloom.data.windows import RandomWindows, SequentialWindows, WindowStarts, cut_windows

SIZES = {"tokens": st.integers(40, 200), "rows": st.integers(1, 6), "length": st.integers(1, 9)}


@given(**SIZES, epoch=st.integers(0, 3))
def test_rows_of_a_partition_go_on_where_they_ended(tokens: int, rows: int, length: int, epoch: int) -> None:
    windows = SequentialWindows(tokens, rows=rows, length=length, seed=1)
    batches = [windows.batch(epoch, index) for index in range(windows.batches(epoch))]
    for one, other in pairwise(batches):
        assert list(one.starts + one.length) == list(other.starts)
    assert all(places.length == length for places in batches[1:-1])
    assert all(1 <= places.length <= length for places in batches)
    # Row after row, that is the text from one end to the other, but for what rows cannot share.
    told = [at for row in range(rows) for places in batches for at in places.starts[row] + np.arange(places.length)]
    assert told == list(range(told[0], told[0] + tokens - tokens % rows))
    assert 0 <= told[0] <= tokens % rows


@given(**SIZES, burn_in=st.integers(0, 4))
def test_cut_windows_tell_every_token_once(tokens: int, rows: int, length: int, burn_in: int) -> None:
    burn_in = min(burn_in, length - 1)
    windows = RandomWindows(tokens, rows=rows, length=length, seed=1, burn_in=burn_in)
    told = _told(windows, burn_in)
    assert len(set(told)) == len(told)
    assert sorted(told) == list(range(min(told), max(told) + 1))
    assert min(told) < length  # what is left out at the ends is less than a window
    assert tokens - 1 - max(told) < length


def test_windows_anywhere_may_overlap_and_stay_within_the_text() -> None:
    windows = RandomWindows(50, rows=3, length=7, seed=1, offset="anywhere")
    told = _told(windows, 0)
    assert len(set(told)) < len(told)
    assert min(told) >= 0
    assert max(told) <= 49
    assert len(told) == 49


@pytest.mark.parametrize("make", [SequentialWindows, RandomWindows])
def test_an_epoch_is_a_function_of_its_number(make: type[SequentialWindows] | type[RandomWindows]) -> None:
    def starts(seed: int, epoch: int) -> list[list[int]]:
        windows = make(1003, rows=4, length=90, seed=seed)
        return [windows.batch(epoch, index).starts.tolist() for index in range(windows.batches(epoch))]

    assert starts(1, 2) == starts(1, 2)
    assert starts(1, 2) != starts(1, 3)
    assert starts(1, 2) != starts(2, 2)


def test_labels_are_the_next_tokens_and_lines_begin_with_begin() -> None:
    ids = np.array([7, 8, END, 9, END, 5], dtype=np.uint16)
    window = cut_windows(ids, WindowStarts(np.array([0, 2]), 4))
    assert window.labels.tolist() == [[7, 8, END, 9], [END, 9, END, 5]]
    assert window.previous.tolist() == [[BEGIN, 7, 8, BEGIN], [8, BEGIN, 9, BEGIN]]


def test_what_holds_nothing_is_refused() -> None:
    with pytest.raises(DataError, match="20 tokens, too few for a window of 35 tokens in 32 rows"):
        SequentialWindows(20, rows=32, length=35, seed=1)
    with pytest.raises(ConfigError, match="0 rows"):
        SequentialWindows(20, rows=0, length=3, seed=1)
    with pytest.raises(ConfigError, match="4 tokens leaves nothing to learn after a burn-in of 4"):
        RandomWindows(20, rows=2, length=4, seed=1, burn_in=4)


def _told(windows: RandomWindows, burn_in: int) -> list[int]:
    batches = [windows.batch(0, index) for index in range(windows.batches(0))]
    assert all(len(places.starts) == windows.rows for places in batches[:-1])
    return [int(at) for each in batches for start in each.starts for at in start + np.arange(burn_in, each.length)]
