"""Diverse beam search (Vijayakumar et al., 2016): groups of hypotheses that avoid each other's symbols.

The n best of a beam differ in a comma. Here the beam is divided into groups, which choose one after the other at each
step, and a symbol costs more for each time that a group before has just taken it:

    steer(y_1 … y_t) = log P(y_1 … y_t ∣ x) − λ Σ_j taken_j(y_j)     taken_j(y): hypotheses of the groups before that
                                                                     were kept at step j with the symbol y (Hamming)

Each group keeps its k/G candidates that steer best. The penalty only steers: what a hypothesis is worth, and when a
group stops, is a matter of its score, as in beam search, because what others took says nothing about its quality.

    G = 1    is beam search with beam k, whatever λ is
    λ = 0    finds in every group what beam search with beam k/G finds
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from seqloom.core.stepping import Source, Stepper
from seqloom.search.candidates import IMPOSSIBLE, top_symbols
from seqloom.search.driver import Cancellation, Candidate, Expansion, Frontier, search
from seqloom.search.hypothesis import Hypothesis
from seqloom.search.rerank import without_duplicates
from seqloom.search.settings import SearchConfig


def diverse_search(
    stepper: Stepper, source: Source, settings: SearchConfig, *, cancellation: Cancellation | None = None
) -> list[list[Hypothesis]]:
    """At most `settings.nbest` different hypotheses for each sentence, best first, finished ones before cut ones.

    `settings.beam` counts those of all `settings.groups` together; `settings.diversity` is λ. The best of each group
    come first into the list, then the second of each, and so on until it is full; then it is sorted.
    """
    width = settings.beam // settings.groups
    own = settings.model_copy(update={"beam": width, "nbest": min(settings.nbest, width)})
    strategy = DiverseSearch(settings.groups, width, settings.diversity)
    found = search(stepper, source, strategy, own, cancellation=cancellation)
    return [_merged(beams, settings.nbest) for beams in found]


@dataclass(frozen=True)
class DiverseSearch:
    """The k/G candidates of each group with the highest steering value; a row carries the penalty it has paid."""

    beams: int
    width: int
    diversity: float
    proves_completeness: bool = False

    def choose(self, frontier: Frontier) -> Expansion:
        # Groups before penalise k − k/G symbols at most, so k/G of a row's k best are as good as they were.
        top = top_symbols(frontier.step, self.beams * self.width, values=frontier.values)
        # Ids are exact in float64, so that one transfer brings everything.
        table = torch.stack([top.values.double(), top.symbols.double(), top.log_probs.double()], 2).tolist()
        totals, carried = frontier.totals.tolist(), frontier.carried.tolist()
        chosen: list[list[Candidate]] = []
        sentence, taken = -1, Counter[int]()
        for beam, start, size in zip(
            *(each.tolist() for each in (frontier.beams, frontier.starts, frontier.sizes)), strict=True
        ):
            if beam // self.beams != sentence:
                sentence, taken = beam // self.beams, Counter()
            candidates = [
                Candidate(totals[row] + value - paid, row, int(symbol), log_prob, carried=paid)
                for row in range(start, start + size)
                for value, symbol, log_prob in table[row]
                if value > IMPOSSIBLE
                for paid in [carried[row] + self.diversity * taken[int(symbol)]]
            ]
            candidates.sort(key=lambda candidate: -candidate.value)  # stable: the better row, then its better symbol
            chosen.append(candidates[: self.width])
            taken.update(candidate.symbol for candidate in chosen[-1])
        return Expansion.of(chosen)


def _merged(found: Sequence[Sequence[Hypothesis]], nbest: int) -> list[Hypothesis]:
    """The best of each group, then the second of each …, without duplicates; of these the first n, sorted."""

    def worth(hypothesis: Hypothesis) -> tuple[bool, float]:
        return not hypothesis.is_finished, -hypothesis.score

    most = max(len(group) for group in found)
    rounds = [sorted((group[place] for group in found if place < len(group)), key=worth) for place in range(most)]
    different = without_duplicates([hypothesis for turn in rounds for hypothesis in turn])
    return sorted(different[:nbest], key=worth)
