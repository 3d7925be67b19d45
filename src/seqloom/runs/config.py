"""The settings of a run, the one list of models, and what each of them is trained for."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path, PurePath
from typing import Annotated, Any, ClassVar, Literal, Protocol, TypeGuard, get_args, runtime_checkable

import numpy as np
from pydantic import BaseModel, Field, field_validator, model_validator
from torch import nn

from seqloom.classical.extraction import ExtractionConfig, Rate, RatedDocument
from seqloom.classical.hmm_text import HmmConfig
from seqloom.classical.markov import MarkovConfig
from seqloom.classical.ngram import NGramConfig
from seqloom.classical.word2vec import Word2VecConfig
from seqloom.core.config import Config
from seqloom.core.declaration import DataKindName, ModelSettings, Purpose
from seqloom.core.events import Listener, ignore
from seqloom.core.files import matching_files
from seqloom.core.text_files import OnBad
from seqloom.data.frames import FramesConfig
from seqloom.data.images import ImageConfig
from seqloom.data.plain_text import Unit
from seqloom.data.series import SeriesConfig
from seqloom.metrics.translation import MetricName
from seqloom.models.bert import BertConfig
from seqloom.models.captioner import CaptionerConfig
from seqloom.models.classifier import ClassifierConfig
from seqloom.models.ctc import CtcConfig
from seqloom.models.elmo import ElmoConfig
from seqloom.models.forecaster import ForecasterConfig
from seqloom.models.gpt import GptConfig
from seqloom.models.listener import ListenerConfig
from seqloom.models.rnn_lm import RnnLmConfig
from seqloom.models.seq2seq import Seq2SeqConfig
from seqloom.models.t5 import T5Config
from seqloom.models.tagger import TaggerConfig
from seqloom.models.transformer import TransformerConfig
from seqloom.models.vae import VaeConfig
from seqloom.models.vision import SwinConfig, VitConfig
from seqloom.nn.embeddings import Symbols
from seqloom.search.settings import SearchConfig
from seqloom.smt.aligner import AlignerConfig
from seqloom.smt.channel import ChannelConfig
from seqloom.smt.dictionary import DictionaryConfig
from seqloom.smt.pairs import EncodedPairs
from seqloom.smt.phrases import PhrasesConfig
from seqloom.tasks.settings import (
    BidirectionalConfig,
    CaptioningConfig,
    ClassificationConfig,
    ContrastiveConfig,
    DenoisingConfig,
    FittingConfig,
    ForecastingConfig,
    FullConfig,
    LanguageModellingConfig,
    MaskedLanguageModellingConfig,
    NceConfig,
    SummarisationConfig,
    TaggingConfig,
    TranscriptionConfig,
    TranslationConfig,
    UnsupervisedConfig,
    VariationalConfig,
)
from seqloom.text.formats.columns import formats_with_symbols
from seqloom.text.formats.readers import FORMATS
from seqloom.text.formats.segments import Format
from seqloom.text.formats.turns import formats_with_turns
from seqloom.text.subword_sampling import SAMPLED_KINDS
from seqloom.text.tokenizer import SIDES, EncodedText, TextConfig, Tokenizers
from seqloom.training.settings import TrainingConfig


class OutsideConfig(ModelSettings):
    """A model that is not part of Seqloom: the record of what `seqloom.train(…, model=…)` was given.

    It cannot build the model: nothing is imported by name.
    """

    purpose: ClassVar[None] = None

    kind: Literal["outside"] = "outside"
    """A model that only Python can build."""
    builder: str
    """Import path of the class whose `build` made it."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """The settings of that class, as plain values."""

    @staticmethod
    def of(model: object) -> "OutsideConfig":
        """The record of settings that build a model."""
        return OutsideConfig(builder=_import_path(type(model)), settings=_plain_fields(model))

    def in_words(self) -> str:
        """As it is written in Python."""
        return f"{self.builder}({', '.join(f'{name}={value!r}' for name, value in self.settings.items())})"


def _by_kind(union: Any) -> dict[str, Any]:
    """The classes of a union by the kinds that name them in a config file."""
    return {str(section.model_fields["kind"].default): section for section in get_args(get_args(union)[0])}


def _import_path(thing: Any) -> str:
    return f"{thing.__module__}.{thing.__qualname__}"


def _plain_fields(model: object) -> dict[str, Any]:
    """The fields of a settings object as values that JSON has."""
    if isinstance(model, BaseModel):
        names = list(type(model).model_fields)
    elif is_dataclass(model):
        names = [field.name for field in fields(model)]
    else:
        names = [name for name in getattr(model, "__dict__", {}) if not name.startswith("_")]
    return {name: _plain(getattr(model, name)) for name in names}


def _plain(value: Any) -> Any:
    """A value as JSON has it; of anything else, its import path, which is the same in every process."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, set | frozenset):  # whose order differs from process to process
        return sorted((_plain(part) for part in value), key=repr)
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, BaseModel) or (is_dataclass(value) and not isinstance(value, type)):
        return {"class": _import_path(type(value)), **_plain_fields(value)}
    return _import_path(value if hasattr(value, "__qualname__") else type(value))


