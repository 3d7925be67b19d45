"""Small models for the tests of exports: one that was trained, and random ones of every shape."""

from pathlib import Path

import torch

from seqloom.data.phrasebook import sample_pairs
from seqloom.models.transformer import TransformerConfig
from seqloom.runs.config import DataConfig, ModelConfig, RunConfig
from seqloom.runs.loading import LoadedModel, build_model
from seqloom.runs.model_dir import Card
from seqloom.search.settings import SearchConfig
from seqloom.text.tokenizer import TextConfig, Tokenizers
from seqloom.text.tokenizer_training import train_tokenizers

LINES = 60


def phrases(*, count: int = LINES, seed: int = 5) -> tuple[list[str], list[str]]:
    """English lines and their German translations."""
    pairs = sample_pairs("en", "de", count=count, seed=seed, split="train")
    return [pair.source for pair in pairs], [pair.target for pair in pairs]


def tokenizers_of(text: TextConfig) -> Tokenizers:
    return train_tokenizers(*phrases(count=200), text)


def random_model(model: ModelConfig, text: TextConfig, *, search: SearchConfig | None = None) -> LoadedModel:
    """A model that was never trained, with weights large enough that every part of it matters."""
    tokenizers = tokenizers_of(text)
    built = build_model(model, tokenizers, seed=3).eval()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    config = RunConfig(
        model=model, text=text, data=DataConfig(source="en", target="de"), search=search or SearchConfig()
    )
    card = Card(source="en", target="de", parameters=sum(each.numel() for each in built.parameters()))
    return LoadedModel(Path("nowhere"), config, tokenizers, built, card, torch.device("cpu"))


def small(**changes: object) -> TransformerConfig:
    """A Transformer of two layers and two heads, changed as asked."""
    sizes = {"width": 16, "heads": 2, "encoder_layers": 2, "decoder_layers": 2, "feed_forward": 24}
    return TransformerConfig.model_validate({**sizes, **changes})
