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
from itertools import pairwise, repeat
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64, Int32, Int64, Integer

from seqloom.classical.ngram import LOW_BITS, Trie, backoff_sum, read_word
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

    beam: int = 100
    """Hypotheses that a stack keeps."""
    pop_limit: int = 200
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
    decoder = _Decoder(trie, order, settings._replace(pop_limit=0), 1)
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
# stops and is repeated with larger ones. Hash tables are not cleared: entries have the stamp of a sentence or a stack.


def _record(floats: str, integers: str) -> np.dtype[Any]:
    """Records with these fields, of eight and of four bytes each; a multiple of eight together."""
    return np.dtype([(name, "<f8") for name in floats.split()] + [(name, "<i4") for name in integers.split()])


OPTION = _record("score estimate", "begin end word_begin word_end tail number")
"""An option: its own score, what it adds as far as it is known without its neighbours, its span, its words, its tail,
and its number among the given ones."""

HYPOTHESIS = _record("score rank", "coverage state tail edge")
"""Score so far, score with future cost, what recombination compares, and the best of a list of edges."""

EDGE = _record("score", "before option other unused")
"""How a hypothesis is made: what it adds to which one, by which option, and another edge to the same hypothesis."""

GROUP = _record("", "first last coverage end")
"""Hypotheses of a stack with the same coverage and the same end of the last phrase, best first."""

CUBE = _record("base", "first last option option_end coverage is_extended other unused")
"""Hypotheses and options, future cost and distortion with them, the coverage before or with the span, and another cube
of the same stack."""

CELL = _record("added", "cube row column state")
"""A cell of a cube: what the option adds there, and the state after it, −1 as long as its rank is an estimate."""

ENTRY = _record("score", "before option state stamp")
"""log10 P of an option after a state, and the state after it."""

PATH = _record("score added", "before option after unused")
"""The end of a derivation: its score, that of its first option, the hypothesis before it, and the path after it."""

HYPOTHESES, EDGES, STATES, COVERAGES, GROUPS, CUBES, SENTENCE, STACK = range(8)
"""Places of the numbers in use, and of the stamps."""

MAX_STAMP = 1 << 30
"""A stamp is part of a slot of 64 bits."""

FULL, DONE = -1, 0
"""How a part of a search ends."""


class Sentence(NamedTuple):
    """A sentence as the loops see it."""

    options: Array
    """By span, best first."""
    orientations: Array
    words: Array
    """The words of all options, and END."""
    tails: Array
    """What the score of the next phrase depends on: the last span. Tail 0 begins the sentence."""
    tail_scores: Array
    """Its orientations to the next phrase."""
    spans: Array
    """The first option of each span, by its begin and length; the column behind ends the last one."""
    futures: Array
    """The best that the words between two places add."""
    goal: Array
    """The words of a given translation."""

    @staticmethod
    def of(options: Options, length: int, goal: Int32[np.ndarray, " words"] | None) -> "Sentence":
        """Room for a sentence, which `arrange` fills."""
        count = len(options.scores)
        longest = int((options.ends - options.begins).max(initial=1))
        return Sentence(
            options=np.zeros(count, OPTION),
            orientations=np.zeros((count, 6)),
            words=np.zeros(len(options.targets) + 1, np.int64),
            tails=np.zeros((count + length + 1, 2), np.int64),
            tail_scores=np.zeros((count + length + 1, 3)),
            spans=np.zeros((length + 1, longest + 2), np.int64),
            futures=np.zeros((length + 1, length + 1)),
            goal=np.zeros(0, np.int64) if goal is None else goal.astype(np.int64),
        )


class Model(NamedTuple):
    """What all sentences share."""

    trie: Trie
    order: int
    settings: StackSettings
    nbest: int
    is_constrained: bool


