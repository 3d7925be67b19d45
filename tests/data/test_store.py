"""The store: what is appended comes back, and a damaged or half-made one is refused."""

import errno
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.core.errors import DataError, ModelError, SeqloomError, UsageError
from seqloom.data.store import BLOCK, HEADER, Side, Store, StoreWriter

Examples = Sequence[tuple[Sequence[int], Sequence[int]]]
SENTENCES = st.lists(st.integers(0, 69_999), max_size=6)


def make(folder: Path, examples: Examples, *, symbols: int = 100, chunk: int = 2) -> Store:
    with StoreWriter(folder, symbols=symbols) as writer:
        for begin in range(0, len(examples), chunk):
            part = examples[begin : begin + chunk]
            lines = range(10 + begin, 10 + begin + len(part))
            writer.append([source for source, _ in part], [target for _, target in part], lines)
    return Store.open(folder, verify=True)


SMALL: Examples = [([5, 6, 2], [7, 2]), ([2], [8, 9, 4, 2]), ([99, 2], [2])]


@given(st.lists(st.tuples(SENTENCES, SENTENCES.filter(bool)), min_size=1, max_size=9), st.integers(1, 4))
def test_what_is_appended_comes_back(
    tmp_path_factory: pytest.TempPathFactory, examples: list[tuple[list[int], list[int]]], chunk: int
) -> None:
    examples = [([*source, 2], target) for source, target in examples]
    store = make(tmp_path_factory.mktemp("store") / "ids", examples, symbols=70_000, chunk=chunk)
    assert [(list(store.sources[at]), list(store.targets[at])) for at in range(len(store))] == examples
    assert list(store.source_lengths) == [len(source) for source, _ in examples]
    assert list(store.target_lengths) == [len(target) for _, target in examples]
    assert [store.line(at) for at in range(len(store))] == list(range(10, 10 + len(examples)))


@pytest.mark.parametrize("count", [1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 3 * BLOCK + 7])
def test_a_sentence_is_found_from_the_landmark_before_it(count: int) -> None:
    lengths = np.random.default_rng(count).integers(0, 9, count).astype(np.uint32)
    ids = np.arange(lengths.sum(), dtype=np.uint16)
    side = Side.of(ids, lengths)
    starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    shuffled = np.random.default_rng(1).permutation(count).astype(np.uint32)
    assert side.tokens == len(ids)
    assert len(side.landmarks) == 1 + -(-count // BLOCK)
    np.testing.assert_array_equal(side.starts(shuffled), starts[shuffled])
    for begin, end in ((0, count), (count // 2, count), (count, count), (count - 1, count)):
        np.testing.assert_array_equal(side.borders(begin, end), starts[begin : end + 1])
    last = count - 1
    np.testing.assert_array_equal(side[last], ids[starts[last] :])


@pytest.mark.parametrize(("symbols", "kind"), [(65_535, np.uint16), (65_536, np.uint32)])
def test_ids_take_two_bytes_where_the_vocabulary_allows(tmp_path: Path, symbols: int, kind: type) -> None:
    store = make(tmp_path / "ids", [([symbols - 1], [2])], symbols=symbols)
    assert store.sources[0].dtype == kind
    assert list(store.sources[0]) == [symbols - 1]


@pytest.mark.parametrize("wrong", [100, -1, 65_540])
def test_an_id_outside_the_vocabulary_is_refused(tmp_path: Path, wrong: int) -> None:
    with pytest.raises(ModelError, match=f"id {wrong} is outside the vocabulary of 100 symbols"):
        make(tmp_path / "ids", [([wrong], [2])])
    assert list(tmp_path.iterdir()) == []


def test_a_folder_appears_only_when_it_is_complete(tmp_path: Path) -> None:
    folder = tmp_path / "ids"

    def stop_half_way() -> None:
        with StoreWriter(folder, symbols=9) as writer:
            writer.append([[2]], [[2]], [1])
            assert not folder.exists()
            raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        stop_half_way()
    assert list(tmp_path.iterdir()) == []
    make(folder, SMALL)
    assert list(tmp_path.iterdir()) == [folder]
    with pytest.raises(UsageError, match="exists already"):
        StoreWriter(folder, symbols=9)


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(SeqloomError, match=r"cannot write .*/ids: No space left on device; [\d,]+ bytes are free"):
        make(tmp_path / "ids", SMALL)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no example is left"):
        make(tmp_path / "ids", [])
    assert list(tmp_path.iterdir()) == []


def test_a_cut_file_is_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "ids"
    make(folder, SMALL)
    path = folder / "target.ids"
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(DataError, match=r"target\.ids has 12 bytes, not 14"):
        Store.open(folder)


def test_a_flipped_bit_is_noticed_when_asked(tmp_path: Path) -> None:
    folder = tmp_path / "ids"
    make(folder, SMALL)
    path = folder / "source.ids"
    path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])
    Store.open(folder)
    with pytest.raises(DataError, match=r"source\.ids: SHA-256"):
        Store.open(folder, verify=True)


@pytest.mark.parametrize("header", ["", "[]", "{}", '{"format": 1}', '{"format": 1, "ids": "bogus"}'])
def test_a_damaged_header_is_noticed(tmp_path: Path, header: str) -> None:
    folder = tmp_path / "ids"
    make(folder, SMALL)
    (folder / HEADER).write_text(header)
    with pytest.raises(DataError, match="not a complete store of examples"):
        Store.open(folder)


@pytest.mark.parametrize("kind", ["<u4", "<u8"])
def test_a_header_with_another_type_of_ids_is_noticed(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "ids"
    make(folder, [([5, 6, 2, 2], [7, 2]), ([2, 2], [8, 9, 4, 2])])
    header = json.loads((folder / HEADER).read_text())
    (folder / HEADER).write_text(json.dumps({**header, "ids": kind}))
    with pytest.raises(DataError, match=r"ids of type '<u[48]'"):
        Store.open(folder, verify=True)


def test_another_format_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "ids"
    make(folder, SMALL)
    header = json.loads((folder / HEADER).read_text())
    (folder / HEADER).write_text(json.dumps({**header, "format": 7}))
    with pytest.raises(DataError, match="has format 7, this version reads 1"):
        Store.open(folder)
    with pytest.raises(DataError, match="No such file"):
        Store.open(tmp_path / "nowhere")


def test_the_fingerprint_tells_contents_apart(tmp_path: Path) -> None:
    prints = [
        make(tmp_path / name, examples).fingerprint()
        for name, examples in (("a", SMALL), ("b", SMALL), ("c", SMALL[:2]), ("d", [*SMALL[:2], ([98, 2], [2])]))
    ]
    assert prints[0] == prints[1]
    assert len(set(prints)) == 3
