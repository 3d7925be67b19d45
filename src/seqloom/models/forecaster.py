"""Forecasters: the next values of series of numbers from a window of their past.

With a history x_1 … x_L of each column, in deviations from the mean of the training part:

    norm          z_t = (x_t − a) / s               a, s: of each window and column, by `window_norm`
                  last      a = x_L,  s = 1                 (NLinear; Zeng et al., 2023)
                  mean      a = mean of x_1 … x_L,  s = 1
                  standard  a = mean,  s = deviation        (RevIN without its gain; Kim et al., 2022)
                  none      a = 0,  s = 1
    core          ẑ_1 … ẑ_K = f(z_1 … z_L)          K steps in one pass
    forecast      ŷ_h = a + s ẑ_h

    linear        f(z) = W z + b
    mlp           f(z) = W z + b + V φ(… φ(U z))    φ = gelu; the linear map passes by
    recurrent     f(z) = W h_L + b                  h_t = stack(z_t, h_(t−1)): the history is the burn-in of the state
    transformer   f(z) = W [y_1; …; y_P] + b        y = encoder(patches of z)  (PatchTST; Nie et al., 2023)

A direct model has K = horizon outputs: each step ahead has weights of its own. A recursive one has K = 1: a forecast is
appended to the history for the next step, and a recurrent core just takes the next step from its state.

Independent channels pass through the same core one by one, as if each column were a window of its own; joint ones are
read together, and each column may depend on all. W begins at zero, so that an untrained model forecasts the level a.
"""

from itertools import pairwise
from typing import Any, ClassVar, Literal, cast, get_args

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.core.declaration import ModelSizes, Purpose, Reason, SeriesFacts, TaskKind
from seqloom.core.errors import ModelError, check_known
from seqloom.models.cell_options import CellOptions
from seqloom.nn.blocks import LearnedPositions
from seqloom.nn.dropout import Dropout, reseed
from seqloom.nn.embeddings import NO_SYMBOLS, Symbols
from seqloom.nn.encoders import TransformerEncoder
from seqloom.nn.init import linear, seeded
from seqloom.nn.multihead import check_heads
from seqloom.nn.packing import full_packing
from seqloom.nn.recurrent import Stack, cells_of, input_widths

Design = Literal["linear", "mlp", "recurrent", "transformer"]
Strategy = Literal["direct", "recursive"]
Channels = Literal["independent", "joint"]
WindowNorm = Literal["last", "mean", "standard", "none"]

MIN_DEVIATION = 1e-5
"""Added to the variance of a window, in variances of the training part: a constant window has none."""

PERIODS_OF_HISTORY = (14, 7, 4, 2, 1)
"""Lengths of history to choose from, in periods, the longest that fits first: of hourly values, two weeks to a day."""

HISTORIES = (128, 64, 32, 16, 8, 4, 2, 1)
"""The same in rows, for a series without a period."""

WINDOWS_PER_ROW = 2
"""Training windows that there are at least for each row of the history: a linear map has so many examples a weight."""

Windows = Float[Tensor, "rows history columns"]
Channel = Float[Tensor, "sequences history channels"]
Ahead = Float[Tensor, "sequences outputs channels"]


# --- settings --------------------------------------------------------------------------------------------------------


