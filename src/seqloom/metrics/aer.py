"""Alignment error rate: how far found word links are from those of annotators (Och and Ney, 2003).

    precision = ∣A ∩ P∣ / ∣A∣        A found links, S sure links, P possible links, S ⊆ P
    recall    = ∣A ∩ S∣ / ∣S∣
    AER       = 1 − (∣A ∩ S∣ + ∣A ∩ P∣) / (∣A∣ + ∣S∣)

Links are counted over all sentences, so long sentences weigh more. Links to the null word are none. With S = P, AER is
1 − F₁.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from seqloom.core.errors import DataError
from seqloom.text.formats.pharaoh import GoldLinks, Link


@dataclass(frozen=True)
class AlignmentScore:
    """Counts of links, and the rates that follow; None where a rate is 0 / 0."""

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
