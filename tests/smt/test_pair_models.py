"""A model that is fitted to sentence pairs is a translator like any other, from `train` to the server."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

import seqloom
from cli.calling import call
from seqloom.apps.request import ConstraintSet
from seqloom.apps.translator import Translator
from seqloom.classical.alignment import Bitext
from seqloom.core.errors import UsageError
from seqloom.core.events import read_events
from seqloom.core.symbols import UNKNOWN
from seqloom.data.store import Store
from seqloom.runs.loading import LoadedFitted, load, load_translator
from seqloom.runs.train import Trained, resume, train
from seqloom.runs.translation import bitext_of
from seqloom.selfcheck.run import selfcheck
from tiny_runs import write_corpus

LINES = ["The big dog sleeps.", "Anna reads Qwertz 17!", "", "Two cats play. The old man drinks water."]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("pairs")
    files, dev = write_corpus(folder, count=400)
    settings = ["model.kind=dictionary", "data.workers=1", "evaluation.resamples=40"]
    trained = train(None, settings, out=folder / "run", train=files, dev=dev)
    assert trained is not None
    return trained


def test_the_run_has_the_files_of_every_run(fitted: Trained) -> None:
    kinds = [event.kind for event in read_events(fitted.run / "events.jsonl")]
    assert kinds[-2:] == ["finished", "model_saved"]
    assert fitted.outcome.reason == "fitted"
    bleu, chrf = fitted.scores
    assert (bleu.name, chrf.name) == ("BLEU", "chrF2")
    assert chrf.value > 40  # of copied sources it is 14
    stored = Store.open(fitted.run / "data" / "train")
    bitext: Bitext = bitext_of(stored)
    assert bitext.pairs == len(stored) == 400
    for at in (0, 7, 399):
        inside = slice(*bitext.source_starts[at : at + 2])
        np.testing.assert_array_equal(bitext.sources[inside], stored.sources[at][:-1])
        inside = slice(*bitext.target_starts[at : at + 2])
        np.testing.assert_array_equal(bitext.targets[inside], stored.targets[at][:-1])


def test_a_resumed_run_gives_the_same_model(fitted: Trained) -> None:
    before = (fitted.model / "model.safetensors").read_bytes()
    (fitted.model / "model.json").unlink()
    again = resume(fitted.run)
    assert again is not None
    assert again.scores == fitted.scores
    assert (fitted.model / "model.safetensors").read_bytes() == before


def test_it_is_loaded_as_a_translator(fitted: Trained) -> None:
    assert isinstance(seqloom.load(fitted.run), LoadedFitted)
    loaded = load_translator(fitted.run, source="en", target="de")
    assert loaded.calibration is None or loaded.calibration.lines == 20
    translator = Translator(loaded)
    (big, copied, blank, both) = translator.search(LINES, nbest=3, align=True)
    assert 1 < len(big) <= 3
    assert [each.score for each in big] == sorted((each.score or 0.0 for each in big), reverse=True)
    for each in (*big, *both):
        for hypothesis in each.hypotheses:
            assert abs(math.fsum(hypothesis.terms.values()) - hypothesis.score) < 1e-9
            assert hypothesis.attention is not None
            np.testing.assert_allclose(hypothesis.attention.sum(1).numpy(), 1, atol=1e-6)
    assert "Qwertz 17" in copied[0].text
    assert UNKNOWN in copied[0].hypotheses[0].symbols
    assert copied[0].alignment is not None
    words = copied[0].text.split()
    at = next(j for j, span in enumerate(copied[0].alignment.target_spans) if copied[0].text[slice(*span)] == "Qwertz")
    assert [i for i, j in copied[0].alignment.links if j == at] == [2], words
    assert blank[0].text == ""
    alone = [translator.search([line], nbest=3, align=True)[0] for line in LINES]
    assert [[(each.text, each.score) for each in found] for found in alone] == [
        [(each.text, each.score) for each in found] for found in (big, copied, blank, both)
    ]
    assert "⁇" in translator.translate([LINES[1]], unknown="keep")[0]
    (score, nothing) = translator.score([LINES[0]] * 2, [big[0].text, "Etwas ganz anderes."])
    assert score == pytest.approx(big[0].score, abs=1e-9)
    assert nothing == -math.inf


def test_cancelled_lines_have_no_translations(fitted: Trained) -> None:
    from seqloom.apps.request import Request

    found = Translator.load(fitted.run).run(LINES, Request(), is_cancelled=lambda at: at == 1)
    assert [len(each) for each in found] == [1, 0, 1, 1]


def test_what_has_no_meaning_is_refused_in_a_sentence(fitted: Trained, tmp_path: Path) -> None:
    translator = Translator.load(fitted.run)
    for change in ({"method": "sample"}, {"coverage": 0.2}, {"mode": "marian"}, {"shortlist": 10}, {"alpha": 1.0}):
        with pytest.raises(UsageError, match=r"is not supported by a model of kind dictionary"):
            translator.search(LINES, **change)
    with pytest.raises(UsageError, match="constraints and glossaries are not supported"):
        translator.search(LINES, constraints=ConstraintSet(phrases=("Hund",)))
    with pytest.raises(UsageError, match="cannot be watched"):
        translator.watch(LINES[0])
    with pytest.raises(UsageError, match="is not a neural network: it is a translator of kind dictionary"):
        load(fitted.run)
    text = tmp_path / "text.en"
    text.write_text("The dog.\n", encoding="utf-8")
    run, out = fitted.run, tmp_path / "out"
    for words, message in (
        (["translate", run, text, "--with", run], "cannot be combined with other models"),
        (["translate", run, text, "--forbid", "Hund"], "constraints and glossaries are not supported"),
        (["translate", run, text, "search.precision=int8"], "search.precision=int8 is not supported"),
        (["export", run, "--to", "huggingface", "--out", out], "is not a neural network"),
        (["average", run, run, "--out", out], "cannot be averaged"),
        (["shortlist", run], "it scores no vocabulary"),
        (["look", "beam", run, "The dog."], "cannot be watched"),
        (["generate", run], "is not a language model"),
        (["train", f"training.start_from={run}", "--train", text, "--train", text, "--out", out], "start_from"),
        (["train", "model.kind=dictionary", "text.kind=bpe", "--train", text, "--train", text, "--out", out], "whole"),
        (
            ["train", "model.kind=dictionary", "search.groups=2", "--train", text, "--train", text, "--out", out],
            "group",
        ),
    ):
        called = call(*words)
        assert called.code == 2, (words, called)
        assert message in called.err, (words, called.err)
        assert not out.exists()


def test_the_commands_know_it(fitted: Trained, tmp_path: Path) -> None:
    run, source, target = fitted.run, tmp_path / "a.en", tmp_path / "a.de"
    source.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    plain = call("translate", run, source)
    assert plain.code == 0, plain.err
    assert len(plain.out.splitlines()) == len(LINES)
    target.write_text(plain.out, encoding="utf-8")
    records = call("translate", run, source, "search.nbest=2", "--align", tmp_path / "links", "--json").records
    assert len(records[0]["translations"]) == 2
    assert len((tmp_path / "links").read_text(encoding="utf-8").splitlines()) == len(LINES)
    scored = call("score", run, source, target, "--json")
    assert scored.records[0]["log_prob"] == pytest.approx(records[0]["translations"][0]["score"])
    evaluated = call("evaluate", run, "--source", source, "--reference", target)
    assert evaluated.code == 0, evaluated.err
    assert "BLEU   100.00" in evaluated.out
    info = call("info", run)
    assert "% by word, " in info.out
    archive = tmp_path / "model.zip"
    assert call("pack", run, archive).code == 0
    assert call("translate", archive, source).out == plain.out
    refused = call("pack", run, tmp_path / "small.zip", "--precision", "int8")
    assert (refused.code, "is not a neural network" in refused.err) == (2, True)


@pytest.mark.slow
def test_several_processes_change_nothing(fitted: Trained, tmp_path: Path) -> None:
    source = tmp_path / "a.en"
    source.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    assert call("translate", fitted.run, source, "--jobs", "2").out == call("translate", fitted.run, source).out


def test_its_promises_hold(fitted: Trained) -> None:
    report = selfcheck(fitted.run, count=5)
    assert report.is_kept, report.broken
    outcomes = {each.name: each.finding.outcome for each in report.checked}
    kept = ("files", "saved", "lines", "blank", "batch", "terms", "score", "seed")
    assert [name for name, outcome in outcomes.items() if outcome == "holds"] == list(kept)


def test_a_server_answers_with_it(fitted: Trained) -> None:
    from seqloom.serve.actions import open_actions
    from seqloom.serve.groups import GroupCancellation, ignore_parts

    translate = open_actions("translator", fitted.model, ())["translate"]
    answers = translate(
        [["The <b>big</b> dog sleeps.", ""]], {"tags": True, "nbest": 2}, GroupCancellation(), ignore_parts
    )
    best = answers[0][0]
    assert "<b>" in best["text"]
    assert best["alternatives"]
    assert json.dumps(answers)


def test_text_without_spaces_is_translated_character_by_character(tmp_path: Path) -> None:
    """Nothing separates the words of Chinese text; that is seen, and needs no setting."""
    words = {"我": "I", "你": "you", "他": "he", "们": "we"}
    verbs, objects = (
        {"看书": "read books", "喝茶": "drink tea", "唱歌": "sing songs"},
        {"今天": "today", "常常": "often"},
    )
    pairs = [
        (f"{x}{when}{v}。", f"{y} {often} {w}.")
        for x, y in words.items()
        for v, w in verbs.items()
        for when, often in objects.items()
    ]
    for code, lines in zip(("zh", "en"), zip(*(pairs * 3), strict=True), strict=True):
        (tmp_path / f"train.{code}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        (tmp_path / f"dev.{code}").write_text("".join(f"{line}\n" for line in lines[:5]), encoding="utf-8")
    files = [word for name in ("train", "dev") for word in (f"--{name}", f"{tmp_path}/{name}.zh,{tmp_path}/{name}.en")]
    trained = call("train", "model.kind=phrases", "model.tuning.rounds=0", *files, "--out", tmp_path / "run")
    assert trained.code == 0, trained.err
    assert "each character as a word where no spaces separate words" in trained.err
    (tmp_path / "text").write_text("你今天喝茶。\n", encoding="utf-8")
    found = call("translate", tmp_path / "run", tmp_path / "text", "--align", tmp_path / "links")
    assert found.out == "you today drink tea.\n"
    assert (tmp_path / "links").read_text().startswith("0-0 ")
    linked = call("align", "--train", f"{tmp_path}/train.zh,{tmp_path}/train.en")
    assert "segmentation=characters" in linked.err
