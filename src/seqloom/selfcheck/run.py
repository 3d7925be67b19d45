"""The promises, run on a model of the user's own.

report = selfcheck(Path("runs/first"))
report.is_kept
"""

import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import cast

import torch

from seqloom.classical.vectors import WordVectors
from seqloom.core.archive import by_origin
from seqloom.core.errors import DataError, SeqloomError, UsageError, is_out_of_memory
from seqloom.core.events import Event, Listener, Value, ignore
from seqloom.runs.loading import Loaded, LoadedFitted, LoadedModel, find_model, load_any, load_translator
from seqloom.selfcheck.aligners import AlignerChecks
from seqloom.selfcheck.captioners import CaptionerChecks
from seqloom.selfcheck.classifiers import ClassifierChecks, ImageClassifierChecks
from seqloom.selfcheck.encoders import EncoderChecks
from seqloom.selfcheck.files import check_files
from seqloom.selfcheck.fitted_translators import FittedTranslatorChecks
from seqloom.selfcheck.forecasters import ForecasterChecks
from seqloom.selfcheck.language_models import LanguageModelChecks, WordVectorChecks
from seqloom.selfcheck.lines import BLANK, HARD, CheckLines, given_lines, made_lines, own_lines
from seqloom.selfcheck.promises import PROMISES, Check, Checked, CheckResult, Outcome, counted
from seqloom.selfcheck.summarisers import SummariserChecks
from seqloom.selfcheck.taggers import TaggerChecks
from seqloom.selfcheck.transcribers import TranscriberChecks, described
from seqloom.selfcheck.translators import TranslatorChecks
from seqloom.tasks.settings import TranslationConfig
from seqloom.version import __version__

CHECKING = "promises checked"
"""The name of the progress bar."""


@dataclass(frozen=True)
class CheckReport:
    """What was found of a model."""

    folder: Path
    """Of the model; an archive, or a run that has not finished, by its own name."""
    model: str
    """What it is, in words."""
    lines: str
    """What it was checked with, in words."""
    checked: tuple[Checked, ...]
    versions: Mapping[str, str]
    left: tuple[str, ...] = ()
    """Names of the promises that were not checked yet."""

    @property
    def broken(self) -> list[Checked]:
        """The promises that are not kept."""
        return [each for each in self.checked if each.finding.outcome == "broken"]

    @property
    def is_kept(self) -> bool:
        """Whether all promises that apply are kept."""
        return not self.broken

    @property
    def verdict(self) -> str:
        """The result in a sentence."""
        applying = sum(each.finding.outcome != "not applicable" for each in self.checked)
        rest = len(self.checked) - applying
        left = f" ({rest} of {len(self.checked)} do not apply to this model)" if rest else ""
        if self.left:
            left += f"; {len(self.left)} were not checked: {', '.join(self.left)}"
        if self.is_kept:
            all_or_some = "Of those checked, all" if self.left else "All"
            return f"{all_or_some} {counted(applying, 'promise')} hold{left}."
        names = ", ".join(each.name for each in self.broken)
        verb = "is" if len(self.broken) == 1 else "are"
        return f"{len(self.broken)} of {counted(applying, 'promise')} {verb} broken: {names}{left}."

    @property
    def advice(self) -> str | None:
        """What to do about a broken promise."""
        if self.is_kept:
            return None
        if any(each.name == "files" for each in self.broken):
            return (
                "Nothing else was checked: a model is not read before its files are whole. "
                "Copy the model directory again from where it was made."
            )
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        return (
            "This is a mistake in Seqloom, or in a library under it. Please report it with what --json prints, and if "
            f"you may, with the model and the lines. Versions: {versions}."
        )


def selfcheck(
    model: Path,
    *,
    lines: Path | None = None,
    count: int = 50,
    seed: int = 1,
    source: str | None = None,
    target: str | None = None,
    listener: Listener = ignore,
    decided: Callable[[CheckReport], None] = lambda _report: None,
) -> CheckReport:
    """Run the promises on a model directory or a finished run, with lines of a file or with built-in ones.

    `source` and `target` choose the languages of a model that knows several. `decided` is called with the report so far
    after each promise.
    """
    if count < 1:
        raise UsageError(f"count {count} leaves nothing to check with; give 1 or more")
    folder = find_model(model)
    named = Path(by_origin(str(folder)))
    files = timed(Check("files", PROMISES["files"], lambda: check_files(folder)), is_guarded=False)
    if files.finding.outcome == "broken":
        report = CheckReport(named, "a model with damaged files", "nothing", (files,), _versions())
        decided(report)
        return report
    with _few_threads():
        chosen = source is not None or target is not None
        loaded = load_translator(folder, source=source, target=target) if chosen else load_any(folder)
        used, checks = _checks(loaded, model, lines, count=count, seed=seed)
        left = tuple(check.name for check in checks)
        report = CheckReport(named, _in_words(loaded), used, (files,), _versions(), left)
        decided(report)
        for at, check in enumerate(checks):
            listener(_progress(report, checks))
            report = replace(report, checked=(*report.checked, timed(check)), left=left[at + 1 :])
            decided(report)
        listener(_progress(report, checks))
    return report