class Memory(NamedTuple):
    """The arrays of a search."""

    sizes: Array
    hypotheses: Array
    hypothesis_slots: Array
    kept: Array
    """Room for the hypotheses of a stack in another order."""
    edges: Array
    states: Array
    """The node of the longest known n-gram of each state, and its length."""
    contexts: Array
    """The nodes of all of them, then the last words, the last one first."""
    state_slots: Array
    coverages: Array
    futures: Array
    gaps: Array
    coverage_slots: Array
    groups: Array
    group_slots: Array
    cubes: Array
    heads: Array
    """The last cube of each stack."""
    cells: Array
    ranks: Array
    queue: Array
    cache: Array
    text: Array
    known: Array
    found: Array
    paths: Array

    @staticmethod
    def of(room: int, order: int, width: int, longest: int) -> "Memory":
        """`room` is a power of two; a coverage has `width` times 64 bits, an option at most `longest` words."""
        return Memory(
            sizes=np.zeros(8, np.int64),
            hypotheses=np.zeros(room, HYPOTHESIS),
            hypothesis_slots=np.zeros(2 * room, np.int64),
            kept=np.zeros(room, HYPOTHESIS),
            edges=np.zeros(2 * room, EDGE),
            states=np.zeros((room, 2), np.int64),
            contexts=np.zeros((room, 2 * order), np.int64),
            state_slots=np.zeros(2 * room, np.int64),
            coverages=np.zeros((room, width), np.int64),
            futures=np.zeros(room),
            gaps=np.zeros(room, np.int64),
            coverage_slots=np.zeros(2 * room, np.int64),
            groups=np.zeros(room, GROUP),
            group_slots=np.zeros(2 * room, np.int64),
            cubes=np.zeros(4 * room, CUBE),
            heads=np.zeros(64 * width + 1, np.int64),
            cells=np.zeros(4 * room, CELL),
            ranks=np.zeros(4 * room),
            queue=np.zeros(4 * room, np.int64),
            cache=np.zeros(2 * room, ENTRY),
            text=np.zeros(order + longest + 1, np.int64),
            known=np.zeros(order + 1, np.int64),
            found=np.zeros(order + 1, np.int64),
            paths=np.zeros(4 * room, PATH),
        )


class _Decoder:
    """A search with the memory that it uses again."""

    def __init__(self, trie: Trie, order: int, settings: StackSettings, nbest: int) -> None:
        beam, pop_limit, threshold, limit, *weights = settings
        plain = StackSettings(int(beam), int(pop_limit), float(threshold), int(limit), *map(float, weights))
        self.model = Model(_read_only(trie), order, plain, nbest, False)
        self.room, self.width, self.longest = 1 << 12, 1, 8
        self._make_room()

    def decode(
        self, options: Options, length: int, goal: Int32[np.ndarray, " words"] | None = None
    ) -> list[Derivation]:
        """At most `nbest` derivations, of a given translation if there is one."""
        kinds = (np.int32, np.int32, np.int64, np.int32, np.float64, np.float64)
        options = Options(*map(np.require, options, kinds, repeat(("C", "W"))))  # the types that are compiled for
        _check(options, length, len(self.model.trie.nodes) - 1)
        longest, width = int(np.diff(options.target_starts).max(initial=0)), (length + 63) // 64
        if longest > self.longest or width > self.width or self.memory.sizes[STACK] > MAX_STAMP:
            self.longest, self.width = max(longest, self.longest), max(width, self.width)
            self._make_room()
        model = self.model._replace(is_constrained=goal is not None)
        sentence = Sentence.of(options, length, goal)
        count = len(options.scores)
        arrange(options, length, model, self.memory, sentence, np.zeros(count), np.arange(count))
        scores, starts = np.zeros(model.nbest), np.zeros(model.nbest + 1, np.int64)
        chosen = np.empty(model.nbest * length, np.int64)
        while True:
            count = first = search(sentence, length, model, self.memory)
            if first != FULL:
                count = best_derivations(sentence, length, model, self.memory, first, scores, starts, chosen)
            if count != FULL:
                break
            self.room *= 2
            self._make_room()
        borders, found = starts.tolist(), chosen[: starts[count]].tolist()
        paths = [tuple(found[begin:end]) for begin, end in pairwise(borders[: count + 1])]
        made = [Derivation(score, path) for score, path in zip(scores[:count].tolist(), paths, strict=True)]
        return sorted(made, key=lambda each: -each.score)  # sums in the order of the target may differ in the last bit

    def _make_room(self) -> None:
        self.memory = Memory.of(self.room, self.model.order, self.width, self.longest)


def _check(options: Options, length: int, symbols: int) -> None:
    """Refuse what the loops would read out of bounds."""
    begins, ends, words = options.begins, options.ends, options.targets
    if len(begins) and (begins.min() < 0 or (begins >= ends).any() or ends.max() > length):
        raise UsageError(
            f"options from word {begins.min()} to word {ends.max()} do not lie within a sentence of {length} words"
        )
    if len(words) and (words.min() < 0 or words.max() >= symbols):
        raise UsageError(f"options have words from {words.min()} to {words.max()}, which the language model lacks")


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


