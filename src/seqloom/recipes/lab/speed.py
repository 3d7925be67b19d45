"""Recurrent or all at once: tokens a second by length, and the products that lie between two positions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import nn

from seqloom.core.seeds import seed_for
from seqloom.inspection.dependence import (
    OPERATIONS,
    PRODUCTS,
    Way,
    read_by_attention,
    read_by_both,
    read_by_cell,
    ways_to_last,
)
from seqloom.inspection.drawing import FIRST, FOURTH, QUIET, SECOND, THIRD
from seqloom.inspection.findings import Finding
from seqloom.inspection.layer_times import AttentionLayer, CellLayer, Times, ratios, time_layers
from seqloom.nn.attention import Attention, BilinearScore
from seqloom.nn.cell_kinds import cell_maker
from seqloom.nn.init import seeded
from seqloom.nn.multihead import SelfAttention
from seqloom.recipes.lab.bench import rounded
from seqloom.recipes.lab.pictures import frames
from seqloom.recipes.lab.progress import Countdown, Say, silent

ATTENTION = "self-attention"
LOOKS = {"RNN": (SECOND, "o"), "LSTM": (FIRST, "s"), ATTENTION: (FOURTH, "^")}
PATH_LOOKS: Mapping[str, tuple[str, Any]] = {
    "RNN": (SECOND, "-"),
    "LSTM": (FIRST, (0, (6, 2))),
    "RNN with attention": (THIRD, (0, (3, 1.5))),
    ATTENTION: (FOURTH, "-"),
}
HEADS = 4


def run(*, seed: int = 1, quick: bool = False, say: Say = silent) -> list[Finding]:
    """Times of a pass by length, and products between positions, recurrent and by attention."""
    width = 16 if quick else 128
    lengths = (8, 16) if quick else (16, 32, 64, 128, 256, 512, 1024)
    tokens, rounds = (64, 3) if quick else (2048, 9)
    with seeded(seed_for(seed, "speed")):
        rnn, lstm = (cell_maker(kind)(width, width) for kind in ("rnn", "lstm"))
        attention = SelfAttention(width, HEADS)
        look = Attention(BilinearScore(width, width))
    layers: dict[str, nn.Module] = {
        "RNN": CellLayer(rnn),
        "LSTM": CellLayer(lstm),
        ATTENTION: AttentionLayer(attention),
    }
    countdown = Countdown(say, len(lengths))
    generator = torch.Generator().manual_seed(seed_for(seed, "inputs"))
    times = time_layers(
        layers,
        width=width,
        lengths=lengths,
        tokens=tokens,
        rounds=rounds,
        generator=generator,
        tell=lambda length: countdown.done(f"length {length}"),
    )
    sizes = {name: sum(weight.numel() for weight in layer.parameters()) for name, layer in layers.items()}
    readers = {
        "RNN": read_by_cell(rnn),
        "LSTM": read_by_cell(lstm),
        "RNN with attention": read_by_both(rnn, look),
        ATTENTION: read_by_attention(attention),
    }
    positions = 8 if quick else 33
    paths = {
        name: Paths(
            products=tuple(ways_to_last(read, positions=positions, width=width, counted=PRODUCTS)),
            operations=tuple(ways_to_last(read, positions=positions, width=width, counted=OPERATIONS)),
        )
        for name, read in readers.items()
    }
    return [speed_finding(times, settings={"seed": seed, "width": width, "weights": sizes}), path_finding(paths)]


def speed_finding(times: Sequence[Times], *, settings: Mapping[str, Any]) -> Finding:
    """Tokens a second by length as a finding."""
    by_layer: dict[str, dict[int, Times]] = {}
    for one in times:
        by_layer.setdefault(one.layer, {})[one.length] = one
    gains = {
        name: {length: ratios(by_layer[ATTENTION][length], one) for length, one in found.items()}
        for name, found in by_layer.items()
        if name != ATTENTION
    }
    threads = torch.get_num_threads()
    data: dict[str, Any] = {
        **settings,
        "threads": threads,
        "layers": [
            {
                "layer": name,
                "by_length": [
                    {"length": length, "tokens": one.tokens, "tokens_per_second": rounded(one.rates())}
                    for length, one in found.items()
                ],
            }
            for name, found in by_layer.items()
        ],
        "ratios": [
            {"layer": name, "length": length, "attention_to_layer": rounded(values)}
            for name, found in gains.items()
            for length, values in found.items()
        ],
    }
    return Finding(
        "speed-by-length",
        "Tokens a second by length, forwards and backwards",
        _speed_sentence(gains, rounds=len(times[0].seconds), threads=threads),
        data,
        lambda: _draw_speed(by_layer, gains),
    )


def _speed_sentence(gains: Mapping[str, Mapping[int, Sequence[float]]], *, rounds: int, threads: int) -> str:
    told = []
    for name, found in gains.items():
        parts = ", ".join(
            f"{median(found[length]):.2g} ({min(found[length]):.2g} to {max(found[length]):.2g}) at length {length}"
            for length in sorted({min(found), max(found)})
        )
        told.append(f"of the {name}'s tokens, {parts}")
    return (
        f"In a second, forwards and backwards, a self-attention layer takes this multiple {'; '.join(told)} (median "
        f"and range of {rounds} rounds, threads: {threads})."
    )


def _draw_speed(by_layer: Mapping[str, Mapping[int, Times]], gains: Mapping[str, Mapping[int, list[float]]]) -> Figure:
    figure, (left, right) = frames(2)
    for name, found in by_layer.items():
        thousands = {length: [rate / 1000 for rate in one.rates()] for length, one in found.items()}
        _plot(left, thousands, name=name, label=name)
    for name, gain in gains.items():
        _plot(right, gain, name=name)
    right.axhline(1, color=QUIET, linewidth=0.8)
    left.set_ylabel("thousand tokens a second")
    right.set_ylabel("self-attention as a multiple of each")
    lengths = list(next(iter(by_layer.values())))
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_xticks(lengths, [str(length) for length in lengths])
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        axes.set_xlabel("length of the sequences (tokens)")
    figure.legend(frameon=False, fontsize=9, loc="outside upper center", ncols=len(by_layer))
    return figure


def _plot(axes: Axes, found: Mapping[int, Sequence[float]], *, name: str, label: str | None = None) -> None:
    """Medians by length, and a bar from the lowest to the highest round."""
    colour, mark = LOOKS[name]
    low, high = ([choose(values) for values in found.values()] for choose in (min, max))
    axes.vlines(list(found), low, high, color=colour, linewidth=1, alpha=0.6)
    axes.plot(list(found), [median(values) for values in found.values()], color=colour, marker=mark, ms=5, label=label)


@dataclass(frozen=True)
class Paths:
    """What lies between each position and the last, the farthest first."""

    products: tuple[Way, ...]
    operations: tuple[Way, ...]

    @property
    def is_serial(self) -> bool:
        """Whether more operations must follow one another over the farthest distance than between neighbours."""
        return self.operations[0].longest > self.operations[-2].longest

    @property
    def is_short(self) -> bool:
        """Whether the fewest products are as many over the farthest distance as between neighbours."""
        return self.products[0].shortest == self.products[-2].shortest


def path_finding(paths: Mapping[str, Paths]) -> Finding:
    """What lies between each position and the last as a finding."""
    positions = len(next(iter(paths.values())).products)
    fewest = ", ".join(
        f"{found.products[0].shortest} ({name}; neighbours {found.products[-2].shortest})"
        for name, found in paths.items()
    )
    most = ", ".join(
        f"{found.operations[0].longest} ({name}; {found.operations[-2].longest})" for name, found in paths.items()
    )
    both = [name for name, found in paths.items() if found.is_serial and found.is_short]
    sentence = (
        f"Between two positions {positions - 1} steps apart a gradient passes at least this many matrix products: "
        f"{fewest}; and this many operations must follow one another: {most}."
    )
    if both:
        sentence += f" No more products over a longer distance, and serial all the same: {', '.join(both)}."
    distances = [positions - 1 - place for place in range(positions)]
    data: dict[str, Any] = {
        "distances": distances,
        "readers": [
            {
                "reader": name,
                "products": {"fewest": [way.shortest for way in found.products],
                             "most": [way.longest for way in found.products]},
                "operations": {"fewest": [way.shortest for way in found.operations],
                               "most": [way.longest for way in found.operations]},
            }
            for name, found in paths.items()
        ],
    }  # fmt: skip

    def draw() -> Figure:
        figure, (left, right) = frames(2)
        for name, found in paths.items():
            colour, style = PATH_LOOKS[name]
            left.plot(distances, [way.shortest for way in found.products], color=colour, linestyle=style, label=name)
            right.plot(distances, [way.longest for way in found.operations], color=colour, linestyle=style)
        left.set_ylabel("matrix products on the shortest way")
        right.set_ylabel("operations that must follow one another")
        for axes in (left, right):
            axes.set_xlabel("distance between the positions (steps)")
            axes.set_ylim(bottom=0)
        figure.legend(frameon=False, fontsize=9, loc="outside upper center", ncols=len(paths))
        return figure

    return Finding("path-length", "What lies between two positions of a sequence", sentence, data, draw)
