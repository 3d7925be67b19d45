"""The promises of an aligner, checked with pairs of words drawn from its vocabularies and with hard lines."""

from functools import partial
from typing import cast

import numpy as np
from jaxtyping import Int64

from seqloom.apps.aligner import Aligner
from seqloom.core.seeds import seed_for
from seqloom.core.symbols import RESERVED
from seqloom.runs.loading import Loaded, LoadedFitted
from seqloom.selfcheck.files import check_saved
from seqloom.selfcheck.lines import BLANK, HARD
from seqloom.selfcheck.promises import Check, CheckResult, checks_of, counted, judged, shown
from seqloom.text.formats.pharaoh import Link
from seqloom.text.marks import join_words

THREADS = 3
"""Threads with which one thread is compared."""

MAX_WORDS = 25
"""Words of the longest sentence that is drawn."""


class AlignerChecks:
    """An aligner and the pairs it is checked with."""

    def __init__(self, loaded: LoadedFitted, *, count: int, seed: int) -> None:
        self.loaded, self.aligner = loaded, Aligner(loaded)
        generator = np.random.default_rng(seed_for(seed, "pairs to check with"))
        sides = zip((self.aligner.source_words, self.aligner.target_words), self.aligner.counts, strict=True)
        drawn = [[_draw(generator, words, counts) for _ in range(count)] for words, counts in sides]
        self.sources, self.targets = [[*lines, *HARD] for lines in drawn]

    def checks(self) -> list[Check]:
        """All checks, in the order in which they are reported."""
        return checks_of(
            {
                "saved": partial(check_saved, self.loaded, self._outputs),
                "lines": self._check_lines,
                "blank": self._check_blank,
                "batch": self._check_batch,
            },
            reason="an aligner writes no text",
        )

    def _outputs(self, loaded: Loaded) -> list[object]:
        return list(Aligner(cast("LoadedFitted", loaded)).align(self.sources, self.targets))

    def _check_lines(self) -> CheckResult:
        """As many lists of links as pairs, each inside its sentences, in the order of the pairs."""
        links = self.aligner.align(self.sources, self.targets)
        turned = self.aligner.align(self.sources[::-1], self.targets[::-1])[::-1]
        outside = sum(map(self._is_outside, self.sources, self.targets, links))
        moved = sum(one != other for one, other in zip(links, turned, strict=True))
        sentence = (
            f"{counted(len(self.sources), 'pair')} in, {counted(len(links), 'line')} out; in reverse order "
            f"{moved:,} differ; {outside:,} with links outside their sentences"
        )
        return judged(len(links) == len(self.sources) and not outside and not moved, sentence)

    def _is_outside(self, source: str, target: str, links: list[Link]) -> bool:
        lengths = [len(words) for words in self.aligner.words(source, target)]
        return any(not 0 <= i < lengths[0] or not 0 <= j < lengths[1] for i, j in links)

    def _check_blank(self) -> CheckResult:
        """A pair with a blank side has no links, and changes nothing beside it."""
        spaces = BLANK[:3]
        pairs = [(blank, "x y") for blank in spaces] + [("x y", blank) for blank in spaces]
        linked = [pair for pair in pairs if self.aligner.align([pair[0]], [pair[1]])[0]]
        worst = shown(" ||| ".join(linked[0])) if linked else None
        sentence = f"{counted(len(pairs), 'pair')} with a blank side: {len(linked):,} have links"
        return judged(not linked, sentence, worst=worst)

    def _check_batch(self) -> CheckResult:
        """A pair has the same links alone, among others, and with several threads."""
        together = self.aligner.align(self.sources, self.targets)
        shared = self.aligner.align(self.sources, self.targets, threads=THREADS)
        pairs = list(zip(self.sources, self.targets, strict=True))
        alone = [self.aligner.align([source], [target])[0] for source, target in pairs]
        changed = [at for at, links in enumerate(together) if not links == shared[at] == alone[at]]
        worst = shown(" ||| ".join(pairs[changed[0]])) if changed else None
        sentence = f"{counted(len(pairs), 'pair')} alone, together, and with {THREADS} threads: {len(changed):,} differ"
        return judged(not changed, sentence, worst=worst)


def _draw(generator: np.random.Generator, words: tuple[str, ...], counts: Int64[np.ndarray, " words"]) -> str:
    """A sentence of words that are drawn as often as they were seen."""
    if not counts.sum():
        return ""
    drawn = generator.choice(len(words), size=generator.integers(1, MAX_WORDS + 1), p=counts / counts.sum())
    return join_words([words[number] for number in drawn if number >= len(RESERVED)])
