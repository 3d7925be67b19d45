"""`seqloom export`: convert a model for other programs."""

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import typer

from seqloom.cli.arguments import JsonResult, ModelFolder
from seqloom.cli.console import clean, examples, json_line, size
from seqloom.core.errors import UsageError

if TYPE_CHECKING:
    from seqloom.apps.export import Exported, ExportKind
    from seqloom.interop.ctranslate2 import Quantization

EXAMPLES = examples(
    "seqloom export runs/demo --to ctranslate2",
    "seqloom export run/model --to ctranslate2 --quantization int8 --out fast",
    "seqloom export run/model --to argos --out de-en.argosmodel",
    "seqloom export run/model --to onnx",
    "seqloom export ngram/model --to arpa --out model.arpa.gz",
)


def export(
    model: ModelFolder,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="KIND",
            help="[bold]ctranslate2[/bold]: a folder for CTranslate2, with the tokenisers. "
            "[bold]argos[/bold]: a package for Argos Translate and LibreTranslate; requires text.kind=unigram. "
            "[bold]onnx[/bold]: a folder with encoder and decoder step as ONNX graphs, and the tokenisers. "
            "[bold]arpa[/bold]: an n-gram file for KenLM and others; .gz compresses it.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="PATH", help="New folder or file; by default beside the model."),
    ] = None,
    quantization: Annotated[
        str | None,
        typer.Option(
            "--quantization",
            metavar="TYPE",
            help="Type of the stored weights: [bold]none[/bold] (unchanged), [bold]int8[/bold] (a quarter of the size, "
            "faster), int16, float16, int8_float32 or int8_float16. Default: none for ctranslate2, int8 for argos.",
        ),
    ] = None,
    from_code: Annotated[
        str | None,
        typer.Option("--from-code", metavar="CODE", help="Source language of an Argos package, such as de."),
    ] = None,
    to_code: Annotated[
        str | None, typer.Option("--to-code", metavar="CODE", help="Target language of an Argos package.")
    ] = None,
    json: JsonResult = False,
) -> None:
    """Convert a model to the format of another program, with the same scores.

    Transformers can be exported to everything but arpa, recurrent translators to onnx, n-gram models to arpa. Existing
    files are not replaced.
    """
    from seqloom.apps import export as recipe
    from seqloom.interop import ctranslate2

    kind = cast("ExportKind", _one_of("--to", to, get_args(recipe.ExportKind)))
    if kind != "argos" and (from_code or to_code):
        raise UsageError("--from-code and --to-code require --to argos")
    stored = None
    if quantization is not None:
        stored = cast("Quantization", _one_of("--quantization", quantization, get_args(ctranslate2.Quantization)))
    written = recipe.export(model, kind, out=out, quantization=stored, from_code=from_code, to_code=to_code)
    print(json_line(written) if json else "\n".join(_describe(written)))


def _one_of(flag: str, given: str, known: Sequence[Any]) -> str:
    if given not in known:
        near = difflib.get_close_matches(given, known, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UsageError(f"unknown value {flag} {given}; {hint}available: {', '.join(known)}")
    return given


def _describe(written: "Exported") -> list[str]:
    stored = "" if written.kind == "arpa" else f", quantization {written.quantization}"
    lines = [f"Written  {written.path}  ({size(written.bytes)}{stored})"]
    return [clean(line) for line in [*lines, *(f"Note     {note}" for note in written.notes)]]
