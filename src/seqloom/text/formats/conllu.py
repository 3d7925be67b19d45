r"""Sentences with a word a line and its annotations in columns, read as values and written back byte for byte.

    # text = Don't go.                                         CoNLL-U: ten columns separated by tabs
    1-2<tab>Don't<tab>_ …                                      a range: the written form of words 1 and 2
    1<tab>Do<tab>do<tab>AUX …                                  words are counted from 1
    2<tab>n't<tab>not<tab>PART …
    2.1<tab>_ …                                                an empty node after word 2
    3<tab>go<tab>go<tab>VERB …

    EU NNP B-NP B-ORG                                          token columns: any number of columns, always the same,
    rejects VBZ B-VP O                                         separated by tabs, or by spaces

A blank line ends a sentence. Only words have values; comments, ranges, empty nodes, line ends, a byte-order mark and
spaces at the ends of lines are kept as they are, so that the texts of all sentences together are the file:

    b"".join(sentence.text.encode() for sentence in TokenFile(path)) == the bytes of the file, decompressed
"""

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain, islice, pairwise
from pathlib import Path
from typing import Literal, NamedTuple

from seqloom.core.errors import DataError, Problem, Problems, UsageError
from seqloom.core.files import CHUNK, require_file
from seqloom.core.text_files import LineDecoder, bare_name, open_bytes

COLUMNS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
"""The columns of CoNLL-U."""

EMPTY = "_"
"""What is written where a column has no value."""

SUFFIXES = (".conllu", ".conll-u")
"""Endings of the names of CoNLL-U files, which may be compressed."""

SAMPLED_LINES = 1_000
"""Lines at the beginning of a file in which its layout is found."""

MIN_CONLLU_COLUMNS = 8
"""Columns from which a file with word ids and tabs must be CoNLL-U: with fewer, it is of another kind."""

MAX_SENTENCE_LINES = 100_000
"""Lines after which there should have been a blank one, before the sentence fills the memory."""

SHOWN_CHARACTERS = 40
"""Characters of a line that a message shows."""

_MARK = "\ufeff"
_ID = re.compile(r"(0|[1-9][0-9]{0,8})(?:([-.])([1-9][0-9]{0,8}))?")
_SEPARATOR_NAMES = {"\t": "tabs", " ": "spaces"}
_UNSPACED = re.compile(r"[^ ]+")


# --- values -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TokenLayout:
    """The columns of a file of tokens."""

    columns: tuple[str, ...]
    """Their names: those of CoNLL-U, or else `form` for the words and numbers counted from 1, `2`, `3` …, for the
    others; `id` is a column that counts the words."""
    separator: Literal["\t", " "] = "\t"
    """One tab, or one or more spaces."""
    seen: str = field(default="", compare=False)
    """What the layout was recognised by, as a sentence without its full stop."""

    @property
    def is_conllu(self) -> bool:
        return self.columns == COLUMNS

    def place(self, column: str) -> int:
        """The place of a column, counted from 0."""
        if column not in self.columns:
            raise UsageError(f"unknown column {column!r}; the columns are {', '.join(self.columns)}")
        return self.columns.index(column)

    def cells(self, line: str) -> list[str]:
        """The cells of a line without its end; spaces at the end of the line belong to none."""
        first, last = self._borders(line)
        if self.separator == "\t":
            return line[first:last].split("\t")
        return [cell for cell in line[first:last].split(" ") if cell]

    def spans(self, line: str) -> list[tuple[int, int]]:
        """The place of each of the cells in a line."""
        first, last = self._borders(line)
        if self.separator == " ":
            return [found.span() for found in _UNSPACED.finditer(line, first, last)]
        ends = list(accumulate((len(cell) + 1 for cell in self.cells(line)), initial=0))
        return [(begin, end - 1) for begin, end in pairwise(ends)]

    def _borders(self, line: str) -> tuple[int, int]:
        """Where the cells begin and end: beside tabs, spaces before the first cell are part of it."""
        if self.separator == "\t":
            return 0, len(line.rstrip(" \r\n"))
        return len(line) - len(line.lstrip(" \t")), len(line.rstrip(" \t\r\n"))


CONLLU = TokenLayout(COLUMNS, seen="CoNLL-U: ten columns separated by tabs")


@dataclass(frozen=True, slots=True)
class Word:
    """A word with its annotations; `word["upos"]` is the cell of a column."""

    layout: TokenLayout
    cells: tuple[str, ...]
    line: int
    """The line of the sentence that holds it, counted from 0 in `TokenSentence.lines`."""

    def __getitem__(self, column: str) -> str:
        return self.cells[self.layout.place(column)]

    @property
    def form(self) -> str:
        return self["form"]