ModelConfig = Annotated[
    TransformerConfig
    | T5Config
    | Seq2SeqConfig
    | RnnLmConfig
    | GptConfig
    | ElmoConfig
    | VaeConfig
    | BertConfig
    | ClassifierConfig
    | TaggerConfig
    | VitConfig
    | SwinConfig
    | ForecasterConfig
    | CtcConfig
    | ListenerConfig
    | CaptionerConfig
    | NGramConfig
    | MarkovConfig
    | HmmConfig
    | Word2VecConfig
    | ExtractionConfig
    | DictionaryConfig
    | AlignerConfig
    | ChannelConfig
    | PhrasesConfig
    | OutsideConfig,
    Field(discriminator="kind"),
]
"""Every model there is. A new one is a file in `models/`, `classical/` or `smt/` and a word here."""

AnyTask = (
    TranslationConfig
    | UnsupervisedConfig
    | LanguageModellingConfig
    | BidirectionalConfig
    | VariationalConfig
    | MaskedLanguageModellingConfig
    | DenoisingConfig
    | ClassificationConfig
    | TaggingConfig
    | ContrastiveConfig
    | ForecastingConfig
    | TranscriptionConfig
    | CaptioningConfig
    | SummarisationConfig
    | FittingConfig
)
TaskConfig = Annotated[AnyTask, Field(discriminator="kind")]
"""Every task there is."""

MODELS: Mapping[str, type[ModelSettings]] = _by_kind(ModelConfig)
TASKS: Mapping[str, type[AnyTask]] = _by_kind(TaskConfig)

SAMPLING: Mapping[str, Any] = {"method": "sample", "length_factor": 0.0, "length_constant": 200}
"""The search of a language model by default: texts are sampled, and no source determines their length."""

REPLYING: Mapping[str, Any] = {"method": "sample", "top_p": 0.9}
"""The search of replies by default. The most probable reply fits every turn, so a beam gives the same few ones all the
time; the nucleus leaves out what is improbable (Holtzman et al., 2020)."""


@runtime_checkable
class BuildsModel(Protocol):
    """The settings of a model for the trainer, of this package or from outside: all they need is to build it."""

    def build(self, symbols: Symbols, *, seed: int) -> nn.Module:
        """The model for these vocabularies with fresh weights drawn from `seed`."""
        ...


class FittedModel(Protocol):
    """A model that was fitted by a loop of its own."""

    def arrays(self) -> Mapping[str, np.ndarray]:
        """Everything it consists of."""
        ...


@runtime_checkable
class FitsText(Protocol):
    """The settings of a model that is fitted to a text as a whole, by a loop of its own."""

    def fit(self, text: EncodedText, *, seed: int, listener: Listener = ignore) -> FittedModel:
        """The model of a text."""
        ...

    def restore(self, arrays: Mapping[str, np.ndarray], vocabulary: Sequence[str]) -> FittedModel:
        """The model whose `arrays` these are."""
        ...

    def describe(self, arrays: Mapping[str, np.ndarray]) -> Mapping[str, str]:
        """What the arrays hold, in words by a label."""
        ...


