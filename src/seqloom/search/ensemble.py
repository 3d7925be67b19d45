"""Several models as one: ensembles, and a language model beside a translation model.

Both are steppers, so every search decodes them as it decodes a single model. Their members may be of any architecture;
what they share is the vocabulary of the output, and the source that each of them reads (or ignores).

    Ensemble, log_mean   P(y) = Π_m P_m(y)^w_m / Z          geometric mean: every member must find a symbol probable
    Ensemble, mean       P(y) = Σ_m w_m P_m(y)              arithmetic mean: one member is enough
    Fusion               P(y) = P_model(y) P_lm(y)^λ / Z    shallow fusion (Gülçehre et al., 2015)

All P are conditioned on the source and the symbols so far, and Σ w_m = 1. Z makes each row sum to one over the symbols
offered. Where members offer shortlists, only what all of them offer is left, and the row is conditioned on that; in a
shortlist, a symbol at −∞ is not offered.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, assert_never

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seqloom.core.errors import ConfigError, ModelError
from seqloom.core.stepping import Source, State, Step, Stepper

Mode = Literal["log_mean", "mean"]


@dataclass(frozen=True)
class MemberStates:
    """The states of all members, row beside row."""

    members: tuple[State, ...]

    def select(self, rows: Int[Tensor, " picked"]) -> "MemberStates":
        return MemberStates(tuple(member.select(rows) for member in self.members))


class Ensemble:
    """The mean of several models, weighted (equally, if no weights are given), as one stepper.

    Weights are divided by their sum. Attention is the weighted mean over the members that give it.
    """

    def __init__(
        self, steppers: Sequence[Stepper], weights: Sequence[float] | None = None, *, mode: Mode = "log_mean"
    ) -> None:
        self.steppers = tuple(steppers)
        self.weights = _checked_weights(weights, len(self.steppers))
        self.mode: Mode = mode
        _check_same_symbols(self.steppers)

    @property
    def begin(self) -> int:
        return self.steppers[0].begin

    @property
    def end(self) -> int:
        return self.steppers[0].end

    def start(self, source: Source) -> MemberStates:
        return MemberStates(tuple(stepper.start(source) for stepper in self.steppers))

    def step(self, state: State, last: Int[Tensor, " rows"]) -> Step:
        return _step_together(self.steppers, state, last, weights=self.weights, mix=self._mix)

    def _mix(self, members: Sequence[Float[Tensor, "rows symbols"]]) -> Float[Tensor, "rows symbols"]:
        match self.mode:
            case "log_mean":
                weighted = [weight * log_probs for weight, log_probs in zip(self.weights, members, strict=True)]
                return normalised(torch.stack(weighted).sum(0))
            case "mean":
                shares = [math.log(weight) + log_probs for weight, log_probs in zip(self.weights, members, strict=True)]
                return normalised(torch.stack(shares).logsumexp(0))
            case _:
                assert_never(self.mode)


class Fusion:
    """A model and, with the weight λ, a language model of its output, as one stepper.

    With `is_normalised=False` there is no Z: log P_model + λ log P_lm, as the paper adds it up. Rows then sum to less
    than one, and how much less depends on the symbols so far: the two forms may rank hypotheses differently. Attention
    is that of the model.
    """

    def __init__(
        self, stepper: Stepper, language_model: Stepper, *, weight: float = 0.2, is_normalised: bool = True
    ) -> None:
        if not 0 <= weight < math.inf:
            raise ConfigError(
                f"the weight {weight} of the language model is out of range; give 0 (without it) or more, such as 0.2"
            )
        self.stepper, self.language_model = stepper, language_model
        self.weight, self.is_normalised = weight, is_normalised
        _check_same_symbols((stepper, language_model))

    @property
    def begin(self) -> int:
        return self.stepper.begin

    @property
    def end(self) -> int:
        return self.stepper.end

    def start(self, source: Source) -> MemberStates:
        return MemberStates((self.stepper.start(source), self.language_model.start(source)))

    def step(self, state: State, last: Int[Tensor, " rows"]) -> Step:
        # The language model has no source of its own to look at: its attention, if any, has the weight 0.
        return _step_together((self.stepper, self.language_model), state, last, weights=(1.0, 0.0), mix=self._mix)

    def _mix(self, members: Sequence[Float[Tensor, "rows symbols"]]) -> Float[Tensor, "rows symbols"]:
        model, language_model = members
        # 0 · −∞ is NaN, but a language model of no weight has nothing to forbid.
        fused = model + self.weight * language_model if self.weight else model.clone()
        return normalised(fused) if self.is_normalised else fused


def normalised(log_probs: Float[Tensor, "rows symbols"]) -> Float[Tensor, "rows symbols"]:
    """Each row with its sum made one; a row with nothing allowed stays −∞, for the search to report."""
    total = log_probs.logsumexp(1, keepdim=True)
    return log_probs - total.masked_fill(total == -math.inf, 0.0)


def _step_together(
    steppers: Sequence[Stepper],
    state: State,
    last: Int[Tensor, " rows"],
    *,
    weights: Sequence[float],
    mix: Callable[[Sequence[Tensor]], Tensor],
) -> Step:
    assert isinstance(state, MemberStates)
    steps = [stepper.step(member, last) for stepper, member in zip(steppers, state.members, strict=True)]
    members, symbols, is_offered = _over_shared_symbols(steps)
    mixed = mix(members if is_offered is None else [row.masked_fill(~is_offered, -math.inf) for row in members])
    states = MemberStates(tuple(step.state for step in steps))
    return Step(mixed, states, attention=_mean_attention(steps, weights), symbols=symbols)


def _over_shared_symbols(steps: Sequence[Step]) -> tuple[list[Tensor], Tensor | None, Tensor | None]:
    """The log-probabilities of all members in the same columns, their symbols, and which of them all members offer.

    The columns are those of the first member with a shortlist. Without any, they are the whole vocabulary.
    """
    _check_vocabularies(steps)
    shortlists = [step.symbols for step in steps if step.symbols is not None]
    if not shortlists:
        return [step.log_probs for step in steps], None, None
    shared = shortlists[0]
    members = [_look_up(step, shared) for step in steps]
    offers = [member > -math.inf for step, member in zip(steps, members, strict=True) if step.symbols is not None]
    return members, shared, torch.stack(offers).all(0)


def _look_up(step: Step, wanted: Int[Tensor, "*rows wanted"]) -> Float[Tensor, "rows wanted"]:
    """log P of the wanted symbols, the same for all rows or each row's own; −∞ for those that are not offered."""
    if step.symbols is None:
        return step.log_probs.gather(1, wanted.expand(len(step.log_probs), -1))
    if torch.equal(step.symbols, wanted):
        return step.log_probs
    # A row's own shortlist may hold a symbol again at −∞, to fill it up: the highest comes first, and is found.
    log_probs, order = step.log_probs.sort(dim=1, descending=True, stable=True)
    symbols, order = step.symbols.expand_as(order).gather(1, order).sort(dim=1, stable=True)
    asked = wanted.expand(len(symbols), -1).contiguous()
    places = torch.searchsorted(symbols, asked).clamp(max=symbols.shape[1] - 1)
    found = log_probs.gather(1, order).gather(1, places)
    return found.masked_fill(symbols.gather(1, places) != asked, -math.inf)


