"""Taggers, classifiers and forecasters compared: from files to a report, and after an interruption."""

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.calling import Called, call
from seqloom.classical.forecasting import LastValue
from seqloom.compare import ladder, task_report
from seqloom.compare.rungs import choose_rungs
from seqloom.compare.subject import Order
from seqloom.compare.tasks import MeanError, TaskSubject, hold_out
from seqloom.core.errors import UsageError
from seqloom.core.events import ignore
from seqloom.data.series import cut_windows
from seqloom.metrics.scoring import score
from seqloom.metrics.tagging import SpanF1, TagAccuracy, join_tags, score_spans, score_tags
from tagged_text import write_conllu, write_spans

TRAINING = "training: {steps: 12, warmup: 2, validate_every: 6, save_every: 6, average: 1}\n"
TINY_TAGGER = f"model: {{kind: tagger, width: 8, layers: 1, word_width: 8, letter_width: 4, filters: 4}}\n{TRAINING}"
TINY_FORECASTER = f"model: {{kind: forecaster, design: linear, history: 24}}\n{TRAINING}"
TINY_BERT = (
    "model: {kind: bert, width: 16, layers: 1, heads: 2, feed_forward: 16, longest: 32}\n"
    f"task: {{kind: classification}}\ntext: {{size: 200}}\n{TRAINING}"
)


def report_of(out: Path, found: Called) -> dict[str, object]:
    """The report of a comparison that ended well."""
    assert found.code == 0, found.err
    picture = ElementTree.parse(out / "ladder.svg").getroot()
    report: dict[str, object] = json.loads((out / "report.json").read_text())
    names = [each["name"] for each in report["results"]]  # type: ignore[attr-defined]
    assert [text.text for text in picture.findall("{*}text")][::2] == names
    assert all(f"| {name} |" in found.out for name in names)
    assert "http" not in (out / "report.html").read_text().replace("http-equiv", "").replace("www.w3.org", "")
    return report


def own(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_taggers_that_count_and_networks_share_a_table(tmp_path: Path) -> None:
    train = write_conllu(tmp_path / "train.conllu", count=150)
    rung, out = own(tmp_path / "tiny.yaml", TINY_TAGGER), tmp_path / "out"
    words = ["--train", train, "--minutes", "5", "--out", out, "--rungs", "majority,hmm", "--rung", rung]
    report = report_of(out, call("compare", *words, "task.columns=[upos, lemma]"))
    assert (report["kind"], report["metrics"]) == ("tagging", ["upos accuracy", "lemma accuracy"])
    counts = report["sets"]["counts"]  # type: ignore[index]
    assert sum(counts.values()) == 150
    assert max(counts["dev"], counts["test"]) <= 15
    majority, hmm, tiny = report["results"]  # type: ignore[misc]
    # Of an unknown word in -o only the word before tells whether it is a noun or a verb.
    assert hmm["scores"]["upos accuracy"]["value"] > majority["scores"]["upos accuracy"]["value"] + 5
    assert tiny["parameters"] > 0 < tiny["per_second"]
    assert [(step["lower"], step["upper"]) for step in report["steps"]] == [("majority", "hmm"), ("hmm", "tiny")]  # type: ignore[attr-defined]
    assert report["steps"][0]["p_value"] < 0.05  # type: ignore[index]
    # The sentences are written as they were: a run may be trained on the same files.
    assert "1-2\tfirsttwo" in (out / "data" / "train.conllu").read_text()
    assert call("tag", out / "rungs" / "tiny", out / "data" / "test.conllu").code == 0


class Killed(Exception):
    """What stands for a process that was killed."""


def test_a_killed_comparison_of_forecasters_continues(tmp_path: Path) -> None:
    hours, draw = np.arange(400), np.random.default_rng(2)
    values = np.sin(2 * np.pi * hours / 12) + 0.1 * draw.standard_normal(400)
    path = tmp_path / "load.csv"
    path.write_text("load\n" + "".join(f"{value:.4f}\n" for value in values))
    tiny, out = own(tmp_path / "tiny.yaml", TINY_FORECASTER), tmp_path / "out"
    rungs = choose_rungs(["last", "season", "ridge"], [tiny], kind="forecasting")
    order = Order((path,), minutes=5.0, rungs=rungs, kind="forecasting", settings=("model.horizon=6",))
    climbing = ladder.start(out, order, listener=ignore)

    def kill(under_way: ladder.Ladder) -> None:
        if "ridge" in under_way.state.results:
            raise Killed

    with pytest.raises(Killed):
        climbing.climb(after_step=kill)
    written = [(out / "rungs" / name / "test.json").stat().st_mtime_ns for name in ("last", "season", "ridge")]
    report = report_of(out, call("compare", "--resume", out))
    assert written == [(out / "rungs" / name / "test.json").stat().st_mtime_ns for name in ("last", "season", "ridge")]
    errors = {each["name"]: each["scores"]["MSE"]["value"] for each in report["results"]}  # type: ignore[attr-defined]
    assert list(errors) == ["last", "season", "ridge", "tiny"]
    assert errors["ridge"] < errors["season"] < errors["last"]
    assert report["advice"][0]["text"] == "Take ridge for this data."  # type: ignore[index]
    # The error of a rule equals that of its forecasts of all windows, in deviations of the training rows.
    past, truth = cut_windows(values.round(4)[:, None], range(320, 400), history=1, horizon=6)
    expected = np.square(LastValue().forecast(past, horizon=6) - truth).mean() / values.round(4)[:256].var()
    assert errors["last"] == pytest.approx(expected)


def test_classifiers_are_compared_on_texts_in_any_form(tmp_path: Path) -> None:
    draw = np.random.default_rng(3)
    words = {"good": ["fine", "warm", "bright"], "bad": ["dull", "cold", "dark"]}
    lines = []
    for at in range(200):
        label = ("good", "good", "bad")[at % 3]
        text = " ".join([*draw.choice(words[label], 2), *draw.choice(["film", "plot", "scene", "end"], 2), f"n{at}"])
        lines.append(f"{text}\t{label}\n")
    path, rung, out = tmp_path / "reviews.tsv", own(tmp_path / "tiny.yaml", TINY_BERT), tmp_path / "out"
    path.write_text("".join(lines))
    given = ["--train", path, "--minutes", "5", "--out", out, "--rungs", "majority,bayes", "--rung", rung]
    report = report_of(out, call("compare", *given, "data.label_column=2"))
    majority, bayes, _ = report["results"]  # type: ignore[misc]
    assert majority["scores"]["accuracy"]["value"] < bayes["scores"]["accuracy"]["value"] == 100
    assert majority["scores"]["macro-F1"]["value"] < majority["scores"]["accuracy"]["value"]
    labels = [json.loads(line)["label"] for line in (out / "data" / "test.jsonl").read_text().splitlines()]
    share = 100 * labels.count("good") / len(labels)
    assert majority["scores"]["accuracy"]["value"] == pytest.approx(share)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--rungs", "phrases"], 2, "unknown rung 'phrases'; the rungs are majority, hmm, window"),
        (["model.width=3"], 2, "model.width is not a setting of compare"),
        (["task.kind=language_modelling"], 2, "has no rungs to compare; the tasks are translation, tagging"),
        (["task.columns=[xpos]"], 3, "xpos"),
    ],
)
def test_what_cannot_be_compared_is_named(words: list[str], code: int, message: str, tmp_path: Path) -> None:
    train = write_conllu(tmp_path / "train.conllu")
    found = call("compare", "--train", train, "--minutes", "1", "--out", tmp_path / "out", *words)
    assert found.code == code, found.err
    assert message in found.err.replace("\n", " ")


