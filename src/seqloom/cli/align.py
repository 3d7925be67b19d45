"""`seqloom align`: word alignments, a line of links for each sentence pair."""

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqloom.cli.arguments import (
    STANDARD_INPUT,
    STANDARD_OUTPUT,
    Encoding,
    OnBadUtf8,
    OutputFile,
    ParallelFiles,
    Threads,
    file_names,
    parse_words,
    require_new_file,
    require_picture,
)
from seqloom.cli.console import examples, show_events
from seqloom.cli.inputs import TextEncoding, open_input, open_or_stdout, read_blocks
from seqloom.core.errors import DataError, Problem, UsageError
from seqloom.core.events import Listener, json_line, notice
from seqloom.core.files import write_atomically

if TYPE_CHECKING:
    from seqloom.apps.align import AlignConfig, LinkedPair
    from seqloom.apps.aligner import Aligner
    from seqloom.classical.alignment import AlignmentScore
    from seqloom.text.formats.pharaoh import GoldLinks

EXAMPLES = examples(
    "seqloom align --train corpus.de --train corpus.en --out corpus.align --save aligner-de-en",
    "seqloom align --model aligner-de-en --text news.de,news.en --probabilities",
    "seqloom align --train corpus.de,corpus.en --text test.de,test.en --reference test.align segmentation=spaces",
    "seqloom align --model aligner-de-en --text test.de,test.en --page test.html --picture first.png",
    "seqloom align --train corpus.de-en.tsv --symmetrise intersection model.kind=model1",
)

MAX_PAIRS = 200
"""Pairs on a page: more make it slow to open."""

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="path=value",
        help="Settings: model.kind=model1, segmentation=spaces, lowercase=false, data.source=de …",
    ),
]
TextFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--text",
        metavar="FILE",
        help="Text to align instead of the training text, in the same form; with --train it is also used for training. "
        "With --model, - reads lines SOURCE<tab>TARGET from standard input and answers them as they come.",
    ),
]
SavedAligner = Annotated[
    Path | None,
    typer.Option(
        "--model", metavar="FOLDER", help="Align --text with an aligner that --save wrote; nothing is learned."
    ),
]
Save = Annotated[
    Path | None, typer.Option("--save", metavar="FOLDER", help="Write the aligner as a model, to a new folder.")
]
Iterations = Annotated[
    int | None, typer.Option("--iterations", metavar="N", help="EM iterations for each direction: model.iterations.")
]
Symmetrise = Annotated[
    str | None,
    typer.Option(
        "--symmetrise",
        metavar="RULE",
        help="posterior (the default), forward, backward, intersection, union, grow-diag or grow-diag-final-and (the "
        "default of model.kind=model1).",
    ),
]
Reference = Annotated[
    Path | None,
    typer.Option(
        "--reference", metavar="FILE", help="Gold links, as lines 0-0 1?2 or as .wa; prints the alignment error rate."
    ),
]
Probabilities = Annotated[
    bool, typer.Option("--probabilities", help="Print links with their probabilities: 0-0:0.98 1-2:0.91.")
]
Page = Annotated[
    Path | None, typer.Option("--page", metavar="FILE.html", help="Also write the pairs as a page to look at.")
]
Picture = Annotated[Path | None, typer.Option("--picture", metavar="FILE.png", help="Also draw one pair (PNG or SVG).")]
Line = Annotated[int, typer.Option("--line", min=1, metavar="N", help="The pair that --picture draws, counted from 1.")]
Json = Annotated[bool, typer.Option("--json", help="Print a record per line: line, links, probabilities.")]


