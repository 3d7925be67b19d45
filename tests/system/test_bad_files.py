"""Bad files: for each row of the table, what training and the use of a model do about it.

The rows are those of the section "Bad files" in docs/reliability.md.
"""

import gzip
import lzma
import os
import random
from collections.abc import Mapping
from pathlib import Path

import pytest
import zstandard

from seqloom.core import text_files as compressed
from seqloom.data.store import Store
from seqloom.text.tokenizer import Tokenizers
from system.bad_files import ENGLISH, GERMAN, LANGUAGE_MODEL, TRANSLATOR, Bench, as_bytes, prepare, write_model

A, B = as_bytes(ENGLISH), as_bytes(GERMAN)
TEXTS = {"a.en": A, "a.de": B}
BAD = A.replace(b"house 2", b"caf\xe9 2")
PACK = {".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstandard.ZstdCompressor(write_checksum=True).compress}
PILE = "Z" + "".join(random.Random(1).choices([chr(code) for code in range(0x300, 0x320)], k=100_000))
NOISE = os.urandom(3_000).hex().encode() + b"\n"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("models")
    return write_model(folder / "translator", TRANSLATOR), write_model(folder / "lm", LANGUAGE_MODEL)


@pytest.fixture
def bench(tmp_path: Path, models: tuple[Path, Path]) -> Bench:
    found = Bench(tmp_path, *models)
    found.write(TEXTS)
    return found


PAIR = ("--train", "a.en", "--train", "a.de")
TABLE = ("--train", "a.tsv")
USES = {
    "translate": ("translate", "MODEL", "a.en"),
    "score": ("score", "MODEL", "a.en", "a.de"),
    "evaluate": ("evaluate", "--hypothesis", "a.en", "--reference", "a.de"),
    "perplexity": ("perplexity", "LM", "a.en"),
}
CHECKS = {
    "train": ("train", *PAIR, "--out", "run.dir"),
    "align": ("align", *PAIR),
    "doctor": ("doctor", *PAIR),
}

# --- refused -------------------------------------------------------------------------------------------------------

REFUSED_BY_TRAINING: Mapping[str, tuple[Mapping[str, bytes], int, list[str]]] = {
    "empty": ({"a.en": b""}, 3, ["a.en: empty, expected at least one line"]),
    "both empty": ({"a.en": b"", "a.de": b""}, 3, ["empty, expected at least one line"]),
    "unequal": ({"a.de": as_bytes(GERMAN[:-1])}, 3, ["a.en has 12 lines, but", "has 11", "seems to have more lines"]),
    "unequal, U+2028": (
        {"a.de": as_bytes(["eins\u2028zwei", *GERMAN[2:]])},
        3,
        ["has 12 lines", "has 11", "1 characters such as U+2028 that some tools read as line ends; only LF is one"],
    ),
    "invalid UTF-8": (
        {"a.en": BAD},
        3,
        ["a.en:3:18: invalid UTF-8 byte 0xE9; if it is Latin-1, add --encoding latin-1; --on-bad-utf8 skip"],
    ),
    "invalid UTF-8 in both": (
        {"a.en": BAD, "a.de": b"\xff" + B},
        3,
        ["a.en:3:18: invalid UTF-8 byte 0xE9", "a.de:1:1: invalid UTF-8 byte 0xFF"],
    ),
    "UTF-16 with a mark": ({"a.en": A.decode().encode("utf-16")}, 3, ["a.en: this is UTF-16", "add --encoding utf-16"]),
    "UTF-32 without": (
        {"a.en": A.decode().encode("utf-32-be")},
        3,
        ["a.en: this is UTF-32-BE", "--encoding utf-32-be"],
    ),
    "NUL": ({"a.en": A.replace(b"house 4", b"hou\0se 4")}, 3, ["a.en:5:18: NUL character; is this binary data?"]),
}


@pytest.mark.parametrize("command", CHECKS)
@pytest.mark.parametrize("row", REFUSED_BY_TRAINING)
def test_what_is_no_corpus_is_refused_before_anything_is_made(bench: Bench, row: str, command: str) -> None:
    files, code, parts = REFUSED_BY_TRAINING[row]
    bench.write(files)
    called = bench.call(*CHECKS[command])
    assert (called.code, called.out) == (code, "")
    for part in parts:
        assert any(each in called.err for each in part.split("|")), called.err
    assert "Traceback" not in called.err
    assert not (bench.folder / "run.dir").exists()


@pytest.mark.parametrize("row", ["empty", "invalid UTF-8", "UTF-16 with a mark", "UTF-32 without", "NUL"])
def test_a_text_of_one_language_is_refused_for_the_same_reasons(bench: Bench, row: str) -> None:
    files, code, parts = REFUSED_BY_TRAINING[row]
    bench.write(files)
    called = bench.call("train", "model.kind=rnn_lm", "--train", "a.en", "--out", "run.dir")
    assert (called.code, called.out) == (code, "")
    assert all(part.split(",")[0] in called.err for part in parts), called.err


REFUSED_IN_USE: Mapping[str, tuple[Mapping[str, bytes], int, list[str]]] = {
    "invalid UTF-8": (
        {"a.en": BAD},
        3,
        ["a.en:3:18: invalid UTF-8 byte 0xE9; if it is Latin-1, add --encoding latin-1"],
    ),
    "UTF-16 with a mark": ({"a.en": A.decode().encode("utf-16")}, 3, ["this is UTF-16", "add --encoding utf-16"]),
    "UTF-16 without": ({"a.en": A.decode().encode("utf-16-le")}, 3, ["this is UTF-16-LE", "add --encoding utf-16-le"]),
}


@pytest.mark.parametrize("command", USES)
@pytest.mark.parametrize("row", REFUSED_IN_USE)
def test_what_is_no_text_is_refused_in_use_with_the_flag_that_helps(bench: Bench, row: str, command: str) -> None:
    files, code, parts = REFUSED_IN_USE[row]
    bench.write(files)
    called = bench.call(*USES[command])
    assert (called.code, called.out) == (code, "")
    assert all(part in called.err for part in parts), called.err
    if row.startswith("UTF-16") and command == "translate":
        assert bench.call(*USES[command], "--encoding", "utf-16" if "mark" in row else "utf-16-le").code == 0


@pytest.mark.parametrize("words", [*CHECKS.values(), *USES.values()], ids=[*CHECKS, *USES])
@pytest.mark.parametrize("fault", ["missing", "folder", "no permission"])
def test_a_file_that_cannot_be_read_is_named_with_the_reason(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], fault: str
) -> None:
    path = bench.folder / "a.en"
    if fault == "no permission":
        allowed = os.access
        monkeypatch.setattr(os, "access", lambda place, mode: Path(place) != path and allowed(place, mode))
    else:
        path.unlink()
    if fault == "folder":
        path.mkdir()
    called = bench.call(*words)
    reason = {"missing": f"{path}: no such file", "folder": f"{path} is a folder", "no permission": "permission denied"}
    if words[0] in ("train", "doctor"):  # these take folders, but this one is empty
        reason["folder"] = f"{path} holds no parallel text"
    assert (called.code, called.out) == (2, "")
    assert reason[fault] in called.err.replace("is not readable", "permission denied")
    assert str(path) in called.err