def test_a_rung_of_another_task_is_refused(tmp_path: Path) -> None:
    path = own(tmp_path / "lm.yaml", "model: {kind: rnn_lm}\ntask: {kind: language_modelling}\n")
    with pytest.raises(UsageError, match=r"model\.kind=rnn_lm does not tag words"):
        choose_rungs([], [path], kind="tagging")


def test_lines_of_tags_score_as_tags_do(tmp_path: Path) -> None:
    out = tmp_path / "out"
    order = Order(
        (write_spans(tmp_path / "train.txt"),),
        minutes=1.0,
        rungs=choose_rungs(["hmm"], [], kind="tagging"),
        kind="tagging",
    )
    climbing = ladder.start(out, order, listener=ignore)
    climbing.climb()
    assert isinstance(climbing.subject, TaskSubject)
    assert list(climbing.state.results["hmm"].scores) == ["2 accuracy", "2 span F1"]  # type: ignore[attr-defined]
    task_report.write_report(climbing)
    right = [["B-N", "I-N", "O"], ["O", "B-N"], ["O", "O", "O"]]
    found = [["B-N", "O", "O"], ["O", "B-N"], ["B-N", "O", "O"]]
    lines, references = list(map(join_tags, found)), list(map(join_tags, right))
    assert score(TagAccuracy("2"), lines, references=references).value == score_tags(found, right).value
    assert score(SpanF1("2"), lines, references=references).value == score_spans(found, right).value


@given(st.lists(st.integers(0, 9), min_size=1, max_size=40), st.integers(1, 10), st.integers(0, 5))
def test_units_of_one_key_are_held_out_together(keys: list[int], count: int, seed: int) -> None:
    held = hold_out(keys, count, seed=seed, kept=frozenset([0]))
    assert len(held) <= count
    assert {keys[at] for at in held}.isdisjoint({*keys[:1], *(key for at, key in enumerate(keys) if at not in held)})


def test_the_mean_of_blocks_is_that_of_all_errors() -> None:
    assert score(MeanError("MSE", "scaled"), ["6.0 2", "1.0 5"], references=["0 0", "0 0"]).value == 1.0
