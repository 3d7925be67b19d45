"""Embeddings: a row of numbers per symbol."""

from dataclasses import dataclass, field
from typing import Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.core.errors import ConfigError, check_known
from seqloom.core.symbols import PAD

Tying = Literal["all", "output", "none"]
"""Which tables are one: source, target and output ("all"); target and output ("output"); none."""


@dataclass(frozen=True)
class Symbols:
    """How many symbols each side has, and whether both sides share one vocabulary."""

    source: int
    target: int
    is_shared: bool
    pieces: tuple[str, ...] = field(default=(), repr=False)
    """The symbols of the target side as they are written, by id, for models that read words by their letters."""


class Embedding(nn.Module):
    """Looks up the row of each symbol: x = E[id], which is one-hot(id) · E without the zeros.

    The padding row begins at zero, and looking it up gives it no gradient.
    """

    row_gradients = False
    """Whether the gradient of the table holds the rows that were looked up only; set by `training.sparse`."""

    def __init__(self, symbols: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(symbols, width))
        self.reset()

    def reset(self) -> None:
        """Normal with deviation 1/√width: √width times a row, or its product with a unit feature, has variance 1."""
        nn.init.normal_(self.weight, std=self.weight.shape[1] ** -0.5)
        with torch.no_grad():
            self.weight[PAD].zero_()

    def forward(self, ids: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape width"]:
        return F.embedding(ids, self.weight, padding_idx=PAD, sparse=self.row_gradients)


@dataclass(frozen=True)
class Tables:
    """The three tables of an encoder-decoder, some of which may be one."""

    source: Embedding
    target: Embedding
    output: nn.Parameter


def tied_tables(symbols: Symbols, width: int, tying: Tying) -> Tables:
    """The tables of an encoder-decoder, tied as asked."""
    check_known("tying", tying, get_args(Tying))
    if tying == "all" and not symbols.is_shared:
        raise ConfigError(
            "model.tying is 'all', but the two sides have vocabularies of their own; "
            "set text.shared=true for a joint vocabulary, or model.tying=output"
        )
    target = Embedding(symbols.target, width)
    source = target if tying == "all" else Embedding(symbols.source, width)
    output = Embedding(symbols.target, width).weight if tying == "none" else target.weight
    return Tables(source=source, target=target, output=output)
