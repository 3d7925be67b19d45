"""Zip archives: written to the same bytes every time, and extracted only when nothing about them is suspicious.

`zipfile` does the reading and writing. What it would accept and an attacker could use is refused first: names that
leave the folder or clash, links and devices, encryption, data before or after the archive, files that overlap, too many
files, and sizes or compression ratios beyond the limits.
"""

import atexit
import os
import re
import shutil
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

from seqloom.core.errors import DataError, ModelError, SeqloomError, UsageError
from seqloom.core.terminal import visible

# Names inside an archive: plain ones that mean the same file on every system.

MAX_NAME_LENGTH = 200
"""Characters of a whole name."""

_PART = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._+-]{0,98}[A-Za-z0-9_+-])?", re.ASCII)
"""A folder or a file: no dot at either end, so neither `..`, a hidden file nor a name that Windows would shorten."""

_DEVICES = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9]|conin\$|conout\$)(?:\..*)?", re.IGNORECASE | re.DOTALL)
"""Names that Windows reserves for devices, with any suffix."""

_MAX_DEPTH = 8
"""Levels of folders, the file included."""


def fault_of_name(name: str) -> str | None:
    """Why a name is not accepted in an archive, as the rest of a sentence; None for a good one."""
    parts = name.split("/")
    if "\\" in name:
        return "has a backslash, which separates folders on some systems"
    if name.startswith("/") or re.match(r"[A-Za-z]:", name):
        return "is an absolute path"
    if ".." in parts:
        return "leaves the folder"
    if len(name) > MAX_NAME_LENGTH or len(parts) > _MAX_DEPTH:
        return f"is longer than {MAX_NAME_LENGTH} characters or deeper than {_MAX_DEPTH} folders"
    if any(_DEVICES.fullmatch(part) for part in parts):
        return "is reserved for a device on Windows"
    if not all(_PART.fullmatch(part) for part in parts):
        return "has characters other than ASCII letters, digits, dots, dashes and underscores"
    return None


# --- temporary folders -----------------------------------------------------------------------------------------------

_PREFIX, _LOCK = "seqloom-", ".lock"

_KEPT: dict[Hashable, tuple[Path, Path]] = {}
"""By path and version of the origin: its name, and the folder made from it."""


def temporary_folder(origin: Path, *, version: Hashable, make: Callable[[Path], None]) -> Path:
    """A folder that `make` fills from `origin`, removed when this process ends. The same version gives the same one.

    A lock distinguishes folders in use from those of a killed process, which the next process removes.
    """
    from filelock import FileLock  # here, because it imports asyncio

    key = (origin.resolve(), version)
    if key in _KEPT:
        return _KEPT[key][1]
    for left in Path(gettempdir()).glob(f"{_PREFIX}*") if not _KEPT else ():
        with suppress(OSError):  # of another user's folder, or Timeout where the lock is held
            is_own = not hasattr(os, "getuid") or left.lstat().st_uid == os.getuid()
            if is_own and not left.is_symlink() and (left / _LOCK).is_file():
                with FileLock(left / _LOCK, timeout=0):
                    shutil.rmtree(left, ignore_errors=True)
    home = TemporaryDirectory(prefix=_PREFIX)
    folder, lock = Path(home.name) / (origin.stem.strip(".") or "model"), Path(home.name) / _LOCK
    held = FileLock(f"{lock}.new", timeout=0)
    try:
        with suppress(OSError):  # of a file system without locks: its leftovers stay
            held.acquire()
            Path(f"{lock}.new").rename(lock)  # so that no other process sees a lock that is not held yet
        make(folder)
    except BaseException:
        home.cleanup()
        held.release()
        raise
    # Last registered, first called: the folder goes while it is locked.
    atexit.register(held.release)
    atexit.register(home.cleanup)
    _KEPT[key] = origin, folder
    return folder


def unpacked(archive: Path, *, check: Callable[[Path, Path, Sequence[str]], None]) -> Path:
    """A temporary folder with the files of an archive.

    `check` gets the archive, the folder and the names of the files, and raises if they are not what they should be.
    """
    found = archive.stat()
    return temporary_folder(
        archive,
        version=(found.st_ino, found.st_size, found.st_mtime_ns),
        make=lambda folder: check(archive, folder, extract_archive(archive, folder)),
    )


