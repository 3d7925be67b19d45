"""The best symbols of each row, and from them the best candidates of each sentence.

Ties are decided, so that neither other rows nor the kernel in use can change a result.
"""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Int64
from torch import Tensor

from seqloom.core.errors import ModelError
from seqloom.core.stepping import Step
from seqloom.nn.fast.selection import best_columns, merge

MAX_COMPILED_BEST = 64
"""Symbols up to which a row of the best is kept in order by moving them."""
BLOCK = 64
MIN_BLOCK_COLUMNS = 2048
"""Columns from which on blocks pay."""


@dataclass(frozen=True)
class Top:
    """The best symbols of each row, best first; of equal ones the lower symbol first.

    `values` are what they were ranked by, −∞ for those that are forbidden; `log_probs` are the model's own.
    """

    values: Float[Tensor, "rows best"]
    log_probs: Float[Tensor, "rows best"]
    symbols: Int[Tensor, "rows best"]


def top_symbols(step: Step, best: int, *, values: Float[Tensor, "rows symbols"] | None = None) -> Top:
    """The `best` symbols of each row (all, if fewer are offered) by `values`, or by their log-probabilities."""
    log_probs, symbols = step.log_probs, step.symbols
    values = log_probs if values is None else values
    if symbols is not None and bool((symbols[..., 1:] < symbols[..., :-1]).any()):
        # In the order of ids, columns decide ties as they do without a shortlist.
        symbols, order = symbols.sort(dim=-1)
        values, log_probs = (of_columns(table, order) for table in (values, log_probs))
    best = min(best, values.shape[1])
    has_loops = values.device.type == "cpu" and 1 <= best <= MAX_COMPILED_BEST and values.dtype == torch.float32
    values, columns = _by_loops(values, best) if has_loops else _by_sorting(values, best)
    own = log_probs.gather(1, columns)
    return Top(values, own, columns if symbols is None else of_columns(symbols.expand(len(columns), -1), columns))


def of_columns(
    table: Float[Tensor, "rows columns"] | Int[Tensor, "rows columns"], columns: Int[Tensor, "*rows picked"]
) -> Tensor:
    """These columns of each row, the same ones for all rows or each row's own."""
    return table.index_select(1, columns) if columns.dim() == 1 else table.gather(1, columns)


def columns_of(symbols: Int[Tensor, "*rows symbols"] | None, row: int, wanted: Collection[int]) -> list[int]:
    """The columns in which a row offers these symbols, as far as it does."""
    if symbols is None or not wanted:
        return sorted(wanted)
    offered = symbols if symbols.dim() == 1 else symbols[row]
    return torch.isin(offered, offered.new_tensor(sorted(wanted))).nonzero().flatten().tolist()


def forbid(step: Step, symbols: Collection[int], *, rows: Bool[np.ndarray, " rows"] | None = None) -> None:
    """Set these symbols to −∞ in the table of a step, in all rows or in some of them."""
    log_probs = step.log_probs
    if step.symbols is None:
        columns = [symbol for symbol in sorted(symbols) if symbol < log_probs.shape[1]]
        if rows is None:
            log_probs[:, columns] = IMPOSSIBLE
        else:
            log_probs[torch.from_numpy(np.flatnonzero(rows)).to(log_probs.device)[:, None], columns] = IMPOSSIBLE
        return
    is_one = torch.isin(step.symbols, step.symbols.new_tensor(sorted(symbols))).expand_as(log_probs)
    if rows is not None:
        is_one = is_one & torch.from_numpy(rows).to(log_probs.device)[:, None]
    log_probs.masked_fill_(is_one, IMPOSSIBLE)


def penalise_repetition(step: Step, history: Int64[np.ndarray, "rows length"], penalty: float) -> None:
    """Multiply log P of the symbols that each row already has, in the table of a step."""
    if penalty == 1 or not history.shape[1]:
        return
    before = torch.from_numpy(history).to(step.log_probs.device)
    if step.symbols is None:
        step.log_probs.scatter_(1, before, step.log_probs.gather(1, before) * penalty)
        return
    offered = step.symbols.expand_as(step.log_probs)
    for row in range(len(before)):
        step.log_probs[row, torch.isin(offered[row], before[row])] *= penalty


def _by_loops(values: Float[Tensor, "rows columns"], best: int) -> tuple[Tensor, Tensor]:
    rows, columns = values.shape
    found, places = values.new_empty(rows, best), torch.empty(rows, best, dtype=torch.long)
    row = best_columns(values.contiguous().view(-1).numpy(), columns, found.numpy(), places.numpy())
    if row >= 0:
        raise not_a_number(row, rows)
    return found, places


def not_a_number(row: int, rows: int) -> ModelError:
    """A row of a step has log-probabilities that are not numbers."""
    return ModelError(
        f"the model gave log-probabilities that are not numbers (NaN), first in row {row} of {rows}; its "
        "weights are too large or not finite: train it again with a lower training.learning_rate, or download an "
        "imported model again"
    )


