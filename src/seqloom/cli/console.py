"""What commands print: results on stdout, and events on stderr (a progress bar, plain lines, or JSON)."""

import io
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from seqloom.core.events import Event, Listener, ignore, to_json
from seqloom.core.terminal import TerminalWriter, visible

if TYPE_CHECKING:
    from seqloom.metrics.scoring import CorpusScore

PAUSE = 10.0
"""Seconds between two lines of progress where there is no bar."""

# --- standard streams ------------------------------------------------------------------------------------------------


def use_utf8() -> None:
    """Read and write UTF-8 and LF in every locale."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", newline="\n")


def guard_terminal(words: Sequence[str]) -> None:
    """Escape control characters in results that go to a terminal; files and pipes receive them byte for byte.

    Help is not changed: it has colours, and nothing in it comes from data.
    """
    ours = words[: words.index("--")] if "--" in words else words
    is_help = any(word in ("-h", "--help") for word in ours)
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.isatty() and not is_help:
        sys.stdout = TerminalWriter(
            sys.stdout.buffer, encoding="utf-8", errors="backslashreplace", newline="\n", line_buffering=True
        )


def discard_rest(stream: Any) -> None:
    """Send unwritten output to the null device, so that the interpreter does not complain about it at exit."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


# --- text ------------------------------------------------------------------------------------------------------------


def clean(text: str) -> str:
    """Text from data as one line for a terminal, with control characters escaped."""
    return visible(text)


def one_line(text: str) -> str:
    """Text that stays one line of a file."""
    return text.replace("\r", " ").replace("\n", " ")


def counted(number: int, noun: str) -> str:
    """1 line, 2 lines."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """Seconds as "42 s", "3 min 07 s" or "2 h 05 min"."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def size(count: int) -> str:
    """A number of bytes in a suitable unit."""
    amount = float(count)
    for unit in ("bytes", "kB", "MB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} GB"


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows with aligned columns: the first and last to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([f"{row[0]:{widths[0]}}", *map(str.rjust, row[1:-1], widths[1:-1]), row[-1]]).rstrip() for row in rows
    ]


def score_rows(scores: "Sequence[CorpusScore]") -> list[str]:
    """A line per score: name, value, 95% interval, signature."""
    return table(
        [
            (score.name, score_text(score.name, score.value), interval_text(score.interval), score.signature)
            for score in scores
        ]
    )


def score_text(name: str, value: float) -> str:
    """A score with as many decimals as tell models apart: errors of forecasts are small numbers."""
    return f"{value:.4f}" if name.startswith(("MSE", "MAE")) else f"{value:.2f}"


def interval_text(interval: tuple[float, float] | None) -> str:
    """The 95% interval in brackets."""
    return "" if interval is None else f"[{interval[0]:.2f}, {interval[1]:.2f}]"


def examples(*lines: str) -> str:
    """The end of a command's help: lines that can be typed as they are, each a paragraph of its own."""
    return "\n\n".join(["[bold]Examples[/bold]", *(f"[cyan]{line}[/cyan]" for line in lines)])


# --- events on stderr ------------------------------------------------------------------------------------------------


@contextmanager
def show_events(*, as_json: bool, has_progress: bool = True) -> Iterator[Listener]:
    """The listener that suits stderr. Of several ranks, only the first one prints.

    `has_progress=False` suppresses bars and lines of progress.
    """
    if os.environ.get("RANK", "0") != "0":
        yield ignore
    elif as_json:
        yield TolerantListener(write_json)
    elif not has_progress:
        yield TolerantListener(PlainLines(shows_progress=False))
    elif not sys.stderr.isatty() or os.environ.get("TERM") == "dumb" or os.environ.get("CI"):
        yield TolerantListener(PlainLines())
    else:
        shown = Bars()
        try:
            yield TolerantListener(shown)
        finally:
            with suppress(OSError):
                shown.stop()


