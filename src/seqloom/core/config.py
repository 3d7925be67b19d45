"""Settings: typed, frozen, strict, read from YAML and `path.to.field=value`.

The order is: defaults of the classes, defaults chosen for the data, the file, the overrides. An error has the
place, the full path and the nearest valid alternative.
"""

import bisect
import codecs
import difflib
import json
import math
import re
import textwrap
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from seqloom.core.errors import ConfigError
from seqloom.core.files import require_file

C = TypeVar("C", bound="Config")

_PATH = re.compile(r"[^\s.=]+(\.[^\s.=]+)*")
_COMMENT_WIDTH = 100

MAX_NAMED_KINDS = 3
"""Kinds that a message shows how to choose."""

MAX_CONFIG_BYTES = 1 << 20
"""Bytes of a settings file. A complete one has some thousands; to read a hundred million would take hours."""


Keys = tuple[str, ...]
"""The way from the root to a value: `("model", "heads")`. Places in a list are numbers written as text."""


@dataclass(frozen=True)
class Tree:
    """Nested plain values, and where each key was written: `run.yaml:12` or `override 'seed=3'`."""

    values: Mapping[str, Any] = dataclass_field(default_factory=dict)
    places: Mapping[Keys, str] = dataclass_field(default_factory=dict)


class Config(BaseModel):
    """The base of every settings class. A docstring after each field is its description.

    Types are strict: a whole number is accepted as a number, nothing else is converted. Numbers are finite.
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

    # Pydantic need not call this for nested sections: it collects their errors itself.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuse to change a setting."""
        raise ConfigError(
            f"{name} of {type(self).__name__} cannot be changed: settings are read-only. Create new ones: "
            f"{type(self).__name__}(…, {name}=…)"
        )

    @classmethod
    def follow(cls, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """The given settings and what follows from them, before defaults are added; here nothing does."""
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
    named = cls.follow(tree.values)
    tree = Tree(_with_class_defaults(cls, tree.values), tree.places)
    try:
        # Through JSON, because there a path or a tuple may come as text or list without loosening the types.
        config = cls.model_validate_json(json.dumps(tree.values))
    except ValidationError as error:
        raise problems_error(cls, tree, error, name=str(file) if file else "settings") from error
    _mark_named(config, named)
    return config


def _mark_named(config: BaseModel, values: Mapping[str, Any]) -> None:
    """Let `model_fields_set` hold what was named or follows: the other fields of a section have their defaults."""
    object.__setattr__(config, "__pydantic_fields_set__", set(values) & set(type(config).model_fields))
    for name in type(config).model_fields:
        section, value = getattr(config, name), values.get(name)
        if isinstance(section, BaseModel):
            _mark_named(section, value if isinstance(value, Mapping) else {})


def read_config_file(path: Path) -> Tree:
    """The settings written in a YAML file, with the line of each key."""
    require_file(path)
    with path.open("rb") as stream:
        written = stream.read(MAX_CONFIG_BYTES + 1)
    if len(written) > MAX_CONFIG_BYTES:
        raise ConfigError(f"{path} is larger than {MAX_CONFIG_BYTES:,} bytes; is this a file of settings?")
    if written.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ConfigError(f"{path}:1: settings must be UTF-8 text, and this is UTF-16; save it as UTF-8")
    try:
        text = written.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, byte = written[: error.start].count(b"\n") + 1, written[error.start]
        raise ConfigError(f"{path}:{line}: settings must be UTF-8 text; the byte 0x{byte:02X} is invalid") from error
    values, places = parse_yaml(text, lambda line: f"{path}:{line}")
    if values is None:
        return Tree()
    if not isinstance(values, dict):
        raise ConfigError(
            f"{path}:1: settings are keys with values, such as `seed: 1`; found {write_value(values)[:60]}"
        )
    return Tree(values, places)


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
    """The second tree over the first: sections are merged key by key, all other values are replaced."""
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
    """Merge each section with its default section, so that setting one field keeps the others."""
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


# --- settings classes in words ----------------------------------------------------------------------------------------

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
        is_section = bool(inner) and not is_collection(field.annotation)
        default = None if field.is_required() else plain_default(field)
        if field.is_required():
            text = "required"
        elif is_section and isinstance(default, Mapping):
            text = str(default.get("kind", ""))
        else:
            text = write_value(default)
        yield FieldDoc(path, field_text(field), text, field.description or "", kind)
        for each in inner if is_section else ():
            own = kinds_of(each)
            yield from _describe(each, prefix=path + ".", kind=own[0] if len(inner) > 1 and own else kind)


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
        f"{word} {bound:,}" if isinstance(bound, int) else f"{word} {bound:g}"
        for part in field.metadata
        for name, word in _BOUNDS.items()
        if (bound := getattr(part, name, None)) is not None
    ]
    least = [part.min_length for part in field.metadata if getattr(part, "min_length", None)]
    return ", ".join([type_text(field.annotation), *bounds, *(f"{count} or more" for count in least)])


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