def _progress(report: CheckReport, checks: Sequence[Check]) -> Event:
    """How many promises are decided, and an estimate of the seconds left, by passes over the lines."""
    decided = len(report.checked) - 1  # without the files, which cost nothing
    seconds = sum(each.seconds for each in report.checked[1:])
    passes = [sum(check.passes for check in part) for part in (checks[:decided], checks[decided:])]
    values: dict[str, Value] = {"what": CHECKING, "done": decided + 1, "all": len(checks) + 1}
    if passes[0]:
        values["left"] = seconds / passes[0] * passes[1]
    return Event("progress", values)


@contextmanager
def _few_threads() -> Iterator[None]:
    """One thread, unless OMP_NUM_THREADS says otherwise: for products this small, several mostly wait for each other.

    On a busy machine, waiting takes several times the processor time of the work.
    """
    threads = torch.get_num_threads()
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _checks(loaded: Loaded, model: Path, lines: Path | None, *, count: int, seed: int) -> tuple[str, Sequence[Check]]:
    """With what is checked, in words, and the checks that suit the kind of model."""
    if loaded.config.purpose == "word vectors":
        if lines is not None:
            raise UsageError(f"--lines {lines}: word vectors read no lines; leave it out")
        words = WordVectorChecks(loaded, cast("WordVectors", loaded.model), count=count, seed=seed)
        return f"{len(words.words):,} words, drawn with seed {seed}", words.checks()
    if loaded.config.purpose == "aligner":
        if lines is not None:
            raise UsageError(f"--lines {lines}: an aligner reads pairs of lines, which are drawn; leave it out")
        assert isinstance(loaded, LoadedFitted)
        checks = AlignerChecks(loaded, count=count, seed=seed)
        return f"{len(checks.sources):,} pairs of lines, drawn with seed {seed} or built in", checks.checks()
    if loaded.config.purpose == "captioner":
        if lines is not None:
            raise UsageError(f"--lines {lines}: a captioner is checked with random images; leave it out")
        assert isinstance(loaded, LoadedModel)
        of_pictures = CaptionerChecks(loaded, count=count, seed=seed)
        return f"{len(of_pictures.images):,} images, drawn with seed {seed}", of_pictures.checks()
    if loaded.config.model.reads_images:
        if lines is not None:
            raise UsageError(f"--lines {lines}: a classifier of images is checked with random images; leave it out")
        assert isinstance(loaded, LoadedModel)
        of_images = ImageClassifierChecks(loaded, count=count, seed=seed)
        return f"{len(of_images.images):,} images, drawn with seed {seed} or built in", of_images.checks()
    if loaded.config.purpose == "forecaster":
        if lines is not None:
            raise UsageError(f"--lines {lines}: a forecaster is checked with random histories; leave it out")
        assert isinstance(loaded, LoadedModel)
        of_series = ForecasterChecks(loaded, count=count, seed=seed)
        return f"{len(of_series.histories):,} histories, drawn with seed {seed} or built in", of_series.checks()
    if loaded.config.purpose == "summariser":
        if lines is not None:
            raise UsageError(f"--lines {lines}: a summariser is checked with random documents; leave it out")
        assert isinstance(loaded, LoadedFitted)
        of_documents = SummariserChecks(loaded, count=count, seed=seed)
        return f"{len(of_documents.documents):,} documents, drawn with seed {seed} or built in", of_documents.checks()
    if loaded.config.purpose == "transcriber":
        if lines is not None:
            raise UsageError(f"--lines {lines}: a transcriber is checked with random frames; leave it out")
        assert isinstance(loaded, LoadedModel)
        of_frames = TranscriberChecks(loaded, count=count, seed=seed)
        return described(of_frames.samples, seed), of_frames.checks()
    tokenizer = loaded.tokenizers.source
    if lines is not None:
        given = given_lines(lines, loaded.config, count=count, seed=seed)
    elif loaded.config.purpose in ("classifier", "tagger"):  # whose text has labels beside it
        given = made_lines(loaded.tokenizers.target, count=count, seed=seed)
    else:
        given = own_lines(model, loaded.config, tokenizer=tokenizer, count=count, seed=seed)
    if loaded.config.purpose == "denoiser":  # it is checked as the translator that may be trained from it
        loaded = replace(loaded, config=loaded.config.model_copy(update={"task": TranslationConfig()}))
    if loaded.config.purpose == "encoder":
        assert isinstance(loaded, LoadedModel)
        return _with_hard(given), EncoderChecks(loaded, given).checks()
    if loaded.config.purpose == "translator":
        if isinstance(loaded, LoadedFitted):
            return _with_hard(given), FittedTranslatorChecks(loaded, given).checks()
        assert isinstance(loaded, LoadedModel)
        return _with_hard(given), TranslatorChecks(loaded, given, seed=seed).checks()
    if loaded.config.purpose == "classifier":
        assert isinstance(loaded, LoadedModel)
        return _with_hard(given), ClassifierChecks(loaded, given).checks()
    if loaded.config.purpose == "tagger":
        assert isinstance(loaded, LoadedModel)
        return _with_hard(given), TaggerChecks(loaded, given).checks()
    return _with_hard(given), LanguageModelChecks(loaded, given, seed=seed).checks()


