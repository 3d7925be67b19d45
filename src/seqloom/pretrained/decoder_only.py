"""Published decoder-only language models: GPT-2, and Llama with its kin (Mistral, Qwen 2, Qwen 3, HunYuan dense).

They are one `models.gpt.Gpt` with different settings. Two ways of storing it are published: GPT-2 keeps queries, keys
and values in one matrix and all matrices as [inputs, outputs]; Llama keeps each by itself as [outputs, inputs].
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch

from seqloom.core.errors import ConfigError, ModelError
from seqloom.models.gpt import GptConfig, RotaryConfig
from seqloom.nn.blocks import Activation
from seqloom.nn.multihead import HeadNorm
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
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu": "gelu",
    "silu": "silu",
    "swish": "silu",
    "relu": "relu",
}
"""Our names of the activations of config.json."""

HEAD = "lm_head.weight"
EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")


# --- GPT-2 ------------------------------------------------------------------------------------------------------------


def _read_gpt2(config: Mapping[str, Any], stored: StoredTensors) -> Conversion:
    if not flag(config, "scale_attn_weights", default=True):
        raise ModelError("config.json has scale_attn_weights=false, which is not supported")
    for name in ("scale_attn_by_inverse_layer_idx", "add_cross_attention"):
        if flag(config, name, default=False):
            raise ModelError(f"config.json has {name}=true, which is not supported")
    _refuse_experts(config)
    width = whole_number(config, "n_embd", most=MAX_WIDTH, least=2, default=768)
    symbols = whole_number(config, "vocab_size", most=MAX_SYMBOLS, default=50257)
    inner = None
    if config.get("n_inner") is not None:
        inner = whole_number(config, "n_inner", most=1_000_000)
    roles, begin = _roles(config, symbols, end=50256 if symbols > 50256 else None)
    table = "transformer.wte.weight"
    is_tied = _is_tied(stored, table, is_tied_by_default=flag(config, "tie_word_embeddings", default=True))
    positions = whole_number(config, "n_positions", most=MAX_POSITIONS, default=1024)
    with _settings_that_fit():
        model = GptConfig(
            width=width,
            heads=whole_number(config, "n_head", most=MAX_WIDTH, default=12),
            layers=whole_number(config, "n_layer", most=MAX_LAYERS, default=12),
            feed_forward=inner,
            activation=choice(config, "activation_function", ACTIVATIONS, default="gelu_new"),
            norm_epsilon=real_number(config, "layer_norm_epsilon", least=1e-12, most=1.0, default=1e-5),
            longest=positions,
            dropout_rate=real_number(config, "resid_pdrop", least=0.0, most=0.99, default=0.1),
            tying="output" if is_tied else "none",
            context="line",
        )
    return Conversion(
        model=model,
        tensors=gpt2_tensors(model),
        roles=roles,
        symbols=symbols,
        begins_with=(begin,),
        max_positions=positions,
        ignored=(r"transformer\.h\.\d+\.attn\.(masked_)?bias", *((r"lm_head\.weight",) if is_tied else ())),
    )


def gpt2_tensors(model: GptConfig) -> tuple[TensorMap, ...]:
    """Where GPT-2 keeps the tensors of a model."""
    maps = [
        TensorMap("embedding.weight", ("transformer.wte.weight",), rows="target"),
        TensorMap("positions.weight", ("transformer.wpe.weight",)),
    ]
    places = {
        "around_self.norm": "ln_1",
        "self.qkv": "attn.c_attn",
        "self.output": "attn.c_proj",
        "around_feed_forward.norm": "ln_2",
        "feed_forward.inner": "mlp.c_fc",
        "feed_forward.outer": "mlp.c_proj",
    }
    for number in range(model.layers):
        for ours, theirs in places.items():
            own, other = f"layers.{number}.{ours}", f"transformer.h.{number}.{theirs}"
            maps.append(TensorMap(f"{own}.weight", (f"{other}.weight",), is_transposed=not theirs.startswith("ln")))
            maps.append(TensorMap(f"{own}.bias", (f"{other}.bias",)))
    maps += [TensorMap(f"norm.{each}", (f"transformer.ln_f.{each}",)) for each in ("weight", "bias")]
    if model.tying == "none":
        maps.append(TensorMap("output.weight", (HEAD,), rows="target"))
    return tuple(maps)


def _rename_gpt2(name: str) -> str:
    return name if name.startswith(("transformer.", "lm_head.")) else f"transformer.{name}"


# --- Llama and its kin ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Variant:
    """How one of the kin differs from Llama."""

    attention_bias: bool | Literal["config"] = "config"
    """Of queries, keys and values, whatever config.json says, unless it decides."""
    output_bias: bool | Literal["config"] = "config"
    mlp_bias: bool | Literal["config"] = False
    head_norm: HeadNorm | None = None
    norms: tuple[str, str] = ("", "")
    """The names of the norms of queries and of keys."""
    head_size: int | None = None
    """Unless config.json names it; width / heads by default."""
    window: Literal["none", "all", "upper"] = "none"
    """Which layers have a sliding window: none, all, or those above, where config.json says so."""
    epsilon: float = 1e-6
    end: int | None = 2
    begin: int | None = 1


LLAMA = Variant(mlp_bias="config")
MISTRAL = Variant(attention_bias=False, output_bias=False, window="all")
QWEN2 = Variant(attention_bias=True, output_bias=False, window="upper", end=None, begin=None)
QWEN3 = Variant(head_norm="before", norms=("q_norm", "k_norm"), head_size=128, window="upper", end=None, begin=None)
HUNYUAN = Variant(head_norm="after", norms=("query_layernorm", "key_layernorm"), epsilon=1e-5)


def _read_llama(config: Mapping[str, Any], stored: StoredTensors, *, variant: Variant) -> Conversion:
    _refuse_experts(config)
    width = whole_number(config, "hidden_size", most=MAX_WIDTH, least=2)
    heads = whole_number(config, "num_attention_heads", most=MAX_WIDTH)
    symbols = whole_number(config, "vocab_size", most=MAX_SYMBOLS)
    positions = whole_number(config, "max_position_embeddings", most=MAX_POSITIONS, default=2048)
    key_heads = heads
    if config.get("num_key_value_heads") is not None:
        key_heads = whole_number(config, "num_key_value_heads", most=heads)
    size = variant.head_size
    if config.get("head_dim") is not None:
        size = whole_number(config, "head_dim", most=MAX_WIDTH, least=4)
    biases = {
        name: flag(config, option, default=False) if value == "config" else value
        for name, option, value in (
            ("attention_bias", "attention_bias", variant.attention_bias),
            ("output_bias", "attention_bias", variant.output_bias),
            ("feed_forward_bias", "mlp_bias", variant.mlp_bias),
        )
    }
    roles, begin = _roles(config, symbols, end=variant.end, begin=variant.begin)
    table = "model.embed_tokens.weight"
    is_tied = _is_tied(stored, table, is_tied_by_default=flag(config, "tie_word_embeddings", default=True))
    with _settings_that_fit():
        model = GptConfig(
            width=width,
            heads=heads,
            key_heads=key_heads,
            head_size=size,
            layers=whole_number(config, "num_hidden_layers", most=MAX_LAYERS),
            feed_forward=whole_number(config, "intermediate_size", most=1_000_000),
            activation=choice(config, "hidden_act", ACTIVATIONS, default="silu"),
            gated=True,
            norm_kind="rms",
            norm_epsilon=real_number(config, "rms_norm_eps", least=1e-12, most=1.0, default=variant.epsilon),
            head_norm=variant.head_norm,
            positions="rotary",
            rotary=_rotary(config, positions),
            longest=positions,
            attention_window=_window(config, variant),
            dropout_rate=0.0,
            tying="output" if is_tied else "none",
            context="line",
            attention_bias=biases["attention_bias"],
            output_bias=biases["output_bias"],
            feed_forward_bias=biases["feed_forward_bias"],
        )
    return Conversion(
        model=model,
        tensors=llama_tensors(model, norms=variant.norms),
        roles=roles,
        symbols=symbols,
        begins_with=(begin,),
        max_positions=positions,
        ignored=(
            r"model\.(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq",
            *((r"lm_head\.weight",) if is_tied else ()),
        ),
    )


def llama_tensors(model: GptConfig, *, norms: tuple[str, str] = ("", "")) -> tuple[TensorMap, ...]:
    """Where Llama and its kin keep the tensors of a model; `norms` are the names of those of queries and of keys."""
    maps = [TensorMap("embedding.weight", ("model.embed_tokens.weight",), rows="target")]
    for number in range(model.layers):
        ours, theirs = f"layers.{number}", f"model.layers.{number}"
        places: list[tuple[str, tuple[str, ...], bool]] = [
            ("self.qkv", ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), model.attention_bias),
            ("self.output", ("self_attn.o_proj",), model.output_bias),
            ("feed_forward.gate", ("mlp.gate_proj",), model.feed_forward_bias),
            ("feed_forward.inner", ("mlp.up_proj",), model.feed_forward_bias),
            ("feed_forward.outer", ("mlp.down_proj",), model.feed_forward_bias),
            ("around_self.norm", ("input_layernorm",), False),
            ("around_feed_forward.norm", ("post_attention_layernorm",), False),
        ]
        if model.head_norm is not None:
            places += [
                ("self.query_norm", (f"self_attn.{norms[0]}",), False),
                ("self.key_norm", (f"self_attn.{norms[1]}",), False),
            ]
        for own, others, has_bias in places:
            for kind in ("weight", "bias") if has_bias else ("weight",):
                parts = tuple(f"{theirs}.{other}.{kind}" for other in others)
                maps.append(TensorMap(f"{ours}.{own}.{kind}", parts))
    maps.append(TensorMap("norm.weight", ("model.norm.weight",)))
    if model.tying == "none":
        maps.append(TensorMap("output.weight", (HEAD,), rows="target"))
    return tuple(maps)


def _rename_llama(name: str) -> str:
    return name if name.startswith(("model.", "lm_head.")) else f"model.{name}"


def _window(config: Mapping[str, Any], variant: Variant) -> int | None:
    kinds = config.get("layer_types")
    if kinds is not None and (not isinstance(kinds, list) or any(kind != "full_attention" for kind in kinds)):
        raise ModelError("config.json has layer_types other than full_attention, which are not supported")
    if variant.window == "upper" and flag(config, "use_sliding_window", default=False):
        raise ModelError("config.json has use_sliding_window=true, which is not supported: only some layers have it")
    if variant.window != "all" or config.get("sliding_window", 4096) is None:
        return None
    return whole_number(config, "sliding_window", most=MAX_POSITIONS, default=4096)


ROTARY_SETTINGS = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("alpha", "factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    "yarn": (
        "factor",
        "attention_factor",
        "beta_fast",
        "beta_slow",
        "mscale",
        "mscale_all_dim",
        "original_max_position_embeddings",
        "truncate",
    ),
}
"""Kinds of rotary positions, and the settings of each that are known: another one would change the numbers."""


def _rotary(config: Mapping[str, Any], positions: int) -> RotaryConfig:
    """From `rope_parameters`, or from `rope_theta` and `rope_scaling`, as earlier versions wrote them."""
    given = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(given, dict) or any(isinstance(value, dict) for value in given.values()):
        raise ModelError("config.json has rope settings for each kind of layer, which are not supported")
    values = {"rope_theta": config.get("rope_theta", 10_000.0), **given}
    if values["rope_theta"] is None:
        values["rope_theta"] = 10_000.0
    kind = values.pop("rope_type", None) or values.get("type") or "default"
    values.pop("type", None)
    if not isinstance(kind, str) or kind not in ROTARY_SETTINGS:
        known = ", ".join(ROTARY_SETTINGS)
        raise ModelError(f"config.json has rope_type={str(kind)[:40]!r}, which is not supported; known: {known}")
    share = real_number(values | _optional(config, "partial_rotary_factor"), "partial_rotary_factor", default=1.0,
                        least=0.0, most=1.0)  # fmt: skip
    if share != 1.0:
        raise ModelError(f"config.json has partial_rotary_factor={share:g}, which is not supported")
    values = {name: value for name, value in values.items() if value is not None}
    unknown = set(values) - {"rope_theta", "partial_rotary_factor", "finetuned", *ROTARY_SETTINGS[kind]}
    if kind != "default" and unknown:
        raise ModelError(f"config.json has the rope setting {sorted(unknown)[0][:40]!r}, which is not supported")
    base = real_number(values, "rope_theta", least=1.001, most=1e12, default=10_000.0)
    factor = real_number(values, "factor", least=1.0, most=1e6, default=1.0)
    trained = whole_number(
        values | _optional(config, "original_max_position_embeddings"),
        "original_max_position_embeddings",
        most=MAX_POSITIONS,
        default=positions,
    )
    match kind:
        case "default":
            return RotaryConfig(base=base)
        case "linear":
            return RotaryConfig(kind="linear", base=base, factor=factor)
        case "dynamic":
            if "alpha" not in values:
                raise ModelError("config.json has rope_type='dynamic' without alpha, which is not supported")
            alpha = real_number(values, "alpha", least=1.0, most=1e6, default=1.0)
            return RotaryConfig(kind="ntk", base=base, factor=alpha)
        case "llama3":
            slow = real_number(values, "low_freq_factor", least=1e-3, most=1e6, default=1.0)
            fast = real_number(values, "high_freq_factor", least=1e-3, most=1e6, default=4.0)
            if fast <= slow:
                raise ModelError(f"config.json has high_freq_factor={fast:g}, not above low_freq_factor={slow:g}")
            return RotaryConfig(kind="llama3", base=base, factor=factor, slow=slow, fast=fast, trained=trained)
        case _:
            return _yarn(values, base=base, positions=positions, trained=trained)


def _yarn(values: Mapping[str, Any], *, base: float, positions: int, trained: int) -> RotaryConfig:
    factor = real_number(values, "factor", least=1.0, most=1e6, default=max(1.0, positions / trained))
    slow = real_number(values, "beta_slow", least=0.0, most=1e6, default=1.0) or 1.0
    fast = real_number(values, "beta_fast", least=0.0, most=1e6, default=32.0) or 32.0
    if fast <= slow:
        raise ModelError(f"config.json has beta_fast={fast:g}, which is not above beta_slow={slow:g}")

    def strength(weight: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    scales = [real_number(values, name, least=0.0, most=100.0, default=0.0) for name in ("mscale", "mscale_all_dim")]
    default = strength(scales[0]) / strength(scales[1]) if all(scales) else strength(1.0)
    return RotaryConfig(
        kind="yarn",
        base=base,
        factor=factor,
        slow=slow,
        fast=fast,
        trained=trained,
        is_rounded=flag(values, "truncate", default=True),
        strength=real_number(values, "attention_factor", least=1e-3, most=100.0, default=default),
    )


# --- what all of them share -------------------------------------------------------------------------------------------


def _roles(config: Mapping[str, Any], symbols: int, *, end: int | None, begin: int | None = None) -> tuple[Roles, int]:
    """The roles of symbols, and the one that is read before a text: the begin of a text if there is one, else its end.

    A symbol that ends texts and begins them has the first of these roles, and one that also pads neither.
    """
    given = config.get("eos_token_id", end)
    several = given if isinstance(given, list) else [given]
    if len(several) > 100:
        raise ModelError(f"config.json has {len(several)} values of eos_token_id; at most 100 are supported")
    ends = [symbol({"eos_token_id": each}, "eos_token_id", symbols=symbols) for each in several]
    known = list(dict.fromkeys(each for each in ends if each is not None))
    if not known:
        raise ModelError("config.json names no symbol at which texts end (eos_token_id)")
    first = symbol(config, "bos_token_id", symbols=symbols, default=begin)
    # The first Llama folders have -1 for "none".
    pad = None if config.get("pad_token_id") == -1 else symbol(config, "pad_token_id", symbols=symbols)
    own = first if first not in known else None
    return (
        Roles(
            pad=pad if pad not in (*known, first) else None,
            begin=own,
            end=known[0],
            unknown=None,
            extra_ends=tuple(known[1:]),
        ),
        known[0] if first is None else first,
    )


def _is_tied(stored: StoredTensors, table: str, *, is_tied_by_default: bool) -> bool:
    """Whether embeddings and output are one table: decided by the weights, because config.json is often wrong."""
    if HEAD not in stored.names:
        if not is_tied_by_default:
            raise ModelError("the weights lack lm_head.weight, although config.json has tie_word_embeddings=false")
        return True
    if table not in stored.names or stored.shape(HEAD) != stored.shape(table):
        return False
    return stored.dtype(HEAD) == stored.dtype(table) and torch.equal(stored.tensor(HEAD), stored.tensor(table))


def _refuse_experts(config: Mapping[str, Any]) -> None:
    for name in EXPERTS:
        value = config.get(name)
        if value is not None and value not in (0, 1):
            raise ModelError(f"config.json has {name}={str(value)[:20]}: mixtures of experts are not supported")


def _optional(config: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {name: config[name]} if config.get(name) is not None else {}


@contextmanager
def _settings_that_fit() -> Iterator[None]:
    """Inside, settings that do not fit each other are the fault of config.json."""
    try:
        yield
    except ConfigError as error:
        raise ModelError(f"config.json describes a model that cannot be built: {error}") from error


def _family(model_type: str, architecture: str, variant: Variant) -> Family:
    return Family(model_type, (architecture,), partial(_read_llama, variant=variant), _rename_llama)


FAMILIES = (
    Family("gpt2", ("GPT2LMHeadModel",), _read_gpt2, _rename_gpt2),
    _family("llama", "LlamaForCausalLM", LLAMA),
    _family("mistral", "MistralForCausalLM", MISTRAL),
    _family("qwen2", "Qwen2ForCausalLM", QWEN2),
    _family("qwen3", "Qwen3ForCausalLM", QWEN3),
    _family("hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", HUNYUAN),
)
