"""Tables by which the languages of a model are recognised: learned from its training text, and stored with it."""

from collections.abc import Iterable, Iterator, Sequence, Sized
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path

import numpy as np
from jaxtyping import UInt

from seqloom.core.errors import ModelError, SeqloomError
from seqloom.core.events import Listener, ignore, notice
from seqloom.core.files import matching_files, require_file
from seqloom.core.symbols import END
from seqloom.data.corpus import open_corpus
from seqloom.data.plain_text import Stream, TextCorpus
from seqloom.data.store import Store
from seqloom.runs.model_dir import Card, parse_card, read_part, read_settings, stored_tables
from seqloom.text.detection import LanguageTable, learn_table, script_table
from seqloom.text.formats.segments import Languages
from seqloom.text.languages import language_name
from seqloom.text.tokenizer import Tokenizer, Tokenizers

MAX_WINDOWS, WINDOW = 4_000, 100
"""The sample of an encoded text: so many windows of so many tokens, evenly spread."""

MAX_LINES, MAX_LINE_CHARACTERS = 10_000, 300
"""The sample of a text file: so many lines, evenly spread, and how much of each."""


def learn_tables(sides: Sequence[Iterable[str]], languages: Languages) -> dict[str, LanguageTable]:
    """A table for each language that has a name, and letters in the text; one side alone is that of the target.

    Each side is a sample of its lines.
    """
    texts: dict[str, Iterable[str]] = {}
    for language, lines in zip(languages[len(languages) - len(sides) :], sides, strict=True):
        if language is not None:  # both sides may be in the same language
            texts[language] = chain(texts.get(language, ()), lines)
    learned = {language: learn_table(lines) for language, lines in texts.items()}
    return {language: table for language, table in learned.items() if table.scripts}


def load_detection_tables(folder: Path, *, listener: Listener = ignore) -> dict[str, LanguageTable]:
    """The tables of the languages of a model, by their codes. The model directory was checked before.

    What an older or unfinished model lacks is learned from the text of its run, or from the files that its card names;
    where both are gone, a language is recognised by its script. That is reported as a notice.
    """
    card = parse_card(read_part(folder / "model.json"), folder / "model.json")
    named = [language for language in (card.source, card.target) if language is not None]
    try:
        tables = stored_tables(folder)
    except ModelError as error:  # of a newer version
        notice(listener, str(error))
        tables = {}
    if all(language in tables for language in named):
        return tables
    for what, read in (("the text of its run", _run_sides), ("its training files", _file_sides)):
        # If they are missing or damaged, the other may not be.
        with suppress(SeqloomError, OSError):
            tables = {**learn_tables(read(folder, card), (card.source, card.target)), **tables}
            origin = f"learned from {what}"
            break
    else:
        origin = "its training text was not found"
    by_script = {language: script_table(language) for language in named if language not in tables}
    names = ", ".join(map(language_name, by_script))
    consequence = f"; recognised by script only: {names}" if by_script else ""
    notice(listener, f"{folder} has no tables for the detection of its languages: {origin}{consequence}")
    return {**tables, **by_script}


def sample_sides(train: Store | Stream, tokenizers: Tokenizers) -> list[Iterator[str]]:
    """A sample of the lines of both sides, or of a text."""
    if isinstance(train, Stream):
        return [sample_text(train.ids, tokenizers.target)]
    return [sample_text(train.sources.ids, tokenizers.source), sample_text(train.targets.ids, tokenizers.target)]


def sample_text(ids: UInt[np.ndarray, " tokens"], tokenizer: Tokenizer) -> Iterator[str]:
    """A sample of a text, line by line; the first and last of a window may be parts of lines."""
    windows = min(MAX_WINDOWS, -(-len(ids) // WINDOW))
    for number in range(windows):
        begin = number * len(ids) // windows
        window = np.asarray(ids[begin : min(begin + WINDOW, (number + 1) * len(ids) // windows)])
        for line in np.split(window, np.flatnonzero(window == END) + 1):
            yield tokenizer.decode(line.tolist())


def _run_sides(folder: Path, card: Card) -> list[Iterator[str]]:
    """The encoded text of the run that a model is in, or is a checkpoint of."""
    run = Path(card.trained_on["unfinished"].get("run", "")) if "unfinished" in card.trained_on else folder.parent
    text = run / "data" / "train"
    is_paired = read_settings(folder).reads_pairs
    return sample_sides(Store.open(text) if is_paired else Stream.open(text), Tokenizers.load(run / "text"))


def _file_sides(folder: Path, card: Card) -> list[Iterator[str]]:
    """The text of the files that the card of a model names."""
    config, paths = read_settings(folder), [Path(str(name)) for name in card.trained_on.get("files", [])]
    data = config.data
    for path in chain.from_iterable(map(matching_files, paths)):
        require_file(path)  # a card from elsewhere could name a pipe
    if not config.reads_pairs:
        text = TextCorpus(
            paths, encoding=data.encoding, unit=data.text_unit, on_bad=data.on_bad_utf8, language=data.target
        )
        return [(line.text[:MAX_LINE_CHARACTERS] for line in islice(text, 0, None, _step(text)))]
    languages = data.source, data.target
    formats = data.training_formats()
    corpus = open_corpus(paths, encoding=data.encoding, languages=languages, on_bad=data.on_bad_utf8, formats=formats)
    lines = list(islice(corpus, 0, None, _step(corpus)))
    return [
        (line.source[:MAX_LINE_CHARACTERS] for line in lines),
        (line.target[:MAX_LINE_CHARACTERS] for line in lines),
    ]


def _step(lines: Sized) -> int:
    """Every how many lines one is taken."""
    return max(1, -(-len(lines) // MAX_LINES))
