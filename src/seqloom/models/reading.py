"""How recurrent language models read texts and are decoded."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Float, Float64, Int, Int64
from torch import Tensor, nn

from seqloom.core.reading import Context, TextIds, TokensDone
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
        """log P of the labels, a part at a time: there are as many scores as symbols for each token."""
        output = self.model.output
        first = output.log_probs(features[:1])
        at_once = max(1, MAX_SCORES // first.shape[1])
        parts = [
            output.log_probs(features[begin : begin + at_once]).gather(1, labels[begin : begin + at_once, None])
            for begin in range(0, len(labels), at_once)
        ]
        return torch.cat(parts).squeeze(1).double().cpu().numpy()


def _batches(lengths: Int64[np.ndarray, " lines"]) -> Iterator[Int64[np.ndarray, " some"]]:
    """Lines of similar length, rows × the longest of them within `BATCH_TOKENS`."""
    order = np.argsort(-lengths, kind="stable")
    begin = 0
    while begin < len(order):
        rows = max(1, BATCH_TOKENS // int(lengths[order[begin]]))
        yield order[begin : begin + rows]
        begin += rows
