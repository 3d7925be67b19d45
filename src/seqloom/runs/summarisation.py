"""Documents with their summaries: opened, split, stored, and summaries measured by ROUGE beside the first sentences.

run/data/train.jsonl    the training documents
run/data/dev.jsonl      the held-out ones
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn, cast

import numpy as np
import torch

from seqloom.classical.extraction import Extractor, RatedDocument
from seqloom.core.declaration import Reason
from seqloom.core.errors import DataError, Problem
from seqloom.core.events import Event, Listener, notice
from seqloom.core.files import write_atomically
from seqloom.core.seeds import seed_for
from seqloom.data.documents import Document, fingerprint, read_documents
from seqloom.metrics.rouge import Rouge, words_for
from seqloom.metrics.scoring import Bootstrap, CorpusScore
from seqloom.metrics.translation import MetricName, score_named
from seqloom.runs.config import RunConfig
from seqloom.runs.loading import Loaded
from seqloom.runs.model_dir import DevResult
from seqloom.runs.sizing import Sizing
from seqloom.text.tokenizer import NoTokenizers, Tokenizers

METRICS: tuple[MetricName, ...] = ("rouge-1", "rouge-2", "rouge-l")
"""The metrics of summaries."""


def size_documents(config: RunConfig, files: Sequence[Path]) -> Sizing:
    """Settings for the documents in these files."""
    return sizes_for(config, len(_read(config, [str(file) for file in files])))


def sizes_for(config: RunConfig, documents: int) -> Sizing:
    """Settings for so many documents, which do not depend on their number."""
    reason = Reason(("model.kind",), "a linear model that chooses sentences, fitted in seconds")
    return Sizing({"model": {"kind": config.model.kind}}, f"{documents:,} documents, so:", (reason,))


def _read(config: RunConfig, names: Sequence[str]) -> list[Document]:
    return read_documents(
        [Path(name) for name in names],
        has_summaries=True,
        encoding=config.data.encoding,
        on_bad=config.data.on_bad_utf8,
    )


def open_documents(config: RunConfig, *, listener: Listener) -> "DocumentFiles":
    """Read and check the documents of a run; without dev files, some are held out."""
    train = _read(config, config.data.train)
    digests = {"train": fingerprint(train)}
    if config.data.dev:
        dev = _read(config, config.data.dev)
        digests["dev"] = fingerprint(dev)
    else:
        count = min(config.data.held_out, len(train) // 10)
        if count == 0:
            problem = f"{len(train)} documents are too few to hold some out for validation; give more, or --dev"
            raise DataError(problems=[Problem(problem, config.data.train[0])])
        generator = np.random.default_rng(seed_for(config.seed, "held out"))
        held = set(generator.choice(len(train), count, replace=False).tolist())
        dev = [each for number, each in enumerate(train) if number in held]
        train = [each for number, each in enumerate(train) if number not in held]
        notice(listener, f"held out for validation: {count:,} of {len(train) + count:,} documents")
    known = {each.sentences for each in train}
    if config.data.dev and (same := sum(each.sentences in known for each in dev)):
        notice(listener, f"dev documents that are training documents too: {same:,} of {len(dev):,}")
    if short := sum(len(each.sentences) == 1 for each in train):
        notice(listener, f"nothing is learned from training documents of one sentence: {short:,}")
    return DocumentFiles(train, dev, digests)


@dataclass(frozen=True)
class DocumentFiles:
    """The documents of a run."""

    train: Sequence[Document]
    dev: Sequence[Document]
    fingerprints: Mapping[str, str]

    @property
    def size(self) -> Mapping[str, int]:
        return {"documents": len(self.train), "dev_documents": len(self.dev)}

    def learn_tokenizers(self, config: RunConfig, *, listener: Listener) -> Tokenizers:  # noqa: ARG002
        """None: signs of sentences are hashed."""
        return NoTokenizers()

    def encode(self, run: Path, config: RunConfig, *, tokenizers: Tokenizers, listener: Listener) -> None:  # noqa: ARG002
        """Store the documents below `run`/data."""
        (run / "data").mkdir(parents=True, exist_ok=True)
        for name, documents in (("train", self.train), ("dev", self.dev)):
            write_atomically(run / "data" / f"{name}.jsonl", "".join(f"{each.to_json()}\n" for each in documents))


@dataclass(frozen=True)
class DocumentData:
    """The stored documents of a run."""

    train: Sequence[Document]
    dev: Sequence[Document]

    @staticmethod
    def load(run: Path, config: RunConfig) -> "DocumentData":  # noqa: ARG004
        """What `DocumentFiles.encode` stored. A DataError names a file that is missing or damaged."""
        train, dev = (read_documents([run / "data" / f"{name}.jsonl"], has_summaries=True) for name in ("train", "dev"))
        return DocumentData(train, dev)

    @property
    def tokenizers(self) -> Tokenizers:
        return NoTokenizers()

    @property
    def words(self) -> int:
        """Words of the training documents, about."""
        return sum(len(sentence.split()) for each in self.train for sentence in each.sentences)

    @cached_property
    def _rouge(self) -> Rouge:
        return Rouge("1", words_for([summary for each in self.train for summary in each.summaries]))

    def rated(self) -> list[RatedDocument]:
        """The training documents with the ROUGE-1 of each sentence."""
        return [
            RatedDocument(each.sentences, [self.rate(number, sentence) for sentence in each.sentences])
            for number, each in enumerate(self.train)
        ]

    def rate(self, number: int, text: str) -> float:
        """The ROUGE-1 of a text with the nearest summary of a training document."""
        return max(self._rouge.f_score(text, summary) for summary in self.train[number].summaries)

    def task(self, config: RunConfig, *, device: torch.device, listener: Listener) -> NoReturn:  # noqa: ARG002
        """None: the model is fitted, not trained in steps."""
        raise AssertionError(f"a model of kind {config.model.kind} is not trained in steps")

    def card_values(self, config: RunConfig) -> dict[str, Any]:
        """The training data, for the model card."""
        return {"files": list(config.data.train), "documents": len(self.train), "data": fingerprint(self.train)}

    def sample_texts(self) -> Sequence[Iterable[str]]:
        return [[sentence for each in self.train for sentence in each.sentences]]

    def measure(self, loaded: Loaded, *, listener: Listener) -> DevResult:
        """ROUGE of the summaries of dev documents, and of their first sentences."""
        scores = score_summaries(cast("Extractor", loaded.model), self.dev, seed=loaded.config.seed)
        listener(Event("scores", {"data": "dev", "lines": len(self.dev), "scores": [asdict(each) for each in scores]}))
        ours, first = scores[0], scores[len(METRICS)]
        if ours.value <= first.value:
            notice(
                listener,
                f"{ours.name} {ours.value:.1f} is not above {first.value:.1f}, the {first.name}, which needs no model",
            )
        return DevResult(tuple(scores), len(self.dev))


def score_summaries(
    model: Extractor, documents: Sequence[Document], *, count: int | None = None, seed: int = 1, resamples: int = 1000
) -> list[CorpusScore]:
    """ROUGE-1, -2 and -L with the nearest summary: of the chosen sentences, then of as many first ones."""
    size = count or model.count
    chosen = [[each.sentences[at] for at in model.choose(each.sentences, size)] for each in documents]
    first = [each.sentences[:size] for each in documents]
    found: list[CorpusScore] = []
    for name, picked in (("", chosen), (f" of lead-{size}", first)):
        outputs = [" ".join(some) for some, each in zip(picked, documents, strict=True) for _ in each.summaries]
        scores = score_named(
            METRICS,
            outputs,
            references=[summary for each in documents for summary in each.summaries],
            sources=[str(number) for number, each in enumerate(documents) for _ in each.summaries],
            language=None,
            bootstrap=Bootstrap(seed=seed, resamples=resamples),
        )
        found += [replace(each, name=f"{each.name}{name}") for each in scores]
    return found
