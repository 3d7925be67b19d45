"""A real server as a process of its own, and plain requests to it."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Answer:
    """The answer to a plain HTTP request."""

    status: int
    body: bytes
    headers: dict[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class RunningServer:
    """A server process that is ready."""

    process: "subprocess.Popen[str]"
    address: str
    log: Path

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def call(
        self,
        path: str,
        data: Any = None,
        *,
        method: str | None = None,
        headers: dict[str, str] | None = None,
        timeout: float = 60.0,
    ) -> Answer:
        """Send a request: bytes as they are, everything else as JSON."""
        given = dict(headers or {})
        if data is not None and not isinstance(data, bytes):
            data = json.dumps(data).encode()
            given.setdefault("Content-Type", "application/json")
        request = urllib.request.Request(self.address + path, data, given, method=method)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return Answer(answer.status, answer.read(), {k.lower(): v for k, v in answer.headers.items()})
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, error.read(), {k.lower(): v for k, v in error.headers.items()})

    def metric(self, name: str) -> float:
        """The sum of a counter or gauge over its labels."""
        lines = self.call("/metrics").body.decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith((name + " ", name + "{")))

    def events(self) -> list[dict[str, Any]]:
        """The lines of its log."""
        return [json.loads(line) for line in self.log.read_text(encoding="utf-8").splitlines() if line.startswith("{")]

    def stop(self, number: int = signal.SIGTERM, *, timeout: float = 40.0) -> int:
        """Send a signal and wait for the end."""
        self.process.send_signal(number)
        return self.process.wait(timeout)


@contextmanager
def running_server(words: Sequence[str], folder: Path, *, jobs: int = 1) -> Iterator[RunningServer]:
    """A server on a free port."""
    command = [sys.executable, "-m", "seqloom", "serve", "--port", "0", "--json", "--jobs", str(jobs), *words]
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "log"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    with log.open("w", encoding="utf-8") as stderr:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=environment)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, f"the server did not start: {log.read_text(encoding='utf-8')}"
        yield RunningServer(process, json.loads(line)["address"], log)
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def wait_until(condition: Any, *, seconds: float = 30.0) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition did not come true in time"
        time.sleep(0.02)


@dataclass(frozen=True)
class TinyModels:
    """Directories of tiny models."""

    english_german: Path
    german_english: Path
    language_model: Path
    vectors: Path
