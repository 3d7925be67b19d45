"""The promises of a captioner, checked with random images."""

from functools import partial

import numpy as np

from seqloom.apps.captioner import Caption, Captioner
from seqloom.runs.captioning import caption_settings
from seqloom.runs.loading import Loaded, LoadedModel
from seqloom.search.greedy import greedy_search
from seqloom.selfcheck.files import check_saved
from seqloom.selfcheck.promises import TIE, Check, CheckResult, checks_of, counted, judged, within


class CaptionerChecks:
    """A captioner and `count` images: smooth colours, with rectangles on them."""

    def __init__(self, loaded: LoadedModel, *, count: int, seed: int) -> None:
        self.loaded, self.captioner = loaded, Captioner(loaded)
        random, settings = np.random.default_rng(seed), caption_settings(loaded.config)
        height, width = settings.image_size
        self.images = [np.empty((height, width, settings.channels), np.uint8) for _ in range(count)]
        for image in self.images:
            image[:] = random.integers(0, 256, settings.channels)
            for _ in range(3):
                (top, bottom), (left, right) = (np.sort(random.integers(0, side + 1, 2)) for side in (height, width))
                image[top:bottom, left:right] = random.integers(0, 256, settings.channels)

    def checks(self) -> list[Check]:
        """All checks, in the order in which they are reported."""
        return checks_of(
            {
                "saved": partial(check_saved, self.loaded, self._outputs),
                "lines": self._check_order,
                "batch": self._check_batch,
                "greedy": self._check_greedy,
                "terms": self._check_terms,
            },
            reason="a captioner reads no text",
        )

    def _outputs(self, loaded: Loaded) -> list[object]:
        return list(Captioner(loaded).caption(self.images))

    def _check_order(self) -> CheckResult:
        """As many captions as images, in their order."""
        found = self.captioner.caption(self.images)
        turned = self.captioner.caption(self.images[::-1])[::-1]
        moved = sum(abs(one.score - other.score) > TIE for one, other in zip(found, turned, strict=True))
        sentence = f"{counted(len(self.images), 'image')} in, {counted(len(found), 'caption')} out; in reverse order "
        return judged(len(found) == len(self.images) and not moved, f"{sentence}{moved:,} differ")

    def _check_batch(self) -> CheckResult:
        """An image has the same caption alone, in small batches, and in one batch with all others."""
        alone = [self.captioner.caption([image])[0] for image in self.images]
        others = [self.captioner.caption(self.images, images_per_batch=size) for size in (3, 1_000)]
        pairs = [(one, batch[at]) for at, one in enumerate(alone) for batch in others]
        # The score of another caption of nearly the same probability may differ: such ties are not counted.
        changed = sum(one.text != other.text and not _is_tie(one, other) for one, other in pairs)
        gap = max((abs(one.score - other.score) for one, other in pairs if one.text == other.text), default=0.0)
        sentence = (
            f"{counted(len(alone), 'image')} alone, in small batches and in one: {changed:,} captions differ; scores "
            f"are equal {within(gap)}"
        )
        return judged(not changed and gap < 10 * TIE, sentence, figures={"largest_difference": gap})

    def _check_greedy(self) -> CheckResult:
        """A beam of one caption takes the most probable symbol at each step."""
        beams = self.captioner.caption(self.images, beam=1, nbest=1)
        settings = self.loaded.search_settings(self.captioner.config.search.model_copy(update={"beam": 1, "nbest": 1}))
        stepper, source = self.captioner.stepper(), self.captioner.source(self.images)
        greedy = [self.captioner.tokenizer.decode(each.symbols) for each in greedy_search(stepper, source, settings)]
        differ = sum(one.text != other for one, other in zip(beams, greedy, strict=True))
        return judged(not differ, f"{counted(len(greedy), 'caption')} of greedy search: {differ:,} of beam 1 differ")

    def _check_terms(self) -> CheckResult:
        """The score of each caption is the sum of its terms."""
        found = self.captioner.caption(self.images)
        gap = max(abs(sum(each.terms.values()) - each.score) for each in found)
        return judged(gap < 1e-9, f"{counted(len(found), 'score')}: equal to the sums of their terms {within(gap)}")


def _is_tie(one: Caption, other: Caption) -> bool:
    return abs(one.score - other.score) < TIE
