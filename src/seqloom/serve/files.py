"""Files that a server keeps in memory for a while: translated documents, under names that cannot be guessed."""

import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from seqloom.serve.refusal import Refusal

MAX_NAME_LENGTH = 100
_UNSAFE = re.compile(r"[^\w.-]+")


@dataclass(frozen=True)
class StoredFile:
    """A file as it is downloaded."""

    data: bytes
    name: str
    media_type: str
    owner: str
    """Who may download it."""
    expires: float


class FileStore:
    """Files by their names. Each is for the caller that made it, until its time is over."""

    def __init__(self, *, most_bytes: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._most_bytes, self._seconds, self._clock = most_bytes, seconds, clock
        self._files: dict[str, StoredFile] = {}

    def put(self, data: bytes, *, name: str, media_type: str, owner: str) -> str:
        """Keep a file and return the name to get it by: random, and the original name for people."""
        self._expire()
        if sum(len(each.data) for each in self._files.values()) + len(data) > self._most_bytes:
            wait = min(each.expires for each in self._files.values()) - self._clock() if self._files else 1
            raise Refusal(503, "the server keeps too many translated files; retry later", max(1, round(wait)))
        name = safe_name(name)
        identity = f"{secrets.token_urlsafe(32)}.{name}"
        self._files[identity] = StoredFile(data, name, media_type, owner, self._clock() + self._seconds)
        return identity

    def get(self, identity: str, *, owner: str) -> StoredFile | None:
        """A file; None if there is none of this name for this caller."""
        self._expire()
        found = self._files.get(identity)
        return found if found is not None and found.owner == owner else None

    def remove(self, identity: str) -> None:
        """Forget a file."""
        self._files.pop(identity, None)

    def _expire(self) -> None:
        now = self._clock()
        self._files = {identity: each for identity, each in self._files.items() if each.expires > now}


def safe_name(name: str) -> str:
    """A file name of letters, digits, dots, dashes and underscores, without folders."""
    last = re.split(r"[\\/]", name)[-1]
    cleaned = _UNSAFE.sub("_", last).strip("._")
    return cleaned[-MAX_NAME_LENGTH:].strip("._") or "file"
