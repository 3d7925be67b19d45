"""Transformers that read images: ViT (Dosovitskiy et al., 2021) and Swin (Liu et al., 2021).

An image is cut into patches of p x p pixels; each patch is a token:

    patch t     x_t = W [pixels of patch t] + b

ViT attends from every patch to every other one. It is the encoder of a text Transformer, norms before the sublayers:

    input       x_0 = class token;  x_t ← x_t + P[t]                     P: a learned row for each place
    layer       x ← x + attention(norm(x))
                x ← x + W₂ gelu(W₁ norm(x))
    image       v = norm(x)_0

Swin attends within windows of M x M patches. Every other layer moves the windows by ⌊M/2⌋, so that neighbours meet:

    input       x_t ← norm(x_t)                                          no class token, no absolute positions
    attention   softmax(Q Kᵀ / √d + B[Δrow, Δcolumn] + mask) V           within each window, B learned for each head
    merging     x ← W norm([x_00; x_10; x_01; x_11])                     2 x 2 patches become one of twice the width
    image       v = mean_t norm(x_t)

Moving the windows is a cyclic shift of the grid: patches that leave at the top or left come back at the bottom or
right, where they share a window with patches that are not their neighbours. The mask hides the two groups from each
other. A grid that is not a multiple of M is padded with zeros after the norm; patches attend to this padding too, as in
the authors' code.

    cost of attention over h x w patches of width c, in multiplications:
    ViT         4 h w c² + 2 (h w)² c                                    quadratic in the area
    Swin        4 h w c² + 2 M² h w c                                    linear in the area

In training, a branch is skipped for whole images (stochastic depth; Huang et al., 2016): with rate r, layer l of L is
skipped with probability r l / (L − 1), l = 0 … L − 1.
"""

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Literal, cast

import torch
from jaxtyping import Bool, Float
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.core.declaration import ImageFacts, ModelSettings, ModelSizes, Purpose, Reason, TaskKind
from seqloom.core.errors import ConfigError, ModelError
from seqloom.nn.blocks import FeedForward, Residual
from seqloom.nn.dropout import Dropout, StochasticDepth, reseed
from seqloom.nn.embeddings import NO_SYMBOLS, Symbols
from seqloom.nn.init import linear, reset_linear, seeded
from seqloom.nn.multihead import SelfAttention, check_heads
from seqloom.nn.packing import Packing, additive, full_packing

Size = tuple[int, int]
"""Height and width."""

MAX_SIDE = 1 << 15
"""Pixels of the longest side of an image."""

INITIAL_SCALE = 0.02
"""Standard deviation of the first class token and the first biases of distances, as in both papers."""

POSITION_SCALE = 0.5
"""The same of the first positions: about that of an embedded patch. The paper's 0.02 is hidden by the patches for long:
on small images, accuracy after 240 steps was 0.91 with it and 0.98 with this."""

LARGE_SIDE = 128
"""Pixels of the longer side from which an image is cut into more patches."""

MAX_PATCHES = 1_024
"""Patches of an image that zero-config accepts: more than the longest sides of published models have."""

VIT_SIZES = ((20_000, 64, 4, 2), (200_000, 128, 6, 4), (sys.maxsize, 192, 12, 4))
"""A ViT up to so many images: width, layers, and the inner size of feed-forward blocks in widths."""

SWIN_SIZES = ((20_000, 32, 2), (200_000, 48, 4), (sys.maxsize, 96, 4))
"""The same of a Swin: width of the first stage, and the inner size of its feed-forward blocks in widths."""

HEAD_WIDTH = 16
"""Numbers of a head, at least, in models that are sized for the data."""

Images = Float[Tensor, "batch channels height width"]


# --- settings --------------------------------------------------------------------------------------------------------


class ImageModelSettings(ModelSettings):
    """What all models of images have. What is not given is chosen for the images."""

    purpose: ClassVar[Purpose] = "classifier"
    task_kind: ClassVar[TaskKind] = "classification"
    reads_images: ClassVar[bool] = True
    has_vocabulary: ClassVar[bool] = False
    head: ClassVar[tuple[str, ...]] = ("classifier.",)

    image_size: Size = (224, 224)
    """Height and width of images, in pixels; by default those of the training images."""
    channels: int = Field(3, ge=1, le=1_000)
    """Numbers for each pixel: 3 for colours, 1 for grey; by default as the training images have."""
    classes: int = Field(0, ge=0, le=1_000_000)
    """Classes that images are assigned to: as many as the data has; 0 for a model that only makes vectors."""
    mean: tuple[float, ...] = ()
    """Of the values 0 … 1 of each channel, which are reduced by it before the model reads them; by default that of the
    training images."""
    deviation: tuple[float, ...] = ()
    """By which these values are divided; by default their standard deviation in the training images."""

    def classifier_settings(self, classes: int, *, texts: int = 1) -> Mapping[str, Any]:  # noqa: ARG002
        return {"classes": classes}

    def _are_given(self, *names: str) -> bool:
        """Whether these settings are final: those that were not given are still to be chosen."""
        return set(names) <= self.model_fields_set


