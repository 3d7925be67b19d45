"""Words that a model cannot write: a dictionary's translation of the source word looked at most, or that word itself.

A word of the output that holds an unknown symbol is replaced as a whole: what a model of characters spells around one
that it does not know is not worth keeping.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from seqloom.core.symbols import UNKNOWN
from seqloom.recipes.alignments import Look
from seqloom.text.tokenizer import Tokenizer
from seqloom.text.words import Span, decoded_spans, word_spans


def replace_unknown(
    symbols: Sequence[int], look: Look, tokenizer: Tokenizer, *, dictionary: Mapping[str, str] | None = None
) -> Look:
    """The look with the text and the words that result; a word that looked at no source word stays as it is.

    `symbols` are those of the translation, `dictionary` has source words with their translations.
    """
    unknown = [span for span, id in zip(decoded_spans(tokenizer, symbols), symbols, strict=True) if id == UNKNOWN]
    text, done = "", 0
    spans: list[Span] = []
    rows: list[np.ndarray] = []
    groups = {span: _inside(look, span) for span in _words_with(unknown, look.target)}
    taken = {j for inside in groups.values() for j in inside}
    plain = {look.target_spans[j]: [j] for j in range(len(look.target_spans)) if j not in taken}
    for (begin, end), inside in sorted({**groups, **plain}.items()):
        weights = look.weights[inside].sum(axis=0)
        word = _translation(look, weights, dictionary or {}) if (begin, end) in groups else None
        text += look.target[done:begin]
        spans.append((len(text), len(text) + len(word or look.target[begin:end])))
        text += word or look.target[begin:end]
        rows.append(weights)
        done = end
    weights = np.stack(rows) if rows else look.weights
    return replace(look, target=text + look.target[done:], target_spans=tuple(spans), weights=weights)


def _words_with(unknown: Sequence[Span], text: str) -> list[Span]:
    """The words of a text that hold one of these spans."""
    # The sign of the unknown counts as a mark, which would part the word around it.
    letters = list(text)
    for begin, end in unknown:
        for at in range(begin, end):
            letters[at] = "x" if text[at] != " " else " "
    return [
        (start, stop)
        for start, stop in word_spans("".join(letters))
        if any(max(start, begin) < min(stop, end) for begin, end in unknown)
    ]


def _inside(look: Look, span: Span) -> list[int]:
    """The target words that lie in a span."""
    return [j for j, (begin, end) in enumerate(look.target_spans) if span[0] <= begin and end <= span[1]]


def _translation(look: Look, weights: np.ndarray, dictionary: Mapping[str, str]) -> str | None:
    """What stands for a word that looked so at the source words; None if it looked at none."""
    best = int(weights.argmax()) if weights.size else 0
    if not weights.size or weights[best] <= 0:
        return None
    begin, end = look.source_spans[best]
    word = look.source[begin:end]
    return dictionary.get(word, dictionary.get(word.lower(), word))
