"""word2vec (Mikolov et al., 2013), window by window, in double precision.

    skip-gram   each word x of the window predicts the one in its middle, y:
                maximise log σ(x · y) + Σ_k log σ(−x · n_k)           n_k are words drawn at random
    CBOW        all of them together do, by their mean or sum h:
                maximise log σ(h · y) + Σ_k log σ(−h · n_k)
    step        g_k = rate · (label_k − σ(x · o_k))                   label 1 for y, 0 for the random words
                x  += Σ_k g_k o_k,   o_k += g_k x                     from the old values of both

Each word has two vectors: a row of `inputs` where it is given and a row of `outputs` where it is predicted. With a tree
of codes (hierarchical softmax) the outputs are its inner nodes, and the labels say which way it goes. With subwords a
word is the mean of several rows. The fast version is `seqloom.classical.word2vec`.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

Predicted = list[tuple[int, int]]
"""Rows of the outputs with their labels."""


class Word2Vec(ABC):
    """Vectors that learn. A subclass says where random numbers come from and which rows belong to a word."""

    def __init__(self, inputs: np.ndarray, outputs: np.ndarray, *, rate: float) -> None:
        self.inputs, self.outputs = inputs.astype(np.float64), outputs.astype(np.float64)
        self.rate = rate
        self.loss, self.terms = 0.0, 0
        self.counts_loss = True

    @abstractmethod
    def below(self, limit: int) -> int:
        """A random number from 0 up to the limit, without it."""

    @abstractmethod
    def noise(self) -> int:
        """A random word."""

    @abstractmethod
    def predicted(self, word: int) -> Predicted:
        """The outputs that predict a word: itself and random words, or its path through a tree."""

    def rows(self, words: Sequence[int]) -> list[int]:
        """The rows of the inputs that belong to these words."""
        return list(words)

    def step(self, vectors: np.ndarray, predicted: Predicted, *, is_product: bool = False) -> np.ndarray:
        """Change the outputs; return the steps of the input vectors [inputs, width]."""
        rows, labels = [row for row, _ in predicted], np.array([label for _, label in predicted])
        others = self.outputs[rows]  # [predicted, width]
        sigma = 1 / (1 + np.exp(-vectors @ others.T))  # [inputs, predicted]
        probability, gradient = sigma, self.rate * (labels - sigma)
        if is_product:  # P(y ∣ window) = Π_x σ(x · y)
            probability = sigma.prod(axis=0, keepdims=True)
            gradient = self.rate * (1 - sigma) * np.where(labels == 1, 1.0, -probability / (1 - probability))
        if self.counts_loss:
            self.loss -= np.log(np.where(labels == 1, probability, 1 - probability)).sum()
            self.terms += probability.size
        np.add.at(self.outputs, rows, gradient.T @ vectors)
        return np.asarray(gradient @ others)

    def skip_gram(self, centre: int, contexts: Sequence[int], *, is_shared: bool) -> None:
        """Each word of the window predicts the middle; with shared random words, all at once."""
        for words in [list(contexts)] if is_shared else [[word] for word in contexts]:
            np.add.at(self.inputs, words, self.step(self.inputs[words], self.predicted(centre)))

    def skip_gram_of_parts(self, centre: int, contexts: Sequence[int]) -> None:
        """The mean of the parts of the middle predicts each word of the window (fastText, Bojanowski et al., 2017)."""
        rows = self.rows([centre])
        for word in contexts:
            np.add.at(self.inputs, rows, self.step(self.inputs[rows].mean(axis=0)[None], self.predicted(word)))

    def skip_gram_sampled(self, centre: int, contexts: list[int], *, count: int) -> None:
        """The middle word predicts `count` words of the window, and not as many random ones."""
        for place in range(min(len(contexts), count)):  # the beginning of a shuffle
            other = place + self.below(len(contexts) - place)
            contexts[place], contexts[other] = contexts[other], contexts[place]
        positives = contexts[:count]
        predicted = [(word, 1) for word in positives] + [(self.noise(), 0) for _ in positives]
        self.inputs[centre] += self.step(self.inputs[centre][None], predicted)[0]

    def cbow(self, centre: int, contexts: Sequence[int], *, pooling: str) -> None:
        """The window, pooled by mean or sum, predicts the middle; or by a product of probabilities."""
        predicted, rows = self.predicted(centre), self.rows(contexts)
        if pooling == "product":
            np.add.at(self.inputs, rows, self.step(self.inputs[rows], predicted, is_product=True))
            return
        share = 1 / len(rows) if pooling == "mean" else 1.0
        step = self.step(self.inputs[rows].sum(axis=0)[None] * share, predicted)
        # As in the original program: each row takes the whole step of a mean, and its share of that of a sum.
        np.add.at(self.inputs, rows, step if pooling == "mean" else step / len(rows))
