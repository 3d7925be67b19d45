"""The Transformer as a CTranslate2 model: the same weights in its layout, so that its engine gives the same scores.

Its specification covers all options of the Transformer, not always under the same name:

    seqloom                           CTranslate2
    norm before, after; final norm    pre_norm, layer_norm (which its own constructor grants only to pre-norm)
    sinusoidal, learned, none         a table of position encodings; none is a table of zeros
    concatenated  W [x ; code]        = W_x x + W_c code: W_x goes into the embeddings, W_c into the table
    shaw, bias                        relative_position_keys, relative_attention_bias
    no W_O                            W_O = 1, b = 0

Its own sinusoids differ from ours (sines first, another rate, counted from 1), so they are exported as a table.
Recurrent models are not supported.
"""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from seqloom.core.errors import ModelError, UsageError
from seqloom.core.symbols import BEGIN, END, RESERVED, UNKNOWN
from seqloom.interop.frames import require_plain_frame
from seqloom.models.transformer import DecoderLayer, Transformer, TransformerStack
from seqloom.nn.blocks import LearnedPositions, NoPositions, SinusoidalPositions
from seqloom.nn.embeddings import Embedding
from seqloom.nn.encoders import EncoderLayer

Quantization = Literal["none", "int8", "int8_float32", "int8_float16", "int16", "float16"]
"""How weights are stored: unchanged (none), or in fewer bits; after an underscore, the type of what stays a float."""

LEAST_POSITIONS = 1025
"""Positions that a table should have: the engine cuts a source after 1024 tokens, and the end comes after them."""


def require_ctranslate2() -> Any:
    """The optional library."""
    try:
        return importlib.import_module("ctranslate2")
    except ImportError as error:
        raise UsageError(
            f"CTranslate2 is not installed ({error}); install it with: pip install 'seqloom[ct2]'"
        ) from error


def require_transformer(model: nn.Module) -> Transformer:
    """The model, if CTranslate2 supports it."""
    if not isinstance(model, Transformer):
        raise ModelError(
            f"CTranslate2 runs Transformers only, and this is a {type(model).__name__}; train one with "
            "model.kind=transformer, or translate with Seqloom itself"
        )
    require_plain_frame(model, "CTranslate2")
    return model


def has_position_table(model: Transformer) -> bool:
    """Whether there is a row for each position, and so a last one; relative positions have none."""
    return model.encoder.bias is None and model.encoder.layers[0].self.relative is None


def write_ctranslate2(
    folder: Path,
    model: nn.Module,
    *,
    pieces: tuple[Sequence[str], Sequence[str]],
    quantization: Quantization,
    positions: int,
) -> None:
    """Write model.bin, config.json and the vocabularies into an existing folder.

    `pieces` are those of the source and of the target in the order of their ids. No sentence on either side may have
    more than `positions` tokens, including the end, except where positions are relative.
    """
    transformer = require_transformer(model)
    spec = transformer_spec(transformer, positions=positions)
    spec.register_source_vocabulary(unique_tokens(pieces[0]))
    spec.register_target_vocabulary(unique_tokens(pieces[1]))
    (begin,) = transformer.framing.begin
    spec.config.unk_token = RESERVED[UNKNOWN]
    spec.config.bos_token = RESERVED[BEGIN]
    spec.config.decoder_start_token = unique_tokens(pieces[1])[begin]
    spec.config.eos_token = RESERVED[END]
    spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = transformer.encoder.layers[0].around_self.norm.eps
    spec.validate()
    spec.optimize(quantization=None if quantization == "none" else quantization)
    spec.save(str(folder))


def unique_tokens(pieces: Sequence[str]) -> list[str]:
    """The pieces as strings that name one id each, as the engine needs them.

    A word that is written like a reserved symbol has an id of its own here; it is recognised by that id.
    """
    seen: set[str] = set()
    tokens: list[str] = []
    for number, piece in enumerate(pieces):
        token = piece
        while token in seen:
            token = f"{token}\N{SYMBOL FOR UNIT SEPARATOR}{number}"
        seen.add(token)
        tokens.append(token)
    return tokens


def transformer_spec(model: Transformer, *, positions: int) -> Any:
    """CTranslate2's specification, filled with the weights of the model."""
    specs = require_ctranslate2().specs
    encoder = specs.TransformerEncoderSpec(**_shape_of(model.encoder, specs))
    decoder = specs.TransformerDecoderSpec(
        **_shape_of(model.decoder, specs), alignment_heads=model.decoder.layers[0].cross.heads
    )
    _fill_stack(encoder, model.encoder, embeddings=encoder.embeddings[0], positions=positions)
    _fill_stack(decoder, model.decoder, embeddings=decoder.embeddings, positions=positions)
    for theirs, layer in zip(decoder.layer, model.decoder.layers, strict=True):
        _fill_norm(theirs.attention.layer_norm, layer.around_cross.norm)
        _fill_linear(theirs.attention.linear[0], layer.cross.query)
        _fill_linear(theirs.attention.linear[1], layer.cross.memory)
        _fill_output(theirs.attention.linear[2], layer.cross.output, width=layer.cross.query.in_features)
    decoder.projection.weight = _array(model.output.weight)
    if (offsets := model.output.offsets) is not None:
        decoder.projection.bias = _array(offsets)
    return specs.TransformerSpec(encoder, decoder)


