"""Tagged sentences: words with tags in columns, read from files, and stored as ids.

A file is CoNLL-U or has token columns (`text.formats.conllu`). Each column that is learned has its tags, of one kind:

    tags      the values as they are: UPOS, XPOS, FEATS
    spans     BIO, IOB1 or BIOES, found in the values; their steps are legal or not (`text.spans`)
    scripts   edit scripts from form to lemma, in place of lemmas (`text.edit_scripts`)

A store keeps each different form once, as a word of the vocabulary and as letters, and for each word its form and its
tags. A tag that is not among those of the training text has the number −1: it is never predicted, and counts as wrong.
"""

import hashlib
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int32, Int64, Integer, UInt

from seqloom.core.arrays import ArrayFolder, ArrayFolderWriter, ArrayLayout, borders, damaged, open_folder
from seqloom.core.errors import DataError, Problem, UsageError
from seqloom.core.files import matching_files
from seqloom.core.symbols import BEGIN, END, PAD, UNKNOWN
from seqloom.text.edit_scripts import edit_script
from seqloom.text.formats.conllu import COLUMNS, EMPTY, TokenFile, TokenLayout
from seqloom.text.spans import Scheme, find_scheme
from seqloom.text.tokenizer import Tokenizers

TAGGED = ("upos", "xpos", "feats", "lemma")
"""The columns of CoNLL-U that a tagger fills: those that do not depend on the tree of the sentence."""

SCRIPTED = "lemma"
"""The column whose values are learned as edit scripts."""

MIN_SCRIPTS = 2
"""Words that need the same edit script before it is a tag: one that is seen once rarely fits another word."""

MAX_TAGS = 50_000
"""Different values of a column that may be tags."""

MAX_LETTERS = 32
"""Letters of a word that are read. Of a longer one, the first half and the last half are."""

UNTAGGED = -1
"""In the place of a tag that is not among those of the training text."""


# --- corpora ----------------------------------------------------------------------------------------------------------


class TaggedSentence(NamedTuple):
    """The words of a sentence with their values in each column; `number` counts lines from 1 over all files."""

    number: int
    forms: tuple[str, ...]
    values: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class _File:
    path: Path
    lines: int


class TokenCorpus:
    """The tagged sentences of files, one file after the other, in memory.

    All files are checked when it is made: each line has its columns, and all files have the same. Plain, .gz, .xz or
    .zst; a name may be a pattern. Of CoNLL-U, the columns in `TAGGED` are read; of token columns, all.
    """

    layout: TokenLayout
    sentences: tuple[TaggedSentence, ...]
    words: int

    def __init__(self, paths: Sequence[Path], *, layout: TokenLayout | None = None) -> None:
        """`layout` is that of the training text, for dev text: it must be the same."""
        if not paths:
            raise UsageError("no tagged text was given")
        digest, files, sentences = hashlib.sha256(), list[_File](), list[TaggedSentence]()
        before = 0
        for path in chain.from_iterable(map(matching_files, paths)):
            file = TokenFile(path)
            wanted = layout or (file.layout if not files else self.layout)
            if file.layout.columns != wanted.columns:
                message = f"{_columns(file.layout)}, but the training text has {_columns(wanted)} ({file.layout.seen})"
                raise DataError(problems=[Problem(message, str(path), 1)])
            self.layout = file.layout
            columns = value_columns(file.layout)
            if not columns:
                message = f"no tags: {file.layout.seen}; expected a word and its tags in each line"
                raise DataError(problems=[Problem(message, str(path), 1)])
            count = lines = 0
            for sentence in file:
                lines = sentence.number - 1 + sum(line.endswith("\n") for line in sentence.lines)
                if not sentence.words:  # what follows the last one
                    continue
                forms = tuple(map(sys.intern, sentence.forms))
                values = {name: tuple(map(sys.intern, sentence.column(name))) for name in columns}
                first = sentence.number + sentence.words[0].line
                sentences.append(TaggedSentence(before + first, forms, values))
                for row in zip(forms, *values.values(), strict=True):
                    digest.update("\t".join(row).encode("utf-8", "surrogatepass") + b"\n")
                digest.update(b"\n")
                count += 1
            if not count:
                raise DataError(problems=[Problem("no words; expected a word and its tags in each line", str(path))])
            files.append(_File(path, lines))
            before += lines
        self._files, self._digest = tuple(files), digest.hexdigest()
        self.sentences = tuple(sentences)
        self.words = sum(len(each.forms) for each in sentences)

    def __len__(self) -> int:
        """The number of sentences."""
        return len(self.sentences)

    def __iter__(self) -> Iterator[TaggedSentence]:
        return iter(self.sentences)

    def place(self, number: int) -> tuple[Path, int]:
        """The file of a line, and its number there."""
        for file in self._files[:-1]:
            if number <= file.lines:
                return file.path, number
            number -= file.lines
        return self._files[-1].path, number

    def fingerprint(self) -> str:
        """A hash of words and tags: the same whether they are compressed or not."""
        return self._digest


