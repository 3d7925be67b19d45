"""The compiled loops of word vectors: windows of a text, and the step that each window makes.

Every form of word2vec is one step on a block of a few input vectors x_j and output vectors o_k with labels y_k:

    s_jk = x_j · o_k                                       score
    g_jk = η (y_k − σ(s_jk))                               independent pairs
    g_jk = η (1 − σ(s_jk)) · (1 where y_k = 1, else −p_k / (1 − p_k)),   p_k = Π_j σ(s_jk)      the product of the notes
    x_j += Σ_k g_jk o_k,   o_k += Σ_j g_jk x_j             both from the old values

A word2vec that takes pair after pair reads an output vector for each dot product. Here the negatives are drawn once
per window and shared by its words (Ji et al., 2016), so that a block of about 6 × 6 scores reads 12 vectors instead of
42, and its three products stay in registers and the nearest cache.

The width is told by the length of a tuple, `blocks`: lengths of tuples are part of a type, so the compiler knows how
often each inner loop runs and leaves no remainder. Rows are padded to blocks of eight numbers, the padding stays 0.
Arguments are given by place: that is how compiled code is called.
"""

import inspect
import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import numba
import numpy as np

Array = Any
"""numba finds out types and shapes by itself."""
F = TypeVar("F", bound=Callable[..., Any])

LANES = 8
"""Numbers in a block of a row: what one instruction of most processors works on."""
SENTENCE_END, LEFT_OUT = -1, -2
"""What stands in place of the row of a word: a sentence ends here, or the word is too rare."""
SKIPGRAM, SAMPLED, CBOW = 0, 1, 2
MEAN, SUM, PRODUCT = 0, 1, 2
NEGATIVE, HIERARCHICAL = 0, 1
LOSS_EVERY = 8
"""The loss is that of every eighth window: a logarithm costs as much as many products."""

# Sums may be taken in another order and products joined with sums; what is not finite keeps its meaning.
_FAST = {"reassoc", "contract", "nsz", "arcp"}


def compiled(function: F) -> F:
    """The function as machine code that lets other threads run, kept on disk if there is a place for it."""
    plain = inspect.unwrap(function)  # as it was written: the test run wraps type checks round it
    try:
        return cast("F", numba.njit(plain, cache=True, nogil=True, error_model="numpy", fastmath=_FAST))
    except RuntimeError:  # no folder that can be written to
        return cast("F", numba.njit(plain, nogil=True, error_model="numpy", fastmath=_FAST))


class Text(NamedTuple):
    """Ids, the row of each symbol (or SENTENCE_END, LEFT_OUT), and the chance of each row to stay, in units of 2⁻³²."""

    ids: Array
    row_of: Array
    keep: Array


class Tables(NamedTuple):
    """Input vectors (of words, then of character n-grams) and output vectors (of words or of inner nodes)."""

    inputs: Array
    outputs: Array


class Noise(NamedTuple):
    """An alias table: entry e is taken with a chance of thresholds[e] · 2⁻³², else aliases[e]."""

    thresholds: Array
    aliases: Array


class Lists(NamedTuple):
    """A list for each word, from `starts[word]` up to `starts[word + 1]`: nodes of its path, or rows of its parts."""

    starts: Array
    members: Array
    codes: Array
    """Of a path: which way it goes at each node; empty for parts."""


class Plan(NamedTuple):
    """The settings, as numbers."""

    architecture: int
    pooling: int
    output: int
    window: int
    negatives: int
    contexts: int
    is_shared: bool
    has_parts: bool


class Space(NamedTuple):
    """Room for one block: vectors, their steps, scores, and which rows they belong to."""

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


# --- random numbers ---------------------------------------------------------------------------------------------------


@compiled
def draw(random: Array) -> int:
    """64 random bits (splitmix64): a counter with large steps, its bits mixed."""
    random[0] += np.uint64(0x9E3779B97F4A7C15)
    z = random[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))  # type: ignore[no-any-return]


@compiled
def draw_below(random: Array, limit: int) -> int:
    """A whole number from 0 to limit − 1; a limit far below 2³² leaves no bias that could be measured."""
    return np.int64(((draw(random) >> np.uint64(32)) * np.uint64(limit)) >> np.uint64(32))  # type: ignore[return-value]


@compiled
def draw_noise(random: Array, noise: Noise) -> int:
    """A row from the alias table: the upper half of the bits chooses the entry, the lower half decides."""
    bits = draw(random)
    entry = np.int64(((bits >> np.uint64(32)) * np.uint64(len(noise.aliases))) >> np.uint64(32))
    is_itself = np.int64(bits & np.uint64(0xFFFFFFFF)) < noise.thresholds[entry]
    return entry if is_itself else np.int64(noise.aliases[entry])  # type: ignore[return-value]


