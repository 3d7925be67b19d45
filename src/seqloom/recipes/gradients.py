"""Look at the gradients of a model: which inputs its losses depend on, and how that fades with distance."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from seqloom.core.errors import DataError, UsageError
from seqloom.core.symbols import BEGIN, END, RESERVED
from seqloom.core.unpacked import by_origin
from seqloom.data import stream
from seqloom.data.store import HEADER, Store
from seqloom.inspection.connectivity import (
    Connectivity,
    Profile,
    by_lag,
    by_source_distance,
    by_source_end,
    connectivity_of,
    connectivity_of_text,
)
from seqloom.inspection.connectivity_picture import draw_connectivity
from seqloom.inspection.findings import Finding
from seqloom.inspection.lags import fit_slope, lag_below
from seqloom.inspection.spectra import Spectrum, draw_spectra, state_spectra
from seqloom.inspection.typical_steps import step_spectra, step_spectra_of_text
from seqloom.models.seq2seq import Seq2SeqConfig
from seqloom.recipes.load import LoadedModel, use_of
from seqloom.recipes.readers import reader_of
from seqloom.recipes.reading import RecurrentReader
from seqloom.tasks.language_modelling import LanguageModel
from seqloom.text.normalise import is_blank

READABLE = 16
"""Pieces of a side up to which a map of a sentence can be read."""
MAX_TOKENS = 256
"""Of a line of text that a language model reads, the tokens that are looked at: as many as a translator takes."""
GATES_DECIDE = (
    "The gates decide how much passes, so the matrix of a single gate does not tell whether gradients explode"
)


@dataclass(frozen=True)
class Pair:
    """A sentence and its translation as ids, END included. For a language model, its line is the target."""

    source: list[int]
    target: list[int]


def text_pairs(loaded: LoadedModel, lines: Sequence[tuple[str, str]]) -> list[Pair]:
    """Pairs of lines as this model reads them. Pairs with a blank side are left out; some must be left."""
    seen = [line for line in lines if not (is_blank(line[0]) or is_blank(line[1]))]
    if not seen:
        raise DataError(f"there is nothing to look at: each of {len(lines)} pairs has a blank side")
    sources = loaded.tokenizers.source.encode_many([line[0] for line in seen])
    targets = loaded.tokenizers.target.encode_many([line[1] for line in seen])
    return [Pair([*source, END], [*target, END]) for source, target in zip(sources, targets, strict=True)]


def text_lines(loaded: LoadedModel, lines: Sequence[str]) -> list[Pair]:
    """Lines as a language model reads them. Blank ones are left out; some must be left."""
    seen = [line for line in lines if not is_blank(line)]
    if not seen:
        raise DataError(f"there is nothing to look at: each of {len(lines)} lines is blank")
    return [Pair([], [*ids, END][:MAX_TOKENS]) for ids in loaded.tokenizers.target.encode_many(seen)]


def dev_pairs(given: Path, loaded: LoadedModel, *, count: int) -> list[Pair]:
    """Some pairs, or lines of a language model, of the run's own dev set, spread over it evenly."""
    is_translator = use_of(loaded.config) == "translator"
    header = HEADER if is_translator else stream.HEADER
    homes = [folder for folder in (given, loaded.folder.parent) if (folder / "data" / "dev" / header).is_file()]
    if not homes:
        pairs = "--source FILE --reference FILE, or one pair: 'A sentence.' 'Its translation.'"
        lines = "--source FILE, or one: 'A sentence.'"
        raise UsageError(
            f"{given} does not hold the dev set it was trained with, so it has no sentences of its own to look at; "
            f"give some with {pairs if is_translator else lines}"
        )
    if not is_translator:
        text = stream.Stream.open(homes[0] / "data" / "dev")
        full = np.flatnonzero(text.lengths > 1)  # a blank line has its END alone
        return [Pair([], text.line(int(full[at])).tolist()[:MAX_TOKENS]) for at in _spread(len(full), count)]
    store = Store.open(homes[0] / "data" / "dev")
    return [Pair(store.source(at).tolist(), store.target(at).tolist()) for at in _spread(len(store), count)]


def _spread(everything: int, count: int) -> list[int]:
    """So many places among all, spread evenly."""
    places = np.linspace(0, everything - 1, min(count, everything)).round().astype(np.int64)
    return [int(place) for place in np.unique(places)]


def look_at_gradients(
    loaded: LoadedModel, pairs: Sequence[Pair], *, progress: Callable[[int], None] = lambda _pairs: None
) -> list[Finding]:
    """How gradients of the losses fade with distance, and for recurrent models the spectra of matrices and of a step.

    Of a language model, pairs have no source; an ELMo is looked at as it reads from left to right. `progress` is told
    how many pairs are done.
    """
    reader = None if use_of(loaded.config) == "translator" else _reader(loaded)
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


def _reader(loaded: LoadedModel) -> LanguageModel:
    """The model as it reads a text from left to right."""
    reader = reader_of(loaded)
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
    if not (isinstance(model, Seq2SeqConfig) and model.attention == "none"):
        unit = "positions from the diagonal of the source"
        return _OnSource(by_source_distance(maps), unit, "positions from the diagonal")
    profile = by_source_end(maps, is_bidirectional=model.is_bidirectional)
    end = "the nearer end of the source" if model.is_bidirectional else "the end of the source"
    return _OnSource(profile, f"steps from {end}", f"steps from {end.removesuffix(' of the source')}")


def _fading(loaded: LoadedModel, pairs: Sequence[Pair], maps: Sequence[Connectivity]) -> Finding:
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


def _fading_of_text(loaded: LoadedModel, lines: Sequence[Pair], maps: Sequence[Connectivity]) -> Finding:
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


def _readable(pairs: Sequence[Pair]) -> int:
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

    At distance 0 stands the direct effect of an input, which is no part of the decay.
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
