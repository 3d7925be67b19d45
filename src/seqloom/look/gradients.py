"""Gradients of a model: which inputs the loss at each output depends on, and how that fades with distance.

    m[t, k] = ‖∂loss_t/∂x_k‖        loss_t = −log P(y_t | y_<t, source), x_k the vector of input symbol k

On the target side input k is the symbol before output k, so the lag t − k is 0 for the symbol read last, and later
inputs have no effect. On the source side the distance is counted from the position of a word-for-word translation;
or, where the decoder sees only the last state of an encoder, from the end of the source at which that state was
reached. A language model has only the target side. All of it is automatic differentiation of the embedded inputs, so
this works for every translator and every recurrent language model.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from torch import Tensor, nn

from seqloom.core.archive import by_origin
from seqloom.core.errors import DataError, ModelError, UsageError, warn
from seqloom.core.stepping import Source
from seqloom.core.symbols import BEGIN, END, RESERVED
from seqloom.data import labelled
from seqloom.data import plain_text as stream
from seqloom.data.store import HEADER, Store
from seqloom.drawing.figures import FIRST, INK, QUIET, SECOND, Finding, as_written, fonts, tidy
from seqloom.drawing.spectra import draw_spectra
from seqloom.models.protocols import RecurrentLanguageModel, TranslationModel
from seqloom.models.reading import RecurrentReader
from seqloom.nn.bptt.truncation import step_jacobian
from seqloom.nn.cells.cell import Cell, CellState, unroll
from seqloom.nn.embeddings import CharacterInput, Embedding
from seqloom.nn.jacobians import Spectrum, fit_slope, lag_below, spectrum_of, state_spectra
from seqloom.runs.loading import LoadedModel
from seqloom.runs.readers import require_reader
from seqloom.tasks.settings import ClassificationConfig
from seqloom.text.normalise import is_blank

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

    @property
    def slope(self) -> float | None:
        """In nats per step, from distance 1 on; None where fewer than two distances get any gradient.

        Distance 0 is the direct effect of an input, which is not part of the decay.
        """
        return fit_slope(self.means, first=1) if sum(mean > 0 for mean in self.means[1:]) > 1 else None

    @property
    def half_life(self) -> float | None:
        """The steps in which the mean norm halves by its slope; None where it does not fade."""
        slope = self.slope
        return -math.log(2) / slope if slope is not None and slope < 0 else None

    def as_data(self) -> dict[str, Any]:
        """All of it as JSON can hold it."""
        return {
            "means": list(self.means),
            "counts": list(self.counts),
            "half": lag_below(self.means, 0.5),
            "tenth": lag_below(self.means, 0.1),
            "half_life": self.half_life,
        }


def connectivity_of(
    model: nn.Module,
    source: Int[Tensor, " source"],
    target: Int[Tensor, " target"],
    *,
    reader: RecurrentLanguageModel | None = None,
) -> Connectivity:
    """m[t, k] of a pair of sentences, each with its END, in whatever mode the model is in.

    The pair is copied once for every output and row t computes loss_t alone, so one backward pass gives all. A language
    model is given with its `reader`, and has an empty source.
    """
    previous = _previous(target)
    output = cast("TranslationModel | RecurrentLanguageModel", reader or model).output
    sides = ["source", "target"] if reader is None else ["target"]
    norms: dict[str, list[Tensor]] = {side: [] for side in sides}
    for outputs in torch.arange(len(target)).split(max(1, TOKENS_AT_ONCE // max(len(source), len(target)))):
        rows = len(outputs)
        copies = source.expand(rows, -1).contiguous(), previous.expand(rows, -1).contiguous()  # [rows, source], …
        with torch.enable_grad(), _embedded(model, *copies) as vectors:
            features = _features(model, *copies, reader=reader)  # [rows, target, width]
            own = features[torch.arange(rows), outputs]  # [rows, width]
            losses = -output.log_probs(own).gather(1, target[outputs][:, None])
            for side in sides:
                if side not in vectors:
                    raise ModelError(
                        f"the {side} symbols of this model pass no known embedding, so its gradients cannot be "
                        "measured; embed them with seqloom.nn.embeddings.Embedding or torch.nn.Embedding"
                    )
            gradients = torch.autograd.grad(losses.sum(), [vectors[side] for side in sides])
        for side, gradient in zip(sides, gradients, strict=True):
            norms[side].append(gradient.reshape(rows, -1, gradient.shape[-1]).norm(dim=2))  # [rows, inputs]
    found = {side: torch.cat(parts).cpu().double().numpy() for side, parts in norms.items()}
    return Connectivity(found.get("source", np.zeros((len(target), 0))), found["target"])


def _previous(target: Int[Tensor, " target"]) -> Int[Tensor, " target"]:
    """What is read before each symbol of a line."""
    return torch.cat([target.new_tensor([BEGIN]), target[:-1]])


def _features(
    model: nn.Module,
    source: Int[Tensor, "rows source"],
    previous: Int[Tensor, "rows target"],
    *,
    reader: RecurrentLanguageModel | None,
) -> Float[Tensor, "rows target width"]:
    """What the model makes of each output before it is scored; all rows are whole."""
    if reader is not None:
        return reader(previous, None)[0]
    rows, length = previous.shape
    lengths = [previous.new_full((rows,), ids.shape[1]) for ids in (source, previous)]
    found = cast("TranslationModel", model)(Source(source, lengths[0]), previous, lengths[1])  # [rows · target, width]
    return found.view(rows, length, -1)


@contextmanager
def _embedded(model: nn.Module, source: Tensor, previous: Tensor) -> Iterator[dict[str, Tensor]]:
    """Inside, the embedded source and target symbols are leaves of the graph, and are kept by the name of their side.

    One table may serve both sides, and a model may leave out padding or flatten its batch; so a side is known by its
    symbols. The target begins with BEGIN, which no source has: they cannot be taken for each other.
    """
    kept: dict[str, Tensor] = {}

    def keep(_module: nn.Module, given: tuple[Tensor, ...], vectors: Tensor) -> Tensor | None:
        for side, ids in (("source", source), ("target", previous)):
            if torch.equal(given[0].flatten(), ids.flatten()):
                kept[side] = vectors.detach().requires_grad_()
                return kept[side]
        return None

    handles = [module.register_forward_hook(keep) for module in model.modules() if isinstance(module, TABLES)]
    try:
        yield kept
    finally:
        for handle in handles:
            handle.remove()


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


# The picture of a model's gradients: a map of one sentence, and how the mean norm fades with distance.


def draw_connectivity(
    found: Connectivity,
    *,
    source: Sequence[str],
    previous: Sequence[str],
    target: Sequence[str],
    by_lag: Profile,
    by_source: Profile | None,
    source_distance: str = "",
) -> Figure:
    """Above, what each loss (a row) depends on, in shares of its strongest input; below, mean norms by distance.

    `source_distance` says what the distances of `by_source` are counted from. A language model has neither a source
    nor `by_source`.
    """
    back = "(steps back from the symbol read last)"
    if by_source is None:
        maps = [(found.target, previous, "the text, as read so far")]
        curves = [(by_lag, FIRST, f"lag {back}")]
    else:
        maps = [(found.source, source, "source"), (found.target, previous, "target, as read so far")]
        curves = [
            (by_lag, FIRST, f"lag in the target {back}"),
            (by_source, SECOND, f"distance in the source ({source_distance})"),
        ]
    narrowest = 5.6 if by_source is None else 7.6
    map_height = 1.9 + 0.27 * len(target)
    size = max(narrowest, 2.4 + 0.38 * sum(len(inputs) for _, inputs, _ in maps)), map_height + 3.0
    figure = Figure(figsize=size, layout="constrained")
    upper, lower = figure.subfigures(2, 1, squeeze=False, height_ratios=[map_height, 3.0])[:, 0]
    plain: dict[str, Any] = {"family": fonts(), "parse_math": False}

    ratios = [len(inputs) for _, inputs, _ in maps]
    frames = upper.subplots(1, len(maps), squeeze=False, sharey=True, width_ratios=ratios)[0]
    # A loss that no longer depends on anything is a row of zeros.
    strongest = np.maximum(found.source.max(1, initial=0.0), found.target.max(1)).clip(np.finfo(np.float64).tiny)
    for axes, (norms, inputs, name) in zip(frames, maps, strict=True):
        image = axes.imshow(norms / strongest[:, None], cmap="Blues", vmin=0, vmax=1, aspect="auto")
        names = list(map(as_written, inputs))
        axes.set_xticks(range(len(inputs)), names, rotation=60, ha="left", rotation_mode="anchor", **plain)
        axes.xaxis.tick_top()
        axes.tick_params(length=0, labelsize=9)
        axes.set_xlabel(name, color=INK)
        axes.spines[:].set_visible(False)
    frames[0].set_yticks(range(len(target)), list(map(as_written, target)), fontsize=9, **plain)
    frames[0].set_ylabel("loss at")
    bar = upper.colorbar(image, ax=list(frames), fraction=0.03, pad=0.02)
    bar.set_label("share of the row's strongest input", fontsize=9)
    bar.outline.set_visible(False)

    # One scale for both, so that heights can be compared and a level curve looks level.
    panels = lower.subplots(1, len(curves), squeeze=False, sharey=True)[0]
    for axes, (profile, colour, name) in zip(panels, curves, strict=True):
        axes.plot(range(len(profile.means)), profile.means, color=colour, marker="o", ms=3, linewidth=1.5)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        tidy(axes)
        axes.set_xlabel(name)
        axes.set_ylabel("mean gradient norm ‖∂loss/∂x‖")
        axes.tick_params(labelleft=True)
        half = lag_below(profile.means, 0.5)
        if half is not None:
            axes.axvline(half, color=QUIET, linewidth=1, linestyle="--")
            axes.annotate(
                f"half at {half:.1f}", (half, 1), xycoords=("data", "axes fraction"), xytext=(4, -4),
                textcoords="offset points", va="top", fontsize=9, color=INK,
            )  # fmt: skip
    _scale_norms(panels[0], [mean for profile, _, _ in curves for mean in profile.means])
    return figure


def _scale_norms(axes: Axes, norms: Sequence[float]) -> None:
    """A logarithmic scale of a factor of ten at least: a narrower one would make hills of chance."""
    seen = [norm for norm in norms if norm > 0]
    if not seen:  # no logarithm of nothing
        return
    low, high = 0.8 * min(seen), 1.25 * max(seen)
    missing = max(1.0, 10 * low / high) ** 0.5
    axes.set_yscale("log")
    axes.set_ylim(low / missing, high * missing)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < 1000 else (1,)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _place: f"{value:g}"))
    axes.yaxis.set_minor_locator(NullLocator())


# What one whole step of each recurrent cell does to its state, at a state that the cell comes to in use.
#
#     J = ∂s'/∂s        s is all that a cell remembers: h, or h and c one above the other
#
# No single matrix of a gated cell shows that. Its gates decide at every step how much of each product passes, so J is
# another matrix at every step; the one in the middle of a sentence represents them.


def step_spectra(
    model: nn.Module,
    source: Int[Tensor, " source"],
    target: Int[Tensor, " target"],
    *,
    reader: RecurrentLanguageModel | None = None,
) -> dict[str, Spectrum]:
    """The spectrum of J in the middle of this pair of sentences, by the cell's name; empty without such cells.

    A language model is given with its `reader`, and has an empty source.
    """
    cells = {name: module for name, module in model.named_modules() if isinstance(module, Cell)}
    # By cell the steps that it takes: what the input adds to its gates, and the state before, of one row.
    steps: dict[str, list[tuple[Tensor, CellState]]] = {name: [] for name in cells}

    def advance(name: str, projected: Tensor, state: CellState) -> CellState:
        steps[name].append((projected[0], tuple(part[:1] for part in state)))
        return type(cells[name]).advance(cells[name], projected, state)

    try:
        for name, cell in cells.items():
            # On the instance these shadow the methods of its class; whole sequences are read step by step too.
            vars(cell).update(run=partial(unroll, cell), advance=partial(advance, name))
        with torch.no_grad():
            _features(model, source[None], _previous(target)[None], reader=reader)
    finally:
        for cell in cells.values():
            del vars(cell)["run"], vars(cell)["advance"]
    middles = {name: taken[len(taken) // 2] for name, taken in steps.items() if taken}
    return {name: spectrum_of("whole step", step_jacobian(cells[name], *middle)) for name, middle in middles.items()}


READABLE = 16
"""Pieces of a side up to which a map of a sentence can be read."""
MAX_TOKENS = 256
"""Maximum number of tokens of a line, or of a side of a pair: as many as a translator reads by default."""
GATES_DECIDE = (
    "The gates decide how much passes, so the matrix of a single gate does not show whether gradients explode"
)


@dataclass(frozen=True)
class GradientPair:
    """A sentence and its translation as ids, END included. For a language model, its line is the target."""

    source: list[int]
    target: list[int]


def text_pairs(loaded: LoadedModel, lines: Sequence[tuple[str, str]]) -> list[GradientPair]:
    """Pairs of lines as this model reads them; some must be left.

    Pairs with a blank side are left out, and those with a side of more than `MAX_TOKENS`, which a warning counts.
    """
    seen = [line for line in lines if not (is_blank(line[0]) or is_blank(line[1]))]
    if not lines:
        raise DataError("there are no pairs: the text is empty")
    if not seen:
        raise DataError(f"each of the {len(lines)} pairs has a blank side")
    sources = loaded.tokenizers.source.encode_many([line[0] for line in seen])
    targets = loaded.tokenizers.target.encode_many([line[1] for line in seen])
    pairs = [GradientPair([*source, END], [*target, END]) for source, target in zip(sources, targets, strict=True)]
    short = [pair for pair in pairs if max(len(pair.source), len(pair.target)) <= MAX_TOKENS]
    if len(short) < len(pairs):
        message = f"{len(pairs) - len(short):,} of {len(pairs):,} pairs have more than {MAX_TOKENS} tokens on a side"
        if not short:
            raise DataError(f"{message}; split the lines")
        warn(f"{message}; they are left out")
    return short


def text_lines(loaded: LoadedModel, lines: Sequence[str]) -> list[GradientPair]:
    """Lines as a language model reads them, up to `MAX_TOKENS`; a warning counts lines that are longer."""
    encoded = [[*ids, END] for ids in loaded.tokenizers.target.encode_many(visible_lines(lines))]
    if cut := sum(len(ids) > MAX_TOKENS for ids in encoded):
        warn(f"{cut:,} of {len(encoded):,} lines have more than {MAX_TOKENS} tokens; they are read up to there")
    return [GradientPair([], ids[:MAX_TOKENS]) for ids in encoded]


def visible_lines(lines: Sequence[str]) -> list[str]:
    """The lines that are not blank; some must be left."""
    seen = [line for line in lines if not is_blank(line)]
    if not seen:
        raise DataError("there are no lines: the text is empty" if not lines else f"all {len(lines)} lines are blank")
    return seen


def dev_pairs(given: Path, loaded: LoadedModel, *, count: int) -> list[GradientPair]:
    """Some pairs, or texts of other models, of the run's own dev set, spread over it evenly."""
    is_translator, task = loaded.config.purpose == "translator", loaded.config.task
    header = HEADER if is_translator else stream.HEADER
    if isinstance(task, ClassificationConfig):
        header = labelled.LAYOUT.header
    homes = [folder for folder in (given, loaded.folder.parent) if (folder / "data" / "dev" / header).is_file()]
    if not homes:
        pairs = "--source FILE --reference FILE, or one pair: 'A sentence.' 'Its translation.'"
        lines = "--source FILE, or one: 'A sentence.'"
        raise UsageError(
            f"{given} does not contain its dev set, so there are no sentences to use; "
            f"give some with {pairs if is_translator else lines}"
        )
    if isinstance(task, ClassificationConfig):
        examples = labelled.LabelledStore.open(homes[0] / "data" / "dev", classes=len(task.labels))
        rows = (examples.framed(np.array([at])).ids[0] for at in _spread(len(examples), count))
        return [GradientPair([], row[1:].tolist()) for row in rows]  # without BEGIN
    if not is_translator:
        text = stream.Stream.open(homes[0] / "data" / "dev")
        full = np.flatnonzero(text.lengths > 1)  # a blank line has its END alone
        return [GradientPair([], text.line(int(full[at])).tolist()[:MAX_TOKENS]) for at in _spread(len(full), count)]
    store = Store.open(homes[0] / "data" / "dev")
    return [GradientPair(store.sources[at].tolist(), store.targets[at].tolist()) for at in _spread(len(store), count)]


