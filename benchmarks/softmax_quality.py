"""What the ways round the softmax cost in quality: WikiText-2 by words, the same updates under each objective.

    python benchmarks/softmax_quality.py [--quick] [--steps 3000] [--samples 4096] [--out FOLDER]

Every objective trains the same LSTM from the same weights on the same windows, by `seqloom train`. Perplexities are
those of the full softmax on the test text, whatever was trained for. SEQLOOM_DATA names the folder of the data. The
last lines claim ratios to maximum likelihood; the exit code is 1 if one of them misses its goal.
"""

import argparse
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.ending import Outcome, measure_and_exit
from harness.progress import say
from harness.ratios import Claim, claim_of_sizes
from seqloom.apps.language_model import LanguageModel
from seqloom.core.errors import TrainingError, UsageError
from seqloom.core.events import Event
from seqloom.core.files import read_lines
from seqloom.look.partition import PartitionConfig, look_at_partition
from seqloom.runs.loading import load_any
from seqloom.runs.train import train

FULL = "full softmax"
GOALS: Mapping[str, float] = {"sampled softmax": 1.10, "NCE": 1.20}
"""How many times the perplexity of maximum likelihood is borne."""

SETTINGS = (
    "seed=1",
    "text.kind=word",
    "text.segmentation=spaces",
    "text.minimum_count=1",
    "text.unicode_form=none",
    "model.kind=rnn_lm",
    "model.cell=lstm",
    "model.layers=1",
    "model.dropout_rate=0.2",
    "model.tying=output",
    "task.windows=sequential",
    "task.rows=32",
    "task.length=32",
    "task.dev_tokens=20000",
    "training.optimiser=adamw",
    "training.betas=[0.9,0.999]",
    "training.epsilon=1.0e-8",
    "training.learning_rate=2.0e-3",
    "training.schedule=cosine",
    "training.clip_norm=1.0",
    "training.average=0",
    "training.patience=0",
)


@dataclass(frozen=True)
class Result:
    """How one objective did."""

    name: str
    dev: float
    test: float
    """Perplexities per word under the full softmax."""
    seconds: float
    log_z: Mapping[str, float]
    """Mean and deviation of log Z over the beginning of the test text."""


def objectives(samples: int) -> dict[str, tuple[str, ...]]:
    """The settings of each objective."""
    return {
        FULL: ("task.objective.kind=full",),
        "sampled softmax": ("task.objective.kind=sampled", f"task.objective.samples={samples}"),
        "NCE": ("task.objective.kind=nce", f"task.objective.samples={samples}"),
        "NCE, learned log Z": (
            "task.objective.kind=nce",
            f"task.objective.samples={samples}",
            "task.objective.log_z=learned",
            "model.learns_log_z=true",
        ),
    }


def texts() -> dict[str, Path]:
    """The three texts of WikiText-2."""
    data = os.environ.get("SEQLOOM_DATA", "")
    found = {name: Path(data) / "wikitext-2" / f"{name}.txt.gz" for name in ("train", "valid", "test")}
    if not data or not all(path.is_file() for path in found.values()):
        raise UsageError(
            f"SEQLOOM_DATA={data} has no wikitext-2/train.txt.gz, valid.txt.gz and test.txt.gz; set it to the folder "
            "that holds the data sets"
        )
    return found


def train_one(name: str, given: argparse.Namespace, run: Path) -> Result:
    """Train under one objective and measure."""
    files = texts()
    sizes = (
        f"text.size={given.symbols}",
        f"model.width={given.width}",
        f"training.steps={given.steps}",
        f"training.warmup={max(1, given.steps // 20)}",
        f"training.validate_every={max(1, given.steps // 4)}",
        f"training.save_every={given.steps}",
        f"training.threads={given.threads}",
    )

    def listen(event: Event) -> None:
        if event.kind == "validation":
            say(f"{name}: step {event['step']}, dev perplexity {event['perplexity']:.1f}")

    say(f"{name}: training {given.steps} steps")
    begin = time.monotonic()
    trained = train(
        None,
        [*SETTINGS, *sizes, *objectives(given.samples)[name]],
        out=run,
        train=[str(files["train"])],
        dev=[str(files["valid"])],
        listener=listen,
    )
    seconds = time.monotonic() - begin
    if trained is None:
        raise TrainingError("this benchmark runs in one process; start it without torchrun")
    model = LanguageModel.load(trained.model)
    dev, test = (_perplexity(model, files[part], lines=given.lines) for part in ("valid", "test"))
    config = PartitionConfig(samples=(given.samples,), draws=1)
    log_z = look_at_partition(load_any(trained.model), files["test"], config)[0].data
    return Result(name, dev, test, seconds, {part: float(log_z[part]) for part in ("mean", "deviation")})


def _perplexity(model: LanguageModel, file: Path, *, lines: int | None) -> float:
    return model.perplexity(list(read_lines(file))[:lines]).token.value


def report(results: Sequence[Result], given: argparse.Namespace) -> None:
    """Print the table."""
    full = next(result for result in results if result.name == FULL)
    print(
        f"\n### WikiText-2 by words: {given.symbols:,} at most, LSTM {given.width}, {given.steps:,} updates of 1,024 "
        f"words, {given.samples:,} samples\n"
    )
    print("| objective | dev | test | of full | log Z | training |\n|---|---:|---:|---:|---:|---:|")
    for each in results:
        log_z = f"{each.log_z['mean']:.2f} ± {each.log_z['deviation']:.2f}"
        ratio = each.test / full.test
        print(f"| {each.name} | {each.dev:.1f} | {each.test:.1f} | {ratio:.3f} | {log_z} | {each.seconds:.0f} s |")


def compare(given: argparse.Namespace, folder: Path) -> list[Claim]:
    """Train and measure all, print the table; the claims that follow."""
    texts()  # before the slow part, so that missing data is reported at once
    place = given.out or folder
    names = [FULL, *GOALS] if given.quick else list(objectives(given.samples))
    results = [train_one(name, given, place / name.replace(", ", "-").replace(" ", "-").lower()) for name in names]
    report(results, given)
    full = results[0]
    about = f"test perplexity vs {FULL} at equal updates, WikiText-2"
    return [
        claim_of_sizes([each.test], [full.test], at_most=GOALS[each.name], about=f"{each.name} {about}")
        for each in results
        if each.name in GOALS
    ]


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="5,000 words, width 128, 400 updates, part of the texts")
    parser.add_argument("--steps", type=int, help="updates (default 3000)")
    parser.add_argument("--samples", type=int, default=4096, help="symbols drawn in a step")
    parser.add_argument("--threads", type=int, default=2, help="threads of the arithmetic (default 2)")
    parser.add_argument("--out", type=Path, help="keep the runs in this folder")
    given = parser.parse_args()
    given.steps = given.steps or (400 if given.quick else 3000)
    given.symbols, given.width, given.lines = (5_000, 128, 500) if given.quick else (40_000, 256, None)
    return given


def main() -> None:
    given = read_arguments()
    measure_and_exit(lambda folder: Outcome(compare(given, folder)))


if __name__ == "__main__":
    main()
