"""The symbols that a model reads around its texts, which its callers do not see.

    source    before  X  END  after
    target    begin_1 … begin_k  Y             in place of BEGIN Y

Callers pass X END and BEGIN Y, and get features and attention of these positions only. Models that read nothing else
have a frame that does nothing.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from seqloom.core.stepping import Source
from seqloom.core.symbols import BEGIN, END, PAD
from seqloom.nn.packing import Packing, length_mask


def with_end(ids: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"]) -> Source:
    """Texts with the END that a source has; `lengths` do not count it."""
    ended = F.pad(ids, (0, 1), value=PAD)  # [batch, time + 1]
    return Source(ended.scatter_(1, lengths[:, None].long(), END), lengths + 1)


@dataclass(frozen=True)
class Framing:
    """Symbols around each source and before each target."""

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    begin: tuple[int, ...] = (BEGIN,)
    """What is read in place of BEGIN."""

    @property
    def hidden_steps(self) -> int:
        """Positions of the target before those of the callers."""
        return len(self.begin) - 1

    @property
    def around(self) -> int:
        """Symbols around each source."""
        return len(self.before) + len(self.after)

    def source(self, given: Source) -> Source:
        """A source with the symbols around it."""
        if not self.before and not self.after:
            return given
        ids, lengths = given.ids, given.lengths
        count, longest = ids.shape
        first, last = len(self.before), len(self.after)
        framed = ids.new_full((count, first + longest + last), PAD)
        framed[:, :first] = ids.new_tensor(self.before)
        framed[:, first : first + longest] = ids
        if last:
            places = first + lengths[:, None] + torch.arange(last, device=ids.device)  # [batch, after]
            framed.scatter_(1, places, ids.new_tensor(self.after).expand(count, last))
        return Source(framed, lengths + first + last)

    def target(
        self, previous: Int[Tensor, "batch target"], lengths: Int[Tensor, " batch"]
    ) -> tuple[Int[Tensor, "batch longer"], Int[Tensor, " batch"]]:
        """What the decoder reads for BEGIN Y, and how many symbols that are."""
        if self.begin == (BEGIN,) or not previous.shape[1]:
            return previous, lengths
        first = torch.where(previous[:, :1] == BEGIN, self.begin[-1], previous[:, :1])
        hidden = previous.new_tensor(self.begin[:-1]).expand(len(previous), -1)
        # A target without symbols stays one.
        return torch.cat([hidden, first, previous[:, 1:]], 1), lengths + self.hidden_steps * (lengths > 0)

    def last_symbols(self, last: Int[Tensor, " rows"], *, position: int) -> Int[Tensor, " rows"]:
        """The symbols that a step at this position reads: BEGIN is another one at the callers' first position."""
        if self.begin[-1] == BEGIN or position != self.hidden_steps:
            return last
        return torch.where(last == BEGIN, self.begin[-1], last)

    def own_features(self, features: Float[Tensor, "all width"], packing: Packing) -> Float[Tensor, "tokens width"]:
        """Those of the callers' target positions."""
        if not self.hidden_steps:
            return features
        return features[packing.positions >= self.hidden_steps]

    def own_attention(
        self, weights: Float[Tensor, "batch *queries all"], lengths: Int[Tensor, " batch"], *, longest: int
    ) -> Float[Tensor, "batch *queries source"]:
        """The attention to the callers' source positions, of which each sentence has `lengths`; 0 at padding."""
        if not self.before and not self.after:
            return weights
        own = weights[..., len(self.before) : len(self.before) + longest]
        if not self.after:
            return own
        is_own = length_mask(lengths, longest).view(len(lengths), *[1] * (own.dim() - 2), longest)
        return own.masked_fill(~is_own, 0.0)
