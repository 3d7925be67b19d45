"""`seqloom lab` and `seqloom look gradients`: what is printed, what is written, what is refused."""

import errno
import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from cli.calling import call
from cli.conftest import Tiny
from seqloom.cli import look
from seqloom.core.config import resolve
from seqloom.lab.catalogue import EXPERIMENTS
from seqloom.runs.config import RunConfig
from seqloom.runs.loading import build_model, load
from seqloom.runs.model_dir import save_model
from seqloom.training.weights import weights_of

# --- lab -------------------------------------------------------------------------------------------------------------


def test_without_a_name_all_experiments_are_listed_with_question_and_duration() -> None:
    called = call("lab")
    assert (called.code, called.err) == (0, "")
    for experiment in EXPERIMENTS:
        (line,) = [line for line in called.lines if line.startswith(f"{experiment.name} ")]
        assert experiment.question in line
        assert " s " in line or " min " in line
    assert [record["name"] for record in call("lab", "--json").records] == [each.name for each in EXPERIMENTS]


def test_the_list_needs_nothing_heavy() -> None:
    program = "import sys; from seqloom.cli.main import execute; execute(['lab']); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("False\n")


def test_an_experiment_prints_its_sentences_and_files_and_says_how_long_it_takes(tmp_path: Path) -> None:
    out = tmp_path / "new" / "folder"
    called = call("lab", "spectra", "--quick", "--out", out)
    assert called.code == 0, called.err
    assert called.lines[0].startswith("A rotation has all")
    written = [Path(line.strip()) for line in called.lines if line.startswith("  ")]
    assert sorted(written) == sorted(out.iterdir())
    assert {path.name for path in written} >= {"starts.json", "starts.png", "starts.svg", "steps.json"}
    assert "one step of a GRU: 3 of 7, about " in called.err
    assert called.err.endswith("7 of 7, about 0 s left\n")
    assert called.lines[-1].startswith("These numbers are not results: --quick")


def test_a_quick_run_has_a_folder_of_its_own_and_is_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("lab", "step-bound", "--quick").code == 0
    full = call("lab", "step-bound")
    assert "no results" not in full.out
    for folder, is_quick in (("step-bound-quick", True), ("step-bound", False)):
        assert json.loads((tmp_path / "lab" / folder / "step-bound.json").read_text())["quick"] is is_quick


def test_with_json_each_finding_is_a_record(tmp_path: Path) -> None:
    called = call("lab", "step_bound", "--quick", "--seed", 3, "--out", tmp_path, "--json")
    (record,) = called.records
    assert (record["name"], record["seed"], called.err) == ("step-bound", 3, "")
    assert record["files"] == [str(tmp_path / f"step-bound.{ending}") for ending in ("json", "png", "svg")]


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["vanising"], "'vanising' is not an experiment; did you mean vanishing?"),
        (["qqqq"], "'qqqq' is not an experiment; available: vanishing, "),
        (["--quick"], "--quick requires an EXPERIMENT"),
        (["--out", "x"], "--out x requires an EXPERIMENT"),
        (["--seed", "3"], "--seed 3 requires an EXPERIMENT"),
        (["gates", "--seed", "-1"], "--seed"),
        (["gates", "--out", ""], "--out is empty; give a value"),
    ],
)
def test_odd_words_are_usage_errors(words: list[str], part: str) -> None:
    called = call("lab", *words)
    assert (called.code, called.out) == (2, "")
    assert part in called.err


def test_a_file_in_the_place_of_the_folder_is_refused_before_the_experiment(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")
    called = call("lab", "gates", "--out", tmp_path / "taken")
    assert (called.code, called.err) == (2, f"error: {tmp_path / 'taken'} is a file; --out names a folder\n")


@pytest.mark.parametrize("ending", ["json", "png", "svg"])
def test_a_folder_in_the_place_of_a_file_is_refused_before_the_experiment(tmp_path: Path, ending: str) -> None:
    (tmp_path / f"step-bound.{ending}").mkdir()
    called = call("lab", "step-bound", "--out", tmp_path)
    assert (called.code, called.out) == (2, "")
    assert (
        f"step-bound.{ending} is a folder, but a file may have to be written there; name another folder" in called.err
    )


def test_a_folder_that_takes_no_file_is_refused_before_the_experiment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*, dir: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(dir))

    monkeypatch.setattr("seqloom.cli.lab.TemporaryFile", refuse)
    called = call("lab", "step-bound", "--out", tmp_path)
    assert (called.code, called.out) == (2, "")
    assert f"cannot write into {tmp_path}: Permission denied; name another folder with --out" in called.err
    assert not list(tmp_path.iterdir())


# --- look gradients --------------------------------------------------------------------------------------------------


def test_gradients_of_a_run_are_drawn_from_its_own_dev_set(tiny: Tiny, tmp_path: Path) -> None:
    picture = tmp_path / "new" / "folder" / "gradients.png"
    called = call("look", "gradients", tiny.run, "--lines", 3, "--out", picture)
    assert called.code == 0, called.err
    assert called.lines[0].startswith("Over 3 pairs, the gradient of a loss ")
    assert called.lines[1:] == [f"drawn in {picture}"]
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_gradients_of_a_given_pair_as_json(tiny: Tiny, tmp_path: Path) -> None:
    picture = tmp_path / "gradients.svg"
    words = ["The dog sleeps.", "Der Hund schläft."]
    (record,) = call("look", "gradients", tiny.run / "model", *words, "--out", picture, "--json").records
    rows, columns = len(record["shown"]["target"]), len(record["shown"]["source"])
    assert [len(row) for row in record["shown"]["by_source"]] == [columns] * rows
    assert (record["pairs"], record["picture"]) == (1, str(picture))


