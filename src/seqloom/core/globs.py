"""Names of files that stand for several: `memories/*.tmx`."""

import glob
from pathlib import Path

from seqloom.core.errors import UsageError


def matching_files(path: Path) -> list[Path]:
    """The files that a name with *, ? or [ ] stands for, by their names; a file that is called so is itself."""
    if not glob.has_magic(str(path)) or path.exists():
        return [path]
    files = sorted(each for each in Path(path.anchor).glob(str(path.relative_to(path.anchor))) if not each.is_dir())
    if not files:
        raise UsageError(f"{path}: no file has such a name", file=path)
    return files
