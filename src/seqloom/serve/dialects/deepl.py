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

_TEXT = {"type": "string"}
_ERROR = {"type": "object", "required": ["message"], "properties": {"message": _TEXT, "detail": _TEXT}}
_ERRORS = {
    "400": "A parameter is missing or invalid.",
    "403": "The key is missing or invalid.",
    "404": "There is nothing with this id.",
    "408": "The body did not arrive in time.",
    "413": "The body is too long.",
    "429": "Too many requests.",
    "503": "The server is busy or ends.",
}


def described(
    summary: str,
    answer: Mapping[str, Any] | None = None,
    *,
    body: Mapping[str, Any] | None = None,
    query: Mapping[str, Any] | None = None,
    path: str | None = None,
    status: int = 200,
    media_type: str = "application/json",
    body_types: tuple[str, ...] = ("application/json", "application/x-www-form-urlencoded"),
) -> dict[str, Any]:
    """An operation of this dialect for `/openapi.json`."""
    content = {"content": {media_type: {"schema": answer}}} if answer is not None else {}
    errors = {
        code: {"description": text, "content": {"application/json": {"schema": _ERROR}}}
        for code, text in _ERRORS.items()
    }
    record: dict[str, Any] = {
        "summary": f"{summary} (DeepL)",
        "responses": {str(status): {"description": "Done.", **content}, **errors},
    }
    parameters = [{"name": name, "in": "query", "schema": schema} for name, schema in (query or {}).items()]
    if path is not None:
        parameters.append({"name": path, "in": "path", "required": True, "schema": _TEXT})
    if parameters:
        record["parameters"] = parameters
    if body is not None:
        record["requestBody"] = {
            "required": bool(body["required"]),
            "content": {kind: {"schema": body} for kind in body_types},
        }
    return record


def record_of(required: Mapping[str, Any], **optional: Any) -> dict[str, Any]:
    """The schema of an object."""
    return {"type": "object", "required": list(required), "properties": {**required, **optional}}


_NAMES = {"oneOf": [_TEXT, {"type": "array", "items": _TEXT}]}
_FLAG = {"type": ["boolean", "string", "integer"]}
_TRANSLATE = record_of(
    {"text": {"type": ["array", "string"], "items": _TEXT}, "target_lang": _TEXT},
    source_lang=_TEXT,
    context=_TEXT,
    split_sentences={"enum": ["0", "1", "nonewlines"]},
    preserve_formatting=_FLAG,
    formality={"enum": list(_FORMALITIES)},
    glossary_id=_TEXT,
    glossary_ids=_NAMES,
    tag_handling={"enum": ["xml", "html"]},
    outline_detection=_FLAG,
    non_splitting_tags=_NAMES,
    splitting_tags=_NAMES,
    ignore_tags=_NAMES,
    model_type=_TEXT,
    show_billed_characters=_FLAG,
)
_TRANSLATION = record_of({"text": _TEXT, "detected_source_language": _TEXT, "billed_characters": {"type": "integer"}})
_TRANSLATIONS = record_of({"translations": {"type": "array", "items": _TRANSLATION}})
_LANGUAGES = {
    "type": "array",
    "items": record_of({"language": _TEXT, "name": _TEXT}, supports_formality={"type": "boolean"}),
}
_KIND = {"type": {"enum": ["source", "target"]}}
_USAGE = record_of({"character_count": {"type": "integer"}, "character_limit": {"type": "integer"}})
_PAIR = record_of({"source_lang": _TEXT, "target_lang": _TEXT})
_PAIRS = record_of({"supported_languages": {"type": "array", "items": _PAIR}})
_NEW_GLOSSARY = record_of(
    {"name": _TEXT, "source_lang": _TEXT, "target_lang": _TEXT, "entries": _TEXT},
    entries_format={"enum": ["tsv", "csv"]},
)
_GLOSSARY = record_of(
    {
        "glossary_id": _TEXT,
        "name": _TEXT,
        "ready": {"type": "boolean"},
        "source_lang": _TEXT,
        "target_lang": _TEXT,
        "creation_time": _TEXT,
        "entry_count": {"type": "integer"},
    }
)
_GLOSSARIES = record_of({"glossaries": {"type": "array", "items": _GLOSSARY}})
_ID = "glossary_id"


_UPLOAD = record_of(
    {"file": {"type": "string", "format": "binary"}, "target_lang": _TEXT},
    source_lang=_TEXT,
    filename=_TEXT,
    formality={"enum": list(_FORMALITIES)},
    glossary_id=_TEXT,
    output_format=_TEXT,
)
_HANDLE = record_of({"document_id": _TEXT, "document_key": _TEXT})
_KEY = record_of({"document_key": _TEXT})
_STATUS = record_of(
    {"document_id": _TEXT, "status": {"enum": ["queued", "translating", "done", "error"]}},
    billed_characters={"type": "integer"},
    error_message=_TEXT,
)

OPERATIONS = (
    Operation(
        "/v2/translate", ("POST",), DEEPL, translate, described("Translate texts", _TRANSLATIONS, body=_TRANSLATE)
    ),
    Operation("/v2/languages", ("GET",), DEEPL, languages, described("List languages", _LANGUAGES, query=_KIND)),
    Operation(
        "/v2/languages",
        ("POST",),
        DEEPL,
        languages,
        described("List languages", _LANGUAGES, body=record_of({}, **_KIND)),
    ),
    Operation("/v2/usage", ("GET", "POST"), DEEPL, usage, described("Count characters", _USAGE)),
    Operation(
        "/v2/glossary-language-pairs",
        ("GET",),
        DEEPL,
        glossary_language_pairs,
        described("List the pairs of languages of glossaries", _PAIRS),
    ),
    Operation("/v2/glossaries", ("GET",), DEEPL, list_glossaries, described("List glossaries", _GLOSSARIES)),
    Operation(
        "/v2/glossaries",
        ("POST",),
        DEEPL,
        create_glossary,
        described("Create a glossary", _GLOSSARY, body=_NEW_GLOSSARY, status=201),
    ),
    Operation(
        "/v2/glossaries/{glossary_id}", ("GET",), DEEPL, get_glossary, described("Get a glossary", _GLOSSARY, path=_ID)
    ),
    Operation(
        "/v2/glossaries/{glossary_id}",
        ("DELETE",),
        DEEPL,
        delete_glossary,
        described("Delete a glossary", path=_ID, status=204),
    ),
    Operation(
        "/v2/glossaries/{glossary_id}/entries",
        ("GET",),
        DEEPL,
        glossary_entries,
        described("Get the entries of a glossary", _TEXT, path=_ID, media_type="text/tab-separated-values"),
    ),
    Operation(
        "/v2/document",
        ("POST",),
        DEEPL,
        upload_document,
        described("Upload a document to translate", _HANDLE, body=_UPLOAD, body_types=("multipart/form-data",)),
        takes_file=True,
    ),
    Operation(
        "/v2/document/{document_id}",
        ("POST",),
        DEEPL,
        document_status,
        described("Get the status of a document", _STATUS, body=_KEY, path="document_id"),
        is_open_to_the_end=True,
    ),
    Operation(
        "/v2/document/{document_id}/result",
        ("POST",),
        DEEPL,
        document_result,
        described(
            "Download a translated document", {}, body=_KEY, path="document_id", media_type="application/octet-stream"
        ),
        is_open_to_the_end=True,
    ),
)
