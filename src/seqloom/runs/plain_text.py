"""Text of one language, for language models, encoders and word vectors: opened, split, encoded, used and measured.

run/data/train/     the training text as a stream of ids, memory-mapped
run/data/dev/       the held-out text likewise, and its lines as they were in dev.txt

Without dev files, a block at the end is held out. Neighbouring lines of a text resemble each other: lines drawn from
its middle would be easy to predict from the training text.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import nn

from seqloom.core.declaration import TextFacts
from seqloom.core.errors import DataError
from seqloom.core.events import Event, Listener, notice
from seqloom.core.files import write_atomically
from seqloom.data.plain_text import Stream, TextCorpus, TextLine, TextLines, encode_text
from seqloom.data.store import read_stored_lines
from seqloom.metrics.perplexity import perplexity
from seqloom.metrics.scoring import CorpusScore
from seqloom.runs import denoising
from seqloom.runs.config import DataConfig, RunConfig
from seqloom.runs.detection import sample_sides
from seqloom.runs.loading import Loaded
from seqloom.runs.model_dir import DevResult
from seqloom.runs.readers import measure_perplexity
from seqloom.runs.sizing import Sizing, choose_fitted_sizes, choose_text_sizes, text_facts
from seqloom.tasks.bidirectional_language_modelling import BidirectionalTask
from seqloom.tasks.denoising import DenoisingTask, noise_of
from seqloom.tasks.language_modelling import LanguageModellingTask
from seqloom.tasks.masked_language_modelling import MASK_MARK, MaskedLanguageModellingTask, mask_symbol
from seqloom.tasks.settings import (
    BidirectionalConfig,
    DenoisingConfig,
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
    corpus = open_corpus(config, tuple(map(str, files)), formats=formats)
    facts = text_facts(corpus, segmentation=config.text.segmentation)
    if isinstance(config.task, DenoisingConfig):
        held_out(config.data, len(corpus))
        return denoising.with_languages(sizes_for(config, facts), config, corpus)
    if not needs_dev(config):
        return sizes_for(config, facts)
    held = held_out(config.data, len(corpus))
    if not config.data.dev:
        return sizes_for(config, facts, dev_tokens=facts.tokens(config.text.kind) * held // max(1, len(corpus)))
    dev_corpus = open_corpus(config, config.data.dev, formats=formats)
    dev = text_facts(dev_corpus, segmentation=config.text.segmentation)
    return sizes_for(config, facts, dev_tokens=dev.tokens(config.text.kind))


def sizes_for(config: RunConfig, facts: TextFacts, *, dev_tokens: int = 0) -> Sizing:
    """Sizes for such a text, given the settings that were set."""
    model, task, pieces, training = config.model, config.task, config.text.kind, config.training
    if model.is_fitted:
        return choose_fitted_sizes(facts, model, pieces=pieces)
    if isinstance(task, DenoisingConfig):
        return denoising.sizes_for(config, facts)
    assert isinstance(
        task, LanguageModellingConfig | BidirectionalConfig | VariationalConfig | MaskedLanguageModellingConfig
    )
    steps = training.steps if "steps" in training.model_fields_set else None
    return choose_text_sizes(facts, model, task, pieces=pieces, steps=steps, dev_tokens=dev_tokens)


def needs_dev(config: RunConfig) -> bool:
    """Whether the model is measured on dev text; word vectors are not."""
    return config.purpose != "word vectors"


def open_corpus(config: RunConfig, names: tuple[str, ...], *, formats: Sequence[Format] = FORMATS) -> TextCorpus:
    """The text of some files."""
    data, paths = config.data, [Path(name) for name in names]
    corpus = TextCorpus(
        paths,
        encoding=data.encoding,
        unit=data.text_unit,
        on_bad=data.on_bad_utf8,
        language=data.target,
        takes_tables=denoising.has_answers(config),
        formats=formats,
    )
    corpus.require_text()
    denoising.require_answers(config, corpus)
    return corpus


def open_texts(config: RunConfig, *, formats: Sequence[Format] = FORMATS, listener: Listener) -> "PlainText":
    """Open and check the text of a run. Without dev files, the end of the training text is held out."""
    data = config.data
    train = open_corpus(config, data.train, formats=formats)
    for sentence in train.notices:
        notice(listener, sentence)
    fingerprints = {"train": train.fingerprint()}
    beginnings = denoising.line_beginnings(config, train)
    if data.dev:
        dev = open_corpus(config, data.dev, formats=formats)
        for sentence in dev.notices:
            notice(listener, sentence)
        begun = (beginnings, denoising.line_beginnings(config, dev))
        return PlainText(train, dev, {**fingerprints, "dev": dev.fingerprint()}, begun)
    if not needs_dev(config):
        return PlainText(train, None, fingerprints)
    count = held_out(data, len(train))
    unit = f"{data.unit}s"
    border = len(train) - count
    rest: TextLines = LineRange(train, 0, border)
    end: TextLines = LineRange(train, border, len(train))
    of_each = ""
    if isinstance(config.task, DenoisingConfig) and len(train.sizes) > 1:
        rest, end = (denoising.FileEnds(train, count, is_end=is_end) for is_end in (False, True))
        of_each = ", at the end of each file,"
    notice(listener, f"no dev files: the last {count:,} of {len(train):,} {unit}{of_each} are held out for validation")
    if all(is_blank(line.text) for line in end):
        raise DataError(
            f"{data.train[-1]}: the last {count:,} {unit}, which would be held out for validation, are blank; remove "
            "them, or give a --dev file"
        )
    return PlainText(rest, end, fingerprints, (beginnings, beginnings))


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
    beginnings: tuple[Sequence[Sequence[int]], Sequence[Sequence[int]]] = ((), ())
    """The ids that lines begin with, by their file: of training text and of dev text."""

    @property
    def size(self) -> Mapping[str, int]:
        return {"lines": len(self.train)}

    def learn_tokenizers(self, config: RunConfig, *, listener: Listener) -> Tokenizers:
        """Learn how to split the training text into pieces."""
        marks: tuple[str, ...] = (MASK_MARK,) if isinstance(config.task, MaskedLanguageModellingConfig) else ()
        if isinstance(config.task, DenoisingConfig):
            marks = denoising.marks_of(config)
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
        # To refuse a tokeniser without the symbols of the task before anything slow.
        if isinstance(config.task, MaskedLanguageModellingConfig):
            mask_symbol(tokenizer)
        elif isinstance(config.task, DenoisingConfig):
            denoising.require_symbols(config, tokenizers)
        encode = denoising.encoder_for(config, tokenizer)
        for name, lines, beginnings in zip(("train", "dev"), (self.train, self.dev), self.beginnings, strict=True):
            if lines is None:
                continue

            def begin(line: TextLine, beginnings: Sequence[Sequence[int]] = beginnings) -> Sequence[int]:
                return beginnings[line.file] if beginnings else ()

            def progress(done: int, everything: int, name: str = name) -> None:
                listener(Event("progress", {"what": f"encoding {name} text", "done": done, "all": everything}))

            report = encode_text(
                lines, encode, run / "data" / name, symbols=tokenizer.size, beginning=begin, progress=progress
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
    ) -> LanguageModellingTask | BidirectionalTask | VariationalTask | MaskedLanguageModellingTask | DenoisingTask:
        """What the model is trained for."""
        assert self.dev is not None
        if isinstance(config.task, BidirectionalConfig):
            return BidirectionalTask(self.train, self.dev, config=config.task, seed=config.seed, device=device)
        if isinstance(config.task, MaskedLanguageModellingConfig):
            return self._masked_task(config, device=device)
        if isinstance(config.task, DenoisingConfig):
            return self._denoising_task(config, device=device)
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

    def _denoising_task(self, config: RunConfig, *, device: torch.device) -> DenoisingTask:
        assert self.dev is not None
        assert isinstance(config.task, DenoisingConfig)
        return DenoisingTask(
            self.train,
            self.dev,
            config=config.task,
            noise=noise_of(config.task, self.tokenizers.target),
            languages=tuple(denoising.languages_of(config).values()),
            seed=config.seed,
            device=device,
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

    def sample_texts(self) -> Sequence[Iterable[str]]:
        return sample_sides(self.train, self.tokenizers)

    def measure(self, loaded: Loaded, *, listener: Listener) -> DevResult:
        """Scores of the dev text, and how many lines they are of.

        For language models these are perplexities per token, word and character; for encoders the share of hidden
        tokens that are found, in percent, and the perplexity of hidden tokens; for denoising the perplexity of what is
        written.
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

        if isinstance(loaded.config.task, DenoisingConfig):
            denoiser = self._denoising_task(loaded.config, device=loaded.device)
            assert isinstance(loaded.model, nn.Module)
            total, count = denoiser.measure(loaded.model)
            scores = (
                CorpusScore("perplexity/restored token", perplexity(total, count).value, denoiser.signature(count)),
            )
            listener(Event("scores", {"data": "dev", "lines": lines, "scores": [asdict(each) for each in scores]}))
            return DevResult(scores, lines)

        def progress(done: int, everything: int) -> None:
            listener(Event("progress", {"what": "measuring perplexity on dev text", "done": done, "all": everything}))

        found = measure_perplexity(loaded, self.dev_lines, progress=progress)
        scores = tuple(CorpusScore(f"perplexity/{each.unit}", each.value, each.signature) for each in found.all)
        listener(Event("scores", {"data": "dev", "lines": lines, "scores": [asdict(each) for each in scores]}))
        return DevResult(scores, lines)
