"""ViT and Swin: laws of patches, windows and batches, cost, messages, learning. Parity is in test_vision_parity.py."""

import math
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from seqloom.core.errors import ConfigError, ModelError
from seqloom.models.vision import (
    Size,
    Swin,
    SwinConfig,
    Vit,
    VitConfig,
    WindowAttention,
    Windows,
    depth_rates,
    equal_rows,
    patchify,
    unpatchify,
)
from seqloom.nn.multihead import SelfAttention
from seqloom.nn.probe import listen

VIT = VitConfig(image_size=(6, 8), patch=2, channels=1, width=16, layers=2, heads=2, feed_forward=24, classes=3)
SWIN = SwinConfig(
    image_size=(6, 7),
    patch=1,
    channels=1,
    width=8,
    depths=(2, 2),
    heads=(2, 4),
    feed_forward=16,
    window=3,
    classes=3,
)


def grid_of(side: st.SearchStrategy[int]) -> st.SearchStrategy[Size]:
    return st.tuples(side, side)


@given(st.integers(0, 3), st.integers(1, 4), st.integers(1, 4), grid_of(st.integers(1, 5)))
def test_patches_give_back_the_image(batch: int, channels: int, patch: int, grid: Size) -> None:
    size = (grid[0] * patch, grid[1] * patch)
    images = torch.randn(batch, channels, *size)
    patches = patchify(images, patch)
    assert patches.shape == (batch, math.prod(grid), channels * patch**2)
    assert torch.equal(unpatchify(patches, patch, size), images)
    assert torch.equal(patchify(unpatchify(patches, patch, size), patch), patches)


def test_a_patch_has_its_pixels_channel_by_channel() -> None:
    images = torch.arange(2.0 * 4 * 6).view(1, 2, 4, 6)
    first, last = [0, 1, 6, 7, 24, 25, 30, 31], [16, 17, 22, 23, 40, 41, 46, 47]
    assert patchify(images, 2)[0, [0, 5]].tolist() == [first, last]


@given(grid_of(st.integers(1, 9)), st.integers(1, 4), st.booleans(), st.integers(1, 3))
def test_windows_give_back_the_grid(grid: Size, side: int, is_shifted: bool, batch: int) -> None:
    windows = Windows.over(grid, side, is_shifted=is_shifted)
    x = torch.randn(batch, *grid, 2)
    cut = windows.cut(x)
    assert cut.shape == (batch, windows.count, windows.places, 2)
    assert torch.equal(windows.join(cut), x)
    assert cut.count_nonzero() == x.count_nonzero()  # the rest is padding


