"""How language models read texts, and how recurrent ones are decoded."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Float, Float64, Int, Int64
from torch import Tensor, nn

from seqloom.core.reading import Context, TextIds, TokensDone, overlapping_windows
from seqloom.core.stepping import Source, State, Step, Stepper
from seqloom.core.symbols import BEGIN, END, PAD
from seqloom.models.protocols import RecurrentLanguageModel
from seqloom.nn.dropout import evaluating
from seqloom.nn.outputs import AdaptiveOutput, Output
from seqloom.nn.recurrent import StackState

WINDOW_TOKENS = 512
"""Tokens read at a time from a continuous text; it changes speed and memory, not results."""
BATCH_TOKENS = 8192
"""Tokens of lines that are read side by side."""
MAX_WINDOW = 2048
"""Tokens of a window of text that is read as a whole, where the model itself allows more."""
MAX_SCORES = 1 << 24
"""Scores of symbols held at a time."""


class StepsThroughText(Protocol):
    """A recurrent language model that also reads one symbol at a time."""

    output: Output | AdaptiveOutput

    def start(self, rows: int) -> StackState:
        """The empty state, in which nothing has been read."""
        ...

    def step(self, last: Int[Tensor, " rows"], state: StackState) -> tuple[Float[Tensor, "rows features"], StackState]:
        """One position."""
        ...


@dataclass(frozen=True)
class ReadingState:
    """The states of all layers, by row."""

    layers: StackState

    def select(self, rows: Int[Tensor, " picked"]) -> "ReadingState":
        return ReadingState(tuple(tuple(part.index_select(0, rows) for part in layer) for layer in self.layers))


class RecurrentStepper:
    """Decodes a recurrent language model, without dropout and without gradients whatever mode its `module` is in.

    A source only determines the number of rows.
    """

    begin = BEGIN
    end = END

    def __init__(self, model: StepsThroughText, module: nn.Module) -> None:
        self.model, self.module = model, module

    def start(self, source: Source) -> ReadingState:
        with torch.no_grad():
            return ReadingState(self.model.start(len(source.lengths)))

    def step(self, state: State, last: Int[Tensor, " rows"]) -> Step:
        assert isinstance(state, ReadingState)
        with evaluating(self.module):
            features, layers = self.model.step(last, state.layers)
            log_probs = self.model.output.log_probs(features)
        return Step(log_probs, ReadingState(layers))


class RecurrentReader:
    """A recurrent language model that reads windows of text at once."""

    is_bound = False

    def __init__(
        self,
        model: RecurrentLanguageModel,
        device: torch.device,
        *,
        context: Context = "text",
        has_blank_lines: bool = True,
    ) -> None:
        self.model, self.device = model, device
        self.context: Context = context
        self.has_blank_lines = has_blank_lines

    def stepper(self) -> Stepper:
        return self.model.stepper()

    @torch.inference_mode()
    def log_probs(self, text: TextIds, *, context: Context, progress: TokensDone) -> Float64[np.ndarray, " tokens"]:
        found = np.empty(len(text.ids))
        for places, log_probs in self._read_on(text) if context == "text" else self._read_lines(text):
            found[places] = log_probs
            progress(len(log_probs))
        return found

    def _read_on(self, text: TextIds) -> Iterator[tuple[slice, np.ndarray]]:
        state = None
        labels = torch.from_numpy(text.ids)
        # As in training, the end of a line is read as the beginning of the next.
        previous = torch.cat([labels.new_tensor([BEGIN]), labels[:-1].masked_fill(labels[:-1] == END, BEGIN)])
        for begin in range(0, len(labels), WINDOW_TOKENS):
            part = slice(begin, min(begin + WINDOW_TOKENS, len(labels)))
            features, state = self.model(previous[None, part].to(self.device), state)  # [1, window, features]
            yield part, self._chosen(features[0], labels[part].to(self.device))

    def _read_lines(self, text: TextIds) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        offsets = text.offsets
        for lines in _batches(text.lengths):
            columns = np.arange(text.lengths[lines].max(initial=0))
            is_token = columns < text.lengths[lines][:, None]  # [lines, columns]
            places = offsets[lines][:, None] + columns
            labels = np.full(is_token.shape, PAD, dtype=np.int64)
            labels[is_token] = text.ids[places[is_token]]
            previous = np.concatenate([np.full((len(lines), 1), BEGIN), labels[:, :-1]], axis=1)
            state = None
            # Only a line longer than a whole batch takes more than one part.
            for part in (np.s_[:, begin : begin + BATCH_TOKENS] for begin in range(0, len(columns), BATCH_TOKENS)):
                features, state = self.model(torch.from_numpy(previous[part]).to(self.device), state)
                mask = torch.from_numpy(is_token[part]).to(self.device)
                chosen = self._chosen(features[mask], torch.from_numpy(labels[part]).to(self.device)[mask])
                yield places[part][is_token[part]], chosen

    def _chosen(self, features: Float[Tensor, "tokens width"], labels: Int[Tensor, " tokens"]) -> np.ndarray:
        return chosen_log_probs(self.model.output.log_probs, features, labels)


def chosen_log_probs(
    log_probs: Callable[[Tensor], Tensor], features: Float[Tensor, "tokens width"], labels: Int[Tensor, " tokens"]
) -> Float64[np.ndarray, " tokens"]:
    """log P of the labels, a part at a time: there are as many scores as symbols for each token."""
    first = log_probs(features[:1])
    at_once = max(1, MAX_SCORES // first.shape[1])
    parts = [
        log_probs(features[begin : begin + at_once]).gather(1, labels[begin : begin + at_once, None])
        for begin in range(0, len(labels), at_once)
    ]
    return torch.cat(parts).squeeze(1).double().cpu().numpy()


class ReadsWindow(Protocol):
    """A language model that reads a window of text as a whole and carries nothing to the next."""

    longest: int

    def __call__(self, previous: Int[Tensor, "rows time"]) -> tuple[Float[Tensor, "rows time features"], tuple[()]]:
        """Features of every position, each from the symbols before it."""
        ...

    def log_probs(self, features: Float[Tensor, "tokens features"]) -> Float[Tensor, "tokens symbols"]:
        """log P of every symbol."""
        ...

    def stepper(self) -> Stepper:
        """The model as a search sees it."""
        ...


class WindowReader:
    """A language model that reads windows of text, each by itself.

    A text of more than `longest` tokens, or of more than `MAX_WINDOW`, is read in windows of so many, each of which
    begins in the middle of the one before. A token is scored once, with at least half a window before it.
    """

    has_blank_lines = True
    is_bound = False

    def __init__(self, model: ReadsWindow, device: torch.device, *, context: Context) -> None:
        self.model, self.device = model, device
        self.context: Context = context

    def stepper(self) -> Stepper:
        return self.model.stepper()

    @torch.inference_mode()
    def log_probs(self, text: TextIds, *, context: Context, progress: TokensDone) -> Float64[np.ndarray, " tokens"]:
        found = np.empty(len(text.ids))
        # As in training, the end of a line is read as the beginning of the next.
        previous = np.concatenate([[BEGIN], np.where(text.ids[:-1] == END, BEGIN, text.ids[:-1])])
        for begins, firsts, ends in self._windows(text, context):
            columns = np.arange((ends - begins).max())
            is_token = columns < (ends - begins)[:, None]  # [windows, columns]
            places = begins[:, None] + columns
            read = np.full(is_token.shape, PAD, dtype=np.int64)
            read[is_token] = previous[places[is_token]]
            features, _ = self.model(torch.from_numpy(read).to(self.device))  # [windows, columns, features]
            is_scored = is_token & (places >= firsts[:, None])
            labels = torch.from_numpy(text.ids[places[is_scored]]).to(self.device)
            scored = features[torch.from_numpy(is_scored).to(self.device)]
            found[places[is_scored]] = chosen_log_probs(self.model.log_probs, scored, labels)
            progress(len(labels))
        return found

    def _windows(self, text: TextIds, context: Context) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Batches of windows of similar length: where they begin, are scored from, and end."""
        length = min(self.model.longest, MAX_WINDOW)
        borders = text.offsets if context == "line" else np.array([0, len(text.ids)])
        parts = np.array(
            [
                (begin + window.begin, begin + window.first, begin + window.end)
                for begin, end in pairwise(borders.tolist())
                for window in overlapping_windows(end - begin, length)
            ],
            np.int64,
        )
        for some in _batches(parts[:, 2] - parts[:, 0]):
            begins, firsts, ends = parts[some].T
            yield begins, firsts, ends


def _batches(lengths: Int64[np.ndarray, " lines"]) -> Iterator[Int64[np.ndarray, " some"]]:
    """Lines of similar length, rows × the longest of them within `BATCH_TOKENS`."""
    order = np.argsort(-lengths, kind="stable")
    begin = 0
    while begin < len(order):
        rows = max(1, BATCH_TOKENS // int(lengths[order[begin]]))
        yield order[begin : begin + rows]
        begin += rows
