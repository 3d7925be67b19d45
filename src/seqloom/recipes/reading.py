"""How each kind of language model reads a text: the log-probability of every token, given those before it.

line    each line by itself, from BEGIN on
text    on and on: what was read in the lines before is remembered
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import torch
from jaxtyping import Float, Float64, Int, Int64
from torch import Tensor

from seqloom.classical.ngram import NGram
from seqloom.classical.steppers import NGramStepper
from seqloom.core.errors import UsageError
from seqloom.core.stepping import Stepper
from seqloom.core.symbols import BEGIN, END, PAD
from seqloom.data.windows import Places, cut_windows
from seqloom.tasks.language_modelling import LanguageModel

Context = Literal["line", "text"]
Progress = Callable[[int], None]

WINDOW = 512
"""Tokens read at a time where a text is read on and on; it changes speed and memory, not results."""
TOKENS = 8192
"""Tokens of lines that are read side by side."""
SCORES = 1 << 24
"""Scores of symbols held at a time."""
BLOCK = 1 << 20
"""Tokens after which a counted model tells how far it is."""


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


class Reader(Protocol):
    """A language model as texts are measured and written with it."""

    @property
    def context(self) -> Context:
        """How it reads unless it is told: as it was trained."""
        ...

    @property
    def has_blank_lines(self) -> bool:
        """Whether it has learned that a line may be blank; if not, blank lines are left out of what is measured."""
        ...

    def log_probs(self, text: TextIds, *, context: Context, progress: Progress) -> Float64[np.ndarray, " tokens"]:
        """log P of each token given those before it; `progress` is told how many more are done."""
        ...

    def stepper(self) -> Stepper:
        """The model as a search sees it."""
        ...


class RecurrentReader:
    """A recurrent language model, which reads windows of text at once."""

    def __init__(
        self, model: LanguageModel, device: torch.device, *, context: Context = "text", has_blank_lines: bool = True
    ) -> None:
        self.model, self.device = model, device
        self.context: Context = context
        self.has_blank_lines = has_blank_lines

    def stepper(self) -> Stepper:
        return self.model.stepper()

    @torch.inference_mode()
    def log_probs(self, text: TextIds, *, context: Context, progress: Progress) -> Float64[np.ndarray, " tokens"]:
        found = np.empty(len(text.ids))
        for places, log_probs in self._read_on(text) if context == "text" else self._read_lines(text):
            found[places] = log_probs
            progress(len(log_probs))
        return found

    def _read_on(self, text: TextIds) -> Iterator[tuple[slice, np.ndarray]]:
        state, tokens = None, len(text.ids)
        for begin in range(0, tokens, WINDOW):
            length = min(WINDOW, tokens - begin)
            window = cut_windows(text.ids, Places(np.array([begin], dtype=np.int64), length))
            features, state = self.model(window.previous.to(self.device), state)
            yield slice(begin, begin + length), self._chosen(features[0], window.labels[0].to(self.device))

    def _read_lines(self, text: TextIds) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        offsets = text.offsets
        for lines in _batches(text.lengths):
            columns = np.arange(text.lengths[lines].max(initial=0))
            is_token = columns < text.lengths[lines][:, None]
            places = offsets[lines][:, None] + columns
            labels = np.full(is_token.shape, PAD, dtype=np.int64)
            labels[is_token] = text.ids[places[is_token]]
            previous = np.concatenate([np.full((len(lines), 1), BEGIN), labels[:, :-1]], axis=1)
            state = None
            # Only a line that is longer than all that is read side by side takes more than one part.
            for part in (np.s_[:, begin : begin + TOKENS] for begin in range(0, len(columns), TOKENS)):
                features, state = self.model(torch.from_numpy(previous[part]).to(self.device), state)
                mask = torch.from_numpy(is_token[part]).to(self.device)
                chosen = self._chosen(features[mask], torch.from_numpy(labels[part]).to(self.device)[mask])
                yield places[part][is_token[part]], chosen

    def _chosen(self, features: Float[Tensor, "tokens width"], labels: Int[Tensor, " tokens"]) -> np.ndarray:
        """log P of the labels, a part at a time: there are as many scores as symbols for each token."""
        output = self.model.output
        first = output.log_probs(features[:1])
        at_once = max(1, SCORES // first.shape[1])
        parts = [
            output.log_probs(features[begin : begin + at_once]).gather(1, labels[begin : begin + at_once, None])
            for begin in range(0, len(labels), at_once)
        ]
        return torch.cat(parts).squeeze(1).double().cpu().numpy()


class NGramReader:
    """A counted model, which looks no further back than its order and never past the beginning of a line."""

    context: Context = "line"
    has_blank_lines = True

    def __init__(self, model: NGram) -> None:
        self.model = model

    def stepper(self) -> Stepper:
        return NGramStepper(self.model)

    def log_probs(self, text: TextIds, *, context: Context, progress: Progress) -> Float64[np.ndarray, " tokens"]:
        if context == "text":
            raise UsageError("an n-gram model reads each line by itself; leave out --context text")
        found = np.empty(len(text.ids))
        # In blocks of lines, so that progress can be told.
        ends = text.offsets[1:]
        begin = 0
        while begin < len(found):
            end = int(ends[min(int(np.searchsorted(ends, begin + BLOCK)), len(ends) - 1)])
            found[begin:end] = self.model.log_probs(text.ids[begin:end])
            progress(end - begin)
            begin = end
        return found


def _batches(lengths: Int64[np.ndarray, " lines"]) -> Iterator[Int64[np.ndarray, " some"]]:
    """Lines of similar length, rows × the longest of them within `TOKENS`."""
    order = np.argsort(-lengths, kind="stable")
    begin = 0
    while begin < len(order):
        rows = max(1, TOKENS // int(lengths[order[begin]]))
        yield order[begin : begin + rows]
        begin += rows
