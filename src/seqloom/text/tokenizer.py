"""Tokenisers: from a line of text to ids and back, stored in a folder. `text.tokenizer_training` learns them."""

import hashlib
import json
from collections import ChainMap, Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import sentencepiece
from jaxtyping import Int64, Integer, UInt32
from pydantic import Field, ValidationError, model_validator
from tokenizers import Regex, pre_tokenizers
from tokenizers import Tokenizer as FastTokenizer

from seqloom.core.arguments import as_text
from seqloom.core.config import Config
from seqloom.core.errors import DataError, ModelError, UsageError
from seqloom.core.files import parse_json, write_atomically
from seqloom.core.symbols import END, RESERVED, UNKNOWN
from seqloom.text.marks import (
    BYTE_PIECES,
    SPACE,
    UNKNOWN_SIGN,
    UNSPACED,
    join_words,
    mark_spaces,
    show_spaces,
    split_characters,
    split_chunks,
    split_words,
)
from seqloom.text.normalise import Normaliser, UnicodeForm, collapse_spaces, is_blank
from seqloom.text.published import Published
from seqloom.text.symbols import piece_of, split_symbols, with_symbols
from seqloom.text.vocabulary import Vocabulary

# The five ways to cut a normalised text into pieces, each with its stored form.

Segmentation = Literal["words", "spaces", "characters"]


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
    """What a tokeniser needs from a way to cut: ids for texts, and a text for ids."""

    pieces: tuple[str, ...]
    """All pieces in the order of their ids, the reserved ones first."""
    content: bytes
    """The content of the file from which this kind is loaded."""

    def segment(self, texts: Sequence[str]) -> FlatIds:
        """The ids of normalised texts."""
        ...

    def join(self, ids: Sequence[int]) -> str:
        """The text of ids; reserved ones are left out, but `<unk>` is shown."""
        ...


class WordPieces:
    """Whole words, from a vocabulary."""

    def __init__(self, vocabulary: Vocabulary, *, segmentation: Segmentation) -> None:
        self.pieces, self.content = tuple(vocabulary), vocabulary.to_text().encode("utf-8")
        self._encode = vocabulary.encode
        self._cut = word_cutter(segmentation)
        self._paste = " ".join if segmentation == "spaces" else join_words

    def segment(self, texts: Sequence[str]) -> FlatIds:
        return FlatIds.of([self._encode(self._cut(text)) for text in texts])

    def join(self, ids: Sequence[int]) -> str:
        return self._paste(
            [UNKNOWN_SIGN if number == UNKNOWN else self.pieces[number] for number in ids if number >= UNKNOWN]
        )


def word_cutter(segmentation: Segmentation) -> Callable[[str], list[str]]:
    """The function that cuts a normalised text into words."""
    if segmentation == "spaces":
        return str.split
    return split_words if segmentation == "words" else split_characters


