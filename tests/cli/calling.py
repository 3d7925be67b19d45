"""Running the program inside this process, or as one of its own."""

import io
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any
from unittest import mock

from seqloom.cli.main import execute


@dataclass(frozen=True)
class Called:
    """What a command line gave."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """The lines of stdout, split at LF only."""
        return self.out.split("\n")[:-1]

    @property
    def records(self) -> list[Any]:
        """Stdout as lines of JSON."""
        return [json.loads(line) for line in self.lines]

    @property
    def messages(self) -> list[Any]:
        """Stderr as lines of JSON."""
        return [json.loads(line) for line in self.err.split("\n")[:-1]]


def call(*words: object, stdin: bytes = b"") -> Called:
    """Carry out a command line in this process."""
    streams = [
        io.TextIOWrapper(io.BytesIO(given), encoding="utf-8", errors="backslashreplace", newline="\n")
        for given in (stdin, b"", b"")
    ]
    with (
        mock.patch.object(sys, "stdin", streams[0]),
        mock.patch.object(sys, "stdout", streams[1]),
        mock.patch.object(sys, "stderr", streams[2]),
    ):
        code = execute([str(word) for word in words])
    out, err = (_text(stream) for stream in streams[1:])
    return Called(code, out, err)


def into_closed_pipe(*words: object, stdin: io.TextIOWrapper | None = None) -> Called:
    """Carry out a command line whose output nobody reads: the reader has gone, as `head` goes when it has enough."""
    reading, writing = os.pipe()
    os.close(reading)
    err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="\n")
    with (
        os.fdopen(writing, "w") as closed,
        mock.patch.object(sys, "stdin", stdin),
        mock.patch.object(sys, "stdout", closed),
        mock.patch.object(sys, "stderr", err),
    ):
        code = execute([str(word) for word in words])
    return Called(code, "", _text(err))


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode("utf-8")


def start(*words: object, locale: str = "C.UTF-8", stdout: int = subprocess.PIPE) -> subprocess.Popen[bytes]:
    """Start the program as a process of its own."""
    code = "from seqloom.cli.main import run; run()"
    pipe = subprocess.PIPE
    environment = {**os.environ, "LC_ALL": locale, "LANG": locale, "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONUTF8", None)
    command = [sys.executable, "-c", code, *(str(word) for word in words)]
    return subprocess.Popen(command, stdin=pipe, stdout=stdout, stderr=pipe, env=environment)
