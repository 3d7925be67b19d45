"""CoNLL-U and token columns: nothing but the filled cells changes, and damage is named with its line."""

import gzip
import io
import lzma
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seqloom.core.errors import DataError, UsageError
from seqloom.core.text_files import read_whole
from seqloom.text.formats.conllu import (
    COLUMNS,
    CONLLU,
    MAX_SENTENCE_LINES,
    TokenFile,
    TokenSentence,
    filled,
    find_layout,
    new_sentence,
    parse_sentences,
)
from seqloom.text.words import word_spans

SAMPLE = (
    "# sent_id = 1\n"
    "# text = Don't visit New York.\n"
    "1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\t_\n"
    "1\tDo\tdo\tAUX\t_\t_\t3\taux\t_\t_\n"
    "2\tn't\tnot\tPART\t_\t_\t3\tadvmod\t_\t_\n"
    "3\tvisit\tvisit\tVERB\t_\t_\t0\troot\t_\t_\n"
    "3.1\tit\tit\tPRON\t_\t_\t_\t_\t3:obj\t_\n"
    "4\tNew York\tNew York\tPROPN\t_\t_\t3\tobj\t_\tSpaceAfter=No\n"
    "5\t.\t.\tPUNCT\t_\t_\t3\tpunct\t_\t_\n"
    "\n"
)


# --- generated files --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Drawn:
    """A file as it was made: each piece is a text that stays, or the cells of a word with what is around them."""

    name: str
    pieces: list[str | tuple[str, list[str], list[str], str]]
    sentences: list[list[list[str]]]
    column: int

    def text(self, change: Callable[[str, int], str] = lambda cell, _: cell) -> str:
        """The file, with the cells of words changed by their column."""
        written = []
        for piece in self.pieces:
            if isinstance(piece, str):
                written.append(piece)
                continue
            before, cells, between, after = piece
            changed = [change(cell, place) for place, cell in enumerate(cells)]
            parts = [part for pair in zip(changed, [*between, ""], strict=True) for part in pair]
            written.append(before + "".join(parts) + after)
        return "".join(written)


_characters = st.characters(exclude_categories=["Cs"], exclude_characters="\t\n\r\0\ufeff")
_cells = st.text(_characters, min_size=1, max_size=6)
_line_ends = st.sampled_from(["\n", "\n", "\r\n"])
_tails = st.sampled_from(["", "", "", " ", "  "])
_blanks = st.lists(st.tuples(st.sampled_from(["", "", " ", "\t"]), _line_ends).map("".join), min_size=1, max_size=3)


def _visible(cell: str) -> str:
    """A cell that neither ends a line with spaces nor makes one blank."""
    return cell.strip() or "x"


@st.composite
def conllu_files(draw: st.DrawFn) -> Drawn:
    pieces: list[str | tuple[str, list[str], list[str], str]] = []
    sentences = []

    def other(identifier: str) -> str:
        cells = [identifier, *draw(st.lists(_cells, min_size=8, max_size=8)), _visible(draw(_cells))]
        return "\t".join(cells) + draw(_tails) + draw(_line_ends)

    if draw(st.booleans()):
        pieces.append("\ufeff")
    if draw(st.booleans()):
        pieces += draw(_blanks)
    for _ in range(draw(st.integers(0, 3))):
        words: list[list[str]] = []
        for _ in range(draw(st.integers(0, 2))):
            pieces.append("#" + draw(st.text(_characters, max_size=8)) + draw(_line_ends))
        if draw(st.booleans()):
            pieces.append(other("0.1"))
        count, covered = draw(st.integers(1, 4)), 0
        for number in range(1, count + 1):
            if number > covered and draw(st.booleans()):
                covered = draw(st.integers(number, count))
                pieces.append(other(f"{number}-{covered}"))
            cells = [str(number), *draw(st.lists(_cells, min_size=8, max_size=8)), _visible(draw(_cells))]
            pieces.append(("", cells, ["\t"] * 9, draw(_tails) + draw(_line_ends)))
            words.append(cells)
            pieces += [other(f"{number}.{node}") for node in range(1, draw(st.integers(1, 3)))]
        pieces += draw(_blanks)
        sentences.append(words)
    if draw(st.booleans()):
        pieces.append("# the end" + draw(_line_ends))
    return Drawn("a.conllu", pieces, sentences, draw(st.integers(2, 9)))


