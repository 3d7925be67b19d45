"""Learning tokenisers from lines of text. The order of the lines changes nothing, and no seed is needed."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain

from seqloom.core.errors import DataError
from seqloom.core.events import Listener, ignore, notice
from seqloom.core.symbols import RESERVED, UNKNOWN
from seqloom.text.marks import BYTE_PIECES, SPACE, mark_spaces
from seqloom.text.normalise import Normaliser
from seqloom.text.subwords import choose_alphabet, count_characters, count_chunks, learn_byte_pairs, learn_unigram
from seqloom.text.tokenizer import Characters, Kind, TextConfig, Tokenizer, Tokenizers, WordPieces, word_cutter
from seqloom.text.vocabulary import Vocabulary, count_tokens

# Signs that a text was cut into words already, as WikiText and the Penn Treebank are.

SAMPLE_LINES = 10_000
"""Lines that are enough to judge a text by."""

ENOUGH = 20
"""Marks below which nothing is reported: a few may be separate in any text."""


class PreparedSigns:
    """Signs that a text was tokenised already: separate marks, hyphens as `@-@`, `<unk>` for unknown words."""

    def __init__(self) -> None:
        self._apart = self._marks = self._hyphens = self._unknown = 0

    def watching(self, texts: Iterable[str]) -> Iterator[str]:
        """The same texts; the first of them are checked in passing."""
        for number, text in enumerate(texts):
            if number < SAMPLE_LINES:
                self._look(text)
            yield text

    def _look(self, text: str) -> None:
        padded = f" {text} "
        self._apart += padded.count(" , ") + padded.count(" . ")
        self._marks += text.count(",") + text.count(".")
        self._hyphens += padded.count(" @-@ ")
        self._unknown += padded.count(f" {RESERVED[UNKNOWN]} ")

    def advice(self, config: TextConfig) -> list[str]:
        """Which settings such a text wants that `config` does not have, a sentence each."""
        found = []
        # With `space_before_punctuation` it is the setting that has set them apart, not who prepared the text.
        is_apart = self._apart >= ENOUGH and 2 * self._apart > self._marks and not config.space_before_punctuation
        if config.segmentation == "words" and (is_apart or self._hyphens or self._unknown):
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


ALL_WORDS, ALL_CHARACTERS = 1_000_000, 1_000
"""Sizes that mean as many as possible, so that fewer need no notice."""


def train_tokenizer(lines: Iterable[str], config: TextConfig, *, listener: Listener = ignore) -> Tokenizer:
    """Learn a tokeniser from lines. Notices report characters without a piece, and fewer pieces than requested."""
    texts = _normalised(lines, config.normaliser)
    kind = (
        _learn_vocabulary(texts, config, listener)
        if config.kind in {"word", "char"}
        else _learn_subwords(texts, config, listener)
    )
    tokenizer = Tokenizer(config, kind)
    if tokenizer.size < config.size and config.size != {"word": ALL_WORDS, "char": ALL_CHARACTERS}.get(config.kind):
        notice(
            listener,
            f"text.size={config.size} is more than this text gives: the {config.kind} tokeniser has its maximum, "
            f"{tokenizer.size} pieces",
            size=tokenizer.size,
        )
    return tokenizer


def train_tokenizers(
    source_lines: Iterable[str], target_lines: Iterable[str], config: TextConfig, *, listener: Listener = ignore
) -> Tokenizers:
    """Learn one tokeniser from both sides (`config.shared`), or one from each."""
    if config.shared:
        tokenizer = train_tokenizer(chain(source_lines, target_lines), config, listener=listener)
        return Tokenizers(tokenizer, tokenizer)
    source = train_tokenizer(source_lines, config, listener=listener)
    return Tokenizers(source, train_tokenizer(target_lines, config, listener=listener))


def _normalised(lines: Iterable[str], normaliser: Normaliser) -> Iterator[str]:
    """The lines in normal form; without a single character in all of them, a DataError at the end."""
    count, is_empty = 0, True
    for count, line in enumerate(lines, start=1):  # noqa: B007
        text = normaliser(line)
        is_empty = is_empty and not text
        yield text
    if is_empty:
        found = f"{count} lines, all of them blank" if count else "no lines"
        raise DataError(f"no text to train a tokenizer on: {found}")


def _learn_vocabulary(texts: Iterable[str], config: TextConfig, listener: Listener) -> Kind:
    is_word = config.kind == "word"
    cut = word_cutter(config.segmentation) if is_word else _characters
    signs = PreparedSigns()
    counts = count_tokens(cut(text) for text in signs.watching(texts))
    if is_word:
        for sentence in signs.advice(config):
            notice(listener, sentence)
    stand_ins = counts.pop(config.normaliser(config.unknown_word), 0) if config.unknown_word is not None else 0
    leading = BYTE_PIECES if config.byte_fallback else ()
    vocabulary = Vocabulary.from_counts(counts, size=config.size, minimum_count=config.minimum_count, leading=leading)
    if not vocabulary.tokens:
        raise _nothing_kept("word" if is_word else "character", config)
    if vocabulary.unknown:
        lost = len(counts) - len(vocabulary.tokens) + len(leading)
        _report_lost(listener, "words" if is_word else "characters", lost, vocabulary.unknown / counts.total(), config)
    vocabulary = replace(vocabulary, unknown=vocabulary.unknown + stand_ins)
    return WordPieces(vocabulary, segmentation=config.segmentation) if is_word else Characters(vocabulary)


def _characters(text: str) -> list[str]:
    return list(mark_spaces(text, has_start=False))


def _learn_subwords(texts: Iterable[str], config: TextConfig, listener: Listener) -> Kind:
    chunks = count_chunks(texts)
    taken = len(RESERVED) + (len(BYTE_PIECES) if config.byte_fallback else 0)
    alphabet = choose_alphabet(count_characters(chunks), room=config.size - taken, minimum_count=config.minimum_count)
    if alphabet.kept == {SPACE} and not config.byte_fallback:
        raise _nothing_kept("character", config)
    if alphabet.lost:
        _report_lost(listener, "characters", alphabet.lost, alphabet.lost_rate, config)
    if config.kind == "unigram":
        return learn_unigram(chunks, alphabet, size=config.size, has_bytes=config.byte_fallback)
    return learn_byte_pairs(
        chunks,
        alphabet,
        size=config.size,
        has_bytes=config.byte_fallback,
        minimum_count=config.minimum_count,
    )


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
