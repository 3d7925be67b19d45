"""`seqloom export`: convert a model for other programs."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from seqloom.cli.arguments import JsonResult, ModelFolder
from seqloom.cli.console import clean, examples, size
from seqloom.core.errors import UsageError
from seqloom.core.events import json_line

EXAMPLES = examples(
    "seqloom export runs/demo --to ctranslate2",
    "seqloom export run/model --to ctranslate2 --quantization int8 --out fast",
    "seqloom export run/model --to argos --out de-en.argosmodel",
    "seqloom export run/model --to onnx",
    "seqloom export run/model --to huggingface --out folder",
    "seqloom export run/adapter --to peft --out folder",
    "seqloom export ngram/model --to arpa --out model.arpa.gz",
)


def export(
    model: ModelFolder,
    to: Annotated[
        Literal["ctranslate2", "argos", "onnx", "huggingface", "peft", "arpa"],
        typer.Option(
            "--to",
            metavar="KIND",
            help="[bold]ctranslate2[/bold]: a folder for CTranslate2, with the tokenisers. "
            "[bold]argos[/bold]: a package for Argos Translate and LibreTranslate; requires text.kind=unigram. "
            "[bold]onnx[/bold]: a folder with encoder and decoder step as ONNX graphs, and the tokenisers. "
            "[bold]huggingface[/bold]: a folder that transformers opens, model and tokeniser. "
            "[bold]peft[/bold]: the adapter of a run with training.lora, for PEFT; its base must be a published model. "
            "[bold]arpa[/bold]: an n-gram file for KenLM and others; .gz compresses it.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="PATH", help="New folder or file; by default beside MODEL."),
    ] = None,
    quantization: Annotated[
        Literal["none", "int8", "int16", "float16", "int8_float32", "int8_float16"] | None,
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

    Transformers can be exported to ctranslate2, onnx and huggingface, and with text.kind=unigram to argos; recurrent
    translators to onnx; n-gram models to arpa. Existing files are not replaced.
    """
    if to != "argos" and (from_code or to_code):
        raise UsageError("--from-code and --to-code require --to argos")

    from seqloom.apps import export as recipe

    written = recipe.export(model, to, out=out, quantization=quantization, from_code=from_code, to_code=to_code)
    if json:
        print(json_line(written))
        return
    stored = "" if written.kind in ("arpa", "huggingface", "peft") else f", quantization {written.quantization}"
    print(clean(f"Written  {written.path}  ({size(written.bytes)}{stored})"))
    for note in written.notes:
        print(clean(f"Note     {note}"))
