"""`seqloom doctor`: find errors in a parallel text before training on it."""

import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqloom.cli.arguments import (
    Encoding,
    OnBadUtf8,
    ParallelFiles,
    encoding_settings,
    file_names,
    parse_words,
    require_new_file,
    require_utf8_names,
)
from seqloom.cli.console import clean, counted, examples, show_events, table
from seqloom.core.errors import UsageError
from seqloom.core.events import json_line, notice
from seqloom.core.files import matching_files, require_folders_above, require_writable, write_atomically

if TYPE_CHECKING:
    from seqloom.doctor.examination import Diagnosis
    from seqloom.doctor.repairs import Repaired

EXAMPLES = examples(
    "seqloom doctor corpus.de corpus.en",
    "seqloom doctor --train corpus.de,corpus.en --dev dev.de,dev.en --test test.de,test.en --html report.html",
    "seqloom doctor corpus.de corpus.en --out repaired --fix safe",
    "seqloom doctor memory.tmx data.source=en data.target=fr",
    "seqloom doctor corpus.tsv --out repaired --fix copies,duplicates,misaligned --json",
)

MAX_EXAMPLES, MAX_EXAMPLE_CHARACTERS = 2, 76
MAX_RECORDED_LINES = 1_000
"""Lines of a fault that its record lists; the rest is counted."""

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SOURCE TARGET] [path=value]",
        help="Training text, as for --train; settings: data.source=en, data.target=de (for a translation memory), "
        "data.encoding=latin-1.",
    ),
]
DevFiles = Annotated[list[str] | None, typer.Option("--dev", metavar="FILE", help="Validation text, in the same form.")]
TestFiles = Annotated[list[str] | None, typer.Option("--test", metavar="FILE", help="Test text, in the same form.")]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="FOLDER", help="Folder for report.html and the repaired text; existing files are not replaced."
    ),
]
Html = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a report with charts to this file.")]
Fix = Annotated[
    str | None,
    typer.Option(
        "--fix",
        metavar="REPAIRS",
        help="Write a repaired copy with a log into the folder of --out: safe, all, or a list such as "
        "copies,duplicates,misaligned. The original text is not changed.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print a JSON record for each fault, and one for the verdict.")]


def doctor(
    words: Words = None,
    train: ParallelFiles = None,
    dev: DevFiles = None,
    test: TestFiles = None,
    out: Out = None,
    html: Html = None,
    fix: Fix = None,
    encoding: Encoding = None,
    on_bad_utf8: OnBadUtf8 = None,
    json: Json = False,
) -> None:
    """Check a parallel text before training: what is wrong, where, and what to fix first.

    Finds shifted and swapped lines, copies, wrong scripts and languages, unusual lengths, duplicates, unusual
    characters, and dev or test lines in the training text. Estimates unknown words and recommends sizes.

    The exit status is 3 if training on this text would fail or be useless, otherwise 0.
    """
    given = parse_words(words)
    names = [file_names(each) for each in (train, dev, test)]
    if given.others and names[0]:
        raise UsageError(f"{given.others[0]!r} and --train {names[0][0]}: give the training text once")
    texts = [names[0] or file_names(given.others), *names[1:]]

    from seqloom.core.config import resolve
    from seqloom.data.corpus_files import expand_folders, pairs_in
    from seqloom.doctor.examination import DoctorConfig, diagnose
    from seqloom.doctor.page import doctor_page
    from seqloom.doctor.repairs import REPORT, choose_repairs, repair

    data = resolve(DoctorConfig, overrides=[*given.overrides, *encoding_settings(encoding, on_bad_utf8)]).data
    expanded = [
        expand_folders(each, partial(pairs_in, languages=(data.source, data.target), is_held_out=at > 0))
        for at, each in enumerate(texts)
    ]
    paths = [[Path(name) for name in files] for files, _ in expanded]
    require_utf8_names([*(path for each in paths for path in each), out, html])
    page = html or (out / REPORT if out is not None else None)
    kinds = choose_repairs(fix) if fix is not None else ()
    _check_outputs(out, html, texts=paths, fix=fix)
    repaired = None
    with show_events(as_json=json) as listener:
        for sentence in (sentence for _, notices in expanded for sentence in notices):
            notice(listener, sentence)
        found = diagnose(
            paths[0],
            dev=paths[1],
            test=paths[2],
            languages=(data.source, data.target),
            encoding=data.encoding,
            on_bad=data.on_bad_utf8,
            listener=listener,
        )
        if fix is not None and out is not None:
            repaired = repair(found, kinds, out, listener=listener)
        if page is not None:
            page.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(page, doctor_page(found))
    for line in _records(found, repaired, page) if json else _lines(found, repaired, page, fix=fix):
        print(line)
    if not found.verdict.is_fit:
        raise typer.Exit(3)


