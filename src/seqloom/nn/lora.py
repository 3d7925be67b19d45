"""Low-rank adaptation, LoRA (Hu et al., 2022): few new weights beside the frozen ones of a trained model.

    y = W x + b + s B A dropout(x)      A [rank, inputs] and B [outputs, rank] are trained, W and b are not
    s = alpha / rank                    alpha / √rank if the rank is stabilised (Kalajdzievski, 2023)

B begins with zeros, so training starts at the trained model, and A uniform in ±1/√inputs. A matrix of several parts
(queries, keys and values) has a pair for each part that is adapted. At the end W + s B A takes the place of W.

In training the second path is computed apart: dropout is for the input of A alone, and no gradient of W is formed.
Everything else reads `weight`, which is W + s B A: plans of decoding and compiled steps do not know of adapters.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Protocol, cast, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.core.errors import ConfigError
from seqloom.nn.dropout import Dropout

ALL = "all"
"""The target that stands for every linear layer."""

WHOLE = "whole"
"""The name of the only part of a matrix that has no named ones."""


@runtime_checkable
class HasFusedParts(Protocol):
    """A module with linear layers that are several matrices one above the other."""

    def fused_parts(self) -> Mapping[str, Mapping[str, int]]:
        """The rows of each part in their order, by the name of the layer and of the part."""
        ...


class LowRank(nn.Module):
    """s B A for the rows `first` … `first + rows − 1` of a matrix."""

    def __init__(
        self, like: Float[Tensor, "outputs inputs"], *, first: int, rows: int, rank: int, scale: float, dropout: float
    ) -> None:
        super().__init__()
        self.first, self.rows, self.scale = first, rows, scale
        self.A = nn.Parameter(torch.empty(rank, like.shape[1], dtype=like.dtype, device=like.device))
        self.B = nn.Parameter(torch.zeros(rows, rank, dtype=like.dtype, device=like.device))
        self.dropout = Dropout(dropout)
        nn.init.kaiming_uniform_(self.A, a=math.sqrt(5))  # in ±1/√inputs

    def forward(self, x: Float[Tensor, "*tokens inputs"]) -> Float[Tensor, "*tokens rows"]:
        return F.linear(F.linear(self.dropout(x), self.A), self.B) * self.scale

    def product(self) -> Float[Tensor, "rows inputs"]:
        """s B A"""
        return (self.B @ self.A) * self.scale


class LoraLinear(nn.Linear):
    """A linear layer whose matrix is frozen, with adapters for some of its rows."""

    def __init__(self, linear: nn.Linear, adapters: Mapping[str, LowRank]) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.base, self.bias = linear.weight, linear.bias
        self.lora = nn.ModuleDict(adapters)

    @property
    def adapters(self) -> list[LowRank]:
        return [cast("LowRank", each) for each in self.lora.values()]

    @property
    def weight(self) -> Float[Tensor, "outputs inputs"]:  # type: ignore[override]
        """W + s B A"""
        if self.training and torch.is_grad_enabled() and any(each.dropout.threshold for each in self.adapters):
            raise ConfigError(
                "training.lora.dropout is for the input of a layer, but the matrix of an adapted layer is read without "
                "its input; set training.lora.dropout=0, or choose other training.lora.targets"
            )
        whole = self.base.clone()
        for each in self.adapters:
            whole[each.first : each.first + each.rows] += each.product()
        return whole

    def forward(self, input: Float[Tensor, "*tokens inputs"]) -> Float[Tensor, "*tokens outputs"]:
        if not self.training:
            return F.linear(input, self.weight, self.bias)
        result = F.linear(input, self.base, self.bias)
        for each in self.adapters:
            result[..., each.first : each.first + each.rows] += each(input)
        return result


@dataclass(frozen=True)
class _Matrix:
    """A linear layer, its place, and the first row and number of rows of each part, by the name of the part."""

    owner: nn.Module
    attribute: str
    linear: nn.Linear
    parts: Mapping[str, tuple[int, int]]


def _matrices(model: nn.Module) -> Iterator[tuple[str, _Matrix]]:
    """The linear layers of a model, by name."""
    for name, owner in model.named_modules():
        fused = owner.fused_parts() if isinstance(owner, HasFusedParts) else {}
        for attribute, linear in owner.named_children():
            if type(linear) is nn.Linear:
                parts, first = {}, 0
                for part, rows in fused.get(attribute, {WHOLE: linear.out_features}).items():
                    parts[part] = first, rows
                    first += rows
                yield f"{name}.{attribute}".lstrip("."), _Matrix(owner, attribute, linear, parts)


def adapt(
    model: nn.Module,
    *,
    rank: int,
    scale: float,
    dropout: float,
    targets: Sequence[str],
    new: Collection[str] = (),
) -> None:
    """Freeze all weights of a model but the `new` ones, and give its layers adapters; `state_dict` then has only these.

    `targets` are patterns of the names of layers, or of parts of fused ones, such as encoder.layers.0.self.qkv.query;
    one without a dot is for the last word of a name: query, value, inner. The word `all` stands for every layer.
    """
    names: dict[str, None] = {}
    unmatched = dict.fromkeys(targets)
    chosen: list[tuple[_Matrix, dict[str, LowRank]]] = []
    for name, matrix in _matrices(model):
        if f"{name}.weight" in new:
            continue
        adapters = {}
        for part, (first, rows) in matrix.parts.items():
            full = name if part == WHOLE else f"{name}.{part}"
            names[full] = None
            last = full.rpartition(".")[2]
            matching = [each for each in targets if each == ALL or fnmatchcase(last if "." not in each else full, each)]
            for each in matching:
                unmatched.pop(each, None)
            if matching:
                weight = matrix.linear.weight
                adapters[part] = LowRank(weight, first=first, rows=rows, rank=rank, scale=scale, dropout=dropout)
        if adapters:
            chosen.append((matrix, adapters))
    if unmatched or not chosen:
        known = ", ".join(dict.fromkeys(name.rpartition(".")[2] for name in names)) or "none"
        example = f" (such as {next(iter(names))})" if names else ""
        raise ConfigError(
            f"training.lora.targets={', '.join(unmatched) or '[]'} matches no linear layer of this model; there are: "
            f"{known}{example}, and all"
        )
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in new)
    for matrix, adapters in chosen:
        setattr(matrix.owner, matrix.attribute, LoraLinear(matrix.linear, adapters))
    tensors = model.state_dict(keep_vars=True).items()
    given = [name for name, each in tensors if isinstance(each, nn.Parameter) and not each.requires_grad]

    def leave_out_given(module: nn.Module, state: dict[str, Any], prefix: str, _metadata: object) -> None:
        if any(isinstance(each, LoraLinear) for each in module.modules()):
            for name in given:
                state.pop(f"{prefix}{name}", None)

    model.register_state_dict_post_hook(leave_out_given)


def adapted_rows(model: nn.Module) -> dict[str, tuple[int, int]]:
    """The first row and the number of rows of each adapter in its matrix, by name."""
    adapters = ((name, each) for name, each in model.named_modules() if isinstance(each, LowRank))
    return {name: (each.first, each.rows) for name, each in adapters}


@torch.no_grad()
def merge_adapters(model: nn.Module) -> None:
    """Put W + s B A in the place of each W: the model is as it was built, and has all its weights again."""
    for owner in [*model.modules()]:
        for attribute, layer in [*owner.named_children()]:
            if isinstance(layer, LoraLinear):
                plain = nn.Linear(layer.in_features, layer.out_features, bias=layer.bias is not None, device="meta")
                plain.weight, plain.bias = nn.Parameter(layer.weight), layer.bias
                setattr(owner, attribute, plain.train(layer.training))
