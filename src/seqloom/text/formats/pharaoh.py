"""Word alignments as text.

0-0 1?2 3p3      Pharaoh: a line per sentence pair, source position first, counted from 0; ? or p: possible, not sure;
                 a probability may follow, which is ignored when read: 0-0:0.98
0004 2 3 P 0.7   .wa, the gold links of HLT-NAACL 2003: a line per link, sentence and both positions counted from 1;
                 S (sure, the default) or P (possible), and a confidence, both optional; position 0 is the null word
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from seqloom.core.errors import DataError, Problem, Problems
from seqloom.core.files import read_lines

Link = tuple[int, int]
"""A source position and a target position, counted from 0."""

GoldForm = Literal["pharaoh", "wa"]

_CONFIDENCE = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
_LINK = re.compile(rf"([0-9]{{1,9}})([-?p])([0-9]{{1,9}})(?::{_CONFIDENCE})?")
_WA_LINK = re.compile(rf"([0-9]{{1,9}})\s+([0-9]{{1,9}})\s+([0-9]{{1,9}})(?:\s+([SP]))?(?:\s+{_CONFIDENCE})?")
_HOW_WRITTEN = (
    "gold links are read in two forms: a line for each sentence pair with links 0-0 1-2, source position first, "
    "counted from 0, 1?2 if only possible; or a line `sentence source target S|P` for each link, counted from 1 (.wa)"
)


@dataclass(frozen=True)
class GoldLinks:
    """What annotators linked in a sentence pair. The sure links are possible, too."""

    sure: frozenset[Link]
    possible: frozenset[Link]

    def __post_init__(self) -> None:
        if not self.sure <= self.possible:
            alone = sorted(self.sure - self.possible)
            raise DataError(f"sure links are possible as well, but these are not: {format_links(alone[:5])}")


def format_links(links: Iterable[Link], probability: Callable[[Link], float] | None = None) -> str:
    """The line of a sentence pair, by source and then by target position: 0-0 1-2, or 0-0:0.98 1-2:0.91."""
    if probability is None:
        return " ".join(f"{source}-{target}" for source, target in sorted(links))
    return " ".join(f"{source}-{target}:{probability((source, target)):.2f}" for source, target in sorted(links))


@dataclass(frozen=True)
class GoldFile:
    """The gold links of a text, one entry per sentence pair."""

    form: GoldForm
    links: list[GoldLinks]
    null_links: int = 0
    """Links to the null word, which are left out."""


def parse_links(line: str) -> GoldLinks:
    """The links of a Pharaoh line; a DataError shows the first word that is not a link."""
    sure, possible = set(), set()
    for word in line.split():
        found = _LINK.fullmatch(word)
        if found is None:
            raise DataError(f"{word[:40]!r} is not a link")
        link = int(found[1]), int(found[3])
        possible.add(link)
        if found[2] == "-":
            sure.add(link)
    return GoldLinks(frozenset(sure), frozenset(possible))


def read_gold(path: Path, pairs: int) -> GoldFile:
    """The gold links of so many sentence pairs, as .wa if the name or most lines with text say so; `.gz` too.

    A DataError names the lines that cannot be read. The number of lines of a Pharaoh file must be that of the pairs;
    sentences that a .wa file does not name have no links.
    """
    is_wa = ".wa" in path.suffixes[-2:]
    if not is_wa:
        seen = [_WA_LINK.fullmatch(line.strip()) is not None for line in read_lines(path) if line.strip()]
        is_wa = 2 * sum(seen) > len(seen)
    return _read_wa(path, pairs) if is_wa else _read_pharaoh(path, pairs)


def _read_pharaoh(path: Path, pairs: int) -> GoldFile:
    links, problems = [], Problems()
    for number, line in enumerate(read_lines(path), start=1):
        try:
            links.append(parse_links(line))
        except DataError as error:
            problems.add(str(error), path, number)
    problems.require_none(_HOW_WRITTEN)
    if len(links) != pairs:
        message = f"{len(links):,} lines, but {pairs:,} sentence pairs are aligned; each pair needs one line"
        raise DataError(problems=[Problem(message, str(path))])
    return GoldFile("pharaoh", links)


def _read_wa(path: Path, pairs: int) -> GoldFile:
    sure: list[set[Link]] = [set() for _ in range(pairs)]
    possible: list[set[Link]] = [set() for _ in range(pairs)]
    null_links, problems = 0, Problems()
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        found = _WA_LINK.fullmatch(line.strip())
        if found is None:
            problems.add(f"{line.strip()[:40]!r} is not a link `sentence source target S|P`", path, number)
            continue
        sentence, source, target = (int(found[group]) for group in (1, 2, 3))
        if not 1 <= sentence <= pairs:
            message = f"sentence {sentence}, but the {pairs:,} sentence pairs that are aligned are numbered from 1"
            problems.add(message, path, number)
        elif source == 0 or target == 0:
            null_links += 1
        else:
            possible[sentence - 1].add((source - 1, target - 1))
            if found[4] != "P":
                sure[sentence - 1].add((source - 1, target - 1))
    problems.require_none()
    both = zip(sure, possible, strict=True)
    return GoldFile("wa", [GoldLinks(frozenset(ones), frozenset(others)) for ones, others in both], null_links)
