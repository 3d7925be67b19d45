"""The loop of word2vec: chunks of a text for the threads, a falling rate, and the vectors that come of it."""

import math
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int32, Int64

from seqloom.classical import word2vec_kernels as kernels
from seqloom.classical.huffman import huffman_codes
from seqloom.classical.noise import ONE, alias_table, noise_distribution
from seqloom.classical.subword_vectors import parts_of_words, pooled_vectors
from seqloom.classical.vectors import Subwords, WordVectors
from seqloom.classical.word2vec import Word2VecConfig
from seqloom.classical.word2vec_tables import (
    CBOW,
    HIERARCHICAL,
    LANES,
    LEFT_OUT,
    MEAN,
    NEGATIVE,
    PRODUCT,
    SAMPLED,
    SENTENCE_END,
    SKIPGRAM,
    SUM,
    Lists,
    Noise,
    Plan,
    Tables,
    Text,
)
from seqloom.core.errors import DataError
from seqloom.core.events import Event, Listener, ignore
from seqloom.core.seeds import seed_for
from seqloom.core.symbols import END, RESERVED
from seqloom.text.encoded import EncodedText

CHUNK = 10_000
"""Tokens that a thread takes at a time; a sentence that is longer is cut, as in other programs."""

_ARCHITECTURES = {"skipgram": SKIPGRAM, "cbow": CBOW}
_POOLINGS = {"mean": MEAN, "sum": SUM, "product": PRODUCT}
_OUTPUTS = {"negative": NEGATIVE, "hierarchical": HIERARCHICAL}


@dataclass(frozen=True, eq=False)
class Learner:
    """A text that is being learned from: which words there are, and their vectors, which change from epoch to epoch."""

    config: Word2VecConfig
    seed: int
    words: tuple[str, ...]
    counts: Int64[np.ndarray, " words"]
    symbols: Int64[np.ndarray, " words"]
    text: Text
    plan: Plan
    tables: Tables
    noise: Noise
    paths: Lists
    parts: Lists
    borders: tuple[int, ...]
    """Where the chunks of the text begin, and where the last one ends."""

    @staticmethod
    def begin(text: EncodedText, config: Word2VecConfig, *, seed: int) -> "Learner":
        """Choose the words and give them random vectors."""
        symbols, counts = _choose_words(text, config)
        words = tuple(text.vocabulary[symbol] for symbol in symbols.tolist())
        paths, parts = _NO_LISTS, _NO_LISTS
        if config.output == "hierarchical":
            paths = huffman_codes(counts).as_lists()
        if config.subwords is not None:
            parts = parts_of_words(words, config.subwords)
        buckets = config.subwords.buckets if config.subwords is not None else 0
        outputs = len(words) - 1 if config.output == "hierarchical" else len(words)
        tables = _random_tables(len(words) + buckets, outputs, config.width, seed=seed)
        row_of: Int32[np.ndarray, " symbols"] = np.full(text.symbols, LEFT_OUT, np.int32)
        row_of[symbols] = np.arange(len(symbols), dtype=np.int32)
        row_of[END] = SENTENCE_END
        noise = alias_table(noise_distribution(counts, config.noise_power))
        kept = Text(text.ids, row_of, _chances(counts, config.subsampling))
        return Learner(
            config, seed, words, counts, symbols, kept, _plan(config), tables, noise, paths, parts, _borders(text)
        )

    @property
    def threads(self) -> int:
        """How many are used."""
        return min(self.config.threads or _cores(), len(self.borders) - 1)

    def learn(self, epoch: int, *, listener: Listener = ignore) -> float:
        """Go through the text once; the mean loss per prediction, in nats."""
        chunks, tokens = len(self.borders) - 1, self.borders[-1]
        told: list[tuple[float, float]] = []
        numbers, lock, is_stopped = iter(range(chunks)), threading.Lock(), threading.Event()
        done = [0]

        def work() -> None:
            while not is_stopped.is_set():
                with lock:
                    chunk = next(numbers, None)
                if chunk is None:
                    return
                loss = self._learn_chunk(epoch, chunk)
                with lock:
                    told.append(loss)
                    done[0] += self.borders[chunk + 1] - self.borders[chunk]

        with ThreadPoolExecutor(self.threads) as pool:
            try:
                waiting = {pool.submit(work) for _ in range(self.threads)}
                while waiting:
                    finished, waiting = wait(waiting, timeout=0.5)
                    for each in finished:
                        each.result()
                    values = {"done": epoch * tokens + done[0], "all": self.config.epochs * tokens}
                    listener(Event("progress", {"what": "tokens learned from", "by_tenths": True, **values}))
            finally:
                is_stopped.set()
        # In a fixed order, since sums of floats depend on it: one thread gives the same bytes.
        terms = math.fsum(count for _, count in told)
        loss = math.fsum(loss for loss, _ in told) / max(1.0, terms)
        listener(Event("epoch", {"epoch": epoch + 1, "epochs": self.config.epochs, "loss": loss}))
        return loss

    def require_learned(self) -> None:
        """Refuse vectors that are as random as they were: no word has ever stood beside another."""
        if not self.tables.outputs.any():  # they begin as zeros, and every prediction moves them
            raise DataError(
                f"nothing was learned from {self.borders[-1]:,} tokens in {self.config.epochs} epochs: no two words "
                f"stood beside each other with model.subsampling={self.config.subsampling:g} and "
                f"model.minimum_count={self.config.minimum_count}; set model.subsampling=0, or give more text"
            )

    def vectors(self, losses: Sequence[float] = ()) -> WordVectors:
        """The vectors as they are now."""
        width, words = self.config.width, len(self.words)
        inputs = self.tables.inputs[:, :width].copy()  # learning may go on
        subwords = None
        vectors = inputs
        if self.config.subwords is not None:
            vectors = pooled_vectors(inputs, self.parts)
            subwords = Subwords(self.config.subwords, inputs[words:])
        outputs = self.tables.outputs[:, :width].copy()
        return WordVectors(self.words, vectors, self.counts, self.symbols, outputs, subwords, tuple(losses))

    def _learn_chunk(self, epoch: int, chunk: int) -> tuple[float, float]:
        first, last = self.borders[chunk], self.borders[chunk + 1]
        share = (epoch + first / self.borders[-1]) / self.config.epochs
        rate = self.config.learning_rate + (self.config.final_rate - self.config.learning_rate) * share
        seed = seed_for(self.seed, "word2vec", epoch, chunk)
        blocks = ((),) * (self.tables.inputs.shape[1] // LANES)
        found = kernels.learn(
            self.text, first, last, self.plan, self.tables, self.noise, self.paths, self.parts,
            self._sizes, float(rate), seed, blocks,
        )  # fmt: skip
        return float(found[0]), float(found[1])

    @property
    def _sizes(self) -> tuple[int, int, int]:
        """The most inputs, outputs and members that a block can have."""
        reach = 2 * self.config.window
        longest_path = int(np.diff(self.paths.starts).max(initial=0))
        longest_parts = int(np.diff(self.parts.starts).max(initial=1))
        outputs = max(1 + self.config.negatives, longest_path, 2 * self.config.contexts)
        return reach, outputs, reach * longest_parts


_NO_LISTS = Lists(np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int8))


