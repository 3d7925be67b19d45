"""Look into a model: pictures of what it does with a sentence."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Float64

from seqloom.apps.translator import Translator
from seqloom.core.errors import DataError, UsageError, warn
from seqloom.core.files import write_atomically
from seqloom.core.symbols import END, RESERVED
from seqloom.drawing.curves import plot_attention
from seqloom.look.beam_page import beam_page, draw_beam
from seqloom.look.beam_tree import BeamTree, lay_out
from seqloom.look.gradients import GradientPair
from seqloom.runs.loading import LoadedModel
from seqloom.runs.translator import AttentionReader, Part, limit_message
from seqloom.search.hypothesis import Hypothesis
from seqloom.search.settings import SearchConfig
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
        raise DataError("the sentence is blank")
    best = translator.search([line], attention=True)[0][0]
    if best.hit_limit:
        warn(limit_message(1, 1))
    if len(best.hypotheses) > 1:
        raise DataError(f"the sentence has more than {translator.config.data.longest} pieces; give a shorter one")
    hypothesis = best.hypotheses[0]
    if hypothesis.attention is None:
        raise UsageError("this model has no attention (model.attention=none)")
    end = (RESERVED[END],) if hypothesis.is_finished else ()
    weights = hypothesis.attention.cpu().double().numpy()
    return AttentionMap(best.text, best.source_pieces, (*best.target_pieces, *end), weights)


def attention_of_pair(
    loaded: LoadedModel, pair: GradientPair, settings: SearchConfig
) -> Float64[np.ndarray, "target source"] | None:
    """Where a model looks while it writes given symbols, by the heads of these settings; None without attention."""
    symbols = tuple(pair.target[:-1] if pair.target[-1] == END else pair.target)
    zeros = (0.0,) * len(pair.target)
    given = Hypothesis(symbols, is_finished=len(symbols) < len(zeros), score=0.0, terms={}, token_log_probs=zeros)
    read = AttentionReader([loaded.model], loaded.device, settings)
    ((found,),) = read([Part(0, "", pair.source, key=0)], [[given]], [(0, 0)])
    return None if found.attention is None else found.attention.cpu().double().numpy()


def draw_attention(translator: Translator, line: str, picture: Path) -> AttentionMap:
    """The same as a picture, PNG or SVG by its ending."""
    if picture.suffix not in (".png", ".svg"):
        raise UsageError(f"{picture} is neither .png nor .svg; name the picture with one of these endings")
    found = attention_of(translator, line)
    plot_attention(found.weights, picture, source=found.source, target=found.target, title=found.text)
    return found


BEAM_ENDINGS = (".html", ".svg", ".png")

MOST_PIXELS = 60_000
"""On a side of a PNG; what draws it takes no more than 65,536."""


def beam_of(translator: Translator, line: str, *, pruned: int = 2) -> BeamTree:
    """Translate a sentence by beam search and lay out its candidates, with the `pruned` best of each node."""
    search = translator.with_own_rules(translator.config.search)
    if is_blank(line):
        raise DataError("the sentence is blank")
    if wrong := search.unwatched():
        raise UsageError(f"only the built-in beam search can be shown; set {' '.join(wrong)}")
    watched = translator.watch(line)
    return lay_out(
        watched.trace,
        [translation.hypotheses[0] for translation in watched.translations],
        piece=watched.pieces,
        text=translator.loaded.tokenizers.target.decode,
        pruned=pruned,
    )


def draw_beam_search(translator: Translator, line: str, picture: Path, *, pruned: int = 2) -> BeamTree:
    """The same as an interactive page (HTML) or a picture (SVG, PNG), by the ending."""
    if picture.suffix not in BEAM_ENDINGS:
        raise UsageError(f"{picture} is neither .html nor .svg nor .png; name it with one of these endings")
    tree = beam_of(translator, line, pruned=pruned)
    if picture.suffix == ".html":
        write_atomically(picture, beam_page(tree, source=line, settings=_in_words(translator.config.search)))
        return tree
    figure = draw_beam(tree, source=line, target=tree.leaves[0].text)
    dots = min(144.0, MOST_PIXELS / max(figure.get_size_inches()))
    figure.savefig(picture, dpi=dots, metadata={"Date": None} if picture.suffix == ".svg" else None)
    return tree


def _in_words(search: SearchConfig) -> str:
    """The settings that make the tree what it is."""
    strength = f" (alpha {search.alpha:g})" if search.length_normalisation in ("gnmt", "power") else ""
    parts = [f"beam {search.beam}", f"stop {search.stop}", f"length {search.length_normalisation}{strength}"]
    further = {"coverage": search.coverage, "reward": search.reward, "end": search.end_normalisation}
    return ", ".join([*parts, *(f"{name} {weight:g}" for name, weight in further.items() if weight)])
