"""What a run says while it works, on stderr: a bar on a terminal, a few plain lines elsewhere, JSON if asked for."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from seqloom.cli.output import clean, counted, duration, let_go_of
from seqloom.core.events import Event, Listener, ignore, to_json

PAUSE = 10.0
"""Seconds between two lines of progress where there is no bar."""


@contextmanager
def show_events(*, as_json: bool, has_progress: bool = True) -> Iterator[Listener]:
    """The listener that suits where stderr goes. Of several ranks, only the first one speaks.

    `has_progress=False` leaves bars and the like out.
    """
    if os.environ.get("RANK", "0") != "0":
        yield ignore
    elif as_json:
        yield Surviving(write_json)
    elif not has_progress:
        yield Surviving(Lines(shows_progress=False))
    elif not _is_lively():
        yield Surviving(Lines())
    else:
        shown = Bars()
        try:
            yield Surviving(shown)
        finally:
            with suppress(OSError):
                shown.stop()


class Surviving:
    """A listener that falls silent when nobody reads stderr any more, or it cannot be written; the work goes on."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def __call__(self, event: Event) -> None:
        try:
            self._listener(event)
        except OSError:
            self._listener = ignore
            let_go_of(sys.stderr)


def _is_lively() -> bool:
    """Whether somebody watches: a terminal that can move its cursor, and no build server."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("CI")


def write_json(event: Event) -> None:
    """Events as lines of JSON; those that only move a bar are left out."""
    if event.kind != "progress":
        print(clean(to_json(event)), file=sys.stderr, flush=True)


class Lines:
    """A line for what matters, and one for progress every ten seconds or every tenth of the way."""

    def __init__(self, *, shows_progress: bool = True, clock: Callable[[], float] = time.monotonic) -> None:
        self._shows_progress = shows_progress
        self._clock = clock
        self._last = clock()
        self._tenths: dict[str, int] = {}
        """The tenth that each thing has come to; that of the steps has no name."""
        self._steps: int | None = None
        self._begun = ""
        """What was said to have got some way, and not yet to be done."""

    def __call__(self, event: Event) -> None:
        if event.kind == "model":
            self._steps = event.values.get("steps")  # type: ignore[assignment]
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
        doing = "" if is_step else str(event["what"])
        if tenth < self._tenths.get(doing, 0):  # it has begun again
            del self._tenths[doing]
        is_due = self._clock() - self._last >= PAUSE
        if not is_step and done == everything and self._begun == event["what"]:
            is_due = True  # who was told of a part is told of the whole
        # Steps are told by tenths too; what takes less than ten seconds otherwise needs no line.
        by_tenths = is_step or event.values.get("by_tenths", False)
        if self._shows_progress and done and (is_due or (by_tenths and tenth > self._tenths.get(doing, 0))):
            self._print(f"{step_title(event, everything)}: {step_note(event)}" if is_step else progress_text(event))
            self._begun = "" if is_step or done == everything else str(event["what"])
        if by_tenths:
            self._tenths[doing] = tenth

    def _print(self, line: str) -> None:
        self._last = self._clock()
        print(clean(line), file=sys.stderr, flush=True)


class Bars:
    """One bar at a time, with sentences above it."""

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

    def __call__(self, event: Event) -> None:
        match event.kind:
            case "phase":
                self._show(event["what"], description=event["what"], total=None, completed=0, note="")
            case "progress":
                self._show_progress(event)
            case "step":
                title = step_title(event, self._steps)
                note = step_note(event)
                self._show("steps", description=title, total=self._steps, completed=event["step"], note=note)
            case "model":
                self._steps = event.values.get("steps")  # type: ignore[assignment]
                self._show("steps", description="first steps", total=self._steps, completed=0, note="")
        if event.kind != "phase":
            for line in sentences(event):
                self._console.print(clean(line), markup=False, soft_wrap=True)

    def stop(self) -> None:
        """Take the bar away."""
        self._progress.stop()

    def _show_progress(self, event: Event) -> None:
        done, everything = event["done"], event["all"]
        if self._what != event["what"]:
            self._since, self._before = self._clock(), done
        left = time_left(event)
        if everything and not left and done > self._before:
            left = f", {duration((self._clock() - self._since) / (done - self._before) * (everything - done))} left"
        note = f"{done:,} of {everything:,}{left}" if everything else f"{done:,} lines"
        self._show(event["what"], description=event["what"], total=everything, completed=done, note=note)

    def _show(self, what: str, *, description: str, total: int | None, completed: int, note: str) -> None:
        if what != self._what:
            for task in self._progress.task_ids:
                self._progress.remove_task(task)
            self._progress.add_task(clean(description), total=total, note=note)
            self._what = what
            self._progress.start()
        task = self._progress.task_ids[0]
        self._progress.update(task, description=clean(description), total=total, completed=completed, note=note)


# --- words -----------------------------------------------------------------------------------------------------------


def sentences(event: Event) -> list[str]:
    """What an event says; nothing for those that a bar or the result shows."""
    match event.kind:
        case "sizing":
            first, *others = [str(reason) for reason in event["reasons"]] or [""]
            return [first, *(f"  {reason}" for reason in others)]
        case "phase":
            return [str(event["what"])]
        case "notice" | "save_failed" | "finished":
            return [str(event["message"])]
        case "threads":
            return [_threads(event)]
        case "encoded":
            return [_encoded(event)]
        case "model":
            return [f"{event['kind']} with {event['parameters']:,} parameters; the run is kept in {event['run']}"]
        case "validation":
            return [_validation(event)]
        case "resumed":
            changed = [f"{name} from {then} to {now}" for name, (then, now) in event["changed_settings"].items()]
            title = step_title(event, event.values.get("steps"))  # type: ignore[arg-type]
            return [f"going on after {title}" + (f"; changed: {', '.join(changed)}" if changed else "")]
        case "bad_step":
            figures = f"loss {_number(event['loss'])}, gradient norm {_number(event['norm'])}"
            return [f"step {event['step']:,} was not finite ({figures}) and changed no weight: {event['where']}"]
        case _:
            return []


def step_title(event: Event, steps: int | None) -> str:
    """Where training stands."""
    return f"step {event['step']:,} of {steps:,}" if steps else f"step {event['step']:,}"


def step_note(event: Event) -> str:
    """How training goes."""
    speed = f"{event['tokens_per_second']:,.0f} tokens/s"
    return f"loss {_number(event['loss'])}, {speed}, {duration(event['eta'])} left"


def progress_text(event: Event) -> str:
    """How far something else has got."""
    everything = f" of {event['all']:,}" if event["all"] else ""
    return f"{event['what']}: {event['done']:,}{everything}{time_left(event)}"


def time_left(event: Event) -> str:
    """The time that the rest will take, where the event has an estimate."""
    seconds = event.values.get("left")
    return f", about {duration(seconds)} left" if isinstance(seconds, int | float) else ""


def _encoded(event: Event) -> str:
    if "lines" in event.values:  # a text that is no translation of another
        rest = f"; {event['unknown']:.2%} of them unknown" if event["unknown"] > 0 else ""
        return f"{event['name']}: {counted(event['lines'], 'line')}, {counted(event['tokens'], 'token')}{rest}"
    unknown = max(event["source_unknown"], event["target_unknown"])
    rest = f"; up to {unknown:.2%} of a side unknown" if unknown > 0 else ""
    tokens = f"{event['source_tokens']:,} source and {event['target_tokens']:,} target tokens"
    return f"{event['name']}: {event['kept']:,} of {event['read']:,} pairs, {tokens}{rest}"


def _threads(event: Event) -> str:
    count, policy = counted(event["threads"], "thread"), event["wait_policy"]
    settings = ", ".join(f"{name}={value}" for name, value in policy["settings"].items())
    return f"{count}; {settings} ({policy['reason']})" if settings and event["threads"] > 1 else count


def _validation(event: Event) -> str:
    names = {
        "loss": "dev loss",
        "perplexity": "perplexity",
        "bleu": "BLEU",
        "chrf": "chrF",
        "exact_match": "exact match",
    }
    values = event.values
    shown = [f"{label} {_number(values[name])}" for name, label in names.items() if values.get(name) is not None]
    best = " (best so far)" if event["is_best"] else ""
    return f"step {event['step']:,}: {', '.join(shown)}{best}"


def _number(value: Any) -> str:
    if not isinstance(value, (int, float)):
        return "–"
    return f"{value:.3f}" if abs(value) < 100 else f"{value:.4g}"
