"""`seqloom look zipf`: statistics of a text as numbers and a figure."""

import gzip
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nasty
from cli.calling import call
from cli.conftest import Tiny
from seqloom.look.zipf import ZipfConfig, look_at_counts
from seqloom.text.normalise import Normaliser

TEXT = "The cat sat. The cat ran!\n\nThe dog sat, and the cat ran.\n" * 12


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.en"
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_counts_fits_and_picture(text: Path, tmp_path: Path) -> None:
    picture = tmp_path / "new" / "zipf.png"
    called = call("look", "zipf", text, "--out", picture)
    assert called.code == 0, called.err
    assert called.lines[0].startswith("24 lines of 6 to 7 words: mean 6.5")
    assert "12 blank" in called.lines[0]
    assert "1-grams: the 48, cat 36, sat 24, ran 24, dog 12, and 12" in called.lines
    assert called.lines[-1] == f"drawn in {picture}"
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_record_says_the_same_for_compressed_and_for_several_files(text: Path, tmp_path: Path) -> None:
    packed = tmp_path / "text.en.gz"
    packed.write_bytes(gzip.compress(TEXT.encode()))
    (one,) = call("look", "zipf", text, "--json").records
    (same,) = call("look", "zipf", packed, "--json").records
    (both,) = call("look", "zipf", text, packed, "--json").records
    assert one == same
    assert one["text"]["orders"][0]["top"][0] == {"text": "the", "count": 48}
    assert both["text"]["orders"][0]["tokens"] == 2 * one["text"]["orders"][0]["tokens"] == 312
    assert one["text"]["orders"][0]["fits"]["zipf"]["ranks"] == 6


def test_words_seen_less_often_than_the_least_count_have_no_rank(tmp_path: Path) -> None:
    path = tmp_path / "counted.txt"
    times = {"a": 40, "b": 30, "c": 20, "d": 12, "e": 10, "f": 9, "g": 2}
    path.write_text("".join(f"{word}\n" * count for word, count in times.items()))

    def ranks(*words: object) -> int:
        (record,) = call("look", "zipf", path, "--json", *words).records
        return int(record["text"]["orders"][0]["fits"]["zipf"]["ranks"])

    assert ranks() == ranks("minimum_count=10") == 5
    assert ranks("minimum_count=9") == 6
    assert ranks("minimum_count=1") == 7


def test_what_a_token_is_can_be_chosen(text: Path, tiny: Tiny) -> None:
    def first(*words: object) -> tuple[str, int]:
        (record,) = call("look", "zipf", text, "--json", *words).records
        found = record["text"]["orders"][0]
        return found["top"][0]["text"], found["types"]

    assert first("lowercase=false") == ("The", 7)
    assert first("punctuation=true") == ("the", 9)
    assert first("unit=spaces") == ("the", 8)
    assert first("unit=characters")[0] == "t"
    assert first("unit=characters", "punctuation=true")[0] == " "
    assert call("look", "zipf", text, "--pieces", tiny.run, "--json").records[0]["unit"] == "piece"


def test_what_cannot_be_counted_is_refused(tmp_path: Path, text: Path) -> None:
    empty, single = tmp_path / "empty", tmp_path / "single"
    empty.write_text("\n\n")
    single.write_text("no no no\nno\n")
    for words, code, part in (
        ([], 2, "no text given"),
        ([tmp_path / "text.fr"], 2, "did you mean"),
        ([empty], 3, f"{empty}: the text has no words"),
        ([single], 3, "a single word, 'no', 4 times"),
        ([text, "--out", "zipf.doc"], 2, "neither .png nor .svg"),
        ([text, "unit=word"], 2, "unit"),
        ([text, "--pieces", tmp_path], 2, "no tokeniser found"),
    ):
        called = call("look", "zipf", *words)
        assert (called.code, called.out) == (code, ""), called.err
        assert part in called.err


@given(nasty.lines(fewest=1, without="\0"), st.sampled_from(["words", "spaces", "characters"]))
def test_any_text_is_counted_and_drawn_by_its_tokens(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], unit: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.en"
    path.write_bytes("".join(f"{line}\n" for line in [*lines, "a b c"]).encode())
    config = ZipfConfig.model_validate({"unit": unit, "punctuation": True, "lowercase": False})
    found = look_at_counts([path], config).statistics
    assert found.lengths.lines + found.lengths.blank == len(lines) + 1
    (first, *_) = found.orders
    assert first.types <= first.tokens
    if unit == "spaces":
        words = Counter(word for line in [*lines, "a b c"] for word in Normaliser()(line).split())
        assert (first.tokens, first.types) == (words.total(), len(words))