class Characters:
    """Single characters, from a vocabulary; those that it lacks are spelled in bytes where it has byte pieces."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.pieces, self.content = tuple(vocabulary), vocabulary.to_text().encode("utf-8")
        self._encode = vocabulary.encode
        self._table = byte_table(self.pieces)
        self._first_byte = vocabulary.id_of(BYTE_PIECES[0])

    def segment(self, texts: Sequence[str]) -> FlatIds:
        rows = []
        for text in texts:
            marked = mark_spaces(text, has_start=False)
            ids = self._encode(marked)
            if self._first_byte != UNKNOWN and UNKNOWN in ids:
                spelled = (
                    [number] if number != UNKNOWN else [self._first_byte + byte for byte in character.encode("utf-8")]
                    for number, character in zip(ids, marked, strict=True)
                )
                ids = list(chain.from_iterable(spelled))
            rows.append(ids)
        return FlatIds.of(rows)

    def join(self, ids: Sequence[int]) -> str:
        return show_spaces(_join_bytes(self._table, ids), has_start=False)


class Subwords:
    """Pieces of words with ▁ for spaces, cut by `encode`, which gives the ids of each of some chunks."""

    def __init__(self, content: bytes, pieces: Iterable[str], encode: Callable[[list[str]], list[list[int]]]) -> None:
        self.pieces, self.content = tuple(pieces), content
        self._table = byte_table(self.pieces)
        self._chunks = ChunkCache(encode)

    def segment(self, texts: Sequence[str]) -> FlatIds:
        return self._chunks.segment(texts)

    def join(self, ids: Sequence[int]) -> str:
        return show_spaces(_join_bytes(self._table, ids))


def byte_pairs(content: bytes) -> Subwords:
    """Byte-pair encoding (Sennrich et al., 2016): characters, joined by the merges that were learned, in their order.

    Merges stay inside a word with its apostrophes, a digit, a mark with its repetitions, or a run of a script without
    spaces; ▁ is part of the word after it, but a separate chunk before such a script.
    """
    fast = FastTokenizer.from_str(content.decode("utf-8"))
    if fast.get_added_tokens_decoder():
        raise ModelError("it declares special tokens, which would then be found in ordinary text")
    ids = fast.get_vocab()

    def encode(chunks: list[str]) -> list[list[int]]:
        return [encoding.ids for encoding in fast.encode_batch_fast(chunks, add_special_tokens=False)]

    return Subwords(content, sorted(ids, key=ids.__getitem__), encode)


def pre_tokenizer() -> pre_tokenizers.PreTokenizer:
    """Where byte pairs may not be joined: at the borders of words, digits, marks and scripts."""
    unspaced = rf"[[\p{{L}}\p{{M}}]&&[{UNSPACED}]]"
    # The zero-width joiners occur inside words of Persian and of Indian languages.
    letter = rf"[[\p{{L}}\p{{M}}\u200c\u200d]&&[^{UNSPACED}]]"
    # An apostrophe stays in its word, so that the text decides where l'homme and dog's fall apart.
    word = rf"{SPACE}?{letter}+(?:['’]{letter}+)*"
    mark = rf"{SPACE}?([^\p{{L}}\p{{M}}\p{{N}}{SPACE}])\1*"
    pattern = rf"{unspaced}+|{word}|{SPACE}?\p{{N}}|{mark}|{SPACE}"
    return pre_tokenizers.Split(Regex(pattern), behavior="isolated")


def unigram(content: bytes) -> Subwords:
    """The unigram language model (Kudo, 2018): of all ways to cut a word, the one whose pieces are likeliest."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=content)

    def encode(chunks: list[str]) -> list[list[int]]:
        ids: list[list[int]] = processor.encode(chunks, num_threads=1)
        return ids

    return Subwords(content, processor.id_to_piece(list(range(processor.get_piece_size()))), encode)


class ChunkCache:
    """Ids of texts from ids of their chunks, most of which are words that were met before.

    Two generations: when the younger is full it becomes the older, and the older is forgotten but for the chunks that
    are met again. So frequent words stay, however many rare ones pass. Ids are kept as bytes, because a list of numbers
    would be strewn over the memory, and fetching from there takes most of the time.
    """

    entries = 1 << 18
    """Chunks in a generation: some tens of megabytes."""
    max_characters = 64
    """Characters of the longest chunk that is cached."""

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
        short = {chunk: ids for chunk, ids in fresh.items() if len(chunk) <= self.max_characters}
        if len(young) + len(short) > self.entries:
            # Texts with more chunks than a generation holds are looked up once and not remembered.
            self._young, self._old = short if len(short) <= self.entries else {}, young
            return {chunk: fresh[chunk] if chunk in fresh else young[chunk] for chunk in chunks}.__getitem__
        young.update(short)
        return young.__getitem__ if len(short) == len(fresh) else ChainMap(fresh, young).__getitem__


def byte_table(pieces: Sequence[str]) -> list[bytes]:
    """What each id spells in UTF-8: a byte for byte pieces, nothing for reserved symbols but `<unk>`."""
    spelled = {piece: bytes([byte]) for byte, piece in enumerate(BYTE_PIECES)}
    table = [spelled.get(piece) or piece.encode("utf-8") for piece in pieces]
    table[: len(RESERVED)] = [b""] * len(RESERVED)
    table[UNKNOWN] = UNKNOWN_SIGN.encode("utf-8")
    return table


def _join_bytes(table: Sequence[bytes], ids: Sequence[int]) -> str:
    # A model can output byte pieces that are not valid UTF-8; such bytes become U+FFFD.
    return b"".join([table[number] for number in ids]).decode("utf-8", errors="replace")


class PublishedPieces:
    """Pieces of a published model, cut as it cuts them; the text is not normalised before."""

    def __init__(self, content: bytes) -> None:
        self.content, self.published = content, Published(content)
        self.pieces = self.published.pieces

    def segment(self, texts: Sequence[str]) -> FlatIds:
        return FlatIds(*self.published.encode(texts))

    def join(self, ids: Sequence[int]) -> str:
        return self.published.decode(ids)


