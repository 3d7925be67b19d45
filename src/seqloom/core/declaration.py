"""What a model declares about itself, for everything above the models: purpose, task and pieces of text.

Code above `models` and `classical` reads these declarations. It never asks which model it has.
"""

from typing import ClassVar, Literal

from seqloom.core.config import Config

Purpose = Literal["translator", "language model", "word vectors"]

TaskKind = Literal["translation", "language_modelling", "bidirectional_language_modelling", "fitting"]
"""What models are trained for; `fitting` is for models with a loop of their own."""

Pieces = Literal["word", "char", "bpe", "unigram"]
"""What text is split into."""


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
