"""Word vectors of two languages in one space, learned without parallel text (Artetxe et al., 2018).

    map          W = argmin ‖X W − Z‖ over orthogonal W = U Vᵀ, where U S Vᵀ = Xᵀ Z            Procrustes
                 row k of X and Z: the words of pair k of the current dictionary
    similarity   csls(x, z) = 2 cos(x, z) − r(x) − r(z)                                   Conneau et al. (2018)
                 r: mean cosine to the 10 nearest words of the other side; words that are near everything lose
    dictionary   for each word of either side the word of the other side with the highest csls
    self-learning   map → similarity → dictionary → map …, until the mean cosine of the dictionary's pairs, the
                 objective, stops rising. Each similarity is ignored with a chance of 1 − p; p grows from 0.1 to 1
                 whenever the objective stagnates, which leads out of poor local optima.

The first dictionary comes from given pairs, from words that are spelled alike, or from nothing: a word has a similar
distribution of similarities to the words of its own language as its translation has in the other language. In

    M_X = (X Xᵀ)^½,   M_Z = (Z Zᵀ)^½                      each row sorted, so that it does not depend on any order

rows of translations are near each other, as far as both spaces have the same shape. Where the counts of words are
known, translations are also expected to be about as frequent.

At the end both sides are re-weighted: whitened, mapped by U and V, scaled by S^½ so that directions count as much as
they agree, and de-whitened.

Whether the result means anything is tested without a gold dictionary: see `ChanceTest`.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import repeat
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Float32, Float64, Int64

from seqloom.classical.vectors import WordVectors
from seqloom.core.errors import DataError
from seqloom.core.jit import compiled
from seqloom.core.seeds import seed_for

MIN_WORDS = 100
"""Words of each side below which nothing can be learned."""
MIN_PAIRS = 10
"""Pairs of the first dictionary below which a map is arbitrary."""
WORDS_PER_COMPONENT, MIN_COMPONENTS = 20, 10
"""Words for each principal component that is mapped: a map of more components has more freedom than the words can
determine. With very few components any two spaces fit."""
SEED_SHARE = 0.2
"""The share of given pairs in each dictionary: they are repeated until they have this weight."""
MAX_SHAPE_WORDS = 2000
"""Words of each side whose similarities to each other are compared in a start from nothing."""
FREQUENCY_WEIGHTS = (0.5, 1.0, 0.0)
"""λ in the attempts of a start from nothing, in turns."""
ATTEMPT_WORDS = 1000
"""Words of each side in these attempts."""
CHANCE_WORDS = 1500
"""Words of each side in the test of chance, which repeats the learning several times."""
MAX_P_VALUE = 0.01
"""A mapping is better than chance below this."""
MIN_AGREEMENT = 0.5
"""The share of equal translations from which two dictionaries are the same local optimum."""
SHARPNESS = 10.0
"""β of the probabilities in a dictionary."""
FIRST_KEEP_RATE, KEEP_GROWTH = 0.1, 2.0
MAX_ROUNDS = 500
MIN_RISE = 1e-4
"""A smaller rise of the objective counts as none."""
_MAX_CELLS = 1 << 22
"""Similarities in memory at the same time: 16 MB."""
_ONE = 1 << 32
"""A chance of 1, in the units of a draw."""

Vectors = Float[np.ndarray, "_ width"]
Rows = Int64[np.ndarray, " _"]
Array = Any
"""numba infers types and shapes."""


Start = Literal["seeds", "equal", "nothing"]
"""Where the first dictionary comes from: given pairs, words that are spelled alike, or the shapes of both spaces."""
START_NAMES: dict[Start, str] = {"seeds": "seeds", "equal": "equal strings", "nothing": "nothing"}
Progress = Callable[[str, int, int | None], None]
"""Receives what is done, how much of it, and how much there is in all, if that is known."""


@dataclass(frozen=True)
class MappingSettings:
    """How two vector spaces are mapped."""

    vocabulary: int = 5000
    """Most frequent words of each side that are learned from."""
    minimum_count: int = 10
    """Words that were seen less often are mapped, but not learned from: their vectors are unreliable."""
    neighbours: int = 10
    """Nearest words whose mean cosine corrects a similarity."""
    patience: int = 10
    """Rounds without a rise of the objective after which the keep rate grows, or learning ends."""
    attempts: int = 10
    """Attempts of a start from nothing, on few words; the one with the highest objective counts."""
    trials: int = 8
    """Random dictionaries from which learning is repeated, to find out what chance can do; 0 leaves the test out."""
    seed: int = 0


class Pairs(NamedTuple):
    """A dictionary as rows of words on both sides."""

    sources: Rows
    targets: Rows


class Nearest(NamedTuple):
    """For each query the row of the best key, its cosine and its CSLS."""

    rows: Int64[np.ndarray, " queries"]
    cosines: Float32[np.ndarray, " queries"]
    scores: Float32[np.ndarray, " queries"]
    drawn: Int64[np.ndarray, " queries"]
    """The row of the best key among those that were kept."""


class Learned(NamedTuple):
    """What self-learning from one start reached."""

    pairs: Pairs
    """For each word of either side its best partner."""
    objective: float
    """Their mean cosine."""
    rounds: int


# --- the parts --------------------------------------------------------------------------------------------------------


def units(vectors: Vectors) -> Vectors:
    """Vectors of length 1; zeros stay."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: Vectors = vectors / np.where(lengths > 0, lengths, np.float32(1))
    return scaled


