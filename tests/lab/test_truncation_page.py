"""The truncation experiment gives one table, one picture, and a sentence that follows the seeds."""

from pathlib import Path

from seqloom.drawing.figures import save_finding
from seqloom.lab.truncation import EchoTask, Estimate, Row, run, truncation_finding, truncations


def test_a_quick_run_measures_and_draws(tmp_path: Path) -> None:
    (finding,) = run(quick=True)
    table = {row["truncation"]: row for row in finding.data["table"]}
    assert list(table) == list(truncations())
    assert {row["kind"] for row in table.values()} == {"full", "chunked", "sliding", "random"}
    assert table["full"]["bias"] == 0
    for row in table.values():
        assert len(row["losses"]) == 2
        if row["kind"] == "random":
            assert abs(row["along"] - 1) < 4 * row["along_error"]
    assert len(save_finding(finding, tmp_path)) == 3


def test_random_windows_last_as_long_on_average_as_fixed_ones() -> None:
    for truncation, window in truncations().values():
        if truncation.kind == "random" and window is not None:
            assert abs(1 / (1 - truncation.keep_rate) - window) < 1e-9


def test_the_sentence_follows_the_seeds() -> None:
    estimate = Estimate(bias=0.1, bias_error=0.1, spread=1.0, along=1.0, along_error=0.1, draws=100)
    losses = {"full": (0.1, 0.1), "chunked, 4 steps": (0.5, 0.6), "sliding, 4 steps": (0.4, 0.5)}
    for drawn, words in (((0.2, 0.3), "are below all"), ((0.6, 0.7), "are above all"), ((0.3, 0.45), "overlap")):
        rows = [
            Row(name, truncation, window, estimate, losses.get(name, drawn))
            for name, (truncation, window) in truncations([4]).items()
        ]
        sentence = truncation_finding(rows, EchoTask(), early_updates=5, early_loss=1.0, seed=1).sentence
        assert words in sentence
        assert "against 0.450 (sliding, 4 steps)" in sentence
        assert all(len(part.split()) < 45 for part in sentence.split(". ")), "it can be read aloud"
        assert sentence.endswith("Lecture notes say that random truncation is no better in practice.")
