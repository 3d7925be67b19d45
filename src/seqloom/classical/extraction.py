"""Summaries by extraction: the sentences of a document that say most of what its summary would say.

A linear model scores each sentence s_i of a document, and the scores of one document compete:

    score(i) = w · φ(i) / √|φ(i)| + v · z(i) + u · z(i)²
    P(i) = softmax_i(score(i))                       which sentence is chosen
    q(i) = softmax_i(rating(i) / temperature)        which should be; the rating is its ROUGE with the summary
    loss = −mean over documents Σ_i q(i) log P(i) + penalty (|w|² + ‖v‖²/10 + ‖u‖²/10)

φ are signs that a sentence has or has not, hashed into one table: its words and pairs of words, how it and its
neighbours begin, its length, and its place from either end. z are numbers, scaled to mean 0 and deviation 1: how much
of what the document repeats is in the sentence, how rare its words are, how long it is, and where. The loss is convex
in w, v and u; L-BFGS finds the minimum from zero, so that there is no seed.
"""

import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from pydantic import Field
from torch import Tensor

from seqloom.core.declaration import ModelSettings, Purpose, TaskKind
from seqloom.core.errors import DataError, ModelError
from seqloom.core.events import Event, Listener, ignore, notice, phase
from seqloom.text.marks import split_characters

MAX_SENTENCES = 5
"""Sentences of a summary that are tried when their number is chosen."""

TRIED_SHARE = 5
"""One document of so many is left out when the number of sentences is chosen."""

MIN_DOCUMENTS = 10
"""Documents with several sentences without which nothing is learned."""

ITERATIONS = 80
"""Steps of L-BFGS: the choice of sentences does not change after about forty."""

NUMBERS = 8
"""Numbers of a sentence, beside its signs."""

_words = re.compile(r"[^\W_]+").findall


@dataclass(frozen=True)
class RatedDocument:
    """A document to learn from."""

    sentences: Sequence[str]
    ratings: Sequence[float]
    """How much of the summary each sentence has, from 0 to 1."""


Rate = Callable[[int, str], float]
"""The rating of a text as the summary of a document, which is given by its number."""


