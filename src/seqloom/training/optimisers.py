"""Optimisers: torch's fused ones, with weight decay on weight matrices only.

sgd      u = μ u + g + λ θ                   θ ← θ − η u
adam     g' = g + λ θ, then as below without decay
adamw    m = β₁ m + (1 − β₁) g               v = β₂ v + (1 − β₂) g²
         θ ← θ − η λ θ − η (m / (1 − β₁ᵗ)) / (√(v / (1 − β₂ᵗ)) + ε)

Where the gradient of a table holds some of its rows only, these rows move by the same formulas (`sparse_updates`).
"""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from seqloom.core.errors import ConfigError, ModelError
from seqloom.nn.embeddings import Embedding
from seqloom.training.settings import TrainingConfig
from seqloom.training.sparse_updates import adam_rows, gradient_values, sgd_rows, update_touched_rows

# Gradient clipping: by the norm of the whole gradient, or element by element (Pascanu et al., 2013).


def gradients(parameters: Iterable[nn.Parameter]) -> list[Tensor]:
    """The gradients that the last backward passes left behind; of a sparse one, the sums for the rows it touches."""
    values = (gradient_values(parameter) for parameter in parameters)
    return [value for value in values if value is not None]


def global_norm(gradients: list[Tensor]) -> Float[Tensor, ""]:
    """‖g‖ = √Σ gᵢ² over all elements of all gradients; it stays on the device, so nothing waits for it."""
    return nn.utils.get_total_norm(gradients)


@torch.no_grad()
def clip_by_norm(gradients: list[Tensor], limit: float, *, norm: float) -> None:
    """g ← min(1, θ / ‖g‖) g: shortened to θ where longer, never turned. A zero gradient is left as it is."""
    if norm > limit:
        torch._foreach_mul_(gradients, limit / norm)


@torch.no_grad()
def clip_by_value(gradients: list[Tensor], limit: float) -> None:
    """gᵢ ← max(−θ, min(θ, gᵢ)) for each element; unlike clipping by norm this turns the gradient."""
    torch._foreach_clamp_max_(gradients, limit)
    torch._foreach_clamp_min_(gradients, -limit)


# Which weights are trained, and at which rate, by the layers that a model names.

EMBEDDINGS = "embeddings"
"""The word for all that comes before the layers, in training.freeze."""


@runtime_checkable
class HasLayers(Protocol):
    """A model that names its layers. It may also have `embeddings`, the beginnings of names of what comes before."""

    def layers_by_entry(self) -> Sequence[tuple[nn.Module, str]]:
        """Its layers from the input on, each with the method by which a loss enters it.

        In training a layer must be used through this method only, and equally often for every batch: ranks with
        different batches synchronise in every call.
        """
        ...


def is_embedding(model: nn.Module, name: str) -> bool:
    """Whether a parameter comes before the layers."""
    beginnings: tuple[str, ...] = getattr(model, EMBEDDINGS, ())
    owner = model.get_submodule(name.rpartition(".")[0])
    return name.startswith(beginnings) or isinstance(owner, (Embedding, nn.Embedding, nn.EmbeddingBag))


def layers_below_head(model: nn.Module) -> dict[str, int]:
    """How far each trained parameter is from the head of a model: d in rate · decayᵈ.

        0               head and everything else that is in no layer
        1 … n           last … first layer of a stack (an encoder, a decoder)
        n + 1           embeddings, below the deepest stack

    The layers of a stack have names that agree up to their first number. A table that is shared by embeddings and
    output counts as embeddings.
    """
    if not isinstance(model, HasLayers) or not model.layers_by_entry():
        raise ConfigError(
            f"training.layer_decay needs a model that names its layers (layers_by_entry), which {type(model).__name__} "
            "does not; leave it out"
        )
    names = {id(module): name for name, module in model.named_modules()}
    stacks: dict[str, list[str]] = {}
    for layer, _ in model.layers_by_entry():
        name = names[id(layer)]
        stacks.setdefault(re.split(r"\d", f"{name}.", maxsplit=1)[0], []).append(f"{name}.")
    deepest = max(map(len, stacks.values()))
    below = {layer: len(layers) - at for layers in stacks.values() for at, layer in enumerate(layers)}
    found: dict[int, int] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        place = deepest + 1 if is_embedding(model, name) else 0
        place = next((depth for layer, depth in below.items() if name.startswith(layer)), place)
        found[id(parameter)] = max(place, found.get(id(parameter), 0))
    return {name: found[id(parameter)] for name, parameter in trained(model).items()}


