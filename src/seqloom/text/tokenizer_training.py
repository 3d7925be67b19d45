"""Learning tokenisers from lines of text: the same pieces from the same text, on every machine, without a seed.

Subwords are learned from counted chunks, in sorted order and with fixed tie-breaking, so that neither the order of the
lines nor the number of threads nor the hash seed of Python changes a piece.
"""

import io
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import sentencepiece
from tokenizers import Tokenizer as FastTokenizer
from tokenizers import models, pre_tokenizers, trainers

from seqloom.core.errors import ConfigError, DataError
from seqloom.core.events import Listener, ignore, notice
from seqloom.core.symbols import BEGIN, END, PAD, RESERVED, UNKNOWN
from seqloom.text.marks import BYTE_PIECES, SPACE, UNSPACED, mark_spaces, split_chunks
from seqloom.text.tokenizer import (
    ALL_CHARACTERS,
    ALL_WORDS,
    Characters,
    Kind,
    Subwords,
    TextConfig,
    Tokenizer,
    Tokenizers,
    WordPieces,
    byte_pairs,
    pre_tokenizer,
    unigram,
    word_cutter,
)
from seqloom.text.vocabulary import Vocabulary, count_tokens

COVERAGE = 0.9995
"""Characters may fill more than half of a subword vocabulary only as far as this share of the text needs them."""

_MAX_CHUNK_CHARACTERS = 1000
"""Characters after which a chunk is cut for learning: pieces are far shorter, and the learners far from linear."""

_MAX_REPEATED = 500
"""Occurrences of a part that are handed to the learner at a time; it holds some hundreds of such texts, taken apart."""

_MAX_HAN_CHARACTERS = 4
"""Chinese characters in a piece: nearly all words have one or two, idioms four."""

_MAX_UNSPACED_CHARACTERS = 12
"""Characters in a piece of the other scripts without spaces: Thai, Lao, Khmer, Burmese, Japanese syllables."""

SAMPLE_LINES = 10_000
"""Lines that are searched for signs of an earlier tokenisation."""

MIN_SEPARATE_MARKS = 20
"""Separate commas and full stops below which nothing is reported: a few may be separate in any text."""

_has_unspaced = re.compile(f"[{UNSPACED}]").search
_han = re.compile("[\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]").findall


def train_tokenizer(
    lines: Iterable[str], config: TextConfig, *, marks: Sequence[str] = (), listener: Listener = ignore
) -> Tokenizer:
    """Learn a tokeniser from lines. Notices report characters without a piece, and fewer pieces than requested.

    `marks` become the first pieces after the reserved ones. A mark has a space in it: text never becomes one.
    """
    if config.kind == "published":
        raise ConfigError("text.kind=published is for imported models and cannot be learned; use bpe or unigram")
    learn = _learn_vocabulary if config.kind in {"word", "char"} else _learn_subwords
    assert all(" " in mark for mark in marks), marks
    tokenizer = Tokenizer(config, learn(_normalised(lines, config), config, marks, listener))
    if tokenizer.size < config.size and config.size != {"word": ALL_WORDS, "char": ALL_CHARACTERS}.get(config.kind):
        notice(
            listener,
            f"text.size={config.size} is more than this text gives: the {config.kind} tokeniser has its maximum, "
            f"{tokenizer.size} pieces",
            size=tokenizer.size,
        )
    return tokenizer


def train_tokenizers(
    source_lines: Iterable[str],
    target_lines: Iterable[str],
    config: TextConfig,
    *,
    marks: Sequence[str] = (),
    source_marks: Sequence[str] = (),
    listener: Listener = ignore,
) -> Tokenizers:
    """Learn one tokeniser from both sides (`config.is_joint`), or one from each; `source_marks` are of the source."""
    if config.is_joint:
        every = (*marks, *source_marks)
        tokenizer = train_tokenizer(chain(source_lines, target_lines), config, marks=every, listener=listener)
        return Tokenizers(tokenizer, tokenizer)
    source = train_tokenizer(source_lines, config.side("source"), marks=(*marks, *source_marks), listener=listener)
    return Tokenizers(source, train_tokenizer(target_lines, config.side("target"), marks=marks, listener=listener))


