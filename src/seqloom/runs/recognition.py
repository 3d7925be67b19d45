"""Which task files are meant for, told by their shape.

Each kind has a predicate that looks at the first lines of the training files and gives its reason, or None:

    images           a folder with a subfolder of images per class, or an .npz file
    tagging          .conllu, or a word and its tags in each line with blank lines between sentences
    transcription    a table that names recordings, strokes or images, with their transcripts
    captioning       a table that names images, with their captions
    forecasting      a table of numbers, with or without a heading and times
    classification   few labels: in a column, before the line, as __label__X, or in records
    turns            a play or a chat: names and colons before what is said
    translation      two texts, a table of both, or a file of translators

No reading, or translation alone, leaves the default. Two readings are refused with both commands. `task.kind`,
`model.kind` and `data.unit=turn` overrule: then nothing is looked at. Only regular files are opened, as a pipe can be
read once.
"""

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from seqloom.core.errors import DataError, SeqloomError, UsageError
from seqloom.core.files import matching_files
from seqloom.core.text_files import LineDecoder, bare_name, open_bytes
from seqloom.data.frames import SUFFIXES, FrameKind
from seqloom.data.labelled import MARK, MAX_LABELS, USUAL_LABELS
from seqloom.data.series import SeriesForm, find_series_form
from seqloom.data.tokens import value_columns
from seqloom.data.transcribed import FILE_MEMBERS, TEXT_HEADINGS
from seqloom.runs.config import TASKS
from seqloom.text.formats.conllu import find_layout
from seqloom.text.formats.jsonl import BadRecord, parse_record
from seqloom.text.formats.readers import FORMATS, format_of, is_tsv
from seqloom.text.formats.segments import Format
from seqloom.text.formats.turns import is_chat, named_turn, speeches

SAMPLED_LINES = 5_000
"""Lines at the beginning of each file that are looked at."""

SAMPLED_BYTES = 1 << 20
"""Bytes at the beginning of each file that are looked at; a line that they cut is left out."""

MOST = 0.9
"""The share of the lines that must have a shape: those that have not are errors of that kind of file."""

MIN_ROWS = 8
"""Rows of numbers that are taken for a series."""

MIN_TURNS = 8
"""Turns that are taken for a dialogue."""

MIN_REPEATS = 3
"""Lines that a label has at least, on average; with more than `USUAL_LABELS` labels ten."""

MAX_SENTENCE_WORDS = 300
"""Words of a sentence, on average, up to which blank lines in a file of tokens end sentences."""

CAPTION_HEADINGS = ("caption", "captions")
"""Names of the column or member of a caption."""

MIN_CAPTION_WORDS = 3
"""Words on average from which the texts of images may be captions."""

READS_CAPTIONS = "captioning" in TASKS
"""Without that task, images with texts are transcribed."""

_LABEL = re.compile(r"[\w.:+/&-]{1,40}")
_LETTER = re.compile(r"[^\W\d_]")


@dataclass(frozen=True)
class Reading:
    """A task that the files may be meant for."""

    setting: str
    """Chooses it."""
    reason: str