def value_columns(layout: TokenLayout) -> tuple[str, ...]:
    """The columns of a file in which tags may be."""
    return TAGGED if layout.is_conllu else tuple(name for name in layout.columns if name not in ("id", "form"))


def _columns(layout: TokenLayout) -> str:
    if layout.columns == COLUMNS:
        return "the columns of CoNLL-U"
    return f"{len(layout.columns)} column{'' if len(layout.columns) == 1 else 's'}"


def hold_out(corpus: TokenCorpus, count: int, *, seed: int) -> tuple[list[TaggedSentence], list[TaggedSentence]]:
    """The rest, and so many sentences drawn at random, both in the order of the text."""
    drawn = np.random.default_rng(seed).choice(len(corpus), size=count, replace=False)
    held = frozenset(drawn.tolist())
    rest = [each for at, each in enumerate(corpus) if at not in held]
    return rest, [corpus.sentences[at] for at in sorted(held)]


# --- tags -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ColumnTags:
    """The tags of a column in a training text."""

    tags: tuple[str, ...]
    """The most frequent first."""
    scheme: Scheme | None = None
    """That of spans, if the tags are such."""
    rare: int = 0
    """Words whose edit script is no tag, because it was seen only once."""


def tags_in(sentences: Sequence[TaggedSentence], column: str) -> ColumnTags:
    """The tags of a column, by falling frequency."""
    counts = Counter(tag for each in sentences for tag in values_of(each, column))
    if column == SCRIPTED:
        common = {tag: count for tag, count in counts.items() if count >= MIN_SCRIPTS} or counts
        rare = sum(count for tag, count in counts.items() if tag not in common)
        return ColumnTags(_ordered(common), rare=rare)
    return ColumnTags(_ordered(counts), scheme=find_scheme(each.values[column] for each in sentences))


def is_filled(sentences: Sequence[TaggedSentence], column: str) -> bool:
    """Whether a column has values to learn: two different ones at least."""
    first = sentences[0].values[column][0]
    return any(value != first for each in sentences for value in each.values[column])


def is_empty(sentences: Sequence[TaggedSentence], column: str) -> bool:
    """Whether a column has no value at all."""
    return all(value == EMPTY for each in sentences for value in each.values[column])


def values_of(sentence: TaggedSentence, column: str) -> Sequence[str]:
    """What is learned of a column: its values, or edit scripts in place of lemmas."""
    values = sentence.values[column]
    return list(map(edit_script, sentence.forms, values)) if column == SCRIPTED else values


def _ordered(counts: Mapping[str, int]) -> tuple[str, ...]:
    return tuple(sorted(counts, key=lambda tag: (-counts[tag], tag)))


# --- ids --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SpelledForms:
    """Different forms: the word of each in the vocabulary, and its letters between BEGIN and END, padded."""

    words: Int64[np.ndarray, " forms"]
    letters: Int64[np.ndarray, "forms letters"]
    lengths: Int64[np.ndarray, " forms"]


