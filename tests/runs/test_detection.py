"""Models know the languages of their training text: tables stored with them, or learned from what is left of it."""

import json
import shutil
from pathlib import Path

import pytest

from seqloom.apps.export import pack, unpack
from seqloom.core.events import Event
from seqloom.runs.detection import load_detection_tables
from seqloom.runs.loading import find_model
from seqloom.runs.model_dir import TABLES, read_card
from seqloom.runs.train import Trained, average, train
from seqloom.text.detection import Detector, LanguageTable, script_table
from tiny_runs import TINY_LM, write_text

GOLDEN = Path(__file__).parents[1] / "golden" / "models"


def without_tables(model: Path, place: Path) -> Path:
    """A copy as an earlier version wrote it."""
    shutil.copytree(model, place)
    (place / TABLES).unlink()
    manifest = json.loads((place / "manifest.json").read_text())
    del manifest["files"][TABLES]
    (place / "manifest.json").write_text(json.dumps(manifest))
    read_card(place)
    return place


def loaded(model: Path) -> tuple[dict[str, LanguageTable], list[str]]:
    """The tables of a model, and the notices."""
    events: list[Event] = []
    tables = load_detection_tables(model, listener=events.append)
    return tables, [str(event.values["message"]) for event in events]


def test_a_translator_recognises_both_of_its_languages(tiny: Trained) -> None:
    tables, notices = loaded(tiny.model)
    assert not notices
    assert TABLES in json.loads((tiny.model / "manifest.json").read_text())["files"]
    detector = Detector(tables)
    assert detector.languages == ("de", "en")
    assert detector.detect("The old man reads a long letter.")[0].language == "en"
    assert detector.detect("Der alte Mann liest einen langen Brief.")[0].language == "de"


def test_copies_of_a_model_keep_its_tables(tiny: Trained, tmp_path: Path) -> None:
    pack(tiny.model, tmp_path / "packed.zip")
    unpack(tmp_path / "packed.zip", tmp_path / "unpacked")
    for copy in (average([tiny.model, tiny.model], tmp_path / "mean"), tmp_path / "unpacked"):
        assert loaded(copy) == loaded(tiny.model)


def test_an_older_model_learns_from_its_run_or_its_files_or_knows_the_scripts(
    tiny: Trained, corpus: tuple[list[str], list[str]], tmp_path: Path
) -> None:
    expected, _ = loaded(tiny.model)
    run = tmp_path / "run"
    for part in ("text", "data"):
        shutil.copytree(tiny.run / part, run / part)
    inside = without_tables(tiny.model, run / "model")
    tables, notices = loaded(inside)
    assert tables == expected
    assert notices == [f"{inside} has no tables for the detection of its languages: learned from the text of its run"]
    shutil.rmtree(run / "data")
    tables, notices = loaded(inside)
    assert "learned from its training files" in notices[0]
    assert Detector(tables).detect("Der alte Mann liest einen langen Brief.")[0].language == "de"
    tables, notices = loaded(GOLDEN / "transformer")
    assert tables == {"en": script_table("en"), "de": script_table("de")}
    assert notices[0].endswith("its training text was not found; recognised by script only: English, German")


@pytest.mark.filterwarnings("ignore::seqloom.core.errors.SeqloomWarning")
def test_an_unfinished_run_learns_from_its_text(tiny: Trained, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(tiny.run, run)
    shutil.rmtree(run / "model")
    tables, notices = loaded(find_model(run))
    assert tables == loaded(tiny.model)[0]
    assert notices[0].endswith("learned from the text of its run")


@pytest.mark.parametrize("kind", ["rnn_lm", "ngram"])
def test_a_language_model_recognises_its_language(kind: str, tmp_path: Path) -> None:
    text = write_text(tmp_path / "text.txt")
    settings = (f"model.kind={kind}", "data.target=en", *(TINY_LM if kind == "rnn_lm" else ("model.order=3",)))
    trained = train(None, settings, out=tmp_path / "run", train=[str(text)])
    assert trained is not None
    tables, notices = loaded(trained.model)
    assert (list(tables), tables["en"].scripts, notices) == (["en"], ("LATIN",), [])
    (tmp_path / "run" / "data").rename(tmp_path / "data")
    from_files, _ = loaded(without_tables(trained.model, tmp_path / "older"))
    assert len(set(from_files["en"].ngrams.tolist()) ^ set(tables["en"].ngrams.tolist())) < 400


def test_a_table_that_cannot_be_read_is_no_reason_to_stop(tiny: Trained, tmp_path: Path) -> None:
    place = tmp_path / "model"
    shutil.copytree(tiny.model, place)
    (place / TABLES).write_bytes(b"from another version")
    tables, notices = loaded(place)
    assert sorted(tables) == ["de", "en"]
    assert str(place / TABLES) in notices[0]