def with_words(tokenizer: Tokenizer, words: Iterable[str]) -> Tokenizer:
    """A tokeniser of kind word with these words after its own, where it lacks them; `text.size` does not limit them."""
    vocabulary = Vocabulary.from_text(tokenizer.content.decode("utf-8"))
    known = set(vocabulary.tokens)
    new = tuple(word for word in dict.fromkeys(words) if word not in known)
    if not new:
        return tokenizer
    larger = Vocabulary((*vocabulary.tokens, *new), (*vocabulary.counts, *[0] * len(new)), vocabulary.unknown)
    return Tokenizer(tokenizer.config, WordPieces(larger, segmentation=tokenizer.config.segmentation))


def _normalised(lines: Iterable[str], config: TextConfig) -> Iterator[str]:
    """The lines in normal form; without a single character in all of them, a DataError at the end."""
    normaliser, count, is_empty = config.normaliser, 0, True
    for count, line in enumerate(lines, start=1):  # noqa: B007
        text = normaliser(line)
        is_empty = is_empty and not text
        yield text
    if is_empty:
        found = f"{count} lines, all of them blank" if count else "no lines"
        raise DataError(f"no text to train a tokenizer on: {found}")


def _nothing_kept(what: str, config: TextConfig) -> DataError:
    return DataError(
        f"no {what} of the text gets a piece with text.size={config.size} and "
        f"text.minimum_count={config.minimum_count}; raise the one or lower the other"
    )


def _report_lost(listener: Listener, what: str, lost: int, rate: float, config: TextConfig) -> None:
    """Report the characters without a piece."""
    fate = "are spelled in bytes" if config.byte_fallback else "are unknown"
    notice(
        listener,
        f"{lost:,} different {what}, {rate:.2%} of the text, get no piece and {fate} "
        f"(text.size={config.size}, text.minimum_count={config.minimum_count})",
        lost=lost,
        lost_rate=rate,
    )


class PreparedSigns:
    """Signs that a text was tokenised already: separate marks, hyphens as `@-@`, `<unk>` for unknown words."""

    def __init__(self) -> None:
        self._apart = self._marks = self._hyphens = self._unknown = 0

    def watching(self, texts: Iterable[str]) -> Iterator[str]:
        """The same texts; the first of them are checked in passing."""
        for number, text in enumerate(texts):
            if number < SAMPLE_LINES:
                padded = f" {text} "
                self._apart += padded.count(" , ") + padded.count(" . ")
                self._marks += text.count(",") + text.count(".")
                self._hyphens += padded.count(" @-@ ")
                self._unknown += padded.count(f" {RESERVED[UNKNOWN]} ")
            yield text

    def advice(self, config: TextConfig) -> list[str]:
        """Which settings such a text wants that `config` does not have, a sentence each."""
        found = []
        # With `space_before_punctuation` it is the setting that has set them apart, not who prepared the text.
        is_apart = (
            self._apart >= MIN_SEPARATE_MARKS and 2 * self._apart > self._marks and not config.space_before_punctuation
        )
        if config.segmentation != "spaces" and (is_apart or self._hyphens or self._unknown):
            signs = [f"{self._apart:,} times a comma or full stop apart from its word"] if is_apart else []
            signs += [f"{self._hyphens:,} times @-@"] if self._hyphens else []
            signs += [f"{self._unknown:,} times {RESERVED[UNKNOWN]}"] if self._unknown else []
            found.append(
                f"the text looks as if it was cut into words already ({', '.join(signs)}); text.segmentation=spaces "
                "keeps its words"
            )
        if self._unknown and config.unknown_word is None:
            also = "" if config.segmentation == "spaces" else ", with text.segmentation=spaces,"
            found.append(
                f"{RESERVED[UNKNOWN]} is a word of this text like any other; "
                f"'text.unknown_word={RESERVED[UNKNOWN]}'{also} makes it the symbol of unknown words"
            )
        return found


