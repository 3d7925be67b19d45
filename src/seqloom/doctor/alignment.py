"""Alignment: whether line n of one side translates line n of the other, and if not, which line does.

Two kinds of evidence, each compared with the values of unrelated pairs:

    s = ½ (mean over y of log (t̄(y ∣ x) + β q(y)) / ((1 + β) q(y)), and the same from y to x)    by IBM model 1
    ℓ = |log (|y| + 1) / (|x| + 1) − median|                                                   by the lengths
    L = log p(s ∣ pair) / p(s ∣ no pair) + log p(ℓ ∣ pair) / p(ℓ ∣ no pair)

The lines are a path through states: aligned (L of the line and its partner), shifted by k (L of the line and the k-th
after its partner), unrelated (0). `find_runs` takes the path with the most evidence.
A line is scored by a table that was not trained on it, so that a wrong pair cannot explain itself.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Float32, Int64, Num

from seqloom.classical.alignment import Bitext, Model1Config, TranslationTable, fit_model1
from seqloom.core.jit import compiled
from seqloom.doctor.faults import Fault, Kind, LineRun, find_fault
from seqloom.doctor.survey import Survey

# The compiled loops. Arguments are positional, as numba requires.

Array = Any
"""numba infers types and shapes."""


@compiled()
def score_pairs(
    lines: Array,
    partners: Array,
    folds: Array,
    sources: Array,
    source_starts: Array,
    targets: Array,
    target_starts: Array,
    tables: Array,
    shares: Array,
    background: float,
    scores: Array,
) -> None:
    """Σ_j log((t̄_j + β q_j) / ((1 + β) q_j)) / m of each wanted pair, where t̄_j = Σ_i t(y_j ∣ x_i) / n.

    `tables` holds starts, columns and probabilities of the table of each fold; `shares` are q, how frequent a word is.
    A pair with a side that has no known word scores NaN.
    """
    for at in range(len(lines)):
        first, last = source_starts[lines[at]], source_starts[lines[at] + 1]
        low, high = target_starts[partners[at]], target_starts[partners[at] + 1]
        if first == last or low == high:
            scores[at] = math.nan
            continue
        starts, columns, probabilities = tables[folds[at]]
        total = 0.0
        for token in range(low, high):
            word, found = targets[token], 0.0
            for place in range(first, last):
                source = sources[place]
                if source + 1 >= len(starts):
                    continue
                begin, end = starts[source], starts[source + 1]
                spot = begin + np.searchsorted(columns[begin:end], word)
                if spot < end and columns[spot] == word:
                    found += probabilities[spot]
            usual = shares[word]
            total += math.log((found / (last - first) + background * usual) / ((1.0 + background) * usual))
        scores[at] = total / (high - low)


@compiled()
def best_path(evidence: Array, switch: float, path: Array) -> None:
    """The states with the most evidence in all, where each change of state costs `switch` (Viterbi).

    `evidence` has a row for each line and a column for each state.
    """
    lines, states = evidence.shape
    back = np.empty((lines, states), np.int8)
    best = evidence[0].astype(np.float64)  # sums over a whole text, whatever the table is kept in
    for line in range(1, lines):
        top = 0
        for state in range(states):
            if best[state] > best[top]:
                top = state
        for state in range(states):
            stays = best[state] >= best[top] - switch
            back[line, state] = state if stays else top
        change = best[top] - switch
        for state in range(states):
            best[state] = max(best[state], change) + evidence[line, state]
    state = 0
    for other in range(states):
        if best[other] > best[state]:
            state = other
    for line in range(lines - 1, -1, -1):
        path[line] = state
        if line:
            state = back[line, state]


MAX_SHIFT = 5
"""Maximum distance in lines at which a shifted translation is searched."""

MIN_COUNT, MAX_WORDS = 3, 30_000
"""Minimum count of a word, and maximum size of the vocabulary."""

BACKGROUND = 0.2
"""β: how much of a word's probability is its own frequency."""

UNRELATED_DISTANCE = 7
"""Distance in lines between the sides of the unrelated pairs used for comparison."""

MAX_LINE_WORDS = 200
"""Maximum number of words compared per line: the cost is the product of both sides."""

MIN_PAIRS = 200
"""Minimum number of pairs to learn a lexicon; lengths alone are too weak."""

