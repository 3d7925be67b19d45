"""Reading text with a language model: log P of every token given those before it, and the perplexity of lines.

Training measures its dev text with it; `seqloom.apps.language_model` mixes several models and writes text.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import numpy as np
from jaxtyping import Float64

from seqloom.core.archive import by_origin
from seqloom.core.errors import DataError, ModelError, UsageError
from seqloom.core.reading import ReadsText, TextIds, TextReader
from seqloom.core.symbols import UNKNOWN
from seqloom.metrics.perplexity import Perplexities, measure_text, perplexities
from seqloom.models.protocols import RecurrentLanguageModel
from seqloom.models.reading import RecurrentReader
from seqloom.runs.loading import Loaded, in_words
from seqloom.text.normalise import collapse_spaces, is_blank
from seqloom.text.tokenizer import Tokenizer


def require_reader(loaded: Loaded) -> TextReader:
    """How a loaded language model reads texts; any other model is refused with what it can be used for.

    A model from outside that does not declare its reader is read as a recurrent one.
    """
    if isinstance(loaded.model, ReadsText):
        return loaded.model.reader()
    if loaded.config.purpose != "language model":
        raise UsageError(by_origin(f"{loaded.folder} is not a language model: {in_words(loaded.config)}"))
    return RecurrentReader(cast("RecurrentLanguageModel", loaded.model), loaded.device)


def measure_perplexity(
    loaded: Loaded, lines: Sequence[str], *, progress: Callable[[int, int], None] = lambda _done, _all: None
) -> Perplexities:
    """Perplexities of lines, read as the model was trained; `progress` gets the tokens done and in all."""
    reader, done = require_reader(loaded), 0
    lines = lines if reader.has_blank_lines else [line for line in lines if not is_blank(line)]
    text = encode_lines(loaded.tokenizers.target, lines)

    def on_tokens(tokens: int) -> None:
        nonlocal done
        done += tokens
        progress(done, len(text.ids))

    log_probs = reader.log_probs(text, context=reader.context, progress=on_tokens)
    require_numbers(loaded.folder, log_probs)
    return perplexities_of(lines, text, log_probs, is_bound=reader.is_bound)


def encode_lines(tokenizer: Tokenizer, lines: Sequence[str]) -> TextIds:
    """The ids of lines, of which there must be at least one."""
    if not lines:
        raise DataError("no text to measure: it has 0 lines")
    return TextIds.of(tokenizer.encode_many(lines))


def perplexities_of(
    lines: Sequence[str], text: TextIds, log_probs: Float64[np.ndarray, " tokens"], *, is_bound: bool = False
) -> Perplexities:
    """Perplexities of lines from log P of each token of their ids, or from lower bounds of it."""
    # Spaces are counted after collapsing, so that every model is measured on the same characters.
    size = measure_text(map(collapse_spaces, lines), len(text.ids) - len(lines))
    is_unknown = text.ids == UNKNOWN
    return perplexities(
        -float(log_probs[~is_unknown].sum()) + 0.0,
        size,
        unknown=int(is_unknown.sum()),
        unknown_cross_entropy=-float(log_probs[is_unknown].sum()) + 0.0,
        impossible=int((log_probs == -math.inf).sum()),
        is_bound=is_bound,
    )


def require_numbers(folder: Path, log_probs: Float64[np.ndarray, " tokens"]) -> None:
    """Refuse a model that returns NaN, before it becomes a perplexity of NaN."""
    is_nan = np.isnan(log_probs)
    if is_nan.any():
        raise ModelError(
            f"{folder} gives no number (NaN) for log P of {int(is_nan.sum()):,} of {len(is_nan):,} tokens, first of "
            f"token {int(is_nan.argmax()) + 1:,}; its weights are not finite: train it again, with a smaller "
            "training.learning_rate"
        )
