"""Words of a sentence linked with words of its translation, by models of both directions, and the error rate of links.

Each direction explains the words of one side by those of the other: `model1`, `diagonal` or `hmm`. Links come out of
the two by a rule: by their posteriors, or by joining the best link of each word.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Literal, Protocol

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int32
from pydantic import Field

from seqloom.classical.bitext import (
    Array,
    Bitext,
    Ids,
    TranslationTable,
    cell_starts,
)
from seqloom.classical.diagonal import DiagonalConfig, as_model1, fit_diagonal
from seqloom.classical.hmm_alignment import HmmAlignment, HmmAlignmentConfig, fit_hmms
from seqloom.classical.hmm_alignment import rounds as hmm_rounds
from seqloom.classical.model1 import Model1, Model1Config, digamma, fit_model1
from seqloom.core.errors import DataError
from seqloom.core.jit import compiled
from seqloom.text.formats.pharaoh import GoldLinks, Link

__all__ = [
    "DEFAULT_ALIGNMENT",
    "AlignmentModelConfig",
    "AlignmentScore",
    "Bitext",
    "DiagonalConfig",
    "HmmAlignment",
    "HmmAlignmentConfig",
    "Model1",
    "Model1Config",
    "Symmetrisation",
    "TranslationTable",
    "WordAligner",
    "digamma",
    "fit_aligner",
    "fit_model1",
    "join_directions",
    "rounds",
    "score_alignments",
]

AlignmentModelConfig = Annotated[Model1Config | DiagonalConfig | HmmAlignmentConfig, Field(discriminator="kind")]
"""Every model of word alignment."""

DEFAULT_ALIGNMENT = HmmAlignmentConfig()
"""The best of them."""

INTERSECTION, UNION, GROW_DIAG, GROW_DIAG_FINAL_AND = 0, 1, 2, 3

Symmetrisation = Literal[
    "posterior", "forward", "backward", "intersection", "union", "grow-diag", "grow-diag-final-and"
]
"""Which links are kept: those that both directions together find likely, those of one direction, of both, of either, or
the intersection grown into the union."""

LINK_THRESHOLD = 0.4
"""Links of the rule `posterior` are likelier than this."""

PAIRS_AT_ONCE = 10_000
"""Sentence pairs whose link probabilities are in memory together."""

_RULES = ("intersection", "union", "grow-diag", "grow-diag-final-and")  # in the order of the numbers above


@compiled()
def join_directions(forward: Array, backward: Array, rule: int, links: Array) -> None:
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
    # Links of either direction next to a link, if one of their words has none yet, until there are no more.
    neighbours = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))  # target, source
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
    if rule == GROW_DIAG_FINAL_AND:
        for j in range(m):
            if forward[j] >= 0 and not has_source[forward[j]] and not has_target[j]:
                links[forward[j], j] = has_source[forward[j]] = has_target[j] = True
        for i in range(n):
            if backward[i] >= 0 and not has_source[i] and not has_target[backward[i]]:
                links[i, backward[i]] = has_source[i] = has_target[backward[i]] = True


class DirectedAlignment(Protocol):
    """A fitted model of one direction, which explains target words by source words."""

    @property
    def table(self) -> TranslationTable:
        """t(y ∣ x)."""
        ...

    def choose(self, bitext: Bitext, *, threads: int = 1) -> Int32[np.ndarray, " target_tokens"]:
        """The position of each target token's likeliest source word, −1 for the null word."""
        ...

    def link_probabilities(self, bitext: Bitext, *, threads: int = 1) -> Float32[np.ndarray, " cells"]:
        """P(target word j comes from source word i), all pairs in one array: by pair, source and target position."""
        ...

    def posteriors(self, source: Ids, target: Ids) -> Float64[np.ndarray, "target source_and_null"]:
        """The same for one pair; column 0 is the null word."""
        ...

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything that was learned."""
        ...


@dataclass(frozen=True)
class WordAligner:
    """Both directions: `forward` explains target words by source words, `backward` the other way round."""

    config: AlignmentModelConfig
    forward: DirectedAlignment
    backward: DirectedAlignment

    def links(
        self, source: Ids, target: Ids, *, symmetrise: Symmetrisation | None = None, threshold: float = LINK_THRESHOLD
    ) -> set[tuple[int, int]]:
        """Pairs of source and target positions, counted from 0."""
        bitext = Bitext.from_sentences([source], [target])
        return set(*self.align(bitext, symmetrise=symmetrise, threshold=threshold))

    def align(
        self,
        bitext: Bitext,
        *,
        symmetrise: Symmetrisation | None = None,
        threshold: float = LINK_THRESHOLD,
        threads: int = 1,
    ) -> Iterator[list[tuple[int, int]]]:
        """The same for each sentence pair of a text, sorted; a pair with a blank side has no links.

        Without a rule, that of the model is taken: `grow-diag-final-and` for model 1, `posterior` for the others.
        """
        symmetrise = symmetrise or default_rule(self.config)
        if symmetrise == "posterior":
            for first in range(0, bitext.pairs, PAIRS_AT_ONCE):
                some = bitext.between(first, min(first + PAIRS_AT_ONCE, bitext.pairs))
                yield from _listed(some, self._strengths(some, threads=threads) > threshold)
            return
        forward = self.forward.choose(bitext, threads=threads)
        backward = self.backward.choose(bitext.turned(), threads=threads)
        borders = zip(pairwise(bitext.source_starts), pairwise(bitext.target_starts), strict=True)
        for (first, last), (low, high) in borders:
            grid = np.zeros((last - first, high - low), np.bool_)
            sources, targets = forward[low:high], backward[first:last]  # of each target token, of each source token
            if symmetrise == "forward":
                grid[sources[sources >= 0], np.flatnonzero(sources >= 0)] = True
            elif symmetrise == "backward":
                grid[np.flatnonzero(targets >= 0), targets[targets >= 0]] = True
            else:
                join_directions(sources, targets, _RULES.index(symmetrise), grid)
            yield [(i, j) for i, j in np.argwhere(grid).tolist()]

    def probabilities(self, source: Ids, target: Ids) -> Float64[np.ndarray, "source target"]:
        """How likely each link is: the geometric mean of the posteriors of both directions."""
        strengths = self._strengths(Bitext.from_sentences([source], [target]))
        return strengths.reshape(len(source), len(target)).astype(np.float64)

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything that was learned, for `restore`."""
        sides = (("forward", self.forward), ("backward", self.backward))
        return {f"{side}.{name}": array for side, model in sides for name, array in model.arrays().items()}

    @staticmethod
    def restore(config: AlignmentModelConfig, arrays: Mapping[str, np.ndarray]) -> "WordAligner":
        """The aligner that `arrays` came from; arrays that do not fit the settings are a ModelError."""
        models: list[DirectedAlignment] = []
        for side in ("forward", "backward"):
            own = {name.removeprefix(f"{side}."): array for name, array in arrays.items() if name.startswith(side)}
            if isinstance(config, HmmAlignmentConfig):
                models.append(HmmAlignment.restore(config, own))
            else:
                models.append(Model1.restore(as_model1(config) if isinstance(config, DiagonalConfig) else config, own))
        return WordAligner(config, *models)

    def _strengths(self, bitext: Bitext, *, threads: int = 1) -> Float32[np.ndarray, " cells"]:
        """√(q_ij q'_ij) of all pairs of words."""
        products = self.forward.link_probabilities(bitext, threads=threads)
        backward = self.backward.link_probabilities(bitext.turned(), threads=threads)
        multiply_turned(cell_starts(bitext), bitext.source_starts, bitext.target_starts, products, backward)
        return np.asarray(np.sqrt(products))


