"""The promises of a classifier, checked with lines of its own vocabulary, given lines, and hard ones.

One of images is checked with random images.
"""

import warnings
from collections.abc import Sequence
from functools import partial

import numpy as np

from seqloom.apps.classifier import TOKENS_PER_BATCH, Classification, Classifier, Text
from seqloom.core.errors import SeqloomWarning
from seqloom.runs.images import image_settings
from seqloom.runs.loading import Loaded, LoadedModel
from seqloom.selfcheck.files import check_saved
from seqloom.selfcheck.lines import BLANK, CheckLines
from seqloom.selfcheck.promises import TIE, Check, CheckResult, checks_of, counted, judged, shown, within
from seqloom.text.normalise import is_blank


class ClassifierChecks:
    """A classifier and the texts it is checked with; a model of pairs reads each line with the next one."""

    def __init__(self, loaded: LoadedModel, lines: CheckLines) -> None:
        self.loaded, self.classifier = loaded, Classifier(loaded)
        everything = lines.with_hard_ones(self.classifier.tokenizer, limit=self.classifier.longest)
        self.texts = self._inputs([line for line in everything if not is_blank(line)])

    def _inputs(self, lines: Sequence[str]) -> list[Text]:
        if not self.classifier.is_paired:
            return list(lines)
        return [(line, lines[(at + 1) % len(lines)]) for at, line in enumerate(lines)]

    def _classify(self, texts: Sequence[Text], tokens_per_batch: int = TOKENS_PER_BATCH) -> list[Classification]:
        return _quietly(self.classifier, texts, tokens_per_batch)

    def checks(self) -> list[Check]:
        """All checks, in the order in which they are reported."""
        return checks_of(
            {
                "saved": partial(check_saved, self.loaded, self._outputs),
                "lines": self._check_lines,
                "blank": self._check_blank,
                "batch": self._check_batch,
            },
            reason="a classifier writes no text",
        )

    def _outputs(self, loaded: Loaded) -> list[object]:
        return list(_quietly(Classifier(loaded), self.texts))

    def _check_lines(self) -> CheckResult:
        """As many classes as lines, in their order, each a label of the model, with probabilities that sum to one."""
        found, turned = self._classify(self.texts), self._classify(self.texts[::-1])[::-1]
        return _judged_order(len(self.texts), found, turned, noun="line")

    def _check_blank(self) -> CheckResult:
        """A blank line has no label, and changes nothing beside it."""
        blank: list[Text] = [(each, each) if self.classifier.is_paired else each for each in BLANK]
        alone = self._classify(self.texts[:1])[0]
        *found, beside = self._classify([*blank, *self.texts[:1]])
        labelled = sum(bool(each.label) for each in found)
        sentence = f"{counted(len(blank), 'blank line')}: {labelled:,} have a label"
        return judged(not labelled and not _differ(alone, beside), sentence)

    def _check_batch(self) -> CheckResult:
        """A text has the same class alone, among texts of its length, and in one batch with all others."""
        alone = [self._classify([text])[0] for text in self.texts]
        return _judged_batches(
            alone, [self._classify(self.texts, size) for size in (64, 1_000_000)], noun="line", names=self.texts
        )


class ImageClassifierChecks:
    """A classifier of images and what it is checked with: black, white, and `count` images of random values."""

    def __init__(self, loaded: LoadedModel, *, count: int, seed: int) -> None:
        self.loaded, self.classifier = loaded, Classifier(loaded)
        model, _ = image_settings(loaded.config)
        shape = (*model.image_size, model.channels)
        random = np.random.default_rng(seed).integers(0, 256, (count, *shape), np.uint8)
        self.images = [np.zeros(shape, np.uint8), np.full(shape, 255, np.uint8), *random]

    def checks(self) -> list[Check]:
        """All checks, in the order in which they are reported."""
        return checks_of(
            {
                "saved": partial(
                    check_saved, self.loaded, lambda loaded: list(Classifier(loaded).classify(self.images))
                ),
                "lines": self._check_order,
                "batch": self._check_batch,
            },
            reason="a classifier of images reads and writes no text",
        )

    def _check_order(self) -> CheckResult:
        """As many classes as images, in their order, each a label of the model, with probabilities that sum to one."""
        found, turned = self.classifier.classify(self.images), self.classifier.classify(self.images[::-1])[::-1]
        return _judged_order(len(self.images), found, turned, noun="image")

    def _check_batch(self) -> CheckResult:
        """An image has the same class alone, in small batches, and in one batch with all others."""
        alone = [self.classifier.classify([image])[0] for image in self.images]
        others = [self.classifier.classify(self.images, images_per_batch=size) for size in (3, 1_000_000)]
        return _judged_batches(alone, others, noun="image")


def _judged_order(
    given: int, found: Sequence[Classification], turned: Sequence[Classification], *, noun: str
) -> CheckResult:
    moved = sum(_differ(one, other) for one, other in zip(found, turned, strict=True))
    bad = [each for each in found if abs(sum(each.probabilities.values()) - 1) > 1e-9 or not each.label]
    sentence = (
        f"{counted(given, noun)} in, {counted(len(found), 'line')} out; in reverse order "
        f"{moved:,} differ; {len(bad):,} without a label, or with probabilities that do not sum to one"
    )
    return judged(len(found) == given and not moved and not bad, sentence)


def _judged_batches(
    alone: Sequence[Classification],
    others: Sequence[Sequence[Classification]],
    *,
    noun: str,
    names: Sequence[object] = (),
) -> CheckResult:
    """Compare classes that were found one by one with those of batches; `names` are shown for what differs."""
    pairs = [(at, each, batch[at]) for at, each in enumerate(alone) for batch in others]
    changed = sorted({at for at, each, other in pairs if other.label != each.label and not _is_tie(each)})
    gap = max(
        abs(share - other.probabilities[label])
        for _, each, other in pairs
        for label, share in each.probabilities.items()
    )
    worst = shown(str(names[changed[0]] if names else f"{noun} {changed[0] + 1}")) if changed else None
    sentence = (
        f"{counted(len(alone), noun)} alone, in small batches and in one: {len(changed):,} labels differ; "
        f"probabilities are equal {within(gap)}"
    )
    return judged(not changed and gap < TIE, sentence, figures={"largest_difference": gap}, worst=worst)


def _quietly(
    classifier: Classifier, texts: Sequence[Text], tokens_per_batch: int = TOKENS_PER_BATCH
) -> list[Classification]:
    """Classes of texts, one of which is longer than the model reads."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SeqloomWarning)
        return classifier.classify(texts, tokens_per_batch=tokens_per_batch)


def _is_tie(found: Classification) -> bool:
    best, second, *_ = sorted(found.probabilities.values(), reverse=True)
    return best - second < TIE


def _differ(one: Classification, other: Classification) -> bool:
    return one.label != other.label and not _is_tie(one)