def test_one_file_for_both_sides_or_as_input_and_output_is_refused(bench: Bench) -> None:
    same = bench.call("train", "--train", "a.en", "--train", "a.en", "--out", "run.dir")
    assert (same.code, same.out) == (2, "")
    assert "a.en is given as source and as target" in same.err
    for words in (USES["translate"], ("evaluate", "MODEL", "--source", "a.en", "--reference", "a.de")):
        over = bench.call(*words, "--out", bench.folder / "a.en")
        assert over.code == 2
        assert "a.en is also an input" in over.err
    assert (bench.folder / "a.en").read_bytes() == A


@pytest.mark.parametrize("ending", PACK)
@pytest.mark.parametrize("fault", ["cut", "not compressed", "bomb"])
@pytest.mark.parametrize("command", ["train", "translate"])
def test_damaged_compressed_text_is_refused(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, ending: str, fault: str, command: str
) -> None:
    monkeypatch.setattr(compressed, "RATIO_FREE_BYTES", 1 << 21)
    packed = PACK[ending](NOISE)
    content = {"cut": packed[:-40], "not compressed": A, "bomb": PACK[ending](b"ab\n" * (1 << 21))}
    said = {"cut": "cut short or damaged", "not compressed": "though the name ends in", "bomb": "times as large as"}
    name = f"b.en{ending}"
    bench.write({name: content[fault]})
    words = {
        "train": ("train", "--train", name, "--train", "a.de", "--out", "run.dir"),
        "translate": ("translate", "MODEL", name),
    }
    called = bench.call(*words[command])
    assert (called.code, called.out) == (3, "")
    assert str(bench.folder / name) in called.err
    assert said[fault] in called.err


