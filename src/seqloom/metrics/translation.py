"""BLEU, chrF and TER of a translation, computed by sacrebleu, and exact match; never shown without their signature."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from seqloom.metrics.scoring import Metric, Statistics
from seqloom.text.marks import count_words, is_one_word

Tokenize = Literal["13a", "intl", "zh", "char", "none"]
"""How BLEU finds words: sacrebleu's tokenisers that need nothing else installed."""

UNSPACED = frozenset({"ja", "th", "lo", "km", "my", "bo"})
"""Languages written without spaces between words (besides Chinese, which has a tokeniser of its own)."""


@dataclass(frozen=True)
class Bleu:
    """BLEU with exponential smoothing (Papineni et al., 2002; Post, 2018).

        BLEU = 100 · min(1, exp(1 − r/h)) · (Π_{n=1..4} p_n)^{1/4}

    where h and r are the lengths of hypotheses and references and p_n the precision of n-grams; the j-th order
    without a match counts as 1/(2^j · total). Parts: h, r, four numbers of matches, four totals.
    """

    tokenize: Tokenize = "13a"
    lowercase: bool = False

    def statistics(self, hypotheses: Sequence[str], references: Sequence[str]) -> Statistics:
        # Without a tokeniser, tokenised text is intended: no warning then.
        is_cut = self.tokenize == "none"
        return _extract(BLEU(tokenize=self.tokenize, lowercase=self.lowercase, force=is_cut), hypotheses, references)

    def values(self, sums: Float[np.ndarray, "corpora parts"]) -> Float[np.ndarray, " corpora"]:
        length, reference_length, correct, total = sums[:, 0], sums[:, 1], sums[:, 2:6], sums[:, 6:10]
        is_missed = (correct == 0) & (total > 0)
        smoothed = np.where(is_missed, 0.5 ** np.cumsum(is_missed, axis=1), correct)
        has_score = (correct > 0).any(axis=1) & (total > 0).all(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            log_precision = np.log(smoothed / total).mean(axis=1)
            log_brevity = np.minimum(0, 1 - reference_length / length)
            return np.where(has_score, 100 * np.exp(log_brevity + log_precision), 0.0)


@dataclass(frozen=True)
class Chrf:
    """chrF2 (Popović, 2015): an F-score of character n-grams in which recall counts twice as much as precision.

        chrF = 100 · 5 P R / (4 P + R)

    where P and R are means over the orders that occur on both sides: six of characters, and with `word_order=2` two
    of words (chrF++). Parts: n-grams of the hypothesis, of the reference, and matches, for each order.
    """

    word_order: int = 0
    lowercase: bool = False

    def statistics(self, hypotheses: Sequence[str], references: Sequence[str]) -> Statistics:
        return _extract(CHRF(word_order=self.word_order, lowercase=self.lowercase), hypotheses, references)

    def values(self, sums: Float[np.ndarray, "corpora parts"]) -> Float[np.ndarray, " corpora"]:
        ours, theirs, matches = sums[:, 0::3], sums[:, 1::3], sums[:, 2::3]
        counts = (ours > 0) & (theirs > 0)
        orders = np.maximum(counts.sum(axis=1), 1)
        precision = np.divide(matches, ours, out=np.zeros_like(ours), where=counts).sum(axis=1) / orders
        recall = np.divide(matches, theirs, out=np.zeros_like(ours), where=counts).sum(axis=1) / orders
        both = 4 * precision + recall
        return np.asarray(np.divide(500 * precision * recall, both, out=np.zeros_like(both), where=both > 0))


@dataclass(frozen=True)
class Ter:
    """Translation edit rate (Snover et al., 2006): lower is better, and it may exceed 100.

        TER = 100 · edits / reference words          edits: insert, delete, replace a word, or move a phrase

    `unspaced` splits Chinese and Japanese text into characters first. Case is ignored unless
    `lowercase` is false: that is the metric's own habit. Parts: edits, reference words.
    """

    lowercase: bool = True
    unspaced: bool = False

    def statistics(self, hypotheses: Sequence[str], references: Sequence[str]) -> Statistics:
        engine = TER(normalized=self.unspaced, asian_support=self.unspaced, case_sensitive=not self.lowercase)
        return _extract(engine, hypotheses, references)

    def values(self, sums: Float[np.ndarray, "corpora parts"]) -> Float[np.ndarray, " corpora"]:
        edits, words = sums[:, 0], sums[:, 1]
        without_words = (edits > 0).astype(np.float64)
        return np.asarray(100 * np.divide(edits, words, out=without_words, where=words > 0))


@dataclass(frozen=True)
class ExactMatch:
    """The share of lines that equal their reference, apart from spaces at their ends and repeated ones.

        exact match = 100 · matches / lines

    Parts: matches, lines.
    """

    lowercase: bool = False

    def statistics(self, hypotheses: Sequence[str], references: Sequence[str]) -> Statistics:
        pairs = zip(map(self._form, hypotheses), map(self._form, references), strict=True)
        parts = np.array([(float(one == other), 1.0) for one, other in pairs])
        signature = f"nrefs:1|case:{'lc' if self.lowercase else 'mixed'}|spaces:collapsed"
        return Statistics("exact match", float(self.values(parts.sum(axis=0)[None])[0]), signature, parts)

    def values(self, sums: Float[np.ndarray, "corpora parts"]) -> Float[np.ndarray, " corpora"]:
        return np.asarray(100 * sums[:, 0] / sums[:, 1])

    def _form(self, line: str) -> str:
        collapsed = " ".join(line.split())
        return collapsed.lower() if self.lowercase else collapsed


def tokenize_for(language: str | None) -> Tokenize:
    """The tokeniser of BLEU for a target language: `zh` for Chinese, `char` for others without spaces, else `13a`."""
    code = (language or "").replace("_", "-").lower().split("-")[0]
    if code in ("zh", "cmn", "yue"):
        return "zh"
    return "char" if code in UNSPACED else "13a"


def metrics_for(language: str | None, *, lowercase: bool = False, references: Sequence[str] = ()) -> tuple[Metric, ...]:
    """BLEU, chrF and TER as they suit a target language; before them exact match, if the `references` are short."""
    tokenize = tokenize_for(language)
    return (
        *([ExactMatch(lowercase)] if length_of(references) != "sentence" else []),
        Bleu(tokenize=tokenize, lowercase=lowercase),
        Chrf(lowercase=lowercase),
        Ter(unspaced=tokenize != "13a"),
    )


def dev_metrics_for(
    language: str | None, *, lowercase: bool = False, references: Sequence[str]
) -> tuple[Bleu | Chrf | ExactMatch, Bleu | Chrf | ExactMatch]:
    """The two metrics that a run reports of its dev text, the more informative one first.

    BLEU looks for four words in a row, so it means nothing where most references have fewer.
    """
    exact, chrf = ExactMatch(lowercase), Chrf(lowercase=lowercase)
    match length_of(references):
        case "word":
            return exact, chrf
        case "phrase":
            return chrf, exact
        case "sentence":
            return Bleu(tokenize=tokenize_for(language), lowercase=lowercase), chrf


def line_scores(hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool) -> list[float]:
    """The chrF of each line by itself, from 0 to 1."""
    if not hypotheses:
        return []
    metric = Chrf(lowercase=lowercase)
    values = metric.values(metric.statistics(hypotheses, references).lines) / 100
    return [float(value) for value in values]


def closest(candidates: Sequence[str], reference: str, *, language: str | None) -> str:
    """The candidate with the highest BLEU against a reference; of equal ones, the first.

    Of a single sentence, only the orders of n-grams that it is long enough for count.
    """
    engine = BLEU(tokenize=tokenize_for(language), effective_order=True)
    return max(candidates, key=lambda each: engine.sentence_score(each, [reference]).score)


Length = Literal["word", "phrase", "sentence"]

BLEU_ORDER = 4
"""Words in a row that BLEU compares."""


def length_of(references: Sequence[str]) -> Length:
    """What references are: words, if nine of ten are one word each; phrases, if most are too short for BLEU."""
    if not references:
        return "sentence"
    if sum(map(is_one_word, references)) >= 0.9 * len(references):
        return "word"
    return "phrase" if np.median([count_words(line) for line in references]) < BLEU_ORDER else "sentence"


def _extract(engine: Any, hypotheses: Sequence[str], references: Sequence[str]) -> Statistics:
    # sacrebleu has no public name for the statistics; the parity tests watch these.
    lines = engine._extract_corpus_statistics(hypotheses, [references])
    whole = engine._aggregate_and_compute(lines)
    parts = np.asarray(lines, dtype=np.float64)
    return Statistics(str(whole.name), float(whole.score), str(engine.get_signature()), parts)
