"""Labelled texts: four forms of files, what is wrong with them by file and line, and how they are stored."""

import gzip
import json
import lzma
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.core.errors import DataError, UsageError
from seqloom.core.symbols import BEGIN, END
from seqloom.data.labelled import (
    LabelledCorpus,
    LabelledLine,
    LabelledStore,
    encode_labelled,
    frame_texts,
    hold_out,
    join_texts,
)

TEXTS = ["a fine film", "dull", "a fine cast", "so dull", "fine \u2028 work", "dull to the end"]
LABELS = ["pos", "neg"] * 3
ROWS = list(zip(LABELS, TEXTS, strict=True))


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def forms() -> dict[str, list[str]]:
    """The same examples in every form."""
    return {
        "words.txt": [f"{label} {text}" for label, text in ROWS],
        "fast.txt": [f"__label__{label} {text}" for label, text in ROWS],
        "label-first.tsv": [f"{label}\t{text}" for label, text in ROWS],
        "label-last.tsv": [f"{text}\t{label}" for label, text in ROWS],
        "headed.tsv": ["text\tlabel", *(f"{text}\t{label}" for label, text in ROWS)],
        "records.jsonl": [json.dumps({"label": label, "text": text, "id": 3}) for label, text in ROWS],
    }


@pytest.mark.parametrize("name", forms())
def test_every_form_gives_the_same_examples_again_and_again(tmp_path: Path, name: str) -> None:
    corpus = LabelledCorpus([write(tmp_path / name, *forms()[name])])
    first = 2 if name == "headed.tsv" else 1
    numbers = range(first, first + len(ROWS))
    # splitlines would cut a text at U+2028: only records have line ends inside, and only there they are spaces.
    texts = ["fine   work" if text == TEXTS[4] and name == "records.jsonl" else text for text in TEXTS]
    wanted = [LabelledLine(*each) for each in zip(numbers, LABELS, [(text,) for text in texts], strict=True)]
    assert list(corpus) == list(corpus) == wanted
    assert (len(corpus), dict(corpus.labels), list(corpus.labels), corpus.texts) == (
        *(6, {"neg": 3, "pos": 3}, ["neg", "pos"]),
        1,
    )


def test_compressed_files_are_the_same_text_and_lines_are_counted_over_files(tmp_path: Path) -> None:
    plain = write(tmp_path / "a.tsv", *forms()["label-last.tsv"])
    packed = tmp_path / "b.tsv.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    (tmp_path / "c.tsv.xz").write_bytes(lzma.compress(plain.read_bytes()))
    one, two, three = (LabelledCorpus([path]) for path in (plain, packed, tmp_path / "c.tsv.xz"))
    assert one.fingerprint() == two.fingerprint() == three.fingerprint()
    both = LabelledCorpus([tmp_path / "?.tsv*"])
    assert [line.number for line in both] == list(range(1, 19))
    assert both.place(8) == (packed, 2)
    assert both.label_column == 2


def test_pairs_have_two_texts(tmp_path: Path) -> None:
    rows = [("entails", f"A man reads {n}.", f"Somebody reads {n}.") for n in range(6)]
    rows += [("denies", f"A dog sleeps {n}.", f"No dog sleeps {n}.") for n in range(6)]
    table = LabelledCorpus([write(tmp_path / "pairs.tsv", *("\t".join((a, label, b)) for label, a, b in rows))])
    records = [json.dumps({"label": label, "text": a, "text_pair": b}) for label, a, b in rows]
    assert list(table) == list(LabelledCorpus([write(tmp_path / "pairs.jsonl", *records)]))
    assert (table.texts, next(iter(table)).texts) == (2, ("A man reads 0.", "Somebody reads 0."))
    with pytest.raises(DataError, match=r"single\.tsv:1: 1 text in a line, but .*pairs\.tsv has 2 texts"):
        LabelledCorpus([tmp_path / "pairs.tsv", write(tmp_path / "single.tsv", *forms()["label-last.tsv"])])


