"""The settings of tasks: what a model is trained for."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from seqloom.core.config import Config
from seqloom.core.declaration import DataKindName, Purpose, Reason, TaskKind
from seqloom.nn.bptt.truncation import FULL, Truncation
from seqloom.text.spans import Scheme


@dataclass(frozen=True)
class ModelNeeds:
    """What a model must offer to be trained for a task."""

    attributes: tuple[str, ...]
    use: str
    """What messages call such a model."""
    protocol: str
    """Its name in seqloom/models/protocols.py."""


TRANSLATOR = ModelNeeds(("output", "stepper"), "translator", "TranslationModel")
LANGUAGE_MODEL = ModelNeeds(("output", "stepper"), "language model", "RecurrentLanguageModel")
TEXT_ENCODER = ModelNeeds(("output",), "language model", "RecurrentLanguageModel")


class TaskSettings(Config):
    """The settings of a task, with its declarations."""

    purpose: ClassVar[Purpose | None] = None
    """What a model is for that was trained for the task; None if that follows from the model."""
    model_kind: ClassVar[str | None] = None
    """The kind of model that learns the task, if none is named; None for the default of a run."""
    followed_by: ClassVar[TaskKind | None] = None
    """What a run is trained for that starts from such a model and names no task; None for the same task."""
    data_kind: ClassVar[DataKindName | None] = None
    """What the task is learned from; None for sentence pairs or plain text, whichever the model is for."""
    needs: ClassVar[ModelNeeds] = TRANSLATOR
    """What a model must offer to be trained for the task."""
    unit: ClassVar[str] = "tokens"
    """What its losses count."""


class TranslationConfig(TaskSettings):
    """What a translator is trained for."""

    kind: Literal["translation"] = "translation"
    """Names this task in a config file."""
    label_smoothing: float = Field(0.1, ge=0, lt=1)
    """Share of the target's probability that is spread over all symbols."""
    teacher_forcing: float = Field(1.0, ge=0, le=1)
    """Share of positions at which the decoder reads the right symbol in training; elsewhere it reads its own best guess
    for the step before. Below 1 every batch is first decoded step by step, so training is slower."""
    subword_sampling: float = Field(0.0, ge=0, le=1)
    """Subword regularisation: training sentences are cut into other pieces in each epoch. With text.kind=bpe, the
    probability that a merge is skipped (BPE-dropout; 0.1 is usual), with unigram, the α by which cuts are drawn in
    proportion to P^α (0.2 to 0.5 are usual: smaller is more uniform). 0 always takes the best cut. Dev text and
    translations are never sampled."""
    consistency: float = Field(0.0, ge=0, le=100)
    """Weight of the divergence between two passes over the same batch with different dropout (R-Drop): 1 to 3 are usual
    for few data. 0 makes one pass; with two a step takes about twice as long."""
    dev_lines: int = Field(500, ge=0)
    """Dev sentences translated greedily at each validation, for BLEU, or for exact match or chrF if the
    targets are short; 0 reports the loss alone."""


# --- objectives: what the last layer of a language model is trained for ----------------------------------------------

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


class SampledConfig(Config):
    """The sampled softmax: the label against some drawn symbols, corrected by how likely they were drawn."""

    kind: Literal["sampled"] = "sampled"
    """Names this objective in a config file."""
    samples: Samples = 4096
    """Symbols drawn for each batch, shared by its tokens."""
    power: Power = 1.0
    """Symbols are drawn in proportion to (count + 1)^power: 0 is uniform, 1 unigram."""
    correction: Literal["sampled", "all"] = "sampled"
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
    sharing: Literal["batch", "token"] = "batch"
    """Whether all tokens of a batch are compared with the same noise words, or each token with its own (dearer: some
    25 are usual then)."""

    @model_validator(mode="after")
    def _fits_in_memory(self) -> "NceConfig":
        _require_few(self.samples, self.sharing)
        return self