FORMAT = 1
"""The number of the stored form; a newer one is refused, not guessed at."""

DESCRIPTION = "text.json"
"""Settings, size and hash of a stored tokeniser. `tokenizer.json` would be taken for a file of another library."""


ALL_WORDS, ALL_CHARACTERS = 1_000_000, 1_000
"""Sizes that mean as many as possible, so that fewer need no notice."""

PieceKind = Literal["word", "char", "bpe", "unigram", "published"]

SideName = Literal["source", "target"]
SIDES: tuple[SideName, SideName] = ("source", "target")


class SideConfig(Config):
    """How one side of pairs is cut, where it differs from the other: what is left open is as for both."""

    kind: PieceKind | None = None
    """What pieces are, as in text.kind."""
    size: int | None = Field(default=None, gt=len(RESERVED), le=10_000_000)
    """The most pieces there may be. Left open, single characters have as many as there are."""
    byte_fallback: bool | None = None
    """Whether unknown characters are spelled in bytes."""
    minimum_count: int | None = Field(default=None, ge=1)
    """How often a word, a character or a pair must be seen to get a piece."""
    segmentation: Segmentation | None = None
    """How the kind word finds words. With `spaces`, symbols such as phones and tags stay whole."""
    unknown_word: str | None = None
    """The word used for unknown ones in text that was prepared so."""
    unicode_form: UnicodeForm | None = None
    """The Unicode normal form."""
    lowercase: bool | None = None
    """Whether capital letters become small ones."""
    space_before_punctuation: bool | None = None
    """Whether `,`, `.`, `!` and `?` are set apart from the word before them."""


class TextConfig(Config):
    """How text is normalised and cut into pieces."""

    kind: PieceKind = "bpe"
    """What pieces are: whole words, single characters, byte-pair subwords, or subwords of the unigram model. Imported
    models have kind published, which is not learned: their text is cut as they were trained."""
    size: int = Field(default=8000, gt=len(RESERVED), le=10_000_000)
    """The most pieces there may be, the four reserved ones included. A small text gives fewer."""
    shared: bool = True
    """Whether source and target have one vocabulary, learned from both, or one each."""
    byte_fallback: bool = False
    """Whether unknown characters are spelled in bytes (256 more pieces), so that any text comes back whole."""
    minimum_count: int = Field(default=1, ge=1)
    """How often a word, a character (kinds without words) or a pair (bpe, at least 2) must be seen to get a piece."""
    segmentation: Segmentation = "words"
    """How the kind word finds words. `words` parts them from punctuation, which then carries a sign where it touches
    its neighbour. `characters` does the same, and each character of a script without spaces between words (Chinese,
    Japanese, Thai) is a word. `spaces` takes what is between spaces: for text that is segmented already."""
    unknown_word: str | None = None
    """The word used for unknown ones in text that was prepared so, such as `<unk>` in WikiText: it is read as
    the unknown symbol, and never written unless requested. For kind word with segmentation spaces."""
    unicode_form: UnicodeForm = "nfc"
    """The Unicode normal form; nfkc also folds full-width letters, ligatures and the like."""
    lowercase: bool = False
    """Whether capital letters become small ones, in training and in use."""
    space_before_punctuation: bool = False
    """Whether `,`, `.`, `!` and `?` are set apart from the word before them, as in the d2l book."""
    source: SideConfig | None = None
    """How the source is cut, where that differs: its settings override those above, and each side then has a vocabulary
    of its own."""
    target: SideConfig | None = None
    """The same for the target: letters to phones are text.source.kind=char text.target.kind=word
    text.target.segmentation=spaces."""

    @property
    def is_joint(self) -> bool:
        """Whether both sides are cut alike, with one vocabulary."""
        return self.shared and self.source is None and self.target is None

    @property
    def has_joint_words(self) -> bool:
        """Whether both sides are cut at spaces alone, so that a word is one symbol, and the same on both."""
        return self.is_joint and self.kind == "word" and self.segmentation == "spaces"

    def side(self, name: SideName) -> "TextConfig":
        """The settings of one side alone."""
        own = self.source if name == "source" else self.target
        both = self.model_copy(update={"source": None, "target": None, "shared": self.is_joint})
        if own is None:
            return both
        given = {field: value for field, value in own if value is not None}
        if given.get("kind") == "char":
            given = {"size": ALL_CHARACTERS, **given}
        return both.model_copy(update=given)

    @model_validator(mode="after")
    def _check(self) -> "TextConfig":
        if problem := self._problem():
            raise ValueError(problem)
        for name in SIDES:
            if problem := self.side(name)._problem():
                raise ValueError(f"{name}: {problem}")
        return self

    def _problem(self) -> str | None:
        """What is wrong with the settings, both sides taken alike."""
        if self.byte_fallback and self.kind == "word":
            return "byte_fallback is for kind char, bpe or unigram; words are not spelled"
        if self.byte_fallback and self.size <= len(RESERVED) + len(BYTE_PIECES) + 1:
            return (
                f"size {self.size} has no room for characters beside {len(RESERVED)} reserved and {len(BYTE_PIECES)} "
                "byte pieces; make it 400 or more, or set byte_fallback: false"
            )
        if self.kind == "published" and (self.unicode_form, self.lowercase, self.space_before_punctuation) != (
            ("none", False, False)
        ):
            return "kind published is for imported models, which normalise text themselves; use bpe or unigram"
        if self.unknown_word is not None:
            if self.kind != "word" or self.segmentation != "spaces":
                return (
                    f"unknown_word {self.unknown_word!r} needs kind word and segmentation spaces, "
                    f"and here are {self.kind} and {self.segmentation}; otherwise it would be cut as any other text"
                )
            if self.unknown_word.split() != [self.unknown_word]:
                return f"unknown_word {self.unknown_word!r} is not a word: it is empty or contains a space"
        return None

    @property
    def normaliser(self) -> Normaliser:
        """The rule that lines pass before they are cut."""
        if self.kind == "published":
            return Normaliser("none", keeps_spaces=True)
        return Normaliser(self.unicode_form, self.lowercase, self.space_before_punctuation)


