"""Text of one language, prepared for a model that learns from it: opened, held out, cut into pieces, stored as ids.

run/data/train/     the training text as a stream of ids, memory-mapped
run/data/dev/       the held-out text likewise, and its lines as they were in dev.txt

What is held out, where there are no dev files, is a block at the end. Lines of a text go on from one another: lines
drawn from its middle would leave their neighbours, which tell much of them, to the training text.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from seqloom.core.errors import DataError, UsageError
from seqloom.core.events import Event, Listener, notice
from seqloom.core.files import read_lines, write_atomically
from seqloom.data.stream import Stream, encode_text
from seqloom.data.text import TextCorpus, TextLine, TextLines
from seqloom.recipes.config import DataConfig, RunConfig
from seqloom.recipes.storing import clear_stored
from seqloom.text.normalise import is_blank
from seqloom.text.tokenizer import Tokenizer, Tokenizers
from seqloom.text.training import train_tokenizer

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
