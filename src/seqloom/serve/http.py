"""Requests as dialects see them: checked, bounded, parsed; and answers in JSON.

The framework accepts bodies of any size, holds half-sent requests open, and turns malformed JSON into a 500, so every
limit is checked here.
"""

import asyncio
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlsplit

from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request
from starlette.responses import Response

from seqloom.serve.keys import Keys, Rates
from seqloom.serve.metrics import Metrics
from seqloom.serve.refusal import Refusal, bad_request
from seqloom.serve.settings import ServeConfig

JSON = "application/json"
DISCARD_SECONDS = 2.0
"""How long the rest of a body that is too long is taken in, before the answer."""

DISCARDED_BYTES = 16 << 20
"""How much of it is taken in."""

MAX_FIELDS = 1_000
"""Fields of a form."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_DEPTH = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[{\]}]', re.DOTALL)


def json_response(
    value: Any, status: int = 200, *, headers: Mapping[str, str] | None = None, media_type: str = JSON
) -> Response:
    """An answer in JSON. Numbers that JSON cannot represent become null."""
    return Response(json_text(value).encode("utf-8", "replace"), status, headers=headers, media_type=media_type)


def json_text(value: Any) -> str:
    """A value in JSON. Numbers that JSON cannot represent become null."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        return json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":"))


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {name: _finite(part) for name, part in value.items()}
    return [_finite(part) for part in value] if isinstance(value, list | tuple) else value


