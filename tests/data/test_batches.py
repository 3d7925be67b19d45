"""Batches: the sentences of a store, padded, shifted and known by their lines."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seqloom.core.symbols import BEGIN, END, PAD
from seqloom.data.batches import collate
from seqloom.data.store import Store, StoreWriter


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder: Path = tmp_path_factory.mktemp("store") / "ids"
    with StoreWriter(folder, symbols=50) as writer:
        writer.append([[5, 6, END], [END], [9, END]], [[7, END], [8, 9, 4, END], [END]], [1, 3, 4])
    return Store.open(folder)


def test_a_batch_by_hand(store: Store) -> None:
    batch = collate(store, np.array([2, 0]))
    assert batch.source.ids.tolist() == [[9, END, PAD], [5, 6, END]]
    assert batch.source.lengths.tolist() == [2, 3]
    assert batch.target.tolist() == [[END, PAD], [7, END]]
    assert batch.previous.tolist() == [[BEGIN, END], [BEGIN, 7]]
    assert batch.target_lengths.tolist() == [1, 2]
    assert batch.lines.tolist() == [4, 1]
    assert {batch.source.ids.dtype, batch.target.dtype, batch.target_lengths.dtype} == {torch.int64}


def test_the_labels_stay_when_the_shifted_ones_are_made(store: Store) -> None:
    batch = collate(store, np.array([1]))
    batch.previous.fill_(0)
    assert batch.target.tolist() == [[8, 9, 4, END]]


@given(st.lists(st.integers(0, 2), min_size=1, max_size=7))
def test_rows_are_the_sentences_whatever_their_neighbours(store: Store, indices: list[int]) -> None:
    batch = collate(store, np.array(indices))
    for row, index in enumerate(indices):
        length = int(batch.target_lengths[row])
        assert batch.target[row, :length].tolist() == list(store.targets[index])
        assert bool((batch.target[row, length:] == PAD).all())
        length = int(batch.source.lengths[row])
        assert batch.source.ids[row, :length].tolist() == list(store.sources[index])
        assert bool((batch.source.ids[row, length:] == PAD).all())
    assert batch.target.shape[1] == batch.target_lengths.max()


def test_an_empty_batch_has_no_rows(store: Store) -> None:
    batch = collate(store, np.array([], dtype=np.int64))
    assert batch.source.ids.shape == (0, 0)
    assert batch.previous.shape == (0, 0)


def test_a_batch_moves_as_a_whole(store: Store) -> None:
    moved = collate(store, np.array([0, 1])).to("meta")
    assert {moved.source.ids.device, moved.source.lengths.device, moved.target.device, moved.target_lengths.device} == {
        torch.device("meta")
    }
