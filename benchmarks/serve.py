"""The server under load, compared with translating a file and with CTranslate2 behind starlette.

    python benchmarks/serve.py --model run/model [--quick] [--clients 64] [--seconds 120] [--rounds 7]

The model (or SEQLOOM_MODEL) is a Transformer trained on Multi30k, whose test set of 2016 is translated (SEQLOOM_DATA
names the folder of the data). First all clients send a line each, again and again, for two minutes: every answer must
be that of the line alone (or one that ties with it), none may be lost, and memory must not grow. Then the server takes
turns with `seqloom translate --jobs 2` on the same lines, and with CTranslate2 behind starlette, where each request is
translated by itself, tokens to tokens, in float32 and int8. Clients and servers share the cores. Last, a line over HTTP
takes turns with a line in process. The exit code is 1 if a goal is missed.
"""

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from decode import CTRANSLATE2, SCRIPTS, Task, prepare
from harness.ending import Outcome, measure_and_exit
from harness.peers import peer_python
from harness.processes import Contestant, ContestantError, all_running
from harness.progress import Countdown, say
from harness.ratios import FEWEST_PAIRS, Claim, claim, claim_of_sizes
from seqloom.apps.export import export
from seqloom.core.symbols import END

JOBS_GOAL, CT2_GOAL, LINE_GOAL, MEMORY_GOAL = 0.7, 1.1, 1.2, 1.05
PEERS = {
    "float32": "CTranslate2 float32 behind starlette",
    "int8_float32": "CTranslate2 int8 behind starlette",
}
SPLIT = "search.split=sentences"
"""As the server translates; so everything is compared on the same work."""


@contextlib.contextmanager
def started(command: Sequence[str | Path], log: Path) -> Iterator[tuple[dict[str, Any], "subprocess.Popen[str]"]]:
    """A server and the line of JSON that it prints when it is ready."""
    with log.open("w") as stderr:
        process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, stderr=stderr, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise ContestantError(f"{command[1]} ended; its last lines were:\n{log.read_text()[-2000:]}")
        yield json.loads(line), process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def memory_of(pid: int) -> float:
    """Megabytes of a process and all that it started, shared pages divided among their users."""
    total = 0.0
    pending = [pid]
    while pending:
        each = pending.pop()
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{each}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) / 1024
            for task in Path(f"/proc/{each}/task").iterdir():
                pending += map(int, (task / "children").read_text().split())
    return total


def write_bodies(task: Task) -> tuple[Path, Path]:
    """The requests in the shape of LibreTranslate, and as tokens for CTranslate2."""
    source, target = task.loaded.card.source, task.loaded.card.target
    ours = [{"q": line, "source": source, "target": target} for line in task.lines]
    pieces = task.pieces("source")
    theirs = [{"tokens": [*(pieces[id] for id in ids), pieces[END]]} for ids in task.ids]
    paths = task.folder / "ours.json", task.folder / "theirs.json"
    for path, bodies in zip(paths, (ours, theirs), strict=True):
        path.write_text(json.dumps(bodies), encoding="utf-8")
    return paths


def percentiles(times: Sequence[float]) -> str:
    """50, 95 and 99 percent of requests took at most so long."""
    shown = [f"{1000 * times[min(len(times) - 1, int(share * len(times)))]:.0f}" for share in (0.5, 0.95, 0.99)]
    return " | ".join(shown)


