"""Using word vectors: loading them from a model directory or a file, evaluating them, mapping two languages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

from seqloom.classical.vector_mapping import MappingSettings, Start, VectorMapping, WordPair, map_vectors
from seqloom.classical.vectors import Method, WordVectors
from seqloom.core.errors import DataError, UsageError
from seqloom.core.events import Listener, ignore, notice, progress
from seqloom.interop.word2vec_format import read_vectors
from seqloom.metrics.word_vectors import (
    VOCABULARY,
    AnalogyScore,
    SimilarityScore,
    read_judgements,
    read_questions,
    score_analogies,
    score_similarity,
)
from seqloom.smt.dictionary import Dictionary, DictionaryEntry
from seqloom.text.marks import JOINER


@dataclass(frozen=True)
class Evaluation:
    """The scores; None where no file was given."""

    similarity: SimilarityScore | None
    analogies: AnalogyScore | None


def open_vectors(path: Path) -> WordVectors:
    """Word vectors from a model directory, a run that has finished, or a file in word2vec's text or binary format."""
    if not path.is_dir():
        return read_vectors(path)
    from seqloom.runs.loading import in_words, load_any

    loaded = load_any(path)
    if loaded.config.purpose != "word vectors":
        raise UsageError(f"{path} has no word vectors: {in_words(loaded.config)}")
    return cast("WordVectors", loaded.model)


def doubt_of(path: Path) -> str | None:
    """A warning if the vectors of a model were trained on too little text; for a file this is unknown."""
    if not path.is_dir():
        return None
    from seqloom.runs.loading import find_model
    from seqloom.runs.model_dir import read_card
    from seqloom.runs.sizing import too_small

    folder = find_model(path)
    tokens = read_card(folder).trained_on.get("tokens")
    found = too_small(tokens) if isinstance(tokens, int) else None
    return None if found is None else f"{path}: {found}"


def evaluate_vectors(
    vectors: WordVectors,
    *,
    similarity: Path | None = None,
    analogies: Path | None = None,
    method: Method = "add",
    vocabulary: int = VOCABULARY,
) -> Evaluation:
    """Rank correlation with human judgements, and the share of analogy questions answered correctly."""
    known: dict[str, str] = {}
    for word in vectors.words:
        known.setdefault(word.casefold(), word)

    def cosine(one: str, other: str) -> float | None:
        """The cosine of two words whatever their case, None if one of them has no vector."""
        first, second = known.get(one.casefold()), known.get(other.casefold())
        return None if first is None or second is None else vectors.similarity(first, second)

    similar = score_similarity(read_judgements(similarity), cosine) if similarity else None
    solved = None
    if analogies is not None:
        solved = score_analogies(
            read_questions(analogies),
            vectors.words,
            lambda triples: vectors.solve(triples, method=method, vocabulary=vocabulary),
            vocabulary=vocabulary,
        )
        if not solved.total.asked:
            raise DataError(f"{analogies}: none of {solved.total.left_out:,} questions has four words with vectors")
    return Evaluation(similar, solved)


def as_record(evaluation: Evaluation) -> Mapping[str, object]:
    """An evaluation as a JSON record."""
    record: dict[str, object] = {}
    if evaluation.similarity is not None:
        record["similarity"] = vars(evaluation.similarity)
    if evaluation.analogies is not None:
        sections = [*evaluation.analogies.sections, evaluation.analogies.total]
        record["analogies"] = [{**vars(section), "accuracy": section.accuracy} for section in sections]
    return record


# --- two languages ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Precision:
    """How many words of a gold dictionary have a right first translation."""

    right: int
    asked: int
    """Gold words that the dictionary has."""
    left_out: int
    """Gold words that the dictionary lacks."""

    @property
    def value(self) -> float:
        """The share of right ones."""
        return self.right / self.asked

    def __str__(self) -> str:
        left_out = f"; {self.left_out:,} are not in the dictionary" if self.left_out else ""
        return f"precision {self.value:.2%} ({self.right:,} of {self.asked:,} gold words{left_out})"


def align_vectors(
    source: WordVectors,
    target: WordVectors,
    *,
    start: Start | None = None,
    seeds: Sequence[tuple[str, str]] = (),
    settings: MappingSettings | None = None,
    listener: Listener = ignore,
) -> VectorMapping:
    """Map the word vectors of two languages into one space, without parallel text; see `map_vectors`."""
    missing = [pair for pair in seeds if pair[0] not in source or pair[1] not in target]
    if missing:
        notice(listener, f"{len(missing):,} of {len(seeds):,} seeds have no vectors, the first is {missing[0]}")
    return map_vectors(
        source, target, start=start, seeds=seeds, settings=settings, progress=partial(progress, listener)
    )


def read_word_pairs(path: Path) -> list[tuple[str, str]]:
    """The words and translations of a dictionary file."""
    return [pair for pair in Dictionary.read(path).pairs() if pair[1]]


def write_dictionary(pairs: Sequence[WordPair], path: Path) -> int:
    """Write word, translation, class (empty) and probability, separated by tabs; how many lines these are.

    The signs that join punctuation to its neighbour are left out, and so are lines that have then been there already.
    """
    rows: dict[tuple[str, str], float] = {}
    for pair in pairs:
        rows.setdefault((pair.source.replace(JOINER, ""), pair.target.replace(JOINER, "")), pair.probability)
    Dictionary(tuple(DictionaryEntry(*words, score=probability) for words, probability in rows.items())).write(path)
    return len(rows)


def score_dictionary(pairs: Sequence[WordPair], gold: Sequence[tuple[str, str]]) -> Precision:
    """Compare the first translation of each gold word with the gold ones."""
    first: dict[str, str] = {}
    for pair in pairs:
        first.setdefault(pair.source, pair.target)
    right: dict[str, set[str]] = {}
    for source, target in gold:
        right.setdefault(source, set()).add(target)
    asked = [word for word in right if word in first]
    if not asked:
        raise DataError(f"none of {len(right):,} gold words is in the dictionary; is it of the same languages?")
    return Precision(sum(first[word] in right[word] for word in asked), len(asked), len(right) - len(asked))
