"""Word vectors learned from the company that words keep: word2vec (Mikolov et al., 2013) in all its forms.

    skip-gram   Σ over words x of the window of y    log σ(x · y) + Σ_{k=1…K} log σ(−x · n_k),   n_k ~ count^0.75
    notes       the same for R words of the window, and R random words in place of K for each
    CBOW        the window is pooled into one h:     log σ(h · y) + Σ_{k=1…K} log σ(−h · n_k)
                mean h = Σ x / n, sum h = Σ x;  product (notes): P(y ∣ window) = Π_x σ(x · y), no h at all
    tree        in place of negatives, the hierarchical softmax: log P(y) = Σ_nodes log σ(± h · v_node)

Each word has two vectors, x as an input and y as a prediction; the x are the result. The learning rate falls linearly.
Several threads write into the same vectors without locks (Hogwild, Recht et al., 2011): the result is as good but not
reproducible. One thread gives the same bytes for the same seed.
"""

import math
import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from jaxtyping import Float32, Int32
from pydantic import Field, model_validator

from seqloom.classical.vectors import SubwordConfig, SubwordVectors, WordVectors, parts_of_words, pooled_vectors
from seqloom.classical.word2vec_text import (
    FAST_MATH,
    LEFT_OUT,
    NO_LISTS,
    SENTENCE_END,
    AliasTable,
    Array,
    IndexedText,
    Lists,
    alias_table,
    choose_words,
    chunk_borders,
    draw,
    draw_below,
    draw_noise,
    huffman_codes,
    keep_chances,
    noise_distribution,
)
from seqloom.core.declaration import ModelSettings, ModelSizes, Pieces, Purpose, Reason, TaskKind, TextFacts
from seqloom.core.errors import DataError, ModelError
from seqloom.core.events import Event, Listener, ignore, notice, phase
from seqloom.core.jit import compiled
from seqloom.core.seeds import seed_for
from seqloom.core.symbols import END
from seqloom.text.tokenizer import EncodedText

LANES = 8
"""Numbers in a block of a row: what one instruction of most processors computes."""
SKIPGRAM, SAMPLED, CBOW = 0, 1, 2
MEAN, SUM, PRODUCT = 0, 1, 2
NEGATIVE, HIERARCHICAL = 0, 1
LOSS_EVERY = 8
"""The loss is that of every eighth window: a logarithm costs as much as many products."""

_KEPT = {
    **dict.fromkeys(("vectors", "outputs", "buckets"), ("float32", 2)),
    **dict.fromkeys(("counts", "symbols"), ("int64", 1)),
    "losses": ("float64", 1),
}
"""The arrays of a model directory: their type and number of axes."""


