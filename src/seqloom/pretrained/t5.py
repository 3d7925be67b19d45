"""T5 and mT5 as published: versions 1.0 and 1.1, hence flan-T5 and MADLAD-400 too.

Three things are not what config.json says. Whether the output has a table of its own is seen in the weights. Whether it
is scaled by 1/√width was derived from `tie_word_embeddings` before it had a name, and mT5 never scales. The relative
positions of a stack are stored in its first layer.
"""

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Literal

import torch

from seqloom.core.errors import ModelError
from seqloom.models.t5 import T5Config
from seqloom.nn.blocks import Activation
from seqloom.pretrained.families import (
    MAX_LAYERS,
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

ModelType = Literal["t5", "mt5"]

ACTIVATIONS: Mapping[str, Activation] = {"relu": "relu", "gelu": "gelu", "gelu_new": "gelu_tanh", "silu": "silu"}
FEED_FORWARD: Mapping[str, tuple[Activation, bool]] = {
    **{name: (ours, False) for name, ours in ACTIVATIONS.items()},
    **{f"gated-{name}": (ours, True) for name, ours in ACTIVATIONS.items()},
    "gated-gelu": ("gelu_tanh", True),  # by this name its authors mean the one with tanh
}
"""Activation, and whether it is a gate."""

TABLES = ("shared.weight", "decoder.embed_tokens.weight", "encoder.embed_tokens.weight")
"""Names of the table of both inputs: a file has one of them, or several equal ones."""
OUTPUT = "lm_head.weight"

IGNORED = (r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",)
"""Early files have relative positions for the attention to the encoder, which is computed without them."""

_TRANSLATION = re.compile(r"translation_([a-z]{2,3})_to_([a-z]{2,3})")
MAX_INSTRUCTION = 200
"""Characters of an instruction."""


def _read(config: Mapping[str, Any], weights: StoredTensors, *, model_type: ModelType) -> Conversion:
    symbols = whole_number(config, "vocab_size", most=MAX_SYMBOLS)
    layers = whole_number(config, "num_layers", most=MAX_LAYERS)
    decoder_layers = layers
    if config.get("num_decoder_layers") is not None:
        decoder_layers = whole_number(config, "num_decoder_layers", most=MAX_LAYERS)
    table, copies = _input_table(weights)
    is_tied = OUTPUT not in weights.names or _are_equal(weights, table, OUTPUT)
    default = "relu" if model_type == "t5" else "gated-gelu"
    activation, is_gated = choice(config, "feed_forward_proj", FEED_FORWARD, default=default)
    model = T5Config(
        width=whole_number(config, "d_model", most=MAX_WIDTH, least=2),
        heads=whole_number(config, "num_heads", most=10_000),
        head_size=whole_number(config, "d_kv", most=MAX_WIDTH),
        encoder_layers=layers,
        decoder_layers=decoder_layers,
        feed_forward=whole_number(config, "d_ff", most=MAX_WIDTH * 8),
        activation=activation,
        gated=is_gated,
        dropout_rate=real_number(config, "dropout_rate", least=0.0, most=0.99, default=0.1),
        buckets=whole_number(config, "relative_attention_num_buckets", least=4, most=100_000, default=32),
        farthest=whole_number(config, "relative_attention_max_distance", least=2, most=10_000_000, default=128),
        norm_epsilon=real_number(config, "layer_norm_epsilon", least=1e-12, most=1.0, default=1e-6),
        tying="all" if is_tied else "inputs",
        scaled_output=model_type == "t5" and _is_scaled(config),
    )
    return Conversion(
        model=model,
        tensors=tuple(_maps(model, table)),
        roles=(roles := _roles(config, symbols)),
        symbols=symbols,
        begins_with=(_first_symbol(config, roles, symbols),),
        ignored=(*IGNORED, *(re.escape(name) for name in copies), *([re.escape(OUTPUT)] if is_tied else [])),
        instructions=_instructions(config),
    )


def _input_table(weights: StoredTensors) -> tuple[str, list[str]]:
    """The name of the table of both inputs, and those of its copies."""
    first, *others = [name for name in TABLES if name in weights.names] or [TABLES[0]]
    for name in others:
        if not _are_equal(weights, first, name):
            raise ModelError(f"{name} differs from {first}; a T5 with two tables of inputs is not supported")
    return first, others


def _are_equal(weights: StoredTensors, name: str, other: str) -> bool:
    is_like = weights.shape(name) == weights.shape(other) and weights.dtype(name) == weights.dtype(other)
    return is_like and torch.equal(weights.tensor(name), weights.tensor(other))


def _is_scaled(config: Mapping[str, Any]) -> bool:
    """Whether the output is scaled: by its own setting, or as long as it had none, if its table is called tied."""
    if config.get("scale_decoder_outputs") is not None:
        return flag(config, "scale_decoder_outputs", default=True)
    return flag(config, "tie_word_embeddings", default=True)


def _roles(config: Mapping[str, Any], symbols: int) -> Roles:
    pad = symbol(config, "pad_token_id", symbols=symbols, default=0)
    end = symbol(config, "eos_token_id", symbols=symbols, default=1)
    if end is None:
        raise ModelError("config.json has no eos_token_id, the symbol that ends a text")
    # Their SentencePiece models keep the first three ids for padding, end and unknown pieces, in one order or another.
    unknown = next((number for number in range(min(3, symbols)) if number not in (pad, end)), None)
    return Roles(pad=pad, begin=None, end=end, unknown=unknown)


def _first_symbol(config: Mapping[str, Any], roles: Roles, symbols: int) -> int:
    """What the decoder reads first."""
    first = symbol(config, "decoder_start_token_id", symbols=symbols, default=roles.pad)
    if first is None:
        raise ModelError("config.json has neither decoder_start_token_id nor pad_token_id, with which outputs begin")
    return first


def _instructions(config: Mapping[str, Any]) -> dict[str, str]:
    """What texts begin with that are to be translated, by languages such as en-de."""
    tasks = config.get("task_specific_params")
    found = {}
    for name, settings in tasks.items() if isinstance(tasks, dict) else ():
        languages = _TRANSLATION.fullmatch(name)
        text = settings.get("prefix") if isinstance(settings, dict) else None
        if languages and isinstance(text, str) and 0 < len(text) <= MAX_INSTRUCTION:
            found["-".join(languages.groups())] = text
    return found


def _maps(model: T5Config, table: str) -> Iterator[TensorMap]:
    yield TensorMap("encoder.embedding.weight", (table,), rows="target")
    if model.tying == "inputs":
        yield TensorMap("output.weight", (OUTPUT,), rows="target")
    for stack, layers in (("encoder", model.encoder_layers), ("decoder", model.decoder_layers)):
        positions = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        yield TensorMap(f"{stack}.bias.weight", (positions,), is_transposed=True)
        yield TensorMap(f"{stack}.norm.weight", (f"{stack}.final_layer_norm.weight",))
        for number in range(layers):
            yield from _layer(f"{stack}.layers.{number}", f"{stack}.block.{number}.layer", model, stack)


def _layer(ours: str, theirs: str, model: T5Config, stack: str) -> Iterator[TensorMap]:
    """Their sublayers are numbered in their order."""
    own = f"{theirs}.0.SelfAttention"
    yield TensorMap(f"{ours}.self.qkv.weight", tuple(f"{own}.{part}.weight" for part in "qkv"))
    yield TensorMap(f"{ours}.self.output.weight", (f"{own}.o.weight",))
    yield TensorMap(f"{ours}.around_self.norm.weight", (f"{theirs}.0.layer_norm.weight",))
    last = 1
    if stack == "decoder":
        cross, last = f"{theirs}.1.EncDecAttention", 2
        yield TensorMap(f"{ours}.cross.query.weight", (f"{cross}.q.weight",))
        yield TensorMap(f"{ours}.cross.memory.weight", tuple(f"{cross}.{part}.weight" for part in "kv"))
        yield TensorMap(f"{ours}.cross.output.weight", (f"{cross}.o.weight",))
        yield TensorMap(f"{ours}.around_cross.norm.weight", (f"{theirs}.1.layer_norm.weight",))
    products = {"gate": "wi_0", "inner": "wi_1", "outer": "wo"} if model.gated else {"inner": "wi", "outer": "wo"}
    for name, other in products.items():
        yield TensorMap(f"{ours}.feed_forward.{name}.weight", (f"{theirs}.{last}.DenseReluDense.{other}.weight",))
    yield TensorMap(f"{ours}.around_feed_forward.norm.weight", (f"{theirs}.{last}.layer_norm.weight",))


FAMILIES = (
    Family("t5", ("T5ForConditionalGeneration", "T5WithLMHeadModel"), partial(_read, model_type="t5")),
    Family("mt5", ("MT5ForConditionalGeneration",), partial(_read, model_type="mt5")),
)
