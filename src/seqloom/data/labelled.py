"""Labelled texts: a class for each text or pair of texts, read from files, and stored as ids.

The form of a file is found in its first lines:

    {"label": "pos", "text": "…", "text_pair": "…"}     JSONL; text_pair only for pairs
    __label__pos The text                               fastText
    The text<tab>pos                                    TSV with one or two texts, and the label in any column
    pos The text                                        a label and a space
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from types import TracebackType
from typing import Literal, NamedTuple, Protocol

import numpy as np
from jaxtyping import Int64, Integer, UInt

from seqloom.core.arrays import ArrayFolder, ArrayFolderWriter, ArrayLayout, borders, damaged, open_folder
from seqloom.core.errors import DataError, Problem, Problems, UsageError
from seqloom.core.files import LineReader, matching_files
from seqloom.core.symbols import BEGIN, END, PAD, UNKNOWN
from seqloom.core.text_files import OnBad, bare_name
from seqloom.text.formats.jsonl import BadRecord, parse_record, require_text
from seqloom.text.formats.readers import format_of, is_tsv
from seqloom.text.normalise import is_blank

Form = Literal["jsonl", "fasttext", "tsv", "words"]

MARK = "__label__"
"""What fastText writes before a label."""

SAMPLED_LINES = 20_000
"""Lines at the beginning of a file in which its form is found."""

MAX_LABELS = 1_000
"""Different values of a column that may be labels; also at most half as many as there are lines."""

USUAL_LABELS = 20
"""So many labels are believed in a text of any length."""

CLEAR_RATIO = 10
"""A column with so many times the values of another one is not the label."""

HEADINGS = frozenset({"label", "labels", "class", "category", "target", "sentiment", "gold_label"})
"""Names of a label column in the first line of a table."""

SHOWN_VALUES = 3
"""Values of a column that a message shows."""

FORMS = (
    "a label and a space (pos The text), __label__pos The text, columns separated by tabs, or JSON records with "
    '"label" and "text"'
)


class LabelledLine(NamedTuple):
    """A text, or a pair, with its label; `number` counts lines from 1 over all files."""

    number: int
    label: str
    texts: tuple[str, ...]


class LabelledLines(Protocol):
    """Labelled texts that can be read repeatedly."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[LabelledLine]: ...


# --- the form of a file -----------------------------------------------------------------------------------------------


class _BadLine(Exception):
    """A line without a label or a text."""


