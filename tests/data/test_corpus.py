"""Parallel corpora: restartable, checked before the slow part, and honest about what is dropped."""

import gzip
import os
import random
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nasty
from seqloom.core.errors import DataError, UsageError
from seqloom.core.symbols import END, UNKNOWN
from seqloom.data import corpus as corpus_module
from seqloom.data.corpus import Line, hold_out, open_corpus
from seqloom.data.corpus_files import languages_from
from seqloom.data.encoding import PairEncoder, encode_corpus
from seqloom.data.store import Store
from seqloom.text.normalise import is_blank
from seqloom.text.tokenizer import FlatIds, TextConfig, Tokenizer
from seqloom.text.tokenizer_training import train_tokenizer

Write = Callable[..., list[Path]]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def to_files(**contents: str) -> list[Path]:
        paths = []
        for name, content in contents.items():
            path = tmp_path / name.replace("_", ".")
            data = content.encode()
            path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
            paths.append(path)
        return paths

    return to_files


# --- reading ---------------------------------------------------------------------------------------------------------


def test_a_corpus_starts_again(write: Write) -> None:
    corpus = open_corpus(write(a_de="eins\nzwei\n", a_en="one\ntwo\n", b_de_gz="drei\n", b_en="three"))
    expected = [Line(1, 0, "eins", "one"), Line(2, 0, "zwei", "two"), Line(3, 1, "drei", "three")]
    assert list(corpus) == list(corpus) == expected
    assert len(corpus) == 3
    assert corpus.place(2).endswith("a.de:2")
    assert corpus.place(3).endswith("b.de.gz:1")


def test_pairs_tables_and_compressed_files_hold_the_same(write: Write) -> None:
    pair = open_corpus(write(a_de="eins\nzwei\n", a_en="one\ntwo\n"))
    table = open_corpus(write(x_tsv="eins\tone\nzwei\ttwo"))
    packed = open_corpus(write(y_tsv_gz="\ufeffeins\tone\r\nzwei\ttwo\n"))
    other = open_corpus(write(z_tsv="eins\tone\nzwei\ttoo\n"))
    assert list(pair) == list(table) == list(packed)
    assert pair.fingerprint() == table.fingerprint() == packed.fingerprint() != other.fingerprint()
    assert pair.notices == ()
    mark, returns = packed.notices
    assert "y.tsv.gz: the byte-order mark at the start was left out" in mark
    assert "y.tsv.gz: carriage returns at the ends of lines were left out" in returns


@given(st.lists(st.tuples(*[nasty.line(most=3, longest=60, without="\r\0\t\ufeff")] * 2), min_size=1, max_size=5))
def test_whatever_is_in_a_line_stays_in_it(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]]
) -> None:
    folder = tmp_path_factory.mktemp("corpus")
    paths = [folder / "a.de", folder / "a.en"]
    for side, path in enumerate(paths):
        path.write_bytes("".join(f"{pair[side]}\n" for pair in pairs).encode())
    assert [(line.source, line.target) for line in open_corpus(paths)] == pairs


@given(nasty.lines(fewest=1, longest=40, without="\r\0\t\ufeff"))
def test_whatever_is_in_a_line_comes_back_from_the_store(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str]
) -> None:
    """Through the encoder into the store and back: the tokeniser spells what it does not know by its bytes."""
    folder = tmp_path_factory.mktemp("stored")
    lines = [*lines, "the end"]  # a text of blank lines alone is refused
    paths = [folder / "a.de", folder / "a.en"]
    for path in paths:
        path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    ours = spelling()
    encoder = PairEncoder(ours.encode_flat, ours.encode_flat, longest=10_000)
    encode_corpus(open_corpus(paths), encoder, folder / "ids", symbols=ours.size, workers=1)
    store = Store.open(folder / "ids", verify=True)
    expected = {number: ours.normaliser(line) for number, line in enumerate(lines, start=1) if not is_blank(line)}
    assert {store.line(at): ours.decode(store.sources[at].tolist()) for at in range(len(store))} == expected
    assert {store.line(at): ours.decode(store.targets[at].tolist()) for at in range(len(store))} == expected


