"""The API of DeepL, version 2: texts, documents, languages, usage, glossaries. Weblate and the `deepl` client speak it.

Options that only advise (`context`, `model_type`, `split_sentences`, `preserve_formatting`, `formality` if it is
`default` or `prefer_…`) are accepted and have no effect. What would be ignored against the client's intent is refused:
`formality` `more` and `less`, unknown glossaries, styles, translation memories and instructions.
"""

import asyncio
import re
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

from starlette.datastructures import UploadFile
from starlette.responses import Response

from seqloom.serve.description import (
    BINARY,
    FORM,
    JSON,
    MULTIPART,
    SOURCE,
    TARGET,
    TEXT,
    Schema,
    body,
    list_of,
    object_of,
    query,
    responses,
)
from seqloom.serve.document_jobs import DocumentJob, JobResult
from seqloom.serve.documents import Markup
from seqloom.serve.files import safe_name
from seqloom.serve.glossaries import (
    MAX_NAME_CHARACTERS,
    StoredGlossary,
    joined_glossary,
    parse_entries,
    write_entries,
)
from seqloom.serve.http import Call, as_list, json_response
from seqloom.serve.models import code_of, name_of_language
from seqloom.serve.operations import Operation, refusal_of
from seqloom.serve.refusal import Refusal, bad_request
from seqloom.serve.service import FILE_FORMATS, Service
from seqloom.text.glossary import Glossary

CHARACTER_LIMIT = 1_000_000_000_000
"""Characters per key that `/v2/usage` names; there is no limit, but clients expect one."""

MAX_GLOSSARIES = 5
"""Glossaries of one request."""

STATUS_SECONDS = 2.0
"""How long a request for the status of a document waits for its end."""

TSV = "text/tab-separated-values; charset=utf-8"

_REGIONS = {
    "en": (("EN-GB", "English (British)"), ("EN-US", "English (American)")),
    "pt": (("PT-PT", "Portuguese (European)"), ("PT-BR", "Portuguese (Brazilian)")),
}
"""Targets that the client takes with a region only. One model translates into all of them."""
_FORMALITIES = ("default", "prefer_more", "prefer_less")
_MARKUPS: Mapping[str, Markup] = {"": "text", "xml": "xml", "html": "html"}
_UNSUPPORTED = ("style_id", "translation_memory_id", "custom_instructions")
_TAG_NAME = re.compile(r"[^\s<>/&,]{1,100}")


@dataclass(frozen=True)
class DeepL:
    """Errors are `{"message": "sentence"}`."""

    name: str = "deepl"

    def refusal(self, refusal: Refusal) -> Response:
        """An error as DeepL writes it."""
        return json_response({"message": refusal.message}, refusal.status)


DEEPL = DeepL()


async def authorised_fields(call: Call) -> dict[str, Any]:
    """The parameters of a call whose key is valid: in the header, or as `auth_key`."""
    fields = await call.fields()
    given = call.bearer("DeepL-Auth-Key", "Bearer") or fields.get("auth_key")
    call.authorise(given if isinstance(given, str) else None, missing=403)
    return fields


# --- texts ------------------------------------------------------------------------------------------------------------


async def translate(service: Service, call: Call) -> Response:
    """`POST /v2/translate`."""
    fields = await authorised_fields(call)
    if "text" not in fields:
        raise bad_request("the parameter text is missing; it is a list of texts")
    texts = as_list(fields["text"])
    source, target = requested_languages(fields)
    check_advice(fields)
    found = await service.translate(
        call,
        texts,
        source=source,
        target=target,
        glossary=requested_glossary(service, call, fields, source=source, target=target),
        markup=_requested_markup(fields),
        ignored=_names(fields, "ignore_tags"),
        splitting=set(_names(fields, "splitting_tags")) - set(_names(fields, "non_splitting_tags")),
    )
    return json_response(
        {
            "translations": [
                {
                    "detected_source_language": result.source.upper(),
                    "text": result.text,
                    "billed_characters": len(text),
                }
                for text, result in zip(texts, found, strict=True)
            ]
        }
    )


def requested_languages(fields: Mapping[str, Any]) -> tuple[str | None, str]:
    """Source, None if it is to be detected, and target of a request."""
    source, target = fields.get("source_lang"), fields.get("target_lang")
    if not target or not isinstance(target, str):
        raise bad_request("the parameter target_lang is missing; it is a language, such as DE or EN-GB")
    if source is not None and not isinstance(source, str):
        raise bad_request("source_lang must be a language, such as EN")
    return source or None, target