def test_a_recurrent_model_gets_a_second_picture_with_its_spectra(tiny: Tiny, tmp_path: Path) -> None:
    before = load(tiny.run)
    sizes = ["model.width=8", "model.embedding_width=8", "model.encoder_layers=1", "model.decoder_layers=1"]
    config = resolve(RunConfig, overrides=["model.kind=seq2seq", *sizes])
    weights = weights_of(build_model(config.model, before.tokenizers, seed=1))
    save_model(tmp_path / "model", config, tokenizers=before.tokenizers, weights=weights, card=before.card)
    alone = call("look", "gradients", tmp_path / "model", "--out", tmp_path / "g.png")
    assert (alone.code, "does not contain its dev set" in alone.err) == (2, True)
    files = ["--source", tiny.dev[0], "--reference", tiny.dev[1], "--lines", 2]
    called = call("look", "gradients", tmp_path / "model", *files, "--out", tmp_path / "g.png")
    assert called.code == 0, called.err
    assert called.lines[0].startswith("Over 2 pairs")
    assert "12 state matrices have a spectral radius below 1" in called.lines[2]
    assert "A whole step in the middle of the sentence drawn has a radius from " in called.lines[2]
    assert (tmp_path / "g-spectra.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "code", "part"),
    [
        (["one sentence"], 2, "expected a sentence and its translation, got 1 arguments"),
        (["--source", "a.en"], 2, "--source a.en requires --reference FILE"),
        (["--reference", "a.de"], 2, "--reference a.de requires --source FILE"),
        (
            ["a", "b", "--source", "a.en", "--reference", "a.de"],
            2,
            "cannot be combined with sentences on the command line",
        ),
        (["--out", "g.doc"], 2, "g.doc is neither .png nor .svg"),
        ([" ", "b"], 3, "each of the 1 pairs has a blank side"),
    ],
)
def test_odd_sentences_are_refused(tiny: Tiny, words: list[str], code: int, part: str) -> None:
    called = call("look", "gradients", tiny.run, *words)
    assert (called.code, called.out) == (code, "")
    assert part in called.err


@pytest.mark.parametrize(("kind", "extra"), [("rnn_lm", []), ("elmo", []), ("elmo", ["model.input=characters"])])
def test_gradients_of_a_recurrent_language_model(kind: str, extra: list[str], tiny: Tiny, tmp_path: Path) -> None:
    sizes = ["model.width=8", "training.steps=1", "training.warmup=1", "text.kind=word"]
    trained = call("train", "--train", tiny.train[0], "--out", tmp_path / "run", f"model.kind={kind}", *sizes, *extra)
    assert trained.code == 0, trained.err
    called = call("look", "gradients", tmp_path / "run", "--lines", 3, "--out", tmp_path / "g.png")
    assert called.code == 0, called.err
    assert called.lines[0].startswith("Over 3 lines, the gradient of a loss ")
    assert "steps back in the text" in called.lines[0]
    assert "state matrices have a spectral radius below 1" in called.lines[2]
    assert "A whole step in the middle of the sentence drawn" in called.lines[2]
    assert (tmp_path / "g-spectra.png").exists()
    one = call("look", "gradients", tmp_path / "run/model", "The dog sleeps.", "--out", tmp_path / "g.svg", "--json")
    shown = one.records[0]["shown"]
    assert (len(shown["text"]), [len(row) for row in shown["by_text"]]) == (5, [5] * 5)
    two = call("look", "gradients", tmp_path / "run", "The dog.", "Der Hund.")
    assert (two.code, "a language model takes no" in two.err) == (2, True)


def test_a_counted_model_has_no_gradients(tiny: Tiny, tmp_path: Path) -> None:
    trained = call("train", "--train", tiny.train[0], "--out", tmp_path / "run", "model.kind=ngram")
    assert trained.code == 0, trained.err
    called = call("look", "gradients", tmp_path / "run", "--out", tmp_path / "g.png")
    assert (called.code, "so it has no gradients: it is a language model of kind ngram" in called.err) == (2, True)


def test_every_example_in_the_help_can_be_parsed() -> None:
    text = look.GRADIENT_EXAMPLES.replace("[cyan]", "").replace("[/cyan]", "")
    lines = [line for line in text.split("\n\n") if line.startswith("seqloom look gradients ")]
    assert len(lines) == 4
    command = typer.main.get_command(look.app).commands["gradients"]  # type: ignore[attr-defined]
    for line in lines:
        command.make_context("gradients", shlex.split(line)[3:])


def test_a_file_in_the_place_of_a_folder_is_refused_before_the_model_is_read(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")
    for command in (["gradients", "no-model"], ["attention", "no-model", "A sentence."]):
        called = call("look", *command, "--out", tmp_path / "taken" / "x.png")
        assert (called.code, called.out) == (2, "")
        assert f"{tmp_path / 'taken'} is a file, not a folder" in called.err


def test_without_a_picture_to_draw_the_help_is_shown() -> None:
    called = call("look")
    assert (called.code, called.err) == (0, "")
    assert "gradients" in called.out