def _check_outputs(out: Path | None, html: Path | None, *, texts: Sequence[Sequence[Path]], fix: str | None) -> None:
    """Refuse outputs that cannot or must not be written, before anything is read."""
    from seqloom.doctor.repairs import REPORT, places_of, require_places

    inputs = [file for text in texts for path in text for file in matching_files(path)]
    if fix is not None and out is None:
        raise UsageError(f"--fix {fix} writes a repaired copy; name a folder for it with --out")
    if html is not None:
        require_folders_above(html)
        if html.parent.is_dir():
            require_new_file(html, inputs=inputs, flag="--html")
    if out is None:
        return
    if os.path.lexists(out) and not out.is_dir():
        raise UsageError(f"{out} is not a folder; --out names a new or existing folder")
    require_folders_above(out)
    outputs = places_of(texts[0], out) if fix is not None and texts[0] else []
    if html is not None and os.path.realpath(html) in map(os.path.realpath, outputs):
        raise UsageError(f"--html {html} is a file of the repaired text; name another one")
    outputs += [out / REPORT] if html is None else []
    require_places(outputs, inputs=inputs)
    # Of a path to be created, the topmost missing folder is tested.
    missing = [folder for folder in (out, *out.parents) if not folder.exists()]
    for path in missing[-1:] or outputs:
        require_writable(path)


def _lines(found: "Diagnosis", repaired: "Repaired | None", page: Path | None, *, fix: str | None) -> Iterator[str]:
    sizes = ", ".join(f"{split.name} {len(split.survey):,}" for split in found.splits)
    yield f"{sizes} pairs"
    yield found.verdict.sentence
    for fault in found.faults:
        yield ""
        yield clean(f"{fault.severity:4}  {fault.title} ({fault.split}): {fault.sentence}")
        for place, line in found.shown(fault)[:MAX_EXAMPLES]:
            sides = [clean(side) for side in (line.source, line.target)]
            most = MAX_EXAMPLE_CHARACTERS
            short = [side if len(side) <= most else f"{side[: most - 1]}…" for side in sides]
            yield f"      {clean(place)}  {' | '.join(short)}"
        yield f"      → {fault.advice}"
    yield ""
    for forecast in found.forecasts:
        rates = {"source": dict(forecast.source.words), "target": dict(forecast.target.words)}
        known = sorted({size for side in rates.values() for size in side})
        rows = [(f"unknown words in {forecast.split}, by vocabulary size", *(f"{size:,}" for size in known), "words")]
        rows += [
            (f"  {name}", *(f"{side[size]:.1%}" if size in side else "–" for size in known), "")
            for name, side in rates.items()
        ]
        yield from table(rows)
    yield ""
    yield from (f"{'' if at == 0 else '  '}{reason}" for at, reason in enumerate(found.sizes))
    if repaired is not None:
        yield ""
        yield f"repaired: {repaired.kept:,} pairs kept ({repaired.changed:,} changed), {repaired.dropped:,} dropped"
        yield from (f"  {path}" for path in (*repaired.files, repaired.log))
        if repaired.left:
            yield "not repaired:"
        for each in repaired.left:
            lines = f", {counted(each.count, 'line')}" if each.count else ""
            by = f"--fix {each.repair}" if each.repair else "no --fix available"
            yield f"  {each.title} ({each.split}{lines}): {by}"
        if repairs := dict.fromkeys(each.repair for each in repaired.left if each.repair):
            yield f"all of these: --fix {','.join([fix or '', *repairs])}"
    yield ""
    yield f"report with charts: {page}" if page is not None else "for a report with charts: --html report.html"


def _records(found: "Diagnosis", repaired: "Repaired | None", page: Path | None) -> Iterator[str]:
    for fault in found.faults:
        numbers = fault.lines[:MAX_RECORDED_LINES].tolist()
        values = {name: getattr(fault, name) for name in ("kind", "severity", "split", "title", "sentence", "advice")}
        runs = [{"first": run.first, "last": run.last, "shift": run.shift} for run in fault.runs]
        lines = [{"line": number, "place": found.place(fault.split, number)} for number in numbers]
        counts = {"count": len(fault.lines), "runs": runs, "lines": lines, "left_out": len(fault.lines) - len(numbers)}
        yield json_line({"record": "fault", **values, **counts})
    for forecast in found.forecasts:
        yield json_line({"record": "forecast", "forecast": forecast})
    pairs = {split.name: len(split.survey) for split in found.splits}
    verdict = {"severity": found.verdict.severity, "sentence": found.verdict.sentence, "first": found.verdict.first}
    sizes = {"sizes": found.sizes, "settings": found.sizing.defaults}
    yield json_line({"record": "verdict", **verdict, "pairs": pairs, **sizes, "repaired": repaired, "report": page})