@cache
def spelling() -> Tokenizer:
    return train_tokenizer(["the end"], TextConfig(kind="char", size=300, byte_fallback=True))


def test_a_file_that_changes_while_it_is_read_is_named(write: Write) -> None:
    paths = write(a_de="eins\nzwei\n", a_en="one\ntwo\n")
    corpus = open_corpus(paths)
    paths[0].write_text("eins\n")
    with pytest.raises(DataError, match=r"a\.de or .*a\.en changed while it was being read"):
        list(corpus)


# --- checks ----------------------------------------------------------------------------------------------------------


def test_empty_files_are_refused_all_at_once(write: Write) -> None:
    with pytest.raises(DataError) as caught:
        open_corpus(write(a_de="", a_en="one\n", b_de="eins\n", b_en=""))
    assert [problem.message for problem in caught.value.problems] == ["empty, expected at least one line"] * 2
    assert "a.de: empty" in str(caught.value)
    assert "b.en: empty" in str(caught.value)
    with pytest.raises(DataError, match=r"x\.tsv: empty"):
        open_corpus(write(x_tsv=""))


def text_pair(lines: int) -> tuple[list[str], list[str]]:
    generator = random.Random(0)
    lengths = [generator.randint(5, 100) for _ in range(lines)]
    return ["s" * length for length in lengths], ["t" * (length + generator.randint(-2, 2)) for length in lengths]


def test_unequal_counts_name_the_place_where_the_lengths_drift(write: Write) -> None:
    source, target = text_pair(400)
    del target[149]
    with pytest.raises(DataError) as caught:
        open_corpus(write(a_de="\n".join(source), a_en="\n".join(target)))
    message = str(caught.value)
    assert "a.de has 400 lines, but " in message
    assert "a.en has 399" in message
    near = int(message.partition("near line ")[2].partition(":")[0])
    assert abs(near - 150) <= 3
    assert "U+2028" not in message


def test_a_file_that_goes_on_after_the_end_is_told_from_one_that_drifts(write: Write) -> None:
    source, target = text_pair(400)
    source[7] += "\u2028more"
    with pytest.raises(DataError) as caught:
        open_corpus(write(a_de="\n".join(source[:390]), a_en="\n".join(target)))
    message = str(caught.value)
    assert "the lengths match up to line 390: " in message
    assert "a.en seems to have more lines at its end" in message
    assert "a.de holds 1 characters such as U+2028" in message


def test_wrong_columns_are_named_by_line(write: Write) -> None:
    with pytest.raises(DataError) as caught:
        open_corpus(write(x_tsv="a\tb\nc\nd\te\tf\n\n"))
    assert [(problem.line, problem.message) for problem in caught.value.problems] == [
        (2, "1 column, expected source, tab, target"),
        (3, "3 columns, expected source, tab, target"),
        (4, "1 column, expected source, tab, target"),
    ]


def test_files_that_make_no_corpus_are_refused(write: Write) -> None:
    de, en, tsv = write(a_de="a\n", a_en="b\n", x_tsv="a\tb\n")
    with pytest.raises(UsageError, match=r"source file and a target file are needed.*given: .*a\.de$"):
        open_corpus([de])
    with pytest.raises(UsageError, match="given: nothing"):
        open_corpus([])
    with pytest.raises(UsageError, match=r"x\.tsv is a table of both sides"):
        open_corpus([de, tsv])
    with pytest.raises(UsageError, match="given as source and as target"):
        open_corpus([en, en])
    with pytest.raises(UsageError, match="no such file"):
        open_corpus([de, en.with_name("b.en")])