class Word2VecConfig(ModelSettings):
    """Word vectors by word2vec."""

    purpose: ClassVar[Purpose] = "word vectors"
    task_kind: ClassVar[TaskKind] = "fitting"
    pieces: ClassVar[Pieces] = "word"

    kind: Literal["word2vec"] = "word2vec"
    """Which model this is."""
    architecture: Literal["skipgram", "cbow"] = "skipgram"
    """`skipgram`: each word of a window predicts the one in its middle; `cbow`: all of them together do, which is
    faster and worse for rare words."""
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
    """Words of context on each side, at most."""
    output: Literal["negative", "hierarchical"] = "negative"
    """What replaces a softmax over all words: `negative` sampling, or the `hierarchical` softmax over a tree."""
    negatives: int = Field(default=5, ge=0, le=1000)
    """Random words that each word is contrasted with. Without any, all vectors become equal."""
    shared_negatives: bool = True
    """Draw the negatives of skip-gram once per window: several times as fast, and as good. Off: once per pair."""
    noise_power: float = Field(default=0.75, ge=0, le=1)
    """Negatives are drawn by count to this power: 0 uniformly, 1 as frequent as in the text."""
    subsampling: float = Field(default=1e-3, ge=0)
    """Words whose share of the text is above this are left out at random, the more the more frequent; 0 keeps all."""
    minimum_count: int = Field(default=5, ge=1)
    """Words that occur less often are ignored."""
    epochs: int = Field(default=5, ge=1)
    """Passes over the text."""
    learning_rate: float = Field(default=0.025, gt=0)
    """The learning rate at the beginning; it falls linearly."""
    final_rate: float = Field(default=1e-4, ge=0)
    """The learning rate at the end."""
    threads: int | None = Field(default=None, ge=1, le=1000)
    """Default: all cores. Results are reproducible only with 1."""
    subwords: SubwordConfig | None = None
    """Character n-grams as parts of words, so that unseen words have vectors too."""

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

    def sizes_for_text(self, facts: TextFacts, pieces: Pieces) -> ModelSizes:  # noqa: ARG002
        minimum = 5 if facts.words > 200_000 else 2 if facts.words > 20_000 else 1
        width, epochs = (100, 5) if facts.words > 1_000_000 else (50, 20)
        times = "once" if minimum == 1 else f"{minimum} times"
        reasons = (
            Reason(("model.kind", "model.minimum_count"), f"vectors for words seen at least {times}"),
            Reason(("model.kind", "model.width"), f"vectors of width {width}: less text teaches fewer numbers"),
            Reason(("model.kind", "model.epochs"), f"{epochs} passes over the text"),
        )
        return ModelSizes({"width": width, "epochs": epochs, "minimum_count": minimum}, reasons)

    def fit(self, text: EncodedText, *, seed: int, listener: Listener = ignore) -> WordVectors:
        """Learn the vectors of a text."""
        learner = Learner(text, self, seed=seed)
        if learner.threads > 1:
            notice(
                listener,
                f"{learner.threads} threads write into the same vectors without locks: fast, but not reproducible; "
                "model.threads=1 gives the same vectors for the same seed",
            )
        if self.output == "negative" and self.negatives == 0:
            notice(listener, "without negatives all vectors become equal")
        phase(listener, "compiling the loops of word2vec, on first use")
        losses = [learner.learn(epoch, listener=listener) for epoch in range(self.epochs)]
        if not learner.tables.outputs.any():  # they begin as zeros, and every prediction changes them
            raise DataError(
                f"nothing was learned from {len(text.ids):,} tokens in {self.epochs} epochs: no two words were in "
                f"the same window with model.subsampling={self.subsampling:g} and "
                f"model.minimum_count={self.minimum_count}; set model.subsampling=0, or give more text"
            )
        return learner.vectors(losses)

    def describe(self, arrays: Mapping[str, np.ndarray]) -> dict[str, str]:  # noqa: ARG002
        """Nothing beyond its settings."""
        return {}

    def restore(self, arrays: Mapping[str, np.ndarray], vocabulary: Sequence[str]) -> WordVectors:
        """The vectors of a model directory."""
        missing = {"vectors", "counts", "symbols"} - set(arrays)
        if missing:
            raise ModelError(f"not the arrays of word vectors: {', '.join(sorted(missing))} missing")
        for name, (kind, axes) in _KEPT.items():
            if name in arrays and (str(arrays[name].dtype), arrays[name].ndim) != (kind, axes):
                shape = list(arrays[name].shape)
                raise ModelError(
                    f"not the arrays of word vectors: {name} has type {arrays[name].dtype} and shape {shape}"
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
                raise ModelError(f"these vectors have no buckets of shape {wanted}, which the settings require")
            subwords = SubwordVectors(self.subwords, arrays["buckets"])
        return WordVectors(
            tuple(vocabulary[symbol] for symbol in symbols.tolist()),
            arrays["vectors"],
            arrays["counts"],
            symbols,
            arrays.get("outputs"),
            subwords,
            tuple(float(loss) for loss in arrays.get("losses", ())),
        )


class VectorTables(NamedTuple):
    """Input vectors (of words, then of character n-grams) and output vectors (of words or of inner nodes)."""

    inputs: Array
    outputs: Array


class KernelSettings(NamedTuple):
    """The settings, as numbers for compiled code."""

    architecture: int
    pooling: int
    output: int
    window: int
    negatives: int
    contexts: int
    is_shared: bool
    has_parts: bool


class Learner:
    """The words of a text and their vectors, which each epoch updates in place."""

    def __init__(self, text: EncodedText, config: Word2VecConfig, *, seed: int) -> None:
        """Choose the words and give them random vectors."""
        self.config, self.seed = config, seed
        self.symbols, self.counts = choose_words(text, minimum_count=config.minimum_count)
        self.words = tuple(text.vocabulary[symbol] for symbol in self.symbols.tolist())
        row_of: Int32[np.ndarray, " symbols"] = np.full(text.symbols, LEFT_OUT, np.int32)
        row_of[self.symbols] = np.arange(len(self.symbols), dtype=np.int32)
        row_of[END] = SENTENCE_END
        self.text = IndexedText(text.ids, row_of, keep_chances(self.counts, config.subsampling))
        self.borders = chunk_borders(text)
        # The cores that this process may use, where the system reports them.
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self.threads = min(config.threads or cores, len(self.borders) - 1)
        is_tree = config.output == "hierarchical"
        self.noise = alias_table(noise_distribution(self.counts, config.noise_power))
        self.paths = huffman_codes(self.counts) if is_tree else NO_LISTS
        self.parts = NO_LISTS if config.subwords is None else parts_of_words(self.words, config.subwords)
        self.plan = KernelSettings(
            SAMPLED if config.context == "sampled" else {"skipgram": SKIPGRAM, "cbow": CBOW}[config.architecture],
            {"mean": MEAN, "sum": SUM, "product": PRODUCT}[config.pooling],
            HIERARCHICAL if is_tree else NEGATIVE,
            config.window,
            config.negatives,
            config.contexts,
            # A tree gives the same nodes to all words of a window, so there is nothing to draw and all to share.
            config.shared_negatives or is_tree,
            config.subwords is not None,
        )
        # Inputs are uniform on ±1 / width, as gensim has them, and outputs 0; rows are padded to whole blocks.
        width, padded = config.width, -(-config.width // LANES) * LANES
        rows = len(self.words) + (0 if config.subwords is None else config.subwords.buckets)
        inputs: Float32[np.ndarray, "rows padded"] = np.zeros((rows, padded), np.float32)
        drawn = np.random.default_rng(seed_for(seed, "word2vec vectors")).random((rows, width), np.float32)
        inputs[:, :width] = (np.float32(2.0) * drawn - np.float32(1.0)) / np.float32(width)
        self.tables = VectorTables(inputs, np.zeros((len(self.words) - is_tree, padded), np.float32))

    def learn(self, epoch: int, *, listener: Listener = ignore) -> float:
        """Go through the text once; the mean loss per prediction, in nats."""
        config, tokens = self.config, self.borders[-1]
        # The most inputs, outputs and members that a block can have.
        reach = 2 * config.window
        longest_path, longest_parts = (int(np.diff(each.starts).max(initial=0)) for each in (self.paths, self.parts))
        outputs = max(1 + config.negatives, longest_path, 2 * config.contexts)
        sizes = reach, outputs, reach * max(1, longest_parts)
        blocks = ((),) * (self.tables.inputs.shape[1] // LANES)
        losses: list[tuple[float, float]] = []
        chunks, lock, is_stopped = iter(enumerate(pairwise(self.borders))), threading.Lock(), threading.Event()
        done = [0]

        def work() -> None:
            while not is_stopped.is_set():
                with lock:
                    chunk, (first, last) = next(chunks, (None, (0, 0)))
                if chunk is None:
                    return
                share = (epoch + first / tokens) / config.epochs
                rate = config.learning_rate + (config.final_rate - config.learning_rate) * share
                loss = learn(
                    self.text, first, last, self.plan, self.tables, self.noise, self.paths, self.parts,
                    sizes, float(rate), seed_for(self.seed, "word2vec", epoch, chunk), blocks,
                )  # fmt: skip
                with lock:
                    losses.append(loss)
                    done[0] += last - first

        with ThreadPoolExecutor(self.threads) as pool:
            try:
                waiting = {pool.submit(work) for _ in range(self.threads)}
                while waiting:
                    finished, waiting = wait(waiting, timeout=0.5)
                    for each in finished:
                        each.result()
                    values = {"done": epoch * tokens + done[0], "all": config.epochs * tokens}
                    listener(Event("progress", {"what": "tokens learned from", "by_tenths": True, **values}))
            finally:
                is_stopped.set()
        # Exact sums: their result does not depend on the order in which threads finished.
        terms = math.fsum(count for _, count in losses)
        loss = math.fsum(loss for loss, _ in losses) / max(1.0, terms)
        listener(Event("epoch", {"epoch": epoch + 1, "epochs": config.epochs, "loss": loss}))
        return loss

    def vectors(self, losses: Sequence[float] = ()) -> WordVectors:
        """The current vectors."""
        width, words = self.config.width, len(self.words)
        inputs = self.tables.inputs[:, :width].copy()  # learning may continue
        subwords = None
        vectors = inputs
        if self.config.subwords is not None:
            vectors = pooled_vectors(inputs, self.parts)
            subwords = SubwordVectors(self.config.subwords, inputs[words:])
        outputs = self.tables.outputs[:, :width].copy()
        return WordVectors(self.words, vectors, self.counts, self.symbols, outputs, subwords, tuple(losses))


# --- one step on a block ----------------------------------------------------------------------------------------------
#
# Every form of word2vec is one step on a block of a few input vectors x_j and output vectors o_k with labels y_k:
#
#     s_jk = x_j · o_k                                       score
#     g_jk = η (y_k − σ(s_jk))                               independent pairs
#     g_jk = η (1 − σ(s_jk)) · (1 where y_k = 1, else −p_k / (1 − p_k)),   p_k = Π_j σ(s_jk)      pooling: product
#     x_j += Σ_k g_jk o_k,   o_k += Σ_j g_jk x_j             both from the old values
#
# A word2vec that takes pair after pair reads an output vector for each dot product. Here the negatives are drawn once
# per window and shared by its words (Ji et al., 2016), so that a block of about 6 × 6 scores reads 12 vectors instead
# of 42, and its three products stay in registers and the L1 cache.
#
# The width is given by the length of a tuple, `blocks`: lengths of tuples are part of a type, so the compiler knows how
# often each inner loop runs and needs no remainder. Rows are padded to blocks of eight numbers; the padding stays 0.


class Workspace(NamedTuple):
    """Buffers for one block: vectors, their steps, scores, and the rows that they belong to."""

    inputs: Array
    input_steps: Array
    outputs: Array
    output_steps: Array
    scores: Array
    input_rows: Array
    output_rows: Array
    labels: Array
    contexts: Array
    random: Array
    """The state of the generator."""
    losses: Array
    """Minus the sum of log-probabilities, and how many there were."""


@compiled(fast=FAST_MATH, is_inlined=True)
def score_block(space: Workspace, inputs: int, outputs: int, blocks: Any) -> None:
    """s_jk, three outputs at a time so that each number of x_j is read once for three products."""
    width = LANES * len(blocks)
    x, o, scores = space.inputs, space.outputs, space.scores
    for j in range(inputs):
        k = 0
        while k + 3 <= outputs:
            first = second = third = np.float32(0.0)
            for d in range(width):
                first += x[j, d] * o[k, d]
                second += x[j, d] * o[k + 1, d]
                third += x[j, d] * o[k + 2, d]
            at = j * outputs + k
            scores[at], scores[at + 1], scores[at + 2] = first, second, third
            k += 3
        while k < outputs:
            first = np.float32(0.0)
            for d in range(width):
                first += x[j, d] * o[k, d]
            scores[j * outputs + k] = first
            k += 1


@compiled(fast=FAST_MATH, is_inlined=True)
def sigmoids(scores: Array, count: int) -> None:
    """σ(s) = ½ + ½ tanh(s / 2) in place, without a table and without exp, so that it runs on whole blocks.

    tanh is the ninth convergent of Lambert's fraction x / (1 + x² / (3 + x² / (5 + …))), which stays within 7e-6 up to
    the point where it passes 1; beyond it, the value there is used.
    """
    for at in range(count):
        x = min(max(np.float32(0.5) * scores[at], np.float32(-6.29)), np.float32(6.29))
        y = x * x
        above = ((y + np.float32(990)) * y + np.float32(135135)) * y + np.float32(4729725)
        above = above * y + np.float32(34459425)
        below = ((np.float32(45) * y + np.float32(13860)) * y + np.float32(945945)) * y + np.float32(16216200)
        below = below * y + np.float32(34459425)
        scores[at] = np.float32(0.5) + np.float32(0.5) * (x * above / below)


@compiled(fast=FAST_MATH, is_inlined=True)
def product_gradients(space: Workspace, inputs: int, outputs: int, rate: float) -> None:
    """g_jk of the product in place of σ(s_jk); 1 − p_k is built up so that it stays exact where p_k is nearly 1."""
    scores, labels = space.scores, space.labels
    for k in range(outputs):
        product, rest = 1.0, 0.0
        for j in range(inputs):
            miss = 1.0 - scores[j * outputs + k]
            rest += product * miss
            product *= 1.0 - miss
        factor = rate if labels[k] > 0.5 else -rate * product / max(rest, 1e-12)
        for j in range(inputs):
            scores[j * outputs + k] = np.float32(factor * (1.0 - scores[j * outputs + k]))


@compiled(fast=FAST_MATH, is_inlined=True)
def add_losses(space: Workspace, inputs: int, outputs: int, is_product: bool) -> None:
    """− log P of what the labels say, from σ(s_jk)."""
    scores, labels, losses = space.scores, space.labels, space.losses
    for k in range(outputs):
        product = 1.0
        for j in range(inputs):
            probability = float(scores[j * outputs + k])
            if is_product:
                product *= probability
                continue
            losses[0] -= math.log(max(1e-30, probability if labels[k] > 0.5 else 1.0 - probability))
            losses[1] += 1.0
        if is_product:
            losses[0] -= math.log(max(1e-30, product if labels[k] > 0.5 else 1.0 - product))
            losses[1] += 1.0


@compiled(fast=FAST_MATH, is_inlined=True)
def steps_of_block(space: Workspace, inputs: int, outputs: int, blocks: Any) -> None:
    """Σ_k g_jk o_k and Σ_j g_jk x_j, three at a time."""
    width = LANES * len(blocks)
    x, o, g = space.inputs, space.outputs, space.scores
    input_steps, output_steps = space.input_steps, space.output_steps
    for j in range(inputs):
        for d in range(width):
            input_steps[j, d] = np.float32(0.0)
        k = 0
        while k + 3 <= outputs:
            at = j * outputs + k
            first, second, third = g[at], g[at + 1], g[at + 2]
            for d in range(width):
                input_steps[j, d] += first * o[k, d] + second * o[k + 1, d] + third * o[k + 2, d]
            k += 3
        while k < outputs:
            first = g[j * outputs + k]
            for d in range(width):
                input_steps[j, d] += first * o[k, d]
            k += 1
    for k in range(outputs):
        for d in range(width):
            output_steps[k, d] = np.float32(0.0)
        j = 0
        while j + 3 <= inputs:
            first, second, third = g[j * outputs + k], g[(j + 1) * outputs + k], g[(j + 2) * outputs + k]
            for d in range(width):
                output_steps[k, d] += first * x[j, d] + second * x[j + 1, d] + third * x[j + 2, d]
            j += 3
        while j < inputs:
            first = g[j * outputs + k]
            for d in range(width):
                output_steps[k, d] += first * x[j, d]
            j += 1


@compiled(fast=FAST_MATH, is_inlined=True)
def gather(table: Array, rows: Array, count: int, out: Array, blocks: Any) -> None:
    """Copy rows of a table into consecutive rows."""
    for place in range(count):
        row = rows[place]
        for d in range(LANES * len(blocks)):
            out[place, d] = table[row, d]


@compiled(fast=FAST_MATH, is_inlined=True)
def scatter(table: Array, rows: Array, count: int, steps: Array, blocks: Any) -> None:
    """Add a step to each of these rows; a row that is listed twice gets both."""
    for place in range(count):
        row = rows[place]
        for d in range(LANES * len(blocks)):
            table[row, d] += steps[place, d]


@compiled(fast=FAST_MATH, is_inlined=True)
def score_row(table: Array, space: Workspace, outputs: int, blocks: Any) -> None:
    """s_0k of one input, read from the table itself: a copy pays only if several inputs use it."""
    width = LANES * len(blocks)
    x, rows, scores = space.inputs, space.output_rows, space.scores
    k = 0
    while k + 3 <= outputs:
        one, two, three = rows[k], rows[k + 1], rows[k + 2]
        first = second = third = np.float32(0.0)
        for d in range(width):
            first += x[0, d] * table[one, d]
            second += x[0, d] * table[two, d]
            third += x[0, d] * table[three, d]
        scores[k], scores[k + 1], scores[k + 2] = first, second, third
        k += 3
    while k < outputs:
        one = rows[k]
        first = np.float32(0.0)
        for d in range(width):
            first += x[0, d] * table[one, d]
        scores[k] = first
        k += 1


@compiled(fast=FAST_MATH, is_inlined=True)
def steps_of_row(table: Array, space: Workspace, outputs: int, blocks: Any) -> None:
    """Σ_k g_0k o_k from the old outputs, then o_k += g_0k x_0 in their places."""
    width = LANES * len(blocks)
    x, rows, g, steps = space.inputs, space.output_rows, space.scores, space.input_steps
    for d in range(width):
        steps[0, d] = np.float32(0.0)
    k = 0
    while k + 3 <= outputs:
        one, two, three = rows[k], rows[k + 1], rows[k + 2]
        first, second, third = g[k], g[k + 1], g[k + 2]
        for d in range(width):
            steps[0, d] += first * table[one, d] + second * table[two, d] + third * table[three, d]
        k += 3
    while k < outputs:
        one, first = rows[k], g[k]
        for d in range(width):
            steps[0, d] += first * table[one, d]
        k += 1
    for k in range(outputs):
        one, first = rows[k], g[k]
        for d in range(width):
            table[one, d] += first * x[0, d]


@compiled(fast=FAST_MATH, is_inlined=True)
def step_on_block(
    table: Array, space: Workspace, inputs: int, outputs: int, pooling: int, rate: float, counts_loss: bool, blocks: Any
) -> None:
    """One step on input vectors that are already in place and on the output rows that are listed.

    The outputs are updated; the caller adds the steps of the inputs.
    """
    if inputs == 1:
        score_row(table, space, outputs, blocks)
    else:
        gather(table, space.output_rows, outputs, space.outputs, blocks)
        score_block(space, inputs, outputs, blocks)
    sigmoids(space.scores, inputs * outputs)
    if counts_loss:
        add_losses(space, inputs, outputs, pooling == PRODUCT)
    if pooling == PRODUCT:
        product_gradients(space, inputs, outputs, rate)
    else:
        for j in range(inputs):
            for k in range(outputs):
                space.scores[j * outputs + k] = np.float32(rate) * (space.labels[k] - space.scores[j * outputs + k])
    if inputs == 1:
        steps_of_row(table, space, outputs, blocks)
    else:
        steps_of_block(space, inputs, outputs, blocks)
        scatter(table, space.output_rows, outputs, space.output_steps, blocks)


# --- the windows of a text --------------------------------------------------------------------------------------------


@compiled(fast=FAST_MATH, is_inlined=True)
def list_outputs(word: int, plan: KernelSettings, noise: AliasTable, paths: Lists, space: Workspace) -> int:
    """What predicts a word: itself and its negatives, or the inner nodes on the way to it; how many."""
    count = 0
    if plan.output == HIERARCHICAL:
        for place in range(paths.starts[word], paths.starts[word + 1]):
            space.output_rows[count] = paths.members[place]
            space.labels[count] = np.float32(1 - paths.codes[place])
            count += 1
        return count
    space.output_rows[0] = word
    space.labels[0] = np.float32(1.0)
    count = 1
    for _ in range(plan.negatives):
        other = draw_noise(space.random, noise)
        if other != word:  # as in word2vec: one negative less, not another draw
            space.output_rows[count] = other
            space.labels[count] = np.float32(0.0)
            count += 1
    return count


@compiled(fast=FAST_MATH, is_inlined=True)
def sample_outputs(found: int, plan: KernelSettings, noise: AliasTable, space: Workspace) -> int:
    """The form of the notes: R words of the window are positives, R random words negatives; how many in all."""
    positives = min(found, plan.contexts)
    for place in range(positives):  # the beginning of a shuffle
        other = place + draw_below(space.random, found - place)
        chosen = space.contexts[other]
        space.contexts[other] = space.contexts[place]
        space.contexts[place] = chosen
        space.output_rows[place] = chosen
        space.labels[place] = np.float32(1.0)
    for place in range(positives, 2 * positives):
        space.output_rows[place] = draw_noise(space.random, noise)
        space.labels[place] = np.float32(0.0)
    return 2 * positives


@compiled(fast=FAST_MATH, is_inlined=True)
def pool(table: Array, space: Workspace, members: int, is_mean: bool, blocks: Any) -> None:
    """The sum or the mean of the listed input rows, as the first input of the block."""
    width = LANES * len(blocks)
    pooled, rows = space.inputs, space.input_rows
    for d in range(width):
        pooled[0, d] = np.float32(0.0)
    for place in range(members):
        row = rows[place]
        for d in range(width):
            pooled[0, d] += table[row, d]
    share = np.float32(1.0 / members) if is_mean else np.float32(1.0)
    for d in range(width):
        pooled[0, d] *= share


@compiled(fast=FAST_MATH, is_inlined=True)
def unpool(table: Array, space: Workspace, members: int, is_mean: bool, blocks: Any) -> None:
    """Add the step of the pooled input to each listed row, as word2vec does."""
    width = LANES * len(blocks)
    steps, rows = space.input_steps, space.input_rows
    share = np.float32(1.0) if is_mean else np.float32(1.0 / members)
    for d in range(width):
        steps[0, d] *= share
    for place in range(members):
        row = rows[place]
        for d in range(width):
            table[row, d] += steps[0, d]


@compiled(fast=FAST_MATH)
def learn_window(
    words: Array, i: int, found: int, plan: KernelSettings, tables: VectorTables, noise: AliasTable,
    paths: Lists, parts: Lists, space: Workspace, rate: float, blocks: Any,
) -> None:  # fmt: skip
    """The steps of one window, whose words are listed in `space.contexts`.

    CBOW                        all words of the window → the middle
    skip-gram                   all words of the window, each for itself → the middle and shared negatives
    skip-gram, per pair         a word of the window → the middle, one after another
    skip-gram with parts        the middle, pooled → a word of the window, one after another (fastText)
    skip-gram of the notes      the middle → R words of the window and R random ones
    """
    is_cbow, is_sampled = plan.architecture == CBOW, plan.architecture == SAMPLED
    gives_middle = is_sampled or (plan.has_parts and not is_cbow)
    gives_all = is_cbow or (plan.is_shared and not gives_middle)
    is_pooled = plan.has_parts or (is_cbow and plan.pooling != PRODUCT)
    is_mean = plan.pooling != SUM
    pooling = plan.pooling if is_cbow else MEAN
    for number in range(1 if gives_all or is_sampled else found):
        if is_sampled:
            outputs = sample_outputs(found, plan, noise, space)
        else:
            target = space.contexts[number] if gives_middle else words[i]
            outputs = list_outputs(target, plan, noise, paths, space)
        members = 0
        for place in range(found if gives_all else 1):
            given = words[i] if gives_middle else space.contexts[place if gives_all else number]
            if plan.has_parts:
                for at in range(parts.starts[given], parts.starts[given + 1]):
                    space.input_rows[members] = parts.members[at]
                    members += 1
            else:
                space.input_rows[members] = given
                members += 1
        if is_pooled:
            pool(tables.inputs, space, members, is_mean, blocks)
        else:
            gather(tables.inputs, space.input_rows, members, space.inputs, blocks)
        inputs, counts_loss = 1 if is_pooled else members, i % LOSS_EVERY == 0
        step_on_block(tables.outputs, space, inputs, outputs, pooling, rate, counts_loss, blocks)
        if is_pooled:
            unpool(tables.inputs, space, members, is_mean, blocks)
        else:
            scatter(tables.inputs, space.input_rows, members, space.input_steps, blocks)


@compiled(fast=FAST_MATH)
def learn(
    text: IndexedText, first: int, last: int, plan: KernelSettings, tables: VectorTables,
    noise: AliasTable, paths: Lists, parts: Lists, sizes: Any, rate: float, seed: int, blocks: Any,
) -> Any:  # fmt: skip
    """Learn from the tokens from `first` up to `last`; the loss of some windows and the number of its terms.

    A window passes no end of a sentence, and neither end of the range. Frequent words are left out at random before
    windows are laid, so that the others come nearer to each other (Mikolov et al., 2013). The reach of a window is
    drawn from 1 to its full width, so that near words count more.
    """
    inputs, outputs, members = sizes
    width = LANES * len(blocks)
    space = Workspace(
        np.zeros((inputs, width), np.float32),
        np.zeros((inputs, width), np.float32),
        np.zeros((outputs, width), np.float32),
        np.zeros((outputs, width), np.float32),
        np.zeros(inputs * outputs, np.float32),
        np.zeros(members, np.int64),
        np.zeros(outputs, np.int64),
        np.zeros(outputs, np.float32),
        np.zeros(2 * plan.window, np.int64),
        np.array([seed], np.uint64),
        np.zeros(2),
    )
    words = np.empty(last - first, np.int64)
    length = 0
    for token in range(first, last + 1):
        row = text.row_of[text.ids[token]] if token < last else SENTENCE_END
        if row >= 0 and np.int64(draw(space.random) >> np.uint64(32)) < text.keep[row]:
            words[length] = row
            length += 1
        if row != SENTENCE_END:
            continue
        for i in range(length):
            reach = plan.window
            if plan.architecture != SAMPLED:
                reach -= draw_below(space.random, plan.window)
            found = 0
            for place in range(max(0, i - reach), min(length, i + reach + 1)):
                if place != i:
                    space.contexts[found] = words[place]
                    found += 1
            if found > 0:
                learn_window(words, i, found, plan, tables, noise, paths, parts, space, rate, blocks)
        length = 0
    return space.losses[0], space.losses[1]
