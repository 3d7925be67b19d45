"""The queue of a server by itself: how long a request waits for its turn, and what is expected of it."""

import asyncio
import random
from collections.abc import Sequence

import pytest

from seqloom.serve.metrics import Metrics
from seqloom.serve.pool import Pool, Ticket, tokens_of
from seqloom.serve.settings import ServeConfig
from seqloom.serve.worker import WorkerSpec

SETTINGS = ServeConfig()


class ReadyWorker:
    """A worker that is busy with its first batch."""

    is_ready = True
    batch = None


def ticket_of(texts: Sequence[str], option: int = 0) -> Ticket:
    """A request that has much time."""
    loop = asyncio.get_running_loop()
    return Ticket("m", "translate", {"option": option}, texts, loop.time() + 1e6, loop.create_future())


def expected_and_real(waiting: Sequence[tuple[Sequence[str], int]], texts: Sequence[str]) -> tuple[float, int]:
    """Tokens that are expected to be computed until a new request is answered, and those of the batches it takes."""

    async def run() -> tuple[float, int]:
        pool = Pool(WorkerSpec(()), jobs=1, settings=SETTINGS, metrics=Metrics(), notify=lambda *_, **__: None)
        pool._workers = [ReadyWorker()]  # type: ignore[list-item]
        pool._speeds["m", "translate"] = 1.0
        pool._places = asyncio.Semaphore(100)
        pool._queue.extend(ticket_of(*each) for each in waiting)
        ticket = ticket_of(texts)
        expected = pool._estimate(ticket)
        pool._queue.append(ticket)
        real = 0
        while ticket.waiting:
            batch = pool._take()
            assert batch is not None
            real += batch.tokens
        return expected, real

    return asyncio.run(run())


@pytest.mark.parametrize("seed", range(8))
def test_a_request_waits_about_as_long_as_expected(seed: int) -> None:
    chance = random.Random(seed)
    waiting = [
        (["w" * chance.choice((20, 80, 400))] * chance.choice((1, 5, 64, 2000)), chance.randrange(3))
        for _ in range(chance.randrange(1, 40))
    ]
    for texts in (["w" * 30], ["w" * 60] * 50, ["w" * 100] * 3000):
        expected, real = expected_and_real(waiting, texts)
        assert 0.9 * real - 2 * SETTINGS.batch_tokens <= expected <= 2 * (real + SETTINGS.batch_tokens)


def test_a_line_waits_for_a_batch_however_many_files_there_are() -> None:
    files = [(["A dog runs with a man in the park."] * 300, 1) for _ in range(60)]
    expected, real = expected_and_real(files, ["A dog."])
    assert real <= SETTINGS.batch_tokens + tokens_of("A dog." * 10)
    assert expected <= 2 * SETTINGS.batch_tokens
