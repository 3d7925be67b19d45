"""`seqloom shortlist`: a lexicon with which a model translates faster."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqloom.cli.arguments import Encoding, JsonResult, ModelFolder, OnBadUtf8, Threads, file_names
from seqloom.cli.console import clean, examples, json_line, show_events
from seqloom.cli.inputs import TextEncoding

if TYPE_CHECKING:
    from seqloom.apps.lexicon import FittedLexicon

EXAMPLES = examples(
    "seqloom shortlist run",
    "seqloom shortlist run/model --train corpus.de --train corpus.en",
    "seqloom translate run/model news.de --out news.en search.shortlist=50",
)


def shortlist(
    model: ModelFolder,
    train: Annotated[
        list[str] | None,
        typer.Option(
            "--train",
            metavar="FILE",
            help="Parallel text: the source file, then the target file (or SOURCE,TARGET), or one .tsv; by default the "
            "training text of the run.",
        ),
    ] = None,
    threads: Threads = None,
    encoding: Encoding = None,
    on_bad_utf8: OnBadUtf8 = None,
    json: JsonResult = False,
) -> None:
    """Learn a lexicon of symbols and store it in the model folder, for faster translation.

    [bold]seqloom translate MODEL search.shortlist=50[/bold] then scores only the 50 best translations of each source
    symbol and the most frequent symbols.
    """
    from seqloom.apps.lexicon import fit_lexicon

    paths, decoding = [Path(name) for name in file_names(train)], TextEncoding.of(encoding, on_bad_utf8)
    with show_events(as_json=json, has_progress=True) as listener:
        fitted = fit_lexicon(
            model,
            paths,
            encoding=decoding.encoding,
            on_bad=decoding.on_bad,
            threads=threads or os.cpu_count() or 1,
            listener=listener,
        )
    print(json_line(fitted) if json else "\n".join(_describe(fitted, model)))


def _describe(fitted: "FittedLexicon", model: Path) -> list[str]:
    sizes = f"{fitted.words:,} source symbols, {fitted.entries:,} translations, from {fitted.pairs:,} sentence pairs"
    lines = [f"Written  {fitted.path}  ({sizes})", f"Use it   seqloom translate {model} search.shortlist=50"]
    return [clean(line) for line in lines]
