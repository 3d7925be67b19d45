"""The loops of the n-gram model, compiled. Arguments are given by place: that is how compiled code is called.

A trie holds all n-grams as nodes: single words first, node w for word w, then the pairs, and so on. The children of a
node are the n-grams with one more word, side by side, by rising word. With an n-gram all that begins or
ends it is there too. A reader of a sentence keeps the nodes of all n-grams that end at the last word:

    known[k]    the node of the last k + 1 words, as long as there is one
    next word   found[0] is the word itself; found[k] is the child of known[k − 1], as long as there is one
    log P       log_prob of the longest found, plus backoff of each known one that found no child

A child is looked up by a hash of its words alone, from the last one backwards: no question waits for the answer to
another. A model is far larger than the caches, so streams are read in blocks, and what the words of a block are going
to ask for is fetched first, all at once; one after the other, each word would wait several times for the memory.
"""

from typing import Any, NamedTuple

import numpy as np

from seqloom.core.jit import compiled

Array = Any
"""numba finds out types and shapes by itself."""

Bits = Any
"""Sixty-four bits of a hash; products run over, and that is meant."""

NODE = np.dtype([("word", "<i4"), ("log_prob", "<f4"), ("backoff", "<f4"), ("first", "<u4")])
"""A node: its last word, log10 P, log10 γ, and its first child. The next node's first child ends them."""

BLOCK = 64
"""Words whose slots and nodes are fetched together; they fit into the nearest cache."""

FETCHED = 3
"""Words before each word up to which its n-grams are fetched; longer ones are rarely known."""

HALF = 0xFFFFFFFF
"""The lower half of a slot is a node, the upper half a part of its hash, which spares most looks at a wrong node."""


class Trie(NamedTuple):
    """Nodes with one more at the end, which is none, and the slots of a hash table of all but the single words."""

    nodes: Array
    slots: Array


# --- counting --------------------------------------------------------------------------------------------------------


@compiled()
def add_begins(ids: Array, tokens: Array, begin: int, end: int) -> int:
    """Copy a text, with the symbol `begin` before each sentence; gives the length of the copy."""
    place = 0
    starts = True
    for id in ids:
        if starts:
            tokens[place] = begin
            place += 1
        tokens[place] = id
        place += 1
        starts = id == end
    return place


@compiled()
def merge_runs(
    one_keys: Array, one_counts: Array, other_keys: Array, other_counts: Array, keys: Array, counts: Array
) -> int:
    """Join two sorted runs; counts of the same key are added. Gives the length of the result."""
    i = j = size = 0
    while i < len(one_keys) or j < len(other_keys):
        takes_one = j == len(other_keys) or (i < len(one_keys) and one_keys[i] <= other_keys[j])
        takes_other = i == len(one_keys) or (j < len(other_keys) and other_keys[j] <= one_keys[i])
        key, total = np.int64(0), np.int64(0)
        if takes_one:
            key, total = one_keys[i], total + one_counts[i]
            i += 1
        if takes_other:
            key, total = other_keys[j], total + other_counts[j]
            j += 1
        keys[size], counts[size] = key, total
        size += 1
    return size


# --- the hash table --------------------------------------------------------------------------------------------------


@compiled()
def extend_hash(hashed: Bits, word: int) -> Bits:
    """The hash of an n-gram from that of its suffix and the word before it (SplitMix64's constants)."""
    value = (hashed ^ np.int64(word + 1)) * np.int64(0x9E3779B97F4A7C15 - (1 << 64))
    value = (value ^ ((value >> 32) & HALF)) * np.int64(0xBF58476D1CE4E5B9 - (1 << 64))
    return value ^ ((value >> 29) & np.int64(0x7FFFFFFFF))


@compiled()
def first_slot(hashed: Bits, slots: int) -> Bits:
    """Where to look first: the lower half as a fraction of the table, which may thus have any size."""
    return ((hashed & HALF) * slots) >> 32


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
        slots[place] = (((hashes[row] >> 32) & HALF) << 32) | np.int64(first_node + row)


@compiled()
def find_child(trie: Trie, hashed: Bits, word: int, first: Any, end: Any) -> Any:
    """The node with this hash and last word among the children between `first` and `end`, −1 if there is none."""
    slots = trie.slots
    tag = (hashed >> 32) & HALF
    place = first_slot(hashed, len(slots))
    while True:
        slot = slots[place]
        if slot == 0:  # node 0 is a single word and is in no slot
            return -1
        if (slot >> 32) & HALF == tag:
            child = slot & HALF
            if first <= child and child < end and trie.nodes[child].word == word:
                return child
        place = place + 1 if place + 1 < len(slots) else 0


# --- questions -------------------------------------------------------------------------------------------------------


@compiled()
def read_word(trie: Trie, ids: Array, place: int, known: Array, length: int, found: Array) -> int:
    """Write the nodes of all n-grams that end at a place; gives their number. `known[:length]` end one before."""
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
def paid(nodes: Array, known: Array, length: int, matched: int) -> float:
    """The back-off weights of the contexts that did not find the word."""
    total = 0.0
    for back in range(matched, length + 1):
        total += nodes[known[back - 1]].backoff
    return total


@compiled()
def fetch_block(trie: Trie, ids: Array, begin: int, end: int, back: int, hashes: Array) -> Any:
    """Touch what the n-grams that end between two places need, shortest first; the sum keeps the compiler from idling.

    The first loop touches slots, the second one nodes. Neither branches on what it reads, so that reads overlap.
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
        node = slot & HALF if (slot >> 32) & HALF == (hashed >> 32) & HALF else 0
        total += nodes[node].word
    return total


@compiled()
def score_stream(trie: Trie, ids: Array, order: int, log_probs: Array, matches: Array, begin: int) -> int:
    """log10 P of each id but `begin`, with which each sentence begins.

    `matches` takes the number of words that explain each, if it has room.
    """
    nodes, room = trie.nodes, len(matches)
    known, found = np.zeros(order + 1, np.int64), np.zeros(order + 1, np.int64)
    back = min(order - 1, FETCHED)
    hashes = np.empty(BLOCK * FETCHED, np.int64)
    length = answer = touched = 0
    for place in range(len(ids)):
        if place % BLOCK == 0 and back:
            touched += fetch_block(trie, ids, place, min(place + BLOCK, len(ids)), back, hashes)
        if ids[place] == begin:
            known[0], length = begin, 1
            continue
        matched = read_word(trie, ids, place, known, min(length, order - 1), found)
        log_probs[answer] = nodes[found[matched - 1]].log_prob + paid(nodes, known, length, matched)
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
    """log10 P of every word after each context: the shortest writes first, longer ones write over it."""
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
