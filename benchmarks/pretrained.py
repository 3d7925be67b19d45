"""Published models beside the libraries that they come from: transformers, CTranslate2, sentence-transformers.

    python benchmarks/pretrained.py [--quick] [--only marian gpt2 minilm] [--rounds 9] [--lines 128] [--threads 2]

The folders have the shapes of OPUS-MT, GPT-2 small and MiniLM, and random weights made by transformers; CTranslate2
converts them itself. Everybody gets the same lines of Multi30k (SEQLOOM_DATA names the folder of the data) and writes
the same number of symbols, as random models never end. Each contestant runs in its best layout, one process with all
threads or a process per thread, with the size of batches that suits it, and in turns with the others; a text alone
has one process. Ours goes from text to text, CTranslate2 from tokens to tokens. Outputs in float32 are compared: they
must be the same symbols. The last lines claim ratios of lines per second; the exit code is 1 if one of them misses its
goal.
"""

import argparse
import gzip
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from harness.decoding import Entry, Layout, Team, best_entry, layouts, race, start_team
from harness.ending import Outcome, measure_and_exit
from harness.peers import peer_python
from harness.processes import all_running
from harness.progress import say
from harness.ratios import FEWEST_PAIRS, Claim, claim
from seqloom.core.errors import UsageError

SCRIPTS = Path(__file__).resolve().parent / "contestants"
PACKAGES = (
    "transformers==5.22.2",
    "ctranslate2==4.8.4",
    "sentence-transformers==6.2.0",
    "sentencepiece==0.2.2",
    "numpy",
)
OURS, TRANSFORMERS, CTRANSLATE2, SENTENCES = "seqloom", "transformers", "CTranslate2", "sentence-transformers"
PROGRAMS = {
    OURS: "pretrained_ours.py",
    TRANSFORMERS: "pretrained_transformers.py",
    CTRANSLATE2: "pretrained_ct2.py",
    SENTENCES: "pretrained_transformers.py",
}
BEAM = 4
TRAINING_LINES = 8_000
"""Lines from which the small tokenisers are made."""
LEAST_EQUAL = 0.95
"""The least share of lines for which outputs in float32 are the same symbols: two symbols may have one score."""
LARGEST_ANGLE = 1e-5
"""How far the cosine of two vectors of a line may be from 1."""


@dataclass(frozen=True)
class Trial:
    """A mode of a contestant, and the sizes of batches that it is tried with."""

    contestant: str
    mode: str
    batches: tuple[int, ...]

    @property
    def title(self) -> str:
        return f"{self.contestant} {self.mode}"


@dataclass(frozen=True)
class Goal:
    """The least ratio of a trial of ours to one of a peer."""

    ours: str
    peer: str
    ratio: float


@dataclass(frozen=True)
class Contest:
    """A model that several programs run."""

    kind: str
    about: str
    trials: tuple[Trial, ...]
    goals: tuple[Goal, ...]
    is_alone: bool = False
    """Whether there is one text only, so that processes cannot share the work."""


CONTESTS = (
    Contest(
        "marian",
        f"OPUS-MT shape, beam {BEAM}",
        (
            Trial(OURS, "float32", (256, 1024, 4096)),
            Trial(OURS, "int8", (256, 1024, 4096)),
            Trial(TRANSFORMERS, "float32", (8, 32, 64)),
            Trial(CTRANSLATE2, "float32", (256, 1024, 4096)),
            Trial(CTRANSLATE2, "int8", (256, 1024, 4096)),
        ),
        (
            Goal("seqloom float32", "transformers float32", 2.0),
            Goal("seqloom float32", "CTranslate2 float32", 0.85),
            Goal("seqloom int8", "CTranslate2 int8", 0.85),
        ),
    ),
    Contest(
        "gpt2",
        "GPT-2 shape, one text",
        (Trial(OURS, "float32", (1,)), Trial(TRANSFORMERS, "float32", (1,)), Trial(CTRANSLATE2, "float32", (1,))),
        (
            Goal("seqloom float32", "transformers float32", 1.2),
            Goal("seqloom float32", "CTranslate2 float32", 0.75),
        ),
        is_alone=True,
    ),
    Contest(
        "minilm",
        "embeddings of MiniLM shape",
        (Trial(OURS, "float32", (1024, 2048, 8192)), Trial(SENTENCES, "float32", (16, 32, 128))),
        (Goal("seqloom float32", "sentence-transformers float32", 1.1),),
    ),
)


def write_texts(data: Path, folder: Path, *, lines: int) -> None:
    """The text from which tokenisers are made, and the lines of each contest."""
    if not (data / "multi30k").is_dir():
        raise UsageError(f"{data / 'multi30k'} is not a folder; set SEQLOOM_DATA to the folder with the data sets")

    def read(name: str, count: int) -> list[str]:
        with gzip.open(data / "multi30k" / name, "rt", encoding="utf-8") as file:
            return [line for line, _ in zip(file, range(count), strict=False)]

    for side in ("en", "de"):
        text = "".join(read(f"train.{side}.gz", TRAINING_LINES))
        (folder / f"train.{side}").write_text(text, encoding="utf-8")
    test = read("test_2016_flickr.en.gz", 1000)
    (folder / "marian.lines").write_text("".join(test[:lines]), encoding="utf-8")
    (folder / "gpt2.lines").write_text(" ".join(line.strip() for line in test[:3]) + "\n", encoding="utf-8")
    (folder / "minilm.lines").write_text("".join(test[: 8 * lines]), encoding="utf-8")


