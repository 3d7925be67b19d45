"""Stack decoding: the best sequence of translation options that covers a sentence (Koehn et al., 2003).

    score(o_1 … o_K) = Σ_k s(o_k)                                      table and penalties of each option
                     + Σ_k previous(o_k, d_k) + Σ_k next(o_k, d_(k+1)) lexicalised orientations
                     + λ_lm ln P(y END)                                n-gram model of the target words
                     + λ_d Σ_k ∣begin_k − end_(k−1)∣                   words jumped over; end_0 = 0
    d_k = monotone        begin_k = end_(k−1)                          the sentence ends with a phrase that begins at n
        = swap            end_k = begin_(k−1)
        = discontinuous   otherwise

A hypothesis has translated some source words. Those that have translated equally many form a stack, of which the best
are kept, ranked by score plus future cost: the best that the remaining spans could add, each by itself. Hypotheses
with the same coverage, language model state and last phrase (as far as the next one depends on it) are recombined:
only the best goes on, the others stay in a lattice, from which the n best derivations are read in exact order.

Jumps may be limited: ∣begin_k − end_(k−1)∣ ≤ limit, and a phrase behind the first untranslated word must end at most
`limit` words behind it. By induction the first untranslated word can then always be reached next, so no hypothesis is
stuck as long as each source word has an option of its own.

`seqloom.reference.stack` is the same search to read.
"""

import math
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64, Int32, Int64, Integer

from seqloom.classical.ngram import Trie, backoff_sum, read_word
from seqloom.core.errors import UsageError
from seqloom.core.jit import compiled
from seqloom.core.symbols import BEGIN, END

MONOTONE, SWAP, DISCONTINUOUS = 0, 1, 2
"""Where a phrase lies after the one before it."""

Array = Any
"""numba infers types and shapes."""

_LN10 = math.log(10)


class Options(NamedTuple):
    """The translation options of one sentence, in any order."""

    begins: Int32[np.ndarray, " options"]
    """The first word of the source span of each."""
    ends: Int32[np.ndarray, " options"]
    """One behind the last word of the span."""
    target_starts: Int64[np.ndarray, " options_and_one"]
    """Option k translates to `targets[target_starts[k]:target_starts[k + 1]]`."""
    targets: Int32[np.ndarray, " words"]
    scores: Float64[np.ndarray, " options"]
    """The weighted sum of their own features, language model excluded."""
    orientations: Float64[np.ndarray, "options 6"]
    """Weighted scores of monotone, swap and discontinuous with respect to the previous phrase, then to the next."""


class StackSettings(NamedTuple):
    """How much is searched, and the weights of what depends on several options."""

    beam: int = 200
    """Hypotheses that a stack keeps."""
    pop_limit: int = 1000
    """Hypotheses that are made for each stack, in the order that cube pruning finds them; 0 makes all."""
    threshold: float = math.inf
    """How far below the best of its stack a hypothesis may be."""
    distortion_limit: int = 6
    """Words that may be jumped over; below 0 any number."""
    language_model_weight: float = 1.0
    distortion_weight: float = -0.1
    """Multiplies the number of words jumped over: below 0 to avoid jumps."""


class Derivation(NamedTuple):
    """A translation as the options that it consists of."""

    score: float
    options: tuple[int, ...]
    """Indices of options in the order of the target."""


class Terms(NamedTuple):
    """What a derivation scores beside the options' own features, without weights."""

    language_model: float
    """ln P(y END)."""
    distortion: int
    """Words jumped over."""
    orientations: Int64[np.ndarray, " options_and_one"]
    """MONOTONE, SWAP or DISCONTINUOUS of each option after the one before, and of the end of the sentence."""


def decode(
    options: Options, source_length: int, trie: Trie, order: int, settings: StackSettings, *, nbest: int = 1
) -> list[Derivation]:
    """At most `nbest` different derivations, best first; none if the options cannot cover the sentence."""
    return _Decoder(trie, order, settings, nbest).decode(options, source_length)


def decode_many(
    sentences: Sequence[tuple[Options, int]],
    trie: Trie,
    order: int,
    settings: StackSettings,
    *,
    nbest: int = 1,
    threads: int = 1,
    is_cancelled: Callable[[int], bool] | None = None,
) -> list[list[Derivation]]:
    """`decode` of many sentences, each its options and its length. The number of threads does not change any bit.

    A sentence for whose index `is_cancelled` returns True has no derivations; threads ask before they begin it.
    """
    own = threading.local()

    def work(index: int) -> list[Derivation]:
        if is_cancelled is not None and is_cancelled(index):
            return []
        if not hasattr(own, "decoder"):
            own.decoder = _Decoder(trie, order, settings, nbest)
        found: list[Derivation] = own.decoder.decode(*sentences[index])
        return found

    if threads <= 1 or len(sentences) <= 1:
        return [work(index) for index in range(len(sentences))]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, range(len(sentences))))


