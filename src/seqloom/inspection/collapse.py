"""What negatives are for: without them, word2vec makes all vectors alike.

    L = − Σ log σ(x · y) over the pairs that were seen       no pair says what a word is not

Each step moves x and y towards each other, so all vectors turn into one direction and grow: the loss falls to 0 while
the mean cosine of two words rises to 1. It is no optimum that is reached, for larger vectors always lower the loss.
"""

from dataclasses import dataclass

import numpy as np

from seqloom.classical.vectors import WordVectors
from seqloom.classical.word2vec import Word2VecConfig
from seqloom.text.encoded import EncodedText


@dataclass(frozen=True)
class Course:
    """How vectors developed, a number per epoch; cosines and norms begin with the random start."""

    negatives: int
    losses: tuple[float, ...]
    """The mean of −log σ(x · y) over the pairs that were seen and of −log σ(−x · n) over negatives, in nats."""
    cosines: tuple[float, ...]
    """The mean cosine of two different words."""
    norms: tuple[float, ...]
    """The mean length of a vector."""


def follow(text: EncodedText, *, negatives: int, epochs: int, width: int = 32, rate: float = 0.05, seed: int) -> Course:
    """Learn skip-gram vectors at a constant rate, and look at them after each epoch."""
    from seqloom.classical.word2vec_learner import Learner

    config = Word2VecConfig(
        width=width,
        negatives=negatives,
        epochs=epochs,
        learning_rate=rate,
        final_rate=rate,
        minimum_count=1,
        subsampling=0.0,
        threads=1,
    )
    learner = Learner.begin(text, config, seed=seed)
    seen, losses = [learner.vectors()], []
    for epoch in range(epochs):
        losses.append(learner.learn(epoch))
        seen.append(learner.vectors())
    return Course(negatives, tuple(losses), tuple(map(mean_cosine, seen)), tuple(map(_mean_norm, seen)))


def mean_cosine(vectors: WordVectors) -> float:
    """Over all pairs of different words: (‖Σ u‖² − n) / n (n − 1) of the vectors scaled to length 1."""
    total, count = vectors.units.astype(np.float64).sum(axis=0), len(vectors)
    return float((total @ total - count) / (count * (count - 1)))


def _mean_norm(vectors: WordVectors) -> float:
    return float(np.linalg.norm(vectors.vectors.astype(np.float64), axis=1).mean())
