"""Events: what a run reports. The library emits them, the caller decides where they go."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass
from pathlib import Path
from typing import Any

Value = str | int | float | bool | None | Sequence[Any] | Mapping[str, Any]


@dataclass(frozen=True)
class Event:
    """Something that happened: a kind ("step", "validation", "saved", "notice" …) and its plain values."""

    kind: str
    values: Mapping[str, Value] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.values[name]


Listener = Callable[[Event], None]


def ignore(event: Event) -> None:
    """The listener that does nothing."""


def join_listeners(*listeners: Listener) -> Listener:
    """One listener that passes each event on to several, in order."""

    def emit(event: Event) -> None:
        for listener in listeners:
            listener(event)

    return emit


def notice(listener: Listener, message: str, **values: Value) -> None:
    """Emit a sentence that the user should read once."""
    listener(Event("notice", {"message": message, **values}))


def phase(listener: Listener, what: str) -> None:
    """Emit what begins now."""
    listener(Event("phase", {"what": what}))


def progress(listener: Listener, what: str, done: int, total: int | None) -> None:
    """Emit how much of an activity is done; `total` is None if its end is not known."""
    listener(Event("progress", {"what": what, "done": done, "all": total}))


def progress_counter(listener: Listener, what: str, total: int | None) -> Callable[[int], None]:
    """A function that takes how much more was done, and emits how much that is in all."""
    done = 0

    def count(more: int) -> None:
        nonlocal done
        done += more
        progress(listener, what, done, total)

    return count


def to_json(event: Event) -> str:
    """One line of `events.jsonl`."""
    return json_line({"event": event.kind, **event.values})


def json_line(value: Any) -> str:
    """A record as one line of JSON. Numbers that JSON cannot represent (NaN, infinity) become null."""
    return json.dumps(_plain(value), ensure_ascii=False)


def read_events(path: Path) -> list[Event]:
    """The events of a run so far; lines cut short by a crash are left out."""
    events = []
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict) and "event" in record:
            events.append(Event(str(record.pop("event")), record))
    return events


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value
