"""A server from start to end: sockets, workers, signals.

start      the socket is bound, models are read, workers open them, compile and translate a line; then `/ready`
SIGHUP     the models are loaded again in new workers, which replace the old ones when they are ready
SIGTERM    `/ready` fails, new requests get 503, accepted ones are answered; then the process ends with 0
"""

import asyncio
import contextlib
import errno
import ipaddress
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from seqloom.apps.language_model import is_arpa
from seqloom.core.errors import DataError, SeqloomError, UsageError
from seqloom.data.workers import processors
from seqloom.runs.detection import load_detection_tables
from seqloom.runs.loading import find_model
from seqloom.serve.actions import Engine
from seqloom.serve.app import dialect_of, make_app
from seqloom.serve.files import FileStore
from seqloom.serve.http import Door, ServerState
from seqloom.serve.keys import Keys, Rates, read_keys
from seqloom.serve.log import ServerLog, places_of
from seqloom.serve.metrics import Metrics
from seqloom.serve.models import ServedModels, code_of, read_models
from seqloom.serve.pool import Pool
from seqloom.serve.refusal import Refusal
from seqloom.serve.runs import folders_of_runs
from seqloom.serve.service import Service
from seqloom.serve.settings import ServeConfig
from seqloom.serve.worker import WorkerModel, WorkerSpec
from seqloom.text.detection import Detector, Guess, LanguageTable, join_tables, script_table
from seqloom.text.translation_memory import MemoryUnit, TranslationMemory, read_units

DEFAULT_RATE = 1_200
"""Requests per minute and caller on an address that others can reach."""

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})


@dataclass(frozen=True)
class ServerOptions:
    """What a server is started with."""

    models: tuple[str, ...]
    """MODEL or NAME=MODEL, in order."""
    settings: ServeConfig = field(default_factory=ServeConfig)
    overrides: tuple[str, ...] = ()
    """Search settings in place of the models' own."""
    host: str = "127.0.0.1"
    port: int = 5000
    keys: Path | None = None
    is_open: bool = False
    """Whether an address that others can reach may be served without keys."""
    jobs: int | None = None
    """Worker processes; by default one per core."""
    engine: Engine = "seqloom"
    memories: tuple[Path, ...] = ()
    """Translation memories, for all pairs of languages that they hold."""
    runs: Path | None = None
    """The folder of the training runs that the workbench shows; by default those around the models."""


def run_server(
    options: ServerOptions, *, on_ready: Callable[[str, ServedModels], None], log: TextIO | None = None
) -> None:
    """Serve until a signal ends it. `on_ready` gets the address and the models."""
    is_loopback = is_loopback_address(options.host)
    if not is_loopback and options.keys is None and not options.is_open:
        raise UsageError(
            f"--host {options.host} can be reached from other machines, so it needs API keys: --keys FILE (make one: "
            "seqloom keys add NAME --file FILE), or --no-auth to let everybody in"
        )
    keys = read_keys(options.keys) if options.keys is not None else Keys()
    models = read_models(options.models)
    if not models.translators and (unused := [word for word in options.overrides if word.startswith("search.")]):
        raise UsageError(f"{unused[0]} has no effect without a translator; leave it out")
    listener = bind(options.host, options.port)
    with contextlib.closing(listener):
        asyncio.run(_Server(options, keys, models, listener, log or sys.stderr).run(on_ready))


