"""`seqloom translate`: lines in, as many lines out; or a catalogue, with what it lacked."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from seqloom.cli.arguments import STANDARD_OUTPUT, require_new_file, require_search_settings, sort_words
from seqloom.cli.console import show_events
from seqloom.cli.lines import Decoding, Encoding, OnBadUtf8, open_input, read_blocks
from seqloom.cli.loading import Fuse, FuseWeight, LanguageModelFusion, opened_for_lines
from seqloom.cli.output import clean, examples, require_open
from seqloom.cli.translate_catalogue import CatalogueJob, catalogue_job, translate_catalogue
from seqloom.cli.translate_output import (
    TRANSLATING,
    Asked,
    Format,
    Hearing,
    Tally,
    Telling,
    as_json,
    as_nbest,
    as_scored,
    as_text,
    read_asked,
)
from seqloom.core.errors import Problems, UsageError
from seqloom.core.events import Event, Listener, notice
from seqloom.core.files import open_output
from seqloom.text.formats.pharaoh import format_links
from seqloom.text.formats.readers import is_tsv
from seqloom.text.formats.tsv import column_problem

if TYPE_CHECKING:
    from seqloom.apps.engine import Translates

EXAMPLES = examples(
    "echo 'Guten Morgen.' | seqloom translate run/model",
    "seqloom translate run/model news.de --out news.en search.beam=8",
    "seqloom translate run/model news.de --nbest 4",
    "seqloom translate run/model page.de --tags --glossary terms.tsv --align page.links",
    "seqloom translate run/model messages.po --target fr --out messages.fr.po",
    "seqloom translate first/model --with second/model news.de",
    "seqloom translate run/model news.de --fuse lm/model --fuse-weight 0.1",
    "seqloom translate run/model news.de --engine ctranslate2 search.length_normalisation=mean",
)


class Output(Protocol):
    """Where translations go: standard output, or a file."""

    def write(self, text: str, /) -> int: ...

    def flush(self) -> None: ...

    def isatty(self) -> bool: ...


Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder or a run.")]
Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILE search.beam=8",
        help="Text, a sentence per line; standard input without it. Or a catalogue, whose untranslated entries are "
        "filled: .po, .mo, .xlf, .xliff, .tmx, .jsonl. Of a .tsv, the first column is translated. May be compressed "
        "(.gz, .xz, .zst). Settings of the search.",
    ),
]
Out = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Where to write; standard output without it.")]
Nbest = Annotated[
    int | None,
    typer.Option(
        "--nbest",
        metavar="N",
        min=1,
        help="The N best of each line, as [bold]line ||| text ||| score[/bold]: lines are counted from 1, scores "
        "are log-probabilities with the length normalisation. N is at most search.beam; of search.method=sample, any "
        "number, as drawn.",
    ),
]
Scores = Annotated[
    bool, typer.Option("--scores", help="Score and text of each line, with a tab between; null for a blank line.")
]
Json = Annotated[
    bool,
    typer.Option("--json", help="A record per line: translations, score terms, token log-probabilities, completeness."),
]


With = Annotated[
    list[Path] | None,
    typer.Option(
        "--with",
        metavar="MODEL",
        help="Another model that decides with the first one, symbol by symbol; may be given again. All must share "
        "their vocabulary: train the others with data.tokenizers_from=MODEL.",
    ),
]
Terms = Annotated[
    Path | None,
    typer.Option(
        "--glossary",
        metavar="FILE",
        help="Terms and their translations, a pair per line with a tab between. Where a term stands in a line, its "
        "translation must come, as a word or words of its own. Case counts, unless the model reads small letters only.",
    ),
]
Prefix = Annotated[
    Path | None,
    typer.Option("--prefix", metavar="FILE", help="How each translation begins, line by line; a blank line is free."),
]
Forbid = Annotated[
    list[str] | None,
    typer.Option(
        "--forbid",
        metavar="WORD",
        help="A word or phrase that may stand in no translation between borders of words, however the model would "
        "write it: Hund forbids neither Hunde nor hund. May be given again.",
    ),
]
Stop = Annotated[
    list[str] | None,
    typer.Option(
        "--stop",
        metavar="STRING",
        help="A translation ends once it holds this text, also inside a word; may be given again.",
    ),
]
Align = Annotated[
    Path | None,
    typer.Option(
        "--align",
        metavar="FILE",
        help="Write which words go together, as [bold]0-0 1-2[/bold]: source word first, counted from 0, by where the "
        "model looked; - for standard output, if --out names a file. With --json, words and links are also in the "
        "records.",
    ),
]
Dictionary = Annotated[
    Path | None,
    typer.Option(
        "--dictionary",
        metavar="FILE",
        help="Words and their translations, a pair per line with a tab between, for words that the model cannot write; "
        "sets search.unknown=copy.",
    ),
]
Tags = Annotated[
    bool,
    typer.Option(
        "--tags",
        help="Take tags and placeholders (<b>, <br/>, {0}, %s, &amp;) out of the lines and put them back around the "
        "words that theirs became.",
    ),
]
Engine = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="NAME",
        help="[bold]seqloom[/bold], or [bold]ctranslate2[/bold], which searches Transformers by rules of its own; "
        "MODEL may then be a folder that seqloom export wrote. Settings that it cannot follow are refused.",
    ),
]
Target = Annotated[
    str | None,
    typer.Option(
        "--target",
        metavar="LANGUAGE",
        help="The language of a catalogue's translations, such as fr or pt-BR; without it, that of the model.",
    ),
]
Fuzzy = Annotated[
    bool, typer.Option("--fuzzy", help="In a catalogue, translate those entries again that are marked fuzzy.")
]
Review = Annotated[
    bool, typer.Option("--review", help="In a catalogue, mark every entry that was filled as in need of review.")
]
InPlace = Annotated[bool, typer.Option("--in-place", help="Write the filled catalogue over the one that was read.")]
Jobs = Annotated[
    int,
    typer.Option(
        "--jobs",
        metavar="N",
        min=1,
        max=1000,
        help="Processes that translate, each with one thread and the model: for whole files, one for each core.",
    ),
]


def translate(
    model: Model,
    words: Words = None,
    out: Out = None,
    nbest: Nbest = None,
    scores: Scores = False,
    json: Json = False,
    companions: With = None,
    fuse: Fuse = None,
    fuse_weight: FuseWeight = None,
    glossary: Terms = None,
    prefix: Prefix = None,
    forbid: Forbid = None,
    stop: Stop = None,
    align: Align = None,
    tags: Tags = False,
    dictionary: Dictionary = None,
    engine: Engine = "seqloom",
    jobs: Jobs = 1,
    target: Target = None,
    fuzzy: Fuzzy = False,
    review: Review = False,
    in_place: InPlace = False,
    encoding: Encoding = None,
    on_bad_utf8: OnBadUtf8 = None,
) -> None:
    """Translate text, line by line, or fill what a message catalogue or a translation memory lacks.

    N lines in, N lines out, always; a blank line stays blank. Only LF ends a line. A line that is longer
    than the model takes is translated sentence by sentence. Of a catalogue, all that had a translation stays as it was.
    """
    given = sort_words(words)
    path = _text_file(given.others)
    out = None if out == STANDARD_OUTPUT else out
    if align == STANDARD_OUTPUT and out is None:
        raise UsageError("--align - writes links to standard output, where the translations go; name a file with --out")
    wanted = CatalogueJob(path, out, in_place, target, fuzzy, review, json, engine)
    lines_only: dict[str, object] = {"--encoding": encoding, "--on-bad-utf8": on_bad_utf8}
    lines_only |= {"--scores": scores, "--nbest": nbest, "--prefix": prefix, "--align": align, "--tags": tags}
    decoding = Decoding.asked(encoding, on_bad_utf8)
    catalogue = catalogue_job(wanted, model, others=_given(lines_only))
    require_search_settings(given.overrides)
    fusion = LanguageModelFusion.of(fuse, fuse_weight)
    ours = {
        "--with": companions,
        "--fuse": fuse,
        "--glossary": glossary,
        "--forbid": forbid,
        "--stop": stop,
        "--align": align,
    }
    _require_engine(engine, _given(ours | {"--tags": tags, "--dictionary": dictionary, "--jobs": jobs > 1}))
    if jobs > 1 and (alone := _given({"--with": companions, "--fuse": fuse, "--prefix": prefix})):
        raise UsageError(f"{alone[0]} cannot be combined with --jobs; leave one of them out")
    _require_places(path, out, align, others=[glossary, prefix, dictionary, model, fuse, *(companions or ())])
    copied = ["search.unknown=copy"] if dictionary is not None else []
    overrides = [*copied, *given.overrides, *([f"search.nbest={nbest}"] if nbest is not None else [])]
    write = _format(json=json, nbest=nbest, scores=scores)
    # Lines that are typed or piped in have no end to progress to, and a bar would run into results on a terminal.
    is_shown = sys.stdout.isatty() and (out is None or align == STANDARD_OUTPUT)
    has_progress = path is not None and not is_shown
    with show_events(as_json=json, has_progress=has_progress) as listener:
        total = None if catalogue else _check_file(path, decoding)
        asked = read_asked(glossary=glossary, prefix=prefix, forbid=forbid, stop=stop, dictionary=dictionary)
        asked.require_lines(total)
        _require_room(nbest, model, overrides=given.overrides, engine=engine)
        several = opened_for_lines(
            model,
            overrides,
            companions=companions or (),
            fusion=fusion,
            engine=engine,
            jobs=jobs,
            listener=listener,
        )
        if catalogue is not None:
            translate_catalogue(catalogue, model, given.overrides, opened=several, asked=asked, listener=listener)
            return
        with several as translator, _opened(out) as stream, _opened(align) if align else nullcontext() as links:
            job = Job(translator, asked, decoding, write=write, links=links, tags=tags)
            _go(job, path, stream=stream, listener=listener, total=total)


def _text_file(words: Sequence[str]) -> Path | None:
    """The file to be translated; None is standard input."""
    if len(words) > 1:
        raise UsageError(f"one text file at most, but {len(words)} were given: {', '.join(words)}")
    return Path(words[0]) if words and words[0] != "-" else None


def _format(*, json: bool, nbest: int | None, scores: bool) -> Format:
    """How a line is written."""
    if scores and (json or nbest is not None):
        raise UsageError(f"{'--json' if json else '--nbest'} shows the scores already; leave out --scores")
    return as_json if json else as_nbest if nbest is not None else as_scored if scores else as_text


@dataclass(frozen=True)
class Job:
    """What is to be done with every line."""

    translator: "Translates"
    asked: Asked
    decoding: Decoding
    write: Format
    links: Output | None
    """Where alignments go, if anywhere."""
    tags: bool


def _go(job: Job, path: Path | None, *, stream: Output, listener: Listener, total: int | None) -> None:
    if path is None and sys.stdin.isatty():
        print("Type a sentence and press Enter; Ctrl-D ends.", file=sys.stderr)
    name = str(path) if path else "standard input"
    translator = job.translator
    done, has_warned, tally, hearing = 0, False, Tally(), Hearing(translator.source_language)
    with open_input(path) as source:
        blocks = read_blocks(source, name, decoding=job.decoding, warn=lambda message: notice(listener, message))
        for block in _first_columns(blocks, path, listener=listener):
            first = done + 1
            if tally.look_at(block, first, translator.tokenizers.source) and not has_warned:
                notice(listener, "100% of the source is unknown to this model; is this the right language and model?")
                has_warned = True
            if doubt := hearing.doubt(block):
                notice(listener, doubt)
            watch = Telling(listener, name, first=first, total=total, limit=translator.longest)
            results = translator.search(
                block,
                align=job.links is not None,
                tags=job.tags,
                wishes=job.asked.wishes(done, len(block)),
                glossary=job.asked.glossary,
                dictionary=job.asked.dictionary,
                first=done,
                progress=watch.lines_done,
                watch=watch,
            )
            for number, (line, found) in enumerate(zip(block, results, strict=True), start=first):
                tally.count(found, number)
                for text in job.write(translator.tokenizers, number, line, found):
                    stream.write((clean(text) if stream.isatty() else text) + "\n")
                if job.links is not None and (alignment := found[0].alignment) is not None:
                    job.links.write(format_links(alignment.links) + "\n")
            stream.flush()
            done = first + len(block) - 1
    if total:
        listener(Event("progress", {"what": TRANSLATING, "done": done, "all": total}))
    for message in tally.messages(name):
        notice(listener, message)


def _first_columns(blocks: Iterator[list[str]], path: Path | None, *, listener: Listener) -> Iterator[list[str]]:
    """Of a table, the sources, which are in its first column and need no second one; of other text, the lines."""
    if path is None or not is_tsv(path):
        yield from blocks
        return
    has_told, before = False, 0
    for block in blocks:
        problems = Problems()
        for number, line in enumerate(block, start=before + 1):
            if "\t" in line and (problem := column_problem(line)):
                problems.add(problem, path, number)
        problems.require_none()
        before += len(block)
        if not has_told and "\t" in block[0]:
            notice(listener, f"{path}: the first of 2 columns is translated; the other is not read")
            has_told = True
        yield [line.partition("\t")[0] for line in block]


def _require_room(nbest: int | None, model: Path, *, overrides: Sequence[str], engine: str) -> None:
    """Refuse a list that is longer than the beam, in the words of the command, before the model is read."""
    if nbest is None or engine != "seqloom":
        return
    from seqloom.apps.search_settings import resolved

    search = resolved(model, overrides).search
    if search.method == "beam" and nbest > search.beam:
        raise UsageError(
            f"--nbest {nbest} lists more translations than search.beam={search.beam} keeps; "
            f"add search.beam={search.beam_for(nbest)}, or give --nbest {search.beam}"
        )


def _require_engine(engine: str, flags: Sequence[str]) -> None:
    if engine not in ("seqloom", "ctranslate2"):
        raise UsageError(f"there is no engine {engine!r}; give seqloom or ctranslate2")
    if engine != "seqloom" and flags:
        raise UsageError(f"{flags[0]} is nothing that CTranslate2 can follow; leave it out, or leave out --engine")


# --- files -----------------------------------------------------------------------------------------------------------


def _check_file(path: Path | None, decoding: Decoding) -> int | None:
    """Read a file through once, so that bad bytes are told before the slow part; its number of lines."""
    if path is None:
        require_open(sys.stdin, "standard input")
        return None
    with open_input(path) as source:
        blocks = read_blocks(source, str(path), decoding=decoding, is_checked_whole=True)
        return sum(len(block) for block in blocks)


def _given(flags: Mapping[str, object]) -> list[str]:
    """The flags that were used."""
    return [flag for flag, value in flags.items() if value]


def _require_places(path: Path | None, out: Path | None, align: Path | None, *, others: Sequence[Path | None]) -> None:
    """Refuse an output that would take the place of something that is read, or of the other one."""
    inputs = [each for each in (path, *others) if each is not None]
    require_new_file(out, inputs=inputs)
    require_new_file(None if align == STANDARD_OUTPUT else align, inputs=inputs, flag="--align")
    if out is not None and align is not None and out.resolve() == align.resolve():
        raise UsageError(f"--out and --align both name {out}; give each its own file")
    _refuse_same_stdout(path, out)


def _refuse_same_stdout(path: Path | None, out: Path | None) -> None:
    if path is None or out is not None:
        return
    with suppress(OSError, ValueError):
        if os.path.samestat(path.stat(), os.fstat(sys.stdout.fileno())):
            raise UsageError(f"{path} is the input and standard output as well; write to another file")


def _opened(out: Path | None) -> AbstractContextManager[Output]:
    """Standard output, or a file that appears under its name when it is whole."""
    return nullcontext(sys.stdout) if out in (None, STANDARD_OUTPUT) else open_output(out)
