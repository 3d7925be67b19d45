"""The whole ladder on the phrasebook within ten minutes, killed in the middle of a neural rung and resumed."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep

import pytest

from compare.test_ladder import write_pairs
from seqloom.compare.rungs import LADDER
from seqloom.training.checkpoint import pointed_step

pytestmark = pytest.mark.slow

MINUTES = 8


def start(words: list[str]) -> "subprocess.Popen[bytes]":
    """`seqloom compare` as a process of its own."""
    command = [sys.executable, "-m", "seqloom", "compare", *words]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def finish(process: "subprocess.Popen[bytes]") -> None:
    _, error = process.communicate()
    assert process.returncode == 0, error.decode()


def test_the_ladder_rises_and_survives_a_kill(tmp_path: Path) -> None:
    files = {
        name: ",".join(map(str, write_pairs(tmp_path, name, count=count, split=name)))
        for name, count in (("train", 3000), ("dev", 100), ("test", 300))
    }
    out = tmp_path / "ladder"
    began = monotonic()
    words = [word for name, paths in files.items() for word in (f"--{name}", paths)]
    first = start([*words, "--minutes", str(MINUTES), "--out", str(out)])
    rnn = out / "rungs" / "rnn"
    while first.poll() is None and not pointed_step(rnn, "latest"):
        sleep(0.2)
    assert first.poll() is None, "the rung under way has a checkpoint before the process ends"
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    reached = pointed_step(rnn, "latest")
    assert reached
    counted = [out / "rungs" / rung.name / "model" / "model.json" for rung in LADDER if rung.is_counted]
    written = [path.stat().st_mtime_ns for path in counted]

    finish(start(["--resume", str(out)]))
    assert (monotonic() - began) / 60 < 10
    assert [path.stat().st_mtime_ns for path in counted] == written, "finished rungs are not fitted again"
    events = [json.loads(line) for line in (rnn / "events.jsonl").read_text().splitlines()]
    (resumed,) = (event for event in events if event["event"] == "resumed")
    assert resumed["step"] >= reached

    report = json.loads((out / "report.json").read_text())
    bleu = {result["name"]: result["bleu"]["value"] for result in report["results"]}
    assert list(bleu) == [rung.name for rung in LADDER], report["skipped"]
    assert bleu["dictionary"] < bleu["channel"] <= bleu["phrases"]
    # How far the networks come depends on the machine; a Transformer that learns halves its loss on any.
    journal = (out / "rungs" / "transformer" / "events.jsonl").read_text().splitlines()
    losses = [event["loss"] for event in map(json.loads, journal) if event["event"] == "validation"]
    assert losses[-1] < losses[0] / 2
    assert bleu["transformer"] > 5
    assert {"dictionary", "channel", "phrases"} <= {name for name, curve in report["curves"].items() if "1000" in curve}
    assert not any("failed" in sentence for sentence in report["skipped"])
