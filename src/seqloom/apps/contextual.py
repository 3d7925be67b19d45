"""Contextual vectors: what an ELMo knows of a word in its sentence, and how similar two uses of a word are.

    model = teach(two_senses(2000, seed=1), seed=1)
    compare(model, ["I can't bear this", "This is a bear"], "bear").similarities

A table of word vectors has one row for both. The states of a language model differ, because different words occur
beside a verb and beside a noun.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from torch import Tensor, nn

from seqloom.core.errors import DataError, UsageError
from seqloom.core.events import Listener, ignore, progress
from seqloom.core.seeds import seed_for
from seqloom.drawing.figures import INK, as_written, fonts
from seqloom.models.elmo import ElmoConfig, GivesContextualVectors
from seqloom.nn.dropout import evaluating
from seqloom.nn.embeddings import Symbols
from seqloom.runs.loading import load
from seqloom.tasks.bidirectional_language_modelling import both_labels
from seqloom.text.tokenizer import TextConfig, Tokenizer
from seqloom.text.tokenizer_training import train_tokenizer
from seqloom.text.words import piece_spans, word_spans


def draw_similarities(
    similarities: Float[np.ndarray, "layers uses uses"], *, labels: Sequence[str], names: Sequence[str]
) -> Figure:
    """A heat map of cosines per layer, with a row and a column per use."""
    layers, uses, _ = similarities.shape
    side = max(1.6, 0.62 * uses)
    figure = Figure(figsize=(2.9 + layers * (side + 0.3), side + 1.0), layout="constrained")
    for axes, values, name in zip(figure.subplots(1, layers, squeeze=False)[0], similarities, names, strict=True):
        image = axes.imshow(values, cmap="Blues", vmin=0, vmax=1)
        axes.set_title(name, fontsize=10, color=INK)
        axes.set_xticks([])
        is_first = name == names[0]
        written = list(map(as_written, labels)) if is_first else [""] * uses
        axes.set_yticks(range(uses), written, family=fonts(), fontsize=9, parse_math=False)
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
        for row, column in np.ndindex(uses, uses):
            value = float(values[row, column])
            colour = "white" if value > 0.6 else INK
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=8, color=colour)
    bar = figure.colorbar(image, ax=figure.axes, fraction=0.03, pad=0.02, ticks=[0, 0.5, 1])
    bar.set_label("cosine", fontsize=9)
    bar.outline.set_visible(False)
    return figure


SENTENCES_PER_BATCH = 64
"""Sentences read at a time."""

SMALL_CONFIG = ElmoConfig(width=32, layers=2, dropout_rate=0.1)
"""Enough for a few hundred words."""


@dataclass(frozen=True)
class ContextualModel:
    """A model of words in their sentences, with its tokeniser."""

    model: GivesContextualVectors
    tokenizer: Tokenizer

    def features(self, sentences: Sequence[str]) -> "list[SentenceFeatures]":
        """What each layer knows of each piece of these sentences."""
        found = []
        for begin in range(0, len(sentences), SENTENCES_PER_BATCH):
            some = [self.tokenizer.encode(sentence) for sentence in sentences[begin : begin + SENTENCES_PER_BATCH]]
            for sentence, ids in zip(sentences[begin : begin + SENTENCES_PER_BATCH], some, strict=True):
                if not ids:
                    raise DataError(f"{sentence!r} has no words to look at")
            device = self.model.output.weight.device
            lengths = torch.tensor([len(ids) for ids in some], device=device)
            with evaluating(cast("nn.Module", self.model)):
                known = self.model.features(_padded(some).to(device), lengths)
            static, layers = known.words.cpu().numpy(), known.layers.cpu().numpy()
            for row, ids in enumerate(some):
                pieces = tuple(map(self.tokenizer.piece, ids))
                found.append(SentenceFeatures(pieces, static[row, : len(ids)], layers[:, row, : len(ids)]))
        return found


@dataclass(frozen=True, eq=False)
class SentenceFeatures:
    """The vectors of the pieces of a sentence."""

    pieces: tuple[str, ...]
    static: Float[np.ndarray, "positions embedding"]
    """From the table, or from the letters: the same in every sentence."""
    layers: Float[np.ndarray, "layers positions width"]
    """[→h; ←h] of each layer, lowest first."""


@dataclass(frozen=True)
class WordUse:
    """A word in a sentence."""

    sentence: str
    word: str
    place: int
    """Its position among the words of the sentence, from 0."""


@dataclass(frozen=True, eq=False)
class WordComparison:
    """How similar the vectors of some uses are, layer by layer; layer 0 is the static vector."""

    uses: tuple[WordUse, ...]
    similarities: Float[np.ndarray, "layers uses uses"]
    """Cosines: 1 for the same direction."""

    def draw(self) -> Figure:
        """A map for each layer."""
        labels = []
        for use in self.uses:
            words = [use.sentence[begin:end] for begin, end in word_spans(use.sentence)]
            labels.append(" ".join(word.upper() if at == use.place else word for at, word in enumerate(words)))
        names = ["word by itself", *(f"layer {number}" for number in range(1, len(self.similarities)))]
        return draw_similarities(self.similarities, labels=labels, names=names)


def compare(model: ContextualModel, sentences: Sequence[str], word: str | Sequence[str]) -> WordComparison:
    """Compare all uses of a word in these sentences, or of one word of each.

        cos(a, b) = a·b / (‖a‖ ‖b‖)

    A word of several pieces has their mean.
    """
    if not sentences:
        raise UsageError("no sentences to compare; give two or more")
    wanted = [word] * len(sentences) if isinstance(word, str) else list(word)
    if len(wanted) != len(sentences):
        raise UsageError(f"got {len(wanted)} words for {len(sentences)} sentences; give one for each, or one for all")
    uses: list[WordUse] = []
    vectors: list[list[np.ndarray]] = []
    for sentence, each, found in zip(sentences, wanted, model.features(sentences), strict=True):
        text = model.tokenizer.normaliser(sentence)
        spans, pieces = word_spans(text), piece_spans(model.tokenizer, text)
        sought = model.tokenizer.normaliser(each)
        places = [place for place, (begin, end) in enumerate(spans) if text[begin:end] == sought]
        if not places:
            raise UsageError(f"{sentence!r} does not contain the word {each!r}; give sentences that do")
        for place in places:
            begin, end = spans[place]
            inside = [number for number, (first, last) in enumerate(pieces) if first < end and last > begin]
            uses.append(WordUse(sentence, each, place))
            vectors.append([found.static[inside].mean(0), *(layer[inside].mean(0) for layer in found.layers)])
    similarities = []
    for layer in zip(*vectors, strict=True):
        stacked = np.stack(layer)  # [uses, width]
        norms = np.linalg.norm(stacked, axis=1, keepdims=True)
        directions = stacked / np.maximum(norms, np.finfo(stacked.dtype).tiny)
        similarities.append(directions @ directions.T)
    return WordComparison(tuple(uses), np.stack(similarities))


# --- training a small model ------------------------------------------------------------------------------------------


def teach(
    lines: Sequence[str],
    config: ElmoConfig = SMALL_CONFIG,
    *,
    seed: int,
    steps: int = 300,
    rows: int = 64,
    learning_rate: float = 5e-3,
    listener: Listener = ignore,
) -> ContextualModel:
    """Train a small ELMo on some sentences, in memory; a few hundred words take seconds.

    For a text worth keeping, `seqloom train model.kind=elmo` has checkpoints, validation and a run directory.
    """
    tokenizer = train_tokenizer(lines, TextConfig(kind="word", lowercase=True), listener=listener)
    sentences = [ids for ids in tokenizer.encode_many(lines) if ids]
    if not sentences:
        raise DataError("no line has words to learn from")
    pieces = tuple(map(tokenizer.piece, range(tokenizer.size)))
    model = config.build(Symbols(len(pieces), len(pieces), is_shared=True, pieces=pieces), seed=seed)
    ids, lengths = _padded(sentences), torch.tensor([len(sentence) for sentence in sentences])
    generator = torch.Generator().manual_seed(seed_for(seed, "sentences"))
    optimiser = torch.optim.AdamW(model.parameters(), lr=learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for step in range(1, steps + 1):
        chosen = torch.randint(len(sentences), (rows,), generator=generator)
        some = lengths[chosen]
        read = ids[chosen, : int(some.max())]
        found, labels = model(read, some), both_labels(read, some)
        following = model.output.cross_entropy(found.following, labels[0])
        loss = (following + model.output.cross_entropy(found.preceding, labels[1])) / (2 * len(labels[0]))
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        if step % 50 == 0 or step == steps:
            progress(listener, "teaching both directions", step, steps)
    return ContextualModel(model.eval(), tokenizer)


def _padded(sentences: Sequence[Sequence[int]]) -> Int[Tensor, "batch time"]:
    longest = max(map(len, sentences))
    return torch.tensor([[*sentence, *[0] * (longest - len(sentence))] for sentence in sentences])


def open_contextual(folder: Path) -> ContextualModel:
    """An ELMo from its model directory, or from a run that has finished."""
    loaded = load(folder)
    if not isinstance(loaded.model, GivesContextualVectors):
        raise UsageError(
            f"{folder} is of kind {loaded.config.model.kind}; contextual vectors come from model.kind=elmo"
        )
    return ContextualModel(loaded.model, loaded.tokenizers.target)


# --- sentences in which a word has two senses ------------------------------------------------------------------------

_PEOPLE = ("I", "you", "we", "they", "my friends")
_MODALS = ("can't", "can", "could not", "will not", "must")
_VERBS = ("bear", "stand", "endure", "hear", "forget")
_TROUBLES = ("this", "that", "it", "the noise", "the heat", "this pain", "the cold any longer")
_ANIMALS = ("bear", "dog", "wolf", "fox", "cat")
_KINDS = ("big", "old", "brown", "hungry", "small")
_DEEDS = ("sleeps in the forest", "eats a fish", "runs away", "drinks from the river", "looks at the moon")


def two_senses(count: int, *, seed: int) -> list[str]:
    """Sentences about animals and about what people endure: in half of those with a bear it is an animal.

    Among them are such as "I can't bear this" and "This is a bear".
    """
    generator = np.random.default_rng(seed_for(seed, "two senses"))

    def one_of(words: Sequence[str]) -> str:
        return words[int(generator.integers(len(words)))]

    def animal() -> str:
        kind = f"{one_of(_KINDS)} " if generator.random() < 0.5 else ""
        return kind + one_of(_ANIMALS)

    def sentence() -> str:
        match int(generator.integers(4)):
            case 0:
                return f"{one_of(('this', 'that', 'it'))} {one_of(('is', 'was'))} {one_of(('a', 'the'))} {animal()}"
            case 1:
                return f"{one_of(('a', 'the'))} {animal()} {one_of(_DEEDS)}"
            case _:
                return f"{one_of(_PEOPLE)} {one_of(_MODALS)} {one_of(_VERBS)} {one_of(_TROUBLES)}"

    made = (sentence() for _ in range(count))
    return [each[0].upper() + each[1:] for each in made]
