"""Faults of a server: signals, workers that die or hang, clients that leave, models that are damaged.

A worker that is stopped (SIGSTOP) keeps what it has, so a test decides which requests are computed and which wait.
"""

import json
import os
import shutil
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import seqloom
from live_server import Answer, RunningServer, TinyModels, running_server, wait_until
from seqloom.serve.keys import add_key
from seqloom.serve.worker import LENGTH, _Worker, framed
from tiny_runs import TINY

SHORT = "the old man reads a book."
LONG = ("the old man reads a book and the dog runs in the park while the woman sings " * 65)[:4_900]
"""One line of as many characters as a text may have; four of them keep a worker busy for a second and more."""

LONG_TEXTS = 4
"""Of which a worker takes all at once, and not one more."""


@dataclass(frozen=True)
class KeyedServer:
    """A server that needs a key, and the key."""

    server: RunningServer
    key: str

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}

    def post(self, path: str, data: Any) -> Answer:
        return self.server.call(path, data, headers=self.headers)

    def translate(self, text: str | list[str] = SHORT) -> Answer:
        return self.post("/translate", {"q": text, "source": "en", "target": "de"})

    def send(self, path: str, data: Any) -> socket.socket:
        """Send a request and return its connection, so that the client can leave before the answer."""
        body = json.dumps(data).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        connection = socket.create_connection(("127.0.0.1", self.server.port), timeout=60)
        connection.sendall(head.encode() + body)
        return connection


def start(words: list[str], folder: Path, *, jobs: int) -> Any:
    folder.mkdir(parents=True, exist_ok=True)
    key = add_key(folder / "keys", "tester")
    return key, running_server([*words, "--keys", str(folder / "keys")], folder, jobs=jobs)


@pytest.fixture(scope="module")
def served(tiny_models: TinyModels, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyedServer]:
    """A server with two workers; tests leave it as they found it."""
    words = [f"en-de={tiny_models.english_german}", f"lm={tiny_models.language_model}"]
    key, running = start(words, tmp_path_factory.mktemp("faults"), jobs=2)
    with running as server:
        yield KeyedServer(server, key)


# --- processes --------------------------------------------------------------------------------------------------------