def by_origin(message: str) -> str:
    """A message that names archives and runs in place of the temporary folders made from them."""
    for origin, folder in _KEPT.values():
        message = message.replace(str(folder), str(origin))
    return message


# --- archives --------------------------------------------------------------------------------------------------------

CHUNK = 1 << 20
MAX_BYTES = (1 << 32) - 2
"""Bytes of an archive and of all files in it: larger ones need zip64, which is not supported."""

_END = struct.Struct("<4s4H2IH")
"""The end record: signature, two disk numbers, entries here and in all, size and start of the directory, comment."""
_LOCAL_HEADER = 30
_WINDOWS_FOLDER, _WINDOWS_LINK = 0x10, 0x400


@dataclass(frozen=True)
class Limits:
    """How much an archive may hold."""

    members: int = 1000
    """Files and folders."""
    bytes: int = MAX_BYTES
    """Of all files together."""
    ratio: int = 100
    """Bytes out for each byte in, of one file; text has a ratio of 3 to 20."""
    free: int = 1 << 20
    """Bytes of a file to which the ratio is not applied."""


def is_archive(path: Path) -> bool:
    """Whether a path names an archive: by its name alone, nothing is opened."""
    return path.suffix.lower() == ".zip" and path.is_file()


def write_archive(path: Path, files: Mapping[str, Path]) -> None:
    """Write files under these names. The same content gives the same bytes: sorted, without times, not compressed.

    How well a library compresses changes with its version, and weights hardly get smaller.
    """
    for name in files:
        if fault := fault_of_name(name):
            raise UsageError(f"{_shown(name)} cannot be put into an archive: its name {fault}")
    whole = sum(file.stat().st_size + 2 * len(name) + 100 for name, file in files.items())
    if whole > MAX_BYTES:
        raise UsageError(f"an archive has at most {MAX_BYTES:,} bytes, and this would have {whole:,}; copy the folder")
    with zipfile.ZipFile(path, "x") as archive:
        for name in sorted(files):
            info = zipfile.ZipInfo(name)  # its time is the first of January 1980
            info.create_system, info.external_attr = 3, (stat.S_IFREG | 0o644) << 16
            info.file_size = files[name].stat().st_size
            with files[name].open("rb") as source, archive.open(info, "w") as target:
                shutil.copyfileobj(source, target, CHUNK)


class _RefusedError(Exception):
    """Why an archive is not extracted."""


def extract_archive(path: Path, folder: Path, *, limits: Limits | None = None) -> list[str]:
    """Write the files of an archive into a folder that is made for them; their names.

    Names, kinds and sizes are checked before anything is written, checksums while it is. After an error the folder is
    to be deleted: give it a temporary name.
    """
    limits = limits or Limits()
    try:
        size = path.stat().st_size
        with path.open("rb") as end:
            end.seek(max(0, size - _END.size))
            tail = end.read(_END.size)
        if len(tail) < _END.size or not tail.startswith(b"PK\x05\x06"):
            raise _RefusedError(
                "it does not end like a zip archive: it is truncated, not an archive, or has data after it"
            )
        _, disk, first_disk, here, count, length, start, comment = _END.unpack(tail)
        if count > limits.members or length > limits.members * 1024:
            raise _RefusedError(f"it has {count:,} files; at most {limits.members:,} are allowed")
        if disk or first_disk or here != count or comment or start + length + _END.size != size:
            raise _RefusedError("its end record does not match its size: it is damaged, or has data before or after it")
        with zipfile.ZipFile(path) as archive:
            members = sorted(archive.infolist(), key=lambda member: member.header_offset)
            if len(members) != count:
                raise _RefusedError(f"its directory has {len(members):,} files, and its end record says {count:,}")
            _check_members(members, limits, end=archive.start_dir)
            need, free = sum(member.file_size for member in members), shutil.disk_usage(folder.parent).free
            if need > free:
                raise SeqloomError(
                    f"{path} needs {need:,} bytes, and {free:,} are free in {folder.parent}; make room and try again"
                )
            folder.mkdir()
            files = [member for member in members if not member.orig_filename.endswith("/")]
            for member in files:
                place = folder / member.orig_filename
                place.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(member) as source, place.open("xb") as file:
                    shutil.copyfileobj(source, file, CHUNK)  # at most `file_size` bytes, with their checksum
                if place.stat().st_size != member.file_size:
                    raise _RefusedError(f"{_shown(member.orig_filename)} is shorter than the directory says")
    except (_RefusedError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError) as error:
        reason = visible(str(error))[:200] or "a file ends too early"
        raise ModelError(
            f"{path} was not unpacked: {reason}; download it again, or have it packed again with seqloom pack"
        ) from error
    return [member.orig_filename for member in files]


