"""Kill training with SIGKILL at random moments, resume it, and compare the result with an undisturbed run.

    python benchmarks/kill_loop.py --kills 200

Each run is trained by the program itself, `seqloom train` and then `seqloom train --resume`, in a process that is
forked and killed after a random time. After every kill the newest checkpoint must be whole and no further back than one
save interval; at the end of every run all weights, optimiser states and generators must be those of the undisturbed run
bit for bit, and its folder must hold the same files and no others.

The exit code is 0 if all of this held, 1 if not, and 2 if the program failed by itself.
"""

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

# Imported here once, not in every child; the second is imported by the first optimiser step.
import torch
import torch._dynamo

from harness.processes import exit_on_termination
from harness.progress import duration, say
from seqloom.cli.main import execute
from seqloom.core.errors import SeqloomError
from seqloom.core.events import ignore, read_events
from seqloom.core.files import sha256_of
from seqloom.data.phrasebook import sample_pairs
from seqloom.training.checkpoint import newest_checkpoint

SMALL = ("text.size=200", "data.tokens_per_batch=400", "evaluation.resamples=40", "search.beam=1")
KINDS = {
    "transformer": (
        *("model.width=16", "model.heads=2", "model.feed_forward=16", "model.dropout_rate=0.1"),
        *("model.encoder_layers=1", "model.decoder_layers=1", "task.dev_lines=2", "search.length_constant=4"),
    ),
    "rnn_lm": ("model.kind=rnn_lm", "model.width=16", "task.windows=sequential"),
    "ngram": ("model.kind=ngram", "model.order=3"),
}
"""Settings of a small model of each kind: two that are trained step by step, one with a loop of its own."""


class BrokenPromise(Exception):
    """A guarantee that a kill has broken."""


@dataclass(frozen=True)
class Job:
    """A training run that is killed repeatedly."""

    kind: str
    folder: Path
    steps: int
    save_every: int

    def words(self, run: Path) -> list[str]:
        """The command line that starts or resumes a run."""
        if (run / "run.json").is_file():
            return ["train", "--resume", str(run)]
        sides = ("en", "de") if self.kind == "transformer" else ("en",)
        files = {name: ",".join(str(self.folder / f"{name}.{side}") for side in sides) for name in ("train", "dev")}
        pace = (f"training.steps={self.steps}", f"training.save_every={self.save_every}", "training.log_every=1")
        rest = (f"training.validate_every={2 * self.save_every}", "training.average=2", "training.threads=1")
        settings = [*SMALL, *KINDS[self.kind], *pace, *rest]
        return ["train", "--train", files["train"], "--dev", files["dev"], "--out", str(run), *settings]

    def write_text(self) -> None:
        """The text to train on: sentences of the phrasebook."""
        for split, count in (("train", 80), ("dev", 8)):
            pairs = sample_pairs("en", "de", count=count, seed=1, split=split)
            for side, lines in (("en", [pair.source for pair in pairs]), ("de", [pair.target for pair in pairs])):
                content = "".join(f"{line}\n" for line in lines)
                (self.folder / f"{split}.{side}").write_text(content, encoding="utf-8")


@dataclass
class Tally:
    """Counts so far."""

    kills: int = 0
    runs: int = 0
    most_lost: int = 0
    """Maximum number of steps repeated after a kill."""
    places: Counter[str] = field(default_factory=Counter)
    """What was in progress when a kill occurred."""
    leftovers: int = 0
    """Kills that left partial files."""


# --- processes -------------------------------------------------------------------------------------------------------


def fork(words: list[str], log: Path) -> int:
    """Run a command line in a child process; its process id."""
    child = os.fork()
    if child:
        return child
    code = 70
    try:
        handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        torch.set_num_threads(1)
        code = execute(words)
    finally:
        os._exit(code)