# --- problems: the place of a setting, its full path, its value and the remedy ----------------------------------------

MAX_SHOWN_PROBLEMS = 5
"""Problems written out; the rest is counted."""

_LIKE_NUMBER = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?")

_WORD = re.compile(r"[A-Za-z_][\w.]*")

OVERRIDE = "override"
"""How the place of a setting begins that was given by itself."""

CHOSEN = "defaults chosen for the data"
"""The place of a setting that was not given."""

_FALSE_FRIENDS = ("yes", "no", "on", "off", "y", "n")

_OTHER_NAMES = {"bahdanau": "additive", "luong": "bilinear"}
"""What some values are called by the papers they come from."""


def problems_error(section: Section, tree: Tree, error: ValidationError, *, name: str) -> ConfigError:
    """The refusal of these settings by their class as one ConfigError; `name` is the file, for what is missing."""
    sentences: dict[Keys, str] = {}
    for details in error.errors(include_url=False):
        if details["type"] == "default_factory_not_called":
            continue  # because of another field, which has its own error
        # The members of a union complain one by one about the same value; one sentence covers them.
        spot = _Spot(section, tree, details)
        sentences.setdefault(spot.keys, spot.sentence(name))
    # Unknown keys first: one of them is often the reason why another is missing.
    lines = sorted(sentences.values(), key=lambda sentence: "unknown key" not in sentence)
    if len(lines) > MAX_SHOWN_PROBLEMS:
        lines[MAX_SHOWN_PROBLEMS:] = [f"… and {len(lines) - MAX_SHOWN_PROBLEMS} more problems like these"]
    return ConfigError("\n".join(lines))