def spell_forms(forms: Sequence[str], tokenizers: Tokenizers) -> tuple[list[int], list[list[int]]]:
    """The word and the letters of each form; the source side of the tokenisers has letters, the target side words."""
    letters, words = tokenizers.source, tokenizers.target
    known = (words.id_of(words.normaliser(form)) for form in forms)
    return [UNKNOWN if each is None else each for each in known], list(map(_ends, letters.encode_many(forms)))


def _ends(letters: list[int]) -> list[int]:
    half = MAX_LETTERS // 2
    return letters if len(letters) <= MAX_LETTERS else [*letters[:half], *letters[-half:]]


def pad_forms(words: Sequence[int], letters: Sequence[Sequence[int] | UInt[np.ndarray, " letters"]]) -> SpelledForms:
    """Forms as a model reads them."""
    lengths = np.array([len(each) + 2 for each in letters], np.int64)
    padded = np.full((len(letters), int(lengths.max(initial=2))), PAD, np.int64)
    padded[:, 0] = BEGIN
    for row, each in enumerate(letters):
        padded[row, 1 : 1 + len(each)] = each
    padded[np.arange(len(letters)), lengths - 1] = END
    return SpelledForms(np.array(words, np.int64), padded, lengths)


# A folder with raw little-endian arrays and a header, as `data.store` writes its own:
#
#     lengths          words of each sentence (uint32)
#     lines            its line in the corpus (int64)
#     forms            the form of each word (uint32)
#     tags             its tags, column by column (int32); −1 for one that is not known
#     word_ids         the word of each form in the vocabulary
#     letters          the letters of all forms, one form after the other (uint32)
#     letter_lengths   how many each form has (uint32)
#     tokens.json      format number, counts, size and SHA-256 of each file

LAYOUT = ArrayLayout(
    "store of tagged sentences",
    "tokens.json",
    1,
    lambda ids: {
        "lengths": "<u4",
        "lines": "<i8",
        "forms": "<u4",
        "tags": "<i4",
        "word_ids": ids,
        "letters": "<u4",
        "letter_lengths": "<u4",
    },
)

CHUNK = 4096
"""Sentences stored at a time."""


@dataclass(frozen=True)
class TokenReport:
    """What became of tagged sentences when they were encoded."""

    sentences: int
    words: int
    unknown: int
    """Words among them that the vocabulary does not have."""
    untagged: Mapping[str, Counter[str]]
    """For each column, its values that are not among the tags, and how often they come."""


