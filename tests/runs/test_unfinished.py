"""Runs without a model: what was stopped, or is still training, is used by its best checkpoint."""

import os
import shutil
import signal
import tempfile
from dataclasses import replace
from pathlib import Path
from threading import Event as Flag
from threading import Thread

import pytest
import torch
from safetensors.torch import load_file

from cli.calling import call
from core.limits import files_up_to
from seqloom.apps.language_model import LanguageModel
from seqloom.apps.lexicon import fit_lexicon
from seqloom.apps.translator import Translator
from seqloom.core.errors import ModelError, SeqloomError, SeqloomWarning, Stopped, UsageError, exit_code_of
from seqloom.core.events import Event
from seqloom.runs.loading import find_model, load
from seqloom.runs.model_dir import read_card
from seqloom.runs.train import train
from seqloom.selfcheck.run import selfcheck
from seqloom.training.checkpoint import Disk, checkpoint_folder, prune, read_checkpoint, write_checkpoint
from tiny_runs import TINY
from training.locks import held

Corpus = tuple[list[str], list[str]]


def stop_at(step: int, run: Path, settings: list[str], corpus: Corpus) -> Path:
    """A run that Ctrl-C has stopped after a step."""

    def stop(event: Event) -> None:
        if event.kind == "saved" and event["step"] == step:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Stopped):
        train(None, settings, out=run, train=corpus[0], dev=corpus[1], listener=stop)
    return run


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory, corpus: Corpus) -> Path:
    return stop_at(3, tmp_path_factory.mktemp("runs") / "stopped", list(TINY), corpus)


def test_a_stopped_run_translates_by_its_best_checkpoint_with_a_warning(stopped: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in stopped.rglob("*")}
    sentence = (
        rf"{stopped} has not finished: using its best checkpoint, step 3 of 6 \(dev loss [\d.]+\)\. Finish it with: "
    )
    with pytest.warns(SeqloomWarning, match=rf"{sentence}seqloom train --resume {stopped}"):
        translator = Translator.load(stopped)
    assert len(translator.translate(["The dog sleeps."])) == 1
    best = load_file(stopped / "checkpoints" / "step-3" / "model.safetensors")
    found = translator.loaded.model.state_dict()
    assert all(torch.equal(found[name], weight) for name, weight in best.items())
    card = translator.card
    assert (card.source, card.target, card.trained_on["steps"], card.trained_on["pairs"]) == ("en", "de", 3, 120)
    assert card.parameters == sum(each.numel() for each in translator.loaded.model.parameters())
    assert card.trained_on["unfinished"] == {"run": str(stopped), "step": 3, "steps": 6}
    assert {path: path.stat().st_mtime_ns for path in stopped.rglob("*")} == before