class NegativeConfig(Config):
    """Negative sampling: the objective of word2vec. It gives vectors, not probabilities."""

    kind: Literal["negative"] = "negative"
    """Names this objective in a config file."""
    samples: Samples = 5
    """Noise words for each token."""
    power: Power = 0.75
    """Noise is drawn in proportion to (count + 1)^power: 0 is uniform, 1 unigram."""
    sharing: Literal["batch", "token"] = "token"
    """Whether all tokens of a batch are compared with the same noise words, or each token with its own."""

    @model_validator(mode="after")
    def _fits_in_memory(self) -> "NegativeConfig":
        _require_few(self.samples, self.sharing)
        return self


ObjectiveConfig = Annotated[FullConfig | SampledConfig | NceConfig | NegativeConfig, Field(discriminator="kind")]
"""The objectives there are."""


def _require_few(samples: int, sharing: str) -> None:
    if sharing == "token" and samples > MAX_SAMPLES_PER_TOKEN:
        raise ValueError(
            f"samples is {samples}, which with sharing=token reads that many rows for every token of a batch; "
            "set samples=25, or sharing=batch"
        )


# --- language modelling -----------------------------------------------------------------------------------------------


class TruncationConfig(Config):
    """Which terms of the gradient through time are left out inside a window, in each layer (`nn.bptt`)."""

    kind: Literal["full", "sliding", "random"] = "full"
    """full: none, so that the gradient ends where the window begins. sliding: every token's loss reaches back equally
    far. random: each step passes its gradient on with the probability keep_rate, scaled so that its mean is the full
    gradient (Tallec & Ollivier, 2017)."""
    steps: int | None = Field(None, ge=1)
    """sliding: steps that the gradient of a token passes through in a layer, its own included; at most task.length."""
    keep_rate: float | None = Field(None, gt=0, le=1)
    """random: the probability that a step passes its gradient on; 0.9 reaches back 10 steps on average."""

    @model_validator(mode="after")
    def _is_sound(self) -> "TruncationConfig":
        for kind, name, value, such_as in (
            ("sliding", "steps", self.steps, 10),
            ("random", "keep_rate", self.keep_rate, 0.9),
        ):
            if self.kind == kind and value is None:
                raise ValueError(f"task.truncation.kind={kind} needs task.truncation.{name}, such as {such_as}")
            if self.kind != kind and value is not None:
                raise ValueError(
                    f"task.truncation.{name}={value} is for task.truncation.kind={kind}, but it is {self.kind}; set "
                    "that, or leave it out"
                )
        return self

    def make(self) -> Truncation:
        """The truncation that the settings name."""
        if self.kind == "full":
            return FULL
        return Truncation(self.kind, window=self.steps or 0, keep_rate=self.keep_rate or 1.0)


class LanguageModellingConfig(TaskSettings):
    """What a language model is trained for."""

    needs: ClassVar[ModelNeeds] = LANGUAGE_MODEL

    kind: Literal["language_modelling"] = "language_modelling"
    """Names this task in a config file."""
    windows: Literal["sequential", "random"] = "sequential"
    """How the text is cut: into rows that are read from left to right with a carried state, or into windows in random
    order that begin with an empty one."""
    offset: Literal["cut", "anywhere"] = "cut"
    """Where random windows begin: at the cuts after one random offset, so that they do not overlap, or anywhere."""
    rows: int = Field(32, ge=1, le=1_000_000)
    """Windows of a batch."""
    length: int = Field(35, ge=1, le=1_000_000)
    """Tokens of a window: gradients go no further back."""
    burn_in: int = Field(0, ge=0)
    """First tokens of a random window that only bring the state to where learning begins: they give no loss."""
    burn_in_gradient: bool = False
    """Whether gradients go back into the burn-in."""
    truncation: TruncationConfig = TruncationConfig()
    """Which terms of the gradient are left out inside a window."""
    objective: ObjectiveConfig = FullConfig()
    """What the last layer is trained for: the full softmax or an approximation of it."""
    dev_tokens: int = Field(0, ge=0)
    """Tokens of the held-out text that each validation reads, from its beginning; 0 reads all."""

    @staticmethod
    def batch_sizes(rows: int, length: int) -> tuple[dict[str, Any], Reason]:
        """The settings of batches of so many rows and tokens of each, and their reason."""
        text = f"{rows} rows of text side by side, {length} tokens of each at a time"
        return {"rows": rows, "length": length}, Reason(("task.rows", "task.length"), text)

    @model_validator(mode="after")
    def _is_sound(self) -> "LanguageModellingConfig":
        if self.burn_in and self.windows == "sequential":
            raise ValueError(
                f"task.burn_in={self.burn_in} fills an empty state, but task.windows=sequential carries the state on; "
                "set task.windows=random, or leave task.burn_in out"
            )
        if self.burn_in >= self.length:
            raise ValueError(
                f"task.burn_in={self.burn_in} leaves nothing to learn of windows with task.length={self.length}"
            )
        if (self.truncation.steps or 0) > self.length:
            raise ValueError(
                f"task.truncation.steps={self.truncation.steps} reaches further than task.length={self.length}, where "
                "a window ends; make task.length larger, or leave task.truncation out"
            )
        return self


