"""`seqloom merge`: a base and its adapter as one model."""

from pathlib import Path
from typing import Annotated

import typer

from seqloom.cli.arguments import JsonResult
from seqloom.cli.console import clean, counted, examples, size
from seqloom.core.events import json_line

EXAMPLES = examples(
    "seqloom merge run/adapter --out merged",
    "seqloom merge adapter --base opus-mt-en-de --out merged",
    "seqloom merge peft-folder --base opus-mt-en-de --out merged",
)


def merge(
    adapter: Annotated[
        Path,
        typer.Argument(
            metavar="ADAPTER", help="The adapter directory of a run with training.lora, or a folder of PEFT with LoRA."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="New folder for the model.")],
    base: Annotated[
        Path | None,
        typer.Option(
            "--base",
            metavar="MODEL",
            help="The model that was adapted; by default where it was in training. Its weights must be the same.",
        ),
    ] = None,
    json: JsonResult = False,
) -> None:
    """Merge an adapter with its base: W + s B A takes the place of each matrix W.

    The result is an ordinary model, the same that the run with training.lora has left. Adapters of PEFT belong to
    published models, such as an OPUS-MT folder; [bold]seqloom export --to peft[/bold] goes back.
    """
    from seqloom.apps.merging import merge as recipe

    merged = recipe(adapter, out, base=base)
    if json:
        print(json_line(merged))
        return
    adapted = counted(merged.adapted, "adapter")
    print(clean(f"Written  {merged.path}  ({size(merged.bytes)}): {adapted} merged with {merged.base}"))
