"""Settings and command lines that cannot be right: each is refused with its place, before any data is read."""

import os
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import pytest
import torch

from cli.calling import Called, call, into_closed_pipe
from seqloom.cli import main
from seqloom.core.config import MAX_CONFIG_BYTES, describe_fields, resolve
from seqloom.core.errors import ConfigError
from seqloom.runs.config import RunConfig

KINDS = (
    *("transformer", "seq2seq", "rnn_lm", "gpt", "elmo", "vae", "bert", "ngram", "markov", "hmm", "word2vec"),
    *("dictionary", "aligner", "channel", "phrases"),
)


def refused(text: bytes, folder: Path) -> str:
    """What `seqloom config` says of a file, without the folder; it must refuse it as usage and print nothing."""
    file = folder / "run.yaml"
    file.write_bytes(text)
    called = call("config", file)
    assert (called.code, called.out) == (2, ""), called
    return called.err.replace(f"{folder}{os.sep}", "").removeprefix("error: ")


# --- YAML ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"data: {target: true}\n", 'run.yaml:1: data.target = true: expected text or null; put it in quotes: "true"'),
        (b"data:\n  source: 12\n", 'run.yaml:2: data.source = 12: expected text or null; put it in quotes: "12"'),
        (b"training: {steps: 12:30}\n", "run.yaml:1: training.steps = '12:30': expected whole number"),
        (b"training: {steps: 010}\n", "write it without quotes and without leading zeros"),
        (b'training: {learning_rate: "1e-3"}\n', "write it without quotes"),
        (b"seed: 1\n'seed': 2\n", "run.yaml:2: seed is given twice, first in line 1; keep one of them"),
        (b"model:\n  haeds: 8\n", "run.yaml:2: unknown key model.haeds (value 8); did you mean model.heads?"),
        (b"model.width: 8\n", "run.yaml:1: unknown key model.width (value 8); a dot is for the command line"),
        (b"model: transformer\n", "run.yaml:1: model = transformer: expected section with kind"),
        (b"seed: 1\nmodel:\n  <<: {width: 8}\n", "run.yaml:3: a merge key (<<) is not supported"),
        (b"a: &a [x, x]\nb: [*a, *a]\n", "run.yaml:1: not valid YAML: an anchor (&a) is not supported"),
        (b'seed: !!python/object/apply:os.system ["true"]\n', "run.yaml:1: the tag 'tag:yaml.org,2002:python/object"),
        (b"? !!python/name:os.system seed\n: 1\n", "run.yaml:1: the tag 'tag:yaml.org,2002:python/name:os.system'"),
        (b"seed: !!null 5\n", "run.yaml:1: '5' cannot be read as 'null'"),
        (b"seed: 1\n---\nseed: 2\n", "run.yaml:2: not valid YAML: but found another document"),
        (b"- seed\n", "run.yaml:1: settings are keys with values, such as `seed: 1`; found [seed]"),
        (b"seed=3\n", "run.yaml:1: settings are keys with values, such as `seed: 1`; found seed=3"),
        (b"model:\n\twidth: 8\n", "run.yaml:2: not valid YAML: found character '\\t'"),
        (b"seed: 1\ndata: {source: caf\xe9}\n", "run.yaml:2: settings must be UTF-8 text; the byte 0xE9 is invalid"),
        ("seed: 1\n".encode("utf-16"), "run.yaml:1: settings must be UTF-8 text, and this is UTF-16"),
        (b'data: {source: "\\ud800"}\n', "run.yaml:1: '\\ud800' holds half of a character"),
        (b'data: {train: ["a\\0b"]}\n', "run.yaml:1: 'a\\x00b' holds a NUL character"),
        ('data: {source: "a\u2028b\u0085c"}\nseed: x\n'.encode(), "run.yaml:2: seed = x"),
        (b'"a\\nerror: b": 1\n', 'run.yaml:1: unknown key "a\\nerror: b" (value 1)'),
        (b"model:\n" + b"[" * 100_000, "not valid YAML: "),
        (b"\n".join(b" " * depth + b"a:" for depth in range(100)), "run.yaml:41: nested too deeply"),
    ],
)  # fmt: skip
def test_a_settings_file_with_a_trap_is_refused_with_its_line(text: bytes, told: str, tmp_path: Path) -> None:
    assert told in refused(text, tmp_path)


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        (b"data: {target: no}\n", "  target: 'no'\n"),
        (b"training: {learning_rate: 1e-3}\n", "  learning_rate: 0.001\n"),
        (b"\xef\xbb\xbfseed: 5\n", "\nseed: 5\n"),
        (b"device: cpu\r\nseed: 6\r\n", "\nseed: 6\n"),
        (b"# nothing\n", "\nseed: 1\n"),
    ],
)
def test_what_other_readers_misread_is_read_as_it_was_meant(text: bytes, setting: str, tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_bytes(text)
    called = call("config", file)
    assert called.code == 0, called.err
    assert setting in called.out


def test_a_settings_file_of_100_megabytes_is_refused_unread(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    with file.open("wb") as stream:
        stream.truncate(100 << 20)
    called = call("config", file)
    assert called.code == 2
    assert f"{file} is larger than {MAX_CONFIG_BYTES:,} bytes; is this a file of settings?" in called.err


# --- numbers ---------------------------------------------------------------------------------------------------------


def trained(*settings: str) -> Called:
    """What `seqloom train` says of these settings and of invalid bytes, which are refused as soon as they are read."""
    for name in ("bytes.de", "bytes.en"):
        Path(name).write_bytes(b"\xff\n")
    return call("train", "--train", "bytes.de,bytes.en", "--out", "run", *settings)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (["model.width=10", "model.heads=4"], "heads"),
        (["model.dropout_rate=1.0"], "model.dropout_rate = 1.0: expected number, at least 0, below 1"),
        (["search.beam=0"], "0 is too small; give 1 or more"),
        (["training.steps=-1"], "training.steps = -1: expected whole number, at least 1"),
        (["training.learning_rate=.nan"], "training.learning_rate = .nan: expected number, above 0; it must be finite"),
        (["training.learning_rate=1e999"], "training.learning_rate = .inf: expected number"),
        (["model.width=1000000000000"], "expected whole number, at least 2, at most 100,000"),
        (["model.kind=rnn_lm", "model.layers=1000000000000"], "model.layers = 1000000000000: expected whole number"),
        (["model.kind=seq2seq", "model.encoder_layers=1000000000000"], "at most 1,000"),
        ([f"seed={10**30}"], "is too large a number; give at most 18 digits"),
        (["evaluation.resamples=1000000000"], "at most 100,000"),
        (["device=cuda"], "no GPU found; use device=cpu"),
    ],
)
def test_a_number_out_of_range_is_refused_before_data_is_read(
    settings: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    called = trained(*settings)
    assert (called.code, called.out) == (2, "")
    assert told in called.err
    assert "bytes.de" not in called.err
    assert "bytes.de:1" in trained("seed=2").err  # with right settings it is
    assert sorted(os.listdir(tmp_path)) == ["bytes.de", "bytes.en"]  # noqa: PTH208 - names are enough


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            "model.kind=rnn_lm task.objective.kind=nce task.objective.log_z=learned",
            "set model.learns_log_z=true as well, or task.objective.log_z=fixed",
        ),
        ("model.kind=elmo task.objective.kind=nce task.objective.log_z=learned", "or task.objective.log_z=fixed"),
        (
            "model.kind=rnn_lm model.output=adaptive model.tying=none task.objective.kind=sampled",
            "set task.objective.kind=full, or model.output=full",
        ),
        (
            "model.kind=rnn_lm model.output=adaptive model.tying=none task.objective.smoothing=0.1",
            "set task.objective.smoothing=0, or model.output=full",
        ),
        ("model.kind=seq2seq model.attention=none search.coverage=0.5", "leave search.coverage out"),
        ("model.kind=seq2seq model.attention=none search.unknown=copy", "leave search.unknown out"),
        ("model.kind=seq2seq search.heads=1/0", "leave search.heads out"),
        (
            "search.shortlist=20",
            "search.shortlist=20 needs a lexicon, which `seqloom shortlist` adds to a finished model",
        ),
        ("search.mode=fairseq search.coverage=0.2", "set search.coverage=0, or mode=seqloom"),
        ("search.mode=marian search.reward=1.0", "set search.reward=0, or mode=seqloom"),
    ],
)
def test_settings_of_two_sections_that_do_not_fit_are_refused_before_data_is_read(
    settings: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    called = trained(*settings.split())
    assert (called.code, called.out) == (2, "")
    assert told in called.err
    assert "bytes.de" not in called.err
    assert not Path("run").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_no_number_among_the_settings_may_be_infinite_none_or_beyond_64_bits(kind: str) -> None:
    fields = [doc for doc in describe_fields(RunConfig) if "number" in doc.type and "list" not in doc.type]
    own = [doc for doc in fields if doc.kind in (None, kind) and not doc.path.startswith("task.objective")]
    assert len(own) > 50
    for doc in own:
        for value in (".nan", ".inf", "1" * 19):
            with pytest.raises(ConfigError, match=r"expected|give|too large|finite|unknown key"):
                resolve(RunConfig, overrides=[f"model.kind={kind}", f"{doc.path}={value}"])


# --- the command line ------------------------------------------------------------------------------------------------


def test_with_json_an_error_of_settings_is_a_record_with_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("seed: x\nmodel:\n  haeds: 8\n")
    called = call("config", file, "--json")
    assert (called.code, called.out) == (2, "")
    (record,) = called.messages
    assert (record["event"], record["kind"], record["exit_code"]) == ("error", "config", 2)
    assert [(problem["file"], problem["line"]) for problem in record["problems"]] == [(str(file), 3), (str(file), 1)]
    assert record["problems"][0]["message"] == "unknown key model.haeds (value 8); did you mean model.heads?"


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (KeyboardInterrupt(), "stopped", 130),
        (ZeroDivisionError("oh"), "internal", 1),
        (MemoryError(), "memory", 1),
        (PermissionError(13, "Permission denied", "x"), "system", 2),
        (OSError(36, "File name too long", "x" * 5000), "system", 2),
        (RecursionError("too deep"), "internal", 1),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_with_json_every_error_has_a_kind(error: BaseException, kind: str, code: int) -> None:
    with mock.patch.object(main, "_invoke", side_effect=error):
        called = call("info", "x", "--json")
    (record,) = called.messages
    assert (record["kind"], record["exit_code"], called.code) == (kind, code, code)
    assert len(record["message"]) < 300


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["average", "a", "--out", ""], "--out is empty; give a value or omit the option"),
        (["average", "a", "--out="], "--out is empty"),
        (["translate", "", "x"], "empty argument; give a value or omit it"),
        (["translate", "m", "--nbest", "1.5"], "--nbest"),
        (["config", "x" * 5000 + ".yaml"], "File name too long"),
        (["config", "a\nerror: b.yaml"], "error: a\\nerror: b.yaml: no such file\n"),
        (["config", "two words.yaml"], "two words.yaml: no such file"),
        (["config", "--", "-dash.yaml"], "-dash.yaml: no such file"),
        (["config", os.fsdecode(b"caf\xe9.yaml")], "caf\\udce9.yaml: no such file"),
    ],
)
def test_odd_words_are_refused_in_a_sentence(
    words: Sequence[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    called = call(*words)
    assert (called.code, called.out) == (2, "")
    assert told in called.err
    assert len(called.err) < 1000


def test_an_empty_prompt_is_no_mistake() -> None:
    assert "nowhere" in call("generate", "nowhere", "--prompt", "").err


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["look"], ["--version"], ["config", "--fields"]])
def test_output_that_nobody_reads_ends_quietly(words: list[str]) -> None:
    called = into_closed_pipe(*words)
    assert (called.code, called.err) == (0, "")
