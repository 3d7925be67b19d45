"""Text of one language, prepared for a model that learns from it: opened, held out, cut into pieces, stored as ids.

run/data/train/     the training text as a stream of ids, memory-mapped
run/data/dev/       the held-out text likewise, and its lines as they were in dev.txt

What is held out, where there are no dev files, is a block at the end. Lines of a text go on from one another: lines
drawn from its middle would leave their neighbours, which tell much of them, to the training text.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import nn

from seqloom.core.errors import DataError, UsageError
from seqloom.core.events import Event, Listener, notice
from seqloom.core.files import read_lines, write_atomically
from seqloom.core.sizing import TextFacts
from seqloom.data.plain_text import Stream, TextCorpus, TextLine, TextLines, encode_text
from seqloom.metrics.translation import Score
from seqloom.runs.config import DataConfig, RunConfig
from seqloom.runs.loading import Loaded, LoadedModel
from seqloom.runs.pipeline import Choice, clear_stored
from seqloom.runs.readers import measure_perplexity
from seqloom.runs.sizing import EXTREMES, Sizing, choose_text_sizes, settled, text_facts
from seqloom.tasks.bidirectional_language_modelling import BidirectionalConfig, BidirectionalTask
from seqloom.tasks.language_modelling import LanguageModellingConfig, LanguageModellingTask
from seqloom.text.normalise import is_blank
from seqloom.text.tokenizer import Tokenizer, Tokenizers
from seqloom.text.tokenizer_training import train_tokenizer
from seqloom.training.progress import Outcome

DEV_LINES = "dev.txt"


@dataclass(frozen=True)
class Block:
    """A run of lines of a text."""

    text: TextLines
    begin: int
    end: int

    def __len__(self) -> int:
        return self.end - self.begin

    def __iter__(self) -> Iterator[TextLine]:
        return islice(iter(self.text), self.begin, self.end)


@dataclass(frozen=True)
class Texts:
    """The text of a run; `dev` is None for models that are not measured on any."""

    train: TextLines
    dev: TextLines | None
    fingerprints: Mapping[str, str]

    @property
    def size(self) -> Mapping[str, int]:
        return {"lines": len(self.train)}


@dataclass(frozen=True)
class PreparedText:
    """What was made of the text."""

    tokenizers: Tokenizers
    train: Stream
    dev: Stream | None
    dev_lines: tuple[str, ...]

    @property
    def tokenizer(self) -> Tokenizer:
        """How the text is cut."""
        return self.tokenizers.target


class OfPlainText:
    """What lines of work on plain text have in common. See `Work` for what each method is for."""

    needs_dev: bool
    """Whether the model is measured on a dev text; word vectors are not."""

    def open_text(self, config: RunConfig, *, listener: Listener) -> Texts:
        return open_texts(config, listener=listener, needs_dev=self.needs_dev)

    def learn_tokenizers(self, config: RunConfig, text: Texts, *, listener: Listener) -> Tokenizers:
        return learn_tokenizers(config, text, listener=listener)

    def encode(
        self,
        run: Path,
        config: RunConfig,  # noqa: ARG002
        *,
        text: Texts,
        tokenizers: Tokenizers,
        listener: Listener,
    ) -> None:
        encode(run, text=text, tokenizer=tokenizers.target, listener=listener)

    def open_prepared(self, run: Path) -> PreparedText:
        return open_prepared(run, needs_dev=self.needs_dev)


def open_corpus(data: DataConfig, names: tuple[str, ...]) -> TextCorpus:
    """The text of some files."""
    paths = [Path(name) for name in names]
    corpus = TextCorpus(paths, encoding=data.encoding, unit=data.unit, on_bad=data.on_bad_utf8, language=data.target)
    corpus.require_text()
    return corpus


def open_texts(config: RunConfig, *, listener: Listener, needs_dev: bool = True) -> Texts:
    """Open and check the text of a run; without dev files, the end of the training text is held out."""
    data = config.data
    train = open_corpus(data, data.train)
    for sentence in train.notices:
        notice(listener, sentence)
    fingerprints = {"train": train.fingerprint()}
    if data.dev:
        dev = open_corpus(data, data.dev)
        for sentence in dev.notices:
            notice(listener, sentence)
        return Texts(train, dev, {**fingerprints, "dev": dev.fingerprint()})
    if not needs_dev:
        return Texts(train, None, fingerprints)
    count = held_out(data, len(train))
    unit = f"{data.unit}s"
    notice(listener, f"no dev files: the last {count:,} of {len(train):,} {unit} are held out for validation")
    border = len(train) - count
    end = Block(train, border, len(train))
    if all(is_blank(line.text) for line in end):
        raise DataError(
            f"{data.train[-1]}: the last {count:,} {unit}, which would be held out for validation, are blank; remove "
            "them, or give a --dev file"
        )
    return Texts(Block(train, 0, border), end, fingerprints)


def held_out(data: DataConfig, pieces: int) -> int:
    """Lines at the end that are held out for validation: none where there are dev files."""
    if data.dev:
        return 0
    count = min(data.held_out, pieces // 10)
    if count == 0:
        few = f"1 {data.unit} is" if pieces == 1 else f"{pieces} {data.unit}s are"
        raise DataError(f"{few} too few to hold some out for validation; give a --dev file")
    return count


def learn_tokenizers(config: RunConfig, text: Texts, *, listener: Listener) -> Tokenizers:
    """Learn how to cut the training text; both sides of a pair that never is one."""
    tokenizer = train_tokenizer((line.text for line in text.train), config.text, listener=listener)
    return Tokenizers(tokenizer, tokenizer)


def encode(run: Path, *, text: Texts, tokenizer: Tokenizer, listener: Listener) -> None:
    """Store both texts as streams. An empty line is a lone end: it parts paragraphs."""
    clear_stored(run, "dev")
    (run / "data" / DEV_LINES).unlink(missing_ok=True)
    for name, lines in (("train", text.train), ("dev", text.dev)):
        if lines is None:
            continue
        clear_stored(run, name)

        def tell(done: int, everything: int, name: str = name) -> None:
            listener(Event("progress", {"what": f"encoding {name} text", "done": done, "all": everything}))

        report = encode_text(lines, tokenizer.encode_many, run / "data" / name, symbols=tokenizer.size, progress=tell)
        values: dict[str, Any] = {"lines": report.lines, "tokens": report.tokens, "unknown": report.unknown_rate}
        listener(Event("encoded", {"name": name, **values}))
    if text.dev is not None:
        write_atomically(run / "data" / DEV_LINES, "".join(f"{line.text}\n" for line in text.dev))


def open_prepared(run: Path, *, needs_dev: bool = True) -> PreparedText:
    """What `encode` stored, after every file of it was found to be whole."""
    has_dev = needs_dev or (run / "data" / "dev").exists()
    dev = Stream.open(run / "data" / "dev", verify=True) if has_dev else None
    return PreparedText(
        tokenizers=Tokenizers.load(run / "text"),
        train=Stream.open(run / "data" / "train", verify=True),
        dev=dev,
        dev_lines=() if dev is None else _read_dev(run / "data" / DEV_LINES, len(dev)),
    )


def _read_dev(path: Path, count: int) -> tuple[str, ...]:
    try:
        lines = tuple(read_lines(path))
    except (UsageError, DataError) as error:
        raise DataError(f"{path} cannot be read ({error})") from error
    if len(lines) != count:
        raise DataError(f"{path} is damaged: it has {len(lines):,} lines, not {count:,}")
    return lines


def _sizing(first: RunConfig, facts: TextFacts, *, steps: int | None = None, dev_tokens: int = 0) -> Sizing:
    assert isinstance(first.task, LanguageModellingConfig | BidirectionalConfig)
    pieces = first.text.kind
    return choose_text_sizes(facts, first.model, first.task, pieces=pieces, steps=steps, dev_tokens=dev_tokens)


# Language modelling as a line of work: a text in, a model of it with its perplexity on the dev text out.

OFFERED = ("output", "stepper")
"""What a language model must have, besides being called with windows of text."""


@dataclass(frozen=True)
class ModellingWork(OfPlainText):
    """Models of text that are trained step by step. See `TrainedWork` for what each method is for."""

    files: str = "--train TEXT"
    fixed: tuple[str, ...] = (
        "task.windows",
        "task.offset",
        "task.rows",
        "task.length",
        "task.burn_in",
        "task.tokens_per_batch",
    )
    """Where a run stands in its text is counted in these."""
    needs_dev: bool = True

    # --- text ---------------------------------------------------------------------------------------------------------

    def settled(self, first: RunConfig) -> Mapping[str, Any]:
        return settled(_sizing(first, facts) for facts in EXTREMES)

    def choose(self, first: RunConfig, files: Sequence[Path], *, steps: int | None) -> Choice:
        corpus = open_corpus(first.data, tuple(map(str, files)))
        text, dev_pieces = first.text, held_out(first.data, len(corpus))
        facts = text_facts(corpus, segmentation=text.segmentation)
        dev_tokens = facts.tokens(text.kind) * dev_pieces // max(1, len(corpus))
        if first.data.dev:
            dev = open_corpus(first.data, first.data.dev)
            dev_tokens = text_facts(dev, segmentation=text.segmentation).tokens(text.kind)
        return Choice(_sizing(first, facts, steps=steps, dev_tokens=dev_tokens))

    # --- training -----------------------------------------------------------------------------------------------------

    def require_model(self, model: nn.Module) -> None:
        missing = [name for name in OFFERED if not hasattr(model, name)]
        if missing:
            raise UsageError(
                f"{type(model).__name__} cannot be trained as a language model: it has no {' and no '.join(missing)}; "
                "see RecurrentLanguageModel in seqloom/models/reading.py for what a model offers"
            )

    def task(
        self, config: RunConfig, prepared: PreparedText, *, device: torch.device, listener: Listener
    ) -> LanguageModellingTask | BidirectionalTask:
        assert prepared.dev is not None
        if isinstance(config.task, BidirectionalConfig):
            return BidirectionalTask(prepared.train, prepared.dev, config=config.task, seed=config.seed, device=device)
        assert isinstance(config.task, LanguageModellingConfig)
        return LanguageModellingTask(
            prepared.train, prepared.dev, config=config.task, seed=config.seed, device=device, listener=listener
        )

    def languages(self, config: RunConfig) -> tuple[str | None, str | None]:
        return None, config.data.target

    def trained_on(self, config: RunConfig, prepared: PreparedText, *, outcome: Outcome) -> dict[str, Any]:
        return {
            "files": list(config.data.train),
            "lines": len(prepared.train),
            "tokens": prepared.train.tokens,
            "data": prepared.train.fingerprint(),
            "tokenizers": [prepared.tokenizer.fingerprint],
            "steps": outcome.step,
            "tokens_read": outcome.tokens,
            "seconds": round(outcome.seconds, 1),
            "best_dev_loss": outcome.best_loss,
        }

    def measure(self, loaded: LoadedModel, prepared: PreparedText, *, listener: Listener) -> tuple[Score, ...]:
        return measure_dev(loaded, prepared, listener=listener)

    def scored_lines(self, prepared: PreparedText) -> int:
        return len(prepared.dev_lines)


def measure_dev(loaded: Loaded, prepared: PreparedText, *, listener: Listener) -> tuple[Score, ...]:
    """Perplexities of the dev text, per token, word and character, as scores."""

    def tell(done: int, everything: int) -> None:
        listener(Event("progress", {"what": "measuring perplexity on dev text", "done": done, "all": everything}))

    found = measure_perplexity(loaded, prepared.dev_lines, progress=tell)
    scores = tuple(Score(f"perplexity/{each.unit}", each.value, each.signature) for each in found.all)
    values: dict[str, Any] = {
        "data": "dev",
        "lines": len(prepared.dev_lines),
        "scores": [asdict(each) for each in scores],
    }
    listener(Event("scores", values))
    return scores
