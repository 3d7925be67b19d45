"""What searches are compared on: a stepper with a batch of sentences, or a language model after a prompt."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from seqloom.apps.backends import Steppers
from seqloom.apps.translator import Translator
from seqloom.core.seeds import seed_for
from seqloom.core.stepping import Source, Stepper
from seqloom.core.symbols import PAD
from seqloom.runs.loading import LoadedModel
from seqloom.runs.translator import Part, make_parts
from seqloom.search.beam import beam_search
from seqloom.search.hypothesis import Hypothesis
from seqloom.search.settings import SearchConfig

TOGETHER = 16
"""Sentences of a batch in which lengths are mixed."""

PADDING = 7
"""Columns of padding beyond the longest sentence."""


KEPT = (
    *("length_normalisation", "alpha", "reward", "coverage", "coverage_floor", "end_normalisation", "end_kind"),
    *("length_factor", "length_constant", "length_overrun", "heads", "stop"),
)
"""Settings of a search that are the model's own: its score, its lengths, when it stops."""


@dataclass(frozen=True)
class Case:
    """Sentences that are searched together."""

    stepper: Callable[[SearchConfig], Stepper]
    source: Source
    names: tuple[str, ...]
    """How each sentence is shown."""
    write: Callable[[Sequence[int]], str]
    """The text of an output."""

    def search(self, settings: SearchConfig) -> list[list[Hypothesis]]:
        """By beam, as for translations."""
        return beam_search(self.stepper(settings), self.source, settings)


def bare_settings(search: SearchConfig, *, beam: int | None = None, nbest: int = 1) -> SearchConfig:
    """The model's own settings of a beam search, without what makes it another search: it keeps beam and scores."""
    kept = {name: getattr(search, name) for name in KEPT}
    return SearchConfig().model_copy(update={"beam": max(nbest, beam or search.beam), "nbest": nbest, **kept})


class CaseMaker:
    """The sentences of a translator, and the translator as a search sees it."""

    def __init__(self, translator: Translator, lines: Sequence[str], *, seed: int) -> None:
        self.translator = translator
        self.lines = tuple(lines)
        self.seed = seed
        self.settings = bare_settings(translator.config.search)
        self.parts: Sequence[Part] = make_parts(lines, translator.tokenizers.source, limit=translator.longest)
        assert isinstance(translator.loaded, LoadedModel)
        self._steppers = Steppers([translator.loaded])

    def stepper(self, settings: SearchConfig) -> Stepper:
        """The model, with attention only where the score needs it."""
        return self._steppers.stepper(settings, attention=settings.coverage > 0, required=[])

    def case(self, places: Sequence[int], *, padding: int = 0) -> Case:
        """Some sentences in a batch, with so many columns of padding that hold any symbols."""
        parts = [self.parts[place] for place in places]
        longest = max(len(part.ids) for part in parts) + padding
        ids = np.full((len(parts), longest), PAD, dtype=np.int64)
        if padding:
            generator = np.random.default_rng(seed_for(self.seed, "padding", *places[:1]))
            ids = generator.integers(0, self.translator.tokenizers.source.size, size=ids.shape)
        for row, part in enumerate(parts):
            ids[row, : len(part.ids)] = part.ids
        lengths = torch.tensor([len(part.ids) for part in parts])
        device = self.translator.loaded.device
        return Case(
            self.stepper,
            Source(torch.from_numpy(ids).to(device), lengths.to(device)),
            tuple(part.text for part in parts),
            self.translator.tokenizers.target.decode,
        )

    @property
    def alone(self) -> list[Case]:
        """Each sentence by itself."""
        return [self.case([place]) for place in range(len(self.parts))]

    @property
    def mixed(self) -> list[Case]:
        """Sentences in the order of the text, long next to short, with more padding than they need."""
        return [self.case(places, padding=PADDING) for places in _cut(range(len(self.parts)))]

    @property
    def sorted(self) -> list[Case]:
        """Sentences of similar length together: the cheapest search."""
        return [self.case(places) for places in self.batches()]

    def batches(self) -> list[Sequence[int]]:
        """Places of sentences of similar length."""
        return _cut(sorted(range(len(self.parts)), key=lambda place: -len(self.parts[place].ids)))


def _cut(order: Sequence[int]) -> list[Sequence[int]]:
    return [order[begin : begin + TOGETHER] for begin in range(0, len(order), TOGETHER)]
