"""`seqloom align`: word alignments, a line of links for each sentence pair."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from seqloom.cli.arguments import (
    STANDARD_OUTPUT,
    Encoding,
    OnBadUtf8,
    OutputFile,
    ParallelFiles,
    Threads,
    file_names,
    parse_words,
    require_new_file,
)
from seqloom.cli.console import examples, show_events
from seqloom.cli.inputs import TextEncoding, open_or_stdout
from seqloom.core.errors import UsageError
from seqloom.core.events import json_line, notice

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
    out: OutputFile = None,
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
    require_new_file(out, inputs=[*paths, *text_paths, *([reference] if reference else [])])
    decoding = TextEncoding.of(encoding, on_bad_utf8)

    from seqloom.apps import align as recipe
    from seqloom.classical.alignment import score_alignments
    from seqloom.core.config import resolve
    from seqloom.data.corpus import CorpusReading, ParallelCorpus, open_corpus
    from seqloom.data.workers import processors
    from seqloom.text.formats.pharaoh import format_links

    config = resolve(recipe.AlignConfig, overrides=overrides)
    threads = threads or processors()
    with show_events(as_json=json, has_progress=out is not None or not sys.stdout.isatty()) as listener:
        corpora = [
            open_corpus(each, encoding=decoding.encoding, on_bad=decoding.on_bad)
            for each in (paths, text_paths)
            if each
        ]
        for sentence in (sentence for corpus in corpora for sentence in corpus.notices):
            notice(listener, sentence)
        gold = recipe.read_reference(reference, corpora[-1], config, listener=listener) if reference else None
        everything = corpora[0]
        if text_paths:
            parts = [part for each in corpora for part in each.parts]
            everything = ParallelCorpus(parts, CorpusReading(decoding.encoding, on_bad=decoding.on_bad))
        text_words = recipe.read_words(everything, config, listener=listener)
        aligner = recipe.fit_words(text_words, config, threads=threads, listener=listener)
        first = len(corpora[0]) if text_paths else 0
        found = recipe.link_words(text_words, aligner, config, first=first, threads=threads, listener=listener)
        kept = []  # only what is to be scored
        with open_or_stdout(out) as stream:
            for number, links in enumerate(found, start=1):
                if gold is not None:
                    kept.append(links)
                stream.write((json_line({"line": number, "links": links}) if json else format_links(links)) + "\n")
        if gold is None:
            return
        score = score_alignments(kept, gold)
        values = {"aer": score.error_rate, "precision": score.precision, "recall": score.recall}
        aer, precision, recall = ("undefined" if value is None else f"{value:.4f}" for value in values.values())
        sentence = (
            f"AER {aer}, precision {precision}, recall {recall} "
            f"({score.found:,} links, {score.sure:,} sure ones in the reference, {len(gold):,} pairs)"
        )
        if out is not None and not json:
            print(sentence)
        else:  # standard output holds the links
            notice(listener, sentence, **values)