def encode_tagged(
    sentences: Sequence[TaggedSentence],
    folder: Path,
    *,
    tokenizers: Tokenizers,
    tags: Mapping[str, Sequence[str]],
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> TokenReport:
    """Store sentences in a new folder, tags by their numbers. `progress` gets the sentences done and the total."""
    numbers = [(column, {tag: number for number, tag in enumerate(known)}) for column, known in tags.items()]
    forms: dict[str, int] = {}
    untagged: dict[str, Counter[str]] = {column: Counter() for column in tags}
    writer, is_good = ArrayFolderWriter(folder, LAYOUT, symbols=tokenizers.target.size), False
    try:
        for begin in range(0, len(sentences), CHUNK):
            some = sentences[begin : begin + CHUNK]
            rows = []  # [words, columns]
            for sentence in some:
                columns = []
                for column, known in numbers:
                    values = values_of(sentence, column)
                    columns.append([known.get(value, UNTAGGED) for value in values])
                    if UNTAGGED in columns[-1]:
                        untagged[column].update(value for value in values if value not in known)
                rows.append(np.array(columns, np.int64).T)
            writer.append(
                {
                    "lengths": np.array([len(each.forms) for each in some], np.int64),
                    "lines": np.array([each.number for each in some], np.int64),
                    "forms": np.array([forms.setdefault(form, len(forms)) for each in some for form in each.forms]),
                    "tags": np.concatenate(rows).ravel(),
                }
            )
            progress(begin + len(some), len(sentences))
        words, letters = spell_forms(list(forms), tokenizers)
        writer.append(
            {
                "word_ids": writer.known(np.array(words, np.int64)),
                "letters": np.fromiter(chain.from_iterable(letters), np.int64),
                "letter_lengths": np.array(list(map(len, letters)), np.int64),
            }
        )
        is_good = True
    finally:
        writer.end(len(sentences), is_good=is_good, nothing="no tagged sentence is left to store")
    is_unknown = np.array(words) == UNKNOWN
    unknown = sum(bool(is_unknown[forms[form]]) for each in sentences for form in each.forms)
    return TokenReport(len(sentences), sum(len(each.forms) for each in sentences), unknown, untagged)


class TokenStore:
    """The sentences of a folder that `encode_tagged` has made, mapped into memory."""

    lengths: UInt[np.ndarray, " sentences"]
    lines: Int64[np.ndarray, " sentences"]
    forms: UInt[np.ndarray, " words"]
    tags: Int32[np.ndarray, "words columns"]
    word_ids: UInt[np.ndarray, " forms"]

    def __init__(self, folder: ArrayFolder, *, columns: int) -> None:
        arrays = folder.arrays
        self.lengths, self.lines, self.forms = arrays["lengths"], arrays["lines"], arrays["forms"]
        self.tags, self.word_ids = arrays["tags"].reshape(-1, columns), arrays["word_ids"]
        self._letters, self._borders = arrays["letters"], borders(arrays["letter_lengths"])
        self._offsets = borders(self.lengths)
        self._folder = folder

    @staticmethod
    def open(folder: Path, *, tags: Sequence[int], letters: int, verify: bool = False) -> "TokenStore":
        """Map a store into memory, with so many tags of each column. Hashes are compared if `verify` is set."""
        found = open_folder(folder, LAYOUT, verify=verify)
        if len(found.arrays["tags"]) != len(tags) * len(found.arrays["forms"]):
            raise damaged(folder, LAYOUT, f"its tags do not have {len(tags)} columns")
        store = TokenStore(found, columns=len(tags))
        if store._offsets[-1] != len(store.forms) or len(store.lines) != len(store.lengths):
            raise damaged(folder, LAYOUT, f"{store._offsets[-1]:,} words are counted, and {len(store.forms):,} there")
        if len(store._borders) != len(store.word_ids) + 1 or store._borders[-1] != len(store._letters):
            raise damaged(folder, LAYOUT, "its letters are not those of its forms")
        if int(store.forms.max()) >= len(store.word_ids) or int(store._letters.max()) >= letters:
            raise damaged(folder, LAYOUT, "a form or a letter is not there")
        if (store.tags >= np.array(tags)).any() or store.tags.min() < UNTAGGED or store.lengths.min() < 1:
            raise damaged(folder, LAYOUT, f"a tag is not among the {list(tags)} of the columns, or a sentence is empty")
        return store

    def __len__(self) -> int:
        return len(self.lengths)

    def places(self, indices: Integer[np.ndarray, " batch"]) -> tuple[Int64[np.ndarray, "batch time"], np.ndarray]:
        """The words of these sentences by their place in the text, padded with −1, and their lengths."""
        lengths = self.lengths[indices].astype(np.int64)
        at = np.arange(int(lengths.max(initial=0)))
        places = self._offsets[indices][:, None] + at
        return np.where(at < lengths[:, None], places, -1), lengths

    def spelled(self, forms: Integer[np.ndarray, " forms"]) -> SpelledForms:
        """These forms as a model reads them."""
        spans = zip(self._borders[forms], self._borders[forms + 1], strict=True)
        letters = [self._letters[begin:end] for begin, end in spans]
        return pad_forms(self.word_ids[forms].tolist(), letters)

    def word_counts(self, symbols: int) -> Int64[np.ndarray, " symbols"]:
        """How often each word of the vocabulary comes."""
        return np.bincount(self.word_ids[self.forms], minlength=symbols)

    def fingerprint(self) -> str:
        """A hash of all that is stored."""
        return self._folder.fingerprint()
