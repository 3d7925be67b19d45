"""Compiled catalogues: both byte orders, and damage."""

import gettext
import io
import struct
from pathlib import Path

import pytest

from seqloom.apps.catalogues import plan_work
from seqloom.core.errors import DataError
from seqloom.text.formats.mo import MAGIC, Message, compile_mo, read_mo
from seqloom.text.formats.readers import PairReader, SideReader
from seqloom.text.formats.segments import Filling

HEADER = Message(
    "", ("Content-Type: text/plain; charset=UTF-8\nLanguage: de\nPlural-Forms: nplurals=2; plural=(n != 1);\n",)
)
MESSAGES = [
    HEADER,
    Message("Open", ("Öffnen",), context="menu"),
    Message("%d file", ("%d Datei", "%d Dateien"), plural="%d files"),
    Message("Empty", ("",)),
]


def _mo(folder: Path, data: bytes) -> Path:
    path = folder / "a.mo"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("order", ["<", ">"])
def test_messages_come_back_and_python_reads_them(tmp_path: Path, order: str) -> None:
    data = compile_mo(MESSAGES, order=order)
    catalogue = read_mo(_mo(tmp_path, data))
    assert sorted(catalogue.messages, key=repr) == sorted(MESSAGES, key=repr)
    assert catalogue.languages == (None, "de")
    assert catalogue.filled({}) == data
    theirs = gettext.GNUTranslations(io.BytesIO(data))
    assert theirs.pgettext("menu", "Open") == "Öffnen"
    assert theirs.ngettext("%d file", "%d files", 3) == "%d Dateien"


def test_untranslated_messages_are_filled_and_fuzzy_ones_are_not(tmp_path: Path) -> None:
    catalogue = read_mo(_mo(tmp_path, compile_mo(MESSAGES, order=">")))
    numbers = [number for number, each in enumerate(catalogue.segments) if each.state == "untranslated"]
    assert [catalogue.segments[number].text for number in numbers] == ["Empty"]
    assert (
        gettext.GNUTranslations(io.BytesIO(catalogue.filled({numbers[0]: Filling(("Leer",))}))).gettext("Empty")
        == "Leer"
    )
    assert catalogue.filled({numbers[0]: Filling(("Leer",), is_fuzzy=True)}) == catalogue.filled({})


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[::-1], "not a compiled catalogue; it begins with"),
        (lambda data: data[:30], "messages do not fit"),
        (lambda data: data[:-40], "lies beyond the end"),
        (lambda data: data[:10], "the compiled catalogue is damaged"),
        (lambda data: data[:8] + struct.pack("<I", 1 << 31) + data[12:], "do not fit"),
        (lambda data: data.replace("Öff".encode(), b"\xff\xfe\xff\xfe"), "the compiled catalogue is damaged"),
        # A codec of names, which takes the square of the length of a text.
        (lambda data: data.replace(b"UTF-8\nLang", b"punycode\ng"), "damaged (unknown encoding: punycode)"),
    ],
)
def test_damage_is_a_data_error(tmp_path: Path, damage: object, message: str) -> None:
    data = damage(compile_mo(MESSAGES))  # type: ignore[operator]
    with pytest.raises(DataError) as caught:
        read_mo(_mo(tmp_path, data))
    assert message in str(caught.value)


def _with_dependent(data: bytes, count: int) -> bytes:
    """The same catalogue in minor revision 1, whose head is longer by five numbers."""
    _, _, messages, sources, targets, _, place = struct.unpack_from("<7I", data)
    head = struct.pack("<7I", MAGIC, 1, messages, sources + 20, targets + 20, 0, place + 20)
    places = struct.unpack_from(f"<{4 * messages}I", data, 28)
    moved = [number + 20 * (at % 2) for at, number in enumerate(places)]
    tables = struct.pack(f"<5I{4 * messages}I", 1, 48, count, 48, 48, *moved)
    return head + tables + data[28 + 16 * messages :]


def test_messages_that_depend_on_the_system_are_told_and_never_lost(tmp_path: Path) -> None:
    path = _mo(tmp_path, _with_dependent(compile_mo(MESSAGES), 2))
    catalogue = read_mo(path)
    assert catalogue.dependent == 2
    assert catalogue.messages == read_mo(_mo(tmp_path, compile_mo(MESSAGES))).messages
    assert catalogue.filled({}) == _with_dependent(compile_mo(MESSAGES), 2)
    number = next(at for at, each in enumerate(catalogue.segments) if each.state == "untranslated")
    with pytest.raises(DataError, match=r"2 of its messages depend on the system, .* compile it with msgfmt"):
        catalogue.filled({number: Filling(("Leer",))})
    path.write_bytes(_with_dependent(compile_mo(MESSAGES), 2))
    with pytest.raises(DataError, match="would be lost"):
        plan_work(read_mo(path))
    for reader in (PairReader(path), SideReader(path, language="de")):
        assert list(reader)
        assert any("2 messages that depend on the system (%<PRIu64>) left out" in each for each in reader.notices())
    assert read_mo(_mo(tmp_path, _with_dependent(compile_mo(MESSAGES), 0))).dependent == 0
