"""What goes wrong around a run is refused with a sentence, changes nothing, and is no dead end."""

import json
import os
import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from seqloom.core.config import resolve
from seqloom.core.errors import ConfigError, DataError, ModelError, SeqloomError, UsageError
from seqloom.core.events import Event, ignore
from seqloom.runs import train as recipe
from seqloom.runs.config import RunConfig
from seqloom.runs.loading import load
from seqloom.runs.prepare import choose_config, prepare_run
from seqloom.runs.train import Trained, resume, train
from seqloom.training.distributed import World
from tiny_runs import TINY, write_corpus
from training.locks import held, write_record

Corpus = tuple[list[str], list[str]]


@pytest.fixture
def run(tiny: Trained, tmp_path: Path) -> Path:
    """A finished run of its own for a test that damages it."""
    return Path(shutil.copytree(tiny.run, tmp_path / "run"))


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a run but its journal, to which each attempt may add."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "events.jsonl"]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def notices(events: list[Event]) -> str:
    return "\n".join(str(event["message"]) for event in events if event.kind == "notice")


# --- going on --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("model.width=32", r"model\.width is 16 .* cannot become 32"),
        ("model.norm=after", r'model\.norm is "before" .* cannot become "after"'),
        ("text.size=300", r"text\.size is 200 .* cannot become 300"),
        ("data.tokens_per_batch=600", r"data\.tokens_per_batch is 512 .* cannot become 600"),
        ("data.longest=9", r"data\.longest is 256 .* cannot become 9"),
        ("seed=5", r"seed is 1 .* cannot become 5"),
        ("training.optimiser=sgd", r'training\.optimiser is "adamw" .* cannot become "sgd"'),
    ],
)
def test_a_setting_that_gives_the_run_another_meaning_is_refused(run: Path, setting: str, sentence: str) -> None:
    before = contents(run)
    with pytest.raises(UsageError, match=rf"{sentence}.*start a new run.*training\.start_from={run}"):
        resume(run, [setting])
    assert contents(run) == before


def test_changed_settings_are_stored_once_the_run_is_resumed(run: Path) -> None:
    resume(run, ["training.steps=7", "search.beam=1", "task.dev_lines=3", "task.label_smoothing=0.2"])
    kept = (run / "config.yaml").read_text()
    assert all(words in kept for words in ("steps: 7", "beam: 1", "dev_lines: 3", "label_smoothing: 0.2"))


def test_a_resume_that_the_trainer_refuses_changes_nothing(run: Path) -> None:
    for path in run.glob("checkpoints/*/state.json"):
        path.write_text("{")
    before = contents(run)
    with pytest.raises(ModelError):
        resume(run, ["training.steps=9"])
    assert contents(run)["config.yaml"] == before["config.yaml"]


def test_a_run_that_another_process_trains_is_not_touched(run: Path) -> None:
    shutil.rmtree(run / "data" / "train")  # so that a resume would have something to do
    with held(run, os.getppid()):
        before = contents(run)
        with pytest.raises(UsageError, match=f"{run} is in use by process {os.getppid()}"):
            resume(run, ["training.steps=9"], allow_data_change=True)
        assert contents(run) == before


def test_changed_text_is_allowed_once_and_for_all(tmp_path: Path) -> None:
    files, dev = write_corpus(tmp_path)
    train(None, TINY, out=tmp_path / "run", train=files, dev=dev)
    for name, line in zip(files, ("Good morning.\n", "Guten Morgen.\n"), strict=True):
        with Path(name).open("a", encoding="utf-8") as file:
            file.write(line)
    resume(tmp_path / "run", ["training.steps=8"], allow_data_change=True)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["pairs"] == 121
    further = resume(tmp_path / "run", ["training.steps=9"])
    assert further is not None
    assert further.outcome.step == 9


# --- damage ----------------------------------------------------------------------------------------------------------


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:20])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[0] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("data", shutil.rmtree),
        ("data/dev", shutil.rmtree),
        ("data/train/source.ids", flip),
        ("data/dev/target.ids", cut),
        ("data/train/store.json", cut),
        ("data/references.txt", cut),
        ("data/references.txt", Path.unlink),
    ],
)
def test_damaged_ids_are_made_again_from_unchanged_text(run: Path, tiny: Trained, name: str, damage: object) -> None:
    assert callable(damage)
    damage(run / name)
    events: list[Event] = []
    resume(run, listener=events.append)
    assert "missing or damaged; encoding the text again" in notices(events)
    made, known = contents(run / "data"), contents(tiny.run / "data")
    assert made == known


def test_damaged_ids_whose_text_is_gone_are_a_sentence(tmp_path: Path) -> None:
    files, dev = write_corpus(tmp_path)
    train(None, TINY, out=tmp_path / "run", train=files, dev=dev)
    flip(tmp_path / "run" / "data" / "train" / "target.ids")
    Path(files[1]).unlink()
    sentence = rf"target\.ids: SHA-256.*{files[1]}, from which .* was not found; put the file back, or .* data\.train="
    with pytest.raises(DataError, match=sentence) as caught:
        resume(tmp_path / "run")
    assert "remove" not in str(caught.value)


