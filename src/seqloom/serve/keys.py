"""API keys: who may call a server, and how often.

A key file has a line of JSON per key: its name and its SHA-256. The key itself, 256 random bits, is shown once when it
is made and cannot be found again from the file.
"""

import hashlib
import hmac
import json
import re
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from seqloom.core.errors import DataError, Problem, UsageError
from seqloom.core.files import require_file, write_atomically
from seqloom.serve.refusal import Refusal

MAX_KEY_FILE_BYTES = 1 << 24
MAX_KEY_LENGTH = 512
_NAME = re.compile(r"[^\s\x00-\x1f\x7f](?:[^\x00-\x1f\x7f]{0,62}[^\s\x00-\x1f\x7f])?")
_HASH = re.compile(r"[0-9a-f]{64}")
_PREFIX = "sl-"
MINUTE = 60.0


def hash_of(key: str) -> str:
    """What a key file keeps of a key."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True)
class Keys:
    """The keys of a server; None at all means that it needs none."""

    hashes: Mapping[str, str] = field(default_factory=dict)
    """Hash of each key by its name."""
    is_required: bool = False

    def name_of(self, key: str | None) -> str | None:
        """The name of a key; None if it is unknown. All hashes are compared, each in constant time."""
        if key is None or len(key) > MAX_KEY_LENGTH:
            return None
        given, found = hash_of(key), None
        for name, known in self.hashes.items():
            if hmac.compare_digest(given, known):
                found = name
        return found


def read_keys(path: Path) -> Keys:
    """Read a key file. One that cannot be read or has no keys is refused: a server would be open or useless."""
    require_file(path)
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_KEY_FILE_BYTES + 1)
    except OSError as error:
        raise UsageError(f"the key file {path} cannot be read: {error.strerror}", file=path) from error
    if len(data) > MAX_KEY_FILE_BYTES:
        raise UsageError(
            f"the key file {path} has more than {MAX_KEY_FILE_BYTES:,} bytes; is it a key file?", file=path
        )
    hashes: dict[str, str] = {}
    for number, line in enumerate(data.decode("utf-8", "replace").split("\n"), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            name, value = record["name"], record["sha256"]
            is_good = isinstance(name, str) and isinstance(value, str) and bool(_HASH.fullmatch(value))
        except (ValueError, KeyError, TypeError, RecursionError):
            is_good = False
        if not is_good:
            message = 'expected {"name": …, "sha256": …}; write key files with: seqloom keys add NAME --file FILE'
            raise UsageError(str(Problem(message, str(path), number)), file=path)
        if name in hashes:
            raise UsageError(str(Problem(f"the name {name!r} occurs twice; remove one", str(path), number)), file=path)
        hashes[name] = value
    if not hashes:
        raise UsageError(f"the key file {path} has no keys; add one: seqloom keys add NAME --file {path}", file=path)
    return Keys(hashes, is_required=True)


def add_key(path: Path, name: str) -> str:
    """Make a key and add its hash to a key file, which is created if needed, readable by its owner only."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} cannot be the name of a key; use 1 to 64 characters without line breaks")
    known = dict(read_keys(path).hashes) if path.exists() and path.stat().st_size else {}
    if name in known:
        raise UsageError(f"{path} has a key named {name!r} already; choose another name, or remove that line")
    key = _PREFIX + secrets.token_urlsafe(32)
    known[name] = hash_of(key)
    lines = [json.dumps({"name": each, "sha256": value}, ensure_ascii=False) + "\n" for each, value in known.items()]
    try:
        write_atomically(path, "".join(lines))
        path.chmod(0o600)
    except OSError as error:
        raise DataError(f"the key file {path} cannot be written: {error.strerror}") from error
    return key


class Rates:
    """How many requests each caller may make: a bucket of a minute's requests, refilled all the time."""

    MAX_CALLERS = 10_000
    """Callers that are remembered; beyond it, those with full buckets are forgotten."""

    def __init__(self, per_minute: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        """0 is no limit."""
        self._per_minute, self._clock = per_minute, clock
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, caller: str) -> None:
        """Count a request, or refuse it with 429."""
        if not self._per_minute:
            return
        now = self._clock()
        left, since = self._left.get(caller, (float(self._per_minute), now))
        left = min(float(self._per_minute), left + (now - since) * self._per_minute / MINUTE)
        if left < 1:
            wait = max(1, round((1 - left) * MINUTE / self._per_minute))
            message = f"Slowdown: more than {self._per_minute} requests per minute; retry in {wait} s"
            raise Refusal(429, message, wait)
        if len(self._left) >= self.MAX_CALLERS and caller not in self._left:
            self._left = {
                each: value
                for each, value in self._left.items()
                if value[0] + (now - value[1]) * self._per_minute / MINUTE < self._per_minute
            }
        self._left[caller] = (left - 1, now)
