"""`seqloom evaluate`: scores with interval and signature, and the test between two systems."""

from pathlib import Path

import pytest

from cli.calling import call
from cli.conftest import Tiny, as_lowercase_model


@pytest.fixture
def reference(tmp_path: Path) -> Path:
    path = tmp_path / "test.de"
    path.write_text("Der Hund sieht einen Baum .\nGuten Morgen .\nDie Katze schläft heute nicht .\n", encoding="utf-8")
    return path


@pytest.fixture
def worse(tmp_path: Path) -> Path:
    path = tmp_path / "worse.de"
    path.write_text("Der Hund sieht keinen Baum .\nGuten Tag .\nDie Katze .\n", encoding="utf-8")
    return path


def test_a_model_is_scored_and_its_translations_are_kept(tiny: Tiny, tmp_path: Path) -> None:
    source, target = tiny.dev
    out = tmp_path / "kept.de"
    called = call("evaluate", tiny.run, "--source", source, "--reference", target, "--out", out)
    assert called.code == 0, called.err
    assert out.read_text(encoding="utf-8") == call("translate", tiny.run, source).out
    assert called.lines[0] == "6 lines"
    for name, part in (("BLEU", "tok:13a"), ("chrF2", "nc:6"), ("TER", "tok:tercom")):
        (row,) = (line for line in called.lines if line.startswith(f"  {name} "))
        assert part in row
        assert "[" in row
        assert "|bs:1000|seed:1" in row


def test_the_same_text_is_perfect_and_json_says_so(reference: Path) -> None:
    called = call("evaluate", "--hypothesis", reference, "--reference", reference, "--json")
    (record,) = called.records
    values = {score["name"]: score["value"] for score in record["systems"][0]["scores"]}
    assert values == pytest.approx({"BLEU": 100, "chrF2": 100, "TER": 0})
    assert (record["lines"], record["comparisons"]) == (3, [])


def test_two_systems_are_compared_line_by_line(reference: Path, worse: Path) -> None:
    words = ["evaluate", "--hypothesis", worse, "--hypothesis2", reference, "--reference", reference]
    (record,) = call(*words, "--json").records
    comparison = record["comparisons"][0]
    assert comparison["system"] == pytest.approx(100)
    assert comparison["difference"] == comparison["system"] - comparison["baseline"] > 0
    assert 0 < comparison["p_value"] <= 1
    called = call(*words)
    assert f"{reference} minus {worse}" in called.out
    assert "p = " in called.out
    (swapped,) = call(*words, "--json", "--significance", "randomisation").records
    assert swapped["comparisons"][0]["difference"] == comparison["difference"]
    assert "|ar:10000|seed:1" in swapped["comparisons"][0]["signature"]
    assert "(approximate randomisation; " in call(*words, "--significance", "randomisation").out
    alone = call("evaluate", "--hypothesis", worse, "--reference", reference, "--significance", "bootstrap")
    assert (alone.code, "compares two systems; add --against or --hypothesis2" in alone.err) == (2, True)


def test_a_model_compared_with_itself_does_not_differ(tiny: Tiny) -> None:
    words = ["evaluate", tiny.run, "--against", tiny.run / "model", "--source", tiny.dev[0], "--reference", tiny.dev[1]]
    (record,) = call(*words, "--json", "search.beam=1").records
    assert [system["name"] for system in record["systems"]] == [str(tiny.run / "model"), str(tiny.run)]
    assert {(each["difference"], each["p_value"]) for each in record["comparisons"]} == {(0.0, 1.0)}


@pytest.mark.parametrize(
    ("name", "words", "tokenizer"),
    [("x.zh", [], "tok:zh"), ("x.txt", [], "tok:13a"), ("x.txt", ["--target-language", "ja"], "tok:char")],
)
def test_the_language_decides_how_words_are_found(tmp_path: Path, name: str, words: list[str], tokenizer: str) -> None:
    path = tmp_path / name
    path.write_text("他们在看。\n", encoding="utf-8")
    called = call("evaluate", "--hypothesis", path, "--reference", path, *words)
    assert tokenizer in called.out


def test_lowercase_is_seen_in_score_and_signature(tmp_path: Path, reference: Path) -> None:
    small = tmp_path / "small.de"
    small.write_text(reference.read_text(encoding="utf-8").lower(), encoding="utf-8")
    called = call("evaluate", "--hypothesis", small, "--reference", reference, "--lowercase")
    assert "BLEU   100.00" in called.out
    assert "case:lc|eff:no" in called.out


