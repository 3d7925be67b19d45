"""BLEU by the length of the source: how much does a translator lose in long sentences?

Sentences are sorted into bins of source length, in words, of about as many sentences each. In every bin each system
has its BLEU with an interval that holds 95% of bootstrap resamples of that bin's sentences.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch.nn.utils.rnn import pad_sequence

from seqloom.core.errors import DataError, UsageError
from seqloom.core.seeds import seed_for
from seqloom.core.stepping import Source
from seqloom.core.symbols import END, RESERVED
from seqloom.data.batches import PairBatch
from seqloom.data.phrasebook import PhrasePair, sample_pairs
from seqloom.drawing.figures import SERIES, Finding, new_axes
from seqloom.lab.bench import Countdown, Say, generator_for, legend_above, silent, take_step
from seqloom.metrics.scoring import Bootstrap, CorpusScore, check_counts, score
from seqloom.metrics.translation import Bleu, tokenize_for
from seqloom.models.seq2seq import Seq2Seq, Seq2SeqConfig
from seqloom.nn.embeddings import Symbols
from seqloom.search.greedy import greedy_search
from seqloom.search.settings import SearchConfig
from seqloom.tasks.translation import pair_loss

# Sources of any length: sentences of the phrasebook, one or several in a row, and translators for them.
#
# A source of n sentences is translated by their n translations in the same order. All sentences are known from
# training; a longer source only combines them in new ways. So a translator that can do one sentence
# and fails at more fails for their number alone. (With sentences that are new themselves, a translator without
# attention learnt too little of the short ones in a few minutes to show how it falls with length.) Words are the
# symbols.

MARK = re.compile(r" ([.,;:!?])(?= |$)")


@dataclass(frozen=True)
class JoinedPair:
    """Sentences in a row and their translations, as words."""

    source: tuple[str, ...]
    target: tuple[str, ...]


@dataclass(frozen=True)
class JoinedPhrases:
    """Sentences, joined at random for each batch, and joined test pairs."""

    sentences: Sequence[PhrasePair]
    test: Sequence[JoinedPair]
    source_words: tuple[str, ...]
    target_words: tuple[str, ...]
    longest: int
    """Sentences of a pair, at most."""

    @property
    def symbols(self) -> Symbols:
        return Symbols(len(RESERVED) + len(self.source_words), len(RESERVED) + len(self.target_words), is_shared=False)


@dataclass(frozen=True)
class TranslatorTraining:
    """What every translator gets."""

    pairs: int = 32
    """In a batch, all of as many sentences."""
    updates: int = 500
    """Of the weights, by Adam; the learning rate falls to a tenth along a line."""
    learning_rate: float = 0.005
    clip_norm: float = 1.0


def join_phrases(
    source: str = "en", target: str = "de", *, sentences: int = 200, test: int = 400, longest: int = 5, seed: int
) -> JoinedPhrases:
    """So many sentences and test pairs; of these, as many have one sentence as have two … `longest`."""
    known = sample_pairs(source, target, count=sentences, seed=seed)
    generator = generator_for(seed, "joined test")
    pairs = [
        _join([known[at] for at in torch.randint(sentences, (1 + number % longest,), generator=generator).tolist()])
        for number in range(test)
    ]
    return JoinedPhrases(
        known,
        pairs,
        tuple(sorted({word for pair in known for word in pair.source_tokens})),
        tuple(sorted({word for pair in known for word in pair.target_tokens})),
        longest,
    )


def train_translator(
    config: Seq2SeqConfig, phrases: JoinedPhrases, *, training: TranslatorTraining, seed: int
) -> Seq2Seq:
    """A model after the updates. Equal seeds see the same pairs in the same order, whatever the config."""
    model = config.build(phrases.symbols, seed=seed_for(seed, "translator"))
    optimiser = torch.optim.Adam(model.parameters(), lr=training.learning_rate)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.1, total_iters=training.updates)
    generator = generator_for(seed, "joined batches")
    for _ in range(training.updates):
        count = int(torch.randint(1, phrases.longest + 1, (), generator=generator))
        drawn = torch.randint(len(phrases.sentences), (training.pairs, count), generator=generator).tolist()
        joined = [_join([phrases.sentences[at] for at in row]) for row in drawn]
        source = _padded([pair.source for pair in joined], phrases.source_words)
        target = _padded([pair.target for pair in joined], phrases.target_words)
        batch = PairBatch(source, target.ids, target.lengths, lines=np.array([row[0] for row in drawn]))
        loss = pair_loss(model, batch, smoothing=0.0)
        take_step(optimiser, loss.total / loss.count, clip_norm=training.clip_norm)
        schedule.step()
    return model


def translate_test(model: Seq2Seq, phrases: JoinedPhrases, *, at_once: int = 64) -> list[str]:
    """Greedy translations of the test pairs' sources, as text."""
    order = sorted(range(len(phrases.test)), key=lambda line: len(phrases.test[line].source))
    lines = [""] * len(order)
    for begin in range(0, len(order), at_once):
        chosen = order[begin : begin + at_once]
        source = _padded([phrases.test[line].source for line in chosen], phrases.source_words)
        for line, found in zip(chosen, greedy_search(model.stepper(), source, SearchConfig(beam=1)), strict=True):
            lines[line] = as_text(
                [phrases.target_words[symbol - len(RESERVED)] for symbol in found.symbols if symbol >= len(RESERVED)]
            )
    return lines


