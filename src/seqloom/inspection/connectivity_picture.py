"""The picture of a model's gradients: a map of one sentence, and how the mean norm fades with distance."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colorbar import Colorbar
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from seqloom.inspection.connectivity import Connectivity, Profile
from seqloom.inspection.drawing import FIRST, INK, QUIET, SECOND, as_written, fonts, tidy
from seqloom.inspection.lags import lag_below


def draw_connectivity(
    found: Connectivity,
    *,
    source: Sequence[str],
    previous: Sequence[str],
    target: Sequence[str],
    by_lag: Profile,
    by_source: Profile | None,
    source_distance: str = "",
) -> Figure:
    """Above, what each loss (a row) depends on, in shares of its strongest input; below, mean norms by distance.

    `source_distance` says what the distances of `by_source` are counted from. A language model has neither a source
    nor `by_source`.
    """
    if by_source is None:
        return _draw_text(found, previous=previous, target=target, by_lag=by_lag)
    width = max(7.6, 2.4 + 0.38 * (len(source) + len(previous)))
    map_height = 1.9 + 0.27 * len(target)
    figure = Figure(figsize=(width, map_height + 3.0), layout="constrained")
    upper, lower = figure.subfigures(2, 1, squeeze=False, height_ratios=[map_height, 3.0])[:, 0]
    left, right = upper.subplots(1, 2, width_ratios=[len(source), len(previous)], sharey=True)
    strongest = _strongest(found)
    _draw_map(left, found.source / strongest, source, name="source")
    image = _draw_map(right, found.target / strongest, previous, name="target, as read so far")
    _name_rows(left, target)
    _draw_bar(upper.colorbar(image, ax=[left, right], fraction=0.03, pad=0.02))
    # One scale for both, so that heights can be compared and a level curve looks level.
    steps, positions = lower.subplots(1, 2, sharey=True)
    _draw_profile(steps, by_lag, FIRST)
    steps.set_xlabel("lag in the target (steps back from the symbol read last)")
    _draw_profile(positions, by_source, SECOND)
    positions.set_xlabel(f"distance in the source ({source_distance})")
    _scale_norms(steps, [*by_lag.means, *by_source.means])
    for axes in (steps, positions):
        axes.set_ylabel("mean gradient norm ‖∂loss/∂x‖")
        axes.tick_params(labelleft=True)
    return figure


def _draw_text(found: Connectivity, *, previous: Sequence[str], target: Sequence[str], by_lag: Profile) -> Figure:
    """The same of a language model, which has the target side alone."""
    map_height = 1.9 + 0.27 * len(target)
    figure = Figure(figsize=(max(5.6, 2.4 + 0.38 * len(previous)), map_height + 3.0), layout="constrained")
    upper, lower = figure.subfigures(2, 1, squeeze=False, height_ratios=[map_height, 3.0])[:, 0]
    axes, steps = upper.subplots(), lower.subplots()
    image = _draw_map(axes, found.target / _strongest(found), previous, name="the text, as read so far")
    _name_rows(axes, target)
    _draw_bar(upper.colorbar(image, ax=axes, fraction=0.03, pad=0.02))
    _draw_profile(steps, by_lag, FIRST)
    steps.set_xlabel("lag (steps back from the symbol read last)")
    steps.set_ylabel("mean gradient norm ‖∂loss/∂x‖")
    _scale_norms(steps, by_lag.means)
    return figure


def _strongest(found: Connectivity) -> Float[np.ndarray, "rows one"]:
    """What each loss depends on most. A loss that depends on nothing any more is a row of zeros."""
    both = np.maximum(found.source.max(1, initial=0.0), found.target.max(1))
    strongest: Float[np.ndarray, "rows one"] = both.clip(min=np.finfo(np.float64).tiny)[:, None]
    return strongest


def _name_rows(axes: Axes, target: Sequence[str]) -> None:
    axes.set_yticks(range(len(target)), list(map(as_written, target)), family=fonts(), fontsize=9, parse_math=False)
    axes.set_ylabel("loss at")


def _draw_bar(bar: Colorbar) -> None:
    bar.set_label("share of the row's strongest input", fontsize=9)
    bar.outline.set_visible(False)


def _draw_map(axes: Axes, shares: Float[np.ndarray, "rows columns"], inputs: Sequence[str], *, name: str) -> AxesImage:
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    plain: dict[str, Any] = {"family": fonts(), "parse_math": False}
    names = list(map(as_written, inputs))
    axes.set_xticks(range(len(inputs)), names, rotation=60, ha="left", rotation_mode="anchor", **plain)
    axes.xaxis.tick_top()
    axes.tick_params(length=0, labelsize=9)
    axes.set_xlabel(name, color=INK)
    for spine in axes.spines.values():
        spine.set_visible(False)
    return image


def _draw_profile(axes: Axes, profile: Profile, colour: str) -> None:
    """Mean norms by distance, with the distance at which half is left."""
    axes.plot(range(len(profile.means)), profile.means, color=colour, marker="o", ms=3, linewidth=1.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    tidy(axes)
    half = lag_below(profile.means, 0.5)
    if half is not None:
        axes.axvline(half, color=QUIET, linewidth=1, linestyle="--")
        axes.annotate(
            f"half at {half:.1f}",
            (half, 1),
            xycoords=("data", "axes fraction"),
            xytext=(4, -4),
            textcoords="offset points",
            va="top",
            fontsize=9,
            color=INK,
        )


def _scale_norms(axes: Axes, norms: Sequence[float]) -> None:
    """A logarithmic scale of a factor of ten at least: a narrower one would make hills of chance."""
    seen = [norm for norm in norms if norm > 0]
    if not seen:  # no logarithm of nothing
        return
    low, high = 0.8 * min(seen), 1.25 * max(seen)
    missing = max(1.0, 10 * low / high) ** 0.5
    axes.set_yscale("log")
    axes.set_ylim(low / missing, high * missing)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < 1000 else (1,)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _place: f"{value:g}"))
    axes.yaxis.set_minor_locator(NullLocator())
