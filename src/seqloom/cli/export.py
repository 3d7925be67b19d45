"""`seqloom export`: a model for other programs."""

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import typer

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
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder or a run.")],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="KIND",
            help="[bold]ctranslate2[/bold]: a folder that CTranslate2 loads, with the tokenisers. "
            "[bold]argos[/bold]: a package that Argos Translate and LibreTranslate install; it needs a model that "
            "was trained with text.kind=unigram. "
            "[bold]onnx[/bold]: a folder with encoder and decoder step as ONNX graphs, and the tokenisers. "
            "[bold]arpa[/bold]: a file of n-grams for KenLM and others; .gz compresses it.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="PATH", help="A new folder or file; without it, beside the model."),
    ] = None,
    quantization: Annotated[
        str | None,
        typer.Option(
            "--quantization",
            metavar="TYPE",
            help="How weights are stored: [bold]none[/bold] (as they are), [bold]int8[/bold] (a quarter of the size, "
            "faster), int16, float16, or int8_float32 and int8_float16, which say what stays a float. "
            "Default: none for ctranslate2, int8 for argos.",
        ),
    ] = None,
    from_code: Annotated[
        str | None,
        typer.Option("--from-code", metavar="CODE", help="Source language of an Argos package, such as de."),
    ] = None,
    to_code: Annotated[
        str | None, typer.Option("--to-code", metavar="CODE", help="Target language of an Argos package.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="What was written, as JSON.")] = False,
) -> None:
    """Write a model in the form that another program runs; its scores there are its scores here.

    Transformers can be exported to all but arpa, recurrent translators to onnx, n-gram models to arpa. Nothing that
    exists is replaced.
    """
    from seqloom.apps import export as recipe
    from seqloom.interop import ctranslate2

    kind = cast("ExportKind", _one_of("--to", to, get_args(recipe.ExportKind)))
    if kind != "argos" and (from_code or to_code):
        raise UsageError("--from-code and --to-code name the languages of an Argos package; leave them out")
    stored = None
    if quantization is not None:
        stored = cast("Quantization", _one_of("--quantization", quantization, get_args(ctranslate2.Quantization)))
    written = recipe.export(model, kind, out=out, quantization=stored, from_code=from_code, to_code=to_code)
    print(json_line(written) if json else "\n".join(_describe(written)))


def _one_of(flag: str, given: str, known: Sequence[Any]) -> str:
    if given not in known:
        near = difflib.get_close_matches(given, known, n=1)
        hint = f"did you mean {near[0]}? It is" if near else "it is"
        raise UsageError(f"{flag} {given} is not known; {hint} one of: {', '.join(known)}")
    return given


def _describe(written: "Exported") -> list[str]:
    stored = "" if written.kind == "arpa" else f", quantization {written.quantization}"
    lines = [f"Written  {written.path}  ({size(written.bytes)}{stored})"]
    return [clean(line) for line in [*lines, *(f"Note     {note}" for note in written.notes)]]