class BidirectionalConfig(TaskSettings):
    """What a language model that reads in both directions is trained for."""

    needs: ClassVar[ModelNeeds] = TEXT_ENCODER

    kind: Literal["bidirectional_language_modelling"] = "bidirectional_language_modelling"
    """Names this task in a config file."""
    tokens_per_batch: int = Field(2048, ge=1, le=100_000_000)
    """Places in a batch: sentences × the longest of them, the end mark counted."""
    objective: ObjectiveConfig = FullConfig()
    """What the last layer is trained for: the full softmax or an approximation of it."""
    dev_lines: int = Field(0, ge=0)
    """Held-out sentences that each validation reads, from the first on; 0 reads all."""

    @staticmethod
    def batch_sizes(rows: int, length: int) -> tuple[dict[str, Any], Reason]:
        """The settings of batches of so many tokens, and their reason."""
        text = f"batches of {rows * length:,} tokens, a sentence by itself"
        return {"tokens_per_batch": rows * length}, Reason(("task.tokens_per_batch",), text)


class VariationalConfig(TaskSettings):
    """What a variational autoencoder is trained for."""

    needs: ClassVar[ModelNeeds] = LANGUAGE_MODEL

    kind: Literal["variational_language_modelling"] = "variational_language_modelling"
    """Names this task in a config file."""
    tokens_per_batch: int = Field(2048, ge=1, le=100_000_000)
    """Places in a batch: sentences × the longest of them, the end mark counted."""
    annealing: float = Field(0.5, ge=0, le=1)
    """Share of each cycle in which the weight of the KL term rises from 0 to 1; 0 gives it the weight 1 throughout."""
    cycles: int = Field(1, ge=1, le=1_000)
    """How often the weight of the KL term rises in a run (Fu et al., 2019)."""
    free_nats: float = Field(3.0, ge=0)
    """Nats of KL for each sentence that cost nothing, shared equally by the dimensions of z."""
    word_dropout: float = Field(0.3, ge=0, le=1)
    """Share of the words before the next one that the decoder cannot see, in training, so that it needs z."""
    dev_lines: int = Field(0, ge=0)
    """Held-out sentences that each validation reads, from the first on; 0 reads all."""

    @staticmethod
    def batch_sizes(rows: int, length: int) -> tuple[dict[str, Any], Reason]:
        """The settings of batches of so many tokens, and their reason."""
        text = f"batches of {rows * length:,} tokens, a sentence by itself"
        return {"tokens_per_batch": rows * length}, Reason(("task.tokens_per_batch",), text)


