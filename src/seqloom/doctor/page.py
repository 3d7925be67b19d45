"""The data report as a self-contained HTML file: the verdict, the faults with examples, and plots.

All text from the data is escaped; invisible characters are shown as code points.
"""

import math
import unicodedata
from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise

import numpy as np
from jaxtyping import Float, Float32, Int

from seqloom.doctor.examination import Diagnosis
from seqloom.doctor.faults import Fault, LineRun, Severity, counted
from seqloom.doctor.models import Forecast
from seqloom.doctor.pairs import ratio_border
from seqloom.drawing.pages import fill_page, read_template

# The plots of a data report, as SVG with the colours of the page (light or dark).

WIDTH, HEIGHT = 460, 260
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 14, 40
CELLS = 44
COLUMNS = 240
STRIP_WIDTH, STRIP_HEIGHT = 960, 190

LETTER_WIDTH = 7.0
"""Pixels that a digit of the labels takes at most."""


def draw_lengths(source: Int[np.ndarray, " lines"], target: Int[np.ndarray, " lines"]) -> str:
    """How many characters the two sides of a pair have: darker where there are more pairs."""
    longest = max(10.0, float(np.quantile(np.concatenate([source, target]), 0.995)))
    counts, _, _ = np.histogram2d(
        np.minimum(source, longest), np.minimum(target, longest), bins=CELLS, range=[[0, longest], [0, longest]]
    )
    inside, room = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    wide, high = inside / CELLS, room / CELLS
    top = math.log1p(float(counts.max()))
    cells = [
        f'<rect class="cell" x="{LEFT + x * wide:.1f}" y="{HEIGHT - BOTTOM - (y + 1) * high:.1f}" '
        f'width="{wide + 0.3:.1f}" height="{high + 0.3:.1f}" '
        f'opacity="{0.08 + 0.92 * math.log1p(counts[x, y]) / top:.2f}"/>'
        for x, y in zip(*np.nonzero(counts), strict=True)
    ]
    ticks = {tick / longest: f"{tick:,.0f}" for tick in _ticks(longest)}
    return _plot(
        "Characters of the source and of the target",
        cells,
        levels={HEIGHT - BOTTOM - room * share: text for share, text in ticks.items()},
        ticks={LEFT + inside * share: text for share, text in ticks.items()},
        below="characters of the source",
        left="of the target",
    )