def test_two_readings_of_a_table_are_shown_with_the_setting_that_chooses(tmp_path: Path) -> None:
    path = write(tmp_path / "two.tsv", *(f"{'yes' if n % 2 else 'no'}\t{'abc'[n % 3]}" for n in range(12)))
    with pytest.raises(DataError) as caught:
        LabelledCorpus([path])
    assert str(caught.value) == (
        f"{path}: columns 1 and 2 may both be the label in 12 lines: column 1 has 2 different values ('no', 'yes'); "
        "column 2 has 3 different values ('a', 'b', 'c'). Name it: data.label_column=1 or data.label_column=2"
    )
    assert list(LabelledCorpus([path], column=2).labels) == ["a", "b", "c"]
    assert list(LabelledCorpus([path], known=["no", "yes"]).labels) == ["no", "yes"]
    with pytest.raises(UsageError, match=r"data\.label_column=3, but .*two\.tsv has 2 columns"):
        LabelledCorpus([path], column=3)
    many = write(tmp_path / "many.tsv", *(f"word {n}\tother {n}" for n in range(12)))
    with pytest.raises(DataError, match=r"no column has few different values in 12 lines: column 1 has 12 different"):
        LabelledCorpus([many])
    with pytest.raises(DataError, match=r"no labels found: its 12 lines begin with 12 different words, such as '0'"):
        LabelledCorpus([write(tmp_path / "prose.txt", *(f"{n} is a number" for n in range(12)))])


def test_prose_and_csv_are_not_labelled_text(tmp_path: Path) -> None:
    """First words of sentences are frequent or rare, as all words are; labels are not."""
    firsts = ["The"] * 60 + ["My"] * 25 + [f"Word{n // 3}" for n in range(90)] + [f"Name{n}" for n in range(3)]
    prose = write(tmp_path / "prose.txt", *(f"{word} house is old" for word in firsts))
    with pytest.raises(DataError, match=r"no labels found: its 178 lines begin with 35 different words, such as 'The'"):
        LabelledCorpus([prose])
    marked = write(tmp_path / "marked.txt", *(f"__label__{word} house is old" for word in firsts))
    assert len(LabelledCorpus([marked]).labels) == len(LabelledCorpus([prose], known=set(firsts)).labels) == 35
    table = write(tmp_path / "table.csv", "label,text", *(f"{label},{text}" for label, text in ROWS))
    with pytest.raises(
        UsageError, match=r"table\.csv: CSV is not supported; write a tab .* or give a label and a space"
    ):
        LabelledCorpus([table])


def test_how_a_file_is_read_is_said(tmp_path: Path) -> None:
    ids = write(tmp_path / "ids.tsv", *(f"{n}\t{label}\t{text}" for n, (label, text) in enumerate(ROWS)))
    assert LabelledCorpus([ids]).readings == (
        f"{ids}: read as a table, label: column 2; a pair of texts: columns 1 and 3",
    )
    files = [write(tmp_path / name, *lines) for name, lines in forms().items()]
    assert LabelledCorpus([*files, files[0]]).readings == (
        f"{files[0]} and 1 more: read as label, space, text",
        f"{files[1]}: read as __label__, label, space, text",
        f"{files[2]}: read as a table, label: column 1; text: column 2",
        f"{files[3]} and 1 more: read as a table, label: column 2; text: column 1",
        f"{files[5]}: read as JSON records, label, text",
    )


@pytest.mark.parametrize(
    ("name", "line", "message"),
    [
        ("words.txt", "pos", "text is empty; the label is 'pos'"),
        ("words.txt", "", "blank; expected a label and a text"),
        ("fast.txt", "a text", "no label: the line does not begin with __label__"),
        ("fast.txt", "__label__a __label__b x", "several labels (__label__a, __label__b); a text has one class"),
        ("label-last.tsv", "a text\t", "no label"),
        ("label-last.tsv", "\u200b\tpos", "text is empty; the label is 'pos'"),
        ("label-last.tsv", "a\tb\tpos", "3 columns separated by tabs, expected 2"),
        ("records.jsonl", '{"text": "x"}', "no label; the members are text"),
        ("records.jsonl", '{"label": "a\\tb", "text": "x"}', "the label 'a\\tb' has a tab or a line end in it"),
        ("records.jsonl", '{"label": 1.5, "text": "x"}', "text is expected, not 1.5"),
        (
            "records.jsonl",
            '{"label": "a", "text": "x", "text_pair": "y"}',
            'a "text_pair", but the first line has none',
        ),
        ("records.jsonl", "{", "not JSON: Expecting property name enclosed in double quotes"),
    ],
)
def test_what_is_wrong_is_named_by_file_and_line(tmp_path: Path, name: str, line: str, message: str) -> None:
    path = write(tmp_path / name, *forms()[name], line)
    with pytest.raises(DataError) as caught:
        LabelledCorpus([path])
    assert str(caught.value) == f"{path}:7: {message}"


