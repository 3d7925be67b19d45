"""Compressed files, known by their names: .gz, .xz and .zst, decompressed piece by piece and never without bound."""

import gzip
import importlib
import lzma
import zlib
from collections.abc import Callable, Generator, Mapping
from io import BufferedReader
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from seqloom.core.errors import DataError, UsageError

PIECE = 1 << 20
"""Bytes that a decompressor gives at a time, where it can be told."""

FREE = 1 << 26
"""Bytes that may come out before anybody looks at how much went in."""

LARGEST_RATIO = 400
"""Bytes out for a byte in. Text comes to 3 to 20, and a corpus of one repeated line can reach some hundreds."""

LARGEST_WHOLE = 1 << 30
"""Bytes of a file that is read as a whole."""

_XZ_MEMORY = 1 << 29  # xz -9 needs 65 MiB; a header can ask for gigabytes
_ZSTD_WINDOW = 1 << 27  # what zstd itself takes without being asked
_ZSTD_FED = 1 << 10  # at most 128 KiB come out for four bytes, so this bounds what one call can give

R = TypeVar("R", bound="Decompressed")


def bare_name(path: Path) -> str:
    """The name of a file without what says that it is compressed: `memory.tmx` of `memory.tmx.zst`."""
    return path.name[: -len(path.suffix)] if path.suffix in _DECOMPRESSORS else path.name


def is_compressed(path: Path) -> bool:
    """Whether the name of a file says that it is compressed."""
    return path.suffix in _DECOMPRESSORS


def open_bytes(path: Path) -> "BufferedReader | Decompressed":
    """The bytes of a file, decompressed if its name ends in .gz, .xz or .zst."""
    return Decompressed(path) if is_compressed(path) else path.open("rb")


def read_whole(path: Path, *, largest: int = LARGEST_WHOLE) -> bytes:
    """All bytes of a file at once, decompressed; a file that would fill the memory is refused."""
    pieces, size = [], 0
    with open_bytes(path) as file:
        while piece := file.read(PIECE):
            size += len(piece)
            if size > largest:
                raise DataError(f"{path}: larger than {largest:,} bytes, which cannot be held as a whole; split it")
            pieces.append(piece)
    return b"".join(pieces)


class Decompressed:
    """What a compressed file holds, to be read once from the beginning to the end.

    Damage is a DataError, and so is a file that becomes more than `LARGEST_RATIO` times as large.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._kind = path, path.suffix
        self._raw = path.open("rb")
        self._pieces = _DECOMPRESSORS[self._kind](self._raw, path)
        self._left, self._given = b"", 0

    def read(self, size: int = -1, /) -> bytes:
        """So many bytes, fewer only at the end; all of them for a negative size."""
        parts, missing = [], size
        while missing:
            part = self.read1(missing if size >= 0 else PIECE)
            if not part:
                break
            parts.append(part)
            missing -= len(part) if size >= 0 else 0
        return b"".join(parts)

    def read1(self, size: int = -1, /) -> bytes:
        """At most so many bytes, as soon as there are some; none at the end."""
        if not self._left:
            self._left = self._next()
        size = len(self._left) if size < 0 else size
        part, self._left = self._left[:size], self._left[size:]
        return part

    def _next(self) -> bytes:
        try:
            piece = next(self._pieces, b"")
        except _Foreign as error:
            name = _NAMES[self._kind]
            raise DataError(f"{self._path}: not {name} data, though the name ends in {self._kind}") from error
        except (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, _Damaged) as error:
            raise DataError(f"{self._path}: the compressed data is cut short or damaged; fetch it again") from error
        self._given += len(piece)
        if self._given > FREE and self._given > LARGEST_RATIO * self._raw.tell():
            raise DataError(
                f"{self._path}: what is in it is more than {LARGEST_RATIO} times as large as the file, as if made to "
                "fill the memory; if that is meant, decompress it by hand"
            )
        return piece

    def close(self) -> None:
        """Let go of the file."""
        self._pieces.close()
        self._raw.close()

    def __enter__(self: R) -> R:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Foreign(Exception):
    """The file is of another kind."""


class _Damaged(Exception):
    """The file ends too early, or holds what its kind does not allow."""


Pieces = Generator[bytes, None, None]


def _gzip(raw: BufferedReader, _path: Path) -> Pieces:
    if (begin := raw.peek(2)[:2]) and begin != _GZIP_MARK:
        raise _Foreign
    with gzip.GzipFile(fileobj=raw, mode="rb") as file:
        while piece := file.read1(PIECE):
            yield piece


def _xz(raw: BufferedReader, _path: Path) -> Pieces:
    data = raw.read(PIECE)
    if data and not data.startswith(_XZ_MARK):
        raise _Foreign
    while data:
        stream = lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)
        while not stream.eof:
            if stream.needs_input and not data and not (data := raw.read(PIECE)):
                raise EOFError
            if piece := stream.decompress(data, PIECE):
                yield piece
            data = b""
        # Streams may follow each other, with zeros between them.
        data = stream.unused_data.lstrip(b"\0")
        while not data and (more := raw.read(PIECE)):
            data = more.lstrip(b"\0")


def _zstd(raw: BufferedReader, path: Path) -> Pieces:
    try:
        zstandard: Any = importlib.import_module("zstandard")
    except ImportError as error:
        raise UsageError(f"{path} needs the library zstandard to be read: pip install zstandard") from error
    data = raw.read(_ZSTD_FED)
    if data and not data.startswith(_ZSTD_MARKS):
        raise _Foreign
    while data:
        frame = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW).decompressobj()
        while not frame.eof:
            if not data and not (data := raw.read(_ZSTD_FED)):
                raise EOFError
            try:
                piece = frame.decompress(data)
            except zstandard.ZstdError as error:
                raise _Damaged(error) from error
            data = b""
            if piece:
                yield piece
        data = frame.unused_data or raw.read(_ZSTD_FED)


_GZIP_MARK = b"\x1f\x8b"
_XZ_MARK = b"\xfd7zXZ\0"
_ZSTD_MARKS = (b"\x28\xb5\x2f\xfd", *(bytes([low, 0x2A, 0x4D, 0x18]) for low in range(0x50, 0x60)))
_NAMES = {".gz": "gzip", ".xz": "xz", ".zst": "Zstandard"}
_DECOMPRESSORS: Mapping[str, Callable[[BufferedReader, Path], Pieces]] = {".gz": _gzip, ".xz": _xz, ".zst": _zstd}
