"""Operations of dialects: routes with their handlers, and what surrounds every handler.

A handler gets the service and a call. It is cancelled when its client leaves, and what it raises becomes an answer in
the shape of its dialect.
"""

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from seqloom.core.errors import DataError, UsageError
from seqloom.serve.http import Call, Dialect
from seqloom.serve.log import places_of
from seqloom.serve.refusal import Refusal, bad_request
from seqloom.serve.service import Service

Handler = Callable[[Service, Call], Awaitable[Response]]

FILE_TIMES = 10
"""Times as long as a request a file may take."""

FORM_BYTES = 64 << 10
"""Bytes of a form around its file."""


@dataclass(frozen=True)
class Operation:
    """A route of a dialect."""

    path: str
    methods: tuple[str, ...]
    dialect: Dialect
    handler: Handler
    description: Mapping[str, Any]
    """What `/openapi.json` says of it, the same for all its methods: summary, parameters, requestBody, responses."""
    takes_file: bool = False
    """Whether its body holds a file, with limits of its own."""
    is_open_to_the_end: bool = False
    """Whether it is answered while the server is about to end: it returns what was accepted before."""


class EventStream(StreamingResponse):
    """Server-sent events, sent as they come. A client that leaves ends them.

    `close` is called at the end, whatever ends it, also where no event was sent.
    """

    def __init__(self, events: AsyncGenerator[str], close: Callable[[], object] = lambda: None) -> None:
        super().__init__(events, media_type="text/event-stream", headers={"x-accel-buffering": "no"})
        self._events, self._at_end = events, ExitStack()
        self._at_end.callback(close)

    def at_end(self, call: Callable[[], object]) -> None:
        """Call a function when the last event has been sent."""
        self._at_end.callback(call)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send all events."""
        with self._at_end:
            try:
                await super().__call__(scope, receive, send)
            finally:
                await self._events.aclose()


def endpoint(service: Service, operation: Operation) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint for the router: runs the handler, ends it when the client leaves, and logs what came of it.

    The body is read first.
    """
    limits, handler = service.state.settings, operation.handler
    most = limits.file_bytes + FORM_BYTES if operation.takes_file else limits.body_bytes
    seconds = limits.request_seconds * (FILE_TIMES if operation.takes_file else 1)

    async def answer(request: Request) -> Response:
        begun, loop = time.perf_counter(), asyncio.get_running_loop()
        call = Call(request, service.state, operation.dialect, loop.time() + seconds)
        identity = uuid.uuid4().hex
        with ExitStack() as accepted:
            try:
                if service.state.is_draining and not operation.is_open_to_the_end:
                    raise Refusal(503, "the server is shutting down; retry", retry_after=5)
                await call.read(most)
                response = await _unless_disconnected(service, call, handler)
            except BaseException as error:
                refusal = refusal_of(error, service, identity)
                response = call.dialect.refusal(refusal)
                if refusal.retry_after is not None:
                    response.headers["retry-after"] = str(refusal.retry_after)
                if service.state.is_draining or refusal.status in (408, 413):
                    response.headers["connection"] = "close"
            response.headers["x-request-id"] = identity
            # Reported after it has been sent, which is done before the loop turns.
            accepted.callback(loop.call_soon, _report, call, operation, identity, response.status_code, begun)
            if isinstance(response, EventStream):  # answered when its last event has been sent
                response.at_end(accepted.pop_all().close)
        return response

    return answer


def _report(call: Call, operation: Operation, identity: str, status: int, begun: float) -> None:
    """Count a request that has been answered, and write it to the log."""
    elapsed, metrics = time.perf_counter() - begun, call.state.metrics
    if status < 400:
        call.state.translated[call.key] += call.characters
    metrics.requests.labels(call.dialect.name, operation.path, str(status)).inc()
    metrics.request_seconds.labels(call.dialect.name).observe(elapsed)
    call.state.notify(
        "request",
        id=identity,
        dialect=call.dialect.name,
        route=operation.path,
        status=status,
        ms=round(1000 * elapsed, 1),
        texts=call.texts,
        characters=call.characters,
        key=call.key,
    )


async def _unless_disconnected(service: Service, call: Call, handler: Handler) -> Response:
    """The answer of the handler, which is cancelled as soon as the client has left."""
    task, has_left = asyncio.current_task(), False
    assert task is not None

    def leave(watcher: asyncio.Task[None]) -> None:
        nonlocal has_left
        if not watcher.cancelled() and not is_done:
            has_left = True
            task.cancel()

    is_done = False
    watcher = asyncio.get_running_loop().create_task(_disconnection(call.request))
    watcher.add_done_callback(leave)
    try:
        return await handler(service, call)
    except asyncio.CancelledError:
        if has_left:
            task.uncancel()
        raise
    finally:
        is_done = True
        watcher.cancel()


async def _disconnection(request: Request) -> None:
    """Wait until the client has left. The body must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def refusal_of(error: BaseException, service: Service, identity: str) -> Refusal:
    """The refusal for an error: a sentence about the request, without internals of the server."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, ClientDisconnect | asyncio.CancelledError):
        return Refusal(499, "the client has left")
    if isinstance(error, UsageError | DataError):
        return bad_request(service.state.without_paths(str(error)))
    if not isinstance(error, Exception):
        raise error
    # Not its message, which may quote the text of the request.
    service.state.notify("error", id=identity, kind=type(error).__name__, where=places_of(error))
    return Refusal(500, f"internal error; see the log of the server, request {identity}")
