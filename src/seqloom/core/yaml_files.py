"""YAML with its traps closed, and the line of every key.

    no, yes, on, off   text (only true and false are booleans)      1e-3, 1_000    numbers
    12:30, 010, 0x1F   text                                         a key twice    an error with both lines

Anchors, aliases, merge keys and tags other than the plain ones are refused: every value is
written where it is used, and a file cannot grow while it is read.
"""

import bisect
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from seqloom.core.errors import ConfigError

Keys = tuple[str, ...]
"""The way from the root to a value: `("model", "heads")`. Places in a list are numbers written as text."""

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


@dataclass(frozen=True)
class Tree:
    """Nested plain values, and where each key was written: `run.yaml:12` or `override 'seed=3'`."""

    values: Mapping[str, Any] = field(default_factory=dict)
    places: Mapping[Keys, str] = field(default_factory=dict)


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
        problem = f"{error.problem or error}{_advice(str(error))}"
        raise ConfigError(f"{place_of(error.problem_mark)}: not valid YAML: {problem}") from error
    except yaml.YAMLError as error:
        problem = str(error).partition("\n")[0]
        raise ConfigError(f"{place(1)}: not valid YAML: {problem}") from error


def write_value(value: Any) -> str:
    """A plain value on one line, so that `parse_yaml` reads it back equal."""
    text: str = yaml.dump(value, Dumper=_Dumper, default_flow_style=True, allow_unicode=True, width=math.inf)
    return text.removesuffix("...\n").rstrip("\n")


# --- reading ---------------------------------------------------------------------------------------------------------


class _Loader(yaml.SafeLoader):
    """Composes nodes by our patterns; values are built below, so no constructor of the library ever runs."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - as the base has it

    depth = 0
    """Levels around the node that is composed."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        name = getattr(event, "anchor", None)
        if name is not None:
            what = f"an alias (*{name})" if isinstance(event, yaml.AliasEvent) else f"an anchor (&{name})"
            problem = f"{what} is not supported; write the value out, or quote it if it is text"
            raise yaml.composer.ComposerError(None, None, problem, event.start_mark)
        if self.depth == MAX_DEPTH:
            raise yaml.composer.ComposerError(None, None, "nested too deeply to be settings", event.start_mark)
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


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
        name = _key(key, here)
        if name in values:
            full = ".".join((*keys, name))
            raise ConfigError(f"{here}: {full} is given twice, first in {_line(firsts[name])}; keep one of them")
        firsts[name] = places[(*keys, name)] = here
        values[name] = _build(value, (*keys, name), places, place)
    return values


def _line(place: str) -> str:
    number = place.rpartition(":")[2]
    return f"line {number}" if number.isdecimal() else "the same line"


def _key(node: yaml.Node, place: str) -> str:
    if not isinstance(node, yaml.ScalarNode):
        raise ConfigError(f"{place}: a key must be a single word")
    if node.tag not in _PLAIN:
        raise ConfigError(f"{place}: the tag {node.tag!r} is not supported; write the plain key")
    if node.value == "<<" and not node.style:
        raise ConfigError(f"{place}: a merge key (<<) is not supported; write the keys out")
    return _whole_text(node.value, place)


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


def _cut(text: str) -> str:
    return text if len(text) <= 60 else text[:59] + "…"


def _advice(message: str) -> str:
    if "\\t" in message:
        return " (indent with spaces, not tabs)"
    if "cannot start any token" in message:
        return " (put the text in quotes)"
    return ""
