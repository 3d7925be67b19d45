"""Files of word vectors: what is written is read back to the bit, gensim agrees, and damage is named."""

import gzip
import struct
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nasty
from seqloom.classical.vectors import WordVectors
from seqloom.core.errors import DataError, UsageError
from seqloom.interop.word2vec_format import is_binary_name, read_vectors, write_vectors

NAMES = ["v.txt", "v.bin", "v.txt.gz", "v.bin.gz"]


@pytest.fixture
def vectors() -> WordVectors:
    numbers = np.random.default_rng(1).normal(size=(5, 3)).astype(np.float32)
    numbers[0, 0], numbers[1, 1] = 1e-30, 3.4e38
    return WordVectors(("the", "café", "苹果", "x|y", "'"), numbers, np.zeros(5, np.int64))


@pytest.mark.parametrize("name", NAMES)
def test_reads_back_what_it_wrote_to_the_bit(name: str, tmp_path: Path, vectors: WordVectors) -> None:
    write_vectors(vectors, tmp_path / name)
    again = read_vectors(tmp_path / name)
    assert again.words == vectors.words
    assert again.vectors.tobytes() == vectors.vectors.tobytes()


WORDS = nasty.line(most=2, longest=20, without="\0").map(lambda text: "".join(text.split())).filter(bool)


@given(st.lists(WORDS, min_size=1, max_size=5, unique=True), st.sampled_from(NAMES[:2]))
def test_any_words_without_spaces_come_back(
    tmp_path_factory: pytest.TempPathFactory, words: list[str], name: str
) -> None:
    path = tmp_path_factory.getbasetemp() / name
    found = WordVectors(tuple(words), np.ones((len(words), 2), np.float32), np.zeros(len(words), np.int64))
    write_vectors(found, path)
    assert read_vectors(path).words == tuple(words)


@given(nasty.files(longest=20), st.sampled_from([b"", b"2 2\n", b"1 1\na 1\n"]), st.sampled_from(NAMES[:2]))
def test_any_bytes_are_vectors_or_a_data_error(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, start: bytes, name: str
) -> None:
    path = tmp_path_factory.getbasetemp() / name
    path.write_bytes(start + data)
    with suppress(DataError):
        assert len(read_vectors(path).words) in (1, 2)


def test_text_has_the_layout_that_others_know(tmp_path: Path) -> None:
    write_vectors(WordVectors(("a", "b"), np.array([[1, -0.5], [0.25, 2]], np.float32), np.zeros(2, np.int64)),
                  tmp_path / "v.txt")  # fmt: skip
    assert (tmp_path / "v.txt").read_text(encoding="utf-8") == "2 2\na 1 -0.5\nb 0.25 2\n"


def test_reads_the_line_ends_of_the_original_program(tmp_path: Path) -> None:
    rows = b"".join(word + b" " + struct.pack("<2f", 1.0, 2.0) + b"\n" for word in (b"a", b"b"))
    (tmp_path / "v.bin").write_bytes(b"2 2\n" + rows)
    assert read_vectors(tmp_path / "v.bin").words == ("a", "b")


