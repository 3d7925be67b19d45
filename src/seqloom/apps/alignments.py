"""Word alignments of translations by attention: which target word comes from which source word.

    W = T A S      A[t, s]  attention of target symbol t to source symbol s
                   S[s, i]  the share of symbol s that lies in source word i
                   T[j, t]  the share of target word j that symbol t makes up
    j links to argmax_i W[j, i]

The end symbols of both sides belong to no word.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float64

from seqloom.classical.alignment import Bitext, fit_aligner
from seqloom.core.errors import UsageError
from seqloom.core.stepping import Source
from seqloom.core.symbols import BEGIN, END, UNKNOWN
from seqloom.nn.probe import listen
from seqloom.runs.loading import LoadedModel
from seqloom.runs.long_lines import Part
from seqloom.search.hypothesis import Hypothesis
from seqloom.text.formats.pharaoh import Link
from seqloom.text.tokenizer import Tokenizer, Tokenizers
from seqloom.text.words import Span, decoded_spans, piece_spans, word_spans


@dataclass(frozen=True)
class Alignment:
    """The words of a line and of its translation, and the links between them: source word first, counted from 0."""

    source_words: tuple[str, ...]
    target_words: tuple[str, ...]
    target_spans: tuple[Span, ...]
    """Where the target words are in the translation."""
    links: tuple[Link, ...]

    @staticmethod
    def empty() -> "Alignment":
        """That of a blank line."""
        return Alignment((), (), (), ())


@dataclass(frozen=True, eq=False)
class Look:
    """The attention of the words of a translation to source words, for one part of a line."""

    source: str
    """The part as the model read it."""
    target: str
    source_spans: tuple[Span, ...]
    target_spans: tuple[Span, ...]
    weights: Float64[np.ndarray, "target source"]

    def links(self) -> list[Link]:
        """Each target word with the source word that has most of its attention; without attention there is no link."""
        if not self.weights.size:
            return []
        best = self.weights.argmax(axis=1)
        return [(int(i), j) for j, i in enumerate(best) if self.weights[j, i] > 0]


def look_of(part: Part, hypothesis: Hypothesis, tokenizers: Tokenizers) -> Look:
    """The attention of words from that of the symbols of a hypothesis."""
    if hypothesis.attention is None:
        raise UsageError(
            "this search returns no attention, so words cannot be aligned; use a model with attention, or align both "
            "texts with: seqloom align"
        )
    return _look(part.text, hypothesis.symbols, hypothesis.attention.double().cpu().numpy(), tokenizers)


def _look(
    text: str, symbols: Sequence[int], attention: Float64[np.ndarray, "steps source"], tokenizers: Tokenizers
) -> Look:
    """From pieces to words. Rows and columns after those of the symbols belong to END."""
    source, target = tokenizers.source.normaliser(text), tokenizers.target.decode(symbols)
    source_spans, target_spans = word_spans(source), word_spans(target)
    to_source = _overlaps(piece_spans(tokenizers.source, source), source_spans)
    to_target = _overlaps(decoded_spans(tokenizers.target, symbols), target_spans)
    weights = _shares(to_target.T) @ attention[: len(symbols), : len(to_source)] @ _shares(to_source)
    return Look(source, target, tuple(source_spans), tuple(target_spans), weights)


def align_parts(looks: Sequence[Look], starts: Sequence[int]) -> Alignment:
    """The alignment of a line from those of its parts, whose translations begin at `starts`."""
    source_words: list[str] = []
    target_words: list[str] = []
    spans: list[Span] = []
    links: list[Link] = []
    for look, start in zip(looks, starts, strict=True):
        links += [(len(source_words) + i, len(target_words) + j) for i, j in look.links()]
        source_words += [look.source[begin:end] for begin, end in look.source_spans]
        target_words += [look.target[begin:end] for begin, end in look.target_spans]
        spans += [(start + begin, start + end) for begin, end in look.target_spans]
    return Alignment(tuple(source_words), tuple(target_words), tuple(spans), tuple(sorted(links)))


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
    symbols: Sequence[int], look: Look, tokenizer: Tokenizer, *, dictionary: Mapping[str, str] | None = None
) -> Look:
    """Replace each word that contains an unknown symbol by the translation of the source word with most attention.

    Without a translation in the `dictionary` it becomes that source word; a word without attention stays. Words are
    replaced as a whole: what a character model spells around an unknown character is not worth keeping.
    """
    unknown = [span for span, id in zip(decoded_spans(tokenizer, symbols), symbols, strict=True) if id == UNKNOWN]
    text, done = "", 0
    spans: list[Span] = []
    rows: list[np.ndarray] = []
    groups = {
        (first, last): [j for j, (begin, end) in enumerate(look.target_spans) if first <= begin and end <= last]
        for first, last in _words_with(unknown, look.target)
    }
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


def _translation(look: Look, weights: np.ndarray, dictionary: Mapping[str, str]) -> str | None:
    """The replacement of a word with these weights over source words; None if all are 0."""
    best = int(weights.argmax()) if weights.size else 0
    if not weights.size or weights[best] <= 0:
        return None
    begin, end = look.source_spans[best]
    word = look.source[begin:end]
    return dictionary.get(word, dictionary.get(word.lower(), word))


# --- which head aligns best -------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class HeadChoice:
    """The head of a Transformer that aligns words best."""

    heads: str
    """As `search.heads` names it: layer and head, counted from 0."""
    agreements: Float64[np.ndarray, "layers heads"]
    """F1 of the links of each head: 2 · common / (its links + given links)."""


def best_head(
    loaded: LoadedModel,
    pairs: Sequence[tuple[str, str]],
    links: Sequence[Collection[Link]] | None = None,
    *,
    progress: Callable[[int], None] = lambda _pairs: None,
) -> HeadChoice:
    """The head whose links agree most with given ones, over sentence pairs that the model reads.

    Links are between words as `word_spans` finds them in normalised text. Without any, IBM model 1 is fitted to the
    pairs in both directions, and what both find is taken.
    """
    given = model1_links(pairs, loaded.tokenizers) if links is None else links
    if len(given) != len(pairs):
        raise UsageError(f"got {len(given)} sets of links for {len(pairs)} pairs; give one for each pair")
    if loaded.config.model.attention_heads is None:
        raise UsageError(f"a {type(loaded.model).__name__} has no heads to choose from; leave search.heads as it is")
    total = sum(map(len, given))
    if not total:
        raise UsageError(f"{len(pairs)} pairs have no links to compare with; give more pairs")
    by_pair = []
    for done, pair in enumerate(pairs, start=1):
        by_pair.append(_head_links(loaded, *pair))
        progress(done)
    found = np.array([[[len(head) for head in layer] for layer in layers] for layers in by_pair]).sum(0)
    common = np.array(
        [
            [[len(head & set(wanted)) for head in layer] for layer in layers]
            for layers, wanted in zip(by_pair, given, strict=True)
        ]
    ).sum(0)
    agreements = 2.0 * common / (found + total)
    layer, head = np.unravel_index(int(agreements.argmax()), agreements.shape)
    return HeadChoice(f"{layer}/{head}", agreements)


def model1_links(pairs: Sequence[tuple[str, str]], tokenizers: Tokenizers) -> list[set[Link]]:
    """The links that IBM model 1 finds in both directions, fitted to these pairs."""
    sides = []
    for side, tokenizer in ((0, tokenizers.source), (1, tokenizers.target)):
        known: dict[str, int] = {}
        texts = [tokenizer.normaliser(pair[side]) for pair in pairs]
        words = [[text[begin:end].lower() for begin, end in word_spans(text)] for text in texts]
        sides.append([[known.setdefault(word, len(known)) for word in line] for line in words])
    bitext = Bitext.from_sentences(*sides)
    return [set(links) for links in fit_aligner(bitext).align(bitext, symmetrise="intersection")]


@torch.inference_mode()
def _head_links(loaded: LoadedModel, source: str, target: str) -> list[list[set[Link]]]:
    """The links of each head of each layer while the model reads a given pair."""
    tokenizers, device = loaded.tokenizers, loaded.device
    source_ids, target_ids = [*tokenizers.source.encode(source), END], tokenizers.target.encode(target)
    given = Source(torch.tensor([source_ids], device=device), torch.tensor([len(source_ids)], device=device))
    previous = torch.tensor([[BEGIN, *target_ids]], device=device)
    with listen(loaded.model, "decoder.layers.*.cross.weights") as trace:
        loaded.model(given, previous, torch.tensor([previous.shape[1]], device=device))
    return [
        [
            set(_look(source, target_ids, head.double().cpu().numpy(), tokenizers).links())
            for head in weights[0][0]  # [heads, target, source]
        ]
        for weights in trace.values()
    ]
