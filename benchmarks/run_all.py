"""Run every benchmark and write docs/benchmarks.md: results, hardware, and which goals were reached.

    python benchmarks/run_all.py [--quick]

The exit code is 1 if a goal was missed or a benchmark failed.
"""

import argparse
import datetime
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from harness.machine import machine_facts
from harness.progress import say
from harness.ratios import Claim, read_claims

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "benchmarks.md"


@dataclass(frozen=True)
class Benchmark:
    """A script of this folder and its subject."""

    script: str
    title: str


BENCHMARKS = (
    Benchmark("train_throughput.py", "Training speed of the Transformer"),
    Benchmark("transformer_blocks.py", "Training steps of GPT, masked models and translators"),
    Benchmark("recurrent.py", "Recurrent layers, and the training speed of an LSTM with attention"),
    Benchmark("alignment.py", "Word alignment"),
    Benchmark("softmax.py", "Objectives for large vocabularies"),
    Benchmark("softmax_quality.py", "Quality of objectives for large vocabularies"),
    Benchmark("ngram.py", "N-gram models"),
    Benchmark("hmm.py", "Hidden Markov models"),
    Benchmark("tagging.py", "Taggers by counting"),
    Benchmark("word2vec.py", "Word vectors"),
    Benchmark("prepare.py", "Corpora beyond memory"),
    Benchmark("busy.py", "Other programs on the same machine"),
    Benchmark("pretrained.py", "Published models"),
)
"""A new script is one more line."""


@dataclass(frozen=True)
class Result:
    """The output and exit code of a script."""

    benchmark: Benchmark
    command: str
    output: str
    code: int

    @property
    def claims(self) -> list[Claim]:
        """The claims among its lines."""
        return read_claims(self.output)

    @property
    def is_reached(self) -> bool:
        """Whether it succeeded and every claim reached its goal."""
        return self.code == 0 and all(each.is_reached for each in self.claims)


def run(benchmark: Benchmark, *, quick: bool) -> Result:
    """Run a script; its progress goes to stderr."""
    options = ["--quick"] if quick else []
    say(f"== {benchmark.title} ({benchmark.script})")
    done = subprocess.run([sys.executable, HERE / benchmark.script, *options], stdout=subprocess.PIPE, text=True)
    command = " ".join(["python", f"benchmarks/{benchmark.script}", *options])
    return Result(benchmark, command, done.stdout, done.returncode)


def page(results: list[Result], *, quick: bool, date: str) -> str:
    """The page in Markdown: claims first, then the measurements."""
    facts = {**machine_facts(), "seqloom": version("seqloom"), "torch": version("torch"), "date": date}
    command = "python benchmarks/run_all.py" + (" --quick" if quick else "")
    claims = [each for result in results for each in result.claims]
    lines = [
        "# Benchmarks",
        "",
        f"Written by `{command}`. Seqloom and the other systems are measured alternately in one run. A ratio is the",
        "median over rounds with its 95% bootstrap interval. A goal is reached if the median reaches it and, for goals",
        "above 1, the interval lies above 1. After `low>` the whole interval must lie above the goal; after `<=`",
        "(memory) the median must be at most the goal, and the interval shows the extremes.",
        "",
        "| about | ratio | 95% interval | goal | |",
        "|---|---:|---:|---:|---|",
        *(
            f"| {each.about} | {each.ratio:.2f} | {each.low:.2f} – {each.high:.2f} | {each.goal_text} "
            f"| {'reached' if each.is_reached else 'missed'} |"
            for each in claims
        ),
        "",
        "Machine: " + ", ".join(f"{name} {value}" for name, value in facts.items()) + ".",
    ]
    for result in results:
        lines += ["", f"## {result.benchmark.title}", "", f"`{result.command}`"]
        if result.code not in (0, 1):
            lines += ["", f"It failed with exit code {result.code}."]
        kept = [line for line in result.output.strip().splitlines() if not read_claims(line)]
        lines += ["", "\n".join(kept).strip()]
        if result.claims:
            lines += ["", "```", *map(str, result.claims), "```"]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="passed on: each benchmark ends within five minutes")
    given = parser.parse_args()
    try:
        results = [run(each, quick=given.quick) for each in BENCHMARKS]
    except KeyboardInterrupt:
        sys.exit(130)
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(results, quick=given.quick, date=datetime.date.today().isoformat()), encoding="utf-8")
    for result in results:
        for each in result.claims:
            print(each)
    say(f"written: {PAGE}")
    sys.exit(0 if all(result.is_reached for result in results) else 1)


if __name__ == "__main__":
    main()