@st.composite
def column_files(draw: st.DrawFn) -> Drawn:
    separator, columns = draw(st.sampled_from("\t ")), draw(st.integers(2, 5))
    cell = _cells if separator == "\t" else _cells.map(lambda text: text.replace(" ", "~"))
    pieces: list[str | tuple[str, list[str], list[str], str]] = []
    sentences = []
    if draw(st.booleans()):
        pieces.append("\ufeff")
    for at in range(draw(st.integers(1, 4))):
        words: list[list[str]] = []
        if draw(st.booleans()):  # more columns than a word has
            pieces.append("#" + separator.join("abcdefgh") + draw(_line_ends))
        for _ in range(draw(st.integers(1, 4))):
            cells = [_visible(draw(cell)), *draw(st.lists(cell, min_size=columns - 2, max_size=columns - 2))]
            cells.append(_visible(draw(cell)))
            if not words and at == 0:
                cells[0] = "w" + cells[0]  # neither a comment nor a count
            before = "" if separator == "\t" else draw(st.sampled_from(["", " "]))
            if before and cells[0].startswith("#"):
                before = ""
            width = 1 if separator == "\t" else 3
            between = [separator * draw(st.integers(1, width)) for _ in range(columns - 1)]
            pieces.append((before, cells, between, draw(_tails) + draw(_line_ends)))
            words.append(cells)
        pieces += draw(_blanks)
        sentences.append(words)
    return Drawn("a.txt", pieces, sentences, draw(st.integers(1, columns - 1)))


def _check(drawn: Drawn, chunk: int, values: Sequence[str], *, cuts_end: bool) -> None:
    """Bytes come back, words are those that were drawn, and a filled column changes nothing else."""

    def cut(text: str) -> bytes:
        is_longer = cuts_end and drawn.sentences and text.endswith("\n")
        return (text[:-1] if is_longer else text).encode()

    def read(data: bytes) -> list[TokenSentence]:
        stream = io.BytesIO(data)
        return list(parse_sentences(iter(lambda: stream.read(chunk), b""), Path(drawn.name)))

    whole = cut(drawn.text())
    sentences = read(whole)
    assert "".join(sentence.text for sentence in sentences).encode() == whole
    found = [[list(word.cells) for word in sentence.words] for sentence in sentences if sentence.words]
    assert found == drawn.sentences
    assert all(sentence.words for sentence in sentences[:-1])
    number = 1
    for sentence in sentences:
        assert sentence.number == number
        number += sentence.text.count("\n")

    given, left = cycle(values), cycle(values)
    rewritten = []
    for sentence in sentences:
        column = sentence.layout.columns[drawn.column]
        cells = [next(given) for _ in sentence.words]  # an empty one is written as _
        other = filled(sentence, {column: cells})
        assert other.column(column) == tuple(cell or "_" for cell in cells)
        rewritten.append(other.text)
    expected = cut(drawn.text(lambda cell, place: (next(left) or "_") if place == drawn.column else cell))
    assert "".join(rewritten).encode() == expected
    assert [sentence.text for sentence in read(expected)] == rewritten


_values = st.lists(st.text(_characters, max_size=5).map(lambda text: text.replace(" ", "")), min_size=1, max_size=5)
_files = st.one_of(conllu_files(), column_files())


@given(_files, st.integers(1, 60), _values, st.booleans())
@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
def test_files_come_back_byte_for_byte_and_only_the_filled_column_changes(
    drawn: Drawn, chunk: int, values: list[str], cuts_end: bool
) -> None:
    _check(drawn, chunk, values, cuts_end=cuts_end)


