"""Advice from the results: which rung for this data, and why."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from seqloom.compare.results import RungResult, Step

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
    results: Sequence[RungResult],
    against_best: Mapping[str, Step],
    points: Mapping[str, Mapping[int, float]],
    *,
    test_pairs: int,
    leaked: int,
    skipped: Sequence[str] = (),
) -> list[Advice]:
    """What to take for this data, from the results in the order of the ladder.

    `against_best` has the test between each other rung and the best; `points` BLEU by the number of pairs;
    `skipped` the names of rungs that were not trained.
    """
    if not results:
        return [Advice("No rung was climbed.", "All of them were skipped; raise --minutes, or give more pairs.")]
    best = max(results, key=lambda each: each.bleu.value)
    if best.bleu.value < USELESS:
        sentence = f"The best BLEU is {best.bleu.value:.1f} ({best.name}). Raise --minutes, or give more pairs."
        return [Advice("No rung has learned to translate.", sentence)]
    equal = [each for each in results if each is not best and against_best[each.name].p_value >= SIGNIFICANT]
    found = [_choice(best, equal, results)]
    if equal:
        cheapest = min(equal, key=lambda each: each.minutes)
        if cheapest.minutes < best.minutes:
            step = against_best[cheapest.name]
            found.append(
                Advice(
                    f"{cheapest.name} costs less and may be as good.",
                    f"It took {cheapest.minutes:.1f} minutes in place of {best.minutes:.1f}, and its BLEU of "
                    f"{cheapest.bleu.value:.1f} differs from {best.bleu.value:.1f} by no more than chance would give "
                    f"(p = {step.p_value:.2g}).",
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
                "suit this text; raise --minutes.",
            )
        )
    found += _curve_advice(best, points)
    if test_pairs < MIN_TEST_LINES:
        found.append(
            Advice(
                f"Take these scores with care: the test set has {test_pairs:,} pairs.",
                f"Intervals of so few lines are wide; use at least {MIN_TEST_LINES}.",
            )
        )
    if leaked:
        found.append(
            Advice(
                f"{leaked:,} of {test_pairs:,} test pairs are in the training text.",
                "Rungs that remember whole sentences gain most from them; remove them with seqloom doctor --fix "
                "leakage.",
            )
        )
    return found


def _choice(best: RungResult, equal: Sequence[RungResult], results: Sequence[RungResult]) -> Advice:
    others = [each for each in results if each is not best and each not in equal]
    reason = f"BLEU {best.bleu.value:.1f} [{best.bleu.low:.1f}, {best.bleu.high:.1f}] is the highest"
    if others:
        second = max(others, key=lambda each: each.bleu.value)
        reason += (
            f", {best.bleu.value - second.bleu.value:.1f} above {second.name}, more than chance would give "
            f"(p < {SIGNIFICANT:g})"
        )
    if equal:
        reason += f"; not distinguishable from it: {', '.join(each.name for each in equal)}"
    return Advice(f"Take {best.name} for this data.", f"{reason}.")


def _curve_advice(best: RungResult, points: Mapping[str, Mapping[int, float]]) -> list[Advice]:
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