@dataclass(frozen=True)
class FileForm:
    """How the lines of a file are read."""

    form: Form
    texts: int = 1
    """Texts of a line: 1, or 2 for pairs."""
    label_at: int = 0
    """TSV: the column of the label, counted from 0."""
    has_heading: bool = False
    """TSV: whether the first line names the columns."""

    def __str__(self) -> str:
        """Where the label and the texts of a line are, in words."""
        match self.form:
            case "jsonl":
                return "JSON records, " + ("label, text" if self.texts == 1 else "label, text and text_pair")
            case "fasttext":
                return f"{MARK}, label, space, text"
            case "tsv":
                columns = [str(at + 1) for at in range(self.texts + 1) if at != self.label_at]
                texts = f"text: column {columns[0]}"
                if self.texts == 2:
                    texts = f"a pair of texts: columns {' and '.join(columns)}"
                return f"a table, label: column {self.label_at + 1}; {texts}"
            case "words":
                return "label, space, text"

    def read(self, line: str) -> tuple[str, tuple[str, ...]]:
        """The label and the texts of a line."""
        if is_blank(line):
            raise _BadLine("blank; expected a label and a text")
        match self.form:
            case "jsonl":
                label, texts = self._record(line)
            case "fasttext":
                label, texts = self._fasttext(line)
            case "tsv":
                columns = line.split("\t")
                if len(columns) != self.texts + 1:
                    found = "1 column" if len(columns) == 1 else f"{len(columns)} columns"
                    raise _BadLine(f"{found} separated by tabs, expected {self.texts + 1}")
                label, texts = columns.pop(self.label_at), tuple(columns)
            case "words":
                label, _, text = line.strip().partition(" ")
                texts = (text,)
        label = label.strip()
        if is_blank(label):
            raise _BadLine("no label")
        for place, text in enumerate(texts, start=1):
            if is_blank(text):
                which = "" if self.texts == 1 else f" {place}"
                raise _BadLine(f"text{which} is empty; the label is {label!r}")
        return label, texts

    def _record(self, line: str) -> tuple[str, tuple[str, ...]]:
        try:
            record = parse_record(line)
            label = record.get("label")
            if isinstance(label, bool | int):  # as other programs write classes
                label = json.dumps(label)
            label = require_text(label)
            texts = [require_text(record.get(name)) for name in ("text", "text_pair")]
        except BadRecord as error:
            raise _BadLine(str(error)) from error
        if label is None:
            raise _BadLine(f"no label; the members are {', '.join(record)[:80] or 'none'}")
        if any(sign in label for sign in "\t\n\r"):
            raise _BadLine(f"the label {label!r} has a tab or a line end in it")
        if (texts[1] is not None) != (self.texts == 2):
            has, wanted = ("a", "has none") if texts[1] is not None else ("no", "has one")
            raise _BadLine(f'{has} "text_pair", but the first line {wanted}')
        # Line ends inside a record are spaces to a model.
        return label, tuple(" ".join((text or "").splitlines()) for text in texts[: self.texts])

    @staticmethod
    def _fasttext(line: str) -> tuple[str, tuple[str, ...]]:
        label, _, text = line.strip().partition(" ")
        if not label.startswith(MARK):
            raise _BadLine(f"no label: the line does not begin with {MARK}")
        if text.lstrip().startswith(MARK):
            raise _BadLine(f"several labels ({label}, {text.split()[0]}); a text has one class")
        return label.removeprefix(MARK), (text,)


def find_form(path: Path, lines: Sequence[str], *, column: int | None, known: Collection[str]) -> FileForm:
    """The form of a file with these first lines; `known` are labels that it may have, if these are known.

    `column` is the column of the label in a table, counted from 1, if it was given.
    """
    first = lines[0]
    if (found := format_of(path)) is not None and ".jsonl" not in found.suffixes:
        raise UsageError(f"{path}: files of the format {found.name} have no labels; give {FORMS}")
    if found is not None or first.lstrip().startswith("{"):
        try:
            is_paired = parse_record(first).get("text_pair") is not None
        except BadRecord as error:
            raise DataError(problems=[Problem(str(error), str(path), 1, error.column)]) from error
        return FileForm("jsonl", texts=1 + is_paired)
    if first.startswith(MARK):
        return FileForm("fasttext")
    if "\t" in first or is_tsv(path):
        return _table_form(path, lines, column=column, known=known)
    if bare_name(path).lower().endswith(".csv"):
        raise UsageError(
            f"{path}: CSV is not supported; write a tab in place of the comma between columns (.tsv), or give {FORMS}"
        )
    words = [line.strip().partition(" ")[0] for line in lines]
    counts = Counter(words)
    is_known = bool(known) and sum(word in known for word in words) * 2 >= len(words)
    if not is_known and len(counts) > 2 and (len(counts) > _max_labels(len(words)) or has_many_labels(counts)):
        raise DataError(
            f"{path}: no labels found: its {len(words):,} lines begin with {len(counts):,} different words, such as "
            f"{', '.join(map(repr, words[:SHOWN_VALUES]))}. A line of labelled text is {FORMS}; where these words are "
            f"labels, write {MARK} before them"
        )
    return FileForm("words")


def has_many_labels(counts: Mapping[str, int]) -> bool:
    """Whether these are hardly labels: more than a tenth of the examples, or half of them occur once."""
    if len(counts) <= USUAL_LABELS:
        return False
    once = sum(count == 1 for count in counts.values())
    return len(counts) * 10 > sum(counts.values()) or once * 2 >= len(counts)


