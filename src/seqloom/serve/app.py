"""The routes of a server, and what every request passes first."""

import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route, Router

from seqloom.serve.description import components
from seqloom.serve.dialects import apertium, deepl, libretranslate, moses, openai, opennmt, workbench
from seqloom.serve.dialects.deepl import DEEPL
from seqloom.serve.dialects.libretranslate import LIBRETRANSLATE
from seqloom.serve.dialects.openai import OPENAI
from seqloom.serve.dialects.workbench import WORKBENCH
from seqloom.serve.http import Dialect, Door, json_response
from seqloom.serve.operations import Operation, endpoint
from seqloom.serve.pages import page_routes
from seqloom.serve.refusal import Refusal
from seqloom.serve.service import Service
from seqloom.version import __version__

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

SAFETY_HEADERS = {
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
"""With every answer. The page and its files (pages.py) have their own instead."""
_SAFETY = tuple((name.encode(), value.encode()) for name, value in SAFETY_HEADERS.items())

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


OPERATIONS: tuple[Operation, ...] = (
    *libretranslate.OPERATIONS,
    *apertium.OPERATIONS,
    *deepl.OPERATIONS,
    *openai.OPERATIONS,
    *opennmt.OPERATIONS,
    *moses.OPERATIONS,
    *workbench.OPERATIONS,
)
"""What the dialects offer."""


# LibreTranslate is the first, so an address that it shares is its own.
_DIALECTS: Mapping[str, Dialect] = {each.path: each.dialect for each in reversed(OPERATIONS)}


def make_app(service: Service, door: Door) -> "App":
    """The application of a server."""
    # Routes are tried in their order, and most requests translate.
    routes = [Route(each.path, endpoint(service, each), methods=list(each.methods)) for each in OPERATIONS]
    routes += [
        Route("/health", _health(service), methods=["GET"]),
        Route("/ready", _ready(service), methods=["GET"]),
        Route("/metrics", _metrics(service), methods=["GET"]),
        Route("/openapi.json", _openapi(service), methods=["GET"]),
        Route("/spec", _openapi(service), methods=["GET"]),  # the name that LibreTranslate has for it
        *page_routes(),
    ]
    return App(service, door, Router(routes, redirect_slashes=False, default=_not_found))


def openapi(service: Service) -> dict[str, Any]:
    """The description of all operations, in the form of OpenAPI 3.1."""
    paths: dict[str, dict[str, Any]] = {}
    for each in OPERATIONS:
        for method in each.methods:
            name = re.sub(r"\W+", "_", f"{each.dialect.name}_{method.lower()}_{each.path}").strip("_")
            record = {"operationId": name, "tags": [each.dialect.name], **each.description}
            paths.setdefault(each.path, {})[method.lower()] = record
    about = {"title": service.state.settings.name, "version": __version__, "license": {"name": "Apache-2.0"}}
    shared = components(service.models, service.state.settings)
    return {"openapi": "3.1.0", "info": about, "paths": paths, "components": shared}


def dialect_of(path: str) -> Dialect:
    """The dialect in which errors of a path are written."""
    if path.startswith("/v1/"):
        return OPENAI
    if path.startswith(("/v2/", "/v3/")):
        return DEEPL
    if path.startswith("/api/"):
        return WORKBENCH
    return _DIALECTS.get(path, LIBRETRANSLATE)


@dataclass(frozen=True)
class App:
    """Every request passes the door; every answer has the safety headers."""

    service: Service
    door: Door
    router: Router

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return

        async def send_safely(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                given = list(message.get("headers", []))
                names = {name for name, _ in given}
                message["headers"] = [*given, *(pair for pair in self._headers(scope) if pair[0] not in names)]
            await send(message)

        try:
            self.door.check(scope)
        except Refusal as refusal:
            await dialect_of(scope["path"]).refusal(refusal)(scope, receive, send_safely)
            return
        if scope["method"] == "OPTIONS":
            await Response(status_code=204)(scope, receive, send_safely)
            return
        if methods := self._other_methods(scope):
            wrong_method = Refusal(405, f"the method must be {' or '.join(methods)}")
            response = dialect_of(scope["path"]).refusal(wrong_method)
            response.headers["allow"] = ", ".join(methods)
            await response(scope, receive, send_safely)
            return
        with self.service.state.in_flight():  # until the client has been sent the answer, not only until there is one
            await self.router(scope, receive, send_safely)

    def _other_methods(self, scope: Scope) -> list[str]:
        """The methods of an address, if that of the request is not one of them."""
        methods: set[str] = set()
        for route in self.router.routes:
            match, _ = route.matches(scope)
            if match is Match.FULL:
                return []
            if match is Match.PARTIAL and isinstance(route, Route):
                methods |= route.methods or set()
        return sorted(methods)

    def _headers(self, scope: Scope) -> list[tuple[bytes, bytes]]:
        headers = list(_SAFETY)
        origin = next((value for name, value in scope["headers"] if name == b"origin"), b"")
        if origin and origin.decode("latin-1") in self.door.origins:
            headers += [(b"access-control-allow-origin", origin), (b"vary", b"Origin")]
            if scope["method"] == "OPTIONS":
                headers += [
                    (b"access-control-allow-methods", b"GET, POST, DELETE"),
                    (b"access-control-allow-headers", b"Authorization, Content-Type"),
                    (b"access-control-max-age", b"600"),
                ]
        return headers


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    refusal = Refusal(404, "there is nothing at this address; /openapi.json lists what there is")
    await dialect_of(scope["path"]).refusal(refusal)(scope, receive, send)


def _health(_service: Service) -> Callable[[Request], Awaitable[Response]]:
    async def health(_request: Request) -> Response:
        return json_response({"status": "ok"})

    return health


def _ready(service: Service) -> Callable[[Request], Awaitable[Response]]:
    async def ready(_request: Request) -> Response:
        if service.state.is_draining:
            return json_response({"status": "shutting down"}, 503)
        if not service.pool.is_ready:
            return json_response({"status": "starting or busy"}, 503, headers={"retry-after": "1"})
        return json_response({"status": "ready"})

    return ready


def _openapi(service: Service) -> Callable[[Request], Awaitable[Response]]:
    async def describe(_request: Request) -> Response:
        return json_response(openapi(service))

    return describe


def _metrics(service: Service) -> Callable[[Request], Awaitable[Response]]:
    async def metrics(_request: Request) -> Response:
        return Response(service.state.metrics.text(), media_type=METRICS_TYPE)

    return metrics