@compiled(is_allocating=False)
def mix(value: Any) -> Any:
    """The bits of a number, well mixed (SplitMix64)."""
    value = (value ^ ((value >> 30) & np.int64(0x3FFFFFFFF))) * np.int64(0xBF58476D1CE4E5B9 - (1 << 64))
    value = (value ^ ((value >> 27) & np.int64(0x1FFFFFFFFF))) * np.int64(0x94D049BB133111EB - (1 << 64))
    return value ^ ((value >> 31) & np.int64(0x1FFFFFFFF))


@compiled(is_allocating=False)
def number_state(trie: Trie, memory: Memory, known: Array, length: int, place: int) -> Any:
    """The state whose known n-grams end at a place of the text.

    An n-gram that no word follows, and that adds nothing, is dropped: what it distinguishes can have no effect.
    """
    nodes, slots, sizes = trie.nodes, memory.state_slots, memory.sizes
    while length:
        node = known[length - 1]
        if nodes[node].backoff != 0 or nodes[node].first != nodes[node + 1].first:
            break
        length -= 1
    node = known[length - 1] if length else np.int64(-1)
    slot = mix(node) & (len(slots) - 1)
    while slots[slot] >> 32 == sizes[SENTENCE]:
        state = slots[slot] & LOW_BITS
        if memory.states[state, 0] == node:
            return state
        slot = (slot + 1) & (len(slots) - 1)
    state = sizes[STATES]
    sizes[STATES] += 1
    slots[slot] = (sizes[SENTENCE] << 32) | state
    memory.states[state, 0], memory.states[state, 1] = node, length
    room = memory.contexts.shape[1] >> 1
    for back in range(length):
        memory.contexts[state, back], memory.contexts[state, room + back] = known[back], memory.text[place - back]
    return state


@compiled(is_allocating=False)
def read_words(trie: Trie, words: Array, begin: Any, end: Any, memory: Memory, state: Any) -> Any:
    """log10 P of words after a state, and the state after them."""
    text, known, found = memory.text, memory.known, memory.found
    room, length, total = memory.contexts.shape[1] >> 1, memory.states[state, 1], 0.0
    place = room - 1
    for back in range(length):
        known[back], text[place - back] = memory.contexts[state, back], memory.contexts[state, room + back]
    for word in range(begin, end):
        place += 1
        text[place] = words[word]
        matched = read_word(trie, text, place, known, length, found)
        total += trie.nodes[found[matched - 1]].log_prob + backoff_sum(trie.nodes, known, length, matched)
        known, found, length = found, known, min(np.int64(matched), np.int64(room - 1))
    return total, number_state(trie, memory, known, length, place)


@compiled(is_allocating=False)
def read_alone(trie: Trie, order: int, words: Array, begin: Any, end: Any, known: Array, found: Array) -> Any:
    """log10 P of words without what comes before."""
    total, length = 0.0, 0
    for place in range(begin, end):
        matched = read_word(trie, words, place, known, length, found)
        total += trie.nodes[found[matched - 1]].log_prob + backoff_sum(trie.nodes, known, length, matched)
        known, found, length = found, known, min(matched, order - 1)
    return total


# --- spans ------------------------------------------------------------------------------------------------------------


