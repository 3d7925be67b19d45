"""`seqloom align`: as many lines out as pairs in, and a score where there is a reference."""

import json
import re
import shutil
from pathlib import Path

import pytest

from cli.calling import call
from cli.conftest import Tiny
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
        (["a.en"], 2, "'a.en' is not a setting path=value; name text files with --train or --text"),
        (["--train", "a.en"], 2, "a source file and a target file are needed"),
        (["--train", "a.en,a.de", "--symmetrise", "grow"], 2, "grow"),
        (["--train", "a.en,a.de", "--iterations", "0"], 2, "iterations"),
        (["--train", "a.en,a.de", "model.nul_rate=0.1"], 2, "null_rate"),
        (["--train", "a.en,b.de"], 3, "a.en has 151 lines, but b.de has 7"),
        (["--train", "a.en,a.de", "--reference", "b.gold"], 3, "b.gold: 7 lines, but 151 sentence pairs are aligned"),
        (["--train", "a.en,a.de", "--reference", "a.de"], 3, "a.de:1: "),
        (["--train", "a.en,a.de", "--out", "a.en"], 2, "a.en is also an input"),
        (["--train", "a.en,a.de", "model.tension=4"], 2, "model.kind=diagonal"),
        (["--train", "a.en,a.de", "--picture", "a.gif"], 2, "a.gif is neither .png nor .svg"),
        (["--train", "a.en,a.de", "--picture", "a.png", "--line", "152"], 2, "--line 152 is beyond the last of 151"),
        (["--train", "a.en,a.de", "--save", "saved"], 2, "saved exists already; name a new folder with --save"),
        (["--model", "saved", "--train", "a.en,a.de"], 2, "--model cannot be combined with --train"),
        (["--model", "saved", "--text", "b.en,b.de", "--save", "x"], 2, "--save cannot be combined with --model"),
        (["--model", "saved"], 2, "no text to align: give --text"),
        (["--model", "saved", "--text", "b.en,b.de", "--iterations", "3"], 2, "model.iterations cannot be changed"),
        (["--model", "nothing", "--text", "b.en,b.de"], 2, "nothing: model directory not found"),
        (["--model", "saved", "--text", "b.de,b.en"], 4, "give the files in the other order"),
        (["--model", "saved", "--text", "b.en,b.de", "data.target=fr"], 4, "is an aligner of en → de, and the text is"),
        (["--train", "a.en,a.de", "--text", "-"], 2, "--text - is read with --model"),
        (["--model", "saved", "--text", "-", "--page", "x.html"], 2, "--text - is read with --model"),
        (["--model", "damaged", "--text", "b.en,b.de"], 4, "damaged is damaged: model.safetensors"),
    ],
)
def test_unsupported_requests_are_refused(
    files: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], code: int, part: str
) -> None:
    monkeypatch.chdir(files)
    called = call("align", *words)
    assert (called.code, called.out) == (code, "")
    assert part in called.err
    assert "Traceback" not in called.err


# --- saved aligners ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", autouse=True)
def saved(files: Path) -> Path:
    """An aligner of the pairs, and one with a damaged table."""
    folder = files / "saved"
    called = call(
        "align", "--train", files / "a.en", "--train", files / "a.de", "--save", folder, "segmentation=spaces"
    )
    assert called.code == 0, called.err
    assert f"aligner written to {folder}" in called.err
    again = call("align", "--model", folder, "--text", f"{files / 'a.en'},{files / 'a.de'}")
    assert again.out == called.out
    (shutil.copytree(folder, files / "damaged") / "model.safetensors").write_bytes(b"x" * 99)
    return folder


def test_a_saved_aligner_is_an_ordinary_model(saved: Path, tmp_path: Path) -> None:
    shown = call("info", saved)
    assert shown.code == 0, shown.err
    assert "aligner, " in shown.out
    assert "en → de" in shown.out
    assert "pairs of words forward" in shown.out
    assert json.loads((saved / "model.json").read_text(encoding="utf-8"))["trained_on"]["pairs"] == 151
    packed = call("pack", saved, tmp_path / "aligner.zip")
    assert packed.code == 0, packed.err
    text = f"{saved.parent / 'b.en'},{saved.parent / 'b.de'}"
    found = [call("align", "--model", model, "--text", text) for model in (saved, tmp_path / "aligner.zip")]
    assert found[0].out == found[1].out
    assert len(found[0].lines) == 7
    for command in (
        ["translate", saved, saved.parent / "b.en"],
        ["generate", saved],
        ["vectors", "nearest", saved, "x"],
    ):
        refused = call(*command)
        assert refused.code == 2
        assert "it is an aligner of kind aligner; use seqloom align --model" in refused.err


