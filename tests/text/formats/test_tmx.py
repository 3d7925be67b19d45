"""Translation memories: languages, pairs piece by piece, and filling."""

import gzip
import tracemalloc
from pathlib import Path

import pytest

from seqloom.core.errors import DataError, UsageError
from seqloom.text.formats.segments import Filling, Pair
from seqloom.text.formats.tmx import choose_variant, look_into, read_pairs, read_tmx, settle_languages
from text.formats.samples import TMX, fill, shouting, write


@pytest.mark.parametrize(
    ("wanted", "chosen"), [("en", 0), ("en-us", 1), ("en_US", 1), ("EN-AU", 0), ("de-AT", 2), ("fr", None)]
)
def test_a_variant_is_chosen_by_its_code_or_its_language(wanted: str, chosen: int | None) -> None:
    assert choose_variant([("en-GB", 0), ("en-US", 1), ("de", 2)], wanted) == chosen


@pytest.mark.parametrize(
    ("languages", "first"),
    [
        (("en", "de"), ("The colour is red.", "Die Farbe ist rot.")),
        (("de", "fr"), ("Die Farbe ist rot.", "La couleur est rouge.")),
        ((None, "fr"), ("The colour is red.", "La couleur est rouge.")),
        ((None, None), ("The colour is red.", "Die Farbe ist rot.")),
    ],
)
def test_pairs_of_the_languages_asked_for(
    tmp_path: Path, languages: tuple[str | None, str | None], first: tuple[str, str]
) -> None:
    found = list(read_pairs(write(tmp_path, "memory.tmx"), languages=languages))
    assert found == [Pair(*first, 7), None, None]


@pytest.mark.parametrize(
    ("asked", "settled"),
    [
        (("de", "fr"), ("de", "fr")),
        ((None, "fr"), ("en", "fr")),  # the header names English
        (("fr", None), None),
        ((None, None), None),
        ((None, "en"), None),
    ],
)
def test_languages_are_asked_for_where_a_memory_leaves_a_choice(
    tmp_path: Path, asked: tuple[str | None, str | None], settled: tuple[str, str] | None
) -> None:
    path = write(tmp_path, "memory.tmx")
    assert (look_into(path).source, sorted(look_into(path).languages)) == ("en", ["de", "en", "fr"])
    if settled is None:
        with pytest.raises(
            UsageError, match=r"holds texts in en, de and fr; choose two of them, such as: data\.source="
        ):
            settle_languages(path, asked)
    else:
        assert settle_languages(path, asked) == settled


def test_a_large_memory_is_read_piece_by_piece(tmp_path: Path) -> None:
    unit = '<tu><tuv lang="en"><seg>word %d and more of it</seg></tuv><tuv lang="de"><seg>Wort</seg></tuv></tu>\n'
    body = "".join(unit % number for number in range(5_000))
    path = tmp_path / "large.tmx.gz"
    path.write_bytes(gzip.compress(f'<tmx version="1.4"><header srclang="en"/><body>\n{body}</body></tmx>'.encode()))
    tracemalloc.start()
    pairs = sum(pair is not None for pair in read_pairs(path, languages=("en", "de")))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert pairs == 5_000
    assert len(body) > 500_000
    assert peak < 2_500_000  # a piece of the decompressed bytes, and what is being read


def test_only_new_variants_are_put_in(tmp_path: Path) -> None:
    catalogue = read_tmx(write(tmp_path, "memory.tmx"), languages=("en", "de"))
    assert [each.state for each in catalogue.segments] == ["translated", "untranslated", "untranslated"]
    out = catalogue.filled(fill(catalogue, shouting, aligned=True), target="de").decode()
    new = 'SAVE <hi type="b">ALL</hi> FILES<ph x="1">{0}</ph> &amp; QUIT'
    lines = f'\n      <tuv xml:lang="de">\n        <seg>{new}</seg>\n      </tuv>'
    expected = TMX.replace("quit</seg>\n      </tuv>", f"quit</seg>\n      </tuv>{lines}")
    assert out == expected.replace("<seg/>", "<seg>OVER TWO LINES</seg>")


def test_doubt_is_a_property_and_read_as_fuzzy(tmp_path: Path) -> None:
    catalogue = read_tmx(write(tmp_path, "memory.tmx"), languages=("en", "de"))
    path = tmp_path / "again.tmx"
    path.write_bytes(catalogue.filled({number: Filling(("?",), is_fuzzy=True) for number in (1, 2)}, target="de"))
    again = read_tmx(path, languages=("en", "de"))
    assert [each.state for each in again.segments] == ["translated", "fuzzy", "fuzzy"]
    path.write_bytes(again.filled({1: Filling(("!",)), 2: Filling(("!",))}))
    assert [each.state for each in read_tmx(path, languages=("en", "de")).segments] == ["translated"] * 3


def test_a_memory_without_a_target_language_asks_for_one(tmp_path: Path) -> None:
    path = tmp_path / "a.tmx"
    unit = '<tu><tuv xml:lang="en"><seg>a</seg></tuv></tu>'
    path.write_text(f'<tmx version="1.4"><header srclang="en"/><body>{unit}</body></tmx>')
    with pytest.raises(DataError, match="give one with --target"):
        read_tmx(path).filled({0: Filling(("b",))})


def test_a_file_without_a_memory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.tmx"
    path.write_text("<html/>")
    with pytest.raises(DataError, match="its outermost element is <html>"):
        read_tmx(path)
    with pytest.raises(DataError, match="it has no <tmx>"):
        list(read_pairs(path))


def test_a_variant_without_a_language_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.tmx"
    unit = '<tu><tuv xml:lang="en"><seg>a</seg></tuv>\n<tuv><seg>b</seg></tuv></tu>'
    path.write_text(f'<tmx version="1.4"><header srclang="en"/><body>\n{unit}</body></tmx>')
    for read in (read_tmx, lambda path: list(read_pairs(path))):
        with pytest.raises(DataError, match=r"a\.tmx:3: this <tuv> names no language"):
            read(path)  # type: ignore[operator]


@pytest.mark.parametrize("name", ["klingon", "utf-7"])
def test_an_encoding_that_cannot_be_read_is_told_in_our_words(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.tmx"
    path.write_text(f'<?xml version="1.0" encoding="{name}"?><tmx version="1.4"/>')
    with pytest.raises(DataError, match=r"a\.tmx:1: the encoding that the XML declares cannot be read"):
        list(read_pairs(path))


def test_a_run_of_spaces_is_gone_through_once(tmp_path: Path) -> None:
    # Each space tried by itself would take a million million steps.
    spaces = " " * 1_000_000
    path = tmp_path / "spaces.tmx"
    seg = f"<seg>one{spaces}two \t\n \n three</seg>"
    path.write_text(f'<tmx><header srclang="en"/><body><tu><tuv lang="en">{seg}</tuv></tu></body></tmx>')
    (segment,) = read_tmx(path, languages=("en", "de")).segments
    assert segment.text == f"one{spaces}two three"
