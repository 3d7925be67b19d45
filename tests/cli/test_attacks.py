"""What hostile surroundings do to the commands: odd files, closed streams, damaged data."""

import codecs
import errno
import gzip
import io
import os
import sys
import threading
from pathlib import Path
from unittest import mock

import pytest

from cli.calling import call, into_closed_pipe, start
from cli.conftest import Tiny, train_words
from seqloom.apps.translator import Translator
from seqloom.cli.console import TolerantListener
from seqloom.core import files
from seqloom.core.arguments import as_lines
from seqloom.core.errors import DataError, UsageError
from seqloom.core.events import Event
from seqloom.core.files import read_lines
from seqloom.search.settings import SearchConfig


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
    for link, reason in ((loop, "symbolic link to itself"), (lost, "does not exist")):
        called = call("translate", tiny.run, tiny.dev[0], "--out", link)
        assert called.code == 2
        assert reason in called.err
        assert link.is_symlink()


def _evaluate(tiny: Tiny) -> list[object]:
    return ["evaluate", tiny.run, "--source", tiny.dev[0], "--reference", tiny.dev[1]]


@pytest.mark.parametrize("command", ["translate", "align", "catalogue", "in place", "evaluate", "selfcheck"])
def test_an_unwritable_output_is_reported_by_name_before_the_work(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    out, catalogue = tmp_path / "out.html", tmp_path / "p.po"
    catalogue.write_text('msgid "a"\nmsgstr ""\n', encoding="utf-8")
    words: dict[str, list[object]] = {
        "translate": ["translate", tmp_path / "no-model", tiny.dev[0], "--out", out],
        "align": ["translate", tmp_path / "no-model", tiny.dev[0], "--align", out],
        "catalogue": ["translate", tmp_path / "no-model", catalogue, "--out", out],
        "in place": ["translate", tmp_path / "no-model", catalogue, "--in-place"],
        "evaluate": [*_evaluate(tiny), "--out", out],
        "selfcheck": ["selfcheck", tmp_path / "no-model", "--out", out],
    }
    monkeypatch.setattr(files, "create", refuse)
    called = call(*words[command])
    place = catalogue if command == "in place" else out
    assert (called.code, called.err) == (2, f"error: cannot write {place}: Read-only file system\n")
    assert list(tmp_path.iterdir()) == [catalogue]


@pytest.mark.slow
def test_training_continues_when_stderr_is_closed(tiny: Tiny, tmp_path: Path) -> None:
    process = start(*train_words(tiny.train, tiny.dev, tmp_path / "run"))
    assert process.stderr is not None
    process.stderr.close()
    out, _ = process.communicate(timeout=240)
    assert process.returncode == 0
    assert out.startswith(b"Model  ")
    assert (tmp_path / "run" / "model" / "model.safetensors").is_file()


@pytest.mark.slow
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
        surviving = TolerantListener(listener)
        surviving(Event("step", {}))
        surviving(Event("step", {}))
    assert heard == ["step"]
    with pytest.raises(ZeroDivisionError):
        TolerantListener(listener)(Event("other", {}))


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


def test_a_long_line_is_reported_before_the_search_and_progress_counts_its_parts(tiny: Tiny) -> None:
    translator = Translator.load(tiny.run)
    told: list[tuple[object, ...]] = []

    class Heard:
        def cut(self, line: int, parts: int) -> None:
            told.append(("cut", line, parts))

        def parts_done(self, done: int, everything: int) -> None:
            told.append(("parts", done, everything))

    lines = ["Good morning.", "dog " * 600, ""]
    found = translator.search(
        iter(lines),
        search=SearchConfig(beam=1, length_factor=0.1, length_constant=1, tokens_per_batch=256),
        progress=lambda count: told.append(("lines", count)),
        watch=Heard(),
    )
    parts = len(found[1][0].hypotheses)
    assert parts > 2
    assert told[0] == ("cut", 1, parts)
    assert ("parts", parts + 1, parts + 1) in told
    counts = [event[1] for event in told if event[0] == "lines"]
    assert counts[:2] == [1, 0]  # the blank line at once, the long one only with its last part
    assert sum(map(int, map(str, counts))) == len(lines)


def test_a_pair_too_long_to_be_scored_is_refused_with_its_line(tiny: Tiny, tmp_path: Path) -> None:
    source, target = tmp_path / "a.en", tmp_path / "a.de"
    source.write_text("Good morning.\n" + "dog " * 5001 + "\n", encoding="utf-8")
    target.write_text("Guten Morgen.\nHund\n", encoding="utf-8")
    called = call("score", tiny.run, source, target)
    assert called.code == 3
    assert "line 2 has" in called.err
    assert "at most 5,000 can be scored" in called.err


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (None, "takes a list of lines; got None"),
        (b"Guten Tag", r"got b'Guten Tag' \(bytes\)"),
        (7, r"got 7 \(int\)"),
        ("Guten Tag", r"got one string, write \['Guten Tag'\]"),
        (["a", None], "line 2 is None"),
        ([b"a"], r"line 1 is b'a' \(bytes\)"),
    ],
)
def test_what_is_no_list_of_lines_is_refused_with_its_value(lines: object, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        as_lines(lines, "translate")
    assert as_lines((word for word in ("a", "b")), "translate") == ["a", "b"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "ascii", "utf-7"])