def hold(contest: Contest, given: argparse.Namespace, folder: Path, python: Path) -> tuple[list[Claim], bool]:
    """Make the model and run everybody; the claims, and whether all gave the same outputs."""
    model, source = folder / contest.kind, folder / f"{contest.kind}.lines"
    say(f"{contest.about}: making the model")
    texts = [folder / "train.en", folder / "train.de"]
    subprocess.run(
        [python, SCRIPTS / "pretrained_make.py", contest.kind, "--out", model, "--texts", *texts],
        check=True,
        stdout=sys.stderr,
        env=os.environ | {"HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"},
    )
    length = given.text_length if contest.is_alone else given.length
    options = ["--kind", contest.kind, "--model", model, "--source", source]
    options += ["--length", str(length), "--beam", str(BEAM)]
    lines = source.read_text(encoding="utf-8").count("\n")
    with ExitStack() as stack:
        teams: dict[str, list[Team]] = {}
        for name in dict.fromkeys(trial.contestant for trial in contest.trials):
            command = [sys.executable if name == OURS else python, SCRIPTS / PROGRAMS[name], *options]
            ways = [Layout(1, given.threads)] if contest.is_alone or given.quick else layouts(given.threads)
            teams[name] = [start_team(name, way, command=command) for way in ways]
            # One after another: each reads hundreds of megabytes.
            stack.enter_context(all_running([member for team in teams[name] for member in team.members]))
        entries = {}
        for trial in contest.trials:
            batches = trial.batches[len(trial.batches) // 2 :][:1] if given.quick else trial.batches
            commands = [f"{trial.mode} {batch}" for batch in batches]
            entries[trial.title] = best_entry(trial.title, teams[trial.contestant], commands, lines=lines)
        race(list(entries.values()), rounds=given.rounds, what=contest.about)
        sentences, is_good = agreement(contest, entries)
    size = f"{lines:,} lines" if contest.kind == "minilm" else f"{lines:,} lines, {length} symbols of each"
    report(f"{contest.about}: {size}", list(entries.values()), sentences)
    return [
        claim(
            entries[goal.ours].rates,
            entries[goal.peer].rates,
            goal=goal.ratio,
            about=f"{contest.about}, {goal.ours} vs {goal.peer}",
        )
        for goal in contest.goals
    ], is_good


def agreement(contest: Contest, entries: dict[str, Entry]) -> tuple[list[str], bool]:
    """Sentences on how far the outputs of peers in float32 are ours, and whether that is far enough."""
    ours = outputs(entries["seqloom float32"])
    sentences, is_good = [], True
    for title, entry in entries.items():
        if not title.endswith("float32") or entry.team.name == OURS:
            continue
        theirs = outputs(entry)
        if contest.kind == "minilm":
            ours_unit, theirs_unit = (np.array(each) / np.linalg.norm(each, axis=1)[:, None] for each in (ours, theirs))
            least = float((ours_unit * theirs_unit).sum(1).min())
            sentences.append(f"least cosine with {title}: {least:.7f}")
            is_good &= least > 1 - LARGEST_ANGLE
        else:
            equal = sum(one == other for one, other in zip(ours, theirs, strict=True)) / len(ours)
            sentences.append(f"the same symbols as {title}: {equal:.0%} of lines")
            is_good &= equal >= LEAST_EQUAL
    return sentences, is_good


def outputs(entry: Entry) -> list[Any]:
    """What an entry gives for each line."""
    found = {number: output for answer in entry.team.ask(entry.command) for number, output in answer["outputs"]}
    return [found[number] for number in range(len(found))]


def report(title: str, entries: Sequence[Entry], sentences: Sequence[str]) -> None:
    print(f"\n### {title}\n\n| contestant | layout | batch | lines/s | range |\n|---|---|---:|---:|---:|")
    for entry in entries:
        span = f"{min(entry.rates):.2f} – {max(entry.rates):.2f}"
        batch = entry.command.split()[1]
        print(f"| {entry.title} | {entry.team.layout} | {batch} | {entry.rate:.2f} | {span} |")
    print("\n" + "; ".join(sentences))


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    kinds = [contest.kind for contest in CONTESTS]
    parser.add_argument("--quick", action="store_true", help="fewer rounds and lines: ends within five minutes")
    parser.add_argument("--only", choices=kinds, nargs="+", default=kinds, help="these models alone")
    parser.add_argument("--rounds", type=int, help=f"at least {FEWEST_PAIRS} (default 9)")
    parser.add_argument("--lines", type=int, help="lines to translate; eight times as many get vectors (default 64)")
    parser.add_argument("--threads", type=int, default=2, help="threads of all processes of a contestant (default 2)")
    given = parser.parse_args()
    given.rounds = given.rounds or (FEWEST_PAIRS if given.quick else 9)
    given.lines = given.lines or (16 if given.quick else 64)
    given.length, given.text_length = (12, 24) if given.quick else (30, 64)
    if given.rounds < FEWEST_PAIRS:
        parser.error(f"--rounds {given.rounds} is too few for an interval; give {FEWEST_PAIRS} or more")
    return given


def compare(given: argparse.Namespace, folder: Path) -> Outcome:
    write_texts(Path(os.environ.get("SEQLOOM_DATA", "")), folder, lines=given.lines)
    torch_version = version("torch").split("+")[0]
    python = peer_python("pretrained", [f"torch=={torch_version}", *PACKAGES])
    claims: list[Claim] = []
    is_good = True
    for contest in CONTESTS:
        if contest.kind in given.only:
            more, is_same = hold(contest, given, folder, python)
            claims += more
            is_good &= is_same
    return Outcome(claims, is_good)


def main() -> None:
    given = read_arguments()
    measure_and_exit(lambda folder: compare(given, folder))


if __name__ == "__main__":
    main()