@pytest.mark.slow
@given(_files, st.integers(1, 60), _values, st.booleans())
@settings(max_examples=1_000, suppress_health_check=[HealthCheck.too_slow])
def test_a_thousand_files_come_back_byte_for_byte(drawn: Drawn, chunk: int, values: list[str], cuts_end: bool) -> None:
    _check(drawn, chunk, values, cuts_end=cuts_end)


def test_the_check_of_bytes_sees_a_cell_that_moved() -> None:
    drawn = Drawn("a.txt", [("", ["a", "X"], [" "], "\n"), "\n"], [[["a", "X"]]], 1)
    _check(drawn, 3, ["Y"], cuts_end=False)
    with pytest.raises(AssertionError):
        _check(Drawn("a.txt", [("", ["a", "X"], [" "], "\n"), "\n"], [[["a", "Z"]]], 1), 3, ["Y"], cuts_end=False)
    with pytest.raises(AssertionError):
        _check(
            Drawn("a.txt", ["a X\n", ("", ["b", "X"], [" "], "\n"), "\n"], [[["a", "X"], ["b", "X"]]], 1),
            3,
            ["Y"],
            cuts_end=False,
        )


# --- treebanks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "ud-afrikaans-afribooms/af_afribooms-ud-dev",
        "ud-afrikaans-afribooms/af_afribooms-ud-test",
        "ud-english-ewt/en_ewt-ud-dev",
        pytest.param("ud-afrikaans-afribooms/af_afribooms-ud-train", marks=pytest.mark.slow),
        pytest.param("ud-english-ewt/en_ewt-ud-train", marks=pytest.mark.slow),
    ],
)
def test_treebanks_come_back_byte_for_byte_with_all_their_words(real_data: Path, name: str) -> None:
    path = real_data / f"{name}.conllu.gz"
    data = read_whole(path)
    sentences, at, tags = 0, 0, list[str]()
    for sentence in TokenFile(path):
        part = filled(sentence, {"upos": sentence.column("upos"), "feats": sentence.column("feats")}).text.encode()
        assert data.startswith(part, at)
        at += len(part)
        sentences += bool(sentence.words)
        tags += sentence.column("upos")
    assert at == len(data)
    # Counted without the reader: words begin with digits and a tab, sentences are what blank lines separate.
    rows = [line.split(b"\t") for line in data.split(b"\n")]
    assert tags == [row[3].decode() for row in rows if row[0].isdigit()]
    assert sentences == len(data.strip(b"\n").split(b"\n\n"))


# --- what a user meets ------------------------------------------------------------------------------------------------


def test_words_have_their_columns_and_other_lines_stay(tmp_path: Path) -> None:
    path = tmp_path / "a.conllu"
    path.write_text(SAMPLE, encoding="utf-8")
    file = TokenFile(path)
    assert file.layout == CONLLU
    assert file.layout.seen == "CoNLL-U: ten columns separated by tabs, by its name a.conllu"
    (sentence,) = file
    assert sentence.forms == ("Do", "n't", "visit", "New York", ".")
    assert (sentence.words[3].form, sentence.words[3]["misc"]) == ("New York", "SpaceAfter=No")
    other = filled(sentence, {"xpos": ["VB", "RB", "VB", "NNP", "."], "lemma": ["do", "", "visit", "New York", "."]})
    expected = SAMPLE.replace("AUX\t_", "AUX\tVB").replace("not\tPART\t_", "_\tPART\tRB").replace("VERB\t_", "VERB\tVB")
    assert other.text == expected.replace("PROPN\t_", "PROPN\tNNP").replace("PUNCT\t_", "PUNCT\t.")
    assert other.column("lemma") == ("do", "_", "visit", "New York", ".")
    for end, pack in ((".gz", gzip.compress), (".xz", lzma.compress), (".zst", zstandard.ZstdCompressor().compress)):
        packed = tmp_path / f"a.conllu{end}"
        packed.write_bytes(pack(SAMPLE.encode()))
        assert [each.text for each in TokenFile(packed)] == [SAMPLE]
    with pytest.raises(UsageError, match="2 values of 'upos' were given, but the sentence at line 1 has 5 words"):
        filled(sentence, {"upos": ["X", "Y"]})
    with pytest.raises(UsageError, match="unknown column '11'; the columns are id, form, lemma"):
        filled(sentence, {"11": ["X"] * 5})
    with pytest.raises(UsageError, match="column 'form' identifies the words"):
        filled(sentence, {"form": ["X"] * 5})
    with pytest.raises(DataError, match=r"the value 'a\\tb' of 'upos' has '\\t' in it"):
        filled(sentence, {"upos": ["a\tb"] * 5})


