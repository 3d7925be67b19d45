"""The promises of a tagger, checked with lines of its own vocabulary, given lines, and hard ones."""

from collections.abc import Sequence
from functools import partial

from seqloom.apps.tagger import WORDS_PER_BATCH, TaggedWords, Tagger
from seqloom.runs.loading import Loaded, LoadedModel
from seqloom.selfcheck.files import check_saved
from seqloom.selfcheck.lines import BLANK, CheckLines
from seqloom.selfcheck.promises import Check, CheckResult, checks_of, counted, judged, shown
from seqloom.text.normalise import is_blank

LONGEST = 256
"""Tokens of the longest line it is checked with; a tagger does not limit them."""


class TaggerChecks:
    """A tagger and the sentences it is checked with."""

    def __init__(self, loaded: LoadedModel, lines: CheckLines) -> None:
        self.loaded, self.tagger = loaded, Tagger(loaded)
        everything = lines.with_hard_ones(loaded.tokenizers.target, limit=LONGEST)
        self.texts = [line for line in everything if not is_blank(line)]

    def checks(self) -> list[Check]:
        """All checks, in the order in which they are reported."""
        return checks_of(
            {
                "saved": partial(check_saved, self.loaded, self._outputs),
                "lines": self._check_lines,
                "blank": self._check_blank,
                "batch": self._check_batch,
            },
            reason="a tagger writes no text",
        )

    def _outputs(self, loaded: Loaded) -> list[object]:
        return list(Tagger(loaded).tag(self.texts))

    def _check_lines(self) -> CheckResult:
        """As many sentences as lines, in their order, and a value of each column for each word."""
        found, turned = self.tagger.tag(self.texts), self.tagger.tag(self.texts[::-1])[::-1]
        moved = _differing(found, turned)
        short = sum(len(values) != len(each.words) for each in found for values in each.values.values())
        sentence = (
            f"{counted(len(self.texts), 'line')} in, {counted(len(found), 'sentence')} out; in reverse order "
            f"{len(moved):,} differ; {short:,} columns with more or fewer values than words"
        )
        return judged(len(found) == len(self.texts) and not moved and not short, sentence)

    def _check_blank(self) -> CheckResult:
        """A blank line has no words, and changes nothing beside it."""
        alone = self.tagger.tag(self.texts[:1])
        *found, beside = self.tagger.tag([*BLANK, *self.texts[:1]])
        visible = [each for line, each in zip(BLANK, found, strict=True) if not line.strip() and each.words]
        return judged(
            not visible and alone == [beside], f"{counted(len(BLANK), 'blank line')}: {len(visible):,} have words"
        )

    def _check_batch(self) -> CheckResult:
        """A sentence has the same tags alone, among sentences of its length, and in one batch with all others."""
        alone = [self.tagger.tag([text])[0] for text in self.texts]
        others = [self.tagger.tag(self.texts, words_per_batch=size) for size in (64, WORDS_PER_BATCH, 1_000_000)]
        changed = sorted({at for each in others for at in _differing(alone, each)})
        sentence = (
            f"{counted(len(alone), 'line')} alone, in small batches and in one: the tags of {len(changed):,} differ"
        )
        return judged(not changed, sentence, worst=shown(self.texts[changed[0]]) if changed else None)


def _differing(one: Sequence[TaggedWords], other: Sequence[TaggedWords]) -> list[int]:
    return [at for at, (first, second) in enumerate(zip(one, other, strict=True)) if first != second]
