"""Zero-config: sizes chosen from the data, each with its reason."""

import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from seqloom.core.config import Config
from seqloom.core.errors import SeqloomError
from seqloom.data.corpus import ParallelCorpus
from seqloom.text.languages import find_language

SAMPLE = 20_000
"""Lines looked at to learn how long sentences are."""


@dataclass(frozen=True)
class DataFacts:
    """What the sizes are chosen from."""

    pairs: int
    source_characters: float
    """Mean characters in a source line."""
    target_characters: float
    """Mean characters in a target line."""
    are_unspaced: bool
    """Whether a side is written without spaces between words."""


@dataclass(frozen=True)
class Reason:
    """Why some settings were chosen as they are."""

    paths: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class Sizing:
    """Defaults for the config, what they follow from, and a reason for each choice."""

    defaults: dict[str, Any]
    summary: str
    reasons: tuple[Reason, ...]

    def reasons_in(self, config: Config, *, inherited: Collection[str] = ()) -> list[str]:
        """The choices that a file or an override left as they are; sections that were `inherited` were not chosen."""
        settings = config.model_dump(mode="json")
        chosen = [
            reason.text
            for reason in self.reasons
            if all(_at(settings, path) == _at(self.defaults, path) for path in reason.paths)
            and not any(path.split(".")[0] in inherited for path in reason.paths)
        ]
        return [self.summary, *chosen] if chosen else []


def facts_of(corpus: ParallelCorpus, languages: tuple[str | None, str | None]) -> DataFacts:
    """Look at the first lines of a corpus."""
    source = target = count = 0
    for line in corpus:
        source, target, count = source + len(line.source), target + len(line.target), count + 1
        if count == SAMPLE:
            break
    return DataFacts(
        pairs=len(corpus),
        source_characters=source / max(1, count),
        target_characters=target / max(1, count),
        are_unspaced=any(_is_unspaced(language) for language in languages),
    )


@dataclass(frozen=True)
class Rung:
    """What suits up to so many pairs."""

    pairs: int
    vocabulary: int
    width: int
    feed_forward: int
    layers: int
    heads: int
    dropout_rate: float
    learning_rate: float
    warmup: int
    passes: int
    """Times the data is gone through."""
    tokens_per_batch: int = 4096


LADDER = (
    Rung(2_000, 1_000, 64, 128, 2, 4, 0.3, 3e-3, 200, 300, tokens_per_batch=1024),
    Rung(10_000, 4_000, 128, 256, 3, 4, 0.3, 3e-3, 500, 120),
    Rung(100_000, 8_000, 128, 256, 4, 4, 0.3, 4e-3, 1_000, 60),
    Rung(500_000, 12_000, 256, 1024, 4, 4, 0.2, 2e-3, 2_000, 30),
    Rung(2_000_000, 16_000, 384, 1536, 6, 6, 0.1, 1e-3, 4_000, 15, tokens_per_batch=8192),
    Rung(sys.maxsize, 32_000, 512, 2048, 6, 8, 0.1, 7e-4, 4_000, 5, tokens_per_batch=8192),
)
"""Sizes that published systems use for so much data, from captions (29,000 pairs) to newspapers (millions)."""


def choose_sizes(facts: DataFacts, *, steps: int | None = None) -> Sizing:
    """Model, vocabulary, batches and schedule for this much data, and for this many steps if they are given."""
    rung = next(rung for rung in LADDER if facts.pairs <= rung.pairs)
    # A subword is about four letters; Chinese and its like have more to say in one.
    per_token = 2.0 if facts.are_unspaced else 4.0
    tokens = facts.pairs * (max(facts.source_characters, facts.target_characters) / per_token + 2)
    if steps is None:
        steps = _round(max(500.0, rung.passes * tokens / rung.tokens_per_batch))
    every = max(1, min(1000, _round(steps / 40)))
    defaults: dict[str, Any] = {
        "data": {"tokens_per_batch": rung.tokens_per_batch},
        "text": {"kind": "bpe", "size": rung.vocabulary, "shared": True},
        "model": {
            "kind": "transformer",
            "width": rung.width,
            "feed_forward": rung.feed_forward,
            "encoder_layers": rung.layers,
            "decoder_layers": rung.layers,
            "heads": rung.heads,
            "dropout_rate": rung.dropout_rate,
        },
        "training": {
            "steps": steps,
            "learning_rate": rung.learning_rate,
            "warmup": min(rung.warmup, steps // 4),
            "clip_norm": 1.0,
            "validate_every": every,
            "save_every": every,
            "patience": 10,
            "average": 10,
            "log_every": max(1, min(50, every // 4)),
        },
    }
    summary = f"{facts.pairs:,} pairs, about {_round(tokens):,} tokens on the longer side, so:"
    passes = steps * rung.tokens_per_batch / max(1.0, tokens)
    reasons = _reasons(rung, steps=steps, warmup=defaults["training"]["warmup"], passes=passes)
    return Sizing(defaults, summary, reasons)


def _reasons(rung: Rung, *, steps: int, warmup: int, passes: float) -> tuple[Reason, ...]:
    amount, asks, strength = ("little", "needs", "strong") if rung.dropout_rate >= 0.3 else ("much", "allows", "light")
    return (
        Reason(
            ("text.size", "text.kind"),
            f"{rung.vocabulary:,} joint subword pieces: more would be too rare to learn in this much text",
        ),
        Reason(
            ("model.kind", "model.width", "model.encoder_layers", "model.decoder_layers", "model.heads"),
            f"a Transformer of width {rung.width}, {rung.layers}+{rung.layers} layers, {rung.heads} heads: a larger "
            "one learns this data by heart",
        ),
        Reason(
            ("model.dropout_rate",), f"dropout {rung.dropout_rate:g}: {amount} data {asks} {strength} regularisation"
        ),
        Reason(("data.tokens_per_batch",), f"batches of {rung.tokens_per_batch:,} tokens"),
        Reason(("training.steps",), f"{steps:,} steps: about {passes:.0f} passes over the data"),
        Reason(("training.patience",), "an earlier end when the dev loss has stood still for ten validations"),
        Reason(
            ("training.learning_rate", "training.warmup"),
            f"a learning rate up to {rung.learning_rate:g} over {warmup:,} steps, then falling as 1/√step",
        ),
        Reason(("training.average",), "the mean of the last ten checkpoints as the model, if it beats the best one"),
    )


def _at(settings: Mapping[str, Any], path: str) -> Any:
    section, name = path.split(".")
    return settings[section].get(name)


def _is_unspaced(code: str | None) -> bool:
    if code is None:
        return False
    try:
        return find_language(code).is_unspaced
    except SeqloomError:
        return False


def _round(number: float) -> int:
    """To two digits that count: 12,345 becomes 12,000."""
    return int(float(f"{number:.1e}"))
