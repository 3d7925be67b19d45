"""Rows of a table: the same values, and a gradient that is the dense one without its zeros."""

import pytest
import torch

from seqloom.core.symbols import PAD
from seqloom.nn.embeddings import Embedding
from seqloom.nn.outputs import Output, pick_rows


@pytest.mark.parametrize("shape", [(7, 3), (7,)])
def test_the_sparse_gradient_is_the_dense_one(shape: tuple[int, ...]) -> None:
    table = torch.randn(shape, requires_grad=True)
    rows = torch.tensor([2, 5, 2, 0])
    weights = torch.randn(4, *shape[1:])
    (dense,) = torch.autograd.grad((pick_rows(table, rows, sparse=False) * weights).sum(), table)
    (sparse,) = torch.autograd.grad((pick_rows(table, rows, sparse=True) * weights).sum(), table)
    assert sparse.is_sparse
    assert sparse._nnz() == 4
    torch.testing.assert_close(sparse.to_dense(), dense)
    torch.testing.assert_close(pick_rows(table, rows, sparse=True), table[rows])


def test_no_rows_give_an_empty_gradient() -> None:
    table = torch.randn(4, 3, requires_grad=True)
    (gradient,) = torch.autograd.grad(pick_rows(table, torch.tensor([], dtype=torch.int64), sparse=True).sum(), table)
    assert gradient.is_sparse
    assert gradient._nnz() == 0


def test_a_table_that_is_embedding_and_output_adds_up_both_gradients() -> None:
    embedding = Embedding(9, 3)
    output = Output(embedding.weight)

    def gradient(is_sparse: bool) -> torch.Tensor:
        embedding.row_gradients = output.row_gradients = is_sparse
        rows, _ = output.picked(torch.tensor([1, 4, 4]))
        loss = (embedding(torch.tensor([4, PAD, 6])) * rows).sum()
        return torch.autograd.grad(loss, embedding.weight)[0]

    dense, sparse = gradient(False), gradient(True)
    assert sparse.is_sparse
    torch.testing.assert_close(sparse.to_dense(), dense)
    assert not dense[PAD].any(), "looking up padding teaches nothing"


def test_a_full_softmax_over_a_table_with_row_gradients_makes_them_dense() -> None:
    embedding = Embedding(9, 3)
    output = Output(embedding.weight)
    embedding.row_gradients = output.row_gradients = True
    output.cross_entropy(embedding(torch.tensor([4, 6])), torch.tensor([1, 2])).backward()
    assert embedding.weight.grad is not None
    assert not embedding.weight.grad.is_sparse
