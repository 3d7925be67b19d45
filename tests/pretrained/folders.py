"""Folders in the layout of the Hugging Face hub, made on the spot from phrasebook lines and random weights."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sentencepiece
import torch
from torch import Tensor

from seqloom.data.phrasebook import sample_pairs
from seqloom.nn.blocks import sinusoids

WIDTH, HEADS, INNER, LAYERS, POSITIONS = 32, 4, 64, 2, 128
"""Of the folder of OPUS-MT's shape."""


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
        "max_length": POSITIONS,
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
            "max_length": POSITIONS,
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
    bias[0, end] = 2.0  # so that outputs end
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


def sentencepiece_model(lines: list[str], *, size: int = 120) -> bytes:
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
    )
    return content.getvalue()


def _write_json(path: Path, values: Any) -> None:
    path.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