class ForecasterConfig(CellOptions):
    """A forecaster of series of numbers. What is not given is chosen for the series."""

    purpose: ClassVar[Purpose] = "forecaster"
    task_kind: ClassVar[TaskKind] = "forecasting"
    has_vocabulary: ClassVar[bool] = False

    kind: Literal["forecaster"] = "forecaster"
    """Names this model in a config file."""
    design: Design = "linear"
    """What is between history and forecast: a linear map, one with hidden layers beside it (mlp), recurrent layers, or
    a transformer over patches of the history."""
    history: int = Field(336, ge=1, le=1_000_000)
    """Rows that a forecast looks at; by default 14 periods of the series, or fewer if it is short."""
    horizon: int = Field(96, ge=1, le=1_000_000)
    """Steps ahead that the model is trained and measured for; by default one period of the series."""
    strategy: Strategy = "direct"
    """Whether one pass gives all steps (direct), or one step, which is read as history for the next (recursive)."""
    channels: Channels = "independent"
    """Whether each column is forecast from its own past, by one map for all of them (independent), or from the past of
    all columns (joint)."""
    window_norm: WindowNorm = "last"
    """What is subtracted from each window, and added to its forecast: the last value, the mean, the mean after division
    by the deviation (standard), or none."""
    width: int = Field(64, ge=1, le=100_000)
    """Size of hidden layers, states or patches; a linear model has none."""
    layers: int = Field(1, ge=1, le=1_000)
    """Hidden, recurrent or transformer layers."""
    heads: int = Field(4, ge=1)
    """Attention heads of a transformer; each takes width / heads numbers."""
    feed_forward: int = Field(128, ge=1, le=1_000_000)
    """Inner size of the feed-forward blocks of a transformer."""
    patch: int = Field(16, ge=1, le=100_000)
    """Rows of each patch that a transformer reads as one token."""
    dropout_rate: float = Field(0.0, ge=0, lt=1)
    """Share of numbers dropped from hidden layers, in training."""
    columns: int = Field(1, ge=1, le=1_000_000)
    """Series that are forecast together: as many as the training data has."""
    mean: tuple[float, ...] = ()
    """Of each column, which is reduced by it before the model reads it; by default that of the training part."""
    deviation: tuple[float, ...] = ()
    """By which each column is divided; by default its standard deviation in the training part, 1 if it is constant."""

    def check(self) -> None:
        super().check()
        if self.design == "transformer" and {"width", "heads"} <= self.model_fields_set:
            check_heads(self.width, self.heads)
        if self.design == "recurrent" and "columns" in self.model_fields_set:
            self.check_reset("forecaster", self._read_widths(), width=self.width)

    @model_validator(mode="after")
    def _scaling_fits(self) -> "ForecasterConfig":
        for name in ("mean", "deviation"):
            numbers = getattr(self, name)
            if numbers and len(numbers) != self.columns:
                raise ValueError(f"model.{name} has {len(numbers)} numbers, but model.columns={self.columns}")
        if any(number <= 0 for number in self.deviation):
            raise ValueError(f"model.deviation={list(self.deviation)}: each number must be above 0")
        return self

    @property
    def outputs(self) -> int:
        """Steps ahead that one pass gives."""
        return self.horizon if self.strategy == "direct" else 1

    def sizes_for_series(self, facts: SeriesFacts) -> ModelSizes:
        given = self.model_fields_set
        horizon, why_horizon = self.horizon, ""
        if "horizon" not in given:
            # A period that is most of the dev part would leave no windows to choose by.
            horizon = (
                facts.period if facts.period and 2 * facts.period <= facts.dev_rows else min(24, facts.dev_rows // 2)
            )
            horizon = max(1, horizon)
            why_horizon = "one period" if horizon == facts.period else "as the series has no period that fits"
        history = self.history if "history" in given else fitting_history(facts, horizon)
        periods = f", {history // facts.period} periods" if facts.period and history % facts.period == 0 else ""
        settings: dict[str, Any] = {"design": self.design, "horizon": horizon, "history": history}
        reasons = [Reason(("model.horizon",), f"{_steps(horizon)} ahead: {why_horizon}")] if why_horizon else []
        reasons.append(Reason(("model.history",), f"each forecast looks at {history:,} rows{periods}"))
        shared = " for all columns" if facts.columns > 1 and self.channels == "independent" else ""
        reasons.append(Reason(("model.kind", "model.design"), f"design {self.design}: one map{shared}"))
        if self.design == "transformer":
            settings |= {"layers": 2, "dropout_rate": 0.2}
        rate = {"linear": 2e-3, "mlp": 1e-3, "recurrent": 2e-3, "transformer": 5e-4}[self.design]
        return ModelSizes(settings, tuple(reasons), max_learning_rate=rate)

    def build(self, symbols: Symbols = NO_SYMBOLS, *, seed: int) -> "Forecaster":  # noqa: ARG002
        """A model with fresh weights drawn from `seed`, which also begins its dropout."""
        with seeded(seed):
            model = Forecaster(
                self._core(),
                history=self.history,
                outputs=self.outputs,
                columns=self.columns,
                channels=self.channels,
                window_norm=self.window_norm,
            )
        reseed(model, seed)
        return model

    def _core(self) -> "Core":
        channels = 1 if self.channels == "independent" else self.columns
        match self.design:
            case "linear":
                return LinearCore(self.history, self.outputs, channels=channels)
            case "mlp":
                hidden = [self.width] * self.layers
                return MlpCore(
                    self.history, self.outputs, channels=channels, hidden=hidden, dropout_rate=self.dropout_rate
                )
            case "recurrent":
                self.check_reset("forecaster", self._read_widths(), width=self.width)
                cells = cells_of(self.make_cell(), channels, width=self.width, layers=self.layers)
                return RecurrentCore(Stack(cells, dropout_rate=self.dropout_rate), self.outputs, channels=channels)
            case "transformer":
                check_heads(self.width, self.heads)
                patch = min(self.patch, self.history)
                patches = -(-self.history // patch)
                encoder = TransformerEncoder(
                    patch * channels,
                    self.width,
                    positions=LearnedPositions(self.width, positions=patches),
                    layers=self.layers,
                    heads=self.heads,
                    feed_forward=self.feed_forward,
                    dropout_rate=self.dropout_rate,
                    inner_dropout_rate=self.dropout_rate,
                )
                return TransformerCore(encoder, self.outputs, channels=channels, patch=patch, patches=patches)

    def _read_widths(self) -> tuple[int, ...]:
        channels = 1 if self.channels == "independent" else self.columns
        return input_widths(channels, self.width, layers=self.layers)


def fitting_history(facts: SeriesFacts, horizon: int) -> int:
    """The longest history to choose from that leaves enough windows in the training rows."""
    lengths = [count * facts.period for count in PERIODS_OF_HISTORY] if facts.period else []
    for length in (*lengths, *HISTORIES):
        if facts.rows - length - horizon + 1 >= WINDOWS_PER_ROW * length:
            return length
    return 1


def _steps(count: int) -> str:
    return f"{count:,} step{'' if count == 1 else 's'}"


# --- the model -------------------------------------------------------------------------------------------------------


class Forecaster(nn.Module):
    """A norm for each window around a core; `forward` gives the outputs of one pass, `forecast` any number of steps."""

    def __init__(
        self,
        core: "Core",
        *,
        history: int,
        outputs: int,
        columns: int,
        channels: Channels = "independent",
        window_norm: WindowNorm = "last",
    ) -> None:
        super().__init__()
        check_known("channels", channels, get_args(Channels))
        check_known("window_norm", window_norm, get_args(WindowNorm))
        self.core = core
        self.history, self.outputs, self.columns = history, outputs, columns
        self.are_joint, self.window_norm = channels == "joint", window_norm

    def forward(self, history: Windows) -> Float[Tensor, "rows outputs columns"]:
        """The next `outputs` values after the last `self.history` rows of each window."""
        scaled, level, scale = self._normed(history)
        ahead: Tensor = self.core(self._sequences(scaled))  # [sequences, outputs, channels]
        return self._windows(ahead) * scale + level

    def forecast(self, history: Windows, *, horizon: int) -> Float[Tensor, "rows horizon columns"]:
        """The next `horizon` values. Steps beyond the outputs of one pass are made of forecasts."""
        if horizon <= self.outputs:
            ahead: Tensor = self(history)
            return ahead[:, :horizon]
        if self.outputs == 1 and isinstance(self.core, RecurrentCore):
            scaled, level, scale = self._normed(history)
            return self._windows(self.core.roll(self._sequences(scaled), horizon)) * scale + level
        length = history.shape[1]
        while history.shape[1] < length + horizon:
            history = torch.cat([history, self(history)], dim=1)
        return history[:, length : length + horizon]

    def layers_by_entry(self) -> list[tuple[nn.Module, str]]:
        """The layers that ranks may gather one by one, and the method by which a loss enters them."""
        return [(self.core, "forward")]

    def _normed(self, history: Windows) -> tuple[Tensor, Tensor, Tensor]:
        """The rows that are read, after the norm; its level and scale, which are [rows, 1, columns]."""
        rows, columns = history.shape[1:]
        if rows < self.history or columns != self.columns:
            raise ModelError(
                f"a history of {rows} rows and {columns} columns does not fit this model: it reads {self.history} rows "
                f"of {self.columns}"
            )
        read = history[:, rows - self.history :]
        level, scale = torch.zeros_like(read[:, -1:]), torch.ones_like(read[:, -1:])
        if self.window_norm == "last":
            level = read[:, -1:]
        elif self.window_norm != "none":
            level = read.mean(dim=1, keepdim=True)
        if self.window_norm == "standard":
            scale = (read.var(dim=1, keepdim=True, correction=0) + MIN_DEVIATION).sqrt()
        return (read - level) / scale, level, scale

    def _sequences(self, windows: Float[Tensor, "rows time columns"]) -> Float[Tensor, "sequences time channels"]:
        """What the core reads: columns one by one, or all together."""
        if self.are_joint:
            return windows
        return windows.transpose(1, 2).reshape(-1, windows.shape[1], 1)  # [rows · columns, time, 1]

    def _windows(self, sequences: Float[Tensor, "sequences time channels"]) -> Float[Tensor, "rows time columns"]:
        """The reverse of `_sequences`."""
        if self.are_joint:
            return sequences
        return sequences.reshape(-1, self.columns, sequences.shape[1]).transpose(1, 2)


def _head(inputs: int, outputs: int, channels: int) -> nn.Linear:
    """W x + b for each step and channel, which begins at zero: the level of the window is the first forecast."""
    layer = nn.Linear(inputs, outputs * channels)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


class LinearCore(nn.Module):
    """W z + b over the whole window."""

    def __init__(self, history: int, outputs: int, *, channels: int) -> None:
        super().__init__()
        self.head = _head(history * channels, outputs, channels)

    def forward(self, windows: Channel) -> Ahead:
        ahead: Tensor = self.head(windows.flatten(1))  # [sequences, outputs · channels]
        return ahead.view(len(windows), -1, windows.shape[2])


class MlpCore(nn.Module):
    """W z + b, and hidden layers beside it."""

    def __init__(self, history: int, outputs: int, *, channels: int, hidden: list[int], dropout_rate: float) -> None:
        super().__init__()
        widths = [history * channels, *hidden]
        self.direct = _head(widths[0], outputs, channels)
        self.hidden = cast("list[nn.Linear]", nn.ModuleList(linear(*pair) for pair in pairwise(widths)))
        self.dropout = Dropout(dropout_rate)
        self.head = _head(widths[-1], outputs, channels)

    def forward(self, windows: Channel) -> Ahead:
        flat = windows.flatten(1)  # [sequences, history · channels]
        x = flat
        for layer in self.hidden:
            x = self.dropout(F.gelu(layer(x)))  # [sequences, width]
        ahead: Tensor = self.direct(flat) + self.head(x)
        return ahead.view(len(windows), -1, windows.shape[2])


class RecurrentCore(nn.Module):
    """Recurrent layers that read the window from left to right; the last state gives the forecast."""

    def __init__(self, stack: Stack, outputs: int, *, channels: int) -> None:
        super().__init__()
        self.stack = stack
        self.head = _head(stack.climb.width, outputs, channels)

    def forward(self, windows: Channel) -> Ahead:
        states = self.stack.outputs(windows)  # [sequences, history, width]
        ahead: Tensor = self.head(states[:, -1])
        return ahead.view(len(windows), -1, windows.shape[2])

    def roll(self, windows: Channel, horizon: int) -> Float[Tensor, "sequences horizon channels"]:
        """Read the window, then each forecast in turn, from one state to the next; of a core with one output."""
        states, state = self.stack(windows)
        made = [self.head(states[:, -1])]  # [sequences, channels]
        while len(made) < horizon:
            hidden, state = self.stack.step(made[-1], state)
            made.append(self.head(hidden))
        return torch.stack(made, dim=1)


class TransformerCore(nn.Module):
    """An encoder over patches of the window; all its outputs together give the forecast.

    A window that is not a multiple of the patch is continued to the left by its first row.
    """

    def __init__(self, encoder: TransformerEncoder, outputs: int, *, channels: int, patch: int, patches: int) -> None:
        super().__init__()
        self.patch, self.patches = patch, patches
        self.encoder = encoder
        self.head = _head(patches * encoder.width, outputs, channels)

    def forward(self, windows: Channel) -> Ahead:
        sequences, rows, channels = windows.shape
        if missing := self.patches * self.patch - rows:
            windows = torch.cat([windows[:, :1].expand(-1, missing, -1), windows], dim=1)
        packing = full_packing(sequences, self.patches, device=windows.device)
        states = self.encoder(windows.reshape(sequences * self.patches, -1), packing)  # [sequences · patches, width]
        ahead: Tensor = self.head(states.view(sequences, -1))  # [sequences, outputs · channels]
        return ahead.view(sequences, -1, channels)


Core = LinearCore | MlpCore | RecurrentCore | TransformerCore