class MaskedLanguageModellingConfig(TaskSettings):
    """What an encoder is trained for: tokens that are hidden from it, from all others."""

    needs: ClassVar[ModelNeeds] = TEXT_ENCODER

    kind: Literal["masked_language_modelling"] = "masked_language_modelling"
    """Names this task in a config file."""
    windows: Literal["packed", "lines"] = "packed"
    """How the text is cut: `packed` into windows of `length` tokens that continue over the ends of lines, without
    padding; `lines` line by line, and a line that is longer than `length` into several parts."""
    length: int = Field(128, ge=8, le=1_000_000)
    """Tokens of a window, its BEGIN and END counted; at most model.longest."""
    tokens_per_batch: int = Field(4096, ge=1, le=100_000_000)
    """Places in a batch: windows × the longest of them."""
    hidden_rate: float = Field(0.15, gt=0, lt=1)
    """Share of the tokens that are hidden and predicted. BEGIN, END and the mask symbol are never among them."""
    mask_rate: float = Field(0.8, ge=0, le=1)
    """Share of the hidden tokens that are read as the mask symbol."""
    random_rate: float = Field(0.1, ge=0, le=1)
    """Share of the hidden tokens that are read as a random symbol. The rest is read as it is, and predicted too."""
    next_sentence: bool = False
    """Whether a window holds two segments, of which the second follows the first in half of the windows and comes from
    another place in the others, and the model learns to tell which: with model.has_pooler and model.has_pair_output."""
    dev_tokens: int = Field(0, ge=0)
    """Tokens of the held-out text that each validation reads, from its beginning; 0 reads all."""

    @staticmethod
    def batch_sizes(rows: int, length: int) -> tuple[dict[str, Any], Reason]:
        """The settings of batches of so many windows and tokens of each, and their reason."""
        length = max(8, length)
        text = f"batches of {rows * length:,} tokens, windows of up to {length}"
        paths = ("task.tokens_per_batch", "task.length")
        return {"tokens_per_batch": rows * length, "length": length}, Reason(paths, text)

    @model_validator(mode="after")
    def _is_sound(self) -> "MaskedLanguageModellingConfig":
        if self.mask_rate + self.random_rate > 1:
            raise ValueError(
                f"task.mask_rate={self.mask_rate:g} and task.random_rate={self.random_rate:g} are shares of the same "
                "tokens and add up to more than 1"
            )
        if self.next_sentence and self.windows == "lines":
            raise ValueError(
                "task.next_sentence=true makes pairs of segments of a text that is read on, and cannot be combined "
                "with task.windows=lines; leave out one of them"
            )
        return self


# --- denoising --------------------------------------------------------------------------------------------------------


class SpansConfig(Config):
    """Span corruption (T5): the spans that sentinels hide are the target."""

    kind: Literal["spans"] = "spans"
    """Names this noise in a config file."""
    hidden_rate: float = Field(0.15, gt=0, lt=1)
    """Share of the tokens that are hidden."""
    mean_span: float = Field(3.0, ge=1, le=1_000)
    """Tokens of a span, on average."""


class InfillingConfig(Config):
    """The noise of BART: each span is read as one mask, sentences are permuted; the whole text is the target."""

    kind: Literal["infilling"] = "infilling"
    """Names this noise in a config file."""
    hidden_rate: float = Field(0.3, gt=0, lt=1)
    """Share of the tokens that are hidden in spans."""
    mean_span: float = Field(3.0, gt=0, le=1_000)
    """Mean of the Poisson distribution of the tokens of a span; a span of none inserts a mask."""
    permute_sentences: bool = True
    """Whether the lines of a window are read in random order; with task.windows=packed."""
    deletion_rate: float = Field(0.0, ge=0, lt=1)
    """Share of the other tokens that are left out."""
    mask_rate: float = Field(0.0, ge=0, lt=1)
    """Share of the other tokens that are read as a mask each."""

    @model_validator(mode="after")
    def _is_sound(self) -> "InfillingConfig":
        if self.deletion_rate + self.mask_rate >= 1:
            raise ValueError(
                f"task.noise.deletion_rate={self.deletion_rate:g} and task.noise.mask_rate={self.mask_rate:g} are "
                "shares of the same tokens and leave none as it is"
            )
        return self


class QuestionAnswerConfig(Config):
    """Words of questions and of their answers are masked, and are the target. A line holds both, with a tab between."""

    kind: Literal["question_answer"] = "question_answer"
    """Names this noise in a config file."""
    hidden_rate: float = Field(0.15, gt=0, lt=1)
    """Share of the words that are hidden, of a question and of an answer, one or more of each."""