@compiled(is_allocating=False)
def arrange(
    given: Options, length: int, model: Model, memory: Memory, sentence: Sentence, estimates: Array, numbers: Array
) -> None:
    """The options of a sentence by span, and what can be known before the search."""
    weight, spans, is_oriented = model.settings.language_model_weight * _LN10, sentence.spans, False
    for place in range(len(given.targets)):
        sentence.words[place] = given.targets[place]
    sentence.words[len(given.targets)] = END
    for number in range(len(given.scores)):
        ways = given.orientations[number]
        estimates[number] = given.scores[number] + max(ways[0], ways[1], ways[2]) + max(ways[3], ways[4], ways[5])
        for way in range(6):
            is_oriented = is_oriented or ways[way] != 0
        if weight != 0 and not model.is_constrained:
            first, last = given.target_starts[number], given.target_starts[number + 1]
            estimates[number] += weight * read_alone(
                model.trie, model.order, sentence.words, first, last, memory.known, memory.found
            )
        spans[given.begins[number], given.ends[number] - given.begins[number]] += 1
    before = 0
    for begin in range(spans.shape[0]):  # where the options of each span end
        for size in range(spans.shape[1]):
            spans[begin, size] += before
            before = spans[begin, size]
    sort_ranks(estimates, numbers, len(numbers))
    for place in range(len(numbers)):  # rising: the worst of a span goes to its end
        number = numbers[place]
        begin, end = given.begins[number], given.ends[number]
        spans[begin, end - begin] -= 1
        option = sentence.options[spans[begin, end - begin]]
        option.begin, option.end, option.number = begin, end, number
        option.score, option.estimate = given.scores[number], estimates[place]
        option.word_begin, option.word_end = given.target_starts[number], given.target_starts[number + 1]
        for way in range(6):
            sentence.orientations[spans[begin, end - begin], way] = given.orientations[number, way]
    number_tails(sentence, is_oriented)
    fill_futures(sentence.options, spans, length, sentence.futures)


@compiled(is_allocating=False)
def orientation_of(previous_begin: int, previous_end: int, begin: int, end: int) -> int:
    """Where a span lies after the one before."""
    if begin == previous_end:
        return MONOTONE
    return SWAP if end == previous_begin else DISCONTINUOUS


@compiled(is_allocating=False)
def number_tails(sentence: Sentence, is_oriented: bool) -> None:
    """Give options their tails: span and orientations to the next phrase, or the end alone without these."""
    options, tails, scores = sentence.options, sentence.tails, sentence.tail_scores
    tails[0, 0] = -1
    size = first = 1
    for number in range(len(options)):
        option = options[number]
        if not is_oriented:
            option.tail = option.end
            tails[option.end, 1] = option.end
            continue
        if number == 0 or option.begin != options[number - 1].begin or option.end != options[number - 1].end:
            first = size
        ways, tail = sentence.orientations[number], first
        while tail < size and (scores[tail, 0] != ways[3] or scores[tail, 1] != ways[4] or scores[tail, 2] != ways[5]):
            tail += 1
        option.tail = tail
        if tail == size:
            tails[tail, 0], tails[tail, 1] = option.begin, option.end
            scores[tail, 0], scores[tail, 1], scores[tail, 2] = ways[3], ways[4], ways[5]
            size += 1


@compiled(is_allocating=False)
def fill_futures(options: Array, spans: Array, length: int, futures: Array) -> None:
    """The best sum of estimates that covers the words between two places, −inf if nothing covers them."""
    for begin in range(length - 1, -1, -1):
        for end in range(begin + 1, length + 1):
            best = -np.inf
            for size in range(1, min(spans.shape[1] - 2, end - begin) + 1):
                if spans[begin, size] < spans[begin, size + 1]:
                    best = max(best, options[spans[begin, size]].estimate + futures[begin + size, end])
            futures[begin, end] = best


@compiled(is_allocating=False)
def is_covered(bits: Array, place: int) -> Any:
    """Whether a word is covered."""
    return (bits[place >> 6] >> (place & 63)) & 1


@compiled(is_allocating=False)
def extend_coverage(futures: Array, length: int, memory: Memory, coverage: int, begin: int, end: int) -> Any:
    """The coverage with a span in addition."""
    slots, sizes = memory.coverage_slots, memory.sizes
    number = sizes[COVERAGES]
    bits = memory.coverages[number]  # a free row
    for part in range(len(bits)):
        bits[part] = memory.coverages[coverage, part]
    for place in range(begin, end):
        bits[place >> 6] |= np.int64(1) << (place & 63)
    hashed = np.int64(0)
    for part in range(len(bits)):
        hashed = mix(hashed + bits[part])
    slot = hashed & (len(slots) - 1)
    while slots[slot] >> 32 == sizes[SENTENCE]:
        other = slots[slot] & LOW_BITS
        is_same = True
        for part in range(len(bits)):
            is_same = is_same and memory.coverages[other, part] == bits[part]
        if is_same:
            return other
        slot = (slot + 1) & (len(slots) - 1)
    slots[slot] = (sizes[SENTENCE] << 32) | number
    sizes[COVERAGES] += 1
    first, total, place = np.int64(length), 0.0, 0
    while place < length:
        gap = place
        while place < length and not is_covered(bits, place):
            place += 1
        if place > gap:
            first = min(first, np.int64(gap))
            total += futures[gap, place]
        place += 1
    memory.gaps[number], memory.futures[number] = first, total
    return number