def test_an_encoding_that_is_not_the_files_is_a_data_error(tmp_path: Path, encoding: str) -> None:
    text = tmp_path / "text.de"
    text.write_text("Größe über alles +x-\n" * 3, encoding="utf-8")
    with pytest.raises(DataError, match=str(text)) as refused:
        list(read_lines(text, encoding))
    assert codecs.lookup(encoding).name.upper() in str(refused.value)


def test_a_key_that_both_kinds_have_is_suggested_without_another_kind() -> None:
    for kind in ("transformer", "seq2seq"):
        called = call("config", f"model.kind={kind}", "model.dropout=1.5")
        assert called.code == 2
        assert "did you mean model.dropout_rate?" in called.err


@pytest.mark.parametrize("device", ["meta", "mps", "cuda:x", "xla", "cpu:0", "CPU"])
def test_other_devices_than_cpu_and_cuda_are_refused(device: str) -> None:
    called = call("config", f"device={device}")
    assert called.code == 2
    assert f"unsupported device '{device}'" in called.err
    assert call("config", "device=cuda:1").code == 0


def test_a_file_name_that_is_not_utf8_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.en")
    Path(odd).write_bytes(tiny.train[0].read_bytes())
    called = call("train", "--train", odd, "--train", tiny.train[1], "--out", tmp_path / "run")
    assert called.code == 2
    assert "caf\\xe9.en: the name is not UTF-8" in called.err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["export", "MODEL", "--to", "onnx"],
        ["train", "--train", "a.de", "--train", "a.en"],
        ["average", "MODEL", "MODEL"],
        ["demo"],
        ["lab", "jacobians", "--quick"],
        ["translate", "MODEL", "TEXT"],
    ],
)
def test_a_path_below_a_file_is_refused(tiny: Tiny, tmp_path: Path, words: list[str]) -> None:
    taken = tmp_path / "taken"
    taken.write_text("mine")
    given = {"MODEL": tiny.run, "TEXT": tiny.dev[0]}
    called = call(*(given.get(word, word) for word in words), "--out", taken / "below" / "it")
    assert (called.code, called.out) == (2, "")
    assert f"{taken} is a file, not a folder" in called.err
    assert "File exists" not in called.err
    assert taken.read_text() == "mine"


@pytest.mark.parametrize("command", ["translate", "score", "evaluate", "info"])
def test_a_closed_output_pipe_is_not_an_error(tiny: Tiny, command: str) -> None:
    given = {
        "translate": [tiny.run, tiny.dev[0]],
        "score": [tiny.run, *tiny.dev],
        "evaluate": [tiny.run, "--source", tiny.dev[0], "--reference", tiny.dev[1]],
        "info": [tiny.run],
    }
    called = into_closed_pipe(command, *given[command])
    assert called.code == 0, called.err
    assert "error" not in called.err


class Terminal(io.TextIOWrapper):
    """Standard input at which somebody sits."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_prompt_on_stderr(tiny: Tiny) -> None:
    said = into_closed_pipe("translate", tiny.run, stdin=Terminal(io.BytesIO(b""), encoding="utf-8"))
    assert (said.code, said.err) == (0, "Type a sentence and press Enter; Ctrl-D ends.\n")
    assert call("translate", tiny.run).err == ""