def children_of(pid: int) -> list[int]:
    """The processes that a process has started and that have not ended, the oldest first."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except OSError:  # ended in the meantime
            continue
        if int(parent) == pid and state != "Z":
            found.append(int(stat.parent.name))
    return sorted(found)


def workers_of(server: RunningServer) -> list[int]:
    """Those of its children that compute; another one tracks the resources of multiprocessing."""
    pids = children_of(server.process.pid)
    return [pid for pid in pids if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def are_gone(pids: list[int]) -> bool:
    states = []
    for pid in pids:
        try:
            states.append(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0])
        except OSError:
            continue
    return all(state in "ZX" for state in states)


def sockets_of(pid: int) -> set[str]:
    """The sockets that a process has open, by their inodes."""
    names = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            names.append(str(link.readlink()))
        except OSError:
            continue
    return {name[8:-1] for name in names if name.startswith("socket:[")}


def listening_ports(pid: int) -> set[int]:
    """The ports on which a process accepts connections or datagrams."""
    own, found = sockets_of(pid), set()
    for protocol in ("tcp", "tcp6", "udp", "udp6"):
        table = Path(f"/proc/{pid}/net/{protocol}")
        for line in table.read_text().splitlines()[1:] if table.exists() else ():
            values = line.split()
            if values[9] in own and (values[3] == "0A" or protocol.startswith("udp")):
                found.add(int(values[1].rpartition(":")[2], 16))
    return found


class Stopped:
    """Processes that are stopped; at the end of the block, those that are left run again."""

    def __init__(self, *pids: int) -> None:
        self._pids = set(pids)

    def __enter__(self) -> "Stopped":
        for pid in self._pids:
            os.kill(pid, signal.SIGSTOP)
        return self

    def resume(self, pid: int) -> None:
        self._pids.discard(pid)
        os.kill(pid, signal.SIGCONT)

    def __exit__(self, *_: object) -> None:
        for pid in set(self._pids):
            self.resume(pid)


# --- workers ----------------------------------------------------------------------------------------------------------


def test_only_the_port_of_http_is_open(served: KeyedServer) -> None:
    workers = workers_of(served.server)
    assert len(workers) == 2
    assert listening_ports(served.server.process.pid) == {served.server.port}
    assert [listening_ports(pid) for pid in children_of(served.server.process.pid)] == [set()] * 3


def test_a_killed_worker_costs_its_batch_a_500_and_nobody_else_anything(served: KeyedServer) -> None:
    server = served.server
    before, restarts = served.translate().json, server.metric("seqloom_worker_restarts_total")
    victim, other = workers_of(server)
    with ThreadPoolExecutor(8) as clients, Stopped(victim, other) as stopped:
        shared = clients.submit(served.translate, [SHORT] * 8)
        wait_until(lambda: server.metric("seqloom_running_texts") == 8)  # four each
        lost: list[Future[Answer]] = [
            clients.submit(served.translate, LONG),
            clients.submit(served.post, "/translate?langpair=en%7Cde", {"q": LONG}),
            clients.submit(served.post, "/v2/translate", {"text": [LONG], "source_lang": "EN", "target_lang": "DE"}),
            clients.submit(served.post, "/translator/translate", [{"src": LONG}]),
        ]
        wait_until(lambda: server.metric("seqloom_waiting_requests") == LONG_TEXTS)
        stopped.resume(victim)  # answers its lines, and takes all that wait
        wait_until(lambda: server.metric("seqloom_waiting_requests") == 0)
        os.kill(victim, signal.SIGKILL)
        libre, apertium, deepl, opennmt = (each.result() for each in lost)
        assert [each.status for each in (libre, apertium, deepl, opennmt)] == [500] * 4
        assert libre.json.keys() == {"error"}
        assert apertium.json.keys() == {"status", "code", "message", "explanation"}
        assert deepl.json.keys() == {"message"}
        assert opennmt.json.keys() == {"status", "error"}
        during = clients.submit(served.translate)  # waits for the other worker, or for the new one
        stopped.resume(other)
        assert during.result().json == before
        assert shared.result().json == {"translatedText": [before["translatedText"]] * 8}
    wait_until(lambda: server.metric("seqloom_worker_restarts_total") == restarts + 1)
    wait_until(lambda: server.metric("seqloom_ready_workers") == 2, seconds=120)
    assert other in workers_of(server)
    assert victim not in workers_of(server)
    assert server.call("/ready").status == 200
    assert [served.translate().json for _ in range(3)] == [before] * 3


def test_an_error_of_ours_fails_one_request_and_leaves_its_neighbours_and_the_worker() -> None:
    def action(groups: Any, *_: Any) -> list[list[Any]]:
        return [[{"a": "b"}[text] for text in group] for group in groups]

    ours, theirs = socket.socketpair()
    with ours, theirs:
        thread = threading.Thread(target=_Worker(theirs, {"m": {"do": action}}).run)
        thread.start()
        stream = ours.makefile("rb")
        for number in range(2):
            groups = [["a"], ["secret"], ["a", "a"]]
            ours.sendall(framed({"batch": number, "do": "do", "model": "m", "options": {}, "groups": groups}))
            (length,) = LENGTH.unpack(stream.read(LENGTH.size))
            data = stream.read(length)
            good, bad, other = json.loads(data)["groups"]
            assert (good, other) == ({"results": ["b"]}, {"results": ["b", "b"]})
            assert bad["failed"] == "KeyError"
            assert b"secret" not in data
        ours.shutdown(socket.SHUT_RDWR)
        thread.join()


# --- clients ----------------------------------------------------------------------------------------------------------


def test_a_client_that_leaves_frees_its_rows(served: KeyedServer) -> None:
    server = served.server
    # Twice as many as the workers take at once, so that some of it waits in the queue when it leaves.
    question = {"q": [LONG] * 4 * LONG_TEXTS, "source": "en", "target": "de"}
    texts, dropped = server.metric("seqloom_texts_total"), server.metric("seqloom_dropped_rows_total")
    cancelled = server.metric("seqloom_cancelled_requests_total")
    for attempt in range(1, 6):  # on a busy machine the search may not have begun when the client leaves
        connection = served.send("/translate", question)
        wait_until(lambda: server.metric("seqloom_running_texts") > 0)
        time.sleep(0.3 * attempt)
        connection.close()
        wait_until(lambda: server.metric("seqloom_running_texts") == 0, seconds=10)
        assert server.metric("seqloom_cancelled_requests_total") == cancelled + attempt
        assert server.metric("seqloom_waiting_requests") == 0
        assert server.metric("seqloom_texts_total") < texts + attempt * 4 * LONG_TEXTS  # some were not computed
        if server.metric("seqloom_dropped_rows_total") > dropped:
            break
    else:
        pytest.fail("no rows were dropped")
    assert served.translate().status == 200


def test_a_client_that_leaves_while_it_waits_is_never_computed(served: KeyedServer) -> None:
    server = served.server
    texts, cancelled = server.metric("seqloom_texts_total"), server.metric("seqloom_cancelled_requests_total")
    with ThreadPoolExecutor(2) as clients, Stopped(*workers_of(server)):
        answered = [clients.submit(served.translate) for _ in range(2)]
        wait_until(lambda: server.metric("seqloom_running_texts") == 2)
        connection = served.send("/translate", {"q": [SHORT] * 5, "source": "en", "target": "de"})
        wait_until(lambda: server.metric("seqloom_waiting_requests") == 1)
        connection.close()
        wait_until(lambda: server.metric("seqloom_waiting_requests") == 0)
        assert server.metric("seqloom_cancelled_requests_total") == cancelled + 1
    assert [each.result().status for each in answered] == [200, 200]
    assert server.metric("seqloom_texts_total") == texts + 2


def test_a_client_that_leaves_a_stream_ends_it(served: KeyedServer) -> None:
    server = served.server
    cancelled, texts = server.metric("seqloom_cancelled_requests_total"), server.metric("seqloom_texts_total")
    question = {"model": "lm", "prompt": ["the old"] * 64, "max_tokens": 512, "temperature": 1, "stream": True}
    with served.send("/v1/completions", question) as connection:
        received = b""
        while b"data: {" not in received:
            received += connection.recv(1024)
    wait_until(lambda: server.metric("seqloom_cancelled_requests_total") == cancelled + 1)
    wait_until(lambda: server.metric("seqloom_running_texts") == 0)
    assert server.metric("seqloom_texts_total") < texts + 64
    last = server.events()[-1]
    assert (last["event"], last["route"]) == ("request", "/v1/completions")


# --- logs -------------------------------------------------------------------------------------------------------------


def test_the_log_is_json_without_texts_and_keys(served: KeyedServer) -> None:
    server, wrong = served.server, "sl-wrongsecretkey"
    text = "hushhush"
    for key in (served.key, wrong):
        query = f"q={text}&source=en&target=de&api_key={key}"
        assert server.call(f"/translate?{query}", b"").status == (200 if key == served.key else 403)
        server.call(f"/translate?langpair=en%7Cde&q={text}&key={key}")
        server.call("/v2/translate", {"text": [text], "target_lang": "DE", "auth_key": key})
        server.call(f"/{text}/{key}", headers={"Authorization": f"Bearer {key}"})
    for wrong_key in (7, [served.key], {"a": text}, True, ["a", "b"]):  # a field of JSON may hold anything
        named = {"q": text, "source": "en", "target": "de", "api_key": wrong_key, "auth_key": wrong_key}
        assert server.call("/translate", named).status in (400, 403)
        assert server.call("/translate", {"langpair": "en|de", "q": text, "key": wrong_key}).status in (400, 401, 403)
        assert server.call("/v2/translate", {**named, "text": [text], "target_lang": "DE"}).status in (400, 403)
    assert served.post("/translate", f'{{"q": "{text}'.encode()).status == 400
    assert served.post("/translate", {"q": text, "source": "en", "target": text}).status == 400
    assert served.post("/translate", {"q": text + "\ud800", "source": "en", "target": "de"}).status == 400
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(f"{text} {served.key}\r\n\r\n".encode())  # not HTTP, which the library reports
        assert b"400" in connection.recv(4096).partition(b"\r\n")[0]
    events = [json.loads(line) for line in server.log.read_text(encoding="utf-8").splitlines()]
    assert {"ready", "request", "library_warning"} <= {event["event"] for event in events}
    written = server.log.read_text(encoding="utf-8")
    for secret in (text, served.key, wrong, "old man", "Traceback"):
        assert secret not in written


# --- signals ----------------------------------------------------------------------------------------------------------


@dataclass
class Load:
    """Clients that send one request after the other until they are stopped, and what came of each."""

    served: KeyedServer
    outcomes: list[tuple[float, Answer | OSError]] = field(default_factory=list)
    """When each request was sent, and its answer; an error if the connection was refused or lost."""
    is_over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.is_over.is_set():
            begun = time.monotonic()
            try:
                self.outcomes.append((begun, self.served.translate()))
            except OSError as error:
                self.outcomes.append((begun, error))
                time.sleep(0.05)

    def start(self, clients: ThreadPoolExecutor, count: int) -> list[Future[None]]:
        return [clients.submit(self.run) for _ in range(count)]


def test_sigterm_under_load_loses_no_accepted_request(tiny_models: TinyModels, tmp_path: Path) -> None:
    words = [f"en-de={tiny_models.english_german}", "serve.grace_seconds=120"]
    key, running = start(words, tmp_path, jobs=2)
    with running as server, ThreadPoolExecutor(8) as clients:
        served = KeyedServer(server, key)
        processes = [server.process.pid, *children_of(server.process.pid)]
        expected, load = served.translate().json, Load(served)
        sending = load.start(clients, 4)
        accepted = [clients.submit(served.translate, [LONG] * 2 * LONG_TEXTS) for _ in range(2)]
        wait_until(lambda: server.metric("seqloom_running_texts") > 0)
        time.sleep(1)
        signalled = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: server.call("/ready").status == 503)  # while it still answers
        refused = served.translate()
        assert refused.status == 503
        assert int(refused.headers["retry-after"]) > 0
        assert server.process.wait(120) == 0
        load.is_over.set()
        for client in sending:
            client.result()
        for each in accepted:
            assert len(each.result().json["translatedText"]) == 2 * LONG_TEXTS
        wait_until(partial(are_gone, processes))
    early = [outcome for sent, outcome in load.outcomes if sent < signalled - 1]
    late = [outcome for sent, outcome in load.outcomes if sent >= signalled - 1]
    assert early
    assert [each.json for each in early if isinstance(each, Answer)] == [expected] * len(early)
    answers = [each for each in late if isinstance(each, Answer)]
    assert {each.status for each in answers} <= {200, 503}
    assert all("retry-after" in each.headers for each in answers if each.status == 503)
    assert all(each.json == expected for each in answers if each.status == 200)
    assert [event["event"] for event in server.events()][-1] == "stopped"


@pytest.mark.slow
def test_a_hanging_worker_is_replaced_and_a_killed_server_leaves_nothing(
    tiny_models: TinyModels, tmp_path: Path
) -> None:
    key, running = start([f"en-de={tiny_models.english_german}", "serve.request_seconds=2"], tmp_path, jobs=1)
    with running as server:
        served = KeyedServer(server, key)
        (hanging,) = workers_of(server)
        with ThreadPoolExecutor(1) as clients:
            # Slow once: the speed that was measured then must not refuse what comes.
            with Stopped(hanging):
                slow = clients.submit(served.translate)
                time.sleep(1.2)
            assert slow.result().status == 200
            wait_until(lambda: served.translate(LONG[:500]).status == 200)
            os.kill(hanging, signal.SIGSTOP)
            hung = clients.submit(served.translate)
            wait_until(lambda: are_gone([hanging]), seconds=20)
            assert hung.result().status == 504
        wait_until(lambda: server.metric("seqloom_worker_restarts_total") == 1)
        wait_until(lambda: server.metric("seqloom_ready_workers") == 1, seconds=120)
        wait_until(lambda: served.translate().status == 200)
        processes = children_of(server.process.pid)
        server.process.kill()
        server.process.wait()
        wait_until(partial(are_gone, processes))


# --- reloading --------------------------------------------------------------------------------------------------------


def test_reloading_keeps_what_works_and_loses_nothing(
    tiny_models: TinyModels, corpus: tuple[list[str], list[str]], tmp_path: Path
) -> None:
    good = tiny_models.english_german / "model"
    shutil.copytree(good, tmp_path / "damaged")
    weights = bytearray((tmp_path / "damaged/model.safetensors").read_bytes())
    weights[-100:] = b"x" * 100
    (tmp_path / "damaged/model.safetensors").write_bytes(weights)
    seqloom.train(train=corpus[0], dev=corpus[1], out=tmp_path / "other", overrides=[*TINY, "seed=9"])
    current = tmp_path / "current"

    def use(model: Path) -> None:
        (tmp_path / "new").symlink_to(model)
        (tmp_path / "new").rename(current)

    def reload(result: str) -> None:
        done = f'seqloom_reloads_total{{result="{result}"}}'
        count = server.metric(done)
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: server.metric(done) == count + 1, seconds=120)

    use(good)
    key, running = start([f"en-de={current}"], tmp_path, jobs=1)
    with running as server, ThreadPoolExecutor(4) as clients:
        served = KeyedServer(server, key)
        old, load = served.translate().json, Load(served)
        sockets = len(sockets_of(server.process.pid))
        sending = load.start(clients, 2)
        use(tmp_path / "damaged")
        added = KeyedServer(server, add_key(tmp_path / "keys", "another"))
        assert added.translate().status == 403
        reload("failed")
        assert "checksum" in str(server.events()) or "damaged" in str(server.events())
        assert added.translate().json == old
        use(tmp_path / "other/model")
        reload("done")
        new = served.translate().json
        reloaded = time.monotonic()
        time.sleep(0.5)
        load.is_over.set()
        for each in sending:
            each.result()
        answers = [outcome.json for _, outcome in load.outcomes if isinstance(outcome, Answer)]
        assert len(answers) == len(load.outcomes)
        assert new != old
        assert all(answer in (old, new) for answer in answers)
        assert {outcome.json["translatedText"] for sent, outcome in load.outcomes if sent > reloaded} == {  # type: ignore[union-attr]
            new["translatedText"]
        }
        wait_until(lambda: len(workers_of(server)) == 1)
        wait_until(lambda: len(sockets_of(server.process.pid)) <= sockets)
        (tmp_path / "keys").write_text((tmp_path / "keys").read_text().splitlines()[1] + "\n")
        reload("done")
        assert [served.translate().status, added.translate().status] == [403, 200]

        # The first SIGTERM would wait for the answer, the second does not.
        processes = [server.process.pid, *children_of(server.process.pid)]
        connection = added.send("/translate", {"q": [LONG] * 4 * LONG_TEXTS, "source": "en", "target": "de"})
        wait_until(lambda: server.metric("seqloom_running_texts") > 0)
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: server.call("/ready").status == 503)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(5) == 128 + signal.SIGTERM
        wait_until(partial(are_gone, processes))
        connection.close()
