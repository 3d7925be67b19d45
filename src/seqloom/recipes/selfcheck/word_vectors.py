"""The promises of word vectors: files, saving, and neighbours that do not depend on what else is asked."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from seqloom.classical.vectors import WordVectors
from seqloom.core.seeds import seed_for
from seqloom.recipes.load import Loaded
from seqloom.recipes.selfcheck.files import check_saved
from seqloom.recipes.selfcheck.findings import TIE, Check, Finding, counted, judged, out_of_place, shown, within
from seqloom.recipes.selfcheck.promises import PROMISES

NEAREST = 5


class WordVectorChecks:
    """Word vectors, and words that are drawn from them."""

    def __init__(self, loaded: Loaded, vectors: WordVectors, *, count: int, seed: int) -> None:
        self.loaded, self.vectors = loaded, vectors
        generator = np.random.default_rng(seed_for(seed, "words to check with"))
        places = generator.choice(len(vectors), size=min(count, len(vectors)), replace=False)
        self.words = tuple(vectors.words[place] for place in sorted(places.tolist()))

    def checks(self) -> list[Check]:
        """All of them, in the order in which they are told."""
        reason = "word vectors read no lines and are not searched"
        found = {
            "saved": partial(check_saved, self.loaded, self._outputs),
            "batch": partial(check_nearest, self.vectors, self.words),
        }
        names = [name for name in PROMISES if name not in ("files", "features")]
        return [
            Check(name, PROMISES[name], found[name]) if name in found else out_of_place(name, PROMISES[name], reason)
            for name in names
        ]

    def _outputs(self, loaded: Loaded) -> list[object]:
        assert isinstance(loaded.model, WordVectors)
        return list(loaded.model.nearest(self.words, count=NEAREST))


def check_nearest(vectors: WordVectors, words: Sequence[str]) -> Finding:
    """The nearest words of a word are the same whatever is asked beside it, but for cosines as good as equal."""
    together = vectors.nearest(words, count=NEAREST)
    off, worst, changed, ties = 0.0, None, 0, 0
    for word, among_others in zip(words, together, strict=True):
        (alone,) = vectors.nearest([word], count=NEAREST)
        apart = max((abs(a.score - b.score) for a, b in zip(alone, among_others, strict=True)), default=0.0)
        is_other = [each.word for each in alone] != [each.word for each in among_others]
        ties += is_other and apart <= TIE
        changed += is_other and not apart <= TIE
        if not apart <= off:
            off, worst = apart, f"{shown(word)}: a cosine differs by {apart:.1e}"
    sentence = f"the {NEAREST} nearest of {counted(len(words), 'word')}, asked alone and together, {within(off)}"
    sentence += f"; {counted(ties, 'tie')} decided otherwise" if ties else ""
    figures = {"words": len(words), "changed": changed, "ties": ties, "largest_difference": off}
    return judged(off <= TIE, sentence, figures=figures, worst=worst)
