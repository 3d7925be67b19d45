"""The settings of a training run: how long, with which optimiser, at which rate, and what is kept."""

import math
from typing import Annotated, Literal

from pydantic import Field, model_validator

from seqloom.core.config import Config

Positive = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, lt=1)]


class LoraConfig(Config):
    """Low-rank adapters: pairs of small matrices that are trained in place of the weights of a trained model."""

    rank: Annotated[int, Field(ge=1, le=4096)] = 8
    """Rank of what is added to each matrix."""

    alpha: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 16.0
    """Strength of what is added: it is multiplied by alpha / rank."""

    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of numbers dropped from the input of the adapters, in training."""

    targets: Annotated[tuple[str, ...], Field(min_length=1)] = ("query", "value")
    """Matrices with an adapter: last words of their names (query, key, value, output, inner, outer, …), patterns of
    whole names such as decoder.*.query, or all."""

    rslora: bool = False
    """Whether the factor is alpha / √rank, which does not fade as the rank grows."""

    @property
    def scale(self) -> float:
        """The factor of what is added."""
        return self.alpha / (math.sqrt(self.rank) if self.rslora else self.rank)


class TrainingConfig(Config):
    """How a model is trained. Lengths of time are counted in optimiser steps, `minutes` apart."""

    steps: Positive = 10_000
    """Optimiser steps of the whole run, counted from its beginning; a resumed run continues up to the same number."""

    minutes: Amount = 0.0
    """Minutes after which training ends, wherever it is, with a validation and a checkpoint; those of earlier processes
    of the run count. 0 trains to the last step."""

    batches_per_step: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    """Batches whose gradients are added up for one step, over all ranks together. The last step of an epoch may have
    fewer: a step never crosses an epoch."""

    parallel: Literal["replicated", "sharded"] = "replicated"
    """What each of several ranks holds: the whole model with its gradients and optimiser state ("replicated"), or an
    equal part of all three ("sharded", for models that are too large for that). The result is the same."""

    optimiser: Literal["adamw", "adam", "sgd"] = "adamw"
    """Rule of the update: AdamW (decay apart from the gradient), Adam (decay as a part of it) or gradient descent."""

    betas: tuple[Fraction, Fraction] = (0.9, 0.98)
    """Adam and AdamW: shares of the old mean of the gradient, and of its square, that each step keeps; below 1."""

    epsilon: Amount = 1e-9
    """Adam and AdamW: added to the root of the squared gradient's mean, so that nothing is divided by zero."""

    weight_decay: Amount = 0.0
    """Pull of weight matrices towards zero, per unit of learning rate; biases, norms and embeddings are exempt."""

    momentum: Fraction = 0.0
    """Gradient descent: share of the last update that the next one keeps, from 0 up to but not 1."""

    learning_rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1e-3
    """Highest learning rate, which the schedule multiplies by a factor between 0 and 1."""

    table_updates: Literal["auto", "dense", "rows"] = "auto"
    """Rows of embeddings and outputs that a step updates: all ("dense"), or only those that it used ("rows",
    faster with a large vocabulary, on one rank). "auto" takes the rows where the objective draws samples."""

    schedule: Literal["inverse_sqrt", "cosine", "plateau", "constant"] = "inverse_sqrt"
    """Course of the learning rate after the warm-up: falling as 1/√step, falling as a cosine to zero at the last step,
    falling when the dev loss stops improving, or constant."""

    warmup: Natural = 1_000
    """Steps over which the learning rate rises linearly to its highest value; 0 starts there."""

    plateau_factor: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Schedule "plateau": factor of the learning rate when the dev loss stops improving."""

    plateau_patience: Natural = 1
    """Schedule "plateau": validations without a better dev loss before the rate falls."""

    clip_norm: Amount = 0.0
    """Longest gradient (2-norm over all parameters); a longer one is shortened to it. 0 leaves gradients alone."""

    clip_value: Amount = 0.0
    """Largest element of a gradient, either sign; larger ones are cut to it. 0 leaves gradients alone."""

    validate_every: Natural = 1_000
    """Steps between validations on the dev data; the last step always has one. 0 never validates."""

    save_every: Positive = 1_000
    """Steps between checkpoints. A new best dev loss, the last step and a signal save one as well."""

    keep: Annotated[int, Field(ge=2)] = 2
    """Checkpoints kept, the newest ones, at least 2; the best one is kept on top of them."""

    patience: Natural = 0
    """Validations without a better dev loss after which training ends; 0 trains to the last step."""

    average: Natural = 0
    """Last regular checkpoints whose mean becomes the final model, if its dev loss is lower than that of the best
    checkpoint; 0 always takes the best one."""

    final: Literal["better", "last"] = "better"
    """Whether the mean of the last checkpoints has to have a lower dev loss than the best one (better), or is the model
    in any case (last). The last ones, whose learning rate is low, may get more right although they are too sure."""

    bad_steps: Positive = 3
    """Steps in a row with a non-finite loss or gradient after which the run stops with an error."""

    log_every: Positive = 50
    """Steps between "step" events, each of which gives the mean loss since the last one."""

    threads: Annotated[int, Field(ge=0, le=1_000)] = 0
    """Threads of the arithmetic on the CPU; 0 keeps torch's default."""

    start_from: str | None = None
    """Model folder whose weights the run starts from, in place of random ones; of a model for another task, its trunk
    and what else fits."""

    freeze: tuple[str, ...] = ()
    """Weights that are not trained: patterns of their names such as encoder.*, or embeddings, which stands for all that
    comes before the layers."""

    layer_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Factor of the learning rate from a layer to the one below it: the head has the whole rate, the last layer this
    share of it, the embeddings the lowest."""

    lora: LoraConfig | None = None
    """Low-rank adapters, which are trained in place of the weights of training.start_from; null trains the weights."""

    @model_validator(mode="after")
    def _fit_together(self) -> "TrainingConfig":
        if self.lora is not None and self.start_from is None:
            raise ValueError("lora adapts a trained model; name it with start_from")
        if self.clip_norm and self.clip_value:
            raise ValueError(
                f"clip_norm is {self.clip_norm:g} and clip_value is {self.clip_value:g}; "
                "gradients are clipped one way: set the other to 0"
            )
        looks_at_dev_loss = self.patience > 0 or self.schedule == "plateau"
        if looks_at_dev_loss and not self.validate_every:
            what = f"patience={self.patience}" if self.patience else "schedule=plateau"
            raise ValueError(f"validate_every is 0, but {what} looks at the dev loss; set validate_every above 0")
        return self

    def warmup_problem(self) -> str | None:
        """What is wrong with a warm-up that the run does not finish, in words; None where it does."""
        if self.warmup <= self.steps:
            return None
        return (
            f"training.warmup={self.warmup} is longer than the run (training.steps={self.steps}): the learning rate "
            f"only reaches {self.steps / self.warmup:.0%} of training.learning_rate={self.learning_rate:g}. Set "
            f"training.warmup={self.steps // 4}, a quarter of the run, or train for more steps"
        )