@pytest.mark.parametrize(
    ("names", "languages"),
    [
        (["train.de", "train.en"], ("de", "en")),
        (["x/train.de.gz", "x/train.en.gz"], ("de", "en")),
        (["train.de.txt", "train.en.txt"], ("de", "en")),
        (["a.zh-Hans", "a.pt_BR"], ("zh-Hans", "pt_BR")),
        (["x.de-en.tsv"], ("de", "en")),
        (["x.de-en.tsv.gz", "y.de-en.tsv"], ("de", "en")),
        (["a.de", "a.en", "b.de", "b.en"], ("de", "en")),
        (["a.de", "a.en", "b.en", "b.de"], None),
        (["x.de-en.tsv", "y.en-de.tsv"], None),
        (["source.txt", "target.txt"], None),
        (["train.src", "train.tgt"], None),
        (["de", "en"], None),
        (["x.tsv"], None),
        (["a.de"], None),
    ],
)
def test_languages_are_read_from_names(names: list[str], languages: tuple[str, str] | None) -> None:
    assert languages_from([Path(name) for name in names]) == languages


# --- examples --------------------------------------------------------------------------------------------------------


def letters(sentences: list[str]) -> FlatIds:
    """A tokenizer for tests: an id per lower-case letter, spaces vanish, all else is unknown."""
    return FlatIds.of(
        [
            [ord(letter) - 87 if "a" <= letter <= "z" else UNKNOWN for letter in text if letter != " "]
            for text in sentences
        ]
    )


