"""Contestants as processes of their own that compute only when told to.

A contestant reads a command per line from stdin and answers each with one JSON line on stdout; its first line says
that it is ready. So all of them stay warm while one at a time computes.
"""

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from seqloom.core.openmp import WAIT_POLICY

LAST_LINES = 15
"""Lines of a contestant's stderr that are shown when it fails."""

PATIENCE = 5.0
"""Seconds that contestants have to end by themselves, all of them together."""


class ContestantError(Exception):
    """A contestant that ended or answered nonsense, with the end of what it said."""


class Contestant:
    """A contestant in a process of its own; `all_running` ends it."""

    def __init__(self, name: str, command: Sequence[str | Path], *, threads: int) -> None:
        self.name = name
        self.facts: Mapping[str, Any] = {}
        self._log = tempfile.TemporaryFile(mode="w+", encoding="utf-8", errors="replace")  # noqa: SIM115 - closed below
        # A session of its own: Ctrl-C reaches the driver alone, which then ends its contestants one by one.
        self._process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=environment(threads),
            start_new_session=True,
        )

    def wait_until_ready(self) -> None:
        """Wait for the first line."""
        self.facts = self._answer()

    def ask(self, command: str) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        assert self._process.stdin is not None
        # A contestant that is gone is noticed when its answer is read.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(command + "\n")
            self._process.stdin.flush()
        return self._answer()

    def hang_up(self) -> None:
        """End its input, which asks it to end."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def close(self, deadline: float) -> None:
        """Hang up, and kill it with all that it started if it is still there at the deadline."""
        assert self._process.stdout is not None
        self.hang_up()
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._process.stdout.close()
        self._log.close()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        try:
            answer = json.loads(line)
        except ValueError:
            self._log.seek(0)
            said = "".join(self._log.readlines()[-LAST_LINES:])
            what = f"answered {line.strip()!r}" if line else "ended"
            raise ContestantError(f"{self.name} {what}; its last lines were:\n{said}") from None
        assert isinstance(answer, dict)
        return answer


def environment(threads: int) -> dict[str, str]:
    """The environment of a process with so many threads of arithmetic.

    How threads wait, which Seqloom has chosen for this process, is left to each contestant.
    """
    ours = WAIT_POLICY.settings if WAIT_POLICY.reason in ("quiet machine", "busy machine") else {}
    kept = {name: value for name, value in os.environ.items() if name not in ours}
    return kept | {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}


@contextlib.contextmanager
def all_running(contestants: Sequence[Contestant]) -> Iterator[None]:
    """All of them ready; all of them ended at the end, however it comes."""
    try:
        for contestant in contestants:
            contestant.wait_until_ready()
        yield
    finally:
        for contestant in contestants:
            contestant.hang_up()
        deadline = time.monotonic() + PATIENCE
        with contextlib.ExitStack() as stack:  # one that cannot be closed does not keep the others
            for contestant in contestants:
                stack.callback(contestant.close, deadline)


def exit_on_termination() -> None:
    """Let SIGTERM unwind the program as Ctrl-C does, so that no contestant is left behind."""

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, leave)
