"""Recurrent layers beside torch's, and an LSTM with attention in training beside a plain torch loop and toolkits.

    python benchmarks/recurrent.py [--quick] [--threads 2] [--pairs 15] [--layers-only | --training-only]

Layers: a forward and a backward pass of every cell, beside the torch layer with its gates and beside the plain loop
over the same cell, all in one process and in turns; then the peak of memory of each. Training: everybody on the same
batches of Multi30k German to English (SEQLOOM_DATA names the folder of the data), in turns. The last lines claim
ratios; the exit code is 1 if one of them misses its goal.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from harness.corpus import Corpus, open_multi30k
from harness.ending import Outcome, measure_and_exit
from harness.flops import recurrent_flops
from harness.layer_report import claims_of_layers, report_layers
from harness.layer_rounds import peak_memory, time_entries
from harness.layers import EXTENTS, Extent, entries_for, entries_json, read_extent
from harness.processes import Contestant, ContestantError, all_running
from harness.progress import say
from harness.ratios import FEWEST_PAIRS, Claim, claim
from harness.rounds import Measured, measure
from harness.sizes import LSTM_512, RecurrentSize
from harness.tables import training_table
from harness.toolkits import TOOLKITS, Beside, run_toolkit
from seqloom.core.errors import UsageError

QUICK_SECONDS = 270
"""What all may take together with --quick, so that everything ends within five minutes. Layers take what seven rounds
take, about half of it; training has the rest."""

FULL_PAIRS, FULL_STEPS = 15, 5
PEAK_SIZE = 2048
MEMORY_REPEATS = 3
"""How often memory is measured without --quick; it varies by about one in a hundred."""

OURS, PLAIN = "seqloom", "torch.nn.LSTM loop"
SCRIPTS = Path(__file__).resolve().parent / "contestants"


def compare_layers(given: argparse.Namespace) -> list[Claim]:
    """Time the layers at each size, print the tables, claim."""
    claims: list[Claim] = []
    for extent in given.extents:
        say(f"layers {extent}: starting")
        entries = entries_for(extent, peak_size=PEAK_SIZE)
        options = ["--entries", entries_json(entries), "--shape", *map(str, (extent.batch, extent.time, extent.width))]
        timed = _layer_process("recurrent_layers.py", [*options, "--least-seconds", str(given.least_seconds)], given)
        with all_running([timed]):
            timings = time_entries(timed, entries, what=f"layers {extent}", pairs=given.pairs, seed=1)
        # After the other one has ended, so that the two never compete for memory.
        weighed = _layer_process("recurrent_memory.py", options, given)
        with all_running([weighed]):
            repeats = 1 if given.quick else MEMORY_REPEATS
            memory = peak_memory(weighed, entries, what=f"layers {extent}", repeats=repeats)
        report_layers(extent, timings, memory, rounds=given.pairs, version=timed.facts["version"])
        claims += claims_of_layers(extent, timings, memory)
    return claims


def _layer_process(script: str, options: Sequence[str], given: argparse.Namespace) -> Contestant:
    command = [sys.executable, str(SCRIPTS / script), "--threads", str(given.threads), *options]
    return Contestant(script, command, threads=given.threads)


def compare_training(given: argparse.Namespace, corpus: Corpus, *, budget: float | None) -> list[Claim]:
    """Train ours and the plain loop in turns, then ours and each toolkit; print the table, claim."""
    size, threads = LSTM_512, given.threads
    say(f"{size.name}: starting")
    options = ["--threads", str(threads), "--corpus", str(corpus.folder), "--size", size.to_json()]
    # The plain loop needs nothing but torch: in the environment of ours it has the very same build.
    ours, plain = (
        Contestant(name, [sys.executable, SCRIPTS / script, *options], threads=threads)
        for name, script in ((OURS, "ours.py"), (PLAIN, "plain_lstm.py"))
    )
    product = ["--threads", str(threads), "--size", str(PEAK_SIZE)]
    peak = Contestant("sgemm", [sys.executable, SCRIPTS / "gemm.py", *product], threads=threads)
    with all_running([peak, ours, plain]):
        measured, peaks = measure(
            [ours, plain], peak, what=size.name, pairs=given.pairs, budget=budget, steps=FULL_STEPS
        )
        toolkits = beside_toolkits(ours, corpus, size=size, threads=threads, is_quick=given.quick)
    check_same_batches(*measured)
    report_training(size, corpus, measured, [beside for beside, _ in toolkits], peaks=peaks)
    about = f"{size.name} training vs"
    rates = [each.rates for each in measured]
    claims = [claim(*rates, goal=size.par_goal, about=f"{about} {PLAIN}", sign="low>")]
    for beside, ours_rates in toolkits:
        if beside.rates:
            claims.append(claim(ours_rates, beside.rates, goal=size.toolkit_goal, about=f"{about} {beside.name}"))
    return claims


def beside_toolkits(
    ours: Contestant, corpus: Corpus, *, size: RecurrentSize, threads: int, is_quick: bool
) -> list[tuple[Beside, list[float]]]:
    """Each toolkit's rates with as many of ours, taken in turns: one training of theirs, then as many runs of ours."""
    if is_quick:
        return [(Beside(toolkit.name, reason="not measured: --quick"), []) for toolkit in TOOLKITS]
    found = []
    for toolkit in TOOLKITS:
        theirs: list[float] = []
        rates: list[float] = []
        with tempfile.TemporaryDirectory() as folder:
            while len(theirs) < FEWEST_PAIRS:
                beside = run_toolkit(toolkit, corpus, size=size, threads=threads, folder=Path(folder))
                if not beside.rates:
                    break
                say(f"{size.name}, {toolkit.name}: {', '.join(f'{rate:,.0f}' for rate in beside.rates)} tokens/s")
                theirs += beside.rates
                answers = [ours.ask(f"run {FULL_STEPS}") for _ in beside.rates]
                rates += [answer["tokens"] / answer["seconds"] for answer in answers]
        # One that failed once has nothing to show for the other times.
        found.append((Beside(toolkit.name, tuple(theirs)), rates) if beside.rates else (beside, []))
    return found