def test_new_pairs_are_linked_with_probabilities_and_scored(saved: Path) -> None:
    words = ["align", "--model", saved, "--text", f"{saved.parent / 'b.en'},{saved.parent / 'b.de'}", "--probabilities"]
    called = call(*words, "--reference", saved.parent / "b.gold")
    assert called.code == 0, called.err
    assert all(re.fullmatch(r"\d+-\d+:[01]\.\d\d", word) for line in called.lines for word in line.split())
    assert "AER 0." in called.err
    records = call(*words, "--json", "--threads", 2).records
    for line, record in zip(called.lines, records, strict=True):
        both = zip(record["links"], record["probabilities"], strict=True)
        assert [f"{i}-{j}:{p:.2f}" for (i, j), p in both] == line.split()
    fewer = call(*words, "threshold=0.99")
    assert len(fewer.out.split()) < len(called.out.split())
    assert all(float(word.split(":")[1]) >= 0.99 for word in fewer.out.split())


def test_piped_pairs_are_answered_line_by_line(saved: Path) -> None:
    sides = [(saved.parent / name).read_text(encoding="utf-8").splitlines() for name in ("b.en", "b.de")]
    lines = [*("\t".join(pair) for pair in zip(*sides, strict=True)), ""]
    piped = call("align", "--model", saved, "--text", "-", stdin="".join(f"{line}\n" for line in lines).encode())
    assert piped.code == 0, piped.err
    named = call("align", "--model", saved, "--text", f"{saved.parent / 'b.en'},{saved.parent / 'b.de'}")
    assert piped.lines == [*named.lines, ""]
    refused = call("align", "--model", saved, "--text", "-", stdin=b"a\tb\nno tab\n")
    assert (refused.code, refused.out) == (3, "")
    assert "standard input:2: 1 columns; a line has a source, a tab and a target" in refused.err


def test_a_translator_is_not_an_aligner(saved: Path, tiny: Tiny) -> None:
    refused = call("align", "--model", tiny.run, "--text", f"{saved.parent / 'b.en'},{saved.parent / 'b.de'}")
    assert refused.code == 2
    assert "is not an aligner: it is a translator" in refused.err


def test_gold_links_as_wa_give_the_same_rate(saved: Path, tmp_path: Path) -> None:
    gold = tmp_path / "gold.wa"
    lines = (saved.parent / "b.gold").read_text(encoding="utf-8").splitlines()
    links = [(number, *map(int, word.split("-"))) for number, line in enumerate(lines, 1) for word in line.split()]
    gold.write_text("".join(f"{n:04} {i + 1} {j + 1} S 1.0\n" for n, i, j in links), encoding="utf-8")
    words = ["align", "--model", saved, "--text", f"{saved.parent / 'b.en'},{saved.parent / 'b.de'}", "--reference"]
    rates = [re.findall(r"AER [^(]*", call(*words, path).err) for path in (saved.parent / "b.gold", gold)]
    assert rates[0] == rates[1] != []


def test_pairs_are_shown_on_a_page_and_in_a_picture(saved: Path, tmp_path: Path) -> None:
    page, picture, folder = tmp_path / "b.html", tmp_path / "b.png", saved.parent
    words = ["align", "--model", saved, "--text", f"{folder / 'b.en'},{folder / 'b.de'}", "--page", page]
    called = call(*words, "--picture", picture, "--line", 2, "--reference", folder / "b.gold")
    assert called.code == 0, called.err
    assert len(called.lines) == 7
    text = page.read_text(encoding="utf-8")
    assert text.count('<section class="pair') == 7
    assert "AER 0." in text
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_translator_takes_shortlists_and_unknown_words_from_an_aligner(tiny: Tiny, tmp_path: Path) -> None:
    aligner, model = tmp_path / "aligner", shutil.copytree(tiny.run / "model", tmp_path / "model")
    assert call("align", "--train", f"{tiny.train[0]},{tiny.train[1]}", "--save", aligner).code == 0
    made = call("shortlist", model, "--aligner", aligner, "--json")
    assert made.code == 0, made.err
    assert made.records[-1]["pairs"] == len(tiny.train[0].read_text(encoding="utf-8").splitlines())
    assert made.records[-1]["entries"] > 100
    plain, short = (call("translate", model, tiny.dev[0], *more) for more in ([], ["search.shortlist=50"]))
    assert short.code == 0, short.err
    assert len(short.lines) == len(plain.lines)
    replaced = call("translate", model, tiny.dev[0], "--dictionary", aligner)
    assert replaced.code == 0, replaced.err
    other = tmp_path / "other"
    assert call("align", "--train", f"{tiny.train[0]},{tiny.train[1]}", "--save", other, "data.target=fr").code == 0
    refused = call("shortlist", model, "--aligner", other)
    assert refused.code == 4
    assert f"{other} is an aligner of en → fr, and the text is en → de" in refused.err
    assert call("shortlist", model, "--aligner", aligner, "--train", f"{tiny.train[0]},{tiny.train[1]}").code == 2
