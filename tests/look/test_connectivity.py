"""Gradients of a model's losses with respect to its inputs."""

import numpy as np
import pytest
import torch
from torch import nn

from seqloom.core.errors import ModelError
from seqloom.core.stepping import Source
from seqloom.core.symbols import BEGIN, END
from seqloom.look import gradients as connectivity
from seqloom.look.gradients import (
    Connectivity,
    Profile,
    by_lag,
    by_source_distance,
    by_source_end,
    connectivity_of,
    draw_connectivity,
)
from seqloom.models.rnn_lm import RnnLmConfig
from seqloom.models.seq2seq import Seq2SeqConfig
from seqloom.models.transformer import TransformerConfig
from seqloom.nn.embeddings import Symbols

SHARED, APART = Symbols(20, 20, is_shared=True), Symbols(20, 24, is_shared=False)
CONFIGS = {
    "transformer": TransformerConfig(width=8, heads=2, feed_forward=8, encoder_layers=1, decoder_layers=1),
    "lstm": Seq2SeqConfig(width=8, embedding_width=6, encoder_layers=1, decoder_layers=1),
    "gru, fed": Seq2SeqConfig(cell="gru", width=8, embedding_width=6, encoder_layers=1, input_feeding=True),
    "peephole, no attention": Seq2SeqConfig(
        cell="peephole", width=8, embedding_width=6, encoder_layers=1, attention="none", context="every"
    ),
    "coupled, context first": Seq2SeqConfig(
        cell="coupled", width=8, embedding_width=6, encoder_layers=1, attention="none", context="first"
    ),
}
SOURCE, TARGET = torch.tensor([7, 9, 5, 11, END]), torch.tensor([6, 12, 8, END])


@pytest.fixture(params=CONFIGS)
def model(request: pytest.FixtureRequest) -> nn.Module:
    return CONFIGS[request.param].build(SHARED, seed=1).double().eval()


def loss_at(model: nn.Module, output: int) -> torch.Tensor:
    previous = torch.cat([torch.tensor([BEGIN]), TARGET[:-1]])[None]
    features = model(Source(SOURCE[None], torch.tensor([5])), previous, torch.tensor([4]))
    loss: torch.Tensor = -model.output.log_probs(features)[output, TARGET[output]]  # type: ignore[operator, union-attr]
    return loss


@pytest.mark.parametrize("name", CONFIGS)
def test_a_norm_is_that_of_the_differences_when_a_vector_moves(name: str) -> None:
    """Each symbol stands once in the source, and no other table holds its vector: moving it moves one input."""
    model = CONFIGS[name].model_copy(update={"tying": "none"}).build(APART, seed=1).double().eval()
    weight = model.encoder.embedding.weight
    found = connectivity_of(model, SOURCE, TARGET)
    differences = []
    for direction in torch.eye(weight.shape[1], dtype=torch.float64):
        moved = []
        for step in (1e-5, -1e-5):
            with torch.no_grad():
                weight[11] += step * direction
                moved.append(float(loss_at(model, 2)))
                weight[11] -= step * direction
        differences.append((moved[0] - moved[1]) / 2e-5)
    assert found.source[2, 3] == pytest.approx(np.linalg.norm(differences), rel=1e-5)


def test_norms_equal_those_of_one_backward_pass_per_output(model: nn.Module) -> None:
    found = connectivity_of(model, SOURCE, TARGET)
    assert (found.source.shape, found.target.shape) == ((4, 5), (4, 4))
    kept: list[torch.Tensor] = []
    tables = [part.embedding for part in (model.encoder, model.decoder)]  # type: ignore[union-attr]

    def keep(_module: object, _given: object, vectors: torch.Tensor) -> torch.Tensor:
        kept.append(vectors.detach().requires_grad_())
        return kept[-1]

    for table in {id(table): table for table in tables}.values():
        table.register_forward_hook(keep)  # type: ignore[operator, union-attr]
    for output in range(4):
        kept.clear()
        gradients = torch.autograd.grad(loss_at(model, output), kept)
        for norms, gradient in zip((found.source, found.target), gradients, strict=True):
            exact = gradient.reshape(-1, gradient.shape[-1]).norm(dim=1)
            np.testing.assert_allclose(norms[output], exact.numpy(), rtol=1e-9, atol=1e-12)


def test_no_output_depends_on_what_comes_after_it(model: nn.Module) -> None:
    found = connectivity_of(model, SOURCE, TARGET)
    assert np.all(np.triu(found.target, k=1) == 0)
    assert np.all(found.target[np.tril_indices(4)] > 0)
    assert np.all(found.source > 0)


