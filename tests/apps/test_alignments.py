"""From where symbols looked to which words go together."""

import numpy as np
import pytest
import torch

from seqloom.apps.alignments import align_parts, best_head, model1_links
from seqloom.core.errors import UsageError
from seqloom.core.symbols import END
from seqloom.runs.loading import load
from seqloom.runs.train import Trained
from seqloom.runs.translator import Part, attention_of
from seqloom.search.hypothesis import Hypothesis
from seqloom.text.tokenizer import TextConfig, Tokenizers
from seqloom.text.tokenizer_training import train_tokenizer


@pytest.fixture(scope="module")
def tokenizers() -> Tokenizers:
    characters = train_tokenizer(["ab cd, ef"], TextConfig(kind="char", size=20))
    return Tokenizers(characters, characters)


def hypothesis(tokenizers: Tokenizers, text: str, attention: torch.Tensor | None) -> Hypothesis:
    return Hypothesis(tuple(tokenizers.target.encode(text)), True, -1.0, {"log_prob": -1.0}, (), attention)


def part(tokenizers: Tokenizers, text: str) -> Part:
    return Part(0, text, [*tokenizers.source.encode(text), END], key=0)


def test_the_attention_of_words_is_the_mean_over_the_pieces_of_one_and_the_sum_over_those_of_the_other(
    tokenizers: Tokenizers,
) -> None:
    # Source a b ▁ c d END, target e f: ▁ belongs to no word, END to none either.
    attention = torch.tensor([[0.1, 0.2, 0.3, 0.0, 0.1, 0.3], [0.0, 0.2, 0.0, 0.5, 0.3, 0.0], [0, 0, 0, 0, 0, 1.0]])
    look = attention_of(part(tokenizers, "ab cd"), hypothesis(tokenizers, "ef", attention), tokenizers)
    np.testing.assert_allclose(look.weights, [[(0.3 + 0.2) / 2, (0.1 + 0.8) / 2]], atol=1e-7)
    assert look.links() == [(1, 0)]


def test_the_parts_of_a_line_are_counted_on(tokenizers: Tokenizers) -> None:
    attention = torch.eye(3)
    looks = [attention_of(part(tokenizers, "ab"), hypothesis(tokenizers, "cd", attention), tokenizers)] * 2
    alignment = align_parts(looks, [0, 3])
    assert alignment.source_words == ("ab", "ab")
    assert alignment.links == ((0, 0), (1, 1))
    assert alignment.target_spans == ((0, 2), (3, 5))


def test_without_attention_there_is_a_sentence_and_no_alignment(tokenizers: Tokenizers) -> None:
    with pytest.raises(UsageError, match="seqloom align"):
        attention_of(part(tokenizers, "ab"), hypothesis(tokenizers, "cd", None), tokenizers)


def test_model_1_links_words_that_come_together(tokenizers: Tokenizers) -> None:
    pairs = [("ab cd", "ef ab"), ("ab", "ef"), ("cd", "ab")] * 4
    assert model1_links(pairs, tokenizers)[0] == {(0, 0), (1, 1)}


def test_the_best_head_agrees_most_and_is_found_again_from_its_own_links(tiny: Trained) -> None:
    loaded = load(tiny.run)
    pairs = [("The dog sleeps.", "Der Hund schläft."), ("Where is my book?", "Wo ist mein Buch?")]
    choice = best_head(loaded, pairs)
    assert choice.agreements.shape == (1, 2)
    assert choice.agreements[tuple(map(int, choice.heads.split("/")))] == choice.agreements.max()
    with pytest.raises(UsageError, match="got 1 sets of links for 2 pairs"):
        best_head(loaded, pairs, [{(0, 0)}])
