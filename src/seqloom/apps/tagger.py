"""The tags of words, from a model that was trained on tagged sentences.

    tagger = Tagger.load("run/model")
    tagger.tag([["The", "dog", "sleeps"]])[0]["upos"]                    # sentences of words
    tagger.tag(["The dog sleeps."])[0].words                             # raw text: words are found first
    for sentence in tagger.fill(TokenFile(Path("new.conllu"))): …        # files: all but the columns stays as it is

Sentences are read in order of length. What is beside a sentence in a batch changes nothing of its result.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from seqloom.core.archive import by_origin
from seqloom.core.arguments import as_whole_number, require_callable, shown
from seqloom.core.errors import DataError, UsageError
from seqloom.data.tokens import SCRIPTED, pad_forms, spell_forms
from seqloom.metrics.scoring import Bootstrap, CorpusScore
from seqloom.models.protocols import TaggingModel
from seqloom.models.tagger import TaggerInput
from seqloom.runs.loading import Loaded, in_words, load_any, require_loaded
from seqloom.runs.tagging import score_columns, written
from seqloom.tasks.classification import batches_by_length
from seqloom.tasks.settings import TaggingConfig
from seqloom.tasks.tagging import legal_of
from seqloom.text.edit_scripts import edit_script
from seqloom.text.formats.conllu import (
    EMPTY,
    SAMPLED_LINES,
    TokenLayout,
    TokenSentence,
    Word,
    filled,
    find_layout,
    new_sentence,
)
from seqloom.text.marks import JOINER, split_words
from seqloom.text.normalise import collapse_spaces

WORDS_PER_BATCH = 1024
"""Words that are read together: enough for the products, few enough for the processor's cache."""

SENTENCES_AT_ONCE = 1_000
"""Sentences of a file that are filled together, so that it may be larger than memory."""


@dataclass(frozen=True)
class TaggedWords:
    """The words of a sentence with the values of each column; `tagged["upos"]` has one for each word."""

    words: tuple[str, ...]
    values: Mapping[str, tuple[str, ...]]

    def __getitem__(self, column: str) -> tuple[str, ...]:
        if column not in self.values:
            raise UsageError(f"unknown column {column!r}; the model fills {', '.join(self.values)}")
        return self.values[column]


@dataclass(frozen=True)
class TaggerScores:
    """How well a tagger fills columns whose values are known."""

    sentences: int
    words: int
    scores: tuple[CorpusScore, ...]
    """The accuracy of each column, and F1 of spans."""
    unknown: Mapping[str, Counter[str]]
    """For each column, the values that the model does not know, and how often they come."""


