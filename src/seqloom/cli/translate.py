"""`seqloom translate`: its options, which of them exclude each other, and where input and output are."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from seqloom.cli.arguments import (
    STANDARD_OUTPUT,
    Conflict,
    Encoding,
    FromLanguage,
    ModelFolder,
    OnBadUtf8,
    OutputFile,
    ToLanguage,
    language_settings,
    parse_words,
    refuse_conflicts,
    require_content,
    require_new_file,
    require_search_settings,
)
from seqloom.cli.console import examples, show_events
from seqloom.cli.inputs import Fuse, FuseWeight, TextEncoding, parse_fusion
from seqloom.cli.translate_jobs import (
    count_lines,
    open_engine,
    read_constraints,
    read_memories,
    translate_catalogue,
    translate_text,
)
from seqloom.core.errors import UsageError
from seqloom.core.files import require_file, require_writable
from seqloom.core.text_files import bare_name, is_compressed
from seqloom.text.formats.jsonl import JSONL
from seqloom.text.formats.po import PO
from seqloom.text.formats.readers import format_of, is_document, is_tsv
from seqloom.text.languages import is_language_code

EXAMPLES = examples(
    "echo 'Guten Morgen.' | seqloom translate run/model",
    "seqloom translate run/model news.de --out news.en search.beam=8",
    "seqloom translate run/model news.de --nbest 4",
    "seqloom translate run/model page.de --tags --glossary terms.tsv --align page.links",
    "seqloom translate run/model messages.po --target fr --out messages.fr.po",
    "seqloom translate run/model messages.po --memory project.tmx --out messages.de.po",
    "seqloom translate run/model report.docx --out report.fr.docx",
    "seqloom translate first/model --with second/model news.de",
    "seqloom translate run/model news.de --fuse lm/model --fuse-weight 0.1",
    "seqloom translate lm/model news.en --shots pairs.tsv --from en --to de",
    "seqloom translate run/model news.de --engine ctranslate2 search.length_normalisation=mean",
)

CATALOGUE, DOCUMENT, PLAIN_TEXT = "a catalogue", "a document", "plain text"
CONFLICTS = (
    Conflict(
        ("--encoding", "--on-bad-utf8", "--scores", "--nbest", "--prefix", "--align", "--tags"),
        CATALOGUE,
        "it is for text with one sentence per line",
    ),
    Conflict(
        ("--encoding", "--on-bad-utf8", "--scores", "--nbest", "--prefix", "--align", "--tags"),
        DOCUMENT,
        "it is for text with one sentence per line",
    ),
    Conflict(
        ("--target", "--fuzzy", "--review", "--review-below"),
        DOCUMENT,
        "it is for catalogues (.po, .xlf, .xliff, .tmx, .jsonl)",
    ),
    Conflict(("--in-place",), DOCUMENT, "the original text would be lost; use --out"),
    Conflict(
        ("--target", "--fuzzy", "--review", "--review-below", "--in-place"),
        PLAIN_TEXT,
        "it is for catalogues (.po, .xlf, .xliff, .tmx, .jsonl)",
    ),
    Conflict(("--in-place",), "--out", "both name the output"),
    Conflict(("--review-below",), "--review", "it marks every entry"),
    Conflict(("--prefix",), "--memory", "a translation of the memory may begin otherwise"),
    Conflict(
        (
            "--with",
            "--fuse",
            "--glossary",
            "--forbid",
            "--stop",
            "--align",
            "--tags",
            "--dictionary",
            "--jobs",
            "--from",
            "--to",
        ),
        "--engine ctranslate2",
    ),
    Conflict(("--with", "--fuse", "--prefix"), "--jobs"),
    Conflict(("--shots",), CATALOGUE, "it is for text with one sentence per line"),
    Conflict(("--shots",), DOCUMENT, "it is for text with one sentence per line"),
    Conflict(("--shots",), "--engine ctranslate2"),
    Conflict(
        (
            "--with",
            "--fuse",
            "--glossary",
            "--prefix",
            "--forbid",
            "--stop",
            "--align",
            "--tags",
            "--dictionary",
            "--jobs",
        ),
        "--shots",
        "it is for translators",
    ),
    Conflict(("--scores",), "--json", "it includes the scores"),
    Conflict(("--scores",), "--nbest", "it includes the scores"),
)


Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILE search.beam=8",
        help="Text with one sentence per line; standard input by default. Or a catalogue whose untranslated entries "
        "are filled: .po, .xlf, .xliff, .tmx, .jsonl. Or a document whose words are replaced: .html, .docx, .srt, "
        ".vtt. Of a .tsv, the first column is translated. Files may be compressed (.gz, .xz, .zst). Also search "
        "settings.",
    ),
]
Nbest = Annotated[
    int | None,
    typer.Option(
        "--nbest",
        metavar="N",
        min=1,
        help="Print the N best translations of each line as [bold]line ||| text ||| score[/bold]. Lines are numbered "
        "from 1; scores are log-probabilities after length normalisation. N is at most search.beam, or any number with "
        "search.method=sample.",
    ),
]
Scores = Annotated[
    bool, typer.Option("--scores", help="Print score, tab, text for each line; the score of a blank line is null.")
]
Json = Annotated[
    bool,
    typer.Option(
        "--json", help="Print a record per line: translations, score terms, token log-probabilities, completeness."
    ),
]


With = Annotated[
    list[Path] | None,
    typer.Option(
        "--with",
        metavar="MODEL",
        help="Add a model to an ensemble, whose log-probabilities are averaged at every step; repeatable. All models "
        "must share their vocabulary: train the others with data.tokenizers_from=MODEL.",
    ),
]
Shots = Annotated[
    Path | None,
    typer.Option(
        "--shots",
        metavar="FILE",
        help="Translate with a language model: tab-separated pairs of lines (or .tmx, .po …) that it reads before each "
        "line, as [bold]English: … German: …[/bold] with the names of --from and --to.",
    ),
]
Terms = Annotated[
    Path | None,
    typer.Option(
        "--glossary",
        metavar="FILE",
        help="Terms and their translations, one tab-separated pair per line. Where a line contains a term, its "
        "translation must contain the given words. Case-sensitive, unless the model is lowercase.",
    ),
]
Prefix = Annotated[
    Path | None,
    typer.Option(
        "--prefix", metavar="FILE", help="How each translation begins, line by line; a blank line sets no prefix."
    ),
]
Forbid = Annotated[
    list[str] | None,
    typer.Option(
        "--forbid",
        metavar="WORD",
        help="Exclude a word or phrase from the translations, however it is tokenised. Whole words only, "
        "case-sensitive: Hund forbids neither Hunde nor hund. Repeatable.",
    ),
]
Stop = Annotated[
    list[str] | None,
    typer.Option(
        "--stop",
        metavar="STRING",
        help="End a translation once it contains this text, also inside a word. Repeatable.",
    ),
]
Align = Annotated[
    Path | None,
    typer.Option(
        "--align",
        metavar="FILE",
        help="Write word alignments taken from the attention, as [bold]0-0 1-2[/bold] (source-target, counted from 0); "
        "- for standard output if --out names a file. With --json, the records also contain words and links.",
    ),
]
Dictionary = Annotated[
    Path | None,
    typer.Option(
        "--dictionary",
        metavar="FILE",
        help="Translations of words outside the model's vocabulary: one tab-separated pair per line, or an aligner "
        "that [bold]seqloom align --save[/bold] wrote; sets search.unknown=copy.",
    ),
]
Tags = Annotated[
    bool,
    typer.Option(
        "--tags",
        help="Remove tags and placeholders (<b>, <br/>, {0}, %s, &amp;, \\[X7X]) before translation and put them back "
        "at the aligned words.",
    ),
]
Engine = Annotated[
    Literal["seqloom", "ctranslate2"],
    typer.Option(
        "--engine",
        metavar="NAME",
        help="[bold]seqloom[/bold], or [bold]ctranslate2[/bold] for Transformers, whose search differs in details; "
        "MODEL may then be an exported folder. Unsupported settings are refused.",
    ),
]
Target = Annotated[
    str | None,
    typer.Option(
        "--target",
        metavar="LANGUAGE",
        help="Target language of a catalogue, such as fr or pt-BR; by default that of the model.",
    ),
]
Fuzzy = Annotated[bool, typer.Option("--fuzzy", help="In a catalogue, also translate entries marked fuzzy.")]
Review = Annotated[bool, typer.Option("--review", help="In a catalogue, mark every filled entry for review.")]
ReviewBelow = Annotated[
    float | None,
    typer.Option(
        "--review-below",
        metavar="CONFIDENCE",
        min=0,
        max=1,
        help="In a catalogue, mark entries whose confidence is lower for review; 0 marks none. By default the value "
        "below which a quarter of the dev text is. Requires a calibrated model (seqloom evaluate --calibrate).",
        show_default=False,
    ),
]
Memory = Annotated[
    list[Path] | None,
    typer.Option(
        "--memory",
        metavar="FILE",
        help="Translation memory (.tmx; also .tsv, .po, .mo, .jsonl); repeatable. Text that it contains is translated "
        "exactly so; matches of 70% and more are shown on standard error, with --json in the records, and in .po and "
        ".xlf files beside the translation.",
    ),
]
InPlace = Annotated[bool, typer.Option("--in-place", help="Replace the catalogue by the filled one.")]
Jobs = Annotated[
    int,
    typer.Option(
        "--jobs",
        metavar="N",
        min=1,
        max=1000,
        help="Number of processes, each with one thread and its own copy of the model; for large files, one per core.",
    ),
]


def translate(
    model: ModelFolder,
    words: Words = None,
    out: OutputFile = None,
    source: FromLanguage = None,
    target_language: ToLanguage = None,
    nbest: Nbest = None,
    scores: Scores = False,
    json: Json = False,
    companions: With = None,
    fuse: Fuse = None,
    fuse_weight: FuseWeight = None,
    shots: Shots = None,
    glossary: Terms = None,
    prefix: Prefix = None,
    forbid: Forbid = None,
    stop: Stop = None,
    align: Align = None,
    tags: Tags = False,
    dictionary: Dictionary = None,
    memory: Memory = None,
    engine: Engine = "seqloom",
    jobs: Jobs = 1,
    target: Target = None,
    fuzzy: Fuzzy = False,
    review: Review = False,
    review_below: ReviewBelow = None,
    in_place: InPlace = False,
    encoding: Encoding = None,
    on_bad_utf8: OnBadUtf8 = None,
) -> None:
    """Translate text line by line, fill the untranslated entries of a catalogue or memory, or translate a document.

    N lines in, N lines out; a blank line stays blank, and only LF ends a line. A line that is too long for the model
    is translated sentence by sentence. In a catalogue, existing translations are not changed; in a document, only
    words are.
    """
    given = parse_words(words)
    if len(given.others) > 1:
        raise UsageError(f"expected at most one text file, got {len(given.others)}: {', '.join(given.others)}")
    path = Path(given.others[0]) if given.others and given.others[0] != "-" else None
    text_encoding = TextEncoding.of(encoding, on_bad_utf8)
    if (format_of(model) is not None or is_document(model)) and model.is_file():
        kind = DOCUMENT if is_document(model) else CATALOGUE
        raise UsageError(f"{model} is {kind}; name the model before it: seqloom translate MODEL {model}")
    is_in_document = path is not None and is_document(path)
    is_catalogue = path is not None and (is_in_document or format_of(path) is not None)
    options = {
        "--out": out,
        "--from": source,
        "--to": target_language,
        "--nbest": nbest,
        "--scores": scores,
        "--json": json,
        "--with": companions,
        "--fuse": fuse,
        "--shots": shots,
        "--glossary": glossary,
        "--prefix": prefix,
        "--forbid": forbid,
        "--stop": stop,
        "--align": align,
        "--tags": tags,
        "--dictionary": dictionary,
        "--memory": memory,
        "--jobs": jobs > 1,
        "--target": target,
        "--fuzzy": fuzzy,
        "--review": review,
        "--review-below": review_below,
        "--in-place": in_place,
        "--encoding": encoding,
        "--on-bad-utf8": on_bad_utf8,
    }
    kind = DOCUMENT if is_in_document else CATALOGUE if is_catalogue else PLAIN_TEXT
    modes = [kind, f"--engine {engine}"]
    refuse_conflicts(options, CONFLICTS, modes=modes)
    require_search_settings(given.overrides)
    fusion = parse_fusion(fuse, fuse_weight)

    out = None if out == STANDARD_OUTPUT else out
    if align == STANDARD_OUTPUT and out is None:
        raise UsageError("--align - writes to standard output, and so do the translations; name a file with --out")
    others = (*(companions or ()), *(memory or ()))
    inputs = [each for each in (path, glossary, prefix, dictionary, model, fuse, shots, *others) if each]
    if path is not None and is_catalogue:
        _check_catalogue(path, out, in_place=in_place, target=target, json=json)
    require_new_file(out, inputs=inputs)
    require_new_file(None if align == STANDARD_OUTPUT else align, inputs=inputs, flag="--align")
    if out is not None and align is not None and out.resolve() == align.resolve():
        raise UsageError(f"--out and --align both name {out}; give each its own file")

    languages = language_settings(source, target_language)
    overrides = [*given.overrides, *languages]
    if dictionary is not None:
        overrides.insert(0, "search.unknown=copy")
    if is_in_document:  # with paragraphs, where models know sentences
        overrides.insert(0, "search.split=sentences")
    if nbest is not None:
        overrides.append(f"search.nbest={nbest}")
    # Input that is typed or piped in has no known end, and a bar would mix with results on a terminal.
    has_progress = path is not None and not (sys.stdout.isatty() and (out is None or align == STANDARD_OUTPUT))
    with show_events(as_json=json, has_progress=has_progress) as listener:
        total = None if is_catalogue else count_lines(path, text_encoding)
        constraints = read_constraints(
            glossary=glossary, prefix=prefix, forbid=forbid, stop=stop, dictionary=dictionary
        )
        constraints.require_lines(total)
        settings = None
        is_table = path is not None and is_tsv(path)
        if engine == "seqloom" and (is_catalogue or is_table or nbest is not None):
            from seqloom.apps.search_settings import resolved

            settings = resolved(model, [*given.overrides, *languages])
            search = settings.search
            if nbest is not None and search.method == "beam" and nbest > search.beam:
                raise UsageError(
                    f"--nbest {nbest} is larger than search.beam={search.beam}; "
                    f"add search.beam={search.beam_for(nbest)}, or use --nbest {search.beam}"
                )
        memories = read_memories(memory or (), model, languages, target=target, listener=listener)
        opening = open_engine(
            model,
            overrides,
            companions=companions or (),
            fusion=fusion,
            engine=engine,
            jobs=jobs,
            listener=listener,
            shots=shots,
        )
        symbols = settings.data.symbols if settings is not None else ()
        if is_catalogue and symbols:
            raise UsageError(
                f"{path} cannot be filled: {model} reads symbols beside each source; give lines of a source, a tab and "
                "its symbols, or a .tsv"
            )
        if path is not None and is_catalogue:
            translate_catalogue(
                path,
                opening,
                settings=settings,
                out=path if in_place else out,
                target=target,
                with_fuzzy=fuzzy,
                for_review=review,
                review_below=review_below,
                memory=memories,
                constraints=constraints,
                as_json=json,
                listener=listener,
            )
            return
        translate_text(
            path,
            opening,
            encoding=text_encoding,
            style="json" if json else "nbest" if nbest is not None else "scores" if scores else "text",
            constraints=constraints,
            memory=memories,
            tags=tags,
            out=out,
            align=align,
            total=total,
            symbols=symbols,
            listener=listener,
        )


def _check_catalogue(path: Path, out: Path | None, *, in_place: bool, target: str | None, json: bool) -> None:
    """Refuse what cannot be done with this catalogue, before anything is read."""
    kind = format_of(path)
    if target is not None and not is_language_code(target):
        raise UsageError(f"--target {target[:60]!r} is not a language code, such as de, pt-BR or sr_RS@latin")
    if kind not in (PO, JSONL):  # an empty file of these formats is valid
        require_content([path])
    if in_place:
        if is_compressed(path):
            raise UsageError(f"{path} is compressed and cannot be filled in place; decompress it, or use --out")
        require_file(path)
        require_writable(path)
    elif out is None and json:
        raise UsageError("--json prints a record of the result; name a file for the catalogue with --out")
    elif out is None and sys.stdout.isatty() and Path(bare_name(path)).suffix.lower() == ".docx":
        raise UsageError(f"{path} is not text that a terminal can show; name a file for the translation with --out")