@dataclass(frozen=True)
class TokenSentence:
    """A sentence with all that surrounds it in its file: comments before it and blank lines after it."""

    layout: TokenLayout
    lines: tuple[str, ...]
    """Lines with their ends; a byte-order mark counts as one."""
    words: tuple[Word, ...]
    """Empty only for what follows the last sentence of a file, such as blank lines or comments."""
    number: int = 1
    """The number of its first line in the file, counted from 1."""

    @property
    def text(self) -> str:
        """What a file holds of it; encode it as UTF-8 without changing line ends."""
        return "".join(self.lines)

    @property
    def forms(self) -> tuple[str, ...]:
        return self.column("form")

    def column(self, name: str) -> tuple[str, ...]:
        """The cells of a column, one for each word."""
        place = self.layout.place(name)
        return tuple(word.cells[place] for word in self.words)


def filled(sentence: TokenSentence, values: Mapping[str, Sequence[str]]) -> TokenSentence:
    """The same sentence with other values in some columns, one for each word; an empty one is written as `_`.

    In a file of token columns, the number after the last column adds one.
    """
    layout, words = sentence.layout, sentence.words
    for column, given in values.items():
        if column in ("id", "form"):
            raise UsageError(f"column {column!r} identifies the words and cannot be filled")
        if column == str(len(layout.columns) + 1) and not layout.is_conllu:
            layout = replace(layout, columns=(*layout.columns, column))
        layout.place(column)
        if len(given) != len(words):
            place = f"the sentence at line {sentence.number}"
            raise UsageError(f"{len(given)} values of {column!r} were given, but {place} has {len(words)} words")
    places = [(layout.place(column), column) for column in values]
    lines, changed = list(sentence.lines), list[Word]()
    for at, word in enumerate(words):
        cells = [*word.cells, *(EMPTY for _ in layout.columns[len(word.cells) :])]
        for at_column, column in places:
            cells[at_column] = _cell(values[column][at], layout.separator, column)
        line, done = lines[word.line], 0
        pieces: list[str] = []
        for (begin, end), cell in zip(sentence.layout.spans(line), cells, strict=False):
            pieces += [line[done:begin], cell]
            done = end
        pieces += [layout.separator + cell for cell in cells[len(word.cells) :]]
        lines[word.line] = "".join([*pieces, line[done:]])
        changed.append(Word(layout, tuple(cells), word.line))
    return replace(sentence, layout=layout, lines=tuple(lines), words=tuple(changed))


def new_sentence(words: Sequence[str], *, text: str | None = None, comments: Sequence[str] = ()) -> TokenSentence:
    """CoNLL-U of words that have no annotations yet.

    With the `text` in which the words follow each other, that becomes a comment, and MISC says `SpaceAfter=No` where
    no space follows a word.
    """
    if "" in words:
        raise DataError(f"word {words.index('') + 1} is empty; a word has at least one character")
    misc = [EMPTY] * len(words)
    if text is not None:
        comments = (*comments, f"text = {' '.join(text.split())}")
        misc, done = [], 0
        for word in words:
            begin = text.find(word, done)
            if begin < 0 or text[done:begin].strip():
                shown = text[done : done + SHOWN_CHARACTERS]
                raise DataError(f"the words are not those of the text: {word!r} does not follow at {shown!r}")
            done = begin + len(word)
            misc.append(EMPTY if done == len(text) or text[done].isspace() else "SpaceAfter=No")
    lines = []
    for comment in comments:
        if "\n" in comment or "\r" in comment:
            raise DataError(f"a comment has one line, but this one has a line end in it: {comment!r}")
        lines.append(f"# {comment}\n")
    made = []
    for number, (word, last) in enumerate(zip(words, misc, strict=True), start=1):
        cells = (str(number), _cell(word, "\t", "form"), *(EMPTY for _ in COLUMNS[2:-1]), last)
        made.append(Word(CONLLU, cells, len(lines)))
        lines.append("\t".join(cells) + "\n")
    return TokenSentence(CONLLU, (*lines, "\n"), tuple(made))


def _cell(value: str, separator: str, column: str) -> str:
    if found := next((sign for sign in ("\t", "\n", "\r", separator) if sign in value), None):
        raise DataError(f"the value {value!r} of {column!r} has {found!r} in it, which separates columns or lines")
    return value or EMPTY


# --- layouts ----------------------------------------------------------------------------------------------------------


