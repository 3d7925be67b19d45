"""`seqloom selfcheck`: the promises, run on a model of your own."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqloom.cli.arguments import require_new_file, require_utf8_names
from seqloom.cli.console import clean, duration, examples, json_line, show_events
from seqloom.core.errors import UsageError

if TYPE_CHECKING:
    from seqloom.selfcheck.promises import Checked
    from seqloom.selfcheck.run import Report

EXAMPLES = examples(
    "seqloom selfcheck run/model",
    "seqloom selfcheck run/model --lines news.de --count 200",
    "seqloom selfcheck run/model --out selfcheck.html",
    "seqloom selfcheck run/model --json > selfcheck.jsonl",
)

COUNT = 50
NAMES = 12
"""Characters of the column of names."""


def selfcheck(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder or a run.")],
    lines: Annotated[
        Path | None,
        typer.Option(
            "--lines",
            metavar="FILE",
            help="Source text to check with, a sentence per line; without it, the dev text of the run, or lines that "
            "are put together from pieces of the model's tokeniser.",
        ),
    ] = None,
    count: Annotated[
        int, typer.Option("--count", metavar="N", min=1, max=10_000, help="Lines to check with; more take longer.")
    ] = COUNT,
    seed: Annotated[
        int, typer.Option("--seed", metavar="S", min=0, help="Another seed draws other lines and other samples.")
    ] = 1,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the report as a page (.html).")
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="A JSON record for each promise, and one for the verdict.")
    ] = False,
) -> None:
    """Check on your own model what Seqloom promises: what it gives does not depend on batches, searches or luck.

    Lines in and out, batch size and padding, greedy and beam, complete searches, sums of scores, saving and loading,
    seeds, and the hashes of its files. Promises that make no sense for a kind of model are named, with the reason.

    Each is told as soon as it is decided. The exit status is 0 if all hold and 1 if one is broken.
    """
    require_utf8_names([model, lines, out])
    if out is not None:
        if out.suffix != ".html":
            raise UsageError(f"{out} does not end in .html; name a page, or leave out --out and use --json")
        require_new_file(out, inputs=[] if lines is None else [lines])

    from seqloom.core.files import write_atomically
    from seqloom.selfcheck.page import selfcheck_page
    from seqloom.selfcheck.run import selfcheck as check

    telling = _Telling(_record if json else _promise, has_head=not json)
    try:
        with show_events(as_json=json) as listener:
            report = check(model, lines=lines, count=count, seed=seed, listener=listener, decided=telling)
    except KeyboardInterrupt:
        if telling.report is not None and not json:
            telling.say("")
            telling.say(_verdict(telling.report))
        raise
    if out is not None:
        write_atomically(out, selfcheck_page(report))
    for line in [_verdict_record(report, out, count=count, seed=seed)] if json else _end(report, out):
        print(line)
    if not report.is_kept:
        raise typer.Exit(1)


class _Telling:
    """Prints each promise when it is decided."""

    def __init__(self, tell: "Callable[[Checked], Iterator[str]]", *, has_head: bool) -> None:
        self.report: Report | None = None
        """What is known so far."""
        self._tell, self._has_head = tell, has_head
        self._stdout = sys.stdout

    def __call__(self, report: "Report") -> None:
        if self.report is None and self._has_head:
            self.say(clean(f"{report.folder}: {report.model}"))
            self.say(clean(f"checked with {report.lines}"))
            self.say("")
        self.report = report
        for line in self._tell(report.checked[-1]):
            self.say(line)

    def say(self, line: str) -> None:
        """A line on stdout, at once."""
        # While there is a bar, sys.stdout prints above it, which is right on a terminal and wrong for a file.
        print(line, file=sys.stdout if self._stdout.isatty() else self._stdout, flush=True)


def _promise(checked: "Checked") -> Iterator[str]:
    from seqloom.selfcheck.page import MARKS

    finding = checked.finding
    yield clean(f"{MARKS[finding.outcome]} {checked.name:{NAMES}}{checked.promise}")
    yield clean(f"  {'':{NAMES}}{finding.sentence}")
    if finding.outcome == "broken" and finding.worst:
        yield clean(f"  {'':{NAMES}}worst: {finding.worst}")


def _verdict(report: "Report") -> str:
    return clean(f"{report.verdict[:-1]}; it took {duration(sum(each.seconds for each in report.checked))}.")


def _end(report: "Report", out: Path | None) -> Iterator[str]:
    yield ""
    yield _verdict(report)
    if report.advice:
        yield clean(report.advice)
    if out is not None:
        yield clean(f"report: {out}")


def _record(checked: "Checked") -> Iterator[str]:
    finding = checked.finding
    yield json_line(
        {
            "record": "promise",
            "name": checked.name,
            "promise": checked.promise,
            "outcome": finding.outcome,
            "sentence": finding.sentence,
            "figures": finding.figures,
            "worst": finding.worst,
            "seconds": round(checked.seconds, 3),
        }
    )


def _verdict_record(report: "Report", out: Path | None, *, count: int, seed: int) -> str:
    return json_line(
        {
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
    )
