"""Archives that are used as if they were folders: unpacked once, for as long as the program runs."""

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from seqloom.core.archives import extract_archive

_KEPT: dict[tuple[Path, int, int, int], tuple[Path, Path, "TemporaryDirectory[str]"]] = {}
"""By what tells whether an archive is still the same: its name, its folder, and what removes that at the end."""


def unpacked(archive: Path, *, check: Callable[[Path, Path, Sequence[str]], None]) -> Path:
    """A folder with the files of an archive, for this program alone. The same archive gives the same folder.

    `check` is given the archive, the folder and the names of the files, and raises if they are not what they should be.
    """
    found = archive.stat()
    key = (archive.resolve(), found.st_ino, found.st_size, found.st_mtime_ns)
    if key not in _KEPT:
        home = TemporaryDirectory(prefix="seqloom-")
        folder = Path(home.name) / (archive.stem.strip(".") or "model")
        check(archive, folder, extract_archive(archive, folder))
        _KEPT[key] = archive, folder, home
    return _KEPT[key][1]


def by_archive(message: str) -> str:
    """A message with the names of archives where it has those of their folders, which tell nobody anything."""
    for archive, folder, _ in _KEPT.values():
        message = message.replace(str(folder), str(archive))
    return message