def test_raw_text_becomes_conllu_that_reads_as_itself() -> None:
    text = "Don't go to 东京 (now)."
    words = [text[begin:end] for begin, end in word_spans(text)]
    made = new_sentence(words, text=text, comments=["sent_id = 7"])
    (again,) = parse_sentences([made.text.encode()], Path("a.conllu"))
    assert again == made
    assert made.forms == tuple(words)
    joined = "".join(word.form + " " * (word["misc"] == "_") for word in made.words)
    assert joined.rstrip() == text
    assert made.lines[:2] == ("# sent_id = 7\n", f"# text = {text}\n")
    assert new_sentence(["a"]).text == "1\ta\t_\t_\t_\t_\t_\t_\t_\t_\n\n"
    with pytest.raises(DataError, match="'stop' does not follow at ' go'"):
        new_sentence(["Don't", "stop"], text="Don't go")
    with pytest.raises(DataError, match="word 2 is empty"):
        new_sentence(["a", ""])


@pytest.mark.parametrize(
    ("name", "text", "columns", "separator", "seen"),
    [
        (
            "ner.txt",
            "-DOCSTART- -X- -X- O\n\nEU NNP B-NP B-ORG\n# # B-NP O\n\n",
            ("form", "2", "3", "4"),
            " ",
            "token columns: 2 of the first 2 lines with text have 4 columns separated by spaces; the first has the "
            "words; blank lines end sentences",
        ),
        (
            "germeval.tsv",
            "#\tn-tv.de [2010]\n1\tNew York\tB-LOC\tO\n2\tist\tO\tO\n\n1\tJa\tO\tO\n",
            ("id", "form", "3", "4"),
            "\t",
            "token columns: 3 of the first 3 lines with text have 4 columns separated by tabs; the second has the "
            "words, the first counts them; blank lines end sentences",
        ),
        ("words.txt", "the\ndog\n", ("form",), " ", "token columns: 2 of the first 2 lines with text have 1 column"),
        ("tree.txt", SAMPLE, COLUMNS, "\t", "CoNLL-U: ten columns separated by tabs, because line 3 begins with the "),
    ],
)
def test_the_layout_is_found_in_the_first_lines(
    name: str, text: str, columns: tuple[str, ...], separator: str, seen: str
) -> None:
    layout = find_layout(Path(name), text.split("\n"))
    assert (layout.columns, layout.separator) == (columns, separator)
    assert layout.seen.startswith(seen)
    assert "".join(sentence.text for sentence in parse_sentences([text.encode()], Path(name))) == text


def test_a_column_can_be_added_to_words_alone() -> None:
    (sentence,) = parse_sentences([b"the\ndog  \r\n"], Path("words.txt"))
    assert filled(sentence, {"2": ["DET", "NOUN"], "3": ["", "O"]}).text == "the DET _\ndog NOUN O  \r\n"


