"""The class of a text, or of a pair of texts, from a model that was trained on labelled ones.

    classifier = Classifier.load("run/model")
    classifier.classify(["How far is it?"])[0].label
    classifier.classify([("A man sleeps.", "A man is awake.")])        # a model of pairs

Texts are read in order of length. What is beside a text in a batch changes nothing of its result.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float64, Int64

from seqloom.core.archive import by_origin
from seqloom.core.arguments import as_lines, as_whole_number, require_callable, shown
from seqloom.core.errors import DataError, ModelError, Problem, UsageError, warn
from seqloom.data.labelled import JoinedIds, frame_texts, join_texts
from seqloom.metrics.classification import confusion_counts, score_labels
from seqloom.metrics.scoring import Bootstrap, CorpusScore, check_counts
from seqloom.models.protocols import ClassificationModel
from seqloom.runs.loading import Loaded, in_words, load_any, require_loaded
from seqloom.tasks.classification import batches_by_length
from seqloom.tasks.settings import ClassificationConfig
from seqloom.text.normalise import is_blank

TOKENS_PER_BATCH = 1024
"""Tokens that are read together: enough for the products, few enough for the processor's cache."""

Text = str | tuple[str, str]
"""A text, or a pair for a model of pairs."""


def ignore_lines(_done: int, _all: int) -> None:
    """Report nothing."""


@dataclass(frozen=True)
class Classification:
    """The class of a text."""

    label: str
    """The most probable label; empty for a text that is blank."""
    probability: float
    """Its probability."""
    probabilities: Mapping[str, float]
    """The probability of each label, in the order of the labels; none for a text that is blank."""


@dataclass(frozen=True)
class ClassifierScores:
    """How well a classifier predicts known labels."""

    accuracy: CorpusScore
    macro_f1: CorpusScore
    labels: tuple[str, ...]
    confusion: Int64[np.ndarray, "right predicted"]
    """How often each label (row) was predicted as each label (column), in the order of `labels`."""


