"""What the last layer is trained for: the full softmax, and three ways to avoid its sum over all symbols.

Scores are s_w = W_w · x + b_w, the model is P(w ∣ x) = exp(s_w) / Z with Z = Σ_w exp(s_w), and the gradient of
−log P(y ∣ x) is that of s_y under the data minus its mean under the model: Z makes a large vocabulary expensive.

    FullSoftmax        −log P(y ∣ x)                       every symbol, every token
    SampledSoftmax     Z estimated from some symbols       tends to the full softmax as their number grows
    Nce                "data or noise?", Z taken as 1      tends to the gradient of the full softmax
    NegativeSampling   the same without q: no model of P   word vectors, not probabilities

Each is a value: called with features, labels and the output layer it returns a sum over tokens. Symbols to compare
with come from the given generator. With the row gradients of `training.sparse`, a step of the last three touches
the rows of the labels and of the drawn symbols and no others.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, get_args

import numpy as np
import torch
from jaxtyping import Float, Float64, Int, Int64
from torch import Tensor
from torch.nn import functional as F

from seqloom.core.errors import ConfigError, DataError, ModelError, check_known
from seqloom.nn.outputs import AdaptiveOutput, Output

# Drawing symbols from a fixed distribution in constant time: the alias method (Walker, 1977; Vose, 1991).
#
# The distribution over V symbols is cut into V slots of equal weight, each shared by at most two symbols:
#
#     slot i returns its own symbol i with probability t_i, and else a_i, its alias
#     P(w) = 1/V · (t_w + Σ_{i: a_i = w} (1 − t_i))
#
# A draw is then a uniform slot and one comparison, however many symbols there are.

Counts = np.ndarray[tuple[int], np.dtype[Any]]


def noise_distribution(counts: Counts, *, power: float, smoothing: float = 1.0) -> Float64[np.ndarray, " symbols"]:
    """q(w) ∝ (c(w) + s)^α, the noise distribution.

        α = 0      uniform
        α = 0.75   word2vec's choice: between both
        α = 1      unigram

    With s > 0 no symbol is impossible. That is needed: a symbol that is never drawn is never pushed down, and a
    correction by log q would be infinite.
    """
    if counts.ndim != 1 or not len(counts):
        raise DataError(f"noise needs one count per symbol, not an array of shape {counts.shape}")
    values = counts.astype(np.float64)
    if not bool(np.isfinite(values).all()) or bool((values < 0).any()):
        raise DataError(f"counts of symbols must be finite and not negative; the least is {values.min():g}")
    if not 0 <= power <= 1 or not smoothing > 0:
        raise ConfigError(
            f"noise has power {power:g} and smoothing {smoothing:g}; give a power from 0 to 1 and a smoothing above 0"
        )
    weights = (values + smoothing) ** power
    normalised: Float64[np.ndarray, " symbols"] = weights / weights.sum()
    return normalised


class AliasSampler:
    """Draws symbols with given probabilities: `draw` costs the same for ten symbols and for ten million."""

    def __init__(self, probabilities: Float64[np.ndarray, " symbols"]) -> None:
        if not len(probabilities) or not bool((probabilities > 0).all()) or abs(probabilities.sum() - 1) > 1e-9:
            raise DataError(
                f"{len(probabilities)} probabilities that sum to {probabilities.sum():g}, the least of them "
                f"{probabilities.min(initial=1.0):g}: a sampler needs probabilities above 0 that sum to 1"
            )
        thresholds, aliases = alias_tables(probabilities.tolist())
        self.symbols = len(probabilities)
        tables = (torch.tensor(thresholds), torch.tensor(aliases), torch.from_numpy(np.log(probabilities)))
        self._tables: dict[torch.device, tuple[Tensor, ...]] = {torch.device("cpu"): tables}

    def draw(self, shape: Sequence[int], *, generator: torch.Generator) -> Int64[Tensor, "..."]:
        """Independent draws, with replacement, on the device of the generator."""
        thresholds, aliases, _ = self._on(generator.device)
        slots = torch.randint(self.symbols, tuple(shape), generator=generator, device=generator.device)
        chance = torch.rand(tuple(shape), generator=generator, device=generator.device)
        return torch.where(chance < thresholds[slots], slots, aliases[slots])

    def log_probs(self, symbols: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """log q of some symbols, in float64, on their device."""
        return self._on(symbols.device)[2][symbols]

    def _on(self, device: torch.device) -> tuple[Tensor, ...]:
        if device not in self._tables:
            self._tables[device] = tuple(table.to(device) for table in self._tables[torch.device("cpu")])
        return self._tables[device]


def alias_tables(probabilities: Sequence[float]) -> tuple[list[float], list[int]]:
    """Thresholds t and aliases a of the slots: a slot that is not full is filled by a symbol with a surplus."""
    symbols = len(probabilities)
    left = [symbols * probability for probability in probabilities]
    thresholds, aliases = [1.0] * symbols, list(range(symbols))
    poor = [symbol for symbol in range(symbols) if left[symbol] < 1]
    rich = [symbol for symbol in range(symbols) if left[symbol] >= 1]
    while poor and rich:
        slot, giver = poor.pop(), rich[-1]
        thresholds[slot], aliases[slot] = left[slot], giver
        left[giver] -= 1 - left[slot]
        if left[giver] < 1:
            poor.append(rich.pop())
    # What remains on either side is 1 but for rounding: such slots keep their own symbol.
    return thresholds, aliases


Features = Float[Tensor, "tokens width"]
Labels = Int[Tensor, " tokens"]
Loss = Float[Tensor, ""]
AnyOutput = Output | AdaptiveOutput

Correction = Literal["sampled", "all"]
LogZ = Literal["fixed", "learned"]
Sharing = Literal["batch", "token"]


class Objective(Protocol):
    """A loss between features and labels, summed over tokens."""

    @property
    def touches_rows(self) -> bool:
        """Whether it reads only some rows of the output, so that updates of these rows alone make sense."""
        ...

    def prepare(self, output: AnyOutput) -> None:
        """Initialise an output with fresh weights for this objective."""
        ...

    def __call__(
        self, features: Features, labels: Labels, output: AnyOutput, *, generator: torch.Generator
    ) -> Loss: ...


@dataclass(frozen=True)
class FullSoftmax:
    """−Σ log P(y ∣ x) over all symbols, smoothed: maximum likelihood."""

    smoothing: float = 0.0
    touches_rows: ClassVar[bool] = False

    def prepare(self, output: AnyOutput) -> None:
        """Nothing: every symbol is pushed into place at every step."""

    def __call__(
        self,
        features: Features,
        labels: Labels,
        output: AnyOutput,
        *,
        generator: torch.Generator,  # noqa: ARG002 - nothing is drawn
    ) -> Loss:
        return output.cross_entropy(features, labels, smoothing=self.smoothing)


@dataclass(frozen=True)
class SampledSoftmax:
    """A softmax over the label and the distinct symbols C among `samples` draws from q, which all tokens share.

        π_w = 1 − (1 − q_w)^samples               the chance that w is in C: its expected count
        Ẑ = exp(s_y) + Σ_{w ∈ C, w ≠ y} exp(s_w − log π_w)
        loss = −Σ over tokens of log exp(s_y) / Ẑ                                   correction="sampled"

    Without the correction by log π a symbol would be pushed down as often as it is drawn, whatever the model predicts;
    that form is not offered. E Ẑ = Z exactly. Its logarithm is too small in the mean (Jensen), and the gradient is
    biased by a term that falls as 1 / samples. As π tends to 1 the loss is the full softmax, term by term.

    With correction="all" the label is corrected too, exp(s_y − log π_y) (Jean et al., 2015; TensorFlow). That is the
    likelihood of the label given the candidates: its best scores are right for any number of samples, but its value
    does not estimate the cross-entropy, and rare labels, which are easy to distinguish, teach little.

    A label that is drawn as well (an accidental hit) is masked, since Ẑ holds it already. Kept (`masks_hits=False`), it
    counts twice and pushes itself down; the form is here to be compared.
    """

    noise: AliasSampler
    samples: int
    correction: Correction = "sampled"
    masks_hits: bool = True
    touches_rows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _require_samples(self.samples)
        check_known("correction", self.correction, get_args(Correction))

    def prepare(self, output: AnyOutput) -> None:
        """Let a fresh output begin as the noise, see `begin_as_noise`."""
        begin_as_noise(_table_of(output, self.noise), self.noise)

    def __call__(self, features: Features, labels: Labels, output: AnyOutput, *, generator: torch.Generator) -> Loss:
        table = _table_of(output, self.noise)
        drawn = self.noise.draw((self.samples,), generator=generator).to(features.device).unique()
        rows, biases = table.picked(torch.cat([labels, drawn]))
        wanted = (features * rows[: len(labels)]).sum(1)  # [tokens]
        shift = -self.log_expected(drawn).to(features.dtype)
        if biases is not None:
            wanted, shift = wanted + biases[: len(labels)], shift + biases[len(labels) :]
        if self.correction == "all":
            wanted = wanted - self.log_expected(labels).to(features.dtype)
        scores = torch.addmm(shift, features, rows[len(labels) :].t())  # [tokens, drawn]
        if self.masks_hits:
            # `unique` sorts, so the place of each label is found without comparing it to every symbol.
            places = torch.searchsorted(drawn, labels).clamp_(max=len(drawn) - 1)
            hits = (drawn[places] == labels).nonzero().squeeze(1)
            scores = scores.index_put_((hits, places[hits]), scores.new_tensor(-math.inf))
        candidates = torch.cat([wanted[:, None], scores], dim=1)  # [tokens, 1 + drawn]
        return F.cross_entropy(candidates, torch.zeros_like(labels), reduction="sum")

    def log_expected(self, symbols: Int[Tensor, " picked"]) -> Float[Tensor, " picked"]:
        """log π = log(1 − (1 − q)^samples)"""
        rates = self.noise.log_probs(symbols).exp()
        return torch.log(-torch.expm1(self.samples * torch.log1p(-rates)))


@dataclass(frozen=True)
class Nce:
    """Noise-contrastive estimation: is a symbol from the data or from the noise? (Gutmann & Hyvärinen, 2010)

        Δ_w = s_w − log Z − log(k q_w)               log odds of "data" against k noise words
        loss = −Σ over tokens of [log σ(Δ_y) + Σ over k drawn w of log σ(−Δ_w)]

    In the mean its gradient is that of the full softmax with a weight for each symbol, which tends to 1 with k:

        ∇ = Σ_w k q_w / (k q_w + u_w) · (P_data(w ∣ x) − u_w) ∇s_w,  u_w = exp(s_w − log Z)

    The weight depends on w and is inside the sum. log Z is 0 (Mnih & Teh, 2012) or one learned number, the `log_z`
    of the output: unlike likelihood, this loss cannot be cheated by a small Z. Where k draws are shared by the batch,
    they are its k noise words for each token, at the cost of one product; else each token has its own. A noise word
    that equals the label stays, since noise and data may agree.
    """

    noise: AliasSampler
    samples: int
    log_z: LogZ = "fixed"
    sharing: Sharing = "batch"
    touches_rows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _require_samples(self.samples)
        check_known("log_z", self.log_z, get_args(LogZ))
        check_known("sharing", self.sharing, get_args(Sharing))

    def prepare(self, output: AnyOutput) -> None:
        """Let a fresh output begin as the noise, see `begin_as_noise`."""
        begin_as_noise(_table_of(output, self.noise), self.noise)

    def __call__(self, features: Features, labels: Labels, output: AnyOutput, *, generator: torch.Generator) -> Loss:
        table = _table_of(output, self.noise)
        offset = features.new_full((), math.log(self.samples))
        if self.log_z == "learned":
            if table.log_z is None:
                raise ConfigError(
                    "the objective has log_z='learned', but this output has no log_z to learn; build the model with "
                    "one, or set log_z=fixed"
                )
            offset = offset + table.log_z
        drawn = _draw(self.noise, self.samples, labels, sharing=self.sharing, generator=generator)
        return _contrast(features, labels, table, drawn=drawn, noise=self.noise, offset=offset)


@dataclass(frozen=True)
class NegativeSampling:
    """The objective of word2vec for an output layer (Mikolov et al., 2013).

        loss = −Σ over tokens of [log σ(s_y) + Σ over k drawn w of log σ(−s_w)]

    It is NCE with k q_w left out, so that its best scores are s_w = log P(w ∣ x) − log(k q_w): good vectors, but a
    softmax of these scores is not the model's probability.
    """

    noise: AliasSampler
    samples: int
    sharing: Sharing = "token"
    touches_rows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _require_samples(self.samples)
        check_known("sharing", self.sharing, get_args(Sharing))

    def prepare(self, output: AnyOutput) -> None:
        """Nothing: its scores have no scale to initialise."""

    def __call__(self, features: Features, labels: Labels, output: AnyOutput, *, generator: torch.Generator) -> Loss:
        drawn = _draw(self.noise, self.samples, labels, sharing=self.sharing, generator=generator)
        return _contrast(features, labels, _table_of(output, self.noise), drawn=drawn)


@torch.no_grad()
def begin_as_noise(output: Output, noise: AliasSampler) -> None:
    """b_w ← log q_w, where the biases are still those of a fresh output: exp(s_w) is then about q_w, and Z about 1.

    With scores of 0 for all, Z begins as the number of symbols, and a symbol that is hardly ever drawn stays at exp(0)
    for most of the training: thousands of them outweigh all that was learned. Initialised as the noise, a symbol begins
    with its frequency.
    """
    if output.bias is not None and not output.bias.any():
        symbols = torch.arange(noise.symbols, device=output.bias.device)
        output.bias.copy_(noise.log_probs(symbols).to(output.bias.dtype))


def _contrast(
    features: Features,
    labels: Labels,
    table: Output,
    *,
    drawn: Int[Tensor, "... samples"],
    noise: AliasSampler | None = None,
    offset: Loss | None = None,
) -> Loss:
    """−Σ [log σ(Δ_y) + Σ_drawn log σ(−Δ_w)] with Δ_w = s_w − offset − log q_w, or Δ = s without noise."""
    # A symbol that the batch shares and that was drawn n times is scored once and counts n times.
    distinct, counts = drawn.unique(return_counts=True) if drawn.dim() == 1 else (drawn.flatten(), None)
    symbols = torch.cat([labels, distinct])
    rows, shift = table.picked(symbols)
    if noise is not None:
        log_q = noise.log_probs(symbols).to(features.dtype)
        shift = -log_q if shift is None else shift - log_q
    if offset is not None:
        shift = -offset.expand(len(symbols)) if shift is None else shift - offset
    tokens = len(labels)
    wanted = (features * rows[:tokens]).sum(1)
    if counts is not None:
        scores = features @ rows[tokens:].t()  # [tokens, drawn]
    else:
        scores = torch.bmm(rows[tokens:].view(*drawn.shape, features.shape[1]), features[:, :, None]).squeeze(2)
    if shift is not None:
        wanted = wanted + shift[:tokens]
        scores = scores + (shift[tokens:] if counts is not None else shift[tokens:].view_as(scores))
    log_noise = F.logsigmoid(-scores)
    if counts is not None:
        log_noise = log_noise @ counts.to(features.dtype)
    return -(F.logsigmoid(wanted).sum() + log_noise.sum())


def _draw(
    noise: AliasSampler, samples: int, labels: Labels, *, sharing: Sharing, generator: torch.Generator
) -> Int[Tensor, "... samples"]:
    shape = (samples,) if sharing == "batch" else (len(labels), samples)
    return noise.draw(shape, generator=generator).to(labels.device)


def _table_of(output: AnyOutput, noise: AliasSampler) -> Output:
    if not isinstance(output, Output):
        raise ConfigError(
            "an adaptive softmax has no table of scores to draw rows from; train it with the full softmax, or give "
            "the model a full output"
        )
    if noise.symbols != len(output.weight):
        raise ModelError(
            f"the noise was counted over {noise.symbols} symbols, but the model has {len(output.weight)}; count with "
            "the vocabulary of the model"
        )
    return output


def _require_samples(samples: int) -> None:
    if samples < 1:
        raise ConfigError(f"samples={samples}: at least one word must be drawn to compare with")
