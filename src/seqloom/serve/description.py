"""Parts of `/openapi.json` that the operations of all dialects are described with."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"

Schema = Mapping[str, Any]

TEXT: Schema = {"type": "string"}
BINARY: Schema = {"type": "string", "format": "binary"}


def object_of(properties: Mapping[str, Schema], *required: str) -> Schema:
    """An object with these properties; those named are always there."""
    return {"type": "object", "properties": dict(properties), **({"required": list(required)} if required else {})}


def list_of(item: Schema) -> Schema:
    """A list of such items."""
    return {"type": "array", "items": item}


def query(name: str, schema: Schema, description: str, *, is_required: bool = False) -> dict[str, Any]:
    """A parameter of the query."""
    return {"name": name, "in": "query", "schema": schema, "description": description, "required": is_required}


def body(schema: Schema, *media_types: str) -> dict[str, Any]:
    """The body of a request, in one of these media types (JSON if none is given)."""
    return {"required": True, "content": {each: {"schema": schema} for each in media_types or (JSON,)}}


def responses(success: Schema, error: Schema, *statuses: int, media_type: str = JSON) -> dict[str, Any]:
    """Answers: 200, and an error by each of these statuses and by any other."""
    described = {str(each): (HTTPStatus(each).phrase, error) for each in statuses}
    every = {"200": ("Success", success), **described, "default": ("Error", error)}
    return {
        status: {"description": phrase, "content": {media_type: {"schema": schema}}}
        for status, (phrase, schema) in every.items()
    }