def read_archive(data: bytes, name: str, *, limits: Limits) -> list[tuple[zipfile.ZipInfo, bytes]]:
    """The files of an archive that is held in memory, in their order; `name` is for messages.

    Kinds and sizes are checked before anything is decompressed. Names may be any, as nothing is written.
    """
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            members = archive.infolist()
            if len(members) > limits.members:
                raise _RefusedError(f"it has {len(members):,} files; at most {limits.members:,} are allowed")
            _check_contents(sorted(members, key=lambda member: member.header_offset), limits, end=archive.start_dir)
            if len({member.filename for member in members}) < len(members):
                raise _RefusedError("two files in it have the same name")
            return [(member, archive.read(member)) for member in members]
    except (_RefusedError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError, OSError) as error:
        reason = visible(str(error))[:200] or "a file ends too early"
        raise DataError(f"{name} cannot be read: {reason}") from error


def _check_members(members: Sequence[zipfile.ZipInfo], limits: Limits, *, end: int) -> None:
    for member in members:
        if fault := fault_of_name(member.orig_filename.removesuffix("/")):
            raise _RefusedError(f"the name {_shown(member.orig_filename)} {fault}")
    _check_contents(members, limits, end=end)
    # Names are ASCII, so only the case of letters can make two of them one on some system.
    places: dict[str, str] = {}
    seen: set[str] = set()
    for name in (member.orig_filename for member in members if not member.orig_filename.endswith("/")):
        folders = [f"{folder}/" for folder in accumulate(name.split("/")[:-1], "{}/{}".format)]
        for place in (*folders, name):
            other = places.setdefault(place.casefold().removesuffix("/"), place)
            if other != place or (place == name and name in seen):
                raise _RefusedError(f"{_shown(other)} and {_shown(name)} are the same place on some systems")
        seen.add(name)


def _check_contents(members: Sequence[zipfile.ZipInfo], limits: Limits, *, end: int) -> None:
    """Refuse what is not a plain file, overlaps another, or is too large; members are in the order of their places."""
    reached = 0
    for member in members:
        name, mode, attributes = member.orig_filename, member.external_attr >> 16, member.external_attr
        is_folder = name.endswith("/")
        if (
            stat.S_IFMT(mode) not in (0, stat.S_IFDIR if is_folder else stat.S_IFREG)
            or attributes & _WINDOWS_LINK
            or (attributes & _WINDOWS_FOLDER and not is_folder)
        ):
            raise _RefusedError(f"{_shown(name)} is not a regular file but a link, a device or the like")
        if member.flag_bits & 1:
            raise _RefusedError(f"{_shown(name)} is encrypted")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise _RefusedError(f"{_shown(name)} is compressed by the unsupported method {member.compress_type}")
        if member.file_size > limits.free + limits.ratio * member.compress_size:
            raise _RefusedError(
                f"{_shown(name)} would grow from {member.compress_size:,} bytes to {member.file_size:,}; "
                f"at most {limits.ratio} to 1 is allowed"
            )
        if member.header_offset < reached or (reached == 0 and member.header_offset):
            raise _RefusedError(f"{_shown(name)} overlaps another file, or has data before it")
        reached = member.header_offset + _LOCAL_HEADER + len(name) + member.compress_size
    if reached > end:
        raise _RefusedError("its last file overlaps its directory")
    if (whole := sum(member.file_size for member in members)) > limits.bytes:
        raise _RefusedError(f"its files have {whole:,} bytes; at most {limits.bytes:,} are allowed")


def _shown(name: str) -> str:
    return ascii(name if len(name) <= 60 else f"{name[:60]}…")
