"""Gradients of a model: which inputs its losses depend on, and how that decays with distance."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.colorbar import Colorbar
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from torch import Tensor, nn

from seqloom.core.archive import by_origin
from seqloom.core.errors import DataError, ModelError, UsageError
from seqloom.core.stepping import Source
from seqloom.core.symbols import BEGIN, END, RESERVED
from seqloom.data import plain_text as stream
from seqloom.data.batches import PairBatch
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
from seqloom.text.normalise import is_blank

# Which inputs the loss at each output of a model depends on, and how that fades with distance.
#
#     m[t, k] = ‖∂loss_t/∂x_k‖        loss_t = −log P(y_t | y_<t, source), x_k the vector of input symbol k
#
# On the target side input k is the symbol before output k, so the lag t − k is 0 for what was read last, and later
# inputs have no effect. On the source side the distance is counted from the position of a word-for-word translation;
# or, where the decoder knows nothing but the last state of an encoder, from the end of the source at which that state
# was reached. A language model has only the target side. All of it is automatic differentiation of the embedded
# inputs, so this works for every translator and every recurrent language model.

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

    The pair is copied once for every output and row t computes loss_t alone, so one backward pass gives all.
    """
    rows = max(1, TOKENS_AT_ONCE // max(len(source), len(target)))
    parts = [_some_rows(model, source, target, outputs) for outputs in torch.arange(len(target)).split(rows)]
    found = [torch.cat(list(side)).cpu().double().numpy() for side in zip(*parts, strict=True)]
    return Connectivity(*found)


def connectivity_of_text(
    model: RecurrentLanguageModel, layers: nn.Module, text: Int[Tensor, " target"]
) -> Connectivity:
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
    model: RecurrentLanguageModel, layers: nn.Module, text: Tensor, outputs: Int[Tensor, " rows"]
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
    """The embeddings of the symbols of both sides."""

    found: dict[str, Tensor] = field(default_factory=dict)

    def vectors(self, side: str) -> Tensor:
        if side not in self.found:
            raise ModelError(
                f"the {side} symbols of this model pass no known embedding, so its gradients cannot be "
                "measured; embed them with seqloom.nn.embeddings.Embedding or torch.nn.Embedding"
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
    if by_source is None:
        return _draw_text(found, previous=previous, target=target, by_lag=by_lag)
    width = max(7.6, 2.4 + 0.38 * (len(source) + len(previous)))
    map_height = 1.9 + 0.27 * len(target)
    figure = Figure(figsize=(width, map_height + 3.0), layout="constrained")
    upper, lower = figure.subfigures(2, 1, squeeze=False, height_ratios=[map_height, 3.0])[:, 0]
    left, right = upper.subplots(1, 2, width_ratios=[len(source), len(previous)], sharey=True)
    strongest = _strongest(found)
    _draw_map(left, found.source / strongest, source, name="source")
    image = _draw_map(right, found.target / strongest, previous, name="target, as read so far")
    _name_rows(left, target)
    _draw_bar(upper.colorbar(image, ax=[left, right], fraction=0.03, pad=0.02))
    # One scale for both, so that heights can be compared and a level curve looks level.
    steps, positions = lower.subplots(1, 2, sharey=True)
    _draw_profile(steps, by_lag, FIRST)
    steps.set_xlabel("lag in the target (steps back from the symbol read last)")
    _draw_profile(positions, by_source, SECOND)
    positions.set_xlabel(f"distance in the source ({source_distance})")
    _scale_norms(steps, [*by_lag.means, *by_source.means])
    for axes in (steps, positions):
        axes.set_ylabel("mean gradient norm ‖∂loss/∂x‖")
        axes.tick_params(labelleft=True)
    return figure


def _draw_text(found: Connectivity, *, previous: Sequence[str], target: Sequence[str], by_lag: Profile) -> Figure:
    """The same of a language model, which has the target side alone."""
    map_height = 1.9 + 0.27 * len(target)
    figure = Figure(figsize=(max(5.6, 2.4 + 0.38 * len(previous)), map_height + 3.0), layout="constrained")
    upper, lower = figure.subfigures(2, 1, squeeze=False, height_ratios=[map_height, 3.0])[:, 0]
    axes, steps = upper.subplots(), lower.subplots()
    image = _draw_map(axes, found.target / _strongest(found), previous, name="the text, as read so far")
    _name_rows(axes, target)
    _draw_bar(upper.colorbar(image, ax=axes, fraction=0.03, pad=0.02))
    _draw_profile(steps, by_lag, FIRST)
    steps.set_xlabel("lag (steps back from the symbol read last)")
    steps.set_ylabel("mean gradient norm ‖∂loss/∂x‖")
    _scale_norms(steps, by_lag.means)
    return figure


def _strongest(found: Connectivity) -> Float[np.ndarray, "rows one"]:
    """What each loss depends on most. A loss that depends on nothing any more is a row of zeros."""
    both = np.maximum(found.source.max(1, initial=0.0), found.target.max(1))
    strongest: Float[np.ndarray, "rows one"] = both.clip(min=np.finfo(np.float64).tiny)[:, None]
    return strongest


def _name_rows(axes: Axes, target: Sequence[str]) -> None:
    axes.set_yticks(range(len(target)), list(map(as_written, target)), family=fonts(), fontsize=9, parse_math=False)
    axes.set_ylabel("loss at")


def _draw_bar(bar: Colorbar) -> None:
    bar.set_label("share of the row's strongest input", fontsize=9)
    bar.outline.set_visible(False)


def _draw_map(axes: Axes, shares: Float[np.ndarray, "rows columns"], inputs: Sequence[str], *, name: str) -> AxesImage:
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    plain: dict[str, Any] = {"family": fonts(), "parse_math": False}
    names = list(map(as_written, inputs))
    axes.set_xticks(range(len(inputs)), names, rotation=60, ha="left", rotation_mode="anchor", **plain)
    axes.xaxis.tick_top()
    axes.tick_params(length=0, labelsize=9)
    axes.set_xlabel(name, color=INK)
    for spine in axes.spines.values():
        spine.set_visible(False)
    return image


def _draw_profile(axes: Axes, profile: Profile, colour: str) -> None:
    """Mean norms by distance, with the distance at which half is left."""
    axes.plot(range(len(profile.means)), profile.means, color=colour, marker="o", ms=3, linewidth=1.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    tidy(axes)
    half = lag_below(profile.means, 0.5)
    if half is not None:
        axes.axvline(half, color=QUIET, linewidth=1, linestyle="--")
        axes.annotate(
            f"half at {half:.1f}",
            (half, 1),
            xycoords=("data", "axes fraction"),
            xytext=(4, -4),
            textcoords="offset points",
            va="top",
            fontsize=9,
            color=INK,
        )


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

Met = dict[str, list[tuple[Tensor, CellState]]]
"""By the name of a cell the steps that it took: what the input adds to its gates, and the state before, of one row."""


def step_spectra(
    model: nn.Module, source: Int[Tensor, " source"], target: Int[Tensor, " target"]
) -> dict[str, Spectrum]:
    """The spectrum of J in the middle of this pair of sentences, by the cell's name; empty without such cells."""
    lengths = [ids.new_tensor([len(ids)]) for ids in (source, target)]
    return _spectra_of(
        model,
        lambda: cast("TranslationModel", model)(Source(source[None], lengths[0]), _previous(target), lengths[1]),
    )


def step_spectra_of_text(
    model: RecurrentLanguageModel, layers: nn.Module, text: Int[Tensor, " target"]
) -> dict[str, Spectrum]:
    """The same in the middle of a line that a language model reads; `layers` hold its cells."""
    return _spectra_of(layers, lambda: model(_previous(text), None))


def _previous(target: Tensor) -> Tensor:
    """What is read before each symbol of a line, as a batch of one."""
    return torch.cat([target.new_tensor([BEGIN]), target[:-1]])[None]


def _spectra_of(model: nn.Module, read: Callable[[], object]) -> dict[str, Spectrum]:
    cells = {name: module for name, module in model.named_modules() if isinstance(module, Cell)}
    with torch.no_grad(), _recorded(cells) as met:
        read()
    middles = {name: steps[len(steps) // 2] for name, steps in met.items() if steps}
    return {name: spectrum_of("whole step", step_jacobian(cells[name], *middle)) for name, middle in middles.items()}


@contextmanager
def _recorded(cells: dict[str, Cell]) -> Iterator[Met]:
    """Inside, each step that a cell takes is kept, and whole sequences go step by step too."""
    met: Met = {name: [] for name in cells}
    for name, cell in cells.items():
        # On the instance these shadow the methods of its class until they are deleted.
        vars(cell)["run"] = partial(unroll, cell)
        vars(cell)["advance"] = partial(_advance, cell, met[name])
    try:
        yield met
    finally:
        for cell in cells.values():
            del vars(cell)["run"], vars(cell)["advance"]


def _advance(cell: Cell, steps: list[tuple[Tensor, CellState]], projected: Tensor, state: CellState) -> CellState:
    steps.append((projected[0], tuple(part[:1] for part in state)))
    return type(cell).advance(cell, projected, state)


READABLE = 16
"""Pieces of a side up to which a map of a sentence can be read."""
MAX_TOKENS = 256
"""Maximum number of tokens used of a line: as many as for a translator."""
GATES_DECIDE = (
    "The gates decide how much passes, so the matrix of a single gate does not show whether gradients explode"
)


@dataclass(frozen=True)
class GradientPair:
    """A sentence and its translation as ids, END included. For a language model, its line is the target."""

    source: list[int]
    target: list[int]


def text_pairs(loaded: LoadedModel, lines: Sequence[tuple[str, str]]) -> list[GradientPair]:
    """Pairs of lines as this model reads them. Pairs with a blank side are left out; some must be left."""
    seen = [line for line in lines if not (is_blank(line[0]) or is_blank(line[1]))]
    if not seen:
        raise DataError(f"each of the {len(lines)} pairs has a blank side")
    sources = loaded.tokenizers.source.encode_many([line[0] for line in seen])
    targets = loaded.tokenizers.target.encode_many([line[1] for line in seen])
    return [GradientPair([*source, END], [*target, END]) for source, target in zip(sources, targets, strict=True)]


def text_lines(loaded: LoadedModel, lines: Sequence[str]) -> list[GradientPair]:
    """Lines as a language model reads them. Blank ones are left out; some must be left."""
    seen = [line for line in lines if not is_blank(line)]
    if not seen:
        raise DataError(f"all {len(lines)} lines are blank")
    return [GradientPair([], [*ids, END][:MAX_TOKENS]) for ids in loaded.tokenizers.target.encode_many(seen)]


def dev_pairs(given: Path, loaded: LoadedModel, *, count: int) -> list[GradientPair]:
    """Some pairs, or lines of a language model, of the run's own dev set, spread over it evenly."""
    is_translator = loaded.config.purpose == "translator"
    header = HEADER if is_translator else stream.HEADER
    homes = [folder for folder in (given, loaded.folder.parent) if (folder / "data" / "dev" / header).is_file()]
    if not homes:
        pairs = "--source FILE --reference FILE, or one pair: 'A sentence.' 'Its translation.'"
        lines = "--source FILE, or one: 'A sentence.'"
        raise UsageError(
            f"{given} does not contain its dev set, so there are no sentences to use; "
            f"give some with {pairs if is_translator else lines}"
        )
    if not is_translator:
        text = stream.Stream.open(homes[0] / "data" / "dev")
        full = np.flatnonzero(text.lengths > 1)  # a blank line has its END alone
        return [GradientPair([], text.line(int(full[at])).tolist()[:MAX_TOKENS]) for at in _spread(len(full), count)]
    store = Store.open(homes[0] / "data" / "dev")
    return [GradientPair(store.source(at).tolist(), store.target(at).tolist()) for at in _spread(len(store), count)]


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
    reader = None if loaded.config.purpose == "translator" else _reader(loaded)
    maps = []
    for number, pair in enumerate(pairs, start=1):
        source, target = (torch.tensor(ids, device=loaded.device) for ids in (pair.source, pair.target))
        if reader is None:
            maps.append(connectivity_of(loaded.model, source, target))
        else:
            maps.append(connectivity_of_text(reader, loaded.model, target))
        progress(number)
    findings = [_fading(loaded, pairs, maps) if reader is None else _fading_of_text(loaded, pairs, maps)]
    gates = state_spectra(loaded.model)
    if gates:
        shown = pairs[_readable(pairs)]
        source, target = (torch.tensor(ids, device=loaded.device) for ids in (shown.source, shown.target))
        if reader is None:
            steps = step_spectra(loaded.model, source, target)
        else:
            steps = step_spectra_of_text(reader, loaded.model, target)
        findings.append(_spectra(gates, steps))
    return findings


def _reader(loaded: LoadedModel) -> RecurrentLanguageModel:
    """The model as it reads a text from left to right."""
    reader = require_reader(loaded)
    assert isinstance(reader, RecurrentReader), "a model that is trained and reads text is recurrent"
    return reader.model


@dataclass(frozen=True)
class _OnSource:
    """Mean norms by a distance in the source, and what that distance is."""

    profile: Profile
    unit: str
    """After a number: positions from where."""
    name: str
    """At an axis."""


def _on_source(loaded: LoadedModel, maps: Sequence[Connectivity]) -> _OnSource:
    """With attention, from where a word-for-word translation would look; without, from where the state comes from."""
    model = loaded.config.model
    if model.has_attention is not False:
        unit = "positions from the diagonal of the source"
        return _OnSource(by_source_distance(maps), unit, "positions from the diagonal")
    is_bidirectional = getattr(model, "is_bidirectional", False)
    profile = by_source_end(maps, is_bidirectional=is_bidirectional)
    end = "the nearer end of the source" if is_bidirectional else "the end of the source"
    return _OnSource(profile, f"steps from {end}", f"steps from {end.removesuffix(' of the source')}")


def _fading(loaded: LoadedModel, pairs: Sequence[GradientPair], maps: Sequence[Connectivity]) -> Finding:
    on_target, on_source = by_lag(maps), _on_source(loaded, maps)
    of_source, of_target = (float(sum((side**2).sum() for side in sides)) for sides in _sides(maps))
    share = of_source / (of_source + of_target) if of_source + of_target else None
    shown = _readable(pairs)
    source = [loaded.tokenizers.source.piece(id) for id in pairs[shown].source]
    target = [loaded.tokenizers.target.piece(id) for id in pairs[shown].target]
    data: dict[str, Any] = {
        "model": by_origin(str(loaded.folder)),
        "kind": loaded.config.model.kind,
        "pairs": len(pairs),
        "target": _profile_data(on_target),
        "source": {"distance": on_source.unit, **_profile_data(on_source.profile)},
        "source_share": share,
        "shown": {
            "source": source,
            "target": target,
            "by_source": maps[shown].source.tolist(),
            "by_target": maps[shown].target.tolist(),
        },
    }
    many = f"{len(pairs)} pairs" if len(pairs) > 1 else "one pair"
    sentence = (
        f"Over {many}, the gradient of a loss {_words(on_target, 'steps back in the target', 'lag')}, and "
        f"{_words(on_source.profile, on_source.unit, 'distance')}.{_pace(on_target)}"
    )
    if share is not None:
        sentence += f" The source gets {share:.0%} of the squared gradient."

    def draw() -> Figure:
        return draw_connectivity(
            maps[shown],
            source=source,
            previous=[RESERVED[BEGIN], *target[:-1]],
            target=target,
            by_lag=on_target,
            by_source=on_source.profile,
            source_distance=on_source.name,
        )

    return Finding("gradients", "The gradient of each loss with respect to each input", sentence, data, draw)


def _fading_of_text(loaded: LoadedModel, lines: Sequence[GradientPair], maps: Sequence[Connectivity]) -> Finding:
    """The same of a language model, which has no source."""
    profile, shown = by_lag(maps), _readable(lines)
    text = [loaded.tokenizers.target.piece(id) for id in lines[shown].target]
    data: dict[str, Any] = {
        "model": by_origin(str(loaded.folder)),
        "kind": loaded.config.model.kind,
        "lines": len(lines),
        "text": _profile_data(profile),
        "shown": {"text": text, "by_text": maps[shown].target.tolist()},
    }
    many = f"{len(lines)} lines" if len(lines) > 1 else "one line"
    sentence = (
        f"Over {many}, the gradient of a loss {_words(profile, 'steps back in the text', 'lag')}.{_pace(profile)}"
    )

    def draw() -> Figure:
        previous = [RESERVED[BEGIN], *text[:-1]]
        return draw_connectivity(maps[shown], source=(), previous=previous, target=text, by_lag=profile, by_source=None)

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


def _readable(pairs: Sequence[GradientPair]) -> int:
    """The pair to draw: the longest one that can still be read, or else the shortest."""
    lengths = [max(len(pair.source), len(pair.target)) for pair in pairs]
    fitting = [length for length in lengths if length <= READABLE]
    return lengths.index(max(fitting) if fitting else min(lengths))


def _sides(maps: Sequence[Connectivity]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    return [each.source for each in maps], [each.target for each in maps]


def _profile_data(profile: Profile) -> dict[str, Any]:
    return {
        "means": list(profile.means),
        "counts": list(profile.counts),
        "half": lag_below(profile.means, 0.5),
        "tenth": lag_below(profile.means, 0.1),
        "half_life": _half_life(profile),
    }


def _half_life(profile: Profile) -> float | None:
    """The steps in which the mean norm halves by its slope from distance 1 on; None where it does not fade.

    Distance 0 is the direct effect of an input, which is not part of the decay.
    """
    slope = _slope(profile)
    return -math.log(2) / slope if slope is not None and slope < 0 else None


def _slope(profile: Profile) -> float | None:
    """In nats per step, from distance 1 on; None where fewer than two distances get any gradient."""
    if sum(mean > 0 for mean in profile.means[1:]) < 2:
        return None
    return fit_slope(profile.means, first=1)


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
    slope, half_life = _slope(profile), _half_life(profile)
    if slope is None:
        return ""
    if half_life is None:
        return f" From lag 1 on it grows by {math.expm1(slope):.1%} per step."
    return f" From lag 1 on it halves every {half_life:.1f} steps."