def _spread(everything: int, count: int) -> list[int]:
    """So many places among all, spread evenly."""
    places = np.linspace(0, everything - 1, min(count, everything)).round().astype(np.int64)
    return [int(place) for place in np.unique(places)]


def look_at_gradients(
    loaded: LoadedModel, pairs: Sequence[GradientPair], *, progress: Callable[[int], None] = lambda _pairs: None
) -> list[Finding]:
    """How gradients of the losses fade with distance, and for recurrent models the spectra of matrices and of a step.

    Of a language model, pairs have no source; an ELMo is used from left to right. `progress` is
    called with the number of pairs done.
    """
    # A model that is trained and reads text is recurrent.
    is_translator = loaded.config.purpose == "translator"
    reader = None if is_translator else cast("RecurrentReader", require_reader(loaded)).model
    ids = [[torch.tensor(side, dtype=torch.long, device=loaded.device) for side in (p.source, p.target)] for p in pairs]
    maps = []
    for number, (source, target) in enumerate(ids, start=1):
        maps.append(connectivity_of(loaded.model, source, target, reader=reader))
        progress(number)
    # Drawn is the longest pair that can still be read, or else the shortest.
    lengths = [max(len(pair.source), len(pair.target)) for pair in pairs]
    fitting = [length for length in lengths if length <= READABLE]
    shown = lengths.index(max(fitting) if fitting else min(lengths))
    findings = [_fading(loaded, pairs, maps, shown=shown)]
    if gates := state_spectra(loaded.model):
        source, target = ids[shown]
        findings.append(_spectra(gates, step_spectra(loaded.model, source, target, reader=reader)))
    return findings