def test_all_problems_are_counted_five_are_shown_and_records_have_them_all(bench: Bench) -> None:
    bench.write({"a.tsv": b"one\ttwo\n" + b"lonely\n" * 6 + b'a\t"b\n' + b"a\tb\tc\n"})
    called = bench.call("train", *TABLE, "--out", "run.dir")
    assert called.code == 3
    lines = called.err.split("\n")[:-1]
    assert lines[0].endswith("a.tsv:2: 1 column, expected source, tab, target")
    assert lines[5:] == ["… and 2 more problems like these"]
    records = bench.call("train", *TABLE, "--out", "run.dir", "--json").messages[-1]["problems"]
    assert [record["line"] for record in records] == [2, 3, 4, 5, 6, 7, 9]
    assert records[-1]["message"] == "3 columns, expected source, tab, target"
    scored = bench.call("score", "MODEL", "a.tsv")
    assert scored.code == 3
    assert "a.tsv:2: 1 column, expected source, tab, target" in scored.err


def test_quotes_of_a_table_are_ordinary_text(bench: Bench) -> None:
    bench.write({"a.tsv": b'"one\ttwo"\n""\t"\n'})
    called = bench.call("score", "MODEL", "a.tsv")
    assert (called.code, len(called.lines)) == (0, 2)


def test_dev_files_are_checked_before_training_begins(bench: Bench) -> None:
    bench.write({"dev.en": BAD, "dev.de": B})
    called = bench.call("train", *PAIR, "--dev", "dev.en", "--dev", "dev.de", "--out", "run.dir")
    assert called.code == 3
    assert "dev.en:3:18: invalid UTF-8" in called.err
    assert not (bench.folder / "run.dir").exists()


# --- scores --------------------------------------------------------------------------------------------------------


def test_scoring_needs_as_many_lines_and_at_least_one(bench: Bench) -> None:
    words = [word + "." * (3 * n) for n, word in enumerate(ENGLISH * 4)]
    bench.write({"a.en": as_bytes(words), "a.de": as_bytes(words[:20] + words[21:])})
    for command in ("score", "evaluate"):
        called = bench.call(*USES[command])
        assert called.code == 3
        assert "a.en has 48 lines, but" in called.err
        assert "line n of one must translate line n" in called.err
    bench.write({"a.en": b"", "a.de": b""})
    empty = bench.call(*USES["evaluate"])
    assert empty.code == 3
    assert "are empty; expected at least one line to score" in empty.err
    assert bench.call(*USES["score"]).code == 0