# --- stacks -----------------------------------------------------------------------------------------------------------


@compiled(is_allocating=False)
def search(sentence: Sentence, length: int, model: Model, memory: Memory) -> Any:
    """Fill all stacks; returns the first hypothesis of the last one, or FULL."""
    sizes = memory.sizes
    sizes[:SENTENCE] = 0
    sizes[SENTENCE] = sizes[STACK] = sizes[STACK] + 1
    memory.coverages[0, :] = 0
    memory.gaps[0], memory.futures[0] = 0, sentence.futures[0, length]
    if memory.futures[0] == -np.inf:  # not even without limits
        return sizes[HYPOTHESES]
    start, group = memory.hypotheses[0], memory.groups[0]
    start.score, start.rank, start.coverage, start.state, start.tail, start.edge = 0.0, 0.0, 0, 0, 0, -1
    group.first, group.last, group.coverage, group.end = 0, 1, 0, 0
    sizes[HYPOTHESES] = sizes[COVERAGES] = sizes[GROUPS] = 1
    memory.known[0] = memory.text[0] = BEGIN
    number_state(model.trie, memory, memory.known, min(1, model.order - 1), 0)
    memory.heads[: length + 1] = -1
    first, group_first = np.int64(0), np.int64(0)
    for covered in range(length + 1):
        if covered:
            first, group_first = sizes[HYPOTHESES], sizes[GROUPS]
            sizes[STACK] += 1
            if fill_stack(sentence, length, model, memory, covered) == FULL:
                return FULL
            prune(sentence.tails, model.settings, memory, first)
        for number in range(group_first, sizes[GROUPS]):
            if open_cubes(sentence, length, model.settings, memory, number, covered) == FULL:
                return FULL
    return first


@compiled(is_allocating=False)
def open_cubes(
    sentence: Sentence, length: int, settings: StackSettings, memory: Memory, number: int, covered: int
) -> int:
    """All cubes of a group of hypotheses."""
    group, futures, limit = memory.groups[number], sentence.futures, settings.distortion_limit
    bits, first, place = memory.coverages[group.coverage], memory.gaps[group.coverage], memory.gaps[group.coverage]
    while place < length:
        gap = place
        while place < length and not is_covered(bits, place):
            place += 1
        for begin in range(gap, place):
            if limit >= 0 and begin - group.end > limit:
                return DONE
            if limit >= 0 and group.end - begin > limit:
                continue
            rest = memory.futures[group.coverage] - futures[gap, place] + futures[gap, begin]
            rest += settings.distortion_weight * abs(begin - group.end)
            for size in range(1, min(sentence.spans.shape[1] - 2, place - begin) + 1):
                end = begin + size
                if limit >= 0 and begin > first and end - first > limit:
                    break
                option, option_end = sentence.spans[begin, size], sentence.spans[begin, size + 1]
                base = rest + futures[end, place]
                if option == option_end or base == -np.inf:
                    continue
                if memory.sizes[CUBES] == len(memory.cubes):
                    return FULL
                cube = memory.cubes[memory.sizes[CUBES]]
                cube.base, cube.first, cube.last = base, group.first, group.last
                cube.option, cube.option_end = option, option_end
                cube.coverage, cube.is_extended, cube.other = group.coverage, 0, memory.heads[covered + size]
                memory.heads[covered + size] = memory.sizes[CUBES]
                memory.sizes[CUBES] += 1
        place += 1
    return DONE