def _max_labels(lines: int) -> int:
    return min(MAX_LABELS, lines // 2)


def _table_form(path: Path, lines: Sequence[str], *, column: int | None, known: Collection[str]) -> FileForm:
    """The form of a table: which column has the labels, and whether the first line names the columns."""
    rows = [line.split("\t") for line in lines]
    width = len(rows[0])
    if width not in (2, 3):
        message = f"{width} column{'s' if width > 1 else ''}, expected a label and one or two texts separated by tabs"
        raise DataError(problems=[Problem(message, str(path), 1)])
    if column is not None and column > width:
        raise UsageError(f"data.label_column={column}, but {path} has {width} columns")
    rows = [row for row in rows if len(row) == width]  # the others are reported with their lines
    values = [Counter(row[at].strip() for row in rows) for at in range(width)]

    def form(at: int, *, has_heading: bool | None = None) -> FileForm:
        first = rows[0][at].strip()
        is_heading = first.lower() in HEADINGS and values[at][first] == 1 and first not in known and len(rows) > 1
        return FileForm("tsv", width - 1, at, is_heading if has_heading is None else has_heading)

    headed = [at for at in range(width) if form(at).has_heading]
    all_known = [at for at in range(width) if known and all(value in known for value in values[at])]
    if len(all_known) == 1:
        return form(all_known[0])
    if column is not None:
        return form(column - 1)
    if len(headed) == 1:
        return form(headed[0])
    mostly = [at for at in range(width) if 2 * sum(values[at][label] for label in known) >= len(rows)]
    if known and len(mostly) == 1:
        return form(mostly[0])
    few = [at for at in range(width) if len(values[at]) <= _max_labels(len(rows))]
    least = min((len(values[at]) for at in few), default=0)
    few = [at for at in few if len(values[at]) <= CLEAR_RATIO * least]
    if len(few) == 1:
        return form(few[0])
    shown = "; ".join(f"column {at + 1} has {_described(values[at])}" for at in (few or range(width)))
    choices = " or ".join(f"data.label_column={at + 1}" for at in (few or range(width)))
    count = f"{len(rows):,} line{'' if len(rows) == 1 else 's'}"
    if few:
        places = " and ".join(str(at + 1) for at in few)
        raise DataError(f"{path}: columns {places} may both be the label in {count}: {shown}. Name it: {choices}")
    raise DataError(f"{path}: no column has few different values in {count}: {shown}. Name the label: {choices}")


def _described(values: Counter[str]) -> str:
    shown = ", ".join(repr(value[:30]) for value, _ in values.most_common(SHOWN_VALUES))
    return f"{len(values):,} different value{'' if len(values) == 1 else 's'} ({shown}{', …' * (len(values) > 3)})"


# --- corpora ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _File:
    path: Path
    form: FileForm
    lines: int
    """Lines of the file; a heading and skipped ones are counted."""
    examples: int


class LabelledCorpus:
    """The labelled texts of files, one file after the other. Each iteration starts again at the first.

    All files are read once when it is made: every line is checked, labels are counted and the text is hashed. Plain,
    .gz, .xz or .zst; a name may be a pattern. `known` are the labels of a training text: others are errors.
    """

    labels: Mapping[str, int]
    """How often each label occurs, in the order of the labels."""
    texts: int
    """Texts of an example: 1, or 2 for pairs."""
    notices: tuple[str, ...]
    """What was changed while reading, a sentence each."""

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        encoding: str = "utf-8",
        on_bad: OnBad = "error",
        column: int | None = None,
        known: Collection[str] = (),
    ) -> None:
        if not paths:
            raise UsageError("no labelled text was given")
        self.encoding, self.on_bad = encoding, on_bad
        digest, counts, notices = hashlib.sha256(), Counter[str](), list[str]()
        files: list[_File] = []
        problems: list[Problem] = []
        more = 0
        for path in chain.from_iterable(map(matching_files, paths)):
            reader = self._reader(path)
            first = [line for line in islice(reader, SAMPLED_LINES) if not is_blank(line)]
            if not first:
                what = "blank" if reader.lines else "empty"
                problems.append(Problem(f"{what}; expected a label and a text in each line", str(path)))
                continue
            form = find_form(path, first, column=column, known=known)
            if files and form.texts != files[0].form.texts:
                one, other = (f"{each} text{'s' if each > 1 else ''}" for each in (form.texts, files[0].form.texts))
                message = f"{one} in a line, but {files[0].path} has {other}"
                problems.append(Problem(message, str(path), 1))
                continue
            if form.has_heading:
                notices.append(f"{path}: the first line names the columns and is not read")
            examples, unknown = 0, Problems()
            try:
                for number, label, texts in self._read(path, form, reader):
                    if known and label not in known:
                        unknown.add(_unknown(label, known), path, number)
                    digest.update("\t".join((label, *texts)).encode("utf-8", "surrogatepass") + b"\n")
                    counts[label] += 1
                    examples += 1
                unknown.require_none()
            except DataError as error:
                problems += error.problems or [Problem(str(error))]
                more += error.more
            notices += reader.notices()
            files.append(_File(path, form, reader.lines, examples))
        if problems:
            raise DataError(problems=problems, more=more)
        self._files = tuple(files)
        self.labels = {label: counts[label] for label in sorted(counts)}
        self.texts, self.notices = files[0].form.texts, tuple(notices)
        self._digest = digest.hexdigest()

    @property
    def readings(self) -> tuple[str, ...]:
        """How the files are read, a sentence for each form."""
        homes: dict[str, list[Path]] = {}
        for file in self._files:
            homes.setdefault(str(file.form), []).append(file.path)
        more = {form: f" and {len(paths) - 1} more" if len(paths) > 1 else "" for form, paths in homes.items()}
        return tuple(f"{paths[0]}{more[form]}: read as {form}" for form, paths in homes.items())

    @property
    def has_table(self) -> bool:
        """Whether any file is a table with columns."""
        return any(each.form.form == "tsv" for each in self._files)

    @property
    def label_column(self) -> int | None:
        """The column of the labels, counted from 1, if all files are tables with the same one."""
        columns = {each.form.label_at + 1 if each.form.form == "tsv" else None for each in self._files}
        return columns.pop() if len(columns) == 1 else None

    def __len__(self) -> int:
        """The number of examples."""
        return sum(file.examples for file in self._files)

    def __iter__(self) -> Iterator[LabelledLine]:
        before = 0
        for file in self._files:
            for number, label, texts in self._read(file.path, file.form, self._reader(file.path)):
                yield LabelledLine(before + number, label, texts)
            before += file.lines

    def place(self, number: int) -> tuple[Path, int]:
        """The file of a line, and its number there."""
        for file in self._files:
            if number <= file.lines:
                return file.path, number
            number -= file.lines
        raise IndexError("the corpus has no such line")

    def fingerprint(self) -> str:
        """A hash of labels and texts: the same whether they are compressed or not."""
        return self._digest

    def _reader(self, path: Path) -> LineReader:
        return LineReader(path, self.encoding, on_bad=self.on_bad)

    def _read(self, path: Path, form: FileForm, reader: LineReader) -> Iterator[tuple[int, str, tuple[str, ...]]]:
        """The examples of a file with their lines; a DataError at the end names all bad lines."""
        problems = Problems()
        for number, line in enumerate(reader, start=1):
            is_skipped = self.on_bad == "skip" and not line and number in reader.decoder.bad
            if is_skipped or (number == 1 and form.has_heading):
                continue
            try:
                label, texts = form.read(line)
            except _BadLine as error:
                problems.add(str(error), path, number)
                continue
            if not problems:
                yield number, label, texts
        problems.require_none()


