"""The kinds of data that runs learn from: how files are opened, what is chosen for them, how they are stored.

A task declares its kind (`TaskSettings.data_kind`). A new kind is a module beside this one and an entry in the table.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from seqloom.core.declaration import DataKindName
from seqloom.core.events import Listener
from seqloom.runs import (
    captioning,
    forecasting,
    images,
    labelled,
    plain_text,
    summarisation,
    tagging,
    transcription,
    translation,
    two_texts,
)
from seqloom.runs.config import RunConfig
from seqloom.runs.model_dir import DevResult
from seqloom.runs.sizing import (
    CAPTION_EXTREMES,
    EXTREMES,
    FRAME_EXTREMES,
    IMAGE_EXTREMES,
    LABELLED_EXTREMES,
    SERIES_EXTREMES,
    TAGGED_EXTREMES,
    Sizing,
)
from seqloom.runs.translation import Split
from seqloom.text.formats.segments import Format
from seqloom.text.tokenizer import Tokenizers
from seqloom.training.task import Task


class RunTask(Task[Any], Protocol):
    """A task of a run: weights are chosen by its dev loss."""

    def dev_loss(self, model: nn.Module) -> float:
        """The loss of the held-out data, per count."""
        ...


class RunFiles(Protocol):
    """The files of a run, opened and checked."""

    @property
    def fingerprints(self) -> Mapping[str, str]:
        """Hashes, by which a resume notices changed files."""
        ...

    @property
    def size(self) -> Mapping[str, int]:
        """How much there is, for the record of the run."""
        ...

    def learn_tokenizers(self, config: RunConfig, *, listener: Listener) -> Tokenizers:
        """Learn how to split the training text into pieces; `NoTokenizers` where there is no text."""
        ...

    def encode(self, run: Path, config: RunConfig, *, tokenizers: Tokenizers, listener: Listener) -> None:
        """Store everything below `run`/data."""
        ...


class RunData(Protocol):
    """What `RunFiles.encode` stored: all that a model is trained and measured with."""

    @property
    def tokenizers(self) -> Tokenizers: ...

    def task(self, config: RunConfig, *, device: torch.device, listener: Listener) -> RunTask:
        """What the model is trained for."""
        ...

    def card_values(self, config: RunConfig) -> dict[str, Any]:
        """The training data, for the model card."""
        ...

    def measure(self, loaded: Any, *, listener: Listener) -> DevResult:
        """Scores of a trained model on the dev data."""
        ...

    def sample_texts(self) -> Sequence[Iterable[str]]:
        """A sample of the lines of each side of the training text, by which its languages are recognised later; of a
        text alone that of the target, and none if there is no text."""
        ...


@dataclass(frozen=True)
class Opening:
    """How files are opened."""

    formats: Sequence[Format]
    """File formats of texts."""
    listener: Listener
    split: Split = "sources"
    """How pairs are held out."""


@dataclass(frozen=True)
class DataKind:
    """A kind of data."""

    files: str
    """What to give, for the message that there are no training files."""
    open: Callable[[RunConfig, Opening], RunFiles]
    load: Callable[[Path, RunConfig], RunData]
    """The stored data of a run. A DataError says what is damaged or missing."""
    size: Callable[[RunConfig, Sequence[Path], Opening], Sizing]
    """Settings that suit these training files."""
    general_sizes: Callable[[RunConfig], Sequence[Sizing]]
    """The same for examples from tiny to huge, which show what does not depend on the files."""
    named: Callable[[RunConfig], Sequence[Path]] = lambda _config: ()
    """Further files, which the training and dev files name."""


PAIRS = "--train SOURCE --train TARGET (or one .tsv, .tmx, .po, .xlf or .jsonl)"

DATA_KINDS: Mapping[DataKindName, DataKind] = {
    "pairs": DataKind(
        PAIRS,
        open=lambda config, how: translation.open_pairs(
            config, split=how.split, formats=how.formats, listener=how.listener
        ),
        load=translation.PairData.load,
        size=lambda config, files, how: translation.size_pairs(config, files, formats=how.formats),
        general_sizes=lambda config: [translation.sizes_for(config, facts) for facts in translation.EXAMPLES],
    ),
    "text": DataKind(
        "--train TEXT",
        open=lambda config, how: plain_text.open_texts(config, formats=how.formats, listener=how.listener),
        load=plain_text.TextData.load,
        size=lambda config, files, how: plain_text.size_text(config, files, formats=how.formats),
        general_sizes=lambda config: [plain_text.sizes_for(config, facts) for facts in EXTREMES],
    ),
    "two texts": DataKind(
        PAIRS,
        open=lambda config, how: two_texts.open_two_texts(config, formats=how.formats, listener=how.listener),
        load=two_texts.TwoTextData.load,
        size=lambda config, files, how: two_texts.size_two_texts(config, files, formats=how.formats),
        general_sizes=lambda config: [two_texts.sizes_for(config, facts) for facts in translation.EXAMPLES],
    ),
    "labelled text": DataKind(
        "--train FILE with a label and a text in each line",
        open=lambda config, how: labelled.open_labelled(config, formats=how.formats, listener=how.listener),
        load=labelled.LabelledData.load,
        size=lambda config, files, how: labelled.size_labelled(config, files, formats=how.formats),
        general_sizes=lambda config: [labelled.sizes_for(config, facts) for facts in LABELLED_EXTREMES],
    ),
    "labelled images": DataKind(
        "--train FOLDER with a subfolder of images per class, or --train FILE.npz",
        open=lambda config, how: images.open_images(config, listener=how.listener),
        load=images.ImageData.load,
        size=lambda config, files, how: images.size_images(config, files, formats=how.formats, listener=how.listener),
        general_sizes=lambda config: [images.sizes_for(config, facts) for facts in IMAGE_EXTREMES],
    ),
    "tagged text": DataKind(
        "--train FILE.conllu, or a file with a word and its tags in each line",
        open=lambda config, how: tagging.open_tagged(config, listener=how.listener),
        load=tagging.TaggedData.load,
        size=lambda config, files, how: tagging.size_tagged(config, files, listener=how.listener),
        general_sizes=lambda config: [tagging.sizes_for(config, facts) for facts in TAGGED_EXTREMES],
    ),
    "series": DataKind(
        "--train TABLE, a CSV or TSV file with a column of numbers for each series",
        open=lambda config, how: forecasting.open_series(config, listener=how.listener),
        load=forecasting.SeriesData.load,
        size=lambda config, files, how: forecasting.size_series(config, files),  # noqa: ARG005
        general_sizes=lambda config: [forecasting.sizes_for(config, facts) for facts in SERIES_EXTREMES],
    ),
    "transcribed samples": DataKind(
        "--train TABLE with the name of a .wav, .png or strokes file and its transcript in each line (TSV or JSONL)",
        open=lambda config, how: transcription.open_samples(config, listener=how.listener),
        load=transcription.TranscribedData.load,
        size=lambda config, files, how: transcription.size_samples(config, files, listener=how.listener),
        general_sizes=lambda config: [transcription.sizes_for(config, facts) for facts in FRAME_EXTREMES],
        named=transcription.named_files,
    ),
    "captioned images": DataKind(
        "--train TABLE with the name of an image and its caption in each line (TSV or JSONL)",
        open=lambda config, how: captioning.open_captions(config, listener=how.listener),
        load=captioning.CaptionData.load,
        size=lambda config, files, how: captioning.size_captions(config, files, listener=how.listener),
        general_sizes=lambda config: [captioning.sizes_for(config, facts) for facts in CAPTION_EXTREMES],
    ),
    "documents": DataKind(
        "--train FILE.jsonl with documents and their summaries, as the members source and target",
        open=lambda config, how: summarisation.open_documents(config, listener=how.listener),
        load=summarisation.DocumentData.load,
        size=lambda config, files, how: summarisation.size_documents(config, files),  # noqa: ARG005
        general_sizes=lambda config: [summarisation.sizes_for(config, documents) for documents in (100, 10**6)],
    ),
}


def data_kind(config: RunConfig) -> DataKind:
    """The kind of data that a run learns from."""
    return DATA_KINDS[config.data_kind]
