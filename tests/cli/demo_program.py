"""A small demo: its sizes, and a program that kills it at many points and finishes it each time.

    python demo_program.py FOLDER

Prints a JSON line per attempt: where it was killed, the hash of the weights in the end, and what else was left.
"""

import json
import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from seqloom.apps import demo as recipe
from seqloom.core.errors import Stopped
from seqloom.core.events import Event, Listener, ignore
from seqloom.core.files import sha256_of

STEPS = 4
STOPPED = 75
DELAYS = 12
"""Attempts that are killed after a time, besides those that are killed at an event."""


def small_sizes() -> dict[str, Any]:
    """The constants of the recipe, for a demo of a second."""
    settings = {
        "text.size=": 300,
        "model.width=": 16,
        "model.feed_forward=": 16,
        "model.encoder_layers=": 1,
        "model.decoder_layers=": 1,
        "training.log_every=": 1,
        "training.validate_every=": 2,
        "training.save_every=": 2,
    }
    others = [each for each in recipe.SETTINGS if not each.startswith(tuple(settings))]
    short = ["search.length_factor=1.0", "search.beam=1", "evaluation.resamples=40"]
    smaller = (*others, *(f"{name}{value}" for name, value in settings.items()), *short)
    return {"TRAIN_PAIRS": 300, "DEV_PAIRS": 5, "TEST_PAIRS": 12, "SETTINGS": smaller}


def in_child(out: Path, listener: Listener, *, delay: float | None = None) -> bool:
    """Run the demo in a child process, which may be killed; whether it finished."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            recipe.demo(out, steps=STEPS, listener=listener)
            code = 0
        except Stopped:  # by SIGTERM, after the step at hand
            code = STOPPED
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    if delay is not None:
        time.sleep(delay)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) in (0, STOPPED), f"the demo in {out} failed"
    return status == 0


def killer(at: int) -> Listener:
    """A listener that kills its process at an event, half of the time in a way that lets it clean up."""
    seen = 0

    def listen(_event: Event) -> None:
        nonlocal seen
        seen += 1
        if seen == at:
            os.kill(os.getpid(), signal.SIGKILL if at % 2 else signal.SIGTERM)

    return listen


def report(out: Path, killed: str) -> None:
    strays = [path.name for path in out.parent.iterdir() if path.name not in (out.name, f"{out.name}-corpus")]
    left = [path.name for path in out.iterdir() if path.name == "lock" or ".partial-" in path.name]
    weights = sha256_of(out / "model" / "model.safetensors")
    sys.stdout.write(json.dumps({"killed": killed, "weights": weights, "left": strays + left}) + "\n")
    sys.stdout.flush()


def main() -> None:
    for name, value in small_sizes().items():
        setattr(recipe, name, value)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    folder = Path(sys.argv[1])
    begin = time.monotonic()
    assert in_child(folder / "whole" / "demo", ignore)
    seconds = time.monotonic() - begin
    report(folder / "whole" / "demo", "never")
    at = 1
    while True:
        out = folder / f"event-{at}" / "demo"
        if in_child(out, killer(at)):
            break
        assert in_child(out, ignore)
        report(out, f"at event {at}")
        at += 1
    for number in range(DELAYS):
        out = folder / f"delay-{number}" / "demo"
        delay = seconds * (number + random.Random(number).random()) / DELAYS
        in_child(out, ignore, delay=delay)
        assert in_child(out, ignore)
        report(out, f"after {delay:.2f} of {seconds:.2f} s")


if __name__ == "__main__":
    main()