NoiseConfig = Annotated[SpansConfig | InfillingConfig | QuestionAnswerConfig, Field(discriminator="kind")]
"""The kinds of noise there are."""


class DenoisingConfig(TaskSettings):
    """What an encoder-decoder model is trained for on plain text: to restore what noise has hidden."""

    purpose: ClassVar[Purpose] = "denoiser"
    followed_by: ClassVar[TaskKind] = "translation"

    kind: Literal["denoising"] = "denoising"
    """Names this task in a config file."""
    noise: NoiseConfig = InfillingConfig()
    """What is hidden, how it is read, and what is written."""
    windows: Literal["lines", "packed"] = "lines"
    """How the text is cut: `lines` line by line, and a line that is longer than `length` into several parts; `packed`
    into windows of `length` tokens that continue over the ends of lines."""
    length: int = Field(256, ge=8, le=1_000_000)
    """Tokens of the longest sample, END not counted."""
    tokens_per_batch: int = Field(4096, ge=1, le=100_000_000)
    """Places in a batch: samples × the longest of them."""
    label_smoothing: float = Field(0.1, ge=0, lt=1)
    """Share of the target's probability that is spread over all symbols."""
    dev_lines: int = Field(0, ge=0)
    """Held-out samples that each validation reads, evenly spread over the held-out text; 0 reads all."""

    @model_validator(mode="after")
    def _is_line_by_line(self) -> "DenoisingConfig":
        if self.noise.kind == "question_answer" and self.windows == "packed":
            raise ValueError(
                "task.noise.kind=question_answer reads a question and its answer in each line and cannot be combined "
                "with task.windows=packed; leave out task.windows"
            )
        return self


# --- classification ---------------------------------------------------------------------------------------------------


