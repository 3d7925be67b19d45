"""A text as ids: sentences ended by END, symbols counted, what cannot be such a text refused."""

import numpy as np
import pytest

from seqloom.core.errors import DataError
from seqloom.core.symbols import END, RESERVED
from seqloom.text import tokenizer as encoded
from seqloom.text.tokenizer import EncodedText

VOCABULARY = (*RESERVED, "a", "b")


def test_symbols_are_counted_over_the_borders_of_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoded, "CHUNK", 3)
    text = EncodedText(np.array([4, 5, 4, END, 4, END], np.uint16), VOCABULARY)
    assert text.symbols == 6
    assert text.counts().tolist() == [0, 0, 2, 0, 3, 1]


@pytest.mark.parametrize(
    ("ids", "vocabulary", "words"),
    [
        ([], VOCABULARY, "0 tokens"),
        ([4, 5], VOCABULARY, "ends with id 5"),
        ([4, END], ("a", "b"), "begins with"),
    ],
)
def test_what_is_no_text_is_refused(ids: list[int], vocabulary: tuple[str, ...], words: str) -> None:
    with pytest.raises(DataError, match=words):
        EncodedText(np.array(ids, np.int64), vocabulary)


def test_an_id_outside_the_vocabulary_is_refused_when_symbols_are_counted() -> None:
    text = EncodedText(np.array([4, 9, END]), VOCABULARY)
    with pytest.raises(DataError, match="id 9 is outside"):
        text.counts()