class _Spot:
    """Where in the settings an error lies: pydantic's location, followed through the classes.

    Pydantic puts the names of union members into its path; these are not keys and are left out.
    """

    def __init__(self, root: Section, tree: Tree, details: ErrorDetails) -> None:
        self.root, self.tree, self.details = root, tree, details
        self.keys: Keys = ()
        self.parent: Section = root
        """The class that has the last key as a field, or the list or mapping that holds it."""
        self.field: FieldInfo | None = None
        section: Section | None = root
        parts, value = list(details["loc"]), cast("Any", tree.values)
        while parts:
            part = parts.pop(0)
            is_element = section is None
            if is_element and not isinstance(part, int) and not (isinstance(value, Mapping) and part in value):
                continue
            self.keys = (*self.keys, str(part))
            if isinstance(value, Mapping):
                value = value.get(str(part))
            else:
                value = value[part] if isinstance(value, list) and isinstance(part, int) and part < len(value) else None
            if section is not None:
                self.parent, self.field = section, section.model_fields.get(str(part))
            annotation = self.field.annotation if self.field else None
            inner, section = sections_of(annotation), None
            if inner and isinstance(value, Mapping) and (is_element or not is_collection(annotation)):
                is_named = len(inner) > 1 and bool(parts)
                section = section_for(annotation, parts.pop(0) if is_named else None)

    @property
    def path(self) -> str:
        path = ".".join(self.keys)
        # A key with a line end in it must not look like a second message.
        return path if path and path.isprintable() else write_value(path)

    def place(self, name: str) -> str:
        """Where the value, or else the section around it, was written."""
        around = (self.keys[:end] for end in range(len(self.keys), 0, -1))
        return next((self.tree.places[keys] for keys in around if keys in self.tree.places), name)

    def sentence(self, name: str) -> str:
        kind, value = self.details["type"], self.details["input"]
        if kind == "extra_forbidden":
            return f"{self.place(name)}: unknown key {self.path} (value {_short(value)}){self._suggestion()}"
        if kind == "missing":
            words = f": {self.field.description}" if self.field and self.field.description else ""
            return f"{self.place(name)}: {self.path} is missing{words}"
        if kind.startswith("union_tag"):
            return self._about_kind(name, value)
        if kind == "value_error":
            problem = str(self.details.get("ctx", {}).get("error", self.details["msg"]))
            where = f"{self.path}: " if self.keys else ""
            place = self.place(name)
            if isinstance(value, Mapping):
                # Conflicting settings of a section: the place of the first that the problem names. A section that
                # overrides have a part in has the place of the last of them, which may be valid.
                named = [(*self.keys, *word.strip(".").split(".")) for word in _WORD.findall(problem)]
                around = {keys[:end] for keys in self.tree.places for end in range(1, len(keys))}
                places = [self.tree.places[keys] for keys in named if keys in self.tree.places and keys not in around]
                places = [each for each in places if each != CHOSEN] or places
                place = places[0] if places else name if place.startswith(OVERRIDE) else place
            return f"{place}: {where}{problem}"
        # What the field takes; for an element of a list, or a bound inside a type, pydantic's message.
        expected = self.details["msg"]
        if self.field is not None and self.keys and self.keys[-1] in self.parent.model_fields:
            expected = field_text(self.field)
        elif self.field is not None:
            expected = expected.removeprefix("Input should be ").removeprefix("a valid ").replace("string", "text")
            expected += f" (the whole is a {type_text(self.field.annotation)})"
        return f"{self.place(name)}: {self.path} = {_short(value)}: expected {expected}{self._hint(value)}"

    def _hint(self, value: Any) -> str:
        expected = self.details["type"]
        if expected.startswith("string") and isinstance(value, (bool, int, float)):
            return f'; put it in quotes: "{write_value(value)}"'
        if expected.startswith("bool") and str(value).lower() in _FALSE_FRIENDS:
            return "; write true or false"
        if expected.startswith("int") and isinstance(value, float) and value.is_integer():
            return f"; write {int(value)}"
        if expected.startswith(("int", "float")) and isinstance(value, str) and _LIKE_NUMBER.fullmatch(value):
            return "; write it without quotes and without leading zeros"
        if expected == "finite_number":
            return "; it must be finite"
        other = _OTHER_NAMES.get(str(value).lower())
        if other is not None and self.field is not None and other in get_args(self.field.annotation):
            return f"; {value} is {self.path}={other}"
        return ""

    def _about_kind(self, name: str, value: Any) -> str:
        sections = sections_of(self.field.annotation) if self.field else ()
        kinds = [kind for section in sections for kind in kinds_of(section)]
        known = f"known kinds: {', '.join(kinds)}"
        if not isinstance(value, Mapping) or "kind" not in value:
            return f"{self.place(name)}: {self.path} needs a kind; {known}"
        place = self.tree.places.get((*self.keys, "kind"), self.place(name))
        near = difflib.get_close_matches(str(value["kind"]), kinds, n=1)
        # A word may be a setting of some kind: an LSTM is not a model, but a cell.
        elsewhere = (
            f"; set {self.path}.kind={kinds_of(section)[0]} {self.path}.{key}={value['kind']}"
            for section in sections
            for key, field in section.model_fields.items()
            if key != "kind" and str(value["kind"]) in get_args(field.annotation)
        )
        question = f"; did you mean {near[0]}?" if near else next(elsewhere, "")
        return f"{place}: {self.path}.kind = {_short(value['kind'])}: no such kind{question} ({known})"

    def _suggestion(self) -> str:
        *before, wrong = self.keys
        own = list(self.parent.model_fields)
        if "." in wrong and any(path == self.path for path, _ in _paths(self.root, self.tree.values)):
            section, key = wrong.split(".", 1)
            return f"; a dot is for the command line, in a file this is written {section}: {{{key}: …}}"
        others = [kind for path, kind in _paths(self.root, self.tree.values) if path == self.path and kind]
        if others:
            # Where another kind of an inner section has it, that of an outer one stays.
            deepest = max(kind.count(".") for kind in others)
            others = list(dict.fromkeys(kind for kind in others if kind.count(".") == deepest))
            *most, last = map(_kind_in, others)
            of_kinds = f"kinds {', '.join(most)} and {last}" if most else f"kind {last}"
            if len(others) <= MAX_NAMED_KINDS:
                of_kinds += f" ({' or '.join(others)})"
            akin = [key for key in own if wrong in key.split("_")] or difflib.get_close_matches(wrong, own, n=2)
            question = f"; did you mean {' or '.join('.'.join((*before, key)) for key in akin)}?" if akin else ""
            return f"; it is a setting of the {of_kinds}{question}"
        near = [".".join((*before, key)) for key in difflib.get_close_matches(wrong, own, n=1)]
        # A path that several kinds have counts as one of the kind in use, which comes first.
        everywhere: dict[str, str | None] = {}
        for path, kind in _paths(self.root, self.tree.values):
            if path != self.path:
                everywhere.setdefault(path, kind)
        is_word_of_own = any(wrong in path.split(".")[-1].split("_") for path in near)  # dropout in dropout_rate
        same = [path for path in everywhere if path.split(".")[-1] == wrong and not is_word_of_own]
        similar = difflib.get_close_matches(wrong, [path.split(".")[-1] for path in everywhere], n=1)
        elsewhere = same or [path for path in everywhere if not near and path.split(".")[-1] in similar]
        found = list(dict.fromkeys([*elsewhere[:1], *near] if same else [*near, *elsewhere[:1]]))
        if found:
            named = [
                path + (f" (of kind {_kind_in(kind)})" if (kind := everywhere.get(path)) else "") for path in found
            ]
            return f"; did you mean {' or '.join(named)}?"
        where = f"{'.'.join(before)} has" if before else "there are"
        return f"; {where} {', '.join(own)}"