def test_reads_phrases_with_spaces_in_text(tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text("1 2\nnew york 1 2 \n", encoding="utf-8")
    assert read_vectors(tmp_path / "v.txt").words == ("new york",)


def test_words_with_spaces_are_not_written(tmp_path: Path) -> None:
    found = WordVectors(("new york",), np.ones((1, 2), np.float32), np.zeros(1, np.int64))
    with pytest.raises(DataError, match=r"1 words are empty or hold spaces.*new york"):
        write_vectors(found, tmp_path / "v.txt")


def test_a_place_that_is_no_file_is_refused(tmp_path: Path, vectors: WordVectors) -> None:
    with pytest.raises(UsageError, match="is a folder; name the file"):
        write_vectors(vectors, tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="is a file, not a folder"):
        write_vectors(vectors, tmp_path / "file" / "v.txt")


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("v.txt", b"", "v.txt:1: '' is not the number of words and the width"),
        ("v.txt", b"the 0.1 0.2\n", "GloVe files lack this line"),
        ("v.txt", b"0 2\n", "0 words of width 2 are not word vectors"),
        ("v.txt", b"2 2\na 1 2\n", "is cut short: 1 words, but its first line says 2"),
        ("v.txt", b"1 2\na 1 2\nb 1 2\n", "is longer than it says: 2 words"),
        ("v.txt", b"1 2\na 1\n", "v.txt:2: 'a 1' … is not a word and 2 numbers"),
        ("v.txt", b"1 2\na 1 x\n", "v.txt:2: 'a 1 x' … is not a word and 2 numbers"),
        ("v.txt", b"9" * 5000 + b" 2\na 1 2\n", "v.txt:1: '9999.*' is not the number of words and the width"),
        ("v.txt", b"2 1\n\na 1\n\nb nan\n", "v.txt:5: the vector of 'b', word 2, has numbers that are not finite"),
        ("v.txt", b"2 1\na 1\n 1\n", "v.txt:3: word 2 is empty"),
        ("v.txt", b"2 1\na 1\na 2\n", r"1 words have more than one vector, such as \['a'\]"),
        ("v.bin", b"2 2\na \0\0\0", "is cut short: 2 words of width 2 need 16 bytes, it has 9"),
        ("v.bin", b"1 2\nabcdefghijk", "ends in word 1 of 1"),
        ("v.bin", b"9999999 9999\na", "is cut short"),
        ("v.bin", b"1 1\n\xff\xfe \0\0\0\0", "which is not UTF-8"),
        ("v.bin", b"1 1\na \0\0\xc0\x7f", "v.bin: the vector of 'a', word 1, has numbers that are not finite"),
        ("v.bin", b"1 1\n \0\0\0\0", "v.bin: word 1 is empty"),
        ("v.bin", b"1 1\na \0\0\0\0more", "has 4 more bytes"),
        ("v.bin.gz", gzip.compress(b"1 1\na \0\0\0\0", mtime=0)[:-9], "cut short or damaged"),
    ],
)
def test_damage_is_named(tmp_path: Path, name: str, content: bytes, sentence: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=sentence):
        read_vectors(tmp_path / name)


# --- gensim -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def gensim() -> Any:
    return pytest.importorskip("gensim.models", reason="gensim is not installed; it is one of the parity group")


@pytest.mark.parity
@pytest.mark.parametrize("name", NAMES)
def test_gensim_reads_ours_with_equal_numbers(gensim: Any, name: str, tmp_path: Path, vectors: WordVectors) -> None:
    write_vectors(vectors, tmp_path / name)
    theirs = gensim.KeyedVectors.load_word2vec_format(str(tmp_path / name), binary=is_binary_name(Path(name)))
    assert theirs.index_to_key == list(vectors.words)
    np.testing.assert_array_equal(theirs.vectors, vectors.vectors)
    changed = vectors.vectors.copy()
    changed[4, 2] = np.nextafter(changed[4, 2], np.float32(9))  # the least that a number can change
    write_vectors(replace(vectors, vectors=changed), tmp_path / name)
    theirs = gensim.KeyedVectors.load_word2vec_format(str(tmp_path / name), binary=is_binary_name(Path(name)))
    assert (theirs.vectors != vectors.vectors).sum() == 1


@pytest.mark.parity
@pytest.mark.parametrize("name", NAMES)
def test_we_read_what_gensim_has_trained_and_answer_alike(gensim: Any, name: str, tmp_path: Path) -> None:
    draws = np.random.default_rng(2)
    lines = [[f"w{word}" for word in draws.integers(30, size=8)] for _ in range(40)]
    trained = gensim.Word2Vec(lines, vector_size=6, min_count=1, epochs=2, workers=1, seed=1).wv
    trained.save_word2vec_format(str(tmp_path / name), binary=is_binary_name(Path(name)))
    ours = read_vectors(tmp_path / name)
    assert list(ours.words) == trained.index_to_key
    np.testing.assert_array_equal(ours.vectors, trained.vectors)
    (found,) = ours.nearest(["w3"], count=5)
    expected = trained.most_similar("w3", topn=5)
    assert [each.word for each in found] == [word for word, _ in expected]
    assert [each.score for each in found] == pytest.approx([cosine for _, cosine in expected], abs=1e-6)
    others = [word for word, _ in trained.most_similar("w4", topn=5)]
    assert [each.word for each in found] != others