def is_loopback_address(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def bind(host: str, port: int) -> socket.socket:
    """A listening socket."""
    try:
        kind, *_, address = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        # With its protocol named, asyncio sends at once what it has (TCP_NODELAY); 40 ms later otherwise.
        listener = socket.socket(kind, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    except (OSError, UnicodeError) as error:
        raise UsageError(f"--host {host} is not an address of this machine: {error}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(1024)
    except (OSError, OverflowError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or str(error)
        other = "--host" if getattr(error, "errno", None) == errno.EADDRNOTAVAIL else "--port"
        raise UsageError(f"cannot listen on {host}:{port}: {reason}; choose another with {other}") from error
    return listener


class _Server:
    """One run of a server."""

    def __init__(
        self, options: ServerOptions, keys: Keys, models: ServedModels, listener: socket.socket, log: TextIO
    ) -> None:
        self._options, self._listener, self._notify = options, listener, ServerLog(log)
        self._metrics = Metrics()
        settings, is_loopback = options.settings, is_loopback_address(options.host)
        rate = settings.requests_per_minute
        if rate is None:
            rate = 0 if is_loopback else DEFAULT_RATE
        self._pool = Pool(
            worker_spec(models, options),
            jobs=options.jobs or processors(),
            settings=settings,
            metrics=self._metrics,
            notify=self._notify,
        )
        hidden = tuple(
            (str(path), model.name)
            for model in models.models
            for path in (_opened(model.path), model.path.resolve(), model.path)
        )
        self._state = ServerState(settings, keys, Rates(rate), self._metrics, self._notify, hidden)
        self._service = Service(
            self._state,
            models,
            self._pool,
            FileStore(most_bytes=settings.stored_bytes, seconds=settings.stored_seconds),
            read_detector(models),
            read_memories(options.memories, models),
            runs=runs_of(options, models),
        )
        # An address that others can reach has names that are not known here, and needs a key instead.
        known = LOOPBACK_NAMES | {options.host.lower(), *map(str.lower, settings.hosts)}
        names = known if is_loopback or settings.hosts else frozenset({"*"})
        door = Door(names, frozenset(settings.origins), settings.head_bytes)
        self._app = make_app(self._service, door)
        self._stop, self._loading = asyncio.Event(), asyncio.Lock()
        self._reloads: set[asyncio.Task[None]] = set()

    async def run(self, on_ready: Callable[[str, ServedModels], None]) -> None:
        """Start, serve, end."""
        loop = asyncio.get_running_loop()
        self._notify.capture(loop)
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_stop, number)
        loop.add_signal_handler(signal.SIGHUP, self._on_reload)
        limits = self._options.settings
        config = uvicorn.Config(
            self._app,
            http=_protocol(limits),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=max(1, round(limits.keep_alive_seconds)),
            timeout_graceful_shutdown=1,
            h11_max_incomplete_event_size=2 * limits.head_bytes,
            proxy_headers=False,
        )
        server = _Uvicorn(config)
        serving = loop.create_task(server.serve(sockets=[self._listener]))
        try:
            async with self._loading:
                self._notify("starting", message="opening models; the first start also compiles, for about a minute")
                await self._pool.start()
            host, port = self._listener.getsockname()[:2]
            if host in ("0.0.0.0", "::"):  # every address of this machine
                host = "127.0.0.1"
            shown = f"[{host}]" if ":" in host else host
            address = f"http://{shown}:{port}"
            self._notify("ready", address=address, models=[model.name for model in self._service.models.models])
            if self._options.engine == "ctranslate2":
                own = "lines with tags, terms, prefixes or alignments are translated by Seqloom's own search"
                self._notify("notice", message=f"CTranslate2 translates plain lines; {own}")
            on_ready(address, self._service.models)
            await self._stop.wait()
            await self._drain()
        finally:
            for task in self._reloads:
                task.cancel()
            server.should_exit = True
            await asyncio.wait([serving])
            await self._pool.close()
        self._notify("stopped")

    def _on_stop(self, number: int) -> None:
        if self._stop.is_set():  # the second time: at once
            os._exit(128 + number)
        self._state.is_draining = True
        self._stop.set()

    async def _drain(self) -> None:
        """Wait until accepted requests are answered."""
        limit = asyncio.get_running_loop().time() + self._options.settings.grace_seconds
        self._notify("draining", requests=self._state.running)
        while self._state.running and asyncio.get_running_loop().time() < limit:
            await asyncio.sleep(0.02)

    def _on_reload(self) -> None:
        task = asyncio.get_running_loop().create_task(self._reload())
        self._reloads.add(task)
        task.add_done_callback(self._reloads.discard)

    async def _reload(self) -> None:
        """Read the keys and load the models again. If the models cannot be loaded, the old ones serve as before."""
        options = self._options
        async with self._loading:
            try:
                if options.keys is not None:
                    self._state.keys = read_keys(options.keys)
                models = await asyncio.to_thread(read_models, options.models)
                if missing := [pair for pair in self._service.models.pairs if pair not in models.pairs]:
                    raise UsageError(f"the new models do not translate from {missing[0][0]} to {missing[0][1]}")
                detect = await asyncio.to_thread(read_detector, models)
                memories = await asyncio.to_thread(read_memories, options.memories, models)
                await self._pool.reload(worker_spec(models, options))
            except Exception as error:  # whatever is wrong with a file, the server keeps serving
                reason = {"message": str(error)} if isinstance(error, SeqloomError) else {"where": places_of(error)}
                self._metrics.reloads.labels("failed").inc()
                self._notify("reload_failed", kind=type(error).__name__, **reason)
                return
            self._service.models, self._service.detect, self._service.memories = models, detect, memories
            self._metrics.reloads.labels("done").inc()
            self._notify("reloaded", models=[model.name for model in models.models])


def read_detector(models: ServedModels) -> Callable[[str], list[Guess]]:
    """What detects the languages of the translators; it detects none if there is no translator."""
    tables: dict[str, list[LanguageTable]] = {}
    for model in models.translators:
        for language, table in load_detection_tables(find_model(model.path)).items():
            if (code := code_of(language)) in models.languages:
                tables.setdefault(code, []).append(table)
        for chosen in (model.source, model.target):  # of a model that knows several
            if chosen is not None and chosen not in tables:
                tables[chosen] = [script_table(chosen)]
    if not tables:
        return lambda _text: []
    return Detector({code: join_tables(some) for code, some in sorted(tables.items())}).detect


def read_memories(paths: Sequence[Path], models: ServedModels) -> dict[tuple[str, str], TranslationMemory]:
    """The units of memories for each pair of languages; a file that has none for any pair is refused."""
    if not paths:
        return {}
    units: dict[tuple[str, str], list[MemoryUnit]] = {}
    for path in paths:
        failures: list[DataError] = []
        for pair in models.pairs:
            try:
                units.setdefault(pair, []).extend(read_units(path, languages=pair))
            except DataError as error:
                failures.append(error)
        if failures and len(failures) == len(models.pairs):
            raise failures[0]
    return {pair: TranslationMemory(some) for pair, some in units.items() if some}


def runs_of(options: ServerOptions, models: ServedModels) -> tuple[Path, ...]:
    """The folders with training runs."""
    if options.runs is None:
        return folders_of_runs([model.path for model in models.models])
    if not options.runs.is_dir():
        raise UsageError(f"--runs {options.runs} is not a folder; name the one that holds the folders of the runs")
    return (options.runs,)


def worker_spec(models: ServedModels, options: ServerOptions) -> WorkerSpec:
    """What the workers of these models are started with."""
    served = tuple(
        WorkerModel(model.name, str(_opened(model.path)), model.purpose, model.languages) for model in models.models
    )
    return WorkerSpec(served, options.overrides, options.engine)


def _opened(path: Path) -> Path:
    """What workers open: an archive is unpacked and a published folder converted once, not in each of them."""
    return path if is_arpa(path) else find_model(path)


class _Uvicorn(uvicorn.Server):
    """Without its own signal handlers."""

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        """Signals are handled by the server itself."""
        yield


class JoinedWrites:
    """A transport that sends the head of an answer with its body: a packet for each would wake the client twice."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> None:
        """Send these bytes with the next, or when the loop turns."""
        if not data:
            return
        self._parts.append(data)
        if len(self._parts) == 1:
            self._loop.call_soon(self._flush)
        else:
            self._flush()

    def close(self) -> None:
        """Send what is left, and close."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._parts:
            data, self._parts = b"".join(self._parts), []
            self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        """Everything else is that of the transport."""
        return getattr(self._transport, name)


def _protocol(limits: ServeConfig) -> type[H11Protocol]:
    """The HTTP parser with limits of time and size, whose refusals are JSON."""

    class Protocol(H11Protocol):
        _head_timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(JoinedWrites(transport, self.loop))  # type: ignore[arg-type]
            if len(self.connections) > limits.connections:
                transport.abort()
                return
            self._await_head()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_waiting()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self._head_timer is None and (self.cycle is None or self.cycle.response_complete):
                self._await_head()
            super().data_received(data)
            if self.conn.their_state is not h11.IDLE:
                self._stop_waiting()

        def _await_head(self) -> None:
            self._head_timer = self.loop.call_later(limits.head_seconds, self._too_slow)

        def _stop_waiting(self) -> None:
            if self._head_timer is not None:
                self._head_timer.cancel()
                self._head_timer = None

        def _too_slow(self) -> None:
            if not self.transport.is_closing() and self.conn.our_state is h11.IDLE:
                self._refuse(Refusal(408, f"the head of the request did not arrive within {limits.head_seconds:g} s"))

        def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - the signature is the library's
            error = sys.exc_info()[1]
            if getattr(error, "error_status_hint", 400) == 431:
                self._refuse(Refusal(431, f"the head of the request has more than {limits.head_bytes:,} bytes"))
            else:
                self._refuse(Refusal(400, "the request is not valid HTTP"))

        def _refuse(self, refusal: Refusal) -> None:
            if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
                self.transport.close()  # an answer is under way already
                return
            response = dialect_of("/").refusal(refusal)
            body = bytes(response.body)
            headers = [
                (b"content-type", b"application/json"),
                (b"content-length", str(len(body)).encode()),
                (b"connection", b"close"),
            ]
            status = h11.Response(status_code=response.status_code, headers=headers, reason=b"")
            for event in (status, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
            self.transport.close()

    return Protocol
