"""Settings are refused with sentences that show the value and the bounds."""

import pytest

from seqloom.core.config import Config, describe_fields, resolve
from seqloom.core.errors import ConfigError
from seqloom.training.settings import TrainingConfig


class Run(Config):
    training: TrainingConfig = TrainingConfig()
    """How."""


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("training.steps=0", ["training.steps = 0", "at least 1"]),
        ("training.keep=1", ["training.keep = 1", "at least 2"]),
        ("training.learning_rate=0", ["training.learning_rate = 0", "above 0"]),
        ("training.momentum=1.0", ["training.momentum = 1.0", "below 1"]),
        ("training.betas=[0.9, 1.0]", ["training.betas", "1.0"]),
        ("training.warmup=-1", ["training.warmup = -1", "at least 0"]),
        ("training.optimiser=adamv", ["training.optimiser = adamv", "adamw"]),
        ("training.plateau_factor=1.5", ["training.plateau_factor = 1.5"]),
    ],
)
def test_a_setting_out_of_range_is_refused_with_its_value(override: str, parts: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(Run, overrides=[override])
    for part in parts:
        assert part in str(caught.value)


def test_settings_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"clip_norm is 1 and clip_value is 2; .* set the other to 0"):
        resolve(Run, overrides=["training.clip_norm=1", "training.clip_value=2"])
    with pytest.raises(ConfigError, match="validate_every is 0, but patience=3 looks at the dev loss"):
        resolve(Run, overrides=["training.validate_every=0", "training.patience=3"])
    with pytest.raises(ConfigError, match="validate_every is 0, but schedule=plateau"):
        resolve(Run, overrides=["training.validate_every=0", "training.schedule=plateau"])


def test_every_setting_is_explained() -> None:
    assert all(field.description for field in TrainingConfig.model_fields.values())
    assert describe_fields(TrainingConfig)