@dataclass(frozen=True, eq=False)
class TrainFiles:
    """The beginning of training files, as predicates look at it."""

    paths: tuple[Path, ...]
    lines: tuple[tuple[str, ...], ...]
    """The first lines of each, without line ends; none of folders and of files that hold no text."""

    @staticmethod
    def open(names: Sequence[str], *, formats: Sequence[Format] = FORMATS, encoding: str = "utf-8") -> "TrainFiles":
        """Read the first lines. A SeqloomError says that a file cannot be read as text."""
        paths = tuple(path for name in names for path in matching_files(Path(name)))

        def first_lines(path: Path) -> tuple[str, ...]:
            found = format_of(path, formats)
            is_text = found is None or ".jsonl" in found.suffixes
            if not path.is_file() or not is_text or path.suffix.lower() == ".npz":
                return ()
            decoder = LineDecoder(str(path), encoding)
            with open_bytes(path) as file:
                begin = file.read(SAMPLED_BYTES)
                lines = decoder.feed(begin)
                if len(begin) < SAMPLED_BYTES:
                    lines = [*lines, *decoder.feed(b"")]
            return tuple(lines[:SAMPLED_LINES])

        return TrainFiles(paths, tuple(map(first_lines, paths)))

    @cached_property
    def records(self) -> tuple[list[dict[str, Any]], ...] | None:
        """The records of each file, if all files are lines of JSON records."""
        found = []
        for lines in self.lines:
            filled = [line for line in lines if line.strip()]
            if not filled or not filled[0].lstrip().startswith("{"):
                return None
            records = []
            for line in filled:
                try:
                    records.append(parse_record(line))
                except BadRecord:
                    continue
            if len(records) < MOST * len(filled):
                return None
            found.append(records)
        return tuple(found) if found else None

    @cached_property
    def tables(self) -> tuple[list[list[str]], ...] | None:
        """The rows of each file, if all files have columns between tabs; rows of another width are left out."""
        found = []
        for lines in self.lines:
            rows = [line.split("\t") for line in lines if line.strip()]
            width = Counter(map(len, rows)).most_common(1)[0][0] if rows else 1
            even = [[cell.strip() for cell in row] for row in rows if len(row) == width]
            if width < 2 or len(even) < MOST * len(rows):
                return None
            found.append(even)
        return tuple(found) if found else None

    @cached_property
    def named_kinds(self) -> set[FrameKind] | None:
        """What the files are that tables or records name, if they name some."""
        kinds: set[FrameKind] = set()
        if self.records is not None:
            for records in self.records:
                found = [kind for record in records if (kind := _kind_in_record(record)) is not None]
                if len(found) < MOST * len(records):
                    return None
                kinds |= set(found)
            return kinds
        for rows in self.tables or ():
            columns = [
                [SUFFIXES.get(Path(cell).suffix.lower()) for cell in column] for column in zip(*rows, strict=True)
            ]
            named = [
                kinds_of for kinds_of in columns if len(rows) - kinds_of.count(None) >= max(1, MOST * len(rows) - 1)
            ]
            if len(named) != 1:
                return None
            kinds |= {kind for kind in named[0] if kind is not None}
        return kinds or None

    @cached_property
    def words_of_a_text(self) -> float:
        """Words beside the name of a file, on average."""
        texts = [
            [str(value) for name, value in record.items() if name in TEXT_HEADINGS]
            for records in self.records or ()
            for record in records
        ] or [
            [cell for cell in row if Path(cell).suffix.lower() not in SUFFIXES]
            for rows in self.tables or ()
            for row in rows
        ]
        return sum(len(text.split()) for row in texts for text in row) / max(1, len(texts))

    @cached_property
    def headings(self) -> set[str]:
        """The names of members or, if the first line of a table names files nowhere, of columns."""
        if self.records is not None:
            return {name for records in self.records for name in records[0]}
        return {cell.lower() for rows in self.tables or () for cell in rows[0] if len(rows) > 1}


def _kind_in_record(record: Mapping[str, Any]) -> FrameKind | None:
    if "strokes" in record:
        return "strokes"
    named = (record[name] for name in FILE_MEMBERS if isinstance(record.get(name), str))
    return next((SUFFIXES.get(Path(name).suffix.lower()) for name in named), None)


# --- predicates -------------------------------------------------------------------------------------------------------


def images(files: TrainFiles) -> str | None:
    """One folder with a subfolder of images per class, or one .npz file."""
    if len(files.paths) != 1:
        return None
    path = files.paths[0]
    if path.suffix.lower() == ".npz":
        return "an .npz file holds arrays of images with labels"
    if not path.is_dir():
        return None
    classes = [each for each in sorted(path.iterdir()) if each.is_dir() and not each.name.startswith(".")]
    filled = [each for each in islice(classes, 100) if any(map(_is_image, islice(each.iterdir(), 100)))]
    if len(filled) < max(2, MOST * min(100, len(classes))):
        return None
    shown = ", ".join(each.name for each in classes[:3]) + (", …" if len(classes) > 3 else "")
    return f"a folder with images in {len(classes):,} subfolders, one per class ({shown})"


