"""The loops of IBM model 1, compiled, in float64. `seqloom.classical.alignment` is the only one who calls.

The usual loop goes through a sentence pair and looks each pair of words up in the table, which costs a search per
link. Here the E step goes word by word: the row of a source word is laid out over all target words once, and then every
sentence that holds the word finds its probabilities by plain indexing. Twice over all links:

    explain       z_j = Σ_i a_ij t(y_j ∣ x_i) of every target token, and Σ_j log z_j of every sentence
    reestimate    c(y ∣ x) = t(y ∣ x) Σ a_ij / z_j over all places of x, and at once the new t(y ∣ x)

Sentences belong to one call of `explain` and words to one call of `reestimate`, and each adds up in an order that does
not depend on where its range begins. So ranges may be shared among threads in any way, and every bit stays the same.
Arguments are given by place: that is how compiled code is called.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from seqloom.core.compiling import compiled

Array = Any
"""numba finds out types and shapes by itself."""

INTERSECTION, UNION, GROW_DIAG, GROW_DIAG_FINAL_AND = 0, 1, 2, 3


class Pairs(NamedTuple):
    """Sentence pairs: the tokens of sentence k are those from `starts[k]` up to `starts[k + 1]`."""

    sources: Array
    source_starts: Array
    targets: Array
    target_starts: Array


class Places(NamedTuple):
    """Where each source word stands, in the order of the text; the null word comes last, at position −1."""

    starts: Array
    sentences: Array
    positions: Array


class Table(NamedTuple):
    """t(y ∣ x) of the pairs that met: those of row x from `starts[x]` up to `starts[x + 1]`, by rising column y."""

    starts: Array
    columns: Array
    probabilities: Array


class Prior(NamedTuple):
    """a_ij, which source word a target word comes from before any word is looked at.

    null word            p₀, or 1 / (n + 1) where `null_rate` is below 0
    each other word      (1 − p₀) / n, or 1 / (n + 1)
    with a tension λ     the same times exp(−λ ∣(i + 1)/n − (j + 1)/m∣), times the share that keeps the sum
    """

    null_rate: float
    tension: float
    shares: Array


# --- where links may go ----------------------------------------------------------------------------------------------


@compiled()
def base_weight(i: int, n: int, null_rate: float) -> float:
    """a_ij without a tension; i is −1 for the null word."""
    if null_rate < 0:
        return 1.0 / (n + 1)
    return null_rate if i < 0 else (1.0 - null_rate) / n


@compiled()
def nearness(i: int, n: int, j: int, m: int, tension: float) -> float:
    """1 on the diagonal, less beside it (Dyer et al., 2013)."""
    return math.exp(-tension * abs((i + 1) / n - (j + 1) / m))


@compiled()
def share_diagonal(source_starts: Array, target_starts: Array, tension: float, shares: Array) -> None:
    """n / Σ_i nearness(i, j) of each target token."""
    for k in range(len(source_starts) - 1):
        n, m = source_starts[k + 1] - source_starts[k], target_starts[k + 1] - target_starts[k]
        for j in range(m):
            total = 0.0
            for i in range(n):
                total += nearness(i, n, j, m, tension)
            shares[target_starts[k] + j] = n / total


# --- the table -------------------------------------------------------------------------------------------------------


@compiled()
def count_partners(first: int, last: int, places: Places, pairs: Pairs, symbols: int, lengths: Array) -> None:
    """How many different target words stand in the sentences of each of these source words."""
    seen = np.full(symbols, -1, np.int64)
    for word in range(first, last):
        count = 0
        for place in range(places.starts[word], places.starts[word + 1]):
            k = places.sentences[place]
            for token in range(pairs.target_starts[k], pairs.target_starts[k + 1]):
                if seen[pairs.targets[token]] != word:
                    seen[pairs.targets[token]] = word
                    count += 1
        lengths[word] = count


@compiled()
def list_partners(first: int, last: int, places: Places, pairs: Pairs, symbols: int, table: Table) -> None:
    """Which ones, sorted."""
    seen = np.full(symbols, -1, np.int64)
    for word in range(first, last):
        entry = table.starts[word]
        for place in range(places.starts[word], places.starts[word + 1]):
            k = places.sentences[place]
            for token in range(pairs.target_starts[k], pairs.target_starts[k + 1]):
                if seen[pairs.targets[token]] != word:
                    seen[pairs.targets[token]] = word
                    table.columns[entry] = pairs.targets[token]
                    entry += 1
        table.columns[table.starts[word] : entry].sort()


@compiled()
def first_not_below(values: Array, low: int, high: int, wanted: int) -> int:
    """The first place from `low` to `high` whose value is the wanted one or more, in sorted values."""
    while low < high:
        middle = (low + high) // 2
        if values[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@compiled()
def look_up(table: Table, row: int, column: int) -> float:
    """t(column ∣ row), which is 0 where the two never met."""
    if row < 0 or row >= len(table.starts) - 1:
        return 0.0
    end = table.starts[row + 1]
    entry = first_not_below(table.columns, table.starts[row], end, column)
    return table.probabilities[entry] if entry < end and table.columns[entry] == column else 0.0


# --- expectation and maximisation ------------------------------------------------------------------------------------


@compiled()
def explain(
    first: int,
    last: int,
    places: Places,
    pairs: Pairs,
    symbols: int,
    table: Table,
    prior: Prior,
    sums: Array,
    log_likelihoods: Array,
) -> None:
    """z_j of the tokens of these sentences, left as 1 / z_j in `sums`; Σ_j log z_j of each sentence."""
    row = np.zeros(symbols)
    sums[pairs.target_starts[first] : pairs.target_starts[last]] = 0.0
    for word in range(len(places.starts) - 1):
        end = places.starts[word + 1]
        begin = first_not_below(places.sentences, places.starts[word], end, first)
        if begin == end or places.sentences[begin] >= last:
            continue
        for entry in range(table.starts[word], table.starts[word + 1]):
            row[table.columns[entry]] = table.probabilities[entry]
        for place in range(begin, end):
            k, i = places.sentences[place], places.positions[place]
            if k >= last:
                break
            n = pairs.source_starts[k + 1] - pairs.source_starts[k]
            low, high = pairs.target_starts[k], pairs.target_starts[k + 1]
            weight = base_weight(i, n, prior.null_rate)
            if i < 0 or prior.tension == 0.0:
                for token in range(low, high):
                    sums[token] += weight * row[pairs.targets[token]]
            else:
                for token in range(low, high):
                    near = nearness(i, n, token - low, high - low, prior.tension) * prior.shares[token]
                    sums[token] += weight * near * row[pairs.targets[token]]
    for k in range(first, last):
        total = 0.0
        for token in range(pairs.target_starts[k], pairs.target_starts[k + 1]):
            total += math.log(sums[token])
            sums[token] = 1.0 / sums[token]
        log_likelihoods[k] = total


@compiled()
def reestimate(
    first: int,
    last: int,
    places: Places,
    pairs: Pairs,
    symbols: int,
    table: Table,
    prior: Prior,
    inverse: Array,
    alpha: float,
) -> None:
    """The new rows of these words, from 1 / z_j of every token."""
    counts = np.zeros(symbols)
    for word in range(first, last):
        begin, end = table.starts[word], table.starts[word + 1]
        for entry in range(begin, end):
            counts[table.columns[entry]] = 0.0
        for place in range(places.starts[word], places.starts[word + 1]):
            k, i = places.sentences[place], places.positions[place]
            n = pairs.source_starts[k + 1] - pairs.source_starts[k]
            low, high = pairs.target_starts[k], pairs.target_starts[k + 1]
            weight = base_weight(i, n, prior.null_rate)
            if i < 0 or prior.tension == 0.0:
                for token in range(low, high):
                    counts[pairs.targets[token]] += weight * inverse[token]
            else:
                for token in range(low, high):
                    near = nearness(i, n, token - low, high - low, prior.tension) * prior.shares[token]
                    counts[pairs.targets[token]] += weight * near * inverse[token]
        for entry in range(begin, end):
            counts[table.columns[entry]] *= table.probabilities[entry]
        normalise(begin, end, counts, table, alpha)


@compiled()
def normalise(begin: int, end: int, counts: Array, table: Table, alpha: float) -> None:
    """t = c / Σ c, or with a Dirichlet prior t = exp(ψ(c + α) − ψ(Σ (c + α))), of one row."""
    total = 0.0
    for entry in range(begin, end):
        total += counts[table.columns[entry]] + alpha
    if total == 0.0:  # a word that explains nothing any more keeps what it had
        return
    log_total = digamma(total) if alpha > 0.0 else 0.0
    for entry in range(begin, end):
        count = counts[table.columns[entry]]
        table.probabilities[entry] = math.exp(digamma(count + alpha) - log_total) if alpha > 0.0 else count / total


@compiled()
def digamma(x: float) -> float:
    """ψ(x) for x > 0: by ψ(x) = ψ(x + 1) − 1/x up to x ≥ 10, and there ln x − 1/2x − Σ_k B_2k / (2k x^2k)."""
    shift = 0.0
    while x < 10.0:
        shift += 1.0 / x
        x += 1.0
    u = 1.0 / (x * x)
    series = u * (1 / 12 - u * (1 / 120 - u * (1 / 252 - u * (1 / 240 - u * (1 / 132 - u * (691 / 32760 - u / 12))))))
    return math.log(x) - 0.5 / x - series - shift


# --- use of a fitted model -------------------------------------------------------------------------------------------


@compiled()
def fill_joint(pairs: Pairs, k: int, table: Table, prior: Prior, floor: float, out: Array) -> None:
    """a_ij t(y_j ∣ x_i) of sentence k; column 0 is the null word, column i + 1 the word at i."""
    begin, low = pairs.source_starts[k], pairs.target_starts[k]
    m, n = out.shape[0], out.shape[1] - 1
    null = len(table.starts) - 2
    for j in range(m):
        y = pairs.targets[low + j]
        for i in range(-1, n):
            row = null if i < 0 else pairs.sources[begin + i]
            value = base_weight(i, n, prior.null_rate) * max(floor, look_up(table, row, y))
            if i >= 0 and prior.tension != 0.0:
                value *= nearness(i, n, j, m, prior.tension) * prior.shares[low + j]
            out[j, i + 1] = value


@compiled()
def choose(first: int, last: int, pairs: Pairs, table: Table, prior: Prior, chosen: Array) -> None:
    """For each target token of these sentences the position of its likeliest source word, −1 for the null word.

    Words that stand twice in a sentence are equally likely in model 1: the one nearest to the diagonal is taken, then
    the first. A token that met no word of the sentence has none.
    """
    null = len(table.starts) - 2
    for k in range(first, last):
        begin, low = pairs.source_starts[k], pairs.target_starts[k]
        n, m = pairs.source_starts[k + 1] - begin, pairs.target_starts[k + 1] - low
        for j in range(m):
            y = pairs.targets[low + j]
            highest = base_weight(-1, n, prior.null_rate) * look_up(table, null, y)
            best, closest = -1, np.inf
            for i in range(n):
                value = base_weight(i, n, prior.null_rate) * look_up(table, pairs.sources[begin + i], y)
                if prior.tension != 0.0:
                    value *= nearness(i, n, j, m, prior.tension) * prior.shares[low + j]
                distance = abs((i + 1) / n - (j + 1) / m)
                if value > highest or (value == highest and value > 0.0 and distance < closest):
                    highest, best, closest = value, i, distance
            chosen[low + j] = best


@compiled()
def symmetrise(forward: Array, backward: Array, rule: int, links: Array) -> None:
    """Join the source place of each target token and the target place of each source token (−1: none) into links.

    grow-diag and final-and as in Koehn et al. (2005), target positions in the outer loop.
    """
    n, m = links.shape
    for j in range(m):
        if forward[j] >= 0 and (rule == UNION or backward[forward[j]] == j):
            links[forward[j], j] = True
    if rule == UNION:
        for i in range(n):
            if backward[i] >= 0:
                links[i, backward[i]] = True
    if rule <= UNION:
        return
    has_source, has_target = np.zeros(n, np.bool_), np.zeros(m, np.bool_)
    for i in range(n):
        for j in range(m):
            if links[i, j]:
                has_source[i] = has_target[j] = True
    _grow_diagonally(forward, backward, links, has_source, has_target)
    if rule == GROW_DIAG_FINAL_AND:
        for j in range(m):
            if forward[j] >= 0 and not has_source[forward[j]] and not has_target[j]:
                links[forward[j], j] = has_source[forward[j]] = has_target[j] = True
        for i in range(n):
            if backward[i] >= 0 and not has_source[i] and not has_target[backward[i]]:
                links[i, backward[i]] = has_source[i] = has_target[backward[i]] = True


@compiled()
def _grow_diagonally(forward: Array, backward: Array, links: Array, has_source: Array, has_target: Array) -> None:
    """Links of either direction beside a link, if one of their words has none yet, until there are no more."""
    neighbours = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))  # target, source
    n, m = links.shape
    is_growing = True
    while is_growing:
        is_growing = False
        for j in range(m):
            for i in range(n):
                if not links[i, j]:
                    continue
                for right, down in neighbours:
                    b, a = j + right, i + down
                    if not (0 <= a < n and 0 <= b < m) or links[a, b] or (has_source[a] and has_target[b]):
                        continue
                    if forward[b] == a or backward[a] == b:
                        links[a, b] = has_source[a] = has_target[b] = True
                        is_growing = True
