"""Archives that are used as if they were folders: unpacked once, for as long as the program runs."""

from pathlib import Path
from tempfile import TemporaryDirectory

from seqloom.core.archives import extract_archive

_KEPT: dict[tuple[Path, int, int, int], "TemporaryDirectory[str]"] = {}
"""By what tells whether an archive is still the same, the folders of this program, which go when it ends."""


def unpacked(archive: Path) -> Path:
    """A folder with the files of an archive, for this program alone. The same archive gives the same folder."""
    found = archive.stat()
    key = (archive.resolve(), found.st_ino, found.st_size, found.st_mtime_ns)
    if key not in _KEPT:
        home = TemporaryDirectory(prefix="seqloom-")
        extract_archive(archive, Path(home.name) / archive.stem)
        _KEPT[key] = home
    return Path(_KEPT[key].name) / archive.stem