def _unknown(label: str, known: Collection[str]) -> str:
    shown = ", ".join(repr(each) for each in sorted(known)[:8])
    more = ", …" if len(known) > 8 else ""
    return f"the label {label!r} is not among the {len(known)} labels of the training text ({shown}{more})"


@dataclass(frozen=True)
class SelectedLines:
    """The examples of a corpus with these numbers, or (`is_rest`) all others."""

    corpus: LabelledCorpus
    numbers: frozenset[int]
    is_rest: bool

    def __len__(self) -> int:
        return len(self.corpus) - len(self.numbers) if self.is_rest else len(self.numbers)

    def __iter__(self) -> Iterator[LabelledLine]:
        return (line for line in self.corpus if (line.number in self.numbers) != self.is_rest)


def hold_out(corpus: LabelledCorpus, count: int, *, seed: int) -> tuple[SelectedLines, SelectedLines]:
    """The rest, and so many examples drawn at random. The first example of each label is never drawn."""
    seen: set[str] = set()
    numbers = []
    for line in corpus:
        if line.label in seen:
            numbers.append(line.number)
        seen.add(line.label)
    drawn = np.random.default_rng(seed).choice(len(numbers), size=min(count, len(numbers)), replace=False)
    held = frozenset(numbers[place] for place in drawn)
    return SelectedLines(corpus, held, is_rest=True), SelectedLines(corpus, held, is_rest=False)


