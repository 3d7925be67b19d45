"""Some rows of a large table, with a gradient that is as small as they are.

Looking up r rows of a table of V rows touches r · width numbers, but the gradient of the table, written out, has
V · width, nearly all of them zero; with a large vocabulary these zeros cost more than the model. Here the gradient is
a list of (row, values), in which a row may come up several times:

    y_i = T[rows_i]          ∂L/∂T = Σ_i e(rows_i) ∂L/∂y_iᵀ, kept as the pairs (rows_i, ∂L/∂y_i)
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable


def pick_rows(
    table: Float[Tensor, "symbols ..."], rows: Int[Tensor, " picked"], *, sparse: bool
) -> Float[Tensor, "picked ..."]:
    """T[rows]; with `sparse` the gradient of T is a sparse tensor of these rows, otherwise it is written out."""
    if not sparse:
        return table.index_select(0, rows)
    picked: Tensor = _PickRows.apply(table, rows)  # type: ignore[no-untyped-call]
    return picked


class _PickRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, table: Tensor, rows: Tensor) -> Tensor:
        ctx.save_for_backward(rows)
        ctx.shape = table.shape  # type: ignore[attr-defined]
        return table.index_select(0, rows)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor, None]:
        (rows,) = ctx.saved_tensors  # type: ignore[attr-defined]
        # Rows that come up twice are left so: several batches may follow, and they are summed up once, at the end.
        sparse = torch.sparse_coo_tensor(rows[None], gradient, ctx.shape, check_invariants=False)  # type: ignore[attr-defined]
        return sparse, None