@compiled
def draw_many(seed: int, noise: Noise, out: Array) -> None:
    """Rows from the alias table."""
    random = np.array([seed], np.uint64)
    for place in range(len(out)):
        out[place] = draw_noise(random, noise)


# --- one step on a block ----------------------------------------------------------------------------------------------


@compiled
def score_block(space: Space, inputs: int, outputs: int, blocks: Any) -> None:
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


@compiled
def sigmoids(scores: Array, count: int) -> None:
    """σ(s) = ½ + ½ tanh(s / 2) in place, without a table and without exp, so that it runs on whole blocks.

    tanh is the ninth convergent of Lambert's fraction x / (1 + x² / (3 + x² / (5 + …))), which stays within 7e-6 up to
    the point where it passes 1; beyond it, all is as there.
    """
    for at in range(count):
        x = min(max(np.float32(0.5) * scores[at], np.float32(-6.29)), np.float32(6.29))
        y = x * x
        above = ((y + np.float32(990)) * y + np.float32(135135)) * y + np.float32(4729725)
        above = above * y + np.float32(34459425)
        below = ((np.float32(45) * y + np.float32(13860)) * y + np.float32(945945)) * y + np.float32(16216200)
        below = below * y + np.float32(34459425)
        scores[at] = np.float32(0.5) + np.float32(0.5) * (x * above / below)


@compiled
def pair_gradients(space: Space, inputs: int, outputs: int, rate: float) -> None:
    """g_jk of independent pairs in place of σ(s_jk)."""
    scores, labels, step = space.scores, space.labels, np.float32(rate)
    for j in range(inputs):
        for k in range(outputs):
            scores[j * outputs + k] = step * (labels[k] - scores[j * outputs + k])


@compiled
def product_gradients(space: Space, inputs: int, outputs: int, rate: float) -> None:
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


@compiled
def add_losses(space: Space, inputs: int, outputs: int, is_product: bool) -> None:
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


@compiled
def steps_of_block(space: Space, inputs: int, outputs: int, blocks: Any) -> None:
    """Σ_k g_jk o_k and Σ_j g_jk x_j, three at a time."""
    width = LANES * len(blocks)
    x, o, g = space.inputs, space.outputs, space.scores
    for j in range(inputs):
        step = space.input_steps[j]
        for d in range(width):
            step[d] = np.float32(0.0)
        k = 0
        while k + 3 <= outputs:
            at = j * outputs + k
            first, second, third = g[at], g[at + 1], g[at + 2]
            for d in range(width):
                step[d] += first * o[k, d] + second * o[k + 1, d] + third * o[k + 2, d]
            k += 3
        while k < outputs:
            first = g[j * outputs + k]
            for d in range(width):
                step[d] += first * o[k, d]
            k += 1
    for k in range(outputs):
        step = space.output_steps[k]
        for d in range(width):
            step[d] = np.float32(0.0)
        j = 0
        while j + 3 <= inputs:
            first, second, third = g[j * outputs + k], g[(j + 1) * outputs + k], g[(j + 2) * outputs + k]
            for d in range(width):
                step[d] += first * x[j, d] + second * x[j + 1, d] + third * x[j + 2, d]
            j += 3
        while j < inputs:
            first = g[j * outputs + k]
            for d in range(width):
                step[d] += first * x[j, d]
            j += 1


@compiled
def gather(table: Array, rows: Array, count: int, out: Array, blocks: Any) -> None:
    """Copy rows of a table side by side."""
    for place in range(count):
        row = rows[place]
        for d in range(LANES * len(blocks)):
            out[place, d] = table[row, d]


@compiled
def scatter(table: Array, rows: Array, count: int, steps: Array, blocks: Any) -> None:
    """Add a step to each of these rows; a row that stands there twice gets both."""
    for place in range(count):
        row = rows[place]
        for d in range(LANES * len(blocks)):
            table[row, d] += steps[place, d]


@compiled
def step_on_block(
    tables: Tables, space: Space, inputs: int, outputs: int, pooling: int, rate: float, is_told: bool, blocks: Any
) -> None:
    """One step on input vectors that stand in their places already and on the output rows that are listed.

    The outputs are changed, the steps of the inputs are left to be added.
    """
    if inputs == 0 or outputs == 0:
        return
    gather(tables.outputs, space.output_rows, outputs, space.outputs, blocks)
    score_block(space, inputs, outputs, blocks)
    sigmoids(space.scores, inputs * outputs)
    if is_told:
        add_losses(space, inputs, outputs, pooling == PRODUCT)
    if pooling == PRODUCT:
        product_gradients(space, inputs, outputs, rate)
    else:
        pair_gradients(space, inputs, outputs, rate)
    steps_of_block(space, inputs, outputs, blocks)
    scatter(tables.outputs, space.output_rows, outputs, space.output_steps, blocks)


