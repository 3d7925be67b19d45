"""The Transformer as a folder that transformers opens with AutoModelForSeq2SeqLM and AutoTokenizer.

    seqloom               transformers
    norm before, after    PegasusForConditionalGeneration (pre-norm, a final norm), MarianMTModel (post-norm)
    sinusoids             sines and cosines alternate here and are halves there: the width axis is permuted everywhere
    no W_O                W_O = 1, b = 0
    PAD, BEGIN, END       pad_token_id 0, decoder_start_token_id 1, eos_token_id 2: all symbols keep their ids

Nothing in a Transformer depends on the order of its width axis but the position codes, so the permuted model computes
the same. What has no counterpart is refused.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from safetensors.torch import save_file
from torch import Tensor, nn

from seqloom.core.errors import ModelError
from seqloom.core.files import write_atomically
from seqloom.core.stepping import Source
from seqloom.core.symbols import BEGIN, END, PAD
from seqloom.interop.huggingface_tokenizer import write_tokenizer
from seqloom.models.transformer import DecoderLayer, Transformer, TransformerConfig, TransformerStack
from seqloom.nn.blocks import sinusoids
from seqloom.nn.encoders import EncoderLayer
from seqloom.runs.loading import LoadedModel
from seqloom.search.settings import SearchConfig

MIN_POSITIONS = 1024
"""Positions that a published Marian or Pegasus has at least."""

TARGET_TOKENIZER = "target_tokenizer"
"""The folder of the tokeniser that decodes, where source and target have a vocabulary each."""

ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh", "silu": "silu"}

_FREE = frozenset({"kind", "width", "heads", "encoder_layers", "decoder_layers", "feed_forward", "activation"})
_UNUSED = frozenset({"dropout_rate", "inner_dropout_rate", "longest", "farthest", "output_projection", "final_norm"})
_CHECKED = frozenset({"norm", "positions", "tying"})


def require_exportable(loaded: LoadedModel) -> TransformerConfig:
    """The settings of the model, if Marian or Pegasus computes the same."""
    settings = loaded.config.model
    if not isinstance(settings, TransformerConfig):
        other = "use --to onnx, or " if settings.kind == "seq2seq" else ""
        raise ModelError(
            f"--to huggingface exports Transformers and imported models, and this is a model of kind {settings.kind}; "
            f"{other}train one with model.kind=transformer"
        )
    if settings.attention_window is not None:  # which the other exports refuse as well
        raise ModelError(
            f"transformers has no model with model.attention_window={settings.attention_window}; train without it"
        )
    if settings.positions != "sinusoidal":
        raise _without_counterpart(f"model.positions={settings.positions}", "model.positions=sinusoidal")
    has_final_norm = settings.norm == "before" if settings.final_norm is None else settings.final_norm
    if has_final_norm != (settings.norm == "before"):
        is_final = str(has_final_norm).lower()
        raise _without_counterpart(
            f"model.final_norm={is_final} with model.norm={settings.norm}", "leave out model.final_norm"
        )
    if settings.norm == "before" and settings.tying != "all":
        raise _without_counterpart(f"model.tying={settings.tying} with model.norm=before", "model.tying=all")
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        if name not in _FREE | _UNUSED | _CHECKED and value != field.get_default(call_default_factory=True):
            raise _without_counterpart(f"model.{name}={value}", f"leave out model.{name}")
    return settings


def _without_counterpart(what: str, remedy: str) -> ModelError:
    return ModelError(
        f"transformers has no model with {what}; use --to ctranslate2 or --to onnx, or train with {remedy}"
    )


def write_huggingface(folder: Path, loaded: LoadedModel, *, positions: int) -> list[str]:
    """Write config.json, generation_config.json, model.safetensors and the tokeniser into an existing folder.

    No text on either side may have more than `positions` symbols, end included. Returned are differences in behaviour.
    """
    settings, model = require_exportable(loaded), loaded.model
    assert isinstance(model, Transformer)
    positions = max(MIN_POSITIONS, positions)
    source, target = loaded.tokenizers.source, loaded.tokenizers.target
    config = config_of(settings, symbols=(source.size, target.size), positions=positions)
    found = loaded.search_settings()
    most = torch.tensor([loaded.config.data.longest])
    (limit,) = found.limits(Source(most.new_empty(1, 0), most))
    search, notes = generation_of(found, longest=min(positions, limit))
    write_json(folder / "config.json", config)
    write_json(folder / "generation_config.json", search)
    write_tensors(folder / "model.safetensors", dict(tensors_of(model, settings, positions=positions)))
    write_tokenizer(folder, source, positions=positions)
    if not loaded.tokenizers.is_shared:
        (folder / TARGET_TOKENIZER).mkdir()
        write_tokenizer(folder / TARGET_TOKENIZER, target, positions=positions)
        notes.append(f"source and target have a vocabulary each: decode with the tokeniser in {TARGET_TOKENIZER}")
    return notes


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    write_atomically(path, json.dumps(values, indent=2, ensure_ascii=False) + "\n")


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a file that transformers takes for one of torch."""
    # Of a copy each: parts of one tensor share memory, which the format does not allow.
    save_file(
        {name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()},
        path,
        metadata={"format": "pt"},
    )


