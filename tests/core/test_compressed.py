"""Compressed files: every kind gives its bytes back, and damage or a bomb is a sentence."""

import gzip
import lzma
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from seqloom.core import text_files as compressed
from seqloom.core.errors import DataError, UsageError
from seqloom.core.files import read_lines
from seqloom.core.text_files import bare_name, is_compressed, open_bytes, read_whole


def _zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


KINDS: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".xz": lzma.compress, ".zst": _zstd}
TEXT = os.urandom(8_000).hex().encode()

each_kind = pytest.mark.parametrize("ending", KINDS)


@each_kind
def test_the_bytes_come_back_from_one_stream_and_from_several(ending: str, tmp_path: Path) -> None:
    path, pack = tmp_path / f"text{ending}", KINDS[ending]
    path.write_bytes(pack(TEXT) + pack(b"and more"))
    assert read_whole(path) == TEXT + b"and more"
    with open_bytes(path) as file:
        assert (file.read(10), file.read1(5)) == (TEXT[:10], TEXT[10:15])
        assert file.read() == TEXT[15:] + b"and more"
        assert file.read1(5) == b""


@each_kind
def test_lines_are_read_from_every_kind(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"text.de{ending}"
    path.write_bytes(KINDS[ending]("eins\nzwölf\n".encode()))
    assert list(read_lines(path)) == ["eins", "zwölf"]


def test_zeros_may_pad_and_part_streams_of_xz(tmp_path: Path) -> None:
    path = tmp_path / "text.xz"
    path.write_bytes(lzma.compress(b"one") + bytes(8) + lzma.compress(b"two") + bytes(4))
    assert read_whole(path) == b"onetwo"


@each_kind
@pytest.mark.parametrize("fault", ["cut", "cut by one", "flipped", "followed"])
def test_damage_is_a_data_error(ending: str, fault: str, tmp_path: Path) -> None:
    path, packed = tmp_path / f"text{ending}", KINDS[ending](TEXT)
    middle = len(packed) // 2
    faults = {
        "cut": packed[:middle],
        "cut by one": packed[:-1],
        "flipped": packed[:middle] + bytes([packed[middle] ^ 0xFF]) + packed[middle + 1 :],
        "followed": packed + b"junk",
    }
    path.write_bytes(faults[fault])
    with pytest.raises(DataError, match=r"text\.\w+: the compressed data is cut short or damaged"):
        read_whole(path)


@each_kind
def test_another_kind_of_data_is_told(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"text{ending}"
    path.write_bytes(b"plain text\n")
    with pytest.raises(DataError, match=rf"not \w+ data, though the name ends in {ending}"):
        read_whole(path)


@each_kind
def test_a_bomb_is_refused_before_all_of_it_is_out(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compressed, "RATIO_FREE_BYTES", 1 << 21)
    monkeypatch.setattr(compressed, "MAX_RATIO", 100)
    path = tmp_path / f"bomb{ending}"
    path.write_bytes(KINDS[ending](bytes(1 << 24)))
    done = []
    with open_bytes(path) as file, pytest.raises(DataError, match="more than 100 times as large as the file"):
        done.extend(iter(lambda: len(file.read1(1 << 20)), 0))
    assert sum(done) < 1 << 24


def test_a_header_that_asks_for_gigabytes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "text.zst"
    # A frame with a window of 2^28 bytes (18 << 3 says so) and one last block of none.
    path.write_bytes(b"\x28\xb5\x2f\xfd" + bytes([0, 18 << 3, 1, 0, 0]))
    with pytest.raises(DataError, match="cut short or damaged"):
        read_whole(path)


def test_a_file_that_is_read_whole_has_a_largest_size(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"abcdef")
    assert read_whole(path, largest=6) == b"abcdef"
    with pytest.raises(DataError, match="larger than 5 bytes"):
        read_whole(path, largest=5)


def test_without_its_library_zstandard_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    path = tmp_path / "text.zst"
    path.write_bytes(_zstd(TEXT))
    with pytest.raises(UsageError, match="pip install zstandard"):
        read_whole(path)


def test_names_without_their_last_ending() -> None:
    assert [bare_name(Path(name)) for name in ("a/b.tmx.zst", "b.de.gz", "b.de", "xz")] == [
        "b.tmx",
        "b.de",
        "b.de",
        "xz",
    ]
    assert is_compressed(Path("b.xz"))
    assert not is_compressed(Path("b.tsv"))
