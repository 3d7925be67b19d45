"""The scalar mix: one vector from those of all layers, with weights that a task learns (Peters et al., 2018)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.core.errors import UsageError


class ScalarMix(nn.Module):
    """A weighted mean of layers, scaled.

        y = γ Σ_j softmax(s)_j h_j            s begins at 0: all layers alike;  γ begins at 1

    With `normalise`, each h_j is first brought to mean 0 and variance 1, so that loud layers do not decide by loudness.
    """

    def __init__(self, layers: int, *, normalise: bool = False) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.zeros(layers))
        self.scale = nn.Parameter(torch.ones(()))
        self.normalise = normalise

    @property
    def weights(self) -> Float[Tensor, " layers"]:
        """The share of each layer; they sum to one."""
        return self.scores.softmax(0)

    def forward(self, layers: Float[Tensor, "layers *rows width"]) -> Float[Tensor, "*rows width"]:
        if len(layers) != len(self.scores):
            raise UsageError(
                f"this mix has {len(self.scores)} weights, but {len(layers)} layers came; give one for each"
            )
        values = F.layer_norm(layers, layers.shape[-1:]) if self.normalise else layers
        mixed: Tensor = self.scale * torch.tensordot(self.weights, values, dims=1)
        return mixed
