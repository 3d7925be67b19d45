"""Confidence of pieces, and words made of pieces."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from look.test_gradients import LINES, SIZES, loaded_model
from seqloom.core.symbols import BEGIN, END
from seqloom.look.attention import attention_of_pair
from seqloom.look.confidence import confidence_of, look_at_confidence
from seqloom.look.gradients import text_pairs
from seqloom.look.inside import cross_attention_of
from seqloom.look.words import attention_of_words, group_pieces, source_side, target_side
from seqloom.nn.probe import listen
from seqloom.runs.translator import source_batch
from seqloom.search.settings import SearchConfig
from seqloom.text.tokenizer import TextConfig, Tokenizer
from seqloom.text.tokenizer_training import train_tokenizer


@pytest.mark.parametrize("kind", SIZES)
def test_confidence_of_one_pass_is_that_of_steps(kind: str, tmp_path: Path) -> None:
    loaded = loaded_model(kind, tmp_path / "model")
    (pair, *_) = text_pairs(loaded, LINES)
    stepper = loaded.model.stepper()  # type: ignore[operator]
    state = stepper.start(source_batch([pair.source], loaded.device))
    for found, last, symbol in zip(confidence_of(loaded, pair), [BEGIN, *pair.target], pair.target, strict=False):
        step = stepper.step(state, torch.tensor([last]))
        state, probabilities = step.state, step.log_probs[0].detach().double().exp()
        assert found.symbol == symbol
        assert found.probability == pytest.approx(float(probabilities[symbol]), abs=1e-6)
        assert found.entropy == pytest.approx(float(torch.distributions.Categorical(probabilities).entropy()), abs=1e-5)
        probabilities[symbol] = -1.0
        best = probabilities.topk(5)
        assert [each.symbol for each in found.rivals] == best.indices.tolist()
        assert found.probability + sum(each.probability for each in found.rivals) <= 1 + 1e-9
    (finding,) = look_at_confidence(loaded, pair)
    assert finding.data["log_prob"] == pytest.approx(
        sum(np.log(each["probability"]) for each in finding.data["pieces"])
    )
    finding.draw()


def test_attention_of_a_pair_is_what_the_layers_compute_and_adds_up_to_1_in_words(tmp_path: Path) -> None:
    for kind, probe in (("transformer", "decoder.layers.0.cross.weights"), ("seq2seq", "decoder.attention.weights")):
        loaded = loaded_model(kind, tmp_path / "model")
        (pair, *_) = text_pairs(loaded, LINES)
        with listen(loaded.model, probe) as trace:
            found = attention_of_pair(loaded, pair, SearchConfig())
        assert found is not None
        heard = torch.cat(trace[probe], -2)[0].double()
        mean = heard.mean(0) if heard.dim() == 3 else heard
        np.testing.assert_allclose(found, mean.numpy(), rtol=0, atol=1e-6)
        if kind == "transformer":
            np.testing.assert_allclose(cross_attention_of(loaded, pair)[0], heard.numpy(), rtol=0, atol=1e-6)
        source = source_side(loaded.tokenizers.source, LINES[0][0], pair.source)
        target = target_side(loaded.tokenizers.target, pair.target)
        by_word = attention_of_words(found, target.words, source.words)
        assert by_word.shape == (len(target.words), len(source.words)) == (6, 6)
        np.testing.assert_allclose(by_word.sum(1), 1.0, atol=1e-6)


@pytest.fixture(scope="module", params=["word", "char", "bpe", "unigram"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    lines = ["the old man reads an unbelievable book.", "don't stop, he said", "他读一本书。我们去中国", "ça va"] * 8
    return train_tokenizer(iter(lines), TextConfig(kind=request.param, size=400, byte_fallback=request.param == "bpe"))


@given(text=st.text(alphabet="theoldmanr ,.'中国ça\u200b\u05d0☺", max_size=24))
def test_every_piece_belongs_to_one_word(tokenizer: Tokenizer, text: str) -> None:
    ids = [*tokenizer.encode(text), END]
    for side in (source_side(tokenizer, text, ids), target_side(tokenizer, ids)):
        numbers = [number for word in side.words for number in range(word.first, word.last + 1)]
        assert numbers == list(range(len(ids)))
        assert (side.words[-1].text, side.words[-1].begin) == ("</s>", None)
        for word in side.words:
            assert word.begin is None or side.text[word.begin : word.end] == word.text
        summed = attention_of_words(np.eye(len(ids)), side.words, side.words)
        np.testing.assert_allclose(summed.sum(1), 1.0)


def test_words_by_hand() -> None:
    text, pieces = "un book 中国", ["▁un", "▁b", "oo", "k", "▁", "中国", "</s>"]
    spans = [(0, 2), (3, 4), (4, 6), (6, 7), (8, 8), (8, 10), None]
    found = [(word.text, word.first, word.last) for word in group_pieces(text, pieces, spans)]
    assert found == [("un", 0, 0), ("book", 1, 3), ("中国", 4, 5), ("</s>", 6, 6)]
