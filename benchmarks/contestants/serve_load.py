"""Clients of a server, all in one process. Commands: `load SECONDS` with all clients at once; `alone N`: N lines, one
after the other.

Each client has a connection that stays open, and sends the next line when it has the answer to the last. Imports
nothing but the standard library, so that the load takes little from the machine that is measured.
"""

import argparse
import asyncio
import json
import socket
import time
from pathlib import Path

from serving import Line


class Client(asyncio.Protocol):
    """One connection: sends requests, collects answers."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the signature is the library's
        self.transport = None
        if self._answer is not None and not self._answer.done():
            self._answer.set_result((0, b""))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self._buffer[:end]).lower()
        at = head.index(b"content-length:") + 15
        length = int(head[at:].split(b"\r\n", 1)[0])
        if len(self._buffer) < end + 4 + length:
            return
        body = bytes(self._buffer[end + 4 : end + 4 + length])
        del self._buffer[: end + 4 + length]
        assert self._answer is not None
        self._answer.set_result((int(head[9:12]), body))

    def ask(self, request: bytes) -> "asyncio.Future[tuple[int, bytes]]":
        """Send a request; its status and body."""
        self._answer = asyncio.get_running_loop().create_future()
        if self.transport is None:
            self._answer.set_result((0, b""))
        else:
            self.transport.write(request)
        return self._answer


class Load:
    """Requests with their expected answers, and what came back."""

    def __init__(self, port: int, requests: list[bytes], key: str) -> None:
        self.port, self.requests, self.key = port, requests, key
        self.answers: dict[int, object] = {}
        self.seconds: list[float] = []
        self.failures = self.differences = 0

    async def connect(self) -> Client:
        _, client = await asyncio.get_running_loop().create_connection(Client, "127.0.0.1", self.port)
        return client

    async def ask(self, client: Client, at: int) -> Client:
        """One request; what it answers must be what it answered before."""
        begin = time.perf_counter()
        status, body = await client.ask(self.requests[at])
        self.seconds.append(time.perf_counter() - begin)
        if status != 200:
            self.failures += 1
            return await self.connect() if status == 0 else client
        answer = json.loads(body)[self.key]
        if self.answers.setdefault(at, answer) != answer:
            self.differences += 1
        return client

    async def run(self, clients: int, seconds: float) -> float:
        """All clients for so long; the seconds that it took."""
        begin = time.perf_counter()
        end = begin + seconds
        numbers = iter(range(10**9))

        async def one() -> None:
            client = await self.connect()
            while time.perf_counter() < end:
                client = await self.ask(client, next(numbers) % len(self.requests))
            if client.transport is not None:
                client.transport.close()

        await asyncio.gather(*(one() for _ in range(clients)))
        return time.perf_counter() - begin

    def alone(self, count: int) -> None:
        """Lines one after the other on one connection, which waits for each answer and does nothing else."""
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for number in range(count):
                begin = time.perf_counter()
                connection.sendall(self.requests[number % len(self.requests)])
                received, length = b"", None
                while length is None or len(received) < length:
                    received += connection.recv(65536)
                    head, is_whole, _ = received.partition(b"\r\n\r\n")
                    if is_whole:
                        length = len(head) + 4 + int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
                self.seconds.append(time.perf_counter() - begin)
                self.failures += not received.startswith(b"HTTP/1.1 200")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--bodies", type=Path, required=True, help="JSON: the body of each request")
    parser.add_argument("--key", required=True, help="what of an answer is the translation")
    parser.add_argument("--clients", type=int, default=64)
    given = parser.parse_args()
    line = Line()
    requests = []
    for body in json.loads(given.bodies.read_text(encoding="utf-8")):
        data = json.dumps(body).encode()
        head = f"POST /translate HTTP/1.1\r\nHost: 127.0.0.1:{given.port}\r\nContent-Type: application/json\r\n"
        requests.append(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
    answers: dict[int, object] = {}
    line.say({"requests": len(requests)})
    for name, count in line.commands():
        load = Load(given.port, requests, given.key)
        load.answers = answers
        if name == "answers":
            line.say({"answers": sorted(answers.items())})
            continue
        begin = time.perf_counter()
        if name == "load":
            asyncio.run(load.run(given.clients, count))
        else:
            load.alone(count)
        line.say(
            {
                "seconds": time.perf_counter() - begin,
                "times": sorted(load.seconds),
                "failures": load.failures,
                "differences": load.differences,
            }
        )


if __name__ == "__main__":
    main()
