"""A tagger by counting: a second-order hidden Markov model of tags, as in TnT (Brants, 2000).

    t_1 … t_n = argmax Π_i P(t_i ∣ t_(i−2), t_(i−1)) P(w_i ∣ t_i) · P(END ∣ t_(n−1), t_n)      two begin tags before t_1

    P(t_3 ∣ t_1, t_2) = λ_1 f(t_3) / N + λ_2 f(t_2 t_3) / f(t_2) + λ_3 f(t_1 t_2 t_3) / f(t_1 t_2)
        λ by deleted interpolation: each trigram of the text votes for the order that predicts it best without itself
    P(w ∣ t) = f(w, t) / f(t)                                        words of the training text, and only their tags
    P(t ∣ s_i) = (f(s_i, t) / f(s_i) + θ P(t ∣ s_(i−1))) / (1 + θ)   unknown words: s_i are their last i letters, from
        P(w ∣ t) ∝ P(t ∣ s) / P(t)                                   rare words, capitalised ones apart; θ is the
                                                                     standard deviation of the tags' probabilities

The states are pairs of tags; only the tags that a word can have are tried, so that a sentence takes microseconds.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float64, Int64

from seqloom.core.errors import DataError, ModelError
from seqloom.core.jit import compiled
from seqloom.text.formats.conllu import CONLLU, TokenFile

Tagged = Sequence[tuple[str, str]]
"""The words of a sentence, each with its tag."""
Array = Any
"""numba infers types and shapes."""

MAX_SUFFIX = 10
"""Letters of the longest ending (Brants, 2000)."""
RARE = 10
"""Words that occur at most so often teach endings: unknown words resemble rare ones."""
MAX_TAGS = 256
"""Tags whose table of trigrams still fits into memory."""


def read_conllu(path: Path, *, column: Literal["upos", "xpos"] = "upos") -> Iterator[list[tuple[str, str]]]:
    """The sentences of a CoNLL-U file, plain or compressed; ranges of words and empty nodes are left out."""
    for sentence in TokenFile(path, layout=CONLLU):
        if sentence.words:
            yield list(zip(sentence.forms, sentence.column(column), strict=True))


@dataclass(frozen=True)
class TaggingAccuracy:
    """How many words got the right tag: those of the training text, and unknown ones."""

    known_right: int
    known: int
    unknown_right: int
    unknown: int

    @property
    def accuracy(self) -> float:
        """The share of all words."""
        return (self.known_right + self.unknown_right) / max(1, self.known + self.unknown)

    def __str__(self) -> str:
        parts = [(self.known_right, self.known, "known"), (self.unknown_right, self.unknown, "unknown")]
        shown = ", ".join(f"{name} {right / max(1, count):.2%} of {count:,}" for right, count, name in parts)
        return f"{self.accuracy:.2%} of {self.known + self.unknown:,} words ({shown})"


@dataclass(frozen=True, eq=False)
class TagCounts:
    """How often each of some strings has each tag; those of string s are between `starts[s]` and `starts[s + 1]`."""

    names: tuple[str, ...]
    starts: Int64[np.ndarray, " borders"]
    tags: Int64[np.ndarray, " pairs"]
    counts: Int64[np.ndarray, " pairs"]

    @staticmethod
    def of(pairs: Mapping[tuple[str, int], int]) -> "TagCounts":
        """From counts by name and tag."""
        ordered = sorted(pairs.items())
        names = tuple(dict.fromkeys(name for (name, _), _ in ordered))
        per_name = Counter(name for (name, _), _ in ordered)
        starts = np.cumsum([0, *(per_name[name] for name in names)])
        return TagCounts(
            names,
            starts,
            np.array([tag for (_, tag), _ in ordered], np.int64),
            np.array([count for _, count in ordered], np.int64),
        )

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of each string."""
        return {name: number for number, name in enumerate(self.names)}

    def find(self, name: str) -> tuple[Int64[np.ndarray, " _"], Int64[np.ndarray, " _"]] | None:
        """The tags of a string and their counts; None if it has none."""
        number = self.numbers.get(name)
        if number is None:
            return None
        begin, end = self.starts[number], self.starts[number + 1]
        return self.tags[begin:end], self.counts[begin:end]

    def arrays(self, prefix: str) -> dict[str, np.ndarray]:
        return {
            f"{prefix}.names": _packed(self.names),
            f"{prefix}.starts": self.starts,
            f"{prefix}.tags": self.tags,
            f"{prefix}.counts": self.counts,
        }

    @staticmethod
    def restore(arrays: Mapping[str, np.ndarray], prefix: str, *, tags: int) -> "TagCounts":
        """Refuses arrays that do not fit together."""
        names = _unpacked(arrays[f"{prefix}.names"])
        starts, found, counts = (np.asarray(arrays[f"{prefix}.{name}"]) for name in ("starts", "tags", "counts"))
        is_whole = (
            all(array.dtype == np.int64 and array.ndim == 1 for array in (starts, found, counts))
            and len(starts) == len(names) + 1
            and len(found) == len(counts)
            and (len(names) == 0 or (starts[0] == 0 and starts[-1] == len(found) and (np.diff(starts) > 0).all()))
            and (len(found) == 0 or (found.min() >= 0 and found.max() < tags and counts.min() > 0))
        )
        if not is_whole:
            raise ModelError(f"not the arrays of a tagger: {prefix} is damaged; fit it again")
        return TagCounts(names, starts, found, counts)


