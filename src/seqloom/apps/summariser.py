"""Summaries of documents, from a model that chooses sentences.

summariser = Summariser.load("run/model")
summariser.summarise(["First sentence. Second sentence."])[0].text
summariser.summarise([["First sentence.", "Second sentence."]], sentences=1)
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seqloom.classical.extraction import Extractor, best_places
from seqloom.core.archive import by_origin
from seqloom.core.arguments import as_lines, as_whole_number, shown
from seqloom.core.errors import UsageError
from seqloom.data.documents import Document, cut_document
from seqloom.metrics.scoring import CorpusScore
from seqloom.runs.loading import Loaded, in_words, load_any, require_loaded
from seqloom.runs.summarisation import score_summaries


@dataclass(frozen=True)
class Summary:
    """The summary of a document."""

    text: str
    """The chosen sentences, in their order; empty for a document without text."""
    places: tuple[int, ...]
    """Which of the sentences these are, counted from 0."""
    sentences: tuple[str, ...]
    """All sentences of the document."""
    probabilities: tuple[float, ...]
    """How probable it is that each sentence is the best one; they add up to 1."""


class Summariser:
    """Chooses the sentences that summarise a document.

    summariser = Summariser.load("run/model")
    summariser.summarise(["It rained. The game was cancelled."])[0].text
    """

    def __init__(self, loaded: Loaded) -> None:
        require_loaded(loaded, [], caller="Summariser")
        if not isinstance(loaded.model, Extractor):
            raise UsageError(by_origin(f"{loaded.folder} is not a summariser: {in_words(loaded.config)}"))
        self.loaded, self.config, self.card = loaded, loaded.config, loaded.card
        self._model = loaded.model

    def __repr__(self) -> str:
        return f"Summariser({self.loaded.summary()})"

    @property
    def count(self) -> int:
        """Sentences of a summary, unless others are requested."""
        return self._model.count

    @staticmethod
    def load(folder: Path | str) -> "Summariser":
        """Read the directory of a summariser, or the run in which it was trained."""
        return Summariser(load_any(folder))

    def summarise(
        self, documents: Iterable[str | Sequence[str] | Document], *, sentences: int | None = None
    ) -> list[Summary]:
        """The summary of each document: a text, which is cut into sentences by rules, or a list of sentences."""
        count = self.count if sentences is None else as_whole_number(sentences, "sentences", least=1)
        if isinstance(documents, str):
            raise UsageError(f"documents must be a list of texts, but one string was given: {shown(documents)}")
        return [self._summary(_sentences(document), count) for document in documents]

    def evaluate(
        self, documents: Sequence[Document], *, sentences: int | None = None, seed: int = 1, resamples: int = 1000
    ) -> list[CorpusScore]:
        """ROUGE-1, -2 and -L of the summaries with the nearest of the right ones, then those of the first sentences."""
        return score_summaries(self._model, documents, count=sentences, seed=seed, resamples=resamples)

    def _summary(self, sentences: tuple[str, ...], count: int) -> Summary:
        if not sentences:
            return Summary("", (), (), ())
        scores = self._model.scores(sentences)
        places = tuple(best_places(scores, count))
        shares = np.exp(scores - scores.max())
        probabilities = tuple((shares / shares.sum()).tolist())
        return Summary(" ".join(sentences[at] for at in places), places, sentences, probabilities)


def _sentences(document: str | Sequence[str] | Document) -> tuple[str, ...]:
    if isinstance(document, Document):
        return document.sentences
    if isinstance(document, str):
        return cut_document(document)
    return tuple(line for line in as_lines(document, "document") if line.strip())
