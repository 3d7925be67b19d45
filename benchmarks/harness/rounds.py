"""Rounds: every contestant in turn, again and again, so that what slows the machine down slows all of them down."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.processes import Contestant
from harness.progress import Countdown

PRODUCTS = 5
"""Matrix products by which the peak is measured in each round."""

MOST_STEPS = 10


@dataclass(frozen=True)
class Measured:
    """The runs of one contestant, one per round."""

    name: str
    facts: Mapping[str, Any]
    tokens: tuple[int, ...]
    source_tokens: tuple[int, ...]
    seconds: tuple[float, ...]

    @property
    def rates(self) -> list[float]:
        """Real target tokens per second of each round."""
        return [tokens / seconds for tokens, seconds in zip(self.tokens, self.seconds, strict=True)]

    @property
    def rate(self) -> float:
        """Their median."""
        return statistics.median(self.rates)


def measure(
    contestants: Sequence[Contestant], peak: Contestant, *, what: str, pairs: int, budget: float | None, steps: int
) -> tuple[list[Measured], list[float]]:
    """Let each contestant train `steps` steps a round, `pairs` times; and the peak's flops per second of each round.

    With a `budget` of seconds, the steps are as many as fit into it, at least one.
    """
    begin = time.monotonic()
    for contestant in contestants:
        contestant.ask("run 1")  # what is allocated and loaded at the first step
    warm = [float(contestant.ask("run 1")["seconds"]) for contestant in contestants]
    peak.ask(f"run {PRODUCTS}")
    if budget is not None:
        steps = steps_within(budget - (time.monotonic() - begin), warm, pairs=pairs)
    answers: dict[str, list[dict[str, Any]]] = {contestant.name: [] for contestant in contestants}
    peaks = []
    countdown = Countdown(f"{what}, {steps} steps each: round", pairs)
    for _ in range(pairs):
        for contestant in contestants:
            answers[contestant.name].append(contestant.ask(f"run {steps}"))
        answer = peak.ask(f"run {PRODUCTS}")
        peaks.append(answer["flops"] / answer["seconds"])
        countdown.tick()
    return [_measured(contestant, answers[contestant.name]) for contestant in contestants], peaks


def steps_within(budget: float, seconds_per_step: Sequence[float], *, pairs: int) -> int:
    """Steps per run for which all rounds fit into a budget of seconds; at least one, at most `MOST_STEPS`."""
    return max(1, min(MOST_STEPS, int(budget / (pairs * sum(seconds_per_step)))))


def _measured(contestant: Contestant, answers: Sequence[Mapping[str, Any]]) -> Measured:
    return Measured(
        name=contestant.name,
        facts=contestant.facts,
        tokens=tuple(answer["tokens"] for answer in answers),
        source_tokens=tuple(answer["source_tokens"] for answer in answers),
        seconds=tuple(answer["seconds"] for answer in answers),
    )


@dataclass(frozen=True)
class Arrival:
    """How a contestant came to a validation loss, or how far it came."""

    name: str
    loss: float
    steps: int
    tokens: int
    seconds: float
    """Training alone; validations are not counted."""
    has_arrived: bool


def race(
    contestants: Sequence[Contestant], *, loss: float, chunk: int, most_steps: int, tell: Callable[[str], None]
) -> list[Arrival]:
    """Train all of them in turns of `chunk` steps until each has reached the loss, or has done `most_steps`."""
    found = {each.name: Arrival(each.name, float("inf"), 0, 0, 0.0, False) for each in contestants}
    racing = list(contestants)
    while racing:
        for contestant in list(racing):
            before = found[contestant.name]
            answer = contestant.ask(f"run {chunk}")
            reached = float(contestant.ask("validate")["loss"])
            after = Arrival(
                name=contestant.name,
                loss=reached,
                steps=before.steps + chunk,
                tokens=before.tokens + answer["tokens"],
                seconds=before.seconds + answer["seconds"],
                has_arrived=reached <= loss,
            )
            found[contestant.name] = after
            if after.has_arrived or after.steps >= most_steps:
                racing.remove(contestant)
        standings = ", ".join(f"{each.name} {each.loss:.2f}" for each in found.values())
        tell(f"validation loss after {max(each.steps for each in found.values())} steps: {standings} (goal {loss:g})")
    return list(found.values())