@settings(max_examples=10)
@given(grid_of(st.integers(1, 9)), st.integers(1, 4), st.booleans())
def test_a_patch_influences_its_window_and_no_other_patch(grid: Size, side: int, is_shifted: bool) -> None:
    windows = Windows.over(grid, side, is_shifted=is_shifted)
    torch.manual_seed(1)
    attention = WindowAttention(4, 2, windows).double()
    packing = equal_rows(windows.count, windows.places, torch.device("cpu"))
    x = torch.randn(math.prod(grid), 4, dtype=torch.float64)
    row, column = (each.flatten() for each in torch.meshgrid(*map(torch.arange, grid), indexing="ij"))
    # Without a cyclic shift: squares that begin at `shift`, cut off at the borders of the image.
    at = torch.stack([(row - windows.shift) // windows.side, (column - windows.shift) // windows.side])
    before = attention(x, packing)
    for place in range(len(x)):
        changed = x.clone()
        changed[place] += 1
        is_touched = (attention(changed, packing) != before).any(1)
        assert torch.equal(is_touched, (at == at[:, place : place + 1]).all(0))


def test_two_layers_join_neighbouring_windows_and_one_does_not() -> None:
    """A pixel at the border of a window reaches the next one through the shifted layer, and not the far corner."""
    config = SWIN.model_copy(update={"image_size": (8, 8), "window": 4, "depths": (2,), "heads": (2,)})
    model = config.build(seed=1).double().eval()
    images = torch.randn(1, 1, 8, 8, dtype=torch.float64)
    changed = images.clone()
    changed[0, 0, 3, 3] += 1
    with torch.no_grad():
        is_touched = (model(images) != model(changed)).any(2).view(8, 8)
        attention = model.stages[0].layers[1].windows
        attention.windows, attention.mask = model.stages[0].layers[0].windows.windows, None
        is_touched_unshifted = (model(images) != model(changed)).any(2).view(8, 8)
    assert is_touched_unshifted.nonzero().max() == 3
    assert is_touched[:6, :6].all()
    assert not is_touched[6:, 6:].any()


@pytest.mark.parametrize("config", [VIT, SWIN])
@pytest.mark.parametrize("batch", [1, 2, 5])
def test_neighbours_in_the_batch_change_nothing(config: VitConfig | SwinConfig, batch: int) -> None:
    model = config.build(seed=1).double().eval()
    images = torch.randn(batch, 1, *config.image_size, dtype=torch.float64)
    with torch.no_grad():
        together = model.class_scores(images)
        for row in range(batch):
            alone = model.class_scores(images[row : row + 1])
            torch.testing.assert_close(together[row : row + 1], alone, rtol=0, atol=1e-12)
        assert model.class_scores(images[:0]).shape == (0, 3)


def multiplications(attention: WindowAttention | SelfAttention, grid: Size, width: int) -> int:
    """Of the matrix products for one image."""
    x = torch.randn(math.prod(grid), width)
    # With a listener every product is a matrix product, which the counter sees; it does not see into fused kernels.
    with FlopCounterMode(display=False) as counter, torch.no_grad(), listen(attention, "*weights"):
        if isinstance(attention, WindowAttention):
            windows = attention.windows
            attention(x, equal_rows(windows.count, windows.places, x.device))
        else:
            attention(x, equal_rows(1, len(x), x.device), mask=None, is_causal=False)
    return counter.get_total_flops() // 2  # an addition with each


def test_window_attention_is_linear_in_the_area_and_full_attention_is_not() -> None:
    width, heads, side = 12, 2, 4
    for height, breadth in ((8, 8), (8, 16), (16, 16), (16, 32)):
        area, grid = height * breadth, (height, breadth)
        for is_shifted in (False, True):
            attention = WindowAttention(width, heads, Windows.over(grid, side, is_shifted=is_shifted))
            assert multiplications(attention, grid, width) == 4 * area * width**2 + 2 * side**2 * area * width
        full = multiplications(SelfAttention(width, heads), grid, width)
        assert full == 4 * area * width**2 + 2 * area**2 * width


def test_attention_weights_can_be_seen_and_change_nothing() -> None:
    """Windows of 100 places and images of 101 tokens are beyond what is attended to product by product."""
    vit = VIT.model_copy(update={"image_size": (20, 20)}).build(seed=1).double().eval()
    swin = SWIN.model_copy(update={"image_size": (20, 20), "window": 10}).build(seed=1).double().eval()
    images = torch.randn(2, 1, 20, 20, dtype=torch.float64)
    cases: Sequence[tuple[Vit | Swin, str, tuple[int, ...]]] = [
        (vit, "layers.1.attention.weights", (2, 2, 101, 101)),
        (swin, "stages.0.layers.1.windows.attention.weights", (8, 2, 100, 100)),
    ]
    for model, name, shape in cases:
        with torch.no_grad():
            plain = model(images)
            with listen(model, name) as trace:
                torch.testing.assert_close(model(images), plain, rtol=0, atol=1e-12)
        (weights,) = trace[name]
        assert weights.shape == shape
        torch.testing.assert_close(weights.sum(-1), torch.ones(shape[:-1], dtype=torch.float64))


@pytest.mark.parametrize("config", [VIT, SWIN])
def test_gradients_reach_every_weight(config: VitConfig | SwinConfig) -> None:
    model = config.build(seed=1)
    model.class_scores(torch.randn(3, 1, *config.image_size))[:, 0].square().sum().backward()
    assert all(each.grad is not None and bool(each.grad.any()) for each in model.parameters())
    assert all(entry == "forward" for _, entry in model.layers_by_entry())


@pytest.mark.parametrize("config", [VIT, SWIN])
def test_a_seed_decides_weights_dropout_and_skipped_layers(config: VitConfig | SwinConfig) -> None:
    config = config.model_copy(update={"stochastic_depth_rate": 0.5, "dropout_rate": 0.2})
    images = torch.randn(4, 1, *config.image_size)
    state = torch.get_rng_state()
    first, same, other = (config.build(seed=seed)(images) for seed in (1, 1, 2))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), state)


def test_the_last_layer_is_skipped_most_often() -> None:
    assert depth_rates(0.3, 4) == pytest.approx([0, 0.1, 0.2, 0.3])
    assert depth_rates(0.3, 1) == [0]
    model = VIT.model_copy(update={"stochastic_depth_rate": 0.5, "dropout_rate": 0.0}).build(seed=1).double()
    layer, x = model.layers[1], torch.randn(400 * 2, 16, dtype=torch.float64)
    packing = equal_rows(400, 2, x.device)
    with torch.no_grad():
        attended = layer.around_attention(x, 400, lambda x: layer.attention(x, packing, mask=None, is_causal=False))
        model.eval()
        full = layer.around_attention(x, 400, lambda x: layer.attention(x, packing, mask=None, is_causal=False))
    branch, factors = (full - x).view(400, -1), (attended - x).view(400, -1)
    is_skipped = (factors == 0).all(1)
    assert 150 < int(is_skipped.sum()) < 250
    torch.testing.assert_close(factors[~is_skipped], 2 * branch[~is_skipped])


