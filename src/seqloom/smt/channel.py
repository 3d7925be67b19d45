"""The noisy channel (Brown et al., 1990): the source is a garbled target sentence, and the likeliest original is found.

    y* = argmax_y P(x ∣ y) P(y)^λ
    P(y)                                         an n-gram model of the target language
    P(x ∣ y) = max_a Π_i n(y_i) Π_j t(x_j ∣ y_a(j))       the channel, from target to source

Each source word x_j comes from one target word y_a(j), or from the null word, which gives words that no target word
explains. A target word gives one source word, or none: n(y) is how often it is linked with any, or 1 − n(y) with none.
So one word is translated by one word, or left out; before it may be added one of the words that are most often linked
with none, such as articles. t and n are counted with a model of word alignment.

    score = ln P(x ∣ y) + λ ln P(y) − d · words jumped over + b · target words + weights for words left out and added

λ = 1 is the formula; the weights are tuned on the dev pairs. The search is the stack decoder of phrases, without
phrases. Marks are translated by marks. A word that the training text lacks is translated by a known word with the same
stem or by the words that it is made of, or copied.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int32, Int64
from pydantic import Field, field_validator

from seqloom.classical.alignment import (
    DEFAULT_ALIGNMENT,
    AlignmentModelConfig,
    Bitext,
    WordAligner,
    fit_aligner,
    rounds,
)
from seqloom.classical.ngram import NGram, NGramConfig
from seqloom.core.declaration import ModelSettings, Pieces, Purpose, TaskKind
from seqloom.core.errors import ModelError
from seqloom.core.events import Listener, ignore, progress
from seqloom.core.symbols import END, RESERVED, UNKNOWN
from seqloom.search.hypothesis import Hypothesis
from seqloom.search.settings import SearchConfig
from seqloom.smt.casing import Casing
from seqloom.smt.dev_tuning import TuningConfig, tune_on_dev
from seqloom.smt.options import ORIENTATIONS, OptionSearch, SentenceOptions
from seqloom.smt.pairs import EncodedPairs, SourceSentence
from seqloom.smt.stack import StackSettings
from seqloom.smt.unknown import KnownWords
from seqloom.text.tokenizer import EncodedText, Tokenizers

OPTION_FEATURES = ("channel", "words", "dropped", "added")
"""Features of options: ln P(x ∣ y), target words, source words left out, and target words added."""

START: Mapping[str, float] = {
    "language_model": 1.0,
    "distortion": 0.5,
    "channel": 1.0,
    "words": 0.8,
    "dropped": 0.0,
    "added": 0.5,
}
"""Weights from which tuning starts, and those of models without it."""

MAX_WEIGHT = 1e6
"""That of the channel is 1, and sums with larger ones would lose it."""

SCALE = 0.3
"""What weights are multiplied by while they are tuned: the steps suit weights of this size."""

LEAST = 1e-7
"""The least probability of the null word."""

PART_OPTIONS = {1: 10, 2: 5, 3: 3}
"""Translations that are combined of each part of an unknown word, by the number of parts."""


class ChannelConfig(ModelSettings):
    """How a noisy-channel translator is fitted."""

    purpose: ClassVar[Purpose] = "translator"
    task_kind: ClassVar[TaskKind] = "fitting"
    pieces: ClassVar[Pieces] = "word"
    search_defaults: ClassVar[Mapping[str, Any]] = {"beam": 50, "unknown": "copy"}

    kind: Literal["channel"] = "channel"
    alignment: AlignmentModelConfig = DEFAULT_ALIGNMENT
    """How words are linked, which gives t(x ∣ y)."""
    null_rate: float = Field(default=0.1, gt=0, lt=1)
    """The share of source words that no target word explains."""
    options: int = Field(default=10, ge=1, le=1_000)
    """Translations that are tried of each source word: those with the highest t(x ∣ y) P(y)."""
    added: int = Field(default=5, ge=0, le=1_000)
    """Target words that may be added: those that are most often linked with no source word."""
    order: int = Field(default=5, ge=1, le=8)
    """Words in the longest n-grams of the language model."""
    distortion_limit: int = Field(default=4, ge=-1, le=1_000)
    """Words that may be jumped over; −1 is any number."""
    weights: dict[str, float] = Field(default_factory=dict)
    """Weights that are given and not tuned, such as {language_model: 0}; that of the channel is 1."""
    tuning: TuningConfig = TuningConfig(rounds=6, sentences=400)
    """How the other weights are tuned."""

    @field_validator("weights")
    @classmethod
    def _are_known(cls, value: dict[str, float]) -> dict[str, float]:
        names = [name for name in START if name != "channel"]
        if unknown := [name for name in value if name not in names]:
            raise ValueError(f"unknown feature {unknown[0]!r}; the features are {', '.join(names)}")
        if large := [name for name in value if not abs(value[name]) <= MAX_WEIGHT]:
            raise ValueError(f"{large[0]} is {value[large[0]]:g}; weights are from {-MAX_WEIGHT:g} to {MAX_WEIGHT:g}")
        return value

    def fit_pairs(self, pairs: EncodedPairs, *, seed: int, listener: Listener = ignore) -> "ChannelModel":
        """Link words, count both parts, and tune the weights."""
        threads = torch.get_num_threads()
        train, tokenizers = pairs.train.without_blanks(), pairs.tokenizers
        source_casing = Casing.learn(train.sources, train.source_starts, tokenizers.source.vocabulary)
        target_casing = Casing.learn(train.targets, train.target_starts, tokenizers.target.vocabulary)
        folded = train._replace(
            sources=source_casing.fold(train.sources, train.source_starts),
            targets=target_casing.fold(train.targets, train.target_starts),
        )
        aligner = fit_aligner(
            folded,
            self.alignment,
            threads=threads,
            progress=lambda done: progress(listener, "linking words", done, rounds(self.alignment)),
        )
        channel = Channel.learn(folded, aligner, tokenizers, options=self.options, threads=threads)
        text = EncodedText(np.insert(folded.targets, folded.target_starts[1:], END), tokenizers.target.vocabulary)
        language_model = NGramConfig(order=self.order).fit(text)
        weights = np.array([self.weights.get(name, value) for name, value in START.items()])
        model = ChannelModel(self, source_casing, target_casing, channel, language_model, weights)
        return self._tuned(model, pairs, seed=seed, threads=threads, listener=listener)

    def _tuned(
        self, model: "ChannelModel", pairs: EncodedPairs, *, seed: int, threads: int, listener: Listener
    ) -> "ChannelModel":
        is_given = any(self.weights.values())  # then the channel has to stay 1; otherwise only ratios count
        is_free = [not is_given if name == "channel" else name not in self.weights for name in START]
        others = np.zeros(len(ORIENTATIONS))
        tuned = tune_on_dev(
            lambda weights: replace(model, weights=weights[: len(START)]).search_with(self.search_defaults["beam"]),
            model.options_of,
            pairs,
            model.target_casing,
            np.concatenate([SCALE * model.weights, others]),
            is_free=np.array([*is_free, *others.astype(bool)]),
            config=self.tuning,
            seed=seed,
            threads=threads,
            listener=listener,
        )[: len(START)]
        scale = tuned[list(START).index("channel")]
        return replace(model, weights=tuned / scale) if scale > 0 else model

    def restore_pairs(self, arrays: Mapping[str, np.ndarray], tokenizers: Tokenizers) -> "ChannelModel":
        """The model whose arrays these are; they may be mapped files."""
        wanted = ("weights", "casing.source", "casing.target", "casing.begins_upper", *map(_stored, Channel._fields))
        if missing := [name for name in wanted if name not in arrays]:
            raise ModelError(f"not the arrays of a noisy channel: {', '.join(missing)} missing")
        source, target = tokenizers.source.vocabulary, tokenizers.target.vocabulary
        begins, weights = np.asarray(arrays["casing.begins_upper"]), np.asarray(arrays["weights"])
        if weights.dtype != np.float64 or weights.shape != (len(START),) or not (np.abs(weights) <= MAX_WEIGHT).all():
            raise ModelError(f"the weights are damaged: {weights.tolist()} for {', '.join(START)}; fit the model again")
        channel = Channel(*(np.asarray(arrays[_stored(name)]) for name in Channel._fields))
        if problem := channel.problem(sources=len(source), targets=len(target)):
            raise ModelError(f"the translation table is damaged: {problem}; fit the model again")
        language_model = {
            name.removeprefix("language_model."): array
            for name, array in arrays.items()
            if name.startswith("language_model.")
        }
        return ChannelModel(
            self,
            Casing.restore(np.asarray(arrays["casing.source"]), begins[:1], source),
            Casing.restore(np.asarray(arrays["casing.target"]), begins[1:], target),
            channel,
            NGramConfig(order=self.order).restore(language_model, target),
            weights,
        )

    def describe(self, arrays: Mapping[str, np.ndarray]) -> dict[str, str]:
        """The size of the table and of the language model, and the weights."""
        sizes = enumerate(np.diff(arrays["language_model.borders"]).tolist(), start=1)
        named = zip(START, np.asarray(arrays["weights"]).tolist(), strict=True)
        return {
            "Pairs of words": f"{len(arrays[_stored('targets')]):,}",
            "N-grams": ", ".join(f"{count:,} of length {length}" for length, count in sizes),
            "Weights": ", ".join(f"{name} {value:.3g}" for name, value in named),
        }


def _stored(name: str) -> str:
    return f"channel.{name}"


class Channel(NamedTuple):
    """P(x ∣ y) in parts. The target words of source word x lie between `starts[x]` and `starts[x + 1]`, best first."""

    starts: Int64[np.ndarray, " sources_and_one"]
    targets: Int32[np.ndarray, " entries"]
    probabilities: Float64[np.ndarray, " entries"]
    """t(x ∣ y)."""
    null: Float64[np.ndarray, " sources"]
    """t(x ∣ null word)."""
    counts: Int64[np.ndarray, " sources"]
    """How often each source word was seen."""
    unlinked: Int64[np.ndarray, " targets"]
    """How often each target word was linked with no source word."""
    seen: Int64[np.ndarray, " targets"]
    """How often each target word was seen."""

    @staticmethod
    def learn(
        bitext: Bitext, aligner: WordAligner, tokenizers: Tokenizers, *, options: int, threads: int = 1
    ) -> "Channel":
        """Keep the `options` target words of each source word with the highest t(x ∣ y) P(y); marks give marks."""
        source, target = tokenizers.source.vocabulary, tokenizers.target.vocabulary
        table, seen = aligner.backward.table, np.bincount(bitext.targets, minlength=len(target))
        rows = np.repeat(np.arange(table.null), np.diff(table.starts[:-1]))
        columns, values = table.columns[: len(rows)], table.probabilities[: len(rows)]
        is_kept = (rows >= len(RESERVED)) & (columns >= len(RESERVED)) & (values > 0)
        is_kept &= _are_words(target)[rows] == _are_words(source)[columns]
        rows, columns, values = rows[is_kept], columns[is_kept], values[is_kept]
        order = np.lexsort((rows, -values * seen[rows], columns))
        sizes = np.bincount(columns, minlength=len(source))
        rank = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        order = order[rank < options]
        null = np.full(len(source), LEAST)
        words, of_null = table.row(table.null)
        null[words] = np.maximum(LEAST, of_null)
        return Channel(
            np.concatenate([np.zeros(1, np.int64), np.cumsum(np.minimum(sizes, options))]),
            rows[order].astype(np.int32),
            values[order],
            null,
            np.bincount(bitext.sources, minlength=len(source)),
            _count_unlinked(bitext, aligner, symbols=len(target), threads=threads),
            seen,
        )

    def options(self, word: int) -> list[tuple[int, float]]:
        """The target words of a source word, with t(x ∣ y)."""
        inside = slice(*self.starts[word : word + 2])
        return list(zip(self.targets[inside].tolist(), self.probabilities[inside].tolist(), strict=True))

    def log_linked(self, word: int) -> float:
        """ln n(y), that a target word gives a source word; one link more of each kind than was seen."""
        return math.log((self.seen[word] - self.unlinked[word] + 1) / (self.seen[word] + 2))

    def log_unlinked(self, word: int) -> float:
        """ln (1 − n(y)), that it gives none."""
        return math.log((self.unlinked[word] + 1) / (self.seen[word] + 2))

    def problem(self, *, sources: int, targets: int) -> str | None:
        """What would make the decoder read out of bounds, or probabilities that are none."""
        kinds = [str(array.dtype) for array in self]
        if kinds != ["int64", "int32", "float64", "float64", "int64", "int64", "int64"] or {a.ndim for a in self} != {
            1
        }:
            return f"arrays of {', '.join(kinds)}"
        sizes = [len(self.starts) - 1, len(self.null), len(self.counts), len(self.unlinked), len(self.seen)]
        if sizes != [sources] * 3 + [targets] * 2:
            return f"it has {sizes} words, but the vocabularies have {sources:,} and {targets:,}"
        entries = {len(self.targets), len(self.probabilities), int(self.starts[-1])}
        if self.starts[0] != 0 or len(entries) > 1 or (self.starts[1:] < self.starts[:-1]).any():
            return "its rows do not fit its entries"
        if len(self.targets) and not 0 <= self.targets.min() <= self.targets.max() < targets:
            return f"words from {self.targets.min()} to {self.targets.max()}, but the vocabulary has {targets:,}"
        are_shares = all(((each > 0) & (each <= 1 + 1e-9)).all() for each in (self.probabilities, self.null))
        are_counts = (self.counts >= 0).all() and ((self.unlinked >= 0) & (self.unlinked <= self.seen)).all()
        return None if are_shares and are_counts else "numbers out of range"


def _are_words(vocabulary: Sequence[str]) -> Bool[np.ndarray, " symbols"]:
    """Which symbols are words, and not marks."""
    return np.array([any(map(str.isalnum, piece)) for piece in vocabulary])


def _count_unlinked(
    bitext: Bitext, aligner: WordAligner, *, symbols: int, threads: int
) -> Int64[np.ndarray, " targets"]:
    """How often each target word explains no source word."""
    chosen = aligner.backward.choose(bitext.turned(), threads=threads)  # the target place of each source word
    places = np.repeat(bitext.target_starts[:-1], np.diff(bitext.source_starts)) + chosen
    is_linked = np.zeros(len(bitext.targets), np.bool_)
    is_linked[places[chosen >= 0]] = True
    return np.bincount(bitext.targets[~is_linked], minlength=symbols)


class _Option(NamedTuple):
    """A translation of the source word at a place; `added` words come first, and are linked with nothing."""

    place: int
    words: tuple[int, ...]
    log_channel: float
    added: int = 0


@dataclass(frozen=True, eq=False)
class ChannelModel:
    """A fitted noisy channel."""

    config: ChannelConfig
    source_casing: Casing
    target_casing: Casing
    channel: Channel
    language_model: NGram
    weights: Float64[np.ndarray, " features"]
    """In the order of `START`."""

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything it consists of, without the vocabularies."""
        begins = [self.source_casing.begins_upper, self.target_casing.begins_upper]
        return {
            "weights": self.weights,
            "casing.source": self.source_casing.usual,
            "casing.target": self.target_casing.usual,
            "casing.begins_upper": np.array(begins, np.int32),
            **{_stored(name): array for name, array in self.channel._asdict().items()},
            **{f"language_model.{name}": array for name, array in self.language_model.arrays().items()},
        }

    def search(
        self,
        sentences: Sequence[SourceSentence],
        settings: SearchConfig,
        *,
        threads: int = 1,
        is_cancelled: Callable[[int], bool] | None = None,
    ) -> list[list[Hypothesis]]:
        """The best translations of each sentence, with the weighted features as terms."""
        return self.search_with(settings.beam).hypotheses(
            [self.options_of(each) for each in sentences],
            self.target_casing,
            nbest=settings.nbest,
            threads=threads,
            is_cancelled=is_cancelled,
        )

    def score(self, sentences: Sequence[SourceSentence], targets: Sequence[Sequence[int]]) -> list[float]:
        """The score of the best links of each translation; −inf if some words cannot be linked."""
        options = [self.options_of(sentence) for sentence in sentences]
        return self.search_with(self.config.search_defaults["beam"]).scores(options, targets, self.target_casing)

    def search_with(self, beam: int) -> OptionSearch:
        """The search that keeps so many hypotheses of each number of translated words."""
        settings = StackSettings(beam=beam, pop_limit=beam, distortion_limit=self.config.distortion_limit)
        weights = np.concatenate([self.weights, np.zeros(len(ORIENTATIONS))])
        return OptionSearch(self.language_model, OPTION_FEATURES, weights, settings)

    def options_of(self, sentence: SourceSentence) -> SentenceOptions:
        """The translations of each word, alone and after an added word, and no word at all."""
        ids = self.source_casing.fold_sentence(sentence.ids, sentence.words).tolist()
        written = sentence.words if len(sentence.words) == len(ids) else [""] * len(ids)
        log_null, log_word = math.log(self.config.null_rate), math.log(1 - self.config.null_rate)
        options: list[_Option] = []
        for place, (word, form) in enumerate(zip(ids, written, strict=True)):
            own = [_Option(place, words, log_word + value) for words, value in self._translations(word, form)]
            options += own
            options += [
                _Option(place, (extra, *each.words), each.log_channel + self.channel.log_unlinked(extra), 1)
                for each in own
                if each.words[0] in self.is_word
                for extra in self.added
            ]
            options.append(_Option(place, (), log_null + math.log(self.channel.null[word])))
        begins = np.array([each.place for each in options], np.int32)
        sizes = np.array([len(each.words) for each in options], np.int64)
        features = [(each.log_channel, len(each.words), not each.words, each.added) for each in options]
        links = [at >= each.added for each in options for at in range(len(each.words))]
        return SentenceOptions(
            len(ids),
            begins,
            begins + np.int32(1),
            np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)]),
            np.array([word for each in options for word in each.words], np.int32),
            np.array(links, np.uint8),
            np.array(features, np.float64).reshape(-1, len(OPTION_FEATURES)),
            np.zeros((len(options), len(ORIENTATIONS))),
        )

    def _translations(self, word: int, written: str) -> list[tuple[tuple[int, ...], float]]:
        """Target words with ln t(x ∣ y) n(y): those of the word, of known words in its place, or a copy."""
        parts = (word,) if self.channel.options(word) else self.known.parts(written) if written else ()
        if not parts:
            return [((UNKNOWN,), 0.0)]
        most = self.config.options if parts == (word,) else PART_OPTIONS[len(parts)]
        return [
            (
                tuple(target for target, _ in chosen),
                math.fsum(math.log(value) + self.channel.log_linked(target) for target, value in chosen),
            )
            for chosen in product(*(self.channel.options(part)[:most] for part in parts))
        ]

    @cached_property
    def added(self) -> tuple[int, ...]:
        """The words that are most often linked with nothing."""
        unlinked = np.where(_are_words(self.target_casing.vocabulary), self.channel.unlinked, 0)
        unlinked[: len(RESERVED)] = 0
        order = np.argsort(-unlinked, kind="stable")[: self.config.added]
        return tuple(word for word in order.tolist() if unlinked[word])

    @cached_property
    def is_word(self) -> frozenset[int]:
        """The ids of target words; marks have nothing added before them."""
        return frozenset(np.flatnonzero(_are_words(self.target_casing.vocabulary)).tolist())

    @cached_property
    def known(self) -> KnownWords:
        """Words in whose place others are translated: those that have translations, but are not names."""
        source, target = self.source_casing.vocabulary, self.target_casing.vocabulary
        counts = np.zeros(len(source), np.int64)
        for word in np.flatnonzero(np.diff(self.channel.starts)).tolist():
            best = int(self.channel.targets[self.channel.starts[word]])
            is_name = target[best].lower() == source[word].lower()
            counts[word] = 0 if is_name else self.channel.counts[word]
        return KnownWords(source, counts)
