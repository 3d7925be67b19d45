"""A translator from a model folder and settings of the search."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seqloom.recipes.translate import Translator


def open_translator(model: Path, overrides: Sequence[str] = ()) -> "Translator":
    """Load a model; `overrides` are settings of the search, and the device."""
    from seqloom.core.config import resolve
    from seqloom.recipes.config import RunConfig
    from seqloom.recipes.load import load
    from seqloom.recipes.translate import Translator

    devices = [override.partition("=")[2] for override in overrides if override.startswith("device=")]
    loaded = load(model, device=devices[-1] if devices else None)
    config = resolve(RunConfig, file=loaded.folder / "config.yaml", overrides=overrides)
    return Translator(replace(loaded, config=config))