class TolerantListener:
    """A listener that becomes silent when stderr cannot be written, while the work continues."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def __call__(self, event: Event) -> None:
        try:
            self._listener(event)
        except OSError:
            self._listener = ignore
            discard_rest(sys.stderr)


def write_json(event: Event) -> None:
    """Events as lines of JSON, except those that only move a bar."""
    if event.kind != "progress":
        print(clean(to_json(event)), file=sys.stderr, flush=True)


class PlainLines:
    """A line for each message, and one for progress every ten seconds or every tenth of the work."""

    def __init__(self, *, shows_progress: bool = True, clock: Callable[[], float] = time.monotonic) -> None:
        self._shows_progress = shows_progress
        self._clock = clock
        self._last = clock()
        self._tenths: dict[str, int] = {}
        """Tenths done of each activity; training steps have the empty name."""
        self._steps: int | None = None
        self._unit = "tokens"
        self._reported = ""
        """The activity whose progress was printed, until its end is printed too."""

    def __call__(self, event: Event) -> None:
        if event.kind == "model":
            self._steps = event.values.get("steps")  # type: ignore[assignment]
            self._unit = str(event.values.get("unit", "tokens"))
            self._tenths = {}
        if event.kind in ("step", "progress"):
            self._progress(event)
            return
        for line in sentences(event):
            self._print(line)

    def _progress(self, event: Event) -> None:
        is_step = event.kind == "step"
        done, everything = (event["step"], self._steps) if is_step else (event["done"], event["all"])
        tenth = 10 * done // everything if everything else 0
        activity = "" if is_step else str(event["what"])
        if tenth < self._tenths.get(activity, 0):  # it has started again
            del self._tenths[activity]
        is_due = self._clock() - self._last >= PAUSE
        if not is_step and done == everything and self._reported == activity:
            is_due = True  # after a part was printed, the end is printed too
        # Steps are also printed by tenths; other work needs no line if it takes less than ten seconds.
        by_tenths = is_step or event.values.get("by_tenths", False)
        if self._shows_progress and done and (is_due or (by_tenths and tenth > self._tenths.get(activity, 0))):
            note = (
                f"{step_title(event, everything)}: {step_note(event, self._unit)}" if is_step else progress_text(event)
            )
            self._print(note)
            self._reported = "" if done == everything else activity
        if by_tenths:
            self._tenths[activity] = tenth

    def _print(self, line: str) -> None:
        self._last = self._clock()
        print(clean(line), file=sys.stderr, flush=True)


class Bars:
    """One bar at a time, with messages above it."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

        self._console = Console(stderr=True, highlight=False)
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[note]}", markup=False),
            console=self._console,
            transient=True,
        )
        self._clock = clock
        self._what = ""
        self._since, self._before = 0.0, 0
        """When the bar appeared, and what was done by then."""
        self._steps: int | None = None
        self._unit = "tokens"

    def __call__(self, event: Event) -> None:
        match event.kind:
            case "phase":
                self._show(event["what"], description=event["what"], total=None, completed=0, note="")
            case "progress":
                what, done, everything = event["what"], event["done"], event["all"]
                if self._what != what:
                    self._since, self._before = self._clock(), done
                left = time_left(event)
                if everything and not left and done > self._before:
                    seconds = (self._clock() - self._since) / (done - self._before) * (everything - done)
                    left = f", {duration(seconds)} left"
                note = f"{done:,} of {everything:,}{left}" if everything else f"{done:,} lines"
                self._show(what, description=what, total=everything, completed=done, note=note)
            case "step":
                title, note = step_title(event, self._steps), step_note(event, self._unit)
                self._show("steps", description=title, total=self._steps, completed=event["step"], note=note)
            case "model":
                self._steps = event.values.get("steps")  # type: ignore[assignment]
                self._unit = str(event.values.get("unit", "tokens"))
                self._show("steps", description="first steps", total=self._steps, completed=0, note="")
        if event.kind != "phase":
            for line in sentences(event):
                self._console.print(clean(line), markup=False, soft_wrap=True)

    def stop(self) -> None:
        """Remove the bar."""
        self._progress.stop()

    def _show(self, what: str, *, description: str, total: int | None, completed: int, note: str) -> None:
        if what != self._what:
            for task in self._progress.task_ids:
                self._progress.remove_task(task)
            self._progress.add_task(clean(description), total=total, note=note)
            self._what = what
            self._progress.start()
        task = self._progress.task_ids[0]
        self._progress.update(task, description=clean(description), total=total, completed=completed, note=note)


# --- events as text --------------------------------------------------------------------------------------------------


