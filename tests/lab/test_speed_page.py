"""The speed experiment gives what it promises; nothing here is about time."""

from pathlib import Path

from seqloom.drawing.figures import save_finding
from seqloom.lab.speed import ATTENTION, PathLength, Paths, Times, path_finding, run, speed_finding


def test_a_quick_run_measures_and_draws(tmp_path: Path) -> None:
    speed, path = run(quick=True)
    assert [one["layer"] for one in speed.data["layers"]] == ["RNN", "LSTM", ATTENTION]
    assert [[row["length"] for row in one["by_length"]] for one in speed.data["layers"]] == [[8, 16]] * 3
    assert len(speed.data["ratios"]) == 4
    fewest = {one["reader"]: one["products"]["fewest"] for one in path.data["readers"]}
    assert path.data["distances"] == [7, 6, 5, 4, 3, 2, 1, 0]
    assert fewest["RNN"] == [8, 7, 6, 5, 4, 3, 2, 1]
    assert len(set(fewest[ATTENTION])) == len(set(fewest["RNN with attention"])) == 1
    most = {one["reader"]: one["operations"]["most"] for one in path.data["readers"]}
    assert len(set(most[ATTENTION])) == 1
    assert all(most[name][0] > most[name][-2] for name in ("RNN", "LSTM", "RNN with attention"))
    assert path.sentence.endswith(
        "Constant number of products at any distance, but still sequential: LSTM, RNN with attention."
    )
    for finding in (speed, path):
        assert len(save_finding(finding, tmp_path)) == 3


def test_ratios_are_reported_at_the_shortest_and_the_longest() -> None:
    times = [
        Times("RNN", 16, 32, (1.0, 2.0, 3.0)),
        Times("RNN", 64, 64, (4.0, 4.0, 4.0)),
        Times(ATTENTION, 16, 32, (2.0, 2.0, 2.0)),
        Times(ATTENTION, 64, 64, (1.0, 1.0, 2.0)),
    ]
    sentence = speed_finding(times, settings={}).sentence
    assert "of the RNN's tokens, 1 (0.5 to 1.5) at length 16, 4 (2 to 4) at length 64" in sentence
    assert "range of 3 rounds" in sentence


def test_nothing_is_called_serial_that_does_not_grow() -> None:
    flat, growing = (PathLength(2, 3),) * 4, (PathLength(4, 4), PathLength(3, 3), PathLength(2, 2), PathLength(1, 1))
    for paths in (Paths(flat, flat), Paths(growing, growing)):
        assert "serial" not in path_finding({"RNN": paths}).sentence
    assert "still sequential: LSTM." in path_finding({"LSTM": Paths(flat, growing)}).sentence
