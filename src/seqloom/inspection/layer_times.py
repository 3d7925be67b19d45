"""How many tokens a second a layer takes, forwards and backwards, by the length of the sequences.

Batches hold as many tokens at every length, so the work that does not depend on length is the same. Layers take
turns within each round, so that whatever else the machine does meets them alike; of some passes in a row the fastest
counts, which is the one that was disturbed least; and what is compared is their ratio within a round.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqloom.core.errors import UsageError
from seqloom.nn.cells import Cell
from seqloom.nn.multihead import SelfAttention
from seqloom.nn.packing import packing_of


class CellLayer(nn.Module):
    """A recurrent layer that begins with nothing read."""

    def __init__(self, cell: Cell) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, inputs: Float[Tensor, "batch time width"]) -> Float[Tensor, "batch time width"]:
        hidden, _ = self.cell.run(inputs, self.cell.begin(inputs.new_zeros(len(inputs), self.cell.width)))
        return hidden


class AttentionLayer(nn.Module):
    """Self-attention over whole sequences, every position looking at all."""

    def __init__(self, attention: SelfAttention) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, inputs: Float[Tensor, "batch time width"]) -> Float[Tensor, "batch time width"]:
        batch, longest, _ = inputs.shape
        packing = packing_of(torch.full((batch,), longest), longest)
        mixed: Tensor = self.attention(inputs.flatten(0, 1), packing, mask=None, is_causal=False)
        return mixed.view(inputs.shape)


@dataclass(frozen=True)
class Times:
    """Seconds of a forward and backward pass of a layer, a round each."""

    layer: str
    length: int
    tokens: int
    seconds: tuple[float, ...]

    def rates(self) -> list[float]:
        """Tokens a second."""
        return [self.tokens / seconds for seconds in self.seconds]


def time_layers(
    layers: Mapping[str, nn.Module],
    *,
    width: int,
    lengths: Sequence[int],
    tokens: int,
    rounds: int,
    passes: int = 3,
    generator: torch.Generator,
    clock: Callable[[], float] = time.perf_counter,
    tell: Callable[[int], None] = lambda _length: None,
) -> list[Times]:
    """Times of every layer at every length; a first round is not counted. `tell` hears of each length that is done."""
    if min(rounds, passes) < 1 or any(not 1 <= length <= tokens for length in lengths):
        raise UsageError(
            f"{rounds} rounds of {passes} passes over {tokens} tokens in sequences of {list(lengths)} cannot be timed"
        )
    found = []
    for length in lengths:
        inputs = torch.randn(tokens // length, length, width, generator=generator).requires_grad_()
        upstream = torch.randn(inputs.shape, generator=generator)
        seconds: dict[str, list[float]] = {name: [] for name in layers}
        for number in range(rounds + 1):
            for name, layer in layers.items():
                fastest = min(_time(layer, inputs, upstream, clock) for _ in range(passes))
                if number:
                    seconds[name].append(fastest)
        counted = len(inputs) * length
        found += [Times(name, length, counted, tuple(values)) for name, values in seconds.items()]
        tell(length)
    return found


def _time(layer: nn.Module, inputs: Tensor, upstream: Tensor, clock: Callable[[], float]) -> float:
    begin = clock()
    layer(inputs).backward(upstream)
    taken = clock() - begin
    layer.zero_grad()
    inputs.grad = None
    return taken


def ratios(first: Times, second: Times) -> list[float]:
    """How many times as many tokens a second the first layer takes, round by round."""
    return [other / one for one, other in zip(first.seconds, second.seconds, strict=True)]