def _choose_words(
    text: EncodedText, config: Word2VecConfig
) -> tuple[Int64[np.ndarray, " words"], Int64[np.ndarray, " words"]]:
    """The symbols of words that are frequent enough, by falling count, and their counts."""
    counts = text.counts()
    counts[: len(RESERVED)] = 0
    order = np.argsort(-counts, kind="stable").astype(np.int64)
    symbols = order[counts[order] >= config.minimum_count]
    if not len(symbols):
        most = int(order[0]) if len(order) else 0
        if not counts.any():
            raise DataError(f"there are no words to learn: {len(text.ids):,} tokens, all of them ends or unknown")
        raise DataError(
            f"no word comes {config.minimum_count} times; the most frequent one, {text.vocabulary[most]!r}, comes "
            f"{counts[most]} times; give more text, or set model.minimum_count={counts[most]}"
        )
    if len(symbols) == 1:
        only = int(symbols[0])
        raise DataError(
            f"there is only one word, {text.vocabulary[only]!r}, that comes {config.minimum_count} times or more, and "
            "a word by itself has no company to be known by; give more text, or lower model.minimum_count"
        )
    return symbols, counts[symbols]


def _plan(config: Word2VecConfig) -> Plan:
    architecture = SAMPLED if config.context == "sampled" else _ARCHITECTURES[config.architecture]
    return Plan(
        architecture,
        _POOLINGS[config.pooling],
        _OUTPUTS[config.output],
        config.window,
        config.negatives,
        config.contexts,
        # A tree gives the same nodes to all words of a window, so there is nothing to draw and all to share.
        config.shared_negatives or config.output == "hierarchical",
        config.subwords is not None,
    )


def _random_tables(rows: int, outputs: int, width: int, *, seed: int) -> Tables:
    """Inputs uniform on ±1 / width, as gensim has them, and outputs 0; rows padded to whole blocks."""
    padded = -(-width // LANES) * LANES
    inputs: Float32[np.ndarray, "rows padded"] = np.zeros((rows, padded), np.float32)
    generator = np.random.default_rng(seed_for(seed, "word2vec vectors"))
    inputs[:, :width] = (np.float32(2.0) * generator.random((rows, width), np.float32) - np.float32(1.0)) / np.float32(
        width
    )
    return Tables(inputs, np.zeros((outputs, padded), np.float32))


def _chances(counts: Int64[np.ndarray, " words"], subsampling: float) -> Int64[np.ndarray, " words"]:
    """P(keep w) = √(t / f) + t / f for words with a share f of the text above t, in units of 2⁻³²."""
    if subsampling == 0:
        return np.full(len(counts), ONE, np.int64)
    ratio = subsampling * counts.sum() / counts
    chances: Int64[np.ndarray, " words"] = (np.minimum(1.0, np.sqrt(ratio) + ratio) * ONE).astype(np.int64)
    return chances


def _borders(text: EncodedText) -> tuple[int, ...]:
    """Chunks that end where a sentence ends, unless it is longer than a chunk."""
    borders, tokens = [0], len(text.ids)
    while borders[-1] < tokens:
        begin = borders[-1]
        end = min(begin + CHUNK, tokens)
        if end < tokens:
            ends = np.flatnonzero(text.ids[begin:end] == END)
            end = begin + int(ends[-1]) + 1 if len(ends) else end
        borders.append(end)
    return tuple(borders)


def _cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
