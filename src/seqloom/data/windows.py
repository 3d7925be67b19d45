"""Windows on a long text: which tokens a language model learns from together.

A window is `length` tokens to predict, each from the ones before it: its labels are at s … s + length − 1 of the
text, what is read at s − 1 … s + length − 2. Two ways to cut a text of T tokens into batches of them:

    sequential   the text is cut into `rows` equal rows, which are read side by side from left to right: row i of a
                 batch begins where row i of the batch before ended, so the state of a model can be carried on
    random       rows of a batch come from anywhere and begin with an empty state:
                   cut        the text is cut into windows after one random offset; each is used once an epoch
                   anywhere   every window begins at a random token, so windows may overlap

All of it is a pure function of (tokens, rows, length, seed, epoch, index): nothing has to be saved to resume.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Int, Int64, Integer
from torch import Tensor

from seqloom.core.errors import ConfigError, DataError
from seqloom.core.seeds import seed_for
from seqloom.core.symbols import BEGIN, END

Offset = Literal["cut", "anywhere"]


@dataclass(frozen=True)
class WindowStarts:
    """Where the windows of a batch begin, row by row, and how many tokens each holds."""

    starts: Int64[np.ndarray, " rows"]
    length: int


class SequentialWindows:
    """Neighbouring batches are neighbours in the text (#19).

        row i         tokens b + i·n … b + (i + 1)·n − 1        n = ⌊T / rows⌋
        first batch   the first u tokens of each row            u from 1 to `length`
        others        the next `length` tokens of each row, at last the rest

    b (from 0 to T mod rows, tokens that no row has a place for) and u are drawn in each epoch, so that windows do not
    break the text at the same places again.
    """

    def __init__(self, tokens: int, *, rows: int, length: int, seed: int) -> None:
        _check(tokens, rows=rows, length=length)
        self.tokens, self.rows, self.length, self.seed = tokens, rows, length, seed

    def batches(self, epoch: int) -> int:
        """How many batches an epoch has."""
        _, first = self._draw(epoch)
        return 1 + -(-(self.tokens // self.rows - first) // self.length)

    def batch(self, epoch: int, index: int) -> WindowStarts:
        """The windows of a batch."""
        (begin, first), each = self._draw(epoch), self.tokens // self.rows
        done = 0 if index == 0 else first + (index - 1) * self.length
        length = first if index == 0 else min(self.length, each - done)
        assert length > 0, f"batch {index} lies beyond the end of epoch {epoch}"
        return WindowStarts(begin + each * np.arange(self.rows, dtype=np.int64) + done, length)

    def _draw(self, epoch: int) -> tuple[int, int]:
        generator = np.random.default_rng(seed_for(self.seed, "sequential windows", epoch))
        begin = int(generator.integers(self.tokens % self.rows + 1))
        return begin, min(int(generator.integers(1, self.length + 1)), self.tokens // self.rows)


class RandomWindows:
    """Windows in random order, each by itself (#18).

        cut        starts r, r + s, r + 2s, … with r from 0 to s − 1, drawn in each epoch, and then shuffled
        anywhere   as many starts as fit into the text, each from 0 to T − length

    With `burn_in` = k the first k tokens of a window only lead up to the others. The stride s = length − k then lets
    each token be predicted once in an epoch of cut windows, but for the few at either end that no window reaches.
    """

    def __init__(
        self, tokens: int, *, rows: int, length: int, seed: int, offset: Offset = "cut", burn_in: int = 0
    ) -> None:
        _check(tokens, rows=1, length=length)
        if not 0 <= burn_in < length:
            raise ConfigError(f"a window of {length} tokens leaves nothing to learn after a burn-in of {burn_in}")
        self.tokens, self.rows, self.length, self.seed = tokens, rows, length, seed
        self.offset, self.stride = offset, length - burn_in
        self._latest: tuple[int, Int64[np.ndarray, " windows"]] | None = None

    def batches(self, epoch: int) -> int:
        """How many batches an epoch has."""
        return -(-len(self._starts(epoch)) // self.rows)

    def batch(self, epoch: int, index: int) -> WindowStarts:
        """The windows of a batch; the last one of an epoch may have fewer rows."""
        starts = self._starts(epoch)[index * self.rows : (index + 1) * self.rows]
        assert len(starts), f"batch {index} lies beyond the end of epoch {epoch}"
        return WindowStarts(starts, self.length)

    def _starts(self, epoch: int) -> Int64[np.ndarray, " windows"]:
        if self._latest is None or self._latest[0] != epoch:
            generator = np.random.default_rng(seed_for(self.seed, "random windows", epoch))
            last = self.tokens - self.length  # where the last window can begin
            if self.offset == "cut":
                offset = int(generator.integers(min(self.stride, last + 1)))
                starts = generator.permutation(np.arange(offset, last + 1, self.stride, dtype=np.int64))
            else:
                starts = generator.integers(last + 1, size=last // self.stride + 1, dtype=np.int64)
            self._latest = (epoch, starts)
        return self._latest[1]


@dataclass(frozen=True)
class Window:
    """A batch of windows as tensors: `labels` are to be predicted, each from what was read up to `previous`."""

    previous: Int[Tensor, "rows time"]
    labels: Int[Tensor, "rows time"]


def cut_windows(ids: Integer[np.ndarray, " tokens"], places: WindowStarts) -> Window:
    """The windows at these places of a text.

    The symbol before a label is read unchanged, except that BEGIN is read at the start of the text and in the place of
    every END: the end of a line is the beginning of the next one. So a model that reads a single line is
    fed what it was fed in training.
    """
    positions = places.starts[:, None] + np.arange(-1, places.length, dtype=np.int64)
    taken = torch.from_numpy(ids[np.maximum(positions, 0)].astype(np.int64))
    previous = taken[:, :-1].clone()
    previous[previous == END] = BEGIN
    previous[torch.from_numpy(places.starts == 0), 0] = BEGIN
    return Window(previous, taken[:, 1:].contiguous())


def _check(tokens: int, *, rows: int, length: int) -> None:
    if rows < 1 or length < 1:
        raise ConfigError(f"windows of {rows} rows and {length} tokens are empty; give 1 or more of both")
    if tokens < max(rows, length):
        raise DataError(
            f"the text has {tokens:,} tokens, too few for a window of {length} tokens in {rows} rows; "
            "take more text, or make task.rows and task.length smaller"
        )
