"""`seqloom score`: a number per pair."""

from pathlib import Path

import pytest

from cli.calling import call
from cli.conftest import Tiny, as_lowercase_model
from seqloom.runs.loading import load
from seqloom.runs.model_dir import save_model
from seqloom.training.weights import weights_of


@pytest.fixture(scope="module")
def other(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with the same vocabulary that thinks otherwise: its weights are halved."""
    loaded, place = load(tiny.run), tmp_path_factory.mktemp("other") / "model"
    weights = {name: weight / 2 for name, weight in weights_of(loaded.model).items()}
    save_model(place, loaded.config, tokenizers=loaded.tokenizers, weights=weights, card=loaded.card)
    return place


def test_each_pair_has_its_log_probability_and_blank_ones_have_none(tiny: Tiny, tmp_path: Path) -> None:
    source, target = tmp_path / "a.en", tmp_path / "a.de"
    source.write_text("Good morning.\n\nThe dog sees.\n")
    target.write_text("Guten Morgen.\nNein.\nDer Hund sieht.\n")
    called = call("score", tiny.run, source, target)
    assert called.code == 0, called.err
    assert called.lines[1] == "null"
    records = call("score", tiny.run, source, target, "--json").records
    assert [record["line"] for record in records] == [1, 2, 3]
    assert (records[1]["log_prob"], records[1]["per_token"]) == (None, None)
    for row in (0, 2):
        record = records[row]
        assert record["log_prob"] < 0
        assert float(called.lines[row]) == pytest.approx(record["log_prob"], abs=1e-6)
        assert record["per_token"] * record["tokens"] == pytest.approx(record["log_prob"])
    means = call("score", tiny.run, source, target, "--per-token").lines
    assert float(means[0]) == pytest.approx(records[0]["per_token"], abs=1e-6)


def test_the_score_of_a_translation_is_the_one_the_search_found(tiny: Tiny, tmp_path: Path) -> None:
    records = call("translate", tiny.run, tiny.dev[0], "--json").records
    found = [record["translations"][0] for record in records]
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text(
        "".join(f"{record['source']}\t{best['text']}\n" for record, best in zip(records, found, strict=True))
    )
    scored = call("score", tiny.run, pairs, "--json").records
    # Text cut into other pieces than the search chose has another probability.
    same = [
        (best["terms"]["log_prob"], score["log_prob"])
        for best, score in zip(found, scored, strict=True)
        if best["is_finished"] and len(best["tokens"]) == score["tokens"]
    ]
    assert len(scored) == 6
    assert [ours for ours, _ in same] == pytest.approx([theirs for _, theirs in same], abs=1e-4)


def test_models_score_together_as_they_translate_together(tiny: Tiny, other: Path, tmp_path: Path) -> None:
    records = call("translate", tiny.run, "--with", other, tiny.dev[0], "--json").records
    found = [record["translations"][0] for record in records]
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{r['source']}\t{best['text']}\n" for r, best in zip(records, found, strict=True)))
    together = call("score", tiny.run, "--with", other, pairs, "--json")
    assert together.code == 0, together.err
    same = [
        number
        for number, (best, score) in enumerate(zip(found, together.records, strict=True))
        if best["is_finished"] and len(best["tokens"]) == score["tokens"]
    ]
    theirs = [found[number]["terms"]["log_prob"] for number in same]
    assert [together.records[number]["log_prob"] for number in same] == pytest.approx(theirs, abs=1e-4)
    # Neither model alone gives these scores, so that the second one has had its say.
    for model in (tiny.run, other):
        alone = call("score", model, pairs, "--json").records
        assert [record["log_prob"] for record in alone] != pytest.approx(
            [record["log_prob"] for record in together.records], abs=1e-4
        )


def test_a_model_beside_itself_scores_as_it_does_alone(tiny: Tiny) -> None:
    alone = call("score", tiny.run, *tiny.dev, "--json").records
    both = call("score", tiny.run, *tiny.dev, "--with", tiny.run / "model", "--json").records
    ours, theirs = ([record["log_prob"] for record in records] for records in (both, alone))
    assert ours == pytest.approx(theirs, abs=1e-4)


def test_a_companion_with_another_vocabulary_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    stranger = as_lowercase_model(tiny.run / "model", tmp_path / "small", setting="text")
    called = call("score", tiny.run, *tiny.dev, "--with", stranger)
    assert (called.code, called.out) == (2, "")
    assert f"{stranger} has another vocabulary than" in called.err


def test_files_of_different_length_are_a_data_error(tiny: Tiny) -> None:
    called = call("score", tiny.run, tiny.dev[0], tiny.train[1])
    assert called.code == 3
    assert f"{tiny.dev[0]} has 6 lines, but {tiny.train[1]} has 60" in called.err


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["a.de"], "a.de has one side only; give SOURCE and TARGET"),
        (["a", "b", "c"], "got 3 files"),
        (["no.de", "no.en"], "no.de: no such file"),
        (["a.tsv", "seed=3"], "unknown setting 'seed=3'; did you mean search.seed=3?"),
        (["a.tsv", "search.beam=8"], "search.beam=8 has no effect here: pairs are scored without a search"),
    ],
)
def test_invalid_arguments_are_refused_with_a_message(words: list[str], part: str) -> None:
    called = call("score", "model", *words)
    assert (called.code, called.out) == (2, "")
    assert part in called.err