def test_text_missing_from_the_working_directory_is_reported_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, dev = write_corpus(tmp_path)
    monkeypatch.chdir(tmp_path)
    train(
        None,
        TINY,
        out="run",
        train=[Path(name).name for name in files],
        dev=[Path(name).name for name in dev],
    )
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    name, events = Path(files[0]).name, list[Event]()
    assert resume("../run", listener=events.append) is not None
    assert f"{name} not found (looked in {tmp_path}/other); continuing with the ids" in notices(events)
    flip(tmp_path / "run" / "data" / "train" / "target.ids")
    with pytest.raises(DataError, match=rf"{name}, .* was not found \(looked in .*/other\); resume from the folder"):
        resume("../run")
    moved = [f"data.{side}={json.dumps(names)}" for side, names in (("train", files), ("dev", dev))]
    assert resume("../run", [*moved, "training.steps=7"]) is not None


@pytest.mark.parametrize("name", ["config.yaml", "text"])
def test_what_a_run_lacks_is_brought_back_from_its_model(run: Path, name: str) -> None:
    lost = run / "config.yaml" if name == "config.yaml" else run / "text" / "shared" / "text.json"
    lost.unlink()
    copy = run / "model" / lost.relative_to(run)
    with pytest.raises(SeqloomError, match=rf"{run / name} is (missing|damaged).*copy {run}/model/{name} to"):
        resume(run, ["training.steps=7"])
    shutil.copy(copy, lost)
    assert resume(run, ["training.steps=7"]) is not None
    lost.unlink()
    shutil.rmtree(run / "model")
    with pytest.raises(SeqloomError, match="restore it from a copy, or start a new run in another folder"):
        resume(run)


def test_a_damaged_model_is_rebuilt_by_its_run_as_its_message_says(run: Path, tmp_path: Path) -> None:
    alone = Path(shutil.copytree(run / "model", tmp_path / "alone"))
    for model in (run / "model", alone):
        (model / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=rf"missing; copy .* again .*, or .*: seqloom train --resume {run}$"):
        load(run)
    with pytest.raises(ModelError, match=r"missing; copy the model directory again from where it was made$"):
        load(alone)
    resume(run)
    assert load(run).card.parameters > 0


def test_a_run_without_a_whole_checkpoint_can_be_followed_by_one_that_starts_from_its_model(run: Path) -> None:
    for path in run.glob("checkpoints/*/state.json"):
        path.write_text("{")
    with pytest.raises(
        ModelError, match=rf"start a new run in another folder, from its model: training\.start_from={run}/model$"
    ):
        resume(run, ["training.steps=9"])
    shutil.rmtree(run / "model")
    with pytest.raises(ModelError, match=r"Restore one from a copy, or start a new run in another folder$"):
        resume(run, ["training.steps=9"])


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"data": {"train"', '{"data": 3}'])
def test_a_damaged_record_is_a_sentence(run: Path, content: str) -> None:
    (run / "run.json").write_text(content)
    with pytest.raises(ModelError, match=r"run\.json is damaged .*start a new run"):
        resume(run)


@pytest.mark.parametrize(
    "leave_out", ["config.yaml", "model.json", "model.safetensors", "text/shared/text.json", "format", "files"]
)
def test_a_manifest_that_checks_too_little_is_refused(tiny: Trained, tmp_path: Path, leave_out: str) -> None:
    folder = Path(shutil.copytree(tiny.model, tmp_path / "model"))
    manifest = json.loads((folder / "manifest.json").read_text())
    for part in (manifest, manifest["files"]):
        part.pop(leave_out, None)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ModelError, match=rf"manifest\.json.*{leave_out}"):
        load(folder)


# --- beginning -------------------------------------------------------------------------------------------------------


def interrupted(run: Path, tiny: Trained) -> Path:
    """What a run leaves that is killed while it encodes."""
    run.mkdir()
    shutil.copy(tiny.run / "config.yaml", run)
    shutil.copytree(tiny.run / "text", run / "text")
    shutil.copytree(tiny.run / "data" / "train", run / "data" / "train.partial-0a1b2c3d")
    (run / "data" / "files.json").write_text("[]\n")
    (run / "lock").touch()
    write_record(run, 2**22 + 1)
    return run


def test_a_run_interrupted_in_preparation_is_prepared_again(tiny: Trained, tmp_path: Path, corpus: Corpus) -> None:
    run = interrupted(tmp_path / "run", tiny)
    with pytest.raises(UsageError, match=r"interrupted while it was being prepared; start it again with the same "):
        resume(run)
    events: list[Event] = []
    config = choose_config(None, TINY, train=corpus[0], dev=corpus[1], listener=ignore)
    prepare_run(run, config, listener=events.append)
    assert f"{run} was interrupted while it was being prepared; preparing it again" in notices(events)
    assert sorted(path.name for path in run.iterdir()) == ["config.yaml", "data", "run.json", "text"]
    assert sorted(path.name for path in (run / "data").iterdir()) == ["dev", "references.txt", "train"]


