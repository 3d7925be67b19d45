"""Published encoder-decoders for translation: MarianMT, M2M100 and NLLB, mBART and mBART-50, Pegasus.

They are one Transformer with different settings:

               norms              positions                                   embeddings        language symbols
    Marian     after              sines, then cosines                         √width or 1       maybe one in the source
    M2M100     before             sinusoids of tensor2tensor, counted from 2  √width or 1       before both texts
    mBART      before             learned, counted from 2                     with a norm       after the source
    mBART-50   before             learned, counted from 2                     with a norm       before both texts
    Pegasus    before             sines, then cosines                         √width or 1       none
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, cast

import torch

from seqloom.core.errors import ModelError
from seqloom.models.frames import LanguageScheme
from seqloom.models.transformer import TransformerConfig
from seqloom.nn.blocks import Activation, NormPlace, SinusoidLayout, sinusoids
from seqloom.nn.embeddings import Tying
from seqloom.pretrained.families import (
    MAX_LAYERS,
    MAX_POSITIONS,
    MAX_SYMBOLS,
    MAX_WIDTH,
    Conversion,
    Family,
    choice,
    flag,
    real_number,
    symbol,
    whole_number,
)
from seqloom.pretrained.mapping import StoredTensors, TensorMap
from seqloom.pretrained.renumbering import Roles

ACTIVATIONS: Mapping[str, Activation] = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "swish": "silu",
    "silu": "silu",
}
"""Our names of the activations of config.json."""

SHARED, ENCODER, DECODER, OUTPUT = (
    "model.shared.weight",
    "model.encoder.embed_tokens.weight",
    "model.decoder.embed_tokens.weight",
    "lm_head.weight",
)
"""Tables of symbols."""
BIAS = "final_logits_bias"
POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")
OLD_POSITIONS = r"model\.(en|de)coder\.embed_positions\.weights"
"""A table that some versions saved, although it is computed."""
MAX_POSITION_ERROR = 2e-3
"""How far a saved table of sinusoids may be from the computed one: half types are less exact than this."""


@dataclass(frozen=True)
class Variant:
    """What the models of one type have in common, and what config.json may leave out."""

    norm: NormPlace
    positions: SinusoidLayout | Literal["learned"]
    first_position: int = 0
    has_embedding_norm: bool = False
    activation: str = "gelu"
    scale_embedding: bool = False
    pad: int = 1
    begin: int | None = 0
    end: int = 2
    start: int | None = None
    """What the decoder reads first."""
    has_languages: bool = False


def _read(config: Mapping[str, Any], stored: StoredTensors, *, variant: Variant) -> Conversion:
    """The settings and the tensors of a folder."""
    width = whole_number(config, "d_model", most=MAX_WIDTH, least=2)
    heads = _common(config, "attention_heads", most=MAX_WIDTH)
    inner = _common(config, "ffn_dim", most=1_000_000)
    if width % heads:
        raise ModelError(f"config.json has d_model={width}, which cannot be shared by {heads} heads")
    source_symbols = whole_number(config, "vocab_size", most=MAX_SYMBOLS, least=2)
    symbols = source_symbols
    if config.get("decoder_vocab_size") is not None:
        symbols = whole_number(config, "decoder_vocab_size", most=MAX_SYMBOLS, least=2)
    positions = whole_number(config, "max_position_embeddings", most=MAX_POSITIONS, default=1024)
    layers = {side: whole_number(config, f"{side}_layers", most=MAX_LAYERS) for side in ("encoder", "decoder")}
    tables = _tables(stored, shapes={"source": (source_symbols, width), "target": (symbols, width)})
    is_learned = variant.positions == "learned"
    if not is_learned:
        _check_sinusoids(stored, width, variant)
    model = TransformerConfig(
        width=width,
        heads=heads,
        encoder_layers=layers["encoder"],
        decoder_layers=layers["decoder"],
        feed_forward=inner,
        activation=choice(config, "activation_function", ACTIVATIONS, default=variant.activation),
        dropout_rate=real_number(config, "dropout", least=0.0, most=0.99, default=0.1),
        inner_dropout_rate=real_number(config, "activation_dropout", least=0.0, most=0.99, default=0.0),
        norm=variant.norm,
        positions="learned" if is_learned else "sinusoidal",
        sinusoids="alternating" if variant.positions == "learned" else variant.positions,
        first_position=variant.first_position,
        longest=min(positions, 1_000_000) if is_learned else 512,
        is_bounded=is_learned,
        scale_embeddings=flag(config, "scale_embedding", default=variant.scale_embedding),
        embedding_norm=variant.has_embedding_norm,
        tying=tables.tying,
        output_bias=BIAS in stored.names,
    )
    are_two = symbols != source_symbols or not flag(config, "share_encoder_decoder_embeddings", default=True)
    roles = _roles(config, symbols, variant)
    begin = symbol(config, "decoder_start_token_id", symbols=symbols, default=variant.start)
    scheme: LanguageScheme = "none"
    begins_with: tuple[int | Literal["language"], ...]
    if not variant.has_languages:
        begins_with = (roles.pad if begin is None else begin,) if roles.pad is not None else ()
    elif begin == roles.end:
        begins_with, scheme = (roles.end, "language"), "before"
    else:
        # The decoder of the first mBART begins with the language itself; published ones may name that of their target.
        begins_with, scheme = ("language",), "after"
    return Conversion(
        model=model,
        tensors=tuple(_tensors(model, tables)),
        roles=roles,
        symbols=symbols,
        begins_with=begins_with,
        language_scheme=scheme,
        max_positions=positions,
        source_symbols=source_symbols if are_two else None,
        ignored=(*map(re.escape, (*tables.ignored, *(() if is_learned else POSITIONS))), OLD_POSITIONS),
    )


def _common(config: Mapping[str, Any], name: str, *, most: int) -> int:
    """A size that encoder and decoder share here."""
    encoder, decoder = (whole_number(config, f"{side}_{name}", most=most) for side in ("encoder", "decoder"))
    if encoder != decoder:
        raise ModelError(
            f"config.json has encoder_{name}={encoder} and decoder_{name}={decoder}; different ones are not supported"
        )
    return encoder


def _roles(config: Mapping[str, Any], symbols: int, variant: Variant) -> Roles:
    """The reserved symbols. Which one is unknown, the tokeniser says."""
    ends = config.get("eos_token_id")
    if isinstance(ends, list):
        if len(ends) != 1:
            raise ModelError(f"config.json has eos_token_id={str(ends)[:60]}; one end is supported")
        config = {**config, "eos_token_id": ends[0]}
    end = symbol(config, "eos_token_id", symbols=symbols, default=variant.end)
    pad = symbol(config, "pad_token_id", symbols=symbols, default=variant.pad)
    return Roles(
        pad=pad,
        begin=symbol(config, "bos_token_id", symbols=symbols, default=variant.begin),
        end=variant.end if end is None else end,
        unknown=None,
    )


@dataclass(frozen=True)
class SymbolTables:
    """The names of the tables of a file that are really there, and which of them are one."""

    source: str
    target: str
    output: str
    tying: Tying
    ignored: tuple[str, ...]
    """Copies, and a table that nothing reads."""


def _tables(stored: StoredTensors, *, shapes: Mapping[str, tuple[int, int]]) -> SymbolTables:
    """The tables of a file, whatever its config.json says about tying: a table that differs is one of its own."""
    present = [name for name in (SHARED, ENCODER, DECODER, OUTPUT) if name in stored.names]
    same: dict[str, str] = {}
    for name in present:
        first = next((other for other in dict.fromkeys(same.values()) if _are_equal(stored, name, other)), name)
        same[name] = first
    chosen: dict[str, str] = {}
    for part, candidates in (
        ("source", (ENCODER, SHARED)),
        ("target", (DECODER, SHARED, ENCODER)),
        ("output", (OUTPUT, DECODER, SHARED, ENCODER)),
    ):
        found = next((name for name in candidates if name in same), None)
        if found is None:
            raise ModelError(f"the weights have no table of symbols for the {part}: {' or '.join(candidates)}")
        chosen[part] = same[found]
        expected = shapes["source" if part == "source" else "target"]
        if stored.shape(found) != expected:
            raise ModelError(
                f"{found} has the shape {list(stored.shape(found))}, but config.json gives {list(expected)}; the "
                "weights belong to another config.json"
            )
    source, target, output = chosen["source"], chosen["target"], chosen["output"]
    tying: Tying = "none"
    if source == target:
        tying = "all" if target == output else "inputs"
    elif target == output:
        tying = "output"
    used = {source, target, output}
    return SymbolTables(source, target, output, tying, tuple(name for name in present if name not in used))


def _are_equal(stored: StoredTensors, name: str, other: str) -> bool:
    """Whether two stored tables hold the same numbers."""
    if stored.shape(name) != stored.shape(other) or stored.dtype(name) != stored.dtype(other):
        return False
    return torch.equal(stored.tensor(name), stored.tensor(other))


def _check_sinusoids(stored: StoredTensors, width: int, variant: Variant) -> None:
    """A saved table of positions is the computed one."""
    for name in POSITIONS:
        if name not in stored.names:
            continue
        shape = stored.shape(name)
        if len(shape) != 2 or shape[1] != width or shape[0] > MAX_POSITIONS:
            raise ModelError(f"{name} has the shape {list(shape)}, but config.json has d_model={width}")
        layout = cast("SinusoidLayout", variant.positions)
        if (stored.tensor(name).float() - sinusoids(shape[0], width, layout=layout)).abs().max() > MAX_POSITION_ERROR:
            raise ModelError(f"{name} does not hold sinusoids, which models of this type have")


def _tensors(model: TransformerConfig, tables: SymbolTables) -> Iterator[TensorMap]:
    """Our tensors from theirs."""
    yield TensorMap("encoder.embedding.weight", (tables.source,), rows="source")
    if model.tying not in ("all", "inputs"):
        yield TensorMap("decoder.embedding.weight", (tables.target,), rows="target")
    if model.tying in ("inputs", "none"):
        yield TensorMap("output.weight", (tables.output,), rows="target")
    if model.output_bias:
        yield TensorMap("output.bias", (BIAS,), rows="target", is_flat=True)
    for side, layers in (("encoder", model.encoder_layers), ("decoder", model.decoder_layers)):
        theirs = f"model.{side}"
        if model.positions == "learned":
            yield TensorMap(f"{side}.positions.weight", (f"{theirs}.embed_positions.weight",))
        if model.embedding_norm:
            yield from _linear(f"{side}.embedding_norm", f"{theirs}.layernorm_embedding")
        if model.norm == "before":
            yield from _linear(f"{side}.norm", f"{theirs}.layer_norm")
        for number in range(layers):
            yield from _layer(f"{side}.layers.{number}", f"{theirs}.layers.{number}", has_memory=side == "decoder")


def _layer(ours: str, theirs: str, *, has_memory: bool) -> Iterator[TensorMap]:
    own, cross = f"{theirs}.self_attn", f"{theirs}.encoder_attn"
    yield from _linear(f"{ours}.self.qkv", f"{own}.q_proj", f"{own}.k_proj", f"{own}.v_proj")
    yield from _linear(f"{ours}.self.output", f"{own}.out_proj")
    yield from _linear(f"{ours}.around_self.norm", f"{theirs}.self_attn_layer_norm")
    if has_memory:
        yield from _linear(f"{ours}.cross.query", f"{cross}.q_proj")
        yield from _linear(f"{ours}.cross.memory", f"{cross}.k_proj", f"{cross}.v_proj")
        yield from _linear(f"{ours}.cross.output", f"{cross}.out_proj")
        yield from _linear(f"{ours}.around_cross.norm", f"{theirs}.encoder_attn_layer_norm")
    yield from _linear(f"{ours}.feed_forward.inner", f"{theirs}.fc1")
    yield from _linear(f"{ours}.feed_forward.outer", f"{theirs}.fc2")
    yield from _linear(f"{ours}.around_feed_forward.norm", f"{theirs}.final_layer_norm")


def _linear(ours: str, *theirs: str) -> Iterator[TensorMap]:
    """Weight and bias of a linear layer or of a norm."""
    for part in ("weight", "bias"):
        yield TensorMap(f"{ours}.{part}", tuple(f"{name}.{part}" for name in theirs))


MARIAN = Family(
    "marian",
    ("MarianMTModel",),
    partial(_read, variant=Variant(norm="after", positions="halves", pad=58100, begin=None, end=0)),
)
M2M100 = Family(
    "m2m_100",
    ("M2M100ForConditionalGeneration",),
    partial(
        _read,
        variant=Variant(
            norm="before",
            positions="tensor2tensor",
            first_position=2,
            activation="relu",
            scale_embedding=True,
            start=2,
            has_languages=True,
        ),
    ),
)
MBART = Family(
    "mbart",
    ("MBartForConditionalGeneration",),
    partial(
        _read,
        variant=Variant(
            norm="before", positions="learned", first_position=2, has_embedding_norm=True, has_languages=True
        ),
    ),
)
PEGASUS = Family(
    "pegasus",
    ("PegasusForConditionalGeneration",),
    partial(_read, variant=Variant(norm="before", positions="halves", pad=0, begin=None, end=1)),
)

FAMILIES = (MARIAN, M2M100, MBART, PEGASUS)
