"""The picture of a text's counts: rank against frequency for each order, and how the vocabulary grows."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from seqloom.inspection.drawing import INK, QUIET, SERIES, tidy
from seqloom.inspection.text_statistics import Growth, OrderStatistics, TextStatistics


def draw_zipf(found: TextStatistics, *, unit: str) -> Figure:
    """Left, counts by rank in logarithms with Mandelbrot's curve (line) and Zipf's (dashes) through the fitted ranks;
    right, different tokens by tokens read, with Heaps' law.

    `unit` is what a token is called, in the singular.
    """
    figure = Figure(figsize=(10.4, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[3, 2])
    for axes in (left, right):
        tidy(axes)
        axes.set_xscale("log")
        axes.set_yscale("log")
    _draw_ranks(left, found.orders, unit=unit)
    _draw_growth(right, found.growth, unit=unit)
    return figure


def _draw_ranks(axes: Axes, orders: Sequence[OrderStatistics], *, unit: str) -> None:
    for order, colour in zip(orders, SERIES, strict=False):
        if not order.ranks:
            continue
        ranks, counts = np.array(order.ranks).T
        label = f"{unit}s" if order.order == 1 else f"{unit} {order.order}-grams"
        if order.fits is not None:
            shifted, plain = order.fits.mandelbrot, order.fits.zipf
            label += f": α = {plain.exponent:.2f};  α = {shifted.exponent:.2f}, b = {shifted.shift:.1f}"
            fitted = np.unique(np.round(np.geomspace(1, plain.ranks, 80)).astype(np.int64))
            axes.plot(fitted, plain.counts(fitted), color=colour, linewidth=1.2, linestyle="--")
            axes.plot(fitted, shifted.counts(fitted), color=INK, linewidth=0.9)
        axes.plot(ranks, counts, color=colour, marker="o", ms=3, linestyle="none", label=label, zorder=1)
    axes.set_xlabel("rank")
    axes.set_ylabel("count")
    axes.legend(frameon=False, fontsize=8, loc="upper right", title="Zipf (dashes);  Mandelbrot (line)")


def _draw_growth(axes: Axes, growth: Growth, *, unit: str) -> None:
    tokens, types = np.array(growth.points).T
    axes.plot(tokens, types, color=SERIES[0], marker="o", ms=3, linestyle="none")
    late = tokens[tokens >= tokens[-1] / 100]
    label = f"{growth.scale:.3g} · tokens$^{{{growth.exponent:.2f}}}$"
    axes.plot(late, growth.scale * late**growth.exponent, color=INK, linewidth=1, label=label)
    axes.plot(tokens, tokens, color=QUIET, linewidth=0.8, linestyle=":", label="every token new")
    axes.set_ylim(top=types[-1] * 3)
    axes.set_xlabel(f"{unit}s read")
    axes.set_ylabel(f"different {unit}s")
    axes.legend(frameon=False, fontsize=8, loc="lower right")
