"""Which candidates live on when phrases are forced, after the dynamic beam allocation of Post and Vilar (2018).

A forced symbol is often improbable, so the best candidates by probability alone never hold it. The candidates are
therefore put into banks by how many forced symbols they still miss, and each bank has its own share of the beam.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Banked(NamedTuple):
    """A candidate: what it still misses (its bank) and log P of all its symbols."""

    missing: int
    log_prob: float


def choose(candidates: Sequence[Banked], beam: int) -> list[int]:
    """The indices of at most `beam` candidates, best first; of equal ones the earlier first. Those at −∞ are out.

        k places, B banks that have candidates, ranked by what they miss, least first
        k ≥ B    each bank gets k // B places; the first k mod B banks get one more
        k < B    place p goes to the bank of rank ⌊p (B − 1) / (k − 1)⌋: the first, the last, and some between them

    Places that a bank cannot fill pass to the bank nearest in what it misses that has candidates left, of two equally
    near ones to the one that misses less. With one bank, as when no phrase is forced, these are the `beam` best.
    """
    order = sorted(range(len(candidates)), key=lambda index: (-candidates[index].log_prob, index))
    banks: dict[int, list[int]] = {}
    for index in order:
        if candidates[index].log_prob > float("-inf"):
            banks.setdefault(candidates[index].missing, []).append(index)
    places = _share(sorted(banks), beam)
    places = _pass_on(places, {missing: len(bank) for missing, bank in banks.items()})
    chosen = {index for missing, bank in banks.items() for index in bank[: places[missing]]}
    return [index for index in order if index in chosen]


def _share(banks: Sequence[int], beam: int) -> dict[int, int]:
    """How many places each bank gets, whatever it can fill."""
    if beam >= len(banks):
        return {bank: beam // len(banks) + (rank < beam % len(banks)) for rank, bank in enumerate(banks)}
    # Were the banks that miss least to get all places, each output would begin with its phrases.
    ranks = {place * (len(banks) - 1) // max(beam - 1, 1) for place in range(beam)}
    return {bank: int(rank in ranks) for rank, bank in enumerate(banks)}


def _pass_on(places: Mapping[int, int], sizes: Mapping[int, int]) -> dict[int, int]:
    """Move places that banks cannot fill to the nearest banks that can."""
    filled = {bank: min(places[bank], sizes[bank]) for bank in places}
    for bank in places:
        spare = max(places[bank] - sizes[bank], 0)
        for _, near in sorted((abs(other - bank), other) for other in places):
            taken = min(spare, sizes[near] - filled[near])
            filled[near] += taken
            spare -= taken
    return filled