def _learn_vocabulary(texts: Iterable[str], config: TextConfig, marks: Sequence[str], listener: Listener) -> Kind:
    is_word = config.kind == "word"
    cut = word_cutter(config.segmentation) if is_word else lambda text: list(mark_spaces(text, has_start=False))
    signs = PreparedSigns()
    counts = count_tokens(cut(text) for text in signs.watching(texts))
    if is_word:
        for sentence in signs.advice(config):
            notice(listener, sentence)
    stand_ins = counts.pop(config.normaliser(config.unknown_word), 0) if config.unknown_word is not None else 0
    leading = (*marks, *(BYTE_PIECES if config.byte_fallback else ()))
    vocabulary = Vocabulary.from_counts(counts, size=config.size, minimum_count=config.minimum_count, leading=leading)
    if len(vocabulary.tokens) == len(marks):
        raise _nothing_kept("word" if is_word else "character", config)
    if vocabulary.unknown:
        lost = len(counts) - len(vocabulary.tokens) + len(leading)
        _report_lost(listener, "words" if is_word else "characters", lost, vocabulary.unknown / counts.total(), config)
    vocabulary = replace(vocabulary, unknown=vocabulary.unknown + stand_ins)
    return WordPieces(vocabulary, segmentation=config.segmentation) if is_word else Characters(vocabulary)


