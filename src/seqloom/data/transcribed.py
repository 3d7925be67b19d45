"""Recordings, strokes or images with their transcripts: tables that name them, and the frames of a run, stored.

    digits/17.wav<tab>four two seven                              TSV; the other order will do as well
    {"file": "digits/17.wav", "text": "four two seven"}           JSONL
    {"strokes": [[[0, 3], [1, 9]], [[2, 2]]], "text": "four"}     JSONL; points [x, y] of each stroke, y downwards

Names of files are relative to the table. A first line that names the columns is left out. Every file is read and
decoded when a table is opened, so that all that is wrong is known, with its line, before anything slow.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32, Int64, UInt

from seqloom.core.arrays import ArrayFolder, ArrayFolderWriter, ArrayLayout, borders, damaged, open_folder
from seqloom.core.errors import DataError, Problem, Problems, UsageError
from seqloom.core.files import LineReader, matching_files, sha256_of
from seqloom.core.text_files import OnBad, bare_name
from seqloom.data.frames import (
    SUFFIXES,
    FrameKind,
    Frames,
    FramesConfig,
    Source,
    Strokes,
    kind_of,
    read_strokes,
    stroke_frames,
)
from seqloom.data.images import read_image
from seqloom.data.waves import read_wave
from seqloom.text.formats.jsonl import BadRecord, parse_record
from seqloom.text.normalise import is_blank

TEXT_HEADINGS = ("text", "transcript", "transcription", "sentence")
"""Names of the column or member of a transcript."""

FILE_MEMBERS = ("file", "path", "audio", "image")
"""Names of the member of a record that names a file."""


class TextForm(NamedTuple):
    """What the texts of a table are, and how messages call them."""

    noun: str
    headings: tuple[str, ...]
    """Names of their column or member."""
    forms: str
    """Which tables are expected."""
    remedy: str
    """What to write where a text is empty."""
    has_several: bool = False
    """Whether a record may have a list of them."""


TRANSCRIPTS = TextForm(
    "transcript",
    TEXT_HEADINGS,
    'a table with the name of a file, a tab and its transcript in each line, or JSON records with "file" or "strokes", '
    'and "text"',
    "write what it says",
)


class Sample(NamedTuple):
    """What is transcribed, and its transcript; None if it is not known."""

    source: Source
    text: str | None
    file: str
    """The table."""
    line: int

    def name(self) -> str:
        """For messages and results."""
        return str(self.source) if isinstance(self.source, Path) else f"{self.file}:{self.line}"


# --- tables ----------------------------------------------------------------------------------------------------------


class _BadLine(Exception):
    """A line without a sample or a transcript."""


def is_table(path: Path) -> bool:
    """Whether a file names samples, by its own name: all others are samples."""
    return Path(bare_name(path)).suffix.lower() in (".tsv", ".txt", ".jsonl", ".ndjson")


def read_tables(
    paths: Sequence[Path],
    *,
    encoding: str = "utf-8",
    on_bad: OnBad = "error",
    needs_text: bool = True,
    form: TextForm = TRANSCRIPTS,
) -> list[Sample]:
    """The samples that tables name, in their order. A DataError names all lines that are wrong; no sample is read yet.

    `needs_text` says that each must have a text of this `form`.
    """
    samples: list[Sample] = []
    problems: list[Problem] = []
    for path in [each for name in paths for each in matching_files(name)]:
        try:
            found = list(_read_table(path, encoding=encoding, on_bad=on_bad, needs_text=needs_text, form=form))
        except DataError as error:
            problems += error.problems or [Problem(str(error))]
            continue
        if not found:
            problems.append(Problem(f"no samples; expected {form.forms}", str(path)))
        samples += found
    if problems:
        raise DataError(problems=problems)
    kinds = {kind_of(sample.source): sample for sample in samples}
    if len(kinds) > 1:
        one, other = list(kinds.items())[:2]
        message = f"{other[1].name()} is of kind {other[0]}, but {one[1].name()} is of kind {one[0]}; train on one kind"
        raise DataError(problems=[Problem(message, other[1].file, other[1].line)])
    return samples


def _read_table(path: Path, *, encoding: str, on_bad: OnBad, needs_text: bool, form: TextForm) -> Iterator[Sample]:
    reader, problems = LineReader(path, encoding, on_bad=on_bad), Problems()
    first = [line for line in islice(reader, 2) if line.strip()]
    if not first:
        return
    is_json, columns = first[0].lstrip().startswith("{"), _Columns(0, None, 0, False)
    if not is_json:
        columns = _find_columns(path, [line.split("\t") for line in first], needs_text=needs_text, form=form)
    for number, line in enumerate(reader, start=1):
        is_skipped = on_bad == "skip" and not line and number in reader.decoder.bad
        if is_skipped or (number == 1 and columns.has_heading):
            continue
        try:
            if is_blank(line):
                raise _BadLine(f"blank; expected a file and its {form.noun}")
            source, texts = _of_record(line, path, form) if is_json else _of_row(line.split("\t"), columns, path)
            if needs_text and any(text is None or is_blank(text) for text in texts):
                name = source if isinstance(source, Path) else "the strokes"
                raise _BadLine(f"the {form.noun} of {name} is empty; {form.remedy}, or remove the line")
        except (_BadLine, BadRecord) as error:
            problems.add(str(error), path, number)
            continue
        yield from (Sample(source, text, str(path), number) for text in texts)
    problems.require_none()


class _Columns(NamedTuple):
    """Where a table has its files and transcripts."""

    file: int
    text: int | None
    width: int
    has_heading: bool


def _find_columns(path: Path, rows: Sequence[list[str]], *, needs_text: bool, form: TextForm) -> _Columns:
    """Found in the first two lines: the column of files has names with a known ending."""

    def files_in(row: list[str]) -> list[int]:
        return [at for at, cell in enumerate(row) if Path(cell.strip()).suffix.lower() in SUFFIXES]

    has_heading = not files_in(rows[0]) and len(rows) > 1 and len(files_in(rows[1])) == 1
    row = rows[has_heading]
    found, width = files_in(row), len(row)
    if len(found) != 1:
        message = f"{len(found) or 'no'} column{'s' * (len(found) != 1)} with a file ({', '.join(SUFFIXES)}); expected "
        raise DataError(problems=[Problem(message + form.forms, str(path), 1 + has_heading)])
    others = [at for at in range(width) if at != found[0]]
    if has_heading and len(others) > 1:
        named = [at for at, name in enumerate(rows[0]) if name.strip().lower() in form.headings]
        others = [at for at in named if at in others]
    if len(others) > 1 or (not others and (needs_text or width > 1)):
        message = f"{width} columns; expected two, a file and its {form.noun}, or a first line that names one of them "
        raise DataError(problems=[Problem(message + " or ".join(form.headings), str(path), 1)])
    return _Columns(found[0], others[0] if others else None, width, has_heading)


def _of_row(cells: list[str], columns: _Columns, path: Path) -> tuple[Source, list[str | None]]:
    if len(cells) != columns.width:
        raise _BadLine(f"{len(cells)} columns separated by tabs, expected {columns.width}")
    text = None if columns.text is None else cells[columns.text].strip()
    return _source(cells[columns.file].strip(), path), [text]


def _of_record(line: str, path: Path, form: TextForm) -> tuple[Source, list[str | None]]:
    record = parse_record(line)
    found = next(((name, record[name]) for name in form.headings if record.get(name) is not None), None)
    texts: list[str | None] = [None]
    if found is not None:
        name, value = found
        given = value if form.has_several and isinstance(value, list) and value else [value]
        if not all(isinstance(text, str) for text in given):
            several = ", or a list of strings" if form.has_several else ""
            raise _BadLine(f'"{name}" is {str(value)[:40]}; expected a string{several}')
        texts = [" ".join(text.split()) for text in given]
    if "strokes" in record:
        try:
            return Strokes.of(record["strokes"]), texts
        except DataError as error:
            raise _BadLine(str(error)) from error
    file: Any = next((record[member] for member in FILE_MEMBERS if member in record), None)
    if not isinstance(file, str) or not file.strip():
        raise _BadLine(f'neither "strokes" nor "file"; the members are {", ".join(record)[:80] or "none"}')
    return _source(file.strip(), path), texts


def _source(name: str, table: Path) -> Path:
    if "\0" in name:
        raise _BadLine("the name of the file has a NUL byte in it")
    path = table.parent / name
    if path.suffix.lower() not in SUFFIXES:
        raise _BadLine(f"{name}: the ending {path.suffix!r} is not one of {', '.join(SUFFIXES)}")
    return path


# --- checking --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Checked:
    """Samples that can all be decoded."""

    samples: tuple[Sample, ...]
    kind: FrameKind
    frames: Int64[np.ndarray, " samples"]
    """About how many frames each has."""
    rate: int
    """Sound: the lowest rate of all recordings; 0 for others."""
    fingerprint: str
    """A hash of samples and transcripts."""

    def __len__(self) -> int:
        return len(self.samples)


def check_samples(
    samples: Sequence[Sample],
    config: FramesConfig,
    *,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> Checked:
    """Decode all samples once. A DataError names those that cannot be, with the lines of their tables."""
    if not samples:
        raise UsageError("no samples were given")
    digest, problems = hashlib.sha256(), Problems()
    frames, rates = np.zeros(len(samples), np.int64), {0}
    for place, sample in enumerate(samples):
        source = sample.source
        digest.update((sample.text or "").encode("utf-8", "surrogatepass") + b"\n")
        try:
            if isinstance(source, Strokes):
                frames[place] = len(stroke_frames(source, spacing=config.spacing))
                for stroke in source.strokes:
                    digest.update(stroke.tobytes() + b"\n")
            elif kind_of(source) == "strokes":
                frames[place] = len(stroke_frames(read_strokes(source), spacing=config.spacing))
            elif kind_of(source) == "sound":
                wave = read_wave(source)
                frames[place] = max(1, round(wave.seconds / config.mel.hop))
                rates.add(wave.rate)
            else:
                height, width, _ = read_image(source).shape
                frames[place] = max(1, round(width * config.height / height))
            if isinstance(source, Path):
                digest.update(sha256_of(source).encode())
        except (DataError, UsageError) as error:
            problems.add(str(error), Path(sample.file), sample.line)
        progress(place + 1, len(samples))
    problems.require_none()
    kind = kind_of(samples[0].source)
    assert kind is not None  # a table names no others
    return Checked(tuple(samples), kind, frames, min(rates - {0}, default=0), digest.hexdigest())


# --- frames of a run -------------------------------------------------------------------------------------------------

# A folder with raw little-endian arrays and a header, as `data.store` writes its own:
#
#     frames      the features of all frames, sample after sample (float32)
#     lengths     frames of each sample (uint32)
#     ids         symbols of all transcripts, without BEGIN and END
#     symbols     how many each has (uint32)
#     lines       its number among the samples, counted from 1 (int64)

LAYOUT = ArrayLayout(
    "store of frames",
    "frames.json",
    1,
    lambda ids: {"frames": "<f4", "lengths": "<u4", "ids": ids, "symbols": "<u4", "lines": "<i8"},
)


class FrameWriter:
    """Appends samples to a new store. The folder appears when all of it is on disk."""

    def __init__(self, folder: Path, *, symbols: int) -> None:
        self._writer = ArrayFolderWriter(folder, LAYOUT, symbols=symbols)
        self.samples = 0

    def append(self, frames: Frames, ids: Sequence[int], *, line: int) -> None:
        """Add a sample with its transcript."""
        self._writer.append(
            {
                "frames": frames,
                "lengths": np.array([len(frames)]),
                "ids": self._writer.ids([ids]),
                "symbols": np.array([len(ids)]),
                "lines": np.array([line]),
            }
        )
        self.samples += 1

    def __enter__(self) -> "FrameWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._writer.end(self.samples, is_good=kind is None, nothing="no samples are left to store")


class FrameStore:
    """The samples of a folder that a FrameWriter has made, mapped into memory."""

    lengths: UInt[np.ndarray, " samples"]
    symbols: UInt[np.ndarray, " samples"]
    lines: Int64[np.ndarray, " samples"]

    def __init__(self, folder: ArrayFolder, features: int) -> None:
        names = ("lengths", "symbols", "lines")
        self.lengths, self.symbols, self.lines = (folder.arrays[name] for name in names)
        self.ids: UInt[np.ndarray, " symbols"] = folder.arrays["ids"]
        self._frames: Float32[np.ndarray, "frames features"] = folder.arrays["frames"].reshape(-1, features)
        self._begins, self._first_ids = borders(self.lengths), borders(self.symbols)
        self._folder = folder

    @staticmethod
    def open(folder: Path, *, features: int) -> "FrameStore":
        """Map a store into memory, after its hashes were compared with the header."""
        found = open_folder(folder, LAYOUT, verify=True)
        arrays = found.arrays
        total, samples = int(arrays["lengths"].sum(dtype=np.int64)), len(arrays["lengths"])
        if total * features != len(arrays["frames"]):
            raise damaged(folder, LAYOUT, f"{total:,} frames have {len(arrays['frames']):,} numbers")
        if int(arrays["symbols"].sum(dtype=np.int64)) != len(arrays["ids"]):
            raise damaged(folder, LAYOUT, f"{len(arrays['ids']):,} symbols are not as many as are counted")
        if not samples == len(arrays["symbols"]) == len(arrays["lines"]):
            raise damaged(folder, LAYOUT, f"{samples:,} samples have {len(arrays['symbols']):,} transcripts")
        return FrameStore(found, features)

    def __len__(self) -> int:
        return len(self.lengths)

    def frames(self, sample: int) -> Frames:
        """The frames of a sample, neither varied nor normalised."""
        return self._frames[self._begins[sample] : self._begins[sample + 1]]

    def target(self, sample: int) -> Int64[np.ndarray, " symbols"]:
        """The symbols of its transcript."""
        return self.ids[self._first_ids[sample] : self._first_ids[sample + 1]].astype(np.int64)

    def drop_pages(self) -> None:
        """Release memory, so that that of a run does not grow with its samples."""
        self._folder.drop_pages()

    def fingerprint(self) -> str:
        """A hash of all that is stored."""
        return self._folder.fingerprint()
