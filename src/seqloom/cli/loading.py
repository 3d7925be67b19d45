"""A translator from a model folder and settings of the search."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqloom.core.errors import UsageError
from seqloom.core.events import Listener, ignore, notice

if TYPE_CHECKING:
    from seqloom.apps.engine import Translates
    from seqloom.apps.translator import Translator


FUSE_WEIGHT = 0.2
"""Weight of a language model that is fused with a translator, unless another is given."""

Fuse = Annotated[
    Path | None,
    typer.Option(
        "--fuse",
        metavar="LM",
        help="A language model of the target language that is added to the translator at every symbol (shallow "
        "fusion): log P = log P(translator) + weight · log P(LM), renormalised. It must share the target vocabulary: "
        "train it with data.tokenizers_from=MODEL.",
    ),
]
FuseWeight = Annotated[
    float | None,
    typer.Option(
        "--fuse-weight",
        metavar="WEIGHT",
        min=0,
        help=f"The weight of --fuse, {FUSE_WEIGHT} if left out; tune it on dev text with seqloom evaluate.",
    ),
]


@dataclass(frozen=True)
class LanguageModelFusion:
    """The values of --fuse and --fuse-weight."""

    folder: Path
    weight: float

    @staticmethod
    def of(folder: Path | None, weight: float | None) -> "LanguageModelFusion | None":
        """What was asked for; a weight without a language model is refused."""
        if folder is None and weight is not None:
            raise UsageError(f"--fuse-weight {weight:g} has no effect without a language model; add --fuse LM")
        if weight is not None and not math.isfinite(weight):
            raise UsageError(f"--fuse-weight {weight} is not a finite number; give 0 or more, such as 0.2")
        return None if folder is None else LanguageModelFusion(folder, FUSE_WEIGHT if weight is None else weight)

    def __str__(self) -> str:
        return f"{self.weight:g} · {self.folder}"


def open_translator(
    model: Path,
    overrides: Sequence[str] = (),
    *,
    companions: Sequence[Path] = (),
    fusion: LanguageModelFusion | None = None,
    listener: Listener = ignore,
) -> "Translator":
    """Load a model, and others that decide with it; `overrides` are settings of the search, and the device."""
    from seqloom.apps import translator as translate

    fuse = None if fusion is None else (fusion.folder, fusion.weight)
    translator = translate.open_translator(model, overrides, companions=companions, fuse=fuse)
    if translator.card.is_rounded and translator.config.search.precision == "float32":
        notice(
            listener,
            f"{model}: its weights were rounded to eight bits when it was packed, and search.precision=float32 does "
            "not bring them back; use the model that it was packed from",
        )
    return translator


@contextmanager
def opened_for_lines(
    model: Path,
    overrides: Sequence[str] = (),
    *,
    companions: Sequence[Path] = (),
    fusion: LanguageModelFusion | None = None,
    engine: str = "seqloom",
    jobs: int = 1,
    listener: Listener = ignore,
) -> "Iterator[Translates]":
    """What translates lines: our search in one process or in several, or an engine from outside."""
    if engine == "ctranslate2":
        from seqloom.apps.engine import open_engine

        yield open_engine(model, overrides)
        return
    translator = open_translator(model, overrides, companions=companions, fusion=fusion, listener=listener)
    if jobs == 1:
        yield translator
        return
    from seqloom.apps.processes import ProcessTranslator

    with ProcessTranslator(translator, overrides, jobs=jobs) as several:
        yield several
