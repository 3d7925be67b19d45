"""Glossaries: which terms are found in a line, what is wrong with a file, how a term is written in ids."""

from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nasty
from seqloom.core.errors import DataError
from seqloom.core.symbols import UNKNOWN
from seqloom.text.glossary import Glossary, read_glossary, ways_to_write
from seqloom.text.normalise import Normaliser
from seqloom.text.tokenizer import TextConfig, Tokenizer
from seqloom.text.tokenizer_training import train_tokenizer


def found(line: str, *terms: str, ignores_case: bool = False) -> list[str]:
    """The source terms that are found in a line."""
    glossary = Glossary(tuple((term, term.upper()) for term in terms), ignores_case)
    matches = glossary.matches(line)
    assert all(target == source.upper() for source, target in matches)
    return [source for source, _ in matches]


@pytest.mark.parametrize(
    ("line", "terms", "expected"),
    [
        ("The dog sees a dog.", ["dog"], ["dog", "dog"]),
        ("dogs, hotdog, dog's, (dog) and dog-house", ["dog"], ["dog", "dog", "dog"]),
        ("in New York City", ["York", "New York", "New York City"], ["New York City"]),
        ("the New York Times", ["New York", "York Times"], ["York Times"]),
        ("a b c", ["b c", "a b"], ["a b"]),
        ("two then one", ["one", "two"], ["two", "one"]),
        ("fire \t  engine", ["fire engine"], ["fire engine"]),
        ("35 and 5", ["5"], ["5"]),
        ("C++ and C", ["C++"], ["C++"]),
        ("caf\u00e9", ["cafe\u0301"], ["cafe\u0301"]),
        ("caf\u00e9", ["caf"], []),
        ("x\u0308y", ["x"], []),
        ("我们在海边看狗。", ["海边", "狗"], ["海边", "狗"]),
        ("我的T恤和iPhone手机", ["iPhone", "T恤", "Phone"], ["T恤", "iPhone"]),
        ("ภาษาไทย", ["ไทย", "ภาษ"], ["ภาษ", "ไทย"]),
        ("ที่นี่", ["ท"], []),
        ("คำ", ["ค"], ["ค"]),
        ("", ["a"], []),
        ("anything", [], []),
    ],
)
def test_terms_are_found_between_the_borders_of_words(line: str, terms: list[str], expected: list[str]) -> None:
    assert found(line, *terms) == expected


def test_case_matters_unless_it_is_to_be_ignored() -> None:
    assert found("DOG Dog dog", "Dog") == ["Dog"]
    assert found("DOG Dog dog", "Dog", ignores_case=True) == ["Dog"] * 3
    assert found("die STRASSE", "Straße", ignores_case=True) == ["Straße"]


def test_a_model_of_small_letters_finds_terms_whatever_their_case() -> None:
    small = train_tokenizer(["a dog"], TextConfig(kind="char", lowercase=True))
    glossary = Glossary((("Dog", "Hund"), ("dog", "Rüde")))
    assert glossary.matches("a Dog") == [("Dog", "Hund")]
    # Both terms read the same now, and the last pair counts; its translation is left as it was given.
    assert glossary.read_by(small).matches("a Dog, a DOG") == [("dog", "Rüde"), ("dog", "Rüde")]
    assert not glossary.ignores_case


def test_a_model_of_all_letters_reads_a_glossary_as_it_is() -> None:
    cased = train_tokenizer(["a dog"], TextConfig(kind="char"))
    for ignores_case in (False, True):  # what was asked for stays
        glossary = Glossary((("Dog", "Hund"),), ignores_case)
        assert glossary.read_by(cased) == glossary


@given(st.lists(st.text("ab ", min_size=1, max_size=3).filter(str.strip), max_size=4), st.text("ab ", max_size=12))
def test_places_do_not_overlap_and_no_term_is_overlooked(terms: list[str], line: str) -> None:
    normal = {" ".join(term.split()) for term in terms}
    words, matches = " ".join(line.split()), found(line, *normal)
    rest = words
    for term in matches:  # in the order of their places, each behind the one before
        assert term in rest
        rest = rest.partition(term)[2]
    assert bool(matches) == any(f" {term} " in f" {words} " for term in normal)


@given(nasty.texts(longest=60), st.lists(nasty.line(most=1, longest=9), max_size=4), st.booleans())
def test_terms_of_any_text_are_found_in_it(line: str, terms: list[str], ignores_case: bool) -> None:
    usable = [term for term in terms if term.strip() and Normaliser()(term)]
    glossary = Glossary(tuple((term, "x") for term in usable), ignores_case)
    for term, target in glossary.matches(f"{line} {' '.join(usable)}"):
        assert term in usable
        assert target == "x"