def find_layout(path: Path, lines: Sequence[str]) -> TokenLayout:
    """The layout of a file with this name and these first lines, without their ends.

    CoNLL-U by its name, or by word ids and eight columns or more between tabs; else the number of columns that most
    lines have. A DataError says what was seen if there is no such number.
    """
    if bare_name(path).lower().endswith(SUFFIXES):
        return replace(CONLLU, seen=f"{CONLLU.seen}, by its name {path.name}")
    rows = [(number, line) for number, line in enumerate(lines, start=1) if line.strip() and not line.startswith("#")]
    if not rows:
        raise DataError(f"{path}: no words found: its first {len(lines):,} lines are blank or comments")
    (number, first), count = rows[0], len(rows)
    begin = first.split("\t")
    if len(begin) >= MIN_CONLLU_COLUMNS and _ID.fullmatch(begin[0]):
        return replace(CONLLU, seen=f"{CONLLU.seen}, because line {number} begins with the word id {begin[0]}")
    separator: Literal["\t", " "] = "\t" if 2 * sum("\t" in line for _, line in rows) > count else " "
    cells = [TokenLayout((), separator).cells(line) for _, line in rows]
    width, agreeing = Counter(map(len, cells)).most_common(1)[0]
    between = _SEPARATOR_NAMES[separator]
    numbers = f"{agreeing:,} of the first {count:,} lines with text"
    if 2 * agreeing <= count:
        raise DataError(
            f"{path}: not a file of tokens: the lines have different numbers of columns separated by {between}, and "
            f"only {numbers} have {width}; expected a word and its tags in each line, blank lines between sentences"
        )
    numbered = width > 1 and _counts_up(lines, separator)
    names = ["id", "form"] if numbered else ["form"]
    columns = (*names, *(str(place) for place in range(len(names) + 1, width + 1)))
    words = "the second has the words, the first counts them" if numbered else "the first has the words"
    if width == 1:
        seen = f"token columns: {numbers} have 1 column, which has the words"
    else:
        seen = f"token columns: {numbers} have {width} columns separated by {between}; {words}"
    if any(not line.strip() for line in lines[:-1]):
        seen += "; blank lines end sentences"
    return TokenLayout(columns, separator, seen)


def _counts_up(lines: Iterable[str], separator: Literal["\t", " "]) -> bool:
    """Whether the first column counts the lines of each sentence from 1."""
    expected, longest = 1, 0
    for line in lines:
        if not line.strip():
            expected = 1
        elif not line.startswith("#"):
            if TokenLayout((), separator).cells(line)[0] != str(expected):
                return False
            longest, expected = max(longest, expected), expected + 1
    return longest > 1


# --- reading ----------------------------------------------------------------------------------------------------------


class TokenFile:
    """The sentences of a file, plain or compressed; each iteration reads it again, one sentence at a time.

    At the first line that is not as it should be, no more sentences are given, and the rest is only looked through, so
    that the DataError can name all such lines.
    """

    def __init__(self, path: Path, *, layout: TokenLayout | None = None) -> None:
        """The layout is found in the first lines if it is not given."""
        require_file(path)
        if layout is None:
            lines = islice(_lines(_chunks(path), path), SAMPLED_LINES)
            layout = find_layout(path, [line.text for line in lines if line.number])
        self.path, self.layout = path, layout

    def __iter__(self) -> Iterator[TokenSentence]:
        return parse_sentences(_chunks(self.path), self.path, layout=self.layout)


def parse_sentences(
    chunks: Iterable[bytes], path: Path, *, layout: TokenLayout | None = None
) -> Iterator[TokenSentence]:
    """The sentences of a text that comes chunk by chunk; `path` is for messages and, by its ending, for the layout."""
    lines: Iterator[_Line] = _lines(chunks, path)
    if layout is None:
        sample = list(islice(lines, SAMPLED_LINES))
        layout = find_layout(path, [line.text for line in sample if line.number])
        lines = chain(sample, lines)
    form_at = layout.place("form")
    problems = Problems()
    kept, words, number = list[str](), list[Word](), 1
    ids = _Ids(problems, path)
    for line in lines:
        kept.append(line.text + line.end)
        if not line.number:  # a byte-order mark
            continue
        if len(kept) > MAX_SENTENCE_LINES:
            message = f"no blank line in {MAX_SENTENCE_LINES:,} lines, but sentences are separated by blank lines"
            raise DataError(problems=[Problem(message, str(path), line.number)])
        if not line.text.strip():
            ids.end_sentence()
            if words or problems:
                if not problems:
                    yield TokenSentence(layout, tuple(kept), tuple(words), number)
                kept, words, number = [], [], line.number + 1
            continue
        cells = layout.cells(line.text)
        # In token columns a word may begin with #, so a comment is what has not the columns of one.
        if line.text.startswith("#") and (layout.is_conllu or (not words and len(cells) != len(layout.columns))):
            continue
        if any("\r" in cell for cell in cells):
            problems.add("a carriage return inside the line; lines end with LF or CR LF", path, line.number)
        elif any("\t" in cell for cell in cells):
            problems.add("a tab inside the line, but most lines separate columns by spaces", path, line.number)
        elif len(cells) != len(layout.columns):
            problems.add(_column_problem(line.text, len(cells), layout), path, line.number)
        elif layout.is_conllu and not ids.is_word(cells[0], line.number):
            continue
        elif not cells[form_at]:
            problems.add("the word is empty; write _ if it is unknown", path, line.number)
        else:
            words.append(Word(layout, tuple(cells), len(kept) - 1))
    ids.end_sentence()
    problems.require_none()
    if kept:
        yield TokenSentence(layout, tuple(kept), tuple(words), number)


