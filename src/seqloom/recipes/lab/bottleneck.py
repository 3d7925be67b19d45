"""One vector for a whole source, or a look at every word: BLEU by source length with and without attention."""

from dataclasses import asdict, replace
from typing import Any

from seqloom.inspection.bottleneck import bottleneck_from
from seqloom.inspection.findings import Finding
from seqloom.inspection.joined_phrases import (
    TranslatorTraining,
    as_text,
    join_phrases,
    train_translator,
    translate_test,
)
from seqloom.metrics.translation import Bootstrap
from seqloom.models.seq2seq import Seq2SeqConfig
from seqloom.recipes.lab.progress import Countdown, Say, silent

WITH, WITHOUT = "with attention", "without attention"


def run(*, seed: int = 1, quick: bool = False, say: Say = silent) -> list[Finding]:
    """Two translators that differ in attention alone, trained alike on joined sentences of the phrasebook."""
    width = 16 if quick else 96
    config = Seq2SeqConfig(
        cell="gru",
        width=width,
        embedding_width=width,
        encoder_layers=1,
        decoder_layers=1,
        dropout_rate=0.0,
        tying="output",
    )
    configs = {WITH: config, WITHOUT: config.model_copy(update={"attention": "none"})}
    training = TranslatorTraining(pairs=8, updates=5) if quick else TranslatorTraining()
    phrases = join_phrases(sentences=50, test=24, longest=2, seed=seed) if quick else join_phrases(seed=seed)
    countdown = Countdown(say, len(configs))
    translations, sizes = {}, {}
    for name, each in configs.items():
        model = train_translator(each, phrases, training=training, seed=seed)
        translations[name] = translate_test(model, phrases)
        sizes[name] = sum(weight.numel() for weight in model.parameters())
        countdown.done(f"translator {name}")
    settings: dict[str, Any] = {
        "seed": seed,
        "model": config.model_dump(mode="json"),
        "weights": sizes,
        "training": asdict(training),
        "sentences": len(phrases.sentences),
        "sentences_in_a_row": phrases.longest,
    }
    finding = bottleneck_from(
        translations,
        [as_text(pair.target) for pair in phrases.test],
        sources=[as_text(pair.source) for pair in phrases.test],
        bins=3 if quick else 8,
        bootstrap=Bootstrap(seed, resamples=100 if quick else 1000),
        settings=settings,
    )
    task = (
        f"Rows of 1 to {phrases.longest} out of {len(phrases.sentences)} known sentences, {training.updates} updates."
    )
    return [replace(finding, sentence=f"{task} {finding.sentence}")]
