"""What holds for every command: help, versions, errors and exit codes."""

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import typer

from cli.calling import call
from seqloom.cli import (
    align,
    average,
    classify,
    config,
    demo,
    distill,
    embed,
    evaluate,
    forecast,
    generate,
    info,
    lab,
    main,
    perplexity,
    retrieve,
    score,
    tag,
    train,
    transcribe,
    translate,
)
from seqloom.core.errors import DataError, ModelError, Problem, Stopped, UsageError
from seqloom.version import __version__

MODULES = (
    *(align, average, classify, config, demo, distill, embed, evaluate, forecast, generate, info, lab, perplexity),
    *(retrieve, score, tag, train, transcribe, translate),
)
COMMANDS = tuple(module.__name__.rpartition(".")[2] for module in MODULES)
HEAVY = ("torch", "matplotlib", "sacrebleu", "numpy", "tokenizers", "seqloom.core.config", "seqloom.runs.train")


def test_help_of_every_command_imports_nothing_heavy() -> None:
    program = f"""
import sys
from seqloom.cli.main import execute
for words in [["--help"], *([name, "--help"] for name in {COMMANDS!r})]:
    assert execute(words) == 0, words
print("heavy:", [name for name in {HEAVY!r} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("heavy: []\n")


def test_an_empty_file_is_refused_before_anything_slow(tmp_path: Path) -> None:
    (tmp_path / "full.en").write_text("Yes.\n", encoding="utf-8")
    for name in ("empty.tmx", "empty.po", "empty.tsv", "empty.de", "empty.xlf"):
        (tmp_path / name).write_bytes(b"")
    lines = [
        *(["train", "--train", name] for name in ("empty.tmx", "empty.po", "empty.tsv", "full.en,empty.de")),
        ["train", "--train", "full.en,full.en", "--dev", "empty.tsv"],
        *(["translate", "run", name] for name in ("empty.tmx", "empty.xlf")),
        ["align", "--train", "full.en,empty.de"],
        ["doctor", "empty.tmx"],
    ]
    code = f"""
