"""Further columns as whole symbols: lemma and features to form."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.calling import call
from seqloom.apps.translator import Translator
from seqloom.core.config import resolve
from seqloom.core.errors import ConfigError, UsageError
from seqloom.core.symbols import UNKNOWN
from seqloom.runs.config import RunConfig
from seqloom.runs.train import resume, train
from seqloom.runs.translation import PairData
from seqloom.text.symbols import piece_of, split_symbols
from seqloom.text.tokenizer import TextConfig, Tokenizer, Tokenizers
from seqloom.text.tokenizer_training import train_tokenizer
from tiny_runs import TINY

ENDINGS = {"V;PST": "ed", "V;PTCP": "en", "N;PL": "s"}
STEMS = [first + second + last for first in "bdV" for second in "aeiP" for last in "klmS"]


def write_forms(path: Path, *, stems: list[str] = STEMS) -> Path:
    """A language in which the features alone decide the ending; its letters are written like features."""
    rows = [f"{stem}\t{stem}{ending}\t{features}\n" for stem in stems for features, ending in ENDINGS.items()]
    path.write_text("".join(rows), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of forms, and a model that was trained on it by the command."""
    place = tmp_path_factory.mktemp("forms")
    train = write_forms(place / "forms.tsv")
    dev = write_forms(place / "dev.tsv", stems=["bal", "VPS"])
    with dev.open("a", encoding="utf-8") as file:
        file.write("bal\tbaling\tV;PRS;3\n")
    words = ["data.symbols=[3]", *(each for each in TINY if not each.startswith("text."))]
    found = call("train", *words, "--train", train, "--dev", dev, "--out", place / "run")
    assert found.code == 0, found.err
    assert "single characters as pieces" in found.err
    assert "dev: 2 symbols are not in the training text and read as unknown: 'PRS' (1), '3' (1)" in found.err
    return place


def test_symbols_stay_whole_and_are_not_letters(place: Path) -> None:
    tokenizers = Tokenizers.load(place / "run" / "text")
    assert tokenizers.is_shared
    assert tokenizers.source.pieces("VaS\tV;PST") == ["V", "a", "S", piece_of("V"), piece_of("PST")]
    data = PairData.load(place / "run", resolve(RunConfig, file=place / "run" / "config.yaml"))
    assert data.dev_sources(2) == ["bal\tV;PST", "bal\tV;PTCP"]
    translator = Translator.load(place / "run")
    assert translator.tokenizers.source.encode("VaS") != translator.tokenizers.source.encode("aS\tV")
    assert translator.score(["bal\tV;PST"], ["baled"]) != translator.score(["bal\tN;PL"], ["baled"])


@given(st.text("VPSab ", max_size=8), st.lists(st.sampled_from(["V", "PST", "ab", "=", "é"]), max_size=4))
def test_a_line_is_its_text_and_then_its_symbols(text: str, symbols: list[str]) -> None:
    tokenizer = TOKENIZER
    line = f"{text}\t{';'.join(symbols)}"
    ids = [number for symbol in symbols if (number := tokenizer.id_of(piece_of(symbol))) is not None]
    assert tokenizer.encode(line) == tokenizer.encode(text) + ids
    assert tokenizer.decode(tokenizer.encode(line)).split("\t") == [
        " ".join(text.split()),
        *[";".join(symbols)] * bool(ids),
    ]
    assert tokenizer.encode(tokenizer.decode(tokenizer.encode(line))) == tokenizer.encode(line)
    assert split_symbols(line.replace(";", " | "))[1] == symbols
    assert tokenizer.unknown_symbols(f"{line};NEW") == ["NEW"]
    assert tokenizer.encode(f"{line};NEW") == [*tokenizer.encode(line), UNKNOWN]


def made_tokenizer() -> Tokenizer:
    marks = [piece_of(symbol) for symbol in ("V", "PST", "ab", "=", "é")]
    return train_tokenizer(["VPSab é= VP"], TextConfig(kind="char", size=1000), marks=marks)


TOKENIZER = made_tokenizer()


