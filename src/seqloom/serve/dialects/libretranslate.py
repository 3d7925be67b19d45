"""The API of LibreTranslate, at the root of the server."""

from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from seqloom.serve.dialects import apertium
from seqloom.serve.http import Call, json_response
from seqloom.serve.operations import Operation
from seqloom.serve.refusal import Refusal, bad_request
from seqloom.serve.service import Service

_STATUSES = {413: 400, 401: 400}
"""Statuses that its clients do not know, and those that they know."""


@dataclass(frozen=True)
class LibreTranslate:
    """Errors are `{"error": "sentence"}`."""

    name: str = "libretranslate"

    def refusal(self, refusal: Refusal) -> Response:
        """An error as LibreTranslate writes it."""
        return json_response({"error": refusal.message}, _STATUSES.get(refusal.status, refusal.status))


LIBRETRANSLATE = LibreTranslate()


async def translate(service: Service, call: Call) -> Response:
    """`POST /translate`; a request with a `langpair` is one of Apertium, which has the same address."""
    fields = await call.fields()
    if "langpair" in fields:
        call.dialect = apertium.APERTIUM
        return await apertium.translate(service, call)
    call.authorise(fields.get("api_key") or call.bearer(), missing=400)
    given = fields.get("q")
    for name in ("q", "source", "target"):
        if not fields.get(name):
            raise bad_request(f"Invalid request: missing {name} parameter")
    texts = given if isinstance(given, list) else [given]
    found = await service.translate(call, texts, source=fields["source"], target=fields["target"])
    answer: dict[str, Any] = {"translatedText": [each.text for each in found]}
    return json_response(answer if isinstance(given, list) else {"translatedText": found[0].text})


async def languages(service: Service, _call: Call) -> Response:
    """`GET /languages`."""
    return json_response(
        [{"code": code, "name": name, "targets": list(targets)} for code, name, targets in service.languages()]
    )


OPERATIONS = (
    Operation(
        "/translate",
        ("GET", "POST"),
        LIBRETRANSLATE,
        translate,
        {"summary": "Translate texts (LibreTranslate, Apertium APy)", "responses": {"200": {"description": "Done."}}},
    ),
    Operation(
        "/languages",
        ("GET",),
        LIBRETRANSLATE,
        languages,
        {"summary": "List the languages (LibreTranslate)", "responses": {"200": {"description": "The languages."}}},
    ),
)
