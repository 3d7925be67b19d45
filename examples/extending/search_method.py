"""Beam search with threshold pruning (Freitag and Al-Onaizan, 2017): the beam narrows where the model is certain.

kept = those of the k best candidates with log P ≥ log P of the best − margin
"""

from dataclasses import dataclass, replace

from seqloom.search.beam import BeamSearch
from seqloom.search.driver import Expansion, Frontier


@dataclass(frozen=True)
class ThresholdSearch:
    beam: int
    end: int
    margin: float = 2.0
    beams: int = 1
    proves_completeness: bool = True

    def choose(self, frontier: Frontier) -> Expansion:
        expansion = BeamSearch(self.beam, self.end).choose(frontier)
        best = expansion.values[:, :1]  # [sentences, 1], of [sentences, candidates]
        return replace(expansion, is_kept=expansion.is_kept & (expansion.values >= best - self.margin))
