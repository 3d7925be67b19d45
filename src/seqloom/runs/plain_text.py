"""Text of one language, for language models, encoders and word vectors: opened, split, encoded, used and measured.

run/data/train/     the training text as a stream of ids, memory-mapped
run/data/dev/       the held-out text likewise, and its lines as they were in dev.txt

Without dev files, a block at the end is held out. Neighbouring lines of a text resemble each other: lines drawn from
its middle would be easy to predict from the training text.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from seqloom.core.declaration import TextFacts
from seqloom.core.errors import DataError
from seqloom.core.events import Event, Listener, notice
from seqloom.core.files import write_atomically
from seqloom.data.plain_text import Stream, TextCorpus, TextLine, TextLines, encode_text
from seqloom.data.store import read_stored_lines
from seqloom.metrics.scoring import CorpusScore
from seqloom.runs.config import DataConfig, RunConfig
from seqloom.runs.loading import Loaded
from seqloom.runs.model_dir import DevResult
from seqloom.runs.readers import measure_perplexity
from seqloom.runs.sizing import Sizing, choose_fitted_sizes, choose_text_sizes, text_facts
from seqloom.tasks.bidirectional_language_modelling import BidirectionalTask
from seqloom.tasks.language_modelling import LanguageModellingTask
from seqloom.tasks.masked_language_modelling import MASK_MARK, MaskedLanguageModellingTask, mask_symbol
from seqloom.tasks.settings import (
    BidirectionalConfig,
    LanguageModellingConfig,
    MaskedLanguageModellingConfig,
    VariationalConfig,
)
from seqloom.tasks.variational import VariationalTask
from seqloom.text.formats.readers import FORMATS
from seqloom.text.formats.segments import Format
from seqloom.text.normalise import is_blank
from seqloom.text.tokenizer import Tokenizers
from seqloom.text.tokenizer_training import train_tokenizer

DEV_LINES = "dev.txt"


@dataclass(frozen=True)
class LineRange:
    """A run of lines of a text."""

    text: TextLines
    begin: int
    end: int

    def __len__(self) -> int:
        return self.end - self.begin

    def __iter__(self) -> Iterator[TextLine]:
        return islice(iter(self.text), self.begin, self.end)


def size_text(config: RunConfig, files: Sequence[Path], *, formats: Sequence[Format] = FORMATS) -> Sizing:
    """Sizes for the text in these files."""
    corpus = open_corpus(config.data, tuple(map(str, files)), formats=formats)
    facts = text_facts(corpus, segmentation=config.text.segmentation)
    if not needs_dev(config):
        return sizes_for(config, facts)
    held = held_out(config.data, len(corpus))
    if not config.data.dev:
        return sizes_for(config, facts, dev_tokens=facts.tokens(config.text.kind) * held // max(1, len(corpus)))
    dev_corpus = open_corpus(config.data, config.data.dev, formats=formats)
    dev = text_facts(dev_corpus, segmentation=config.text.segmentation)
    return sizes_for(config, facts, dev_tokens=dev.tokens(config.text.kind))


def sizes_for(config: RunConfig, facts: TextFacts, *, dev_tokens: int = 0) -> Sizing:
    """Sizes for such a text, given the settings that were set."""
    model, task, pieces, training = config.model, config.task, config.text.kind, config.training
    if model.is_fitted:
        return choose_fitted_sizes(facts, model, pieces=pieces)
    assert isinstance(
        task, LanguageModellingConfig | BidirectionalConfig | VariationalConfig | MaskedLanguageModellingConfig
    )
    steps = training.steps if "steps" in training.model_fields_set else None
    return choose_text_sizes(facts, model, task, pieces=pieces, steps=steps, dev_tokens=dev_tokens)


def needs_dev(config: RunConfig) -> bool:
    """Whether the model is measured on dev text; word vectors are not."""
    return config.purpose != "word vectors"


def open_corpus(data: DataConfig, names: tuple[str, ...], *, formats: Sequence[Format] = FORMATS) -> TextCorpus:
    """The text of some files."""
    paths = [Path(name) for name in names]
    corpus = TextCorpus(
        paths,
        encoding=data.encoding,
        unit=data.unit,
        on_bad=data.on_bad_utf8,
        language=data.target,
        formats=formats,
    )
    corpus.require_text()
    return corpus


def open_texts(config: RunConfig, *, formats: Sequence[Format] = FORMATS, listener: Listener) -> "PlainText":
    """Open and check the text of a run. Without dev files, the end of the training text is held out."""
    data = config.data
    train = open_corpus(data, data.train, formats=formats)
    for sentence in train.notices:
        notice(listener, sentence)
    fingerprints = {"train": train.fingerprint()}
    if data.dev:
        dev = open_corpus(data, data.dev, formats=formats)
        for sentence in dev.notices:
            notice(listener, sentence)
        return PlainText(train, dev, {**fingerprints, "dev": dev.fingerprint()})
    if not needs_dev(config):
        return PlainText(train, None, fingerprints)
    count = held_out(data, len(train))
    unit = f"{data.unit}s"
    notice(listener, f"no dev files: the last {count:,} of {len(train):,} {unit} are held out for validation")
    border = len(train) - count
    end = LineRange(train, border, len(train))
    if all(is_blank(line.text) for line in end):
        raise DataError(
            f"{data.train[-1]}: the last {count:,} {unit}, which would be held out for validation, are blank; remove "
            "them, or give a --dev file"
        )
    return PlainText(LineRange(train, 0, border), end, fingerprints)


def held_out(data: DataConfig, pieces: int) -> int:
    """Lines at the end that are held out for validation: none where there are dev files."""
    if data.dev:
        return 0
    count = min(data.held_out, pieces // 10)
    if count == 0:
        few = f"1 {data.unit} is" if pieces == 1 else f"{pieces} {data.unit}s are"
        raise DataError(f"{few} too few to hold some out for validation; give a --dev file")
    return count


@dataclass(frozen=True)
class PlainText:
    """The text of a run; `dev` is None for models that are not measured on any."""

    train: TextLines
    dev: TextLines | None
    fingerprints: Mapping[str, str]
    """Hashes, by which a resume notices changed files."""

    @property
    def size(self) -> Mapping[str, int]:
        return {"lines": len(self.train)}

    def learn_tokenizers(self, config: RunConfig, *, listener: Listener) -> Tokenizers:
        """Learn how to split the training text into pieces."""
        marks = (MASK_MARK,) if isinstance(config.task, MaskedLanguageModellingConfig) else ()
        tokenizer = train_tokenizer((line.text for line in self.train), config.text, marks=marks, listener=listener)
        return Tokenizers(tokenizer, tokenizer)

    def encode(
        self,
        run: Path,
        config: RunConfig,
        *,
        tokenizers: Tokenizers,
        listener: Listener,
    ) -> None:
        """Store both texts as streams of ids below `run`/data. An empty line is a lone END: it separates paragraphs."""
        tokenizer = tokenizers.target
        if isinstance(config.task, MaskedLanguageModellingConfig):
            mask_symbol(tokenizer)  # to refuse a tokeniser without one before anything slow
        for name, lines in (("train", self.train), ("dev", self.dev)):
            if lines is None:
                continue

            def progress(done: int, everything: int, name: str = name) -> None:
                listener(Event("progress", {"what": f"encoding {name} text", "done": done, "all": everything}))

            report = encode_text(
                lines, tokenizer.encode_many, run / "data" / name, symbols=tokenizer.size, progress=progress
            )
            counts = {"lines": report.lines, "tokens": report.tokens, "unknown": report.unknown_rate}
            listener(Event("encoded", {"name": name, **counts}))
        if self.dev is not None:
            write_atomically(run / "data" / DEV_LINES, "".join(f"{line.text}\n" for line in self.dev))


@dataclass(frozen=True)
class TextData:
    """The text of a run, encoded: what a language model or word vectors learn from."""

    tokenizers: Tokenizers
    train: Stream
    dev: Stream | None
    dev_lines: list[str]

    @staticmethod
    def load(run: Path, config: RunConfig) -> "TextData":
        """What `PlainText.encode` stored. A DataError names a file that is missing or damaged."""
        has_dev = needs_dev(config) or (run / "data" / "dev").exists()
        dev = Stream.open(run / "data" / "dev", verify=True) if has_dev else None
        return TextData(
            tokenizers=Tokenizers.load(run / "text"),
            train=Stream.open(run / "data" / "train", verify=True),
            dev=dev,
            dev_lines=[] if dev is None else read_stored_lines(run / "data" / DEV_LINES, len(dev)),
        )

    def task(
        self, config: RunConfig, *, device: torch.device, listener: Listener
    ) -> LanguageModellingTask | BidirectionalTask | VariationalTask | MaskedLanguageModellingTask:
        """What the model is trained for."""
        assert self.dev is not None
        if isinstance(config.task, BidirectionalConfig):
            return BidirectionalTask(self.train, self.dev, config=config.task, seed=config.seed, device=device)
        if isinstance(config.task, MaskedLanguageModellingConfig):
            return self._masked_task(config, device=device)
        if isinstance(config.task, VariationalConfig):
            total = config.training.steps * config.training.batches_per_step
            return VariationalTask(
                self.train, self.dev, config=config.task, total_batches=total, seed=config.seed, device=device
            )
        assert isinstance(config.task, LanguageModellingConfig)
        return LanguageModellingTask(
            self.train, self.dev, config=config.task, seed=config.seed, device=device, listener=listener
        )

    def _masked_task(self, config: RunConfig, *, device: torch.device) -> MaskedLanguageModellingTask:
        assert self.dev is not None
        assert isinstance(config.task, MaskedLanguageModellingConfig)
        mask = mask_symbol(self.tokenizers.target)
        return MaskedLanguageModellingTask(
            self.train, self.dev, config=config.task, mask=mask, seed=config.seed, device=device
        )

    def card_values(self, config: RunConfig) -> dict[str, Any]:
        """The training data, for the model card."""
        return {
            "files": list(config.data.train),
            "lines": len(self.train),
            "tokens": self.train.tokens,
            "data": self.train.fingerprint(),
            "tokenizers": [self.tokenizers.target.fingerprint],
        }

    def measure(self, loaded: Loaded, *, listener: Listener) -> DevResult:
        """Scores of the dev text, and how many lines they are of.

        For language models these are perplexities per token, word and character; for encoders the share of hidden
        tokens that are found, in percent, and the perplexity of hidden tokens.
        """
        lines = len(self.dev_lines)
        if isinstance(loaded.config.task, MaskedLanguageModellingConfig):
            task = self._masked_task(loaded.config, device=loaded.device)
            hidden = task.measure(loaded.model)
            scores: tuple[CorpusScore, ...] = (
                CorpusScore("hidden-token accuracy", 100 * hidden.accuracy, f"%|{task.signature(hidden.count)}"),
                CorpusScore("perplexity/hidden token", hidden.perplexity, task.signature(hidden.count)),
            )
            if hidden.masked:
                value, signature = 100 * hidden.masked_found / hidden.masked, f"%|{task.signature(hidden.masked)}"
                scores = (*scores, CorpusScore("masked-token accuracy", value, signature))
            listener(Event("scores", {"data": "dev", "lines": lines, "scores": [asdict(each) for each in scores]}))
            return DevResult(scores, lines)

        def progress(done: int, everything: int) -> None:
            listener(Event("progress", {"what": "measuring perplexity on dev text", "done": done, "all": everything}))

        found = measure_perplexity(loaded, self.dev_lines, progress=progress)
        scores = tuple(CorpusScore(f"perplexity/{each.unit}", each.value, each.signature) for each in found.all)
        listener(Event("scores", {"data": "dev", "lines": lines, "scores": [asdict(each) for each in scores]}))
        return DevResult(scores, lines)