def decode_target(
    options: Options,
    source_length: int,
    target: Sequence[int] | Integer[np.ndarray, " words"],
    trie: Trie,
    order: int,
    settings: StackSettings,
) -> Derivation | None:
    """The best derivation of a given translation; None if there is none, or the beam lost it.

    All of them share the score of the language model, so hypotheses are compared without it, and the number of target
    words so far takes the place of its state. Options whose words the target lacks are left out.
    """
    words = np.asarray(target, np.int32)
    text = words.astype("<i4").tobytes()
    pieces = [options.targets[begin:end] for begin, end in pairwise(options.target_starts)]
    fits = [_occurs(piece.astype("<i4").tobytes(), text) for piece in pieces]
    rows = np.flatnonzero(fits)
    starts = np.cumsum([0, *(len(pieces[row]) for row in rows)])
    fitting = Options(
        options.begins[rows],
        options.ends[rows],
        starts,
        np.concatenate([*(pieces[row] for row in rows), np.empty(0, np.int32)]),
        options.scores[rows],
        options.orientations[rows],
    )
    decoder = _Decoder(trie, order, settings._replace(language_model_weight=0.0, pop_limit=0), 1)
    found = decoder.decode(fitting, source_length, words)
    if not found:
        return None
    score = found[0].score
    if settings.language_model_weight:
        score += settings.language_model_weight * log_probability(words, trie, order)
    return Derivation(score, tuple(int(rows[option]) for option in found[0].options))


def log_probability(words: Integer[np.ndarray, " words"], trie: Trie, order: int) -> float:
    """ln P(words END)."""
    ids = np.concatenate([[BEGIN], words, [END]]).astype(np.int64)
    return float(read_sentence(_read_only(trie), order, ids)) * _LN10


def terms(options: Options, source_length: int, trie: Trie, order: int, derivation: Sequence[int]) -> Terms:
    """The parts of a derivation's score that depend on several options."""
    words = [options.targets[options.target_starts[each] : options.target_starts[each + 1]] for each in derivation]
    spans = [(int(options.begins[each]), int(options.ends[each])) for each in derivation]
    previous, jumped = (-1, 0), 0
    orientations = []
    for begin, end in spans:
        orientations.append(int(orientation_of(previous[0], previous[1], begin, end)))
        jumped += abs(begin - previous[1])
        previous = begin, end
    orientations.append(int(orientation_of(previous[0], previous[1], source_length, source_length + 1)))
    log_prob = log_probability(np.concatenate([*words, np.empty(0, np.int32)]), trie, order)
    return Terms(log_prob, jumped, np.array(orientations))


def rescore(
    options: Options, source_length: int, trie: Trie, order: int, settings: StackSettings, derivation: Sequence[int]
) -> float:
    """The score of a derivation, from its terms."""
    parts = terms(options, source_length, trie, order, derivation)
    chosen, ways = np.array(derivation, np.int64), parts.orientations
    score = options.scores[chosen].sum()
    score += options.orientations[chosen, ways[:-1]].sum() + options.orientations[chosen, 3 + ways[1:]].sum()
    if settings.language_model_weight:
        score += settings.language_model_weight * parts.language_model
    return float(score + settings.distortion_weight * parts.distortion)


def _occurs(piece: bytes, text: bytes) -> bool:
    """Whether words occur in others, both as four bytes each."""
    place = text.find(piece)
    while place > 0 and place % 4:
        place = text.find(piece, place + 1)
    return place >= 0


def _read_only(trie: Trie) -> Trie:
    """The trie as arrays that cannot be written to, as mapped files are, so that the loops are compiled once."""
    nodes, slots = (np.asarray(array).view() for array in trie)
    nodes.flags.writeable = slots.flags.writeable = False
    return Trie(nodes, slots)


# --- a search ---------------------------------------------------------------------------------------------------------
#
# Stack after stack is filled from those before it. A group of hypotheses and a span that they can translate next form a
# cube: a table with a row for each hypothesis and a column for each option of the span, both best first. Without cube
# pruning every cell becomes a hypothesis. With it, cells are visited in the order of their ranks, estimated from row
# and column; a visited cell is scored with the language model and waits for its turn again if that lowered its rank.
#
# Everything is numbered and lies in arrays that are used again for the next sentence. Where one is full, the search
# stops and is repeated with larger ones.

HYPOTHESIS = np.dtype(
    [("score", "<f8"), ("rank", "<f8"), ("coverage", "<i4"), ("state", "<i4"), ("tail", "<i4"), ("edge", "<i4")]
)
"""Score so far, score with future cost, what recombination compares, and the best of a list of edges."""

EDGE = np.dtype([("score", "<f8"), ("before", "<i4"), ("option", "<i4"), ("other", "<i4"), ("unused", "<i4")])
"""How a hypothesis is made: what it adds to which one, by which option, and another edge to the same hypothesis."""

GROUP = np.dtype([("first", "<i4"), ("last", "<i4"), ("coverage", "<i4"), ("end", "<i4")])
"""Hypotheses of a stack with the same coverage and the same end of the last phrase, best first."""

CUBE = np.dtype([("first", "<i4"), ("last", "<i4"), ("option", "<i4"), ("option_end", "<i4"), ("coverage", "<i4")])
"""The hypotheses of a group, the options of a span, and the coverage with both."""

CELL = np.dtype([("added", "<f8"), ("cube", "<i4"), ("row", "<i4"), ("column", "<i4"), ("state", "<i4")])
"""A cell of a cube: what the option adds there, and the state after it, −1 as long as the rank is an estimate."""