def look_at_fading(loaded: LoadedModel, pair: GradientPair) -> Finding:
    """How the gradients of the losses of one pair, or of one text, fade with distance."""
    reader = None
    if loaded.config.purpose != "translator":
        reader = cast("RecurrentReader", require_reader(loaded)).model
    source, target = (torch.tensor(side, dtype=torch.long, device=loaded.device) for side in (pair.source, pair.target))
    return _fading(loaded, [pair], [connectivity_of(loaded.model, source, target, reader=reader)], shown=0)


def _fading(loaded: LoadedModel, pairs: Sequence[GradientPair], maps: Sequence[Connectivity], *, shown: int) -> Finding:
    """Mean norms by distance, and the map of the pair that is shown."""
    model, on_target = loaded.config.model, by_lag(maps)
    is_translator = loaded.config.purpose == "translator"
    unit, side = ("pair", "target") if is_translator else ("line", "text")
    source = [loaded.tokenizers.source.piece(id) for id in pairs[shown].source]
    target = [loaded.tokenizers.target.piece(id) for id in pairs[shown].target]
    sentence = f"Over {f'{len(pairs)} {unit}s' if len(pairs) > 1 else f'one {unit}'}, the gradient of a loss "
    sentence += _words(on_target, f"steps back in the {side}", "lag")
    data: dict[str, Any] = {
        "model": by_origin(str(loaded.folder)),
        "kind": model.kind,
        f"{unit}s": len(pairs),
        side: on_target.as_data(),
    }
    drawn = {side: target, f"by_{side}": maps[shown].target.tolist()}
    on_source, distance = None, ""
    if not is_translator:
        sentence += f".{_pace(on_target)}"
    else:
        # With attention, from where a word-for-word translation would look; without, from where the state comes from.
        if model.has_attention is not False:
            on_source, distance = by_source_distance(maps), "positions from the diagonal"
        else:
            is_bidirectional = getattr(model, "is_bidirectional", False)
            on_source = by_source_end(maps, is_bidirectional=is_bidirectional)
            distance = f"steps from the {'nearer ' if is_bidirectional else ''}end"
        of_source = float(sum((each.source**2).sum() for each in maps))
        everything = of_source + float(sum((each.target**2).sum() for each in maps))
        share = of_source / everything if everything else None
        far = f"{distance} of the source"
        sentence += f", and {_words(on_source, far, 'distance')}.{_pace(on_target)}"
        if share is not None:
            sentence += f" The source gets {share:.0%} of the squared gradient."
        data |= {"source": {"distance": far, **on_source.as_data()}, "source_share": share}
        drawn |= {"source": source, "by_source": maps[shown].source.tolist()}
    data["shown"] = drawn

    def draw() -> Figure:
        return draw_connectivity(
            maps[shown],
            source=source,
            previous=[RESERVED[BEGIN], *target[:-1]],
            target=target,
            by_lag=on_target,
            by_source=on_source,
            source_distance=distance,
        )

    return Finding("gradients", "The gradient of each loss with respect to each input", sentence, data, draw)