def _paths(section: Section, values: Any, prefix: str = "") -> Iterator[tuple[str, str | None]]:
    """Every known path, with the setting that chooses its kind where it is not in use; those in use come first."""
    others: list[tuple[str, str | None]] = []
    for key, field in section.model_fields.items():
        path = prefix + key
        yield path, None
        value = values.get(key) if isinstance(values, Mapping) else None
        if value is None and not field.is_required():
            value = plain_default(field)
        kind = value.get("kind") if isinstance(value, Mapping) else None
        inner: Sequence[Section] = sections_of(field.annotation)
        chosen = section_for(field.annotation, kind)
        if chosen is not None:
            yield from _paths(chosen, value, path + ".")
        for other in inner:
            if other is not chosen:
                kinds = kinds_of(other)
                word = f"{path}.kind={kinds[0]}" if kinds else other.__name__
                others += [(found, word) for found, _ in _paths(other, None, path + ".")]
    yield from others


def _kind_in(setting: str) -> str:
    """The kind that a setting such as model.kind=transformer chooses."""
    return setting.rpartition("=")[2]


def _short(value: Any) -> str:
    try:
        text = write_value(value)
    except (yaml.YAMLError, TypeError, ValueError):  # a program can give what no file can hold
        text = repr(value)
    return _cut(repr(value) if "\n" in text else text)


