"""`seqloom align`: word alignments, a line of links for each sentence pair."""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from seqloom.cli.arguments import (
    STANDARD_OUTPUT,
    Encoding,
    OnBadUtf8,
    ParallelFiles,
    Threads,
    file_names,
    parse_words,
    require_new_file,
)
from seqloom.cli.console import examples, json_line, show_events
from seqloom.cli.inputs import TextEncoding
from seqloom.core.errors import UsageError
from seqloom.core.events import Listener, notice

if TYPE_CHECKING:
    from seqloom.text.formats.pharaoh import GoldLinks, Link

EXAMPLES = examples(
    "seqloom align --train corpus.de --train corpus.en --out corpus.align",
    "seqloom align --train corpus.de,corpus.en --text test.de,test.en --reference test.align segmentation=spaces",
    "seqloom align --train corpus.de-en.tsv --symmetrise intersection model.tension=4",
)

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="path=value",
        help="Settings: segmentation=spaces, lowercase=false, model.null_rate=0.1, model.tension=4 …",
    ),
]
TextFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--text",
        metavar="FILE",
        help="Text to align instead of the training text, in the same form; it is also used for training.",
    ),
]
Out = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Output file; standard output by default.")]
Iterations = Annotated[
    int | None, typer.Option("--iterations", metavar="N", help="EM iterations for each direction; 5 by default.")
]
Symmetrise = Annotated[
    str | None,
    typer.Option(
        "--symmetrise",
        metavar="RULE",
        help="forward, backward, intersection, union, grow-diag or grow-diag-final-and (the default).",
    ),
]
Reference = Annotated[
    Path | None,
    typer.Option(
        "--reference", metavar="FILE", help="Gold links, as lines 0-0 1?2 or as .wa; prints the alignment error rate."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print a record per line: line, links.")]


def align(
    words: Words = None,
    train: ParallelFiles = None,
    text: TextFiles = None,
    out: Out = None,
    iterations: Iterations = None,
    symmetrise: Symmetrise = None,
    reference: Reference = None,
    threads: Threads = None,
    encoding: Encoding = None,
    on_bad_utf8: OnBadUtf8 = None,
    json: Json = False,
) -> None:
    """Align words with IBM model 1 and print a line of links [bold]0-0 1-2[/bold] for each sentence pair.

    Positions are counted from 0, source first. N pairs in, N lines out; a blank line stays blank.
    """
    out = None if out == STANDARD_OUTPUT else out
    given = parse_words(words)
    if given.others:
        raise UsageError(f"{given.others[0]!r} is not a setting path=value; name text files with --train")
    flags = [("model.iterations", iterations), ("symmetrise", symmetrise)]
    overrides = [*given.overrides, *(f"{name}={value}" for name, value in flags if value is not None)]
    names, text_names = file_names(train), file_names(text)
    if not names:
        raise UsageError("no text to align: give --train corpus.de --train corpus.en")
    paths, text_paths = [Path(name) for name in names], [Path(name) for name in text_names]
    inputs = [*paths, *text_paths, *([reference] if reference else [])]
    require_new_file(out, inputs=inputs)
    has_progress = out is not None or not sys.stdout.isatty()
    with show_events(as_json=json, has_progress=has_progress) as listener:
        _go(
            paths,
            text_paths,
            overrides=overrides,
            out=out,
            reference=reference,
            threads=threads or _cores(),
            decoding=TextEncoding.of(encoding, on_bad_utf8),
            listener=listener,
            as_json=json,
        )


def _go(
    paths: Sequence[Path],
    text_paths: Sequence[Path],
    *,
    overrides: Sequence[str],
    out: Path | None,
    reference: Path | None,
    threads: int,
    decoding: TextEncoding,
    listener: Listener,
    as_json: bool,
) -> None:
    from seqloom.apps import align as recipe
    from seqloom.core.config import resolve
    from seqloom.data.corpus import ParallelCorpus, open_corpus

    config = resolve(recipe.AlignConfig, overrides=overrides)
    encoding, on_bad = decoding.encoding, decoding.on_bad
    corpora = [open_corpus(each, encoding=encoding, on_bad=on_bad) for each in (paths, text_paths) if each]
    for corpus in corpora:
        for sentence in corpus.notices:
            notice(listener, sentence)
    gold = recipe.read_reference(reference, corpora[-1], config, listener=listener) if reference else None
    first = len(corpora[0]) if text_paths else 0
    parts = [part for each in corpora for part in each.parts]
    everything = corpora[0] if not text_paths else ParallelCorpus(parts, encoding=encoding, on_bad=on_bad)
    words = recipe.read_words(everything, config, listener=listener)
    aligner = recipe.fit_words(words, config, threads=threads, listener=listener)
    links = recipe.link_words(words, aligner, config, first=first, threads=threads, listener=listener)
    kept: list[list[Link]] = []
    with _opened(out) as stream:
        stream.writelines(_lines(_keeping(links, kept, gold), as_json=as_json))
    if gold is not None:
        _report_score(kept, gold, listener=listener, is_printed=out is not None and not as_json)


def _keeping(
    links: "Iterable[list[Link]]", kept: "list[list[Link]]", gold: "list[GoldLinks] | None"
) -> "Iterator[list[Link]]":
    """The links as they come, kept only where they are to be scored."""
    for each in links:
        if gold is not None:
            kept.append(each)
        yield each


def _lines(links: "Iterable[list[Link]]", *, as_json: bool) -> Iterator[str]:
    from seqloom.text.formats.pharaoh import format_links

    for number, each in enumerate(links, start=1):
        yield (json_line({"line": number, "links": each}) if as_json else format_links(each)) + "\n"


def _report_score(found: "list[list[Link]]", gold: "list[GoldLinks]", *, listener: Listener, is_printed: bool) -> None:
    from seqloom.metrics.aer import score_alignments

    score = score_alignments(found, gold)
    values = {"aer": score.error_rate, "precision": score.precision, "recall": score.recall}
    aer, precision, recall = ("undefined" if value is None else f"{value:.4f}" for value in values.values())
    sentence = (
        f"AER {aer}, precision {precision}, recall {recall} "
        f"({score.found:,} links, {score.sure:,} sure ones in the reference, {len(gold):,} pairs)"
    )
    if is_printed:
        print(sentence)
    else:  # standard output holds the links
        notice(listener, sentence, **values)


def _opened(out: Path | None) -> AbstractContextManager[TextIO]:
    from seqloom.core.files import open_output

    return nullcontext(sys.stdout) if out is None else open_output(out)


def _cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