class Tagger:
    """Fills the columns that it was trained for."""

    def __init__(self, loaded: Loaded) -> None:
        require_loaded(loaded, [], caller="Tagger")
        task = loaded.config.task
        if not isinstance(task, TaggingConfig):
            raise UsageError(by_origin(f"{loaded.folder} is not a tagger: {in_words(loaded.config)}"))
        self.loaded, self.task = loaded, task
        self.config, self.card = loaded.config, loaded.card
        self.columns = task.columns
        self._model = cast("TaggingModel", loaded.model.eval())
        self._legal = legal_of(task, device=loaded.device)

    def __repr__(self) -> str:
        return f"Tagger({', '.join(self.columns)}: {self.loaded.summary()})"

    @property
    def is_conllu(self) -> bool:
        """Whether it fills columns of CoNLL-U, and not token columns with numbers."""
        return not all(column.isdecimal() for column in self.columns)

    @staticmethod
    def load(folder: Path | str, *, device: str | None = None) -> "Tagger":
        """Read the directory of a tagger, or the run in which it was trained."""
        return Tagger(load_any(folder, device=device))

    def tag(
        self,
        sentences: Iterable[str | Sequence[str]],
        *,
        words_per_batch: int = WORDS_PER_BATCH,
        progress: Callable[[int, int], None] = lambda _done, _all: None,
    ) -> list[TaggedWords]:
        """The tags of each sentence, given as a list of words or as raw text; one without words has none.

        `progress` gets the sentences done, and all of them.
        """
        at_once = as_whole_number(words_per_batch, "words_per_batch", least=1)
        require_callable(progress, "progress")
        given = self._words(sentences)
        numbers: list[Any] = [np.zeros((0, len(self.columns)), np.int64)] * len(given)
        full = [at for at, words in enumerate(given) if words]
        done = 0
        for places in batches_by_length([len(given[at]) for at in full], tokens=at_once):
            some = [full[place] for place in places.tolist()]
            lengths = np.array([len(given[at]) for at in some])
            parts = np.split(self._best([given[at] for at in some]), np.cumsum(lengths)[:-1])
            for at, part in zip(some, parts, strict=True):
                numbers[at] = part
            done += len(some)
            progress(done, len(full))
        return [self._tagged(words, found) for words, found in zip(given, numbers, strict=True)]

    def fill(
        self, sentences: Iterable[TokenSentence], *, columns: Sequence[str] | None = None
    ) -> Iterator[TokenSentence]:
        """The same sentences with these columns filled, by default all that the model knows; nothing else changes."""
        wanted, remaining = self._chosen(columns), iter(sentences)
        while some := list(islice(remaining, SENTENCES_AT_ONCE)):
            self._require_columns(some[0].layout, wanted)
            for sentence, tagged in zip(some, self.tag([each.forms for each in some]), strict=True):
                values = {column: tagged[column] for column in wanted}
                yield filled(sentence, values) if sentence.words else sentence

    def annotate(self, text: str, *, columns: Sequence[str] | None = None) -> TokenSentence:
        """A sentence of raw text as CoNLL-U, or as token columns, with the columns filled."""
        return next(iter(self.annotate_many([text], columns=columns)))

    def annotate_many(self, texts: Iterable[str], *, columns: Sequence[str] | None = None) -> Iterator[TokenSentence]:
        """The same for many lines; one without words gives a sentence without words."""
        wanted, remaining = self._chosen(columns), iter(texts)
        while some := [collapse_spaces(line) for line in islice(remaining, SENTENCES_AT_ONCE)]:
            for text, tagged in zip(some, self.tag(some), strict=True):
                sentence = new_sentence(tagged.words, text=text)
                values = {column: tagged[column] for column in wanted}
                yield filled(sentence, values) if self.is_conllu else _token_columns(tagged.words, values)

    def evaluate(
        self,
        sentences: Iterable[TokenSentence],
        *,
        bootstrap: Bootstrap | None = None,
        progress: Callable[[int, int], None] = lambda _done, _all: None,
    ) -> TaggerScores:
        """How well the columns of these sentences are filled; by default with 1,000 resamples from its seed."""
        gold = [each for each in sentences if each.words]
        if not gold:
            raise DataError("there is nothing to score: the file has no words")
        for column in self.columns:
            if column not in gold[0].layout.columns:
                raise DataError(f"the file has no column {column}, which the model fills ({gold[0].layout.seen})")
        found = self.tag([each.forms for each in gold], progress=progress)
        expected = {column: [each.column(column) for each in gold] for column in self.columns}
        unknown: dict[str, Counter[str]] = {}
        for column, values in expected.items():
            known, counts = set(self.task.tags[column]), Counter[str]()
            for sentence, each in zip(gold, values, strict=True):
                tags = list(map(edit_script, sentence.forms, each)) if column == SCRIPTED else each
                counts.update(value for tag, value in zip(tags, each, strict=True) if tag not in known)
            unknown[column] = counts
        config = self.config
        drawn = bootstrap or Bootstrap(seed=config.seed, resamples=config.evaluation.resamples)
        given = {column: [each[column] for each in found] for column in self.columns}
        scores = score_columns(given, expected, schemes=self.task.schemes, bootstrap=drawn)
        return TaggerScores(len(gold), sum(len(each.words) for each in gold), scores, unknown)

    def _best(self, sentences: Sequence[Sequence[str]]) -> np.ndarray:
        """The numbers of the tags of all words, sentence after sentence: [words, columns]."""
        forms = {form: row for row, form in enumerate(dict.fromkeys(form for each in sentences for form in each))}
        spelled = pad_forms(*spell_forms(list(forms), self.loaded.tokenizers))
        lengths = np.array([len(each) for each in sentences], np.int64)
        rows = np.zeros((len(sentences), int(lengths.max())), np.int64)
        for row, sentence in enumerate(sentences):
            rows[row, : len(sentence)] = [forms[form] for form in sentence]
        words = np.where(np.arange(rows.shape[1]) < lengths[:, None], spelled.words[rows], 0)
        arrays = (words, rows, lengths, spelled.letters, spelled.lengths)
        with torch.inference_mode():
            states, packing = self._model(
                TaggerInput(*(torch.from_numpy(each).to(self.loaded.device) for each in arrays))
            )
            each = zip(self._model.outputs, self._legal, strict=True)
            return torch.stack([output.best(states, packing, legal=legal) for output, legal in each], 1).cpu().numpy()

    def _tagged(self, words: tuple[str, ...], numbers: np.ndarray) -> TaggedWords:
        values = {}
        for place, column in enumerate(self.columns):
            names = self.task.tags[column]
            values[column] = tuple(written(column, words, [names[number] for number in numbers[:, place]]))
        return TaggedWords(words, values)

    def _words(self, sentences: Any) -> list[tuple[str, ...]]:
        """The words of each sentence; raw text is split first."""
        if isinstance(sentences, str | bytes) or not isinstance(sentences, Iterable):
            raise UsageError(
                f"tag takes a list of sentences, such as [['The', 'dog', 'sleeps']]; got {shown(sentences)}"
            )
        found = []
        for number, sentence in enumerate(sentences, start=1):
            words = find_words(sentence) if isinstance(sentence, str) else tuple(sentence)
            wrong = next((word for word in words if not isinstance(word, str) or not word), None)
            if wrong is not None:
                raise UsageError(f"tag takes words of one letter or more; sentence {number} has {shown(wrong)}")
            found.append(words)
        return found

    def _chosen(self, columns: Sequence[str] | None) -> tuple[str, ...]:
        for column in columns or ():
            if column not in self.columns:
                raise UsageError(f"unknown column {column!r}; the model fills {', '.join(self.columns)}")
        return self.columns if columns is None else tuple(columns)

    def _require_columns(self, layout: TokenLayout, columns: Sequence[str]) -> None:
        """Refuse a file in which the columns have no place: token columns may get new ones at their end."""
        places = list(layout.columns)
        for column in columns:
            if not layout.is_conllu and column == str(len(places) + 1):
                places.append(column)
            if column not in places:
                raise DataError(f"the model fills column {column}, which the file does not have: {layout.seen}")