def _is_image(path: Path) -> bool:
    return SUFFIXES.get(path.suffix.lower()) == "image"


def tagging(files: TrainFiles) -> str | None:
    """CoNLL-U, or token columns with blank lines between sentences."""
    reason = None
    for path, lines in zip(files.paths, files.lines, strict=True):
        try:
            layout = find_layout(path, lines)
        except DataError:
            return None
        if not lines or not value_columns(layout):
            return None
        reason = reason or layout.seen
        if layout.is_conllu:
            continue
        texts = [line for line in lines if line.strip()]
        ends = sum(not after.strip() and bool(line.strip()) for line, after in pairwise(lines))
        rows = [layout.cells(line) for line in texts]
        rows = [row for row in rows if len(row) == len(layout.columns)]
        if not ends or len(rows) < MOST * len(texts) or not 1.5 <= len(rows) / ends <= MAX_SENTENCE_WORDS:
            return None
        if sum(" " in cell for row in rows for cell in row) > (1 - MOST) * len(rows):
            return None
        forms = {row[layout.place("form")] for row in rows}
        counts = [len({row[layout.place(name)] for row in rows}) for name in value_columns(layout)]
        if not any(1 < count <= max(USUAL_LABELS, len(rows) / 10) and count < len(forms) for count in counts):
            return None
    return reason


def transcription(files: TrainFiles) -> str | None:
    """A table that names recordings, strokes or images, and has a transcript for each."""
    if not files.named_kinds or (READS_CAPTIONS and files.headings & set(CAPTION_HEADINGS)):
        return None
    if files.records is not None and not files.headings & set(TEXT_HEADINGS):
        return None
    return f"it names {_named(files)} and has a text for each"


def captioning(files: TrainFiles) -> str | None:
    """A table that names images, and has a caption for each: a column of that name, or texts of several words."""
    if not READS_CAPTIONS or files.named_kinds != {"image"}:
        return None
    if not files.headings & set(CAPTION_HEADINGS) and files.words_of_a_text < MIN_CAPTION_WORDS:
        return None
    return f"it names {_named(files)} and has a text for each"


def _named(files: TrainFiles) -> str:
    words = {"sound": "recordings", "strokes": "strokes", "image": "images"}
    return " and ".join(words[kind] for kind in sorted(files.named_kinds or ()))


def forecasting(files: TrainFiles) -> str | None:
    """One table of numbers."""
    if len(files.paths) != 1 or files.named_kinds:
        return None
    path, lines = files.paths[0], files.lines[0]
    try:
        form = find_series_form(path, lines)
    except DataError:
        return None
    good = total = 0
    for line in lines[form.has_heading :]:
        cells = line.replace('"', "").split(form.separator) if line.strip() else []
        total += len(cells)
        good += sum(at == form.time_column or _is_number(cell, form) for at, cell in enumerate(cells))
    if total < MIN_ROWS * form.columns or good < MOST * total:
        return None
    series = form.columns - (form.time_column is not None)
    times = "no times" if form.time_column is None else f"times in column {form.time_column + 1}"
    heading = "a heading" if form.has_heading else "no heading"
    return f"a table of numbers: {series:,} column{'s' if series > 1 else ''}, {times}, {heading}"


def _is_number(cell: str, form: SeriesForm) -> bool:
    """Whether a cell has a number, or says that it is missing."""
    try:
        form.number(cell)
    except ValueError:
        return False
    return True


@dataclass(frozen=True)
class _Labels:
    """A column that may have labels."""

    column: int
    values: tuple[str, ...]
    """The most frequent first."""
    are_clear: bool
    """Whether they are single words, as no text is."""


