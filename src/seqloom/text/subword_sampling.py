"""Subword regularisation: the same text cut into other pieces each time it is read.

    BPE-dropout (Provilkov et al., 2020)    each possible merge is skipped with probability p in each round
    unigram sampling (Kudo, 2018)           a cut x is drawn with P(x) ∝ (Π_i p(x_i))^α

Both work on stored ids. The pieces of a sentence spell its characters, and pieces never cross a word, so the sentence
is spelled out and cut again, word by word, without its text. What is drawn for a sentence follows from its seed alone.
"""

import json
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import sentencepiece
from jaxtyping import Bool, Float64, Int64

from seqloom.core.errors import ConfigError
from seqloom.core.jit import compiled
from seqloom.core.symbols import RESERVED
from seqloom.text.marks import BYTE_PIECES, SPACE, is_unspaced
from seqloom.text.tokenizer import ID, FlatIds, Tokenizer

SAMPLED_KINDS = ("bpe", "unigram")
"""Kinds of tokenisers whose text can be cut in several ways that are known here."""

NONE = -1
"""In place of a number that there is not."""


class SubwordSampler(Protocol):
    """Draws cuts of sentences."""

    def __call__(self, sentences: FlatIds, seeds: Int64[np.ndarray, " texts"], *, longest: int) -> FlatIds:
        """Other pieces of the same texts, each drawn by its seed; a cut of more than `longest` ids is not used.

        Such a text is left as it is. Reserved symbols stay where they are.
        """
        ...


def subword_sampler(tokenizer: Tokenizer, rate: float) -> SubwordSampler:
    """The sampler of a tokeniser: `rate` is the p of BPE-dropout, or the α of a unigram model."""
    if tokenizer.kind not in SAMPLED_KINDS:
        raise ConfigError(
            f"a tokeniser of kind {tokenizer.kind} has no other cuts to draw; train with text.kind=bpe or unigram"
        )
    if not 0 <= rate <= 1:
        raise ConfigError(f"subword sampling at {rate:g} is not possible; give a number from 0 to 1, such as 0.1")
    return BpeDropout.of(tokenizer, rate) if tokenizer.kind == "bpe" else UnigramSampling.of(tokenizer, rate)


@dataclass(frozen=True, eq=False)
class Spelling:
    """The characters of each piece, as the ids of their own pieces.

    Reserved symbols, marks and bytes spell themselves.
    """

    starts: Int64[np.ndarray, " borders"]
    """Where the characters of each piece begin, and at last where they end."""
    characters: Int64[np.ndarray, " characters"]
    space: int
    """The id of ▁, with which a word begins; `NONE` if there is none."""

    @staticmethod
    def of(pieces: Sequence[str]) -> "Spelling":
        """That of the pieces of a tokeniser, in the order of their ids."""
        ids = {piece: number for number, piece in enumerate(pieces)}
        whole = {*RESERVED, *BYTE_PIECES}
        spelled = [
            # The name of a reserved symbol is not text; a mark has a space in it, and no piece for that.
            [number] if piece in whole or not ids.keys() >= {*piece} else [ids[character] for character in piece]
            for number, piece in enumerate(pieces)
        ]
        found = FlatIds.of(spelled)
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(found.lengths)])
        return Spelling(starts, found.ids.astype(np.int64), ids.get(SPACE, NONE))

    def room(self, ids: Int64[np.ndarray, " ids"]) -> int:
        """How many characters some pieces have."""
        return int((self.starts[ids + 1] - self.starts[ids]).sum())


