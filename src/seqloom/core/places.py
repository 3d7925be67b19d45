"""Files and folders that appear under their names when they are whole, where nothing was before."""

import contextlib
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from seqloom.core.errors import SeqloomError, UsageError, is_of_user
from seqloom.core.files import fsync, fsync_directory, require_folders_above


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
def new_place(path: Path, *, named_by: str | None = "--out") -> Iterator[Path]:
    """Another name for a path at which nothing may be yet; what is written there gets its own name at the end.

    Whoever is killed in between leaves a hidden name with "partial" in it, and nothing that could be taken for the
    result.
    """
    require_new(path, named_by=named_by)
    partial = path.with_name(f".{path.name}.partial-{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield partial
            for file in [partial, *partial.rglob("*")]:
                fsync(file)
            partial.rename(path)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
            partial.unlink(missing_ok=True)
        fsync_directory(path.parent)
    except OSError as error:
        kind = UsageError if is_of_user(error) else SeqloomError
        raise kind(f"cannot write {path}: {error.strerror or error}") from error
