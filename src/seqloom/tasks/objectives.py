"""The settings of objectives: what the last layer of a language model is trained for."""

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from seqloom.core.config import Config
from seqloom.nn.objectives import (
    AliasSampler,
    Correction,
    Counts,
    FullSoftmax,
    Nce,
    NegativeSampling,
    SampledSoftmax,
    Sharing,
    noise_distribution,
)

Samples = Annotated[int, Field(ge=1, le=100_000)]
"""Noise words: above some ten thousand they cost more than the full softmax, and soon more memory than there is."""
Power = Annotated[float, Field(ge=0, le=1)]

MAX_SAMPLES_PER_TOKEN = 512
"""Noise words of each token with sharing=token: their rows are read once per token."""


class FullConfig(Config):
    """The full softmax: maximum likelihood over all symbols."""

    kind: Literal["full"] = "full"
    """Names this objective in a config file."""
    smoothing: float = Field(0.0, ge=0, lt=1)
    """Share of the label's probability that is spread over all symbols."""

    def make(self, counts: Counts) -> FullSoftmax:  # noqa: ARG002
        """The objective; it needs no counts."""
        return FullSoftmax(smoothing=self.smoothing)


class SampledConfig(Config):
    """The sampled softmax: the label against some drawn symbols, corrected by how likely they were drawn."""

    kind: Literal["sampled"] = "sampled"
    """Names this objective in a config file."""
    samples: Samples = 4096
    """Symbols drawn for each batch, shared by its tokens."""
    power: Power = 1.0
    """Symbols are drawn in proportion to (count + 1)^power: 0 is uniform, 1 unigram."""
    correction: Correction = "sampled"
    """Whether the drawn symbols alone are corrected by log q, or the label too. Uncorrected is refused."""

    @field_validator("correction", mode="before")
    @classmethod
    def _refuse_uncorrected(cls, value: object) -> object:
        if value in ("none", "off", None, False):
            raise ValueError(
                "a sampled softmax that is not corrected by log q learns how often words are drawn in place of how "
                "likely they are; use sampled, or all to correct the label too"
            )
        return value

    def make(self, counts: Counts) -> SampledSoftmax:
        """The objective with noise from the counts of the training text, one per symbol."""
        return SampledSoftmax(_noise(counts, self.power), self.samples, correction=self.correction)


class NceConfig(Config):
    """Noise-contrastive estimation: data or noise?"""

    kind: Literal["nce"] = "nce"
    """Names this objective in a config file."""
    samples: Samples = 4096
    """Noise words for each token, k; drawn once per batch or for each token, see `sharing`."""
    power: Power = 1.0
    """Noise is drawn in proportion to (count + 1)^power: 0 is uniform, 1 unigram."""
    log_z: Literal["fixed", "learned"] = "fixed"
    """Logarithm of the normaliser: 0, or one number that is learned with the model."""
    sharing: Sharing = "batch"
    """Whether all tokens of a batch are compared with the same noise words, or each token with its own (dearer: some
    25 are usual then)."""

    @model_validator(mode="after")
    def _fits_in_memory(self) -> "NceConfig":
        _require_few(self.samples, self.sharing)
        return self

    def make(self, counts: Counts) -> Nce:
        """The objective with noise from the counts of the training text, one per symbol."""
        return Nce(_noise(counts, self.power), self.samples, log_z=self.log_z, sharing=self.sharing)


class NegativeConfig(Config):
    """Negative sampling: the objective of word2vec. It gives vectors, not probabilities."""

    kind: Literal["negative"] = "negative"
    """Names this objective in a config file."""
    samples: Samples = 5
    """Noise words for each token."""
    power: Power = 0.75
    """Noise is drawn in proportion to (count + 1)^power: 0 is uniform, 1 unigram."""
    sharing: Sharing = "token"
    """Whether all tokens of a batch are compared with the same noise words, or each token with its own."""

    @model_validator(mode="after")
    def _fits_in_memory(self) -> "NegativeConfig":
        _require_few(self.samples, self.sharing)
        return self

    def make(self, counts: Counts) -> NegativeSampling:
        """The objective with noise from the counts of the training text, one per symbol."""
        return NegativeSampling(_noise(counts, self.power), self.samples, sharing=self.sharing)


ObjectiveConfig = Annotated[FullConfig | SampledConfig | NceConfig | NegativeConfig, Field(discriminator="kind")]
"""The objectives there are."""


def _require_few(samples: int, sharing: Sharing) -> None:
    if sharing == "token" and samples > MAX_SAMPLES_PER_TOKEN:
        raise ValueError(
            f"samples is {samples}, which with sharing=token reads that many rows for every token of a batch; "
            "set samples=25, or sharing=batch"
        )


def _noise(counts: Counts, power: float) -> AliasSampler:
    return AliasSampler(noise_distribution(counts, power=power))
