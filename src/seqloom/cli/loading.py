"""A translator from a model folder and settings of the search."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seqloom.recipes.engine import EngineTranslator
    from seqloom.recipes.translate import Translator


def open_translator(model: Path, overrides: Sequence[str] = (), *, companions: Sequence[Path] = ()) -> "Translator":
    """Load a model, and others that decide with it; `overrides` are settings of the search, and the device."""
    from seqloom.core.config import resolve
    from seqloom.recipes.config import RunConfig
    from seqloom.recipes.load import load
    from seqloom.recipes.translate import Translator

    devices = [override.partition("=")[2] for override in overrides if override.startswith("device=")]
    device = devices[-1] if devices else None
    loaded = load(model, device=device)
    config = resolve(RunConfig, file=loaded.folder / "config.yaml", overrides=overrides)
    return Translator(replace(loaded, config=config), [load(other, device=device) for other in companions])


def open_ctranslate2(model: Path, overrides: Sequence[str] = ()) -> "EngineTranslator":
    """Load a model that was exported to CTranslate2, or export it for this once."""
    from seqloom.recipes.engine import open_engine

    return open_engine(model, overrides)
