"""What depth costs and what ways past the layers save: feed-forward networks, stacks of LSTMs, two layers or one."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median, stdev
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from seqloom.core.seeds import seed_for
from seqloom.inspection.character_models import CharacterText, CharacterTraining, phrasebook_text, train_characters
from seqloom.inspection.deep_networks import (
    DeepForm,
    DeepSizes,
    first_to_last,
    layer_gradients,
    loss_after_training,
)
from seqloom.inspection.drawing import FIFTH, FIRST, FOURTH, INK, QUIET, SECOND, THIRD, new_axes
from seqloom.inspection.findings import Finding
from seqloom.nn.cell_kinds import cell_maker
from seqloom.nn.skips import Skip
from seqloom.recipes.lab.bench import rounded
from seqloom.recipes.lab.pictures import frames, signed
from seqloom.recipes.lab.progress import Countdown, Say, silent

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
class Plan:
    """How much is measured."""

    depths: tuple[int, ...]
    """Of feed-forward networks."""
    gradient_seeds: int
    training_seeds: int
    sizes: DeepSizes
    layers: tuple[int, ...]
    """Of stacks."""
    stack_seeds: int
    stacks: CharacterTraining
    pair_seeds: int
    """For two layers against one."""
    pairs: CharacterTraining
    every: int
    """Updates between two looks at their test loss."""


FULL = Plan(
    depths=(2, 4, 8, 16, 32),
    gradient_seeds=20,
    training_seeds=3,
    sizes=DeepSizes(),
    layers=(1, 2, 4, 8),
    stack_seeds=3,
    stacks=CharacterTraining(),
    pair_seeds=5,
    pairs=CharacterTraining(updates=1000),
    every=100,
)
QUICK = Plan(
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
    plan = QUICK if quick else FULL
    text = phrasebook_text(sentences=200 if quick else 2000, seed=seed)
    return [
        _feed_forward(plan, seed=seed, say=say),
        _stacks(plan, text, seed=seed, say=say),
        _two_layers(plan, text, seed=seed, say=say),
    ]


def _feed_forward(plan: Plan, *, seed: int, say: Say) -> Finding:
    ratios: dict[str, dict[int, list[float]]] = {name: {} for name in FORMS}
    losses: dict[str, dict[int, list[float]]] = {name: {} for name in FORMS}
    countdown = Countdown(say, len(FORMS))
    for name, form in FORMS.items():
        for depth in plan.depths:
            ratios[name][depth] = [
                first_to_last(layer_gradients(form, depth, sizes=plan.sizes, seed=seed_for(seed, "gradients", number)))
                for number in range(plan.gradient_seeds)
            ]
            losses[name][depth] = [
                loss_after_training(form, depth, sizes=plan.sizes, seed=seed_for(seed, "training", number))
                for number in range(plan.training_seeds)
            ]
        countdown.done(f"feed-forward, {name}")
    return feed_forward_finding(ratios, losses, sizes=plan.sizes, seed=seed)


def feed_forward_finding(ratios: By, losses: By, *, sizes: DeepSizes, seed: int) -> Finding:
    """Gradients at the start and losses after training as a finding."""
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
        left.set_yscale("log")
        left.set_ylabel("gradient at the first layer / at the last")
        left.set_title("before training", fontsize=10, color=INK)
        _plot(right, losses, has_labels=False)
        right.set_ylabel("loss (nats per point)")
        right.set_ylim(bottom=0)
        right.set_title(f"after {sizes.updates} updates", fontsize=10, color=INK)
        for axes in (left, right):
            axes.set_xlabel("layers")
        figure.legend(frameon=False, loc="outside upper center", ncols=len(ratios), fontsize=9)
        return figure

    return Finding("depth-gradients", "Deep feed-forward networks, with and without ways past", sentence, data, draw)


def _stacks(plan: Plan, text: CharacterText, *, seed: int, say: Say) -> Finding:
    losses: dict[str, dict[int, list[float]]] = {name: {layers: [] for layers in plan.layers} for name in SKIPS}
    countdown = Countdown(say, len(SKIPS) * plan.stack_seeds)
    for number in range(plan.stack_seeds):
        for name, skip in SKIPS.items():
            for layers in plan.layers:
                found = train_characters(
                    cell_maker("lstm"),
                    text,
                    layers=layers,
                    skip=skip,
                    training=plan.stacks,
                    seed=seed_for(seed, "stacks", number),
                )
                losses[name][layers].append(found[plan.stacks.updates])
            countdown.done(f"stacks of LSTM layers, {name}")
    return stack_finding(losses, frequency=text.frequency_loss(), training=plan.stacks, seed=seed)


def stack_finding(losses: By, *, frequency: float, training: CharacterTraining, seed: int) -> Finding:
    """Losses of stacks by number of layers and form as a finding."""
    deepest = max(next(iter(losses.values())))
    told = ", ".join(f"{median(found[deepest]):.2f} ({name})" for name, found in losses.items())
    single = median(losses["plain"][min(losses["plain"])])
    sentence = (
        f"After {training.updates} updates {deepest} LSTM layers reach a test loss of {told} nats per character "
        f"({_over(losses)}); {min(losses['plain'])} plain layer reaches {single:.2f}, and the frequencies of the "
        f"characters alone give {frequency:.2f}. The notes say that ways past are needed at about 8 layers."
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
        axes.set_xlabel("LSTM layers")
        axes.set_ylabel(f"test loss after {training.updates} updates (nats per character)")
        figure.legend(frameon=False, loc="outside upper center", ncols=len(losses), fontsize=9)
        return figure

    return Finding("depth-stacks", "Deep stacks of LSTM layers, with and without ways past", sentence, data, draw)


def _two_layers(plan: Plan, text: CharacterText, *, seed: int, say: Say) -> Finding:
    curves: dict[int, list[dict[int, float]]] = {1: [], 2: []}
    countdown = Countdown(say, plan.pair_seeds)
    for number in range(plan.pair_seeds):
        for layers, found in curves.items():
            found.append(
                train_characters(
                    cell_maker("lstm"),
                    text,
                    layers=layers,
                    skip="none",
                    training=plan.pairs,
                    seed=seed_for(seed, "two layers", number),
                    every=plan.every,
                )
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
        axes.set_xlabel("updates")
        axes.set_ylabel("test loss (nats per character)")
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
        middles = [median(seeds) for seeds in found.values()]
        axes.vlines(at, [min(seeds) for seeds in found.values()], [max(seeds) for seeds in found.values()],
                    color=colour, linewidth=1, alpha=0.6)  # fmt: skip
        axes.plot(at, middles, color=colour, marker=mark, ms=5, linewidth=1.6, label=name if has_labels else None)
    axes.set_xscale("log", base=2)
    ticks = list(next(iter(values.values())))
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()
