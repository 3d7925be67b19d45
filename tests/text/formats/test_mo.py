"""Compiled catalogues: both byte orders, and damage."""

import gettext
import io
import struct
from pathlib import Path

import pytest

from seqloom.core.errors import DataError, UsageError
from seqloom.text.formats.po import MO_MAGIC, read_mo
from seqloom.text.formats.readers import PairReader, SideReader, languages_of, open_catalogue
from text.formats.mo_files import MESSAGES, compile_mo


def _mo(folder: Path, data: bytes) -> Path:
    path = folder / "a.mo"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("order", ["<", ">"])
def test_messages_come_back_and_python_reads_them(tmp_path: Path, order: str) -> None:
    data = compile_mo(MESSAGES, order=order)
    path = _mo(tmp_path, data)
    assert {(each.text, each.target, each.state, each.context) for each in read_mo(path).segments} == {
        ("Open", "Öffnen", "translated", "menu"),
        ("%d file", "%d Datei", "translated", ""),
        ("%d files", "%d Dateien", "translated", ""),
        ("Empty", "", "untranslated", ""),
    }
    assert languages_of(path) == (None, "de")
    theirs = gettext.GNUTranslations(io.BytesIO(data))
    assert theirs.pgettext("menu", "Open") == "Öffnen"
    assert theirs.ngettext("%d file", "%d files", 3) == "%d Dateien"


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
    head = struct.pack("<7I", MO_MAGIC, 1, messages, sources + 20, targets + 20, 0, place + 20)
    places = struct.unpack_from(f"<{4 * messages}I", data, 28)
    moved = [number + 20 * (at % 2) for at, number in enumerate(places)]
    tables = struct.pack(f"<5I{4 * messages}I", 1, 48, count, 48, 48, *moved)
    return head + tables + data[28 + 16 * messages :]


def test_system_dependent_messages_are_counted(tmp_path: Path) -> None:
    path = _mo(tmp_path, _with_dependent(compile_mo(MESSAGES), 2))
    read = read_mo(path).segments
    assert [each.text for each in read[-2:]] == ["", ""]
    assert read[:-2] == read_mo(_mo(tmp_path, compile_mo(MESSAGES))).segments
    path.write_bytes(_with_dependent(compile_mo(MESSAGES), 2))
    for reader in (PairReader(path), SideReader(path, language="de")):
        assert list(reader)
        assert reader.left_out == 3
    assert read_mo(_mo(tmp_path, _with_dependent(compile_mo(MESSAGES), 0))).segments == read[:-2]


def test_a_compiled_catalogue_is_not_filled(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"a\.mo is a compiled catalogue, .* translate the \.po file .* msgfmt"):
        open_catalogue(_mo(tmp_path, compile_mo(MESSAGES)))