def check_advice(fields: Mapping[str, Any]) -> None:
    """Refuse options that would be ignored against the client's intent."""
    formality = fields.get("formality")
    if formality is not None and formality not in _FORMALITIES:
        raise bad_request(f"this formality is not supported; use one of {', '.join(_FORMALITIES)}")
    for name in _UNSUPPORTED:
        if fields.get(name):
            raise bad_request(f"{name} is not supported")


def _requested_markup(fields: Mapping[str, Any]) -> Markup:
    given = fields.get("tag_handling") or ""
    markup = _MARKUPS.get(given) if isinstance(given, str) else None
    if markup is None:
        raise bad_request("tag_handling must be xml or html")
    return markup


def _names(fields: Mapping[str, Any], parameter: str) -> list[str]:
    """Names of elements: a list, or text with commas between them."""
    given = fields.get(parameter)
    if given is None or given == "":
        return []
    names: list[str] = []
    for each in as_list(given):
        if not isinstance(each, str):
            raise bad_request(f"{parameter} must be a list of names of elements")
        names += [name.strip() for name in each.split(",")]
    if not all(_TAG_NAME.fullmatch(name) for name in names):
        raise bad_request(f"{parameter} must be a list of names of elements, without < and >")
    return names


# --- languages and usage ----------------------------------------------------------------------------------------------


async def languages(service: Service, call: Call) -> Response:
    """`GET|POST /v2/languages`, for sources or targets."""
    fields = await authorised_fields(call)
    kind = fields.get("type") or "source"
    if kind == "source":
        listed_sources = [(code, name) for code, name, targets in service.languages() if targets]
        return json_response([{"language": code.upper(), "name": name} for code, name in listed_sources])
    if kind != "target":
        raise bad_request("type must be source or target")
    targets = sorted({target for _, target in service.models.pairs})
    listed = [each for code in targets for each in _REGIONS.get(code, ((code.upper(), name_of_language(code)),))]
    return json_response([{"language": code, "name": name, "supports_formality": False} for code, name in listed])


async def usage(service: Service, call: Call) -> Response:
    """`GET|POST /v2/usage`: the characters that were translated for this key since the server started."""
    await authorised_fields(call)
    return json_response({"character_count": service.state.translated[call.key], "character_limit": CHARACTER_LIMIT})


# --- glossaries -------------------------------------------------------------------------------------------------------


async def glossary_language_pairs(service: Service, call: Call) -> Response:
    """`GET /v2/glossary-language-pairs`: pairs with a model of their own, since terms cannot pass a pivot."""
    await authorised_fields(call)
    pairs = [{"source_lang": source, "target_lang": target} for source, target in _glossary_pairs(service)]
    return json_response({"supported_languages": pairs})


def _glossary_pairs(service: Service) -> list[tuple[str, str]]:
    return [pair for pair, steps in service.models.pairs.items() if len(steps) == 1]


async def create_glossary(service: Service, call: Call) -> Response:
    """`POST /v2/glossaries`."""
    fields = await authorised_fields(call)
    given = {name: fields.get(name) for name in ("name", "source_lang", "target_lang", "entries")}
    for name, value in given.items():
        if not isinstance(value, str) or not value.strip():
            raise bad_request(f"the parameter {name} of a glossary is missing, or not text")
    texts = {name: str(value) for name, value in given.items()}
    if len(texts["name"]) > MAX_NAME_CHARACTERS:
        raise bad_request(f"the name of the glossary has more than {MAX_NAME_CHARACTERS:,} characters")
    form = fields.get("entries_format", "tsv")
    if form not in ("tsv", "csv"):
        raise bad_request("entries_format must be tsv or csv")
    pair = code_of(texts["source_lang"]), code_of(texts["target_lang"])
    if pair not in _glossary_pairs(service):
        known = ", ".join(f"{source} to {target}" for source, target in _glossary_pairs(service))
        raise bad_request(f"glossaries are not supported for this pair of languages; the pairs are {known}")
    entries = parse_entries(texts["entries"], is_csv=form == "csv")
    made = service.glossaries.add(call.caller, texts["name"], source=pair[0], target=pair[1], entries=entries)
    unused = len(made.entries) - len(made.glossary.terms)
    service.state.notify("glossary_created", key=call.key, entries=len(made.entries), unused=unused)
    return json_response(_glossary_record(made), 201)