@pytest.mark.parametrize("size", [1, 2, 100])
def test_pairs_are_encoded_dropped_and_counted(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(corpus_module, "BLOCK", size)
    corpus = open_corpus(write(a_de="ab\n\nc\nabcd\nab\n\u200b\u00ad\na\n", a_en="c?\nx\n \t\nd\nabcd\nb\nabc\n"))
    told: list[tuple[int, int]] = []
    report = encode_corpus(
        corpus,
        PairEncoder(letters, letters, longest=4),
        tmp_path / "ids",
        symbols=50,
        progress=lambda done, total: told.append((done, total)),
    )
    store = Store.open(tmp_path / "ids", verify=True)
    assert [(list(store.sources[at]), list(store.targets[at]), store.line(at)) for at in range(len(store))] == [
        ([10, 11, END], [12, UNKNOWN, END], 1),
        ([10, END], [10, 11, 12, END], 7),
    ]
    assert (report.read, report.kept) == (7, 2)
    assert (report.empty.count, report.empty.lines) == (3, (2, 3, 6))
    assert (report.too_long.count, report.too_long.lines) == (2, (4, 5))
    assert (report.source.tokens, report.source.unknown) == (5, 0)
    assert (report.target.tokens, report.target.unknown) == (7, 1)
    assert report.target.unknown_rate == pytest.approx(1 / 7)
    assert report.sentences() == [
        "3 of 7 pairs dropped for an empty side (lines 2, 3, 6)",
        "2 of 7 pairs dropped for a side that is too long (lines 4, 5)",
    ]
    assert told[-1] == (7, 7)


def test_a_sentence_that_the_tokenizer_empties_is_dropped(write: Write, tmp_path: Path) -> None:
    corpus = open_corpus(write(a_de="a\nb\n", a_en="x\ny\n"))
    report = encode_corpus(
        corpus,
        PairEncoder(letters, lambda texts: FlatIds.of([[7] if text == "x" else [] for text in texts]), longest=4),
        tmp_path / "s",
        symbols=50,
    )
    assert (report.kept, report.empty.lines) == (1, (2,))


def test_a_corpus_of_which_nothing_is_left_is_an_error(write: Write, tmp_path: Path) -> None:
    corpus = open_corpus(write(a_de="abcdef\n" * 7, a_en="x\n" * 7))
    with pytest.raises(DataError) as caught:
        encode_corpus(corpus, PairEncoder(letters, letters, longest=3), tmp_path / "ids", symbols=50)
    assert str(caught.value) == (
        "no pairs left to train on: 7 of 7 pairs dropped for a side that is too long (lines 1, 2, 3, 4, 5 …); "
        "at most 3 tokens are allowed on a side"
    )
    assert not (tmp_path / "ids").exists()


def test_blank_lines_are_those_that_show_nothing() -> None:
    assert all(map(is_blank, ["", " \t\u3000\xa0", "\u200b\u200d", "\ufeff \u00ad", "\u202e\u2069"]))
    assert not any(map(is_blank, ["a", " . ", "\u200ba", "\u0301", "😀"]))


def memory(path: Path, source: str, target: str) -> Path:
    units = ""
    for at in range(3):
        variants = (f'<tuv xml:lang="{each}"><seg>{each} {at}</seg></tuv>' for each in (source, target))
        units += f"<tu>{''.join(variants)}</tu>"
    path.write_text(f'<tmx version="1.4"><header srclang="{source}"/><body>{units}</body></tmx>')
    return path


def test_catalogues_of_other_languages_among_several_are_skipped_and_counted(tmp_path: Path) -> None:
    right = memory(tmp_path / "a.tmx", "de", "en")
    wrong = memory(tmp_path / "b.tmx", "de", "fr")
    french = tmp_path / "c.po"
    french.write_text('msgid ""\nmsgstr "Language: fr\\n"\n\nmsgid "Save"\nmsgstr "Enregistrer"\n')
    corpus = open_corpus([wrong, right, french], languages=("de", "en"))
    assert [line.target for line in corpus] == ["en 0", "en 1", "en 2"]
    assert corpus.place(2) == f"{right}, pair 2"
    chosen = "data.source and data.target choose the languages, and where they are not given the first file does"
    assert corpus.notices[0] == (
        f"2 of 3 files skipped, which have nothing to learn from: {wrong}: no pair to learn from among 3 segments, "
        f"expected at least one in de and en; {chosen}; {french}: its languages are any and fr, not de and en; {chosen}"
    )
    with pytest.raises(DataError, match=r"b\.tmx: no pair to learn from among 3 segments"):
        open_corpus([wrong, french], languages=("de", "en"))


# --- holding out -----------------------------------------------------------------------------------------------------


def test_no_source_is_both_held_out_and_trained_on(write: Write) -> None:
    """Each source has up to five translations, with spaces that differ; some targets have two sources."""
    drawn = random.Random(1)
    sources = [f"s{drawn.randrange(300)}{' ' * drawn.randrange(3)}" for _ in range(800)]
    targets = [f"t{at // 2 if at < 200 else at}" for at in range(800)]
    corpus = open_corpus(write(a_de="\n".join(["", *sources]) + "\n", a_en="\n".join(["x", *targets]) + "\n"))
    split = hold_out(corpus, 60, seed=3)
    rest, held = list(split.rest), list(split.held)
    assert sorted(rest + held) == list(corpus)
    assert len(held) == len(split.held) == 60
    assert not {line.source.strip() for line in rest} & {line.source.strip() for line in held}
    assert not {line.target for line in rest} & {line.target for line in held}
    assert split.sources == len({line.source.strip() for line in held})
    assert 1 not in {line.number for line in held}  # its source is blank
    assert list(hold_out(corpus, 60, seed=3).held) == held
    assert list(hold_out(corpus, 60, seed=4).held) != held


def test_targets_are_on_both_sides_only_where_others_are_too_few(write: Write) -> None:
    labels = "".join(f"{'good' if at % 2 else 'bad'}\n" for at in range(100))
    corpus = open_corpus(write(a_x="".join(f"s{at}\n" for at in range(100)), a_y=labels))
    split = hold_out(corpus, 10, seed=1)
    assert (len(split.held), split.sources, split.shared_targets) == (10, 10, 10)


def test_sources_that_all_repeat_too_often_are_held_out_pair_by_pair(write: Write) -> None:
    corpus = open_corpus(write(a_x="a\nb\n" * 50, a_y="".join(f"t{at}\n" for at in range(100))))
    split = hold_out(corpus, 10, seed=1)
    assert (len(split.held), split.sources) == (10, None)


def test_which_pairs_are_held_out_is_the_same_in_every_process(write: Write) -> None:
    """Strings have other hashes in each process."""
    paths = write(a_x="".join(f"s{at % 90}\n" for at in range(200)), a_y="".join(f"t{at}\n" for at in range(200)))
    code = (
        "import sys; from pathlib import Path; from seqloom.data.corpus import hold_out, open_corpus; "
        "print(sorted(hold_out(open_corpus(list(map(Path, sys.argv[1:]))), 20, seed=1).held.numbers))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code, *map(str, paths)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1
