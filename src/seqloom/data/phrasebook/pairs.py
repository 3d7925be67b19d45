"""Sampled sentence pairs with their gold alignment."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from seqloom.core.errors import UsageError
from seqloom.core.seeds import seed_for
from seqloom.data.phrasebook import chinese, english, french, german, tree
from seqloom.data.phrasebook.notes import NOTES
from seqloom.data.phrasebook.sampling import SentenceSampler
from seqloom.data.phrasebook.splits import SPLITS, Split, split_of
from seqloom.data.phrasebook.tokens import Rendering, align

RENDERERS: dict[str, Callable[[tree.Sentence], Rendering]] = {
    "en": english.render,
    "fr": french.render,
    "de": german.render,
    "zh": chinese.render,
}
LANGUAGES: tuple[str, ...] = tuple(RENDERERS)


@dataclass(frozen=True)
class PhrasePair:
    """A sentence and its translation; `alignment` pairs positions of source and target tokens, counted from 0."""

    source: str
    target: str
    source_tokens: tuple[str, ...]
    target_tokens: tuple[str, ...]
    alignment: tuple[tuple[int, int], ...]


def renderer(language: str) -> Callable[[tree.Sentence], Rendering]:
    if language not in RENDERERS:
        raise UsageError(f"the phrasebook has no language {language!r}; it knows {', '.join(LANGUAGES)}")
    return RENDERERS[language]


def sample_trees(*, seed: int, split: Split) -> Iterator[tree.Sentence]:
    """An endless stream of sentences of one split, the same for every language."""
    if split not in SPLITS:
        raise UsageError(f"the phrasebook has no split {split!r}; it has {', '.join(SPLITS)}")
    sampler = SentenceSampler(seed_for(seed, "phrasebook"))
    while True:
        sentence = sampler.sentence()
        if split_of(sentence) == split:
            yield sentence


def make_pair(source: Rendering, target: Rendering) -> PhrasePair:
    alignment = align(source.tags, target.tags)
    return PhrasePair(source.text, target.text, source.tokens, target.tokens, alignment)


def distinct(language: str, *, count: int, seed: int, split: Split) -> Iterator[tuple[tree.Sentence, Rendering]]:
    """So many trees whose sentences in this language differ from one another."""
    if count < 0:
        raise UsageError(f"cannot sample {count} sentences; ask for 0 or more")
    render = renderer(language)
    seen: set[str] = set()
    for sentence in sample_trees(seed=seed, split=split):
        if len(seen) == count:
            return
        rendering = render(sentence)
        if rendering.text not in seen:
            seen.add(rendering.text)
            yield sentence, rendering


def sample_pairs(source: str, target: str, *, count: int, seed: int, split: Split = "train") -> list[PhrasePair]:
    """`count` pairs of one split with distinct source sentences; a pure function of its arguments."""
    render = renderer(target)
    drawn = distinct(source, count=count, seed=seed, split=split)
    return [make_pair(rendering, render(sentence)) for sentence, rendering in drawn]


def sample_sentences(language: str, *, count: int, seed: int, split: Split = "train") -> list[str]:
    """`count` distinct sentences of one split."""
    return [rendering.text for _, rendering in distinct(language, count=count, seed=seed, split=split)]


def note_pairs(source: str, target: str) -> list[PhrasePair]:
    """The fixed sentences of the lecture notes; they belong to the split `train` as well."""
    first, second = renderer(source), renderer(target)
    notes = [tree.Note(index) for index in range(len(NOTES))]
    return [make_pair(first(note), second(note)) for note in notes]
