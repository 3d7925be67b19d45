"""Planting faults into a parallel text, and remembering where."""

import gzip
import random
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
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


# --- faults of single texts ------------------------------------------------------------------------------------------

Change = Callable[[str, str, random.Random], tuple[str, str]]


def _in_source(change: Callable[[str, random.Random], str]) -> Change:
    return lambda source, target, numbers: (change(source, numbers), target)


def _in_target(change: Callable[[str, random.Random], str]) -> Change:
    return lambda source, target, numbers: (source, change(target, numbers))


def _tagged(text: str, numbers: random.Random) -> str:
    words = text.split(" ")
    at = numbers.randrange(len(words))
    words[at] = numbers.choice(["<b>{}</b>", "<br/>{}", '<a href="/page">{}</a>', "<P>{}"]).format(words[at])
    return " ".join(words)


def _bare(text: str) -> str:
    return "".join(sign for sign in unicodedata.normalize("NFD", text) if not unicodedata.combining(sign))


def _cut(text: str) -> str:
    words = text.split(" ")
    return " ".join(words[: len(words) // 2])


CHANGES: dict[str, tuple[str, Change]] = {
    "tags": ("markup", _in_target(_tagged)),
    "accents lost": ("accents", _in_target(lambda text, _: _bare(text).replace("ß", "ss"))),
    "accents left out": ("accents", _in_target(lambda text, _: "".join(filter(str.isascii, text)))),
    "question marks": ("accents", _in_target(lambda text, _: re.sub("[^\x00-\x7f]", "?", text))),
    "cut targets": ("cut", _in_target(lambda text, _: _cut(text))),
    "cut sources": ("cut", _in_source(lambda text, _: _cut(text))),
    "addresses": ("one-sided", _in_target(lambda text, _: f"{text} https://example.org/bild")),
    "emoji": ("one-sided", _in_source(lambda text, _: f"{text} 😀")),
    "notes": ("one-sided", _in_target(lambda text, _: f"{text} (Anmerkung der Redaktion)")),
}
"""What is planted, with the kind of the fault and how a pair is changed."""


def plant(pairs: Pairs, changes: Mapping[str, Change], *, count: int, seed: int) -> Planted:
    """Change some lines in each of these ways, if that makes a difference."""
    numbers = random.Random(seed)
    found, free = Planted(list(pairs)), list(range(1, len(pairs) - 1))
    numbers.shuffle(free)
    for name, change in changes.items():
        found.lines[name] = set()
        while len(found.lines[name]) < count:
            at = free.pop()
            changed = change(*pairs[at], numbers)
            if changed != pairs[at]:
                found.pairs[at] = changed
                found.lines[name].add(at + 1)
    return found


def move_borders(pairs: Pairs, firsts: Sequence[int]) -> set[int]:
    """Move a third of a target into the next line or the one before; gives the numbers of both lines."""
    for turn, at in enumerate(firsts):
        (source, one), (following, other) = pairs[at], pairs[at + 1]
        words, more = one.split(" "), other.split(" ")
        if turn % 2:
            count = max(2, len(words) // 3)
            words, more = words[:-count], words[-count:] + more
        else:
            count = max(2, len(more) // 3)
            words, more = words + more[:count], more[count:]
        pairs[at], pairs[at + 1] = (source, " ".join(words)), (following, " ".join(more))
    return {number for at in firsts for number in (at + 1, at + 2)}
