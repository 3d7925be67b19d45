"""What a model declares about itself, for everything above the models: purpose, task, pieces of text and sizes.

Code above `models` and `classical` reads these declarations. It never asks which model it has.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from seqloom.core.config import Config

Purpose = Literal[
    "translator",
    "language model",
    "word vectors",
    "encoder",
    "classifier",
    "tagger",
    "aligner",
    "denoiser",
    "forecaster",
    "transcriber",
    "summariser",
    "captioner",
]

TaskKind = Literal[
    "translation",
    "unsupervised",
    "language_modelling",
    "bidirectional_language_modelling",
    "variational_language_modelling",
    "masked_language_modelling",
    "denoising",
    "classification",
    "tagging",
    "contrastive",
    "forecasting",
    "transcription",
    "captioning",
    "summarisation",
    "fitting",
]
"""What models are trained for; `fitting` is for models with their own loop."""

DataKindName = Literal[
    "pairs",
    "text",
    "two texts",
    "labelled text",
    "labelled images",
    "tagged text",
    "series",
    "transcribed samples",
    "captioned images",
    "documents",
]
"""What files of a run hold."""

StepperOption = Literal["heads", "shortlist"]
"""Optional keyword arguments of a translation model's `stepper`, which its `stepper_options` name: which head counts as
attention, and the symbols that each sentence may use."""

Pieces = Literal["word", "char", "bpe", "unigram", "published"]
"""What text is split into."""

WordPairs = Literal["single words", "words and phones", "words and tags"]


@dataclass(frozen=True)
class DataFacts:
    """What the sizes of a translator are chosen from."""

    pairs: int
    source_characters: float
    """Mean characters in a source line."""
    target_characters: float
    """Mean characters in a target line."""
    are_unspaced: bool
    """Whether a side is written without spaces between words."""
    are_unsegmented: bool = False
    """Whether nothing separates the words of a side: it is unspaced, and was not segmented by hand."""
    source_words: float = 0.0
    """Mean words in a source line."""
    target_words: float = 0.0
    """Mean words in a target line."""
    alphabet: int = 0
    """Different characters of both sides."""
    words: WordPairs | None = None
    """What the pairs are, if they are words and not sentences."""
    phones: Literal["source", "target"] | None = None
    """The side that spells words in phones, for words and phones."""

    def tokens(self, kind: Pieces, size: int) -> float:
        """About how many tokens the longer side has in all, its ends counted, with so many pieces of this kind."""
        characters = max(self.source_characters, self.target_characters)
        if kind == "char":
            longer = characters
        elif kind == "word" and self.source_words:
            longer = max(self.source_words, self.target_words)
        else:
            # A subword has about four letters, fewer in Chinese and similar scripts. Where characters alone nearly
            # fill the vocabulary, it has no room for longer pieces.
            is_spelled = size < 1.3 * self.alphabet
            longer = characters / (1.2 if is_spelled else 2.0 if self.are_unspaced else 4.0)
        return self.pairs * (longer + 2)


@dataclass(frozen=True)
class TextFacts:
    """What the sizes of a model of plain text are chosen from."""

    lines: int
    characters: int
    """Of the whole text, estimated from a sample."""
    words: int
    """The same for words, split as they will be: marks count as words unless words are separated by spaces."""

    def tokens(self, kind: Pieces) -> int:
        """About how many tokens the text has in pieces of this kind, the end of each line counted."""
        pieces = {"char": self.characters, "word": self.words}
        return pieces.get(kind, self.characters // 4) + self.lines  # a subword has about four letters


@dataclass(frozen=True)
class LabelledFacts:
    """What the sizes of a classifier are chosen from."""

    text: TextFacts
    """All texts; `lines` counts examples."""
    classes: int
    longest: int
    """Characters of the longest example, of both texts of a pair."""


@dataclass(frozen=True)
class TaggedFacts:
    """What the sizes of a tagger are chosen from."""

    sentences: int
    words: int
    tags: tuple[int, ...]
    """Different tags of each column."""


@dataclass(frozen=True)
class ImageFacts:
    """What the sizes of a classifier of images are chosen from."""

    images: int
    classes: int
    size: tuple[int, int]
    """Height and width, in pixels."""
    channels: int


@dataclass(frozen=True)
class SeriesFacts:
    """What the sizes of a forecaster are chosen from."""

    rows: int
    """Rows to train on."""
    dev_rows: int
    """Rows after these, to choose by."""
    columns: int
    period: int | None
    """Rows after which the series repeat themselves; None if they do not."""


@dataclass(frozen=True)
class FrameFacts:
    """What the sizes of a model that transcribes are chosen from."""

    samples: int
    frames: int
    """Of all samples."""
    symbols: int
    """Characters of all transcripts."""
    features: int
    """Numbers of each frame."""
    least_per_symbol: float
    """Frames per symbol of the sample that has fewest, the blanks between equal symbols counted."""


@dataclass(frozen=True)
class CaptionFacts:
    """What the sizes of a model that describes images are chosen from."""

    images: int
    captions: int
    """Of all images."""
    words: int
    """Different words of all captions; characters, where nothing separates words."""
    size: tuple[int, int]
    """Height and width, in pixels."""
    channels: int
    are_unsegmented: bool = False
    """Whether nothing separates the words of captions."""


@dataclass(frozen=True)
class ClassifierInput:
    """How a model that classifies reads a text."""

    longest: int | None = None
    """Symbols of the longest text or pair, BEGIN and END counted; None if the model does not limit them."""
    lowercase: bool = False
    """Whether capital letters become small ones before a text is split into pieces."""
    mixes_lengths: bool = False
    """Whether batches in training are drawn from texts of all lengths: padding costs the model little, and texts of one
    length often have the same labels."""


@dataclass(frozen=True)
class SentenceReading:
    """How a model gives a text one vector."""

    width: int
    """Size of the vector."""
    longest: int | None = None
    """Tokens of the longest text, symbols that the model adds not counted; None if the model does not limit them."""
    prompt: str = ""
    """Text that is read before each text."""
    lowercase: bool = False
    """Whether capital letters become small ones before a text is split into pieces."""


@dataclass(frozen=True)
class Reason:
    """Why some settings were chosen."""

    paths: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class Learning:
    """How a model learns from so much data, where it differs from what suits most models."""

    learning_rate: float
    tokens_per_batch: int
    passes: int
    """Passes over the data."""
    dropout_rate: float
    label_smoothing: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    """How long Adam remembers: rows of rare words have few gradients, and would move little with 0.98."""


@dataclass(frozen=True)
class ModelSizes:
    """The settings of a model that suit some data, with their reasons."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    reasons: tuple[Reason, ...] = ()
    max_learning_rate: float = math.inf
    """The highest rate at which it trains reliably."""
    window: int | None = None
    """Tokens of a window of text, if the model determines them."""
    warmup: int = 100
    """Steps over which the learning rate rises, for a model of plain text."""
    learning: Learning | None = None
    """Of a classifier: how it learns; None as others do."""