@dataclass(frozen=True, eq=False)
class BpeDropout:
    """Byte pairs, of which each is skipped with probability `rate` in each round.

    A round goes through the pairs that could be joined, in the order in which they were learned and from left to
    right, and joins the first that is not skipped. When a round skips all of them, the word is cut: rate 0 gives the
    cut of the tokeniser, rate 1 single characters.
    """

    rate: float
    spelling: Spelling
    keys: Int64[np.ndarray, " merges"]
    """Pairs that can be joined, left · 2³² + right, in rising order."""
    ranks: Int64[np.ndarray, " merges"]
    """When each pair was learned."""
    joined: Int64[np.ndarray, " merges"]
    """The piece that it becomes."""
    is_letter: Bool[np.ndarray, " pieces"]
    is_apostrophe: Bool[np.ndarray, " pieces"]

    @staticmethod
    def of(tokenizer: Tokenizer, rate: float) -> "BpeDropout":
        """That of a tokeniser of kind bpe."""
        pieces = tokenizer.vocabulary
        ids = {piece: number for number, piece in enumerate(pieces)}
        merges = [
            # Earlier versions of the library wrote a pair as one string.
            each.split(" ") if isinstance(each, str) else each
            for each in json.loads(tokenizer.content)["model"]["merges"]
        ]
        keys = np.array([ids[left] << 32 | ids[right] for left, right in merges], dtype=np.int64)
        joined = np.array([ids[left + right] for left, right in merges], dtype=np.int64)
        ranks = np.argsort(keys, kind="stable")
        return BpeDropout(
            rate,
            Spelling.of(pieces),
            keys[ranks],
            ranks,
            joined[ranks],
            np.array([_is_letter(piece) for piece in pieces]),
            np.array([piece in ("'", "’") for piece in pieces]),
        )

    def __call__(self, sentences: FlatIds, seeds: Int64[np.ndarray, " texts"], *, longest: int) -> FlatIds:
        ids = sentences.ids.astype(np.int64)
        out, lengths = np.empty(self.spelling.room(ids), np.int64), np.empty_like(sentences.lengths)
        spelling, merges = self.spelling, (self.keys, self.ranks, self.joined)
        letters = (self.is_letter, self.is_apostrophe)
        count = _drop_merges(
            ids, sentences.lengths, seeds, self.rate, longest,
            spelling.starts, spelling.characters, spelling.space, *merges, *letters, out, lengths,
        )  # fmt: skip
        return FlatIds(out[:count].astype(ID), lengths)


def _is_letter(piece: str) -> bool:
    """Whether a piece is one letter of a script with spaces, as `text.tokenizer.pre_tokenizer` sees it."""
    is_joiner = piece in ("\u200c", "\u200d")
    return len(piece) == 1 and (is_joiner or unicodedata.category(piece)[0] in "LM") and not is_unspaced(piece)


@dataclass(frozen=True, eq=False)
class UnigramSampling:
    """A unigram model, whose cuts are drawn from the lattice of a word with n characters.

        b_n = 1,  b_i = Σ_{j>i} p(piece from i to j)^α · b_j       all cuts of what follows i
        P(the next piece ends at j ∣ it begins at i) = p(piece)^α · b_j / b_i

    That is forward filtering and backward sampling from right to left, so that pieces are drawn in their order. The
    pieces are a trie: its edges go from a node by a character to a node, which may be a piece.
    """

    rate: float
    """α: 1 draws cuts as likely as they are, a smaller one more evenly."""
    spelling: Spelling
    keys: Int64[np.ndarray, " edges"]
    """Edges of the trie, node · 2³² + character, in rising order."""
    nodes: Int64[np.ndarray, " edges"]
    """Where each leads."""
    pieces: Int64[np.ndarray, " nodes"]
    """The piece that ends at each node, or `NONE`."""
    log_probs: Float64[np.ndarray, " nodes"]
    """log p of that piece."""

    @staticmethod
    def of(tokenizer: Tokenizer, rate: float) -> "UnigramSampling":
        """That of a tokeniser of kind unigram."""
        processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.content)
        spelling = Spelling.of(tokenizer.vocabulary)
        edges: dict[int, int] = {}
        pieces, log_probs = [NONE], [0.0]
        for number in range(tokenizer.size):
            if processor.is_unknown(number) or processor.is_control(number) or processor.is_byte(number):
                continue  # never found in text
            node = 0
            for character in spelling.characters[spelling.starts[number] : spelling.starts[number + 1]].tolist():
                key = node << 32 | character
                if key not in edges:
                    edges[key] = len(pieces)
                    pieces.append(NONE)
                    log_probs.append(0.0)
                node = edges[key]
            pieces[node], log_probs[node] = number, processor.get_score(number)
        keys = np.array(sorted(edges), dtype=np.int64)
        return UnigramSampling(
            rate,
            spelling,
            keys,
            np.array([edges[key] for key in keys.tolist()], dtype=np.int64),
            np.array(pieces, dtype=np.int64),
            np.array(log_probs, dtype=np.float64),
        )

    def __call__(self, sentences: FlatIds, seeds: Int64[np.ndarray, " texts"], *, longest: int) -> FlatIds:
        ids = sentences.ids.astype(np.int64)
        out, lengths = np.empty(self.spelling.room(ids), np.int64), np.empty_like(sentences.lengths)
        spelling, trie = self.spelling, (self.keys, self.nodes, self.pieces, self.log_probs)
        count = _draw_cuts(
            ids, sentences.lengths, seeds, self.rate, longest,
            spelling.starts, spelling.characters, spelling.space, *trie, out, lengths,
        )  # fmt: skip
        return FlatIds(out[:count].astype(ID), lengths)


