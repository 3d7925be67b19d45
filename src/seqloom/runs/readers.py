"""Reading text with a language model: log P of every token given those before it, and the perplexity of lines.

Training measures its dev text with it; `seqloom.apps.language_model` mixes several models and writes text.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, cast

import numpy as np
import torch
from jaxtyping import Float, Float64, Int, Int64
from torch import Tensor

from seqloom.classical.ngram import NGram
from seqloom.classical.steppers import NGramStepper
from seqloom.core.errors import DataError, ModelError, UsageError
from seqloom.core.stepping import Stepper
from seqloom.core.symbols import BEGIN, END, PAD, UNKNOWN
from seqloom.data.windows import Places, cut_windows
from seqloom.metrics.perplexity import Perplexities, measure_text, perplexities
from seqloom.models.elmo import Elmo
from seqloom.models.rnn_lm import RnnLm
from seqloom.runs.model_dir import Loaded, in_words
from seqloom.tasks.language_modelling import LanguageModel as ReadableModel
from seqloom.text.normalise import collapse_spaces, is_blank
from seqloom.text.tokenizer import Tokenizer

Context = Literal["line", "text"]
"""Whether each line is read by itself, or as the continuation of the lines before it."""
Progress = Callable[[int], None]

WINDOW = 512
"""Tokens read at a time where a text is read as a whole; it changes speed and memory, not results."""
TOKENS_PER_BATCH = 8192
"""Tokens of lines that are read in one batch."""
MAX_SCORES = 1 << 24
"""Scores of symbols held at a time."""
PROGRESS_TOKENS = 1 << 20
"""Tokens after which an n-gram model reports its progress."""


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
        """How it reads by default: as it was trained."""
        ...

    @property
    def has_blank_lines(self) -> bool:
        """Whether it has learned that a line may be blank; if not, blank lines are left out of what is measured."""
        ...

    def log_probs(self, text: TextIds, *, context: Context, progress: Progress) -> Float64[np.ndarray, " tokens"]:
        """log P of each token given those before it; `progress` gets the number of those that were finished."""
        ...

    def stepper(self) -> Stepper:
        """The model as a search sees it."""
        ...


class RecurrentReader:
    """A recurrent language model, which reads windows of text at once."""

    def __init__(
        self, model: ReadableModel, device: torch.device, *, context: Context = "text", has_blank_lines: bool = True
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
            # Only a line that is longer than a batch takes more than one part.
            for part in (
                np.s_[:, begin : begin + TOKENS_PER_BATCH] for begin in range(0, len(columns), TOKENS_PER_BATCH)
            ):
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
        # In blocks of lines, so that progress can be reported.
        ends = text.offsets[1:]
        begin = 0
        while begin < len(found):
            end = int(ends[min(int(np.searchsorted(ends, begin + PROGRESS_TOKENS)), len(ends) - 1)])
            found[begin:end] = self.model.log_probs(text.ids[begin:end])
            progress(end - begin)
            begin = end
        return found


def _batches(lengths: Int64[np.ndarray, " lines"]) -> Iterator[Int64[np.ndarray, " some"]]:
    """Lines of similar length, rows × the longest of them within `TOKENS_PER_BATCH`."""
    order = np.argsort(-lengths, kind="stable")
    begin = 0
    while begin < len(order):
        rows = max(1, TOKENS_PER_BATCH // int(lengths[order[begin]]))
        yield order[begin : begin + rows]
        begin += rows


def reader_of(loaded: Loaded) -> Reader:
    """The reader of a loaded language model; any other model is refused with what it can be used for."""
    model = loaded.model
    if isinstance(model, RnnLm):
        return RecurrentReader(model, loaded.device)
    if isinstance(model, Elmo):
        half = cast("ReadableModel", model.forward_half())
        return RecurrentReader(half, loaded.device, context="line", has_blank_lines=False)
    if isinstance(model, NGram):
        return NGramReader(model)
    raise UsageError(f"{loaded.folder} is not a language model: {in_words(loaded.config)}")


def measure_perplexity(
    loaded: Loaded, lines: Sequence[str], *, progress: Callable[[int, int], None] = lambda _done, _all: None
) -> Perplexities:
    """Perplexities of lines, read as the model was trained; `progress` gets the tokens done and in all."""
    reader, done = reader_of(loaded), 0
    lines = lines if reader.has_blank_lines else [line for line in lines if not is_blank(line)]
    text = encode_lines(loaded.tokenizers.target, lines)

    def on_tokens(tokens: int) -> None:
        nonlocal done
        done += tokens
        progress(done, len(text.ids))

    log_probs = reader.log_probs(text, context=reader.context, progress=on_tokens)
    require_numbers(loaded.folder, log_probs)
    return perplexities_of(lines, text, log_probs)


def encode_lines(tokenizer: Tokenizer, lines: Sequence[str]) -> TextIds:
    """The ids of lines, of which there must be at least one."""
    if not lines:
        raise DataError("there is no text to measure: it has 0 lines")
    return TextIds.of(tokenizer.encode_many(lines))


def perplexities_of(lines: Sequence[str], text: TextIds, log_probs: Float64[np.ndarray, " tokens"]) -> Perplexities:
    """Perplexities of lines from log P of each token of their ids."""
    # Spaces are counted as they are set, not as they came, and the same for every model whatever it makes of them.
    size = measure_text(map(collapse_spaces, lines), len(text.ids) - len(lines))
    is_unknown = text.ids == UNKNOWN
    return perplexities(
        -float(log_probs[~is_unknown].sum()) + 0.0,
        size,
        unknown=int(is_unknown.sum()),
        unknown_cross_entropy=-float(log_probs[is_unknown].sum()) + 0.0,
        impossible=int((log_probs == -math.inf).sum()),
    )


def require_numbers(folder: Path, log_probs: Float64[np.ndarray, " tokens"]) -> None:
    """Refuse a model that returns NaN, before it becomes a perplexity of NaN."""
    is_nan = np.isnan(log_probs)
    if is_nan.any():
        raise ModelError(
            f"{folder} gives no number (NaN) for log P of {int(is_nan.sum()):,} of {len(is_nan):,} tokens, first of "
            f"token {int(is_nan.argmax()) + 1:,}; its weights are not finite: train it again, with a smaller "
            "training.learning_rate"
        )
