"""The journal of a run: `events.jsonl`, a line per event, for curves and for whoever watches."""

from pathlib import Path

from seqloom.core.events import Event, to_json

UNKEPT = frozenset({"progress"})
"""Kinds of event that only move a bar on the screen."""


class Journal:
    """A listener that appends events to a file. A disk that refuses costs lines of the journal, never the run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_broken = False

    def __call__(self, event: Event) -> None:
        if event.kind in UNKEPT or self.is_broken:
            return
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(to_json(event) + "\n")
        except OSError:
            self.is_broken = True