def test_a_line_that_is_skipped_in_one_file_is_scored_in_none(bench: Bench) -> None:
    bench.write({"a.en": BAD, "a.de": A})
    called = bench.call(*USES["evaluate"], "--on-bad-utf8", "skip", "--json")
    (record,) = called.records
    assert record["lines"] == len(ENGLISH) - 1
    assert record["systems"][0]["scores"][0]["value"] == pytest.approx(100)
    repaired = bench.call(*USES["evaluate"], "--on-bad-utf8", "replace", "--json").records[0]
    assert repaired["lines"] == len(ENGLISH)
    assert repaired["systems"][0]["scores"][0]["value"] < 100


# --- training on what can be put right ------------------------------------------------------------------------------


@pytest.mark.parametrize(("on_bad", "kept"), [("skip", 10), ("replace", 12)])
def test_bad_lines_are_repaired_or_dropped_on_both_sides(tmp_path: Path, on_bad: str, kept: int) -> None:
    target = B.replace(b"Haus 5", b"Stra\xdfe 5")
    found = prepare(tmp_path, BAD, target, f"data.on_bad_utf8={on_bad}")
    assert (found.encoded()["read"], found.encoded()["kept"]) == (12, kept)
    assert found.has("train.en: 1 line with bytes that are not UTF-8 (line 3)")
    assert found.has("train.de: 1 line with bytes that are not UTF-8 (line 6)")
    assert found.has("2 of 12 pairs dropped for an empty side (lines 3, 6)") == (on_bad == "skip")


def test_bad_lines_of_a_table_are_skipped_whole(bench: Bench, tmp_path: Path) -> None:
    table = b"".join(f"{one}\t{other}\n".encode() for one, other in zip(ENGLISH, GERMAN, strict=True))
    bench.write({"a.tsv": table.replace(b"house 2", b"caf\xe9 2")})
    scored = bench.call("score", "MODEL", "a.tsv", "--on-bad-utf8", "skip")
    assert [line == "null" for line in scored.lines] == [n == 2 for n in range(len(ENGLISH))]
    trained = bench.call("train", *TABLE, "--out", "run.dir", "--on-bad-utf8", "skip", "data.held_out=0")
    assert trained.code == 2  # of the setting alone: the table is sound now
    assert "held_out" in trained.err


def test_latin_1_is_read_when_it_is_said(tmp_path: Path) -> None:
    found = prepare(tmp_path, BAD, B, "data.encoding=latin-1")
    assert found.encoded()["kept"] == 12


def test_marks_and_carriage_returns_are_left_out_with_a_notice(tmp_path: Path) -> None:
    source = b"\xef\xbb\xbf" + A.replace(b"\n", b"\r\n", 3).replace(b"house 7", b"\xef\xbb\xbfhouse 7")
    found = prepare(tmp_path, source, B)
    assert found.encoded()["kept"] == 12
    assert found.has("train.en: the byte-order mark at the start was left out")
    assert found.has("train.en: carriage returns at the ends of lines were left out")
    assert found.has("train.en: 1 invisible character", "the first is in line 8")


def test_only_lf_ends_a_line_and_the_last_one_needs_none(tmp_path: Path) -> None:
    odd = [line.replace(" ", mark, 1) for line, mark in zip(ENGLISH, "\r\u2028\u2029\x85\x0b\x0c" * 2, strict=True)]
    found = prepare(tmp_path, as_bytes(odd).removesuffix(b"\n"), B)
    assert (found.encoded()["read"], found.encoded()["kept"]) == (12, 12)


def test_blank_sides_are_dropped_and_counted(tmp_path: Path) -> None:
    source = ["", "  \u3000\t", "\u200b\u00ad\ufeff", *ENGLISH[3:]]
    target = [*GERMAN[:-1], "\u200d"]
    found = prepare(tmp_path, source, target)
    assert found.encoded()["kept"] == 8
    assert found.has("train: 4 of 12 pairs dropped for an empty side (lines 1, 2, 3, 12)")