def test_every_command_takes_a_stopped_run_as_a_model(stopped: Path, corpus: Corpus, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(stopped, run)
    said = f"{run} has not finished: using its best checkpoint, step 3 of 6"
    source, reference = corpus[1]
    commands: list[list[object]] = [
        ["translate", run, source, "--out", tmp_path / "translated"],
        ["evaluate", run, "--source", source, "--reference", reference],
        ["score", run, source, reference],
        ["pack", run, tmp_path / "run.zip"],
        ["average", run, "--out", tmp_path / "averaged"],
        ["average", *sorted((run / "checkpoints").glob("step-*")), "--out", tmp_path / "mean"],
    ]
    for command in commands:
        found = call(*command)
        assert found.code == 0, found.err
        # Once, though a command looks for its model more than once; the checkpoints of a run are named by the user.
        assert found.err.count(said) == int(run in command), command
    shown = call("info", run, "--json")
    assert shown.messages[0]["event"] == "notice"
    assert shown.records[0]["path"] == str(run)
    assert "step 3 of 6" in call("info", tmp_path / "run.zip").out
    with pytest.raises(UsageError, match=rf"{run} has not finished.*nothing is added.*--resume {run}"):
        fit_lexicon(run)


def test_a_run_without_a_checkpoint_has_no_model_and_reports_how_to_get_one(stopped: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(stopped, run, ignore=shutil.ignore_patterns("checkpoints"))
    with pytest.raises(ModelError, match=rf"{run} has not finished and has no checkpoint yet.*train --resume {run}"):
        load(run)
    with (
        held(run, os.getppid()),
        pytest.raises(ModelError, match=rf"{run} is in use by process {os.getppid()} .*no checkpoint yet"),
    ):
        load(run)


def test_a_damaged_best_checkpoint_is_replaced_by_the_newest(stopped: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(stopped, run)
    (checkpoint_folder(run, 3) / "model.safetensors").write_bytes(b"")
    with pytest.warns(SeqloomWarning, match=r"using its newest checkpoint, step 4 of 6\. .*step-3.*model\.safetensors"):
        assert load(run).card.trained_on["steps"] == 4
    lost = tmp_path / "lost"
    shutil.copytree(stopped, lost)
    for folder in (lost / "checkpoints").glob("step-*"):
        (folder / "model.safetensors").write_bytes(b"")
    with pytest.raises(ModelError, match=r"no checkpoint of .*lost can be read: .*step-3.*step-4"):
        load(lost)


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs a file that opens and cannot be read")
def test_a_best_checkpoint_on_a_bad_disk_is_replaced_by_the_newest(stopped: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(stopped, run)
    weights = checkpoint_folder(run, 3) / "model.safetensors"
    weights.unlink()
    weights.symlink_to("/proc/self/mem")  # reading it from the start is an input/output error
    with pytest.warns(SeqloomWarning, match=r"using its newest checkpoint, step 4 of 6\. .*step-3 cannot be read"):
        assert load(run).card.trained_on["steps"] == 4


def test_a_run_is_read_safely_while_another_process_saves_and_removes_checkpoints(
    stopped: Path, tmp_path: Path
) -> None:
    run, disk, is_over = tmp_path / "run", Disk(), Flag()
    shutil.copytree(stopped, run)
    first = read_checkpoint(checkpoint_folder(run, 3))

    def keep_saving() -> None:
        step = 3
        while not is_over.is_set():
            step += 1
            weights = {name: torch.full_like(weight, step) for name, weight in first.weights.items()}
            state = {**first.state, "progress": {**first.state["progress"], "step": step}}
            write_checkpoint(run, replace(first, step=step, weights=weights, state=state), is_best=True, disk=disk)
            prune(run, up_to=step, keep=2, average=0, save_every=1, disk=disk)

    writer = Thread(target=keep_saving)
    writer.start()
    try:
        with pytest.warns(SeqloomWarning, match="best checkpoint"):
            folders = [find_model(run) for _ in range(15)]
    finally:
        is_over.set()
        writer.join()
    steps = [read_card(folder).trained_on["steps"] for folder in folders]
    assert steps == sorted(steps)
    assert steps[-1] > steps[0]
    for folder, step in zip(folders, steps, strict=True):
        weights = load_file(folder / "model.safetensors")
        assert step == 3 or all(bool((weight == step).all()) for weight in weights.values())


def test_a_language_model_that_was_stopped_is_used_too(tmp_path: Path, corpus: Corpus) -> None:
    small = ["model.kind=rnn_lm", "model.width=8", "text.size=200", "training.steps=4", "training.validate_every=2"]
    run = stop_at(2, tmp_path / "run", small, ([corpus[0][0]], [corpus[1][0]]))
    with pytest.warns(SeqloomWarning, match="best checkpoint, step 2 of 4"):
        assert LanguageModel.load(run).perplexity(["The dog sleeps."]).token.value > 1


def test_no_room_for_the_temporary_copy_is_a_failure_of_that_folder_and_not_damage(
    stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    shutil.copytree(stopped, run)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    said = rf"{run}/checkpoints/step-3 .*{tmp_path}/seqloom-.*File too large"
    with files_up_to(4096), pytest.raises(SeqloomError, match=said) as raised:
        find_model(run)
    assert exit_code_of(raised.value) == 1
    assert "TMPDIR" in str(raised.value)


def test_a_stopped_run_is_shown_by_its_name_and_step_and_warned_of_at_the_line_of_the_caller(stopped: Path) -> None:
    with pytest.warns(SeqloomWarning) as warned:
        translator = Translator.load(stopped)
    assert [each.filename for each in warned] == [__file__]
    assert repr(translator).endswith(f"parameters, {stopped}, step 3 of 6)")
    with pytest.raises(UsageError, match=r"^search takes a list of lines"):
        translator.search("abc")
    with pytest.raises(UsageError, match=r"^translate takes a list of lines"):
        translator.translate("abc")


def test_a_self_check_names_the_run_that_has_not_finished(stopped: Path, tmp_path: Path) -> None:
    run, reports = tmp_path / "run", []
    shutil.copytree(stopped, run)
    with pytest.warns(SeqloomWarning, match="has not finished"):
        folder = find_model(run)
    (folder / "model.safetensors").write_bytes(b"")  # with damaged files it ends early
    with pytest.warns(SeqloomWarning, match="has not finished"):
        selfcheck(run, decided=reports.append)
    assert [report.folder for report in reports] == [run]