def test_the_file_is_translated_evaluated_scored_and_packed(place: Path, tmp_path: Path) -> None:
    run, dev = place / "run", place / "dev.tsv"
    lines = ["bal\tV;PST", "bal\tV;PTCP", "bal\tN;PL", "VPS\tV;PST", "VPS\tV;PTCP", "VPS\tN;PL", "bal\tV;PRS;3"]
    (tmp_path / "lines.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    by_lines, by_table = (call("translate", run, path) for path in (tmp_path / "lines.txt", dev))
    assert by_table.code == by_lines.code == 0, by_table.err
    assert by_table.lines == by_lines.lines == Translator.load(run).translate(lines)
    for found in (by_lines, by_table):
        assert "2 symbols are not in the training text and read as unknown: 'PRS' (1), '3' (1)" in found.err
    evaluated = call("evaluate", run, "--source", dev, "--metric", "exact-match")
    assert evaluated.code == 0, evaluated.err
    assert "7 lines" in evaluated.out
    assert "read as unknown: 'PRS' (1)" in evaluated.err
    scored = call("score", run, dev)
    assert [float(line) for line in scored.lines] == pytest.approx(
        Translator.load(run).score(lines, [line.split("\t")[1] for line in dev.read_text().splitlines()]), abs=1e-5
    )
    assert call("pack", run, tmp_path / "packed.zip").code == 0
    assert call("translate", tmp_path / "packed.zip", dev).lines == by_table.lines
    assert call("selfcheck", run, "--count", "3").code == 0
    refused = call("export", run, "--to", "onnx")
    assert refused.code == 2
    assert "data.symbols=[3]" in refused.err


def test_a_run_resumes_with_its_symbols_and_refuses_others(place: Path) -> None:
    resumed = resume(place / "run", ["training.steps=8"])
    assert resumed is not None
    assert resumed.outcome.step == 8
    assert resolve(RunConfig, file=place / "run" / "config.yaml").data.symbols == (3,)
    with pytest.raises(UsageError, match="symbols"):
        resume(place / "run", ["data.symbols=[2]"])


def test_records_have_members_as_symbols(tmp_path: Path) -> None:
    rows = [
        {"source": stem, "target": stem + ending, "features": features.split(";"), "class": "x"}
        for stem in STEMS
        for features, ending in ENDINGS.items()
    ]
    (tmp_path / "forms.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    trained = train(
        None, [*TINY, "data.symbols=[features, class]"], out=tmp_path / "run", train=[str(tmp_path / "forms.jsonl")]
    )
    assert trained is not None
    tokenizer = Tokenizers.load(trained.model / "text").source
    assert tokenizer.pieces("V\tV;PST;x")[-3:] == [piece_of(symbol) for symbol in ("V", "PST", "x")]


@pytest.mark.slow
def test_forms_of_unseen_stems_are_learned(tmp_path: Path) -> None:
    train_file = write_forms(
        tmp_path / "train.tsv", stems=[stem for stem in STEMS if stem not in ("bal", "dem", "VPS")]
    )
    dev = write_forms(tmp_path / "dev.tsv", stems=["bal", "dem", "VPS"])
    settings = ["data.symbols=[3]", "model.kind=seq2seq", "training.steps=500", "model.copy=true"]
    trained = train(None, settings, out=tmp_path / "run", train=[str(train_file)], dev=[str(dev)])
    assert trained is not None
    assert {score.name: score.value for score in trained.scores}["exact match"] >= 80


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        (["data.symbols=[0]"], "counted from 1"),
        (["data.symbols=[3, 3]"], "different columns"),
        (["data.symbols=[5]"], "other columns than two"),
        (["data.symbols=[3, case]"], "different columns"),
        (["data.symbols=[source]"], "other columns than two"),
        (["data.symbols=[3]", "model.kind=phrases"], "trained in steps on pairs"),
        (["data.symbols=[3]", "model.kind=rnn_lm"], "trained in steps on pairs"),
        (["data.symbols=[3]", "task.subword_sampling=0.1"], "cannot be combined with task.subword_sampling"),
    ],
)
def test_symbols_that_cannot_be_are_refused(settings: list[str], part: str) -> None:
    with pytest.raises(ConfigError, match=part):
        resolve(RunConfig, overrides=settings)


def test_rows_with_other_columns_are_named(tmp_path: Path) -> None:
    path = tmp_path / "forms.tsv"
    path.write_text("walk\twalked\tV;PST\nwalk\twalks\n", encoding="utf-8")
    found = call("train", "data.symbols=[3]", "--train", path, "--out", tmp_path / "run")
    assert found.code == 3
    assert "forms.tsv:2: 2 columns, expected 3: source and target, and the symbols of data.symbols=[3]" in found.err
