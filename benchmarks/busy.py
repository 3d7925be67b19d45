"""Speed on a busy machine: Seqloom's thread waiting policy compared with torch's default.

    python benchmarks/busy.py [--quick] [--pairs 15] [--threads 2] [--only train] [--setting GOMP_SPINCOUNT=5000]

The model and the text are those of `seqloom demo`. Both train, or translate, in turns; one imports Seqloom first, as
its commands do, and the other torch, which Seqloom then leaves as it is. First nothing else runs, then two loops for
each core that do nothing but use it. Contestants are started when the load is there, one after the other, because
Seqloom looks at the machine when it is imported. The exit code is 1 if a goal is missed, or if the machine was not
quiet at first. `--setting` tries another way to wait in place of the one that Seqloom chooses.
"""

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from harness.ending import Outcome, measure_and_exit
from harness.processes import Contestant, all_running
from harness.progress import Countdown, say
from harness.ratios import FEWEST_PAIRS, Claim, claim
from seqloom.apps.demo import SETTINGS
from seqloom.core.openmp import VARIABLES
from seqloom.data.phrasebook import sample_pairs
from seqloom.runs.train import train

What = Literal["train", "translate"]
Machine = Literal["quiet", "busy"]

UNITS: dict[What, str] = {"train": "target tokens/s", "translate": "lines/s"}
TITLES: dict[What, str] = {"train": "training", "translate": "translating"}
GOALS: dict[Machine, float] = {"quiet": 0.97, "busy": 5.0}

LOOPS_PER_CORE = 2
TRAIN_PAIRS, DEV_PAIRS, LINES = 4000, 50, 64
STEPS = 30
"""Steps before measuring, so that translations have realistic lengths."""

SCRIPT = Path(__file__).resolve().parent / "contestants" / "busy_ours.py"


@contextlib.contextmanager
def loops(count: int) -> Iterator[None]:
    """A number of processes that each keep a core busy."""
    burning = "print(flush=True)\nwhile True: pass"
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            process = stack.enter_context(subprocess.Popen([sys.executable, "-c", burning], stdout=subprocess.PIPE))
            stack.callback(process.kill)
            assert process.stdout is not None
            process.stdout.readline()
        yield


def prepare(folder: Path) -> None:
    """A run of the demo's model that can be resumed, with a model that translates, and lines to translate."""
    names = {}
    for split, count in (("train", TRAIN_PAIRS), ("dev", DEV_PAIRS)):
        pairs = sample_pairs("en", "de", count=count, seed=1, split="train" if split == "train" else "dev")
        names[split] = [str(folder / f"{split}.en"), str(folder / f"{split}.de")]
        for name, lines in zip(names[split], zip(*((p.source, p.target) for p in pairs), strict=True), strict=True):
            Path(name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    lines = [pair.source for pair in sample_pairs("en", "de", count=LINES, seed=1, split="test")]
    (folder / "lines").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    settings = [*SETTINGS, f"training.steps={STEPS}", f"training.validate_every={STEPS}", "seed=1"]
    train(None, settings, out=folder / "run", train=names["train"], dev=names["dev"])


def measure(what: What, machine: Machine, given: argparse.Namespace, folder: Path) -> tuple[Claim, bool]:
    """Both alternately; the claim, and whether the machine was in the intended state."""
    seconds = {"quiet": 1 if given.quick else 3, "busy": 2 if given.quick else 5}[machine]
    with contextlib.ExitStack() as stack:
        if machine == "busy":
            stack.enter_context(loops(LOOPS_PER_CORE * (os.cpu_count() or 1)))
        contestants = []
        for first in ("seqloom", "torch"):
            say(f"{TITLES[what]}, {machine} machine: starting ({first})")
            run = folder / f"{machine}-{what}-{first}"
            subprocess.run(["cp", "-r", str(folder / "run"), str(run)], check=True)
            time.sleep(0.5)  # what was started before is at rest
            tried = ["env", given.setting] if given.setting and first == "seqloom" else []
            options = ["--what", what, "--first", first, "--run", run, "--threads", str(given.threads)]
            contestant = Contestant(first, [*tried, sys.executable, SCRIPT, *options], threads=given.threads)
            contestants.append(contestant)
            stack.enter_context(all_running([contestant]))
        for contestant in contestants:
            contestant.ask("run 0")  # what is allocated at the first step
        rates: dict[str, list[float]] = {contestant.name: [] for contestant in contestants}
        countdown = Countdown(f"{TITLES[what]}, {machine} machine: round", given.pairs)
        for number in range(given.pairs):
            for contestant in contestants if number % 2 else reversed(contestants):
                answer = contestant.ask(f"run {seconds}")
                rates[contestant.name].append(answer["done"] / answer["seconds"])
            countdown.tick()
    reason = contestants[0].facts["reason"]
    medians = {name: statistics.median(found) for name, found in rates.items()}
    row = " | ".join(f"{medians[name]:,.1f} ({min(rates[name]):,.1f} – {max(rates[name]):,.1f})" for name in medians)
    print(f"| {TITLES[what]}, {UNITS[what]} | {machine} | {given.setting or reason} | {row} |", flush=True)
    about = f"{TITLES[what]} on a {machine} machine vs torch's way to wait for threads"
    is_as_meant = bool(given.setting) or reason == f"{machine} machine"
    if not is_as_meant:
        say(f"the machine was not {machine}: Seqloom found a {reason}. These figures are not what they should be.")
    return claim(rates["seqloom"], rates["torch"], goal=GOALS[machine], about=about), is_as_meant


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="shorter turns: ends within five minutes")
    parser.add_argument("--pairs", type=int, help=f"rounds, at least {FEWEST_PAIRS} (default 15)")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="threads of each (default: all cores)")
    parser.add_argument("--only", choices=list(UNITS), help="train or translate alone")
    parser.add_argument("--machine", choices=list(GOALS), help="quiet or busy alone")
    parser.add_argument("--setting", metavar="NAME=VALUE", help="a way to wait in place of the one that is chosen")
    given = parser.parse_args()
    given.pairs = given.pairs or (FEWEST_PAIRS if given.quick else 15)
    if given.pairs < FEWEST_PAIRS:
        parser.error(f"--pairs {given.pairs} is too few for an interval; give {FEWEST_PAIRS} or more")
    return given


def compare(given: argparse.Namespace, folder: Path) -> Outcome:
    for name in VARIABLES:  # neither what was chosen for this process nor a setting of the user is to be measured
        os.environ.pop(name, None)
    prepare(folder)
    print(
        f"The load is two loops per core; {given.threads} threads; medians of {given.pairs} turns and extremes.\n\n"
        "| | machine | chosen for | seqloom | torch's way |\n|---|---|---|---:|---:|",
        flush=True,
    )
    found = [
        measure(what, machine, given, folder)
        for machine in GOALS
        if given.machine in (None, machine)
        for what in UNITS
        if given.only in (None, what)
    ]
    return Outcome([each for each, _ in found], is_good=all(is_as_meant for _, is_as_meant in found))


def main() -> None:
    given = read_arguments()
    measure_and_exit(lambda folder: compare(given, folder))


if __name__ == "__main__":
    main()
