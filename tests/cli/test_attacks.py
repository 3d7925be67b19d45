"""What hostile surroundings do to the commands: odd files, closed streams, damaged data."""

import gzip
import io
import os
import subprocess
import sys
import threading
from pathlib import Path
from unittest import mock

import pytest

from cli.calling import call, start
from cli.conftest import Tiny, train_words
from seqloom.cli.console import Surviving
from seqloom.core.events import Event


def test_a_pipe_named_with_out_is_written_into_and_stays_a_pipe(tiny: Tiny, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text(encoding="utf-8")), daemon=True)
    reader.start()
    called = call("translate", tiny.run, tiny.dev[0], "--out", pipe)
    reader.join(timeout=60)
    assert called.code == 0, called.err
    assert read[0].count("\n") == 6
    assert pipe.is_fifo()


def test_a_link_named_with_out_stays_a_link_and_its_target_is_written(tiny: Tiny, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    target, link = tmp_path / "elsewhere" / "found", tmp_path / "link"
    link.symlink_to(target)
    for words in (["translate", tiny.run, tiny.dev[0]], _evaluate(tiny)):
        target.unlink(missing_ok=True)
        called = call(*words, "--out", link)
        assert called.code == 0, called.err
        assert link.is_symlink()
        assert target.read_text(encoding="utf-8").count("\n") == 6
        assert [path.name for path in target.parent.iterdir()] == ["found"]


def test_a_link_to_itself_or_into_no_folder_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    loop, lost = tmp_path / "loop", tmp_path / "lost"
    loop.symlink_to(loop)
    lost.symlink_to(tmp_path / "nowhere" / "found")
    for link, reason in ((loop, "leads back to itself"), (lost, "there is no folder")):
        called = call("translate", tiny.run, tiny.dev[0], "--out", link)
        assert called.code == 2
        assert reason in called.err
        assert link.is_symlink()


def _evaluate(tiny: Tiny) -> list[object]:
    return ["evaluate", tiny.run, "--source", tiny.dev[0], "--reference", tiny.dev[1]]


def test_training_goes_on_when_nobody_reads_stderr(tiny: Tiny, tmp_path: Path) -> None:
    process = start(*train_words(tiny.train, tiny.dev, tmp_path / "run"))
    assert process.stderr is not None
    process.stderr.close()
    out, _ = process.communicate(timeout=240)
    assert process.returncode == 0
    assert out.startswith(b"Model  ")
    assert (tmp_path / "run" / "model" / "model.safetensors").is_file()


def test_a_result_of_training_that_cannot_be_written_is_no_success(tiny: Tiny, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    models = [tiny.run / "model"] * 2
    for words, code in ((["average", *models, "--out", tmp_path / "mean"], 1), (["config"], 0)):
        process = start(*words, stdout=writing)
        _, err = process.communicate(timeout=120)
        assert process.returncode == code
        assert (b"standard output was closed" in err) == bool(code)
    os.close(writing)


def test_a_listener_that_cannot_write_falls_silent_and_another_error_does_not() -> None:
    heard: list[str] = []

    def listener(event: Event) -> None:
        heard.append(event.kind)
        raise BrokenPipeError if event.kind == "step" else ZeroDivisionError

    with mock.patch.object(sys, "stderr", io.StringIO()):
        surviving = Surviving(listener)
        surviving(Event("step", {}))
        surviving(Event("step", {}))
    assert heard == ["step"]
    with pytest.raises(ZeroDivisionError):
        Surviving(listener)(Event("other", {}))


@pytest.mark.parametrize("keep", [0.5, 0.9])
def test_damaged_gzip_data_is_a_data_error(tiny: Tiny, tmp_path: Path, keep: float) -> None:
    packed = bytearray(gzip.compress(tiny.train[0].read_bytes()))
    cut, damaged = tmp_path / "cut.gz", tmp_path / "damaged.gz"
    cut.write_bytes(packed[: int(keep * len(packed))])
    packed[20:40] = b"\xff" * 20
    damaged.write_bytes(packed)
    for path in (cut, damaged):
        called = call("translate", tiny.run, path)
        assert called.code == 3
        assert f"{path}: the compressed data is cut short or damaged" in called.err


@pytest.mark.parametrize(("closed", "name"), [(">&-", "standard output"), ("<&-", "standard input")])
def test_a_closed_stream_is_a_sentence(tiny: Tiny, closed: str, name: str) -> None:
    done = _in_shell(closed, "translate", tiny.run)
    assert done.returncode == 2
    assert f"{name} is closed" in done.stderr.decode()


def test_without_stderr_the_results_alone_are_on_stdout(tiny: Tiny) -> None:
    done = _in_shell("2>&-", "translate", tiny.run, tiny.dev[0])
    assert done.returncode == 0
    assert done.stdout.count(b"\n") == 6


def _in_shell(closed: str, *words: object) -> subprocess.CompletedProcess[bytes]:
    program = [sys.executable, "-c", "from seqloom.cli.main import run; run()", *map(str, words)]
    return subprocess.run(["sh", "-c", f'"$@" {closed}', "sh", *program], capture_output=True, timeout=120, check=False)