# --- the parts -------------------------------------------------------------------------------------------------------

AnyStack = TransformerStack[EncoderLayer] | TransformerStack[DecoderLayer]


def _shape_of(stack: AnyStack, specs: Any) -> dict[str, Any]:
    """The arguments that both of their stacks take."""
    first = stack.layers[0]
    kinds = {
        "relu": specs.Activation.RELU,
        "gelu": specs.Activation.GELU,
        "gelu_tanh": specs.Activation.GELUTanh,
        "silu": specs.Activation.SWISH,
    }
    return {
        "num_layers": len(stack.layers),
        "num_heads": first.self.heads,
        # Required for a stack to have a final norm; where norms are is set afterwards.
        "pre_norm": True,
        "no_final_norm": isinstance(stack.norm, nn.Identity),
        "activation": kinds[first.feed_forward.activation],
        "layernorm_embedding": stack.embedding_norm is not None,
        "relative_position": first.self.relative is not None,
        "relative_attention_bias": stack.bias is not None,
    }


def _fill_stack(theirs: Any, stack: AnyStack, *, embeddings: Any, positions: int) -> None:
    """Embeddings, positions, self-attention and feed-forward, which both stacks have."""
    theirs.pre_norm = stack.layers[0].around_self.place == "before"
    theirs.scale_embeddings = np.float32(stack.scale)
    weight, table = _embedded(stack.embedding, stack.positions, positions=positions)
    embeddings.weight = _array(weight)
    if hasattr(theirs, "position_encodings"):
        theirs.position_encodings.encodings = _array(table)
    if stack.embedding_norm is not None:
        _fill_norm(theirs.layernorm_embedding, stack.embedding_norm)
    if not isinstance(stack.norm, nn.Identity):
        _fill_norm(theirs.layer_norm, stack.norm)
    layers: list[EncoderLayer | DecoderLayer] = [*stack.layers]
    for filled, layer in zip(theirs.layer, layers, strict=True):
        own = filled.self_attention
        _fill_norm(own.layer_norm, layer.around_self.norm)
        _fill_linear(own.linear[0], layer.self.qkv)
        _fill_output(own.linear[1], layer.self.output, width=layer.self.qkv.in_features)
        if layer.self.relative is not None:
            own.relative_position_keys = _array(layer.self.relative.weight)
            own.relative_position_values = np.zeros_like(own.relative_position_keys)  # here only keys have distances
        if stack.bias is not None:  # one table for all layers of a stack, as here
            own.relative_attention_bias = _array(stack.bias.weight.T)
            own.relative_attention_max_distance = np.int32(stack.bias.farthest)
        _fill_norm(filled.ffn.layer_norm, layer.around_feed_forward.norm)
        _fill_linear(filled.ffn.linear_0, layer.feed_forward.inner)
        _fill_linear(filled.ffn.linear_1, layer.feed_forward.outer)


def _embedded(embedding: Embedding, place: object, *, positions: int) -> tuple[Tensor, Tensor]:
    """The table of embeddings and that of positions, which the engine adds up."""
    weight = embedding.weight.detach()
    width = weight.shape[1]
    if isinstance(place, LearnedPositions):
        learned = place.weight.detach()
        # Positions past the table share its last row.
        rows = torch.arange(place.first, place.first + min(positions, place.bound or positions), device=learned.device)
        return weight, learned[rows.clamp(max=len(learned) - 1)]
    if isinstance(place, NoPositions):
        return weight, torch.zeros(positions, width)
    assert isinstance(place, SinusoidalPositions)
    code = place.code(positions, width)
    if place.joined is None:
        return weight, code
    joined = place.joined.weight.detach().double()
    return weight.double() @ joined[:, :width].T, code.to(joined) @ joined[:, width:].T


def _fill_output(theirs: Any, output: nn.Module, *, width: int) -> None:
    if isinstance(output, nn.Linear):
        _fill_linear(theirs, output)
    else:
        theirs.weight, theirs.bias = np.eye(width, dtype=np.float32), np.zeros(width, dtype=np.float32)


def _fill_linear(theirs: Any, linear: nn.Linear) -> None:
    theirs.weight, theirs.bias = _array(linear.weight), _array(linear.bias)


def _fill_norm(theirs: Any, norm: nn.Module) -> None:
    assert isinstance(norm, nn.LayerNorm)
    theirs.gamma, theirs.beta = _array(norm.weight), _array(norm.bias)


def _array(tensor: Tensor) -> np.ndarray:
    """A copy: quantisation works in place, and must not change the model."""
    return np.array(tensor.detach().cpu().float().numpy(), order="C", copy=True)
