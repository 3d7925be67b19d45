"""Which inputs the loss at each output of a model depends on, and how that fades with distance.

    m[t, k] = ‖∂loss_t/∂x_k‖        loss_t = −log P(y_t | y_<t, source), x_k the vector of input symbol k

On the target side input k is the symbol before output k, so the lag t − k is 0 for what was read last, and later inputs
have no effect. On the source side the distance is counted from where a word-for-word translation would stand; or, where
the decoder knows nothing but the last state of an encoder, from the end of the source at which that state was reached.
A language model has the target side alone. All goes through automatic differentiation of the embedded inputs, so every
translator and every recurrent language model can be looked at.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from seqloom.core.errors import ModelError
from seqloom.core.stepping import Source
from seqloom.core.symbols import BEGIN
from seqloom.data.batches import PairBatch
from seqloom.nn.character_input import CharacterInput
from seqloom.nn.embeddings import Embedding
from seqloom.tasks.language_modelling import LanguageModel
from seqloom.tasks.translation import TranslationModel

TABLES = (Embedding, CharacterInput, nn.Embedding)
"""What turns symbols into vectors."""

TOKENS_AT_ONCE = 4096
"""Tokens of a side that are differentiated together; they bound the memory that a long sentence takes."""


@dataclass(frozen=True)
class Connectivity:
    """m[t, k] of one sentence pair, for the inputs of either side."""

    source: Float[np.ndarray, "target source"]
    """A language model has no columns here."""
    target: Float[np.ndarray, "target target"]


@dataclass(frozen=True)
class Profile:
    """Mean norms by whole distances from 0 on, and how many pairs of input and output each is the mean of."""

    means: tuple[float, ...]
    counts: tuple[int, ...]


def connectivity_of(model: nn.Module, source: Int[Tensor, " source"], target: Int[Tensor, " target"]) -> Connectivity:
    """m[t, k] of a pair of sentences, each with its END, in whatever mode the model is in.

    The pair is copied once for every output and row t is asked for loss_t alone, so one pass back gives all.
    """
    rows = max(1, TOKENS_AT_ONCE // max(len(source), len(target)))
    parts = [_some_rows(model, source, target, outputs) for outputs in torch.arange(len(target)).split(rows)]
    found = [torch.cat(list(side)).cpu().double().numpy() for side in zip(*parts, strict=True)]
    return Connectivity(*found)


def connectivity_of_text(model: LanguageModel, layers: nn.Module, text: Int[Tensor, " target"]) -> Connectivity:
    """m[t, k] of a line with its END, as a language model reads it from BEGIN on; `layers` hold its embedding."""
    rows = max(1, TOKENS_AT_ONCE // len(text))
    parts = [_rows_of_text(model, layers, text, outputs) for outputs in torch.arange(len(text)).split(rows)]
    return Connectivity(np.zeros((len(text), 0)), torch.cat(parts).cpu().double().numpy())


def by_lag(maps: Sequence[Connectivity]) -> Profile:
    """The mean norm at each lag t − k on the target side."""
    distances = [np.subtract.outer(np.arange(len(each.target)), np.arange(len(each.target))) for each in maps]
    return _profile([each.target for each in maps], distances)


def by_source_distance(maps: Sequence[Connectivity]) -> Profile:
    """The mean norm at each distance |k − (t + ½)·n/T + ½|, rounded: n source and T target symbols side by side."""
    distances = []
    for each in maps:
        rows, columns = each.source.shape
        expected = (np.arange(rows) + 0.5) * columns / rows - 0.5
        distances.append(np.rint(np.abs(np.subtract.outer(expected, np.arange(columns)))).astype(np.int64))
    return _profile([each.source for each in maps], distances)


def by_source_end(maps: Sequence[Connectivity], *, is_bidirectional: bool) -> Profile:
    """The mean norm by the steps an encoder still takes after position k: n − 1 − k, or min(k, n − 1 − k) both ways.

    That is what lies between a source symbol and the state with which a decoder without attention begins.
    """
    distances = []
    for each in maps:
        rows, columns = each.source.shape
        places = np.arange(columns)
        steps = np.minimum(places, places[::-1]) if is_bidirectional else places[::-1]
        distances.append(np.broadcast_to(steps, (rows, columns)))
    return _profile([each.source for each in maps], distances)


def _profile(norms: Sequence[np.ndarray], distances: Sequence[np.ndarray]) -> Profile:
    """The mean by distance over all pairs; distances that fewer than five sentences (or all) have are left out."""
    farthest = sorted((int(each.max(initial=0)) for each in distances), reverse=True)
    longest = farthest[min(5, len(farthest)) - 1]
    flat = np.concatenate([each.ravel() for each in norms])
    places = np.concatenate([each.ravel() for each in distances])
    is_kept = (places >= 0) & (places <= longest)
    sums = np.bincount(places[is_kept], weights=flat[is_kept], minlength=longest + 1)
    counts = np.bincount(places[is_kept], minlength=longest + 1)
    is_met = counts > 0
    means = sums[is_met] / counts[is_met]
    return Profile(tuple(map(float, means)), tuple(map(int, counts[is_met])))


def _some_rows(
    model: nn.Module, source: Tensor, target: Tensor, outputs: Int[Tensor, " rows"]
) -> tuple[Float[Tensor, "rows source"], Float[Tensor, "rows target"]]:
    """m[t, k] for these outputs t."""
    rows, translator = len(outputs), cast("TranslationModel", model)
    lengths = outputs.new_tensor([len(source), len(target)]).to(source.device)[:, None].expand(2, rows)
    batch = PairBatch(
        Source(source.expand(rows, -1).contiguous(), lengths[0].contiguous()),
        target.expand(rows, -1).contiguous(),
        lengths[1].contiguous(),
        np.zeros(rows, np.int64),
    )
    previous = batch.previous
    with torch.enable_grad(), _embedded(model, batch.source.ids, previous) as inputs:
        features = translator(batch.source, previous, batch.target_lengths).view(rows, len(target), -1)
        own = features[torch.arange(rows), outputs]
        losses = -translator.output.log_probs(own).gather(1, target[outputs][:, None])
        gradients = torch.autograd.grad(losses.sum(), [inputs.vectors("source"), inputs.vectors("target")])
    by_source, by_target = (each.reshape(rows, -1, each.shape[-1]).norm(dim=2) for each in gradients)
    return by_source, by_target


def _rows_of_text(
    model: LanguageModel, layers: nn.Module, text: Tensor, outputs: Int[Tensor, " rows"]
) -> Float[Tensor, "rows target"]:
    """m[t, k] of a line for these outputs t."""
    rows = len(outputs)
    previous = torch.cat([text.new_tensor([BEGIN]), text[:-1]]).expand(rows, -1).contiguous()  # [rows, target]
    with torch.enable_grad(), _embedded(layers, previous.new_zeros(0), previous) as inputs:
        features, _ = model(previous, None)
        own = features[torch.arange(rows), outputs]
        losses = -model.output.log_probs(own).gather(1, text[outputs][:, None])
        (gradient,) = torch.autograd.grad(losses.sum(), [inputs.vectors("target")])
    norms: Tensor = gradient.reshape(rows, len(text), -1).norm(dim=2)
    return norms


@dataclass(frozen=True)
class _Inputs:
    """The vectors that stood for the symbols of either side."""

    found: dict[str, Tensor] = field(default_factory=dict)

    def vectors(self, side: str) -> Tensor:
        if side not in self.found:
            raise ModelError(
                f"the {side} symbols of this model pass no embedding that is known here, so its gradients cannot be "
                "looked at; embed them with seqloom.nn.embeddings.Embedding or torch.nn.Embedding"
            )
        return self.found[side]


@contextmanager
def _embedded(model: nn.Module, source: Tensor, previous: Tensor) -> Iterator[_Inputs]:
    """Inside, the embedded source and target symbols are leaves of the graph, and are kept.

    One table may serve both sides, and a model may leave out padding or flatten its batch; so a side is known by its
    symbols. The target begins with BEGIN, which no source has: they cannot be taken for each other.
    """
    inputs = _Inputs()
    sides = {"source": source.flatten(), "target": previous.flatten()}

    def keep(_module: nn.Module, given: tuple[Tensor, ...], vectors: Tensor) -> Tensor | None:
        for side, ids in sides.items():
            if torch.equal(given[0].flatten(), ids):
                inputs.found[side] = vectors.detach().requires_grad_()
                return inputs.found[side]
        return None

    tables = [module for module in model.modules() if isinstance(module, TABLES)]
    handles = [table.register_forward_hook(keep) for table in tables]
    try:
        yield inputs
    finally:
        for handle in handles:
            handle.remove()