SCORES = {
    "loss": "dev loss",
    "perplexity": "perplexity",
    "hidden_accuracy": "hidden-token accuracy",
    "masked_accuracy": "masked-token accuracy",
    "pair_accuracy": "pair accuracy",
    "kl": "KL in nats",
    "active_units": "active units",
    "bleu": "BLEU",
    "chrf": "chrF",
    "exact_match": "exact match",
    "ter": "TER",
    "wer": "WER",
    "cer": "CER",
    "per": "PER",
    "rouge_1": "ROUGE-1",
    "rouge_2": "ROUGE-2",
    "rouge_l": "ROUGE-L",
    "bracket_f1": "bracket F1",
    "round_trip": "round-trip chrF",
    "accuracy": "accuracy",
    "mae": "MAE",
    "macro_f1": "macro-F1",
    "targets_found": "targets found first (%)",
    "sources_found": "sources found first (%)",
}
"""How the values of a validation are written."""


def sentences(event: Event) -> list[str]:
    """The message of an event; none for events that a bar or the result shows."""
    match event.kind:
        case "sizing":
            first, *others = [str(reason) for reason in event["reasons"]] or [""]
            return [first, *(f"  {reason}" for reason in others)]
        case "phase":
            return [str(event["what"])]
        case "notice" | "save_failed" | "finished":
            return [str(event["message"])]
        case "threads":
            count, policy = counted(event["threads"], "thread"), event["wait_policy"]
            settings = ", ".join(f"{name}={value}" for name, value in policy["settings"].items())
            return [f"{count}; {settings} ({policy['reason']})" if settings and event["threads"] > 1 else count]
        case "encoded":
            if noun := next((each for each in ("image", "row") if f"{each}s" in event.values), None):
                return [f"{event['name']}: {counted(event[f'{noun}s'], noun)}"]
            if "lines" in event.values:  # text of one language
                rest = f"; {event['unknown']:.2%} of them unknown" if event["unknown"] > 0 else ""
                size_of = f"{counted(event['lines'], 'line')}, {counted(event['tokens'], 'token')}"
                return [f"{event['name']}: {size_of}{rest}"]
            unknown = max(event["source_unknown"], event["target_unknown"])
            rest = f"; up to {unknown:.2%} of a side unknown" if unknown > 0 else ""
            tokens = f"{event['source_tokens']:,} source and {event['target_tokens']:,} target tokens"
            return [f"{event['name']}: {event['kept']:,} of {event['read']:,} pairs, {tokens}{rest}"]
        case "model":
            return [f"{event['kind']} with {event['parameters']:,} parameters; run folder {event['run']}"]
        case "validation":
            shown = [
                f"{label} {event[name]:.0f}" if name == "active_units" else f"{label} {_number(event[name])}"
                for name, label in SCORES.items()
                if event.values.get(name) is not None
            ]
            best = " (lowest dev loss so far)" if event["is_best"] else ""
            return [f"step {event['step']:,}: {', '.join(shown)}{best}"]
        case "resumed":
            changed = [f"{name} from {then} to {now}" for name, (then, now) in event["changed_settings"].items()]
            title = step_title(event, event.values.get("steps"))  # type: ignore[arg-type]
            return [f"resuming after {title}" + (f"; changed: {', '.join(changed)}" if changed else "")]
        case "bad_step":
            figures = f"loss {_number(event['loss'])}, gradient norm {_number(event['norm'])}"
            return [f"step {event['step']:,} was not finite ({figures}) and was skipped: {event['where']}"]
        case _:
            return []


def step_title(event: Event, steps: int | None) -> str:
    """The number of the step."""
    return f"step {event['step']:,} of {steps:,}" if steps else f"step {event['step']:,}"


def step_note(event: Event, unit: str = "tokens") -> str:
    """Loss, speed and remaining time; `unit` is what the loss counts."""
    speed = f"{event['tokens_per_second']:,.0f} {unit}/s"
    return f"loss {_number(event['loss'])}, {speed}, {duration(event['eta'])} left"


def progress_text(event: Event) -> str:
    """Progress of an activity other than training."""
    everything = f" of {event['all']:,}" if event["all"] else ""
    return f"{event['what']}: {event['done']:,}{everything}{time_left(event)}"


def time_left(event: Event) -> str:
    """The remaining time, where the event has an estimate."""
    seconds = event.values.get("left")
    return f", about {duration(seconds)} left" if isinstance(seconds, int | float) else ""


def _number(value: Any) -> str:
    if not isinstance(value, (int, float)):
        return "–"
    return f"{value:.3f}" if abs(value) < 100 else f"{value:.4g}"
