"""Frames that several experiments draw into."""

from collections.abc import Sequence

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from seqloom.inspection.drawing import tidy

LOWEST = 1e-10
"""Norms below this are not drawn: nobody learns from them, and they would press everything else together."""


def frames(count: int, *, width: float = 9.6, height: float = 4.2, shares_y: bool = False) -> tuple[Figure, list[Axes]]:
    """A figure of some frames side by side."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = list(figure.subplots(1, count, sharey=shares_y, squeeze=False)[0])
    for each in axes:
        tidy(each)
    return figure, axes


def plot_by_lag(
    axes: Axes, norms: Sequence[float], *, colour: str, label: str | None = None, dashed: bool = False
) -> None:
    """Norms by lag, as far as they can be seen."""
    seen = next((lag for lag, norm in enumerate(norms) if norm < LOWEST), len(norms))
    width, style = (1.0, (0, (4, 3))) if dashed else (1.8, "-")
    axes.plot(range(seen), norms[:seen], color=colour, label=label, linewidth=width, linestyle=style)


def name_lags(axes: Axes, *, has_norms: bool = True) -> None:
    """A logarithmic scale and the names of both axes."""
    axes.set_yscale("log")
    axes.set_xlabel("lag ℓ (steps back)")
    if has_norms:
        axes.set_ylabel("gradient norm (1 at lag 0)")


def note_left(axes: Axes, text: str, place: tuple[float, float], *, colour: str) -> None:
    """Small words to the left of a point and a little above it."""
    axes.annotate(text, place, xytext=(-6, 3), textcoords="offset points", ha="right", fontsize=8, color=colour)


def signed(value: float) -> str:
    """A number with a minus sign as long as a plus, as it stands on the axes."""
    return f"{value:g}".replace("-", "−")


def shades(count: int) -> list[str]:
    """Colours from dark to light, for things in an order."""
    return [to_hex(colormaps["viridis"](0.92 * number / max(1, count - 1))) for number in range(count)]