class VitConfig(ImageModelSettings):
    """A Vision Transformer: attention between all patches of an image. The default sizes are those of ViT-Ti/16."""

    trunk: ClassVar[tuple[str, ...]] = ("embedding.", "class_token", "positions", "layers.", "norm.")

    kind: Literal["vit"] = "vit"
    """Names this model in a config file."""
    patch: int = Field(16, ge=1, le=10_000)
    """Height and width of each patch, in pixels; it divides those of the image."""
    embedding: Literal["patches", "convolutions"] = "patches"
    """How patches become vectors: each by itself (the paper), or by convolutions that halve the image until a patch is
    one place, so that patches overlap; the patch is then 2, 4, 8, 16 …"""
    width: int = Field(192, ge=1, le=100_000)
    """Size of each patch's vector."""
    layers: int = Field(12, ge=1, le=1_000)
    """Layers of self-attention and feed-forward."""
    heads: int = Field(3, ge=1)
    """Attention heads; each takes width / heads numbers."""
    feed_forward: int = Field(768, ge=1, le=1_000_000)
    """Inner size of the feed-forward blocks."""
    dropout_rate: float = Field(0.1, ge=0, lt=1)
    """Share of numbers dropped from embeddings and from the output of each sublayer, in training."""
    stochastic_depth_rate: float = Field(0.0, ge=0, lt=1)
    """Share of images that skip the sublayers of the last layer, in training; earlier layers are skipped less often."""
    epsilon: float = Field(1e-6, gt=0, lt=1)
    """Added to the variance in each norm."""

    @model_validator(mode="after")
    def _sizes_fit(self) -> "VitConfig":
        """Checked when the settings are read."""
        try:
            if self._are_given("image_size", "patch"):
                check_patch(self.patch, self.image_size)
            if self._are_given("width", "heads"):
                check_heads(self.width, self.heads)
        except ConfigError as error:
            raise ValueError(str(error)) from error
        return self

    def sizes_for_images(self, facts: ImageFacts) -> ModelSizes:
        _, width, layers, wider = next(row for row in VIT_SIZES if facts.images <= row[0])
        width = self.width if self._are_given("width") else width
        side = 14 if max(facts.size) >= LARGE_SIDE else 8
        patch = self.patch if self._are_given("patch") else fitting_patch(facts.size, most=side)
        sizes = {"width": width, "layers": layers, "heads": fitting_heads(width), "feed_forward": wider * width}
        settings = {"image_size": list(facts.size), "patch": patch, **sizes, "stochastic_depth_rate": 0.1}
        why = (
            f"{layers} layers of width {width}: without trained weights (training.start_from), few images need no more"
        )
        reasons = (
            Reason(("model.image_size", "model.patch"), patches_text(facts.size, patch)),
            Reason(("model.kind", "model.width", "model.layers", "model.heads", "model.feed_forward"), why),
        )
        return ModelSizes(settings, reasons)

    def build(self, symbols: Symbols = NO_SYMBOLS, *, seed: int) -> "Vit":  # noqa: ARG002
        """A model with fresh weights drawn from `seed`, which also begins its dropout."""
        with seeded(seed):
            kind = ConvolutionalEmbedding if self.embedding == "convolutions" else PatchEmbedding
            embedding = kind(self.image_size, self.patch, channels=self.channels, width=self.width)
            layers = [self._layer(rate) for rate in depth_rates(self.stochastic_depth_rate, self.layers)]
            model = Vit(embedding, layers, classes=self.classes, dropout_rate=self.dropout_rate, epsilon=self.epsilon)
        reseed(model, seed)
        return model

    def _layer(self, skip_rate: float) -> "VitLayer":
        def bypass() -> SkippedResidual:
            return SkippedResidual(
                self.width, dropout_rate=self.dropout_rate, skip_rate=skip_rate, epsilon=self.epsilon
            )

        feed_forward = FeedForward(self.width, self.feed_forward, activation="gelu")
        return VitLayer(SelfAttention(self.width, self.heads), feed_forward, bypass)