@compiled(is_allocating=False)
def fill_stack(sentence: Sentence, length: int, model: Model, memory: Memory, covered: int) -> int:
    """Make the hypotheses of a stack from its cubes."""
    hypotheses, cubes, cells, options = memory.hypotheses, memory.cubes, memory.cells, sentence.options
    ranks, queue, sizes, settings = memory.ranks, memory.queue, memory.sizes, model.settings
    head, is_pruned, pops, made = memory.heads[covered], settings.pop_limit > 0, 0, 0
    while head >= 0:
        if made == len(cells):
            return FULL
        cube, cell = cubes[head], cells[made]
        cell.cube, cell.row, cell.column, cell.state = head, 0, 0, -1
        ranks[made] = hypotheses[cube.first].score + options[cube.option].estimate + cube.base
        queue[made] = made
        made, head = made + 1, cube.other
    size = made
    if is_pruned:
        make_heap(ranks, queue, size)
    while size and (pops < settings.pop_limit or not is_pruned):
        room = min(len(hypotheses), len(memory.coverages), len(memory.states)) - 1
        in_use = max(sizes[HYPOTHESES], sizes[COVERAGES], sizes[STATES])
        if in_use >= room or sizes[EDGES] == len(memory.edges) or made + 2 > len(cells):
            return FULL
        if is_pruned:
            number = queue[0]
            size = pop_heap(ranks, queue, size)
        else:
            size -= 1
            number = queue[size]
        cell = cells[number]
        cube = cubes[cell.cube]
        before, option = cube.first + cell.row, cube.option + cell.column
        if cell.state < 0:  # its neighbours: the next option, and the next hypothesis with the first option
            if option + 1 < cube.option_end:
                size = push_cell(options, memory, is_pruned, size, made, cell.cube, cell.row, cell.column + 1)
                made += 1
            if cell.column == 0 and before + 1 < cube.last:
                size = push_cell(options, memory, is_pruned, size, made, cell.cube, cell.row + 1, 0)
                made += 1
            added, state = score_option(sentence, model, memory, before, option)
            if added == -np.inf:
                continue
            cell.added, cell.state = added, state
            if not cube.is_extended:
                begin, end = options[option].begin, options[option].end
                cube.coverage = extend_coverage(sentence.futures, length, memory, cube.coverage, begin, end)
                cube.is_extended = 1
            rank = hypotheses[before].score + added + memory.futures[cube.coverage]
            if is_pruned and size and rank < ranks[0]:
                size = push_heap(ranks, queue, size, rank, number)
                continue
        pops += 1
        tail = options[option].tail
        add_hypothesis(memory, model.nbest > 1, cube.coverage, cell.state, tail, before, option, cell.added)
    return DONE


@compiled(is_allocating=False)
def push_cell(
    options: Array, memory: Memory, is_pruned: bool, size: int, number: int, cube: Any, row: Any, column: Any
) -> int:
    """Enter a cell that has not been scored; returns the new size of the queue."""
    cell, table = memory.cells[number], memory.cubes[cube]
    cell.cube, cell.row, cell.column, cell.state = cube, row, column, -1
    if is_pruned:
        rank = memory.hypotheses[table.first + row].score + options[table.option + column].estimate + table.base
        return push_heap(memory.ranks, memory.queue, size, rank, number)
    memory.queue[size] = number
    return size + 1


@compiled(is_allocating=False)
def score_option(sentence: Sentence, model: Model, memory: Memory, before: Any, number: Any) -> Any:
    """What an option adds to a hypothesis, and the state after it; −inf and any state if it cannot follow."""
    hypothesis, option, settings = memory.hypotheses[before], sentence.options[number], model.settings
    previous_begin, previous_end = sentence.tails[hypothesis.tail, 0], sentence.tails[hypothesis.tail, 1]
    way = orientation_of(previous_begin, previous_end, option.begin, option.end)
    score = option.score + settings.distortion_weight * abs(option.begin - previous_end)
    score += sentence.orientations[number, way] + sentence.tail_scores[hypothesis.tail, way]
    state = np.int64(hypothesis.state)
    if model.is_constrained:
        for word in range(option.word_begin, option.word_end):
            if state == len(sentence.goal) or sentence.goal[state] != sentence.words[word]:
                return -np.inf, state
            state += 1
    elif settings.language_model_weight != 0:
        entry = memory.cache[mix(state * len(sentence.options) + number) & (len(memory.cache) - 1)]
        if entry.before != state or entry.option != number or entry.stamp != memory.sizes[SENTENCE]:
            log_prob, after = read_words(
                model.trie, sentence.words, np.int64(option.word_begin), np.int64(option.word_end), memory, state
            )
            entry.before, entry.option, entry.stamp = state, number, memory.sizes[SENTENCE]
            entry.score, entry.state = log_prob, after
        score += settings.language_model_weight * (entry.score * _LN10)
        state = np.int64(entry.state)
    return score, state