@dataclass(frozen=True, eq=False)
class HmmTagger:
    """A tagger fitted to tagged sentences.

    tagger = HmmTagger.fit(read_conllu(Path("train.conllu.gz")))
    tagger.tag(["The", "dog", "sleeps"])
    """

    tags: tuple[str, ...]
    trigrams: Int64[np.ndarray, "tags_1 tags_1 tags_1"]
    """f(t_1 t_2 t_3); the last number is the begin tag in the first two places, and END in the third."""
    lexicon: TagCounts
    suffixes: TagCounts
    """Endings of rare words, after A for capitalised words and a for others."""

    @staticmethod
    def fit(sentences: Iterable[Tagged]) -> "HmmTagger":
        """Count the tags, the words and the endings of a tagged text."""
        numbers: dict[str, int] = {}
        pairs: Counter[tuple[str, int]] = Counter()
        trigrams: Counter[tuple[int, int, int]] = Counter()
        begin = -1
        for sentence in sentences:
            before = last = begin
            for word, tag in sentence:
                number = numbers.setdefault(tag, len(numbers))
                pairs[word, number] += 1
                trigrams[before, last, number] += 1
                before, last = last, number
            if sentence:
                trigrams[before, last, begin] += 1
        if not pairs:
            raise DataError("there are no tagged words to learn from; give at least one sentence")
        if len(numbers) > MAX_TAGS:
            raise DataError(
                f"{len(numbers)} different tags are more than {MAX_TAGS}; take a coarser column, such as upos"
            )
        for word, _ in pairs:
            if not word or "\n" in word:
                raise DataError(f"the word {word!r} is empty or has a line break in it")
        table = np.zeros((len(numbers) + 1,) * 3, np.int64)
        for (before, last, number), count in trigrams.items():
            table[before, last, number] = count  # −1 is the last place
        frequencies: Counter[str] = Counter()
        for (word, _), count in pairs.items():
            frequencies[word] += count
        endings: Counter[tuple[str, int]] = Counter()
        for (word, number), count in pairs.items():
            if frequencies[word] <= RARE:
                for ending in _endings(word):
                    endings[ending, number] += count
        return HmmTagger(tuple(numbers), table, TagCounts.of(pairs), TagCounts.of(endings))

    def tag(self, words: Sequence[str]) -> list[str]:
        """The likeliest tags of a sentence."""
        if not words:
            return []
        found = [self._candidates(word) for word in words]
        starts = np.cumsum([0, *(len(tags) for tags, _ in found)])
        tags = np.concatenate([tags for tags, _ in found])
        weights = np.concatenate([weights for _, weights in found])
        result = np.empty(len(words), np.int64)
        best_tags(self._log_trigrams, starts, tags, weights, result)
        return [self.tags[number] for number in result]

    def measure(self, sentences: Iterable[Tagged]) -> TaggingAccuracy:
        """How many words of a tagged text get the right tag."""
        right, count = Counter[bool](), Counter[bool]()
        for sentence in sentences:
            guesses = self.tag([word for word, _ in sentence])
            for (word, tag), guess in zip(sentence, guesses, strict=True):
                is_known = word in self.lexicon.numbers
                count[is_known] += 1
                right[is_known] += guess == tag
        return TaggingAccuracy(right[True], count[True], right[False], count[False])

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything it consists of."""
        return {
            "tags": _packed(self.tags),
            "trigrams": self.trigrams,
            **self.lexicon.arrays("lexicon"),
            **self.suffixes.arrays("suffixes"),
        }

    @staticmethod
    def restore(arrays: Mapping[str, np.ndarray]) -> "HmmTagger":
        """The tagger whose `arrays` these are; refuses damaged ones."""
        wanted = {"tags", "trigrams"} | {
            f"{part}.{name}" for part in ("lexicon", "suffixes") for name in ("names", "starts", "tags", "counts")
        }
        if missing := wanted - arrays.keys():
            raise ModelError(f"not the arrays of a tagger: {', '.join(sorted(missing))} missing")
        tags, trigrams = _unpacked(arrays["tags"]), np.asarray(arrays["trigrams"])
        size = len(tags) + 1
        if trigrams.shape != (size, size, size) or trigrams.dtype != np.int64 or trigrams.min() < 0 or size < 2:
            raise ModelError(
                f"not the arrays of a tagger with {len(tags)} tags: trigrams are {trigrams.dtype} "
                f"{list(trigrams.shape)}; fit it again"
            )
        parts = (TagCounts.restore(arrays, name, tags=len(tags)) for name in ("lexicon", "suffixes"))
        return HmmTagger(tags, trigrams, *parts)

    @cached_property
    def weights(self) -> tuple[float, float, float]:
        """λ_1, λ_2 and λ_3, by deleted interpolation."""
        f = self.trigrams.astype(np.float64)
        one, two, total = f.sum((0, 1)), f.sum(0), f.sum()
        # What each order predicts without this occurrence of the trigram; 0 / 0 counts as 0.
        shares = np.stack(
            [
                np.broadcast_to(_share(one - 1, total - 1), f.shape),
                np.broadcast_to(_share(two - 1, two.sum(1, keepdims=True) - 1), f.shape),
                _share(f - 1, f.sum(2, keepdims=True) - 1),
            ]
        )
        best = 2 - shares[::-1].argmax(0)  # the longest context of equally good ones
        votes = np.array([f[best == order].sum() for order in range(3)])
        first, second, third = (votes / votes.sum()).tolist()
        return first, second, third

    @cached_property
    def _log_trigrams(self) -> Float64[np.ndarray, "tags_1 tags_1 tags_1"]:
        """log P(t_3 ∣ t_1, t_2)."""
        f = self.trigrams.astype(np.float64)
        one, two = f.sum((0, 1)), f.sum(0)
        first, second, third = self.weights
        probabilities = first * one / f.sum() + second * _share(two, two.sum(1, keepdims=True))
        with np.errstate(divide="ignore"):
            result: np.ndarray = np.log(probabilities + third * _share(f, f.sum(2, keepdims=True)))
        return result

    @cached_property
    def _tag_counts(self) -> Float64[np.ndarray, " tags"]:
        counts: np.ndarray = self.trigrams.sum((0, 1))[:-1].astype(np.float64)
        return counts

    @cached_property
    def _theta(self) -> float:
        """θ: the standard deviation of the tags' probabilities."""
        return float(np.std(self._tag_counts / self._tag_counts.sum(), ddof=1)) if len(self.tags) > 1 else 1.0

    def _candidates(self, word: str) -> tuple[Int64[np.ndarray, " _"], Float64[np.ndarray, " _"]]:
        """The tags that a word can have, and log P(w ∣ t) up to a constant."""
        entry = self.lexicon.find(word) or self.lexicon.find(word.lower())
        if entry is not None:
            tags, counts = entry
            return tags, np.log(counts / self._tag_counts[tags])
        prior = self._tag_counts / self._tag_counts.sum()
        shares = prior
        for ending in _endings(word):
            entry = self.suffixes.find(ending)
            if entry is None:
                break
            own = np.zeros(len(self.tags))
            own[entry[0]] = entry[1] / entry[1].sum()
            shares = (own + self._theta * shares) / (1 + self._theta)
        return np.arange(len(self.tags)), np.log(shares / prior)


