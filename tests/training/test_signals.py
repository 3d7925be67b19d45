"""Signals are noted inside and obeyed as before outside; ranks come from torchrun's environment."""

import os
import signal
import threading

import pytest
import torch

from seqloom.core.errors import TrainingError, UsageError
from seqloom.training.distributed import World, alone, join
from seqloom.training.signals import AtOnce, Signals


def test_signals_are_noted_and_the_old_handlers_come_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with Signals() as signals:
        assert signals.received is None
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.received is signal.SIGTERM
        os.kill(os.getpid(), signal.SIGTERM)  # asked twice, it still finishes its step
        assert signals.received is signal.SIGTERM
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_second_interrupt_raises_at_once() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Signals():
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(AtOnce):
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
    monkeypatch.setenv("WORLD_SIZE", "two")
    with pytest.raises(UsageError, match="WORLD_SIZE='two' in the environment is no number"), join(torch.device("cpu")):
        pass


def test_what_fails_on_the_first_rank_is_raised_there() -> None:
    def fail() -> None:
        raise TrainingError("the disk is full")

    with pytest.raises(TrainingError, match="the disk is full"):
        World().first_does(fail, what="save")
