"""YAML with its traps closed, and the line of every key.

    no, yes, on, off   text (only true and false are booleans)      1e-3, 1_000    numbers
    12:30, 010, 0x1F   text                                         a key twice    an error with both lines

Anchors, aliases and tags other than the plain ones are refused: a settings file says what it means where it means it.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from seqloom.core.errors import ConfigError

Keys = tuple[str, ...]
"""The way from the root to a value: `("model", "heads")`. Places in a list are numbers written as text."""

_TAG = "tag:yaml.org,2002:"
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
    try:
        node = _Loader(text).get_single_node()
        places: dict[Keys, str] = {}
        return (None if node is None else _build(node, (), places, place)), places
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{place(line)}: not valid YAML: {error.problem or error}{_advice(str(error))}") from error
    except yaml.YAMLError as error:
        problem = str(error).partition("\n")[0]
        raise ConfigError(f"{place(1)}: not valid YAML: {problem}") from error
    except RecursionError as error:
        raise ConfigError(f"{place(1)}: nested too deeply to be settings") from error


def write_value(value: Any) -> str:
    """A plain value on one line, so that `parse_yaml` reads it back equal."""
    text: str = yaml.dump(value, Dumper=_Dumper, default_flow_style=True, allow_unicode=True, width=math.inf)
    return text.removesuffix("...\n").rstrip("\n")


# --- reading ---------------------------------------------------------------------------------------------------------


class _Loader(yaml.SafeLoader):
    """Composes nodes by our patterns; values are built below, so no constructor of the library ever runs."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - as the base has it

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            problem = f"an alias (*{event.anchor}) is not supported; write the value out, or quote it if it is text"
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


def _build(node: yaml.Node, keys: Keys, places: dict[Keys, str], place: Callable[[int], str]) -> Any:
    line = node.start_mark.line + 1
    if keys not in places:
        places[keys] = place(line)
    if isinstance(node, yaml.ScalarNode):
        return _scalar(node, place(line))
    if node.tag not in (_TAG + "seq", _TAG + "map"):
        raise ConfigError(f"{place(line)}: the tag {node.tag!r} is not supported; write the plain values")
    if isinstance(node, yaml.SequenceNode):
        return [_build(part, (*keys, str(at)), places, place) for at, part in enumerate(node.value)]
    assert isinstance(node, yaml.MappingNode)
    values: dict[str, Any] = {}
    lines: dict[str, int] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            raise ConfigError(f"{place(line)}: a key must be a single word")
        name: str = key.value
        if name in lines:
            full = ".".join((*keys, name))
            raise ConfigError(f"{place(line)}: {full} is given twice, first in line {lines[name]}; keep one of them")
        lines[name] = line
        places[(*keys, name)] = place(line)
        values[name] = _build(value, (*keys, name), places, place)
    return values


def _scalar(node: yaml.ScalarNode, place: str) -> Any:
    text: str = node.value
    match node.tag.removeprefix(_TAG):
        case "str":
            return text
        case "null":
            return None
        case "bool" if _PATTERNS["bool"].match(text):
            return text.lower() == "true"
        case "int" if _PATTERNS["int"].match(text) and len(text) < 100:
            return int(text)
        case "float" if _PATTERNS["float"].match(text) or _PATTERNS["int"].match(text):
            lowered = text.lower()
            return float(lowered.replace(".inf", "inf").replace(".nan", "nan"))
        case other:
            raise ConfigError(f"{place}: {text[:60]!r} cannot be read as {other!r}; write the plain value")


def _advice(message: str) -> str:
    if "\\t" in message:
        return " (indent with spaces, not tabs)"
    if "cannot start any token" in message:
        return " (put the text in quotes)"
    return ""
