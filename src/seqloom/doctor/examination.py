"""The doctor: examine a parallel corpus and its splits for faults before training."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from seqloom.core.config import Config
from seqloom.core.errors import UsageError
from seqloom.core.events import Event, Listener, ignore, notice, phase
from seqloom.core.text_files import OnBad
from seqloom.data.corpus import Line, ParallelCorpus, open_corpus
from seqloom.data.corpus_files import languages_from
from seqloom.doctor.alignment import examine_alignment, examine_whole
from seqloom.doctor.characters import examine_characters
from seqloom.doctor.faults import Fault, Verdict, in_order, judge
from seqloom.doctor.language import examine_languages, examine_names, examine_scripts
from seqloom.doctor.leakage import NearLeaks, examine_leakage, examine_near_leakage, find_near_leaks
from seqloom.doctor.models import HELD_OUT, Counts, Forecast, TextSample, examine_unknown, forecast_side
from seqloom.doctor.pairs import (
    examine_blanks,
    examine_copies,
    examine_duplicates,
    examine_headers,
    examine_long,
    examine_ratios,
)
from seqloom.doctor.segments import examine_segments
from seqloom.doctor.splits import Split, judge_split, survey_lines
from seqloom.doctor.wording import examine_accents
from seqloom.runs.sizing import Sizing, choose_sizes, facts_of
from seqloom.text.formats.segments import Languages


class DoctorData(Config):
    """How the text is read."""

    source: str | None = None
    """Source language, as a code such as de: selects one of the languages of a translation
    memory. Default: taken from the file or its name."""
    target: str | None = None
    """Target language, in the same form."""
    encoding: str = "utf-8"
    """The encoding of the files."""
    on_bad_utf8: OnBad = "error"
    """How invalid bytes are handled: error, replace or skip."""


class DoctorConfig(Config):
    """Settings of an examination."""

    data: DoctorData = DoctorData()
    """How the text is read."""


IN_A_ROW = 3

EXAMPLES = 6
"""Lines of each fault that are shown with their text."""


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """The result of an examination."""

    splits: tuple[Split, ...]
    """The training text first."""
    faults: tuple[Fault, ...]
    """The worst first."""
    verdict: Verdict
    forecasts: tuple[Forecast, ...]
    sizing: Sizing
    examples: Mapping[tuple[str, int], Line]
    """The text of some lines of each fault, by split and number."""
    near_leaks: NearLeaks
    """Lines of other splits that differ from a training line by one word."""

    @property
    def train(self) -> Split:
        """The training text."""
        return self.splits[0]

    @property
    def sizes(self) -> list[str]:
        """Recommended sizes for this amount of text, each with its reason."""
        return [self.sizing.summary, *(reason.text for reason in self.sizing.reasons)]

    def shown(self, fault: Fault) -> list[tuple[str, Line]]:
        """Some lines of a fault, each with its place."""
        found = [(number, self.examples.get((fault.split, number))) for number in shown_lines(fault)]
        return [(self.place(fault.split, number), line) for number, line in found if line is not None]

    def place(self, split: str, number: int) -> str:
        """File and line number of a line: `train.de:17`."""
        return next(part for part in self.splits if part.name == split).corpus.place(number)


def diagnose(
    train: Sequence[Path],
    *,
    dev: Sequence[Path] = (),
    test: Sequence[Path] = (),
    languages: Languages = (None, None),
    encoding: str = "utf-8",
    on_bad: OnBad = "error",
    listener: Listener = ignore,
) -> Diagnosis:
    """Examine a training text, and its dev and test sets if given.

    `languages` select two languages of a translation memory, and are the declared languages of the text.
    """
    if not train:
        raise UsageError("no training text given; use --train corpus.de --train corpus.en")
    named = [(name, paths) for name, paths in (("train", train), ("dev", dev), ("test", test)) if paths]
    corpora = {name: open_corpus(paths, encoding=encoding, languages=languages, on_bad=on_bad) for name, paths in named}
    for corpus in corpora.values():
        for sentence in corpus.notices:
            notice(listener, sentence)
    # Every split is read twice: the first pass collects statistics, the second judges each line.
    splits, sample = list[Split](), TextSample(len(corpora["train"]))
    for name, corpus in corpora.items():
        counts = sample.counts if name == "train" else (Counts.none(), Counts.none())
        report = _progress(listener, f"reading {name}", len(corpus))
        keep = sample.keep if name == "train" else _counter(counts)
        survey = survey_lines(corpus, split=name, keep=keep, progress=report)
        if name == "train":
            models = sample.learn(survey, report=lambda what: phase(listener, what))
        reference = splits[0].languages if splits else None
        judging = partial(_judging, listener, name, len(corpus))
        splits.append(judge_split(survey, corpus, models, counts=counts, reference=reference, begin=judging))
    texts = {name: corpus for name, corpus in corpora.items() if name != "train"}
    near_leaks = NearLeaks.none(len(corpora["train"]))
    if texts:
        report = _progress(listener, f"searching train for lines of {' and '.join(texts)}", len(corpora["train"]))
        near_leaks = find_near_leaks(corpora["train"], texts, total=len(corpora["train"]), progress=report)
    # What of each other split will be unknown; without any, of lines held out of the training text.
    others = [(split.name, split.counts) for split in splits[1:]] or [(HELD_OUT, sample.held_out)]
    forecasts = tuple(
        Forecast(name, *(forecast_side(known, side) for known, side in zip(sample.counts, counts, strict=True)))
        for name, counts in others
    )
    source, target = languages
    declared = [(source, target) if source and target else languages_from(paths) for _, paths in named]
    faults = [fault for split, pair in zip(splits, declared, strict=True) for fault in _examine(split, splits[0], pair)]
    for split in splits[1:]:
        faults += examine_near_leakage(near_leaks, splits[0].survey, split.survey)
    faults += [fault for forecast in forecasts for fault in examine_unknown(forecast)]
    ordered = in_order(faults)
    from seqloom.runs.config import RunConfig  # which imports torch: only texts that were read need it

    sizing = choose_sizes(facts_of(corpora["train"], declared[0] or (None, None)), RunConfig().model)
    examples = _examples(ordered, corpora)
    return Diagnosis(tuple(splits), ordered, judge(ordered), forecasts, sizing, examples, near_leaks)


def _counter(counts: tuple[Counts, Counts]) -> Callable[[Line, list[str], list[str]], None]:
    def keep(line: Line, source: list[str], target: list[str]) -> None:
        counts[0].add(line.source, source)
        counts[1].add(line.target, target)

    return keep


def _progress(listener: Listener, what: str, everything: int) -> Callable[[int], None]:
    def report(done: int) -> None:
        listener(Event("progress", {"what": what, "done": done, "all": everything}))

    report(0)  # starts the clock of the progress bar
    return report


def _judging(listener: Listener, name: str, everything: int, what: str) -> Callable[[int], None]:
    return _progress(listener, f"judging the {what} of {name}", everything)


def _examine(split: Split, train: Split, declared: tuple[str, str] | None) -> Iterator[Fault]:
    """Run all examinations on one split with the declared languages."""
    survey, reference = split.survey, train.survey
    scripts = examine_scripts(survey, reference)
    has_wrong_script = np.zeros(len(survey), bool)
    for fault in scripts:
        has_wrong_script[fault.lines - 1] = True
    words = split.counts[0].words, split.counts[1].words
    yield from examine_names(words, declared, split=split.name)
    yield from examine_whole(survey)
    yield from examine_alignment(split.runs, survey)
    yield from scripts
    yield from examine_languages(split.verdicts, survey, has_wrong_script=has_wrong_script)
    yield from examine_copies(survey)
    yield from examine_headers(survey)
    yield from examine_blanks(survey)
    yield from examine_ratios(survey, reference, runs=split.runs)
    yield from examine_segments(survey, split.segments, runs=split.runs)
    yield from examine_long(survey)
    yield from examine_duplicates(survey)
    if split is not train:
        yield from examine_leakage(reference, survey)
    yield from examine_characters(survey)
    yield from examine_accents(survey, split.wording, split.usual_wording)


def _examples(faults: Sequence[Fault], corpora: Mapping[str, ParallelCorpus]) -> dict[tuple[str, int], Line]:
    wanted: dict[str, set[int]] = {}
    for fault in faults:
        wanted.setdefault(fault.split, set()).update(shown_lines(fault))
    found = {}
    for name, numbers in wanted.items():
        last = max(numbers, default=0)
        for line in corpora[name] if last else ():
            if line.number in numbers:
                found[name, line.number] = line
            if line.number == last:
                break
    return found


def shown_lines(fault: Fault) -> list[int]:
    """The lines of a fault to show: the first of each run, or a sample spread over the text."""
    if fault.runs:
        near = [number for run in fault.runs for number in range(run.first, min(run.first + IN_A_ROW, run.last + 1))]
        return near[:EXAMPLES]
    chosen = np.linspace(0, len(fault.lines) - 1, min(EXAMPLES, len(fault.lines))).astype(np.int64)
    return [int(number) for number in fault.lines[chosen]] if len(fault.lines) else []
