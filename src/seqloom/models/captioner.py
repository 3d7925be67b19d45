"""Captions of images: a Vision Transformer that a decoder attends to (Vinyals et al., 2015; Xu et al., 2015).

An image is translated: what an encoder leaves of it takes the place of a source sentence. Vinyals et al. gave a decoder
one vector of the image; Xu et al. one for each of its places, to which the decoder attends while it writes:

    memory       h_0 … h_n = ViT(image)                                  h_0: class token, h_1 … h_n: patches

    transformer  y = √width · E[previous] + position
                 each layer: causal self-attention, attention to h, feed-forward; last a norm
    recurrent    s_0 = W_b h_0 + b
                 s_t = cell(E[y_{t−1}], s_{t−1})
                 α_t = softmax_j(s_t W_a h_j),   c_t = Σ_j α_tj h_j
                 x_t = tanh(W_c [c_t; s_t] + b_c)

    output       P(y_t ∣ y_1 … y_{t−1}, image) = softmax(E x_t + b)

An image may have several right captions; training reads one of them in each epoch. Encoder and decoders are those of
`models/vision.py`, `models/transformer.py` and `models/seq2seq.py`, so that all searches of translators write captions.
"""

import math
import sys
from typing import Any, ClassVar, Literal

from jaxtyping import Float, Int
from pydantic import Field, model_validator
from torch import Tensor, nn

from seqloom.core.declaration import CaptionFacts, ModelSizes, Pieces, Purpose, Reason, StepperOption, TaskKind
from seqloom.core.errors import ConfigError
from seqloom.core.stepping import Source, SourceImages
from seqloom.models.cell_options import CellOptions
from seqloom.models.seq2seq import Bridge, Seq2SeqStepper
from seqloom.models.transformer import DecoderLayer, StepBias, TransformerStack, TransformerStepper, decode_at_once
from seqloom.models.vision import (
    Images,
    Size,
    Vit,
    VitConfig,
    check_patch,
    fitting_heads,
    fitting_patch,
    is_halved,
    patches_text,
)
from seqloom.nn.attention import Attention, BilinearScore
from seqloom.nn.blocks import FeedForward, Residual, SinusoidalPositions
from seqloom.nn.decoder import Decoder, DecoderState
from seqloom.nn.dropout import reseed
from seqloom.nn.embeddings import Embedding, Symbols
from seqloom.nn.framing import Framing
from seqloom.nn.init import seeded
from seqloom.nn.multihead import CrossAttention, SelfAttention, check_heads
from seqloom.nn.outputs import Output
from seqloom.nn.packing import Packing, additive, full_packing, packing_of
from seqloom.nn.pointer import Pointer, PointerMemory
from seqloom.nn.recurrent import Stack, cells_of

SIZES = ((20_000, 96, 2, 2), (200_000, 192, 6, 3), (sys.maxsize, 384, 8, 4))
"""Up to so many images: width, and layers of encoder and decoder."""

MAX_PATCHES_ACROSS = 8, 14
"""Patches of a row or column of an image, at most, and of a large one."""

LARGE_SIDE = 128
"""Pixels of the longer side from which an image is large."""


# --- settings --------------------------------------------------------------------------------------------------------


