"""Files of ours read by programs that nobody here wrote, and the other way round."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.text.formats.carry import has_all_of
from seqloom.text.formats.po import read_mo, read_po
from seqloom.text.formats.segments import Content, Filling
from seqloom.text.formats.tmx import read_tmx
from seqloom.text.formats.xliff import read_xliff
from seqloom.text.formats.xml import unescape
from text.formats.generated import WRITERS, Unit, write_po
from text.formats.samples import fill, shouting, write

pytestmark = pytest.mark.parity


def _import(name: str) -> Any:
    return pytest.importorskip(name, reason="pip install --group formats-oracles")


def _messages(path: Path) -> list[tuple[str, str, str, bool]]:
    """What polib reads: context, source, translation, fuzzy."""
    polib = _import("polib")
    found = []
    for entry in polib.pofile(str(path)):
        if entry.obsolete:
            continue
        forms = [entry.msgstr_plural[form] for form in sorted(entry.msgstr_plural)] or [entry.msgstr]
        found += [(entry.msgctxt or "", entry.msgid, form, entry.fuzzy) for form in forms]
    return found


def test_polib_reads_the_same_messages_before_and_after(tmp_path: Path) -> None:
    path = write(tmp_path, "messages.po")
    for _ in range(2):
        catalogue = read_po(path)
        ours = [(each.context, each.target, each.state == "fuzzy") for each in catalogue.segments]
        assert ours == [(context, target, fuzzy) for context, _, target, fuzzy in _messages(path)]
        path.write_bytes(catalogue.filled(fill(catalogue, shouting, aligned=True)))
    assert 'CANNOT OPEN "%s": %m\n' in [target for _, _, target, _ in _messages(path)]


def test_polib_sees_a_difference_where_there_is_one(tmp_path: Path) -> None:
    path = write(tmp_path, "messages.po")
    before = _messages(path)
    path.write_bytes(read_po(path).filled({1: Filling(("x %s %m\n",), is_fuzzy=True)}))
    after = _messages(path)
    assert [new for old, new in zip(before, after, strict=True) if old != new] == [
        ("", 'Cannot open "%s": %m\n', "x %s %m\n", True)
    ]


@given(WRITERS["a.po"][1], st.integers(0, 11))
@settings(max_examples=60)
def test_polib_reads_generated_catalogues_as_they_were_written_and_filled(
    tmp_path_factory: pytest.TempPathFactory, units: list[Unit], style: int
) -> None:
    polib = _import("polib")
    written = write_po(units, style)
    path = tmp_path_factory.mktemp("polib") / "a.po"
    path.write_bytes(written.text.encode())
    for _ in range(2):
        catalogue = read_po(path)
        theirs = [entry for entry in polib.pofile(str(path)) if not entry.obsolete]
        assert len(theirs) == len(units)
        for group, entry in enumerate(theirs):
            ours = [
                segment
                for segment, known in zip(catalogue.segments, written.known, strict=True)
                if known.group == group
            ]
            forms = [entry.msgstr_plural[form] for form in sorted(entry.msgstr_plural)] or [entry.msgstr]
            assert {segment.context for segment in ours} == {entry.msgctxt or ""}
            assert {segment.text for segment in ours} <= {entry.msgid, entry.msgid_plural}
            # A header may know of more forms or of fewer than the entry has.
            assert all(one.target == other for one, other in zip(ours, forms, strict=False))
            assert {segment.state for segment in ours if segment.target} <= {"fuzzy" if entry.fuzzy else "translated"}
        path.write_bytes(catalogue.filled(fill(catalogue, shouting, aligned=True)))


def test_compiled_catalogues_of_polib_are_read(tmp_path: Path) -> None:
    polib = _import("polib")
    theirs = tmp_path / "theirs.mo"
    polib.pofile(str(write(tmp_path, "messages.po"))).save_as_mofile(str(theirs))
    catalogue = read_mo(theirs)
    assert ("Open file", "Datei öffnen") in [(each.text, each.target) for each in catalogue.segments]
    singular = {(each.msgid, each.msgstr) for each in polib.mofile(str(theirs)) if each.msgstr}
    assert singular <= {(each.text, each.target) for each in catalogue.segments}


@pytest.mark.parametrize("name", ["page.xlf", "page2.xliff"])
def test_translate_toolkit_reads_the_same_units(tmp_path: Path, name: str) -> None:
    module = _import("translate.storage.xliff" if name == "page.xlf" else "translate.storage.xliff2")
    store = module.xlifffile if name == "page.xlf" else module.Xliff2File
    path = write(tmp_path, name)
    catalogue = read_xliff(path)
    fillings = fill(catalogue, shouting, aligned=True)
    path.write_bytes(catalogue.filled(fillings, target="de"))
    theirs = store.parsefile(str(path))
    read = {_words(str(unit.source)): _words(str(unit.target or "")) for unit in theirs.units if unit.source}
    for number, filling in fillings.items():
        source = catalogue.segments[number]
        assert has_all_of(source.source, filling.content)
        assert read[_with_markup(source.source)] == _with_markup(filling.content)


def test_translate_toolkit_reads_a_filled_memory(tmp_path: Path) -> None:
    module = _import("translate.storage.tmx")
    path = write(tmp_path, "memory.tmx")
    catalogue = read_tmx(path, languages=("en", "de"))
    path.write_bytes(catalogue.filled(fill(catalogue, shouting, aligned=True), target="de"))
    with path.open("rb") as file:
        theirs = module.tmxfile(file, "en", "de")
    read = {_words(str(unit.source)): _words(str(unit.target)) for unit in theirs.units}
    assert read[_words("Save all files{0} & quit")] == _words("SAVE ALL FILES{0} & QUIT")
    assert read["Over two lines"] == "OVER TWO LINES"


def _with_markup(content: Content) -> str:
    """As they read it: foreign markup inside a code is text."""
    inside = (piece if isinstance(piece, str) else unescape(re.sub("<[^>]*>", "", piece.text)) for piece in content)
    return _words("".join(inside))


def _words(text: str) -> str:
    return " ".join(text.split())
