"""The last layer: from features to scores over the symbols."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional as F

from seqloom.nn.losses import smoothed_cross_entropy

# Some rows of a large table, with a gradient that is as small as they are.
#
# Looking up r rows of a table of V rows touches r · width numbers, but the gradient of the table, written out, has V ·
# width, nearly all of them zero; with a large vocabulary these zeros cost more than the model. Here the gradient is a
# list of (row, values), in which a row may come up several times:
#
#     y_i = T[rows_i]          ∂L/∂T = Σ_i e(rows_i) ∂L/∂y_iᵀ, kept as the pairs (rows_i, ∂L/∂y_i)


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


class Output(nn.Module):
    """Scores over the symbols, `W x + b`; tied when `weight` is the table of an embedding.

    Training hands `weight` and `bias` to a loss in `nn.losses`, which never keeps all scores at once;
    decoding asks for `log_probs`. `log_z` is one learned number for objectives that do not normalise (`nn.objectives`);
    it shifts all scores alike, so that probabilities do not depend on it.
    """

    row_gradients = False
    """Whether `picked` gives the table a gradient of the picked rows only; set by `training.sparse`."""

    def __init__(self, weight: nn.Parameter, *, has_bias: bool = False, has_log_z: bool = False) -> None:
        super().__init__()
        self.weight = weight
        self.bias = nn.Parameter(weight.new_zeros(weight.shape[0])) if has_bias else None
        self.log_z = nn.Parameter(weight.new_zeros(())) if has_log_z else None

    def forward(self, features: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows symbols"]:
        return F.linear(features, self.weight, self.bias)

    def log_probs(self, features: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows symbols"]:
        """log softmax(W x + b)"""
        return log_softmax_(self(features))

    def cross_entropy(
        self, features: Float[Tensor, "tokens width"], labels: Int[Tensor, " tokens"], *, smoothing: float = 0.0
    ) -> Float[Tensor, ""]:
        """Σ over tokens of −log softmax(W x + b)[label], smoothed: the full softmax, as a loss."""
        return smoothed_cross_entropy(features, self.weight, self.bias, labels, smoothing=smoothing)

    def picked(
        self, symbols: Int[Tensor, " picked"]
    ) -> tuple[Float[Tensor, "picked width"], Float[Tensor, " picked"] | None]:
        """The rows of W and b that score some symbols."""
        weight = pick_rows(self.weight, symbols, sparse=self.row_gradients)
        bias = None if self.bias is None else pick_rows(self.bias, symbols, sparse=self.row_gradients)
        return weight, bias


def log_softmax_(scores: Float[Tensor, "*rows symbols"]) -> Float[Tensor, "*rows symbols"]:
    """log softmax of scores that nobody else needs, in their place where no gradient is asked for.

    A table of all scores is tens of megabytes, and memory of that size costs more to get than the softmax itself.
    """
    return F.log_softmax(scores, dim=-1) if scores.requires_grad else torch.log_softmax(scores, -1, out=scores)