def test_copies_in_parts_give_the_same(model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = connectivity_of(model, SOURCE, TARGET)
    monkeypatch.setattr(connectivity, "TOKENS_AT_ONCE", 11)
    parts = connectivity_of(model, SOURCE, TARGET)
    np.testing.assert_allclose(whole.source, parts.source, rtol=1e-9)
    np.testing.assert_allclose(whole.target, parts.target, rtol=1e-9)


def test_sides_with_separate_tables_are_distinguished() -> None:
    model = Seq2SeqConfig(width=8, embedding_width=6, tying="none").build(APART, seed=1).double().eval()
    found = connectivity_of(model, SOURCE, TARGET)
    assert (found.source.shape, found.target.shape) == ((4, 5), (4, 4))
    hooks = [module for module in model.modules() if module._forward_hooks]
    assert hooks == []


def test_a_model_without_embeddings_is_an_error() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = CONFIGS["lstm"].build(SHARED, seed=1)
            self.output = self.inner.output

        def forward(self, source: Source, previous: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
            return self.inner.output.weight.new_ones(int(lengths.sum()), 6)

    with pytest.raises(ModelError, match="the source symbols of this model pass no known embedding"):
        connectivity_of(Odd(), SOURCE, TARGET)


def test_profiles_are_means_over_all_pairs_of_a_distance() -> None:
    target = np.tril(np.array([[8.0, 9.0, 9.0], [4.0, 6.0, 9.0], [1.0, 2.0, 4.0]]))
    source = np.array([[1.0, 3.0, 5.0], [3.0, 1.0, 3.0], [5.0, 3.0, 1.0]])
    found = by_lag([Connectivity(source, target)])
    assert (found.means, found.counts) == ((6.0, 3.0, 1.0), (3, 2, 1))
    across = by_source_distance([Connectivity(source, target)])
    assert (across.means, across.counts) == ((1.0, 3.0, 5.0), (3, 4, 2))


def test_the_distance_from_an_end_is_that_of_the_last_state_of_each_direction() -> None:
    source = np.array([[1.0, 2.0, 3.0, 4.0], [3.0, 4.0, 5.0, 6.0]])
    pair = Connectivity(source, np.eye(2))
    one = by_source_end([pair], is_bidirectional=False)
    assert (one.means, one.counts) == ((5.0, 4.0, 3.0, 2.0), (2, 2, 2, 2))
    both = by_source_end([pair], is_bidirectional=True)
    assert (both.means, both.counts) == ((3.5, 3.5), (4, 4))


def test_norms_that_hardly_differ_look_level_and_both_panels_have_one_scale() -> None:
    level, steep = Profile((1.0, 1.02, 0.98), (3, 2, 1)), Profile((1.0, 1e-3, 1e-5), (3, 2, 1))
    found = Connectivity(np.ones((3, 3)), np.tril(np.ones((3, 3))))
    for other in (level, steep):
        figure = draw_connectivity(
            found,
            source=list("abc"),
            previous=list("def"),
            target=list("efg"),
            by_lag=other,
            by_source=level,
            source_distance="steps from the end",
        )
        left, right = [axes for axes in figure.axes if axes.lines]
        assert left.get_ylim() == right.get_ylim()
        low, high = right.get_ylim()
        assert high / low >= 10 * 0.999
        assert left.get_ylabel() == right.get_ylabel() != ""
        assert right.get_xlabel() == "distance in the source (steps from the end)"


def test_lags_that_few_sentences_reach_are_left_out() -> None:
    short = [Connectivity(np.ones((2, 2)), np.ones((2, 2))) for _ in range(5)]
    long = [Connectivity(np.ones((9, 9)), np.ones((9, 9))) for _ in range(4)]
    assert len(by_lag([*short, *long]).means) == 2
    assert len(by_lag(long).means) == 9


def test_a_language_model_has_the_gradients_of_each_loss_by_itself() -> None:
    model = RnnLmConfig(cell="lstm", width=5, layers=2).build(Symbols(9, 9, is_shared=True), seed=1).double().eval()
    text = torch.tensor([4, 5, 6, 7, END])
    found = connectivity_of(model, text[:0], text, reader=model)
    vectors = model.embedding(torch.tensor([[BEGIN, 4, 5, 6, 7]])).detach().requires_grad_()
    hidden, _ = model.layers(vectors, None)
    features = hidden[0] if model.projection is None else model.projection(hidden[0])
    losses = -model.output.log_probs(features).gather(1, text[:, None])[:, 0]
    for place, loss in enumerate(losses):
        (gradient,) = torch.autograd.grad(loss, vectors, retain_graph=True)
        np.testing.assert_allclose(found.target[place], gradient[0].norm(dim=1).numpy(), rtol=1e-9, atol=1e-15)
    assert found.source.shape == (5, 0)
    assert not np.triu(found.target, 1).any()
    assert len(by_lag([found]).means) == 5
