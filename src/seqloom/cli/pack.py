"""`seqloom pack` and `seqloom unpack`: a model as one archive file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from seqloom.cli.arguments import JsonResult, ModelFolder
from seqloom.cli.console import clean, counted, examples, size
from seqloom.core.events import json_line

if TYPE_CHECKING:
    from seqloom.apps.export import Packed

EXAMPLES = examples("seqloom pack runs/demo demo.zip", "seqloom pack run/model small.zip --precision int8")
UNPACK_EXAMPLES = examples("seqloom unpack demo.zip demo-model", "seqloom translate demo.zip text.en")


def pack(
    model: ModelFolder,
    out: Annotated[Path, typer.Argument(metavar="OUT.zip", help="New file.")],
    precision: Annotated[
        Literal["float32", "int8"],
        typer.Option(
            "--precision",
            help="int8 rounds the linear layers of a Transformer with at least 100,000 weights to eight bits, not the "
            "embeddings. The smaller archive translates exactly as MODEL does with search.precision=int8. The "
            "original weights cannot be restored from it.",
        ),
    ] = "float32",
    json: JsonResult = False,
) -> None:
    """Write a model as one archive; it can be opened safely even if you do not trust its sender.

    Every file is verified first. The same model gives the same bytes on every machine.
    """
    from seqloom.apps.export import pack as recipe

    _print_result(recipe(model, out, precision=precision), json=json)


def unpack(
    archive: Annotated[Path, typer.Argument(metavar="MODEL.zip", help="An archive written by seqloom pack.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="New folder for the model.")],
    json: JsonResult = False,
) -> None:
    """Extract a model folder from an archive, which need not be trusted.

    Nothing in it is executed, nothing is written outside the folder, and the folder appears only after every file is
    verified. All commands also accept an archive as MODEL and unpack it each time.
    """
    from seqloom.apps.export import unpack as recipe

    _print_result(recipe(archive, folder), json=json)


def _print_result(packed: "Packed", *, json: bool) -> None:
    text = f"Written  {packed.path}  ({counted(packed.files, 'file')}, {size(packed.bytes)} as an archive)"
    print(json_line(packed) if json else f"{clean(text)}\nSHA-256  {packed.sha256}")
