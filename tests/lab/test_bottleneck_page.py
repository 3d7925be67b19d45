"""The bottleneck experiment gives what it promises."""

from pathlib import Path

from seqloom.drawing.figures import save_finding
from seqloom.lab.bottleneck import WITH, WITHOUT, run


def test_a_quick_run_measures_and_draws(tmp_path: Path) -> None:
    (finding,) = run(quick=True)
    assert [one["system"] for one in finding.data["systems"]] == [WITH, WITHOUT]
    assert sum(each["sentences"] for each in finding.data["bins"]) == 24
    assert all(len(one["by_bin"]) == len(finding.data["bins"]) for one in finding.data["systems"])
    assert finding.sentence.startswith("Rows of 1 to 2 out of 50 known sentences, 5 updates. From sources of ")
    assert finding.data["weights"][WITH] > finding.data["weights"][WITHOUT]
    assert len(save_finding(finding, tmp_path)) == 3
