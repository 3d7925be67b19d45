"""From the options of a sentence to hypotheses: features, their weights, and what a derivation is worth by parts.

    score = Σ_k w_k h_k        h: language model, distortion, features of the options, orientations

A model lists the options of a sentence with their features. Weights turn these into what the stack decoder takes, and
the options that it chooses back into an output with its terms.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int32, Int64, UInt8

from seqloom.classical.ngram import NGram
from seqloom.core.symbols import END
from seqloom.search.hypothesis import Hypothesis
from seqloom.smt import stack
from seqloom.smt.casing import Casing
from seqloom.smt.pairs import hard_attention

ORIENTATIONS = tuple(
    f"{orientation}_{side}" for side in ("previous", "next") for orientation in ("monotone", "swap", "discontinuous")
)
"""In the order in which the decoder takes them."""

SPARE_DERIVATIONS = 10
"""Derivations for each output of an n-best list, because several give the same words."""


class SentenceOptions(NamedTuple):
    """The translation options of one sentence and their features, without weights."""

    length: int
    """Words of the sentence."""
    begins: Int32[np.ndarray, " options"]
    ends: Int32[np.ndarray, " options"]
    target_starts: Int64[np.ndarray, " options_and_one"]
    targets: Int32[np.ndarray, " words"]
    links: UInt8[np.ndarray, " words"]
    """The source words of the span to which a target word is linked, one bit each."""
    features: Float64[np.ndarray, "options features"]
    orientations: Float64[np.ndarray, "options six"]

    def words(self, option: int) -> list[int]:
        """The target words of an option."""
        found: list[int] = self.targets[self.target_starts[option] : self.target_starts[option + 1]].tolist()
        return found

    def output(self, derivation: Sequence[int]) -> tuple[int, ...]:
        """The target words of a derivation."""
        return tuple(word for option in derivation for word in self.words(option))

    def positions(self, option: int) -> list[list[int]]:
        """The source words to which each target word of an option is linked, as positions in the sentence."""
        begin, end = int(self.begins[option]), int(self.ends[option])
        masks = self.links[self.target_starts[option] : self.target_starts[option + 1]].tolist()
        return [[place for place in range(begin, end) if mask >> (place - begin) & 1] for mask in masks]


@dataclass(frozen=True, eq=False)
class OptionSearch:
    """A stack search over options, with a language model and weights."""

    language_model: NGram
    names: tuple[str, ...]
    """The names of the features of options."""
    weights: Float64[np.ndarray, " features"]
    """In the order of `feature_names`."""
    settings: stack.StackSettings
    """How much is searched; its weights are replaced."""

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of all features."""
        return ("language_model", "distortion", *self.names, *ORIENTATIONS)

    def derive(
        self,
        sentences: Sequence[SentenceOptions],
        *,
        nbest: int = 1,
        threads: int = 1,
        is_cancelled: Callable[[int], bool] | None = None,
    ) -> list[list[stack.Derivation]]:
        """The best derivations of each sentence."""
        return stack.decode_many(
            [(self.weighted(each), each.length) for each in sentences],
            self.language_model.trie,
            self.language_model.order,
            self.stack_settings,
            nbest=nbest,
            threads=threads,
            is_cancelled=is_cancelled,
        )

    def hypotheses(
        self,
        sentences: Sequence[SentenceOptions],
        casing: Casing,
        *,
        nbest: int = 1,
        threads: int = 1,
        is_cancelled: Callable[[int], bool] | None = None,
    ) -> list[list[Hypothesis]]:
        """The best outputs of each sentence, those with the same words once; `casing` restores their capitals."""
        derivations = 1 if nbest == 1 else nbest * SPARE_DERIVATIONS
        found = self.derive(sentences, nbest=derivations, threads=threads, is_cancelled=is_cancelled)
        results: list[list[Hypothesis]] = []
        for sentence, some in zip(sentences, found, strict=True):
            best: dict[tuple[int, ...], Hypothesis] = {}
            for derivation in some:
                output = sentence.output(derivation.options)
                if len(best) < nbest and output not in best:
                    best[output] = self.hypothesis(sentence, derivation.options, casing)
            results.append(sorted(best.values(), key=lambda each: -each.score))  # equal up to rounding before
        return results

    def score(self, sentence: SentenceOptions, target: Sequence[int]) -> float:
        """The score of the best derivation of a given output, −inf if there is none."""
        found = stack.decode_target(
            self.weighted(sentence),
            sentence.length,
            target,
            self.language_model.trie,
            self.language_model.order,
            self.stack_settings,
        )
        return -math.inf if found is None else self.hypothesis(sentence, found.options, None).score

    def scores(
        self, sentences: Sequence[SentenceOptions], targets: Sequence[Sequence[int]], casing: Casing
    ) -> list[float]:
        """The scores of given outputs with their capitals."""
        found = []
        for sentence, target in zip(sentences, targets, strict=True):
            ids = np.array(target, np.int32)
            folded = casing.fold(ids, np.array([0, len(ids)], np.int64))
            found.append(self.score(sentence, folded.tolist()))
        return found

    def features(self, sentence: SentenceOptions, derivation: Sequence[int]) -> Float64[np.ndarray, " features"]:
        """h of a derivation, in the order of `feature_names`."""
        log_probs, jumps, orientations = self._parts(sentence, derivation)
        chosen = np.array(derivation, np.int64)
        own = sentence.features[chosen].sum(axis=0)
        return np.concatenate([[log_probs.sum(), -jumps.sum()], own, orientations.sum(axis=0)])

    def hypothesis(self, sentence: SentenceOptions, derivation: Sequence[int], casing: Casing | None) -> Hypothesis:
        """The output of a derivation, its score by features, and the share that each word has in it."""
        values = self.weights * self.features(sentence, derivation)
        terms = dict(zip(self.feature_names, values.tolist(), strict=True))
        reordering = math.fsum(terms.pop(name) for name in ORIENTATIONS)
        if self.has_orientations:
            terms["reordering"] = reordering
        output = sentence.output(derivation)
        positions = [links for option in derivation for links in sentence.positions(option)]
        return Hypothesis(
            symbols=output if casing is None else casing.unfold(output),
            is_finished=True,
            score=math.fsum(terms.values()),
            terms=terms,
            token_log_probs=tuple(self._shares(sentence, derivation)),
            attention=hard_attention(positions, sentence.length),
        )

    @property
    def has_orientations(self) -> bool:
        """Whether orientations count."""
        return bool(self.weights[-len(ORIENTATIONS) :].any())

    def _shares(self, sentence: SentenceOptions, derivation: Sequence[int]) -> list[float]:
        """The score word by word: its log-probability, and an equal share of what its option adds.

        The end gets what options without words add.
        """
        log_probs, jumps, orientations = self._parts(sentence, derivation)
        chosen, own = np.array(derivation, np.int64), slice(2, 2 + len(self.names))
        added = sentence.features[chosen] @ self.weights[own] - self.weights[1] * jumps
        added += orientations @ self.weights[-len(ORIENTATIONS) :]
        sizes = np.diff(sentence.target_starts)[chosen]
        shares = self.weights[0] * log_probs
        shares[:-1] += np.repeat(added / np.maximum(sizes, 1), sizes)
        shares[-1] += added[sizes == 0].sum()
        return [float(share) for share in shares]

    def _parts(
        self, sentence: SentenceOptions, derivation: Sequence[int]
    ) -> tuple[Float64[np.ndarray, " tokens"], Float64[np.ndarray, " chosen"], Float64[np.ndarray, "chosen six"]]:
        """log P of each word and the end; for each option the words jumped over, and the scores of its orientations."""
        output = np.array([*sentence.output(derivation), END], np.int64)
        chosen = np.array(derivation, np.int64)
        begins, ends = sentence.begins[chosen].astype(np.int64), sentence.ends[chosen].astype(np.int64)
        ways = np.array(
            [
                stack.orientation_of(*spans)
                for spans in zip(
                    [-1, *begins.tolist()],
                    [0, *ends.tolist()],
                    [*begins.tolist(), sentence.length],
                    [*ends.tolist(), sentence.length + 1],
                    strict=True,
                )
            ],
            np.int64,
        )
        places = np.arange(len(chosen))
        orientations = np.zeros((len(chosen), len(ORIENTATIONS)))
        orientations[places, ways[:-1]] = sentence.orientations[chosen, ways[:-1]]
        orientations[places, 3 + ways[1:]] = sentence.orientations[chosen, 3 + ways[1:]]
        jumps = np.abs(begins - np.concatenate([np.zeros(1, np.int64), ends[:-1]])).astype(np.float64)
        return self.language_model.log_probs(output), jumps, orientations

    def weighted(self, sentence: SentenceOptions) -> stack.Options:
        """The options as the decoder takes them."""
        own = self.weights[2 : 2 + len(self.names)]
        return stack.Options(
            sentence.begins,
            sentence.ends,
            sentence.target_starts,
            sentence.targets,
            sentence.features @ own,
            sentence.orientations * self.weights[-len(ORIENTATIONS) :],
        )

    @property
    def stack_settings(self) -> stack.StackSettings:
        """How much is searched, with the weights that the decoder uses itself."""
        return self.settings._replace(
            language_model_weight=float(self.weights[0]), distortion_weight=-float(self.weights[1])
        )
