"""What is wrong with settings, in sentences: where it was written, its full path, its value, and the way out."""

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast, get_args

import yaml
from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from seqloom.core.errors import ConfigError
from seqloom.core.schema import (
    Section,
    field_text,
    is_collection,
    kinds_of,
    plain_default,
    section_for,
    sections_of,
    type_text,
)
from seqloom.core.yaml_reader import Keys, Tree, write_value

SHOWN = 5
"""Problems written out; the rest is counted."""

_LIKE_NUMBER = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?")

_WORD = re.compile(r"[A-Za-z_][\w.]*")

OVERRIDE = "override"
"""How the place of a setting begins that was given by itself."""

CHOSEN = "defaults chosen for the data"
"""The place of a setting that nobody has written."""

_FALSE_FRIENDS = ("yes", "no", "on", "off", "y", "n")

_OTHER_NAMES = {"bahdanau": "additive", "luong": "bilinear"}
"""What some values are called by the papers they come from."""


def problems_error(section: Section, tree: Tree, error: ValidationError, *, name: str) -> ConfigError:
    """The refusal of these settings by their class as one ConfigError; `name` is the file, for what is missing."""
    sentences: dict[Keys, str] = {}
    for details in error.errors(include_url=False):
        if details["type"] == "default_factory_not_called":
            continue  # because of another field, which has an error of its own
        # The members of a union complain one by one about the same value; one sentence covers them.
        spot = _Spot(section, tree, details)
        sentences.setdefault(spot.keys, spot.sentence(name))
    # Unknown keys first: one of them is often the reason why another is missing.
    lines = sorted(sentences.values(), key=lambda sentence: "unknown key" not in sentence)
    if len(lines) > SHOWN:
        lines[SHOWN:] = [f"… and {len(lines) - SHOWN} more problems like these"]
    return ConfigError("\n".join(lines))


class _Spot:
    """Where in the settings an error lies: the way the library names it, walked along the classes.

    The library puts the names of union members into its way; these are no keys and are left out.
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
            self.keys, value = (*self.keys, str(part)), _at(value, part)
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

    def _place_of_named(self, problem: str, name: str) -> str:
        """Where the settings of a section that do not go together were written: the first that the problem names."""
        named = [(*self.keys, *word.strip(".").split(".")) for word in _WORD.findall(problem)]
        places = [self.tree.places[keys] for keys in named if keys in self.tree.places and keys not in self._around]
        places = [place for place in places if place != CHOSEN] or places
        if places:
            return places[0]
        # A section that overrides have a part in has the place of the last of them, which may be innocent.
        place = self.place(name)
        return name if place.startswith(OVERRIDE) else place

    @property
    def _around(self) -> set[Keys]:
        """The ways to something that has other settings below it."""
        return {keys[:end] for keys in self.tree.places for end in range(1, len(keys))}

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
            place = self._place_of_named(problem, name) if isinstance(value, Mapping) else self.place(name)
            return f"{place}: {where}{problem}"
        return f"{self.place(name)}: {self.path} = {_short(value)}: expected {self._expected()}{self._hint(value)}"

    def _expected(self) -> str:
        """What the field takes; for an element of a list, or a bound inside a type, what the library says."""
        if self.field is None:
            return self.details["msg"]
        if self.keys and self.keys[-1] in self.parent.model_fields:
            return field_text(self.field)
        said = self.details["msg"].removeprefix("Input should be ").removeprefix("a valid ").replace("string", "text")
        return f"{said} (the whole is a {type_text(self.field.annotation)})"

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
        question = f"; did you mean {near[0]}?" if near else self._belongs_elsewhere(str(value["kind"]), sections)
        return f"{place}: {self.path}.kind = {_short(value['kind'])}: no such kind{question} ({known})"

    def _belongs_elsewhere(self, word: str, sections: Sequence[Section]) -> str:
        """The setting of some kind that takes this word, if one does: an LSTM is no model, but the cell of one."""
        for section in sections:
            for key, field in section.model_fields.items():
                if key != "kind" and word in get_args(field.annotation):
                    return f"; set {self.path}.kind={kinds_of(section)[0]} {self.path}.{key}={word}"
        return ""

    def _suggestion(self) -> str:
        *before, wrong = self.keys
        own = list(self.parent.model_fields)
        if "." in wrong and any(path == self.path for path, _ in _paths(self.root, self.tree.values)):
            section, key = wrong.split(".", 1)
            return f"; a dot is for the command line, in a file this is written {section}: {{{key}: …}}"
        others = [kind for path, kind in _paths(self.root, self.tree.values) if path == self.path and kind]
        if others:
            *most, last = others
            of_kinds = f"kinds {', '.join(most)} and {last}" if most else f"kind {last}"
            akin = [key for key in own if wrong in key.split("_")] or difflib.get_close_matches(wrong, own, n=2)
            question = f"; did you mean {' or '.join('.'.join((*before, key)) for key in akin)}?" if akin else ""
            return f"; it is a setting of the {of_kinds}{question}"
        near = [".".join((*before, key)) for key in difflib.get_close_matches(wrong, own, n=1)]
        # A path that several kinds have counts as one of the kind in use, which comes first.
        everywhere: dict[str, str | None] = {}
        for path, kind in _paths(self.root, self.tree.values):
            if path != self.path:
                everywhere.setdefault(path, kind)
        same = [path for path in everywhere if path.split(".")[-1] == wrong]
        similar = difflib.get_close_matches(wrong, [path.split(".")[-1] for path in everywhere], n=1)
        elsewhere = same or [path for path in everywhere if not near and path.split(".")[-1] in similar]
        found = list(dict.fromkeys([*elsewhere[:1], *near] if same else [*near, *elsewhere[:1]]))
        if found:
            named = [path + (f" (of kind {kind})" if (kind := everywhere.get(path)) else "") for path in found]
            return f"; did you mean {' or '.join(named)}?"
        where = f"{'.'.join(before)} has" if before else "there are"
        return f"; {where} {', '.join(own)}"


def _paths(section: Section, values: Any, prefix: str = "") -> Iterator[tuple[str, str | None]]:
    """Every known path, with its kind where that is not the one in use; those in use come first."""
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
                word = (kinds_of(other) or (other.__name__,))[0]
                others += [(found, word) for found, _ in _paths(other, None, path + ".")]
    yield from others


def _at(value: Any, part: int | str) -> Any:
    if isinstance(value, Mapping):
        return value.get(str(part))
    is_within = isinstance(value, list) and isinstance(part, int) and part < len(value)
    return value[part] if is_within else None


def _short(value: Any) -> str:
    try:
        text = write_value(value)
    except (yaml.YAMLError, TypeError, ValueError):  # a program can give what no file can hold
        text = repr(value)
    text = repr(value) if "\n" in text else text
    return text if len(text) <= 60 else text[:59] + "…"
