"""Leakage: lines of a dev or test set that are also in the training text, so that scores measure memorisation.

Near ones are found by the bags of their words. The code of a line is h = Σ h(word), so that a line with one word more,
one less or another one shares h, or h without one of its words, with the line that it was made from.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from zlib import crc32

import numpy as np
from jaxtyping import Bool

from seqloom.data.corpus import Line
from seqloom.doctor.faults import Fault, counted, grade, numbers_where, percentage
from seqloom.doctor.survey import Survey
from seqloom.text.scripts import words_of

MIN_LEAKED_WORDS = 5
"""Shorter lines repeat by chance: `Yes.` and `Thank you.` are not leaks."""


def examine_leakage(train: Survey, other: Survey) -> list[Fault]:
    """Pairs, sources and targets of another split that the training text holds; capitals and marks do not count."""
    pair, half = leaks(train, other)
    split, total, faults = other.split, len(other), []
    if pair.any():
        lines = numbers_where(pair)
        exact = int((pair & np.isin(other.exact, train.exact)).sum())
        if len(lines) == 1:
            how = "exactly" if exact else "except for case, spaces or punctuation"
            also = f"is also in the training text ({how}): its score measures memorisation"
        else:
            also = f"are also in the training text, {exact:,} of them exactly: scores on them measure memorisation"
        sentence = f"{counted(len(lines), 'pair')} of {split} ({percentage(len(lines), total)}) {also}"
        advice, title = "--fix leakage removes them from the training text", f"Lines of {split} in the training text"
        severity = grade(len(lines), total, fix=0.0, stop=0.5)
        faults.append(Fault("leakage", severity, title, sentence, advice, split, lines))
    if half.any():
        lines = numbers_where(half)
        source = int((half & np.isin(other.source.keys, train.source.keys)).sum())
        sentence = (
            f"{counted(len(lines), 'line')} of {split} ({percentage(len(lines), total)}) with a source "
            f"({source:,}) or a target ({len(lines) - source:,}) that the training text has in another pair"
        )
        advice = "harmless in small numbers; many of them suggest that both splits come from the same text"
        severity, title = grade(len(lines), total, fix=0.02), f"One side of {split} in the training text"
        faults.append(Fault("half-leakage", severity, title, sentence, advice, split, lines))
    return faults


def leaks(train: Survey, other: Survey) -> tuple[Bool[np.ndarray, " lines"], Bool[np.ndarray, " lines"]]:
    """Which lines of another split are in the training text: as pairs, and with one side only."""
    is_full = (other.blank == 0) & (np.maximum(other.source.words, other.target.words) >= MIN_LEAKED_WORDS)
    pair = np.isin(other.pairs, train.pairs) & is_full
    source = np.isin(other.source.keys, train.source.keys) & (other.source.words >= MIN_LEAKED_WORDS)
    target = np.isin(other.target.keys, train.target.keys) & (other.target.words >= MIN_LEAKED_WORDS)
    return pair, (source | target) & is_full & ~pair


def leaked_into(train: Survey, others: list[Survey]) -> Bool[np.ndarray, " lines"]:
    """Which lines of the training text are also in another split."""
    found = np.zeros(len(train), bool)
    for other in others:
        pair, _ = leaks(train, other)
        found |= np.isin(train.pairs, other.pairs[pair])
    return found


# --- near leaks ------------------------------------------------------------------------------------------------------

MIN_NEAR_WORDS = 6
"""Words that both sides must have: short sentences differ in one word by chance."""

MAX_LINE_WORDS, MAX_LINES = 200, 20_000
"""Words of a line and lines of a split that are compared: each costs some hundred bytes for each word."""

_MASK = (1 << 64) - 1


@dataclass(frozen=True, eq=False)
class NearLeaks:
    """Lines that another split and the training text share except for one word."""

    train: Bool[np.ndarray, " lines"]
    others: Mapping[str, Bool[np.ndarray, " _"]]

    @staticmethod
    def none(total: int) -> "NearLeaks":
        """The result without other splits."""
        return NearLeaks(np.zeros(total, bool), {})


def find_near_leaks(
    train: Iterable[Line], others: Mapping[str, Iterable[Line]], *, total: int, progress: Callable[[int], None]
) -> NearLeaks:
    """Read the training text and look up each line among those of the other splits; exact leaks are found too."""
    known: list[tuple[str, int, list[str], list[str]]] = []
    places: dict[int, list[int]] = {}
    lengths = {}
    for name, lines in others.items():
        lengths[name] = 0
        for line in lines:
            lengths[name] = line.number
            source, target = words_of(line.source), words_of(line.target)
            if (
                line.number <= MAX_LINES
                and MIN_NEAR_WORDS <= len(source) <= MAX_LINE_WORDS
                and len(target) >= MIN_NEAR_WORDS
            ):
                for code in _codes(source):
                    places.setdefault(code, []).append(len(known))
                known.append((name, line.number, source, target))
    is_near = {name: np.zeros(length, bool) for name, length in lengths.items()}
    is_leaked = np.zeros(total, bool)
    for line in train:
        source = words_of(line.source)
        if MIN_NEAR_WORDS - 1 <= len(source) <= MAX_LINE_WORDS:
            for at in {at for code in _codes(source) if code in places for at in places[code]}:
                name, number, *words = known[at]
                differences = _difference(source, words[0]), _difference(words_of(line.target), words[1])
                # One word replaced on each side is another sentence: a black dog, a white dog.
                if max(differences) <= 1 or sorted(differences) == [0, 2]:
                    is_near[name][number - 1] = is_leaked[line.number - 1] = True
        if line.number % 20_000 == 0:
            progress(line.number)
    progress(total)
    return NearLeaks(is_leaked, is_near)


def _codes(words: list[str]) -> Iterator[int]:
    """The code of a line, and its codes without one of its words."""
    hashes = [crc32(word.encode("utf-8", "surrogatepass")) * 0x9E3779B97F4A7C15 & _MASK for word in words]
    total = sum(hashes)
    yield total & _MASK
    for each in hashes:
        yield (total - each) & _MASK


def _difference(one: list[str], other: list[str]) -> int:
    """Words that only one of two lines has; one that was replaced counts twice."""
    if abs(len(one) - len(other)) > 1:
        return len(one) + len(other)
    first, second = Counter(one), Counter(other)
    return (first - second).total() + (second - first).total()


def examine_near_leakage(near: NearLeaks, train: Survey, other: Survey) -> list[Fault]:
    """Lines of another split that differ from a training line by one word; exact leaks are reported separately."""
    if other.split not in near.others:
        return []
    lines = numbers_where(near.others[other.split] & ~leaks(train, other)[0])
    if len(lines) == 0:
        return []
    return [
        Fault(
            "near-leakage",
            grade(len(lines), len(other), fix=0.01),
            f"Lines of {other.split} in the training text except for one word",
            f"{counted(len(lines), 'pair')} of {other.split} ({percentage(len(lines), len(other))}) that "
            "match a training pair with one word added, removed or replaced: scores on them measure memorisation",
            "--fix near-leakage removes them from the training text",
            other.split,
            lines,
        )
    ]
