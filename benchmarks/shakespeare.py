"""A small GPT on the plays of Shakespeare, letter by letter, as nanoGPT trains and measures one on a CPU.

    python benchmarks/shakespeare.py [--seeds 1 2 3] [--keep FOLDER] [--quick]

SEQLOOM_DATA names the folder of the data. The text is split as there: the first nine tenths of the letters are for
training, the rest for validation. 4 layers of width 128 with 4 heads read 64 letters; 2,000 steps of 12 windows, a rate
of 0.001 that falls along a cosine after 100 steps, betas 0.9 and 0.99, decay 0.1, gradients clipped at 1, no dropout
and no biases. Besides these blocks of GPT-2 the script trains those of Llama (rotary positions, RMS norms, SiLU gates
whose inner size gives equally many weights).

The figure of nanoGPT is the mean loss of 20 random batches of validation windows, each read by itself: 1.88 nats a
letter in its README. The same is printed here for 20 batches (`sampled`) and for all windows one after another
(`all`), which is what the goal is claimed for. `--quick` makes 50 steps, and claims nothing. The exit code is 1 if the
goal is missed.
"""

import argparse
import gzip
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int64

import seqloom
from harness.processes import exit_on_termination
from harness.progress import say
from seqloom.core.errors import SeqloomError, UsageError
from seqloom.core.symbols import BEGIN, END
from seqloom.runs.loading import LoadedModel

GOAL = 1.88
ROWS, LENGTH, BATCHES = 12, 64, 20
CONFIG = Path(__file__).resolve().parent.parent / "examples" / "gpt-characters.yaml"

NANO = (
    "training.betas=[0.9, 0.99]",
    "training.weight_decay=0.1",
    "training.average=0",
    "model.attention_bias=false",
    "model.output_bias=false",
    "model.feed_forward_bias=false",
)
KINDS = {
    "gpt-2": NANO,
    "llama": (
        *NANO,
        "model.positions=rotary",
        "model.norm_kind=rms",
        "model.gated=true",
        "model.activation=silu",
        "model.feed_forward=340",
    ),
}


def split_letters(text: str) -> tuple[str, str]:
    """The first nine tenths of the letters, and the rest."""
    border = int(len(text) * 0.9)
    return text[:border], text[border:]


def validation_ids(model: LoadedModel, text: str) -> Int64[np.ndarray, " letters"]:
    """The letters as symbols; the end of a line is the symbol of its newline."""
    tokenizer = model.tokenizers.target
    return np.concatenate([np.array([*tokenizer.encode(line), END], np.int64) for line in text.split("\n")])


@torch.no_grad()
def losses(model: LoadedModel, windows: Iterator[Int64[np.ndarray, "rows letters"]]) -> list[float]:
    """The mean loss of each batch of windows, which have one letter more than are read."""
    found = []
    for window in windows:
        ids = torch.from_numpy(window).to(model.device)
        previous = ids[:, :-1].masked_fill(ids[:, :-1] == END, BEGIN)  # a newline is read as the beginning of its line
        features, _ = model.model(previous, None)  # [rows, time, width]
        total = model.model.output.cross_entropy(features.flatten(0, 1), ids[:, 1:].flatten())
        found.append(float(total) / ids[:, 1:].numel())
    return found


def random_windows(ids: Int64[np.ndarray, " letters"], *, seed: int) -> Iterator[Int64[np.ndarray, "rows letters"]]:
    """Batches of windows that begin anywhere, as nanoGPT draws them."""
    generator = np.random.default_rng(seed)
    for _ in range(BATCHES):
        starts = generator.integers(0, len(ids) - LENGTH, ROWS)
        yield ids[starts[:, None] + np.arange(LENGTH + 1)]


def all_windows(ids: Int64[np.ndarray, " letters"]) -> Iterator[Int64[np.ndarray, "rows letters"]]:
    """Windows one after another, one batch each; what does not fill the last one is left out."""
    for start in range(0, len(ids) - LENGTH, LENGTH):
        yield ids[None, start : start + LENGTH + 1]


def measure(folder: Path, text: str, *, kind: str, seed: int, is_quick: bool) -> float:
    """Train one model, unless it is there already, print its figures and give its loss."""
    run = folder / f"{kind}-{seed}"
    if not (run / "model").exists():
        steps = ["training.steps=50", "training.warmup=10"] if is_quick else []
        train, dev = str(folder / "train.txt"), str(folder / "dev.txt")
        seqloom.train(CONFIG, [*KINDS[kind], *steps, f"seed={seed}"], out=run, train=[train], dev=[dev])
    model = seqloom.load(run)
    ids = validation_ids(model, text)
    whole = statistics.fmean(losses(model, all_windows(ids)))
    sampled = statistics.fmean(losses(model, random_windows(ids, seed=seed)))
    say(f"| {kind} | {seed} | {model.card.parameters:,} | {whole:.4f} | {sampled:.4f} |")
    return whole


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args(arguments)
    exit_on_termination()
    if not os.environ.get("SEQLOOM_DATA"):
        raise UsageError("SEQLOOM_DATA names the folder of the data, and is not set")
    source = Path(os.environ["SEQLOOM_DATA"]) / "tinyshakespeare" / "input.txt.gz"
    train, dev = split_letters(gzip.decompress(source.read_bytes()).decode())
    with tempfile.TemporaryDirectory() as made:
        folder = given.keep or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in (("train.txt", train), ("dev.txt", dev)):
            (folder / name).write_text(text, encoding="utf-8")
        say("| blocks | seed | parameters | loss, all | loss, sampled |")
        say("|---|--:|--:|--:|--:|")
        means = {}
        for kind in KINDS:
            each = [measure(folder, dev, kind=kind, seed=seed, is_quick=given.quick) for seed in given.seeds]
            means[kind] = statistics.fmean(each)
    say(", ".join(f"{kind}: {mean:.3f}" for kind, mean in means.items()) + f" nats a letter; goal {GOAL} (gpt-2)")
    return int(not given.quick and means["gpt-2"] > GOAL)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except SeqloomError as error:
        sys.exit(f"{type(error).__name__}: {error}")
