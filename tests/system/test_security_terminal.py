"""Terminals obey no model and no file; pipes get every byte as it is."""

import io
import json
import os
import pty
import sys
import threading
from pathlib import Path
from unittest import mock

import pytest

from cli.calling import call
from seqloom.cli.console import Bars, PlainLines
from seqloom.cli.main import execute
from seqloom.core.events import Event
from system.small_models import change_json, vouch_again, write_small_model

HOSTILE = "x\x1b]0;owned\x07\x9b2J\rgood\u202eliave\b"
OBEYED = ["\x1b", "\x07", "\x9b", "\r", "\u202e", "\b"]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that says hostile things of itself."""
    model = write_small_model(tmp_path_factory.mktemp("models") / "model\x1b[31m")
    score = {"name": HOSTILE, "value": 1.0, "signature": HOSTILE, "data": HOSTILE, "lines": HOSTILE}
    trained_on = {"files": [HOSTILE], "data": HOSTILE, "pairs": 3, "averaged": [HOSTILE]}
    change_json(model / "model.json", source=HOSTILE, version=HOSTILE, trained_on=trained_on, scores=[score])
    vouch_again(model)
    return model


def on_terminal(*words: object) -> str:
    """What a command sends to a terminal that is its stdout and its stderr."""
    reading, writing = pty.openpty()
    read: list[bytes] = []

    def collect() -> None:
        while True:
            try:
                data = os.read(reading, 65536)
            except OSError:
                return
            read.append(data)

    reader = threading.Thread(target=collect)
    reader.start()
    streams = [io.TextIOWrapper(os.fdopen(os.dup(writing), "wb"), encoding="utf-8", newline="\n") for _ in range(2)]
    with (
        mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"the cat\n"))),
        mock.patch.object(sys, "stdout", streams[0]),
        mock.patch.object(sys, "stderr", streams[1]),
        mock.patch.dict(os.environ, {"TERM": "dumb", "NO_COLOR": "1"}),
    ):
        execute([str(word) for word in words])
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    for stream in streams:
        stream.close()
    os.close(writing)
    reader.join(timeout=60)
    os.close(reading)
    # The terminal's own driver makes CR LF of a line feed.
    return b"".join(read).decode("utf-8").replace("\r\n", "\n").replace("\x1b[31m\x1b[1merror:\x1b[0m", "error:")


@pytest.mark.parametrize(
    "words",
    [
        ["info", "MODEL"],
        ["info", "MODEL", "--json"],
        ["average", "MODEL", "MODEL", "--out", "NEW"],
        ["pack", "MODEL", "NEW.zip"],
        ["translate", "MODEL", "--json"],
        ["translate", "MODEL", HOSTILE],
        ["translate", "MODEL", HOSTILE, "--json"],
        ["info", HOSTILE, "--debug"],
        ["config", f"model.width={HOSTILE}"],
        [HOSTILE],
        ["info", f"--{HOSTILE}"],
    ],
)
def test_a_terminal_is_sent_nothing_to_obey(hostile: Path, tmp_path: Path, words: list[str]) -> None:
    given = {"MODEL": hostile, "NEW": tmp_path / "new\x1b[2J", "NEW.zip": tmp_path / "new\x9b2J.zip"}
    shown = on_terminal(*(given.get(word, word) for word in words))
    assert len(shown) > 10
    for character in OBEYED:
        assert character not in shown


def test_what_is_spelt_is_there(hostile: Path) -> None:
    shown = on_terminal("info", hostile)
    assert "x\\u001b]0;owned\\u0007\\u009b2J\\u000dgood\\u202eliave\\u0008" in shown


def test_json_on_a_terminal_means_what_it_means_in_a_pipe(hostile: Path) -> None:
    assert json.loads(on_terminal("info", hostile, "--json")) == call("info", hostile, "--json").records[0]


def test_pipes_get_every_byte(hostile: Path) -> None:
    assert "\x9b" in call("info", hostile, "--json").out
    assert "\u202e" in call("info", hostile, "--json").out


@pytest.mark.parametrize("kind", [PlainLines, Bars])
def test_progress_and_notices_are_spelt_too(kind: type[PlainLines] | type[Bars]) -> None:
    stream = io.StringIO()
    with mock.patch.object(sys, "stderr", stream):
        listener = kind()
        listener(Event("notice", {"message": HOSTILE}))
        listener(Event("phase", {"what": HOSTILE}))
        listener(Event("progress", {"what": HOSTILE, "done": 3, "all": 3}))
        if isinstance(listener, Bars):
            listener.stop()
    assert "\\u009b2J" in stream.getvalue()
    for character in ("\x9b", "\x07", "\u202e", "\x1b]"):
        assert character not in stream.getvalue()
