"""Write the corpus file of the package: `PYTHONPATH=src:tools python -m phrasebook`.

Each split starts with the sentences of seed 1, enough for the demo. Those of the seeds 9 to 2 follow, a stride each, so
that `seqloom.data.phrasebook` reads for each of these seeds what the grammar draws with it.
"""

from collections.abc import Iterator
from itertools import islice
from string import ascii_letters

import zstandard

from phrasebook import tree
from phrasebook.linearise import RENDERERS, sample_trees
from phrasebook.notes import NOTES
from seqloom.data.phrasebook import FILE, SPLITS, STRIDES, Split
from seqloom.data.phrasebook import NOTES as NOTES_MARK

SIZES: dict[Split, int] = {"train": 20_100, "dev": 1_000, "test": 1_000, "unseen": 1_000}
"""Different sentences of seed 1."""
OTHER_SEEDS = range(9, 1, -1)


def corpus() -> str:
    """The text of the file."""
    rows = [row(NOTES_MARK, tree.Note(index)) for index in range(len(NOTES))]
    for split in SPLITS:
        rows += islice(distinct(split, seed=1), SIZES[split])
        for seed in OTHER_SEEDS:
            rows += islice(distinct(split, seed=seed), STRIDES[split])
    return "".join(f"{each}\n" for each in rows)


def distinct(split: Split, *, seed: int) -> Iterator[str]:
    """Rows of sentences that differ in every language from those before."""
    seen: set[str] = set()
    for sentence in sample_trees(seed=seed, split=split):
        made = row(split, sentence)
        if made not in seen:
            seen.add(made)
            yield made


def row(mark: str, sentence: tree.Sentence) -> str:
    """One line of the file: tokens with the letters of the places in the tree that they express."""
    letters: dict[int, str] = {}
    cells = []
    for render in RENDERERS.values():
        text, tokens, tags = render(sentence)
        parts, end = [], 0
        for token, tag in zip(tokens, tags, strict=True):
            start = text.index(token, end)
            places = tag if isinstance(tag, tuple) else (tag,)
            known = [letters.setdefault(place, ascii_letters[len(letters)]) for place in places if place]
            parts.append(f"{'+' if 0 < start == end else ''}{token}/{''.join(known)}")
            end = start + len(token)
        cells.append(" ".join(parts))
    return "\t".join([mark, *cells])


if __name__ == "__main__":
    FILE.write_bytes(zstandard.ZstdCompressor(level=19).compress(corpus().encode()))