@pytest.mark.parametrize("line", ["word " * 200_000, "x" * 1_000_000, PILE])
def test_a_line_of_a_million_is_dropped_and_counted(tmp_path: Path, line: str) -> None:
    found = prepare(tmp_path, [*ENGLISH[:-1], line], GERMAN)
    assert found.encoded()["kept"] == 11
    assert found.has("train: 1 of 12 pairs dropped for a side that is too long (lines 12)")


def test_what_is_not_seen_is_counted_and_turned_text_is_warned_of(tmp_path: Path) -> None:
    source = [
        *ENGLISH[:-3],
        "a\u200bb c\u00add",
        "user\u202egpj.exe\u202c",
        "Z" + "\u0300\u0301\u0302\u0303\u0304\u0305",
    ]
    found = prepare(tmp_path, source, GERMAN)
    assert found.encoded()["kept"] == 12
    assert found.has("2 invisible characters such as zero-width spaces", "line 10")
    assert found.has("2 characters that turn the direction of writing", "line 11")
    assert found.has("1 letter under 5 accents or more", "line 12")


def test_repeated_copied_and_lopsided_pairs_are_counted_and_kept(tmp_path: Path) -> None:
    source = [ENGLISH[0], *ENGLISH[:-2], "Hund"]
    target = [GERMAN[0], *GERMAN[:8], ENGLISH[8], GERMAN[9], " ".join(["Hund"] * 40)]
    found = prepare(tmp_path, source, target)
    assert found.encoded()["kept"] == 12
    assert {name: found.overview[name] for name in ("repeated", "copied", "lopsided")} == {
        "repeated": 1,
        "copied": 1,
        "lopsided": 1,
    }
    assert found.has(
        "train: of 12 pairs 1 repeat an earlier pair, 1 have the same text on both sides, 1 have a side with"
    )


def test_swapped_files_and_other_languages_are_warned_of(tmp_path: Path) -> None:
    places = [tmp_path / name for name in ("swapped", "foreign", "right")]
    for place in places:
        place.mkdir()
    swapped = prepare(places[0], GERMAN, ENGLISH)
    assert swapped.has("source and target look swapped: the source should be English (en)")
    foreign = prepare(places[1], ENGLISH, ["Собака в доме, а кошка соседа не была с ней."] * 12)
    assert foreign.has("the target should be German (de), but its letters are Cyrillic; is this the right text?")
    assert not prepare(places[2], ENGLISH, GERMAN).has("should be")


def test_a_vocabulary_that_the_text_cannot_fill_is_told_with_its_maximum(tmp_path: Path) -> None:
    found = prepare(tmp_path, ENGLISH, GERMAN, "text.size=30000")
    assert found.has("text.size=30000 is more than this text gives: the bpe tokeniser has its maximum,", " pieces")


def test_a_text_that_the_vocabulary_does_not_know_is_warned_of_with_its_share(
    tmp_path: Path, models: tuple[Path, Path]
) -> None:
    greek = ["αβγ δεζ ηθι κλμ νξο"] * 12
    found = prepare(tmp_path, greek, GERMAN, f"training.start_from={models[0]}")
    assert found.has("of the source is unknown to the vocabulary", "training.start_from")


@pytest.mark.parametrize("kind", ["bpe", "word", "char", "unigram"])
def test_special_tokens_typed_in_the_text_are_text(tmp_path: Path, kind: str) -> None:
    source = [f"{line} </s> <pad> <s> <unk>" for line in ENGLISH]
    prepare(tmp_path, source, GERMAN, f"text.kind={kind}", "text.minimum_count=1", "text.size=120")
    store = Store.open(tmp_path / "run" / "data" / "train")
    ids = [id for at in range(len(store)) for id in store.sources[at][:-1].tolist()]
    assert not {0, 1, 2} & set(ids)
    tokenizer = Tokenizers.load(tmp_path / "run" / "text").source
    assert tokenizer.decode(store.sources[0][:-1].tolist()) == source[0]