def test_what_is_prepared_is_kept_when_the_run_is_interrupted_before_its_first_step(
    tmp_path: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, events = tmp_path / "run", list[Event]()

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(recipe, "_open", interrupt)
        with pytest.raises(KeyboardInterrupt):
            train(None, TINY, out=run, train=corpus[0], dev=corpus[1], listener=events.append)
    assert f"the text is prepared; resume with: seqloom train --resume {run}" in notices(events)
    stored = (run / "data" / "train" / "source.ids").stat().st_ino
    assert resume(run) is not None
    assert (run / "data" / "train" / "source.ids").stat().st_ino == stored


@pytest.mark.parametrize(("name", "then", "now"), [("heads", "2", "4"), ("activation", "relu", "gelu")])
def test_settings_that_were_edited_in_a_run_are_compared_with_those_it_began_with(
    tiny: Trained, tmp_path: Path, name: str, then: str, now: str
) -> None:
    run = Path(shutil.copytree(tiny.run, tmp_path / "run"))
    path = run / "config.yaml"
    assert f"  {name}: {then}\n" in path.read_text()
    path.write_text(path.read_text().replace(f"  {name}: {then}\n", f"  {name}: {now}\n"))
    with pytest.raises(UsageError, match=rf"model\.{name} is \W?{then}\W? in .* and cannot become \W?{now}"):
        resume(run)


def test_a_run_that_another_process_has_taken_up_is_not_removed(
    tiny: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, corpus: Corpus
) -> None:
    run = tmp_path / "run"

    def taken(*_: object, **__: object) -> None:
        other.enter_context(held(run, os.getppid()))
        raise UsageError(f"{run} is in use")

    with monkeypatch.context() as patched, ExitStack() as other:
        patched.setattr(recipe, "_open", taken)
        with pytest.raises(UsageError, match="is in use"):
            train(None, TINY, out=run, train=corpus[0], dev=corpus[1])
        assert (run / "run.json").is_file()


@pytest.mark.parametrize("name", ["notes.txt", "data/corpus.de", "data/train/corpus.de", "text/readme.md"])
def test_a_folder_with_anything_else_in_it_is_left_alone(
    tiny: Trained, tmp_path: Path, corpus: Corpus, name: str
) -> None:
    run = interrupted(tmp_path / "run", tiny)
    (run / name).parent.mkdir(exist_ok=True)
    (run / name).write_text("mine\n")
    before = contents(run)
    with pytest.raises(UsageError, match="exists already"):
        train(None, TINY, out=run, train=corpus[0], dev=corpus[1])
    assert contents(run) == before


def test_a_config_of_ones_own_is_left_alone(tmp_path: Path, corpus: Corpus) -> None:
    (tmp_path / "config.yaml").write_text("seed: 3  # mine\n")
    with pytest.raises(UsageError, match="exists already"):
        train(tmp_path / "config.yaml", TINY, out=tmp_path, train=corpus[0], dev=corpus[1])
    assert (tmp_path / "config.yaml").read_text() == "seed: 3  # mine\n"


def test_a_preparation_that_is_still_at_work_is_left_alone(tiny: Trained, tmp_path: Path, corpus: Corpus) -> None:
    run = interrupted(tmp_path / "run", tiny)
    with held(run, os.getppid()):
        before = contents(run)
        with pytest.raises(UsageError, match=f"in use by process {os.getppid()}"):
            train(None, TINY, out=run, train=corpus[0], dev=corpus[1])
        assert contents(run) == before


def test_weights_that_do_not_fit_leave_no_run_behind(tiny: Trained, tmp_path: Path, corpus: Corpus) -> None:
    words = [f"training.start_from={tiny.model}", "training.steps=1", "model.width=32"]
    with pytest.raises(ModelError):
        train(None, words, out=tmp_path / "run", train=corpus[0], dev=corpus[1])
    assert not (tmp_path / "run").exists()


def test_too_few_batches_for_the_ranks_are_refused_before_preparing(
    tmp_path: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Three:
        def __enter__(self) -> World:
            return World(rank=0, size=3, device=torch.device("cpu"))

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(recipe, "join", lambda _device: Three())
    with pytest.raises(ConfigError, match=r"batches_per_step=1 cannot be shared by 3 ranks; set it to at least 3"):
        train(None, TINY, out=tmp_path / "run", train=corpus[0], dev=corpus[1])
    assert not (tmp_path / "run").exists()


def test_a_carried_state_cannot_be_shared_by_ranks() -> None:
    config = resolve(RunConfig, overrides=["model.kind=rnn_lm", "training.batches_per_step=2"])
    with pytest.raises(ConfigError, match=r"cannot be shared by 2 ranks; set task\.windows=random"):
        recipe._require_shares(config, World(rank=0, size=2), listener=ignore)


def test_a_refusal_does_not_spoil_the_next_resume(run: Path) -> None:
    with pytest.raises(UsageError):
        resume(run, ["model.width=32"])
    further = resume(run, ["training.steps=7"])
    assert further is not None
    assert load_file(further.model / "model.safetensors")