# --- which vectors a window brings together ---------------------------------------------------------------------------


@compiled
def list_outputs(word: int, plan: Plan, noise: Noise, paths: Lists, space: Space) -> int:
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
        if other != word:  # as in word2vec: one negative less, rather than another draw
            space.output_rows[count] = other
            space.labels[count] = np.float32(0.0)
            count += 1
    return count


@compiled
def list_contexts(words: Array, centre: int, first: int, last: int, out: Array) -> int:
    """The words round the centre; how many."""
    count = 0
    for place in range(first, last):
        if place != centre:
            out[count] = words[place]
            count += 1
    return count


@compiled
def list_members(words: Array, count: int, parts: Lists, plan: Plan, space: Space) -> int:
    """The input rows that some words are pooled from: themselves, or all their parts; how many."""
    if not plan.has_parts:
        for place in range(count):
            space.input_rows[place] = words[place]
        return count
    total = 0
    for place in range(count):
        for at in range(parts.starts[words[place]], parts.starts[words[place] + 1]):
            space.input_rows[total] = parts.members[at]
            total += 1
    return total


@compiled
def pool(tables: Tables, space: Space, members: int, is_mean: bool, blocks: Any) -> None:
    """The sum or the mean of the listed input rows, as the first input of the block."""
    width = LANES * len(blocks)
    pooled = space.inputs[0]
    for d in range(width):
        pooled[d] = np.float32(0.0)
    for place in range(members):
        row = space.input_rows[place]
        for d in range(width):
            pooled[d] += tables.inputs[row, d]
    if is_mean:
        share = np.float32(1.0 / members)
        for d in range(width):
            pooled[d] *= share


@compiled
def unpool(tables: Tables, space: Space, members: int, is_mean: bool, blocks: Any) -> None:
    """Move the listed rows so that what they pool to moves by the step of the first input, as word2vec does."""
    width = LANES * len(blocks)
    step = space.input_steps[0]
    if not is_mean:
        share = np.float32(1.0 / members)
        for d in range(width):
            step[d] *= share
    for place in range(members):
        row = space.input_rows[place]
        for d in range(width):
            tables.inputs[row, d] += step[d]


@compiled
def predict_centre(
    words: Array, i: int, found: int, plan: Plan, tables: Tables, noise: Noise, paths: Lists, parts: Lists,
    space: Space, rate: float, is_told: bool, blocks: Any,
) -> None:  # fmt: skip
    """CBOW: the words of the window together predict the one in their middle."""
    outputs = list_outputs(words[i], plan, noise, paths, space)
    members = list_members(space.contexts, found, parts, plan, space)
    if plan.pooling == PRODUCT:
        gather(tables.inputs, space.input_rows, members, space.inputs, blocks)
        step_on_block(tables, space, members, outputs, PRODUCT, rate, is_told, blocks)
        scatter(tables.inputs, space.input_rows, members, space.input_steps, blocks)
        return
    is_mean = plan.pooling == MEAN
    pool(tables, space, members, is_mean, blocks)
    step_on_block(tables, space, 1, outputs, plan.pooling, rate, is_told, blocks)
    unpool(tables, space, members, is_mean, blocks)


@compiled
def pair_up(
    words: Array, i: int, found: int, plan: Plan, tables: Tables, noise: Noise, paths: Lists, parts: Lists,
    space: Space, rate: float, is_told: bool, blocks: Any,
) -> None:  # fmt: skip
    """Skip-gram: each word of the window with the one in its middle."""
    if plan.has_parts:
        pair_up_parts(words, i, found, plan, tables, noise, paths, parts, space, rate, is_told, blocks)
    elif plan.is_shared:
        outputs = list_outputs(words[i], plan, noise, paths, space)
        gather(tables.inputs, space.contexts, found, space.inputs, blocks)
        step_on_block(tables, space, found, outputs, MEAN, rate, is_told, blocks)
        scatter(tables.inputs, space.contexts, found, space.input_steps, blocks)
    else:
        for place in range(found):
            space.input_rows[0] = space.contexts[place]
            outputs = list_outputs(words[i], plan, noise, paths, space)
            gather(tables.inputs, space.input_rows, 1, space.inputs, blocks)
            step_on_block(tables, space, 1, outputs, MEAN, rate, is_told, blocks)
            scatter(tables.inputs, space.input_rows, 1, space.input_steps, blocks)


