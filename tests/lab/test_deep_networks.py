"""Ways past the layers keep the gradient of deep networks, and are what their formulas say."""

import pytest
import torch
from torch.nn import functional as F

from seqloom.lab.depth import (
    CharacterTraining,
    DeepForm,
    DeepNetwork,
    DeepSizes,
    draw_spirals,
    gradient_ratio,
    loss_after_training,
    phrasebook_text,
    train_characters,
)
from seqloom.nn.cells.rnn import ElmanCell
from seqloom.nn.recurrent import Skip

SKIPS: tuple[Skip, ...] = ("none", "residual", "highway", "dense")


def spread(form: DeepForm, depth: int) -> list[float]:
    return [gradient_ratio(form, depth, sizes=DeepSizes(), seed=seed) for seed in range(4)]


@pytest.mark.parametrize("skip", ["residual", "highway", "dense"])
def test_skip_connections_keep_more_gradient_than_a_plain_network_of_32_layers(skip: Skip) -> None:
    assert min(spread(DeepForm(skip), 32)) > 1000 * max(spread(DeepForm("none"), 32))


def test_the_gradient_of_a_plain_network_falls_with_its_depth() -> None:
    by_depth = [spread(DeepForm("none"), depth) for depth in (2, 8, 32)]
    assert min(by_depth[0]) > max(by_depth[1]) > min(by_depth[1]) > max(by_depth[2])


def test_a_residual_network_of_32_layers_learns_what_a_plain_one_does_not() -> None:
    sizes = DeepSizes(updates=40)
    plain, residual = (loss_after_training(DeepForm(skip), 32, sizes=sizes, seed=1) for skip in ("none", "residual"))
    assert residual < 0.5 * plain


@pytest.mark.parametrize("skip", SKIPS)
def test_layers_add_what_the_formulas_say(skip: Skip) -> None:
    network = DeepNetwork(DeepForm(skip), 3, sizes=DeepSizes(width=4, growth=4))
    points = torch.randn(5, 2)
    scores, added = network(points)
    x = network.enter(points)
    for layer, bypass, f in zip(network.layers, network.bypasses, added, strict=True):
        torch.testing.assert_close(f, torch.tanh(x @ layer.weight.t() + layer.bias))
        if skip == "none":
            x = f
        elif skip == "residual":
            x = x + f
        elif skip == "dense":
            x = torch.cat([x, f], 1)
        else:
            gate = torch.sigmoid(F.linear(x, bypass.gate.weight, bypass.gate.bias))
            assert float(gate.detach().mean()) < 0.2
            x = gate * f + (1 - gate) * x
    torch.testing.assert_close(scores, network.output(x))


def test_a_start_within_glorots_bounds_is_wider() -> None:
    uniform, glorot = (
        DeepNetwork(DeepForm("none", start), 2, sizes=DeepSizes()).layers[0].weight.detach().abs().max()
        for start in ("uniform", "glorot")
    )
    assert 0.9 * 32**-0.5 < float(uniform) <= 32**-0.5 < float(glorot) <= (6 / 64) ** 0.5


def test_spirals_have_all_classes_and_stay_in_their_disc() -> None:
    points, labels = draw_spirals(300, 3, generator=torch.Generator().manual_seed(1))
    assert points.norm(dim=1).max() <= 2
    assert labels.bincount(minlength=3).min() > 60


def test_characters_are_learnt_beyond_their_frequencies() -> None:
    text = phrasebook_text(sentences=100, windows=16, seed=1)
    assert set(text.test.flatten().tolist()) <= set(range(len(text.characters)))
    training = CharacterTraining(updates=60, learning_rate=0.02)
    losses = train_characters(ElmanCell, text, layers=1, skip="none", training=training, seed=1, every=25)
    assert list(losses) == [25, 50, 60]
    assert losses[60] < text.frequency_loss() - 0.3
    again = train_characters(ElmanCell, text, layers=1, skip="none", training=training, seed=1)
    assert again == {60: losses[60]}
