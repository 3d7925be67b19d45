"""Using word vectors: loading them from a model directory or a file, and evaluating them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from seqloom.classical.vectors import Method, WordVectors
from seqloom.core.errors import DataError, UsageError
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
