"""Settings of the search that are given for a trained model, checked before its weights are read."""

from collections.abc import Sequence
from pathlib import Path

from seqloom.core.errors import UsageError
from seqloom.recipes.config import RunConfig
from seqloom.recipes.load import find_model, read_settings
from seqloom.search.settings import SearchConfig


def settings_for(folder: Path | str, overrides: Sequence[str]) -> RunConfig:
    """The settings of a model with these laid over them. What is wrong, or would have no effect, is refused."""
    config = resolved(folder, overrides)
    require_effect(config.search, overrides)
    return config


def resolved(folder: Path | str, overrides: Sequence[str]) -> RunConfig:
    """The same, whether or not all of them have an effect."""
    return read_settings(find_model(Path(folder)), overrides)


def require_effect(settings: SearchConfig, overrides: Sequence[str]) -> None:
    """Refuse settings that were given here, on top of what the model has, and change nothing."""
    for override in overrides:
        section, _, name = override.partition("=")[0].partition(".")
        if section != "search" or name not in SearchConfig.model_fields:
            continue
        if needed := settings.without_effect(name):
            raise UsageError(f"{override} has no effect as it stands: it needs {needed}; set that too, or leave it out")