@dataclass(frozen=True)
class MajorityTagger:
    """Each word gets its most frequent tag, and an unknown one that of most words: what every tagger should beat."""

    by_word: Mapping[str, str]
    commonest: str

    @staticmethod
    def fit(sentences: Iterable[Tagged]) -> "MajorityTagger":
        """Count the tags of each word; of equally frequent ones, the first in the alphabet."""
        pairs = Counter(pair for sentence in sentences for pair in sentence)
        if not pairs:
            raise DataError("there are no tagged words to learn from; give at least one sentence")
        tags: Counter[str] = Counter()
        by_word: dict[str, str] = {}
        for (word, tag), count in sorted(pairs.items(), key=lambda item: (-item[1], item[0])):
            by_word.setdefault(word, tag)
            tags[tag] += count
        return MajorityTagger(by_word, min(tags, key=lambda tag: (-tags[tag], tag)))

    def tag(self, words: Sequence[str]) -> list[str]:
        """The tag of each word of a sentence."""
        return [self.by_word.get(word, self.commonest) for word in words]


@compiled()
def best_tags(log_trigrams: Array, starts: Array, tags: Array, weights: Array, result: Array) -> None:
    """Viterbi over pairs of candidates: those of word i are between `starts[i]` and `starts[i + 1]`."""
    words, outside = len(starts) - 1, len(log_trigrams) - 1
    widest = 1
    for i in range(words):
        widest = max(widest, starts[i + 1] - starts[i])
    pointers = np.zeros((words, widest, widest), np.int16)
    before, now = np.full((widest, widest), -np.inf), np.full((widest, widest), -np.inf)
    for b in range(starts[1]):
        before[0, b] = log_trigrams[outside, outside, tags[b]] + weights[b]
    for i in range(1, words):
        first = starts[i - 2] if i > 1 else 0
        firsts = starts[i - 1] - first if i > 1 else 1
        for a in range(starts[i] - starts[i - 1]):
            middle = tags[starts[i - 1] + a]
            for b in range(starts[i + 1] - starts[i]):
                last = tags[starts[i] + b]
                best, chosen = -np.inf, 0
                for c in range(firsts):
                    opening = tags[first + c] if i > 1 else outside
                    value = before[c, a] + log_trigrams[opening, middle, last]
                    if value > best:
                        best, chosen = value, c
                now[a, b] = best + weights[starts[i] + b]
                pointers[i, a, b] = chosen
        before, now = now, before
    best, last_a, last_b = -np.inf, 0, 0
    earlier = starts[words - 1] - starts[words - 2] if words > 1 else 1
    for a in range(earlier):
        opening = tags[starts[words - 2] + a] if words > 1 else outside
        for b in range(starts[words] - starts[words - 1]):
            value = before[a, b] + log_trigrams[opening, tags[starts[words - 1] + b], outside]
            if value > best:
                best, last_a, last_b = value, a, b
    for i in range(words - 1, -1, -1):
        result[i] = tags[starts[i] + last_b]
        if i > 0:
            last_a, last_b = pointers[i, last_a, last_b], last_a


def _endings(word: str) -> list[str]:
    """The endings of a word, the shortest first, after the mark of its first letter."""
    mark = "A" if word[:1].isupper() else "a"
    return [mark + word[len(word) - length :] for length in range(min(MAX_SUFFIX, len(word)) + 1)]


def _share(part: np.ndarray, whole: Any) -> np.ndarray:
    """part / whole, 0 where nothing is whole."""
    result: np.ndarray = np.where(whole > 0, part / np.where(whole > 0, whole, 1.0), 0.0)
    return result


def _packed(names: Sequence[str]) -> np.ndarray:
    """Strings as bytes, each ended by a line feed."""
    return np.frombuffer("".join(f"{name}\n" for name in names).encode("utf-8"), np.uint8)


def _unpacked(packed: np.ndarray) -> tuple[str, ...]:
    try:
        return tuple(np.asarray(packed, np.uint8).tobytes().decode("utf-8").split("\n")[:-1])
    except UnicodeDecodeError as error:
        raise ModelError(f"not the arrays of a tagger: its names are damaged ({error.reason}); fit it again") from None
