"""`seqloom tag`: the columns of a file of words, or of raw text, filled by a tagger."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from io import TextIOWrapper
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from seqloom.cli.arguments import ModelFolder
from seqloom.cli.console import clean, examples, score_rows, show_events
from seqloom.cli.inputs import CHUNK, ByteStream, TextEncoding, open_input, open_or_stdout, read_blocks
from seqloom.core.errors import UsageError
from seqloom.core.events import Listener, json_line, notice, progress
from seqloom.text.formats.conllu import TokenLayout, TokenSentence, parse_sentences

if TYPE_CHECKING:
    from seqloom.apps.tagger import Tagger, TaggerScores

EXAMPLES = examples(
    "seqloom tag run/model new.conllu > tagged.conllu",
    "echo 'The dog sleeps.' | seqloom tag run/model",
    "seqloom tag run/model words.txt --columns upos,lemma",
    "seqloom tag run/model --reference test.conllu",
    "seqloom tag run/model sentences.txt --json",
)

STDIN = Path("-")

MAX_SHOWN_VALUES = 5
"""Values that the model does not know, of each column."""

File = Annotated[
    Path | None,
    typer.Argument(
        metavar="[FILE]",
        help="CoNLL-U, a word in each line with its columns, or raw text with a sentence in each line. Plain, .gz, .xz "
        "or .zst; standard input by default.",
    ),
]
ColumnNames = Annotated[
    str | None,
    typer.Option("--columns", metavar="NAMES", help="The columns to fill, such as upos,lemma; by default all."),
]
As = Annotated[
    Literal["text", "tokens"] | None,
    typer.Option("--as", help="Read the input as raw text or as words in lines; by default its first lines decide."),
]
Reference = Annotated[
    Path | None,
    typer.Option(
        "--reference",
        metavar="FILE",
        help="A file whose columns are right: print the accuracy of each column, and F1 of spans, instead of tags.",
    ),
]
Out = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Where to write; standard output by default.")]
Json = Annotated[bool, typer.Option("--json", help="Print a JSON record per sentence, or one with all scores.")]


def tag(
    model: ModelFolder,
    file: File = None,
    columns: ColumnNames = None,
    reference: Reference = None,
    as_: As = None,
    out: Out = None,
    json: Json = False,
) -> None:
    """Fill the columns of a file: parts of speech, features, lemmas, or other tags that the model was trained with.

    All else comes back byte for byte: comments, ranges, empty nodes, other columns. Of raw text, one sentence in each
    line, the words are found first, and the result is CoNLL-U (or token columns, if the model was trained on such).

    Train a tagger with [bold]seqloom train model.kind=tagger --train train.conllu --dev dev.conllu --out run[/bold].

    With [bold]--reference[/bold], the columns of that file are right, and those that the model fills are scored.
    """
    if reference is not None and file is not None:
        raise UsageError(f"--reference {reference} holds words and tags; leave out {file}")
    if reference is not None and (out is not None or columns is not None):
        given = "--out" if out is not None else "--columns"
        raise UsageError(f"{given} cannot be combined with --reference, which prints scores")
    names = None if columns is None else [each.strip() for each in columns.split(",")]

    from seqloom.apps.tagger import Tagger

    tagger = Tagger.load(model)
    with show_events(as_json=json, has_progress=reference is not None) as listener:
        if reference is not None:
            scores = _score(tagger, reference, listener=listener)
            print(json_line(_record(scores)) if json else "\n".join(_describe(scores)))
            return
        path = None if file is None or file == STDIN else file
        with open_input(path) as stream, open_or_stdout(out) as target:
            sentences = _tagged(tagger, stream, path or Path("standard input"), names, as_=as_, listener=listener)
            if isinstance(target, TextIOWrapper) and target is sys.stdout and not json:
                target.reconfigure(newline="")  # line ends come back as they were, on Windows too
            for number, sentence in enumerate(sentences, start=1):
                if json and sentence.words:
                    target.write(json_line(_sentence(number, sentence, names or tagger.columns)) + "\n")
                elif not json:
                    target.write(sentence.text)
                if target is sys.stdout:
                    target.flush()


def _tagged(
    tagger: "Tagger",
    stream: ByteStream,
    path: Path,
    columns: Sequence[str] | None,
    *,
    as_: Literal["text", "tokens"] | None,
    listener: Listener,
) -> Iterator[TokenSentence]:
    """The sentences of a stream with their columns filled."""
    first = stream.read1(CHUNK)
    layout = _layout(path, first, as_=as_)
    if layout is None:
        blocks = read_blocks(_Rest(first, stream), str(path), encoding=TextEncoding(), warn=partial(notice, listener))
        yield from tagger.annotate_many(chain.from_iterable(blocks), columns=columns)
        return
    chunks = chain([first], iter(partial(stream.read1, CHUNK), b""))
    yield from tagger.fill(parse_sentences(chunks, path, layout=layout), columns=columns)


def _layout(path: Path, first: bytes, *, as_: Literal["text", "tokens"] | None) -> TokenLayout | None:
    """The layout of a file of words; None for raw text."""
    from seqloom.apps.tagger import token_layout
    from seqloom.text.formats.conllu import find_layout

    lines = first.decode("utf-8-sig", errors="replace").split("\n")
    lines = [line.removesuffix("\r") for line in (lines[:-1] if len(lines) > 1 else lines)]
    if as_ == "text":
        return None
    return find_layout(path, lines) if as_ == "tokens" else token_layout(path, lines)


class _Rest:
    """A stream of which a part was read already."""

    def __init__(self, first: bytes, stream: ByteStream) -> None:
        self._first, self._stream = first, stream

    def read1(self, size: int, /) -> bytes:
        first, self._first = self._first, b""
        return first or self._stream.read1(size)


def _score(tagger: "Tagger", reference: Path, *, listener: Listener) -> "TaggerScores":
    from seqloom.text.formats.conllu import TokenFile

    sentences: Iterable[TokenSentence] = TokenFile(reference)
    return tagger.evaluate(sentences, progress=partial(progress, listener, f"tagging {reference}"))


def _sentence(number: int, sentence: TokenSentence, columns: Sequence[str]) -> dict[str, object]:
    values = {column: list(sentence.column(column)) for column in columns}
    return {"sentence": number, "words": list(sentence.forms), **values}


def _record(scores: "TaggerScores") -> dict[str, object]:
    return {
        "sentences": scores.sentences,
        "words": scores.words,
        "scores": list(scores.scores),
        "unknown": {column: dict(values) for column, values in scores.unknown.items()},
    }


def _describe(scores: "TaggerScores") -> list[str]:
    """The scores, and the values that the model does not know."""
    lines = [*score_rows(list(scores.scores))]
    for column, values in scores.unknown.items():
        if values:
            shown = ", ".join(clean(value) for value, _ in values.most_common(MAX_SHOWN_VALUES))
            more = ", …" if len(values) > MAX_SHOWN_VALUES else ""
            count = values.total()
            share = f"{count:,} of {scores.words:,} words"
            lines.append(f"{column}: {share} have a value that training has not seen: {shown}{more}")
    return lines
