"""Wrong values for every argument and option of every command: whatever is given, the program answers in a sentence.

The commands are found by walking the program itself, so one that is added later is tried as well. Once beside a model
that is not there, which is quick, and once beside real ones.
"""

import dataclasses
import os
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
import typer

from cli.calling import Called, call
from cli.conftest import train_words, write_pairs
from seqloom.apps import demo
from seqloom.classical.vectors import WordVectors
from seqloom.cli.main import app
from seqloom.core.errors import Stopped
from seqloom.interop.word2vec_format import write_vectors
from seqloom.lab import catalogue
from seqloom.runs import train

CODES = {0, 1, 2, 3, 4, 130, 143}
"""Those of docs/errors.md."""

ODD = os.fsdecode(b"caf\xe9")
NUMBERS = ("-1", "0", "9" * 20)
TEXTS = ("", "no-such-choice", ODD, "x" * 5000)
PATHS = ("nowhere/x.txt", "folder", "binary.dat", "socket")
MORE = ("1e400", "nan", " ", "a\nb", "empty.txt", "broken-link")
"""Values that are of the wrong type, negative, nothing, huge, no choice, an odd name, or a path that does not serve.

`MORE` are tried beside models. All paths lie in a folder of the test: what a command is made to write into, it may
destroy.
"""

FILES = ("FILE", "RUN", "FOLDER", "DIR", "MODEL", "PATH", "PICTURE")
"""How the help calls paths, for which a number is a name like any other."""

Command = Any
"""A command or a parameter of the library, which has no public names for its classes."""


def _commands(command: Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Command]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield path, command
    else:
        for name, each in inner.items():
            yield from _commands(each, (*path, name))


COMMANDS = dict(_commands(typer.main.get_command(app)))
NAMES = [" ".join(path) for path in COMMANDS]

LANGUAGE_MODELS = {("generate",), ("perplexity",), ("look", "partition")}
BESIDES = {
    "train": ("--train", "PAIR"),
    "doctor": ("PAIR",),
    "align": ("--train", "PAIR"),
    "shortlist": ("--train", "PAIR"),
    "lab": ("jacobians",),
}
"""What some commands need though the library does not know it."""


