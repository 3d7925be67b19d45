"""Zip archives: written to the same bytes every time, read by the strictest rules that these bytes keep.

    for each file   local header, name, bytes
    for each file   directory entry, name
    end record      how many entries, and where they begin

The usual readers forgive a lot, and each forgives otherwise: an archive can show one thing to a checker and another to
whoever unpacks it. So this one knows a single layout: files follow one another from the first byte on, then the
directory, then the end record and nothing more; what a file says of itself is what the directory says of it; names are
plain, members are regular files, stored or deflated. Everything is bounded, and counted as it comes out.
"""

import os
import re
import shutil
import stat
import struct
import sys
import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import BinaryIO

from seqloom.core.errors import ModelError, SeqloomError, UsageError
from seqloom.core.terminal import visible

# Names inside an archive: plain ones that mean the same file on every system.

LONGEST_NAME = 200
"""Characters of a whole name."""

_PART = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._+-]{0,98}[A-Za-z0-9_+-])?", re.ASCII)
"""A folder or a file: no dot at either end, so neither `..` nor a hidden file nor what Windows would shorten."""

_DEVICES = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9]|conin\$|conout\$)(?:\..*)?", re.IGNORECASE | re.DOTALL)
"""What Windows takes for a device in every folder, whatever comes after a dot."""

_DEEPEST = 8
"""Folders in one another, the file counted."""


def fault_of_name(name: str) -> str | None:
    """What is wrong with the name of a file in an archive, as the rest of a sentence; None for a good one."""
    parts = name.split("/")
    if "\\" in name:
        return "has a backslash, which some systems take for a folder"
    if name.startswith("/") or re.match(r"[A-Za-z]:", name):
        return "starts at the root of a disk"
    if ".." in parts:
        return "leads out of the folder"
    if len(name) > LONGEST_NAME or len(parts) > _DEEPEST:
        return f"is longer than {LONGEST_NAME} characters or deeper than {_DEEPEST} folders"
    if any(_DEVICES.fullmatch(part) for part in parts):
        return "is that of a device on Windows"
    if not all(_PART.fullmatch(part) for part in parts):
        return "has parts other than letters, digits, dots, dashes and underscores of ASCII"
    return None


def clash(names: Iterable[str]) -> tuple[str, str] | None:
    """Two names that would be one on some system, or of which one is a file and a folder; None where there are none.

    Names of ASCII have one form under every Unicode normalisation, so only the case of letters is left to compare.
    """
    files: dict[str, str] = {}
    folders: dict[str, str] = {}
    names = list(names)
    for name in names:
        if (folded := name.casefold()) in files:
            return files[folded], name
        files[folded] = name
    for name in names:
        parts = name.split("/")
        for end in range(1, len(parts)):
            folder = "/".join(parts[:end])
            if folder.casefold() in files:
                return files[folder.casefold()], name
            if (other := folders.setdefault(folder.casefold(), folder)) != folder:
                return f"{other}/", name
    return None


# What is used as if it were a folder, such as an archive: made into one, for as long as the program runs.

if sys.platform != "win32":
    import fcntl

_PREFIX, _LOCK = "seqloom-", ".lock"

_KEPT: dict[Hashable, tuple[Path, Path, "TemporaryDirectory[str]"]] = {}
"""By what tells whether the origin is still the same: its name, its folder, and what removes that at the end."""


def temporary_folder(origin: Path, *, version: Hashable, make: Callable[[Path], None]) -> Path:
    """A folder that `make` fills from `origin`, for this program alone. The same version gives the same folder."""
    key = (origin.resolve(), version)
    if key not in _KEPT:
        if not _KEPT:
            _remove_leftovers()
        home = TemporaryDirectory(prefix=_PREFIX)
        folder = Path(home.name) / (origin.stem.strip(".") or "model")
        try:
            _lock(Path(home.name))
            make(folder)
        except BaseException:
            home.cleanup()
            raise
        _KEPT[key] = origin, folder, home
    return _KEPT[key][1]


def _lock(home: Path) -> None:
    """Lock a temporary folder until this process ends, by kill -9 too. The lock gets its name once it is held."""
    if sys.platform != "win32":
        descriptor = os.open(home / f"{_LOCK}.new", os.O_CREAT | os.O_WRONLY, 0o600)
        with suppress(OSError):  # of a file system without locks: its leftovers stay
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            (home / f"{_LOCK}.new").rename(home / _LOCK)


