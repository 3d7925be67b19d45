"""The two passes over a split: statistics of each pair, then every line judged by the models of the training text."""

import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice, pairwise

import numpy as np
from jaxtyping import Bool, Float32, UInt8

from seqloom.data.corpus import Line, ParallelCorpus
from seqloom.doctor.alignment import (
    ALIGNED,
    MAX_SHIFT,
    SHIFTS,
    UNSCORED_SHIFT,
    WordLines,
    find_runs,
    suspicious,
)
from seqloom.doctor.characters import look_at_characters
from seqloom.doctor.faults import LineRun
from seqloom.doctor.language import Languages, Verdicts, decide
from seqloom.doctor.models import CHUNK, AlignmentModels, Counts, Models
from seqloom.doctor.pairs import is_copy, is_header
from seqloom.doctor.segments import segments_of
from seqloom.doctor.survey import SideSurvey, Survey
from seqloom.doctor.wording import Odds, Wording
from seqloom.text.normalise import is_blank
from seqloom.text.scripts import key_of, likeness_of, main_script, scripts_of, words_of

Progress = Callable[[int], None]
Begin = Callable[[str], Progress]
"""Called with the name of a phase; returns the progress callback of that phase."""


PROGRESS_INTERVAL = 2_000
"""Lines between two progress events."""

_DIGITS = re.compile(r"\d+(?: \d+)*")
Keep = Callable[[Line, list[str], list[str]], None]


@dataclass
class _SideColumns:
    characters: "array[int]" = field(default_factory=lambda: array("i"))
    words: "array[int]" = field(default_factory=lambda: array("i"))
    keys: "array[int]" = field(default_factory=lambda: array("Q"))
    scripts: "array[int]" = field(default_factory=lambda: array("B"))
    letters: Counter[str] = field(default_factory=Counter)

    def add(self, text: str, words: list[str], script_numbers: dict[str, int]) -> None:
        self.characters.append(len(text))
        self.words.append(len(words))
        self.keys.append(likeness_of(text, words))
        scripts = scripts_of(text)
        self.letters.update(scripts)
        script = main_script(scripts, words)
        self.scripts.append(script_numbers.setdefault(script, min(len(script_numbers), 255)))

    def finished(self) -> SideSurvey:
        return SideSurvey(
            np.array(self.characters, np.int32),
            np.array(self.words, np.int32),
            np.array(self.keys, np.uint64),
            np.array(self.scripts, np.uint8),
            self.letters,
        )


def survey_lines(
    lines: Iterable[Line],
    *,
    split: str = "train",
    keep: Keep | None = None,
    progress: Progress = lambda _done: None,
) -> Survey:
    """Read a text once. `keep` is called with each line and its words."""
    source, target = _SideColumns(), _SideColumns()
    exact, shapes, odd, copies, blank = array("Q"), array("Q"), array("i"), array("B"), array("B")
    numbers = {"": 0}
    headers, file = list[int](), -1
    for line in lines:
        if line.file != file:
            file = line.file
            headers += [line.number] if is_header(line.source, line.target) else []
        words = words_of(line.source), words_of(line.target)
        source.add(line.source, words[0], numbers)
        target.add(line.target, words[1], numbers)
        exact.append(key_of(f"{line.source}\t{line.target}"))
        shape, replaced = _DIGITS.subn("0", f"{' '.join(words[0])}\t{' '.join(words[1])}")
        shapes.append(key_of(shape) if replaced else 0)
        odd.append(look_at_characters(line.source, line.target))
        copies.append(is_copy(line.source, line.target, words=words))
        is_empty = [not words[side] and is_blank(text) for side, text in enumerate((line.source, line.target))]
        blank.append(is_empty[0] + 2 * is_empty[1])
        if keep is not None:
            keep(line, *words)
        if len(exact) % PROGRESS_INTERVAL == 0:
            progress(len(exact))
    progress(len(exact))
    return Survey(
        split,
        source.finished(),
        target.finished(),
        exact=np.array(exact, np.uint64),
        shapes=np.array(shapes, np.uint64),
        odd=np.array(odd, np.int32),
        copies=np.array(copies, np.uint8),
        blank=np.array(blank, np.uint8),
        script_names=tuple(numbers),
        headers=tuple(headers),
    )


