"""Files that hold both sides: every command that reads text reads the side of them that it needs."""

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from cli.calling import call
from cli.conftest import Tiny, train_words

Pairs = Sequence[tuple[str, str]]


def tsv(pairs: Pairs) -> str:
    return "".join(f"{source}\t{target}\n" for source, target in pairs)


def tmx(pairs: Pairs) -> str:
    units = ""
    for pair in pairs:
        variants = (
            f'<tuv xml:lang="{code}"><seg>{text}</seg></tuv>' for code, text in zip(("en", "de"), pair, strict=True)
        )
        units += f"<tu>{''.join(variants)}</tu>"
    return f'<tmx version="1.4"><header srclang="en"/><body>{units}</body></tmx>'


def po(pairs: Pairs) -> str:
    entries = "".join(f'\nmsgid "{source}"\nmsgstr "{target}"\n' for source, target in pairs)
    return f'msgid ""\nmsgstr "Language: de\\n"\n{entries}'


def xlf(pairs: Pairs) -> str:
    units = "".join(
        f'<trans-unit id="{at}"><source>{source}</source><target>{target}</target></trans-unit>'
        for at, (source, target) in enumerate(pairs)
    )
    head = '<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">'
    file = '<file original="a" source-language="en" target-language="de" datatype="x">'
    return f"{head}{file}<body>{units}</body></file></xliff>"


def jsonl(pairs: Pairs) -> str:
    return "".join(json.dumps({"source": source, "target": target}) + "\n" for source, target in pairs)


FORMS: dict[str, Callable[[Pairs], str]] = {"tsv": tsv, "tmx": tmx, "po": po, "xlf": xlf, "jsonl": jsonl, "tsv.gz": tsv}


@pytest.fixture
def pairs(tiny: Tiny) -> Pairs:
    sides = (path.read_text(encoding="utf-8").splitlines() for path in tiny.dev)
    return list(zip(*sides, strict=True))


def written(folder: Path, name: str, form: str, pairs: Pairs) -> Path:
    path, data = folder / f"{name}.{form}", FORMS[form](pairs).encode()
    path.write_bytes(gzip.compress(data) if form.endswith(".gz") else data)
    return path


@pytest.mark.parametrize("form", FORMS)
def test_evaluate_and_score_read_them_as_two_files(tiny: Tiny, tmp_path: Path, pairs: Pairs, form: str) -> None:
    path = written(tmp_path, "test", form, pairs)
    plain = call("evaluate", tiny.run, "--source", tiny.dev[0], "--reference", tiny.dev[1])
    assert plain.code == 0, plain.err
    alone = call("evaluate", tiny.run, "--source", path)
    assert alone.code == 0, alone.err
    assert alone.out == plain.out
    assert call("evaluate", tiny.run, "--source", tiny.dev[0], "--reference", path).out == plain.out
    assert call("evaluate", tiny.run, "--source", path, "--reference", tiny.dev[1]).out == plain.out
    scored = call("score", tiny.run, path)
    assert scored.code == 0, scored.err
    assert scored.out == call("score", tiny.run, *tiny.dev).out
    same = call("evaluate", "--hypothesis", path, "--reference", tiny.dev[1])
    assert " 100.00 " in same.out


@pytest.mark.parametrize("form", ["tsv", "tmx"])
def test_looking_at_a_model_reads_them_as_two_files(tiny: Tiny, tmp_path: Path, pairs: Pairs, form: str) -> None:
    path = written(tmp_path, "test", form, pairs)
    for words in (
        ["look", "heads", tiny.run],
        ["look", "gradients", tiny.run, "--out", tmp_path / "a.png", "--source"],
    ):
        files = [tiny.dev[0], *(["--reference"] if "--source" in words else []), tiny.dev[1]]
        called = call(*words, path, "--json")
        assert called.code == 0, called.err
        assert called.records == call(*words, *files, "--json").records
    for side, plain in zip(("source", "target"), tiny.dev, strict=True):
        (found,), (wanted,) = (
            call("info", tiny.run, "--text", each, "--side", side, "--json").records for each in (path, plain)
        )
        assert found["text"] == wanted["text"]