MIN_KNOWN_SHARE = 0.5
"""Minimum share of pairs with a known word on both sides."""

SHIFTS = tuple(range(-MAX_SHIFT, MAX_SHIFT + 1))
UNRELATED = len(SHIFTS)
ALIGNED = MAX_SHIFT
UNSCORED_SHIFT = -8.0
"""The evidence for shifts of lines that look aligned; these are not scored."""


FoldedTable = tuple[tuple[np.ndarray, np.ndarray, np.ndarray], ...]
"""Starts, columns and probabilities of a translation table for each of two folds."""


@dataclass(frozen=True, eq=False)
class FoldedLexicon:
    """Word translation tables of two folds, each trained on the lines that the other one scores; source side first."""

    ids: tuple[Mapping[str, int], Mapping[str, int]]
    shares: tuple[Float[np.ndarray, " source_words"], Float[np.ndarray, " target_words"]]
    """How frequent each word is."""
    tables: tuple[FoldedTable, FoldedTable]
    """The probabilities of the words of a side, given those of the other."""

    def numbers(self, side: int, words: Sequence[str]) -> list[int]:
        """The ids of the known words among the first MAX_LINE_WORDS words of a line of this side."""
        return [self.ids[side][word] for word in words[:MAX_LINE_WORDS] if word in self.ids[side]]


def fold_of(numbers: Num[np.ndarray, " lines"]) -> Int64[np.ndarray, " lines"]:
    """The fold of each line, 0 or 1: a deterministic hash of its number."""
    mixed = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return (mixed >> np.uint64(40)).astype(np.int64) & 1


def have_common_words(sources: Sequence[Sequence[str]], targets: Sequence[Sequence[str]]) -> bool:
    """Whether a lexicon can be learned: most pairs need repeated words on both sides, which a dictionary lacks."""
    source_ids, target_ids = _vocabulary(sources)[0], _vocabulary(targets)[0]
    full = known = 0
    for source, target in zip(sources, targets, strict=True):
        full += bool(source) and bool(target)
        known += any(word in source_ids for word in source) and any(word in target_ids for word in target)
    return known >= MIN_PAIRS and known >= MIN_KNOWN_SHARE * full


def learn_lexicon(
    numbers: Sequence[int], sources: Sequence[Sequence[str]], targets: Sequence[Sequence[str]], *, iterations: int = 4
) -> FoldedLexicon:
    """Fit model 1 in both directions to each half of some pairs."""
    (source_ids, source_shares), (target_ids, target_shares) = _vocabulary(sources), _vocabulary(targets)
    lexicon = FoldedLexicon((source_ids, target_ids), (source_shares, target_shares), ((), ()))
    folds, config = fold_of(np.array(numbers)), Model1Config(iterations=iterations)
    tables: tuple[list[TranslationTable], list[TranslationTable]] = [], []
    for fold in (0, 1):
        taught = np.flatnonzero(folds != fold).tolist()
        bitext = Bitext.from_sentences(
            [lexicon.numbers(0, sources[line]) for line in taught],
            [lexicon.numbers(1, targets[line]) for line in taught],
        )
        tables[1].append(fit_model1(bitext, config).table)
        tables[0].append(fit_model1(bitext.turned(), config).table)
    source, target = (tuple((each.starts, each.columns, each.probabilities) for each in side) for side in tables)
    return replace(lexicon, tables=(source, target))


def _vocabulary(lines: Sequence[Sequence[str]]) -> tuple[dict[str, int], Float[np.ndarray, " words"]]:
    counts = Counter(word for line in lines for word in line)
    kept = [(word, count) for word, count in counts.most_common(MAX_WORDS) if count >= MIN_COUNT]
    total = sum(count for _, count in kept)
    return {word: at for at, (word, _) in enumerate(kept)}, np.array([count / total for _, count in kept])


