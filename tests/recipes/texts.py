"""Small English texts, and tiny models of them."""

from pathlib import Path

from seqloom.data.phrasebook import sample_pairs

TINY = (
    "text.size=200",
    "model.width=16",
    "model.layers=1",
    "model.dropout_rate=0.0",
    "task.rows=4",
    "task.length=8",
    "training.steps=6",
    "training.save_every=2",
    "training.validate_every=3",
    "training.average=2",
    "training.log_every=2",
    "training.schedule=constant",
    "training.warmup=2",
    "search.length_constant=12",
)


def write_text(path: Path, *, count: int = 60, seed: int = 3) -> Path:
    """English sentences, one per line, with an empty line after every tenth."""
    pairs = sample_pairs("en", "de", count=count, seed=seed, split="train")
    lines = [pair.source + ("\n" if number % 10 == 9 else "") for number, pair in enumerate(pairs)]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path
