"""`seqloom selfcheck`: verify Seqloom's guarantees on a model of your own."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from seqloom.cli.arguments import (
    FromLanguage,
    ModelFolder,
    ToLanguage,
    language_settings,
    require_new_file,
    require_utf8_names,
)
from seqloom.cli.console import clean, duration, examples, show_events
from seqloom.core.errors import UsageError
from seqloom.core.events import json_line

EXAMPLES = examples(
    "seqloom selfcheck run/model",
    "seqloom selfcheck run/model --lines news.de --count 200",
    "seqloom selfcheck run/model --out selfcheck.html",
    "seqloom selfcheck run/model --json > selfcheck.jsonl",
)

DEFAULT_LINES = 50
NAME_WIDTH = 12
"""Width of the column of names."""


def selfcheck(
    model: ModelFolder,
    lines: Annotated[
        Path | None,
        typer.Option(
            "--lines",
            metavar="FILE",
            help="Source text to check with, one sentence per line; by default the dev text of the run, or lines "
            "generated from pieces of the model's tokeniser.",
        ),
    ] = None,
    count: Annotated[
        int, typer.Option("--count", metavar="N", min=1, max=10_000, help="Number of lines to check with.")
    ] = DEFAULT_LINES,
    seed: Annotated[int, typer.Option("--seed", metavar="S", min=0, help="Random seed for lines and samples.")] = 1,
    source: FromLanguage = None,
    target: ToLanguage = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write a report (.html).")] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print a JSON record for each promise, and one for the verdict.")
    ] = False,
) -> None:
    """Verify on your own model what Seqloom promises: results do not depend on batching, padding or chance.

    Checks line counts, batch size and padding, greedy and beam search, complete searches, sums of scores, saving and
    loading, seeds, and file hashes. Promises that do not apply to a kind of model are listed with the reason.

    Each result is printed as soon as it is known. The exit status is 0 if all promises hold and 1 if one is broken.
    """
    require_utf8_names([model, lines, out])
    language_settings(source, target)  # to refuse a blank one
    if out is not None:
        if out.suffix != ".html":
            raise UsageError(f"{out} does not end in .html; name an .html file, or use --json")
        require_new_file(out, inputs=[] if lines is None else [lines])

    from seqloom.core.files import write_atomically
    from seqloom.selfcheck.run import MARKS, CheckReport, selfcheck_page
    from seqloom.selfcheck.run import selfcheck as check

    so_far: CheckReport | None = None
    stdout = sys.stdout

    def show(*lines: str) -> None:
        # While there is a bar, sys.stdout prints above it, which is right for a terminal only.
        print(*lines, sep="\n", file=sys.stdout if stdout.isatty() else stdout, flush=True)

    def show_last(report: CheckReport) -> None:
        """Print a promise as soon as its result is known."""
        nonlocal so_far
        is_first, so_far = so_far is None, report
        checked, finding = report.checked[-1], report.checked[-1].finding
        if json:
            record = {"record": "promise", "name": checked.name, "promise": checked.promise, **vars(finding)}
            show(json_line({**record, "seconds": round(checked.seconds, 3)}))
            return
        if is_first:
            show(clean(f"{report.folder}: {report.model}"), clean(f"checked with {report.lines}"), "")
        show(clean(f"{MARKS[finding.outcome]} {checked.name:{NAME_WIDTH}}{checked.promise}"))
        show(clean(f"  {'':{NAME_WIDTH}}{finding.sentence}"))
        if finding.outcome == "broken" and finding.worst:
            show(clean(f"  {'':{NAME_WIDTH}}worst: {finding.worst}"))

    def verdict(report: CheckReport) -> str:
        return clean(f"{report.verdict[:-1]}; it took {duration(sum(each.seconds for each in report.checked))}.")

    try:
        with show_events(as_json=json) as listener:
            report = check(
                model,
                lines=lines,
                count=count,
                seed=seed,
                source=source,
                target=target,
                listener=listener,
                decided=show_last,
            )
    except KeyboardInterrupt:
        if so_far is not None and not json:
            show("", verdict(so_far))
        raise
    if out is not None:
        write_atomically(out, selfcheck_page(report))
    if json:
        record = {
            "record": "verdict",
            "is_kept": report.is_kept,
            "sentence": report.verdict,
            "advice": report.advice,
            "broken": [each.name for each in report.broken],
            "model": report.model,
            "path": report.folder,
            "lines": report.lines,
            "count": count,
            "seed": seed,
            "versions": report.versions,
            "report": out,
        }
        print(json_line(record))
    else:
        ending = [report.advice] if report.advice else []
        ending += [f"report: {out}"] if out is not None else []
        print("\n".join(["", verdict(report), *map(clean, ending)]))
    if not report.is_kept:
        raise typer.Exit(1)
