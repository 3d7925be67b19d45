"""Vectors of every kind of model that has them: independent of the batch, pooled and scaled as requested."""

from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch

from seqloom.apps import encoder as encoders
from seqloom.apps.encoder import Encoder
from seqloom.core.config import resolve
from seqloom.core.errors import SeqloomWarning, UsageError
from seqloom.core.stepping import Source
from seqloom.core.symbols import BEGIN, END
from seqloom.models.bert import BertConfig
from seqloom.models.gpt import GptConfig
from seqloom.models.rnn_lm import RnnLmConfig
from seqloom.models.seq2seq import Seq2SeqConfig
from seqloom.models.t5 import T5Config
from seqloom.models.transformer import TransformerConfig
from seqloom.nn.packing import Pooling
from seqloom.runs.config import ModelConfig, RunConfig
from seqloom.runs.loading import LoadedModel, build_model
from seqloom.runs.model_dir import Card
from seqloom.text.tokenizer import TextConfig, Tokenizers
from seqloom.text.tokenizer_training import train_tokenizer

LINES = ["the old man reads", "a dog", "", "the dog sleeps in the house", "a", "old old old men read books in houses"]
SIZES = {"width": 16, "heads": 2}
MODELS = {
    "bert": BertConfig(**SIZES, layers=2, feed_forward=16, longest=10),  # type: ignore[arg-type]
    "transformer": TransformerConfig(**SIZES, encoder_layers=2, decoder_layers=1, feed_forward=16),  # type: ignore[arg-type]
    "t5": T5Config(**SIZES, head_size=8, encoder_layers=2, decoder_layers=1, feed_forward=16),  # type: ignore[arg-type]
    "seq2seq": Seq2SeqConfig(width=12, encoder_width=16, embedding_width=8, encoder_layers=1, decoder_layers=1),
    "gpt": GptConfig(**SIZES, layers=2, longest=9),  # type: ignore[arg-type]
}


def loaded(model: ModelConfig) -> LoadedModel:
    """A model with fresh weights for the words of the lines."""
    text = TextConfig(kind="word")
    tokenizer = train_tokenizer(LINES, text)
    tokenizers = Tokenizers(tokenizer, tokenizer)
    config = resolve(RunConfig, defaults={"model": model.model_dump(mode="json"), "text": text.model_dump(mode="json")})
    built = build_model(model, tokenizers, seed=1).eval()
    return LoadedModel(Path("model"), config, tokenizers, built, Card(None, "en", 1), torch.device("cpu"))


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("pooling", [None, *get_args(Pooling)])
def test_the_vector_of_a_line_does_not_depend_on_its_batch(
    kind: str, pooling: Pooling | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = Encoder(loaded(MODELS[kind]), pooling=pooling)
    together = encoder.encode(LINES)
    assert (together.shape, encoder.width) == ((len(LINES), 16), 16)
    alone = np.concatenate([encoder.encode([line]) for line in LINES])
    np.testing.assert_allclose(together, alone, atol=2e-6)
    monkeypatch.setattr(encoders, "LINES_AT_ONCE", 4)  # and not on the block
    turned = encoder.encode(LINES[::-1], tokens_per_batch=9)[::-1]
    np.testing.assert_allclose(together, turned, atol=2e-6)
    # What is compared differs from line to line (GPT's first state has seen nothing), and pooling matters.
    assert (kind, pooling) == ("gpt", "cls") or np.abs(together[0] - together[3]).max() > 1e-3
    if pooling not in (None, "mean"):
        assert np.abs(together - Encoder(loaded(MODELS[kind])).encode(LINES)).max() > 1e-3


@pytest.mark.parametrize("kind", ["transformer", "seq2seq", "gpt"])
def test_states_of_other_models_are_pooled_as_they_are_computed(kind: str) -> None:
    """The mean of the states that the parts of the model give for one text without padding."""
    model, line = loaded(MODELS[kind]), LINES[0]
    ids = model.tokenizers.source.encode(line)
    network = model.model
    with torch.no_grad():
        if kind == "gpt":
            states = network(torch.tensor([[BEGIN, *ids]]))[0][0]
        else:
            source = Source(torch.tensor([[*ids, END]]), torch.tensor([len(ids) + 1]))
            states = network.encode(source)[0] if kind == "transformer" else network.encoder(source)[0]  # type: ignore[operator]
    encoder = Encoder(model)
    np.testing.assert_allclose(encoder.encode([line])[0], states.mean(0).numpy(), atol=1e-6)
    largest = Encoder(model, pooling="max").encode([line])[0]
    np.testing.assert_allclose(largest, states.amax(0).numpy(), atol=1e-6)


def test_vectors_are_scaled_if_requested_and_long_lines_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoders, "LINES_AT_ONCE", 2)
    encoder, long = Encoder(loaded(MODELS["bert"])), "the old " * 6
    plain = encoder.encode(LINES)
    scaled = encoder.encode(LINES, normalise=True)
    np.testing.assert_allclose(scaled, plain / np.linalg.norm(plain, axis=1, keepdims=True), atol=1e-6)
    with pytest.warns(SeqloomWarning, match=r"2 of 8 lines are longer than the 8 tokens .* 8 of 45 tokens") as seen:
        encoder.encode([long, *LINES, long])
    assert len(seen) == 1


def test_models_without_vectors_of_texts_are_refused() -> None:
    with pytest.raises(UsageError, match="does not give vectors of texts: it is a language model of kind rnn_lm"):
        Encoder(loaded(RnnLmConfig(width=8)))
