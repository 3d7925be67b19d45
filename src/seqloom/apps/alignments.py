"""Word alignments of translations by attention: which target word comes from which source word.

Target word j links to argmax_i W[j, i], the attention between words (`seqloom.runs.translator`).
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from jaxtyping import Float64

from seqloom.classical.alignment import Bitext, Model1Config, fit_aligner
from seqloom.core.errors import UsageError
from seqloom.core.stepping import Source
from seqloom.core.symbols import BEGIN, END
from seqloom.models.protocols import AttendsByHeads
from seqloom.runs.loading import LoadedModel
from seqloom.runs.translator import WordAttention, word_attention
from seqloom.text.formats.pharaoh import Link
from seqloom.text.tokenizer import Tokenizers
from seqloom.text.words import Span, word_spans


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


def align_parts(found: Sequence[WordAttention], starts: Sequence[int]) -> Alignment:
    """The alignment of a line from those of its parts, whose translations begin at `starts`."""
    source_words: list[str] = []
    target_words: list[str] = []
    spans: list[Span] = []
    links: list[Link] = []
    for part, start in zip(found, starts, strict=True):
        links += [(len(source_words) + i, len(target_words) + j) for i, j in part.links()]
        source_words += [part.source[begin:end] for begin, end in part.source_spans]
        target_words += [part.target[begin:end] for begin, end in part.target_spans]
        spans += [(start + begin, start + end) for begin, end in part.target_spans]
    return Alignment(tuple(source_words), tuple(target_words), tuple(spans), tuple(sorted(links)))


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
    return [set(links) for links in fit_aligner(bitext, Model1Config()).align(bitext, symmetrise="intersection")]


@torch.inference_mode()
def _head_links(loaded: LoadedModel, source: str, target: str) -> list[list[set[Link]]]:
    """The links of each head of each layer while the model reads a given pair."""
    tokenizers, device = loaded.tokenizers, loaded.device
    source_ids, target_ids = [*tokenizers.source.encode(source), END], tokenizers.target.encode(target)
    given = Source(torch.tensor([source_ids], device=device), torch.tensor([len(source_ids)], device=device))
    previous = torch.tensor([[BEGIN, *target_ids]], device=device)
    model, lengths = cast("AttendsByHeads", loaded.model), torch.tensor([previous.shape[1]], device=device)
    return [
        [
            set(word_attention(source, target_ids, head.double().cpu().numpy(), tokenizers).links())
            for head in weights[0]  # [heads, target, source]
        ]
        for weights in model.cross_attention(given, previous, lengths)
    ]
