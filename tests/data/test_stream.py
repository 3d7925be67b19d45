"""The stream: what is appended comes back with its ends of lines, and a damaged or foreign folder is refused."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.core.errors import DataError, ModelError
from seqloom.core.symbols import END, UNKNOWN
from seqloom.data.plain_text import Stream, StreamWriter, TextCorpus, encode_text
from seqloom.data.store import Store


def make(folder: Path, sentences: list[list[int]], *, symbols: int = 100, chunk: int = 2) -> Stream:
    with StreamWriter(folder, symbols=symbols) as writer:
        for begin in range(0, len(sentences), chunk):
            part = sentences[begin : begin + chunk]
            writer.append(part, list(range(10 + begin, 10 + begin + len(part))))
    return Stream.open(folder, verify=True)


@given(st.lists(st.lists(st.integers(3, 69_999), max_size=6), min_size=1, max_size=9), st.integers(1, 4))
def test_what_is_appended_comes_back(
    tmp_path_factory: pytest.TempPathFactory, sentences: list[list[int]], chunk: int
) -> None:
    stream = make(tmp_path_factory.mktemp("stream") / "text", sentences, symbols=70_000, chunk=chunk)
    assert [list(stream.line(at)) for at in range(len(stream))] == [[*ids, END] for ids in sentences]
    assert list(stream.ids) == [symbol for ids in sentences for symbol in (*ids, END)]
    assert list(stream.lines) == list(range(10, 10 + len(sentences)))
    assert stream.tokens == stream.lengths.sum() == stream.offsets[-1]
    assert list(stream.counts()) == list(np.bincount(stream.ids, minlength=70_000))


def test_a_token_knows_its_line(tmp_path: Path) -> None:
    stream = make(tmp_path / "text", [[5, 6], [], [7]])
    assert [stream.line_of(token) for token in range(6)] == [10, 10, 10, 11, 12, 12]


def test_an_id_outside_the_vocabulary_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="id 100 is outside the vocabulary of 100 symbols"):
        make(tmp_path / "text", [[100]])
    assert list(tmp_path.iterdir()) == []


def test_a_text_without_lines_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no line that could be stored"):
        make(tmp_path / "text", [])
    assert list(tmp_path.iterdir()) == []


def test_a_cut_file_and_a_flipped_bit_are_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "text"
    make(folder, [[5, 6], [7]])
    path = folder / "ids"
    content = path.read_bytes()
    path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    Stream.open(folder)
    with pytest.raises(DataError, match=r"not a complete stream of text \(ids: SHA-256"):
        Stream.open(folder, verify=True)
    path.write_bytes(content[:-2])
    with pytest.raises(DataError, match="ids has 8 bytes, not 10"):
        Stream.open(folder)


def test_a_stream_is_no_store(tmp_path: Path) -> None:
    make(tmp_path / "text", [[5]])
    with pytest.raises(DataError, match="not a complete store of examples"):
        Store.open(tmp_path / "text")


def spell(texts: list[str]) -> list[list[int]]:
    return [[UNKNOWN if letter == "?" else ord(letter) for letter in text] for text in texts]


@pytest.mark.parametrize("keep_empty", [True, False])
def test_a_corpus_is_encoded_line_by_line(tmp_path: Path, keep_empty: bool) -> None:
    (tmp_path / "a.txt").write_text("ab?\n\nc\n")
    told: list[tuple[int, int]] = []
    report = encode_text(
        TextCorpus([tmp_path / "a.txt"]),
        spell,
        tmp_path / "text",
        symbols=128,
        keep_empty=keep_empty,
        progress=lambda done, everything: told.append((done, everything)),
    )
    stream = Stream.open(tmp_path / "text")
    middle = [[END]] if keep_empty else []
    assert [list(stream.line(at)) for at in range(len(stream))] == [[97, 98, UNKNOWN, END], *middle, [99, END]]
    assert list(stream.lines) == ([1, 2, 3] if keep_empty else [1, 3])
    assert (report.lines, report.empty, report.tokens, report.unknown) == (len(stream), 1, stream.tokens, 1)
    assert told == [(3, 3)]


def test_a_text_of_empty_lines_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n\n\n")
    with pytest.raises(DataError, match="all of its 3 lines are empty"):
        encode_text(TextCorpus([tmp_path / "a.txt"]), spell, tmp_path / "text", symbols=128)
    assert not (tmp_path / "text").exists()
