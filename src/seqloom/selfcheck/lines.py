"""The lines that a model is checked with: given, from the text of its run, or made from pieces of its tokeniser.

Built-in lines that are hard to read are added: unusual line separators, control characters, other scripts, text that
looks like symbols of the model, and one line that is longer than the model's limit.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from seqloom.core.errors import DataError, SeqloomError
from seqloom.core.files import matching_files, read_lines
from seqloom.core.seeds import seed_for
from seqloom.core.symbols import RESERVED
from seqloom.data.corpus import open_corpus
from seqloom.data.plain_text import read_one_language
from seqloom.data.store import Store
from seqloom.runs.config import RunConfig
from seqloom.selfcheck.promises import counted
from seqloom.text.formats.readers import holds_both_sides
from seqloom.text.normalise import is_blank
from seqloom.text.tokenizer import Tokenizer

MOST = 5_000
"""Lines at the beginning of a text from which some are drawn; a text may have millions."""

BLANK = ("", " \t ", "\u00a0\u3000", "\u200b\u200d\u2060")
"""Blank lines."""

HARD = (
    "a\u2028b\u2029c\u0085d\u000be\u000cf",  # line ends in other programs
    "one\rtwo",
    "<s> </s> <pad> <unk> ▁ @@ ##",
    "<b>{0}</b> %s &amp; \\n \\u0000 ${name}",
    "\u001b[31mred\u001b[0m \u0007 \u007f \u009b",
    "e\u0301" + "\u0323\u0307" * 12 + " soft\u00adhyphen zero\u200bwidth \ufeffmark",
    "\u202eback\u202c \u2066שלום\u2069 مرحبا",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \U0001d518 \U00010348",
    "汉字。かなカナ、한국어！ ไทย",
    "?!… --- ''' \"\" ///",
    "x",
    "0 1 23 456 7890 -1e-30 ∞",
    "SHOUTING İIıi ß ſ ﬁ",
    " leading and trailing ",
)
"""Visible lines that are hard to process."""


@dataclass(frozen=True)
class CheckLines:
    """Lines to check with."""

    texts: tuple[str, ...]
    origin: str
    """Where they come from, in words."""

    def with_hard_ones(self, tokenizer: Tokenizer, *, limit: int) -> tuple[str, ...]:
        """These, the built-in ones, and one that is longer than `limit` tokens."""
        return (*self.texts, *BLANK, *HARD, self.long_one(tokenizer, limit=limit))

    def long_one(self, tokenizer: Tokenizer, *, limit: int) -> str:
        """Sentence after sentence until there are more than `limit` tokens."""
        sentences, tokens = [], 0
        visible = [text for text in self.texts if not is_blank(text)] or list(HARD)
        for number in range(limit + 1):
            sentences.append(visible[number % len(visible)].strip().rstrip(".") + ".")
            tokens += max(1, len(tokenizer.encode(sentences[-1])))
            if tokens > limit:
                break
        return " ".join(sentences)


def given_lines(path: Path, config: RunConfig, *, count: int, seed: int) -> CheckLines:
    """Some lines of a file: the source side if it holds both."""
    texts = list(islice(_read_side([path], config, encoding="utf-8"), MOST))
    if not texts:
        raise DataError(f"{path} is empty; expected at least one line to check with")
    return _drawn(texts, str(path), count=count, seed=seed)


def own_lines(folder: Path, config: RunConfig, *, tokenizer: Tokenizer, count: int, seed: int) -> CheckLines:
    """Lines of the run's dev or training text, or lines made from pieces of the model's tokeniser.

    Only runs are searched for their text: the settings of a foreign model must not make us read files.
    """
    run = next((each for each in (folder, folder.parent) if (each / "run.json").is_file()), None)
    if run is not None:
        for name in ("dev", "train"):
            try:
                found = _text_of_run(run, config, name, tokenizer=tokenizer)
            except (SeqloomError, OSError):  # moved, changed or deleted: not what is checked
                continue
            if found.texts:
                return _drawn(found.texts, found.origin, count=count, seed=seed)
    return made_lines(tokenizer, count=count, seed=seed)


def _text_of_run(run: Path, config: RunConfig, name: str, *, tokenizer: Tokenizer) -> CheckLines:
    """The beginning of the text of this name, source side: its files, or what the run has stored of them."""
    names = config.data.dev if name == "dev" else config.data.train
    paths = [file for each in names for file in matching_files(Path(each))]
    if paths and all(path.is_file() for path in paths):
        return _visible(
            _read_side(paths, config, encoding=config.data.encoding), f"the {name} text of the run, {paths[0]}"
        )
    stored = run / "data" / name
    if config.reads_pairs:
        store = Store.open(stored)
        ids = (store.sources[at].tolist() for at in range(min(len(store), MOST)))
        return _visible(map(tokenizer.decode, ids), f"the run's stored {name} text")
    return _visible(read_lines(stored.with_suffix(".txt")), f"the run's stored {name} text")


def _visible(texts: Iterator[str], origin: str) -> CheckLines:
    return CheckLines(tuple(islice((text for text in texts if not is_blank(text)), MOST)), origin)


def _read_side(paths: Sequence[Path], config: RunConfig, *, encoding: str) -> Iterator[str]:
    """The source side of a translator's text, or the text of a language model."""
    if not config.reads_pairs:
        return read_one_language(paths[0], encoding=encoding, language=config.data.target)
    formats = config.data.training_formats()
    if holds_both_sides(paths[0], formats):
        languages = config.data.source, config.data.target
        return (line.source for line in open_corpus(paths, encoding=encoding, languages=languages, formats=formats))
    return read_lines(paths[0], encoding)


def _drawn(texts: Sequence[str], origin: str, *, count: int, seed: int) -> CheckLines:
    """At most `count` of the lines, in their order."""
    if len(texts) <= count:
        return CheckLines(tuple(texts), f"{counted(len(texts), 'line')} of {origin}")
    generator = np.random.default_rng(seed_for(seed, "lines to check with"))
    places = sorted(generator.choice(len(texts), size=count, replace=False).tolist())
    return CheckLines(
        tuple(texts[place] for place in places), f"{counted(count, 'line')} of {origin}, drawn with seed {seed}"
    )


def made_lines(tokenizer: Tokenizer, *, count: int, seed: int) -> CheckLines:
    """Lines of pieces drawn from a vocabulary, 3 to 20 each: no sentences, but symbols that the model knows."""
    generator = np.random.default_rng(seed_for(seed, "lines to check with"))
    texts = []
    for _ in range(count):
        size = int(generator.integers(3, 21))
        ids = generator.integers(min(len(RESERVED), tokenizer.size - 1), tokenizer.size, size=size)
        texts.append(tokenizer.decode(ids.tolist()))
    origin = f"{counted(count, 'line')} made from pieces of the model's tokeniser with seed {seed}"
    return CheckLines(tuple(texts), f"{origin}; use --lines FILE to check with your own")