def count_chunks(texts: Iterable[str]) -> Counter[str]:
    """How often each chunk occurs in normalised texts."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(split_chunks(mark_spaces(text)))
    return counts


def count_characters(chunks: Mapping[str, int]) -> Counter[str]:
    """How often each character occurs in counted chunks."""
    counts: Counter[str] = Counter()
    for chunk, count in chunks.items():
        for character in chunk:
            counts[character] += count
    return counts


@dataclass(frozen=True)
class Alphabet:
    """The characters that become pieces, and what is lost with the others."""

    kept: frozenset[str]
    lost: int
    """How many different characters are left out."""
    lost_rate: float
    """Which share of the text they make up."""


def choose_alphabet(characters: Mapping[str, int], *, room: int, minimum_count: int) -> Alphabet:
    """Keep all frequent enough characters while they fill at most half of the room, else the most frequent ones.

    More than half of the room is used only to cover `COVERAGE` of the text. ▁ is always kept.
    """
    total = sum(characters.values())
    ordered = sorted((-count, character) for character, count in characters.items() if character != SPACE)
    kept, covered = [SPACE], characters.get(SPACE, 0)
    for count, character in ordered:
        is_wanted = len(kept) < room // 2 or covered < COVERAGE * total
        if -count < minimum_count or len(kept) >= room or not is_wanted:
            break
        kept.append(character)
        covered -= count
    lost = len(characters.keys() - set(kept))
    return Alphabet(frozenset(kept), lost, 1 - covered / total if lost else 0.0)


def _known_parts(chunks: Mapping[str, int], alphabet: Alphabet) -> Iterator[tuple[str, int]]:
    """Chunks in sorted order, cut at characters that are left out and where they are too long."""
    parts: Counter[str] = Counter()
    for chunk, count in chunks.items():
        known = chunk
        if not alphabet.kept.issuperset(chunk):
            known = "".join(character if character in alphabet.kept else " " for character in chunk)
        for part in known.split():
            for start in range(0, len(part), _MAX_CHUNK_CHARACTERS):
                parts[part[start : start + _MAX_CHUNK_CHARACTERS]] += count
    yield from sorted(parts.items())


def _learn_subwords(texts: Iterable[str], config: TextConfig, marks: Sequence[str], listener: Listener) -> Kind:
    chunks = count_chunks(texts)
    taken = len(RESERVED) + len(marks) + (len(BYTE_PIECES) if config.byte_fallback else 0)
    alphabet = choose_alphabet(count_characters(chunks), room=config.size - taken, minimum_count=config.minimum_count)
    if alphabet.kept == {SPACE} and not config.byte_fallback:
        raise _nothing_kept("character", config)
    if alphabet.lost:
        _report_lost(listener, "characters", alphabet.lost, alphabet.lost_rate, config)
    return (_learn_unigram if config.kind == "unigram" else _learn_byte_pairs)(chunks, alphabet, config, marks)


def _learn_byte_pairs(
    chunks: Mapping[str, int], alphabet: Alphabet, config: TextConfig, marks: Sequence[str]
) -> Subwords:
    """Join the most frequent pair of pieces again and again, until there are enough pieces or no pair occurs twice."""
    leading = [*RESERVED, *marks, *(BYTE_PIECES if config.byte_fallback else ())]
    room = config.size - len(leading)
    # Parts of chunks inside which pairs may be joined, with their counts.
    split = pre_tokenizer().pre_tokenize_str
    counts: Counter[str] = Counter()
    for chunk, count in _known_parts(chunks, alphabet):
        for part, _ in split(chunk):
            counts[part] += count
    # Each part as often as it occurs, separated by line ends: the learner takes texts, not counts, and counts again.
    texts = (
        f"{part}\n" * min(_MAX_REPEATED, counts[part] - begin)
        for part in sorted(counts)
        for begin in range(0, counts[part], _MAX_REPEATED)
    )
    learner = FastTokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.Split("\n", behavior="removed")
    trainer = trainers.BpeTrainer(
        # Where phrases may come up, twice as many are learned, so that enough are left without them.
        vocab_size=2 * room if _has_unspaced("".join(alphabet.kept)) else room,
        # A pair that was seen once says nothing about the next text.
        min_frequency=max(2, config.minimum_count),
        initial_alphabet=sorted(alphabet.kept),
        special_tokens=[],
        show_progress=False,
    )
    learner.train_from_iterator(texts, trainer)
    pieces = dict.fromkeys(sorted(alphabet.kept))
    merges = []
    for left, right in json.loads(learner.to_str())["model"]["merges"]:
        if len(pieces) == room:
            break
        if not is_phrase(left + right):
            pieces[left + right] = None
            merges.append((left, right))
    ids = {piece: number for number, piece in enumerate([*leading, *pieces])}
    model = models.BPE(ids, merges, unk_token=RESERVED[UNKNOWN], byte_fallback=config.byte_fallback)
    # No special tokens are declared, so text never becomes a reserved symbol.
    fast = FastTokenizer(model)
    fast.pre_tokenizer = pre_tokenizer()
    return byte_pairs(fast.to_str().encode("utf-8"))


def is_phrase(piece: str) -> bool:
    """Whether a piece of a script without spaces is longer than words are there.

    Nothing else keeps byte pairs from joining whole clauses, of which no other sentence can be made.
    """
    return len(piece) > _MAX_HAN_CHARACTERS and (
        len(_han(piece)) > _MAX_HAN_CHARACTERS
        or (len(piece) > _MAX_UNSPACED_CHARACTERS and _has_unspaced(piece) is not None)
    )


def _learn_unigram(chunks: Mapping[str, int], alphabet: Alphabet, config: TextConfig, marks: Sequence[str]) -> Subwords:
    """Learn the unigram language model with sentencepiece, on one thread: with more, sums differ in their last bits."""
    content = io.BytesIO()
    rows = [f"{chunk}\t{count}" for chunk, count in _known_parts(chunks, alphabet)]
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(rows),
            input_format="tsv",
            model_writer=content,
            model_type="unigram",
            vocab_size=config.size,
            hard_vocab_limit=False,
            num_threads=1,
            max_sentence_length=4 * _MAX_CHUNK_CHARACTERS,
            character_coverage=1.0,
            required_chars="".join(sorted(alphabet.kept)),
            byte_fallback=config.byte_fallback,
            split_digits=True,
            # Control symbols are never found in text.
            control_symbols=list(marks),
            # The text comes normalised and marked: sentencepiece must not change it.
            normalization_rule_name="identity",
            add_dummy_prefix=False,
            remove_extra_whitespaces=False,
            pad_id=PAD,
            bos_id=BEGIN,
            eos_id=END,
            unk_id=UNKNOWN,
            pad_piece=RESERVED[PAD],
            bos_piece=RESERVED[BEGIN],
            eos_piece=RESERVED[END],
            unk_piece=RESERVED[UNKNOWN],
            minloglevel=2,
        )
    except RuntimeError as error:
        counted = f"{len(rows)} different words of {len(alphabet.kept)} different characters"
        raise DataError(
            f"too little text to learn {config.size} unigram pieces from: {counted}; set text.kind=bpe"
        ) from error
    return unigram(content.getvalue())
