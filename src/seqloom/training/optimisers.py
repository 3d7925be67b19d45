"""Optimisers: torch's fused ones, with weight decay on weight matrices only.

sgd      u = μ u + g + λ θ                   θ ← θ − η u
adam     g' = g + λ θ, then as below without decay
adamw    m = β₁ m + (1 − β₁) g               v = β₂ v + (1 − β₂) g²
         θ ← θ − η λ θ − η (m / (1 − β₁ᵗ)) / (√(v / (1 − β₂ᵗ)) + ε)

Where the gradient of a table holds some of its rows only, these rows move by the same formulas (`sparse_updates`).
"""

from collections.abc import Iterable, Mapping
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from seqloom.core.errors import ModelError
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


def make_optimiser(
    model: nn.Module, config: TrainingConfig, *, held: Mapping[str, nn.Parameter] | None = None
) -> Optimizer:
    """The optimiser of a config over the trained parameters of a model; `held` are the shards of a rank, by name."""
    held = trained(model) if held is None else held
    decayed, plain = split_by_decay(model)
    groups = [
        {"params": [held[name] for name in decayed], "weight_decay": config.weight_decay},
        {"params": [held[name] for name in plain], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
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
    """Use this learning rate for the next step."""
    for group in optimiser.param_groups:
        group["lr"] = rate


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
