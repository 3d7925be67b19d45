"""Phrase-based translation (Koehn et al., 2003): whole phrases are looked up, ordered and joined.

    y* = argmax over derivations  Σ_k w_k h_k
    h: language model ln P(y), phrase and lexical scores of both directions, orientations, words jumped over,
       number of words, of phrases and of unknown words

Fitting: case is folded, words are linked (`classical.alignment`), phrase pairs extracted and scored, an n-gram model is
counted on the target side, and the weights w are tuned on the dev pairs. The search is a stack decoder (`smt.stack`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float64, Int64
from pydantic import Field, field_validator

from seqloom.classical.alignment import (
    DEFAULT_ALIGNMENT,
    AlignmentModelConfig,
    Bitext,
    Symmetrisation,
    fit_aligner,
    rounds,
)
from seqloom.classical.ngram import NGram, NGramConfig
from seqloom.core.declaration import ModelSettings, Pieces, Purpose, TaskKind
from seqloom.core.errors import DataError, ModelError
from seqloom.core.events import Listener, ignore, phase, progress
from seqloom.core.files import read_lines, require_file
from seqloom.core.symbols import END, UNKNOWN
from seqloom.search.hypothesis import Hypothesis
from seqloom.search.settings import SearchConfig
from seqloom.smt.casing import Casing
from seqloom.smt.dev_tuning import TuningConfig, tune_on_dev
from seqloom.smt.extraction import MAX_PHRASE_WORDS, WordLinks, extract_phrases
from seqloom.smt.options import ORIENTATIONS, OptionSearch, SentenceOptions
from seqloom.smt.pairs import EncodedPairs, SourceSentence
from seqloom.smt.phrase_table import SCORES, PhraseTable, Smoothing, WordWeights, build_table
from seqloom.smt.stack import StackSettings
from seqloom.smt.unknown import KnownWords
from seqloom.text.tokenizer import EncodedText, Tokenizers

OPTION_FEATURES = (*SCORES, "phrases", "words", "unknown")
"""Features of options: the scores of the table, and one for each phrase, target word and unknown word."""

FEATURES = ("language_model", "distortion", *OPTION_FEATURES, *ORIENTATIONS)

START: Mapping[str, float] = {
    "language_model": 0.5,
    "distortion": 0.1,
    **dict.fromkeys(SCORES, 0.2),
    "phrases": 0.0,
    "words": 0.5,
    "unknown": -5.0,
    **dict.fromkeys(ORIENTATIONS, 0.2),
}
"""Weights from which tuning starts, and those of models without it."""

SPLIT_OPTIONS = {1: 10, 2: 5, 3: 3}
"""Translations that are combined of each part of an unknown word, by the number of parts."""

MAX_WEIGHT = 1e6
"""Only ratios count, and sums of larger ones would lose the small features."""

FIXED = ("unknown",)
"""Not tuned: where a word is unknown, every derivation copies it."""


class PhrasesConfig(ModelSettings):
    """How a phrase-based translator is fitted."""

    purpose: ClassVar[Purpose] = "translator"
    task_kind: ClassVar[TaskKind] = "fitting"
    pieces: ClassVar[Pieces] = "word"
    search_defaults: ClassVar[Mapping[str, Any]] = {"beam": 100, "unknown": "copy"}

    kind: Literal["phrases"] = "phrases"
    longest: int = Field(default=7, ge=1, le=MAX_PHRASE_WORDS)
    """Words of the longest phrases, on either side."""
    options: int = Field(default=20, ge=1, le=1_000)
    """Translations that are kept of each phrase."""
    smoothing: Smoothing = "kneser_ney"
    """How phrase probabilities are smoothed: `none` is relative frequency, `kneser_ney` discounts rare pairs."""
    alignment: AlignmentModelConfig = DEFAULT_ALIGNMENT
    """How words are linked."""
    symmetrise: Symmetrisation = "grow-diag-final-and"
    """How the links of both directions are joined."""
    order: int = Field(default=4, ge=1, le=8)
    """Words in the longest n-grams of the language model."""
    language_model_text: tuple[str, ...] = ()
    """Further texts of the target language for the language model."""
    split_unknown: bool = True
    """Whether a word that the training text lacks is translated by a known word with the same stem, or by the words
    that it is made of; otherwise, and where there are none, it is copied."""
    distortion_limit: int = Field(default=6, ge=-1, le=1_000)
    """Words that may be jumped over between two phrases; −1 is any number."""
    weights: dict[str, float] = Field(default_factory=dict)
    """Weights of features that are given and not tuned, such as {language_model: 0}."""
    tuning: TuningConfig = TuningConfig()
    """How the other weights are tuned."""

    @field_validator("weights")
    @classmethod
    def _are_known(cls, value: dict[str, float]) -> dict[str, float]:
        if unknown := [name for name in value if name not in FEATURES]:
            raise ValueError(f"unknown feature {unknown[0]!r}; the features are {', '.join(FEATURES)}")
        if large := [name for name in value if abs(value[name]) > MAX_WEIGHT]:
            raise ValueError(f"{large[0]} is {value[large[0]]:g}; weights are from {-MAX_WEIGHT:g} to {MAX_WEIGHT:g}")
        return value

    def check_files(self) -> None:
        for name in self.language_model_text:
            require_file(Path(name))

    def fit_pairs(self, pairs: EncodedPairs, *, seed: int, listener: Listener = ignore) -> "PhraseModel":
        """Link, extract, count and tune."""
        threads = torch.get_num_threads()
        train, vocabularies = pairs.train.without_blanks(), pairs.tokenizers
        source_casing = Casing.learn(train.sources, train.source_starts, vocabularies.source.vocabulary)
        target_casing = Casing.learn(train.targets, train.target_starts, vocabularies.target.vocabulary)
        folded = _folded(train, source_casing, target_casing)
        language_model = self._fit_language_model(folded, target_casing, pairs.tokenizers, listener=listener)
        if pairs.entries is not None:
            folded = folded.joined(_folded(pairs.entries.without_blanks(), source_casing, target_casing))
        total = rounds(self.alignment)
        aligner = fit_aligner(
            folded,
            self.alignment,
            threads=threads,
            progress=lambda done: progress(listener, "linking words", done, total),
        )
        links = WordLinks.of(aligner.align(folded, symmetrise=self.symmetrise, threads=threads))
        phase(listener, f"extracting phrases of up to {self.longest} words")
        table = build_table(
            extract_phrases(folded, links, longest=self.longest),
            WordWeights.of(folded, links),
            smoothing=self.smoothing,
            options=self.options,
        )
        weights = np.array([self.weights.get(name, START[name]) for name in FEATURES])
        counts = np.bincount(folded.sources, minlength=vocabularies.source.size)
        model = PhraseModel(self, source_casing, target_casing, counts, table, language_model, weights)
        return self._tuned(model, pairs, seed=seed, threads=threads, listener=listener)

    def restore_pairs(self, arrays: Mapping[str, np.ndarray], tokenizers: Tokenizers) -> "PhraseModel":
        """The model whose arrays these are; they may be mapped files."""
        wanted = ("weights", "casing.source", "casing.target", "casing.begins_upper", "counts")
        if missing := [name for name in wanted if name not in arrays]:
            raise ModelError(f"not the arrays of a phrase-based translator: {', '.join(missing)} missing")
        weights, begins = np.asarray(arrays["weights"]), np.asarray(arrays["casing.begins_upper"])
        if weights.dtype != np.float64 or weights.shape != (len(FEATURES),):
            raise ModelError(f"the model has {weights.size} weights for {len(FEATURES)} features; fit it again")
        if not (np.abs(weights) <= MAX_WEIGHT).all():
            raise ModelError("the weights of the model are damaged: not all are finite and small; fit it again")
        source, target = tokenizers.source.vocabulary, tokenizers.target.vocabulary
        counts = np.asarray(arrays["counts"])
        if counts.dtype != np.int64 or counts.shape != (len(source),):
            raise ModelError(f"the model has counts of {counts.size:,} words, but its vocabulary has {len(source):,}")
        return PhraseModel(
            self,
            Casing.restore(np.asarray(arrays["casing.source"]), begins[:1], source),
            Casing.restore(np.asarray(arrays["casing.target"]), begins[1:], target),
            counts,
            PhraseTable.restore(_part(arrays, "table."), sources=len(source), targets=len(target)),
            NGramConfig(order=self.order).restore(_part(arrays, "language_model."), target),
            weights,
        )

    def describe(self, arrays: Mapping[str, np.ndarray]) -> dict[str, str]:
        """The size of the table, the language model, and the weights."""
        sizes = enumerate(np.diff(arrays["language_model.borders"]).tolist(), start=1)
        named = zip(FEATURES, np.asarray(arrays["weights"]).tolist(), strict=True)
        options = arrays["table.options"]
        return {
            "Phrases": f"{int((np.diff(options) > 0).sum()):,} with {int(options[-1]):,} translations",
            "N-grams": ", ".join(f"{count:,} of length {length}" for length, count in sizes),
            "Weights": ", ".join(f"{name} {value:.3g}" for name, value in named),
        }

    def _fit_language_model(
        self, folded: Bitext, casing: Casing, tokenizers: Tokenizers, *, listener: Listener
    ) -> NGram:
        phase(listener, f"counting n-grams of up to {self.order} words")
        texts = [(folded.targets, folded.target_starts)]
        for name in self.language_model_text:
            rows = [row for row in tokenizers.target.encode_many(list(read_lines(Path(name)))) if row]
            if not rows:
                raise DataError(f"{name} has no text for the language model; leave it out of model.language_model_text")
            ids = np.array([number for row in rows for number in row], np.int32)
            starts = np.cumsum([0, *map(len, rows)], dtype=np.int64)
            texts.append((casing.fold(ids, starts), starts))
        ended = [np.insert(ids, starts[1:], END) for ids, starts in texts]
        text = EncodedText(np.concatenate(ended), tokenizers.target.vocabulary)
        return NGramConfig(order=self.order).fit(text, listener=_without_notices(listener))

    def _tuned(
        self, model: "PhraseModel", pairs: EncodedPairs, *, seed: int, threads: int, listener: Listener
    ) -> "PhraseModel":
        is_free = np.array([name not in self.weights and name not in FIXED for name in FEATURES])
        tuned = tune_on_dev(
            lambda weights: replace(model, weights=weights).search_with(beam=self.search_defaults["beam"]),
            model.options_of,
            pairs,
            model.target_casing,
            model.weights,
            is_free=is_free,
            config=self.tuning,
            seed=seed,
            threads=threads,
            listener=listener,
        )
        if tuned is model.weights:
            return model
        weights = tuned.copy()
        if not any(self.weights.values()):  # only their ratios count: as large as they were
            weights[is_free] *= np.abs(model.weights[is_free]).sum() / max(1e-12, np.abs(weights[is_free]).sum())
        return replace(model, weights=weights)


@dataclass(frozen=True, eq=False)
class PhraseModel:
    """A fitted phrase-based translator."""

    config: PhrasesConfig
    source_casing: Casing
    target_casing: Casing
    counts: Int64[np.ndarray, " symbols"]
    """How often each source word was seen."""
    table: PhraseTable
    language_model: NGram
    weights: Float64[np.ndarray, " features"]
    """In the order of `FEATURES`."""

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything it consists of, without the vocabularies."""
        begins = [self.source_casing.begins_upper, self.target_casing.begins_upper]
        return {
            "weights": self.weights,
            "casing.source": self.source_casing.usual,
            "casing.target": self.target_casing.usual,
            "casing.begins_upper": np.array(begins, np.int32),
            "counts": self.counts,
            **{f"table.{name}": array for name, array in self.table.arrays().items()},
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
        """The score of the best derivation that gives each translation; −inf if there is none."""
        options = [self.options_of(sentence) for sentence in sentences]
        return self.search_with(self.config.search_defaults["beam"]).scores(options, targets, self.target_casing)

    def search_with(self, beam: int) -> OptionSearch:
        """The search that keeps so many hypotheses of each number of translated words."""
        settings = StackSettings(beam=beam, pop_limit=beam, distortion_limit=self.config.distortion_limit)
        return OptionSearch(self.language_model, OPTION_FEATURES, self.weights, settings)

    def options_of(self, sentence: SourceSentence) -> SentenceOptions:
        """All options of a sentence; a word without any is translated by its parts, or copied."""
        ids = self.source_casing.fold_sentence(sentence.ids, sentence.words)
        found, table = self.table.find(ids), self.table
        sizes = (table.target_starts[found.options + 1] - table.target_starts[found.options]).astype(np.int64)
        places = np.repeat(table.target_starts[found.options] - np.cumsum(sizes) + sizes, sizes)
        places += np.arange(len(places))
        has_own = np.zeros(len(ids), np.bool_)
        has_own[found.begins[found.ends - found.begins == 1]] = True
        others = [
            (place, *option)
            for place in np.flatnonzero(~has_own).tolist()
            for option in self._unknown(sentence.words[place] if len(sentence.words) == len(ids) else "")
        ]
        own = np.array([place for place, _, _ in others], np.int32)
        words = [word for _, target, _ in others for word in target]
        sizes = np.concatenate([sizes, np.array([len(target) for _, target, _ in others], np.int64)])
        features = np.zeros((len(sizes), len(OPTION_FEATURES)))
        features[:, : len(SCORES)] = np.concatenate(
            [table.scores[found.options], np.array([scores for _, _, scores in others]).reshape(-1, len(SCORES))]
        )
        features[:, len(SCORES)] = 1  # a phrase
        features[:, len(SCORES) + 1] = sizes
        features[len(found.options) :, len(SCORES) + 2] = 1
        orientations = np.zeros((len(features), len(ORIENTATIONS)))
        orientations[: len(found.options)] = table.orientations[found.options]
        return SentenceOptions(
            len(ids),
            np.concatenate([found.begins, own]),
            np.concatenate([found.ends, own + np.int32(1)]),
            np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)]),
            np.concatenate([table.targets[places], np.array(words, np.int32)]),
            np.concatenate([table.links[places], np.ones(len(words), np.uint8)]),
            features,
            orientations,
        )

    def _unknown(self, word: str) -> list[tuple[list[int], Float64[np.ndarray, " four"]]]:
        """Target words and scores for a word without options: those of known words in its place, or a copy."""
        parts = self.known.parts(word) if word and self.config.split_unknown else ()
        if not parts:
            return [([UNKNOWN], np.zeros(len(SCORES)))]
        of_parts = []
        for part in parts:
            options = self.table.find(np.array([part], np.int32)).options[: SPLIT_OPTIONS[len(parts)]]
            starts = self.table.target_starts
            of_parts.append([(self.table.targets[starts[k] : starts[k + 1]], self.table.scores[k]) for k in options])
        found = []
        for chosen in product(*of_parts):
            scores = np.asarray(np.sum([each for _, each in chosen], axis=0, dtype=np.float64))
            found.append(([number for target, _ in chosen for number in target.tolist()], scores))
        return found

    @cached_property
    def known(self) -> KnownWords:
        """Words in whose place others are translated: those that have options, but are not names, which are copied."""
        table, source, target = self.table, self.source_casing.vocabulary, self.target_casing.vocabulary
        counts = np.zeros(len(source), np.int64)
        for node in range(int(table.children[0])):
            first, word = int(table.options[node]), int(table.words[node])
            if first < table.options[node + 1]:
                best = table.targets[table.target_starts[first] : table.target_starts[first + 1]]
                is_name = len(best) == 1 and target[best[0]].lower() == source[word].lower()
                counts[word] = 0 if is_name else self.counts[word]
        return KnownWords(source, counts)


def _folded(bitext: Bitext, source_casing: Casing, target_casing: Casing) -> Bitext:
    return bitext._replace(
        sources=source_casing.fold(bitext.sources, bitext.source_starts),
        targets=target_casing.fold(bitext.targets, bitext.target_starts),
    )


def _part(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _without_notices(listener: Listener) -> Listener:
    """Notices about the language model name settings of another model."""
    return lambda event: None if event.kind == "notice" else listener(event)
