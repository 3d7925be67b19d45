"""Repairs of a parallel text after a diagnosis: a mended copy in a folder of its own, with a log of every change."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from io import TextIOWrapper
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from seqloom.core.errors import UsageError
from seqloom.core.events import Event, Listener, ignore
from seqloom.core.files import fsync, open_output, require_new
from seqloom.core.text_files import bare_name
from seqloom.data.blocks import Line
from seqloom.data.corpus import ParallelCorpus, Part, parts_of
from seqloom.doctor.alignment import FARTHEST
from seqloom.doctor.characters import mend_characters, strip_tags
from seqloom.doctor.examination import Diagnosis
from seqloom.doctor.faults import Fault
from seqloom.doctor.leakage import leaked_into

DROPPED = {
    "header": "names the columns",
    "empty": "nothing on one side",
    "leakage": "stands in another split too",
    "copies": "the target is the source",
    "script": "another script than its side",
    "duplicates": "stood in the text before",
    "near-duplicates": "stood in the text before but for capitals, spaces or punctuation",
    "language": "both sides look like one language",
    "foreign": "unlike the rest of its side",
    "unrelated": "nothing to do with its partner",
    "ratios": "one side much longer than the other",
    "long": "very long",
    "near-leakage": "stands in another split too but for a word",
    "templates": "stood in the text before with other numbers",
    "accents": "letters lost to another encoding",
    "cut": "one side ends too early",
    "boundaries": "a part of its translation is in the next line or the one before",
    "one-sided": "an address, emoji or note on one side only",
}
"""Kinds of faults whose lines are dropped, in the order in which a reason is looked for."""

MENDED = {
    "garbled": "a double encoding, or control characters",
    "invisible": "characters that cannot be seen",
    "spelling": "an HTML entity, or accents apart from their letters",
    "markup": "HTML tags",
}
"""Kinds whose characters are mended in place."""

REASONS = {
    **DROPPED,
    **MENDED,
    "swapped": "source and target were exchanged",
    "misaligned": "its translation stands in another line",
}

REPAIRS: tuple[str, ...] = (*DROPPED, *MENDED, "swapped", "misaligned")
SAFE: tuple[str, ...] = ("header", "empty", "leakage", "copies", "script", "duplicates")
SAFE += ("garbled", "invisible", "spelling")
"""What can hardly do harm: it takes out what teaches nothing good, and leaves judgements of meaning to people."""

LOST = "no translation of it was found near"
"""Why a line of a shifted run is dropped and not paired anew."""

LOG, REPORT = "repairs.tsv", "report.html"
TOLD_EVERY = 20_000


@dataclass(frozen=True)
class Repaired:
    """What was written."""

    files: tuple[Path, ...]
    log: Path
    kept: int
    dropped: int
    changed: int
    reasons: Mapping[str, int]
    """How many lines were dropped or changed, by the kind of their fault."""
    left: tuple["Left", ...] = ()
    """Faults that should be mended and were not."""


@dataclass(frozen=True)
class Left:
    """A fault that is still in the text."""

    title: str
    split: str
    count: int
    """Its lines; 0 where it is a fault of the whole."""
    repair: str | None
    """The repair that would take care of it; None where only people can."""


def choose_repairs(words: str) -> tuple[str, ...]:
    """The kinds that a command names: `safe`, `all`, or names with commas between them."""
    chosen: list[str] = []
    for name in filter(None, (word.strip() for word in words.split(","))):
        if name not in ("safe", "all", *REPAIRS):
            raise UsageError(f"--fix {name}: no such repair; choose safe, all, or among {', '.join(REPAIRS)}")
        chosen += SAFE if name == "safe" else REPAIRS if name == "all" else [name]
    if not chosen:
        raise UsageError("--fix needs the names of repairs: safe, all, or such as copies,duplicates")
    return tuple(dict.fromkeys(chosen))


def repair(diagnosis: Diagnosis, kinds: Sequence[str], folder: Path, *, listener: Listener = ignore) -> Repaired:
    """Write a mended copy of the training text into a folder. The text itself is never touched."""
    corpus = diagnosis.train.corpus
    paths = _places(corpus.parts, folder)
    files, log = tuple(path for part in paths for path in part), folder / LOG
    inputs = [path for split in diagnosis.splits for part in split.corpus.parts for path in part]
    require_places([log, *files], inputs=inputs)
    folder.mkdir(parents=True, exist_ok=True)
    reasons: Counter[str] = Counter()
    kept = dropped = 0
    with TemporaryDirectory(prefix=".repairs-", dir=folder) as made:
        with open_output(Path(made) / LOG) as journal:
            journal.write("line\tfile\twhat\twhy\n")
            for number, row in enumerate(_mended(make_plan(diagnosis, kinds), corpus, paths, Path(made)), start=1):
                kept, dropped = kept + row.is_kept, dropped + (not row.is_kept)
                if row.what:
                    reasons[row.kind] += 1
                    journal.writelines(
                        f"{row.number}\t{file}\t{row.what}\t{row.kind}: {row.why}\n" for file in row.files
                    )
                if number % TOLD_EVERY == 0 or number == len(corpus):
                    listener(Event("progress", {"what": "repairing", "done": number, "all": len(corpus)}))
        for path in (log, *files):
            (Path(made) / path.name).replace(path)
    fsync(folder)
    changed = reasons.total() - dropped
    return Repaired(files, log, kept, dropped, changed, dict(reasons), left_over(diagnosis, kinds))


@dataclass(frozen=True)
class _Row:
    """A line of a file and what has become of it."""

    number: int
    files: tuple[Path, ...]
    """Those whose text was changed: both where the pair was dropped or turned round."""
    is_kept: bool
    what: str
    kind: str

    @property
    def why(self) -> str:
        """What the log says of it."""
        return LOST if self.kind == "misaligned" and not self.is_kept else REASONS[self.kind]


def _mended(plan: "Plan", corpus: ParallelCorpus, paths: Sequence[Sequence[Path]], folder: Path) -> Iterator[_Row]:
    """Write the parts into a folder, one after another: there may be more of them than can be open at once."""
    for part, steps in groupby(plan.carry_out(corpus), key=lambda step: step[0].file):
        with ExitStack() as stack:
            streams = [stack.enter_context(open_output(folder / path.name)) for path in paths[part]]
            for number, (line, mended, what, kind) in enumerate(steps, start=1):
                if mended is not None:
                    _write(mended, streams)
                files = _changed_files(corpus.parts[part], line, mended)
                yield _Row(number, files, mended is not None, what, kind)


def _changed_files(part: Part, line: Line, mended: tuple[str, str] | None) -> tuple[Path, ...]:
    """The files of a part whose line was dropped or changed."""
    if mended is None or len(part) == 1:
        return part
    before = line.source, line.target
    return tuple(path for path, old, new in zip(part, before, mended, strict=True) if old != new)


def left_over(diagnosis: Diagnosis, kinds: Sequence[str]) -> tuple[Left, ...]:
    """What is worse than a note and is no matter of these repairs, which change the training text alone."""

    def repair_of(fault: Fault) -> str | None:
        # Lines of dev and test are told of those, but taken out of the training text.
        is_within_reach = fault.split == "train" or fault.kind in ("leakage", "near-leakage")
        return fault.kind if is_within_reach and fault.kind in REPAIRS else None

    return tuple(
        Left(fault.title, fault.split, len(fault.lines), repair_of(fault))
        for fault in diagnosis.faults
        if fault.severity != "note" and (repair_of(fault) is None or fault.kind not in kinds)
    )


def _names(part: Sequence[Path], file: int, *, has_several: bool) -> list[str]:
    """The names of the mended files: as they were, not compressed; tables for what is not two plain files."""
    before = f"{file + 1}-" if has_several else ""
    if len(part) == 2:
        return [before + bare_name(path) for path in part]
    name = bare_name(part[0])
    return [before + (name if name.endswith(".tsv") else f"{name}.tsv")]


def places_of(train: Sequence[Path], folder: Path) -> list[Path]:
    """The files that a repair of a text makes in a folder: its log, and the mended copy."""
    return [folder / LOG, *(path for part in _places(parts_of(train), folder) for path in part)]


def _places(parts: Sequence[Part], folder: Path) -> list[list[Path]]:
    """The mended files of each part."""
    names = [_names(part, file, has_several=len(parts) > 1) for file, part in enumerate(parts)]
    return [[folder / name for name in each] for each in names]


def require_places(outputs: Sequence[Path], *, inputs: Sequence[Path]) -> None:
    """Refuse files that are there already or would be written twice, before anything is read: nothing is replaced."""
    for path in outputs:
        if any(path.exists() and given.exists() and path.samefile(given) for given in inputs):
            raise UsageError(f"{path} is the text itself, which is never touched; name another folder with --out")
        if outputs.count(path) > 1:
            namesake = {LOG: "the log of repairs has that name", REPORT: "the report has that name"}
            why = namesake.get(path.name, "source and target have the same name")
            raise UsageError(f"{path} would be written twice: {why}; rename the text")
        # Not even what an earlier examination wrote: somebody may have worked on it since.
        require_new(path)


def _write(pair: tuple[str, str], streams: Sequence[TextIOWrapper]) -> None:
    for text, stream in zip(pair if len(streams) == 2 else ["\t".join(pair)], streams, strict=True):
        # A line end takes one CR with it; what the line itself ends with is to be read again.
        stream.write(text + ("\r\n" if text.endswith("\r") else "\n"))


# --- the plan --------------------------------------------------------------------------------------------------------

Step = tuple[Line, tuple[str, str] | None, str, str]
"""A line, what becomes of it (None: dropped), what was done, and for which kind of fault."""


@dataclass(frozen=True)
class Plan:
    """What is to be done with each line, by number."""

    dropped: Mapping[int, str]
    swapped: frozenset[int]
    mended: Mapping[int, tuple[str, ...]]
    """Lines whose characters are mended, with the kinds of their faults."""
    partners: Mapping[int, int]
    """The lines in which the translations of shifted lines stand."""

    def carry_out(self, corpus: ParallelCorpus) -> Iterator[Step]:
        """Each line and what becomes of it."""
        for line, find in around(corpus):
            yield self._carry_out(line, find)

    def _carry_out(self, line: Line, find: "Callable[[int], Line | None]") -> Step:
        number = line.number
        if number in self.dropped:
            return line, None, "dropped", self.dropped[number]
        pair, what, kind = (line.source, line.target), "", ""
        if number in self.partners:
            partner = find(self.partners[number])
            if partner is None or partner.file != line.file:
                return line, None, "dropped", "misaligned"
            pair, kind = (line.source, partner.target), "misaligned"
            what = f"paired with the target {self.partners[number] - number:+d} lines on"
        if number in self.swapped:
            pair, what, kind = (pair[1], pair[0]), "turned round", "swapped"
        if number in self.mended:
            clean = self._clean(number, pair[0]), self._clean(number, pair[1])
            if clean != pair:
                pair, what, kind = (
                    clean,
                    "; ".join(filter(None, [what, "characters mended"])),
                    kind or self.mended[number][0],
                )
        return line, pair, what, kind

    def _clean(self, number: int, text: str) -> str:
        """A text without what is odd in it, by the faults of its line."""
        kinds = self.mended[number]
        text = strip_tags(text) if "markup" in kinds else text
        return mend_characters(text) if kinds != ("markup",) else text


def around(lines: Iterable[Line]) -> "Iterator[tuple[Line, Callable[[int], Line | None]]]":
    """Each line with a way to the few before and after it."""
    window: deque[Line] = deque(maxlen=2 * FARTHEST + 1)
    waiting: deque[Line] = deque()

    def find(number: int) -> Line | None:
        return next((line for line in window if line.number == number), None)

    for line in lines:
        window.append(line)
        waiting.append(line)
        if len(waiting) > FARTHEST:
            yield waiting.popleft(), find
    while waiting:
        yield waiting.popleft(), find


def make_plan(diagnosis: Diagnosis, kinds: Sequence[str]) -> Plan:
    """Decide about every line; a line that is dropped for one reason is not looked at for another."""
    by_kind: dict[str, set[int]] = {kind: set() for kind in kinds}
    for fault in diagnosis.faults:
        if fault.split == "train" and fault.kind in by_kind:
            by_kind[fault.kind].update(fault.lines.tolist())
    if "leakage" in by_kind:
        is_leaked = leaked_into(diagnosis.train.survey, [split.survey for split in diagnosis.splits[1:]])
        by_kind["leakage"] = set((np.flatnonzero(is_leaked) + 1).tolist())
    if "near-leakage" in by_kind:
        by_kind["near-leakage"] = set((np.flatnonzero(diagnosis.near_leaks.train) + 1).tolist())
    partners = _find_partners(diagnosis) if "misaligned" in by_kind else {}
    dropped: dict[int, str] = {}
    for kind in DROPPED:
        for number in by_kind.get(kind, ()):
            dropped.setdefault(number, kind)
    for number in by_kind.get("misaligned", set()) | set(partners.values()):
        if number not in partners:  # its translation is lost, or has found its own line
            dropped.setdefault(number, "misaligned")
    mended: dict[int, tuple[str, ...]] = {}
    for kind in MENDED:
        for number in by_kind.get(kind, ()):
            mended[number] = (*mended.get(number, ()), kind)
    return Plan(dropped, frozenset(by_kind.get("swapped", ())), mended, partners)


def _find_partners(diagnosis: Diagnosis) -> dict[int, int]:
    """Of each shifted line, the line of its translation, unless that one is aligned where it stands, or taken."""
    runs = diagnosis.train.runs
    in_runs = {number for run in runs for number in range(run.first, run.last + 1)}
    partners: dict[int, int] = {}
    taken = 0
    for run in runs:
        for number in range(run.first, run.last + 1) if run.shift is not None else ():
            partner = number + (run.shift or 0)
            # Where a run with a smaller shift follows at once, its first lines have lost their translations.
            if partner in in_runs and partner > taken:
                partners[number] = taken = partner
    return partners
