"""How `seqloom translate` writes the translations of a line."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from seqloom.cli.output import json_line, one_line

if TYPE_CHECKING:
    from seqloom.recipes.alignments import Alignment
    from seqloom.recipes.translate import Translation
    from seqloom.text.tokenizer import Tokenizers

Format = Callable[["Tokenizers", int, str, Sequence["Translation"]], list[str]]
"""The lines to be written for the translations of a line, given the line and its number, counted from 1."""


def as_text(_tokenizers: "Tokenizers", _number: int, _line: str, found: "Sequence[Translation]") -> list[str]:
    """The best translation."""
    return [one_line(found[0].text)]


def as_scored(_tokenizers: "Tokenizers", _number: int, _line: str, found: "Sequence[Translation]") -> list[str]:
    """Its score, a tab, the best translation."""
    return [f"{_score(found[0])}\t{one_line(found[0].text)}"]


def as_nbest(_tokenizers: "Tokenizers", number: int, _line: str, found: "Sequence[Translation]") -> list[str]:
    """A line for each translation: number, text, score."""
    return [f"{number} ||| {one_line(each.text)} ||| {_score(each)}" for each in found]


def as_json(tokenizers: "Tokenizers", number: int, line: str, found: "Sequence[Translation]") -> list[str]:
    """One record with all translations."""
    records = [_record(tokenizers, each) for each in found]
    return [json_line({"line": number, "source": line, "translations": records})]


def _score(translation: "Translation") -> str:
    return "null" if translation.score is None else f"{translation.score:.6f}"


def _record(tokenizers: "Tokenizers", translation: "Translation") -> dict[str, Any]:
    """A translation with its score itemised; the parts of a long line are added up."""
    from seqloom.core.symbols import END

    piece = tokenizers.target.piece
    terms: dict[str, float] = {}
    tokens: list[str] = []
    log_probs: list[float] = []
    for hypothesis in translation.hypotheses:
        ids = [*hypothesis.symbols, *([END] if hypothesis.is_finished else [])]
        tokens += [piece(id) for id in ids]
        log_probs += hypothesis.token_log_probs
        for name, value in hypothesis.terms.items():
            terms[name] = terms.get(name, 0.0) + value
    return {
        "text": translation.text,
        "score": translation.score,
        "terms": terms,
        "tokens": tokens,
        "token_log_probs": log_probs,
        "is_finished": all(hypothesis.is_finished for hypothesis in translation.hypotheses),
        "is_complete": all(hypothesis.is_complete for hypothesis in translation.hypotheses),
        "hit_limit": translation.hit_limit,
        **_alignment(translation.alignment),
    }


def _alignment(alignment: "Alignment | None") -> dict[str, Any]:
    if alignment is None:
        return {}
    return {
        "source_words": alignment.source_words,
        "target_words": alignment.target_words,
        "alignment": alignment.links,
    }
