"""Translation memories and confidence from the command line: calibrate a model, then fill text, PO and XLIFF files."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from cli.calling import call
from cli.conftest import write_pairs
from seqloom.text.formats.readers import open_catalogue

GOLDEN = Path(__file__).parents[1] / "golden" / "models" / "transformer"
TMX = """<tmx version="1.4"><header srclang="en"/><body>
<tu><tuv xml:lang="en-GB"><seg>The dog sleeps.</seg></tuv><tuv xml:lang="de"><seg>Es schläft der Hund!</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>Save <ph>&lt;x id="1"/&gt;</ph></seg></tuv>
    <tuv xml:lang="de"><seg><ph>&lt;x id="1"/&gt;</ph> sichern</seg></tuv></tu>
</body></tmx>"""
PO = """msgid ""
msgstr "Language: de\\nContent-Type: text/plain; charset=UTF-8\\n"

#: a.c:1
msgid "The dog sleeps.\\n"
msgstr ""

#: a.c:2
msgid "The cat sleeps."
msgstr ""

msgid "Where is my book?"
msgstr ""
"""
XLIFF = """<xliff version="1.2"><file source-language="en" target-language="de" datatype="x" original="x"><body>
  <trans-unit id="1"><source>The cat sleeps.</source></trans-unit>
  <trans-unit id="2"><source>Save <x id="1"/></source><target state="new"/></trans-unit>
  <trans-unit id="3"><source>Where is my book?</source></trans-unit>
