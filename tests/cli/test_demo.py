"""`seqloom demo`, on a smaller corpus than the real one."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cli import demo_program
from cli.calling import Called, call
from cli.demo_program import STEPS, small_sizes
from seqloom.apps import demo as recipe
from seqloom.core.errors import Stopped
from seqloom.core.events import Event
from seqloom.core.files import sha256_of
from seqloom.serve.server import ServerOptions
from training.locks import held


@pytest.fixture(scope="module", autouse=True)
def small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in small_sizes().items():
            patch.setattr(recipe, name, value)
        yield


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Called]:
    """A demo that nothing has disturbed."""
    out = tmp_path_factory.mktemp("runs") / "demo"
    return out, call("demo", "--out", out, "--steps", STEPS)


@pytest.fixture
def copied(finished: tuple[Path, Called], tmp_path: Path) -> Path:
    """A copy of it to spoil."""
    out = tmp_path / "demo"
    shutil.copytree(finished[0], out)
    shutil.copytree(finished[0].with_name("demo-corpus"), tmp_path / "demo-corpus")
    return out


def weights_of(out: Path) -> str:
    return sha256_of(out / "model" / "model.safetensors")


def results_of(called: Called) -> str:
    return called.out[called.out.index("New sentences") : called.out.index("The model is in")]


def test_the_demo_ends_with_scores_samples_and_the_next_commands(finished: tuple[Path, Called]) -> None:
    out, called = finished
    assert called.code == 0, called.err
    assert called.out.count("BLEU") == 2
    assert called.out.count("\n  = ") == 10
    for part in (f"seqloom translate {out / 'model'}", "seqloom evaluate", "seqloom info", "seqloom train"):
        assert part in called.out


def test_a_finished_demo_shows_its_results_again(finished: tuple[Path, Called]) -> None:
    out, called = finished
    written = {path: path.stat().st_mtime_ns for path in out.parent.rglob("*")}
    again = call("demo", "--out", out)
    assert (again.code, again.out) == (0, called.out)
    assert f"{out} has finished already" in again.err
    assert "--force" in again.err
    assert {path: path.stat().st_mtime_ns for path in out.parent.rglob("*")} == written


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt. A test run that was started in the background ignores it otherwise."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.slow  # in the fast suite, `test_five_kills_lose_no_bit` interrupts a run
@pytest.mark.usefixtures("ctrl_c")
def test_a_demo_interrupted_again_and_again_ends_with_the_same_weights(
    finished: tuple[Path, Called], tmp_path: Path
) -> None:
    """While the text is prepared, between two steps, before the model is written, and while it is tested."""
    out = tmp_path / "demo"

    def interrupt(kind: str, value: object) -> None:
        notices = []

        def listen(event: Event) -> None:
            notices.append(str(event.values.get("message", "")))
            if event.kind == kind and value in event.values.values():
                os.kill(os.getpid(), signal.SIGINT)

        with pytest.raises((KeyboardInterrupt, Stopped)):
            recipe.demo(out, steps=STEPS, listener=listen)
        assert notices[-1] == f"the demo was interrupted; resume it with: seqloom demo --out {out} --steps {STEPS}"

    interrupt("phase", "learning 300 bpe pieces")
    assert not (out / "run.json").exists()
    interrupt("step", 3)
    assert not (out / "model").exists()
    interrupt("finished", STEPS)
    assert not (out / "model").exists()
    interrupt("progress", "translating new combinations of words")
    assert (out / "model").exists()
    assert not (out / "demo.json").exists()
    called = call("demo", "--out", out)
    assert called.code == 0, called.err
    assert weights_of(out) == weights_of(finished[0])
    assert results_of(called) == results_of(finished[1])


def test_a_damaged_demo_is_repaired(copied: Path, finished: tuple[Path, Called]) -> None:
    """Its model from the checkpoints, its corpus and its results by making them again."""
    corpus = Path("..") / "demo-corpus" / "train.en"
    for damaged in (copied / "model" / "model.safetensors", copied / "demo.json", copied / corpus):
        damaged.write_bytes(damaged.read_bytes()[:-9])
    called = call("demo", "--out", copied)
    assert called.code == 0, called.err
    assert weights_of(copied) == weights_of(finished[0])
    assert (copied / corpus).read_bytes() == (finished[0] / corpus).read_bytes()
    assert results_of(called) == results_of(finished[1])
    assert "has finished already" in call("demo", "--out", copied).err


def test_a_folder_that_holds_something_else_is_refused(
    copied: Path, tmp_path: Path, finished: tuple[Path, Called]
) -> None:
    def refused(*words: object) -> str:
        called = call("demo", "--out", copied, *words)
        assert (called.code, called.out) == (2, "")
        return called.err

    assert f"{copied} is a demo of {STEPS} steps, not 9" in refused("--steps", 9)
    settings = copied / "config.yaml"
    config = settings.read_text()
    settings.write_text(config.replace("width: 16", "width: 32"))
    assert "model.width is 32, but the demo of this version has 16" in refused()
    settings.write_text(config.replace("demo-corpus", "mine"))
    assert f"{copied} is not the demo, but a run trained on {finished[0].parent}/mine/train.en" in refused()
    assert "so --force does not remove it" in refused("--force")
    settings.write_text(config)
    (copied / "run.json").write_text("{")
    assert f"{copied} contains a damaged run: {copied}/run.json is damaged" in refused()
    (copied / "run.json").unlink()
    assert "not a run of the demo: run.json is missing" in refused()
    assert "--force does not remove it" in refused("--force")
    assert (copied / "model").is_dir()
    shutil.rmtree(copied)
    copied.touch()
    assert f"{copied} is not a folder" in refused()
    copied.unlink()
    (tmp_path / "demo-corpus" / "train.de").write_text("Mein Text.\n")
    assert f"{tmp_path}/demo-corpus/train.de exists and differs from the text of the demo" in refused()
    assert (tmp_path / "demo-corpus" / "train.de").read_text() == "Mein Text.\n"


@pytest.mark.slow
def test_force_starts_over(copied: Path, finished: tuple[Path, Called]) -> None:
    (copied / "note.txt").touch()
    (copied.parent / "demo-corpus" / "train.de").write_text("Text of another version.\n")
    called = call("demo", "--out", copied, "--force", "--steps", STEPS, "--json")
    assert called.records[0]["trained"]["outcome"]["step"] == STEPS
    assert not (copied / "note.txt").exists()
    assert weights_of(copied) == weights_of(finished[0])
    assert sorted(path.name for path in copied.parent.iterdir()) == ["demo", "demo-corpus"]


def test_force_removes_no_other_run(copied: Path, tmp_path: Path) -> None:
    """Not one of a corpus with a similar name, nor one of the user's own settings on the corpus of the demo."""

    def keeps(out: Path) -> None:
        before = sorted(tmp_path.rglob("*"))
        called = call("demo", "--out", out, "--force", "--steps", 1)
        assert (called.code, called.out) == (2, ""), called.err
        assert f"{out} is not a run of the demo with its corpus in {out}-corpus" in called.err
        assert sorted(tmp_path.rglob("*")) == before

    mine = tmp_path / "my-corpus" / "train.txt"
    mine.parent.mkdir()
    shutil.copy(tmp_path / "demo-corpus" / "train.en", mine)
    assert call("train", "model.kind=ngram", "--train", mine, "--out", tmp_path / "my").code == 0
    keeps(tmp_path / "my")
    (copied / "demo.json").unlink()
    settings = copied / "config.yaml"
    config = settings.read_text()
    for one, other in (
        ("width: 16", "width: 32"),
        ("learning_rate: 0.004", "learning_rate: 0.001"),
        ("train.de", "train.xx"),
        ("dev.de", "mine.de"),
    ):
        assert one in config
        settings.write_text(config.replace(one, other))
        keeps(copied)
    data = config[config.index("  train:") : config.index("  held_out:")]
    settings.write_text(config.replace(data, "  train: []\n  dev: []\n"))
    keeps(copied)
    settings.write_text(config)
    (tmp_path / "demo-corpus" / "notes.txt").touch()
    keeps(copied)


