"""N-gram language models: the next word from the last few, by counting.

    P(w_1 … w_T) = Π_t P(w_t ∣ w_(t−N+1) … w_(t−1))      each sentence begins with <s> and ends with </s>

`smoothing` decides the probability of a word that never followed a context: 0 ("mle"), a constant share ("laplace"), or
the probability after the shorter context ("kneser_ney"). All three are stored in the same form: one probability per
n-gram and one back-off weight per context, in a trie that can be memory-mapped.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Float64, Int32, Int64, Integer
from pydantic import Field, model_validator

from seqloom.classical.kneser_ney import (
    FALLBACK,
    Discounts,
    Level,
    kneser_ney,
    laplace,
    maximum_likelihood,
)
from seqloom.classical.ngram_counts import Array, Grams, add_begins, count_ngrams
from seqloom.core.declaration import ModelSettings, ModelSizes, Pieces, Purpose, Reason, TaskKind, TextFacts
from seqloom.core.errors import DataError, ModelError, UsageError
from seqloom.core.events import Listener, ignore, notice
from seqloom.core.jit import compiled
from seqloom.core.reading import TextReader
from seqloom.core.symbols import BEGIN, END, UNKNOWN
from seqloom.text.tokenizer import EncodedText

MAX_ORDER = 64
"""The highest order that the compiled loops support."""

MAX_NODES = np.iinfo(np.uint32).max
"""Nodes that four bytes can number."""

MAX_BACKOFF = 100.0
"""log10 of a back-off weight, far above those of any text: beyond it sums of logarithms overflow."""

PREFETCH_BLOCK = 64
"""Words whose slots and nodes are fetched together; they fit into the L1 cache."""

PREFETCH_CONTEXT = 3
"""Words of context up to which n-grams are prefetched; longer ones are rarely found."""

LOW_BITS = 0xFFFFFFFF
"""The lower half of a slot is a node, the upper half a part of its hash, which avoids most reads of a wrong node."""

_LN10 = math.log(10)
_TAB, _LF, _RETURN, _SPACE = 9, 10, 13, 32

Contexts = Iterable[Sequence[int] | Integer[np.ndarray, " _"]]
"""The words before each predicted one."""

Bits = Any
"""Sixty-four bits of a hash; products overflow on purpose."""


# --- the trie ---------------------------------------------------------------------------------------------------------
#
# A trie holds all n-grams as nodes: single words first, node w for word w, then the pairs, and so on. The children of a
# node are the n-grams with one more word, contiguous, by rising word. Every prefix and suffix of an n-gram in the trie
# is in it too. While a sentence is read, the nodes of all n-grams that end at the last word are known:
#
#     known[k]    the node of the last k + 1 words, as long as there is one
#     next word   found[0] is the word itself; found[k] is the child of known[k − 1], as long as there is one
#     log P       log_prob of the longest found, plus backoff of each known one without such a child
#
# A child is looked up by a hash of its words alone, from the last one backwards, so lookups are independent. A model
# is far larger than the caches, so streams are read in blocks, and the memory that a block needs is fetched first, all
# at once; otherwise each word would wait several times for the memory.

NODE = np.dtype([("word", "<i4"), ("log_prob", "<f4"), ("backoff", "<f4"), ("first", "<u4")])
"""A node: its last word, log10 P, log10 γ, and its first child; they end at the first child of the next node."""


class Trie(NamedTuple):
    """Nodes, with a sentinel at the end, and the slots of a hash table of all n-grams of two words and more."""

    nodes: Array
    slots: Array


@dataclass(frozen=True, eq=False)
class Layer:
    """The n-grams of one length as a model keeps them, by rising context and word."""

    contexts: Int64[np.ndarray, " grams"]
    """The number of each n-gram without its last word, in the layer before."""
    words: Int32[np.ndarray, " grams"]
    log_probs: Float[np.ndarray, " grams"]
    """log10 P(last word ∣ the words before)."""
    backoffs: Float[np.ndarray, " grams"]
    """log10 γ; 0 in the last layer."""
    suffixes: Int64[np.ndarray, " grams"]
    """The number of each n-gram without its first word, in the layer before."""


def layers_of(levels: Sequence[Grams], smoothed: Sequence[Level]) -> Iterator[Layer]:
    """The counted n-grams that are kept, renumbered. Every prefix and suffix of a kept n-gram is kept too."""
    numbers: np.ndarray | None = None  # of each counted n-gram among the kept ones; None where all are kept
    for grams, level in zip(levels, smoothed, strict=True):
        rows = slice(None) if level.is_kept.all() else np.flatnonzero(level.is_kept)
        contexts, suffixes = grams.contexts[rows], grams.suffixes[rows]
        yield Layer(
            contexts if numbers is None else numbers[contexts],
            grams.words[rows],
            level.log_probs[rows],
            level.backoffs[rows],
            suffixes if numbers is None else numbers[suffixes],
        )
        numbers = None if isinstance(rows, slice) else np.cumsum(level.is_kept) - 1


def build_trie(layers: Sequence[Layer]) -> tuple[Trie, Int64[np.ndarray, " borders"]]:
    """The trie, and where the nodes of each length begin; the last border is their number."""
    borders = np.cumsum([0, *(len(layer.words) for layer in layers)])
    if borders[-1] > MAX_NODES:
        raise DataError(f"{borders[-1]:,} n-grams are more than {MAX_NODES:,}; lower model.order or raise model.prune")
    nodes = np.zeros(int(borders[-1]) + 1, NODE)
    for layer, (begin, end) in zip(layers, pairwise(borders), strict=True):
        part = nodes[begin:end]
        part["word"], part["log_prob"], part["backoff"] = layer.words, layer.log_probs, layer.backoffs
    nodes["first"] = borders[-1]
    for layer, (begin, end) in zip(layers[1:], pairwise(borders[:-1]), strict=True):
        children = np.bincount(layer.contexts, minlength=end - begin)
        nodes["first"][begin:end] = end + np.cumsum(children) - children
    slots = np.zeros(int(2 * (borders[-1] - borders[1])) + 1, np.int64)  # half full, since most lookups find nothing
    first_words = layers[0].words
    hashes = first_words.astype(np.int64)
    for layer, begin in zip(layers[1:], borders[1:-1], strict=True):
        first_words = first_words[layer.contexts]
        longer = np.empty(len(layer.words), np.int64)
        hash_layer(hashes, layer.suffixes, first_words, longer)
        fill_slots(slots, longer, int(begin))
        hashes = longer
    return Trie(nodes, slots), borders


@compiled()
def extend_hash(hashed: Bits, word: int) -> Bits:
    """The hash of an n-gram from that of its suffix and the word before it (SplitMix64's constants)."""
    value = (hashed ^ np.int64(word + 1)) * np.int64(0x9E3779B97F4A7C15 - (1 << 64))
    value = (value ^ ((value >> 32) & LOW_BITS)) * np.int64(0xBF58476D1CE4E5B9 - (1 << 64))
    return value ^ ((value >> 29) & np.int64(0x7FFFFFFFF))


@compiled()
def first_slot(hashed: Bits, slots: int) -> Bits:
    """The first slot to try: the lower half as a fraction of the table, which may have any size."""
    return ((hashed & LOW_BITS) * slots) >> 32


@compiled()
def hash_layer(suffix_hashes: Array, suffixes: Array, first_words: Array, hashes: Array) -> None:
    """The hashes of all n-grams of one length, from those of the length before."""
    for row in range(len(suffixes)):
        hashes[row] = extend_hash(suffix_hashes[suffixes[row]], first_words[row])


@compiled()
def fill_slots(slots: Array, hashes: Array, first_node: int) -> None:
    """Enter the nodes of one length."""
    for row in range(len(hashes)):
        place = first_slot(hashes[row], len(slots))
        while slots[place] != 0:
            place = place + 1 if place + 1 < len(slots) else 0
        slots[place] = (((hashes[row] >> 32) & LOW_BITS) << 32) | np.int64(first_node + row)


@compiled()
def find_child(trie: Trie, hashed: Bits, word: int, first: Any, end: Any) -> Any:
    """The node with this hash and last word among the children between `first` and `end`, −1 if there is none."""
    slots = trie.slots
    tag = (hashed >> 32) & LOW_BITS
    place = first_slot(hashed, len(slots))
    while True:
        slot = slots[place]
        if slot == 0:  # node 0 is a single word, so it is in no slot
            return -1
        if (slot >> 32) & LOW_BITS == tag:
            child = slot & LOW_BITS
            if first <= child and child < end and trie.nodes[child].word == word:
                return child
        place = place + 1 if place + 1 < len(slots) else 0


@compiled()
def read_word(trie: Trie, ids: Array, place: int, known: Array, length: int, found: Array) -> int:
    """Write the nodes of all n-grams that end at a place; returns their number. `known[:length]` end one before."""
    nodes = trie.nodes
    word = ids[place]
    found[0] = word
    hashed = np.int64(word)
    for back in range(1, length + 1):
        context = known[back - 1]
        first, end = np.int64(nodes[context].first), np.int64(nodes[context + 1].first)
        if first == end:
            return back
        hashed = extend_hash(hashed, ids[place - back])
        child = find_child(trie, hashed, word, first, end)
        if child < 0:
            return back
        found[back] = child
    return length + 1


@compiled()
def backoff_sum(nodes: Array, known: Array, length: int, matched: int) -> float:
    """The back-off weights of the contexts after which the word was not found."""
    total = 0.0
    for back in range(matched, length + 1):
        total += nodes[known[back - 1]].backoff
    return total


@compiled()
def fetch_block(trie: Trie, ids: Array, begin: int, end: int, back: int, hashes: Array) -> Any:
    """Read what the n-grams that end between two places need, shortest first.

    The first loop reads slots, the second one nodes. Neither branches on what it reads, so that reads overlap. The sum
    is returned so that the compiler does not remove the reads.
    """
    nodes, slots = trie.nodes, trie.slots
    total, size = np.int64(0), 0
    for place in range(max(begin, back), end):
        hashed = np.int64(ids[place])
        for distance in range(1, back + 1):
            hashed = extend_hash(hashed, ids[place - distance])
            hashes[size] = hashed
            total += slots[first_slot(hashed, len(slots))]
            size += 1
    for entry in range(size):
        hashed = hashes[entry]
        slot = slots[first_slot(hashed, len(slots))]
        node = slot & LOW_BITS if (slot >> 32) & LOW_BITS == (hashed >> 32) & LOW_BITS else 0
        total += nodes[node].word
    return total


@compiled()
def score_stream(trie: Trie, ids: Array, order: int, log_probs: Array, matches: Array, begin: int) -> int:
    """log10 P of each id but `begin`, with which each sentence begins.

    `matches` receives the length of the n-gram found for each, if it has room.
    """
    nodes, room = trie.nodes, len(matches)
    known, found = np.zeros(order + 1, np.int64), np.zeros(order + 1, np.int64)
    back = min(order - 1, PREFETCH_CONTEXT)
    hashes = np.empty(PREFETCH_BLOCK * PREFETCH_CONTEXT, np.int64)
    length = answer = touched = 0
    for place in range(len(ids)):
        if place % PREFETCH_BLOCK == 0 and back:
            touched += fetch_block(trie, ids, place, min(place + PREFETCH_BLOCK, len(ids)), back, hashes)
        if ids[place] == begin:
            known[0], length = begin, 1
            continue
        matched = read_word(trie, ids, place, known, min(length, order - 1), found)
        log_probs[answer] = nodes[found[matched - 1]].log_prob + backoff_sum(nodes, known, length, matched)
        if answer < room:
            matches[answer] = matched
        answer += 1
        known, found, length = found, known, min(matched, order - 1)
    return touched


@compiled()
def read_contexts(trie: Trie, ids: Array, starts: Array, order: int, states: Array) -> None:
    """The nodes of all n-grams that end each context, −1 where there is none."""
    known, found = np.zeros(order + 1, np.int64), np.zeros(order + 1, np.int64)
    for row in range(len(starts) - 1):
        length = 0
        for place in range(starts[row], starts[row + 1]):
            length = min(read_word(trie, ids, place, known, length, found), order - 1)
            known, found = found, known
        for back in range(order - 1):
            states[row, back] = known[back] if back < length else -1


@compiled()
def fill_distributions(trie: Trie, states: Array, rows: Array) -> None:
    """log10 P of every word after each context: the shortest context writes first, longer ones overwrite it."""
    nodes, symbols = trie.nodes, rows.shape[1]
    for row in range(len(states)):
        for back in range(-1, states.shape[1]):
            if back >= 0 and states[row, back] < 0:
                break
            total = 0.0
            for longer in range(back + 1, states.shape[1]):
                if states[row, longer] >= 0:
                    total += nodes[states[row, longer]].backoff
            if back < 0:
                for word in range(symbols):
                    rows[row, word] = total + nodes[word].log_prob
                continue
            context = states[row, back]
            for child in range(np.int64(nodes[context].first), np.int64(nodes[context + 1].first)):
                rows[row, nodes[child].word] = total + nodes[child].log_prob


# --- text -------------------------------------------------------------------------------------------------------------
#
# Ids of words directly from the bytes of a text, without a Python object per word. Words end at spaces and tabs.
# Each word is hashed while it is read (FNV-1a) and looked up in an open hash table, where it is compared byte by byte.

FNV_BASIS = np.int64(0xCBF29CE484222325 - (1 << 64))
"""The initial value of FNV-1a."""


class WordTable(NamedTuple):
    """The bytes of all words, where each begins, and the slots of an open hash table with their ids."""

    words: Array
    starts: Array
    slots: Array

    @staticmethod
    def of(vocabulary: Sequence[str]) -> "WordTable":
        """The table of a vocabulary."""
        encoded = [word.encode("utf-8") for word in vocabulary]
        slots = np.zeros(1 << (2 * len(encoded)).bit_length(), np.int32)
        table = WordTable(np.frombuffer(b"".join(encoded), np.uint8), np.cumsum([0, *map(len, encoded)]), slots)
        enter_words(table)
        return table


def encode_lines(
    lines: Sequence[str], table: WordTable
) -> tuple[Int32[np.ndarray, " tokens"], Int64[np.ndarray, " lines"]]:
    """The ids of all lines, each ended by END, and where each line begins. Reserved words in a line are unknown."""
    joined = "".join([f"{line}\n" for line in lines])
    if joined.count("\n") != len(lines):
        bad = next(number for number, line in enumerate(lines, 1) if "\n" in line)
        raise DataError(f"line {bad} contains a line break; pass each line separately")
    text = np.frombuffer(joined.encode("utf-8"), np.uint8)
    ids = np.empty(len(text) // 2 + len(lines) + 1, np.int32)
    starts = np.zeros(len(lines) + 1, np.int64)
    size = encode_bytes(text, table, ids, starts)
    return ids[:size], starts[:-1]


@compiled()
def hash_byte(value: Bits, byte: int) -> Bits:
    """One step of FNV-1a."""
    return (value ^ np.int64(byte)) * np.int64(0x100000001B3)


@compiled()
def slot_of(value: Bits, slots: Array) -> Bits:
    """The slot of a hash, whose halves are mixed since the lower bits choose the slot."""
    return (value ^ ((value >> 32) & np.int64(0xFFFFFFFF))) & (len(slots) - 1)


@compiled()
def enter_words(table: WordTable) -> None:
    """Fill the slots; 0 is an empty one, since padding never occurs in a text."""
    mask = len(table.slots) - 1
    for word in range(1, len(table.starts) - 1):
        value = FNV_BASIS
        for place in range(table.starts[word], table.starts[word + 1]):
            value = hash_byte(value, table.words[place])
        place = slot_of(value, table.slots)
        while table.slots[place] != 0:
            place = (place + 1) & mask
        table.slots[place] = word


@compiled()
def find_word(text: Array, begin: int, end: int, value: Bits, table: WordTable) -> Any:
    """The id of the word between two places of a text, given its hash; 0 if there is none."""
    mask = len(table.slots) - 1
    place = slot_of(value, table.slots)
    while table.slots[place] != 0:
        word = table.slots[place]
        first = table.starts[word]
        if table.starts[word + 1] - first == end - begin:
            same = True
            for k in range(end - begin):
                if text[begin + k] != table.words[first + k]:
                    same = False
                    break
            if same:
                return word
        place = (place + 1) & mask
    return 0


@compiled()
def encode_bytes(text: Array, table: WordTable, ids: Array, lines: Array) -> int:
    """Write the ids of a text whose lines all end with a line feed, and where each line ends; returns their number."""
    size = line = begin = 0
    is_inside = False
    value = FNV_BASIS
    for place in range(len(text)):
        byte = text[place]
        if byte != _SPACE and byte != _LF and byte != _TAB and byte != _RETURN:
            if not is_inside:
                begin, is_inside, value = place, True, FNV_BASIS
            value = hash_byte(value, byte)
            continue
        if is_inside:
            word = find_word(text, begin, place, value, table)
            ids[size] = word if word > END else UNKNOWN  # reserved symbols are not read from a text
            size += 1
            is_inside = False
        if byte == _LF:
            ids[size] = END
            size += 1
            line += 1
            lines[line] = size
    return size


# --- the model --------------------------------------------------------------------------------------------------------


class NGramConfig(ModelSettings):
    """How an n-gram model is counted and smoothed."""

    purpose: ClassVar[Purpose] = "language model"
    task_kind: ClassVar[TaskKind] = "fitting"
    pieces: ClassVar[Pieces] = "word"

    kind: Literal["ngram"] = "ngram"
    order: int = Field(default=5, ge=1, le=MAX_ORDER)
    """N: words in the longest n-grams, the predicted one included. 5 suits words, 6 or more suit characters."""
    smoothing: Literal["mle", "laplace", "kneser_ney"] = "kneser_ney"
    """Where the probability of unseen n-grams comes from."""
    alpha: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """What Laplace smoothing adds to each count."""
    prune: tuple[int, ...] = ()
    """Counts up to which n-grams of length 1, 2, … are left out by Kneser-Ney; the last number holds for all longer
    ones. It begins with 0 and never falls: [0, 0, 1] leaves out what occurs once from three words on."""
    discount_fallback: Discounts | None = FALLBACK
    """Kneser-Ney discounts for n-grams counted once, twice and more often where the text is too small to estimate them;
    null makes that an error."""
    memory: int = Field(default=1 << 30, ge=1)
    """Bytes that sorting may hold at a time; larger texts go through files."""

    @model_validator(mode="after")
    def _check(self) -> "NGramConfig":
        if self.prune and (self.prune[0] != 0 or sorted(self.prune) != list(self.prune)):
            raise ValueError(
                f"prune={list(self.prune)}: thresholds begin with 0, since single words are kept, and never fall; "
                "for example [0, 0, 1]"
            )
        if not all(0 <= discount <= count for count, discount in enumerate(self.discount_fallback or (), 1)):
            raise ValueError(
                f"discounts {list(self.discount_fallback or ())} for n-grams counted once, twice and more often take "
                "more than was counted, or less than nothing; give 0 to 1, 0 to 2 and 0 to 3, for example "
                "[0.5, 1.0, 1.5]"
            )
        return self

    def sizes_for_text(self, facts: TextFacts, pieces: Pieces) -> ModelSizes:  # noqa: ARG002
        order = 8 if pieces == "char" else 5
        reason = Reason(("model.kind", "model.order"), f"n-grams up to order {order}: longer ones hardly occur twice")
        return ModelSizes({"order": order}, (reason,))

    def fit(self, text: EncodedText, *, seed: int = 0, listener: Listener = ignore) -> "NGram":  # noqa: ARG002
        """Count and smooth. Nothing here is random: the seed has no effect."""
        levels = count_ngrams(text.ids, self.order, symbols=text.symbols, memory=self.memory, listener=listener)
        longest = sum(1 for grams in levels if len(grams))
        if longest < self.order:
            notice(
                listener,
                f"model.order={self.order} exceeds the longest line: the longest n-grams have {longest} words, "
                f"including the begin and end symbols, so the model has order {longest}",
            )
        match self.smoothing:
            case "mle":
                smoothed = maximum_likelihood(levels)
            case "laplace":
                smoothed = laplace(levels, alpha=self.alpha)
            case "kneser_ney":
                smoothed = kneser_ney(levels, prune=self.prune, fallback=self.discount_fallback, listener=listener)
        return NGram(*build_trie(list(layers_of(levels, smoothed))), text.vocabulary)

    def restore(self, arrays: Mapping[str, np.ndarray], vocabulary: Sequence[str]) -> "NGram":
        """The model whose `arrays` these are; they may be mapped files.

        Refuses arrays with which the compiled loops, which check nothing, could read out of bounds: words and nodes
        must exist, children must be in order, and a lookup only ends at an empty slot.
        """
        missing = {"nodes", "slots", "borders"} - arrays.keys()
        if missing:
            raise ModelError(f"not the arrays of an n-gram model: {', '.join(sorted(missing))} missing")
        nodes, slots, borders = (np.asarray(arrays[name]) for name in ("nodes", "slots", "borders"))
        kinds = [str(array.dtype) for array in (nodes, slots, borders)]
        is_plain = kinds == ["int32", "int64", "int64"] and slots.ndim == 1 and borders.ndim == 1 and len(slots) > 0
        if (
            not is_plain
            or not 2 <= len(borders) <= MAX_ORDER + 1
            or borders[0] != 0
            or (borders[1:] < borders[:-1]).any()
        ):
            raise ModelError(f"not the arrays of an n-gram model: {', '.join(kinds)}, borders {borders}")
        fits = nodes.ndim == 2 and nodes.shape[1] * 4 == NODE.itemsize and len(nodes) == borders[-1] + 1
        if not fits or borders[1] != len(vocabulary):
            raise ModelError(
                f"an n-gram model with {borders[1]:,} words and nodes of shape {list(nodes.shape)} does not fit a "
                f"vocabulary of {len(vocabulary):,}; the files belong to different models"
            )
        nodes, last = nodes.view(NODE)[:, 0], len(nodes) - 1
        wrong = {
            "words": ((nodes["word"] < 0) | (nodes["word"] >= len(vocabulary))).any(),
            "children": (nodes["first"][1:] < nodes["first"][:-1]).any() or nodes["first"][-1] != last,
            "slots": (slots & LOW_BITS).max() >= max(1, last) or (slots != 0).all(),
            "probabilities": not (nodes["log_prob"] <= 1).all(),  # 0 up to rounding; also refuses NaN
            "back-off weights": not (nodes["backoff"] <= MAX_BACKOFF).all(),
        }
        if found := [name for name, is_wrong in wrong.items() if is_wrong]:
            raise ModelError(f"not the arrays of an n-gram model: {' and '.join(found)} out of range; fit it again")
        return NGram(Trie(nodes, slots), borders, vocabulary)

    def describe(self, arrays: Mapping[str, np.ndarray]) -> dict[str, str]:
        """The number of n-grams of each length."""
        sizes = enumerate(np.diff(arrays["borders"]).tolist(), start=1)
        return {"N-grams": ", ".join(f"{count:,} of length {length}" for length, count in sizes)}


@dataclass(frozen=True, eq=False)
class NGram:
    """A fitted model. Its public methods return natural logarithms."""

    trie: Trie
    borders: Int64[np.ndarray, " borders"]
    """Where the nodes of each length begin, and where the last ones end."""
    vocabulary: Sequence[str]

    def __repr__(self) -> str:
        return f"NGram(order {self.order}, {self.symbols:,} symbols, {int(self.borders[-1]):,} n-grams)"

    def reader(self) -> TextReader:
        """This model as a reader, which scores texts."""
        from seqloom.classical.steppers import NGramReader  # with torch

        return NGramReader(self)

    def arrays(self) -> dict[str, np.ndarray]:
        """The model without its vocabulary, as arrays for a file."""
        nodes = self.trie.nodes.view(np.int32).reshape(-1, NODE.itemsize // 4)
        return {"nodes": nodes, "slots": self.trie.slots, "borders": self.borders}

    @property
    def order(self) -> int:
        """The length of the longest n-grams."""
        return len(self.borders) - 1

    @property
    def symbols(self) -> int:
        """The size of the vocabulary."""
        return len(self.vocabulary)

    def sizes(self) -> list[int]:
        """The number of n-grams of each length."""
        return [int(size) for size in np.diff(self.borders)]

    def log_probs(self, ids: Integer[np.ndarray, " tokens"], *, threads: int = 1) -> Float64[np.ndarray, " tokens"]:
        """log P of each id given its sentence so far, for sentences that each end with END; the first is a new one."""
        result = np.empty(len(ids))
        cuts = [0]  # borders of about equal parts, each of whole sentences
        for part in range(1, threads):
            begin = len(ids) * part // threads
            ends = np.flatnonzero(ids[begin:] == END)
            if len(ends) and cuts[-1] < begin + int(ends[0]) + 1 < len(ids):
                cuts.append(begin + int(ends[0]) + 1)
        cuts.append(len(ids))
        parts = [(ids[begin:end], result[begin:end]) for begin, end in pairwise(cuts)]
        if len(parts) == 1:
            self._score(*parts[0])
        else:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(lambda part: self._score(*part), parts))
        result *= _LN10
        return result

    def matched(self, ids: Integer[np.ndarray, " tokens"]) -> Int64[np.ndarray, " tokens"]:
        """The length of the n-gram found for each id: 1 where only the word itself was found."""
        matches = np.empty(len(ids), np.int64)
        self._score(ids, np.empty(len(ids)), matches)
        return matches

    def score_lines(self, lines: Sequence[str]) -> Float64[np.ndarray, " lines"]:
        """log P of each line, its end included. Words are separated by spaces or tabs and looked up unchanged."""
        ids, starts = encode_lines(lines, self.words)
        scores: np.ndarray = np.add.reduceat(self.log_probs(ids), starts) if len(lines) else np.empty(0)
        return scores

    def perplexity(self, ids: Integer[np.ndarray, " tokens"]) -> float:
        """exp(−mean log P) over all ids, END included."""
        if not len(ids):
            raise DataError("a text without tokens has no perplexity; pass at least one line")
        return float(np.exp(-self.log_probs(ids).mean()))

    def distribution(self, contexts: Contexts) -> Float64[np.ndarray, "contexts symbols"]:
        """P of every symbol after each context. A context that begins its sentence begins with BEGIN."""
        probabilities: np.ndarray = np.exp(self.log_distributions(self.states(contexts)))
        return probabilities

    def states(self, contexts: Contexts) -> Int64[np.ndarray, "contexts lengths"]:
        """The state after each context: the nodes of the n-grams that end it, −1 for none."""
        rows = [np.asarray(context, np.int64)[max(0, len(context) - self.order + 1) :] for context in contexts]
        ids = np.concatenate([*rows, np.empty(0, np.int64)])
        self._require_known(ids)
        states = np.empty((len(rows), self.order - 1), np.int64)
        read_contexts(self.trie, ids, np.cumsum([0, *map(len, rows)]), self.order, states)
        return states

    def log_distributions(self, states: Int64[np.ndarray, "rows lengths"]) -> Float64[np.ndarray, "rows symbols"]:
        """log P of every symbol after each state."""
        result = np.empty((len(states), self.symbols))
        fill_distributions(self.trie, states, result)
        result *= _LN10
        return result

    @cached_property
    def words(self) -> WordTable:
        """The ids of words by their text."""
        return WordTable.of(self.vocabulary)

    def _score(
        self,
        ids: Integer[np.ndarray, " tokens"],
        log_probs: Float64[np.ndarray, " tokens"],
        matches: Int64[np.ndarray, " room"] | None = None,
    ) -> None:
        self._require_known(ids)
        tokens = np.empty(len(ids) + np.count_nonzero(ids == END) + 1, np.int32)
        size = add_begins(ids, tokens, BEGIN, END)
        matches = np.empty(0, np.int64) if matches is None else matches
        score_stream(self.trie, tokens[:size], self.order, log_probs, matches, BEGIN)

    def _require_known(self, ids: Integer[np.ndarray, " tokens"]) -> None:
        if len(ids) and (ids.min() < 0 or ids.max() >= self.symbols):
            raise UsageError(
                f"ids run from {ids.min()} to {ids.max()}, but the model has 0 to {self.symbols - 1}; "
                "encode the text with the vocabulary of the model"
            )
