"""A report of a self-check as one HTML file that needs nothing else."""

from seqloom.drawing.pages import as_text
from seqloom.selfcheck.promises import Checked, Outcome
from seqloom.selfcheck.run import CheckReport

MARKS: dict[Outcome, str] = {"holds": "✓", "broken": "✗", "not applicable": "–"}

_STYLE = """
:root { color-scheme: light dark; --good: #1a7f37; --bad: #cf222e; --quiet: #6e7781; --line: #d0d7de; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; overflow-wrap: anywhere; }
.verdict { border-left: 4px solid var(--good); padding: .5rem 1rem; font-weight: 600; }
.verdict.broken { border-color: var(--bad); }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .5rem; border-bottom: 1px solid var(--line); }
td.mark { font-weight: 700; } tr.holds .mark { color: var(--good); } tr.broken .mark { color: var(--bad); }
tr.none, .quiet { color: var(--quiet); } .time { text-align: right; white-space: nowrap; }
details pre { white-space: pre-wrap; overflow-wrap: anywhere; font-size: .85rem; }
"""


def selfcheck_page(report: CheckReport) -> str:
    """The page of a report. What comes from models and texts is escaped where it enters the page."""
    rows = "".join(_row(each) for each in report.checked)
    state = "holds" if report.is_kept else "broken"
    advice = f"<p>{as_text(report.advice)}</p>" if report.advice else ""
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    heads = "".join(f'<th scope="col">{name}</th>' for name in ("kept", "promise", "what was seen", "time"))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Self-check of {as_text(str(report.folder))}</title><style>{_STYLE}</style></head><body>"
        f"<h1>Self-check of {as_text(str(report.folder))}</h1>"
        f"<p>{as_text(report.model)}</p>"
        f'<p class="verdict {state}">{as_text(report.verdict)}</p>{advice}'
        f'<p class="quiet">Checked with {as_text(report.lines)}.</p>'
        f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
        f'<p class="quiet">{as_text(versions)}</p></body></html>\n'
    )


def _row(checked: Checked) -> str:
    finding = checked.finding
    state = "none" if finding.outcome == "not applicable" else finding.outcome
    figures = "\n".join(f"{name}: {value}" for name, value in finding.figures.items())
    more = "\n".join(text for text in (figures, f"worst: {finding.worst}" if finding.worst else "") if text)
    details = f"<details><summary>figures</summary><pre><bdi>{as_text(more)}</bdi></pre></details>" if more else ""
    return (
        f'<tr class="{state}"><td class="mark"><span role="img" aria-label="{finding.outcome}">'
        f"{MARKS[finding.outcome]}</span></td>"
        f"<td><b>{as_text(checked.name)}</b><br>{as_text(checked.promise)}</td>"
        f'<td><bdi>{as_text(finding.sentence)}</bdi>{details}</td><td class="time">{checked.seconds:.1f} s</td></tr>'
    )
