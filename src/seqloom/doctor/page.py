"""The data report as a self-contained HTML file: the verdict, the faults with examples, and plots.

All text from the data is escaped; invisible characters are shown as code points.
"""

import math
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

import numpy as np
from jaxtyping import Float, Float32, Int

from seqloom.data.corpus import Line
from seqloom.doctor.faults import Fault, LineRun, Severity, Verdict, counted
from seqloom.doctor.models import Forecast
from seqloom.doctor.pairs import ratio_border
from seqloom.doctor.splits import Split
from seqloom.drawing.pages import fill_page, read_template

# The plots of a data report, as SVG with the colours of the page (light or dark).

WIDTH, HEIGHT = 460, 260
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 14, 40
CELLS = 44
COLUMNS = 240
STRIP_WIDTH, STRIP_HEIGHT = 960, 190

LETTER_WIDTH = 7.0
"""Pixels that a digit of the labels takes at most."""

_ROUND = (1, 2, 5)


def draw_lengths(source: Int[np.ndarray, " lines"], target: Int[np.ndarray, " lines"]) -> str:
    """How many characters the two sides of a pair have: darker where there are more pairs."""
    longest = max(10.0, float(np.quantile(np.concatenate([source, target]), 0.995)))
    counts, _, _ = np.histogram2d(
        np.minimum(source, longest), np.minimum(target, longest), bins=CELLS, range=[[0, longest], [0, longest]]
    )
    wide, high = (WIDTH - LEFT - RIGHT) / CELLS, (HEIGHT - TOP - BOTTOM) / CELLS
    top = math.log1p(float(counts.max()))
    cells = [
        f'<rect class="cell" x="{LEFT + x * wide:.1f}" y="{HEIGHT - BOTTOM - (y + 1) * high:.1f}" '
        f'width="{wide + 0.3:.1f}" height="{high + 0.3:.1f}" '
        f'opacity="{0.08 + 0.92 * math.log1p(counts[x, y]) / top:.2f}"/>'
        for x, y in zip(*np.nonzero(counts), strict=True)
    ]
    ticks = _ticks(longest)
    return _svg(
        "Characters of the source and of the target",
        [*_grid(ticks, longest), *cells, *_below(ticks, longest), _labels("characters of the source", "of the target")],
    )


