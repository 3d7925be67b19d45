"""Names and rights of what is not yet whole: written beside its place, under a name that tells so."""

import contextlib
import io
import os
import secrets
import shutil
import stat
from pathlib import Path

_KEPT = 100
"""Bytes of a name that are kept. File systems take 255, or 143 where they encrypt names, and a mark is added."""


def partial_name(path: Path, *, mark: str = "partial", is_hidden: bool = True) -> Path:
    """Another name beside a path, for what is to get that one: `.NAME.partial-1a2b3c4d`, where a long NAME is cut."""
    kept = path.name
    if len(os.fsencode(kept)) > _KEPT:  # at a border of characters: some systems take no name that is not UTF-8
        kept = os.fsencode(kept)[:_KEPT].decode("utf-8", "ignore")
    return path.with_name(f"{'.' if is_hidden else ''}{kept}.{mark}-{secrets.token_hex(4)}")


def create(partial: Path, *, place: Path) -> io.FileIO:
    """A new file that is to be put in a place. What stands there lends it its permissions and, if allowed, its owner.

    Nobody else may open it before they are set: what is written into it may be meant for few.
    """
    is_old = place.is_file()
    file = io.FileIO(partial, "xb", opener=lambda name, flags: os.open(name, flags, 0o600 if is_old else 0o666))
    if is_old:
        try:
            _lend_rights(place, partial)
        except BaseException:
            file.close()
            raise
    return file


def _lend_rights(old: Path, new: Path) -> None:
    has_same_group = _lend_owner(old, new)
    with contextlib.suppress(PermissionError):  # of a file system that knows no rights
        shutil.copystat(old, new)  # with access lists, where there are some
    if not has_same_group:
        mode = stat.S_IMODE(new.stat().st_mode)
        new.chmod(mode & ~stat.S_IRWXG | (mode & stat.S_IRWXO) << 3)  # one group's rights are not another's


def _lend_owner(old: Path, new: Path) -> bool:
    """Whether the group is the same in the end. Only root may give a file away, and others only to groups of theirs."""
    if not hasattr(os, "chown"):  # Windows
        return True
    wanted = old.stat()
    for user in (wanted.st_uid, -1):
        try:
            os.chown(new, user, wanted.st_gid)
        except OSError:
            continue
        return True
    return new.stat().st_gid == wanted.st_gid