class WordLines:
    """Some lines of both sides as numbers of known words, to be scored against one another."""

    def __init__(
        self,
        lexicon: FoldedLexicon,
        numbers: Sequence[int],
        sources: Sequence[Sequence[str]],
        targets: Sequence[Sequence[str]],
    ) -> None:
        self._lexicon = lexicon
        bitext = Bitext.from_sentences(
            [lexicon.numbers(0, words) for words in sources], [lexicon.numbers(1, words) for words in targets]
        )
        self._sides = (bitext.sources, bitext.source_starts), (bitext.targets, bitext.target_starts)
        self._folds = fold_of(np.array(numbers, np.int64))

    @property
    def words(self) -> tuple[Int64[np.ndarray, " lines"], Int64[np.ndarray, " lines"]]:
        """How many known words the lines of each side have."""
        return np.diff(self._sides[0][1]), np.diff(self._sides[1][1])

    def score(
        self, lines: Int64[np.ndarray, " wanted"], partners: Int64[np.ndarray, " wanted"]
    ) -> Float32[np.ndarray, " wanted"]:
        """s of the source lines with these target lines, by their places here."""
        folds = self._folds[lines]
        both = [self._score(1, partners, lines, folds=folds), self._score(0, lines, partners, folds=folds)]
        scores: Float32[np.ndarray, " wanted"] = np.mean(both, axis=0).astype(np.float32)
        return scores

    def explain(
        self,
        lines: Int64[np.ndarray, " wanted"],
        partners: Int64[np.ndarray, " wanted"],
        *,
        part: int,
        parts: int,
        is_source: bool,
    ) -> Float[np.ndarray, " wanted"]:
        """How well the words of a part of each line are explained by a partner of the other side.

        A line is cut into so many parts of about the same length, of which `part` is used.
        """
        side = 0 if is_source else 1
        starts = self._sides[side][1]
        counts = np.diff(starts)
        borders = np.empty(2 * len(counts) + 1, starts.dtype)
        borders[0:-1:2] = starts[:-1] + counts * part // parts
        borders[1::2] = starts[:-1] + -(-counts * (part + 1) // parts)
        borders[-1] = starts[-1]
        return self._score(side, 2 * lines, partners, folds=self._folds[lines], borders=borders)

    def _score(
        self, side: int, lines: Array, partners: Array, *, folds: Array, borders: Array | None = None
    ) -> Float[np.ndarray, " wanted"]:
        """How well lines of a side are explained by partners of the other one; `borders` replace those of the lines."""
        (words, starts), others = self._sides[side], self._sides[1 - side]
        tables, shares = self._lexicon.tables[side], self._lexicon.shares[side]
        to, found = starts if borders is None else borders, np.empty(len(lines))
        score_pairs(partners, lines, folds, *others, words, to, tables, shares, BACKGROUND, found)
        return found


# --- evidence --------------------------------------------------------------------------------------------------------

WORD_CLASSES = (0, 4, 7, 11)
"""Known words on the shorter side from which on scores are compared among themselves: few words say little."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """log p(value ∣ pair) / p(value ∣ no pair), by bins of equal numbers of values."""

    edges: Float[np.ndarray, " edges"]
    log_ratios: Float[np.ndarray, " bins"]

    @staticmethod
    def between(pairs: Float[np.ndarray, " pairs"], others: Float[np.ndarray, " others"]) -> "Evidence":
        """From values of pairs and of what is none."""
        pairs, others = pairs[np.isfinite(pairs)], others[np.isfinite(others)]
        if min(len(pairs), len(others)) < 40:
            return Evidence(np.empty(0), np.zeros(1))
        bins = int(np.clip(min(len(pairs), len(others)) // 40, 4, 30))
        together = np.concatenate(
            [np.quantile(side, np.linspace(0, 1, bins // 2 + 1)[1:-1]) for side in (pairs, others)]
        )
        edges = np.unique(together)
        one, other = (
            np.bincount(np.searchsorted(edges, side), minlength=len(edges) + 1) + 0.5 for side in (pairs, others)
        )
        return Evidence(edges, np.log(one / one.sum()) - np.log(other / other.sum()))

    def of(self, values: Num[np.ndarray, " values"]) -> Float32[np.ndarray, " values"]:
        """The evidence of some values; nothing where there is no value."""
        found = self.log_ratios[np.searchsorted(self.edges, values)]
        return np.where(np.isfinite(values), found, 0.0).astype(np.float32)


@dataclass(frozen=True, eq=False)
class Judge:
    """What scores and lengths of pairs mean."""

    usual_ratio: float
    by_words: tuple[Evidence, ...]
    by_length: Evidence

    def evidence(
        self,
        scores: Float32[np.ndarray, " pairs"],
        words: Int64[np.ndarray, " pairs"],
        ratios: Float[np.ndarray, " pairs"],
    ) -> Float32[np.ndarray, " pairs"]:
        """L of pairs, by their scores, the known words of their shorter sides, and the logarithms of their ratios."""
        found = self.by_length.of(np.abs(ratios - self.usual_ratio))
        classes = np.searchsorted(WORD_CLASSES, words, side="right") - 1
        for at, evidence in enumerate(self.by_words):
            is_here = classes == at
            found[is_here] += evidence.of(scores[is_here])
        return found


def make_judge(lines: WordLines, characters: tuple[Int64[np.ndarray, " lines"], Int64[np.ndarray, " lines"]]) -> Judge:
    """Compare lines with their partners, and with distant targets."""
    places = np.arange(len(characters[0]))
    far = (places + UNRELATED_DISTANCE) % len(places)
    known = lines.words
    values = []
    for partners in (places, far):
        ratios = np.log((characters[1][partners] + 1) / (characters[0] + 1))
        values.append((lines.score(places, partners), np.minimum(known[0], known[1][partners]), ratios))
    usual = float(np.median(values[0][2]))
    by_words = []
    for at in range(len(WORD_CLASSES)):
        inside = [np.searchsorted(WORD_CLASSES, words, side="right") - 1 == at for _, words, _ in values]
        by_words.append(Evidence.between(values[0][0][inside[0]].astype(float), values[1][0][inside[1]].astype(float)))
    by_length = Evidence.between(np.abs(values[0][2] - usual), np.abs(values[1][2] - usual))
    return Judge(usual, tuple(by_words), by_length)


def suspicious(evidence: Float32[np.ndarray, " lines"], *, window: int = 5) -> Bool[np.ndarray, " lines"]:
    """Lines in and near windows whose total evidence is negative: shifts are searched for these."""
    if len(evidence) < window:
        return np.zeros(len(evidence), bool)
    sums = np.convolve(evidence, np.ones(window), mode="same")
    near = np.convolve((sums < 0).astype(float), np.ones(window + 2 * MAX_SHIFT), mode="same") > 0
    return near[: len(evidence)]


# --- faults ----------------------------------------------------------------------------------------------------------


def examine_alignment(runs: Sequence[LineRun], survey: Survey) -> list[Fault]:
    """Runs of shifted lines, and runs of lines that are unrelated to their partners."""
    around = f"that match neither their partners nor the {MAX_SHIFT} lines around them"
    found: tuple[tuple[Kind, list[LineRun], float, float, str, str, str], ...] = (
        ("misaligned", [run for run in runs if run.shift is not None], 0.0, 0.1, "Shifted lines",
         "whose translations are in other lines",
         "check for an extra or missing line where the first run begins; --fix misaligned realigns them"),
        ("unrelated", [run for run in runs if run.shift is None], 0.001, 0.2, "Runs of unrelated lines", around,
         "shifted further, or from another text; --fix unrelated drops them"),
    )  # fmt: skip
    faults = []
    for kind, some, fix, stop, title, what, advice in found:
        is_so = np.zeros(len(survey), bool)
        for run in some:
            is_so[run.first - 1 : run.last] = True
        by = [f" by {run.shift:+d}" if run.shift is not None else "" for run in some[:3]]
        where = "; ".join(f"lines {run.first:,} to {run.last:,}{each}" for run, each in zip(some, by, strict=False))
        more = f" and {len(some) - 3} more runs" if len(some) > 3 else ""
        what = f"{what}: {where}{more}"
        faults += find_fault(survey, kind, is_so, title, what=what, advice=advice, fix=fix, stop=stop, runs=tuple(some))
    return faults


def examine_whole(survey: Survey) -> list[Fault]:
    """Whether all lines are shifted, or the sides are unrelated, judged by lengths alone."""
    is_full = survey.blank == 0
    source, target = (np.log1p(side.characters[is_full].astype(float)) for side in (survey.source, survey.target))
    if len(source) < MIN_PAIRS:
        return []
    found, end = dict[int, float](), len(source)
    for shift in SHIFTS:  # line n of the source with line n + shift of the target
        one, other = source[max(0, -shift) : end - max(0, shift)], target[max(0, shift) : end - max(0, -shift)]
        # With constant lengths there is no evidence against it.
        found[shift] = float(np.corrcoef(one, other)[0, 1]) if one.std() > 0 and other.std() > 0 else 1.0
    best = max(found, key=lambda shift: found[shift])
    chance = 4 / np.sqrt(len(source))
    if best != 0 and found[best] > found[0] + max(0.1, chance):
        sentence = (
            f"the lengths of the two sides correlate when the target is shifted by {best:+d} lines "
            f"({found[best]:.2f}), but not without a shift ({found[0]:.2f})"
        )
        advice = "remove or add lines at the start of one file"
        return [Fault("sides", "stop", "All lines are shifted", sentence, advice, survey.split)]
    if found[0] < chance:
        sentence = (
            f"the lengths of the two sides do not correlate ({found[0]:.2f}), also not when shifted by up to "
            f"{MAX_SHIFT} lines"
        )
        advice = "check that both files are of the same text, in the same order"
        return [Fault("sides", "stop", "Unrelated sides", sentence, advice, survey.split)]
    return []


# Runs of lines that are not aligned: the path through the states of a text with the most evidence.
#
# The states of a line are its shifts and "unrelated"; each change of state costs `SWITCH`. Where the shift falls from
# p to q, p − q sources have lost their translations, and the path has no state for them. So the border is searched
# again:
#
#     Σ_{n ≤ m} L_p(n) + Σ_{n > m + p − q} L_q(n)     is largest at m, the last line before the lost ones

SWITCH = 12.0
"""Cost of a change of state in nats: four consecutive shifted lines outweigh two changes."""

MIN_RUN = 3


@dataclass(frozen=True)
class _Stretch:
    """Lines in one state, counted from 0; `end` is the first one behind them."""

    first: int
    end: int
    state: int


def find_runs(table: Float32[np.ndarray, "lines states"]) -> list[LineRun]:
    """The runs of lines that are not aligned, with those at their borders that have lost their translations.

    `table` has the evidence for each state of each line; its columns are SHIFTS, then unrelated.
    """
    if len(table) == 0:
        return []
    path = np.empty(len(table), np.int64)
    best_path(table, SWITCH, path)
    for each in _stretches(path):
        if each.end - each.first < MIN_RUN:
            path[each.first : each.end] = ALIGNED
    first, *others = _stretches(path)
    found = [first]
    for right in others:
        left, between = found[-1], right.first
        # A few lines of no state between two shifts are the lost ones.
        if left.state == UNRELATED and len(found) > 1 and left.end - left.first <= _lost(found[-2], right) + 1:
            between = found.pop().first
            left = found[-1]
        lost = _lost(left, right)
        if lost == 0:
            found.append(right)
            continue
        # The path has its border among the lost lines or near, or has left out what is between.
        low, high = max(left.first, between - 2 * lost), min(right.end, right.first + lost)
        before = np.append(0.0, np.cumsum(table[low:high, left.state], dtype=np.float64))
        after = np.append(0.0, np.cumsum(table[low:high, right.state], dtype=np.float64))
        behind = np.minimum(np.arange(high - low + 1) + lost, high - low)
        border = low + int(np.argmax(before + after[-1] - after[behind]))
        # Lost lines belong to the adjacent shifted run.
        border = min(border + lost, right.end) if right.state == ALIGNED else border
        found[-1] = replace(left, end=border)
        found.append(replace(right, first=border))
    return [
        LineRun(each.first + 1, each.end, None if each.state == UNRELATED else SHIFTS[each.state])
        for each in found
        if each.state != ALIGNED and each.end > each.first
    ]


def _stretches(path: Int64[np.ndarray, " lines"]) -> list[_Stretch]:
    borders = [0, *(np.flatnonzero(np.diff(path)) + 1).tolist(), len(path)]
    return [_Stretch(first, end, int(path[first])) for first, end in pairwise(borders)]


def _lost(left: _Stretch, right: _Stretch) -> int:
    """How many sources have no translation between two stretches."""
    if UNRELATED in (left.state, right.state):
        return 0
    return max(0, SHIFTS[left.state] - SHIFTS[right.state])
