"""How the OpenMP threads of torch wait for each other, decided before torch is imported.

The runtime that comes with torch for Linux (libgomp) lets a thread spin for milliseconds before it sleeps. Where other
programs run, the thread that it waits for often has no core, and spinning keeps it from getting one. A thread that
sleeps at once has to be woken each time, which costs some speed on a quiet machine. So it depends on the machine:

    quiet    GOMP_SPINCOUNT=10000       spin for a fraction of a millisecond, then sleep
    busy     OMP_WAIT_POLICY=PASSIVE    sleep at once

Results are the same to the bit: only the number of threads decides how sums are split. The figures are in
docs/decisions/010-how-threads-wait.md.
"""

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
"""These decide it: by the OpenMP standard, for libgomp (Linux) and for libomp and libiomp5 (macOS, Windows, conda)."""

QUIET = ("GOMP_SPINCOUNT", "10000")
BUSY = ("OMP_WAIT_POLICY", "PASSIVE")

LOOKS, SECONDS_BETWEEN = 3, 0.004
"""Samples of the running programs: one that runs only for a moment does not count."""

Reason = Literal["quiet machine", "busy machine", "environment", "torch was imported before seqloom"]


@dataclass(frozen=True)
class WaitPolicy:
    """The variables that are in force for this process, and why. `environment`: they were set before."""

    reason: Reason
    settings: Mapping[str, str]


def cores_in_use() -> int:
    """How many cores other programs use or wait for at this moment; 0 where the system does not report it."""
    busy = os.cpu_count() or 1
    for look in range(LOOKS):
        if look:
            time.sleep(SECONDS_BETWEEN)
        try:
            # "0.40 0.61 0.52 3/824 5120": three are running or ready, this process among them.
            running = Path("/proc/loadavg").read_text(encoding="ascii").split()[3].partition("/")[0]
            busy = min(busy, int(running) - 1)
        except (OSError, ValueError, IndexError):  # not Linux
            return 0
        if busy <= 0:
            return 0
    return busy


def _threads() -> int:
    """How many threads torch will use."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    if given.isdecimal() and int(given):
        return int(given)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _choose() -> WaitPolicy:
    if "torch" in sys.modules:  # the runtime has read its environment by now
        return WaitPolicy("torch was imported before seqloom", {})
    if settings := {name: os.environ[name] for name in VARIABLES if name in os.environ}:
        return WaitPolicy("environment", settings)
    is_busy = cores_in_use() + _threads() > (os.cpu_count() or 1)
    name, value = BUSY if is_busy else QUIET
    os.environ[name] = value
    return WaitPolicy("busy machine" if is_busy else "quiet machine", {name: value})


WAIT_POLICY = _choose()
"""What holds for this process and for those that it starts."""
