"""Zip archives made by hand, with whatever is to be wrong with them."""

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

REGULAR, LINK, FOLDER = 0o100644 << 16, 0o120777 << 16, 0o040755 << 16
LOCAL, ENTRY, END = struct.Struct("<4s5H3I2H"), struct.Struct("<4s6H3I5H2I"), struct.Struct("<4s4H2IH")


@dataclass(frozen=True)
class File:
    """A member, and what its headers are to say in place of the truth."""

    name: bytes
    data: bytes = b"data"
    deflated: bool = False
    flags: int = 0
    method: int | None = None
    attributes: int = REGULAR
    local_name: bytes | None = None
    local_size: int | None = None
    size: int | None = None
    """In both headers."""
    checksum: int | None = None
    offset: int | None = None
    """Of the local header, as the directory tells it."""
    packed: bytes | None = None
    """Bytes as they stand in the archive."""
    after: bytes = b""
    """Bytes between this file and the next."""


def deflate(data: bytes) -> bytes:
    """Raw deflate, as zip files hold it."""
    machine = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return machine.compress(data) + machine.flush()


def build(
    files: Sequence[File], *, before: bytes = b"", after: bytes = b"", comment: bytes = b"", count: int | None = None
) -> bytes:
    """An archive of these files."""
    content, directory = before, b""
    for file in files:
        packed = file.packed if file.packed is not None else deflate(file.data) if file.deflated else file.data
        method = file.method if file.method is not None else 8 if file.deflated else 0
        size = len(file.data) if file.size is None else file.size
        checksum = zlib.crc32(file.data) if file.checksum is None else file.checksum
        offset = len(content) if file.offset is None else file.offset
        local_name = file.name if file.local_name is None else file.local_name
        local_size = size if file.local_size is None else file.local_size
        common = (file.flags, method, 0, 33, checksum, len(packed))
        content += LOCAL.pack(b"PK\3\4", 20, *common, local_size, len(local_name), 0) + local_name + packed + file.after
        figures = (size, len(file.name), 0, 0, 0, 0, file.attributes, offset)
        directory += ENTRY.pack(b"PK\1\2", 3 << 8 | 20, 20, *common, *figures) + file.name
    number = len(files) if count is None else count
    end = END.pack(b"PK\5\6", 0, 0, number, number, len(directory), len(content), len(comment))
    return content + directory + end + comment + after
