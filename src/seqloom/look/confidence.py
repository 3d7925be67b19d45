"""How sure a model is of each piece of a translation, from one pass over it.

p_t = P(y_t ∣ y_<t, source)                                        the piece itself
H_t = −Σ_w P(w ∣ y_<t, source) log P(w ∣ y_<t, source)             entropy, in nats
rivals of t: the symbols w ≠ y_t with the highest P(w ∣ y_<t, source)
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from matplotlib.figure import Figure

from seqloom.core.archive import by_origin
from seqloom.core.errors import ModelError
from seqloom.drawing.figures import FIRST, INK, SECOND, Finding, as_written, fonts, tidy
from seqloom.look.gradients import GradientPair
from seqloom.look.inside import read_once
from seqloom.models.protocols import TranslationModel
from seqloom.runs.loading import LoadedModel

IN_DOUBT = 0.5
"""Probability below which a piece is in doubt."""


@dataclass(frozen=True)
class Rival:
    """A symbol that could have come instead."""

    symbol: int
    piece: str
    probability: float


@dataclass(frozen=True)
class PieceConfidence:
    """What a model thinks of one piece of a translation."""

    symbol: int
    piece: str
    probability: float
    entropy: float
    rivals: tuple[Rival, ...]
    """The most probable other symbols, best first."""


@torch.inference_mode()
def confidence_of(loaded: LoadedModel, pair: GradientPair, *, rivals: int = 5) -> list[PieceConfidence]:
    """One for each symbol of the translation, END included where the pair has it."""
    if not pair.target:
        return []
    model = cast("TranslationModel", loaded.model)
    log_probs = model.output.log_probs(read_once(loaded, pair)).double().cpu()  # [target, symbols]
    if bool(log_probs.isnan().any()):
        raise ModelError(by_origin(f"{loaded.folder} gives log P of NaN; its weights are damaged: train it again"))
    probabilities = log_probs.exp()
    entropies = -torch.where(probabilities > 0, probabilities * log_probs, 0.0).sum(1)  # [target]
    best = log_probs.topk(min(rivals + 1, log_probs.shape[1]), dim=1)
    piece = loaded.tokenizers.target.piece
    found = []
    for at, symbol in enumerate(pair.target):
        listed = zip(best.indices[at].tolist(), best.values[at].exp().tolist(), strict=True)
        others = [Rival(other, piece(other), value) for other, value in listed if other != symbol and value > 0]
        own = float(probabilities[at, symbol])
        found.append(PieceConfidence(symbol, piece(symbol), own, float(entropies[at]), tuple(others[:rivals])))
    return found


def look_at_confidence(loaded: LoadedModel, pair: GradientPair) -> list[Finding]:
    """The same as a finding."""
    return [_finding(loaded, confidence_of(loaded, pair))]


def _finding(loaded: LoadedModel, found: Sequence[PieceConfidence]) -> Finding:
    doubted = [each for each in found if each.probability < IN_DOUBT]
    least = min(found, key=lambda each: each.probability)
    rival = f"; {least.rivals[0].piece!r} has {least.rivals[0].probability:.0%} there" if least.rivals else ""
    log_prob = sum(math.log(each.probability) if each.probability > 0 else -math.inf for each in found)
    sentence = (
        f"{len(doubted)} of {len(found)} pieces have a probability below {IN_DOUBT:.0%}; the least sure is "
        f"{least.piece!r} with {least.probability:.0%}{rival}. The mean entropy is "
        f"{sum(each.entropy for each in found) / len(found):.2f} nats."
    )
    data = {
        "model": by_origin(str(loaded.folder)),
        "log_prob": log_prob,
        "pieces": [
            {
                "id": each.symbol,
                "piece": each.piece,
                "probability": each.probability,
                "entropy": each.entropy,
                "rivals": [{"id": r.symbol, "piece": r.piece, "probability": r.probability} for r in each.rivals],
            }
            for each in found
        ],
    }

    def draw() -> Figure:
        figure = Figure(figsize=(max(5.0, 1.6 + 0.42 * len(found)), 3.4), layout="constrained")
        axes = figure.subplots()
        places = range(len(found))
        axes.bar(places, [each.probability for each in found], color=FIRST, width=0.7)
        tops = [each.rivals[0].probability if each.rivals else 0.0 for each in found]
        axes.plot(places, tops, "_", color=SECOND, ms=12, mew=2, label="best rival")
        for at, each in enumerate(found):
            if each.probability < IN_DOUBT and each.rivals:
                name = as_written(each.rivals[0].piece)
                axes.annotate(
                    name, (at, tops[at]), xytext=(0, 4), textcoords="offset points", ha="center", fontsize=8,
                    color=INK, family=fonts(), parse_math=False,
                )  # fmt: skip
        names = [as_written(each.piece) for each in found]
        axes.set_xticks(places, names, rotation=60, ha="right", family=fonts(), parse_math=False)
        axes.set(ylim=(0, 1.05), ylabel="probability")
        axes.legend(frameon=False, fontsize=9)
        tidy(axes)
        return figure

    return Finding("confidence", "How sure the model is of each piece", sentence, data, draw)
