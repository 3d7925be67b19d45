"""Pictures of the normaliser: its histogram, gradients by samples, and the variance of importance sampling."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from seqloom.inspection.drawing import INK, QUIET, SERIES, new_axes
from seqloom.inspection.partition import GradientCosines, ImportanceVariance, LogPartition


def draw_log_partition(found: LogPartition) -> Figure:
    """How often each value of log Z comes up."""
    figure, axes = new_axes()
    axes.hist(found.values, bins=60, color=SERIES[0])
    axes.axvline(found.mean, color=SERIES[1], linewidth=1.2, linestyle="--", label=f"mean {found.mean:.2f}")
    lowest, highest = float(found.values.min()), float(found.values.max())
    spread = max(highest - lowest, 0.1)
    # Where 0 is far away, an axis that reaches it would press all values into one bar.
    if lowest - spread <= 0 <= highest + spread:
        axes.axvline(0, color=INK, linewidth=1.0)
    else:
        axes.set_xlim(lowest - 0.05 * spread, highest + 0.05 * spread)
    axes.set_xlabel("log Z (0: scores are log-probabilities)")
    axes.set_ylabel("positions")
    axes.set_ylim(top=1.15 * axes.get_ylim()[1])  # room for the legend above the bars
    axes.legend(frameon=False, loc="upper right")
    return figure


def draw_gradient_cosines(found: GradientCosines) -> Figure:
    """Cosine to the gradient of the full softmax, by the number of samples: of one draw, and of the mean of several."""
    figure, axes = new_axes()
    for colour, name in zip(SERIES, found.single, strict=False):
        axes.plot(found.samples, found.single[name], color=colour, marker="o", label=name)
        axes.plot(found.samples, found.averaged[name], color=colour, linestyle=":", marker=".")
    axes.axhline(1, color=QUIET, linewidth=0.8)
    axes.set_xscale("log")
    axes.set_ylim(top=1.03)
    axes.set_xlabel("samples (dotted: mean gradient of several draws)")
    axes.set_ylabel("cosine to the full softmax")
    axes.legend(frameon=False)
    return figure


def draw_importance_variance(found: ImportanceVariance, samples: Sequence[int], *, symbols: int) -> Figure:
    """Relative deviation of Ẑ by the number of samples: in the middle position, and in the worst tenth."""
    figure, axes = new_axes()
    for colour, name in zip(SERIES, found.variances, strict=False):
        axes.plot(samples, found.deviations(name, samples, share=0.5), color=colour, label=f"{name}, half of positions")
        worst = found.deviations(name, samples, share=0.9)
        axes.plot(samples, worst, color=colour, linestyle="--", label=f"{name}, a tenth is worse")
    axes.axvline(symbols, color=QUIET, linewidth=1.0)
    axes.annotate("all symbols", (symbols, axes.get_ylim()[1]), color=QUIET, ha="right", va="top", rotation=90)
    axes.axhline(0.1, color=QUIET, linewidth=0.8, linestyle=":")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(min(samples), max(*samples, symbols))
    axes.set_xlabel("importance samples")
    axes.set_ylabel("deviation of Ẑ / Z")
    axes.legend(frameon=False)
    return figure


def sample_numbers(symbols: int) -> tuple[int, ...]:
    """Numbers of samples from 1 to all symbols, evenly on a logarithmic scale."""
    return tuple(int(number) for number in np.unique(np.geomspace(1, symbols, 25).round()))