# --- settings ---------------------------------------------------------------------------------------------------------


def config_of(settings: TransformerConfig, *, symbols: tuple[int, int], positions: int) -> dict[str, Any]:
    """config.json"""
    is_marian = settings.norm == "after"
    architecture = "MarianMTModel" if is_marian else "PegasusForConditionalGeneration"
    stacks = {
        f"{side}_{name}": value
        for side, layers in (("encoder", settings.encoder_layers), ("decoder", settings.decoder_layers))
        for name, value in (
            ("layers", layers),
            ("attention_heads", settings.heads),
            ("ffn_dim", settings.feed_forward),
            ("layerdrop", 0.0),
        )
    }
    marian = {
        "decoder_vocab_size": symbols[1],
        "share_encoder_decoder_embeddings": settings.tying in ("all", "inputs"),
    }
    return {
        "architectures": [architecture],
        "model_type": "marian" if is_marian else "pegasus",
        "d_model": settings.width,
        **stacks,
        "activation_function": ACTIVATIONS[settings.activation],
        "dropout": settings.dropout_rate,
        "activation_dropout": settings.inner_dropout_rate,
        "attention_dropout": 0.0,
        "vocab_size": symbols[0],
        **(marian if is_marian else {}),
        "tie_word_embeddings": settings.tying in ("all", "output"),
        "scale_embedding": True,
        "static_position_embeddings": True,
        "max_position_embeddings": positions,
        "is_encoder_decoder": True,
        "pad_token_id": PAD,
        "bos_token_id": BEGIN,
        "eos_token_id": END,
        "decoder_start_token_id": BEGIN,
        "forced_eos_token_id": None,
        "torch_dtype": "float32",
    }


def generation_of(search: SearchConfig, *, longest: int) -> tuple[dict[str, Any], list[str]]:
    """generation_config.json, and what in our search has no counterpart.

    Their score is log P / |Y|^length_penalty, which counts the end as ours does; `longest` bounds all outputs.
    """
    notes: list[str] = []
    if search.mode == "huggingface":
        penalty = 1.0 if search.peer_length_penalty is None else search.peer_length_penalty
    elif search.mode == "seqloom" and search.length_normalisation != "gnmt":
        penalty = {"none": 0.0, "mean": 1.0, "power": search.alpha}[search.length_normalisation]
    else:
        penalty = 1.0
        rule = f"mode={search.mode}" if search.mode != "seqloom" else "length_normalisation=gnmt"
        notes.append(
            f"transformers has no counterpart of search.{rule}: it searches with length_penalty 1; the same outputs "
            "here with search.mode=huggingface"
        )
    foreign = [name for name in ("coverage", "end_normalisation", "reward") if getattr(search, name)]
    notes += [f"transformers has no counterpart of search.{name}, which is left out" for name in foreign]
    values = {
        "decoder_start_token_id": BEGIN,
        "bos_token_id": BEGIN,
        "eos_token_id": END,
        "pad_token_id": PAD,
        "forced_eos_token_id": None,
        "num_beams": search.beam,
        "max_length": longest,
        **({"length_penalty": penalty, "early_stopping": False} if search.beam > 1 else {}),
        **({"no_repeat_ngram_size": search.no_repeat} if search.no_repeat else {}),
    }
    return values, notes


