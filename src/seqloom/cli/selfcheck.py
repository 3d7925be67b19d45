"""`seqloom selfcheck`: verify Seqloom's guarantees on a model of your own."""

import builtins
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqloom.cli.arguments import ModelFolder, require_new_file, require_utf8_names
from seqloom.cli.console import clean, duration, examples, json_line, show_events
from seqloom.core.errors import UsageError

if TYPE_CHECKING:
    from seqloom.selfcheck.promises import Checked
    from seqloom.selfcheck.run import CheckReport

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
    if out is not None:
        if out.suffix != ".html":
            raise UsageError(f"{out} does not end in .html; name an .html file, or use --json")
        require_new_file(out, inputs=[] if lines is None else [lines])

    from seqloom.core.files import write_atomically
    from seqloom.selfcheck.run import selfcheck as check
    from seqloom.selfcheck.run import selfcheck_page

    printer = _Printer(_record if json else _promise, has_head=not json)
    try:
        with show_events(as_json=json) as listener:
            report = check(model, lines=lines, count=count, seed=seed, listener=listener, decided=printer)
    except KeyboardInterrupt:
        if printer.report is not None and not json:
            printer.print("")
            printer.print(_verdict(printer.report))
        raise
    if out is not None:
        write_atomically(out, selfcheck_page(report))
    for line in [_verdict_record(report, out, count=count, seed=seed)] if json else _end(report, out):
        print(line)
    if not report.is_kept:
        raise typer.Exit(1)


class _Printer:
    """Prints each promise when its result is known."""

    def __init__(self, format: "Callable[[Checked], Iterator[str]]", *, has_head: bool) -> None:
        self.report: CheckReport | None = None
        """The results so far."""
        self._format, self._has_head = format, has_head
        self._stdout = sys.stdout

    def __call__(self, report: "CheckReport") -> None:
        if self.report is None and self._has_head:
            self.print(clean(f"{report.folder}: {report.model}"))
            self.print(clean(f"checked with {report.lines}"))
            self.print("")
        self.report = report
        for line in self._format(report.checked[-1]):
            self.print(line)

    def print(self, line: str) -> None:
        """A line on stdout, at once."""
        # While there is a bar, sys.stdout prints above it, which is right for a terminal only.
        builtins.print(line, file=sys.stdout if self._stdout.isatty() else self._stdout, flush=True)


def _promise(checked: "Checked") -> Iterator[str]:
    from seqloom.selfcheck.run import MARKS

    finding = checked.finding
    yield clean(f"{MARKS[finding.outcome]} {checked.name:{NAME_WIDTH}}{checked.promise}")
    yield clean(f"  {'':{NAME_WIDTH}}{finding.sentence}")
    if finding.outcome == "broken" and finding.worst:
        yield clean(f"  {'':{NAME_WIDTH}}worst: {finding.worst}")


def _verdict(report: "CheckReport") -> str:
    return clean(f"{report.verdict[:-1]}; it took {duration(sum(each.seconds for each in report.checked))}.")


def _end(report: "CheckReport", out: Path | None) -> Iterator[str]:
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


def _verdict_record(report: "CheckReport", out: Path | None, *, count: int, seed: int) -> str:
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
