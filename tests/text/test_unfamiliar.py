"""How much of a line a tokeniser has never met, for every kind of vocabulary."""

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nasty
from seqloom.text.tokenizer import TextConfig, Tokenizer, unfamiliar_share
from seqloom.text.tokenizer_training import train_tokenizer

TEXT = ["the dog sees a house", "the cat sees a dog", "a house, a dog; bad faces"]


def trained(**settings: object) -> Tokenizer:
    return train_tokenizer(TEXT, TextConfig.model_validate(settings))


@pytest.mark.parametrize(
    ("line", "share"),
    [
        ("the dog sees", 0.0),
        ("the zebra sees", 1 / 3),
        ("zebras gallop", 1.0),
        ("", 0.0),
        ("   ", 0.0),
    ],
)
def test_of_words_it_is_the_share_of_unknown_words(line: str, share: float) -> None:
    assert unfamiliar_share(trained(kind="word"), line) == pytest.approx(share)


@pytest.mark.parametrize("settings", [{"kind": "char"}, {"kind": "bpe", "size": 60}, {"kind": "unigram", "size": 40}])
@pytest.mark.parametrize(
    ("line", "share"),
    [
        ("the dog", 0.0),
        ("got", 0.0),  # no word of the text, but of its letters
        ("дог", 1.0),
        ("a 猫", 1 / 2),  # spaces are no letters
        ("dog 猫猫猫", 3 / 6),  # a run of unknown letters may be one token: letters are counted
        ("", 0.0),
    ],
)
def test_of_pieces_it_is_the_share_of_unknown_letters(settings: dict[str, object], line: str, share: float) -> None:
    assert unfamiliar_share(trained(**settings), line) == pytest.approx(share)


def test_bytes_that_can_spell_everything_make_nothing_familiar() -> None:
    tokenizer = trained(kind="bpe", size=350, byte_fallback=True)
    assert unfamiliar_share(tokenizer, "дом") == 1.0  # three letters as six bytes, not one of them ever met
    # Letters that stand only in the names of bytes (<0xF0>) and of reserved pieces are none that were met.
    assert unfamiliar_share(tokenizer, "F<0>") == 1.0


def test_a_line_is_measured_as_the_model_reads_it() -> None:
    assert unfamiliar_share(trained(kind="char"), "DOG") == 1.0
    assert unfamiliar_share(trained(kind="char", lowercase=True), "DOG") == 0.0
    assert unfamiliar_share(trained(kind="char"), "ﬀ") == 1.0
    assert unfamiliar_share(trained(kind="char", unicode_form="nfkc"), "ﬀ") == 0.0  # two letters that were met


@given(nasty.texts(longest=60), st.sampled_from(["word", "char", "bpe"]))
def test_of_any_text_it_is_a_share(text: str, kind: str) -> None:
    assert 0 <= unfamiliar_share(ready(kind), text) <= 1


@cache
def ready(kind: str) -> Tokenizer:
    return trained(kind=kind)