@dataclass(frozen=True)
class RoundTrip:
    """What is left of lines that are encoded and decoded again."""

    count: int
    """Lines checked."""
    normalised: int
    """Lines that the normalisation rule alone changes."""
    changed: int
    """Lines that come back other than in their normal form."""
    examples: tuple[tuple[str, str], ...]
    """The first of these: the normal form, and what came back."""
    tokens: int
    """Tokens of all lines."""
    unknown: int
    """How many of them are `<unk>`."""

    @property
    def unknown_rate(self) -> float:
        """The share of unknown tokens."""
        return self.unknown / self.tokens if self.tokens else 0.0


class Tokenizer:
    """Text to ids and back. It never changes, and text never becomes a reserved symbol."""

    def __init__(self, config: TextConfig, kind: Kind) -> None:
        self.config = config
        self.normaliser = config.normaliser
        self._kind = kind
        self._symbols: dict[str, int] = {}
        if config.kind != "published":
            self._symbols = {piece: at for at, piece in enumerate(kind.pieces) if piece.startswith(piece_of(""))}
        assert config.source is None, config.source  # a tokeniser has the settings of its side
        assert config.target is None, config.target
        settings = config.model_dump(mode="json", exclude={"source", "target"})
        if config.unknown_word is None:
            del settings["unknown_word"]  # a later setting: without it a tokeniser keeps the fingerprint it had before
        digest = hashlib.sha256(kind.content).hexdigest()
        description = {"format": FORMAT, "size": len(kind.pieces), "sha256": digest, "text": settings}
        written = json.dumps(description, indent=2, ensure_ascii=False) + "\n"
        self._files = {DESCRIPTION: written.encode("utf-8"), _file_of(config): kind.content}
        stored = (f"{name}\0{len(content)}\0".encode() + content for name, content in sorted(self._files.items()))
        self.fingerprint = hashlib.sha256(b"".join(stored)).hexdigest()
        """The SHA-256 of what `save` writes: equal ones give equal ids."""

    def __repr__(self) -> str:
        return f"Tokenizer({self.kind}, {self.size} pieces, {self.fingerprint[:12]})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tokenizer) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    @property
    def kind(self) -> str:
        """`word`, `char`, `bpe`, `unigram` or `published`."""
        return self.config.kind

    @property
    def size(self) -> int:
        """The number of ids, the reserved ones included."""
        return len(self._kind.pieces)

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """The piece of each id, the reserved ones first."""
        return self._kind.pieces

    @property
    def content(self) -> bytes:
        """What its stored file holds: a vocabulary, merges, or a SentencePiece model."""
        return self._kind.content

    @property
    def has_symbols(self) -> bool:
        """Whether lines may have whole symbols after a tab."""
        return bool(self._symbols)

    def encode(self, line: str) -> list[int]:
        """The ids of a line, without BEGIN and END."""
        ids: list[int] = self.encode_flat([as_text(line, "line")]).ids.tolist()
        return ids

    def encode_many(self, lines: Sequence[str]) -> list[list[int]]:
        """The ids of each line; the same as `encode` for each, in a fraction of the time."""
        return self.encode_flat(lines).rows()

    def encode_flat(self, lines: Sequence[str]) -> FlatIds:
        """The same ids in two arrays, for whole corpora. Those of symbols are after those of the text."""
        if not self._symbols:
            return self._kind.segment([self.normaliser(line) for line in lines])
        parts = [split_symbols(line) for line in lines]
        rows = self._kind.segment([self.normaliser(text) for text, _ in parts]).rows()
        known = self._symbols
        return FlatIds.of(
            [
                [*ids, *(known.get(piece_of(symbol), UNKNOWN) for symbol in symbols)]
                for ids, (_, symbols) in zip(rows, parts, strict=True)
            ]
        )

    def unknown_symbols(self, line: str) -> list[str]:
        """The symbols of a line that the vocabulary lacks."""
        if not self._symbols:
            return []
        return [symbol for symbol in split_symbols(line)[1] if piece_of(symbol) not in self._symbols]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, always one line. Reserved ids are left out, except `<unk>`, which is shown as ⁇."""
        self._require_known(ids)
        # A model may output pieces that no text gives: spaces in a row, bytes that spell a line end.
        if not self._symbols:
            return collapse_spaces(self._kind.join(ids))
        symbols = [self._kind.pieces[number] for number in ids if self._kind.pieces[number] in self._symbols]
        text = self._kind.join([number for number in ids if self._kind.pieces[number] not in self._symbols])
        return with_symbols(collapse_spaces(text), ";".join(symbol.strip() for symbol in symbols))

    def pieces(self, line: str) -> list[str]:
        """The pieces into which a line is cut, as written in the vocabulary."""
        return [self._kind.pieces[number] for number in self.encode(line)]

    def piece(self, number: int) -> str:
        """The piece of an id."""
        self._require_known([number])
        return self._kind.pieces[number]

    def id_of(self, piece: str) -> int | None:
        """The id of a piece; None if there is none."""
        return self._ids.get(piece)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {piece: number for number, piece in enumerate(self.vocabulary)}

    @property
    def published(self) -> Published | None:
        """The tokeniser of a published model, for kind published."""
        return self._kind.published if isinstance(self._kind, PublishedPieces) else None

    def _require_known(self, ids: Sequence[int]) -> None:
        if ids and not (min(ids) >= 0 and max(ids) < self.size):
            wrong = next(number for number in ids if not 0 <= number < self.size)
            raise ModelError(
                f"id {wrong} is outside this {self.kind} tokeniser, whose ids are 0 to {self.size - 1}; "
                "does the tokeniser belong to the model?"
            )

    def round_trip_report(self, lines: Iterable[str], *, shown: int = 5) -> RoundTrip:
        """Encode and decode lines and count what does not come back."""
        given = list(lines)
        encoded = self.encode_many(given)
        back = [self.decode(ids) for ids in encoded]
        # A published tokeniser does not collapse spaces before it cuts.
        normal = [collapse_spaces(self.normaliser(line)) for line in given]
        if self._symbols:
            parts = [split_symbols(line) for line in given]
            normal = [with_symbols(self.normaliser(text), ";".join(symbols)) for text, symbols in parts]
        changed = [(before, after) for before, after in zip(normal, back, strict=True) if before != after]
        return RoundTrip(
            count=len(given),
            normalised=sum(line != text for line, text in zip(given, normal, strict=True)),
            changed=len(changed),
            examples=tuple(changed[:shown]),
            tokens=sum(map(len, encoded)),
            unknown=sum(ids.count(UNKNOWN) for ids in encoded),
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle it in its stored form, for another process."""
        return _restored, (self.config, self._kind.content)

    def save(self, folder: Path) -> None:
        """Write the tokeniser into a folder; the same tokeniser gives the same bytes."""
        folder.mkdir(parents=True, exist_ok=True)
        # The description names the hash of the other file, so it is written last.
        for name in sorted(self._files, key=lambda name: name == DESCRIPTION):
            write_atomically(folder / name, self._files[name])

    @staticmethod
    def load(folder: Path) -> "Tokenizer":
        """Read a tokeniser that `save` wrote; a missing or damaged file is a ModelError that names it."""
        path = folder / DESCRIPTION
        content = _read_bytes(path)
        try:
            found = parse_json(content)
            if found["format"] > FORMAT:
                raise ModelError(
                    f"{path} has format {found['format']}, and this version reads up to {FORMAT}; install a newer one"
                )
            config = TextConfig.model_validate(found["text"])
            size, expected = int(found["size"]), str(found["sha256"])
        except (ValueError, KeyError, TypeError, OverflowError, ValidationError) as error:
            reason = " ".join(str(error).split())[:200]
            raise ModelError(f"{path} is damaged or not a tokeniser of this program: {reason}") from error
        path = folder / _file_of(config)
        content = _read_bytes(path)
        digest = hashlib.sha256(content).hexdigest()
        if digest != expected:
            raise ModelError(f"{path} is damaged: its SHA-256 is {digest[:12]}…, not {expected[:12]}…")
        try:
            kind = _kind_from(config, content)
        except Exception as error:  # the libraries raise bare exceptions of many kinds
            raise ModelError(f"{path} cannot be read as a {config.kind} tokeniser: {error}") from error
        begin = kind.pieces[: len(RESERVED)]
        if begin != RESERVED or len(kind.pieces) != size:
            raise ModelError(
                f"{path} does not fit {DESCRIPTION}: {len(kind.pieces)} pieces that begin with {begin}, "
                f"but {size} that begin with {RESERVED} are described"
            )
        return Tokenizer(config, kind)


