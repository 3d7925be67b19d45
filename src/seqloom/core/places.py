"""Files and folders that appear under their names when they are whole, where nothing was before."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from seqloom.core.errors import UsageError
from seqloom.core.files import fsync, fsync_directory, require_folders_above, unwritten
from seqloom.core.partial import partial_name


def require_new(path: Path, *, named_by: str | None = "--out") -> None:
    """Refuse a place where something is already; `named_by` is the option that names it, if one does."""
    if path.exists() or path.is_symlink():
        option = f" with {named_by}" if named_by else ""
        raise UsageError(f"{path} is there already; remove it, or name another place{option}")
    require_folders_above(path)


def require_run(run: Path) -> None:
    """Refuse a run directory that is not there."""
    if not run.is_dir():
        raise UsageError(f"{run}: there is no such run directory", file=run)


@contextlib.contextmanager
def new_place(path: Path, *, named_by: str | None = "--out", need: int | None = None) -> Iterator[Path]:
    """Another name for a path at which nothing may be yet; what is written there gets its own name at the end.

    Whoever is killed in between leaves a hidden name with "partial" in it, and nothing that could be taken for the
    result. `need` is its size in bytes, if that is known.
    """
    require_new(path, named_by=named_by)
    partial = partial_name(path)
    written = 0
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield partial
            for file in [partial, *partial.rglob("*")]:
                fsync(file)
            partial.rename(path)
        finally:
            written = sum(file.stat().st_size for file in [partial, *partial.rglob("*")] if file.is_file())
            shutil.rmtree(partial, ignore_errors=True)
            partial.unlink(missing_ok=True)
        fsync_directory(path.parent)
    except OSError as error:
        raise unwritten(path, error, need=need or written or None, is_least=need is None) from error