async def list_glossaries(service: Service, call: Call) -> Response:
    """`GET /v2/glossaries`."""
    await authorised_fields(call)
    return json_response({"glossaries": [_glossary_record(each) for each in service.glossaries.of(call.caller)]})


async def get_glossary(service: Service, call: Call) -> Response:
    """`GET /v2/glossaries/{id}`."""
    await authorised_fields(call)
    return json_response(_glossary_record(_stored_glossary(service, call)))


async def glossary_entries(service: Service, call: Call) -> Response:
    """`GET /v2/glossaries/{id}/entries`: lines with a tab between the terms."""
    await authorised_fields(call)
    text = write_entries(_stored_glossary(service, call).entries)
    return Response(text.encode(), media_type=TSV)


async def delete_glossary(service: Service, call: Call) -> Response:
    """`DELETE /v2/glossaries/{id}`."""
    await authorised_fields(call)
    found = _stored_glossary(service, call)
    service.glossaries.remove(found.identity, owner=call.caller)
    return Response(status_code=204)


def _stored_glossary(service: Service, call: Call) -> StoredGlossary:
    found = service.glossaries.get(call.request.path_params["glossary_id"], owner=call.caller)
    if found is None:
        raise Refusal(404, "there is no glossary with this glossary_id; they are kept until the server ends")
    return found


def _glossary_record(stored: StoredGlossary) -> dict[str, Any]:
    return {
        "glossary_id": stored.identity,
        "name": stored.name,
        "ready": True,
        "source_lang": stored.source,
        "target_lang": stored.target,
        "creation_time": stored.created.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "entry_count": len(stored.entries),
    }


def requested_glossary(
    service: Service, call: Call, fields: Mapping[str, Any], *, source: str | None, target: str
) -> Glossary | None:
    """The terms of the glossaries that a request names."""
    given = fields.get("glossary_id") or fields.get("glossary_ids")
    if not given:
        return None
    identities = [name for each in as_list(given) for name in (each.split(",") if isinstance(each, str) else [None])]
    if len(identities) > MAX_GLOSSARIES:
        raise bad_request(f"a request can name at most {MAX_GLOSSARIES} glossaries")
    if source is None:
        raise bad_request("a glossary needs source_lang")
    chosen = []
    for identity in identities:
        stored = service.glossaries.get(identity, owner=call.caller) if identity else None
        if stored is None:
            raise bad_request(
                "there is no glossary with this glossary_id; they are kept until the server ends, so create it again"
            )
        if (stored.source, stored.target) != (code_of(source), code_of(target)):
            raise bad_request(
                f"the glossary translates from {stored.source} to {stored.target}, which are not the languages of "
                "the request"
            )
        chosen.append(stored)
    return joined_glossary(chosen)


# --- documents --------------------------------------------------------------------------------------------------------


async def upload_document(service: Service, call: Call) -> Response:
    """`POST /v2/document`: a file, which is translated after this answer."""
    fields = await authorised_fields(call)
    file = fields.get("file")
    if not isinstance(file, UploadFile):
        raise bad_request("the file is missing; send it as the field file of a multipart form")
    given = fields.get("filename") or file.filename
    name = safe_name(given) if isinstance(given, str) else ""
    ending = PurePosixPath(name).suffix.lower()
    if ending not in FILE_FORMATS:
        raise bad_request(f"this format is not supported; the endings are {', '.join(FILE_FORMATS)}")
    if fields.get("output_format") and f".{fields['output_format']}".lower() != ending:
        raise bad_request("the format of the result is that of the document; leave out output_format")
    source, target = requested_languages(fields)
    if source is not None:
        service.find_steps(source, target)
    check_advice(fields)
    glossary = requested_glossary(service, call, fields, source=source, target=target)
    data = await file.read()
    own = replace(call, body=b"", texts=0, characters=0, _fields=None)  # the upload has been answered by then

    async def work() -> JobResult:
        found = await service.translate_file(own, name, data, source=source, target=target, glossary=glossary)
        service.state.translated[own.key] += found.characters
        return JobResult(found.data, found.name, found.media_type, found.characters)

    identity = uuid.uuid4().hex
    job = service.documents.start(
        work,
        owner=call.caller,
        size=len(data),
        describe=lambda error: refusal_of(error, service, identity).message,
    )
    return json_response({"document_id": job.identity, "document_key": job.key})