@runtime_checkable
class FitsPairs(Protocol):
    """The settings of a model that is fitted to sentence pairs as a whole, by a loop of its own."""

    def fit_pairs(self, pairs: EncodedPairs, *, seed: int, listener: Listener = ignore) -> FittedModel:
        """The model of sentence pairs; that of a translator is a `FittedTranslator`."""
        ...

    def restore_pairs(self, arrays: Mapping[str, np.ndarray], tokenizers: Tokenizers) -> FittedModel:
        """The model whose `arrays` these are."""
        ...

    def describe(self, arrays: Mapping[str, np.ndarray]) -> Mapping[str, str]:
        """What the arrays hold, in words by a label."""
        ...


@runtime_checkable
class FitsDocuments(Protocol):
    """The settings of a model that is fitted to documents with their summaries, by a loop of its own."""

    def fit_documents(
        self, documents: Sequence[RatedDocument], rate: Rate, *, listener: Listener = ignore
    ) -> FittedModel:
        """The model of documents; `rate` rates a text as the summary of one of them."""
        ...

    def restore_documents(self, arrays: Mapping[str, np.ndarray]) -> FittedModel:
        """The model whose `arrays` these are."""
        ...

    def describe(self, arrays: Mapping[str, np.ndarray]) -> Mapping[str, str]:
        """What the arrays hold, in words by a label."""
        ...


def is_own(model: object) -> TypeGuard[ModelSettings]:
    """Whether settings are those of a model of this package; a subclass of them may build another model."""
    return type(model) in MODELS.values() and not isinstance(model, OutsideConfig)


def _task_of(earlier: dict[str, Any]) -> AnyTask:
    """The task of the model, which was read before."""
    model = earlier.get("model")
    return TranslationConfig() if model is None else TASKS[model.task_kind]()


