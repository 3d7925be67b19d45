"""Signals are noted inside and obeyed as before outside; ranks come from torchrun's environment."""

import os
import signal
import threading

import pytest
import torch

from seqloom.core.errors import TrainingError, UsageError
from seqloom.training.distributed import World, alone, join
from seqloom.training.run_guard import ImmediateStop, Signals


def test_signals_are_noted_and_the_old_handlers_come_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with Signals() as signals:
        assert signals.received is None
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.received is signal.SIGTERM
        os.kill(os.getpid(), signal.SIGTERM)  # asked twice, it still finishes its step
        assert signals.received is signal.SIGTERM
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_closed_terminal_stops_a_run_unless_it_was_started_with_nohup() -> None:
    before = signal.getsignal(signal.SIGHUP)
    try:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        with Signals() as signals:
            os.kill(os.getpid(), signal.SIGHUP)
            assert signals.received is signal.SIGHUP
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with Signals() as signals:
            os.kill(os.getpid(), signal.SIGHUP)
            assert signals.received is None
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_second_interrupt_raises_at_once() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Signals():
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(ImmediateStop):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) == before


def test_another_thread_leaves_the_handlers_alone() -> None:
    before, seen = signal.getsignal(signal.SIGINT), []

    def enter() -> None:
        with Signals():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [before]


def test_without_torchrun_a_process_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with join(torch.device("cpu")) as world:
        assert world == alone()
    assert world.is_first
    assert world.sum(1.5, 2.0) == [1.5, 2.0]
    assert world.stack(torch.ones(2)).tolist() == [[1, 1]]


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE='two' in the environment is not a number"),
        ({"WORLD_SIZE": "2", "RANK": "abc"}, "RANK='abc' in the environment is not a number"),
        ({"WORLD_SIZE": "2", "RANK": "0"}, "MASTER_ADDR and MASTER_PORT must be set, as torchrun does"),
        ({"WORLD_SIZE": "2"}, "MASTER_ADDR and MASTER_PORT must be set, as torchrun does"),
    ],
)
def test_an_invalid_environment_is_reported(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], message: str
) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=message), join(torch.device("cpu")):
        pass


def test_what_fails_on_the_first_rank_is_raised_there() -> None:
    def fail() -> None:
        raise TrainingError("the disk is full")

    with pytest.raises(TrainingError, match="the disk is full"):
        World().first_does(fail, what="save")
