"""What a family of published models declares: its name, and how a folder of it becomes a model of ours."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from seqloom.core.declaration import ModelSettings
from seqloom.core.errors import ModelError
from seqloom.models.frames import LanguageScheme
from seqloom.pretrained.mapping import StoredTensors, TensorMap
from seqloom.pretrained.renumbering import Roles

Word = TypeVar("Word")

MAX_WIDTH, MAX_LAYERS, MAX_SYMBOLS, MAX_POSITIONS = 1 << 16, 1 << 9, 1 << 22, 1 << 24
"""Sizes beyond which a config is refused before anything is allocated."""


@dataclass(frozen=True)
class Conversion:
    """How one folder becomes a model of ours."""

    model: ModelSettings
    """Its settings; `absent` and `frame` are set from the symbols below."""
    tensors: tuple[TensorMap, ...]
    roles: Roles
    symbols: int
    """Rows of the vocabulary that it writes, and of the one that it reads unless `source_symbols` says otherwise."""
    begins_with: tuple[int | Literal["language"], ...] = ()
    """Foreign ids that are read before the first symbol; `language` stands for that of the target language."""
    language_scheme: LanguageScheme = "none"
    """Where it reads the symbols of languages."""
    max_positions: int | None = None
    """Symbols of the longest input and output; None if no table of positions bounds them."""
    source_symbols: int | None = None
    """Rows of the vocabulary that it reads, if there are two."""
    instructions: Mapping[str, str] = field(default_factory=dict)
    """What a source begins with if it is to be translated between two languages, by pairs such as en-de."""
    ignored: tuple[str, ...] = ()
    """Regular expressions of tensors that are known and not used: masks, tables that are computed, tied copies."""


@dataclass(frozen=True)
class Family:
    """A family of published models, by its `model_type`."""

    model_type: str
    architectures: tuple[str, ...]
    """Classes whose weights are read; a folder that names another one is refused."""
    read: Callable[[Mapping[str, Any], StoredTensors], Conversion]
    """From config.json and the weights, which decide what is tied. A ModelError names what is not supported."""
    rename: Callable[[str], str] = str
    """From a name in a file to today's name."""
    roles: Callable[[Path, Roles], Roles] | None = None
    """The roles of the symbols as the tokeniser files in a folder name them, where config.json does not."""


def whole_number(config: Mapping[str, Any], name: str, *, most: int, least: int = 1, default: int | None = None) -> int:
    """A number of config.json, if it is a whole one within bounds."""
    value = config.get(name, default)
    if type(value) is not int or not least <= value <= most:
        raise ModelError(f"config.json has {name}={_shown(value)}, which is not a number from {least:,} to {most:,}")
    return value


def real_number(config: Mapping[str, Any], name: str, *, least: float, most: float, default: float) -> float:
    """The same for numbers that need not be whole."""
    value = config.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise ModelError(f"config.json has {name}={_shown(value)}, which is not a number from {least:g} to {most:g}")
    return float(value)


def choice(config: Mapping[str, Any], name: str, known: Mapping[str, Word], *, default: str) -> Word:
    """Our word for a value of config.json."""
    value = config.get(name, default)
    if not isinstance(value, str) or value not in known:
        raise ModelError(f"config.json has {name}={_shown(value)}, which is not supported; known: {', '.join(known)}")
    return known[value]


def flag(config: Mapping[str, Any], name: str, *, default: bool) -> bool:
    """A yes or no of config.json."""
    value = config.get(name, default)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise ModelError(f"config.json has {name}={_shown(value)}, which is neither true nor false")
    return value


def symbol(config: Mapping[str, Any], name: str, *, symbols: int, default: int | None = None) -> int | None:
    """The id of a symbol in config.json; None if it names none."""
    value = config.get(name, default)
    if value is None:
        return None
    if type(value) is not int or not 0 <= value < symbols:
        raise ModelError(f"config.json has {name}={_shown(value)}, which is not a symbol from 0 to {symbols - 1:,}")
    return value


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
