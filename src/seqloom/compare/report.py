"""The report of a comparison: one HTML file, Markdown and JSON, from the results on disk."""

import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any, cast

from seqloom.compare.advice import Advice, advise
from seqloom.compare.ladder import Ladder, curves_of
from seqloom.compare.pairs import Pairs
from seqloom.compare.results import BLEU, Result, RungResult, Scale, Score, Step, compare_neighbours, compare_two
from seqloom.compare.rungs import Rung
from seqloom.compare.splits import Splits
from seqloom.core.files import write_atomically
from seqloom.core.seeds import seed_for
from seqloom.drawing.pages import fill_page, read_template

SHOWN_SENTENCES = 10

WIDTH, HEIGHT = 460, 270
LEFT, RIGHT, TOP, BOTTOM = 44, 12, 12, 42
BAR_ROW = 30

HTML, MARKDOWN, JSON, PICTURE = "report.html", "report.md", "report.json", "ladder.svg"


@dataclass(frozen=True)
class Example:
    """A test sentence with its translations."""

    source: str
    reference: str
    translations: Mapping[str, str]


@dataclass(frozen=True)
class Report:
    """Everything that a comparison found."""

    splits: Splits
    minutes: float
    seconds: float
    rungs: tuple[Rung, ...]
    results: tuple[RungResult, ...]
    """In the order of the ladder."""
    steps: tuple[Step, ...]
    advice: tuple[Advice, ...]
    curves: Mapping[str, Mapping[int, float]]
    skipped: tuple[str, ...]
    examples: tuple[Example, ...]
    doctor: Mapping[str, Any]


def make_report(ladder: Ladder) -> Report:
    """The report of what is done so far."""
    rungs, state, seed = ladder.order.rungs, ladder.state, ladder.order.seed
    splits = cast("Pairs", ladder.subject).splits
    known = cast("Mapping[str, RungResult]", state.results)
    results = tuple(known[rung.name] for rung in rungs if rung.name in known)
    sources, references = splits.lines("test")
    translations = {
        each.name: (ladder.out / "rungs" / each.name / "test.txt").read_text(encoding="utf-8").split("\n")[:-1]
        for each in results
    }
    language = splits.target
    against_best: dict[str, Step] = {}
    if results:
        best = max(results, key=lambda each: each.bleu.value)
        against_best = {
            each.name: compare_two(each.name, best.name, translations, references, language=language, seed=seed)
            for each in results
            if each is not best
        }
    curves = curves_of(state)
    drawn = random.Random(seed_for(seed, "examples")).sample(range(len(sources)), min(SHOWN_SENTENCES, len(sources)))
    return Report(
        splits,
        ladder.order.minutes,
        state.seconds,
        rungs,
        results,
        tuple(compare_neighbours(translations, references, language=language, seed=seed)),
        tuple(
            advise(
                results,
                against_best,
                curves,
                test_pairs=splits.test_pairs,
                leaked=splits.leaked,
                skipped=[rung.name for rung in rungs if rung.name in state.skipped],
            )
        ),
        curves,
        tuple(state.skipped.values()),
        tuple(
            Example(sources[at], references[at], {name: lines[at] for name, lines in translations.items()})
            for at in sorted(drawn)
        ),
        state.doctor or {},
    )


def write_report(ladder: Ladder) -> Report:
    """Write the report of what is done so far in its three forms, and the picture of its rungs."""
    out, report = ladder.out, make_report(ladder)
    write_atomically(out / HTML, to_html(report))
    write_atomically(out / MARKDOWN, to_markdown(report))
    if report.results:
        write_atomically(out / PICTURE, to_svg(report))
    values = {**asdict(report), "splits": {**asdict(report.splits), "folder": "data"}}
    values["rungs"] = [{"name": rung.name, "sentence": rung.sentence} for rung in report.rungs]
    write_atomically(out / JSON, json.dumps(values, indent=1, ensure_ascii=False) + "\n")
    return report


# --- Markdown ---------------------------------------------------------------------------------------------------------