def _spectra(gates: dict[str, list[Spectrum]], steps: dict[str, Spectrum]) -> Finding:
    named = [(cell, spectrum) for cell, each in gates.items() for spectrum in each]
    widest = max(named, key=lambda each: each[1].radius)
    is_gated = any(len(each) > 1 for each in gates.values())
    sentence = (
        f"{sum(spectrum.radius < 1 for _, spectrum in named)} of {len(named)} state matrices have a spectral radius "
        f"below 1, and the largest is {widest[1].radius:.2f} ({widest[0]}, {widest[1].name})."
    )
    if is_gated:
        sentence += f" {GATES_DECIDE}."
    if steps:
        radii = {cell: spectrum.radius for cell, spectrum in steps.items()}
        low, high = min(radii, key=radii.__getitem__), max(radii, key=radii.__getitem__)
        sentence += (
            f" A whole step in the middle of the sentence drawn has a radius from {radii[low]:.2f} ({low}) to "
            f"{radii[high]:.2f} ({high})."
        )
    data = {
        "cells": {cell: [gate.as_data() for gate in each] for cell, each in gates.items()},
        "steps": {cell: spectrum.as_data() for cell, spectrum in steps.items()},
    }
    groups = {cell: [*each, *([steps[cell]] if cell in steps else [])] for cell, each in gates.items()}

    def draw() -> Figure:
        figure = draw_spectra(groups)
        if is_gated:
            figure.suptitle(f"{GATES_DECIDE};\nsee the whole step ∂s'/∂s.", fontsize=10)
        return figure

    return Finding("spectra", "Spectra of the state matrices and of a whole step", sentence, data, draw)


