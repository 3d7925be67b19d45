"""One above every limit: the status and the sentence that names it, by raw sockets where a client would not do it."""

import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from live_server import Answer, RunningServer, TinyModels, running_server

LIMITS = {
    "texts": 4,
    "characters": 100,
    "alternatives": 3,
    "depth": 6,
    "body_bytes": 4_000,
    "file_bytes": 8_000,
    "line_characters": 50,
    "head_bytes": 2_000,
    "head_seconds": 1.0,
    "body_seconds": 1.0,
    "keep_alive_seconds": 1.0,
    "connections": 40,
    "requests_per_minute": 0,
    "hosts": "[Translate.Example]",
    "proxies": "[127.0.0.1]",
}
QUESTION = {"q": "a dog", "source": "en", "target": "de"}


@pytest.fixture(scope="module")
def limited(tiny_models: TinyModels, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    words = [f"en-de={tiny_models.english_german}", *(f"serve.{name}={value}" for name, value in LIMITS.items())]
    with running_server(words, tmp_path_factory.mktemp("limited")) as server:
        yield server


def exchange(server: RunningServer, *parts: bytes, pause: float = 0.0) -> Answer | None:
    """Send the parts of a request, and read the answer until the connection is closed; None if there is no answer."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        received = bytearray()
        with suppress(ConnectionError):  # it may have answered before it has everything
            for part in parts:
                connection.sendall(part)
                time.sleep(pause)
        with suppress(ConnectionError):
            while data := connection.recv(65536):
                received += data
                head, found, body = bytes(received).partition(b"\r\n\r\n")
                length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                if found and length and len(body) >= int(length[0].split(b":")[1]):
                    break
    if not received:
        return None
    head, _, body = bytes(received).partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
    return Answer(int(lines[0].split()[1]), body, headers)


def post(body: bytes, *headers: str, path: str = "/translate", host: str = "127.0.0.1") -> bytes:
    lines = [f"POST {path} HTTP/1.1", f"Host: {host}", "Content-Type: application/json", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({**QUESTION, "q": ["a"] * 5}, "limit of 4"),
        ({**QUESTION, "q": "a" * 101}, "limit is 100"),
        ({**QUESTION, "q": [[[[[["a"]]]]]]}, "deeper than 6"),
        ({**QUESTION, "q": 7}, "string"),
        ({**QUESTION, "q": [None]}, "string"),
        ({**QUESTION, "source": 5}, "must be a string"),
        ({**QUESTION, "target": "xx"}, "not supported"),
        ([QUESTION], "JSON object"),
        (b"{", "not valid JSON"),
        (b"\xff\xfe", "not UTF-8"),
        (b'{"q": "\\ud800", "source": "en", "target": "de"}', "surrogate"),
        (b'{"q": NaN}', "not valid JSON"),
        (b"[" * 100_000, "4,000 bytes"),
        (b"[" * 3_000, "deeper than 6"),
    ],
)
def test_a_request_above_a_limit_is_a_400_that_names_it(limited: RunningServer, data: Any, words: str) -> None:
    answer = limited.call("/translate", data, headers={"Content-Type": "application/json"})
    assert answer.status == 400
    assert words in answer.json["error"]


def test_a_file_with_a_line_above_the_limit_is_refused(limited: RunningServer) -> None:
    def upload(text: str) -> Answer:
        parts = [("source", "en"), ("target", "de"), ('file"; filename="a.txt', text)]
        body = "".join(
            f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{text}\r\n' for name, text in parts
        )
        headers = {"Content-Type": "multipart/form-data; boundary=x"}
        return limited.call("/translate_file", f"{body}--x--\r\n".encode(), headers=headers)

    assert upload("a dog runs.\n" * 40).status == 200  # a paragraph of many lines
    answer = upload("a dog\n\n" + "runs " * 20)
    assert answer.status == 400
    assert "99 characters; the limit is 50" in answer.json["error"]


def test_at_the_limits_everything_is_answered(limited: RunningServer) -> None:
    answer = limited.call("/translate", {**QUESTION, "q": ["a dog " * 16] * 4, "alternatives": 3})
    assert answer.status == 200
    assert len(answer.json["translatedText"]) == 4


def test_a_body_is_counted_while_it_arrives(limited: RunningServer) -> None:
    chunk = b"400\r\n" + b" " * 1024 + b"\r\n"
    answer = exchange(limited, post(b"", "Transfer-Encoding: chunked"), chunk * 8, b"0\r\n\r\n")
    assert answer is not None
    assert answer.status == 400
    assert b"4,000 bytes" in answer.body
    declared = exchange(limited, post(b"x", "Content-Length: 99999999999999999999999"))
    assert declared is not None
    assert declared.status == 400


def test_slow_and_half_sent_requests_end(limited: RunningServer) -> None:
    with ThreadPoolExecutor(3) as pool:
        head = pool.submit(exchange, limited, b"POST /translate HTTP/1.1\r\nHost: 127", pause=1.5)
        body = pool.submit(exchange, limited, post(b'{"q', "Content-Length: 100"), pause=1.5)
        drops = pool.submit(exchange, limited, *([b"GET /health HTTP/1.1\r\n"] + [b"a: b\r\n"] * 4), pause=0.5)
    for answer, words in ((head.result(), b"head"), (body.result(), b"body"), (drops.result(), b"head")):
        assert answer is not None
        assert answer.status == 408
        assert words in answer.body
        assert b"1 s" in answer.body


def test_an_idle_connection_is_closed(limited: RunningServer) -> None:
    with socket.create_connection(("127.0.0.1", limited.port), timeout=20) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        begin, received = time.monotonic(), b""
        while data := connection.recv(65536):
            received += data
        assert received.startswith(b"HTTP/1.1 200")
        assert 0.5 < time.monotonic() - begin < 10


def test_heads_above_the_limit_get_431(limited: RunningServer) -> None:
    query = exchange(limited, b"GET /translate?q=" + b"a" * 2_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    header = exchange(limited, post(b"", "X-Long: " + "a" * 2_000, "Content-Length: 0"))
    huge = exchange(limited, b"GET /translate?q=" + b"a" * 300_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    for answer in (query, header, huge):
        assert answer is not None
        assert answer.status == 431
        assert "error" in answer.json


def test_ten_thousand_ranges_are_not_read(server: RunningServer) -> None:
    ranges = ",".join(f"{at}-{at}" for at in range(10_000))
    answer = server.call("/health", headers={"Range": f"bytes={ranges}"})
    assert answer.status == 431
    few = server.call("/health", headers={"Range": "bytes=0-1,3-4"})
    assert (few.status, few.json) == (200, {"status": "ok"})


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "localhost@evil", "127.0.0.1, evil"])
def test_a_foreign_host_is_refused(server: RunningServer, host: str) -> None:
    answer = exchange(server, post(b"{}", "Content-Length: 2", host=host))
    assert answer is not None
    assert answer.status in (400, 421)


def test_a_name_that_is_allowed_is_that_of_links_to_files(limited: RunningServer) -> None:
    part = b'--b\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n%s\r\n'
    fields = [(b"file", b'; filename="a.txt"', b"a dog"), (b"source", b"", b"en"), (b"target", b"", b"de")]
    body = b"".join(part % each for each in fields) + b"--b--\r\n"
    headers = {"Host": "translate.example:443", "Content-Type": "multipart/form-data; boundary=b"}
    plain = limited.call("/translate_file", body, headers=headers)
    assert plain.json["translatedFileUrl"].startswith("http://translate.example:443/download_file/")
    forwarded = {**headers, "X-Forwarded-Proto": "https", "X-Forwarded-Host": "translate.example"}
    answer = limited.call("/translate_file", body, headers=forwarded)
    assert answer.json["translatedFileUrl"].startswith("https://translate.example/download_file/")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_pages_of_other_origins_are_refused(server: RunningServer) -> None:
    foreign = server.call("/translate", QUESTION, headers={"Origin": "https://evil.example"})
    assert foreign.status == 403
    assert "access-control-allow-origin" not in foreign.headers
    assert server.call("/translate", QUESTION, headers={"Origin": "null"}).status == 403
    assert server.call("/translate", QUESTION, headers={"Sec-Fetch-Site": "cross-site"}).status == 403
    own = server.call("/translate", QUESTION, headers={"Origin": server.address})
    assert own.status == 200
    preflight = server.call("/translate", method="OPTIONS", headers={"Origin": "https://evil.example"})
    assert preflight.status == 403


def test_what_is_not_http_is_refused(limited: RunningServer) -> None:
    for data in (b"\x16\x03\x01\x02\x00\x01\x00", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"):
        answer = exchange(limited, data)
        assert answer is None or answer.status == 400


def test_more_connections_than_allowed_are_closed_and_others_served(limited: RunningServer) -> None:
    held = [socket.create_connection(("127.0.0.1", limited.port), timeout=20) for _ in range(60)]
    try:
        time.sleep(0.2)
        closed = 0
        for each in held:
            each.setblocking(False)
            try:
                closed += each.recv(1) == b""
            except BlockingIOError:
                pass
            except ConnectionError:
                closed += 1
        assert closed >= 60 - 40
    finally:
        for each in held:
            each.close()
    time.sleep(0.2)
    assert limited.call("/translate", QUESTION).status == 200


def test_a_burst_waits_and_nobody_is_refused(server: RunningServer) -> None:
    def one(at: int) -> Answer:
        return server.call("/translate", {**QUESTION, "q": f"the {at} old men read a book"})

    def twenty(at: int) -> Answer:
        return server.call("/translate", {**QUESTION, "q": [f"the {at} dogs read {n} books" for n in range(20)]})

    with ThreadPoolExecutor(64) as pool:
        answers = list(pool.map(one, range(64)))
        answers += pool.map(twenty, range(8))
    assert {answer.status for answer in answers} == {200}
    assert answers[5].json == one(5).json
    assert answers[66].json == twenty(2).json


def test_what_cannot_be_answered_in_time_is_refused_with_a_time_to_retry(
    tiny_models: TinyModels, tmp_path: Any
) -> None:
    words = [f"en-de={tiny_models.english_german}", "serve.request_seconds=2", "serve.queue=2", "search.beam=60"]
    long = {**QUESTION, "q": ["the old man reads a book. " * 150] * 20}
    with running_server(words, tmp_path) as server, ThreadPoolExecutor(24) as pool:
        begin = time.monotonic()
        # The first is cancelled after two seconds, and then so many others at once that most have never begun.
        answers = list(pool.map(lambda _: server.call("/translate", long), range(24)))
        assert time.monotonic() - begin < 30
        statuses = [answer.status for answer in answers]
        assert set(statuses) <= {503, 504}
        assert 503 in statuses
        for answer in answers:
            if answer.status == 503:
                assert int(answer.headers["retry-after"]) >= 1
                assert "retry" in json.loads(answer.body)["error"]
        # Others are served as soon as nobody waits for these any more.
        assert server.call("/translate", QUESTION).status == 200
