"""Recurrent or all at once: tokens a second by length, and the products that lie between two positions."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.autograd.graph import Node

from seqloom.core.errors import UsageError
from seqloom.core.seeds import seed_for
from seqloom.drawing.figures import FIRST, FOURTH, QUIET, SECOND, THIRD, Finding
from seqloom.lab.bench import (
    Countdown,
    Say,
    frames,
    generator_for,
    legend_above,
    plot_medians,
    powers_of_two,
    rounded,
    silent,
)
from seqloom.nn.attention import Attention, BilinearScore
from seqloom.nn.cells.cell import Cell
from seqloom.nn.cells.lstm import LSTMCell
from seqloom.nn.cells.rnn import ElmanCell
from seqloom.nn.init import seeded
from seqloom.nn.multihead import SelfAttention
from seqloom.nn.packing import packing_of
from seqloom.nn.probe import listen

# What lies between two positions of a sequence, counted in the graph of the computation.
#
#     shortest   the fewest on a path from input i to output j: what a gradient has to pass at least
#     longest    the most: these run one after another, however many processors there are
#
# Counted are matrix products, or all operations that compute something (those that only move numbers are not). The two
# measure different things: the memory of an LSTM passes a step through a gate and a sum, but through no matrix.

PRODUCTS = ("Addmm", "Mm", "Bmm", "Baddbmm", "Linear", "Mv", "ScaledDotProduct")
"""Name prefixes of autograd nodes that multiply matrices. The last does two products; short sequences do not use it."""
OPERATIONS = (*PRODUCTS, "Add", "Sub", "Rsub", "Mul", "Div", "Neg", "Lerp", "Tanh", "Sigmoid", "Relu", "Softmax")
"""Autograd nodes that compute something, in the layers measured here."""

Reader = Callable[[Sequence[Float[Tensor, "one width"]]], Float[Tensor, "one width"]]
"""From the inputs of each position to the output of the last one."""


@dataclass(frozen=True)
class PathLength:
    """What lies between an input and an output."""

    shortest: int
    longest: int


def path_lengths(
    output: Float[Tensor, "*out"], inputs: Sequence[Float[Tensor, "*in"]], *, counted: tuple[str, ...] = PRODUCTS
) -> list[PathLength]:
    """From each input, a leaf with requires_grad, to the output."""
    if output.grad_fn is None:
        raise UsageError("the output has no autograd graph; compute it with gradients enabled")
    order: list[Node] = []  # each after all that it was computed from
    seen: set[Node] = set()
    stack: list[tuple[Node, bool]] = [(output.grad_fn, False)]
    while stack:
        node, is_open = stack.pop()
        if is_open:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack += [(below, False) for below, _ in node.next_functions if below is not None and below not in seen]
    lengths = []
    for number, leaf in enumerate(inputs):
        found: dict[Node, PathLength] = {}
        for node in order:
            below = [found[one] for one, _ in node.next_functions if one in found]
            if getattr(node, "variable", None) is leaf:
                found[node] = PathLength(0, 0)
            elif below:
                own = int(node.name().startswith(counted))
                shortest, longest = min(path.shortest for path in below), max(path.longest for path in below)
                found[node] = PathLength(own + shortest, own + longest)
        if order[-1] not in found:
            raise UsageError(f"the output does not depend on input {number}; give a leaf with requires_grad=True")
        lengths.append(found[order[-1]])
    return lengths


def lengths_to_last(
    read: Reader, *, positions: int, width: int, counted: tuple[str, ...] = PRODUCTS
) -> list[PathLength]:
    """From each position to the last. Position p lies positions − 1 − p steps before the last."""
    inputs = [torch.ones(1, width).requires_grad_() for _ in range(positions)]  # any numbers have the same graph
    return path_lengths(read(inputs), inputs, counted=counted)


def read_by_cell(cell: Cell) -> Reader:
    """The last hidden state. Each input is projected by itself: done together, all would seem to depend on all."""
    return lambda inputs: _states(cell, inputs)[-1]


def read_by_attention(layer: SelfAttention) -> Reader:
    """What self-attention leaves at the last position, computed product by product."""

    def read(inputs: Sequence[Tensor]) -> Tensor:
        with listen(layer, "weights"):  # the fused passes are one node of the graph, whatever they multiply
            last: Tensor = AttentionLayer(layer)(torch.stack(list(inputs), 1))[:, -1]
        return last

    return read


def read_by_both(cell: Cell, attention: Attention) -> Reader:
    """Attention from the last hidden state to all of them."""

    def read(inputs: Sequence[Tensor]) -> Tensor:
        states = _states(cell, inputs)
        memory = attention.remember(torch.stack(states, 1), torch.tensor([len(inputs)]))
        contexts: Tensor = attention(states[-1][:, None], memory)[0]
        return contexts[:, 0]

    return read


def _states(cell: Cell, inputs: Sequence[Tensor]) -> list[Tensor]:
    state = cell.begin(inputs[0].new_zeros(1, cell.width))
    states = []
    for one in inputs:
        state = cell.advance(cell.project(one), state)
        states.append(state[0])
    return states


# How many tokens a second a layer takes, forwards and backwards, by the length of the sequences.
#
# Batches hold as many tokens at every length, so the work that does not depend on length is the same. Layers take
# turns within each round, so that other load affects all of them equally; of several consecutive passes the fastest
# counts, which is the one that was disturbed least; and what is compared is their ratio within a round.


class CellLayer(nn.Module):
    """A recurrent layer with an empty initial state."""

    def __init__(self, cell: Cell) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, inputs: Float[Tensor, "batch time width"]) -> Float[Tensor, "batch time width"]:
        hidden, _ = self.cell.run(inputs, self.cell.begin(inputs.new_zeros(len(inputs), self.cell.width)))
        return hidden


class AttentionLayer(nn.Module):
    """Self-attention over whole sequences, every position attending to all."""

    def __init__(self, attention: SelfAttention) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, inputs: Float[Tensor, "batch time width"]) -> Float[Tensor, "batch time width"]:
        batch, longest, _ = inputs.shape
        packing = packing_of(torch.full((batch,), longest), longest)
        mixed: Tensor = self.attention(inputs.flatten(0, 1), packing, mask=None, is_causal=False)
        return mixed.view(inputs.shape)


@dataclass(frozen=True)
class Times:
    """Seconds of a forward and backward pass of a layer, a round each."""

    layer: str
    length: int
    tokens: int
    seconds: tuple[float, ...]

    def rates(self) -> list[float]:
        """Tokens a second."""
        return [self.tokens / seconds for seconds in self.seconds]


def time_layers(
    layers: Mapping[str, nn.Module],
    *,
    width: int,
    lengths: Sequence[int],
    tokens: int,
    rounds: int,
    passes: int = 3,
    generator: torch.Generator,
    clock: Callable[[], float] = time.perf_counter,
    report: Callable[[int], None] = lambda _length: None,
) -> list[Times]:
    """Times of every layer at every length; a first round is not counted. `report` is called after each length."""
    found = []
    for length in lengths:
        inputs = torch.randn(tokens // length, length, width, generator=generator).requires_grad_()
        upstream = torch.randn(inputs.shape, generator=generator)
        seconds: dict[str, list[float]] = {name: [] for name in layers}
        for number in range(rounds + 1):
            for name, layer in layers.items():
                taken = []
                for _ in range(passes):
                    start = clock()
                    layer(inputs).backward(upstream)
                    taken.append(clock() - start)
                    layer.zero_grad()
                    inputs.grad = None
                if number:
                    seconds[name].append(min(taken))
        counted = len(inputs) * length
        found += [Times(name, length, counted, tuple(values)) for name, values in seconds.items()]
        report(length)
    return found


def ratios(first: Times, second: Times) -> list[float]:
    """How many times as many tokens a second the first layer takes, round by round."""
    return [other / one for one, other in zip(first.seconds, second.seconds, strict=True)]


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
        rnn, lstm = ElmanCell(width, width), LSTMCell(width, width)
        attention = SelfAttention(width, HEADS)
        look = Attention(BilinearScore(width, width))
    layers: dict[str, nn.Module] = {
        "RNN": CellLayer(rnn),
        "LSTM": CellLayer(lstm),
        ATTENTION: AttentionLayer(attention),
    }
    countdown = Countdown(say, len(lengths))
    times = time_layers(
        layers,
        width=width,
        lengths=lengths,
        tokens=tokens,
        rounds=rounds,
        generator=generator_for(seed, "inputs"),
        report=lambda length: countdown.done(f"length {length}"),
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
            products=tuple(lengths_to_last(read, positions=positions, width=width, counted=PRODUCTS)),
            operations=tuple(lengths_to_last(read, positions=positions, width=width, counted=OPERATIONS)),
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
    listed = []
    for name, gain in gains.items():
        parts = ", ".join(
            f"{median(gain[length]):.2g} ({min(gain[length]):.2g} to {max(gain[length]):.2g}) at length {length}"
            for length in sorted({min(gain), max(gain)})
        )
        listed.append(f"of the {name}'s tokens, {parts}")
    sentence = (
        f"In a second, forwards and backwards, a self-attention layer takes this multiple {'; '.join(listed)} (median "
        f"and range of {len(times[0].seconds)} rounds, threads: {threads})."
    )

    def draw() -> Figure:
        figure, (left, right) = frames(2)
        for name, found in by_layer.items():
            (colour, mark), thousands = LOOKS[name], [[rate / 1000 for rate in one.rates()] for one in found.values()]
            plot_medians(left, found, thousands, colour=colour, mark=mark, label=name)
        for name, gain in gains.items():
            colour, mark = LOOKS[name]
            plot_medians(right, gain, gain.values(), colour=colour, mark=mark, label=None)
        right.axhline(1, color=QUIET, linewidth=0.8)
        left.set_ylabel("thousand tokens a second")
        right.set_ylabel("self-attention as a multiple of each")
        lengths = list(next(iter(by_layer.values())))
        for axes in (left, right):
            powers_of_two(axes, lengths)
            axes.set(ylim=(0, None), xlabel="length of the sequences (tokens)")
        legend_above(figure, len(by_layer))
        return figure

    return Finding("speed-by-length", "Tokens a second by length, forwards and backwards", sentence, data, draw)


@dataclass(frozen=True)
class Paths:
    """The path lengths between each position and the last, the most distant first."""

    products: tuple[PathLength, ...]
    operations: tuple[PathLength, ...]


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
    both = [
        name
        for name, found in paths.items()
        if found.operations[0].longest > found.operations[-2].longest  # grows with the distance
        and found.products[0].shortest == found.products[-2].shortest  # does not
    ]
    sentence = (
        f"Between two positions {positions - 1} steps apart a gradient passes at least this many matrix products: "
        f"{fewest}; and this many operations are sequential: {most}."
    )
    if both:
        sentence += f" Constant number of products at any distance, but still sequential: {', '.join(both)}."
    distances = [positions - 1 - place for place in range(positions)]
    data: dict[str, Any] = {
        "distances": distances,
        "readers": [
            {
                "reader": name,
                **{
                    counted: {"fewest": [path.shortest for path in each], "most": [path.longest for path in each]}
                    for counted, each in (("products", found.products), ("operations", found.operations))
                },
            }
            for name, found in paths.items()
        ],
    }

    def draw() -> Figure:
        figure, (left, right) = frames(2)
        for name, found in paths.items():
            colour, style = PATH_LOOKS[name]
            left.plot(distances, [path.shortest for path in found.products], color=colour, linestyle=style, label=name)
            right.plot(distances, [path.longest for path in found.operations], color=colour, linestyle=style)
        left.set_ylabel("matrix products on the shortest path")
        right.set_ylabel("sequential operations")
        for axes in (left, right):
            axes.set(ylim=(0, None), xlabel="distance between the positions (steps)")
        legend_above(figure, len(paths))
        return figure

    return Finding("path-length", "What lies between two positions of a sequence", sentence, data, draw)
