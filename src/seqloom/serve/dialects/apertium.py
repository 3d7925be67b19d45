"""The API of Apertium APy: `/translate` with a `langpair`, and `/listPairs`. OmegaT and Weblate speak it."""

import re
from dataclasses import dataclass

from starlette.responses import Response

from seqloom.serve.http import Call, json_response
from seqloom.serve.operations import Operation
from seqloom.serve.refusal import Refusal, bad_request
from seqloom.serve.service import Service

_PAIR = re.compile(r"([A-Za-z_.@-]+)\|([A-Za-z_.@-]+)")
_EXPLANATIONS = {400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 413: "Payload Too Large", 503: "Busy"}


@dataclass(frozen=True)
class Apertium:
    """Errors have a status, a code, a message and an explanation."""

    name: str = "apertium"

    def refusal(self, refusal: Refusal) -> Response:
        """An error as APy writes it."""
        explanation = refusal.message
        message = _EXPLANATIONS.get(refusal.status, "Error")
        record = {"status": "error", "code": refusal.status, "message": message, "explanation": explanation}
        return json_response(record, refusal.status)


APERTIUM = Apertium()


async def translate(service: Service, call: Call) -> Response:
    """`GET|POST /translate?q=…&langpair=en|de`."""
    fields = await call.fields()
    call.authorise(fields.get("key") or call.bearer())
    text, pair = fields.get("q"), fields.get("langpair")
    if not isinstance(text, str):
        raise bad_request("the parameter q is missing; it is the text to translate")
    match = _PAIR.fullmatch(pair) if isinstance(pair, str) else None
    if match is None:
        raise bad_request("the parameter langpair must name two languages, such as en|de")
    (found,) = await service.translate(call, [text], source=match[1], target=match[2])
    return json_response(_frame({"translatedText": found.text}))


async def list_pairs(service: Service, _call: Call) -> Response:
    """`GET /listPairs`."""
    pairs = [{"sourceLanguage": source, "targetLanguage": target} for source, target in service.models.pairs]
    return json_response(_frame(pairs))


def _frame(data: object) -> dict[str, object]:
    return {"responseData": data, "responseDetails": None, "responseStatus": 200}


OPERATIONS = (
    Operation(
        "/listPairs",
        ("GET",),
        APERTIUM,
        list_pairs,
        {"summary": "List the pairs of languages (Apertium APy)", "responses": {"200": {"description": "The pairs."}}},
    ),
)
