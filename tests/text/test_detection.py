"""Detection of languages: by script, by characters, and with tables from a file."""

import json
import random
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

import nasty
from seqloom.core.errors import ModelError
from seqloom.data.phrasebook import LANGUAGES, sample_sentences
from seqloom.text.character_models import ORDER, CharacterModel, encode
from seqloom.text.detection import (
    MAX_NGRAMS,
    Detector,
    Guess,
    LanguageTable,
    join_tables,
    learn_table,
    read_tables,
    save_tables,
    script_table,
)

TABLES: Mapping[str, LanguageTable] = {
    language: learn_table(sample_sentences(language, count=1_500, seed=1)) for language in LANGUAGES
}
DETECTOR = Detector(TABLES)
GERMAN = "Der alte Mann liest einen langen Brief"


def best(text: str, detector: Detector = DETECTOR) -> str:
    return detector.detect(text)[0].language


# --- what is found ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "floor"),
    [(1, 0.85), (3, 0.97), (100, 0.995)],
)
def test_sentences_and_pieces_of_them_are_recognised(words: int, floor: float) -> None:
    rng, found = random.Random(7), []
    for language in LANGUAGES:
        for sentence in sample_sentences(language, count=300, seed=2, split="test"):
            parts = list(sentence.rstrip(".?!")) if language == "zh" else sentence.rstrip(".?!").split()
            begin = rng.randint(0, max(0, len(parts) - words))
            piece = ("" if language == "zh" else " ").join(parts[begin : begin + words])
            if piece.strip():
                found.append(best(piece) == language)
    assert np.mean(found) >= floor


@pytest.mark.parametrize("change", [str.upper, str.title, lambda text: f"<b>{text}</b> {{0}} %s &amp; [1] 12:30!"])
def test_capitals_marks_and_tags_do_not_matter(change: Callable[[str], str]) -> None:
    for language in LANGUAGES:
        for sentence in sample_sentences(language, count=40, seed=3, split="test"):
            assert best(change(sentence)) == language


def test_addresses_and_code_are_left_out() -> None:
    for code in ("https://www.example.org/the/dog/and/his/friend", "where@is.my.book", "the_dog.reads", "C:\\the\\dog"):
        assert DETECTOR.detect(f"{GERMAN} {code}") == DETECTOR.detect(GERMAN)
    assert best("https://example.org/der-alte-mann-liest-einen-brief") == "de"  # there is nothing else


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Ο σκύλος κοιμάται", "el"),
        ("Ο σκύλος του Google Chrome κοιμάται", "el"),
        ("Собака спит", "ru"),
        ("请打开 Google Chrome", "zh"),
        ("The letter π is Greek", "en"),
    ],
)
def test_the_script_decides_first(text: str, language: str) -> None:
    detector = Detector({**TABLES, "el": script_table("el"), "ru": script_table("ru")})
    assert best(text, detector) == language


def test_a_mixed_text_is_shared_by_its_scripts() -> None:
    found = {
        guess.language: guess.confidence
        for guess in DETECTOR.detect("他有一条狗 " + "The old man reads a letter. " * 3)
    }
    assert found["en"] > 0.2
    assert found["zh"] > 0.2
    assert found["fr"] + found["de"] < 0.05


def test_another_language_of_the_same_script_is_hardly_believed() -> None:
    only = Detector({"en": TABLES["en"]})
    own = [only.detect(line)[0].confidence for line in sample_sentences("en", count=50, seed=4, split="test")]
    other = [only.detect(line)[0].confidence for line in sample_sentences("de", count=50, seed=4, split="test")]
    assert np.median(own) > 0.9
    assert 0 < np.median(other) < 0.3


def test_a_language_known_by_its_script_is_what_fits_no_table() -> None:
    detector = Detector({"en": TABLES["en"], "vi": script_table("vi")})
    assert best("The dog sleeps in the old house", detector) == "en"
    assert best("Con chó ngủ trong ngôi nhà cũ của chúng tôi", detector) == "vi"


# --- laws ------------------------------------------------------------------------------------------------------------


@given(text=nasty.texts() | nasty.broken_texts() | st.text(), order=st.permutations(LANGUAGES))
def test_any_text_gives_probabilities_that_do_not_depend_on_the_order_of_languages(text: str, order: list[str]) -> None:
    found = DETECTOR.detect(text)
    assert sorted(guess.language for guess in found) == sorted(LANGUAGES)
    assert all(0 <= guess.confidence <= 1 for guess in found)
    assert sum(guess.confidence for guess in found) <= 1 + 1e-9
    assert found == sorted(found, key=lambda guess: (-guess.confidence, guess.language))
    assert Detector({language: TABLES[language] for language in order}).detect(text) == found


@given(st.text(st.characters(categories=["N", "P", "S", "Z", "Cc"]), max_size=200))
def test_without_letters_all_confidences_are_zero(text: str) -> None:
    has_letters = any(map(str.isalpha, unicodedata.normalize("NFKC", text)))  # as in ℃ and ⅷ
    assert has_letters or not any(guess.confidence for guess in DETECTOR.detect(text))


