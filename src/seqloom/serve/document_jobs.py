"""Documents that are translated after their upload has been answered; clients ask for their status and result.

A job belongs to the caller that made it, and needs the key that this caller got for it. Its result is kept as any
translated file is. It counts as an accepted request: a server that is about to end waits for it, and for a moment until
its result is fetched.
"""

import asyncio
import hmac
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from seqloom.serve.files import FileStore
from seqloom.serve.http import ServerState
from seqloom.serve.refusal import Refusal

MAX_RUNNING = 4
"""Documents that are translated at the same time; further ones wait."""

FETCH_SECONDS = 15.0
"""How long a server that is about to end waits until a result is fetched. The client asks every 5 seconds."""

MAX_JOBS = 10_000
"""Jobs that are remembered."""

JobStatus = Literal["queued", "translating", "done", "error"]


@dataclass(frozen=True)
class JobResult:
    """What a job has made."""

    data: bytes
    name: str
    media_type: str
    characters: int


@dataclass(eq=False)
class DocumentJob:
    """One document."""

    identity: str
    key: str
    owner: str
    size: int
    """Bytes of the upload."""
    status: JobStatus = "queued"
    message: str | None = None
    """What went wrong."""
    file: str | None = None
    """The name under which the result is stored."""
    characters: int = 0
    ended: float | None = None
    """When, in the time of the event loop."""
    finished: asyncio.Event = field(default_factory=asyncio.Event)
    fetched: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the client has its result, or knows what went wrong."""

    def end(self, status: JobStatus, message: str | None = None) -> None:
        """Nothing more happens to it."""
        self.status, self.message = status, message
        self.ended = asyncio.get_running_loop().time()
        self.finished.set()


class DocumentJobs:
    """The documents of all callers. Every method runs on the event loop."""

    def __init__(self, state: ServerState, files: FileStore) -> None:
        self._state, self._files = state, files
        self._jobs: dict[str, DocumentJob] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns = asyncio.Semaphore(MAX_RUNNING)

    def start(
        self,
        work: Callable[[], Awaitable[JobResult]],
        *,
        owner: str,
        size: int,
        describe: Callable[[Exception], str],
    ) -> DocumentJob:
        """Begin to translate a document. `describe` says of an error what the client may know."""
        self._expire()
        waiting = sum(job.size for job in self._jobs.values() if job.ended is None)
        if waiting + size > self._state.settings.stored_bytes or len(self._jobs) >= MAX_JOBS:
            raise Refusal(503, "too many documents are being translated; retry later", 10)
        job = DocumentJob(secrets.token_hex(16).upper(), secrets.token_hex(32).upper(), owner, size)
        self._jobs[job.identity] = job
        task = asyncio.get_running_loop().create_task(self._run(job, work, describe))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return job

    def find(self, identity: str, key: str, *, owner: str) -> DocumentJob | None:
        """A job of a caller; None if it is unknown or over for long."""
        self._expire()
        job = self._jobs.get(identity)
        if job is None or job.owner != owner:
            return None
        return job if hmac.compare_digest(job.key.encode(), key.encode("utf-8", "replace")) else None

    async def _run(
        self, job: DocumentJob, work: Callable[[], Awaitable[JobResult]], describe: Callable[[Exception], str]
    ) -> None:
        with self._state.in_flight():
            await self._translate(job, work, describe)
            del work  # with the document
            with suppress(TimeoutError):
                await asyncio.wait_for(job.fetched.wait(), FETCH_SECONDS)

    async def _translate(
        self, job: DocumentJob, work: Callable[[], Awaitable[JobResult]], describe: Callable[[Exception], str]
    ) -> None:
        try:
            async with self._turns:
                job.status = "translating"
                result = await work()
            job.file = self._files.put(result.data, name=result.name, media_type=result.media_type, owner=job.owner)
            job.characters = result.characters
            job.end("done")
        except asyncio.CancelledError:
            job.end("error", "the server was stopped before the document was translated")
            raise
        except Exception as error:  # whatever it is, the client must be able to find out that it failed
            job.end("error", describe(error))

    def _expire(self) -> None:
        now, kept = asyncio.get_running_loop().time(), self._state.settings.stored_seconds
        self._jobs = {name: job for name, job in self._jobs.items() if job.ended is None or now - job.ended < kept}
