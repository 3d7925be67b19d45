"""Attention at length: time and memory of explicit, fused and local attention, forwards and backwards.

    explicit    softmax(Q Kᵀ / √d + mask) V, product by product     length² scores, kept for the gradient
    fused       the same by one kernel, block by block               length² products, memory linear in the length
    local       |t − s| < window, in blocks (`nn/multihead.py`)      both linear in the length

The cost of attention is the square of the length, not of the width. A fused kernel already removes it from the memory;
from the time only less attention does.
"""

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

from seqloom.drawing.figures import FIRST, FOURTH, SECOND, Finding
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
from seqloom.nn.multihead import attend_nearby
from seqloom.nn.packing import future
from seqloom.nn.probe import Probe

Heads = Float[Tensor, "batch heads length size"]
Way = Callable[[Heads, Heads, Heads], Heads]

HEADS, SIZE = 4, 32
MAX_EXPLICIT_LENGTH = 4096
"""Longer texts are not measured with explicit scores: 8,192 positions would need 5 GB."""
LOOKS = {"explicit": (SECOND, "o"), "fused": (FIRST, "s"), "local": (FOURTH, "^")}


def explicit(query: Heads, key: Heads, value: Heads) -> Heads:
    """Causal attention whose scores are all there at once."""
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])  # [batch, heads, length, length]
    return (scores + future(query.shape[2], key.shape[2], like=scores)).softmax(-1) @ value


def ways_of(window: int) -> dict[str, Way]:
    """Causal attention in three ways; the last one sees `window` positions."""
    local = partial(attend_nearby, window=window, mask=None, is_causal=True, weights=Probe())
    return {"explicit": explicit, "fused": partial(F.scaled_dot_product_attention, is_causal=True), "local": local}


@dataclass(frozen=True)
class Cost:
    """What one pass costs, forwards and backwards."""

    way: str
    length: int
    seconds: tuple[float, ...]
    """A round each."""
    peak: int
    """The most bytes that were allocated at once, besides queries, keys and values."""


def peak_bytes(work: Callable[[], None]) -> int:
    """The most bytes that torch had allocated at once since the work began."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or else the profiler reports its start and stop on stderr
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        work()
    found = recorded.profiler
    assert found is not None
    events = [event for event in found.kineto_results.events() if event.name() == "[memory]"]
    now = highest = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        now += event.nbytes()
        highest = max(highest, now)
    return highest


def measure(
    ways: Mapping[str, Way],
    *,
    lengths: Sequence[int],
    rounds: int,
    generator: torch.Generator,
    report: Callable[[int], None] = lambda _length: None,
    clock: Callable[[], float] = time.perf_counter,
) -> list[Cost]:
    """The cost of each way at each length. Ways take turns, so that other load affects all of them equally."""
    found = []
    for length in lengths:
        parts = torch.randn(4, 1, HEADS, length, SIZE, generator=generator)
        query, key, value = (each.requires_grad_() for each in parts[:3].unbind(0))
        leaves, upstream = [query, key, value], parts[3]

        def work(way: Way, leaves: Sequence[Tensor] = leaves, upstream: Tensor = upstream) -> None:
            torch.autograd.grad(way(*leaves), leaves, upstream)

        chosen = {name: way for name, way in ways.items() if name != "explicit" or length <= MAX_EXPLICIT_LENGTH}
        peaks = {name: peak_bytes(partial(work, way)) for name, way in chosen.items()}  # also warms it up
        seconds: dict[str, list[float]] = {name: [] for name in chosen}
        for _ in range(rounds):
            for name, way in chosen.items():
                start = clock()
                work(way)
                seconds[name].append(clock() - start)
        found += [Cost(name, length, tuple(seconds[name]), peaks[name]) for name in chosen]
        report(length)
    return found


def run(*, seed: int = 1, quick: bool = False, say: Say = silent) -> list[Finding]:
    """Time and memory by length, and how much less a window leaves of them."""
    window = 16 if quick else 128
    lengths = (64, 128) if quick else (256, 512, 1024, 2048, 4096, 8192)
    countdown = Countdown(say, len(lengths))
    costs = measure(
        ways_of(window),
        lengths=lengths,
        rounds=3 if quick else 7,
        generator=generator_for(seed, "inputs"),
        report=lambda length: countdown.done(f"length {length:,}"),
    )
    return [finding(costs, window=window, seed=seed)]


def finding(costs: Sequence[Cost], *, window: int, seed: int) -> Finding:
    """The costs as a finding."""
    by_way: dict[str, dict[int, Cost]] = {}
    for cost in costs:
        by_way.setdefault(cost.way, {})[cost.length] = cost
    growths = {name: _growth(list(found.values())) for name, found in by_way.items()}
    listed = "; ".join(
        f"{name} {1000 * median(last.seconds):,.1f} ms and {last.peak / 2**20:,.1f} MiB at {last.length:,} (twice the "
        f"length costs {growths[name][0]:.2g} times the time, {growths[name][1]:.2g} times the memory)"
        for name, found in by_way.items()
        for last in [found[max(found)]]
    )
    threads = torch.get_num_threads()
    sentence = (
        f"Causal attention of {HEADS} heads of size {SIZE}, forwards and backwards, threads: {threads}: {listed}. "
        f"Local attention sees {window} positions."
    )
    data: dict[str, Any] = {
        "seed": seed,
        "window": window,
        "heads": HEADS,
        "size": SIZE,
        "threads": threads,
        "ways": [
            {
                "way": name,
                "doubling": {"time": rounded(growths[name][:1])[0], "memory": rounded(growths[name][1:])[0]},
                "by_length": [
                    {"length": length, "seconds": rounded(cost.seconds), "peak_bytes": cost.peak}
                    for length, cost in found.items()
                ],
            }
            for name, found in by_way.items()
        ],
    }

    def draw() -> Figure:
        figure, (left, right) = frames(2)
        for name, found in by_way.items():
            colour, mark = LOOKS[name]
            times = [[1000 * each for each in cost.seconds] for cost in found.values()]
            plot_medians(left, found, times, colour=colour, mark=mark, label=name)
            right.plot(list(found), [cost.peak / 2**20 for cost in found.values()], color=colour, marker=mark, ms=5)
        left.set_ylabel("milliseconds, forwards and backwards")
        right.set_ylabel("most memory at once (MiB)")
        for axes in (left, right):
            powers_of_two(axes, list(by_way["local"]))
            axes.set(yscale="log", xlabel="length of the text (tokens)")
        legend_above(figure, len(by_way))
        return figure

    return Finding("window", "Attention by length: explicit, fused and local", sentence, data, draw)


def _growth(found: Sequence[Cost]) -> tuple[float, float]:
    """By which factors time and memory grow when the length doubles, at the end of the range."""
    before, last = found[-2:]
    doublings = math.log2(last.length / before.length)
    return (
        (median(last.seconds) / median(before.seconds)) ** (1 / doublings),
        (last.peak / before.peak) ** (1 / doublings),
    )