class CaptionerConfig(CellOptions):
    """A model that describes images: a Vision Transformer, and a decoder that attends to all patches."""

    purpose: ClassVar[Purpose] = "captioner"
    task_kind: ClassVar[TaskKind] = "captioning"
    pieces: ClassVar[Pieces] = "word"
    reads_images: ClassVar[bool] = True
    trunk: ClassVar[tuple[str, ...]] = ("encoder.",)

    kind: Literal["captioner"] = "captioner"
    """Names this model in a config file."""
    image_size: Size = (224, 224)
    """Height and width of images, in pixels; by default those of the training images."""
    channels: int = Field(3, ge=1, le=1_000)
    """Numbers for each pixel: 3 for colours, 1 for grey; by default as the training images have."""
    mean: tuple[float, ...] = ()
    """Of the values 0 … 1 of each channel, which are reduced by it before the model reads them; by default that of the
    training images."""
    deviation: tuple[float, ...] = ()
    """By which these values are divided; by default their standard deviation in the training images."""
    patch: int = Field(16, ge=1, le=10_000)
    """Height and width of each patch, in pixels; it divides those of the image."""
    embedding: Literal["patches", "convolutions"] = "patches"
    """How patches become vectors: each by itself, or by convolutions that halve the image until a patch is one place,
    so that patches overlap; by default convolutions, where the patch is 2, 4, 8, 16 …"""
    width: int = Field(192, ge=2, le=100_000)
    """Size of the vector of each patch and of each symbol, and of the states of a recurrent decoder."""
    encoder_layers: int = Field(6, ge=1, le=1_000)
    """Layers of the encoder."""
    decoder: Literal["transformer", "recurrent"] = "transformer"
    """What writes captions: layers of a Transformer, or recurrent ones with attention after them."""
    decoder_layers: int = Field(3, ge=1, le=1_000)
    """Layers of the decoder."""
    heads: int = Field(4, ge=1)
    """Attention heads of the encoder, and of the decoder if it is a Transformer; each takes width / heads numbers."""
    feed_forward: int = Field(768, ge=1, le=1_000_000)
    """Inner size of the feed-forward blocks."""
    dropout_rate: float = Field(0.1, ge=0, lt=1)
    """Share of numbers dropped from embeddings and from the output of each sublayer, in training."""

    def check(self) -> None:
        """Raise if some settings contradict each other."""
        super().check()
        given = self.model_fields_set
        if {"image_size", "patch"} <= given:
            check_patch(self.patch, self.image_size)
        if {"width", "heads"} <= given:
            check_heads(self.width, self.heads)
        if self.decoder == "recurrent":
            self.check_reset("decoder", (self.width,) * self.decoder_layers, width=self.width)

    @model_validator(mode="after")
    def _values_fit(self) -> "CaptionerConfig":
        for name, numbers in (("mean", self.mean), ("deviation", self.deviation)):
            if numbers and len(numbers) != self.channels:
                raise ValueError(f"model.{name} has {len(numbers)} numbers, but images have {self.channels} channels")
        return self

    @property
    def has_attention(self) -> bool:
        return True

    @property
    def attention_heads(self) -> tuple[int, int] | None:
        return (self.decoder_layers, self.heads) if self.decoder == "transformer" else None

    def sizes_for_captions(self, facts: CaptionFacts) -> ModelSizes:
        _, width, encoder_layers, decoder_layers = next(row for row in SIZES if facts.images <= row[0])
        if self.decoder == "recurrent":
            decoder_layers = 1
        given = self.model_fields_set
        width = self.width if "width" in given else width
        across = MAX_PATCHES_ACROSS[max(facts.size) >= LARGE_SIDE]
        patch = self.patch if "patch" in given else fitting_patch(facts.size, most=across)
        sizes = {
            "embedding": "convolutions" if is_halved(patch) else "patches",
            "width": width,
            "encoder_layers": encoder_layers,
            "decoder_layers": decoder_layers,
            "heads": fitting_heads(width),
            "feed_forward": 2 * width,
        }
        why = f"{encoder_layers}+{decoder_layers} layers of width {width}: a larger model would overfit these images"
        reasons = (
            Reason(("model.image_size", "model.patch"), patches_text(facts.size, patch)),
            Reason(("model.kind", "model.width", "model.encoder_layers", "model.decoder_layers"), why),
        )
        most = 1e-3 if self.decoder == "recurrent" else math.inf
        return ModelSizes({"image_size": list(facts.size), "patch": patch, **sizes}, reasons, max_learning_rate=most)

    def build(self, symbols: Symbols, *, seed: int) -> "Captioner | RecurrentCaptioner":
        """A model of the target side's symbols with fresh weights drawn from `seed`, which also begins its dropout."""
        self.check()
        check_heads(self.width, self.heads)
        with seeded(seed):
            encoder = self._encoder(seed)
            embedding = Embedding(symbols.target, self.width)
            output = Output(embedding.weight, has_bias=True)
            model: Captioner | RecurrentCaptioner
            if self.decoder == "recurrent":
                bridge = Bridge(self.width, self.width, layers=self.decoder_layers)
                model = RecurrentCaptioner(encoder, bridge, self._recurrent(embedding), output)
            else:
                model = Captioner(encoder, self._transformer(embedding), output)
        reseed(model, seed)
        return model

    def _encoder(self, seed: int) -> Vit:
        sizes: dict[str, Any] = {name: getattr(self, name) for name in ("image_size", "channels", "patch", "width")}
        sizes["embedding"] = self.embedding
        sizes |= {"layers": self.encoder_layers, "heads": self.heads, "feed_forward": self.feed_forward}
        return VitConfig(**sizes, dropout_rate=self.dropout_rate).build(seed=seed)

    def _transformer(self, embedding: Embedding) -> TransformerStack[DecoderLayer]:
        def bypass() -> Residual:
            return Residual(self.width, norm="before", dropout_rate=self.dropout_rate)

        layers = [
            DecoderLayer(
                SelfAttention(self.width, self.heads),
                CrossAttention(self.width, self.heads),
                FeedForward(self.width, self.feed_forward, activation="relu"),
                bypass=bypass,
            )
            for _ in range(self.decoder_layers)
        ]
        return TransformerStack(
            embedding,
            SinusoidalPositions(self.width),
            layers,
            bias=None,
            norm=nn.LayerNorm(self.width),
            dropout_rate=self.dropout_rate,
            scale=math.sqrt(self.width),
        )

    def _recurrent(self, embedding: Embedding) -> Decoder:
        cells = cells_of(self.make_cell(), self.width, width=self.width, layers=self.decoder_layers)
        return Decoder(
            embedding,
            Stack(cells, dropout_rate=self.dropout_rate),
            attention=Attention(BilinearScore(self.width, self.width)),
            join=nn.Linear(2 * self.width, self.width),
            first=None,
            query="current",
            reads_context=False,
            feeds_attention=False,
            dropout_rate=self.dropout_rate,
            dropout_kind="between",
        )


