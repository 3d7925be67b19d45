"""Planting faults into a parallel text, and remembering where."""

import gzip
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

Pairs = list[tuple[str, str]]


@dataclass
class Planted:
    """Damaged pairs, and the numbers of the lines of each fault."""

    pairs: Pairs
    lines: dict[str, set[int]] = field(default_factory=dict)
    shift: int = 0


def damage(pairs: Pairs, leaked: Pairs, *, seed: int, shifted: int, swapped: int, copies: int, others: int) -> Planted:
    """A run whose targets stand three lines on, a run of swapped pairs, copies, lines in Cyrillic, leaks, duplicates.

    Runs stand in the first half, single lines in the second, so that no line has two faults.
    """
    random_numbers = random.Random(seed)
    found = Planted(list(pairs), shift=3)
    total = len(pairs)
    first = total // 8
    run = range(first, first + shifted)
    for place in run:
        source = found.pairs[place][0]
        found.pairs[place] = (source, pairs[first + (place - first - found.shift) % shifted][1])
    # The last of the run have no partner any more: their targets came round to its beginning.
    found.lines["misaligned"] = {place + 1 for place in run[: -found.shift]}
    found.lines["lost"] = {place + 1 for place in run[-found.shift :]}
    begin = total * 3 // 8
    for place in range(begin, begin + swapped):
        found.pairs[place] = (pairs[place][1], pairs[place][0])
    found.lines["swapped"] = set(range(begin + 1, begin + swapped + 1))
    chosen = random_numbers.sample(range(total // 2, total), copies + 3 * others)
    cuts = [chosen[:copies], *(chosen[copies + at * others : copies + (at + 1) * others] for at in range(3))]
    for place in cuts[0]:
        found.pairs[place] = (pairs[place][0], pairs[place][0])
    for place in cuts[1]:
        found.pairs[place] = (pairs[place][0], in_cyrillic(pairs[place][1]))
    for at, place in enumerate(cuts[2]):
        found.pairs[place] = leaked[at]
    for at, place in enumerate(cuts[3]):
        found.pairs[place] = pairs[at]
    for kind, places in zip(("copies", "script", "leaked", "duplicates"), cuts, strict=True):
        found.lines[kind] = {place + 1 for place in places}
    return found


def in_cyrillic(text: str) -> str:
    """The text with letters of another script."""
    return text.lower().translate(str.maketrans("abcdefghijklmnopqrstuvwxyzäöüß", "абцдефгхижклмнопярстувщхызэёюс"))


def write_pairs(pairs: Sequence[tuple[str, str]], folder: Path, name: str, languages: tuple[str, str]) -> list[Path]:
    """Two files, line by line."""
    paths = [folder / f"{name}.{language}" for language in languages]
    for side, path in enumerate(paths):
        path.write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
    return paths


def read_pairs(source: Path, target: Path) -> Pairs:
    """The pairs of two compressed files."""
    sides = [gzip.decompress(path.read_bytes()).decode("utf-8").split("\n")[:-1] for path in (source, target)]
    return list(zip(*sides, strict=True))
