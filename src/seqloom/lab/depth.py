"""What depth costs and what skip connections save: feed-forward networks, stacks of LSTMs, two layers or one."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median, stdev
from typing import Any, Literal, cast

import torch
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.core.seeds import seed_for
from seqloom.data.phrasebook import sample_sentences
from seqloom.drawing.figures import FIFTH, FIRST, FOURTH, INK, QUIET, SECOND, THIRD, Finding, new_axes
from seqloom.lab.bench import (
    Countdown,
    Say,
    frames,
    generator_for,
    legend_above,
    output_layer,
    plot_medians,
    powers_of_two,
    rounded,
    signed,
    silent,
    take_step,
)
from seqloom.nn.cells.lstm import LSTMCell
from seqloom.nn.init import seeded, xavier_uniform
from seqloom.nn.recurrent import Addition, Bypass, Highway, MakeCell, NoBypass, Skip, Stack, cells_of

# Deep feed-forward networks: how much of the gradient reaches the first layer, and whether they train.
#
#     f_l = tanh(W_l x_l + b_l)                              what layer l adds, l = 1 … depth
#     none       x_{l+1} = f_l
#     residual   x_{l+1} = f_l + x_l
#     highway    x_{l+1} = T ⊙ f_l + (1 − T) ⊙ x_l           T = σ(V_l x_l + a_l), a_l = −3 at the start
#     dense      x_{l+1} = [x_l; f_l]
#
# x_1 is a linear layer of the inputs, and a linear layer predicts the class from the last layer. The gradient
# is measured in f_l, which every form has, with the same shape at every depth: r = ‖∂J/∂f_1‖ / ‖∂J/∂f_depth‖.

CARRY = -3.0
"""Initial bias of highway gates: they carry 95% past each layer. With the −1 of shallow stacks it is 73%."""


@dataclass(frozen=True)
class DeepForm:
    """How the layers of a deep network are connected and initialised."""

    skip: Skip = "none"
    start: Literal["uniform", "glorot"] = "uniform"
    """Initial values of W_l: within ±1/√inputs, as in torch's linear layers, or Glorot's bounds, √3 times wider."""


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
        self.form = form
        is_dense = form.skip == "dense"
        added = sizes.growth if is_dense else sizes.width
        widths = [sizes.width + (layer * added if is_dense else 0) for layer in range(depth + 1)]
        self.enter = nn.Linear(2, sizes.width)
        self.layers = cast("Sequence[nn.Linear]", nn.ModuleList(nn.Linear(width, added) for width in widths[:-1]))
        bypasses: list[nn.Module] = [Addition() if form.skip == "residual" else NoBypass() for _ in range(depth)]
        if form.skip == "highway":
            bypasses = [Highway(sizes.width, bias=CARRY) for _ in range(depth)]
        self.bypasses = cast("Sequence[Bypass]", nn.ModuleList(bypasses))
        self.output = nn.Linear(widths[-1], sizes.classes)
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
        return self.output(x), added


def draw_spirals(
    points: int, classes: int, *, generator: torch.Generator
) -> tuple[Float[Tensor, "points plane"], Int[Tensor, " points"]]:
    """Points on arms that wind round one another, a class for each: no straight line parts them."""
    labels = torch.randint(classes, (points,), generator=generator)
    radius = torch.rand(points, generator=generator)
    angle = 5 * radius + 2 * math.pi * labels / classes + 0.1 * torch.randn(points, generator=generator)
    return 2 * torch.stack([radius * angle.cos(), radius * angle.sin()], 1), labels


def gradient_ratio(form: DeepForm, depth: int, *, sizes: DeepSizes, seed: int) -> float:
    """r before any training, in double precision: the norm at the first layer as a multiple of that at the last."""
    network, points, labels = _begin(form, depth, sizes=sizes, seed=seed)
    scores, added = network.double()(points.double())
    first, last = torch.autograd.grad(F.cross_entropy(scores, labels), [added[0], added[-1]])
    return float(first.norm()) / float(last.norm())


def loss_after_training(form: DeepForm, depth: int, *, sizes: DeepSizes, seed: int) -> float:
    """Cross-entropy per point, in nats, of the points it was trained on, after the updates."""
    network, points, labels = _begin(form, depth, sizes=sizes, seed=seed)
    optimiser = torch.optim.Adam(network.parameters(), lr=sizes.learning_rate)
    for _ in range(sizes.updates):
        take_step(optimiser, F.cross_entropy(network(points)[0], labels), clip_norm=sizes.clip_norm)
    with torch.no_grad():
        return float(F.cross_entropy(network(points)[0], labels))


def _begin(form: DeepForm, depth: int, *, sizes: DeepSizes, seed: int) -> tuple[DeepNetwork, Tensor, Tensor]:
    """A fresh network, and points that are the same for all forms and depths of a seed."""
    with seeded(seed_for(seed, "deep network")):
        network = DeepNetwork(form, depth, sizes=sizes)
    return network, *draw_spirals(sizes.points, sizes.classes, generator=generator_for(seed, "spirals"))


# A small task for stacks of recurrent layers: the next character of the phrasebook's sentences.
#
#     J = −1/N Σ_t log P(x_t | x_{<t})        in nats per character, on sentences that were never trained on
#
# What the frequencies of the characters alone give is the floor of a network that has learnt nothing of their order.


@dataclass(frozen=True)
class CharacterText:
    """Characters as ids: a long line to train on, and windows of another to test with."""

    characters: str
    """The alphabet, in the order of the ids."""
    train: Int[Tensor, " length"]
    test: Int[Tensor, "windows steps"]

    def frequency_loss(self) -> float:
        """Nats per character of the test windows under the unigram distribution of the training line."""
        counts = torch.bincount(self.train, minlength=len(self.characters)).float() + 1
        return float(-(counts / counts.sum()).log()[self.test[:, 1:]].mean())


@dataclass(frozen=True)
class CharacterTraining:
    """What every model gets."""

    width: int = 32
    """Of the embeddings and of each layer."""
    steps: int = 24
    """Characters the gradient is propagated back."""
    windows: int = 16
    """In a batch."""
    updates: int = 200
    """Of the weights, by Adam."""
    learning_rate: float = 0.005
    clip_norm: float = 1.0


class CharacterNetwork(nn.Module):
    """Embeddings, a stack of recurrent layers, and a linear layer that predicts the next character."""

    def __init__(self, make: MakeCell, *, characters: int, width: int, layers: int, skip: Skip) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, width)
        cells = cells_of(make, width, width=width, layers=layers, skip=skip)
        self.stack = Stack(cells, dropout_rate=0.0, skip=skip)
        self.output = output_layer(width, characters)

    def forward(self, windows: Int[Tensor, "windows steps"]) -> Float[Tensor, ""]:
        """Nats per character after the first of each window."""
        hidden, _ = self.stack(self.embedding(windows[:, :-1]))
        return F.cross_entropy(self.output(hidden).flatten(0, 1), windows[:, 1:].flatten())


def phrasebook_text(language: str = "de", *, sentences: int = 2000, windows: int = 64, seed: int) -> CharacterText:
    """Sentences of the phrasebook as characters. The test is cut into equal windows, what is left over is not used."""
    train = "\n".join(sample_sentences(language, count=sentences, seed=seed, split="train"))
    test = "\n".join(sample_sentences(language, count=windows, seed=seed, split="test"))
    characters = "".join(sorted({*train, *test}))
    number = {character: index for index, character in enumerate(characters)}
    train_ids, test_ids = (torch.tensor([number[character] for character in text]) for text in (train, test))
    steps = len(test_ids) // windows
    return CharacterText(characters, train_ids, test_ids[: windows * steps].view(windows, steps))


def train_characters(
    make: MakeCell,
    text: CharacterText,
    *,
    layers: int,
    skip: Skip,
    training: CharacterTraining,
    seed: int,
    every: int | None = None,
) -> dict[int, float]:
    """Test loss by updates made: after the last one, and after `every` so many. Equal seeds see equal windows."""
    with seeded(seed_for(seed, "character model")):
        model = CharacterNetwork(make, characters=len(text.characters), width=training.width, layers=layers, skip=skip)
    generator = generator_for(seed, "character windows")
    optimiser = torch.optim.Adam(model.parameters(), lr=training.learning_rate)
    offsets = torch.arange(training.steps + 1)
    losses = {}
    for update in range(1, training.updates + 1):
        first = torch.randint(len(text.train) - training.steps, (training.windows, 1), generator=generator)
        take_step(optimiser, model(text.train[first + offsets]), clip_norm=training.clip_norm)
        if update == training.updates or (every and update % every == 0):
            with torch.no_grad():
                losses[update] = float(model(text.test))
    return losses


FORMS: Mapping[str, DeepForm] = {
    "plain": DeepForm("none"),
    "plain, Glorot's start": DeepForm("none", "glorot"),
    "residual": DeepForm("residual"),
    "highway": DeepForm("highway"),
    "dense": DeepForm("dense"),
}
SKIPS: Mapping[str, Skip] = {"plain": "none", "residual": "residual", "highway": "highway", "dense": "dense"}
LOOKS = {
    "plain": (SECOND, "o"),
    "plain, Glorot's start": (FIFTH, "v"),
    "residual": (FIRST, "s"),
    "highway": (THIRD, "^"),
    "dense": (FOURTH, "D"),
}
"""Colour and mark of each form, in every picture."""

By = Mapping[str, Mapping[int, Sequence[float]]]
"""A value per seed, by form and number of layers."""


@dataclass(frozen=True)
class DepthPlan:
    """How much is measured."""

    depths: tuple[int, ...] = (2, 4, 8, 16, 32)
    """Of feed-forward networks."""
    gradient_seeds: int = 20
    training_seeds: int = 3
    sizes: DeepSizes = DeepSizes()
    layers: tuple[int, ...] = (1, 2, 4, 8)
    """Of stacks."""
    stack_seeds: int = 3
    stacks: CharacterTraining = CharacterTraining()
    pair_seeds: int = 5
    """For two layers against one."""
    pairs: CharacterTraining = CharacterTraining(updates=1000)
    every: int = 100
    """Updates between two measurements of the test loss."""


QUICK = DepthPlan(
    depths=(2, 32),
    gradient_seeds=3,
    training_seeds=1,
    sizes=DeepSizes(updates=10),
    layers=(1, 8),
    stack_seeds=1,
    stacks=CharacterTraining(width=16, windows=4, steps=12, updates=8),
    pair_seeds=2,
    pairs=CharacterTraining(width=16, windows=4, steps=12, updates=20),
    every=10,
)


def run(*, seed: int = 1, quick: bool = False, say: Say = silent) -> list[Finding]:
    """Deep feed-forward networks at the start and after training, deep stacks, and two layers against one."""
    plan = QUICK if quick else DepthPlan()
    text = phrasebook_text(sentences=200 if quick else 2000, seed=seed)
    return [
        _feed_forward(plan, seed=seed, say=say),
        _stacks(plan, text, seed=seed, say=say),
        _two_layers(plan, text, seed=seed, say=say),
    ]


def _feed_forward(plan: DepthPlan, *, seed: int, say: Say) -> Finding:
    ratios: dict[str, dict[int, list[float]]] = {name: {} for name in FORMS}
    losses: dict[str, dict[int, list[float]]] = {name: {} for name in FORMS}
    countdown = Countdown(say, len(FORMS))
    for name, form in FORMS.items():
        for depth in plan.depths:
            ratios[name][depth] = [
                gradient_ratio(form, depth, sizes=plan.sizes, seed=seed_for(seed, "gradients", number))
                for number in range(plan.gradient_seeds)
            ]
            losses[name][depth] = [
                loss_after_training(form, depth, sizes=plan.sizes, seed=seed_for(seed, "training", number))
                for number in range(plan.training_seeds)
            ]
        countdown.done(f"feed-forward, {name}")
    sizes = plan.sizes
    deepest = max(next(iter(ratios.values())))
    kept = ", ".join(f"{median(found[deepest]):.2g} ({name})" for name, found in ratios.items())
    trained = ", ".join(f"{median(found[deepest]):.2g} ({name})" for name, found in losses.items())
    sentence = (
        f"Before training, the gradient at the first of {deepest} layers is {kept} times that at the last; after "
        f"{sizes.updates} updates the loss is {trained} nats ({_over(ratios)}, and {_over(losses)} for the losses)."
    )
    data: dict[str, Any] = {
        "seed": seed,
        "sizes": asdict(sizes),
        "forms": [
            {
                "form": name,
                "by_depth": [
                    {"depth": depth, "ratios": rounded(values), "losses": rounded(losses[name][depth])}
                    for depth, values in found.items()
                ],
            }
            for name, found in ratios.items()
        ],
    }

    def draw() -> Figure:
        figure, (left, right) = frames(2)
        _plot(left, ratios)
        left.axhline(1, color=QUIET, linewidth=0.8)
        left.set(yscale="log", ylabel="gradient at the first layer / at the last")
        left.set_title("before training", fontsize=10, color=INK)
        _plot(right, losses, has_labels=False)
        right.set(ylim=(0, None), ylabel="loss (nats per point)")
        right.set_title(f"after {sizes.updates} updates", fontsize=10, color=INK)
        for axes in (left, right):
            axes.set_xlabel("layers")
        legend_above(figure, len(ratios))
        return figure

    title = "Deep feed-forward networks, with and without skip connections"
    return Finding("depth-gradients", title, sentence, data, draw)


def _stacks(plan: DepthPlan, text: CharacterText, *, seed: int, say: Say) -> Finding:
    losses: dict[str, dict[int, list[float]]] = {name: {layers: [] for layers in plan.layers} for name in SKIPS}
    make, training = LSTMCell, plan.stacks
    countdown = Countdown(say, len(SKIPS) * plan.stack_seeds)
    for number in range(plan.stack_seeds):
        drawn = seed_for(seed, "stacks", number)
        for name, skip in SKIPS.items():
            for layers in plan.layers:
                found = train_characters(make, text, layers=layers, skip=skip, training=training, seed=drawn)
                losses[name][layers].append(found[training.updates])
            countdown.done(f"stacks of LSTM layers, {name}")
    frequency = text.frequency_loss()
    deepest = max(next(iter(losses.values())))
    listed = ", ".join(f"{median(found[deepest]):.2f} ({name})" for name, found in losses.items())
    single = median(losses["plain"][min(losses["plain"])])
    sentence = (
        f"After {training.updates} updates {deepest} LSTM layers reach a test loss of {listed} nats per character "
        f"({_over(losses)}); {min(losses['plain'])} plain layer reaches {single:.2f}, and the frequencies of the "
        f"characters alone give {frequency:.2f}. Lecture notes say that skip connections are needed at about 8 layers."
    )
    data: dict[str, Any] = {
        "seed": seed,
        "training": asdict(training),
        "frequency_loss": frequency,
        "forms": [
            {"form": name, "by_layers": [{"layers": at, "losses": rounded(values)} for at, values in found.items()]}
            for name, found in losses.items()
        ],
    }

    def draw() -> Figure:
        figure, axes = new_axes()
        axes.axhline(frequency, color=QUIET, linestyle=(0, (4, 3)), linewidth=1)
        axes.annotate("frequencies of the characters alone", (0, frequency), (6, 3), xycoords=("axes fraction", "data"),
                      textcoords="offset points", fontsize=9, color=INK)  # fmt: skip
        _plot(axes, losses)
        axes.set(xlabel="LSTM layers", ylabel=f"test loss after {training.updates} updates (nats per character)")
        legend_above(figure, len(losses))
        return figure

    title = "Deep stacks of LSTM layers, with and without skip connections"
    return Finding("depth-stacks", title, sentence, data, draw)


def _two_layers(plan: DepthPlan, text: CharacterText, *, seed: int, say: Say) -> Finding:
    curves: dict[int, list[dict[int, float]]] = {1: [], 2: []}
    make, training, every = LSTMCell, plan.pairs, plan.every
    countdown = Countdown(say, plan.pair_seeds)
    for number in range(plan.pair_seeds):
        drawn = seed_for(seed, "two layers", number)
        for layers, found in curves.items():
            found.append(
                train_characters(make, text, layers=layers, skip="none", training=training, seed=drawn, every=every)
            )
        countdown.done("two layers and one")
    return two_layers_finding(curves, training=plan.pairs, seed=seed)


def two_layers_finding(
    curves: Mapping[int, Sequence[Mapping[int, float]]], *, training: CharacterTraining, seed: int
) -> Finding:
    """Test losses of one and of two layers, by updates and seed, as a finding."""
    one, two = ([curve[training.updates] for curve in curves[layers]] for layers in (1, 2))
    gaps = [second - first for first, second in zip(one, two, strict=True)]
    wins = sum(gap < 0 for gap in gaps)
    sentence = (
        f"After {training.updates} updates two LSTM layers have a lower test loss than one with {wins} of {len(gaps)} "
        f"seeds: {fmean(two):.3f} against {fmean(one):.3f} nats per character, a difference of "
        f"{signed(round(fmean(gaps), 3))} with a standard deviation of {stdev(gaps):.3f} over seeds."
    )
    data: dict[str, Any] = {
        "seed": seed,
        "training": asdict(training),
        "curves": [
            {"layers": layers, "updates": list(found[0]), "losses": [rounded(curve.values()) for curve in found]}
            for layers, found in curves.items()
        ],
        "differences": rounded(gaps),
    }

    def draw() -> Figure:
        figure, axes = new_axes()
        for (layers, found), colour in zip(curves.items(), (SECOND, FIRST), strict=True):
            updates = list(found[0])
            for curve in found:
                axes.plot(updates, list(curve.values()), color=colour, linewidth=0.8, alpha=0.4)
            means = [fmean(curve[at] for curve in found) for at in updates]
            label = f"{layers} layer{'s' if layers > 1 else ''}, mean of {len(found)} seeds"
            axes.plot(updates, means, color=colour, marker="o", ms=3, linewidth=2, label=label)
        axes.set(xlabel="updates", ylabel="test loss (nats per character)")
        axes.legend(frameon=False, fontsize=9)
        return figure

    return Finding("two-layers", "Two LSTM layers against one", sentence, data, draw)


def _over(values: By) -> str:
    seeds = len(next(iter(next(iter(values.values())).values())))
    return f"medians over {seeds} seeds" if seeds > 1 else "one seed"


def _plot(axes: Axes, values: By, *, has_labels: bool = True) -> None:
    """Medians by number of layers, and a bar from the lowest to the highest seed."""
    for shift, (name, found) in enumerate(values.items()):
        colour, mark = LOOKS[name]
        at = [depth * 1.02 ** (shift - (len(values) - 1) / 2) for depth in found]  # side by side, so that bars are seen
        plot_medians(axes, at, found.values(), colour=colour, mark=mark, label=name if has_labels else None)
    powers_of_two(axes, list(next(iter(values.values()))))
