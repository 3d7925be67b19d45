"""Settings: typed, frozen, strict, read from YAML and `path.to.field=value`.

The order is: defaults of the classes, defaults chosen for the data, the file, the overrides. Whatever is wrong is said
with its place, its full path and the nearest thing that would have been right.
"""

import codecs
import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from seqloom.core.config_problems import CHOSEN, OVERRIDE, problems_error
from seqloom.core.errors import ConfigError
from seqloom.core.files import require_file
from seqloom.core.schema import FieldDoc, describe_fields, plain_default, plain_value, section_for
from seqloom.core.yaml_reader import Keys, Tree, parse_yaml, write_value

__all__ = ["Config", "FieldDoc", "Tree", "describe_fields", "merge", "read_config_file", "resolve", "to_yaml"]

C = TypeVar("C", bound="Config")

_PATH = re.compile(r"[^\s.=]+(\.[^\s.=]+)*")
_COMMENT_WIDTH = 100

LARGEST = 1 << 20
"""Bytes of a settings file. A complete one has some thousands; to read a hundred million would take hours."""


class Config(BaseModel):
    """The base of every settings class. A docstring after each field is its description.

    Types are strict: a whole number may stand for a number, nothing else is converted. Numbers are finite.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True, allow_inf_nan=False
    )

    def __init__(self, /, **values: Any) -> None:
        """Settings from Python. What is wrong with them is a ConfigError here, too."""
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise problems_error(type(self), Tree(values), error, name=type(self).__name__) from error

    # Says to pydantic that it need not call this one for sections inside a whole, whose errors it gathers by itself.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuse to change a setting."""
        raise ConfigError(
            f"{name} of {type(self).__name__} cannot be changed: settings are read-only. Create new ones: "
            f"{type(self).__name__}(…, {name}=…)"
        )

    @classmethod
    def follow(cls, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """The given settings with what follows from them, before defaults are laid under them; here nothing does."""
        return values


def resolve(
    cls: type[C],
    *,
    defaults: Mapping[str, Any] | None = None,
    file: Path | None = None,
    overrides: Sequence[str] = (),
) -> C:
    """The settings that defaults, file and overrides give together, the later ones winning.

    Where a later one chooses another `kind` of section, the defaults of that section are dropped as a whole.
    """
    given = read_config_file(file) if file is not None else Tree()
    for override in overrides:
        given = merge(given, read_override(override))
    chosen = _of_same_kind(plain_value(defaults or {}), given.values)
    tree = merge(Tree(chosen, _places(chosen, CHOSEN)), given)
    tree = Tree(_with_class_defaults(cls, tree.values), tree.places)
    try:
        # Through JSON, because there a path or a tuple may come as text or list without loosening the types.
        return cls.model_validate_json(json.dumps(tree.values))
    except ValidationError as error:
        raise problems_error(cls, tree, error, name=str(file) if file else "settings") from error


def read_config_file(path: Path) -> Tree:
    """The settings written in a YAML file, with the line of each key."""
    require_file(path)
    with path.open("rb") as stream:
        written = stream.read(LARGEST + 1)
    if len(written) > LARGEST:
        raise ConfigError(f"{path} is larger than {LARGEST:,} bytes; is this a file of settings?")
    text = _decoded(written, path)
    values, places = parse_yaml(text, lambda line: f"{path}:{line}")
    if values is None:
        return Tree()
    if not isinstance(values, dict):
        raise ConfigError(
            f"{path}:1: settings are keys with values, such as `seed: 1`; found {write_value(values)[:60]}"
        )
    return Tree(values, places)


def _decoded(written: bytes, path: Path) -> str:
    if written.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ConfigError(f"{path}:1: settings must be UTF-8 text, and this is UTF-16; save it as UTF-8")
    try:
        return written.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        byte = error.object[error.start]
        raise ConfigError(f"{path}:{line}: settings must be UTF-8 text; the byte 0x{byte:02X} is none") from error


def read_override(text: str) -> Tree:
    """One `path.to.field=value`; the value is read as in a file, so lists and mappings may be given."""
    path, equals, value = text.partition("=")
    place = f"{OVERRIDE} {text!r}"
    if not equals or not _PATH.fullmatch(path):
        raise ConfigError(f"{place} is not of the form path.to.field=value, such as model.heads=8")
    keys = tuple(path.split("."))
    inner, places = parse_yaml(value, lambda _: place)
    for key in reversed(keys):
        inner = {key: inner}
    outer = {keys[:end]: place for end in range(1, len(keys) + 1)}
    return Tree(inner, outer | {(*keys, *below): place for below in places})


def merge(base: Tree, over: Tree) -> Tree:
    """The second tree laid over the first: sections are joined key by key, all other values are replaced."""
    return Tree(_joined(base.values, over.values), {**base.places, **over.places})


def _joined(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in over.items():
        old = result.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        result[key] = _joined(old, value) if both else value  # type: ignore[arg-type]
    return result


def _places(values: Mapping[str, Any], place: str, keys: Keys = ()) -> dict[Keys, str]:
    places = {(*keys, key): place for key in values}
    for key, value in values.items():
        if isinstance(value, Mapping):
            places |= _places(value, place, (*keys, key))
    return places


def _of_same_kind(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """The base without the sections for which `over` chooses another kind."""
    if "kind" in base and "kind" in over and base["kind"] != over["kind"]:
        return {}
    return {
        key: _of_same_kind(value, over[key])
        if isinstance(value, Mapping) and isinstance(over.get(key), Mapping)
        else value
        for key, value in base.items()
    }


def _with_class_defaults(cls: type[BaseModel], values: Mapping[str, Any]) -> dict[str, Any]:
    """Lay each section over the section that is its default, so that setting one field keeps its neighbours."""
    result = dict(cls.follow(values) if issubclass(cls, Config) else values)
    for name, field in cls.model_fields.items():
        value = result.get(name)
        if not isinstance(value, Mapping):
            continue
        default = None if field.is_required() else plain_default(field)
        if isinstance(default, Mapping):
            value = _joined(_of_same_kind(default, value), value)
        section = section_for(field.annotation, value.get("kind"))
        result[name] = _with_class_defaults(section, value) if section else value
    return result


def to_yaml(config: Config, *, comments: bool) -> str:
    """The complete settings as a YAML file, which reads back equal; with comments, each field is explained."""
    return "\n".join(_lines(config, "", comments=comments)) + "\n"


def _lines(config: BaseModel, indent: str, *, comments: bool) -> list[str]:
    lines: list[str] = []
    plain = config.model_dump(mode="json")
    for name, field in type(config).model_fields.items():
        if comments and field.description:
            if lines and not indent:
                lines.append("")
            words = " ".join(field.description.split())
            lines += textwrap.wrap(words, _COMMENT_WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")
        value = getattr(config, name)
        if isinstance(value, BaseModel) and type(value).model_fields:
            lines += [f"{indent}{name}:", *_lines(value, indent + "  ", comments=comments)]
        else:
            lines.append(f"{indent}{name}: {write_value(plain[name])}")
    return lines