# --- ids --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class JoinedIds:
    """What a model reads of a text or pair after BEGIN: a END, or a END b END."""

    ids: list[int]
    first: int
    """Symbols of the first text, its END counted."""
    cut: int
    """Tokens that were left out, because there is no room for them."""


def join_texts(texts: Sequence[Sequence[int]], *, longest: int) -> JoinedIds:
    """One or two texts, by their ids, for a model that reads so many symbols, BEGIN and END counted.

    Of a pair that is too long, the longer text loses its end first.
    """
    room = max(0, longest - 1 - len(texts))
    lengths = [len(ids) for ids in texts]
    if len(texts) == 1:
        kept = [min(lengths[0], room)]
    elif sum(lengths) <= room:
        kept = lengths
    else:
        shorter = min(*lengths, room // 2)
        kept = [room - shorter, shorter] if lengths[0] > lengths[1] else [shorter, room - shorter]
    joined = [symbol for ids, length in zip(texts, kept, strict=True) for symbol in (*ids[:length], END)]
    return JoinedIds(joined, kept[0] + 1, sum(lengths) - sum(kept))


class FramedTexts(NamedTuple):
    """Texts or pairs as a model reads them: BEGIN a END, or BEGIN a END b END, padded."""

    ids: Int64[np.ndarray, "batch time"]
    lengths: Int64[np.ndarray, " batch"]
    segments: Int64[np.ndarray, "batch time"]
    """0 for the first text of each row, and 1 for the second."""


def frame_texts(examples: Sequence[tuple[Sequence[int] | UInt[np.ndarray, " symbols"], int]]) -> FramedTexts:
    """Rows of joined texts, each with the symbols of its first one."""
    lengths = np.array([1 + len(ids) for ids, _ in examples], np.int64)
    ids = np.full((len(examples), int(lengths.max(initial=0))), PAD, np.int64)
    segments = np.zeros_like(ids)
    for row, (joined, first) in enumerate(examples):
        ids[row, 0] = BEGIN
        ids[row, 1 : lengths[row]] = joined
        segments[row, 1 + first : lengths[row]] = 1
    return FramedTexts(ids, lengths, segments)


# A folder with raw little-endian arrays and a header, as `data.store` writes its own:
#
#     ids             a END of each text, a END b END of each pair
#     lengths         symbols of each example (uint32)
#     firsts          symbols of its first text, END counted (uint32)
#     labels          its class (uint32)
#     lines           its line in the corpus (int64)
#     labelled.json   format number, counts, size and SHA-256 of each file

FORMAT = 1

LAYOUT = ArrayLayout(
    "store of labelled texts",
    "labelled.json",
    FORMAT,
    lambda ids: {"ids": ids, "lengths": "<u4", "firsts": "<u4", "labels": "<u4", "lines": "<i8"},
)

CHUNK = 4096
"""Lines encoded at a time."""


class LabelledWriter:
    """Appends examples to a new store. The folder appears when all of it is on disk."""

    def __init__(self, folder: Path, *, symbols: int) -> None:
        self._writer = ArrayFolderWriter(folder, LAYOUT, symbols=symbols)
        self._examples = 0

    def append(self, joined: Sequence[JoinedIds], *, labels: Sequence[int], lines: Sequence[int]) -> None:
        """Add examples with their classes and line numbers."""
        self._writer.append(
            {
                "ids": self._writer.ids([each.ids for each in joined]),
                "lengths": np.array([len(each.ids) for each in joined], np.int64),
                "firsts": np.array([each.first for each in joined], np.int64),
                "labels": np.array(labels, np.int64),
                "lines": np.array(lines, np.int64),
            }
        )
        self._examples += len(joined)

    def __enter__(self) -> "LabelledWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.end(self._examples, is_good=kind is None, nothing="no labelled text is left to store")


class LabelledStore:
    """The examples of a folder that a LabelledWriter has made, mapped into memory."""

    ids: UInt[np.ndarray, " symbols"]
    lengths: UInt[np.ndarray, " examples"]
    labels: UInt[np.ndarray, " examples"]
    lines: Int64[np.ndarray, " examples"]

    def __init__(self, folder: ArrayFolder) -> None:
        names = ("ids", "lengths", "firsts", "labels", "lines")
        self.ids, self.lengths, self._firsts, self.labels, self.lines = (folder.arrays[name] for name in names)
        self._offsets = borders(self.lengths)
        self._folder = folder

    @staticmethod
    def open(folder: Path, *, classes: int, verify: bool = False) -> "LabelledStore":
        """Map a store into memory. Sizes are always compared with the header, hashes if `verify` is set."""
        store = LabelledStore(open_folder(folder, LAYOUT, verify=verify))
        examples = {len(each) for each in (store.lengths, store._firsts, store.labels, store.lines)}
        if len(examples) != 1 or store._offsets[-1] != len(store.ids):
            reason = f"{store._offsets[-1]:,} symbols are counted, and {len(store.ids):,} are there"
            raise damaged(folder, LAYOUT, reason)
        if int(store.labels.max()) >= classes:
            raise damaged(folder, LAYOUT, f"class {int(store.labels.max())} of {classes} classes")
        return store

    def __len__(self) -> int:
        return len(self.lengths)

    def framed(self, indices: Integer[np.ndarray, " batch"]) -> FramedTexts:
        """These examples as a model reads them."""
        places = indices.tolist()
        return frame_texts(
            [(self.ids[self._offsets[at] : self._offsets[at + 1]], int(self._firsts[at])) for at in places]
        )

    def fingerprint(self) -> str:
        """A hash of all that is stored."""
        return self._folder.fingerprint()


@dataclass(frozen=True)
class LabelledReport:
    """What became of labelled texts when they were encoded."""

    lines: int
    tokens: int
    """Tokens stored, each END counted."""
    unknown: int
    """Tokens among them that the vocabulary does not know."""
    cut_lines: int
    """Lines that are longer than the model reads."""
    cut_tokens: int
    """Tokens of these lines that are not read."""


def encode_labelled(
    lines: LabelledLines,
    encode: Callable[[list[str]], list[list[int]]],
    folder: Path,
    *,
    symbols: int,
    labels: Sequence[str],
    longest: int,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> LabelledReport:
    """Store examples as ids in a new folder. `progress` gets the lines done and the total."""
    classes = {label: number for number, label in enumerate(labels)}
    read = tokens = unknown = cut_lines = cut_tokens = 0
    with LabelledWriter(folder, symbols=symbols) as writer:
        remaining = iter(lines)
        while some := list(islice(remaining, CHUNK)):
            ids = iter(encode([text for line in some for text in line.texts]))
            joined = [join_texts([next(ids) for _ in line.texts], longest=longest) for line in some]
            writer.append(joined, labels=[classes[line.label] for line in some], lines=[line.number for line in some])
            read += len(some)
            tokens += sum(len(each.ids) for each in joined)
            unknown += sum(each.ids.count(UNKNOWN) for each in joined)
            cut_lines += sum(each.cut > 0 for each in joined)
            cut_tokens += sum(each.cut for each in joined)
            progress(read, len(lines))
    return LabelledReport(read, tokens, unknown, cut_lines, cut_tokens)
