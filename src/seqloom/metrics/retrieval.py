"""Nearest vectors, translation pairs mined by margin, and how many translations are found first.

    nearest    the k texts with the highest cos(x, y), by exact search
    margin     m(x, y) = cos(x, y) / (½ mean of cos(x, z), z ∈ nn_k(x) + ½ mean of cos(z, y), z ∈ nn_k(y))

A cosine alone does not say whether two sentences are translations: some sentences are near to everything. The margin
compares it with the k nearest neighbours of both (Artetxe and Schwenk, 2019, "ratio").
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float32, Int64

from seqloom.metrics.scoring import Bootstrap, CorpusScore, Statistics, score

MAX_SCORES = 1 << 23
"""Cosines that are computed at a time: 32 MB."""

MAX_ROWS = 1024
"""Queries among them."""

NEIGHBOURS = 4
"""k of the margin, as in the paper."""

THRESHOLD = 1.06
"""Margin from which two sentences are taken for translations, as in CCMatrix (Schwenk et al., 2021)."""


@dataclass(frozen=True)
class Nearest:
    """The nearest texts of each query, best first."""

    places: Int64[np.ndarray, "queries best"]
    cosines: Float32[np.ndarray, "queries best"]


@dataclass(frozen=True)
class MinedPairs:
    """Sentences that translate each other, by falling margin."""

    sources: Int64[np.ndarray, " pairs"]
    targets: Int64[np.ndarray, " pairs"]
    margins: Float32[np.ndarray, " pairs"]


def unit_vectors(vectors: Float[np.ndarray, "rows width"]) -> Float32[np.ndarray, "rows width"]:
    """Vectors of length 1; one of zeros, which has no direction, stays as it is."""
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    scaled: np.ndarray = np.divide(vectors, lengths, out=np.zeros(vectors.shape), where=lengths > 0)
    return scaled.astype(np.float32)


def nearest(
    queries: Float[np.ndarray, "queries width"],
    texts: Float[np.ndarray, "texts width"],
    *,
    best: int,
    scores_at_once: int = MAX_SCORES,
) -> Nearest:
    """The `best` texts with the highest cosines to each query, in blocks of at most so many cosines."""
    ours, theirs = unit_vectors(queries), unit_vectors(texts)
    wanted = min(best, len(theirs))
    places = np.zeros((len(ours), wanted), np.int64)
    cosines = np.zeros((len(ours), wanted), np.float32)
    rows = max(1, min(MAX_ROWS, scores_at_once))
    columns = max(wanted, scores_at_once // rows)
    for row in range(0, len(ours), rows):
        some = ours[row : row + rows]
        values, found = np.empty((len(some), 0), np.float32), np.empty((len(some), 0), np.int64)
        for column in range(0, len(theirs), columns):
            block = some @ theirs[column : column + columns].T  # [rows, columns]
            top = _top(block, wanted)
            values = np.concatenate([values, np.take_along_axis(block, top, 1)], 1)
            found = np.concatenate([found, top + column], 1)
            kept = _top(values, wanted)
            values, found = np.take_along_axis(values, kept, 1), np.take_along_axis(found, kept, 1)
        order = np.argsort(-values, axis=1, kind="stable")
        places[row : row + rows] = np.take_along_axis(found, order, 1)
        cosines[row : row + rows] = np.take_along_axis(values, order, 1)
    return Nearest(places, cosines)


def _top(values: Float32[np.ndarray, "rows columns"], count: int) -> Int64[np.ndarray, "rows top"]:
    """Columns of the highest values of each row, from left to right."""
    if values.shape[1] <= count:
        return np.broadcast_to(np.arange(values.shape[1]), values.shape)
    return np.sort(np.argpartition(-values, count - 1, axis=1)[:, :count], axis=1)


def mine_pairs(
    sources: Float[np.ndarray, "sources width"],
    targets: Float[np.ndarray, "targets width"],
    *,
    neighbours: int = NEIGHBOURS,
    threshold: float = THRESHOLD,
) -> MinedPairs:
    """Translations among two sets of sentences, each of which is in one pair at most.

    The candidates are, for each sentence of either side, that of its k nearest with the highest margin. They are taken
    from the highest margin down to the threshold, unless one of the two has a partner already.
    """
    there, back = nearest(sources, targets, best=neighbours), nearest(targets, sources, best=neighbours)
    if not there.places.size or not back.places.size:
        return MinedPairs(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32))
    from_source, from_target = there.cosines.mean(1), back.cosines.mean(1)
    forward = _margins(there, from_source, from_target)  # [sources, k]
    backward = _margins(back, from_target, from_source)  # [targets, k]
    best_there, best_back = forward.argmax(1), backward.argmax(1)
    rows, columns = np.arange(len(forward)), np.arange(len(backward))
    margins = np.concatenate([forward[rows, best_there], backward[columns, best_back]])
    ours = np.concatenate([rows, back.places[columns, best_back]])
    theirs = np.concatenate([there.places[rows, best_there], columns])
    taken: list[int] = []
    has_source, has_target = np.zeros(len(rows), bool), np.zeros(len(columns), bool)
    for at in np.argsort(-margins, kind="stable"):
        if margins[at] < threshold:
            break
        if not has_source[ours[at]] and not has_target[theirs[at]]:
            has_source[ours[at]] = has_target[theirs[at]] = True
            taken.append(int(at))
    return MinedPairs(ours[taken], theirs[taken], margins[taken])


def _margins(
    found: Nearest, own: Float32[np.ndarray, " rows"], of_others: Float32[np.ndarray, " others"]
) -> Float32[np.ndarray, "rows best"]:
    """The margin of each neighbour; 0 where the neighbours are on average not similar at all."""
    usual = (own[:, None] + of_others[found.places]) / 2
    margins: np.ndarray = np.divide(found.cosines, usual, out=np.zeros_like(found.cosines), where=usual > 0)
    return margins


@dataclass(frozen=True)
class FoundFirst:
    """The share of lines whose nearest text is the right one, in percent.

        found first = 100 · lines whose nearest text equals their reference / lines

    Parts: found, lines.
    """

    direction: str
    """From what to what, such as de→en."""

    def statistics(self, hypotheses: Sequence[str], references: Sequence[str]) -> Statistics:
        parts = np.array([(float(one == other), 1.0) for one, other in zip(hypotheses, references, strict=True)])
        value = float(self.values(parts.sum(axis=0)[None])[0])
        return Statistics(f"found first, {self.direction}", value, f"%|candidates:{len(parts)}", parts)

    def values(self, sums: Float[np.ndarray, "corpora parts"]) -> Float[np.ndarray, " corpora"]:
        return np.asarray(100 * sums[:, 0] / sums[:, 1])


def score_parallel(
    sources: Float[np.ndarray, "lines width"],
    targets: Float[np.ndarray, "lines width"],
    *,
    texts: tuple[Sequence[str], Sequence[str]],
    languages: tuple[str | None, str | None] = (None, None),
    bootstrap: Bootstrap | None = None,
) -> tuple[CorpusScore, CorpusScore]:
    """How many lines find their translation first among all, in both directions.

    `texts` are what the vectors belong to: a line that is there several times counts as found wherever it is.
    """
    one, other = languages[0] or "source", languages[1] or "target"
    found = (
        (FoundFirst(f"{one}→{other}"), nearest(sources, targets, best=1).places[:, 0], texts[1]),
        (FoundFirst(f"{other}→{one}"), nearest(targets, sources, best=1).places[:, 0], texts[0]),
    )
    there, back = (
        score(metric, [lines[at] for at in places.tolist()], references=lines, bootstrap=bootstrap)
        for metric, places, lines in found
    )
    return there, back
