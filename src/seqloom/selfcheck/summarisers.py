"""The promises of a summariser, checked with documents of random words and with some that are hard to read."""

from functools import partial

import numpy as np

from seqloom.apps.summariser import Summariser
from seqloom.runs.loading import Loaded, LoadedFitted
from seqloom.selfcheck.files import check_saved
from seqloom.selfcheck.promises import Check, CheckResult, checks_of, judged

HARD = ((), ("One sentence.",), ("…", "!!!"), ("天气很好。", "他们去公园。"), ("Same words.",) * 4)
"""Documents that are built in: without sentences, with one, without words, without spaces, all alike."""

WORDS = ("we", "show", "that", "this", "paper", "new", "model", "the", "of", "results", "in", "is", "12", "here", "our")


class SummariserChecks:
    """A summariser and the documents it is checked with."""

    def __init__(self, loaded: LoadedFitted, *, count: int, seed: int) -> None:
        self.loaded, self.summariser = loaded, Summariser(loaded)
        generator = np.random.default_rng(seed)
        drawn = [
            tuple(
                " ".join(generator.choice(WORDS, generator.integers(1, 20))) for _ in range(generator.integers(1, 12))
            )
            for _ in range(count)
        ]
        self.documents = [*HARD, *drawn]

    def checks(self) -> list[Check]:
        """All checks, in the order in which they are reported."""
        return checks_of(
            {"saved": partial(check_saved, self.loaded, self._outputs), "lines": self._check_order},
            reason="a summariser chooses sentences and writes none",
        )

    def _outputs(self, loaded: Loaded) -> list[object]:
        return [(made.text, made.probabilities) for made in Summariser(loaded).summarise(self.documents)]

    def _check_order(self) -> CheckResult:
        """As many summaries as documents, in their order, of sentences of theirs; alone as among others."""
        found = self.summariser.summarise(self.documents)
        alone = [self.summariser.summarise([each])[0] for each in self.documents]
        foreign = sum(
            made.text != " ".join(each[at] for at in made.places) or list(made.places) != sorted(set(made.places))
            for made, each in zip(found, self.documents, strict=True)
        )
        moved = sum(one != other for one, other in zip(found, alone, strict=True))
        sentence = (
            f"{len(self.documents):,} documents in, {len(found):,} summaries out; {moved:,} differ from those of "
            f"documents alone; {foreign:,} are not sentences of their documents in order"
        )
        return judged(len(found) == len(self.documents) and not moved and not foreign, sentence)