# --- compiled loops --------------------------------------------------------------------------------------------------

Array = Any


@compiled(is_inlined=True)
def _find(keys: Array, key: int) -> int:
    """The place of a key in a rising list, or -1."""
    low, high = 0, len(keys)
    while low < high:
        middle = (low + high) >> 1
        if keys[middle] < key:
            low = middle + 1
        else:
            high = middle
    return low if low < len(keys) and keys[low] == key else -1


@compiled(is_inlined=True)
def _uniform(state: Array) -> float:
    """The next number from 0 up to but not 1 of a stream (SplitMix64; Steele et al., 2014)."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    mixed = state[0]
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return float(mixed >> np.uint64(11)) * 2.0**-53


@compiled(is_inlined=True)
def _spell(ids: Array, starts: Array, characters: Array, spelled: Array, is_inside: Array) -> int:
    """The characters of some pieces, and which of them are inside a piece, not at its beginning; how many."""
    count = 0
    for piece in ids:
        for place in range(starts[piece], starts[piece + 1]):
            spelled[count] = characters[place]
            is_inside[count] = place > starts[piece]
            count += 1
    return count


@compiled()
def _drop_merges(
    ids: Array, lengths: Array, seeds: Array, rate: float, longest: int,
    starts: Array, characters: Array, space: int,
    keys: Array, ranks: Array, joined: Array, is_letter: Array, is_apostrophe: Array,
    out: Array, out_lengths: Array,
) -> int:  # fmt: skip
    """BPE-dropout of sentences; how many ids there are in `out`."""
    spelled, is_open = np.empty(len(out), np.int64), np.empty(len(out), np.bool_)
    state, rank = np.empty(1, np.uint64), np.empty(len(out), np.int64)
    first, written = 0, 0
    for sentence in range(len(lengths)):
        own, before = ids[first : first + lengths[sentence]], written
        first += lengths[sentence]
        state[0] = np.uint64(seeds[sentence])
        count = _spell(own, starts, characters, spelled, is_open)
        # Pieces were learned inside words, so nearly all pairs across a border do not exist. Only an apostrophe may be
        # in a word as well as beside it, where it is a quotation mark and not joined.
        for at in range(1, count):
            if is_open[at]:
                continue
            is_open[at] = True
            for sign, letter in ((at, at - 1), (at - 1, at)):
                if is_apostrophe[spelled[sign]] and is_letter[spelled[letter]]:
                    other = 2 * sign - letter
                    is_open[at] &= 0 <= other < count and is_letter[spelled[other]]
        begin = 0
        while begin < count:
            end = begin + 1
            while end < count and spelled[end] != space:
                end += 1
            left = _merge(spelled[begin:end], is_open[begin:end], rank, rate, state, keys, ranks, joined)
            for place in range(begin, begin + left):
                out[written] = spelled[place]
                written += 1
            begin = end
        if written - before > longest:
            written = before
            for piece in own:
                out[written] = piece
                written += 1
        out_lengths[sentence] = written - before
    return written


@compiled()
def _merge(
    word: Array, is_open: Array, rank: Array, rate: float, state: Array, keys: Array, ranks: Array, joined: Array
) -> int:
    """Join the pieces of a word in place, in rounds; how many are left. `is_open` says what may join its left."""
    count, never = len(word), len(keys)
    for place in range(1, count):
        pair = _find(keys, word[place - 1] << 32 | word[place]) if is_open[place] else -1
        rank[place] = ranks[pair] if pair >= 0 else never  # of the pair that ends here
    while True:
        chosen, skipped, skipped_rank = -1, -1, -1
        while True:
            best, best_rank = -1, never
            for place in range(1, count):
                is_next = rank[place] > skipped_rank or (rank[place] == skipped_rank and place > skipped)
                if is_next and rank[place] < best_rank:
                    best, best_rank = place, rank[place]
            if best < 0:
                return count
            if _uniform(state) >= rate:
                chosen = best
                break
            skipped, skipped_rank = best, best_rank
        word[chosen - 1] = joined[_find(keys, word[chosen - 1] << 32 | word[chosen])]
        count -= 1
        for place in range(chosen, count):
            word[place], is_open[place], rank[place] = word[place + 1], is_open[place + 1], rank[place + 1]
        for place in range(max(1, chosen - 1), min(count, chosen + 1)):
            pair = _find(keys, word[place - 1] << 32 | word[place]) if is_open[place] else -1
            rank[place] = ranks[pair] if pair >= 0 else never


@compiled()
def _draw_cuts(
    ids: Array, lengths: Array, seeds: Array, rate: float, longest: int,
    starts: Array, characters: Array, space: int,
    keys: Array, nodes: Array, pieces: Array, log_probs: Array,
    out: Array, out_lengths: Array,
) -> int:  # fmt: skip
    """Cuts of sentences by a unigram model; how many ids there are in `out`."""
    spelled, is_inside = np.empty(len(out), np.int64), np.empty(len(out), np.bool_)
    state, log_sums = np.empty(1, np.uint64), np.empty(len(out) + 1, np.float64)
    first, written = 0, 0
    for sentence in range(len(lengths)):
        own, before = ids[first : first + lengths[sentence]], written
        first += lengths[sentence]
        state[0] = np.uint64(seeds[sentence])
        count = _spell(own, starts, characters, spelled, is_inside)
        begin = 0
        while begin < count:
            end = begin + 1
            while end < count and spelled[end] != space:
                end += 1
            log_sums[end] = 0.0
            for at in range(end - 1, begin - 1, -1):
                total, node, stop = -np.inf, 0, at
                while stop < end:
                    edge = _find(keys, node << 32 | spelled[stop])
                    if edge < 0:
                        break
                    node = nodes[edge]
                    stop += 1
                    if pieces[node] >= 0:
                        term = rate * log_probs[node] + log_sums[stop]
                        total = max(total, term) + np.log1p(np.exp(-abs(total - term)))
                log_sums[at] = log_sums[at + 1] if stop == at else total  # a symbol that is no text stays as it is
            at = begin
            while at < end:
                left, node, stop = _uniform(state), 0, at
                piece, piece_end = spelled[at], at + 1
                while stop < end and left >= 0:
                    edge = _find(keys, node << 32 | spelled[stop])
                    if edge < 0:
                        break
                    node = nodes[edge]
                    stop += 1
                    if pieces[node] >= 0:
                        piece, piece_end = pieces[node], stop
                        left -= np.exp(rate * log_probs[node] + log_sums[stop] - log_sums[at])
                out[written] = piece
                written += 1
                at = piece_end
            begin = end
        if written - before > longest:
            written = before
            for piece in own:
                out[written] = piece
                written += 1
        out_lengths[sentence] = written - before
    return written