def _mean_attention(steps: Sequence[Step], weights: Sequence[float]) -> Float[Tensor, "rows source"] | None:
    given = [
        (weight, step.attention)
        for weight, step in zip(weights, steps, strict=True)
        if step.attention is not None and weight > 0
    ]
    if not given:
        return None
    total = sum(weight for weight, _ in given)
    return torch.stack([weight / total * attention for weight, attention in given]).sum(0)


def _checked_weights(weights: Sequence[float] | None, members: int) -> tuple[float, ...]:
    if members == 0:
        raise ConfigError("an ensemble needs at least one model; got 0")
    if weights is None:
        return (1 / members,) * members
    if len(weights) != members:
        raise ConfigError(f"got {len(weights)} weights for {members} models; each model needs one")
    for number, weight in enumerate(weights):
        if not 0 < weight < math.inf:
            raise ConfigError(
                f"weight {weight} of model {number} of the ensemble is out of range; give more than 0, or leave the "
                "model out"
            )
    total = sum(weights)
    return tuple(weight / total for weight in weights)


def _check_same_symbols(steppers: Sequence[Stepper]) -> None:
    first = steppers[0]
    for number, stepper in enumerate(steppers):
        for name, ours, theirs in (("begin", first.begin, stepper.begin), ("end", first.end, stepper.end)):
            if ours != theirs:
                raise ModelError(
                    f"models decoded together must share their vocabulary, but the {name} symbol is {ours} in model 0 "
                    f"and {theirs} in model {number}; take models that were trained with the same tokenizer"
                )


def _check_vocabularies(steps: Sequence[Step]) -> None:
    sizes = {number: step.log_probs.shape[1] for number, step in enumerate(steps) if step.symbols is None}
    if not sizes:
        return
    first, size = next(iter(sizes.items()))
    remedy = "take models that were trained with the same tokenizer"
    for number, step in enumerate(steps):
        if step.symbols is None and sizes[number] != size:
            raise ModelError(
                f"models decoded together must share their vocabulary, but model {first} has {size} symbols and model "
                f"{number} has {sizes[number]}; {remedy}"
            )
        if step.symbols is not None and step.symbols.numel() and int(step.symbols.max()) >= size:
            raise ModelError(
                f"models decoded together must share their vocabulary, but model {number} offers symbol "
                f"{int(step.symbols.max())} and model {first} has {size} symbols only; {remedy}"
            )