@pytest.mark.parametrize("out", [".", "/", "..", "one/.."])
def test_a_place_without_a_name_is_refused_or_resolved(
    out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    (here / "one").mkdir(parents=True)
    monkeypatch.chdir(here)
    called = call("demo", "--out", out)
    assert (called.code, called.out) == (2, ""), called.err
    assert "internal error" not in called.err
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["here", "one"]


def test_nothing_is_written_before_the_checks(tmp_path: Path) -> None:
    """Not among files of the user, not over a part of a corpus even with --force, not for impossible steps."""
    mine = tmp_path / "mine-corpus"
    mine.mkdir()
    for name, words in (("essay.txt", ()), ("train.en", ()), ("train.en", ("--force",))):
        (mine / name).write_text("My text.\n")
        called = call("demo", "--out", tmp_path / "mine", *words)
        assert (called.code, "writing" in called.err) == (2, False)
        assert f"{mine} contains {name}" in called.err or f"{mine / name} exists and differs" in called.err
        assert [path.read_text() for path in tmp_path.rglob("*.*")] == ["My text.\n"]
        (mine / name).unlink()
    called = call("demo", "--out", tmp_path / "mine", "--steps", 10**20)
    assert (called.code, "training.steps" in called.err) == (2, True)
    assert [path.name for path in tmp_path.rglob("*")] == ["mine-corpus"]


def test_a_short_demo_advises_no_settings(finished: tuple[Path, Called]) -> None:
    assert "training.warmup" not in finished[1].err


def test_force_does_not_remove_a_demo_that_is_being_trained(copied: Path) -> None:
    with held(copied, 1):
        called = call("demo", "--out", copied, "--force")
    assert called.code == 2
    assert f"{copied} is in use by process 1" in called.err
    assert (copied / "model").exists()


@pytest.mark.slow
def test_a_demo_killed_at_any_point_ends_with_the_same_weights(tmp_path: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, demo_program.__file__, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    whole, *attempts = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(attempts) > demo_program.DELAYS + 20
    assert [each for each in attempts if each["weights"] != whole["weights"] or each["left"]] == []


def test_the_demo_ends_in_the_page(finished: tuple[Path, Called], monkeypatch: pytest.MonkeyPatch) -> None:
    out, _ = finished
    opened: list[str] = []
    served: list[tuple[str, ...]] = []

    def run_server(options: ServerOptions, *, on_ready: Callable[[str, Any], None]) -> None:
        served.append(options.models)
        assert options.port == 0
        on_ready("http://127.0.0.1:4321", None)

    monkeypatch.setattr("seqloom.serve.server.run_server", run_server)
    monkeypatch.setattr("webbrowser.open", opened.append)
    found = call("demo", "--out", out, "--steps", STEPS, "--open")
    assert found.code == 0
    assert "Workbench: http://127.0.0.1:4321/" in found.out
    assert served == [(str(out / "model"),)]
    end = time.monotonic() + 10
    while not opened and time.monotonic() < end:
        time.sleep(0.01)
    assert opened == ["http://127.0.0.1:4321/"]
    assert call("demo", "--out", out, "--open", "--json").code == 2
