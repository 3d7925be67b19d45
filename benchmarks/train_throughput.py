"""Training speed beside transformers (Marian) and a plain loop around torch.nn.Transformer.

    python benchmarks/train_throughput.py [--quick] [--sizes transformer-256 transformer-128] [--pairs 15] [--threads 2]

Everybody trains on the same ids of Multi30k German to English (SEQLOOM_DATA names the folder of the data), in batches
of the same budget, with the same threads, in turns within one run. A rate counts real target tokens per second, the
end symbol of each sentence included and padding not. The last lines claim ratios; the exit code is 1 if one of them
misses its goal.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from harness.corpus import Corpus, open_multi30k
from harness.ending import Outcome, measure_and_exit
from harness.flops import training_flops
from harness.peers import peer_python
from harness.processes import Contestant, all_running
from harness.progress import say
from harness.ratios import FEWEST_PAIRS, Claim, claim
from harness.rounds import Arrival, Measured, measure, race
from harness.sizes import SIZES, Size
from harness.tables import training_table
from harness.toolkits import Beside, measure_beside

QUICK_SECONDS = 240
"""What all rounds may take together with --quick, so that everything ends within five minutes."""

FULL_PAIRS, FULL_STEPS = 15, 5

OURS, MARIAN, PLAIN = "seqloom", "transformers", "torch.nn.Transformer"
SCRIPTS = Path(__file__).resolve().parent / "contestants"


def contestants_for(size: Size, corpus: Corpus, *, threads: int) -> list[Contestant]:
    """Ours and the two peers, started; ours first."""
    torch_version = version("torch").split("+")[0]
    peer = peer_python("transformers", [f"torch=={torch_version}", "transformers", "numpy"])
    options = ["--threads", str(threads), "--corpus", str(corpus.folder), "--size", size.to_json()]
    programs = ((OURS, sys.executable, "ours.py"), (MARIAN, peer, "marian.py"), (PLAIN, peer, "plain_torch.py"))
    return [
        Contestant(name, [python, SCRIPTS / script, *options], threads=threads) for name, python, script in programs
    ]


def measure_size(
    size: Size, corpus: Corpus, *, threads: int, pairs: int, budget: float | None
) -> tuple[list[Measured], list[float]]:
    """The rounds of one size."""
    say(f"{size.name}: starting")
    contestants = contestants_for(size, corpus, threads=threads)
    peak = Contestant("sgemm", [sys.executable, SCRIPTS / "gemm.py", "--threads", str(threads)], threads=threads)
    with all_running([peak, *contestants]):
        return measure(contestants, peak, what=size.name, pairs=pairs, budget=budget, steps=FULL_STEPS)


def claims_of(size: Size, measured: Sequence[Measured]) -> list[Claim]:
    """Ours against each peer, the faster one first; both have the goal that is meant for the faster."""
    ours, *peers = measured
    by_speed = sorted(peers, key=lambda peer: -peer.rate)
    about = f"{size.name} training vs"
    return [claim(ours.rates, peer.rates, goal=size.goal, about=f"{about} {peer.name}") for peer in by_speed]


def report_size(
    size: Size, corpus: Corpus, measured: Sequence[Measured], beside: Sequence[Beside], *, peaks: Sequence[float]
) -> None:
    """Print heading and table."""
    places = "in their usual places" if size.peers_drop_inside else "in the same places"
    peak = statistics.median(peaks)
    flops = training_flops(size.shape(corpus.symbols), corpus.source_lengths, corpus.target_lengths)
    print(
        f"\n### {size.name}\n\nWidth {size.width}, feed-forward {size.feed_forward}, {size.layers}+{size.layers} "
        f"layers, {size.heads} heads, dropout {size.dropout_rate} (peers: {places}), {corpus.symbols:,} joint pieces, "
        f"{size.tokens_per_batch:,} places a batch. Peak: {peak / 1e9:.0f} GFLOP/s "
        f"({min(peaks) / 1e9:.0f} – {max(peaks) / 1e9:.0f}), sgemm of 2048³ in the same rounds. Medians of "
        f"{len(peaks)} rounds.\n"
    )
    print("\n".join(training_table(measured, beside, flops=flops, peaks=peaks)), flush=True)


def report_race(size: Size, arrivals: Sequence[Arrival], *, loss: float) -> None:
    """Print who needed how long to the same validation loss."""
    print(
        f"\n### {size.name}, time to a validation loss of {loss:g} nats per token\n\nPeak rate {size.learning_rate:g}, "
        f"warm-up {size.warmup}, inverse square root, label smoothing {size.smoothing}; validations not counted.\n\n"
        "| contestant | training seconds | target tokens | steps | validation loss |\n|---|---:|---:|---:|---:|"
    )
    for each in arrivals:
        name = each.name if each.has_arrived else f"{each.name} (not reached)"
        print(f"| {name} | {each.seconds:,.0f} | {each.tokens:,} | {each.steps:,} | {each.loss:.2f} |", flush=True)


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer steps and no race: ends within five minutes")
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--pairs", type=int, help=f"rounds, at least {FEWEST_PAIRS} (default {FULL_PAIRS})")
    parser.add_argument("--threads", type=int, default=2, help="threads of each contestant (default 2)")
    parser.add_argument("--until-loss", type=float, default=3.6, help="validation loss of the race (default 3.6)")
    parser.add_argument("--chunk", type=int, default=25, help="steps between two validations of the race")
    parser.add_argument("--most-steps", type=int, default=3000, help="steps after which the race ends for a contestant")
    given = parser.parse_args()
    given.pairs = given.pairs or (FEWEST_PAIRS if given.quick else FULL_PAIRS)
    if given.pairs < FEWEST_PAIRS:
        parser.error(f"--pairs {given.pairs} is too few for an interval; give {FEWEST_PAIRS} or more")
    return given


def compare(given: argparse.Namespace) -> list[Claim]:
    """Measure what was requested and print the tables; the resulting claims."""
    corpus = open_multi30k()
    claims: list[Claim] = []
    for name in given.sizes:
        size = SIZES[name]
        budget = QUICK_SECONDS / len(given.sizes) if given.quick else None
        measured, peaks = measure_size(size, corpus, threads=given.threads, pairs=given.pairs, budget=budget)
        beside: list[Beside] = []
        if not given.quick:
            with tempfile.TemporaryDirectory() as folder:
                beside = list(measure_beside(corpus, size, threads=given.threads, folder=Path(folder)))
        report_size(size, corpus, measured, beside, peaks=peaks)
        claims += claims_of(size, measured)
    if "transformer-128" in given.sizes and not given.quick:
        size = SIZES["transformer-128"]
        contestants = contestants_for(size, corpus, threads=given.threads)
        with all_running(contestants):
            arrivals = race(
                contestants, loss=given.until_loss, chunk=given.chunk, most_steps=given.most_steps, tell=say
            )
        report_race(size, arrivals, loss=given.until_loss)
    return claims


def main() -> None:
    given = read_arguments()
    measure_and_exit(lambda _folder: Outcome(compare(given)))


if __name__ == "__main__":
    main()
