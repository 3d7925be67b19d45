"""Runs of the toy in processes of their own, which can be stopped, killed, or be two ranks of one run."""

import json
import multiprocessing
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

from training.toy import main

PATIENCE = 120.0
"""Seconds that a crowded machine may take."""


@dataclass(frozen=True)
class Running:
    """The ranks of a run, and where their words go."""

    ranks: tuple[BaseProcess, ...]
    run: Path

    def events(self) -> list[Mapping[str, object]]:
        """What the first rank has emitted so far."""
        path = self.run / "events.0"
        lines = path.read_text().split("\n") if path.exists() else []
        return [json.loads(line) for line in lines[:-1]]

    def messages(self, rank: int = 0) -> str:
        """What a rank has written for its user."""
        return (self.run / f"messages.{rank}").read_text()

    def wait_for(self, kind: str, *, step: int) -> None:
        """Wait until an event of this kind and step is emitted."""
        end = time.monotonic() + PATIENCE
        while not any(event["event"] == kind and event["step"] == step for event in self.events()):
            assert time.monotonic() < end, self.events()[-3:]
            assert any(rank.is_alive() for rank in self.ranks), self.messages()
            time.sleep(0.01)

    def codes(self) -> list[int | None]:
        """The exit codes, when all ranks have ended."""
        for rank in self.ranks:
            rank.join(PATIENCE)
        return [rank.exitcode for rank in self.ranks]


def start(
    run: Path, *, ranks: int = 1, program: Callable[[Path, dict[str, object]], int] = main, **options: object
) -> Running:
    """Start the toy, or another program like it.

    Its processes are forked from one that has imported torch already, which saves seconds each.
    """
    run.mkdir(exist_ok=True)
    for old in [*run.glob("events.*"), *run.glob("messages.*")]:
        old.unlink()
    context = multiprocessing.get_context("forkserver")
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    # What a first step imports, of a run that is sharded too.
    context.set_forkserver_preload(["training.toy", "torch._dynamo", "torch.distributed.fsdp"])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = [
        context.Process(target=_run, args=(program, run, dict(options), rank, ranks, port), daemon=True)
        for rank in range(ranks)
    ]
    for process in processes:
        process.start()
    return Running(tuple(processes), run)


def run_toy(
    run: Path, *, ranks: int = 1, program: Callable[[Path, dict[str, object]], int] = main, **options: object
) -> list[Mapping[str, object]]:
    """The events of a run that must succeed."""
    running = start(run, ranks=ranks, program=program, **options)
    assert running.codes() == [0] * ranks, running.messages()
    return running.events()


def _run(
    program: Callable[[Path, dict[str, object]], int],
    run: Path,
    options: dict[str, object],
    rank: int,
    ranks: int,
    port: int,
) -> None:
    if ranks > 1:
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    with ExitStack() as stack:
        sys.stdout = stack.enter_context((run / f"events.{rank}").open("w"))
        sys.stderr = stack.enter_context((run / f"messages.{rank}").open("w"))
        code = program(run, options)
    sys.exit(code)