def _column_problem(line: str, count: int, layout: TokenLayout) -> str:
    columns = f"{count} column{'' if count == 1 else 's'}"
    if layout.is_conllu:
        if "\t" not in line:
            return f"no tab in {line[:SHOWN_CHARACTERS]!r}, but CoNLL-U has 10 columns, separated by tabs"
        return f"{columns}, but CoNLL-U has 10, separated by tabs"
    wanted, between = len(layout.columns), _SEPARATOR_NAMES[layout.separator]
    if layout.separator not in line and wanted > 1:
        between = between.removesuffix("s")
        return f"no {between} in {line[:SHOWN_CHARACTERS]!r}, but most lines have {wanted} columns"
    return f"{columns} separated by {between}, but most lines have {wanted}; a missing value is written as _"


class _Ids:
    """Checks the first column of CoNLL-U, line by line."""

    def __init__(self, problems: Problems, path: Path) -> None:
        self._problems, self._path = problems, path
        self._last = self._node = 0  # the last word, and the last empty node after it
        self._range: tuple[str, int, int] | None = None  # the id of the last range, its last word, and its line

    def is_word(self, given: str, line: int) -> bool:
        """Whether an id is that of a word; one that does not follow those before it is a problem."""
        found = _ID.fullmatch(given)
        if found is None:
            message = (
                f"{given[:SHOWN_CHARACTERS]!r} is not an id; use 3 for a word, 3-4 for a range, 3.1 for an empty node"
            )
            self._problems.add(message, self._path, line)
            return False
        first, kind, second = int(found[1]), found[2], int(found[3] or 0)
        if kind == "-":
            self._check_range(given, first, second, line=line)
            return False
        if kind == ".":
            if (first, second) != (self._last, self._node + 1):
                message = f"the empty node {given} does not follow; expected {self._last}.{self._node + 1}"
                self._problems.add(message, self._path, line)
            self._node = second
            return False
        if first != self._last + 1:
            message = f"the word id {given} does not follow; expected {self._last + 1}"
            hint = "; is the blank line between two sentences missing?" if first == 1 else ""
            self._problems.add(message + hint, self._path, line)
        self._last, self._node = first, 0
        return True

    def _check_range(self, given: str, first: int, last: int, *, line: int) -> None:
        message = None
        if first != self._last + 1:
            message = f"the range {given} does not fit: the next word is {self._last + 1}"
        elif last < first:
            message = f"the range {given} ends before it begins"
        elif self._range is not None and first <= self._range[1]:
            message = f"the range {given} overlaps the range {self._range[0]}"
        if message is not None:
            self._problems.add(message, self._path, line)
        else:
            self._range = given, last, line

    def end_sentence(self) -> None:
        """A blank line, or the end of the file: the next sentence counts from 1 again."""
        if self._range is not None and self._range[1] > self._last:
            given, _, line = self._range
            message = f"the range {given} does not fit: the last word of the sentence is {self._last}"
            self._problems.add(message, self._path, line)
        self._last, self._node, self._range = 0, 0, None


class _Line(NamedTuple):
    """A line without its end; a byte-order mark is line 0."""

    number: int
    text: str
    end: str


def _lines(chunks: Iterable[bytes], path: Path) -> Iterator[_Line]:
    """The lines of a text with the ends that the decoder takes off."""
    decoder = LineDecoder(str(path))
    ends = deque[str]()
    number, before = 0, b""
    for chunk in chain(chunks, (b"",)):
        lines = decoder.feed(chunk)
        ended = (before + chunk).split(b"\n")[:-1]
        ends += ["\r\n" if line.endswith(b"\r") else "\n" for line in ended]
        before = b"\r" if chunk.endswith(b"\r") else b""  # the line end may lie on the border of two chunks
        if decoder.had_mark and number == 0 and (lines or not chunk):
            yield _Line(0, _MARK, "")
        for line in lines:
            number += 1
            yield _Line(number, line, ends.popleft() if ends else "")
    decoder.require_good()


def _chunks(path: Path) -> Iterator[bytes]:
    """The decompressed bytes of a file."""
    try:
        with open_bytes(path) as file:
            while chunk := file.read(CHUNK):
                yield chunk
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error