def to_markdown(report: Report) -> str:
    """The report as Markdown."""
    splits = report.splits
    lines = [
        f"# The ladder: {_pair_of(splits)}",
        "",
        facts_of(report),
        "",
        *(f"- **{each.text}** {each.reason}" for each in report.advice),
        "",
        "| rung | BLEU | chrF | minutes | sentences/s | megabytes |",
        "|---|---|---|--:|--:|--:|",
        *(
            f"| {each.name} | {_score(each.bleu)} | {_score(each.chrf)} | {minutes_text(each.minutes)} | "
            f"{each.sentences_per_second:,.1f} | {each.megabytes:.1f} |"
            for each in report.results
        ),
        "",
        *(f"- {sentence}" for sentence in report.skipped),
        "",
        "| from | to | difference in BLEU | 95% interval | p |",
        "|---|---|--:|---|--:|",
        *(
            f"| {step.lower} | {step.upper} | {step.difference:+.1f} | [{step.low:+.1f}, {step.high:+.1f}] | "
            f"{step.p_value:.3f} |"
            for step in report.steps
        ),
        "",
        *_markdown_grid("BLEU by training pairs", {n: _sized(curve) for n, curve in report.curves.items()}, ".1f"),
        *_markdown_grid("BLEU by source words", {each.name: each.by_length for each in report.results}, ".1f"),
        *_markdown_grid(
            "F₁ of words by how often the training text has them",
            {each.name: each.by_frequency for each in report.results},
            ".3f",
        ),
        "## Ten sentences",
        "",
    ]
    for example in report.examples:
        lines += [f"- {example.source}", f"  - reference: {example.reference}"]
        lines += [f"  - {name}: {text}" for name, text in example.translations.items()]
    signatures = report.results[0].signatures if report.results else {}
    lines += ["", *(f"{name}: `{signature}`  " for name, signature in signatures.items())]
    return "\n".join(lines) + "\n"


def _markdown_grid(title: str, series: Mapping[str, Mapping[str, float]], form: str) -> list[str]:
    columns = _columns(series)
    if not columns:
        return []
    return [
        f"## {title}",
        "",
        f"| rung | {' | '.join(columns)} |",
        f"|---|{'--:|' * len(columns)}",
        *(
            f"| {name} | {' | '.join(format(values[each], form) if each in values else '–' for each in columns)} |"
            for name, values in series.items()
        ),
        "",
    ]


def facts_of(report: Report) -> str:
    """The sizes of the sets and the time, as a sentence."""
    splits = report.splits
    return (
        f"{splits.train_pairs:,} training pairs, {splits.dev_pairs:,} for validation, {splits.test_pairs:,} for the "
        f"test; {report.seconds / 60:.0f} of {report.minutes:g} minutes used."
    )


# --- HTML -------------------------------------------------------------------------------------------------------------


def to_html(report: Report) -> str:
    """The report as a self-contained page."""
    results = report.results
    names = [each.name for each in results]
    by_length = {each.name: each.by_length for each in results}
    by_frequency = {each.name: each.by_frequency for each in results}
    curves = {name: {str(pairs): value for pairs, value in curve.items()} for name, curve in report.curves.items()}
    signatures = results[0].signatures if results else {}
    parts = {
        "TITLE": escape(f"The ladder: {_pair_of(report.splits)}"),
        "NAMES": escape(_pair_of(report.splits)),
        "FACTS": escape(facts_of(report)),
        "ADVICE": "".join(
            f"<p><strong>{escape(each.text)}</strong> <span class='quiet'>{escape(each.reason)}</span></p>"
            for each in report.advice
        ),
        "BARS": draw_bars(results, BLEU),
        "TABLE": _results_table(report),
        "SKIPPED": list_of(report.skipped),
        "STEPS": _steps_table(report.steps),
        "LEGEND": _legend(names),
        "CURVES": draw_lines(curves, names, below="training pairs", is_logarithmic=True),
        "LENGTHS": draw_lines(by_length, names, below="source words"),
        "FREQUENCIES": draw_lines(by_frequency, names, below="times in the training text", top=1.0),
        "SENTENCES": "".join(map(_sentence, report.examples)),
        "DATA": _data(report),
        "SIGNATURES": escape("; ".join(f"{name} {signature}" for name, signature in signatures.items())),
        "STYLE": read_template("doctor_page.css"),
    }
    return fill_page("ladder_page.html", parts)


def to_svg(report: Report) -> str:
    """The bars of the page as a picture of their own, for documents that show it."""
    return svg_of_bars(report.results, BLEU)