def _words(profile: Profile, unit: str, name: str) -> str:
    half, last = lag_below(profile.means, 0.5), len(profile.means) - 1
    reached = [distance for distance, mean in enumerate(profile.means) if mean > 0]
    if not reached:
        return f"reaches no {name} at all"
    if reached == [0]:
        return f"is seen at {name} 0 alone" + (f": nothing of it reaches the {last} {unit}" if last else "")
    if reached[0] > 0:
        return f"is 0 up to {name} {reached[0] - 1}"
    ratio = profile.means[last] / profile.means[0]
    if half is not None and reached[-1] < last:
        return f"halves within {half:.1f} {unit} (nothing of it reaches {name} {reached[-1] + 1} and beyond)"
    many = f"{last} {unit}" if last > 1 else f"1 {unit.replace('s ', ' ', 1)}"
    if half is not None:
        then = f"{ratio:.1%} left" if ratio <= 1 else f"{ratio:.1f} times as much as at 0"
        return f"halves within {half:.1f} {unit} ({then} at {name} {last})"
    if ratio > 1:
        return f"grows to {ratio:.1f} times its size within {many}"
    return f"does not halve within {many} ({ratio:.1%} left at {name} {last})"


def _pace(profile: Profile) -> str:
    """A sentence on the slope from lag 1 on, where there are lags enough."""
    slope, half_life = profile.slope, profile.half_life
    if slope is None:
        return ""
    if half_life is None:
        return f" From lag 1 on it grows by {math.expm1(slope):.1%} per step."
    return f" From lag 1 on it halves every {half_life:.1f} steps."