class ModelSettings(Config):
    """The settings of a model, with its declarations. The defaults are those of a translation model."""

    kind: str
    """Names the model in a config file."""

    purpose: ClassVar[Purpose | None] = "translator"
    """What the model is for; None if that follows from the task of its run."""
    task_kind: ClassVar[TaskKind] = "translation"
    """What the model is trained for, unless the settings name another task."""
    other_task_kinds: ClassVar[tuple[TaskKind, ...]] = ()
    """What else it can be trained for."""
    pieces: ClassVar[Pieces | None] = None
    """What text is split into by default; None if that is chosen for the data."""
    text_settings: ClassVar[Mapping[str, Any]] = {}
    """How a classifier reads text by default, beside its pieces: settings of the section `text`."""
    is_rounded_by_int8: ClassVar[bool] = False
    """Whether its weights may be stored in eight bits: linear layers do most of its work."""
    reads_windows: ClassVar[bool] = False
    """Whether a text is read in windows of at most `longest` tokens, each by itself: no state is carried."""

    reads_images: ClassVar[bool] = False
    """Whether it reads images, and no text beside them."""
    has_vocabulary: ClassVar[bool] = True
    """Whether it reads or writes symbols of a vocabulary; without one a run has no tokenisers."""

    search_defaults: ClassVar[Mapping[str, Any]] = {}
    """Search settings that suit the model, where they differ from the defaults."""

    student_settings: ClassVar[Mapping[str, Any]] = {}
    """Settings of a small model of the kind that learns from a larger one: most of the time to translate is spent in
    the decoder."""

    trunk: ClassVar[tuple[str, ...]] = ()
    """Beginnings of the names of weights that serve every task: a model for another task can start from them."""
    head: ClassVar[tuple[str, ...]] = ()
    """The same for weights that belong to the labels of a task."""

    @classmethod
    def can_learn(cls, task: str) -> bool:
        """Whether the model can be trained for a task of this kind."""
        return task == cls.task_kind or task in cls.other_task_kinds

    @property
    def is_fitted(self) -> bool:
        """Whether it is fitted to its text as a whole, by a loop of its own, and not trained in steps."""
        return self.task_kind == "fitting"

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

    @property
    def classifier_input(self) -> ClassifierInput:
        """How a text is read to classify it."""
        return ClassifierInput()

    @property
    def sentence_reading(self) -> SentenceReading | None:
        """How a text gets one vector; None if it does not. A model with such vectors is a `SentenceModel`."""
        return None

    @property
    def max_fine_tuning_rate(self) -> float:
        """The highest learning rate at which trained weights are adapted to a new task."""
        return math.inf

    def check_files(self) -> None:
        """Refuse files that the settings name and that cannot be used: a run calls this before anything slow."""

    def extra_pairs(self) -> Sequence[tuple[str, str]]:
        """Source and target texts whose words belong in the vocabularies, beside those of the training text."""
        return ()

    def sizes_for_pairs(self, facts: DataFacts) -> ModelSizes:  # noqa: ARG002
        """Sizes of a model of sentence pairs for this much data; `self` holds the settings that were given."""
        return ModelSizes()

    def sizes_for_text(self, facts: TextFacts, pieces: Pieces) -> ModelSizes:  # noqa: ARG002
        """Sizes of a model of plain text for this much text; `self` holds the settings that were given."""
        return ModelSizes()

    def sizes_for_labels(self, facts: LabelledFacts, pieces: Pieces) -> ModelSizes:  # noqa: ARG002
        """Sizes of a classifier for this much labelled text; `self` holds the settings that were given."""
        return ModelSizes()

    def sizes_for_tags(self, facts: TaggedFacts) -> ModelSizes:  # noqa: ARG002
        """Sizes of a tagger for this much tagged text; `self` holds the settings that were given."""
        return ModelSizes()

    def sizes_for_images(self, facts: ImageFacts) -> ModelSizes:  # noqa: ARG002
        """Sizes of a classifier for these images; `self` holds the settings that were given."""
        return ModelSizes()

    def sizes_for_series(self, facts: SeriesFacts) -> ModelSizes:  # noqa: ARG002
        """Sizes of a forecaster for these series; `self` holds the settings that were given."""
        return ModelSizes()

    def sizes_for_frames(self, facts: FrameFacts) -> ModelSizes:  # noqa: ARG002
        """Sizes of a model that transcribes such samples; `self` holds the settings that were given."""
        return ModelSizes()

    def sizes_for_captions(self, facts: CaptionFacts) -> ModelSizes:  # noqa: ARG002
        """Sizes of a model that describes such images; `self` holds the settings that were given."""
        return ModelSizes()

    def frames_left(self, frames: int) -> int:
        """For how many frames a model that transcribes so many gives symbols: fewer, where some are read as one."""
        return frames

    def classifier_settings(self, classes: int, *, texts: int = 1) -> Mapping[str, Any]:  # noqa: ARG002
        """Settings that make a classifier of the model: a head for so many classes of one text or two, and no other."""
        return {}

    def sentence_settings(self) -> Mapping[str, Any]:
        """Settings that make an encoder of sentences of the model: no heads of other tasks."""
        return {}
