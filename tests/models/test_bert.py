"""BERT: laws of the model, and encoders in use. Parity is in tests/pretrained/test_encoder_only.py."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from seqloom import Encoder, load
from seqloom.cli.main import app
from seqloom.core.errors import ModelError, SeqloomWarning, UsageError
from seqloom.core.symbols import BEGIN, END
from seqloom.models.bert import Bert, BertConfig, DenseConfig, SentenceConfig
from seqloom.nn.embeddings import Symbols
from seqloom.nn.probe import listen
from seqloom.runs.config import RunConfig
from seqloom.runs.model_dir import Card, save_model
from seqloom.text.tokenizer import TextConfig, Tokenizers
from seqloom.text.tokenizer_training import train_tokenizer
from seqloom.training.weights import weights_of

LINES = ["the old man reads a book", "a dog", "", "the dog sleeps in the old house", "a man sleeps"]
SMALL = BertConfig(
    width=16,
    heads=2,
    layers=2,
    feed_forward=24,
    longest=10,
    has_pooler=True,
    sentence=SentenceConfig(dense=(DenseConfig(width=6),), normalise=True),
)


def small_bert(config: BertConfig = SMALL, symbols: int = 30) -> Bert:
    return config.build(Symbols(symbols, symbols, is_shared=True), seed=1).eval()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model directory of an encoder of words with random weights."""
    tokenizer = train_tokenizer(LINES, TextConfig(kind="word"))
    model = small_bert(symbols=tokenizer.size)
    path = tmp_path_factory.mktemp("encoder") / "model"
    config = RunConfig.model_validate({"model": SMALL, "text": tokenizer.config})
    card = Card(source=None, target="en", parameters=1)
    save_model(path, config, tokenizers=Tokenizers(tokenizer, tokenizer), weights=weights_of(model), card=card)
    return path


@settings(max_examples=8, deadline=None)
@given(st.lists(st.integers(0, 8), min_size=1, max_size=5), st.sampled_from(["mean", "cls", "last", "max"]))
def test_neighbours_and_padding_change_no_vector(lengths: list[int], pooling: str) -> None:
    sentence = SMALL.sentence.model_copy(update={"pooling": pooling})
    model = small_bert(SMALL.model_copy(update={"sentence": sentence})).double()
    generator = torch.Generator().manual_seed(sum(lengths))
    ids = torch.randint(4, 30, (len(lengths), max(lengths) + 1), generator=generator)
    with torch.no_grad():
        together = model.sentence_vectors(ids[:, : max(lengths)], torch.tensor(lengths))
        for row, length in enumerate(lengths):
            alone = model.sentence_vectors(ids[row : row + 1, :length], torch.tensor([length]))
            torch.testing.assert_close(together[row : row + 1], alone, rtol=0, atol=1e-12)


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_a_window_hides_what_is_far_and_is_the_same_in_blocks_and_in_full(positions: str) -> None:
    changes = {"longest": 64, "attention_window": 3, "positions": positions, "has_pooler": False}
    model = small_bert(SMALL.model_copy(update=changes)).double()
    generator = torch.Generator().manual_seed(1)
    ids, lengths = torch.randint(4, 30, (2, 50), generator=generator), torch.tensor([50, 33])
    with torch.no_grad():
        blocks = model.read(ids, lengths)
        with listen(model, "*.self"):  # listeners receive the weights of all pairs of positions
            torch.testing.assert_close(model.read(ids, lengths), blocks, rtol=0, atol=1e-12)
        ids[0, 20] = (ids[0, 20] + 1) % 26 + 4
        changed = (model.read(ids, lengths) != blocks).any(1).nonzero().flatten()
    assert changed.tolist() == list(range(16, 25))  # two layers of two positions on either side


def test_gradients_reach_every_weight() -> None:
    model = small_bert().train()
    ids, lengths = torch.randint(4, 30, (3, 8)), torch.tensor([8, 3, 5])
    states = model(ids, lengths)
    loss = model.output.cross_entropy(model.masked_features(states), torch.randint(4, 30, (len(states),)))
    loss = loss + model.pooled(states, lengths + 2).square().sum() + model.sentence_vectors(ids, lengths)[:, 0].sum()
    loss.backward()
    assert all(each.grad is not None and bool(each.grad.any()) for each in model.parameters())
    assert [entry for _, entry in model.layers_by_entry()] == ["forward", "forward"]