def normalised(vectors: Vectors) -> Vectors:
    """Vectors of length 1 around the origin: scaled, centred, and scaled again."""
    scaled = units(vectors)
    return units(scaled - scaled.mean(axis=0))


def orthogonal_map(sources: Vectors, targets: Vectors) -> Float[np.ndarray, "width width"]:
    """The orthogonal W with the least ‖sources W − targets‖."""
    left, _, right = np.linalg.svd(sources.T @ targets)
    product: Float[np.ndarray, "width width"] = left @ right
    return product


def mean_nearest(queries: Vectors, keys: Vectors, count: int) -> Float32[np.ndarray, " queries"]:
    """The mean cosine of each query to its `count` nearest keys."""
    means = np.empty(len(queries), np.float32)
    for begin, end in _blocks(len(queries), len(keys)):
        fill_means(queries[begin:end] @ keys.T, min(count, len(keys)), means[begin:end])
    return means


def nearest(
    queries: Vectors,
    keys: Vectors,
    *,
    query_means: Float32[np.ndarray, " queries"],
    key_means: Float32[np.ndarray, " keys"],
    keep_rate: float = 1.0,
    seed: int = 0,
) -> Nearest:
    """The key with the highest CSLS for each query, and the best of those that a draw leaves."""
    rows, drawn = np.empty(len(queries), np.int64), np.empty(len(queries), np.int64)
    cosines = np.empty(len(queries), np.float32)
    kept = np.uint64(min(keep_rate, 1.0) * _ONE)
    for begin, end in _blocks(len(queries), len(keys)):
        found, part = queries[begin:end] @ keys.T, slice(begin, end)
        fill_best(found, key_means, begin, kept, np.uint64(seed), rows[part], drawn[part])
        cosines[part] = np.take_along_axis(found, rows[part, None], axis=1)[:, 0]
    return Nearest(rows, cosines, 2 * cosines - query_means - key_means[rows], drawn)


@compiled()
def fill_means(cosines: Array, count: int, means: Array) -> None:
    """The mean of the `count` highest numbers of each row."""
    highest = np.empty(count, np.float32)  # the lowest of them first
    for row in range(cosines.shape[0]):
        highest[:] = -np.inf
        for column in range(cosines.shape[1]):
            value = cosines[row, column]
            if value > highest[0]:
                place = 0
                while place + 1 < count and highest[place + 1] < value:
                    highest[place] = highest[place + 1]
                    place += 1
                highest[place] = value
        means[row] = highest.mean()


