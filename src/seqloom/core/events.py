"""Events: what a run reports. The library emits them, the caller decides where they go."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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


def to_json(event: Event) -> str:
    """One line of `events.jsonl`. Numbers that JSON cannot write (NaN, infinity) become null."""
    return json.dumps({"event": event.kind, **_plain(event.values)}, ensure_ascii=False)


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
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value