def stress(load: Contestant, alone: Contestant, pid: int, given: argparse.Namespace, task: Task) -> tuple[Claim, bool]:
    """All clients for the whole time; the claim about memory, and whether every answer is right."""
    say(f"{given.clients} clients for {given.seconds} seconds")
    first = min(20, given.seconds // 3)
    early = load.ask(f"load {first}")
    before = memory_of(pid)
    late = load.ask(f"load {given.seconds - first}")
    after = memory_of(pid)
    times = sorted(early["times"] + late["times"])
    failures = early["failures"] + late["failures"]
    differences = early["differences"] + late["differences"]
    answers = load.ask("answers")["answers"]
    say("comparing the answers with those of each line alone")
    expected = alone.ask("expected")["texts"]
    others = [(at, text) for at, text in answers if text != expected[at]]
    (task.folder / "answers").write_text(json.dumps(others), encoding="utf-8")
    wrong = alone.ask("check")["wrong"]
    print(
        f"{len(times):,} requests of {given.clients} clients: {failures} failed, {differences} answered differently "
        f"from an earlier time, {len(others)} of {len(answers)} lines differ from the line alone, {len(wrong)} of them "
        f"not by a tie. Memory {before:,.0f} MB, at the end {after:,.0f} MB.\n\n"
        "| | p50 ms | p95 | p99 |\n|---|---:|---:|---:|\n"
        f"| seqloom serve | {percentiles(times)} |",
        flush=True,
    )
    memory = claim_of_sizes(
        [after], [before], at_most=MEMORY_GOAL, about="memory of the server at the end vs after 20 s"
    )
    return memory, not (failures or wrong)


def compare(given: argparse.Namespace, folder: Path) -> Outcome:
    """All measurements."""
    task = prepare(given, folder)
    ours, theirs = write_bodies(task)
    python = peer_python("ct2-server", (*CTRANSLATE2, "starlette", "uvicorn"))
    export(task.model, "ctranslate2", out=folder / "ctranslate2")
    pair, threads = f"{task.loaded.card.source}-{task.loaded.card.target}", str(given.threads)
    beam = f"search.beam={given.beam}"
    serve = [sys.executable, "-m", "seqloom", "serve", f"{pair}={task.model}", beam, "--port", "0", "--json"]
    contestant = [sys.executable, SCRIPTS / "serve_ours.py", "--model", task.model, "--source", folder / "lines"]
    contestant += ["--setting", beam, "--setting", SPLIT, "--answers", folder / "answers"]
    ct2 = [python, SCRIPTS / "serve_ct2.py", "--model", folder / "ctranslate2", "--beam", str(given.beam)]
    load = [sys.executable, SCRIPTS / "serve_load.py", "--clients", str(given.clients), "--port"]
    with contextlib.ExitStack() as stack:
        ready, process = stack.enter_context(started([*serve, "--jobs", threads], folder / "log"))
        port = ready["address"].rpartition(":")[2]
        jobs = Contestant("translate", [*contestant, "--jobs", threads], threads=1)
        alone = Contestant("line", contestant, threads=1)
        clients = Contestant("clients", [*load, port, "--bodies", ours, "--key", "translatedText"], threads=1)
        loads = {"serve": clients}
        for kind in PEERS:
            peer, _ = stack.enter_context(started([*ct2, "--kind", kind, "--threads", threads], folder / kind))
            command = [*load, str(peer["port"]), "--bodies", theirs, "--key", "tokens"]
            loads[kind] = Contestant(kind, command, threads=1)
        stack.enter_context(all_running([jobs, alone, *loads.values()]))
        for each in loads.values():
            each.ask("load 2")
        jobs.ask("jobs 1")
        memory, is_right = stress(clients, alone, process.pid, given, task)
        rates: dict[str, list[float]] = {name: [] for name in (*loads, "jobs")}
        times: dict[str, list[float]] = {name: [] for name in PEERS}
        lines: dict[str, list[float]] = {"http": [], "process": []}
        countdown = Countdown("round", given.rounds)
        for number in range(given.rounds):
            for name in list(rates) if number % 2 else list(reversed(rates)):
                if name == "jobs":
                    rates[name].append(len(task.lines) / jobs.ask("jobs 1")["seconds"])
                    continue
                answer = loads[name].ask(f"load {given.turn}")
                rates[name].append(len(answer["times"]) / answer["seconds"])
                if name in times:
                    times[name] += answer["times"]
            for name, who in (("http", clients), ("process", alone)):
                lines[name].append(1000 * statistics.median(who.ask(f"alone {given.single}")["times"]))
            countdown.tick()
    print_tables(rates, times, lines)
    versus = f"{given.clients} clients of the server vs"
    claims = [
        claim(rates["serve"], rates["jobs"], goal=JOBS_GOAL, about=f"{versus} translate --jobs {threads}"),
        claim(rates["serve"], rates["float32"], goal=CT2_GOAL, about=f"{versus} CTranslate2 float32 behind starlette"),
        claim_of_sizes(lines["http"], lines["process"], at_most=LINE_GOAL, about="a line over HTTP vs in process"),
        memory,
    ]
    return Outcome(claims, is_good=is_right)


def print_tables(rates: dict[str, list[float]], times: dict[str, list[float]], lines: dict[str, list[float]]) -> None:
    """Latencies of the peers, and lines per second of all."""
    for kind, some in times.items():
        print(f"| {PEERS[kind]} | {percentiles(sorted(some))} |")
    print("\n| | lines/s |\n|---|---:|")
    titles = {"serve": "seqloom serve", "jobs": "seqloom translate --jobs", **PEERS}
    for name, some in rates.items():
        print(f"| {titles[name]} | {statistics.median(some):,.1f} ({min(some):,.1f} – {max(some):,.1f}) |")
    http, process = (statistics.median(lines[name]) for name in ("http", "process"))
    faster = statistics.median(rates["serve"]) / statistics.median(rates["int8_float32"])
    print(
        f"\nA line over HTTP: {http:.1f} ms; in process: {process:.1f} ms. Against CTranslate2 int8 behind starlette: "
        f"{faster:.2f}, which is not claimed. LibreTranslate is not measured: it needs models from the network."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", default=os.environ.get("SEQLOOM_MODEL"))
    parser.add_argument("--quick", action="store_true", help="shorter: ends within five minutes")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=int, help="length of the long run (default 120)")
    parser.add_argument("--rounds", type=int, default=FEWEST_PAIRS)
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    given.seconds = given.seconds or (30 if given.quick else 120)
    given.turn, given.single = (4, 20) if given.quick else (10, 50)
    if given.rounds < FEWEST_PAIRS:
        parser.error(f"--rounds {given.rounds} is too few for an interval; give {FEWEST_PAIRS} or more")
    measure_and_exit(lambda folder: compare(given, folder))


if __name__ == "__main__":
    main()
