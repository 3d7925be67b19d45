"""The best candidates of each sentence: by compiled loops as by sorting, ties included."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from seqloom.search.candidates import IMPOSSIBLE, Top, merge_by_sorting, ranked

BEAM = 4


@st.composite
def tables(draw: st.DrawFn) -> tuple[Top, torch.Tensor, torch.Tensor]:
    """Values of rows that fall to the right, with few levels, so that many tie; some rows have fewer."""
    sizes = draw(st.lists(st.integers(1, BEAM), min_size=1, max_size=5))
    columns, rows = draw(st.integers(1, 5)), sum(sizes)
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    values = torch.randint(-3, 1, (rows, columns), generator=generator).float()
    values[torch.rand(rows, columns, generator=generator) < 0.2] = IMPOSSIBLE
    values = values.sort(1, descending=True).values
    symbols = torch.randint(0, 99, (rows, columns), generator=generator)
    so_far = torch.randint(-2, 1, (rows,), generator=generator).double()
    return Top(values, values - 1, symbols), so_far, torch.tensor(sizes)


@given(tables(), st.integers(1, 12))
def test_loops_find_what_sorting_finds(table: tuple[Top, torch.Tensor, torch.Tensor], best: int) -> None:
    top, so_far, sizes = table
    found = ranked(top, so_far=so_far, sizes=sizes, beam=BEAM, best=best)
    values, rows, columns = merge_by_sorting(top.values, so_far, sizes, BEAM, best)
    there = values > IMPOSSIBLE
    assert torch.equal(found.values[:, : there.shape[1]] > IMPOSSIBLE, there)
    sorting = (values, rows, top.symbols[rows, columns])
    for one, other in zip((found.values, found.rows, found.symbols), sorting, strict=True):
        assert torch.equal(one[:, : there.shape[1]][there], other[there])


def test_the_earlier_row_and_then_the_earlier_column_come_first() -> None:
    top = Top(torch.tensor([[-1.0, -1.0], [-1.0, -2.0]]), torch.zeros(2, 2), torch.tensor([[7, 8], [9, 5]]))
    so_far, sizes = torch.zeros(2, dtype=torch.float64), torch.tensor([2])
    found = ranked(top, so_far=so_far, sizes=sizes, beam=2, best=4)
    assert found.symbols.tolist() == [[7, 8, 9, 5]]
    assert found.rows.tolist() == [[0, 0, 1, 1]]
    better = ranked(top, so_far=torch.tensor([0.0, 0.5], dtype=torch.float64), sizes=sizes, beam=2, best=4)
    assert better.symbols.tolist() == [[9, 7, 8, 5]]