def _remove_leftovers() -> None:
    """Remove temporary folders of this user whose process was killed: nothing holds their lock any more."""
    if sys.platform == "win32":
        return
    for home in Path(gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if home.is_symlink() or home.lstat().st_uid != os.getuid():
                continue
            descriptor = os.open(home / _LOCK, os.O_WRONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(home, ignore_errors=True)
            finally:
                os.close(descriptor)


def unpacked(archive: Path, *, check: Callable[[Path, Path, Sequence[str]], None]) -> Path:
    """A folder with the files of an archive.

    `check` is given the archive, the folder and the names of the files, and raises if they are not what they should be.
    """
    found = archive.stat()
    return temporary_folder(
        archive,
        version=(found.st_ino, found.st_size, found.st_mtime_ns),
        make=lambda folder: check(archive, folder, extract_archive(archive, folder)),
    )


def by_origin(message: str) -> str:
    """A message with the names of archives and runs where it has those of their folders, which tell nobody anything."""
    for origin, folder, _ in _KEPT.values():
        message = message.replace(str(folder), str(origin))
    return message


_LOCAL, _ENTRY, _END = struct.Struct("<4s5H3I2H"), struct.Struct("<4s6H3I5H2I"), struct.Struct("<4s4H2IH")
_LOCAL_MARK, _ENTRY_MARK, _END_MARK = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"
_STORED, _DEFLATED = 0, 8
_DATE = 1 << 5 | 1  # the first of January 1980, the earliest that the format can write
_UNIX, _VERSION = 3 << 8, 20
_MODE = (stat.S_IFREG | 0o644) << 16
_SIZES_FOLLOW = 1 << 3
_HARMLESS_FLAGS = 0b110 | _SIZES_FOLLOW | 1 << 11  # how hard it was compressed, sizes after the bytes, names in UTF-8
_FOLLOWING = 24
"""The most bytes after a file that repeat its sizes."""
_WINDOWS_FOLDER, _WINDOWS_LINK = 0x10, 0x400

CHUNK = 1 << 20
LARGEST = (1 << 32) - 2
"""Bytes of an archive and of all that is in it: what four bytes can count. Larger ones need another layout."""


@dataclass(frozen=True)
class Limits:
    """How much an archive may hold."""

    members: int = 1000
    """Files and folders."""
    bytes: int = LARGEST
    """Of all files together."""
    ratio: int = 100
    """Bytes out for each byte in, of one file; text comes to 3 to 20."""
    free: int = 1 << 20
    """Bytes of a file that may come out whatever the ratio."""


@dataclass(frozen=True)
class Member:
    """A file as the directory of an archive tells it."""

    name: str
    flags: int
    method: int
    checksum: int
    packed: int
    """Bytes in the archive."""
    size: int
    """Bytes that come out."""
    offset: int
    """Where its local header begins."""

    @property
    def is_folder(self) -> bool:
        """Whether it only says that there is a folder."""
        return self.name.endswith("/")


def is_archive(path: Path) -> bool:
    """Whether a path names an archive: by its name alone, nothing is opened."""
    return path.suffix.lower() == ".zip" and path.is_file()


# --- writing ---------------------------------------------------------------------------------------------------------


def write_archive(path: Path, files: Mapping[str, Path]) -> None:
    """Write files under these names. The same content gives the same bytes: sorted, without times, not compressed.

    How well a library compresses changes with its version, and weights hardly get smaller.
    """
    for name in files:
        if fault := fault_of_name(name):
            raise UsageError(f"{_shown(name)} cannot be put into an archive: its name {fault}")
    whole = sum(file.stat().st_size + 2 * len(name) + 100 for name, file in files.items())
    if whole > LARGEST:
        raise UsageError(f"an archive has at most {LARGEST:,} bytes, and this would have {whole:,}; copy the folder")
    with path.open("xb") as archive:
        entries = [_write_file(archive, name, files[name]) for name in sorted(files)]
        start = archive.tell()
        archive.writelines(entries)
        size = archive.tell() - start
        archive.write(_END.pack(_END_MARK, 0, 0, len(entries), len(entries), size, start, 0))


def _write_file(archive: BinaryIO, name: str, file: Path) -> bytes:
    """Write a file; its entry for the directory."""
    offset, checksum, size = archive.tell(), 0, 0
    written = name.encode("ascii")
    archive.write(bytes(_LOCAL.size) + written)
    with file.open("rb") as source:
        while chunk := source.read(CHUNK):
            checksum, size = zlib.crc32(chunk, checksum), size + len(chunk)
            archive.write(chunk)
    end = archive.tell()
    common = (0, _STORED, 0, _DATE, checksum, size, size, len(written), 0)
    archive.seek(offset)
    archive.write(_LOCAL.pack(_LOCAL_MARK, _VERSION, *common))
    archive.seek(end)
    return _ENTRY.pack(_ENTRY_MARK, _UNIX | _VERSION, _VERSION, *common, 0, 0, 0, _MODE, offset) + written


# --- reading ---------------------------------------------------------------------------------------------------------


def extract_archive(path: Path, folder: Path, *, limits: Limits | None = None) -> list[str]:
    """Write the files of an archive into a folder that is made for them; their names.

    What does not keep the rules is refused before anything is written, what turns out to be damaged while it comes
    out. The folder is then to be thrown away: let its name be a temporary one.
    """
    limits = limits or Limits()
    with path.open("rb") as archive:
        try:
            members = read_directory(archive, limits)
            _require_room(path, folder.parent, sum(member.size for member in members))
            folder.mkdir(mode=0o777)
            for member, start in zip(members, _starts(archive, members), strict=True):
                if not member.is_folder:
                    _extract(archive, member, start=start, folder=folder)
        except _RefusedError as refusal:
            raise ModelError(
                f"{path} is not unpacked: {refusal}; fetch it again, or have it made again with seqloom pack"
            ) from refusal
    return [member.name for member in members if not member.is_folder]


class _RefusedError(Exception):
    """Why an archive is not unpacked."""


def _refuse(member: Member | str, why: str) -> _RefusedError:
    return _RefusedError(f"its file {_shown(member if isinstance(member, str) else member.name)} {why}")


def _shown(name: str) -> str:
    return f"'{visible(name[:60])}{'…' if len(name) > 60 else ''}'"


def read_directory(archive: BinaryIO, limits: Limits) -> list[Member]:
    """The files of an archive in the order of their bytes, after all that can be known without reading these."""
    size = archive.seek(0, 2)
    archive.seek(max(0, size - _END.size))
    tail = archive.read(_END.size)
    if len(tail) < _END.size or not tail.startswith(_END_MARK):
        raise _RefusedError("it does not end as a zip archive does: it is cut short, no archive, or something follows")
    _, disk, first, here, count, length, start, comment = _END.unpack(tail)
    if 0xFFFF in (here, count) or 0xFFFFFFFF in (length, start):
        raise _RefusedError(f"it is larger than {LARGEST:,} bytes, or says so")
    if disk or first or here != count or comment or start + length + _END.size != size:
        raise _RefusedError("its end record does not fit it: it is damaged, or something was put before or after it")
    if count > limits.members or length > limits.members * 1024:
        raise _RefusedError(f"it holds {count:,} files, and {limits.members:,} are the most")
    archive.seek(start)
    members = sorted(_entries(archive.read(length), count), key=lambda member: member.offset)
    _check_names(members)
    for member in members:
        _check_size(member, limits)
    if (whole := sum(member.size for member in members)) > limits.bytes:
        raise _RefusedError(f"its files have {whole:,} bytes, and {limits.bytes:,} are the most")
    _check_layout(archive, members, end=start)
    return members


def _entries(directory: bytes, count: int) -> Iterator[Member]:
    position = 0
    for _ in range(count):
        if not directory.startswith(_ENTRY_MARK, position) or len(directory) < position + _ENTRY.size:
            raise _RefusedError("its directory is damaged")
        fields = _ENTRY.unpack_from(directory, position)
        flags, method, checksum, packed, size = fields[3], fields[4], *fields[7:10]
        name_length, extra, comment, disk, _, attributes, offset = fields[10:17]
        begin = position + _ENTRY.size
        name = _name(directory[begin : begin + name_length])
        position = begin + name_length + extra + comment
        if position > len(directory) or disk:
            raise _RefusedError("its directory is damaged")
        _check_kind(name, flags=flags, method=method, attributes=attributes)
        yield Member(name, flags, method, checksum, packed, size, offset)
    if position != len(directory):
        raise _RefusedError("its directory holds more than its end record says")


def _name(written: bytes) -> str:
    """A character for each byte, whatever the encoding: nothing but ASCII is taken."""
    return written.decode("latin-1")


def _check_kind(name: str, *, flags: int, method: int, attributes: int) -> None:
    kind = stat.S_IFMT(attributes >> 16)
    wanted = stat.S_IFDIR if name.endswith("/") else stat.S_IFREG
    is_windows_folder = bool(attributes & _WINDOWS_FOLDER) and not name.endswith("/")
    if kind not in (0, wanted) or attributes & _WINDOWS_LINK or is_windows_folder:
        raise _refuse(name, "is no regular file but a link, a device or the like")
    if flags & 1:
        raise _refuse(name, "is encrypted")
    if flags & ~_HARMLESS_FLAGS:
        raise _refuse(name, f"has the flags {flags:#06x}, which are not known here")
    if method not in (_STORED, _DEFLATED):
        raise _refuse(name, f"is compressed by method {method}; only stored and deflated ones are read")


def _check_names(members: Sequence[Member]) -> None:
    for member in members:
        if fault := fault_of_name(member.name.removesuffix("/")):
            raise _refuse(member, f"cannot be placed: its name {fault}")
    if both := clash(member.name for member in members if not member.is_folder):
        raise _refuse(both[0], f"and its file {_shown(both[1])} would be at the same place on some systems")


def _check_size(member: Member, limits: Limits) -> None:
    if 0xFFFFFFFF in (member.packed, member.size, member.offset):
        raise _refuse(member, f"is larger than {LARGEST:,} bytes, or says so")
    if member.is_folder and member.size:
        raise _refuse(member, "is a folder, and has bytes of its own")
    if member.method == _STORED and member.packed != member.size:
        raise _refuse(member, f"is stored in {member.packed:,} bytes, but {member.size:,} should come out")
    if member.size > limits.free + limits.ratio * member.packed:
        raise _refuse(
            member,
            f"would grow from {member.packed:,} bytes to {member.size:,}; more than {limits.ratio} to 1 is refused",
        )


def _check_layout(archive: BinaryIO, members: Sequence[Member], *, end: int) -> None:
    """The local headers say what the directory says, and the files follow one another without a gap."""
    starts = _starts(archive, members)
    reached, may_gap = 0, False
    for member, start in zip(members, starts, strict=True):
        if not 0 <= member.offset - reached <= (_FOLLOWING if may_gap else 0):
            raise _refuse(member, "overlaps another one, or bytes that belong to no file come before it")
        reached, may_gap = start + member.packed, bool(member.flags & _SIZES_FOLLOW)
    if not 0 <= end - reached <= (_FOLLOWING if may_gap else 0):
        raise _RefusedError("its files and its directory overlap, or bytes that belong to no file come between")


def _starts(archive: BinaryIO, members: Sequence[Member]) -> list[int]:
    """Where the bytes of each file begin, after its local header was compared with the directory."""
    starts = []
    for member in members:
        archive.seek(member.offset)
        header = archive.read(_LOCAL.size)
        if len(header) < _LOCAL.size or not header.startswith(_LOCAL_MARK):
            raise _refuse(member, "does not begin where the directory says")
        _, _, flags, method, _, _, *figures, name_length, extra = _LOCAL.unpack(header)
        told = [member.checksum, member.packed, member.size]
        is_open = flags & _SIZES_FOLLOW and figures == [0, 0, 0]
        same = (flags, method) == (member.flags, member.method) and (is_open or figures == told)
        if not same or _name(archive.read(name_length)) != member.name:
            raise _refuse(member, "is told of otherwise in the directory than where it stands")
        starts.append(member.offset + _LOCAL.size + name_length + extra)
    return starts


def _require_room(archive: Path, folder: Path, need: int) -> None:
    free = shutil.disk_usage(folder).free
    if need > free:
        raise SeqloomError(
            f"{archive} needs {need:,} bytes, and {free:,} are free in {folder}; make room and try again"
        )


def _extract(archive: BinaryIO, member: Member, *, start: int, folder: Path) -> None:
    place = folder / member.name
    place.parent.mkdir(parents=True, exist_ok=True)
    archive.seek(start)
    size = checksum = 0
    with place.open("xb") as file:
        try:
            for piece in _pieces(archive, member):
                size, checksum = size + len(piece), zlib.crc32(piece, checksum)
                if size > member.size:
                    raise _refuse(member, f"has more than the {member.size:,} bytes that the directory tells of")
                file.write(piece)
        except zlib.error as error:
            raise _refuse(member, "is damaged: its compressed bytes make no sense") from error
    if size != member.size or checksum != member.checksum:
        raise _refuse(member, "is damaged: its length or its checksum is not that of the directory")


def _pieces(archive: BinaryIO, member: Member) -> Iterator[bytes]:
    """What comes out, in pieces of bounded size."""
    left = member.packed
    inflate = zlib.decompressobj(-zlib.MAX_WBITS) if member.method == _DEFLATED else None
    while left and (chunk := archive.read(min(CHUNK, left))):
        left -= len(chunk)
        if inflate is None:
            yield chunk
            continue
        while not inflate.eof and (piece := inflate.decompress(chunk, CHUNK)):
            yield piece
            chunk = inflate.unconsumed_tail
        if inflate.eof and left:
            break  # more bytes would only be gathered, each time into a new copy of them all
    if left or (inflate is not None and (not inflate.eof or inflate.unused_data)):
        raise _refuse(member, "is damaged: its compressed bytes end too early or too late")
