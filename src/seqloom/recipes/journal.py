"""The journal of a run: `events.jsonl`, a line per event, for curves and for whoever watches."""

from os import SEEK_END
from pathlib import Path

from seqloom.core.events import Event, Listener, ignore, notice, to_json

UNKEPT = frozenset({"progress"})
"""Kinds of event that only move a bar on the screen."""


class Journal:
    """A listener that appends events to a file. A disk that refuses costs lines of the journal, never the run.

    `warn` is told once that the journal has ended.
    """

    def __init__(self, path: Path, *, warn: Listener = ignore) -> None:
        self.path = path
        self.is_broken = False
        self._warn = warn
        self._has_begun = False

    def __call__(self, event: Event) -> None:
        if event.kind in UNKEPT or self.is_broken:
            return
        try:
            with self.path.open("ab") as file:
                # A process that was killed may have left half a line, which must not swallow the next one.
                begins = b"" if self._has_begun or not _is_cut(self.path) else b"\n"
                file.write(begins + to_json(event).encode() + b"\n")
            self._has_begun = True
        except OSError as error:
            self.is_broken = True
            reason = error.strerror or str(error)
            notice(self._warn, f"the journal {self.path} cannot be written ({reason}); the run goes on without it")


def _is_cut(path: Path) -> bool:
    """Whether the last line of a file has no end."""
    with path.open("rb") as file:
        if file.seek(0, SEEK_END) == 0:
            return False
        file.seek(-1, SEEK_END)
        return file.read(1) != b"\n"