@pytest.mark.parametrize("form", ["tsv", "tsv.gz"])
def test_translate_takes_the_first_column_of_a_table(tiny: Tiny, tmp_path: Path, pairs: Pairs, form: str) -> None:
    path = written(tmp_path, "test", form, pairs)
    found = call("translate", tiny.run, path)
    assert found.code == 0, found.err
    assert found.out == call("translate", tiny.run, tiny.dev[0]).out
    assert f"{path}: the first of 2 columns is translated" in found.err


def test_skipped_catalogues_are_not_listed_in_the_model(tiny: Tiny, tmp_path: Path) -> None:
    lines = zip(*(path.read_text(encoding="utf-8").splitlines() for path in tiny.train), strict=True)
    right = written(tmp_path, "a", "xlf", list(lines))
    french = tmp_path / "b.po"
    french.write_text('msgid ""\nmsgstr "Language: fr\\n"\n\nmsgid "Save"\nmsgstr "Enregistrer"\n', encoding="utf-8")
    run = tmp_path / "run"
    called = call(*train_words((right, french), tiny.dev, run))
    assert called.code == 0, called.err
    assert "b.po: its languages are any and fr, not en and de; data.source and data.target choose" in called.err
    assert json.loads((run / "model" / "model.json").read_text())["trained_on"]["files"] == [str(right)]


def test_a_vocabulary_that_knows_nothing_of_the_text_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    vocabulary = tmp_path / "words.txt"
    vocabulary.write_text("qqq\nxxx\n", encoding="utf-8")
    plain = [word for word in train_words(tiny.train, tiny.dev, tmp_path / "run") if not str(word).startswith("text.")]
    called = call(*plain, f"data.tokenizers_from={vocabulary}")
    assert called.code == 3
    assert f"data.tokenizers_from={vocabulary} does not fit the training text: 100.0%" in called.err
    assert not (tmp_path / "run").exists()


def test_tables_of_three_columns_are_refused_by_every_command(tiny: Tiny, tmp_path: Path) -> None:
    path = tmp_path / "c3.tsv"
    path.write_text("one\ttwo\tthree\na\tb\tc\n", encoding="utf-8")
    for words in (
        ["score", tiny.run, path],
        ["translate", tiny.run, path],
        ["evaluate", tiny.run, "--source", path],
        ["align", "--train", path],
        ["doctor", path],
    ):
        called = call(*words)
        assert (called.code, called.out) == (3, ""), words
        assert f"{path}:1: 3 columns, expected source, tab, target" in called.err


def test_text_of_one_language_is_not_read_from_a_table(tiny: Tiny, tmp_path: Path, pairs: Pairs) -> None:
    table = written(tmp_path, "test", "tsv", pairs)
    run = tmp_path / "counts"
    trained = call("train", "model.kind=ngram", "--train", tiny.dev[1], "--dev", tiny.dev[1], "--out", run)
    assert trained.code == 0, trained.err
    for words in (
        ["perplexity", run, table],
        ["look", "zipf", table],
        ["selfcheck", run, "--lines", table],
        ["train", "model.kind=ngram", "--train", table, "--out", tmp_path / "other"],
    ):
        called = call(*words)
        assert (called.code, called.err) == (
            2,
            f"error: {table} is a table of pairs, for models that translate; give a text file here: cut -f 2 {table} > "
            "FILE\n",
        ), words


def test_zipf_counts_one_language_of_a_memory(tiny: Tiny, tmp_path: Path, pairs: Pairs) -> None:
    memory = written(tmp_path, "test", "tmx", pairs)
    (plain,) = call("look", "zipf", tiny.dev[1], "minimum_count=1", "--json").records
    (found,) = call("look", "zipf", memory, "language=de", "minimum_count=1", "--json").records
    assert found["text"] == plain["text"]
    asked = call("look", "zipf", memory)
    assert asked.code == 3
    assert "choose one of them: language=de" in asked.err