def _with_hard(lines: CheckLines) -> str:
    return f"{lines.origin}; and {len(BLANK) + len(HARD) + 1} lines that are hard to read, which are built in"


def timed(check: Check, *, is_guarded: bool = True) -> Checked:
    """Run a check. One that cannot be run to its end has found the promise broken: the model was read, and is whole."""
    begin = time.monotonic()
    try:
        finding = check.run()
    except DataError:
        raise
    except Exception as error:
        if not is_guarded or is_out_of_memory(error):
            raise
        kind = "" if isinstance(error, SeqloomError) else f"{type(error).__name__}: "
        finding = CheckResult("broken", f"the check stopped: {kind}{error}")
    return Checked(check.name, check.promise, finding, time.monotonic() - begin)


def _in_words(loaded: Loaded) -> str:
    card, use = loaded.card, loaded.config.purpose
    languages = f", {card.source or '?'} → {card.target or '?'}" if loaded.config.reads_pairs else ""
    return f"{use} of kind {loaded.config.model.kind}{languages}, {card.parameters:,} parameters"


def _versions() -> dict[str, str]:
    return {
        "seqloom": __version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "processor": platform.machine(),
        "threads": f"{torch.get_num_threads()} of {os.cpu_count()}",
    }


# The report as a self-contained HTML page.

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
    advice = f"<p>{escape(report.advice)}</p>" if report.advice else ""
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    heads = "".join(f'<th scope="col">{name}</th>' for name in ("kept", "promise", "what was seen", "time"))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Self-check of {escape(str(report.folder))}</title><style>{_STYLE}</style></head><body>"
        f"<h1>Self-check of {escape(str(report.folder))}</h1>"
        f"<p>{escape(report.model)}</p>"
        f'<p class="verdict {state}">{escape(report.verdict)}</p>{advice}'
        f'<p class="quiet">Checked with {escape(report.lines)}.</p>'
        f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
        f'<p class="quiet">{escape(versions)}</p></body></html>\n'
    )


def _row(checked: Checked) -> str:
    finding = checked.finding
    state = "none" if finding.outcome == "not applicable" else finding.outcome
    figures = "\n".join(f"{name}: {value}" for name, value in finding.figures.items())
    more = "\n".join(text for text in (figures, f"worst: {finding.worst}" if finding.worst else "") if text)
    details = f"<details><summary>figures</summary><pre><bdi>{escape(more)}</bdi></pre></details>" if more else ""
    return (
        f'<tr class="{state}"><td class="mark"><span role="img" aria-label="{finding.outcome}">'
        f"{MARKS[finding.outcome]}</span></td>"
        f"<td><b>{escape(checked.name)}</b><br>{escape(checked.promise)}</td>"
        f'<td><bdi>{escape(finding.sentence)}</bdi>{details}</td><td class="time">{checked.seconds:.1f} s</td></tr>'
    )