class SwinConfig(ImageModelSettings):
    """A Swin Transformer: attention within shifted windows, on coarser and coarser grids.

    The default sizes are those of Swin-T.
    """

    trunk: ClassVar[tuple[str, ...]] = ("embedding.", "embedding_norm.", "stages.", "norm.")

    kind: Literal["swin"] = "swin"
    """Names this model in a config file."""
    patch: int = Field(4, ge=1, le=10_000)
    """Height and width of each patch of the first stage, in pixels; it divides those of the image."""
    width: int = Field(96, ge=1, le=100_000)
    """Size of each patch's vector in the first stage; it doubles with each stage."""
    depths: tuple[int, ...] = Field((2, 2, 6, 2), min_length=1, max_length=16)
    """Layers of each stage; after each stage but the last, 2 x 2 patches are merged."""
    heads: tuple[int, ...] = (3, 6, 12, 24)
    """Attention heads of each stage."""
    feed_forward: int = Field(384, ge=1, le=1_000_000)
    """Inner size of the feed-forward blocks in the first stage; it doubles with each stage."""
    window: int = Field(7, ge=1, le=1_000)
    """Height and width of each window, in patches. Where a grid is not larger, it is one window, and is not shifted."""
    dropout_rate: float = Field(0.0, ge=0, lt=1)
    """Share of numbers dropped from embeddings and from the output of each sublayer, in training."""
    stochastic_depth_rate: float = Field(0.1, ge=0, lt=1)
    """Share of images that skip the sublayers of the last layer, in training; earlier layers are skipped less often."""
    epsilon: float = Field(1e-5, gt=0, lt=1)
    """Added to the variance in each norm."""

    @model_validator(mode="after")
    def _sizes_fit(self) -> "SwinConfig":
        """Checked when the settings are read."""
        try:
            if self._are_given("depths", "heads"):
                self._check_stages()
            if self._are_given("image_size", "patch"):
                check_patch(self.patch, self.image_size)
            for stage, heads in enumerate(self.heads if self._are_given("width", "heads") else ()):
                check_heads(self.width << stage, heads)
        except ConfigError as error:
            raise ValueError(str(error)) from error
        return self

    def _check_stages(self) -> None:
        if len(self.heads) != len(self.depths):
            raise ConfigError(
                f"depths={list(self.depths)} has {len(self.depths)} stages, and heads={list(self.heads)} has "
                f"{len(self.heads)}; give one number of heads for each stage"
            )
        if min(self.depths) < 1:
            raise ConfigError(f"depths={list(self.depths)}: each stage has 1 layer or more")

    def sizes_for_images(self, facts: ImageFacts) -> ModelSizes:
        _, width, wider = next(row for row in SWIN_SIZES if facts.images <= row[0])
        width = self.width if self._are_given("width") else width
        side = 56 if max(facts.size) >= LARGE_SIDE else 16
        patch = self.patch if self._are_given("patch") else fitting_patch(facts.size, most=side)
        least = min(facts.size) // patch  # patches of the shorter side
        window = 7 if least % 7 == 0 else 4 if least >= 8 else 2
        window = self.window if self._are_given("window") else window
        # Stages end where a grid is one window, which attends to everything.
        stages = min(4, max(1, (least // window).bit_length()))
        depths = list(self.depths) if self._are_given("depths") else [2] * stages
        heads = [fitting_heads(width << stage) for stage in range(len(depths))]
        sizes = {"width": width, "depths": depths, "heads": heads, "feed_forward": wider * width, "window": window}
        settings = {"image_size": list(facts.size), "patch": patch, **sizes, "stochastic_depth_rate": 0.1}
        several = (
            f"stages of {', '.join(map(str, depths))} layers" if len(depths) > 1 else f"a stage of {depths[0]} layers"
        )
        why = (
            f"{several}, from width {width} on: without trained weights (training.start_from), few images need no more"
        )
        reasons = (
            Reason(("model.image_size", "model.patch"), patches_text(facts.size, patch)),
            Reason(("model.window",), f"windows of {window} x {window} patches"),
            Reason(("model.kind", "model.width", "model.depths", "model.heads", "model.feed_forward"), why),
        )
        return ModelSizes(settings, reasons)

    def build(self, symbols: Symbols = NO_SYMBOLS, *, seed: int) -> "Swin":  # noqa: ARG002
        """A model with fresh weights drawn from `seed`, which also begins its dropout."""
        self._check_stages()
        with seeded(seed):
            embedding = PatchEmbedding(self.image_size, self.patch, channels=self.channels, width=self.width)
            rates = depth_rates(self.stochastic_depth_rate, sum(self.depths))
            stages, grid = [], embedding.grid
            for number, (depth, heads) in enumerate(zip(self.depths, self.heads, strict=True)):
                stage = SwinStage(
                    self.width << number,
                    heads,
                    grid=grid,
                    window=self.window,
                    feed_forward=self.feed_forward << number,
                    dropout_rate=self.dropout_rate,
                    skip_rates=rates[:depth],
                    epsilon=self.epsilon,
                    has_merging=number + 1 < len(self.depths),
                )
                stages.append(stage)
                grid, rates = stage.next_grid, rates[depth:]
            model = Swin(embedding, stages, classes=self.classes, dropout_rate=self.dropout_rate, epsilon=self.epsilon)
        reseed(model, seed)
        return model


def depth_rates(rate: float, layers: int) -> list[float]:
    """The share of images that skip each layer: from 0 for the first to `rate` for the last."""
    return [rate * layer / max(layers - 1, 1) for layer in range(layers)]


def fitting_heads(width: int) -> int:
    """The largest number of heads of at least `HEAD_WIDTH` numbers that divides a width."""
    return next(heads for heads in range(max(1, width // HEAD_WIDTH), 0, -1) if width % heads == 0)


def fitting_patch(size: Size, *, most: int) -> int:
    """The smallest patch, of 2 pixels or more if there are, that divides an image into at most `most` x `most`."""
    shared = math.gcd(*size)
    counts = {patch: math.prod(size) // patch**2 for patch in range(1, shared + 1) if shared % patch == 0}
    fits = [patch for patch, count in counts.items() if count <= most**2]
    patch = next((patch for patch in fits if patch > 1 and counts[patch] > 1), min(fits, default=shared))
    if not fits and counts[patch] > MAX_PATCHES:
        even = [max(16, round(length / 16) * 16) for length in size]
        raise ConfigError(
            f"images of {size[0]} x {size[1]} pixels cannot be cut into at most {MAX_PATCHES:,} square patches; "
            f"resize them to a size that 16 divides: data.images.size='{even}'"
        )
    return patch


def patches_text(size: Size, patch: int) -> str:
    """How images are cut, for a reason."""
    rows, columns = (length // patch for length in size)
    return f"patches of {patch} x {patch} pixels: {rows} x {columns} of an image of {size[0]} x {size[1]}"


# --- patches ---------------------------------------------------------------------------------------------------------


def check_patch(patch: int, size: Size) -> None:
    """Patches of this many pixels cover an image exactly."""
    height, width = size
    if not 1 <= min(size) <= max(size) <= MAX_SIDE:
        raise ConfigError(
            f"images of {height} x {width} pixels are not possible; height and width are from 1 to {MAX_SIDE:,}"
        )
    shared = math.gcd(height, width)
    if patch < 1 or shared % patch:
        fits = [number for number in range(1, shared + 1) if shared % number == 0]
        raise ConfigError(
            f"patches of {patch} x {patch} pixels do not divide images of {height} x {width}; patches that fit: {fits}"
        )


def patchify(images: Images, patch: int) -> Float[Tensor, "batch patches pixels"]:
    """Images as rows of patches; the numbers of a patch are channel by channel, each row by row."""
    batch, channels, height, width = images.shape
    check_patch(patch, (height, width))
    cut = images.reshape(batch, channels, height // patch, patch, width // patch, patch)
    # [batch, rows, columns, channels, patch, patch] to [batch, patches, channels · patch²]
    return cut.permute(0, 2, 4, 1, 3, 5).reshape(batch, (height // patch) * (width // patch), channels * patch**2)


def unpatchify(patches: Float[Tensor, "batch patches pixels"], patch: int, size: Size) -> Images:
    """The images of this size that `patchify` cut."""
    check_patch(patch, size)
    (batch, count, pixels), (height, width) = patches.shape, size
    if count * patch**2 != height * width or pixels % patch**2:
        raise ModelError(
            f"{count} patches of {pixels} numbers are not an image of {height} x {width} pixels in patches of "
            f"{patch} x {patch}: it has {height * width // patch**2} patches of {patch**2} numbers for each channel"
        )
    channels = pixels // patch**2
    cut = patches.reshape(batch, height // patch, width // patch, channels, patch, patch)
    # [batch, channels, rows, patch, columns, patch] to [batch, channels, height, width]
    return cut.permute(0, 3, 1, 4, 2, 5).reshape(batch, channels, height, width)


class PatchEmbedding(nn.Module):
    """W [pixels] + b for each patch of images of one size."""

    def __init__(self, size: Size, patch: int, *, channels: int, width: int) -> None:
        super().__init__()
        check_patch(patch, size)
        self.size, self.patch, self.channels = size, patch, channels
        self.grid = (size[0] // patch, size[1] // patch)
        # As torch begins it: a random bias keeps the brightness of a patch visible after a norm.
        self.projection = nn.Linear(channels * patch**2, width)

    @property
    def width(self) -> int:
        return self.projection.out_features

    def forward(self, images: Images) -> Float[Tensor, "batch patches features"]:
        check_images(images, channels=self.channels, size=self.size)
        embedded: Tensor = self.projection(patchify(images, self.patch))
        return embedded


class ConvolutionalEmbedding(nn.Module):
    """Patches that overlap: z ← relu(W ∗ z + b), 3 x 3 with a stride of 2, until each place is as far from the next as
    a patch is wide; then W z + b (early convolutions; Xiao et al., 2021).

    What a shape looks like does not depend on where it is, so that few images are enough to learn it.
    """

    def __init__(self, size: Size, patch: int, *, channels: int, width: int) -> None:
        super().__init__()
        check_patch(patch, size)
        if not is_halved(patch):
            raise ConfigError(f"convolutions halve an image, and a patch of {patch} pixels is not 2, 4, 8, 16 …")
        self.size, self.channels = size, channels
        self.grid = (size[0] // patch, size[1] // patch)
        count = patch.bit_length() - 1
        widths = [channels, *(max(8, width >> (count - number)) for number in range(1, count + 1))]
        layers = [nn.Conv2d(one, other, 3, stride=2, padding=1) for one, other in pairwise(widths)]
        for layer in layers:
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            assert layer.bias is not None
            nn.init.zeros_(layer.bias)
        self.layers = cast("list[nn.Conv2d]", nn.ModuleList(layers))
        self.projection = nn.Linear(widths[-1], width)

    @property
    def width(self) -> int:
        return self.projection.out_features

    def forward(self, images: Images) -> Float[Tensor, "batch patches features"]:
        check_images(images, channels=self.channels, size=self.size)
        z = images
        for layer in self.layers:
            z = F.relu(layer(z))  # [batch, channels, height / 2, width / 2]
        embedded: Tensor = self.projection(z.flatten(2).transpose(1, 2))
        return embedded


def is_halved(patch: int) -> bool:
    """Whether halving an image some times makes a patch of this side one place."""
    return patch > 1 and patch & (patch - 1) == 0


def check_images(images: Images, *, channels: int, size: Size) -> None:
    """Raise if images have another size, or other channels."""
    if images.shape[1:] != (channels, *size):
        given, height, width = images.shape[1:]
        raise ModelError(
            f"images with {given} channels of {height} x {width} pixels do not fit this model: it reads {channels} "
            f"channels of {size[0]} x {size[1]}; convert or resize them"
        )


# --- what both have --------------------------------------------------------------------------------------------------


class SkippedResidual(nn.Module):
    """x + skip(dropout(f(norm(x)))): a sublayer on its bypass, which whole images may skip in training."""

    def __init__(self, width: int, *, dropout_rate: float, skip_rate: float, epsilon: float) -> None:
        super().__init__()
        self.residual = Residual(width, norm="before", dropout_rate=dropout_rate, epsilon=epsilon)
        self.skip = StochasticDepth(skip_rate)

    def forward(
        self, x: Float[Tensor, "tokens width"], batch: int, sublayer: Callable[[Tensor], Tensor]
    ) -> Float[Tensor, "tokens width"]:
        """Of the tokens of `batch` images, image after image."""
        numbers = x.numel() // max(batch, 1)  # of an image
        result: Tensor = self.residual(x, lambda x: self.skip(sublayer(x).view(batch, numbers)).view_as(x))
        return result


class ClassScores(nn.Module):
    """W v + b over the classes; without classes there are no scores."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.output = linear(width, classes) if classes else None

    def forward(self, vectors: Float[Tensor, "batch width"]) -> Float[Tensor, "batch classes"]:
        if self.output is None:
            raise ModelError("this model has no classes (model.classes=0); it makes vectors only")
        scores: Tensor = self.output(vectors)
        return scores


def equal_rows(batch: int, longest: int, device: torch.device) -> Packing:
    """The packing of a batch of sequences that are all equally long."""
    return full_packing(batch, longest, device=device)


# --- ViT -------------------------------------------------------------------------------------------------------------


class VitLayer(nn.Module):
    """Self-attention between all patches, then feed-forward, each on its bypass."""

    def __init__(
        self, attention: SelfAttention, feed_forward: FeedForward, bypass: Callable[[], SkippedResidual]
    ) -> None:
        super().__init__()
        self.attention, self.feed_forward = attention, feed_forward
        self.around_attention, self.around_feed_forward = bypass(), bypass()

    def forward(self, x: Float[Tensor, "tokens width"], packing: Packing) -> Float[Tensor, "tokens width"]:
        batch = packing.batch
        x = self.around_attention(x, batch, lambda x: self.attention(x, packing, mask=None, is_causal=False))
        x = self.around_feed_forward(x, batch, self.feed_forward)
        return x


class Vit(nn.Module):
    """Patches, a class token and encoder layers; `forward` gives the vectors of tokens, the class token first."""

    embeddings: ClassVar[tuple[str, ...]] = ("embedding.", "class_token", "positions")
    """Beginnings of the names of what comes before the layers."""

    def __init__(
        self,
        embedding: PatchEmbedding | ConvolutionalEmbedding,
        layers: Sequence[VitLayer],
        *,
        classes: int,
        dropout_rate: float,
        epsilon: float,
    ) -> None:
        super().__init__()
        width = embedding.width
        self.embedding = embedding
        self.class_token = _learned(width)
        self.positions = _learned(1 + math.prod(embedding.grid), width, scale=POSITION_SCALE)
        self.dropout = Dropout(dropout_rate)
        self.layers = cast("list[VitLayer]", nn.ModuleList(layers))
        self.norm = nn.LayerNorm(width, eps=epsilon)
        self.classifier = ClassScores(width, classes)

    def forward(self, images: Images) -> Float[Tensor, "batch tokens features"]:
        patches = self.embedding(images)  # [batch, patches, width]
        first = self.class_token.expand(len(patches), 1, -1)
        x = self.dropout(torch.cat([first, patches], dim=1) + self.positions)  # [batch, 1 + patches, width]
        batch, tokens, width = x.shape
        packing = equal_rows(batch, tokens, x.device)
        x = x.view(-1, width)  # [batch · tokens, width]
        for layer in self.layers:
            x = layer(x, packing)
        states: Tensor = self.norm(x).view(batch, tokens, width)
        return states

    def image_vectors(self, images: Images) -> Float[Tensor, "batch features"]:
        """One vector for each image: that of its class token."""
        vectors: Tensor = self(images)[:, 0]
        return vectors

    def class_scores(self, images: Images) -> Float[Tensor, "batch classes"]:
        """A score for each class, before the softmax."""
        scores: Tensor = self.classifier(self.image_vectors(images))
        return scores

    def layers_by_entry(self) -> list[tuple[nn.Module, str]]:
        """The layers that ranks may gather one by one, and the method by which a loss enters them."""
        return [(layer, "forward") for layer in self.layers]


# --- Swin ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Windows:
    """A grid of patches as square windows, after padding at the bottom and right and a cyclic shift to the top left."""

    grid: Size
    side: int
    """Patches in a row of a window."""
    shift: int
    """Rows and columns by which the grid is shifted."""

    @staticmethod
    def over(grid: Size, side: int, *, is_shifted: bool) -> "Windows":
        """Windows of this size, moved by half of it if `is_shifted`; a grid that is not larger is one window."""
        if min(grid) <= side:
            return Windows(grid, min(grid), 0)
        return Windows(grid, side, side // 2 if is_shifted else 0)

    @property
    def padded(self) -> Size:
        """The grid with padding: a multiple of the window."""
        height, width = (-(-length // self.side) * self.side for length in self.grid)
        return height, width

    @property
    def count(self) -> int:
        """Windows of an image."""
        return math.prod(self.padded) // self.places

    @property
    def places(self) -> int:
        """Patches of a window, padding counted."""
        return self.side**2

    def cut(self, x: Float[Tensor, "batch height width features"]) -> Float[Tensor, "batch windows places features"]:
        """The patches of each window, row by row."""
        (height, width), (rows, columns), (batch, *_, features) = self.padded, self.grid, x.shape
        if (height, width) != (rows, columns):
            x = F.pad(x, (0, 0, 0, width - columns, 0, height - rows))
        if self.shift:
            x = x.roll((-self.shift, -self.shift), dims=(1, 2))
        x = x.view(batch, height // self.side, self.side, width // self.side, self.side, features)
        return x.transpose(2, 3).reshape(batch, self.count, self.places, features)

    def join(self, x: Float[Tensor, "batch windows places features"]) -> Float[Tensor, "batch height width features"]:
        """The grid that was cut, without padding."""
        (height, width), (rows, columns), (batch, *_, features) = self.padded, self.grid, x.shape
        x = x.reshape(batch, height // self.side, width // self.side, self.side, self.side, features)
        x = x.transpose(2, 3).reshape(batch, height, width, features)
        if self.shift:
            x = x.roll((self.shift, self.shift), dims=(1, 2))
        return x[:, :rows, :columns]

    def mask(self) -> Bool[Tensor, "windows places places"] | None:
        """True where two patches of a window are neighbours in the image; None if that is so everywhere.

        The last `shift` rows and columns of the shifted grid come from the other end of the image.
        """
        if not self.shift:
            return None
        came = [torch.arange(length) >= length - self.shift for length in self.padded]
        region = 2 * came[0][:, None] + 1 * came[1]  # [height, width]
        by_window = Windows(self.padded, self.side, 0).cut(region[None, :, :, None].float())[0, :, :, 0]
        return by_window[:, :, None] == by_window[:, None, :]


class WindowAttention(nn.Module):
    """Attention within windows, with a learned number for each head and each distance in rows and columns."""

    distance: Tensor
    mask: Tensor | None

    def __init__(self, width: int, heads: int, windows: Windows) -> None:
        super().__init__()
        self.windows = windows
        self.attention = SelfAttention(width, heads)
        distances = 2 * windows.side - 1  # from 1 − side to side − 1
        self.bias = _learned(heads, distances**2)
        row, column = torch.arange(windows.places) // windows.side, torch.arange(windows.places) % windows.side
        down = row[:, None] - row + windows.side - 1  # [places, places], counted from 0
        right = column[:, None] - column + windows.side - 1
        self.register_buffer("distance", down * distances + right, persistent=False)
        allowed = windows.mask()
        mask = None if allowed is None else additive(allowed, self.bias.dtype)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x: Float[Tensor, "tokens width"], packing: Packing) -> Float[Tensor, "tokens width"]:
        """Of the grids of images, one after another; `packing` has one sequence for each window."""
        windows, width = self.windows, x.shape[1]
        batch = packing.batch // windows.count
        by_window = windows.cut(x.view(batch, *windows.grid, width))  # [batch, windows, places, width]
        bias = self.bias[:, self.distance][None]  # [1, heads, places, places]
        if self.mask is not None:
            bias = (bias + self.mask[:, None]).repeat(batch, 1, 1, 1)  # [batch · windows, heads, places, places]
        mixed = self.attention(by_window.view(-1, width), packing, mask=bias, is_causal=False)
        return windows.join(mixed.view(by_window.shape)).reshape(-1, width)  # [tokens, width]


class PatchMerging(nn.Module):
    """W norm([x_00; x_10; x_01; x_11]): 2 x 2 patches become one of twice the width."""

    def __init__(self, width: int, grid: Size, *, epsilon: float) -> None:
        super().__init__()
        self.grid = grid
        self.norm = nn.LayerNorm(4 * width, eps=epsilon)
        self.reduction = nn.Linear(4 * width, 2 * width, bias=False)
        reset_linear(self.reduction)

    @property
    def next_grid(self) -> Size:
        """The grid of the merged patches."""
        return -(-self.grid[0] // 2), -(-self.grid[1] // 2)

    def forward(self, x: Float[Tensor, "tokens width"]) -> Float[Tensor, "merged twice"]:
        (rows, columns), width = self.grid, x.shape[1]
        x = F.pad(x.view(-1, rows, columns, width), (0, 0, 0, columns % 2, 0, rows % 2))
        four = torch.cat([x[:, row::2, column::2] for column in range(2) for row in range(2)], dim=-1)
        merged: Tensor = self.reduction(self.norm(four.view(-1, 4 * width)))  # [tokens / 4, 2 · width]
        return merged


class SwinLayer(nn.Module):
    """Attention within windows, then feed-forward, each on its bypass."""

    def __init__(
        self, windows: WindowAttention, feed_forward: FeedForward, bypass: Callable[[], SkippedResidual]
    ) -> None:
        super().__init__()
        self.windows, self.feed_forward = windows, feed_forward
        self.around_windows, self.around_feed_forward = bypass(), bypass()

    def forward(self, x: Float[Tensor, "tokens width"], packing: Packing, batch: int) -> Float[Tensor, "tokens width"]:
        x = self.around_windows(x, batch, lambda x: self.windows(x, packing))
        x = self.around_feed_forward(x, batch, self.feed_forward)
        return x


class SwinStage(nn.Module):
    """Layers on one grid, whose windows are shifted in every other layer, and the merging of patches after them."""

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        grid: Size,
        window: int,
        feed_forward: int,
        dropout_rate: float,
        skip_rates: Sequence[float],
        epsilon: float,
        has_merging: bool,
    ) -> None:
        super().__init__()
        self.grid = grid
        self.unshifted, shifted = (Windows.over(grid, window, is_shifted=each) for each in (False, True))

        def layer(number: int, skip_rate: float) -> SwinLayer:
            return SwinLayer(
                WindowAttention(width, heads, shifted if number % 2 else self.unshifted),
                FeedForward(width, feed_forward, activation="gelu"),
                lambda: SkippedResidual(width, dropout_rate=dropout_rate, skip_rate=skip_rate, epsilon=epsilon),
            )

        made = nn.ModuleList(layer(number, rate) for number, rate in enumerate(skip_rates))
        self.layers = cast("list[SwinLayer]", made)
        self.merging = PatchMerging(width, grid, epsilon=epsilon) if has_merging else None

    @property
    def next_grid(self) -> Size:
        """The grid after this stage."""
        return self.grid if self.merging is None else self.merging.next_grid

    def forward(self, x: Float[Tensor, "tokens width"], batch: int) -> Float[Tensor, "next_tokens next_width"]:
        """Of the grids of `batch` images, one after another."""
        # A sequence for each window; shifted or not, there are equally many.
        packing = equal_rows(batch * self.unshifted.count, self.unshifted.places, x.device)
        for layer in self.layers:
            x = layer(x, packing, batch)
        return x if self.merging is None else self.merging(x)


class Swin(nn.Module):
    """Patches and stages on ever coarser grids; `forward` gives the vectors of the last grid, row by row."""

    embeddings: ClassVar[tuple[str, ...]] = ("embedding",)
    """Beginnings of the names of what comes before the layers."""

    def __init__(
        self,
        embedding: PatchEmbedding,
        stages: Sequence[SwinStage],
        *,
        classes: int,
        dropout_rate: float,
        epsilon: float,
    ) -> None:
        super().__init__()
        width = embedding.width << (len(stages) - 1)
        self.embedding = embedding
        self.embedding_norm = nn.LayerNorm(embedding.width, eps=epsilon)
        self.dropout = Dropout(dropout_rate)
        self.stages = cast("list[SwinStage]", nn.ModuleList(stages))
        self.norm = nn.LayerNorm(width, eps=epsilon)
        self.classifier = ClassScores(width, classes)

    def forward(self, images: Images) -> Float[Tensor, "batch tokens features"]:
        x = self.dropout(self.embedding_norm(self.embedding(images)))  # [batch, patches, width]
        batch, x = len(x), x.flatten(0, 1)  # [batch · patches, width]
        for stage in self.stages:
            x = stage(x, batch)  # a fourth of the tokens, of twice the width
        states: Tensor = self.norm(x).view(batch, math.prod(self.stages[-1].grid), x.shape[1])
        return states

    def image_vectors(self, images: Images) -> Float[Tensor, "batch features"]:
        """One vector for each image: the mean over its last grid."""
        vectors: Tensor = self(images).mean(1)
        return vectors

    def class_scores(self, images: Images) -> Float[Tensor, "batch classes"]:
        """A score for each class, before the softmax."""
        scores: Tensor = self.classifier(self.image_vectors(images))
        return scores

    def layers_by_entry(self) -> list[tuple[nn.Module, str]]:
        """The layers that ranks may gather one by one, and the method by which a loss enters them."""
        return [(layer, "forward") for stage in self.stages for layer in stage.layers]


def _learned(*shape: int, scale: float = INITIAL_SCALE) -> nn.Parameter:
    return nn.Parameter(nn.init.normal_(torch.empty(shape), std=scale))
