"""Compiled catalogues: both byte orders, and damage."""

import gettext
import io
import struct
from pathlib import Path

import pytest

from seqloom.core.errors import DataError
from seqloom.text.formats.mo import Message, compile_mo, read_mo
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
