"""The four ways to cut a normalised text into pieces, each with its stored form."""

from collections import ChainMap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal, Protocol

import numpy as np
import sentencepiece
from jaxtyping import Int64, UInt32
from tokenizers import Regex, models, pre_tokenizers
from tokenizers import Tokenizer as FastTokenizer

from seqloom.core.errors import ModelError
from seqloom.core.symbols import RESERVED, UNKNOWN
from seqloom.text.marks import (
    BYTE_PIECES,
    SPACE,
    UNKNOWN_SIGN,
    UNSPACED,
    join_words,
    mark_spaces,
    show_spaces,
    split_chunks,
    split_words,
)
from seqloom.text.vocabulary import Vocabulary

Segmentation = Literal["words", "spaces"]


ID = np.dtype("<u4")
"""How an id is kept where there are many."""


@dataclass(frozen=True)
class FlatIds:
    """The ids of texts, one text after another, and how many each has."""

    ids: UInt32[np.ndarray, " ids"]
    lengths: Int64[np.ndarray, " texts"]

    @staticmethod
    def of(rows: Sequence[Sequence[int]]) -> "FlatIds":
        """From the ids of each text."""
        lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
        return FlatIds(np.fromiter(chain.from_iterable(rows), dtype=ID, count=int(lengths.sum())), lengths)

    def rows(self) -> list[list[int]]:
        """The ids of each text."""
        ids, ends = self.ids.tolist(), np.cumsum(self.lengths).tolist()
        return [ids[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


class Kind(Protocol):
    """What a tokeniser needs from a way to cut: ids for texts, a text for ids, and bytes to store."""

    @property
    def pieces(self) -> tuple[str, ...]:
        """All pieces in the order of their ids, the reserved ones first."""
        ...

    def segment(self, texts: Sequence[str]) -> FlatIds:
        """The ids of normalised texts."""
        ...

    def join(self, ids: Sequence[int]) -> str:
        """The text of ids; reserved ones are left out, but `<unk>` is shown."""
        ...

    def to_bytes(self) -> bytes:
        """The content of the file from which this kind is made again."""
        ...


# --- words and characters --------------------------------------------------------------------------------------------


class Words:
    """Whole words, from a vocabulary."""

    def __init__(self, vocabulary: Vocabulary, *, segmentation: Segmentation) -> None:
        self.vocabulary = vocabulary
        self.pieces = tuple(vocabulary)
        self._cut = word_cutter(segmentation)
        self._paste = join_words if segmentation == "words" else " ".join

    def segment(self, texts: Sequence[str]) -> FlatIds:
        return FlatIds.of([self.vocabulary.encode(self._cut(text)) for text in texts])

    def join(self, ids: Sequence[int]) -> str:
        shown = [UNKNOWN_SIGN if number == UNKNOWN else self.pieces[number] for number in ids if number >= UNKNOWN]
        return self._paste(shown)

    def to_bytes(self) -> bytes:
        return self.vocabulary.to_text().encode("utf-8")


def word_cutter(segmentation: Segmentation) -> Callable[[str], list[str]]:
    """The function that cuts a normalised text into words."""
    return split_words if segmentation == "words" else str.split


class Characters:
    """Single characters, from a vocabulary; those that it lacks are spelled in bytes where it has byte pieces."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.pieces = tuple(vocabulary)
        self._table = _byte_table(self.pieces)
        self._first_byte = vocabulary.id_of(BYTE_PIECES[0])
        self._has_bytes = self._first_byte != UNKNOWN

    def segment(self, texts: Sequence[str]) -> FlatIds:
        return FlatIds.of([self._segment(mark_spaces(text, has_start=False)) for text in texts])

    def _segment(self, marked: str) -> list[int]:
        ids = self.vocabulary.encode(marked)
        if not self._has_bytes or UNKNOWN not in ids:
            return ids
        spelled = (
            [number] if number != UNKNOWN else self._spell(character)
            for number, character in zip(ids, marked, strict=True)
        )
        return list(chain.from_iterable(spelled))

    def _spell(self, character: str) -> list[int]:
        return [self._first_byte + byte for byte in character.encode("utf-8")]

    def join(self, ids: Sequence[int]) -> str:
        return show_spaces(_join_bytes(self._table, ids), has_start=False)

    def to_bytes(self) -> bytes:
        return self.vocabulary.to_text().encode("utf-8")


# --- subwords --------------------------------------------------------------------------------------------------------


class BytePairs:
    """Byte-pair encoding (Sennrich et al., 2016): characters, joined by the merges that were learned, in their order.

    Merges stay inside a word with its apostrophes, a digit, a mark with its repetitions, or a run of a script without
    spaces; ▁ goes with the word after it, but stands alone before such a script.
    """

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._fast = FastTokenizer.from_str(content.decode("utf-8"))
        if self._fast.get_added_tokens_decoder():
            raise ModelError("it declares special tokens, which would then be found in ordinary text")
        ids = self._fast.get_vocab()
        self.pieces: tuple[str, ...] = tuple(sorted(ids, key=ids.__getitem__))
        self._table = _byte_table(self.pieces)
        self._chunks = ChunkCache(self._encode)

    @staticmethod
    def from_merges(pieces: Sequence[str], merges: Sequence[tuple[str, str]]) -> "BytePairs":
        """Pieces in the order of their ids, and which two of them are joined first."""
        ids = {piece: number for number, piece in enumerate(pieces)}
        model = models.BPE(ids, list(merges), unk_token=RESERVED[UNKNOWN], byte_fallback=BYTE_PIECES[0] in ids)
        # No special tokens are declared: what a text says is never taken for a reserved symbol.
        fast = FastTokenizer(model)
        fast.pre_tokenizer = pre_tokenizer()
        return BytePairs(fast.to_str().encode("utf-8"))

    def _encode(self, chunks: list[str]) -> list[list[int]]:
        return [encoding.ids for encoding in self._fast.encode_batch_fast(chunks, add_special_tokens=False)]

    def segment(self, texts: Sequence[str]) -> FlatIds:
        return self._chunks.segment(texts)

    def join(self, ids: Sequence[int]) -> str:
        return show_spaces(_join_bytes(self._table, ids))

    def to_bytes(self) -> bytes:
        return self._content


def pre_tokenizer() -> pre_tokenizers.PreTokenizer:
    """Where byte pairs may not be joined: at the borders of words, digits, marks and scripts."""
    unspaced = rf"[[\p{{L}}\p{{M}}]&&[{UNSPACED}]]"
    # The zero-width joiners stand inside words of Persian and of Indian languages.
    letter = rf"[[\p{{L}}\p{{M}}\u200c\u200d]&&[^{UNSPACED}]]"
    # An apostrophe stays in its word, so that the text decides where l'homme and dog's fall apart.
    word = rf"{SPACE}?{letter}+(?:['’]{letter}+)*"
    mark = rf"{SPACE}?([^\p{{L}}\p{{M}}\p{{N}}{SPACE}])\1*"
    pattern = rf"{unspaced}+|{word}|{SPACE}?\p{{N}}|{mark}|{SPACE}"
    return pre_tokenizers.Split(Regex(pattern), behavior="isolated")


class Unigram:
    """The unigram language model (Kudo, 2018): of all ways to cut a word, the one whose pieces are likeliest."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=content)
        size = self._processor.get_piece_size()
        self.pieces: tuple[str, ...] = tuple(self._processor.id_to_piece(list(range(size))))
        self._table = _byte_table(self.pieces)
        self._chunks = ChunkCache(self._encode)

    def _encode(self, chunks: list[str]) -> list[list[int]]:
        ids: list[list[int]] = self._processor.encode(chunks, num_threads=1)
        return ids

    def segment(self, texts: Sequence[str]) -> FlatIds:
        return self._chunks.segment(texts)

    def join(self, ids: Sequence[int]) -> str:
        return show_spaces(_join_bytes(self._table, ids))

    def to_bytes(self) -> bytes:
        return self._content


class ChunkCache:
    """Ids of texts from ids of their chunks, most of which are words that were met before.

    Two generations: when the younger is full it becomes the older, and the older is forgotten but for the chunks that
    are met again. So frequent words stay, however many rare ones pass. Ids are kept as bytes, because a list of numbers
    would be strewn over the memory, and fetching from there takes most of the time.
    """

    entries = 1 << 18
    """Chunks in a generation: some tens of megabytes."""
    longest = 64
    """Characters up to which a chunk is worth remembering."""

    def __init__(self, encode: Callable[[list[str]], list[list[int]]]) -> None:
        self._encode = encode
        self._young: dict[str, bytes] = {}
        self._old: dict[str, bytes] = {}

    def segment(self, texts: Sequence[str]) -> FlatIds:
        """The ids of the texts."""
        chunked = [split_chunks(mark_spaces(text)) for text in texts]
        ids_of = self._lookup(set(chain.from_iterable(chunked)))
        rows = [b"".join(map(ids_of, chunks)) for chunks in chunked]
        lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows)) // ID.itemsize
        return FlatIds(np.frombuffer(b"".join(rows), dtype=ID), lengths)

    def _lookup(self, chunks: set[str]) -> Callable[[str], bytes]:
        """From a chunk, one of these, to its ids."""
        # Another thread may start a generation meanwhile; the dictionaries in hand stay complete for us.
        young, old = self._young, self._old
        missing = chunks.difference(young)
        unseen = list(missing.difference(old))
        fresh = {chunk: old[chunk] for chunk in missing if chunk in old}
        if unseen:
            fresh.update(zip(unseen, (np.array(ids, dtype=ID).tobytes() for ids in self._encode(unseen)), strict=True))
        short = {chunk: ids for chunk, ids in fresh.items() if len(chunk) <= self.longest}
        if len(young) + len(short) > self.entries:
            # Texts with more chunks than a generation holds are looked up once and not remembered.
            self._young, self._old = short if len(short) <= self.entries else {}, young
            return {chunk: fresh[chunk] if chunk in fresh else young[chunk] for chunk in chunks}.__getitem__
        young.update(short)
        return young.__getitem__ if len(short) == len(fresh) else ChainMap(fresh, young).__getitem__


# --- from ids to text ------------------------------------------------------------------------------------------------


def _byte_table(pieces: Sequence[str]) -> list[bytes]:
    """What each id stands for in UTF-8: a byte for byte pieces, nothing for reserved symbols but `<unk>`."""
    spelled = {piece: bytes([byte]) for byte, piece in enumerate(BYTE_PIECES)}
    table = [spelled.get(piece) or piece.encode("utf-8") for piece in pieces]
    table[: len(RESERVED)] = [b""] * len(RESERVED)
    table[UNKNOWN] = UNKNOWN_SIGN.encode("utf-8")
    return table


def _join_bytes(table: Sequence[bytes], ids: Sequence[int]) -> str:
    # A model can put byte pieces together that are no UTF-8; such bytes become U+FFFD.
    return b"".join([table[number] for number in ids]).decode("utf-8", errors="replace")
