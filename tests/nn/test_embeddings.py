"""Embeddings: a lookup is a product with a one-hot vector, learns used rows alone, and tables can be one."""

import pytest
import torch
from torch.nn import functional as F

from seqloom.core.errors import ConfigError
from seqloom.core.symbols import PAD
from seqloom.nn.embeddings import Embedding, Symbols, Tying, tied_tables


def test_one_hot_times_the_table_equals_the_lookup_exactly() -> None:
    embedding = Embedding(9, 4).double()
    ids = torch.randint(9, (3, 5))
    one_hot = F.one_hot(ids, 9).double()
    assert torch.equal(one_hot @ embedding.weight, embedding(ids))


def test_gradients_reach_used_rows_alone() -> None:
    embedding = Embedding(9, 4)
    ids = torch.tensor([[3, 5, 3], [8, PAD, PAD]])
    embedding(ids).sum().backward()
    gradient = embedding.weight.grad
    assert gradient is not None
    expected = torch.zeros(9, 4)
    expected[3], expected[5], expected[8] = 2.0, 1.0, 1.0  # once per use; padding does not count
    assert torch.equal(gradient, expected)


def test_rows_begin_with_the_variance_that_the_docstring_promises() -> None:
    embedding = Embedding(4000, 64)
    assert not embedding.weight[PAD].any()
    assert abs(float(embedding.weight[1:].detach().var()) * 64 - 1) < 0.05


@pytest.mark.parametrize(("tying", "tables"), [("all", 1), ("inputs", 2), ("output", 2), ("none", 3)])
def test_tying_makes_tables_one(tying: Tying, tables: int) -> None:
    made = tied_tables(Symbols(source=7, target=7, is_shared=True), 4, tying)
    assert len({id(weight) for weight in (made.source.weight, made.target.weight, made.output)}) == tables
    assert (made.target.weight is made.output) == (tying in ("all", "output"))
    assert (made.source is made.target) == (tying in ("all", "inputs"))


def test_tables_of_two_vocabularies_have_their_own_sizes() -> None:
    made = tied_tables(Symbols(source=7, target=9, is_shared=False), 4, "output")
    assert made.source.weight.shape == (7, 4)
    assert made.output.shape == (9, 4)


def test_tying_all_without_a_shared_vocabulary_is_refused_with_a_remedy() -> None:
    with pytest.raises(ConfigError, match=r"model\.tying is 'all'.*text\.shared=true.*model\.tying=output"):
        tied_tables(Symbols(source=7, target=7, is_shared=False), 4, "all")