def svg_of_bars(results: Sequence[Result], scale: Scale) -> str:
    """The main score of each rung as a picture."""
    height = _bars_height(results)
    colours = " ".join(f".s{at} {{ fill: {colour}; }}" for at, colour in enumerate(_PICTURE_COLOURS))
    style = (
        "text { font: 11px system-ui, sans-serif; fill: #555; } .value { fill: #111; font-weight: 600; } "
        f".whisker {{ stroke: #111; stroke-width: 1.4; fill: none; }} {colours}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}">'
        f'<style>{style}</style><rect width="{WIDTH}" height="{height}" fill="#fff"/>'
        f"{''.join(_bars(results, scale))}</svg>\n"
    )


def draw_bars(results: Sequence[Result], scale: Scale) -> str:
    """The main score of each rung as a bar, with its interval."""
    bars = _bars(results, scale) if results else []
    return _svg(f"{scale.name} of each rung", bars, width=WIDTH, height=_bars_height(results)) if results else ""


def _bars_height(results: Sequence[Result]) -> int:
    return len(results) * BAR_ROW + 6


def _bars(results: Sequence[Result], scale: Scale) -> list[str]:
    name_width = 90
    top = max(scale.least_top, max(each.main.high for each in results)) * 1.08
    room = WIDTH - name_width - 138  # the value with its interval is written behind the bar

    def across(value: float) -> float:
        return name_width + room * max(0.0, value) / top

    parts = []
    for at, each in enumerate(results):
        y, middle = at * BAR_ROW + 4, at * BAR_ROW + 1 + BAR_ROW / 2
        low, high = across(each.main.low), across(each.main.high)
        parts += [
            f'<text x="{name_width - 8}" y="{middle + 4:.1f}" text-anchor="end">{escape(each.name)}</text>',
            f'<rect class="s{at % 6}" x="{name_width}" y="{y}" width="{across(each.main.value) - name_width:.1f}" '
            f'height="{BAR_ROW - 10}" rx="2"/>',
            f'<path class="whisker" d="M{low:.1f} {middle:.1f}H{high:.1f}M{low:.1f} {middle - 5:.1f}v10'
            f'M{high:.1f} {middle - 5:.1f}v10"/>',
            f'<text class="value" x="{high + 8:.1f}" y="{middle + 4:.1f}">{scale.with_interval(each.main)}</text>',
        ]
    return parts


def draw_lines(
    series: Mapping[str, Mapping[str, float]],
    names: Sequence[str],
    *,
    below: str,
    top: float | None = None,
    is_logarithmic: bool = False,
) -> str:
    """A line per rung over the same columns, which are equally far apart, or numbers on a logarithmic axis."""
    columns = _columns(series)
    if not columns:
        return '<p class="quiet">Not measured yet.</p>'
    highest = top or max([10.0, *(value for values in series.values() for value in values.values())]) * 1.05
    room = WIDTH - LEFT - RIGHT - 30
    places = {each: at / max(1, len(columns) - 1) for at, each in enumerate(columns)}
    if is_logarithmic and len(columns) > 1:
        first, last = math.log(int(columns[0])), math.log(int(columns[-1]))
        places = {each: (math.log(int(each)) - first) / (last - first) for each in columns}

    def across(column: str) -> float:
        return LEFT + 15 + room * places[column]

    def level(value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * max(0.0, value) / highest

    step = next(s for s in (0.2, 1.0, 2.0, 5.0, 10.0, 20.0, 25.0) if highest / s <= 6 or s == 25.0)
    ticks = [step * at for at in range(int(highest / step) + 1)]
    parts = [
        f'<path class="grid" d="M{LEFT} {level(tick):.1f}H{WIDTH - RIGHT}"/>'
        f'<text x="{LEFT - 6}" y="{level(tick) + 4:.1f}" text-anchor="end">{tick:g}</text>'
        for tick in ticks
    ]
    for at, each in enumerate(columns):
        is_last = at > 0 and at == len(columns) - 1  # a long label would be cut off at the edge
        x, anchor = (WIDTH - 2.0, "end") if is_last else (across(each), "middle")
        label = escape(f"{int(each):,}" if is_logarithmic else each)
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="{anchor}">{label}</text>')
    for at, name in enumerate(names):
        values = [(across(each), level(series[name][each])) for each in columns if each in series.get(name, {})]
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in values)
        colour = f"var(--{_COLOURS[at % 6]})"
        parts.append(f'<polyline class="curve" style="stroke:{colour}" points="{points}"/>')
        parts += [f'<circle class="s{at % 6}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>' for x, y in values]
        if is_logarithmic:  # points that are missing are marked side by side above the axis
            parts += [
                f'<text class="missing" style="fill:{colour}" x="{across(each) + 9 * (at - (len(names) - 1) / 2):.1f}" '
                f'y="{level(0) - 5:.1f}" text-anchor="middle">×</text>'
                for each in columns
                if each not in series.get(name, {})
            ]
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 6}" text-anchor="middle">{escape(below)}</text>')
    return _svg(below, parts, width=WIDTH, height=HEIGHT)