@compiled()
def multiply_turned(
    starts: Array, source_starts: Array, target_starts: Array, products: Array, backward: Array
) -> None:
    """Multiply the cells of each pair by those of the other direction, which are in the other order."""
    for k in range(len(starts) - 1):
        n, m = source_starts[k + 1] - source_starts[k], target_starts[k + 1] - target_starts[k]
        for i in range(n):
            for j in range(m):
                products[starts[k] + i * m + j] *= backward[starts[k] + j * n + i]


def _listed(bitext: Bitext, is_linked: Bool[np.ndarray, " cells"]) -> Iterator[list[tuple[int, int]]]:
    """The links of each pair, from its cells."""
    starts, widths = cell_starts(bitext), np.diff(bitext.target_starts)
    cells = np.flatnonzero(is_linked)
    pairs = np.searchsorted(starts, cells, side="right") - 1
    offsets = cells - starts[pairs]
    links = list(zip((offsets // widths[pairs]).tolist(), (offsets % widths[pairs]).tolist(), strict=True))
    ends = np.searchsorted(cells, starts).tolist()
    for first, last in pairwise(ends):
        yield links[first:last]


def default_rule(config: AlignmentModelConfig) -> Symmetrisation:
    """The rule by which the links of a model are best."""
    return "grow-diag-final-and" if isinstance(config, Model1Config) else "posterior"


def rounds(config: AlignmentModelConfig) -> int:
    """How many steps `fit_aligner` reports to `progress`."""
    return hmm_rounds(config) if isinstance(config, HmmAlignmentConfig) else 2 * config.iterations


def fit_aligner(
    bitext: Bitext,
    config: AlignmentModelConfig | None = None,
    *,
    threads: int = 1,
    progress: Callable[[int], None] = lambda _done: None,
) -> WordAligner:
    """Fit both directions. `progress` receives how many of all `rounds` are done."""
    config = config or DEFAULT_ALIGNMENT
    if isinstance(config, HmmAlignmentConfig):
        return WordAligner(config, *fit_hmms(bitext, config, threads=threads, progress=progress))

    def fit(text: Bitext, done_before: int) -> Model1:
        def report(done: int) -> None:
            progress(done_before + done)

        if isinstance(config, DiagonalConfig):
            return fit_diagonal(text, config, threads=threads, progress=report)
        return fit_model1(text, config, threads=threads, progress=report)

    return WordAligner(config, fit(bitext, 0), fit(bitext.turned(), config.iterations))


@dataclass(frozen=True)
class AlignmentScore:
    """How far found links are from those of annotators (Och and Ney, 2003); a rate is None where it is 0 / 0.

        precision = ∣A ∩ P∣ / ∣A∣        A found links, S sure links, P possible links, S ⊆ P
        recall    = ∣A ∩ S∣ / ∣S∣
        AER       = 1 − (∣A ∩ S∣ + ∣A ∩ P∣) / (∣A∣ + ∣S∣)         1 − F₁ where S = P

    Links are counted over all sentences, so long sentences weigh more. Links to the null word do not count.
    """

    found: int
    """∣A∣"""
    sure: int
    """∣S∣"""
    found_sure: int
    """∣A ∩ S∣"""
    found_possible: int
    """∣A ∩ P∣"""

    @property
    def precision(self) -> float | None:
        return self.found_possible / self.found if self.found else None

    @property
    def recall(self) -> float | None:
        return self.found_sure / self.sure if self.sure else None

    @property
    def error_rate(self) -> float | None:
        """AER: 0 is perfect, 1 is nothing right."""
        both = self.found + self.sure
        return 1 - (self.found_sure + self.found_possible) / both if both else None


def score_alignments(found: Sequence[Collection[Link]], gold: Sequence[GoldLinks]) -> AlignmentScore:
    """Score the links of sentence pairs, one collection for each line of the gold alignment."""
    if len(found) != len(gold):
        raise DataError(f"{len(found):,} alignments cannot be compared with {len(gold):,}; each line needs its partner")
    links = [frozenset(each) for each in found]
    return AlignmentScore(
        found=sum(map(len, links)),
        sure=sum(len(each.sure) for each in gold),
        found_sure=sum(len(each & right.sure) for each, right in zip(links, gold, strict=True)),
        found_possible=sum(len(each & right.possible) for each, right in zip(links, gold, strict=True)),
    )
