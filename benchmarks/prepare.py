"""Corpora beyond memory: how fast, and in how little memory, files become what is trained on.

    python benchmarks/prepare.py [--pairs 10000000] [--quick] [--folder FOLDER]

A corpus of made-up words, twelve to a line, is written once. Then, each in a process of its own:

    prepare    the files are checked, pieces learned from a part of them, all pairs encoded: with two worker processes
               and again with one, and the stores compared byte by byte
    train      the prepared run is gone on with for some steps, and once more; and one on a thousandth of the text,
               whose memory is that of the model
    seek       the store is opened, an epoch planned and the batch at its middle put together
    peer       SentencePiece encodes some of the same lines with two threads, in turns with ours

Memory is the peak over a process and its children. The last lines claim what is promised; the exit code is 1 if one of
them misses its goal.
"""

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.ending import Outcome, measure_and_exit
from harness.progress import duration, say
from harness.ratios import FEWEST_PAIRS, Claim, claim, claim_of_sizes
from harness.synthetic import write_corpus
from harness.tree_memory import Run, run_watched
from seqloom.core.files import sha256_of
from seqloom.data.corpus import open_corpus
from seqloom.data.encoding import PairEncoder, encode_corpus
from seqloom.text.tokenizer import Tokenizers

HERE = Path(__file__).parent
RATE = 1e6
"""Pairs in a minute."""
BUILDING, TRAINING = 1e9, 1.5e9
"""Bytes at most."""
SEEK = 2.0
"""Seconds at most."""
SLICE = 100_000
"""Pairs that are encoded in turns with the peer."""


def part(*words: object) -> tuple[dict[str, Any], Run]:
    """Run one part in a process of its own."""
    say(f"{words[0]} …")
    command = [sys.executable, str(HERE / "contestants" / "prepare_ours.py"), *map(str, words)]
    run = run_watched(command, environment={**os.environ, "OMP_NUM_THREADS": "2"})
    say(f"{words[0]}: {duration(run.seconds)}, at most {run.peak / 1e6:,.0f} MB ({run.own / 1e6:,.0f} of its own)")
    return json.loads(run.out), run


def same_bytes(one: Path, other: Path) -> bool:
    """Whether two runs hold the same ids, byte by byte."""
    files = sorted(path.relative_to(one) for path in (one / "data").rglob("*") if path.is_file())
    return len(files) > 10 and all(sha256_of(one / name) == sha256_of(other / name) for name in files)


# --- the peer --------------------------------------------------------------------------------------------------------


def encoding_rates(folder: Path, sources: Path, targets: Path, run: Path) -> tuple[list[float], list[float]]:
    """Pairs per second of ours and of SentencePiece, in turns, on slices of the corpus.

    Ours reads, encodes and stores with two processes, whose start is counted. SentencePiece has the lines in memory,
    uses two threads and only encodes.
    """
    import sentencepiece

    tokenizers = Tokenizers.load(run / "text")
    paths = [folder / "slice.xx", folder / "slice.yy"]
    prefix = folder / "peer"
    _write_slice((sources, targets), paths, 0)
    sentencepiece.SentencePieceTrainer.train(
        input=[str(path) for path in paths], model_prefix=str(prefix), vocab_size=tokenizers.source.size,
        model_type="bpe", num_threads=2, minloglevel=2,
    )  # fmt: skip
    peer = sentencepiece.SentencePieceProcessor(model_file=f"{prefix}.model")
    encoder = PairEncoder(tokenizers.source.encode_flat, tokenizers.target.encode_flat, 256)
    ours, theirs = [], []
    for turn in range(FEWEST_PAIRS):
        _write_slice((sources, targets), paths, turn)
        corpus = open_corpus(paths)
        shutil.rmtree(folder / "slice", ignore_errors=True)
        began = time.perf_counter()
        encode_corpus(corpus, encoder, folder / "slice", symbols=tokenizers.source.size, workers=2)
        ours.append(SLICE / (time.perf_counter() - began))
        lines = [path.read_text(encoding="utf-8").split("\n")[:-1] for path in paths]
        began = time.perf_counter()
        for side in lines:
            peer.encode(side, num_threads=2)
        theirs.append(SLICE / (time.perf_counter() - began))
        say(f"slice {turn + 1} of {FEWEST_PAIRS}: {ours[-1]:,.0f} pairs/s, SentencePiece {theirs[-1]:,.0f}")
    return ours, theirs


