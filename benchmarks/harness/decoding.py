"""Programs that translate, each in its best layout: one process with all threads, or a process per thread.

A team is a program in one layout; its processes get every n-th line and are asked at the same moment, and the slowest
of them tells the time. A mode is something a program can do, such as float32 or int8.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.processes import Contestant
from harness.progress import Countdown, say


@dataclass(frozen=True)
class Layout:
    """So many processes of so many threads."""

    processes: int
    threads: int

    def __str__(self) -> str:
        return f"{self.processes}×{self.threads}"


def layouts(threads: int, processes: int | None = None) -> list[Layout]:
    """The two ways to use all threads, or the one with so many processes; one way, if there is one thread."""
    if processes is not None:
        return [Layout(processes, max(1, threads // processes))]
    return [Layout(1, threads), Layout(threads, 1)] if threads > 1 else [Layout(1, 1)]


@dataclass
class Team:
    """A program in one layout."""

    name: str
    layout: Layout
    members: list[Contestant]

    def ask(self, command: str) -> list[dict[str, Any]]:
        """All of them at once; the answer of each."""
        with ThreadPoolExecutor(len(self.members)) as pool:
            return list(pool.map(lambda member: member.ask(command), self.members))

    def seconds(self, command: str) -> float:
        """The time of the slowest."""
        return max(float(answer["seconds"]) for answer in self.ask(command))


def start_team(name: str, layout: Layout, *, command: Sequence[str | Path]) -> Team:
    """Start the processes; each is told which part of the lines is its own."""
    members = [
        Contestant(
            f"{name} {layout}",
            [*command, "--share", str(number), str(layout.processes), "--threads", str(layout.threads)],
            threads=layout.threads,
        )
        for number in range(layout.processes)
    ]
    return Team(name, layout, members)


@dataclass
class Entry:
    """A mode of a program in its best layout, and the rates that were measured of it."""

    title: str
    team: Team
    command: str
    lines: int
    rates: list[float] = field(default_factory=list)

    def measure(self) -> None:
        """One more round, in sentences per second."""
        self.rates.append(self.lines / self.team.seconds(self.command))

    @property
    def rate(self) -> float:
        """The median."""
        return statistics.median(self.rates)


def best_entry(title: str, teams: Sequence[Team], commands: Sequence[str], *, lines: int) -> Entry:
    """The team and the command that are fastest, each tried after a first time that warms it up."""
    tried: list[tuple[float, Entry]] = []
    for team in teams:
        for command in commands:
            team.ask(command)
            entry = Entry(title, team, command, lines)
            tried.append((lines / team.seconds(command), entry))
    rate, best = max(tried, key=lambda each: each[0])
    say(f"{title}: {best.team.layout}, {best.command}: {rate:.1f} sentences/s")
    return best


def race(entries: Sequence[Entry], *, rounds: int, what: str) -> None:
    """All of them in turns, so that a machine that slows down slows all of them down."""
    countdown = Countdown(f"{what}: round", rounds)
    for _ in range(rounds):
        for entry in entries:
            entry.measure()
        countdown.tick()


def outputs(entry: Entry, decode: Callable[[Sequence[Any]], str]) -> list[str]:
    """What an entry translates the lines to, in their order; `decode` makes a text of what its program answers."""
    found: dict[int, str] = {}
    for answer in entry.team.ask(entry.command):
        found |= {int(number): decode(output) for number, output in answer["outputs"]}
    return [found[number] for number in range(len(found))]


def decoding_table(entries: Sequence[Entry], beside: Mapping[str, Sequence[str]]) -> list[str]:
    """Rates, their range, and what stands beside each title."""
    lines = ["| contestant | layout | sentences/s | range | BLEU | one line, ms |", "|---|---|---:|---:|---:|---:|"]
    for entry in entries:
        bleu, latency = beside.get(entry.title, ("", ""))
        span = f"{min(entry.rates):.1f} – {max(entry.rates):.1f}"
        lines.append(f"| {entry.title} | {entry.team.layout} | {entry.rate:.1f} | {span} | {bleu} | {latency} |")
    return lines
