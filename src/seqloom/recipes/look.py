"""Look into a model: pictures of what it does with a sentence."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from seqloom.core.errors import DataError, UsageError
from seqloom.core.symbols import END, RESERVED
from seqloom.inspection.plots import plot_attention
from seqloom.recipes.translate import Translator
from seqloom.text.normalise import is_blank


@dataclass(frozen=True)
class AttentionMap:
    """Where a model looked while it translated a sentence: a row per target piece, a column per source piece."""

    text: str
    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: Float[np.ndarray, "target source"]


def attention_of(translator: Translator, line: str) -> AttentionMap:
    """Translate a sentence and keep where each step looked (last decoder layer, mean over heads)."""
    if is_blank(line):
        raise DataError("there is nothing to look at: the sentence is blank")
    best = translator.search([line], attention=True)[0][0]
    if len(best.hypotheses) > 1:
        raise DataError(f"the sentence has more than {translator.config.data.longest} pieces; give a shorter one")
    hypothesis = best.hypotheses[0]
    if hypothesis.attention is None:
        raise UsageError("this model has no attention (model.attention=none), so there is no look to draw")
    end = (RESERVED[END],) if hypothesis.is_finished else ()
    weights = hypothesis.attention.cpu().double().numpy()
    return AttentionMap(best.text, best.source_pieces, (*best.target_pieces, *end), weights)


def draw_attention(translator: Translator, line: str, picture: Path) -> AttentionMap:
    """The same as a picture, PNG or SVG by its ending."""
    if picture.suffix not in (".png", ".svg"):
        raise UsageError(f"{picture} is neither .png nor .svg; name the picture with one of these endings")
    found = attention_of(translator, line)
    plot_attention(found.weights, picture, source=found.source, target=found.target, title=found.text)
    return found
