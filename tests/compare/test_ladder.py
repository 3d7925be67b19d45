"""A comparison from its files to its report; what an interruption costs, and what bad input gives."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from seqloom.cli.main import app
from seqloom.compare import ladder
from seqloom.compare.report import write_report
from seqloom.compare.rungs import choose_rungs
from seqloom.compare.splits import make_splits
from seqloom.core.errors import ModelError, UsageError
from seqloom.core.events import ignore
from seqloom.data.phrasebook import sample_pairs


def write_pairs(folder: Path, name: str, *, count: int, split: str = "train") -> list[Path]:
    """Pairs of the phrasebook as two files."""
    pairs = sample_pairs("de", "en", count=count, seed=1, split=split)  # type: ignore[arg-type]
    paths = [folder / f"{name}.de", folder / f"{name}.en"]
    paths[0].write_text("".join(f"{pair.source}\n" for pair in pairs))
    paths[1].write_text("".join(f"{pair.target}\n" for pair in pairs))
    return paths


class Killed(Exception):
    """What stands for a process that was killed."""


def test_a_killed_comparison_repeats_no_finished_rung(tmp_path: Path) -> None:
    train = write_pairs(tmp_path, "train", count=300)
    own = tmp_path / "stems.yaml"
    own.write_text("model:\n  kind: dictionary\n")
    order = ladder.Order(tuple(train), minutes=5.0, rungs=choose_rungs(["dictionary"], [own]))
    climbing = ladder.start(tmp_path / "out", order, listener=ignore)

    def kill(_: ladder.Ladder) -> None:
        raise Killed

    with pytest.raises(Killed):
        climbing.climb(after_step=kill)
    first = tmp_path / "out" / "rungs" / "dictionary" / "model" / "model.json"
    written = first.stat().st_mtime_ns
    again = ladder.resume(tmp_path / "out", rungs=lambda _record: order.rungs, listener=ignore)
    assert list(again.state.results) == ["dictionary"]
    again.climb()
    assert first.stat().st_mtime_ns == written
    report = write_report(again)
    assert [result.name for result in report.results] == ["dictionary", "stems"]
    # Both rungs are the same model, so nothing lies between them.
    (step,) = report.steps
    assert (step.difference, step.p_value) == (0.0, 1.0)
    assert report.results[0].bleu.low <= report.results[0].bleu.value <= report.results[0].bleu.high
    assert report.results[0].bleu.value > 5
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count('class="sentence"') == 10
    assert "http" not in page.replace("http-equiv", "")
    written_report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert written_report["results"][0]["bleu"]["value"] == report.results[0].bleu.value
    picture = ElementTree.parse(tmp_path / "out" / "ladder.svg").getroot()
    assert [text.text for text in picture.findall("{*}text")][::2] == ["dictionary", "stems"]
    assert "| dictionary |" in (tmp_path / "out" / "report.md").read_text()


def test_leaks_between_the_sets_are_counted_and_held_out_ones_have_none(tmp_path: Path) -> None:
    train = write_pairs(tmp_path, "train", count=200)
    sources, targets = (path.read_text().split("\n")[:-1] for path in train)
    test = [tmp_path / "test.de", tmp_path / "test.en"]
    test[0].write_text("\n".join([*sources[:4], "Das ist ganz neu."]) + "\n")
    test[1].write_text("\n".join([*targets[:3], "another one", "This is quite new."]) + "\n")

    def splits(folder: str, given: list[Path]) -> tuple[int, int, int]:
        found = make_splits(
            tmp_path / folder,
            train=train,
            dev=[],
            test=given,
            languages=(None, None),
            encoding="utf-8",
            sizes=[100],
            seed=1,
            listener=ignore,
        )
        assert len(found.lines("train-100")[0]) == 100
        return found.leaked, found.leaked_sources, found.test_pairs

    leaked, leaked_sources, _ = splits("given", test)
    assert leaked <= 3
    assert leaked_sources == 4 - (3 - leaked)  # those that were held out for dev are in no training text
    assert splits("held out", []) == (0, 0, 20)


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["--minutes", "5", "--out", "o"], 2, "no text to learn from"),
        (["--train", "train.de,train.en", "--out", "o"], 2, "--minutes is missing"),
        (["--train", "train.de,train.en", "--minutes", "5"], 2, "--out is missing"),
        (["--train", "train.de,train.en", "--minutes", "0", "--out", "o"], 2, "leaves no time"),
        (["--train", "train.de,train.en", "--minutes", "nan", "--out", "o"], 2, "has no end"),
        (["--train", "train.de,train.en", "--minutes", "5", "--out", "full"], 2, "exists already"),
        (["--train", "train.de,nowhere.en", "--minutes", "5", "--out", "o"], 2, "nowhere.en"),
        (["--train", "train.de,train.en", "--minutes", "5", "--out", "o", "--rungs", "smt"], 2, "unknown rung 'smt'"),
        (["--train", "train.de,train.en", "--minutes", "5", "--out", "o", "model.width=3"], 2, "not a setting"),
        (["--resume", "full"], 2, "compare.json is missing"),
        (["--resume", "full", "--rungs", "rnn"], 2, "leave out --rungs"),
        (["--resume", "broken"], 4, "is damaged"),
    ],
)
def test_bad_input_is_a_sentence(
    arguments: list[str], code: int, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_pairs(tmp_path, "train", count=20)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "compare.json").write_text('{"format": 1, "order": {}}')
    result = CliRunner().invoke(app, ["compare", *arguments])
    error = result.exception
    found = getattr(error, "exit_code", result.exit_code)
    text = f"{result.output} {error}"
    assert sentence in text.replace("\n", " ")
    assert found == code or isinstance(error, UsageError if code == 2 else ModelError)


def test_few_pairs_climb_small_rungs_only(tmp_path: Path) -> None:
    train, dev, test = (
        tuple(write_pairs(tmp_path, name, count=count, split=name))
        for name, count in (("train", 30), ("dev", 10), ("test", 20))
    )
    order = ladder.Order(train, dev, test, minutes=5.0, rungs=choose_rungs(["dictionary", "rnn", "transformer"], []))
    climbing = ladder.start(tmp_path / "out", order, listener=ignore)
    climbing.climb()
    assert list(climbing.state.results) == ["dictionary"]
    assert all("too few" in climbing.state.skipped[name] for name in ("rnn", "transformer"))
    # With more minutes, what was skipped is tried again.
    again = ladder.resume(tmp_path / "out", rungs=lambda _record: order.rungs, minutes=6.0, listener=ignore)
    assert (again.order.minutes, again.state.skipped) == (6.0, {})
    with pytest.raises(UsageError, match="is less than the 5"):
        ladder.resume(tmp_path / "out", rungs=lambda _record: order.rungs, minutes=1.0, listener=ignore)