class Classifier:
    """Gives each text one of the labels it was trained with.

    classifier = Classifier.load("run/model")
    classifier.classify(["a delightful film"])[0].label
    """

    def __init__(self, loaded: Loaded) -> None:
        require_loaded(loaded, [], caller="Classifier")
        task = loaded.config.task
        if not isinstance(task, ClassificationConfig):
            raise UsageError(by_origin(f"{loaded.folder} is not a classifier: {in_words(loaded.config)}"))
        self.loaded = loaded
        self.config, self.card, self.tokenizer = loaded.config, loaded.card, loaded.tokenizers.target
        self.labels, self.is_paired = task.labels, task.is_paired
        reading = loaded.config.model.classifier_input
        self.longest, self._is_lowercase = reading.longest or loaded.config.data.longest, reading.lowercase
        self._model = cast("ClassificationModel", loaded.model.eval())

    def __repr__(self) -> str:
        return f"Classifier({self.loaded.summary()})"

    @staticmethod
    def load(folder: Path | str, *, device: str | None = None) -> "Classifier":
        """Read the directory of a classifier, or the run in which it was trained."""
        return Classifier(load_any(folder, device=device))

    def classify(
        self,
        lines: Iterable[Text],
        *,
        tokens_per_batch: int = TOKENS_PER_BATCH,
        progress: Callable[[int, int], None] = ignore_lines,
    ) -> list[Classification]:
        """The class of each text, or of each pair; one that is blank has none.

        A text that is longer than `longest` symbols is read up to there, and a SeqloomWarning counts such texts.
        `progress` gets the lines done, and all of them.
        """
        require_callable(progress, "progress")
        texts = self._texts(lines)
        visible = [at for at, each in enumerate(texts) if not any(map(is_blank, each))]
        probabilities = self._probabilities([texts[at] for at in visible], tokens_per_batch, progress)
        found = [Classification("", 0.0, {})] * len(texts)
        for at, row in zip(visible, probabilities.tolist(), strict=True):
            best = max(range(len(row)), key=row.__getitem__)
            found[at] = Classification(self.labels[best], row[best], dict(zip(self.labels, row, strict=True)))
        return found

    def evaluate(
        self,
        lines: Iterable[Text],
        labels: Iterable[str],
        *,
        bootstrap: Bootstrap | None = None,
        progress: Callable[[int, int], None] = ignore_lines,
    ) -> ClassifierScores:
        """How well the labels of these texts are predicted; by default with 1,000 resamples from its seed."""
        texts, right = list(lines), as_lines(labels, "labels")
        check_counts([""] * len(texts), right)
        if unknown := [at for at, label in enumerate(right) if label not in self.labels]:
            known = ", ".join(map(repr, self.labels[:8])) + (", …" if len(self.labels) > 8 else "")
            message = f"the label {right[unknown[0]]!r} is not among those of the model ({known})"
            raise DataError(problems=[Problem(message, "labels", unknown[0] + 1)])
        found = [each.label for each in self.classify(texts, progress=progress)]
        if "" in found:
            raise DataError(problems=[Problem("the text is blank, and has no class", "lines", found.index("") + 1)])
        config = self.config
        drawn = bootstrap or Bootstrap(seed=config.seed, resamples=config.evaluation.resamples)
        accuracy, macro_f1 = score_labels(found, right, bootstrap=drawn)
        counts = confusion_counts(found, right, labels=self.labels)
        return ClassifierScores(accuracy, macro_f1, self.labels, counts)

    def _texts(self, lines: Any) -> list[tuple[str, ...]]:
        """The one or two texts of each line."""
        if not self.is_paired:
            return [(line,) for line in as_lines(lines, "lines")]
        if isinstance(lines, str | bytes | Mapping) or not isinstance(lines, Iterable):
            raise UsageError(f"lines takes a list of pairs of texts; got {shown(lines)}")
        pairs = list(lines)
        for number, pair in enumerate(pairs, start=1):
            is_pair = isinstance(pair, tuple | list) and len(pair) == 2 and all(isinstance(each, str) for each in pair)
            if not is_pair:
                raise UsageError(
                    f"lines takes pairs of texts, since the model was trained on pairs; line {number} is {shown(pair)}"
                )
        return [tuple(pair) for pair in pairs]

    def _probabilities(
        self, texts: Sequence[tuple[str, ...]], tokens_per_batch: int, progress: Callable[[int, int], None]
    ) -> Float64[np.ndarray, "texts classes"]:
        at_once = as_whole_number(tokens_per_batch, "tokens_per_batch", least=1)
        joined = self._joined(texts)
        probabilities, done = np.empty((len(texts), len(self.labels))), 0
        for places in batches_by_length([1 + len(each.ids) for each in joined], tokens=at_once):
            framed = frame_texts([(joined[at].ids, joined[at].first) for at in places.tolist()])
            with torch.inference_mode():
                scores = self._model.class_scores(*(torch.from_numpy(each).to(self.loaded.device) for each in framed))
                probabilities[places] = scores.double().softmax(1).cpu().numpy()
            done += len(places)
            progress(done, len(texts))
        if not np.isfinite(probabilities).all():
            folder = by_origin(str(self.loaded.folder))
            raise ModelError(f"{folder} gives probabilities that are not numbers; its weights are damaged")
        return probabilities

    def _joined(self, texts: Sequence[tuple[str, ...]]) -> list[JoinedIds]:
        """The ids of texts as they are read."""
        flat = [text.lower() if self._is_lowercase else text for each in texts for text in each]
        ids = iter(self.tokenizer.encode_many(flat) if flat else [])
        joined = [join_texts([next(ids) for _ in each], longest=self.longest) for each in texts]
        if any(each.cut for each in joined):
            cut, tokens = sum(each.cut > 0 for each in joined), sum(each.cut for each in joined)
            warn(
                f"{cut:,} of {len(joined):,} texts are longer than the {self.longest} symbols that this model reads; "
                f"{tokens:,} tokens at their ends were not read"
            )
        return joined
