"""`seqloom train`: new runs, runs that go on, and lines that make no sense."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cli.calling import call
from cli.conftest import SETTINGS, Tiny, train_words
from seqloom.core.config import resolve
from seqloom.core.events import read_events
from seqloom.core.openmp import WAIT_POLICY
from seqloom.runs.config import RunConfig


def test_a_run_ends_with_a_model_its_scores_and_the_next_commands(tiny: Tiny) -> None:
    out = tiny.called.out
    assert f"Model  {tiny.run / 'model'}" in out
    assert "Steps  4 in" in out
    assert "BLEU" in out
    assert "|bs:40|seed:1" in out
    assert f"seqloom translate {tiny.run / 'model'} FILE" in out


def test_events_are_plain_lines_on_stderr(tiny: Tiny) -> None:
    err = tiny.called.err
    assert err.startswith("60 pairs, about")
    assert "train: 60 of 60 pairs" in err
    assert "step 4: dev loss" in err
    assert "step 2 of 4: loss" in err
    assert "\x1b" not in err
    assert "\r" not in err


def test_files_and_settings_reach_the_run(tiny: Tiny) -> None:
    text = (tiny.run / "config.yaml").read_text()
    assert "width: 16" in text
    assert str(tiny.dev[1]) in text


def test_an_existing_folder_is_refused_with_the_command_to_resume(tiny: Tiny) -> None:
    called = call(*train_words(tiny.train, tiny.dev, tiny.run))
    assert called.code == 2
    assert f"{tiny.run} exists already" in called.err
    assert f"seqloom train --resume {tiny.run}" in called.err


def test_a_run_at_its_end_has_nothing_to_do(tiny: Tiny, tmp_path: Path) -> None:
    called = call("train", "--resume", shutil.copytree(tiny.run, tmp_path / "run"))
    assert called.code == 0
    assert "the run has finished: 4 of 4 steps; continue with training.steps=8\n" in called.err
    assert "continued" not in called.err
    assert called.out.replace(str(tmp_path / "run"), str(tiny.run)) == tiny.called.out


def test_a_run_resumes_with_other_settings_and_prints_json(tiny: Tiny, tmp_path: Path) -> None:
    run = shutil.copytree(tiny.run, tmp_path / "run")
    called = call("train", "--resume", run, "--exact", "--json", "training.steps=6")
    assert called.code == 0, called.err
    (record,) = called.records
    assert record["outcome"]["step"] == 6
    assert record["model"] == str(run / "model")
    assert {score["name"] for score in record["scores"]} == {"BLEU", "chrF2"}
    assert {"resumed", "step", "validation", "finished"} <= {message["event"] for message in called.messages}
    assert [event["step"] for event in read_events(run / "events.jsonl") if event.kind == "resumed"] == [4]


def test_changed_text_is_refused_unless_it_is_allowed(tiny: Tiny, tmp_path: Path) -> None:
    run = shutil.copytree(tiny.run, tmp_path / "run")
    names = {path: tmp_path / path.name for path in (*tiny.train, *tiny.dev)}
    for path, copy in names.items():
        shutil.copy(path, copy)
    config = (run / "config.yaml").read_text()
    for path, copy in names.items():
        config = config.replace(str(path), str(copy))
    (run / "config.yaml").write_text(config)
    for path in (tmp_path / "train.en", tmp_path / "train.de"):
        path.write_text(path.read_text(encoding="utf-8") + "Ja.\n", encoding="utf-8")
    refused = call("train", "--resume", run, "training.steps=5")
    assert refused.code == 3
    assert str(tmp_path / "train.de") in refused.err
    assert "--allow-data-change" in refused.err
    allowed = call("train", "--resume", run, "--allow-data-change", "training.steps=5")
    assert allowed.code == 0, allowed.err
    assert "train: 61 of 61 pairs" in allowed.err


def test_a_folder_means_its_pairs_and_the_run_records_their_names(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [path.read_text(encoding="utf-8").splitlines(keepends=True) for path in tiny.train]
    Path("texts").mkdir()
    for name, begin, end in (("b.talks", 30, 60), ("a", 0, 30), ("a.test", 0, 5)):
        for side, language in zip(lines, ("en", "de"), strict=True):
            Path(f"texts/{name}.{language}").write_text("".join(side[begin:end]), encoding="utf-8")
    Path("texts/README.md").write_text("About these texts.\n")
    Path("dev").mkdir()
    for language in ("en", "de"):
        shutil.copy(f"texts/a.test.{language}", "dev")
    words = ["train", *SETTINGS, "--train", "texts", "--dev", "dev", "--out", "run"]
    asked = call(*words)
    assert (asked.code, "choose the direction: data.source=de" in asked.err) == (2, True)
    called = call(*words, "data.source=en")
    assert called.code == 0, called.err
    assert "texts: 2 pairs of files, en → de; not read: README.md, a.test.de, a.test.en" in called.err
    data = resolve(RunConfig, file=Path("run/config.yaml")).data
    assert data.train == ("texts/a.en", "texts/a.de", "texts/b.talks.en", "texts/b.talks.de")
    assert data.dev == ("dev/a.test.en", "dev/a.test.de")
    assert (data.source, data.target) == ("en", "de")
    Path("texts/c.en").write_text("One more.\n")
    alone = call(*words[:-1], "other", "data.source=en")
    assert (alone.code, "texts: c.en has no partner c.de; add the missing files" in alone.err) == (2, True)


def test_a_folder_of_texts_trains_a_language_model(tiny: Tiny, tmp_path: Path) -> None:
    words = ["train", "model.kind=ngram", "--train", tmp_path / "texts", "--out", tmp_path / "run"]
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "logo.png").write_bytes(b"\x89PNG\0")
    nothing = call(*words)
    assert (nothing.code, "holds no text files" in nothing.err, "not read: logo.png" in nothing.err) == (2, True, True)
    shutil.copy(tiny.train[0], tmp_path / "texts" / "one.en")
    shutil.copy(tiny.train[1], tmp_path / "texts" / "one.de")
    (tmp_path / "texts" / "two.txt").write_text("The dog sleeps.\n" * 20)
    asked = call(*words)
    assert (asked.code, "holds texts in de and en; choose one: data.target=en" in asked.err) == (2, True)
    assert call(*words, "data.target=en").code == 0
    data = resolve(RunConfig, file=tmp_path / "run" / "config.yaml").data
    assert [Path(name).name for name in data.train] == ["one.en", "two.txt"]


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--train", "a.de", "--train", "a.en"], ["--out runs/first"]),
        (["--resume", "run", "--out", "other"], ["--resume run", "--out other"]),
        (["--resume", "run", "--train", "a.de,a.en"], ["--resume run", "--train", "training.steps=20000"]),
        (["--resume", "run", "x.yaml"], ["--resume run", "leave out x.yaml"]),
        (
            ["--resume", "run", "--exact", "--allow-data-change"],
            ["--exact cannot be combined with --allow-data-change"],
        ),
        (["--resume", "nowhere"], ["nowhere: run directory not found"]),
        (["--exact", "--out", "run"], ["--exact requires --resume"]),
        (["--allow-data-change", "--out", "run"], ["--allow-data-change requires --resume"]),
        (["corpus.de", "--out", "run"], ["'corpus.de'", "--train"]),
        (["a.yaml", "b.yml", "--out", "run"], ["a.yaml, b.yml"]),
        (["--out", "run"], ["no training files"]),
        (["--train", "no.de,no.en", "--out", "run"], ["no.de: no such file"]),
        (["--train", "a.de,a.en", "--out", "run", "model.haeds=3"], ["model.haeds", "heads"]),
        (["--train", "a.de,a.en", "--out", "run", "training.steps=-1"], ["training.steps", "-1"]),
        (["--train", "a.de,a.en", "--out", "run", "device=cuda:x"], ["cuda:x"]),
        (["no.yaml", "--out", "run"], ["no.yaml: no such file"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_invalid_arguments_are_refused_with_a_message(
    words: list[str], parts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.de", "a.en"):
        Path(name).write_text("Hallo.\n" * 20)
    called = call("train", *words)
    assert (called.code, called.out) == (2, "")
    assert [part for part in parts if part not in called.err] == []
    assert not Path("run").exists()


def test_files_of_different_length_are_a_data_error(tmp_path: Path) -> None:
    (tmp_path / "a.de").write_text("eins\nzwei\n")
    (tmp_path / "a.en").write_text("one\n")
    called = call("train", "--train", f"{tmp_path}/a.de,{tmp_path}/a.en", "--out", tmp_path / "run", "--json")
    assert called.code == 3
    record = called.messages[-1]
    assert (record["event"], record["exit_code"]) == ("error", 3)
    assert "2" in record["message"]
    assert "a.en" in record["message"]


def test_a_config_file_gives_the_settings_and_the_command_line_wins(tiny: Tiny, tmp_path: Path) -> None:
    words = ["training.steps=1", "seed=7", "training.validate_every=1"]
    called = call("train", tiny.run / "config.yaml", *words, "--out", tmp_path / "again", "--json")
    assert called.code == 0, called.err
    assert called.records[0]["outcome"]["step"] == 1
    record = json.loads((tmp_path / "again" / "run.json").read_text())
    assert record["seed"] == 7


def test_a_run_reports_and_records_how_its_threads_wait(tiny: Tiny, tmp_path: Path) -> None:
    out = tmp_path / "run"
    called = call("train", tiny.run / "config.yaml", "training.steps=1", "training.threads=1", "--out", out, "--json")
    assert called.code == 0, called.err
    shown = next(event for event in called.messages if event["event"] == "threads")
    record = json.loads((out / "run.json").read_text())
    policy = {"reason": WAIT_POLICY.reason, "settings": dict(WAIT_POLICY.settings)}
    for values in (shown, record):
        assert (values["threads"], values["wait_policy"]) == (1, policy)


def test_missing_files_are_reported_before_heavy_imports(tmp_path: Path) -> None:
    text, run = tmp_path / "u.de", tmp_path / "run"
    text.write_text("Ja.\n")
    lines = [
        ["--train", f"{tmp_path}/nix.en", "--train", f"{text}", "--out", f"{run}"],
        ["--train", f"{tmp_path}/*.en", "--train", f"{text}", "--out", f"{run}"],
        ["--train", f"{text},{text}", "--dev", f"{tmp_path}/dev.en", "--out", f"{run}"],
        [f"{tmp_path}/run.yaml", "--out", f"{run}"],
        ["--resume", f"{run}"],
    ]
    program = f"""
