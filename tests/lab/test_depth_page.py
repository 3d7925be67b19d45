"""The depth experiment gives what it promises."""

from pathlib import Path
from statistics import median

import pytest

from seqloom.drawing.figures import save_finding
from seqloom.lab.depth import FORMS, SKIPS, CharacterTraining, run, two_layers_finding


@pytest.mark.slow
def test_a_quick_run_measures_and_draws(tmp_path: Path) -> None:
    gradients, stacks, pair = run(quick=True)
    forms = {one["form"]: one["by_depth"] for one in gradients.data["forms"]}
    assert set(forms) == set(FORMS)
    ratios = {name: median(found[-1]["ratios"]) for name, found in forms.items()}
    assert all(found[-1]["depth"] == 32 for found in forms.values())
    assert ratios["residual"] > 1000 * ratios["plain"]
    assert {one["form"] for one in stacks.data["forms"]} == set(SKIPS)
    assert [[row["layers"] for row in one["by_layers"]] for one in stacks.data["forms"]] == [[1, 8]] * len(SKIPS)
    assert [one["layers"] for one in pair.data["curves"]] == [1, 2]
    assert all(len(losses) == len(one["updates"]) for one in pair.data["curves"] for losses in one["losses"])
    for finding in (gradients, stacks, pair):
        assert len(save_finding(finding, tmp_path)) == 3


def test_two_layers_win_only_where_their_loss_is_lower() -> None:
    curves = {1: [{5: 3.0, 10: 2.0}, {5: 3.0, 10: 2.2}], 2: [{5: 3.1, 10: 1.9}, {5: 3.1, 10: 2.3}]}
    finding = two_layers_finding(curves, training=CharacterTraining(updates=10), seed=1)
    assert "lower test loss than one with 1 of 2 seeds: 2.100 against 2.100" in finding.sentence
    assert finding.data["differences"] == [-0.1, 0.1]
