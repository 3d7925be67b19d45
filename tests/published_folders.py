"""Folders in the layout of the Hugging Face hub, made on the spot from phrasebook lines and random weights."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sentencepiece
import tokenizers
import torch
from safetensors.torch import save_file
from torch import Tensor

from seqloom.data.phrasebook import sample_pairs
from seqloom.nn.blocks import sinusoids

WIDTH, HEADS, INNER, LAYERS, POSITIONS = 32, 4, 64, 2, 128
"""Of the folder of OPUS-MT's shape."""

MAX_LENGTH = 24
"""Symbols of its outputs: random weights seldom end a text."""


def write_opus_folder(folder: Path, *, languages: tuple[str, ...] = (), **changes: Any) -> Path:
    """A folder as OPUS-MT publishes them: `pytorch_model.bin`, two sentencepiece models, one vocab.json.

    `languages` are symbols of a multilingual model, such as `>>deu<<`; `changes` are fields of config.json.
    """
    folder.mkdir(parents=True)
    pairs = sample_pairs("en", "de", count=300, seed=2, split="train")
    models = {
        "source": sentencepiece_model([pair.source for pair in pairs]),
        "target": sentencepiece_model([pair.target for pair in pairs]),
    }
    pieces = dict.fromkeys(["</s>", "<unk>", *languages])
    for side, model in models.items():
        (folder / f"{side}.spm").write_bytes(model)
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        pieces |= dict.fromkeys(
            processor.id_to_piece(number) for number in range(len(processor)) if not processor.is_control(number)
        )
    vocabulary = {piece: number for number, piece in enumerate([*pieces, "<pad>"])}
    symbols, pad = len(vocabulary), vocabulary["<pad>"]
    config = {
        "_name_or_path": "opus-mt-en-de",
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "activation_function": "swish",
        "d_model": WIDTH,
        **{f"{side}_layers": LAYERS for side in ("encoder", "decoder")},
        **{f"{side}_attention_heads": HEADS for side in ("encoder", "decoder")},
        **{f"{side}_ffn_dim": INNER for side in ("encoder", "decoder")},
        "dropout": 0.1,
        "max_position_embeddings": POSITIONS,
        "scale_embedding": True,
        "static_position_embeddings": True,
        "normalize_before": False,
        "normalize_embedding": False,
        "vocab_size": symbols,
        "pad_token_id": pad,
        "decoder_start_token_id": pad,
        "eos_token_id": 0,
        "bos_token_id": 0,
        "num_beams": 4,
        "bad_words_ids": [[pad]],
        "max_length": MAX_LENGTH,
        "is_encoder_decoder": True,
        **changes,
    }
    _write_json(folder / "config.json", config)
    _write_json(
        folder / "generation_config.json",
        {
            **{name: config[name] for name in ("bad_words_ids", "pad_token_id", "decoder_start_token_id", "num_beams")},
            "bos_token_id": 0,
            "eos_token_id": 0,
            "forced_eos_token_id": 0,
            "max_length": MAX_LENGTH,
            "renormalize_logits": True,
        },
    )
    _write_json(folder / "tokenizer_config.json", {"source_lang": "en", "target_lang": "de", "separate_vocabs": False})
    _write_json(folder / "vocab.json", vocabulary)
    torch.save(dict(marian_tensors(symbols, pad=pad, end=0)), folder / "pytorch_model.bin")
    return folder


def marian_tensors(symbols: int, *, pad: int, end: int) -> Iterator[tuple[str, Tensor]]:
    """Random tensors by the names of MarianMTModel, tied tables under all of theirs, as in published files."""
    generator = torch.Generator().manual_seed(4)

    def random(*shape: int, deviation: float) -> Tensor:
        return deviation * torch.randn(shape, generator=generator)

    def linear(name: str, inputs: int, outputs: int) -> Iterator[tuple[str, Tensor]]:
        yield f"{name}.weight", random(outputs, inputs, deviation=inputs**-0.5)
        yield f"{name}.bias", random(outputs, deviation=0.1)

    def norm(name: str) -> Iterator[tuple[str, Tensor]]:
        yield f"{name}.weight", 1 + random(WIDTH, deviation=0.1)
        yield f"{name}.bias", random(WIDTH, deviation=0.1)

    table = random(symbols, WIDTH, deviation=0.3)
    table[pad] = 0
    bias = torch.zeros(1, symbols)
    bias[0, end] = 2.0  # so that some outputs end by themselves
    yield "final_logits_bias", bias
    for name in ("model.shared", "model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head"):
        yield f"{name}.weight", table
    for side in ("encoder", "decoder"):
        yield f"model.{side}.embed_positions.weight", sinusoids(POSITIONS, WIDTH, layout="halves")
        for number in range(LAYERS):
            place = f"model.{side}.layers.{number}"
            for attention in ("self_attn", "encoder_attn")[: 1 if side == "encoder" else 2]:
                for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
                    yield from linear(f"{place}.{attention}.{part}", WIDTH, WIDTH)
                yield from norm(f"{place}.{attention}_layer_norm")
            yield from linear(f"{place}.fc1", WIDTH, INNER)
            yield from linear(f"{place}.fc2", INNER, WIDTH)
            yield from norm(f"{place}.final_layer_norm")


