"""What pre-training is worth: parts with a figure each, its interval over the seeds, and its goal.

    python benchmarks/pretraining_pays.py [--part denoising] [--seeds 3] [--quick] [--keep FOLDER] [--json FILE]

SEQLOOM_DATA names the folder of the data. All parts use the commands of the package, with settings that the package
chooses itself unless the part names them.

    denoising   Multi30k, German to English: 1,000 pairs (the first lines) alone, and after denoising of both single
                sides (29,000 lines each, not paired), with the 1,014 dev pairs. Goal: 3 BLEU more on test_2016_flickr,
                as the mean over the seeds.

`--quick` tries all steps on a little text; its figures mean nothing, and no goal is claimed. `--keep` leaves the runs
in a folder, and continues there: a run that is finished is not trained again. `--json` writes all figures to a file.
The exit code is 1 if a goal is missed.
"""

import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from harness.processes import exit_on_termination
from harness.progress import duration, say
from seqloom.core.errors import SeqloomError, UsageError

STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""97.5 % points of Student's t with 1 … 9 degrees of freedom."""

Figures = Mapping[str, float]
"""What one seed gave, by name, in the order of the table."""


@dataclass(frozen=True)
class Verdict:
    """The figure of a part over all seeds."""

    what: str
    value: float
    interval: tuple[float, float] | None
    """95 % of the mean over the seeds; None of one seed."""
    goal: float

    @property
    def is_reached(self) -> bool:
        return self.value >= self.goal


@dataclass(frozen=True)
class Part:
    """One claim: how a seed is measured in a folder, and what is made of all of them."""

    measure: Callable[[Path, int, bool], Figures]
    """Of a folder, a seed, and whether it is only tried."""
    judge: Callable[[Sequence[Figures]], Verdict]


def mean_gain(figures: Sequence[Figures], without: str, with_: str, *, what: str, goal: float) -> Verdict:
    """The mean over the seeds of what one way has more than another."""
    gains = [each[with_] - each[without] for each in figures]
    mean, interval = statistics.mean(gains), None
    if 1 < len(gains) <= len(STUDENT) + 1:
        half = STUDENT[len(gains) - 2] * statistics.stdev(gains) / len(gains) ** 0.5
        interval = (mean - half, mean + half)
    return Verdict(what, mean, interval, goal)


# --- commands ---------------------------------------------------------------------------------------------------------


def seqloom(*arguments: str | Path) -> str:
    """Run a command of the package; its standard output. What it reports goes to stderr."""
    command = [sys.executable, "-m", "seqloom", *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def train(run: Path, *arguments: str | Path) -> Path:
    """Train in a folder, or finish what was begun there; the model."""
    if not (run / "run.json").is_file():
        seqloom("train", *arguments, "--out", run)
    elif not (run / "model" / "model.json").is_file():
        seqloom("train", "--resume", run)
    return run / "model"


def bleu(model: Path, source: Path, reference: Path) -> float:
    """BLEU of the translations of a file, by `seqloom evaluate`."""
    found = json.loads(seqloom("evaluate", model, "--source", source, "--reference", reference, "--json"))
    return next(float(each["value"]) for each in found["systems"][0]["scores"] if each["name"] == "BLEU")


def multi30k(folder: Path, name: str, *, lines: int | None = None, file: str | None = None) -> list[Path]:
    """The German and the English side of a part of Multi30k, or of its first lines, as files in a folder."""
    paths = []
    for language in ("de", "en"):
        stored = Path(os.environ.get("SEQLOOM_DATA", "")) / "multi30k" / f"{name}.{language}.gz"
        if not stored.is_file():
            raise UsageError(f"{stored} not found; set SEQLOOM_DATA to the folder with the data sets")
        text = gzip.decompress(stored.read_bytes()).decode("utf-8").splitlines()[:lines]
        paths.append(folder / f"{file or name}.{language}")
        paths[-1].write_text("".join(f"{line}\n" for line in text), encoding="utf-8")
    return paths


# --- the parts --------------------------------------------------------------------------------------------------------

QUICK = (
    *("training.steps=60", "training.validate_every=30", "training.save_every=30", "training.warmup=20"),
    *("training.average=2", "model.width=32", "model.heads=2", "model.encoder_layers=1", "model.decoder_layers=1"),
    *("model.feed_forward=64", "text.size=1000"),
)

PAIRS_ALONE, AFTER_DENOISING = "1,000 pairs", "1,000 pairs after denoising"


def denoising(folder: Path, seed: int, quick: bool) -> Figures:
    """BLEU of a translator of 1,000 pairs, from random weights and from a model that has restored both sides."""
    few, more, tested = (100, 600, 20) if quick else (1000, None, None)
    pairs = multi30k(folder, "train", lines=few, file="pairs")
    texts, dev = multi30k(folder, "train", lines=more, file="text"), multi30k(folder, "val", lines=tested)
    source, reference = multi30k(folder, "test_2016_flickr", lines=tested)
    settings = [f"seed={seed}", *(QUICK if quick else ())]
    files = ["--train", pairs[0], "--train", pairs[1], "--dev", dev[0], "--dev", dev[1]]
    alone = train(folder / f"alone-{seed}", *files, *settings)
    trunk = train(folder / f"trunk-{seed}", "task.kind=denoising", "--train", texts[0], "--train", texts[1], *settings)
    adapted = train(folder / f"adapted-{seed}", *files, f"training.start_from={trunk}", *settings)
    return {
        PAIRS_ALONE: bleu(alone, source, reference),
        AFTER_DENOISING: bleu(adapted, source, reference),
    }


PARTS: Mapping[str, Part] = {
    "denoising": Part(
        denoising,
        lambda found: mean_gain(found, PAIRS_ALONE, AFTER_DENOISING, what="gain of BLEU by denoising", goal=3.0),
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, help="one part only")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds, from 1 on")
    parser.add_argument("--quick", action="store_true", help="a little text, no goals")
    parser.add_argument("--keep", type=Path, help="a folder for the runs")
    parser.add_argument("--json", type=Path, help="a file for all figures")
    given = parser.parse_args()
    exit_on_termination()
    record: dict[str, object] = {}
    verdicts: list[Verdict] = []
    print("| part | seed | figure | value |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as temporary:
        for name in [given.part] if given.part else PARTS:
            folder = (given.keep or Path(temporary)) / name
            folder.mkdir(parents=True, exist_ok=True)
            found: list[Figures] = []
            for seed in range(1, given.seeds + 1):
                began = time.monotonic()
                try:
                    found.append(PARTS[name].measure(folder, seed, given.quick))
                except (SeqloomError, subprocess.CalledProcessError) as error:
                    say(str(error))
                    sys.exit(2)
                for what, value in found[-1].items():
                    print(f"| {name} | {seed} | {what} | {value:.2f} |", flush=True)
                say(f"{name}, seed {seed}: {duration(time.monotonic() - began)}")
            verdict = PARTS[name].judge(found)
            verdicts.append(verdict)
            low, high = verdict.interval or (verdict.value, verdict.value)
            print(f"| {name} | mean | {verdict.what} | {verdict.value:.2f} [{low:.2f}, {high:.2f}] |", flush=True)
            record[name] = {"seeds": found, "verdict": asdict(verdict), "is_quick": given.quick}
    if given.json is not None:
        given.json.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    if given.quick:
        return
    print()
    for verdict in verdicts:
        print(f"{verdict.what}: at least {verdict.goal:g}: {'reached' if verdict.is_reached else 'MISSED'}")
    sys.exit(0 if all(verdict.is_reached for verdict in verdicts) else 1)


if __name__ == "__main__":
    main()
