"""A data report as one HTML file that needs nothing else: the verdict, the faults with examples, and pictures.

Whatever comes from the data is escaped where it enters the page; what cannot be seen in a text is written out.
"""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from seqloom.data.blocks import Line
from seqloom.inspection.doctor.faults import Fault, Severity, counted
from seqloom.inspection.doctor.lengths import ratio_border
from seqloom.inspection.doctor.splits import Split
from seqloom.inspection.doctor.unknown import Forecast
from seqloom.inspection.doctor.verdict import Verdict
from seqloom.inspection.doctor_pictures import draw_evidence, draw_lengths, draw_ratios, draw_scripts
from seqloom.inspection.pages import as_text, beside, fill_page

LONGEST = 240
"""Characters of an example that are shown."""

_LABELS: Mapping[Severity, str] = {"stop": "stops training", "mend": "to be mended", "note": "note"}
_VISIBLE_RUNS = 12


@dataclass(frozen=True, eq=False)
class Shown:
    """A line of a fault as it is shown."""

    place: str
    line: Line


@dataclass(frozen=True, eq=False)
class Report:
    """What the page says."""

    names: Sequence[str]
    """The files of the training text."""
    splits: Sequence[Split]
    faults: Sequence[tuple[Fault, Sequence[Shown]]]
    verdict: Verdict
    forecasts: Sequence[Forecast]
    sizes: Sequence[str]


def doctor_page(report: Report) -> str:
    """The page of a report."""
    train = report.splits[0]
    survey = train.survey
    usual, border = ratio_border(survey)
    parts = {
        "TITLE": as_text(f"Data report: {', '.join(map(_file, report.names))}"),
        "NAMES": as_text(", ".join(map(_file, report.names))),
        "PATHS": as_text(", ".join(report.names)),
        "FACTS": as_text(_facts(report.splits)),
        "SEVERITY": report.verdict.severity or "fine",
        "VERDICT": as_text(report.verdict.sentence),
        "FIRST": _first(report.verdict),
        "FAULTS": _faults([each for each in report.faults if each[0].severity != "note"]),
        "NOTES": _faults([each for each in report.faults if each[0].severity == "note"]),
        "EVIDENCE": _evidence(train),
        "LENGTHS": draw_lengths(survey.source.characters, survey.target.characters),
        "RATIOS": draw_ratios(survey.log_ratios, usual=usual, border=border),
        "SCRIPTS": draw_scripts({"source": survey.source.letters, "target": survey.target.letters}),
        "UNKNOWN": "".join(_forecast(forecast) for forecast in report.forecasts),
        "SIZES": _list("ul", report.sizes),
        "STYLE": beside("doctor_page.css"),
    }
    return fill_page("doctor_page.html", parts)


def _file(path: str) -> str:
    """The name of a file without its folders; a line number after it stays."""
    return path.replace("\\", "/").rpartition("/")[2]


def _list(tag: str, items: Sequence[str]) -> str:
    return f"<{tag}>{''.join(f'<li>{as_text(item)}</li>' for item in items)}</{tag}>" if items else ""


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
    """A text for the page: escaped, cut, with names for what nobody would see."""
    pieces = []
    for character in text[:LONGEST]:
        is_hidden = unicodedata.category(character) in {"Cc", "Cf", "Zl", "Zp", "Cs", "Co", "Cn"}
        is_hidden = is_hidden or (character.isspace() and character != " ") or character == "\ufffd"
        pieces.append(f'<span class="odd">U+{ord(character):04X}</span>' if is_hidden else as_text(character))
    return "".join(pieces) + ("…" if len(text) > LONGEST else "")


def _faults(faults: "Sequence[tuple[Fault, Sequence[Shown]]]") -> str:
    return "".join(_fault(fault, shown) for fault, shown in faults) or "<p>Nothing.</p>"


def _fault(fault: Fault, shown: Sequence[Shown]) -> str:
    head = (
        f'<h3><span class="badge {fault.severity}">{_LABELS[fault.severity]}</span>{as_text(fault.title)}'
        f'<span class="split">{as_text(fault.split)}</span></h3>'
    )
    body = f"<p>{as_text(_sentence(fault.sentence))}</p><p class='quiet'>{as_text(_sentence(fault.advice))}</p>"
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
        f'<tr><td class="place">{as_text(_file(each.place))}</td>'
        f'<td class="text"><bdi>{visible(each.line.source)}</bdi></td>'
        f'<td class="text"><bdi>{visible(each.line.target)}</bdi></td>'
        + (f"<td>{as_text(note)}</td>" if any(notes) else "")
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
        return '<p class="quiet">There are too few lines to learn which words translate which.</p>'
    caption = (
        "Alignment along the text: how much the words and lengths speak for line n translating line n. It lies above "
        "zero where the text is in order; runs that are out of place are marked."
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
    first, last = f"{as_text(forecast.split)}, words in the vocabulary", "new characters"
    heads = f'<thead><tr><th scope="col">{first}</th>{head}<th scope="col">{last}</th></tr></thead>'
    return f'<div class="scroll"><table class="figures">{heads}<tbody>{"".join(rows)}</tbody></table></div>'