def wait(child: int, seconds: float | None) -> int | None:
    """The exit code of a child; None, after it was killed, if it takes longer than so many seconds."""
    end = None if seconds is None else time.monotonic() + seconds
    while True:
        found, status = os.waitpid(child, 0 if end is None else os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if end is not None and time.monotonic() >= end:
            os.kill(child, signal.SIGKILL)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            return None if code == -signal.SIGKILL else code
        time.sleep(0.002)


def carry_out(job: Job, run: Path, *, seconds: float | None) -> bool:
    """Start or resume a run; whether it finished before it was killed."""
    log = job.folder / "log"
    child = fork(job.words(run), log)
    try:
        code = wait(child, seconds)
    except BaseException:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise
    if code:
        raise SeqloomError(f"{' '.join(job.words(run))} ended with {code}:\n{log.read_text(errors='replace')}")
    return code == 0


# --- what must hold --------------------------------------------------------------------------------------------------


def look_after_kill(job: Job, run: Path, tally: Tally) -> None:
    """Check the guarantees after a kill, and count what was in progress."""
    tally.kills += 1
    tally.leftovers += any(run.rglob("*.partial-*"))
    journal = run / "events.jsonl"
    events = read_events(journal) if journal.is_file() else []
    last = next((int(event["step"]) for event in reversed(events) if event.kind == "step"), 0)
    try:
        found = newest_checkpoint(run, listener=ignore, strict=True)
    except SeqloomError as error:
        raise BrokenPromise(f"after kill {tally.kills} a checkpoint is not whole: {error}") from error
    saved = 0 if found is None else found.step
    tally.most_lost = max(tally.most_lost, last - saved)
    if last - saved > job.save_every:
        raise BrokenPromise(f"after kill {tally.kills} step {last} was made, but only step {saved} is saved")
    tally.places[_place(job, run, saved)] += 1


def _place(job: Job, run: Path, saved: int) -> str:
    if not (run / "run.json").is_file():
        return "while the text was prepared"
    if job.kind == "ngram":
        return "while the model was fitted or written"
    if saved == 0:
        return "before the first checkpoint"
    return "between checkpoints" if saved < job.steps else "while the model was written"


def contents(run: Path) -> dict[str, str]:
    """The files of a run, with the hash of those that must be the same in every run: tensors, ids, tokenisers."""
    files = sorted(path for path in run.rglob("*") if path.is_file())
    return {
        path.relative_to(run).as_posix(): sha256_of(path)
        if path.suffix == ".safetensors" or path.parts[len(run.parts)] in ("data", "text")
        else ""
        for path in files
    }


def compare(found: dict[str, str], whole: dict[str, str]) -> None:
    """Require that a killed run ends like the undisturbed one."""
    stray, lost = sorted(found.keys() - whole.keys()), sorted(whole.keys() - found.keys())
    if stray or lost:
        raise BrokenPromise(f"files that should not be there: {stray}; files that are missing: {lost}")
    if differing := [name for name in whole if found[name] != whole[name]]:
        raise BrokenPromise(f"other bits than in the undisturbed run: {', '.join(differing)}")


# --- the loop --------------------------------------------------------------------------------------------------------


def kill_loop(job: Job, *, kills: int, seed: int) -> Tally:
    """Kill runs this many times in total; the last run then finishes."""
    delays, tally = random.Random(seed), Tally()
    job.write_text()
    began = time.monotonic()
    carry_out(job, job.folder / "whole", seconds=None)
    span = time.monotonic() - began
    say(f"{job.kind}: the undisturbed run took {duration(span)}; kills come after up to as long")
    whole = contents(job.folder / "whole")
    began = time.monotonic()
    while tally.kills < kills:
        run = job.folder / f"run-{tally.runs}"
        while not carry_out(job, run, seconds=delays.uniform(0, span) if tally.kills < kills else None):
            look_after_kill(job, run, tally)
            if tally.kills % 10 == 0:
                left = (time.monotonic() - began) / tally.kills * (kills - tally.kills)
                say(f"{job.kind}: {tally.kills} of {kills} kills, {tally.runs} runs; about {duration(left)} left")
        compare(contents(run), whole)
        tally.runs += 1
        shutil.rmtree(run)
    return tally


def show(job: Job, tally: Tally) -> str:
    """The counts in Markdown."""
    rows = [
        ("kills", tally.kills),
        *((f"… {place}", count) for place, count in tally.places.most_common()),
        ("kills that left something unfinished, all of it tidied up", tally.leftovers),
        ("runs that ended with the bits and the files of the undisturbed one", tally.runs),
        (f"most steps made again after a kill (one save interval is {job.save_every})", tally.most_lost),
    ]
    return "\n".join([f"| {job.kind} | count |", "|---|---:|", *(f"| {what} | {count} |" for what, count in rows)])


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--kills", type=int, default=200, help="kills of each kind of model")
    parser.add_argument("--kinds", nargs="+", default=["transformer"], choices=sorted(KINDS))
    parser.add_argument("--steps", type=int, default=40, help="steps of each run")
    parser.add_argument("--save-every", type=int, default=4, help="steps between checkpoints")
    parser.add_argument("--seed", type=int, default=1, help="of the moments of the kills")
    given = parser.parse_args()
    if given.kills < 1 or given.steps < 1 or given.save_every < 1:
        parser.error("--kills, --steps and --save-every must be at least 1")
    return given


def main() -> int:
    given = read_arguments()
    exit_on_termination()
    for kind in given.kinds:
        with tempfile.TemporaryDirectory() as folder:
            job = Job(kind, Path(folder), given.steps, given.save_every)
            try:
                print(show(job, kill_loop(job, kills=given.kills, seed=given.seed)), flush=True)
            except KeyboardInterrupt:
                return 130
            except BrokenPromise as broken:
                print(f"{kind}: BROKEN PROMISE: {broken}", file=sys.stderr)
                return 1
            except SeqloomError as error:
                print(error, file=sys.stderr)
                return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