def check_same_batches(ours: Measured, plain: Measured) -> None:
    """Both saw the same number of tokens in every run, as they do on the same batches."""
    if (ours.tokens, ours.source_tokens) != (plain.tokens, plain.source_tokens):
        raise ContestantError(
            f"{ours.name} trained on {ours.tokens} target tokens in its runs and {plain.name} on {plain.tokens}: "
            "these are not the same batches, and the rates cannot be compared"
        )


def report_training(
    size: RecurrentSize, corpus: Corpus, measured: Sequence[Measured], beside: Sequence[Beside], *, peaks: list[float]
) -> None:
    """Print heading and table."""
    flops = recurrent_flops(size.shape(corpus.symbols), corpus.source_lengths, corpus.target_lengths)
    print(
        f"\n### {size.name}\n\nTwo directions of {size.width // 2} in the encoder, width {size.width}, embeddings of "
        f"{size.embedding_width}, {size.layers}+{size.layers} layers, bilinear attention, no input feeding, dropout "
        f"{size.dropout_rate}, {corpus.symbols:,} joint pieces, {size.tokens_per_batch:,} places a batch, the same "
        f"batches for both. Peak: {statistics.median(peaks) / 1e9:.0f} GFLOP/s ({min(peaks) / 1e9:.0f} – "
        f"{max(peaks) / 1e9:.0f}), sgemm of {PEAK_SIZE}³ in the same rounds. Medians of {len(peaks)} rounds.\n"
    )
    print("\n".join(training_table(measured, beside, flops=flops, peaks=peaks)), flush=True)


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds and no toolkits: ends within five minutes")
    parser.add_argument("--pairs", type=int, help=f"rounds, at least {FEWEST_PAIRS} (default {FULL_PAIRS})")
    parser.add_argument("--threads", type=int, default=2, help="threads of each contestant (default 2)")
    part = parser.add_mutually_exclusive_group()
    part.add_argument("--layers-only", action="store_true", help="no training; needs no data")
    part.add_argument("--training-only", action="store_true", help="no layers")
    parser.add_argument(
        "--sizes",
        nargs="+",
        type=_extent,
        default=list(EXTENTS),
        dest="extents",
        metavar="BATCHxTIMExWIDTH",
        help="sizes of the layers (default: " + " ".join(map(str, EXTENTS)) + ")",
    )
    parser.add_argument(
        "--least-seconds", type=float, default=0.05, help="a layer is called until this is over (default 0.05)"
    )
    given = parser.parse_args()
    given.pairs = given.pairs or (FEWEST_PAIRS if given.quick else FULL_PAIRS)
    if given.pairs < FEWEST_PAIRS:
        parser.error(f"--pairs {given.pairs} is too few for an interval; give {FEWEST_PAIRS} or more")
    return given


def _extent(text: str) -> Extent:
    try:
        return read_extent(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def compare(given: argparse.Namespace) -> list[Claim]:
    """Measure what was requested and print the tables; the resulting claims."""
    begin = time.monotonic()
    corpus = None
    if not given.layers_only:  # before the slow part, so that missing data is reported at once
        try:
            corpus = open_multi30k()
        except UsageError as error:
            raise UsageError(f"{error}; --layers-only needs no data") from None
    claims = [] if given.training_only else compare_layers(given)
    if corpus is not None:
        budget = QUICK_SECONDS - (time.monotonic() - begin) if given.quick else None
        claims += compare_training(given, corpus, budget=budget)
    return claims


def main() -> None:
    given = read_arguments()
    measure_and_exit(lambda _folder: Outcome(compare(given)))


if __name__ == "__main__":
    main()
