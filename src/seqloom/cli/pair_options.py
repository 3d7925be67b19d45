"""Options of commands that learn from parallel text."""

from typing import Annotated

import typer

TrainFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--train",
        metavar="FILE",
        help="Text to learn from: the source file, then the target file (or both with a comma between), or one file of "
        "both (.tsv, .jsonl, .tmx, .po, .xlf).",
    ),
]
"""A name may have * in it; what the files are is settled by `open_corpus`."""
