"""Translation memories: every unit is found again, near matches are those of a plain search through all of them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.core.errors import DataError, UsageError
from seqloom.text.translation_memory import (
    MemoryUnit,
    TranslationMemory,
    read_memory,
    words_of_text,
)

SENTENCES = st.lists(
    st.sampled_from(["the", "a", "cat", "sat", "on", "mat", ".", ",", "{0}", "%s", "<b>", "</b>", "猫", "犬"]),
    min_size=1,
    max_size=9,
)


def edit_distance(one: list[str], other: list[str]) -> int:
    """Levenshtein's table, row by row."""
    row = list(range(len(other) + 1))
    for i, word in enumerate(one, start=1):
        before, row[0] = row[0], i
        for j, against in enumerate(other, start=1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (word != against))
    return row[-1]


@given(st.lists(SENTENCES, min_size=1, max_size=40), SENTENCES, st.integers(1, 99), st.integers(1, 5))
def test_near_matches_are_those_of_a_search_through_all_units(
    sources: list[list[str]], words: list[str], least: int, limit: int
) -> None:
    memory = TranslationMemory(MemoryUnit(" ".join(each), str(at)) for at, each in enumerate(sources))
    text = " ".join(words)
    expected = []
    for number, unit in enumerate(memory.units):
        ours, theirs = words_of_text(text), words_of_text(unit.source)
        longer = max(len(ours), len(theirs))
        percentage = min(99, 100 * (longer - edit_distance(ours, theirs)) // longer)
        if unit.source != text and percentage >= least:
            expected.append((percentage, number, unit))
    expected.sort(reverse=True, key=lambda each: each[:2])
    found = memory.near(text, least=least, limit=limit)
    assert [(each.percentage, each.unit) for each in found] == [(each[0], each[2]) for each in expected[:limit]]


@given(
    st.lists(st.tuples(st.text(max_size=8), st.text(max_size=4), st.sampled_from(["", "2025", "2026"])), max_size=30)
)
def test_every_unit_is_an_exact_match_and_the_newest_translation_counts(units: list[tuple[str, str, str]]) -> None:
    written = [MemoryUnit(f"a {text}".encode("utf-8", "replace").decode(), *rest) for text, *rest in units]
    memory = TranslationMemory(written)
    for unit in written:
        found = memory.match(f"\t{unit.source.replace(' ', '  ')} \n")
        assert found is not None
        assert found.percentage == 100
        assert found.unit.changed >= unit.changed
        same = [each for each in written if memory.match(each.source) == found]
        assert found.unit == max(enumerate(same), key=lambda each: (each[1].changed, each[0]))[1]


def test_case_tags_and_placeholders_count() -> None:
    memory = TranslationMemory([MemoryUnit("Save <b>{0}</b> now.", "<b>{0}</b> jetzt speichern.")])
    assert memory.exact("Save  <b>{0}</b> now. ") == "<b>{0}</b> jetzt speichern."
    for text in ("save <b>{0}</b> now.", "Save {0} now.", "Save <b>{1}</b> now.", "Save <i>{0}</i> now.", "Save now."):
        assert memory.exact(text) is None
    # Save <b> {0} </b> now . are six words, of which the placeholder differs.
    assert [each.percentage for each in memory.near("Save <b>{1}</b> now.")] == [83]
    # The same words with other spaces between them are not the same text.
    assert [each.percentage for each in memory.near("Save <b> {0} </b> now .")] == [99]


def write_tmx(path: Path, units: str) -> Path:
    path.write_text(f'<tmx version="1.4"><header srclang="en"/><body>{units}</body></tmx>', encoding="utf-8")
    return path


def test_a_tmx_file_is_read_by_language_and_date_with_the_markup_of_its_codes(tmp_path: Path) -> None:
    path = write_tmx(
        tmp_path / "memory.tmx",
        """
        <tu><tuv xml:lang="en-GB" ><seg>Open</seg></tuv>
            <tuv xml:lang="de-AT" changedate="20260201T000000Z"><seg>Öffnen</seg></tuv></tu>
        <tu changedate="20250101T000000Z"><tuv xml:lang="en"><seg>Open</seg></tuv>
            <tuv xml:lang="de"><seg>Aufmachen</seg></tuv></tu>
        <tu><tuv xml:lang="en"><seg>Save <bpt i="1">&lt;b&gt;</bpt>all<ept i="1">&lt;/b&gt;</ept> to <ph x="2"/></seg>
            </tuv>
            <tuv xml:lang="de"><seg><bpt i="1">&lt;b&gt;</bpt>Alles<ept i="1">&lt;/b&gt;</ept> in <ph x="2"/></seg>
            </tuv></tu>
        <tu><tuv xml:lang="en"><seg>Close</seg></tuv>
            <tuv xml:lang="de"><prop type="x-fuzzy">true</prop><seg>Auf</seg></tuv></tu>
        """,
    )
    memory = read_memory([path], languages=("en_US", "de"))
    assert memory.exact("Open") == "Öffnen"
    assert memory.exact('Save <b>all</b> to <ph x="2"/>') == '<b>Alles</b> in <ph x="2"/>'
    assert memory.exact("Save all to") is None
    assert memory.exact("Close") is None  # its translation needs review
    match = memory.match("Open")
    assert match is not None
    assert (match.unit.file, match.unit.line) == (str(path), 2)
    with pytest.raises(DataError, match="holds no translations from en to fr; its languages are en, de"):
        read_memory([path], languages=("en", "fr"))


def test_tables_and_catalogues_are_memories_too(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("one\teins\ntwo\tzwei\n", encoding="utf-8")
    header = 'msgid ""\nmsgstr "Language: de_AT\\nContent-Type: text/plain; charset=UTF-8\\n"\n\n'
    (tmp_path / "b.po").write_text(f'{header}msgid "two"\nmsgstr "zwo"\n', encoding="utf-8")
    memory = read_memory([tmp_path / "a.tsv", tmp_path / "b.po"], languages=("en", "de"))
    assert (memory.exact("one"), memory.exact("two"), len(memory)) == ("eins", "zwo", 2)
    with pytest.raises(DataError, match="translations are in 'de', not in 'fr'"):
        read_memory([tmp_path / "b.po"], languages=("en", "fr"))
    with pytest.raises(UsageError, match=r"known are \.tmx, \.tsv, \.po, \.mo and \.jsonl"):
        read_memory([Path(__file__)], languages=("en", "de"))
    (tmp_path / "bad.tmx").write_text("<tmx><body><tu>", encoding="utf-8")
    with pytest.raises(DataError, match=r"bad\.tmx"):
        read_memory([tmp_path / "bad.tmx"], languages=("en", "de"))