@compiled()
def fill_best(cosines: Array, key_means: Array, first: int, kept: Any, seed: Any, rows: Array, drawn: Array) -> None:
    """The best column of each row, of all and of those that are kept.

    Whether a cell is kept is a hash of its place, so it need not be drawn for cells that cannot become the best.
    """
    for row in range(cosines.shape[0]):
        best, best_drawn = np.float32(-np.inf), np.float32(-np.inf)
        rows[row] = drawn[row] = 0
        for column in range(cosines.shape[1]):
            score = np.float32(2) * cosines[row, column] - key_means[column]
            if score > best:
                best, rows[row] = score, column
            if score > best_drawn:
                z = seed + np.uint64(first + row) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(column)
                z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
                z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
                if (z ^ (z >> np.uint64(31))) >> np.uint64(32) < kept:
                    best_drawn, drawn[row] = score, column


def _blocks(queries: int, keys: int) -> list[tuple[int, int]]:
    step = max(1, _MAX_CELLS // max(1, keys))
    return [(begin, min(begin + step, queries)) for begin in range(0, queries, step)]


def principal_components(vectors: Vectors, count: int) -> Float32[np.ndarray, "width components"]:
    """The directions in which the vectors spread most."""
    _, _, right = np.linalg.svd(vectors, full_matrices=False)
    return np.ascontiguousarray(right[:count].T)


# --- the first dictionary ---------------------------------------------------------------------------------------------


def pairs_from_shape(
    sources: Vectors,
    targets: Vectors,
    *,
    neighbours: int,
    frequencies: tuple[Float64[np.ndarray, " sources"], Float64[np.ndarray, " targets"]] | None = None,
    weight: float = 1.0,
) -> Pairs:
    """Words whose similarities to the other words of their own language are distributed alike.

    With the relative frequencies f of the words, csls − λ ∣log f(x) − log f(z)∣ decides.
    """
    count = min(len(sources), len(targets), MAX_SHAPE_WORDS)
    one, other = _shape(sources[:count]), _shape(targets[:count])
    scores = 2 * (one @ other.T) - mean_nearest(one, other, neighbours)[:, None] - mean_nearest(other, one, neighbours)
    if frequencies is not None:
        source_logs, target_logs = (np.log(side[:count]).astype(np.float32) for side in frequencies)
        scores -= np.float32(weight) * np.abs(source_logs[:, None] - target_logs)
    return _joined(scores.argmax(axis=1), scores.argmax(axis=0))


def _shape(vectors: Vectors) -> Float[np.ndarray, "words words"]:
    """Sorted rows of (X Xᵀ)^½."""
    left, values, _ = np.linalg.svd(vectors, full_matrices=False)
    rows = (left * values) @ left.T
    rows.sort(axis=1)
    return normalised(rows)


def _joined(forward: Rows, backward: Rows) -> Pairs:
    return Pairs(
        np.concatenate([np.arange(len(forward)), backward]), np.concatenate([forward, np.arange(len(backward))])
    )


# --- self-learning ----------------------------------------------------------------------------------------------------


def self_learn(
    sources: Vectors,
    targets: Vectors,
    start: Pairs,
    *,
    settings: MappingSettings,
    seed: int,
    fixed: Pairs | None = None,
    progress: Callable[[int], None] = lambda _rounds: None,
) -> Learned:
    """Map and dictionary in turns until the objective stagnates. The pairs of `fixed` are part of every dictionary."""
    pairs, keep_rate, best, best_round = _with(start, fixed), FIRST_KEEP_RATE, -math.inf, 0
    for number in range(1, MAX_ROUNDS + 1):
        mapped = sources @ orthogonal_map(sources[pairs.sources], targets[pairs.targets])
        source_means = mean_nearest(mapped, targets, settings.neighbours)
        target_means = mean_nearest(targets, mapped, settings.neighbours)
        draws = (seed_for(seed, "vector mapping", number, side) for side in range(2))
        forward = nearest(
            mapped, targets, query_means=source_means, key_means=target_means, keep_rate=keep_rate, seed=next(draws)
        )
        backward = nearest(
            targets, mapped, query_means=target_means, key_means=source_means, keep_rate=keep_rate, seed=next(draws)
        )
        objective = float(forward.cosines.mean() + backward.cosines.mean()) / 2
        pairs = _with(_joined(forward.drawn, backward.drawn), fixed)
        progress(number)
        if objective > best + MIN_RISE:
            best, best_round = objective, number
        elif number - best_round >= settings.patience:
            if keep_rate == 1:
                break
            keep_rate, best_round = min(1.0, keep_rate * KEEP_GROWTH), number
    return Learned(pairs, objective, number)


def _with(pairs: Pairs, fixed: Pairs | None) -> Pairs:
    if fixed is None:
        return pairs
    return Pairs(np.concatenate([pairs.sources, fixed.sources]), np.concatenate([pairs.targets, fixed.targets]))


def weighted_maps(
    sources: Vectors, targets: Vectors
) -> tuple[Float[np.ndarray, "width width"], Float[np.ndarray, "width width"]]:
    """Maps of both sides into a space whose directions count as much as both sides agree in them.

    W_x = C_x^−½ U S^½ · Uᵀ C_x^½ U,  W_z = C_z^−½ V S^½ · Vᵀ C_z^½ V,  where U S Vᵀ = C_x^−½ Xᵀ Z C_z^−½, C_x = Xᵀ X
    """
    whitened = [_roots(side) for side in (sources, targets)]
    (source_white, source_root), (target_white, target_root) = whitened
    left, values, right = np.linalg.svd(source_white @ (sources.T @ targets) @ target_white)
    weights = np.sqrt(values)
    source_map: Float[np.ndarray, "width width"] = source_white @ (left * weights) @ (left.T @ source_root @ left)
    target_map: Float[np.ndarray, "width width"] = target_white @ (right.T * weights) @ (right @ target_root @ right.T)
    return source_map, target_map


def _roots(vectors: Vectors) -> tuple[np.ndarray, np.ndarray]:
    """C^−½ and C^½ of C = XᵀX; directions that hardly occur are not blown up."""
    _, values, right = np.linalg.svd(vectors, full_matrices=False)
    values = np.maximum(values, np.float32(1e-3) * values.max())
    return (right.T / values) @ right, (right.T * values) @ right


# --- is it better than chance? ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ChanceTest:
    """Whether a mapping fits better than those that are learned from random dictionaries.

    Self-learning always ends in a dictionary whose pairs are near each other, also between spaces that have nothing in
    common: it looks for the best agreement that the shapes allow. So the objective o of the dictionary is compared with
    the objectives o₁ … o_n that the same procedure reaches on the same words from n random dictionaries:

        t = (o − mean) / (sd · √(1 + 1 / n)),   p = P(T ≥ t) of Student's distribution with n − 1 degrees of freedom

    If the dictionary is just another local optimum, o is one more draw from their distribution, and p is uniform.
    Random dictionaries that lead to the same dictionary confirm it, since local optima differ, and are not among the n.
    """

    objective: float
    """The mean cosine of the dictionary's pairs."""
    random: tuple[float, ...]
    """The same from random dictionaries that led elsewhere."""
    confirmations: int = 0
    """Random dictionaries that led to the same dictionary."""
    attempts: int = 1
    """Dictionaries of which this is the best: p is multiplied by their number (Bonferroni)."""

    @property
    def p_value(self) -> float:
        """The chance that as many random dictionaries lead to such an objective."""
        count = len(self.random)
        if count < 2:  # the others agree
            return 0.0
        spread = max(float(np.std(self.random, ddof=1)), MIN_RISE)
        t = (self.objective - float(np.mean(self.random))) / (spread * math.sqrt(1 + 1 / count))
        return min(1.0, self.attempts * student_tail(t, count - 1))

    @property
    def is_passed(self) -> bool:
        """Whether the dictionary is better than chance."""
        return self.p_value < MAX_P_VALUE

    def __str__(self) -> str:
        text = f"{'' if self.is_passed else 'no '}better than chance: mean cosine {self.objective:.3f}"
        if self.random:
            low, high = min(self.random), max(self.random)
            text += f", from {len(self.random)} random dictionaries {low:.3f} to {high:.3f} (p = {self.p_value:.2g})"
        return text + (f"; {self.confirmations} random dictionaries led to the same" if self.confirmations else "")


@cache
def _quadrature() -> tuple[np.ndarray, np.ndarray]:
    return np.polynomial.legendre.leggauss(64)


def student_tail(t: float, freedom: int) -> float:
    """P(T ≥ t) of Student's distribution: T = √ν tan φ, where φ has a density proportional to cos^(ν − 1) φ."""
    nodes, weights = _quadrature()

    def integral(begin: float, end: float) -> float:
        angles = (end - begin) / 2 * nodes + (end + begin) / 2
        return float((end - begin) / 2 * (weights * np.cos(angles) ** (freedom - 1)).sum())

    low = math.atan(t / math.sqrt(freedom))
    return integral(low, math.pi / 2) / integral(-math.pi / 2, math.pi / 2)


def chance_test(
    sources: Vectors,
    targets: Vectors,
    pairs: Pairs,
    *,
    settings: MappingSettings,
    attempts: int = 1,
    progress: Callable[[int], None] = lambda _trials: None,
) -> ChanceTest:
    """Learn from the given dictionary and from random ones, all on the most frequent words only, and compare."""
    sources, targets = sources[:CHANCE_WORDS], targets[:CHANCE_WORDS]
    is_inside = (pairs.sources < len(sources)) & (pairs.targets < len(targets))
    inside = Pairs(pairs.sources[is_inside], pairs.targets[is_inside])
    found = self_learn(sources, targets, inside, settings=settings, seed=seed_for(settings.seed, "chance", 0))
    objectives, count = [], min(len(sources), len(targets))
    for trial in range(1, settings.trials + 1):
        seed = seed_for(settings.seed, "chance", trial)
        generator = np.random.default_rng(seed)
        start = Pairs(generator.permutation(len(sources))[:count], generator.permutation(len(targets))[:count])
        reached = self_learn(sources, targets, start, settings=settings, seed=seed)
        words = slice(len(sources))
        if (reached.pairs.targets[words] == found.pairs.targets[words]).mean() < MIN_AGREEMENT:
            objectives.append(reached.objective)
        progress(trial)
    return ChanceTest(found.objective, tuple(objectives), settings.trials - len(objectives), attempts)


# --- from vectors to a dictionary -------------------------------------------------------------------------------------


MIN_CANDIDATES = 50
"""Translations of a word by each of several mappings, from which the best on average are taken."""


class WordPair(NamedTuple):
    """A word, its translation, and how probable it is among all words of the other side."""

    source: str
    target: str
    probability: float


@dataclass(frozen=True, eq=False)
class VectorMapping:
    """The words of two languages in one space."""

    source: WordVectors
    """Mapped vectors of length 1."""
    target: WordVectors
    start: Start
    """Where the first dictionary came from."""
    objective: float
    """The mean cosine of the dictionary's pairs at the end of self-learning."""
    learned_words: tuple[int, int]
    """Words of each side that were learned from."""
    neighbours: int
    seeds: Sequence[tuple[str, str]]
    """The pairs that it started from, which the dictionary repeats."""
    chance: ChanceTest | None
    """None if it was left out."""

    def dictionary(self, *, words: int | None = None, translations: int = 1) -> list[WordPair]:
        """The best translations of the `words` most frequent words, by falling CSLS.

        P(z ∣ x) = exp(β csls(x, z)) / Σ_z' exp(β csls(x, z')),   β = 10
        """
        sources, targets = self.source.vectors[:words], self.target.vectors[:words]
        key_means = mean_nearest(targets, sources, self.neighbours)
        given: dict[str, list[str]] = {}
        for one, other in self.seeds:
            given.setdefault(one, []).append(other)
        found: list[WordPair] = []
        for begin, end in _blocks(len(sources), len(targets)):
            # r(x) is the same for all translations of x.
            scores = SHARPNESS * (2 * (sources[begin:end] @ targets.T) - key_means)
            scores -= scores.max(axis=1, keepdims=True)
            totals = np.exp(scores).sum(axis=1)
            order = _highest(scores, min(translations, len(targets)))
            for row, (columns, total) in enumerate(zip(order.tolist(), totals.tolist(), strict=True)):
                word = self.source.words[begin + row]
                if word not in given:
                    shares = np.exp(scores[row, columns]) / total
                    found += map(WordPair, repeat(word), (self.target.words[at] for at in columns), shares.tolist())
                else:
                    found += (WordPair(word, each, 1 / len(given[word])) for each in given[word])
        unseen = ((word, others) for word, others in given.items() if word not in self.source.rows)
        return found + [WordPair(word, each, 1 / len(others)) for word, others in unseen for each in others]


def joint_dictionary(
    mappings: Sequence[VectorMapping], *, words: int | None = None, translations: int = 1
) -> list[WordPair]:
    """The dictionary of several mappings of the same languages: P(z ∣ x) is the mean of theirs.

    Vectors of little text are noisy, and each training makes other errors: the mean has far more right translations
    than any of them.
    """
    if len(mappings) == 1:
        return mappings[0].dictionary(words=words, translations=translations)
    shares: dict[str, dict[str, float]] = {}
    for mapping in mappings:
        for pair in mapping.dictionary(words=words, translations=max(MIN_CANDIDATES, translations)):
            of_word = shares.setdefault(pair.source, {})
            of_word[pair.target] = of_word.get(pair.target, 0.0) + pair.probability / len(mappings)
    return [
        WordPair(word, other, share)
        for word, found in shares.items()
        for other, share in sorted(found.items(), key=lambda each: -each[1])[:translations]
    ]


def _highest(scores: Float[np.ndarray, "rows columns"], count: int) -> Int64[np.ndarray, "rows count"]:
    """The columns of the `count` highest scores of each row, the highest first; of equal ones the first."""
    places = np.sort(np.argpartition(-scores, count - 1, axis=1)[:, :count], axis=1)
    order = np.argsort(-np.take_along_axis(scores, places, axis=1), axis=1, kind="stable")
    found: Int64[np.ndarray, "rows count"] = np.take_along_axis(places, order, axis=1)
    return found


def map_vectors(
    source: WordVectors,
    target: WordVectors,
    *,
    start: Start | None = None,
    seeds: Sequence[tuple[str, str]] = (),
    settings: MappingSettings | None = None,
    progress: Progress = lambda _what, _done, _total: None,
) -> VectorMapping:
    """Map two languages into one space by self-learning.

    Without a start, that of the seeds is taken if there are any; else both equal strings (if there are enough of them)
    and nothing are tried, and the mapping with the higher objective is kept. `progress` receives what is done, how much
    of it, and how much there is in all, if that is known.
    """
    settings = settings or MappingSettings()
    counts = [_reliable(side, settings, name) for side, name in ((source, "first"), (target, "second"))]
    components = min(source.width, target.width, max(MIN_COMPONENTS, min(counts) // WORDS_PER_COMPONENT))
    sides = []
    for side, count in zip((source, target), counts, strict=True):
        vectors = normalised(side.vectors)
        sides.append(units(vectors @ principal_components(vectors[:count], components)))
    learned = [side[:count] for side, count in zip(sides, counts, strict=True)]
    given = _known_pairs(seeds, source, target, counts)
    best: tuple[Start, Learned] | None = None
    for name, pairs in _starts(start, given, source, target, learned, settings, progress):
        found = self_learn(
            learned[0],
            learned[1],
            pairs,
            settings=settings,
            seed=seed_for(settings.seed, f"start {name}"),
            fixed=_repeated(given, sum(counts)) if name == "seeds" else None,
            progress=partial(_report, progress, f"learning from {START_NAMES[name]}"),
        )
        if best is None or found.objective > best[1].objective:
            best = name, found
    assert best is not None
    name, found = best
    chance = None
    if settings.trials:
        chance = chance_test(
            learned[0],
            learned[1],
            found.pairs,
            settings=settings,
            attempts=settings.attempts if name == "nothing" else 1,
            progress=lambda trial: progress("testing random dictionaries", trial, settings.trials),
        )
    source_map, target_map = weighted_maps(learned[0][found.pairs.sources], learned[1][found.pairs.targets])
    return VectorMapping(
        WordVectors(source.words, units(sides[0] @ source_map), source.counts),
        WordVectors(target.words, units(sides[1] @ target_map), target.counts),
        name,
        found.objective,
        (counts[0], counts[1]),
        settings.neighbours,
        tuple(seeds) if name == "seeds" else (),
        chance,
    )


def _report(progress: Progress, what: str, rounds: int) -> None:
    progress(what, rounds, None)


def _reliable(side: WordVectors, settings: MappingSettings, name: str) -> int:
    """How many words of a side are learned from: the most frequent ones, whose vectors can be relied on."""
    count = min(len(side), settings.vocabulary)
    if side.counts.any():  # a file may have none
        count = min(count, int((side.counts >= settings.minimum_count).sum()))
    if count < MIN_WORDS:
        raise DataError(
            f"the {name} vectors have {count:,} words to learn from (seen {settings.minimum_count} times or more), but "
            f"{MIN_WORDS} are needed; give vectors of more text"
        )
    return count


def _starts(
    start: Start | None,
    given: Pairs,
    source: WordVectors,
    target: WordVectors,
    learned: Sequence[Vectors],
    settings: MappingSettings,
    progress: Progress,
) -> Iterator[tuple[Start, Pairs]]:
    """The first dictionaries to try."""
    if start == "seeds" or (start is None and len(given.sources)):
        if len(given.sources) < MIN_PAIRS:
            raise DataError(
                f"{len(given.sources)} seeds are frequent words of both vector files, but {MIN_PAIRS} are needed; "
                "give more pairs of frequent words"
            )
        yield "seeds", given
        return
    if start != "nothing":
        counts = [len(side) for side in learned]
        equal = _known_pairs([(word, word) for word in source.words[: counts[0]]], source, target, counts)
        if len(equal.sources) >= MIN_PAIRS:
            yield "equal", equal
        elif start == "equal":
            raise DataError(
                f"{len(equal.sources)} frequent words are spelled alike on both sides, but {MIN_PAIRS} are needed; "
                "start from nothing, or give seeds"
            )
    if start != "equal":
        frequencies = None
        if source.counts.any() and target.counts.any():
            one, other = (side.counts / side.counts.sum() for side in (source, target))
            frequencies = one, other
        yield "nothing", _best_attempt(learned, frequencies, settings, progress)


def _best_attempt(
    learned: Sequence[Vectors],
    frequencies: tuple[np.ndarray, np.ndarray] | None,
    settings: MappingSettings,
    progress: Progress,
) -> Pairs:
    """Learn from the shapes of the spaces several times, on the most frequent words, and take the best dictionary.

    The start is weak, so that a single attempt often ends in a poor local optimum; the objective shows which do.
    """
    sources, targets = (side[:ATTEMPT_WORDS] for side in learned)
    best: Learned | None = None
    for attempt in range(settings.attempts):
        start = pairs_from_shape(
            sources,
            targets,
            neighbours=settings.neighbours,
            frequencies=frequencies,
            weight=FREQUENCY_WEIGHTS[attempt % len(FREQUENCY_WEIGHTS)],
        )
        found = self_learn(sources, targets, start, settings=settings, seed=seed_for(settings.seed, "attempt", attempt))
        if best is None or found.objective > best.objective:
            best = found
        progress("trying to start from nothing", attempt + 1, settings.attempts)
    assert best is not None
    return best.pairs


def _known_pairs(
    words: Sequence[tuple[str, str]], source: WordVectors, target: WordVectors, counts: Sequence[int]
) -> Pairs:
    """The rows of those pairs whose words are both learned from."""
    rows = [(source.rows.get(one, counts[0]), target.rows.get(other, counts[1])) for one, other in words]
    inside = [pair for pair in rows if pair[0] < counts[0] and pair[1] < counts[1]]
    columns = np.array(inside, np.int64).reshape(-1, 2)
    return Pairs(columns[:, 0], columns[:, 1])


def _repeated(pairs: Pairs, others: int) -> Pairs:
    times = max(1, round(SEED_SHARE / (1 - SEED_SHARE) * others / len(pairs.sources)))
    return Pairs(np.tile(pairs.sources, times), np.tile(pairs.targets, times))
