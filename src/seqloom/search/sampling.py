"""Sampling: draw outputs at random instead of looking for the best one.

Ancestral sampling draws symbol after symbol, each given those before it, so that an output Y comes up with its
probability P(Y∣X). Four settings sharpen the distribution of a step first, in this order:

    temperature   p(y) ∝ P(y ∣ x, y_<t)^(1/T)       T = 1 is the model, T → 0 greedy search, T → ∞ uniform
    top-k         keeps the k symbols of highest p; of equal ones the lower symbol
    top-p         keeps the fewest symbols of highest p that have Σ p ≥ top_p         (nucleus; Holtzman et al., 2020)
    min-p         keeps the symbols with p(y) ≥ min_p · max p                         (Nguyen et al., 2024)
    drawn from    q(y) = p(y) / Σ p                 over the symbols that all three keep

Each of the three filters looks at the tempered p, over all symbols offered: nothing is renormalised between them, so
what one keeps does not depend on the others. (Systems that renormalise after top-k keep fewer symbols by top-p.)

A draw depends on its own place and on nothing else, so neither the other sentences nor their number change it:

    u = uniform(seed, key of the sentence, sample, step)             in [0, 1)
    y = the symbol with Σ_{y' < y} q(y') ≤ u < Σ_{y' ≤ y} q(y')      symbols in the order of their ids
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from seqloom.core.errors import UsageError
from seqloom.core.seeds import seed_for
from seqloom.core.stepping import Source, Step, Stepper
from seqloom.search.candidates import IMPOSSIBLE, Top, top_symbols
from seqloom.search.constraints import Constraints
from seqloom.search.driver import Cancellation, Expansion, Frontier, search
from seqloom.search.hypothesis import Hypothesis
from seqloom.search.settings import SearchConfig


@dataclass(frozen=True)
class Choices:
    """What the next symbol of each row is drawn from, in the order of ids, and log P of the model itself.

    `weights` are in proportion to q; a symbol that was not kept has 0. They are all 0 where nothing is allowed.
    """

    weights: Float[Tensor, "rows choices"]
    log_probs: Float[Tensor, "rows choices"]
    symbols: Int[Tensor, "rows choices"]


def sample_search(
    stepper: Stepper,
    source: Source,
    settings: SearchConfig,
    *,
    keys: Sequence[int] | None = None,
    constraints: Constraints | None = None,
    cancellation: Cancellation | None = None,
) -> list[list[Hypothesis]]:
    """`settings.nbest` samples of each sentence, in the order in which they were drawn.

    They are not sorted, and may come more than once, as often as they are probable: the first n of more samples are
    those that would be drawn if n were requested. `token_log_probs` and `log_prob` are those of the model, whatever
    was drawn from. `keys` distinguish sentences; without them the number in the batch does. What constraints forbid has
    p = 0, and an end normalisation acts on P(end) as it does in greedy search, which is what temperature 0 gives.
    """
    sentences = len(source.lengths)
    if keys is not None and len(keys) != sentences:
        raise UsageError(f"got {len(keys)} keys for {sentences} sentences; each sentence needs one")
    strategy = SampleSearch(settings, range(sentences) if keys is None else keys, settings.nbest)
    limits = settings.hard_limits(source)
    found = search(
        stepper, source, strategy, settings, limits=limits, constraints=constraints, cancellation=cancellation
    )
    return [[sample for beam in samples for sample in beam[:1]] for samples in found]


@dataclass(frozen=True)
class SampleSearch:
    """One symbol drawn for each row; each sample of a sentence is a beam of its own."""

    settings: SearchConfig
    keys: Sequence[int]
    beams: int
    proves_completeness: bool = False

    def choose(self, frontier: Frontier) -> Expansion:
        choices = choices_of(frontier.step, self.settings, values=frontier.values)
        numbers = []
        for beam in frontier.beams.tolist():
            sentence, sample = divmod(beam, self.beams)
            numbers.append(uniform(self.settings.seed, self.keys[sentence], sample=sample, step=frontier.length))
        symbols, log_probs, sums = choices.symbols, choices.log_probs, choices.weights.cumsum(1)  # [beams, choices]
        if len(numbers) != len(sums):  # the samples of a sentence share its first row
            picked = torch.from_numpy(frontier.starts).to(sums.device)  # [beams]
            symbols, log_probs, sums = symbols[picked], log_probs[picked], sums[picked]
        height = torch.tensor(numbers, dtype=torch.float64, device=sums.device)[:, None] * sums[:, -1:]
        columns = torch.searchsorted(sums, height, right=True)  # the first sum above it, which has a weight of its own
        columns = columns.clamp(max=sums.shape[1] - 1)  # [beams, 1]
        tables = (symbols.gather(1, columns), log_probs.gather(1, columns), sums[:, -1:])
        drawn, own, totals = [table.cpu().numpy() for table in tables]  # [beams, 1] each
        values = np.where(totals > 0, 0.0, IMPOSSIBLE)  # a total of 0 where nothing is allowed
        return Expansion(values, frontier.starts[:, None], drawn, own)


def uniform(seed: int, key: int, *, sample: int, step: int) -> float:
    """A number in [0, 1) that belongs to one draw: 53 bits of a hash of its place."""
    return (seed_for(seed, "sample", key, sample, step) >> 10) * 2.0**-53


def choices_of(step: Step, settings: SearchConfig, *, values: Float[Tensor, "rows symbols"] | None = None) -> Choices:
    """The distribution of the next symbol of each row, tempered and filtered.

    `values` replace the log-probabilities where some symbols are forbidden (−∞).
    """
    values = step.log_probs if values is None else values
    offered = values.shape[1]
    count = 1 if settings.temperature == 0 else min(settings.top_k or offered, offered)
    is_ranked = count < offered or settings.top_p < 1
    top = top_symbols(step, count if is_ranked else 1, values=values)
    highest = top.values[:, :1].double().clamp(min=torch.finfo(torch.float64).min)  # −∞ − −∞ would be no number
    temperature = settings.temperature or 1.0  # with 0 only one symbol is left

    def tempered(logarithms: Tensor) -> Tensor:
        """p / max p. Sums are running ones, which add up a row in one order, however many rows there are."""
        return ((logarithms.double() - highest) / temperature).exp()

    kept = top
    if not is_ranked:
        symbols = torch.arange(offered, device=values.device) if step.symbols is None else step.symbols
        kept = Top(values, step.log_probs, symbols.expand(len(values), -1))
    weights = tempered(kept.values)
    is_kept = weights >= settings.min_p
    if settings.top_p < 1:
        before = F.pad(weights.cumsum(1)[:, :-1], (1, 0))  # Σ p of the more probable ones
        is_kept &= before < settings.top_p * tempered(values).cumsum(1)[:, -1:]
    symbols, order = kept.symbols.sort(dim=1, stable=True)
    return Choices(
        weights=(weights * is_kept).gather(1, order),
        log_probs=kept.log_probs.double().gather(1, order),
        symbols=symbols,
    )
