"""Language modelling: a text is read window by window, the losses of the next symbols are summed.

    loss = −Σ_t log P(w_t | w_1 … w_{t−1})        over the tokens of a window, or an objective that stands for it

Windows of a sequential partition follow each other, and the state that one leaves is the state that the next begins
with, detached: values continue, gradients end (truncated backpropagation through time, by the window length).
`task.truncation` leaves out more of the gradient inside a window.
Random windows begin with an empty state; their first `burn_in` tokens may serve to fill it. Validation reads the text
from its beginning with a carried state, or in overlapping windows with a model that carries none, and uses the full
softmax, whatever the objective is.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, cast, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from seqloom.core.errors import ConfigError, TrainingError
from seqloom.core.events import Listener, ignore, notice
from seqloom.core.reading import overlapping_windows
from seqloom.core.seeds import seed_for
from seqloom.data.plain_text import Stream
from seqloom.data.windows import RandomWindows, SequentialWindows, Window, WindowStarts, cut_windows
from seqloom.metrics.perplexity import perplexity
from seqloom.models.protocols import RecurrentLanguageModel
from seqloom.nn.bptt.truncation import FULL, Truncation
from seqloom.nn.objectives import (
    AliasSampler,
    Counts,
    FullSoftmax,
    Nce,
    NegativeSampling,
    Objective,
    SampledSoftmax,
    noise_distribution,
)
from seqloom.nn.recurrent import StackState
from seqloom.tasks.settings import FullConfig, LanguageModellingConfig, NceConfig, ObjectiveConfig, SampledConfig
from seqloom.training.task import Loss

DEV_ROWS = 32
"""Parts of the held-out text that are read side by side."""

DEV_LENGTH = 64
"""Tokens of each that are read at a time."""

DEV_WINDOW_TOKENS = 4096
"""Tokens of windows that are read side by side, where a model carries no state."""

LEAD = 256
"""Tokens that are read before each part, so that its state is as if the text had been read from its beginning."""

OUTLIER_NATS, MIN_PARTS = 3.0, 4
"""Nats per token above the median from which a part is reported, if there are at least so many parts."""


@runtime_checkable
class CarriesNothing(Protocol):
    """A language model that reads windows of at most `longest` tokens, each by itself."""

    longest: int


class TruncatesGradients(Protocol):
    """A language model whose gradient through time can be truncated, such as `RnnLm`."""

    def __call__(
        self,
        previous: Int[Tensor, "rows time"],
        state: StackState | None,
        *,
        truncation: Truncation,
        generator: torch.Generator,
    ) -> tuple[Float[Tensor, "rows time features"], StackState]:
        """As `RecurrentLanguageModel`, with a truncated gradient."""
        ...


def make_objective(config: ObjectiveConfig, counts: Counts) -> Objective:
    """The objective with noise from the counts of the training text, one per symbol."""
    if isinstance(config, FullConfig):
        return FullSoftmax(smoothing=config.smoothing)
    noise = AliasSampler(noise_distribution(counts, power=config.power))
    if isinstance(config, SampledConfig):
        return SampledSoftmax(noise, config.samples, correction=config.correction)
    if isinstance(config, NceConfig):
        return Nce(noise, config.samples, log_z=config.log_z, sharing=config.sharing)
    return NegativeSampling(noise, config.samples, sharing=config.sharing)


@dataclass(frozen=True)
class WindowBatch(Window):
    """Windows with their place in the epoch and in the text."""

    epoch: int
    index: int
    starts: Int[np.ndarray, " rows"]


class LanguageModellingTask:
    """A training text and a held-out text on one device.

    With sequential windows the task keeps the state that the last batch has left: `loss` must then be called for the
    batches of an epoch in their order. The state is part of a checkpoint (`memory`).
    """

    def __init__(
        self,
        train: Stream,
        dev: Stream,
        *,
        config: LanguageModellingConfig,
        seed: int,
        device: torch.device,
        listener: Listener = ignore,
    ) -> None:
        self.train, self.dev = train, dev
        self.config = config
        self.seed = seed
        self.device = device
        self.windows: SequentialWindows | RandomWindows
        if config.windows == "sequential":
            self.windows = SequentialWindows(train.tokens, rows=config.rows, length=config.length, seed=seed)
        else:
            self.windows = RandomWindows(
                train.tokens,
                rows=config.rows,
                length=config.length,
                seed=seed,
                offset=config.offset,
                burn_in=config.burn_in,
            )
        self.objective = make_objective(config.objective, train.counts())
        self._state: StackState | None = None
        self._place = (0, 0)
        """Epoch and index of the batch that this state belongs before."""
        self._listener = listener
        self._reported: set[int] = set()
        """Parts of the held-out text that were reported as outliers."""

    def batches(self, epoch: int) -> int:
        return self.windows.batches(epoch)

    def batch(self, epoch: int, index: int) -> WindowBatch:
        places = self.windows.batch(epoch, index)
        window = cut_windows(self.train.ids, places)
        previous, labels = window.previous.to(self.device), window.labels.to(self.device)
        return WindowBatch(previous, labels, epoch, index, places.starts)

    def count(self, batch: WindowBatch) -> int:
        rows, length = batch.labels.shape
        return rows * (length - self.config.burn_in)

    def loss(self, model: nn.Module, batch: WindowBatch) -> Loss:
        burn_in, truncation = self.config.burn_in, self.config.truncation.make()
        reader = cast("RecurrentLanguageModel", model)
        read: Callable[..., tuple[Tensor, StackState]] = reader
        if truncation != FULL:
            # What it draws belongs to the batch, like all noise.
            generator = torch.Generator().manual_seed(seed_for(self.seed, "truncation", batch.epoch, batch.index))
            read = partial(cast("TruncatesGradients", model), truncation=truncation, generator=generator)
        if burn_in and not self.config.burn_in_gradient:
            with torch.no_grad():
                _, state = reader(batch.previous[:, :burn_in], None)
            features, _ = read(batch.previous[:, burn_in:], state)  # [rows, time, features]
        else:
            features, left = read(batch.previous, self._state_before(batch))
            features = features[:, burn_in:]  # [rows, time, features]
            if self.has_memory:
                self._state, self._place = carried(left), (batch.epoch, batch.index + 1)
        labels = batch.labels[:, burn_in:].flatten()  # [rows, time] → [tokens]
        # Like all noise, the symbols that an objective draws belong to the batch.
        generator = torch.Generator().manual_seed(seed_for(self.seed, "objective", batch.epoch, batch.index))
        total = self.objective(features.flatten(0, 1), labels, reader.output, generator=generator)
        return Loss(total, len(labels))

    def validate(self, model: nn.Module) -> Mapping[str, float]:
        """Cross-entropy per token of the held-out text (its beginning, where `dev_tokens` says so) and perplexity."""
        found = self._text_loss(model, tokens=self.config.dev_tokens or None)
        odd = found.odd_parts()
        if not self._reported.issuperset(odd):
            notice(self._listener, self._describe_odd(found, odd))
            self._reported.update(odd)
        return {"loss": found.total / found.count, "perplexity": perplexity(found.total, found.count).value}

    def _describe_odd(self, found: "TextLoss", odd: Sequence[int]) -> str:
        """Report a part that dominates the loss: its text may be foreign, or the state before it untrained."""
        named = ", ".join(
            f"part {at + 1} (from line {self.dev.line_of(int(found.starts[at]))}) costs {found.parts[at]:.1f}"
            for at in odd[:3]
        )
        more = f" and {len(odd) - 3} more do likewise" if len(odd) > 3 else ""
        return (
            f"validation reads the held-out text in {len(found.parts)} parts, and {named} nats per token{more}, where "
            f"half of them cost at most {np.nanmedian(found.parts):.2f}; without that the loss would be "
            f"{found.loss_without(odd):.3f}, not {found.total / found.count:.3f}. Either the text there is unlike the "
            "rest, or the state that the model falls into before it is one that training never led to"
        )

    @torch.no_grad()
    def dev_loss(self, model: nn.Module) -> float:
        """Cross-entropy per token of the whole held-out text."""
        found = self._text_loss(model)
        return found.total / found.count

    def _text_loss(self, model: nn.Module, *, tokens: int | None = None) -> "TextLoss":
        if not isinstance(model, CarriesNothing):
            return text_loss(model, self.dev, device=self.device, tokens=tokens)
        length = min(self.config.length, model.longest)
        return window_loss(model, self.dev, device=self.device, length=length, tokens=tokens)

    def describe(self, batch: WindowBatch) -> str:
        lines = [str(self.train.line_of(int(start))) for start in batch.starts[:5]]
        more = " …" if len(batch.starts) > len(lines) else ""
        rows, length = batch.labels.shape
        return f"{rows} windows of {length} tokens, from lines {', '.join(lines)}{more}"

    def fingerprint(self) -> str:
        return self.train.fingerprint()

    def prepare(self, model: nn.Module) -> None:
        """Initialise a new output as the objective needs it."""
        self.objective.prepare(cast("RecurrentLanguageModel", model).output)

    @property
    def touches_rows(self) -> bool:
        """Whether the objective uses some rows of the output only."""
        return self.objective.touches_rows

    # --- what is carried from batch to batch -------------------------------------------------------------------------

    @property
    def has_memory(self) -> bool:
        """Whether the state is carried from batch to batch."""
        return self.config.windows == "sequential"

    def memory(self) -> Mapping[str, Tensor]:
        """The carried state and the batch that it belongs before, for a checkpoint."""
        tensors = {"place": torch.tensor(self._place)}
        for number, layer in enumerate(self._state or ()):
            tensors |= {f"{number}.{part}": tensor for part, tensor in enumerate(layer)}
        return tensors

    def restore_memory(self, memory: Mapping[str, Tensor]) -> None:
        """Restore what `memory` returned."""
        epoch, index = memory["place"].tolist()
        layers: dict[int, dict[int, Tensor]] = {}
        for name, tensor in memory.items():
            if name != "place":
                layer, part = map(int, name.split("."))
                layers.setdefault(layer, {})[part] = tensor.to(self.device)
        found = tuple(tuple(layers[layer][part] for part in sorted(layers[layer])) for layer in sorted(layers))
        self._state, self._place = found or None, (epoch, index)

    def _state_before(self, batch: WindowBatch) -> StackState | None:
        """The state that a batch begins with: an empty one at the start of an epoch and for random windows."""
        if not self.has_memory or batch.index == 0 or self._state is None:
            return None
        if self._place != (batch.epoch, batch.index):
            raise TrainingError(
                f"batch {batch.index} of epoch {batch.epoch} needs the state before it, but the stored state is that "
                f"before batch {self._place[1]} of epoch {self._place[0]}; use the batches in order, or set "
                "task.windows=random"
            )
        if len(self._state[0][0]) != len(batch.labels):
            raise ConfigError(
                f"the state of {len(self._state[0][0])} rows does not fit a batch of {len(batch.labels)}; keep "
                "task.rows as it was when this run began"
            )
        return self._state


def carried(state: StackState) -> StackState:
    """A state without its gradient. A row that is not finite is reset to zero, so that one bad batch stays one."""
    return tuple(
        tuple(torch.where(part.isfinite().all(1, keepdim=True), part, 0) for part in layer)
        for layer in ((part.detach() for part in layer) for layer in state)
    )


@dataclass(frozen=True, eq=False)
class TextLoss:
    """The loss of a text, in all and by parts."""

    total: float
    """−Σ log P."""
    count: int
    starts: Int[np.ndarray, " parts"]
    """The first token of each part."""
    parts: Float[np.ndarray, " parts"]
    """−Σ log P / n of each part."""

    def odd_parts(self) -> list[int]:
        """Parts with a far higher loss than the median; none if there are too few parts."""
        finite = self.parts[np.isfinite(self.parts)]
        if len(finite) < MIN_PARTS:
            return []
        # NaN counts as an outlier too.
        return [int(at) for at in np.flatnonzero(~(self.parts <= np.median(finite) + OUTLIER_NATS))]

    def loss_without(self, odd: Sequence[int]) -> float:
        """The mean of the other parts."""
        return float(np.delete(self.parts, odd).mean())


@torch.no_grad()
def window_loss(
    model: nn.Module, text: Stream, *, device: torch.device, length: int, tokens: int | None = None
) -> TextLoss:
    """The same of a model that reads windows of so many tokens, each by itself.

    A window begins in the middle of the one before it, so that a token has at least half a window before it.
    """
    reader = cast("RecurrentLanguageModel", model)
    count = min(tokens or text.tokens, text.tokens)
    windows = overlapping_windows(count, length)
    sums = np.zeros(len(windows))
    rows = max(1, DEV_WINDOW_TOKENS // length)
    for at in range(0, len(windows), rows):
        some = windows[at : at + rows]  # all as long, because only a text of one window is shorter
        starts = np.array([window.begin for window in some], np.int64)
        cut = cut_windows(text.ids, WindowStarts(starts, some[0].end - some[0].begin))
        features, _ = reader(cut.previous.to(device), None)  # [rows, time, features]
        for row, window in enumerate(some):
            new = slice(window.first - window.begin, window.end - window.begin)
            sums[at + row] = float(reader.output.cross_entropy(features[row, new], cut.labels[row, new].to(device)))
    firsts = np.array([window.first for window in windows], np.int64)
    sizes = np.array([window.end - window.first for window in windows])
    return TextLoss(float(sums.sum()), count, firsts, sums / sizes)


@torch.no_grad()
def text_loss(model: nn.Module, text: Stream, *, device: torch.device, tokens: int | None = None) -> TextLoss:
    """−Σ log P of the tokens of a text (or of its first `tokens`) under the full softmax, and their number.

    The text is cut into parts that are read side by side. Each part but the first begins with the state that the LEAD
    tokens before it leave, which is as good as that of all the text before it. A short text is read in one piece.
    """
    reader = cast("RecurrentLanguageModel", model)
    count = min(tokens or text.tokens, text.tokens)
    rows = max(1, min(DEV_ROWS, count // (4 * LEAD)))
    each = count // rows
    starts = each * np.arange(rows, dtype=np.int64)
    sums, rest_sum = np.zeros(rows), 0.0

    def read(places: WindowStarts, state: StackState | None) -> tuple[list[float], StackState]:
        window = cut_windows(text.ids, places)
        features, state = reader(window.previous.to(device), state)  # [rows, time, features]
        labels = window.labels.to(device)  # [rows, time]
        return [float(reader.output.cross_entropy(*row)) for row in zip(features, labels, strict=True)], state

    state: StackState | None = None
    if rows > 1:
        window = cut_windows(text.ids, WindowStarts(starts[1:] - LEAD, LEAD))
        _, found = reader(window.previous.to(device), None)
        # The first part is the beginning of the text, with an empty state.
        state = tuple(tuple(torch.cat([torch.zeros_like(part[:1]), part]) for part in layer) for layer in found)
    for begin in range(0, each, DEV_LENGTH):
        nats, state = read(WindowStarts(starts + begin, min(DEV_LENGTH, each - begin)), state)
        sums += nats
    if rest := count - rows * each:
        assert state is not None
        last = tuple(tuple(part[-1:] for part in layer) for layer in state)
        (rest_sum,), _ = read(WindowStarts(np.array([rows * each]), rest), last)
    return TextLoss(float(sums.sum()) + rest_sum, count, starts, sums / each)