@dataclass(frozen=True, eq=False)
class Split:
    """A split of the data with its statistics."""

    name: str
    corpus: ParallelCorpus
    survey: Survey
    counts: tuple[Counts, Counts]
    """Words and characters of the two sides; of the sample, for the training text."""
    languages: Languages
    wording: UInt8[np.ndarray, " lines"]
    """Oddities of the words, as bits of `Odds`."""
    usual_wording: tuple[Wording, Wording]
    verdicts: Verdicts
    evidence: Float32[np.ndarray, " lines"]
    """Evidence for each pair in nats; all 0 if there are too few lines to learn a lexicon."""
    runs: tuple[LineRun, ...]
    segments: UInt8[np.ndarray, " lines"]
    """Truncated sides and moved boundaries, as bits."""


def judge_split(
    survey: Survey,
    corpus: ParallelCorpus,
    models: Models,
    *,
    counts: tuple[Counts, Counts],
    reference: Languages | None,
    begin: Begin,
) -> Split:
    """Judge the languages and the alignment of a split; the training text is its own `reference` (None)."""
    is_learned = models.is_sampled if reference is None else np.zeros(len(corpus), bool)
    languages, sides = judge_languages(corpus, models, is_learned=is_learned, progress=begin("languages"))
    wording = sides[0] | sides[1]
    verdicts = decide(
        languages,
        survey,
        reference or languages,
        is_third=(wording & Odds.THIRD_LANGUAGE) != 0,
        has_other_words=((sides[0] & Odds.OTHER_SIDE) != 0, (sides[1] & Odds.OTHER_SIDE) != 0),
    )
    evidence, runs = np.zeros(len(corpus), np.float32), list[LineRun]()
    segments = np.zeros(len(corpus), np.uint8)
    if models.alignment is not None:
        aligner = EvidenceReader(corpus, survey, models.alignment, is_swapped=verdicts.is_swapped)
        evidence, segments = aligner.evidence(begin("alignment"))
        runs = aligner.runs(evidence)
    found = evidence, tuple(runs), segments
    return Split(survey.split, corpus, survey, counts, languages, wording, models.wording, verdicts, *found)


def judge_languages(
    corpus: ParallelCorpus, models: Models, *, is_learned: Bool[np.ndarray, " lines"], progress: Progress
) -> tuple[Languages, tuple[UInt8[np.ndarray, " lines"], UInt8[np.ndarray, " lines"]]]:
    """How much each line looks like its side, and the oddities of its source and target words."""
    parts, wording, done = [], (bytearray(), bytearray()), 0
    source, target = models.wording
    for lines in pieces(corpus):
        learned = is_learned[done : done + len(lines)]
        sources, targets = [line.source for line in lines], [line.target for line in lines]
        parts.append(models.languages.judge(sources, targets, is_learned=learned))
        wording[0].extend(map(source.look, sources))
        wording[1].extend(map(target.look, targets))
        done += len(lines)
        progress(done)
    odd_sources, odd_targets = (np.frombuffer(bytes(side), np.uint8) for side in wording)
    return Languages.joined(parts), (odd_sources, odd_targets)


