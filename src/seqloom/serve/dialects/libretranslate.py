"""The API of LibreTranslate, at the root of the server.

Parameters may come as JSON, as a form or in the query; all three occur. `q` is a text, or a list of texts, and the
answer has the same form:

    {"q": "a dog", "source": "auto", "target": "de", "alternatives": 1}
    {"translatedText": "ein Hund", "detectedLanguage": {"language": "en", "confidence": 93}, "alternatives": []}

`detectedLanguage` is there where the source is `auto`, `alternatives` where some were requested.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

from starlette.datastructures import UploadFile
from starlette.responses import Response

from seqloom.serve.description import (
    ALTERNATIVES,
    BINARY,
    FORM,
    JSON,
    MULTIPART,
    SOURCE,
    TARGET,
    TEXT,
    WORDS,
    body,
    list_of,
    object_of,
    query,
    responses,
)
from seqloom.serve.dialects import apertium
from seqloom.serve.http import Call, as_list, json_response, text_field
from seqloom.serve.models import name_of_language
from seqloom.serve.operations import Operation
from seqloom.serve.refusal import Refusal, bad_request
from seqloom.serve.service import FILE_FORMATS, Service, Translated
from seqloom.text.detection import Guess

_STATUSES = {401: 400, 413: 400}
"""Statuses that its clients do not know, and those that they know."""

_MARKUP: dict[str, Literal["text", "html"]] = {"text": "text", "html": "html"}

_FRONTEND_TIMEOUT = 500
"""Milliseconds that a page waits after a key was pressed before it requests a translation."""


@dataclass(frozen=True)
class LibreTranslate:
    """Errors are `{"error": "sentence"}`."""

    name: str = "libretranslate"

    def refusal(self, refusal: Refusal) -> Response:
        """An error as LibreTranslate writes it."""
        return json_response({"error": refusal.message}, _STATUSES.get(refusal.status, refusal.status))


LIBRETRANSLATE = LibreTranslate()


# --- texts ------------------------------------------------------------------------------------------------------------


async def translate(service: Service, call: Call) -> Response:
    """`POST /translate`; a request with a `langpair` is one of Apertium, which has the same address."""
    fields = await call.fields()
    if "langpair" in fields:
        call.dialect = apertium.APERTIUM
        return await apertium.translate(service, call)
    _authorise(call, fields)
    given, source, target = _texts(fields), _required(fields, "source"), _required(fields, "target")
    format_name, alternatives = text_field(fields, "format") or "text", _number(fields, "alternatives")
    markup = _MARKUP.get(format_name)
    if markup is None:
        raise bad_request(f"{format_name[:20]!r} format is not supported; the formats are {', '.join(_MARKUP)}")
    found = await service.translate(
        call, as_list(given), source=source, target=target, alternatives=alternatives, markup=markup
    )
    has_details = str(fields.get("details", "")).lower() in ("true", "1")
    records = [_record(each, alternatives, has_details=has_details) for each in found]
    if not isinstance(given, list):
        return json_response(records[0])
    names = records[0] if records else ("translatedText",)
    return json_response({name: [record[name] for record in records] for name in names})


def _texts(fields: Mapping[str, Any]) -> Any:
    if not fields.get("q"):
        raise _missing("q")
    return fields["q"]


def _record(found: Translated, alternatives: int, *, has_details: bool) -> dict[str, Any]:
    """The answer for one text. Details are an extension of this server."""
    record: dict[str, Any] = {"translatedText": found.text}
    if found.detected is not None:
        record["detectedLanguage"] = _detected(found.detected)
    if alternatives:
        record["alternatives"] = list(found.alternatives)
    if has_details:
        record["confidence"] = found.confidence
        record["memory"] = [
            {"percentage": each.percentage, "source": each.unit.source, "target": each.unit.target}
            for each in found.matches
        ]
    return record


def _detected(found: Guess) -> dict[str, Any]:
    return {"confidence": round(100 * found.confidence), "language": found.language}


async def detect(service: Service, call: Call) -> Response:
    """`POST /detect`: the languages of a text, the most probable first."""
    fields = await call.fields()
    _authorise(call, fields)
    texts = service.check_texts(call, as_list(_texts(fields)))
    return json_response([_detected(each) for each in service.detect("\n".join(texts))])


async def languages(service: Service, _call: Call) -> Response:
    """`GET /languages`."""
    return json_response(
        [{"code": code, "name": name, "targets": list(targets)} for code, name, targets in service.languages()]
    )


async def suggest(_service: Service, _call: Call) -> Response:
    """`POST /suggest`: this server does not collect suggestions."""
    raise Refusal(403, "Suggestions are disabled on this server")


async def frontend_settings(service: Service, call: Call) -> Response:
    """`GET /frontend/settings`: what a page in front of the server needs to know."""
    needs_key = call.state.keys.is_required
    target = next((model.target or "" for model in service.models.translators), "")
    settings = {
        "charLimit": call.state.settings.characters,
        "frontendTimeout": _FRONTEND_TIMEOUT,
        "apiKeys": needs_key,
        "keyRequired": needs_key,
        "suggestions": False,
        "filesTranslation": True,
        "supportedFilesFormat": list(FILE_FORMATS),
        "language": {
            "source": {"code": "auto", "name": "Auto Detect"},
            "target": {"code": target, "name": name_of_language(target)},
        },
    }
    return json_response(settings)


# --- files ------------------------------------------------------------------------------------------------------------


async def translate_file(service: Service, call: Call) -> Response:
    """`POST /translate_file`: a file in, the address of its translation out."""
    fields = await call.fields()
    _authorise(call, fields)
    file = fields.get("file")
    if not isinstance(file, UploadFile):
        raise _missing("file")
    source, target = _required(fields, "source"), _required(fields, "target")
    if not file.filename:
        raise bad_request("Invalid request: the file has no name, by which its format is known")
    done = await service.translate_file(call, file.filename, await file.read(), source=source, target=target)
    name = service.files.put(done.data, name=done.name, media_type=done.media_type, owner=call.caller)
    return json_response({"translatedFileUrl": f"{call.base_url}/download_file/{quote(name)}"})


async def download_file(service: Service, call: Call) -> Response:
    """`GET /download_file/NAME`: for ten minutes, for the key or address that sent the original."""
    _authorise(call, call.query())
    file = service.files.get(call.request.path_params["name"], owner=call.caller)
    if file is None:
        raise Refusal(404, "there is no such file; translated files are kept for a limited time, for their owner only")
    disposition = f"attachment; filename*=UTF-8''{quote(file.name)}"
    return Response(file.data, headers={"content-disposition": disposition}, media_type=file.media_type)


# --- parameters -------------------------------------------------------------------------------------------------------


def _authorise(call: Call, fields: Mapping[str, Any]) -> None:
    """The key is a parameter; a header works as well."""
    call.authorise(text_field(fields, "api_key") or call.bearer(), missing=400)


def _missing(name: str) -> Refusal:
    return bad_request(f"Invalid request: missing {name} parameter")


def _required(fields: Mapping[str, Any], name: str) -> str:
    value = text_field(fields, name)
    if value is None:
        raise _missing(name)
    return value


def _number(fields: Mapping[str, Any], name: str) -> int:
    """A count; missing or negative is 0."""
    value = fields.get(name)
    if isinstance(value, str) and re.fullmatch(r"\s*[+-]?[0-9]{1,9}\s*", value, re.ASCII):
        value = int(value)
    if value is None or value == "":
        return 0
    if not isinstance(value, int) or isinstance(value, bool):
        raise bad_request(f"Invalid request: {name} parameter is not a number")
    return max(0, value)


# --- description ------------------------------------------------------------------------------------------------------

_ERROR = object_of({"error": TEXT}, "error")
_DETECTION = object_of(
    {"language": TEXT, "confidence": {"type": "number", "minimum": 0, "maximum": 100}}, "language", "confidence"
)


def _one_or_more(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"oneOf": [schema, list_of(schema)]}


def _parameters(properties: Mapping[str, Any], required: Sequence[str]) -> dict[str, Any]:
    """What an operation takes as JSON or as a form."""
    described = object_of({**properties, "api_key": {**TEXT, "description": "The API key."}}, *required)
    return body(described, JSON, FORM)


_LANGUAGES = {"source": SOURCE, "target": TARGET}

OPERATIONS = (
    Operation(
        "/translate",
        ("POST",),
        LIBRETRANSLATE,
        translate,
        {
            "summary": "Translate texts (LibreTranslate; with a langpair, Apertium APy)",
            "requestBody": _parameters(
                {
                    "q": {
                        "oneOf": [WORDS, {**list_of(WORDS), "minItems": 1}],
                        "description": "A text, or a list of texts.",
                    },
                    **_LANGUAGES,
                    "format": {"enum": list(_MARKUP), "default": "text"},
                    "alternatives": ALTERNATIVES,
                    "details": {
                        "type": "boolean",
                        "default": False,
                        "description": "Add the confidence of each translation, and similar texts of the memory.",
                    },
                },
                ("q", "source", "target"),
            ),
            "responses": responses(
                object_of(
                    {
                        "translatedText": _one_or_more(TEXT),
                        "detectedLanguage": _one_or_more(_DETECTION),
                        "alternatives": list_of(_one_or_more(TEXT)),
                        "confidence": _one_or_more({"type": ["number", "null"]}),
                        "memory": list_of(_one_or_more({"type": "object"})),
                    }
                ),
                _ERROR,
                *(400, 403, 429, 503),
            ),
        },
    ),
    Operation(
        "/detect",
        ("POST",),
        LIBRETRANSLATE,
        detect,
        {
            "summary": "Detect the language of a text (LibreTranslate)",
            "requestBody": _parameters({"q": WORDS}, ("q",)),
            "responses": responses(list_of(_DETECTION), _ERROR, 400, 403, 429),
        },
    ),
    Operation(
        "/languages",
        ("GET",),
        LIBRETRANSLATE,
        languages,
        {
            "summary": "List the languages (LibreTranslate)",
            "responses": responses(
                list_of(object_of({"code": TEXT, "name": TEXT, "targets": list_of(TEXT)}, "code", "name", "targets")),
                _ERROR,
            ),
        },
    ),
    Operation(
        "/frontend/settings",
        ("GET",),
        LIBRETRANSLATE,
        frontend_settings,
        {
            "summary": "Settings for a page (LibreTranslate)",
            "responses": responses({"type": "object", "required": ["charLimit", "language"]}, _ERROR),
        },
    ),
    Operation(
        "/suggest",
        ("POST",),
        LIBRETRANSLATE,
        suggest,
        {"summary": "Suggest a translation (LibreTranslate): disabled", "responses": responses(_ERROR, _ERROR, 403)},
    ),
    Operation(
        "/translate_file",
        ("POST",),
        LIBRETRANSLATE,
        translate_file,
        {
            "summary": "Translate a file (LibreTranslate)",
            "requestBody": body(
                object_of({"file": BINARY, **_LANGUAGES, "api_key": TEXT}, "file", "source", "target"), MULTIPART
            ),
            "responses": responses(
                object_of({"translatedFileUrl": TEXT}, "translatedFileUrl"), _ERROR, 400, 403, 429, 503
            ),
        },
        takes_file=True,
    ),
    Operation(
        "/download_file/{name}",
        ("GET",),
        LIBRETRANSLATE,
        download_file,
        {
            "summary": "Download a translated file (LibreTranslate)",
            "parameters": [
                {"name": "name", "in": "path", "required": True, "schema": TEXT},
                query("api_key", TEXT, "The API key."),
            ],
            "responses": {
                **responses(_ERROR, _ERROR, 400, 403, 404),
                "200": {"description": "The file.", "content": {"*/*": {"schema": BINARY}}},
            },
        },
    ),
)