import sys
from seqloom.cli.main import execute
print([execute(["train", *words]) for words in {lines!r}], "torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[2, 2, 2, 2, 2] False\n"
    assert done.stderr.split("\n")[:-1] == [
        f"error: {tmp_path}/nix.en: no such file",
        f"error: {tmp_path}/*.en: no file has such a name",
        f"error: {tmp_path}/dev.en: no such file",
        f"error: {tmp_path}/run.yaml: no such file",
        f"error: {run}: run directory not found",
    ]
    assert not run.exists()


def test_a_file_that_is_not_there_is_a_problem_in_json(tmp_path: Path) -> None:
    file = tmp_path / "nope.de"
    called = call("train", "--train", file, "--out", tmp_path / "run", "--json")
    (record,) = called.messages
    assert (record["kind"], record["message"]) == ("usage", f"{file}: no such file")
    assert record["problems"] == [{"message": "no such file", "file": str(file), "line": None, "column": None}]


def test_a_pattern_expanded_by_the_shell_is_recognised(tmp_path: Path) -> None:
    files = [tmp_path / f"part.{name}.txt" for name in ("aa", "ab")]
    for file in files:
        file.write_text("Ja.\n")
    called = call("train", "model.kind=ngram", "--train", *files, "--out", tmp_path / "run")
    assert called.code == 2
    assert f"{str(files[1])!r}: --train takes one name" in called.err
    assert f"--train '{tmp_path}/*.txt', or repeat --train for each file" in called.err
    other = call("train", "--train", files[0], tmp_path / "none.txt", "--out", tmp_path / "run")
    assert "is neither a config file (.yaml) nor a setting" in other.err


def test_without_validation_the_default_patience_is_ignored(tiny: Tiny, tmp_path: Path) -> None:
    words = [word for word in train_words(tiny.train, tiny.dev, tmp_path / "run") if "validate_every" not in str(word)]
    words += ["training.validate_every=0", "training.steps=2"]
    refused = call(*words, "training.patience=3", "training.log_every=1")
    assert refused.code == 2
    said = "training: validate_every is 0, but patience=3 looks at the dev loss; set validate_every above 0"
    assert refused.err == f"error: override 'training.validate_every=0': {said}\n"
    called = call(*words)
    assert called.code == 0, called.err
    assert "patience: 0\n" in (tmp_path / "run" / "config.yaml").read_text()
