"""The forecast of unknown words and characters: what a vocabulary made from the training text will not know."""

import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from seqloom.inspection.doctor.faults import Fault, in_percent

SIZES = (1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000)
"""Words in a vocabulary for which the share of unknown ones is told."""

HELD_OUT, HELD_OUT_EVERY = "held-out", 20
"""Where there is no dev and no test set, each so many-th line of the training text stands for one, by this name."""

MANY_CHARACTERS = 0.001


@dataclass(frozen=True)
class SideForecast:
    """What of one side of a text would be unknown."""

    words: tuple[tuple[int, float], ...]
    """The share of unknown words by the size of a vocabulary of whole words; the last size holds all words seen."""
    characters: float
    """The share of characters that the training text never has: unknown to any vocabulary without bytes."""
    new_characters: tuple[str, ...]
    """The most frequent of them."""


@dataclass(frozen=True)
class Forecast:
    """The forecast for a split."""

    split: str
    """Its name, or HELD_OUT for a part of the training text."""
    source: SideForecast
    target: SideForecast


@dataclass(frozen=True)
class Counts:
    """Words and characters of one side of a text."""

    words: Counter[str]
    characters: Counter[str]

    @staticmethod
    def none() -> "Counts":
        """Before anything was read."""
        return Counts(Counter(), Counter())

    def add(self, text: str, words: Sequence[str]) -> None:
        """Read a line."""
        self.words.update(words)
        self.characters.update(text)


def forecast_side(known: Counts, other: Counts) -> SideForecast:
    """The shares of the words and characters of another text that one made from `known` will not know."""
    ranked = [word for word, _ in known.words.most_common()]
    total = max(1, other.words.total())
    rank = {word: at for at, word in enumerate(ranked)}
    sizes = [*(size for size in SIZES if size < len(ranked)), len(ranked)]
    missing = [_share_beyond(rank, other.words, size) / total for size in sizes]
    new = Counter({sign: count for sign, count in other.characters.items() if sign not in known.characters})
    share = new.total() / max(1, other.characters.total())
    return SideForecast(tuple(zip(sizes, missing, strict=True)), share, tuple(sign for sign, _ in new.most_common(20)))


def _share_beyond(rank: Mapping[str, int], words: Counter[str], size: int) -> int:
    return sum(count for word, count in words.items() if rank.get(word, size) >= size)


def examine_unknown(forecast: Forecast) -> list[Fault]:
    """A note if characters will be missing."""
    sides = [("source", forecast.source), ("target", forecast.target)]
    parts = [
        f"{in_percent(side.characters)} of the characters of the {name} ({_seen(side.new_characters[:8])})"
        for name, side in sides
        if side.characters > 0
    ]
    if not parts:
        return []
    is_much = max(side.characters for _, side in sides) > MANY_CHARACTERS
    return [
        Fault(
            "unknown",
            "mend" if is_much else "note",
            f"Characters of {_named(forecast.split)} that the training text never has",
            f"unknown to any vocabulary made from it: {'; '.join(parts)}",
            "text.byte_fallback=true spells them in bytes; or add training text that has them",
            forecast.split,
        )
    ]


def _named(split: str) -> str:
    return "held-out lines" if split == HELD_OUT else split


def _seen(signs: Sequence[str]) -> str:
    """Some characters, those by their numbers that cannot be seen by themselves: spaces, what has no width, accents."""
    is_hidden = [not sign.isprintable() or sign == " " or unicodedata.category(sign)[0] == "M" for sign in signs]
    return " ".join(f"U+{ord(sign):04X}" if hidden else sign for sign, hidden in zip(signs, is_hidden, strict=True))
