"""The promises of a translator that was fitted to sentence pairs and has a search of its own."""

import math
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import cast

from seqloom.apps.translator import Translation, Translator
from seqloom.runs.loading import Loaded, LoadedFitted
from seqloom.runs.translator import make_parts, source_sentence
from seqloom.search.hypothesis import Hypothesis
from seqloom.selfcheck.files import check_saved
from seqloom.selfcheck.lines import CheckLines
from seqloom.selfcheck.promises import (
    PROMISES,
    TIE,
    Check,
    CheckResult,
    Figure,
    counted,
    judged,
    out_of_place,
    shown,
    within,
)
from seqloom.selfcheck.searches import EXACT
from seqloom.selfcheck.translators import check_blank, check_lines
from seqloom.smt.pairs import FittedTranslator

THREADS = 3
"""Threads of the search with which one thread is compared."""

OF_NETWORKS = {
    "batch-int8": "it has no matrices",
    "greedy": "it does not write step by step",
    "fast": "it has one search",
    "plan": "it has no decoder",
    "complete": "its search proves nothing about wider beams",
}
"""Promises that do not apply, and why."""


class FittedTranslatorChecks:
    """A fitted translator, the lines it is checked with, and values shared by several checks."""

    def __init__(self, loaded: LoadedFitted, lines: CheckLines) -> None:
        self.translator = Translator(loaded)
        self.model = cast("FittedTranslator", loaded.model)
        self.texts = lines.texts
        self.all = lines.with_hard_ones(self.translator.tokenizers.source, limit=self.translator.longest)
        source, own = self.translator.tokenizers.source, self.translator.config.search
        parts = make_parts(self.all, source, limit=self.translator.longest)
        self.sentences = [source_sentence(source, part.text) for part in parts if len(part.ids) > 1]
        self.settings = own.model_copy(update={"nbest": own.beam, "rerank": "none"})

    def checks(self) -> list[Check]:
        """All checks, in the order in which they are reported."""
        found: dict[str, tuple[Callable[[], CheckResult], int]] = {
            "saved": (partial(check_saved, self.translator.loaded, self._outputs), 2),
            "lines": (partial(check_lines, self.translator, self.all, unlike_alone), 2),
            "blank": (partial(check_blank, self.translator), 0),
            "batch": (self._check_batch, 2),
            "terms": (self._check_terms, 0),
            "score": (self._check_score, 1),
            "seed": (self._check_seed, 2),
        }
        kind = self.translator.config.model.kind
        return [
            Check(name, promise, *found[name])
            if name in found
            else out_of_place(name, promise, f"a model of kind {kind} is not a network: {OF_NETWORKS[name]}")
            for name, promise in PROMISES.items()
            if name in found or name in OF_NETWORKS
        ]

    @cached_property
    def found(self) -> list[list[Hypothesis]]:
        """As many translations of each sentence as the beam keeps."""
        return self.model.search(self.sentences, self.settings)

    def _outputs(self, loaded: Loaded) -> list[object]:
        found = Translator(loaded).search(self.texts)
        return [[(each.text, each.score, each.hypotheses) for each in of_line] for of_line in found]

    def _check_batch(self) -> CheckResult:
        alone = [self.model.search([sentence], self.settings)[0] for sentence in self.sentences]
        return self._compared(alone, "alone and among others")

    def _check_seed(self) -> CheckResult:
        again = self.model.search(self.sentences, self.settings, threads=THREADS)
        return self._compared(again, f"nothing is random: twice, with 1 thread and with {THREADS}")

    def _compared(self, others: Sequence[list[Hypothesis]], how: str) -> CheckResult:
        changed = [at for at, found in enumerate(self.found) if found != others[at]]
        result = f"{len(changed):,} differ" if changed else "the same lists to the last bit"
        figures: dict[str, Figure] = {"sentences": len(self.found), "changed": len(changed)}
        worst = shown(" ".join(self.sentences[changed[0]].words)) if changed else None
        return judged(
            not changed,
            f"{counted(len(self.found), 'sentence')}, {how}: {result}",
            figures=figures,
            worst=worst,
        )

    def _check_terms(self) -> CheckResult:
        """Terms and shares add up to the score, lists are sorted, and each word has as much attention as others."""
        off, worst, count, names = 0.0, None, 0, set[str]()
        for given, hypotheses in zip(self.sentences, self.found, strict=True):
            scores = [each.score for each in hypotheses]
            is_sorted = bool(hypotheses) and scores == sorted(scores, reverse=True)
            for each in hypotheses:
                count, names = count + 1, names | set(each.terms)
                wrong = _off(each) if is_sorted else math.inf
                if not wrong <= off:  # NaN too
                    off, worst = wrong, f"{shown(' '.join(given.words))}: scores {scores}, terms {dict(each.terms)}"
        sentence = f"the terms ({', '.join(sorted(names))}) of {count:,} scores add up {within(off)}; lists are sorted"
        if not off <= EXACT:
            sentence = f"terms do not add up to their score, or a list is not sorted: {off:.1e}"
        return judged(off <= EXACT, sentence, figures={"scores": count, "largest_difference": off}, worst=worst)

    def _check_score(self) -> CheckResult:
        """The score of the best output; a better derivation of the same words may exist that the search has missed."""
        best = [hypotheses[0] for hypotheses in self.found]
        scores = self.model.score(self.sentences, [each.symbols for each in best])
        lower, worst, higher = 0.0, None, 0
        for given, each, score in zip(self.sentences, best, scores, strict=True):
            higher += score > each.score + TIE
            if not each.score - score <= lower:
                lower = each.score - score
                worst = f"{shown(' '.join(given.words))}: {each.score:.6f} by the search, {score:.6f} by scoring"
        sentence = f"the scores of {counted(len(best), 'output')} by the search and by scoring, {within(lower)}"
        if higher:
            sentence += f"; {higher:,} have a better derivation than the search found"
        if not lower <= TIE:
            sentence = f"scoring an output gives {lower:.1e} less than the search"
        figures: dict[str, Figure] = {"outputs": len(best), "largest_difference": lower, "better_derivations": higher}
        return judged(lower <= TIE, sentence, figures=figures, worst=worst)


def unlike_alone(translator: Translator, lines: Sequence[str], found: Sequence[Sequence[Translation]]) -> list[int]:
    """Positions of translations that the line at that position does not have by itself."""
    alone = [translator.search([line])[0][0] for line in lines]
    return [at for at, one in enumerate(alone) if one.text != found[at][0].text]


def _off(hypothesis: Hypothesis) -> float:
    """By how much its sums are wrong."""
    if len(hypothesis.token_log_probs) != len(hypothesis.symbols) + hypothesis.is_finished:
        return math.inf
    of_terms = abs(math.fsum(hypothesis.terms.values()) - hypothesis.score)
    return max(of_terms, abs(math.fsum(hypothesis.token_log_probs) - hypothesis.score))
