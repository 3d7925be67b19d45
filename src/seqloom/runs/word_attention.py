"""The attention of words to words, and what replaces an unknown word: the source word that it attends to most.

    W = T A S      A[t, s]  attention of target symbol t to source symbol s
                   S[s, i]  the share of symbol s that lies in source word i
                   T[j, t]  the share of target word j that symbol t makes up

The end symbols of both sides belong to no word.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float64

from seqloom.core.errors import UsageError
from seqloom.core.symbols import UNKNOWN
from seqloom.runs.long_lines import Part
from seqloom.search.hypothesis import Hypothesis
from seqloom.search.settings import Unknown
from seqloom.text.tokenizer import Tokenizer, Tokenizers
from seqloom.text.words import Span, decoded_spans, piece_spans, word_spans


@dataclass(frozen=True, eq=False)
class WordAttention:
    """The attention of the words of a translation to source words, for one part of a line."""

    source: str
    """The part as the model read it."""
    target: str
    source_spans: tuple[Span, ...]
    target_spans: tuple[Span, ...]
    weights: Float64[np.ndarray, "target source"]

    def links(self) -> list[tuple[int, int]]:
        """Each target word with the source word that has most of its attention; without attention there is no link."""
        if not self.weights.size:
            return []
        best = self.weights.argmax(axis=1)
        return [(int(i), j) for j, i in enumerate(best) if self.weights[j, i] > 0]


def words_of(
    part: Part,
    hypothesis: Hypothesis,
    tokenizers: Tokenizers,
    *,
    unknown: Unknown,
    dictionary: Mapping[str, str] | None = None,
    align: bool = False,
) -> WordAttention | None:
    """The words of a translation after unknown ones were replaced; None if it has none and words are not aligned."""
    is_replaced = unknown == "copy" and UNKNOWN in hypothesis.symbols
    if not (align or is_replaced):
        return None
    found = attention_of(part, hypothesis, tokenizers)
    return (
        replace_unknown(hypothesis.symbols, found, tokenizers.target, dictionary=dictionary) if is_replaced else found
    )


def attention_of(part: Part, hypothesis: Hypothesis, tokenizers: Tokenizers) -> WordAttention:
    """The attention of words from that of the symbols of a hypothesis."""
    if hypothesis.attention is None:
        raise UsageError(
            "this search returns no attention, so words cannot be aligned; use a model with attention, or align both "
            "texts with: seqloom align"
        )
    return word_attention(part.text, hypothesis.symbols, hypothesis.attention.double().cpu().numpy(), tokenizers)


def word_attention(
    text: str, symbols: Sequence[int], attention: Float64[np.ndarray, "steps source"], tokenizers: Tokenizers
) -> WordAttention:
    """From pieces to words. Rows and columns after those of the symbols belong to END."""
    source, target = tokenizers.source.normaliser(text), tokenizers.target.decode(symbols)
    source_spans, target_spans = word_spans(source), word_spans(target)
    to_source = _overlaps(piece_spans(tokenizers.source, source), source_spans)  # [source pieces, source words]
    to_target = _overlaps(decoded_spans(tokenizers.target, symbols), target_spans)  # [target pieces, target words]
    weights = _shares(to_target.T) @ attention[: len(symbols), : len(to_source)] @ _shares(to_source)
    return WordAttention(source, target, tuple(source_spans), tuple(target_spans), weights)


def _overlaps(ones: Sequence[Span], others: Sequence[Span]) -> Float64[np.ndarray, "ones others"]:
    """How many characters spans have in common."""
    one, other = (np.array(spans, np.float64).reshape(-1, 2) for spans in (ones, others))
    common = np.minimum(one[:, None, 1], other[None, :, 1]) - np.maximum(one[:, None, 0], other[None, :, 0])
    overlaps: Float64[np.ndarray, "ones others"] = np.clip(common, 0, None)
    return overlaps


def _shares(amounts: Float64[np.ndarray, "rows columns"]) -> Float64[np.ndarray, "rows columns"]:
    """Rows that add up to 1, or to 0 where there is nothing."""
    sums = amounts.sum(axis=1, keepdims=True)
    return amounts / np.where(sums > 0, sums, 1.0)


# --- unknown words ----------------------------------------------------------------------------------------------------


def replace_unknown(
    symbols: Sequence[int], found: WordAttention, tokenizer: Tokenizer, *, dictionary: Mapping[str, str] | None = None
) -> WordAttention:
    """Replace each word that contains an unknown symbol by the translation of the source word with most attention.

    Without a translation in the `dictionary` it becomes that source word; a word without attention stays. Words are
    replaced as a whole: what a character model spells around an unknown character is not worth keeping.
    """
    unknown = [span for span, id in zip(decoded_spans(tokenizer, symbols), symbols, strict=True) if id == UNKNOWN]
    text, done = "", 0
    spans: list[Span] = []
    rows: list[np.ndarray] = []
    groups = {
        (first, last): [j for j, (begin, end) in enumerate(found.target_spans) if first <= begin and end <= last]
        for first, last in _words_with(unknown, found.target)
    }
    taken = {j for inside in groups.values() for j in inside}
    plain = {found.target_spans[j]: [j] for j in range(len(found.target_spans)) if j not in taken}
    for (begin, end), inside in sorted({**groups, **plain}.items()):
        weights = found.weights[inside].sum(axis=0)
        word = _translation(found, weights, dictionary or {}) if (begin, end) in groups else None
        text += found.target[done:begin]
        spans.append((len(text), len(text) + len(word or found.target[begin:end])))
        text += word or found.target[begin:end]
        rows.append(weights)
        done = end
    weights = np.stack(rows) if rows else found.weights
    return replace(found, target=text + found.target[done:], target_spans=tuple(spans), weights=weights)


def _words_with(unknown: Sequence[Span], text: str) -> list[Span]:
    """The words of a text that overlap with one of these spans."""
    # The sign of the unknown counts as punctuation, which would split the word around it.
    letters = list(text)
    for begin, end in unknown:
        for at in range(begin, end):
            letters[at] = "x" if text[at] != " " else " "
    return [
        (start, stop)
        for start, stop in word_spans("".join(letters))
        if any(max(start, begin) < min(stop, end) for begin, end in unknown)
    ]


def _translation(found: WordAttention, weights: np.ndarray, dictionary: Mapping[str, str]) -> str | None:
    """The replacement of a word with these weights over source words; None if all are 0."""
    best = int(weights.argmax()) if weights.size else 0
    if not weights.size or weights[best] <= 0:
        return None
    begin, end = found.source_spans[best]
    word = found.source[begin:end]
    return dictionary.get(word, dictionary.get(word.lower(), word))
