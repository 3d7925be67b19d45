"""The promises of a transcriber, checked with random frames of different lengths."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from seqloom.apps.transcriber import Transcriber, Transcript
from seqloom.data.frames import Frames
from seqloom.runs.loading import Loaded, LoadedModel
from seqloom.selfcheck.files import check_saved
from seqloom.selfcheck.promises import TIE, Check, CheckResult, checks_of, counted, judged, within

LONGEST = 120
"""Frames of a sample."""


class TranscriberChecks:
    """A transcriber and `count` samples, from one frame to many, of random numbers."""

    def __init__(self, loaded: LoadedModel, *, count: int, seed: int) -> None:
        self.loaded, self.transcriber = loaded, Transcriber(loaded)
        random, features = np.random.default_rng(seed), loaded.config.data.frames.features(self.transcriber.kind)
        # As smooth as sound and strokes are, so that some frames have a symbol.
        self.samples: list[Frames] = [
            np.repeat(random.normal(size=(1 + at * LONGEST // (5 * count), features)), 5, axis=0).astype(np.float32)
            for at in range(count)
        ]

    def checks(self) -> list[Check]:
        """All checks, in the order in which they are reported."""
        return checks_of(
            {
                "saved": partial(check_saved, self.loaded, self._outputs),
                "lines": self._check_order,
                "batch": self._check_batch,
            },
            reason="a transcriber reads no text",
        )

    def _outputs(self, loaded: Loaded) -> list[object]:
        return list(Transcriber(loaded).transcribe_frames(self.samples))

    def _check_order(self) -> CheckResult:
        """As many transcripts as samples, in their order."""
        found = self.transcriber.transcribe_frames(self.samples)
        turned = self.transcriber.transcribe_frames(self.samples[::-1])[::-1]
        moved = sum(abs(one.score - other.score) > TIE for one, other in zip(found, turned, strict=True))
        sentence = f"{counted(len(self.samples), 'sample')} in, {counted(len(found), 'transcript')} out; in reverse "
        return judged(len(found) == len(self.samples) and not moved, f"{sentence}order {moved:,} differ")

    def _check_batch(self) -> CheckResult:
        """A sample has the same transcript alone, in small batches, and in one batch with all others."""
        alone = [self.transcriber.transcribe_frames([sample])[0] for sample in self.samples]
        others = [self.transcriber.transcribe_frames(self.samples, frames_per_batch=size) for size in (200, 1_000_000)]
        pairs = [(one, batch[at]) for at, one in enumerate(alone) for batch in others]
        # The score of another text of nearly the same probability may differ: such ties are not counted.
        changed = sum(one.text != other.text and not _is_tie(one, other) for one, other in pairs)
        gap = max(abs(one.score - other.score) for one, other in pairs if one.text == other.text)
        sentence = (
            f"{counted(len(alone), 'sample')} alone, in small batches and in one: {changed:,} transcripts differ; "
            f"scores are equal {within(gap)}"
        )
        return judged(not changed and gap < TIE * LONGEST, sentence, figures={"largest_difference": gap})


def _is_tie(one: Transcript, other: Transcript) -> bool:
    return abs(one.score - other.score) < TIE


def described(samples: Sequence[Frames], seed: int) -> str:
    """What was checked with, in words."""
    return f"{len(samples):,} samples of up to {max(map(len, samples))} frames, drawn with seed {seed}"
