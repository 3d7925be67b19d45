"""Settings of tiny models that train in a second, and the corpora to train them on."""

from pathlib import Path

from seqloom.data.phrasebook import sample_pairs

TINY = (
    "text.size=200",
    "model.width=16",
    "model.feed_forward=16",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "model.heads=2",
    "training.steps=6",
    "training.save_every=2",
    "training.validate_every=3",
    "training.average=2",
    "training.log_every=2",
    "training.warmup=2",
    "data.tokens_per_batch=512",
    "evaluation.resamples=40",
    "search.beam=2",
    "search.length_constant=4",
    "search.length_factor=1.0",
)


def write_corpus(folder: Path, *, count: int = 120, seed: int = 3) -> tuple[list[str], list[str]]:
    """Names of training files and dev files, English and German."""
    names: dict[str, list[str]] = {"train": [], "dev": []}
    for split, size in (("train", count), ("dev", 20)):
        pairs = sample_pairs("en", "de", count=size, seed=seed, split=split)  # type: ignore[arg-type]
        for language, lines in (("en", [p.source for p in pairs]), ("de", [p.target for p in pairs])):
            path = folder / f"{split}.{language}"
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            names[split].append(str(path))
    return names["train"], names["dev"]


TINY_LM = (
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


def train_files(run: Path, options: dict[str, object]) -> int:
    """A program for processes of their own, which import it by name: a whole run in the folder `run`."""
    import torch

    from seqloom.runs.train import train

    torch.set_num_threads(1)
    train(None, options["words"], out=run / "run", train=options["train"], dev=options["dev"])  # type: ignore[arg-type]
    return 0