class ExtractionConfig(ModelSettings):
    """A linear model that chooses sentences."""

    purpose: ClassVar[Purpose] = "summariser"
    task_kind: ClassVar[TaskKind] = "summarisation"
    has_vocabulary: ClassVar[bool] = False

    kind: Literal["extraction"] = "extraction"
    """Which model this is."""
    sentences: int | None = Field(None, ge=1, le=1000)
    """Sentences of a summary. By default as many as give the best summaries of training documents that were left out,
    up to five."""
    signs: int = Field(1 << 16, ge=1 << 8, le=1 << 24)
    """Rows of the table of signs; different signs may share one."""
    penalty: float = Field(3e-4, gt=0, le=1)
    """Weight of the squared weights in the loss: more for fewer documents."""
    temperature: float = Field(0.1, gt=0, le=10)
    """How far ratings are spread: with a small one the best sentence alone is right, with a large one all are."""

    @property
    def is_fitted(self) -> bool:
        return True

    def fit_documents(
        self, documents: Sequence[RatedDocument], rate: Rate, *, listener: Listener = ignore
    ) -> "Extractor":
        """Learn which sentences to choose, and how many."""
        useful = [number for number, each in enumerate(documents) if len(each.sentences) > 1]
        if len(useful) < MIN_DOCUMENTS:
            raise DataError(
                f"{len(useful):,} of {len(documents):,} documents have more than one sentence, and at least "
                f"{MIN_DOCUMENTS} are needed to learn which to choose; give more documents"
            )
        count = self.sentences
        if count is None:
            phase(listener, "choosing the number of sentences")
            left_out = useful[::TRIED_SHARE]
            kept = sorted(set(useful) - set(left_out))
            tried = self._fit([documents[number] for number in kept], count=1)
            values = [0.0] * MAX_SENTENCES
            for number in left_out:
                sentences = documents[number].sentences
                scores = tried.scores(sentences)
                for size in range(MAX_SENTENCES):
                    values[size] += rate(number, " ".join(sentences[at] for at in best_places(scores, size + 1)))
            count = 1 + int(np.argmax(values))
            means = ", ".join(f"{100 * value / len(left_out):.1f} of {size}" for size, value in enumerate(values, 1))
            notice(listener, f"summaries have {count} sentence{'s' if count > 1 else ''} (mean ROUGE-1: {means})")
        phase(listener, f"fitting extraction to {len(useful):,} documents")
        return self._fit([documents[number] for number in useful], count=count, listener=listener)

    def _fit(self, documents: Sequence[RatedDocument], *, count: int, listener: Listener = ignore) -> "Extractor":
        frequencies = np.zeros(self.signs, np.int64)
        for document in documents:
            words = {word for sentence in document.sentences for word in words_of(sentence)}
            np.add.at(frequencies, np.array([_row("f", word, self.signs) for word in sorted(words)], np.int64), 1)
        rarity = rarities(frequencies, len(documents))
        found = [describe_sentences(each.sentences, rarity) for each in documents]
        rows = [row for each in found for row in each.signs]
        sizes = torch.tensor([len(row) for row in rows])
        signs = torch.from_numpy(np.concatenate(rows))
        begins = torch.cumsum(sizes, 0) - sizes
        shares = torch.repeat_interleave(sizes.double().rsqrt(), sizes)
        numbers = np.concatenate([each.numbers for each in found])  # [sentences, numbers]
        mean, deviation = numbers.mean(axis=0), numbers.std(axis=0) + 1e-6
        scaled = torch.from_numpy((numbers - mean) / deviation)
        curves = torch.cat([scaled, scaled.square()], dim=1)  # [sentences, 2 × numbers]
        lengths = [len(each.sentences) for each in documents]
        document_of = torch.repeat_interleave(torch.arange(len(documents)), torch.tensor(lengths))
        ratings = torch.tensor([value for each in documents for value in each.ratings], dtype=torch.float64)
        right = _log_shares(ratings / self.temperature, document_of).exp()

        weights = torch.zeros(self.signs, 1, dtype=torch.float64, requires_grad=True)
        slopes = torch.zeros(2 * NUMBERS, dtype=torch.float64, requires_grad=True)
        learner = torch.optim.LBFGS(
            [weights, slopes], max_iter=ITERATIONS, history_size=10, line_search_fn="strong_wolfe"
        )
        done = 0

        def loss() -> float:
            nonlocal done
            learner.zero_grad()
            scores = torch.nn.functional.embedding_bag(signs, weights, begins, mode="sum", per_sample_weights=shares)[
                :, 0
            ]
            log_shares = _log_shares(scores + curves @ slopes, document_of)
            value = -(right * log_shares).sum() / len(documents)
            whole = value + self.penalty * (weights.square().sum() + slopes.square().sum() / 10)
            whole.backward()
            done += 1
            listener(Event("progress", {"what": "steps of L-BFGS", "done": min(done, ITERATIONS), "all": ITERATIONS}))
            return float(whole.detach())

        learner.step(loss)
        return Extractor(
            weights=weights.detach()[:, 0].numpy(),
            slopes=slopes.detach().numpy(),
            mean=mean,
            deviation=deviation,
            frequencies=frequencies,
            documents=len(documents),
            count=count,
        )

    def restore_documents(self, arrays: Mapping[str, np.ndarray]) -> "Extractor":
        """The model whose `arrays` these are."""
        shapes = {
            "weights": (self.signs,),
            "slopes": (2 * NUMBERS,),
            "mean": (NUMBERS,),
            "deviation": (NUMBERS,),
            "frequencies": (self.signs,),
            "counts": (2,),
        }
        for name, shape in shapes.items():
            if name not in arrays or arrays[name].shape != shape:
                found = arrays[name].shape if name in arrays else "missing"
                raise ModelError(f"the array {name} is {found}, expected {shape}")
            if not np.isfinite(arrays[name]).all():
                raise ModelError(f"the array {name} has values that are not finite")
        documents, count = (int(value) for value in arrays["counts"])
        if documents < 1 or count < 1:
            raise ModelError(f"{documents} documents and summaries of {count} sentences; expected at least 1 of each")
        parts = {name: np.asarray(arrays[name]) for name in shapes if name != "counts"}
        return Extractor(**parts, documents=documents, count=count)

    def describe(self, arrays: Mapping[str, np.ndarray]) -> Mapping[str, str]:
        """What the arrays hold, in words by a label."""
        model = self.restore_documents(arrays)
        used = int(np.count_nonzero(model.weights))
        return {
            "Chosen": f"{model.count} sentence{'s' if model.count > 1 else ''} of each document",
            "Weights": f"{used:,} of {self.signs:,} signs in use, {2 * NUMBERS} of numbers",
            "Learned": f"from {model.documents:,} documents",
        }


