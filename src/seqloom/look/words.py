"""From pieces to words: which pieces make up which word, and attention between words.

    W[j, i] = mean over pieces t of target word j of Σ over pieces s of source word i of A[t, s]

Each piece belongs to one word and END to a word of its own, so a row of W adds up to 1 where the rows of A do.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from seqloom.core.symbols import END, RESERVED
from seqloom.text.tokenizer import Tokenizer
from seqloom.text.words import Span, decoded_spans, piece_spans, word_spans


@dataclass(frozen=True)
class PieceWord:
    """A word, and the numbers of its first and last piece. END and pieces without a place have no place either."""

    text: str
    begin: int | None
    end: int | None
    first: int
    last: int


@dataclass(frozen=True)
class PieceSide:
    """One side as the model reads it."""

    text: str
    ids: tuple[int, ...]
    pieces: tuple[str, ...]
    spans: tuple[Span | None, ...]
    """Where each piece is in the text, without the space before it; None for END."""
    words: tuple[PieceWord, ...]


def source_side(tokenizer: Tokenizer, text: str, ids: Sequence[int]) -> PieceSide:
    """A source text with its symbols, END among them or not."""
    normal = tokenizer.normaliser(text)
    own = [symbol for symbol in ids if symbol != END]
    spans = piece_spans(tokenizer, normal)
    return _side(tokenizer, normal, ids, spans if len(spans) == len(own) else [])


def target_side(tokenizer: Tokenizer, ids: Sequence[int]) -> PieceSide:
    """Symbols that a model has written, and their text."""
    own = [symbol for symbol in ids if symbol != END]
    return _side(tokenizer, tokenizer.decode(own), ids, decoded_spans(tokenizer, own))


def _side(tokenizer: Tokenizer, text: str, ids: Sequence[int], spans: Sequence[Span]) -> PieceSide:
    places: list[Span | None] = [_without_space(text, span) for span in spans]
    places += [None] * (len(ids) - len(places))
    pieces = tuple(tokenizer.piece(symbol) for symbol in ids)
    return PieceSide(text, tuple(ids), pieces, tuple(places), tuple(group_pieces(text, pieces, places)))


def _without_space(text: str, span: Span) -> Span:
    begin, end = span
    while begin < end and text[begin].isspace():
        begin += 1
    while begin < end and text[end - 1].isspace():
        end -= 1
    return begin, end


def group_pieces(text: str, pieces: Sequence[str], spans: Sequence[Span | None]) -> list[PieceWord]:
    """The words of a text by their pieces. Words that share a piece are one.

    A piece without a letter of its own, such as a space, belongs to the word after it, or to the last one.
    """
    words = word_spans(text)
    groups: list[list[int]] = []  # first piece, last piece, first word, last word; without a word, -1
    waiting, at = None, 0
    for number, span in enumerate(spans):
        if span is None:
            if waiting is not None:
                groups.append([waiting, number - 1, -1, -1])
                waiting = None
            groups.append([number, number, -1, -1])
            continue
        begin, end = span
        while at < len(words) and words[at][1] <= begin:
            at += 1
        last = at
        while last < len(words) and words[last][0] < end:
            last += 1
        if last == at or begin == end:
            waiting = number if waiting is None else waiting
            continue
        if waiting is None and groups and groups[-1][3] >= at:
            groups[-1][1], groups[-1][3] = number, max(groups[-1][3], last - 1)
        elif groups and groups[-1][3] >= at:  # a space within a word
            groups[-1][1], groups[-1][3], waiting = number, max(groups[-1][3], last - 1), None
        else:
            groups.append([number if waiting is None else waiting, number, at, last - 1])
            waiting = None
    if waiting is not None:
        groups.append([waiting, len(spans) - 1, -1, -1])
    found = []
    for first, last, begin, end in groups:
        if begin >= 0:
            span = words[begin][0], words[end][1]
            found.append(PieceWord(text[slice(*span)], *span, first, last))
        else:
            found.append(PieceWord("".join(pieces[first : last + 1]) or RESERVED[END], None, None, first, last))
    return found


def attention_of_words(
    weights: Float64[np.ndarray, "pieces source_pieces"], target: Sequence[PieceWord], source: Sequence[PieceWord]
) -> Float64[np.ndarray, "words source_words"]:
    """The mean over the pieces of each target word of the sum over those of each source word."""
    summed = np.add.reduceat(weights, [word.first for word in source], axis=1)
    counts = np.array([word.last - word.first + 1 for word in target], np.float64)
    found: Float64[np.ndarray, "words source_words"] = (
        np.add.reduceat(summed, [word.first for word in target], axis=0) / counts[:, None]
    )
    return found
