"""Records, a line each."""

import json
from pathlib import Path

import pytest

from seqloom.core.errors import DataError
from seqloom.text.formats.jsonl import read_jsonl, read_pairs
from seqloom.text.formats.segments import Filling, Pair
from text.formats.samples import JSONL, fill, shouting, write

EN_DE = ("en", "de")


def _jsonl(folder: Path, text: str) -> Path:
    path = folder / "a.jsonl"
    path.write_text(text, encoding="utf-8")
    return path


def test_only_the_targets_change(tmp_path: Path) -> None:
    path = write(tmp_path, "pairs.jsonl")
    catalogue = read_jsonl(path, languages=EN_DE)
    assert catalogue.filled({}) == path.read_bytes()
    out = catalogue.filled(fill(catalogue, shouting, aligned=True)).decode()
    expected = JSONL.replace('"target": "", "tags"', '"target": "GOOD MORNING, {name}!", "tags"')
    expected = expected.replace('"target":null', '"target":"SAVE \\"%s\\""')
    expected = expected.replace('"No target"}', '"No target", "target": "NO TARGET"}')
    assert out == expected.replace('"de": ""', '"de": "INSIDE"')


def test_a_fuzzy_target_is_marked_and_a_good_one_clears_the_mark(tmp_path: Path) -> None:
    catalogue = read_jsonl(write(tmp_path, "pairs.jsonl"), languages=EN_DE)
    assert catalogue.segments[5].state == "fuzzy"
    out = catalogue.filled({4: Filling(("Innen",), is_fuzzy=True), 5: Filling(("Unsicher",))}).decode().split("\n")
    assert json.loads(out[5]) == {"translation": {"en": "Inside", "de": "Innen"}, "id": 5, "fuzzy": True}
    assert out[6] == '{"source": "Doubtful", "target": "Unsicher", "fuzzy": false}'


def test_files_in_ascii_stay_so(tmp_path: Path) -> None:
    catalogue = read_jsonl(_jsonl(tmp_path, '{"source": "\\u00e4", "target": ""}'))
    assert catalogue.filled({0: Filling(("ö",))}) == b'{"source": "\\u00e4", "target": "\\u00f6"}'


def test_pairs_by_names_and_by_languages(tmp_path: Path) -> None:
    path = _jsonl(
        tmp_path, '{"de": "x", "en": "y"}\n{"translation": {"en": "a", "de": "b"}}\n{"source": "s", "target": ""}\n'
    )
    assert list(read_pairs(path, languages=EN_DE)) == [Pair("y", "x", 1), Pair("a", "b", 2), None]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"source": "a",', "a.jsonl:2:16: not JSON"),
        ('["a", "b"]', "a.jsonl:2:1: a record such as"),
        ('{"text": "a"}', "neither a member source nor a translation in both languages: the members are text"),
        ('{"source": 3}', "text is expected, not 3"),
        ('{"source": "\\ud800"}', "half of a character (a lone surrogate)"),
        ("[" * 100_000, "a.jsonl:2:1: more lists and objects inside each other than can be read"),
        ("9" * 10_000, "a.jsonl:2:1: a number with thousands of digits"),
    ],
)
def test_bad_lines_are_reported_with_their_place(tmp_path: Path, line: str, message: str) -> None:
    path = _jsonl(tmp_path, f'{{"source": "a"}}\n{line}\n')
    for read in (read_jsonl, lambda path: list(read_pairs(path))):
        with pytest.raises(DataError) as caught:
            read(path)  # type: ignore[operator]
        assert message in str(caught.value)
