"""Parts of `/openapi.json` that the operations of all dialects are described with."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from seqloom.serve.models import ServedModels
from seqloom.serve.settings import ServeConfig

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"

Schema = Mapping[str, Any]

TEXT: Schema = {"type": "string"}
BINARY: Schema = {"type": "string", "format": "binary"}

# What depends on the models and limits of a server is described once, in `components`.
SOURCE: Schema = {"$ref": "#/components/schemas/Source"}
TARGET: Schema = {"$ref": "#/components/schemas/Target"}
PAIR: Schema = {"$ref": "#/components/schemas/Pair"}
MODEL: Schema = {"$ref": "#/components/schemas/Model"}
WORDS: Schema = {"$ref": "#/components/schemas/Words"}
ALTERNATIVES: Schema = {"$ref": "#/components/schemas/Alternatives"}
RANKS: Schema = {"$ref": "#/components/schemas/Ranks"}


def components(models: ServedModels, limits: ServeConfig) -> dict[str, Any]:
    """The languages and translators of a server, and what a request may have."""
    pairs = list(models.pairs)
    names = [model.name for model in models.translators]
    schemas = {
        "Source": _one_of(
            ["auto", *sorted({source for source, _ in pairs})], "A language, or auto. Regions are ignored: de_AT is de."
        ),
        "Target": _one_of(sorted({target for _, target in pairs}), "A language. Regions are ignored: de_AT is de."),
        "Pair": _one_of([f"{source}|{target}" for source, target in pairs], "Two languages."),
        "Model": _one_of([*range(len(names)), *names], "The number or the name of a translator."),
        "Words": {"type": "string", "minLength": 1, "maxLength": limits.characters},
        "Alternatives": {"type": "integer", "minimum": 0, "maximum": limits.alternatives, "default": 0},
        "Ranks": {"type": "integer", "minimum": 1, "maximum": limits.alternatives + 1, "default": 1},
    }
    return {"schemas": schemas}


def _one_of(values: Sequence[str | int], description: str) -> Schema:
    """One of these values; without any, no value is right."""
    return {"description": description, **({"enum": list(values)} if values else {"not": {}})}


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
