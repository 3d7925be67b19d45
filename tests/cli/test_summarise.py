"""Summarisers on the command line: train, summarise, measure, describe, check, pack, resume, and refusals."""

import json
import random
from pathlib import Path

import pytest

from cli.calling import call
from seqloom import Summariser
from seqloom.core.errors import UsageError
from seqloom.data.documents import read_documents

WORDS = [f"w{number}" for number in range(60)]


def write_documents(path: Path, count: int, *, seed: int, cue: str = "We show", lead: bool = False) -> Path:
    """Documents whose summary is the sentence with a cue, or the first one."""
    draw, records = random.Random(seed), []
    for number in range(count):
        lines = [" ".join(draw.choices(WORDS, k=7)).capitalize() + "." for _ in range(5)]
        place = 0 if lead else draw.randrange(5)
        lines[place] = f"{cue} {lines[place]}"
        summary = lines[place] if number % 2 else [lines[place], "Something else."]
        records.append({"source": lines if number % 3 else " ".join(lines), "target": summary})
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents, and a summariser that was trained on them by the command."""
    place = tmp_path_factory.mktemp("summarise")
    write_documents(place / "train.jsonl", 60, seed=1)
    write_documents(place / "test.jsonl", 20, seed=2)
    found = call("train", "model.kind=extraction", "--train", place / "train.jsonl", "--out", place / "run")
    assert found.code == 0, found.err
    assert f"seqloom summarise {place / 'run' / 'model'} FILE" in found.out
    assert "ROUGE-1 of lead-1" in found.out
    assert "held out for validation: 6 of 60 documents" in found.err
    assert "summaries have 1 sentence (mean ROUGE-1: " in found.err
    assert "not above" not in found.err
    return place


def test_summaries_are_sentences_of_their_documents_in_text_and_json(place: Path, tmp_path: Path) -> None:
    documents = read_documents([place / "test.jsonl"], has_summaries=True)
    right = [each.summaries[0] for each in documents]
    found = call("summarise", place / "run", place / "test.jsonl")
    assert found.lines == right, found.err
    records = call("summarise", place / "run", place / "test.jsonl", "--json", "--sentences", "2").records
    for number, (record, document) in enumerate(zip(records, documents, strict=True), start=1):
        assert record["document"] == number
        assert record["summary"] == " ".join(document.sentences[at] for at in record["places"])
        assert len(record["places"]) == 2
        assert sum(record["probabilities"]) == pytest.approx(1)
    # Plain text is cut into sentences, a blank line stays one; the stream gives what the file gives.
    (tmp_path / "plain.txt").write_text(f"{' '.join(documents[0].sentences)}\n\nOne alone.\n", encoding="utf-8")
    plain = call("summarise", place / "run", tmp_path / "plain.txt")
    assert plain.lines == [right[0], "", "One alone."]
    assert call("summarise", place / "run", stdin=(tmp_path / "plain.txt").read_bytes()).out == plain.out
    summariser = Summariser.load(place / "run")
    assert [each.text for each in summariser.summarise([document.sentences for document in documents])] == right
    with pytest.raises(UsageError, match="list of texts"):
        summariser.summarise("One. Two.")


def test_summaries_are_measured_beside_the_first_sentences(place: Path) -> None:
    (record,) = call("summarise", place / "run", "--reference", place / "test.jsonl", "--json").records
    scores = {score["name"]: score["value"] for score in record["scores"]}
    assert record["documents"] == 20
    assert list(scores) == [f"ROUGE-{n}{of}" for of in ("", " of lead-1") for n in ("1", "2", "L")]
    assert scores["ROUGE-1"] == 100
    assert scores["ROUGE-1 of lead-1"] < 60
    assert "ROUGE-1 of lead-1" in call("summarise", place / "run", "--reference", place / "test.jsonl").out


def test_a_summariser_is_described_checked_packed_and_resumed(place: Path, tmp_path: Path) -> None:
    shown = call("info", place / "run")
    assert "1 sentence of each document" in shown.out, shown.err
    assert call("info", place / "run", "--json").code == 0
    checked = call("selfcheck", place / "run", "--count", "3")
    assert checked.code == 0, checked.out + checked.err
    packed = call("pack", place / "run" / "model", tmp_path / "model.zip")
    assert packed.code == 0, packed.err
    test = place / "test.jsonl"
    assert call("summarise", tmp_path / "model.zip", test).out == call("summarise", place / "run", test).out
    before = (place / "run" / "model" / "model.safetensors").read_bytes()
    resumed = call("train", "--resume", place / "run")
    assert resumed.code == 0, resumed.err
    assert (place / "run" / "model" / "model.safetensors").read_bytes() == before
    for words in (("translate", place / "run"), ("serve", place / "run"), ("export", place / "run", "--to", "onnx")):
        refused = call(*words)
        assert refused.code == 2
        assert "seqloom summarise" in refused.err


def test_a_model_that_does_not_beat_the_first_sentences_says_so(tmp_path: Path) -> None:
    train = write_documents(tmp_path / "lead.jsonl", 30, seed=3, cue="Today", lead=True)
    found = call("train", "model.kind=extraction", "--train", train, "--out", tmp_path / "run")
    assert found.code == 0, found.err
    assert "ROUGE-1 100.0 is not above 100.0, the ROUGE-1 of lead-1, which needs no model" in found.err


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "a.jsonl",
            '{"source": ["One."], "target": "One."}\n{"source": [], "target": "x"}\n',
            "a.jsonl:2:1: the source has no text",
        ),
        ("a.jsonl", '{"source": "One.", "target": "One."}\n{"source": "Two."}\n', "a.jsonl:2:1: no summary"),
        ("a.jsonl", '{"source": "One.", "target": "x"}\n{"source": ["a", null], "target": "x"}\n', "a.jsonl:2"),
        ("a.jsonl", '{"title": "One."}\n', "a.jsonl:1:1: no member 'source' or 'text'; there are title"),
        ("a.tsv", "One. Two.\tOne.\nOne. Two.\n", "a.tsv:2: 1 column, expected a document, a tab and a summary"),
        ("a.tsv", "", "a.tsv: empty, expected at least one line"),
    ],
)
def test_bad_documents_are_named_with_file_and_line(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    found = call("train", "model.kind=extraction", "--train", tmp_path / name, "--out", tmp_path / "run")
    assert found.code == 3, found.err
    assert message in found.err
    assert not (tmp_path / "run").exists()


def test_options_that_cannot_be_combined_are_refused(place: Path) -> None:
    found = call("summarise", place / "run", place / "test.jsonl", "--reference", place / "test.jsonl")
    assert found.code == 2
    assert "cannot be combined with --reference" in found.err