@dataclass(frozen=True, eq=False)
class Extractor:
    """Chooses sentences of documents."""

    weights: Float64[np.ndarray, " signs"]
    slopes: Float64[np.ndarray, " curves"]
    """Of the numbers, then of their squares."""
    mean: Float64[np.ndarray, " numbers"]
    deviation: Float64[np.ndarray, " numbers"]
    frequencies: Int64[np.ndarray, " signs"]
    """In how many documents the words of each row occur."""
    documents: int
    """How many it has learned from."""
    count: int
    """Sentences of a summary."""

    def arrays(self) -> Mapping[str, np.ndarray]:
        """Everything it consists of."""
        names = ("weights", "slopes", "mean", "deviation", "frequencies")
        return {**{name: getattr(self, name) for name in names}, "counts": np.array([self.documents, self.count])}

    def scores(self, sentences: Sequence[str]) -> Float64[np.ndarray, " sentences"]:
        """The score of each sentence of a document; only their differences mean something."""
        found = describe_sentences(sentences, rarities(self.frequencies, self.documents))
        by_signs = np.array([self.weights[row].sum() / np.sqrt(len(row)) for row in found.signs])
        scaled = (found.numbers - self.mean) / self.deviation
        return np.asarray(by_signs + np.concatenate([scaled, scaled**2], axis=1) @ self.slopes)

    def choose(self, sentences: Sequence[str], count: int | None = None) -> list[int]:
        """The places of the best sentences, in the order of the document."""
        return best_places(self.scores(sentences), count or self.count) if sentences else []


def best_places(scores: Float64[np.ndarray, " sentences"], count: int) -> list[int]:
    """The places of the highest scores, in order; of equal ones the first."""
    chosen: list[int] = np.sort(np.argsort(-scores, kind="stable")[:count]).tolist()
    return chosen


def words_of(sentence: str) -> list[str]:
    """The words of a sentence, lower-cased, without marks; each character of a script without spaces is a word."""
    lowered = sentence.lower()
    if lowered.isascii():
        return _words(lowered)
    return [word for part in split_characters(lowered) for word in _words(part)]


@dataclass(frozen=True)
class SentenceSigns:
    """What a model sees of the sentences of a document."""

    signs: list[Int64[np.ndarray, " signs"]]
    """Rows of the table, for each sentence."""
    numbers: Float64[np.ndarray, "sentences numbers"]


def rarities(frequencies: Int64[np.ndarray, " signs"], documents: int) -> Float64[np.ndarray, " signs"]:
    """log(documents / (1 + documents with the word))."""
    return np.asarray(np.log(documents) - np.log1p(frequencies))


def describe_sentences(sentences: Sequence[str], rarity: Float64[np.ndarray, " signs"]) -> SentenceSigns:
    """The signs and numbers of the sentences of a document."""
    size, length = len(rarity), len(sentences)
    words = [words_of(sentence) for sentence in sentences]
    rare = {word: float(rarity[_row("f", word, size)]) for each in words for word in each}
    total = Counter(word for each in words for word in each)
    holders = Counter(word for each in words for word in set(each))
    weight = sum(rare[word] * times for word, times in total.items()) or 1.0
    signs, numbers = [], []
    for at, own in enumerate(words):
        marks = [
            f"place {min(at, 9)}",
            f"end {min(length - 1 - at, 4)}",
            f"share {5 * at // length}",
            f"place {min(at, 9)} of {min(length, 10)}",
            f"length {min(len(own) // 4, 12)}",
            *(f"begins {' '.join(own[:end])}" for end in range(1, 5)),
            *(f"after {' '.join(words[at - 1][:end])}" for end in (1, 2) if at > 0),
            *(f"before {' '.join(words[at + 1][:end])}" for end in (1, 2) if at + 1 < length),
        ]
        rows = {_row("s", mark, size) for mark in marks}
        rows |= {_row("w", word, size) for word in own}
        rows |= {_row("p", f"{one} {other}", size) for one, other in pairwise(own)}
        signs.append(np.array(sorted(rows), np.int64))
        different = sorted(set(own))
        inside = sum(rare[word] for word in different)
        # How much of the document's words, and how often the others repeat what this one says.
        share = sum(rare[word] * total[word] for word in different) / weight
        mine = Counter(own)
        repeated = sum(rare[word] * min(total[word] - mine[word], 3) for word in different) / (inside or 1.0)
        numbers.append(
            (
                share,
                share**2,
                _mean(holders[word] > 1 for word in different),
                _mean(rare[word] for word in own),
                np.log1p(len(own)),
                at / max(1, length - 1),
                float(at == 0),
                repeated,
            )
        )
    return SentenceSigns(signs, np.array(numbers, np.float64).reshape(-1, NUMBERS))


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed) if listed else 0.0


@lru_cache(maxsize=1 << 18)
def _row(kind: str, text: str, size: int) -> int:
    """The row of a sign in a table: the same in every process."""
    return zlib.crc32(f"{kind} {text}".encode()) % size


def _log_shares(
    scores: Float[Tensor, " sentences"], document_of: Int64[Tensor, " sentences"]
) -> Float[Tensor, " sentences"]:
    """The log-softmax of the sentences of each document."""
    documents = int(document_of[-1]) + 1
    highest = torch.full((documents,), -torch.inf, dtype=scores.dtype)
    highest = highest.scatter_reduce(0, document_of, scores.detach(), "amax")
    apart = scores - highest[document_of]
    sums = torch.zeros(documents, dtype=scores.dtype).scatter_add(0, document_of, apart.exp())
    return apart - sums.log()[document_of]
