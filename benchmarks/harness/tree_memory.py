"""The most memory that a process and all that it starts have held at one time.

Pages that several processes share are counted once, by their proportional share (PSS). Files that are mapped count
while they are in memory, though the system may take them back at any time.
"""

import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

EVERY = 0.25
"""Seconds between two looks."""


@dataclass(frozen=True)
class Run:
    """A process that has ended: what it wrote, how long it took, and its peak in bytes."""

    out: str
    seconds: float
    peak: int
    own: int
    """The peak without mapped files."""


def run_watched(command: Sequence[str], *, environment: Mapping[str, str] | None = None) -> Run:
    """Run a command to its end, watching its memory; an error if it fails."""
    peak = [0, 0]
    started = time.monotonic()
    process = subprocess.Popen(
        list(command), stdout=subprocess.PIPE, text=True, env=None if environment is None else dict(environment)
    )
    done = threading.Event()

    def watch() -> None:
        while not done.wait(EVERY):
            for at, held in enumerate(_held(_tree(process.pid))):
                peak[at] = max(peak[at], held)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        out, _ = process.communicate()
    finally:
        process.kill()
        done.set()
        watcher.join()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, list(command))
    return Run(out, time.monotonic() - started, peak[0], peak[1])


def _tree(root: int) -> list[int]:
    """A process and all below it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
            except OSError:  # it has just ended
                continue
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [root]
    for each in found:
        found += children.get(each, [])
    return found


def _held(processes: Sequence[int]) -> tuple[int, int]:
    """Bytes that processes hold, with and without mapped files."""
    whole = own = 0
    for each in processes:
        try:
            text = Path(f"/proc/{each}/smaps_rollup").read_text()
        except OSError:  # it has just ended
            continue
        sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in text.splitlines()[1:]}
        whole += sizes["Pss"]
        own += sizes.get("Pss_Anon", sizes["Pss"])
    return whole, own