@pytest.mark.parametrize(
    ("setting", "reason"), [("evaluation", "evaluation.lowercase: true"), ("text", "text.lowercase")]
)
def test_a_lowercase_model_is_scored_lowercase_with_a_notice(
    tiny: Tiny, tmp_path: Path, setting: str, reason: str
) -> None:
    model = as_lowercase_model(tiny.run / "model", tmp_path / "small", setting=setting)
    words = ["evaluate", model, "--source", tiny.dev[0], "--reference", tiny.dev[1], "search.beam=1", "--json"]

    def case(*more: str) -> tuple[str, str]:
        called = call(*words, *more)
        assert called.code == 0, called.err
        scores = called.records[0]["systems"][0]["scores"]
        return next(score["signature"] for score in scores if score["name"] == "BLEU"), called.err

    signature, told = case()
    assert "case:lc" in signature
    assert reason in told
    assert "--cased" in told
    signature, told = case("--cased")
    assert "case:mixed" in signature
    assert "--cased" not in told


def test_phones_have_metrics_of_their_own_and_the_best_of_several_answers_counts(tmp_path: Path) -> None:
    source, right, found = tmp_path / "words", tmp_path / "right", tmp_path / "found"
    source.write_text("read\ncat\nread\n", encoding="utf-8")
    right.write_text("R EH D\nK AE T\nR IY D\n", encoding="utf-8")
    found.write_text("R IY D\nK AE\nR IY D\n", encoding="utf-8")
    words = ["evaluate", "--hypothesis", found, "--reference", right]

    def scores(*more: object) -> dict[str, float]:
        (record,) = call(*words, *more, "--json").records
        return {score["name"]: score["value"] for score in record["systems"][0]["scores"]}

    each = scores()
    assert list(each) == ["exact match", "PER", "chrF2"]
    assert (each["exact match"], each["PER"]) == (pytest.approx(100 / 3), pytest.approx(200 / 9))
    grouped = scores("--source", source)
    assert (grouped["exact match"], grouped["PER"]) == (50, pytest.approx(100 / 6))
    assert grouped["chrF2"] == each["chrF2"]
    called = call(*words, "--source", source)
    assert called.lines[1] == "1 of 2 sources have several references; the best counts, but in BLEU, chrF and TER"
    assert scores("--metric", "cer", "--metric", "distinct-1") == {
        "CER": pytest.approx(100 * 4 / 18),
        "distinct-1": pytest.approx(100 * 5 / 8),
        "distinct-1 of the references": pytest.approx(100 * 7 / 9),
    }
    refused = call(*words, "--metric", "rouge")
    assert refused.code == 2
    assert "unknown metric 'rouge'; the metrics are bleu, " in refused.err


def test_line_counts_that_differ_are_a_data_error_with_both(reference: Path, tmp_path: Path) -> None:
    short = tmp_path / "short.de"
    short.write_text("eins\nzwei\n")
    called = call("evaluate", "--hypothesis", short, "--reference", reference)
    assert called.code == 3
    assert f"{short} has 2 lines, but {reference} has 3" in called.err


def test_empty_files_are_a_data_error(tmp_path: Path) -> None:
    empty = tmp_path / "empty.de"
    empty.touch()
    called = call("evaluate", "--hypothesis", empty, "--reference", empty)
    assert called.code == 3
    assert "expected at least one line to score" in called.err


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ([], "--reference FILE"),
        (["--reference", "r"], "nothing to score"),
        (["model", "--reference", "r"], "--source FILE"),
        (["model", "--hypothesis", "h", "--source", "s", "--reference", "r"], "leave one out"),
        (["--hypothesis", "h", "--out", "o", "--reference", "r"], "--out o requires a MODEL"),
        (["--hypothesis", "h", "--against", "m", "--reference", "r"], "--against m requires a MODEL"),
        (["--hypothesis", "h", "--reference", "r", "search.beam=2"], "setting 'search.beam=2' requires a MODEL"),
        (["one", "two", "--reference", "r", "--source", "s"], "--against"),
        (["--hypothesis", "h", "--reference", "nowhere.de"], "nowhere.de: no such file"),
    ],
)
def test_invalid_arguments_are_refused_with_a_message(words: list[str], part: str) -> None:
    called = call("evaluate", *words)
    assert (called.code, called.out) == (2, "")
    assert part in called.err
