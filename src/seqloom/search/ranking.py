"""The best candidates of each sentence, from the best symbols of its rows."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seqloom.search.top import Top, is_worth_compiling

IMPOSSIBLE = float("-inf")


@dataclass(frozen=True)
class Ranked:
    """The candidates of each sentence, best first; those past its last one have a value of −∞, and mean nothing.

    A candidate is a row of the batch, which is one of the `places` of its sentence, with one symbol more.
    """

    values: Float[Tensor, "sentences best"]
    log_probs: Float[Tensor, "sentences best"]
    rows: Int[Tensor, "sentences best"]
    places: Int[Tensor, "sentences best"]
    symbols: Int[Tensor, "sentences best"]


def ranked(
    top: Top, *, so_far: Float[Tensor, " rows"], sizes: Int[Tensor, " sentences"], beam: int, best: int
) -> Ranked:
    """The `best` candidates of each sentence, which has `sizes` rows, one after another, `beam` at most.

    Of equal candidates the one from the earlier row, and then the one that is earlier in its row comes first. Sums are
    in float64.
    """
    is_compiled = is_worth_compiling(top.values)
    values, rows, places, columns = (
        _by_loops(top, so_far, sizes, best) if is_compiled else _by_sorting(top, so_far, sizes, beam, best)
    )
    return Ranked(values, top.log_probs[rows, columns].double(), rows, places, top.symbols[rows, columns])


def _by_loops(top: Top, so_far: Tensor, sizes: Tensor, best: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    from seqloom.search.rank_kernels import merge

    values = torch.empty(len(sizes), best, dtype=torch.float64)
    rows, places, columns = (torch.empty(len(sizes), best, dtype=torch.long) for _ in range(3))
    merge(*(each.numpy() for each in (top.values, so_far, sizes, values, rows, places, columns)))
    return values, rows, places, columns


def _by_sorting(top: Top, so_far: Tensor, sizes: Tensor, beam: int, best: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """On a grid: empty places, where a sentence has fewer rows than others, are −∞, as forbidden symbols are."""
    device = top.values.device
    rows, columns = top.values.shape
    starts = sizes.cumsum(0) - sizes
    owner = torch.repeat_interleave(torch.arange(len(sizes), device=device), sizes)
    place = torch.arange(rows, device=device) - starts[owner]

    grid = torch.full((len(sizes), beam, columns), IMPOSSIBLE, dtype=torch.float64, device=device)
    grid[owner, place] = so_far[:, None] + top.values.double()
    values, order = grid.flatten(1).sort(dim=1, descending=True, stable=True)
    values, order = values[:, :best], order[:, :best]  # [sentences, best]
    places, column = order // columns, order % columns
    picked = (starts[:, None] + places).clamp(max=rows - 1)  # empty places point past the rows
    return values, picked, places, column
