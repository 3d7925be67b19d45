"""Deep feed-forward networks: how much of the gradient reaches the first layer, and whether they train.

    f_l = tanh(W_l x_l + b_l)                              what layer l adds, l = 1 … depth
    none       x_{l+1} = f_l
    residual   x_{l+1} = f_l + x_l
    highway    x_{l+1} = T ⊙ f_l + (1 − T) ⊙ x_l           T = σ(V_l x_l + a_l), a_l = −3 at the start
    dense      x_{l+1} = [x_l; f_l]

x_1 is a linear layer of the inputs, and a linear layer tells the class from what the last layer leaves. The gradient is
looked at in f_l, which every form has, in one shape at every depth: r = ‖∂J/∂f_1‖ / ‖∂J/∂f_depth‖.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.core.errors import UsageError
from seqloom.core.seeds import seed_for
from seqloom.nn.init import seeded, xavier_uniform
from seqloom.nn.skips import Addition, Bypass, Highway, NoBypass, Skip

LayerStart = Literal["uniform", "glorot"]
"""How W_l begins: within ±1/√inputs, as torch's linear layers do, or within Glorot's bounds, √3 times wider here."""

CARRY = -3.0
"""Where highway gates begin: they carry 95% past each layer. With the −1 of shallow stacks it is 73%."""


@dataclass(frozen=True)
class DeepForm:
    """How the layers of a deep network are joined and begun."""

    skip: Skip = "none"
    start: LayerStart = "uniform"


@dataclass(frozen=True)
class DeepSizes:
    """Sizes of the networks and of their training."""

    width: int = 32
    growth: int = 8
    """What each layer of the dense form adds; those of all others are as wide as the network."""
    points: int = 256
    classes: int = 3
    updates: int = 150
    """Of the weights, by Adam, each on all points."""
    learning_rate: float = 0.003
    clip_norm: float = 1.0


class DeepNetwork(nn.Module):
    """Points of the plane to scores of classes through `depth` layers of one form."""

    def __init__(self, form: DeepForm, depth: int, *, sizes: DeepSizes) -> None:
        super().__init__()
        if depth < 1:
            raise UsageError(f"a network of {depth} layers is none; give a depth of 1 or more")
        self.form = form
        is_dense = form.skip == "dense"
        added = sizes.growth if is_dense else sizes.width
        widths = [sizes.width + (layer * added if is_dense else 0) for layer in range(depth + 1)]
        self.enter = nn.Linear(2, sizes.width)
        self.layers = cast("Sequence[nn.Linear]", nn.ModuleList(nn.Linear(width, added) for width in widths[:-1]))
        self.bypasses = cast("Sequence[Bypass]", nn.ModuleList(_bypass(form.skip, sizes.width) for _ in range(depth)))
        self.tell = nn.Linear(widths[-1], sizes.classes)
        if form.start == "glorot":
            for layer in self.layers:
                xavier_uniform(layer.weight)
                nn.init.zeros_(layer.bias)

    def forward(
        self, points: Float[Tensor, "points plane"]
    ) -> tuple[Float[Tensor, "points classes"], list[Float[Tensor, "points added"]]]:
        """The scores, and f_1 … f_depth."""
        x, added = self.enter(points), []
        for layer, bypass in zip(self.layers, self.bypasses, strict=True):
            added.append(layer(x).tanh())
            x = torch.cat([x, added[-1]], 1) if self.form.skip == "dense" else bypass(x, added[-1])
        return self.tell(x), added


def draw_spirals(
    points: int, classes: int, *, generator: torch.Generator
) -> tuple[Float[Tensor, "points plane"], Int[Tensor, " points"]]:
    """Points on arms that wind round one another, a class for each: no straight line parts them."""
    labels = torch.randint(classes, (points,), generator=generator)
    radius = torch.rand(points, generator=generator)
    angle = 5 * radius + 2 * math.pi * labels / classes + 0.1 * torch.randn(points, generator=generator)
    return 2 * torch.stack([radius * angle.cos(), radius * angle.sin()], 1), labels


def layer_gradients(form: DeepForm, depth: int, *, sizes: DeepSizes, seed: int) -> list[float]:
    """‖∂J/∂f_l‖ for l = 1 … depth before any training, in double precision."""
    network, points, labels = _begin(form, depth, sizes=sizes, seed=seed)
    scores, added = network.double()(points.double())
    gradients = torch.autograd.grad(F.cross_entropy(scores, labels), added)
    return [float(gradient.norm()) for gradient in gradients]


def first_to_last(norms: Sequence[float]) -> float:
    """r: the norm at the first layer as a multiple of that at the last."""
    return norms[0] / norms[-1]


def loss_after_training(form: DeepForm, depth: int, *, sizes: DeepSizes, seed: int) -> float:
    """Cross-entropy per point, in nats, of the points it was trained on, after the updates."""
    network, points, labels = _begin(form, depth, sizes=sizes, seed=seed)
    optimiser = torch.optim.Adam(network.parameters(), lr=sizes.learning_rate)
    for _ in range(sizes.updates):
        optimiser.zero_grad()
        F.cross_entropy(network(points)[0], labels).backward()
        nn.utils.clip_grad_norm_(network.parameters(), sizes.clip_norm)
        optimiser.step()
    with torch.no_grad():
        return float(F.cross_entropy(network(points)[0], labels))


def _begin(form: DeepForm, depth: int, *, sizes: DeepSizes, seed: int) -> tuple[DeepNetwork, Tensor, Tensor]:
    """A fresh network, and points that are the same for all forms and depths of a seed."""
    with seeded(seed_for(seed, "deep network")):
        network = DeepNetwork(form, depth, sizes=sizes)
    generator = torch.Generator().manual_seed(seed_for(seed, "spirals"))
    return network, *draw_spirals(sizes.points, sizes.classes, generator=generator)


def _bypass(skip: Skip, width: int) -> Bypass:
    if skip == "highway":
        return Highway(width, bias=CARRY)
    return Addition() if skip == "residual" else NoBypass()
