"""What is used as if it were a folder, such as an archive: made into one, for as long as the program runs."""

import os
import shutil
import sys
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

from seqloom.core.archives import extract_archive

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
