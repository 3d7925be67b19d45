"""`seqloom summarise`: the sentences that summarise each document."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqloom.cli.arguments import Encoding, ModelFolder, OnBadUtf8
from seqloom.cli.console import clean, examples, score_rows, show_events
from seqloom.cli.inputs import TextEncoding, open_input, open_or_stdout, read_blocks
from seqloom.core.errors import UsageError
from seqloom.core.events import Listener, json_line, notice

if TYPE_CHECKING:
    from seqloom.apps.summariser import Summary
    from seqloom.data.documents import Document

EXAMPLES = examples(
    "seqloom summarise run/model papers.jsonl > summaries.txt",
    "seqloom summarise run/model articles.txt --sentences 3",
    "seqloom summarise run/model --reference test.jsonl",
    "seqloom summarise run/model papers.jsonl --json",
)

STDIN = Path("-")

File = Annotated[
    Path | None,
    typer.Argument(
        metavar="[FILE]",
        help="A document in each line, which is cut into sentences, or .jsonl with the member source: a text or a list "
        "of sentences. Plain, .gz, .xz or .zst; standard input by default.",
    ),
]
Sentences = Annotated[
    int | None,
    typer.Option("--sentences", min=1, help="Sentences of a summary; by default as many as in training."),
]
Reference = Annotated[
    Path | None,
    typer.Option(
        "--reference",
        metavar="FILE",
        help="Documents with their summaries, .jsonl or .tsv: print ROUGE, beside that of the first sentences, instead "
        "of summaries.",
    ),
]
Out = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Where to write; standard output by default.")]
Json = Annotated[bool, typer.Option("--json", help="Print a JSON record per document, or one with all scores.")]


def summarise(
    model: ModelFolder,
    file: File = None,
    sentences: Sentences = None,
    reference: Reference = None,
    out: Out = None,
    encoding: Encoding = None,
    on_bad_utf8: OnBadUtf8 = None,
    json: Json = False,
) -> None:
    """Print the sentences that summarise each document, one summary in each line; an empty line for a blank document.

    Train a summariser with
    [bold]seqloom train task.kind=summarisation --train train.jsonl --dev dev.jsonl --out run[/bold].

    With [bold]--reference[/bold], summaries are scored with the nearest of the right ones, beside as many first
    sentences, which need no model.
    """
    if reference is not None and (file is not None or out is not None):
        given = "--out" if out is not None else str(file)
        raise UsageError(f"{given} cannot be combined with --reference, which prints scores; leave it out")

    from seqloom.apps.summariser import Summariser
    from seqloom.data.documents import read_documents

    summariser, decoding = Summariser.load(model), TextEncoding.of(encoding, on_bad_utf8)
    with show_events(as_json=json, has_progress=False) as listener:
        if reference is not None:
            known = read_documents([reference], has_summaries=True, encoding=decoding.encoding, on_bad=decoding.on_bad)
            scores = summariser.evaluate(known, sentences=sentences)
            record = {"documents": len(known), "scores": scores}
            print(json_line(record) if json else "\n".join(score_rows(scores)))
            return
        path = None if file is None or file == STDIN else file
        with open_or_stdout(out) as target:
            for number, document in enumerate(_documents(path, decoding, listener=listener), start=1):
                found = summariser.summarise([document], sentences=sentences)[0]
                text = found.text if out is not None else clean(found.text)
                target.write((json_line(_record(number, found)) if json else text) + "\n")


def _record(number: int, summary: "Summary") -> dict[str, object]:
    return {
        "document": number,
        "summary": summary.text,
        "places": list(summary.places),
        "probabilities": list(summary.probabilities),
    }


def _documents(path: Path | None, decoding: TextEncoding, *, listener: Listener) -> Iterator["Document"]:
    """The documents of a file, all of them checked before the first is summarised; or of a stream, line by line."""
    from seqloom.data.documents import parse_document, read_documents

    if path is not None:
        yield from read_documents([path], has_summaries=False, encoding=decoding.encoding, on_bad=decoding.on_bad)
        return
    with open_input(None) as stream:
        for lines in read_blocks(stream, "standard input", encoding=decoding, warn=lambda text: notice(listener, text)):
            for line in lines:
                yield parse_document(line, is_jsonl=False)