def pieces(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """Lines in lists of up to CHUNK."""
    left = iter(lines)
    while piece := list(islice(left, CHUNK)):
        yield piece


class EvidenceReader:
    """The evidence for each pair of a text, and for shifts where it looks bad."""

    def __init__(
        self,
        corpus: ParallelCorpus,
        survey: Survey,
        alignment: AlignmentModels,
        *,
        is_swapped: Bool[np.ndarray, " lines"],
    ) -> None:
        self._corpus, self._survey, self._is_swapped = corpus, survey, is_swapped
        self._lexicon, self._judge, self._segment_judge = alignment.lexicon, alignment.judge, alignment.segments

    def evidence(self, progress: Progress) -> tuple[Float32[np.ndarray, " lines"], UInt8[np.ndarray, " lines"]]:
        """L of every pair, and what was found at its ends and boundaries."""
        parts, done = [], 0
        segments = np.zeros(len(self._survey), np.uint8)
        last: list[Line] = []
        for piece in pieces(self._corpus):
            # With the last line of the previous chunk, for the boundary after it.
            lines = last + piece
            words = self._words(lines)
            places = np.arange(len(last), len(lines))
            parts.append(self._weigh(words, lines, places, places))
            numbers = np.array([line.number for line in lines])
            is_next = np.array([one.file == other.file for one, other in pairwise(lines)] + [False])
            segments[numbers - 1] |= self._segment_judge.look(segments_of(words, lines), is_next=is_next)
            last = lines[-1:]
            done += len(piece)
            progress(done)
        return np.concatenate(parts), segments

    def runs(self, evidence: Float32[np.ndarray, " lines"]) -> list[LineRun]:
        """The runs of lines that are not aligned."""
        is_suspicious = suspicious(evidence)
        if not is_suspicious.any():
            return []
        table = np.full((len(evidence), len(SHIFTS) + 1), UNSCORED_SHIFT, np.float32)
        table[:, ALIGNED] = evidence
        table[:, -1] = 0.0
        # Blank lines are no evidence for any shift.
        for lines in self._stretches(is_suspicious):
            words, numbers = self._words(lines), np.array([line.number for line in lines])
            wanted = np.flatnonzero(is_suspicious[numbers - 1])
            for state, shift in enumerate(SHIFTS):
                places = wanted[(wanted + shift >= 0) & (wanted + shift < len(lines))]
                if shift and len(places):
                    table[numbers[places] - 1, state] = self._weigh(words, lines, places, places + shift)
        return find_runs(table)

    def _stretches(self, is_suspicious: Bool[np.ndarray, " lines"]) -> Iterator[list[Line]]:
        """The suspicious lines with their context, as lists of consecutive lines."""
        wide = np.convolve(is_suspicious.astype(float), np.ones(2 * MAX_SHIFT + 1), mode="same")
        is_wanted = wide[: len(is_suspicious)] > 0.5
        stretch: list[Line] = []
        for line in self._corpus:
            if is_wanted[line.number - 1]:
                stretch.append(line)
            elif stretch:
                yield stretch
                stretch = []
            if len(stretch) == CHUNK:
                yield stretch
                stretch = stretch[-2 * MAX_SHIFT :]
        if stretch:
            yield stretch

    def _words(self, lines: list[Line]) -> WordLines:
        sources, targets = [], []
        for line in lines:
            is_swapped = bool(self._is_swapped[line.number - 1])
            sources.append(words_of(line.target if is_swapped else line.source))
            targets.append(words_of(line.source if is_swapped else line.target))
        return WordLines(self._lexicon, [line.number for line in lines], sources, targets)

    def _weigh(
        self, words: WordLines, lines: list[Line], places: np.ndarray, partners: np.ndarray
    ) -> Float32[np.ndarray, " pairs"]:
        """L of source lines with target lines, by their places among `lines`."""
        numbers = np.array([line.number for line in lines])
        sides = self._survey.source.characters, self._survey.target.characters
        is_swapped = self._is_swapped[numbers - 1]
        source = np.where(is_swapped, sides[1][numbers - 1], sides[0][numbers - 1])[places]
        target = np.where(is_swapped, sides[0][numbers - 1], sides[1][numbers - 1])[partners]
        known = words.words
        fewer = np.minimum(known[0][places], known[1][partners])
        ratios = np.log((target + 1.0) / (source + 1.0))
        return self._judge.evidence(words.score(places, partners), fewer, ratios)