@compiled
def pair_up_parts(
    words: Array, i: int, found: int, plan: Plan, tables: Tables, noise: Noise, paths: Lists, parts: Lists,
    space: Space, rate: float, is_told: bool, blocks: Any,
) -> None:  # fmt: skip
    """The same where words have parts (Bojanowski et al., 2017): the middle is pooled once and predicts each word."""
    members = list_members(words[i : i + 1], 1, parts, plan, space)
    pool(tables, space, members, True, blocks)
    before = space.inputs[0].copy()
    for place in range(found):
        outputs = list_outputs(space.contexts[place], plan, noise, paths, space)
        step_on_block(tables, space, 1, outputs, MEAN, rate, is_told, blocks)
        for d in range(LANES * len(blocks)):
            space.inputs[0, d] += space.input_steps[0, d]
    for d in range(LANES * len(blocks)):
        space.input_steps[0, d] = space.inputs[0, d] - before[d]
    unpool(tables, space, members, True, blocks)


@compiled
def pair_up_sampled(
    words: Array, i: int, found: int, plan: Plan, tables: Tables, noise: Noise, parts: Lists,
    space: Space, rate: float, is_told: bool, blocks: Any,
) -> None:  # fmt: skip
    """Skip-gram of the notes: R words of the window are positives of the middle, R random words its negatives."""
    positives = min(found, plan.contexts)
    for place in range(positives):  # the beginning of a shuffle
        other = place + draw_below(space.random, found - place)
        space.contexts[place], space.contexts[other] = space.contexts[other], space.contexts[place]
        space.output_rows[place] = space.contexts[place]
        space.labels[place] = np.float32(1.0)
    for place in range(positives, 2 * positives):
        space.output_rows[place] = draw_noise(space.random, noise)
        space.labels[place] = np.float32(0.0)
    members = list_members(words[i : i + 1], 1, parts, plan, space)
    pool(tables, space, members, True, blocks)
    step_on_block(tables, space, 1, 2 * positives, MEAN, rate, is_told, blocks)
    unpool(tables, space, members, True, blocks)


# --- the text ---------------------------------------------------------------------------------------------------------


@compiled
def learn_sentence(
    words: Array, length: int, plan: Plan, tables: Tables, noise: Noise, paths: Lists, parts: Lists,
    space: Space, rate: float, blocks: Any,
) -> None:  # fmt: skip
    """A step for the window round each word; its reach is drawn from 1 … window, so that near words count more."""
    for i in range(length):
        reach = plan.window
        if plan.architecture != SAMPLED:
            reach -= draw_below(space.random, plan.window)
        found = list_contexts(words, i, max(0, i - reach), min(length, i + reach + 1), space.contexts)
        if found == 0:
            continue
        is_told = i % LOSS_EVERY == 0
        if plan.architecture == CBOW:
            predict_centre(words, i, found, plan, tables, noise, paths, parts, space, rate, is_told, blocks)
        elif plan.architecture == SAMPLED:
            pair_up_sampled(words, i, found, plan, tables, noise, parts, space, rate, is_told, blocks)
        else:
            pair_up(words, i, found, plan, tables, noise, paths, parts, space, rate, is_told, blocks)


@compiled
def make_space(plan: Plan, inputs: int, outputs: int, members: int, seed: int, blocks: Any) -> Space:
    """Room for the largest block there can be."""
    width = LANES * len(blocks)
    return Space(
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


@compiled
def learn(
    text: Text, first: int, last: int, plan: Plan, tables: Tables, noise: Noise, paths: Lists, parts: Lists,
    sizes: Any, rate: float, seed: int, blocks: Any,
) -> Any:  # fmt: skip
    """Learn from the tokens from `first` up to `last`; the loss of some windows and the number of its terms.

    A window passes no end of a sentence, and neither end of the range. Frequent words are left out at random before
    windows are laid, so that the others come nearer to each other (Mikolov et al., 2013).
    """
    space = make_space(plan, sizes[0], sizes[1], sizes[2], seed, blocks)
    words = np.empty(last - first, np.int64)
    length = 0
    for token in range(first, last):
        row = text.row_of[text.ids[token]]
        if row == SENTENCE_END:
            learn_sentence(words, length, plan, tables, noise, paths, parts, space, rate, blocks)
            length = 0
        elif row >= 0 and np.int64(draw(space.random) >> np.uint64(32)) < text.keep[row]:
            words[length] = row
            length += 1
    learn_sentence(words, length, plan, tables, noise, paths, parts, space, rate, blocks)
    return space.losses[0], space.losses[1]