def _by_sorting(values: Float[Tensor, "rows columns"], best: int) -> tuple[Tensor, Tensor]:
    """What a stable descending sort puts first, without sorting all columns.

    `topk` finds the right values, but where several columns share the last of them it takes any. One value more
    shows whether that happened; only such rows are sorted whole.
    """
    wanted = min(best + 1, values.shape[1])
    found, columns = (
        values.topk(wanted, dim=1) if values.shape[1] < MIN_BLOCK_COLUMNS else topk_by_blocks(values, wanted)
    )
    if found.shape[1] > best:
        is_tied = (found[:, best - 1] == found[:, best]) & found[:, best].isfinite()
        found, columns = found[:, :best], columns[:, :best]
        if is_tied.any():
            rows = is_tied.nonzero().flatten()
            sorted_values, sorted_columns = values[rows].sort(dim=1, descending=True, stable=True)
            found = found.index_copy(0, rows, sorted_values[:, :best])
            columns = columns.index_copy(0, rows, sorted_columns[:, :best])
    if found.isnan().any():
        raise not_a_number(int(found.isnan().any(1).nonzero()[0]), len(found))
    columns, order = columns.sort(dim=1)
    found, order = found.gather(1, order).sort(dim=1, descending=True, stable=True)
    return found, columns.gather(1, order)


def topk_by_blocks(
    values: Float[Tensor, "rows columns"], best: int
) -> tuple[Float[Tensor, "rows best"], Int[Tensor, "rows best"]]:
    """What `topk` gives, in a third of the time on large vocabularies.

    The `best` highest values lie in the `best` blocks with the highest maxima, and a maximum is cheap to find.
    """
    rows, columns = values.shape
    whole = columns // BLOCK * BLOCK
    blocks = values[:, :whole].unflatten(1, (-1, BLOCK))  # [rows, blocks, BLOCK]
    maxima = blocks.amax(2)
    chosen = maxima.topk(min(best, maxima.shape[1]), dim=1).indices[:, :, None]
    within = torch.arange(BLOCK, device=values.device)
    rest = torch.arange(whole, columns, device=values.device)  # what the last block would have held
    numbers = torch.cat([(chosen * BLOCK + within).flatten(1), rest.expand(rows, -1)], 1)
    candidates = torch.cat([blocks.gather(1, chosen.expand(-1, -1, BLOCK)).flatten(1), values[:, whole:]], 1)
    found, places = candidates.topk(best, dim=1)
    return found, numbers.gather(1, places)


class DeadEnd(ModelError):
    """A sentence of a batch that can neither continue nor end. `reason` is the message without its number."""

    def __init__(self, sentence: int, step: int) -> None:
        self.sentence = sentence
        self.reason = (
            f"cannot continue: at step {step} every symbol has probability 0 and nothing is finished; allow the end "
            "symbol, or leave out a constraint or shortlist that forbids all others"
        )
        super().__init__(f"sentence {sentence} of the batch {self.reason}")


IMPOSSIBLE = float("-inf")


@dataclass(frozen=True)
class Ranked:
    """The candidates of each sentence, best first; those past its last one have a value of −∞, and mean nothing.

    A candidate is a row of the batch with one symbol more.
    """

    values: Float[Tensor, "sentences best"]
    log_probs: Float[Tensor, "sentences best"]
    rows: Int[Tensor, "sentences best"]
    symbols: Int[Tensor, "sentences best"]


def ranked(
    top: Top, *, so_far: Float[Tensor, " rows"], sizes: Int[Tensor, " sentences"], beam: int, best: int
) -> Ranked:
    """The `best` candidates of each sentence, which has `sizes` rows, one after another, `beam` at most.

    Of equal candidates the one from the earlier row, and then the one that is earlier in its row comes first. Sums are
    in float64.
    """
    if top.values.device.type == "cpu":
        values = torch.empty(len(sizes), best, dtype=torch.float64)
        rows, columns = (torch.empty(len(sizes), best, dtype=torch.long) for _ in range(2))
        merge(*(each.numpy() for each in (top.values, so_far, sizes, values, rows, columns)))
    else:
        values, rows, columns = merge_by_sorting(top.values, so_far, sizes, beam, best)
    return Ranked(values, top.log_probs[rows, columns].double(), rows, top.symbols[rows, columns])


def merge_by_sorting(
    table: Float[Tensor, "rows columns"], so_far: Tensor, sizes: Tensor, beam: int, best: int
) -> tuple[Tensor, Tensor, Tensor]:
    """What `merge` finds: on a grid, where the rows that a sentence has fewer than others are −∞."""
    rows, columns = table.shape
    starts = sizes.cumsum(0) - sizes
    owner = torch.repeat_interleave(torch.arange(len(sizes), device=table.device), sizes)
    place = torch.arange(rows, device=table.device) - starts[owner]
    grid = table.new_full((len(sizes), beam, columns), IMPOSSIBLE, dtype=torch.float64)
    grid[owner, place] = so_far[:, None] + table.double()
    values, order = grid.flatten(1).sort(dim=1, descending=True, stable=True)
    values, order = values[:, :best], order[:, :best]  # [sentences, best]
    picked = (starts[:, None] + order // columns).clamp(max=rows - 1)  # empty places point past the rows
    return values, picked, order % columns
