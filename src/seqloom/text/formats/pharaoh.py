"""Word alignments as text, a line per sentence pair: `0-0 1-2`, source position first, counted from 0.

In gold alignments `1?2` marks a link that is possible but not sure. A blank line has no links.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from seqloom.core.errors import DataError, Problems
from seqloom.core.files import read_lines

Link = tuple[int, int]
"""A source position and a target position, counted from 0."""

_LINK = re.compile(r"([0-9]{1,9})([-?])([0-9]{1,9})")


@dataclass(frozen=True)
class GoldLinks:
    """What annotators linked in a sentence pair. The sure links are possible, too."""

    sure: frozenset[Link]
    possible: frozenset[Link]

    def __post_init__(self) -> None:
        if not self.sure <= self.possible:
            alone = sorted(self.sure - self.possible)
            raise DataError(f"sure links are possible as well, but these are not: {format_links(alone[:5])}")


def format_links(links: Iterable[Link]) -> str:
    """The line of a sentence pair, by source and then by target position."""
    return " ".join(f"{source}-{target}" for source, target in sorted(links))


def parse_links(line: str) -> GoldLinks:
    """The links of a line; what is no link is a DataError that shows it."""
    sure, possible = set(), set()
    for word in line.split():
        found = _LINK.fullmatch(word)
        if found is None:
            raise DataError(
                f"{word[:40]!r} is no link; links are written 0-0 1-2, source position first, counted from 0, "
                "or 1?2 if they are possible only"
            )
        link = int(found[1]), int(found[3])
        possible.add(link)
        if found[2] == "-":
            sure.add(link)
    return GoldLinks(frozenset(sure), frozenset(possible))


def read_pharaoh(path: Path) -> list[GoldLinks]:
    """The links of each line of a file, `.gz` too; a DataError names the lines that cannot be read."""
    gold, problems = [], Problems()
    for number, line in enumerate(read_lines(path), start=1):
        try:
            gold.append(parse_links(line))
        except DataError as error:
            problems.add(str(error), path, number)
    problems.require_none()
    return gold
