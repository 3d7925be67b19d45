"""A finding leaves its numbers, its pictures and its sentence."""

import json
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from seqloom.inspection.drawing import new_axes
from seqloom.inspection.findings import Finding, save_finding


def draw() -> Figure:
    figure, axes = new_axes()
    axes.plot([1, 2, 4])
    return figure


def test_numbers_pictures_and_sentence_are_written(tmp_path: Path) -> None:
    finding = Finding("growth", "Growth", "It doubles at every step.", {"values": [1, 2, 4]}, draw)
    written = save_finding(finding, tmp_path)
    assert [path.name for path in written] == ["growth.json", "growth.png", "growth.svg"]
    found = json.loads(written[0].read_text(encoding="utf-8"))
    assert (found["values"], found["sentence"]) == ([1, 2, 4], "It doubles at every step.")
    assert written[1].read_bytes().startswith(b"\x89PNG")
    assert "<svg" in written[2].read_text(encoding="utf-8")


def test_a_number_that_json_cannot_hold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        save_finding(Finding("bad", "Bad", "No number.", {"values": [float("nan")]}, draw), tmp_path)
