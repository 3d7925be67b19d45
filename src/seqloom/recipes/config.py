"""The settings of a run, and the one list of models."""

import re
from typing import Annotated

from pydantic import Field, field_validator, model_validator

from seqloom.core.config import Config
from seqloom.models.seq2seq import Seq2SeqConfig
from seqloom.models.transformer import TransformerConfig
from seqloom.search.settings import SearchConfig
from seqloom.tasks.translation import TranslationConfig
from seqloom.text.tokenizer import TextConfig
from seqloom.training.settings import TrainingConfig

ModelConfig = Annotated[TransformerConfig | Seq2SeqConfig, Field(discriminator="kind")]
"""Every model there is. A new one is a file in `models/` and a word here."""


class DataConfig(Config):
    """The text a model learns from."""

    train: tuple[str, ...] = ()
    """Training files: source and target (several pairs one after another), or TSV files. Plain or .gz."""
    dev: tuple[str, ...] = ()
    """Held-out files for validation, in the same form. Without any, a share of the training pairs is held out."""
    held_out: int = Field(1000, ge=1)
    """Pairs taken from the training files for validation when there are no dev files, at most a tenth of them."""
    source: str | None = None
    """Source language, as a code such as de; by default the ending of the file name."""
    target: str | None = None
    """Target language, likewise."""
    encoding: str = "utf-8"
    """Character encoding of the files."""
    longest: int = Field(256, ge=2)
    """Tokens on a side, the end mark counted, beyond which a training pair is dropped (and counted)."""
    tokens_per_batch: int = Field(4096, ge=1)
    """Places in a batch: sentences × the longest of them, on the longer side."""

    @field_validator("encoding")
    @classmethod
    def _known(cls, value: str) -> str:
        try:
            "".encode(value)
        except LookupError:
            raise ValueError(f"{value!r} is no encoding that Python knows; try utf-8, latin-1 or utf-16") from None
        return value


class EvaluationConfig(Config):
    """How translations are scored."""

    resamples: int = Field(1000, ge=40)
    """Bootstrap resamples behind each interval."""
    lowercase: bool = False
    """Whether BLEU and chrF look at small letters only."""


class RunConfig(Config):
    """All that determines a run."""

    seed: int = Field(1, ge=0)
    """The one seed, from which every random number of the run comes."""
    device: str = "cpu"
    """Where the arithmetic is done: cpu, cuda or cuda:1."""
    data: DataConfig = DataConfig()
    """The text a model learns from."""
    text: TextConfig = TextConfig()
    """How text is normalised and cut into pieces."""
    model: ModelConfig = TransformerConfig()
    """The model and its sizes."""
    task: TranslationConfig = TranslationConfig()
    """What it is trained for."""
    training: TrainingConfig = TrainingConfig()
    """How it is trained."""
    search: SearchConfig = SearchConfig()
    """How it is searched for translations."""
    evaluation: EvaluationConfig = EvaluationConfig()
    """How translations are scored."""

    @field_validator("device")
    @classmethod
    def _is_supported(cls, value: str) -> str:
        if not re.fullmatch(r"cpu|cuda(:[0-9]+)?", value):
            raise ValueError(f"{value!r} is no device that Seqloom works on; use cpu, cuda or cuda:0")
        return value

    @model_validator(mode="after")
    def _tables_fit(self) -> "RunConfig":
        if self.model.tying == "all" and not self.text.shared:
            raise ValueError(
                "model.tying is 'all', but text.shared is false; set text.shared=true for a joint vocabulary, or "
                "model.tying=output"
            )
        return self
