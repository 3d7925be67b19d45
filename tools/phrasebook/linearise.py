"""Random sentences of a split, and how each language says them."""

from collections.abc import Callable, Iterator

from phrasebook import chinese, english, french, german, tree
from phrasebook.sampling import SentenceSampler
from phrasebook.splits import split_of
from phrasebook.tokens import Rendering
from seqloom.core.seeds import seed_for
from seqloom.data.phrasebook import Split

RENDERERS: dict[str, Callable[[tree.Sentence], Rendering]] = {
    "en": english.render,
    "fr": french.render,
    "de": german.render,
    "zh": chinese.render,
}


def sample_trees(*, seed: int, split: Split) -> Iterator[tree.Sentence]:
    """An endless stream of sentences of one split, the same for every language."""
    sampler = SentenceSampler(seed_for(seed, "phrasebook"))
    while True:
        sentence = sampler.sentence()
        if split_of(sentence) == split:
            yield sentence
