"""Places of words and pieces."""

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import nasty
from seqloom.core.symbols import UNKNOWN
from seqloom.text.normalise import Normaliser
from seqloom.text.tokenizer import TextConfig, Tokenizer
from seqloom.text.tokenizer_training import train_tokenizer
from seqloom.text.words import decoded_spans, piece_spans, word_spans

TEXT = ["the dogs (and cats) run.", "dogs don't run", "the cat is 3.5 years old", "日本の犬"] * 3


def shown(text: str, spans: list[tuple[int, int]]) -> list[str]:
    return [text[begin:end] for begin, end in spans]


@pytest.fixture(scope="module", params=["word", "char", "bpe", "unigram", "bytes"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    if request.param == "bytes":
        return train_tokenizer(TEXT, TextConfig(kind="bpe", size=400, byte_fallback=True))
    return train_tokenizer(TEXT, TextConfig(kind=request.param, size=60))


def test_words_are_parted_from_marks_and_unspaced_scripts_into_characters() -> None:
    text = "the dogs (don't) cost ￭ 3.5, 日本ไป."
    assert shown(text, word_spans(text)) == [
        "the", "dogs", "(", "don't", ")", "cost", "￭", "3.5", ",", "日", "本", "ไ", "ป", ".",
    ]  # fmt: skip


@given(st.one_of(st.text(alphabet="thedogscat 3.5()犬Ωé", max_size=30), nasty.texts(most=4, longest=30)))
def test_pieces_of_a_text_cover_it_in_order(tokenizer: Tokenizer, text: str) -> None:
    text = tokenizer.normaliser(text)
    spans = piece_spans(tokenizer, text)
    assert len(spans) == len(tokenizer.encode(text))
    covered = {at for begin, end in spans for at in range(begin, end)}
    assert {at for at, character in enumerate(text) if character != " "} <= covered
    assert spans == sorted(spans)
    for (begin, end), number in zip(spans, tokenizer.encode(text), strict=True):
        if number != UNKNOWN and not tokenizer.config.byte_fallback:
            assert text[begin:end].strip() == tokenizer.decode([number]).strip()


@given(nasty.texts())
def test_words_of_any_text_stand_in_order_and_leave_only_spaces(text: str) -> None:
    normal = Normaliser()(text)
    spans = word_spans(normal)
    assert all(begin < end for begin, end in spans)
    assert all(one[1] <= next_one[0] for one, next_one in pairwise(spans))
    assert "".join(shown(normal, spans)) == normal.replace(" ", "")


@given(nasty.texts())
@example("\x1a")
def test_words_are_found_in_a_text_that_nobody_has_normalised(text: str) -> None:
    spans = word_spans(text)
    assert all(0 <= begin < end <= len(text) for begin, end in spans)
    assert spans == sorted(spans)


@given(st.lists(st.integers(0, 50), max_size=12))
def test_decoded_symbols_lie_inside_their_text(tokenizer: Tokenizer, ids: list[int]) -> None:
    ids = [number % tokenizer.size for number in ids]
    text = tokenizer.decode(ids)
    spans = decoded_spans(tokenizer, ids)
    assert len(spans) == len(ids)
    assert all(0 <= begin <= end <= len(text) for begin, end in spans)
    assert {at for begin, end in spans for at in range(begin, end)} == set(range(len(text)))


def test_an_unknown_word_keeps_its_place() -> None:
    words = train_tokenizer(TEXT, TextConfig(kind="word", size=60))
    text = "the zebra (run)."
    assert shown(text, piece_spans(words, text)) == ["the", "zebra", "(", "run", ")", "."]
