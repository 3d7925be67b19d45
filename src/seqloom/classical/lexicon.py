"""A bilingual lexicon out of two alignment models: the best translations of each word.

It has two uses: shortlists, the candidate target symbols while one sentence is translated, and the replacement of words
that are unknown to a translator.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float64, Int32, Int64, Integer
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from seqloom.classical.alignment import WordAligner
from seqloom.core.errors import ModelError
from seqloom.core.files import write_atomically
from seqloom.core.symbols import RESERVED

FORMAT = 1
"""The version of the file format; a newer one is refused."""

Ranking = Literal["both", "forward"]
"""What translations are ranked by: √(t(y ∣ x) · t(x ∣ y)), or t(y ∣ x) alone."""


@dataclass(frozen=True, eq=False)
class Lexicon:
    """The best translations of each source id, the best first; those of id x lie between `starts[x]` and `[x + 1]`.

    Reserved symbols are neither translated nor translations.
    """

    starts: Int64[np.ndarray, " borders"]
    targets: Int32[np.ndarray, " entries"]
    scores: Float64[np.ndarray, " entries"]
    """What the entries are ranked by, from 0 to 1."""
    frequent: Int32[np.ndarray, " seen"]
    """All target ids that were seen, reserved ones left out, by falling frequency, then by rising id."""

    @staticmethod
    def from_aligner(
        aligner: WordAligner,
        target_counts: Integer[np.ndarray, " symbols"],
        *,
        best: int = 100,
        ranking: Ranking = "both",
        least: float = 1e-6,
    ) -> "Lexicon":
        """Keep at most the `best` translations of each word, those that score `least` or more.

        `target_counts` says how often each target id was seen. Of equal scores the lower id comes first.
        """
        table = aligner.forward.table
        words = np.repeat(np.arange(table.null), np.diff(table.starts[:-1]))
        targets = table.columns[: len(words)]
        scores = table.probabilities[: len(words)]
        if ranking == "both":
            # t(x ∣ y), from the table whose rows are target words. Its rows and columns rise, so the keys do as well.
            # Fitted on the same text, both tables hold the same pairs; on other text, what one of them lacks is 0.
            backward = aligner.backward.table
            rows = np.repeat(np.arange(backward.null), np.diff(backward.starts[:-1]))
            width = int(max(words.max(initial=0), backward.columns.max(initial=0))) + 1
            keys, wanted = rows * width + backward.columns[: len(rows)], targets.astype(np.int64) * width + words
            places = np.minimum(np.searchsorted(keys, wanted), max(0, len(keys) - 1))
            turned = np.where(keys[places] == wanted, backward.probabilities[places], 0.0)
            scores = np.sqrt(scores * turned)
        return Lexicon.from_entries(
            words, targets, scores, rows=table.null, target_counts=target_counts, best=best, least=least
        )

    @staticmethod
    def from_entries(
        words: Integer[np.ndarray, " given"],
        targets: Integer[np.ndarray, " given"],
        scores: Float64[np.ndarray, " given"],
        *,
        rows: int,
        target_counts: Integer[np.ndarray, " symbols"],
        best: int = 100,
        least: float = 1e-6,
    ) -> "Lexicon":
        """The same from translations in any order, of source ids below `rows`."""
        is_kept = (words >= len(RESERVED)) & (targets >= len(RESERVED)) & (scores >= least)
        words, targets, scores = words[is_kept], targets[is_kept].astype(np.int32), scores[is_kept]
        order = np.lexsort((targets, -scores, words))
        counts = np.bincount(words, minlength=rows)
        rank = np.arange(len(words)) - np.repeat(np.cumsum(counts) - counts, counts)
        order = order[rank < best]
        ends = np.cumsum(np.minimum(counts, best), dtype=np.int64)
        starts = np.concatenate([np.zeros(1, np.int64), ends])
        frequent = np.argsort(-target_counts.astype(np.int64), kind="stable")
        frequent = frequent[(target_counts[frequent] > 0) & (frequent >= len(RESERVED))].astype(np.int32)
        return Lexicon(starts, targets[order], scores[order], frequent)

    def best(self, source: int, *, count: int | None = None) -> list[tuple[int, float]]:
        """The best translations of a source id with their scores; none for ids that were never seen."""
        begin, end = self.span(source)
        end = end if count is None else min(end, begin + count)
        return list(zip(self.targets[begin:end].tolist(), self.scores[begin:end].tolist(), strict=True))

    def span(self, source: int) -> tuple[int, int]:
        """Between which places the translations of a source id lie."""
        if not 0 <= source < len(self.starts) - 1:
            return 0, 0
        return int(self.starts[source]), int(self.starts[source + 1])

    def save(self, path: Path) -> None:
        """Write the lexicon into a file; the same lexicon gives the same bytes."""
        arrays = {"starts": self.starts, "targets": self.targets, "scores": self.scores, "frequent": self.frequent}
        contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        write_atomically(path, save(contiguous, {"lexicon": str(FORMAT)}))

    @staticmethod
    def load(path: Path) -> "Lexicon":
        """Read what `save` wrote; a missing, damaged or foreign file is a ModelError that names it."""
        try:
            with safe_open(path, framework="numpy") as file:
                known = file.metadata() or {}  # one entry, since several are written in any order
                if "lexicon" not in known:
                    raise ModelError(f"{path} is not a lexicon: its header is {known or 'empty'}")
                if known["lexicon"] != str(FORMAT):
                    raise ModelError(
                        f"{path} has format {known['lexicon']}, and this version reads {FORMAT}; "
                        "install a newer one, or make the lexicon again"
                    )
                names = list(file.keys())
                if odd := [name for name in names if file.get_slice(name).get_dtype() not in ("I64", "I32", "F64")]:
                    raise ModelError(f"{path} is not a complete lexicon ({odd[0]!r} has other numbers); make it again")
                arrays = {name: file.get_tensor(name) for name in names}
        except OSError as error:
            raise ModelError(f"{path} cannot be read: {error.strerror or error}") from error
        except SafetensorError as error:
            raise ModelError(f"{path} is damaged or not a lexicon: {error}; make it again") from error
        try:
            starts, targets, scores, frequent = (arrays[name] for name in ("starts", "targets", "scores", "frequent"))
            is_whole = (
                all(array.ndim == 1 for array in (starts, targets, scores, frequent))
                and len(starts) > 0
                and starts[0] == 0
                and starts[-1] == len(targets) == len(scores)
                and bool((starts[1:] >= starts[:-1]).all())
                and min(targets.min(initial=0), frequent.min(initial=0)) >= 0
            )
            if is_whole:
                return Lexicon(
                    starts.astype(np.int64, casting="equiv"),
                    targets.astype(np.int32, casting="equiv"),
                    scores.astype(np.float64, casting="equiv"),
                    frequent.astype(np.int32, casting="equiv"),
                )
        except (KeyError, TypeError) as error:
            raise ModelError(f"{path} is not a complete lexicon ({error}); make it again") from error
        raise ModelError(f"{path} is damaged: its entries do not fit its {len(starts):,} borders; make it again")


@dataclass(frozen=True, eq=False)
class Shortlist:
    """The candidate target symbols of a sentence: the best translations of its words, and those in every list."""

    lexicon: Lexicon
    translations: int
    """The most translations of each source id."""
    always: Int64[np.ndarray, " always"]
    """Ids that are in every list, sorted: the reserved and the most frequent ones."""

    @staticmethod
    def of(lexicon: Lexicon, *, translations: int = 50, frequent: int = 100) -> "Shortlist":
        """So many translations of each word, and so many of the most frequent target ids."""
        always = np.union1d(np.arange(len(RESERVED)), lexicon.frequent[:frequent]).astype(np.int64)
        return Shortlist(lexicon, translations, always)

    def symbols(self, source: Sequence[int] | Integer[np.ndarray, " source"]) -> Int64[np.ndarray, " offered"]:
        """The target ids for a sentence with these source ids, sorted, each once."""
        parts = [self.always]
        for word in set(map(int, source)):
            begin, end = self.lexicon.span(word)
            parts.append(self.lexicon.targets[begin : min(end, begin + self.translations)].astype(np.int64))
        return np.unique(np.concatenate(parts))
