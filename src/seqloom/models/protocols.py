"""What a model must offer to be trained and used, for each purpose."""

from collections.abc import Iterable, Sequence
from typing import Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

from seqloom.core.stepping import Source, SourceImages, Stepper
from seqloom.models.listener import FrameMemory
from seqloom.models.tagger import TaggerInput, TagOutput
from seqloom.nn.embeddings import Embedding
from seqloom.nn.fast.shortlist import Shortlister
from seqloom.nn.outputs import AdaptiveOutput, Output
from seqloom.nn.packing import Packing, Pooling
from seqloom.nn.recurrent import StackState


class TranslationModel(Protocol):
    """What a model must offer to be trained and used as a translator.

    A model whose `stepper` takes further options names them in `stepper_options`.
    """

    output: Output

    def __call__(
        self, source: Source, previous: Int[Tensor, "batch target"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "tokens width"]:
        """Features of the real target positions, sentence after sentence, each from the symbols before it."""
        ...

    def stepper(self, *, attention: bool = False) -> Stepper:
        """The model as a search sees it."""
        ...


@runtime_checkable
class AttendsInOnePass(Protocol):
    """A translation model that computes the attention of given targets in one pass.

    One with `heads` among its `stepper_options` takes this argument here too. The attention of a model without this
    method is found step by step.
    """

    def teacher_forced_attention(
        self, source: Source, previous: Int[Tensor, "batch target"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch target source"] | None:
        """How much each real target position attends to each source position; None without attention."""
        ...


class AttendsByHeads(Protocol):
    """A translation model with several heads of attention in several layers of its decoder."""

    def cross_attention(
        self, source: Source, previous: Int[Tensor, "batch target"], lengths: Int[Tensor, " batch"]
    ) -> Sequence[Float[Tensor, "batch heads target source"]]:
        """How much each target position attends to each source position, by each head of each layer."""
        ...


class SentenceModel(Protocol):
    """What a model must offer to give texts vectors; its settings declare their `sentence_reading`."""

    def sentence_vectors(
        self, ids: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"], *, pooling: Pooling | None = None
    ) -> Float[Tensor, "batch features"]:
        """One vector for each text; texts come without BEGIN and END. By default they are pooled as the model says."""
        ...


class ClassificationModel(Protocol):
    """What a model must offer to be trained and used as a classifier."""

    def class_scores(
        self,
        ids: Int[Tensor, "batch time"],
        lengths: Int[Tensor, " batch"],
        segments: Int[Tensor, "batch time"] | None = None,
    ) -> Float[Tensor, "batch classes"]:
        """A score for each class, before the softmax; texts contain BEGIN and END.

        A pair is BEGIN a END b END, and `segments` are 1 for b and its END, 0 elsewhere.
        """
        ...


@runtime_checkable
class LearnsInParts(Protocol):
    """A classifier of several parts, each of which learns by a loss of its own."""

    def part_scores(
        self,
        ids: Int[Tensor, "batch time"],
        lengths: Int[Tensor, " batch"],
        segments: Int[Tensor, "batch time"] | None = None,
    ) -> Sequence[Float[Tensor, "batch classes"]]:
        """The scores of each part, as `class_scores` reads texts."""
        ...


@runtime_checkable
class CountsTexts(Protocol):
    """A classifier that counts its training texts before the first step."""

    def count_texts(self, texts: Iterable[tuple[tuple[Tensor, ...], Int[Tensor, " batch"]]]) -> None:
        """Count batches of texts, as `class_scores` reads them, with the class of each."""
        ...

    def word_tables(self) -> Sequence[Embedding]:
        """The tables that can begin with word vectors."""
        ...


class ImageClassificationModel(Protocol):
    """The same for images."""

    def class_scores(self, images: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch classes"]:
        """A score for each class, before the softmax; the values of images are scaled."""
        ...


class TaggingModel(Protocol):
    """What a model must offer to be trained and used as a tagger."""

    words: Embedding
    outputs: Sequence[TagOutput]
    """One for each column."""

    def __call__(self, given: TaggerInput) -> tuple[Float[Tensor, "tokens width"], Packing]:
        """The states of all words, sentence after sentence, and their places in the batch."""
        ...


class ForecastingModel(Protocol):
    """What a model must offer to be trained and used as a forecaster; values are in deviations from the mean."""

    def __call__(self, history: Float[Tensor, "rows history columns"]) -> Float[Tensor, "rows outputs columns"]:
        """The values that follow each history, as many as one pass gives."""
        ...

    def forecast(
        self, history: Float[Tensor, "rows history columns"], *, horizon: int
    ) -> Float[Tensor, "rows horizon columns"]:
        """The same for any number of steps."""
        ...


class TranscriptionModel(Protocol):
    """What a model must offer to be trained and used to transcribe frames."""

    def frame_scores(
        self, frames: Float[Tensor, "batch time features"], lengths: Int[Tensor, " batch"]
    ) -> tuple[Float[Tensor, "batch shorter symbols"], Int[Tensor, " batch"]]:
        """A score for each symbol, and for the blank at PAD, before the softmax; and how many frames are left."""
        ...


class CaptioningModel(TranslationModel, Protocol):
    """What a model must offer to be trained and used to describe images: it translates them."""

    def source(self, images: Float[Tensor, "batch channels height width"]) -> SourceImages:
        """Images as the model reads them; their values are scaled."""
        ...


@runtime_checkable
class AttendsToFrames(Protocol):
    """A transcription model with a decoder that attends to the frames, and CTC beside it."""

    output: Output
    ctc_share: float
    """Weight of CTC in the loss."""
    decoding_share: float
    """Weight of CTC in the search."""

    def remember(self, frames: Float[Tensor, "batch time features"], lengths: Int[Tensor, " batch"]) -> FrameMemory:
        """What the decoder attends to."""
        ...

    def blank_scores(self, memory: FrameMemory) -> Float[Tensor, "batch shorter symbols"]:
        """A score for each symbol, and for the blank at PAD, for each frame that is left."""
        ...

    def __call__(
        self, memory: FrameMemory, previous: Int[Tensor, "batch target"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "tokens width"]:
        """Features of the real target positions, transcript after transcript, from the symbols before each."""
        ...

    def stepper(self, memory: FrameMemory) -> Stepper:
        """The decoder as a search sees it, for these samples."""
        ...


@runtime_checkable
class HasLatentVariable(Protocol):
    """A language model that writes each text from a point of a latent space."""

    latent: int

    def prior(self, rows: int, *, seed: int) -> Float[Tensor, "rows latent"]:
        """Random points; each depends on the seed and its row alone."""
        ...

    def points_of(
        self, ids: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch latent"]:
        """The points of given texts, which come without BEGIN and END."""
        ...

    def stepper(self, z: Float[Tensor, "rows latent"] | None = None) -> Stepper:
        """The model as a search sees it, from given points, a row each."""
        ...


class RecurrentLanguageModel(Protocol):
    """What a model must offer to be trained and used as a language model."""

    output: Output | AdaptiveOutput

    def __call__(
        self, previous: Int[Tensor, "rows time"], state: StackState | None
    ) -> tuple[Float[Tensor, "rows time features"], StackState]:
        """Features of every position, each from the symbols before it, and the state after the last one."""
        ...

    def stepper(self) -> Stepper:
        """The model as a search sees it."""
        ...


@runtime_checkable
class TakesShortlist(Protocol):
    """A stepper from which others are made that offer some symbols only, at no cost."""

    def with_shortlist(self, shortlist: Shortlister) -> Stepper:
        """The same stepper, which offers the symbols of these lists."""
        ...
