"""`seqloom align`: as many lines out as pairs in, and a score where there is a reference."""

from pathlib import Path

import pytest

from cli.calling import call
from seqloom.data.phrasebook import sample_pairs


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Phrasebook pairs as they are cut, with their gold links; a blank line at the end of each."""
    folder = tmp_path_factory.mktemp("align")
    pairs = sample_pairs("en", "de", count=150, seed=1)
    columns = {
        "a.en": [" ".join(pair.source_tokens) for pair in pairs],
        "a.de": [" ".join(pair.target_tokens) for pair in pairs],
        "a.gold": [" ".join(f"{i}-{j}" for i, j in pair.alignment) for pair in pairs],
    }
    for name, lines in columns.items():
        (folder / name).write_text("".join(f"{line}\n" for line in [*lines, ""]), encoding="utf-8")
        (folder / name.replace("a.", "b.")).write_text("".join(f"{line}\n" for line in lines[:7]), encoding="utf-8")
    return folder


def test_lines_of_links_come_out_and_blank_lines_stay_blank(files: Path) -> None:
    called = call("align", "--train", files / "a.en", "--train", files / "a.de")
    assert called.code == 0, called.err
    assert len(called.lines) == 151
    assert called.lines[-1] == ""
    assert all(word.count("-") == 1 for line in called.lines for word in line.split())
    records = call("align", "--train", f"{files / 'a.en'},{files / 'a.de'}", "--json", "--threads", 2).records
    assert [" ".join(f"{i}-{j}" for i, j in record["links"]) for record in records] == called.lines
    assert records[150] == {"line": 151, "links": []}


def test_a_reference_gives_the_error_rate_and_more_rounds_a_lower_one(files: Path, tmp_path: Path) -> None:
    words = ["align", "--train", files / "a.en", "--train", files / "a.de", "--reference", files / "a.gold"]
    rates = []
    for rounds in (1, 8):
        out = tmp_path / f"{rounds}.align"
        called = call(*words, "--out", out, "--iterations", rounds, "segmentation=spaces")
        assert called.code == 0, called.err
        assert called.out.startswith("AER 0.")
        assert "151 pairs" in called.out
        assert out.read_text(encoding="utf-8").count("\n") == 151
        rates.append(float(called.out.split()[1].rstrip(",")))
    assert rates[1] < rates[0]
    assert rates[1] < 0.4
    # Where links are on standard output, the score is not among them.
    called = call(*words, "segmentation=spaces", "--json")
    assert next(message["aer"] for message in called.messages if "aer" in message) == pytest.approx(rates[1], abs=0.2)
    assert len(called.records) == 151


def test_another_text_is_aligned_and_learned_from(files: Path) -> None:
    train, text = ["--train", files / "a.en", "--train", files / "a.de"], f"{files / 'b.en'},{files / 'b.de'}"
    called = call("align", *train, "--text", text, "--reference", files / "b.gold", "segmentation=spaces")
    assert called.code == 0, called.err
    assert len(called.lines) == 7
    assert "7 pairs" in called.err


def test_rules_keep_more_or_fewer_links(files: Path) -> None:
    counts = []
    for rule in ("intersection", "grow-diag", "grow-diag-final-and", "union"):
        called = call("align", "--train", files / "a.en", "--train", files / "a.de", "--symmetrise", rule)
        counts.append(len(called.out.split()))
    assert counts == sorted(counts)
    assert counts[0] < counts[-1]


@pytest.mark.parametrize(
    ("words", "code", "part"),
    [
        ([], 2, "no text to align: give --train corpus.de --train corpus.en"),
        (["a.en"], 2, "'a.en' is not a setting path=value; name text files with --train"),
        (["--train", "a.en"], 2, "a source file and a target file are needed"),
        (["--train", "a.en,a.de", "--symmetrise", "grow"], 2, "grow"),
        (["--train", "a.en,a.de", "--iterations", "0"], 2, "iterations"),
        (["--train", "a.en,a.de", "model.nul_rate=0.1"], 2, "null_rate"),
        (["--train", "a.en,b.de"], 3, "a.en has 151 lines, but b.de has 7"),
        (["--train", "a.en,a.de", "--reference", "b.gold"], 3, "b.gold: 7 lines, but 151 sentence pairs are aligned"),
        (["--train", "a.en,a.de", "--reference", "a.de"], 3, "a.de:1: "),
        (["--train", "a.en,a.de", "--out", "a.en"], 2, "a.en is also an input"),
    ],
)
def test_unsupported_requests_are_refused(
    files: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], code: int, part: str
) -> None:
    monkeypatch.chdir(files)
    called = call("align", *words)
    assert (called.code, called.out) == (code, "")
    assert part in called.err