PATH = np.dtype([("score", "<f8"), ("added", "<f8"), ("before", "<i4"), ("option", "<i4"), ("after", "<i8")])
"""The end of a derivation: its score, that of its first option, the hypothesis before it, and the path after it."""

HYPOTHESES, EDGES, STATES, COVERAGES, GROUPS = 0, 1, 2, 3, 4
"""Places of the numbers in use."""

FULL, DONE = -1, 0
"""How a part of a search ends."""


class Sentence(NamedTuple):
    """A sentence as the loops see it: options by span, best first."""

    begins: Array
    ends: Array
    word_begins: Array
    word_ends: Array
    words: Array
    scores: Array
    orientations: Array
    estimates: Array
    """What each option adds, as far as it is known without its neighbours."""
    tails: Array
    """The tail of each option: all that the score of the next phrase depends on. Tail 0 begins the sentence."""
    tail_spans: Array
    tail_scores: Array
    """Orientations to the next phrase."""
    spans: Array
    """The first option of each span, by its begin and length; the end of the last in the column behind it."""
    futures: Array
    """The best that the words between two places add."""
    goal: Array
    """The words of a given translation."""


class Memory(NamedTuple):
    """The arrays of a search."""

    sizes: Array
    hypotheses: Array
    hypothesis_slots: Array
    edges: Array
    state_nodes: Array
    state_lengths: Array
    state_words: Array
    state_known: Array
    state_slots: Array
    coverages: Array
    futures: Array
    gaps: Array
    coverage_slots: Array
    groups: Array
    cubes: Array
    cells: Array
    ranks: Array
    queue: Array
    cache_keys: Array
    cache_scores: Array
    cache_states: Array
    text: Array
    known: Array
    found: Array

    @staticmethod
    def of(room: int, order: int, width: int) -> "Memory":
        """`room` is a power of two; a coverage has `width` times 64 bits."""
        context = max(1, order - 1)
        return Memory(
            sizes=np.zeros(5, np.int64),
            hypotheses=np.zeros(room, HYPOTHESIS),
            hypothesis_slots=np.zeros(2 * room, np.int32),
            edges=np.zeros(room, EDGE),
            state_nodes=np.zeros(room, np.int64),
            state_lengths=np.zeros(room, np.int32),
            state_words=np.zeros((room, context), np.int32),
            state_known=np.zeros((room, context), np.int64),
            state_slots=np.zeros(2 * room, np.int32),
            coverages=np.zeros((room, width), np.int64),
            futures=np.zeros(room),
            gaps=np.zeros(room, np.int32),
            coverage_slots=np.zeros(2 * room, np.int32),
            groups=np.zeros(room, GROUP),
            cubes=np.zeros(room, CUBE),
            cells=np.zeros(2 * room, CELL),
            ranks=np.zeros(2 * room),
            queue=np.zeros(2 * room, np.int64),
            cache_keys=np.zeros(room, np.int64),
            cache_scores=np.zeros(room),
            cache_states=np.zeros(room, np.int32),
            text=np.zeros(1, np.int64),
            known=np.zeros(order + 1, np.int64),
            found=np.zeros(order + 1, np.int64),
        )


