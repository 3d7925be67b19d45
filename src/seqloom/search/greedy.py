"""Greedy search, and the score of a given target: the two searches in which each sentence has one row."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from seqloom.core.errors import DataError
from seqloom.core.stepping import Source, Step, Stepper
from seqloom.search.candidates import top_symbols
from seqloom.search.driver import Expansion, Frontier, search
from seqloom.search.hypothesis import Hypothesis
from seqloom.search.settings import SearchConfig


def greedy_search(stepper: Stepper, source: Source, settings: SearchConfig) -> list[Hypothesis]:
    """One hypothesis for each sentence: y_t = argmax_y log P(y ∣ x, y_<t), until end or the maximum length.

    Of equal symbols the lowest is taken. An end normalisation acts here as it does in beam search, of which this is
    the case of one hypothesis.
    """
    return [found[0] for [found] in search(stepper, source, GreedySearch(), settings)]


@dataclass(frozen=True)
class GreedySearch:
    """The most probable symbol of each row."""

    beams: int = 1
    proves_completeness: bool = False

    def choose(self, frontier: Frontier) -> Expansion:
        top = top_symbols(frontier.step, 1, values=frontier.values)
        table = torch.stack([top.values.double(), top.log_probs.double(), top.symbols.double()])  # ids are exact
        values, log_probs, symbols = table.cpu().numpy()  # [rows, 1] each
        return Expansion(values, frontier.starts[:, None], symbols.astype(np.int64), log_probs)


def forced_search(
    stepper: Stepper, source: Source, targets: Sequence[Sequence[int]], *, settings: SearchConfig
) -> list[Hypothesis]:
    """Each target as a finished hypothesis of its sentence: log P(y∣x) = Σ_t log P(y_t ∣ x, y_<t), end included.

    Targets hold neither begin nor end. A symbol that is not offered, or is forbidden, has log-probability −∞. The
    maximum length of the settings does not apply.
    """
    if len(targets) != len(source.lengths):
        raise DataError(f"got {len(targets)} targets for {len(source.lengths)} sentences; each sentence needs one")
    paths = [[*target, stepper.end] for target in targets]
    limits = [len(path) for path in paths]
    return [found[0] for [found] in search(stepper, source, ForcedSearch(paths), settings, limits=limits)]


@dataclass(frozen=True)
class ForcedSearch:
    """The given symbols of each sentence, whatever their probability."""

    paths: Sequence[Sequence[int]]
    beams: int = 1
    proves_completeness: bool = False

    def choose(self, frontier: Frontier) -> Expansion:
        symbols = np.array([self.paths[beam][frontier.length - 1] for beam in frontier.beams.tolist()])
        log_probs = _log_probs_of(symbols, frontier.step).cpu().numpy()[:, None]  # [rows, 1]
        return Expansion(np.zeros_like(log_probs), frontier.starts[:, None], symbols[:, None], log_probs)


def _log_probs_of(symbols: np.ndarray, step: Step) -> Tensor:
    wanted = torch.from_numpy(symbols).to(step.log_probs.device)[:, None]
    if step.symbols is None:
        return step.log_probs.gather(1, wanted)[:, 0].double()
    matches = wanted == step.symbols  # [rows, symbols], whether the rows share a shortlist or have their own
    return step.log_probs.double().masked_fill(~matches, float("-inf")).amax(1)