@compiled(is_allocating=False)
def add_hypothesis(
    memory: Memory,
    keeps_all: bool,
    coverage: Any,
    state: Any,
    tail: Any,
    before: Any,
    option: Any,
    added: float,
) -> None:
    """Enter a hypothesis into its stack, or recombine it with the one that is there.

    `keeps_all` keeps the edges of the worse one too.
    """
    hypotheses, slots, edges, sizes = memory.hypotheses, memory.hypothesis_slots, memory.edges, memory.sizes
    score, size, stamp = hypotheses[before].score + added, sizes[EDGES], sizes[STACK]
    slot = mix(mix((np.int64(coverage) << 32) | np.int64(state)) + tail) & (len(slots) - 1)
    while slots[slot] >> 32 == stamp:
        same = hypotheses[slots[slot] & LOW_BITS]
        if same.coverage == coverage and same.state == state and same.tail == tail:
            is_better = score > same.score
            if is_better:
                same.score, same.rank = score, score + memory.futures[coverage]
            if keeps_all:
                sizes[EDGES] += 1
                edges[size].other = same.edge if is_better else edges[same.edge].other
                if is_better:
                    same.edge = size
                else:
                    edges[same.edge].other = size
            elif is_better:
                size = np.int64(same.edge)
            else:
                return
            edges[size].score, edges[size].before, edges[size].option = added, before, option
            return
        slot = (slot + 1) & (len(slots) - 1)
    number = sizes[HYPOTHESES]
    sizes[HYPOTHESES] += 1
    sizes[EDGES] += 1
    slots[slot] = (stamp << 32) | number
    new, edge = hypotheses[number], edges[size]
    new.score, new.rank, new.edge = score, score + memory.futures[coverage], size
    new.coverage, new.state, new.tail = coverage, state, tail
    edge.score, edge.before, edge.option, edge.other = added, before, option, -1