@pytest.mark.parametrize("text", ["", "12 + 3 = 15", "<b>{name}</b> %s", "Собака спит", "\u0301", "…", "😀"])
def test_no_letters_and_unseen_scripts_have_no_language(text: str) -> None:
    assert DETECTOR.detect(text) == [Guess(language, 0.0) for language in sorted(LANGUAGES)]


def test_only_the_beginning_of_a_long_text_counts() -> None:
    begin = f"{GERMAN}. " * 120
    assert DETECTOR.detect(begin + "The dog sleeps. " * 100_000) == DETECTOR.detect(begin)
    assert best("<br/>" * 1_000 + GERMAN) == "de"  # unless there are hardly any letters in it
    assert Detector({}).detect(GERMAN) == []


@given(nasty.line())
def test_words_have_the_probabilities_of_the_model_of_the_doctor(line: str) -> None:
    words, model = line.split(), CharacterModel()
    lines = sample_sentences("de", count=50, seed=1)
    text = [word for each in lines for word in each.split() if word.isalpha()]
    model.learn([*text, ""])
    detector = Detector({"de": learn_table([" ".join(text)])})
    found, lengths = detector._judge(words)
    codes, starts = encode([*words, ""])
    log_probs = model.log_probs(codes, own=np.zeros(len(codes), np.int64))
    for at in range(len(words)):
        begin, end = starts[at] + ORDER - 1, starts[at + 1] + 1
        assert lengths[at] == end - begin
        assert found[at, 0] == pytest.approx(log_probs[begin:end].sum())


# --- tables ----------------------------------------------------------------------------------------------------------


def test_tables_survive_a_file_and_stay_small(tmp_path: Path) -> None:
    rng = random.Random(1)
    large = learn_table("".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=20)) for _ in range(10_000))
    assert len(large.ngrams) == MAX_NGRAMS
    tables = {**TABLES, "xx": large}
    save_tables(tables, tmp_path / "one")
    save_tables(dict(reversed(tables.items())), tmp_path / "two")
    assert read_tables(tmp_path / "one") == tables
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert (tmp_path / "one").stat().st_size < 200_000 * len(tables)
    assert TABLES["en"] != TABLES["de"]


def as_lists(table: LanguageTable) -> tuple[list[int], list[int]]:
    return table.ngrams.tolist(), table.counts.tolist()


def test_tables_of_one_language_are_joined() -> None:
    lines = sample_sentences("en", count=200, seed=1)
    parts = learn_table(lines[:50]), learn_table(lines[50:])
    joined, whole = join_tables(parts), learn_table(lines)
    counts = sum((Counter(dict(zip(*each, strict=True))) for each in map(as_lists, parts)), Counter[int]())
    assert dict(zip(*as_lists(joined), strict=True)) == counts
    assert joined.ngrams.tolist() == whole.ngrams.tolist()
    assert joined.scripts == whole.scripts
    assert join_tables([script_table("en"), parts[0]]) == parts[0]


def header(**values: object) -> dict[str, str]:
    known = {"characters": 3, "usual_fit": -1.0, "scripts": ["LATIN"]}
    return {"languages": json.dumps({"format": 1, "order": ORDER, "bits": 20, "languages": {"en": known | values}})}


@pytest.mark.parametrize(
    ("metadata", "ngrams", "counts"),
    [
        ({}, [1], [1]),
        ({"languages": "[" * 100_000}, [1], [1]),
        ({"languages": "{}"}, [1], [1]),
        ({"languages": json.dumps({"format": 2, "languages": {}})}, [1], [1]),
        (header(), [2, 1], [1, 1]),
        (header(), [1, 2], [1]),
        (header(usual_fit=float("nan")), [1], [1]),
        (header(characters=-1), [1], [1]),
        (header(scripts="LATIN"), [1], [1]),
    ],
)
def test_a_damaged_file_is_a_model_error_that_names_it(
    tmp_path: Path, metadata: dict[str, str], ngrams: list[int], counts: list[int]
) -> None:
    arrays = {"en/ngrams": np.array(ngrams, np.uint32), "en/counts": np.array(counts, np.uint32)}
    save_file(arrays, tmp_path / "tables", header())
    if (len(ngrams), len(counts)) == (1, 1):
        assert list(read_tables(tmp_path / "tables")) == ["en"]  # the rest is as it should be
    save_file(arrays, tmp_path / "tables", metadata)
    with pytest.raises(ModelError, match="tables"):
        read_tables(tmp_path / "tables")
    (tmp_path / "tables").write_bytes(b"{}")
    with pytest.raises(ModelError, match="tables"):
        read_tables(tmp_path / "tables")
    with pytest.raises(ModelError, match="none"):
        read_tables(tmp_path / "none")