def classification(files: TrainFiles) -> str | None:
    """Few labels: in records, as __label__X, in a column of a table, or before the line."""
    if files.named_kinds:
        return None
    if files.records is not None:
        return "its records have a label and a text" if {"label", "text"} <= files.headings else None
    texts = [[line for line in lines if line.strip()] for lines in files.lines]
    if not texts or not all(texts):
        return None
    if all(sum(line.lstrip().startswith(MARK) for line in lines) >= MOST * len(lines) for lines in texts):
        return f"its lines begin with {MARK}"
    if files.tables is not None and tagging(files) is None:
        labels = _column_of_labels(files.tables)
        return None if labels is None else f"column {labels.column + 1} has few values: {_shown(labels.values)}"
    if len(files.paths) == 1 and files.tables is None:
        return _labels_before(files.paths[0], texts[0])
    return None


def _column_of_labels(tables: Sequence[Sequence[Sequence[str]]]) -> _Labels | None:
    """The one column that has few different values, if the others have text with many."""
    rows = [row for table in tables for row in table]
    width = len(rows[0])
    if width not in (2, 3) or any(len(row) != width for row in rows):
        return None
    columns = list(zip(*rows, strict=True))
    values = [Counter(column) for column in columns]
    few = [at for at in range(width) if _are_few(values[at])]
    if len(few) != 1 or not 2 * sum(map(len, values)) - 2 * len(values[few[0]]) >= (width - 1) * len(rows):
        return None
    others = [columns[at] for at in range(width) if at != few[0]]
    if any(2 * sum(_LETTER.search(cell) is not None for cell in column) < len(rows) for column in others):
        return None
    labels = tuple(value for value, _ in values[few[0]].most_common())
    are_clear = all(map(_LABEL.fullmatch, labels))
    if not are_clear and (width == 3 or len(labels) * 10 > len(rows)):
        return None
    return _Labels(few[0], labels, are_clear)


def _are_few(counts: Mapping[str, int]) -> bool:
    lines = sum(counts.values())
    repeats = MIN_REPEATS if len(counts) <= USUAL_LABELS else 10
    return 2 <= len(counts) <= MAX_LABELS and len(counts) * repeats <= lines and "" not in counts


def _labels_before(path: Path, lines: Sequence[str]) -> str | None:
    """The reason if lines of one text begin with labels: few words, which come nowhere else."""
    if bare_name(path).lower().endswith(".csv"):
        return None
    pairs = [line.strip().partition(" ") for line in lines]
    counts = Counter(label for label, _, text in pairs if text.strip())
    once = sum(count == 1 for count in counts.values())
    if counts.total() < MOST * len(lines) or not _are_few(counts) or 10 * once > len(counts):
        return None
    known = {label.lower() for label in counts}
    if not all(map(_LABEL.fullmatch, counts)) or 10 * sum(
        not known.isdisjoint(text.lower().split()) for _, _, text in pairs
    ) > len(lines):
        return None
    if 2 * sum(_LETTER.search(text) is not None for _, _, text in pairs) < len(lines):
        return None
    labels = tuple(label for label, _ in counts.most_common())
    return f"its lines begin with few words, which come nowhere else: {_shown(labels)}"


def _shown(labels: Sequence[str]) -> str:
    return ", ".join(labels[:4]) + (f", … ({len(labels):,})" if len(labels) > 4 else "")


def turns(files: TrainFiles) -> str | None:
    """A play or a chat, in one text: nearly all of its blocks or lines begin with a name and a colon."""
    if files.tables is not None or files.records is not None:
        return None
    reasons = [_turns_in(lines) for lines in files.lines]
    return reasons[0] if reasons and all(reasons) and len(reasons) != 2 else None


def _turns_in(lines: Sequence[str]) -> str | None:
    if is_chat(lines):
        what, begin = "lines", [line for line in lines if line.strip()]
    else:
        what, begin = "blocks of lines", [block[0] for _, block in speeches(lines)]
    speakers = Counter(found[0] for found in map(named_turn, begin) if found is not None)
    if speakers.total() < max(MIN_TURNS, MOST * len(begin)) or 2 * len(speakers) > speakers.total():
        return None
    return f"its {what} begin with a name and a colon: {_shown([name for name, _ in speakers.most_common()])}"


