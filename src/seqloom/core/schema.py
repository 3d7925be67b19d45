"""The description of a settings class: its sections, its kinds, and each field in words."""

import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from seqloom.core.yaml_files import write_value

Section = type[BaseModel]

_WORDS: Mapping[Any, str] = {
    int: "whole number",
    float: "number",
    str: "text",
    bool: "true or false",
    Path: "path",
    type(None): "null",
    Any: "any value",
}
_BOUNDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below", "multiple_of": "a multiple of"}


@dataclass(frozen=True)
class FieldDoc:
    """One setting in words. `kind` is the kind of section it belongs to, where its section has several."""

    path: str
    type: str
    default: str
    description: str
    kind: str | None = None


def describe_fields(section: Section) -> list[FieldDoc]:
    """Every setting below a class, in the order of the classes, sections in their place."""
    return list(_describe(section, prefix="", kind=None))


def _describe(section: Section, *, prefix: str, kind: str | None) -> Iterator[FieldDoc]:
    for name, field in section.model_fields.items():
        path = prefix + name
        inner = sections_of(field.annotation)
        if not inner or is_collection(field.annotation):
            default = "required" if field.is_required() else write_value(plain_default(field))
            yield FieldDoc(path, field_text(field), default, field.description or "", kind)
            continue
        yield FieldDoc(path, field_text(field), _section_default(field), field.description or "", kind)
        for each in inner:
            own = kinds_of(each)
            yield from _describe(each, prefix=path + ".", kind=own[0] if len(inner) > 1 and own else kind)


def _section_default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default = plain_default(field)
    return str(default.get("kind", "")) if isinstance(default, Mapping) else write_value(default)


def plain_default(field: FieldInfo) -> Any:
    """The default of a field that has one, as plain values."""
    return plain_value(field.get_default(call_default_factory=True, validated_data={}))


def plain_value(value: Any) -> Any:
    """A value of a settings class as YAML and JSON know it: mappings, lists, text, numbers, true, false, null."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {str(key): plain_value(part) for key, part in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain_value(part) for part in value]
    return str(value) if isinstance(value, Path) else value


def sections_of(annotation: Any) -> tuple[Section, ...]:
    """The settings classes that an annotation admits, also as parts of a list or mapping."""
    annotation = _bare(annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return (annotation,)
    return tuple(section for part in get_args(annotation) for section in sections_of(part))


def is_collection(annotation: Any) -> bool:
    """Whether an annotation is a list or a mapping (or null)."""
    parts = [part for part in _members(annotation) if part is not type(None)]
    return any(get_origin(part) in (tuple, list, dict, set, frozenset, Mapping) for part in parts)


def kinds_of(section: Section) -> tuple[str, ...]:
    """The values by which a section is chosen from several: those of its field `kind`."""
    field = section.model_fields.get("kind")
    annotation = _bare(field.annotation) if field else None
    return get_args(annotation) if get_origin(annotation) is Literal else ()


def section_for(annotation: Any, kind: Any) -> Section | None:
    """The settings class of a value of this kind, if the annotation admits it."""
    sections = sections_of(annotation)
    if len(sections) == 1:
        return sections[0]
    return next((section for section in sections if kind in kinds_of(section)), None)


def field_text(field: FieldInfo) -> str:
    """The type of a field with its bounds: "whole number, at least 1"."""
    bounds = [
        f"{word} {_shown(getattr(part, name))}"
        for part in field.metadata
        for name, word in _BOUNDS.items()
        if getattr(part, name, None) is not None
    ]
    least = [part.min_length for part in field.metadata if getattr(part, "min_length", None)]
    return ", ".join([type_text(field.annotation), *bounds, *(f"{count} or more" for count in least)])


def _shown(bound: float | int) -> str:
    return f"{bound:,}" if isinstance(bound, int) else f"{bound:g}"


def type_text(annotation: Any) -> str:
    """An annotation in words: "list of text", "one of greedy, beam", "number or null"."""
    annotation = _bare(annotation)
    if annotation in _WORDS:
        return _WORDS[annotation]
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return ("one of " if len(inner) > 1 else "") + ", ".join(write_value(value) for value in inner)
    if origin in (Union, types.UnionType):
        sections = sections_of(annotation)
        kinds = [kind for section in sections for kind in kinds_of(section)]
        others = [part for part in _members(annotation) if not sections_of(part)]
        chosen = [f"section with kind: {', '.join(kinds)}"] if len(sections) > 1 and kinds else []
        rest = others if chosen else _members(annotation)
        return " or ".join([*chosen, *(type_text(part) for part in rest)])
    if origin is tuple and Ellipsis not in inner:
        return f"list of {len(inner)} ({', '.join(type_text(part) for part in inner)})"
    if origin in (tuple, list, set, frozenset):
        return f"list of {type_text(inner[0])}"
    if origin is not None and issubclass(origin, Mapping):
        return f"mapping from {type_text(inner[0])} to {type_text(inner[1])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"section ({', '.join(annotation.model_fields)})"
    return getattr(annotation, "__name__", str(annotation))


def _bare(annotation: Any) -> Any:
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return annotation


def _members(annotation: Any) -> list[Any]:
    """The alternatives of a union, flat; of anything else, itself."""
    annotation = _bare(annotation)
    if get_origin(annotation) in (Union, types.UnionType):
        return [member for part in get_args(annotation) for member in _members(part)]
    return [annotation]