def test_sizes_that_do_not_fit_are_refused_with_those_that_do() -> None:
    for make, message in (
        (lambda: VitConfig(image_size=(30, 20)), r"16 x 16 .* images of 30 x 20; patches that fit: \[1, 2, 5, 10\]"),
        (lambda: VitConfig(image_size=(0, 8)), "images of 0 x 8 pixels"),
        (lambda: VitConfig(width=10, heads=4), r"width 10 cannot be shared by 4 heads; .* that fit: \[1, 2, 5\]"),
        (lambda: SwinConfig(image_size=(10, 10)), r"4 x 4 .* images of 10 x 10; .* fit: \[1, 2, 5, 10\]"),
        (lambda: SwinConfig(heads=(3, 6)), r"depths=\[2, 2, 6, 2\] has 4 stages, and heads=\[3, 6\] has 2"),
        (lambda: SwinConfig(heads=(3, 6, 12, 5)), "width 768 cannot be shared by 5 heads"),
        (lambda: SwinConfig(depths=(2, 0), heads=(3, 6)), r"depths=\[2, 0\]: each stage has 1 layer or more"),
    ):
        with pytest.raises(ConfigError, match=message):
            make().build(seed=1)


@pytest.mark.parametrize("config", [VIT, SWIN])
def test_images_of_another_size_are_refused(config: VitConfig | SwinConfig) -> None:
    model = config.build(seed=1)
    height, width = config.image_size
    expected = f"3 channels of 5 x 8 pixels do not fit this model: it reads 1 channels of {height} x {width}"
    with pytest.raises(ModelError, match=expected):
        model(torch.randn(2, 3, 5, 8))
    vectors = config.model_copy(update={"classes": 0}).build(seed=1)
    images = torch.randn(2, 1, height, width)
    assert vectors.image_vectors(images).shape == (2, 16)
    with pytest.raises(ModelError, match="no classes"):
        vectors.class_scores(images)
    with pytest.raises(ModelError, match="5 patches of 4 numbers are not an image of 4 x 4"):
        unpatchify(torch.randn(1, 5, 4), 2, (4, 4))


IMAGES = 1_500
TRAINING = 1_200


def digits() -> tuple[Tensor, Tensor]:
    """Images of 8 x 8 pixels: handwritten digits, or stripes in four directions where they are not installed."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        labels = torch.arange(IMAGES) % 4
        angle, phase = (labels * (math.pi / 4)).view(-1, 1, 1), 6 * torch.rand(IMAGES, 1, 1)
        row, column = torch.arange(8.0).view(8, 1), torch.arange(8.0)
        waves = (1.5 * (row * angle.sin() + column * angle.cos()) + phase).sin()  # [images, 8, 8]
        return waves[:, None] + 0.3 * torch.randn(IMAGES, 1, 8, 8), labels
    found = load_digits()
    chosen = torch.randperm(len(found.images))[:IMAGES]
    images = torch.from_numpy(found.images).float()[chosen, None]
    return (images - images.mean()) / images.std(), torch.from_numpy(found.target)[chosen]


@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    [
        VIT.model_copy(update={"image_size": (8, 8), "patch": 4, "width": 48, "heads": 4, "feed_forward": 96}),
        SWIN.model_copy(update={"image_size": (8, 8), "patch": 2, "width": 24, "feed_forward": 48, "window": 2}),
    ],
)
def test_it_learns_to_read_digits(config: VitConfig | SwinConfig) -> None:
    images, labels = digits()
    without_noise = {"dropout_rate": 0.0, "stochastic_depth_rate": 0.0, "classes": 10}
    model = config.model_copy(update=without_noise).build(seed=1)
    optimiser = torch.optim.AdamW(model.parameters(), weight_decay=0.05)
    steps = 120
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 3e-3, total_steps=steps)
    for step in range(steps):
        batch = torch.arange(step * 50, step * 50 + 50) % TRAINING
        optimiser.zero_grad()
        F.cross_entropy(model.class_scores(images[batch]), labels[batch]).backward()
        optimiser.step()
        schedule.step()
    with torch.no_grad():
        scores = model.eval().class_scores(images[TRAINING:])
    share = (scores.argmax(1) == labels[TRAINING:]).float().mean()
    assert share > 0.9
