"""Advice from the results: which rung for this data, and why."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from seqloom.compare.results import BLEU, Result, Scale, Step

SIGNIFICANT = 0.05
"""Differences with a p-value below it are not put down to chance."""

USELESS = 2.0
"""BLEU below which a translator is good for nothing."""

MIN_TEST_LINES = 200
STILL_RISING = 1.0
"""BLEU that the last part of a curve must gain to be called rising."""


@dataclass(frozen=True)
class Advice:
    """A recommendation, and the measurements behind it."""

    text: str
    reason: str


def advise(
    results: Sequence[Result],
    against_best: Mapping[str, Step],
    points: Mapping[str, Mapping[int, float]],
    *,
    test_pairs: int,
    leaked: int,
    skipped: Sequence[str] = (),
    scale: Scale = BLEU,
    unit: str = "pairs",
) -> list[Advice]:
    """What to take for this data, from the results in the order of the ladder.

    `against_best` has the test between each other rung and the best; `points` BLEU by the number of pairs;
    `skipped` the names of rungs that were not trained. `scale` is that of the main scores, `unit` what the sets count.
    """
    if not results:
        return [Advice("No rung was climbed.", f"All of them were skipped; raise --minutes, or give more {unit}.")]
    best = best_of(results, scale)
    if scale is BLEU and best.main.value < USELESS:
        sentence = f"The best BLEU is {best.main.value:.1f} ({best.name}). Raise --minutes, or give more pairs."
        return [Advice("No rung has learned to translate.", sentence)]
    equal = [each for each in results if each is not best and against_best[each.name].p_value >= SIGNIFICANT]
    found = [_choice(best, equal, results, scale)]
    if equal:
        cheapest = min(equal, key=lambda each: each.minutes)
        if cheapest.minutes < best.minutes:
            step = against_best[cheapest.name]
            found.append(
                Advice(
                    f"{cheapest.name} costs less and may be as good.",
                    f"It took {cheapest.minutes:.1f} minutes in place of {best.minutes:.1f}, and its {scale.name} of "
                    f"{scale.shown(cheapest.main.value)} differs from {scale.shown(best.main.value)} by no more than "
                    f"chance would give (p = {step.p_value:.2g}).",
                )
            )
    if skipped:
        found.append(
            Advice(
                f"Not compared: {', '.join(skipped)}.",
                "Rungs that were skipped may be better; the reasons are below the table.",
            )
        )
    if improving := [each for each in results if each.is_improving]:
        names = ", ".join(each.name for each in improving)
        minutes = ", ".join(f"{each.minutes:.1f}" for each in improving)
        found.append(
            Advice(
                f"{names} {'was' if len(improving) == 1 else 'were'} still improving.",
                f"The dev loss was at its lowest when the minutes ({minutes}) were over, before the steps that would "
                f"suit this {'text' if scale is BLEU else 'data'}; raise --minutes.",
            )
        )
    found += _curve_advice(best, points)
    if test_pairs < MIN_TEST_LINES:
        found.append(
            Advice(
                f"Take these scores with care: the test set has {test_pairs:,} {unit}.",
                f"Intervals of so few {'lines' if scale is BLEU else unit} are wide; use at least {MIN_TEST_LINES}.",
            )
        )
    if leaked:
        found.append(
            Advice(
                f"{leaked:,} of {test_pairs:,} test {unit} are in the training text.",
                "Rungs that remember whole sentences gain most from them; remove them"
                + (" with seqloom doctor --fix leakage." if scale is BLEU else "."),
            )
        )
    return found


def best_of(results: Sequence[Result], scale: Scale) -> Result:
    """The result with the best main score."""
    return (min if scale.is_error else max)(results, key=lambda each: each.main.value)


def _choice(best: Result, equal: Sequence[Result], results: Sequence[Result], scale: Scale) -> Advice:
    others = [each for each in results if each is not best and each not in equal]
    interval = f"[{scale.shown(best.main.low)}, {scale.shown(best.main.high)}]"
    extreme, beside = ("lowest", "below") if scale.is_error else ("highest", "above")
    reason = f"{scale.name} {scale.shown(best.main.value)} {interval} is the {extreme}"
    if others:
        second = best_of(others, scale)
        reason += (
            f", {scale.shown(abs(best.main.value - second.main.value))} {beside} {second.name}, more than chance would "
            f"give (p < {SIGNIFICANT:g})"
        )
    if equal:
        reason += f"; not distinguishable from it: {', '.join(each.name for each in equal)}"
    return Advice(f"Take {best.name} for this data.", f"{reason}.")


def _curve_advice(best: Result, points: Mapping[str, Mapping[int, float]]) -> list[Advice]:
    found = []
    curve = sorted(points.get(best.name, {}).items())
    if len(curve) >= 2:
        (fewer, before), (more, after) = curve[-2:]
        if after - before >= STILL_RISING:
            found.append(
                Advice(
                    "More pairs would help.",
                    f"From {fewer:,} to {more:,} pairs {best.name} gained {after - before:.1f} BLEU.",
                )
            )
    sizes = sorted({size for curve in points.values() for size in curve})
    # A rung whose point is missing might have been the best there.
    whole = [size for size in sizes if len(points) > 1 and all(size in curve for curve in points.values())]
    leaders = [(size, max(points, key=lambda name: points[name][size])) for size in whole]
    for (size, leader), (_, upper) in pairwise(leaders):
        if leader != upper:
            found.append(
                Advice(
                    f"With {size:,} pairs {leader} would be the best.",
                    f"Its BLEU there is {points[leader][size]:.1f}; with more pairs {upper} overtakes it.",
                )
            )
    return found
