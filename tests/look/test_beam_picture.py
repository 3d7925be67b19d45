"""The picture of a beam search: every candidate in it, and no text on another."""

from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from look.beams import golden, long_search, searched, tree_of
from seqloom.look.beam_page import LOOKS, draw_beam, line_width


def _overlaps(figure: Figure) -> int:
    """Pairs of texts (those of the legend too) that share more than a hair."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    texts = [*figure.axes[0].texts, *figure.legends[0].get_texts()]
    boxes = [text.get_window_extent(canvas.get_renderer()) for text in texts if text.get_text()]
    return sum(
        min(a.x1, b.x1) - max(a.x0, b.x0) > 0.5 and min(a.y1, b.y1) - max(a.y0, b.y0) > 1.5
        for place, a in enumerate(boxes)
        for b in boxes[:place]
    )


def test_no_labels_overlap_at_beam_four_and_twelve_steps() -> None:
    tree = long_search()
    assert (tree.steps, tree.fates["kept"]) == (12, 44)
    figure = draw_beam(tree, source="a sentence", target="another")
    assert _overlaps(figure) == 0
    width, height = figure.get_size_inches()
    figure.set_size_inches(0.6 * width, 0.6 * height)
    assert _overlaps(figure) > 0  # the same in less room


def test_every_candidate_is_written_with_its_probability() -> None:
    tree = golden(beam=2)
    written = [text.get_text() for text in draw_beam(tree, source="$x_1$ \\frac", target="爱你").axes[0].texts]
    assert "$x_1$ \\frac → 爱你" in written[0]
    for place in tree.places:
        assert place.label in written
        assert place.note in written


def test_fates_differ_in_shape_as_well_as_in_colour_and_lines_in_width() -> None:
    assert len({shape for _, shape, _ in LOOKS.values()}) == len({colour for colour, _, _ in LOOKS.values()}) == 5
    assert line_width(0.0) < line_width(0.3) < line_width(1.0)


def test_a_picture_can_be_saved_as_png_and_svg(tmp_path: Path) -> None:
    figure = draw_beam(tree_of(*searched(beam=2)), source="x", target="y")
    for name, start in (("tree.png", b"\x89PNG"), ("tree.svg", b"<?xml")):
        figure.savefig(tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(start)