@given(nasty.texts(longest=60), st.lists(nasty.line(most=1, longest=9), max_size=4), st.booleans(), st.data())
def test_a_restricted_glossary_finds_the_same_terms(
    line: str, terms: list[str], ignores_case: bool, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(line)))
    sources = [*terms, line[start : start + 3], line[start : start + 1], "absent"]
    pairs = tuple((term, f"{number}") for number, term in enumerate(sources) if Normaliser()(term))
    glossary = Glossary(pairs, ignores_case)
    few = glossary.restricted_to([line])
    assert few.matches(line) == glossary.matches(line)
    assert ("absent", f"{len(sources) - 1}") not in few.terms or "absent" in line.casefold()


@given(nasty.files(longest=20))
def test_any_file_is_a_glossary_or_a_data_error(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.tsv"
    path.write_bytes(data)
    with suppress(DataError):
        assert all("\t" not in term for pair in read_glossary(path).terms for term in pair)


def written(folder: Path, text: str) -> Path:
    path = folder / "terms.tsv"
    path.write_bytes(text.encode("utf-8"))
    return path


def test_a_file_is_read_with_its_comments_and_blank_lines(tmp_path: Path) -> None:
    path = written(tmp_path, "\ufeff# English\tGerman\n\nfire  engine\tFeuerwehrauto\r\ndog\tHund\ndog\tHund\n")
    assert read_glossary(path) == Glossary((("fire engine", "Feuerwehrauto"), ("dog", "Hund")))
    assert read_glossary(path, ignores_case=True).ignores_case


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tb\ndog Hund\n", "terms.tsv:2: 'dog Hund' has no tab; write the source term, a tab and the target term"),
        ("a\tb\tc\n", "terms.tsv:1: 3 columns, but a glossary has two"),
        ("# x\n\na\t \n", "terms.tsv:3: the target term is empty"),
        ("\tb\n", "terms.tsv:1: the source term is empty"),
        ("a\tb\na\tc\n", "terms.tsv:2: 'a' is 'c' here, but 'b' in line 1; keep one of the two"),
    ],
)
def test_lines_that_are_wrong_are_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError) as refused:
        read_glossary(written(tmp_path, text))
    assert message in str(refused.value)


def test_all_wrong_lines_are_named_at_once_and_case_can_make_a_line_wrong(tmp_path: Path) -> None:
    path = written(tmp_path, "a\tb\nA\tc\nx\n")
    with pytest.raises(DataError) as refused:
        read_glossary(path, ignores_case=True)
    assert [problem.line for problem in refused.value.problems] == [2, 3]
    with pytest.raises(DataError) as refused:
        read_glossary(path)
    assert [problem.line for problem in refused.value.problems] == [3]


def test_an_empty_term_is_refused() -> None:
    with pytest.raises(DataError, match="empty term"):
        Glossary((("a", " "),))


# --- ways to write ---------------------------------------------------------------------------------------------------

LINES = [
    "a man says (the dog) is a dog, and the dog's owner laughs.",
    "two dogs run: (a dog) (two dogs) and a hotdog.",
    "我们在海边看狗。",
]


@cache
def tokenizer(kind: str) -> Tokenizer:
    return train_tokenizer(LINES, TextConfig.model_validate({"kind": kind, "size": 90}))


@pytest.mark.parametrize("kind", ["word", "char", "bpe", "unigram"])
@pytest.mark.parametrize("term", ["dog", "two dogs", "狗"])
def test_each_way_spells_the_term(kind: str, term: str) -> None:
    ours = tokenizer(kind)
    ways = ways_to_write(term, ours)
    if kind == "word" and term == "狗":  # there is only the whole sentence in the vocabulary
        assert ways == []
        return
    assert ways
    assert len(ways) == len(set(ways))
    assert all(ours.decode(way) == term and UNKNOWN not in way for way in ways)


@pytest.mark.parametrize("kind", ["char", "bpe", "unigram", "word"])
def test_a_term_is_found_wherever_it_stands(kind: str) -> None:
    ours = tokenizer(kind)
    ways = ways_to_write("dog", ours)
    for line in ("dog", "a dog", "(dog) and two dogs"):
        ids = tuple(ours.encode(line))
        assert any(ids[i : i + len(way)] == way for way in ways for i in range(len(ids)))
    other = tuple(ours.encode("a man"))
    assert not any(other[i : i + len(way)] == way for way in ways for i in range(len(other)))


def test_subwords_have_a_way_with_a_space_and_one_without() -> None:
    ours = tokenizer("bpe")
    first = [ours.piece(way[0]) for way in ways_to_write("dog", ours)]
    assert [piece.startswith("▁") for piece in first] == [True, False, True]


def test_every_way_without_a_space_is_there_with_one_too() -> None:
    spelled = ["".join(map(tokenizer("char").piece, way)) for way in ways_to_write("dog", tokenizer("char"))]
    assert spelled == ["dog", "▁dog"]
    assert [tokenizer("char").piece(way[0]) for way in ways_to_write("狗", tokenizer("char"))] == ["狗", "▁"]


def test_a_combining_mark_begins_no_term() -> None:
    assert ways_to_write("\u0301a", tokenizer("char")) == []


def test_what_has_unknown_pieces_cannot_be_written() -> None:
    assert ways_to_write("Übergrößenträger", tokenizer("bpe")) == []