def find_words(text: str) -> tuple[str, ...]:
    """The words and marks of raw text."""
    return tuple(word for part in split_words(collapse_spaces(text)) if (word := _restored(part)))


def _restored(word: str) -> str:
    return word.removeprefix(JOINER).removesuffix(JOINER).replace("\x1a", JOINER)


def _token_columns(words: Sequence[str], values: Mapping[str, Sequence[str]]) -> TokenSentence:
    """A sentence with as many columns as the highest that has values; those without are empty."""
    names = ("form", *(str(number) for number in range(2, max(map(int, values), default=1) + 1)))
    layout = TokenLayout(names)
    rows = [
        (word, *(values[name][at] if name in values else EMPTY for name in names[1:])) for at, word in enumerate(words)
    ]
    lines = tuple("\t".join(row) + "\n" for row in rows)
    return TokenSentence(layout, (*lines, "\n"), tuple(Word(layout, row, at) for at, row in enumerate(rows)))


def token_layout(path: Path, lines: Sequence[str]) -> TokenLayout | None:
    """The layout of a file with these first lines, or None if it is raw text.

    Tabs in most lines, or one word in each line with blank lines between sentences, are columns.
    """
    sample = lines[:SAMPLED_LINES]
    try:
        layout = find_layout(path, sample)
    except DataError:
        return None
    if layout.is_conllu or (layout.separator == "\t" and len(layout.columns) > 1):
        return layout
    has_sentences = any(not line.strip() for line in sample[:-1])
    visible = [line for line in sample if line.strip()]
    is_regular = all(len(layout.cells(line)) == len(layout.columns) for line in visible)
    return layout if has_sentences and is_regular else None
