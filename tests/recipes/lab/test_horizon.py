"""The horizon experiment gives what it promises, and says no more than was measured."""

from dataclasses import asdict
from pathlib import Path

from seqloom.inspection.delayed_recall import Attempt, Horizon, RecallBudget
from seqloom.inspection.findings import save_finding
from seqloom.recipes.lab.horizon import CELLS, NOTES, Measured, Teaching, horizon_finding, run


def measured(cell: str, teaching: Teaching, *lags: int, longest: int = 64) -> Measured:
    horizons = [
        Horizon(lag, (Attempt(max(lag, 1), is_solved=lag > 0, updates=9, accuracy=0.9),), is_capped=lag == longest)
        for lag in lags
    ]
    return Measured(cell, teaching, tuple(horizons))


def test_a_quick_run_measures_and_draws(tmp_path: Path) -> None:
    said: list[str] = []
    (finding,) = run(quick=True, say=said.append)
    cells = finding.data["cells"]
    assert [(one["cell"], one["teaching"]) for one in cells] == [
        ("RNN", "growing"),
        ("LSTM", "growing"),
        ("RNN", "at once"),
        ("LSTM", "at once"),
    ]
    assert len(said) == sum(len(one["lags"]) for one in cells)
    assert all(f"about {lag} for the {cell}" in finding.sentence for cell, lag in NOTES.items())
    assert len(save_finding(finding, tmp_path)) == 3


def test_the_sentence_tells_medians_ranges_and_bounds() -> None:
    budget = RecallBudget(longest=64)
    found = [measured("RNN", "growing", 9, 30, 7), measured("LSTM", "growing", 64, 64, 64)]
    sentence = horizon_finding(found, budget, seed=1).sentence
    told = "One network whose lags grow, 3 seeds: RNN 9 (7 to 30), LSTM at least 64; the RNN stays below the LSTM"
    assert f"{told}, whatever their seeds." in sentence
    assert "new network" not in sentence
    single = horizon_finding([measured("RNN", "growing", 9), measured("LSTM", "growing", 9)], budget, seed=1).sentence
    assert "1 seed: RNN 9, LSTM 9; RNN and LSTM come equally far." in single


def test_the_sentence_claims_no_order_where_ranges_overlap() -> None:
    found = [measured("RNN", "at once", 9, 30), measured("LSTM", "at once", 12, 40)]
    sentence = horizon_finding(found, RecallBudget(), seed=1).sentence
    assert "A new network for each lag, 2 seeds: RNN 19.5 (9 to 30), LSTM 26 (12 to 40); the ranges of RNN" in sentence
    assert "below" not in sentence
    turned = [measured("RNN", "at once", 20, 30), measured("LSTM", "at once", 2, 4)]
    assert "the LSTM stays below the RNN, whatever" in horizon_finding(turned, RecallBudget(), seed=1).sentence


def test_a_horizon_of_nothing_can_be_drawn(tmp_path: Path) -> None:
    finding = horizon_finding([measured("RNN", "growing", 0)], RecallBudget(), seed=1)
    assert finding.data["cells"][0]["attempts"] == [[asdict(Attempt(1, is_solved=False, updates=9, accuracy=0.9))]]
    assert len(save_finding(finding, tmp_path)) == 3


def test_every_kind_of_cell_takes_part() -> None:
    kinds = {type(make(10, 8)).__name__ for make in CELLS.values()}
    assert kinds == {"ElmanCell", "LSTMCell", "PeepholeCell", "CoupledCell", "GRUCell"}
