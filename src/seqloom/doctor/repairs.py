"""Repairs of a parallel text after a diagnosis: a repaired copy in a separate folder, with a log of every change."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from seqloom.core.errors import UsageError
from seqloom.core.events import Event, Listener, ignore
from seqloom.core.files import fsync, open_output, require_new
from seqloom.core.text_files import bare_name
from seqloom.data.corpus import Line, ParallelCorpus
from seqloom.data.corpus_files import Part, parts_of
from seqloom.doctor.alignment import MAX_SHIFT
from seqloom.doctor.characters import repair_characters, strip_tags
from seqloom.doctor.examination import Diagnosis
from seqloom.doctor.faults import Fault
from seqloom.doctor.leakage import leaked_into

DROPPED = {
    "header": "header line",
    "empty": "one side is empty",
    "leakage": "also in another split",
    "copies": "the target equals the source",
    "script": "not in the script of its side",
    "duplicates": "repeats an earlier pair",
    "near-duplicates": "repeats an earlier pair except for case, spaces or punctuation",
    "language": "both sides look like one language",
    "foreign": "fits neither side",
    "unrelated": "target is not a translation of the source",
    "ratios": "one side much longer than the other",
    "long": "very long",
    "near-leakage": "in another split except for one word",
    "templates": "repeats an earlier pair with other numbers",
    "accents": "characters lost in conversion",
    "cut": "one side is truncated",
    "boundaries": "part of its translation is in an adjacent line",
    "one-sided": "an address, emoji or note on one side only",
}
"""Kinds of faults whose lines are dropped. The first kind that applies is logged as the reason."""

REPAIRED = {
    "garbled": "a double encoding, or control characters",
    "invisible": "invisible characters",
    "spelling": "an HTML entity, or decomposed accents",
    "markup": "HTML tags",
}
"""Kinds whose characters are repaired in place."""

REASONS = {
    **DROPPED,
    **REPAIRED,
    "swapped": "source and target were swapped",
    "misaligned": "its translation is in another line",
}

REPAIRS: tuple[str, ...] = (*DROPPED, *REPAIRED, "swapped", "misaligned")
SAFE: tuple[str, ...] = ("header", "empty", "leakage", "copies", "script", "duplicates")
SAFE += ("garbled", "invisible", "spelling")
"""Repairs that need no judgement of meaning."""

LOST = "no translation found nearby"
"""Why a line of a shifted run is dropped instead of paired with another line."""

LOG, REPORT = "repairs.tsv", "report.html"
PROGRESS_INTERVAL = 20_000


@dataclass(frozen=True)
class Repaired:
    """The files and counts of a repair."""

    files: tuple[Path, ...]
    log: Path
    kept: int
    dropped: int
    changed: int
    reasons: Mapping[str, int]
    """How many lines were dropped or changed, by the kind of their fault."""
    left: tuple["Left", ...] = ()
    """Faults that should be repaired and were not."""


@dataclass(frozen=True)
class Left:
    """A fault that is still in the text."""

    title: str
    split: str
    count: int
    """Its number of lines; 0 if the whole split is affected."""
    repair: str | None
    """The repair that would fix it; None if there is no automatic one."""


def choose_repairs(words: str) -> tuple[str, ...]:
    """Parse the value of --fix: `safe`, `all`, or names separated by commas."""
    chosen: list[str] = []
    for name in filter(None, (word.strip() for word in words.split(","))):
        if name not in ("safe", "all", *REPAIRS):
            raise UsageError(f"--fix {name}: unknown repair; choose safe, all, or any of {', '.join(REPAIRS)}")
        chosen += SAFE if name == "safe" else REPAIRS if name == "all" else [name]
    if not chosen:
        raise UsageError("--fix is empty; give safe, all, or names such as copies,duplicates")
    return tuple(dict.fromkeys(chosen))


def repair(diagnosis: Diagnosis, kinds: Sequence[str], folder: Path, *, listener: Listener = ignore) -> Repaired:
    """Write a repaired copy of the training text into a folder. The original is never modified."""
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
            for number, row in enumerate(_write_parts(make_plan(diagnosis, kinds), corpus, paths, Path(made)), start=1):
                kept, dropped = kept + row.is_kept, dropped + (not row.is_kept)
                if row.what:
                    reasons[row.kind] += 1
                    journal.writelines(
                        f"{row.number}\t{file}\t{row.what}\t{row.kind}: {row.why}\n" for file in row.files
                    )
                if number % PROGRESS_INTERVAL == 0 or number == len(corpus):
                    listener(Event("progress", {"what": "repairing", "done": number, "all": len(corpus)}))
        for path in (log, *files):
            (Path(made) / path.name).replace(path)
    fsync(folder)
    changed = reasons.total() - dropped
    return Repaired(files, log, kept, dropped, changed, dict(reasons), left_over(diagnosis, kinds))


@dataclass(frozen=True)
class _Row:
    """A line of a file and what was done with it."""

    number: int
    files: tuple[Path, ...]
    """Files whose text changed: both if the pair was dropped or swapped."""
    is_kept: bool
    what: str
    kind: str

    @property
    def why(self) -> str:
        """The reason given in the log."""
        return LOST if self.kind == "misaligned" and not self.is_kept else REASONS[self.kind]


def _write_parts(
    plan: "RepairPlan", corpus: ParallelCorpus, paths: Sequence[Sequence[Path]], folder: Path
) -> Iterator[_Row]:
    """Write the parts one after another: there may be more of them than files can be open."""
    for part, steps in groupby(plan.apply(corpus), key=lambda step: step[0].file):
        with ExitStack() as stack:
            streams = [stack.enter_context(open_output(folder / path.name)) for path in paths[part]]
            for number, (line, repaired, what, kind) in enumerate(steps, start=1):
                if repaired is not None:
                    texts = repaired if len(streams) == 2 else ["\t".join(repaired)]
                    for text, stream in zip(texts, streams, strict=True):
                        # Reading strips one CR before the line end, so a line that ends in CR needs a second one.
                        stream.write(text + ("\r\n" if text.endswith("\r") else "\n"))
                files = corpus.parts[part]  # whose line was dropped or changed
                if repaired is not None and len(files) == 2:
                    changes = zip(files, (line.source, line.target), repaired, strict=True)
                    files = tuple(path for path, old, new in changes if old != new)
                yield _Row(number, files, repaired is not None, what, kind)


def left_over(diagnosis: Diagnosis, kinds: Sequence[str]) -> tuple[Left, ...]:
    """Faults above `note` that these repairs, which change only the training text, do not cover."""

    def repair_of(fault: Fault) -> str | None:
        # These are reported for dev and test, but removed from the training text.
        is_repairable = fault.split == "train" or fault.kind in ("leakage", "near-leakage")
        return fault.kind if is_repairable and fault.kind in REPAIRS else None

    return tuple(
        Left(fault.title, fault.split, len(fault.lines), repair_of(fault))
        for fault in diagnosis.faults
        if fault.severity != "note" and (repair_of(fault) is None or fault.kind not in kinds)
    )


def places_of(train: Sequence[Path], folder: Path) -> list[Path]:
    """The files that a repair writes: the log and the repaired copy."""
    return [folder / LOG, *(path for part in _places(parts_of(train), folder) for path in part)]


def _places(parts: Sequence[Part], folder: Path) -> list[list[Path]]:
    """The repaired files of each part: the original names, decompressed; .tsv unless there are two plain files."""
    places = []
    for number, part in enumerate(parts, start=1):
        names = [bare_name(path) for path in part]
        if len(names) == 1:
            names = [f"{names[0].removesuffix('.tsv')}.tsv"]
        places.append([folder / (f"{number}-{name}" if len(parts) > 1 else name) for name in names])
    return places


def require_places(outputs: Sequence[Path], *, inputs: Sequence[Path]) -> None:
    """Refuse outputs that exist or would be written twice, before anything is read."""
    for path in outputs:
        if any(path.exists() and given.exists() and path.samefile(given) for given in inputs):
            raise UsageError(f"{path} is the input itself, which is never modified; choose another folder with --out")
        if outputs.count(path) > 1:
            namesake = {LOG: "the log of repairs has that name", REPORT: "the report has that name"}
            why = namesake.get(path.name, "source and target have the same name")
            raise UsageError(f"{path} would be written twice: {why}; rename the text")
        # Not even the output of an earlier examination: it may have been edited since.
        require_new(path)


# --- the plan --------------------------------------------------------------------------------------------------------

Step = tuple[Line, tuple[str, str] | None, str, str]
"""A line, its repaired pair (None: dropped), what was done, and for which kind of fault."""


@dataclass(frozen=True)
class RepairPlan:
    """What to do with each line, by line number."""

    dropped: Mapping[int, str]
    swapped: frozenset[int]
    repaired: Mapping[int, tuple[str, ...]]
    """Lines whose characters are repaired, with the kinds of their faults."""
    partners: Mapping[int, int]
    """Shifted lines and the lines that hold their translations."""

    def apply(self, corpus: ParallelCorpus) -> Iterator[Step]:
        """Each line with its repair."""
        for line, find in around(corpus):
            number = line.number
            if number in self.dropped:
                yield line, None, "dropped", self.dropped[number]
                continue
            pair, what, kind = (line.source, line.target), "", ""
            if number in self.partners:
                partner = find(self.partners[number])
                if partner is None or partner.file != line.file:
                    yield line, None, "dropped", "misaligned"
                    continue
                pair, kind = (line.source, partner.target), "misaligned"
                what = f"paired with the target {self.partners[number] - number:+d} lines away"
            if number in self.swapped:
                pair, what, kind = (pair[1], pair[0]), "sides swapped", "swapped"
            if number in self.repaired:
                clean = self._clean(number, pair[0]), self._clean(number, pair[1])
                if clean != pair:
                    pair, kind = clean, kind or self.repaired[number][0]
                    what = f"{what}; characters repaired" if what else "characters repaired"
            yield line, pair, what, kind

    def _clean(self, number: int, text: str) -> str:
        """The text repaired according to the faults of its line."""
        kinds = self.repaired[number]
        text = strip_tags(text) if "markup" in kinds else text
        return repair_characters(text) if kinds != ("markup",) else text


def around(lines: Iterable[Line]) -> "Iterator[tuple[Line, Callable[[int], Line | None]]]":
    """Each line with a function that finds the lines around it."""
    window: deque[Line] = deque(maxlen=2 * MAX_SHIFT + 1)
    waiting: deque[Line] = deque()

    def find(number: int) -> Line | None:
        return next((line for line in window if line.number == number), None)

    for line in lines:
        window.append(line)
        waiting.append(line)
        if len(waiting) > MAX_SHIFT:
            yield waiting.popleft(), find
    while waiting:
        yield waiting.popleft(), find


def make_plan(diagnosis: Diagnosis, kinds: Sequence[str]) -> RepairPlan:
    """Decide what to do with every line; the first reason to drop a line wins."""
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
        if number not in partners:  # its translation is lost, or belongs to another line
            dropped.setdefault(number, "misaligned")
    repaired: dict[int, tuple[str, ...]] = {}
    for kind in REPAIRED:
        for number in by_kind.get(kind, ()):
            repaired[number] = (*repaired.get(number, ()), kind)
    return RepairPlan(dropped, frozenset(by_kind.get("swapped", ())), repaired, partners)


def _find_partners(diagnosis: Diagnosis) -> dict[int, int]:
    """The line of the translation of each shifted line, unless that line is aligned or already used."""
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