# --- weights ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WidthOrder:
    """The width axis in another order, wherever a tensor has it."""

    order: Int[Tensor, " width"]

    @staticmethod
    def halves(width: int) -> "WidthOrder":
        """From sine, cosine, sine, cosine, … to all sines, then all cosines."""
        return WidthOrder(torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)]))

    def columns(self, weight: Float[Tensor, "rows width"]) -> Float[Tensor, "rows width"]:
        """Of a table of vectors, or of a matrix that reads them."""
        return weight.detach()[:, self.order]

    def rows(self, weight: Float[Tensor, " width *columns"]) -> Float[Tensor, " width *columns"]:
        """Of a vector, or of a matrix that writes them."""
        return weight.detach()[self.order]


def tensors_of(model: Transformer, settings: TransformerConfig, *, positions: int) -> Iterator[tuple[str, Tensor]]:
    """Names and tensors of Marian or Pegasus."""
    width = WidthOrder.halves(settings.width)
    if settings.tying in ("all", "inputs"):
        yield "model.shared.weight", width.columns(model.encoder.embedding.weight)
    if settings.tying != "all":  # the switch that unties the output unties all of them
        yield "model.encoder.embed_tokens.weight", width.columns(model.encoder.embedding.weight)
        yield "model.decoder.embed_tokens.weight", width.columns(model.decoder.embedding.weight)
    if settings.tying in ("inputs", "none"):
        yield "lm_head.weight", width.columns(model.output.weight)
    yield "final_logits_bias", torch.zeros(1, len(model.output.weight))
    if settings.norm == "before":  # Pegasus expects its position codes in the file
        for side in ("encoder", "decoder"):
            yield f"model.{side}.embed_positions.weight", width.columns(sinusoids(positions, settings.width))
    yield from _stack("model.encoder", model.encoder, width)
    yield from _stack("model.decoder", model.decoder, width)


def _stack(
    name: str, stack: TransformerStack[EncoderLayer] | TransformerStack[DecoderLayer], width: WidthOrder
) -> Iterator[tuple[str, Tensor]]:
    layers: list[EncoderLayer | DecoderLayer] = [*stack.layers]
    for number, layer in enumerate(layers):
        place = f"{name}.layers.{number}"
        yield from _reading(f"{place}.self_attn", ("q_proj", "k_proj", "v_proj"), layer.self.qkv, width)
        yield from _writing(f"{place}.self_attn.out_proj", layer.self.output, width)
        yield from _norm(f"{place}.self_attn_layer_norm", layer.around_self.norm, width)
        if isinstance(layer, DecoderLayer):
            yield from _reading(f"{place}.encoder_attn", ("q_proj",), layer.cross.query, width)
            yield from _reading(f"{place}.encoder_attn", ("k_proj", "v_proj"), layer.cross.memory, width)
            yield from _writing(f"{place}.encoder_attn.out_proj", layer.cross.output, width)
            yield from _norm(f"{place}.encoder_attn_layer_norm", layer.around_cross.norm, width)
        yield from _reading(place, ("fc1",), layer.feed_forward.inner, width)
        yield from _writing(f"{place}.fc2", layer.feed_forward.outer, width)
        yield from _norm(f"{place}.final_layer_norm", layer.around_feed_forward.norm, width)
    if not isinstance(stack.norm, nn.Identity):
        yield from _norm(f"{name}.layer_norm", stack.norm, width)


def _reading(name: str, parts: Sequence[str], linear: nn.Linear, width: WidthOrder) -> Iterator[tuple[str, Tensor]]:
    """A matrix that reads vectors of the model; here it may be several of theirs."""
    weights, biases = width.columns(linear.weight).chunk(len(parts)), linear.bias.detach().chunk(len(parts))
    for part, weight, bias in zip(parts, weights, biases, strict=True):
        yield f"{name}.{part}.weight", weight
        yield f"{name}.{part}.bias", bias


def _writing(name: str, linear: nn.Module, width: WidthOrder) -> Iterator[tuple[str, Tensor]]:
    """A matrix that writes them; one that is missing here is the identity."""
    weight, bias = torch.eye(len(width.order)), torch.zeros(len(width.order))
    if isinstance(linear, nn.Linear):
        weight, bias = linear.weight, linear.bias
    yield f"{name}.weight", width.rows(weight)
    yield f"{name}.bias", width.rows(bias)


def _norm(name: str, norm: nn.Module, width: WidthOrder) -> Iterator[tuple[str, Tensor]]:
    assert isinstance(norm, nn.LayerNorm)
    yield f"{name}.weight", width.rows(norm.weight)
    yield f"{name}.bias", width.rows(norm.bias)
