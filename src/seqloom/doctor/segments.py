"""Segmentation: pairs with one truncated side, and line boundaries that differ between the sides.

The words of such a pair translate each other except at one end. So parts of a line are scored by model 1, as in
`alignment.py`, and compared with pairs of the same text that are damaged on purpose:

    cut       s(first half) − s(second half), s(second half) of the side that has more, and the ratio of the lengths
    moved     s(last quarter ∣ partner of the next line) − s(last quarter ∣ its own), for both sides, and both ratios
    L = Σ log p(value ∣ damaged) / p(value ∣ undamaged) + the same for whether the sides end with a mark
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int64, UInt8

from seqloom.data.corpus import Line
from seqloom.doctor.alignment import Evidence, FoldedLexicon, WordLines
from seqloom.doctor.faults import Fault, LineRun, counted, find_fault
from seqloom.doctor.survey import Survey
from seqloom.text.scripts import words_of

CUT, MOVED = 5.0, 7.0
"""Minimum evidence in nats for a truncated side and for a moved boundary."""

AGAINST = -1.0
"""Minimum evidence of the words alone for a truncated side, whatever lengths and punctuation suggest."""

TARGET_CUT, SOURCE_CUT, BORDER_MOVED = 1, 2, 4
"""Bits of the result for a line."""

SHARES = (0.2, 0.5)
"""Minimum and maximum share of a line that is moved on purpose."""

_MARKS = frozenset(".!?…:;\"”“»«'’)]。！？」』）։।۔؟")

Words = Sequence[Sequence[str]]


def ends_with_mark(text: str) -> bool:
    """Whether a text ends with sentence-final punctuation."""
    return text.rstrip()[-1:] in _MARKS


@dataclass(frozen=True, eq=False)
class Segments:
    """Consecutive lines with their words, lengths and final punctuation."""

    words: WordLines
    lengths: tuple[Float[np.ndarray, " lines"], Float[np.ndarray, " lines"]]
    """Characters of both sides."""
    ends: Int64[np.ndarray, " lines"]
    """2 if the source ends with a mark, and 1 more if the target does."""

    @property
    def ratios(self) -> Float[np.ndarray, " lines"]:
        """log (target characters + 1) / (source characters + 1)."""
        return np.log((self.lengths[1] + 1.0) / (self.lengths[0] + 1.0))

    def cut(self, *, is_source: bool) -> "list[Float[np.ndarray, ' lines']]":
        """Features of a truncated side: it does not explain the end of the other side."""
        places = np.arange(len(self.ends))
        first, second = (
            self.words.explain(places, places, part=part, parts=2, is_source=not is_source) for part in (0, 1)
        )
        return [first - second, second, self.ratios]

    def moved(self, firsts: Int64[np.ndarray, " pairs"], *, is_forward: bool) -> "list[Float[np.ndarray, ' pairs']]":
        """Features of a moved boundary between each of these lines and the next, in the target.

        Forward: the end of the first target is at the start of the second.
        """
        here, there = (firsts, firsts + 1) if is_forward else (firsts + 1, firsts)
        # The moved part is at the near end of the line that has it now; the other line has its source there.
        gained, lost = (0, 3) if is_forward else (3, 0)
        explain = self.words.explain
        extra = explain(there, here, part=gained, parts=4, is_source=False)
        missing = explain(here, there, part=lost, parts=4, is_source=True)
        ratios = self.ratios
        return [
            extra - explain(there, there, part=gained, parts=4, is_source=False),
            missing - explain(here, here, part=lost, parts=4, is_source=True),
            ratios[here],
            ratios[there],
        ]


def segments_of(words: WordLines, lines: Sequence[Line]) -> Segments:
    """The features of some consecutive lines."""
    lengths = tuple(np.array([len(text) for text in side], float) for side in _sides(lines))
    source, target = (np.array([ends_with_mark(text) for text in side], np.int64) for side in _sides(lines))
    return Segments(words, (lengths[0], lengths[1]), 2 * source + target)


def _sides(lines: Sequence[Line]) -> tuple[list[str], list[str]]:
    return [line.source for line in lines], [line.target for line in lines]


@dataclass(frozen=True, eq=False)
class _Likeness:
    """Log likelihood ratio of damaged against undamaged lines."""

    values: tuple[Evidence, ...]
    ends: Float[np.ndarray, " classes"]

    @staticmethod
    def between(
        damaged: "Sequence[Float[np.ndarray, ' damaged']]",
        usual: "Sequence[Float[np.ndarray, ' usual']]",
        ends: tuple[Int64[np.ndarray, " damaged"], Int64[np.ndarray, " usual"]],
    ) -> "_Likeness":
        values = tuple(Evidence.between(one, other) for one, other in zip(damaged, usual, strict=True))
        counts = [np.bincount(each, minlength=4) + 1.0 for each in ends]
        one, other = (np.log(each / each.sum()) for each in counts)
        return _Likeness(values, one - other)

    def of(
        self, values: "Sequence[Float[np.ndarray, ' lines']]", ends: Int64[np.ndarray, " lines"]
    ) -> Float[np.ndarray, " lines"]:
        """L of some lines."""
        found: Float[np.ndarray, " lines"] = self.ends[ends]
        for evidence, each in zip(self.values, values, strict=True):
            found = found + evidence.of(each)
        return found


@dataclass(frozen=True, eq=False)
class SegmentJudge:
    """Judges lines by comparison with lines that were damaged on purpose."""

    cut_target: _Likeness
    cut_source: _Likeness
    forward: _Likeness
    backward: _Likeness

    @staticmethod
    def learn(lexicon: FoldedLexicon, lines: Sequence[Line]) -> "SegmentJudge":
        """Learn from consecutive lines."""
        numbers = [line.number for line in lines]
        words = [words_of(text) for text in _sides(lines)[0]], [words_of(text) for text in _sides(lines)[1]]
        usual = segments_of(WordLines(lexicon, numbers, *words), lines)
        lengths, ends = usual.lengths, usual.ends
        cut = []
        for side in (1, 0):
            halves = [each[: (len(each) + 1) // 2] for each in words[side]]
            sides = (words[0], halves) if side else (halves, words[1])
            half = lengths[side] / 2
            shorter = (lengths[0], half) if side else (half, lengths[1])
            # What is cut has lost its mark: bit 1 of the target, bit 2 of the source.
            damaged = Segments(WordLines(lexicon, numbers, *sides), shorter, ends & (2 if side else 1))
            values = damaged.cut(is_source=not side), usual.cut(is_source=not side)
            cut.append(_Likeness.between(*values, (damaged.ends, ends)))
        firsts = np.arange(0, len(ends) - 1, 2)
        moved = []
        for is_forward in (True, False):
            damaged = _move_borders(lexicon, numbers, words, lengths, ends, firsts, is_forward=is_forward)
            values = damaged.moved(firsts, is_forward=is_forward), usual.moved(firsts, is_forward=is_forward)
            moved.append(_Likeness.between(*values, (damaged.ends[firsts], ends[firsts])))
        return SegmentJudge(cut[0], cut[1], moved[0], moved[1])

    def look(self, lines: Segments, *, is_next: Bool[np.ndarray, " lines"]) -> UInt8[np.ndarray, " lines"]:
        """The result bits of each line; `is_next` marks lines that are followed by the next line of the same file."""
        found = np.zeros(len(lines.ends), np.uint8)
        for likeness, bit in ((self.cut_target, TARGET_CUT), (self.cut_source, SOURCE_CUT)):
            values = lines.cut(is_source=bit == SOURCE_CUT)
            # Lengths and punctuation alone are weak evidence: the words must not contradict them.
            is_unexplained = likeness.values[0].of(values[0]) + likeness.values[1].of(values[1]) > AGAINST
            found[is_unexplained & (likeness.of(values, lines.ends) > CUT)] |= bit
        firsts = np.flatnonzero(is_next[:-1])
        for likeness, is_forward in ((self.forward, True), (self.backward, False)):
            values = lines.moved(firsts, is_forward=is_forward)
            # The missing part must be in the other line; otherwise the line was truncated.
            is_there = likeness.values[0].of(values[0]) > 0
            moved = firsts[is_there & (likeness.of(values, lines.ends[firsts]) > MOVED)]
            found[moved] |= BORDER_MOVED
            found[moved + 1] |= BORDER_MOVED
        return found


def _move_borders(
    lexicon: FoldedLexicon,
    numbers: Sequence[int],
    words: tuple[Words, Words],
    lengths: tuple[Float[np.ndarray, " lines"], Float[np.ndarray, " lines"]],
    ends: Int64[np.ndarray, " lines"],
    firsts: Int64[np.ndarray, " pairs"],
    *,
    is_forward: bool,
) -> Segments:
    """Move the target boundary after each of `firsts`."""
    targets, characters, marks = [list(each) for each in words[1]], lengths[1].copy(), ends.copy()
    shares = np.linspace(*SHARES, 7)
    for at, first in enumerate(firsts.tolist()):
        here = first if is_forward else first + 1
        there = first + 1 if is_forward else first
        count = max(1, int(len(targets[here]) * shares[at % len(shares)]))
        moved = characters[here] * count / max(1, len(targets[here]))
        if is_forward:
            targets[there], targets[here] = targets[here][-count:] + targets[there], targets[here][:-count]
            marks[here] &= 2
        else:
            targets[there], targets[here] = targets[there] + targets[here][:count], targets[here][count:]
            marks[there] &= 2
        characters[there], characters[here] = characters[there] + moved, characters[here] - moved
    return Segments(WordLines(lexicon, numbers, words[0], targets), (lengths[0], characters), marks)


def examine_segments(survey: Survey, found: UInt8[np.ndarray, " lines"], *, runs: Sequence[LineRun]) -> list[Fault]:
    """Truncated sides and moved boundaries, except in lines that have another fault."""
    is_left = (survey.blank == 0) & (survey.copies == 0)
    for run in runs:
        is_left[run.first - 1 : run.last] = False
    is_moved = ((found & BORDER_MOVED) != 0) & is_left
    cuts = [((found & bit) != 0) & is_left & ~is_moved for bit in (SOURCE_CUT, TARGET_CUT)]
    return [
        *find_fault(
            survey,
            "cut",
            cuts[0] | cuts[1],
            "Truncated sides",
            what=f"where the source ({int(cuts[0].sum()):,}) or the target ({int(cuts[1].sum()):,}) does not cover "
            "the end of the other side",
            advice="often a line that was split in two; --fix cut drops them",
            fix=0.002,
            stop=0.5,
        ),
        *find_fault(
            survey,
            "boundaries",
            is_moved,
            "Moved line boundaries",
            what="with part of the translation in the previous or next line: "
            f"at least {counted(int(is_moved.sum()) // 2, 'boundary', 'boundaries')}",
            advice="the two sides were split into sentences differently; --fix boundaries drops them",
            fix=0.002,
            stop=0.5,
        ),
    ]
