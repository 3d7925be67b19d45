"""`seqloom average`: one model from several."""

from pathlib import Path
from typing import Annotated

import typer

from seqloom.cli.arguments import JsonResult
from seqloom.cli.console import examples
from seqloom.core.events import json_line
from seqloom.core.files import require_folders_above

EXAMPLES = examples(
    "seqloom average run/checkpoints/step-9000 run/checkpoints/step-10000 --out averaged",
    "seqloom average run-1 run-2 --out averaged",
)


def average(
    models: Annotated[
        list[Path],
        typer.Argument(metavar="MODEL…", help="Models or runs with the same config, or checkpoints of one run."),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="New folder for the model.")],
    json: JsonResult = False,
) -> None:
    """Average the weights of several models.

    The mean of the last checkpoints of a run is usually better than the last one alone.
    """
    from seqloom.runs.train import average as recipe

    require_folders_above(out)
    model = recipe(models, out)
    print(json_line({"model": model, "averaged": models}) if json else f"Model  {model}")