def write_t5_folder(folder: Path, *, pieces: tuple[str, ...] = (), **changes: Any) -> Path:
    """A folder as T5 1.0 is published: `model.safetensors`, one sentencepiece model, instructions in config.json.

    The table has rows that no piece uses. `pieces` are user-defined ones, such as `<2de>`.
    """
    folder.mkdir(parents=True)
    pairs = sample_pairs("en", "de", count=300, seed=2, split="train")
    lines = [*(text for pair in pairs for text in (pair.source, pair.target)), "translate English to German:"]
    numbers = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
    model = sentencepiece_model(lines, user_defined_symbols=list(pieces), **numbers)
    (folder / "spiece.model").write_bytes(model)
    count = len(sentencepiece.SentencePieceProcessor(model_proto=model)) + 100  # with <extra_id_0> …
    symbols = -(-count // 128) * 128
    config = {
        "architectures": ["T5ForConditionalGeneration"],
        "model_type": "t5",
        "d_model": WIDTH,
        "d_kv": 12,
        "d_ff": INNER,
        "num_layers": LAYERS,
        "num_heads": HEADS,
        "relative_attention_num_buckets": 32,
        "feed_forward_proj": "relu",
        "dropout_rate": 0.1,
        "layer_norm_epsilon": 1e-06,
        "n_positions": 512,
        "vocab_size": symbols,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "decoder_start_token_id": 0,
        "is_encoder_decoder": True,
        "task_specific_params": {
            "summarization": {"prefix": "summarize: ", "num_beams": 4},
            "translation_en_to_de": {"prefix": "translate English to German: ", "num_beams": 4},
        },
        **changes,
    }
    _write_json(folder / "config.json", config)
    save_file(dict(t5_tensors(symbols, is_gated="gated" in config["feed_forward_proj"])), folder / "model.safetensors")
    return folder


def t5_tensors(symbols: int, *, is_gated: bool) -> Iterator[tuple[str, Tensor]]:
    """Random tensors by the names of T5ForConditionalGeneration."""
    generator = torch.Generator().manual_seed(5)

    def random(*shape: int, deviation: float | None = None) -> Tensor:
        return (shape[-1] ** -0.5 if deviation is None else deviation) * torch.randn(shape, generator=generator)

    def attention(name: str) -> Iterator[tuple[str, Tensor]]:
        for part in "qkv":
            yield f"{name}.{part}.weight", random(HEADS * 12, WIDTH)
        yield f"{name}.o.weight", random(WIDTH, HEADS * 12)

    def norm(name: str) -> Iterator[tuple[str, Tensor]]:
        yield f"{name}.weight", 1 + random(WIDTH, deviation=0.1)

    yield "shared.weight", random(symbols, WIDTH, deviation=1.0)
    for side in ("encoder", "decoder"):
        yield from norm(f"{side}.final_layer_norm")
        positions = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        yield positions, random(32, HEADS, deviation=0.5)
        for number in range(LAYERS):
            place, last = f"{side}.block.{number}.layer", 1 if side == "encoder" else 2
            yield from attention(f"{place}.0.SelfAttention")
            if side == "decoder":
                yield from attention(f"{place}.1.EncDecAttention")
            for part in ("wi_0", "wi_1") if is_gated else ("wi",):
                yield f"{place}.{last}.DenseReluDense.{part}.weight", random(INNER, WIDTH)
            yield f"{place}.{last}.DenseReluDense.wo.weight", random(WIDTH, INNER)
            for sublayer in range(last + 1):
                yield from norm(f"{place}.{sublayer}.layer_norm")


def sentencepiece_model(lines: list[str], *, size: int = 120, **options: Any) -> bytes:
    """A unigram model of some lines, with the normalisation of published ones."""
    content = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=content,
        vocab_size=size,
        model_type="unigram",
        hard_vocab_limit=False,
        num_threads=1,
        minloglevel=2,
        **options,
    )
    return content.getvalue()


def _write_json(path: Path, values: Any) -> None:
    path.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


# --- a sentence encoder ----------------------------------------------------------------------------------------------

BERT_WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "old", "man", "read", "##s", "dog", ",", ".", "a"]


