"""The noisy channel (Brown et al., 1990): the source is a garbled target sentence, and the likeliest original is found.

    y* = argmax_y P(x ∣ y) P(y)
    P(x ∣ y) = Π_j Σ_i a_ij t(x_j ∣ y_i)         IBM model 1, from target to source; i = 0 is the null word
    P(y)                                         an n-gram model of the target language

The sum over all links cannot be searched directly. A stack decoder proposes outputs in which each source word is
translated by one word, or by none where the null word explains it, and words may change places:

    proposals:  Σ_j ln t(x_j ∣ y_a(j)) + ln P(y) − distortion · words jumped over

The proposals are then ordered by the exact score, ln P(x ∣ y) + λ ln P(y), which is also that of given translations.
Unlike phrases, single words cannot become two: "Schutzhelm" has to be "helmet". A word of the source that the training
text lacks is copied.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float64, Int32, Int64
from pydantic import Field

from seqloom.classical.alignment import Bitext, Model1, Model1Config, TranslationTable, fit_model1
from seqloom.classical.ngram import NGram, NGramConfig
from seqloom.core.declaration import ModelSettings, Pieces, Purpose, TaskKind
from seqloom.core.errors import ModelError
from seqloom.core.events import Listener, ignore, progress
from seqloom.core.symbols import END, RESERVED, UNKNOWN
from seqloom.search.hypothesis import Hypothesis
from seqloom.search.settings import SearchConfig
from seqloom.smt.casing import Casing
from seqloom.smt.options import ORIENTATIONS, OptionSearch, SentenceOptions
from seqloom.smt.pairs import EncodedPairs, SourceSentence, hard_attention
from seqloom.smt.stack import StackSettings
from seqloom.text.tokenizer import EncodedText, Tokenizers

LEAST = 1e-7
"""The least t(x ∣ y): pairs below it are not kept, and words that never met have it."""

PROPOSALS = 50
"""Derivations that the decoder proposes for each output."""


class ChannelConfig(ModelSettings):
    """How a noisy-channel translator is fitted."""

    purpose: ClassVar[Purpose] = "translator"
    task_kind: ClassVar[TaskKind] = "fitting"
    pieces: ClassVar[Pieces] = "word"
    search_defaults: ClassVar[Mapping[str, Any]] = {"beam": 50, "unknown": "copy"}

    kind: Literal["channel"] = "channel"
    iterations: int = Field(default=5, ge=1)
    """How often the probabilities of IBM model 1 are re-estimated."""
    null_rate: float = Field(default=0.1, gt=0, lt=1)
    """The share of source words that no target word explains."""
    options: int = Field(default=10, ge=1, le=1_000)
    """Translations that are tried of each source word: those with the highest t(x ∣ y) P(y)."""
    order: int = Field(default=3, ge=1, le=8)
    """Words in the longest n-grams of the language model."""
    language_model_weight: float = Field(default=1.0, ge=0, le=100)
    """λ, what ln P(y) is multiplied by. 1 is the noisy channel; 0 leaves the language model out."""
    distortion: float = Field(default=0.3, ge=0, le=100)
    """What each word that is jumped over costs a proposal."""
    distortion_limit: int = Field(default=4, ge=-1, le=1_000)
    """Words that may be jumped over; −1 is any number."""

    def fit_pairs(self, pairs: EncodedPairs, *, seed: int, listener: Listener = ignore) -> "ChannelModel":  # noqa: ARG002
        """Fit both parts. Nothing here is random: the seed has no effect."""
        train, tokenizers = pairs.train.without_blanks(), pairs.tokenizers
        source_casing = Casing.learn(train.sources, train.source_starts, tokenizers.source.vocabulary)
        target_casing = Casing.learn(train.targets, train.target_starts, tokenizers.target.vocabulary)
        sources = source_casing.fold(train.sources, train.source_starts)
        targets = target_casing.fold(train.targets, train.target_starts)
        folded = Bitext(targets, train.target_starts, sources, train.source_starts)  # from target to source
        fitted = fit_model1(
            folded,
            self._model1(),
            threads=torch.get_num_threads(),
            progress=lambda done: progress(listener, "fitting IBM model 1", done, self.iterations),
        )
        text = EncodedText(np.insert(targets, train.target_starts[1:], END), tokenizers.target.vocabulary)
        language_model = NGramConfig(order=self.order).fit(text)
        counts = np.bincount(targets, minlength=tokenizers.target.size)
        table = _without_rare(fitted.table)
        return ChannelModel(
            self, source_casing, target_casing, Model1(self._model1(), table, ()), counts, language_model
        )

    def restore_pairs(self, arrays: Mapping[str, np.ndarray], tokenizers: Tokenizers) -> "ChannelModel":
        """The model whose arrays these are; they may be mapped files."""
        wanted = ("casing.source", "casing.target", "casing.begins_upper", "counts", *_TABLE)
        if missing := [name for name in wanted if name not in arrays]:
            raise ModelError(f"not the arrays of a noisy channel: {', '.join(missing)} missing")
        source, target = tokenizers.source.vocabulary, tokenizers.target.vocabulary
        begins, counts = np.asarray(arrays["casing.begins_upper"]), np.asarray(arrays["counts"])
        table = TranslationTable(*(np.asarray(arrays[name]) for name in _TABLE))
        if problem := _problem(table, counts, sources=len(source), targets=len(target)):
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
            Model1(self._model1(), table, ()),
            counts,
            NGramConfig(order=self.order).restore(language_model, target),
        )

    def describe(self, arrays: Mapping[str, np.ndarray]) -> dict[str, str]:
        """The size of the table and of the language model."""
        sizes = enumerate(np.diff(arrays["language_model.borders"]).tolist(), start=1)
        return {
            "Pairs of words": f"{len(arrays['table.columns']):,}",
            "N-grams": ", ".join(f"{count:,} of length {length}" for length, count in sizes),
        }

    def _model1(self) -> Model1Config:
        return Model1Config(iterations=self.iterations, null_rate=self.null_rate)


_TABLE = ("table.starts", "table.columns", "table.probabilities")


def _without_rare(table: TranslationTable) -> TranslationTable:
    """The entries of at least LEAST."""
    is_kept = table.probabilities >= LEAST
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(is_kept)])[table.starts]
    return TranslationTable(ends, table.columns[is_kept], table.probabilities[is_kept])


def _problem(table: TranslationTable, counts: np.ndarray, *, sources: int, targets: int) -> str | None:
    """What would make the compiled loops read out of bounds, or probabilities that are none."""
    starts, columns, values = table
    kinds = [str(array.dtype) for array in (starts, columns, values, counts)]
    if kinds != ["int64", "int32", "float64", "int64"] or any(array.ndim != 1 for array in (*table, counts)):
        return f"arrays of {', '.join(kinds)}"
    if len(counts) != targets or not 2 <= len(starts) <= targets + 2:
        return f"rows for {len(starts) - 2:,} words and counts of {len(counts):,}, but the vocabulary has {targets:,}"
    if starts[0] != 0 or starts[-1] != len(columns) or len(columns) != len(values) or (starts[1:] < starts[:-1]).any():
        return "its rows do not fit its entries"
    if len(columns) and not (columns.min() >= 0 and columns.max() < sources):
        return f"words from {columns.min()} to {columns.max()}, but the vocabulary has {sources:,}"
    return None if ((values >= 0) & (values <= 1 + 1e-9)).all() and (counts >= 0).all() else "numbers out of range"


@dataclass(frozen=True, eq=False)
class ChannelModel:
    """A fitted noisy channel."""

    config: ChannelConfig
    source_casing: Casing
    target_casing: Casing
    channel: Model1
    """t(x ∣ y): rows are target words."""
    counts: Int64[np.ndarray, " symbols"]
    """How often each target word was seen."""
    language_model: NGram

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything it consists of, without the vocabularies."""
        begins = [self.source_casing.begins_upper, self.target_casing.begins_upper]
        return {
            "casing.source": self.source_casing.usual,
            "casing.target": self.target_casing.usual,
            "casing.begins_upper": np.array(begins, np.int32),
            "counts": self.counts,
            **dict(zip(_TABLE, self.channel.table, strict=True)),
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
        """The best translations of each sentence among the proposals of the decoder, by their exact score."""
        search = self._proposer(settings.beam)
        ids = [self._fold(each) for each in sentences]
        options = [self._options(each) for each in ids]
        wanted = PROPOSALS * settings.nbest
        found = search.derive(options, nbest=wanted, threads=threads, is_cancelled=is_cancelled)
        results = []
        for source, option, derivations in zip(ids, options, found, strict=True):
            proposed: dict[tuple[int, ...], tuple[int, ...]] = {}  # the best derivation of each output
            for derivation in derivations:
                proposed.setdefault(option.output(derivation.options), derivation.options)
            outputs = list(proposed)
            fluency, channel = self._parts(source, outputs)
            order = np.argsort(-fluency - channel, kind="stable")[: settings.nbest]
            best = [self._hypothesis(source, option, proposed[outputs[place]]) for place in order]
            results.append(sorted(best, key=lambda each: -each.score))  # equal up to rounding before
        return results

    def score(self, sentences: Sequence[SourceSentence], targets: Sequence[Sequence[int]]) -> list[float]:
        """ln P(x ∣ y) + λ ln P(y) of each translation; never −inf, because words that never met have LEAST."""
        scores = []
        for sentence, target in zip(sentences, targets, strict=True):
            ids = np.array(target, np.int32)
            folded = self.target_casing.fold(ids, np.array([0, len(ids)], np.int64))
            fluency, channel = self._parts(self._fold(sentence), [tuple(folded.tolist())])
            scores.append(float(fluency[0] + channel[0]))
        return scores

    def _parts(
        self, source: Int32[np.ndarray, " source"], outputs: Sequence[tuple[int, ...]]
    ) -> tuple[Float64[np.ndarray, " outputs"], Float64[np.ndarray, " outputs"]]:
        """λ ln P(y) and ln P(x ∣ y) of some outputs."""
        if not outputs:
            return np.zeros(0), np.zeros(0)
        text = np.array([number for output in outputs for number in (*output, END)], np.int64)
        begins = np.cumsum([0, *(len(output) + 1 for output in outputs[:-1])])
        fluency = np.add.reduceat(self.language_model.log_probs(text), begins)
        # t of each source word by each target word of an output, the null word first; unknown words explain nothing.
        table, rate = self.channel.table, self.config.null_rate
        words = sorted({word for output in outputs for word in output})
        rows = [table.null, *words]
        values = [[max(LEAST, table.probability(row, word)) for word in source.tolist()] for row in rows]
        grid = np.array(values).reshape(len(rows), len(source))  # [rows, source]
        places = {word: row for row, word in enumerate(words, 1)}
        channel = np.empty(len(outputs))
        for number, output in enumerate(outputs):
            own = grid[[places[word] for word in output]].sum(axis=0) / max(1, len(output))
            channel[number] = np.log(rate * grid[0] + (1 - rate) * own).sum()
        return self.config.language_model_weight * fluency, channel

    def _hypothesis(
        self, source: Int32[np.ndarray, " source"], options: SentenceOptions, derivation: Sequence[int]
    ) -> Hypothesis:
        """An output with its exact score; the end has the share of the channel."""
        output = options.output(derivation)
        _, (channel,) = self._parts(source, [output])
        log_probs = self.language_model.log_probs(np.array([*output, END])) * self.config.language_model_weight
        terms = {"channel": float(channel), "language_model": math.fsum(log_probs)}
        log_probs[-1] += terms["channel"]
        positions = [links for option in derivation for links in options.positions(option)]
        return Hypothesis(
            symbols=self.target_casing.unfold(output),
            is_finished=True,
            score=math.fsum(terms.values()),
            terms=terms,
            token_log_probs=tuple(log_probs.tolist()),
            attention=hard_attention(positions, options.length),
        )

    def _proposer(self, beam: int) -> OptionSearch:
        """The search that proposes outputs."""
        weights = [self.config.language_model_weight, self.config.distortion, 1.0, *[0.0] * len(ORIENTATIONS)]
        settings = StackSettings(beam=beam, pop_limit=beam, distortion_limit=self.config.distortion_limit)
        return OptionSearch(self.language_model, ("channel",), np.array(weights), settings)

    def _options(self, ids: Int32[np.ndarray, " words"]) -> SentenceOptions:
        """The candidates of each word, and no word at all where the null word explains it."""
        begins, words, features = [], [], []
        log_null, log_word = math.log(self.config.null_rate), math.log(1 - self.config.null_rate)
        for place, word in enumerate(ids.tolist()):
            found, scores = self.candidates.of(word)
            for target, probability in zip(found.tolist(), scores.tolist(), strict=True):
                begins.append(place)
                words.append([target])
                features.append(log_word + math.log(max(LEAST, probability)))
            if not len(found):
                begins.append(place)
                words.append([UNKNOWN])
                features.append(log_word)
            begins.append(place)
            words.append([])
            features.append(
                log_null + math.log(max(LEAST, self.channel.table.probability(self.channel.table.null, word)))
            )
        starts = np.array(begins, np.int32)
        targets = np.array([word for some in words for word in some], np.int32)
        return SentenceOptions(
            len(ids),
            starts,
            starts + np.int32(1),
            np.cumsum([0, *map(len, words)], dtype=np.int64),
            targets,
            np.ones(len(targets), np.uint8),
            np.array(features)[:, None],
            np.zeros((len(starts), len(ORIENTATIONS))),
        )

    def _fold(self, sentence: SourceSentence) -> Int32[np.ndarray, " words"]:
        return self.source_casing.fold_sentence(sentence.ids, sentence.words)

    @cached_property
    def candidates(self) -> "WordCandidates":
        """The best target words of each source word."""
        table = self.channel.table
        rows = np.repeat(np.arange(table.null), np.diff(table.starts[:-1]))
        columns, values = table.columns[: len(rows)], table.probabilities[: len(rows)]
        is_kept = rows >= len(RESERVED)
        rows, columns, values = rows[is_kept], columns[is_kept], values[is_kept]
        order = np.lexsort((rows, -values * self.counts[rows], columns))
        sizes = np.bincount(columns, minlength=self.channel_symbols)
        rank = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        order = order[rank < self.config.options]
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.minimum(sizes, self.config.options))])
        return WordCandidates(starts, rows[order].astype(np.int32), values[order])

    @property
    def channel_symbols(self) -> int:
        """The size of the source vocabulary."""
        return len(self.source_casing.vocabulary)


class WordCandidates(NamedTuple):
    """Target words of each source word, with t(x ∣ y)."""

    starts: Int64[np.ndarray, " borders"]
    targets: Int32[np.ndarray, " entries"]
    probabilities: Float64[np.ndarray, " entries"]

    def of(self, word: int) -> tuple[Int32[np.ndarray, " some"], Float64[np.ndarray, " some"]]:
        """Those of one word."""
        inside = slice(*self.starts[word : word + 2])
        return self.targets[inside], self.probabilities[inside]
