"""Scenes: captions agree in four languages, the test shows what training does not, and a seed gives the same bytes."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from seqloom.core.errors import UsageError
from seqloom.data.scenes import COLOURS, OUTLINES, PLACES, Scene, Thing, draw_image, draw_scene, held_out, write_scenes

RAUTE, KREIS, STERN = (
    Thing("small", "purple", "diamond"),
    Thing("large", "green", "circle"),
    Thing("small", "red", "star"),
)


def test_captions_agree_in_gender_and_case() -> None:
    scene = Scene((RAUTE, KREIS), is_row=False)
    assert scene.captions("en") == (
        "a small purple diamond above a large green circle",
        "a large green circle below a small purple diamond",
    )
    assert scene.captions("fr") == (
        "un petit losange violet au-dessus d'un grand cercle vert",
        "un grand cercle vert au-dessous d'un petit losange violet",
    )
    assert scene.captions("de") == (
        "eine kleine violette Raute über einem großen grünen Kreis",
        "ein großer grüner Kreis unter einer kleinen violetten Raute",
    )
    assert scene.captions("zh")[0] == "一个小的紫色菱形在一个大的绿色圆形的上方"
    row = Scene((RAUTE, STERN, KREIS), is_row=True)
    assert row.captions("de")[0] == (
        "ein kleiner roter Stern zwischen einer kleinen violetten Raute und einem großen grünen Kreis"
    )
    assert row.captions("fr")[1] == ("une petite étoile rouge entre un grand cercle vert et un petit losange violet")


def test_the_test_shows_combinations_of_which_training_shows_the_parts_alone() -> None:
    kept = held_out(1)
    assert not kept["dev"] & kept["test"]
    seen = set().union(*(draw_scene(number, split="train").combinations for number in range(2_000)))
    assert not seen & (kept["dev"] | kept["test"])
    for parts, places in (((OUTLINES, COLOURS), (0, 1)), ((COLOURS, PLACES), (1, 2)), ((OUTLINES, PLACES), (0, 2))):
        assert {tuple(each[at] for at in places) for each in seen} == set(product(*parts))
    for number in range(100):
        shown = draw_scene(number, split="test").combinations
        assert shown & kept["test"]
        assert not shown & kept["dev"]


def test_an_image_shows_the_colours_of_its_scene_where_they_are_said_to_be() -> None:
    scene = Scene((Thing("large", "red", "square"), Thing("large", "blue", "square")), is_row=False)
    image = draw_image(scene, np.random.default_rng(5)).astype(int)
    centres = []
    for name in ("red", "blue"):
        is_near = np.abs(image - np.array(COLOURS[name])).max(2) < 40
        assert 180 < is_near.sum() < 280  # 1.6 · 9 pixels to 1.6 · 10 on a side
        centres.append(np.argwhere(is_near).mean(0))
    assert centres[0][0] + 14 < centres[1][0]
    assert abs(centres[0][1] - centres[1][1]) < 7


def test_a_seed_gives_the_same_files_and_languages_share_images(tmp_path: Path) -> None:
    one, other = (write_scenes(tmp_path / name, "dev", count=3, languages=["en", "de"]) for name in ("one", "other"))
    for path in (tmp_path / "one").rglob("*.*"):
        assert path.read_bytes() == (tmp_path / "other" / path.relative_to(tmp_path / "one")).read_bytes()
    english, german = (table.read_text().splitlines() for table in (one["en"], other["de"]))
    assert [line.split("\t")[0] for line in english] == [line.split("\t")[0] for line in german]
    assert len(english) == 7
    with pytest.raises(UsageError, match="no captions in 'es'"):
        write_scenes(tmp_path, "dev", count=1, languages=["es"])