import sys
from seqloom.cli.main import execute
for words in {lines}:
    print(execute(words), "torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.splitlines() == ["3 False"] * len(lines)
    errors = done.stderr.splitlines()
    assert len(errors) == len(lines)
    assert all(": empty, expected at least one " in error for error in errors)


def test_an_option_that_takes_one_value_is_refused_if_it_comes_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a command that is not refused would write here
    for path, command in _commands(typer.main.get_command(main.app)):
        for option in command.params:
            if option.param_type_name != "option" or option.multiple or option.is_flag:
                continue
            again = [f"{option.opts[0]}=2"] if option.nargs == 1 else [option.opts[0], *["2"] * option.nargs]
            called = call(*path, option.opts[0], *["1"] * option.nargs, *again)
            assert (called.code, called.out) == (2, "")
            assert f"{option.opts[0]} takes one value, but was given 2 times" in called.err
    for words in (["--help", "--out", "a", "--out", "b"], ["--", "--out", "a", "--out", "b"]):
        assert "takes one value" not in call("translate", *words).err
    assert "--binary/--text takes one value" in call("vectors", "export", "a", "b", "--binary", "--text").err


def _commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, each in command.commands.items():
        yield from _commands(each, (*path, name)) if hasattr(each, "commands") else [((*path, name), each)]


def test_folders_pages_and_pictures_cannot_go_to_standard_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tried = 0
    for path, command in _commands(typer.main.get_command(main.app)):
        names = [each.opts[0] for each in command.params if each.name in ("out", "html")]
        for name in names if path not in (("translate",), ("align",)) else ():
            called = call(*path, *([name, "-"] if name.startswith("--") else ["model", "-"]))
            assert (called.code, called.out) == (2, "")
            assert "cannot be standard output (-) here" in called.err
            tried += 1
    assert tried > 10
    assert list(tmp_path.iterdir()) == []


def test_help_without_a_command_lists_all_of_them() -> None:
    called = call()
    assert called.code == 0
    assert [name for name in COMMANDS if f" {name} " not in called.out] == []


@pytest.mark.parametrize("module", MODULES, ids=COMMANDS)
def test_every_example_in_the_help_can_be_parsed(module: object) -> None:
    text = str(vars(module)["EXAMPLES"]).replace("[cyan]", "").replace("[/cyan]", "")
    lines = [line for line in text.split("\n\n") if "seqloom " in line]
    assert lines
    group = typer.main.get_command(main.app)
    for line in lines:
        words = shlex.split(line.partition("seqloom ")[2].partition(" > ")[0])
        command = group.commands[words[0]]  # type: ignore[attr-defined]
        command.make_context(words[0], words[1:])


def test_help_of_each_command_shows_its_examples() -> None:
    for name in COMMANDS:
        called = call(name, "--help")
        assert called.code == 0
        assert "Examples" in called.out
        assert f"seqloom {name}" in called.out


def test_version() -> None:
    assert call("--version").out == f"seqloom {__version__}\n"
    as_module = [sys.executable, "-m", "seqloom", "--version"]
    done = subprocess.run(as_module, capture_output=True, text=True, check=True)
    assert done.stdout == f"seqloom {__version__}\n"


def test_a_misspelt_command_names_the_nearest() -> None:
    called = call("trian")
    assert called.code == 2
    assert "trian" in called.err
    assert "train" in called.err
    assert "seqloom --help" in called.err


def test_an_unknown_flag_is_a_usage_error_that_points_to_the_help() -> None:
    called = call("train", "--nosuch")
    assert (called.code, called.out) == (2, "")
    assert "--nosuch" in called.err
    assert "seqloom train --help" in called.err


@pytest.mark.parametrize("words", [("translate", "model", "--align"), ("look", "zipf", "--out")])
def test_an_option_without_its_value_points_to_the_help_of_the_command(words: tuple[str, ...]) -> None:
    name = " ".join(word for word in words if word not in ("model", words[-1]))
    called = call(*words)
    assert (called.code, f"see: seqloom {name} --help" in called.err) == (2, True)


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (UsageError("no folder 'x'"), 2, "error: no folder 'x'\n"),
        (DataError("bad line"), 3, "error: bad line\n"),
        (ModelError("damaged"), 4, "error: damaged\n"),
        (Stopped("stopped by SIGTERM after step 3.", 143), 143, "stopped by SIGTERM after step 3.\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (PermissionError(13, "Permission denied", "secret.de"), 2, "error: secret.de: Permission denied\n"),
        (OSError(28, "No space left on device"), 1, "error: No space left on device\n"),
        (BrokenPipeError(32, "Broken pipe"), 1, "error: Broken pipe\n"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_errors_become_a_sentence_and_the_exit_code_of_their_class(error: BaseException, code: int, text: str) -> None:
    with mock.patch.object(main, "_invoke", side_effect=error):
        called = call("info", "x")
    assert (called.code, called.err) == (code, text)


def test_an_unexpected_exception_is_called_an_internal_error_without_a_traceback() -> None:
    with mock.patch.object(main, "_invoke", side_effect=ZeroDivisionError("division by zero")):
        called = call("info", "x")
    assert called.code == 1
    assert "internal error: ZeroDivisionError: division by zero" in called.err
    assert "--debug" in called.err
    assert "Traceback" not in called.err


@pytest.mark.parametrize("words", [("--debug", "info", "nowhere"), ("info", "nowhere", "--debug")])
def test_debug_shows_the_traceback_in_any_position(words: tuple[str, ...]) -> None:
    called = call(*words)
    assert called.code == 2
    assert "Traceback" in called.err
    assert called.err.endswith("error: nowhere: model directory not found\n")


def test_with_json_an_error_is_a_record_with_its_problems() -> None:
    error = DataError("look:", problems=[Problem("invalid UTF-8 byte 0xE9", "a.de", 3, 7)])
    with mock.patch.object(main, "_invoke", side_effect=error):
        called = call("info", "x", "--json")
    assert json.loads(called.err) == {
        "event": "error",
        "kind": "data",
        "message": "look:\na.de:3:7: invalid UTF-8 byte 0xE9",
        "exit_code": 3,
        "problems": [{"message": "invalid UTF-8 byte 0xE9", "file": "a.de", "line": 3, "column": 7}],
    }


def test_control_characters_in_a_message_reach_no_terminal() -> None:
    with mock.patch.object(main, "_invoke", side_effect=DataError("a\x1b[31mb\u202ec")):
        assert call("info", "x").err == "error: a\\u001b[31mb\\u202ec\n"
