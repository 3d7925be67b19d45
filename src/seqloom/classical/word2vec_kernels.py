"""The compiled loops of word vectors: windows of a text, and the step that each window makes.

Every form of word2vec is one step on a block of a few input vectors x_j and output vectors o_k with labels y_k:

    s_jk = x_j · o_k                                       score
    g_jk = η (y_k − σ(s_jk))                               independent pairs
    g_jk = η (1 − σ(s_jk)) · (1 where y_k = 1, else −p_k / (1 − p_k)),   p_k = Π_j σ(s_jk)      the product of the notes
    x_j += Σ_k g_jk o_k,   o_k += Σ_j g_jk x_j             both from the old values

A word2vec that takes pair after pair reads an output vector for each dot product. Here the negatives are drawn once
per window and shared by its words (Ji et al., 2016), so that a block of about 6 × 6 scores reads 12 vectors instead of
42, and its three products stay in registers and the nearest cache.

The width is given by the length of a tuple, `blocks`: lengths of tuples are part of a type, so the compiler knows how
often each inner loop runs and leaves no remainder. Rows are padded to blocks of eight numbers, the padding stays 0.
Arguments are given by place: that is how compiled code is called.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from seqloom.core.jit import compiled

# What word2vec's compiled loops are given: the text, the tables of vectors, the settings as numbers.
#
# Apart from the loops, so that whoever only reads settings or vectors need not wait for the compiler.

Array = Any
"""numba finds out types and shapes by itself."""

LANES = 8
"""Numbers in a block of a row: what one instruction of most processors works on."""
SENTENCE_END, LEFT_OUT = -1, -2
"""In place of the row of a word: a sentence ends here, or the word is too rare."""
SKIPGRAM, SAMPLED, CBOW = 0, 1, 2
MEAN, SUM, PRODUCT = 0, 1, 2
NEGATIVE, HIERARCHICAL = 0, 1
LOSS_EVERY = 8
"""The loss is that of every eighth window: a logarithm costs as much as many products."""


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


# Sums may be taken in another order and products joined with sums; what is not finite keeps its meaning.
_FAST = ("reassoc", "contract", "nsz", "arcp")


# --- random numbers ---------------------------------------------------------------------------------------------------


@compiled(fast=_FAST, is_inlined=True)
def draw(random: Array) -> int:
    """64 random bits (splitmix64): a counter with large steps, its bits mixed."""
    random[0] += np.uint64(0x9E3779B97F4A7C15)
    z = random[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))  # type: ignore[no-any-return]


@compiled(fast=_FAST, is_inlined=True)
def draw_below(random: Array, limit: int) -> int:
    """A whole number from 0 to limit − 1; a limit far below 2³² leaves no bias that could be measured."""
    return np.int64(((draw(random) >> np.uint64(32)) * np.uint64(limit)) >> np.uint64(32))  # type: ignore[return-value]


@compiled(fast=_FAST, is_inlined=True)
def draw_noise(random: Array, noise: Noise) -> int:
    """A row from the alias table: the upper half of the bits chooses the entry, the lower half decides."""
    bits = draw(random)
    entry = np.int64(((bits >> np.uint64(32)) * np.uint64(len(noise.aliases))) >> np.uint64(32))
    is_itself = np.int64(bits & np.uint64(0xFFFFFFFF)) < noise.thresholds[entry]
    return entry if is_itself else np.int64(noise.aliases[entry])  # type: ignore[return-value]


@compiled(fast=_FAST)
def draw_many(seed: int, noise: Noise, out: Array) -> None:
    """Rows from the alias table."""
    random = np.array([seed], np.uint64)
    for place in range(len(out)):
        out[place] = draw_noise(random, noise)


# --- one step on a block ----------------------------------------------------------------------------------------------


@compiled(fast=_FAST, is_inlined=True)
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


@compiled(fast=_FAST, is_inlined=True)
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


@compiled(fast=_FAST, is_inlined=True)
def pair_gradients(space: Space, inputs: int, outputs: int, rate: float) -> None:
    """g_jk of independent pairs in place of σ(s_jk)."""
    scores, labels, step = space.scores, space.labels, np.float32(rate)
    for j in range(inputs):
        for k in range(outputs):
            scores[j * outputs + k] = step * (labels[k] - scores[j * outputs + k])


@compiled(fast=_FAST, is_inlined=True)
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


@compiled(fast=_FAST, is_inlined=True)
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


@compiled(fast=_FAST, is_inlined=True)
def steps_of_block(space: Space, inputs: int, outputs: int, blocks: Any) -> None:
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


@compiled(fast=_FAST, is_inlined=True)
def gather(table: Array, rows: Array, count: int, out: Array, blocks: Any) -> None:
    """Copy rows of a table side by side."""
    for place in range(count):
        row = rows[place]
        for d in range(LANES * len(blocks)):
            out[place, d] = table[row, d]


@compiled(fast=_FAST, is_inlined=True)
def scatter(table: Array, rows: Array, count: int, steps: Array, blocks: Any) -> None:
    """Add a step to each of these rows; a row that is listed twice gets both."""
    for place in range(count):
        row = rows[place]
        for d in range(LANES * len(blocks)):
            table[row, d] += steps[place, d]


@compiled(fast=_FAST, is_inlined=True)
def score_row(table: Array, space: Space, outputs: int, blocks: Any) -> None:
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


@compiled(fast=_FAST, is_inlined=True)
def steps_of_row(table: Array, space: Space, outputs: int, blocks: Any) -> None:
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


@compiled(fast=_FAST, is_inlined=True)
def step_on_block(
    table: Array, space: Space, inputs: int, outputs: int, pooling: int, rate: float, is_told: bool, blocks: Any
) -> None:
    """One step on input vectors that are already in place and on the output rows that are listed.

    The outputs are changed, the steps of the inputs are left to be added.
    """
    if inputs == 1:
        score_row(table, space, outputs, blocks)
    else:
        gather(table, space.output_rows, outputs, space.outputs, blocks)
        score_block(space, inputs, outputs, blocks)
    sigmoids(space.scores, inputs * outputs)
    if is_told:
        add_losses(space, inputs, outputs, pooling == PRODUCT)
    if pooling == PRODUCT:
        product_gradients(space, inputs, outputs, rate)
    else:
        pair_gradients(space, inputs, outputs, rate)
    if inputs == 1:
        steps_of_row(table, space, outputs, blocks)
    else:
        steps_of_block(space, inputs, outputs, blocks)
        scatter(table, space.output_rows, outputs, space.output_steps, blocks)


# --- which vectors a window brings together ---------------------------------------------------------------------------


@compiled(fast=_FAST, is_inlined=True)
def list_contexts(words: Array, centre: int, first: int, last: int, out: Array) -> int:
    """The words round the centre; how many."""
    count = 0
    for place in range(first, last):
        if place != centre:
            out[count] = words[place]
            count += 1
    return count


@compiled(fast=_FAST, is_inlined=True)
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


@compiled(fast=_FAST, is_inlined=True)
def sample_outputs(found: int, plan: Plan, noise: Noise, space: Space) -> int:
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


@compiled(fast=_FAST, is_inlined=True)
def list_members(word: int, count: int, parts: Lists, plan: Plan, space: Space) -> int:
    """The rows of one more word after the `count` that are listed: its own, or all its parts; how many there are."""
    if not plan.has_parts:
        space.input_rows[count] = word
        return count + 1
    for at in range(parts.starts[word], parts.starts[word + 1]):
        space.input_rows[count] = parts.members[at]
        count += 1
    return count


@compiled(fast=_FAST, is_inlined=True)
def pool(table: Array, space: Space, members: int, is_mean: bool, blocks: Any) -> None:
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


@compiled(fast=_FAST, is_inlined=True)
def unpool(table: Array, space: Space, members: int, is_mean: bool, blocks: Any) -> None:
    """Move the listed rows so that what they pool to moves by the step of the first input, as word2vec does."""
    width = LANES * len(blocks)
    steps, rows = space.input_steps, space.input_rows
    share = np.float32(1.0) if is_mean else np.float32(1.0 / members)
    for d in range(width):
        steps[0, d] *= share
    for place in range(members):
        row = rows[place]
        for d in range(width):
            table[row, d] += steps[0, d]


@compiled(fast=_FAST)
def learn_window(
    words: Array, i: int, found: int, plan: Plan, tables: Tables, noise: Noise, paths: Lists, parts: Lists,
    space: Space, rate: float, blocks: Any,
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
            members = list_members(given, members, parts, plan, space)
        if is_pooled:
            pool(tables.inputs, space, members, is_mean, blocks)
        else:
            gather(tables.inputs, space.input_rows, members, space.inputs, blocks)
        inputs, is_told = 1 if is_pooled else members, i % LOSS_EVERY == 0
        step_on_block(tables.outputs, space, inputs, outputs, pooling, rate, is_told, blocks)
        if is_pooled:
            unpool(tables.inputs, space, members, is_mean, blocks)
        else:
            scatter(tables.inputs, space.input_rows, members, space.input_steps, blocks)


# --- the text ---------------------------------------------------------------------------------------------------------


@compiled(fast=_FAST)
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


@compiled(fast=_FAST)
def learn(
    text: Text, first: int, last: int, plan: Plan, tables: Tables, noise: Noise, paths: Lists, parts: Lists,
    sizes: Any, rate: float, seed: int, blocks: Any,
) -> Any:  # fmt: skip
    """Learn from the tokens from `first` up to `last`; the loss of some windows and the number of its terms.

    A window passes no end of a sentence, and neither end of the range. Frequent words are left out at random before
    windows are laid, so that the others come nearer to each other (Mikolov et al., 2013). The reach of a window is
    drawn from 1 to its full width, so that near words count more.
    """
    space = make_space(plan, sizes[0], sizes[1], sizes[2], seed, blocks)
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
            found = list_contexts(words, i, max(0, i - reach), min(length, i + reach + 1), space.contexts)
            if found > 0:
                learn_window(words, i, found, plan, tables, noise, paths, parts, space, rate, blocks)
        length = 0
    return space.losses[0], space.losses[1]