def translation(files: TrainFiles) -> str | None:
    """A table of two columns whose other reading is not certain; two texts and files of translators are the default."""
    if files.tables is None or not all(map(is_tsv, files.paths)) or files.named_kinds:
        return None
    if any(len(table[0]) != 2 for table in files.tables) or tagging(files) is not None:
        return None
    labels = _column_of_labels(files.tables)
    if labels is not None and labels.are_clear:
        return None
    if len(files.paths) == 1:
        try:
            form = find_series_form(files.paths[0], files.lines[0])
            if form.has_heading or form.time_column is not None:
                return None
        except DataError:
            pass
    return "a table of two columns, source and target"


@dataclass(frozen=True)
class Recognised:
    """A kind of training files."""

    setting: str
    """Chooses the task."""
    reason: Callable[[TrainFiles], str | None]


KINDS = (
    Recognised("model.kind=vit", images),
    Recognised("task.kind=tagging", tagging),
    Recognised("task.kind=transcription", transcription),
    Recognised("task.kind=captioning", captioning),
    Recognised("task.kind=forecasting", forecasting),
    Recognised("task.kind=classification", classification),
    Recognised("data.unit=turn", turns),
    Recognised("task.kind=translation", translation),
)


def recognise(
    names: Sequence[str], *, formats: Sequence[Format] = FORMATS, encoding: str = "utf-8"
) -> tuple[Reading, ...]:
    """The tasks that training files of these names may be meant for; none if nothing speaks against the default."""
    try:
        files = TrainFiles.open(names, formats=formats, encoding=encoding)
        found = [(kind.setting, kind.reason(files)) for kind in KINDS]
    except (SeqloomError, OSError):  # reported by whatever opens the files next
        return ()
    return tuple(Reading(setting, reason) for setting, reason in found if reason is not None)


# --- the decision -----------------------------------------------------------------------------------------------------


def overruled(settings: Mapping[str, Any]) -> bool:
    """Whether settings already say what is learned: a kind, turns, a model to start from, or two languages."""
    sections = {
        name: each for name in ("model", "task", "data", "training") if isinstance(each := settings.get(name), Mapping)
    }
    if any(sections.get(name, {}).get("kind") is not None for name in ("model", "task")):
        return True
    data = sections.get("data", {})
    has_languages = data.get("source") is not None and data.get("target") is not None
    return (
        has_languages
        or data.get("unit") == "turn"
        or bool(data.get("monolingual"))
        or sections.get("training", {}).get("start_from") is not None
    )


def require_one(
    readings: Sequence[Reading], *, names: Sequence[str], words: Sequence[str], command: str = "train"
) -> Reading | None:
    """The one reading; None for the default. A UsageError shows the commands where there are several.

    `words` follow `seqloom train`, or another command.
    """
    if len(readings) > 1:
        commands = [
            f"  seqloom {command} {each.setting} {shlex.join(words)}\n      because {each.reason}" for each in readings
        ]
        shown = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
        numbers = {2: "two", 3: "three"}
        raise UsageError(
            f"{shown} can be read in {numbers.get(len(readings), len(readings))} ways; choose one of these commands:\n"
            + "\n".join(commands)
        )
    return next((each for each in readings if each.setting != "task.kind=translation"), None)


def command_words(
    file: Path | None, overrides: Sequence[str], *, train: Sequence[str], dev: Sequence[str], out: Path | None
) -> Iterator[str]:
    """The words of a command, after `seqloom train` and the setting that chooses its task."""
    yield from [] if file is None else [str(file)]
    yield from overrides
    for option, names in (("--train", train), ("--dev", dev)):
        for name in names:
            yield from (option, name)
    yield from ("--out", "RUN" if out is None else str(out))
