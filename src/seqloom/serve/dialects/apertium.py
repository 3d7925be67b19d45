"""The API of Apertium APy: `/translate` with a `langpair`, and `/listPairs`. OmegaT and Weblate speak it.

    GET /translate?q=…&langpair=en|de   {"responseData": {"translatedText": …}, "responseDetails": null,
                                         "responseStatus": 200}
    GET /listPairs                      the same frame around [{"sourceLanguage": …, "targetLanguage": …}]

Codes may have three letters (`eng|deu`) or a region (`en_US|pt_BR`). `markUnknown` has no effect, since a neural model
has no dictionary in which a word could be missing.
"""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Literal

from starlette.responses import Response

from seqloom.serve.description import PAIR, TEXT, WORDS, Schema, list_of, object_of, query, responses
from seqloom.serve.http import Call, json_response, text_field
from seqloom.serve.models import code_of
from seqloom.serve.operations import Operation
from seqloom.serve.refusal import Refusal, bad_request
from seqloom.serve.service import Service

_MEDIA_TYPE = "application/json; charset=UTF-8"
"""As APy has it; older versions of OmegaT read an answer without it as Latin-1."""

_MARKUP: dict[str, Literal["text", "html"]] = {"txt": "text", "text": "text", "html": "html"}
"""Formats of a text, by the names that APy has for them."""


@dataclass(frozen=True)
class Apertium:
    """Errors have a status, a code, a message and an explanation."""

    name: str = "apertium"

    def refusal(self, refusal: Refusal) -> Response:
        """An error as APy writes it."""
        known = refusal.status in HTTPStatus.__members__.values()
        record = {
            "status": "error",
            "code": refusal.status,
            "message": HTTPStatus(refusal.status).phrase if known else "Error",
            "explanation": refusal.message,
        }
        return json_response(record, refusal.status, media_type=_MEDIA_TYPE)


APERTIUM = Apertium()


async def translate(service: Service, call: Call) -> Response:
    """`GET|POST /translate?q=…&langpair=en|de`."""
    fields = await call.fields()
    call.authorise(text_field(fields, "key") or call.bearer())
    text = fields.get("q")
    if not isinstance(text, str):
        raise bad_request("the parameter q is missing; it is the text to translate")
    source, target = pair_of(text_field(fields, "langpair") or "")
    markup = _MARKUP.get(text_field(fields, "format") or "txt")
    if markup is None:
        raise bad_request("the parameter format must be txt or html")
    (found,) = await service.translate(call, [text], source=source, target=target, markup=markup)
    return _framed({"translatedText": found.text})


def pair_of(langpair: str) -> tuple[str, str]:
    """The two languages of a `langpair`."""
    parts = langpair.split("|")
    if len(parts) != 2 or not all(part.strip() for part in parts):
        raise bad_request("the parameter langpair must name two languages, such as en|de")
    return parts[0].strip(), parts[1].strip()


async def list_pairs(service: Service, call: Call) -> Response:
    """`GET|POST /listPairs`, and `/list?q=pairs`; `src` names a source language."""
    fields = await call.fields()
    if text_field(fields, "q") not in (None, "pairs"):
        raise bad_request("this server lists pairs only: /list?q=pairs")
    source = text_field(fields, "src")
    wanted = code_of(source) if source else None
    # Direct pairs first: a client that tries the first one of the list should not wait for two models.
    pairs = sorted(service.models.pairs.items(), key=lambda item: len(item[1]))
    found = [{"sourceLanguage": each, "targetLanguage": target} for (each, target), _ in pairs]
    return _framed([each for each in found if wanted in (None, each["sourceLanguage"])])


def _framed(data: object) -> Response:
    record = {"responseData": data, "responseDetails": None, "responseStatus": 200}
    return json_response(record, media_type=_MEDIA_TYPE)


def _frame(schema: Schema) -> Schema:
    properties = {"responseData": schema, "responseDetails": {"type": "null"}, "responseStatus": {"const": 200}}
    return object_of(properties, *properties)


ERROR = object_of({"status": {"const": "error"}, "code": {"type": "integer"}, "message": TEXT, "explanation": TEXT})

TRANSLATION = _frame(object_of({"translatedText": TEXT}, "translatedText"))

_PAIRS = {
    "summary": "List the pairs of languages (Apertium APy)",
    "parameters": [query("src", TEXT, "Only pairs from this language.")],
    "responses": responses(_frame(list_of(object_of({"sourceLanguage": TEXT, "targetLanguage": TEXT}))), ERROR, 400),
}

OPERATIONS = (
    # POST has the same address as that of LibreTranslate, which passes requests with a langpair on.
    Operation(
        "/translate",
        ("GET",),
        APERTIUM,
        translate,
        {
            "summary": "Translate a text (Apertium APy)",
            "parameters": [
                query("q", WORDS, "The text.", is_required=True),
                query("langpair", PAIR, "Two languages, such as en|de.", is_required=True),
                query("format", {"enum": ["txt", "html"]}, "The format of the text."),
                query("markUnknown", {"enum": ["yes", "no"]}, "Without effect."),
                query("key", TEXT, "The API key."),
            ],
            "responses": responses(TRANSLATION, ERROR, 400, 401, 403, 429, 503),
        },
    ),
    Operation("/listPairs", ("GET", "POST"), APERTIUM, list_pairs, _PAIRS),
    Operation("/list", ("GET", "POST"), APERTIUM, list_pairs, _PAIRS),
)