def _cut(text: str) -> str:
    return text if len(text) <= 60 else text[:59] + "…"


# --- YAML with its traps closed, and the line of every key ------------------------------------------------------------
#
#     no, yes, on, off   text (only true and false are booleans)      1e-3, 1_000    numbers
#     12:30, 010, 0x1F   text                                         a key twice    an error with both lines
#
# Anchors, aliases, merge keys and tags other than the plain ones are refused: every value is written where it is used,
# and a file cannot grow while it is read.

MAX_DEPTH = 40
"""Levels of nesting; the deepest setting has five."""

MAX_DIGITS = 18
"""Digits of a whole number, so that it has room in the 64 bits that torch and numpy count with."""

_TAG = "tag:yaml.org,2002:"
_PLAIN = tuple(_TAG + name for name in ("str", "int", "float", "bool", "null"))
_WHOLE = r"[-+]?(?:0|[1-9][0-9]*(?:_[0-9]+)*)"
_PATTERNS = {
    "null": re.compile(r"^(?:~|null|Null|NULL|)$"),
    "bool": re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"),
    "int": re.compile(rf"^{_WHOLE}$"),
    "float": re.compile(
        rf"^(?:{_WHOLE}\.[0-9]*|[-+]?\.[0-9]+|{_WHOLE}(?=[eE]))(?:[eE][-+]?[0-9]+)?$"
        r"|^[-+]?\.(?:inf|Inf|INF)$|^\.(?:nan|NaN|NAN)$"
    ),
}


def parse_yaml(text: str, place: Callable[[int], str]) -> tuple[Any, dict[Keys, str]]:
    """A YAML document as plain values, with the place of each key; `place` makes one from a line number."""
    lines = [found.end() for found in re.finditer(r"\r\n?|\n", text)]

    def place_of(mark: Any) -> str:
        # By its index, because PyYAML also ends lines at U+0085, U+2028 and U+2029.
        return place(bisect.bisect_right(lines, mark.index) + 1 if mark else 1)

    try:
        node = _Loader(text).get_single_node()
        places: dict[Keys, str] = {}
        return (None if node is None else _build(node, (), places, place_of)), places
    except yaml.MarkedYAMLError as error:
        is_token = "cannot start any token" in str(error)
        advice = "indent with spaces, not tabs" if "\\t" in str(error) else "put the text in quotes" if is_token else ""
        problem = f"{error.problem or error}{advice and f' ({advice})'}"
        raise ConfigError(f"{place_of(error.problem_mark)}: not valid YAML: {problem}") from error
    except (yaml.YAMLError, RecursionError) as error:
        problem = str(error).partition("\n")[0] if isinstance(error, yaml.YAMLError) else "nested too deeply"
        raise ConfigError(f"{place(1)}: not valid YAML: {problem}") from error


def write_value(value: Any) -> str:
    """A plain value on one line, so that `parse_yaml` reads it back equal."""
    text: str = yaml.dump(value, Dumper=_Dumper, default_flow_style=True, allow_unicode=True, width=math.inf)
    return text.removesuffix("...\n").rstrip("\n")


class _Loader(yaml.SafeLoader):
    """Composes nodes by our patterns; values are built below, so no constructor of the library ever runs."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - as the base has it

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        name = getattr(event, "anchor", None)
        if name is not None:
            what = f"an alias (*{name})" if isinstance(event, yaml.AliasEvent) else f"an anchor (&{name})"
            problem = f"{what} is not supported; write the value out, or quote it if it is text"
            raise yaml.composer.ComposerError(None, None, problem, event.start_mark)
        return super().compose_node(parent, index)


class _Dumper(yaml.SafeDumper):
    """Quotes what `_Loader`, or another reader of YAML, would take for something else than text."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the signature is the library's
        return True


