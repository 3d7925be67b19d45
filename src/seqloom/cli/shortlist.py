"""`seqloom shortlist`: a lexicon with which a model translates faster."""

from pathlib import Path
from typing import Annotated

import typer

from seqloom.cli.arguments import Encoding, JsonResult, ModelFolder, OnBadUtf8, Threads, file_names
from seqloom.cli.console import clean, examples, show_events
from seqloom.cli.inputs import TextEncoding
from seqloom.core.events import json_line

EXAMPLES = examples(
    "seqloom shortlist run",
    "seqloom shortlist run/model --train corpus.de --train corpus.en",
    "seqloom shortlist run/model --aligner aligner-de-en",
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
    aligner: Annotated[
        Path | None,
        typer.Option(
            "--aligner",
            metavar="FOLDER",
            help="Take the translations from an aligner of the same languages, which [bold]seqloom align --save[/bold] "
            "wrote; no text is needed.",
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
    from seqloom.data.workers import processors

    paths, decoding = [Path(name) for name in file_names(train)], TextEncoding.of(encoding, on_bad_utf8)
    with show_events(as_json=json) as listener:
        fitted = fit_lexicon(
            model,
            paths,
            aligner=aligner,
            encoding=decoding.encoding,
            on_bad=decoding.on_bad,
            threads=threads or processors(),
            listener=listener,
        )
    if json:
        print(json_line(fitted))
        return
    sizes = f"{fitted.words:,} source symbols, {fitted.entries:,} translations, from {fitted.pairs:,} sentence pairs"
    print(clean(f"Written  {fitted.path}  ({sizes})"))
    print(clean(f"Use it   seqloom translate {model} search.shortlist=50"))
