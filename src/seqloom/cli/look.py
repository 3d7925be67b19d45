"""`seqloom look`: pictures of what a model does."""

from pathlib import Path
from typing import Annotated

import typer

from seqloom.cli.loading import open_translator
from seqloom.cli.output import clean, examples, json_line

EXAMPLES = examples("seqloom look attention runs/demo 'The old man reads a book.' --out attention.png")

app = typer.Typer(no_args_is_help=True, help="Look into a model: draw what it does with a sentence.")


@app.callback()
def look() -> None:
    """Look into a model: draw what it does with a sentence."""


@app.command(epilog=EXAMPLES)
def attention(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder, or a run that has finished.")],
    sentence: Annotated[str, typer.Argument(metavar="SENTENCE", help="A sentence in the source language.")],
    out: Annotated[
        Path, typer.Option("--out", metavar="PICTURE", help="Where to draw it, PNG or SVG by the ending.")
    ] = Path("attention.png"),
    json: Annotated[bool, typer.Option("--json", help="Pieces and weights as JSON on stdout as well.")] = False,
) -> None:
    """Translate a sentence and draw where the model looked: a row per target piece, a column per source piece.

    Shown are the weights of the last decoder layer, the mean over its heads.
    """
    from seqloom.recipes.look import draw_attention

    found = draw_attention(open_translator(model), sentence, out)
    if json:
        values = {"text": found.text, "source": found.source, "target": found.target}
        print(json_line({**values, "weights": found.weights.tolist(), "picture": out}))
    else:
        print(clean(found.text))
        print(f"drawn in {out}")
