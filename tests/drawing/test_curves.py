"""Pictures are drawn from plain data."""

from pathlib import Path

import numpy as np
import pytest

from seqloom.core.events import Event, to_json
from seqloom.drawing.curves import plot_attention, plot_learning_curve

PNG = b"\x89PNG"


def write_events(path: Path, *, checks: tuple[int, ...], scores: dict[str, float | None]) -> None:
    events = [Event("step", {"step": step, "loss": 5 / step}) for step in range(1, 9)]
    events += [Event("validation", {"step": step, "loss": 6 / step, **scores}) for step in checks]
    path.write_text("".join(to_json(event) + "\n" for event in events) + '{"event": "step", "st', encoding="utf-8")


@pytest.mark.parametrize(
    ("checks", "scores"),
    [((4, 8), {"bleu": 12.5}), ((4, 8), {"bleu": None, "exact_match": 0.5}), ((4, 8), {}), ((), {})],
    ids=["BLEU", "exact match", "loss alone", "no dev text"],
)
def test_a_learning_curve_is_drawn(tmp_path: Path, checks: tuple[int, ...], scores: dict[str, float | None]) -> None:
    write_events(tmp_path / "events.jsonl", checks=checks, scores=scores)
    plot_learning_curve(tmp_path / "events.jsonl", tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(PNG)


def test_an_attention_map_is_drawn_as_png_or_svg(tmp_path: Path) -> None:
    weights = np.array([[0.75, 0.25], [0.1, 0.9], [0.5, 0.5]])
    for name, start in (("map.png", PNG), ("map.svg", b"<?xml")):
        plot_attention(weights, tmp_path / name, source=["▁a", "</s>"], target=["▁b", "c", "</s>"], title="b c")
        assert (tmp_path / name).read_bytes().startswith(start)
