"""BLEU, chrF and TER of a translation, computed by sacrebleu, and exact match; never shown without their signature.

A corpus score is a function of sums over the lines, its sufficient statistics. They are extracted once; a bootstrap
then needs sums only, so a thousand resamples cost one matrix product (`Metric.values`, the plain twin of which is
sacrebleu's own function for one sum).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from jaxtyping import Float
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from seqloom.core.errors import DataError, UsageError
from seqloom.text.marks import count_words, is_one_word

Tokenize = Literal["13a", "intl", "zh", "char", "none"]
"""How BLEU finds words: sacrebleu's tokenisers that need nothing else installed."""

UNSPACED = frozenset({"ja", "th", "lo", "km", "my", "bo"})
"""Languages written without spaces between words (besides Chinese, which has a tokeniser of its own)."""


@dataclass(frozen=True)
class Score:
    """A metric's value on one test set. `signature` says how it was computed; `interval` holds 95% of resamples."""

    name: str
    value: float
    signature: str
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class Bootstrap:
    """How an interval is found: the lines are drawn with replacement, `resamples` times."""

    seed: int
    resamples: int = 1000


@dataclass(frozen=True)
class Statistics:
    """What a metric keeps of each line, and what it makes of their sum over all lines."""

    name: str
    value: float
    signature: str
    lines: Float[np.ndarray, "lines parts"]


class Metric(Protocol):
    """A corpus metric that depends on the lines only through a sum over them."""

    def statistics(self, hypotheses: Sequence[str], references: Sequence[str]) -> Statistics:
        """The parts of each line, with the score and signature of the whole."""
        ...

    def values(self, sums: Float[np.ndarray, "corpora parts"]) -> Float[np.ndarray, " corpora"]:
        """The score of each corpus, given the sum of its lines' parts."""
        ...


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
        # Text that comes cut into words is no oversight where no tokeniser was asked for: no warning then.
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

    `unspaced` splits Chinese and Japanese text into characters first. Letters are not told apart by case unless
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


def metrics_for(
    language: str | None, *, lowercase: bool = False, references: Sequence[str] = ()
) -> tuple[Bleu | Chrf | Ter | ExactMatch, ...]:
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
    """The two metrics that a run reports of its dev text, the more telling one first.

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


def score(
    metric: Metric, hypotheses: Sequence[str], *, references: Sequence[str], bootstrap: Bootstrap | None = None
) -> Score:
    """The value of a metric, with the interval that holds 95% of bootstrap resamples if one is asked for."""
    check_counts(hypotheses, references)
    found = metric.statistics(hypotheses, references)
    if bootstrap is None:
        return Score(found.name, found.value, found.signature)
    values = metric.values(resampled_sums(found.lines, bootstrap))
    signature = f"{found.signature}|bs:{bootstrap.resamples}|seed:{bootstrap.seed}"
    return Score(found.name, found.value, signature, middle(values))


def resampled_sums(
    lines: Float[np.ndarray, "lines parts"], bootstrap: Bootstrap
) -> Float[np.ndarray, "resamples parts"]:
    """The sum over each resample of the lines: how often each line was drawn, times its parts."""
    if bootstrap.resamples < 40:
        raise UsageError(f"{bootstrap.resamples} resamples cannot show 2.5% at either side; give 40 or more, best 1000")
    generator = np.random.default_rng(bootstrap.seed)
    count = len(lines)
    at_once = max(1, 2_000_000 // count)  # bounds the memory for large test sets
    sums = []
    for first in range(0, bootstrap.resamples, at_once):
        rows = min(at_once, bootstrap.resamples - first)
        drawn = generator.integers(0, count, size=(rows, count)) + count * np.arange(rows)[:, None]
        times = np.bincount(drawn.ravel(), minlength=rows * count).reshape(rows, count)
        sums.append(times.astype(np.float64) @ lines)
    return np.concatenate(sums)


def middle(values: Float[np.ndarray, " resamples"]) -> tuple[float, float]:
    """The interval that leaves out one fortieth of the values at either side."""
    ordered = np.sort(values)
    outside = len(ordered) // 40
    return float(ordered[outside]), float(ordered[-1 - outside])


def check_counts(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    """Refuse what cannot be compared line by line."""
    for name, lines in (("hypotheses", hypotheses), ("references", references)):
        if isinstance(lines, str):
            raise UsageError(f"{name} must be a list of lines, but one string was given: {lines[:40]!r}")
    if len(hypotheses) != len(references):
        raise DataError(
            f"{len(hypotheses)} hypotheses cannot be compared with {len(references)} references: "
            "each line needs its own reference; look for lines that were dropped, joined or split"
        )
    if not hypotheses:
        raise DataError("there is nothing to score: 0 hypotheses and 0 references were given")


def _extract(engine: Any, hypotheses: Sequence[str], references: Sequence[str]) -> Statistics:
    # sacrebleu has no public name for the statistics; the parity tests watch these.
    lines = engine._extract_corpus_statistics(hypotheses, [references])
    whole = engine._aggregate_and_compute(lines)
    parts = np.asarray(lines, dtype=np.float64)
    return Statistics(str(whole.name), float(whole.score), str(engine.get_signature()), parts)