@dataclasses.dataclass(frozen=True)
class Stage:
    """Text, and a model of each sort."""

    source: Path
    target: Path
    translator: Path
    language_model: Path
    vectors: Path

    def words(self, path: tuple[str, ...], metavar: str) -> list[object]:
        """Words that serve where a command asks for this."""
        model = self.vectors if path[0] == "vectors" else self.translator
        serving: dict[str, list[object]] = {
            "MODEL": [self.language_model if path in LANGUAGE_MODELS else model],
            "FILE": [self.source],
            "SOURCE": [self.source, self.target],
            "PAIR": [f"{self.source},{self.target}"] if path[0] != "doctor" else [self.source, self.target],
            "KIND": ["onnx"],
            "DIR": ["new-folder"],
            "FOLDER": ["new-folder"],
            "OUT.zip": ["new.zip"],
            "MODEL.zip": ["no-such.zip"],
        }
        first = (metavar or "").replace("[", " ").replace("…", " ").split()
        return serving.get(first[0] if first else "", ["king"])


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """Text, and places where there is no model."""
    source, target = write_pairs(tmp_path_factory.mktemp("text"), "dev", 2)
    nowhere = source.with_name("nowhere")
    return Stage(source, target, nowhere, nowhere, nowhere)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """Text, and a model of each sort."""
    folder = tmp_path_factory.mktemp("stage")
    pair, dev = write_pairs(folder, "train", 40), write_pairs(folder, "dev", 2)
    words = ("text.kind=word", "text.minimum_count=1", "text.size=1000", "model.kind=ngram", "model.order=2")
    lines = (
        [*train_words(pair, dev, folder / "run"), "training.steps=1", "training.validate_every=1"],
        ["train", *words, "--train", pair[0], "--dev", dev[0], "--out", folder / "counted"],
    )
    for line in lines:
        called = call(*line)
        assert called.code == 0, called.err
    vectors = WordVectors(("man", "woman", "king", "queen"), np.eye(4, dtype=np.float32), np.ones(4, np.int64))
    write_vectors(vectors, folder / "vectors.txt")
    return Stage(dev[0], dev[1], folder / "run", folder / "counted", folder / "vectors.txt")


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with all that the paths name, and nothing that would train: a value may happen to be a right one."""

    def enough(*_: object, **__: object) -> NoReturn:
        raise Stopped("enough", 130)

    monkeypatch.chdir(tmp_path)
    for module, name in (
        (train, "_open"),
        (train, "_train"),
        (train, "_fit"),
        (train, "prepare_run"),
        (demo, "sample_pairs"),
    ):
        monkeypatch.setattr(module, name, enough)
    monkeypatch.setattr(catalogue.Experiment, "run", enough)
    Path("folder").mkdir()
    Path("folder", "file").write_text("x")
    Path("binary.dat").write_bytes(bytes(range(256)))
    Path("empty.txt").write_bytes(b"")
    Path("broken-link").symlink_to("nowhere-at-all")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("socket")
    return tmp_path


def _lines(path: tuple[str, ...], stage: Stage, more: Sequence[str]) -> Iterator[list[object]]:
    """Command lines with one wrong value each, beside words that serve for all else."""
    parameters = COMMANDS[path].params
    besides = [
        part for word in BESIDES.get(path[0], ()) for part in (stage.words(path, word) if word == "PAIR" else [word])
    ]
    for tried in parameters:
        if getattr(tried, "is_flag", False):
            continue
        for wrong in (*TEXTS, *PATHS, *more, *(() if tried.metavar in FILES else NUMBERS)):
            line: list[object] = [*path]
            for each in parameters:
                flag = [each.opts[0]] if each.param_type_name == "option" else []
                if each is tried:
                    line += [*flag, wrong]
                elif each.required:
                    line += [*flag, *stage.words(path, each.metavar)]
            is_served = tried.param_type_name == "argument" and not tried.required
            yield line if is_served else [*line, *besides]


def _faults(called: Called) -> list[str]:
    """What is not as promised."""
    faults = {
        f"exit code {called.code}": called.code not in CODES,
        "a traceback": "Traceback" in called.err + called.out,
        "an internal error": "internal error" in called.err,
        "no message": called.code != 0 and not called.err.strip(),
        "a result": called.code != 0 and called.out != "",
    }
    return [fault for fault, is_so in faults.items() if is_so]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("workplace")
def test_no_wrong_value_of_any_option_gives_a_traceback_or_half_a_result(name: str, text: Stage) -> None:
    _try_all(name, text, more=())


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("workplace")
def test_nor_does_one_beside_a_model(name: str, stage: Stage) -> None:
    _try_all(name, stage, more=MORE)


def _try_all(name: str, stage: Stage, *, more: Sequence[str]) -> None:
    found = []
    for line in _lines(tuple(name.split(" ")), stage, more):
        called = call(*line)
        found += [f"{fault}: {line!r}\n{called.err[-400:]}" for fault in _faults(called)]
    assert found == []
    assert Path("socket").is_socket()  # nothing has put a file in its place


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("workplace")
def test_every_command_has_json_which_makes_its_errors_records(name: str) -> None:
    called = call(*name.split(" "), "--json", "--no-such-option")
    assert (called.code, called.out) == (2, "")
    (record,) = called.messages
    assert (record["event"], record["kind"], record["exit_code"]) == ("error", "usage", 2)
    assert "--no-such-option" in record["message"]
    assert "--json" in [name for each in COMMANDS[tuple(name.split(" "))].params for name in each.opts]


def test_the_walk_finds_what_is_wrong() -> None:
    right = Called(2, "", "error: no\n")
    assert _faults(right) == []
    wrong = [
        dataclasses.replace(right, code=7),
        dataclasses.replace(right, err="Traceback (most recent call last):\n"),
        dataclasses.replace(right, err="error: internal error: KeyError\n"),
        dataclasses.replace(right, err="\n"),
        dataclasses.replace(right, out="Guten Tag\n"),
    ]
    assert [len(_faults(each)) for each in wrong] == [1] * 5
    assert {"translate", "vectors nearest", "look beam"} <= set(NAMES)
