"""What a model declares about itself, for everything above the models: purpose, task, pieces of text and sizes.

Code above `models` and `classical` reads these declarations. It never asks which model it has.
"""

from typing import ClassVar, Literal

from seqloom.core.config import Config
from seqloom.core.sizing import DataFacts, ModelSizes, Pieces, TextFacts

Purpose = Literal["translator", "language model", "word vectors"]

TaskKind = Literal["translation", "language_modelling", "bidirectional_language_modelling", "fitting"]
"""What models are trained for; `fitting` is for models with a loop of their own."""

StepperOption = Literal["heads", "shortlist"]
"""Keyword arguments of a translation model's `stepper` besides `attention`, which its `stepper_options` name: which
head counts as attention, and the symbols that each sentence may use."""


class ModelSettings(Config):
    """The settings of a model, with its declarations. The defaults are those of a translation model."""

    kind: str
    """Names the model in a config file."""

    purpose: ClassVar[Purpose | None] = "translator"
    """What the model is for; None if that follows from the task of its run."""
    task_kind: ClassVar[TaskKind] = "translation"
    """What the model is trained for."""
    pieces: ClassVar[Pieces | None] = None
    """What text is split into by default; None if that is chosen for the data."""
    is_rounded_by_int8: ClassVar[bool] = False
    """Whether its weights may be stored in eight bits: linear layers do most of its work."""

    @property
    def needs_shared_vocabulary(self) -> bool:
        """Whether source and target have one table of symbols."""
        return False

    @property
    def has_attention(self) -> bool | None:
        """Whether the decoder attends to the source; None if that is not declared."""
        return None

    @property
    def attention_heads(self) -> tuple[int, int] | None:
        """Decoder layers and heads of each, if one of them can be chosen as the attention; None if not."""
        return None

    @property
    def has_output_table(self) -> bool:
        """Whether the output scores all symbols with one table, as sampled objectives and smoothing need."""
        return True

    def sizes_for_pairs(self, facts: DataFacts) -> ModelSizes:  # noqa: ARG002
        """Sizes of a translation model for this much data; `self` holds the settings that were given."""
        return ModelSizes()

    def sizes_for_text(self, facts: TextFacts, pieces: Pieces) -> ModelSizes:  # noqa: ARG002
        """Sizes of a model of plain text for this much text; `self` holds the settings that were given."""
        return ModelSizes()