for _name, _pattern in _PATTERNS.items():
    for _class in (_Loader, _Dumper):
        _class.add_implicit_resolver(_TAG + _name, _pattern, None)


def _write_text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    # A text of several lines would be folded over lines, in which the outer indentation gets lost.
    return dumper.represent_scalar(_TAG + "str", value, style='"' if not value.isprintable() else None)


def _write_number(dumper: yaml.SafeDumper, value: float) -> yaml.ScalarNode:
    special = {math.inf: ".inf", -math.inf: "-.inf"}.get(value, ".nan" if math.isnan(value) else repr(value))
    return dumper.represent_scalar(_TAG + "float", special)


_Dumper.add_representer(str, _write_text)
_Dumper.add_representer(float, _write_number)


def _build(node: yaml.Node, keys: Keys, places: dict[Keys, str], place: Callable[[Any], str]) -> Any:
    here = place(node.start_mark)
    if len(keys) == MAX_DEPTH:
        raise ConfigError(f"{here}: nested too deeply to be settings")
    places.setdefault(keys, here)
    if isinstance(node, yaml.ScalarNode):
        return _scalar(node, here)
    if node.tag not in (_TAG + "seq", _TAG + "map"):
        raise ConfigError(f"{here}: the tag {node.tag!r} is not supported; write the plain values")
    if isinstance(node, yaml.SequenceNode):
        return [_build(part, (*keys, str(at)), places, place) for at, part in enumerate(node.value)]
    assert isinstance(node, yaml.MappingNode)
    values: dict[str, Any] = {}
    firsts: dict[str, str] = {}
    for key, value in node.value:
        here = place(key.start_mark)
        if not isinstance(key, yaml.ScalarNode):
            raise ConfigError(f"{here}: a key must be a single word")
        if key.tag not in _PLAIN:
            raise ConfigError(f"{here}: the tag {key.tag!r} is not supported; write the plain key")
        if key.value == "<<" and not key.style:
            raise ConfigError(f"{here}: a merge key (<<) is not supported; write the keys out")
        name = _whole_text(key.value, here)
        if name in values:
            full, line = ".".join((*keys, name)), firsts[name].rpartition(":")[2]
            first = f"line {line}" if line.isdecimal() else "the same line"
            raise ConfigError(f"{here}: {full} is given twice, first in {first}; keep one of them")
        firsts[name] = places[(*keys, name)] = here
        values[name] = _build(value, (*keys, name), places, place)
    return values


def _scalar(node: yaml.ScalarNode, place: str) -> Any:
    text: str = node.value
    match node.tag.removeprefix(_TAG):
        case "str":
            return _whole_text(text, place)
        case "null" if _PATTERNS["null"].match(text):
            return None
        case "bool" if _PATTERNS["bool"].match(text):
            return text.lower() == "true"
        case "int" if _PATTERNS["int"].match(text):
            if sum(map(str.isdecimal, text)) > MAX_DIGITS:
                raise ConfigError(f"{place}: {_cut(text)} is too large a number; give at most {MAX_DIGITS} digits")
            return int(text)
        case "float" if _PATTERNS["float"].match(text) or _PATTERNS["int"].match(text):
            lowered = text.lower()
            return float(lowered.replace(".inf", "inf").replace(".nan", "nan"))
        case other:
            raise ConfigError(f"{place}: {_cut(text)!r} cannot be read as {other!r}; write the plain value")


def _whole_text(text: str, place: str) -> str:
    """A text, unless an escape has made what no file name can hold: a NUL, or half of a character."""
    if "\0" in text:
        raise ConfigError(f"{place}: {_cut(text)!r} holds a NUL character; leave it out")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ConfigError(f"{place}: {_cut(text)!a} holds half of a character (a lone surrogate); write it whole")
    return text
