"""Weights of a stack search tuned on the dev pairs, and the settings of it."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float64
from pydantic import Field

from seqloom.core.config import Config
from seqloom.core.events import Event, Listener, notice, phase, progress
from seqloom.core.symbols import UNKNOWN
from seqloom.smt.casing import Casing
from seqloom.smt.options import OptionSearch, SentenceOptions
from seqloom.smt.pairs import EncodedPairs, SourceSentence
from seqloom.smt.tuning import Candidates, tune


class TuningConfig(Config):
    """How the weights of features are tuned on the dev pairs."""

    rounds: int = Field(default=12, ge=0, le=100)
    """How often the dev sentences are translated, at most; 0 leaves the weights as they are given."""
    sentences: int = Field(default=1000, ge=1)
    """Dev pairs that are used; of more, evenly spaced ones."""
    nbest: int = Field(default=100, ge=2, le=10_000)
    """Translations of each sentence from which the weights are learned."""


def tune_on_dev(
    search_with: Callable[[Float64[np.ndarray, " features"]], OptionSearch],
    options_of: Callable[[SourceSentence], SentenceOptions],
    pairs: EncodedPairs,
    casing: Casing,
    start: Float64[np.ndarray, " features"],
    *,
    is_free: Bool[np.ndarray, " features"],
    config: TuningConfig,
    seed: int,
    threads: int,
    listener: Listener,
) -> Float64[np.ndarray, " features"]:
    """The weights with the highest BLEU on the dev pairs that were found from `start` on; those not free stay.

    `search_with` gives the search with some weights; `casing` is that of the target side.
    """
    dev = pairs.dev
    spread = np.linspace(0, max(0, dev.pairs - 1), min(dev.pairs, config.sentences)).astype(int)
    is_blank = (np.diff(dev.source_starts) == 0) | (np.diff(dev.target_starts) == 0)
    chosen = [k for k in np.unique(spread).tolist() if not is_blank[k]]
    if config.rounds == 0 or not is_free.any() or not chosen:
        return start
    folded = casing.fold(dev.targets, dev.target_starts)
    folded[folded == UNKNOWN] = -1  # an unknown word of the reference equals no word of a translation
    references = [folded[dev.target_starts[k] : dev.target_starts[k + 1]] for k in chosen]
    sentences = [
        pairs.dev_sentences[k]
        if pairs.dev_sentences
        else SourceSentence(dev.sources[dev.source_starts[k] : dev.source_starts[k + 1]].tolist(), ())
        for k in chosen
    ]
    phase(listener, f"tuning the weights on {len(chosen):,} dev pairs, in {config.rounds} rounds at most")
    listed = [options_of(each) for each in sentences]

    def translate(weights: Float64[np.ndarray, " features"]) -> list[Candidates]:
        search = search_with(weights)
        found = search.derive(listed, nbest=config.nbest, threads=threads)
        return [
            Candidates(
                [options.output(each.options) for each in some],
                np.array([search.features(options, each.options) for each in some]).reshape(-1, len(start)),
            )
            for options, some in zip(listed, found, strict=True)
        ]

    def report(done: int, score: float) -> None:
        progress(listener, "tuning weights", done, config.rounds)
        listener(Event("tuning", {"round": done, "bleu": score}))

    tuned = tune(translate, references, start, is_free=is_free, seed=seed, rounds=config.rounds, progress=report)
    notice(
        listener,
        f"weights tuned on {len(chosen):,} dev pairs in {len(tuned.scores)} rounds: BLEU of words "
        f"{tuned.scores[0]:.2f} with those at the start, {max(tuned.scores):.2f} with the best",
    )
    return tuned.weights
