"""Unknown words give way to the dictionary, and then to the source."""

import pytest
import torch

from seqloom.apps.alignments import look_of, replace_unknown
from seqloom.core.symbols import END, UNKNOWN
from seqloom.runs.long_lines import Part
from seqloom.search.hypothesis import Hypothesis
from seqloom.text.tokenizer import TextConfig, Tokenizers
from seqloom.text.tokenizer_training import train_tokenizer


def replaced(
    kind: str, source: str, target: str, attention: list[list[float]], dictionary: dict[str, str] | None = None
) -> str:
    tokenizer = train_tokenizer(["the is in big."], TextConfig(kind=kind, size=40))  # type: ignore[arg-type]
    symbols = tuple(tokenizer.encode(target))
    assert UNKNOWN in symbols
    hypothesis = Hypothesis(symbols, False, -1.0, {"log_prob": -1.0}, (), torch.tensor(attention))
    part = Part(0, source, [*tokenizer.encode(source), END], key=0)
    look = look_of(part, hypothesis, Tokenizers(tokenizer, tokenizer))
    found = replace_unknown(symbols, look, tokenizer, dictionary=dictionary)
    assert "".join(found.target[begin:end] for begin, end in found.target_spans) == found.target.replace(" ", "")
    assert len(found.weights) == len(found.target_spans)
    return found.target


WORDS = [[1.0, 0, 0, 0, 0], [0, 0, 0.9, 0.1, 0], [0, 1, 0, 0, 0], [0, 0, 0, 1, 0]]


@pytest.mark.parametrize(
    ("dictionary", "expected"), [(None, "the Zürich is."), ({"Zürich": "Zurigo"}, "the Zurigo is.")]
)
def test_an_unknown_word_is_what_the_dictionary_says_or_what_it_looked_at(
    dictionary: dict[str, str] | None, expected: str
) -> None:
    assert replaced("word", "the is Zürich.", "the xyz is.", WORDS, dictionary) == expected


def test_a_word_spelled_around_an_unknown_character_is_replaced_whole() -> None:
    source, target = "bég is", "bïg is"
    attention = [[0.0] * 7 for _ in range(6)]
    for at in range(6):
        attention[at][at] = 1.0
    assert replaced("char", source, target, attention) == "bég is"


def test_a_word_that_looked_at_nothing_stays() -> None:
    assert replaced("word", "the is", "the xyz", [[0.0] * 3] * 2) == "the ⁇"