def align(
    words: Words = None,
    train: ParallelFiles = None,
    text: TextFiles = None,
    model: SavedAligner = None,
    save: Save = None,
    out: OutputFile = None,
    iterations: Iterations = None,
    symmetrise: Symmetrise = None,
    reference: Reference = None,
    probabilities: Probabilities = False,
    page: Page = None,
    picture: Picture = None,
    line: Line = 1,
    threads: Threads = None,
    encoding: Encoding = None,
    on_bad_utf8: OnBadUtf8 = None,
    json: Json = False,
) -> None:
    """Align words and print a line of links [bold]0-0 1-2[/bold] for each sentence pair.

    Positions are counted from 0, source first. N pairs in, N lines out; a blank line stays blank. The aligner is
    learned from the text itself, or was saved before.
    """
    out = None if out == STANDARD_OUTPUT else out
    given = parse_words(words)
    if given.others:
        raise UsageError(f"{given.others[0]!r} is not a setting path=value; name text files with --train or --text")
    flags = [("model.iterations", iterations), ("symmetrise", symmetrise)]
    overrides = [*given.overrides, *(f"{name}={value}" for name, value in flags if value is not None)]
    paths, text_paths = [Path(name) for name in file_names(train)], [Path(name) for name in file_names(text)]
    _require_text(model, paths, text_paths, save=save, overrides=overrides)
    is_piped = text_paths == [STANDARD_INPUT]
    if is_piped and (model is None or reference or page or picture):
        raise UsageError("--text - is read with --model, without --reference, --page and --picture; name files instead")
    inputs = [*paths, *text_paths, *(each for each in (reference, model) if each)]
    require_new_file(out, inputs=inputs)
    require_new_file(page, inputs=inputs, flag="--page")
    if picture is not None:
        require_picture(picture)
    for flag, view in (("--page", page), ("--picture", picture)):
        if view is not None and view.exists() and not view.is_file():  # links are printed before it is written
            raise UsageError(f"{view} is not a file; name another one with {flag}")
    decoding = TextEncoding.of(encoding, on_bad_utf8)

    from seqloom.apps import align as recipe
    from seqloom.apps.aligner import Aligner
    from seqloom.classical.alignment import score_alignments
    from seqloom.core.config import resolve
    from seqloom.data.corpus import CorpusReading, ParallelCorpus, open_corpus
    from seqloom.data.workers import processors
    from seqloom.runs.config import DataConfig

    config = resolve(recipe.AlignConfig, overrides=overrides)
    if save is not None:
        recipe.require_new_folder(save)
    languages = config.languages if is_piped else recipe.named_languages(paths or text_paths, config.languages)
    aligner = None
    if model is not None:
        aligner = Aligner.load(model)
        aligner.require_languages(languages)
        own = recipe.settings_of(aligner).model_dump(mode="json")
        config = resolve(recipe.AlignConfig, defaults=own, overrides=overrides)
    threads = threads or processors()
    with show_events(as_json=json, has_progress=out is not None or not sys.stdout.isatty()) as listener:
        if aligner is not None and is_piped:
            with open_or_stdout(out) as stream:
                for number, pair in enumerate(_piped(aligner, config, decoding, listener, probabilities), start=1):
                    stream.write(_line(number, pair, probabilities=probabilities, json=json) + "\n")
                    stream.flush()
            return
        reading = CorpusReading(decoding.encoding, config.languages, decoding.on_bad)
        corpora = [
            open_corpus(each, encoding=reading.encoding, languages=reading.languages, on_bad=reading.on_bad)
            for each in (paths, text_paths)
            if each
        ]
        for sentence in (sentence for corpus in corpora for sentence in corpus.notices):
            notice(listener, sentence)
        if aligner is None:
            config = recipe.for_text(config, corpora[0], listener=listener)
        if picture is not None and line > len(corpora[-1]):
            raise UsageError(f"--line {line} is beyond the last of {len(corpora[-1]):,} pairs")
        gold = recipe.read_reference(reference, corpora[-1], config, listener=listener) if reference else None
        # Of the pairs that are not shown, only links are needed.
        shown = max(MAX_PAIRS if page is not None else 0, line if picture is not None else 0)
        with_probabilities = len(corpora[-1]) if probabilities else shown
        if aligner is not None:
            found = recipe.link_corpus(
                corpora[-1],
                aligner,
                symmetrise=config.symmetrise,
                threshold=config.threshold,
                probabilities=with_probabilities,
                threads=threads,
                listener=listener,
            )
        else:
            corpus = ParallelCorpus([part for each in corpora for part in each.parts], reading)
            learned = recipe.fit_words(
                recipe.read_words(corpus, config, listener=listener), config, threads=threads, listener=listener
            )
            if save is not None:
                data = DataConfig(
                    train=tuple(str(path) for part in corpus.parts for path in part),
                    source=languages[0],
                    target=languages[1],
                    encoding=decoding.encoding,
                    on_bad_utf8=decoding.on_bad,
                )
                learned.save(save, data=data, fingerprint=corpus.fingerprint())
                notice(listener, f"aligner written to {save}; use it with: seqloom align --model {save} --text …")
            first = len(corpora[0]) if text_paths else 0
            found = learned.link(first=first, probabilities=with_probabilities, threads=threads, listener=listener)
        seen = _View(page=page, picture=picture, line=line)
        kept = []  # only what is to be scored
        with open_or_stdout(out) as stream:
            for number, pair in enumerate(found, start=1):
                if gold is not None:
                    kept.append(pair.links)
                seen.add(number, pair)
                stream.write(_line(number, pair, probabilities=probabilities, json=json) + "\n")
        score = None if gold is None else score_alignments(kept, gold)
        seen.write(gold, score, name=" ".join(map(str, text_paths or paths)), listener=listener)
        if score is not None:
            _report_score(score, len(kept), is_printed=out is not None and not json, listener=listener)