@dataclass(frozen=True)
class Tokenizers:
    """The tokenisers of both sides of a translation."""

    source: Tokenizer
    target: Tokenizer

    @property
    def is_shared(self) -> bool:
        """Whether an id means the same on both sides, so that embeddings may be shared."""
        # Published models may cut each language in its own way, and have one vocabulary for both.
        is_published = self.source.kind == self.target.kind == "published"
        return self.source == self.target or (is_published and self.source.vocabulary == self.target.vocabulary)

    @property
    def fingerprints(self) -> list[str]:
        """Hashes of both sides."""
        return [self.source.fingerprint, self.target.fingerprint]

    def save(self, folder: Path) -> None:
        """Write into `shared/`, or into `source/` and `target/`."""
        if self.source == self.target:
            self.source.save(folder / "shared")
        else:
            self.source.save(folder / "source")
            self.target.save(folder / "target")

    @staticmethod
    def load(folder: Path) -> "Tokenizers":
        """Read what `save` wrote."""
        if (folder / "shared").is_dir():
            tokenizer = Tokenizer.load(folder / "shared")
            return Tokenizers(tokenizer, tokenizer)
        if not (folder / "source").is_dir():
            raise ModelError(f"{folder} has no tokeniser: neither shared/ nor source/ and target/ are there")
        return Tokenizers(Tokenizer.load(folder / "source"), Tokenizer.load(folder / "target"))


