"""The workbench: one page and its files, read once at start and served as they are.

Its files are those of `serve/page`, and the tree of a beam search that `seqloom look beam` draws too. No other address
of the server is a page, so these have a content policy of their own: nothing from elsewhere, no script and no style
but those of the files. Their names are a fixed list; there is no path to leave a folder by.
"""

import base64
import gzip
import hashlib
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from seqloom.version import __version__

MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".LICENSE": "text/plain; charset=utf-8",
}
SHARED = ("beam_tree.js", "beam_tree.css")
"""Files of drawing/templates."""


@dataclass(frozen=True)
class PageFile:
    """A file of the page."""

    body: bytes
    packed: bytes
    """The same, compressed."""
    media_type: str
    tag: str
    """What changes with the contents."""


def page_files() -> dict[str, PageFile]:
    """All files by their names under /page/; the page itself is index.html."""
    found = dict(_read(files("seqloom.serve") / "page", ""))
    templates = files("seqloom.drawing") / "templates"
    for name in SHARED:
        found[name] = _page_file(templates / name)
    return found


def _read(folder: Traversable, before: str) -> Iterator[tuple[str, PageFile]]:
    for each in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if each.is_dir():
            yield from _read(each, f"{before}{each.name}/")
        elif _suffix(each.name) in MEDIA_TYPES:
            yield f"{before}{each.name}", _page_file(each)


def _page_file(entry: Traversable) -> PageFile:
    body = entry.read_bytes()
    if entry.name == "index.html":
        body = body.replace(b"{{VERSION}}", __version__.encode())
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    return PageFile(body, gzip.compress(body, mtime=0), MEDIA_TYPES[_suffix(entry.name)], tag)


def _suffix(name: str) -> str:
    return f".{name.rpartition('.')[2]}"


def page_policy(page: bytes) -> str:
    """The content policy of the page: its files, and its import map by hash, since that is inline by its nature."""
    maps = re.findall(rb'<script type="importmap">(.*?)</script>', page, re.DOTALL)
    hashes = [f"'sha256-{base64.b64encode(hashlib.sha256(text).digest()).decode()}'" for text in maps]
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src 'self' {' '.join(hashes)}".rstrip(),
            "style-src 'self'",
            "img-src 'self' data: blob:",
            "connect-src 'self'",
            "font-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        ]
    )


def page_routes() -> list[Route]:
    """`GET /` and `GET /page/NAME`."""
    found = page_files()
    page = found["index.html"]
    headers = {
        "x-content-type-options": "nosniff",
        "content-security-policy": page_policy(page.body),
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "cache-control": "no-cache",
    }

    async def shell(request: Request) -> Response:
        return _answer(request, page, headers)

    routes = [Route("/", shell, methods=["GET"])]
    for name, file in found.items():
        if name != "index.html":
            routes.append(Route(f"/page/{name}", _endpoint(file, headers), methods=["GET"]))
    return routes


def _endpoint(file: PageFile, headers: Mapping[str, str]) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        return _answer(request, file, headers)

    return answer


def _answer(request: Request, file: PageFile, headers: Mapping[str, str]) -> Response:
    """The file, or 304 where the browser has it. Ranges are not supported, so none can be asked for in excess."""
    given = {**headers, "etag": file.tag, "vary": "accept-encoding"}
    if file.tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=given)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(file.packed, headers={**given, "content-encoding": "gzip"}, media_type=file.media_type)
    return Response(file.body, headers=given, media_type=file.media_type)
