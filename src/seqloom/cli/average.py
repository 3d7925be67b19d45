"""`seqloom average`: one model from several."""

from pathlib import Path
from typing import Annotated

import typer

from seqloom.cli.console import examples, json_line
from seqloom.core.files import require_folders_above

EXAMPLES = examples(
    "seqloom average run/checkpoints/step-9000 run/checkpoints/step-10000 --out averaged",
    "seqloom average run-1 run-2 --out averaged",
)


def average(
    models: Annotated[
        list[Path], typer.Argument(metavar="MODEL…", help="Models or runs of one config, or checkpoints of one run.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="A new folder for the model.")],
    json: Annotated[bool, typer.Option("--json", help="What was written, as JSON.")] = False,
) -> None:
    """Make a model whose weights are the mean of several models' weights.

    Checkpoints of one run near its end usually give a better model together than the last one alone.
    """
    from seqloom.runs.train import average as recipe

    require_folders_above(out)
    model = recipe(models, out)
    print(json_line({"model": model, "averaged": models}) if json else f"Model  {model}")