class NoTokenizers(Tokenizers):
    """In the place of tokenisers, where a model reads no text: nothing is written, and there is none to ask for."""

    def __init__(self) -> None:
        """Without sides."""

    @property
    def source(self) -> Tokenizer:
        raise UsageError(
            "this model reads images or series of numbers, not texts: it has no tokeniser; use "
            "seqloom classify or seqloom forecast"
        )

    target = source

    @property
    def fingerprints(self) -> list[str]:
        return []

    def save(self, folder: Path) -> None:
        """Nothing to write."""


def _restored(config: TextConfig, content: bytes) -> Tokenizer:
    return Tokenizer(config, _kind_from(config, content))


def _file_of(config: TextConfig) -> str:
    names = {"bpe": "bpe.json", "unigram": "unigram.model", "published": "published.model"}
    return names.get(config.kind, "vocabulary.txt")


def _kind_from(config: TextConfig, content: bytes) -> Kind:
    if config.kind == "bpe":
        return byte_pairs(content)
    if config.kind == "unigram":
        return unigram(content)
    if config.kind == "published":
        return PublishedPieces(content)
    vocabulary = Vocabulary.from_text(content.decode("utf-8"))
    if config.kind == "char":
        return Characters(vocabulary)
    return WordPieces(vocabulary, segmentation=config.segmentation)


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}; is the model complete?") from error


