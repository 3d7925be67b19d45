"""Kills at random moments, of the program itself, in the loop that anyone can run: `benchmarks/kill_loop.py`."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from training.toy import make_trainer

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "kill_loop.py"


def run(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(SCRIPT), *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_five_kills_lose_no_bit() -> None:
    result = run("--kills", "5", "--steps", "12", "--save-every", "3")
    assert result.returncode == 0, result.stderr
    assert "| kills | 5 |" in result.stdout
    assert "BROKEN" not in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["transformer", "rnn_lm", "ngram"])
def test_twenty_kills_lose_no_bit(kind: str) -> None:
    result = run("--kills", "20", "--kinds", kind, "--seed", "2")
    assert result.returncode == 0, result.stderr
    assert "| kills | 20 |" in result.stdout


# --- the control: what the loop would notice -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def loop() -> ModuleType:
    """The script as a module."""
    sys.path[:0] = [str(SCRIPT.parent)]
    specification = importlib.util.spec_from_file_location("kill_loop", SCRIPT)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["kill_loop"] = module
    specification.loader.exec_module(module)
    return module


def test_the_loop_notices_other_bits_and_stray_files(loop: ModuleType) -> None:
    whole = {"checkpoints/step-4/model.safetensors": "a", "config.yaml": ""}
    loop.compare(dict(whole), whole)
    with pytest.raises(loop.BrokenPromise, match=r"other bits .*step-4/model\.safetensors"):
        loop.compare({**whole, "checkpoints/step-4/model.safetensors": "b"}, whole)
    with pytest.raises(loop.BrokenPromise, match=r"should not be there: \['lock'\]"):
        loop.compare({**whole, "lock": ""}, whole)
    with pytest.raises(loop.BrokenPromise, match=r"missing: \['config\.yaml'\]"):
        loop.compare({"checkpoints/step-4/model.safetensors": "a"}, whole)


def test_the_loop_notices_damage_and_lost_steps(loop: ModuleType, tmp_path: Path) -> None:
    make_trainer(tmp_path, steps=4, validate_every=0)[0].train()
    job = loop.Job("transformer", tmp_path, 9, 2)
    journal = tmp_path / "events.jsonl"
    journal.write_text('{"event": "step", "step": 6}\n')
    tally = loop.Tally()
    loop.look_after_kill(job, tmp_path, tally)
    assert (tally.kills, tally.most_lost) == (1, 2)
    journal.write_text('{"event": "step", "step": 7}\n')
    with pytest.raises(loop.BrokenPromise, match="step 7 was made, but only step 4 is saved"):
        loop.look_after_kill(job, tmp_path, tally)
    (tmp_path / "checkpoints" / "step-4" / "rng.safetensors").write_bytes(b"")
    with pytest.raises(loop.BrokenPromise, match=r"is not whole: .*rng\.safetensors: 0 bytes"):
        loop.look_after_kill(job, tmp_path, tally)