def write_sentence_folder(folder: Path, **changes: Any) -> Path:
    """A small BERT in the layout of sentence-transformers: safetensors, vocab.txt, modules.json, a Dense layer."""
    (folder / "1_Pooling").mkdir(parents=True)
    (folder / "2_Dense").mkdir()
    width, inner, symbols = 16, 24, len(BERT_WORDS) + 2
    config = {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "vocab_size": symbols,
        "hidden_size": width,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": inner,
        "hidden_act": "gelu",
        "max_position_embeddings": 20,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
        "hidden_dropout_prob": 0.1,
        "pad_token_id": 0,
        **changes,
    }
    parts = ("Transformer", "Pooling", "Dense", "Normalize")
    places = ("", "1_Pooling", "2_Dense", "3_Normalize")
    _write_json(folder / "config.json", config)
    _write_json(folder / "tokenizer_config.json", {"do_lower_case": True, "model_max_length": 16})
    (folder / "vocab.txt").write_text("\n".join(BERT_WORDS) + "\n", encoding="utf-8")
    modules = [
        {"idx": at, "name": str(at), "path": place, "type": f"sentence_transformers.models.{part}"}
        for at, (place, part) in enumerate(zip(places, parts, strict=True))
    ]
    _write_json(folder / "modules.json", modules)
    _write_json(folder / "1_Pooling" / "config.json", {"pooling_mode_mean_tokens": True})
    activation = "torch.nn.modules.activation.Tanh"
    _write_json(
        folder / "2_Dense" / "config.json", {"in_features": width, "out_features": 8, "activation_function": activation}
    )
    generator = torch.Generator().manual_seed(3)
    shapes = {
        "embeddings.word_embeddings.weight": (symbols, width),
        "embeddings.position_embeddings.weight": (20, width),
        "embeddings.token_type_embeddings.weight": (2, width),
        "pooler.dense.weight": (width, width),
        "pooler.dense.bias": (width,),
    }
    layer = "encoder.layer.0"
    linears = {f"{layer}.attention.self.{part}": (width, width) for part in ("query", "key", "value")}
    linears |= {f"{layer}.attention.output.dense": (width, width)}
    linears |= {f"{layer}.intermediate.dense": (inner, width), f"{layer}.output.dense": (width, inner)}
    for name, (outputs, inputs) in linears.items():
        shapes |= {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}
    for name in ("embeddings", f"{layer}.attention.output", f"{layer}.output"):
        shapes |= {f"{name}.LayerNorm.weight": (width,), f"{name}.LayerNorm.bias": (width,)}
    tensors = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    save_file(tensors, folder / "model.safetensors")
    dense = {
        "linear.weight": torch.randn(8, width, generator=generator),
        "linear.bias": torch.randn(8, generator=generator),
    }
    torch.save(dense, folder / "2_Dense" / "pytorch_model.bin")
    return folder


# --- a language model ------------------------------------------------------------------------------------------------


def write_llama_folder(folder: Path, **changes: Any) -> Path:
    """A small Llama with grouped heads, scaled rotary positions and a byte-level tokenizer.json."""
    folder.mkdir(parents=True)
    fast = tokenizers.Tokenizer(tokenizers.models.BPE())
    fast.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    pairs = sample_pairs("en", "de", count=100, seed=2, split="train")
    fast.train_from_iterator([pair.source for pair in pairs], trainer)
    fast.save(str(folder / "tokenizer.json"))
    width, inner, size, symbols = 16, 24, 4, fast.get_vocab_size()
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": symbols,
        "hidden_size": width,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": size,
        "intermediate_size": inner,
        "hidden_act": "silu",
        "max_position_embeddings": 64,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 16,
        },
        "bos_token_id": 0,
        "eos_token_id": 1,
        "tie_word_embeddings": False,
        **changes,
    }
    _write_json(folder / "config.json", config)
    _write_json(folder / "generation_config.json", {"bos_token_id": 0, "eos_token_id": [1], "do_sample": True})
    _write_json(folder / "tokenizer_config.json", {"bos_token": "<s>", "eos_token": "</s>"})
    generator = torch.Generator().manual_seed(3)
    layer = "model.layers.0"
    shapes = {
        "model.embed_tokens.weight": (symbols, width),
        "lm_head.weight": (symbols, width),
        "model.norm.weight": (width,),
        f"{layer}.input_layernorm.weight": (width,),
        f"{layer}.post_attention_layernorm.weight": (width,),
        f"{layer}.self_attn.q_proj.weight": (4 * size, width),
        f"{layer}.self_attn.k_proj.weight": (2 * size, width),
        f"{layer}.self_attn.v_proj.weight": (2 * size, width),
        f"{layer}.self_attn.o_proj.weight": (width, 4 * size),
        f"{layer}.mlp.gate_proj.weight": (inner, width),
        f"{layer}.mlp.up_proj.weight": (inner, width),
        f"{layer}.mlp.down_proj.weight": (width, inner),
    }
    tensors = {name: 0.3 * torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    save_file({name: tensor.bfloat16() for name, tensor in tensors.items()}, folder / "model.safetensors")
    return folder
