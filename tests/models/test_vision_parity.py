"""ViT and Swin against transformers: the same weights, the same vectors and scores."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from seqloom.models.vision import Size, Swin, SwinConfig, Vit, VitConfig
from seqloom.nn.probe import listen

CLASSES = 5
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}

pytestmark = pytest.mark.parity


def shaken(model: nn.Module) -> nn.Module:
    """With all weights away from 0 and 1: norms, biases and tables begin where a mistake would not be seen."""
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.add_(0.1 * torch.randn_like(tensor))
    return model.eval()


def published_vit(size: Size, patch: int, channels: int = 3, dtype: torch.dtype = torch.float64) -> nn.Module:
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        hidden_size=24,
        num_hidden_layers=3,
        num_attention_heads=3,
        intermediate_size=40,
        image_size=size,
        patch_size=patch,
        num_channels=channels,
        initializer_range=0.3,
        layer_norm_eps=1e-6,
        num_labels=CLASSES,
    )
    torch.manual_seed(5)
    return shaken(transformers.ViTForImageClassification(config)).to(dtype)


def published_swin(
    size: Size, patch: int, window: int, channels: int = 3, dtype: torch.dtype = torch.float64, **changes: Any
) -> nn.Module:
    transformers = pytest.importorskip("transformers")
    settings = {"embed_dim": 12, "depths": [2, 2], "num_heads": [2, 3], "mlp_ratio": 2.0, **changes}
    config = transformers.SwinConfig(
        image_size=size,
        patch_size=patch,
        num_channels=channels,
        window_size=window,
        initializer_range=0.3,
        num_labels=CLASSES,
        **settings,
    )
    torch.manual_seed(6)
    return shaken(transformers.SwinForImageClassification(config)).to(dtype)


def joined(weights: dict[str, Tensor], prefix: str, kind: str) -> Tensor:
    return torch.cat([weights[f"{prefix}.{part}_proj.{kind}"] for part in "qkv"])


def layer_weights(weights: dict[str, Tensor], theirs: str, ours: str, attention: str, around: str) -> dict[str, Tensor]:
    """The weights that a layer of both models has."""
    found = {}
    for kind in ("weight", "bias"):
        found[f"{ours}.{attention}.qkv.{kind}"] = joined(weights, f"{theirs}.attention", kind)
        found[f"{ours}.{attention}.output.{kind}"] = weights[f"{theirs}.attention.o_proj.{kind}"]
        found[f"{ours}.feed_forward.inner.{kind}"] = weights[f"{theirs}.mlp.fc1.{kind}"]
        found[f"{ours}.feed_forward.outer.{kind}"] = weights[f"{theirs}.mlp.fc2.{kind}"]
        found[f"{ours}.{around}.residual.norm.{kind}"] = weights[f"{theirs}.layernorm_before.{kind}"]
        found[f"{ours}.around_feed_forward.residual.norm.{kind}"] = weights[f"{theirs}.layernorm_after.{kind}"]
    return found


def ends(weights: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    """The weights before and after the layers."""
    patches = f"{name}.embeddings.patch_embeddings.projection"
    return {
        "embedding.projection.weight": weights[f"{patches}.weight"].flatten(1),
        "embedding.projection.bias": weights[f"{patches}.bias"],
        "norm.weight": weights[f"{name}.layernorm.weight"],
        "norm.bias": weights[f"{name}.layernorm.bias"],
        "classifier.output.weight": weights["classifier.weight"],
        "classifier.output.bias": weights["classifier.bias"],
    }


def vit_like(theirs: nn.Module) -> Vit:
    config, weights = theirs.config, theirs.state_dict()
    ours = VitConfig(
        image_size=tuple(config.image_size),
        patch=config.patch_size,
        channels=config.num_channels,
        width=config.hidden_size,
        layers=config.num_hidden_layers,
        heads=config.num_attention_heads,
        feed_forward=config.intermediate_size,
        classes=CLASSES,
    ).build(seed=1)
    found = ends(weights, "vit") | {
        "class_token": weights["vit.embeddings.cls_token"].flatten(),
        "positions": weights["vit.embeddings.position_embeddings"][0],
    }
    for number in range(config.num_hidden_layers):
        found |= layer_weights(
            weights, f"vit.layers.{number}", f"layers.{number}", "attention", around="around_attention"
        )
    ours.to(weights["classifier.weight"].dtype).load_state_dict(found)
    return ours.eval()


def swin_like(theirs: nn.Module) -> Swin:
    config, weights = theirs.config, theirs.state_dict()
    ours = SwinConfig(
        image_size=tuple(config.image_size),
        patch=config.patch_size,
        channels=config.num_channels,
        width=config.embed_dim,
        depths=tuple(config.depths),
        heads=tuple(config.num_heads),
        feed_forward=int(config.embed_dim * config.mlp_ratio),
        window=config.window_size,
        classes=CLASSES,
    ).build(seed=1)
    found = ends(weights, "swin") | {
        f"embedding_norm.{kind}": weights[f"swin.embeddings.norm.{kind}"] for kind in ("weight", "bias")
    }
    for stage, depth in enumerate(config.depths):
        for number in range(depth):
            block, layer = f"swin.encoder.layers.{stage}.blocks.{number}", f"stages.{stage}.layers.{number}"
            found |= layer_weights(weights, block, layer, "windows.attention", around="around_windows")
            table = weights[f"{block}.attention.relative_position_bias.relative_position_bias_table"]
            found[f"{layer}.windows.bias"] = table.t()
        if stage + 1 < len(config.depths):
            for part in ("norm.weight", "norm.bias", "reduction.weight"):
                found[f"stages.{stage}.merging.{part}"] = weights[f"swin.encoder.layers.{stage}.downsample.{part}"]
    ours.to(weights["classifier.weight"].dtype).load_state_dict(found)
    return ours.eval()


def differences(ours: Vit | Swin, theirs: nn.Module, batch: int) -> tuple[float, float]:
    """The largest of the vectors of tokens and of the scores."""
    base = theirs.vit if hasattr(theirs, "vit") else theirs.swin
    torch.manual_seed(7)
    images = torch.randn(batch, ours.embedding.channels, *ours.embedding.size, dtype=ours.norm.weight.dtype)
    with torch.no_grad():
        states, scores = base(images).last_hidden_state, theirs(images).logits
        assert ours(images).shape == states.shape
        return float((ours(images) - states).abs().max()), float((ours.class_scores(images) - scores).abs().max())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("size", "patch", "channels", "batch"),
    [((8, 8), 2, 1, 3), ((12, 6), 3, 3, 1), ((5, 15), 5, 2, 7), ((30, 33), 3, 3, 2)],  # the last has 111 tokens
)
def test_vit_equals_transformers(size: Size, patch: int, channels: int, batch: int, dtype: torch.dtype) -> None:
    theirs = published_vit(size, patch, channels, dtype)
    assert max(differences(vit_like(theirs), theirs, batch)) < TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("size", "patch", "window", "batch"),
    [
        ((16, 16), 2, 4, 3),  # grids of 8 and 4: shifted windows, then one window
        ((16, 24), 2, 3, 2),  # 8 x 12 and 4 x 6 with windows of 3: padding in both stages, with shifts
        ((14, 10), 1, 5, 1),  # 14 x 10 and 7 x 5: padding of rows alone, then one that reaches the window
        ((9, 11), 1, 2, 5),  # odd grids: padding of windows and of merging
        ((44, 44), 1, 11, 1),  # windows of 121 places, for which the fused kernel is used
    ],
)
def test_swin_equals_transformers(size: Size, patch: int, window: int, batch: int, dtype: torch.dtype) -> None:
    theirs = published_swin(size, patch, window, dtype=dtype)
    assert max(differences(swin_like(theirs), theirs, batch)) < TOLERANCE[dtype]


def test_swin_without_shifts_and_with_many_stages_equals_transformers() -> None:
    plain = published_swin((12, 12), 1, 4, depths=[1, 1], num_heads=[3, 2])
    assert max(differences(swin_like(plain), plain, 3)) < 1e-10
    deep = published_swin((24, 24), 1, 3, depths=[2, 3, 1, 1], num_heads=[1, 2, 3, 4])
    assert max(differences(swin_like(deep), deep, 3)) < 1e-10


def test_gradients_equal_transformers() -> None:
    for theirs, like in ((published_vit((8, 8), 2), vit_like), (published_swin((9, 11), 1, 4), swin_like)):
        ours = like(theirs)
        images = torch.randn(3, 3, *ours.embedding.size, dtype=torch.float64)
        labels = torch.tensor([0, 3, 1])
        found, expected = (images.clone().requires_grad_() for _ in range(2))
        nn.functional.cross_entropy(ours.class_scores(found), labels).backward()
        nn.functional.cross_entropy(theirs(expected).logits, labels).backward()
        assert found.grad is not None
        torch.testing.assert_close(found.grad, expected.grad, rtol=0, atol=1e-10)


def test_attention_weights_equal_transformers() -> None:
    theirs = published_swin((16, 16), 2, 4)
    theirs.set_attn_implementation("eager")
    ours, images = swin_like(theirs), torch.randn(2, 3, 16, 16, dtype=torch.float64)
    with torch.no_grad(), listen(ours, "stages.*") as trace:
        ours(images)
        attentions = theirs(images, output_attentions=True).attentions  # of the last layer of each stage
    for stage, expected in enumerate(attentions):
        (weights,) = trace[f"stages.{stage}.layers.1.windows.attention.weights"]
        torch.testing.assert_close(weights, expected, rtol=0, atol=1e-6)  # their softmax is in single precision


def unshifted(model: Swin) -> None:
    attention = model.stages[0].layers[1].windows
    attention.windows, attention.mask = model.stages[0].layers[0].windows.windows, None


def unmasked(model: Swin) -> None:
    model.stages[0].layers[1].windows.mask = None


def transposed_distances(model: Swin) -> None:
    attention = model.stages[0].layers[0].windows
    attention.distance = attention.distance.t()


def swapped_merging(model: Swin) -> None:
    merging = model.stages[0].merging
    assert merging is not None
    weight = merging.reduction.weight.data.view(24, 4, 12)
    merging.reduction.weight.data = weight[:, [0, 2, 1, 3]].reshape(24, 48)


@pytest.mark.parametrize("damage", [unshifted, unmasked, transposed_distances, swapped_merging])
def test_the_comparison_of_swin_notices(damage: Callable[[Swin], None]) -> None:
    theirs = published_swin((16, 16), 2, 4)
    ours = swin_like(theirs)
    damage(ours)
    assert max(differences(ours, theirs, 3)) > 1e-4


def other_pixel_order(model: Vit) -> None:
    weight = model.embedding.projection.weight.data.view(24, 3, 2, 2)
    model.embedding.projection.weight.data = weight.transpose(2, 3).reshape(24, 12)


def tanh_gelu(model: Vit) -> None:
    for layer in model.layers:
        layer.feed_forward.activation = "gelu_tanh"


def other_positions(model: Vit) -> None:
    model.positions.data = model.positions.data.roll(1, 0)


@pytest.mark.parametrize("damage", [other_pixel_order, tanh_gelu, other_positions])
def test_the_comparison_of_vit_notices(damage: Callable[[Vit], None]) -> None:
    theirs = published_vit((8, 8), 2)
    ours = vit_like(theirs)
    damage(ours)
    assert max(differences(ours, theirs, 3)) > 1e-6
