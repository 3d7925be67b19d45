"""What is used as if it were a folder, such as an archive: made into one, for as long as the program runs."""

from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from seqloom.core.archives import extract_archive

_KEPT: dict[Hashable, tuple[Path, Path, "TemporaryDirectory[str]"]] = {}
"""By what tells whether the origin is still the same: its name, its folder, and what removes that at the end."""


def temporary_folder(origin: Path, *, version: Hashable, make: Callable[[Path], None]) -> Path:
    """A folder that `make` fills from `origin`, for this program alone. The same version gives the same folder."""
    key = (origin.resolve(), version)
    if key not in _KEPT:
        home = TemporaryDirectory(prefix="seqloom-")
        folder = Path(home.name) / (origin.stem.strip(".") or "model")
        try:
            make(folder)
        except BaseException:
            home.cleanup()
            raise
        _KEPT[key] = origin, folder, home
    return _KEPT[key][1]


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