def as_text(words: Sequence[str]) -> str:
    """Words with spaces between them, marks at the word before them: what a metric that finds words itself expects."""
    return MARK.sub(r"\1", " ".join(words))


def _join(pairs: Sequence[PhrasePair]) -> JoinedPair:
    return JoinedPair(
        tuple(word for pair in pairs for word in pair.source_tokens),
        tuple(word for pair in pairs for word in pair.target_tokens),
    )


def _padded(lines: Sequence[Sequence[str]], words: Sequence[str]) -> Source:
    """Lines as ids with END, padded at the end, and their lengths."""
    numbers = {word: number for number, word in enumerate(words, start=len(RESERVED))}
    rows = [torch.tensor([*(numbers[word] for word in line), END]) for line in lines]
    return Source(pad_sequence(rows, batch_first=True), torch.tensor([*map(len, rows)]))


@dataclass(frozen=True)
class Bin:
    """Sentences whose source has between `shortest` and `longest` words, both included."""

    shortest: int
    longest: int
    lines: tuple[int, ...]
    """Their numbers, from 0."""

    @property
    def name(self) -> str:
        return str(self.shortest) if self.shortest == self.longest else f"{self.shortest}–{self.longest}"


def bins_of(lengths: Sequence[int], *, bins: int = 8) -> list[Bin]:
    """At most so many bins of about as many sentences each. Every sentence is in one; equal lengths stay together."""
    if bins < 1:
        raise UsageError(f"sentences cannot be sorted into {bins} bins; give 1 or more")
    order = sorted(range(len(lengths)), key=lambda line: lengths[line])
    found: list[Bin] = []
    begin = 0
    while begin < len(order):
        end = max(begin + 1, round((len(found) + 1) * len(order) / bins)) if len(found) + 1 < bins else len(order)
        while end < len(order) and lengths[order[end]] == lengths[order[end - 1]]:
            end += 1
        lines = order[begin:end]
        found.append(Bin(lengths[lines[0]], lengths[lines[-1]], tuple(sorted(lines))))
        begin = end
    return found


def source_lengths(sources: Sequence[str], *, language: str | None = None) -> list[int]:
    """Words of each line; characters, in a language that is written without spaces."""
    if tokenize_for(language) == "13a":
        return [len(line.split()) for line in sources]
    return [len("".join(line.split())) for line in sources]