def freeze(model: nn.Module, patterns: Sequence[str]) -> list[str]:
    """Exclude parameters from training, by patterns of their names; the names of those that a pattern matches.

    A parameter that is shared has several names, each of which counts.
    """
    frozen: dict[int, str] = {}
    named = dict(model.named_parameters(remove_duplicate=False))
    for pattern in patterns:
        matching = [
            name
            for name in named
            if fnmatchcase(name, pattern) or (pattern == EMBEDDINGS and is_embedding(model, name))
        ]
        if not matching:
            known = dict.fromkeys(re.sub(r"\.\d+(?=\.)", ".*", name) for name in named)
            near = difflib.get_close_matches(pattern, [EMBEDDINGS, *known], n=1)
            raise ConfigError(
                f"training.freeze={pattern} matches no weight of this model; there are: {', '.join(known)}, and "
                f"{EMBEDDINGS} for all that comes before the layers{f'; did you mean {near[0]}?' if near else ''}"
            )
        for name in matching:
            frozen.setdefault(id(named[name].requires_grad_(False)), name)
    if patterns and not trained(model):
        raise ConfigError(f"training.freeze={list(patterns)} leaves nothing to train; name fewer weights")
    return [*frozen.values()]


def make_optimiser(
    model: nn.Module, config: TrainingConfig, *, held: Mapping[str, nn.Parameter] | None = None
) -> Optimizer:
    """The optimiser of a config over the trained parameters of a model; `held` are the shards of a rank, by name.

    Parameters with the same decay and the same share of the learning rate are a group.
    """
    held = trained(model) if held is None else held
    below = layers_below_head(model) if config.layer_decay < 1 else {}
    groups: list[dict[str, Any]] = []
    for parameters, decay in zip(split_by_decay(model), (config.weight_decay, 0.0), strict=True):
        by_depth: dict[int, list[nn.Parameter]] = {}
        for name in parameters:
            by_depth.setdefault(below.get(name, 0), []).append(held[name])
        for depth, some in by_depth.items():
            groups.append({"params": some, "weight_decay": decay, "rate_share": config.layer_decay**depth})
    fused = {parameter.device.type for parameter in model.parameters()} <= {"cpu", "cuda"}
    optimiser: Optimizer
    match config.optimiser:
        case "adamw":
            optimiser = AdamW(groups, lr=config.learning_rate, betas=config.betas, eps=config.epsilon, fused=fused)
            update_touched_rows(optimiser, partial(adam_rows, decoupled=True))
        case "adam":
            optimiser = Adam(groups, lr=config.learning_rate, betas=config.betas, eps=config.epsilon, fused=fused)
            update_touched_rows(optimiser, partial(adam_rows, decoupled=False))
        case "sgd":
            optimiser = SGD(groups, lr=config.learning_rate, momentum=config.momentum, fused=fused)
            update_touched_rows(optimiser, sgd_rows)
    return optimiser


def split_by_decay(model: nn.Module) -> tuple[dict[str, nn.Parameter], dict[str, nn.Parameter]]:
    """Named parameters with decay and without.

    Only weight matrices are decayed: tensors of two axes or more, but not embeddings, whose rows would decay in every
    batch that does not use them.
    """
    embeddings = {
        id(module.weight)
        for module in model.modules()
        if isinstance(module, (Embedding, nn.Embedding, nn.EmbeddingBag))
    }
    decayed: dict[str, nn.Parameter] = {}
    plain: dict[str, nn.Parameter] = {}
    for name, parameter in trained(model).items():
        is_matrix = parameter.dim() >= 2 and id(parameter) not in embeddings
        (decayed if is_matrix else plain)[name] = parameter
    return decayed, plain


def trained(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that require a gradient, each once, by name."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def set_rate(optimiser: Optimizer, rate: float) -> None:
    """Use this learning rate, or the share of it that a group has, for the next step."""
    for group in optimiser.param_groups:
        group["lr"] = rate * group["rate_share"]


def optimiser_tensors(optimiser: Optimizer, parameters: Mapping[str, nn.Parameter]) -> dict[str, Tensor]:
    """What the optimiser remembers (means, step counters), as "parameter/part": by name, not by position."""
    tensors = {}
    for name, parameter in parameters.items():
        for part, value in optimiser.state.get(parameter, {}).items():
            if value is not None:
                tensors[f"{name}/{part}"] = torch.as_tensor(value)
    return tensors


def restore_optimiser(
    optimiser: Optimizer, parameters: Mapping[str, nn.Parameter], tensors: Mapping[str, Tensor]
) -> None:
    """Restore what `optimiser_tensors` returned; rates and decay stay those of the config."""
    order = [parameter for group in optimiser.param_groups for parameter in group["params"]]
    position = {id(parameter): number for number, parameter in enumerate(order)}
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        owner, part = name.rsplit("/", 1)
        if owner not in parameters:
            raise ModelError(f"the optimiser state belongs to another model: this one has no {owner}")
        # A copy, because the optimiser will change its own in place.
        state.setdefault(position[id(parameters[owner])], {})[part] = tensor.clone()
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})
