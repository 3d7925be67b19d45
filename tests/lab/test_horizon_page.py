"""The horizon experiment gives what it promises, and says no more than was measured."""

from dataclasses import asdict, replace
from pathlib import Path

from seqloom.drawing.figures import save_finding
from seqloom.lab.horizon import (
    CELLS,
    NOTES,
    Attempt,
    Horizon,
    MeasuredHorizon,
    RecallBudget,
    Teaching,
    horizon_finding,
    run,
)


def measured(cell: str, teaching: Teaching, *lags: int, longest: int = 64) -> MeasuredHorizon:
    horizons = [
        Horizon(lag, (Attempt(max(lag, 1), is_solved=lag > 0, updates=9, accuracy=0.9),), is_capped=lag == longest)
        for lag in lags
    ]
    return MeasuredHorizon(cell, teaching, tuple(horizons))


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


def test_the_sentence_reports_medians_ranges_and_bounds() -> None:
    budget = RecallBudget(longest=64)
    found = [measured("RNN", "growing", 9, 30, 7), measured("LSTM", "growing", 64, 64, 64)]
    sentence = horizon_finding(found, budget, seed=1).sentence
    listed = "One network whose lags grow, 3 seeds: 9 [7 to 30] (RNN), at least 64 (LSTM); the RNN stays below the LSTM"
    assert f"{listed}, whatever their seeds." in sentence
    assert "as the median over seeds [lowest to highest]." in sentence
    assert "new network" not in sentence


def test_one_seed_gives_no_comparison_and_no_median() -> None:
    found = [measured("RNN", "growing", 9), measured("LSTM", "growing", 40)]
    sentence = horizon_finding(found, RecallBudget(longest=64), seed=1).sentence
    assert "1 seed: 9 (RNN), 40 (LSTM); one seed is not enough to compare." in sentence
    assert "median" not in sentence
    assert "below" not in sentence


def test_tasks_that_differ_are_named_and_only_equal_ones_are_compared() -> None:
    found = [
        replace(measured("RNN", "growing", 9, 10), symbols=16),
        replace(measured("RNN", "growing", 60, 61), symbols=8),
        replace(measured("LSTM", "growing", 20, 30), symbols=16),
    ]
    finding = horizon_finding(found, RecallBudget(symbols=16), seed=1)
    assert "60.5 [60 to 61] (RNN, 8 symbols)" in finding.sentence
    assert "the RNN stays below the LSTM, whatever their seeds" in finding.sentence
    (axes,) = finding.draw().axes
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "RNN, 16 symbols",
        "RNN, 8 symbols",
        "LSTM, 16 symbols",
    ]
    assert axes.get_ylabel() == "cell, number of symbols"
    assert [each["symbols"] for each in finding.data["cells"]] == [16, 8, 16]


def test_the_sentence_claims_no_order_where_ranges_overlap() -> None:
    found = [measured("RNN", "at once", 9, 30), measured("LSTM", "at once", 12, 40)]
    sentence = horizon_finding(found, RecallBudget(), seed=1).sentence
    assert (
        "A new network for each lag, 2 seeds: 19.5 [9 to 30] (RNN), 26 [12 to 40] (LSTM); the ranges of RNN" in sentence
    )
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
