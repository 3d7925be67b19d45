"""Peer: the Marian model of Hugging Face transformers, from scratch. It has its norms after the sublayers only."""

from typing import Any

import torch
import transformers
from peer_loop import BEGIN, PAD, Scores, serve
from torch import Tensor, nn
from transformers import MarianConfig, MarianMTModel

END = 2


def make(symbols: int, size: dict[str, Any]) -> tuple[nn.Module, Scores]:
    everywhere = size["dropout_rate"] if size["peers_drop_inside"] else 0.0
    config = MarianConfig(
        vocab_size=symbols,
        d_model=size["width"],
        encoder_ffn_dim=size["feed_forward"],
        decoder_ffn_dim=size["feed_forward"],
        encoder_layers=size["layers"],
        decoder_layers=size["layers"],
        encoder_attention_heads=size["heads"],
        decoder_attention_heads=size["heads"],
        dropout=size["dropout_rate"],
        attention_dropout=everywhere,
        activation_dropout=0.0,
        activation_function="relu",
        pad_token_id=PAD,
        bos_token_id=BEGIN,
        eos_token_id=END,
        decoder_start_token_id=BEGIN,
        forced_eos_token_id=None,
        max_position_embeddings=512,
        share_encoder_decoder_embeddings=True,
        tie_word_embeddings=True,
        scale_embedding=True,
        attn_implementation="sdpa",
    )
    model = MarianMTModel(config)

    def scores(source: Tensor, previous: Tensor) -> Tensor:
        mask = (source != PAD).long()
        found = model(input_ids=source, attention_mask=mask, decoder_input_ids=previous, use_cache=False)
        logits: Tensor = found.logits
        return logits

    return model, scores


if __name__ == "__main__":
    serve(make, version=f"transformers {transformers.__version__}, torch {torch.__version__}")
