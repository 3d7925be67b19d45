"""A finding leaves its numbers, its pictures and its sentence."""

import json
from contextlib import nullcontext
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from seqloom.drawing.figures import Finding, new_axes, save_finding


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


def test_an_interrupted_picture_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finding = Finding("growth", "Growth", "It doubles at every step.", {"values": [1, 2, 4]}, draw)
    save_finding(finding, tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def interrupted(self: Figure, target: object, **_settings: object) -> None:
        with target.open("wb") if isinstance(target, Path) else nullcontext(target) as file:
            file.write(b"half")  # type: ignore[attr-defined]
        raise KeyboardInterrupt

    monkeypatch.setattr(Figure, "savefig", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save_finding(finding, tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_number_that_json_cannot_hold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        save_finding(Finding("bad", "Bad", "No number.", {"values": [float("nan")]}, draw), tmp_path)
