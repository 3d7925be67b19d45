"""The reading protocol: a language model as it scores texts, given the log-probability of every token.

line   each line by itself, from BEGIN
text   lines one after another: the model remembers the lines before
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float64, Int64

from seqloom.core.stepping import Stepper
from seqloom.core.symbols import END

Context = Literal["line", "text"]
TokensDone = Callable[[int], None]
"""Called with the number of tokens that were scored since the last call."""


@dataclass(frozen=True)
class TextIds:
    """Lines as ids, one after another, each ended by END."""

    ids: Int64[np.ndarray, " tokens"]
    lengths: Int64[np.ndarray, " lines"]

    @staticmethod
    def of(lines: Sequence[Sequence[int]]) -> "TextIds":
        """From the ids of each line, without END."""
        ids = np.fromiter((symbol for line in lines for symbol in (*line, END)), dtype=np.int64)
        return TextIds(ids, np.array([len(line) + 1 for line in lines], dtype=np.int64))

    @property
    def offsets(self) -> Int64[np.ndarray, " borders"]:
        """Where each line begins, and where the last one ends."""
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(self.lengths)])


@dataclass(frozen=True)
class TextWindow:
    """A part of a text that is read by itself; what it gives is used from `first` on."""

    begin: int
    end: int
    first: int


def overlapping_windows(tokens: int, length: int) -> list[TextWindow]:
    """Windows of `length` tokens that cover a text, each token once.

    A window begins in the middle of the one before it, so that all tokens but the first half window have at least half
    a window before them. The last one ends with the text.
    """
    windows, done = [], 0
    while done < tokens:
        end = min(tokens, length if not done else done + max(1, length // 2))
        windows.append(TextWindow(max(0, end - length), end, done))
        done = end
    return windows


class TextReader(Protocol):
    """A language model as texts are measured and generated with it."""

    @property
    def context(self) -> Context:
        """How it reads by default: as it was trained."""
        ...

    @property
    def has_blank_lines(self) -> bool:
        """Whether it was trained on blank lines; if not, blank lines are left out of what is measured."""
        ...

    @property
    def is_bound(self) -> bool:
        """Whether the log P of a line is a lower bound and not the value itself."""
        ...

    def log_probs(self, text: TextIds, *, context: Context, progress: TokensDone) -> Float64[np.ndarray, " tokens"]:
        """log P of each token given those before it."""
        ...

    def stepper(self) -> Stepper:
        """The model as a search sees it."""
        ...


@runtime_checkable
class ReadsText(Protocol):
    """A model that declares how it reads texts: every language model of this package."""

    def reader(self) -> TextReader: ...