def draw_ratios(ratios: Float[np.ndarray, " lines"], *, usual: float, border: float) -> str:
    """Histogram of length ratios, with the limits beyond which a pair is reported."""
    reach = max(1.6 * border, math.log(4))
    counts, _ = np.histogram(np.clip(ratios - usual, -reach, reach), bins=61, range=(-reach, reach))
    top = math.log1p(float(counts.max()) or 1.0)
    wide = (WIDTH - LEFT - RIGHT) / len(counts)

    def height(count: int) -> float:
        """A single pair must stay visible next to ten thousand."""
        return (HEIGHT - TOP - BOTTOM) * math.log1p(count) / top

    def across(ratio: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (ratio + reach) / (2 * reach)

    bars = [
        f'<rect class="bar" x="{LEFT + at * wide:.1f}" y="{HEIGHT - BOTTOM - height(count):.1f}" '
        f'width="{wide - 0.8:.1f}" height="{height(count):.1f}"><title>{count:,} pairs</title></rect>'
        for at, count in enumerate(counts.tolist())
        if count
    ]
    marks = [f'<path class="border" d="M{across(side):.1f} {TOP}V{HEIGHT - BOTTOM}"/>' for side in (-border, border)]
    shown = [ratio for ratio in (0.1, 0.2, 0.5, 1, 2, 5, 10) if abs(math.log(ratio) - usual) < reach]
    pairs = [1, *(10**power for power in range(1, 8) if 10**power <= counts.max())]
    return _plot(
        "Characters of the target for one of the source",
        [*bars, *marks],
        levels={
            HEIGHT - BOTTOM - height(count): f"{count // 1000:,}k" if count >= 10_000 else f"{count:,}"
            for count in pairs
        },
        ticks={across(math.log(ratio) - usual): f"{ratio:g}" for ratio in shown},
        below="characters of the target for one of the source",
        left="pairs",
    )


def draw_evidence(evidence: Float32[np.ndarray, " lines"], runs: Sequence[LineRun]) -> str:
    """The evidence for the pairs along the text, with misaligned runs marked."""
    width, height = STRIP_WIDTH, STRIP_HEIGHT
    borders = np.linspace(0, len(evidence), min(COLUMNS, max(1, len(evidence) // 4)) + 1).astype(np.int64)
    means = [float(evidence[a:b].mean()) for a, b in pairwise(borders)]
    low, high = min(-1.0, *means), max(1.0, *means)

    def level(value: float | int) -> float:
        return TOP + (height - TOP - BOTTOM) * (high - value) / (high - low)

    def across(number: float | int) -> float:
        return LEFT + (width - LEFT - RIGHT) * float(number) / len(evidence)

    middles = (borders[:-1] + borders[1:]) / 2
    points = " ".join(f"{across(at):.1f},{level(mean):.1f}" for at, mean in zip(middles, means, strict=True))
    marked = [
        f'<rect class="run" x="{across(run.first - 1):.1f}" y="{TOP}" '
        f'width="{max(3.0, across(run.last) - across(run.first - 1)):.1f}" height="{height - TOP - BOTTOM}">'
        f"<title>{_run(run)}</title></rect>"
        for run in runs
    ]
    levels = [value for value in (high, 0.0, low) if value in (0.0, high) or value < -1.5]
    return _plot(
        "Evidence along the text",
        [f'<polyline class="line" points="{points}"/>'],
        behind=marked,
        levels={level(value): f"{value:.0f}" for value in levels},
        ticks={across(tick): f"{tick:,.0f}" for tick in _ticks(float(len(evidence)))},
        below="line",
        left="evidence, nats",
        width=width,
        height=height,
    )


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
    return _svg("Scripts", parts, width=WIDTH, height=height)


def _plot(
    title: str,
    parts: Sequence[str],
    *,
    levels: Mapping[float, str],
    ticks: Mapping[float, str],
    below: str,
    left: str,
    behind: Sequence[str] = (),
    width: int = WIDTH,
    height: int = HEIGHT,
) -> str:
    """A plot with axes: what is drawn `behind` the grid and on it; labels of levels and ticks by their pixels."""
    grid = [
        f'<path class="{"zero" if text == "0" else "grid"}" d="M{LEFT} {y:.1f}H{width - RIGHT}"/>'
        + _text(LEFT - 6, y + 4, text, "end")
        for y, text in levels.items()
    ]
    # A label is right-aligned where the edge would cut it off.
    numbers = [
        _text(width - 1, height - BOTTOM + 15, text, "end")
        if x + LETTER_WIDTH * len(text) / 2 > width
        else _text(x, height - BOTTOM + 15, text, "middle")
        for x, text in ticks.items()
    ]
    middle = (TOP + height - BOTTOM) / 2
    names = [
        _text((LEFT + width - RIGHT) / 2, height - 6, below, "middle"),
        f'<text x="12" y="{middle}" text-anchor="middle" transform="rotate(-90 12 {middle})">{left}</text>',
    ]
    return _svg(title, [*behind, *grid, *parts, *numbers, *names], width=width, height=height)


def _svg(title: str, parts: Sequence[str], *, width: int, height: int) -> str:
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{title}">{"".join(parts)}</svg>'


def _text(x: float | int, y: float | int, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'


def _ticks(longest: float, *, count: int = 5) -> list[float]:
    """Round numbers up to the longest."""
    power = 10.0 ** math.floor(math.log10(longest / count))
    step = next((power * digit for digit in (1, 2, 5) if power * digit * count >= longest), power * 10)
    return [step * at for at in range(1, int(longest / step) + 1)]


MAX_EXAMPLE_CHARACTERS = 240
"""Characters of an example that are shown."""

_LABELS: Mapping[Severity, str] = {"stop": "stops training", "fix": "to fix", "note": "note"}
_VISIBLE_RUNS = 12


def doctor_page(found: Diagnosis) -> str:
    """The report as a self-contained HTML page."""
    train = found.train
    survey = train.survey
    names = [str(path) for part in train.corpus.parts for path in part]
    files = ", ".join(map(_file, names))
    words = [float(side.words.mean()) for side in (survey.source, survey.target)]
    others = "".join(f", {split.name} {len(split.survey):,}" for split in found.splits[1:])
    facts = (
        f"{counted(len(survey), 'pair')}{others}; a source has {words[0]:.1f} words on average, a target {words[1]:.1f}"
    )
    usual, border = ratio_border(survey)
    evidence = '<p class="quiet">Too few lines to learn a word lexicon.</p>'
    if train.evidence.any():
        evidence = (
            "<figure><figcaption>Alignment along the text: evidence from words and lengths that line n translates "
            "line n. Positive values mean aligned text; misaligned runs are marked.</figcaption>"
            f"{draw_evidence(train.evidence, train.runs)}</figure>"
        )
    first = found.verdict.first
    parts = {
        "TITLE": escape(f"Data report: {files}"),
        "NAMES": escape(files),
        "PATHS": escape(", ".join(names)),
        "FACTS": escape(facts),
        "SEVERITY": found.verdict.severity or "fine",
        "VERDICT": escape(found.verdict.sentence),
        "FIRST": f"<p class='quiet'>In this order:</p>{_list('ol', first)}" if first else "",
        "FAULTS": _faults(found, [fault for fault in found.faults if fault.severity != "note"]),
        "NOTES": _faults(found, [fault for fault in found.faults if fault.severity == "note"]),
        "EVIDENCE": evidence,
        "LENGTHS": draw_lengths(survey.source.characters, survey.target.characters),
        "RATIOS": draw_ratios(survey.log_ratios, usual=usual, border=border),
        "SCRIPTS": draw_scripts({"source": survey.source.letters, "target": survey.target.letters}),
        "UNKNOWN": "".join(map(_forecast, found.forecasts)),
        "SIZES": _list("ul", found.sizes),
        "STYLE": read_template("doctor_page.css"),
    }
    return fill_page("doctor_page.html", parts)


def _file(path: str) -> str:
    """The name of a file without its folders; a line number after it stays."""
    return path.replace("\\", "/").rpartition("/")[2]


def _list(tag: str, items: Sequence[str]) -> str:
    return f"<{tag}>{''.join(f'<li>{escape(item)}</li>' for item in items)}</{tag}>" if items else ""


def _table(heads: Sequence[str], rows: Sequence[str], *, attributes: str = "") -> str:
    head = "".join(f'<th scope="col">{name}</th>' for name in heads)
    body = f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody>"
    return f'<div class="scroll"><table{attributes}>{body}</table></div>'


def visible(text: str) -> str:
    """A text for the page: escaped, truncated, with code points for invisible characters."""
    pieces = []
    for character in text[:MAX_EXAMPLE_CHARACTERS]:
        is_hidden = unicodedata.category(character) in {"Cc", "Cf", "Zl", "Zp", "Cs", "Co", "Cn"}
        is_hidden = is_hidden or (character.isspace() and character != " ") or character == "\ufffd"
        pieces.append(f'<span class="odd">U+{ord(character):04X}</span>' if is_hidden else escape(character))
    return "".join(pieces) + ("…" if len(text) > MAX_EXAMPLE_CHARACTERS else "")


def _faults(found: Diagnosis, faults: Sequence[Fault]) -> str:
    """Faults with their runs and examples."""
    sections = []
    for fault in faults:
        sentence, advice = (f"{text[:1].upper()}{text[1:]}." for text in (fault.sentence, fault.advice))
        parts = [
            f'<h3><span class="badge {fault.severity}">{_LABELS[fault.severity]}</span>{escape(fault.title)}'
            f'<span class="split">{escape(fault.split)}</span></h3>'
            f"<p>{escape(sentence)}</p><p class='quiet'>{escape(advice)}</p>"
        ]
        if len(fault.runs) > 1:
            runs = [_run(run) for run in fault.runs[:_VISIBLE_RUNS]]
            left = len(fault.runs) - len(runs)
            runs += [f"and {left:,} more"] if left else []
            parts.append(f"<details><summary>{len(fault.runs):,} runs</summary>{_list('ul', runs)}</details>")
        shown, count = found.shown(fault), len(fault.lines)
        if shown:
            notes = [fault.describe(line.source, line.target) for _, line in shown]
            rows = [
                f'<tr><td class="place">{escape(_file(place))}</td>'
                f'<td class="text"><bdi>{visible(line.source)}</bdi></td>'
                f'<td class="text"><bdi>{visible(line.target)}</bdi></td>'
                + (f"<td>{escape(note)}</td>" if any(notes) else "")
                + "</tr>"
                for (place, line), note in zip(shown, notes, strict=True)
            ]
            summary = f"{len(shown)} of {count:,} lines" if count > len(shown) else "The lines"
            table = _table(["line", "source", "target", *(["what"] if any(notes) else [])], rows)
            is_open = "" if fault.severity == "note" else " open"
            parts.append(f"<details{is_open}><summary>{summary}</summary>{table}</details>")
        sections.append(f'<section class="fault">{"".join(parts)}</section>')
    return "".join(sections) or "<p>None.</p>"


def _run(run: LineRun) -> str:
    return f"lines {run.first:,} to {run.last:,}" + ("" if run.shift is None else f", shifted by {run.shift:+d}")


def _forecast(forecast: Forecast) -> str:
    sides = {"source": forecast.source, "target": forecast.target}
    sizes = sorted({size for side in sides.values() for size, _ in side.words})
    rows = []
    for name, side in sides.items():
        shares = dict(side.words)
        cells = "".join(f"<td>{f'{shares[size]:.1%}' if size in shares else '–'}</td>" for size in sizes)
        rows.append(f"<tr><td>{name}</td>{cells}<td>{side.characters:.3%}</td></tr>")
    first = f"{escape(forecast.split)}, words in the vocabulary"
    heads = [first, *(f"{size:,}" for size in sizes), "new characters"]
    return _table(heads, rows, attributes=' class="figures"')
