"""Word alignment by a hidden Markov model (Vogel et al., 1996), both directions taught together, with dictionaries.

    P(y ∣ x) = Σ_a Π_j p(a_j ∣ a_j-1) t(y_j ∣ x_a_j)     a_j is the source position of target word j, or null
    p(i ∣ i') = (1 − p₀) w(i − i') / Σ_i'' w(i'' − i')   i' is the last position that was not null
    expect       q_ij = P(a_j = i ∣ x, y) of one direction, q'_ji of the other
    maximise     c(x, y) = Σ q_ij, or Σ q_ij q'_ji where the directions agree (Liang et al., 2006)
                 t(y ∣ x) = (c(x, y) + α) / (Σ_y' c(x, y') + α V); c without this q_ij where α > 0 judges link i, j
                 w(d) = jumps by d / Σ_i' (jumps from i') (positions at d from i') / Σ_i'' w(i'' − i')

Model 1 comes first: all positions equally likely, and the directions need not agree. The fast version is
`seqloom.classical.hmm_alignment`.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

Sentences = Sequence[Sequence[int]]
Grid = list[list[float]]
"""By target position, then by source position."""


@dataclass
class HmmDirection:
    """What one direction knows, and what it counts during an iteration."""

    sources: Sentences
    targets: Sentences
    limit: int
    shares: list[Grid] = field(init=False)
    """What each link contributes to the counts."""
    nulls: list[list[float]] = field(init=False)
    weights: dict[tuple[bool, int], float] = field(init=False)
    """w by whether it is the first jump, and by width."""
    history: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        pairs = list(zip(self.sources, self.targets, strict=True))
        self.shares = [[[1 / (len(x) + 1)] * len(x) for _ in y] for x, y in pairs]
        self.nulls = [[1 / (len(x) + 1)] * len(y) for x, y in pairs]
        widths = range(-self.limit, self.limit + 1)
        self.weights = {(first, width): math.exp(-0.7 * abs(width - 1)) for first in (True, False) for width in widths}

    def maximise(self, alpha: float) -> None:
        """Counts of pairs of words, of source words and of the null word's translations."""
        self.counts: dict[tuple[int, int], float] = defaultdict(float)
        words = {y for target in self.targets for y in target}
        self.totals: dict[int, float] = defaultdict(lambda: alpha * len(words))
        null_counts = dict.fromkeys(words, alpha)
        for x, y, grid, nulls in zip(self.sources, self.targets, self.shares, self.nulls, strict=True):
            for j, word in enumerate(y):
                null_counts[word] += nulls[j]
                for i, share in enumerate(grid[j]):
                    self.counts[x[i], word] += share
                    self.totals[x[i]] += share
        total = sum(null_counts.values())
        self.null = {y: count / total for y, count in null_counts.items()}

    def emissions(self, k: int, alpha: float) -> Grid:
        """t(y_j ∣ x_i); with a prior without what the link has contributed itself."""
        x, y, grid = self.sources[k], self.targets[k], self.shares[k]
        own = [[share if alpha > 0 else 0.0 for share in row] for row in grid]
        return [
            [(self.counts[x[i], word] + alpha - own[j][i]) / (self.totals[x[i]] - own[j][i]) for i in range(len(x))]
            for j, word in enumerate(y)
        ]

    def width(self, here: int, there: int) -> tuple[bool, int]:
        return here < 0, max(-self.limit, min(self.limit, there - here))


def fit_hmms(
    sources: Sentences,
    targets: Sentences,
    *,
    iterations: int,
    model1_iterations: int,
    null_rate: float,
    dirichlet_alpha: float,
    jump_limit: int,
    agreement: bool,
) -> tuple[HmmDirection, HmmDirection]:
    """Both directions, with their last counts. Sentences must not be empty."""
    both = HmmDirection(sources, targets, jump_limit), HmmDirection(targets, sources, jump_limit)
    for iteration in range(model1_iterations + iterations):
        found: list[list[Grid]] = []
        for each in both:
            each.maximise(dirichlet_alpha)
            found.append(expect(each, null_rate, dirichlet_alpha, has_jumps=iteration >= model1_iterations))
        for k, (grid, turned) in enumerate(zip(*found, strict=True)):
            product = [[q * turned[i][j] for i, q in enumerate(row)] for j, row in enumerate(grid)]
            is_agreeing = agreement and iteration >= model1_iterations
            both[0].shares[k] = product if is_agreeing else grid
            both[1].shares[k] = [list(column) for column in zip(*product, strict=True)] if is_agreeing else turned
    for each in both:
        each.maximise(dirichlet_alpha)
    return both


def expect(each: HmmDirection, null_rate: float, alpha: float, *, has_jumps: bool) -> list[Grid]:
    """q of all sentences; the null word's chances, the jumps and the likelihood are kept."""
    found: list[Grid] = []
    taken: dict[tuple[bool, int], float] = defaultdict(float)
    offered: dict[tuple[bool, int], float] = defaultdict(float)
    log_likelihood = 0.0
    for k, (x, y) in enumerate(zip(each.sources, each.targets, strict=True)):
        t, n, m = each.emissions(k, alpha), len(x), len(y)
        weight = {(a, i): each.weights[each.width(a, i)] if has_jumps else 1.0 for a in range(-1, n) for i in range(n)}
        sums = {a: sum(weight[a, i] for i in range(n)) for a in range(-1, n)}
        move = {(a, i): (1 - null_rate) * weight[a, i] / sums[a] for a, i in weight}
        stay = [null_rate * each.null[word] for word in y]
        # forward[j][a]: P of the first j words and a as the last position; backward[j][a]: P of the others after it.
        forward = [{a: float(a < 0) for a in range(-1, n)}]
        for j in range(m):
            last = forward[-1]
            come = {i: sum(last[a] * move[a, i] for a in last) * t[j][i] for i in range(n)}
            forward.append({a: last[a] * stay[j] + come.get(a, 0.0) for a in last})
        backward = [dict.fromkeys(range(-1, n), 1.0)]
        for j in reversed(range(m)):
            later = backward[0]
            go = {a: sum(move[a, i] * t[j][i] * later[i] for i in range(n)) for a in later}
            backward.insert(0, {a: later[a] * stay[j] + go[a] for a in later})
        total = backward[0][-1]
        log_likelihood += math.log(total)
        grid = [[0.0] * n for _ in y]
        for j in range(m):
            each.nulls[k][j] = sum(forward[j][a] * stay[j] * backward[j + 1][a] for a in forward[j]) / total
            for a, i in move:
                flow = forward[j][a] * move[a, i] * t[j][i] * backward[j + 1][i] / total
                grid[j][i] += flow
                taken[each.width(a, i)] += flow
                for other in range(n):
                    offered[each.width(a, other)] += flow / sums[a]
        found.append(grid)
    if has_jumps:
        learned = {key: taken[key] / offered[key] if offered[key] else each.weights[key] for key in each.weights}
        highest = {first: max(value for key, value in learned.items() if key[0] == first) for first in (True, False)}
        each.weights = {key: max(value / highest[key[0]], 1e-8) for key, value in learned.items()}
    each.history.append(log_likelihood)
    return found
