"""What a process that died has left in a run folder: half-written and half-removed things, known by their names."""

import re
import shutil
from pathlib import Path

from seqloom.core.events import Listener, notice

_NAME = re.compile(r".+\.(partial|old|before)-[0-9a-f]{8}")
"""Names under which things are written before they get their own, or removed after they have lost it."""

_BEFORE = re.compile(r"(.+)\.before-[0-9a-f]{8}")
"""What had a name before something newer got it; where that never happened, it gets its name back."""


def remove_leftovers(run: Path, *, listener: Listener) -> None:
    """Remove what is unfinished, and tell of it in one notice. Call it only while holding the lock of the run."""
    _put_back(run, listener=listener)
    found = sorted(path for path in run.rglob("*") if _NAME.fullmatch(path.name))
    leftovers = [path for path in found if not any(above in found for above in path.parents)]
    problems = [sentence for path in leftovers if (sentence := _remove(path)) is not None]
    if leftovers:
        names = ", ".join(path.relative_to(run).as_posix() for path in leftovers)
        notice(listener, f"removed what an interrupted run had left unfinished: {names}")
    if problems:
        notice(listener, f"some of it is still there: {'; '.join(problems)}")


def _put_back(run: Path, *, listener: Listener) -> None:
    for path in sorted(run.rglob("*")):
        name = _BEFORE.fullmatch(path.name)
        if name is not None and not (place := path.with_name(name[1])).exists():
            path.replace(place)
            notice(listener, f"put back {place.relative_to(run).as_posix()}, which was being replaced")


def _remove(path: Path) -> str | None:
    """What stood in the way, if something did."""
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    except OSError as error:
        return f"{path}: {error.strerror or error}"
    return None
