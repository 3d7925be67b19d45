"""Ours on a busy machine: `run SECONDS` trains, or translates with `--what translate`, for at least so long.

Answers {"done": …, "seconds": …}: target tokens of whole steps, or lines of whole batches. `--first torch` imports
torch before Seqloom, which then leaves torch's way to wait for threads as it is; `--first seqloom` imports Seqloom
first, as its commands do. It is ready when everything is loaded: what loads would make the machine look busy to the
next one.
"""

import argparse
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from serving import Line

UNENDING = 10**9
LINES_AT_ONCE = 16


class HungUp(Exception):
    """The driver wants no more steps."""


class Turns:
    """When a turn begins and ends: between two of them the contestant waits inside its own loop."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._commands: Iterator[tuple[str, int]] = line.commands()
        self._seconds, self._begin, self._done = 0.0, 0.0, 0

    def begin(self, reason: str) -> None:
        """Say that all is loaded, and why threads wait as they do; then wait for the first turn."""
        self._line.say({"reason": reason})
        self.wait()

    def wait(self) -> None:
        """Wait for the next turn."""
        for _, seconds in self._commands:
            self._seconds, self._done, self._begin = float(seconds), 0, time.perf_counter()
            return
        raise HungUp

    def count(self, done: int) -> None:
        """Something more is done; at the end of the turn, answer and wait."""
        self._done += done
        seconds = time.perf_counter() - self._begin
        if seconds >= self._seconds:
            self._line.say({"done": self._done, "seconds": seconds})
            self.wait()


def train(run: Path, turns: Turns, threads: int) -> None:
    """Resume a run by the recipe that the command uses."""
    from seqloom.core.events import Event
    from seqloom.core.openmp import WAIT_POLICY
    from seqloom.runs.train import resume

    tokens = 0

    def hear(event: Event) -> None:
        nonlocal tokens
        if event.kind == "resumed":
            turns.begin(WAIT_POLICY.reason)
        if event.kind == "step":
            # The first one also counts what was learnt before the run was resumed.
            turns.count(event["tokens"] - tokens if tokens else 0)
            tokens = event["tokens"]

    settings = {"steps": UNENDING, "validate_every": 0, "save_every": UNENDING, "log_every": 1, "threads": threads}
    resume(run, [f"training.{name}={value}" for name, value in settings.items()], listener=hear)


def translate(run: Path, turns: Turns, threads: int) -> None:
    """Translate the same lines again and again."""
    import torch

    from seqloom import Translator
    from seqloom.core.openmp import WAIT_POLICY

    torch.set_num_threads(threads)
    translator = Translator.load(run / "model")
    lines = (run.parent / "lines").read_text(encoding="utf-8").split("\n")[:-1]
    turns.begin(WAIT_POLICY.reason)
    while True:
        for begin in range(0, len(lines), LINES_AT_ONCE):
            some = lines[begin : begin + LINES_AT_ONCE]
            translator.translate(some)
            turns.count(len(some))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--what", choices=["train", "translate"], required=True)
    parser.add_argument("--first", choices=["torch", "seqloom"], required=True)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--threads", type=int, required=True)
    given = parser.parse_args()
    line = Line()
    if given.first == "torch":
        import torch  # noqa: F401 - the order is the point
    import seqloom  # noqa: F401

    work = train if given.what == "train" else translate
    with contextlib.suppress(HungUp):
        work(given.run, Turns(line), given.threads)


if __name__ == "__main__":
    main()