def by_the_formulas(model: Bert, ids: torch.Tensor) -> torch.Tensor:
    """Vectors of one framed text with rotary positions and norms before the sublayers, pair by pair as complex numbers.

    Pair i of a head of size d turns by t · 10000^(−2i / d).
    """
    assert model.segments is not None
    assert model.last_norm is not None
    x = model.norm(model.embedding.weight[ids] + model.segments[0])
    for layer in model.layers:
        query, key, value = layer.self.qkv(layer.around_self.norm(x)).chunk(3, -1)
        mixed = []
        for head in range(2):
            columns, size = slice(8 * head, 8 * head + 8), 8
            rates = torch.tensor([10_000.0 ** (-2 * i / size) for i in range(size // 2)], dtype=torch.float64)
            turn = torch.polar(torch.ones(len(ids), size // 2).double(), torch.arange(len(ids))[:, None] * rates)
            q, k = (torch.complex(*each[:, columns].chunk(2, -1)) * turn for each in (query, key))
            scores = (q @ k.conj().T).real / size**0.5
            mixed.append(scores.softmax(-1) @ value[:, columns])
        x = x + layer.self.output(torch.cat(mixed, -1))
        x = x + layer.feed_forward(layer.around_feed_forward.norm(x))
    vectors: torch.Tensor = model.last_norm(x)
    return vectors


def test_rotary_positions_and_norms_before_are_their_formulas() -> None:
    """Negative control: without turning, vectors differ."""
    text = torch.tensor([5, 9, 5, 7, 12])
    framed = torch.tensor([BEGIN, *text.tolist(), END])
    values = SMALL.model_dump() | {"positions": "rotary", "norm": "before"}
    model = small_bert(BertConfig(**values)).double()
    with torch.no_grad():
        wanted = by_the_formulas(model, framed)
        found = model(text[None], torch.tensor([5]))
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-10)
        for layer in model.layers:
            layer.self.rotary = None
        assert (model(text[None], torch.tensor([5])) - wanted).abs().max() > 1e-3


@pytest.mark.slow
def test_it_learns_hidden_tokens() -> None:
    """Of the text a b a b a …, a hidden token follows from its neighbours, on both sides."""
    torch.manual_seed(0)
    config = SMALL.model_copy(update={"dropout_rate": 0.0})
    model = config.build(Symbols(9, 9, is_shared=True), seed=2)
    optimiser = torch.optim.AdamW(model.parameters(), lr=5e-3)
    hidden, lengths = 8, torch.full((16,), 7)
    for _ in range(300):
        pair = torch.randint(4, 8, (16, 2))
        text = pair[:, torch.arange(7) % 2]
        place = torch.randint(0, 7, (16,))
        read = text.scatter(1, place[:, None], hidden)
        states = model(read, lengths).view(16, 9, -1)[torch.arange(16), place + 1]
        features, labels = model.masked_features(states), text.gather(1, place[:, None])[:, 0]
        loss = model.output.cross_entropy(features, labels) / 16
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert float(model.output.log_probs(features).argmax(1).eq(labels).float().mean()) >= 0.9


def test_an_encoder_gives_each_line_its_vector(folder: Path) -> None:
    encoder = Encoder.load(folder)
    seen: list[tuple[int, int]] = []
    vectors = encoder.encode(LINES, tokens_per_batch=12, progress=lambda done, total: seen.append((done, total)))
    assert (vectors.shape, vectors.dtype) == ((len(LINES), 6), np.float32)
    assert seen[-1] == (5, 5)
    assert len(seen) > 2
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    for line, vector in zip(LINES, vectors, strict=True):
        np.testing.assert_allclose(encoder.encode([line])[0], vector, atol=1e-6)
    assert encoder.encode([]).shape == (0, 6)
    assert "bert" in repr(encoder)


def test_int8_is_close(folder: Path) -> None:
    exact, rounded = (Encoder.load(folder, precision=each).encode(LINES) for each in ("float32", "int8"))
    assert float((exact * rounded).sum(1).min()) > 0.99


def test_what_is_too_long_is_counted(folder: Path) -> None:
    encoder = Encoder.load(folder)
    long = "the dog sleeps in the old house and reads a book"
    with pytest.warns(SeqloomWarning, match=r"1 of 2 lines are longer than the 8 tokens .* 3 of 13 tokens were not"):
        vectors = encoder.encode([long, "a dog"])
    np.testing.assert_allclose(vectors[0], encoder.encode(["the dog sleeps in the old house and"])[0], atol=1e-6)
    with pytest.raises(ModelError, match="a text of 11 tokens is longer than the 10 positions"):
        small_bert()(torch.full((1, 9), 5), torch.tensor([9]))


def test_other_commands_refuse_an_encoder_by_name(folder: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.en"
    text.write_text("the old man\n")
    for arguments in (
        ["translate", str(folder), str(text)],
        ["perplexity", str(folder), str(text)],
        ["generate", str(folder)],
        ["score", str(folder), str(text), str(text)],
        ["evaluate", str(folder), "--source", str(text), "--reference", str(text)],
        ["vectors", "nearest", str(folder), "man"],
    ):
        error = CliRunner().invoke(app, arguments).exception
        assert isinstance(error, UsageError), (arguments, error)
        assert "encoder of kind bert; use seqloom embed, retrieve or serve" in str(error), arguments
    result = CliRunner().invoke(app, ["info", str(folder)])
    assert result.exit_code == 0
    assert "encoder of en" in result.output


def test_one_string_is_not_a_list_of_lines(folder: Path) -> None:
    with pytest.raises(UsageError, match="takes a list of lines"):
        Encoder(load(folder)).encode("a dog")  # type: ignore[arg-type]