class ClassificationConfig(TaskSettings):
    """What a classifier of texts, of pairs of texts, or of images is trained for."""

    purpose: ClassVar[Purpose] = "classifier"
    model_kind: ClassVar[str] = "classifier"
    data_kind: ClassVar[DataKindName] = "labelled text"
    needs: ClassVar[ModelNeeds] = ModelNeeds(("class_scores",), "classifier", "ClassificationModel")
    unit: ClassVar[str] = "texts"

    kind: Literal["classification"] = "classification"
    """Names this task in a config file."""
    labels: tuple[str, ...] = Field((), max_length=100_000)
    """The classes, in the order of the scores of the model. By default the labels of the training data, sorted."""
    is_paired: bool = False
    """Whether a class belongs to two texts. By default as in the training text."""
    label_smoothing: float = Field(0.1, ge=0, lt=1)
    """Share of the probability of the right class that is spread over all classes."""
    tokens_per_batch: int = Field(2048, ge=1, le=100_000_000)
    """Places in a batch: texts × the longest of them, BEGIN and END counted."""
    images_per_batch: int = Field(64, ge=1, le=1_000_000)
    """Images in a batch, for a model that reads images."""

    @field_validator("labels")
    @classmethod
    def _are_different(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for label in value:
            if not label.strip() or any(sign in label for sign in "\t\n\r"):
                raise ValueError(f"the label {label!r} is blank, or has a tab or a line end in it")
            if value.count(label) > 1:
                raise ValueError(f"the label {label!r} is given {value.count(label)} times")
        return value


# --- tagging ----------------------------------------------------------------------------------------------------------


class TaggingConfig(TaskSettings):
    """What a tagger is trained for: the tags of each word, in one column of a file or in several."""

    purpose: ClassVar[Purpose] = "tagger"
    model_kind: ClassVar[str] = "tagger"
    data_kind: ClassVar[DataKindName] = "tagged text"
    needs: ClassVar[ModelNeeds] = ModelNeeds(("words", "outputs"), "tagger", "TaggingModel")
    unit: ClassVar[str] = "tags"

    kind: Literal["tagging"] = "tagging"
    """Names this task in a config file."""
    columns: tuple[str, ...] = Field((), max_length=1_000)
    """The columns that are learned: upos, xpos, feats and lemma of CoNLL-U, or numbers such as 2 and 4, counted from 1,
    of a file with token columns. By default all of these that have different values."""
    tags: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """The tags of each column, in the order of the scores of the model; of lemma, edit scripts that lead from a form to
    its lemma. By default those of the training data, the most frequent first."""
    schemes: dict[str, Scheme] = Field(default_factory=dict)
    """How columns of spans are written: bio, iob1 or bioes. By default as in the training data; other columns have
    none."""
    word_dropout: float = Field(0.25, ge=0, le=100)
    """The a of the probability a / (a + its count) with which a word is read as unknown in training."""
    tokens_per_batch: int = Field(1024, ge=1, le=100_000_000)
    """Places in a batch: sentences × the longest of them."""

    @field_validator("columns")
    @classmethod
    def _are_tagged(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for column in value:
            if column not in ("upos", "xpos", "feats", "lemma") and not column.isdecimal():
                raise ValueError(
                    f"unknown column {column!r}; use upos, xpos, feats or lemma, or the number of a token column"
                )
            if value.count(column) > 1:
                raise ValueError(f"the column {column!r} is given {value.count(column)} times")
        return value


# --- vectors of sentences ---------------------------------------------------------------------------------------------


class ContrastiveConfig(TaskSettings):
    """What an encoder of sentences is trained for: to tell the translation of each sentence from others."""

    purpose: ClassVar[Purpose] = "encoder"
    model_kind: ClassVar[str] = "bert"
    data_kind: ClassVar[DataKindName] = "pairs"
    needs: ClassVar[ModelNeeds] = ModelNeeds(("sentence_vectors",), "sentence encoder", "SentenceModel")
    unit: ClassVar[str] = "pairs"

    kind: Literal["contrastive"] = "contrastive"
    """Names this task in a config file."""
    pairs_per_batch: int = Field(256, ge=2, le=100_000)
    """Sentence pairs in a batch. Each is told from all others of its batch, so that more make the task harder."""
    temperature: float = Field(0.05, gt=0, le=1)
    """Cosines are divided by it before the softmax: a lower one weighs the hardest negatives more."""
    dev_pairs: int = Field(1000, ge=2, le=10_000)
    """Held-out pairs, from the first on, that each validation tells from each other."""


# --- translation without parallel text -------------------------------------------------------------------------------


class UnsupervisedConfig(TaskSettings):
    """What a translator is trained for that has texts of two languages, and no pairs.

    Each batch holds lines of both texts. The model restores them from noise, and translates them from sources that the
    dictionary makes at first, and later the model itself (back-translation).
    """

    data_kind: ClassVar[DataKindName] = "two texts"

    kind: Literal["unsupervised"] = "unsupervised"
    """Names this task in a config file."""
    dictionary: str | None = None
    """A table of words and their translations, from the language of the first text to that of the second, such as
    `seqloom vectors align` writes. Without it, only pieces that both languages share give the model a start."""
    start: Literal["phrases", "words"] = "phrases"
    """What makes the first sources from the dictionary. `words` replaces each word by one of its translations.
    `phrases` counts phrases from lines with such sources, and again, in turns, from the translations of both texts:
    that takes some minutes, and the sources are better."""
    start_rounds: int = Field(3, ge=1, le=100)
    """How often phrases of both directions are counted."""
    start_steps: int = Field(500, ge=0)
    """Steps in which all sources come from this start; without a dictionary the model only restores text in them."""
    mix_steps: int = Field(1500, ge=0)
    """Steps after these over which back-translation takes over: its share of the sources rises to 1, and the weight of
    restoring text falls from `denoising` to `final_denoising`."""
    denoising: float = Field(1.0, ge=0, le=100)
    """Weight of restoring text from noise, at first."""
    final_denoising: float = Field(0.2, ge=0, le=100)
    """The same at the end."""
    drop_rate: float = Field(0.1, ge=0, lt=1)
    """Share of words that the noise drops."""
    blank_rate: float = Field(0.1, ge=0, lt=1)
    """Share of words in whose place the noise puts a blank."""
    shuffle_distance: int = Field(3, ge=0, le=1_000)
    """Places that the noise moves a word at most; 0 keeps the order."""
    back_translation: Literal["greedy", "sample"] = "greedy"
    """How the model translates lines for back-translation."""
    label_smoothing: float = Field(0.1, ge=0, lt=1)
    """Share of the target's probability that is spread over all symbols."""
    dev_lines: int = Field(200, ge=1)
    """Held-out lines of each text that are translated and translated back at each validation, and dev pairs that are
    translated."""
    falls: int = Field(3, ge=0)
    """Validations in a row with a lower round-trip chrF than the one before, after which training ends; 0 continues."""


# --- forecasting ------------------------------------------------------------------------------------------------------


class ForecastingConfig(TaskSettings):
    """What a forecaster of series of numbers is trained for."""

    purpose: ClassVar[Purpose] = "forecaster"
    model_kind: ClassVar[str] = "forecaster"
    data_kind: ClassVar[DataKindName] = "series"
    needs: ClassVar[ModelNeeds] = ModelNeeds(("forecast",), "forecaster", "ForecastingModel")
    unit: ClassVar[str] = "values"

    kind: Literal["forecasting"] = "forecasting"
    """Names this task in a config file."""
    series: tuple[str, ...] = Field((), max_length=1_000_000)
    """Names of the columns, in the order in which the model reads them. By default those of the training data."""
    period: int = Field(0, ge=0)
    """Rows after which the series repeat themselves, for the seasonal forecast that the model is compared with; 0 for
    none. By default found in the training part."""
    loss: Literal["squared", "absolute"] = "squared"
    """What training minimises: the squared error, or the absolute one, which outliers affect less."""
    windows_per_batch: int = Field(32, ge=1, le=1_000_000)
    """Windows of history and future in a batch, each with all columns."""


# --- transcription ----------------------------------------------------------------------------------------------------


class TranscriptionConfig(TaskSettings):
    """What a model is trained for that writes down recordings, handwriting or images of lines."""

    purpose: ClassVar[Purpose] = "transcriber"
    model_kind: ClassVar[str] = "ctc"
    data_kind: ClassVar[DataKindName] = "transcribed samples"
    needs: ClassVar[ModelNeeds] = ModelNeeds(("frame_scores",), "transcriber", "TranscriptionModel")
    unit: ClassVar[str] = "symbols"

    kind: Literal["transcription"] = "transcription"
    """Names this task in a config file."""
    frames_per_batch: int = Field(8_000, ge=1, le=100_000_000)
    """Places in a batch: samples × the frames of the longest of them."""


class CaptioningConfig(TaskSettings):
    """What a model is trained for that describes images."""

    purpose: ClassVar[Purpose] = "captioner"
    model_kind: ClassVar[str] = "captioner"
    data_kind: ClassVar[DataKindName] = "captioned images"
    needs: ClassVar[ModelNeeds] = ModelNeeds(("output", "stepper", "source"), "captioner", "CaptioningModel")

    kind: Literal["captioning"] = "captioning"
    """Names this task in a config file."""
    label_smoothing: float = Field(0.1, ge=0, lt=1)
    """Share of the probability of the right symbol that is spread over all symbols."""
    images_per_batch: int = Field(64, ge=1, le=1_000_000)
    """Images in a batch, each with one of its captions."""
    dev_images: int = Field(200, ge=0)
    """Held-out images described greedily at each validation, for exact match and BLEU; 0 reports the loss alone."""


class SummarisationConfig(TaskSettings):
    """For models that choose sentences of documents as their summaries. It has no settings."""

    purpose: ClassVar[Purpose] = "summariser"
    model_kind: ClassVar[str] = "extraction"
    data_kind: ClassVar[DataKindName] = "documents"
    unit: ClassVar[str] = "documents"

    kind: Literal["summarisation"] = "summarisation"
    """Names this task in a config file."""


class FittingConfig(TaskSettings):
    """For models with a loop of their own, which are fitted to a text as a whole. It has no settings."""

    kind: Literal["fitting"] = "fitting"
    """Names this task in a config file."""
