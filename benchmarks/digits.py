"""ViT and Swin beside logistic regression, on the handwritten digits of scikit-learn.

    python benchmarks/digits.py [--out runs/digits] [--kinds vit swin] [path=value …]

1,797 images of 8 x 8 pixels, of which one fifth of each class is the test set. The networks are trained by the command
that anyone would type, without settings: what it chooses follows from the images, and a tenth of the training images is
held out for its validations. Logistic regression reads all training images. A run that was interrupted is resumed, and
one that is complete is only measured again. Needs scikit-learn (the parity group); about five minutes of one core.
"""

import argparse
import subprocess
import sys
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from seqloom import Classifier
from seqloom.metrics.classification import score_labels
from seqloom.metrics.scoring import Bootstrap

BOOTSTRAP = Bootstrap(seed=1, resamples=1000)
MAX_VALUE = 16
"""Of a pixel in these images."""


def write_digits(folder: Path) -> tuple[Path, Path]:
    """The images for training and test, as .npz files."""
    images, labels = load_digits().images, load_digits().target
    parts = train_test_split(images / MAX_VALUE, labels, test_size=0.2, random_state=0, stratify=labels)
    folder.mkdir(parents=True, exist_ok=True)
    paths = folder / "train.npz", folder / "test.npz"
    for path, values, names in zip(paths, parts[:2], parts[2:], strict=True):
        np.savez(path, images=values, labels=names)
    return paths


def train(kind: str, path: Path, run: Path, overrides: list[str]) -> str:
    """Train a network by the command, and give the seconds of processor time; or go on with it."""
    is_new = not (run / "run.json").is_file()
    words = (
        ["--train", str(path), f"model.kind={kind}", "--out", str(run), *overrides]
        if is_new
        else ["--resume", str(run)]
    )
    before = getrusage(RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "seqloom", "train", *words], check=True, stdout=sys.stderr)
    after = getrusage(RUSAGE_CHILDREN)
    return f"{after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime:.0f}" if is_new else "–"


def row(name: str, parameters: int, seconds: str, found: list[str], right: list[str]) -> str:
    accuracy, _ = score_labels(found, right, bootstrap=BOOTSTRAP)
    assert accuracy.interval is not None
    matches = sum(one == other for one, other in zip(found, right, strict=True))
    low, high = accuracy.interval
    return f"| {name} | {parameters:,} | {seconds} | {matches} | {accuracy.value:.1f}% [{low:.1f}, {high:.1f}] |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/digits"), help="folder for images and runs")
    parser.add_argument("--kinds", nargs="+", default=["vit", "swin"], help="networks to train")
    parser.add_argument("overrides", nargs="*", metavar="path=value", help="settings of the networks")
    arguments = parser.parse_args()
    train_path, test_path = write_digits(arguments.out)
    (images, labels), (test, right) = (
        (np.load(path)["images"], [str(label) for label in np.load(path)["labels"]]) for path in (train_path, test_path)
    )
    regression = LogisticRegression(max_iter=5000).fit(images.reshape(len(images), -1), labels)
    predicted = regression.predict(test.reshape(len(test), -1)).tolist()
    parameters = regression.coef_.size + regression.intercept_.size
    rows = [row("logistic regression", parameters, "–", predicted, right)]
    for kind in arguments.kinds:
        run = arguments.out / kind
        seconds = train(kind, train_path, run, arguments.overrides)
        classifier = Classifier.load(run)
        found = [each.label for each in classifier.classify(test)]
        rows.append(row(kind, classifier.card.parameters, seconds, found, right))
    print(f"| model | parameters | processor seconds | right of {len(right)} | accuracy |\n|---|--:|--:|--:|--:|")
    print("\n".join(rows))
    print(f"\nIntervals: {BOOTSTRAP.resamples} bootstrap resamples of the test images, seed {BOOTSTRAP.seed}.")


if __name__ == "__main__":
    main()
