"""What negatives are for: without them, all word2vec vectors become the same.

    L = − Σ log σ(x · y) over the pairs that were seen       no pair shows what a word is not

Each step moves x and y towards each other, so all vectors turn into one direction and grow: the loss falls to 0 while
the mean cosine of two words rises to 1. There is no optimum, since larger vectors always lower the loss.
"""

from dataclasses import asdict, dataclass

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from seqloom.classical.vectors import WordVectors
from seqloom.classical.word2vec import Learner, Word2VecConfig
from seqloom.core.symbols import END, RESERVED
from seqloom.data.phrasebook import sample_pairs
from seqloom.drawing.figures import FIRST, SECOND, Finding
from seqloom.lab.bench import Countdown, Say, frames, rounded, silent
from seqloom.text.tokenizer import EncodedText


@dataclass(frozen=True)
class Course:
    """How vectors developed, a number per epoch; cosines and norms include the random start."""

    negatives: int
    losses: tuple[float, ...]
    """The mean of −log σ(x · y) over the pairs that were seen and of −log σ(−x · n) over negatives, in nats."""
    cosines: tuple[float, ...]
    """The mean cosine of two different words."""
    norms: tuple[float, ...]
    """The mean length of a vector."""


def follow(text: EncodedText, *, negatives: int, epochs: int, width: int = 32, rate: float = 0.05, seed: int) -> Course:
    """Train skip-gram vectors at a constant rate, and measure them after each epoch."""
    config = Word2VecConfig(width=width, negatives=negatives, epochs=epochs, learning_rate=rate, final_rate=rate)
    plain = config.model_copy(update={"minimum_count": 1, "subsampling": 0.0, "threads": 1})
    learner = Learner(text, plain, seed=seed)
    seen, losses = [learner.vectors()], []
    for epoch in range(epochs):
        losses.append(learner.learn(epoch))
        seen.append(learner.vectors())
    norms = (float(np.linalg.norm(each.vectors.astype(np.float64), axis=1).mean()) for each in seen)
    return Course(negatives, tuple(losses), tuple(map(mean_cosine, seen)), tuple(norms))


def mean_cosine(vectors: WordVectors) -> float:
    """Over all pairs of different words: (‖Σ u‖² − n) / n (n − 1) of the vectors scaled to length 1."""
    total, count = vectors.units.astype(np.float64).sum(axis=0), len(vectors)
    return float((total @ total - count) / (count * (count - 1)))


NEGATIVES = (0, 5)


def run(*, seed: int = 1, quick: bool = False, say: Say = silent) -> list[Finding]:
    """Mean cosine, norm and loss by epoch, without negatives and with five."""
    sentences, epochs, width, rate = (400, 6, 8, 0.1) if quick else (2000, 20, 32, 0.05)
    text = english(sentences, seed=seed)
    countdown = Countdown(say, len(NEGATIVES))
    courses = []
    for negatives in NEGATIVES:
        courses.append(follow(text, negatives=negatives, epochs=epochs, width=width, rate=rate, seed=seed))
        countdown.done(f"{negatives} negatives")
    without, with_them = courses
    epochs = len(without.losses)
    sentence = (
        f"Without negatives the mean cosine of two words rises from {without.cosines[0]:.2f} to "
        f"{without.cosines[-1]:.2f} in {epochs} epochs while the loss falls to {without.losses[-1]:.3f} and vectors "
        f"grow to a length of {without.norms[-1]:.1f}: all words become one. With {with_them.negatives} negatives it "
        f"ends at {with_them.cosines[-1]:.2f}, with a loss of {with_them.losses[-1]:.3f} per term."
    )
    data = {
        "seed": seed,
        "sentences": sentences,
        "words": text.symbols - len(RESERVED),
        "courses": [
            {name: value if name == "negatives" else rounded(value) for name, value in asdict(course).items()}
            for course in courses
        ],
    }

    def draw() -> Figure:
        figure, (left, right) = frames(2)
        for course, colour in zip(courses, (SECOND, FIRST), strict=True):
            label = f"{course.negatives} negatives" if course.negatives else "no negatives"
            left.plot(range(epochs + 1), course.cosines, "o-", ms=3, color=colour, label=label)
            right.plot(range(1, epochs + 1), course.losses, "o-", ms=3, color=colour, label=label)
        left.set(ylim=(-0.05, 1.05), ylabel="mean cosine of two words")
        right.set(ylim=(0, None), ylabel="loss per term (nats)")
        right.legend(frameon=False, fontsize=9)
        for axes in (left, right):
            axes.set_xlabel("epoch")
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        return figure

    return [Finding("collapse", "Word vectors without negatives", sentence, data, draw)]


def english(sentences: int, *, seed: int) -> EncodedText:
    """Sentences of the phrasebook as words."""
    lines = [pair.target_tokens for pair in sample_pairs("de", "en", count=sentences, seed=seed)]
    words = sorted({word for line in lines for word in line})
    ids = {word: number for number, word in enumerate(words, start=len(RESERVED))}
    flat = [number for line in lines for number in (*(ids[word] for word in line), END)]
    return EncodedText(np.array(flat, np.int32), (*RESERVED, *words))
