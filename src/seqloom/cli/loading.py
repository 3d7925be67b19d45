"""A translator from a model folder and settings of the search."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seqloom.recipes.engine import Translates
    from seqloom.recipes.translate import Translator


def open_translator(model: Path, overrides: Sequence[str] = (), *, companions: Sequence[Path] = ()) -> "Translator":
    """Load a model, and others that decide with it; `overrides` are settings of the search, and the device."""
    from seqloom.recipes import translate  # here, because it brings torch with it

    return translate.open_translator(model, overrides, companions=companions)


@contextmanager
def opened_for_lines(
    model: Path,
    overrides: Sequence[str] = (),
    *,
    companions: Sequence[Path] = (),
    engine: str = "seqloom",
    jobs: int = 1,
) -> "Iterator[Translates]":
    """What translates lines: our search in one process or in several, or an engine from outside."""
    if engine == "ctranslate2":
        from seqloom.recipes.engine import open_engine

        yield open_engine(model, overrides)
        return
    translator = open_translator(model, overrides, companions=companions)
    if jobs == 1:
        yield translator
        return
    from seqloom.recipes.processes import ProcessTranslator

    with ProcessTranslator(translator, overrides, jobs=jobs) as several:
        yield several
