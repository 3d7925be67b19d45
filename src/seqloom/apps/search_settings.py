"""Search settings for a trained model, from the command line or from a call in Python."""

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from seqloom.core.arguments import shown
from seqloom.core.errors import ConfigError, UsageError
from seqloom.runs.config import RunConfig
from seqloom.runs.loading import find_model
from seqloom.runs.model_dir import read_settings
from seqloom.search.settings import SearchConfig


def settings_for(folder: Path | str, overrides: Sequence[str]) -> RunConfig:
    """The settings of a model with these overrides. What is wrong or has no effect is refused."""
    config = resolved(folder, overrides)
    require_effect(config.search, overrides)
    return config


def resolved(folder: Path | str, overrides: Sequence[str]) -> RunConfig:
    """The same, whether or not all of them have an effect."""
    return read_settings(find_model(Path(folder)), overrides)


def device_of(overrides: Sequence[str]) -> str | None:
    """The device among these overrides, if it is set."""
    devices = [override.partition("=")[2] for override in overrides if override.startswith("device=")]
    return devices[-1] if devices else None


def require_effect(settings: SearchConfig, overrides: Sequence[str]) -> None:
    """Refuse overrides that change nothing."""
    for override in overrides:
        section, _, name = override.partition("=")[0].partition(".")
        if section != "search" or name not in SearchConfig.model_fields:
            continue
        if needed := settings.without_effect(name):
            raise UsageError(f"{override} has no effect without {needed}; set that too, or leave it out")


def search_with(
    own: SearchConfig,
    search: SearchConfig | Mapping[str, Any] | None,
    given: Mapping[str, Any],
    *,
    method: Callable[..., Any],
    check: Callable[[SearchConfig, Sequence[str]], None] = require_effect,
) -> SearchConfig:
    """The settings of a call from Python: `method(…, search={"beam": 8})` or `method(…, beam=8)`.

    A SearchConfig is taken as a whole; a mapping and the keywords in `given` change the model's own settings, and what
    is unknown, wrong or without effect among them is refused.
    """
    if search is not None and not isinstance(search, SearchConfig | Mapping):
        raise ConfigError(f'search must be a SearchConfig or a mapping such as {{"beam": 8}}; got {shown(search)}')
    changes = {**(search if isinstance(search, Mapping) else {}), **given}
    base = search if isinstance(search, SearchConfig) else own
    if not changes:
        return base
    known, accepted = SearchConfig.model_fields, inspect.signature(method).parameters
    for name in changes:
        if name not in known:
            near = difflib.get_close_matches(str(name), [*known, *accepted], n=1)
            hint = f"did you mean {near[0]}?" if near else f"the settings are {', '.join(known)}"
            raise ConfigError(f"{method.__name__} has no setting {name!r}; {hint}")
    settings = SearchConfig(**{**base.model_dump(), **changes})
    check(settings, [f"search.{name}={value}" for name, value in changes.items()])
    return settings
