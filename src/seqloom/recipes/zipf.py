"""Zipf: what a text is made of, from its files to numbers and a picture."""

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from matplotlib.figure import Figure
from pydantic import Field

from seqloom.core.config import Config
from seqloom.core.errors import DataError, UsageError
from seqloom.core.events import Event, Listener, ignore
from seqloom.core.files import require_file
from seqloom.data.text import read_one_language
from seqloom.inspection.text_statistics import TextStatistics, describe_text
from seqloom.inspection.zipf_picture import draw_zipf
from seqloom.text.marks import JOINER, split_words
from seqloom.text.normalise import Normaliser
from seqloom.text.tokenizer import DESCRIPTION, Tokenizer

TOLD_EVERY = 100_000
"""Lines between two reports of progress."""


class ZipfConfig(Config):
    """What is counted."""

    unit: Literal["words", "spaces", "characters"] = "words"
    """What a token is: a word or a mark (`words`), what stands between spaces (`spaces`), or a character."""
    lowercase: bool = True
    """Whether capital letters and small ones are the same."""
    punctuation: bool = False
    """Whether tokens without a letter or a digit count; for characters, spaces as well. Otherwise n-grams reach over
    them."""
    orders: int = Field(default=3, ge=1, le=6)
    """The longest n-grams."""
    minimum_count: int = Field(default=10, ge=1)
    """How often an n-gram must be seen for its rank to take part in the fit: ranks of rare ones are chance."""
    top: int = Field(default=10, ge=0)
    """How many of the most frequent n-grams are told."""
    encoding: str = "utf-8"
    """The encoding of the files."""
    language: str | None = None
    """Of translators' files (.tmx, .po, .xlf, .jsonl), the language whose texts are counted."""


@dataclass(frozen=True)
class ZipfFindings:
    """What was found, and what a token is called."""

    statistics: TextStatistics
    unit: Literal["word", "token", "character", "piece"]

    def draw(self) -> Figure:
        """Rank against frequency, and the growth of the vocabulary."""
        return draw_zipf(self.statistics, unit=self.unit)


def look_at_counts(
    paths: Sequence[Path],
    config: ZipfConfig | None = None,
    *,
    tokenizer: Tokenizer | None = None,
    listener: Listener = ignore,
) -> ZipfFindings:
    """Count the n-grams of text files, a line being a sentence; of a tokeniser's pieces where one is given."""
    chosen = config or ZipfConfig()
    if not paths:
        raise UsageError("name at least one text file")
    for path in paths:  # all of them before the first is read
        require_file(path)
    cut = tokenizer.pieces if tokenizer is not None else _cutter(chosen)
    known: dict[str, int] = {}
    ids, lengths = array("q"), array("q")
    for number, path in enumerate(paths, start=1):
        # Another encoding is a setting here, not the flag that messages would offer.
        encoding = None if chosen.encoding == "utf-8" else chosen.encoding
        for line in read_one_language(path, encoding=encoding, language=chosen.language, setting="language"):
            tokens = cut(line)
            ids.extend(known.setdefault(token, len(known)) for token in tokens)
            lengths.append(len(tokens))
            if len(lengths) % TOLD_EVERY == 0:
                listener(Event("progress", {"what": f"reading {path.name}", "done": number - 1, "all": len(paths)}))
    words, joint = list(known), "" if chosen.unit == "characters" else " "
    try:
        statistics = describe_text(
            np.frombuffer(ids, dtype=np.int64),
            np.frombuffer(lengths, dtype=np.int64),
            name=lambda numbers: joint.join(words[number] for number in numbers),
            orders=range(1, chosen.orders + 1),
            minimum_count=chosen.minimum_count,
            top=chosen.top,
        )
    except DataError as error:
        raise DataError(f"{', '.join(map(str, paths))}: {error}") from error
    return ZipfFindings(statistics, "piece" if tokenizer is not None else _NAMES[chosen.unit])


_NAMES: dict[str, Literal["word", "token", "character"]] = {
    "words": "word",
    "spaces": "token",
    "characters": "character",
}


def find_tokenizer(folder: Path) -> Tokenizer:
    """The tokeniser of a run, of a model, or in this very folder."""
    for place in (folder, folder / "model" / "text", folder / "text"):
        # A run keeps its tokenisers beside its model's, so the first place that has any is taken.
        found = sorted(path.parent for path in [place / DESCRIPTION, *place.glob(f"*/{DESCRIPTION}")] if path.is_file())
        if len(found) > 1:
            raise UsageError(f"{folder} has a tokeniser for each side; name one of {', '.join(map(str, found))}")
        if found:
            return Tokenizer.load(found[0])
    raise UsageError(f"{folder} holds no tokeniser; name a run, a model, or the folder that has {DESCRIPTION}")


def _cutter(config: ZipfConfig) -> Callable[[str], list[str]]:
    normalise = Normaliser(lowercase=config.lowercase)

    def cut(line: str) -> list[str]:
        text = normalise(line)
        if config.unit == "characters":
            tokens = list(text)
        elif config.unit == "spaces":
            tokens = text.split()
        else:
            tokens = [word.strip(JOINER) or word for word in split_words(text)]
        return tokens if config.punctuation else [token for token in tokens if _says_something(token)]

    return cut


def _says_something(token: str) -> bool:
    return token.isalnum() or any(map(str.isalnum, token))