def test_labels_that_are_not_known_and_empty_files_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "dev.txt", "pos fine", "meh so so", "neg dull")
    with pytest.raises(DataError) as caught:
        LabelledCorpus([path], known=["pos", "neg"])
    assert (
        str(caught.value) == f"{path}:2: the label 'meh' is not among the 2 labels of the training text ('neg', 'pos')"
    )
    with pytest.raises(DataError, match=r"none\.txt: empty; expected a label and a text in each line"):
        LabelledCorpus([write(tmp_path / "none.txt")])
    numbers = write(tmp_path / "n.jsonl", *(json.dumps({"label": n % 2, "text": "x"}) for n in range(4)))
    assert dict(LabelledCorpus([numbers]).labels) == {"0": 2, "1": 2}


def test_invalid_bytes_are_an_error_or_drop_their_line(tmp_path: Path) -> None:
    path = tmp_path / "bytes.txt"
    path.write_bytes(b"pos fine\nneg d\xffll\npos good\nneg dull\n")
    with pytest.raises(DataError, match=r"bytes\.txt:2"):
        LabelledCorpus([path])
    assert [line.number for line in LabelledCorpus([path], on_bad="skip")] == [1, 3, 4]


def test_examples_are_held_out_by_the_seed_and_no_label_vanishes(tmp_path: Path) -> None:
    lines = [*(f"{'ab'[n % 2]} text {n}" for n in range(38)), "rare one", "a last"]
    corpus = LabelledCorpus([write(tmp_path / "x.txt", *lines)])
    (rest, held), again = hold_out(corpus, 30, seed=1), hold_out(corpus, 30, seed=1)
    assert (len(rest), len(held)) == (10, 30)
    assert list(held) == list(again[1]) != list(hold_out(corpus, 30, seed=2)[1])
    assert sorted([*rest, *held]) == list(corpus)
    assert {line.label for line in rest} == {"a", "b", "rare"}


@given(
    st.lists(st.lists(st.integers(4, 9), max_size=12), min_size=1, max_size=2),
    st.integers(5, 20),
)
def test_a_pair_is_cut_at_its_longer_text_and_fills_its_room(texts: list[list[int]], longest: int) -> None:
    joined = join_texts(texts, longest=longest)
    room, total = longest - 1 - len(texts), sum(map(len, texts))
    assert (len(joined.ids), joined.cut) == (min(room, total) + len(texts), max(0, total - room))
    parts = [joined.ids[: joined.first], joined.ids[joined.first :]][: len(texts)]
    for part, text in zip(parts, texts, strict=True):
        assert part[-1] == END
        assert part[:-1] == text[: len(part) - 1]
    if joined.cut and len(texts) == 2:
        kept, lengths = [len(part) - 1 for part in parts], [len(text) for text in texts]
        shorter = lengths.index(min(lengths))
        assert kept[shorter] == lengths[shorter] or abs(kept[0] - kept[1]) <= 1
    framed = frame_texts([(joined.ids, joined.first)])
    assert framed.ids[0].tolist() == [BEGIN, *joined.ids]
    assert framed.segments[0].tolist() == [0] * (1 + joined.first) + [1] * (len(joined.ids) - joined.first)


def test_a_store_gives_back_what_was_encoded(tmp_path: Path) -> None:
    corpus = LabelledCorpus([write(tmp_path / "words.txt", *forms()["words.txt"])])
    words = sorted({word for text in TEXTS for word in text.split()})
    report = encode_labelled(
        corpus,
        lambda texts: [[4 + words.index(word) for word in text.split()] for text in texts],
        tmp_path / "store",
        symbols=4 + len(words),
        labels=["neg", "pos"],
        longest=5,
    )
    assert (report.lines, report.cut_lines, report.cut_tokens) == (6, 1, 1)
    store = LabelledStore.open(tmp_path / "store", classes=2, verify=True)
    assert store.labels.tolist() == [1, 0] * 3
    framed = store.framed(np.array([5, 1]))
    assert framed.lengths.tolist() == [5, 3]
    assert [words[number - 4] for number in framed.ids[0, 1:4]] == ["dull", "to", "the"]
    assert framed.ids[1].tolist()[2:] == [END, 0, 0]
    with pytest.raises(DataError, match="class 1 of 1 classes"):
        LabelledStore.open(tmp_path / "store", classes=1)
    (tmp_path / "store" / "labels").write_bytes(b"\x00" * 24)
    with pytest.raises(DataError, match="labels: SHA-256"):
        LabelledStore.open(tmp_path / "store", classes=2, verify=True)