def parse_json(data: bytes, *, depth: int) -> Any:
    """The value of a JSON text. What is malformed, too deep or not UTF-8 is a Refusal."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise bad_request(f"the body is not UTF-8: invalid byte at {error.start}") from error
    level = 0
    for match in _DEPTH.finditer(text):
        mark = match[0]
        level += (mark in "[{") - (mark in "]}")
        if level > depth:
            raise bad_request(f"the JSON of the body is nested deeper than {depth} levels")
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise bad_request(f"the body is not valid JSON: {str(error)[:100]}") from error
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number of JSON")


class Dialect(Protocol):
    """The conventions of one API."""

    @property
    def name(self) -> str:
        """For metrics and logs."""
        ...

    def refusal(self, refusal: Refusal) -> Response:
        """How this API writes an error."""
        ...


@dataclass
class ServerState:
    """What all requests of a server share."""

    settings: ServeConfig
    keys: Keys
    rates: Rates
    metrics: Metrics
    notify: Callable[..., None]
    """Writes a line to the log."""
    hidden: tuple[tuple[str, str], ...] = ()
    """Paths that no answer may contain, and what is written in their place."""
    is_draining: bool = False
    """Whether the server is about to end: accepted requests are answered, new ones are not accepted."""
    translated: Counter[str | None] = field(default_factory=Counter)
    """Characters that were translated for each key since the start; without keys, for all callers."""
    running: int = 0
    """Requests that were accepted and not yet answered."""

    @contextmanager
    def in_flight(self) -> Iterator[None]:
        """Count a request as accepted until it is answered."""
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1

    def without_paths(self, message: str) -> str:
        """A message without the paths of this machine."""
        for path, name in self.hidden:
            message = message.replace(path, name)
        return message


@dataclass
class Call:
    """One request."""

    request: Request
    state: ServerState
    dialect: Dialect
    deadline: float
    """When it must be answered, in the time of the event loop."""
    key: str | None = None
    """The name of the key it was made with."""
    texts: int = 0
    characters: int = 0
    body: bytes = b""
    _fields: dict[str, Any] | None = field(default=None)

    @property
    def caller(self) -> str:
        """Who makes it: a key, or an address."""
        return f"key {self.key}" if self.key is not None else f"address {self.address}"

    @property
    def address(self) -> str:
        """The address of the client; behind a trusted proxy, the one that it forwards."""
        peer = self.request.client.host if self.request.client else ""
        forwarded = self.request.headers.get("x-forwarded-for", "")
        if forwarded and peer in self.state.settings.proxies:
            return forwarded.rpartition(",")[2].strip()[:64]
        return peer

    @property
    def base_url(self) -> str:
        """The address under which the client called the server, without a slash at its end."""
        headers, scheme = self.request.headers, self.request.url.scheme
        host = headers.get("host", "localhost")
        if self.request.client and self.request.client.host in self.state.settings.proxies:
            scheme = "https" if headers.get("x-forwarded-proto", scheme).strip().lower() == "https" else "http"
            host = headers.get("x-forwarded-host", host)
        return f"{scheme}://{host}"

    def bearer(self, *schemes: str) -> str | None:
        """The key in the Authorization header, by these schemes (`Bearer` if none is given)."""
        scheme, _, value = self.request.headers.get("authorization", "").partition(" ")
        known = [each.lower() for each in schemes or ("Bearer",)]
        return value.strip() or None if scheme.lower() in known else None

    def authorise(self, key: Any, *, missing: int = 401, invalid: int = 403) -> None:
        """Check the key and count the request. Without a key file every caller may call, at a limited rate."""
        keys = self.state.keys
        if keys.is_required:
            if not key:
                raise Refusal(
                    missing, "an API key is required, in the Authorization header or the parameter of this API"
                )
            self.key = keys.name_of(key) if isinstance(key, str) else None  # a field may hold anything
            if self.key is None:
                raise Refusal(invalid, "the API key is not valid")
        self.state.rates.take(self.caller)

    # --- body and parameters ------------------------------------------------------------------------------------------

    async def read(self, most: int) -> None:
        """Read the body, at most so many bytes of it, within the time limit. The endpoint does this once.

        Of a body that is too long, the rest is taken in for a while: a client that still sends when the connection is
        closed sees a broken pipe, and never the answer.
        """
        limits, loop = self.state.settings, asyncio.get_running_loop()
        too_long = Refusal(413, f"the body of the request has more than {most:,} bytes")
        given = self.request.headers.get("content-length", "")
        is_too_long = given.isascii() and given.isdigit() and int(given[:20]) > most
        data, size = bytearray(), 0
        try:
            async with asyncio.timeout(DISCARD_SECONDS if is_too_long else limits.body_seconds) as timer:
                async for chunk in self.request.stream():
                    size += len(chunk)
                    if size > most + DISCARDED_BYTES:
                        raise too_long
                    if size > most and not is_too_long:
                        is_too_long = True
                        timer.reschedule(loop.time() + DISCARD_SECONDS)
                    if not is_too_long:
                        data += chunk
        except TimeoutError:
            if not is_too_long:
                message = f"the body of the request did not arrive within {limits.body_seconds:g} s"
                raise Refusal(408, message) from None
        if is_too_long:
            raise too_long
        self.body = bytes(data)

    def json(self) -> Any:
        """The body as JSON, whatever its content type says."""
        return parse_json(self.body, depth=self.state.settings.depth)

    async def fields(self) -> dict[str, Any]:
        """The parameters of the query and of the body, which may be JSON or a form; those of the body win.

        Text has no lone surrogates. A form field that occurs several times is a list.
        """
        if self._fields is None:
            found = self.query()
            kind = self.request.headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind == "multipart/form-data":
                found |= await self.form()
            else:
                body = self.body
                if kind == "application/x-www-form-urlencoded" and body.lstrip()[:1] != b"{":
                    found |= _pairs(body.decode("utf-8", "replace"))
                elif body.strip():
                    value = parse_json(body, depth=self.state.settings.depth)
                    if not isinstance(value, dict):
                        raise bad_request(f"the body must be a JSON object, not {_kind(value)}")
                    found |= value
            self._fields = found
            require_unicode(found)
        return self._fields

    def query(self) -> dict[str, Any]:
        """The parameters of the query."""
        return _pairs(self.request.scope["query_string"].decode("utf-8", "replace"))

    async def form(self) -> dict[str, Any]:
        """The fields of a multipart form; a file is an `UploadFile`."""
        body, sent = self.body, False

        async def receive() -> dict[str, Any]:
            nonlocal sent
            if sent:
                return {"type": "http.disconnect"}
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        again = Request(self.request.scope, receive)
        try:
            form: FormData = await again.form(max_files=10, max_fields=MAX_FIELDS, max_part_size=len(body) + 1)
        except Exception as error:  # the parser raises several classes of its own
            raise bad_request("the multipart form of the body is malformed") from error
        found: dict[str, Any] = {}
        for name, value in form.multi_items():
            found[name] = [*as_list(found[name]), value] if name in found else value
        require_unicode({name: value for name, value in found.items() if not isinstance(value, UploadFile)})
        return found


def _pairs(text: str) -> dict[str, Any]:
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="replace")
    except ValueError as error:
        raise bad_request(f"a form has more than {MAX_FIELDS:,} fields") from error
    found: dict[str, Any] = {}
    for name, value in pairs:
        found[name] = [*as_list(found[name]), value] if name in found else value
    return found


def as_list(value: Any) -> list[Any]:
    """A list as it is, anything else as its only item."""
    return value if isinstance(value, list) else [value]


def text_field(fields: Mapping[str, Any], name: str) -> str | None:
    """A parameter that is text; None if it is missing, null or empty. Anything else is refused."""
    value = fields.get(name)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise bad_request(f"the parameter {name} must be a string, and occur once")
    return value


def require_unicode(value: Any) -> None:
    """Refuse text with lone surrogates, which no encoding can write."""
    pending = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, str):
            if _SURROGATE.search(part):
                raise bad_request("a text has half of a surrogate pair, which is not a character")
        elif isinstance(part, Mapping):
            pending += [*part.keys(), *part.values()]
        elif isinstance(part, list | tuple):
            pending += part


def _kind(value: Any) -> str:
    names = {list: "an array", str: "a string", bool: "a Boolean", type(None): "null"}
    return names.get(type(value), "a number")


# --- checks before the body -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Door:
    """Which requests come in: by the size of their head, the host they were sent to, the page that sent them."""

    hosts: frozenset[str]
    """Names under which the server may be called; `*` is every name."""
    origins: frozenset[str]
    head_bytes: int

    def check(self, scope: Mapping[str, Any]) -> None:
        """Refuse a request by its head."""
        head: Sequence[tuple[bytes, bytes]] = scope["headers"]
        size = len(scope.get("raw_path") or b"") + len(scope["query_string"])
        if size + sum(len(name) + len(value) + 4 for name, value in head) > self.head_bytes:
            raise Refusal(431, f"the address, query and headers have more than {self.head_bytes:,} bytes")
        values: dict[bytes, list[bytes]] = {}
        for name, value in head:
            values.setdefault(name, []).append(value)
        hosts = values.get(b"host", [])
        if len(hosts) != 1 or not self._is_known(hosts[0].decode("latin-1")):
            raise Refusal(421, "the Host header does not name this server; add the name with serve.hosts=[NAME]")
        for origin in values.get(b"origin", []):
            if not self._is_same(origin.decode("latin-1"), hosts[0].decode("latin-1")):
                raise Refusal(403, "pages of other origins may not call this server; allow one with serve.origins")
        site = values.get(b"sec-fetch-site", [b""])[0].lower()
        if site == b"cross-site" and b"origin" not in values and scope["method"] not in ("GET", "HEAD"):
            raise Refusal(403, "pages of other origins may not call this server; allow one with serve.origins")

    def _is_known(self, host: str) -> bool:
        return "*" in self.hosts or host_name(host) in self.hosts

    def _is_same(self, origin: str, host: str) -> bool:
        if origin in self.origins:
            return True
        return origin != "null" and urlsplit_host(origin) == host.lower()


def host_name(host: str) -> str:
    """The name in a Host header, without its port: `[::1]:8000` becomes `[::1]`."""
    host = host.strip().lower()
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]


def urlsplit_host(origin: str) -> str:
    """Host and port of an origin, as a Host header writes them; empty for what is not an origin."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""
