"""ELMo in other models: one vector for each word of a sentence, for a tagger or a classifier to read."""

from typing import Literal

from jaxtyping import Float, Int
from torch import Tensor, nn

from seqloom.core.errors import ConfigError
from seqloom.models.elmo import Elmo
from seqloom.nn.modes import evaluating
from seqloom.nn.scalar_mix import ScalarMix

Combination = Literal["scalar_mix", "concat"]
"""How layers become one vector: γ Σ_j softmax(s)_j h_j (the paper), or [→h_L; ←h_L; x] (joined)."""


class ElmoFeatures(nn.Module):
    """One vector for each word of padded sentences.

    Frozen, the language model stays as it is and only the mix is learned; else it is trained with the task.
    """

    def __init__(
        self, elmo: Elmo, *, combine: Combination = "scalar_mix", is_frozen: bool = True, normalise: bool = False
    ) -> None:
        super().__init__()
        if combine == "concat" and normalise:
            raise ConfigError("normalise=True is for combine='scalar_mix'; layers that are joined keep their loudness")
        self.elmo = elmo
        self.is_frozen = is_frozen
        self.mix = None
        if combine == "scalar_mix":
            self.mix = ScalarMix(1 + len(elmo.rightward.layers.cells), normalise=normalise)
        if is_frozen:
            elmo.requires_grad_(False)

    @property
    def width(self) -> int:
        """Of each vector."""
        cell = self.elmo.rightward.layers.cells[-1]
        return 2 * cell.width + (self.elmo.rightward.layers.cells[0].input_width if self.mix is None else 0)

    def forward(
        self, ids: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch time features"]:
        if self.is_frozen:
            with evaluating(self.elmo):
                found = self.elmo.features(ids, lengths)
        else:
            found = self.elmo.features(ids, lengths)
        mixed: Tensor = found.concat() if self.mix is None else self.mix(found.stack())
        return mixed