def _following_turns(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The given settings of a translator; if its pairs are turns, with the search, task and metrics of replies."""
    sections = {name: values.get(name, {}) for name in ("data", "search", "task", "evaluation")}
    if not all(isinstance(section, Mapping) for section in sections.values()) or sections["data"].get("unit") != "turn":
        return values
    is_own = sections["search"].get("mode", "seqloom") == "seqloom"
    follows: dict[str, Mapping[str, Any]] = {
        "search": REPLYING if is_own else {},
        "task": {"dev_lines": 0} if sections["task"].get("kind", "translation") == "translation" else {},
        "evaluation": {"metrics": ["chrf", "distinct-1", "distinct-2"]},
    }
    return {**values, **{name: {**chosen, **sections[name]} for name, chosen in follows.items()}}


class DataConfig(Config):
    """The text a model learns from."""

    train: tuple[str, ...] = ()
    """Training files. Sentence pairs: source and target (several pairs one after another), or files that hold both:
    TSV, JSONL, TMX, PO, XLIFF. Language models and word vectors: texts, or such files, of which the side in the
    language of `data.target` is read. Classification: labelled texts, as TSV, JSONL, `__label__X text` or `X text`.
    Tagging: CoNLL-U, or a word and its tags in each line, with blank lines between sentences.
    Plain, .gz, .xz or .zst; a name may have * in it, or be that of a folder. Images: a folder with one subfolder per
    class, or an .npz file with the arrays images and labels. Series of numbers: one table, CSV or TSV. Transcription:
    tables that name .wav, .png or strokes files with their transcripts, as TSV or JSONL. Captions: tables that name
    images with their captions, likewise. Summarisation: documents with their summaries, as JSONL or TSV."""
    dev: tuple[str, ...] = ()
    """Held-out files for validation, in the same form. Without any, a share of the training text is held out."""
    held_out: int = Field(1000, ge=1)
    """Pairs, labelled texts, images, documents or transcribed samples drawn from the training files, or lines at the
    end of a text, that are held out for validation if there are no dev files; at most a tenth of them. Of series of
    numbers, rows at the end; by default a fifth of them."""
    source: str | None = None
    """Source language, as a code such as de; by default the ending of the file name."""
    target: str | None = None
    """Target language, likewise; that of a text which is not translated."""
    encoding: str = "utf-8"
    """Character encoding of the files; `--encoding` sets it too."""
    on_bad_utf8: OnBad = "error"
    """How invalid bytes in that encoding are handled: error, replace (U+FFFD for each) or skip (the line is
    read as empty, so that its pair is dropped); `--on-bad-utf8` sets it too."""
    symbols: tuple[int | str, ...] = ()
    """Of pairs in a table: further columns, counted from 1, or members of JSONL records, that are read as whole symbols
    beside the source. `[3]` of lemma, form and features (V;PST) learns the form from the letters of the lemma and the
    features. The other two columns are source and target."""
    label_column: int | None = Field(None, ge=1, le=3)
    """Classification: the column of the label in a table, counted from 1; by default the one with few different
    values."""
    images: ImageConfig = ImageConfig()
    """Of models that read images: how these are read and, in training, varied."""
    series: SeriesConfig = SeriesConfig()
    """Of forecasters: how their table of numbers is read."""
    frames: FramesConfig = FramesConfig()
    """Of models that transcribe: how recordings, strokes or images become frames and, in training, are varied."""
    unit: Literal["line", "paragraph", "turn"] = "line"
    """The unit of a text that ends with an end mark: a line, or (paragraph) all lines up to an empty one. Of
    translators: line, or turn, which reads plays and chats. Each turn is then the reply to what was said before it, in
    the same language; names of speakers are left out. Held out is the end of the text."""
    history: int = Field(1, ge=1, le=100)
    """With unit=turn: the turns before a reply that are read, joined by " || ". Fewer follow the beginning of a scene
    or conversation."""
    longest: int = Field(256, ge=2, le=1_000_000)
    """Tokens on a side, the end mark counted, beyond which a training pair is dropped (and counted)."""
    tokens_per_batch: int = Field(4096, ge=1, le=100_000_000)
    """Places in a batch of pairs: sentences × the longest of them, on the longer side."""

    monolingual: tuple[str, ...] = ()
    """Text of the target language, in any format that can be read, for back-translation: a reverse model makes sources
    for its lines, and the translator learns from these pairs too."""
    synthetic_share: float = Field(0.5, gt=0, lt=1)
    """Share of back-translated pairs among those of an epoch, about: genuine pairs are repeated so that they make up
    the rest. They are never dropped."""
    reverse: Literal["same", "phrases"] = "same"
    """The reverse model: of the kind of the translator itself, or phrases, which learn much more from few pairs. Left
    open: phrases for fewer than 30,000 pairs of languages that write spaces between words."""
    back_translation: Literal["beam", "greedy", "sample"] = "beam"
    """How the reverse model translates the text: with the beam of its search settings, greedily, or by sampling."""

    learn_pieces_from: int = Field(1_000_000, ge=200_000)
    """Lines of pairs, those of both sides counted, from which subword pieces are learned. Of more, blocks of lines are
    drawn that make up so many."""
    tokenizers_from: str | None = None
    """A model whose tokenisers are used, instead of learning new ones from this text: for models that decide together
    (`--with`, `--fuse`) or are mixed. A model of plain text takes those of a translator's target side. Or a vocabulary
    file, a word per line with or without its count: then text.kind is word and text.segmentation spaces."""
    workers: int | None = Field(None, ge=1, le=1_000)
    """Processes that encode pairs: by default one for each processor, if there are many pairs. The number changes
    only the time it takes."""

    @property
    def text_unit(self) -> Unit:
        """The unit of a text that is not read in turns."""
        return "line" if self.unit == "turn" else self.unit

    def formats(self, formats: Sequence[Format] = FORMATS) -> Sequence[Format]:
        """The formats of pairs, as these settings have them read."""
        return formats_with_symbols(self.symbols, formats) if self.symbols else formats

    def training_formats(self, formats: Sequence[Format] = FORMATS) -> Sequence[Format]:
        """The same of training files: with unit=turn these are plays and chats, of which pairs are made."""
        if self.unit != "turn":
            return self.formats(formats)
        paths = [path for name in (*self.train, *self.dev) for path in matching_files(Path(name))]
        return formats_with_turns(self.history, paths=paths, on_bad=self.on_bad_utf8, formats=formats)

    @field_validator("symbols")
    @classmethod
    def _are_columns(cls, value: tuple[int | str, ...]) -> tuple[int | str, ...]:
        places = [each for each in value if isinstance(each, int)]
        if len(set(value)) < len(value) or any(place < 1 for place in places) or len({*map(type, value)}) > 1:
            raise ValueError(f"{list(value)} must be different columns, counted from 1, or names of members")
        if "source" in value or "target" in value or (places and max(places) > len(places) + 2):
            raise ValueError(f"{list(value)} leaves other columns than two: a source and a target")
        return value

    @field_validator("encoding")
    @classmethod
    def _known(cls, value: str) -> str:
        try:
            "".encode(value)
        except (LookupError, ValueError):
            raise ValueError(f"unknown encoding {value!r}; try utf-8, latin-1 or utf-16") from None
        return value


class EvaluationConfig(Config):
    """How translations are scored."""

    resamples: int = Field(1000, ge=40, le=100_000)
    """Bootstrap resamples behind each interval."""
    lowercase: bool = False
    """Whether BLEU, chrF, exact match and error rates ignore case."""
    metrics: tuple[MetricName, ...] = ()
    """The metrics of translations. None are chosen by what the references are: sentences (BLEU, chrF), words (exact
    match), phones (exact match, PER), summaries (ROUGE) or parses (bracket F1)."""


class RunConfig(Config):
    """Everything that determines a run."""

    seed: int = Field(1, ge=0)
    """The seed of every random number of the run."""
    device: str = "cpu"
    """Device: cpu, cuda or cuda:1."""
    data: DataConfig = DataConfig()
    """The text a model learns from."""
    text: TextConfig = TextConfig()
    """How text is normalised and split into pieces."""
    model: ModelConfig = TransformerConfig()
    """The model and its sizes."""
    task: TaskConfig = Field(default_factory=_task_of)
    """What it is trained for. Its kind follows from that of the model."""
    training: TrainingConfig = TrainingConfig()
    """How it is trained."""
    search: SearchConfig = SearchConfig()
    """How translations or texts are searched."""
    evaluation: EvaluationConfig = EvaluationConfig()
    """How translations are scored."""

    @field_validator("device")
    @classmethod
    def _is_supported(cls, value: str) -> str:
        if not re.fullmatch(r"cpu|cuda(:[0-9]+)?", value):
            raise ValueError(f"unsupported device {value!r}; use cpu, cuda or cuda:0")
        return value

    @classmethod
    def follow(cls, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """The given settings, with the task of the model unless one is named, and the search for that task."""
        model, task = values.get("model"), values.get("task", {})
        if not isinstance(task, Mapping):
            return values
        learned = TASKS.get(task["kind"]) if isinstance(task.get("kind"), str) else None
        if learned is not None and learned.model_kind and isinstance(model, Mapping | None):
            model = {"kind": learned.model_kind, **(model or {})}
            values = {**values, "model": model}
        kind = model.get("kind") if isinstance(model, Mapping) else None
        # An unknown kind is reported when the model's section is read.
        declared = MODELS.get(kind, ModelSettings) if isinstance(kind, str) else ModelSettings
        text = values.get("text")
        has_sides = isinstance(text, Mapping) and bool(text.get("source") or text.get("target"))
        if has_sides and isinstance(model, Mapping | None) and declared.task_kind == "translation":
            # Sides that are cut their own way have vocabularies of their own.
            tied = declared if kind is not None else TransformerConfig
            if "tying" in tied.model_fields:
                model = {"tying": "output", **(model or {})}
                values = {**values, "model": model}
        is_own_task = task.get("kind", declared.task_kind) == declared.task_kind
        if declared.reads_windows and is_own_task and isinstance(model, Mapping):
            longest = model.get("longest", declared.model_fields["longest"].default)
            task = {"windows": "random", "length": longest, **task}
            values = {**values, "task": task}
        if isinstance(model, Mapping) and task.get("kind", declared.task_kind) == "masked_language_modelling":
            length, has_pairs = task.get("length"), task.get("next_sentence") is True
            follows = {"longest": length} if type(length) is int else {}
            follows |= {"has_pooler": True, "has_pair_output": True} if has_pairs else {}
            values = {**values, "model": {**follows, **model}}
        if declared.task_kind == "translation":
            values = _following_turns(values)
            task = values.get("task", {})
        if "kind" in task:
            return values
        followed: dict[str, Any] = {**values, "task": {"kind": declared.task_kind, **task}}
        search = values.get("search", {})
        if not isinstance(search, Mapping):
            return followed
        if declared.purpose in ("translator", "aligner", "captioner", None):
            followed["search"] = {**declared.search_defaults, **search}
        else:
            # The search of another program is a beam search.
            is_own = search.get("mode", "seqloom") == "seqloom"
            followed["search"] = {**SAMPLING, **({} if is_own else {"method": "beam"}), **search}
        return followed

    @property
    def purpose(self) -> Purpose:
        """What the model is for, as its task or the model declares; for others it follows from the task."""
        declared = self.task.purpose or self.model.purpose
        return declared or ("translator" if isinstance(self.task, TranslationConfig) else "language model")

    @property
    def data_kind(self) -> DataKindName:
        """What the files of the run hold, as its task declares; for others it follows from what the model is for."""
        if self.task.data_kind == "labelled text" and self.model.reads_images:
            return "labelled images"
        return self.task.data_kind or ("pairs" if self.purpose in ("translator", "aligner") else "text")

    @property
    def reads_pairs(self) -> bool:
        """Whether the model learns from two languages, and not from a text of one."""
        return self.data_kind in ("pairs", "two texts")

    @property
    def unit(self) -> str:
        """What its losses count."""
        return "images" if self.data_kind == "labelled images" else self.task.unit

    @model_validator(mode="after")
    def _task_fits(self) -> "RunConfig":
        if isinstance(self.model, OutsideConfig) and not isinstance(self.task, FittingConfig):
            return self  # what it was built for is checked when it is built
        if not self.model.can_learn(self.task.kind):
            own = [kind for kind, model in MODELS.items() if model.purpose is not None]
            kinds = [kind for kind in own if MODELS[kind].can_learn(self.task.kind)]
            wanted = " or ".join([self.model.task_kind, *self.model.other_task_kinds])
            raise ValueError(
                f"task.kind is {self.task.kind}, but a model of kind {self.model.kind} is made for {wanted}; leave "
                f"task.kind out, or choose another model: model.kind={' or '.join(kinds)}"
            )
        return self

    @model_validator(mode="after")
    def _classes_fit(self) -> "RunConfig":
        if not isinstance(self.task, ClassificationConfig) or not self.task.labels:
            return self  # labels are found in the data
        labels, classes = self.task.labels, getattr(self.model, "classes", None)
        if classes and classes != len(labels):
            shown = ", ".join(map(repr, labels[:5])) + (", …" if len(labels) > 5 else "")
            raise ValueError(
                f"model.classes={classes}, but task.labels has {len(labels)} ({shown}); leave out model.classes, which "
                "follows from the labels"
            )
        return self

    @model_validator(mode="after")
    def _tags_fit(self) -> "RunConfig":
        if not isinstance(self.task, TaggingConfig) or not self.task.tags:
            return self  # tags are found in the data
        if missing := [column for column in self.task.columns if not self.task.tags.get(column)]:
            raise ValueError(f"task.tags has no tags of column {missing[0]}, which task.columns names")
        sizes, outputs = [len(self.task.tags[each]) for each in self.task.columns], getattr(self.model, "outputs", ())
        if outputs and list(outputs) != sizes:
            raise ValueError(
                f"model.outputs={list(outputs)}, but the columns {', '.join(self.task.columns)} have {sizes} tags; "
                "leave out model.outputs, which follows from the tags"
            )
        return self

    @model_validator(mode="after")
    def _parts_fit(self) -> "RunConfig":
        kind = self.task.truncation.kind if isinstance(self.task, LanguageModellingConfig) else "full"
        if kind != "full" and self.training.parallel == "sharded":
            raise ValueError(
                f"task.truncation.kind={kind} cannot be combined with training.parallel=sharded; set "
                "training.parallel=replicated"
            )
        self._check_windows()
        rate = self.task.subword_sampling if isinstance(self.task, TranslationConfig) else 0.0
        kinds = [self.text.side(side).kind for side in SIDES]
        whole = [kind for kind in kinds if kind not in SAMPLED_KINDS]
        if rate and whole:
            raise ValueError(
                f"task.subword_sampling={rate:g} draws other cuts of bpe or unigram pieces, and text.kind is "
                f"{whole[0]}; leave it out, or set text.kind=bpe in a new model"
            )
        if not self.reads_pairs and (self.text.source or self.text.target):
            raise ValueError(
                f"text.{'source' if self.text.source else 'target'} is for sentence pairs, and a run with "
                f"task.kind={self.task.kind} reads a text of one language; set text.kind and the like instead"
            )
        if self.data.monolingual and (self.model.is_fitted or not isinstance(self.task, TranslationConfig)):
            raise ValueError(
                f"data.monolingual={list(self.data.monolingual)} is for translators that are trained in steps on "
                f"pairs, not for model.kind={self.model.kind} with task.kind={self.task.kind}; leave it out"
            )
        if self.data.symbols:
            self._check_symbols(rate)
        if self.data.unit == "turn":
            self._check_turns()
        if self.data.reverse == "phrases" and self.data.back_translation != "beam":
            raise ValueError(
                f"data.back_translation={self.data.back_translation} cannot be combined with data.reverse=phrases, "
                "which has a search of its own; set data.reverse=same"
            )
        own, remedy = "text.shared is false", "set text.shared=true"
        if self.text.shared and not self.text.is_joint:
            own, remedy = "text.source and text.target cut each side its own way", "leave them out"
        if self.task.kind == "contrastive" and not self.text.is_joint:
            raise ValueError(
                f"task.kind=contrastive has one encoder for both sides, but {own}; {remedy} for a joint vocabulary"
            )
        can_copy = getattr(self.model, "copy", False) is True
        if can_copy and isinstance(self.task, TranslationConfig) and self.task.consistency:
            raise ValueError(
                f"task.consistency={self.task.consistency:g} is not supported with model.copy; leave one of them out"
            )
        if can_copy and not self.text.is_joint:
            raise ValueError(
                f"model.copy=true copies symbols of the source into the target, but {own}; {remedy} for a joint "
                "vocabulary"
            )
        if self.model.needs_shared_vocabulary and not self.text.is_joint:
            tying = getattr(self.model, "tying", "all")
            raise ValueError(
                f"model.tying is '{tying}', but {own}; {remedy} for a joint vocabulary, or model.tying=output"
            )
        return self

    def _check_symbols(self, subword_sampling: float) -> None:
        """What symbols beside the source need of the run."""
        shown = f"data.symbols=[{', '.join(map(str, self.data.symbols))}]"
        if self.model.is_fitted or not isinstance(self.task, TranslationConfig):
            raise ValueError(
                f"{shown} is for translators that are trained in steps on pairs, not for model.kind={self.model.kind} "
                f"with task.kind={self.task.kind}; leave it out"
            )
        if subword_sampling:
            raise ValueError(
                f"{shown} cannot be combined with task.subword_sampling={subword_sampling:g}, which cuts the text "
                "again; set task.subword_sampling=0"
            )
        if self.data.monolingual:
            raise ValueError(
                f"{shown} cannot be combined with data.monolingual, whose lines have no symbols; leave one of them out"
            )

    def _check_turns(self) -> None:
        """What turns need of the run."""
        if self.data_kind != "pairs":
            raise ValueError(
                "data.unit=turn makes pairs of turns for translators, not for "
                f"model.kind={self.model.kind} with task.kind={self.task.kind}; leave it out"
            )
        data = self.data
        for name, is_set in (("data.symbols", bool(data.symbols)), ("data.monolingual", bool(data.monolingual))):
            if is_set:
                raise ValueError(f"data.unit=turn cannot be combined with {name}; leave one of them out")
        if data.source is not None and data.target is not None and data.source != data.target:
            raise ValueError(
                f"data.unit=turn has the same language on both sides, not {data.source} and {data.target}; give "
                f"data.target={data.target} alone"
            )

    def _check_windows(self) -> None:
        """What a model that carries no state needs of its task."""
        task = self.task
        if isinstance(task, MaskedLanguageModellingConfig) and task.next_sentence:
            self._check_pairs()
        if not (self.model.reads_windows and isinstance(task, LanguageModellingConfig)):
            return
        kind, longest = self.model.kind, getattr(self.model, "longest", task.length)
        if task.windows == "sequential":
            raise ValueError(
                f"task.windows=sequential carries a state from window to window, and a model of kind {kind} has none; "
                "set task.windows=random"
            )
        if task.length > longest:
            raise ValueError(
                f"task.length={task.length} is longer than model.longest={longest}, the positions of the model; make "
                "one of them fit"
            )
        if task.burn_in and not task.burn_in_gradient:
            raise ValueError(
                f"task.burn_in={task.burn_in} fills a state, and a model of kind {kind} has none; set "
                "task.burn_in_gradient=true, with which these tokens are read and give no loss"
            )
        if task.truncation.kind != "full":
            raise ValueError(
                f"task.truncation.kind={task.truncation.kind} is for recurrent models, not for model.kind={kind}; "
                "leave task.truncation out"
            )

    def _check_pairs(self) -> None:
        """What pairs of segments need of the model."""
        if not (getattr(self.model, "has_pair_output", True) and getattr(self.model, "segments", 2) >= 2):
            raise ValueError(
                "task.next_sentence=true needs a model with two segments and an output for pairs; set "
                "model.segments=2 and model.has_pair_output=true, or leave out task.next_sentence"
            )

    @model_validator(mode="after")
    def _objective_fits(self) -> "RunConfig":
        """What the task needs of the last layer, which belongs to the model."""
        if not isinstance(self.task, LanguageModellingConfig | BidirectionalConfig):
            return self
        model, objective = self.model, self.task.objective
        if not model.has_output_table and not isinstance(objective, FullConfig):
            raise ValueError(
                f"task.objective.kind={objective.kind} draws rows of one output table, and model.output=adaptive has "
                "none; set task.objective.kind=full, or model.output=full"
            )
        if not model.has_output_table and isinstance(objective, FullConfig) and objective.smoothing:
            raise ValueError(
                f"task.objective.smoothing={objective.smoothing:g} spreads probability over all symbols, which "
                "model.output=adaptive does not compute; set task.objective.smoothing=0, or model.output=full"
            )
        learns_log_z = getattr(model, "learns_log_z", None)
        if isinstance(objective, NceConfig) and objective.log_z == "learned" and not learns_log_z:
            remedy = "model.kind=rnn_lm" if learns_log_z is None else "model.learns_log_z=true"
            raise ValueError(
                f"task.objective.log_z=learned needs a model with a normaliser to learn; set {remedy} as well, or "
                "task.objective.log_z=fixed"
            )
        return self

    @model_validator(mode="after")
    def _search_fits(self) -> "RunConfig":
        """What the search needs of the model. A run is scored with these settings after its last step."""
        model, search = self.model, self.search
        if model.is_fitted and self.purpose == "translator" and (problem := search.problem_of_fitted(model.kind)):
            raise ValueError(problem)
        text = self.text
        if search.brackets and not text.has_joint_words:
            raise ValueError(
                "search.brackets=true needs a joint vocabulary of whole words: text.kind=word, "
                f"text.segmentation=spaces and text.shared=true, and here are {text.kind}, {text.segmentation} and "
                f"{str(text.is_joint).lower()}; leave it out, or train with these"
            )
        if model.has_attention is None:
            return self
        if model.attention_heads is None and search.heads not in ("mean", "max"):
            raise ValueError(
                f"search.heads={search.heads} selects a head of a Transformer, but a model of kind {model.kind} has "
                "one attention; leave search.heads out"
            )
        for name, is_used in (("coverage", search.coverage > 0), ("unknown", search.unknown == "copy")):
            if is_used and not model.has_attention:
                raise ValueError(
                    f"search.{name}={getattr(search, name)} needs attention to the source, but model.attention is "
                    f"none; leave search.{name} out, or train with model.attention=bilinear"
                )
        return self
