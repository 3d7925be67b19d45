"""The queue of a server and its workers: which texts are computed when, and by which process.

    ticket     the texts of one request that one model answers
    queue      tickets with texts that no worker has taken yet, in the order of their turns
    batch      texts of one or several tickets that a worker takes at once

An idle worker takes at once what waits, up to a budget of tokens: tickets for the same model with the same options
share a batch. Each of them has its turn, and so has each kind of batch, so that files of a thousand lines delay a line
alone by one batch, not by the files. A worker takes no more than its share of all texts, so that the others have as
many.

At most `queue` tickets wait in the queue; further ones wait to enter it. A ticket that cannot be answered before its
deadline, by the speed measured so far, is refused at once (503), as is one whose deadline passes while it waits. A
worker that ends is replaced. Its batch fails, nothing else does.
"""

import asyncio
import json
import math
import socket
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from seqloom.core.errors import SeqloomError
from seqloom.data.workers import OwnProcesses
from seqloom.serve.metrics import Metrics
from seqloom.serve.refusal import Refusal, bad_request, overloaded
from seqloom.serve.settings import ServeConfig
from seqloom.serve.worker import LENGTH, WorkerSpec, framed, main

TURN_TEXTS = 16
"""Texts of one ticket in a batch while others wait."""

MAX_BATCH_TEXTS = 64
"""Texts in a batch. More cost as much each, and what comes next would wait longer."""

CHARACTERS_PER_TOKEN = 4
"""For estimates: about so many characters of a text are a token."""

MAX_START_DELAY = 30.0
"""Seconds between attempts to replace a worker that ends as soon as it starts."""

HANG_FACTOR = 2.0
"""Times the limit of a request after which a worker that has not answered is killed."""

SPEED_MEMORY = 0.98
"""What remains of a measured speed with each slower batch."""

Notify = Callable[..., None]
"""Writes a line to the log: `notify("worker_ended", pid=7)`."""


class StartError(SeqloomError):
    """A worker that could not open its models, with the exit code of the reason."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.exit_code = code  # type: ignore[misc]


def tokens_of(text: str) -> int:
    """About how many tokens a text has."""
    return 1 + len(text) // CHARACTERS_PER_TOKEN


@dataclass(eq=False)
class Ticket:
    """The texts of one request that one model answers."""

    model: str
    do: str
    options: Mapping[str, Any]
    texts: Sequence[str]
    deadline: float
    done: asyncio.Future[list[Any]]
    on_part: Callable[[int, Any], None] | None = None
    """Gets the number of a text and a part of its answer."""
    output_tokens: int = 0
    """Tokens that may be written for each text, side by side, where that does not follow from its length."""
    key: str = ""
    """Tickets with the same key can share a batch."""
    results: list[Any] = field(default_factory=list)
    waiting: deque[int] = field(default_factory=deque)
    """Places of the texts that no worker has taken yet."""
    waiting_text_tokens: int = 0
    """About how many tokens these have, kept up to date because a file may have a million lines."""
    missing: int = 0
    """Texts without a result."""

    def __post_init__(self) -> None:
        self.key = json.dumps([self.model, self.do, self.options], sort_keys=True)
        self.results = [None] * len(self.texts)
        self.waiting, self.missing = deque(range(len(self.texts))), len(self.texts)
        self.waiting_text_tokens = sum(map(tokens_of, self.texts))

    @property
    def is_started(self) -> bool:
        """Whether a worker has taken some of its texts."""
        return len(self.waiting) < len(self.texts)

    @property
    def waiting_tokens(self) -> int:
        """About how many tokens of it wait."""
        return self.waiting_text_tokens + self.output_tokens if self.waiting else 0

    def tokens_of(self, places: Iterable[int]) -> int:
        """About how many tokens some texts of it cost."""
        return sum(tokens_of(self.texts[at]) for at in places) + self.output_tokens

    def take(self) -> int:
        """The place of the next text, which does not wait any more."""
        at = self.waiting.popleft()
        self.waiting_text_tokens -= tokens_of(self.texts[at])
        return at

    def fail(self, error: Exception) -> None:
        """It will not be answered."""
        self.waiting.clear()
        if not self.done.done():
            self.done.set_exception(error)

    def fill(self, places: Sequence[int], results: Sequence[Any]) -> None:
        """Results of some of its texts."""
        if self.done.done():
            return
        for at, result in zip(places, results, strict=True):
            self.results[at] = result
        self.missing -= len(places)
        if not self.missing:
            self.done.set_result(self.results)


@dataclass(eq=False)
class _Batch:
    """Texts that a worker has: the places of each ticket's texts."""

    number: int
    groups: list[tuple[Ticket, list[int]]]
    tokens: int
    begun: float
    timer: asyncio.TimerHandle | None = None
    """Kills the worker if it does not answer."""

    def end(self) -> None:
        """It was answered, or never will be."""
        if self.timer is not None:
            self.timer.cancel()

    def message(self) -> dict[str, Any]:
        first = self.groups[0][0]
        texts = [[ticket.texts[at] for at in places] for ticket, places in self.groups]
        return {
            "batch": self.number,
            "do": first.do,
            "model": first.model,
            "options": first.options,
            "groups": texts,
        }