def _row(identifier: str, columns: int = 10) -> str:
    return "\t".join([identifier, "w", *"_" * (columns - 2)]) + "\n"


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.conllu", _row("1") + _row("2", 9), "a.conllu:2: 9 columns, but CoNLL-U has 10, separated by tabs"),
        ("a.txt", _row("1", 9) + _row("2", 9), "a.txt:1: 9 columns, but CoNLL-U has 10, separated by tabs\na.txt:2: 9"),
        ("a.conllu", "\ufeff# x\r\n" + _row("1", 11), "a.conllu:2: 11 columns, but CoNLL-U has 10"),
        ("a.conllu", _row("1") + "Hello world\n", "a.conllu:2: no tab in 'Hello world', but CoNLL-U has 10 columns"),
        ("a.conllu", _row("1") + _row("3"), "a.conllu:2: the word id 3 does not follow; expected 2"),
        ("a.conllu", _row("1") + _row("1"), "a.conllu:2: the word id 1 does not follow; expected 2; is the blank line"),
        ("a.conllu", _row("1") + _row("01"), "a.conllu:2: '01' is not an id; use 3 for a word, 3-4 for a range"),
        ("a.conllu", _row("2-3") + _row("1"), "a.conllu:1: the range 2-3 does not fit: the next word is 1"),
        ("a.conllu", _row("1-3") + _row("1") + _row("2"), "a.conllu:1: the range 1-3 does not fit: the last word of"),
        ("a.conllu", _row("1") + _row("2-1"), "a.conllu:2: the range 2-1 ends before it begins"),
        ("a.conllu", _row("1-2") + _row("1") + _row("2-3"), "a.conllu:3: the range 2-3 overlaps the range 1-2"),
        ("a.conllu", _row("1") + _row("1.2"), "a.conllu:2: the empty node 1.2 does not follow; expected 1.1"),
        ("a.conllu", _row("1").replace("w", ""), "a.conllu:1: the word is empty; write _ if it is unknown"),
        (
            "a.conllu",
            (2 * _row("1")).replace("\n", "\r"),
            "a.conllu:1: a carriage return inside the line; lines end with",
        ),
        ("a.txt", "a O\nb O\n\nc\tO\n", "a.txt:4: a tab inside the line, but most lines separate columns by spaces"),
        ("a.txt", "a O\nb O\n\nc O O\n", "a.txt:4: 3 columns separated by spaces, but most lines have 2"),
        ("a.txt", "a O\nb O\nc\n", "a.txt:3: no space in 'c', but most lines have 2 columns"),
        ("a.txt", "a\tO\nb\tO\nc O\n", "a.txt:3: no tab in 'c O', but most lines have 2 columns"),
        ("a.txt", "The dog barks .\nIt is loud , I think .\nYes .\n", "a.txt: not a file of tokens: the lines have"),
        ("a.txt", "# only\n\n# comments\n", "a.txt: no words found: its first 3 lines are blank or comments"),
        ("a.conllu", _row("1").encode() + b"2\t\xe9" + b"\t_" * 8, "a.conllu:2:3: invalid UTF-8 byte 0xE9"),
        ("a.conllu", _row("1").encode("utf-16"), "a.conllu: this is UTF-16"),
        ("a.conllu", "# x\n" * (MAX_SENTENCE_LINES + 1), "a.conllu:100001: no blank line in 100,000 lines"),
    ],
)
def test_damage_is_named_with_its_line(tmp_path: Path, name: str, data: str | bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    with pytest.raises(DataError) as caught:
        list(TokenFile(path))
    assert message in str(caught.value).replace(f"{tmp_path}/", "")


def test_all_bad_lines_are_named_and_none_of_the_sentences_after_them_is_given(tmp_path: Path) -> None:
    path = tmp_path / "a.conllu"
    path.write_text(SAMPLE + _row("1", 9) + "\n" + SAMPLE + _row("2"), encoding="utf-8")
    given = []
    with pytest.raises(DataError) as caught:
        given.extend(TokenFile(path))  # which leaves what came before the error
    assert [(problem.line, problem.file) for problem in caught.value.problems] == [(11, str(path)), (23, str(path))]
    assert [sentence.text for sentence in given] == [SAMPLE]