@compiled(is_allocating=False)
def make_heap(ranks: Array, items: Array, size: int) -> None:
    """Order the first items as a heap, highest rank first."""
    for place in range(size // 2 - 1, -1, -1):
        sink(ranks, items, size, place, ranks[place], items[place])


@compiled(is_allocating=False)
def sink(ranks: Array, items: Array, size: int, place: int, rank: float, item: Any) -> None:
    """Put an item at a place of a heap or below it."""
    while 2 * place + 1 < size:
        below = 2 * place + 1
        if below + 1 < size and ranks[below + 1] > ranks[below]:
            below += 1
        if ranks[below] <= rank:
            break
        ranks[place], items[place] = ranks[below], items[below]
        place = below
    ranks[place], items[place] = rank, item


@compiled(is_allocating=False)
def push_heap(ranks: Array, items: Array, size: int, rank: float, item: int) -> int:
    """Add an item to a heap, highest rank first; returns the new size."""
    place = size
    while place and ranks[(place - 1) >> 1] < rank:
        above = (place - 1) >> 1
        ranks[place], items[place] = ranks[above], items[above]
        place = above
    ranks[place], items[place] = rank, item
    return size + 1


@compiled(is_allocating=False)
def pop_heap(ranks: Array, items: Array, size: int) -> int:
    """Remove the first item; returns the new size."""
    sink(ranks, items, size - 1, 0, ranks[size - 1], items[size - 1])
    return size - 1


@compiled(is_allocating=False)
def sort_ranks(ranks: Array, items: Array, size: int) -> None:
    """Sort items by rising rank."""
    make_heap(ranks, items, size)
    while size > 1:
        rank, item = ranks[0], items[0]
        size = pop_heap(ranks, items, size)
        ranks[size], items[size] = rank, item


@compiled(is_allocating=False)
def prune(tails: Array, settings: StackSettings, memory: Memory, first: Any) -> None:
    """Keep the best hypotheses from the number `first` on, and put them into groups."""
    hypotheses, sizes, slots = memory.hypotheses, memory.sizes, memory.group_slots
    ranks, queue = memory.ranks, memory.queue
    made, kept, stamp = sizes[HYPOTHESES] - first, 0, sizes[STACK]
    for number in range(made):
        ranks[number], queue[number] = hypotheses[first + number].rank, first + number
    sort_ranks(ranks, queue, made)
    group_first = sizes[GROUPS]
    while kept < min(made, settings.beam) and ranks[made - 1 - kept] >= ranks[made - 1] - settings.threshold:
        hypothesis = hypotheses[queue[made - 1 - kept]]
        coverage, end = hypothesis.coverage, tails[hypothesis.tail, 1]
        slot = mix((np.int64(coverage) << 32) | end) & (len(slots) - 1)
        group = memory.groups[slots[slot] & LOW_BITS]
        while slots[slot] >> 32 == stamp and (group.coverage != coverage or group.end != end):
            slot = (slot + 1) & (len(slots) - 1)
            group = memory.groups[slots[slot] & LOW_BITS]
        if slots[slot] >> 32 != stamp:
            slots[slot] = (stamp << 32) | sizes[GROUPS]
            group = memory.groups[sizes[GROUPS]]
            sizes[GROUPS] += 1
            group.coverage, group.end, group.last = coverage, end, 0
        group.last += 1
        memory.cells[kept].cube = slots[slot] & LOW_BITS
        kept += 1
    place = first
    for number in range(group_first, sizes[GROUPS]):
        group = memory.groups[number]
        place += group.last
        group.first = group.last = place - group.last
    for number in range(kept):
        group = memory.groups[memory.cells[number].cube]
        memory.kept[group.last - first] = hypotheses[queue[made - 1 - number]]
        group.last += 1
    for number in range(kept):
        hypotheses[first + number] = memory.kept[number]
    sizes[HYPOTHESES] = first + kept


# --- derivations ------------------------------------------------------------------------------------------------------

#
# The score of a hypothesis is that of the best way to it, so a path that leads from it to the end of the sentence is
# part of a derivation of known score. Paths grow backwards, best first: whole ones come out in the order of the
# derivations' scores.


@compiled(is_allocating=False)
def best_derivations(
    sentence: Sentence,
    length: int,
    model: Model,
    memory: Memory,
    first: Any,
    scores: Array,
    starts: Array,
    chosen: Array,
) -> Any:
    """Write scores of the best derivations, where the options of each begin, and the options; returns their number."""
    hypotheses, edges, paths = memory.hypotheses, memory.edges, memory.paths
    ranks, queue = memory.ranks, memory.queue
    made = size = found = 0
    if memory.sizes[HYPOTHESES] - first >= len(paths):
        return FULL
    for number in range(first, memory.sizes[HYPOTHESES]):
        added = end_score(sentence, length, model, memory, number)
        if added != -np.inf:
            path = paths[made]
            path.score, path.added, path.before, path.option, path.after = added, added, number, -1, -1
            size = push_heap(ranks, queue, size, hypotheses[number].score + added, made)
            made += 1
    while size and found < model.nbest:
        here = queue[0]
        size = pop_heap(ranks, queue, size)
        number, rest = paths[here].before, paths[here].score
        edge = hypotheses[number].edge
        while edge >= 0:
            if made == len(paths):
                return FULL
            path, before = paths[made], edges[edge].before
            path.score, path.added, path.after = rest + edges[edge].score, edges[edge].score, here
            path.before, path.option = before, edges[edge].option
            size = push_heap(ranks, queue, size, hypotheses[before].score + path.score, made)
            made += 1
            edge = edges[edge].other
        if number == 0:  # the whole sentence; summed up as its hypotheses were
            score, place = 0.0, starts[found]
            while paths[here].option >= 0:
                score += paths[here].added
                chosen[place] = sentence.options[paths[here].option].number
                here, place = paths[here].after, place + 1
            scores[found], starts[found + 1] = score + paths[here].added, place
            found += 1
    return found


@compiled(is_allocating=False)
def end_score(sentence: Sentence, length: int, model: Model, memory: Memory, number: Any) -> Any:
    """What the end of the sentence adds to a hypothesis; −inf if the given translation is not complete."""
    hypothesis = memory.hypotheses[number]
    begin, end = sentence.tails[hypothesis.tail, 0], sentence.tails[hypothesis.tail, 1]
    score = sentence.tail_scores[hypothesis.tail, orientation_of(begin, end, length, length + 1)]
    if model.is_constrained:
        return score if hypothesis.state == len(sentence.goal) else -np.inf
    weight, last = model.settings.language_model_weight, len(sentence.words) - 1
    if weight != 0:
        log_prob, _ = read_words(model.trie, sentence.words, last, last + 1, memory, np.int64(hypothesis.state))
        score += weight * (log_prob * _LN10)
    return score
