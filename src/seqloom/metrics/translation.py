"""BLEU, chrF and TER of a translation, computed by sacrebleu, and exact match; never shown without their signature.

Which metrics suit a test set follows from its lines (`names_for`): translations, words, phones, parses, summaries.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, assert_never

import numpy as np
from jaxtyping import Float
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from seqloom.metrics.answers import BestAnswer, Questions
from seqloom.metrics.brackets import BracketF1, are_parses
from seqloom.metrics.diversity import distinct
from seqloom.metrics.error_rate import ErrorRate
from seqloom.metrics.rouge import Rouge, words_for
from seqloom.metrics.scoring import Bootstrap, CorpusScore, Metric, Statistics, score
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


CorpusMetric = Literal[
    "bleu", "chrf", "ter", "exact-match", "wer", "cer", "per", "rouge-1", "rouge-2", "rouge-l", "bracket-f1"
]
"""Metrics that compare each line with its reference."""

MetricName = Literal[CorpusMetric, "distinct-1", "distinct-2"]
"""Names of metrics, as settings and options write them."""

ERRORS = frozenset({"ter", "wer", "cer", "per"})
"""Metrics of which a lower value is better."""

LABELS: Mapping[CorpusMetric, str] = {
    "bleu": "BLEU",
    "chrf": "chrF",
    "ter": "TER",
    "exact-match": "exact match",
    "wer": "WER",
    "cer": "CER",
    "per": "PER",
    "rouge-1": "ROUGE-1",
    "rouge-2": "ROUGE-2",
    "rouge-l": "ROUGE-L",
    "bracket-f1": "bracket F1",
}
"""How messages write them."""


def metric_named(
    name: CorpusMetric,
    *,
    language: str | None = None,
    lowercase: bool = False,
    references: Sequence[str] = (),
    sources: Sequence[str] = (),
) -> Metric:
    """A metric for a target language. Of `sources` with several references, the best counts (`BestAnswer`).

    BLEU, chrF and TER compare each line with its own reference all the same, as sacrebleu does with one reference file.
    """
    tokenize = tokenize_for(language)
    metric: Metric
    match name:
        case "bleu":
            return Bleu(tokenize=tokenize, lowercase=lowercase)
        case "chrf":
            return Chrf(lowercase=lowercase)
        case "ter":
            return Ter(unspaced=tokenize != "13a")
        case "exact-match":
            metric = ExactMatch(lowercase)
        case "wer":
            metric = ErrorRate("word", lowercase)
        case "cer":
            metric = ErrorRate("character", lowercase)
        case "per":
            metric = ErrorRate("phone", lowercase)
        case "rouge-1":
            metric = Rouge("1", words_for(references))
        case "rouge-2":
            metric = Rouge("2", words_for(references))
        case "rouge-l":
            metric = Rouge("L", words_for(references))
        case "bracket-f1":
            metric = BracketF1()
        case _:
            assert_never(name)
    questions = Questions.of(sources, references) if sources else None
    return metric if questions is None else BestAnswer(metric, questions, is_error=name in ERRORS)


def names_for(references: Sequence[str], sources: Sequence[str] = ()) -> tuple[CorpusMetric, ...]:
    """The metrics that suit references, the most informative ones first."""
    match shape_of(references, sources):
        case "parse":
            return "bracket-f1", "exact-match"
        case "summary":
            return "rouge-1", "rouge-2", "rouge-l"
        case "phones":
            return "exact-match", "per", "chrf"
        case "word" | "phrase":
            return "exact-match", "bleu", "chrf", "ter"
        case "sentence":
            return "bleu", "chrf", "ter"


def metrics_for(
    language: str | None, *, lowercase: bool = False, references: Sequence[str] = (), sources: Sequence[str] = ()
) -> tuple[Metric, ...]:
    """BLEU, chrF and TER as they suit a target language; others where `names_for` the references has them."""
    given: dict[str, Any] = {"lowercase": lowercase, "references": references, "sources": sources}
    return tuple(metric_named(name, language=language, **given) for name in names_for(references, sources))


def dev_names_for(references: Sequence[str], sources: Sequence[str] = ()) -> tuple[CorpusMetric, CorpusMetric]:
    """The two metrics that a run reports of its dev text, the more informative one first.

    BLEU looks for four words in a row, so it means nothing where most references have fewer.
    """
    match shape_of(references, sources):
        case "parse":
            return "bracket-f1", "exact-match"
        case "summary":
            return "rouge-1", "rouge-l"
        case "phones":
            return "exact-match", "per"
        case "word":
            return "exact-match", "chrf"
        case "phrase":
            return "chrf", "exact-match"
        case "sentence":
            return "bleu", "chrf"


def score_named(
    names: Sequence[MetricName],
    hypotheses: Sequence[str],
    *,
    references: Sequence[str],
    sources: Sequence[str] = (),
    language: str | None,
    lowercase: bool = False,
    bootstrap: Bootstrap | None = None,
) -> tuple[CorpusScore, ...]:
    """The values of these metrics, with intervals if those are requested; of distinct-n, that of the references too."""
    found: list[CorpusScore] = []
    for name in names:
        if name == "distinct-1" or name == "distinct-2":
            order = int(name[-1])
            found += [distinct(hypotheses, order), distinct(references, order, name=" of the references")]
        else:
            metric = metric_named(name, language=language, lowercase=lowercase, references=references, sources=sources)
            found.append(score(metric, hypotheses, references=references, bootstrap=bootstrap))
    return tuple(found)


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

Shape = Literal[Length, "phones", "parse", "summary"]
"""What references are."""

BLEU_ORDER = 4
"""Words in a row that BLEU compares."""

MIN_SUMMARY_RATIO = 4
"""Words of a source for each of its reference, at the median, above which references are summaries."""


def shape_of(references: Sequence[str], sources: Sequence[str] = ()) -> Shape:
    """The length of references, or a shape that has metrics of its own."""
    if are_parses(references):
        return "parse"
    length = length_of(references)
    if length == "word":
        # Of words that are spelled in phones, hardly any has one phone only.
        return "phones" if sum(" " in line.strip() for line in references) > len(references) / 2 else "word"
    if sources and length == "sentence":
        pairs = zip(sources, references, strict=True)
        ratios = [count_words(source) / max(1, count_words(target)) for source, target in pairs]
        return "summary" if np.median(ratios) > MIN_SUMMARY_RATIO else length
    return length


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