def draw_ratios(ratios: Float[np.ndarray, " lines"], *, usual: float, border: float) -> str:
    """Histogram of length ratios, with the limits beyond which a pair is reported."""
    reach = max(1.6 * border, math.log(4))
    counts, _ = np.histogram(np.clip(ratios - usual, -reach, reach), bins=61, range=(-reach, reach))
    top = float(counts.max()) or 1.0
    wide = (WIDTH - LEFT - RIGHT) / len(counts)
    # A single pair must stay visible next to ten thousand.
    heights = [(HEIGHT - TOP - BOTTOM) * math.log1p(count) / math.log1p(top) for count in counts]
    bars = [
        f'<rect class="bar" x="{LEFT + at * wide:.1f}" y="{HEIGHT - BOTTOM - height:.1f}" width="{wide - 0.8:.1f}" '
        f'height="{height:.1f}"><title>{count:,} pairs</title></rect>'
        for at, (count, height) in enumerate(zip(counts, heights, strict=True))
        if count
    ]

    def place(value: float | int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (value + reach) / (2 * reach)

    marks = [f'<path class="border" d="M{place(side):.1f} {TOP}V{HEIGHT - BOTTOM}"/>' for side in (-border, border)]
    shown = [ratio for ratio in (0.1, 0.2, 0.5, 1, 2, 5, 10) if abs(math.log(ratio) - usual) < reach]
    labels = [_tick(place(math.log(ratio) - usual), HEIGHT - BOTTOM + 15, f"{ratio:g}") for ratio in shown]
    pairs = [1, *(10**power for power in range(1, 8) if 10**power <= top)]
    levels = [HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * math.log1p(count) / math.log1p(top) for count in pairs]
    grid = [
        f'<path class="grid" d="M{LEFT} {level:.1f}H{WIDTH - RIGHT}"/>'
        + _text(LEFT - 6, level + 4, f"{count // 1000:,}k" if count >= 10_000 else f"{count:,}", "end")
        for count, level in zip(pairs, levels, strict=True)
    ]
    return _svg(
        "Characters of the target for one of the source",
        [*grid, *bars, *marks, *labels, _labels("characters of the target for one of the source", "pairs")],
    )


def draw_evidence(evidence: Float32[np.ndarray, " lines"], runs: Sequence[LineRun]) -> str:
    """The evidence for the pairs along the text, with misaligned runs marked."""
    width, height = STRIP_WIDTH, STRIP_HEIGHT
    inside = width - LEFT - RIGHT
    borders = np.linspace(0, len(evidence), min(COLUMNS, max(1, len(evidence) // 4)) + 1).astype(np.int64)
    means = [float(evidence[a:b].mean()) for a, b in pairwise(borders)]
    low, high = min(-1.0, *means), max(1.0, *means)

    def level(value: float | int) -> float:
        return TOP + (height - TOP - BOTTOM) * (high - value) / (high - low)

    def across(number: float | int) -> float:
        return LEFT + inside * float(number) / len(evidence)

    middles = (borders[:-1] + borders[1:]) / 2
    points = " ".join(f"{across(at):.1f},{level(mean):.1f}" for at, mean in zip(middles, means, strict=True))
    marked = [
        f'<rect class="run" x="{across(run.first - 1):.1f}" y="{TOP}" '
        f'width="{max(3.0, across(run.last) - across(run.first - 1)):.1f}" height="{height - TOP - BOTTOM}">'
        f"<title>lines {run.first:,} to {run.last:,}"
        f"{'' if run.shift is None else f', shifted by {run.shift:+d}'}</title></rect>"
        for run in runs
    ]
    levels = [value for value in (high, 0.0, low) if value in (0.0, high) or value < -1.5]
    grid = [
        f'<path class="{"zero" if value == 0 else "grid"}" d="M{LEFT} {level(value):.1f}H{width - RIGHT}"/>'
        + _text(LEFT - 6, level(value) + 4, f"{value:.0f}", "end")
        for value in levels
    ]
    ticks = [
        _tick(across(tick), height - BOTTOM + 15, f"{tick:,.0f}", width=width) for tick in _ticks(float(len(evidence)))
    ]
    line = f'<polyline class="line" points="{points}"/>'
    words = _labels("line", "evidence, nats", width=width, height=height)
    return _svg("Evidence along the text", [*marked, *grid, line, *ticks, words], width=width, height=height)


def draw_scripts(letters: Mapping[str, Mapping[str, int]]) -> str:
    """The shares of the scripts on each side."""
    names = list(dict.fromkeys(name for side in letters.values() for name in side))
    height, inside = 34 * len(letters) + 8, WIDTH - LEFT - RIGHT - 12
    parts = []
    for row, (side, counts) in enumerate(letters.items()):
        total, x = max(1, sum(counts.values())), float(LEFT + 12)
        parts.append(_text(LEFT + 4, 34 * row + 24, side, "end"))
        for name, count in sorted(counts.items(), key=lambda item: -item[1]):
            wide = inside * count / total
            share = f"{name.lower()} {100 * count / total:.2f} %"
            colour = f"s{min(names.index(name), 5)}"
            parts.append(
                f'<rect class="{colour}" x="{x:.1f}" y="{34 * row + 8}" width="{max(wide, 0.5):.1f}" height="24">'
                f"<title>{share}: {count:,} letters</title></rect>"
            )
            if wide > 90:
                parts.append(f'<text class="on" x="{x + 8:.1f}" y="{34 * row + 24}">{share}</text>')
            x += wide
    return _svg("Scripts", parts, height=height)


# --- parts -----------------------------------------------------------------------------------------------------------


def _svg(title: str, parts: Sequence[str], *, width: int = WIDTH, height: int = HEIGHT) -> str:
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{title}">{"".join(parts)}</svg>'


def _text(x: float | int, y: float | int, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'


def _tick(x: float | int, y: float | int, text: str, *, width: int = WIDTH) -> str:
    """A label below an axis: centred, or right-aligned where the edge would cut it off."""
    reaches_edge = x + LETTER_WIDTH * len(text) / 2 > width
    return _text(width - 1, y, text, "end") if reaches_edge else _text(x, y, text, "middle")


def _labels(below: str, left: str, *, width: int = WIDTH, height: int = HEIGHT) -> str:
    middle = (TOP + height - BOTTOM) / 2
    return (
        _text((LEFT + width - RIGHT) / 2, height - 6, below, "middle")
        + f'<text x="12" y="{middle}" text-anchor="middle" transform="rotate(-90 12 {middle})">{left}</text>'
    )


def _ticks(longest: float, *, count: int = 5) -> list[float]:
    """Round numbers up to the longest."""
    power = 10.0 ** math.floor(math.log10(longest / count))
    step = next((power * digit for digit in _ROUND if power * digit * count >= longest), power * 10)
    return [step * at for at in range(1, int(longest / step) + 1)]


def _grid(ticks: Sequence[float], longest: float) -> list[str]:
    levels = [HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * tick / longest for tick in ticks]
    return [
        f'<path class="grid" d="M{LEFT} {level:.1f}H{WIDTH - RIGHT}"/>'
        + _text(LEFT - 6, level + 4, f"{tick:,.0f}", "end")
        for tick, level in zip(ticks, levels, strict=True)
    ]


def _below(ticks: Sequence[float], longest: float) -> list[str]:
    inside = WIDTH - LEFT - RIGHT
    return [_tick(LEFT + inside * tick / longest, HEIGHT - BOTTOM + 15, f"{tick:,.0f}") for tick in ticks]


LONGEST = 240
"""Characters of an example that are shown."""

_LABELS: Mapping[Severity, str] = {"stop": "stops training", "fix": "to fix", "note": "note"}
_VISIBLE_RUNS = 12


@dataclass(frozen=True, eq=False)
class Shown:
    """A line of a fault as it is shown."""

    place: str
    line: Line


@dataclass(frozen=True, eq=False)
class PageContent:
    """The content of the page."""

    names: Sequence[str]
    """The files of the training text."""
    splits: Sequence[Split]
    faults: Sequence[tuple[Fault, Sequence[Shown]]]
    verdict: Verdict
    forecasts: Sequence[Forecast]
    sizes: Sequence[str]


def doctor_page(report: PageContent) -> str:
    """The page of a report."""
    train = report.splits[0]
    survey = train.survey
    usual, border = ratio_border(survey)
    parts = {
        "TITLE": escape(f"Data report: {', '.join(map(_file, report.names))}"),
        "NAMES": escape(", ".join(map(_file, report.names))),
        "PATHS": escape(", ".join(report.names)),
        "FACTS": escape(_facts(report.splits)),
        "SEVERITY": report.verdict.severity or "fine",
        "VERDICT": escape(report.verdict.sentence),
        "FIRST": _first(report.verdict),
        "FAULTS": _faults([each for each in report.faults if each[0].severity != "note"]),
        "NOTES": _faults([each for each in report.faults if each[0].severity == "note"]),
        "EVIDENCE": _evidence(train),
        "LENGTHS": draw_lengths(survey.source.characters, survey.target.characters),
        "RATIOS": draw_ratios(survey.log_ratios, usual=usual, border=border),
        "SCRIPTS": draw_scripts({"source": survey.source.letters, "target": survey.target.letters}),
        "UNKNOWN": "".join(_forecast(forecast) for forecast in report.forecasts),
        "SIZES": _list("ul", report.sizes),
        "STYLE": read_template("doctor_page.css"),
    }
    return fill_page("doctor_page.html", parts)


def _file(path: str) -> str:
    """The name of a file without its folders; a line number after it stays."""
    return path.replace("\\", "/").rpartition("/")[2]


def _list(tag: str, items: Sequence[str]) -> str:
    return f"<{tag}>{''.join(f'<li>{escape(item)}</li>' for item in items)}</{tag}>" if items else ""


def _facts(splits: Sequence[Split]) -> str:
    survey = splits[0].survey
    means = [float(side.words.mean()) for side in (survey.source, survey.target)]
    others = "".join(f", {split.name} {len(split.survey):,}" for split in splits[1:])
    return (
        f"{counted(len(survey), 'pair')}{others}; a source has {means[0]:.1f} words on average, a target {means[1]:.1f}"
    )


def _first(verdict: Verdict) -> str:
    return f"<p class='quiet'>In this order:</p>{_list('ol', verdict.first)}" if verdict.first else ""


def visible(text: str) -> str:
    """A text for the page: escaped, truncated, with code points for invisible characters."""
    pieces = []
    for character in text[:LONGEST]:
        is_hidden = unicodedata.category(character) in {"Cc", "Cf", "Zl", "Zp", "Cs", "Co", "Cn"}
        is_hidden = is_hidden or (character.isspace() and character != " ") or character == "\ufffd"
        pieces.append(f'<span class="odd">U+{ord(character):04X}</span>' if is_hidden else escape(character))
    return "".join(pieces) + ("…" if len(text) > LONGEST else "")


def _faults(faults: "Sequence[tuple[Fault, Sequence[Shown]]]") -> str:
    return "".join(_fault(fault, shown) for fault, shown in faults) or "<p>None.</p>"


def _fault(fault: Fault, shown: Sequence[Shown]) -> str:
    head = (
        f'<h3><span class="badge {fault.severity}">{_LABELS[fault.severity]}</span>{escape(fault.title)}'
        f'<span class="split">{escape(fault.split)}</span></h3>'
    )
    body = f"<p>{escape(_sentence(fault.sentence))}</p><p class='quiet'>{escape(_sentence(fault.advice))}</p>"
    return f'<section class="fault">{head}{body}{_runs(fault)}{_examples(fault, shown)}</section>'


def _sentence(text: str) -> str:
    end = "" if text.endswith("?") else "."
    return f"{text[:1].upper()}{text[1:]}{end}" if text else ""


def _runs(fault: Fault) -> str:
    if len(fault.runs) < 2:
        return ""
    items = [
        f"lines {run.first:,} to {run.last:,}" + ("" if run.shift is None else f", shifted by {run.shift:+d}")
        for run in fault.runs[:_VISIBLE_RUNS]
    ]
    left = len(fault.runs) - len(items)
    items += [f"and {left:,} more"] if left else []
    return f"<details><summary>{len(fault.runs):,} runs</summary>{_list('ul', items)}</details>"


def _examples(fault: Fault, shown: Sequence[Shown]) -> str:
    if not shown:
        return ""
    notes = [fault.describe(each.line.source, each.line.target) for each in shown]
    heads = ["line", "source", "target", *(["what"] if any(notes) else [])]
    rows = [
        f'<tr><td class="place">{escape(_file(each.place))}</td>'
        f'<td class="text"><bdi>{visible(each.line.source)}</bdi></td>'
        f'<td class="text"><bdi>{visible(each.line.target)}</bdi></td>'
        + (f"<td>{escape(note)}</td>" if any(notes) else "")
        + "</tr>"
        for each, note in zip(shown, notes, strict=True)
    ]
    is_open = " open" if fault.severity != "note" else ""
    count = len(fault.lines)
    what = f"{len(shown)} of {count:,} lines" if count > len(shown) else "The lines"
    head = "".join(f'<th scope="col">{name}</th>' for name in heads)
    table = f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
    return f"<details{is_open}><summary>{what}</summary>{table}</details>"


def _evidence(train: Split) -> str:
    if not train.evidence.any():
        return '<p class="quiet">Too few lines to learn a word lexicon.</p>'
    caption = (
        "Alignment along the text: evidence from words and lengths that line n translates line n. Positive values mean "
        "aligned text; misaligned runs are marked."
    )
    return f"<figure><figcaption>{caption}</figcaption>{draw_evidence(train.evidence, train.runs)}</figure>"


def _forecast(forecast: Forecast) -> str:
    sides = {"source": forecast.source, "target": forecast.target}
    sizes = sorted({size for side in sides.values() for size, _ in side.words})
    head = "".join(f'<th scope="col">{size:,}</th>' for size in sizes)
    rows = []
    for name, side in sides.items():
        shares = dict(side.words)
        cells = "".join(f"<td>{f'{shares[size]:.1%}' if size in shares else '–'}</td>" for size in sizes)
        rows.append(f"<tr><td>{name}</td>{cells}<td>{side.characters:.3%}</td></tr>")
    first, last = f"{escape(forecast.split)}, words in the vocabulary", "new characters"
    heads = f'<thead><tr><th scope="col">{first}</th>{head}<th scope="col">{last}</th></tr></thead>'
    return f'<div class="scroll"><table class="figures">{heads}<tbody>{"".join(rows)}</tbody></table></div>'
