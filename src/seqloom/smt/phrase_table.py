"""The phrase table: translations of source phrases with their scores, in arrays that may be memory-mapped.

    φ(f ∣ e) = c(f, e) / Σ_f' c(f', e)          how often the source phrase f was the translation of e, and φ(e ∣ f)
    lex(f ∣ e) = Π_i mean_j w(f_i ∣ e_j)        by single words: j runs over the words to which f_i is linked, or the
                                                null word; w is the share of the links; and lex(e ∣ f)
    P(o ∣ f, e) = (c(o, f, e) + σ P(o ∣ f)) / (c(f, e) + σ)     o: monotone, swap or discontinuous, for the phrase
                                                before and the phrase after

With `smoothing="kneser_ney"`, φ is discounted, because most phrase pairs occur once (Foster et al., 2006):

    φ(e ∣ f) = (c(f, e) − D(c)) / c(f) + γ(f) n(e) / Σ_e' n(e')        n(e): how many source phrases e translates

Source phrases are a trie. Node by node: single words first, then pairs, and so on; the children of a node are the
phrases with one more word, contiguous, by rising word.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int32, Int64, UInt8

from seqloom.classical.alignment import Bitext
from seqloom.core.errors import ModelError
from seqloom.core.jit import compiled
from seqloom.core.symbols import PAD, RESERVED
from seqloom.smt.extraction import MAX_PHRASE_WORDS, PhraseNumbers, PhrasePairs, WordLinks

SCORES = ("phrase_backward", "lexical_backward", "phrase_forward", "lexical_forward")
"""φ(f ∣ e), lex(f ∣ e), φ(e ∣ f), lex(e ∣ f)."""

NULL = PAD
"""Means no word in the counts of links; padding is not a word of any text."""

LEAST_WEIGHT = 1e-7
"""The least w, for words that were never linked where the links of another occurrence are taken."""

SOURCE_STRENGTH, PAIR_STRENGTH = 10.0, 3.0
"""σ of the orientations: of a source phrase to all phrases, and of a pair to its source phrase."""

Smoothing = Literal["none", "kneser_ney"]

Array = Any
"""numba infers types and shapes."""


class PhraseTable(NamedTuple):
    """A trie of source phrases and the options of each node, the best first."""

    words: Int32[np.ndarray, " nodes"]
    """The last word of each source phrase."""
    children: Int64[np.ndarray, " nodes_and_one"]
    """The first child of each node; they end at the first child of the next one. There are `children[0]` roots."""
    options: Int64[np.ndarray, " nodes_and_one"]
    """The first option of each node."""
    target_starts: Int64[np.ndarray, " options_and_one"]
    targets: Int32[np.ndarray, " target_words"]
    links: UInt8[np.ndarray, " target_words"]
    """The source words to which a target word is linked, one bit each."""
    scores: Float32[np.ndarray, "options four"]
    """Natural logarithms, in the order of `SCORES`."""
    orientations: Float32[np.ndarray, "options six"]
    """log P of monotone, swap and discontinuous with the phrase before, then with the phrase after."""

    @staticmethod
    def restore(arrays: Mapping[str, np.ndarray], *, sources: int, targets: int) -> "PhraseTable":
        """The table whose arrays these are, for vocabularies of these sizes; they may be mapped files.

        Refuses arrays with which the compiled loops, which check nothing, could read out of bounds.
        """
        missing = [name for name in PhraseTable._fields if name not in arrays]
        if missing:
            raise ModelError(f"not a phrase table: {', '.join(missing)} missing")
        table = PhraseTable(*(np.asarray(arrays[name]) for name in PhraseTable._fields))
        nodes, options = len(table.words), len(table.scores)
        shapes = {
            "words": (np.int32, (nodes,)),
            "children": (np.int64, (nodes + 1,)),
            "options": (np.int64, (nodes + 1,)),
            "target_starts": (np.int64, (options + 1,)),
            "targets": (np.int32, (len(table.targets),)),
            "links": (np.uint8, (len(table.targets),)),
            "scores": (np.float32, (options, len(SCORES))),
            "orientations": (np.float32, (options, 6)),
        }
        for name, (kind, shape) in shapes.items():
            array: np.ndarray = getattr(table, name)
            if array.dtype != kind or array.shape != shape:
                raise ModelError(
                    f"the phrase table is damaged: {name} is {array.dtype} of shape {list(array.shape)}, expected "
                    f"{np.dtype(kind)} of shape {list(shape)}; fit the model again"
                )
        wrong = {
            "words": not _are_within(table.words, sources) or not _are_sorted(table.words, table.children),
            # A child comes after its parent, so that no path returns to a node.
            "children": not _are_borders(table.children, nodes)
            or bool((table.children[:-1] <= np.arange(nodes)).any()),
            "options": table.options[0] != 0 or not _are_borders(table.options, options),
            "target_starts": table.target_starts[0] != 0 or not _are_borders(table.target_starts, len(table.targets)),
            "targets": not _are_within(table.targets, targets),
            "scores": not np.isfinite(table.scores).all(),
            "orientations": not np.isfinite(table.orientations).all(),
        }
        if found := [name for name, is_wrong in wrong.items() if is_wrong]:
            raise ModelError(f"the phrase table is damaged: {' and '.join(found)} out of range; fit the model again")
        return table

    def arrays(self) -> dict[str, np.ndarray]:
        """The table as arrays for a file."""
        return dict(self._asdict())

    def find(self, ids: Int32[np.ndarray, " words"]) -> "Matches":
        """All options of all spans of a sentence."""
        spans = np.empty((len(ids) * MAX_PHRASE_WORDS, 4), np.int64)
        spans = spans[: find_spans(self, ids, spans)]
        sizes = spans[:, 3] - spans[:, 2]
        firsts = np.cumsum(sizes) - sizes
        numbers = np.arange(int(sizes.sum())) - np.repeat(firsts - spans[:, 2], sizes)
        begins, ends = (np.repeat(spans[:, side], sizes).astype(np.int32) for side in (0, 1))
        return Matches(begins, ends, numbers)


class Matches(NamedTuple):
    """Options of the spans of a sentence, by rising begin and end, the best first."""

    begins: Int32[np.ndarray, " matches"]
    ends: Int32[np.ndarray, " matches"]
    options: Int64[np.ndarray, " matches"]
    """Their numbers in the table."""


def _are_within(ids: Int32[np.ndarray, " _"], symbols: int) -> bool:
    return not len(ids) or bool(len(RESERVED) <= ids.min() and ids.max() < symbols)


def _are_borders(starts: Int64[np.ndarray, " _"], last: int) -> bool:
    # Compared, not subtracted: differences of damaged numbers overflow.
    return bool(starts[0] >= 0 and starts[-1] == last and (starts[1:] >= starts[:-1]).all())


def _are_sorted(words: Int32[np.ndarray, " nodes"], children: Int64[np.ndarray, " nodes_and_one"]) -> bool:
    """Whether the words of the roots and of the children of each node rise, as a lookup expects."""
    is_first = np.zeros(len(words) + 1, np.bool_)
    is_first[children[(children >= 0) & (children <= len(words))]] = True
    return bool((is_first[1:-1] | (words[1:] > words[:-1])).all())


@compiled()
def find_node(words: Array, first: int, end: int, word: int) -> int:
    """The node with this word between two nodes, −1 if there is none."""
    while first < end:
        middle = (first + end) // 2
        if words[middle] < word:
            first = middle + 1
        elif words[middle] > word:
            end = middle
        else:
            return middle
    return -1


@compiled()
def find_spans(table: PhraseTable, ids: Array, spans: Array) -> int:
    """Write begin, end, first and last option of the spans that have options; returns their number."""
    size = 0
    for begin in range(len(ids)):
        first: Any = np.int64(0)
        last: Any = table.children[0]
        for end in range(begin + 1, min(len(ids), begin + MAX_PHRASE_WORDS) + 1):
            node = find_node(table.words, first, last, ids[end - 1])
            if node < 0:
                break
            if table.options[node] < table.options[node + 1]:
                spans[size, 0], spans[size, 1] = begin, end
                spans[size, 2], spans[size, 3] = table.options[node], table.options[node + 1]
                size += 1
            first, last = table.children[node], table.children[node + 1]
    return size


# --- scores ----------------------------------------------------------------------------------------------------------


class WordWeights(NamedTuple):
    """w of all linked pairs of words: keys rise, source word · width + target word."""

    width: int
    keys: Int64[np.ndarray, " entries"]
    counts: Int64[np.ndarray, " entries"]
    forward: Float64[np.ndarray, " entries"]
    """w(e ∣ f): the share of the links of the source word."""
    backward: Float64[np.ndarray, " entries"]
    """w(f ∣ e): the share of the links of the target word."""

    @staticmethod
    def of(bitext: Bitext, links: WordLinks) -> "WordWeights":
        """Count links; a word without any is linked to the null word."""
        sentences = np.repeat(np.arange(bitext.pairs), np.diff(links.starts))
        sources = bitext.source_starts[sentences] + links.sources
        targets = bitext.target_starts[sentences] + links.targets
        alone_source, alone_target = np.ones(len(bitext.sources), np.bool_), np.ones(len(bitext.targets), np.bool_)
        alone_source[sources] = alone_target[targets] = False
        left, right = bitext.sources[alone_source], bitext.targets[alone_target]
        f = np.concatenate([bitext.sources[sources], left, np.full(len(right), NULL, np.int32)]).astype(np.int64)
        e = np.concatenate([bitext.targets[targets], np.full(len(left), NULL, np.int32), right]).astype(np.int64)
        width = int(e.max(initial=0)) + 1
        keys, counts = np.unique(f * width + e, return_counts=True)
        f, e = keys // width, keys % width
        return WordWeights(
            width,
            keys,
            counts,
            counts / np.bincount(f, weights=counts)[f],
            counts / np.bincount(e, weights=counts)[e],
        )


@compiled()
def weight_of(weights: WordWeights, values: Array, source: int, target: int) -> float:
    """w of a pair of words."""
    key = np.int64(source) * weights.width + target
    entry = np.searchsorted(weights.keys, key)
    found = entry < len(weights.keys) and weights.keys[entry] == key
    return max(LEAST_WEIGHT, values[entry]) if found else LEAST_WEIGHT


@compiled()
def lexical_scores(sources: Array, targets: Array, masks: Array, weights: WordWeights) -> tuple[float, float]:
    """log lex(f ∣ e) and log lex(e ∣ f) of a phrase pair."""
    forward = 0.0
    for j in range(len(targets)):
        total, links = 0.0, 0
        for i in range(len(sources)):
            if (masks[j] >> i) & 1:
                total += weight_of(weights, weights.forward, sources[i], targets[j])
                links += 1
        forward += np.log(total / links if links else weight_of(weights, weights.forward, NULL, targets[j]))
    backward = 0.0
    for i in range(len(sources)):
        total, links = 0.0, 0
        for j in range(len(targets)):
            if (masks[j] >> i) & 1:
                total += weight_of(weights, weights.backward, sources[i], targets[j])
                links += 1
        backward += np.log(total / links if links else weight_of(weights, weights.backward, sources[i], NULL))
    return backward, forward


@compiled()
def write_phrase(number: int, length: int, parents: Array, words: Array, out: Array) -> None:
    """The words of a phrase."""
    for place in range(length - 1, -1, -1):
        out[place] = words[number]
        number = parents[number]


@compiled()
def fill_lexical(
    source: Array,
    source_lengths: Array,
    parents: Array,
    words: Array,
    target_starts: Array,
    targets: Array,
    masks: Array,
    weights: WordWeights,
    scores: Array,
) -> None:
    """The lexical scores of all phrase pairs."""
    phrase = np.empty(MAX_PHRASE_WORDS, np.int32)
    for row in range(len(source)):
        write_phrase(source[row], source_lengths[row], parents, words, phrase)
        some = slice(target_starts[row], target_starts[row + 1])
        scores[row, 1], scores[row, 3] = lexical_scores(
            phrase[: source_lengths[row]], targets[some], masks[some], weights
        )


@compiled()
def fill_targets(target: Array, target_starts: Array, parents: Array, words: Array, out: Array) -> None:
    """The words of the target phrases, one after another."""
    for row in range(len(target)):
        begin, end = target_starts[row], target_starts[row + 1]
        write_phrase(target[row], end - begin, parents, words, out[begin:end])


@compiled()
def copy_words(
    kept: Array, starts: Array, words: Array, links: Array, kept_starts: Array, kept_words: Array, kept_links: Array
) -> None:
    """The words and links of the rows that are kept."""
    for row in range(len(kept)):
        begin, size = starts[kept[row]], kept_starts[row + 1] - kept_starts[row]
        for place in range(size):
            kept_words[kept_starts[row] + place] = words[begin + place]
            kept_links[kept_starts[row] + place] = links[begin + place]


def discounts_of(counts: Int64[np.ndarray, " pairs"]) -> Float64[np.ndarray, " four"]:
    """D(0), D(1), D(2) and D(3 and more) of modified Kneser-Ney, from how many pairs have each count."""
    seen = np.bincount(np.minimum(counts, 5), minlength=6)
    y = seen[1] / max(1, seen[1] + 2 * seen[2])
    found = [0.0]
    for count in (1, 2, 3):
        # Where no pair has this count, half of it.
        estimate = count - (count + 1) * y * seen[count + 1] / seen[count] if seen[count] else 0.5 * count
        found.append(min(float(count), max(0.0, float(estimate))))
    return np.array(found)


def conditional(
    given: Int64[np.ndarray, " pairs"],
    outcome: Int64[np.ndarray, " pairs"],
    counts: Int64[np.ndarray, " pairs"],
    *,
    smoothing: Smoothing,
) -> Float64[np.ndarray, " pairs"]:
    """φ(outcome ∣ given) of phrase pairs with these counts."""
    totals = np.bincount(given, weights=counts)
    found = counts.astype(np.float64)
    if smoothing == "none":
        found /= totals[given]
        return found
    # In place, because there may be tens of millions of pairs.
    taken = discounts_of(counts)[np.minimum(counts, 3)]
    found -= taken
    found /= totals[given]
    shares = np.bincount(given, weights=taken) / np.maximum(totals, 1)
    del taken, totals
    rest = shares[given]
    rest *= (np.bincount(outcome) / max(1, len(outcome)))[outcome]
    found += rest
    return found


def orientation_scores(
    source: Int64[np.ndarray, " pairs"],
    orientations: Int32[np.ndarray, "pairs six"],
    rows: Int64[np.ndarray, " some"],
) -> Float32[np.ndarray, "some six"]:
    """log P(o ∣ f, e) of some of the phrase pairs."""
    result = np.empty((len(rows), 6), np.float32)
    for side in (slice(0, 3), slice(3, 6)):
        counts = orientations[:, side]
        of_all = (counts.sum(axis=0) + 1) / (counts.sum() + 3)
        prior = np.stack([np.bincount(source, weights=column)[source[rows]] for column in counts.T], axis=1)
        prior = (prior + SOURCE_STRENGTH * of_all) / (prior.sum(axis=1, keepdims=True) + SOURCE_STRENGTH)
        own = counts[rows]
        smoothed = (own + PAIR_STRENGTH * prior) / (own.sum(axis=1, keepdims=True) + PAIR_STRENGTH)
        result[:, side] = np.log(smoothed)
    return result


# --- building --------------------------------------------------------------------------------------------------------


def build_table(
    pairs: PhrasePairs, weights: WordWeights, *, smoothing: Smoothing = "kneser_ney", options: int = 20
) -> PhraseTable:
    """Score all phrase pairs, and keep the best `options` of each source phrase by the sum of their scores."""
    pairs = with_linked_words(pairs, weights)
    target_starts, targets = _target_words(pairs.target, pairs.targets)
    scores = np.empty((len(pairs.counts), len(SCORES)), np.float32)
    scores[:, 0] = np.log(conditional(pairs.target, pairs.source, pairs.counts, smoothing=smoothing))
    scores[:, 2] = np.log(conditional(pairs.source, pairs.target, pairs.counts, smoothing=smoothing))
    lengths, numbers = pairs.sources.lengths(pairs.source), pairs.sources
    fill_lexical(
        pairs.source, lengths, numbers.parents, numbers.words, target_starts, targets, pairs.links, weights, scores
    )
    order = np.lexsort((pairs.target, -scores.sum(axis=1), pairs.source))  # the source numbers stay in order
    counts = np.bincount(pairs.source)
    rank = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    kept = order[rank < options]
    source = pairs.source[kept]
    kept_starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.diff(target_starts)[kept])])
    kept_targets, kept_links = np.empty(kept_starts[-1], np.int32), np.empty(kept_starts[-1], np.uint8)
    copy_words(kept, target_starts, targets, pairs.links, kept_starts, kept_targets, kept_links)
    del order, rank
    words, children, nodes = _trie(pairs.sources, source)
    starts = np.zeros(len(words) + 1, np.int64)
    starts[1:] = np.cumsum(np.bincount(nodes, minlength=len(words)))
    return PhraseTable(
        words,
        children,
        starts,
        kept_starts,
        kept_targets,
        kept_links,
        scores[kept],
        orientation_scores(pairs.source, pairs.orientations, kept),
    )


def with_linked_words(pairs: PhrasePairs, weights: WordWeights) -> PhrasePairs:
    """Also each word that is in no phrase pair by itself, with the words to which it is linked.

    Such words are linked together with others, to one word. Without a translation of their own they would be unknown
    in any other context. Nothing is known of their orientations.
    """
    f, e = weights.keys // weights.width, weights.keys % weights.width
    words = pairs.sources.words[: pairs.sources.borders[1]]
    is_alone = np.ones(len(words), np.bool_)
    is_alone[pairs.source[pairs.source < len(words)]] = False
    is_added = (f != NULL) & (e != NULL)
    is_added[is_added] = is_alone[np.searchsorted(words, f[is_added])]
    added = int(is_added.sum())
    targets = np.searchsorted(pairs.targets.words[: pairs.targets.borders[1]], e[is_added])
    return replace(
        pairs,
        source=np.concatenate([pairs.source, np.searchsorted(words, f[is_added])]),
        target=np.concatenate([pairs.target, targets]),
        counts=np.concatenate([pairs.counts, weights.counts[is_added]]),
        orientations=np.concatenate([pairs.orientations, np.zeros((added, 6), np.int32)]),
        link_starts=np.concatenate([pairs.link_starts, pairs.link_starts[-1] + 1 + np.arange(added)]),
        links=np.concatenate([pairs.links, np.ones(added, np.uint8)]),
    )


def _target_words(
    target: Int64[np.ndarray, " pairs"], numbers: PhraseNumbers
) -> tuple[Int64[np.ndarray, " borders"], Int32[np.ndarray, " words"]]:
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(numbers.lengths(target))])
    words = np.empty(int(starts[-1]), np.int32)
    fill_targets(target, starts, numbers.parents, numbers.words, words)
    return starts, words


def _trie(
    numbers: PhraseNumbers, source: Int64[np.ndarray, " options"]
) -> tuple[Int32[np.ndarray, " nodes"], Int64[np.ndarray, " borders"], Int64[np.ndarray, " options"]]:
    """Words and first children of the nodes that lead to these source phrases, and the node of each of them."""
    is_kept: Bool[np.ndarray, " phrases"] = np.zeros(len(numbers.words), np.bool_)
    is_kept[source] = True
    for begin, end in zip(numbers.borders[-2:0:-1], numbers.borders[:1:-1], strict=True):  # longest first
        level = slice(int(begin), int(end))
        is_kept[numbers.parents[level][is_kept[level]]] = True
    nodes = np.cumsum(is_kept) - 1
    parents, words = numbers.parents[is_kept], numbers.words[is_kept]
    roots = int((parents < 0).sum())
    children = np.bincount(nodes[parents[roots:]], minlength=len(words))
    starts = np.concatenate([np.full(1, roots, np.int64), roots + np.cumsum(children)])
    return words, starts, nodes[source]