</body></file></xliff>
"""
SIMILAR = "<source>The dog sleeps.</source><target>Es schläft der Hund!</target>"


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_pairs(tmp_path_factory.mktemp("dev"), "dev", 160)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, dev: tuple[Path, Path]) -> Path:
    """A model of an earlier version, calibrated."""
    model = shutil.copytree(GOLDEN, tmp_path_factory.mktemp("model") / "model")
    called = call("evaluate", model, "--source", dev[0], "--reference", dev[1], "--calibrate")
    assert called.code == 0, called.err
    assert f"Calibrated {model} on " in called.out
    return model


@pytest.fixture
def memory(tmp_path: Path) -> Path:
    path = tmp_path / "m.tmx"
    path.write_text(TMX, encoding="utf-8")
    return path


def sums(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_a_model_is_calibrated_and_nothing_else_of_it_changes(model: Path, dev: tuple[Path, Path]) -> None:
    before, after = sums(GOLDEN), sums(model)
    assert after.keys() - before.keys() == {"calibration.json"}
    assert {name for name in before if before[name] != after[name]} == {"manifest.json"}
    (plain,) = call("translate", GOLDEN, "--json", stdin=b"The dog sleeps.\n").records
    assert not plain["translations"][0]["is_calibrated"]
    (record,) = call("evaluate", model, "--source", dev[0], "--reference", dev[1], "--json").records
    assert record["systems"][0]["confidence"]["error"] < 0.05  # on the lines that it was learned from
    stored = json.loads((model / "calibration.json").read_text(encoding="utf-8"))
    (calibrated,) = call("translate", model, "--json", stdin=b"The dog sleeps.\n").records
    best = calibrated["translations"][0]
    assert best["is_calibrated"]
    assert best["text"] == plain["translations"][0]["text"]
    assert stored["values"][0] <= best["confidence"] <= stored["values"][-1]


def test_a_changed_table_is_damage_like_that_of_any_other_file(model: Path, tmp_path: Path) -> None:
    damaged = shutil.copytree(model, tmp_path / "model")
    (damaged / "calibration.json").write_text("{}", encoding="utf-8")
    called = call("translate", damaged, stdin=b"Hello.\n")
    assert called.code == 4
    assert "calibration.json" in called.err


def test_text_of_the_memory_is_not_decoded_and_similar_text_is_shown(model: Path, memory: Path) -> None:
    text = b"The dog sleeps.\nThe cat sleeps.\n\nThe  dog sleeps. \n"
    words = ["translate", model, "--memory", memory]
    plain = call("translate", model, stdin=text)
    called = call(*words, stdin=text)
    assert called.code == 0, called.err
    assert called.lines[0] == called.lines[3] == "Es schläft der Hund!" != plain.lines[0]
    assert called.lines[1:3] == plain.lines[1:3]
    assert f"standard input:2: 75% match, {memory}:2: 'The dog sleeps.' → 'Es schläft der Hund!'" in called.err
    assert "standard input: 2 of 4 lines from the memory, near matches for 1" in called.err
    records = call(*words, "--json", stdin=text).records
    found = [
        [(each["percentage"], each["line"]) for each in record["translations"][0].get("memory", ())]
        for record in records
    ]
    assert found == [[(100, 2)], [(75, 2)], [], [(100, 2)]]
    # Draws depend on the place of a line, whatever the memory has.
    sampling = ["search.method=sample", "search.nbest=1", "search.seed=3"]
    drawn = call("translate", model, *sampling, stdin=text).lines[1]
    assert call(*words, *sampling, stdin=text).lines[1] == drawn


def test_catalogues_get_exact_matches_similar_ones_beside_and_marks_where_confidence_is_low(
    model: Path, memory: Path, tmp_path: Path
) -> None:
    records = call("translate", model, "--json", stdin=b"The cat sleeps.\nWhere is my book?\n").records
    cat, book = (record["translations"][0]["confidence"] for record in records)
    assert cat != book
    limit, doubted = (cat + book) / 2, "The cat sleeps." if cat < book else "Where is my book?"
    for name, text in (("a.po", PO), ("a.xlf", XLIFF)):
        path, out = tmp_path / name, tmp_path / f"new-{name}"
        path.write_text(text, encoding="utf-8")
        words = ["translate", model, path, "--out", out, "--memory", memory, "--json"]
        called = call(*words, "--review-below", limit)
        assert called.code == 0, called.err
        (counts,) = called.records
        assert (counts["filled"], counts["memory"], counts["near"], counts["doubtful"], counts["marked"]) == (
            3,
            1,
            1,
            1,
            1,
        )
        states = {segment.text.strip(): segment.state for segment in open_catalogue(out).segments}
        assert {text for text, state in states.items() if state == "fuzzy"} == {doubted}
        out.unlink()
        assert call(*words, "--review-below", "0").records[0]["marked"] == 0
        written = out.read_text(encoding="utf-8")
        if name == "a.po":
            assert 'msgstr "Es schläft der Hund!\\n"' in written
            assert '# 75% m.tmx: "The dog sleeps." -> "Es schläft der Hund!"\n#: a.c:2\n' in written
        else:
            assert '<target state="translated"><x id="1"/> sichern</target>' in written
            assert f'<alt-trans match-quality="75%" origin="m.tmx">{SIMILAR}</alt-trans></trans-unit>' in written


def test_what_cannot_be_done_is_refused_before_the_model_translates(model: Path, memory: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.po"
    path.write_text(PO, encoding="utf-8")
    called = call("translate", GOLDEN, path, "--review-below", "0.5")
    assert called.code == 2
    assert "--review-below requires a calibrated model" in called.err
    called = call("translate", model, "--memory", memory, "--prefix", memory, stdin=b"x\n")
    assert called.code == 2
    assert "--prefix cannot be combined with --memory" in called.err
    memory.write_text(TMX.replace('"de"', '"fr"'), encoding="utf-8")
    called = call("translate", model, "--memory", memory, stdin=b"x\n")
    assert called.code == 3
    assert "holds no translations from en to de; its languages are en, fr" in called.err
    archive = GOLDEN.parent / "archive.zip"
    called = call("evaluate", archive, "--source", path, "--calibrate")
    assert called.code == 2
    assert "is an archive, which cannot be changed" in called.err