# How much of a text a tokeniser has never met.


def unfamiliar_share(tokenizer: Tokenizer, line: str) -> float:
    """The share of a line that its vocabulary does not have: of words by words, otherwise of visible characters.

    Tokens would not do for characters: a run of unknown ones may be one token, or three bytes each.
    """
    if tokenizer.kind == "word" or tokenizer.has_symbols:
        ids = tokenizer.encode(line)
        return ids.count(UNKNOWN) / max(1, len(ids))
    if tokenizer.kind == "published":
        characters = "".join(line.split())
        return sum(_is_unknown(tokenizer, character) for character in characters) / max(1, len(characters))
    known = _characters(tokenizer)
    visible = tokenizer.normaliser(line).replace(" ", "")
    return sum(character not in known for character in visible) / max(1, len(visible))


def symbols_notice(tokenizer: Tokenizer, lines: Iterable[str]) -> str | None:
    """A sentence on symbols beside lines that the vocabulary lacks, if there are any."""
    return counted_symbols(Counter(symbol for line in lines for symbol in tokenizer.unknown_symbols(line)))


def counted_symbols(unknown: Counter[str], *, shown: int = 5) -> str | None:
    """The same of symbols that were counted."""
    if not unknown:
        return None
    named = ", ".join(f"{symbol!r} ({count:,})" for symbol, count in unknown.most_common(shown))
    more = f" and {len(unknown) - shown:,} more" if len(unknown) > shown else ""
    are = "symbols are" if unknown.total() > 1 else "symbol is"
    return f"{unknown.total():,} {are} not in the training text and read as unknown: {named}{more}"


def are_unknown(tokenizer: Tokenizer, lines: Sequence[str]) -> bool:
    """Whether all that can be seen in some lines is unknown; lines in which nothing can be seen do not count."""
    seen = [line for line in lines if not is_blank(line)]
    return bool(seen) and all(unfamiliar_share(tokenizer, line) == 1 for line in seen)


@lru_cache(maxsize=1 << 12)
def _is_unknown(tokenizer: Tokenizer, character: str) -> bool:
    """Whether a published tokeniser has no piece for a character."""
    return UNKNOWN in tokenizer.encode(character)


@lru_cache(maxsize=8)
def _characters(tokenizer: Tokenizer) -> frozenset[str]:
    """All characters of the pieces, except those that only spell the names of reserved pieces and bytes."""
    named = {*RESERVED, *BYTE_PIECES}
    return frozenset("".join(piece for piece in tokenizer.vocabulary if piece not in named))


# A text as ids: what models with their own training loop (n-grams, word vectors) learn from.

CHUNK = 1 << 24
"""Ids processed together, so that a text larger than memory stays on the disk."""


@dataclass(frozen=True, eq=False)
class EncodedText:
    """Sentence after sentence in one row of ids, each sentence ended by END, and the pieces of the ids."""

    ids: Integer[np.ndarray, " tokens"]
    """May be memory-mapped, and larger than memory."""
    vocabulary: Sequence[str]
    """The text of each symbol, the reserved ones first."""

    def __post_init__(self) -> None:
        begin = tuple(self.vocabulary[: len(RESERVED)])
        if begin != RESERVED:
            raise DataError(f"a vocabulary begins with {RESERVED}, but this one begins with {begin}")
        if not len(self.ids):
            raise DataError("the text is empty (0 tokens); give a file with some lines")
        if self.ids[-1] != END:
            raise DataError(
                f"the text ends with id {self.ids[-1]}, but each sentence ends with {END} ({RESERVED[END]})"
            )

    @property
    def symbols(self) -> int:
        """The size of the vocabulary, the reserved symbols included."""
        return len(self.vocabulary)

    def counts(self) -> Int64[np.ndarray, " symbols"]:
        """How often each symbol comes; END comes once per sentence."""
        total = np.zeros(self.symbols, np.int64)
        for begin in range(0, len(self.ids), CHUNK):
            found = np.bincount(self.ids[begin : begin + CHUNK], minlength=self.symbols)
            if len(found) > self.symbols:
                raise DataError(f"id {len(found) - 1} is outside the vocabulary, whose ids are 0 to {self.symbols - 1}")
            total += found
        return total
