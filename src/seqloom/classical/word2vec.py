"""Word vectors learned from the company that words keep: word2vec (Mikolov et al., 2013) in all its forms.

    skip-gram   Σ over words x of the window of y    log σ(x · y) + Σ_{k=1…K} log σ(−x · n_k),   n_k ~ count^0.75
    notes       the same for R words of the window, and R random words in place of K for each
    CBOW        the window is pooled into one h:     log σ(h · y) + Σ_{k=1…K} log σ(−h · n_k)
                mean h = Σ x / n, sum h = Σ x;  product (notes): P(y ∣ window) = Π_x σ(x · y), no h at all
    tree        in place of negatives, the hierarchical softmax: log P(y) = Σ_nodes log σ(± h · v_node)

Each word has two vectors, x where it is given and y where it is predicted; the x are the result. The rate falls in a
straight line. With several threads, all of them write into the same vectors without waiting (Hogwild, Recht et al.,
2011): the result is as good but never the same. One thread gives the same bytes for the same seed.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from seqloom.classical.subword_vectors import SubwordConfig
from seqloom.classical.vectors import Subwords, WordVectors
from seqloom.core.config import Config
from seqloom.core.errors import ModelError
from seqloom.core.events import Event, Listener, ignore, notice
from seqloom.text.encoded import EncodedText

_KEPT = {
    **dict.fromkeys(("vectors", "outputs", "buckets"), ("float32", 2)),
    **dict.fromkeys(("counts", "symbols"), ("int64", 1)),
    "losses": ("float64", 1),
}
"""The arrays that a model directory keeps: the type of their numbers, and how many axes they have."""


class Word2VecConfig(Config):
    """Word vectors by word2vec."""

    kind: Literal["word2vec"] = "word2vec"
    """Which model this is."""
    architecture: Literal["skipgram", "cbow"] = "skipgram"
    """`skipgram`: each word of a window predicts the one in its middle; `cbow`: all of them together do, which is
    faster and less good with rare words."""
    pooling: Literal["mean", "sum", "product"] = "mean"
    """How CBOW joins a window: `mean` or `sum` of its vectors, or the `product` of the probabilities that each word
    gives by itself."""
    context: Literal["shrunk", "sampled"] = "shrunk"
    """The pairs of skip-gram: all words of a window whose reach is drawn from 1 to `window`, with `negatives` for each
    (`shrunk`); or `contexts` words of the full window, with as many random words in all (`sampled`)."""
    contexts: int = Field(default=5, ge=1, le=1000)
    """Words of a window taken with `context: sampled`."""
    width: int = Field(default=100, ge=1, le=4096)
    """Numbers in a vector."""
    window: int = Field(default=5, ge=1, le=1000)
    """Words to each side that count as company, at most."""
    output: Literal["negative", "hierarchical"] = "negative"
    """What stands in for a softmax over all words: `negative` sampling, or the `hierarchical` softmax over a tree."""
    negatives: int = Field(default=5, ge=0, le=1000)
    """Random words that each word is told apart from. Without any, all vectors become alike."""
    shared_negatives: bool = True
    """Draw the negatives of skip-gram once per window: several times as fast, and as good. Off: once per pair."""
    noise_power: float = Field(default=0.75, ge=0, le=1)
    """Negatives are drawn by count to this power: 0 uniformly, 1 as frequent as in the text."""
    subsampling: float = Field(default=1e-3, ge=0)
    """Words whose share of the text is above this are left out at random, the more the more frequent; 0 keeps all."""
    minimum_count: int = Field(default=5, ge=1)
    """Words that come less often are passed over."""
    epochs: int = Field(default=5, ge=1)
    """How often the text is gone through."""
    learning_rate: float = Field(default=0.025, gt=0)
    """The rate at the beginning; it falls in a straight line."""
    final_rate: float = Field(default=1e-4, ge=0)
    """The rate at the end."""
    threads: int | None = Field(default=None, ge=1, le=1000)
    """All cores without it. More than one are fast and never give the same vectors twice; 1 does."""
    subwords: SubwordConfig | None = None
    """Character n-grams as parts of words, so that words which were never seen have vectors too."""

    @model_validator(mode="after")
    def _check(self) -> "Word2VecConfig":
        if self.final_rate > self.learning_rate:
            raise ValueError(f"final_rate {self.final_rate} is above learning_rate {self.learning_rate}; lower it")
        if self.context == "sampled" and (self.architecture != "skipgram" or self.output != "negative"):
            raise ValueError("context: sampled is a form of skip-gram with negative sampling; set context: shrunk")
        if self.pooling != "mean" and self.architecture != "cbow":
            raise ValueError(f"pooling: {self.pooling} is for architecture: cbow; skip-gram pools nothing")
        if self.pooling == "product" and self.subwords is not None:
            raise ValueError("pooling: product takes words one by one, so it has no subwords; set pooling: mean")
        return self

    def fit(self, text: EncodedText, *, seed: int, listener: Listener = ignore) -> WordVectors:
        """Learn the vectors of a text."""
        # The loops come in when they are wanted: their compiler takes a second to load.
        from seqloom.classical.word2vec_learner import Learner

        learner = Learner.begin(text, self, seed=seed)
        if learner.threads > 1:
            notice(
                listener,
                f"{learner.threads} threads write into the same vectors without waiting for each other: fast, and "
                "different each time; model.threads=1 gives the same vectors for the same seed",
            )
        if self.output == "negative" and self.negatives == 0:
            notice(listener, "without negatives nothing keeps words apart: all vectors become alike")
        listener(Event("phase", {"what": "compiling the loops of word2vec, if this is their first use"}))
        losses = [learner.learn(epoch, listener=listener) for epoch in range(self.epochs)]
        learner.require_learned()
        return learner.vectors(losses)

    def restore(self, arrays: Mapping[str, np.ndarray], vocabulary: Sequence[str]) -> WordVectors:
        """The vectors that a model directory keeps."""
        missing = {"vectors", "counts", "symbols"} - set(arrays)
        if missing:
            raise ModelError(f"these are no word vectors: {', '.join(sorted(missing))} missing")
        for name, (kind, axes) in _KEPT.items():
            if name in arrays and (str(arrays[name].dtype), arrays[name].ndim) != (kind, axes):
                shape = list(arrays[name].shape)
                raise ModelError(
                    f"these are no word vectors: {name} has numbers of kind {arrays[name].dtype} in {shape}"
                )
        symbols = arrays["symbols"]
        if len(symbols) and not 0 <= int(symbols.min()) <= int(symbols.max()) < len(vocabulary):
            raise ModelError(
                f"symbols run from {symbols.min()} to {symbols.max()}, but the vocabulary has {len(vocabulary)} symbols"
            )
        subwords = None
        if self.subwords is not None:
            wanted = [self.subwords.buckets, *arrays["vectors"].shape[1:]]
            if "buckets" not in arrays or list(arrays["buckets"].shape) != wanted:
                raise ModelError(f"these vectors have no buckets of shape {wanted}, which the settings ask for")
            subwords = Subwords(self.subwords, arrays["buckets"])
        return WordVectors(
            tuple(vocabulary[symbol] for symbol in symbols.tolist()),
            arrays["vectors"],
            arrays["counts"],
            symbols,
            arrays.get("outputs"),
            subwords,
            tuple(float(loss) for loss in arrays.get("losses", ())),
        )
