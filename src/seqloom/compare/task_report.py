"""The report of taggers, classifiers or forecasters compared: one HTML file, Markdown and JSON, and a picture."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from itertools import pairwise
from typing import Any, cast

from seqloom.compare.advice import Advice, advise, best_of
from seqloom.compare.ladder import Ladder
from seqloom.compare.report import HTML, JSON, MARKDOWN, PICTURE, draw_bars, list_of, minutes_text, svg_of_bars, table
from seqloom.compare.results import Scale, Step, TaskResult, difference
from seqloom.compare.rungs import Rung
from seqloom.compare.tasks import Sets, TaskSubject
from seqloom.core.files import write_atomically
from seqloom.drawing.pages import fill_page, read_template


@dataclass(frozen=True)
class TaskReport:
    """Everything that a comparison found."""

    kind: str
    unit: str
    """What the sets consist of."""
    per_second: str
    sets: Sets
    scale: Scale
    minutes: float
    seconds: float
    rungs: tuple[Rung, ...]
    results: tuple[TaskResult, ...]
    """In the order of the ladder."""
    steps: tuple[Step, ...]
    advice: tuple[Advice, ...]
    skipped: tuple[str, ...]

    @property
    def metrics(self) -> list[str]:
        return list(self.results[0].scores) if self.results else []


def make_report(ladder: Ladder) -> TaskReport:
    """The report of what is done so far."""
    subject, state, order = cast("TaskSubject", ladder.subject), ladder.state, ladder.order
    done = [rung for rung in order.rungs if rung.name in state.results]
    results = tuple(cast("TaskResult", state.results[rung.name]) for rung in done)
    answers = {rung.name: subject.answers(ladder.out / "rungs" / rung.name) for rung in done}
    test, scale = subject.test, subject.scale
    name, metric = next(iter(test.metrics.items()))

    def step(lower: str, upper: str) -> Step:
        return difference(metric, lower, upper, answers, test.right[name], seed=order.seed)

    best = best_of(results, scale).name if results else ""
    advice = advise(
        results,
        {each.name: step(each.name, best) for each in results if each.name != best},
        {},
        test_pairs=subject.sets.counts["test"],
        leaked=subject.sets.leaked,
        skipped=[rung.name for rung in order.rungs if rung.name in state.skipped],
        scale=scale,
        unit=test.unit,
    )
    return TaskReport(
        order.kind,
        test.unit,
        test.per_second,
        subject.sets,
        scale,
        order.minutes,
        state.seconds,
        order.rungs,
        results,
        tuple(step(lower.name, upper.name) for lower, upper in pairwise(results)),
        tuple(advice),
        tuple(state.skipped.values()),
    )


def write_report(ladder: Ladder) -> TaskReport:
    """Write the report of what is done so far in its three forms, and the picture of its rungs."""
    out, report = ladder.out, make_report(ladder)
    write_atomically(out / HTML, to_html(report))
    write_atomically(out / MARKDOWN, to_markdown(report))
    if report.results:
        write_atomically(out / PICTURE, svg_of_bars(report.results, report.scale))
    rungs = [{"name": rung.name, "sentence": rung.sentence} for rung in report.rungs]
    values = {**asdict(report), "metrics": report.metrics, "rungs": rungs}
    write_atomically(out / JSON, json.dumps(values, indent=1, ensure_ascii=False) + "\n")
    return report


def facts_of(report: TaskReport) -> str:
    """The sizes of the sets and the time, as a sentence."""
    counts = report.sets.counts
    return (
        f"{counts['train']:,} {report.unit} for training, {counts['dev']:,} for validation, {counts['test']:,} for the "
        f"test; {report.seconds / 60:.0f} of {report.minutes:g} minutes used."
    )


def _rows(report: TaskReport) -> tuple[list[str], list[list[str]]]:
    """The headings of the table, and its rows."""
    rows = []
    for each in report.results:
        scores = [report.scale.with_interval(score) for score in each.scores.values()]
        speed, size = f"{each.per_second:,.0f}", f"{each.parameters:,}" if each.parameters else "–"
        rows.append([each.name, *scores, minutes_text(each.minutes), size, speed])
    return ["rung", *report.metrics, "minutes", "parameters", report.per_second], rows


def _steps(report: TaskReport) -> list[list[str]]:
    shown = report.scale.decimals
    return [
        [
            step.lower,
            step.upper,
            f"{step.difference:+.{shown}f}",
            f"[{step.low:+.{shown}f},\N{NO-BREAK SPACE}{step.high:+.{shown}f}]",
            f"{step.p_value:.3f}",
        ]
        for step in report.steps
    ]


def to_markdown(report: TaskReport) -> str:
    """The report as Markdown."""
    heads, rows = _rows(report)
    lines = [
        f"# The ladder: {report.kind}",
        "",
        facts_of(report),
        "",
        *(f"- **{each.text}** {each.reason}" for each in report.advice),
        "",
        *_markdown_table(heads, rows),
        "",
        *(f"- {sentence}" for sentence in report.skipped),
        "",
        *_markdown_table(["from", "to", f"difference in {report.scale.name}", "95% interval", "p"], _steps(report)),
        "",
    ]
    signatures = report.results[0].signatures if report.results else {}
    lines += [f"{name}: `{signature}`  " for name, signature in signatures.items()]
    return "\n".join(lines) + "\n"


def _markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (heads, ["---"] + ["--:"] * (len(heads) - 1), *rows)]


def to_html(report: TaskReport) -> str:
    """The report as a self-contained page."""
    heads, rows = _rows(report)
    sentences = [f"{rung.name}: {rung.sentence}" for rung in report.rungs]
    signatures = report.results[0].signatures if report.results else {}
    direction = "; less is better" if report.scale.is_error else ""
    parts: dict[str, Any] = {
        "TITLE": escape(f"The ladder: {report.kind}"),
        "NAMES": escape(report.kind.capitalize()),
        "FACTS": escape(facts_of(report)),
        "ADVICE": "".join(
            f"<p><strong>{escape(each.text)}</strong> <span class='quiet'>{escape(each.reason)}</span></p>"
            for each in report.advice
        ),
        "CAPTION": escape(f"{report.scale.name} on the test set with its 95% interval{direction}."),
        "BARS": draw_bars(report.results, report.scale),
        "TABLE": table([escape(head) for head in heads], [[escape(cell) for cell in row] for row in rows]),
        "SENTENCES": list_of(sentences),
        "SKIPPED": list_of(report.skipped),
        "STEPS": table(
            ["from", "to", escape(f"difference in {report.scale.name}"), "95% interval", "p"],
            [[escape(cell) for cell in row] for row in _steps(report)],
        ),
        "SIGNATURES": escape("; ".join(f"{name} {signature}" for name, signature in signatures.items())),
        "STYLE": read_template("doctor_page.css"),
    }
    return fill_page("task_ladder_page.html", parts)
