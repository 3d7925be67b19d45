"""Settings of objectives: chosen by kind, made from counts, refused with a sentence."""

import numpy as np
import pytest
import torch

from seqloom.core.config import Config, resolve
from seqloom.core.errors import ConfigError
from seqloom.nn.objectives import FullSoftmax, Nce, NegativeSampling, SampledSoftmax
from seqloom.tasks.language_modelling import make_objective
from seqloom.tasks.settings import FullConfig, ObjectiveConfig


class Holder(Config):
    """Where an objective stands in a config."""

    objective: ObjectiveConfig = FullConfig()
    """What is trained for."""


COUNTS = np.array([0, 1, 7, 31])


def test_each_kind_makes_its_objective() -> None:
    made = {
        kind: make_objective(resolve(Holder, overrides=[f"objective.kind={kind}"]).objective, COUNTS)
        for kind in ("full", "sampled", "nce", "negative")
    }
    assert {kind: type(objective) for kind, objective in made.items()} == {
        "full": FullSoftmax,
        "sampled": SampledSoftmax,
        "nce": Nce,
        "negative": NegativeSampling,
    }
    negative = made["negative"]
    assert isinstance(negative, NegativeSampling)
    q = torch.tensor([1.0, 2.0, 8.0, 32.0]).double() ** 0.75
    torch.testing.assert_close(negative.noise.log_probs(torch.arange(4)).exp(), q / q.sum())


def test_settings_reach_the_objective() -> None:
    overrides = ["kind=nce", "samples=7", "power=0.5", "log_z=learned", "sharing=token"]
    settings = resolve(Holder, overrides=[f"objective.{each}" for each in overrides]).objective
    objective = make_objective(settings, COUNTS)
    assert isinstance(objective, Nce)
    assert (objective.samples, objective.log_z, objective.sharing) == (7, "learned", "token")
    settings = resolve(Holder, overrides=["objective.kind=sampled", "objective.correction=all"]).objective
    sampled = make_objective(settings, COUNTS)
    assert isinstance(sampled, SampledSoftmax)
    assert sampled.correction == "all"


@pytest.mark.parametrize("value", ["none", "false", "null"])
def test_an_uncorrected_sampled_softmax_is_refused(value: str) -> None:
    with pytest.raises(ConfigError, match="not corrected by log q learns how often words are drawn"):
        resolve(Holder, overrides=["objective.kind=sampled", f"objective.correction={value}"])


def test_an_unknown_kind_and_no_samples_are_refused() -> None:
    with pytest.raises(ConfigError, match="hierarchical"):
        resolve(Holder, overrides=["objective.kind=hierarchical"])
    with pytest.raises(ConfigError, match="samples is 4096, which with sharing=token reads that many rows for every"):
        resolve(Holder, overrides=["objective.kind=nce", "objective.sharing=token"])
    with pytest.raises(ConfigError, match=r"objective\.samples"):
        resolve(Holder, overrides=["objective.kind=nce", "objective.samples=0"])


def test_more_samples_than_memory_has_room_for_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"objective\.samples = 100000000: .*at most 100,000"):
        resolve(Holder, overrides=["objective.kind=sampled", "objective.samples=100000000"])
    with pytest.raises(ConfigError, match="samples is 600, which with sharing=token reads that many rows"):
        resolve(Holder, overrides=["objective.kind=negative", "objective.samples=600"])