_COLOURS = ("first", "second", "third", "fourth", "fifth", "sixth")
_PICTURE_COLOURS = ("#1f6f8b", "#d1495b", "#edae49", "#5b8e7d", "#7a5195", "#8d6346")
"""The same colours as doctor_page.css gives them, for pictures without that page."""


def _svg(title: str, parts: Sequence[str], *, width: int, height: int) -> str:
    label = escape(title, quote=True)
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def _legend(names: Sequence[str]) -> str:
    marks = (f'<span style="--mark:var(--{_COLOURS[at % 6]})">{escape(name)}</span>' for at, name in enumerate(names))
    return f'<p class="legend">{"".join(marks)}</p>'


def _results_table(report: Report) -> str:
    sentences = {rung.name: rung.sentence for rung in report.rungs}
    rows = [
        [
            f'<span title="{escape(sentences[each.name], quote=True)}">{escape(each.name)}</span>',
            _score(each.bleu),
            _score(each.chrf),
            minutes_text(each.minutes),
            f"{each.sentences_per_second:,.1f}",
            f"{each.megabytes:,.1f}",
            f"{each.parameters:,}",
        ]
        for each in report.results
    ]
    heads = ["rung", "BLEU", "chrF", "minutes", "sentences/s", "megabytes", "numbers stored"]
    return table(heads, rows) + list_of([f"{name}: {sentence}" for name, sentence in sentences.items()])


def _steps_table(steps: Sequence[Step]) -> str:
    rows = [
        [
            f"{escape(step.lower)} → {escape(step.upper)}",
            f"{step.difference:+.1f}",
            f"[{step.low:+.1f},\N{NO-BREAK SPACE}{step.high:+.1f}]",
            f"{step.p_value:.3f}",
        ]
        for step in steps
    ]
    return table(["from → to", "difference in BLEU", "95% interval", "p"], rows)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of cells that are HTML."""
    head = "".join(f'<th scope="col">{name}</th>' for name in heads)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return (
        f'<div class="scroll"><table class="figures steps"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _sentence(example: Example) -> str:
    rows = [("source", example.source), ("reference", example.reference), *example.translations.items()]
    items = "".join(
        f"<dt>{escape(name)}</dt><dd{' class=source' if name == 'source' else ''}>{escape(text)}</dd>"
        for name, text in rows
    )
    return f'<div class="sentence"><dl>{items}</dl></div>'


def _data(report: Report) -> str:
    doctor, splits = report.doctor, report.splits
    found = [f"The doctor: {doctor.get('verdict', 'the text was not examined')}"]
    found += [f"{fault['title']}: {fault['sentence']}" for fault in doctor.get("faults", [])[:8]]
    leaks = "No test source is in the training text."
    if splits.leaked_sources:
        leaks = (
            f"{splits.leaked_sources:,} of {splits.test_pairs:,} test sources are also in the training text, "
            f"{splits.leaked:,} with the same target."
        )
    return list_of([*found, leaks])


def list_of(items: Sequence[str]) -> str:
    """Sentences as a list."""
    return f"<ul class='quiet'>{''.join(f'<li>{escape(item)}</li>' for item in items)}</ul>" if items else ""


def _columns(series: Mapping[str, Mapping[str, float]]) -> list[str]:
    """All columns in their order; that of the first series that has them all, or by number."""
    found = list(dict.fromkeys(column for values in series.values() for column in values))
    return sorted(found, key=int) if all(column.isdigit() for column in found) else found


def _sized(curve: Mapping[int, float]) -> dict[str, float]:
    return {str(pairs): value for pairs, value in curve.items()}


def _pair_of(splits: Splits) -> str:
    return f"{splits.source or '?'} → {splits.target or '?'}"


def minutes_text(minutes: float) -> str:
    """Minutes as tables show them."""
    return f"{minutes:.1f}" if minutes >= 1 else f"{minutes:.2f}"


def _score(score: Score) -> str:
    return BLEU.with_interval(score)