def bottleneck_from(
    hypotheses: Mapping[str, Sequence[str]],
    references: Sequence[str],
    *,
    sources: Sequence[str],
    source_language: str | None = None,
    target_language: str | None = None,
    lowercase: bool = False,
    bins: int = 8,
    bootstrap: Bootstrap | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Finding:
    """BLEU by source length of the translations of some systems, by name. `settings` are kept with the numbers."""
    if not hypotheses:
        raise UsageError("no system given; pass the translations of one or more systems by name")
    for name, lines in hypotheses.items():
        check_counts(lines, references, system=name)
    if len(sources) != len(references):
        raise DataError(
            f"{len(sources)} source lines, but {len(references)} references; give the source file "
            "that was translated, line by line"
        )
    bootstrap = Bootstrap(seed=1) if bootstrap is None else bootstrap
    metric = Bleu(tokenize=tokenize_for(target_language), lowercase=lowercase)
    sorted_in = bins_of(source_lengths(sources, language=source_language), bins=bins)
    unit = "words" if tokenize_for(source_language) == "13a" else "characters"

    def score_of(lines: Sequence[str], chosen: Sequence[int]) -> CorpusScore:
        wanted = [references[line] for line in chosen]
        return score(metric, [lines[line] for line in chosen], references=wanted, bootstrap=bootstrap)

    everything = range(len(references))
    whole = {name: score_of(lines, everything) for name, lines in hypotheses.items()}
    by_bin = {name: [score_of(lines, each.lines) for each in sorted_in] for name, lines in hypotheses.items()}
    data: dict[str, Any] = {
        **(settings or {}),
        "unit": unit,
        "bins": [
            {"shortest": each.shortest, "longest": each.longest, "sentences": len(each.lines)} for each in sorted_in
        ],
        "systems": [
            {"system": name, "whole": asdict(whole[name]), "by_bin": [asdict(each) for each in by_bin[name]]}
            for name in hypotheses
        ],
    }
    sentence = _sentence(sorted_in, by_bin, unit=unit)
    draw = partial(_draw, sorted_in, by_bin, whole=whole, unit=unit)
    return Finding("bottleneck", "BLEU by the length of the source", sentence, data, draw)


def _sentence(bins: Sequence[Bin], by_bin: Mapping[str, Sequence[CorpusScore]], *, unit: str) -> str:
    if len(bins) == 1:
        listed = ", ".join(f"{scores[0].value:.1f} ({name})" for name, scores in by_bin.items())
        return f"All sources have {bins[0].name} {unit}; BLEU is {listed}."
    changes = ", ".join(
        f"from {_with_interval(scores[0])} to {_with_interval(scores[-1])} ({name})" for name, scores in by_bin.items()
    )
    sentence = (
        f"From sources of {bins[0].name} {unit} to those of {bins[-1].name}, BLEU changes {changes}; 95% bootstrap "
        "intervals are in brackets."
    )
    if len(by_bin) != 2:
        return sentence
    (first, ones), (second, others) = by_bin.items()
    gaps = [one.value - other.value for one, other in zip(ones, others, strict=True)]
    shortest, longest = (f"{gap:.1f}".replace("-", "−") for gap in (gaps[0], gaps[-1]))
    return (
        f"{sentence} The difference, {first} minus {second}, is {shortest} in the shortest bin and {longest} in the "
        f"longest, and above 0 in {sum(gap > 0 for gap in gaps)} of {len(bins)}."
    )


def _with_interval(found: CorpusScore) -> str:
    low, high = found.interval or (found.value, found.value)
    return f"{found.value:.1f} [{low:.1f}, {high:.1f}]"


def _draw(
    bins: Sequence[Bin], by_bin: Mapping[str, Sequence[CorpusScore]], *, whole: Mapping[str, CorpusScore], unit: str
) -> Figure:
    figure, axes = new_axes(width=max(7.2, 1.6 + 0.85 * len(bins)))
    marks = ("o", "s", "^", "D", "v", "P")
    for number, (name, scores) in enumerate(by_bin.items()):
        colour, mark = SERIES[number % len(SERIES)], marks[number % len(marks)]
        places = [place + 0.1 * (number - (len(by_bin) - 1) / 2) for place in range(len(bins))]
        intervals = [found.interval or (found.value, found.value) for found in scores]
        axes.vlines(places, [low for low, _ in intervals], [high for _, high in intervals], color=colour, linewidth=1.2)
        label = f"{name} (all sentences: {whole[name].value:.1f})"
        axes.plot(
            places, [found.value for found in scores], color=colour, marker=mark, ms=5, linewidth=1.6, label=label
        )
    axes.set_xticks(range(len(bins)), [f"{each.name}\n{len(each.lines)}" for each in bins])
    axes.set(ylim=(0, None), xlabel=f"{unit} of the source; below: number of sentences", ylabel="BLEU")
    legend_above(figure, min(3, len(by_bin)))
    return figure


# One vector for a whole source, or attention to every word: BLEU by source length.

WITH, WITHOUT = "with attention", "without attention"


def run(*, seed: int = 1, quick: bool = False, say: Say = silent) -> list[Finding]:
    """Two translators that differ only in attention, trained equally on joined sentences of the phrasebook."""
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
