"""Faults on purpose: a process that dies, or a system call that fails, at the n-th step of what it does to the disk."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch._dynamo  # noqa: F401  # a first step imports it, which nobody may not be allowed to

CALLS = ("mkdir", "fsync", "rename", "replace", "unlink", "rmdir", "link")
"""What Python asks of the system when it changes folders and makes sure of files."""


@contextmanager
def at_each_call(act: Callable[[int], None], *, before: bool = True) -> Iterator[list[str]]:
    """Number the calls that change the disk and `act` before or after each; the list of them grows."""
    seen: list[str] = []

    def numbered(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def call(*args: Any, **options: Any) -> Any:
            seen.append(name)
            number = len(seen)
            if before:
                act(number)
            try:
                return real(*args, **options)
            finally:
                if not before:
                    act(number)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, numbered(name))
        yield seen


def fails_at(at: int, error: OSError) -> Callable[[int], None]:
    """An action for `at_each_call`: the call with this number fails, once."""

    def act(number: int) -> None:
        if number == at:
            raise error

    return act


def dies_at(at: int) -> Callable[[int], None]:
    """An action for `at_each_call`: the process is killed there, as by a power cut."""

    def act(number: int) -> None:
        if number == at:
            os.kill(os.getpid(), signal.SIGKILL)

    return act


def in_child(action: Callable[[], str]) -> tuple[int, str]:
    """Do something in a forked process: its exit code (negative for a signal), and the words it gave."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reader)
            os.write(writer, action().encode())
            code = 0
        except BaseException as error:
            os.write(writer, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        words = stream.read().decode()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), words


def as_nobody(folder: Path) -> None:
    """Give up all rights but those of nobody, for whom this folder and all in it is made readable. Only in a child."""
    if os.geteuid() == 0:
        os.chdir(folder)
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
