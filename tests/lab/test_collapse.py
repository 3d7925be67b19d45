"""Without negatives all vectors turn into one direction; with them they do not."""

import pytest

from seqloom.lab.collapse import english, follow, run


def test_vectors_collapse_without_negatives_and_only_without() -> None:
    text = english(300, seed=1)
    without, with_them = (follow(text, negatives=n, epochs=16, rate=0.1, width=8, seed=1) for n in (0, 5))
    assert without.cosines[0] < 0.1
    assert without.cosines[-1] > 0.98
    assert without.losses[-1] < 0.05
    assert without.losses[-1] < without.losses[0]
    assert without.norms[-1] > without.norms[0] * 5
    assert with_them.cosines[-1] < 0.8
    assert with_them.losses[-1] > 0.2


def test_finding_contains_both_numbers() -> None:
    (finding,) = run(quick=True)
    course = finding.data["courses"][0]
    assert f"to {course['cosines'][-1]:.2f} in 6 epochs" in finding.sentence
    assert course["losses"][-1] == pytest.approx(float(finding.sentence.split("falls to ")[1].split(" ")[0]), abs=6e-4)
    assert len(finding.draw().axes) == 2