def _write_slice(corpus: Sequence[Path], slices: Sequence[Path], turn: int) -> None:
    for path, place in zip(corpus, slices, strict=True):
        with path.open("rb") as file:
            file.seek(turn * path.stat().st_size // (FEWEST_PAIRS + 1))
            file.readline()
            place.write_bytes(b"".join(file.readline() for _ in range(SLICE)))


# --- all of it -------------------------------------------------------------------------------------------------------


def measure(given: argparse.Namespace, folder: Path) -> Outcome:
    place: Path = given.folder or folder
    place.mkdir(parents=True, exist_ok=True)
    paths = place / "corpus.xx", place / "corpus.yy"
    if not all(path.exists() for path in paths):
        write_corpus(place, given.pairs)
    runs = [place / "run-2", place / "run-1"]
    for run in runs:
        shutil.rmtree(run, ignore_errors=True)
    parts, two = part("prepare", runs[0], *paths, 2)
    _, one = part("prepare", runs[1], *paths, 1)
    is_same = same_bytes(*runs)
    shutil.rmtree(runs[1])
    sought, _ = part("seek", runs[0])
    _, first = part("train", runs[0], 40)
    resumed, second = part("train", runs[0], 60)
    small = _small_run(place, paths)
    ours, theirs = encoding_rates(place, *paths, runs[0])

    pairs = sought["pairs"]
    print(f"\n### {pairs:,} pairs, {sum(path.stat().st_size for path in paths) / 1e9:.2f} GB of text\n")
    print("| part | time | most memory | without mapped files |\n|---|---:|---:|---:|")
    for name, run in _named(two, one, first, second, small):
        print(f"| {name} | {duration(run.seconds)} | {run.peak / 1e6:,.0f} MB | {run.own / 1e6:,.0f} MB |")
    shown = ", ".join(f"{name} {duration(seconds)}" for name, seconds in parts.items())
    print(f"\nTwo workers: {pairs / two.seconds * 60:,.0f} pairs a minute ({shown}). ", end="")
    print(f"Seek: {sought['seek']:.2f} s. From `--resume` to the first step: {resumed['start']:.1f} s.")
    print(f"The stores of one and two workers {'have the same bytes' if is_same else 'DIFFER'}.")
    beyond = max(first.peak, second.peak) - small.peak
    preparing = max(two.peak, one.peak)
    return Outcome(_claims(pairs / two.seconds, preparing, beyond, sought["seek"], ours, theirs), is_good=is_same)


def _named(two: Run, one: Run, first: Run, second: Run, small: Run) -> list[tuple[str, Run]]:
    return [
        ("prepare, two workers", two),
        ("prepare, one worker", one),
        ("train", first),
        ("resume", second),
        ("train on a thousandth", small),
    ]


def _small_run(place: Path, paths: Sequence[Path]) -> Run:
    """The same training on a thousandth of the lines."""
    few = [place / f"few{path.suffix}" for path in paths]
    for path, small in zip(paths, few, strict=True):
        with path.open("rb") as file:
            small.write_bytes(b"".join(file.readline() for _ in range(SLICE // 10)))
    run = place / "run-few"
    shutil.rmtree(run, ignore_errors=True)
    part("prepare", run, *few, 1)
    return part("train", run, 40)[1]


def _claims(
    pace: float, preparing: int, training: int, seek: float, ours: Sequence[float], theirs: Sequence[float]
) -> list[Claim]:
    rate = pace * 60 / RATE
    return [
        Claim(rate, rate, rate, 1.0, "million pairs prepared a minute, two workers"),
        claim_of_sizes([preparing], [BUILDING], at_most=1.0, about="peak memory of preparing vs 1 GB"),
        claim_of_sizes(
            [training], [TRAINING], at_most=1.0, about="peak memory of training beyond that of the model vs 1.5 GB"
        ),
        claim_of_sizes([seek], [SEEK], at_most=1.0, about="seconds to seek vs 2"),
        claim(ours, theirs, goal=0.25, about="encoding, with reading and storing, vs SentencePiece's encoding alone"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--pairs", type=int, help="pairs of the corpus (default 10,000,000; 1,000,000 with --quick)")
    parser.add_argument("--quick", action="store_true", help="a tenth of it")
    parser.add_argument("--folder", type=Path, help="keep the corpus and the run here; a corpus that is there is used")
    given = parser.parse_args()
    given.pairs = given.pairs or (1_000_000 if given.quick else 10_000_000)
    measure_and_exit(lambda folder: measure(given, folder))


if __name__ == "__main__":
    main()
