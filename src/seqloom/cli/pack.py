"""`seqloom pack` and `seqloom unpack`: a model as one file, and the way back."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from seqloom.cli.console import clean, counted, examples, json_line, size

if TYPE_CHECKING:
    from seqloom.apps.export import Packed

EXAMPLES = examples("seqloom pack runs/demo demo.zip", "seqloom pack run/model small.zip --precision int8")
UNPACK_EXAMPLES = examples("seqloom unpack demo.zip demo-model", "seqloom translate demo.zip text.en")


def pack(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder or a run.")],
    out: Annotated[Path, typer.Argument(metavar="OUT.zip", help="A new file.")],
    precision: Annotated[
        Literal["float32", "int8"],
        typer.Option(
            "--precision",
            help="int8 stores the linear layers of a Transformer that have 100,000 weights or more in eight bits; "
            "tables of symbols stay as they are. A smaller archive, which translates exactly as MODEL does with "
            "search.precision=int8. The exact weights are not in it.",
        ),
    ] = "float32",
    json: Annotated[bool, typer.Option("--json", help="What was written, as JSON.")] = False,
) -> None:
    """Put a model into one file to hand on: a zip archive of its folder.

    Every file is checked first. The same model gives the same bytes, on every machine.
    """
    from seqloom.apps.export import pack as recipe

    _tell(recipe(model, out, precision=precision), json=json)


def unpack(
    archive: Annotated[Path, typer.Argument(metavar="MODEL.zip", help="What seqloom pack wrote.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new folder for the model.")],
    json: Annotated[bool, typer.Option("--json", help="What was written, as JSON.")] = False,
) -> None:
    """Make a model folder from an archive, which need not be trusted.

    Nothing in it is run, nothing is written outside the folder, and the folder appears when every file was checked.
    All commands also take an archive in place of MODEL and unpack it each time.
    """
    from seqloom.apps.export import unpack as recipe

    _tell(recipe(archive, folder), json=json)


def _tell(packed: "Packed", *, json: bool) -> None:
    told = f"Written  {packed.path}  ({counted(packed.files, 'file')}, {size(packed.bytes)} as an archive)"
    print(json_line(packed) if json else f"{clean(told)}\nSHA-256  {packed.sha256}")