def _require_text(
    model: Path | None, train: Sequence[Path], text: Sequence[Path], *, save: Path | None, overrides: Sequence[str]
) -> None:
    """Refuse what cannot be combined, before anything is read."""
    if model is None:
        if not train:
            raise UsageError("no text to align: give --train corpus.de --train corpus.en, or --model FOLDER --text …")
        return
    if train:
        raise UsageError(
            "--model cannot be combined with --train: a saved aligner learns nothing; name the text to align with "
            "--text, or leave out --model"
        )
    if not text:
        raise UsageError("no text to align: give --text news.de --text news.en")
    if save is not None:
        raise UsageError(f"--save cannot be combined with --model: {model} is saved already")
    for override in overrides:
        name = override.partition("=")[0]
        if name not in ("symmetrise", "threshold") and not name.startswith("data."):
            raise UsageError(
                f"{name} cannot be changed with --model: the aligner was fitted with its own settings; only "
                "symmetrise, threshold, data.source and data.target can be set"
            )


def _piped(
    aligner: "Aligner", config: "AlignConfig", decoding: TextEncoding, listener: Listener, probabilities: bool
) -> Iterator["LinkedPair"]:
    """The pairs of standard input, as soon as they arrive."""
    from seqloom.apps.align import link_pairs

    done = 0
    with open_input(None) as given:
        for lines in read_blocks(given, "standard input", encoding=decoding, warn=partial(notice, listener)):
            pairs = []
            for number, line in enumerate(lines, start=done + 1):
                columns = line.split("\t") if line.strip() else ["", ""]
                if len(columns) != 2:
                    message = f"{len(columns)} columns; a line has a source, a tab and a target"
                    raise DataError(problems=[Problem(message, "standard input", number)])
                pairs.append((columns[0], columns[1]))
            done += len(lines)
            yield from link_pairs(
                pairs,
                aligner,
                symmetrise=config.symmetrise,
                threshold=config.threshold,
                probabilities=len(pairs) if probabilities else 0,
            )


def _line(number: int, pair: "LinkedPair", *, probabilities: bool, json: bool) -> str:
    """A pair as it is printed."""
    from seqloom.text.formats.pharaoh import format_links

    table = pair.probabilities if probabilities else None
    if not json:
        return format_links(pair.links, None if table is None else table.__getitem__)
    record = {"line": number, "links": pair.links}
    if table is not None:
        record["probabilities"] = [round(float(table[link]), 6) for link in pair.links]
    return json_line(record)


class _View:
    """What --page and --picture show, collected while lines are written."""

    def __init__(self, *, page: Path | None, picture: Path | None, line: int) -> None:
        self.page, self.picture, self.line = page, picture, line
        self.pairs: list[LinkedPair] = []
        self.drawn: LinkedPair | None = None
        self.count = 0

    def add(self, number: int, pair: "LinkedPair") -> None:
        self.count = number
        if self.page is not None and number <= MAX_PAIRS:
            self.pairs.append(pair)
        if self.picture is not None and number == self.line:
            self.drawn = pair

    def write(
        self,
        gold: "Sequence[GoldLinks] | None",
        score: "AlignmentScore | None",
        *,
        name: str,
        listener: Listener,
    ) -> None:
        if self.page is None and self.picture is None:
            return
        from seqloom.look.alignment import alignment_page, draw_alignment

        if self.page is not None:
            facts = "" if score is None else _score_text(score, self.count)
            shown = None if gold is None else gold[: len(self.pairs)]
            write_atomically(self.page, alignment_page(self.pairs, shown, name=name, facts=facts))
            if self.count > len(self.pairs):
                notice(listener, f"{self.page} shows the first {len(self.pairs):,} of {self.count:,} pairs")
        if self.picture is not None and self.drawn is not None:
            draw_alignment(self.drawn, None if gold is None else gold[self.line - 1], self.picture)


def _score_text(score: "AlignmentScore", pairs: int) -> str:
    rates = (score.error_rate, score.precision, score.recall)
    aer, precision, recall = ("undefined" if value is None else f"{value:.4f}" for value in rates)
    return (
        f"AER {aer}, precision {precision}, recall {recall} "
        f"({score.found:,} links, {score.sure:,} sure ones in the reference, {pairs:,} pairs)"
    )


def _report_score(score: "AlignmentScore", pairs: int, *, is_printed: bool, listener: Listener) -> None:
    if is_printed:
        print(_score_text(score, pairs))
    else:  # standard output holds the links
        values = {"aer": score.error_rate, "precision": score.precision, "recall": score.recall}
        notice(listener, _score_text(score, pairs), **values)