class _Decoder:
    """A search with the memory that it uses again."""

    def __init__(self, trie: Trie, order: int, settings: StackSettings, nbest: int) -> None:
        beam, pop_limit, threshold, limit, *weights = settings
        self.settings = StackSettings(int(beam), int(pop_limit), float(threshold), int(limit), *map(float, weights))
        self.trie, self.order, self.nbest = _read_only(trie), order, nbest
        self.room, self.width = 1 << 13, 1
        self.memory = Memory.of(self.room, order, self.width)

    def decode(
        self, options: Options, length: int, goal: Int32[np.ndarray, " words"] | None = None
    ) -> list[Derivation]:
        _check(options, length, len(self.trie.nodes) - 1)
        sentence, numbers = self._arrange(options, length, goal)
        text = np.zeros(self.order + int(np.diff(options.target_starts).max(initial=0)), np.int64)
        width = max(self.width, (length + 63) // 64)
        if width > self.width:
            self.width, self.memory = width, Memory.of(self.room, self.order, width)
        model = self.trie, self.order, self.settings
        is_constrained, is_full = goal is not None, True
        while is_full:
            memory = self.memory._replace(text=text)
            first = search(sentence, length, *model, self.nbest > 1, is_constrained, memory)
            is_full = first == FULL
            if is_full:
                self.room *= 2
                self.memory = Memory.of(self.room, self.order, self.width)
        scores, starts, chosen = best_paths(sentence, length, *model, is_constrained, memory, first, self.nbest)
        paths = [tuple(numbers[chosen[begin:end]].tolist()) for begin, end in pairwise(starts)]
        return [Derivation(score, path) for score, path in zip(scores.tolist(), paths, strict=True)]

    def _arrange(
        self, options: Options, length: int, goal: Int32[np.ndarray, " words"] | None
    ) -> tuple[Sentence, Int64[np.ndarray, " options"]]:
        """The sentence for the loops, and the number of each of its options among those given."""
        starts, words = options.target_starts.astype(np.int64), options.targets.astype(np.int64)
        weight = self.settings.language_model_weight * _LN10
        alone = np.zeros(len(options.scores))
        if weight:
            score_alone(self.trie, self.order, starts, words, alone)
        ways = options.orientations
        estimates = (
            options.scores + weight * alone + ways[:, :3].max(1, initial=-np.inf) + ways[:, 3:].max(1, initial=-np.inf)
        )
        numbers = np.lexsort((-estimates, options.ends, options.begins))
        begins, ends = options.begins[numbers].astype(np.int64), options.ends[numbers].astype(np.int64)
        longest = int((ends - begins).max(initial=1))
        keys = begins * (longest + 2) + ends - begins
        spans = np.searchsorted(keys, np.arange(length * (longest + 2))).reshape(length, longest + 2)
        futures = np.zeros((length + 1, length + 1))
        fill_futures(spans, estimates[numbers], futures)
        orientations = np.ascontiguousarray(ways[numbers], np.float64)
        tails = np.zeros(len(numbers), np.int32)
        tail_spans, tail_scores = (
            np.zeros((len(numbers) + length + 1, 2), np.int32),
            np.zeros((len(numbers) + length + 1, 3)),
        )
        number_tails(begins, ends, orientations, bool(ways.any()), tails, tail_spans, tail_scores)
        sentence = Sentence(
            begins,
            ends,
            starts[:-1][numbers],
            starts[1:][numbers],
            words,
            options.scores[numbers].astype(np.float64),
            orientations,
            estimates[numbers],
            tails,
            tail_spans,
            tail_scores,
            spans,
            futures,
            np.empty(0, np.int64) if goal is None else goal.astype(np.int64),
        )
        return sentence, numbers


def _check(options: Options, length: int, symbols: int) -> None:
    """Refuse what the loops would read out of bounds."""
    begins, ends, words = options.begins, options.ends, options.targets
    if len(begins) and not ((begins >= 0) & (begins < ends) & (ends <= length)).all():
        raise UsageError(f"an option does not lie within the {length} words of the sentence")
    if len(words) and not (words.min() >= 0 and words.max() < symbols):
        raise UsageError(f"options hold words from {words.min()} to {words.max()}, which the language model lacks")


# --- the language model -----------------------------------------------------------------------------------------------


@compiled()
def read_sentence(trie: Trie, order: int, ids: Array) -> float:
    """log10 P of all ids but the first, with which the sentence begins."""
    known, found = np.zeros(order + 1, np.int64), np.zeros(order + 1, np.int64)
    known[0], length, total = ids[0], min(1, order - 1), 0.0
    for place in range(1, len(ids)):
        matched = read_word(trie, ids, place, known, length, found)
        total += trie.nodes[found[matched - 1]].log_prob + backoff_sum(trie.nodes, known, length, matched)
        known, found, length = found, known, min(matched, order - 1)
    return total


@compiled()
def score_alone(trie: Trie, order: int, starts: Array, words: Array, scores: Array) -> None:
    """log10 P of the words of each option without what comes before."""
    known, found = np.zeros(order + 1, np.int64), np.zeros(order + 1, np.int64)
    for option in range(len(starts) - 1):
        length = 0
        for place in range(starts[option], starts[option + 1]):
            matched = read_word(trie, words, place, known, length, found)
            scores[option] += trie.nodes[found[matched - 1]].log_prob + backoff_sum(trie.nodes, known, length, matched)
            known, found, length = found, known, min(matched, order - 1)


@compiled()
def mix(value: Any) -> Any:
    """The bits of a number, well mixed (SplitMix64)."""
    value = (value ^ ((value >> 30) & np.int64(0x3FFFFFFFF))) * np.int64(0xBF58476D1CE4E5B9 - (1 << 64))
    value = (value ^ ((value >> 27) & np.int64(0x1FFFFFFFFF))) * np.int64(0x94D049BB133111EB - (1 << 64))
    return value ^ ((value >> 31) & np.int64(0x1FFFFFFFF))


@compiled()
def number_state(trie: Trie, memory: Memory, known: Array, length: int, place: int) -> Any:
    """The state whose known n-grams end at a place of the text.

    An n-gram that no word follows, and that adds nothing, is dropped: what it distinguishes can have no effect.
    """
    nodes = trie.nodes
    while (
        length
        and nodes[known[length - 1]].backoff == 0
        and nodes[known[length - 1]].first == nodes[known[length - 1] + 1].first
    ):
        length -= 1
    node = known[length - 1] if length else np.int64(-1)
    slots = memory.state_slots
    slot = mix(node) & (len(slots) - 1)
    while slots[slot] != 0:
        if memory.state_nodes[slots[slot] - 1] == node:
            return slots[slot] - 1
        slot = (slot + 1) & (len(slots) - 1)
    state = memory.sizes[STATES]
    memory.sizes[STATES] += 1
    slots[slot] = state + 1
    memory.state_nodes[state], memory.state_lengths[state] = node, length
    for back in range(length):
        memory.state_known[state, back] = known[back]
        memory.state_words[state, back] = memory.text[place - back]
    return state


@compiled()
def read_option(trie: Trie, order: int, sentence: Sentence, memory: Memory, state: Any, option: int) -> Any:
    """log10 P of the words of an option after a state, and the state after them."""
    key = np.int64(state) * len(sentence.scores) + option + 1
    slot = mix(key) & (len(memory.cache_keys) - 1)
    if memory.cache_keys[slot] == key:
        return memory.cache_scores[slot], memory.cache_states[slot]
    text, known, found, length = memory.text, memory.known, memory.found, memory.state_lengths[state]
    place = order - 2
    for back in range(length):
        known[back], text[place - back] = memory.state_known[state, back], memory.state_words[state, back]
    total = 0.0
    for word in range(sentence.word_begins[option], sentence.word_ends[option]):
        place += 1
        text[place] = sentence.words[word]
        matched = read_word(trie, text, place, known, length, found)
        total += trie.nodes[found[matched - 1]].log_prob + backoff_sum(trie.nodes, known, length, matched)
        known, found, length = found, known, min(matched, order - 1)
    after = number_state(trie, memory, known, length, place)
    memory.cache_keys[slot], memory.cache_scores[slot], memory.cache_states[slot] = key, total, after
    return total, after


# --- spans and coverage -----------------------------------------------------------------------------------------------


@compiled()
def orientation_of(previous_begin: int, previous_end: int, begin: int, end: int) -> int:
    """Where a span lies after the one before."""
    if begin == previous_end:
        return MONOTONE
    return SWAP if end == previous_begin else DISCONTINUOUS


@compiled()
def number_tails(
    begins: Array, ends: Array, orientations: Array, is_oriented: bool, tails: Array, spans: Array, scores: Array
) -> None:
    """The tail of each option: its span and its orientations to the next phrase, or its end alone without these."""
    spans[0, 0], spans[0, 1], size = -1, 0, 1
    first = 1
    for option in range(len(begins)):
        if not is_oriented:
            tails[option] = ends[option]
            spans[ends[option], 1] = ends[option]
            continue
        if option == 0 or begins[option] != begins[option - 1] or ends[option] != ends[option - 1]:
            first = size
        tail = first
        while tail < size and not (
            scores[tail, 0] == orientations[option, 3]
            and scores[tail, 1] == orientations[option, 4]
            and scores[tail, 2] == orientations[option, 5]
        ):
            tail += 1
        tails[option] = tail
        if tail == size:
            spans[tail, 0], spans[tail, 1] = begins[option], ends[option]
            scores[tail] = orientations[option, 3:]
            size += 1


@compiled()
def fill_futures(spans: Array, estimates: Array, futures: Array) -> None:
    """The best sum of estimates that covers the words between two places, −inf if nothing covers them."""
    length, longest = spans.shape[0], spans.shape[1] - 2
    for begin in range(length - 1, -1, -1):
        for end in range(begin + 1, length + 1):
            futures[begin, end] = -np.inf
            for size in range(1, min(longest, end - begin) + 1):
                first = spans[begin, size]
                if first < spans[begin, size + 1]:
                    futures[begin, end] = max(futures[begin, end], estimates[first] + futures[begin + size, end])


@compiled()
def is_free(coverage: Array, begin: int, end: int) -> Any:
    """Whether none of the words is covered."""
    covered = np.int64(0)
    for place in range(begin, end):
        covered |= (coverage[place >> 6] >> (place & 63)) & 1
    return covered == 0


@compiled()
def extend_coverage(sentence: Sentence, length: int, memory: Memory, coverage: int, begin: int, end: int) -> Any:
    """The coverage with a span in addition."""
    slots, number = memory.coverage_slots, memory.sizes[COVERAGES]
    bits = memory.coverages[number]  # a free row
    bits[:] = memory.coverages[coverage]
    for place in range(begin, end):
        bits[place >> 6] |= np.int64(1) << (place & 63)
    hashed = np.int64(0)
    for each in bits:
        hashed = mix(hashed * 31 + each)
    slot = hashed & (len(slots) - 1)
    while slots[slot] != 0:
        if (memory.coverages[slots[slot] - 1] == bits).all():
            return slots[slot] - 1
        slot = (slot + 1) & (len(slots) - 1)
    slots[slot] = number + 1
    memory.sizes[COVERAGES] += 1
    memory.gaps[number], memory.futures[number] = length, 0.0
    place = 0
    while place < length:
        if (bits[place >> 6] >> (place & 63)) & 1:
            place += 1
            continue
        gap = place
        while place < length and not (bits[place >> 6] >> (place & 63)) & 1:
            place += 1
        memory.gaps[number] = min(memory.gaps[number], gap)
        memory.futures[number] += sentence.futures[gap, place]
    return number


# --- stacks -----------------------------------------------------------------------------------------------------------


@compiled()
def search(
    sentence: Sentence,
    length: int,
    trie: Trie,
    order: int,
    settings: StackSettings,
    keeps_all: bool,
    is_constrained: bool,
    memory: Memory,
) -> Any:
    """Fill all stacks; returns the first hypothesis of the last one, or FULL.

    `keeps_all` keeps the edges of worse hypotheses that were recombined.
    """
    memory.sizes[:] = 0
    memory.state_slots[:] = 0
    memory.coverage_slots[:] = 0
    memory.cache_keys[:] = 0
    memory.coverages[0, :] = 0
    memory.gaps[0], memory.futures[0] = 0, sentence.futures[0, length]
    memory.sizes[COVERAGES] = 1
    start = memory.hypotheses[0]
    start.score, start.rank, start.coverage, start.state, start.tail, start.edge = 0.0, 0.0, 0, 0, 0, -1
    memory.sizes[HYPOTHESES] = 1
    if not is_constrained:
        memory.known[0], memory.text[0] = BEGIN, BEGIN
        number_state(trie, memory, memory.known, min(1, order - 1), 0)
    group = memory.groups[0]
    group.first, group.last, group.coverage, group.end = 0, 1, 0, 0
    memory.sizes[GROUPS] = 1
    stacks = np.zeros(length + 2, np.int64)  # the first group of each
    stacks[1] = 1
    for covered in range(1, length + 1):
        first = memory.sizes[HYPOTHESES]
        memory.hypothesis_slots[:] = 0
        cubes = open_cubes(sentence, length, settings.distortion_limit, stacks, covered, memory)
        if cubes < 0:
            return FULL
        if settings.pop_limit > 0:
            status = pop_cells(sentence, trie, order, settings, keeps_all, is_constrained, memory, cubes)
        else:
            status = fill_cells(sentence, trie, order, settings, keeps_all, is_constrained, memory, cubes)
        if status == FULL:
            return FULL
        prune(sentence, length, settings, memory, first)
        stacks[covered + 1] = memory.sizes[GROUPS]
    return memory.groups[stacks[length]].first if stacks[length] < stacks[length + 1] else memory.sizes[HYPOTHESES]


@compiled()
def open_cubes(sentence: Sentence, length: int, limit: int, stacks: Array, covered: int, memory: Memory) -> int:
    """All cubes whose hypotheses have `covered` words; returns their number, below 0 where memory is full."""
    cubes = 0
    for size in range(1, min(covered, sentence.spans.shape[1] - 2) + 1):
        for number in range(stacks[covered - size], stacks[covered - size + 1]):
            group = memory.groups[number]
            gap = memory.gaps[group.coverage]
            for begin in range(gap, length - size + 1):
                option, option_end = sentence.spans[begin, size], sentence.spans[begin, size + 1]
                if option == option_end or (limit >= 0 and abs(begin - group.end) > limit):
                    continue
                if limit >= 0 and begin > gap and begin + size - gap > limit:
                    break
                if not is_free(memory.coverages[group.coverage], begin, begin + size):
                    continue
                if memory.sizes[COVERAGES] == len(memory.coverages) - 1 or cubes == len(memory.cubes):
                    return -1
                coverage = extend_coverage(sentence, length, memory, group.coverage, begin, begin + size)
                if memory.futures[coverage] == -np.inf:
                    continue
                cube = memory.cubes[cubes]
                cube.first, cube.last, cube.coverage = group.first, group.last, coverage
                cube.option, cube.option_end = option, option_end
                cubes += 1
    return cubes


@compiled()
def score_cell(
    sentence: Sentence,
    trie: Trie,
    order: int,
    settings: StackSettings,
    is_constrained: bool,
    memory: Memory,
    before: int,
    option: int,
) -> Any:
    """What an option adds to a hypothesis, and the state after it; −inf and any state if it cannot follow."""
    hypothesis = memory.hypotheses[before]
    previous = sentence.tail_spans[hypothesis.tail]
    begin = sentence.begins[option]
    way = orientation_of(previous[0], previous[1], begin, sentence.ends[option])
    score = sentence.scores[option] + settings.distortion_weight * abs(begin - previous[1])
    score += sentence.orientations[option, way] + sentence.tail_scores[hypothesis.tail, way]
    state = np.int64(hypothesis.state)
    if is_constrained:
        for word in range(sentence.word_begins[option], sentence.word_ends[option]):
            if state == len(sentence.goal) or sentence.goal[state] != sentence.words[word]:
                return -np.inf, state
            state += 1
    elif settings.language_model_weight != 0:
        log_prob, after = read_option(trie, order, sentence, memory, state, option)
        score += settings.language_model_weight * (log_prob * _LN10)
        state = np.int64(after)
    return score, state


@compiled()
def add_hypothesis(
    sentence: Sentence,
    keeps_all: bool,
    memory: Memory,
    coverage: int,
    before: int,
    option: int,
    added: float,
    state: Any,
) -> None:
    """Enter a hypothesis into its stack, or recombine it with the one that is there."""
    score, tail = memory.hypotheses[before].score + added, sentence.tails[option]
    slots, edges, size = memory.hypothesis_slots, memory.edges, memory.sizes[EDGES]
    slot = mix(mix((np.int64(coverage) << 32) | np.int64(state)) + tail) & (len(slots) - 1)
    while slots[slot] != 0:
        same = memory.hypotheses[slots[slot] - 1]
        if same.coverage == coverage and same.state == state and same.tail == tail:
            is_better = score > same.score
            if not keeps_all:
                if not is_better:
                    return
                size = same.edge
            edge = edges[size]
            edge.score, edge.before, edge.option = added, before, option
            if is_better:
                same.score, same.rank = score, score + memory.futures[coverage]
            if not keeps_all:
                return
            memory.sizes[EDGES] += 1
            if is_better:
                edge.other, same.edge = same.edge, size
            else:
                edge.other = edges[same.edge].other
                edges[same.edge].other = size
            return
        slot = (slot + 1) & (len(slots) - 1)
    number = memory.sizes[HYPOTHESES]
    memory.sizes[HYPOTHESES] += 1
    memory.sizes[EDGES] += 1
    slots[slot] = number + 1
    new = memory.hypotheses[number]
    new.score, new.rank, new.edge = score, score + memory.futures[coverage], size
    new.coverage, new.state, new.tail = coverage, state, tail
    edge = edges[size]
    edge.score, edge.before, edge.option, edge.other = added, before, option, -1


@compiled()
def is_full(memory: Memory) -> Any:
    """Whether one more hypothesis might not fit."""
    room = len(memory.hypotheses) - 1
    return memory.sizes[HYPOTHESES] >= room or memory.sizes[EDGES] >= room or memory.sizes[STATES] >= room


@compiled()
def fill_cells(
    sentence: Sentence,
    trie: Trie,
    order: int,
    settings: StackSettings,
    keeps_all: bool,
    is_constrained: bool,
    memory: Memory,
    cubes: int,
) -> int:
    """A hypothesis for each cell of all cubes."""
    for number in range(cubes):
        cube = memory.cubes[number]
        for before in range(cube.first, cube.last):
            for option in range(cube.option, cube.option_end):
                if is_full(memory):
                    return FULL
                added, state = score_cell(sentence, trie, order, settings, is_constrained, memory, before, option)
                if added != -np.inf:
                    add_hypothesis(sentence, keeps_all, memory, cube.coverage, before, option, added, state)
    return DONE


@compiled()
def pop_cells(
    sentence: Sentence,
    trie: Trie,
    order: int,
    settings: StackSettings,
    keeps_all: bool,
    is_constrained: bool,
    memory: Memory,
    cubes: int,
) -> int:
    """Hypotheses for the best cells, `pop_limit` of them."""
    cells, ranks, queue = memory.cells, memory.ranks, memory.queue
    made = size = pops = 0
    while made < cubes:
        if made == len(cells):
            return FULL
        rank = enter_cell(sentence, settings, memory, made, made, 0, 0)
        size = push_heap(ranks, queue, size, rank, made)
        made += 1
    while size and pops < settings.pop_limit:
        if is_full(memory) or made + 2 > len(cells):
            return FULL
        number = queue[0]
        size = pop_heap(ranks, queue, size)
        cell = cells[number]
        cube = memory.cubes[cell.cube]
        before, option = cube.first + cell.row, cube.option + cell.column
        if cell.state < 0:
            added, state = score_cell(sentence, trie, order, settings, is_constrained, memory, before, option)
            if option + 1 < cube.option_end:
                rank = enter_cell(sentence, settings, memory, made, cell.cube, cell.row, cell.column + 1)
                size = push_heap(ranks, queue, size, rank, made)
                made += 1
            if cell.column == 0 and before + 1 < cube.last:
                rank = enter_cell(sentence, settings, memory, made, cell.cube, cell.row + 1, 0)
                size = push_heap(ranks, queue, size, rank, made)
                made += 1
            if added == -np.inf:
                continue
            cell.added, cell.state = added, state
            rank = memory.hypotheses[before].score + added + memory.futures[cube.coverage]
            if size and rank < ranks[0]:
                size = push_heap(ranks, queue, size, rank, number)
                continue
        pops += 1
        add_hypothesis(sentence, keeps_all, memory, cube.coverage, before, option, cell.added, np.int64(cell.state))
    return DONE


@compiled()
def enter_cell(
    sentence: Sentence, settings: StackSettings, memory: Memory, number: int, cube: int, row: int, column: int
) -> Any:
    """Make a cell; returns an estimate of its rank."""
    cell = memory.cells[number]
    cell.cube, cell.row, cell.column, cell.state = cube, row, column, -1
    before, option = memory.hypotheses[memory.cubes[cube].first + row], memory.cubes[cube].option + column
    jump = abs(sentence.begins[option] - sentence.tail_spans[before.tail, 1])
    rank = before.score + sentence.estimates[option] + memory.futures[memory.cubes[cube].coverage]
    return rank + settings.distortion_weight * jump


@compiled()
def push_heap(ranks: Array, items: Array, size: int, rank: float, item: int) -> int:
    """Add an item to a heap, highest rank first; returns the new size."""
    place = size
    while place and ranks[(place - 1) >> 1] < rank:
        above = (place - 1) >> 1
        ranks[place], items[place] = ranks[above], items[above]
        place = above
    ranks[place], items[place] = rank, item
    return size + 1


@compiled()
def pop_heap(ranks: Array, items: Array, size: int) -> int:
    """Remove the first item; returns the new size."""
    size -= 1
    rank, item, place = ranks[size], items[size], 0
    while 2 * place + 1 < size:
        below = 2 * place + 1
        if below + 1 < size and ranks[below + 1] > ranks[below]:
            below += 1
        if ranks[below] <= rank:
            break
        ranks[place], items[place] = ranks[below], items[below]
        place = below
    ranks[place], items[place] = rank, item
    return size


@compiled()
def prune(sentence: Sentence, length: int, settings: StackSettings, memory: Memory, first: int) -> None:
    """Keep the best hypotheses from the number `first` on, by rank and then by age, and put them into groups."""
    made = memory.hypotheses[first : memory.sizes[HYPOTHESES]].copy()
    by_rank = np.argsort(-made["rank"], kind="mergesort")
    kept = 0
    while kept < min(len(made), settings.beam):
        if made[by_rank[kept]].rank < made[by_rank[0]].rank - settings.threshold:
            break
        kept += 1
    keys = np.empty(kept, np.int64)
    for number in range(kept):
        hypothesis = made[by_rank[number]]
        keys[number] = np.int64(hypothesis.coverage) * (length + 1) + sentence.tail_spans[hypothesis.tail, 1]
    by_key = np.argsort(keys, kind="mergesort")
    for number in range(kept):
        memory.hypotheses[first + number] = made[by_rank[by_key[number]]]
        if number == 0 or keys[by_key[number]] != keys[by_key[number - 1]]:
            group = memory.groups[memory.sizes[GROUPS]]
            memory.sizes[GROUPS] += 1
            group.first, group.coverage = first + number, memory.hypotheses[first + number].coverage
            group.end = keys[by_key[number]] % (length + 1)
        memory.groups[memory.sizes[GROUPS] - 1].last = first + number + 1
    memory.sizes[HYPOTHESES] = first + kept


# --- derivations ------------------------------------------------------------------------------------------------------

#
# The score of a hypothesis is that of the best way to it, so a path that leads from it to the end of the sentence is
# part of a derivation of known score. Paths grow backwards, best first: whole ones come out in the order of the
# derivations' scores.


@compiled()
def best_paths(
    sentence: Sentence,
    length: int,
    trie: Trie,
    order: int,
    settings: StackSettings,
    is_constrained: bool,
    memory: Memory,
    first: int,
    nbest: int,
) -> Any:
    """Scores of the best derivations, where the options of each begin, and the options."""
    hypotheses, edges = memory.hypotheses, memory.edges
    paths, ranks, queue = np.empty(1024, PATH), np.empty(1024), np.empty(1024, np.int64)
    count = size = 0
    whole, total = np.empty(nbest, np.int64), 0
    for number in range(first, memory.sizes[HYPOTHESES]):
        added = end_score(sentence, length, trie, order, settings, is_constrained, memory, number)
        if added == -np.inf:
            continue
        if count == len(paths):
            paths, ranks, queue = twice(paths), twice(ranks), twice(queue)
        path = paths[count]
        path.score, path.added, path.before, path.option, path.after = added, added, number, -1, -1
        size = push_heap(ranks, queue, size, hypotheses[number].score + added, count)
        count += 1
    while size and total < nbest:
        here = queue[0]
        size = pop_heap(ranks, queue, size)
        number, rest = paths[here].before, paths[here].score
        if number == 0:
            whole[total] = here
            total += 1
        edge = hypotheses[number].edge
        while edge >= 0:
            if count == len(paths):
                paths, ranks, queue = twice(paths), twice(ranks), twice(queue)
            path, before = paths[count], edges[edge].before
            path.score, path.added, path.after = rest + edges[edge].score, edges[edge].score, here
            path.before, path.option = before, edges[edge].option
            size = push_heap(ranks, queue, size, hypotheses[before].score + path.score, count)
            count += 1
            edge = edges[edge].other
    return read_paths(paths, whole[:total])


@compiled()
def end_score(
    sentence: Sentence,
    length: int,
    trie: Trie,
    order: int,
    settings: StackSettings,
    is_constrained: bool,
    memory: Memory,
    number: int,
) -> Any:
    """What the end of the sentence adds to a hypothesis."""
    hypothesis = memory.hypotheses[number]
    previous = sentence.tail_spans[hypothesis.tail]
    score = sentence.tail_scores[hypothesis.tail, orientation_of(previous[0], previous[1], length, length + 1)]
    if is_constrained:
        return score if hypothesis.state == len(sentence.goal) else -np.inf
    if settings.language_model_weight == 0:
        return score
    text, state, place = memory.text, hypothesis.state, order - 1
    known = memory.state_known[state]
    for back in range(memory.state_lengths[state]):
        text[place - 1 - back] = memory.state_words[state, back]
    text[place] = END
    matched = read_word(trie, text, place, known, memory.state_lengths[state], memory.found)
    log_prob = trie.nodes[memory.found[matched - 1]].log_prob
    log_prob += backoff_sum(trie.nodes, known, memory.state_lengths[state], matched)
    return score + settings.language_model_weight * (log_prob * _LN10)


@compiled()
def twice(array: Array) -> Array:
    """A copy with twice the room."""
    larger = np.empty(2 * len(array), array.dtype)
    larger[: len(array)] = array
    return larger


@compiled()
def read_paths(paths: Array, whole: Array) -> Any:
    """The scores and options of whole paths, summed up in the order of the target as their hypotheses were."""
    scores, starts = np.zeros(len(whole)), np.zeros(len(whole) + 1, np.int64)
    for number in range(len(whole)):
        here = whole[number]
        starts[number + 1] = starts[number]
        while here >= 0:
            scores[number] += paths[here].added
            starts[number + 1] += paths[here].option >= 0
            here = paths[here].after
    by_score = np.argsort(-scores, kind="mergesort")
    options, starts[0] = np.empty(starts[-1], np.int64), 0
    for number in range(len(whole)):
        here = whole[by_score[number]]
        size = starts[number]
        while paths[here].option >= 0:
            options[size] = paths[here].option
            size += 1
            here = paths[here].after
        starts[number + 1] = size
    return scores[by_score], starts, options