# --- modules ---------------------------------------------------------------------------------------------------------


def source_of(encoder: Vit, images: Images) -> SourceImages:
    """Scaled images as a source, which has a position for the class token and for each patch."""
    return SourceImages.of(images, positions=1 + math.prod(encoder.embedding.grid))


def memory_of(encoder: Vit, source: Source) -> Float[Tensor, "batch positions width"]:
    """What the encoder leaves of the images of a source."""
    if not isinstance(source, SourceImages):
        raise ConfigError("a captioner reads images; make its source with model.source(images)")
    memory: Tensor = encoder(source.pixels)
    return memory


class Captioner(nn.Module):
    """Encoder, layers of a Transformer and output; `forward` is teacher-forced training, `stepper` is decoding."""

    stepper_options: ClassVar[frozenset[StepperOption]] = frozenset({"heads"})
    framing = Framing()
    pointer: Pointer | None = None

    def __init__(self, encoder: Vit, decoder: TransformerStack[DecoderLayer], output: Output) -> None:
        super().__init__()
        self.encoder, self.decoder, self.output = encoder, decoder, output

    def source(self, images: Images) -> SourceImages:
        """Scaled images as a source."""
        return source_of(self.encoder, images)

    def forward(
        self, source: Source, previous: Int[Tensor, "batch target"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "tokens width"]:
        """Features of the real positions of captions, one after another, from the symbols before each."""
        memory, memory_packing, mask = self.encode(source)
        packing = packing_of(lengths, previous.shape[1])
        return decode_at_once(
            self.decoder, previous, packing, memory=memory, memory_packing=memory_packing, memory_mask=mask
        )

    def encode(self, source: Source) -> tuple[Tensor, Packing, Tensor]:
        """The memory (packed), the places of its vectors, and a mask that hides none of them."""
        memory = memory_of(self.encoder, source)
        batch, positions, width = memory.shape
        packing = full_packing(batch, positions, device=memory.device)
        mask = additive(packing.mask(), memory.dtype)[:, None, None]  # [batch, 1, 1, positions]
        return memory.reshape(-1, width), packing, mask

    @property
    def step_bias(self) -> StepBias | None:
        return None

    def copied(self, source: Source, memory: Tensor, packing: Packing) -> PointerMemory | None:  # noqa: ARG002
        """Nothing of an image is copied."""
        return None

    def layers_by_entry(self) -> list[tuple[nn.Module, str]]:
        """The layers that ranks may gather one by one, and the method by which a loss enters them."""
        return [*self.encoder.layers_by_entry(), *((layer, "forward") for layer in self.decoder.layers)]

    def stepper(self, *, attention: bool = False, heads: str = "mean") -> TransformerStepper:
        """This model as the search sees it; with `attention`, each step also returns that to the class token and the
        patches, of the chosen heads."""
        return TransformerStepper(self, heads=heads if attention else None, shortlist=None)


class RecurrentCaptioner(nn.Module):
    """Encoder, bridge, recurrent decoder with attention, and output; used as a `Captioner` is."""

    pointer: Pointer | None = None

    def __init__(self, encoder: Vit, bridge: Bridge, decoder: Decoder, output: Output) -> None:
        super().__init__()
        self.encoder, self.bridge, self.decoder, self.output = encoder, bridge, decoder, output

    def source(self, images: Images) -> SourceImages:
        """Scaled images as a source."""
        return source_of(self.encoder, images)

    def forward(
        self, source: Source, previous: Int[Tensor, "batch target"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "tokens width"]:
        """Features of the real positions of captions, one after another, from the symbols before each."""
        features: Tensor = self.decoder(previous, lengths, start=self.start(source))
        return features

    def start(self, source: Source) -> DecoderState:
        """The decoder before its first symbol, one row per image."""
        memory = memory_of(self.encoder, source)  # [batch, positions, width]
        whole = memory[:, 0]
        return self.decoder.start(memory, source.lengths, context=whole, hints=self.bridge(whole))

    def layers_by_entry(self) -> list[tuple[nn.Module, str]]:
        """The layers that ranks may gather one by one, and the method by which a loss enters them."""
        return [*self.encoder.layers_by_entry(), *((cell, "run") for cell in self.decoder.stack.cells)]

    def stepper(self, *, attention: bool = False) -> Seq2SeqStepper:
        """This model as the search sees it; with `attention`, each step also returns its attention."""
        return Seq2SeqStepper(self, gives_attention=attention, shortlist=None)
