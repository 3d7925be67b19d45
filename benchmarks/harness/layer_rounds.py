"""Rounds over recurrent layers: all of them in turn within one process, in another order each round."""

import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.layers import PEAK, Entry
from harness.processes import Contestant
from harness.progress import Countdown


@dataclass(frozen=True)
class Timings:
    """The useful flops per second of each entry, by its name and then by the number of the round."""

    rates: Mapping[str, Mapping[int, float]]

    def rate(self, name: str) -> float:
        """The median over the rounds."""
        return statistics.median(self.rates[name].values())

    def span(self, name: str) -> tuple[float, float]:
        """The lowest and the highest."""
        return min(self.rates[name].values()), max(self.rates[name].values())

    def pairs(self, name: str, peer: str) -> tuple[list[float], list[float]]:
        """The rates of both in the rounds in which both were measured."""
        ours, theirs = self.rates[name], self.rates[peer]
        common = [number for number in ours if number in theirs]
        return [ours[number] for number in common], [theirs[number] for number in common]

    def ratio(self, name: str, peer: str) -> float:
        """The median of the rate of one by the rate of the other."""
        return statistics.median(one / other for one, other in zip(*self.pairs(name, peer), strict=True))

    def share_of_peak(self, name: str) -> float:
        """The median of the rate by the peak of the same round."""
        return self.ratio(name, PEAK)


def time_entries(process: Contestant, entries: Sequence[Entry], *, what: str, pairs: int, seed: int) -> Timings:
    """Warm up every entry, then time each that is due once in each of so many rounds."""
    countdown = Countdown(f"{what}, warming up", len(entries))
    for index in range(len(entries)):
        process.ask(f"warm {index}")
        countdown.tick()
    rates: dict[str, dict[int, float]] = {entry.name: {} for entry in entries}
    countdown = Countdown(f"{what}: round", pairs)
    for number in range(pairs):
        for index in order_of(entries, number, seed=seed):
            answer = process.ask(f"time {index}")
            rates[entries[index].name][number] = answer["calls"] * entries[index].flops / answer["seconds"]
        countdown.tick()
    return Timings(rates)


def order_of(entries: Sequence[Entry], number: int, *, seed: int) -> list[int]:
    """The entries that are due in a round, shuffled: who follows whom is another matter each time."""
    due = [index for index, entry in enumerate(entries) if entry.is_due(number)]
    random.Random(f"{seed} {number}").shuffle(due)
    return due


def peak_memory(
    process: Contestant, entries: Sequence[Entry], *, what: str, repeats: int
) -> dict[str, list[int]] | None:
    """Bytes of one forward and backward pass of torch's layers and of ours; None where the system does not tell."""
    if not process.facts["can_measure"]:
        return None
    wanted = [index for index, entry in enumerate(entries) if entry.program in ("torch", "ours")]
    found: dict[str, list[int]] = {entries[index].name: [] for index in wanted}
    countdown = Countdown(f"{what}, memory", repeats * len(wanted))
    for _ in range(repeats):
        for index in wanted:
            found[entries[index].name].append(int(process.ask(f"peak {index}")["bytes"]))
            countdown.tick()
    return found