async def document_status(service: Service, call: Call) -> Response:
    """`POST /v2/document/{id}`. It waits a moment for the end, since the client asks again only after 5 seconds."""
    job = await _document(service, call)
    with suppress(TimeoutError):
        await asyncio.wait_for(job.finished.wait(), STATUS_SECONDS)
    record: dict[str, Any] = {"document_id": job.identity, "status": job.status}
    if job.status == "done":
        record["billed_characters"] = job.characters
    elif job.status == "error":
        record["error_message"] = record["message"] = job.message
        job.fetched.set()
    return json_response(record)


async def document_result(service: Service, call: Call) -> Response:
    """`POST /v2/document/{id}/result`."""
    job = await _document(service, call)
    if job.status == "error":
        raise bad_request(job.message or "the document was not translated")
    if job.file is None:
        raise Refusal(503, "the document is not translated yet; retry", 5)
    stored = service.files.get(job.file, owner=call.caller)
    if stored is None:
        raise _unknown_document()
    job.fetched.set()
    headers = {"content-disposition": f"attachment; filename*=UTF-8''{quote(stored.name)}"}
    return Response(stored.data, media_type=stored.media_type, headers=headers)


async def _document(service: Service, call: Call) -> DocumentJob:
    fields = await authorised_fields(call)
    key = fields.get("document_key")
    if not isinstance(key, str):
        raise bad_request("the parameter document_key is missing; the upload has returned it")
    job = service.documents.find(call.request.path_params["document_id"], key, owner=call.caller)
    if job is None:
        raise _unknown_document()
    return job


def _unknown_document() -> Refusal:
    return Refusal(
        404, "there is no document with this document_id and document_key; results are kept for a while only"
    )


# --- descriptions -----------------------------------------------------------------------------------------------------

_ERROR = object_of({"message": TEXT, "detail": TEXT}, "message")
_NUMBER: Schema = {"type": "integer"}
_FLAG: Schema = {"type": ["boolean", "string", "integer"]}
_NAMES: Schema = {"oneOf": [TEXT, list_of(TEXT)]}
_FORMALITY: Schema = {"enum": list(_FORMALITIES)}
_KIND: Schema = {"enum": ["source", "target"]}
_LANGUAGES = {"source_lang": SOURCE, "target_lang": TARGET}


def _described(
    summary: str,
    answer: Schema | None,
    request: Mapping[str, Any] | None = None,
    *,
    status: int = 200,
    media_type: str = JSON,
) -> dict[str, Any]:
    """An operation of this dialect, which answers with JSON unless it is said otherwise; None is an empty answer."""
    success: dict[str, Any] = {"description": "Success"}
    if answer is not None:
        success["content"] = {media_type: {"schema": answer}}
    errors = responses(TEXT, _ERROR, 400, 403, 404, 413, 429, 503)
    del errors["200"]
    return {"summary": f"{summary} (DeepL)", **(request or {}), "responses": {str(status): success, **errors}}


