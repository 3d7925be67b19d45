"""Maps of words: PCA equals the eigenvectors, t-SNE keeps groups, pages cannot be broken by words."""

import json
import re

import numpy as np
import pytest

from seqloom.core.errors import UsageError
from seqloom.look.embedding_map import (
    MAX_ALL_NAMED,
    EmbeddingMap,
    draw_map,
    joint_affinities,
    lay_out,
    map_page,
    principal_plane,
    tsne,
)


def groups(count: int = 20, width: int = 6) -> np.ndarray:
    """Three clouds of points, far from each other."""
    generator = np.random.default_rng(4)
    centres = np.eye(width)[:3] * 8
    return np.concatenate([centre + generator.normal(size=(count, width)) for centre in centres])


def test_plane_is_that_of_the_two_largest_eigenvalues() -> None:
    vectors = groups()
    points, shares = principal_plane(vectors)
    values, axes = np.linalg.eigh(np.cov(vectors.T))
    assert shares == pytest.approx((values[-1] / values.sum(), values[-2] / values.sum()))
    for axis in range(2):
        expected = (vectors - vectors.mean(axis=0)) @ axes[:, -1 - axis]
        assert abs(np.corrcoef(points[:, axis], expected)[0, 1]) == pytest.approx(1.0)


def test_signs_do_not_depend_on_the_signs_of_the_decomposition() -> None:
    vectors = groups()
    points, _ = principal_plane(vectors)
    again, _ = principal_plane(vectors[::-1].copy())
    np.testing.assert_allclose(again[::-1], points, atol=1e-9)


def test_affinities_have_the_requested_perplexity() -> None:
    """Before both directions are joined each row has it; with points on a ring all rows are alike, so after it too."""
    angles = np.linspace(0, 2 * np.pi, 60, endpoint=False)
    joint = joint_affinities(np.stack([np.cos(angles), np.sin(angles)], axis=1), 10.0)
    assert joint.sum() == pytest.approx(1.0)
    row = joint[0] * 60
    assert np.exp(-np.sum(row[row > 0] * np.log(row[row > 0]))) == pytest.approx(10.0, rel=1e-3)


def test_tsne_keeps_neighbours_together_and_repeats_itself() -> None:
    vectors = groups()
    start, _ = principal_plane(vectors)
    points = tsne(vectors, start=start, iterations=300)
    np.testing.assert_array_equal(points, tsne(vectors, start=start, iterations=300))
    distances = np.linalg.norm(points[:, None] - points[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    nearest = distances.argmin(axis=1) // 20
    assert (nearest == np.repeat([0, 1, 2], 20)).mean() > 0.95


def some_map() -> EmbeddingMap:
    words = [f"w{number}" for number in range(58)] + ["</script><b>", "{{DATA}}"]
    return lay_out(words, groups(), neighbours=[["w1", "w2"]] * 60)


def test_page_holds_all_words_and_none_of_them_as_markup() -> None:
    page = map_page(some_map(), title="<words>")
    data = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)
    assert data is not None
    assert [each["word"] for each in json.loads(data[1])] == list(some_map().words)
    assert "</script><b>" not in page
    assert "<title>&lt;words&gt;</title>" in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")


def test_picture_names_words_that_have_room() -> None:
    figure = draw_map(some_map())
    written = {text.get_text() for text in figure.axes[0].texts}
    assert {"w0", "w20"} <= written
    assert len(written) <= 60


@pytest.mark.parametrize("words", [MAX_ALL_NAMED, MAX_ALL_NAMED + 1])
def test_few_words_are_all_named_and_of_more_the_first_where_names_would_meet(words: int) -> None:
    names = [f"word{at}" for at in range(words)]
    # All in one place, but for the last one, which is far away.
    rows = np.zeros((words, 3))
    rows[-1] = 9.0
    figure = draw_map(lay_out(names, rows, neighbours=[[]] * words))
    written = [text.get_text() for text in figure.axes[0].texts]
    assert written == (names if words == MAX_ALL_NAMED else ["word0", names[-1]])
    assert ("2 have room for their names" in figure.axes[0].get_title()) == (words > MAX_ALL_NAMED)


def test_too_few_and_too_many_words_are_refused() -> None:
    with pytest.raises(UsageError, match="a map needs 3 words or more, but 2 were given"):
        lay_out(["a", "b"], np.ones((2, 3)), neighbours=[[], []])
    with pytest.raises(UsageError, match="t-SNE lays out 2,000 words at most, and 2,001 were given"):
        lay_out(["a"] * 2001, np.ones((2001, 3)), neighbours=[[]] * 2001, method="tsne")


def test_sentence_says_how_much_is_seen() -> None:
    assert re.fullmatch(r"60 words by the two directions .* explain [\d.]+% and [\d.]+% of the variance",
                        some_map().describe())  # fmt: skip