class _Worker:
    """A worker process as the server sees it."""

    def __init__(self, processes: OwnProcesses, spec: WorkerSpec) -> None:
        self._socket, theirs = socket.socketpair()
        self.process = processes.Process(target=main, args=(theirs, spec), daemon=True)
        self.process.start()
        theirs.close()
        self.batch: _Batch | None = None
        self.is_ready = False
        self.is_retiring = False
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    @property
    def is_idle(self) -> bool:
        return self.is_ready and self.batch is None and not self.is_retiring

    async def connect(self) -> None:
        """Open the connection for reading and writing."""
        self._socket.setblocking(False)
        self._reader, self._writer = await asyncio.open_connection(sock=self._socket)

    async def receive(self) -> dict[str, Any] | None:
        """The next message; None when the process has ended."""
        assert self._reader is not None
        try:
            (length,) = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
            message: dict[str, Any] = json.loads(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, OSError, ValueError):
            return None
        return message

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message; a process that has ended is noticed by `receive`."""
        assert self._writer is not None
        with suppress(OSError):
            self._writer.write(framed(message))

    def close(self) -> None:
        """Let the process end, once it has answered what it has."""
        self.is_retiring = True
        self.disconnect()

    def disconnect(self) -> None:
        """Close the connection; a process that still runs ends when it notices."""
        if self._writer is not None:
            self._writer.close()

    def kill(self) -> None:
        """End the process at once."""
        self.process.kill()


class Pool:
    """All workers and the queue. Every method runs on the event loop."""

    def __init__(self, spec: WorkerSpec, *, jobs: int, settings: ServeConfig, metrics: Metrics, notify: Notify) -> None:
        self._spec, self._jobs, self._settings = spec, jobs, settings
        self._metrics, self._notify = metrics, notify
        self._processes = OwnProcesses()
        self._workers: list[_Worker] = []
        self._retiring: set[_Worker] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._queue: deque[Ticket] = deque()
        self._places = asyncio.Semaphore(settings.queue)
        self._numbers = count()
        self._speeds: dict[tuple[str, str], float] = {}
        """Tokens per second of one worker, by model and action."""
        self._is_woken = self._is_closed = False

    @property
    def is_ready(self) -> bool:
        """Whether a worker is ready and the queue has room."""
        return any(worker.is_ready for worker in self._workers) and not self._places.locked()

    @property
    def waiting(self) -> int:
        """Tickets in the queue."""
        return len(self._queue)

    # --- tickets ------------------------------------------------------------------------------------------------------

    async def submit(
        self,
        model: str,
        do: str,
        texts: Sequence[str],
        options: Mapping[str, Any],
        *,
        deadline: float,
        on_part: Callable[[int, Any], None] | None = None,
        output_tokens: int = 0,
    ) -> list[Any]:
        """The result of each text. `deadline` is in the time of the event loop.

        `on_part` gets the number of a text and a part of its answer. `output_tokens` is how many tokens may be written
        for each text, where that does not follow from its length.

        A caller that is cancelled takes its texts out of the queue and out of the workers' searches.
        """
        if not texts:
            return []
        loop = asyncio.get_running_loop()
        ticket = Ticket(model, do, options, texts, deadline, loop.create_future(), on_part, output_tokens)
        # With nothing before it, it is tried: a speed measured in a bad moment must not refuse everything from then on.
        if self._queue and (late := self._estimate(ticket) - (deadline - loop.time())) > 0:
            raise overloaded(late)
        try:
            async with asyncio.timeout_at(deadline):
                await self._places.acquire()
                self._queue.append(ticket)
                self._wake()
                return await ticket.done
        except TimeoutError:
            is_started = ticket.is_started
            self._cancel(ticket)
            if not is_started:
                raise overloaded(self._estimate(ticket)) from None
            raise Refusal(504, "the request took longer than its time limit; send fewer or shorter texts") from None
        except asyncio.CancelledError:
            self._metrics.cancelled.inc()
            self._cancel(ticket)
            raise

    def _estimate(self, ticket: Ticket) -> float:
        """Seconds until a new ticket would be answered; 0 as long as no speed was measured."""
        ready = sum(worker.is_ready for worker in self._workers)
        if not ready:
            return 0.0
        own = ticket.tokens_of(range(len(ticket.texts)))
        by_key: dict[str, list[Ticket]] = {}
        for each in self._queue:
            by_key.setdefault(each.key, []).append(each)
        # It has a turn of `TURN_TEXTS` texts in each batch that it shares, and so have the others, who fill the batch.
        alike, turns = by_key.pop(ticket.key, []), math.ceil(len(ticket.texts) / TURN_TEXTS)
        shares = [min(1.0, turns * TURN_TEXTS / max(1, len(each.waiting))) for each in alike]
        before = sum(share * each.waiting_tokens for share, each in zip(shares, alike, strict=True))
        everything, size = self._sizes([ticket, *alike])
        batches = max(math.ceil((own + before) / size), min(turns, math.ceil(everything / size)))
        seconds = self._seconds(ticket, max(own, min(everything, batches * size)))
        # Those with other models or options have a batch for each of its own.
        for some in by_key.values():
            tokens, size = self._sizes(some)
            seconds += self._seconds(some[0], min(tokens, batches * size))
        return seconds / ready

    def _sizes(self, tickets: Sequence[Ticket]) -> tuple[int, int]:
        """About how many tokens of some tickets wait, and how many of them a batch takes."""
        tokens = sum(each.waiting_tokens for each in tickets)
        texts = sum(len(each.waiting) for each in tickets)
        return tokens, max(1, min(self._settings.batch_tokens, MAX_BATCH_TEXTS * tokens // max(1, texts)))

    def _seconds(self, ticket: Ticket, tokens: int) -> float:
        """How long a worker takes for so many tokens of a ticket; 0 as long as no speed was measured."""
        speed = self._speeds.get((ticket.model, ticket.do))
        return 0.0 if speed is None else tokens / speed

    def _cancel(self, ticket: Ticket) -> None:
        """Remove a ticket from the queue and from the searches of the workers."""
        if ticket in self._queue:
            self._leave(ticket)
        ticket.waiting.clear()
        ticket.done.cancel()
        for worker in (*self._workers, *self._retiring):
            if worker.batch is not None:
                for group, (owner, _) in enumerate(worker.batch.groups):
                    if owner is ticket:
                        worker.send({"cancel": worker.batch.number, "group": group})

    def _leave(self, ticket: Ticket) -> None:
        """A ticket leaves the queue, which makes room for another."""
        self._queue.remove(ticket)
        self._metrics.waiting.set(len(self._queue))
        self._places.release()

    # --- batches ------------------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        """Dispatch soon: requests that arrive at the same moment share a batch."""
        if not self._is_woken:
            self._is_woken = True
            asyncio.get_running_loop().call_soon(self._dispatch)

    def _dispatch(self) -> None:
        self._is_woken = False
        for worker in self._workers:
            if not worker.is_idle:
                continue
            batch = self._take()
            if batch is None:
                break
            worker.batch = batch
            worker.send(batch.message())
            limit = HANG_FACTOR * self._settings.request_seconds
            batch.timer = asyncio.get_running_loop().call_later(limit, self._kill_hanging, worker)
        self._metrics.waiting.set(len(self._queue))
        self._metrics.running.set(self._running_texts())

    def _running_texts(self) -> int:
        return sum(len(places) for worker in self._workers if worker.batch for _, places in worker.batch.groups)

    def _take(self) -> _Batch | None:
        """The next batch: texts of the first ticket and of those that can share its batch."""
        now = asyncio.get_running_loop().time()
        for ticket in [each for each in self._queue if each.deadline <= now]:
            self._leave(ticket)
            ticket.fail(overloaded(self._estimate(ticket)))
        if not self._queue:
            return None
        key = self._queue[0].key
        tickets = self._queue_of(key)
        waiting = sum(len(ticket.waiting) for ticket in tickets)
        # A fair share of what waits and what runs: as much as each of the others has, or can take at once.
        ready = max(1, sum(worker.is_ready for worker in self._workers))
        room = min(MAX_BATCH_TEXTS, math.ceil((waiting + self._running_texts()) / ready))
        budget, tokens = self._settings.batch_tokens, 0
        taken: dict[Ticket, list[int]] = {}
        for most in (TURN_TEXTS, room):
            for ticket in tickets:
                places = taken.setdefault(ticket, [])
                while ticket.waiting and len(places) < most and room > 0 and tokens < budget:
                    at = ticket.take()
                    places.append(at)
                    room -= 1
                    tokens += tokens_of(ticket.texts[at])
        groups = [(ticket, places) for ticket, places in taken.items() if places]
        for ticket in tickets:
            if not ticket.waiting:
                self._leave(ticket)
        # Their next turn comes after one of each other key; those that had no part of this batch are first then.
        for ticket in sorted(self._queue_of(key), key=lambda each: bool(taken[each])):
            self._queue.remove(ticket)
            self._queue.append(ticket)
        return _Batch(next(self._numbers), groups, tokens + groups[0][0].output_tokens, now)

    def _queue_of(self, key: str) -> list[Ticket]:
        """The tickets that can share a batch."""
        return [ticket for ticket in self._queue if ticket.key == key]

    def _kill_hanging(self, worker: _Worker) -> None:
        self._notify("worker_hangs", pid=worker.process.pid)
        worker.kill()

    def _finish(self, worker: _Worker, message: Mapping[str, Any]) -> None:
        batch = worker.batch
        if batch is None or message.get("batch") != batch.number:
            return
        if "part" in message:
            ticket, places = batch.groups[message["group"]]
            if ticket.on_part is not None and not ticket.done.done():
                ticket.on_part(places[message["text"]], message["part"])
            return
        loop = asyncio.get_running_loop()
        seconds = loop.time() - batch.begun
        for (ticket, places), answer in zip(batch.groups, message["groups"], strict=True):
            if "error" in answer:
                if ticket in self._queue:
                    self._leave(ticket)
                ticket.fail(bad_request(answer["error"]))
            elif "failed" in answer:
                if ticket in self._queue:
                    self._leave(ticket)
                self._notify("error", kind=answer["failed"], where=answer["where"])
                ticket.fail(Refusal(500, "internal error; see the log of the server"))
            elif len(answer["results"]) == len(places):  # a cancelled one may lack results
                ticket.fill(places, answer["results"])
        batch.end()
        worker.batch = None
        if worker.is_retiring:
            worker.close()
        self._wake()
        loop.call_soon(self._measure, batch, seconds, message)  # after those who wait for the results

    def _measure(self, batch: _Batch, seconds: float, message: Mapping[str, Any]) -> None:
        """Count what a batch was, and how quick."""
        metrics, dropped = self._metrics, message["dropped_rows"]
        first, _ = batch.groups[0]
        metrics.batch_texts.observe(sum(len(places) for _, places in batch.groups))
        metrics.batch_seconds.observe(seconds)
        metrics.dropped_rows.inc(dropped)
        if not dropped:  # otherwise not all of its tokens were computed
            # The highest recent speed: single lines say little about a full batch, and a low estimate would refuse
            # requests that could be answered.
            key, speed = (first.model, first.do), batch.tokens / max(seconds, 1e-6)
            self._speeds[key] = max(speed, SPEED_MEMORY * self._speeds.get(key, speed))
        for (ticket, places), answer in zip(batch.groups, message["groups"], strict=True):
            if len(answer.get("results", ())) == len(places):
                metrics.texts.labels(ticket.model).inc(len(places))
                metrics.characters.labels(ticket.model).inc(sum(len(ticket.texts[at]) for at in places))

    # --- workers ------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the workers and wait until all of them are ready. StartError if a model cannot be opened."""
        self._workers = await self._started(self._spec, self._jobs)
        self._count_ready()
        self._wake()

    async def reload(self, spec: WorkerSpec) -> None:
        """Replace all workers by new ones, without a gap: the old ones answer until the new ones are ready."""
        fresh = await self._started(spec, self._jobs)
        old, self._workers, self._spec = self._workers, fresh, spec
        for worker in old:
            worker.is_retiring = True
            if worker.batch is None:
                worker.close()
            else:
                self._retiring.add(worker)
        self._count_ready()
        self._wake()

    async def close(self) -> None:
        """End all workers."""
        self._is_closed = True
        for worker in self._workers:
            worker.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.to_thread(self._processes.end)

    async def _started(self, spec: WorkerSpec, number: int) -> list[_Worker]:
        """So many workers that are ready, or none."""
        workers: list[_Worker] = []
        try:
            for _ in range(number):
                workers.append(_Worker(self._processes, spec))
            await asyncio.gather(*(self._become_ready(worker) for worker in workers))
        except BaseException:
            for worker in workers:
                worker.kill()
                worker.disconnect()
            raise
        for worker in workers:
            self._watch(worker)
        return workers

    async def _become_ready(self, worker: _Worker) -> None:
        await worker.connect()
        message = await worker.receive()
        if message is None:
            raise StartError(
                "a worker ended while it opened the models, perhaps for lack of memory; use fewer: --jobs 1", 1
            )
        if "failed" in message:
            raise StartError(message["failed"], message["code"])
        worker.is_ready = True
        self._count_ready()

    def _watch(self, worker: _Worker) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(worker))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, worker: _Worker) -> None:
        """Receive the answers of a worker until it ends; then start another in its place."""
        while (message := await worker.receive()) is not None:
            self._finish(worker, message)
        worker.is_ready = False
        self._count_ready()
        self._retiring.discard(worker)
        worker.disconnect()
        await asyncio.to_thread(worker.process.join)
        if (batch := worker.batch) is not None:
            batch.end()
            worker.batch = None
            for ticket, _ in batch.groups:
                if ticket in self._queue:
                    self._leave(ticket)
                ticket.fail(Refusal(500, "the worker that computed this answer has ended; retry"))
        if worker.is_retiring or self._is_closed:
            return
        self._notify("worker_ended", pid=worker.process.pid, exit_code=worker.process.exitcode)
        await self._replace(worker)

    async def _replace(self, worker: _Worker) -> None:
        self._metrics.restarts.inc()
        self._count_ready()
        delay = 1.0
        while True:
            try:
                (fresh,) = await self._started(self._spec, 1)
                break
            except (StartError, OSError) as error:
                self._notify("worker_failed", message=str(error), retry_in=delay)
                await asyncio.sleep(delay)
                delay = min(2 * delay, MAX_START_DELAY)
        if worker in self._workers:
            self._workers[self._workers.index(worker)] = fresh
            self._count_ready()
            self._wake()
        else:  # the models were loaded again in the meantime
            fresh.close()

    def _count_ready(self) -> None:
        self._metrics.workers.set(sum(worker.is_ready for worker in self._workers))