def _in_path(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": TEXT}


_TRANSLATE = object_of(
    {
        "text": {"type": ["array", "string"], "items": TEXT},
        **_LANGUAGES,
        "context": TEXT,
        "split_sentences": {"enum": ["0", "1", "nonewlines"]},
        "preserve_formatting": _FLAG,
        "formality": _FORMALITY,
        "glossary_id": TEXT,
        "glossary_ids": _NAMES,
        "tag_handling": {"enum": ["xml", "html"]},
        "outline_detection": _FLAG,
        "non_splitting_tags": _NAMES,
        "splitting_tags": _NAMES,
        "ignore_tags": _NAMES,
        "model_type": TEXT,
        "show_billed_characters": _FLAG,
    },
    "text",
    "target_lang",
)
_TRANSLATION = object_of(
    {"text": TEXT, "detected_source_language": TEXT, "billed_characters": _NUMBER},
    "text",
    "detected_source_language",
    "billed_characters",
)
_LISTED = object_of({"language": TEXT, "name": TEXT, "supports_formality": {"type": "boolean"}}, "language", "name")
_NEW_GLOSSARY = object_of(
    {"name": TEXT, **_LANGUAGES, "entries": TEXT, "entries_format": {"enum": ["tsv", "csv"]}},
    "name",
    "source_lang",
    "target_lang",
    "entries",
)
_GLOSSARY_FIELDS: dict[str, Schema] = {
    "glossary_id": TEXT,
    "name": TEXT,
    "ready": {"type": "boolean"},
    "source_lang": TEXT,
    "target_lang": TEXT,
    "creation_time": {"type": "string", "format": "date-time"},
    "entry_count": _NUMBER,
}
_GLOSSARY = object_of(_GLOSSARY_FIELDS, *_GLOSSARY_FIELDS)
_UPLOAD = object_of(
    {
        "file": BINARY,
        **_LANGUAGES,
        "filename": TEXT,
        "formality": _FORMALITY,
        "glossary_id": TEXT,
        "output_format": TEXT,
    },
    "file",
    "target_lang",
)
_HANDLE = object_of({"document_id": TEXT, "document_key": TEXT}, "document_id", "document_key")
_STATUS = object_of(
    {
        "document_id": TEXT,
        "status": {"enum": ["queued", "translating", "done", "error"]},
        "billed_characters": _NUMBER,
        "error_message": TEXT,
    },
    "document_id",
    "status",
)
_DOCUMENT = {
    "parameters": [_in_path("document_id")],
    "requestBody": body(object_of({"document_key": TEXT}, "document_key"), JSON, FORM),
}
_ONE_GLOSSARY = {"parameters": [_in_path("glossary_id")]}


OPERATIONS = (
    Operation(
        "/v2/translate",
        ("POST",),
        DEEPL,
        translate,
        _described(
            "Translate texts",
            object_of({"translations": list_of(_TRANSLATION)}, "translations"),
            {"requestBody": body(_TRANSLATE, JSON, FORM)},
        ),
    ),
    Operation(
        "/v2/languages",
        ("GET",),
        DEEPL,
        languages,
        _described("List languages", list_of(_LISTED), {"parameters": [query("type", _KIND, "Which languages.")]}),
    ),
    Operation(
        "/v2/languages",
        ("POST",),
        DEEPL,
        languages,
        _described(
            "List languages",
            list_of(_LISTED),
            {"requestBody": {**body(object_of({"type": _KIND}), JSON, FORM), "required": False}},
        ),
    ),
    Operation(
        "/v2/usage",
        ("GET", "POST"),
        DEEPL,
        usage,
        _described(
            "Count the characters of a key",
            object_of({"character_count": _NUMBER, "character_limit": _NUMBER}, "character_count", "character_limit"),
        ),
    ),
    Operation(
        "/v2/glossary-language-pairs",
        ("GET",),
        DEEPL,
        glossary_language_pairs,
        _described(
            "List the pairs of languages of glossaries",
            object_of(
                {"supported_languages": list_of(object_of({"source_lang": TEXT, "target_lang": TEXT}))},
                "supported_languages",
            ),
        ),
    ),
    Operation(
        "/v2/glossaries",
        ("GET",),
        DEEPL,
        list_glossaries,
        _described("List glossaries", object_of({"glossaries": list_of(_GLOSSARY)}, "glossaries")),
    ),
    Operation(
        "/v2/glossaries",
        ("POST",),
        DEEPL,
        create_glossary,
        _described("Create a glossary", _GLOSSARY, {"requestBody": body(_NEW_GLOSSARY, JSON, FORM)}, status=201),
    ),
    Operation(
        "/v2/glossaries/{glossary_id}",
        ("GET",),
        DEEPL,
        get_glossary,
        _described("Get a glossary", _GLOSSARY, _ONE_GLOSSARY),
    ),
    Operation(
        "/v2/glossaries/{glossary_id}",
        ("DELETE",),
        DEEPL,
        delete_glossary,
        _described("Delete a glossary", None, _ONE_GLOSSARY, status=204),
    ),
    Operation(
        "/v2/glossaries/{glossary_id}/entries",
        ("GET",),
        DEEPL,
        glossary_entries,
        _described("Get the entries of a glossary", TEXT, _ONE_GLOSSARY, media_type="text/tab-separated-values"),
    ),
    Operation(
        "/v2/document",
        ("POST",),
        DEEPL,
        upload_document,
        _described("Upload a document to translate", _HANDLE, {"requestBody": body(_UPLOAD, MULTIPART)}),
        takes_file=True,
    ),
    Operation(
        "/v2/document/{document_id}",
        ("POST",),
        DEEPL,
        document_status,
        _described("Get the status of a document", _STATUS, _DOCUMENT),
        is_open_to_the_end=True,
    ),
    Operation(
        "/v2/document/{document_id}/result",
        ("POST",),
        DEEPL,
        document_result,
        _described("Download a translated document", BINARY, _DOCUMENT, media_type="application/octet-stream"),
        is_open_to_the_end=True,
    ),
)
